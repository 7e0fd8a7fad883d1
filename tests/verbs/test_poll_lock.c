/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A thread holds the lock of a CQ from ibv_start_poll() to ibv_end_poll(). Meanwhile another thread
 * destroys a queue pair of the CQ, resets one, or resizes the CQ, which waits for this lock. The
 * first thread can still call any verb that does not need the CQ.
 */
#include "fixture.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <unistd.h>

#define STAYING 3 /* completions of a queue pair that stays */
#define LEAVING 4 /* completions of the queue pair that is destroyed or reset */
#define LOOKS	1000

struct scene {
	struct pair p; /* other queue pairs and CQs */
	struct ibv_cq_ex *cq;
	struct ibv_pd *pd; /* of the queue pair `leaves` */
	struct ibv_qp *stays, *leaves;
	atomic_bool begun;
};

static void move_to(struct ibv_qp *qp, enum ibv_qp_state state, int mask)
{
	struct ibv_qp_attr a = {.qp_state = state, .port_num = 1};

	assert_int_equal(ibv_modify_qp(qp, &a, IBV_QP_STATE | mask), 0);
}

/* Makes a queue pair with n flushed receives in the CQ; their ids begin at `first`. */
static struct ibv_qp *flushed_qp(struct ibv_pd *pd, struct ibv_cq *cq, uint64_t first, unsigned n)
{
	struct ibv_qp_init_attr attr = {
		.send_cq = cq, .recv_cq = cq, .cap = {1, n, 1, 1, 0}, .qp_type = IBV_QPT_RC};
	struct ibv_qp *qp = ibv_create_qp(pd, &attr);
	struct ibv_recv_wr *bad;

	assert_non_null(qp);
	move_to(qp, IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
	for (unsigned i = 0; i < n; i++) {
		struct ibv_recv_wr wr = {.wr_id = first + i};

		assert_int_equal(ibv_post_recv(qp, &wr, &bad), 0);
	}
	move_to(qp, IBV_QPS_ERR, 0);
	return qp;
}

static void open_scene(struct scene *s)
{
	struct ibv_cq_init_attr_ex attr = {.cqe = 16};

	memset(s, 0, sizeof(*s));
	pair_open(&s->p, NULL);
	s->cq = ibv_create_cq_ex(s->p.ctx, &attr);
	s->pd = ibv_alloc_pd(s->p.ctx);
	assert_true(s->cq && s->pd);
	s->stays = flushed_qp(s->p.pd, ibv_cq_ex_to_cq(s->cq), 0, STAYING);
	wait_pending(ibv_cq_ex_to_cq(s->cq), STAYING);
	s->leaves = flushed_qp(s->pd, ibv_cq_ex_to_cq(s->cq), 100, LEAVING);
	wait_pending(ibv_cq_ex_to_cq(s->cq), STAYING + LEAVING);
}

static void close_scene(struct scene *s)
{
	assert_int_equal(ibv_destroy_qp(s->stays), 0);
	if (s->leaves)
		assert_int_equal(ibv_destroy_qp(s->leaves), 0);
	assert_int_equal(ibv_destroy_cq(ibv_cq_ex_to_cq(s->cq)), 0);
	if (s->pd)
		assert_int_equal(ibv_dealloc_pd(s->pd), 0);
	pair_close(&s->p);
}

/* The other thread is in the call when seen() returns true. */
struct call {
	void *(*make)(void *scene);
	bool (*seen)(struct scene *s);
};

/* Creates and destroys another queue pair, which takes the control lock and PUs. */
static void use_control_verbs(struct scene *s)
{
	struct ibv_qp_init_attr attr = {.send_cq = s->p.cq[0],
					.recv_cq = s->p.cq[1],
					.cap = {1, 1, 1, 1, 0},
					.qp_type = IBV_QPT_RC};
	struct ibv_qp *qp = ibv_create_qp(s->p.pd, &attr);

	assert_non_null(qp);
	assert_int_equal(ibv_destroy_qp(qp), 0);
}

/* A deadlock ends the program by SIGALRM. */
static void poll_during(struct scene *s, const struct call *call)
{
	struct ibv_poll_cq_attr attr = {0};
	pthread_t thread;
	void *ret;

	alarm(TIMEOUT_S);
	assert_int_equal(ibv_start_poll(s->cq, &attr), 0);
	assert_int_equal(pthread_create(&thread, NULL, call->make, s), 0);
	while (!atomic_load(&s->begun) || !call->seen(s))
		sched_yield();
	use_control_verbs(s);
	assert_int_equal(s->cq->wr_id, 0);
	ibv_end_poll(s->cq);
	assert_int_equal(pthread_join(thread, &ret), 0);
	assert_null(ret);
	alarm(0);
}

/* Asserts that these completions wait in the CQ: the rest of those that stay, then n others. */
static void assert_waiting(struct scene *s, unsigned n)
{
	struct ibv_wc wc[STAYING + LEAVING];

	assert_int_equal(ibv_poll_cq(ibv_cq_ex_to_cq(s->cq), STAYING + LEAVING, wc),
			 STAYING - 1 + n);
	for (unsigned i = 0; i < STAYING - 1 + n; i++) {
		assert_int_equal(wc[i].status, IBV_WC_WR_FLUSH_ERR);
		assert_int_equal(wc[i].wr_id, i < STAYING - 1 ? i + 1 : 100 + i - (STAYING - 1));
	}
}

static void *destroy(void *arg)
{
	struct scene *s = arg;

	atomic_store(&s->begun, true);
	return (void *)(intptr_t)ibv_destroy_qp(s->leaves);
}

/* The PD of a queue pair stays until the NIC has destroyed the queue pair. */
static bool is_destroyed(struct scene *s)
{
	int ret = ibv_dealloc_pd(s->pd);

	assert_true(ret == 0 || ret == EBUSY);
	if (ret == 0)
		s->pd = NULL;
	return ret == 0;
}

static void while_a_queue_pair_is_destroyed(void **state)
{
	static const struct call call = {destroy, is_destroyed};
	struct scene s;

	open_scene(&s);
	poll_during(&s, &call);
	s.leaves = NULL;
	assert_waiting(&s, 0);
	close_scene(&s);
}

static void *reset(void *arg)
{
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_RESET};
	struct scene *s = arg;

	atomic_store(&s->begun, true);
	return (void *)(intptr_t)ibv_modify_qp(s->leaves, &a, IBV_QP_STATE);
}

static bool is_reset(struct scene *s)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr a;

	assert_int_equal(ibv_query_qp(s->leaves, &a, IBV_QP_STATE, &init), 0);
	return a.qp_state == IBV_QPS_RESET;
}

static void while_a_queue_pair_is_reset(void **state)
{
	static const struct call call = {reset, is_reset};
	struct scene s;

	open_scene(&s);
	poll_during(&s, &call);
	assert_waiting(&s, 0);
	close_scene(&s);
}

static void *resize(void *arg)
{
	struct scene *s = arg;

	atomic_store(&s->begun, true);
	return (void *)(intptr_t)ibv_resize_cq(ibv_cq_ex_to_cq(s->cq), 100);
}

/*
 * A resize that waits for the CQ has no visible effect. A call that takes the control lock first
 * stops one of these.
 */
static bool has_had_time(struct scene *s)
{
	for (unsigned i = 0; i < LOOKS; i++) {
		struct ibv_pd *pd = ibv_alloc_pd(s->p.ctx);

		assert_true(pd && !ibv_dealloc_pd(pd));
		sched_yield();
	}
	return true;
}

static void while_the_cq_is_resized(void **state)
{
	static const struct call call = {resize, has_had_time};
	struct scene s;

	open_scene(&s);
	poll_during(&s, &call);
	assert_true(ibv_cq_ex_to_cq(s.cq)->cqe >= 100);
	assert_waiting(&s, LEAVING);
	close_scene(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(while_a_queue_pair_is_destroyed),
		cmocka_unit_test(while_a_queue_pair_is_reset),
		cmocka_unit_test(while_the_cq_is_resized),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
