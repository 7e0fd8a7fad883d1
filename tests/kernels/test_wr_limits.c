/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Limits of kernels' operations in progress on a bound queue pair, and the share that remains for
 * its owner.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "scene.h"

enum { GREEDY_OP = 0x1001, OTHER_OP };

#define HOLD 4096u /* bytes, of memory that stays */

/* ---- a kernel that posts as much as it can ---- */

struct greed {
	uint64_t raddr;
	uint32_t rkey, qp, len;
};

static bool enough;
static uint64_t posted, large; /* large: of HOLD bytes, and a slot was found */
static uint8_t hold[HOLD];

static enum roost_next greedy(struct roost_call *c)
{
	struct greed *g = c->state;

	ROOST_STEPS(c);
	memcpy(g, c->params, sizeof(*g));
	while (!enough && !c->qp_failed) {
		posted++;
		ROOST_QP_POST_WRITE(c, g->qp, g->raddr, g->rkey, hold, g->len);
		large += g->len == HOLD;
	}
	ROOST_QP_WAIT_ALL(c);
	if (c->qp_failed)
		ROOST_FAIL(c, roost_qp_status(c, c->qp_posted));
	ROOST_STEPS_END;
}

static struct roost_kernel greedy_kernel(uint64_t op)
{
	return (struct roost_kernel){.abi = ROOST_KERNEL_ABI,
				     .version = 1,
				     .name = "greedy",
				     .op = op,
				     .state_size = sizeof(struct greed),
				     .params = greedy};
}

static struct local_call *be_greedy(uint64_t op, unsigned qp, uint32_t len)
{
	struct greed g = {
		.raddr = (uintptr_t)s->peer[0].mem, .rkey = s->peer[0].key, .qp = qp, .len = len};

	return start(op, &g, sizeof(g), NULL, NULL, 0);
}

static void open_bounded(const struct shape *shape)
{
	static struct roost_kernel k[2];

	open_scene(1, shape);
	enough = false;
	posted = large = 0;
	for (unsigned i = 0; i < 2; i++) {
		k[i] = greedy_kernel(GREEDY_OP + i);
		assert_int_equal(runtime_deploy(s->f, &k[i], NULL), 0);
	}
}

static void post_own(unsigned qp, uint64_t id)
{
	struct wr wr = wr_rdma(ROOST_OP_WRITE, &s->bound[qp], 0, 64, &s->peer[qp], 100000);

	wr.wr_id = id;
	ep_post(&s->bound[qp], &wr);
}

static void bind_with_limits(uint64_t op, uint32_t ops, uint64_t bytes, unsigned want)
{
	const struct runtime_qp_limits limits = {.ops = ops, .bytes = bytes};
	unsigned number;

	assert_int_equal(runtime_bind_qp(s->f, op, s->bound[0].qp, &limits, &number), 0);
	assert_int_equal(number, want);
}

/*
 * Runs turns, and checks that at most `most` operations are in progress on the first queue pair.
 * Returns the number of turns.
 */
static unsigned most_of(unsigned turns, unsigned most)
{
	unsigned seen = 0;

	for (unsigned n = 0; n < turns; n++) {
		unsigned now = nic_kernel_wrs(s->bound[0].qp);

		assert_true(now <= most);
		seen = now > seen ? now : seen;
		assert_true(turn());
	}
	return seen;
}

/* ---- the owner ---- */

/*
 * However many kernels keep all of their slots taken, the owner's work requests wait only for
 * operations that were posted before.
 */
static void the_owner_gets_its_turn(void **state)
{
	static const struct shape shapes[] = {{.sp = {.delay_ns = 2000}},
					      {.sp = {.delay_ns = 2000, .loss = 0.02}},
					      {.loop = true}};

	for (unsigned i = 0; i < 3; i++) {
		struct local_call *run[3];
		struct roost_cqe cqe;

		open_bounded(&shapes[i]);
		bind_qp(GREEDY_OP, &s->bound[0], 1);
		for (unsigned k = 0; k < 3; k++)
			run[k] = be_greedy(GREEDY_OP, 1, HOLD);
		for (unsigned n = 0; n < 100; n++)
			turn();
		for (uint64_t n = 0; n < 10; n++) {
			uint64_t before = posted;

			/* By one that is not bound, as ever. */
			post_own(1, n);
			while (!ep_poll_send(&s->bound[1], &cqe))
				assert_true(turn());
			assert_true(posted - before <= NIC_MAX_KERNEL_WRS);
			before = posted;
			post_own(0, n);
			while (!ep_poll_send(&s->bound[0], &cqe)) {
				assert_true(posted - before < 1000);
				assert_true(turn());
			}
			assert_int_equal(cqe.wr_id, n);
			assert_int_equal(cqe.status, NIC_WC_SUCCESS);
			/* Operations that had a slot before, and those that a turn added. */
			assert_true(posted - before <= 2 * NIC_MAX_KERNEL_WRS);
		}
		enough = true;
		for (unsigned k = 0; k < 3; k++)
			finish(run[k], ROOST_RPC_OK);
		close_scene();
	}
}

/* ---- limits ---- */

static void so_many(void **state)
{
	const struct shape *shapes[] = {&plain, &over_loop};
	static const struct {
		uint32_t ops, len;
		uint64_t bytes;
		unsigned most;
	} rows[] = {
		{.ops = 5, .len = 64, .most = 5},
		{.ops = 1, .len = 3000, .most = 1},
		{.bytes = 10000, .len = 3000, .most = 3},
		{.bytes = HOLD, .len = HOLD, .most = 1},
		{.ops = 4, .bytes = 9000, .len = 3000, .most = 3},
		{.len = 4000, .most = NIC_MAX_KERNEL_WRS},
	};

	for (unsigned i = 0; i < 2 * sizeof(rows) / sizeof(rows[0]); i++) {
		unsigned row = i / 2;
		struct local_call *run[3];

		open_bounded(shapes[i % 2]);
		bind_with_limits(GREEDY_OP, rows[row].ops, rows[row].bytes, 1);
		for (unsigned k = 0; k < 3; k++)
			run[k] = be_greedy(GREEDY_OP, 1, rows[row].len);
		assert_int_equal(most_of(200, rows[row].most), rows[row].most);
		/* All of them make progress. */
		enough = true;
		for (unsigned k = 0; k < 3; k++)
			finish(run[k], ROOST_RPC_OK);
		assert_true(posted > 30);
		close_scene();
	}
}

/*
 * Each binding has its own limit, even if several are of one queue pair. A binding at its limit
 * does not delay the others.
 */
static void beside_each_other(void **state)
{
	struct local_call *run[4];
	uint64_t before;

	open_bounded(&plain);
	bind_with_limits(GREEDY_OP, 2, 0, 1);
	bind_with_limits(OTHER_OP, 3, 0, 1);
	for (unsigned k = 0; k < 4; k++)
		run[k] = be_greedy(k & 1 ? OTHER_OP : GREEDY_OP, 1, 2000);
	assert_int_equal(most_of(200, 5), 5);
	assert_int_equal(runtime_unbind_qp(s->f, GREEDY_OP, 1), 0);
	finish(run[0], ROOST_QP_NONE);
	finish(run[2], ROOST_QP_NONE);
	before = posted;
	most_of(100, 3);
	assert_true(posted > before + 20);
	enough = true;
	finish(run[1], ROOST_RPC_OK);
	finish(run[3], ROOST_RPC_OK);
	close_scene();
}

/*
 * Small operations that fit do not pass a large one that does not, whether they are many or so few
 * that none of them waits. Each gets space in its turn.
 */
static void large_ones_too(void **state)
{
	const struct shape *shapes[] = {&plain, &over_loop};

	for (unsigned i = 0; i < 4; i++) {
		struct local_call *run[4];

		open_bounded(shapes[i % 2]);
		bind_with_limits(GREEDY_OP, 0, i / 2 ? HOLD : HOLD + 300, 1);
		for (unsigned k = 0; k < 4; k++)
			run[k] = be_greedy(GREEDY_OP, 1, k == 2 ? HOLD : i / 2 ? 20 : 100);
		most_of(400, NIC_MAX_KERNEL_WRS);
		assert_true(large > 5);
		assert_true(posted > 3 * large);
		if (i & 1) { /* one in the queue is given up */
			local_call_free(run[2]);
			large = posted;
			most_of(100, NIC_MAX_KERNEL_WRS);
			assert_true(posted > large + 20);
		}
		enough = true;
		for (unsigned k = 0; k < 4; k++)
			if (k != 2 || !(i & 1))
				finish(run[k], ROOST_RPC_OK);
		close_scene();
	}
}

static void too_long_for_it(void **state)
{
	open_bounded(&plain);
	bind_with_limits(GREEDY_OP, 0, 1000, 1);
	finish(be_greedy(GREEDY_OP, 1, 1001), ROOST_QP_INVALID);
	assert_int_equal(nic_qp_state(s->bound[0].qp), NIC_QPS_RTS);
	close_scene();
}

/*
 * Operations that are in progress when a binding ends do not count against other bindings. The
 * number is free when they are done.
 */
static void ended_with_some_under_way(void **state)
{
	struct local_call *run;

	open_bounded(&plain);
	bind_with_limits(GREEDY_OP, 8, 0, 1);
	run = be_greedy(GREEDY_OP, 1, 2000);
	most_of(20, 8);
	while (nic_kernel_wrs(s->bound[0].qp) != 8)
		assert_true(turn());
	assert_int_equal(runtime_unbind_qp(s->f, GREEDY_OP, 1), 0);
	bind_with_limits(GREEDY_OP, 2, 0, 2);
	finish(run, ROOST_QP_NONE);
	assert_int_equal(nic_kernel_wrs(s->bound[0].qp), 0);
	run = be_greedy(GREEDY_OP, 2, 2000);
	assert_int_equal(most_of(100, 2), 2);
	bind_with_limits(GREEDY_OP, 1, 0, 1);
	enough = true;
	finish(run, ROOST_RPC_OK);
	close_scene();
}

static uint32_t first_psn;
static bool one_passes; /* the first packet of bound queue pair 0, and its ACK */

static int hold_back(void *ctx, const struct pkt_addr *src, const uint8_t *bth, uint32_t len)
{
	uint32_t psn = (uint32_t)bth[9] << 16 | (uint32_t)bth[10] << 8 | bth[11];

	return !one_passes || psn != first_psn;
}

/*
 * The number of a binding that has ended is not given to another queue pair while a run waits there
 * for space: the run would post to the other queue pair. Here the last operation of the binding is
 * done, but another kernel has taken all slots of the queue pair.
 */
static void a_number_with_one_that_waits(void **state)
{
	struct local_call *one, *waits, *others[2];
	struct runtime_kernel_info info;
	unsigned number;

	open_bounded(&(struct shape){.sp = {.delay_ns = 2000}, .timeout = 10, .retry_cnt = 7});
	bind_with_limits(GREEDY_OP, 1, 0, 1);
	bind_with_limits(OTHER_OP, 0, 0, 1);
	first_psn = 0xfffff8;
	one_passes = false;
	sim_set_filter(s->w.sim, hold_back, NULL);
	one = be_greedy(GREEDY_OP, 1, 64);
	waits = be_greedy(GREEDY_OP, 1, 64);
	for (unsigned k = 0; k < 2; k++)
		others[k] = be_greedy(OTHER_OP, 1, 64);
	assert_int_equal(nic_kernel_wrs(s->bound[0].qp), NIC_MAX_KERNEL_WRS);
	local_call_free(one); /* its second operation does not wait any more */
	one_passes = true;
	do {
		assert_true(turn());
		assert_true(runtime_kernel_info(s->f, 1, &info));
	} while (info.in_flight == 2);
	assert_int_equal(nic_qp_state(s->bound[0].qp), NIC_QPS_RTS);
	assert_int_equal(runtime_unbind_qp(s->f, GREEDY_OP, 1), 0);
	assert_int_equal(runtime_bind_qp(s->f, GREEDY_OP, s->bound[1].qp,
					 &(struct runtime_qp_limits){0}, &number),
			 0);
	assert_int_equal(number, 2);
	sim_set_filter(s->w.sim, NULL, NULL);
	finish(waits, ROOST_QP_NONE);
	enough = true;
	for (unsigned k = 0; k < 2; k++)
		finish(others[k], ROOST_RPC_OK);
	close_scene();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_owner_gets_its_turn),
		cmocka_unit_test(so_many),
		cmocka_unit_test(beside_each_other),
		cmocka_unit_test(large_ones_too),
		cmocka_unit_test(too_long_for_it),
		cmocka_unit_test(ended_with_some_under_way),
		cmocka_unit_test(a_number_with_one_that_waits),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
