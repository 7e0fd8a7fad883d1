/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The traversal of a linked list as a chain: a client SENDs a key and the address of the first
 * node, and the NIC answers with the value of the node that has the key. No CPU of the server takes
 * part. docs/chains.md describes it.
 *
 * Each client has four managed queues at the server: `answer` is connected to the client and has a
 * managed receive queue of one receive; the others are connected to themselves. A client has one
 * request under way at a time.
 */
#ifndef ROOST_CHAIN_LIST_H
#define ROOST_CHAIN_LIST_H

#include "roost/chain_lookup.h"

#ifdef __cplusplus
extern "C" {
#endif

struct roost_list_node {
	uint64_t key;	/* ROOST_OPERAND(): 48 bits */
	uint64_t value; /* address of the value, in the list's region */
	uint64_t next;	/* address of the next node; not used in the last one */
	uint64_t last;	/* ROOST_OPERAND(1) in the last node, else 0 */
};

struct roost_list {
	struct roost_chain begin;  /* depth 8; it watches the receives */
	struct roost_chain walk;   /* depth 16: one turn for each node; it needs `scratch` */
	struct roost_chain found;  /* depth 2 */
	struct roost_chain answer; /* depth ROOST_LOOKUP_ANSWER, stride ROOST_LOOKUP_STRIDE */
	uint32_t watch;		   /* index of the CQ of the client's requests */
	uint32_t list_key;	   /* of the region of nodes and values */
	uint32_t value_len;	   /* of each value, in bytes */
	/*
	 * The walk goes on to the last node after the node that has the key ("without break" in
	 * RedN).
	 */
	bool whole;
	/* client's memory: value_len bytes, and a struct roost_lookup_end, aligned to 8 bytes */
	struct roost_ref reply;
};
#define ROOST_LIST_SGES 3

/*
 * Emits the traversal into the four queues, whose images must be empty, and stores the scatter list
 * of the receive to post. Then the caller posts the images and the receive, and enables one receive
 * and the whole queue `begin`, once. Errors: in the queues' `error`.
 */
void roost_list_emit(const struct roost_list *l, struct roost_sge *sge);

/*
 * Fills in a request. The reply is that of a look-up with one bucket: roost_lookup_result().
 * Returns the bytes to SEND.
 */
static inline uint32_t roost_list_request(struct roost_lookup_request *r, uint64_t key,
					  uint64_t first_node, uint64_t number)
{
	r->word[0] = ROOST_OPERAND(key);
	r->word[1] = first_node;
	r->word[2] = number;
	return 3 * sizeof(r->word[0]);
}

#ifdef __cplusplus
}
#endif

#endif
