/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A call allocates nothing, even on a link with loss. The linker redirects malloc() and the other
 * allocation functions to the counters of allocations.h.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "../common/allocations.h"
#include "builtin/builtin.h"
#include "rig.h"
#include "roost/get.h"

static void calls_allocate_nothing(void **state)
{
	static struct rig r;
	struct roost_get_params p;
	uint32_t used = 0;

	for (unsigned loss = 0; loss < 2; loss++) {
		rig_open(&r, 1,
			 &(struct rig_shape){.sp = {.loss = loss ? 0.05 : 0, .delay_ns = 1000},
					     .cfg = {.calls = 8}});
		assert_int_equal(runtime_deploy(r.f, kernels_builtin("get"), NULL), 0);
		assert_int_equal(roost_get_insert((void *)r.node[0].mem, 16, 0, &used, 5,
						  rig_va(&r, 8192), 3000, 0),
				 0);
		p = roost_get_params(rig_va(&r, 0), 16, 5, 0);
		/* More in flight than there are slots: RNR NAKs too. */
		for (unsigned round = 0; round < 80; round++) {
			if (round == 60) { /* the simulated link has its final size */
				assert_true(allocations > 10);
				allocations = 0;
			}
			for (unsigned i = 0; i < 16; i++)
				rig_post(&r, 0, i, ROOST_GET_OP, &p, sizeof(p), 3000, 0);
			for (unsigned i = 0; i < 16; i++)
				assert_int_equal(rig_wait(&r, 0, i, 3000).status, ROOST_RPC_OK);
			rig_reap(&r);
		}
		assert_int_equal(allocations, 0);
		rig_close(&r);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(calls_allocate_nothing)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
