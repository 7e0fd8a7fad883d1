/* SPDX-License-Identifier: BSD-2-Clause */
/* Over a port whose flush is a system call, the ACK of a request waits for the answer of a program that answers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "world.h"

#define DELAY 1000u
#define HOLD  50000u /* at most */
#define LEARN 16u    /* rounds */

static struct world W, *const w = &W;
static struct ep A, B, *const a = &A, *const b = &B;

static void start(uint16_t gather)
{
	struct ep_params p = {.depth = 64, .rd_atomic = 16};

	world_init(w, 2, 12, &(struct sim_params){.delay_ns = DELAY, .gather = gather});
	ep_init(a, w, 0, &p);
	ep_init(b, w, 1, &p);
	ep_connect(a, b);
}

static void stop(void)
{
	ep_fini(a);
	ep_fini(b);
	world_fini(w);
}

static void pass(uint64_t ns)
{
	world_run(w, world_now(w) + ns);
}

static void post(struct ep *from, struct ep *to, enum roost_op op)
{
	struct wr wr = wr_rdma(op, from, 0, 64, to, 64);

	ep_post(from, &wr);
	nic_poll(from->nic, 0, world_now(w));
}

static uint64_t sent(const struct ep *e)
{
	struct nic_counters c;

	nic_counters(e->nic, &c);
	return c.sent_pkts;
}

static void completed(struct ep *e)
{
	struct roost_cqe cqe;

	assert_true(ep_poll_send(e, &cqe));
	assert_int_equal(cqe.status, NIC_WC_SUCCESS);
	assert_false(ep_poll_send(e, &cqe));
}

/* A request, and its answer. Returns whether its ACK waited for that. */
static bool round_trip(void)
{
	uint64_t before = sent(b), acked;
	struct roost_cqe cqe;

	post(a, b, ROOST_OP_WRITE);
	pass(DELAY * 3);
	acked = sent(b) - before;
	assert_int_equal(ep_poll_send(a, &cqe), acked);
	post(b, a, ROOST_OP_WRITE);
	assert_int_equal(sent(b) - before, 2);
	pass(DELAY * 3);
	if (!acked)
		completed(a);
	return !acked;
}

/* The last answer is acknowledged when nobody answers that. */
static void settle(void)
{
	struct roost_cqe cqe;

	pass(HOLD + 2 * DELAY);
	while (ep_poll_send(a, &cqe) || ep_poll_send(b, &cqe))
		assert_int_equal(cqe.status, NIC_WC_SUCCESS);
}

static void learn(void)
{
	for (unsigned i = 0; i < LEARN; i++)
		assert_false(round_trip());
}

static void leaves_with_the_answer(void **state)
{
	start(128);
	learn();
	for (unsigned i = 0; i < 100; i++)
		assert_true(round_trip());
	settle();
	stop();
}

static void does_not_wait_for_ever(void **state)
{
	uint64_t before;

	start(128);
	learn();
	assert_true(round_trip());
	settle();
	before = sent(b);
	post(a, b, ROOST_OP_WRITE);
	pass(DELAY * 3);
	assert_int_equal(sent(b), before);
	/* It is no work, but there is a time for it. */
	assert_false(nic_pending(b->nic, 0));
	assert_true(nic_held_until(b->nic, 0) <= world_now(w) + HOLD);
	assert_true(nic_deadline(b->nic, 0) <= nic_held_until(b->nic, 0));
	pass(HOLD);
	completed(a);
	/* So much for answering: not again before it has learned anew. */
	post(a, b, ROOST_OP_WRITE);
	pass(DELAY * 3);
	completed(a);
	assert_true(nic_held_until(b->nic, 0) == UINT64_MAX);
	stop();
}

/* The second request of two, a READ, an end: what is held does not stay behind. */
static void other_things_let_it_go(void **state)
{
	struct roost_cqe cqe;

	start(128);
	learn();
	assert_true(round_trip());
	settle();
	post(a, b, ROOST_OP_WRITE);
	pass(DELAY * 3);
	post(a, b, ROOST_OP_WRITE);
	pass(DELAY * 3);
	settle();
	learn();
	assert_true(round_trip());
	settle();
	post(a, b, ROOST_OP_WRITE);
	post(a, b, ROOST_OP_READ);
	pass(DELAY * 3);
	assert_true(ep_poll_send(a, &cqe) && ep_poll_send(a, &cqe));
	stop();

	start(128);
	learn();
	post(a, b, ROOST_OP_WRITE);
	pass(DELAY * 3);
	assert_true(nic_held_until(b->nic, 0) != UINT64_MAX);
	assert_int_equal(nic_qp_modify(b->nic, b->qp, &(struct nic_qp_attr){.state = NIC_QPS_ERR},
				       NIC_QPA_STATE, world_now(w)),
			 0);
	pass(DELAY * 3);
	assert_true(nic_held_until(b->nic, 0) == UINT64_MAX);
	completed(a);
	stop();
}

/* Where the peer's next request comes later for it, as on a shared core, ACKs are no longer held. */
static void gives_up_what_costs_time(void **state)
{
	unsigned held = 0;

	start(128);
	learn();
	for (unsigned i = 0; i < 400; i++) {
		if (round_trip()) {
			held++;
			pass(200000);
		}
	}
	assert_in_range(held, 1, 40);
	settle();
	stop();
}

static void free_of_charge(void **state)
{
	start(0);
	for (unsigned i = 0; i < 20; i++)
		assert_false(round_trip());
	settle();
	stop();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(leaves_with_the_answer), cmocka_unit_test(does_not_wait_for_ever),
		cmocka_unit_test(other_things_let_it_go), cmocka_unit_test(gives_up_what_costs_time),
		cmocka_unit_test(free_of_charge),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
