/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/secret.h"

#include <string.h>

#include "base/rng.h"

static uint32_t rotl(uint32_t x, int k)
{
	return (x << k) | (x >> (32 - k));
}

static void quarter(uint32_t *x, int a, int b, int c, int d)
{
	x[a] += x[b];
	x[d] = rotl(x[d] ^ x[a], 16);
	x[c] += x[d];
	x[b] = rotl(x[b] ^ x[c], 12);
	x[a] += x[b];
	x[d] = rotl(x[d] ^ x[a], 8);
	x[c] += x[d];
	x[b] = rotl(x[b] ^ x[c], 7);
}

/* Makes a block (RFC 8439, 2.3). Counter and nonce are 0, because each key makes one block only. */
static void block(const uint32_t key[8], uint32_t out[16])
{
	const uint32_t start[16] = {0x61707865, 0x3320646e, 0x79622d32, 0x6b206574, key[0], key[1],
				    key[2],	key[3],	    key[4],	key[5],	    key[6], key[7]};

	memcpy(out, start, sizeof(start));
	for (int i = 0; i < 10; i++) {
		for (int k = 0; k < 4; k++)
			quarter(out, k, 4 + k, 8 + k, 12 + k);
		for (int k = 0; k < 4; k++)
			quarter(out, k, 4 + (k + 1) % 4, 8 + (k + 2) % 4, 12 + (k + 3) % 4);
	}
	for (int i = 0; i < 16; i++)
		out[i] += start[i];
}

void secret_seed(struct secret *s, const uint64_t seed[SECRET_WORDS])
{
	for (int i = 0; i < SECRET_WORDS; i++) {
		s->key[2 * i] = (uint32_t)seed[i];
		s->key[2 * i + 1] = (uint32_t)(seed[i] >> 32);
	}
	s->left = 0;
}

uint64_t secret_u64(struct secret *s)
{
	uint64_t v;

	if (!s->left) {
		uint32_t b[16];

		block(s->key, b);
		memcpy(s->key, b, sizeof(s->key));
		for (int i = 0; i < 4; i++)
			s->out[i] = (uint64_t)b[9 + 2 * i] << 32 | b[8 + 2 * i];
		s->left = 4;
	}
	v = s->out[4 - s->left];
	s->out[4 - s->left--] = 0; /* the memory must not reveal earlier numbers */
	return v;
}

uint64_t secret_below(struct secret *s, uint64_t n)
{
	/* rejects the lowest 2^64 mod n values: the others are a multiple of n */
	uint64_t least = n ? -n % n : 0, v;

	do
		v = secret_u64(s);
	while (v < least);
	return n ? v % n : 0;
}

int secret_entropy(uint64_t seed[SECRET_WORDS])
{
	int rc = 0;

	for (int i = 0; i < SECRET_WORDS && rc == 0; i++)
		rc = rng_try_entropy(&seed[i]);
	return rc;
}
