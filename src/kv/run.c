/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Executes operations in order. While one is executed, a later one is hashed and its bucket is
 * prefetched; for an earlier one of these the record is prefetched to which its bucket points; for
 * the next ones the rest of a long record. So the cache misses of many operations overlap. They
 * come one after the other: a CPU drops prefetches, or waits, if too many are outstanding.
 */
#include <errno.h>

#include "kv/hash.h"
#include "kv/match.h"
#include "kv/quick.h"
#include "kv/store.h"

/* Distances, in operations. */
#ifndef AHEAD_BUCKET
#define AHEAD_BUCKET 24u
#define AHEAD_RECORD 12u
#endif
#define AHEAD_REST   2u

/* Bytes of a long record that are prefetched. The CPU itself detects a stream. */
#define REST_MAX 1024u

/* Eviction for one operation. A value with many extents needs several rounds. */
#define EVICTIONS     256u
#define EVICT_BUCKETS 16384u

/* Addresses of the part of a record that follows the first two lines. */
struct rest {
	uint64_t addr, end;
};

static int check(const struct kv *kv, const struct kv_op *op)
{
	if (op->code >= KV_CODES || !op->key_len)
		return -EINVAL;
	if (op->key_len > KV_KEY_MAX || op->value_len > KV_VALUE_MAX)
		return -E2BIG;
	return op->code < KV_UPDATE ? 0 : kv_check_elements(kv, op);
}

static bool lookup(struct kv *kv, struct kv_op *op, unsigned need, struct kv_loc *loc)
{
	while (kv_find(kv, op->hash, op->key, op->key_len, need, loc)) {
		if (likely(!kv_is_over(kv, loc->pair.expires)))
			return true;
		kv_remove(kv, op->hash, loc);
		kv->expired++;
	}
	return false;
}

int kv_give(struct kv_op *op, const void *value, uint32_t len)
{
	int err = kv_claim(op, len);

	if (!err)
		memcpy(op->out, value, len);
	return err;
}

/* Marks the pair as used, for the eviction clock. */
static void mark(struct kv *kv, struct kv_loc *loc)
{
	struct bucket b;

	if (!kv->config.evict || loc->is_inline || loc->at->used >> loc->slot & 1)
		return;
	b = *loc->at;
	b.used |= (uint16_t)(1u << loc->slot);
	*(struct bucket *)kv_write(&kv->mem, loc->addr) = b;
}

static int get(struct kv *kv, struct kv_op *op)
{
	struct kv_loc loc;
	int err;

	if (!lookup(kv, op, 0, &loc))
		return -ENOENT;
	mark(kv, &loc);
	err = kv_claim(op, loc.pair.value_len); /* first: no extent is read for nothing */
	if (!err)
		memcpy(op->out, kv_value(kv, op->hash, &loc), loc.pair.value_len);
	return err;
}

static int compare(struct kv *kv, struct kv_op *op, struct kv_loc *loc)
{
	const uint8_t *value = kv_value(kv, op->hash, loc);
	int err;

	if (loc->pair.value_len == op->expect_len && memcmp(value, op->expect, op->expect_len) == 0)
		return 0;
	err = kv_give(op, value, loc->pair.value_len);
	return err ? err : -ECANCELED;
}

static int put(struct kv *kv, struct kv_op *op)
{
	struct kv_pair p = {op->key, op->value, op->key_len, op->value_len, op->expires};
	unsigned need = kv_slots_of(kv, &p);
	struct kv_loc loc;
	bool found = lookup(kv, op, need ? need : 1, &loc);
	int err;

	if (found && op->code == KV_PUT_ABSENT)
		return -EEXIST;
	if (!found && (op->code == KV_PUT_PRESENT || op->code == KV_PUT_COMPARE))
		return -ENOENT;
	if (op->code == KV_PUT_COMPARE) {
		err = compare(kv, op, &loc);
		if (err)
			return err;
	}
	return kv_store(kv, op->hash, &loc, found, &p);
}

static int touch(struct kv *kv, struct kv_op *op)
{
	struct kv_loc loc;
	struct kv_pair p;
	const uint8_t *value;

	if (!lookup(kv, op, 0, &loc))
		return -ENOENT;
	value = kv_value(kv, op->hash, &loc);
	/* Copy the value out of the record, which kv_store() may overwrite. */
	if (value != kv->gather)
		memcpy(kv->gather, value, loc.pair.value_len);
	p = (struct kv_pair){op->key, kv->gather, op->key_len, loc.pair.value_len, op->expires};
	return kv_store(kv, op->hash, &loc, true, &p);
}

static int delete (struct kv *kv, struct kv_op *op)
{
	struct kv_loc loc;

	if (!lookup(kv, op, 0, &loc))
		return -ENOENT;
	kv_remove(kv, op->hash, &loc);
	return 0;
}

static int elements(struct kv *kv, struct kv_op *op)
{
	struct kv_loc loc;

	if (!lookup(kv, op, 0, &loc))
		return -ENOENT;
	mark(kv, &loc);
	return kv_run_elements(kv, op, &loc);
}

static int once(struct kv *kv, struct kv_op *op)
{
	switch (op->code) {
	case KV_GET:
		return get(kv, op);
	case KV_DELETE:
		return delete (kv, op);
	case KV_TOUCH:
		return touch(kv, op);
	case KV_UPDATE:
	case KV_UPDATE_EACH:
	case KV_UPDATE_VECTOR:
	case KV_REDUCE:
	case KV_FILTER:
		return elements(kv, op);
	default:
		return put(kv, op);
	}
}

static void execute(struct kv *kv, struct kv_op *op)
{
	unsigned budget = EVICT_BUCKETS;

	if (likely(kv_quick(kv, op)))
		return;
	op->status = once(kv, op);
	for (unsigned i = 0; unlikely(op->status == -ENOSPC) && i < EVICTIONS; i++) {
		if (!kv->config.evict || !kv_evict(kv, &budget))
			break;
		op->status = once(kv, op);
	}
	/* An inline pair may take ten slots: as many as two buckets have at the fill limit. */
	if (unlikely(kv->slots > kv->grow_at))
		kv_grow(kv, 2);
}

/* Checks and hashes an operation, and prefetches its bucket. */
__attribute__((flatten)) static void aim(struct kv *kv, struct kv_op *op)
{
	op->status = check(kv, op);
	op->out_len = 0;
	if (unlikely(op->status))
		return;
	op->hash = hash_of(kv, op->key, op->key_len);
	kv_prefetch(&kv->mem, kv_bucket_addr(kv_home(kv, op->hash)));
}

/*
 * Prefetches the start of a record to which the bucket points, and the next bucket of the chain.
 * Returns the rest of a long record.
 */
static inline struct rest follow(const struct kv *kv, const struct kv_op *op)
{
	const struct bucket *b = kv_more(&kv->mem, kv_bucket_addr(kv_home(kv, op->hash)));
	const struct slab *s = &kv->slabs[op->hash & (kv->segments - 1)];
	struct rest rest = {0};
	uint64_t map;

	if (unlikely(op->status))
		return rest;
	/* Without a next bucket this is the start of the segment, which costs less than a branch. */
	kv_prefetch(&kv->mem, slab_addr(s, b->chain));
	if (bucket_starts(b) && bucket_tagged(b, kv_tag(op->hash)))
		return rest;
	map = bucket_candidates(b, kv_second_hash(op->hash));
	while (map) {
		unsigned i = bucket_next(&map, BUCKET_BYTEWISE), class = bucket_class(b, i);
		uint64_t addr;

		if (!match_record(b, i, op->hash))
			continue;
		addr = slab_addr(s, slot_place(bucket_slot(b, i)));
		kv_prefetch(&kv->mem, addr);
		if (class > KV_CHAIN_CLASS)
			kv_prefetch(&kv->mem, addr + BUCKET_BYTES);
		if (class > KV_CHAIN_CLASS + 1)
			rest = (struct rest){addr + 2 * BUCKET_BYTES, addr + slab_size(class)};
	}
	return rest;
}

static inline void prefetch_rest(const struct kv *kv, const struct rest *rest)
{
	for (uint64_t addr = rest->addr; addr < rest->end && addr < rest->addr + REST_MAX;
	     addr += BUCKET_BYTES)
		kv_prefetch(&kv->mem, addr);
}

void kv_run(struct kv *kv, struct kv_op *ops, unsigned n)
{
	struct rest rests[AHEAD_RECORD];
	unsigned aimed = 0, followed = n > 1 ? 0 : n;

	for (unsigned i = 0; i < n; i++) {
		for (; aimed < n && aimed <= i + AHEAD_BUCKET; aimed++)
			aim(kv, &ops[aimed]);
		for (; followed < n && followed < i + AHEAD_RECORD; followed++)
			rests[followed % AHEAD_RECORD] = follow(kv, &ops[followed]);
		if (n > 1 && i + AHEAD_REST < n)
			prefetch_rest(kv, &rests[(i + AHEAD_REST) % AHEAD_RECORD]);
		if (likely(!ops[i].status))
			execute(kv, &ops[i]);
	}
}
