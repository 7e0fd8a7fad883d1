/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The kernel `prism`: runs a chain of remote operations of PRISM (Burke and others, SOSP '21), one
 * after the other, in one call:
 *
 *	READ		len bytes at the target
 *	WRITE		len bytes of data to the target
 *	ALLOCATE	takes a buffer from a free list, writes len bytes of data to it, and returns
 *			its address
 *	CAS		compares and swaps 8 bytes at the target, atomically, under masks; returns
 *			their previous value
 *
 * All addresses are in the region that the call names. Numbers are little-endian. Each operation
 * has flags:
 *
 *	INDIRECT	`addr` is the address of a pointer to the target; the operation fails if the
 *			pointer is 0
 *	BOUNDED		a length follows the pointer (struct roost_prism_pointer); a READ or WRITE
 *			transfers at most that many bytes
 *	DATA_INDIRECT	the data, or the word to swap in, are at address `data`
 *	CONDITIONAL	the operation runs only if the previous one succeeded; otherwise it is
 *			skipped, and counts as not succeeded
 *	REDIRECT	the returned bytes are written to address `redirect`, where a later
 *			operation can use them
 *
 * An operation fails if its comparison is false, if its list is empty or has buffers that are too
 * small, or if its pointer is 0. The call then continues with the next operation. An access outside
 * of the region ends the call with ROOST_RPC_ACCESS; the effects of previous operations remain.
 *
 *	parameters	| struct roost_prism_params | op | its data | op | its data | ...
 *	reply		| struct roost_prism_result for each op | output of op 0 | of op 1 | ...
 *
 * The data and the outputs are each padded to a multiple of 8.
 */
#ifndef ROOST_PRISM_H
#define ROOST_PRISM_H

#include <stdint.h>
#include <string.h>

#include "roost/rpc.h"

#define ROOST_PRISM_OP	    7ull
#define ROOST_PRISM_MAX_OPS 32
/* bytes that the operations of a call may return together, each rounded up to 8 */
#define ROOST_PRISM_MAX_OUTPUT 8192

enum roost_prism_what {
	ROOST_PRISM_READ = 1,
	ROOST_PRISM_WRITE,
	ROOST_PRISM_ALLOCATE,
	ROOST_PRISM_CAS
};

enum roost_prism_flags {
	ROOST_PRISM_INDIRECT = 1 << 0,	    /* not for ALLOCATE */
	ROOST_PRISM_BOUNDED = 1 << 1,	    /* only with INDIRECT; not for CAS */
	ROOST_PRISM_DATA_INDIRECT = 1 << 2, /* not for READ */
	ROOST_PRISM_CONDITIONAL = 1 << 3,
	ROOST_PRISM_REDIRECT = 1 << 4, /* not for WRITE, which returns nothing */
};

/* (value at the target & expect_mask) RELATION (expect & expect_mask), unsigned */
enum roost_prism_relation {
	ROOST_PRISM_EQUAL,
	ROOST_PRISM_NOT_EQUAL,
	ROOST_PRISM_LESS_THAN,
	ROOST_PRISM_GREATER_THAN,
};

struct roost_prism_op {
	uint8_t what, flags;
	uint8_t relation; /* CAS: enum roost_prism_relation */
	uint8_t reserved; /* 0 */
	uint32_t len;	  /* bytes; CAS: 8 */
	uint64_t addr;	  /* the target; INDIRECT: of the pointer; ALLOCATE: of the list */
	/* DATA_INDIRECT: address of the data. Without it the data follow this struct */
	uint64_t data;
	uint64_t redirect; /* REDIRECT: address for the returned bytes */
	uint64_t expect, expect_mask;
	uint64_t swap, swap_mask; /* swap_mask: the bits that change */
};

struct roost_prism_params {
	uint32_t ops; /* 1 .. ROOST_PRISM_MAX_OPS */
	uint32_t reserved;
};

/* A pointer in the region. INDIRECT uses addr only; BOUNDED uses len too. */
struct roost_prism_pointer {
	uint64_t addr, len;
};

/*
 * The head of a free list in the region. The list has buffers of one size. The node adds them and
 * ALLOCATE takes them, first in, first out. An array of their addresses follows the head.
 */
struct roost_prism_list {
	uint64_t taken; /* buffers taken since the list was initialised */
	uint64_t given; /* buffers added since then */
	uint64_t mask;	/* number of slots, a power of two, less 1 */
	uint64_t size;	/* bytes of a buffer */
};

enum roost_prism_status { ROOST_PRISM_SKIPPED = 128 }; /* in addition to enum roost_rpc_status */

struct roost_prism_result {
	/*
	 * ROOST_RPC_OK; ROOST_RPC_MISS: failed; ROOST_RPC_TOO_LONG: the data exceed a buffer of the
	 * list; ROOST_PRISM_SKIPPED
	 */
	uint32_t status;
	/* bytes transferred; returned bytes follow the results, unless they were redirected */
	uint32_t len;
};

#ifndef __cplusplus
_Static_assert(sizeof(struct roost_prism_op) == 64, "an operation");
_Static_assert(sizeof(struct roost_prism_list) == 32, "head of a free list");
#endif

/* ---- the caller's side: a chain is built in a buffer, which then is the parameters ---- */

struct roost_prism_chain {
	uint8_t *buf;
	uint32_t size, len; /* size of buf; bytes of the chain, the length of the parameters */
};

/*
 * Adds an operation, followed by `inl` bytes of data. Returns the operation, whose other fields the
 * caller sets, or NULL if there is no space.
 */
static inline struct roost_prism_op *roost_prism_add(struct roost_prism_chain *c, uint8_t what,
						     uint8_t flags, uint64_t addr, uint32_t len,
						     const void *data, uint32_t inl)
{
	uint32_t need = (uint32_t)sizeof(struct roost_prism_op) + ((inl + 7) & ~7u);
	struct roost_prism_params *p = (struct roost_prism_params *)c->buf;
	struct roost_prism_op *op = (struct roost_prism_op *)(c->buf + c->len);

	if (inl > ROOST_RPC_MAX_PARAMS || need > c->size - c->len || p->ops == ROOST_PRISM_MAX_OPS)
		return 0;
	memset(op, 0, need);
	op->what = what;
	op->flags = flags;
	op->addr = addr;
	op->len = len;
	if (inl)
		memcpy(op + 1, data, inl);
	p->ops++;
	c->len += need;
	return op;
}

/*
 * Returns an empty chain in the `size` bytes at buf, which is aligned to 8. A chain has at most
 * ROOST_RPC_MAX_PARAMS bytes on a QP of the largest path MTU, less on other QPs.
 */
static inline struct roost_prism_chain roost_prism_chain(void *buf, uint32_t size)
{
	struct roost_prism_chain c = {(uint8_t *)buf, size,
				      (uint32_t)sizeof(struct roost_prism_params)};

	memset(buf, 0, sizeof(struct roost_prism_params));
	return c;
}

/* Adds a READ of `len` bytes. Returns the operation, or NULL if the buffer is full. */
static inline struct roost_prism_op *roost_prism_read(struct roost_prism_chain *c, uint8_t flags,
						      uint64_t addr, uint32_t len)
{
	return roost_prism_add(c, ROOST_PRISM_READ, flags, addr, len, 0, 0);
}

/* Adds a WRITE of the `len` bytes at data. Returns as roost_prism_read(). */
static inline struct roost_prism_op *roost_prism_write(struct roost_prism_chain *c, uint8_t flags,
						       uint64_t addr, const void *data,
						       uint32_t len)
{
	return roost_prism_add(c, ROOST_PRISM_WRITE, flags, addr, len, data, len);
}

/*
 * Adds an ALLOCATE, which takes a buffer of the free list and writes the `len` bytes at data to it.
 * Returns as roost_prism_read().
 */
static inline struct roost_prism_op *roost_prism_allocate(struct roost_prism_chain *c,
							  uint8_t flags, uint64_t list,
							  const void *data, uint32_t len)
{
	return roost_prism_add(c, ROOST_PRISM_ALLOCATE, flags, list, len, data, len);
}

/* Adds a CAS of all 64 bits. For other masks the caller sets the fields of the operation. */
static inline struct roost_prism_op *roost_prism_cas(struct roost_prism_chain *c, uint8_t flags,
						     uint64_t addr, uint8_t relation,
						     uint64_t expect, uint64_t swap)
{
	struct roost_prism_op *op = roost_prism_add(c, ROOST_PRISM_CAS, flags, addr, 8, 0, 0);

	if (op) {
		op->relation = relation;
		op->expect = expect;
		op->swap = swap;
		op->expect_mask = op->swap_mask = ~0ull;
	}
	return op;
}

/*
 * Finds the output of operation i in a reply of `len` bytes to the chain. Stores the operation's
 * result in *result, and returns the returned bytes, or NULL if there are none or the reply does
 * not fit the chain.
 */
static inline const void *roost_prism_output(const struct roost_prism_chain *c, const void *data,
					     uint32_t len, uint32_t i,
					     struct roost_prism_result *result)
{
	const struct roost_prism_params *p = (const struct roost_prism_params *)c->buf;
	const uint8_t *at = c->buf + sizeof(*p), *d = (const uint8_t *)data;
	uint32_t out = p->ops * (uint32_t)sizeof(*result), k;

	memset(result, 0, sizeof(*result));
	if (i >= p->ops || len < out)
		return 0;
	for (k = 0;; k++) {
		const struct roost_prism_op *op = (const struct roost_prism_op *)at;
		int returns = op->what != ROOST_PRISM_WRITE && !(op->flags & ROOST_PRISM_REDIRECT);
		int carries = (op->what == ROOST_PRISM_WRITE || op->what == ROOST_PRISM_ALLOCATE) &&
			      !(op->flags & ROOST_PRISM_DATA_INDIRECT);

		memcpy(result, d + k * sizeof(*result), sizeof(*result));
		if (returns && result->len > len - out)
			return 0;
		if (k == i)
			return returns && result->len ? d + out : 0;
		if (returns)
			out += (result->len + 7) & ~7u;
		if (out > len)
			return 0;
		at += sizeof(*op) + (carries ? (op->len + 7) & ~7u : 0);
	}
}

/* ---- the node's side ---- */

/*
 * Initialises an empty list with `slots` slots, a power of two, for buffers of `size` bytes. The
 * list takes sizeof(*l) + 8 * slots bytes, aligned to 8.
 */
static inline void roost_prism_list_init(struct roost_prism_list *l, uint64_t slots, uint64_t size)
{
	l->taken = l->given = 0;
	l->mask = slots - 1;
	l->size = size;
}

/*
 * Adds a buffer to the list. `addr` is its address as callers know it. Returns 0, or -1 if all
 * slots are full. One thread at a time may call it. Calls may take buffers meanwhile.
 */
static inline int roost_prism_list_give(struct roost_prism_list *l, uint64_t addr)
{
	uint64_t n = l->given;

	if (n - __atomic_load_n(&l->taken, __ATOMIC_ACQUIRE) > l->mask)
		return -1;
	__atomic_store_n((uint64_t *)(l + 1) + (n & l->mask), addr, __ATOMIC_RELAXED);
	__atomic_store_n(&l->given, n + 1, __ATOMIC_RELEASE);
	return 0;
}

#endif
