/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The kernel `traversal`: follows pointers from element to element, compares keys in them, and
 * returns the value of the first element that matches, in one round trip. It has all parameters of
 * StRoM (EuroSys '20), section 6.1; + marks an extension:
 *
 *	element		up to 64 bytes; + up to 1024
 *	keys in it	any of the 4-byte positions of a mask may hold one; keys of 8 bytes; + of 4
 *			to 64 bytes
 *	predicate	the element's key is EQUAL, LESS_THAN, GREATER_THAN or NOT_EQUAL to the
 *			search key
 *	value		its address is at a position, absolute or relative to the matched key; + or
 *			the value itself is there
 *	next		its address is at a position, absolute; + or relative to a key; + or at one
 *			of two positions, one if the search key is smaller than the element's, the
 *			other if not
 *	end		next is 0, or not valid; + `bound` elements were compared
 *
 * Examples of such structures are linked lists, hash chains, binary trees, B-tree nodes, skip lists
 * and graphs. Numbers are little-endian; keys compare as unsigned little-endian numbers of their
 * size. Positions count 4-byte units from the element's start.
 *
 * Keys are compared in the order of their positions. The first key that fulfils the predicate is
 * the match. If no key does, `next` selects the position of the next element's address:
 *
 *	ROOST_TRAVERSAL_NEXT_FIXED	next_pos
 *	ROOST_TRAVERSAL_NEXT_BY_KEY	next_pos, relative to the end of the last key that is not
 *					greater than the search key; else_pos if the first key is
 *					greater already. It serves children of a B-tree's node and
 *					levels of a skip list
 *	ROOST_TRAVERSAL_NEXT_BY_ORDER	next_pos if the search key is smaller than the element's
 *					first key, else else_pos. It serves binary trees
 *
 * The keys for this selection are at the positions of order_mask, in ascending order; if order_mask
 * is 0, at those of key_mask. (In a node of a skip list, the key that may match is the node's own.
 * The keys for the selection are those of the nodes that its levels point to.)
 *
 * The reply is the value, ROOST_RPC_MISS if the end is reached, or ROOST_RPC_BOUND.
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
	ROOST_TRAVERSAL_LESS_THAN = 1, /* the element's key is less than the search key */
	ROOST_TRAVERSAL_GREATER_THAN = 2,
	ROOST_TRAVERSAL_NOT_EQUAL = 3,
};

enum roost_traversal_next {
	ROOST_TRAVERSAL_NEXT_NONE = 0, /* the structure is one element */
	ROOST_TRAVERSAL_NEXT_FIXED = 1,
	ROOST_TRAVERSAL_NEXT_BY_KEY = 2,
	ROOST_TRAVERSAL_NEXT_BY_ORDER = 3,
};

enum roost_traversal_flags {
	ROOST_TRAVERSAL_VALUE_RELATIVE = 1, /* value_pos counts from the matched key */
	ROOST_TRAVERSAL_VALUE_INSIDE = 2,   /* the value itself is at value_pos, not its address */
};

struct roost_traversal_params {
	uint64_t root;	      /* address of the first element; 0: an empty structure */
	uint32_t element_len; /* bytes: a multiple of 4 */
	uint32_t value_len;
	uint32_t bound; /* the most elements to compare; not 0 */
	uint16_t key_len;
	uint8_t predicate; /* enum roost_traversal_predicate */
	uint8_t next;	   /* enum roost_traversal_next */
	int16_t value_pos, next_pos, else_pos;
	uint16_t flags;				       /* enum roost_traversal_flags */
	uint64_t key_mask[ROOST_TRAVERSAL_MASK_WORDS]; /* bit n: position n holds a key */
	uint64_t order_mask[ROOST_TRAVERSAL_MASK_WORDS];
	uint8_t key[ROOST_TRAVERSAL_MAX_KEY];
};

#ifndef __cplusplus
_Static_assert(sizeof(struct roost_traversal_params) == 160, "parameters of traversal");
#endif

/*
 * The caller's side: returns parameters for a linked list or hash chain. The elements have a key of
 * 8 bytes at key_pos, the address of the value at value_pos, and the address of the next element at
 * next_pos. The bound is 2^16 elements. For other structures the caller fills the struct.
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
