/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The table of memory regions and windows. A key is index (20 bits) | tag (12 bits), so a look-up
 * is one indexed load and a compare, for any number and size of regions. Keys come from a secret
 * sequence (base/numbers.h), so known keys reveal nothing about other keys. The program chooses the
 * low 8 bits of a window's tag when it binds the window (IBA 10.6.7.2.2); 24 bits stay secret. All
 * PUs use one table. Readers take no lock. A store of the key publishes a registration, and a store
 * of 0 ends it.
 *
 * Memory order: the tag is a seqlock. The writer (under the lock) clears the tag, executes a
 * release fence, stores the fields, and stores the tag (release). A reader loads the tag (acquire),
 * loads the fields, executes an acquire fence, and loads the tag again. If the tags are equal, all
 * fields belong to the same registration.
 */
#ifndef ROOST_NIC_MR_H
#define ROOST_NIC_MR_H

#include <stdatomic.h>

#include "base/numbers.h"
#include "base/spin.h"
#include "nic/nic.h"

#define MR_CHUNK_BITS 10
#define MR_CHUNKS     (NIC_MAX_MRS >> MR_CHUNK_BITS)
#define MR_TAG_BITS   12
#define MR_NO_INDEX   UINT32_MAX

/* Bits of an entry's access word, beside those of enum nic_access. */
#define MR_VALID	 (1u << 31) /* not invalidated */
#define MR_INVALIDATABLE (1u << 30)
/* the entry is a region, not a window: local accesses of work requests may use the key */
#define MR_LOCAL (1u << 29)

/* The private protection domain of a QP, for its type 2 windows (2B, IBA 10.6.7.2.3). */
#define MR_QP_DOMAIN(qpn) (1u << 31 | (qpn))

enum mr_kind { MR_FREE, MR_REGION, MR_WINDOW_1, MR_WINDOW_2 };

struct mr_entry {
	/* low half: the key, or 0: not in use; high half: number of changes */
	_Atomic uint64_t tag;
	_Atomic uint32_t pd;
	_Atomic uint32_t access;
	_Atomic uint64_t iova, len;
	_Atomic uintptr_t addr;
	_Atomic uint32_t parent; /* bound window: index of its parent region; else MR_NO_INDEX */
	/* The table's lock protects the fields below. */
	uint32_t last_key; /* region: the previous key; window: its key, bound or not */
	uint32_t next;	   /* bound type 2 windows of a QP */
	uint32_t prev;
	uint32_t windows; /* region: number of windows bound to it; window: its PD */
	uint32_t kind;	  /* enum mr_kind */
};
_Static_assert(sizeof(struct mr_entry) == 64, "one line for each region");

struct mr_table {
	_Atomic(struct mr_entry *) chunk[MR_CHUNKS];
	/*
	 * Held for changes, which PUs and control calls may make at the same time; not for
	 * look-ups.
	 */
	struct spin lock;
	uint32_t taken; /* indices in use */
	uint32_t regions, windows;
	const struct key_sequence *keys; /* the sequence of keys of the NIC */
};

void mr_table_init(struct mr_table *t, const struct key_sequence *keys);
void mr_table_fini(struct mr_table *t);

/* The caller of these functions holds the lock. */
/* Returns the entry of an index, or NULL if the index was never used. */
struct mr_entry *mr_entry(struct mr_table *t, uint32_t index);
/*
 * Takes a free entry. `now` counts for windows only. Returns 0, -ENOMEM, or -EAGAIN (the keys of
 * windows must rest).
 */
int mr_take(struct mr_table *t, enum mr_kind kind, uint64_t now, uint32_t *key);
void mr_give_back(struct mr_table *t, struct mr_entry *e); /* frees the entry */
void mr_clear_key(struct mr_entry *e);
void mr_set_key(struct mr_entry *e, uint32_t key); /* publishes all fields */

/*
 * Invalidates a key, for a SEND with invalidate or a local invalidate on the QP. Ends the binding
 * of a type 2 window of the QP, or makes an invalidatable key of the QP's PD unusable until the
 * region is deregistered. Returns false if the key cannot be invalidated. [owner of the QP's PU]
 */
bool mr_invalidate(struct nic_qp *qp, uint32_t key);
/*
 * Executes a bind WQE. Returns false, and changes nothing, if the WQE breaks a rule. [owner of the
 * QP's PU]
 */
bool mw_bind(struct nic_qp *qp, const struct roost_wqe *w);
/* Unbinds the type 2 windows of a QP that is being destroyed. [control+owner] */
void mw_unbind_all(struct nic_qp *qp);

static inline uint32_t mr_key_of(uint64_t tag)
{
	return (uint32_t)tag;
}

/*
 * Resolves len > 0 bytes at `va` for an access. Returns NULL for an unknown key, another protection
 * domain, a missing permission, or an address out of bounds. Call it for each access: the region
 * may be deregistered between two packets. [owner of a PU]
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
	/*
	 * The check off <= size comes first, so that size - off cannot wrap. If va is below iova,
	 * off is huge.
	 */
	if (off > size || len > size - off ||
	    atomic_load_explicit(&e->pd, memory_order_relaxed) != pd ||
	    (atomic_load_explicit(&e->access, memory_order_relaxed) & (access | MR_VALID)) !=
		    (access | MR_VALID))
		return NULL;
	/* The second load of the seqlock: the entry may have changed meanwhile. */
	atomic_thread_fence(memory_order_acquire);
	if (atomic_load_explicit(&e->tag, memory_order_relaxed) != tag)
		return NULL;
	return (void *)(addr + off);
}

/*
 * Returns true if a peer of this protection domain may access any memory by the key. [owner of a
 * PU]
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
	 * No second load of the tag: a concurrent change counts as earlier or later, and each
	 * access checks the key again.
	 */
	access = atomic_load_explicit(&e->access, memory_order_relaxed);
	return access & MR_VALID && access & rights &&
	       atomic_load_explicit(&e->pd, memory_order_relaxed) == pd;
}

/*
 * rpc.c: returns true if a call of the QP's peer may name this key; 0 is such a key. [owner of the
 * QP's PU]
 */
bool rpc_key_ok(const struct nic_qp *qp, uint32_t key);

/*
 * The result of the last look-up. Further accesses to the same region (a walk along a list) check
 * only that the entry has not changed. All zeros: no result.
 */
struct mr_last {
	const struct mr_entry *e;
	uint64_t tag;
	uint64_t iova, len;
	uintptr_t addr;
	uint32_t pd;
};
/*
 * Resolves as mr_resolve() does, and stores the result in *last, which belongs to one PU. [owner of
 * a PU]
 */
void *mr_resolve_keep(struct mr_table *t, uint32_t key, uint32_t pd, uint64_t va, uint64_t len,
		      uint32_t access, struct mr_last *last);

/*
 * Resolves from *last only. If it returns NULL, use mr_resolve_keep(). The key may be any
 * nic_rpc_key: one of a granted region has more bits than the keys that *last has.
 */
static inline void *mr_resolve_last(const struct mr_last *last, uint64_t key, uint32_t pd,
				    uint64_t va, uint64_t len, uint32_t access)
{
	const struct mr_entry *e = last->e;
	uint64_t off = va - last->iova;

	if (__builtin_expect(!e || mr_key_of(last->tag) != key || last->pd != pd, 0))
		return NULL;
	/* Every change of an entry changes its tag, except mr_invalidate() of a region. */
	if (off > last->len || len > last->len - off ||
	    (atomic_load_explicit(&e->access, memory_order_relaxed) & (access | MR_VALID)) !=
		    (access | MR_VALID))
		return NULL;
	/* The tag is loaded after the rights: a later binding stores its rights first. */
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
 * Resolves as mr_resolve() does, and stores the address in the region in *out, for a window, too.
 * [owner of a PU]
 */
void *mr_resolve_region_addr(struct mr_table *t, uint32_t key, uint32_t pd, uint64_t va,
			     uint64_t len, uint32_t access, struct mr_region_addr *out);

#endif
