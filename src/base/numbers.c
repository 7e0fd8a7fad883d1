/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/numbers.h"

#define ROUNDS 6

static uint64_t rotl(uint64_t x, int k)
{
	return (x << k) | (x >> (64 - k));
}

static void sip_round(uint64_t v[4])
{
	v[0] += v[1];
	v[2] += v[3];
	v[1] = rotl(v[1], 13) ^ v[0];
	v[3] = rotl(v[3], 16) ^ v[2];
	v[0] = rotl(v[0], 32) + v[3];
	v[2] += v[1];
	v[3] = rotl(v[3], 21) ^ v[0];
	v[1] = rotl(v[1], 17) ^ v[2];
	v[2] = rotl(v[2], 32);
}

/* Returns SipHash-1-3 (Aumasson and Bernstein, 2012) of one word. */
static uint64_t sip(const uint64_t seed[2], uint64_t word)
{
	const uint64_t length = 8ull << 56;
	uint64_t v[4] = {seed[0] ^ 0x736f6d6570736575ull, seed[1] ^ 0x646f72616e646f6dull,
			 seed[0] ^ 0x6c7967656e657261ull, seed[1] ^ 0x7465646279746573ull};

	v[3] ^= word;
	sip_round(v);
	v[0] ^= word;
	v[3] ^= length;
	sip_round(v);
	v[0] ^= length;
	v[2] ^= 0xff;
	for (int i = 0; i < 3; i++)
		sip_round(v);
	return v[0] ^ v[1] ^ v[2] ^ v[3];
}

/* Returns element n (its lower bits) of a permutation of the numbers below 2^bits. */
static uint32_t permute(const uint64_t seed[2], unsigned bits, uint32_t n)
{
	unsigned half = bits / 2;
	uint32_t mask = (uint32_t)((1ull << half) - 1), left = n >> half & mask, right = n & mask;

	/* A Feistel network is a permutation for any round function. */
	for (uint64_t round = 0; round < ROUNDS; round++) {
		uint32_t next = left ^ ((uint32_t)sip(seed, round << 32 | right) & mask);

		left = right;
		right = next;
	}
	return left << half | right;
}

#define MOST_TRIES 1000 /* a hostile process must not keep this process in the loop */

/*
 * Advances the count, unless the next number begins a half of 2^bits numbers too soon: the previous
 * half began less than NUMBERS_REST_S ago. The time is stored before the first number of the half
 * is drawn, because the process may be killed or stopped in between. Another process may then draw
 * the number. Memory order: `entered` is exchanged before `next`, both sequentially consistent; a
 * process loads `entered` (acquire), then `next` (acquire).
 */
static bool count_rested(_Atomic uint32_t *next, _Atomic uint64_t *entered, unsigned bits,
			 uint64_t now, uint32_t *n)
{
	uint32_t second = numbers_second(now);

	for (unsigned tries = 0; tries < MOST_TRIES; tries++) {
		/* The half is loaded first, so it is never ahead of the count. */
		uint64_t was = atomic_load_explicit(entered, memory_order_acquire);
		uint32_t drawn = atomic_load_explicit(next, memory_order_acquire);
		uint32_t half = drawn >> bits;

		if ((uint32_t)(was >> 32) != half) {
			bool early = numbers_rest((uint32_t)was, second);

			if (early && atomic_load_explicit(entered, memory_order_acquire) == was)
				return false;
			if (early || !atomic_compare_exchange_strong(entered, &was,
								     (uint64_t)half << 32 | second))
				continue; /* another process has entered the half */
		}
		if (atomic_compare_exchange_strong(next, &drawn, drawn + 1)) {
			*n = drawn;
			return true;
		}
	}
	*n = atomic_fetch_add_explicit(next, 1, memory_order_relaxed);
	return true;
}

uint32_t sequence_draw(const struct sequence *s)
{
	uint32_t n = atomic_fetch_add_explicit(s->next, 1, memory_order_relaxed);

	return permute(s->seed, s->bits, n);
}

bool sequence_draw_rested(const struct sequence *s, uint64_t now, uint32_t *number)
{
	uint32_t n;

	if (!count_rested(s->next, s->entered, s->bits - 1, now, &n))
		return false;
	*number = permute(s->seed, s->bits, n);
	return true;
}

/*
 * Returns element n (its lower 8 bits) of a permutation of all bytes, which depends on the upper
 * bits. One hash selects it, because registrations are frequent: each step is a permutation.
 */
static uint8_t low_bits(const uint64_t seed[2], uint32_t upper, uint32_t n)
{
	uint64_t h = sip(seed, 1ull << 63 | upper); /* permute() hashes no such word */
	uint8_t x = (uint8_t)(n ^ h);

	x = (uint8_t)(x * (h >> 8 | 1));
	x ^= x >> 4;
	x = (uint8_t)(x * (h >> 16 | 1));
	x ^= x >> 4;
	return (uint8_t)(x ^ h >> 24);
}

/* Returns key n of regions (0) or windows (1). */
static uint32_t key_of(const struct key_sequence *s, uint32_t kind, uint32_t n)
{
	unsigned half = s->bits - 1;
	uint32_t upper = permute(s->seed, s->bits, kind << half | (n & ((1u << half) - 1)));

	return upper << KEY_LOW_BITS | low_bits(s->seed, upper, n >> half);
}

uint32_t key_draw_region(const struct key_sequence *s)
{
	return key_of(s, 0, atomic_fetch_add_explicit(&s->drawn->regions, 1, memory_order_relaxed));
}

bool key_draw_window(const struct key_sequence *s, uint64_t now, uint32_t *key)
{
	uint32_t n;

	if (!count_rested(&s->drawn->windows, &s->drawn->entered, s->bits - 2, now, &n))
		return false;
	*key = key_of(s, 1, n);
	return true;
}
