/* SPDX-License-Identifier: BSD-2-Clause */
/* The end of connections, SIDR, and messages that are refused or dropped, datagram by datagram. */
#include <setjmp.h>
#include <stdarg.h>
#include <errno.h>
#include <string.h>
#include <cmocka.h>

#include "rig.h"

#define TIMEWAIT (4096ull << 19)

static void one_end_disconnects(void **state)
{
	struct pair p;

	pair_open(&p);
	pair_connect(&p);
	assert_int_equal(cm_disconnect(p.ca, p.now, "bye", 3), 0);
	pass(&p.a, &p.b, CM_DREQ);
	assert_memory_equal(end_told(&p.b, CM_EV_DISCONNECTED)->data, "bye\0", 4);
	assert_int_equal(cm_disconnect(p.cb, p.now, "so long", 7), 0);
	pass(&p.b, &p.a, CM_DREP);
	assert_memory_equal(end_told(&p.a, CM_EV_DISCONNECTED)->data, "so long\0", 8);
	assert_int_equal(p.a.last.e.status, 0);
	assert_int_equal(cm_disconnect(p.ca, p.now, NULL, 0), -ENOTCONN);
	/* The path must be empty before the QPs may be used again. */
	assert_int_equal(end_wait(&p.a), TIMEWAIT);
	assert_ptr_equal(end_told(&p.a, CM_EV_TIMEWAIT_EXIT)->conn, p.ca);
	end_wait(&p.b);
	assert_ptr_equal(end_told(&p.b, CM_EV_TIMEWAIT_EXIT)->conn, p.cb);
	cm_release(p.ca, p.now);
	cm_release(p.cb, p.now);
	assert_int_equal(cm_in_use(p.a.cm) + cm_in_use(p.b.cm), 0);
	assert_true(cm_counters(p.a.cm)->connected == 1 && cm_counters(p.a.cm)->disconnected == 1);
	assert_true(cm_counters(p.b.cm)->connected == 1 && cm_counters(p.b.cm)->disconnected == 1);
	pair_close(&p);
}

/*
 * The NIC reports that the peer is gone. Nothing is sent. Only the time for the path to become
 * empty is waited for.
 */
static void a_peer_that_is_gone_disconnects(void **state)
{
	struct cm_qp_attr q;
	struct pair p;
	uint32_t qpns[3];

	pair_open(&p);
	pair_connect(&p);
	cm_qp_attr(p.cb, &q);
	for (unsigned i = 0; i < 3; i++)
		qpns[i] = q.dest_qpn - 1 + i;
	cm_peers_gone(p.a.cm, p.now, &qpns[2], 1); /* no connection's */
	assert_int_equal(cm_conn_state(p.ca), CM_ESTABLISHED);
	cm_peers_gone(p.a.cm, p.now, qpns, 3);
	assert_int_equal(end_told(&p.a, CM_EV_DISCONNECTED)->status, -ETIMEDOUT);
	cm_peers_gone(p.a.cm, p.now, qpns, 3);
	assert_int_equal(cm_disconnect(p.ca, p.now, NULL, 0), -ENOTCONN);
	assert_int_equal(end_wait(&p.a), TIMEWAIT);
	assert_ptr_equal(end_told(&p.a, CM_EV_TIMEWAIT_EXIT)->conn, p.ca);
	cm_release(p.ca, p.now);
	assert_int_equal(cm_in_use(p.a.cm), 0);
	pair_close(&p);
}

static void both_ends_disconnect_at_once(void **state)
{
	struct pair p;

	pair_open(&p);
	pair_connect(&p);
	assert_int_equal(cm_disconnect(p.ca, p.now, NULL, 0), 0);
	assert_int_equal(cm_disconnect(p.cb, p.now, NULL, 0), 0);
	pass(&p.a, &p.b, CM_DREQ);
	pass(&p.b, &p.a, CM_DREQ);
	assert_int_equal(end_told(&p.a, CM_EV_DISCONNECTED)->status, 0);
	assert_int_equal(end_told(&p.b, CM_EV_DISCONNECTED)->status, 0);
	pass(&p.a, &p.b, CM_DREP); /* not needed any more */
	pass(&p.b, &p.a, CM_DREP);
	pair_close(&p);
}

static void a_lost_drep_is_sent_again_in_timewait_and_after(void **state)
{
	uint8_t drep[CM_MAD_LEN];
	struct pair p;

	pair_open(&p);
	pair_connect(&p);
	assert_int_equal(cm_disconnect(p.ca, p.now, NULL, 0), 0);
	pass(&p.a, &p.b, CM_DREQ);
	end_told(&p.b, CM_EV_DISCONNECTED);
	assert_int_equal(cm_disconnect(p.cb, p.now, NULL, 0), 0);
	memcpy(drep, end_sent(&p.b, CM_DREP)->mad, CM_MAD_LEN);
	end_take(&p.b, &p.a.sent[2]);
	assert_memory_equal(end_sent(&p.b, CM_DREP)->mad, drep, CM_MAD_LEN);
	cm_release(p.cb, p.now);
	end_wait(&p.b);
	assert_int_equal(cm_in_use(p.b.cm), 0);
	end_wait(&p.a);
	pass(&p.a, &p.b, CM_DREQ);
	/* The connection is forgotten, but the peer gets its answer. */
	pass(&p.b, &p.a, CM_DREP);
	assert_int_equal(end_told(&p.a, CM_EV_DISCONNECTED)->status, 0);
	pair_close(&p);
}

static void a_dreq_that_nobody_answers_is_given_up(void **state)
{
	struct pair p;

	pair_open(&p);
	pair_connect(&p);
	assert_int_equal(cm_disconnect(p.ca, p.now, NULL, 0), 0);
	for (int i = 0; i < 4; i++) {
		end_sent(&p.a, CM_DREQ);
		end_wait(&p.a);
	}
	assert_int_equal(end_told(&p.a, CM_EV_DISCONNECTED)->status, -ETIMEDOUT);
	end_wait(&p.a);
	end_told(&p.a, CM_EV_TIMEWAIT_EXIT);
	pair_close(&p);
}

static void a_dreq_for_another_qp_or_from_elsewhere_is_dropped(void **state)
{
	struct pkt_addr other = {{[10] = 0xff, 0xff, 10, 0, 0, 9}};
	struct cm_msg m;
	struct pair p;

	pair_open(&p);
	pair_connect(&p);
	assert_int_equal(cm_disconnect(p.ca, p.now, NULL, 0), 0);
	m = end_sent(&p.a, CM_DREQ)->m;
	end_play(&p.b, &other, &m);
	assert_int_equal(cm_counters(p.b.cm)->wrong_source, 1);
	m.dreq.qpn++;
	end_play(&p.b, &p.a.addr, &m);
	assert_int_equal(cm_counters(p.b.cm)->wrong_qpn, 1);
	assert_int_equal(cm_conn_state(p.cb), CM_ESTABLISHED);
	pair_close(&p);
}

/* The client's DREQ overtakes its RTU. */
static void a_dreq_before_the_rtu_ends_the_connection(void **state)
{
	struct pair p;

	pair_open(&p);
	pair_reply(&p);
	assert_int_equal(cm_ready(p.ca, NULL, 0), 0);
	assert_int_equal(cm_disconnect(p.ca, p.now, NULL, 0), 0);
	end_take(&p.b, &p.a.sent[2]);
	end_told(&p.b, CM_EV_DISCONNECTED);
	pass(&p.a, &p.b, CM_RTU);
	end_sent(&p.a, CM_DREQ);
	assert_int_equal(cm_disconnect(p.cb, p.now, NULL, 0), 0);
	pass(&p.b, &p.a, CM_DREP);
	end_told(&p.a, CM_EV_DISCONNECTED);
	assert_true(cm_counters(p.b.cm)->connected == 1 && cm_counters(p.b.cm)->disconnected == 1);
	pair_close(&p);
}

/* The server, established by data, disconnects before the client is ready. */
static void a_dreq_before_our_rtu_ends_the_connection(void **state)
{
	struct pair p;

	pair_open(&p);
	pair_reply(&p);
	assert_int_equal(cm_established(p.cb), 0);
	end_told(&p.b, CM_EV_ESTABLISHED);
	assert_int_equal(cm_disconnect(p.cb, p.now, NULL, 0), 0);
	pass(&p.b, &p.a, CM_DREQ);
	end_told(&p.a, CM_EV_DISCONNECTED);
	assert_int_equal(cm_ready(p.ca, NULL, 0), -EINVAL);
	assert_int_equal(cm_disconnect(p.ca, p.now, NULL, 0), 0);
	pass(&p.a, &p.b, CM_DREP);
	end_told(&p.b, CM_EV_DISCONNECTED);
	pair_close(&p);
}

/* Sends a new request that names the QP of an existing connection. */
static void connect_again(struct pair *p, struct cm_conn **out)
{
	struct cm_connect c = connect_to(&p->a, &p->b, 0x11);

	assert_int_equal(cm_connect(p->a.cm, p->now, &c, NULL, out), 0);
	pass(&p->a, &p->b, CM_REQ);
}

/*
 * A REQ in the name of a live peer: the peer is asked, and its answer shows that it knows the
 * connection (12.9.8.3.1).
 */
static void a_req_for_a_connected_qp_ends_nothing(void **state)
{
	struct cm_conn *again;
	const struct sent *s;
	struct pair p;

	pair_open(&p);
	pair_connect(&p);
	for (int i = 0; i < 3; i++) {
		connect_again(&p, &again);
		assert_int_equal(pass(&p.b, &p.a, CM_REJ)->m.rej.reason, CM_REJ_STALE);
		assert_int_equal(end_told(&p.a, CM_EV_REJECTED)->reason, CM_REJ_STALE);
		if (i == 1) { /* only one question at a time */
			p.now += 70000000;
			continue;
		}
		s = pass(&p.b, &p.a, CM_DREQ);
		assert_int_equal(s->m.dreq.qpn, 0);
		end_quiet(&p.a);
	}
	end_quiet(&p.b);
	assert_int_equal(cm_counters(p.b.cm)->stale, 3);
	assert_int_equal(cm_counters(p.a.cm)->wrong_qpn, 2);
	assert_int_equal(cm_conn_state(p.ca), CM_ESTABLISHED);
	assert_int_equal(cm_conn_state(p.cb), CM_ESTABLISHED);
	/* The connection still ends normally. */
	assert_int_equal(cm_disconnect(p.cb, p.now, NULL, 0), 0);
	pass(&p.b, &p.a, CM_DREQ);
	end_told(&p.a, CM_EV_DISCONNECTED);
	pair_close(&p);
}

/* The peer was killed and restarted at once. Its QP has another number, or the same one. */
static void a_peer_that_was_started_anew_connects_at_once(void **state)
{
	for (int same = 0; same < 2; same++) {
		struct cm_config config = {.max_conns = 64, .seed = {99}};
		struct cm_accept acc = accept_with(0x23);
		struct cm_connect c;
		struct pair p;

		pair_open(&p);
		pair_connect(&p);
		end_close(&p.a);
		end_open(&p.a, 1, &p.now, &config);
		if (same) {
			connect_again(&p, &p.ca);
			pass(&p.b, &p.a, CM_REJ);
			end_told(&p.a, CM_EV_REJECTED);
			pass(&p.b, &p.a, CM_DREQ);
			pass(&p.a, &p.b, CM_DREP);
			assert_int_equal(end_told(&p.b, CM_EV_DISCONNECTED)->status, -ECONNRESET);
			assert_int_equal(cm_counters(p.b.cm)->stale_ended, 1);
		}
		c = connect_to(&p.a, &p.b, same ? 0x11 : 0x12);
		assert_int_equal(cm_connect(p.a.cm, p.now, &c, NULL, &p.ca), 0);
		pass(&p.a, &p.b, CM_REQ);
		p.cb = end_told(&p.b, CM_EV_REQUEST)->conn;
		assert_int_equal(cm_accept(p.cb, p.now, &acc), 0);
		pass(&p.b, &p.a, CM_REP);
		end_told(&p.a, CM_EV_REPLY);
		assert_int_equal(cm_ready(p.ca, NULL, 0), 0);
		pass(&p.a, &p.b, CM_RTU);
		end_told(&p.b, CM_EV_ESTABLISHED);
		assert_int_equal(p.now, 1000);
		pair_close(&p);
	}
}

/* A DREP without a DREQ ends no connection. */
static void a_drep_that_nobody_asked_for(void **state)
{
	struct cm_msg m = {.attr = CM_DREP};
	struct pair p;

	pair_open(&p);
	pair_connect(&p);
	m.local_id = p.a.sent[0].m.local_id;
	m.remote_id = p.b.sent[0].m.local_id;
	end_play(&p.b, &p.a.addr, &m);
	end_quiet(&p.b);
	assert_int_equal(cm_conn_state(p.cb), CM_ESTABLISHED);
	pair_close(&p);
}

static void a_rep_for_a_connected_qp_is_stale(void **state)
{
	struct cm_accept acc = accept_with(0x22);
	struct cm_conn *second;
	struct cm_connect c;
	struct pair p;

	pair_open(&p);
	pair_connect(&p);
	c = connect_to(&p.a, &p.b, 0x12);
	assert_int_equal(cm_connect(p.a.cm, p.now, &c, NULL, &second), 0);
	pass(&p.a, &p.b, CM_REQ);
	assert_int_equal(cm_accept(end_told(&p.b, CM_EV_REQUEST)->conn, p.now, &acc), 0);
	pass(&p.b, &p.a, CM_REP);
	assert_int_equal(pass(&p.a, &p.b, CM_REJ)->m.rej.about, CM_ABOUT_REP);
	assert_int_equal(end_told(&p.b, CM_EV_REJECTED)->reason, CM_REJ_STALE);
	pass(&p.a, &p.b, CM_DREQ);
	assert_ptr_equal(end_told(&p.a, CM_EV_REJECTED)->conn, second);
	/* The peer knows the old connection. */
	assert_int_equal(cm_conn_state(p.ca), CM_ESTABLISHED);
	assert_int_equal(cm_conn_state(p.cb), CM_ESTABLISHED);
	pair_close(&p);
}

/* A third party names the GUID and QP of a connected peer. */
static void a_stranger_does_not_make_connections_stale(void **state)
{
	struct pkt_addr other = {{[10] = 0xff, 0xff, 10, 0, 0, 9}};
	struct cm_msg m;
	struct pair p;

	pair_open(&p);
	pair_connect(&p);
	m = p.a.sent[0].m;
	m.local_id++;
	memcpy(m.req.primary.local_gid, other.b, CM_GID_LEN);
	end_play(&p.b, &other, &m);
	end_told(&p.b, CM_EV_REQUEST);
	assert_int_equal(cm_conn_state(p.cb), CM_ESTABLISHED);
	pair_close(&p);
}

static void a_late_req_of_an_ended_connection_is_stale(void **state)
{
	struct pair p;

	pair_open(&p);
	pair_connect(&p);
	assert_int_equal(cm_disconnect(p.ca, p.now, NULL, 0), 0);
	pass(&p.a, &p.b, CM_DREQ);
	end_told(&p.b, CM_EV_DISCONNECTED);
	assert_int_equal(cm_disconnect(p.cb, p.now, NULL, 0), 0);
	end_sent(&p.b, CM_DREP);
	end_take(&p.b, &p.a.sent[0]);
	assert_int_equal(end_sent(&p.b, CM_REJ)->m.rej.reason, CM_REJ_STALE);
	pair_close(&p);
}

static void path_migration_is_refused(void **state)
{
	struct cm_msg lap = {.attr = CM_LAP, .tid = 5}, apr = {.attr = CM_APR};
	const struct sent *s;
	struct pair p;

	pair_open(&p);
	pair_connect(&p);
	lap.local_id = p.a.sent[1].m.local_id;
	lap.remote_id = p.a.sent[1].m.remote_id;
	end_play(&p.b, &p.a.addr, &lap);
	s = end_sent(&p.b, CM_APR);
	assert_int_equal(s->m.apr.status, CM_APR_UNSUPPORTED);
	assert_true(s->m.tid == 5 && s->m.local_id == lap.remote_id &&
		    s->m.remote_id == lap.local_id);
	lap.remote_id++;
	end_play(&p.b, &p.a.addr, &lap);
	assert_int_equal(end_sent(&p.b, CM_APR)->m.apr.status, CM_APR_INVALID_ID);
	end_play(&p.b, &p.a.addr, &apr);
	assert_int_equal(cm_counters(p.b.cm)->unexpected, 1);
	pair_close(&p);
}

/* cm_release() sends the right message in each state, and nothing stays allocated. */
static void a_released_connection_is_brought_to_its_end(void **state)
{
	struct cm_accept acc = accept_with(0x22);
	struct pair p;

	for (int when = 0; when < 6; when++) {
		pair_open(&p);
		switch (when) {
		case 0: /* REQ_SENT; the server gets an event */
			pair_request(&p);
			cm_release(p.ca, p.now);
			pass(&p.a, &p.b, CM_REJ);
			assert_int_equal(end_told(&p.b, CM_EV_REJECTED)->reason, CM_REJ_TIMEOUT);
			cm_release(p.cb, p.now);
			break;
		case 1: /* REQ_RCVD */
			pair_request(&p);
			cm_release(p.cb, p.now);
			pass(&p.b, &p.a, CM_REJ);
			assert_int_equal(end_told(&p.a, CM_EV_REJECTED)->reason, CM_REJ_CONSUMER);
			cm_release(p.ca, p.now);
			break;
		case 2: /* REP_RCVD */
			pair_reply(&p);
			cm_release(p.ca, p.now);
			pass(&p.a, &p.b, CM_REJ);
			assert_int_equal(end_told(&p.b, CM_EV_REJECTED)->reason, CM_REJ_CONSUMER);
			cm_release(p.cb, p.now);
			break;
		case 3: /* REP_SENT: a connection made meanwhile is disconnected */
			pair_request(&p);
			assert_int_equal(cm_accept(p.cb, p.now, &acc), 0);
			cm_release(p.cb, p.now);
			pass(&p.b, &p.a, CM_REP);
			end_told(&p.a, CM_EV_REPLY);
			assert_int_equal(cm_ready(p.ca, NULL, 0), 0);
			pass(&p.a, &p.b, CM_RTU);
			pass(&p.b, &p.a, CM_DREQ);
			end_told(&p.a, CM_EV_DISCONNECTED);
			cm_release(p.ca, p.now); /* DREQ_RCVD */
			pass(&p.a, &p.b, CM_DREP);
			break;
		case 4: /* ESTABLISHED, both */
			pair_connect(&p);
			cm_release(p.ca, p.now);
			cm_release(p.cb, p.now);
			pass(&p.a, &p.b, CM_DREQ);
			pass(&p.b, &p.a, CM_DREQ);
			pass(&p.b, &p.a, CM_DREP);
			pass(&p.a, &p.b, CM_DREP);
			break;
		case 5: /* DREQ_SENT, and no answer comes */
			pair_connect(&p);
			assert_int_equal(cm_disconnect(p.ca, p.now, NULL, 0), 0);
			cm_release(p.ca, p.now);
			for (int i = 0; i < 4; i++) {
				end_sent(&p.a, CM_DREQ);
				end_wait(&p.a);
			}
			cm_release(p.cb, p.now);
			for (int i = 0; i < 4; i++) {
				end_sent(&p.b, CM_DREQ);
				end_wait(&p.b);
			}
			break;
		}
		while (cm_next(p.a.cm) != UINT64_MAX)
			end_wait(&p.a);
		while (cm_next(p.b.cm) != UINT64_MAX)
			end_wait(&p.b);
		assert_int_equal(cm_in_use(p.a.cm), 0);
		assert_int_equal(cm_in_use(p.b.cm), 0);
		pair_close(&p);
	}
}

/* ---- SIDR ---- */

static struct cm_sidr sidr_to(struct pair *p, uint64_t service_id, const struct cm_ip *ip)
{
	return (struct cm_sidr){.service_id = service_id,
				.src = p->a.addr,
				.dst = p->b.addr,
				.response_timeout = 20,
				.max_retries = 2,
				.ip = ip,
				.data = "q",
				.data_len = 1};
}

static void sidr_finds_a_ud_qp(void **state)
{
	uint64_t service = cm_service_id(CM_PS_UDP, 9);
	struct cm_ece ece = {0x123456, 0x01020304};
	const struct cm_event *e;
	struct cm_listener *l;
	uint8_t rep[CM_MAD_LEN];
	struct cm_ip ip;
	struct cm_sidr s;
	struct pair p;

	pair_open(&p);
	ip = (struct cm_ip){p.a.addr, p.b.addr, 1234, true};
	assert_int_equal(cm_listen(p.b.cm, service, NULL, CM_LISTEN_UD, 0, &ip, &l), 0);
	s = sidr_to(&p, service, &ip);
	assert_int_equal(cm_sidr(p.a.cm, p.now, &s, &p.a, &p.ca), 0);
	pass(&p.a, &p.b, CM_SIDR_REQ);
	e = end_told(&p.b, CM_EV_SIDR_REQUEST);
	p.cb = e->conn;
	assert_true(e->user == &ip && e->listener == l && e->service_id == service && e->has_ip &&
		    e->ip.sport == 1234);
	assert_memory_equal(e->data, "q\0", 2);
	end_wait(&p.a);
	pass(&p.a, &p.b, CM_SIDR_REQ); /* again, while the program has not answered */
	end_quiet(&p.b);
	assert_int_equal(cm_sidr_reply(p.cb, p.now, CM_SIDR_OK, 0x33, 0x44556677, ece, "r", 1), 0);
	cm_release(p.cb, p.now);
	memcpy(rep, end_sent(&p.b, CM_SIDR_REP)->mad, CM_MAD_LEN); /* lost */
	end_wait(&p.a);
	pass(&p.a, &p.b, CM_SIDR_REQ);
	assert_memory_equal(p.b.sent[p.b.sent_tail].mad, rep, CM_MAD_LEN);
	pass(&p.b, &p.a, CM_SIDR_REP);
	e = end_told(&p.a, CM_EV_SIDR_REPLY);
	assert_true(e->conn == p.ca && e->user == &p.a && e->status == CM_SIDR_OK &&
		    e->qpn == 0x33 && e->qkey == 0x44556677 && e->ece.vendor_id == 0x123456 &&
		    e->ece.options == 0x01020304);
	assert_memory_equal(e->data, "r\0", 2);
	assert_int_equal(cm_counters(p.b.cm)->duplicates[CM_SIDR_REQ - CM_ATTR_FIRST], 2);
	end_take(&p.a, &p.b.sent[0]); /* twice; the second has no effect */
	cm_release(p.ca, p.now);
	end_wait(&p.b);
	assert_int_equal(cm_in_use(p.a.cm) + cm_in_use(p.b.cm), 0);
	pair_close(&p);
}

static struct pkt_addr other_than(struct pkt_addr a)
{
	a.b[15] ^= 1;
	return a;
}

/*
 * The network reports that no NIC has the destination address. The effect is that of a refusal. A
 * report that does not quote the message is ignored.
 */
static void a_request_that_finds_no_nic_is_rejected_with_8(void **state)
{
	struct cm_connect c;
	struct pkt_addr to, other;
	struct cm_sidr s;
	struct pair p;
	uint64_t tid;

	pair_open(&p);
	to = p.b.addr;
	other = other_than(to);
	c = connect_to(&p.a, &p.b, 0x11);
	assert_int_equal(cm_connect(p.a.cm, p.now, &c, &p.a, &p.ca), 0);
	tid = end_sent(&p.a, CM_REQ)->m.tid;
	cm_lost(p.a.cm, p.now, &other, tid);
	cm_lost(p.a.cm, p.now, &to, tid + 1);
	cm_lost(p.a.cm, p.now, &to, tid ^ 1ull << 32);
	cm_lost(p.a.cm, p.now, &to, 0);
	end_quiet(&p.a);
	assert_int_equal(cm_conn_state(p.ca), CM_REQ_SENT);
	cm_lost(p.a.cm, p.now, &to, tid);
	assert_int_equal(end_told(&p.a, CM_EV_REJECTED)->reason, CM_REJ_INVALID_SERVICE_ID);
	assert_int_equal(cm_counters(p.a.cm)->no_nic, 1);
	cm_lost(p.a.cm, p.now, &to, tid); /* repeated */
	end_quiet(&p.a);
	cm_release(p.ca, p.now);

	s = sidr_to(&p, SERVICE, NULL);
	assert_int_equal(cm_sidr(p.a.cm, p.now, &s, &p.a, &p.ca), 0);
	cm_lost(p.a.cm, p.now, &to, end_sent(&p.a, CM_SIDR_REQ)->m.tid);
	assert_int_equal(end_told(&p.a, CM_EV_SIDR_REPLY)->status, CM_SIDR_UNSUPPORTED);
	cm_release(p.ca, p.now);
	assert_int_equal(cm_in_use(p.a.cm), 0);
	pair_close(&p);
}

/*
 * A peer that has answered exists, even if an ICMP error comes later, late or from an attacker that
 * has read the message.
 */
static void what_was_answered_is_not_ended_by_the_network(void **state)
{
	struct cm_accept acc = accept_with(0x22);
	struct cm_connect c;
	struct pair p;
	uint64_t tid;

	pair_open(&p);
	c = connect_to(&p.a, &p.b, 0x11);
	assert_int_equal(cm_connect(p.a.cm, p.now, &c, &p.a, &p.ca), 0);
	tid = end_sent(&p.a, CM_REQ)->m.tid;
	p.a.sent_tail--;
	pass(&p.a, &p.b, CM_REQ);
	p.cb = end_told(&p.b, CM_EV_REQUEST)->conn;
	assert_int_equal(cm_delay(p.cb, 20), 0);
	pass(&p.b, &p.a, CM_MRA);
	cm_lost(p.a.cm, p.now, &p.b.addr, tid);
	assert_int_equal(cm_conn_state(p.ca), CM_MRA_REQ_RCVD);
	assert_int_equal(cm_accept(p.cb, p.now, &acc), 0);
	pass(&p.b, &p.a, CM_REP);
	end_told(&p.a, CM_EV_REPLY);
	cm_lost(p.a.cm, p.now, &p.b.addr, tid);
	assert_int_equal(cm_conn_state(p.ca), CM_REP_RCVD);
	assert_int_equal(cm_ready(p.ca, NULL, 0), 0);
	end_sent(&p.a, CM_RTU);
	cm_lost(p.a.cm, p.now, &p.b.addr, tid);
	assert_int_equal(cm_conn_state(p.ca), CM_ESTABLISHED);
	assert_int_equal(cm_counters(p.a.cm)->no_nic, 0);
	pair_close(&p);
}

/*
 * The peer's process has ended before the DREQ came. The connection is over at once, and nothing is
 * repeated.
 */
static void a_disconnect_that_finds_no_nic_is_not_repeated(void **state)
{
	struct pkt_addr to, other;
	struct pair p;
	uint64_t tid;

	pair_open(&p);
	pair_connect(&p);
	to = p.b.addr;
	other = other_than(to);
	assert_int_equal(cm_disconnect(p.ca, p.now, NULL, 0), 0);
	tid = end_sent(&p.a, CM_DREQ)->m.tid;
	cm_lost(p.a.cm, p.now, &other, tid);
	cm_lost(p.a.cm, p.now, &to, tid + 1);
	assert_int_equal(cm_conn_state(p.ca), CM_DREQ_SENT);
	cm_lost(p.a.cm, p.now, &to, tid);
	assert_int_equal(end_told(&p.a, CM_EV_DISCONNECTED)->status, -EHOSTUNREACH);
	assert_int_equal(cm_conn_state(p.ca), CM_TIMEWAIT);
	assert_int_equal(cm_counters(p.a.cm)->no_nic, 1);
	cm_lost(p.a.cm, p.now, &to, tid); /* repeated */
	end_quiet(&p.a);
	end_wait(&p.a);
	end_told(&p.a, CM_EV_TIMEWAIT_EXIT);
	end_quiet(&p.a);
	pair_close(&p);
}

static void sidr_is_refused_or_given_up(void **state)
{
	struct cm_sidr s;
	struct pair p;

	pair_open(&p);
	s = sidr_to(&p, SERVICE, NULL); /* the service accepts connections only */
	assert_int_equal(cm_sidr(p.a.cm, p.now, &s, NULL, &p.ca), 0);
	pass(&p.a, &p.b, CM_SIDR_REQ);
	pass(&p.b, &p.a, CM_SIDR_REP);
	assert_int_equal(end_told(&p.a, CM_EV_SIDR_REPLY)->status, CM_SIDR_UNSUPPORTED);
	cm_release(p.ca, p.now);
	assert_int_equal(cm_sidr(p.a.cm, p.now, &s, NULL, &p.ca), 0);
	for (int i = 0; i < 3; i++) {
		end_sent(&p.a, CM_SIDR_REQ);
		end_wait(&p.a);
	}
	assert_int_equal(end_told(&p.a, CM_EV_UNREACHABLE)->status, -ETIMEDOUT);
	cm_release(p.ca, p.now);
	assert_int_equal(cm_in_use(p.a.cm) + cm_in_use(p.b.cm), 0);
	pair_close(&p);
}

static void a_released_sidr_request_is_rejected(void **state)
{
	uint64_t service = cm_service_id(CM_PS_UDP, 9);
	struct cm_listener *l;
	struct cm_sidr s;
	struct pair p;

	pair_open(&p);
	assert_int_equal(cm_listen(p.b.cm, service, NULL, CM_LISTEN_UD, 0, NULL, &l), 0);
	s = sidr_to(&p, service, NULL);
	assert_int_equal(cm_sidr(p.a.cm, p.now, &s, NULL, &p.ca), 0);
	pass(&p.a, &p.b, CM_SIDR_REQ);
	cm_release(end_told(&p.b, CM_EV_SIDR_REQUEST)->conn, p.now);
	pass(&p.b, &p.a, CM_SIDR_REP);
	assert_int_equal(end_told(&p.a, CM_EV_SIDR_REPLY)->status, CM_SIDR_REJECT);
	pair_close(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_end_disconnects),
		cmocka_unit_test(a_peer_that_is_gone_disconnects),
		cmocka_unit_test(both_ends_disconnect_at_once),
		cmocka_unit_test(a_lost_drep_is_sent_again_in_timewait_and_after),
		cmocka_unit_test(a_dreq_that_nobody_answers_is_given_up),
		cmocka_unit_test(a_dreq_for_another_qp_or_from_elsewhere_is_dropped),
		cmocka_unit_test(a_dreq_before_the_rtu_ends_the_connection),
		cmocka_unit_test(a_dreq_before_our_rtu_ends_the_connection),
		cmocka_unit_test(a_req_for_a_connected_qp_ends_nothing),
		cmocka_unit_test(a_peer_that_was_started_anew_connects_at_once),
		cmocka_unit_test(a_drep_that_nobody_asked_for),
		cmocka_unit_test(a_rep_for_a_connected_qp_is_stale),
		cmocka_unit_test(a_stranger_does_not_make_connections_stale),
		cmocka_unit_test(a_late_req_of_an_ended_connection_is_stale),
		cmocka_unit_test(path_migration_is_refused),
		cmocka_unit_test(a_released_connection_is_brought_to_its_end),
		cmocka_unit_test(sidr_finds_a_ud_qp),
		cmocka_unit_test(a_request_that_finds_no_nic_is_rejected_with_8),
		cmocka_unit_test(what_was_answered_is_not_ended_by_the_network),
		cmocka_unit_test(a_disconnect_that_finds_no_nic_is_not_repeated),
		cmocka_unit_test(sidr_is_refused_or_given_up),
		cmocka_unit_test(a_released_sidr_request_is_rejected),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
