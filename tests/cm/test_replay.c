/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The Linux kernel's captured REQs are given to our state machine. A program answers as the
 * captured one did. Our REPs may differ from the kernel's only in our id; the QP number, PSN and
 * GUID are set to the captured values. The same for RTU, DREQ, DREP, SIDR_REP and REJ. Argument:
 * the folder of captures.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>

#include "base/mem.h"
#include "rig.h"
#include "golden.h"

static const char *folder;

/* Offset of our id (the local id) in our messages. */
#define ID_AT 24

/* The state machine in the role of the captured server. */
struct server {
	struct end e;
	uint64_t now;
	struct cm_conn *conn;
	struct cm_listener *l;
};

static void open_server(struct server *s, const struct golden_mad *req,
			const struct golden_mad *answer)
{
	struct cm_config c = {.max_conns = 8};
	struct cm_msg m;

	s->now = req->time_ns;
	assert_int_equal(cm_parse(answer->mad, CM_MAD_LEN, &m), CM_OK);
	c.guid = m.attr == CM_REP ? m.rep.ca_guid : 1;
	end_open(&s->e, 1, &s->now, &c);
	s->e.addr = req->dst;
}

static void golden_in(struct server *s, const struct golden_mad *g)
{
	cm_input(s->e.cm, s->now, &g->src, &g->dst, g->mad, CM_MAD_LEN);
}

/* Returns the captured answer of that kind: same transaction, sent by the other end. */
static const struct golden_mad *answer_to(const struct golden_mad *g, size_t n,
					  const struct golden_mad *to, enum cm_attr attr)
{
	for (size_t i = 0; i < n; i++) {
		if (g[i].mad[17] == attr && memcmp(g[i].mad + 8, to->mad + 8, 8) == 0 &&
		    pkt_addr_eq(&g[i].src, &to->dst))
			return &g[i];
	}
	return NULL;
}

static bool same_but_id(const struct sent *s, const struct golden_mad *g)
{
	uint8_t ours[CM_MAD_LEN];

	memcpy(ours, s->mad, CM_MAD_LEN);
	memcpy(ours + ID_AT, g->mad + ID_AT, 4);
	assert_true(pkt_addr_eq(&s->src, &g->src) && pkt_addr_eq(&s->dst, &g->dst));
	return memcmp(ours, g->mad, CM_MAD_LEN) == 0;
}

/*
 * A REQ must cause the kernel's REP. The RTU with our id in it establishes. Returns whether there
 * was a REP to compare with.
 */
static bool replay_req(const struct golden_mad *g, size_t n, const struct golden_mad *req)
{
	const struct golden_mad *rep = answer_to(g, n, req, CM_REP), *rtu = NULL;
	struct cm_accept acc = {0};
	struct golden_mad ours;
	const struct sent *s;
	struct cm_msg m, r;
	struct server srv;
	uint32_t id;

	if (!rep)
		return false;
	open_server(&srv, req, rep);
	assert_int_equal(cm_parse(req->mad, CM_MAD_LEN, &m), CM_OK);
	assert_int_equal(cm_parse(rep->mad, CM_MAD_LEN, &r), CM_OK);
	assert_int_equal(
		cm_listen(srv.e.cm, m.req.service_id, NULL, CM_LISTEN_CONN, 0, NULL, &srv.l), 0);
	golden_in(&srv, req);
	srv.conn = end_told(&srv.e, CM_EV_REQUEST)->conn;
	assert_true(srv.e.last.e.has_ip && pkt_addr_eq(&srv.e.last.e.ip.src, &req->src));
	acc = (struct cm_accept){r.rep.qpn,
				 r.rep.psn,
				 r.rep.responder_resources,
				 r.rep.initiator_depth,
				 r.rep.flow_control,
				 r.rep.rnr_retry,
				 r.rep.srq,
				 {r.rep.vendor_id, r.attr_mod},
				 r.data,
				 CM_REP_DATA};
	assert_int_equal(cm_accept(srv.conn, srv.now, &acc), 0);
	s = end_sent(&srv.e, CM_REP);
	assert_true(same_but_id(s, rep));
	id = s->m.local_id;

	for (size_t i = 0; i < n && !rtu; i++)
		rtu = g[i].mad[17] == CM_RTU && memcmp(g[i].mad + 28, rep->mad + 24, 4) == 0 ? &g[i]
											     : NULL;
	assert_non_null(rtu);
	ours = *rtu;
	for (int i = 0; i < 4; i++)
		ours.mad[28 + i] = (uint8_t)(id >> (24 - 8 * i));
	golden_in(&srv, &ours);
	end_told(&srv.e, CM_EV_ESTABLISHED);
	end_close(&srv.e);
	return true;
}

static void reps_are_the_kernels(void **state)
{
	struct golden_mad g[64];
	unsigned compared = 0;

	for (const char *const *name = golden_captures; *name; name++) {
		size_t n = golden_load(folder, *name, g, ARRAY_SIZE(g));

		for (size_t i = 0; i < n; i++) {
			if (g[i].mad[17] == CM_REQ)
				compared += replay_req(g, n, &g[i]);
		}
	}
	assert_int_equal(compared, 24);
}

/* Without a listener, the answer has the same bytes as the Linux kernel's. */
static void rejs_for_nobody_are_the_kernels(void **state)
{
	static const char *const names[] = {"cm_reject.pcap", "cm_reject_ipv6.pcap"};
	struct golden_mad g[64];

	for (int i = 0; i < 2; i++) {
		struct server srv;
		const struct sent *s;

		assert_int_equal(golden_load(folder, names[i], g, ARRAY_SIZE(g)), 2);
		open_server(&srv, &g[0], &g[1]);
		golden_in(&srv, &g[0]);
		s = end_sent(&srv.e, CM_REJ);
		assert_memory_equal(s->mad, g[1].mad, CM_MAD_LEN);
		end_close(&srv.e);
	}
}

static void sidr_reps_are_the_kernels(void **state)
{
	static const char *const names[] = {"cm_udaddy.pcap", "cm_udaddy_ipv6.pcap"};
	struct golden_mad g[64];

	for (int i = 0; i < 2; i++) {
		struct server srv;
		struct cm_msg m;

		assert_int_equal(golden_load(folder, names[i], g, ARRAY_SIZE(g)), 2);
		open_server(&srv, &g[0], &g[1]);
		assert_int_equal(cm_parse(g[1].mad, CM_MAD_LEN, &m), CM_OK);
		assert_int_equal(cm_listen(srv.e.cm, m.sidr_rep.service_id, NULL, CM_LISTEN_UD, 0,
					   NULL, &srv.l),
				 0);
		golden_in(&srv, &g[0]);
		srv.conn = end_told(&srv.e, CM_EV_SIDR_REQUEST)->conn;
		assert_int_equal(cm_sidr_reply(srv.conn, srv.now, CM_SIDR_OK, m.sidr_rep.qpn,
					       m.sidr_rep.qkey,
					       (struct cm_ece){m.sidr_rep.vendor_id, m.attr_mod},
					       m.data, CM_SIDR_REP_DATA),
				 0);
		assert_memory_equal(end_sent(&srv.e, CM_SIDR_REP)->mad, g[1].mad, CM_MAD_LEN);
		end_close(&srv.e);
	}
}

/*
 * Our REQ for the kernel's path and attributes equals the kernel's REQ, except for our id, which is
 * in the transaction id too.
 */
static void a_req_is_the_kernels(void **state)
{
	struct golden_mad g[64];
	const struct sent *s;
	struct cm_connect c;
	struct server cli;
	struct cm_msg m;
	struct cm_ip ip;
	uint8_t ours[CM_MAD_LEN];

	golden_load(folder, "cm_connect_disc.pcap", g, ARRAY_SIZE(g));
	assert_int_equal(cm_parse(g[0].mad, CM_MAD_LEN, &m), CM_OK);
	assert_int_equal(cm_ip_parse(m.data, &ip), 0);
	cli.now = 0;
	end_open(&cli.e, 1, &cli.now, &(struct cm_config){.max_conns = 8, .guid = m.req.ca_guid});
	cli.e.addr = g[0].src;
	c = (struct cm_connect){
		.service_id = m.req.service_id,
		.src = g[0].src,
		.dst = g[0].dst,
		.flow_label = m.req.primary.flow_label,
		.hop_limit = 64,
		.mtu = 5,
		.ack_timeout = 19,
		.response_timeout = 20,
		.max_retries = 15,
		.qpn = m.req.qpn,
		.psn = m.req.psn,
		.responder_resources = 16,
		.initiator_depth = 16,
		.retry_count = 3,
		.rnr_retry = 7,
		.ip = &ip,
		.data = "vtest",
		.data_len = 5,
	};
	assert_int_equal(cm_connect(cli.e.cm, cli.now, &c, NULL, &cli.conn), 0);
	s = end_sent(&cli.e, CM_REQ);
	memcpy(ours, s->mad, CM_MAD_LEN);
	memcpy(ours + 8, g[0].mad + 8, 8);
	memcpy(ours + ID_AT, g[0].mad + ID_AT, 4);
	assert_memory_equal(ours, g[0].mad, CM_MAD_LEN);
	end_close(&cli.e);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(reps_are_the_kernels),
		cmocka_unit_test(rejs_for_nobody_are_the_kernels),
		cmocka_unit_test(sidr_reps_are_the_kernels),
		cmocka_unit_test(a_req_is_the_kernels),
	};

	if (argc != 2)
		return 2;
	folder = argv[1];
	return cmocka_run_group_tests(tests, NULL, NULL);
}
