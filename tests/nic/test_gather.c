/* SPDX-License-Identifier: BSD-2-Clause */
/* Over a port whose flush is a system call, small requests wait behind others that are under way, and leave together. */
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

static void start(uint16_t gather)
{
	struct ep_params p = {.depth = DEPTH};

	world_init(w, 2, 11, &(struct sim_params){.delay_ns = 1000, .gather = gather});
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

/* Posts n WRITEs, each with a turn of the NIC of its own, while nothing comes back. */
static void post(unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		struct wr wr = wr_rdma(ROOST_OP_WRITE, a, 0, 64, b, 64);

		ep_post(a, &wr);
		nic_poll(a->nic, 0, world_now(w));
	}
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
	/* With one more they are enough. */
	post(1);
	assert_int_equal(sent(), BEHIND + BATCH);
	/* These will never be: an ACK lets them go, long before any time-out. */
	post(3);
	assert_int_equal(sent(), BEHIND + BATCH);
	world_run(w, world_now(w) + 10000);
	assert_int_equal(sent(), BEHIND + BATCH + 3);
	complete(BEHIND + BATCH + 3);
	/* Nobody is under way: no reason to wait. */
	post(1);
	assert_int_equal(sent(), BEHIND + BATCH + 4);
	complete(1);
	stop();
}

/* What waits is no work: the NIC may sleep until the ACK is there. */
static void waits_asleep(void **state)
{
	start(128);
	post(BEHIND + 1);
	assert_int_equal(sent(), BEHIND);
	assert_false(nic_pending(a->nic, 0));
	complete(BEHIND + 1);
	stop();
}

static void free_of_charge(void **state)
{
	start(0);
	post(BEHIND + 5);
	assert_int_equal(sent(), BEHIND + 5);
	complete(BEHIND + 5);
	stop();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(few_wait),
		cmocka_unit_test(waits_asleep),
		cmocka_unit_test(free_of_charge),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
