/* SPDX-License-Identifier: BSD-2-Clause */
/* The hash of hll and shuffle (roost_hll_hash(), roost_shuffle_hash()), four at a time. */
#ifndef ROOST_BUILTIN_MIX64_H
#define ROOST_BUILTIN_MIX64_H

#if defined(__x86_64__)
#include <immintrin.h>

#define AVX2 __attribute__((target("avx2,bmi,bmi2")))

/*
 * a * b modulo 2^64: AVX2 multiplies 32 by 32 bits. `b_swapped` has the halves of b exchanged.
 */
AVX2 static inline __m256i mul64(__m256i a, __m256i b, __m256i b_swapped)
{
	__m256i cross = _mm256_mullo_epi32(a, b_swapped);
	__m256i high = _mm256_add_epi32(_mm256_slli_epi64(cross, 32), cross);

	return _mm256_add_epi64(_mm256_mul_epu32(a, b),
				_mm256_and_si256(high, _mm256_set1_epi64x(~0xffffffffll)));
}

AVX2 static inline __m256i mix64_4(__m256i x)
{
	const __m256i m1 = _mm256_set1_epi64x((long long)0xbf58476d1ce4e5b9ull);
	const __m256i m2 = _mm256_set1_epi64x((long long)0x94d049bb133111ebull);

	x = _mm256_xor_si256(x, _mm256_srli_epi64(x, 30));
	x = mul64(x, m1, _mm256_shuffle_epi32(m1, 0xb1));
	x = _mm256_xor_si256(x, _mm256_srli_epi64(x, 27));
	x = mul64(x, m2, _mm256_shuffle_epi32(m2, 0xb1));
	return _mm256_xor_si256(x, _mm256_srli_epi64(x, 31));
}

#endif
#endif
