/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Functions that the examples of kernels share: connecting to a node, and WRITEs to its memory. To
 * build and run an example:
 *
 *	roost node --fill 1000 &
 *	cc -o get get.c $(pkg-config --cflags --libs roost)
 *	./get ADDRESS-OF-THE-NODE
 */
#ifndef EXAMPLE_H
#define EXAMPLE_H

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <roost/node.h>
#include <roost/verbs.h>

#define SECONDS 1000000000ull

static struct roost_node *node;
static struct roost_caller *caller;

static inline void must(int ok, const char *what)
{
	if (!ok) {
		fprintf(stderr, "%s does not work\n", what);
		exit(1);
	}
}

/* Connects to the node at argv[1], with space for replies of `space` bytes. */
static inline void connect_to_node(int argc, char **argv, uint32_t space)
{
	int err;

	must(argc == 2, "no address of a node, so it");
	err = roost_node_connect(argv[1], ROOST_NODE_SERVICE, 10000, &node);
	if (err)
		fprintf(stderr, "%s: %s\n", argv[1], strerror(err));
	must(err == 0, "connecting");
	caller = roost_caller_create(node->id->qp, 1, space);
	must(caller != NULL, "making a caller");
}

static inline void leave_node(void)
{
	roost_caller_destroy(caller);
	roost_node_close(node);
}

/* Returns the address of byte n of the memory that the node itself does not use. */
static inline uint64_t space_at(uint64_t n)
{
	return ((node->hello.addr + node->hello.used + 63) & ~63ull) + n;
}

/* Posts a WRITE to the node's memory, or a READ from it, and waits for its completion. */
static inline void move(enum ibv_wr_opcode op, uint64_t remote, void *local, size_t len)
{
	struct ibv_mr *mr = ibv_reg_mr(node->id->qp->pd, local, len, IBV_ACCESS_LOCAL_WRITE);
	struct ibv_sge sge = {(uintptr_t)local, (uint32_t)len, mr ? mr->lkey : 0};
	struct ibv_send_wr *bad,
		wr = {.sg_list = &sge, .num_sge = 1, .opcode = op, .send_flags = IBV_SEND_SIGNALED};
	struct ibv_wc wc;
	int n;

	must(mr != NULL, "registering memory");
	wr.wr.rdma.remote_addr = remote;
	wr.wr.rdma.rkey = node->hello.rkey;
	must(ibv_post_send(node->id->qp, &wr, &bad) == 0, "posting a work request");
	while ((n = ibv_poll_cq(node->id->send_cq, 1, &wc)) == 0)
		;
	must(n == 1 && wc.status == IBV_WC_SUCCESS, "an access to the node's memory");
	ibv_dereg_mr(mr);
}

static inline void put(uint64_t to, const void *from, size_t len)
{
	move(IBV_WR_RDMA_WRITE, to, (void *)(uintptr_t)from, len);
}

static inline void take(void *to, uint64_t from, size_t len)
{
	move(IBV_WR_RDMA_READ, from, to, len);
}

/* Makes a call without payload. Returns its status; `reply` gets the reply, *len its length. */
static inline unsigned call(uint64_t op, const void *params, uint32_t params_len, void *reply,
			    uint32_t space, uint32_t *len)
{
	struct roost_result r;

	must(roost_call(caller, op, node->hello.rkey, params, params_len, reply, space,
			10 * SECONDS, &r) == 0,
	     "a call");
	if (len)
		*len = r.len;
	return r.status;
}

/* Makes a call with `n` bytes of payload. */
static inline unsigned call_with(uint64_t op, const void *params, uint32_t params_len,
				 const void *payload, size_t n, void *reply, uint32_t space,
				 uint32_t *len)
{
	struct ibv_mr *mr = ibv_reg_mr(node->id->qp->pd, (void *)(uintptr_t)payload, n, 0);
	struct ibv_sge sge = {(uintptr_t)payload, (uint32_t)n, mr ? mr->lkey : 0};
	struct roost_rpc_wr wr = {
		.op = op, .rkey = node->hello.rkey, .sg_list = &sge, .num_sge = 1};
	struct roost_result r;
	unsigned id;

	must(mr != NULL, "registering memory");
	must(roost_call_begin(caller, op, node->hello.rkey, params, params_len, ROOST_RPC_STREAM,
			      &id) == 0,
	     "beginning a call");
	must(roost_post_rpc_write(node->id->qp, &wr) == 0, "posting its payload");
	must(roost_call_wait(caller, id, 10 * SECONDS, &r) == 0, "a call with payload");
	if (reply && r.data)
		memcpy(reply, r.data, r.len < space ? r.len : space);
	if (len)
		*len = r.len;
	roost_call_end(caller, id);
	ibv_dereg_mr(mr);
	return r.status;
}

#endif
