/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Growth by linear hashing. The index grows by one bucket at a time, which gets its pairs from one
 * other bucket. A step is one such split. It follows the chain with copies of three buckets: the
 * bucket that it reads; the last bucket that is kept, into which the pairs of later buckets move if
 * they fit; and the bucket of the new chain that is being filled. The cost of a step is therefore
 * proportional to the length of the chain, like that of a look-up, and does not depend on the size
 * of the index.
 */
#include <errno.h>

#include "kv/store.h"

struct split {
	struct kv *kv;
	struct slab *slab;
	uint64_t from, to;
	struct bucket fill; /* the last bucket of the new chain */
	uint64_t fill_addr;
	uint32_t free_buckets; /* place of a list of buckets for the new chain; 0: empty */
};

/*
 * Returns whether the pair in a slot belongs to the new bucket. The bit that the split adds decides
 * this.
 */
static bool moves(struct split *s, const struct bucket *b, unsigned i)
{
	struct kv *kv = s->kv;
	uint64_t hash;

	if (bucket_starts(b) >> i & 1) {
		struct inline_pair p;

		bucket_inline_at(b, i, &p);
		hash = kv_hash(kv, p.key, p.key_len);
	} else {
		struct kv_pair p;

		kv_record_read(kv, s->slab, slot_place(bucket_slot(b, i)), &p);
		hash = kv_hash(kv, p.key, p.key_len);
	}
	return (hash & (s->to - s->from)) != 0;
}

/* Returns the number of buckets that the new chain will have. */
static unsigned count(struct split *s, const struct bucket *home)
{
	const struct bucket *b = home;
	struct bucket fill = {0};
	unsigned n = 1;

	for (;;) {
		kv_want_records(s->kv, s->slab, b);
		for (unsigned i = 0; i < BUCKET_SLOTS; i++) {
			if (!bucket_holds(b, i) || !moves(s, b, i))
				continue;
			if (!bucket_copy(&fill, b, i)) {
				fill = (struct bucket){0};
				bucket_copy(&fill, b, i);
				n++;
			}
		}
		if (!b->chain)
			return n;
		b = kv_read(&s->kv->mem, slab_addr(s->slab, b->chain), BUCKET_BYTES);
	}
}

static uint32_t take_bucket(struct split *s)
{
	uint32_t place = s->free_buckets;

	memcpy(&s->free_buckets,
	       kv_read(&s->kv->mem, slab_addr(s->slab, place), sizeof(s->free_buckets)),
	       sizeof(s->free_buckets));
	return place;
}

/* Allocates all buckets before the store is changed, so that a failure changes nothing. */
static bool alloc_buckets(struct split *s, unsigned n)
{
	s->free_buckets = 0;
	while (n--) {
		uint32_t place = slab_alloc(s->slab, KV_CHAIN_CLASS);

		if (!place) {
			while (s->free_buckets)
				slab_free(s->slab, take_bucket(s), KV_CHAIN_CLASS);
			return false;
		}
		memcpy(kv_write(&s->kv->mem, slab_addr(s->slab, place), sizeof(s->free_buckets)),
		       &s->free_buckets, sizeof(s->free_buckets));
		s->free_buckets = place;
	}
	return true;
}

static void write_bucket(struct split *s, uint64_t addr, const struct bucket *b)
{
	*(struct bucket *)kv_write(&s->kv->mem, addr, BUCKET_BYTES) = *b;
}

static void move(struct split *s, const struct bucket *b, unsigned i)
{
	if (bucket_copy(&s->fill, b, i))
		return;
	s->fill.chain = take_bucket(s);
	write_bucket(s, s->fill_addr, &s->fill);
	s->fill_addr = slab_addr(s->slab, s->fill.chain);
	s->fill = (struct bucket){0};
	s->kv->chained++;
	bucket_copy(&s->fill, b, i);
}

/* Moves pairs of `b` to the new chain, and others to `kept` if it is another bucket with space. */
static void move_pairs(struct split *s, struct bucket *b, struct bucket *kept)
{
	const struct bucket old = *b;

	kv_want_records(s->kv, s->slab, &old);
	for (unsigned i = 0; i < BUCKET_SLOTS; i++) {
		if (!bucket_holds(&old, i))
			continue;
		if (moves(s, &old, i))
			move(s, &old, i);
		else if (!kept || !bucket_copy(kept, &old, i))
			continue;
		bucket_clear(b, i);
	}
}

static void divide_chain(struct split *s, struct bucket kept)
{
	struct kv *kv = s->kv;
	uint64_t addr = kv_bucket_addr(s->from);

	move_pairs(s, &kept, NULL);
	for (uint32_t place = kept.chain; place;) {
		struct bucket b = *(const struct bucket *)kv_read(
			&kv->mem, slab_addr(s->slab, place), BUCKET_BYTES);
		uint32_t next = b.chain;

		move_pairs(s, &b, &kept);
		if (bucket_load(&b) == 0) {
			slab_free(s->slab, place, KV_CHAIN_CLASS);
			kv->chained--;
			kept.chain = next;
		} else {
			write_bucket(s, addr, &kept);
			kept = b;
			addr = slab_addr(s->slab, place);
		}
		place = next;
	}
	write_bucket(s, addr, &kept);
	write_bucket(s, s->fill_addr, &s->fill);
}

static bool split_one(struct kv *kv)
{
	uint64_t to = kv->buckets, from = to - pow2_ceil(to + 1) / 2;
	struct split s = {.kv = kv,
			  .slab = kv_segment(kv, from),
			  .from = from,
			  .to = to,
			  .fill_addr = kv_bucket_addr(to)};
	struct bucket home =
		*(const struct bucket *)kv_read(&kv->mem, kv_bucket_addr(from), BUCKET_BYTES);

	/* The pairs of one bucket fit into one bucket. */
	if (home.chain && !alloc_buckets(&s, count(&s, &home) - 1))
		return false;
	divide_chain(&s, home);
	kv_set_buckets(kv, to + 1);
	kv->growth_steps++;
	return true;
}

unsigned kv_grow(struct kv *kv, unsigned n)
{
	uint64_t before = kv_accesses(&kv->mem);
	unsigned done = 0;

	while (done < n && kv->slots > kv->grow_at && split_one(kv))
		done++;
	kv->growth_accesses += kv_accesses(&kv->mem) - before;
	return done;
}
