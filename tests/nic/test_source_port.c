/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * An attacker who forges packets of a connection must also know the source port of the peer. A
 * packet from another port is accepted only if its PSN can be the peer's; its port then becomes the
 * peer's port.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "nic/counters.h"
#include "peer.h"

#define MTU   256
#define S     0xffff00 /* the peer's first PSN */
#define OURS  100
#define REACH 8192

static struct peer P, *const p = &P;

static bool v6;

static void start(enum nic_qp_type type)
{
	struct ep_params params = {.type = type, .mtu = MTU, .psn = OURS};

	if (v6)
		peer_open_ipv6(p, &params, S);
	else
		peer_open(p, &params, S);
}

static void send_from(uint16_t sport, const struct pkt_make *m)
{
	uint8_t buf[PKT_MAX_LEN];
	uint32_t len = pkt_make_raw(buf, m, nic_qp_num(p->e.qp));
	struct icrc_flow f;

	icrc_flow_init(&f, &p->addr, &p->nic_addr, sport, PKT_UDP_PORT);
	icrc_store(buf + len - PKT_ICRC_LEN, icrc_compute(&f, 0, buf, len));
	sim_inject_port(p->w.sim, sport);
	peer_send_raw(p, NULL, buf, len);
	sim_inject_port(p->w.sim, PKT_UDP_PORT);
}

static void write_from(uint16_t sport, uint8_t opcode, uint32_t psn)
{
	send_from(sport, &(struct pkt_make){.opcode = opcode,
					    .psn = psn & PKT_PSN_MASK,
					    .ackreq = true,
					    .va = (uintptr_t)p->e.mem,
					    .rkey = p->e.key,
					    .dmalen = 10,
					    .len = 10});
}

static void refused(uint64_t n)
{
	assert_int_equal(peer_counters(p).rx_bad_source, n);
	expect_quiet(p, 20000); /* less than until it asks again */
	assert_int_equal(nic_qp_state(p->e.qp), NIC_QPS_RTS);
}

static void requests_that_cannot_be_the_peers(void **state)
{
	static const uint32_t psns[] = {S + 1 + REACH, S - REACH, S + (1u << 22), S - (1u << 22)};

	start(NIC_QPT_RC);
	write_from(50000, PKT_WRITE_ONLY, S);
	expect_ack(p, PKT_AETH_ACK, S);
	for (unsigned i = 0; i < 4; i++) {
		write_from(50001, PKT_WRITE_ONLY, psns[i]);
		refused(i + 1);
	}
	/* From the peer's port, the same packets are duplicates and gaps, which are answered. */
	write_from(50000, PKT_WRITE_ONLY, psns[3]);
	expect_ack(p, PKT_AETH_ACK, S);
	write_from(50000, PKT_WRITE_ONLY, psns[2]);
	expect_ack(p, PKT_NAK_PSN_SEQ, S + 1);
	peer_close(p);
}

static void answers_that_cannot_be_the_peers(void **state)
{
	static const uint32_t psns[] = {OURS + 2, OURS - 3, OURS + (1u << 22), OURS + (1u << 23)};

	start(NIC_QPT_RC);
	peer_post(p, ROOST_OP_WRITE, 1, 0, 8);
	expect(p, PKT_WRITE_ONLY, OURS);
	for (unsigned i = 0; i < 4; i++) {
		/* A packet that would end the connection. */
		send_from(50001, &(struct pkt_make){.opcode = PKT_ACK,
						    .psn = psns[i] & PKT_PSN_MASK,
						    .syndrome = PKT_NAK_REM_ACCESS});
		refused(i + 1);
	}
	send_from(50000,
		  &(struct pkt_make){
			  .opcode = PKT_ACK, .psn = OURS, .syndrome = PKT_AETH_ACK, .msn = 1});
	expect_done(p, 1, NIC_WC_SUCCESS);
	peer_close(p);
}

/* Before the first packet the port is unknown, and the PSN is known. */
static void the_first_packet(void **state)
{
	start(NIC_QPT_RC);
	write_from(50001, PKT_WRITE_ONLY, S + REACH);
	refused(1);
	write_from(50000, PKT_WRITE_ONLY, S);
	expect_ack(p, PKT_AETH_ACK, S);
	peer_close(p);
}

/* A NIC that changes its path (mlx5dv_modify_qp_udp_sport(3)) in the middle of a message. */
static void the_peer_changes_its_port(void **state)
{
	start(NIC_QPT_RC);
	for (uint32_t i = 0; i < 10; i++) {
		write_from((uint16_t)(50000 + i), PKT_WRITE_ONLY, S + i);
		expect_ack(p, PKT_AETH_ACK, S + i);
	}
	/* Its latest port is accepted, and earlier ones are not. */
	write_from(50008, PKT_WRITE_ONLY, S + 10 + REACH);
	refused(1);
	write_from(50009, PKT_WRITE_ONLY, S + 10 + REACH);
	expect_ack(p, PKT_NAK_PSN_SEQ, S + 10);
	/* Our acknowledgements were lost, and the peer sends again. */
	write_from(50020, PKT_WRITE_ONLY, S + 2);
	expect_ack(p, PKT_AETH_ACK, S + 9);
	assert_int_equal(peer_counters(p).rx_bad_source, 1);
	peer_close(p);
}

/*
 * A message of an unreliable connection may begin with any PSN: only the port excludes other
 * senders.
 */
static void unreliable_connections(void **state)
{
	start(NIC_QPT_UC);
	write_from(50000, PKT_UC + PKT_WRITE_ONLY, S + 100000); /* the packets before it are lost */
	assert_int_equal(peer_counters(p).rx_write_requests, 1);
	write_from(50001, PKT_UC + PKT_WRITE_ONLY, S);
	refused(1);
	assert_int_equal(peer_counters(p).rx_write_requests, 1);
	write_from(50001, PKT_UC + PKT_WRITE_ONLY, S + 100001);
	assert_int_equal(peer_counters(p).rx_write_requests, 2);
	peer_close(p);
}

/* A notification of congestion has no PSN, and hardware sends it from a port of its own. */
static void notifications_of_congestion(void **state)
{
	start(NIC_QPT_RC);
	write_from(50000, PKT_WRITE_ONLY, S);
	expect_ack(p, PKT_AETH_ACK, S);
	send_from(50001, &(struct pkt_make){.opcode = PKT_CNP});
	assert_int_equal(peer_counters(p).rp_cnp_handled, 1);
	write_from(50001, PKT_WRITE_ONLY, S + 1 + REACH);
	refused(1);
	peer_close(p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(requests_that_cannot_be_the_peers),
		cmocka_unit_test(answers_that_cannot_be_the_peers),
		cmocka_unit_test(the_first_packet),
		cmocka_unit_test(the_peer_changes_its_port),
		cmocka_unit_test(unreliable_connections),
		cmocka_unit_test(notifications_of_congestion),
	};

	if (cmocka_run_group_tests_name("IPv4", tests, NULL, NULL))
		return 1;
	v6 = true;
	return cmocka_run_group_tests_name("IPv6", tests, NULL, NULL);
}
