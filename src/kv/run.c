/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Executes operations in groups: computes all hashes and prefetches the buckets, prefetches the
 * records that their slots point to, then executes the operations in order. Thus the cache misses
 * of a group overlap.
 */
#include <errno.h>

#include "kv/store.h"

#define GROUP 32u
/* Eviction for one operation. A value with many extents needs several rounds. */
#define EVICTIONS     256u
#define EVICT_BUCKETS 16384u

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

/* Sets the length of the result, and finds its memory. Returns 0 or -EMSGSIZE. */
static int claim(struct kv_op *op, uint32_t len)
{
	size_t room;

	if (op->arena) {
		room = (size_t)(op->arena->end - op->arena->at);
		op->out = op->arena->at;
		op->out_cap = room < UINT32_MAX ? (uint32_t)room : UINT32_MAX;
	}
	op->out_len = len;
	if (len > op->out_cap)
		return -EMSGSIZE;
	if (op->arena)
		op->arena->at += len;
	return 0;
}

int kv_give(struct kv_op *op, const void *value, uint32_t len)
{
	int err = claim(op, len);

	if (!err)
		memcpy(op->out, value, len);
	return err;
}

/* Marks the pair as used, for the eviction clock. */
static void mark(struct kv *kv, struct kv_loc *loc)
{
	if (!kv->config.evict || loc->is_inline || loc->b.used >> loc->slot & 1)
		return;
	loc->b.used |= (uint16_t)(1u << loc->slot);
	*(struct bucket *)kv_write(&kv->mem, loc->addr) = loc->b;
}

static int get(struct kv *kv, struct kv_op *op)
{
	struct kv_loc loc;
	int err;

	if (!lookup(kv, op, 0, &loc))
		return -ENOENT;
	mark(kv, &loc);
	err = claim(op, loc.pair.value_len); /* first: no extent is read for nothing */
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

	op->status = once(kv, op);
	for (unsigned i = 0; unlikely(op->status == -ENOSPC) && i < EVICTIONS; i++) {
		if (!kv->config.evict || !kv_evict(kv, &budget))
			break;
		op->status = once(kv, op);
	}
	/* An inline pair may take ten slots: as many as two buckets have at the fill limit. */
	kv_grow(kv, 2);
}

static void prefetch_record(struct kv *kv, const struct kv_op *op)
{
	uint64_t home = kv_home(kv, op->hash);
	const struct bucket *b = kv_more(&kv->mem, kv_bucket_addr(home));
	uint32_t in = bucket_inline(b), second = kv_second_hash(op->hash);

	for (unsigned i = 0; i < BUCKET_SLOTS; i++) {
		uint64_t slot = bucket_slot(b, i);

		if (slot_place(slot) && slot_hash(slot) == second && !(in >> i & 1))
			kv_prefetch(&kv->mem, slab_addr(kv_segment(kv, home), slot_place(slot)));
	}
	if (b->chain)
		kv_prefetch(&kv->mem, slab_addr(kv_segment(kv, home), b->chain));
}

static void run_group(struct kv *kv, struct kv_op *ops, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		ops[i].status = check(kv, &ops[i]);
		ops[i].out_len = 0;
		if (ops[i].status)
			continue;
		ops[i].hash = kv_hash(kv, ops[i].key, ops[i].key_len);
		kv_prefetch(&kv->mem, kv_bucket_addr(kv_home(kv, ops[i].hash)));
	}
	if (n > 1) {
		for (unsigned i = 0; i < n; i++) {
			if (!ops[i].status)
				prefetch_record(kv, &ops[i]);
		}
	}
	for (unsigned i = 0; i < n; i++) {
		if (!ops[i].status)
			execute(kv, &ops[i]);
	}
}

void kv_run(struct kv *kv, struct kv_op *ops, unsigned n)
{
	for (unsigned i = 0; i < n; i += GROUP)
		run_group(kv, ops + i, n - i < GROUP ? n - i : GROUP);
}
