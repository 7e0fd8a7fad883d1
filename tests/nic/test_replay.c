/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Replay of captures of the Linux kernel (tests/golden). The requests of one side of the capture
 * are sent to a Roost NIC with its numbers in place of the original ones (QP, PSN, addresses,
 * keys). The NIC must answer as the Linux kernel did. argv[1] is the folder.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#include "../common/capture.h"
#include "peer.h"

#define MAX_QPS 4
#define PSN	0x123456u /* of our NIC's requester */

static const char *folder;
static struct peer P, *const p = &P;
static struct shared_rq Q;

/* One QP of the capture that takes requests, and ours in its place. */
struct twin {
	uint32_t qpn, first; /* theirs, with the PSN of the first request to it */
	struct ep e;
};

struct replay {
	uint8_t *data;
	struct pcap_reader reader;
	struct twin twin[MAX_QPS];
	unsigned twins;
	uint32_t their_key, our_key; /* of the memory that is written to */
	uint64_t their_va;
	struct pkt_addr server; /* theirs; requests to it are played */
};

static void load(struct replay *r, const char *name)
{
	memset(r, 0, sizeof(*r));
	r->data = capture_load(folder, name, &r->reader);
	assert_int_equal(pkt_addr_parse("10.77.0.1", &r->server), 0);
}

/* Takes the next packet of a reliable connection. *to_server is its direction. */
static bool next(struct replay *r, struct pkt_view *v, bool *to_server)
{
	struct pcap_record rec;

	while (capture_next(&r->reader, &rec, v)) {
		if (v->op->service != PKT_RC)
			continue;
		*to_server = pkt_addr_eq(&rec.dst, &r->server);
		return true;
	}
	return false;
}

static struct twin *twin_of(struct replay *r, const struct pkt_view *v)
{
	struct twin *t;
	struct ep_params ep = {.mtu = 1024, .psn = PSN, .srq = &Q};
	struct nic_qp_attr a;

	for (unsigned i = 0; i < r->twins; i++)
		if (r->twin[i].qpn == v->dqpn)
			return &r->twin[i];
	assert_true(r->twins < MAX_QPS);
	t = &r->twin[r->twins++];
	t->qpn = v->dqpn;
	t->first = v->psn;
	ep_init(&t->e, &p->w, 0, &ep);
	ep_to_init(&t->e);
	peer_attr(p, &a);
	a.rq_psn = t->first;
	ep_to_rtr(&t->e, &a);
	ep_to_rts(&t->e, &a);
	return t;
}

static void play(struct replay *r, struct twin *t, const struct pkt_view *v)
{
	struct pkt_make m = {
		.opcode = v->opcode,
		.ackreq = v->ackreq,
		.solicited = v->solicited,
		.psn = v->psn,
		.va = v->va - r->their_va + (uintptr_t)t->e.mem,
		.rkey = v->rkey == r->their_key ? r->our_key : v->rkey,
		.inv_rkey = v->inv_rkey == r->their_key ? r->our_key : v->inv_rkey,
		.dmalen = v->dmalen,
		.imm = v->imm,
		.payload = v->payload,
		.len = v->payload_len,
	};
	uint8_t out[PKT_MAX_LEN];
	uint32_t len = pkt_make_raw(out, &m, nic_qp_num(t->e.qp));

	pkt_seal(out, len, &p->addr, &p->nic_addr);
	peer_send_raw(p, NULL, out, len);
}

/* Our answers equal those of the capture. */
static void compare(const struct pkt_view *theirs)
{
	const struct got *g = peer_get(p, MSEC);

	assert_non_null(g);
	assert_int_equal(g->v.opcode, theirs->opcode);
	assert_int_equal(g->v.psn, theirs->psn);
	assert_int_equal(g->v.syndrome, theirs->syndrome);
	assert_int_equal(g->v.msn, theirs->msn);
}

static void open_nic(void)
{
	peer_open_init(p, NULL, 0);
	shared_rq_init(&Q, p->w.nic[0], 64);
	for (unsigned i = 0; i < 32; i++) {
		struct roost_sge sge = shared_rq_sge(&Q, 1024 * i, 1024);

		shared_rq_post(&Q, i, &sge, 1);
	}
}

static void close_nic(struct replay *r)
{
	for (unsigned i = 0; i < r->twins; i++)
		ep_fini(&r->twin[i].e);
	assert_int_equal(shared_rq_fini(&Q), 0);
	peer_close(p);
	free(r->data);
}

/*
 * SENDs to several QPs that share their receives: every byte goes to the next receive, and every
 * ACK equals that of the capture.
 */
static void shared_receives(const char *name, const char *server, unsigned qps, unsigned sends)
{
	struct replay r;
	struct pkt_view v;
	unsigned answers = 0, messages = 0;
	bool to_server;

	load(&r, name);
	assert_int_equal(pkt_addr_parse(server, &r.server), 0);
	open_nic();
	while (next(&r, &v, &to_server)) {
		if (to_server && !(v.op->flags & PKT_RESPONSE)) {
			struct twin *t = twin_of(&r, &v);
			struct roost_cqe c;

			play(&r, t, &v);
			assert_true(ep_poll_recv(&t->e, &c));
			assert_int_equal(c.status, NIC_WC_SUCCESS);
			assert_int_equal(c.wr_id, messages);
			assert_int_equal(c.byte_len, v.payload_len);
			assert_memory_equal(Q.mem + 1024 * messages, v.payload, v.payload_len);
			messages++;
		} else if (!to_server && v.op->flags & PKT_RESPONSE) {
			compare(&v);
			answers++;
		}
	}
	assert_int_equal(messages, sends);
	assert_int_equal(answers, sends);
	assert_int_equal(r.twins, qps);
	close_nic(&r);
}

static void send_srq(void **state)
{
	shared_receives("send_srq.pcap", "10.77.0.1", 1, 10);
}

static void srq_pingpong(void **state)
{
	shared_receives("srq_pingpong.pcap", "10.77.0.1", 2, 5);
	shared_receives("srq_pingpong.pcap", "10.77.0.2", 2, 5);
}

/* A WRITE through a window, SEND with invalidate, and the same WRITE refused. */
static void vt_inv(void **state)
{
	static const uint8_t requests[] = {PKT_WRITE_ONLY, PKT_SEND_ONLY_INV, PKT_WRITE_ONLY};
	struct replay r;
	struct pkt_view v;
	unsigned asked = 0, answered = 0;
	uint32_t region;
	bool to_server;

	load(&r, "vt_inv.pcap");
	open_nic();
	while (next(&r, &v, &to_server)) {
		if (to_server && !(v.op->flags & PKT_RESPONSE)) {
			struct twin *t = twin_of(&r, &v);
			struct roost_cqe c;

			if (!asked) {
				struct nic_mr_attr m = {.pd = t->e.pd,
							.addr = t->e.mem,
							.len = 65536,
							.iova = (uintptr_t)t->e.mem,
							.access = NIC_ACCESS_LOCAL_WRITE |
								  NIC_ACCESS_MW_BIND};
				uint32_t window;

				r.their_key = v.rkey;
				r.their_va = v.va;
				assert_int_equal(nic_mr_register(t->e.nic, &m, &region), 0);
				assert_int_equal(nic_mw_alloc(t->e.nic, t->e.pd, 2, 0, &window), 0);
				r.our_key = window ^ 1;
				ep_post(&t->e,
					&(struct wr){
						.op = ROOST_OP_BIND_MW,
						.rkey = window,
						.imm = r.our_key,
						.raddr = (uintptr_t)t->e.mem,
						.swap_add = 65536,
						.compare = ROOST_BIND(
							region, NIC_ACCESS_REMOTE_WRITE |
									NIC_ACCESS_REMOTE_READ)});
				assert_true(ep_wait_send(&t->e, &c, SEC));
				assert_int_equal(c.status, NIC_WC_SUCCESS);
			}
			assert_int_equal(v.opcode, requests[asked]);
			play(&r, t, &v);
			if (asked == 0)
				assert_memory_equal(t->e.mem, v.payload, v.payload_len);
			if (asked == 1) {
				assert_true(ep_poll_recv(&t->e, &c));
				assert_int_equal(c.flags, NIC_WC_WITH_INV);
				assert_int_equal(c.imm, r.our_key);
				assert_int_equal(c.byte_len, 24);
			}
			asked++;
		} else if (!to_server && v.op->flags & PKT_RESPONSE) {
			compare(&v);
			answered++;
		}
	}
	assert_int_equal(asked, 3);
	assert_int_equal(answered, 3);
	assert_int_equal(nic_qp_state(r.twin[0].e.qp), NIC_QPS_ERR);
	assert_int_equal(nic_mw_dealloc(p->w.nic[0], r.our_key), 0);
	assert_int_equal(nic_mr_deregister(p->w.nic[0], region), 0);
	close_nic(&r);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(send_srq),
		cmocka_unit_test(srq_pingpong),
		cmocka_unit_test(vt_inv),
	};

	if (argc != 2) {
		fprintf(stderr, "usage: %s FOLDER-OF-CAPTURES\n", argv[0]);
		return 2;
	}
	folder = argv[1];
	return cmocka_run_group_tests(tests, NULL, NULL);
}
