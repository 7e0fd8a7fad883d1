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

#include "kvwire/table.h"

struct kv_parts {
	uint64_t version, seed; /* of the table */
	unsigned partitions;
	bool owned[KV_TABLE_PARTITIONS];			      /* and served */
	bool leaves[KV_TABLE_PARTITIONS], comes[KV_TABLE_PARTITIONS]; /* partitions that move */
	uint64_t operations[KV_TABLE_PARTITIONS];		      /* on keys that are owned */
};

/* Returns whether the store owns a key. `p` may be NULL: the store owns all keys. */
static inline bool kv_parts_own(const struct kv_parts *p, const void *key, size_t len)
{
	return !p || p->owned[kv_table_partition(p->seed, p->partitions, key, len)];
}

/* As kv_parts_own(), and counts an operation on the key. */
static inline bool kv_parts_count(struct kv_parts *p, const void *key, size_t len)
{
	unsigned at;

	if (!p)
		return true;
	at = kv_table_partition(p->seed, p->partitions, key, len);
	p->operations[at] += p->owned[at];
	return p->owned[at];
}

/*
 * Takes the partitions of the node at `address` from a table. The counts of operations are kept if
 * it is a later version of the same table.
 */
void kv_parts_set(struct kv_parts *p, const struct kv_table *t, const char *address,
		  uint16_t service);
/* Returns the number of partitions that are owned; *hottest is the one with most operations. */
unsigned kv_parts_owned(const struct kv_parts *p, unsigned *hottest);

#endif
