/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The partitions of a store, on a node that serves a part of the keys (docs/kv.md). They belong to
 * the store: the thread that has the store uses them.
 */
#ifndef ROOST_BUILTIN_KV_PARTS_H
#define ROOST_BUILTIN_KV_PARTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kvwire/fence.h"
#include "kvwire/table.h"

struct kv_parts {
	uint64_t version, seed; /* version and seed of the table */
	unsigned partitions;
	bool fenced;			 /* the node serves no partition: kv_parts_begin() */
	bool owned[KV_TABLE_PARTITIONS]; /* owned and served */
	/* partitions that move */
	bool moving_out[KV_TABLE_PARTITIONS], moving_in[KV_TABLE_PARTITIONS];
	uint64_t operations[KV_TABLE_PARTITIONS]; /* operations on owned keys */
};

/*
 * Reads the fence, which decides whether the following operations are served. `p` and `f` may be
 * NULL.
 */
static inline void kv_parts_begin(struct kv_parts *p, const struct kv_fence *f)
{
	if (p && f)
		p->fenced = !kv_fence_open(f, p->version, kv_fence_now());
}

static inline bool kv_parts_serve(const struct kv_parts *p, unsigned partition)
{
	return p->owned[partition] && !p->fenced;
}

/* Returns whether a move has left the pairs of the partition behind. */
static inline bool kv_parts_stray(const struct kv_parts *p, unsigned partition)
{
	return !p->owned[partition] && !p->moving_out[partition];
}

/*
 * Returns whether the store serves a key, and then counts an operation on it. `p` may be NULL: the
 * store serves all keys.
 */
static inline bool kv_parts_count(struct kv_parts *p, const void *key, size_t len)
{
	unsigned at;
	bool serves;

	if (!p)
		return true;
	at = kv_table_partition(p->seed, p->partitions, key, len);
	serves = kv_parts_serve(p, at);
	p->operations[at] += serves;
	return serves;
}

/*
 * Takes the partitions of the node at `address` from a table. The counts of operations are kept if
 * it is a later version of the same table.
 */
void kv_parts_set(struct kv_parts *p, const struct kv_table *t, const char *address,
		  uint16_t service);
/*
 * Returns the number of partitions that are served; *hottest is the partition with the most
 * operations.
 */
unsigned kv_parts_owned(const struct kv_parts *p, unsigned *hottest);

#endif
