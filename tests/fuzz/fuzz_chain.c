/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Fuzzes chains: two managed queues whose WQEs come from the input and may rewrite each other's
 * rings, and a third queue that starts them. No memory outside of the regions may change, and the
 * third queue continues. The input is records of 8 bytes, one for each WQE:
 *
 *	op-code | flags | kind of address | offset (2) | operand (2) | length
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "world.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define DEPTH 16
#define MEM   4096
#define TURNS 40

static struct world W, *const w = &W;
static struct ep queue[2], starter;
static uint8_t outside[MEM];

static void failed(const char *what)
{
	fprintf(stderr, "fuzz_chain: %s\n", what);
	abort();
}

static void open_queue(struct ep *e, const struct ep *of)
{
	struct ep_params p = {.chain = true,
			      .counts = true,
			      .managed_send = true,
			      .managed_recv = true,
			      .depth = DEPTH,
			      .mem = MEM,
			      .pd_of = of};

	ep_init(e, w, 0, &p);
	ep_connect_self(e);
}

static struct wr work_request(const struct ep *e, const uint8_t *r)
{
	const struct ep *other = &queue[r[2] >> 7];
	const uint64_t off = (r[3] | (uint64_t)r[4] << 8) % (MEM - 64);
	struct wr wr = {.op = (enum roost_op)(r[0] % 32),
			.flags = r[1],
			.sge = {ep_sge(e, off & ~7ull, r[7] % 4 ? 8 : r[7])},
			.num_sge = r[7] != 255,
			.rkey = other->key,
			.raddr = (uintptr_t)other->mem + off,
			.swap_add = r[5] | (uint64_t)r[6] << (r[2] & 63),
			.compare = r[6]};

	switch (r[2] % 6) {
	case 0:
	case 1:
		wr.raddr = (uintptr_t)other->sq + off % (DEPTH << other->sq_shift);
		wr.rkey = other->sq_key;
		break;
	case 2:
		wr.raddr = (uintptr_t)other->rq + off % (DEPTH << other->rq_shift);
		wr.rkey = other->rq_key;
		break;
	case 3:
		wr.raddr = (uintptr_t)outside;
		break;
	case 4:
		wr.raddr = nic_qp_num(other->qp) | ROOST_CHAIN_RELATIVE;
		break;
	default:
		break;
	}
	if (wr.op == ROOST_OP_WAIT)
		wr.raddr = r[2] % 3 | ROOST_CHAIN_RELATIVE;
	return wr;
}

static void start(enum roost_op op, const struct ep *e)
{
	ep_post(&starter, &(struct wr){.op = op,
				       .raddr = nic_qp_num(e->qp) | ROOST_CHAIN_RELATIVE,
				       .swap_add = 3 * DEPTH});
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const uint8_t zero[MEM];
	struct roost_cqe cqe;

	world_init(w, 1, 1, NULL);
	open_queue(&queue[0], NULL);
	open_queue(&queue[1], &queue[0]);
	ep_init(&starter, w, 0, &(struct ep_params){.chain = true, .pd_of = &queue[0]});
	ep_connect_self(&starter);
	for (size_t i = 0; i < 2 * DEPTH && (i + 1) * 8 <= size; i++) {
		struct wr wr = work_request(&queue[i % 2], data + 8 * i);

		ep_post(&queue[i % 2], &wr);
		ep_post_recv(&queue[i % 2], 0, wr.sge, 1);
	}
	for (int i = 0; i < 2; i++) {
		start(ROOST_OP_ENABLE, &queue[i]);
		start(ROOST_OP_RECV_ENABLE, &queue[i]);
	}
	for (int i = 0; i < TURNS; i++)
		world_step(w, world_now(w) + MSEC);
	for (int i = 0; i < 4; i++)
		if (!ep_poll_send(&starter, &cqe) || cqe.status != NIC_WC_SUCCESS)
			failed("another queue does not go on");
	if (memcmp(outside, zero, MEM))
		failed("memory outside of the regions changed");
	ep_fini(&starter);
	ep_fini(&queue[1]);
	ep_fini(&queue[0]);
	world_fini(w);
	return 0;
}
