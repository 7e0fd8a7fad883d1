/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A look-up in a neighbourhood of a hopscotch table as a chain: a client SENDs a key and the
 * address of the first of up to eight adjacent buckets, and the NIC answers with the value of the
 * bucket that has the key. One READ scatters the neighbourhood: its keys become operands of CASes,
 * and its pointers become addresses of answers. docs/chains.md describes it.
 *
 * The queue pairs of a client are those of roost/chain_lookup.h, but the loop has a stride of
 * ROOST_HOOD_STRIDE. A client has one request under way at a time.
 */
#ifndef ROOST_CHAIN_HOPSCOTCH_H
#define ROOST_CHAIN_HOPSCOTCH_H

#include "roost/chain_lookup.h"

#ifdef __cplusplus
extern "C" {
#endif

#define ROOST_HOOD_BUCKETS	8u   /* the most buckets of a neighbourhood */
#define ROOST_HOOD_STRIDE	512u /* stride of the loop: 16 SGEs */
#define ROOST_HOOD_LOOP(bucket) ((bucket) <= 5 ? 16u : 32u)
#define ROOST_HOOD_SGES(bucket) ((bucket) + 2u)

struct roost_hood {
	struct roost_chain loop;   /* depth ROOST_HOOD_LOOP; it watches the receives */
	struct roost_chain answer; /* depth ROOST_LOOKUP_ANSWER, stride ROOST_LOOKUP_STRIDE */
	uint32_t buckets;	   /* buckets of a neighbourhood, 1 to ROOST_HOOD_BUCKETS */
	uint32_t watch;		   /* index of the CQ of the client's requests */
	uint32_t table_key;	   /* of the region of buckets (struct roost_bucket) and values */
	uint32_t value_len;	   /* of each value, in bytes */
	/* client's memory: value_len bytes, and a struct roost_hood_end, aligned to 8 bytes */
	struct roost_ref reply;
};

/*
 * Emits the look-up into both queues, whose images must be empty, and stores the ROOST_HOOD_SGES
 * entries of the receive to post. Then the caller posts both images and the receive, and enables
 * one receive and the whole loop queue, once. Errors: in the queues' `error`.
 */
void roost_hood_emit(const struct roost_hood *h, struct roost_sge *sge);

struct roost_hood_request {
	uint64_t word[ROOST_HOOD_BUCKETS + 2];
};

/* The end of the reply. Its last word is written last. */
struct roost_hood_end {
	uint64_t found[ROOST_HOOD_BUCKETS]; /* keys of the buckets */
	uint64_t number;		    /* of the request */
};

/*
 * Fills in a request for a key below 2^48 in the neighbourhood that begins at an address of the
 * server. The number must differ from that of the previous request. Returns the bytes to SEND.
 */
static inline uint32_t roost_hood_request(struct roost_hood_request *r, uint64_t key,
					  uint64_t first_bucket, uint32_t buckets, uint64_t number)
{
	r->word[0] = first_bucket;
	for (uint32_t i = 0; i < buckets; i++)
		r->word[1 + i] = ROOST_OPERAND(key);
	r->word[1 + buckets] = number;
	return (buckets + 2) * (uint32_t)sizeof(r->word[0]);
}

/* Returns the state of a request, as roost_lookup_result() does. */
static inline enum roost_lookup_result
roost_hood_result(const struct roost_hood_end *end, uint64_t key, uint32_t buckets, uint64_t number)
{
	if (__atomic_load_n(&end->number, __ATOMIC_ACQUIRE) != number)
		return ROOST_LOOKUP_PENDING;
	for (uint32_t i = 0; i < buckets; i++)
		if (end->found[i] == ROOST_OPERAND(key))
			return ROOST_LOOKUP_HIT;
	return ROOST_LOOKUP_MISS;
}

#ifdef __cplusplus
}
#endif

#endif
