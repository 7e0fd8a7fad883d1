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

uint32_t sequence_draw(const struct sequence *s)
{
	uint32_t n = atomic_fetch_add_explicit(s->next, 1, memory_order_relaxed);
	unsigned half = s->bits / 2;
	uint32_t mask = (uint32_t)((1ull << half) - 1), left = n >> half & mask, right = n & mask;

	/* A Feistel network is a permutation for any round function. */
	for (uint64_t round = 0; round < ROUNDS; round++) {
		uint32_t next = left ^ ((uint32_t)sip(s->seed, round << 32 | right) & mask);

		left = right;
		right = next;
	}
	return left << half | right;
}

bool sequence_draw_rested(const struct sequence *s, uint64_t now, uint32_t *number)
{
	uint32_t n = atomic_load_explicit(s->next, memory_order_relaxed);
	uint32_t second = numbers_second(now);

	if ((n & ((1u << (s->bits - 1)) - 1)) == 0) {
		if (numbers_rest(atomic_load_explicit(s->entered, memory_order_relaxed), second))
			return false;
		atomic_store_explicit(s->entered, second, memory_order_relaxed);
	}
	*number = sequence_draw(s);
	return true;
}
