/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Client of a node. A node is a process that serves memory and kernels to peers that connect by
 * rdma_cm: roost-node(1), or a program that answers in the same way. The private data of its accept
 * describe its memory (struct roost_node_hello). The functions are in Roost's librdmacm.so.1; link
 * with `pkg-config --cflags --libs roost`.
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

/* the port in RDMA_PS_TCP on which nodes listen by default */
#define ROOST_NODE_SERVICE 4792
#define ROOST_NODE_MAGIC   0x74736f52u /* "Rost" in memory */
#define ROOST_NODE_VERSION 1

/*
 * Description of a node's memory. Little-endian on the wire; in host byte order in struct
 * roost_node. Later versions add members at the end.
 */
struct roost_node_hello {
	uint32_t magic;	  /* ROOST_NODE_MAGIC */
	uint16_t version; /* ROOST_NODE_VERSION */
	uint16_t size;	  /* bytes of this structure */
	uint64_t addr;	  /* address of the region */
	uint64_t len;	  /* its length */
	uint32_t rkey;	  /* its key, with rights to READ, WRITE and atomics */
	uint32_t flags;	  /* enum roost_get_flags of the table */
	uint64_t table;	  /* address in the region of a hash table for `get` */
	uint64_t entries; /* entries of the table; 0: there is no table */
	/*
	 * bytes at the start of the region that the node uses; clients may use the rest
	 */
	uint64_t used;
};

/* A connection to a node. The client must not change it. */
struct roost_node {
	/*
	 * id->qp has 64 sends and 16 receives with one SGE each; completions are in id->send_cq and
	 * id->recv_cq
	 */
	struct rdma_cm_id *id;
	struct roost_node_hello hello;
};

/*
 * Connects to a node at `host` (a name, or an IPv4 or IPv6 address) and port `service`, with a
 * queue pair that has the op-codes of calls enabled. On success *out is the connection; free it
 * with roost_node_close(). Blocks. Any thread. Returns 0 or a positive
 * errno:
 *
 *   ECONNREFUSED	no process listens there, or the node refused the connection
 *   ENOMEM		the node has no memory for another connection
 *   ETIMEDOUT		no answer within timeout_ms
 *   EHOSTUNREACH	the host is unknown or unreachable
 *   EPROTO		the peer is no node, or a node of another version
 */
int roost_node_connect(const char *host, uint16_t service, int timeout_ms, struct roost_node **out);
/*
 * Connects as roost_node_connect(), with a queue pair of `sends` send work requests: for callers
 * with more than 64 calls in flight.
 */
int roost_node_connect_sends(const char *host, uint16_t service, int timeout_ms, unsigned sends,
			     struct roost_node **out);
/* Disconnects, destroys the queue pair and frees the connection. Destroy its callers first. */
void roost_node_close(struct roost_node *node);

/*
 * Rejects a connection request (RDMA_CM_EVENT_CONNECT_REQUEST) for lack of memory: REJ with reason
 * 3, no resources. For nodes. Returns 0 or a positive errno.
 */
int roost_node_reject(struct rdma_cm_id *id);

#ifdef __cplusplus
}
#endif
#endif
