/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Hints for operations that are executed one by one, as those of many small batches are: first the
 * buckets of all hints are prefetched, then the lines of their records are loaded. Both are short
 * loops, as in run.c: a prefetch does not retire before its page walk ends, and the window of the
 * CPU has space for many walks only if little else is between them. A hint does not change the
 * store.
 */
#include "kv/hash.h"
#include "kv/match.h"
#include "kv/quick.h"

#define LINES 64u /* lines of records that are loaded together */

static void load_lines(const struct kv *kv, const uint64_t *addrs, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		uint8_t byte = kv->mem.base[addrs[i]];

		__asm__ volatile("" : : "r"(byte));
	}
}

/* Adds the addresses of the records to which the slots of a bucket point. Returns their number. */
static unsigned add_records(struct kv *kv, uint64_t hash, uint64_t *addrs)
{
	const struct bucket *b = kv_bucket(kv, kv_bucket_addr(kv_home(kv, hash)));
	uint64_t map = bucket_candidates(b, kv_second_hash(hash));
	struct slab *s = kv_segment(kv, hash);
	unsigned n = 0;

	while (map) {
		unsigned i = bucket_next(&map, BUCKET_BYTEWISE);
		uint64_t addr;

		if (!match_record(b, i, hash))
			continue;
		addr = slab_addr(s, slot_place(bucket_slot(b, i)));
		addrs[n++] = addr;
		/* The value is in the second line. */
		if (bucket_class(b, i) > KV_CHAIN_CLASS)
			addrs[n++] = addr + BUCKET_BYTES;
	}
	return n;
}

void kv_ahead_end(struct kv *kv, struct kv_ahead *a)
{
	uint64_t addrs[LINES + 2 * BUCKET_SLOTS];
	unsigned n = 0;

	for (unsigned i = 0; i < a->n; i++)
		kv_prefetch(&kv->mem, kv_bucket_addr(kv_home(kv, a->hash[i])));
	for (unsigned i = 0; i < a->n; i++) {
		n += add_records(kv, a->hash[i], addrs + n);
		if (unlikely(n >= LINES)) {
			load_lines(kv, addrs, n);
			n = 0;
		}
	}
	load_lines(kv, addrs, n);
	a->n = 0;
}

/* A line of the far tier cannot be read here. */
static inline void add(struct kv *kv, struct kv_ahead *a, uint64_t hash, bool alone)
{
	if (unlikely(kv->mem.near != NULL))
		return;
	if (alone)
		kv_prefetch(&kv->mem, kv_bucket_addr(kv_home(kv, hash)));
	a->hash[a->n++] = hash;
	if (unlikely(a->n == KV_AHEAD))
		kv_ahead_end(kv, a);
}

void kv_ahead_key(struct kv *kv, struct kv_ahead *a, const void *key, uint32_t len)
{
	if (len && len <= KV_KEY_MAX)
		add(kv, a, hash_of(kv, key, len), false);
}

void kv_ahead_op(struct kv *kv, struct kv_ahead *a, struct kv_op *op, bool alone)
{
	kv_begin(kv, op);
	if (likely(!op->status))
		add(kv, a, op->hash, alone);
}

bool kv_run_ahead(struct kv *kv, struct kv_op *op)
{
	return likely(!op->status && !kv->mem.near) && kv_quick(kv, op);
}
