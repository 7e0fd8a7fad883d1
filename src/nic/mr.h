/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The table of memory regions and windows. A key is index (20 bits) | tag (12 bits), so look-up is
 * one indexed load and a compare, whatever the number and size of the regions. Both are drawn anew
 * for each region and window: who knows some keys knows nothing of the others. Of a window's tag
 * the low 8 bits are the program's to choose when it binds it (IBA 10.6.7.2.2), which leaves 24
 * that nobody can know. One table serves all PUs: readers take no lock; a registration is published
 * by its key, taken back by clearing it.
 *
 * Memory order: a seqlock. The writer (under the lock) clears the tag, fence (release), fields, tag
 * (release). A reader loads the tag (acquire), fields, fence (acquire), the tag again: equal, so
 * none of the fields is of another registration.
 */
#ifndef ROOST_NIC_MR_H
#define ROOST_NIC_MR_H

#include <stdatomic.h>

#include "base/secret.h"
#include "base/spin.h"
#include "nic/nic.h"

#define MR_CHUNK_BITS 10
#define MR_CHUNKS     (NIC_MAX_MRS >> MR_CHUNK_BITS)
#define MR_TAG_BITS   12
#define MR_NO_INDEX   UINT32_MAX

/* Beside enum nic_access in an entry's access word. */
#define MR_VALID	 (1u << 31) /* not invalidated */
#define MR_INVALIDATABLE (1u << 30)
#define MR_LOCAL	 (1u << 29) /* work requests may name it: a region, not a window */

/*
 * A protection domain of one QP: that of type 2 windows, which are its alone (2B, IBA 10.6.7.2.3).
 */
#define MR_QP_DOMAIN(qpn) (1u << 31 | (qpn))

enum mr_kind { MR_FREE, MR_REGION, MR_WINDOW_1, MR_WINDOW_2 };

struct mr_entry {
	_Atomic uint64_t tag; /* the key, 0: not in use; above it the number of changes */
	_Atomic uint32_t pd;
	_Atomic uint32_t access;
	_Atomic uint64_t iova, len;
	_Atomic uintptr_t addr;
	_Atomic uint32_t parent; /* of a bound window: index of its region; else MR_NO_INDEX */
	/* Below: under the table's lock. */
	uint32_t last_key; /* of the region before; of a window: its own, whether in use or not */
	uint32_t next;	   /* bound type 2 windows of a QP */
	uint32_t prev;
	uint32_t windows; /* of a region: how many are bound to it; of a window: its own PD */
	uint32_t kind;	  /* enum mr_kind */
};
_Static_assert(sizeof(struct mr_entry) == 64, "one line for each region");

struct mr_table {
	_Atomic(struct mr_entry *) chunk[MR_CHUNKS];
	/*
	 * Taken to register, bind, invalidate and take back, which PUs and control calls do beside
	 * each other; never to look up.
	 */
	struct spin lock;
	uint32_t taken; /* indices in use */
	uint32_t regions, windows;
	struct secret *secret; /* the NIC's */
};

void mr_table_init(struct mr_table *t, struct secret *secret);
void mr_table_fini(struct mr_table *t);

/* Under the lock: */
struct mr_entry *mr_entry(struct mr_table *t, uint32_t index);	   /* NULL: never taken */
int mr_take(struct mr_table *t, enum mr_kind kind, uint32_t *key); /* an entry, and its first key */
void mr_give_back(struct mr_table *t, struct mr_entry *e);	   /* no longer in use */
void mr_clear_key(struct mr_entry *e);
void mr_set_key(struct mr_entry *e, uint32_t key); /* publishes all fields */

/*
 * SEND with invalidate, or the local one, on that QP: ends the binding of a type 2 window of the
 * QP's, or takes an invalidatable key of its domain out of use until it is deregistered. False: not
 * such a key. Owner of the QP's PU.
 */
bool mr_invalidate(struct nic_qp *qp, uint32_t key);
/*
 * Executes the WQE of a binding. False: one of its rules is broken, nothing has changed. Owner of
 * the QP's PU.
 */
bool mw_bind(struct nic_qp *qp, const struct roost_wqe *w);
/* The windows of a QP that goes end with it. [control+owner] */
void mw_unbind_all(struct nic_qp *qp);

static inline uint32_t mr_key_of(uint64_t tag)
{
	return (uint32_t)tag;
}

/*
 * Resolves len > 0 bytes at `va` for an access, or says no: unknown key, other protection domain,
 * missing permission, out of bounds. NULL means refused. Rechecked at each access: the region may
 * be gone between two packets. Any thread that owns a PU.
 */
static inline void *mr_resolve(struct mr_table *t, uint32_t key, uint32_t pd, uint64_t va,
			       uint64_t len, uint32_t access)
{
	struct mr_entry *c = atomic_load_explicit(&t->chunk[key >> (MR_TAG_BITS + MR_CHUNK_BITS)],
						  memory_order_acquire);
	struct mr_entry *e;
	uint64_t off, size, tag;
	uintptr_t addr;

	if (__builtin_expect(!c, 0))
		return NULL;
	e = &c[(key >> MR_TAG_BITS) & ((1u << MR_CHUNK_BITS) - 1)];
	tag = atomic_load_explicit(&e->tag, memory_order_acquire);
	if (mr_key_of(tag) != key || key == 0)
		return NULL;
	off = va - atomic_load_explicit(&e->iova, memory_order_relaxed);
	size = atomic_load_explicit(&e->len, memory_order_relaxed);
	addr = atomic_load_explicit(&e->addr, memory_order_relaxed);
	/* off <= size first, so that size - off cannot wrap; va below iova makes off huge. */
	if (off > size || len > size - off ||
	    atomic_load_explicit(&e->pd, memory_order_relaxed) != pd ||
	    (atomic_load_explicit(&e->access, memory_order_relaxed) & (access | MR_VALID)) !=
		    (access | MR_VALID))
		return NULL;
	/* The slot may have changed while we read: the tag tells (a seqlock's second look). */
	atomic_thread_fence(memory_order_acquire);
	if (atomic_load_explicit(&e->tag, memory_order_relaxed) != tag)
		return NULL;
	return (void *)(addr + off);
}

/*
 * Is it a key by which a peer of this protection domain may reach any memory at all? Any thread
 * that owns a PU.
 */
static inline bool mr_reachable(const struct mr_table *t, uint32_t key, uint32_t pd)
{
	const uint32_t rights =
		NIC_ACCESS_REMOTE_READ | NIC_ACCESS_REMOTE_WRITE | NIC_ACCESS_REMOTE_ATOMIC;
	const struct mr_entry *c = atomic_load_explicit(
		&t->chunk[key >> (MR_TAG_BITS + MR_CHUNK_BITS)], memory_order_acquire);
	const struct mr_entry *e;
	uint32_t access;

	if (__builtin_expect(!c || !key, 0))
		return false;
	e = &c[(key >> MR_TAG_BITS) & ((1u << MR_CHUNK_BITS) - 1)];
	if (mr_key_of(atomic_load_explicit(&e->tag, memory_order_acquire)) != key)
		return false;
	/*
	 * One that changes meanwhile is as good as gone before or after: what is done with it is
	 * checked again.
	 */
	access = atomic_load_explicit(&e->access, memory_order_relaxed);
	return access & MR_VALID && access & rights &&
	       atomic_load_explicit(&e->pd, memory_order_relaxed) == pd;
}

/*
 * rpc.c: May a call of the QP's peer name this key, at all? 0 is none, and may. Owner of the QP's
 * PU.
 */
bool rpc_key_ok(const struct nic_qp *qp, uint32_t key);

/*
 * What was looked up last: who goes on in the same region (a walk along a list) needs no more than
 * a look whether that has changed. Begins as zeros, which is no key's.
 */
struct mr_last {
	const struct mr_entry *e;
	uint64_t tag;
	uint64_t iova, len;
	uintptr_t addr;
	uint32_t pd;
};
/* mr_resolve(), and what it found is the last. Any thread that owns a PU, each with its own. */
void *mr_resolve_keep(struct mr_table *t, uint32_t key, uint32_t pd, uint64_t va, uint64_t len,
		      uint32_t access, struct mr_last *last);

/* The same by the last one alone; NULL: that has to be asked. */
static inline void *mr_resolve_last(const struct mr_last *last, uint32_t key, uint32_t pd,
				    uint64_t va, uint64_t len, uint32_t access)
{
	const struct mr_entry *e = last->e;
	uint64_t off = va - last->iova;

	if (__builtin_expect(!e || mr_key_of(last->tag) != key || last->pd != pd, 0))
		return NULL;
	/*
	 * Each change of an entry has a tag of its own, but for one that takes it out of use until
	 * it is deregistered: mr_invalidate().
	 */
	if (off > last->len || len > last->len - off ||
	    (atomic_load_explicit(&e->access, memory_order_relaxed) & (access | MR_VALID)) !=
		    (access | MR_VALID))
		return NULL;
	/* Behind the look at the rights: those of a later binding come with a later tag. */
	atomic_thread_fence(memory_order_acquire);
	if (atomic_load_explicit(&e->tag, memory_order_relaxed) != last->tag)
		return NULL;
	return (void *)(last->addr + off);
}

/* A remote address, translated to the parent region of a window. */
struct mr_region_addr {
	uint32_t key;
	uint64_t va;
};
/*
 * mr_resolve(), and where that is: what a window's key names lies in the region that it is bound
 * to. Any thread that owns a PU.
 */
void *mr_resolve_region_addr(struct mr_table *t, uint32_t key, uint32_t pd, uint64_t va,
			     uint64_t len, uint32_t access, struct mr_region_addr *out);

#endif
