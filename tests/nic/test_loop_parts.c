/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Messages in loop-back that move in several turns and are interrupted: a call whose server takes
 * it slowly, a SEND that fails in the middle, a peer that is reset meanwhile. The results are those
 * of packets.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

#include "world.h"

#define LEN 200000

static struct world W, *const w = &W;
static struct ep A, B, *const a = &A, *const b = &B;

static const struct ep_params params = {
	.mem = 1 << 20, .max_sge = 2, .timeout = 8, .retry_cnt = 1, .rnr_retry = 2, .rpc = true};

static void start(const struct nic_rpc_ops *ops)
{
	world_init_shape(w, &(struct world_shape){.nics = 1}, 21, &(struct sim_params){0});
	if (ops)
		assert_int_equal(nic_rpc_serve(w->nic[0], ops, NULL), 0);
	ep_init(a, w, 0, &params);
	ep_init(b, w, 0, &params);
	ep_connect(a, b);
}

static void end(void)
{
	ep_fini(a);
	ep_fini(b);
	world_fini(w);
}

static void done(unsigned status)
{
	struct roost_cqe c;

	assert_true(ep_wait_send(a, &c, 1000 * SEC));
	assert_int_equal(c.status, status);
}

/* Resets `e` and connects it again; its peer is unchanged. */
static void reconnect(struct ep *e, const struct ep *peer)
{
	struct nic_qp_attr attr = {.state = NIC_QPS_RESET};

	assert_int_equal(ep_modify(e, &attr, NIC_QPA_STATE), 0);
	ep_to_init(e);
	ep_attr(e, peer, &attr);
	ep_to_rtr(e, &attr);
	ep_to_rts(e, &attr);
}

static void post_recv(uint64_t wr_id)
{
	struct roost_sge sge = ep_sge(b, 0, LEN);

	ep_post_recv(b, wr_id, &sge, 1);
}

/*
 * A SEND fails in the middle, and its sender connects again, but the receiver does not. The next
 * message is a FIRST where the receiver expects a MIDDLE or LAST.
 */
static void sender_begins_again(void **state)
{
	static const uint32_t sent[] = {4096, 100000}; /* in the first turn, and in several */
	static const enum roost_op ops[] = {ROOST_OP_SEND, ROOST_OP_WRITE, ROOST_OP_READ};

	for (unsigned i = 0; i < 6; i++) {
		struct roost_cqe c;
		struct wr wr;

		start(NULL);
		post_recv(1);
		memset(b->mem, 0xee, LEN);
		wr = wr_rdma(ROOST_OP_SEND, a, 0, sent[i % 2], b, 0);
		wr.sge[1] = (struct roost_sge){(uintptr_t)a->mem, 100, a->key ^ 1};
		wr.num_sge = 2;
		ep_post(a, &wr);
		done(NIC_WC_LOC_PROT_ERR);
		reconnect(a, b);
		wr = wr_rdma(ops[i / 2], a, 0, 8, b, LEN);
		ep_post(a, &wr);
		done(NIC_WC_REM_INV_REQ_ERR);
		assert_true(ep_poll_recv(b, &c));
		assert_int_equal(c.wr_id, 1);
		assert_int_equal(c.status, NIC_WC_WR_FLUSH_ERR);
		assert_int_equal(nic_qp_state(b->qp), NIC_QPS_ERR);
		end();
	}
}

/* A SEND fails before its first byte: the receiver knows nothing of it. */
static void nothing_was_sent(void **state)
{
	struct roost_cqe c;
	struct wr wr;

	start(NULL);
	post_recv(1);
	wr = wr_rdma(ROOST_OP_SEND, a, 0, 100000, b, 0);
	wr.sge[0].lkey ^= 1;
	ep_post(a, &wr);
	done(NIC_WC_LOC_PROT_ERR);
	reconnect(a, b);
	memset(a->mem, 5, 8);
	wr = wr_rdma(ROOST_OP_SEND, a, 0, 8, b, 0);
	ep_post(a, &wr);
	done(NIC_WC_SUCCESS);
	assert_true(ep_poll_recv(b, &c));
	assert_int_equal(c.status, NIC_WC_SUCCESS);
	assert_memory_equal(b->mem, a->mem, 8);
	end();
}

/*
 * The receiver is reset in the middle of a message and connects again. It expects a FIRST, so the
 * rest of the message is not for it, and the sender gets no answer.
 */
static void receiver_begins_again(void **state)
{
	struct roost_cqe c;
	struct wr wr;

	start(NULL);
	post_recv(1);
	wr = wr_rdma(ROOST_OP_SEND, a, 0, LEN, b, 0);
	ep_post(a, &wr);
	world_step(w, UINT64_MAX);
	world_step(w, UINT64_MAX);
	reconnect(b, a);
	post_recv(2);
	done(NIC_WC_RETRY_EXC_ERR);
	assert_false(ep_poll_recv(b, &c));
	assert_int_equal(nic_qp_state(b->qp), NIC_QPS_RTS);
	end();
}

/*
 * The index of the receives of a QP that is connected to itself is invalid. It ends at once, and
 * does not wait as after an RNR NAK.
 */
static void invalid_receives(void **state)
{
	struct nic_counters c;
	struct wr wr;

	world_init_shape(w, &(struct world_shape){.nics = 1}, 21, &(struct sim_params){0});
	ep_init(a, w, 0, &params);
	ep_connect_self(a);
	atomic_store(&a->rqi.prod, 1000);
	wr = wr_rdma(ROOST_OP_SEND, a, 0, 8, a, 0);
	ep_post(a, &wr);
	done(NIC_WC_WR_FLUSH_ERR);
	assert_int_equal(nic_qp_state(a->qp), NIC_QPS_ERR);
	nic_counters(w->nic[0], &c);
	assert_int_equal(c.rnr_nak_retry_err, 0);
	ep_fini(a);
	world_fini(w);
}

/* ---- a server that takes every other piece ---- */

static unsigned taken, refused;

static int attach(void *ctx, struct nic_qp *qp, void **out)
{
	*out = qp;
	return 0;
}

static void ignore(void *ctx, void *qp_ctx)
{
}

static void close_server(void *ctx)
{
}

static bool deliver(void *ctx, void *qp_ctx, const struct nic_rpc_piece *piece)
{
	if (taken > refused) {
		refused++;
		return false;
	}
	taken++;
	return true;
}

/* The RNR retries begin again with each piece that the server has taken. */
static void slow_server(void **state)
{
	static const struct nic_rpc_ops ops = {.attach = attach,
					       .detach = ignore,
					       .deliver = deliver,
					       .stop = ignore,
					       .close = close_server};
	struct wr wr;

	taken = refused = 0;
	start(&ops);
	wr = (struct wr){.op = ROOST_OP_RPC_WRITE, .sge = {ep_sge(a, 0, LEN)}, .num_sge = 1};
	ep_post(a, &wr);
	done(NIC_WC_SUCCESS);
	assert_true(taken > 40);
	assert_int_equal(refused, taken - 1);
	end();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sender_begins_again),	 cmocka_unit_test(nothing_was_sent),
		cmocka_unit_test(receiver_begins_again), cmocka_unit_test(invalid_receives),
		cmocka_unit_test(slow_server),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
