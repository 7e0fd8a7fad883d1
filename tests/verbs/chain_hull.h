/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A hull process whose child hands over chains as images of work requests, for tests in which the
 * child is stopped or killed. One hull a process. The memory of the program is the hull's memory
 * "table", which the client may access through the queue pair of chain_hull.side.
 */
#ifndef ROOST_TESTS_CHAIN_HULL_H
#define ROOST_TESTS_CHAIN_HULL_H

#include "roost/chain_verbs.h"
#include "roost/hull.h"
#include "side.h"

#define CHAIN_HULL_QUEUES 3

/* The data that the child gets from the hull. */
struct chain_env {
	uint32_t qpn[CHAIN_HULL_QUEUES], ring_key[CHAIN_HULL_QUEUES];
	uint64_t ring[CHAIN_HULL_QUEUES];
	uint32_t table_key, client_key;
	uint64_t client;
};

struct chain_hull {
	struct roost_hull *hull;
	struct side side;
	struct ibv_cq *receives; /* counts the client's SENDs */
	struct ibv_cq *quiet;	 /* of all other completions */
	/* the queues whose send rings the child knows; set by the test */
	struct ibv_qp *queue[CHAIN_HULL_QUEUES];
	struct ibv_mr *ring[CHAIN_HULL_QUEUES];
	unsigned num_queues;
};
extern struct chain_hull chain_hull;

struct chain_hull_shape {
	size_t table;	   /* bytes */
	int access;	   /* of the client to the table */
	uint32_t receives; /* the most receives that are posted at a time */
	bool managed;	   /* the queue pair to the client has a managed send queue */
};

/* Opens the hull and connects with the client, which writes to `in` and reads from `out`. */
void chain_hull_open(const struct chain_hull_shape *shape, int in, int out);
/* Creates a queue pair for chains that is connected with itself. */
struct ibv_qp *chain_hull_loop(uint32_t depth, const struct roost_chain_attr *attr);
/* Registers the rings of the first n queues. */
void chain_hull_register(unsigned n);
/* Answers the child's request for a struct chain_env. Returns its length. */
long chain_hull_describe(void *reply);
/*
 * Starts the child and answers its requests. Returns when it was killed and the client has ended,
 * and closes everything. Until then nothing but the NIC runs here.
 */
void chain_hull_serve(const struct roost_hull_program *program, int in);

#endif
