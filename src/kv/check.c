/* SPDX-License-Identifier: BSD-2-Clause */
/* Checks a whole store, for tests: pairs are in the bucket of their hash, and counts are right. */
#include "kv/store.h"

struct sums {
	uint64_t pairs, inline_pairs, slots, chained, used;
};

static uint32_t record_bytes(struct kv *kv, struct slab *s, uint32_t place, struct kv_pair *p)
{
	uint32_t bytes = 0;

	kv_record_read(kv, s, place, p);
	if (p->value)
		return 0;
	for (uint32_t left = p->value_len; left;) {
		uint32_t n = left < SLAB_MAX ? left : SLAB_MAX;

		bytes += slab_size(slab_class_of(n));
		left -= n;
	}
	return bytes;
}

static const char *check_slot(struct kv *kv, uint64_t home, const struct bucket *b, unsigned i,
			      struct sums *sums)
{
	struct slab *s = kv_segment(kv, home);
	uint64_t slot = bucket_slot(b, i), hash;
	struct kv_pair p;

	if (slot_place(slot) * (uint64_t)SLAB_UNIT >= s->top)
		return "a record lies beyond the memory in use";
	sums->used += slab_size(bucket_class(b, i)) + record_bytes(kv, s, slot_place(slot), &p);
	hash = kv_hash(kv, p.key, p.key_len);
	if (kv_home(kv, hash) != home)
		return "a record is in a bucket that is not its own";
	if (kv_second_hash(hash) != slot_hash(slot))
		return "a slot has another secondary hash than its record";
	return NULL;
}

static const char *check_bucket(struct kv *kv, uint64_t home, const struct bucket *b,
				struct sums *sums)
{
	uint32_t in = bucket_inline(b), starts = bucket_starts(b), covered = 0;

	for (unsigned i = 0; i < BUCKET_SLOTS; i++) {
		const char *wrong = NULL;

		if (starts >> i & 1) {
			struct inline_pair p;
			uint64_t hash;
			unsigned n;

			bucket_inline_at(b, i, &p);
			n = bucket_slots_for(p.key_len + p.value_len, p.expires);
			covered |= ((1u << n) - 1) << i;
			hash = kv_hash(kv, p.key, p.key_len);
			if (kv_home(kv, hash) != home)
				return "an inline pair is in a bucket that is not its own";
			if (kv_tag(hash) != p.tag)
				return "an inline pair has another tag than its key";
			sums->inline_pairs++;
			sums->pairs++;
		} else if (!(in >> i & 1) && bucket_slot(b, i)) {
			wrong = check_slot(kv, home, b, i, sums);
			sums->pairs++;
		}
		if (wrong)
			return wrong;
	}
	sums->slots += bucket_load(b);
	return covered == in ? NULL : "the bitmap of inline slots is not that of the pairs";
}

const char *kv_check(struct kv *kv)
{
	struct sums sums = {0};
	uint64_t used = 0;

	for (uint64_t home = 0; home < kv->buckets; home++) {
		uint64_t addr = kv_bucket_addr(home);

		for (;;) {
			const struct bucket *b = kv_more(&kv->mem, addr, BUCKET_BYTES);
			const char *wrong = check_bucket(kv, home, b, &sums);

			if (wrong)
				return wrong;
			if (!b->chain)
				break;
			sums.chained++;
			sums.used += slab_size(KV_CHAIN_CLASS);
			addr = slab_addr(kv_segment(kv, home), b->chain);
		}
		kv_trim(kv);
	}
	for (unsigned i = 0; i < kv->segments; i++)
		used += kv->slabs[i].used;
	if (sums.pairs != kv->pairs || sums.inline_pairs != kv->inline_pairs)
		return "pairs are miscounted";
	if (sums.slots != kv->slots || sums.chained != kv->chained)
		return "slots or chained buckets are miscounted";
	return sums.used == used ? NULL : "slabs are lost, or used twice";
}
