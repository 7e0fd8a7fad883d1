/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Chains over two processing units: ENABLEs that travel between them, WAITs on the other's CQ, and
 * two threads that own a processing unit each.
 */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "world.h"

#define REL   ROOST_CHAIN_RELATIVE
#define QUIET ROOST_WQE_SOLICITED /* a flag, so that ep_post() does not ask for a completion */

static struct world W, *const w = &W;
static struct ep A, B, C, D, *const a = &A, *const b = &B, *const c = &C, *const d = &D;
static struct ep E[12]; /* more of them */

static void loop_queue(struct ep *e, struct ep_params p, const struct ep *of)
{
	p.chain = true;
	p.pd_of = of;
	ep_init(e, w, 0, &p);
	ep_connect_self(e);
}

static void open_world(void)
{
	world_init_shape(w, &(struct world_shape){.nics = 1, .pus = 2}, 21, NULL);
}

static void run(void)
{
	world_run(w, world_now(w) + MSEC);
}

static struct wr wr_enable(enum roost_op op, const struct ep *of, uint64_t relative, uint32_t n)
{
	return (struct wr){
		.op = op, .raddr = nic_qp_num(of->qp) | relative, .swap_add = n, .flags = QUIET};
}

static void enable(struct ep *by, const struct ep *of, uint64_t relative, uint32_t n)
{
	struct wr wr = wr_enable(ROOST_OP_ENABLE, of, relative, n);

	ep_post(by, &wr);
}

static void add(struct ep *e, const struct ep *at)
{
	struct wr wr = wr_rdma(ROOST_OP_FETCH_ADD, e, 4096, 8, at, 0);

	wr.swap_add = 1;
	wr.flags = QUIET;
	ep_post(e, &wr);
}

static uint64_t *word(const struct ep *e)
{
	return (uint64_t *)e->mem;
}

/* Absolute and relative, of sends and receives, to PU 1 and to PU 0. */
static void enable_another_pu(void **state)
{
	for (uint8_t to = 0; to < 2; to++) {
		struct wr more;

		open_world();
		loop_queue(b,
			   (struct ep_params){.pu = to,
					      .counts = true,
					      .managed_send = true,
					      .managed_recv = true,
					      .depth = 8},
			   NULL);
		loop_queue(a, (struct ep_params){.pu = !to}, b);
		for (int i = 0; i < 7; i++)
			add(b, b);
		enable(a, b, 0, 2);
		run();
		assert_int_equal(*word(b), 2);
		enable(a, b, REL, 3);
		enable(a, b, 0, 4); /* below the count: nothing */
		run();
		assert_int_equal(*word(b), 5);
		/* In their order: absolute and then relative. */
		enable(a, b, 0, 6);
		enable(a, b, REL, 1);
		run();
		assert_int_equal(*word(b), 7);
		ep_post_recv(b, 0, NULL, 0);
		ep_post(b, &(struct wr){.op = ROOST_OP_SEND});
		enable(a, b, REL, 1);
		run();
		assert_int_equal(atomic_load(&b->ridx.prod), 0);
		more = wr_enable(ROOST_OP_RECV_ENABLE, b, REL, 1);
		ep_post(a, &more);
		run();
		assert_int_equal(atomic_load(&b->ridx.prod), 1);
		ep_fini(a);
		ep_fini(b);
		world_fini(w);
	}
}

/*
 * The other PU is not polled: more ENABLEs than the mailbox holds wait in their queue, and none is
 * lost.
 */
static void full_mailbox(void **state)
{
	const unsigned n = 200;

	open_world();
	loop_queue(b,
		   (struct ep_params){.pu = 1, .counts = true, .managed_send = true, .depth = 256},
		   NULL);
	loop_queue(a, (struct ep_params){.depth = 256}, b);
	loop_queue(c, (struct ep_params){0}, NULL);
	for (unsigned i = 0; i < n; i++) {
		add(b, b);
		enable(a, b, REL, 1);
	}
	for (uint64_t now = 1; now < 1000; now++)
		nic_poll(w->nic[0], 0, now * 100000);
	assert_in_range(atomic_load(&a->sqi.cons), 1, n - 1);
	add(c, c); /* another queue continues */
	for (uint64_t now = 1000; now < 1010; now++)
		nic_poll(w->nic[0], 0, now * 100000);
	assert_int_equal(*word(c), 1);
	sim_advance(w->sim, 200 * MSEC);
	run();
	assert_int_equal(atomic_load(&a->sqi.cons), n);
	assert_int_equal(*word(b), n);
	ep_fini(c);
	ep_fini(a);
	ep_fini(b);
	world_fini(w);
}

/* The target ends while the ENABLE is in flight: no count changes, and its queue fails. */
static void target_goes(void **state)
{
	struct nic_chain_failure f;
	uint32_t qpn;

	open_world();
	loop_queue(a, (struct ep_params){0}, NULL);
	loop_queue(b, (struct ep_params){.pu = 1, .counts = true, .managed_send = true}, a);
	add(b, b);
	qpn = nic_qp_num(b->qp);
	ep_post(a, &(struct wr){.op = ROOST_OP_NOP});
	enable(a, b, REL, 7);
	nic_poll(w->nic[0], 0, 1000);
	assert_int_equal(nic_qp_state(a->qp), NIC_QPS_RTS);
	ep_fini(b);
	run();
	assert_int_equal(nic_qp_state(a->qp), NIC_QPS_ERR);
	assert_true(nic_qp_chain_failure(a->qp, &f));
	assert_int_equal(f.status, NIC_WC_LOC_QP_OP_ERR);
	assert_int_equal(f.index, 1);
	assert_int_equal(f.wqe.raddr, qpn | REL);
	assert_int_equal(f.wqe.swap_add, 7);
	assert_int_equal(ROOST_CTRL_OP(f.wqe.ctrl), ROOST_OP_ENABLE);
	assert_true(a->events & 1u << NIC_EVENT_QP_FATAL);
	ep_fini(a);
	world_fini(w);
}

static void reset(struct ep *e)
{
	assert_int_equal(ep_modify(e, &(struct nic_qp_attr){.state = NIC_QPS_RESET}, NIC_QPA_STATE),
			 0);
	ep_connect_self(e);
}

/* The target is reset while ENABLEs are in flight: they change nothing, and nothing fails. */
static void target_is_reset(void **state)
{
	struct wr receive;

	open_world();
	loop_queue(a, (struct ep_params){0}, NULL);
	loop_queue(b,
		   (struct ep_params){
			   .pu = 1, .counts = true, .managed_send = true, .managed_recv = true},
		   a);
	receive = wr_enable(ROOST_OP_RECV_ENABLE, b, REL, 1);
	enable(a, b, REL, 3);
	enable(a, b, 0, 2);
	ep_post(a, &receive);
	nic_poll(w->nic[0], 0, 1000);
	assert_int_equal(atomic_load(&a->sqi.cons), 3);
	reset(b);
	for (int i = 0; i < 3; i++)
		add(b, b);
	run();
	assert_int_equal(*word(b), 0);
	assert_int_equal(nic_qp_state(a->qp), NIC_QPS_RTS);
	enable(a, b, REL, 3);
	ep_post_recv(b, 0, NULL, 0);
	ep_post(b, &(struct wr){.op = ROOST_OP_SEND});
	run();
	assert_int_equal(*word(b), 3);
	enable(a, b, REL, 1);
	run();
	assert_int_equal(atomic_load(&b->ridx.cons), 0); /* the receive is not enabled */
	ep_fini(b);
	ep_fini(a);
	world_fini(w);
}

/* ---- refusals ---- */

/* Runs a turn of the other PU in the middle of a turn, as a thread of its own may. */
static void other_turn(void *ctx, struct nic_qp *qp, uint32_t index, const struct roost_wqe *wqe)
{
	if (index == 0)
		nic_poll(w->nic[0], !nic_qp_pu(qp), world_now(w));
}

static void in_its_turn(struct ep *e)
{
	nic_qp_trace_chain(e->qp, &(struct nic_chain_trace){.executed = other_turn});
}

/* Posts ENABLEs of a queue that is not managed, which are refused. */
static void enable_in_vain(struct ep *by, const struct ep *of, unsigned n)
{
	while (n--)
		enable(by, of, REL, 1);
}

static void assert_refused(const struct ep *e, uint32_t index)
{
	struct nic_chain_failure f;

	assert_int_equal(nic_qp_state(e->qp), NIC_QPS_ERR);
	assert_true(nic_qp_chain_failure(e->qp, &f));
	assert_int_equal(f.status, NIC_WC_LOC_QP_OP_ERR);
	assert_int_equal(f.index, index);
	assert_true(e->events & 1u << NIC_EVENT_QP_FATAL);
}

/*
 * PU 0 has filled the mailbox of PU 1 with ENABLEs when it refuses an ENABLE of PU 1. The refusal
 * arrives, and so do all ENABLEs.
 */
static void refused_behind_enables(void **state)
{
	const unsigned n = 200;

	open_world();
	loop_queue(c,
		   (struct ep_params){.pu = 1, .counts = true, .managed_send = true, .depth = 256},
		   NULL);
	loop_queue(a, (struct ep_params){.depth = 256}, c);
	loop_queue(b, (struct ep_params){.pu = 1}, NULL);
	run();
	for (unsigned i = 0; i < n; i++) {
		add(c, c);
		enable(a, c, REL, 1);
	}
	ep_post(b, &(struct wr){.op = ROOST_OP_NOP, .flags = QUIET});
	enable_in_vain(b, a, 1);
	in_its_turn(b);
	nic_poll(w->nic[0], 1, world_now(w)); /* with a turn of PU 0 before the ENABLE of b */
	assert_in_range(atomic_load(&a->sqi.cons), 1, n - 1);
	assert_int_equal(atomic_load(&b->sqi.cons), 2);
	nic_poll(w->nic[0], 0, world_now(w));
	run();
	assert_refused(b, 1);
	assert_int_equal(*word(c), n);
	assert_int_equal(nic_qp_state(a->qp), NIC_QPS_RTS);
	ep_fini(b);
	ep_fini(a);
	ep_fini(c);
	world_fini(w);
}

/*
 * The mailbox of PU 0 is full of ENABLEs that will be refused, and there is no space for their
 * refusals. `both`: the mailbox of PU 1 is full, too. Each queue gets its error, and ENABLEs that
 * come later arrive.
 */
static void full(bool both)
{
	const unsigned n = 64; /* a mailbox, and a turn of a queue */
	struct ep *nop = &E[0], *managed = &E[1];

	open_world();
	loop_queue(a, (struct ep_params){.depth = 128}, NULL);
	loop_queue(d, (struct ep_params){.depth = 128}, a);
	loop_queue(b, (struct ep_params){.pu = 1, .depth = 128}, a);
	loop_queue(nop, (struct ep_params){.pu = 1}, a);
	loop_queue(c, (struct ep_params){.pu = 1, .depth = 128}, a);
	loop_queue(managed, (struct ep_params){.pu = 1, .counts = true, .managed_send = true}, a);
	run();
	enable_in_vain(b, a, n);
	ep_post(nop, &(struct wr){.op = ROOST_OP_NOP, .flags = QUIET});
	enable_in_vain(c, a, n);
	if (both)
		enable_in_vain(a, b, n);
	in_its_turn(nop);
	/*
	 * The ENABLEs of b; in the turn of PU 0 their refusals, and the ENABLEs of a; those of c.
	 */
	nic_poll(w->nic[0], 1, world_now(w));
	assert_int_equal(atomic_load(&a->sqi.cons), both ? n : 0);
	assert_int_equal(atomic_load(&b->sqi.cons), n);
	assert_int_equal(atomic_load(&c->sqi.cons), n);
	add(managed, managed);
	enable(d, managed, REL, 1);
	nic_poll(w->nic[0], 0, world_now(w)); /* no space: for the refusals of c */
	assert_int_equal(atomic_load(&d->sqi.cons), !both);
	run();
	if (both)
		assert_refused(a, 0);
	assert_refused(b, 0);
	assert_refused(c, 0);
	assert_int_equal(*word(managed), 1);
	assert_int_equal(nic_qp_state(d->qp), NIC_QPS_RTS);
	ep_fini(managed);
	ep_fini(c);
	ep_fini(nop);
	ep_fini(b);
	ep_fini(d);
	ep_fini(a);
	world_fini(w);
}

static void one_way_full(void **state)
{
	full(false);
}

static void both_ways_full(void **state)
{
	full(true);
}

/* The queue pair of the ENABLE is reset before the refusal comes, which does nothing then. */
static void refused_after_a_reset(void **state)
{
	open_world();
	loop_queue(a, (struct ep_params){0}, NULL);
	loop_queue(b, (struct ep_params){.pu = 1}, a);
	run();
	enable_in_vain(a, b, 1);
	nic_poll(w->nic[0], 0, world_now(w));
	assert_int_equal(atomic_load(&a->sqi.cons), 1);
	reset(a);
	run();
	assert_int_equal(nic_qp_state(a->qp), NIC_QPS_RTS);
	enable_in_vain(a, b, 1);
	run();
	assert_refused(a, 1);
	ep_fini(b);
	ep_fini(a);
	world_fini(w);
}

/* An ENABLE that the target refuses is refused also if the target is reset meanwhile. */
static void refused_by_a_reset_target(void **state)
{
	open_world();
	loop_queue(a, (struct ep_params){0}, NULL);
	loop_queue(b, (struct ep_params){.pu = 1}, a); /* its queues are not managed */
	run();
	enable_in_vain(a, b, 1);
	nic_poll(w->nic[0], 0, world_now(w));
	assert_int_equal(atomic_load(&a->sqi.cons), 1);
	reset(b);
	run();
	assert_refused(a, 0);
	ep_fini(b);
	ep_fini(a);
	world_fini(w);
}

/* ---- numbers that are used again ---- */

static struct qp_numbers numbers[2]; /* by PU */

static void open_numbers(void)
{
	memset(numbers, 0, sizeof(numbers));
	world_init_shape(w,
			 &(struct world_shape){
				 .nics = 1, .pus = 2, .one_address = true, .qp_numbers = numbers},
			 21, NULL);
}

/*
 * Destroys a queue pair, and makes the next one of its PU have its number: all other indices must
 * rest.
 */
static uint32_t free_number(struct ep *e)
{
	uint32_t qpn = nic_qp_num(e->qp), index = (qpn >> 4) & (NUMBERS_QPS - 1);
	struct qp_numbers *n = &numbers[nic_qp_pu(e->qp)];
	uint32_t generation = (qpn - 1) & (NUMBERS_GENERATIONS - 1);

	ep_fini(e);
	for (uint32_t i = 0; i < NUMBERS_QPS; i++) {
		atomic_store(&n->last[i], NUMBERS_GENERATIONS + NUMBERS_GENERATIONS / 2 - 1);
		atomic_store(&n->entered[i], numbers_second(world_now(w)));
	}
	atomic_store(&n->last[index], (uint8_t)(NUMBERS_GENERATIONS | generation));
	atomic_store(&n->entered[index], 0);
	return qpn;
}

/* An ENABLE of a queue that has gone does not act on the next queue with its number. */
static void target_number_again(void **state)
{
	struct ep_params managed = {.pu = 1, .counts = true, .managed_send = true};
	uint32_t qpn;

	open_numbers();
	loop_queue(a, (struct ep_params){0}, NULL);
	loop_queue(b, managed, a);
	ep_post(a, &(struct wr){.op = ROOST_OP_NOP});
	enable(a, b, REL, 3);
	nic_poll(w->nic[0], 0, 1000);
	assert_int_equal(atomic_load(&a->sqi.cons), 2);
	qpn = free_number(b);
	loop_queue(b, managed, a);
	assert_int_equal(nic_qp_num(b->qp), qpn);
	add(b, b);
	run();
	assert_int_equal(*word(b), 0);
	assert_refused(a, 1);
	ep_fini(b);
	ep_fini(a);
	world_fini(w);
}

/* A refusal for a queue pair that has gone does not end the next one with its number. */
static void sender_number_again(void **state)
{
	uint32_t qpn;

	open_numbers();
	loop_queue(b, (struct ep_params){.pu = 1}, NULL);
	loop_queue(a, (struct ep_params){0}, b);
	run();
	enable_in_vain(a, b, 1);
	nic_poll(w->nic[0], 0, world_now(w));
	assert_int_equal(atomic_load(&a->sqi.cons), 1);
	qpn = free_number(a);
	loop_queue(a, (struct ep_params){0}, b);
	assert_int_equal(nic_qp_num(a->qp), qpn);
	run();
	assert_int_equal(nic_qp_state(a->qp), NIC_QPS_RTS);
	enable_in_vain(a, b, 1);
	run();
	assert_refused(a, 0);
	ep_fini(a);
	ep_fini(b);
	world_fini(w);
}

/* ---- threads ---- */

static atomic_bool stop;

static void *owner(void *pu)
{
	for (uint64_t now = 200 * MSEC; !atomic_load(&stop); now += 1000)
		nic_poll(w->nic[0], (unsigned)(uintptr_t)pu, now);
	return NULL;
}

/*
 * Ping-pong between the PUs, by ENABLEs: each queue adds to the word that the other one has added
 * to, and enables the other. The word is plain memory, so an ENABLE orders the writes before it. A
 * third queue waits for the completions of the second, on the other PU's CQ.
 */
static void two_threads(void **state)
{
	const uint32_t turns = 2000;
	pthread_t thread[2];
	struct wr more;

	open_world();
	loop_queue(a, (struct ep_params){.counts = true, .managed_send = true, .depth = 2}, NULL);
	loop_queue(b,
		   (struct ep_params){.pu = 1,
				      .counts = true,
				      .managed_send = true,
				      .managed_recv = true,
				      .depth = 4},
		   a);
	loop_queue(
		c,
		(struct ep_params){.counts = true, .managed_send = true, .depth = 4, .watch = {b}},
		a);
	loop_queue(d, (struct ep_params){.pu = 1}, a);
	add(a, a);
	enable(a, b, REL, 4);
	for (int i = 0; i < 4; i++)
		ep_post_recv(b, 0, NULL, 0);
	add(b, a);
	ep_post(b, &(struct wr){.op = ROOST_OP_SEND, .flags = QUIET});
	enable(b, a, REL, 2);
	ep_post(b, &(struct wr){.op = ROOST_OP_NOP, .flags = QUIET});
	ep_post(c,
		&(struct wr){.op = ROOST_OP_WAIT, .raddr = 2 | REL, .swap_add = 1, .flags = QUIET});
	add(c, c);
	enable(c, c, REL, 4);
	ep_post(c, &(struct wr){.op = ROOST_OP_NOP, .flags = QUIET});
	more = wr_enable(ROOST_OP_RECV_ENABLE, b, REL, UINT32_MAX / 4);
	ep_post(d, &more);
	enable(d, c, REL, 4);
	enable(d, a, REL, 2);
	for (uintptr_t i = 0; i < 2; i++)
		assert_int_equal(pthread_create(&thread[i], NULL, owner, (void *)i), 0);
	while (atomic_load(&b->sqi.cons) < 4 * turns)
		sched_yield();
	atomic_store(&stop, true);
	for (unsigned i = 0; i < 2; i++)
		pthread_join(thread[i], NULL);
	assert_int_equal(*word(a),
			 (atomic_load(&a->sqi.cons) + 1) / 2 + (atomic_load(&b->sqi.cons) + 3) / 4);
	assert_in_range(*word(c), 1, atomic_load(&b->ridx.prod));
	assert_int_equal(nic_qp_state(a->qp), NIC_QPS_RTS);
	assert_int_equal(nic_qp_state(b->qp), NIC_QPS_RTS);
	ep_fini(d);
	ep_fini(c);
	ep_fini(b);
	ep_fini(a);
	world_fini(w);
}

/*
 * A queue waits for the CQ of a PU that another thread owns, is asked for its state, and is reset,
 * while completions come there.
 */
static void watch_of_a_busy_cq(void **state)
{
	pthread_t thread;

	open_world();
	loop_queue(b, (struct ep_params){.pu = 1, .counts = true, .managed_send = true, .depth = 2},
		   NULL);
	loop_queue(a, (struct ep_params){.counts = true, .watch = {b}, .watch_sends = true}, b);
	loop_queue(d, (struct ep_params){.pu = 1}, b);
	ep_post(b, &(struct wr){.op = ROOST_OP_NOP});
	enable(b, b, REL, 2);
	enable(d, b, REL, 2);
	atomic_store(&stop, false);
	assert_int_equal(pthread_create(&thread, NULL, owner, (void *)1), 0);
	for (unsigned i = 0; i < 100; i++) {
		struct nic_chain_state s;

		ep_post(a, &(struct wr){.op = ROOST_OP_WAIT, .raddr = 2 | REL, .swap_add = 200});
		for (unsigned k = i % 2; k < 2 || !atomic_load(&a->sidx.prod); k++) {
			nic_poll(w->nic[0], 0, world_now(w));
			nic_qp_chain_state(a->qp, &s);
			assert_int_not_equal(s.activity, NIC_CHAIN_FAILED);
			sched_yield();
		}
		assert_int_equal(
			ep_modify(a, &(struct nic_qp_attr){.state = NIC_QPS_RESET}, NIC_QPA_STATE),
			0);
		ep_connect_self(a);
	}
	atomic_store(&stop, true);
	pthread_join(thread, NULL);
	assert_int_equal(nic_qp_state(b->qp), NIC_QPS_RTS);
	ep_fini(d);
	ep_fini(a);
	ep_fini(b);
	world_fini(w);
}

/* Queues of both PUs have ENABLEs refused at the same time, and each gets its error. */
static void refused_both_ways(void **state)
{
	const unsigned rounds = 20, queues = sizeof(E) / sizeof(E[0]);
	pthread_t thread[2];

	for (unsigned r = 0; r < rounds; r++) {
		open_world();
		for (unsigned i = 0; i < queues; i++)
			loop_queue(&E[i], (struct ep_params){.pu = i % 2, .depth = 128},
				   i ? &E[0] : NULL);
		for (unsigned i = 0; i < queues; i++)
			enable_in_vain(&E[i], &E[!(i % 2)], 1 + (i * 37 + r * 11) % 128);
		atomic_store(&stop, false);
		for (uintptr_t i = 0; i < 2; i++)
			assert_int_equal(pthread_create(&thread[i], NULL, owner, (void *)i), 0);
		for (unsigned i = 0; i < queues; i++)
			while (nic_qp_state(E[i].qp) != NIC_QPS_ERR)
				sched_yield();
		atomic_store(&stop, true);
		for (unsigned i = 0; i < 2; i++)
			pthread_join(thread[i], NULL);
		for (unsigned i = queues; i-- > 0;) {
			assert_refused(&E[i], 0);
			ep_fini(&E[i]);
		}
		world_fini(w);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(enable_another_pu),
		cmocka_unit_test(full_mailbox),
		cmocka_unit_test(target_goes),
		cmocka_unit_test(target_is_reset),
		cmocka_unit_test(target_number_again),
		cmocka_unit_test(sender_number_again),
		cmocka_unit_test(refused_behind_enables),
		cmocka_unit_test(one_way_full),
		cmocka_unit_test(both_ways_full),
		cmocka_unit_test(refused_after_a_reset),
		cmocka_unit_test(refused_by_a_reset_target),
		cmocka_unit_test(two_threads),
		cmocka_unit_test(refused_both_ways),
		cmocka_unit_test(watch_of_a_busy_cq),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
