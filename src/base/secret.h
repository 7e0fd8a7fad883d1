/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Numbers that must not be predictable from earlier ones: ids, keys, first PSNs, seeds of hashes.
 * The generator is ChaCha20 (RFC 8439). The first half of each block replaces the key; the other
 * half is the output. The same seed gives the same numbers, for tests and the simulator. A seed of
 * secret_entropy() gives different numbers each time. One thread at a time may use a struct secret.
 */
#ifndef ROOST_BASE_SECRET_H
#define ROOST_BASE_SECRET_H

#include <stdint.h>

#define SECRET_WORDS 4

struct secret {
	uint32_t key[8];
	uint64_t out[4];
	unsigned left; /* numbers of `out` that are not used yet */
};

/* Starts the generator with a seed of 256 bits. */
void secret_seed(struct secret *s, const uint64_t seed[SECRET_WORDS]);
/* Returns 64 random bits. */
uint64_t secret_u64(struct secret *s);
/* Returns a uniform number in 0 .. n - 1, without bias, or 0 if n is 0. */
uint64_t secret_below(struct secret *s, uint64_t n);

/* Gets 256 random bits from Linux. Returns 0 or -errno, as rng_try_entropy(). Any thread. */
int secret_entropy(uint64_t seed[SECRET_WORDS]);

#endif
