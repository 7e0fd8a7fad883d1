/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Rules of the requester, each with packets that the test makes for one NIC: the packets that it
 * sends, and its processing of acknowledgements and responses. test_retry.c tests missing answers.
 * The rules are those of the InfiniBand Architecture Specification, volume 1, chapter 9.7. Every
 * test runs at several first PSNs, so that the PSN wraps in each of its places.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "peer.h"
#include "rule.h"

#define MTU 256

static struct peer P, *const p = &P;

static void start(uint32_t psn, const struct ep_params *over)
{
	struct ep_params params = {0};

	if (over)
		params = *over;
	params.mtu = params.mtu ? params.mtu : MTU;
	params.psn = psn;
	peer_open(p, &params, 0x1000);
	for (uint32_t i = 0; i < p->e.mem_len; i++)
		p->e.mem[i] = pkt_pattern(i);
}

static void read_resp(uint8_t opcode, uint32_t psn, uint32_t off, uint32_t len)
{
	uint8_t data[MTU];

	for (uint32_t i = 0; i < len; i++)
		data[i] = (uint8_t)~pkt_pattern(off + i);
	peer_send(p, &(struct pkt_make){.opcode = opcode,
					.syndrome = PKT_AETH_ACK,
					.psn = psn,
					.msn = 1,
					.payload = data,
					.len = len});
}

static void check_read(uint32_t at, uint32_t len)
{
	for (uint32_t i = 0; i < len; i++)
		assert_int_equal(p->e.mem[at + i], (uint8_t)~pkt_pattern(i));
}

/*
 * 9.4, 9.7.3: FIRST, MIDDLE, LAST; the RETH is in the first packet, immediate and solicited event
 * are in the last. PSNs are consecutive.
 */
RULE(message_layout)
{
	struct wr wr;
	const struct got *g;

	start(s, NULL);
	wr = (struct wr){.op = ROOST_OP_WRITE_IMM,
			 .flags = ROOST_WQE_SIGNALED | ROOST_WQE_SOLICITED,
			 .sge = {ep_sge(&p->e, 8, 2 * MTU + 7)},
			 .num_sge = 1,
			 .raddr = PEER_VA,
			 .rkey = PEER_RKEY,
			 .imm = 0xaabbccdd};
	ep_post(&p->e, &wr);
	g = expect(p, PKT_WRITE_FIRST, s);
	assert_int_equal(g->v.va, PEER_VA);
	assert_int_equal(g->v.rkey, PEER_RKEY);
	assert_int_equal(g->v.dmalen, 2 * MTU + 7);
	assert_int_equal(g->v.payload_len, MTU);
	assert_memory_equal(g->v.payload, p->e.mem + 8, MTU);
	assert_false(g->v.solicited);
	assert_false(g->v.ackreq);
	g = expect(p, PKT_WRITE_MIDDLE, s + 1);
	assert_memory_equal(g->v.payload, p->e.mem + 8 + MTU, MTU);
	g = expect(p, PKT_WRITE_LAST_IMM, s + 2);
	assert_int_equal(g->v.payload_len, 7);
	assert_int_equal(g->v.pad, 1);
	assert_memory_equal(g->v.payload, p->e.mem + 8 + 2 * MTU, 7);
	assert_int_equal(g->v.imm, 0xaabbccdd);
	assert_true(g->v.solicited);
	assert_true(g->v.ackreq);
	peer_post(p, ROOST_OP_SEND, 1, 0, 0);
	g = expect(p, PKT_SEND_ONLY, s + 3);
	assert_int_equal(g->v.payload_len, 0);
	wr.op = ROOST_OP_SEND_INV;
	wr.imm = 0x00c0ffee;
	ep_post(&p->e, &wr);
	expect(p, PKT_SEND_FIRST, s + 4);
	expect(p, PKT_SEND_MIDDLE, s + 5);
	g = expect(p, PKT_SEND_LAST_INV, s + 6);
	assert_int_equal(g->v.inv_rkey, 0x00c0ffee);
	peer_post(p, ROOST_OP_CMP_SWAP, 2, 64, 8);
	g = expect(p, PKT_CMP_SWAP, s + 7);
	assert_int_equal(g->v.swap_add, 0x1122334455667788);
	assert_int_equal(g->v.compare, 0x99aabbccddeeff00);
	assert_int_equal(g->v.va, PEER_VA);
	/* A READ takes one PSN for each of its responses. */
	peer_post(p, ROOST_OP_READ, 3, 0, 3 * MTU);
	g = expect(p, PKT_READ_REQUEST, s + 8);
	assert_int_equal(g->v.dmalen, 3 * MTU);
	peer_post(p, ROOST_OP_READ, 4, 0, 0);
	g = expect(p, PKT_READ_REQUEST, s + 11);
	assert_int_equal(g->v.dmalen, 0);
	peer_post(p, ROOST_OP_SEND_IMM, 5, 0, 1);
	expect(p, PKT_SEND_ONLY_IMM, s + 12);
	peer_close(p);
}

/*
 * A long message requests an acknowledgement at least every 64 packets, since rxe stops after 128
 * unacknowledged ones.
 */
RULE(ackreq_inside)
{
	unsigned since = 0;

	start(s, NULL);
	peer_post(p, ROOST_OP_WRITE, 1, 0, 200 * MTU);
	for (unsigned i = 0; i < 200; i++) {
		const struct got *g = peer_get(p, PEER_SETTLE);

		assert_non_null(g);
		assert_int_equal(g->v.psn, (s + i) & PKT_PSN_MASK);
		since = g->v.ackreq ? 0 : since + 1;
		assert_in_range(since, 0, 63);
	}
	assert_int_equal(since, 0);
	peer_close(p);
}

/* 9.7.5.1.1: one ACK may acknowledge several messages; they complete in order. */
RULE(coalesced_ack)
{
	start(s, NULL);
	for (uint64_t i = 0; i < 3; i++)
		peer_post(p, ROOST_OP_WRITE, 10 + i, 0, 2 * MTU);
	peer_run(p, PEER_SETTLE);
	assert_int_equal(p->head, 6);
	/* Half of the second message too. */
	peer_ack(p, PKT_AETH_ACK, s + 2, 1);
	expect_done(p, 10, NIC_WC_SUCCESS);
	assert_false(ep_poll_send(&p->e, &(struct roost_cqe){0}));
	peer_ack(p, PKT_AETH_ACK, s + 5, 3);
	expect_done(p, 11, NIC_WC_SUCCESS);
	expect_done(p, 12, NIC_WC_SUCCESS);
	peer_close(p);
}

/*
 * 9.7.5.2.4: after a PSN sequence NAK the requester continues with the packet that the NAK names.
 * Packets before it count as acknowledged.
 */
RULE(sequence_nak)
{
	struct nic_counters c;

	start(s, NULL);
	for (uint64_t i = 0; i < 5; i++) {
		peer_post(p, ROOST_OP_WRITE, i, 0, 100);
		expect(p, PKT_WRITE_ONLY, s + (uint32_t)i);
	}
	peer_ack(p, PKT_NAK_PSN_SEQ, s + 2, 2);
	expect_done(p, 0, NIC_WC_SUCCESS);
	expect_done(p, 1, NIC_WC_SUCCESS);
	for (uint32_t i = 2; i < 5; i++)
		expect(p, PKT_WRITE_ONLY, s + i);
	expect_quiet(p, MSEC / 2);
	c = peer_counters(p);
	assert_int_equal(c.packet_seq_err, 1);
	assert_int_equal(c.retransmitted_pkts, 3);
	peer_ack(p, PKT_AETH_ACK, s + 4, 5);
	for (uint64_t i = 2; i < 5; i++)
		expect_done(p, i, NIC_WC_SUCCESS);
	peer_close(p);
}

/* A message continues at the packet that the NAK names, with the op-code that this packet had. */
RULE(write_resumed_inside)
{
	const struct got *g;

	start(s, NULL);
	peer_post(p, ROOST_OP_WRITE, 1, 0, 4 * MTU + 9);
	peer_run(p, PEER_SETTLE);
	peer_drain(p);
	peer_ack(p, PKT_NAK_PSN_SEQ, s + 3, 0);
	g = expect(p, PKT_WRITE_MIDDLE, s + 3);
	assert_memory_equal(g->v.payload, p->e.mem + 3 * MTU, MTU);
	g = expect(p, PKT_WRITE_LAST, s + 4);
	assert_memory_equal(g->v.payload, p->e.mem + 4 * MTU, 9);
	expect_quiet(p, MSEC / 2);
	peer_ack(p, PKT_AETH_ACK, s + 4, 1);
	expect_done(p, 1, NIC_WC_SUCCESS);
	peer_close(p);
}

/* A duplicate or late NAK names a PSN that is acknowledged. It changes nothing. */
RULE(stale_nak)
{
	start(s, NULL);
	for (uint64_t i = 0; i < 4; i++)
		peer_post(p, ROOST_OP_WRITE, i, 0, 10);
	peer_run(p, PEER_SETTLE);
	peer_drain(p);
	peer_ack(p, PKT_AETH_ACK, s + 2, 3);
	peer_ack(p, PKT_NAK_PSN_SEQ, s + 1, 1);
	peer_ack(p, PKT_NAK_REM_ACCESS, s + 2, 1);
	peer_ack(p, PKT_AETH_TYPE_RNR | 1, s + 2, 1);
	expect_quiet(p, MSEC / 2);
	for (uint64_t i = 0; i < 3; i++)
		expect_done(p, i, NIC_WC_SUCCESS);
	assert_int_equal(nic_qp_state(p->e.qp), NIC_QPS_RTS);
	peer_ack(p, PKT_AETH_ACK, s + 3, 4);
	expect_done(p, 3, NIC_WC_SUCCESS);
	peer_close(p);
}

/* 9.7.5.1.2: a duplicate ACK changes nothing. */
RULE(duplicate_ack)
{
	start(s, NULL);
	peer_post(p, ROOST_OP_WRITE, 1, 0, 10);
	peer_post(p, ROOST_OP_WRITE, 2, 0, 10);
	peer_run(p, PEER_SETTLE);
	peer_drain(p);
	for (int i = 0; i < 5; i++)
		peer_ack(p, PKT_AETH_ACK, s, 1);
	peer_ack(p, PKT_AETH_ACK, s - 1, 0);
	expect_done(p, 1, NIC_WC_SUCCESS);
	assert_false(ep_poll_send(&p->e, &(struct roost_cqe){0}));
	expect_quiet(p, MSEC / 2);
	peer_ack(p, PKT_AETH_ACK, s + 1, 2);
	expect_done(p, 2, NIC_WC_SUCCESS);
	peer_close(p);
}

/* 9.7.5.1.2: responses to packets that were never sent (ghosts) are dropped. */
RULE(ghost_answers)
{
	static const uint8_t syndromes[] = {PKT_AETH_ACK, PKT_NAK_PSN_SEQ, PKT_NAK_REM_ACCESS,
					    PKT_NAK_REM_OP, PKT_AETH_TYPE_RNR | 3};
	static const uint32_t beyond[] = {1, 2, 1000, 1u << 22};

	start(s, NULL);
	peer_post(p, ROOST_OP_WRITE, 1, 0, 10);
	expect(p, PKT_WRITE_ONLY, s);
	for (unsigned i = 0; i < 5; i++)
		for (unsigned k = 0; k < 4; k++)
			peer_ack(p, syndromes[i], s + beyond[k], 1);
	read_resp(PKT_READ_RESP_ONLY, s + 1, 0, 8);
	peer_send(p, &(struct pkt_make){.opcode = PKT_ATOMIC_ACK, .psn = s + 1});
	assert_false(ep_poll_send(&p->e, &(struct roost_cqe){0}));
	expect_quiet(p, MSEC / 2);
	assert_int_equal(peer_counters(p).req_bad_response, 22);
	assert_int_equal(nic_qp_state(p->e.qp), NIC_QPS_RTS);
	peer_ack(p, PKT_AETH_ACK, s, 1);
	expect_done(p, 1, NIC_WC_SUCCESS);
	/* No request is outstanding now, so each response is a ghost. */
	peer_ack(p, PKT_AETH_ACK, s + 1, 1);
	peer_ack(p, PKT_NAK_PSN_SEQ, s + 1, 1);
	expect_quiet(p, MSEC / 2);
	peer_close(p);
}

/* 9.7.5.2.8: an ACK beyond an unanswered READ implies that the response was lost. */
RULE(implied_nak_read)
{
	start(s, NULL);
	peer_post(p, ROOST_OP_WRITE, 1, 0, 10);
	peer_post(p, ROOST_OP_READ, 2, 1024, 2 * MTU);
	peer_post(p, ROOST_OP_WRITE, 3, 0, 10);
	expect(p, PKT_WRITE_ONLY, s);
	expect(p, PKT_READ_REQUEST, s + 1);
	expect(p, PKT_WRITE_ONLY, s + 3);
	peer_ack(p, PKT_AETH_ACK, s + 3, 3);
	expect_done(p, 1, NIC_WC_SUCCESS);
	assert_false(ep_poll_send(&p->e, &(struct roost_cqe){0}));
	expect(p, PKT_READ_REQUEST, s + 1);
	expect(p, PKT_WRITE_ONLY, s + 3);
	assert_int_equal(peer_counters(p).implied_nak_seq_err, 1);
	/* A second such ACK before the response: one request for each gap. */
	peer_ack(p, PKT_AETH_ACK, s + 3, 3);
	expect_quiet(p, MSEC / 2);
	read_resp(PKT_READ_RESP_FIRST, s + 1, 0, MTU);
	read_resp(PKT_READ_RESP_LAST, s + 2, MTU, MTU);
	expect_done(p, 2, NIC_WC_SUCCESS);
	check_read(1024, 2 * MTU);
	peer_ack(p, PKT_AETH_ACK, s + 3, 3);
	expect_done(p, 3, NIC_WC_SUCCESS);
	peer_close(p);
}

RULE(implied_nak_atomic)
{
	uint64_t got;

	start(s, NULL);
	peer_post(p, ROOST_OP_FETCH_ADD, 1, 64, 8);
	peer_post(p, ROOST_OP_SEND, 2, 0, 10);
	expect(p, PKT_FETCH_ADD, s);
	expect(p, PKT_SEND_ONLY, s + 1);
	/* A NAK of any kind behind it implies the same. */
	peer_ack(p, PKT_AETH_TYPE_RNR | 1, s + 1, 1);
	assert_false(ep_poll_send(&p->e, &(struct roost_cqe){0}));
	expect(p, PKT_FETCH_ADD, s);
	expect(p, PKT_SEND_ONLY, s + 1);
	peer_send(p, &(struct pkt_make){.opcode = PKT_ATOMIC_ACK,
					.syndrome = PKT_AETH_ACK,
					.psn = s,
					.swap_add = 77});
	expect_done(p, 1, NIC_WC_SUCCESS);
	memcpy(&got, p->e.mem + 64, 8);
	assert_int_equal(got, 77);
	peer_close(p);
}

/*
 * A response to a later READ or atomic implies that the response before it is lost, and
 * acknowledges the WRITEs before it.
 */
RULE(implied_nak_response)
{
	start(s, NULL);
	peer_post(p, ROOST_OP_WRITE, 1, 0, 10);
	peer_post(p, ROOST_OP_READ, 2, 1024, 3 * MTU);
	peer_post(p, ROOST_OP_READ, 3, 8192, 8);
	peer_run(p, PEER_SETTLE);
	peer_drain(p);
	read_resp(PKT_READ_RESP_FIRST, s + 1, 0, MTU);
	expect_done(p, 1, NIC_WC_SUCCESS);
	/*
	 * 2 and 3 are missing: they are requested from the first missing PSN on, with adjusted
	 * address and length and the same end (9.7.4.1.4).
	 */
	read_resp(PKT_READ_RESP_ONLY, s + 4, 0, 8);
	{
		const struct got *g = expect(p, PKT_READ_REQUEST, s + 2);

		assert_int_equal(g->v.va, PEER_VA + MTU);
		assert_int_equal(g->v.dmalen, 2 * MTU);
		assert_int_equal(g->v.rkey, PEER_RKEY);
	}
	expect(p, PKT_READ_REQUEST, s + 4);
	read_resp(PKT_READ_RESP_FIRST, s + 2, MTU, MTU);
	/* A middle packet of one execution may be the first of another, so LAST alone is valid. */
	read_resp(PKT_READ_RESP_LAST, s + 3, 2 * MTU, MTU);
	expect_done(p, 2, NIC_WC_SUCCESS);
	check_read(1024, 3 * MTU);
	read_resp(PKT_READ_RESP_ONLY, s + 4, 0, 8);
	expect_done(p, 3, NIC_WC_SUCCESS);
	peer_close(p);
}

/*
 * The rest of a READ with some of its responses is requested: from the first missing PSN on, at its
 * address, to the same end.
 */
RULE(read_resumed_inside)
{
	const struct got *g;

	start(s, NULL);
	peer_post(p, ROOST_OP_READ, 1, 1024, 4 * MTU + 9);
	expect(p, PKT_READ_REQUEST, s);
	for (uint32_t i = 1; i < 4; i++) {
		read_resp(i == 1 ? PKT_READ_RESP_FIRST : PKT_READ_RESP_MIDDLE, s + i - 1,
			  (i - 1) * MTU, MTU);
		/* Silence. */
		g = peer_get(p, 5 * MSEC);
		assert_non_null(g);
		assert_int_equal(g->v.opcode, PKT_READ_REQUEST);
		assert_int_equal(g->v.psn, (s + i) & PKT_PSN_MASK);
		assert_int_equal(g->v.va, PEER_VA + i * MTU);
		assert_int_equal(g->v.dmalen, (4 - i) * MTU + 9);
		assert_int_equal(g->v.rkey, PEER_RKEY);
		peer_drain(p);
	}
	read_resp(PKT_READ_RESP_FIRST, s + 3, 3 * MTU, MTU);
	assert_false(ep_poll_send(&p->e, &(struct roost_cqe){0}));
	read_resp(PKT_READ_RESP_LAST, s + 4, 4 * MTU, 9);
	expect_done(p, 1, NIC_WC_SUCCESS);
	check_read(1024, 4 * MTU + 9);
	expect_quiet(p, MSEC / 2);
	peer_close(p);
}

/*
 * Responses of several READs arrive in order. Late copies are dropped.
 */
RULE(many_reads)
{
	struct ep_params ep = {.rd_atomic = 3};

	start(s, &ep);
	for (uint64_t i = 0; i < 4; i++)
		peer_post(p, ROOST_OP_READ, i, 4096 * i, 2 * MTU);
	for (uint32_t i = 0; i < 3; i++)
		expect(p, PKT_READ_REQUEST, s + 2 * i);
	/* Not more than max_rd_atomic at a time (11.2.5.2). */
	expect_quiet(p, MSEC / 2);
	for (uint32_t i = 0; i < 4; i++) {
		read_resp(PKT_READ_RESP_FIRST, s + 2 * i, 0, MTU);
		assert_false(ep_poll_send(&p->e, &(struct roost_cqe){0}));
		read_resp(PKT_READ_RESP_FIRST, s + 2 * i, 0, MTU);
		read_resp(PKT_READ_RESP_LAST, s + 2 * i + 1, MTU, MTU);
		if (i == 0)
			expect(p, PKT_READ_REQUEST, s + 6);
		expect_done(p, i, NIC_WC_SUCCESS);
		check_read(4096 * i, 2 * MTU);
	}
	expect_quiet(p, MSEC / 2);
	peer_close(p);
}

/* 128 READs at a time, as in rxe. The next one leaves after the response to the first. */
RULE(most_reads)
{
	struct ep_params ep = {.rd_atomic = NIC_MAX_RD_ATOMIC, .depth = 256};

	start(s, &ep);
	for (uint64_t i = 0; i <= NIC_MAX_RD_ATOMIC; i++)
		peer_post(p, ROOST_OP_READ, i, 8 * i, 8);
	for (uint32_t i = 0; i < NIC_MAX_RD_ATOMIC; i++)
		expect(p, PKT_READ_REQUEST, s + i);
	expect_quiet(p, MSEC / 2);
	for (uint32_t i = 0; i <= NIC_MAX_RD_ATOMIC; i++) {
		read_resp(PKT_READ_RESP_ONLY, s + i, 0, 8);
		if (i == 0)
			expect(p, PKT_READ_REQUEST, s + NIC_MAX_RD_ATOMIC);
		expect_done(p, i, NIC_WC_SUCCESS);
		check_read(8 * i, 8);
	}
	expect_quiet(p, MSEC / 2);
	peer_close(p);
}

/* Each wait of a queue pair with work counts for its reason, and for no other reason. */
static void wait_reasons(void **state)
{
	const uint32_t s = 0;
	struct nic_counters c;
	struct wr fenced;

	(void)state;
	start(s, &(struct ep_params){.rd_atomic = 1});
	fenced = (struct wr){.op = ROOST_OP_SEND,
			     .flags = ROOST_WQE_FENCE,
			     .sge = {ep_sge(&p->e, 0, 8)},
			     .num_sge = 1};
	peer_post(p, ROOST_OP_READ, 1, 0, 8);
	expect(p, PKT_READ_REQUEST, s);
	peer_post(p, ROOST_OP_READ, 2, 0, 8);
	expect_quiet(p, MSEC / 8);
	nic_counters(p->w.nic[0], &c);
	assert_int_equal(c.wait_reads, 1);
	read_resp(PKT_READ_RESP_ONLY, s, 0, 8);
	expect(p, PKT_READ_REQUEST, s + 1);
	ep_post(&p->e, &fenced);
	expect_quiet(p, MSEC / 8);
	nic_counters(p->w.nic[0], &c);
	assert_int_equal(c.wait_reads, 2);
	read_resp(PKT_READ_RESP_ONLY, s + 1, 0, 8);
	expect(p, PKT_SEND_ONLY, s + 2);
	peer_rnr_nak(p, 1, s + 2);
	assert_non_null(peer_get(p, MSEC));
	nic_counters(p->w.nic[0], &c);
	assert_int_equal(c.wait_reads, 2);
	assert_int_equal(c.wait_rnr, 1);
	assert_int_equal(c.wait_psn + c.wait_window + c.wait_copies + c.wait_batch + c.wait_order +
				 c.wait_hook,
			 0);
	peer_close(p);
}

/*
 * 10.8.3.3: a fenced request waits until READs and atomics before it are complete. It does not wait
 * for WRITEs.
 */
RULE(fence)
{
	struct wr wr;

	start(s, NULL);
	wr = (struct wr){.op = ROOST_OP_SEND,
			 .wr_id = 3,
			 .flags = ROOST_WQE_SIGNALED | ROOST_WQE_FENCE,
			 .sge = {ep_sge(&p->e, 0, 8)},
			 .num_sge = 1};
	peer_post(p, ROOST_OP_WRITE, 0, 0, 8);
	ep_post(&p->e, &wr);
	expect(p, PKT_WRITE_ONLY, s);
	expect(p, PKT_SEND_ONLY, s + 1);
	peer_post(p, ROOST_OP_READ, 1, 0, 2 * MTU);
	peer_post(p, ROOST_OP_FETCH_ADD, 2, 1024, 8);
	ep_post(&p->e, &wr);
	expect(p, PKT_READ_REQUEST, s + 2);
	expect(p, PKT_FETCH_ADD, s + 4);
	expect_quiet(p, MSEC / 4);
	read_resp(PKT_READ_RESP_FIRST, s + 2, 0, MTU);
	read_resp(PKT_READ_RESP_LAST, s + 3, MTU, MTU);
	expect_quiet(p, MSEC / 4);
	peer_send(p, &(struct pkt_make){.opcode = PKT_ATOMIC_ACK, .psn = s + 4, .swap_add = 1});
	expect(p, PKT_SEND_ONLY, s + 5);
	peer_close(p);
}

/*
 * A NAK code ends the work request that the NAK names with the matching status. Requests before it
 * complete successfully, and requests behind it are flushed.
 */
static void error_nak(uint32_t s, uint8_t syndrome, enum nic_wc_status status)
{
	start(s, NULL);
	for (uint64_t i = 0; i < 4; i++)
		peer_post(p, ROOST_OP_WRITE, i, 0, 10);
	peer_run(p, PEER_SETTLE);
	peer_drain(p);
	peer_ack(p, syndrome, s + 2, 2);
	expect_done(p, 0, NIC_WC_SUCCESS);
	expect_done(p, 1, NIC_WC_SUCCESS);
	expect_done(p, 2, status);
	expect_done(p, 3, NIC_WC_WR_FLUSH_ERR);
	assert_int_equal(nic_qp_state(p->e.qp), NIC_QPS_ERR);
	expect_quiet(p, SEC);
	peer_close(p);
}

RULE(nak_codes)
{
	error_nak(s, PKT_NAK_INVALID_REQ, NIC_WC_REM_INV_REQ_ERR);
	error_nak(s, PKT_NAK_REM_ACCESS, NIC_WC_REM_ACCESS_ERR);
	error_nak(s, PKT_NAK_REM_OP, NIC_WC_REM_OP_ERR);
	error_nak(s, 0x64, NIC_WC_BAD_RESP_ERR);
	error_nak(s, 0x7f, NIC_WC_BAD_RESP_ERR);
}

/*
 * 9.7.5.2.8, 9.7.4.1.2: a response that does not fit the request it answers ends the request: bad
 * response.
 */
static void bad_response(uint32_t s, enum roost_op op, uint32_t len, const struct pkt_make *m)
{
	struct pkt_make answer = *m;

	start(s, NULL);
	peer_post(p, op, 1, 1024, len);
	peer_post(p, ROOST_OP_WRITE, 2, 0, 10);
	peer_run(p, PEER_SETTLE);
	peer_drain(p);
	answer.psn += s;
	answer.syndrome = PKT_AETH_ACK;
	peer_send(p, &answer);
	expect_done(p, 1, NIC_WC_BAD_RESP_ERR);
	expect_done(p, 2, NIC_WC_WR_FLUSH_ERR);
	assert_int_equal(nic_qp_state(p->e.qp), NIC_QPS_ERR);
	assert_int_equal(peer_counters(p).req_bad_response, 1);
	assert_int_equal(p->e.mem[1024], pkt_pattern(1024));
	peer_close(p);
}

RULE(bad_responses)
{
	static const struct {
		enum roost_op op;
		uint32_t len;
		struct pkt_make m;
	} t[] = {
		/* op-code of another operation */
		{ROOST_OP_READ, 8, {.opcode = PKT_ATOMIC_ACK}},
		{ROOST_OP_FETCH_ADD, 8, {.opcode = PKT_READ_RESP_ONLY, .len = 8}},
		{ROOST_OP_WRITE, 8, {.opcode = PKT_READ_RESP_ONLY, .len = 8}},
		{ROOST_OP_WRITE, 8, {.opcode = PKT_ATOMIC_ACK}},
		{ROOST_OP_SEND, 8, {.opcode = PKT_READ_RESP_ONLY, .len = 8}},
		/* position in the message */
		{ROOST_OP_READ, 3 * MTU, {.opcode = PKT_READ_RESP_ONLY, .len = MTU}},
		{ROOST_OP_READ, 3 * MTU, {.opcode = PKT_READ_RESP_LAST, .len = MTU}},
		{ROOST_OP_READ, MTU, {.opcode = PKT_READ_RESP_FIRST, .len = MTU}},
		{ROOST_OP_READ, MTU, {.opcode = PKT_READ_RESP_MIDDLE, .len = MTU}},
		{ROOST_OP_READ, 3 * MTU, {.opcode = PKT_READ_RESP_MIDDLE, .len = MTU}},
		/* length */
		{ROOST_OP_READ, 8, {.opcode = PKT_READ_RESP_ONLY, .len = 7}},
		{ROOST_OP_READ, 8, {.opcode = PKT_READ_RESP_ONLY, .len = 9}},
		{ROOST_OP_READ, 8, {.opcode = PKT_READ_RESP_ONLY, .len = 0}},
		{ROOST_OP_READ, 0, {.opcode = PKT_READ_RESP_ONLY, .len = 1}},
		{ROOST_OP_READ, 3 * MTU, {.opcode = PKT_READ_RESP_FIRST, .len = MTU - 1}},
		{ROOST_OP_READ, 3 * MTU, {.opcode = PKT_READ_RESP_FIRST, .len = MTU + 1}},
		{ROOST_OP_READ, 3 * MTU, {.opcode = PKT_READ_RESP_FIRST, .len = 2 * MTU}},
	};

	for (unsigned i = 0; i < sizeof(t) / sizeof(t[0]); i++)
		bad_response(s, t[i].op, t[i].len, &t[i].m);
}

/*
 * Table 45's last line: AETH type 0x40 is reserved. Such an acknowledgement is dropped.
 */
RULE(reserved_syndrome)
{
	start(s, NULL);
	peer_post(p, ROOST_OP_WRITE, 1, 0, 10);
	expect(p, PKT_WRITE_ONLY, s);
	peer_ack(p, 0x40, s, 1);
	peer_ack(p, 0x5f, s, 1);
	assert_false(ep_poll_send(&p->e, &(struct roost_cqe){0}));
	assert_int_equal(nic_qp_state(p->e.qp), NIC_QPS_RTS);
	peer_ack(p, 0x00, s, 1); /* credits: any ACK acknowledges */
	expect_done(p, 1, NIC_WC_SUCCESS);
	peer_close(p);
}

/* READ responses without a valid destination end the READ with a local error. */
RULE(read_into_nothing)
{
	struct wr wr;

	start(s, NULL);
	wr = (struct wr){.op = ROOST_OP_READ,
			 .wr_id = 1,
			 .sge = {{(uintptr_t)p->e.mem, 8, p->e.key ^ 1}},
			 .num_sge = 1,
			 .raddr = PEER_VA,
			 .rkey = PEER_RKEY};
	ep_post(&p->e, &wr);
	expect(p, PKT_READ_REQUEST, s);
	read_resp(PKT_READ_RESP_ONLY, s, 0, 8);
	expect_done(p, 1, NIC_WC_LOC_PROT_ERR);
	assert_int_equal(nic_qp_state(p->e.qp), NIC_QPS_ERR);
	peer_close(p);
}

/*
 * 11.2.5.2: without agreed resources a READ or atomic ends with an error, and does not hang.
 */
RULE(no_reads_agreed)
{
	struct ep_params ep = {.rd_atomic = 255};

	start(s, &ep);
	peer_post(p, ROOST_OP_WRITE, 1, 0, 8);
	peer_post(p, ROOST_OP_READ, 2, 0, 8);
	expect(p, PKT_WRITE_ONLY, s);
	expect_quiet(p, MSEC / 2);
	peer_ack(p, PKT_AETH_ACK, s, 1);
	expect_done(p, 1, NIC_WC_SUCCESS);
	expect_done(p, 2, NIC_WC_LOC_QP_OP_ERR);
	peer_close(p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(message_layout),
		cmocka_unit_test(ackreq_inside),
		cmocka_unit_test(coalesced_ack),
		cmocka_unit_test(sequence_nak),
		cmocka_unit_test(write_resumed_inside),
		cmocka_unit_test(stale_nak),
		cmocka_unit_test(duplicate_ack),
		cmocka_unit_test(ghost_answers),
		cmocka_unit_test(implied_nak_read),
		cmocka_unit_test(implied_nak_atomic),
		cmocka_unit_test(implied_nak_response),
		cmocka_unit_test(read_resumed_inside),
		cmocka_unit_test(many_reads),
		cmocka_unit_test(most_reads),
		cmocka_unit_test(fence),
		cmocka_unit_test(wait_reasons),
		cmocka_unit_test(nak_codes),
		cmocka_unit_test(bad_responses),
		cmocka_unit_test(reserved_syndrome),
		cmocka_unit_test(read_into_nothing),
		cmocka_unit_test(no_reads_agreed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
