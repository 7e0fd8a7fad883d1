/* SPDX-License-Identifier: BSD-2-Clause */
/* Many connections, made at once and by several threads, leave nothing allocated. */
#include "fixture.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <stdatomic.h>

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
		cmocka_unit_test(threads_connect_beside_each_other),
	};

	return RUN(tests);
}
