/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Scans. The pairs of a chain are visited in the order of their hash. So a scan that stops within a
 * chain can continue there later, although pairs have moved within the chain or to another bucket
 * meanwhile. A cursor has the bucket (40 bits) and, above it, 1 plus the first bits of the hash of
 * the next pair, or 0 for the start of the chain.
 */
#include "kv/store.h"

#define BUCKET_BITS 40u
#define ORDER_BITS  23u
/* Pairs that are sorted together. A longer chain is read more than once. */
#define SORTED 64u

struct found {
	uint64_t order, addr; /* order of the pair, and address of its bucket */
	unsigned slot;
};

struct scan {
	struct kv *kv;
	uint64_t bucket;
	struct found found[SORTED]; /* pairs in order */
	unsigned n;
	bool more; /* pairs of a higher order than those of `found` were left out */
};

uint64_t kv_cursor_bucket(uint64_t cursor)
{
	return cursor & ((1ull << BUCKET_BITS) - 1);
}

/* Returns the order of a pair. The bits of the hash that select the bucket come last. */
static uint64_t order_of(uint64_t hash)
{
	return hash << 9 | hash >> 55;
}

static bool pair_at(struct scan *s, const struct bucket *b, unsigned i, struct kv_pair *p)
{
	struct inline_pair q;

	if (bucket_starts(b) >> i & 1) {
		bucket_inline_at(b, i, &q);
		*p = (struct kv_pair){q.key, q.value, q.key_len, q.value_len, q.expires};
		return true;
	}
	if (bucket_inline(b) >> i & 1 || !bucket_slot(b, i))
		return false;
	kv_record_read(s->kv, kv_segment(s->kv, s->bucket), slot_place(bucket_slot(b, i)), p);
	return true;
}

/* Keeps the SORTED pairs of the lowest order. */
static void keep(struct scan *s, uint64_t order, uint64_t addr, unsigned slot)
{
	unsigned at;

	if (s->n == SORTED) {
		s->more = true;
		if (order >= s->found[SORTED - 1].order)
			return;
		s->n--;
	}
	for (at = s->n++; at && s->found[at - 1].order > order; at--)
		s->found[at] = s->found[at - 1];
	s->found[at] = (struct found){order, addr, slot};
}

/* Collects the pairs of the chain from `order` on. */
static void collect(struct scan *s, uint64_t order)
{
	struct kv *kv = s->kv;
	uint64_t addr = kv_bucket_addr(s->bucket);

	s->n = 0;
	s->more = false;
	for (;;) {
		const struct bucket *b = kv_read(&kv->mem, addr, BUCKET_BYTES);
		struct kv_pair p;

		kv_want_records(kv, kv_segment(kv, s->bucket), b);
		for (unsigned i = 0; i < BUCKET_SLOTS; i++) {
			uint64_t at;

			if (!pair_at(s, b, i, &p) || kv_is_expired(kv, p.expires))
				continue;
			at = order_of(kv_hash(kv, p.key, p.key_len));
			if (at >= order)
				keep(s, at, addr, i);
		}
		if (!b->chain)
			return;
		addr = slab_addr(kv_segment(kv, s->bucket), b->chain);
	}
}

static bool visit_found(struct scan *s, const struct found *f, kv_visit visit, void *ctx)
{
	struct kv *kv = s->kv;
	struct bucket b = *(const struct bucket *)kv_more(&kv->mem, f->addr, BUCKET_BYTES);
	struct kv_pair p;

	pair_at(s, &b, f->slot, &p);
	if (!p.value)
		p.value = kv_record_value(kv, kv_segment(kv, s->bucket),
					  slot_place(bucket_slot(&b, f->slot)), &p);
	return visit(ctx, &p);
}

/*
 * Visits the pairs of a chain. Returns whether all pairs were visited; if not, *order is that of
 * the next pair.
 */
static bool scan_chain(struct scan *s, uint64_t *order, kv_visit visit, void *ctx)
{
	do {
		collect(s, *order);
		for (unsigned i = 0; i < s->n; i++) {
			*order = s->found[i].order;
			if (!visit_found(s, &s->found[i], visit, ctx))
				return false;
		}
	} while (s->more && ++*order);
	return true;
}

bool kv_want_bucket(struct kv *kv, uint64_t bucket)
{
	uint64_t addr = kv_bucket_addr(bucket);

	while (!kv_near_want(kv->mem.near, addr, BUCKET_BYTES)) {
		const struct bucket *b = kv_more(&kv->mem, addr, BUCKET_BYTES);

		kv_want_records(kv, kv_segment(kv, bucket), b);
		if (!b->chain)
			return true;
		addr = slab_addr(kv_segment(kv, bucket), b->chain);
	}
	return addr != kv_bucket_addr(bucket);
}

uint64_t kv_scan_bucket(struct kv *kv, uint64_t cursor, kv_visit visit, void *ctx, bool *stopped)
{
	uint64_t order = cursor >> BUCKET_BITS;
	struct scan s = {.kv = kv, .bucket = kv_cursor_bucket(cursor)};

	*stopped = false;
	if (s.bucket >= kv->buckets)
		return 0;
	order = order ? (order - 1) << (64 - ORDER_BITS) : 0;
	if (!scan_chain(&s, &order, visit, ctx)) {
		*stopped = true;
		return s.bucket | ((order >> (64 - ORDER_BITS)) + 1) << BUCKET_BITS;
	}
	return s.bucket + 1 < kv->buckets ? s.bucket + 1 : 0;
}

uint64_t kv_scan(struct kv *kv, uint64_t cursor, uint64_t buckets, kv_visit visit, void *ctx)
{
	bool stopped = false;

	while (buckets-- && !stopped) {
		cursor = kv_scan_bucket(kv, cursor, visit, ctx, &stopped);
		kv_trim(kv);
		if (!cursor)
			break;
	}
	return cursor;
}
