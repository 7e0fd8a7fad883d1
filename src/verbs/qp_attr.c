/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * ibv_modify_qp() and ibv_query_qp() convert attributes between the verbs and the NIC. The NIC
 * checks the rules.
 */
#include <string.h>

#include "verbs/objects.h"

static int av_to_nic(const struct ibv_ah_attr *ah, struct nic_qp_attr *a)
{
	if (!ah->is_global)
		return -EINVAL; /* RoCE needs a GRH: IBV_QPF_GRH_REQUIRED */
	memcpy(a->dgid.b, ah->grh.dgid.raw, sizeof(a->dgid.b));
	a->sgid_index = ah->grh.sgid_index;
	a->traffic_class = ah->grh.traffic_class;
	a->hop_limit = ah->grh.hop_limit;
	a->flow_label = ah->grh.flow_label;
	a->sl = ah->sl;
	return 0;
}

static int mtu_to_nic(enum ibv_mtu mtu, uint32_t *bytes)
{
	if (mtu < IBV_MTU_256 || mtu > IBV_MTU_4096)
		return -EINVAL;
	*bytes = 128u << mtu;
	return 0;
}

static int attr_to_nic(const struct ibv_qp_attr *attr, int mask, struct nic_qp_attr *a)
{
	int ret;

	memset(a, 0, sizeof(*a));
	if (mask & IBV_QP_AV) {
		ret = av_to_nic(&attr->ah_attr, a);
		if (ret)
			return ret;
	}
	if (mask & IBV_QP_PATH_MTU) {
		ret = mtu_to_nic(attr->path_mtu, &a->path_mtu);
		if (ret)
			return ret;
	}
	a->state = (enum nic_qp_state)attr->qp_state;
	a->cur_state = (enum nic_qp_state)attr->cur_qp_state;
	a->qkey = attr->qkey;
	a->rq_psn = attr->rq_psn;
	a->sq_psn = attr->sq_psn;
	a->dest_qpn = attr->dest_qp_num;
	a->access = attr->qp_access_flags;
	a->pkey_index = attr->pkey_index;
	a->port = attr->port_num;
	a->timeout = attr->timeout;
	a->retry_cnt = attr->retry_cnt;
	a->rnr_retry = attr->rnr_retry;
	a->min_rnr_timer = attr->min_rnr_timer;
	a->max_rd_atomic = attr->max_rd_atomic;
	a->max_dest_rd_atomic = attr->max_dest_rd_atomic;
	return 0;
}

/* Returns true if this thread is between ibv_wr_start() and ibv_wr_complete(). */
static bool qp_is_builder(struct verbs_qp *qp)
{
	return atomic_load_explicit(&qp->wr_thread, memory_order_relaxed) ==
	       (uintptr_t)pthread_self();
}

/*
 * Posting reads the state under the queue locks. A thread that changes the state takes them first:
 * the program has that of the send queue from ibv_wr_start() to ibv_wr_complete(), and may call
 * other verbs meanwhile, which take the control lock. It may change the state, too: hardware does
 * this in a system call, which takes no lock of the queue.
 */
static void qp_lock_queues(struct verbs_qp *qp)
{
	if (!qp_is_builder(qp))
		spin_lock(&qp->sq.lock);
	spin_lock(&qp->rq.lock);
}

static void qp_unlock_queues(struct verbs_qp *qp)
{
	spin_unlock(&qp->rq.lock);
	if (!qp_is_builder(qp))
		spin_unlock(&qp->sq.lock);
}

/*
 * Drops the work requests that were posted before the reset, and the list that this thread builds.
 * PU owned, queues locked.
 */
static void qp_forget_posted(struct verbs_qp *qp)
{
	struct verbs_queue *queues[2] = {&qp->sq, &qp->rq};
	int i;

	for (i = 0; i < 2; i++) {
		queues[i]->head =
			atomic_load_explicit(&queues[i]->index->prod, memory_order_relaxed);
		queues[i]->cons_seen =
			atomic_load_explicit(&queues[i]->index->cons, memory_order_relaxed);
	}
	qp->wr_cur = NULL;
	qp->wr_err = EINVAL;
}

static int qp_modify(struct verbs_qp *qp, const struct nic_qp_attr *a, int mask)
{
	bool reset = mask & IBV_QP_STATE && a->state == NIC_QPS_RESET;
	struct verbs_cqs_end end;
	int ret;

	if (reset || (mask & IBV_QP_STATE && a->state == NIC_QPS_ERR))
		drive_receive(qp->drive, qp->pu); /* as qp_end() does */
	qp_lock_queues(qp);
	drive_control_lock(qp->drive);
	drive_own(qp->drive, qp->pu);
	ret = nic_qp_modify(drive_nic(qp->drive), qp->nic_qp, a, (uint32_t)mask,
			    drive_now(qp->drive));
	if (!ret && reset) {
		qp_forget_posted(qp);
		qp->ece = 0;
		qp->offers_rpc = qp->offers_calc = false;
	}
	if (!ret && mask & IBV_QP_STATE)
		qp->qp.state = (enum ibv_qp_state)a->state;
	end = verbs_cqs_end(qp);
	drive_disown(qp->drive, qp->pu);
	drive_control_unlock(qp->drive);
	qp_unlock_queues(qp);
	if (!ret && reset)
		verbs_cqs_clean(qp, end);
	return ret;
}

VERBS_EXPORT int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int attr_mask)
{
	struct nic_qp_attr a;
	int ret;

	if (attr_mask & (IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE | IBV_QP_CAP | IBV_QP_RATE_LIMIT))
		return verbs_ret(-EOPNOTSUPP);
	ret = attr_to_nic(attr, attr_mask, &a);
	if (!attr->en_sqd_async_notify)
		attr_mask &= ~IBV_QP_EN_SQD_ASYNC_NOTIFY;
	if (!ret)
		ret = qp_modify(verbs_qp(qp), &a, attr_mask);
	if (ret == -EINVAL && attr_mask & IBV_QP_AV)
		verbs_no_gid(qp->context, attr->ah_attr.port_num, attr->ah_attr.grh.sgid_index);
	return verbs_ret(ret);
}

static void attr_from_nic(const struct nic_qp_attr *a, struct ibv_qp_attr *attr)
{
	memset(attr, 0, sizeof(*attr));
	attr->qp_state = (enum ibv_qp_state)a->state;
	attr->cur_qp_state = attr->qp_state;
	attr->path_mtu =
		a->path_mtu ? (enum ibv_mtu)(log2_floor(a->path_mtu) - 7) : (enum ibv_mtu)0;
	attr->path_mig_state = IBV_MIG_MIGRATED;
	attr->qkey = a->qkey;
	attr->rq_psn = a->rq_psn;
	attr->sq_psn = a->sq_psn;
	attr->dest_qp_num = a->dest_qpn;
	attr->qp_access_flags = a->access;
	memcpy(attr->ah_attr.grh.dgid.raw, a->dgid.b, sizeof(a->dgid.b));
	attr->ah_attr.grh.sgid_index = a->sgid_index;
	attr->ah_attr.grh.traffic_class = a->traffic_class;
	attr->ah_attr.grh.hop_limit = a->hop_limit;
	attr->ah_attr.grh.flow_label = a->flow_label;
	attr->ah_attr.sl = a->sl;
	attr->ah_attr.is_global = 1;
	attr->ah_attr.port_num = a->port;
	attr->pkey_index = a->pkey_index;
	attr->port_num = a->port;
	attr->timeout = a->timeout;
	attr->retry_cnt = a->retry_cnt;
	attr->rnr_retry = a->rnr_retry;
	attr->min_rnr_timer = a->min_rnr_timer;
	attr->max_rd_atomic = a->max_rd_atomic;
	attr->max_dest_rd_atomic = a->max_dest_rd_atomic;
	attr->sq_draining = a->sq_draining;
}

/*
 * Gets the attributes, and stores the state for posting. It is not stored while a thread builds
 * work requests, perhaps this one. The states that the NIC enters by itself do not change what may
 * be posted.
 */
static void qp_query(struct verbs_qp *qp, struct nic_qp_attr *a)
{
	bool locked = spin_trylock(&qp->sq.lock);

	if (locked)
		spin_lock(&qp->rq.lock);
	drive_own(qp->drive, qp->pu);
	nic_qp_query(qp->nic_qp, a);
	drive_disown(qp->drive, qp->pu);
	if (!locked)
		return;
	qp->qp.state = (enum ibv_qp_state)a->state;
	qp_unlock_queues(qp);
}

/* Fills in all attributes, for any mask. */
VERBS_EXPORT int ibv_query_qp(struct ibv_qp *ibqp, struct ibv_qp_attr *attr, int attr_mask,
			      struct ibv_qp_init_attr *init_attr)
{
	struct verbs_qp *qp = verbs_qp(ibqp);
	struct nic_qp_attr a;

	memset(&a, 0, sizeof(a));
	qp_query(qp, &a);
	attr_from_nic(&a, attr);
	attr->cap.max_send_wr = qp->sq.depth;
	attr->cap.max_recv_wr = qp->rq.depth;
	attr->cap.max_send_sge = qp->sq.max_sge;
	attr->cap.max_recv_sge = qp->rq.max_sge;
	attr->cap.max_inline_data = qp->sq.max_inline;
	*init_attr = (struct ibv_qp_init_attr){
		.qp_context = ibqp->qp_context,
		.send_cq = ibqp->send_cq,
		.recv_cq = ibqp->recv_cq,
		.srq = ibqp->srq,
		.cap = attr->cap,
		.qp_type = ibqp->qp_type,
		.sq_sig_all = qp->sig_all,
	};
	return 0;
}

/*
 * Bytes arrive in order within a message unless packets are lost. This is no guarantee, so the
 * result is 0.
 */
VERBS_EXPORT int ibv_query_qp_data_in_order(struct ibv_qp *qp, enum ibv_wr_opcode op,
					    uint32_t flags)
{
	return 0;
}
