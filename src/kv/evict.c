/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Eviction by the clock algorithm. The hand passes over the buckets. A pair that was used since the
 * last pass keeps its place and loses its mark; other pairs are evicted. Inline pairs in buckets of
 * the index are not evicted, because that would free no memory for others.
 *
 * The work of one operation is bounded. If the hand finds only pairs that were used, it evicts the
 * next one.
 */
#include "kv/store.h"

/* Pairs that one eviction removes. Free memory may be fragmented. */
#define AT_ONCE 16u

/* After this number of buckets, used pairs are evicted, too. */
#define SPARED 256u

static unsigned sweep(struct kv *kv, uint64_t bucket, bool all)
{
	uint64_t addr = kv_bucket_addr(bucket);
	struct slab *slab = kv_segment(kv, bucket);
	unsigned gone = 0;

	for (;;) {
		struct bucket b = *(const struct bucket *)kv_read(&kv->mem, addr, BUCKET_BYTES);
		uint32_t in = bucket_inline(&b);

		for (unsigned i = 0; i < BUCKET_SLOTS; i++) {
			uint64_t slot = bucket_slot(&b, i);

			if (in >> i & 1 || !slot || (!all && b.used >> i & 1))
				continue;
			kv_record_free(kv, slab, slot_place(slot), bucket_class(&b, i));
			bucket_clear(&b, i);
			kv->pairs--;
			kv->slots--;
			kv->evicted++;
			gone++;
		}
		b.used = 0;
		*(struct bucket *)kv_write(&kv->mem, addr, BUCKET_BYTES) = b;
		if (!b.chain)
			return gone;
		addr = slab_addr(slab, b.chain);
	}
}

bool kv_evict(struct kv *kv, unsigned *budget)
{
	unsigned gone = 0;

	for (unsigned n = 0; *budget && gone < AT_ONCE; n++, --*budget) {
		if (kv->hand >= kv->buckets)
			kv->hand = 0;
		gone += sweep(kv, kv->hand++, n >= SPARED && !gone);
	}
	return gone > 0;
}
