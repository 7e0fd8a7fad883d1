/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A node: a process that serves memory and kernels to who connects by rdma_cm (roost-node(1), or a
 * program that answers in the same way). What the connection's end needs to know stands in the
 * private data of the accept. The functions are in Roost's librdmacm.so.1; link with `pkg-config
 * --cflags --libs roost`.
 *
 *	struct roost_node *node;
 *	struct roost_caller *caller;
 *
 *	roost_node_connect("192.0.2.1", ROOST_NODE_SERVICE, 5000, &node);
 *	caller = roost_caller_create(node->id->qp, 16, 4096);
 *	roost_call(caller, ROOST_GET_OP, node->hello.rkey, ...);
 */
#ifndef ROOST_NODE_H
#define ROOST_NODE_H

#include <rdma/rdma_cma.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* the port, in the space of rdma_cm's (RDMA_PS_TCP), where nodes listen */
#define ROOST_NODE_SERVICE 4792
#define ROOST_NODE_MAGIC   0x74736f52u /* "Rost" in memory */
#define ROOST_NODE_VERSION 1

/*
 * All little-endian on the wire; in struct roost_node of this machine's order. Later versions add
 * at the end.
 */
struct roost_node_hello {
	uint32_t magic;	  /* ROOST_NODE_MAGIC */
	uint16_t version; /* ROOST_NODE_VERSION */
	uint16_t size;	  /* bytes of it */
	uint64_t addr;	  /* the region: its address, */
	uint64_t len;	  /* its length, */
	uint32_t rkey;	  /* and its key, with the rights to READ, WRITE and atomics */
	uint32_t flags;	  /* of the table: enum roost_get_flags */
	uint64_t table;	  /* address of a hash table for `get`, in the region */
	uint64_t entries; /* of it; 0: there is none */
	/*
	 * bytes at the front of the region that the node has filled; behind them callers may do as
	 * they like
	 */
	uint64_t used;
};

/* A connection to a node. Read only. */
struct roost_node {
	/*
	 * id->qp: 64 sends, 16 receives, one address each; completions in id->send_cq, id->recv_cq
	 */
	struct rdma_cm_id *id;
	struct roost_node_hello hello;
};

/*
 * Connects to the node that listens at host (a name, or an address of either family) and service,
 * with a queue pair that has the op-codes of calls. 0 and *out, or a positive errno: ECONNREFUSED:
 * nobody listens there, or it refuses; ENOMEM: it has no memory for another connection; ETIMEDOUT:
 * no answer in timeout_ms; EHOSTUNREACH: no such host, or no way there; EPROTO: not a node, or one
 * of another version. Blocks; any thread.
 */
int roost_node_connect(const char *host, uint16_t service, int timeout_ms, struct roost_node **out);
/* Disconnects, ends the queue pair, frees. After the callers that use it. */
void roost_node_close(struct roost_node *node);

/*
 * A node's answer to a request (RDMA_CM_EVENT_CONNECT_REQUEST) that it has no memory for: REJ with
 * reason 3, no resources. 0 or a positive errno.
 */
int roost_node_reject(struct rdma_cm_id *id);

#ifdef __cplusplus
}
#endif
#endif
