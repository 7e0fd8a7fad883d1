/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Bounds of backlogs, half-open connections and tables, and listeners. Ten thousand connections
 * allocate nothing after the start: the linker replaces malloc() and related functions by counters.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <errno.h>
#include <string.h>
#include <cmocka.h>

#include "../common/allocations.h"
#include "base/mem.h"
#include "cm/core.h"
#include "rig.h"

static void ten_thousand_connections_leave_nothing(void **state)
{
	uint64_t before;
	struct pair p;

	pair_open(&p);
	before = allocations;
	for (int i = 0; i < 10000; i++) {
		pair_connect(&p);
		assert_int_equal(cm_disconnect(p.ca, p.now, NULL, 0), 0);
		pass(&p.a, &p.b, CM_DREQ);
		end_told(&p.b, CM_EV_DISCONNECTED);
		cm_release(p.cb, p.now);
		pass(&p.b, &p.a, CM_DREP);
		end_told(&p.a, CM_EV_DISCONNECTED);
		cm_release(p.ca, p.now);
		if (i % 100 == 99) { /* up to 64 stay in time-wait; new ones replace the oldest */
			end_wait(&p.a);
			end_wait(&p.b);
		}
	}
	assert_int_equal(allocations, before);
	while (cm_next(p.a.cm) != UINT64_MAX)
		end_wait(&p.a);
	while (cm_next(p.b.cm) != UINT64_MAX)
		end_wait(&p.b);
	assert_int_equal(cm_in_use(p.a.cm) + cm_in_use(p.b.cm), 0);
	assert_int_equal(cm_counters(p.b.cm)->connected, 10000);
	assert_int_equal(cm_counters(p.b.cm)->disconnected, 10000);
	assert_true(cm_counters(p.a.cm)->timewait_cut > 0);
	pair_close(&p);
}

/* The last datagram that was sent. */
static struct cm_msg last;

static void note(struct end *e, const struct cm_datagram *d)
{
	assert_int_equal(cm_parse(d->mad, CM_MAD_LEN, &last), CM_OK);
}

/* Sends n REQs with new ids, QPs and addresses. All senders answer when they are asked. */
static void flood(struct end *e, const struct cm_msg *req, uint32_t n)
{
	e->on_send = note;
	for (uint32_t i = 1; i <= n; i++) {
		struct pkt_addr from = {{[10] = 0xff, 0xff, 10, 1, (uint8_t)(i >> 8), (uint8_t)i}};
		struct cm_msg m = *req;

		m.local_id += i;
		m.req.qpn = i;
		memcpy(m.req.primary.local_gid, from.b, CM_GID_LEN);
		last.attr = 0;
		end_play(e, &from, &m);
		if (last.attr != CM_DREQ)
			continue;
		m = (struct cm_msg){.attr = CM_DREP, .tid = last.tid, .remote_id = last.local_id};
		end_play(e, &from, &m);
	}
	e->on_send = NULL;
}

/* The half-open connections, in their order. */
static struct {
	struct cm_conn *conn[128];
	unsigned begun, ended;
} half_open;

/*
 * Answers events at once, so that requests become half-open connections. The one that ends must be
 * the oldest.
 */
static void accept_all(struct end *e, const struct cm_event *ev)
{
	struct cm_accept acc = accept_with(0x22);

	if (ev->type == CM_EV_REQUEST) {
		assert_int_equal(cm_accept(ev->conn, *e->now, &acc), 0);
		half_open.conn[half_open.begun++ % ARRAY_SIZE(half_open.conn)] = ev->conn;
	} else {
		assert_ptr_equal(ev->conn,
				 half_open.conn[half_open.ended++ % ARRAY_SIZE(half_open.conn)]);
		cm_release(ev->conn, *e->now);
	}
}

static struct cm_msg a_req(struct pair *p)
{
	struct cm_connect c = connect_to(&p->a, &p->b, 0x11);

	assert_int_equal(cm_connect(p->a.cm, p->now, &c, NULL, &p->ca), 0);
	return end_sent(&p->a, CM_REQ)->m;
}

static void a_flood_of_reqs_fills_the_backlog_and_no_more(void **state)
{
	struct cm_msg req;
	uint64_t before;
	struct pair p;

	pair_open(&p);
	req = a_req(&p);
	before = allocations;
	flood(&p.b, &req, 10000);
	assert_int_equal(allocations, before);
	assert_int_equal(cm_in_use(p.b.cm), 8);
	assert_int_equal(cm_counters(p.b.cm)->backlog_full, 10000 - 8);
	for (int i = 0; i < 8; i++)
		p.cb = end_told(&p.b, CM_EV_REQUEST)->conn;
	/* Answering one makes space for one. */
	cm_release(p.cb, p.now);
	end_sent(&p.b, CM_REJ);
	end_play(&p.b, &p.a.addr, &req);
	pass(&p.b, &p.a, CM_DREQ); /* asks whether the sender exists (challenge.c) */
	pass(&p.a, &p.b, CM_DREP);
	end_told(&p.b, CM_EV_REQUEST);
	pair_close(&p);
}

static void a_flood_of_reqs_meets_the_bound_of_half_open_ones(void **state)
{
	struct cm_config config = {.max_conns = 4096, .max_half_open = 100};
	struct cm_listener *l;
	struct cm_msg req;
	uint64_t before;
	struct end b;
	struct pair p;

	pair_open(&p);
	req = a_req(&p);
	end_open(&b, 2, &p.now, &config);
	b.on_event = accept_all;
	assert_int_equal(cm_listen(b.cm, SERVICE, NULL, CM_LISTEN_CONN, 0, NULL, &l), 0);
	before = allocations;
	flood(&b, &req, 5000);
	assert_int_equal(allocations, before);
	/* Each sender beyond the bound answers, and replaces the oldest. */
	assert_int_equal(cm_counters(b.cm)->half_open_cut, 4900);
	assert_int_equal(cm_counters(b.cm)->timeouts, 4900);
	assert_int_equal(b.cm->half_open, 100);
	assert_int_equal(cm_counters(b.cm)->sent[CM_REP - CM_ATTR_FIRST], 5000);
	/* No sender completes its connection. All connections end by time-outs. */
	b.on_send = note;
	for (int i = 0; i < 20000 && cm_next(b.cm) != UINT64_MAX; i++)
		end_wait(&b);
	assert_int_equal(cm_in_use(b.cm), 0);
	assert_int_equal(cm_counters(b.cm)->timeouts, 5000);
	assert_int_equal(cm_counters(b.cm)->sent[CM_REP - CM_ATTR_FIRST], 4900 + 100 * (1 + 3));
	flood(&b, &req, 1);
	assert_int_equal(cm_in_use(b.cm), 1);
	end_close(&b);
	pair_close(&p);
}

/* Released time-waits are replaced, oldest first. Live connections stay. */
static void old_time_waits_give_way(void **state)
{
	struct cm_config config = {.max_conns = 4};
	struct cm_conn *c[4], *one_more;
	struct cm_listener *l;
	uint64_t now = 0;
	struct cm_connect p;
	struct end a, b;

	end_open(&a, 1, &now, &config);
	end_open(&b, 2, &now, &config);
	assert_int_equal(cm_listen(b.cm, SERVICE, NULL, CM_LISTEN_CONN, 0, NULL, &l), 0);
	for (uint32_t i = 0; i < 4; i++) { /* four refusals are remembered */
		p = connect_to(&a, &b, 0x11 + i);
		assert_int_equal(cm_connect(a.cm, now, &p, NULL, &c[i]), 0);
		pass(&a, &b, CM_REQ);
		cm_release(end_told(&b, CM_EV_REQUEST)->conn, now);
		pass(&b, &a, CM_REJ);
		end_told(&a, CM_EV_REJECTED);
		cm_release(c[i], now);
	}
	assert_int_equal(cm_in_use(b.cm), 4);
	p = connect_to(&b, &a, 0x21);
	for (int i = 0; i < 4; i++) {
		assert_int_equal(cm_connect(b.cm, now, &p, NULL, &c[i]), 0);
		end_sent(&b, CM_REQ);
		assert_int_equal(cm_counters(b.cm)->timewait_cut, i + 1);
		for (int k = 0; k < i; k++)
			assert_true(c[k] != c[i] && cm_conn_state(c[k]) == CM_REQ_SENT);
	}
	assert_int_equal(cm_connect(b.cm, now, &p, NULL, &one_more), -ENOBUFS);
	assert_int_equal(cm_in_use(b.cm), 4);
	end_close(&a);
	end_close(&b);
}

/* Connects with the longest times that a REQ can state: 2.4 hours each, 15 retries. */
static void connect_with_longest_times(struct pair *p)
{
	struct cm_connect c = connect_to(&p->a, &p->b, 0x11);
	struct cm_accept acc = accept_with(0x22);

	c.ack_timeout = c.response_timeout = 31;
	c.max_retries = 15;
	assert_int_equal(cm_connect(p->a.cm, p->now, &c, NULL, &p->ca), 0);
	pass(&p->a, &p->b, CM_REQ);
	p->cb = end_told(&p->b, CM_EV_REQUEST)->conn;
	assert_int_equal(cm_accept(p->cb, p->now, &acc), 0);
	pass(&p->b, &p->a, CM_REP);
	end_told(&p->a, CM_EV_REPLY);
	assert_int_equal(cm_ready(p->ca, NULL, 0), 0);
	pass(&p->a, &p->b, CM_RTU);
	end_told(&p->b, CM_EV_ESTABLISHED);
}

/*
 * At both ends it lasts at most 69 s, whatever the REQ states. The queue pairs get what it states.
 */
static void a_peer_does_not_choose_how_long_a_time_wait_lasts(void **state)
{
	const uint64_t most = 4096ull << 24;
	struct cm_qp_attr attr;
	struct pair p;

	pair_open(&p);
	connect_with_longest_times(&p);
	cm_qp_attr(p.cb, &attr);
	assert_int_equal(attr.timeout, 31);
	assert_int_equal(cm_disconnect(p.ca, p.now, NULL, 0), 0);
	pass(&p.a, &p.b, CM_DREQ);
	end_told(&p.b, CM_EV_DISCONNECTED);
	assert_int_equal(cm_disconnect(p.cb, p.now, NULL, 0), 0);
	pass(&p.b, &p.a, CM_DREP);
	end_told(&p.a, CM_EV_DISCONNECTED);
	assert_int_equal(cm_next(p.a.cm), p.now + most);
	assert_int_equal(end_wait(&p.b), most);
	end_told(&p.b, CM_EV_TIMEWAIT_EXIT);
	end_wait(&p.a);
	end_told(&p.a, CM_EV_TIMEWAIT_EXIT);
	pair_close(&p);
}

/*
 * The program has released a connection whose peer is silent. It takes space for 10 s and its
 * time-wait, not for 16 intervals of 69 s.
 */
static void a_peer_that_answers_no_dreq_is_forgotten(void **state)
{
	struct pair p;
	uint64_t since;

	pair_open(&p);
	connect_with_longest_times(&p);
	since = p.now;
	cm_release(p.cb, p.now);
	for (int i = 0; i < 4; i++) {
		end_sent(&p.b, CM_DREQ);
		end_wait(&p.b);
	}
	assert_int_equal(p.now - since, 10000000000u);
	assert_int_equal(cm_in_use(p.b.cm), 1);
	end_wait(&p.b);
	assert_int_equal(cm_in_use(p.b.cm), 0);
	pair_close(&p);
}

static void a_full_table_says_so(void **state)
{
	struct cm_config config = {.max_conns = 4};
	struct cm_conn *c[5];
	uint64_t now = 0;
	struct end a, b;

	end_open(&a, 1, &now, &config);
	end_open(&b, 2, &now, &config);
	for (int i = 0; i < 5; i++) {
		struct cm_connect p = connect_to(&a, &b, 0x11 + (uint32_t)i);

		assert_int_equal(cm_connect(a.cm, now, &p, NULL, &c[i]), i < 4 ? 0 : -ENOBUFS);
		if (i < 4)
			end_sent(&a, CM_REQ);
	}
	assert_int_equal(cm_in_use(a.cm), 4);
	cm_release(c[0], now);
	end_sent(&a, CM_REJ);
	assert_int_equal(cm_in_use(a.cm), 3);
	end_close(&a);
	end_close(&b);
}

static void listeners_are_found_by_service_and_address(void **state)
{
	struct cm_listener *any, *one, *l;
	struct cm_connect c;
	struct pair p;

	pair_open(&p);
	any = p.l;
	assert_int_equal(cm_listen(p.b.cm, SERVICE, NULL, CM_LISTEN_CONN, 1, NULL, &l),
			 -EADDRINUSE);
	assert_int_equal(cm_listen(p.b.cm, SERVICE, &p.b.addr, CM_LISTEN_CONN, 1, NULL, &one), 0);
	assert_int_equal(cm_listen(p.b.cm, SERVICE, &p.b.addr, CM_LISTEN_CONN, 1, NULL, &l),
			 -EADDRINUSE);
	assert_int_equal(cm_listen(p.b.cm, SERVICE, &p.a.addr, 0, 1, NULL, &l), -EINVAL);
	c = connect_to(&p.a, &p.b, 0x11);
	assert_int_equal(cm_connect(p.a.cm, p.now, &c, NULL, &p.ca), 0);
	pass(&p.a, &p.b, CM_REQ);
	assert_ptr_equal(end_told(&p.b, CM_EV_REQUEST)->listener, one);
	p.cb = p.b.last.e.conn;
	cm_unlisten(one); /* the request stays */
	c = connect_to(&p.a, &p.b, 0x12);
	assert_int_equal(cm_connect(p.a.cm, p.now, &c, NULL, &p.ca), 0);
	pass(&p.a, &p.b, CM_REQ);
	assert_ptr_equal(end_told(&p.b, CM_EV_REQUEST)->listener, any);
	cm_unlisten(any);
	assert_int_equal(cm_reject(p.cb, p.now, CM_REJ_CONSUMER, NULL, 0, NULL, 0), 0);
	pass(&p.b, &p.a, CM_REJ);
	end_told(&p.a, CM_EV_REJECTED);
	c = connect_to(&p.a, &p.b, 0x13);
	assert_int_equal(cm_connect(p.a.cm, p.now, &c, NULL, &p.ca), 0);
	pass(&p.a, &p.b, CM_REQ);
	pass(&p.b, &p.a, CM_REJ);
	assert_int_equal(end_told(&p.a, CM_EV_REJECTED)->reason, CM_REJ_INVALID_SERVICE_ID);
	pair_close(&p);
}

static void all_addresses_of_one_family(void **state)
{
	const unsigned v4 = CM_LISTEN_CONN | CM_LISTEN_IPV4, v6 = CM_LISTEN_CONN | CM_LISTEN_IPV6;
	struct cm_listener *four, *six, *l;
	struct cm_connect c;
	struct pair p;

	pair_open(&p);
	assert_int_equal(cm_listen(p.b.cm, SERVICE, NULL, v4, 1, NULL, &l), -EADDRINUSE);
	assert_int_equal(cm_listen(p.b.cm, SERVICE, NULL, v6, 1, NULL, &l), -EADDRINUSE);
	cm_unlisten(p.l);
	assert_int_equal(cm_listen(p.b.cm, SERVICE, &p.b.addr, v4, 1, NULL, &l), -EINVAL);
	assert_int_equal(cm_listen(p.b.cm, SERVICE, NULL, v6, 1, NULL, &six), 0);
	assert_int_equal(cm_listen(p.b.cm, SERVICE, NULL, v4, 1, NULL, &four), 0);
	assert_int_equal(cm_listen(p.b.cm, SERVICE, NULL, CM_LISTEN_CONN, 1, NULL, &l),
			 -EADDRINUSE);
	c = connect_to(&p.a, &p.b, 0x11);
	assert_int_equal(cm_connect(p.a.cm, p.now, &c, NULL, &p.ca), 0);
	pass(&p.a, &p.b, CM_REQ);
	assert_ptr_equal(end_told(&p.b, CM_EV_REQUEST)->listener, four);
	assert_int_equal(pkt_addr_parse("fd77::1", &p.a.addr), 0);
	assert_int_equal(pkt_addr_parse("fd77::2", &p.b.addr), 0);
	c = connect_to(&p.a, &p.b, 0x12);
	assert_int_equal(cm_connect(p.a.cm, p.now, &c, NULL, &p.ca), 0);
	pass(&p.a, &p.b, CM_REQ);
	assert_ptr_equal(end_told(&p.b, CM_EV_REQUEST)->listener, six);
	cm_unlisten(six);
	c = connect_to(&p.a, &p.b, 0x13);
	assert_int_equal(cm_connect(p.a.cm, p.now, &c, NULL, &p.ca), 0);
	pass(&p.a, &p.b, CM_REQ);
	pass(&p.b, &p.a, CM_REJ);
	assert_int_equal(end_told(&p.a, CM_EV_REJECTED)->reason, CM_REJ_INVALID_SERVICE_ID);
	pair_close(&p);
}

static void listeners_are_bounded(void **state)
{
	struct cm_config config = {.max_conns = 4, .max_listeners = 3};
	struct cm_listener *l;
	uint64_t now = 0;
	struct end e;

	end_open(&e, 1, &now, &config);
	for (uint64_t i = 0; i < 3; i++)
		assert_int_equal(cm_listen(e.cm, i, NULL, CM_LISTEN_UD, 0, NULL, &l), 0);
	assert_int_equal(cm_listen(e.cm, 3, NULL, CM_LISTEN_UD, 0, NULL, &l), -ENOSPC);
	end_close(&e);
	config.max_conns = 1u << 25;
	assert_null(cm_new(&config, &(struct cm_ops){0}, 0));
	assert_int_equal(errno, EINVAL);
}

static void what_is_no_message_is_counted(void **state)
{
	uint8_t mad[CM_MAD_LEN] = {1, 7, 2, 3};
	struct pair p;

	pair_open(&p);
	cm_input(p.b.cm, p.now, &p.a.addr, &p.b.addr, mad, sizeof(mad));
	cm_input(p.b.cm, p.now, &p.a.addr, &p.b.addr, mad, 17);
	assert_int_equal(cm_counters(p.b.cm)->malformed, 2);
	pair_close(&p);
}

/* Ids come from the seed and do not follow each other. */
static void ids_are_random(void **state)
{
	uint32_t ids[2][8];
	uint64_t now = 0;
	struct end e;

	for (unsigned round = 0; round < 2; round++) {
		struct cm_config config = {.seed = {5 + round}, .max_conns = 8};

		end_open(&e, 1, &now, &config);
		for (unsigned i = 0; i < 8; i++) {
			struct cm_connect c = connect_to(&e, &e, i);
			struct cm_conn *conn;

			assert_int_equal(cm_connect(e.cm, now, &c, NULL, &conn), 0);
			ids[round][i] = end_sent(&e, CM_REQ)->m.local_id;
			assert_int_not_equal(ids[round][i], 0);
			if (i)
				assert_true(ids[round][i] - ids[round][i - 1] + 16 > 32);
		}
		end_close(&e);
	}
	assert_memory_not_equal(ids[0], ids[1], sizeof(ids[0]));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ten_thousand_connections_leave_nothing),
		cmocka_unit_test(a_flood_of_reqs_fills_the_backlog_and_no_more),
		cmocka_unit_test(a_flood_of_reqs_meets_the_bound_of_half_open_ones),
		cmocka_unit_test(a_full_table_says_so),
		cmocka_unit_test(a_peer_does_not_choose_how_long_a_time_wait_lasts),
		cmocka_unit_test(a_peer_that_answers_no_dreq_is_forgotten),
		cmocka_unit_test(old_time_waits_give_way),
		cmocka_unit_test(listeners_are_found_by_service_and_address),
		cmocka_unit_test(all_addresses_of_one_family),
		cmocka_unit_test(listeners_are_bounded),
		cmocka_unit_test(what_is_no_message_is_counted),
		cmocka_unit_test(ids_are_random),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
