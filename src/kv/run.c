/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Executes operations in order. The hashes of later operations are computed ahead, and their
 * buckets are prefetched; a little later, the records that the slots of these buckets point to are
 * prefetched. The cache misses of many operations therefore overlap with each other and with the
 * execution of other operations.
 */
#include <errno.h>

#include "kv/hash.h"
#include "kv/match.h"
#include "kv/quick.h"
#include "kv/record.h"
#include "kv/store.h"

/* Operations that are prefetched together. */
#define GROUP 16u
/* Of each value. Those of a group fit into the nearest cache. */
#define AHEAD_BYTES 2048u

/* Evictions for one operation. A value with many extents needs several rounds. */
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
		if (likely(!kv_is_expired(kv, loc->pair.expires)))
			return true;
		kv_remove(kv, op->hash, loc);
		kv->expired++;
	}
	return false;
}

int kv_put_result(struct kv_op *op, const void *value, uint32_t len)
{
	int err = kv_claim_result(op, len);

	if (!err)
		memcpy(op->out, value, len);
	return err;
}

/* Marks the pair as used, for the eviction clock. */
static void mark_used(struct kv *kv, struct kv_loc *loc)
{
	struct bucket b;

	if (!kv->config.evict || loc->is_inline || loc->at->used >> loc->slot & 1)
		return;
	b = *loc->at;
	b.used |= (uint16_t)(1u << loc->slot);
	*(struct bucket *)kv_write(&kv->mem, loc->addr, BUCKET_BYTES) = b;
}

static int get(struct kv *kv, struct kv_op *op)
{
	struct kv_loc loc;
	int err;

	if (!lookup(kv, op, 0, &loc))
		return -ENOENT;
	mark_used(kv, &loc);
	/* the result comes first, so that no extent is read in vain */
	err = kv_claim_result(op, loc.pair.value_len);
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
	err = kv_put_result(op, value, loc->pair.value_len);
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
	mark_used(kv, &loc);
	return kv_run_elements(kv, op, &loc);
}

static int run_op(struct kv *kv, struct kv_op *op)
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

void kv_execute(struct kv *kv, struct kv_op *op)
{
	unsigned budget = EVICT_BUCKETS;

	op->status = run_op(kv, op);
	for (unsigned i = 0; unlikely(op->status == -ENOSPC) && i < EVICTIONS; i++) {
		if (!kv->config.evict || !kv_evict(kv, &budget))
			break;
		op->status = run_op(kv, op);
	}
}

static void execute(struct kv *kv, struct kv_op *op)
{
	if (likely(kv_quick(kv, op)))
		return;
	kv_execute(kv, op);
	/* An inline pair may take ten slots: as many as two buckets have at the fill limit. */
	if (unlikely(kv->slots > kv->grow_at))
		kv_grow(kv, 2);
}

/*
 * Accesses come in tight loops, so that their page walks overlap too. Buckets are prefetched long
 * before they are read. Records are loaded: a CPU may drop prefetches if many are outstanding,
 * which doubled the time of a GET of a record.
 */
static void prefetch_all(const struct kv *kv, const uint64_t *addrs, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		kv_prefetch(&kv->mem, addrs[i]);
}

static void load_all(const struct kv *kv, const uint64_t *addrs, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		uint8_t byte = *(const uint8_t *)kv_more(&kv->mem, addrs[i], 1);

		__asm__ volatile("" : : "r"(byte));
	}
}

static inline void check_and_hash(const struct kv *kv, struct kv_op *op)
{
	op->status = check(kv, op);
	op->out_len = 0;
	if (!op->status)
		op->hash = hash_of(kv, op->key, op->key_len);
}

void kv_begin(const struct kv *kv, struct kv_op *op)
{
	check_and_hash(kv, op);
}

/* Checks and hashes the operations of a group, and prefetches their buckets. */
static void begin(struct kv *kv, struct kv_op *ops, unsigned n)
{
	uint64_t addrs[GROUP];
	unsigned num = 0;

	for (unsigned i = 0; i < n; i++) {
		check_and_hash(kv, &ops[i]);
		if (ops[i].status)
			continue;
		addrs[num++] = kv_bucket_addr(kv_home(kv, ops[i].hash));
	}
	prefetch_all(kv, addrs, num);
}

/* Prefetches what load_all() did not load of long records. Their pages are known to the TLB now. */
static void prefetch_rest(const struct kv *kv, const uint64_t *addrs, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		const uint8_t *at = kv->mem.base + addrs[i];
		uint32_t head = match_u32(at), bytes = head >> RECORD_VALUE_SHIFT & RECORD_VALUE;

		if (head & RECORD_EXTENTS) /* the value is elsewhere */
			continue;
		if (bytes > AHEAD_BYTES)
			bytes = AHEAD_BYTES;
		for (uint32_t line = 2 * BUCKET_BYTES; line < bytes + BUCKET_BYTES;
		     line += BUCKET_BYTES)
			__builtin_prefetch(at + line);
	}
}

/* Returns whether an inline pair with the tag of the hash begins in the bucket. */
static inline bool may_be_inline(const struct bucket *b, uint64_t hash)
{
	uint32_t starts = bucket_starts(b);
	uint64_t map;

	if (!starts)
		return false;
	for (map = bucket_tagged(b, kv_tag(hash)); map;)
		if (starts >> bucket_next(&map, BUCKET_NIBBLES) & 1)
			return true;
	return false;
}

/* Prefetches the records to which the buckets of a group point, and the next buckets. */
static void fetch(struct kv *kv, const struct kv_op *ops, unsigned n)
{
	uint64_t addrs[GROUP * (2 * BUCKET_SLOTS + 1)], long_records[GROUP * BUCKET_SLOTS];
	unsigned num = 0, num_long = 0;

	for (unsigned i = 0; i < n; i++) {
		uint64_t hash = ops[i].hash;
		struct slab *s = kv_segment(kv, hash);
		const struct bucket *b;
		uint64_t map;

		if (ops[i].status)
			continue;
		b = kv_more(&kv->mem, kv_bucket_addr(kv_home(kv, hash)), BUCKET_BYTES);
		if (may_be_inline(b, hash))
			continue;
		map = bucket_candidates(b, kv_second_hash(hash));
		while (map) {
			unsigned k = bucket_next(&map, BUCKET_BYTEWISE);

			if (!match_record(b, k, hash))
				continue;
			addrs[num++] = slab_addr(s, slot_place(bucket_slot(b, k)));
			/* The value is in the second line. */
			if (bucket_class(b, k) > KV_CHAIN_CLASS) {
				addrs[num] = addrs[num - 1] + BUCKET_BYTES;
				num++;
			}
			if (slab_size(bucket_class(b, k)) > 2 * BUCKET_BYTES)
				long_records[num_long++] =
					slab_addr(s, slot_place(bucket_slot(b, k)));
		}
		if (b->chain)
			addrs[num++] = slab_addr(s, b->chain);
	}
	load_all(kv, addrs, num);
	prefetch_rest(kv, long_records, num_long);
}

void kv_run(struct kv *kv, struct kv_op *ops, unsigned n)
{
	unsigned begun = 0, fetched = 0;

	if (unlikely(kv->flight != NULL)) {
		kv_flight_run(kv, ops, n);
		return;
	}
	for (unsigned i = 0; i < n; i++) {
		if (i % GROUP == 0) {
			for (; begun < n && begun < i + 2 * GROUP; begun += GROUP)
				begin(kv, ops + begun, n - begun < GROUP ? n - begun : GROUP);
			for (; n > 1 && fetched < n && fetched < i + GROUP; fetched += GROUP)
				fetch(kv, ops + fetched, n - fetched < GROUP ? n - fetched : GROUP);
		}
		if (!ops[i].status)
			execute(kv, &ops[i]);
	}
}
