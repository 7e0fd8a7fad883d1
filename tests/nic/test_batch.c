/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * On a port whose flush is a system call, small requests wait while others are in flight, and are
 * sent together.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "world.h"

#define DEPTH  64u /* so a batch is 16 */
#define BATCH  16u
#define BEHIND 8u /* this many under way */

static struct world W, *const w = &W;
static struct ep A, B, *const a = &A, *const b = &B;

static void start_far(uint16_t batch, uint64_t delay_ns)
{
	struct ep_params p = {.depth = DEPTH, .rd_atomic = 16};

	world_init(w, 2, 11, &(struct sim_params){.delay_ns = delay_ns, .batch = batch});
	ep_init(a, w, 0, &p);
	ep_init(b, w, 1, &p);
	ep_connect(a, b);
}

static void start(uint16_t batch)
{
	start_far(batch, 1000);
}

static void close_all(void)
{
	ep_fini(a);
	ep_fini(b);
	world_fini(w);
}

/* Posts n requests, each with a turn of the NIC of its own, while no packet arrives. */
static void post_op(enum roost_op op, uint32_t size, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		struct wr wr = wr_rdma(op, a, 0, size, b, 64);

		ep_post(a, &wr);
		nic_poll(a->nic, 0, world_now(w));
	}
}

static void post(unsigned n)
{
	post_op(ROOST_OP_WRITE, 64, n);
}

static unsigned sent(void)
{
	struct nic_counters c;

	nic_counters(a->nic, &c);
	return (unsigned)c.sent_pkts;
}

static void complete(unsigned n)
{
	struct roost_cqe cqe;

	for (unsigned i = 0; i < n; i++) {
		assert_true(ep_wait_send(a, &cqe, SEC));
		assert_int_equal(cqe.status, NIC_WC_SUCCESS);
	}
}

static void few_wait(void **state)
{
	start(128);
	post(BEHIND);
	assert_int_equal(sent(), BEHIND);
	post(BATCH - 1);
	assert_int_equal(sent(), BEHIND);
	/* One request more completes the batch. */
	post(1);
	assert_int_equal(sent(), BEHIND + BATCH);
	/* These do not fill a batch: an ACK lets them leave, long before a time-out. */
	post(3);
	assert_int_equal(sent(), BEHIND + BATCH);
	world_run(w, world_now(w) + 10000);
	assert_int_equal(sent(), BEHIND + BATCH + 3);
	complete(BEHIND + BATCH + 3);
	/* No request is in flight, so there is no reason to wait. */
	post(1);
	assert_int_equal(sent(), BEHIND + BATCH + 4);
	complete(1);
	close_all();
}

/* A request that waits is no work: the NIC may sleep until the ACK arrives. */
static void waits_asleep(void **state)
{
	start(128);
	post(BEHIND + 1);
	assert_int_equal(sent(), BEHIND);
	assert_false(nic_pending(a->nic, 0));
	complete(BEHIND + 1);
	close_all();
}

/*
 * On a long path there are always packets in flight: at the first ACK, the requests have waited
 * long enough.
 */
static void not_for_long(void **state)
{
	start_far(128, 100000);
	post(BEHIND);
	world_run(w, world_now(w) + 50000);
	post(BATCH);
	post(1);
	assert_int_equal(sent(), BEHIND + BATCH);
	complete(BEHIND);
	assert_int_equal(sent(), BEHIND + BATCH + 1);
	complete(BATCH + 1);
	close_all();
}

/* Large requests fill a flush by themselves, and READs do not wait for their answers. */
static void only_small_ones(void **state)
{
	start(128);
	post_op(ROOST_OP_WRITE, 8192, BEHIND);
	post_op(ROOST_OP_WRITE, 8192, 3);
	assert_int_equal(sent(), BEHIND * 8);
	post_op(ROOST_OP_WRITE, 8192, 1);
	assert_int_equal(sent(), (BEHIND + 4) * 8);
	complete(BEHIND + 4);
	post_op(ROOST_OP_READ, 64, BEHIND);
	post(1);
	assert_int_equal(sent(), (BEHIND + 4) * 8 + BEHIND + 1);
	complete(BEHIND + 1);
	close_all();
}

static void free_of_charge(void **state)
{
	start(0);
	post(BEHIND + 5);
	assert_int_equal(sent(), BEHIND + 5);
	complete(BEHIND + 5);
	close_all();
}

/* ---- queue pairs with calls ---- */

static void start_calls(uint16_t batch)
{
	struct ep_params p = {.depth = 128, .rpc = true};

	world_init(w, 2, 12, &(struct sim_params){.delay_ns = 1000, .batch = batch});
	ep_init(a, w, 0, &p);
	ep_init(b, w, 1, &p);
	ep_connect(a, b);
	world_run(w, world_now(w) + 10000); /* the first turn does not receive */
}

/* Runs a turn of a's NIC. Returns the number of packets that it sent. */
static unsigned turn(void)
{
	unsigned before = sent();

	nic_poll(a->nic, 0, world_now(w));
	return sent() - before;
}

/* b's WRITE, as a reply, arrives at a's port, and a's NIC has no turn. */
static void reply_arrives(void)
{
	struct wr wr = wr_rdma(ROOST_OP_WRITE, b, 0, 64, a, 64);

	ep_post(b, &wr);
	nic_poll(b->nic, 0, world_now(w));
	sim_advance(w->sim, world_now(w) + 2000);
}

/* The ACK of a reply waits for the next turn, in which the next calls leave. */
static void acks_wait_for_calls(void **state)
{
	struct wr wr;

	start_calls(128);
	reply_arrives();
	assert_int_equal(turn(), 0);
	assert_true(nic_pending(a->nic, 0));
	wr = wr_rdma(ROOST_OP_WRITE, a, 0, 64, b, 64);
	ep_post(a, &wr);
	assert_int_equal(turn(), 2); /* the ACK and the request */
	complete(1);
	/* No request follows: the ACK waits for one turn only. */
	reply_arrives();
	assert_int_equal(turn(), 0);
	assert_int_equal(turn(), 1);
	assert_false(nic_pending(a->nic, 0));
	close_all();
}

/* With a request in the same turn, or on a port without a cost of flushes, no ACK waits. */
static void acks_leave_at_once(void **state)
{
	struct wr wr;

	start_calls(128);
	wr = wr_rdma(ROOST_OP_WRITE, a, 0, 64, b, 64);
	ep_post(a, &wr);
	assert_int_equal(turn(), 1); /* this turn does not receive */
	reply_arrives();
	ep_post(a, &wr);
	assert_int_equal(turn(), 2);
	complete(2);
	close_all();
	start_calls(0);
	reply_arrives();
	assert_int_equal(turn(), 1);
	close_all();
}

/*
 * Many requests leave in parts of a quarter of a batch, so that both sides work at the same time.
 */
static void calls_leave_in_parts(void **state)
{
	struct wr wr;

	start_calls(128);
	wr = wr_rdma(ROOST_OP_WRITE, a, 0, 64, b, 64);
	for (unsigned i = 0; i < 100; i++)
		ep_post(a, &wr);
	assert_int_equal(turn(), 32);
	assert_int_equal(turn(), 32);
	complete(100);
	close_all();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(few_wait),	      cmocka_unit_test(waits_asleep),
		cmocka_unit_test(not_for_long),	      cmocka_unit_test(only_small_ones),
		cmocka_unit_test(free_of_charge),     cmocka_unit_test(acks_wait_for_calls),
		cmocka_unit_test(acks_leave_at_once), cmocka_unit_test(calls_leave_in_parts),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
