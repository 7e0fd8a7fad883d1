/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Packets that are malformed, or not from the QP's peer: they change nothing, are not answered, and
 * are counted by cause. Each test makes a valid packet and changes one field.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "nic/counters.h"
#include "peer.h"

#define MTU 256
#define S   0xffffff

static struct peer P, *const p = &P;
static uint8_t buf[PKT_MAX_LEN + 64];
static uint32_t buf_len;

static void start(void)
{
	peer_open(p, &(struct ep_params){.mtu = MTU, .psn = 100}, S);
	for (unsigned i = 0; i < 4; i++) {
		struct roost_sge sge = ep_sge(&p->e, 32768, 4096);

		ep_post_recv(&p->e, 100 + i, &sge, 1);
	}
	/* Requests are outstanding, so that responses could do harm. */
	peer_post(p, ROOST_OP_WRITE, 1, 0, 8);
	expect(p, PKT_WRITE_ONLY, 100);
}

static void make(const struct pkt_make *m)
{
	buf_len = pkt_make_raw(buf, m, nic_qp_num(p->e.qp));
}

static void make_write(uint32_t psn)
{
	make(&(struct pkt_make){.opcode = PKT_WRITE_ONLY,
				.psn = psn,
				.ackreq = true,
				.va = (uintptr_t)p->e.mem,
				.rkey = p->e.key,
				.dmalen = 10,
				.len = 10});
}

static void seal_and_send(const struct pkt_addr *src)
{
	pkt_seal(buf, buf_len, src ? src : &p->addr, &p->nic_addr);
	peer_send_raw(p, src, buf, buf_len);
}

/* Checks that the packet was dropped for this cause, and changed nothing. */
static void dropped(size_t counter)
{
	static const size_t causes[] = {
		offsetof(struct nic_counters, rx_short),
		offsetof(struct nic_counters, rx_bad_opcode),
		offsetof(struct nic_counters, rx_bad_version),
		offsetof(struct nic_counters, rx_bad_pad),
		offsetof(struct nic_counters, rx_icrc_encapsulated),
		offsetof(struct nic_counters, rx_bad_pkey),
		offsetof(struct nic_counters, rx_bad_qpn),
		offsetof(struct nic_counters, rx_bad_source),
		offsetof(struct nic_counters, rx_bad_service),
	};
	struct nic_counters c = peer_counters(p);

	for (size_t i = 0; i < sizeof(causes) / sizeof(causes[0]); i++)
		assert_int_equal(*(uint64_t *)((char *)&c + causes[i]), causes[i] == counter);
	assert_int_equal(c.rcvd_pkts, 1);
	assert_int_equal(c.duplicate_request + c.out_of_sequence + c.rx_write_requests +
				 c.rx_send_requests,
			 0);
	expect_quiet(p, MSEC / 2);
	assert_true(p->e.mem[0] == 0 && !memcmp(p->e.mem, p->e.mem + 1, p->e.mem_len - 1));
	assert_int_equal(p->e.events, 0);
	assert_int_equal(nic_qp_state(p->e.qp), NIC_QPS_RTS);
	assert_false(ep_poll_send(&p->e, &(struct roost_cqe){0}));
	assert_false(ep_poll_recv(&p->e, &(struct roost_cqe){0}));
	/* The connection continues undisturbed. */
	make_write(S);
	seal_and_send(NULL);
	expect_ack(p, PKT_AETH_ACK, S);
	assert_int_equal(p->e.mem[0], pkt_pattern(0));
	peer_ack(p, PKT_AETH_ACK, 100, 1);
	expect_done(p, 1, NIC_WC_SUCCESS);
	peer_close(p);
}

#define CAUSE(name) offsetof(struct nic_counters, name)

static void wrong_icrc(void **state)
{
	for (uint32_t bit = 0; bit < 32; bit++) {
		start();
		make_write(S);
		pkt_seal(buf, buf_len, &p->addr, &p->nic_addr);
		buf[buf_len - 4 + bit / 8] ^= (uint8_t)(1u << (bit & 7));
		peer_send_raw(p, NULL, buf, buf_len);
		dropped(CAUSE(rx_icrc_encapsulated));
	}
	/* Payload changed after it was sealed; and an ICRC made for other addresses. */
	start();
	make_write(S);
	pkt_seal(buf, buf_len, &p->addr, &p->nic_addr);
	buf[buf_len - 10] ^= 1;
	peer_send_raw(p, NULL, buf, buf_len);
	dropped(CAUSE(rx_icrc_encapsulated));
	start();
	make_write(S);
	pkt_seal(buf, buf_len, &p->nic_addr, &p->addr);
	buf[buf_len - 4] ^= 1;
	peer_send_raw(p, NULL, buf, buf_len);
	dropped(CAUSE(rx_icrc_encapsulated));
}

static void wrong_source(void **state)
{
	static const char *const from[] = {"10.9.9.8", "10.0.0.1", "::1", "fe80::1", "0.0.0.0"};

	for (unsigned i = 0; i < 5; i++) {
		struct pkt_addr a;

		start();
		assert_int_equal(pkt_addr_parse(from[i], &a), 0);
		make_write(S);
		/* The ICRC of the forged packet is right for its address. */
		seal_and_send(&a);
		dropped(CAUSE(rx_bad_source));
	}
	/* Responses from another address. */
	for (uint8_t syndrome = 0; syndrome < 0x80; syndrome = (uint8_t)(syndrome + 0x1f)) {
		struct pkt_addr a;

		start();
		assert_int_equal(pkt_addr_parse("10.9.9.8", &a), 0);
		make(&(struct pkt_make){.opcode = PKT_ACK, .psn = 100, .syndrome = syndrome});
		seal_and_send(&a);
		dropped(CAUSE(rx_bad_source));
	}
}

/* QP numbers that differ from ours in one part: the generation, the index, or the slot. */
static void guessed_qpn(void **state)
{
	for (uint32_t bit = 0; bit < 24; bit++) {
		start();
		make_write(S);
		pkt_put24(((struct pkt_bth *)buf)->dqpn, nic_qp_num(p->e.qp) ^ 1u << bit);
		seal_and_send(NULL);
		dropped(CAUSE(rx_bad_qpn));
	}
	/* There is no QP 0, and QP 1 accepts only datagrams. */
	for (uint32_t qpn = 0; qpn < 2; qpn++) {
		start();
		make_write(S);
		pkt_put24(((struct pkt_bth *)buf)->dqpn, qpn);
		seal_and_send(NULL);
		dropped(qpn ? CAUSE(rx_bad_service) : CAUSE(rx_bad_qpn));
	}
}

static void wrong_pkey(void **state)
{
	static const uint16_t keys[] = {0, 0x7ffe, 0x8000, 0xfffe, 0x1234};

	for (unsigned i = 0; i < 5; i++) {
		start();
		make_write(S);
		((struct pkt_bth *)buf)->pkey = htobe16(keys[i]);
		seal_and_send(NULL);
		dropped(CAUSE(rx_bad_pkey));
	}
}

static void wrong_version(void **state)
{
	for (uint8_t v = 1; v < 16; v++) {
		start();
		make_write(S);
		buf[1] |= v;
		seal_and_send(NULL);
		dropped(CAUSE(rx_bad_version));
	}
}

/*
 * Op-codes of other services, and reserved ones there. The responder refuses reserved op-codes of
 * RC: test_refuse.c.
 */
static void opcodes(void **state)
{
	for (unsigned op = 0; op < 256; op++) {
		const struct pkt_op *o = &pkt_ops[op];

		if ((op & PKT_SERVICE_MASK) == PKT_RC || op == PKT_CNP)
			continue;
		start();
		if (o->kind == PKT_KIND_NONE) {
			make_write(S);
			buf[0] = (uint8_t)op;
		} else {
			make(&(struct pkt_make){.opcode = (uint8_t)op,
						.psn = S,
						.va = (uintptr_t)p->e.mem,
						.rkey = p->e.key,
						.dmalen = 8,
						.len = 8});
		}
		seal_and_send(NULL);
		if (o->kind == PKT_KIND_NONE)
			dropped(CAUSE(rx_bad_opcode));
		else
			dropped(CAUSE(rx_bad_service));
	}
}

static void wrong_pad(void **state)
{
	/* More padding than payload. */
	start();
	make(&(struct pkt_make){.opcode = PKT_SEND_ONLY, .psn = S});
	buf[1] |= 3 << PKT_BTH_PAD_SHIFT;
	seal_and_send(NULL);
	dropped(CAUSE(rx_bad_pad));
	/* Padding on a packet that has no payload. */
	start();
	make(&(struct pkt_make){.opcode = PKT_READ_REQUEST, .psn = S, .dmalen = 8});
	buf[1] |= 1 << PKT_BTH_PAD_SHIFT;
	seal_and_send(NULL);
	dropped(CAUSE(rx_bad_pad));
	/*
	 * Payload in a response that has none. The responder refuses it in a request
	 * (test_refuse.c).
	 */
	for (unsigned op = 0; op < 256; op++) {
		if (pkt_ops[op].service != PKT_RC ||
		    pkt_ops[op].flags & (PKT_PAYLOAD | PKT_REQUEST) || !pkt_ops[op].kind)
			continue;
		start();
		make(&(struct pkt_make){.opcode = (uint8_t)op, .psn = S});
		buf_len += 4;
		seal_and_send(NULL);
		dropped(CAUSE(rx_bad_pad));
	}
}

/* Packets of all lengths below that of their headers. */
static void short_packets(void **state)
{
	for (unsigned op = 0; op < 256; op++) {
		if (pkt_ops[op].service != PKT_RC || !pkt_ops[op].kind)
			continue;
		for (uint32_t len = sizeof(struct pkt_bth); len < pkt_ops[op].hdr_len + 4u;
		     len += 4) {
			start();
			make(&(struct pkt_make){.opcode = (uint8_t)op, .psn = S});
			buf_len = len;
			if (len >= 16)
				seal_and_send(NULL);
			else
				peer_send_raw(p, NULL, buf, len);
			dropped(CAUSE(rx_short));
		}
	}
}

/*
 * FECN, BECN and the reserved bits beside them are not covered by the ICRC, and a switch may set
 * them. They do not cause a drop.
 */
static void reserved_byte(void **state)
{
	start();
	make_write(S);
	pkt_seal(buf, buf_len, &p->addr, &p->nic_addr);
	((struct pkt_bth *)buf)->resv8a = 0xff;
	peer_send_raw(p, NULL, buf, buf_len);
	expect_ack(p, PKT_AETH_ACK, S);
	assert_int_equal(p->e.mem[9], pkt_pattern(9));
	/* MigReq is ignored: rxe sends 0, hardware 1. */
	make_write(S + 1);
	buf[1] &= (uint8_t)~PKT_BTH_MIGREQ;
	seal_and_send(NULL);
	expect_ack(p, PKT_AETH_ACK, S + 1);
	/* A limited member's P_Key matches our full one (10.9.3). */
	make_write(S + 2);
	((struct pkt_bth *)buf)->pkey = htobe16(0x7fff);
	seal_and_send(NULL);
	expect_ack(p, PKT_AETH_ACK, S + 2);
	/* The reserved bits beside AckReq are ignored too. */
	make_write(S + 3);
	((struct pkt_bth *)buf)->ackreq |= 0x7f;
	seal_and_send(NULL);
	expect_ack(p, PKT_AETH_ACK, S + 3);
	peer_close(p);
}

/* A congestion notification is counted and not answered. */
static void congestion_notification(void **state)
{
	start();
	make(&(struct pkt_make){.opcode = PKT_CNP});
	seal_and_send(NULL);
	assert_int_equal(peer_counters(p).rp_cnp_handled, 1);
	expect_quiet(p, MSEC / 2);
	assert_int_equal(nic_qp_state(p->e.qp), NIC_QPS_RTS);
	peer_close(p);
}

/* A packet for a destroyed QP is dropped, also when another QP has its index. */
static void late_for_a_dead_qp(void **state)
{
	struct peer *q = &P;
	uint32_t old;

	start();
	old = nic_qp_num(q->e.qp);
	make_write(S);
	pkt_seal(buf, buf_len, &q->addr, &q->nic_addr);
	nic_qp_destroy(q->e.nic, q->e.qp);
	peer_send_raw(q, NULL, buf, buf_len);
	assert_int_equal(peer_counters(q).rx_bad_qpn, 1);
	{
		struct nic_qp_init init = {.type = NIC_QPT_RC,
					   .pd = q->e.pd,
					   .send_cq = q->e.scq,
					   .recv_cq = q->e.rcq,
					   .ctx = &q->e};
		struct nic_qp_attr a;

		init.sq = (struct nic_queue_attr){q->e.sq, q->e.sq_wr, &q->e.sqi, q->e.p.depth,
						  q->e.sq_shift};
		/*
		 * Until a QP has the old one's index, the 14 bits above the last 4. It is random;
		 * each index has 8 numbers at least.
		 */
		for (unsigned i = 0;; i++) {
			assert_true(i < NUMBERS_GENERATIONS * NIC_MAX_QPS);
			assert_int_equal(nic_qp_create(q->e.nic, &init, &q->e.qp), 0);
			if (((nic_qp_num(q->e.qp) ^ old) >> 4) % NIC_MAX_QPS == 0)
				break;
			nic_qp_destroy(q->e.nic, q->e.qp);
		}
		assert_int_not_equal(nic_qp_num(q->e.qp), old);
		ep_to_init(&q->e);
		peer_attr(q, &a);
		ep_to_rtr(&q->e, &a);
	}
	peer_send_raw(q, NULL, buf, buf_len);
	assert_int_equal(peer_counters(q).rx_bad_qpn, 2);
	for (int i = 0; i < 10; i++)
		assert_int_equal(q->e.mem[i], 0);
	peer_close(q);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(wrong_icrc),	      cmocka_unit_test(wrong_source),
		cmocka_unit_test(guessed_qpn),	      cmocka_unit_test(wrong_pkey),
		cmocka_unit_test(wrong_version),      cmocka_unit_test(opcodes),
		cmocka_unit_test(wrong_pad),	      cmocka_unit_test(short_packets),
		cmocka_unit_test(reserved_byte),      cmocka_unit_test(congestion_notification),
		cmocka_unit_test(late_for_a_dead_qp),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
