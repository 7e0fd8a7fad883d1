/* SPDX-License-Identifier: BSD-2-Clause */
#include "packet/crc32.h"

#include <isa-l/crc.h>

#include <stdbool.h>

#include "base/mem.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define WIDE	  __attribute__((target("avx2,pclmul,vpclmulqdq")))
#define WIDE_MIN  256 /* below, the library's narrower steps are as fast */
#define WIDE_TURN 128 /* bytes: four accumulators hide the latency of a multiplication */
#define WIDE_STEP 32

/*
 * Powers of x modulo the polynomial, bits reversed and shifted left by one, for taking 128 bits forward by n: { n + 32, n - 32 }. Gopal et al.,
 * Fast CRC computation for generic polynomials using PCLMULQDQ, Intel 2009.
 */
static const uint64_t by_1024[2] = {0x1e88ef372, 0x14a7fe880};
static const uint64_t by_256[2] = {0x0f1da05aa, 0x15a546366};
static const uint64_t by_128[2] = {0x1751997d0, 0x0ccaa009e};

WIDE static inline __m256i twice(const uint64_t k[2])
{
	return _mm256_set_epi64x((long long)k[1], (long long)k[0], (long long)k[1], (long long)k[0]);
}

WIDE static inline __m256i load(const uint8_t *p)
{
	return _mm256_loadu_si256((const __m256i_u *)p);
}

/* What `a` is further on, and what stands there. */
WIDE static inline __m256i fold(__m256i a, __m256i k, __m256i b)
{
	return _mm256_xor_si256(
		_mm256_xor_si256(_mm256_clmulepi64_epi128(a, k, 0x00), _mm256_clmulepi64_epi128(a, k, 0x11)),
		b);
}

WIDE static inline __m128i fold_narrow(__m128i a, __m128i k, __m128i b)
{
	return _mm_xor_si128(
		_mm_xor_si128(_mm_clmulepi64_si128(a, k, 0x00), _mm_clmulepi64_si128(a, k, 0x11)), b);
}

/* n is WIDE_MIN at least. */
WIDE static uint32_t crc32_wide(uint32_t crc, const uint8_t *p, size_t n)
{
	const __m256i k1024 = twice(by_1024), k256 = twice(by_256);
	const __m128i k128 = _mm256_castsi256_si128(twice(by_128));
	__m256i a = load(p), b = load(p + 32), c = load(p + 64), d = load(p + 96);
	__m128i x;
	uint8_t rest[16];

	a = _mm256_xor_si256(a, _mm256_zextsi128_si256(_mm_cvtsi32_si128((int)~crc)));
	for (p += WIDE_TURN, n -= WIDE_TURN; n >= WIDE_TURN; p += WIDE_TURN, n -= WIDE_TURN) {
		a = fold(a, k1024, load(p));
		b = fold(b, k1024, load(p + 32));
		c = fold(c, k1024, load(p + 64));
		d = fold(d, k1024, load(p + 96));
	}
	a = fold(fold(fold(a, k256, b), k256, c), k256, d);
	for (; n >= WIDE_STEP; p += WIDE_STEP, n -= WIDE_STEP)
		a = fold(a, k256, load(p));
	x = fold_narrow(_mm256_castsi256_si128(a), k128, _mm256_extracti128_si256(a, 1));
	/* 128 bits whose CRC, from a state of 0, is that of all so far. */
	_mm_storeu_si128((__m128i_u *)rest, x);
	crc = crc32_gzip_refl(0xffffffff, rest, sizeof(rest));
	return n ? crc32_gzip_refl(crc, p, n) : crc;
}

static bool has_wide;

/* Whoever comes before it is served by the library. */
__attribute__((constructor(101))) static void choose(void)
{
	__builtin_cpu_init();
	has_wide = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("vpclmulqdq");
}

uint32_t crc32_update(uint32_t crc, const void *p, size_t n)
{
	if (n >= WIDE_MIN && likely(has_wide))
		return crc32_wide(crc, p, n);
	return crc32_gzip_refl(crc, p, n);
}

#else

uint32_t crc32_update(uint32_t crc, const void *p, size_t n)
{
	return crc32_gzip_refl(crc, p, n);
}

#endif
