/* SPDX-License-Identifier: BSD-2-Clause */
/* Shared receive queues: InfiniBand Architecture Specification, volume 1, 10.2.9 and 10.3.1.9. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "peer.h"

#define QPS 3

static struct world W;
static struct shared_rq Q;
static struct ep client[QPS], server[QPS];
static struct peer P;

/* Clients on NIC 0, servers on NIC `to` that share one receive queue. */
static void start(unsigned to, uint32_t depth, const struct ep_params *params)
{
	struct sim_params sp = {0};
	struct ep_params ep = params ? *params : (struct ep_params){0};

	world_init(&W, 2, 11, &sp);
	shared_rq_init(&Q, W.nic[to], depth);
	for (unsigned i = 0; i < QPS; i++) {
		ep.srq = NULL;
		ep_init(&client[i], &W, 0, &ep);
		ep.srq = &Q;
		ep_init(&server[i], &W, to, &ep);
		ep_connect(&client[i], &server[i]);
	}
}

static void close_all(void)
{
	for (unsigned i = 0; i < QPS; i++) {
		ep_fini(&client[i]);
		ep_fini(&server[i]);
	}
	assert_int_equal(shared_rq_fini(&Q), 0);
	world_fini(&W);
}

static void post(unsigned n, uint64_t first)
{
	for (unsigned i = 0; i < n; i++) {
		struct roost_sge sge = shared_rq_sge(&Q, (first + i) * 1024, 1024);

		shared_rq_post(&Q, first + i, &sge, 1);
	}
}

static void send(unsigned i, uint8_t fill, uint32_t len)
{
	struct wr wr = wr_rdma(ROOST_OP_SEND, &client[i], 0, len, &server[i], 0);

	memset(client[i].mem, fill, len);
	ep_post(&client[i], &wr);
}

static void sent(unsigned i, enum nic_wc_status status)
{
	struct roost_cqe c;

	assert_true(ep_wait_send(&client[i], &c, SEC));
	assert_int_equal(c.status, status);
}

/* Returns the wr_id of the next receive of a QP, and checks its contents. */
static uint64_t received(unsigned i, uint8_t fill, uint32_t len)
{
	struct roost_cqe c;

	assert_true(ep_wait_recv(&server[i], &c, SEC));
	assert_int_equal(c.status, NIC_WC_SUCCESS);
	assert_int_equal(c.byte_len, len);
	assert_int_equal(c.qpn, nic_qp_num(server[i].qp));
	for (uint32_t b = 0; b < len; b++)
		assert_int_equal(Q.mem[c.wr_id * 1024 + b], fill);
	return c.wr_id;
}

static uint32_t left(const struct shared_rq *q)
{
	return atomic_load(&q->index.prod) - atomic_load(&q->index.cons);
}

/* All QPs take receives from the queue, in the order of arrival of their messages. */
static void many_qps(unsigned to)
{
	uint64_t seen = 0;

	start(to, 16, NULL);
	assert_int_equal(nic_qp_pu(server[0].qp), nic_srq_pu(Q.srq));
	for (unsigned round = 0; round < 20; round++) {
		post(QPS, 8 * (round & 1));
		for (unsigned i = 0; i < QPS; i++) {
			send(i, (uint8_t)(10 * round + i), 100 + 300 * i);
			sent(i, NIC_WC_SUCCESS);
			assert_int_equal(received(i, (uint8_t)(10 * round + i), 100 + 300 * i),
					 8 * (round & 1) + i);
			seen++;
		}
		assert_int_equal(left(&Q), 0);
	}
	assert_int_equal(seen, 20 * QPS);
	close_all();
}

static void across_the_wire(void **state)
{
	many_qps(1);
}

static void in_loop_back(void **state)
{
	many_qps(0);
}

/*
 * An empty queue: receiver not ready until a receive is posted. WRITE with immediate takes one,
 * too.
 */
static void empty(void **state)
{
	struct nic_counters c;
	struct wr wr;
	struct roost_cqe cqe;

	start(1, 16, NULL);
	send(0, 7, 500);
	send(1, 8, 600);
	world_run(&W, world_now(&W) + MSEC);
	nic_counters(W.nic[1], &c);
	assert_true(c.out_of_buffer >= 2);
	post(2, 0);
	sent(0, NIC_WC_SUCCESS);
	sent(1, NIC_WC_SUCCESS);
	assert_int_equal(received(0, 7, 500) + received(1, 8, 600), 1);

	post(1, 5);
	wr = wr_rdma(ROOST_OP_WRITE_IMM, &client[2], 0, 64, &server[2], 0);
	wr.imm = 0x1234;
	ep_post(&client[2], &wr);
	sent(2, NIC_WC_SUCCESS);
	assert_true(ep_wait_recv(&server[2], &cqe, SEC));
	assert_int_equal(cqe.wr_id, 5);
	assert_int_equal(cqe.opcode, NIC_WC_RECV_WRITE_IMM);
	close_all();
}

/* The limit event is raised when fewer receives are left, once for each arming. */
static void limit(void **state)
{
	start(1, 8, NULL);
	assert_int_equal(nic_srq_set_limit(Q.srq, 9), -EINVAL);
	post(6, 0);
	assert_int_equal(nic_srq_set_limit(Q.srq, 4), 0);
	assert_int_equal(nic_srq_limit(Q.srq), 4);
	for (unsigned i = 0; i < 2; i++) {
		send(i, 1, 10);
		sent(i, NIC_WC_SUCCESS);
	}
	assert_int_equal(left(&Q), 4);
	assert_int_equal(Q.limit_events, 0);
	send(2, 1, 10);
	sent(2, NIC_WC_SUCCESS);
	assert_int_equal(Q.limit_events, 1);
	assert_int_equal(nic_srq_limit(Q.srq), 0);
	send(2, 1, 10);
	sent(2, NIC_WC_SUCCESS);
	assert_int_equal(Q.limit_events, 1);
	/* Already below the limit: the event comes with the next taken receive. */
	assert_int_equal(nic_srq_set_limit(Q.srq, 4), 0);
	send(2, 1, 10);
	sent(2, NIC_WC_SUCCESS);
	assert_int_equal(Q.limit_events, 2);
	/* The limit is disarmed. */
	assert_int_equal(nic_srq_set_limit(Q.srq, 4), 0);
	assert_int_equal(nic_srq_set_limit(Q.srq, 0), 0);
	send(2, 1, 10);
	sent(2, NIC_WC_SUCCESS);
	assert_int_equal(Q.limit_events, 2);
	close_all();
}

/* Keys of receives are checked against the domain of the SRQ, not of the QP. */
static void domain(void **state)
{
	struct roost_sge sge;
	struct roost_cqe c;

	start(1, 8, NULL);
	sge = ep_sge(&server[0], 0, 1024);
	shared_rq_post(&Q, 3, &sge, 1);
	send(0, 1, 10);
	sent(0, NIC_WC_REM_OP_ERR);
	assert_true(ep_wait_recv(&server[0], &c, SEC));
	assert_int_equal(c.wr_id, 3);
	assert_int_equal(c.status, NIC_WC_LOC_PROT_ERR);
	assert_true(server[0].events & 1u << NIC_EVENT_LAST_WQE);
	close_all();
}

/* -EBUSY until the last QP is destroyed. */
static void busy(void **state)
{
	struct nic_usage u;

	start(1, 8, NULL);
	nic_usage(W.nic[1], &u);
	assert_int_equal(u.srqs, 1);
	for (unsigned i = 0; i < QPS; i++) {
		assert_int_equal(nic_srq_destroy(W.nic[1], Q.srq), -EBUSY);
		ep_fini(&client[i]);
		ep_fini(&server[i]);
	}
	assert_int_equal(shared_rq_fini(&Q), 0);
	nic_usage(W.nic[1], &u);
	assert_int_equal(u.srqs, 0);
	world_fini(&W);
}

/*
 * A QP that goes to the error state flushes the receive that it has taken, and no other, and raises
 * an event (IBA 10.3.1.9). The other QPs continue.
 */
static void last_wqe(void **state)
{
	struct pkt_make first = {.opcode = PKT_SEND_FIRST, .psn = 9, .len = 256};
	struct nic_qp_attr err = {.state = NIC_QPS_ERR};
	struct ep_params ep = {.mtu = 256, .srq = &Q};
	struct roost_cqe c;
	struct ep other;

	peer_open_init(&P, NULL, 9);
	ep_fini(&P.e);
	shared_rq_init(&Q, P.w.nic[0], 8);
	ep_init(&P.e, &P.w, 0, &ep);
	ep_init(&other, &P.w, 0, &ep);
	ep_to_init(&P.e);
	{
		struct nic_qp_attr a;

		peer_attr(&P, &a);
		ep_to_rtr(&P.e, &a);
		ep_to_rts(&P.e, &a);
	}
	post(3, 0);
	peer_send(&P, &first);
	assert_int_equal(left(&Q), 2);
	assert_false(ep_poll_recv(&P.e, &c));
	assert_int_equal(ep_modify(&P.e, &err, NIC_QPA_STATE), 0);
	assert_true(ep_poll_recv(&P.e, &c));
	assert_int_equal(c.wr_id, 0);
	assert_int_equal(c.status, NIC_WC_WR_FLUSH_ERR);
	assert_false(ep_poll_recv(&P.e, &c));
	assert_int_equal(left(&Q), 2);
	assert_true(P.e.events & 1u << NIC_EVENT_LAST_WQE);
	assert_false(other.events & 1u << NIC_EVENT_LAST_WQE);
	/* After RESET no receive of the SRQ is lost. */
	assert_int_equal(
		ep_modify(&P.e, &(struct nic_qp_attr){.state = NIC_QPS_RESET}, NIC_QPA_STATE), 0);
	assert_int_equal(left(&Q), 2);
	ep_connect_self(&other);
	ep_post(&other, &(struct wr){.op = ROOST_OP_SEND, .wr_id = 1});
	assert_true(ep_wait_recv(&other, &c, SEC));
	assert_int_equal(c.wr_id, 1);
	ep_fini(&other);
	ep_fini(&P.e);
	assert_int_equal(shared_rq_fini(&Q), 0);
	world_fini(&P.w);
}

/* An invalid producer index ends the QPs that read it, and no receive is taken. */
static void wild_index(void **state)
{
	start(1, 8, NULL);
	atomic_store(&Q.index.prod, 9);
	for (unsigned i = 0; i < QPS; i++) {
		send(i, 1, 10);
		world_run(&W, world_now(&W) + 10 * MSEC);
		assert_int_equal(nic_qp_state(server[i].qp), NIC_QPS_ERR);
		assert_true(server[i].events & 1u << NIC_EVENT_QP_FATAL);
	}
	assert_int_equal(Q.errors, 1);
	assert_int_equal(atomic_load(&Q.index.cons), 0);
	close_all();
}

/* QPs of an SRQ belong to one PU, with any CQs. Without QPs the SRQ may get another PU. */
static void one_pu(void **state)
{
	struct world_shape shape = {.nics = 2, .pus = 2};
	struct ep_params ep = {.pu = 1, .srq = &Q};
	struct sim_params sp = {0};
	struct ep a, b, peer;
	struct roost_cqe c;

	world_init_shape(&W, &shape, 3, &sp);
	shared_rq_init(&Q, W.nic[1], 8);
	ep_init(&a, &W, 1, &ep);
	ep.pu = 0;
	ep_init(&b, &W, 1, &ep);
	assert_int_equal(nic_qp_pu(a.qp), 1);
	assert_int_equal(nic_qp_pu(b.qp), 1);
	ep_init(&peer, &W, 0, NULL);
	ep_connect(&peer, &b);
	post(1, 0);
	ep_post(&peer, &(struct wr){.op = ROOST_OP_SEND});
	assert_true(ep_wait_recv(&b, &c, SEC));
	ep_post(&b, &(struct wr){.op = ROOST_OP_NOP, .wr_id = 4});
	assert_true(ep_wait_send(&b, &c, SEC));
	assert_int_equal(c.wr_id, 4);
	ep_fini(&a);
	ep_fini(&b);
	ep_init(&b, &W, 1, &ep);
	assert_int_equal(nic_qp_pu(b.qp), 0);
	assert_int_equal(nic_srq_pu(Q.srq), 0);
	ep_fini(&b);
	ep_fini(&peer);
	assert_int_equal(shared_rq_fini(&Q), 0);
	world_fini(&W);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(across_the_wire), cmocka_unit_test(in_loop_back),
		cmocka_unit_test(empty),	   cmocka_unit_test(limit),
		cmocka_unit_test(domain),	   cmocka_unit_test(busy),
		cmocka_unit_test(last_wqe),	   cmocka_unit_test(wild_index),
		cmocka_unit_test(one_pu),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
