/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Executes operations in groups. The hashes of the next group are computed, and its buckets
 * prefetched. Then the operations of this group that need only their bucket are executed, and the
 * records and chained buckets of the others are loaded. At last the others are executed. The cache
 * misses of many operations therefore overlap with each other and with the execution of other
 * operations.
 */
#include <errno.h>

#include "kv/hash.h"
#include "kv/match.h"
#include "kv/quick.h"
#include "kv/record.h"
#include "kv/store.h"

#define GROUP KV_QUICK_GROUP
/* Of each value. Those of a group fit into the nearest cache. */
#define AHEAD_BYTES 2048u

/* Evictions for one operation. A value with many extents needs several rounds. */
#define EVICTIONS     256u
#define EVICT_BUCKETS 16384u
/* Without eviction. Each record is read; with a far tier the operation waits for its line. */
#define EXPIRE_BUCKETS	   512u
#define EXPIRE_BUCKETS_FAR 8u

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

uint64_t kv_bytes(const struct kv *kv)
{
	return kv->bytes;
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
	if (kv_part_divides(kv, &loc))
		return kv_part_begin(kv, op, PART_GET, &loc);
	/* the result comes first, so that no extent is read in vain */
	err = kv_claim_result(op, loc.pair.value_len);
	if (err)
		return err;
	memcpy(op->out, kv_value(kv, op->hash, &loc), loc.pair.value_len);
	kv->bytes += loc.pair.value_len;
	return 0;
}

static int compare(struct kv *kv, struct kv_op *op, struct kv_loc *loc)
{
	const uint8_t *value;
	int err;

	if (kv_part_divides(kv, loc))
		return kv_part_begin(kv, op, PART_COMPARE, loc);
	value = kv_value(kv, op->hash, loc);
	kv->bytes += loc->pair.value_len;
	if (loc->pair.value_len == op->expect_len && memcmp(value, op->expect, op->expect_len) == 0)
		return 0;
	err = kv_put_result(op, value, loc->pair.value_len);
	return err ? err : -ECANCELED;
}

/* Stores a pair whose key was looked up, or begins to do so if its value is long. */
static int store(struct kv *kv, struct kv_op *op, struct kv_loc *loc, bool found, struct kv_pair *p)
{
	const uint8_t *value = p->value;
	int err;

	if (!kv->divides || p->value_len <= SLAB_MAX) {
		kv->bytes += p->value_len;
		return kv_store(kv, op->hash, loc, found, p);
	}
	p->value = NULL;
	err = kv_store(kv, op->hash, loc, found, p);
	return err ? err : kv_part_store(kv, op, value, p->value_len);
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
	return store(kv, op, &loc, found, &p);
}

static int touch(struct kv *kv, struct kv_op *op)
{
	struct kv_loc loc;
	struct kv_pair p;
	const uint8_t *value;

	if (!lookup(kv, op, 0, &loc))
		return -ENOENT;
	if (kv_part_divides(kv, &loc))
		return kv_part_begin(kv, op, PART_GET_ALL, &loc);
	value = kv_value(kv, op->hash, &loc);
	/* Copy the value out of the record, which kv_store() may overwrite. */
	if (value != kv->gather)
		memcpy(kv->gather, value, loc.pair.value_len);
	p = (struct kv_pair){op->key, kv->gather, op->key_len, loc.pair.value_len, op->expires};
	kv->bytes += 2ull * p.value_len; /* read and written */
	return kv_store(kv, op->hash, &loc, true, &p);
}

/* The second half of PUT_COMPARE and of TOUCH. An eviction may have removed the pair. */
static int store_again(struct kv *kv, struct kv_op *op)
{
	struct kv_pair p = {op->key, op->value, op->key_len, op->value_len, op->expires};
	struct kv_loc loc;

	if (!lookup(kv, op, kv_slots_of(kv, &p) ? kv_slots_of(kv, &p) : 1, &loc))
		return -ENOENT;
	if (op->code == KV_TOUCH) {
		p.value = kv->gather;
		p.value_len = loc.pair.value_len;
	}
	return store(kv, op, &loc, true, &p);
}

static int delete (struct kv *kv, struct kv_op *op)
{
	struct kv_loc loc;

	if (!lookup(kv, op, 0, &loc))
		return -ENOENT;
	kv_remove(kv, op->hash, &loc);
	return 0;
}

/*
 * Returns whether the function has run on the elements. If the result has no space, only an update
 * finds that before. Registered functions are counted by functions.c.
 */
static bool has_worked(const struct kv_op *op, int status)
{
	if (likely(!status || status == -ECANCELED))
		return true;
	return status == -EMSGSIZE && op->code >= KV_REDUCE;
}

static int elements(struct kv *kv, struct kv_op *op)
{
	struct kv_loc loc;
	int status;

	if (!lookup(kv, op, 0, &loc))
		return -ENOENT;
	mark_used(kv, &loc);
	status = kv_run_elements(kv, op, &loc);
	if (op->fn < KV_FN_REGISTERED && likely(has_worked(op, status)))
		kv->bytes += kv_element_bytes(op, loc.pair.value_len);
	return status;
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

static int with_eviction(struct kv *kv, struct kv_op *op,
			 int (*run)(struct kv *kv, struct kv_op *op))
{
	unsigned budget = kv->config.evict ? EVICT_BUCKETS
			  : kv->mem.near   ? EXPIRE_BUCKETS_FAR
					   : EXPIRE_BUCKETS;
	int status = run(kv, op);

	for (unsigned i = 0; unlikely(status == -ENOSPC) && i < EVICTIONS; i++) {
		if (!(kv->config.evict ? kv_evict : kv_expire)(kv, &budget))
			break;
		status = run(kv, op);
	}
	return status;
}

void kv_execute(struct kv *kv, struct kv_op *op)
{
	op->status = with_eviction(kv, op, run_op);
}

int kv_store_rest(struct kv *kv, struct kv_op *op)
{
	return with_eviction(kv, op, store_again);
}

enum executed {
	IN_PLACE,     /* finished; all pairs kept their place */
	MOVED,	      /* finished; pairs may have moved */
	NOT_FINISHED, /* kv_part_run() continues it; pairs may have moved */
};

static enum executed execute(struct kv *kv, struct kv_op *op)
{
	if (likely(kv_quick(kv, op)))
		return IN_PLACE;
	kv_execute(kv, op);
	/* An inline pair may take ten slots: as many as two buckets have at the fill limit. */
	if (unlikely(kv->slots > kv->grow_at))
		kv_grow(kv, 2);
	return likely(op->status != -EINPROGRESS) ? MOVED : NOT_FINISHED;
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

/*
 * Prefetches the lines of long records of which `addrs` has only the first two. Their pages are
 * known to the TLB now.
 */
static void prefetch_rest(const struct kv *kv, const struct kv_later *l)
{
	for (unsigned i = 0; i < l->num_long; i++) {
		const uint8_t *at = kv->mem.base + l->long_records[i];
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

static inline unsigned least(unsigned a, unsigned b)
{
	return a < b ? a : b;
}

/* Marks the operations of `later` from the given one, and all from ops[at] on, as not begun. */
static bool leave(const struct kv_later *later, unsigned from, struct kv_op *ops, unsigned at,
		  unsigned n)
{
	for (; from < later->n; from++)
		later->ops[from]->status = -EINPROGRESS;
	for (; at < n; at++)
		ops[at].status = -EINPROGRESS;
	return false;
}

/*
 * Executes the operations of `later` until kv->bytes has reached `until`. Returns whether all are
 * finished. Otherwise *begun is the number of operations that have begun.
 */
static bool run_later(struct kv *kv, const struct kv_later *later, uint64_t until, unsigned *begun)
{
	bool hints = true; /* no pair has moved */

	for (unsigned i = 0; i < later->n; i++) {
		const struct kv_hint *h = &later->hints[i];
		struct kv_op *op = later->ops[i];
		enum executed done;

		*begun = i;
		if (unlikely(kv->bytes >= until))
			return false;
		if (likely(hints && h->addr) && likely(kv_quick_record(kv, op, h)))
			continue;
		done = execute(kv, op);
		hints &= done == IN_PLACE;
		*begun = i + 1;
		if (unlikely(done == NOT_FINISHED) && !kv_part_run(kv, until))
			return false;
	}
	return true;
}

/* Executes operations until kv->bytes has reached `until`. Returns whether all were executed. */
static bool run_until(struct kv *kv, struct kv_op *ops, unsigned n, uint64_t until)
{
	struct kv_later later;

	if (n == 1) {
		check_and_hash(kv, ops);
		return ops->status || likely(execute(kv, ops) != NOT_FINISHED) ||
		       kv_part_run(kv, until);
	}
	begin(kv, ops, least(n, GROUP));
	for (unsigned at = 0; at < n; at += GROUP) {
		unsigned begun;

		if (n - at > GROUP)
			begin(kv, ops + at + GROUP, least(n - at - GROUP, GROUP));
		kv_quick_group(kv, ops + at, least(n - at, GROUP), &later);
		load_all(kv, later.addrs, later.num_addrs);
		prefetch_rest(kv, &later);
		if (unlikely(!run_later(kv, &later, until, &begun)))
			return leave(&later, begun, ops, at + GROUP, n);
	}
	return true;
}

void kv_run(struct kv *kv, struct kv_op *ops, unsigned n)
{
	if (unlikely(kv->flight != NULL))
		kv_flight_run(kv, ops, n);
	else
		run_until(kv, ops, n, UINT64_MAX);
}

bool kv_run_some(struct kv *kv, struct kv_op *ops, unsigned n)
{
	bool done;

	kv->divides = true;
	done = run_until(kv, ops, n, kv->bytes + KV_RUN_BYTES);
	kv->divides = false;
	return done;
}

static bool run_rest(struct kv *kv, struct kv_op *ops, unsigned n, uint64_t until)
{
	if (kv->part.op && !kv_part_run(kv, until))
		return false;
	for (unsigned i = 0; i < n; i++) {
		if (ops[i].status != -EINPROGRESS)
			continue;
		if (kv->bytes >= until)
			return false;
		check_and_hash(kv, &ops[i]);
		if (!ops[i].status && execute(kv, &ops[i]) == NOT_FINISHED &&
		    !kv_part_run(kv, until))
			return false;
	}
	return true;
}

/*
 * What is left is executed in order, one operation after the other: values are long, so there is
 * little to gain by an overlap of their cache misses. Operations that were executed do not precede
 * one on their own key that is left (quick.h).
 */
bool kv_run_on(struct kv *kv, struct kv_op *ops, unsigned n)
{
	bool done;

	kv->divides = true;
	done = run_rest(kv, ops, n, kv->bytes + KV_RUN_BYTES);
	kv->divides = false;
	return done;
}

bool kv_divided(const struct kv *kv)
{
	return kv->part.op;
}

void kv_end_divided(struct kv *kv)
{
	kv->divides = true;
	if (kv->part.op)
		kv_part_run(kv, UINT64_MAX);
	kv->divides = false;
}

void kv_moved_ops(struct kv *kv, const struct kv_op *from, struct kv_op *to, unsigned n)
{
	if (kv->part.op >= from && kv->part.op < from + n)
		kv->part.op = to + (kv->part.op - from);
}
