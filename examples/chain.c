/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A chain in C: a loop of eight work requests adds the numbers from 1 to 1000. The program posts
 * them once and starts the loop; the NIC executes 8000 of them. docs/chains.md explains chains.
 *
 *	cc -o chain chain.c $(pkg-config --cflags --libs roost)
 *	./chain
 */
#include <stdio.h>
#include <stdlib.h>

#include <infiniband/verbs.h>
#include <roost/chain.h>
#include <roost/chain_verbs.h>

#define TURN   8 /* work requests */
#define ACCESS (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)

static struct ibv_context *ctx;
static struct ibv_pd *pd;
static struct ibv_cq *cq;

static void must(int ok, const char *what)
{
	if (!ok) {
		perror(what);
		exit(1);
	}
}

static void open_nic(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);

	must(list && list[0], "no RDMA device");
	ctx = ibv_open_device(list[0]);
	must(ctx != NULL, "ibv_open_device");
	ibv_free_device_list(list);
	pd = ibv_alloc_pd(ctx);
	must(pd != NULL, "ibv_alloc_pd");
	cq = roost_create_counting_cq(ctx, 0);
	must(cq != NULL, "roost_create_counting_cq");
}

/* A queue pair that is connected to itself: its work requests work on memory of this NIC. */
static struct ibv_qp *open_queue(struct roost_chain_attr attr)
{
	struct ibv_qp_init_attr init = {.send_cq = cq,
					.recv_cq = cq,
					.qp_type = IBV_QPT_RC,
					.cap = {.max_send_wr = TURN, .max_send_sge = 1}};
	struct ibv_qp *qp = ibv_create_qp(pd, &init);

	must(qp != NULL, "ibv_create_qp");
	must(roost_qp_set_chain(qp, &attr) == 0, "roost_qp_set_chain");
	must(roost_qp_connect_self(qp, 1, 0) == 0, "roost_qp_connect_self");
	return qp;
}

int main(void)
{
	static uint64_t memory[256];
	static struct roost_wqe wqes[TURN];
	struct ibv_qp *loop, *starter;
	struct ibv_mr *ring, *mr;
	struct roost_enable_wr start = {.count = TURN, .relative = true};
	struct roost_chain_queue queue = {.depth = TURN, .image = wqes};
	struct roost_chain_data data = {.image = memory, .size = sizeof(memory)};
	struct roost_chain c = {.queue = &queue, .data = &data};
	struct roost_ref i, sum, done, one;
	const uint64_t *end;

	/* the queue of the loop, and one that starts it */
	open_nic();
	loop = open_queue((struct roost_chain_attr){.managed_send = true});
	starter = open_queue((struct roost_chain_attr){0});
	ring = roost_reg_queue_mr(loop, ROOST_SEND_QUEUE, ACCESS);
	must(ring != NULL, "roost_reg_queue_mr");
	mr = ibv_reg_mr(pd, memory, sizeof(memory), ACCESS);
	must(mr != NULL, "ibv_reg_mr");
	queue.ring = (struct roost_ref){(uintptr_t)ring->addr, ring->rkey};
	queue.qp_num = start.qp_num = loop->qp_num;
	queue.stride = roost_qp_stride(loop, ROOST_SEND_QUEUE);
	data.at = (struct roost_ref){(uintptr_t)memory, mr->rkey};

	/* words of the memory, and the loop */
	c.scratch = roost_chain_word(&c, 0);
	i = roost_chain_word(&c, 0);
	sum = roost_chain_word(&c, 0);
	done = roost_chain_word(&c, 0);
	one = roost_chain_word(&c, 1);
	roost_chain_emit(&c, roost_wqe_calc(ROOST_OP_FETCH_ADD, i, ROOST_OPERAND(1), c.scratch));
	roost_chain_emit(&c, roost_wqe_write(ROOST_FIELD(c.queue, 2, swap_add), i, 8));
	roost_chain_emit(&c, roost_wqe_calc(ROOST_OP_FETCH_ADD, sum, 0, c.scratch));
	roost_chain_loop_end(&c, i, ROOST_GE, roost_constant(1000), roost_wqe_write(done, one, 8));
	must(queue.error == 0, "the chain");

	/* its only post; the last turn writes `done` */
	must(roost_post_wqes(loop, wqes, queue.n, 0) == 0, "roost_post_wqes");
	must(roost_post_enable(starter, &start) == 0, "roost_post_enable");
	end = &memory[(done.addr - data.at.addr) / 8];
	while (!__atomic_load_n(end, __ATOMIC_ACQUIRE))
		;
	printf("the sum is %llu\n",
	       (unsigned long long)ROOST_OPERAND_VALUE(memory[(sum.addr - data.at.addr) / 8]));
	return 0;
}
