/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Rules of probes, each with packets that the test makes for one NIC: when a probe is sent, the
 * meaning of its answer, and the requester's measurement of the round trip with probes.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "peer.h"
#include "rule.h"

static struct peer P, *const p = &P;

/* Takes packets until none comes for `ns`. Returns their number. */
static unsigned take_all(uint64_t ns)
{
	unsigned n = 0;

	while (peer_get(p, ns))
		n++;
	return n;
}

/* A WRITE of 10 bytes is answered after `ns`. */
static void round_trip(uint32_t psn, uint32_t msn, uint64_t ns)
{
	peer_post(p, ROOST_OP_WRITE, 99, 0, 10);
	peer_run(p, ns);
	peer_drain(p);
	peer_ack(p, PKT_AETH_ACK, psn, msn);
	expect_done(p, 99, NIC_WC_SUCCESS);
}

/*
 * Without an answer a probe is sent after a millisecond or two, one packet at a time. The time-out
 * is the last resort.
 */
RULE(probe)
{
	const struct got *g;
	uint64_t at;

	peer_open_requester(p, s - 1, (struct ep_params){.timeout = 20});
	round_trip(s - 1, 1, PEER_SETTLE);
	for (uint64_t i = 0; i < 4; i++)
		peer_post(p, ROOST_OP_WRITE, i, 0, 10);
	peer_run(p, PEER_SETTLE);
	at = p->ring[3].at;
	peer_drain(p);
	g = peer_get(p, 10 * MSEC);
	assert_non_null(g);
	assert_int_equal(g->v.psn, s & PKT_PSN_MASK);
	assert_true(g->v.ackreq);
	assert_in_range(g->at - at, MSEC, 3 * MSEC);
	expect_quiet(p, MSEC / 2);
	assert_int_equal(peer_counters(p).tail_loss_probe, 1);
	/* Only the probe arrived: the rest follows at once. */
	peer_ack(p, PKT_AETH_ACK, s, 2);
	for (uint32_t i = 1; i < 4; i++)
		expect(p, PKT_WRITE_ONLY, s + i);
	peer_ack(p, PKT_AETH_ACK, s + 3, 5);
	for (uint64_t i = 0; i < 4; i++)
		expect_done(p, i, NIC_WC_SUCCESS);
	assert_int_equal(peer_counters(p).local_ack_timeout_err, 0);
	/* Without outstanding requests no probe is sent. */
	expect_quiet(p, 100 * SEC);
	peer_close(p);
}

/* Only the ACK was lost: the probe makes the peer repeat it, and no other packet is sent again. */
RULE(probe_lost_ack)
{
	peer_open_requester(p, s, (struct ep_params){.timeout = 20});
	for (uint64_t i = 0; i < 4; i++)
		peer_post(p, ROOST_OP_WRITE, i, 0, 10);
	peer_run(p, PEER_SETTLE);
	peer_drain(p);
	assert_non_null(peer_get(p, 10 * MSEC));
	/* as a responder answers a duplicate: up to its latest */
	peer_ack(p, PKT_AETH_ACK, s + 3, 4);
	for (uint64_t i = 0; i < 4; i++)
		expect_done(p, i, NIC_WC_SUCCESS);
	expect_quiet(p, SEC);
	assert_int_equal(peer_counters(p).tail_loss_probe, 1);
	assert_int_equal(peer_counters(p).retransmitted_pkts, 0);
	/* A late ACK has the same effect: it acknowledges more than the probe. */
	for (uint64_t i = 4; i < 8; i++)
		peer_post(p, ROOST_OP_WRITE, i, 0, 10);
	peer_run(p, PEER_SETTLE);
	peer_drain(p);
	assert_non_null(peer_get(p, 10 * MSEC));
	peer_ack(p, PKT_AETH_ACK, s + 5, 6);
	expect_quiet(p, MSEC / 2);
	peer_ack(p, PKT_AETH_ACK, s + 7, 8);
	for (uint64_t i = 4; i < 8; i++)
		expect_done(p, i, NIC_WC_SUCCESS);
	assert_int_equal(peer_counters(p).tail_loss_probe, 2);
	assert_int_equal(peer_counters(p).retransmitted_pkts, 0);
	peer_close(p);
}

/*
 * After a READ was probed and answered, the ACK of the first WRITE behind it acknowledges only this
 * WRITE. The others, whose ACKs are in flight, must not be sent again.
 */
RULE(probe_of_read)
{
	peer_open_requester(p, s, (struct ep_params){.timeout = 20});
	peer_post(p, ROOST_OP_READ, 0, 0, 8);
	for (uint64_t i = 1; i < 4; i++)
		peer_post(p, ROOST_OP_WRITE, i, 0, 10);
	peer_run(p, PEER_SETTLE);
	peer_drain(p);
	assert_int_equal(peer_get(p, 10 * MSEC)->v.opcode, PKT_READ_REQUEST);
	peer_send(p, &(struct pkt_make){.opcode = PKT_READ_RESP_ONLY, .psn = s, .len = 8});
	expect_done(p, 0, NIC_WC_SUCCESS);
	for (uint32_t i = 1; i < 4; i++) {
		peer_ack(p, PKT_AETH_ACK, s + i, i + 1);
		expect_done(p, i, NIC_WC_SUCCESS);
	}
	expect_quiet(p, MSEC / 2);
	assert_int_equal(peer_counters(p).tail_loss_probe, 1);
	assert_int_equal(peer_counters(p).retransmitted_pkts, 0);
	peer_close(p);
}

/*
 * While no round trip is known, an ACK for the probed packet alone may be that of its first copy,
 * and the ACKs of the others may be in flight, so no packet is sent again. If no ACK comes, they
 * are lost, and the ACK of the next probe shows it.
 */
RULE(probe_in_doubt)
{
	peer_open_requester(p, s, (struct ep_params){.timeout = 20});
	for (uint64_t i = 0; i < 6; i++)
		peer_post(p, ROOST_OP_WRITE, i, 0, 10);
	peer_run(p, PEER_SETTLE);
	peer_drain(p);
	assert_int_equal(peer_get(p, 10 * MSEC)->v.psn, s & PKT_PSN_MASK);
	peer_ack(p, PKT_AETH_ACK, s, 1);
	expect_quiet(p, MSEC / 2);
	peer_ack(p, PKT_AETH_ACK, s + 1, 2);
	expect_quiet(p, MSEC / 2);
	assert_int_equal(peer_get(p, 10 * MSEC)->v.psn, (s + 2) & PKT_PSN_MASK);
	peer_ack(p, PKT_AETH_ACK, s + 2, 3);
	expect_quiet(p, MSEC / 2);
	assert_int_equal(peer_get(p, 10 * MSEC)->v.psn, (s + 3) & PKT_PSN_MASK);
	peer_ack(p, PKT_AETH_ACK, s + 3, 4);
	expect(p, PKT_WRITE_ONLY, s + 4);
	expect(p, PKT_WRITE_ONLY, s + 5);
	assert_int_equal(peer_counters(p).tail_loss_probe, 3);
	assert_int_equal(peer_counters(p).retransmitted_pkts, 2);
	peer_close(p);
}

/*
 * A path becomes slow. Its round trip is unknown while all packets are probed; still the second
 * message must not be sent again.
 */
RULE(round_trip_becomes_long)
{
	for (uint64_t ms = 2; ms <= 300; ms = ms * 3 / 2) {
		uint64_t probes;

		peer_open_requester(p, s, (struct ep_params){.timeout = 20});
		for (uint32_t i = 0; i < 20; i++)
			round_trip(s + i, i + 1, 10000);
		assert_int_equal(peer_counters(p).tail_loss_probe, 0);
		round_trip(s + 20, 21, ms * MSEC);
		probes = peer_counters(p).tail_loss_probe;
		assert_in_range(probes, 1, 10);
		for (uint32_t i = 21; i < 40; i++)
			round_trip(s + i, i + 1, ms * MSEC);
		assert_int_equal(peer_counters(p).tail_loss_probe, probes);
		assert_int_equal(peer_counters(p).retransmitted_pkts, 0);
		peer_close(p);
	}
}

/*
 * Many consecutive messages lose their last packets: the n-th is recovered as fast as the first,
 * within three times the interval.
 */
RULE(losses_in_a_row)
{
	peer_open_requester(p, s, (struct ep_params){.timeout = 20});
	for (uint32_t i = 0; i < 30; i++) {
		uint64_t at = world_now(&p->w);

		peer_post(p, ROOST_OP_WRITE, i, 0, 10);
		expect(p, PKT_WRITE_ONLY, s + i);
		assert_int_equal(peer_get(p, 10 * MSEC)->v.psn, (s + i) & PKT_PSN_MASK);
		assert_in_range(world_now(&p->w) - at, MSEC, 3 * MSEC);
		peer_ack(p, PKT_AETH_ACK, s + i, i + 1);
		expect_done(p, i, NIC_WC_SUCCESS);
	}
	peer_close(p);
}

/*
 * The wait after an RNR NAK does not count towards the probe: its timer starts when sending
 * continues, for any reason.
 */
RULE(probe_after_rnr)
{
	uint64_t at;

	for (uint64_t late = 0; late < 400000; late += 700) {
		peer_open_requester(p, s, (struct ep_params){.timeout = 20});
		peer_post(p, ROOST_OP_SEND, 1, 0, 10);
		expect(p, PKT_SEND_ONLY, s);
		peer_rnr_nak(p, 20, s); /* 10.24 ms */
		peer_run(p, 10240000 - 2 * PEER_SETTLE + late);
		peer_post(p, ROOST_OP_SEND, 2, 0, 10);
		at = peer_get(p, MSEC)->at;
		expect(p, PKT_SEND_ONLY, s + 1);
		expect_quiet(p, at + MSEC * 9 / 10 - world_now(&p->w));
		assert_non_null(peer_get(p, MSEC));
		assert_int_equal(peer_counters(p).tail_loss_probe, 1);
		assert_int_equal(peer_counters(p).local_ack_timeout_err, 0);
		peer_close(p);
	}
}

/*
 * The wait for a window that another queue pair fills does not count either: B's packets fill it,
 * and the last of them is acknowledged late.
 */
RULE(probe_after_window)
{
	const struct pkt_make ack = {
		.opcode = PKT_ACK, .syndrome = PKT_AETH_ACK, .psn = s + 8, .msn = 9};
	struct ep_params params = {.timeout = 20, .mtu = 256, .psn = s};
	uint8_t buf[PKT_MAX_LEN];
	struct nic_qp_attr a;
	uint32_t len;
	struct ep b;

	for (unsigned late = 500; late < 950; late += 50) {
		struct wr wr;

		peer_open_link(p, &(struct sim_params){.window = 3000}, &params, 0x1000);
		ep_init(&b, &p->w, 0, &params);
		ep_to_init(&b);
		peer_attr(p, &a);
		ep_to_rtr(&b, &a);
		ep_to_rts(&b, &a);
		peer_post(p, ROOST_OP_SEND, 1, 0, 250);
		expect(p, PKT_SEND_ONLY, s);
		peer_rnr_nak(p, 1, s); /* 10 us, and B fills the window meanwhile */
		wr = wr_rdma(ROOST_OP_WRITE, &b, 0, 256 * 9, &b, 0);
		ep_post(&b, &wr);
		wr = wr_rdma(ROOST_OP_WRITE, &b, 0, 256, &b, 0);
		ep_post(&b, &wr);
		assert_int_equal(take_all(late * 1000), 9);
		len = pkt_make_raw(buf, &ack, nic_qp_num(b.qp));
		pkt_seal(buf, len, &p->addr, &p->nic_addr);
		peer_send_raw(p, NULL, buf, len);
		/* B's next WRITE and A's SEND. */
		assert_int_equal(take_all(PEER_SETTLE), 2);
		expect_quiet(p, MSEC * 9 / 10);
		assert_int_equal(peer_counters(p).tail_loss_probe, 0);
		ep_fini(&b);
		peer_close(p);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(probe),
		cmocka_unit_test(probe_lost_ack),
		cmocka_unit_test(probe_of_read),
		cmocka_unit_test(probe_in_doubt),
		cmocka_unit_test(round_trip_becomes_long),
		cmocka_unit_test(losses_in_a_row),
		cmocka_unit_test(probe_after_rnr),
		cmocka_unit_test(probe_after_window),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
