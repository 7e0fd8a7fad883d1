/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Effects of the states of a queue pair: the error state flushes, SQD drains, RESET discards all
 * state, destruction drops work. InfiniBand Architecture Specification, volume 1, 10.3.1, 10.8.6.
 * test_qp_state.c tests the permitted changes.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <cmocka.h>

#include "peer.h"
#include "rule.h"

#define MTU 256

static struct peer P, *const p = &P;

static int to(struct ep *e, enum nic_qp_state state, uint32_t mask)
{
	struct nic_qp_attr a = {.state = state};

	return ep_modify(e, &a, mask | NIC_QPA_STATE);
}

static void start(uint32_t psn, struct ep_params ep)
{
	ep.mtu = MTU;
	ep.psn = psn;
	peer_open(p, &ep, 0x1000);
}

static void no_completions(void)
{
	assert_false(ep_poll_send(&p->e, &(struct roost_cqe){0}));
	assert_false(ep_poll_recv(&p->e, &(struct roost_cqe){0}));
}

/*
 * All posted requests are flushed in order, signaled or not, fetched or not: 10.3.1.9, 10.8.6.
 */
RULE(error_flushes_in_order)
{
	struct roost_cqe c;

	start(s, (struct ep_params){.depth = 1024, .rd_atomic = 2});
	for (uint64_t i = 0; i < 700; i++) {
		struct wr wr = {.op = i % 3 ? ROOST_OP_WRITE : ROOST_OP_READ,
				.wr_id = i,
				.flags = i % 2 ? ROOST_WQE_SIGNALED
					       : 1 << 15, /* a flag without a meaning */
				.sge = {ep_sge(&p->e, 0, 300)},
				.num_sge = 1};

		ep_post(&p->e, &wr);
		ep_post_recv(&p->e, 1000 + i, NULL, 0);
		if (i == 600)
			peer_run(p,
				 PEER_SETTLE); /* the first few are sent, some more are fetched */
	}
	assert_int_equal(to(&p->e, NIC_QPS_ERR, 0), 0);
	peer_run(p, PEER_SETTLE);
	for (uint64_t i = 0; i < 700; i++) {
		assert_true(ep_poll_send(&p->e, &c));
		assert_int_equal(c.wr_id, i);
		assert_int_equal(c.status, NIC_WC_WR_FLUSH_ERR);
		assert_int_equal(c.qpn, nic_qp_num(p->e.qp));
		expect_recv(p, 1000 + i, NIC_WC_WR_FLUSH_ERR, 0);
	}
	no_completions();
	assert_int_equal(peer_counters(p).req_cqe_flush_error, 700);
	assert_int_equal(peer_counters(p).resp_cqe_flush_error, 700);
	/* Later requests are flushed, too. */
	for (uint64_t i = 0; i < 50; i++) {
		peer_post(p, ROOST_OP_SEND, 5000 + i, 0, 8);
		ep_post_recv(&p->e, 6000 + i, NULL, 0);
		if (i % 7 == 0)
			peer_run(p, PEER_SETTLE);
	}
	peer_run(p, PEER_SETTLE);
	for (uint64_t i = 0; i < 50; i++) {
		expect_done(p, 5000 + i, NIC_WC_WR_FLUSH_ERR);
		expect_recv(p, 6000 + i, NIC_WC_WR_FLUSH_ERR, 0);
	}
	no_completions();
	peer_drain(p);
	/* Silence: no request, no answer. */
	peer_ack(p, PKT_AETH_ACK, s, 1);
	peer_send(p, &(struct pkt_make){.opcode = PKT_SEND_ONLY, .psn = 0x1000, .ackreq = true});
	expect_quiet(p, 10 * SEC);
	no_completions();
	peer_close(p);
}

/* The receive of a message in progress is flushed too, and completes once. */
RULE(half_received)
{
	struct roost_sge sge;

	start(s, (struct ep_params){0});
	sge = ep_sge(&p->e, 0, 4096);
	ep_post_recv(&p->e, 1, &sge, 1);
	ep_post_recv(&p->e, 2, &sge, 1);
	peer_send(p, &(struct pkt_make){.opcode = PKT_SEND_FIRST, .psn = 0x1000, .len = MTU});
	no_completions();
	assert_int_equal(to(&p->e, NIC_QPS_ERR, 0), 0);
	expect_recv(p, 1, NIC_WC_WR_FLUSH_ERR, 0);
	expect_recv(p, 2, NIC_WC_WR_FLUSH_ERR, 0);
	no_completions();
	peer_close(p);
}

/* From any state, RESET included, the error state flushes present and later work. */
static void error_from_early_states(void **state)
{
	static const enum nic_qp_state from[] = {NIC_QPS_RESET, NIC_QPS_INIT, NIC_QPS_RTR};

	for (unsigned i = 0; i < 3; i++) {
		struct nic_qp_attr a;

		peer_open_init(p, NULL, 0);
		peer_attr(p, &a);
		if (from[i] == NIC_QPS_RTR)
			ep_to_rtr(&p->e, &a);
		if (from[i] == NIC_QPS_RESET)
			assert_int_equal(to(&p->e, NIC_QPS_RESET, 0), 0);
		ep_post_recv(&p->e, 1, NULL, 0);
		assert_int_equal(to(&p->e, NIC_QPS_ERR, 0), 0);
		expect_recv(p, 1, NIC_WC_WR_FLUSH_ERR, 0);
		peer_post(p, ROOST_OP_SEND, 2, 0, 0);
		ep_post_recv(&p->e, 3, NULL, 0);
		peer_run(p, PEER_SETTLE);
		expect_done(p, 2, NIC_WC_WR_FLUSH_ERR);
		expect_recv(p, 3, NIC_WC_WR_FLUSH_ERR, 0);
		no_completions();
		peer_close(p);
	}
}

/*
 * A QP in RTR answers but sends no requests. Sends posted there (the verbs refuse them) leave in
 * RTS.
 */
RULE(sends_wait_for_rts)
{
	struct nic_qp_attr a;

	peer_open_init(p, &(struct ep_params){.mtu = MTU, .psn = s}, 0x1000);
	peer_attr(p, &a);
	ep_to_rtr(&p->e, &a);
	peer_post(p, ROOST_OP_WRITE, 1, 0, 8);
	expect_quiet(p, SEC);
	ep_to_rts(&p->e, &a);
	expect(p, PKT_WRITE_ONLY, s);
	peer_close(p);
}

/*
 * 10.3.1.7: in SQD requests that have begun continue, and no others begin. The event is raised when
 * all are acknowledged.
 */
RULE(drain)
{
	start(s, (struct ep_params){.rd_atomic = 1});
	peer_post(p, ROOST_OP_WRITE, 1, 0, 3 * MTU);
	peer_post(p, ROOST_OP_READ, 2, 4096, 2 * MTU);
	peer_post(p, ROOST_OP_READ, 3, 4096, 8);
	peer_run(p, PEER_SETTLE);
	assert_int_equal(p->head, 4);
	assert_int_equal(to(&p->e, NIC_QPS_SQD, NIC_QPA_EN_SQD_ASYNC_NOTIFY), 0);
	peer_post(p, ROOST_OP_WRITE, 4, 0, 8);
	{
		struct nic_qp_attr a;

		nic_qp_query(p->e.qp, &a);
		assert_true(a.sq_draining);
	}
	peer_drain(p);
	/* A loss is still repaired. */
	peer_ack(p, PKT_NAK_PSN_SEQ, s + 2, 0);
	expect(p, PKT_WRITE_LAST, s + 2);
	expect(p, PKT_READ_REQUEST, s + 3);
	peer_ack(p, PKT_AETH_ACK, s + 2, 1);
	expect_done(p, 1, NIC_WC_SUCCESS);
	peer_send(p, &(struct pkt_make){.opcode = PKT_READ_RESP_FIRST, .psn = s + 3, .len = MTU});
	assert_int_equal(p->e.events, 0);
	peer_send(p, &(struct pkt_make){.opcode = PKT_READ_RESP_LAST, .psn = s + 4, .len = MTU});
	expect_done(p, 2, NIC_WC_SUCCESS);
	assert_int_equal(p->e.events, 1u << NIC_EVENT_SQ_DRAINED);
	expect_quiet(p, 10 * SEC);
	no_completions();
	{
		struct nic_qp_attr a;

		nic_qp_query(p->e.qp, &a);
		assert_false(a.sq_draining);
	}
	/* The responder continues. */
	peer_send(p, &(struct pkt_make){.opcode = PKT_WRITE_ONLY,
					.psn = 0x1000,
					.ackreq = true,
					.va = (uintptr_t)p->e.mem,
					.rkey = p->e.key,
					.dmalen = 8,
					.len = 8});
	expect_ack(p, PKT_AETH_ACK, 0x1000);
	/* Back in RTS the waiting requests are sent. */
	p->e.events = 0;
	assert_int_equal(to(&p->e, NIC_QPS_RTS, 0), 0);
	expect(p, PKT_READ_REQUEST, s + 5);
	peer_send(p, &(struct pkt_make){.opcode = PKT_READ_RESP_ONLY, .psn = s + 5, .len = 8});
	expect(p, PKT_WRITE_ONLY, s + 6);
	peer_ack(p, PKT_AETH_ACK, s + 6, 4);
	expect_done(p, 3, NIC_WC_SUCCESS);
	expect_done(p, 4, NIC_WC_SUCCESS);
	/* The queue is drained at once, twice: each request for an event raises one. */
	assert_int_equal(to(&p->e, NIC_QPS_SQD, NIC_QPA_EN_SQD_ASYNC_NOTIFY), 0);
	assert_int_equal(p->e.events, 1u << NIC_EVENT_SQ_DRAINED);
	p->e.events = 0;
	assert_int_equal(to(&p->e, NIC_QPS_RTS, 0), 0);
	assert_int_equal(to(&p->e, NIC_QPS_SQD, 0), 0);
	assert_int_equal(p->e.events, 0);
	peer_close(p);
}

/*
 * The queue is not drained while the window stops a message in the middle, even if all sent packets
 * are acknowledged.
 */
RULE(drain_inside_a_message)
{
	struct sim_params sp = {.window = 2000};
	struct ep_params ep = {.mtu = MTU, .psn = s, .timeout = 20};
	unsigned steps = 0;
	struct world w;
	struct ep a, b;
	struct wr wr;
	struct roost_cqe c;

	world_init(&w, 2, 1, &sp);
	ep_init(&a, &w, 0, &ep);
	ep_init(&b, &w, 1, &ep);
	ep_connect(&a, &b);
	wr = wr_rdma(ROOST_OP_WRITE, &a, 0, 60 * MTU, &b, 0);
	ep_post(&a, &wr);
	ep_post(&a, &wr);
	for (int i = 0; i < 3; i++)
		world_step(&w, UINT64_MAX);
	assert_int_equal(to(&a, NIC_QPS_SQD, NIC_QPA_EN_SQD_ASYNC_NOTIFY), 0);
	while (!ep_poll_send(&a, &c)) {
		assert_int_equal(a.events, 0);
		assert_true(world_step(&w, UINT64_MAX));
		assert_in_range(++steps, 1, 10000);
	}
	assert_int_equal(c.status, NIC_WC_SUCCESS);
	assert_int_equal(a.events, 1u << NIC_EVENT_SQ_DRAINED);
	world_run(&w, world_now(&w) + SEC);
	assert_false(ep_poll_send(&a, &c));
	ep_fini(&a);
	ep_fini(&b);
	world_fini(&w);
}

/* Attributes that change while the queue is drained take effect. */
RULE(changes_in_sqd)
{
	struct nic_qp_attr a;
	struct roost_cqe c;
	uint64_t took;

	start(s, (struct ep_params){.timeout = 20, .rd_atomic = 4});
	assert_int_equal(to(&p->e, NIC_QPS_SQD, 0), 0);
	peer_attr(p, &a);
	a.timeout = 8;
	a.retry_cnt = 1;
	a.max_rd_atomic = 1;
	assert_int_equal(ep_modify(&p->e, &a,
				   NIC_QPA_TIMEOUT | NIC_QPA_RETRY_CNT | NIC_QPA_MAX_QP_RD_ATOMIC),
			 0);
	assert_int_equal(to(&p->e, NIC_QPS_RTS, 0), 0);
	peer_post(p, ROOST_OP_READ, 1, 0, 8);
	peer_post(p, ROOST_OP_READ, 2, 0, 8);
	took = world_now(&p->w);
	expect(p, PKT_READ_REQUEST, s);
	expect_quiet(p, MSEC / 2);
	assert_true(ep_wait_send(&p->e, &c, SEC));
	assert_int_equal(c.status, NIC_WC_RETRY_EXC_ERR);
	took = world_now(&p->w) - took;
	assert_in_range(took, 2 * (4096 << 8), 8 * (4096 << 8) + MSEC);
	peer_close(p);
}

/* No more READs than max_rd_atomic are outstanding, also if it is reduced in SQD. */
static void not_fewer_than_outstanding(void **state)
{
	const uint32_t s = 0xfffffe;
	struct nic_qp_attr a;

	start(s, (struct ep_params){.rd_atomic = 4});
	for (uint64_t i = 0; i < 3; i++)
		peer_post(p, ROOST_OP_READ, i, 0, 8);
	peer_run(p, PEER_SETTLE);
	assert_int_equal(to(&p->e, NIC_QPS_SQD, 0), 0);
	a.max_rd_atomic = 2;
	assert_int_equal(ep_modify(&p->e, &a, NIC_QPA_MAX_QP_RD_ATOMIC), -EINVAL);
	a.max_rd_atomic = 3;
	assert_int_equal(ep_modify(&p->e, &a, NIC_QPA_MAX_QP_RD_ATOMIC), 0);
	for (uint32_t i = 0; i < 3; i++) {
		peer_send(p, &(struct pkt_make){.opcode = PKT_READ_RESP_ONLY,
						.psn = (s + i) & PKT_PSN_MASK,
						.len = 8});
		expect_done(p, i, NIC_WC_SUCCESS);
	}
	a.max_rd_atomic = 1;
	assert_int_equal(ep_modify(&p->e, &a, NIC_QPA_MAX_QP_RD_ATOMIC), 0);
	peer_close(p);
}

/* The queue drains no longer in RTS. */
static void no_draining_in_rts(void **state)
{
	struct nic_qp_attr a;

	start(7, (struct ep_params){0});
	peer_post(p, ROOST_OP_WRITE, 1, 0, 8);
	peer_run(p, PEER_SETTLE);
	assert_int_equal(to(&p->e, NIC_QPS_SQD, 0), 0);
	nic_qp_query(p->e.qp, &a);
	assert_true(a.sq_draining);
	assert_int_equal(to(&p->e, NIC_QPS_RTS, 0), 0);
	nic_qp_query(p->e.qp, &a);
	assert_false(a.sq_draining);
	peer_close(p);
}

/* A new path must carry the packets of the connection, whose MTU stays. */
static void no_path_with_a_smaller_mtu(void **state)
{
	const struct ep_params ep = {.mtu = MTU, .psn = 7};
	struct nic_qp_attr attr;
	struct world w;
	struct ep a, b;
	struct roost_cqe c;
	struct wr wr;

	world_init_shape(&w, &(struct world_shape){.nics = 2, .ports = 2}, 1,
			 &(struct sim_params){0});
	ep_init(&a, &w, 0, &ep);
	ep_init(&b, &w, 1, &ep);
	ep_connect(&a, &b);
	w.port[0][1][0]->mtu = MTU / 2;
	assert_int_equal(to(&a, NIC_QPS_SQD, 0), 0);
	ep_attr(&a, &b, &attr);
	attr.dgid = w.port[1][1][0]->addr;
	attr.port = 2;
	assert_int_equal(ep_modify(&a, &attr, NIC_QPA_AV | NIC_QPA_PORT), -EINVAL);
	w.port[0][1][0]->mtu = MTU;
	assert_int_equal(ep_modify(&a, &attr, NIC_QPA_AV | NIC_QPA_PORT), 0);
	attr.dgid = w.port[1][0][0]->addr;
	attr.port = 1;
	assert_int_equal(ep_modify(&a, &attr, NIC_QPA_AV | NIC_QPA_PORT), 0);
	assert_int_equal(to(&a, NIC_QPS_RTS, 0), 0);
	wr = wr_rdma(ROOST_OP_WRITE, &a, 0, 3 * MTU, &b, 0);
	ep_post(&a, &wr);
	assert_true(ep_wait_send(&a, &c, SEC));
	assert_int_equal(c.status, NIC_WC_SUCCESS);
	ep_fini(&a);
	ep_fini(&b);
	world_fini(&w);
}

static void read_once(uint32_t psn, uint8_t opcode)
{
	peer_send(p, &(struct pkt_make){.opcode = opcode,
					.psn = psn,
					.va = (uintptr_t)p->e.mem,
					.rkey = p->e.key,
					.dmalen = 8,
					.swap_add = 1});
}

/*
 * The limit of the responder's replay ring changes: the latest responses are kept.
 */
static void fewer_responder_resources(void **state)
{
	static const uint8_t sizes[] = {0, 1, 2, 3, 4, 5, 8, 13, 16, 100, NIC_MAX_RD_ATOMIC};

	for (unsigned x = 0; x < sizeof(sizes); x++)
		for (unsigned y = 0; y < sizeof(sizes); y++) {
			uint8_t before = sizes[x], after = sizes[y];
			struct nic_qp_attr a;
			uint32_t psn = 0x1000;

			start(0, (struct ep_params){.rd_atomic = before ? before : 255});
			peer_attr(p, &a);
			/* Turn the ring by an odd number of entries. */
			for (unsigned i = 0; before && i < (before | 1u) + 10; i++)
				read_once(psn++, i & 1 ? PKT_FETCH_ADD : PKT_READ_REQUEST);
			assert_int_equal(to(&p->e, NIC_QPS_SQD, 0), 0);
			a.max_dest_rd_atomic = after;
			assert_int_equal(ep_modify(&p->e, &a, NIC_QPA_MAX_DEST_RD_ATOMIC), 0);
			peer_drain(p);
			if (before && after) { /* the last one is still known */
				read_once(psn - 1, PKT_READ_REQUEST);
				assert_int_equal(
					expect(p, PKT_READ_RESP_ONLY, psn - 1)->v.payload_len, 8);
			}
			for (unsigned i = 0; after && i < after + 5u; i++) {
				read_once(psn, PKT_FETCH_ADD);
				expect(p, PKT_ATOMIC_ACK, psn);
				/* The oldest saved response is `after` requests back. */
				read_once(psn, PKT_FETCH_ADD);
				expect(p, PKT_ATOMIC_ACK, psn++);
			}
			if (after) {
				read_once(psn - after, PKT_FETCH_ADD);
				expect(p, PKT_ATOMIC_ACK, psn - after);
				read_once(psn - after - 1, PKT_FETCH_ADD);
				expect_quiet(p, MSEC);
			}
			peer_close(p);
		}
}

/* Reduces max_dest_rd_atomic, as the program of the responder does. */
static void reduce_resources(uint8_t limit)
{
	struct nic_qp_attr a = {.max_dest_rd_atomic = limit};

	assert_int_equal(to(&p->e, NIC_QPS_SQD, 0), 0);
	assert_int_equal(ep_modify(&p->e, &a, NIC_QPA_MAX_DEST_RD_ATOMIC), 0);
}

/*
 * The requests came before the limit was reduced: all their responses are sent. The next request is
 * one too many until those that it would replace are answered.
 */
static void unsent_answers_outlive_a_smaller_limit(void **state)
{
	static const uint8_t limits[] = {0, 1, 3};
	const struct got *g;

	for (unsigned x = 0; x < sizeof(limits); x++) {
		struct pkt_make big = {.opcode = PKT_READ_REQUEST, .psn = 0x1001};

		start(0, (struct ep_params){.rd_atomic = 8});
		big.va = (uintptr_t)p->e.mem;
		big.rkey = p->e.key;
		big.dmalen = 40 * MTU; /* more than the responses of a turn */
		read_once(0x1000, PKT_READ_REQUEST);
		peer_drain(p);
		peer_put(p, &big);
		for (uint32_t i = 0; i < 4; i++) {
			struct pkt_make add = {.opcode = PKT_FETCH_ADD,
					       .psn = 0x1001 + 40 + i,
					       .va = (uintptr_t)p->e.mem,
					       .rkey = p->e.key,
					       .swap_add = 1};

			peer_put(p, &add);
		}
		expect(p, PKT_READ_RESP_FIRST, 0x1001);
		reduce_resources(limits[x]);
		big.psn = 0x1001 + 44;
		peer_put(p, &big);
		sim_advance(p->w.sim, world_now(&p->w)); /* the NIC gets it in its next turn */
		for (uint32_t i = 1; i < 40; i++)
			expect(p, i < 39 ? PKT_READ_RESP_MIDDLE : PKT_READ_RESP_LAST, 0x1001 + i);
		for (uint32_t i = 0; i < 4; i++) {
			g = expect(p, PKT_ATOMIC_ACK, 0x1001 + 40 + i);
			assert_int_equal(g->v.swap_add, *(uint64_t *)p->e.mem - 4 + i);
		}
		expect_ack(p, PKT_NAK_INVALID_REQ, big.psn);
		peer_close(p);
	}
}

/*
 * Responses that were sent before the limit was reduced may be lost: the peer repeats its requests,
 * and each gets the same response. The peer's next request shows that it has them.
 */
static void lost_answers_outlive_a_smaller_limit(void **state)
{
	uint64_t *word, first;

	start(0, (struct ep_params){.rd_atomic = 8});
	word = (uint64_t *)p->e.mem;
	first = *word;
	for (uint32_t i = 0; i < 8; i++)
		read_once(0x1000 + i, PKT_FETCH_ADD);
	peer_drain(p);
	reduce_resources(2);
	for (uint32_t i = 0; i < 8; i++) {
		read_once(0x1000 + i, PKT_FETCH_ADD);
		assert_int_equal(expect(p, PKT_ATOMIC_ACK, 0x1000 + i)->v.swap_add, first + i);
	}
	assert_int_equal(*word, first + 8);
	read_once(0x1008, PKT_FETCH_ADD);
	expect(p, PKT_ATOMIC_ACK, 0x1008);
	read_once(0x1006, PKT_FETCH_ADD);
	expect_quiet(p, MSEC);
	read_once(0x1007, PKT_FETCH_ADD);
	assert_int_equal(expect(p, PKT_ATOMIC_ACK, 0x1007)->v.swap_add, first + 7);
	peer_close(p);
}

/* The path changes while the QP waits for the window of the old path. */
static void path_changes_while_blocked(void **state)
{
	struct sim_params sp = {.window = 1000, .read_window = 1000, .delay_ns = 1000};
	struct ep_params ep = {.mtu = MTU};
	struct nic_qp_attr attr;
	struct roost_cqe c;
	struct world w;
	struct ep a, b;
	struct wr wr;

	world_init_shape(&w, &(struct world_shape){.nics = 3, .ports = 2}, 1, &sp);
	for (int read = 0; read < 2; read++) {
		ep_init(&a, &w, 0, &ep);
		ep_init(&b, &w, 1, &ep);
		ep_connect(&a, &b);
		ep_attr(&a, &b, &attr);
		wr = wr_rdma(read ? ROOST_OP_READ : ROOST_OP_WRITE, &a, 0, 60 * MTU, &b, 0);
		ep_post(&a, &wr);
		ep_post(&a, &wr);
		for (int i = 0; i < 5; i++)
			world_step(&w, UINT64_MAX);
		assert_int_equal(to(&a, NIC_QPS_SQD, 0), 0);
		/* To another address and back, also by another port. */
		attr.dgid = w.port[2][0][0]->addr;
		assert_int_equal(ep_modify(&a, &attr, NIC_QPA_AV), 0);
		world_run(&w, world_now(&w) + 10000);
		attr.dgid = w.port[1][1][0]->addr;
		attr.port = 2;
		assert_int_equal(ep_modify(&a, &attr, NIC_QPA_AV | NIC_QPA_PORT), 0);
		world_run(&w, world_now(&w) + 10000);
		attr.dgid = w.port[1][0][0]->addr;
		attr.port = 1;
		assert_int_equal(ep_modify(&a, &attr, NIC_QPA_AV | NIC_QPA_PORT), 0);
		assert_int_equal(to(&a, NIC_QPS_RTS, 0), 0);
		assert_true(ep_wait_send(&a, &c, SEC));
		assert_int_equal(c.status, NIC_WC_SUCCESS);
		assert_true(ep_wait_send(&a, &c, SEC));
		assert_int_equal(c.status, NIC_WC_SUCCESS);
		ep_fini(&a);
		ep_fini(&b);
	}
	world_fini(&w);
}

/*
 * RESET discards all state, and the QP can be used again. Late packets of its first use do not
 * affect the second.
 */
RULE(reset_and_reuse)
{
	struct nic_qp_attr a;

	start(s, (struct ep_params){0});
	for (uint64_t i = 0; i < 10; i++) {
		peer_post(p, ROOST_OP_WRITE, i, 0, 2 * MTU);
		ep_post_recv(&p->e, i, NULL, 0);
	}
	peer_post(p, ROOST_OP_READ, 11, 0, 8);
	peer_run(p, PEER_SETTLE);
	peer_send(p, &(struct pkt_make){.opcode = PKT_SEND_FIRST,
					.psn = 0x1000,
					.len = 0}); /* refused: no recv SGE fits */
	peer_drain(p);
	assert_int_equal(to(&p->e, NIC_QPS_RESET, 0), 0);
	expect_quiet(p, 10 * SEC);
	while (ep_poll_send(&p->e, &(struct roost_cqe){0}))
		; /* the error before the reset may have flushed some */
	while (ep_poll_recv(&p->e, &(struct roost_cqe){0}))
		;
	p->e.events = 0;
	p->psn = 0x7000;
	p->e.p.psn = s + 0x400000;
	peer_attr(p, &a);
	ep_to_init(&p->e);
	ep_to_rtr(&p->e, &a);
	ep_to_rts(&p->e, &a);
	peer_ack(p, PKT_AETH_ACK, s + 3, 1);
	no_completions();
	peer_post(p, ROOST_OP_WRITE, 20, 0, 8);
	expect(p, PKT_WRITE_ONLY, s + 0x400000);
	peer_ack(p, PKT_AETH_ACK, s + 0x400000, 1);
	expect_done(p, 20, NIC_WC_SUCCESS);
	ep_post_recv(&p->e, 30, &(struct roost_sge){(uintptr_t)p->e.mem, 64, p->e.key}, 1);
	peer_send(p, &(struct pkt_make){
			     .opcode = PKT_SEND_ONLY, .psn = 0x7000, .ackreq = true, .len = 8});
	assert_int_equal(expect_ack(p, PKT_AETH_ACK, 0x7000)->v.msn, 1);
	expect_recv(p, 30, NIC_WC_SUCCESS, 8);
	assert_int_equal(p->e.events, 0);
	no_completions();
	peer_close(p);
}

/*
 * A QP is destroyed with requests, responses, timers, doorbells and windows in progress. Other QPs
 * are not disturbed.
 */
static void destroy_with_work(void **state)
{
	struct sim_params sp = {
		.window = 3000, .read_window = 3000, .delay_ns = 3000, .loss = 0.05};

	for (unsigned cut = 0; cut < 120; cut++) {
		struct ep_params ep = {.mtu = MTU, .mem = 1 << 17};
		struct world w;
		struct ep e[6];
		struct roost_cqe c;

		world_init(&w, 2, 100 + cut, &sp);
		for (int i = 0; i < 6; i++)
			ep_init(&e[i], &w, i & 1, &ep);
		for (int i = 0; i < 6; i += 2) {
			ep_connect(&e[i], &e[i + 1]);
			for (int k = 0; k < 12; k++) {
				struct wr wr = wr_rdma(k & 1 ? ROOST_OP_READ : ROOST_OP_WRITE,
						       &e[i], 0, 3000, &e[i + 1], 0);

				ep_post(&e[i], &wr);
				wr = wr_rdma(k & 1 ? ROOST_OP_WRITE : ROOST_OP_READ, &e[i + 1], 0,
					     3000, &e[i], 0);
				ep_post(&e[i + 1], &wr);
			}
		}
		for (unsigned i = 0; i < cut; i++)
			world_step(&w, UINT64_MAX);
		/* A doorbell in the ring whose QP is destroyed before the NIC takes it. */
		ep_fini(&e[0]);
		ep_fini(&e[1]);
		for (int i = 2; i < 6; i++)
			for (int k = 0; k < 12; k++) {
				assert_true(ep_wait_send(&e[i], &c, 10 * SEC));
				assert_int_equal(c.status, NIC_WC_SUCCESS);
			}
		for (int i = 2; i < 6; i++)
			ep_fini(&e[i]);
		world_fini(&w);
	}
}

/* The NIC is destroyed with its QPs. */
static void nic_goes_first(void **state)
{
	struct ep_params ep = {.mtu = MTU};
	struct world w;
	struct ep a, b;
	struct wr wr;

	world_init(&w, 2, 1, NULL);
	ep_init(&a, &w, 0, &ep);
	ep_init(&b, &w, 1, &ep);
	ep_connect(&a, &b);
	wr = wr_rdma(ROOST_OP_WRITE, &a, 0, 3000, &b, 0);
	ep_post(&a, &wr);
	world_step(&w, UINT64_MAX);
	world_fini(&w);
	ep_forget(&a);
	ep_forget(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(error_flushes_in_order),
		cmocka_unit_test(half_received),
		cmocka_unit_test(error_from_early_states),
		cmocka_unit_test(sends_wait_for_rts),
		cmocka_unit_test(drain),
		cmocka_unit_test(drain_inside_a_message),
		cmocka_unit_test(changes_in_sqd),
		cmocka_unit_test(not_fewer_than_outstanding),
		cmocka_unit_test(no_draining_in_rts),
		cmocka_unit_test(no_path_with_a_smaller_mtu),
		cmocka_unit_test(fewer_responder_resources),
		cmocka_unit_test(unsent_answers_outlive_a_smaller_limit),
		cmocka_unit_test(lost_answers_outlive_a_smaller_limit),
		cmocka_unit_test(path_changes_while_blocked),
		cmocka_unit_test(reset_and_reuse),
		cmocka_unit_test(destroy_with_work),
		cmocka_unit_test(nic_goes_first),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
