/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Packets that are marked "congestion experienced". A NIC processes them like other packets, and
 * sends CNPs to their sender, like DCQCN's notification point (Zhu et al., SIGCOMM 2015, 3.1; IBA
 * A17.9.3).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "peer.h"
#include "rule.h"

#define MTU   256
#define EVERY 50000 /* ns between CNPs of a flow */

static struct peer P, *const p = &P;

static void marks(bool on)
{
	struct sim_params sp = {.ce = on};

	sim_set_params(p->w.sim, &sp);
}

static void start_as(uint32_t s, enum nic_qp_type type)
{
	struct ep_params ep = {.mtu = MTU, .type = type};
	struct roost_sge sge;

	peer_open(p, &ep, s);
	sge = ep_sge(&p->e, 32768, 1024);
	for (uint64_t i = 0; i < 20; i++)
		ep_post_recv(&p->e, i, &sge, 1);
	marks(true);
}

static void start(uint32_t s)
{
	start_as(s, NIC_QPT_RC);
}

static void send_one(uint32_t psn)
{
	struct pkt_make m = {.opcode = PKT_SEND_ONLY, .psn = psn, .ackreq = true, .len = 40};

	peer_send(p, &m);
}

static void expect_cnp(void)
{
	expect(p, PKT_CNP, 0);
}

/*
 * A17.9.3: op-code 0x81, BECN, the peer's QP, PSN 0, 16 reserved bytes of 0. The 32 bytes of a
 * ConnectX in NVIDIA's example are these, but for QP and ICRC.
 */
RULE(cnp_format)
{
	static const uint8_t head[12] =
		{0x81, 0, 0xff, 0xff, 0x40, PEER_QPN >> 16, PEER_QPN >> 8 & 0xff, PEER_QPN & 0xff,
		 0,    0, 0,	0},
			     zero[16] = {0};
	const struct got *g;

	start(s);
	send_one(s);
	g = expect(p, PKT_CNP, 0);
	assert_int_equal(g->len, 12 + 16 + PKT_ICRC_LEN);
	assert_memory_equal(g->data, head, sizeof(head));
	assert_memory_equal(g->data + 12, zero, sizeof(zero));
	expect_ack(p, PKT_AETH_ACK, s);
	assert_int_equal(peer_counters(p).np_cnp_sent, 1);
	peer_close(p);
}

/* Marked requests are executed and answered as any others. */
RULE(marked_requests)
{
	struct pkt_make write = {.opcode = PKT_WRITE_ONLY,
				 .psn = s + 1,
				 .ackreq = true,
				 .dmalen = 100,
				 .len = 100},
			read = {.opcode = PKT_READ_REQUEST, .psn = s + 2, .dmalen = 600},
			add = {.opcode = PKT_FETCH_ADD, .psn = s + 5, .swap_add = 1};

	start(s);
	write.va = read.va = add.va = (uintptr_t)p->e.mem;
	write.rkey = read.rkey = add.rkey = p->e.key;
	send_one(s);
	expect_cnp();
	expect_ack(p, PKT_AETH_ACK, s);
	expect_recv(p, 0, NIC_WC_SUCCESS, 40);
	peer_send(p, &write);
	expect_ack(p, PKT_AETH_ACK, s + 1);
	assert_int_equal(p->e.mem[99], pkt_pattern(99));
	peer_send(p, &read);
	expect(p, PKT_READ_RESP_FIRST, s + 2);
	expect(p, PKT_READ_RESP_MIDDLE, s + 3);
	expect(p, PKT_READ_RESP_LAST, s + 4);
	peer_send(p, &add);
	expect(p, PKT_ATOMIC_ACK, s + 5);
	assert_int_equal(peer_counters(p).np_ecn_marked_roce_packets, 4);
	assert_int_equal(peer_counters(p).np_cnp_sent, 1);
	peer_close(p);
}

/*
 * At most one CNP in 50 us for a connection, for any number of marked packets; duplicates and
 * packets out of order count as well.
 */
RULE(one_cnp_in_50_us)
{
	uint64_t first;

	start(s);
	first = world_now(&p->w);
	send_one(s);
	expect_cnp();
	expect_ack(p, PKT_AETH_ACK, s);
	for (uint32_t i = 1; i < 5; i++) {
		send_one(s + i);
		expect_ack(p, PKT_AETH_ACK, s + i);
	}
	/* The last moment at which it is too early, and the first at which it is not. */
	peer_run(p, first + EVERY - 1 - world_now(&p->w));
	assert_int_equal(world_now(&p->w), first + EVERY - 1);
	send_one(s); /* again */
	expect_ack(p, PKT_AETH_ACK, s + 4);
	assert_int_equal(peer_counters(p).np_cnp_sent, 1);
	peer_run(p, EVERY);
	send_one(s + 9);
	expect_cnp();
	expect_ack(p, PKT_NAK_PSN_SEQ, s + 5);
	peer_run(p, EVERY);
	send_one(s + 9);
	expect_cnp();
	expect_quiet(p, MSEC);
	assert_int_equal(peer_counters(p).np_cnp_sent, 3);
	/* Packets without marks cause no CNP. */
	marks(false);
	send_one(s + 5);
	expect_ack(p, PKT_AETH_ACK, s + 5);
	expect_quiet(p, MSEC);
	peer_close(p);
}

/* READ responses are data of the peer's, too; an ACK or a CNP is not. */
RULE(what_is_answered_by_cnp)
{
	struct pkt_make resp = {
		.opcode = PKT_READ_RESP_ONLY, .psn = s, .syndrome = PKT_AETH_ACK, .len = 64};
	struct ep_params ep = {.mtu = MTU, .psn = s};

	peer_open(p, &ep, s);
	marks(true);
	peer_post(p, ROOST_OP_READ, 1, 0, 64);
	expect(p, PKT_READ_REQUEST, s);
	peer_send(p, &(struct pkt_make){.opcode = PKT_CNP});
	expect_quiet(p, PEER_SETTLE);
	assert_int_equal(peer_counters(p).rp_cnp_handled, 1);
	peer_send(p, &resp);
	expect_cnp();
	expect_done(p, 1, NIC_WC_SUCCESS);
	peer_run(p, EVERY);
	peer_post(p, ROOST_OP_WRITE, 2, 0, 64);
	expect(p, PKT_WRITE_ONLY, s + 1);
	peer_ack(p, PKT_AETH_ACK, s + 1, 2);
	expect_done(p, 2, NIC_WC_SUCCESS);
	expect_quiet(p, PEER_SETTLE);
	assert_int_equal(peer_counters(p).np_ecn_marked_roce_packets, 3);
	assert_int_equal(peer_counters(p).np_cnp_sent, 1);
	peer_close(p);
}

/* Unreliable connections have a rate, so they get CNPs. A datagram's QP has many peers: no CNP. */
RULE(cnp_by_service)
{
	struct pkt_make m = {.opcode = PKT_UC + PKT_SEND_ONLY, .psn = s, .len = 40};

	start_as(s, NIC_QPT_UC);
	peer_send(p, &m);
	expect_cnp();
	expect_recv(p, 0, NIC_WC_SUCCESS, 40);
	peer_close(p);
	start_as(s, NIC_QPT_UD);
	m.opcode = PKT_UD + PKT_SEND_ONLY;
	peer_send(p, &m);
	expect_quiet(p, MSEC);
	expect_recv(p, 0, NIC_WC_SUCCESS, 80);
	assert_int_equal(peer_counters(p).np_ecn_marked_roce_packets, 1);
	peer_close(p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(cnp_format),	    cmocka_unit_test(marked_requests),
		cmocka_unit_test(one_cnp_in_50_us), cmocka_unit_test(what_is_answered_by_cnp),
		cmocka_unit_test(cnp_by_service),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
