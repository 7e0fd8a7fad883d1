/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a thread may read without the ownership of a processing unit, while its owner changes it.
 * TSan reports the access that is no atomic one.
 */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "nic/check.h"
#include "world.h"

#define CHANGES 300

static struct world W, *const w = &W;
static struct ep A, *const a = &A;
static atomic_bool stop;
static atomic_ulong looks;

static void wait_for_looks(void)
{
	unsigned long before = atomic_load(&looks);

	while (atomic_load(&looks) == before)
		sched_yield();
}

/* The features of a queue pair: [any]. */
static void *look(void *arg)
{
	while (!atomic_load(&stop)) {
		nic_qp_has_calc(a->qp);
		nic_qp_may_calc(a->qp);
		nic_qp_rpc(a->qp);
		nic_qp_batches(a->qp);
		atomic_fetch_add(&looks, 1);
	}
	return NULL;
}

static void features(void **state)
{
	const struct nic_qp_attr reset = {.state = NIC_QPS_RESET};
	pthread_t thread;

	world_init(w, 1, 5, NULL);
	ep_init(a, w, 0, NULL);
	atomic_store(&stop, false);
	assert_int_equal(pthread_create(&thread, NULL, look, NULL), 0);
	for (unsigned i = 0; i < CHANGES; i++) {
		assert_int_equal(nic_qp_set_calc(a->qp), 0);
		assert_int_equal(nic_qp_set_rpc(w->nic[0], a->qp), 0);
		assert_true(nic_qp_may_calc(a->qp));
		assert_int_equal(ep_modify(a, &reset, NIC_QPA_STATE), 0);
		assert_false(nic_qp_may_calc(a->qp));
		assert_false(nic_qp_rpc(a->qp));
		ep_connect_self(a);
		assert_true(nic_qp_may_calc(a->qp));
		assert_false(nic_qp_has_calc(a->qp));
		wait_for_looks();
		assert_int_equal(ep_modify(a, &reset, NIC_QPA_STATE), 0);
		assert_false(nic_qp_may_calc(a->qp));
	}
	atomic_store(&stop, true);
	pthread_join(thread, NULL);
	ep_fini(a);
	world_fini(w);
}

/* The owner of PU 1 checks it, while the owner of PU 0 makes queue pairs there. */
static void *check(void *arg)
{
	while (!atomic_load(&stop)) {
		uint32_t qpn;

		nic_poll(w->nic[0], 1, 1000);
		if (nic_check(w->nic[0], 1, &qpn))
			return "an invariant of PU 1 is broken";
		atomic_fetch_add(&looks, 1);
	}
	return NULL;
}

static void check_of_another_pu(void **state)
{
	struct ep b;
	pthread_t thread;
	void *broken;

	world_init_shape(w, &(struct world_shape){.nics = 1, .pus = 2}, 6, NULL);
	ep_init(&b, w, 0, &(struct ep_params){.pu = 1});
	ep_connect_self(&b);
	atomic_store(&stop, false);
	assert_int_equal(pthread_create(&thread, NULL, check, NULL), 0);
	for (unsigned i = 0; i < CHANGES; i++) {
		ep_init(a, w, 0, NULL);
		wait_for_looks();
		ep_fini(a);
	}
	atomic_store(&stop, true);
	pthread_join(thread, &broken);
	assert_null(broken);
	ep_fini(&b);
	world_fini(w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(features),
		cmocka_unit_test(check_of_another_pu),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
