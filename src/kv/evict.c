/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Makes space when memory is full.
 *
 * With eviction, by the clock algorithm. The hand passes over the buckets. A pair that was used
 * since the last pass keeps its place and loses its mark; other pairs are evicted. Inline pairs in
 * buckets of the index are not evicted, because that would free no memory for others. Inline pairs
 * that have expired are removed everywhere, since that costs no access.
 *
 * The work of one operation is bounded. If the hand finds only pairs that were used, it evicts the
 * next one, and the inline pairs of its chained buckets. These have no mark. If all pairs are
 * inline, there is nothing to spare.
 *
 * Without eviction, pairs that have expired are removed, which no operation has looked up since.
 * Another hand looks for them only if there may be some: the store keeps a lower bound of the times
 * of all pairs, which each pass computes anew.
 */
#include "kv/store.h"

/* Pairs that one eviction removes. Free memory may be fragmented. */
#define AT_ONCE 16u

/* After this number of buckets, used pairs are evicted, too. */
#define SPARED 256u

static void take_out(struct kv *kv, struct slab *slab, struct bucket *b, unsigned i)
{
	unsigned before = bucket_load(b);

	if (bucket_inline(b) >> i & 1)
		kv->inline_pairs--;
	else
		kv_record_free(kv, slab, slot_place(bucket_slot(b, i)), bucket_class(b, i));
	bucket_clear(b, i);
	kv->pairs--;
	kv->slots -= before - bucket_load(b);
}

static void write_bucket(struct kv *kv, uint64_t addr, const struct bucket *b)
{
	*(struct bucket *)kv_write(&kv->mem, addr, BUCKET_BYTES) = *b;
}

/* Frees the chained buckets of a bucket that are empty. */
static void free_empty(struct kv *kv, struct slab *slab, uint64_t bucket)
{
	uint64_t addr = kv_bucket_addr(bucket);
	struct bucket b = *(const struct bucket *)kv_read(&kv->mem, addr, BUCKET_BYTES);
	bool changed = false;

	while (b.chain) {
		uint64_t at = slab_addr(slab, b.chain);
		struct bucket next = *(const struct bucket *)kv_read(&kv->mem, at, BUCKET_BYTES);

		if (!bucket_load(&next)) {
			slab_free(slab, b.chain, KV_CHAIN_CLASS);
			kv->chained--;
			b.chain = next.chain;
			changed = true;
			continue;
		}
		if (changed)
			write_bucket(kv, addr, &b);
		changed = false;
		b = next;
		addr = at;
	}
	if (changed)
		write_bucket(kv, addr, &b);
}

static uint32_t expiry_of(struct kv *kv, struct slab *slab, const struct bucket *b, unsigned i)
{
	struct inline_pair in;
	struct kv_pair p;

	if (bucket_inline(b) >> i & 1) {
		bucket_inline_at(b, i, &in);
		return in.expires;
	}
	kv_record_read(kv, slab, slot_place(bucket_slot(b, i)), &p);
	return p.expires;
}

static unsigned sweep(struct kv *kv, uint64_t bucket, bool all)
{
	uint64_t addr = kv_bucket_addr(bucket), home = addr;
	struct slab *slab = kv_segment(kv, bucket);
	unsigned gone = 0;

	for (;;) {
		struct bucket b = *(const struct bucket *)kv_read(&kv->mem, addr, BUCKET_BYTES);

		for (unsigned i = 0; i < BUCKET_SLOTS; i++) {
			bool is_inline = bucket_inline(&b) >> i & 1, over;

			if (!bucket_holds(&b, i))
				continue;
			over = is_inline && kv_is_expired(kv, expiry_of(kv, slab, &b, i));
			if (!over && ((is_inline && addr == home) ||
				      (!all && (is_inline || b.used >> i & 1))))
				continue;
			take_out(kv, slab, &b, i);
			kv->expired += over;
			kv->evicted += !over;
			/* An inline pair in the index made space only for its own bucket. */
			gone += !is_inline || addr != home;
		}
		b.used = 0;
		write_bucket(kv, addr, &b);
		if (!b.chain)
			break;
		addr = slab_addr(slab, b.chain);
	}
	if (gone && addr != home)
		free_empty(kv, slab, bucket);
	return gone;
}

bool kv_evict(struct kv *kv, unsigned *budget)
{
	bool only_inline = kv->pairs == kv->inline_pairs;
	unsigned gone = 0;

	for (unsigned n = 0; *budget && gone < AT_ONCE; n++, --*budget) {
		if (kv->hand >= kv->buckets)
			kv->hand = 0;
		gone += sweep(kv, kv->hand++, only_inline || (n >= SPARED && !gone));
	}
	return gone > 0;
}

static unsigned expire(struct kv *kv, uint64_t bucket)
{
	uint64_t addr = kv_bucket_addr(bucket);
	struct slab *slab = kv_segment(kv, bucket);
	unsigned gone = 0;

	for (;;) {
		struct bucket b = *(const struct bucket *)kv_read(&kv->mem, addr, BUCKET_BYTES);
		unsigned before = gone;

		kv_want_records(kv, slab, &b);
		for (unsigned i = 0; i < BUCKET_SLOTS; i++) {
			uint32_t expires;

			if (!bucket_holds(&b, i))
				continue;
			expires = expiry_of(kv, slab, &b, i);
			if (!kv_is_expired(kv, expires)) {
				if (expires && expires < kv->next_soonest)
					kv->next_soonest = expires;
				continue;
			}
			take_out(kv, slab, &b, i);
			kv->expired++;
			gone++;
		}
		if (gone != before)
			write_bucket(kv, addr, &b);
		if (!b.chain)
			break;
		addr = slab_addr(slab, b.chain);
	}
	if (gone)
		free_empty(kv, slab, bucket);
	return gone;
}

bool kv_expire(struct kv *kv, unsigned *budget)
{
	unsigned gone = 0;

	while (*budget && gone < AT_ONCE && kv->soonest <= kv->now) {
		--*budget;
		gone += expire(kv, kv->expire_hand++);
		if (kv->expire_hand < kv->buckets)
			continue;
		kv->expire_hand = 0;
		kv->soonest = kv->next_soonest;
		kv->next_soonest = UINT32_MAX;
	}
	return gone > 0;
}
