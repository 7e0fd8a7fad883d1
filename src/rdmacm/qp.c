/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Queue pairs of an id: creating them, with CQs if the program gives none, and changing their
 * states as the connection proceeds.
 */
#include <string.h>

#include "rdmacm/rdmacm.h"

/* ---- attributes ---- */

void rdmacm_fill_ah(const struct rdmacm_id *id, struct ibv_ah_attr *ah)
{
	memset(ah, 0, sizeof(*ah));
	memcpy(ah->grh.dgid.raw, id->dst.b, sizeof(ah->grh.dgid.raw));
	ah->grh.sgid_index = id->gid_index;
	ah->grh.hop_limit = RDMACM_HOP_LIMIT;
	ah->grh.traffic_class = id->tos;
	ah->is_global = 1;
	ah->port_num = id->id.port_num;
}

/* Returns true if the id has RC; UC has no READs and no retries. */
static bool is_rc(const struct rdmacm_id *id)
{
	return (id->id.qp ? id->id.qp->qp_type : id->id.qp_type) != IBV_QPT_UC;
}

static int init_attr(const struct rdmacm_id *id, struct ibv_qp_attr *a, int *mask)
{
	if (!id->id.port_num)
		return -EINVAL;
	*mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT;
	a->port_num = id->id.port_num;
	if (rdmacm_is_ud(id)) {
		a->qkey = RDMA_UDP_QKEY;
		*mask |= IBV_QP_QKEY;
		return 0;
	}
	*mask |= IBV_QP_ACCESS_FLAGS;
	/*
	 * The QP grants no rights before it has a peer. The peer may then WRITE, and may READ and
	 * use atomics if any were agreed (cm_init_qp_init_attr in the Linux kernel).
	 */
	if (id->conn) {
		struct cm_qp_attr q;

		cm_qp_attr(id->conn, &q);
		a->qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
		if (is_rc(id) && (q.max_dest_rd_atomic || id->responder_resources))
			a->qp_access_flags |= IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
	}
	return 0;
}

static int rtr_attr(const struct rdmacm_id *id, struct ibv_qp_attr *a, int *mask)
{
	struct cm_qp_attr q;

	if (!id->conn)
		return -EINVAL;
	cm_qp_attr(id->conn, &q);
	*mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
	memcpy(a->ah_attr.grh.dgid.raw, q.dgid.b, sizeof(a->ah_attr.grh.dgid.raw));
	a->ah_attr.grh.sgid_index = id->gid_index;
	a->ah_attr.grh.flow_label = q.flow_label;
	a->ah_attr.grh.hop_limit = q.hop_limit;
	a->ah_attr.grh.traffic_class = q.tclass;
	a->ah_attr.sl = q.sl;
	a->ah_attr.is_global = 1;
	a->ah_attr.port_num = id->id.port_num;
	a->path_mtu = (enum ibv_mtu)q.path_mtu;
	a->dest_qp_num = q.dest_qpn;
	/* set before the REP is sent, because the REP tells the PSN to the peer */
	a->rq_psn = id->psn;
	if (is_rc(id)) {
		*mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
		a->max_dest_rd_atomic = q.max_dest_rd_atomic;
		a->min_rnr_timer = 0;
	}
	return 0;
}

static int rts_attr(const struct rdmacm_id *id, struct ibv_qp_attr *a, int *mask)
{
	struct cm_qp_attr q;

	*mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
	if (rdmacm_is_ud(id))
		return 0;
	if (!id->conn)
		return -EINVAL;
	cm_qp_attr(id->conn, &q);
	a->sq_psn = q.sq_psn;
	if (is_rc(id)) {
		*mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			 IBV_QP_MAX_QP_RD_ATOMIC;
		a->timeout = id->ack_timeout ? id->ack_timeout : q.timeout;
		a->retry_cnt = q.retry_cnt;
		a->rnr_retry = q.rnr_retry;
		a->max_rd_atomic = q.max_rd_atomic;
	}
	return 0;
}

/* Fills in the attributes for attr->qp_state. Lock held. */
static int qp_attr_for(const struct rdmacm_id *id, struct ibv_qp_attr *a, int *mask)
{
	enum ibv_qp_state state = a->qp_state;

	memset(a, 0, sizeof(*a));
	a->qp_state = state;
	switch (state) {
	case IBV_QPS_INIT:
		return init_attr(id, a, mask);
	case IBV_QPS_RTR:
		if (!rdmacm_is_ud(id))
			return rtr_attr(id, a, mask);
		*mask = IBV_QP_STATE;
		return 0;
	case IBV_QPS_RTS:
		return rts_attr(id, a, mask);
	default:
		return -EINVAL;
	}
}

ROOST_EXPORT int rdma_init_qp_attr(struct rdma_cm_id *id, struct ibv_qp_attr *qp_attr,
				   int *qp_attr_mask)
{
	int ret;

	rdmacm_lock();
	ret = qp_attr_for(rdmacm_id(id), qp_attr, qp_attr_mask);
	rdmacm_unlock();
	return rdmacm_ret(ret);
}

/* ---- states ---- */

void rdmacm_change_await(struct rdmacm_id *id)
{
	while (id->changing)
		rdmacm_wait();
}

void rdmacm_change_begin(struct rdmacm_id *id)
{
	rdmacm_change_await(id);
	id->changing = true;
}

void rdmacm_change_end(struct rdmacm_id *id)
{
	id->changing = false;
	pthread_cond_broadcast(&agent.progress);
}

int rdmacm_qp_to_init(struct rdmacm_id *id, struct ibv_qp *qp)
{
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT};
	int mask, ret = qp_attr_for(id, &a, &mask);

	return ret ? ret : rdmacm_modify_qp(qp, &a, mask);
}

/*
 * Passes the peer's offer or answer to ibv_set_ece(3), which must be called before RTR. A QP that
 * knows none of the peer's options works without them.
 */
static int take_ece(struct rdmacm_id *id)
{
	struct ibv_ece ece = id->remote_ece;
	int ret;

	/*
	 * If the peer offered no option that Roost knows, it gets no answer, because other
	 * libraries fail on an answer that they did not ask for.
	 */
	if (id->passive)
		id->local_ece = (struct ibv_ece){0};
	if (!ece.vendor_id)
		return 0;
	ret = ibv_set_ece(id->id.qp, &ece);
	if (ret == EOPNOTSUPP)
		return 0;
	if (ret == 0 && id->passive)
		ret = ibv_query_ece(id->id.qp, &id->local_ece);
	if (id->passive && id->local_ece.vendor_id != ece.vendor_id)
		id->local_ece = (struct ibv_ece){0};
	return -ret;
}

/* Repeats the transition to INIT first, because the access rights are known only now. */
int rdmacm_qp_to_rtr(struct rdmacm_id *id)
{
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_RTR};
	int mask, ret = rdmacm_qp_to_init(id, id->id.qp);

	if (ret == 0)
		ret = take_ece(id);
	if (ret == 0)
		ret = qp_attr_for(id, &a, &mask);
	if (ret)
		return ret;
	if (mask & IBV_QP_MAX_DEST_RD_ATOMIC && id->passive)
		a.max_dest_rd_atomic = id->responder_resources;
	return rdmacm_modify_qp(id->id.qp, &a, mask);
}

int rdmacm_qp_to_rts(struct rdmacm_id *id)
{
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_RTS};
	int mask, ret = qp_attr_for(id, &a, &mask);

	if (ret)
		return ret;
	if (mask & IBV_QP_MAX_QP_RD_ATOMIC && id->passive)
		a.max_rd_atomic = id->initiator_depth;
	return rdmacm_modify_qp(id->id.qp, &a, mask);
}

int rdmacm_qp_to_error(struct rdmacm_id *id)
{
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_ERR};

	if (!id->id.qp || id->state == RDMACM_DEAD)
		return 0;
	return rdmacm_modify_qp(id->id.qp, &a, IBV_QP_STATE);
}

/* ---- creating and destroying ---- */

static void destroy_cq(struct ibv_cq **cq, struct ibv_comp_channel **channel)
{
	if (*cq)
		ibv_destroy_cq(*cq);
	if (*channel)
		ibv_destroy_comp_channel(*channel);
	*cq = NULL;
	*channel = NULL;
}

void rdmacm_destroy_cqs(struct rdma_cm_id *id)
{
	destroy_cq(&id->send_cq, &id->send_cq_channel);
	destroy_cq(&id->recv_cq, &id->recv_cq_channel);
}

static int create_cq(struct rdma_cm_id *id, uint32_t size, struct ibv_cq **cq,
		     struct ibv_comp_channel **channel)
{
	if (!size)
		return 0;
	*channel = ibv_create_comp_channel(id->verbs);
	if (!*channel)
		return -errno;
	*cq = ibv_create_cq(id->verbs, (int)size, id, *channel, 0);
	return *cq ? 0 : -errno;
}

/* Creates the CQs that the program does not give. */
static int fill_in_cqs(struct rdma_cm_id *id, struct ibv_qp_init_attr_ex *a)
{
	int ret = 0;

	if (!a->send_cq && !id->send_cq)
		ret = create_cq(id, a->cap.max_send_wr, &id->send_cq, &id->send_cq_channel);
	if (ret == 0 && !a->recv_cq && !id->recv_cq)
		ret = create_cq(id, a->cap.max_recv_wr, &id->recv_cq, &id->recv_cq_channel);
	if (ret)
		return ret;
	if (!a->send_cq)
		a->send_cq = id->send_cq ? id->send_cq : a->recv_cq;
	if (!a->recv_cq)
		a->recv_cq = id->recv_cq ? id->recv_cq : a->send_cq;
	if (!a->send_cq)
		a->send_cq = a->recv_cq;
	return 0;
}

static int bring_to_first_state(struct rdmacm_id *id, struct ibv_qp *qp)
{
	struct ibv_qp_attr a;
	int mask, ret = rdmacm_qp_to_init(id, qp);

	for (int s = IBV_QPS_RTR; ret == 0 && rdmacm_is_ud(id) && s <= IBV_QPS_RTS; s++) {
		a.qp_state = (enum ibv_qp_state)s;
		ret = qp_attr_for(id, &a, &mask);
		if (ret == 0)
			ret = rdmacm_modify_qp(qp, &a, mask);
	}
	return ret;
}

static int create_qp(struct rdmacm_id *id, struct ibv_qp_init_attr_ex *a)
{
	struct rdma_cm_id *pub = &id->id;
	struct ibv_qp *qp;
	int ret;

	if (!(a->comp_mask & IBV_QP_INIT_ATTR_PD) || !a->pd) {
		a->comp_mask |= IBV_QP_INIT_ATTR_PD;
		a->pd = pub->pd;
	}
	if (pub->qp || !pub->verbs || !a->pd || a->pd->context != pub->verbs ||
	    (a->send_cq && pub->send_cq && a->send_cq != pub->send_cq) ||
	    (a->recv_cq && pub->recv_cq && a->recv_cq != pub->recv_cq))
		return -EINVAL;
	ret = fill_in_cqs(pub, a);
	if (ret)
		goto destroy_cqs;
	if (pub->srq && !a->srq)
		a->srq = pub->srq;
	qp = ibv_create_qp_ex(pub->verbs, a);
	ret = qp ? 0 : -errno;
	if (ret)
		goto destroy_cqs;
	rdmacm_lock();
	ret = bring_to_first_state(id, qp);
	rdmacm_unlock();
	if (ret)
		goto destroy_qp;
	/*
	 * A passive id makes no offer. With one, the peer's offer would be taken for it in one
	 * connection of 65,536, whose offers are equal by chance.
	 */
	if (id->passive || ibv_query_ece(qp, &id->local_ece))
		memset(&id->local_ece, 0, sizeof(id->local_ece));
	rdmacm_lock();
	pub->pd = qp->pd;
	pub->qp = qp;
	rdmacm_unlock();
	return 0;

destroy_qp:
	ibv_destroy_qp(qp);
destroy_cqs:
	rdmacm_destroy_cqs(pub);
	return ret;
}

ROOST_EXPORT int rdma_create_qp_ex(struct rdma_cm_id *id, struct ibv_qp_init_attr_ex *qp_init_attr)
{
	return rdmacm_ret(create_qp(rdmacm_id(id), qp_init_attr));
}

ROOST_EXPORT int rdma_create_qp(struct rdma_cm_id *id, struct ibv_pd *pd,
				struct ibv_qp_init_attr *a)
{
	struct ibv_qp_init_attr_ex ex = {
		.qp_context = a->qp_context,
		.send_cq = a->send_cq,
		.recv_cq = a->recv_cq,
		.srq = a->srq,
		.cap = a->cap,
		.qp_type = a->qp_type,
		.sq_sig_all = a->sq_sig_all,
		.comp_mask = IBV_QP_INIT_ATTR_PD,
		.pd = pd ? pd : id->pd,
	};
	int ret = create_qp(rdmacm_id(id), &ex);

	if (ret == 0)
		a->cap = ex.cap;
	return rdmacm_ret(ret);
}

/* The id may have no QP: qperf's server calls this for its listener. */
ROOST_EXPORT void rdma_destroy_qp(struct rdma_cm_id *id)
{
	struct ibv_qp *qp;

	rdmacm_lock();
	rdmacm_change_await(rdmacm_id(id));
	qp = id->qp;
	id->qp = NULL; /* later events of the id must not change this QP */
	rdmacm_unlock();
	if (!qp)
		return;
	ibv_destroy_qp(qp);
	rdmacm_destroy_cqs(id);
}

/* ---- shared receive queues ---- */

/* The CQ of its completions must exist before any QP. */
static int create_srq(struct rdma_cm_id *id, struct ibv_srq_init_attr_ex *a)
{
	struct ibv_srq *srq;

	if (!(a->comp_mask & IBV_SRQ_INIT_ATTR_PD) || !a->pd) {
		a->comp_mask |= IBV_SRQ_INIT_ATTR_PD;
		a->pd = id->pd;
	}
	if (id->srq || !id->verbs || !a->pd || a->pd->context != id->verbs)
		return -EINVAL;
	srq = ibv_create_srq_ex(id->verbs, a);
	if (!srq)
		return -errno;
	id->pd = a->pd;
	id->srq = srq;
	return 0;
}

ROOST_EXPORT int rdma_create_srq_ex(struct rdma_cm_id *id, struct ibv_srq_init_attr_ex *attr)
{
	return rdmacm_ret(create_srq(id, attr));
}

ROOST_EXPORT int rdma_create_srq(struct rdma_cm_id *id, struct ibv_pd *pd,
				 struct ibv_srq_init_attr *attr)
{
	struct ibv_srq_init_attr_ex ex = {
		.srq_context = attr->srq_context,
		.attr = attr->attr,
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD,
		.srq_type = IBV_SRQT_BASIC,
		.pd = pd ? pd : id->pd,
	};
	int ret = create_srq(id, &ex);

	if (ret == 0)
		attr->attr = ex.attr;
	return rdmacm_ret(ret);
}

ROOST_EXPORT void rdma_destroy_srq(struct rdma_cm_id *id)
{
	ibv_destroy_srq(id->srq);
	id->srq = NULL;
}
