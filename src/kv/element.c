/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Each function is a plain loop that the compiler vectorises. The loops are compiled for each
 * instruction set (the parameter ISA), and element_best() selects a table at run time. Signed types
 * share the loops of unsigned types where the bits of the result are the same.
 */
#include "kv/element.h"

#include <stdbool.h>

/* Elements may begin at any address. */
#define LOOSE __attribute__((aligned(1)))
typedef uint8_t u8;
typedef uint16_t LOOSE u16;
typedef uint32_t LOOSE u32;
typedef uint64_t LOOSE u64;
typedef int8_t i8;
typedef int16_t LOOSE i16;
typedef int32_t LOOSE i32;
typedef int64_t LOOSE i64;
typedef float LOOSE f32;
typedef double LOOSE f64;

#define TARGET_plain
#if defined(__x86_64__)
#define TARGET_avx2 __attribute__((target("avx2")))
#endif

/* ---- functions of two elements, a and b ---- */

/* Unsigned arithmetic without the promotion to int, whose overflow is undefined. */
#define WRAP_ADD(a, b) ((a) + 0ull + (b))
#define WRAP_SUB(a, b) ((a) + 0ull - (b))
#define WRAP_MUL(a, b) ((a)*1ull * (b))

#define MIN_OF(a, b) ((a) < (b) ? (a) : (b))
#define MAX_OF(a, b) ((a) > (b) ? (a) : (b))

#define U_MAX(T) ((T)~0ull)
#define I_MAX(T) ((T)(~0ull >> (65 - 8 * sizeof(T))))
#define I_MIN(T) ((T)(-I_MAX(T) - 1))

#define SAT_ADD_U(T, a, b) ((T)((a) + (b)) < (a) ? U_MAX(T) : (T)((a) + (b)))
#define SAT_SUB_U(T, a, b) ((a) > (b) ? (T)((a) - (b)) : (T)0)

/* The sum, as bits, overflows if its sign differs from that of both operands. */
#define SUM_I(T, a, b)	    ((T)((uint64_t)(a) + (uint64_t)(b)))
#define DIFF_I(T, a, b)	    ((T)((uint64_t)(a) - (uint64_t)(b)))
#define EDGE_I(T, negative) ((T)((negative) ? I_MIN(T) : I_MAX(T)))
#define SAT_ADD_I(T, a, b)                                                                         \
	((((a) ^ SUM_I(T, a, b)) & ((b) ^ SUM_I(T, a, b))) < 0 ? EDGE_I(T, (a) < 0)                \
							       : SUM_I(T, a, b))
#define SAT_SUB_I(T, a, b)                                                                         \
	((((a) ^ (b)) & ((a) ^ DIFF_I(T, a, b))) < 0 ? EDGE_I(T, (a) < 0) : DIFF_I(T, a, b))

/* Products of up to 32 bits fit into 64 bits. */
#define SAT_MUL_U(T, a, b) ((a)*1ull * (b) > U_MAX(T) ? U_MAX(T) : (T)((a)*1ull * (b)))
#define SAT_MUL_I(T, a, b)                                                                         \
	((T)MAX_OF((int64_t)I_MIN(T), MIN_OF((int64_t)I_MAX(T), (int64_t)(a) * (int64_t)(b))))

static inline uint64_t sat_mul_u64(uint64_t a, uint64_t b)
{
	uint64_t product;

	return __builtin_mul_overflow(a, b, &product) ? UINT64_MAX : product;
}

static inline int64_t sat_mul_i64(int64_t a, int64_t b)
{
	int64_t product;

	if (!__builtin_mul_overflow(a, b, &product))
		return product;
	return (a < 0) == (b < 0) ? INT64_MAX : INT64_MIN;
}

/* ---- loops ---- */

#define LOOPS(ISA, NAME, T, EXPR)                                                                  \
	TARGET_##ISA static void NAME##_##T##_vector_##ISA(void *to, const void *operand,          \
							   size_t n)                               \
	{                                                                                          \
		T *restrict x = to;                                                                \
		const T *restrict y = operand;                                                     \
                                                                                                   \
		for (size_t i = 0; i < n; i++) {                                                   \
			T a = x[i], b = y[i];                                                      \
                                                                                                   \
			(void)a;                                                                   \
			x[i] = (T)(EXPR);                                                          \
		}                                                                                  \
	}                                                                                          \
	TARGET_##ISA static void NAME##_##T##_each_##ISA(void *to, const void *operand, size_t n)  \
	{                                                                                          \
		T *restrict x = to;                                                                \
		T b = *(const T *)operand;                                                         \
                                                                                                   \
		for (size_t i = 0; i < n; i++) {                                                   \
			T a = x[i];                                                                \
                                                                                                   \
			(void)a;                                                                   \
			x[i] = (T)(EXPR);                                                          \
		}                                                                                  \
	}                                                                                          \
	TARGET_##ISA static void NAME##_##T##_reduce_##ISA(void *acc, const void *from, size_t n)  \
	{                                                                                          \
		const T *restrict y = from;                                                        \
		T a = *(T *)acc;                                                                   \
                                                                                                   \
		for (size_t i = 0; i < n; i++) {                                                   \
			T b = y[i];                                                                \
                                                                                                   \
			a = (T)(EXPR);                                                             \
		}                                                                                  \
		*(T *)acc = a;                                                                     \
	}

#define SWAP_LOOPS(ISA, T)                                                                         \
	TARGET_##ISA static void swap_##T##_vector_##ISA(void *to, const void *expect,             \
							 const void *operand, size_t n)            \
	{                                                                                          \
		T *restrict x = to;                                                                \
		const T *restrict y = operand;                                                     \
		const T *restrict z = expect;                                                      \
                                                                                                   \
		for (size_t i = 0; i < n; i++)                                                     \
			x[i] = x[i] == z[i] ? y[i] : x[i];                                         \
	}                                                                                          \
	TARGET_##ISA static void swap_##T##_each_##ISA(void *to, const void *expect,               \
						       const void *operand, size_t n)              \
	{                                                                                          \
		T *restrict x = to;                                                                \
		T y = *(const T *)operand, z = *(const T *)expect;                                 \
                                                                                                   \
		for (size_t i = 0; i < n; i++)                                                     \
			x[i] = x[i] == z ? y : x[i];                                               \
	}

#define BIT_LOOPS(ISA, T)                                                                          \
	LOOPS(ISA, add, T, WRAP_ADD(a, b))                                                         \
	LOOPS(ISA, sub, T, WRAP_SUB(a, b))                                                         \
	LOOPS(ISA, mul, T, WRAP_MUL(a, b))                                                         \
	LOOPS(ISA, and, T, a &b)                                                                   \
	LOOPS(ISA, or, T, a | b)                                                                   \
	LOOPS(ISA, xor, T, a ^ b)                                                                  \
	LOOPS(ISA, assign, T, b)                                                                   \
	SWAP_LOOPS(ISA, T)

#define ORDER_LOOPS(ISA, T)                                                                        \
	LOOPS(ISA, min, T, MIN_OF(a, b))                                                           \
	LOOPS(ISA, max, T, MAX_OF(a, b))

#define UNSIGNED_LOOPS(ISA, T)                                                                     \
	BIT_LOOPS(ISA, T)                                                                          \
	ORDER_LOOPS(ISA, T)                                                                        \
	LOOPS(ISA, add_sat, T, SAT_ADD_U(T, a, b))                                                 \
	LOOPS(ISA, sub_sat, T, SAT_SUB_U(T, a, b))

#define SIGNED_LOOPS(ISA, T)                                                                       \
	ORDER_LOOPS(ISA, T)                                                                        \
	LOOPS(ISA, add_sat, T, SAT_ADD_I(T, a, b))                                                 \
	LOOPS(ISA, sub_sat, T, SAT_SUB_I(T, a, b))

#define FLOAT_LOOPS(ISA, T)                                                                        \
	ORDER_LOOPS(ISA, T)                                                                        \
	LOOPS(ISA, add, T, a + b)                                                                  \
	LOOPS(ISA, sub, T, a - b)                                                                  \
	LOOPS(ISA, mul, T, a *b)

#define ALL_LOOPS(ISA)                                                                             \
	UNSIGNED_LOOPS(ISA, u8)                                                                    \
	UNSIGNED_LOOPS(ISA, u16)                                                                   \
	UNSIGNED_LOOPS(ISA, u32)                                                                   \
	UNSIGNED_LOOPS(ISA, u64)                                                                   \
	SIGNED_LOOPS(ISA, i8)                                                                      \
	SIGNED_LOOPS(ISA, i16)                                                                     \
	SIGNED_LOOPS(ISA, i32)                                                                     \
	SIGNED_LOOPS(ISA, i64)                                                                     \
	LOOPS(ISA, mul_sat, u8, SAT_MUL_U(u8, a, b))                                               \
	LOOPS(ISA, mul_sat, u16, SAT_MUL_U(u16, a, b))                                             \
	LOOPS(ISA, mul_sat, u32, SAT_MUL_U(u32, a, b))                                             \
	LOOPS(ISA, mul_sat, u64, sat_mul_u64(a, b))                                                \
	LOOPS(ISA, mul_sat, i8, SAT_MUL_I(i8, a, b))                                               \
	LOOPS(ISA, mul_sat, i16, SAT_MUL_I(i16, a, b))                                             \
	LOOPS(ISA, mul_sat, i32, SAT_MUL_I(i32, a, b))                                             \
	LOOPS(ISA, mul_sat, i64, sat_mul_i64(a, b))                                                \
	FLOAT_LOOPS(ISA, f32)                                                                      \
	FLOAT_LOOPS(ISA, f64)

ALL_LOOPS(plain)
#if defined(TARGET_avx2)
ALL_LOOPS(avx2)
#endif

/* ---- tables ---- */

#define ENTRY(ISA, NAME, T)                                                                        \
	{                                                                                          \
		NAME##_##T##_vector_##ISA, NAME##_##T##_each_##ISA, NAME##_##T##_reduce_##ISA      \
	}

/* Wrapping and bitwise functions of a signed type are those of the unsigned type. */
#define ROW_BITS(ISA, NAME)                                                                        \
	{                                                                                          \
		[KV_U8] = ENTRY(ISA, NAME, u8), [KV_U16] = ENTRY(ISA, NAME, u16),                  \
		[KV_U32] = ENTRY(ISA, NAME, u32), [KV_U64] = ENTRY(ISA, NAME, u64),                \
		[KV_I8] = ENTRY(ISA, NAME, u8), [KV_I16] = ENTRY(ISA, NAME, u16),                  \
		[KV_I32] = ENTRY(ISA, NAME, u32), [KV_I64] = ENTRY(ISA, NAME, u64),                \
	}

#define ROW_ASSIGN(ISA)                                                                            \
	{                                                                                          \
		[KV_U8] = ENTRY(ISA, assign, u8), [KV_U16] = ENTRY(ISA, assign, u16),              \
		[KV_U32] = ENTRY(ISA, assign, u32), [KV_U64] = ENTRY(ISA, assign, u64),            \
		[KV_I8] = ENTRY(ISA, assign, u8), [KV_I16] = ENTRY(ISA, assign, u16),              \
		[KV_I32] = ENTRY(ISA, assign, u32), [KV_I64] = ENTRY(ISA, assign, u64),            \
		[KV_FLOAT] = ENTRY(ISA, assign, u32), [KV_DOUBLE] = ENTRY(ISA, assign, u64),       \
	}

#define ROW_ARITHMETIC(ISA, NAME)                                                                  \
	{                                                                                          \
		[KV_U8] = ENTRY(ISA, NAME, u8), [KV_U16] = ENTRY(ISA, NAME, u16),                  \
		[KV_U32] = ENTRY(ISA, NAME, u32), [KV_U64] = ENTRY(ISA, NAME, u64),                \
		[KV_I8] = ENTRY(ISA, NAME, u8), [KV_I16] = ENTRY(ISA, NAME, u16),                  \
		[KV_I32] = ENTRY(ISA, NAME, u32), [KV_I64] = ENTRY(ISA, NAME, u64),                \
		[KV_FLOAT] = ENTRY(ISA, NAME, f32), [KV_DOUBLE] = ENTRY(ISA, NAME, f64),           \
	}

#define ROW_INTEGERS(ISA, NAME)                                                                    \
	{                                                                                          \
		[KV_U8] = ENTRY(ISA, NAME, u8), [KV_U16] = ENTRY(ISA, NAME, u16),                  \
		[KV_U32] = ENTRY(ISA, NAME, u32), [KV_U64] = ENTRY(ISA, NAME, u64),                \
		[KV_I8] = ENTRY(ISA, NAME, i8), [KV_I16] = ENTRY(ISA, NAME, i16),                  \
		[KV_I32] = ENTRY(ISA, NAME, i32), [KV_I64] = ENTRY(ISA, NAME, i64),                \
	}

#define ROW_ORDER(ISA, NAME)                                                                       \
	{                                                                                          \
		[KV_U8] = ENTRY(ISA, NAME, u8), [KV_U16] = ENTRY(ISA, NAME, u16),                  \
		[KV_U32] = ENTRY(ISA, NAME, u32), [KV_U64] = ENTRY(ISA, NAME, u64),                \
		[KV_I8] = ENTRY(ISA, NAME, i8), [KV_I16] = ENTRY(ISA, NAME, i16),                  \
		[KV_I32] = ENTRY(ISA, NAME, i32), [KV_I64] = ENTRY(ISA, NAME, i64),                \
		[KV_FLOAT] = ENTRY(ISA, NAME, f32), [KV_DOUBLE] = ENTRY(ISA, NAME, f64),           \
	}

#define SWAP_ENTRY(ISA, T)                                                                         \
	{                                                                                          \
		swap_##T##_vector_##ISA, swap_##T##_each_##ISA                                     \
	}

#define TABLE(ISA)                                                                                 \
	{                                                                                          \
		.fn = {[KV_ADD] = ROW_ARITHMETIC(ISA, add),                                        \
		       [KV_SUB] = ROW_ARITHMETIC(ISA, sub),                                        \
		       [KV_MUL] = ROW_ARITHMETIC(ISA, mul),                                        \
		       [KV_MIN] = ROW_ORDER(ISA, min),                                             \
		       [KV_MAX] = ROW_ORDER(ISA, max),                                             \
		       [KV_AND] = ROW_BITS(ISA, and),                                              \
		       [KV_OR] = ROW_BITS(ISA, or),                                                \
		       [KV_XOR] = ROW_BITS(ISA, xor),                                              \
		       [KV_ASSIGN] = ROW_ASSIGN(ISA),                                              \
		       [KV_ADD_SAT] = ROW_INTEGERS(ISA, add_sat),                                  \
		       [KV_SUB_SAT] = ROW_INTEGERS(ISA, sub_sat),                                  \
		       [KV_MUL_SAT] = ROW_INTEGERS(ISA, mul_sat)},                                 \
		.swap = {SWAP_ENTRY(ISA, u8), SWAP_ENTRY(ISA, u16), SWAP_ENTRY(ISA, u32),          \
			 SWAP_ENTRY(ISA, u64)},                                                    \
	}

static const struct element_table plain = TABLE(plain);
#if defined(TARGET_avx2)
static const struct element_table avx2 = TABLE(avx2);
#endif

const struct element_table *element_plain(void)
{
	return &plain;
}

const struct element_table *element_best(void)
{
#if defined(TARGET_avx2)
	if (__builtin_cpu_supports("avx2"))
		return &avx2;
#endif
	return &plain;
}

unsigned element_width(unsigned type)
{
	static const uint8_t widths[KV_TYPES] = {
		[KV_U8] = 1,  [KV_U16] = 2, [KV_U32] = 4, [KV_U64] = 8,	  [KV_I8] = 1,
		[KV_I16] = 2, [KV_I32] = 4, [KV_I64] = 8, [KV_FLOAT] = 4, [KV_DOUBLE] = 8,
	};

	return type < KV_TYPES ? widths[type] : 0;
}

/* ---- filters ---- */

/* The store of each element needs no branch: its place is at most that of the element itself. */
#define FILTER(NAME, T, CMP)                                                                       \
	static size_t filter_##NAME##_##T(void *out, const void *from, const void *operand,        \
					  size_t n)                                                \
	{                                                                                          \
		const T *x = from;                                                                 \
		T b = *(const T *)operand, *y = out;                                               \
		size_t matched = 0;                                                                \
                                                                                                   \
		for (size_t i = 0; i < n; i++) {                                                   \
			T a = x[i];                                                                \
                                                                                                   \
			y[matched] = a;                                                            \
			matched += a CMP b;                                                        \
		}                                                                                  \
		return matched;                                                                    \
	}

#define FILTERS(T)                                                                                 \
	FILTER(eq, T, ==)                                                                          \
	FILTER(ne, T, !=)                                                                          \
	FILTER(lt, T, <)                                                                           \
	FILTER(le, T, <=)                                                                          \
	FILTER(gt, T, >)                                                                           \
	FILTER(ge, T, >=)

FILTERS(u8)
FILTERS(u16)
FILTERS(u32)
FILTERS(u64)
FILTERS(i8)
FILTERS(i16)
FILTERS(i32)
FILTERS(i64)
FILTERS(f32)
FILTERS(f64)

#define FILTER_ROW(NAME)                                                                           \
	{                                                                                          \
		[KV_U8] = filter_##NAME##_u8, [KV_U16] = filter_##NAME##_u16,                      \
		[KV_U32] = filter_##NAME##_u32, [KV_U64] = filter_##NAME##_u64,                    \
		[KV_I8] = filter_##NAME##_i8, [KV_I16] = filter_##NAME##_i16,                      \
		[KV_I32] = filter_##NAME##_i32, [KV_I64] = filter_##NAME##_i64,                    \
		[KV_FLOAT] = filter_##NAME##_f32, [KV_DOUBLE] = filter_##NAME##_f64,               \
	}

element_filter_fn *element_filter(unsigned fn, unsigned type)
{
	static element_filter_fn *const filters[][KV_TYPES] = {
		[KV_EQ - KV_EQ] = FILTER_ROW(eq), [KV_NE - KV_EQ] = FILTER_ROW(ne),
		[KV_LT - KV_EQ] = FILTER_ROW(lt), [KV_LE - KV_EQ] = FILTER_ROW(le),
		[KV_GT - KV_EQ] = FILTER_ROW(gt), [KV_GE - KV_EQ] = FILTER_ROW(ge),
	};

	return fn >= KV_EQ && fn < KV_FNS && type < KV_TYPES ? filters[fn - KV_EQ][type] : NULL;
}
