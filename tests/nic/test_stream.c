/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Stream hooks of the core: errors of attach and detach, and drained queues.
 * tests/verbs/test_hook.c has the rest.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "nic/nic_stream.h"
#include "world.h"

static uint32_t seen;

static void bytes(struct nic_stream_hook *hook, const struct nic_stream_piece *piece)
{
	seen += piece->len;
}

static void gone(struct nic_stream_hook *hook)
{
}

/*
 * A hook that is not attached is reported as such, also while work is in flight that keeps an
 * attached hook from being detached. That one sees what is posted meanwhile, too.
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
	ep_post(&a, &wr);
	for (unsigned i = 0; i < 2; i++) {
		assert_true(ep_wait_send(&a, &c, SEC));
		assert_int_equal(c.status, NIC_WC_SUCCESS);
	}
	assert_int_equal(seen, 8000);
	assert_int_equal(nic_stream_detach(a.qp, &attached), 0);
	assert_int_equal(nic_stream_detach(a.qp, &attached), -ENOENT);
	ep_fini(&a);
	ep_fini(&b);
	world_fini(&w);
}

/* ---- a hook that produces what it got ---- */

static struct {
	struct nic_stream_hook hook;
	uint8_t data[4096];
	uint32_t len, given;
} copier;

static void copier_bytes(struct nic_stream_hook *hook, const struct nic_stream_piece *piece)
{
	memcpy(copier.data, piece->data, piece->len);
	copier.len = piece->len;
	copier.given = 0;
}

static uint32_t copier_produce(struct nic_stream_hook *hook, uint8_t *to, uint32_t space,
			       bool *needs_input)
{
	uint32_t left = copier.len - copier.given, n = left < space ? left : space;

	memcpy(to, copier.data + copier.given, n);
	copier.given += n;
	*needs_input = copier.given == copier.len;
	return n;
}

/* The copier is done with each piece when it is asked for output. */
static void copier_drop(struct nic_stream_hook *hook)
{
	fail();
}

/*
 * SQD completes a WRITE that has begun, also if a hook that changes lengths sends it in parts. The
 * next WRITE does not begin.
 */
static void drain_of_parts(void **state)
{
	const struct nic_qp_attr sqd = {.state = NIC_QPS_SQD}, rts = {.state = NIC_QPS_RTS};
	const uint32_t len = 200000;
	struct roost_cqe c;
	struct world w;
	struct ep a, b;
	struct wr wr;

	world_init(&w, 2, 3, NULL);
	ep_init(&a, &w, 0, &(struct ep_params){.mem = 1 << 20});
	ep_init(&b, &w, 1, &(struct ep_params){.mem = 1 << 20});
	ep_connect(&a, &b);
	copier.hook = (struct nic_stream_hook){.bytes = copier_bytes,
					       .produce = copier_produce,
					       .drop = copier_drop,
					       .gone = gone};
	assert_int_equal(nic_stream_attach_out(a.qp, &copier.hook), 0);
	memset(a.mem, 7, len);
	wr = wr_rdma(ROOST_OP_WRITE, &a, 0, len, &b, 0);
	ep_post(&a, &wr);
	ep_post(&a, &wr);
	nic_poll(w.nic[0], 0, world_now(&w));
	assert_int_equal(ep_modify(&a, &sqd, NIC_QPA_STATE | NIC_QPA_EN_SQD_ASYNC_NOTIFY), 0);
	while (!(a.events & 1u << NIC_EVENT_SQ_DRAINED))
		assert_true(world_step(&w, SEC));
	assert_true(ep_poll_send(&a, &c));
	assert_int_equal(c.status, NIC_WC_SUCCESS);
	assert_int_equal(b.mem[len - 1], 7);
	assert_int_equal(nic_qp_state(a.qp), NIC_QPS_SQD);
	world_run(&w, world_now(&w) + SEC);
	assert_false(ep_poll_send(&a, &c));
	assert_int_equal(ep_modify(&a, &rts, NIC_QPA_STATE), 0);
	assert_true(ep_wait_send(&a, &c, SEC));
	assert_int_equal(c.status, NIC_WC_SUCCESS);
	ep_fini(&a);
	ep_fini(&b);
	world_fini(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(detach_of_none),
		cmocka_unit_test(drain_of_parts),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
