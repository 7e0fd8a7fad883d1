/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The kernel `traversal`: walks along elements that point to each other, compares keys in them, and
 * returns the value of the one that matches, in one round trip. After StRoM (EuroSys '20), section
 * 6.1, whose parameters are all here (+ marks what is more):
 *
 *	element		up to 64 bytes; + up to 1024
 *	keys in it	any of the 4-byte positions of a mask may hold one; keys of 8 bytes; + of 4
 *			to 64 bytes
 *	predicate	key in the element EQUAL, LESS_THAN, GREATER_THAN, NOT_EQUAL to the one
 *			given
 *	value		its address stands at a position, absolute or relative to the matched key; +
 *			or the value itself stands there
 *	next		its address stands at a position, absolute; + or relative to a key; + or
 *			chosen by the comparison: two positions,
 *			one when the key searched for is smaller than the element's, one when it is not
 *	end		next is 0, or not valid; + `bound` elements were looked at
 *
 * Linked lists, hash chains, binary trees, B-tree nodes, skip lists and graphs are such. Numbers
 * are little-endian; keys compare as unsigned little-endian numbers of their size. Positions count
 * 4-byte units from the element's start.
 *
 * Keys are tried in the order of their positions; the first that fulfils the predicate is the
 * match. Where none does, the next element is chosen:
 *
 *	ROOST_TRAVERSAL_NEXT_FIXED	at next_pos
 *	ROOST_TRAVERSAL_NEXT_BY_KEY	next_pos relative to the end of the last key that is not
 *					greater than the one searched for; where the first is
 *					greater already, at else_pos: children of a B-tree's node, levels of a skip list
 *	ROOST_TRAVERSAL_NEXT_BY_ORDER	at next_pos when the searched key is smaller than the
 *					element's first key, else at else_pos: binary trees
 *
 * The keys that decide on this stand at the positions of order_mask, ascending; without any, at
 * those of key_mask. (In a node of a skip list, the key that may match is the node's own; those
 * that decide are the keys of the nodes that its levels lead to.)
 *
 * The reply is the value, ROOST_RPC_MISS at the end, or ROOST_RPC_BOUND.
 */
#ifndef ROOST_TRAVERSAL_H
#define ROOST_TRAVERSAL_H

#include <stdint.h>
#include <string.h>

#include "roost/rpc.h"

#define ROOST_TRAVERSAL_OP	    2ull
#define ROOST_TRAVERSAL_MAX_ELEMENT 1024 /* bytes */
#define ROOST_TRAVERSAL_MAX_KEY	    64
#define ROOST_TRAVERSAL_MASK_WORDS  4 /* positions 0 .. 255 */

enum roost_traversal_predicate {
	ROOST_TRAVERSAL_EQUAL = 0,
	ROOST_TRAVERSAL_LESS_THAN = 1, /* the element's key is less than the one given */
	ROOST_TRAVERSAL_GREATER_THAN = 2,
	ROOST_TRAVERSAL_NOT_EQUAL = 3,
};

enum roost_traversal_next {
	ROOST_TRAVERSAL_NEXT_NONE = 0, /* there is none: one element */
	ROOST_TRAVERSAL_NEXT_FIXED = 1,
	ROOST_TRAVERSAL_NEXT_BY_KEY = 2,
	ROOST_TRAVERSAL_NEXT_BY_ORDER = 3,
};

enum roost_traversal_flags {
	ROOST_TRAVERSAL_VALUE_RELATIVE = 1, /* value_pos counts from the matched key */
	ROOST_TRAVERSAL_VALUE_INSIDE = 2,   /* the value stands at value_pos, not its address */
};

struct roost_traversal_params {
	uint64_t root;	      /* address of the first element; 0: an empty structure */
	uint32_t element_len; /* bytes: a multiple of 4 */
	uint32_t value_len;
	uint32_t bound; /* elements to look at, at most; not 0 */
	uint16_t key_len;
	uint8_t predicate; /* enum roost_traversal_predicate */
	uint8_t next;	   /* enum roost_traversal_next */
	int16_t value_pos, next_pos, else_pos;
	uint16_t flags;
	uint64_t key_mask[ROOST_TRAVERSAL_MASK_WORDS]; /* bit n: a key may stand at position n */
	uint64_t order_mask[ROOST_TRAVERSAL_MASK_WORDS];
	uint8_t key[ROOST_TRAVERSAL_MAX_KEY];
};

#ifndef __cplusplus
_Static_assert(sizeof(struct roost_traversal_params) == 160, "parameters of traversal");
#endif

/*
 * The client's side: parameters for a linked list, or a hash chain, of elements with a key of 8
 * bytes, the address of the value and that of the next element at these positions. Other
 * structures: fill the struct.
 */
static inline struct roost_traversal_params
roost_traversal_list(uint64_t root, uint32_t element_len, uint64_t key, unsigned key_pos,
		     unsigned value_pos, unsigned next_pos, uint32_t value_len)
{
	struct roost_traversal_params p;

	memset(&p, 0, sizeof(p));
	p.root = root;
	p.element_len = element_len;
	p.value_len = value_len;
	p.bound = 1u << 16;
	p.key_len = 8;
	p.next = ROOST_TRAVERSAL_NEXT_FIXED;
	p.value_pos = (int16_t)value_pos;
	p.next_pos = (int16_t)next_pos;
	p.key_mask[key_pos / 64] = 1ull << key_pos % 64;
	memcpy(p.key, &key, 8);
	return p;
}

#endif
