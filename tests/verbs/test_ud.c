/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Unreliable datagrams through the verbs: address handles, both ways of posting, replies to a
 * sender.
 */
#include "fixture.h"

#define QKEY 0x12345678
#define GRH  40

struct ud {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_qp *qp[2];
	struct ibv_mr *mr;
	struct ibv_ah *ah;
	uint8_t buf[8192];
};

static struct ud U, *const u = &U;

static struct ibv_qp *make_qp(void)
{
	struct ibv_qp_init_attr_ex init = {
		.send_cq = u->cq,
		.recv_cq = u->cq,
		.cap = {.max_send_wr = 8,
			.max_recv_wr = 8,
			.max_send_sge = 1,
			.max_recv_sge = 1,
			.max_inline_data = 32},
		.qp_type = IBV_QPT_UD,
		.sq_sig_all = 1,
		.pd = u->pd,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM,
	};
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = QKEY};
	struct ibv_qp *qp = ibv_create_qp_ex(u->ctx, &init);

	assert_non_null(qp);
	assert_int_equal(
		ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY),
		0);
	a.qp_state = IBV_QPS_RTR;
	assert_int_equal(ibv_modify_qp(qp, &a, IBV_QP_STATE), 0);
	a.qp_state = IBV_QPS_RTS;
	a.sq_psn = 0xffffff;
	assert_int_equal(ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_SQ_PSN), 0);
	return qp;
}

static void ah_attr(struct ibv_ah_attr *a)
{
	memset(a, 0, sizeof(*a));
	a->is_global = 1;
	a->port_num = 1;
	assert_int_equal(ibv_query_gid(u->ctx, 1, 0, &a->grh.dgid), 0);
}

static void start(void)
{
	struct ibv_ah_attr a;

	memset(u, 0, sizeof(*u));
	u->ctx = open_device();
	assert_non_null(u->ctx);
	u->pd = ibv_alloc_pd(u->ctx);
	u->cq = ibv_create_cq(u->ctx, 64, NULL, NULL, 0);
	u->mr = ibv_reg_mr(u->pd, u->buf, sizeof(u->buf), IBV_ACCESS_LOCAL_WRITE);
	u->qp[0] = make_qp();
	u->qp[1] = make_qp();
	ah_attr(&a);
	u->ah = ibv_create_ah(u->pd, &a);
	assert_non_null(u->ah);
	assert_ptr_equal(u->ah->pd, u->pd);
	assert_ptr_equal(u->ah->context, u->ctx);
}

static void finish(void)
{
	assert_int_equal(ibv_destroy_ah(u->ah), 0);
	assert_int_equal(ibv_destroy_qp(u->qp[0]), 0);
	assert_int_equal(ibv_destroy_qp(u->qp[1]), 0);
	assert_int_equal(ibv_dereg_mr(u->mr), 0);
	assert_int_equal(ibv_destroy_cq(u->cq), 0);
	assert_int_equal(ibv_dealloc_pd(u->pd), 0);
	assert_int_equal(ibv_close_device(u->ctx), 0);
}

static void post_recv(int side, uint64_t wr_id, uint32_t off)
{
	struct ibv_sge sge = {(uintptr_t)u->buf + off, 1024, u->mr->lkey};
	struct ibv_recv_wr wr = {.wr_id = wr_id, .sg_list = &sge, .num_sge = 1}, *bad;

	assert_int_equal(ibv_post_recv(u->qp[side], &wr, &bad), 0);
}

static void send(int from, struct ibv_ah *ah, uint32_t qpn, uint32_t len)
{
	struct ibv_sge sge = {(uintptr_t)u->buf, len, u->mr->lkey};
	struct ibv_send_wr wr = {.wr_id = 1, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND},
			   *bad;

	wr.wr.ud.ah = ah;
	wr.wr.ud.remote_qpn = qpn;
	wr.wr.ud.remote_qkey = QKEY;
	assert_int_equal(ibv_post_send(u->qp[from], &wr, &bad), 0);
}

/* Takes one send completion and one receive completion, in either order. Returns the receive's. */
static struct ibv_wc sent_and_received(void)
{
	struct ibv_wc wc[2];

	wait_wcs(u->cq, wc, 2);
	assert_int_equal(wc[0].status, IBV_WC_SUCCESS);
	assert_int_equal(wc[1].status, IBV_WC_SUCCESS);
	assert_int_not_equal(wc[0].opcode, wc[1].opcode);
	return wc[0].opcode == IBV_WC_RECV ? wc[0] : wc[1];
}

static void there_and_back(void **state)
{
	struct ibv_wc wc;
	struct ibv_ah *back;

	start();
	memset(u->buf, 0x5a, 100);
	post_recv(1, 7, 1024);
	send(0, u->ah, u->qp[1]->qp_num, 100);
	wc = sent_and_received();
	assert_int_equal(wc.wr_id, 7);
	assert_int_equal(wc.byte_len, GRH + 100);
	assert_int_equal(wc.wc_flags, IBV_WC_GRH);
	/* RoCE v2 and the IP version, with mlx5's values: UCX relies on them. */
	assert_int_equal(wc.sl, 8 | (getenv("VERBS_TEST_V6") ? 1 : 2));
	assert_int_equal(wc.src_qp, u->qp[0]->qp_num);
	assert_int_equal(wc.qp_num, u->qp[1]->qp_num);
	assert_memory_equal(u->buf + 1024 + GRH, u->buf, 100);
	assert_int_equal(u->buf[1024] >> 4 == 6, getenv("VERBS_TEST_V6") != NULL);
	/* The reply goes to the sender of the request. */
	back = ibv_create_ah_from_wc(u->pd, &wc, (struct ibv_grh *)(u->buf + 1024), 1);
	assert_non_null(back);
	post_recv(0, 8, 2048);
	send(1, back, wc.src_qp, 50);
	wc = sent_and_received();
	assert_int_equal(wc.wr_id, 8);
	assert_int_equal(wc.byte_len, GRH + 50);
	assert_int_equal(ibv_destroy_ah(back), 0);
	finish();
}

static void extended_posting(void **state)
{
	struct ibv_qp_ex *ex;
	struct ibv_wc wc;

	start();
	ex = ibv_qp_to_qp_ex(u->qp[0]);
	post_recv(1, 7, 1024);
	ibv_wr_start(ex);
	ex->wr_id = 9;
	ex->wr_flags = 0;
	ibv_wr_send_imm(ex, htobe32(0xfeed));
	ibv_wr_set_ud_addr(ex, u->ah, u->qp[1]->qp_num, QKEY);
	ibv_wr_set_inline_data(ex, "datagram", 8);
	assert_int_equal(ibv_wr_complete(ex), 0);
	wc = sent_and_received();
	assert_int_equal(wc.byte_len, GRH + 8);
	assert_int_equal(wc.wc_flags, IBV_WC_GRH | IBV_WC_WITH_IMM);
	assert_int_equal(wc.imm_data, htobe32(0xfeed));
	assert_memory_equal(u->buf + 1024 + GRH, "datagram", 8);
	finish();
}

static void attributes(void **state)
{
	struct ibv_qp_init_attr init;
	struct ibv_device_attr dev;
	struct ibv_send_wr wr = {.opcode = IBV_WR_RDMA_WRITE}, *bad;
	struct ibv_qp_attr a;

	start();
	assert_int_equal(ibv_query_qp(u->qp[0], &a, IBV_QP_QKEY, &init), 0);
	assert_int_equal(a.qkey, QKEY);
	assert_int_equal(a.qp_state, IBV_QPS_RTS);
	assert_int_equal(a.sq_psn, 0xffffff);
	assert_int_equal(init.qp_type, IBV_QPT_UD);
	assert_int_equal(ibv_query_device(u->ctx, &dev), 0);
	assert_true(dev.max_ah >= 1024);
	assert_int_equal(ibv_post_send(u->qp[0], &wr, &bad), EINVAL); /* UD has no WRITE */
	assert_ptr_equal(bad, &wr);
	finish();
}

static void refused_handles(void **state)
{
	struct ibv_wc wc = {.wc_flags = IBV_WC_GRH};
	struct ibv_ah_attr a;
	struct ibv_grh grh = {0};

	start();
	ah_attr(&a);
	a.is_global = 0;
	assert_null(ibv_create_ah(u->pd, &a));
	assert_int_equal(errno, EINVAL);
	ah_attr(&a);
	a.port_num = 3;
	assert_null(ibv_create_ah(u->pd, &a));
	ah_attr(&a);
	a.grh.sgid_index = 1;
	assert_null(ibv_create_ah(u->pd, &a));
	assert_int_equal(ibv_dealloc_pd(u->pd), EBUSY);
	/* Headers that are not valid, or not for this port. */
	assert_int_equal(ibv_init_ah_from_wc(u->ctx, 1, &wc, &grh, &a), -1);
	assert_int_equal(errno, EPROTONOSUPPORT);
	grh.version_tclass_flow = htobe32(6u << 28 | 0x68u << 20 | 0x12345);
	assert_int_equal(ibv_init_ah_from_wc(u->ctx, 1, &wc, &grh, &a), -1);
	assert_int_equal(errno, EINVAL);
	grh.hop_limit = 9;
	assert_int_equal(ibv_query_gid(u->ctx, 1, 0, &grh.dgid), 0);
	grh.sgid.raw[0] = 0xfd;
	assert_int_equal(ibv_init_ah_from_wc(u->ctx, 1, &wc, &grh, &a), 0);
	assert_memory_equal(a.grh.dgid.raw, grh.sgid.raw, 16);
	assert_int_equal(a.grh.traffic_class, 0x68);
	assert_int_equal(a.grh.flow_label, 0x12345);
	assert_int_equal(a.grh.hop_limit, 9);
	assert_int_equal(a.is_global, 1);
	finish();
}

/* A program may close the device without destroying its objects. */
static void left_behind(void **state)
{
	static struct ud before; /* the program still holds these objects */

	start();
	assert_int_equal(ibv_close_device(u->ctx), 0);
	before = *u;
	start();
	assert_ptr_not_equal(before.ah, u->ah);
	finish();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(there_and_back), cmocka_unit_test(extended_posting),
		cmocka_unit_test(attributes),	  cmocka_unit_test(refused_handles),
		cmocka_unit_test(left_behind),
	};

	if (!network_ready())
		return 77;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
