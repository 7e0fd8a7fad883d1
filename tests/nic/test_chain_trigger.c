/* SPDX-License-Identifier: BSD-2-Clause */
/* Triggers of a chain besides a SEND: a client's WRITE with immediate, and the clock. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

#include "world.h"

#define REL   ROOST_CHAIN_RELATIVE
#define QUIET ROOST_WQE_SOLICITED /* a flag, so that ep_post() does not ask for a completion */

static struct world W, *const w = &W;
static struct ep A, B, C, D, *const a = &A, *const b = &B, *const c = &C, *const d = &D;

static struct wr wr_enable(enum roost_op op, const struct ep *of, uint32_t n)
{
	return (struct wr){
		.op = op, .raddr = nic_qp_num(of->qp) | REL, .swap_add = n, .flags = QUIET};
}

static struct wr wr_time(uint64_t relative, uint64_t ns)
{
	return (struct wr){.op = ROOST_OP_WAIT,
			   .raddr = ROOST_CHAIN_TIME | relative,
			   .swap_add = ns,
			   .flags = QUIET};
}

static void post(struct ep *e, struct wr wr)
{
	ep_post(e, &wr);
}

static uint64_t *word(const struct ep *e, uint64_t off)
{
	return (uint64_t *)(e->mem + off);
}

static void loop_queue(struct ep *e, struct ep_params p, const struct ep *of)
{
	p.chain = true;
	p.pd_of = of;
	ep_init(e, w, 0, &p);
	ep_connect_self(e);
}

/*
 * The client WRITEs its argument into the server's argument region, with immediate. The chain adds
 * it to a sum, and WRITEs the sum to the client. Rings and receive are recycled: no program posts.
 */
static void write_imm(void **state)
{
	const struct sim_params link = {.delay_ns = 5000, .loss = 0.1, .dup = 0.1, .reorder = 0.1};
	const uint64_t sum = 512, reply = 1024;
	struct wr wr;

	world_init(w, 2, 22, &link);
	ep_init(c, w, 1, NULL);
	ep_init(b, w, 0,
		&(struct ep_params){.chain = true,
				    .counts = true,
				    .managed_send = true,
				    .managed_recv = true,
				    .depth = 2});
	ep_connect(b, c);
	loop_queue(
		a,
		(struct ep_params){.counts = true, .managed_send = true, .depth = 8, .watch = {b}},
		b);
	loop_queue(d, (struct ep_params){0}, b);
	/* the loop: WAIT; the argument becomes the operand of the ADD; ADD; the answer goes */
	post(a, (struct wr){.op = ROOST_OP_WAIT, .raddr = 2 | REL, .swap_add = 1, .flags = QUIET});
	wr = wr_rdma(ROOST_OP_WRITE, b, 0, 8, b, 0);
	wr.raddr = (uintptr_t)a->sq + (2ull << a->sq_shift) + offsetof(struct roost_wqe, swap_add);
	wr.rkey = a->sq_key;
	wr.flags = QUIET;
	post(a, wr);
	wr = wr_rdma(ROOST_OP_FETCH_ADD, b, 4096, 8, b, sum);
	wr.flags = QUIET;
	post(a, wr);
	post(a, wr_enable(ROOST_OP_RECV_ENABLE, b, 1));
	post(a, wr_enable(ROOST_OP_ENABLE, b, 2));
	post(a, wr_enable(ROOST_OP_ENABLE, a, 8));
	post(a, (struct wr){.op = ROOST_OP_NOP, .flags = QUIET});
	post(a, (struct wr){.op = ROOST_OP_NOP, .flags = QUIET});
	wr = wr_rdma(ROOST_OP_WRITE, b, sum, 8, c, reply);
	wr.flags = QUIET;
	post(b, wr);
	post(b, (struct wr){.op = ROOST_OP_NOP, .flags = QUIET});
	for (int i = 0; i < 2; i++)
		ep_post_recv(b, 0, NULL, 0);
	post(d, wr_enable(ROOST_OP_RECV_ENABLE, b, 1));
	post(d, wr_enable(ROOST_OP_ENABLE, a, 8));
	for (uint64_t i = 1; i <= 50; i++) {
		*word(c, 0) = i;
		wr = wr_rdma(ROOST_OP_WRITE_IMM, c, 0, 8, b, 0);
		wr.flags = QUIET;
		post(c, wr);
		world_run(w, world_now(w) + 100 * SEC);
		assert_int_equal(*word(c, reply), i * (i + 1) / 2);
	}
	ep_fini(d);
	ep_fini(a);
	ep_fini(b);
	ep_fini(c);
	world_fini(w);
}

/* A WAIT for a time of the clock, and one for a time that has passed. */
static void at_a_time(void **state)
{
	uint64_t start;

	world_init(w, 1, 22, NULL);
	loop_queue(a, (struct ep_params){0}, NULL);
	world_run(w, 5 * MSEC);
	start = world_now(w);
	post(a, wr_time(0, start + 7 * MSEC));
	post(a, (struct wr){.op = ROOST_OP_NOP, .wr_id = 1});
	post(a, wr_time(0, start)); /* long past then */
	post(a, wr_time(0, 0));
	post(a, (struct wr){.op = ROOST_OP_NOP, .wr_id = 2});
	world_run(w, start + 7 * MSEC - 1);
	assert_int_equal(atomic_load(&a->sidx.prod), 0);
	world_run(w, start + 7 * MSEC);
	assert_int_equal(atomic_load(&a->sidx.prod), 2);
	/* A time in the far future; the reset ends the WAIT. */
	post(a, wr_time(REL, UINT64_MAX));
	world_run(w, world_now(w) + 1000000 * SEC);
	assert_int_equal(nic_qp_state(a->qp), NIC_QPS_RTS);
	ep_modify(a, &(struct nic_qp_attr){.state = NIC_QPS_RESET}, NIC_QPA_STATE);
	ep_connect_self(a);
	post(a, wr_time(REL, MSEC));
	post(a, (struct wr){.op = ROOST_OP_NOP});
	start = world_now(w);
	world_run(w, start + MSEC - 1);
	assert_int_equal(atomic_load(&a->sidx.prod), 2);
	world_run(w, start + MSEC);
	assert_int_equal(atomic_load(&a->sidx.prod), 3);
	ep_fini(a);
	world_fini(w);
}

/* A chain that the clock starts again and again, on loop-back and between packets. */
static void periodic(void **state)
{
	for (unsigned far = 0; far < 2; far++) {
		struct ep_params p = {
			.chain = true, .counts = true, .managed_send = true, .depth = 4};
		struct wr wr;

		world_init(w, 2, 22, &(struct sim_params){.delay_ns = 100});
		ep_init(a, w, 0, &p);
		ep_init(b, w, far, &p);
		loop_queue(d, (struct ep_params){0}, a);
		ep_connect(a, b);
		post(a, wr_time(REL, 3 * MSEC));
		wr = wr_rdma(ROOST_OP_FETCH_ADD, a, 4096, 8, b, 0);
		wr.swap_add = 1;
		wr.flags = QUIET;
		post(a, wr);
		post(a, wr_enable(ROOST_OP_ENABLE, a, 4));
		post(a, (struct wr){.op = ROOST_OP_NOP, .flags = QUIET});
		post(d, wr_enable(ROOST_OP_ENABLE, a, 4));
		world_run(w, 301 * MSEC);
		assert_in_range(*word(b, 0), 99, 100);
		ep_fini(d);
		ep_fini(a);
		ep_fini(b);
		world_fini(w);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(write_imm),
		cmocka_unit_test(at_a_time),
		cmocka_unit_test(periodic),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
