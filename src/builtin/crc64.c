/* SPDX-License-Identifier: BSD-2-Clause */
#include "builtin/crc64.h"

#include <isa-l/crc64.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

uint64_t crc64_plain(const uint8_t *data, size_t len)
{
	return crc64_ecma_refl(0, data, len);
}

#if defined(__x86_64__)

#define WIDE  __attribute__((target("avx2,vpclmulqdq")))
#define BLOCK 128u
#define LEAST (4 * BLOCK) /* shorter data are faster with ISA-L alone */

/*
 * x^(1024 + 63) and x^(1024 - 1) modulo the polynomial, bits reversed. They multiply the halves of
 * 128 bits to move them by a block. (The exponents are one less than 1024 + 64 and 1024, since the
 * product of two reversed numbers is one bit too low.)
 */
#define FOLD_LOW  0x8757d71d4fcc1000ull
#define FOLD_HIGH 0xd7d86b2af73de740ull

WIDE static inline __m256i fold(__m256i x, __m256i k, const uint8_t *next)
{
	return _mm256_xor_si256(_mm256_xor_si256(_mm256_clmulepi64_epi128(x, k, 0x00),
						 _mm256_clmulepi64_epi128(x, k, 0x11)),
				_mm256_loadu_si256((const __m256i *)next));
}

/* Folds all whole blocks into one with the same remainder; ISA-L computes the rest. */
WIDE static uint64_t crc64_wide(const uint8_t *data, size_t len)
{
	const __m256i k = _mm256_set_epi64x((long long)FOLD_HIGH, (long long)FOLD_LOW,
					    (long long)FOLD_HIGH, (long long)FOLD_LOW);
	uint8_t rest[BLOCK] __attribute__((aligned(32)));
	__m256i x[BLOCK / 32];

	if (len < LEAST)
		return crc64_plain(data, len);
	for (unsigned i = 0; i < BLOCK / 32; i++)
		x[i] = _mm256_loadu_si256((const __m256i *)(data + 32 * i));
	/* The CRC's initial value, all ones, is added to the first 8 bytes. */
	x[0] = _mm256_xor_si256(x[0], _mm256_set_epi64x(0, 0, 0, -1));
	for (data += BLOCK, len -= BLOCK; len >= BLOCK; data += BLOCK, len -= BLOCK)
		for (unsigned i = 0; i < BLOCK / 32; i++)
			x[i] = fold(x[i], k, data + 32 * i);
	for (unsigned i = 0; i < BLOCK / 32; i++)
		_mm256_store_si256((__m256i *)(rest + 32 * i), x[i]);
	/* ISA-L inverts its argument and its result, so all ones mean the initial value 0. */
	return crc64_ecma_refl(crc64_ecma_refl(~0ull, rest, BLOCK), data, len);
}

crc64_fn *crc64_best(void)
{
	return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("vpclmulqdq") ? crc64_wide
										      : crc64_plain;
}

#else

crc64_fn *crc64_best(void)
{
	return crc64_plain;
}

#endif
