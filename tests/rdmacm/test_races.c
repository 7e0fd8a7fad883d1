/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Two threads of a program that use the library at the same time. The test stops one of them at a
 * function that the library calls, until the other one has done its part.
 */
#include "../common/network.h"
#include "fixture.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/sys.h"
#include "verbs/evq.h"

/* A point at which a thread stops, once. */
struct point {
	sem_t stopped, may_proceed;
};

static __thread struct point *in_sleep, *in_take, *behind_forget, *in_modify, *in_wait;

/* The QP whose state the stopped thread changes: no call may destroy it. */
static struct ibv_qp *_Atomic modified;

int __real_sys_ppoll(struct pollfd *fds, unsigned n, const struct timespec *timeout,
		     const sigset_t *mask);
int __wrap_sys_ppoll(struct pollfd *fds, unsigned n, const struct timespec *timeout,
		     const sigset_t *mask);
int __real_evq_take(struct evq *q, struct drive *drive, int *type, void **object);
int __wrap_evq_take(struct evq *q, struct drive *drive, int *type, void **object);
uint32_t __real_evq_forget(struct evq *q, struct evq_event *event);
uint32_t __wrap_evq_forget(struct evq *q, struct evq_event *event);
int __real_ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask);
int __wrap_ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask);
int __real_ibv_destroy_qp(struct ibv_qp *qp);
int __wrap_ibv_destroy_qp(struct ibv_qp *qp);
int __real_pthread_cond_wait(pthread_cond_t *cond, pthread_mutex_t *mutex);
int __wrap_pthread_cond_wait(pthread_cond_t *cond, pthread_mutex_t *mutex);

static void stop(struct point **at)
{
	struct point *p = *at;

	if (!p)
		return;
	*at = NULL;
	sem_post(&p->stopped);
	sem_wait(&p->may_proceed);
}

int __wrap_sys_ppoll(struct pollfd *fds, unsigned n, const struct timespec *timeout,
		     const sigset_t *mask)
{
	if (!fds)
		stop(&in_sleep);
	return __real_sys_ppoll(fds, n, timeout, mask);
}

int __wrap_evq_take(struct evq *q, struct drive *drive, int *type, void **object)
{
	stop(&in_take);
	return __real_evq_take(q, drive, type, object);
}

uint32_t __wrap_evq_forget(struct evq *q, struct evq_event *event)
{
	uint32_t taken = __real_evq_forget(q, event);

	stop(&behind_forget);
	return taken;
}

int __wrap_ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	bool stops = in_modify != NULL;
	int ret;

	if (stops)
		modified = qp;
	stop(&in_modify);
	ret = __real_ibv_modify_qp(qp, attr, mask);
	if (stops)
		modified = NULL;
	return ret;
}

int __wrap_ibv_destroy_qp(struct ibv_qp *qp)
{
	assert_ptr_not_equal(qp, modified);
	return __real_ibv_destroy_qp(qp);
}

int __wrap_pthread_cond_wait(pthread_cond_t *cond, pthread_mutex_t *mutex)
{
	stop(&in_wait);
	return __real_pthread_cond_wait(cond, mutex);
}

struct task {
	struct point point;
	pthread_t thread;
	void *arg;
	int ret, error; /* of the call of the library */
};

/* Starts a thread, and returns when it has stopped. */
static void start(struct task *t, void *(*run)(void *task), void *arg)
{
	t->arg = arg;
	sem_init(&t->point.stopped, 0, 0);
	sem_init(&t->point.may_proceed, 0, 0);
	assert_int_equal(pthread_create(&t->thread, NULL, run, t), 0);
	sem_wait(&t->point.stopped);
}

static void proceed(struct task *t)
{
	sem_post(&t->point.may_proceed);
}

static void finish(struct task *t)
{
	assert_int_equal(pthread_join(t->thread, NULL), 0);
	sem_destroy(&t->point.stopped);
	sem_destroy(&t->point.may_proceed);
}

/* ---- another program holds the name of the publisher ---- */

static void *listen_slowly(void *task)
{
	struct task *t = task;

	in_sleep = &t->point;
	t->ret = rdma_listen(t->arg, 1);
	return NULL;
}

/* Takes the name of src/pool/ask.c, as any user can. Another program may have it for a moment. */
static int take_name(void)
{
	struct sockaddr_un name = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	socklen_t len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 +
				    (size_t)sprintf(name.sun_path + 1, "roost-pool-%u-publisher-0",
						    (unsigned)geteuid()));

	assert_true(fd >= 0);
	while (bind(fd, (struct sockaddr *)&name, len)) {
		assert_int_equal(errno, EADDRINUSE);
		sched_yield();
	}
	return fd;
}

/* rdma_listen() waits for the name. Meanwhile the program makes connections. */
static void a_wait_for_the_publisher_stops_nobody(void **state)
{
	struct rdma_cm_id *late, *active, *passive;
	union address at = ours(0);
	struct task task;
	struct pair p;
	int name;

	pair_open(&p, RDMA_PS_TCP);
	assert_int_equal(rdma_create_id(p.lch, &late, NULL, RDMA_PS_TCP), 0);
	assert_int_equal(rdma_bind_addr(late, &at.sa), 0);
	name = take_name();
	start(&task, listen_slowly, late);
	connect_more(&p, &active, &passive);
	hang_up(&p, active, passive);
	drop(active);
	drop(passive);
	close(name);
	proceed(&task);
	finish(&task);
	assert_int_equal(task.ret, 0);
	assert_int_equal(rdma_destroy_id(late), 0);
	pair_close(&p);
}

/* ---- a listener ends while another thread takes events ---- */

static void *end_listener(void *task)
{
	struct task *t = task;

	behind_forget = &t->point;
	t->ret = rdma_destroy_id(t->arg);
	return NULL;
}

static void *take_event(void *task)
{
	struct task *t = task;
	struct rdma_cm_event *e;

	in_take = &t->point;
	t->ret = rdma_get_cm_event(t->arg, &e);
	t->error = errno;
	if (!t->ret)
		rdma_ack_cm_event(e);
	return NULL;
}

/*
 * A request waits on the channel, and behind it its end, because the peer gave up. The thread that
 * ends the listener has withdrawn the request when another thread takes the next event out of the
 * queue. The program does not know the id of this event.
 */
static void nobody_gets_events_of_a_request_that_ended(void **state)
{
	struct rdma_event_channel *lch = channel(), *ach = channel(), *other = channel();
	struct rdma_cm_id *l = listener(lch, RDMA_PS_TCP, any(0), 0);
	struct rdma_cm_id *second = listener(other, RDMA_PS_TCP, any(0), 0);
	struct rdma_cm_id *a = resolved(ach, RDMA_PS_TCP, port_of(l)), *b;
	struct pollfd fd = {.fd = lch->fd, .events = POLLIN};
	struct rdma_conn_param param = {.qp_num = 5};
	struct task taker, ender;
	struct rdma_cm_event *e;

	assert_int_equal(rdma_connect(a, &param), 0);
	assert_int_equal(poll(&fd, 1, WAIT_MS), 1);
	assert_int_equal(rdma_destroy_id(a), 0);
	/* Datagrams keep their order: when this request has come, so has the end of the first. */
	b = resolved(ach, RDMA_PS_TCP, port_of(second));
	assert_int_equal(rdma_connect(b, &param), 0);
	e = next_event(other, RDMA_CM_EVENT_CONNECT_REQUEST);
	assert_int_equal(fcntl(lch->fd, F_SETFL, O_NONBLOCK), 0);
	start(&taker, take_event, lch);
	start(&ender, end_listener, l);
	proceed(&taker);
	while (poll(&fd, 1, 0))
		sched_yield();
	proceed(&ender);
	finish(&ender);
	finish(&taker);
	assert_int_equal(ender.ret, 0);
	assert_int_equal(taker.ret, -1);
	assert_int_equal(taker.error, EAGAIN);
	assert_int_equal(rdma_reject(e->id, NULL, 0), 0);
	assert_int_equal(rdma_destroy_id(e->id), 0);
	rdma_ack_cm_event(e);
	assert_true(expect(ach, RDMA_CM_EVENT_REJECTED) != 0);
	rdma_destroy_id(b);
	quit(second, other, ach);
	rdma_destroy_event_channel(lch);
}

/* ---- a thread changes the state of a queue pair ---- */

static void *disconnect(void *task)
{
	struct task *t = task;

	in_modify = &t->point;
	t->ret = rdma_disconnect(t->arg);
	return NULL;
}

static void *take_reply(void *task)
{
	struct rdma_cm_event *e;
	struct task *t = task;

	in_modify = &t->point;
	t->ret = rdma_get_cm_event(t->arg, &e);
	assert_int_equal(t->ret, 0);
	assert_int_equal(e->event, RDMA_CM_EVENT_ESTABLISHED);
	assert_int_equal(rdma_ack_cm_event(e), 0);
	return NULL;
}

static void *destroy_qp(void *task)
{
	struct task *t = task;

	in_wait = &t->point;
	rdma_destroy_qp(t->arg);
	return NULL;
}

static void *end_id(void *task)
{
	struct task *t = task;

	in_wait = &t->point;
	t->ret = rdma_destroy_id(t->arg);
	return NULL;
}

static struct rdma_conn_param accept_param(void)
{
	return (struct rdma_conn_param){.responder_resources = 2, .initiator_depth = 2};
}

static void *accept_slowly(void *task)
{
	struct rdma_conn_param param = accept_param();
	struct task *t = task;

	in_modify = &t->point;
	t->ret = rdma_accept(t->arg, &param);
	return NULL;
}

static void *accept_later(void *task)
{
	struct rdma_conn_param param = accept_param();
	struct task *t = task;

	in_wait = &t->point;
	t->ret = rdma_accept(t->arg, &param);
	t->error = errno;
	return NULL;
}

static void make_extended_qp(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr_ex attr = {
		.qp_type = IBV_QPT_RC,
		.cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1},
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.pd = id->pd,
		.send_ops_flags = IBV_QP_EX_WITH_SEND,
	};

	assert_int_equal(rdma_create_qp_ex(id, &attr), 0);
}

/* Connects an active id, whose QP has the extended functions, as far as the request. */
static struct rdma_cm_event *request(struct rdma_event_channel *lch, struct rdma_event_channel *ach,
				     struct rdma_cm_id *l, struct rdma_cm_id **active)
{
	struct rdma_conn_param param = {
		.responder_resources = 2, .initiator_depth = 2, .retry_count = 7};

	*active = resolved(ach, RDMA_PS_TCP, port_of(l));
	make_extended_qp(*active);
	assert_int_equal(rdma_connect(*active, &param), 0);
	return next_event(lch, RDMA_CM_EVENT_CONNECT_REQUEST);
}

static void open_extended(struct pair *p)
{
	struct rdma_conn_param param = accept_param();
	struct rdma_cm_event *e;

	p->lch = channel();
	p->ach = channel();
	p->listen = listener(p->lch, RDMA_PS_TCP, any(0), 0);
	e = request(p->lch, p->ach, p->listen, &p->active);
	p->passive = e->id;
	make_qp(p->passive, IBV_QPT_RC);
	assert_int_equal(rdma_accept(p->passive, &param), 0);
	assert_int_equal(rdma_ack_cm_event(e), 0);
	assert_int_equal(expect(p->ach, RDMA_CM_EVENT_ESTABLISHED), 0);
	assert_int_equal(expect(p->lch, RDMA_CM_EVENT_ESTABLISHED), 0);
}

/* Takes the events behind a disconnect by the active end, and ends all. */
static void close_disconnected(struct pair *p)
{
	assert_int_equal(expect(p->lch, RDMA_CM_EVENT_DISCONNECTED), 0);
	assert_int_equal(rdma_disconnect(p->passive), 0);
	drop(p->active);
	drop(p->passive);
	quit(p->listen, p->lch, p->ach);
}

/*
 * This thread builds work requests, and another one disconnects: it waits until they are built.
 * Meanwhile this thread, and so the one that brings events, may use the library.
 */
static void a_builder_of_work_requests_may_use_the_library(void **state)
{
	struct rdma_cm_id *id, *active, *passive;
	struct ibv_qp_ex *ex;
	struct task task;
	struct pair p;

	open_extended(&p);
	ex = ibv_qp_to_qp_ex(p.active->qp);
	assert_non_null(ex);
	ibv_wr_start(ex);
	start(&task, disconnect, p.active);
	proceed(&task);
	assert_int_equal(rdma_create_id(p.ach, &id, NULL, RDMA_PS_TCP), 0);
	assert_int_equal(rdma_destroy_id(id), 0);
	connect_more(&p, &active, &passive);
	hang_up(&p, active, passive);
	drop(active);
	drop(passive);
	ibv_wr_abort(ex);
	finish(&task);
	assert_int_equal(task.ret, 0);
	close_disconnected(&p);
}

/* The thread that builds work requests disconnects. The work requests of the list are flushed. */
static void a_builder_of_work_requests_disconnects(void **state)
{
	struct ibv_qp_ex *ex;
	struct pair p;

	open_extended(&p);
	ex = ibv_qp_to_qp_ex(p.active->qp);
	ibv_wr_start(ex);
	assert_int_equal(rdma_disconnect(p.active), 0);
	assert_int_equal(ibv_wr_complete(ex), 0);
	close_disconnected(&p);
}

/* rdma_destroy_qp() waits for the call of another thread that changes the QP. */
static void a_queue_pair_lives_while_its_state_changes(void **state)
{
	struct task changer, destroyer;
	struct pair p;

	pair_open(&p, RDMA_PS_TCP);
	start(&changer, disconnect, p.active);
	start(&destroyer, destroy_qp, p.active);
	proceed(&destroyer);
	proceed(&changer);
	finish(&changer);
	finish(&destroyer);
	assert_int_equal(changer.ret, 0);
	assert_null(p.active->qp);
	close_disconnected(&p);
}

/* Another thread takes the reply, and rdma_destroy_id() waits until the connection is up. */
static void an_id_lives_while_its_queue_pair_changes(void **state)
{
	struct rdma_conn_param param = accept_param();
	struct pair p = {.lch = channel(), .ach = channel()};
	struct task taker, ender;
	struct rdma_cm_event *e;
	struct ibv_qp *qp;

	p.listen = listener(p.lch, RDMA_PS_TCP, any(0), 0);
	e = request(p.lch, p.ach, p.listen, &p.active);
	p.passive = e->id;
	make_qp(p.passive, IBV_QPT_RC);
	assert_int_equal(rdma_accept(p.passive, &param), 0);
	assert_int_equal(rdma_ack_cm_event(e), 0);
	qp = p.active->qp;
	start(&taker, take_reply, p.ach);
	start(&ender, end_id, p.active);
	proceed(&ender);
	proceed(&taker);
	finish(&taker);
	finish(&ender);
	assert_int_equal(taker.ret, 0);
	assert_int_equal(ender.ret, 0);
	assert_int_equal(ibv_destroy_qp(qp), 0);
	assert_int_equal(expect(p.lch, RDMA_CM_EVENT_ESTABLISHED), 0);
	assert_int_equal(expect(p.lch, RDMA_CM_EVENT_DISCONNECTED), 0);
	drop(p.passive);
	quit(p.listen, p.lch, p.ach);
}

/* Two threads accept: the second one must not change the QP of the connection. */
static void a_connection_is_accepted_once(void **state)
{
	struct task first, second;
	struct rdma_cm_event *e;
	struct pair p = {.lch = channel(), .ach = channel()};

	p.listen = listener(p.lch, RDMA_PS_TCP, any(0), 0);
	e = request(p.lch, p.ach, p.listen, &p.active);
	p.passive = e->id;
	make_qp(p.passive, IBV_QPT_RC);
	start(&first, accept_slowly, p.passive);
	start(&second, accept_later, p.passive);
	proceed(&second);
	proceed(&first);
	finish(&first);
	finish(&second);
	assert_int_equal(first.ret, 0);
	assert_int_equal(second.ret, -1);
	assert_int_equal(second.error, EINVAL);
	assert_int_equal(rdma_ack_cm_event(e), 0);
	assert_int_equal(expect(p.ach, RDMA_CM_EVENT_ESTABLISHED), 0);
	assert_int_equal(expect(p.lch, RDMA_CM_EVENT_ESTABLISHED), 0);
	send_text(p.passive, p.active, "accepted");
	assert_int_equal(rdma_disconnect(p.active), 0);
	close_disconnected(&p);
}

/* ---- a thread is cancelled inside of the library ---- */

/*
 * The thread waits until the program acknowledges an event of the id, and is cancelled. It ends its
 * call first. Otherwise it would keep the lock of the library.
 */
static void a_cancelled_thread_keeps_no_lock(void **state)
{
	struct rdma_event_channel *lch = channel(), *ach = channel();
	struct rdma_cm_id *l = listener(lch, RDMA_PS_TCP, any(0), 0);
	struct rdma_cm_id *a = resolved(ach, RDMA_PS_TCP, port_of(l));
	struct rdma_conn_param param = {.qp_num = 5};
	struct rdma_cm_event *e;
	struct rdma_cm_id *id;
	void *result = PTHREAD_CANCELED;
	struct task ender;

	assert_int_equal(rdma_connect(a, &param), 0);
	e = next_event(lch, RDMA_CM_EVENT_CONNECT_REQUEST);
	id = e->id;
	start(&ender, end_listener, l); /* behind its look at the event */
	assert_int_equal(pthread_cancel(ender.thread), 0);
	proceed(&ender);
	assert_int_equal(rdma_reject(id, NULL, 0), 0);
	assert_int_equal(rdma_destroy_id(id), 0);
	assert_int_equal(rdma_ack_cm_event(e), 0);
	assert_int_equal(pthread_join(ender.thread, &result), 0);
	assert_null(result);
	assert_int_equal(ender.ret, 0);
	assert_true(expect(ach, RDMA_CM_EVENT_REJECTED) != 0);
	rdma_destroy_id(a);
	rdma_destroy_event_channel(ach);
	rdma_destroy_event_channel(lch);
}

/* A deadlock ends the program by SIGALRM. */
static int limit_time(void **state)
{
	alarm(2 * WAIT_MS / 1000);
	return 0;
}

static int end_limit(void **state)
{
	alarm(0);
	return 0;
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, limit_time, end_limit)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_wait_for_the_publisher_stops_nobody),
		TEST(nobody_gets_events_of_a_request_that_ended),
		TEST(a_builder_of_work_requests_may_use_the_library),
		TEST(a_builder_of_work_requests_disconnects),
		TEST(a_queue_pair_lives_while_its_state_changes),
		TEST(an_id_lives_while_its_queue_pair_changes),
		TEST(a_connection_is_accepted_once),
		TEST(a_cancelled_thread_keeps_no_lock),
	};

	network_own(); /* if it can be: no other program waits for the name then */
	return RUN(tests);
}
