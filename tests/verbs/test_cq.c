/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Completion queues: resizing, cleaning, notification and its descriptor, acknowledgements, the
 * extended interface.
 */
#include "fixture.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

#include "roost/chain_verbs.h"

static void post_writes(struct pair *p, int side, uint64_t first, int n)
{
	int i;

	for (i = 0; i < n; i++) {
		struct ibv_sge sge = {(uintptr_t)p->buf[side], 8, p->mr[side]->lkey};
		struct ibv_send_wr wr = {
			.wr_id = first + (unsigned)i,
			.sg_list = &sge,
			.num_sge = 1,
			.opcode = IBV_WR_RDMA_WRITE,
			.send_flags = IBV_SEND_SIGNALED,
			.wr.rdma = {(uintptr_t)p->buf[!side], p->mr[!side]->rkey},
		};

		assert_int_equal(post_one(p->qp[side], &wr), 0);
	}
}

static void wrong_sizes(void **state)
{
	struct ibv_context *ctx = open_device();

	assert_null(ibv_create_cq(ctx, 0, NULL, NULL, 0));
	assert_int_equal(errno, EINVAL);
	assert_null(ibv_create_cq(ctx, -5, NULL, NULL, 0));
	assert_null(ibv_create_cq(ctx, (1 << 22) + 1, NULL, NULL, 0));
	assert_null(ibv_create_cq(ctx, 1, NULL, NULL, ctx->num_comp_vectors));
	assert_null(ibv_create_cq(ctx, 1, NULL, NULL, -1));
	assert_int_equal(ibv_close_device(ctx), 0);
}

static void resize_keeps_completions(void **state)
{
	struct pair p;
	struct ibv_wc wc[16];
	int i, cqe;

	pair_open(&p, NULL);
	post_writes(&p, 0, 0, 10);
	wait_pending(p.cq[0], 10);
	assert_int_equal(ibv_poll_cq(p.cq[0], 2, wc), 2);
	cqe = p.cq[0]->cqe;
	assert_int_equal(ibv_resize_cq(p.cq[0], 4), EINVAL); /* eight completions wait */
	assert_int_equal(p.cq[0]->cqe, cqe);
	assert_int_equal(ibv_resize_cq(p.cq[0], 200), 0);
	assert_true(p.cq[0]->cqe >= 200);
	assert_int_equal(ibv_resize_cq(p.cq[0], 8), 0);
	assert_int_equal(ibv_resize_cq(p.cq[0], 0), EINVAL);
	wait_wcs(p.cq[0], wc, 8);
	for (i = 0; i < 8; i++)
		assert_int_equal(wc[i].wr_id, i + 2);
	/* The new ring wraps as the old one did. */
	for (i = 0; i < 50; i++) {
		post_writes(&p, 0, (uint64_t)i, 1);
		assert_int_equal(wait_good(p.cq[0]).wr_id, i);
	}
	pair_close(&p);
}

/* Destroying a QP removes its completions, and no others. */
static void destroy_cleans(void **state)
{
	struct ibv_qp_init_attr attr = {.cap = {16, 16, 1, 1, 0}, .qp_type = IBV_QPT_RC};
	struct ibv_qp *own[2], *kept[2];
	struct ibv_cq *cq;
	struct ibv_wc wc[32];
	struct pair p;
	int i, round;

	pair_open(&p, NULL);
	cq = ibv_create_cq(p.ctx, 32, NULL, NULL, 0);
	kept[0] = p.qp[0];
	kept[1] = p.qp[1];
	attr.send_cq = attr.recv_cq = cq;
	/*
	 * One side of each of two pairs completes on `cq`, in turn. Several rounds move the ring's
	 * start.
	 */
	for (round = 0; round < 5; round++) {
		for (i = 0; i < 2; i++)
			own[i] = ibv_create_qp(p.pd, &attr);
		p.qp[0] = own[0];
		p.qp[1] = own[1];
		for (i = 0; i < 2; i++) {
			assert_int_equal(to_init(&p, i), 0);
			assert_int_equal(to_rtr(&p, i), 0);
		}
		for (i = 0; i < 2; i++)
			assert_int_equal(to_rts(&p, i), 0);
		for (i = 0; i < 7; i++) {
			post_writes(&p, i & 1, (uint64_t)(100 * (1 + (i & 1)) + i), 1);
			wait_pending(cq, (uint32_t)i + 1);
		}
		assert_int_equal(ibv_destroy_qp(own[1]), 0);
		assert_int_equal(ibv_poll_cq(cq, 32, wc), 4);
		for (i = 0; i < 4; i++) {
			assert_int_equal(wc[i].wr_id, 100 + 2 * i);
			assert_int_equal(wc[i].qp_num, own[0]->qp_num);
		}
		assert_int_equal(ibv_destroy_qp(own[0]), 0);
		assert_int_equal(ibv_poll_cq(cq, 32, wc), 0);
	}
	assert_int_equal(ibv_destroy_cq(cq), 0);
	p.qp[0] = kept[0];
	p.qp[1] = kept[1];
	pair_close(&p);
}

static bool readable(int fd)
{
	struct pollfd pfd = {.fd = fd, .events = POLLIN};

	return poll(&pfd, 1, 0) == 1;
}

/* Drives the NIC until the descriptor is readable. */
static bool readable_soon(int fd, struct ibv_cq *cq)
{
	time_t until = time(NULL) + TIMEOUT_S;

	while (!readable(fd) && time(NULL) < until)
		assert_int_equal(ibv_poll_cq(cq, 0, NULL), 0);
	return readable(fd);
}

static void nonblocking_events(void **state)
{
	struct ibv_cq *cq;
	struct ibv_wc wc;
	struct pair p;
	void *ctx;
	int i;

	pair_open(&p, NULL);
	fcntl(p.channel->fd, F_SETFL, fcntl(p.channel->fd, F_GETFL) | O_NONBLOCK);
	errno = 0;
	assert_int_equal(ibv_get_cq_event(p.channel, &cq, &ctx), -1);
	assert_int_equal(errno, EAGAIN);

	/* Not armed: no event. */
	post_writes(&p, 0, 1, 1);
	wait_good(p.cq[0]);
	assert_false(readable(p.channel->fd));

	/* Armed: the next completion raises one event, later ones raise none. Level triggered. */
	for (i = 0; i < 3; i++) {
		assert_int_equal(ibv_req_notify_cq(p.cq[0], 0), 0);
		post_writes(&p, 0, 1, 2);
		wait_wcs(p.cq[0], &wc, 1);
		wait_wcs(p.cq[0], &wc, 1);
		assert_true(readable_soon(p.channel->fd, p.cq[0]));
		assert_true(readable(p.channel->fd));
		assert_int_equal(ibv_get_cq_event(p.channel, &cq, &ctx), 0);
		assert_ptr_equal(cq, p.cq[0]);
		assert_ptr_equal(ctx, &p);
		assert_false(readable(p.channel->fd));
		assert_int_equal(ibv_get_cq_event(p.channel, &cq, &ctx), -1);
	}
	ibv_ack_cq_events(p.cq[0], 3);

	/* Two CQs on one channel. Destroying one removes its unread event. */
	for (i = 0; i < 2; i++) {
		assert_int_equal(ibv_req_notify_cq(p.cq[i], 0), 0);
		post_writes(&p, i, 1, 1);
		wait_good(p.cq[i]);
		settle(p.cq[i]);
	}
	assert_int_equal(ibv_destroy_qp(p.qp[0]), 0);
	assert_int_equal(ibv_destroy_cq(p.cq[0]), 0);
	p.qp[0] = NULL;
	p.cq[0] = NULL;
	assert_true(readable(p.channel->fd));
	assert_int_equal(ibv_get_cq_event(p.channel, &cq, &ctx), 0);
	assert_ptr_equal(cq, p.cq[1]);
	ibv_ack_cq_events(cq, 1);
	assert_false(readable(p.channel->fd));
	pair_close(&p);
}

static void solicited_only(void **state)
{
	struct ibv_send_wr wr;
	struct ibv_sge sge;
	struct ibv_cq *cq;
	struct pair p;
	void *ctx;
	int i;

	pair_open(&p, NULL);
	assert_int_equal(ibv_req_notify_cq(p.cq[1], 1), 0);
	for (i = 0; i < 2; i++) {
		assert_int_equal(post_recv_one(&p, 1, 1, 8), 0);
		wr = write_wr(&p, &sge, 1, 8);
		wr.opcode = IBV_WR_SEND;
		wr.send_flags |= i ? IBV_SEND_SOLICITED : 0;
		assert_int_equal(post_one(p.qp[0], &wr), 0);
		wait_good(p.cq[0]);
		wait_good(p.cq[1]);
		if (i) {
			assert_true(readable_soon(p.channel->fd, p.cq[1]));
		} else {
			settle(p.cq[1]);
			assert_false(readable(p.channel->fd));
		}
	}
	assert_int_equal(ibv_get_cq_event(p.channel, &cq, &ctx), 0);
	ibv_ack_cq_events(cq, 1);
	pair_close(&p);
}

static void deliver(struct pair *p, uint32_t waiting, bool solicited)
{
	struct ibv_sge sge;
	struct ibv_send_wr wr = write_wr(p, &sge, 1, 8);

	assert_int_equal(post_recv_one(p, 1, 1, 8), 0);
	wr.opcode = IBV_WR_SEND;
	wr.send_flags |= solicited ? IBV_SEND_SOLICITED : 0;
	assert_int_equal(post_one(p->qp[0], &wr), 0);
	wait_good(p->cq[0]);
	wait_pending(p->cq[1], waiting);
	settle(p->cq[0]);
}

static void take_event(struct pair *p)
{
	struct ibv_cq *cq;
	void *ctx;

	assert_true(readable_soon(p->channel->fd, p->cq[0]));
	assert_int_equal(ibv_get_cq_event(p->channel, &cq, &ctx), 0);
	assert_ptr_equal(cq, p->cq[1]);
	ibv_ack_cq_events(cq, 1);
	assert_false(readable(p->channel->fd));
}

/*
 * Completions that came since the last event raise another one when the queue is armed, as on
 * ConnectX: a program that arms and sleeps must wake. Completions that the last event announced do
 * not: a program may take an event, arm, and then poll.
 */
static void arming_with_completions(void **state)
{
	struct pair p;

	pair_open(&p, NULL);
	/* No completion waits. */
	assert_int_equal(ibv_req_notify_cq(p.cq[1], 0), 0);
	assert_false(readable(p.channel->fd));
	deliver(&p, 1, false);
	take_event(&p);
	/* The waiting completion was announced. */
	assert_int_equal(ibv_req_notify_cq(p.cq[1], 1), 0);
	assert_false(readable(p.channel->fd));
	deliver(&p, 2, false);
	assert_false(readable(p.channel->fd));
	/*
	 * The second completion raised no event. It raises one if the queue is armed for any
	 * completion, not if it is armed for solicited ones.
	 */
	assert_int_equal(ibv_req_notify_cq(p.cq[1], 1), 0);
	assert_false(readable(p.channel->fd));
	assert_int_equal(ibv_req_notify_cq(p.cq[1], 0), 0);
	take_event(&p);
	/*
	 * The queue has fired. So this completion raises its event when the queue is armed, not
	 * when it comes.
	 */
	deliver(&p, 3, true);
	assert_false(readable(p.channel->fd));
	assert_int_equal(ibv_req_notify_cq(p.cq[1], 1), 0);
	take_event(&p);
	for (int i = 0; i < 3; i++)
		wait_good(p.cq[1]);
	assert_int_equal(ibv_req_notify_cq(p.cq[1], 0), 0);
	assert_false(readable(p.channel->fd));
	pair_close(&p);
}

struct sleeper {
	struct pair *p;
	atomic_int state;
	int events;
};

static void *sleep_for_events(void *arg)
{
	struct sleeper *s = arg;
	struct ibv_cq *cq;
	struct ibv_wc wc;
	void *ctx;
	int got = 0;

	assert_int_equal(ibv_req_notify_cq(s->p->cq[1], 0), 0);
	atomic_store(&s->state, 1);
	while (got < s->events) {
		if (ibv_get_cq_event(s->p->channel, &cq, &ctx))
			break;
		ibv_ack_cq_events(cq, 1);
		assert_int_equal(ibv_req_notify_cq(cq, 0), 0);
		while (ibv_poll_cq(cq, 1, &wc) == 1)
			got += wc.status == IBV_WC_SUCCESS;
		atomic_store(&s->state, 1 + got);
	}
	return NULL;
}

/* A blocking ibv_get_cq_event() drives the NIC itself: no other thread polls the CQ. */
static void blocking_events(void **state)
{
	struct sleeper s = {.events = 20};
	struct ibv_send_wr wr;
	struct ibv_sge sge;
	struct pair p;
	pthread_t t;
	int i;

	pair_open(&p, NULL);
	s.p = &p;
	assert_int_equal(pthread_create(&t, NULL, sleep_for_events, &s), 0);
	while (atomic_load(&s.state) < 1)
		sched_yield();
	for (i = 0; i < s.events; i++) {
		assert_int_equal(post_recv_one(&p, 1, 1, 8), 0);
		wr = write_wr(&p, &sge, 1, 8);
		wr.opcode = IBV_WR_SEND;
		assert_int_equal(post_one(p.qp[0], &wr), 0);
		wait_good(p.cq[0]);
		while (atomic_load(&s.state) < 2 + i)
			sched_yield();
	}
	pthread_join(t, NULL);
	pair_close(&p);
}

static void *ack_later(void *arg)
{
	struct timespec nap = {.tv_nsec = 50000000};

	nanosleep(&nap, NULL);
	ibv_ack_cq_events(arg, 1);
	return NULL;
}

/* Gets a completion event, which is not acknowledged. Returns its CQ. */
static struct ibv_cq *unacknowledged_event(struct pair *p)
{
	struct ibv_cq *cq;
	void *ctx;

	assert_int_equal(ibv_req_notify_cq(p->cq[0], 0), 0);
	post_writes(p, 0, 1, 1);
	wait_good(p->cq[0]);
	assert_int_equal(ibv_get_cq_event(p->channel, &cq, &ctx), 0);
	return cq;
}

static void destroy_waits_for_acks(void **state)
{
	struct ibv_cq *cq;
	struct pair p;
	pthread_t t;

	pair_open(&p, NULL);
	cq = unacknowledged_event(&p);
	assert_int_equal(pthread_create(&t, NULL, ack_later, cq), 0);
	pair_close(&p); /* under ASan: the late acknowledgement must not use a freed CQ */
	pthread_join(t, NULL);
}

static void *destroy_cq(void *cq)
{
	return (void *)(intptr_t)ibv_destroy_cq(cq);
}

/*
 * A thread that is cancelled while it waits for an acknowledgement keeps no lock: the event can be
 * acknowledged, and the CQ be destroyed again. A deadlock ends the program by SIGALRM.
 */
static void a_cancelled_destruction_is_repeated(void **state)
{
	struct ibv_cq *cq;
	struct pair p;

	pair_open(&p, NULL);
	cq = unacknowledged_event(&p);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(ibv_destroy_qp(p.qp[i]), 0);
		p.qp[i] = NULL;
	}
	alarm(TIMEOUT_S);
	cancel_call(destroy_cq, cq);
	cancel_call(destroy_cq, cq);
	ibv_ack_cq_events(cq, 1);
	pair_close(&p);
	alarm(0);
}

/*
 * A WRITE beyond the region: the responder's QP goes into the error state and raises an event. The
 * caller acknowledges it.
 */
static void take_access_error(struct pair *p, struct ibv_async_event *ev)
{
	struct ibv_send_wr wr;
	struct ibv_sge sge;
	struct ibv_wc wc;

	fcntl(p->ctx->async_fd, F_SETFL, fcntl(p->ctx->async_fd, F_GETFL) | O_NONBLOCK);
	while (!ibv_get_async_event(p->ctx, ev))
		ibv_ack_async_event(ev);
	assert_int_equal(errno, EAGAIN);
	wr = write_wr(p, &sge, 1, 8);
	wr.wr.rdma.remote_addr += BUF_SIZE;
	assert_int_equal(post_one(p->qp[0], &wr), 0);
	wait_wcs(p->cq[0], &wc, 1);
	assert_int_equal(wc.status, IBV_WC_REM_ACCESS_ERR);
	assert_true(readable_soon(p->ctx->async_fd, p->cq[1]));
	assert_int_equal(ibv_get_async_event(p->ctx, ev), 0);
	assert_int_equal(ev->event_type, IBV_EVENT_QP_ACCESS_ERR);
	assert_ptr_equal(ev->element.qp, p->qp[1]);
}

static void async_events(void **state)
{
	struct ibv_async_event ev;
	struct pair p;

	pair_open(&p, NULL);
	take_access_error(&p, &ev);
	ibv_ack_async_event(&ev);
	pair_close(&p);
}

static void *destroy_qp(void *qp)
{
	return (void *)(intptr_t)ibv_destroy_qp(qp);
}

/*
 * As a_cancelled_destruction_is_repeated(). The removal of chains reads all queue pairs of the
 * domain; this one has ended.
 */
static void the_same_of_a_queue_pair(void **state)
{
	struct ibv_async_event ev;
	struct pair p;

	pair_open(&p, NULL);
	take_access_error(&p, &ev);
	alarm(TIMEOUT_S);
	cancel_call(destroy_qp, p.qp[1]);
	assert_int_equal(roost_pd_remove_chains(p.qp[1]->pd), 0);
	cancel_call(destroy_qp, p.qp[1]);
	ibv_ack_async_event(&ev);
	pair_close(&p);
	alarm(0);
}

/* More completions than the CQ has space for: an event is raised, and the NIC continues. */
static void overrun(void **state)
{
	struct pair_options o = {.cap = {64, 1, 1, 1, 0}, .cqe = 4};
	struct ibv_async_event ev;
	struct pair p;
	int i;

	pair_open(&p, &o);
	fcntl(p.ctx->async_fd, F_SETFL, fcntl(p.ctx->async_fd, F_GETFL) | O_NONBLOCK);
	for (i = 0; i < 16; i++)
		post_writes(&p, 0, (uint64_t)i, 1);
	do {
		assert_true(readable_soon(p.ctx->async_fd, p.cq[0]));
		assert_int_equal(ibv_get_async_event(p.ctx, &ev), 0);
		ibv_ack_async_event(&ev);
	} while (ev.event_type != IBV_EVENT_CQ_ERR);
	assert_ptr_equal(ev.element.cq, p.cq[0]);
	pair_close(&p);
}

/* ---- ibv_cq_ex ---- */

static void ex_reads(void **state)
{
	struct ibv_cq_init_attr_ex attr = {
		.cqe = 16,
		.wc_flags = IBV_WC_STANDARD_FLAGS | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP |
			    IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK,
	};
	struct ibv_qp_init_attr qa = {.cap = {8, 8, 1, 1, 0}, .qp_type = IBV_QPT_RC};
	struct ibv_poll_cq_attr pa = {0};
	struct ibv_cq_ex *ex;
	struct timespec now;
	struct pair p;
	uint64_t ts = 0, wall = 0;
	time_t end = time(NULL) + TIMEOUT_S;
	int i, ret, n = 0;

	pair_open(&p, NULL);
	ex = ibv_create_cq_ex(p.ctx, &attr);
	assert_non_null(ex);
	assert_int_equal(ibv_start_poll(ex, &pa), ENOENT);
	for (i = 0; i < 2; i++)
		assert_int_equal(ibv_destroy_qp(p.qp[i]), 0);
	qa.send_cq = qa.recv_cq = ibv_cq_ex_to_cq(ex);
	for (i = 0; i < 2; i++)
		p.qp[i] = ibv_create_qp(p.pd, &qa);
	for (i = 0; i < 2; i++) {
		assert_int_equal(to_init(&p, i), 0);
		assert_int_equal(to_rtr(&p, i), 0);
	}
	for (i = 0; i < 2; i++)
		assert_int_equal(to_rts(&p, i), 0);
	post_writes(&p, 0, 10, 8);
	while (n < 8) {
		assert_true(time(NULL) <= end);
		if (ibv_start_poll(ex, &pa))
			continue;
		do {
			assert_int_equal(ex->status, IBV_WC_SUCCESS);
			assert_int_equal(ex->wr_id, 10 + n);
			assert_int_equal(ibv_wc_read_opcode(ex), IBV_WC_RDMA_WRITE);
			assert_int_equal(ibv_wc_read_qp_num(ex), p.qp[0]->qp_num);
			assert_int_equal(ibv_wc_read_vendor_err(ex), 0);
			assert_true(ibv_wc_read_completion_ts(ex) >= ts);
			ts = ibv_wc_read_completion_ts(ex);
			wall = ibv_wc_read_completion_wallclock_ns(ex);
			n++;
			ret = ibv_next_poll(ex);
		} while (!ret);
		assert_int_equal(ret, ENOENT);
		ibv_end_poll(ex);
	}
	clock_gettime(CLOCK_REALTIME, &now);
	assert_true(wall / 1000000000 <= (uint64_t)now.tv_sec);
	assert_true(wall / 1000000000 + 60 > (uint64_t)now.tv_sec);
	for (i = 0; i < 2; i++) {
		assert_int_equal(ibv_destroy_qp(p.qp[i]), 0);
		p.qp[i] = NULL;
	}
	assert_int_equal(ibv_destroy_cq(ibv_cq_ex_to_cq(ex)), 0);
	pair_close(&p);
}

static void ex_refuses(void **state)
{
	struct ibv_context *ctx = open_device();
	struct ibv_cq_init_attr_ex attr = {.cqe = 16, .wc_flags = IBV_WC_EX_WITH_TM_INFO};

	assert_null(ibv_create_cq_ex(ctx, &attr));
	assert_int_equal(errno, EOPNOTSUPP);
	attr.wc_flags = 0;
	attr.comp_mask = IBV_CQ_INIT_ATTR_MASK_PD;
	assert_null(ibv_create_cq_ex(ctx, &attr));
	assert_int_equal(errno, EOPNOTSUPP);
	attr.comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS;
	attr.flags = IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN;
	assert_null(ibv_create_cq_ex(ctx, &attr));
	assert_int_equal(errno, EOPNOTSUPP);
	assert_int_equal(ibv_close_device(ctx), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(wrong_sizes),
		cmocka_unit_test(resize_keeps_completions),
		cmocka_unit_test(destroy_cleans),
		cmocka_unit_test(nonblocking_events),
		cmocka_unit_test(solicited_only),
		cmocka_unit_test(arming_with_completions),
		cmocka_unit_test(blocking_events),
		cmocka_unit_test(destroy_waits_for_acks),
		cmocka_unit_test(a_cancelled_destruction_is_repeated),
		cmocka_unit_test(async_events),
		cmocka_unit_test(the_same_of_a_queue_pair),
		cmocka_unit_test(overrun),
		cmocka_unit_test(ex_reads),
		cmocka_unit_test(ex_refuses),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
