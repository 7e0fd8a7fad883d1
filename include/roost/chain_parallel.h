/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The hash look-up of roost/chain_lookup.h with its two buckets tested side by side: each bucket
 * has a queue of its own, and these may be on two processing units. Requests and replies are those
 * of a look-up in two buckets. docs/chains.md describes it.
 *
 * Each client has three queue pairs at the server: `answer` is connected to the client and has a
 * managed receive queue of one receive; the loops are connected to themselves. Send queues are
 * managed. A client has one request under way at a time.
 */
#ifndef ROOST_CHAIN_PARALLEL_H
#define ROOST_CHAIN_PARALLEL_H

#include "roost/chain_lookup.h"

#ifdef __cplusplus
extern "C" {
#endif

#define ROOST_PARALLEL_LOOP   8u /* depth of each loop */
#define ROOST_PARALLEL_ANSWER 8u /* depth of the answer queue; its stride is ROOST_LOOKUP_STRIDE */

struct roost_parallel {
	struct roost_chain loop[ROOST_LOOKUP_BUCKETS]; /* stride 64; each watches the receives */
	struct roost_chain answer;		       /* it watches the sends of both loops */
	uint32_t watch[ROOST_LOOKUP_BUCKETS]; /* in loop i: index of the CQ of the requests */
	uint32_t done[ROOST_LOOKUP_BUCKETS];  /* in `answer`: index of the send CQ of loop i */
	uint32_t table_key;		      /* of the region of buckets and values */
	uint32_t value_len;		      /* of each value, in bytes */
	/* client's memory: value_len bytes, and a struct roost_lookup_end, aligned to 8 bytes */
	struct roost_ref reply;
};

/*
 * Emits the look-up into the three queues, whose images must be empty, and stores the
 * ROOST_LOOKUP_SGES entries of the receive to post. Then the caller posts the images and the
 * receive, and enables one receive and the three queues whole, once. Errors: in the queues'
 * `error`.
 */
void roost_parallel_emit(const struct roost_parallel *l, struct roost_sge *sge);

#ifdef __cplusplus
}
#endif

#endif
