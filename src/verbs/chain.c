/* SPDX-License-Identifier: BSD-2-Clause */
/* roost/chain_verbs.h: objects and work requests of chains. */
#include "roost/chain_verbs.h"
#include "nic/nic_chain.h"
#include "verbs/post.h"

_Static_assert((int)NIC_WC_FATAL_ERR == (int)IBV_WC_FATAL_ERR, "status of a failure");

VERBS_EXPORT struct ibv_cq *roost_create_counting_cq(struct ibv_context *context, int comp_vector)
{
	struct ibv_cq_init_attr_ex attr = {.cqe = 1, .comp_vector = (uint32_t)comp_vector};

	return verbs_create_any_cq(context, &attr, true);
}

VERBS_EXPORT uint32_t roost_cq_count(struct ibv_cq *cq)
{
	return atomic_load_explicit(&verbs_cq(cq)->index->prod, memory_order_acquire);
}

static struct nic_chain_limit limit_of(const struct roost_chain_limit *l)
{
	return (struct nic_chain_limit){.rate_limit = l->rate_limit,
					.rate_burst = l->rate_burst,
					.turn_limit = l->turn_limit};
}

VERBS_EXPORT int roost_qp_set_chain(struct ibv_qp *ibqp, const struct roost_chain_attr *attr)
{
	struct nic_chain_attr a = {.managed_send = attr->managed_send,
				   .managed_recv = attr->managed_recv,
				   .limit = limit_of(&attr->limit)};
	struct verbs_qp *qp = verbs_qp(ibqp);
	int ret;

	for (unsigned i = 0; i < ROOST_CHAIN_WATCHES; i++) {
		if (!attr->watch[i])
			continue;
		if (verbs_cq(attr->watch[i])->drive != qp->drive)
			return verbs_ret(-EINVAL);
		a.watch[i] = verbs_cq(attr->watch[i])->nic_cq;
	}
	if (attr->audit) {
		if (verbs_cq(attr->audit)->drive != qp->drive)
			return verbs_ret(-EINVAL);
		a.audit = verbs_cq(attr->audit)->nic_cq;
	}
	drive_control_lock(qp->drive);
	verbs_own_all(qp->drive);
	ret = nic_qp_set_chain(drive_nic(qp->drive), qp->nic_qp, &a);
	verbs_disown_all(qp->drive);
	drive_control_unlock(qp->drive);
	return verbs_ret(ret);
}

VERBS_EXPORT int roost_qp_connect_self(struct ibv_qp *qp, uint8_t port_num, int gid_index)
{
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT,
				.port_num = port_num,
				.qp_access_flags = IBV_ACCESS_REMOTE_WRITE |
						   IBV_ACCESS_REMOTE_READ |
						   IBV_ACCESS_REMOTE_ATOMIC};
	union ibv_gid gid;
	int ret;

	if (ibv_query_gid(qp->context, port_num, gid_index, &gid))
		return errno = EINVAL;
	ret = ibv_modify_qp(qp, &a,
			    IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
	if (ret)
		return ret;
	a = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = qp->qp_num,
		.max_dest_rd_atomic = 16,
		.min_rnr_timer = 1,
		.ah_attr = {.is_global = 1,
			    .port_num = port_num,
			    .grh = {.hop_limit = 64,
				    .sgid_index = (uint8_t)gid_index,
				    .dgid = gid}},
	};
	ret = ibv_modify_qp(qp, &a,
			    IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
				    IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
				    IBV_QP_MIN_RNR_TIMER);
	if (ret)
		return ret;
	a = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS,
				 .timeout = 14,
				 .retry_cnt = 7,
				 .rnr_retry = 7,
				 .max_rd_atomic = 16};
	return ibv_modify_qp(qp, &a,
			     IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
				     IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
}

static const struct verbs_queue *queue_of(const struct verbs_qp *qp, enum roost_queue queue)
{
	const struct verbs_queue *q = queue == ROOST_SEND_QUEUE ? &qp->sq : &qp->rq;

	return q->depth ? q : NULL;
}

VERBS_EXPORT struct ibv_mr *roost_reg_queue_mr(struct ibv_qp *ibqp, enum roost_queue queue,
					       int access)
{
	struct verbs_qp *qp = verbs_qp(ibqp);
	const struct verbs_queue *q = queue_of(qp, queue);
	struct ibv_mr *mr;

	if (!q)
		return verbs_null(EINVAL);
	mr = ibv_reg_mr_iova2(ibqp->pd, q->ring, (size_t)q->depth << q->shift, (uintptr_t)q->ring,
			      (unsigned)access);
	if (mr) {
		atomic_fetch_add_explicit(&qp->ring_regions, 1, memory_order_relaxed);
		((struct verbs_mr *)mr)->ring_of = qp;
	}
	return mr;
}

VERBS_EXPORT uint32_t roost_qp_stride(struct ibv_qp *qp, enum roost_queue queue)
{
	const struct verbs_queue *q = queue_of(verbs_qp(qp), queue);

	return q ? 1u << q->shift : 0;
}

/* ---- posting ---- */

VERBS_EXPORT int roost_post_wqes(struct ibv_qp *ibqp, const void *wqes, uint32_t n, uint64_t wr_id)
{
	struct verbs_qp *qp = verbs_qp(ibqp);
	struct verbs_queue *sq = &qp->sq;
	const uint8_t *from = wqes;
	int ret = EINVAL;
	uint32_t head;

	spin_lock(&sq->lock);
	head = sq->head;
	if (!n || !post_send_allowed(qp))
		goto unlock;
	ret = ENOMEM;
	if (n > sq->depth || !post_space(sq, head + n - 1))
		goto unlock;
	for (uint32_t i = 0; i < n; i++) {
		memcpy(post_slot(sq, head + i), from + ((size_t)i << sq->shift), 1u << sq->shift);
		sq->wr_id[(head + i) & sq->mask] = wr_id + i;
	}
	post_publish(sq, head + n);
	ret = 0;
unlock:
	spin_unlock(&sq->lock);
	if (!ret)
		drive_doorbell(qp->drive, qp->nic_qp);
	return ret;
}

/* Posts a WQE of 64 bytes to a queue of any stride. */
static int post_one(struct ibv_qp *qp, const struct roost_wqe *w, uint64_t wr_id)
{
	uint8_t slot[1024] = {0};

	memcpy(slot, w, sizeof(*w));
	return roost_post_wqes(qp, slot, 1, wr_id);
}

static uint64_t relative(bool is)
{
	return is ? ROOST_CHAIN_RELATIVE : 0;
}

VERBS_EXPORT int roost_post_wait(struct ibv_qp *qp, const struct roost_wait_wr *wr)
{
	struct roost_wqe w = {.ctrl = ROOST_CTRL(ROOST_OP_WAIT, 0),
			      .flags = post_flags(wr->send_flags),
			      .raddr = wr->watch | relative(wr->relative),
			      .swap_add = wr->count};

	if (wr->send_flags & ~(unsigned)IBV_SEND_SIGNALED)
		return EINVAL;
	return post_one(qp, &w, wr->wr_id);
}

VERBS_EXPORT int roost_post_wait_time(struct ibv_qp *qp, const struct roost_wait_time_wr *wr)
{
	struct roost_wqe w = {.ctrl = ROOST_CTRL(ROOST_OP_WAIT, 0),
			      .flags = post_flags(wr->send_flags),
			      .raddr = ROOST_CHAIN_TIME | relative(wr->relative),
			      .swap_add = wr->ns};

	if (wr->send_flags & ~(unsigned)IBV_SEND_SIGNALED)
		return EINVAL;
	return post_one(qp, &w, wr->wr_id);
}

VERBS_EXPORT uint64_t roost_chain_time(struct ibv_context *context)
{
	return drive_now(verbs_ctx(context)->drive);
}

VERBS_EXPORT int roost_post_enable(struct ibv_qp *qp, const struct roost_enable_wr *wr)
{
	struct roost_wqe w = {
		.ctrl = ROOST_CTRL(
			wr->queue == ROOST_SEND_QUEUE ? ROOST_OP_ENABLE : ROOST_OP_RECV_ENABLE, 0),
		.flags = post_flags(wr->send_flags),
		.raddr = wr->qp_num | relative(wr->relative),
		.swap_add = wr->count};

	if (wr->send_flags & ~(unsigned)IBV_SEND_SIGNALED)
		return EINVAL;
	return post_one(qp, &w, wr->wr_id);
}

VERBS_EXPORT int roost_post_calc(struct ibv_qp *qp, const struct roost_calc_wr *wr)
{
	struct roost_wqe w = {.ctrl = ROOST_CTRL(wr->op, 0),
			      .flags = post_flags(wr->send_flags),
			      .num_sge = 1,
			      .raddr = wr->remote_addr,
			      .rkey = wr->rkey,
			      .swap_add = wr->operand,
			      .sge = {{wr->old.addr, wr->old.length, wr->old.lkey}}};

	if ((wr->op != ROOST_OP_FETCH_ADD && (wr->op < ROOST_OP_MAX || wr->op > ROOST_OP_XOR)) ||
	    wr->send_flags & ~(unsigned)(IBV_SEND_SIGNALED | IBV_SEND_FENCE))
		return EINVAL;
	if (wr->op != ROOST_OP_FETCH_ADD && !nic_qp_may_calc(verbs_qp(qp)->nic_qp))
		return EOPNOTSUPP;
	return post_one(qp, &w, wr->wr_id);
}

VERBS_EXPORT int roost_qp_chain_failure(struct ibv_qp *ibqp, struct roost_chain_failure *failure)
{
	struct verbs_qp *qp = verbs_qp(ibqp);
	struct nic_chain_failure f;
	bool failed;

	drive_own(qp->drive, qp->pu);
	failed = nic_qp_chain_failure(qp->nic_qp, &f);
	drive_disown(qp->drive, qp->pu);
	if (!failed)
		return verbs_ret(-ENOENT);
	*failure = (struct roost_chain_failure){
		.status = (enum ibv_wc_status)f.status, .index = f.index, .wqe = f.wqe};
	return 0;
}
