/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Calls the kernel `sum`: writes the numbers 1 to 1000 to the node's memory, and calls the kernel
 * to add them up.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <roost/node.h>
#include <roost/verbs.h>

#include "sum.h"

#define NUMBERS 1000

static void fail(const char *what, int err)
{
	fprintf(stderr, "%s: %s\n", what, strerror(err));
	exit(1);
}

/* Posts an RDMA WRITE and waits for its completion. Later calls see the written bytes. */
static void put(struct roost_node *node, uint64_t to, void *from, uint32_t len)
{
	struct ibv_mr *mr = ibv_reg_mr(node->id->qp->pd, from, len, 0);
	struct ibv_sge sge = {(uintptr_t)from, len, mr ? mr->lkey : 0};
	struct ibv_send_wr *bad, wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE};
	struct ibv_wc wc;
	int n = 0;

	wr.send_flags = IBV_SEND_SIGNALED;
	wr.wr.rdma.remote_addr = to;
	wr.wr.rdma.rkey = node->hello.rkey;
	if (!mr || ibv_post_send(node->id->qp, &wr, &bad))
		fail("can't write", errno);
	while (n == 0)
		n = ibv_poll_cq(node->id->send_cq, 1, &wc);
	if (n < 0 || wc.status != IBV_WC_SUCCESS)
		fail("can't write", EIO);
	ibv_dereg_mr(mr);
}

int main(int argc, char **argv)
{
	static uint64_t numbers[NUMBERS];
	struct roost_caller *caller;
	struct roost_node *node;
	struct roost_result r;
	struct sum_params p;
	struct sum_reply sum;
	int err;

	if (argc != 2)
		fail("usage: client ADDRESS-OF-THE-NODE", EINVAL);
	err = roost_node_connect(argv[1], ROOST_NODE_SERVICE, 10000, &node);
	if (err)
		fail(argv[1], err);
	for (uint64_t i = 0; i < NUMBERS; i++)
		numbers[i] = i + 1;
	p = (struct sum_params){(node->hello.addr + node->hello.used + 63) & ~63ull, NUMBERS};
	put(node, p.array, numbers, sizeof(numbers));

	caller = roost_caller_create(node->id->qp, 1, sizeof(sum));
	if (!caller)
		fail("can't make a caller", errno);
	err = roost_call(caller, SUM_OP, node->hello.rkey, &p, sizeof(p), &sum, sizeof(sum),
			 10000000000, &r);
	if (err)
		fail("no answer", err);
	if (r.status == ROOST_RPC_NO_KERNEL)
		printf("the node has no kernel sum: roost kernel load ./sum.so\n");
	else if (r.status != ROOST_RPC_OK)
		printf("status %u\n", r.status);
	else
		printf("the sum is %llu, the largest %llu\n", (unsigned long long)sum.sum,
		       (unsigned long long)sum.largest);
	roost_caller_destroy(caller);
	roost_node_close(node);
	return r.status != ROOST_RPC_OK;
}
