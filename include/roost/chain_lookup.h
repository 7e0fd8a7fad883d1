/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A hash look-up as a chain, after RedN: a client SENDs a key and the addresses of one or two
 * buckets, and the NIC answers with the value by WRITEs. No CPU of the server takes part, and the
 * client has no key of the server's memory. docs/chains.md describes it.
 *
 * Each client has two queue pairs at the server: one that is connected to the client, with a
 * managed send queue and a managed receive queue of one receive; and one that is connected to
 * itself, with a managed send queue. A client has one request under way at a time.
 */
#ifndef ROOST_CHAIN_LOOKUP_H
#define ROOST_CHAIN_LOOKUP_H

#include "roost/chain.h"

#ifdef __cplusplus
extern "C" {
#endif

#define ROOST_LOOKUP_BUCKETS 2
#define ROOST_LOOKUP_SGES    (3 * ROOST_LOOKUP_BUCKETS + 1)

/* An entry of the table. A key of 0 marks an empty bucket; clients must not ask for it. */
struct roost_bucket {
	uint64_t key;	/* ROOST_OPERAND(): 48 bits */
	uint64_t value; /* address of the value, in the table's region */
};

/* ---- the server ---- */

struct roost_lookup {
	struct roost_chain loop;   /* depth ROOST_LOOKUP_LOOP; it watches the receives */
	struct roost_chain answer; /* connected to the client, depth ROOST_LOOKUP_ANSWER */
	uint32_t buckets;	   /* 1 or 2 */
	uint32_t watch;		   /* index of the CQ of the client's requests */
	uint32_t table_key;	   /* of the region of buckets and values */
	uint32_t value_len;	   /* of each value, in bytes */
	/* client's memory: value_len bytes, and a struct roost_lookup_end, aligned to 8 bytes */
	struct roost_ref reply;
};
#define ROOST_LOOKUP_LOOP(buckets) ((buckets) == 1 ? 8u : 16u)
#define ROOST_LOOKUP_ANSWER	   2u	/* depth of the answer queue */
#define ROOST_LOOKUP_STRIDE	   128u /* the least stride: 2 SGEs */

/*
 * Emits the look-up into both queues, whose images must be empty, and stores the scatter list of
 * the receive to post: *num_sge entries, at most ROOST_LOOKUP_SGES. Then the caller posts both
 * images and the receive, and enables one receive and the whole loop queue, once. Errors: in the
 * queues' `error`.
 */
void roost_lookup_emit(const struct roost_lookup *l, struct roost_sge *sge, uint32_t *num_sge);

/* ---- the client ---- */

/* The message that the client SENDs. roost_lookup_request() fills it in. */
struct roost_lookup_request {
	uint64_t word[ROOST_LOOKUP_SGES];
};

/* The end of the reply. Its last word is written last. */
struct roost_lookup_end {
	uint64_t found[ROOST_LOOKUP_BUCKETS]; /* keys of the buckets */
	uint64_t number;		      /* of the request */
};

/*
 * Fills in a request for a key below 2^48, with the addresses of its buckets and a number that the
 * reply repeats. Returns the bytes to SEND.
 */
static inline uint32_t roost_lookup_request(struct roost_lookup_request *r, uint64_t key,
					    const uint64_t *bucket, uint32_t buckets,
					    uint64_t number)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < buckets; i++) {
		r->word[n++] = ROOST_OPERAND(key);
		r->word[n++] = bucket[i];
		r->word[n++] = bucket[i] + 8;
	}
	r->word[n++] = number;
	return n * (uint32_t)sizeof(r->word[0]);
}

enum roost_lookup_result { ROOST_LOOKUP_PENDING, ROOST_LOOKUP_HIT, ROOST_LOOKUP_MISS };

/*
 * Returns whether the reply to a request has come, and whether it has the value. The end of the
 * reply is behind the value's bytes.
 */
static inline enum roost_lookup_result roost_lookup_result(const struct roost_lookup_end *end,
							   uint64_t key, uint32_t buckets,
							   uint64_t number)
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
