/* SPDX-License-Identifier: BSD-2-Clause */
#include "side.h"

#include <time.h>
#include <unistd.h>

static void tell(int fd, const struct name *n)
{
	assert_int_equal(write(fd, n, sizeof(*n)), sizeof(*n));
}

static void hear(int fd, struct name *n)
{
	assert_int_equal(read(fd, n, sizeof(*n)), sizeof(*n));
}

void side_open(struct side *s, void *buf, size_t len, int access, int in, int out)
{
	struct ibv_qp_init_attr init = {
		.cap = {.max_send_wr = 64, .max_recv_wr = 8, .max_send_sge = 1, .max_recv_sge = 1},
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = 1,
	};
	struct ibv_qp_attr a = {
		.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = (unsigned)access};
	struct name own;

	s->ctx = open_device();
	s->pd = ibv_alloc_pd(s->ctx);
	s->cq = ibv_create_cq(s->ctx, 256, NULL, NULL, 0);
	s->mr = ibv_reg_mr(s->pd, buf, len, IBV_ACCESS_LOCAL_WRITE | access);
	assert_non_null(s->mr);
	init.send_cq = init.recv_cq = s->cq;
	if (s->prepare)
		s->prepare(s, &init);
	s->qp = ibv_create_qp(s->pd, &init);
	assert_non_null(s->qp);
	if (s->created)
		s->created(s);
	assert_int_equal(
		ibv_modify_qp(s->qp, &a,
			      IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
		0);
	own = (struct name){.qpn = s->qp->qp_num, .addr = (uintptr_t)buf, .rkey = s->mr->rkey};
	assert_int_equal(ibv_query_gid(s->ctx, 1, 0, &own.gid), 0);
	tell(out, &own);
	hear(in, &s->peer);
	a = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTR,
		.path_mtu = s->mtu ? s->mtu : IBV_MTU_1024,
		.dest_qp_num = s->peer.qpn,
		.max_dest_rd_atomic = 1,
		.min_rnr_timer = 1,
		.ah_attr = {.is_global = 1,
			    .port_num = 1,
			    .grh = {.hop_limit = 64, .dgid = s->peer.gid}},
	};
	assert_int_equal(ibv_modify_qp(s->qp, &a,
				       IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
					       IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
					       IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER),
			 0);
	a = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS,
				 .timeout = s->timeout ? s->timeout : SIDE_TIMEOUT,
				 .retry_cnt = 7,
				 .rnr_retry = 7,
				 .max_rd_atomic = 1};
	assert_int_equal(ibv_modify_qp(s->qp, &a,
				       IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
					       IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
					       IBV_QP_MAX_QP_RD_ATOMIC),
			 0);
	tell(out, &own); /* both are ready before anything is sent */
	hear(in, &s->peer);
}

void side_close(struct side *s)
{
	assert_int_equal(ibv_destroy_qp(s->qp), 0);
	assert_int_equal(ibv_dereg_mr(s->mr), 0);
	assert_int_equal(ibv_destroy_cq(s->cq), 0);
	assert_int_equal(ibv_dealloc_pd(s->pd), 0);
	assert_int_equal(ibv_close_device(s->ctx), 0);
}

int side_post(struct side *s, enum ibv_wr_opcode opcode, uint64_t wr_id, void *addr, uint32_t n,
	      uint64_t offset)
{
	struct ibv_sge sge = {(uintptr_t)addr, n, s->mr->lkey};
	struct ibv_send_wr wr = {.wr_id = wr_id, .sg_list = &sge, .num_sge = 1, .opcode = opcode},
			   *bad;

	wr.wr.rdma.remote_addr = s->peer.addr + offset;
	wr.wr.rdma.rkey = s->peer.rkey;
	return ibv_post_send(s->qp, &wr, &bad);
}

struct ibv_wc side_wc(struct side *s)
{
	time_t until = time(NULL) + TIMEOUT_S;
	struct ibv_wc wc;
	int n;

	while ((n = ibv_poll_cq(s->cq, 1, &wc)) == 0)
		if (time(NULL) > until)
			fail_msg("nothing in %d seconds", TIMEOUT_S);
	assert_int_equal(n, 1);
	return wc;
}
