/* SPDX-License-Identifier: BSD-2-Clause */
#include "packet/crc32.h"

#include <isa-l/crc.h>

#include <stdbool.h>
#include <string.h>

#include "base/mem.h"

/* The factors that move 128 bits forward by 1024 bits; see below. */
const uint64_t crc32_fold_by[2] = {0x1e88ef372, 0x14a7fe880};

#if defined(__x86_64__)
#include <immintrin.h>

#define WIDE	  __attribute__((target("avx2,pclmul,vpclmulqdq")))
#define BLOCK	  16
#define BTH	  12
#define SHORT_MIN 16 /* one block */
/* from this length on four accumulators are faster: they hide the latency of a multiplication */
#define LONG_MIN  256
#define LONG_TURN 128
#define LONG_STEP 32

/*
 * Source: Gopal et al., Fast CRC computation for generic polynomials using PCLMULQDQ, Intel 2009. A
 * power of x modulo the polynomial has 32 bits, of which the highest is x^0. It is stored shifted
 * left by one, because a product of two reflected numbers is one bit short.
 *
 * The factors that move 128 bits forward by n bits are the powers n + 32 and n - 32, one for each
 * half.
 */
static const uint64_t by_256[2] = {0x0f1da05aa, 0x15a546366};
static const uint64_t by_128[2] = {0x1751997d0, 0x0ccaa009e};
/* The factor that reduces 64 bits to 32, the polynomial, and the quotient of x^64 by it. */
#define BY_64	 0x163cd6124
#define POLY	 0x1db710641
#define QUOTIENT 0x1f7011641

/*
 * The factors that move a block with n blocks after it to the last 96 bits, at index SHORT_BLOCKS -
 * 1 - n. With them a short run needs no chain of multiplications: the multiplications of all blocks
 * run in parallel. The table is filled before main().
 */
#define SHORT_BLOCKS (LONG_MIN / BLOCK)
static _Alignas(32) uint64_t to_end[SHORT_BLOCKS][2];

/*
 * The 16 bytes from last_r + r are a byte order that moves the first r bytes of a block to its end,
 * with zeros in front.
 */
static const uint8_t last_r[2 * BLOCK] = {
	0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80,
	0x80, 0x80, 0x80, 0x80, 0x80, 0,    1,	  2,	3,    4,    5,
	6,    7,    8,	  9,	10,   11,   12,	  13,	14,   15,
};

WIDE static inline __m256i twice(const uint64_t k[2])
{
	return _mm256_set_epi64x((long long)k[1], (long long)k[0], (long long)k[1],
				 (long long)k[0]);
}

WIDE static inline __m256i load(const void *p)
{
	return _mm256_loadu_si256(p);
}

WIDE static inline __m128i load_block(const void *p)
{
	return _mm_loadu_si128(p);
}

/* Moves `a` forward by the factors `k`, and adds the data there, `b`. */
WIDE static inline __m256i fold(__m256i a, __m256i k, __m256i b)
{
	return _mm256_xor_si256(_mm256_xor_si256(_mm256_clmulepi64_epi128(a, k, 0x00),
						 _mm256_clmulepi64_epi128(a, k, 0x11)),
				b);
}

WIDE static inline __m128i fold_block(__m128i a, __m128i k, __m128i b)
{
	return _mm_xor_si128(
		_mm_xor_si128(_mm_clmulepi64_si128(a, k, 0x00), _mm_clmulepi64_si128(a, k, 0x11)),
		b);
}

/* Returns the remainder of 96 bits, by Barrett's method. */
WIDE static inline uint32_t remainder_of(__m128i a)
{
	const __m128i low = _mm_cvtsi32_si128(-1), by = _mm_set_epi64x(0, BY_64),
		      divide = _mm_set_epi64x(QUOTIENT, POLY);
	__m128i b = _mm_xor_si128(_mm_clmulepi64_si128(_mm_and_si128(a, low), by, 0x00),
				  _mm_srli_si128(a, 4));
	__m128i q = _mm_clmulepi64_si128(_mm_and_si128(b, low), divide, 0x10);

	q = _mm_clmulepi64_si128(_mm_and_si128(q, low), divide, 0x00);
	return (uint32_t)_mm_extract_epi32(_mm_xor_si128(b, q), 1);
}

/*
 * Returns a block that ends with the first r (4 to 16) bytes, to which the state before them is
 * added. The zeros in front of them do not change the CRC. 16 bytes at p must be readable.
 */
WIDE static inline __m128i first_block(uint32_t crc, const uint8_t *p, size_t r)
{
	return _mm_shuffle_epi8(_mm_xor_si128(load_block(p), _mm_cvtsi32_si128((int)~crc)),
				load_block(last_r + r));
}

/*
 * Computes the CRC of a BTH alone; code that copies a payload with its CRC continues from there.
 * This is again a block with zeros in front. The BTH is read in the words in which it was written,
 * because a wider load across two of these stores would wait for both.
 */
WIDE static uint32_t crc32_bth(uint32_t crc, const uint8_t *p)
{
	uint32_t w[BTH / 4];

	for (unsigned i = 0; i < BTH / 4; i++)
		memcpy(&w[i], p + 4 * i, sizeof(w[i]));
	return ~remainder_of(fold_block(_mm_set_epi32((int)w[2], (int)w[1], (int)(w[0] ^ ~crc), 0),
					load_block(to_end[SHORT_BLOCKS - 1]), _mm_setzero_si128()));
}

WIDE static uint32_t crc32_short(uint32_t crc, const uint8_t *p, size_t r, size_t blocks)
{
	const __m256i none = _mm256_setzero_si256();
	__m128i first = first_block(crc, p, r);
	const uint64_t(*k)[2];
	__m256i pair, sum;

	p += r;
	if (blocks & 1) {
		pair = _mm256_inserti128_si256(_mm256_castsi128_si256(first), load_block(p), 1);
		p += BLOCK;
		blocks--;
	} else {
		pair = _mm256_inserti128_si256(none, first, 1);
	}
	k = &to_end[SHORT_BLOCKS - 2 - blocks];
	sum = fold(pair, load(k), none);
	for (const uint8_t *end = p + blocks * BLOCK; p != end; p += 2 * BLOCK)
		sum = _mm256_xor_si256(sum, fold(load(p), load(k += 2), none));
	return ~remainder_of(
		_mm_xor_si128(_mm256_castsi256_si128(sum), _mm256_extracti128_si256(sum, 1)));
}

/* Computes the CRC of at least eight blocks after the first r bytes. */
WIDE static uint32_t crc32_long(uint32_t crc, const uint8_t *p, size_t r, size_t blocks)
{
	const __m256i k1024 = twice(crc32_fold_by), k256 = twice(by_256);
	const __m128i k128 = _mm256_castsi256_si128(twice(by_128)), none = _mm_setzero_si128();
	__m128i x = fold_block(first_block(crc, p, r), k128, none);
	size_t n = blocks * BLOCK;
	__m256i a, b, c, d;

	p += r;
	a = _mm256_xor_si256(load(p), _mm256_zextsi128_si256(x));
	b = load(p + 32);
	c = load(p + 64);
	d = load(p + 96);
	for (p += LONG_TURN, n -= LONG_TURN; n >= LONG_TURN; p += LONG_TURN, n -= LONG_TURN) {
		a = fold(a, k1024, load(p));
		b = fold(b, k1024, load(p + 32));
		c = fold(c, k1024, load(p + 64));
		d = fold(d, k1024, load(p + 96));
	}
	a = fold(fold(fold(a, k256, b), k256, c), k256, d);
	for (; n >= LONG_STEP; p += LONG_STEP, n -= LONG_STEP)
		a = fold(a, k256, load(p));
	x = fold_block(_mm256_castsi256_si128(a), k128, _mm256_extracti128_si256(a, 1));
	if (n)
		x = fold_block(x, k128, load_block(p));
	return ~remainder_of(fold_block(x, load_block(to_end[SHORT_BLOCKS - 1]), none));
}

static bool has_wide;

static uint64_t power(unsigned n)
{
	uint32_t a = 0x80000000;

	while (n--)
		a = a >> 1 ^ (0xedb88320 & -(a & 1));
	return (uint64_t)a << 1;
}

/* Calls that come before this constructor use ISA-L. */
__attribute__((constructor(101))) static void choose(void)
{
	for (unsigned n = 0; n < SHORT_BLOCKS; n++) {
		to_end[SHORT_BLOCKS - 1 - n][0] = power(128 * n + 96);
		to_end[SHORT_BLOCKS - 1 - n][1] = power(128 * n + 32);
	}
	__builtin_cpu_init();
	has_wide = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("vpclmulqdq");
}

uint32_t crc32_update(uint32_t crc, const void *p, size_t n)
{
	/*
	 * The number of bytes before the whole blocks. It must be at least four, because the state
	 * is added to four bytes. It is, in all packets.
	 */
	size_t r = (n - 1) % BLOCK + 1;

	if (n == BTH && has_wide)
		return crc32_bth(crc, p);
	if (unlikely(n < SHORT_MIN || r < sizeof(crc) || !has_wide))
		return crc32_gzip_refl(crc, p, n);
	return n < LONG_MIN ? crc32_short(crc, p, r, (n - r) / BLOCK)
			    : crc32_long(crc, p, r, (n - r) / BLOCK);
}

#else

uint32_t crc32_update(uint32_t crc, const void *p, size_t n)
{
	return crc32_gzip_refl(crc, p, n);
}

#endif
