/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Rules of retries, each with packets that the test makes for one NIC: RNR NAKs, time-outs and
 * repeated sequence NAKs, and when the requester continues or gives up. InfiniBand Architecture
 * Specification, volume 1, 9.7.5.2.8, 9.7.6.1.3, 9.9.2.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "peer.h"
#include "rule.h"

#define T(timeout) (4096ull << (timeout))

static struct peer P, *const p = &P;

/* IBA table 45: the code of an RNR NAK and the least time to wait, in units of 10 us. */
static const uint32_t rnr_time[32] = {65536, 1,	   2,	 3,	4,     6,     8,     12,
				      16,    24,   32,	 48,	64,    96,    128,   192,
				      256,   384,  512,	 768,	1024,  1536,  2048,  3072,
				      4096,  6144, 8192, 12288, 16384, 24576, 32768, 49152};

RULE(rnr_waits_named_time)
{
	for (uint8_t code = 0; code < 32; code++) {
		uint64_t wait = rnr_time[code] * 10000ull, at;
		const struct got *g;

		peer_open_requester(p, s, (struct ep_params){0});
		peer_post(p, ROOST_OP_SEND, 1, 0, 10);
		peer_post(p, ROOST_OP_WRITE, 2, 0, 10);
		expect(p, PKT_SEND_ONLY, s);
		expect(p, PKT_WRITE_ONLY, s + 1);
		at = world_now(&p->w);
		peer_rnr_nak(p, code, s);
		g = peer_get(p, 2 * wait);
		assert_non_null(g);
		assert_int_equal(g->v.opcode, PKT_SEND_ONLY);
		assert_in_range(g->at - at, wait, wait + 100000);
		expect(p, PKT_WRITE_ONLY, s + 1);
		peer_ack(p, PKT_AETH_ACK, s + 1, 2);
		expect_done(p, 1, NIC_WC_SUCCESS);
		expect_done(p, 2, NIC_WC_SUCCESS);
		peer_close(p);
	}
}

/* Acknowledgements and further RNR NAKs during the wait do not change it. */
RULE(rnr_wait_undisturbed)
{
	uint64_t at;
	const struct got *g;

	peer_open_requester(p, s, (struct ep_params){.rnr_retry = 1});
	peer_post(p, ROOST_OP_WRITE, 0, 0, 10);
	peer_post(p, ROOST_OP_SEND, 1, 0, 10);
	peer_run(p, PEER_SETTLE);
	peer_drain(p);
	at = world_now(&p->w);
	peer_rnr_nak(p, 20, s + 1); /* 10.24 ms; acknowledges the WRITE */
	expect_done(p, 0, NIC_WC_SUCCESS);
	peer_run(p, MSEC);
	peer_rnr_nak(p, 20, s + 1); /* a copy, not a second retry */
	peer_post(p, ROOST_OP_SEND, 2, 0, 10);
	peer_ack(p, PKT_AETH_ACK, s, 1);
	g = peer_get(p, 20 * MSEC);
	assert_int_equal(g->v.psn, (s + 1) & PKT_PSN_MASK);
	assert_in_range(g->at - at, 10240000, 10340000);
	expect(p, PKT_SEND_ONLY, s + 2);
	peer_close(p);
}

/* rnr_retry n: after n retries the work request ends with RNR retry exceeded. */
RULE(rnr_limit)
{
	for (uint8_t limit = 0; limit < 7; limit++) {
		peer_open_requester(p, s, (struct ep_params){.rnr_retry = limit ? limit : 255});
		peer_post(p, ROOST_OP_SEND, 1, 0, 10);
		peer_post(p, ROOST_OP_SEND, 2, 0, 10);
		for (unsigned i = 0; i <= limit; i++) {
			assert_int_equal(peer_get(p, MSEC / 2)->v.psn, s & PKT_PSN_MASK);
			assert_int_equal(peer_get(p, MSEC / 2)->v.psn, (s + 1) & PKT_PSN_MASK);
			assert_false(ep_poll_send(&p->e, &(struct roost_cqe){0}));
			peer_rnr_nak(p, 1, s);
		}
		expect_done(p, 1, NIC_WC_RNR_RETRY_EXC_ERR);
		expect_done(p, 2, NIC_WC_WR_FLUSH_ERR);
		assert_int_equal(nic_qp_state(p->e.qp), NIC_QPS_ERR);
		assert_int_equal(peer_counters(p).retry_rnr_exceeded_err, 1);
		assert_int_equal(peer_counters(p).rnr_nak_retry_err, limit + 1);
		expect_quiet(p, SEC);
		peer_close(p);
	}
}

/* Progress resets the count: three messages, each with the allowed number of RNR NAKs. */
RULE(rnr_limit_not_exceeded)
{
	peer_open_requester(p, s, (struct ep_params){.rnr_retry = 2});
	for (uint32_t m = 0; m < 3; m++) {
		peer_post(p, ROOST_OP_SEND, m, 0, 10);
		for (int i = 0; i < 2; i++) {
			assert_int_equal(peer_get(p, MSEC / 2)->v.psn, (s + m) & PKT_PSN_MASK);
			peer_rnr_nak(p, 1, s + m);
		}
		assert_non_null(peer_get(p, MSEC / 2));
		peer_ack(p, PKT_AETH_ACK, s + m, m + 1);
		expect_done(p, m, NIC_WC_SUCCESS);
	}
	peer_close(p);
}

/* Receives `n` packets from `psn` on, and no more. The last one requests an ACK. */
static void expect_flight(uint32_t psn, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		const struct got *g = peer_get(p, MSEC / 4);

		assert_non_null(g);
		assert_int_equal(g->v.psn, (psn + i) & PKT_PSN_MASK);
		assert_true(i + 1 < n || g->v.ackreq);
	}
	expect_quiet(p, MSEC / 4);
}

/*
 * After an RNR NAK as many packets are in flight as the responder took, so that few travel twice.
 * The number grows with acknowledgements.
 */
static void rnr_window(void **state)
{
	uint32_t s = 0xffffe0, flight = 2, acked;

	peer_open_requester(p, s, (struct ep_params){.rnr_retry = 7, .depth = 8});
	peer_post(p, ROOST_OP_SEND, 0, 0, 64 * 256);
	peer_post(p, ROOST_OP_SEND, 1, 0, 64 * 256);
	peer_post(p, ROOST_OP_SEND, 2, 0, 10);
	expect_flight(s, 129);
	peer_rnr_nak(p, 1, s + 4); /* half of the flight */
	expect_flight(s + 4, 64);
	peer_rnr_nak(p, 1, s + 64); /* three quarters of 60 */
	expect_flight(s + 64, 45);
	peer_ack(p, PKT_AETH_ACK, s + 64 + 44, 1);
	expect_flight(s + 64 + 45, 20);
	peer_rnr_nak(p, 1, s + 128); /* 19 of 20 */
	expect_flight(s + 128, 1);
	peer_ack(p, PKT_AETH_ACK, s + 128, 3);
	for (uint64_t i = 0; i < 3; i++)
		expect_done(p, i, NIC_WC_SUCCESS);
	peer_close(p);

	/* The least window has two packets. It grows by one and a sixteenth. */
	peer_open_requester(p, s, (struct ep_params){.rnr_retry = 7, .depth = 8});
	for (uint64_t i = 0; i < 8; i++)
		peer_post(p, ROOST_OP_SEND, i, 0, 64 * 256);
	expect_flight(s, 512);
	peer_rnr_nak(p, 1, s); /* half of 512: more than 255 packets are no window */
	expect_flight(s, 512);
	peer_ack(p, PKT_AETH_ACK, s + 127, 2);
	for (uint32_t n = 384 / 2; n > 2; n /= 2) {
		peer_rnr_nak(p, 1, s + 128);
		expect_flight(s + 128, n);
	}
	peer_rnr_nak(p, 1, s + 128);
	for (acked = 128; acked + flight < 512; acked += flight, flight += flight / 16 + 1) {
		expect_flight(s + acked, flight);
		peer_ack(p, PKT_AETH_ACK, s + acked + flight - 1, (acked + flight) / 64);
	}
	expect_flight(s + acked, 512 - acked);
	peer_close(p);
}

RULE(rnr_for_ever)
{
	peer_open_requester(p, s, (struct ep_params){.rnr_retry = 7, .retry_cnt = 1});
	peer_post(p, ROOST_OP_SEND, 1, 0, 10);
	for (int i = 0; i < 1000; i++) {
		const struct got *g = peer_get(p, SEC);

		assert_int_equal(g->v.opcode, PKT_SEND_ONLY);
		peer_rnr_nak(p, 31, s); /* 491.52 ms: 8 minutes in all */
	}
	assert_non_null(peer_get(p, SEC));
	peer_ack(p, PKT_AETH_ACK, s, 1);
	expect_done(p, 1, NIC_WC_SUCCESS);
	peer_close(p);
}

/*
 * 9.7.6.1.3, C9-141: a time-out T expires between T and 4T. With T below the interval of the probes
 * only time-outs send packets again.
 */
RULE(timeout_bounds)
{
	for (uint8_t timeout = 1; timeout < 6; timeout++) {
		uint64_t last;

		peer_open_requester(p, s, (struct ep_params){.timeout = timeout, .retry_cnt = 7});
		last = world_now(&p->w);
		peer_post(p, ROOST_OP_WRITE, 1, 0, 10);
		last = expect(p, PKT_WRITE_ONLY, s)->at;
		for (int i = 0; i < 7; i++) {
			const struct got *g = peer_get(p, 5 * T(timeout));

			assert_non_null(g);
			assert_int_equal(g->v.psn, s & PKT_PSN_MASK);
			assert_in_range(g->at - last, T(timeout), 4 * T(timeout));
			last = g->at;
		}
		assert_false(ep_poll_send(&p->e, &(struct roost_cqe){0}));
		expect_quiet(p, 5 * T(timeout));
		expect_done(p, 1, NIC_WC_RETRY_EXC_ERR);
		assert_int_equal(peer_counters(p).local_ack_timeout_err, 8);
		assert_int_equal(peer_counters(p).retry_exceeded_err, 1);
		assert_int_equal(nic_qp_state(p->e.qp), NIC_QPS_ERR);
		peer_close(p);
	}
}

/*
 * retry_cnt n: n retries, with any time-out; the error comes between (n + 1) T and (n + 1) 4T.
 */
RULE(timeout_exceeded)
{
	for (uint8_t retries = 0; retries < 8; retries++) {
		uint64_t first, took;
		struct roost_cqe c;

		peer_open_requester(
			p, s,
			(struct ep_params){.timeout = 14, .retry_cnt = retries ? retries : 255});
		peer_post(p, ROOST_OP_READ, 1, 0, 600);
		peer_post(p, ROOST_OP_SEND, 2, 0, 10);
		first = world_now(&p->w);
		assert_true(ep_wait_send(&p->e, &c, 100 * SEC));
		took = world_now(&p->w) - first;
		assert_int_equal(c.status, NIC_WC_RETRY_EXC_ERR);
		assert_int_equal(c.wr_id, 1);
		assert_in_range(took, (retries + 1) * T(14), (retries + 1) * 4 * T(14) + MSEC);
		expect_done(p, 2, NIC_WC_WR_FLUSH_ERR);
		assert_int_equal(peer_counters(p).local_ack_timeout_err, retries + 1);
		peer_close(p);
	}
}

/* An answer to the last retry is accepted, and the next request has all its retries. */
RULE(timeout_not_exceeded)
{
	peer_open_requester(p, s, (struct ep_params){.timeout = 3, .retry_cnt = 3});
	for (uint32_t m = 0; m < 3; m++) {
		peer_post(p, ROOST_OP_WRITE, m, 0, 10);
		for (int i = 0; i < 4; i++)
			assert_int_equal(peer_get(p, 5 * T(3))->v.psn, (s + m) & PKT_PSN_MASK);
		peer_ack(p, PKT_AETH_ACK, s + m, m + 1);
		expect_done(p, m, NIC_WC_SUCCESS);
	}
	assert_int_equal(peer_counters(p).local_ack_timeout_err, 9);
	/* Progress inside a message counts too. */
	peer_post(p, ROOST_OP_WRITE, 9, 0, 6 * 256);
	for (uint32_t i = 0; i < 6; i++) {
		for (int k = 0; k < 3; k++) {
			peer_run(p, T(3));
			peer_run(p, T(3));
		}
		peer_ack(p, PKT_AETH_ACK, s + 3 + i, 3);
	}
	expect_done(p, 9, NIC_WC_SUCCESS);
	peer_close(p);
}

static void read_resp(uint32_t psn)
{
	peer_send(p, &(struct pkt_make){.opcode = PKT_READ_RESP_ONLY, .psn = psn, .len = 8});
}

/*
 * After a time-out one READ is requested again, and twice as many with each round trip that brings
 * responses.
 */
RULE(reads_after_timeout)
{
	uint32_t asked = 1, answered = 0;

	peer_open_requester(p, s, (struct ep_params){.timeout = 3, .rd_atomic = 16});
	for (uint64_t i = 0; i < 16; i++)
		peer_post(p, ROOST_OP_READ, i, 8 * i, 8);
	for (uint32_t i = 0; i < 16; i++)
		expect(p, PKT_READ_REQUEST, s + i);
	assert_non_null(peer_get(p, 2 * T(3)));
	assert_int_equal(peer_counters(p).local_ack_timeout_err, 1);
	assert_int_equal(p->ring[16].v.psn, s & PKT_PSN_MASK);
	expect_quiet(p, T(3) / 2);
	/* A late response to a READ that was not requested again does not cause a request. */
	read_resp(s + 9);
	expect_quiet(p, T(3) / 8);
	while (answered < 15) {
		for (uint32_t end = asked; answered < end && answered < 15; answered++) {
			read_resp(s + answered);
			expect_done(p, answered, NIC_WC_SUCCESS);
			for (int i = 0; i < 2 && asked < 16; i++)
				expect(p, PKT_READ_REQUEST, s + asked++);
			expect_quiet(p, PEER_SETTLE);
		}
	}
	assert_int_equal(asked, 16);
	read_resp(s + 15);
	expect_done(p, 15, NIC_WC_SUCCESS);
	/* After all responses the agreed number of READs is sent. */
	for (uint64_t i = 0; i < 17; i++)
		peer_post(p, ROOST_OP_READ, i, 8 * i, 8);
	for (uint32_t i = 16; i < 32; i++)
		expect(p, PKT_READ_REQUEST, s + i);
	expect_quiet(p, T(3) / 8);
	peer_close(p);
}

/*
 * After a loss fewer READs are outstanding, but never more than max_rd_atomic, which may have been
 * reduced meanwhile.
 */
static void smaller_max_rd_atomic(void **state)
{
	struct nic_qp_attr a = {.state = NIC_QPS_SQD, .max_rd_atomic = 2};

	peer_open_requester(p, 7, (struct ep_params){.rd_atomic = 64});
	for (uint64_t i = 0; i < 6; i++)
		peer_post(p, ROOST_OP_READ, i, 0, 8);
	peer_run(p, PEER_SETTLE);
	read_resp(7 + 1); /* the first response is lost */
	for (uint32_t i = 0; i < 6; i++)
		read_resp(7 + i);
	for (uint64_t i = 0; i < 6; i++)
		expect_done(p, i, NIC_WC_SUCCESS);
	assert_int_equal(ep_modify(&p->e, &a, NIC_QPA_STATE), 0);
	assert_int_equal(ep_modify(&p->e, &a, NIC_QPA_MAX_QP_RD_ATOMIC), 0);
	a.state = NIC_QPS_RTS;
	assert_int_equal(ep_modify(&p->e, &a, NIC_QPA_STATE), 0);
	peer_drain(p);
	for (uint64_t i = 0; i < 6; i++)
		peer_post(p, ROOST_OP_READ, i, 0, 8);
	expect(p, PKT_READ_REQUEST, 13);
	expect(p, PKT_READ_REQUEST, 14);
	expect_quiet(p, PEER_SETTLE);
	read_resp(13);
	expect(p, PKT_READ_REQUEST, 15);
	expect_quiet(p, PEER_SETTLE);
	peer_close(p);
}

/*
 * A responder needs half a millisecond for each READ, also for copies, and a tenth of its responses
 * are lost. READs that are requested again in vain delay the others.
 */
RULE(reads_from_a_slow_responder)
{
	enum { READS = 1000, AT_A_TIME = 128, SERVE = 500000 };
	static uint32_t queue[1 << 16];
	uint32_t head = 0, tail = 0, posted = 0, done = 0;
	uint64_t ready = 0;
	struct roost_cqe c;
	struct rng rng;

	rng_seed(&rng, s + 3);
	peer_open_requester(
		p, s,
		(struct ep_params){.timeout = 12, .rd_atomic = AT_A_TIME, .depth = AT_A_TIME});
	while (done < READS) {
		const struct got *g;

		for (; posted < READS && posted - done < AT_A_TIME; posted++)
			peer_post(p, ROOST_OP_READ, posted, 0, 8);
		g = peer_get(p, head == tail ? 100 * MSEC : ready - world_now(&p->w));
		if (g) {
			if (head == tail)
				ready = g->at + SERVE;
			queue[head++ % (1 << 16)] = g->v.psn;
			assert_in_range(head - tail, 1, 1 << 16);
		} else {
			assert_int_not_equal(head, tail);
		}
		if (head != tail && world_now(&p->w) >= ready) {
			if (rng_below(&rng, 10))
				read_resp(queue[tail % (1 << 16)]);
			tail++;
			ready = world_now(&p->w) + SERVE;
		}
		for (; ep_poll_send(&p->e, &c); done++) {
			assert_int_equal(c.status, NIC_WC_SUCCESS);
			assert_int_equal(c.wr_id, done);
		}
	}
	print_message("%u READs, %u requests, %.1f s\n", READS, head,
		      (double)world_now(&p->w) / SEC);
	peer_close(p);
}

/* 11.2.5.2: with time-out 0 the requester waits without a limit. */
RULE(timeout_zero)
{
	peer_open_requester(p, s, (struct ep_params){.timeout = 255, .retry_cnt = 1});
	peer_post(p, ROOST_OP_WRITE, 1, 0, 10);
	for (int i = 0; i < 100; i++) {
		peer_run(p, 10 * SEC);
		peer_drain(p);
	}
	assert_int_equal(nic_qp_state(p->e.qp), NIC_QPS_RTS);
	assert_int_equal(peer_counters(p).local_ack_timeout_err, 0);
	peer_ack(p, PKT_AETH_ACK, s, 1);
	expect_done(p, 1, NIC_WC_SUCCESS);
	peer_close(p);
}

/* The NIC's scale multiplies all time-outs, for debuggers. */
static void timeout_scale(void **state)
{
	struct ep_params ep = {.timeout = 10, .retry_cnt = 255};
	struct world w;
	struct ep a, b;
	struct wr wr;
	struct roost_cqe c;
	uint64_t took;

	world_init_shape(&w, &(struct world_shape){.nics = 2, .timeout_scale = 1000}, 5,
			 &(struct sim_params){.loss = 1});
	ep_init(&a, &w, 0, &ep);
	ep_init(&b, &w, 1, &ep);
	ep_connect(&a, &b);
	wr = wr_rdma(ROOST_OP_WRITE, &a, 0, 8, &b, 0);
	took = world_now(&w);
	ep_post(&a, &wr);
	assert_true(ep_wait_send(&a, &c, 100 * SEC));
	took = world_now(&w) - took;
	assert_int_equal(c.status, NIC_WC_RETRY_EXC_ERR);
	assert_in_range(took, 1000 * T(10), 4000 * T(10));
	ep_fini(&a);
	ep_fini(&b);
	world_fini(&w);
}

/* 9.7.5.2.4: a sequence NAK counts as a retry. Without progress retry_cnt of them are allowed. */
RULE(sequence_nak_exceeded)
{
	for (uint8_t retries = 0; retries < 8; retries++) {
		unsigned tries = 0;

		peer_open_requester(p, s, (struct ep_params){.retry_cnt = retries ? retries : 255});
		peer_post(p, ROOST_OP_WRITE, 1, 0, 10);
		peer_post(p, ROOST_OP_WRITE, 2, 0, 10);
		while (peer_get(p, MSEC / 2)) {
			tries++;
			expect(p, PKT_WRITE_ONLY, s + 1);
			peer_ack(p, PKT_NAK_PSN_SEQ, s, 0);
			assert_in_range(tries, 1, 9);
		}
		/* The first NAK is for the first loss, and the requester always resends. */
		assert_in_range(tries, retries + 1u, retries + 2u);
		expect_done(p, 1, NIC_WC_RETRY_EXC_ERR);
		expect_done(p, 2, NIC_WC_WR_FLUSH_ERR);
		assert_int_equal(peer_counters(p).retry_exceeded_err, 1);
		peer_close(p);
	}
}

RULE(sequence_nak_not_exceeded)
{
	static const uint8_t tries[] = {1, 255}; /* one, none */

	for (unsigned k = 0; k < 2; k++) {
		peer_open_requester(p, s, (struct ep_params){.retry_cnt = tries[k]});
		for (uint64_t i = 0; i < 50; i++)
			peer_post(p, ROOST_OP_WRITE, i, 0, 10);
		/* Each NAK names the next PSN: progress. */
		for (uint32_t i = 1; i < 50; i++) {
			peer_run(p, PEER_SETTLE);
			peer_drain(p);
			peer_ack(p, PKT_NAK_PSN_SEQ, s + i, i);
			expect(p, PKT_WRITE_ONLY, s + i);
		}
		peer_ack(p, PKT_AETH_ACK, s + 49, 50);
		for (uint64_t i = 0; i < 50; i++)
			expect_done(p, i, NIC_WC_SUCCESS);
		peer_close(p);
	}
}

/* Takes packets until none comes for `ns`. Returns their number. */
static unsigned take_all(uint64_t ns)
{
	unsigned n = 0;

	while (peer_get(p, ns))
		n++;
	return n;
}

/*
 * Packets behind a SEND without a receive are out of sequence, and some responders (rxe) send a
 * sequence NAK behind their RNR NAK. No packet is lost then: the wait continues, and such NAKs
 * never count as retries.
 */
RULE(sequence_nak_behind_rnr)
{
	peer_open_requester(p, s, (struct ep_params){.retry_cnt = 1, .rnr_retry = 7});
	peer_post(p, ROOST_OP_SEND, 1, 0, 10);
	peer_post(p, ROOST_OP_SEND, 2, 0, 10);
	for (int i = 0; i < 20; i++) {
		assert_int_equal(take_all(MSEC / 2), 2);
		peer_rnr_nak(p, 14, s); /* 1.28 ms */
		peer_ack(p, PKT_NAK_PSN_SEQ, s, 0);
		expect_quiet(p, MSEC);
	}
	assert_int_equal(take_all(MSEC / 2), 2);
	peer_ack(p, PKT_AETH_ACK, s + 1, 2);
	expect_done(p, 1, NIC_WC_SUCCESS);
	expect_done(p, 2, NIC_WC_SUCCESS);
	peer_close(p);
}

/* Asserts that the QP continues: another WRITE, with this PSN, succeeds. */
static void goes_on(uint32_t psn)
{
	assert_int_equal(nic_qp_state(p->e.qp), NIC_QPS_RTS);
	peer_post(p, ROOST_OP_WRITE, 9, 0, 10);
	expect(p, PKT_WRITE_ONLY, psn);
	peer_ack(p, PKT_AETH_ACK, psn, 0);
	expect_done(p, 9, NIC_WC_SUCCESS);
}

/*
 * A WRITE cannot be sent again, because its memory is gone. It fails once the requests before it
 * are done, unless the responder acknowledges its first copy: then it has succeeded.
 */
static void acknowledged_but_unreadable(void **state)
{
	for (int acked = 0; acked < 2; acked++) {
		struct nic_mr_attr a = {.len = 600};
		struct wr wr = {.op = ROOST_OP_WRITE, .wr_id = 2, .num_sge = 1};

		peer_open_requester(p, 7, (struct ep_params){0});
		a.pd = p->e.pd;
		a.addr = p->e.mem;
		wr.sge[0] = (struct roost_sge){0, 600, 0};
		assert_int_equal(nic_mr_register(p->e.nic, &a, &wr.sge[0].lkey), 0);
		peer_post(p, ROOST_OP_WRITE, 1, 0, 10);
		ep_post(&p->e, &wr);
		assert_int_equal(take_all(PEER_SETTLE), 4);
		assert_int_equal(nic_mr_deregister(p->e.nic, wr.sge[0].lkey), 0);
		peer_ack(p, PKT_NAK_PSN_SEQ, 7, 0);
		expect(p, PKT_WRITE_ONLY, 7);
		expect_quiet(p, PEER_SETTLE);
		peer_ack(p, PKT_AETH_ACK, acked ? 10 : 7, acked ? 2 : 1);
		expect_done(p, 1, NIC_WC_SUCCESS);
		expect_done(p, 2, acked ? NIC_WC_SUCCESS : NIC_WC_LOC_PROT_ERR);
		if (acked)
			goes_on(11);
		else
			assert_int_equal(nic_qp_state(p->e.qp), NIC_QPS_ERR);
		peer_close(p);
	}
}

/* The same for a READ that may not be requested again: its first request is answered late. */
static void answered_but_refused(void **state)
{
	struct nic_qp_attr a;

	peer_open_requester(p, 7, (struct ep_params){0});
	peer_post(p, ROOST_OP_SEND, 1, 0, 10);
	peer_post(p, ROOST_OP_READ, 2, 0, 10);
	assert_int_equal(take_all(PEER_SETTLE), 2);
	peer_rnr_nak(p, 14, 7); /* 1.28 ms */
	peer_attr(p, &a);
	a.state = NIC_QPS_SQD;
	assert_int_equal(ep_modify(&p->e, &a, NIC_QPA_STATE), 0);
	a.max_rd_atomic = 0;
	assert_int_equal(ep_modify(&p->e, &a, NIC_QPA_MAX_QP_RD_ATOMIC), 0);
	assert_int_equal(peer_get(p, 2 * MSEC)->v.opcode, PKT_SEND_ONLY);
	expect_quiet(p, PEER_SETTLE);
	peer_send(p,
		  &(struct pkt_make){.opcode = PKT_READ_RESP_ONLY, .psn = 8, .msn = 2, .len = 10});
	expect_done(p, 1, NIC_WC_SUCCESS);
	expect_done(p, 2, NIC_WC_SUCCESS);
	assert_int_equal(p->e.mem[9], pkt_pattern(9));
	a.state = NIC_QPS_RTS;
	assert_int_equal(ep_modify(&p->e, &a, NIC_QPA_STATE), 0);
	goes_on(9);
	peer_close(p);
}

/* Counters of NAKs count all packets, as a capture does, also copies and late ones. */
RULE(naks_counted)
{
	peer_open_requester(p, s, (struct ep_params){0});
	for (uint64_t i = 0; i < 4; i++)
		peer_post(p, ROOST_OP_SEND, i, 0, 10);
	peer_run(p, PEER_SETTLE);
	peer_ack(p, PKT_NAK_PSN_SEQ, s + 2, 2);
	peer_ack(p, PKT_AETH_ACK, s + 2, 3);
	peer_ack(p, PKT_NAK_PSN_SEQ, s + 1, 2);
	peer_ack(p, PKT_AETH_TYPE_RNR | 1, s + 1, 2);
	peer_ack(p, PKT_AETH_TYPE_RNR | 1, s + 3, 2);
	peer_ack(p, PKT_AETH_TYPE_RNR | 1, s + 3, 2);
	assert_int_equal(peer_counters(p).packet_seq_err, 2);
	assert_int_equal(peer_counters(p).rnr_nak_retry_err, 3);
	peer_close(p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(rnr_waits_named_time),
		cmocka_unit_test(rnr_wait_undisturbed),
		cmocka_unit_test(rnr_limit),
		cmocka_unit_test(rnr_limit_not_exceeded),
		cmocka_unit_test(rnr_window),
		cmocka_unit_test(rnr_for_ever),
		cmocka_unit_test(timeout_bounds),
		cmocka_unit_test(timeout_exceeded),
		cmocka_unit_test(timeout_not_exceeded),
		cmocka_unit_test(reads_after_timeout),
		cmocka_unit_test(smaller_max_rd_atomic),
		cmocka_unit_test(reads_from_a_slow_responder),
		cmocka_unit_test(timeout_zero),
		cmocka_unit_test(timeout_scale),
		cmocka_unit_test(sequence_nak_exceeded),
		cmocka_unit_test(sequence_nak_not_exceeded),
		cmocka_unit_test(sequence_nak_behind_rnr),
		cmocka_unit_test(acknowledged_but_unreadable),
		cmocka_unit_test(answered_but_refused),
		cmocka_unit_test(naks_counted),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
