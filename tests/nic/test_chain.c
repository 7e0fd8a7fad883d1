/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Chains: WAIT, ENABLE, RECV_ENABLE, managed queues, calculations, and the three orders of
 * docs/chains.md. Most tests run twice: with all counts at 0, and short of 2^32.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "../common/counts.h"
#include "world.h"

#define REL   ROOST_CHAIN_RELATIVE
#define QUIET ROOST_WQE_SOLICITED /* a flag, so that ep_post() does not ask for a completion */

static struct world W, *const w = &W;
static struct ep A, B, C, *const a = &A, *const b = &B, *const c = &C;
static void open_world(unsigned nics, unsigned pus, const struct sim_params *link)
{
	world_init_shape(w, &(struct world_shape){.nics = nics, .pus = pus}, 77, link);
}

/* A queue of its own PD, or of `of`'s, that is connected to itself. */
static void loop_queue(struct ep *e, struct ep_params p, const struct ep *of)
{
	p.chain = true;
	p.first = first;
	p.pd_of = of;
	ep_init(e, w, 0, &p);
	ep_connect_self(e);
}

static void run(void)
{
	world_run(w, world_now(w) + MSEC);
}

static void post(struct ep *e, struct wr wr)
{
	ep_post(e, &wr);
}

static struct wr wr_wait(uint32_t watch, uint64_t relative, uint32_t count)
{
	return (struct wr){
		.op = ROOST_OP_WAIT, .raddr = watch | relative, .swap_add = count, .flags = QUIET};
}

static struct wr wr_enable(const struct ep *of, uint64_t relative, uint32_t count)
{
	return (struct wr){.op = ROOST_OP_ENABLE,
			   .raddr = nic_qp_num(of->qp) | relative,
			   .swap_add = count,
			   .flags = QUIET};
}

static struct wr wr_add(const struct ep *e, uint64_t off, uint64_t n)
{
	struct wr wr = wr_rdma(ROOST_OP_FETCH_ADD, e, 4096, 8, e, off);

	wr.swap_add = n;
	return wr;
}

static uint64_t *word(const struct ep *e, uint64_t off)
{
	return (uint64_t *)(e->mem + off);
}

static uint64_t wqe_addr(const struct ep *e, uint32_t n)
{
	return (uintptr_t)e->sq + ((uint64_t)(n & (e->p.depth - 1)) << e->sq_shift);
}

static uint32_t count_of(const struct roost_cq_index *i)
{
	return atomic_load(&i->prod);
}

/* ---- WAIT ---- */

static void wait_counts_completions(void **state)
{
	open_world(1, 1, NULL);
	loop_queue(b, (struct ep_params){.counts = true}, NULL);
	loop_queue(a, (struct ep_params){.watch = {b}}, b);
	for (int i = 0; i < 6; i++)
		ep_post_recv(b, 0, NULL, 0);
	post(a, wr_wait(2, REL, 2));
	post(a, wr_add(a, 0, 1));
	post(a, wr_wait(2, REL, 2));
	post(a, wr_add(a, 0, 1));
	post(a, wr_wait(2, 0, first + 5));
	post(a, wr_add(a, 0, 1));
	post(a, wr_wait(2, 0, first + 1)); /* long past */
	post(a, wr_add(a, 0, 1));
	for (unsigned sends = 0; sends < 6; sends++) {
		static const uint64_t expect[] = {0, 0, 1, 1, 2, 4};

		run();
		assert_int_equal(*word(a, 0), expect[sends]);
		post(b, (struct wr){.op = ROOST_OP_SEND});
	}
	run();
	assert_int_equal(count_of(&b->ridx), first + 6);
	/* Relative to the last relative WAIT, not to the count at its end. */
	post(a, wr_wait(2, REL, 1));
	post(a, wr_wait(2, REL, 1));
	post(a, wr_add(a, 0, 1));
	run();
	assert_int_equal(*word(a, 0), 5);
	ep_fini(a);
	ep_fini(b);
	world_fini(w);
}

/* Errors do not count: a queue that waits for a failed queue does not continue. */
static void wait_counts_no_errors(void **state)
{
	struct wr bad;

	open_world(1, 1, NULL);
	loop_queue(b, (struct ep_params){0}, NULL);
	loop_queue(a, (struct ep_params){.watch = {b}}, b);
	for (int i = 0; i < 8; i++)
		ep_post_recv(b, 0, NULL, 0);
	post(a, wr_wait(2, REL, 1));
	post(a, wr_add(a, 0, 1));
	bad = wr_rdma(ROOST_OP_WRITE, b, 0, 8, b, 0);
	bad.rkey ^= 1;
	post(b, bad);
	run();
	assert_int_equal(nic_qp_state(b->qp), NIC_QPS_ERR);
	assert_int_equal(count_of(&b->ridx), first + 8); /* flushed */
	assert_int_equal(*word(a, 0), 0);
	ep_fini(a);
	ep_fini(b);
	world_fini(w);
}

/* A CQ that counts only takes any number of completions. */
static void counting_never_overruns(void **state)
{
	open_world(1, 1, NULL);
	loop_queue(a, (struct ep_params){.counts = true, .cq_depth = 4, .depth = 16}, NULL);
	for (int i = 0; i < 1000; i++) {
		post(a, wr_add(a, 0, 1));
		if (i % 16 == 15)
			run();
	}
	run();
	assert_int_equal(*word(a, 0), 1000);
	assert_int_equal(count_of(&a->sidx), first + 1000);
	assert_int_equal(w->cq_errors, 0);
	ep_fini(a);
	world_fini(w);
}

/* The CQ belongs to one PU, the queue that waits to the other. */
static void wait_for_another_pu(void **state)
{
	open_world(1, 2, NULL);
	loop_queue(b, (struct ep_params){.pu = 1, .counts = true}, NULL);
	loop_queue(a, (struct ep_params){.pu = 0, .watch = {b}}, NULL);
	for (int i = 0; i < 4; i++)
		ep_post_recv(b, 0, NULL, 0);
	for (unsigned i = 1; i <= 4; i++) {
		post(a, wr_wait(2, REL, 1));
		post(a, wr_add(a, 0, 1));
		run();
		assert_int_equal(*word(a, 0), i - 1);
		post(b, (struct wr){.op = ROOST_OP_SEND});
		run();
		assert_int_equal(*word(a, 0), i);
	}
	ep_fini(a);
	assert_int_equal(nic_cq_destroy(b->nic, b->rcq), -EBUSY);
	ep_fini(b);
	world_fini(w);
}

static void watched_cq_stays(void **state)
{
	struct nic_cq *cq;

	open_world(1, 1, NULL);
	loop_queue(b, (struct ep_params){.counts = true}, NULL);
	loop_queue(a, (struct ep_params){.watch = {b}}, b);
	cq = b->rcq;
	post(a, wr_wait(2, REL, 1));
	run();
	nic_qp_destroy(b->nic, b->qp); /* the user of the CQ goes, its watcher stays */
	assert_int_equal(nic_cq_destroy(b->nic, cq), -EBUSY);
	ep_modify(a, &(struct nic_qp_attr){.state = NIC_QPS_ERR}, NIC_QPA_STATE);
	ep_fini(a);
	assert_int_equal(nic_cq_destroy(b->nic, cq), 0);
	assert_int_equal(nic_cq_destroy(b->nic, b->scq), 0);
	assert_int_equal(nic_mr_deregister(b->nic, b->key), 0);
	assert_int_equal(nic_mr_deregister(b->nic, b->sq_key), 0);
	assert_int_equal(nic_mr_deregister(b->nic, b->rq_key), 0);
	assert_int_equal(nic_pd_free(b->nic, b->pd), 0);
	ep_forget(b);
	world_fini(w);
}

/* ---- managed queues ---- */

static void enable_lets_wqes_go(void **state)
{
	open_world(1, 1, NULL);
	loop_queue(b, (struct ep_params){.managed_send = true, .counts = true, .depth = 8}, NULL);
	loop_queue(a, (struct ep_params){0}, b);
	for (int i = 0; i < 6; i++)
		post(b, wr_add(b, 0, 1));
	run();
	assert_int_equal(*word(b, 0), 0);
	post(a, wr_enable(b, 0, first + 2));
	run();
	assert_int_equal(*word(b, 0), 2);
	post(a, wr_enable(b, REL, 1));
	run();
	assert_int_equal(*word(b, 0), 3);
	post(a, wr_enable(b, 0, first + 1)); /* below the count: nothing */
	run();
	assert_int_equal(*word(b, 0), 3);
	post(a, wr_enable(b, REL, 4)); /* one more than there are, until it is posted */
	run();
	assert_int_equal(*word(b, 0), 6);
	post(b, wr_add(b, 0, 1));
	run();
	assert_int_equal(*word(b, 0), 7);
	/* All have been posted once now: the queue begins again. */
	post(b, wr_add(b, 0, 1));
	post(a, wr_enable(b, 0, first + 1000));
	run();
	assert_int_equal(*word(b, 0), 1000);
	assert_int_equal(count_of(&b->sidx), first + 1000);
	ep_fini(a);
	ep_fini(b);
	world_fini(w);
}

/* Two WQEs run without end: an ADD, and an ENABLE of both. No program posts. */
static void recycled_queue_runs_alone(void **state)
{
	uint64_t before;

	open_world(1, 1, NULL);
	loop_queue(b, (struct ep_params){.managed_send = true, .counts = true, .depth = 2}, NULL);
	loop_queue(a, (struct ep_params){0}, b);
	loop_queue(c, (struct ep_params){0}, NULL);
	post(b, wr_add(b, 0, 1));
	post(b, wr_enable(b, REL, 2));
	post(a, wr_enable(b, REL, 2));
	for (int i = 0; i < 3000; i++)
		world_step(w, world_now(w) + MSEC);
	assert_true(*word(b, 0) > 10000);
	/* The others are served meanwhile: 64 WQEs take few turns. */
	for (int i = 0; i < 50; i++)
		post(c, wr_add(c, 0, 1));
	before = *word(b, 0);
	for (int i = 0; i < 5; i++)
		world_step(w, world_now(w) + MSEC);
	assert_int_equal(*word(c, 0), 50);
	assert_in_range(*word(b, 0) - before, 1, 5 * 64);
	/* A reset stops it, and the posted WQEs count as taken. */
	ep_modify(b, &(struct nic_qp_attr){.state = NIC_QPS_RESET}, NIC_QPA_STATE);
	before = *word(b, 0);
	run();
	assert_int_equal(*word(b, 0), before);
	ep_connect_self(b);
	post(b, wr_add(b, 0, 1));
	run();
	assert_int_equal(*word(b, 0), before);
	post(a, wr_enable(b, REL, 1));
	run();
	assert_int_equal(*word(b, 0), before + 1);
	ep_fini(a);
	ep_fini(b);
	ep_fini(c);
	world_fini(w);
}

/* A receive queue of four serves a hundred SENDs: each lets one receive more go. */
static void receives_are_recycled(void **state)
{
	struct wr more;

	open_world(1, 1, NULL);
	loop_queue(b, (struct ep_params){.managed_recv = true, .counts = true, .depth = 4}, NULL);
	loop_queue(a, (struct ep_params){.watch = {b}}, b);
	more = (struct wr){.op = ROOST_OP_RECV_ENABLE,
			   .raddr = nic_qp_num(b->qp) | REL,
			   .swap_add = 1,
			   .flags = QUIET};
	for (unsigned i = 0; i < 4; i++)
		ep_post_recv(b, 0, &(struct roost_sge){(uintptr_t)b->mem + 64 + 8 * i, 8, b->key},
			     1);
	for (uint64_t i = 0; i < 100; i++) {
		*word(b, 0) = i + 1;
		post(b, (struct wr){.op = ROOST_OP_SEND, .sge = {ep_sge(b, 0, 8)}, .num_sge = 1});
		run();
		assert_int_equal(count_of(&b->ridx),
				 first + (uint32_t)i); /* it waits for the receive */
		post(a, more);
		run();
		assert_int_equal(count_of(&b->ridx), first + (uint32_t)i + 1);
		assert_int_equal(*word(b, 64 + 8 * (i % 4)), i + 1);
	}
	ep_fini(a);
	ep_fini(b);
	world_fini(w);
}

/* An absolute RECV_ENABLE lets the receives below a count go; a lower count changes nothing. */
static void receives_up_to_a_count(void **state)
{
	static const struct {
		uint64_t relative;
		uint32_t count, received;
	} steps[] = {{0, 2, 2}, {0, 1, 2}, {REL, 1, 3},	 {0, 4, 4},
		     {0, 9, 9}, {0, 7, 9}, {REL, 2, 11}, {0, 1000, 12}};
	struct wr wr;

	open_world(1, 1, NULL);
	loop_queue(b, (struct ep_params){.managed_recv = true, .counts = true, .depth = 16}, NULL);
	loop_queue(a, (struct ep_params){0}, b);
	for (unsigned i = 0; i < 16; i++)
		ep_post_recv(b, 0, NULL, 0);
	for (unsigned i = 0; i < 12; i++)
		post(b, (struct wr){.op = ROOST_OP_SEND});
	for (unsigned i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
		wr = wr_enable(b, steps[i].relative,
			       steps[i].count + (steps[i].relative ? 0 : first));
		wr.op = ROOST_OP_RECV_ENABLE;
		post(a, wr);
		run();
		assert_int_equal(count_of(&b->ridx), first + steps[i].received);
	}
	ep_fini(a);
	ep_fini(b);
	world_fini(w);
}

/*
 * A chain starts or stops the completions of a WQE: WQE 0 copies the flags of WQE 1. Both ways in
 * turns, in a recycled queue.
 */
static void flag_is_rewritten(void **state)
{
	const uint16_t flags[] = {ROOST_WQE_SIGNALED, 0, 0, ROOST_WQE_SIGNALED, 0};
	uint32_t signaled = 0;
	struct wr wr;

	for (int begin = 0; begin < 2; begin++) {
		open_world(1, 1, NULL);
		loop_queue(b, (struct ep_params){.managed_send = true, .counts = true, .depth = 2},
			   NULL);
		loop_queue(a, (struct ep_params){0}, b);
		wr = wr_rdma(ROOST_OP_WRITE, b, 8, 2, b, 0);
		wr.raddr = wqe_addr(b, first + 1) + offsetof(struct roost_wqe, flags);
		wr.rkey = b->sq_key;
		wr.flags = QUIET;
		post(b, wr);
		wr = wr_add(b, 0, 1);
		wr.flags = begin ? ROOST_WQE_SIGNALED : QUIET;
		post(b, wr);
		signaled = 0;
		for (unsigned i = 0; i < sizeof(flags) / sizeof(flags[0]); i++) {
			memcpy(b->mem + 8, &flags[(i + (unsigned)begin) % 5], 2);
			signaled += flags[(i + (unsigned)begin) % 5] != 0;
			post(a, wr_enable(b, REL, 2));
			run();
			assert_int_equal(*word(b, 0), i + 1);
			assert_int_equal(count_of(&b->sidx), first + signaled);
		}
		ep_fini(a);
		ep_fini(b);
		world_fini(w);
	}
}

/*
 * One SEND brings 16 arguments: the 16 entries of the receive are the operands of 16 WQEs, which
 * add them to 16 words. Receive and WQEs are recycled.
 */
static void receive_of_16_entries(void **state)
{
	struct roost_sge sge[ROOST_MAX_SGE];
	uint64_t sum[ROOST_MAX_SGE] = {0};
	struct wr more;

	assert_int_equal(ROOST_MAX_SGE, 16);
	open_world(1, 1, NULL);
	loop_queue(c, (struct ep_params){.managed_recv = true, .depth = 1, .max_sge = 16}, NULL);
	loop_queue(b, (struct ep_params){.managed_send = true, .depth = 32, .watch = {c}}, c);
	loop_queue(a, (struct ep_params){0}, c);
	post(b, wr_wait(2, REL, 1));
	for (uint32_t i = 0; i < 16; i++) {
		sge[i] = (struct roost_sge){wqe_addr(b, first + 1 + i) +
						    offsetof(struct roost_wqe, swap_add),
					    8, b->sq_key};
		post(b, wr_add(b, 8 * i, 0));
	}
	ep_post_recv(c, 0, sge, 16);
	more = wr_enable(c, REL, 1);
	more.op = ROOST_OP_RECV_ENABLE;
	for (int i = 17; i < 32; i++)
		post(b, (struct wr){.op = ROOST_OP_NOP, .flags = QUIET});
	for (uint64_t round = 1; round <= 5; round++) {
		for (uint32_t i = 0; i < 16; i++) {
			*word(c, 8 * i) = round * 100 + i;
			sum[i] += round * 100 + i;
		}
		post(a, more);
		post(a, wr_enable(b, REL, 32));
		post(c, (struct wr){.op = ROOST_OP_SEND, .sge = {ep_sge(c, 0, 128)}, .num_sge = 1});
		run();
		assert_memory_equal(b->mem, sum, sizeof(sum));
	}
	ep_fini(a);
	ep_fini(b);
	ep_fini(c);
	world_fini(w);
}

/* ---- the three orders ---- */

/*
 * WQE 1 is rewritten by WQE 0: its operand becomes 5. In a managed queue it is fetched behind
 * WQE 0 (doorbell order). An ordinary queue fetched both before: neither queue order nor a WAIT
 * between them (completion order) shows the new operand.
 */
static uint64_t rewritten(bool managed, bool waits)
{
	struct wr change;
	uint64_t result;

	open_world(1, 1, NULL);
	loop_queue(b, (struct ep_params){.managed_send = managed, .counts = true}, NULL);
	loop_queue(a, (struct ep_params){0}, b);
	*word(b, 8) = 5;
	change = wr_rdma(ROOST_OP_WRITE, b, 8, 8, b, 0);
	change.raddr = wqe_addr(b, first + waits + 1) + offsetof(struct roost_wqe, swap_add);
	change.rkey = b->sq_key;
	post(b, change);
	if (waits)
		post(b, wr_wait(0, REL, 1));
	post(b, wr_add(b, 0, 1));
	if (managed)
		post(a, wr_enable(b, REL, 3));
	run();
	result = *word(b, 0);
	ep_fini(a);
	ep_fini(b);
	world_fini(w);
	return result;
}

static void doorbell_order(void **state)
{
	assert_int_equal(rewritten(false, false), 1);
	assert_int_equal(rewritten(false, true), 1);
	assert_int_equal(rewritten(true, false), 5);
	assert_int_equal(rewritten(true, true), 5);
}

/*
 * A READ, and a WRITE of the bytes that were read. In queue order the WRITE leaves before the
 * answer to the READ arrives; a WAIT for the READ's completion (completion order) delays the WRITE.
 */
static uint64_t read_then_written(bool waits)
{
	struct ep_params p = {.chain = true, .first = first};
	uint64_t result;

	open_world(2, 1, &(struct sim_params){.delay_ns = 5000});
	ep_init(a, w, 0, &p);
	ep_init(b, w, 1, &p);
	ep_connect(a, b);
	*word(b, 0) = 7;
	post(a, wr_rdma(ROOST_OP_READ, a, 0, 8, b, 0));
	if (waits)
		post(a, wr_wait(0, REL, 1));
	post(a, wr_rdma(ROOST_OP_WRITE, a, 0, 8, b, 8));
	run();
	result = *word(b, 8);
	ep_fini(a);
	ep_fini(b);
	world_fini(w);
	return result;
}

static void completion_order(void **state)
{
	assert_int_equal(read_then_written(false), 0);
	assert_int_equal(read_then_written(true), 7);
}

/*
 * WQEs without packets between others, on a bad link. Retransmission repeats packets and executes
 * no ENABLE or WAIT twice; WQEs behind a WAIT are not sent before it is satisfied.
 */
static void once_despite_loss(void **state)
{
	const struct sim_params link = {.delay_ns = 5000, .loss = 0.2, .dup = 0.1, .reorder = 0.1};
	const unsigned rounds = 24;
	struct ep_params p = {.chain = true, .first = first, .depth = 128};
	struct wr wr;

	open_world(2, 1, &link);
	ep_init(a, w, 0, &p);
	ep_init(b, w, 1, &p);
	ep_connect(a, b);
	loop_queue(c, (struct ep_params){.managed_send = true, .counts = true, .depth = 1}, a);
	post(c, wr_add(c, 0, 1));
	for (unsigned i = 0; i < rounds; i++) {
		wr = wr_rdma(ROOST_OP_FETCH_ADD, a, 8 * i, 8, b, 0);
		wr.swap_add = 1;
		post(a, wr);
		post(a, wr_enable(c, REL, 1));
		post(a, (struct wr){.op = ROOST_OP_NOP, .flags = QUIET});
		if (i % 4 == 3)
			post(a, wr_wait(0, REL, 4));
		wr = wr_rdma(ROOST_OP_WRITE, a, 8 * i, 8, b, 64 + 8 * i);
		wr.flags = QUIET;
		post(a, wr);
	}
	world_run(w, world_now(w) + 1000 * SEC);
	assert_int_equal(nic_qp_state(a->qp), NIC_QPS_RTS);
	assert_int_equal(*word(b, 0), rounds);
	assert_int_equal(*word(c, 0), rounds);
	assert_int_equal(atomic_load(&a->sqi.cons), atomic_load(&a->sqi.prod));
	for (unsigned i = 3; i < rounds; i += 4)
		assert_int_equal(*word(b, 64 + 8 * i), i);
	ep_fini(c);
	ep_fini(a);
	ep_fini(b);
	world_fini(w);
}

/* ---- turns ---- */

/*
 * A WRITE to another NIC, and an ENABLE behind it: the WRITE leaves before the enabled queue runs.
 * The same ENABLE by a queue without packets takes effect in its turn.
 */
static void packets_leave_first(void **state)
{
	struct nic_counters before = {0}, now = {0};
	struct wr wr;

	open_world(2, 1, NULL);
	ep_init(c, w, 1, NULL);
	ep_init(b, w, 0, &(struct ep_params){.chain = true, .first = first});
	ep_connect(b, c);
	loop_queue(a, (struct ep_params){.managed_send = true, .counts = true, .depth = 2}, b);
	post(a, (struct wr){.op = ROOST_OP_NOP});
	post(a, (struct wr){.op = ROOST_OP_NOP});
	run();
	*word(b, 0) = 5;
	wr = wr_rdma(ROOST_OP_WRITE, b, 0, 8, c, 0);
	wr.flags = QUIET;
	post(b, wr);
	post(b, wr_enable(a, REL, 1));
	nic_counters(b->nic, &before);
	nic_poll(b->nic, 0, world_now(w));
	nic_counters(b->nic, &now);
	assert_int_equal(now.sent_pkts, before.sent_pkts + 1);
	assert_int_equal(count_of(&a->sidx), first);
	assert_true(nic_pending(b->nic, 0));
	nic_poll(b->nic, 0, world_now(w));
	assert_int_equal(count_of(&a->sidx), first + 1);
	run();
	assert_int_equal(*word(c, 0), 5);
	ep_fini(c);
	loop_queue(c, (struct ep_params){0}, b);
	post(c, wr_enable(a, REL, 1));
	nic_poll(b->nic, 0, world_now(w));
	assert_int_equal(count_of(&a->sidx), first + 2);
	ep_fini(c);
	ep_fini(a);
	ep_fini(b);
	world_fini(w);
}

/*
 * A managed queue that is connected to itself executes all kinds of WQEs in their order: short ones
 * at once, long messages in several turns, SENDs to its own receives.
 */
static void kinds_of_wqes(void **state)
{
	const uint32_t len = 100 << 10, to = 128 << 10, read = 256 << 10;
	struct roost_sge sge;
	struct roost_cqe cqe;
	struct wr wr;

	open_world(1, 1, NULL);
	loop_queue(b,
		   (struct ep_params){
			   .managed_send = true, .max_inline = 64, .max_sge = 3, .mem = 512 << 10},
		   NULL);
	loop_queue(a, (struct ep_params){0}, b);
	for (uint32_t i = 0; i <= len; i++)
		b->mem[i] = (uint8_t)(i * 7 + 1);
	for (int round = 0; round < 2; round++) {
		static const uint8_t kinds[] = {
			NIC_WC_SEND, NIC_WC_WRITE, NIC_WC_WRITE, NIC_WC_WRITE,	   NIC_WC_WRITE,
			NIC_WC_READ, NIC_WC_READ,  NIC_WC_SEND,	 NIC_WC_FETCH_ADD, NIC_WC_WRITE,
		};

		memset(b->mem + to, 0, len + 64);
		memset(b->mem + read, 0, len);
		sge = ep_sge(b, to + len + 32, 8);
		ep_post_recv(b, 0, &sge, 1);
		post(b, (struct wr){.op = ROOST_OP_NOP});
		post(b, wr_rdma(ROOST_OP_WRITE, b, 0, 8, b, to));
		post(b, wr_rdma(ROOST_OP_WRITE, b, 8, len - 8, b, to + 8));
		post(b, wr_rdma(ROOST_OP_WRITE, b, 0, 0, b, to));
		wr = wr_rdma(ROOST_OP_WRITE, b, 0, 0, b, to + len);
		wr.inl = b->mem + 3;
		wr.inline_len = 5;
		wr.flags = ROOST_WQE_INLINE | ROOST_WQE_SIGNALED;
		wr.num_sge = 0;
		post(b, wr);
		post(b, wr_rdma(ROOST_OP_READ, b, to + len + 8, 8, b, 16));
		post(b, wr_rdma(ROOST_OP_READ, b, read, len, b, 1));
		post(b, (struct wr){.op = ROOST_OP_SEND, .sge = {ep_sge(b, 40, 8)}, .num_sge = 1});
		wr = wr_rdma(ROOST_OP_FETCH_ADD, b, to + len + 40, 8, b, to + len + 48);
		wr.swap_add = 9;
		post(b, wr);
		wr = wr_rdma(ROOST_OP_WRITE, b, 0, 1, b, to + len + 16);
		for (int i = 1; i < 3; i++)
			wr.sge[i] = ep_sge(b, 10u * i, 1);
		wr.num_sge = 3;
		post(b, wr);
		post(a, wr_enable(b, REL, sizeof(kinds)));
		for (size_t i = 0; i < sizeof(kinds); i++) {
			assert_true(ep_wait_send(b, &cqe, SEC));
			assert_int_equal(cqe.status, NIC_WC_SUCCESS);
			assert_int_equal(cqe.opcode, kinds[i]);
		}
		assert_true(ep_wait_recv(b, &cqe, SEC));
		assert_int_equal(cqe.byte_len, 8);
		assert_memory_equal(b->mem + to, b->mem, len);
		assert_memory_equal(b->mem + read, b->mem + 1, len);
		assert_memory_equal(b->mem + to + len, b->mem + 3, 5);
		assert_memory_equal(b->mem + to + len + 8, b->mem + 16, 8);
		assert_memory_equal(b->mem + to + len + 32, b->mem + 40, 8);
		assert_int_equal(*word(b, to + len + 48), 9);
		for (uint32_t i = 0; i < 3; i++)
			assert_int_equal(b->mem[to + len + 16 + i], b->mem[10 * i]);
	}
	ep_fini(a);
	ep_fini(b);
	world_fini(w);
}

/* ---- calculations ---- */

static void calculations(void **state)
{
	static const struct {
		enum roost_op op;
		uint64_t at, with, result;
	} rows[] = {
		{ROOST_OP_MAX, 5, 7, 7},
		{ROOST_OP_MAX, (uint64_t)-1, 7, (uint64_t)-1},
		{ROOST_OP_MIN, 5, 7, 5},
		{ROOST_OP_MIN, (uint64_t)-1, 7, 7},
		{ROOST_OP_MAX_SIGNED, (uint64_t)-1, 7, 7},
		{ROOST_OP_MAX_SIGNED, 9, 7, 9},
		{ROOST_OP_MIN_SIGNED, (uint64_t)-1, 7, (uint64_t)-1},
		{ROOST_OP_MIN_SIGNED, 9, 7, 7},
		{ROOST_OP_AND, 0xff0f, 0x0ff1, 0x0f01},
		{ROOST_OP_OR, 0xff00, 0x0ff1, 0xfff1},
		{ROOST_OP_XOR, 0xff00, 0x0ff1, 0xf0f1},
	};
	struct roost_cqe cqe;
	struct wr wr;

	open_world(1, 1, NULL);
	loop_queue(a, (struct ep_params){0}, NULL);
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		wr = wr_rdma(rows[i].op, a, 64, 8, a, 0);
		wr.swap_add = rows[i].with;
		*word(a, 0) = rows[i].at;
		*word(a, 8) = 0x1234;
		post(a, wr);
		assert_true(ep_wait_send(a, &cqe, SEC));
		assert_int_equal(cqe.status, NIC_WC_SUCCESS);
		assert_int_equal(cqe.opcode, NIC_WC_FETCH_ADD);
		assert_int_equal(*word(a, 0), rows[i].result);
		assert_int_equal(*word(a, 64), rows[i].at);
		assert_int_equal(*word(a, 8), 0x1234);
	}
	ep_fini(a);
	world_fini(w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(wait_counts_completions),
		cmocka_unit_test(wait_counts_no_errors),
		cmocka_unit_test(counting_never_overruns),
		cmocka_unit_test(wait_for_another_pu),
		cmocka_unit_test(watched_cq_stays),
		cmocka_unit_test(enable_lets_wqes_go),
		cmocka_unit_test(recycled_queue_runs_alone),
		cmocka_unit_test(receives_are_recycled),
		cmocka_unit_test(receives_up_to_a_count),
		cmocka_unit_test(flag_is_rewritten),
		cmocka_unit_test(receive_of_16_entries),
		cmocka_unit_test(doorbell_order),
		cmocka_unit_test(completion_order),
		cmocka_unit_test(once_despite_loss),
		cmocka_unit_test(packets_leave_first),
		cmocka_unit_test(kinds_of_wqes),
		cmocka_unit_test(calculations),
	};

	return run_from_both_counts(tests);
}
