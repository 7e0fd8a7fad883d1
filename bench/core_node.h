/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Shared by the rows of chains in bench_core: NICs on the wire of bench_core, and queues of
 * chains.
 */
#ifndef ROOST_BENCH_CORE_NODE_H
#define ROOST_BENCH_CORE_NODE_H

#include <stdbool.h>

#include "base/mem.h"
#include "nic/nic_chain.h"
#include "roost/chain.h"

#define NODE_MEM  (8u << 20)
#define NODE_DATA (64u << 10) /* of chains, at the start of the memory */

/* A NIC of one processing unit, or a unit of a NIC of several. */
struct node {
	struct wire *wire;
	struct nic *nic;
	unsigned pu;
	uint32_t pd, key;
	uint8_t *mem;
};

struct queue {
	struct node *node;
	struct nic_qp *qp;
	struct nic_cq *cq;	/* it counts sends and receives */
	struct nic_cq *recv_cq; /* set before it is opened: counts the receives */
	struct roost_cq_index ci;
	struct roost_queue_index si, ri;
	struct roost_wqe *ring;
	uint8_t recv[512];
	uint64_t wr[1024], recv_wr[1];
	uint32_t ring_key;
	struct roost_chain_queue image;
};

/* Ends the program if rc is an error. */
void node_check(int rc);
void node_open(struct node *n, struct node *peer, const char *addr);
/* Opens a NIC of that many processing units, each of them one of the nodes. No wire. */
void node_open_units(struct node *units, unsigned count);
void node_poll(struct node *n);

/* The queue watches its own CQ at 3. */
void queue_open(struct queue *q, struct node *n, uint32_t depth, uint8_t shift,
		struct nic_chain_attr attr);
void queue_connect(struct queue *q, const struct queue *peer);
/* Gives the WQEs that were emitted into the image, which is the ring, to the NIC. */
void queue_publish(struct queue *q);
/* Enables `receives` of one queue and n WQEs of another by a queue that is destroyed then. */
void queue_start(struct node *n, struct queue *recv, uint32_t receives, struct queue *send,
		 uint32_t wqes);
void queue_close(struct queue *q);

double node_cpu_ns(void);  /* of this thread */
double node_time_ns(void); /* a clock that is no system call */

#endif
