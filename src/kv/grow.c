/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Growth by linear hashing. The index grows by one bucket at a time, which gets its pairs from one
 * other bucket. A step is one such split. Its cost is bounded by the length of the chain, and does
 * not depend on the size of the index.
 */
#include <errno.h>

#include "kv/store.h"

/* Longer chains are not split. With a keyed hash they occur only if the index cannot grow. */
#define CHAIN_MAX 32u

/* One of the two chains that result from a split. */
struct half {
	struct bucket b[2 * CHAIN_MAX];
	unsigned n;
};

struct split {
	struct kv *kv;
	uint64_t from, to;
	struct bucket old[CHAIN_MAX];
	unsigned num_old;
	struct half halves[2];
	uint32_t places[2 * 2 * CHAIN_MAX]; /* of chained buckets: the old ones, then new ones */
	unsigned num_places, num_before;
};

static bool read_chain(struct split *s)
{
	struct kv *kv = s->kv;
	struct slab *slab = kv_segment(kv, s->from);
	uint64_t addr = kv_bucket_addr(s->from);

	for (s->num_old = 0;; s->num_old++) {
		if (s->num_old == CHAIN_MAX)
			return false;
		s->old[s->num_old] = *(const struct bucket *)kv_read(&kv->mem, addr);
		if (!s->old[s->num_old].chain)
			break;
		s->places[s->num_places++] = s->old[s->num_old].chain;
		addr = slab_addr(slab, s->old[s->num_old].chain);
	}
	s->num_old++;
	s->num_before = s->num_places;
	return true;
}

static struct bucket *last(struct half *h)
{
	return &h->b[h->n - 1];
}

static struct bucket *next(struct half *h)
{
	memset(&h->b[h->n], 0, sizeof(h->b[0]));
	return &h->b[h->n++];
}

/* Returns the half for the pair in a slot: the bit of its hash that the split adds. */
static unsigned half_of(struct split *s, const struct bucket *b, unsigned i, bool is_inline)
{
	struct kv *kv = s->kv;
	uint64_t hash;

	if (is_inline) {
		struct inline_pair p;

		bucket_inline_at(b, i, &p);
		hash = kv_hash(kv, p.key, p.key_len);
	} else {
		struct kv_pair p;

		kv_record_read(kv, kv_segment(kv, s->from), slot_place(bucket_slot(b, i)), &p);
		hash = kv_hash(kv, p.key, p.key_len);
	}
	return (hash & (s->to - s->from)) != 0;
}

static void move_inline(struct half *h, const struct bucket *b, unsigned i)
{
	struct inline_pair p;

	bucket_inline_at(b, i, &p);
	if (bucket_add_inline(last(h), &p) < 0)
		bucket_add_inline(next(h), &p);
}

static void move_pointer(struct half *h, const struct bucket *b, unsigned i)
{
	uint64_t slot = bucket_slot(b, i);
	unsigned class = bucket_class(b, i);

	if (bucket_add(last(h), slot_place(slot), slot_hash(slot), class) < 0)
		bucket_add(next(h), slot_place(slot), slot_hash(slot), class);
}

static void divide(struct split *s, const struct bucket *b)
{
	uint32_t in = bucket_inline(b), starts = bucket_starts(b);

	for (unsigned i = 0; i < BUCKET_SLOTS; i++) {
		if (starts >> i & 1)
			move_inline(&s->halves[half_of(s, b, i, true)], b, i);
		else if (!(in >> i & 1) && bucket_slot(b, i))
			move_pointer(&s->halves[half_of(s, b, i, false)], b, i);
	}
}

/* Allocates all places before the store is changed, so that a failure changes nothing. */
static bool take_places(struct split *s, unsigned need)
{
	struct slab *slab = kv_segment(s->kv, s->from);

	while (s->num_places < need) {
		uint32_t place = slab_alloc(slab, KV_CHAIN_CLASS);

		if (!place) {
			while (s->num_places > s->num_before)
				slab_free(slab, s->places[--s->num_places], KV_CHAIN_CLASS);
			return false;
		}
		s->places[s->num_places++] = place;
	}
	return true;
}

static void write_half(struct split *s, struct half *h, uint64_t bucket)
{
	struct kv_memory *mem = &s->kv->mem;
	struct slab *slab = kv_segment(s->kv, s->from);
	uint64_t addr = kv_bucket_addr(bucket);

	for (unsigned i = 0; i < h->n; i++) {
		h->b[i].chain = i + 1 < h->n ? s->places[--s->num_places] : 0;
		*(struct bucket *)kv_write(mem, addr) = h->b[i];
		if (h->b[i].chain)
			addr = slab_addr(slab, h->b[i].chain);
	}
}

static int split_one(struct split *s)
{
	struct kv *kv = s->kv;
	unsigned need;

	s->to = kv->buckets;
	s->from = s->to - pow2_ceil(s->to + 1) / 2;
	s->num_places = 0;
	if (!read_chain(s))
		return -E2BIG;
	for (unsigned i = 0; i < 2; i++) {
		s->halves[i].n = 0;
		next(&s->halves[i]);
	}
	for (unsigned i = 0; i < s->num_old; i++)
		divide(s, &s->old[i]);
	need = s->halves[0].n + s->halves[1].n - 2;
	if (!take_places(s, need))
		return -ENOSPC;
	kv->chained += need;
	kv->chained -= s->num_before;
	write_half(s, &s->halves[0], s->from);
	write_half(s, &s->halves[1], s->to);
	while (s->num_places)
		slab_free(kv_segment(kv, s->from), s->places[--s->num_places], KV_CHAIN_CLASS);
	kv->buckets++;
	kv->growth_steps++;
	return 0;
}

unsigned kv_grow(struct kv *kv, unsigned n)
{
	uint64_t before = kv_accesses(&kv->mem);
	unsigned done = 0;
	struct split s;

	s.kv = kv;
	while (done < n && !kv->stuck && kv->buckets < kv->buckets_max &&
	       kv->slots * 100 > kv->buckets * BUCKET_SLOTS * kv->config.fill_percent) {
		int err = split_one(&s);

		kv->stuck = err == -E2BIG;
		if (err)
			break;
		done++;
	}
	kv->growth_accesses += kv_accesses(&kv->mem) - before;
	return done;
}
