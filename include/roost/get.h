/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The kernel `get`: looks up a key in a hash table in the node's memory and returns its value, in
 * one round trip. It follows StRoM (EuroSys '20), section 6.2: an entry of the table is one cache
 * line with three buckets. All numbers are little-endian. The table and the values are in the
 * region that the call names.
 *
 *	table -> | entry 0 | entry 1 | ... | entry n - 1 | more entries |
 *		   key, value, length: three times; next
 *
 * Only chains lead to the entries after entry n - 1.
 *
 * A key is stored in entry hash & (n - 1). If the three buckets of that entry are taken, the key is
 * stored in another entry. A table uses one of two schemes to find it:
 *
 *	chain	`next` is the number of the next entry, plus 1; 0 ends the chain
 *	probe	the search continues with the following entries, up to an entry with a free bucket
 *
 * The reply is the value, ROOST_RPC_MISS if the key is not found, or ROOST_RPC_BOUND if it is not
 * among the first `bound` entries and the search would continue.
 */
#ifndef ROOST_GET_H
#define ROOST_GET_H

#include <stdint.h>
#include <string.h>

#include "roost/rpc.h"

#define ROOST_GET_OP	  1ull
#define ROOST_GET_BUCKETS 3

struct roost_get_bucket {
	uint64_t key;
	uint64_t value; /* address of the value; 0: the bucket is free */
	uint32_t len;	/* bytes of the value */
} __attribute__((packed));

struct roost_get_entry {
	struct roost_get_bucket bucket[ROOST_GET_BUCKETS];
	uint32_t next;
};

enum roost_get_flags { ROOST_GET_PROBE = 1 }; /* without it: chain */

struct roost_get_params {
	uint64_t table; /* address of entry 0 */
	uint64_t mask;	/* number of entries, a power of two, less 1 */
	uint64_t hash;	/* of the key, by the hash function that the table was built with */
	uint64_t key;
	uint32_t bound; /* the most entries to search; not 0 */
	uint32_t flags; /* enum roost_get_flags */
};

#ifndef __cplusplus
_Static_assert(sizeof(struct roost_get_entry) == 64, "an entry is a cache line");
_Static_assert(sizeof(struct roost_get_params) == 40, "parameters of get");
#endif

/*
 * Returns the hash of a key, for callers and tables: the finalizer of MurmurHash3, public domain.
 */
static inline uint64_t roost_get_hash(uint64_t key)
{
	key ^= key >> 33;
	key *= 0xff51afd7ed558ccdull;
	key ^= key >> 33;
	key *= 0xc4ceb9fe1a85ec53ull;
	return key ^ key >> 33;
}

/* Returns the parameters of a GET of `key`, with a bound of 64 entries. For callers. */
static inline struct roost_get_params roost_get_params(uint64_t table, uint64_t entries,
						       uint64_t key, uint32_t flags)
{
	struct roost_get_params p = {table, entries - 1, roost_get_hash(key), key, 64, flags};

	return p;
}

/*
 * Inserts a key into the table at t. For nodes. The key must not be in the table yet. `value` is
 * the address of the value as callers know it.
 *
 * The table has `entries` entries, a power of two. With chains, `more` entries follow, of which
 * *used are taken. Returns 0, or -1 if the table is full. No other thread may change the table
 * meanwhile. GETs may run; they either find the key or do not.
 */
static inline int roost_get_insert(struct roost_get_entry *t, uint64_t entries, uint32_t more,
				   uint32_t *used, uint64_t key, uint64_t value, uint32_t len,
				   uint32_t flags)
{
	uint64_t at = roost_get_hash(key) & (entries - 1);
	uint64_t tried;
	int i;

	for (tried = 0; tried < entries + more; tried++) {
		struct roost_get_entry *e = &t[at];

		for (i = 0; i < ROOST_GET_BUCKETS; i++) {
			if (e->bucket[i].value)
				continue;
			e->bucket[i].key = key;
			e->bucket[i].len = len;
			__atomic_thread_fence(__ATOMIC_RELEASE);
			e->bucket[i].value = value;
			return 0;
		}
		if (flags & ROOST_GET_PROBE) {
			at = (at + 1) & (entries - 1);
			continue;
		}
		if (!e->next) {
			if (*used == more)
				return -1;
			__atomic_thread_fence(__ATOMIC_RELEASE);
			e->next = (uint32_t)(entries + (*used)++) + 1;
		}
		at = e->next - 1;
	}
	return -1;
}

#endif
