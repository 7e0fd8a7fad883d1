/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Chain replication as a chain: a client SENDs a write to the first of several nodes. Each node
 * copies its data into its store and SENDs the rest of the message to the next node. The last node
 * acknowledges the write to the client by a WRITE. So an acknowledged write is in the memory of all
 * nodes. No CPU of the nodes takes part. docs/chains.md describes it.
 *
 * For each client a node has three queue pairs: `in`, connected to the node before (the client, at
 * the first node), with a managed receive queue of one receive; `loop`, connected to itself; `out`,
 * connected to the node behind it. The last node is connected to the client by `out`. The send
 * queues of `loop` and `out` are managed. A client has one write in progress at a time.
 */
#ifndef ROOST_CHAIN_REPLICA_H
#define ROOST_CHAIN_REPLICA_H

#include <string.h>

#include "roost/chain.h"

#ifdef __cplusplus
extern "C" {
#endif

#define ROOST_REPLICA_NODES 8u /* the most nodes of a chain */
#define ROOST_REPLICA_LOOP  4u /* depth of `loop`, stride 64 */
#define ROOST_REPLICA_OUT   2u /* depth of `out` */
#define ROOST_REPLICA_SGES  2u

/* The bytes of a message for `nodes` nodes, with len bytes of data. */
#define ROOST_REPLICA_BYTES(nodes, len) (8u * ((nodes) + 1u) + (len))

struct roost_replica {
	struct roost_chain loop; /* it watches the receives of `in` */
	struct roost_chain out;
	uint32_t in;	    /* queue pair number */
	uint32_t watch;	    /* in `loop`: index of the CQ of the receives */
	uint32_t after;	    /* nodes behind this node; 0: it is the last */
	uint32_t len;	    /* bytes of a write */
	uint32_t store_key; /* of the region that clients may write */
	/* ROOST_REPLICA_BYTES(after, len) of this node's own, aligned to 8 bytes */
	struct roost_ref staging;
	/* of the last node: a word of the client's memory, for the number of the write */
	struct roost_ref ack;
};

/*
 * Emits a node into its queues, whose images must be empty, and stores the ROOST_REPLICA_SGES
 * entries of the receive to post. Then the caller posts both images and the receive, and enables
 * one receive and the whole loop queue, once. Errors: in the queues' `error`.
 */
void roost_replica_emit(const struct roost_replica *r, struct roost_sge *sge);

/*
 * Fills in a message of ROOST_REPLICA_BYTES(nodes, len): data for the address at[i] of node i. The
 * number must differ from that of the previous write. Returns the bytes to SEND.
 */
static inline uint32_t roost_replica_request(void *message, const uint64_t *at, uint32_t nodes,
					     uint64_t number, const void *data, uint32_t len)
{
	uint8_t *m = (uint8_t *)message;

	memcpy(m, at, 8 * nodes);
	memcpy(m + 8 * nodes, &number, 8);
	memcpy(m + 8 * nodes + 8, data, len);
	return ROOST_REPLICA_BYTES(nodes, len);
}

/* Returns true if all nodes have stored the write. */
static inline bool roost_replica_done(const uint64_t *ack, uint64_t number)
{
	return __atomic_load_n(ack, __ATOMIC_ACQUIRE) == number;
}

#ifdef __cplusplus
}
#endif

#endif
