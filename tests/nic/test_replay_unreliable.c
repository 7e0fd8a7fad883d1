/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Replay of the Linux kernel's UC and UD traffic (tests/golden) to a Roost NIC, with its numbers in
 * place of the original ones. Every message arrives whole and the NIC sends no answers, like the
 * Linux kernel. The same requests, posted here, must produce the same packets as the Linux
 * kernel's. argv[1] is the folder.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#include "../common/capture.h"
#include "peer.h"

#define GRH	 40
#define RECV	 65536 /* where receives are, 16 KiB each */
#define RECV_LEN 16384
#define RECVS	 32

static const char *folder;
static struct peer P, *const p = &P;

struct capture {
	uint8_t *data;
	struct pcap_reader reader;
	struct pkt_addr to; /* packets to it are played */
};

static void capture_open(struct capture *c, const char *name, const char *to)
{
	c->data = capture_load(folder, name, &c->reader);
	assert_int_equal(pkt_addr_parse(to, &c->to), 0);
}

/* Takes the next packet of the service to that side. Its payload is in the capture. */
static bool next_of(struct capture *c, uint8_t service, struct pkt_view *v)
{
	struct pcap_record rec;

	while (capture_next(&c->reader, &rec, v))
		if (v->op->service == service && pkt_addr_eq(&rec.dst, &c->to))
			return true;
	return false;
}

static void start(enum nic_qp_type type, uint32_t mtu, uint32_t psn, uint32_t qkey)
{
	struct ep_params ep = {.type = type,
			       .mtu = mtu,
			       .psn = psn,
			       .qkey = qkey,
			       .mem = RECV + RECVS * RECV_LEN,
			       .depth = RECVS};

	peer_open(p, &ep, psn);
	for (unsigned i = 0; i < RECVS; i++) {
		struct roost_sge sge = ep_sge(&p->e, RECV + i * RECV_LEN, RECV_LEN);

		ep_post_recv(&p->e, i, &sge, 1);
	}
}

/* Sets the destination: our QP, or the group of the original packet. */
static void play(const struct pkt_view *v, const struct pkt_addr *dst)
{
	uint8_t buf[PKT_MAX_LEN];
	uint32_t len;

	if (pkt_addr_is_group(dst)) {
		assert_int_equal(v->dqpn, NIC_MCAST_QPN);
		len = pkt_make_raw(buf,
				   &(struct pkt_make){.opcode = v->opcode,
						      .psn = v->psn,
						      .imm = v->imm,
						      .qkey = v->qkey,
						      .sqpn = v->sqpn,
						      .payload = v->payload,
						      .len = v->payload_len},
				   v->dqpn);
		pkt_seal(buf, len, &p->addr, dst);
		sim_inject(p->w.sim, &p->addr, dst, buf, len);
		peer_run(p, PEER_SETTLE);
		return;
	}
	peer_send(p, &(struct pkt_make){.opcode = v->opcode,
					.ackreq = v->ackreq,
					.solicited = v->solicited,
					.psn = v->psn,
					.va = (uintptr_t)p->e.mem,
					.rkey = p->e.key,
					.dmalen = v->dmalen,
					.imm = v->imm,
					.qkey = v->qkey,
					.sqpn = v->sqpn,
					.payload = v->payload,
					.len = v->payload_len});
}

static void finish(struct capture *c)
{
	expect_quiet(p, SEC);
	assert_int_equal(peer_counters(p).rx_uc_dropped + peer_counters(p).rx_ud_dropped, 0);
	assert_int_equal(peer_counters(p).out_of_sequence, 0);
	peer_close(p);
	free(c->data);
}

/* Collects the payload of the packets, sends them, and compares at the end of each message. */
static void connection(const char *name, uint32_t mtu, bool sends, unsigned messages)
{
	static uint8_t whole[RECV_LEN];
	uint32_t got = 0, first = 0;
	unsigned n = 0;
	struct capture c;
	struct pkt_view v;

	capture_open(&c, name, "10.77.0.1");
	while (next_of(&c, PKT_UC, &v)) {
		if (!n && !got) {
			first = v.psn;
			start(NIC_QPT_UC, mtu, first, 0);
		}
		play(&v, &p->nic_addr);
		memcpy(whole + got, v.payload, v.payload_len);
		got += v.payload_len;
		if (!(v.op->flags & PKT_LAST))
			continue;
		if (sends)
			expect_recv(p, n, NIC_WC_SUCCESS, got);
		assert_memory_equal(p->e.mem + (sends ? RECV + n * RECV_LEN : 0), whole, got);
		got = 0;
		n++;
	}
	assert_int_equal(n, messages);
	finish(&c);
	/* The other direction: the same messages give the same packets. */
	capture_open(&c, name, "10.77.0.1");
	start(NIC_QPT_UC, mtu, first, 0);
	memcpy(p->e.mem, whole, sizeof(whole));
	while (next_of(&c, PKT_UC, &v)) {
		const struct got *g;

		if (v.op->flags & PKT_FIRST)
			peer_post(p, sends ? ROOST_OP_SEND : ROOST_OP_WRITE, 1, 0,
				  sends ? 9000 : v.dmalen);
		g = expect(p, v.opcode, v.psn);
		assert_int_equal(g->v.payload_len, v.payload_len);
		assert_memory_equal(g->v.payload, v.payload, v.payload_len);
		if (v.op->flags & PKT_RETH)
			assert_int_equal(g->v.dmalen, v.dmalen);
		assert_int_equal(g->v.ackreq, v.ackreq);
	}
	finish(&c);
}

static void send_bw_uc(void **state)
{
	connection("send_bw_uc_4096.pcap", 4096, true, 6);
}

static void write_bw_uc(void **state)
{
	connection("write_bw_uc_1024.pcap", 1024, false, 6);
}

static void datagrams(const char *name, const char *to, unsigned messages)
{
	struct nic_ah_attr a = {.port = 1};
	struct capture c;
	struct pkt_view v;
	unsigned n = 0;
	bool group;
	uint32_t ah;

	capture_open(&c, name, to);
	group = pkt_addr_is_group(&c.to);
	while (next_of(&c, PKT_UD, &v)) {
		struct roost_cqe cqe;
		const struct got *g;

		if (!n) {
			start(NIC_QPT_UD, 0, v.psn, v.qkey);
			a.pd = p->e.pd;
			a.dgid = group ? c.to : p->addr;
			assert_int_equal(nic_ah_create(p->e.nic, &a, &ah), 0);
			if (group)
				assert_int_equal(nic_qp_attach(p->e.nic, p->e.qp, &c.to), 0);
		}
		play(&v, group ? &c.to : &p->nic_addr);
		assert_true(ep_poll_recv(&p->e, &cqe));
		assert_int_equal(cqe.status, NIC_WC_SUCCESS);
		assert_int_equal(cqe.byte_len, GRH + v.payload_len);
		assert_int_equal(cqe.src_qpn, v.sqpn);
		assert_memory_equal(p->e.mem + RECV + cqe.wr_id * RECV_LEN + GRH, v.payload,
				    v.payload_len);
		memcpy(p->e.mem, v.payload, v.payload_len);
		ep_post(&p->e,
			&(struct wr){.op = v.op->flags & PKT_IMM ? ROOST_OP_SEND_IMM
								 : ROOST_OP_SEND,
				     .sge = {ep_sge(&p->e, 0, v.payload_len)},
				     .num_sge = 1,
				     .raddr = ROOST_UD_ADDR(ah, group ? NIC_MCAST_QPN : PEER_QPN),
				     .rkey = v.qkey,
				     .imm = v.imm});
		g = expect(p, v.opcode, v.psn);
		assert_int_equal(g->v.qkey, v.qkey);
		if (v.op->flags & PKT_IMM)
			assert_int_equal(g->v.imm, v.imm);
		assert_int_equal(g->v.ackreq, v.ackreq);
		assert_int_equal(g->v.payload_len, v.payload_len);
		assert_memory_equal(g->v.payload, v.payload, v.payload_len);
		if (group) { /* a member gets its own datagrams, by a receive */
			assert_true(pkt_addr_eq(&g->dst, &c.to));
			assert_true(ep_wait_recv(&p->e, &cqe, SEC));
			assert_int_equal(cqe.src_qpn, nic_qp_num(p->e.qp));
		}
		n++;
	}
	assert_int_equal(n, messages);
	assert_int_equal(nic_ah_destroy(p->e.nic, ah), 0);
	finish(&c);
}

static void send_lat_ud(void **state)
{
	datagrams("send_lat_ud.pcap", "10.77.0.1", 10);
	datagrams("send_lat_ud.pcap", "10.77.0.2", 10);
}

static void send_lat_ud_v6(void **state)
{
	datagrams("send_lat_ud_v6.pcap", "fd77::1", 5);
	datagrams("send_lat_ud_v6.pcap", "fd77::2", 5);
}

/* To a group that our QP is attached to, and from it. */
static void mckey(void **state)
{
	datagrams("mckey_mcast.pcap", "239.77.0.9", 3);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(send_bw_uc),  cmocka_unit_test(write_bw_uc),
		cmocka_unit_test(send_lat_ud), cmocka_unit_test(send_lat_ud_v6),
		cmocka_unit_test(mckey),
	};

	if (argc != 2) {
		fprintf(stderr, "usage: %s FOLDER-OF-CAPTURES\n", argv[0]);
		return 2;
	}
	folder = argv[1];
	return cmocka_run_group_tests(tests, NULL, NULL);
}
