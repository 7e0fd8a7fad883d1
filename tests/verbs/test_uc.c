/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Unreliable connections through the verbs: supported and refused operations. A wrong WRITE has no
 * effect.
 */
#include "fixture.h"

#define LONG 10000 /* several packets */

static struct pair P, *const p = &P;

static struct ibv_qp *make_qp(int side)
{
	struct ibv_qp_init_attr a = {
		.send_cq = p->cq[side],
		.recv_cq = p->cq[side],
		.cap = {.max_send_wr = 16, .max_recv_wr = 16, .max_send_sge = 1, .max_recv_sge = 1},
		.qp_type = IBV_QPT_UC,
	};
	struct ibv_qp *qp = ibv_create_qp(p->pd, &a);

	assert_non_null(qp);
	return qp;
}

static void connect_side(int side)
{
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT,
				.port_num = 1,
				.qp_access_flags = IBV_ACCESS_REMOTE_WRITE};

	assert_int_equal(
		ibv_modify_qp(p->qp[side], &a,
			      IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
		0);
	a = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = p->qp[!side]->qp_num,
		.rq_psn = 0xfffff0 + (unsigned)!side,
		.ah_attr = {.is_global = 1, .port_num = 1, .grh = {.hop_limit = 64}},
	};
	assert_int_equal(ibv_query_gid(p->ctx, 1, 0, &a.ah_attr.grh.dgid), 0);
	assert_int_equal(ibv_modify_qp(p->qp[side], &a,
				       IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
					       IBV_QP_DEST_QPN | IBV_QP_RQ_PSN),
			 0);
	a = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS, .sq_psn = 0xfffff0 + (unsigned)side};
	assert_int_equal(ibv_modify_qp(p->qp[side], &a, IBV_QP_STATE | IBV_QP_SQ_PSN), 0);
}

static void start(void)
{
	static const struct pair_options unconnected = {
		.cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1},
		.leave_reset = true,
	};

	pair_open(p, &unconnected);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(ibv_destroy_qp(p->qp[i]), 0);
		p->qp[i] = make_qp(i);
	}
	for (int i = 0; i < 2; i++)
		connect_side(i);
}

static void post(enum ibv_wr_opcode op, uint32_t len, uint64_t remote)
{
	struct ibv_sge sge;
	struct ibv_send_wr wr = write_wr(p, &sge, 1, len);

	wr.opcode = op;
	wr.imm_data = htobe32(0xabcd);
	wr.wr.rdma.remote_addr = remote;
	wr.wr.rdma.rkey = p->mr[1]->rkey;
	assert_int_equal(post_one(p->qp[0], &wr), 0);
	wait_good(p->cq[0]);
}

/* Each message with a receive completion arrives whole. PSNs wrap on the way. */
static void messages(void **state)
{
	static const enum ibv_wr_opcode ops[] = {IBV_WR_SEND, IBV_WR_SEND_WITH_IMM,
						 IBV_WR_RDMA_WRITE_WITH_IMM};
	static const uint32_t lens[] = {0, 1, 1024, 1025, LONG};

	start();
	for (unsigned o = 0; o < 3; o++) {
		for (unsigned k = 0; k < 5; k++) {
			uint32_t len = lens[k];
			struct ibv_wc wc;

			memset(p->buf[0], (int)(16 * o + k + 1), LONG);
			memset(p->buf[1], 0, LONG + 1);
			assert_int_equal(post_recv_one(p, 1, 7, LONG), 0);
			post(ops[o], len, (uintptr_t)p->buf[1]);
			wc = wait_good(p->cq[1]);
			assert_int_equal(wc.wr_id, 7);
			assert_int_equal(wc.byte_len, len);
			assert_int_equal(wc.opcode,
					 o == 2 ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV);
			assert_int_equal(wc.wc_flags, o ? IBV_WC_WITH_IMM : 0);
			if (o)
				assert_int_equal(be32toh(wc.imm_data), 0xabcd);
			assert_memory_equal(p->buf[0], p->buf[1], len);
			assert_int_equal(p->buf[1][len], 0);
		}
	}
	pair_close(p);
}

/*
 * A WRITE needs no receive; a later message shows that it has arrived. A refused WRITE and a SEND
 * without a receive change nothing.
 */
static void writes(void **state)
{
	start();
	memset(p->buf[0], 0x77, LONG);
	post(IBV_WR_RDMA_WRITE, LONG, (uintptr_t)p->buf[1]);
	post(IBV_WR_RDMA_WRITE, 100, (uintptr_t)p->buf[1] + BUF_SIZE - 99); /* beyond the end */
	post(IBV_WR_SEND, 100, 0);					    /* no receive */
	settle(p->cq[1]);
	assert_int_equal(post_recv_one(p, 1, 9, 100), 0);
	memset(p->buf[0] + LONG, 0x78, 8);
	post(IBV_WR_RDMA_WRITE_WITH_IMM, 8, (uintptr_t)p->buf[1] + LONG);
	assert_int_equal(wait_good(p->cq[1]).wr_id, 9);
	assert_memory_equal(p->buf[1], p->buf[0], LONG);
	assert_int_equal(p->buf[1][BUF_SIZE - 99], 0);
	assert_int_equal(p->qp[0]->state, IBV_QPS_RTS);
	pair_close(p);
}

/* UC has no READ, atomics or invalidation. Queries return the QPs' type. */
static void refused(void **state)
{
	static const enum ibv_wr_opcode ops[] = {IBV_WR_RDMA_READ, IBV_WR_ATOMIC_CMP_AND_SWP,
						 IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_SEND_WITH_INV};
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr a;
	struct ibv_sge sge;

	start();
	for (unsigned i = 0; i < 4; i++) {
		struct ibv_send_wr wr = write_wr(p, &sge, 1, 8);

		wr.opcode = ops[i];
		assert_int_equal(post_one(p->qp[0], &wr), EINVAL);
	}
	assert_int_equal(ibv_query_qp(p->qp[0], &a, IBV_QP_STATE | IBV_QP_DEST_QPN, &init), 0);
	assert_int_equal(init.qp_type, IBV_QPT_UC);
	assert_int_equal(a.qp_state, IBV_QPS_RTS);
	assert_int_equal(a.dest_qp_num, p->qp[1]->qp_num);
	a.timeout = 14;
	assert_int_equal(ibv_modify_qp(p->qp[0], &a, IBV_QP_TIMEOUT), EINVAL);
	post(IBV_WR_RDMA_WRITE, 8, (uintptr_t)p->buf[1]);
	pair_close(p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(messages),
		cmocka_unit_test(writes),
		cmocka_unit_test(refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
