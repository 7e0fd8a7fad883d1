/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The kernel `prism`: the remote operations of PRISM (Burke and others, SOSP '21), several of them
 * in one call, one after the other:
 *
 *	READ		len bytes at the target
 *	WRITE		len bytes of data to the target
 *	ALLOCATE	takes a buffer from a free list, writes len bytes of data to it, and returns
 *			its address
 *	CAS		compares and swaps 8 bytes at the target, atomically, under masks; returns
 *			what was there
 *
 * All in the region that the call names. Numbers are little-endian. Flags of each operation:
 *
 *	INDIRECT	`addr` is where the target's address is; 0 there: the operation fails
 *	BOUNDED		and behind that address, the length of what is there: of READ and WRITE, no
 *			more is done
 *	DATA_INDIRECT	data, or the word to swap in, are at `data` in the region
 *	CONDITIONAL	only when the operation before succeeded; else it is skipped, and has not
 *			succeeded
 *	REDIRECT	what it returns is written to `redirect` in the region, where a later
 *			operation finds it
 *
 * An operation fails when its comparison says no, its list is empty or has too small buffers, or
 * its pointer is 0. The call goes on. An access outside of the region ends the call with
 * ROOST_RPC_ACCESS: what operations did before is done.
 *
 *	parameters	| struct roost_prism_params | op | its data, to a multiple of 8 | op | ...
 *	reply		| struct roost_prism_result for each op | what the first returned, to a multiple of 8 | ...
 */
#ifndef ROOST_PRISM_H
#define ROOST_PRISM_H

#include <stdint.h>
#include <string.h>

#include "roost/rpc.h"

#define ROOST_PRISM_OP	    7ull
#define ROOST_PRISM_MAX_OPS 32
/* bytes that operations of a call return, each rounded up to 8 */
#define ROOST_PRISM_MAX_OUTPUT 8192

enum roost_prism_what {
	ROOST_PRISM_READ = 1,
	ROOST_PRISM_WRITE,
	ROOST_PRISM_ALLOCATE,
	ROOST_PRISM_CAS
};

enum roost_prism_flags {
	ROOST_PRISM_INDIRECT = 1 << 0, /* not of ALLOCATE */
	ROOST_PRISM_BOUNDED = 1 << 1,  /* with INDIRECT */
	ROOST_PRISM_DATA_INDIRECT = 1 << 2,
	ROOST_PRISM_CONDITIONAL = 1 << 3,
	ROOST_PRISM_REDIRECT = 1 << 4, /* not of WRITE, which returns nothing */
};

/* (what is there & expect_mask) RELATION (expect & expect_mask), unsigned */
enum roost_prism_relation {
	ROOST_PRISM_EQUAL,
	ROOST_PRISM_NOT_EQUAL,
	ROOST_PRISM_LESS_THAN,
	ROOST_PRISM_GREATER_THAN,
};

struct roost_prism_op {
	uint8_t what, flags;
	uint8_t relation; /* of CAS */
	uint8_t reserved;
	uint32_t len;  /* bytes; of CAS: 8 */
	uint64_t addr; /* the target, or where its address is; of ALLOCATE: the list */
	/* DATA_INDIRECT: where the data are. Without it they stand behind this */
	uint64_t data;
	uint64_t redirect; /* REDIRECT */
	uint64_t expect, expect_mask;
	uint64_t swap, swap_mask; /* the bits that change */
};

struct roost_prism_params {
	uint32_t ops; /* 1 .. ROOST_PRISM_MAX_OPS */
	uint32_t reserved;
};

/* What INDIRECT finds; of BOUNDED all of it. */
struct roost_prism_pointer {
	uint64_t addr, len;
};

/*
 * The head of a free list in the region: buffers of one size, given by the node and taken by
 * ALLOCATE, in their order. Their addresses stand behind it.
 */
struct roost_prism_list {
	uint64_t taken; /* how many ever */
	uint64_t given;
	uint64_t mask; /* slots less 1: a power of two less 1 */
	uint64_t size; /* bytes of a buffer */
};

enum roost_prism_status { ROOST_PRISM_SKIPPED = 128 }; /* beside those of rpc.h */

struct roost_prism_result {
	/*
	 * ROOST_RPC_OK, _MISS: failed, _TOO_LONG: data for no buffer of the list, or
	 * ROOST_PRISM_SKIPPED
	 */
	uint32_t status;
	/*
	 * bytes done: of what it returns they stand behind the results, unless they were redirected
	 */
	uint32_t len;
};

#ifndef __cplusplus
_Static_assert(sizeof(struct roost_prism_op) == 64, "an operation");
_Static_assert(sizeof(struct roost_prism_list) == 32, "head of a free list");
#endif

/* ---- the client's side: a chain is built in a buffer, and that is the parameters ---- */

struct roost_prism_chain {
	uint8_t *buf;
	uint32_t size, len; /* bytes there are; bytes of the chain, to call with */
};

/*
 * An operation more, whose other fields the caller sets; `inl` bytes of data stand behind it. NULL:
 * no room.
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
 * An empty chain in `size` bytes, aligned to 8; at most ROOST_RPC_MAX_PARAMS of them are of use, on
 * a QP of the largest path MTU.
 */
static inline struct roost_prism_chain roost_prism_chain(void *buf, uint32_t size)
{
	struct roost_prism_chain c = {(uint8_t *)buf, size,
				      (uint32_t)sizeof(struct roost_prism_params)};

	memset(buf, 0, sizeof(struct roost_prism_params));
	return c;
}

static inline struct roost_prism_op *roost_prism_read(struct roost_prism_chain *c, uint8_t flags,
						      uint64_t addr, uint32_t len)
{
	return roost_prism_add(c, ROOST_PRISM_READ, flags, addr, len, 0, 0);
}

static inline struct roost_prism_op *roost_prism_write(struct roost_prism_chain *c, uint8_t flags,
						       uint64_t addr, const void *data,
						       uint32_t len)
{
	return roost_prism_add(c, ROOST_PRISM_WRITE, flags, addr, len, data, len);
}

static inline struct roost_prism_op *roost_prism_allocate(struct roost_prism_chain *c,
							  uint8_t flags, uint64_t list,
							  const void *data, uint32_t len)
{
	return roost_prism_add(c, ROOST_PRISM_ALLOCATE, flags, list, len, data, len);
}

/* Of all 64 bits; narrower masks are set in what is returned. */
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
 * What operation i of the chain returned, out of the `len` bytes of a reply: *result, and its
 * bytes; NULL: it returned none, or the reply is none of this chain.
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
 * An empty list of `slots` (a power of two) for buffers of `size` bytes. It needs sizeof(*l) + 8 *
 * slots bytes, aligned to 8.
 */
static inline void roost_prism_list_init(struct roost_prism_list *l, uint64_t slots, uint64_t size)
{
	l->taken = l->given = 0;
	l->mask = slots - 1;
	l->size = size;
}

/*
 * Gives a buffer, by the address at which callers know it. One thread at a time; calls may take
 * meanwhile. -1: all slots are full.
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
