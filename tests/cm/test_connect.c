/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * How connections are made, datagram by datagram: the content of each, and the effect of one that
 * is lost, late, or duplicated.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <errno.h>
#include <string.h>
#include <cmocka.h>

#include "rig.h"

#define INTERVAL ((4096ull << 19) + (4096ull << 20))

static void both_ends_learn_what_the_other_said(void **state)
{
	const struct cm_event *e;
	struct cm_qp_attr qa, qb;
	struct cm_accept acc = accept_with(0x22);
	struct cm_connect c;
	struct pair p;

	pair_open(&p);
	c = connect_to(&p.a, &p.b, 0x11);
	assert_int_equal(cm_connect(p.a.cm, p.now, &c, &p.a, &p.ca), 0);
	assert_int_equal(end_sent(&p.a, CM_REQ)->tclass, 104);
	p.a.sent_tail--;
	pass(&p.a, &p.b, CM_REQ);
	e = end_told(&p.b, CM_EV_REQUEST);
	p.cb = e->conn;
	assert_ptr_equal(e->user, &p);
	assert_ptr_equal(e->listener, p.l);
	assert_int_equal(e->service_id, SERVICE);
	assert_true(e->has_ip && e->ip.sport == 50000 && pkt_addr_eq(&e->ip.src, &p.a.addr) &&
		    pkt_addr_eq(&e->ip.dst, &p.b.addr));
	assert_int_equal(e->data_len, CM_REQ_DATA - CM_IP_LEN);
	assert_memory_equal(e->data, "hello\0", 6);
	assert_int_equal(e->qpn, 0x11);
	assert_int_equal(e->psn, 0x111111);
	/* The two depths are exchanged: our responder resources are the peer's initiator depth. */
	assert_int_equal(e->responder_resources, 5);
	assert_int_equal(e->initiator_depth, 4);
	assert_true(e->flow_control && e->srq && e->retry_count == 6 && e->rnr_retry == 7);
	assert_int_equal(e->transport, CM_TRANSPORT_RC);
	assert_int_equal(e->ece.vendor_id, 0xabcdef);
	assert_int_equal(e->ece.options, 0x11223344);

	assert_int_equal(cm_accept(p.cb, p.now, &acc), 0);
	pass(&p.b, &p.a, CM_REP);
	e = end_told(&p.a, CM_EV_REPLY);
	assert_ptr_equal(e->conn, p.ca);
	assert_ptr_equal(e->user, &p.a);
	assert_memory_equal(e->data, "welcome\0", 8);
	assert_int_equal(e->qpn, 0x22);
	assert_int_equal(e->psn, 0x222222);
	assert_int_equal(e->responder_resources, 2);
	assert_int_equal(e->initiator_depth, 3);
	assert_int_equal(e->ece.vendor_id, 0xfedcba);
	assert_int_equal(e->ece.options, 0x55667788);

	assert_int_equal(cm_ready(p.ca, "ready", 5), 0);
	pass(&p.a, &p.b, CM_RTU);
	e = end_told(&p.b, CM_EV_ESTABLISHED);
	assert_memory_equal(e->data, "ready\0", 6);

	cm_qp_attr(p.ca, &qa);
	cm_qp_attr(p.cb, &qb);
	assert_true(pkt_addr_eq(&qa.sgid, &p.a.addr) && pkt_addr_eq(&qa.dgid, &p.b.addr));
	assert_true(pkt_addr_eq(&qb.sgid, &p.b.addr) && pkt_addr_eq(&qb.dgid, &p.a.addr));
	assert_int_equal(qa.dest_qpn, 0x22);
	assert_int_equal(qb.dest_qpn, 0x11);
	/* Each side sends the PSN that it expects. The other side starts with it. */
	assert_true(qa.rq_psn == 0x111111 && qb.sq_psn == 0x111111 && qb.rq_psn == 0x222222 &&
		    qa.sq_psn == 0x222222);
	assert_true(qa.max_rd_atomic == 3 && qb.max_dest_rd_atomic == 3);
	assert_true(qa.max_dest_rd_atomic == 2 && qb.max_rd_atomic == 2);
	assert_true(qa.path_mtu == 3 && qb.path_mtu == 3 && qa.timeout == 19 && qb.timeout == 19);
	assert_true(qa.retry_cnt == 6 && qb.retry_cnt == 6);
	assert_true(qa.rnr_retry == 1 && qb.rnr_retry == 7); /* requested by the other end */
	assert_true(qb.tclass == 104 && qb.flow_label == 0x12345 && qb.hop_limit == 64 &&
		    qb.sl == 3);
	pair_close(&p);
}

static void a_service_that_nobody_serves_is_rejected_with_8(void **state)
{
	struct cm_connect c;
	struct pair p;

	pair_open(&p);
	c = connect_to(&p.a, &p.b, 0x11);
	c.service_id++;
	assert_int_equal(cm_connect(p.a.cm, p.now, &c, NULL, &p.ca), 0);
	pass(&p.a, &p.b, CM_REQ);
	assert_int_equal(pass(&p.b, &p.a, CM_REJ)->m.rej.reason, CM_REJ_INVALID_SERVICE_ID);
	assert_int_equal(end_told(&p.a, CM_EV_REJECTED)->reason, CM_REJ_INVALID_SERVICE_ID);
	assert_int_equal(cm_counters(p.b.cm)->no_listener, 1);
	assert_int_equal(cm_in_use(p.b.cm), 0);
	cm_release(p.ca, p.now);
	assert_int_equal(cm_in_use(p.a.cm), 0);
	pair_close(&p);
}

static void what_was_refused_may_be_asked_again(void **state)
{
	struct cm_connect c;
	struct pair p;

	pair_open(&p);
	cm_unlisten(p.l);
	c = connect_to(&p.a, &p.b, 0x11);
	c.max_retries = 3;
	assert_int_equal(cm_connect(p.a.cm, p.now, &c, NULL, &p.ca), 0);
	assert_int_equal(cm_repeat_request(p.ca, p.now, 1), -EINVAL); /* a request is under way */
	for (unsigned i = 0; i < c.max_retries; i++) {
		pass(&p.a, &p.b, CM_REQ);
		pass(&p.b, &p.a, CM_REJ);
		assert_int_equal(end_told(&p.a, CM_EV_REJECTED)->reason, CM_REJ_INVALID_SERVICE_ID);
		assert_int_equal(cm_repeat_request(p.ca, p.now, 1000000 << i), 0);
		end_quiet(&p.a);
		assert_in_range(end_wait(&p.a), 1000000 << i, 1100000 << i);
	}
	/* The last request finds a listener and makes a normal connection. */
	assert_int_equal(
		cm_listen(p.b.cm, SERVICE, NULL, CM_LISTEN_CONN | CM_LISTEN_IPV4, 0, &p, &p.l), 0);
	pass(&p.a, &p.b, CM_REQ);
	p.cb = end_told(&p.b, CM_EV_REQUEST)->conn;
	assert_int_equal(cm_reject(p.cb, p.now, CM_REJ_CONSUMER, NULL, 0, NULL, 0), 0);
	pass(&p.b, &p.a, CM_REJ);
	assert_int_equal(end_told(&p.a, CM_EV_REJECTED)->reason, CM_REJ_CONSUMER);
	assert_int_equal(cm_repeat_request(p.ca, p.now, 1), -EAGAIN);
	assert_int_equal(cm_counters(p.a.cm)->retried[CM_REQ - CM_ATTR_FIRST], 3);
	cm_release(p.cb, p.now);
	cm_release(p.ca, p.now);
	pair_close(&p);
}

static void a_program_rejects_with_28_and_a_lost_rej_is_said_again(void **state)
{
	const struct cm_event *e;
	struct pair p;

	pair_open(&p);
	pair_request(&p);
	assert_int_equal(cm_reject(p.cb, p.now, CM_REJ_CONSUMER, "i", 1, "sorry", 5), 0);
	cm_release(p.cb, p.now);
	end_sent(&p.b, CM_REJ); /* lost */
	assert_int_equal(end_wait(&p.a), INTERVAL);
	pass(&p.a, &p.b, CM_REQ);
	pass(&p.b, &p.a, CM_REJ);
	e = end_told(&p.a, CM_EV_REJECTED);
	assert_int_equal(e->reason, CM_REJ_CONSUMER);
	assert_memory_equal(e->data, "sorry\0", 6);
	assert_int_equal(e->info_len, 1);
	assert_int_equal(e->info[0], 'i');
	assert_int_equal(cm_counters(p.b.cm)->duplicates[CM_REQ - CM_ATTR_FIRST], 1);
	end_wait(&p.b);
	assert_int_equal(cm_in_use(p.b.cm), 0);
	pair_close(&p);
}

static void a_req_without_answer_is_retried_and_given_up(void **state)
{
	const struct cm_event *e;
	struct cm_connect c;
	struct pair p;

	pair_open(&p);
	c = connect_to(&p.a, &p.b, 0x11);
	assert_int_equal(cm_connect(p.a.cm, p.now, &c, NULL, &p.ca), 0);
	for (int i = 0; i < 3; i++) {
		end_sent(&p.a, CM_REQ);
		assert_int_equal(end_wait(&p.a), INTERVAL);
	}
	pass(&p.a, &p.b, CM_REQ); /* only the last one arrives, and the program is slow */
	p.cb = end_told(&p.b, CM_EV_REQUEST)->conn;
	end_wait(&p.a);
	assert_int_equal(end_told(&p.a, CM_EV_UNREACHABLE)->status, -ETIMEDOUT);
	/* The passive side, whose id is not known, is identified by its GUID. */
	assert_int_equal(pass(&p.a, &p.b, CM_REJ)->m.remote_id, 0);
	e = end_told(&p.b, CM_EV_REJECTED);
	assert_ptr_equal(e->conn, p.cb);
	assert_int_equal(e->reason, CM_REJ_TIMEOUT);
	assert_int_equal(cm_counters(p.a.cm)->timeouts, 1);
	assert_int_equal(cm_counters(p.a.cm)->retried[CM_REQ - CM_ATTR_FIRST], 3);
	assert_int_equal(cm_accept(p.cb, p.now, &(struct cm_accept){.qpn = 1}), -EINVAL);
	pair_close(&p);
}

static void a_lost_rep_is_sent_again_the_same(void **state)
{
	struct cm_accept acc = accept_with(0x22);
	uint8_t rep[CM_MAD_LEN];
	struct pair p;

	pair_open(&p);
	pair_request(&p);
	assert_int_equal(cm_accept(p.cb, p.now, &acc), 0);
	memcpy(rep, end_sent(&p.b, CM_REP)->mad, CM_MAD_LEN);
	/* The REP is sent again for a repeated REQ, and because no RTU comes. */
	end_wait(&p.a);
	pass(&p.a, &p.b, CM_REQ);
	assert_memory_equal(end_sent(&p.b, CM_REP)->mad, rep, CM_MAD_LEN);
	cm_expire(p.b.cm, p.now);
	assert_memory_equal(end_sent(&p.b, CM_REP)->mad, rep, CM_MAD_LEN);
	end_quiet(&p.b);
	pair_close(&p);
}

static void a_lost_rtu_is_asked_for_by_the_rep(void **state)
{
	struct pair p;

	pair_open(&p);
	pair_reply(&p);
	assert_int_equal(cm_ready(p.ca, "x", 1), 0);
	end_sent(&p.a, CM_RTU);
	end_wait(&p.b);
	pass(&p.b, &p.a, CM_REP);
	pass(&p.a, &p.b, CM_RTU);
	assert_int_equal(end_told(&p.b, CM_EV_ESTABLISHED)->data[0], 'x');
	assert_int_equal(cm_counters(p.a.cm)->duplicates[CM_REP - CM_ATTR_FIRST], 1);
	pair_close(&p);
}

static void data_before_the_rtu_establishes(void **state)
{
	struct pair p;

	pair_open(&p);
	pair_reply(&p);
	assert_int_equal(cm_ready(p.ca, NULL, 0), 0);
	assert_int_equal(cm_established(p.cb), 0);
	end_told(&p.b, CM_EV_ESTABLISHED);
	assert_int_equal(cm_established(p.cb), -EISCONN);
	pass(&p.a, &p.b, CM_RTU); /* late: no second event */
	end_quiet(&p.b);
	assert_int_equal(cm_counters(p.b.cm)->established_early, 1);
	assert_int_equal(cm_counters(p.b.cm)->duplicates[CM_RTU - CM_ATTR_FIRST], 1);
	assert_int_equal(cm_next(p.b.cm), UINT64_MAX); /* the REP is not sent again */
	pair_close(&p);
}

static void a_rep_that_nobody_answers_is_given_up(void **state)
{
	struct pair p;

	pair_open(&p);
	pair_reply(&p);
	assert_int_equal(cm_ready(p.ca, NULL, 0), 0);
	end_sent(&p.a, CM_RTU);
	for (int i = 0; i < 3; i++) {
		end_wait(&p.b);
		end_sent(&p.b, CM_REP);
	}
	end_wait(&p.b);
	assert_int_equal(end_told(&p.b, CM_EV_UNREACHABLE)->status, -ETIMEDOUT);
	end_sent(&p.b, CM_REJ); /* lost too; the active end's next message causes another */
	end_take(&p.b, &p.a.sent[1]);
	assert_int_equal(pass(&p.b, &p.a, CM_REJ)->m.rej.reason, CM_REJ_TIMEOUT);
	assert_int_equal(end_told(&p.a, CM_EV_DISCONNECTED)->status, -ECONNRESET);
	pair_close(&p);
}

static void a_slow_server_holds_the_client_with_mra(void **state)
{
	struct pair p;

	pair_open(&p);
	pair_request(&p);
	end_wait(&p.a);
	pass(&p.a, &p.b, CM_REQ); /* while the program has not answered */
	assert_int_equal(pass(&p.b, &p.a, CM_MRA)->m.mra.about, CM_ABOUT_REQ);
	assert_int_equal(cm_conn_state(p.ca), CM_MRA_REQ_RCVD);
	assert_int_equal(cm_conn_state(p.cb), CM_MRA_REQ_SENT);
	assert_true(end_wait(&p.a) > 5 * INTERVAL);
	pass(&p.a, &p.b, CM_REQ);
	pass(&p.b, &p.a, CM_MRA); /* the same again */
	assert_int_equal(cm_counters(p.a.cm)->duplicates[CM_MRA - CM_ATTR_FIRST], 1);
	end_quiet(&p.b);
	pair_close(&p);
}

/* A peer that sends an MRA has got the REQ: earlier losses do not count any more. */
static void mra_starts_the_count_of_retries_anew(void **state)
{
	struct pair p;

	pair_open(&p);
	pair_request(&p);
	for (int i = 0; i < 2; i++) {
		end_wait(&p.a);
		end_sent(&p.a, CM_REQ);
	}
	end_wait(&p.a);
	pass(&p.a, &p.b, CM_REQ);
	pass(&p.b, &p.a, CM_MRA);
	for (int i = 0; i < 3; i++) {
		end_wait(&p.a);
		end_sent(&p.a, CM_REQ);
	}
	end_wait(&p.a);
	assert_int_equal(end_told(&p.a, CM_EV_UNREACHABLE)->status, -ETIMEDOUT);
	end_sent(&p.a, CM_REJ);
	pair_close(&p);
}

static void a_slow_client_holds_the_server_with_mra(void **state)
{
	struct pair p;

	pair_open(&p);
	pair_reply(&p);
	end_wait(&p.b);
	pass(&p.b, &p.a, CM_REP);
	assert_int_equal(pass(&p.a, &p.b, CM_MRA)->m.mra.about, CM_ABOUT_REP);
	assert_int_equal(cm_conn_state(p.cb), CM_MRA_REP_RCVD);
	assert_true(end_wait(&p.b) > 5 * INTERVAL);
	pass(&p.b, &p.a, CM_REP);
	pass(&p.a, &p.b, CM_MRA);
	assert_int_equal(cm_ready(p.ca, NULL, 0), 0);
	pass(&p.a, &p.b, CM_RTU);
	end_told(&p.b, CM_EV_ESTABLISHED);
	pair_close(&p);
}

static void mra_is_sent_at_once_if_asked(void **state)
{
	struct pair p;

	pair_open(&p);
	pair_request(&p);
	assert_int_equal(cm_delay(p.cb, 21), 0);
	assert_int_equal(pass(&p.b, &p.a, CM_MRA)->m.mra.service_timeout, 21);
	assert_int_equal(end_wait(&p.a), (4096ull << 21) + (4096ull << 19));
	end_sent(&p.a, CM_REQ);
	assert_int_equal(cm_delay(p.ca, 21), -EINVAL);
	pair_close(&p);
}

/*
 * Two state machines with the same seed, thus the same ids, connect to each other at the same time.
 */
static void two_ends_with_the_same_ids_connect_to_each_other(void **state)
{
	struct cm_config config = {.seed = {77}, .max_conns = 8};
	struct cm_conn *active[2], *passive[2];
	struct cm_listener *l;
	uint64_t now = 0;
	struct end e[2];

	for (int i = 0; i < 2; i++) {
		end_open(&e[i], 1 + (unsigned)i, &now, &config);
		assert_int_equal(cm_listen(e[i].cm, SERVICE, NULL, CM_LISTEN_CONN, 0, NULL, &l), 0);
	}
	for (int i = 0; i < 2; i++) {
		struct cm_connect c = connect_to(&e[i], &e[!i], 0x11);

		assert_int_equal(cm_connect(e[i].cm, now, &c, NULL, &active[i]), 0);
	}
	assert_int_equal(e[0].sent[0].m.local_id, e[1].sent[0].m.local_id);
	for (int i = 0; i < 2; i++)
		pass(&e[i], &e[!i], CM_REQ);
	for (int i = 0; i < 2; i++) {
		struct cm_accept acc = accept_with(0x22);

		passive[i] = end_told(&e[i], CM_EV_REQUEST)->conn;
		assert_int_equal(cm_accept(passive[i], now, &acc), 0);
	}
	assert_int_equal(e[0].sent[1].m.local_id, e[1].sent[1].m.local_id);
	for (int i = 0; i < 2; i++)
		pass(&e[i], &e[!i], CM_REP);
	for (int i = 0; i < 2; i++) {
		assert_ptr_equal(end_told(&e[i], CM_EV_REPLY)->conn, active[i]);
		assert_int_equal(cm_ready(active[i], NULL, 0), 0);
	}
	for (int i = 0; i < 2; i++)
		pass(&e[i], &e[!i], CM_RTU);
	for (int i = 0; i < 2; i++) {
		assert_ptr_equal(end_told(&e[i], CM_EV_ESTABLISHED)->conn, passive[i]);
		assert_int_equal(cm_conn_state(active[i]), CM_ESTABLISHED);
	}
	end_close(&e[0]);
	end_close(&e[1]);
}

/*
 * A process connects to a listener of its own state machine. Each datagram comes back to its
 * sender.
 */
static void a_machine_connects_to_itself(void **state)
{
	struct cm_accept acc = accept_with(0x22);
	struct cm_connect c;
	struct pair p;

	pair_open(&p);
	c = connect_to(&p.b, &p.b, 0x11);
	assert_int_equal(cm_connect(p.b.cm, p.now, &c, NULL, &p.ca), 0);
	pass(&p.b, &p.b, CM_REQ);
	p.cb = end_told(&p.b, CM_EV_REQUEST)->conn;
	assert_int_equal(cm_accept(p.cb, p.now, &acc), 0);
	pass(&p.b, &p.b, CM_REP);
	end_told(&p.b, CM_EV_REPLY);
	assert_int_equal(cm_ready(p.ca, NULL, 0), 0);
	pass(&p.b, &p.b, CM_RTU);
	assert_ptr_equal(end_told(&p.b, CM_EV_ESTABLISHED)->conn, p.cb);
	assert_int_equal(cm_disconnect(p.ca, p.now, NULL, 0), 0);
	pass(&p.b, &p.b, CM_DREQ);
	assert_ptr_equal(end_told(&p.b, CM_EV_DISCONNECTED)->conn, p.cb);
	assert_int_equal(cm_disconnect(p.cb, p.now, NULL, 0), 0);
	pass(&p.b, &p.b, CM_DREP);
	assert_ptr_equal(end_told(&p.b, CM_EV_DISCONNECTED)->conn, p.ca);
	pair_close(&p);
}

static void a_rep_for_nobody_is_rejected_with_6(void **state)
{
	struct cm_accept acc = accept_with(0x22);
	struct pair p;

	pair_open(&p);
	pair_request(&p);
	cm_release(p.ca, p.now);
	end_sent(&p.a, CM_REJ); /* lost */
	assert_int_equal(cm_accept(p.cb, p.now, &acc), 0);
	pass(&p.b, &p.a, CM_REP);
	assert_int_equal(pass(&p.a, &p.b, CM_REJ)->m.rej.reason, CM_REJ_INVALID_COMM_ID);
	assert_int_equal(end_told(&p.b, CM_EV_REJECTED)->reason, CM_REJ_INVALID_COMM_ID);
	assert_int_equal(cm_counters(p.a.cm)->unknown_id, 1);
	pair_close(&p);
}

/* A peer answers two REQs with one id. The id cannot identify both connections. */
static void a_rep_with_the_id_of_another_connection_is_rejected(void **state)
{
	struct cm_conn *second;
	struct cm_connect c;
	struct cm_msg rep;
	struct pair p;

	pair_open(&p);
	pair_connect(&p);
	c = connect_to(&p.a, &p.b, 0x12);
	assert_int_equal(cm_connect(p.a.cm, p.now, &c, NULL, &second), 0);
	rep = p.b.sent[0].m;
	rep.remote_id = end_sent(&p.a, CM_REQ)->m.local_id;
	rep.rep.qpn = 0x23;
	end_play(&p.a, &p.b.addr, &rep);
	assert_int_equal(end_sent(&p.a, CM_REJ)->m.rej.reason, CM_REJ_INVALID_COMM_ID);
	assert_int_equal(cm_conn_state(second), CM_REQ_SENT);
	assert_int_equal(cm_conn_state(p.ca), CM_ESTABLISHED);
	pair_close(&p);
}

/*
 * A client whose QP cannot be brought to RTS rejects. The server gets the event even if the REJ is
 * lost once.
 */
static void a_client_rejects_the_rep(void **state)
{
	struct pair p;

	pair_open(&p);
	pair_reply(&p);
	assert_int_equal(cm_reject(p.ca, p.now, CM_REJ_CONSUMER, NULL, 0, NULL, 0), 0);
	cm_release(p.ca, p.now);
	assert_int_equal(end_sent(&p.a, CM_REJ)->m.rej.about, CM_ABOUT_REP);
	end_wait(&p.b);
	pass(&p.b, &p.a, CM_REP);
	pass(&p.a, &p.b, CM_REJ);
	assert_int_equal(end_told(&p.b, CM_EV_REJECTED)->reason, CM_REJ_CONSUMER);
	pair_close(&p);
}

/*
 * Kept as long as the server may send the REP again: each REP gets the program's refusal, not that
 * of an unknown id.
 */
static void a_refused_rep_is_remembered_as_long_as_it_may_come(void **state)
{
	struct pair p;

	pair_open(&p);
	pair_reply(&p);
	assert_int_equal(cm_reject(p.ca, p.now, CM_REJ_CONSUMER, NULL, 0, NULL, 0), 0);
	cm_release(p.ca, p.now);
	end_sent(&p.a, CM_REJ);
	for (int i = 0; i < 3; i++) {
		end_wait(&p.b);
		cm_expire(p.a.cm, p.now);
		pass(&p.b, &p.a, CM_REP);
		assert_int_equal(end_sent(&p.a, CM_REJ)->m.rej.reason, CM_REJ_CONSUMER);
	}
	pair_close(&p);
}

/*
 * A client that was told to wait a minute asks again after a minute. The program that has refused
 * meanwhile gets no second request.
 */
static void a_refusal_after_mra_is_remembered_as_long(void **state)
{
	struct pair p;

	pair_open(&p);
	pair_request(&p);
	assert_int_equal(cm_delay(p.cb, 24), 0);
	pass(&p.b, &p.a, CM_MRA);
	assert_int_equal(cm_reject(p.cb, p.now, CM_REJ_CONSUMER, NULL, 0, NULL, 0), 0);
	cm_release(p.cb, p.now);
	end_sent(&p.b, CM_REJ);
	end_wait(&p.a);
	for (int i = 0; i < 2; i++) { /* two lost REQs */
		end_sent(&p.a, CM_REQ);
		end_wait(&p.a);
	}
	cm_expire(p.b.cm, p.now);
	pass(&p.a, &p.b, CM_REQ);
	pass(&p.b, &p.a, CM_REJ);
	assert_int_equal(end_told(&p.a, CM_EV_REJECTED)->reason, CM_REJ_CONSUMER);
	pair_close(&p);
}

/* The first REQ found no listener, the second one did. The REJ of the first comes last. */
static void a_late_rej_of_the_req_ends_nothing(void **state)
{
	struct cm_msg rej = {.attr = CM_REJ,
			     .rej = {.about = CM_ABOUT_REQ, .reason = CM_REJ_INVALID_SERVICE_ID}};
	struct pair p;

	pair_open(&p);
	pair_connect(&p);
	rej.remote_id = p.a.sent[0].m.local_id;
	end_play(&p.a, &p.b.addr, &rej);
	assert_int_equal(cm_conn_state(p.ca), CM_ESTABLISHED);
	assert_int_equal(cm_counters(p.a.cm)->unknown_id, 1);
	pair_close(&p);
}

static void a_req_that_cannot_be_is_rejected_with_why(void **state)
{
	static const struct {
		uint8_t transport, mtu;
		bool elsewhere;
		uint16_t reason;
	} bad[] = {
		{2, 3, false, CM_REJ_INVALID_TRANSPORT}, {3, 3, false, CM_REJ_INVALID_TRANSPORT},
		{0, 0, false, CM_REJ_INVALID_MTU},	 {0, 6, false, CM_REJ_INVALID_MTU},
		{0, 3, true, CM_REJ_INVALID_GID},
	};
	struct cm_connect c;
	struct cm_msg req;
	struct pair p;

	pair_open(&p);
	c = connect_to(&p.a, &p.b, 0x11);
	assert_int_equal(cm_connect(p.a.cm, p.now, &c, NULL, &p.ca), 0);
	req = end_sent(&p.a, CM_REQ)->m;
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		struct cm_msg m = req;

		m.req.transport = bad[i].transport;
		m.req.mtu = bad[i].mtu;
		if (bad[i].elsewhere)
			m.req.primary.local_gid[15] = 99; /* not the sender's address */
		end_play(&p.b, &p.a.addr, &m);
		assert_int_equal(end_sent(&p.b, CM_REJ)->m.rej.reason, bad[i].reason);
		end_quiet(&p.b);
	}
	assert_int_equal(cm_counters(p.b.cm)->bad_request, 5);
	assert_int_equal(cm_in_use(p.b.cm), 0);
	pair_close(&p);
}

static void calls_in_the_wrong_state_or_with_wrong_arguments_fail(void **state)
{
	struct cm_accept acc = accept_with(0x22);
	static uint8_t big[256];
	struct cm_connect c;
	struct pair p;

	pair_open(&p);
	c = connect_to(&p.a, &p.b, 0x1000000);
	assert_int_equal(cm_connect(p.a.cm, p.now, &c, NULL, &p.ca), -EINVAL);
	c = connect_to(&p.a, &p.b, 0x11);
	c.data = big;
	c.data_len = CM_REQ_DATA - CM_IP_LEN + 1;
	assert_int_equal(cm_connect(p.a.cm, p.now, &c, NULL, &p.ca), -EINVAL);
	c.data_len--;
	c.mtu = 6;
	assert_int_equal(cm_connect(p.a.cm, p.now, &c, NULL, &p.ca), -EINVAL);
	pair_request(&p);
	assert_int_equal(cm_ready(p.ca, NULL, 0), -EINVAL);
	assert_int_equal(cm_ready(p.cb, NULL, 0), -EINVAL);
	assert_int_equal(cm_accept(p.ca, p.now, &acc), -EINVAL);
	assert_int_equal(cm_established(p.cb), -EINVAL);
	assert_int_equal(cm_disconnect(p.cb, p.now, NULL, 0), -ENOTCONN);
	assert_int_equal(cm_sidr_reply(p.cb, p.now, 0, 1, 1, acc.ece, NULL, 0), -EINVAL);
	assert_int_equal(cm_reject(p.ca, p.now, 28, NULL, 0, NULL, 0), -EINVAL);
	acc.data = big;
	acc.data_len = CM_REP_DATA + 1;
	assert_int_equal(cm_accept(p.cb, p.now, &acc), -EINVAL);
	assert_int_equal(cm_reject(p.cb, p.now, 28, big, CM_ARI_LEN + 1, NULL, 0), -EINVAL);
	assert_int_equal(cm_reject(p.cb, p.now, 28, NULL, 0, big, CM_REJ_DATA + 1), -EINVAL);
	acc.data_len--;
	assert_int_equal(cm_accept(p.cb, p.now, &acc), 0);
	end_sent(&p.b, CM_REP);
	pair_close(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(both_ends_learn_what_the_other_said),
		cmocka_unit_test(a_service_that_nobody_serves_is_rejected_with_8),
		cmocka_unit_test(what_was_refused_may_be_asked_again),
		cmocka_unit_test(a_program_rejects_with_28_and_a_lost_rej_is_said_again),
		cmocka_unit_test(a_req_without_answer_is_retried_and_given_up),
		cmocka_unit_test(a_lost_rep_is_sent_again_the_same),
		cmocka_unit_test(a_lost_rtu_is_asked_for_by_the_rep),
		cmocka_unit_test(data_before_the_rtu_establishes),
		cmocka_unit_test(a_rep_that_nobody_answers_is_given_up),
		cmocka_unit_test(a_slow_server_holds_the_client_with_mra),
		cmocka_unit_test(mra_starts_the_count_of_retries_anew),
		cmocka_unit_test(a_slow_client_holds_the_server_with_mra),
		cmocka_unit_test(mra_is_sent_at_once_if_asked),
		cmocka_unit_test(two_ends_with_the_same_ids_connect_to_each_other),
		cmocka_unit_test(a_machine_connects_to_itself),
		cmocka_unit_test(a_rep_for_nobody_is_rejected_with_6),
		cmocka_unit_test(a_rep_with_the_id_of_another_connection_is_rejected),
		cmocka_unit_test(a_client_rejects_the_rep),
		cmocka_unit_test(a_refused_rep_is_remembered_as_long_as_it_may_come),
		cmocka_unit_test(a_refusal_after_mra_is_remembered_as_long),
		cmocka_unit_test(a_late_rej_of_the_req_ends_nothing),
		cmocka_unit_test(a_req_that_cannot_be_is_rejected_with_why),
		cmocka_unit_test(calls_in_the_wrong_state_or_with_wrong_arguments_fail),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
