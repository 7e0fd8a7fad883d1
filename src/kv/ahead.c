/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Hints for operations that are executed one by one, as those of many small batches are. The first
 * hint of a key prefetches its bucket. Some hints later, when the bucket is in the cache, the
 * records that its slots point to are prefetched. A hint does not change the store.
 */
#include "kv/hash.h"
#include "kv/match.h"
#include "kv/quick.h"

static void prefetch_records(struct kv *kv, uint64_t hash)
{
	const struct bucket *b = (const void *)(kv->mem.base + kv_bucket_addr(kv_home(kv, hash)));
	uint64_t map = bucket_candidates(b, kv_second_hash(hash));
	struct slab *s = kv_segment(kv, hash);

	while (map) {
		unsigned i = bucket_next(&map, BUCKET_BYTEWISE);
		uint64_t addr;

		if (!match_record(b, i, hash))
			continue;
		addr = slab_addr(s, slot_place(bucket_slot(b, i)));
		kv_prefetch(&kv->mem, addr);
		/* The value is in the second line. */
		if (bucket_class(b, i) > KV_CHAIN_CLASS)
			kv_prefetch(&kv->mem, addr + BUCKET_BYTES);
	}
}

static void next_records(struct kv *kv, struct kv_ahead *a)
{
	prefetch_records(kv, a->hash[a->fetched++ % KV_AHEAD]);
}

/* A line of the far tier cannot be read here. */
static inline void add(struct kv *kv, struct kv_ahead *a, uint64_t hash)
{
	if (unlikely(kv->mem.near != NULL))
		return;
	kv_prefetch(&kv->mem, kv_bucket_addr(kv_home(kv, hash)));
	a->hash[a->begun++ % KV_AHEAD] = hash;
	if (a->begun - a->fetched == KV_AHEAD)
		next_records(kv, a);
}

void kv_ahead_key(struct kv *kv, struct kv_ahead *a, const void *key, uint32_t len)
{
	if (len && len <= KV_KEY_MAX)
		add(kv, a, hash_of(kv, key, len));
}

void kv_ahead_op(struct kv *kv, struct kv_ahead *a, struct kv_op *op)
{
	kv_begin(kv, op);
	if (likely(!op->status))
		add(kv, a, op->hash);
}

bool kv_run_ahead(struct kv *kv, struct kv_op *op)
{
	return likely(!op->status && !kv->mem.near) && kv_quick(kv, op);
}

void kv_ahead_end(struct kv *kv, struct kv_ahead *a)
{
	while (a->fetched != a->begun)
		next_records(kv, a);
}
