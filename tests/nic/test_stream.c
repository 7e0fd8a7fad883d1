/* SPDX-License-Identifier: BSD-2-Clause */
/* Stream hooks of the core: errors of attach and detach. tests/verbs/test_hook.c has the rest. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "nic/nic_stream.h"
#include "world.h"

static void bytes(struct nic_stream_hook *hook, const struct nic_stream_piece *piece)
{
}

static void gone(struct nic_stream_hook *hook)
{
}

/*
 * A hook that is not attached is reported as such, also while work is in flight that keeps an
 * attached hook from being detached.
 */
static void detach_of_none(void **state)
{
	struct nic_stream_hook attached = {.bytes = bytes, .gone = gone, .rewrites = true};
	struct nic_stream_hook other = attached;
	struct roost_cqe c;
	struct world w;
	struct ep a, b;
	struct wr wr;

	world_init(&w, 2, 3, NULL);
	ep_init(&a, &w, 0, NULL);
	ep_init(&b, &w, 1, NULL);
	ep_connect(&a, &b);
	assert_int_equal(nic_stream_detach(a.qp, &other), -ENOENT);
	assert_int_equal(nic_stream_attach_out(a.qp, &attached), 0);
	wr = wr_rdma(ROOST_OP_WRITE, &a, 0, 4000, &b, 0);
	ep_post(&a, &wr);
	nic_poll(w.nic[0], 0, world_now(&w));
	assert_int_equal(nic_stream_detach(a.qp, &attached), -EBUSY);
	assert_int_equal(nic_stream_detach(a.qp, &other), -ENOENT);
	assert_true(ep_wait_send(&a, &c, SEC));
	assert_int_equal(c.status, NIC_WC_SUCCESS);
	assert_int_equal(nic_stream_detach(a.qp, &attached), 0);
	assert_int_equal(nic_stream_detach(a.qp, &attached), -ENOENT);
	ep_fini(&a);
	ep_fini(&b);
	world_fini(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(detach_of_none),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
