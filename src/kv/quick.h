/* SPDX-License-Identifier: BSD-2-Clause */
/* The common case: a GET, PUT or update of a pair that does not expire and that keeps its place. */
#ifndef ROOST_KV_QUICK_H
#define ROOST_KV_QUICK_H

#include "kv/store.h"

/*
 * Executes an operation that was checked and hashed. Returns false without a change if the
 * operation is no common case.
 */
bool kv_quick(struct kv *kv, struct kv_op *op);

/*
 * Does the same, and looks first at the record to which a slot of bucket `b` of the index pointed
 * some time ago. BUCKET_SLOTS: none.
 */
bool kv_quick_slot(struct kv *kv, struct kv_op *op, const struct bucket *b, unsigned slot);

/* Operations that are looked at together. */
#define KV_QUICK_GROUP 16u

/* The record to which a slot of the bucket points; addr 0: none. */
struct kv_hint {
	uint64_t addr;
	const struct bucket *bucket;
	unsigned slot;
};

/*
 * Does the same as kv_quick() for an operation whose key is that of the record, and returns false
 * for any other. Pairs must not have moved since kv_quick_group() found the record.
 */
bool kv_quick_record(struct kv *kv, struct kv_op *op, const struct kv_hint *hint);

/* Operations of a group that need more than the first bucket of their chain. */
struct kv_later {
	struct kv_op *ops[KV_QUICK_GROUP];
	struct kv_hint hints[KV_QUICK_GROUP]; /* for each operation */
	unsigned n, num_addrs, num_long;
	/* Records, the second lines of records, and chained buckets; records of several lines. */
	uint64_t addrs[KV_QUICK_GROUP * (2 * BUCKET_SLOTS + 1)];
	uint64_t long_records[KV_QUICK_GROUP * BUCKET_SLOTS];
};

/*
 * Executes the operations of a group that need only the first bucket of their chain, and puts the
 * others into `later`. Operations with a status were not begun.
 *
 * An operation does not overtake one on its own key. An operation on another key cannot notice that
 * it is overtaken: the operations that are executed here neither allocate nor free, and no inline
 * pair is evicted. Results in an arena are in the order of the operations.
 */
void kv_quick_group(struct kv *kv, struct kv_op *ops, unsigned n, struct kv_later *later);

#endif
