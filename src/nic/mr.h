/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The table of memory regions. A key is index (20 bits) | tag (12 bits, drawn anew at each use of the index), so look-up is one
 * indexed load and a compare, whatever the number and size of the regions. One table serves all PUs: readers take no
 * lock; a registration is published by its key, taken back by clearing it.
 */
#ifndef ROOST_NIC_MR_H
#define ROOST_NIC_MR_H

#include <stdatomic.h>

#include "base/rng.h"
#include "nic/nic.h"

#define MR_CHUNK_BITS 10
#define MR_CHUNKS     (NIC_MAX_MRS >> MR_CHUNK_BITS)
#define MR_TAG_BITS   12

/* Beside enum nic_access in an entry's access word. */
#define MR_VALID	 (1u << 31) /* not invalidated */
#define MR_INVALIDATABLE (1u << 30)

struct mr_entry {
	_Atomic uint32_t key; /* 0: free */
	_Atomic uint32_t pd;
	_Atomic uint32_t access;
	_Atomic uint64_t iova, len;
	_Atomic uintptr_t addr;
	uint32_t next_free;
	uint32_t last_key; /* of the region before */
};

struct mr_table {
	_Atomic(struct mr_entry *) chunk[MR_CHUNKS];
	uint32_t first; /* where indices start: random */
	uint32_t used;	/* indices ever taken */
	uint32_t free;	/* list of free indices, oldest first */
	uint32_t free_tail;
	uint32_t live;
	struct rng rng;
};

void mr_table_init(struct mr_table *t, uint64_t seed);
void mr_table_fini(struct mr_table *t);

/* Takes an invalidatable key of that protection domain out of use until it is deregistered. False: not such a key. Owner of a PU. */
bool mr_invalidate(struct mr_table *t, uint32_t key, uint32_t pd);

/*
 * Resolves len > 0 bytes at `va` for an access, or says no: unknown key, other protection domain, missing permission, out of bounds. NULL means refused.
 * Rechecked at each access: the region may be gone between two packets. Any thread that owns a PU.
 */
static inline void *mr_resolve(struct mr_table *t, uint32_t key, uint32_t pd, uint64_t va, uint64_t len,
			       uint32_t access)
{
	struct mr_entry *c =
		atomic_load_explicit(&t->chunk[key >> (MR_TAG_BITS + MR_CHUNK_BITS)], memory_order_acquire);
	struct mr_entry *e;
	uint64_t off, size;
	uintptr_t addr;

	if (__builtin_expect(!c, 0))
		return NULL;
	e = &c[(key >> MR_TAG_BITS) & ((1u << MR_CHUNK_BITS) - 1)];
	if (atomic_load_explicit(&e->key, memory_order_acquire) != key || key == 0)
		return NULL;
	off = va - atomic_load_explicit(&e->iova, memory_order_relaxed);
	size = atomic_load_explicit(&e->len, memory_order_relaxed);
	addr = atomic_load_explicit(&e->addr, memory_order_relaxed);
	/* off <= size first, so that size - off cannot wrap; va below iova makes off huge. */
	if (off > size || len > size - off || atomic_load_explicit(&e->pd, memory_order_relaxed) != pd ||
	    (atomic_load_explicit(&e->access, memory_order_relaxed) & (access | MR_VALID)) !=
		    (access | MR_VALID))
		return NULL;
	/* The slot may have been given to another region while we read: the key tells (a seqlock's second look). */
	atomic_thread_fence(memory_order_acquire);
	if (atomic_load_explicit(&e->key, memory_order_relaxed) != key)
		return NULL;
	return (void *)(addr + off);
}

#endif
