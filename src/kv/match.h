/* SPDX-License-Identifier: BSD-2-Clause */
/* Comparing and copying short byte strings without a call, and matching the slots of a bucket. */
#ifndef ROOST_KV_MATCH_H
#define ROOST_KV_MATCH_H

#include "kv/store.h"

static inline uint64_t match_u64(const uint8_t *p)
{
	uint64_t w;

	memcpy(&w, p, sizeof(w));
	return w;
}

static inline uint32_t match_u32(const uint8_t *p)
{
	uint32_t w;

	memcpy(&w, p, sizeof(w));
	return w;
}

/*
 * Returns whether two strings are equal. Two words, which may overlap, cover a string of 8 to 16 or
 * of 4 to 7 bytes.
 */
static inline bool match_equal(const void *x, const void *y, uint32_t len)
{
	const uint8_t *a = x, *b = y;

	if (likely(len >= 8)) {
		if (len > 16)
			return memcmp(a, b, len) == 0;
		return !((match_u64(a) ^ match_u64(b)) |
			 (match_u64(a + len - 8) ^ match_u64(b + len - 8)));
	}
	if (len >= 4)
		return !((match_u32(a) ^ match_u32(b)) |
			 (match_u32(a + len - 4) ^ match_u32(b + len - 4)));
	for (uint32_t i = 0; i < len; i++)
		if (a[i] != b[i])
			return false;
	return true;
}

/* Copies `n` bytes as two blocks of `size` bytes, which may overlap each other. */
#define MATCH_TWO(to, from, n, size)                                                               \
	do {                                                                                       \
		memcpy(to, from, size);                                                            \
		memcpy((to) + (n) - (size), (from) + (n) - (size), size);                          \
	} while (0)

static inline void match_copy(void *out, const void *in, uint32_t n)
{
	const uint8_t *from = in;
	uint8_t *to = out;

	if (n > 64) {
		memcpy(to, from, n);
	} else if (n > 32) {
		MATCH_TWO(to, from, 32u, 16u);
		MATCH_TWO(to + n - 32, from + n - 32, 32u, 16u);
	} else if (n >= 16) {
		MATCH_TWO(to, from, n, 16u);
	} else if (n >= 8) {
		MATCH_TWO(to, from, n, 8u);
	} else if (n >= 4) {
		MATCH_TWO(to, from, n, 4u);
	} else if (n) {
		to[0] = from[0];
		to[n / 2] = from[n / 2];
		to[n - 1] = from[n - 1];
	}
}

/* Returns whether slot i points to a record whose key has this secondary hash. */
static inline bool match_record(const struct bucket *b, unsigned i, uint64_t hash)
{
	uint64_t slot = bucket_slot(b, i);

	return slot_place(slot) && slot_hash(slot) == kv_second_hash(hash) &&
	       !(bucket_inline(b) >> i & 1);
}

#endif
