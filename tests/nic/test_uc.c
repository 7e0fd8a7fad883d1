/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Unreliable connections, packet by packet: the sent packets and the time of completions, the
 * packets that a responder accepts and drops, and where it resumes. InfiniBand Architecture
 * Specification, volume 1, 9.8.2.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <errno.h>
#include <cmocka.h>

#include "peer.h"
#include "rule.h"

#define MTU  256
#define RECV 32768 /* offset of the receives, 1 KiB each */

static struct peer P, *const p = &P;

static void start(uint32_t s, struct ep_params ep)
{
	ep.type = NIC_QPT_UC;
	ep.mtu = MTU;
	peer_open(p, &ep, s);
}

static void post_recvs(unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		struct roost_sge sge = ep_sge(&p->e, RECV + 1024 * i, 1024);

		ep_post_recv(&p->e, 100 + i, &sge, 1);
	}
}

static void uc(uint8_t opcode, uint32_t psn, uint32_t len)
{
	peer_send(p, &(struct pkt_make){.opcode = (uint8_t)(PKT_UC + opcode),
					.psn = psn,
					.len = len,
					.imm = 0x55});
}

static void write_first(uint8_t opcode, uint32_t psn, uint32_t dmalen, uint32_t len, uint32_t rkey)
{
	peer_send(p, &(struct pkt_make){.opcode = (uint8_t)(PKT_UC + opcode),
					.psn = psn,
					.va = (uintptr_t)p->e.mem,
					.rkey = rkey,
					.dmalen = dmalen,
					.len = len,
					.imm = 0x55});
}

static void no_recv(void)
{
	struct roost_cqe c;

	assert_false(ep_poll_recv(&p->e, &c));
}

static void assert_pattern(uint64_t off, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		assert_int_equal(p->e.mem[off + i], pkt_pattern(i));
}

/*
 * A request completes when its last packet has been sent. No ACK is requested, and no packet is
 * sent again.
 */
RULE(sends_and_completes)
{
	start(123, (struct ep_params){.psn = s});
	peer_post(p, ROOST_OP_SEND, 1, 0, 2 * MTU + 5);
	peer_post(p, ROOST_OP_WRITE_IMM, 2, 0, 7);
	assert_false(expect(p, PKT_UC + PKT_SEND_FIRST, s)->v.ackreq);
	assert_false(expect(p, PKT_UC + PKT_SEND_MIDDLE, s + 1)->v.ackreq);
	assert_false(expect(p, PKT_UC + PKT_SEND_LAST, s + 2)->v.ackreq);
	assert_false(expect(p, PKT_UC + PKT_WRITE_ONLY_IMM, s + 3)->v.ackreq);
	expect_done(p, 1, NIC_WC_SUCCESS);
	expect_done(p, 2, NIC_WC_SUCCESS);
	expect_quiet(p, 10 * SEC);
	assert_int_equal(peer_counters(p).completed_wqes, 2);
	peer_close(p);
}

/*
 * Requests that the service does not have (IBA table 37) take the send queue to SQE; the receive
 * queue continues.
 */
static void no_such_operation(void **state)
{
	static const enum roost_op none[] = {ROOST_OP_READ, ROOST_OP_CMP_SWAP, ROOST_OP_FETCH_ADD,
					     ROOST_OP_SEND_INV};

	for (unsigned i = 0; i < 4; i++) {
		struct nic_qp_attr a = {.state = NIC_QPS_RTS, .cur_state = NIC_QPS_SQE};

		start(0, (struct ep_params){.psn = 77});
		post_recvs(1);
		peer_post(p, ROOST_OP_WRITE, 1, 0, 8);
		peer_post(p, none[i], 2, 0, 8);
		peer_post(p, ROOST_OP_WRITE, 3, 0, 8);
		expect(p, PKT_UC + PKT_WRITE_ONLY, 77);
		peer_run(p, PEER_SETTLE);
		expect_done(p, 1, NIC_WC_SUCCESS);
		expect_done(p, 2, NIC_WC_LOC_QP_OP_ERR);
		expect_done(p, 3, NIC_WC_WR_FLUSH_ERR);
		assert_int_equal(nic_qp_state(p->e.qp), NIC_QPS_SQE);
		peer_post(p, ROOST_OP_WRITE, 4, 0, 8);
		peer_run(p, PEER_SETTLE);
		expect_done(p, 4, NIC_WC_WR_FLUSH_ERR);
		uc(PKT_SEND_ONLY, 0, 9);
		expect_recv(p, 100, NIC_WC_SUCCESS, 9);
		/* Back to RTS, and no PSN was used. */
		assert_int_equal(ep_modify(&p->e, &a, NIC_QPA_STATE | NIC_QPA_CUR_STATE), 0);
		peer_post(p, ROOST_OP_WRITE, 5, 0, 8);
		expect(p, PKT_UC + PKT_WRITE_ONLY, 78);
		expect_done(p, 5, NIC_WC_SUCCESS);
		peer_close(p);
	}
}

/* Refused local memory in the middle of a message ends the message; the queue goes to SQE. */
static void test_local_protection(void **state)
{
	struct wr wr;

	start(0, (struct ep_params){.psn = 10, .max_sge = 2});
	wr = (struct wr){.op = ROOST_OP_SEND,
			 .wr_id = 1,
			 .sge = {ep_sge(&p->e, 0, MTU), {(uintptr_t)p->e.mem, 8, p->e.key ^ 1}},
			 .num_sge = 2};
	ep_post(&p->e, &wr);
	expect(p, PKT_UC + PKT_SEND_FIRST, 10);
	expect_quiet(p, SEC);
	expect_done(p, 1, NIC_WC_LOC_PROT_ERR);
	assert_int_equal(nic_qp_state(p->e.qp), NIC_QPS_SQE);
	assert_int_equal(peer_counters(p).req_local_protection_error, 1);
	peer_close(p);
}

/* Complete messages, with and without immediate, are executed and not answered. */
RULE(receives)
{
	struct roost_cqe c;

	start(s, (struct ep_params){0});
	post_recvs(3);
	uc(PKT_SEND_FIRST, s, MTU);
	uc(PKT_SEND_LAST_IMM, s + 1, 3);
	write_first(PKT_WRITE_FIRST, s + 2, MTU + 10, MTU, p->e.key);
	uc(PKT_WRITE_LAST_IMM, s + 3, 10);
	write_first(PKT_WRITE_ONLY, s + 4, 20, 20, p->e.key);
	assert_true(ep_poll_recv(&p->e, &c));
	assert_int_equal(c.byte_len, MTU + 3);
	assert_int_equal(c.flags, NIC_WC_WITH_IMM);
	assert_int_equal(c.imm, 0x55);
	assert_int_equal(c.src_qpn, PEER_QPN);
	assert_true(ep_poll_recv(&p->e, &c));
	assert_int_equal(c.opcode, NIC_WC_RECV_WRITE_IMM);
	assert_int_equal(c.byte_len, MTU + 10);
	assert_pattern(RECV, MTU);
	assert_pattern(0, 20);
	assert_int_equal(peer_counters(p).rx_uc_dropped, 0);
	expect_quiet(p, SEC);
	peer_close(p);
}

/*
 * 9.8.2.2: after a gap packets are dropped until the next FIRST or ONLY, which takes the receive of
 * the incomplete message.
 */
RULE(gap_drops_the_message)
{
	start(s, (struct ep_params){0});
	post_recvs(2);
	uc(PKT_SEND_FIRST, s, MTU);
	uc(PKT_SEND_LAST, s + 2, 4); /* s + 1 was lost */
	uc(PKT_SEND_LAST, s + 1, 4); /* and arrives late */
	no_recv();
	uc(PKT_SEND_ONLY, s + 9, 5); /* after more losses */
	expect_recv(p, 100, NIC_WC_SUCCESS, 5);
	assert_pattern(RECV, 5);
	uc(PKT_SEND_ONLY, s + 10, 6);
	expect_recv(p, 101, NIC_WC_SUCCESS, 6);
	assert_int_equal(peer_counters(p).rx_uc_dropped, 2);
	assert_int_equal(peer_counters(p).out_of_sequence, 3);
	expect_quiet(p, SEC);
	assert_int_equal(nic_qp_state(p->e.qp), NIC_QPS_RTS);
	peer_close(p);
}

/* An incomplete message is abandoned when the next one begins, also if that is a WRITE. */
RULE(missing_last)
{
	start(s, (struct ep_params){0});
	post_recvs(2);
	uc(PKT_SEND_FIRST, s, MTU);
	uc(PKT_SEND_FIRST, s + 1, MTU);
	uc(PKT_SEND_LAST, s + 2, 1);
	expect_recv(p, 100, NIC_WC_SUCCESS, MTU + 1);
	uc(PKT_SEND_FIRST, s + 3, MTU);
	write_first(PKT_WRITE_ONLY_IMM, s + 4, 8, 8, p->e.key);
	expect_recv(p, 101, NIC_WC_SUCCESS, 8);
	assert_pattern(0, 8);
	assert_int_equal(peer_counters(p).rx_uc_dropped, 2);
	peer_close(p);
}

/*
 * MIDDLE and LAST without FIRST, a SEND's end behind a WRITE's beginning, a FIRST that is not full:
 * dropped.
 */
RULE(invalid_position)
{
	start(s, (struct ep_params){0});
	post_recvs(1);
	uc(PKT_SEND_MIDDLE, s, MTU);
	uc(PKT_SEND_LAST, s + 1, 4);
	write_first(PKT_WRITE_FIRST, s + 2, 2 * MTU, MTU, p->e.key);
	uc(PKT_SEND_LAST, s + 3, 4);
	uc(PKT_SEND_FIRST, s + 4, MTU - 4);
	uc(PKT_SEND_LAST, s + 5, 4);
	no_recv();
	assert_int_equal(peer_counters(p).rx_uc_dropped, 5);
	uc(PKT_SEND_ONLY, s + 6, 4);
	expect_recv(p, 100, NIC_WC_SUCCESS, 4);
	peer_close(p);
}

/*
 * A WRITE that is refused for its key, bounds or length is dropped completely and counted. The QP
 * continues to receive.
 */
RULE(refused_writes)
{
	start(s, (struct ep_params){0});
	post_recvs(1);
	memset(p->e.mem, 0xee, 4 * MTU);
	write_first(PKT_WRITE_FIRST, s, 2 * MTU, MTU, p->e.key ^ 1);
	uc(PKT_WRITE_LAST, s + 1, MTU);
	write_first(PKT_WRITE_ONLY, s + 2, (uint32_t)p->e.mem_len + 1, MTU, p->e.key);
	write_first(PKT_WRITE_ONLY, s + 3, 20, 16, p->e.key);
	for (unsigned i = 0; i < 4 * MTU; i++)
		assert_int_equal(p->e.mem[i], 0xee);
	assert_int_equal(peer_counters(p).rx_uc_dropped, 4);
	uc(PKT_SEND_ONLY, s + 4, 4);
	expect_recv(p, 100, NIC_WC_SUCCESS, 4);
	expect_quiet(p, SEC);
	assert_int_equal(p->e.events, 0);
	peer_close(p);
}

/* The QP's own permission counts too. */
static void test_no_remote_write(void **state)
{
	start(5, (struct ep_params){.access = NIC_ACCESS_LOCAL_WRITE});
	memset(p->e.mem, 0xee, 8);
	write_first(PKT_WRITE_ONLY, 5, 8, 8, p->e.key);
	assert_int_equal(p->e.mem[0], 0xee);
	assert_int_equal(peer_counters(p).rx_uc_dropped, 1);
	peer_close(p);
}

/*
 * Without a receive the message is dropped and counted. With a posted receive messages are
 * accepted.
 */
RULE(no_receive)
{
	start(s, (struct ep_params){0});
	uc(PKT_SEND_FIRST, s, MTU);
	post_recvs(2);
	uc(PKT_SEND_LAST, s + 1, 4);
	no_recv();
	uc(PKT_SEND_ONLY, s + 2, 4);
	expect_recv(p, 100, NIC_WC_SUCCESS, 4);
	assert_int_equal(peer_counters(p).out_of_buffer, 1);
	assert_int_equal(peer_counters(p).rx_uc_dropped, 2);
	expect_quiet(p, SEC);
	peer_close(p);
}

/*
 * A SEND longer than its receive is dropped, and the next message takes the receive (rxe_resp.c,
 * RESPST_ERR_LENGTH, class D).
 */
RULE(too_long)
{
	struct roost_sge sge;

	start(s, (struct ep_params){0});
	sge = ep_sge(&p->e, RECV, MTU + 2);
	ep_post_recv(&p->e, 100, &sge, 1);
	uc(PKT_SEND_FIRST, s, MTU);
	uc(PKT_SEND_LAST, s + 1, 3);
	no_recv();
	assert_int_equal(peer_counters(p).resp_local_length_error, 1);
	uc(PKT_SEND_FIRST, s + 2, MTU);
	uc(PKT_SEND_LAST, s + 3, 2);
	expect_recv(p, 100, NIC_WC_SUCCESS, MTU + 2);
	peer_close(p);
}

/*
 * A receive without accessible memory is an error of this side: it completes with this error, and
 * the QP goes to the error state (9.9.3, class A).
 */
static void test_receive_refused(void **state)
{
	start(1, (struct ep_params){0});
	ep_post_recv(&p->e, 100, &(struct roost_sge){(uintptr_t)p->e.mem, 64, p->e.key ^ 1}, 1);
	post_recvs(1);
	uc(PKT_SEND_ONLY, 1, 8);
	expect_recv(p, 100, NIC_WC_LOC_PROT_ERR, 0);
	expect_recv(p, 100, NIC_WC_WR_FLUSH_ERR, 0);
	assert_int_equal(nic_qp_state(p->e.qp), NIC_QPS_ERR);
	expect_quiet(p, SEC);
	peer_close(p);
}

/* Packets of another service, and responses, are dropped. */
static void test_other_services(void **state)
{
	start(1, (struct ep_params){0});
	post_recvs(1);
	peer_send(p,
		  &(struct pkt_make){.opcode = PKT_SEND_ONLY, .psn = 1, .len = 8, .ackreq = true});
	peer_send(p, &(struct pkt_make){.opcode = PKT_UD + PKT_SEND_ONLY, .psn = 1, .len = 8});
	peer_ack(p, PKT_AETH_ACK, 0, 0);
	no_recv();
	assert_int_equal(peer_counters(p).rx_bad_service, 3);
	expect_quiet(p, SEC);
	peer_close(p);
}

/*
 * SQD: the message in progress is completed, then the queue is drained. No message begins before
 * RTS.
 */
static void test_drain(void **state)
{
	struct nic_qp_attr a = {.state = NIC_QPS_SQD};

	start(1, (struct ep_params){.psn = 9});
	peer_post(p, ROOST_OP_WRITE, 1, 0, 8);
	expect(p, PKT_UC + PKT_WRITE_ONLY, 9);
	assert_int_equal(ep_modify(&p->e, &a, NIC_QPA_STATE | NIC_QPA_EN_SQD_ASYNC_NOTIFY), 0);
	assert_true(p->e.events & 1u << NIC_EVENT_SQ_DRAINED);
	peer_post(p, ROOST_OP_WRITE, 2, 0, 8);
	expect_quiet(p, SEC);
	a.state = NIC_QPS_RTS;
	assert_int_equal(ep_modify(&p->e, &a, NIC_QPA_STATE), 0);
	expect(p, PKT_UC + PKT_WRITE_ONLY, 10);
	expect_done(p, 1, NIC_WC_SUCCESS);
	expect_done(p, 2, NIC_WC_SUCCESS);
	peer_close(p);
}

/*
 * The window is released by time: a sender never stops, and never has more than a window in flight.
 */
static void test_window(void **state)
{
	struct sim_params sp = {.window = 16384, .delay_ns = 1000};
	struct ep_params ep = {.type = NIC_QPT_UC, .mtu = 1024, .mem = 1 << 21};
	struct roost_cqe c;
	uint64_t before;
	struct world w;
	struct ep a, b;

	world_init(&w, 2, 3, &sp);
	ep_init(&a, &w, 0, &ep);
	ep_init(&b, &w, 1, &ep);
	ep_connect(&a, &b);
	for (unsigned i = 0; i < 1 << 20; i++)
		a.mem[i] = (uint8_t)(i * 31 >> 3);
	for (unsigned i = 0; i < 2; i++) {
		struct wr wr = wr_rdma(ROOST_OP_WRITE, &a, 0, 1 << 20, &b, 0);

		before = world_now(&w);
		ep_post(&a, &wr);
		assert_true(ep_wait_send(&a, &c, SEC));
		assert_int_equal(c.status, NIC_WC_SUCCESS);
		/* 64 windows of payload at one in 2^18 ns, less the first. */
		assert_true(world_now(&w) - before > 60ull << 18);
		world_run(&w, world_now(&w) + MSEC);
		assert_memory_equal(a.mem, b.mem, 1 << 20);
		memset(b.mem, 0, 1 << 20);
	}
	ep_fini(&a);
	ep_fini(&b);
	world_fini(&w);
}

/* Two QPs of one PU communicate through the port, as with other NICs. */
static void test_own_nic(void **state)
{
	struct sim_params sp = {.delay_ns = 1000};
	struct ep_params ep = {.type = NIC_QPT_UC};
	struct roost_cqe c;
	struct world w;
	struct ep a, b;
	struct wr wr;

	world_init(&w, 1, 3, &sp);
	ep_init(&a, &w, 0, &ep);
	ep_init(&b, &w, 0, &ep);
	ep_connect(&a, &b);
	wr = wr_rdma(ROOST_OP_WRITE_IMM, &a, 0, 3000, &b, 0);
	memset(a.mem, 0x5a, 3000);
	ep_post_recv(&b, 8, NULL, 0);
	ep_post(&a, &wr);
	assert_true(ep_wait_recv(&b, &c, SEC));
	assert_int_equal(c.byte_len, 3000);
	assert_memory_equal(a.mem, b.mem, 3000);
	ep_fini(&a);
	ep_fini(&b);
	world_fini(&w);
}

/* The transitions of the kernel's table (drivers/infiniband/core/verbs.c) that differ from RC's. */
static void states(void **state)
{
	struct nic_qp_attr a;

	peer_open_init(p, &(struct ep_params){.type = NIC_QPT_UC, .mtu = MTU}, 4);
	peer_attr(p, &a);
	a.state = NIC_QPS_RTR;
	assert_int_equal(ep_modify(&p->e, &a, MASK_RTR), -EINVAL);
	assert_int_equal(ep_modify(&p->e, &a, MASK_RTR_UC & ~(uint32_t)NIC_QPA_RQ_PSN), -EINVAL);
	assert_int_equal(ep_modify(&p->e, &a, MASK_RTR_UC), 0);
	a.state = NIC_QPS_RTS;
	assert_int_equal(ep_modify(&p->e, &a, MASK_RTS), -EINVAL);
	assert_int_equal(ep_modify(&p->e, &a, MASK_RTS_UX | NIC_QPA_QKEY), -EINVAL);
	assert_int_equal(ep_modify(&p->e, &a, MASK_RTS_UX | NIC_QPA_ACCESS_FLAGS), 0);
	/* First packet in RTR raises the event, so none came here. */
	assert_int_equal(p->e.events, 0);
	peer_close(p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sends_and_completes),
		cmocka_unit_test(no_such_operation),
		cmocka_unit_test(test_local_protection),
		cmocka_unit_test(receives),
		cmocka_unit_test(gap_drops_the_message),
		cmocka_unit_test(missing_last),
		cmocka_unit_test(invalid_position),
		cmocka_unit_test(refused_writes),
		cmocka_unit_test(test_no_remote_write),
		cmocka_unit_test(no_receive),
		cmocka_unit_test(too_long),
		cmocka_unit_test(test_receive_refused),
		cmocka_unit_test(test_other_services),
		cmocka_unit_test(test_drain),
		cmocka_unit_test(test_window),
		cmocka_unit_test(test_own_nic),
		cmocka_unit_test(states),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
