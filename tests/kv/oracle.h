/* SPDX-License-Identifier: BSD-2-Clause */
/* The functions of the store on one element, computed in 128 bits, to compare with. */
#ifndef ROOST_TESTS_KV_ORACLE_H
#define ROOST_TESTS_KV_ORACLE_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "kv/kv.h"

typedef __int128 wide;
typedef unsigned __int128 uwide;

static inline unsigned oracle_width(unsigned type)
{
	return type < KV_FLOAT ? 1u << type % 4 : type == KV_FLOAT ? 4 : 8;
}

static inline bool oracle_signed(unsigned type)
{
	return type >= KV_I8 && type <= KV_I64;
}

/* Returns whether updates and reduce have the function. */
static inline bool oracle_has(unsigned fn, unsigned type)
{
	return type < KV_FLOAT || fn <= KV_MUL || fn == KV_MIN || fn == KV_MAX || fn == KV_ASSIGN;
}

static inline wide oracle_load(unsigned type, const void *p)
{
	unsigned bits = 8 * oracle_width(type);
	uint64_t v = 0;

	memcpy(&v, p, bits / 8);
	if (oracle_signed(type) && v >> (bits - 1) & 1)
		return (wide)v - ((wide)1 << bits);
	return (wide)v;
}

static inline wide oracle_clamp(unsigned type, wide v)
{
	unsigned bits = 8 * oracle_width(type);
	wide max = ((wide)1 << (bits - oracle_signed(type))) - 1;
	wide min = oracle_signed(type) ? -max - 1 : 0;

	return v < min ? min : v > max ? max : v;
}

/* The product of two unsigned words may need all 128 bits. */
static inline wide oracle_product(unsigned type, wide a, wide b, bool saturate)
{
	if (oracle_signed(type))
		return saturate ? oracle_clamp(type, a * b) : a * b;
	if (saturate && (uwide)a * (uwide)b > (uwide)UINT64_MAX)
		return oracle_clamp(type, (wide)UINT64_MAX);
	return saturate ? oracle_clamp(type, a * b) : (wide)((uwide)a * (uwide)b);
}

static inline wide oracle_integer(unsigned fn, unsigned type, wide a, wide b)
{
	switch (fn) {
	case KV_ADD:
		return a + b;
	case KV_SUB:
		return a - b;
	case KV_MUL:
		return oracle_product(type, a, b, false);
	case KV_MIN:
		return a < b ? a : b;
	case KV_MAX:
		return a > b ? a : b;
	case KV_AND:
		return a & b;
	case KV_OR:
		return a | b;
	case KV_XOR:
		return a ^ b;
	case KV_ADD_SAT:
		return oracle_clamp(type, a + b);
	case KV_SUB_SAT:
		return oracle_clamp(type, a - b);
	case KV_MUL_SAT:
		return oracle_product(type, a, b, true);
	default:
		return b;
	}
}

#define ORACLE_FLOAT(T)                                                                            \
	{                                                                                          \
		T x, y, r;                                                                         \
                                                                                                   \
		memcpy(&x, a, sizeof(x));                                                          \
		memcpy(&y, b, sizeof(y));                                                          \
		if (fn == KV_ADD)                                                                  \
			r = x + y;                                                                 \
		else if (fn == KV_SUB)                                                             \
			r = x - y;                                                                 \
		else if (fn == KV_MUL)                                                             \
			r = x * y;                                                                 \
		else if ((fn == KV_MIN && x < y) || (fn == KV_MAX && x > y))                       \
			r = x;                                                                     \
		else                                                                               \
			r = y;                                                                     \
		memcpy(a, &r, sizeof(r));                                                          \
	}

/* element := fn(element, operand). `expect` is used by KV_SWAP only, and is not NULL. */
static inline void oracle_apply(unsigned fn, unsigned type, void *a, const void *b,
				const void *expect)
{
	unsigned width = oracle_width(type);

	if (fn == KV_SWAP) {
		if (memcmp(a, expect, width) == 0)
			memcpy(a, b, width);
	} else if (fn == KV_ASSIGN) {
		memcpy(a, b, width);
	} else if (type == KV_FLOAT) {
		ORACLE_FLOAT(float)
	} else if (type == KV_DOUBLE) {
		ORACLE_FLOAT(double)
	} else {
		wide r = oracle_integer(fn, type, oracle_load(type, a), oracle_load(type, b));

		memcpy(a, &r, width);
	}
}

#define ORACLE_COMPARE(x, y)                                                                       \
	(fn == KV_EQ   ? (x) == (y)                                                                \
	 : fn == KV_NE ? (x) != (y)                                                                \
	 : fn == KV_LT ? (x) < (y)                                                                 \
	 : fn == KV_LE ? (x) <= (y)                                                                \
	 : fn == KV_GT ? (x) > (y)                                                                 \
		       : (x) >= (y))

static inline bool oracle_matches(unsigned fn, unsigned type, const void *a, const void *b)
{
	if (type == KV_FLOAT) {
		float x, y;

		memcpy(&x, a, sizeof(x));
		memcpy(&y, b, sizeof(y));
		return ORACLE_COMPARE(x, y);
	}
	if (type == KV_DOUBLE) {
		double x, y;

		memcpy(&x, a, sizeof(x));
		memcpy(&y, b, sizeof(y));
		return ORACLE_COMPARE(x, y);
	}
	return ORACLE_COMPARE(oracle_load(type, a), oracle_load(type, b));
}

#endif
