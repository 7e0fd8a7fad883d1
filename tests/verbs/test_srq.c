/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Shared receive queues through the verbs: attributes, posting (also from several threads), events,
 * errors.
 */
#include "fixture.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

#define DEPTH	64
#define QPS	4
#define SENDERS 2

/* QPs of side 1 share `srq`. The pair's own QPs are not used. */
struct shared {
	struct pair p;
	struct ibv_srq *srq;
	struct ibv_qp *qp[QPS][2];
};

static struct ibv_srq *make_srq(struct ibv_pd *pd, uint32_t max_wr)
{
	struct ibv_srq_init_attr a = {.attr = {.max_wr = max_wr, .max_sge = 1}};
	struct ibv_srq *srq = ibv_create_srq(pd, &a);

	assert_non_null(srq);
	assert_true(a.attr.max_wr >= max_wr);
	return srq;
}

static void shared_open(struct shared *s)
{
	static const struct pair_options unconnected = {
		.cap = {.max_send_wr = 16, .max_recv_wr = 16, .max_send_sge = 1, .max_recv_sge = 1},
		.cqe = 1024,
		.leave_reset = true,
	};
	struct ibv_qp_init_attr a = {.cap = {16, 0, 1, 0, 0}, .qp_type = IBV_QPT_RC};
	int i, side;

	pair_open(&s->p, &unconnected);
	s->srq = make_srq(s->p.pd, DEPTH);
	for (i = 0; i < QPS; i++) {
		for (side = 0; side < 2; side++) {
			a.send_cq = a.recv_cq = s->p.cq[side];
			a.srq = side ? s->srq : NULL;
			a.cap.max_recv_wr = 0;
			assert_int_equal(ibv_destroy_qp(s->p.qp[side]), 0);
			s->p.qp[side] = ibv_create_qp(s->p.pd, &a);
			assert_non_null(s->p.qp[side]);
			s->qp[i][side] = s->p.qp[side];
		}
		for (side = 0; side < 2; side++) {
			assert_int_equal(to_init(&s->p, side), 0);
			assert_int_equal(to_rtr(&s->p, side), 0);
		}
		for (side = 0; side < 2; side++)
			assert_int_equal(to_rts(&s->p, side), 0);
		/* For the next round, which destroys it. */
		for (side = 0; side < 2; side++) {
			a.send_cq = a.recv_cq = s->p.cq[side];
			a.srq = NULL;
			s->p.qp[side] = ibv_create_qp(s->p.pd, &a);
			assert_non_null(s->p.qp[side]);
		}
	}
}

static void close_qps(struct shared *s)
{
	int i, side;

	for (i = 0; i < QPS; i++) {
		assert_int_equal(ibv_destroy_srq(s->srq), EBUSY);
		for (side = 0; side < 2; side++)
			assert_int_equal(ibv_destroy_qp(s->qp[i][side]), 0);
	}
}

static void shared_close(struct shared *s)
{
	close_qps(s);
	assert_int_equal(ibv_destroy_srq(s->srq), 0);
	pair_close(&s->p);
}

static int post_one_recv(struct shared *s, uint64_t wr_id, uint32_t n)
{
	struct ibv_sge sge = {(uintptr_t)s->p.buf[1] + wr_id % DEPTH * 64, n, s->p.mr[1]->lkey};
	struct ibv_recv_wr wr = {.wr_id = wr_id, .sg_list = &sge, .num_sge = 1}, *bad = NULL;
	int ret = ibv_post_srq_recv(s->srq, &wr, &bad);

	assert_ptr_equal(bad, ret ? &wr : NULL);
	return ret;
}

static int send_one(struct shared *s, int i, uint32_t n)
{
	struct ibv_sge sge = {(uintptr_t)s->p.buf[0], n, s->p.mr[0]->lkey};
	struct ibv_send_wr wr = {.wr_id = (uint64_t)i,
				 .sg_list = &sge,
				 .num_sge = 1,
				 .opcode = IBV_WR_SEND,
				 .send_flags = IBV_SEND_SIGNALED};

	return post_one(s->qp[i][0], &wr);
}

static void attributes(void **state)
{
	struct ibv_context *ctx = open_device();
	struct ibv_pd *pd = ibv_alloc_pd(ctx);
	struct ibv_srq_init_attr a = {.srq_context = &a, .attr = {.max_wr = 10, .max_sge = 3}};
	struct ibv_srq_init_attr_ex ex = {.attr = {.max_wr = 8, .max_sge = 1},
					  .comp_mask =
						  IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD,
					  .srq_type = IBV_SRQT_BASIC,
					  .pd = pd};
	struct ibv_device_attr dev;
	struct ibv_srq_attr q;
	struct ibv_srq *srq, *other;
	uint32_t n1, n2;

	assert_int_equal(ibv_query_device(ctx, &dev), 0);
	assert_true(dev.max_srq > 0);
	assert_true(dev.device_cap_flags & IBV_DEVICE_SRQ_RESIZE);
	srq = ibv_create_srq(pd, &a);
	assert_non_null(srq);
	assert_int_equal(a.attr.max_wr, 16);
	assert_ptr_equal(srq->srq_context, &a);
	assert_int_equal(ibv_query_srq(srq, &q), 0);
	assert_int_equal(q.max_wr, 16);
	assert_int_equal(q.max_sge, 3);
	assert_int_equal(q.srq_limit, 0);
	q.srq_limit = 5;
	assert_int_equal(ibv_modify_srq(srq, &q, IBV_SRQ_LIMIT), 0);
	assert_int_equal(ibv_query_srq(srq, &q), 0);
	assert_int_equal(q.srq_limit, 5);
	q.srq_limit = 17;
	assert_int_equal(ibv_modify_srq(srq, &q, IBV_SRQ_LIMIT), EINVAL);
	q.max_wr = 0;
	assert_int_equal(ibv_modify_srq(srq, &q, IBV_SRQ_MAX_WR), EINVAL);
	q.max_wr = 4; /* below the limit */
	assert_int_equal(ibv_modify_srq(srq, &q, IBV_SRQ_MAX_WR), EINVAL);
	q.max_wr = (uint32_t)dev.max_srq_wr + 1;
	assert_int_equal(ibv_modify_srq(srq, &q, IBV_SRQ_MAX_WR), EINVAL);
	q.max_wr = 30;
	q.srq_limit = 31;
	assert_int_equal(ibv_modify_srq(srq, &q, IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT), EINVAL);
	assert_int_equal(ibv_query_srq(srq, &q), 0);
	assert_int_equal(q.max_wr, 16);
	assert_int_equal(q.srq_limit, 5);
	q.max_wr = 30;
	q.srq_limit = 20;
	assert_int_equal(ibv_modify_srq(srq, &q, IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT), 0);
	assert_int_equal(ibv_query_srq(srq, &q), 0);
	assert_int_equal(q.max_wr, 32);
	assert_int_equal(q.srq_limit, 20);
	q.max_wr = 8;
	q.srq_limit = 3;
	assert_int_equal(ibv_modify_srq(srq, &q, IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT), 0);
	assert_int_equal(ibv_query_srq(srq, &q), 0);
	assert_int_equal(q.max_wr, 8);
	assert_int_equal(q.srq_limit, 3);
	other = ibv_create_srq_ex(ctx, &ex);
	assert_non_null(other);
	assert_int_equal(ibv_get_srq_num(srq, &n1), 0);
	assert_int_equal(ibv_get_srq_num(other, &n2), 0);
	assert_int_not_equal(n1, n2);
	ex.srq_type = IBV_SRQT_XRC;
	assert_null(ibv_create_srq_ex(ctx, &ex));
	assert_int_equal(errno, EOPNOTSUPP);
	a.attr.max_wr = 0;
	assert_null(ibv_create_srq(pd, &a));
	a.attr.max_wr = (uint32_t)dev.max_srq_wr + 1;
	assert_null(ibv_create_srq(pd, &a));
	a.attr = (struct ibv_srq_attr){.max_wr = 1, .max_sge = (uint32_t)dev.max_srq_sge + 1};
	assert_null(ibv_create_srq(pd, &a));
	assert_int_equal(errno, EINVAL);
	assert_int_equal(ibv_dealloc_pd(pd), EBUSY);
	assert_int_equal(ibv_destroy_srq(srq), 0);
	assert_int_equal(ibv_destroy_srq(other), 0);
	assert_int_equal(ibv_dealloc_pd(pd), 0);
	assert_int_equal(ibv_close_device(ctx), 0);
}

static void posting(void **state)
{
	struct shared s;
	struct ibv_sge sge[2] = {{0}};
	struct ibv_recv_wr two = {.sg_list = sge, .num_sge = 2}, one = {.next = &two}, *bad = NULL;
	struct ibv_qp_attr qa;
	struct ibv_qp_init_attr qi;
	uint64_t i;

	shared_open(&s);
	/* The good receives before the bad one are posted. */
	assert_int_equal(ibv_post_srq_recv(s.srq, &one, &bad), EINVAL);
	assert_ptr_equal(bad, &two);
	for (i = 1; i < DEPTH; i++)
		assert_int_equal(post_one_recv(&s, i, 64), 0);
	assert_int_equal(post_one_recv(&s, i, 64), ENOMEM);
	/* Receives cannot be posted to its QPs. */
	assert_int_equal(ibv_post_recv(s.qp[0][1], &one, &bad), EINVAL);
	assert_int_equal(ibv_query_qp(s.qp[0][1], &qa, IBV_QP_CAP, &qi), 0);
	assert_ptr_equal(qi.srq, s.srq);
	assert_ptr_equal(s.qp[0][1]->srq, s.srq);
	assert_int_equal(qi.cap.max_recv_wr, 0);
	shared_close(&s);
}

static void messages(void **state)
{
	struct shared s;
	struct ibv_wc wc;
	uint64_t round, seen[QPS] = {0};

	shared_open(&s);
	for (round = 0; round < 50; round++) {
		int i = (int)round % QPS;

		memset(s.p.buf[0], (int)round, 64);
		assert_int_equal(post_one_recv(&s, round, 64), 0);
		assert_int_equal(send_one(&s, i, 64), 0);
		wc = wait_good(s.p.cq[0]);
		wc = wait_good(s.p.cq[1]);
		assert_int_equal(wc.wr_id, round);
		assert_int_equal(wc.qp_num, s.qp[i][1]->qp_num);
		assert_memory_equal(s.p.buf[1] + round % DEPTH * 64, s.p.buf[0], 64);
		seen[i]++;
	}
	assert_true(seen[0] && seen[1] && seen[2] && seen[3]);
	shared_close(&s);
}

static int resize(struct shared *s, uint32_t max_wr)
{
	struct ibv_srq_attr a = {.max_wr = max_wr};

	return ibv_modify_srq(s->srq, &a, IBV_SRQ_MAX_WR);
}

/*
 * Waiting receives move to the new ring in their order. The ring has space for as many as
 * requested. A size smaller than the number of waiting receives is refused.
 */
static void resized(void **state)
{
	static const uint32_t sizes[] = {DEPTH, 200, 16, 16, 1000, 8};
	struct shared s;
	uint64_t posted = 0, taken = 0, i;
	unsigned k;

	shared_open(&s);
	for (k = 0; k < sizeof(sizes) / sizeof(sizes[0]); k++) {
		uint32_t depth = 8;

		while (depth < sizes[k])
			depth *= 2;
		assert_int_equal(resize(&s, sizes[k]), 0);
		while (posted - taken < depth)
			assert_int_equal(post_one_recv(&s, posted++, 64), 0);
		assert_int_equal(post_one_recv(&s, posted, 64), ENOMEM);
		assert_int_equal(resize(&s, depth / 2), EINVAL);
		/* All but seven are used up, so the next size is large enough. */
		for (i = 0; i < depth - 7; i++) {
			memset(s.p.buf[0], (int)taken, 64);
			assert_int_equal(send_one(&s, (int)taken % QPS, 64), 0);
			wait_good(s.p.cq[0]);
			assert_int_equal(wait_good(s.p.cq[1]).wr_id, taken);
			assert_memory_equal(s.p.buf[1] + taken % DEPTH * 64, s.p.buf[0], 64);
			taken++;
		}
	}
	shared_close(&s);
}

/* Takes an event. The caller acknowledges it. */
static void next_event(struct shared *s, struct ibv_async_event *ev, enum ibv_event_type type,
		       void *object)
{
	assert_int_equal(ibv_get_async_event(s->p.ctx, ev), 0);
	while (ev->event_type == IBV_EVENT_COMM_EST) {
		ibv_ack_async_event(ev);
		assert_int_equal(ibv_get_async_event(s->p.ctx, ev), 0);
	}
	assert_int_equal(ev->event_type, type);
	assert_ptr_equal(ev->element.srq, object);
}

static void take_event(struct shared *s, enum ibv_event_type type, void *object)
{
	struct ibv_async_event ev;

	next_event(s, &ev, type, object);
	ibv_ack_async_event(&ev);
}

static void events(void **state)
{
	struct ibv_srq_attr a = {.srq_limit = 2};
	struct ibv_qp_attr err = {.qp_state = IBV_QPS_ERR};
	struct shared s;
	uint64_t i;

	shared_open(&s);
	for (i = 0; i < 4; i++)
		assert_int_equal(post_one_recv(&s, i, 64), 0);
	assert_int_equal(ibv_modify_srq(s.srq, &a, IBV_SRQ_LIMIT), 0);
	for (i = 0; i < 3; i++) {
		assert_int_equal(send_one(&s, 0, 64), 0);
		wait_good(s.p.cq[1]);
	}
	take_event(&s, IBV_EVENT_SRQ_LIMIT_REACHED, s.srq);
	assert_int_equal(ibv_query_srq(s.srq, &a), 0);
	assert_int_equal(a.srq_limit, 0);
	assert_int_equal(ibv_modify_qp(s.qp[2][1], &err, IBV_QP_STATE), 0);
	take_event(&s, IBV_EVENT_QP_LAST_WQE_REACHED, s.qp[2][1]);
	/* The remaining receive is for the other QPs. */
	assert_int_equal(send_one(&s, 1, 64), 0);
	assert_int_equal(wait_good(s.p.cq[1]).wr_id, 3);
	shared_close(&s);
}

static void *destroy_srq(void *srq)
{
	return (void *)(intptr_t)ibv_destroy_srq(srq);
}

/*
 * A thread that is cancelled while it waits for an acknowledgement keeps no lock: the event can be
 * acknowledged, and the SRQ be destroyed again. A deadlock ends the program by SIGALRM.
 */
static void a_cancelled_destruction_is_repeated(void **state)
{
	struct ibv_srq_attr a = {.srq_limit = 2};
	struct ibv_async_event ev;
	struct shared s;

	shared_open(&s);
	for (uint64_t i = 0; i < 2; i++)
		assert_int_equal(post_one_recv(&s, i, 64), 0);
	assert_int_equal(ibv_modify_srq(s.srq, &a, IBV_SRQ_LIMIT), 0);
	assert_int_equal(send_one(&s, 0, 64), 0);
	wait_good(s.p.cq[1]);
	next_event(&s, &ev, IBV_EVENT_SRQ_LIMIT_REACHED, s.srq);
	close_qps(&s);
	alarm(TIMEOUT_S);
	cancel_call(destroy_srq, s.srq);
	cancel_call(destroy_srq, s.srq);
	ibv_ack_async_event(&ev);
	assert_int_equal(ibv_destroy_srq(s.srq), 0);
	alarm(0);
	pair_close(&s.p);
}

/*
 * Several threads post to one SRQ while its size changes and messages come on several QPs. Each
 * receive is taken once.
 */
#define MESSAGES 4000

static struct shared T;
static atomic_uint next_id;
static atomic_bool failed;

static void *poster(void *arg)
{
	while (!atomic_load(&failed)) {
		unsigned id = atomic_fetch_add(&next_id, 1);
		struct ibv_sge sge = {(uintptr_t)T.p.buf[1] + id % DEPTH * 64, 64, T.p.mr[1]->lkey};
		struct ibv_recv_wr wr = {.wr_id = id, .sg_list = &sge, .num_sge = 1}, *bad;
		int ret;

		if (id >= MESSAGES)
			return NULL;
		while ((ret = ibv_post_srq_recv(T.srq, &wr, &bad)) == ENOMEM &&
		       !atomic_load(&failed))
			sched_yield();
		if (ret)
			atomic_store(&failed, true);
	}
	return NULL;
}

static void threads(void **state)
{
	static uint8_t taken[MESSAGES];
	pthread_t thread[SENDERS];
	unsigned out = 0, sent = 0, got = 0, turns = 0, i;
	time_t end = time(NULL) + 4 * TIMEOUT_S;
	struct ibv_wc wc[8];
	int n;

	shared_open(&T);
	for (i = 0; i < SENDERS; i++)
		assert_int_equal(pthread_create(&thread[i], NULL, poster, NULL), 0);
	while (got < MESSAGES && time(NULL) < end && !atomic_load(&failed)) {
		if (sent < MESSAGES && out < 16) {
			assert_int_equal(send_one(&T, (int)(sent % QPS), 64), 0);
			sent++;
			out++;
		}
		n = ibv_poll_cq(T.p.cq[0], 8, wc);
		for (i = 0; i < (unsigned)n; i++)
			assert_int_equal(wc[i].status, IBV_WC_SUCCESS);
		out -= (unsigned)n;
		/* A smaller size is refused while more receives wait. */
		if (++turns % 100 == 0) {
			n = resize(&T, turns % 200 ? 2 * DEPTH : DEPTH);
			assert_true(n == 0 || n == EINVAL);
		}
		n = ibv_poll_cq(T.p.cq[1], 8, wc);
		for (i = 0; i < (unsigned)n; i++) {
			assert_int_equal(wc[i].status, IBV_WC_SUCCESS);
			assert_true(wc[i].wr_id < MESSAGES);
			taken[wc[i].wr_id]++;
			got++;
		}
	}
	atomic_store(&failed, got < MESSAGES);
	for (i = 0; i < SENDERS; i++)
		pthread_join(thread[i], NULL);
	assert_int_equal(got, MESSAGES);
	for (i = 0; i < MESSAGES; i++)
		assert_int_equal(taken[i], 1);
	shared_close(&T);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(attributes), cmocka_unit_test(posting),
		cmocka_unit_test(messages),   cmocka_unit_test(resized),
		cmocka_unit_test(events),     cmocka_unit_test(a_cancelled_destruction_is_repeated),
		cmocka_unit_test(threads),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
