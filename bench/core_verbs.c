/* SPDX-License-Identifier: BSD-2-Clause */
/* The latency of one verb at a time, after RedN's figure 7: on a loop-back queue, and remote. */
#include "core_offload.h"

#include <stdlib.h>

#define DEPTH 64u

static struct roost_wqe verb(enum roost_op op, struct roost_ref local, struct roost_ref peer_at)
{
	const struct roost_ref old = roost_ref_at(local, 64);

	switch (op) {
	case ROOST_OP_WRITE:
		return roost_wqe_write(peer_at, local, 64);
	case ROOST_OP_READ:
		return roost_wqe_read(local, peer_at, 64);
	case ROOST_OP_CMP_SWAP:
		return roost_wqe_cas(peer_at, 0, 0, old);
	case ROOST_OP_NOP:
		return roost_wqe_nop();
	default:
		return roost_wqe_calc(op, peer_at, 1, old);
	}
}

/* Executes a ring of verbs, one at a time. */
static void verbs(struct queue *q, struct node *server, bool remote)
{
	for (unsigned i = 0; i < DEPTH; i++) {
		const uint32_t end = atomic_load(&q->si.prod) + 1;

		atomic_store(&q->si.prod, end);
		nic_doorbell(q->node->nic, q->qp);
		while (atomic_load(&q->si.cons) != end) {
			node_poll(q->node);
			if (remote)
				node_poll(server);
		}
	}
}

double verb_latency(struct node *near, struct node *server, enum roost_op op, bool remote,
		    double seconds)
{
	struct node *target = remote ? server : near;
	struct queue *q = calloc(1, sizeof(*q)), *peer = calloc(1, sizeof(*peer));
	const struct roost_ref local = {(uintptr_t)near->mem, near->key};
	const struct roost_ref peer_at = {(uintptr_t)target->mem + 4096, target->key};
	uint64_t done = 0;
	double start, t;

	queue_open(q, near, DEPTH, 6, (struct nic_chain_attr){0});
	queue_open(peer, target, DEPTH, 6, (struct nic_chain_attr){0});
	if (remote) {
		node_check(nic_qp_set_calc(q->qp));
		node_check(nic_qp_set_calc(peer->qp));
		queue_connect(peer, q);
	}
	queue_connect(q, remote ? peer : q);
	for (uint32_t i = 0; i < DEPTH; i++)
		q->ring[i] = verb(op, local, peer_at);
	/* Not counted: the first verb takes page faults, of 14 ms together in some runs. */
	for (int i = 0; i < 10; i++)
		verbs(q, server, remote);
	for (start = t = node_cpu_ns(); t - start < seconds * 1e9; t = node_cpu_ns()) {
		verbs(q, server, remote);
		done += DEPTH;
	}
	queue_close(q);
	queue_close(peer);
	free(q);
	free(peer);
	return (t - start) / (double)done;
}
