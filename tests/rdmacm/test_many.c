/* SPDX-License-Identifier: BSD-2-Clause */
/* Many connections, made at once and by several threads, leave nothing allocated. */
#include "fixture.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

#define CONNECTIONS 1000

/*
 * The server's event loop: accepts each request, and answers each disconnect, until this many
 * connections have ended.
 */
struct server {
	struct rdma_event_channel *ch;
	struct rdma_cm_id *listen;
	_Atomic unsigned established;
	unsigned gone, until;
};

static void on_event(struct server *s, struct rdma_cm_event *e)
{
	struct rdma_conn_param param = {.qp_num = e->param.conn.qp_num + 1};
	struct rdma_cm_id *id = e->id;
	bool gone = false;

	switch (e->event) {
	case RDMA_CM_EVENT_CONNECT_REQUEST:
		assert_int_equal(rdma_accept(id, &param), 0);
		break;
	case RDMA_CM_EVENT_ESTABLISHED:
		s->established++;
		break;
	case RDMA_CM_EVENT_DISCONNECTED:
		assert_int_equal(rdma_disconnect(id), 0);
		gone = true;
		break;
	case RDMA_CM_EVENT_TIMEWAIT_EXIT:
		break;
	default:
		fail_msg("server: %s", rdma_event_str(e->event));
	}
	assert_int_equal(rdma_ack_cm_event(e), 0);
	if (gone) {
		rdma_destroy_id(id);
		s->gone++;
	}
}

static void *serve(void *arg)
{
	struct server *s = arg;
	struct rdma_cm_event *e;

	while (s->gone < s->until) {
		assert_int_equal(rdma_get_cm_event(s->ch, &e), 0);
		on_event(s, e);
	}
	return NULL;
}

static void server_open(struct server *s, unsigned until, pthread_t *thread)
{
	memset(s, 0, sizeof(*s));
	s->ch = channel();
	s->listen = listener(s->ch, RDMA_PS_TCP, any(0), 0);
	s->until = until;
	assert_int_equal(pthread_create(thread, NULL, serve, s), 0);
}

static void server_close(struct server *s, pthread_t thread)
{
	pthread_join(thread, NULL);
	assert_int_equal(s->gone, s->until);
	rdma_destroy_id(s->listen);
	rdma_destroy_event_channel(s->ch);
}

/* QPs are only numbers here: the test is about connections. */
static struct rdma_cm_id *begin(struct rdma_event_channel *ch, uint16_t port, uint32_t number)
{
	struct rdma_conn_param param = {.qp_num = number, .retry_count = 7};
	struct rdma_cm_id *id = resolved(ch, RDMA_PS_TCP, port);

	assert_int_equal(rdma_connect(id, &param), 0);
	return id;
}

static void take_response(struct rdma_event_channel *ch)
{
	struct rdma_cm_event *e = next_event(ch, RDMA_CM_EVENT_CONNECT_RESPONSE);

	assert_int_equal(rdma_establish(e->id), 0);
	assert_int_equal(rdma_ack_cm_event(e), 0);
}

static void a_thousand_connections_one_after_the_other(void **state)
{
	struct rdma_event_channel *ch = channel();
	struct server s;
	pthread_t thread;

	server_open(&s, CONNECTIONS, &thread);
	for (uint32_t i = 0; i < CONNECTIONS; i++) {
		struct rdma_cm_id *id = begin(ch, port_of(s.listen), 2 * i + 2);

		take_response(ch);
		assert_int_equal(rdma_disconnect(id), 0);
		assert_int_equal(expect(ch, RDMA_CM_EVENT_DISCONNECTED), 0);
		rdma_destroy_id(id);
	}
	server_close(&s, thread);
	rdma_destroy_event_channel(ch);
}

#define AT_ONCE 100

static void a_hundred_at_once(void **state)
{
	struct rdma_event_channel *ch = channel();
	struct rdma_cm_id *id[AT_ONCE];
	struct server s;
	pthread_t thread;

	server_open(&s, AT_ONCE, &thread);
	for (uint32_t i = 0; i < AT_ONCE; i++) {
		union address to = ours(port_of(s.listen));

		assert_int_equal(rdma_create_id(ch, &id[i], NULL, RDMA_PS_TCP), 0);
		assert_int_equal(rdma_resolve_addr(id[i], NULL, &to.sa, 100), 0);
	}
	for (uint32_t i = 0; i < AT_ONCE; i++) {
		assert_int_equal(expect(ch, RDMA_CM_EVENT_ADDR_RESOLVED), 0);
		assert_int_equal(rdma_resolve_route(id[i], 100), 0);
	}
	for (uint32_t i = 0; i < AT_ONCE; i++)
		assert_int_equal(expect(ch, RDMA_CM_EVENT_ROUTE_RESOLVED), 0);
	for (uint32_t i = 0; i < AT_ONCE; i++) {
		struct rdma_conn_param param = {.qp_num = 2 * i + 2};

		assert_int_equal(rdma_connect(id[i], &param), 0);
	}
	for (uint32_t i = 0; i < AT_ONCE; i++)
		take_response(ch);
	for (uint32_t i = 0; i < AT_ONCE; i++)
		assert_int_equal(rdma_disconnect(id[i]), 0);
	for (uint32_t i = 0; i < AT_ONCE; i++)
		assert_int_equal(expect(ch, RDMA_CM_EVENT_DISCONNECTED), 0);
	for (uint32_t i = 0; i < AT_ONCE; i++)
		rdma_destroy_id(id[i]);
	server_close(&s, thread);
	rdma_destroy_event_channel(ch);
}

/* the largest backlog of Linux (net.rdma_ucm.max_backlog), which one client may fill */
#define LARGEST_BACKLOG 1024
#define BEYOND		64
#define REQUESTS	(LARGEST_BACKLOG + BEYOND)
/*
 * QP 1 stores a limited number of datagrams, and a source may be challenged a limited number of
 * times in 100 ms (cm/challenge.c).
 */
#define BETWEEN_WAITS  64
#define BETWEEN_SLEEPS 512
#define CHALLENGES_MS  100
#define REPEAT_MS      4000 /* a request is repeated after 4.3 s */

static uint64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

/* A listener that refuses requests, to wait for the requests before them. */
struct barrier {
	struct rdma_event_channel *lch, *ach;
	struct rdma_cm_id *listen;
};

/*
 * Waits until the connection manager has processed all requests that this process has sent to
 * itself. Datagrams of QP 1 do not overtake each other. A request that is challenged takes three:
 * request, challenge, answer. A refused request takes at least two, so two of them take longer.
 */
static void pass(struct barrier *b)
{
	for (uint32_t i = 0; i < 2; i++) {
		struct rdma_cm_id *id = begin(b->ach, port_of(b->listen), 1);
		struct rdma_cm_event *e = next_event(b->lch, RDMA_CM_EVENT_CONNECT_REQUEST);

		assert_int_equal(rdma_reject(e->id, NULL, 0), 0);
		assert_int_equal(rdma_destroy_id(e->id), 0);
		assert_int_equal(rdma_ack_cm_event(e), 0);
		assert_int_equal(expect(b->ach, RDMA_CM_EVENT_REJECTED), 28);
		rdma_destroy_id(id);
	}
}

/*
 * Takes the requests that wait. They must come in the order in which they were sent, so none was
 * lost before the last one. Returns their number.
 */
static unsigned take_waiting(struct rdma_event_channel *lch, struct rdma_cm_id *passive[REQUESTS])
{
	unsigned n = 0;

	for (; !quiet(lch); n++) {
		struct rdma_cm_event *e = next_event(lch, RDMA_CM_EVENT_CONNECT_REQUEST);

		if (n < LARGEST_BACKLOG)
			assert_int_equal(e->param.conn.qp_num, 2 * n + 2);
		assert_in_range(n, 0, REQUESTS - 1);
		passive[n] = e->id;
		assert_int_equal(rdma_ack_cm_event(e), 0);
	}
	return n;
}

/*
 * A backlog beyond the largest one is cut, as in ucma_listen() of Linux, not refused. A client then
 * fills it while the program takes no request. None of its requests is lost, and the program
 * accepts all of them.
 */
static void one_client_fills_the_largest_backlog(void **state)
{
	static struct rdma_cm_id *id[REQUESTS], *passive[REQUESTS];
	struct rdma_event_channel *ch = channel(), *lch = channel();
	struct rdma_cm_id *listen = listener(lch, RDMA_PS_TCP, any(0), 100 * LARGEST_BACKLOG);
	struct barrier b = {.lch = channel(), .ach = channel()};
	uint64_t full_since = 0;
	unsigned waiting;

	b.listen = listener(b.lch, RDMA_PS_TCP, any(0), 0);
	for (uint32_t i = 0; i < REQUESTS; i++) {
		if (i && i % BETWEEN_WAITS == 0)
			pass(&b);
		if (i && i % BETWEEN_SLEEPS == 0)
			usleep(CHALLENGES_MS * 1000);
		if (i == LARGEST_BACKLOG)
			full_since = now_ms();
		id[i] = begin(ch, port_of(listen), 2 * i + 2);
	}
	pass(&b);
	waiting = take_waiting(lch, passive);
	assert_true(waiting >= LARGEST_BACKLOG);
	/* Dropped requests are repeated later, and then find space. */
	if (now_ms() - full_since < REPEAT_MS)
		assert_true(waiting < REQUESTS);
	/*
	 * The listener stays. Otherwise a slow machine, which takes long to accept all, would
	 * refuse dropped requests that are repeated meanwhile.
	 */
	for (uint32_t i = 0; i < waiting; i++) {
		struct rdma_conn_param param = {.qp_num = 2 * i + 3};

		assert_int_equal(rdma_accept(passive[i], &param), 0);
		take_response(ch);
	}
	rdma_destroy_id(listen);
	for (uint32_t i = 0; i < REQUESTS; i++)
		rdma_destroy_id(id[i]);
	for (uint32_t i = 0; i < waiting; i++)
		rdma_destroy_id(passive[i]);
	quit(b.listen, b.lch, b.ach);
	rdma_destroy_event_channel(ch);
	rdma_destroy_event_channel(lch);
}

#define THREADS	   2
#define PER_THREAD 100

struct client {
	uint16_t port;
	uint32_t first;
};

static void *connect_often(void *arg)
{
	const struct client *c = arg;
	struct rdma_event_channel *ch = channel();

	for (uint32_t i = 0; i < PER_THREAD; i++) {
		struct rdma_cm_id *id = begin(ch, c->port, c->first + 2 * i);

		take_response(ch);
		/* Every other id is destroyed without a disconnect. */
		if (i % 2) {
			assert_int_equal(rdma_disconnect(id), 0);
			assert_int_equal(expect(ch, RDMA_CM_EVENT_DISCONNECTED), 0);
		}
		rdma_destroy_id(id);
	}
	rdma_destroy_event_channel(ch);
	return NULL;
}

static void threads_connect_beside_each_other(void **state)
{
	struct client c[THREADS];
	pthread_t thread, t[THREADS];
	struct server s;

	server_open(&s, THREADS * PER_THREAD, &thread);
	for (uint32_t i = 0; i < THREADS; i++) {
		c[i] = (struct client){port_of(s.listen), 2 + i * 2 * PER_THREAD};
		assert_int_equal(pthread_create(&t[i], NULL, connect_often, &c[i]), 0);
	}
	for (int i = 0; i < THREADS; i++)
		pthread_join(t[i], NULL);
	server_close(&s, thread);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_thousand_connections_one_after_the_other),
		cmocka_unit_test(a_hundred_at_once),
		cmocka_unit_test(one_client_fills_the_largest_backlog),
		cmocka_unit_test(threads_connect_beside_each_other),
	};

	return RUN(tests);
}
