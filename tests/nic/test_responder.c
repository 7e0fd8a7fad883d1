/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Rules of the responder, each with packets that the test makes for one NIC: the requests that it
 * executes, once or again, and its answers and their order. test_refuse.c tests the packets that it
 * refuses. InfiniBand Architecture Specification, volume 1, 9.7.4, 9.7.5.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "peer.h"
#include "rule.h"

#define MTU 256

static struct peer P, *const p = &P;

static void start(uint32_t s, struct ep_params ep)
{
	ep.mtu = MTU;
	peer_open(p, &ep, s);
}

static void post_recvs(unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		struct roost_sge sge = ep_sge(&p->e, 32768 + 1024 * i, 1024);

		ep_post_recv(&p->e, 100 + i, &sge, 1);
	}
}

static uint64_t va(uint64_t off)
{
	return (uintptr_t)p->e.mem + off;
}

static struct pkt_make mk_send(uint32_t psn, uint32_t len)
{
	return (struct pkt_make){.opcode = PKT_SEND_ONLY, .psn = psn, .ackreq = true, .len = len};
}

static struct pkt_make mk_write(uint32_t psn, uint64_t off, uint32_t len)
{
	return (struct pkt_make){.opcode = PKT_WRITE_ONLY,
				 .psn = psn,
				 .ackreq = true,
				 .va = va(off),
				 .rkey = p->e.key,
				 .dmalen = len,
				 .len = len};
}

static struct pkt_make mk_read(uint32_t psn, uint64_t off, uint32_t len)
{
	return (struct pkt_make){.opcode = PKT_READ_REQUEST,
				 .psn = psn,
				 .ackreq = true,
				 .va = va(off),
				 .rkey = p->e.key,
				 .dmalen = len};
}

static struct pkt_make mk_add(uint32_t psn, uint64_t off, uint64_t add)
{
	return (struct pkt_make){.opcode = PKT_FETCH_ADD,
				 .psn = psn,
				 .ackreq = true,
				 .va = va(off),
				 .rkey = p->e.key,
				 .swap_add = add};
}

#define SEND(m)                                                                                    \
	do {                                                                                       \
		struct pkt_make m_ = (m);                                                          \
		peer_send(p, &m_);                                                                 \
	} while (0)
#define PUT(m)                                                                                     \
	do {                                                                                       \
		struct pkt_make m_ = (m);                                                          \
		peer_put(p, &m_);                                                                  \
	} while (0)

/* Checks READ responses of `n` packets, whose payload is the memory at `off`. */
static void expect_read(uint32_t psn, uint64_t off, uint32_t len, uint32_t msn)
{
	uint32_t n = len ? (len + MTU - 1) / MTU : 1;

	for (uint32_t i = 0; i < n; i++) {
		uint8_t op = n == 1	  ? PKT_READ_RESP_ONLY
			     : i == 0	  ? PKT_READ_RESP_FIRST
			     : i == n - 1 ? PKT_READ_RESP_LAST
					  : PKT_READ_RESP_MIDDLE;
		const struct got *g = expect(p, op, psn + i);
		uint32_t part = i == n - 1 ? len - i * MTU : MTU;

		assert_int_equal(g->v.payload_len, part);
		assert_memory_equal(g->v.payload, p->e.mem + off + i * MTU, part);
		if (op != PKT_READ_RESP_MIDDLE) {
			assert_int_equal(g->v.syndrome, PKT_AETH_ACK);
			assert_int_equal(g->v.msn, msn);
		}
	}
}

/*
 * 9.7.5.1.2, 9.7.7.1: the ACK of a request with AckReq: its PSN, the count of messages, no credits.
 */
RULE(ack_and_msn)
{
	const struct got *g;

	start(s, (struct ep_params){0});
	post_recvs(4);
	SEND(mk_write(s, 0, 10));
	assert_int_equal(expect_ack(p, PKT_AETH_ACK, s)->v.msn, 1);
	/* A message counts when it is complete. */
	SEND(((struct pkt_make){
		.opcode = PKT_SEND_FIRST, .psn = s + 1, .ackreq = true, .len = MTU}));
	assert_int_equal(expect_ack(p, PKT_AETH_ACK, s + 1)->v.msn, 1);
	SEND(((struct pkt_make){.opcode = PKT_SEND_LAST, .psn = s + 2, .ackreq = true, .len = 1}));
	assert_int_equal(expect_ack(p, PKT_AETH_ACK, s + 2)->v.msn, 2);
	expect_recv(p, 100, NIC_WC_SUCCESS, MTU + 1);
	SEND(mk_read(s + 3, 0, 3 * MTU));
	expect_read(s + 3, 0, 3 * MTU, 3);
	SEND(mk_add(s + 6, 0, 1));
	g = expect(p, PKT_ATOMIC_ACK, s + 6);
	assert_int_equal(g->v.msn, 4);
	assert_int_equal(g->v.syndrome, PKT_AETH_ACK);
	SEND(mk_write(s + 7, 0, 0));
	assert_int_equal(expect_ack(p, PKT_AETH_ACK, s + 7)->v.msn, 5);
	peer_close(p);
}

/* 9.7.5.1.2: without AckReq no ACK is sent, now or later. */
RULE(ackreq_honoured)
{
	struct pkt_make m;

	start(s, (struct ep_params){0});
	post_recvs(4);
	for (uint32_t i = 0; i < 4; i++) {
		m = i & 1 ? mk_send(s + i, 10) : mk_write(s + i, 0, 10);
		m.ackreq = false;
		peer_send(p, &m);
	}
	expect_quiet(p, 10 * SEC);
	expect_recv(p, 100, NIC_WC_SUCCESS, 10);
	expect_recv(p, 101, NIC_WC_SUCCESS, 10);
	/* The ACK of the next request with AckReq acknowledges all of them. */
	SEND(mk_write(s + 4, 0, 10));
	assert_int_equal(expect_ack(p, PKT_AETH_ACK, s + 4)->v.msn, 5);
	expect_quiet(p, SEC);
	/* Requests of one burst may share one ACK: that of the last request. */
	PUT(mk_write(s + 5, 0, 10));
	PUT(mk_write(s + 6, 0, 10));
	PUT(mk_write(s + 7, 0, 10));
	peer_run(p, PEER_SETTLE);
	while (p->tail + 1 != p->head)
		peer_get(p, 0);
	assert_int_equal(expect_ack(p, PKT_AETH_ACK, s + 7)->v.msn, 8);
	peer_close(p);
}

/* 9.7.5.2.4: one NAK for each gap, with the first missing PSN; no more until it arrives. */
RULE(one_nak_a_gap)
{
	const struct got *g;

	start(s, (struct ep_params){0});
	SEND(mk_write(s, 0, 10));
	expect_ack(p, PKT_AETH_ACK, s);
	memset(p->e.mem, 0, 64);
	SEND(mk_write(s + 2, 0, 10));
	g = expect_ack(p, PKT_NAK_PSN_SEQ, s + 1);
	assert_int_equal(g->v.msn, 1);
	SEND(mk_write(s + 3, 0, 10));
	SEND(mk_write(s + 4, 0, 10));
	SEND(mk_write(s + 100, 0, 10));
	SEND(mk_read(s + 5, 0, 10));
	expect_quiet(p, SEC);
	assert_int_equal(p->e.mem[0], 0);
	assert_int_equal(peer_counters(p).out_of_sequence, 1);
	/* Duplicates of packets before the gap are acknowledged. */
	SEND(mk_write(s, 0, 10));
	expect_ack(p, PKT_AETH_ACK, s);
	SEND(mk_write(s + 1, 0, 10));
	expect_ack(p, PKT_AETH_ACK, s + 1);
	/* Another gap causes another NAK. */
	SEND(mk_write(s + 4, 0, 10));
	expect_ack(p, PKT_NAK_PSN_SEQ, s + 2);
	SEND(mk_write(s + 2, 0, 10));
	expect_ack(p, PKT_AETH_ACK, s + 2);
	SEND(mk_write(s + 5, 0, 10));
	expect_ack(p, PKT_NAK_PSN_SEQ, s + 3);
	assert_int_equal(peer_counters(p).out_of_sequence, 3);
	assert_int_equal(nic_qp_state(p->e.qp), NIC_QPS_RTS);
	peer_close(p);
}

/* 9.7.5.1.5: a duplicate SEND or WRITE is acknowledged again and not executed again. */
RULE(duplicate_send_write)
{
	start(s, (struct ep_params){0});
	post_recvs(2);
	SEND(mk_send(s, 10));
	SEND(mk_write(s + 1, 0, 10));
	SEND(mk_write(s + 2, 100, 10));
	peer_drain(p);
	expect_recv(p, 100, NIC_WC_SUCCESS, 10);
	memset(p->e.mem, 0xdd, 200);
	memset(p->e.mem + 32768, 0xdd, 2048);
	for (int i = 0; i < 3; i++) {
		SEND(mk_send(s, 10));
		/* The latest PSN and MSN: 9.7.5.1.5. */
		assert_int_equal(expect_ack(p, PKT_AETH_ACK, s + 2)->v.msn, 3);
		SEND(mk_write(s + 1, 0, 10));
		assert_int_equal(expect_ack(p, PKT_AETH_ACK, s + 2)->v.msn, 3);
	}
	/* Also a duplicate whose key is not valid any more. */
	{
		struct pkt_make m = mk_write(s + 1, 0, 10);

		m.rkey ^= 0x55;
		peer_send(p, &m);
		expect_ack(p, PKT_AETH_ACK, s + 2);
	}
	assert_false(ep_poll_recv(&p->e, &(struct roost_cqe){0}));
	for (int i = 0; i < 200; i++)
		assert_int_equal(p->e.mem[i], 0xdd);
	assert_int_equal(p->e.mem[32768 + 1024], 0xdd);
	assert_int_equal(peer_counters(p).duplicate_request, 7);
	SEND(mk_send(s + 3, 10));
	expect_recv(p, 101, NIC_WC_SUCCESS, 10);
	peer_close(p);
}

/*
 * A message whose first packets have arrived comes again from its beginning. These packets are
 * duplicates, and the message continues behind them; a SEND continues in the receive that it took.
 */
RULE(partial_message_retried)
{
	for (unsigned send = 0; send < 2; send++) {
		uint64_t at = send ? 32768 : 0;
		struct pkt_make m[4] = {0};

		start(s, (struct ep_params){0});
		post_recvs(2);
		for (uint32_t i = 0; i < 4; i++) {
			m[i] = mk_write(s + i, 0, i < 3 ? MTU : 10);
			m[i].dmalen = 3 * MTU + 10;
			m[i].ackreq = i == 3;
			m[i].opcode = (uint8_t)((send ? PKT_SEND_FIRST : PKT_WRITE_FIRST) +
						(i == 0	 ? 0
						 : i < 3 ? 1
							 : 2));
		}
		peer_send(p, &m[0]);
		peer_send(p, &m[1]);
		peer_send(p, &m[3]);
		expect_ack(p, PKT_NAK_PSN_SEQ, s + 2);
		memset(p->e.mem + at, 0xdd, 2 * MTU);
		peer_send(p, &m[0]);
		expect_ack(p, PKT_AETH_ACK, s + 1);
		peer_send(p, &m[1]);
		expect_ack(p, PKT_AETH_ACK, s + 1);
		peer_send(p, &m[2]);
		peer_send(p, &m[3]);
		assert_int_equal(expect_ack(p, PKT_AETH_ACK, s + 3)->v.msn, 1);
		for (uint32_t i = 0; i < 3 * MTU + 10; i++)
			assert_int_equal(p->e.mem[at + i],
					 i < 2 * MTU ? 0xdd : pkt_pattern(i % MTU));
		assert_int_equal(p->e.mem[at + 3 * MTU + 10], 0);
		if (send)
			expect_recv(p, 100, NIC_WC_SUCCESS, 3 * MTU + 10);
		assert_int_equal(peer_counters(p).duplicate_request, 2);
		peer_close(p);
	}
}

/*
 * 9.7.5.1.5: a duplicate READ is executed again: it reads the present memory at the address and
 * with the length of the duplicate.
 */
RULE(duplicate_read)
{
	struct pkt_make m;

	start(s, (struct ep_params){0});
	memset(p->e.mem, 1, 4096);
	SEND(mk_read(s, 0, 4 * MTU + 5));
	expect_read(s, 0, 4 * MTU + 5, 1);
	SEND(mk_write(s + 5, 8000, 10));
	expect_ack(p, PKT_AETH_ACK, s + 5);
	memset(p->e.mem, 2, 4096);
	SEND(mk_read(s, 0, 4 * MTU + 5));
	expect_read(s, 0, 4 * MTU + 5, 1);
	/* From the middle to its end, and a part. */
	SEND(mk_read(s + 2, 2 * MTU, 2 * MTU + 5));
	expect_read(s + 2, 2 * MTU, 2 * MTU + 5, 1);
	SEND(mk_read(s + 1, MTU, MTU));
	expect_read(s + 1, MTU, MTU, 1);
	SEND(mk_read(s + 1, MTU, 100));
	expect_read(s + 1, MTU, 100, 1);
	/* A request that exceeds the first one is no duplicate of it, and is dropped. */
	SEND(mk_read(s + 1, MTU, 4 * MTU));
	SEND(mk_read(s + 1, 0, MTU));
	SEND(mk_read(s + 4, 4 * MTU, MTU));
	SEND(mk_read(s + 5, 4 * MTU, 5));
	m = mk_read(s, 0, 4 * MTU + 5);
	m.rkey ^= 1;
	peer_send(p, &m);
	SEND(mk_add(s, 0, 1));
	expect_quiet(p, SEC);
	assert_int_equal(p->e.mem[0], 2);
	/* The stream continues. */
	SEND(mk_write(s + 6, 8000, 10));
	assert_int_equal(expect_ack(p, PKT_AETH_ACK, s + 6)->v.msn, 3);
	peer_close(p);
}

/*
 * A requester may probe with an earlier READ while this NIC was not running: both arrive in one
 * burst. The requester has not gone back, so the READs behind the first one are answered, each
 * once. The same holds for an atomic.
 */
RULE(probe_of_waiting_read)
{
	struct pkt_make m[4];

	for (unsigned atomic = 0; atomic < 2; atomic++) {
		start(s, (struct ep_params){0});
		m[0] = atomic ? mk_add(s, 0, 1) : mk_read(s, 0, 100);
		m[1] = mk_read(s + 1, 0, 2 * MTU + 5);
		m[2] = mk_read(s + 4, 200, 10);
		m[3] = m[0];
		for (unsigned i = 0; i < 4; i++)
			peer_put(p, &m[i]);
		if (atomic)
			expect(p, PKT_ATOMIC_ACK, s);
		else
			expect_read(s, 0, 100, 1);
		expect_read(s + 1, 0, 2 * MTU + 5, 2);
		expect_read(s + 4, 200, 10, 3);
		expect_quiet(p, SEC);
		assert_int_equal(peer_counters(p).duplicate_request, 1);
		peer_close(p);
	}
}

/*
 * A copy of a READ that was completely answered, and whose memory may not be read any more, since
 * the key was revoked after the READ. The copy is dropped, and the connection continues.
 */
RULE(duplicate_read_without_memory)
{
	uint32_t key;
	struct nic_mr_attr a = {.access = NIC_ACCESS_REMOTE_READ, .len = 3 * MTU};
	struct pkt_make m;

	start(s, (struct ep_params){0});
	a.pd = p->e.pd;
	a.addr = p->e.mem;
	a.iova = va(0);
	assert_int_equal(nic_mr_register(p->e.nic, &a, &key), 0);
	m = mk_read(s, 0, 3 * MTU);
	m.rkey = key;
	SEND(m);
	expect_read(s, 0, 3 * MTU, 1);
	assert_int_equal(nic_mr_deregister(p->e.nic, key), 0);
	SEND(m);
	m = mk_read(s + 1, MTU, 2 * MTU);
	m.rkey = key;
	SEND(m);
	expect_quiet(p, SEC);
	assert_int_equal(nic_qp_state(p->e.qp), NIC_QPS_RTS);
	assert_int_equal(peer_counters(p).duplicate_request, 2);
	assert_int_equal(peer_counters(p).resp_remote_access_errors, 0);
	SEND(mk_read(s + 3, 0, 10));
	expect_read(s + 3, 0, 10, 2);
	/* A new READ is refused. */
	m = mk_read(s + 4, 0, 10);
	m.rkey = key;
	SEND(m);
	expect_ack(p, PKT_NAK_REM_ACCESS, s + 4);
	assert_int_equal(nic_qp_state(p->e.qp), NIC_QPS_ERR);
	peer_close(p);
}

/* 9.7.5.1.5: a duplicate atomic is answered from its saved result, and not executed. */
RULE(duplicate_atomic)
{
	uint64_t *word;

	start(s, (struct ep_params){.rd_atomic = 4});
	word = (uint64_t *)p->e.mem;
	*word = 1000;
	for (uint32_t i = 0; i < 4; i++) {
		SEND(mk_add(s + i, 0, 10));
		assert_int_equal(expect(p, PKT_ATOMIC_ACK, s + i)->v.swap_add, 1000 + 10 * i);
	}
	assert_int_equal(*word, 1040);
	for (uint32_t i = 0; i < 4; i++)
		for (int k = 0; k < 2; k++) {
			const struct got *g;

			SEND(mk_add(s + i, 0, 10));
			g = expect(p, PKT_ATOMIC_ACK, s + i);
			assert_int_equal(g->v.swap_add, 1000 + 10 * i);
			assert_int_equal(g->v.msn, i + 1);
		}
	assert_int_equal(*word, 1040);
	assert_int_equal(peer_counters(p).rx_atomic_requests, 4);
	/* The same for compare-and-swap: a failed one fails again. */
	SEND(((struct pkt_make){.opcode = PKT_CMP_SWAP,
				.psn = s + 4,
				.va = va(0),
				.rkey = p->e.key,
				.compare = 5,
				.swap_add = 6}));
	assert_int_equal(expect(p, PKT_ATOMIC_ACK, s + 4)->v.swap_add, 1040);
	assert_int_equal(*word, 1040);
	*word = 5;
	SEND(((struct pkt_make){.opcode = PKT_CMP_SWAP,
				.psn = s + 4,
				.va = va(0),
				.rkey = p->e.key,
				.compare = 5,
				.swap_add = 6}));
	assert_int_equal(expect(p, PKT_ATOMIC_ACK, s + 4)->v.swap_add, 1040);
	assert_int_equal(*word, 5);
	peer_close(p);
}

/*
 * 9.7.7.2.2: a duplicate that is older than the last max_dest_rd_atomic READs and atomics is
 * dropped.
 */
RULE(older_than_the_ring)
{
	start(s, (struct ep_params){.rd_atomic = 3});
	for (uint32_t i = 0; i < 5; i++) {
		if (i & 1)
			SEND(mk_add(s + i, 0, 1));
		else
			SEND(mk_read(s + i, 512, 8));
	}
	peer_drain(p);
	SEND(mk_read(s, 512, 8));
	SEND(mk_add(s + 1, 0, 1));
	expect_quiet(p, SEC);
	SEND(mk_read(s + 2, 512, 8));
	expect_read(s + 2, 512, 8, 3);
	SEND(mk_add(s + 3, 0, 1));
	assert_int_equal(expect(p, PKT_ATOMIC_ACK, s + 3)->v.swap_add, 1);
	SEND(mk_read(s + 4, 512, 8));
	expect_read(s + 4, 512, 8, 5);
	assert_int_equal(*(uint64_t *)p->e.mem, 2);
	peer_close(p);
}

/*
 * 9.7.5.2.8: if no receive is posted, the responder sends an RNR NAK with min_rnr_timer, executes
 * nothing, and sends nothing until the same PSN arrives again.
 */
RULE(receiver_not_ready)
{
	const struct got *g;

	start(s, (struct ep_params){.min_rnr_timer = 17});
	SEND(mk_write(s, 0, 10));
	expect_ack(p, PKT_AETH_ACK, s);
	SEND(mk_send(s + 1, 10));
	g = expect_ack(p, PKT_AETH_TYPE_RNR | 17, s + 1);
	assert_int_equal(g->v.msn, 1);
	SEND(mk_write(s + 2, 0, 10));
	SEND(mk_write(s + 3, 0, 10));
	expect_quiet(p, SEC);
	SEND(mk_send(s + 1, 10));
	expect_ack(p, PKT_AETH_TYPE_RNR | 17, s + 1);
	assert_int_equal(peer_counters(p).out_of_buffer, 2);
	post_recvs(1);
	SEND(mk_send(s + 1, 10));
	expect_ack(p, PKT_AETH_ACK, s + 1);
	expect_recv(p, 100, NIC_WC_SUCCESS, 10);
	SEND(mk_write(s + 2, 0, 10));
	expect_ack(p, PKT_AETH_ACK, s + 2);
	peer_close(p);
}

/*
 * A WRITE with immediate needs a receive at its last packet: without a receive this packet is not
 * written.
 */
RULE(write_imm_not_ready)
{
	struct pkt_make m;
	struct roost_cqe c;

	start(s, (struct ep_params){.min_rnr_timer = 3});
	m = mk_write(s, 0, 10);
	m.opcode = PKT_WRITE_ONLY_IMM;
	m.imm = 0x11223344;
	peer_send(p, &m);
	expect_ack(p, PKT_AETH_TYPE_RNR | 3, s);
	assert_int_equal(p->e.mem[0], 0);
	ep_post_recv(&p->e, 7, NULL, 0);
	peer_send(p, &m);
	expect_ack(p, PKT_AETH_ACK, s);
	assert_int_equal(p->e.mem[0], pkt_pattern(0));
	assert_true(ep_poll_recv(&p->e, &c));
	assert_int_equal(c.wr_id, 7);
	assert_int_equal(c.opcode, NIC_WC_RECV_WRITE_IMM);
	assert_int_equal(c.flags & NIC_WC_WITH_IMM, NIC_WC_WITH_IMM);
	assert_int_equal(c.imm, 0x11223344);
	assert_int_equal(c.byte_len, 10);
	assert_int_equal(c.src_qpn, PEER_QPN);
	/* Three packets: the first two are written. */
	m = mk_write(s + 1, 1024, MTU);
	m.opcode = PKT_WRITE_FIRST;
	m.dmalen = 2 * MTU + 3;
	peer_send(p, &m);
	m = (struct pkt_make){.opcode = PKT_WRITE_MIDDLE, .psn = s + 2, .len = MTU};
	peer_send(p, &m);
	m = (struct pkt_make){.opcode = PKT_WRITE_LAST_IMM, .psn = s + 3, .len = 3, .imm = 9};
	peer_send(p, &m);
	peer_drain(p);
	assert_int_equal(p->e.mem[1024 + MTU], pkt_pattern(0));
	assert_int_equal(p->e.mem[1024 + 2 * MTU], 0);
	ep_post_recv(&p->e, 8, NULL, 0);
	m.ackreq = true;
	peer_send(p, &m);
	expect_ack(p, PKT_AETH_ACK, s + 3);
	expect_recv(p, 8, NIC_WC_SUCCESS, 2 * MTU + 3);
	assert_int_equal(p->e.mem[1024 + 2 * MTU + 1], pkt_pattern(1));
	peer_close(p);
}

/*
 * 9.7.4.1: answers leave in the order of their requests: the ACK of a WRITE waits behind the READ
 * before it.
 */
RULE(ack_behind_read)
{
	start(s, (struct ep_params){0});
	PUT(mk_read(s, 0, 100 * MTU));
	PUT(mk_write(s + 100, 60000, 10));
	PUT(mk_add(s + 101, 8, 0));
	PUT(mk_read(s + 102, 0, 2 * MTU));
	PUT(mk_write(s + 104, 60000, 10));
	expect_read(s, 0, 100 * MTU, 1);
	/* A later answer may include the ACK of PSN 100. */
	if (peer_get(p, PEER_SETTLE)->v.opcode == PKT_ACK)
		expect(p, PKT_ATOMIC_ACK, s + 101);
	expect_read(s + 102, 0, 2 * MTU, 4);
	assert_int_equal(expect_ack(p, PKT_AETH_ACK, s + 104)->v.msn, 5);
	expect_quiet(p, SEC);
	/* The WRITE was executed at once. */
	assert_int_equal(p->e.mem[60000], pkt_pattern(0));
	peer_close(p);
}

/* The same for NAKs of every kind. */
static void nak_behind_read(uint32_t s, struct pkt_make bad, uint8_t syndrome, uint32_t psn)
{
	start(s, (struct ep_params){.min_rnr_timer = 5});
	PUT(mk_read(s, 0, 100 * MTU));
	bad.psn += s;
	bad.va += va(0);
	peer_put(p, &bad);
	expect_read(s, 0, 100 * MTU, 1);
	assert_int_equal(expect_ack(p, syndrome, psn)->v.msn, 1);
	expect_quiet(p, SEC);
	peer_close(p);
}

RULE(nak_behind_read_all)
{
	nak_behind_read(s, (struct pkt_make){.opcode = PKT_SEND_ONLY, .psn = 100},
			PKT_AETH_TYPE_RNR | 5, s + 100);
	nak_behind_read(s, (struct pkt_make){.opcode = PKT_SEND_ONLY, .psn = 101}, PKT_NAK_PSN_SEQ,
			s + 100);
	nak_behind_read(s, (struct pkt_make){.opcode = PKT_WRITE_MIDDLE, .psn = 100, .len = MTU},
			PKT_NAK_INVALID_REQ, s + 100);
	nak_behind_read(
		s, (struct pkt_make){.opcode = PKT_WRITE_ONLY, .psn = 100, .len = 1, .dmalen = 1},
		PKT_NAK_REM_ACCESS, s + 100);
}

/* More READs and atomics at a time than max_dest_rd_atomic: invalid request (9.7.4.1.1). */
RULE(too_many_reads)
{
	start(s, (struct ep_params){.rd_atomic = 2});
	PUT(mk_read(s, 0, 40 * MTU));
	PUT(mk_read(s + 40, 0, MTU));
	PUT(mk_read(s + 41, 0, MTU));
	expect_read(s, 0, 40 * MTU, 1);
	expect_read(s + 40, 0, MTU, 2);
	expect_ack(p, PKT_NAK_INVALID_REQ, s + 41);
	peer_close(p);
	/* One at a time, any number of them is executed. */
	start(s, (struct ep_params){.rd_atomic = 1});
	for (uint32_t i = 0; i < 20; i++) {
		SEND(mk_read(s + i, 0, MTU));
		expect_read(s + i, 0, MTU, i + 1);
	}
	peer_close(p);
	start(s, (struct ep_params){.rd_atomic = 255});
	SEND(mk_read(s, 0, 8));
	expect_ack(p, PKT_NAK_INVALID_REQ, s);
	peer_close(p);
	start(s, (struct ep_params){.rd_atomic = 255});
	SEND(mk_add(s, 0, 8));
	expect_ack(p, PKT_NAK_INVALID_REQ, s);
	peer_close(p);
}

/*
 * A copy of a READ request that the network made is executed again. The requester, which has all
 * responses of the first execution, may send the agreed number of READs meanwhile: the copy is then
 * dropped.
 */
RULE(copy_of_read_gives_way)
{
	start(s, (struct ep_params){.rd_atomic = 1});
	SEND(mk_read(s, 0, 40 * MTU));
	expect_read(s, 0, 40 * MTU, 1);
	PUT(mk_read(s, 0, 40 * MTU));
	PUT(mk_read(s + 40, 0, 2 * MTU));
	for (;;) {
		const struct got *g = peer_get(p, PEER_SETTLE);

		assert_non_null(g);
		assert_int_not_equal(g->v.opcode, PKT_ACK);
		if (g->v.psn == ((s + 41) & PKT_PSN_MASK))
			break;
	}
	/* The same with an atomic as the new request. */
	PUT(mk_read(s + 40, 0, 2 * MTU));
	PUT(mk_add(s + 42, 8, 1));
	while (peer_get(p, PEER_SETTLE)->v.opcode != PKT_ATOMIC_ACK)
		;
	assert_int_equal(nic_qp_state(p->e.qp), NIC_QPS_RTS);
	peer_close(p);
}

/*
 * A long READ is answered in several turns: other work of the QP does not wait for its end, and the
 * READ succeeds.
 */
RULE(read_in_turns)
{
	start(s, (struct ep_params){0});
	PUT(mk_read(s, 0, 200 * MTU));
	peer_post(p, ROOST_OP_WRITE, 1, 0, 8);
	{
		unsigned before = 0;

		/* Our own request is among the first packets, not behind all responses. */
		while (peer_get(p, PEER_SETTLE)->v.opcode != PKT_WRITE_ONLY)
			before++;
		assert_in_range(before, 0, 64);
	}
	peer_run(p, PEER_SETTLE);
	assert_int_equal(p->head, 201);
	peer_close(p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ack_and_msn),
		cmocka_unit_test(ackreq_honoured),
		cmocka_unit_test(one_nak_a_gap),
		cmocka_unit_test(duplicate_send_write),
		cmocka_unit_test(partial_message_retried),
		cmocka_unit_test(duplicate_read),
		cmocka_unit_test(duplicate_read_without_memory),
		cmocka_unit_test(probe_of_waiting_read),
		cmocka_unit_test(duplicate_atomic),
		cmocka_unit_test(older_than_the_ring),
		cmocka_unit_test(receiver_not_ready),
		cmocka_unit_test(write_imm_not_ready),
		cmocka_unit_test(ack_behind_read),
		cmocka_unit_test(nak_behind_read_all),
		cmocka_unit_test(too_many_reads),
		cmocka_unit_test(copy_of_read_gives_way),
		cmocka_unit_test(read_in_turns),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
