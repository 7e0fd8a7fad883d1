/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The kernel `get`: looks up a key in a hash table of the node's and returns its value, in one
 * round trip. After StRoM (EuroSys '20), section 6.2: an entry of the table is one cache line with
 * three buckets. All numbers little-endian; everything lies in the region that the call names.
 *
 *	table -> | entry 0 | entry 1 | ...                | entry n - 1 | more entries, which only chains lead to |
 *		   key, value, length: three times; next
 *
 * A key belongs into entry hash & (n - 1). When its three buckets are taken, there are two ways on,
 * and the table is built for one of them:
 *
 *	chain	`next` is the number of the entry to go on with, plus 1; 0: the end
 *	probe	the following entries, up to one that has a free bucket
 *
 * The reply is the value, ROOST_RPC_MISS, or ROOST_RPC_BOUND when `bound` entries were looked at
 * and it went on.
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
	uint64_t value; /* its address; 0: the bucket is free */
	uint32_t len;	/* bytes of it */
} __attribute__((packed));

struct roost_get_entry {
	struct roost_get_bucket bucket[ROOST_GET_BUCKETS];
	uint32_t next;
};

enum roost_get_flags { ROOST_GET_PROBE = 1 }; /* without it: chain */

struct roost_get_params {
	uint64_t table; /* address of entry 0 */
	uint64_t mask;	/* entries of the table less 1: a power of two less 1 */
	uint64_t hash;	/* of the key: whichever function the table was made with */
	uint64_t key;
	uint32_t bound; /* entries to look at, at most; not 0 */
	uint32_t flags;
};

#ifndef __cplusplus
_Static_assert(sizeof(struct roost_get_entry) == 64, "an entry is a cache line");
_Static_assert(sizeof(struct roost_get_params) == 40, "parameters of get");
#endif

/* A hash for those who have none: the finalizer of MurmurHash3, public domain. */
static inline uint64_t roost_get_hash(uint64_t key)
{
	key ^= key >> 33;
	key *= 0xff51afd7ed558ccdull;
	key ^= key >> 33;
	key *= 0xc4ceb9fe1a85ec53ull;
	return key ^ key >> 33;
}

/* The client's side: parameters for a GET of `key`. */
static inline struct roost_get_params roost_get_params(uint64_t table, uint64_t entries,
						       uint64_t key, uint32_t flags)
{
	struct roost_get_params p = {table, entries - 1, roost_get_hash(key), key, 64, flags};

	return p;
}

/*
 * The node's side: puts a key, which is not there yet, into a table at t that the node maps itself:
 * `entries` of them, a power of two, and for chains `more` behind them, of which *used are taken.
 * 0, or -1: the table is full. Nobody else changes the table meanwhile; GETs may run: they see the
 * key or they don't.
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
