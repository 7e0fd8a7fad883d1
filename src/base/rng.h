/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Seeded random numbers: xoshiro256** by Blackman and Vigna, with its state filled by splitmix64 as
 * they recommend. The numbers are predictable; secret.h has numbers for secrets. The same seed
 * gives the same numbers on every machine. One thread at a time may use a struct rng.
 */
#ifndef ROOST_BASE_RNG_H
#define ROOST_BASE_RNG_H

#include <stdint.h>

struct rng {
	uint64_t s[4];
};

static inline void rng_seed(struct rng *r, uint64_t seed)
{
	for (int i = 0; i < 4; i++) {
		uint64_t z = (seed += 0x9e3779b97f4a7c15u);

		z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
		z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
		r->s[i] = z ^ (z >> 31);
	}
}

static inline uint64_t rng_rotl(uint64_t x, int k)
{
	return (x << k) | (x >> (64 - k));
}

static inline uint64_t rng_u64(struct rng *r)
{
	uint64_t out = rng_rotl(r->s[1] * 5, 7) * 9;
	uint64_t t = r->s[1] << 17;

	r->s[2] ^= r->s[0];
	r->s[3] ^= r->s[1];
	r->s[1] ^= r->s[2];
	r->s[0] ^= r->s[3];
	r->s[2] ^= t;
	r->s[3] = rng_rotl(r->s[3], 45);
	return out;
}

/*
 * Returns a uniform number in 0 .. n - 1, without bias (Lemire's multiply and reject), or 0 if n is
 * 0.
 */
static inline uint64_t rng_below(struct rng *r, uint64_t n)
{
	unsigned __int128 m = (unsigned __int128)rng_u64(r) * n;

	if ((uint64_t)m < n) {
		uint64_t floor = -n % n;

		while ((uint64_t)m < floor)
			m = (unsigned __int128)rng_u64(r) * n;
	}
	return (uint64_t)(m >> 64);
}

/* Returns a uniform number in [0, 1) with 53 bits. */
static inline double rng_double(struct rng *r)
{
	return (double)(rng_u64(r) >> 11) * 0x1.0p-53;
}

/*
 * Gets 64 random bits from Linux. Returns 0, or -errno if a sandbox forbids getrandom(2);
 * RNG_REFUSED is the line for users. Any thread.
 */
int rng_try_entropy(uint64_t *v);
#define RNG_REFUSED                                                                                \
	"the kernel gives no random numbers: allow the system call getrandom in the sandbox"
/*
 * Does the same, and never fails: it logs the line and ends the process. For those that draw when
 * the process has drawn numbers before.
 */
uint64_t rng_entropy(void);

#endif
