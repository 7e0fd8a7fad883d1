/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Chains of several tenants on one NIC of two processing units and two ports: rate limits, the
 * share of a turn, the audit, the end of a program, and keys.
 */
#include <errno.h>
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "world.h"

#define REL   ROOST_CHAIN_RELATIVE
#define QUIET ROOST_WQE_SOLICITED /* a flag, so that ep_post() does not ask for a completion */
#define LOOPS 100

static struct world W, *const w = &W;
static struct ep A, B, C, *const a = &A, *const b = &B, *const c = &C;

static void open_world(unsigned nics)
{
	world_init_shape(w, &(struct world_shape){.nics = nics, .pus = 2, .ports = 2}, 20,
			 &(struct sim_params){.delay_ns = 1000});
}

static void loop_queue(struct ep *e, struct ep_params p, const struct ep *of)
{
	p.chain = true;
	p.pd_of = of;
	ep_init(e, w, 0, &p);
	ep_connect_self(e);
}

static void post(struct ep *e, struct wr wr)
{
	ep_post(e, &wr);
}

static void run(uint64_t ns)
{
	world_run(w, world_now(w) + ns);
}

static struct wr wr_enable(const struct ep *of, uint32_t count)
{
	return (struct wr){.op = ROOST_OP_ENABLE,
			   .raddr = nic_qp_num(of->qp) | REL,
			   .swap_add = count,
			   .flags = QUIET};
}

static struct wr wr_add(const struct ep *e, const struct ep *at)
{
	struct wr wr = wr_rdma(ROOST_OP_FETCH_ADD, e, 4096, 8, at, 0);

	wr.swap_add = 1;
	wr.flags = QUIET;
	return wr;
}

static uint64_t *word(const struct ep *e)
{
	return (uint64_t *)e->mem;
}

/* A chain without end: an addition at `at`, and an ENABLE of the next turn. */
static void endless(struct ep *e, const struct ep *at)
{
	post(e, wr_add(e, at));
	post(e, wr_enable(e, 2));
}

static uint32_t executed(const struct ep *e)
{
	return atomic_load(&e->sqi.cons);
}

/* ---- the rate ---- */

#define RATE  20000u
#define BURST 10u

static void within_the_rate(uint32_t wqes, uint64_t ns)
{
	const uint64_t most = BURST + RATE * ns / SEC;

	assert_in_range(wqes, most - 1, most);
}

/* The limit holds to the WQE, on each PU and port, on loop-back and with packets. */
static void rate_limit(void **state)
{
	const struct ep_params p = {.counts = true,
				    .managed_send = true,
				    .depth = 2,
				    .limit = {.rate_limit = RATE, .rate_burst = BURST}};

	for (unsigned i = 0; i < 8; i++) {
		struct ep_params q = p;
		const bool far = i & 4;
		uint64_t start;

		q.pu = i & 1;
		q.port = i >> 1 & 1;
		q.chain = true;
		open_world(2);
		ep_init(a, w, 0, &q);
		loop_queue(b, (struct ep_params){.pu = q.pu}, a);
		if (far) {
			ep_init(c, w, 1, &q);
			ep_connect(a, c);
		} else {
			ep_connect_self(a);
		}
		endless(a, far ? c : a);
		start = world_now(w);
		post(b, wr_enable(a, 2));
		for (unsigned k = 1; k <= 5; k++) {
			run(20 * MSEC);
			within_the_rate(executed(a), world_now(w) - start);
		}
		ep_fini(b);
		if (far)
			ep_fini(c);
		ep_fini(a);
		world_fini(w);
	}
}

/* A queue that has paused has its burst again; the owner may change the limit while it runs. */
static void rate_changes(void **state)
{
	struct nic_chain_limit limit = {.rate_limit = RATE, .rate_burst = BURST};
	uint32_t before;

	open_world(1);
	loop_queue(a,
		   (struct ep_params){
			   .counts = true, .managed_send = true, .depth = 64, .limit = limit},
		   NULL);
	loop_queue(b, (struct ep_params){0}, a);
	for (int i = 0; i < 64; i++)
		post(a, wr_add(a, a));
	for (unsigned k = 1; k <= 3; k++) {
		post(b, wr_enable(a, BURST)); /* all at once: no queue waits */
		run(1000);
		assert_int_equal(*word(a), k * BURST);
		run(SEC);
	}
	post(b, wr_enable(a, UINT32_MAX / 4));
	run(10 * MSEC);
	assert_in_range(*word(a), 4 * BURST + RATE / 100 - 2, 4 * BURST + RATE / 100);
	limit.rate_limit = 1;
	limit.rate_burst = 1;
	assert_int_equal(nic_qp_limit_chain(a->qp, &limit, world_now(w)), 0);
	before = executed(a);
	run(10 * SEC);
	assert_in_range(executed(a) - before, 10, 11);
	limit = (struct nic_chain_limit){0};
	before = executed(a);
	assert_int_equal(nic_qp_limit_chain(a->qp, &limit, world_now(w)), 0);
	for (int i = 0; i < 10; i++)
		world_step(w, world_now(w) + MSEC);
	assert_true(executed(a) - before > 1000);
	assert_int_equal(nic_qp_limit_chain(b->qp, &limit, 0), -EINVAL);
	/* A limit that throttles the queue again, and the reset of a throttled queue. */
	limit.rate_limit = limit.rate_burst = 1;
	assert_int_equal(nic_qp_limit_chain(a->qp, &limit, world_now(w)), 0);
	run(2 * MSEC);
	ep_modify(a, &(struct nic_qp_attr){.state = NIC_QPS_RESET}, NIC_QPA_STATE);
	before = executed(a);
	run(10 * SEC);
	assert_int_equal(executed(a), before);
	ep_fini(b);
	ep_fini(a);
	world_fini(w);
}

static void limits_are_checked(void **state)
{
	struct nic_chain_attr attr = {.limit = {.rate_limit = 1}};

	open_world(1);
	ep_init(a, w, 0, &(struct ep_params){.counts = true});
	assert_int_equal(nic_qp_set_chain(a->nic, a->qp, &attr), -EINVAL);
	attr = (struct nic_chain_attr){.limit = {.turn_limit = 1}};
	assert_int_equal(nic_qp_set_chain(a->nic, a->qp, &attr), -EINVAL);
	attr = (struct nic_chain_attr){.managed_send = true, .audit = a->rcq};
	assert_int_equal(nic_qp_set_chain(a->nic, a->qp, &attr), -EINVAL);
	assert_false(nic_qp_has_chain(a->qp));
	ep_fini(a);
	world_fini(w);
}

/* ---- the turn ---- */

static int by_size(const void *x, const void *y)
{
	return *(const uint32_t *)x < *(const uint32_t *)y ? -1 : 1;
}

/*
 * WQEs of chains that the PU executes from the post of another tenant's WRITE to its completion:
 * the 99th percentile of 200 WRITEs, while `loops` chains without end run on both PUs.
 */
static uint32_t p99(unsigned loops, struct nic_chain_limit limit)
{
	static struct ep loop[LOOPS];
	uint32_t waits[200];
	struct roost_cqe cqe;

	open_world(1);
	ep_init(c, w, 0, &(struct ep_params){.port = 1});
	ep_connect_self(c);
	for (unsigned i = 0; i < loops; i++) {
		struct ep starter;

		loop_queue(&loop[i],
			   (struct ep_params){.counts = true,
					      .managed_send = true,
					      .depth = 2,
					      .mem = 8192,
					      .pu = i % 8 == 7,
					      .port = i % 2,
					      .limit = limit},
			   NULL);
		loop_queue(&starter, (struct ep_params){.pu = i % 8 == 7, .mem = 64}, &loop[i]);
		endless(&loop[i], &loop[i]);
		post(&starter, wr_enable(&loop[i], 2));
		world_step(w, world_now(w) + MSEC);
		world_step(w, world_now(w) + MSEC);
		ep_fini(&starter);
	}
	for (unsigned k = 0; k < 200; k++) {
		uint32_t before = 0, after = 0;

		for (unsigned i = 0; i < k % 7; i++)
			world_step(w, world_now(w) + MSEC);
		for (unsigned i = 0; i < loops; i++)
			before += i % 8 == 7 ? 0 : executed(&loop[i]);
		post(c, wr_rdma(ROOST_OP_WRITE, c, 0, 64, c, 128));
		assert_true(ep_wait_send(c, &cqe, SEC));
		for (unsigned i = 0; i < loops; i++)
			after += i % 8 == 7 ? 0 : executed(&loop[i]);
		waits[k] = after - before;
	}
	for (unsigned i = 0; i < loops; i++) {
		assert_true(executed(&loop[i]) > 0); /* each continues */
		ep_fini(&loop[i]);
	}
	ep_fini(c);
	world_fini(w);
	qsort(waits, 200, sizeof(waits[0]), by_size);
	return waits[197];
}

static void turns_are_shared(void **state)
{
	const uint32_t one = p99(1, (struct nic_chain_limit){0});
	const uint32_t many = p99(LOOPS, (struct nic_chain_limit){0});
	const uint32_t turns = p99(LOOPS, (struct nic_chain_limit){.turn_limit = 2});
	const uint32_t rates =
		p99(LOOPS, (struct nic_chain_limit){.rate_limit = 1000, .rate_burst = 1});

	print_message("WQEs of chains while a WRITE waits, p99: 1 chain without end %u, %u chains "
		      "%u, with 2 WQEs per turn each %u, with 1,000 WQEs per second each %u\n",
		      one, LOOPS, many, turns, rates);
	assert_in_range(one, 1, 2 * 64);
	/* A turn runs at most 64 queues, so the WRITE may wait for two. */
	assert_true(many <= 3 * NIC_CHAIN_TURN);
	assert_true(turns <= 3 * 2 * 64);
	assert_true(rates < turns);
}

/* ---- the audit ---- */

static void audit(void **state)
{
	static const enum roost_op ops[] = {ROOST_OP_NOP, ROOST_OP_FETCH_ADD, ROOST_OP_ENABLE};
	struct ep_params p = {.counts = true, .managed_send = true, .depth = 4, .audit = c};
	struct roost_cqe cqe;
	struct wr bad;

	open_world(1);
	loop_queue(c, (struct ep_params){.pu = 1, .cq_depth = 64}, NULL); /* of another tenant */
	loop_queue(a, p, NULL);
	loop_queue(b, (struct ep_params){0}, a);
	post(a, (struct wr){.op = ROOST_OP_NOP, .wr_id = 100, .flags = QUIET});
	post(a, wr_add(a, a));
	post(a, wr_enable(a, 1)); /* WQE 3 in the last turn */
	bad = wr_rdma(ROOST_OP_WRITE, a, 0, 8, c, 0);
	bad.flags = QUIET;
	post(a, bad);
	post(b, wr_enable(a, 3));
	run(MSEC);
	for (uint32_t i = 0; i < 3; i++) {
		assert_true(ep_poll_recv(c, &cqe));
		assert_int_equal(cqe.qpn, nic_qp_num(a->qp));
		assert_int_equal(cqe.wqe, i);
		assert_int_equal(cqe.imm, ops[i]);
		assert_int_equal(cqe.status, NIC_WC_SUCCESS);
		assert_int_equal(cqe.wr_id, i ? 0 : 100);
	}
	assert_true(ep_poll_recv(c, &cqe));
	assert_int_equal(cqe.wqe, 3);
	assert_int_equal(cqe.imm, ROOST_OP_WRITE);
	assert_int_equal(cqe.status, NIC_WC_REM_ACCESS_ERR);
	assert_false(ep_poll_recv(c, &cqe));
	assert_int_equal(atomic_load(&a->sidx.prod), 0); /* no WQE asked for a completion */
	assert_int_equal(nic_cq_destroy(c->nic, c->rcq), -EBUSY);
	ep_fini(b);
	ep_fini(a);
	/* A program without a working audit does not continue. */
	loop_queue(a, p, NULL);
	loop_queue(b, (struct ep_params){0}, a);
	endless(a, a);
	endless(a, a);
	post(b, wr_enable(a, 4));
	for (int i = 0; i < 20; i++)
		world_step(w, world_now(w) + MSEC);
	assert_int_equal(nic_qp_state(a->qp), NIC_QPS_ERR);
	assert_in_range(executed(a), 64, 64 + 8);
	assert_int_equal(nic_qp_state(c->qp), NIC_QPS_RTS);
	ep_fini(b);
	ep_fini(a);
	ep_fini(c);
	world_fini(w);
}

/* ---- the end of a program ---- */

/*
 * A program of four queues on two PUs: one runs, one is throttled by its rate, one waits for a
 * completion, one for a time. All end; the program of another domain continues.
 */
static void stop(void **state)
{
	const struct ep_params p = {.counts = true, .managed_send = true, .depth = 2};
	struct ep queue[4], starter[2];
	uint64_t before;

	open_world(1);
	for (unsigned i = 0; i < 4; i++) {
		struct ep_params q = p;

		q.pu = i % 2;
		q.limit.rate_limit = i == 1;
		loop_queue(&queue[i], q, i ? &queue[0] : NULL);
	}
	endless(&queue[0], &queue[0]);
	endless(&queue[1], &queue[1]);
	post(&queue[2], (struct wr){.op = ROOST_OP_WAIT, .swap_add = 1000});
	post(&queue[2], wr_add(&queue[2], &queue[2]));
	post(&queue[3],
	     (struct wr){.op = ROOST_OP_WAIT, .raddr = ROOST_CHAIN_TIME | REL, .swap_add = SEC});
	post(&queue[3], wr_add(&queue[3], &queue[3]));
	loop_queue(c, (struct ep_params){.counts = true, .managed_send = true, .depth = 2}, NULL);
	endless(c, c);
	for (unsigned i = 0; i < 2; i++) {
		loop_queue(&starter[i], (struct ep_params){.pu = i}, i ? &queue[0] : c);
		for (unsigned k = 0; k < 4; k++)
			if (i)
				post(&starter[i], wr_enable(&queue[k], 2));
	}
	post(&starter[0], wr_enable(c, 2));
	for (int i = 0; i < 20; i++)
		world_step(w, world_now(w) + 10000);
	assert_true(*word(&queue[0]) > 100 && *word(&queue[1]) > 10);
	assert_int_equal(nic_pd_stop_chains(w->nic[0], queue[0].pd), 5);
	for (unsigned i = 0; i < 4; i++) {
		assert_int_equal(nic_qp_state(queue[i].qp), NIC_QPS_ERR);
		before = *word(&queue[i]);
		for (int k = 0; k < 20; k++)
			world_step(w, world_now(w) + SEC);
		assert_int_equal(*word(&queue[i]), before);
	}
	before = *word(c);
	for (int k = 0; k < 20; k++)
		world_step(w, world_now(w) + SEC);
	assert_true(*word(c) > before);
	assert_int_equal(nic_pd_stop_chains(w->nic[0], c->pd), 2);
	run(10 * SEC); /* nothing is left to do */
	assert_false(nic_pending(w->nic[0], 0) || nic_pending(w->nic[0], 1));
	for (unsigned i = 0; i < 2; i++)
		ep_fini(&starter[i]);
	for (unsigned i = 4; i--;)
		ep_fini(&queue[i]);
	ep_fini(c);
	world_fini(w);
}

/* ---- keys ---- */

/*
 * A program has the keys of another tenant, on the same PU and port or on others. It cannot read or
 * write with them, at either end of a WQE.
 */
static void keys_confine(void **state)
{
	static const enum roost_op ops[] = {ROOST_OP_WRITE, ROOST_OP_READ, ROOST_OP_CMP_SWAP,
					    ROOST_OP_MAX, ROOST_OP_FETCH_ADD};
	static const uint8_t fresh[4096];

	for (unsigned i = 0; i < 4 * 2 * sizeof(ops) / sizeof(ops[0]); i++) {
		const bool local = i & 4;
		struct wr wr = {0};

		open_world(1);
		loop_queue(c, (struct ep_params){.pu = i & 1, .port = i >> 1 & 1}, NULL);
		loop_queue(a, (struct ep_params){.counts = true, .managed_send = true, .depth = 2},
			   NULL);
		loop_queue(b, (struct ep_params){0}, a);
		memset(a->mem, 1, 4096);
		if (local) /* the program's own memory, and the other's at the near end */
			wr = wr_rdma(ops[i / 8], c, 0, 8, a, 0);
		else
			wr = wr_rdma(ops[i / 8], a, 0, 8, c, 0);
		wr.swap_add = 7;
		post(a, wr);
		post(b, wr_enable(a, 1));
		run(MSEC);
		assert_int_equal(nic_qp_state(a->qp), NIC_QPS_ERR);
		assert_int_equal(nic_qp_state(c->qp), NIC_QPS_RTS);
		assert_memory_equal(c->mem, fresh, 4096);
		for (unsigned k = 8; k < 4096; k++)
			assert_int_equal(a->mem[k], 1);
		ep_fini(b);
		ep_fini(a);
		ep_fini(c);
		world_fini(w);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(rate_limit),
		cmocka_unit_test(rate_changes),
		cmocka_unit_test(limits_are_checked),
		cmocka_unit_test(turns_are_shared),
		cmocka_unit_test(audit),
		cmocka_unit_test(stop),
		cmocka_unit_test(keys_confine),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
