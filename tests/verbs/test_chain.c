/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The calls of roost/chain_verbs.h on queue pairs of one process that are connected to themselves.
 */
#include "fixture.h"

#include <stdatomic.h>
#include <time.h>

#include "roost/chain_verbs.h"

#define ACCESS                                                                                     \
	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |               \
	 IBV_ACCESS_REMOTE_ATOMIC)

static struct ibv_context *ctx;
static struct ibv_pd *pd;
static struct ibv_cq *counting, *cq;
static struct ibv_mr *mr;
static uint64_t memory[16];

static int open_all(void **state)
{
	choose_port(false);
	ctx = open_device();
	pd = ibv_alloc_pd(ctx);
	counting = roost_create_counting_cq(ctx, 0);
	cq = ibv_create_cq(ctx, 64, NULL, NULL, 0);
	memset(memory, 0, sizeof(memory));
	mr = ibv_reg_mr(pd, memory, sizeof(memory), ACCESS);
	return ctx && pd && counting && cq && mr ? 0 : -1;
}

static int close_all(void **state)
{
	return ibv_dereg_mr(mr) || ibv_destroy_cq(cq) || ibv_destroy_cq(counting) ||
	       ibv_dealloc_pd(pd) || ibv_close_device(ctx);
}

static struct ibv_qp *new_qp(struct ibv_cq *sends, uint32_t depth)
{
	struct ibv_qp_init_attr init = {
		.cap = {.max_send_wr = depth,
			.max_recv_wr = 8,
			.max_send_sge = 1,
			.max_recv_sge = 1},
		.qp_type = IBV_QPT_RC,
		.send_cq = sends,
		.recv_cq = counting,
	};
	struct ibv_qp *qp = ibv_create_qp(pd, &init);

	assert_non_null(qp);
	return qp;
}

static struct ibv_qp *chain_qp(struct ibv_cq *sends, uint32_t depth, bool managed)
{
	struct roost_chain_attr attr = {.managed_send = managed, .watch = {counting}};
	struct ibv_qp *qp = new_qp(sends, depth);

	assert_int_equal(roost_qp_set_chain(qp, &attr), 0);
	assert_int_equal(roost_qp_connect_self(qp, 1, 0), 0);
	return qp;
}

static struct roost_wqe add_wqe(uint64_t *to, uint64_t n)
{
	return (struct roost_wqe){.ctrl = ROOST_CTRL(ROOST_OP_FETCH_ADD, 0),
				  .flags = ROOST_WQE_SIGNALED,
				  .num_sge = 1,
				  .raddr = (uintptr_t)to,
				  .rkey = mr->rkey,
				  .swap_add = n,
				  .sge = {{(uintptr_t)&memory[15], 8, mr->lkey}}};
}

static void wait_count(uint32_t n)
{
	time_t until = time(NULL) + TIMEOUT_S;

	while (roost_cq_count(counting) != n) {
		assert_int_equal(ibv_poll_cq(cq, 0, NULL), 0);
		if (time(NULL) > until)
			fail_msg("%u completions, not %u", roost_cq_count(counting), n);
	}
}

/* A managed queue of four runs 4,000 ADDs; a WAIT of another queue sees the last one. */
static void counts_and_recycles(void **state)
{
	struct ibv_qp *b = chain_qp(counting, 4, true), *a = chain_qp(cq, 8, false);
	struct roost_wqe wqe[4];
	struct ibv_wc wc;

	for (int i = 0; i < 4; i++)
		wqe[i] = add_wqe(&memory[0], 1);
	assert_int_equal(roost_post_wqes(b, wqe, 4, 0), 0);
	assert_int_equal(roost_post_wqes(b, wqe, 1, 0), ENOMEM);
	assert_int_equal(roost_post_wait(a, &(struct roost_wait_wr){.wr_id = 7,
								    .send_flags = IBV_SEND_SIGNALED,
								    .watch = 0,
								    .count = 4000,
								    .relative = true}),
			 0);
	settle(cq);
	assert_int_equal(roost_cq_count(counting), 0);
	/* No WQE behind the WAIT is executed, so another queue starts b. */
	{
		struct ibv_qp *starter = chain_qp(cq, 8, false);

		assert_int_equal(
			roost_post_enable(starter, &(struct roost_enable_wr){.qp_num = b->qp_num,
									     .count = 4000,
									     .relative = true}),
			0);
		wc = wait_good(cq);
		assert_int_equal(wc.wr_id, 7);
		assert_int_equal(wc.qp_num, a->qp_num);
		assert_int_equal(ibv_destroy_qp(starter), 0);
	}
	wait_count(4000);
	assert_int_equal(memory[0], 4000);
	assert_int_equal(roost_post_wqes(b, wqe, 1, 0), ENOMEM); /* its ring runs again */
	assert_int_equal(ibv_destroy_cq(counting), EBUSY);
	assert_int_equal(ibv_resize_cq(counting, 8), EINVAL);
	assert_int_equal(ibv_destroy_qp(a), 0);
	assert_int_equal(ibv_destroy_qp(b), 0);
}

static void calculates(void **state)
{
	struct ibv_qp *a = chain_qp(cq, 8, false);
	struct roost_calc_wr wr = {.wr_id = 3,
				   .send_flags = IBV_SEND_SIGNALED,
				   .op = ROOST_OP_MAX,
				   .old = {(uintptr_t)&memory[1], 8, mr->lkey},
				   .remote_addr = (uintptr_t)&memory[0],
				   .rkey = mr->rkey,
				   .operand = 12};

	memory[0] = 5;
	assert_int_equal(roost_post_calc(a, &wr), 0);
	assert_int_equal(wait_good(cq).wr_id, 3);
	assert_int_equal(memory[0], 12);
	assert_int_equal(memory[1], 5);
	wr.op = ROOST_OP_CMP_SWAP;
	assert_int_equal(roost_post_calc(a, &wr), EINVAL);
	wr.op = ROOST_OP_XOR + 1;
	assert_int_equal(roost_post_calc(a, &wr), EINVAL);
	assert_int_equal(ibv_destroy_qp(a), 0);
}

/* The region is the ring, to the byte; it holds the queue pair. */
static void ring_is_a_region(void **state)
{
	struct ibv_qp *b = chain_qp(counting, 4, true), *a = chain_qp(cq, 8, false);
	struct ibv_mr *ring = roost_reg_queue_mr(b, ROOST_SEND_QUEUE, ACCESS);
	struct roost_wqe w = add_wqe(&memory[0], 1);
	struct ibv_wc wc;

	assert_non_null(ring);
	assert_int_equal(roost_qp_stride(b, ROOST_SEND_QUEUE), 64);
	assert_int_equal(ring->length, 4 * 64);
	assert_int_equal(ibv_destroy_qp(b), EBUSY);
	/* a adds 41 to the operand of b's first WQE. */
	assert_int_equal(roost_post_wqes(b, &w, 1, 0), 0);
	w.raddr = (uintptr_t)ring->addr + offsetof(struct roost_wqe, swap_add);
	w.rkey = ring->rkey;
	w.swap_add = 41;
	assert_int_equal(roost_post_wqes(a, &w, 1, 5), 0);
	assert_int_equal(wait_good(cq).wr_id, 5);
	assert_int_equal(
		roost_post_enable(a, &(struct roost_enable_wr){.qp_num = b->qp_num, .count = 1}),
		0);
	wait_count(1);
	assert_int_equal(memory[0], 42);
	/* Past its end. */
	w.raddr = (uintptr_t)ring->addr + ring->length;
	assert_int_equal(roost_post_wqes(a, &w, 1, 6), 0);
	wait_wcs(cq, &wc, 1);
	assert_int_equal(wc.status, IBV_WC_REM_ACCESS_ERR);
	assert_int_equal(ibv_dereg_mr(ring), 0);
	assert_int_equal(ibv_destroy_qp(b), 0);
	assert_int_equal(ibv_destroy_qp(a), 0);
}

/* A WQE that cannot be executed: the event, the reason and the WQE. */
static void failure_is_named(void **state)
{
	struct ibv_qp *a = chain_qp(counting, 8, false);
	struct roost_chain_failure f;
	struct roost_wqe w = add_wqe(&memory[0], 1);
	struct ibv_async_event event;

	assert_int_equal(roost_qp_chain_failure(a, &f), ENOENT);
	assert_int_equal(roost_post_wqes(a, &w, 1, 0), 0);
	w.ctrl = ROOST_CTRL(77, 0x1234);
	assert_int_equal(roost_post_wqes(a, &w, 1, 0), 0);
	assert_int_equal(ibv_get_async_event(ctx, &event), 0);
	assert_int_equal(event.event_type, IBV_EVENT_QP_FATAL);
	assert_ptr_equal(event.element.qp, a);
	ibv_ack_async_event(&event);
	assert_int_equal(roost_qp_chain_failure(a, &f), 0);
	assert_int_equal(f.status, IBV_WC_LOC_QP_OP_ERR);
	assert_int_equal(f.index, 1);
	assert_memory_equal(&f.wqe, &w, sizeof(w));
	assert_int_equal(roost_cq_count(counting), 1);
	assert_int_equal(memory[0], 1);
	assert_int_equal(ibv_destroy_qp(a), 0);
}

static void set_up_is_checked(void **state)
{
	struct roost_chain_attr attr = {.watch = {counting}};
	struct ibv_qp *a = new_qp(cq, 8);
	struct roost_wqe w = {.ctrl = ROOST_CTRL(ROOST_OP_WAIT, 0)};
	struct ibv_wc wc;

	assert_int_equal(roost_post_wqes(a, &w, 1, 0), EINVAL); /* RESET */
	assert_int_equal(roost_qp_connect_self(a, 1, 99), EINVAL);
	assert_int_equal(roost_qp_connect_self(a, 1, 0), 0);
	assert_int_equal(roost_post_wqes(a, &w, 0, 0), EINVAL);
	assert_int_equal(roost_qp_set_chain(a, &attr), EINVAL);
	assert_int_equal(roost_post_wqes(a, &w, 1, 0), 0);
	wait_wcs(cq, &wc, 1);
	assert_int_equal(wc.status, IBV_WC_LOC_QP_OP_ERR); /* it was not set up */
	assert_int_equal(ibv_destroy_qp(a), 0);
	a = chain_qp(cq, 8, false);
	assert_int_equal(roost_qp_set_chain(a, &attr), EINVAL);
	assert_int_equal(roost_post_wait(a, &(struct roost_wait_wr){.send_flags = IBV_SEND_INLINE}),
			 EINVAL);
	assert_int_equal(ibv_destroy_qp(a), 0);
	assert_null(roost_create_counting_cq(ctx, 1000));
	assert_int_equal(errno, EINVAL);
}

/* The owner limits, audits, stops and removes a program; a queue beside it continues. */
static void owner_ends_a_program(void **state)
{
	struct roost_chain_attr attr = {.managed_send = true, .audit = cq, .limit = {100, 2, 0}};
	struct ibv_qp *a = new_qp(counting, 2), *starter = chain_qp(counting, 8, false);
	struct roost_wqe w[2] = {add_wqe(&memory[0], 1)};
	struct ibv_pd *other = ibv_alloc_pd(ctx), *mine = pd;
	struct ibv_mr *ring;
	struct ibv_wc wc;
	struct ibv_qp *b;

	assert_int_equal(roost_qp_set_chain(a, &attr), 0);
	assert_int_equal(roost_qp_connect_self(a, 1, 0), 0);
	ring = roost_reg_queue_mr(a, ROOST_SEND_QUEUE, ACCESS);
	assert_non_null(ring);
	pd = other;
	b = chain_qp(counting, 8, false);
	pd = mine;
	w[0].flags = 0;
	w[1] = (struct roost_wqe){.ctrl = ROOST_CTRL(ROOST_OP_ENABLE, 0),
				  .raddr = a->qp_num | ROOST_CHAIN_RELATIVE,
				  .swap_add = 2};
	assert_int_equal(roost_post_wqes(a, w, 2, 7), 0);
	assert_int_equal(roost_post_enable(starter, &(struct roost_enable_wr){.qp_num = a->qp_num,
									      .count = 2,
									      .relative = true}),
			 0);
	for (int i = 0; i < 4; i++) {
		wait_wcs(cq, &wc, 1);
		assert_int_equal(wc.wr_id, 7 + i % 2);
		assert_int_equal(wc.imm_data, i % 2 ? ROOST_OP_ENABLE : ROOST_OP_FETCH_ADD);
	}
	assert_int_equal(roost_qp_limit_chain(starter, &attr.limit), EINVAL);
	attr.limit.rate_limit = 1;
	assert_int_equal(roost_qp_limit_chain(a, &attr.limit), 0);
	assert_int_equal(roost_pd_stop_chains(mine), 0);
	assert_int_equal(roost_pd_remove_chains(mine), 0); /* a, its ring, starter */
	assert_int_equal(roost_post_wait_time(
				 b, &(struct roost_wait_time_wr){.send_flags = IBV_SEND_SIGNALED,
								 .ns = 1000,
								 .relative = true}),
			 0);
	wait_count(1);
	assert_true(roost_chain_time(ctx) > 0);
	assert_int_equal(ibv_destroy_qp(b), 0);
	assert_int_equal(ibv_dealloc_pd(other), 0);
}

int main(void)
{
#define TEST(t) cmocka_unit_test_setup_teardown(t, open_all, close_all)
	const struct CMUnitTest tests[] = {
		TEST(counts_and_recycles), TEST(calculates),	    TEST(ring_is_a_region),
		TEST(failure_is_named),	   TEST(set_up_is_checked), TEST(owner_ends_a_program),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
