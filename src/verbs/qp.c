/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Creates and destroys queue pairs. qp_attr.c has states and attributes, post.c and qp_ex.c have
 * posting.
 */
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "verbs/objects.h"

/*
 * Returns the operations of a QP type (IBA table 37), for ibv_create_qp_ex() and for posting. RC
 * has all operations.
 */
static uint64_t send_ops_of(enum ibv_qp_type type)
{
	switch (type) {
	case IBV_QPT_RC:
		return VERBS_QP_EX_OPS;
	case IBV_QPT_UC:
		return IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM |
		       IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM;
	case IBV_QPT_UD:
		return IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM;
	default:
		return 0;
	}
}

static uint32_t wr_ops_of(enum ibv_qp_type type)
{
	const uint32_t sends = 1u << IBV_WR_SEND | 1u << IBV_WR_SEND_WITH_IMM;

	if (type == IBV_QPT_UC)
		return sends | 1u << IBV_WR_RDMA_WRITE | 1u << IBV_WR_RDMA_WRITE_WITH_IMM;
	if (type == IBV_QPT_UD)
		return sends;
	return UINT32_MAX;
}

static int qp_check(const struct verbs_ctx *ctx, const struct ibv_qp_init_attr_ex *a)
{
	const uint32_t mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS |
			      IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;

	if (!(a->comp_mask & IBV_QP_INIT_ATTR_PD) || !a->pd || !a->send_cq || !a->recv_cq)
		return -EINVAL;
	if (a->comp_mask & ~mask || !send_ops_of(a->qp_type))
		return -EOPNOTSUPP;
	if (a->comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS && a->create_flags)
		return -EOPNOTSUPP;
	if (a->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS &&
	    a->send_ops_flags & ~send_ops_of(a->qp_type))
		return -EOPNOTSUPP;
	if (verbs_ctx(a->send_cq->context)->drive != ctx->drive ||
	    verbs_ctx(a->recv_cq->context)->drive != ctx->drive ||
	    (a->srq && verbs_srq(a->srq)->drive != ctx->drive))
		return -EINVAL;
	if (a->cap.max_send_wr > NIC_MAX_WR || a->cap.max_recv_wr > NIC_MAX_WR ||
	    a->cap.max_send_sge > ROOST_MAX_SGE || a->cap.max_recv_sge > ROOST_MAX_SGE ||
	    a->cap.max_inline_data > ROOST_MAX_INLINE)
		return -EINVAL;
	return 0;
}

/*
 * Sets the sizes of both queues. The stride is a power of two. The program gets the spare space as
 * inline data.
 */
static void qp_size(struct verbs_qp *qp, const struct ibv_qp_cap *cap)
{
	size_t sge_end = ROOST_WQE_SGE_OFFSET + cap->max_send_sge * sizeof(struct roost_sge);
	size_t inline_end = ROOST_WQE_INLINE_OFFSET + cap->max_inline_data;
	struct verbs_queue *sq = &qp->sq;

	sq->depth = (uint32_t)pow2_ceil(cap->max_send_wr);
	sq->mask = sq->depth - 1;
	sq->shift = verbs_stride_shift(sge_end > inline_end ? sge_end : inline_end);
	sq->max_sge = cap->max_send_sge;
	sq->max_inline = (1u << sq->shift) - ROOST_WQE_INLINE_OFFSET;
	if (cap->max_recv_wr && !qp->qp.srq)
		verbs_recv_size(&qp->rq, cap->max_recv_wr, cap->max_recv_sge);
}

static int qp_start(struct verbs_ctx *ctx, struct verbs_qp *qp)
{
	struct nic_qp_init init = {
		.type = (enum nic_qp_type)qp->qp.qp_type,
		.pd = qp->qp.pd->handle,
		.send_cq = verbs_cq(qp->qp.send_cq)->nic_cq,
		.recv_cq = verbs_cq(qp->qp.recv_cq)->nic_cq,
		.srq = qp->qp.srq ? verbs_srq(qp->qp.srq)->nic_srq : NULL,
		.sq = verbs_queue_attr(&qp->sq),
		.rq = verbs_queue_attr(&qp->rq),
		.max_inline = qp->sq.max_inline,
		.sig_all = qp->sig_all,
		.ctx = qp,
		.now = drive_now(qp->drive),
	};
	int ret;

	drive_control_lock(qp->drive);
	qp->pu = nic_qp_home_pu(&init);
	verbs_own_all(qp->drive); /* its CQs may belong to other PUs */
	ret = nic_qp_create(ctx->nic, &init, &qp->nic_qp);
	verbs_disown_all(qp->drive);
	drive_control_unlock(qp->drive);
	if (ret == -EAGAIN)
		log_warn("verbs: no queue pair: the numbers of those that were destroyed return "
			 "after %d s; create fewer in this time, or keep them",
			 NUMBERS_REST_S);
	return ret;
}

static void qp_init_events(struct verbs_qp *qp)
{
	int i;

	for (i = 0; i < VERBS_QP_EVENTS; i++) {
		qp->events[i].reported = &qp->async_reported;
		qp->events[i].object = &qp->qp;
		qp->events[i].type = i;
	}
	qp->events[VERBS_QP_LAST_WQE].type = IBV_EVENT_QP_LAST_WQE_REACHED;
	pthread_mutex_init(&qp->qp.mutex, NULL);
	pthread_cond_init(&qp->qp.cond, NULL);
}

static void qp_set_cap(const struct verbs_qp *qp, struct ibv_qp_cap *cap)
{
	cap->max_send_wr = qp->sq.depth;
	cap->max_recv_wr = qp->rq.depth;
	cap->max_send_sge = qp->sq.max_sge;
	cap->max_recv_sge = qp->rq.max_sge;
	cap->max_inline_data = qp->sq.max_inline;
}

static struct verbs_qp *qp_new(struct ibv_context *context, const struct ibv_qp_init_attr_ex *a)
{
	struct verbs_ctx *ctx = verbs_ctx(context);
	struct verbs_qp *qp = verbs_new(sizeof(*qp));
	struct verbs_queue *queues[2];
	int ret;

	if (!qp)
		return NULL;
	qp->drive = ctx->drive;
	qp->sig_all = a->sq_sig_all != 0;
	qp->qp.context = context;
	qp->qp.qp_context = a->qp_context;
	qp->qp.pd = a->pd;
	qp->qp.send_cq = a->send_cq;
	qp->qp.recv_cq = a->recv_cq;
	qp->qp.srq = a->srq;
	qp->qp.state = IBV_QPS_RESET;
	qp->qp.qp_type = a->qp_type;
	qp->sq.wr_ops = wr_ops_of(a->qp_type);
	qp->sq.ud = a->qp_type == IBV_QPT_UD;
	qp_init_events(qp);
	qp_size(qp, &a->cap);
	if (a->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS)
		verbs_qp_ex_init(qp);
	queues[0] = &qp->sq;
	queues[1] = &qp->rq;
	ret = verbs_queues_alloc(ctx, queues, 2, &qp->mem, &qp->mem_size);
	if (ret)
		goto free_qp;
	ret = qp_start(ctx, qp);
	if (ret)
		goto free_mem;
	qp->qp.qp_num = nic_qp_num(qp->nic_qp);
	qp->qp.handle = qp->qp.qp_num;
	return qp;

free_mem:
	verbs_queues_free(ctx, qp->mem, qp->mem_size);
free_qp:
	free(qp);
	return verbs_null(-ret);
}

struct ibv_qp *verbs_create_qp_ex(struct ibv_context *context, struct ibv_qp_init_attr_ex *attr)
{
	struct verbs_ctx *ctx = verbs_ctx(context);
	int ret = qp_check(ctx, attr);
	struct verbs_qp *qp;

	if (ret)
		return verbs_null(-ret);
	qp = qp_new(context, attr);
	if (!qp)
		return NULL;
	qp_set_cap(qp, &attr->cap);
	pthread_mutex_lock(&ctx->lock);
	list_add_tail(&qp->link, &ctx->qps);
	pthread_mutex_unlock(&ctx->lock);
	return &qp->qp;
}

VERBS_EXPORT struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	struct ibv_qp_init_attr_ex ex = {
		.qp_context = attr->qp_context,
		.send_cq = attr->send_cq,
		.recv_cq = attr->recv_cq,
		.srq = attr->srq,
		.cap = attr->cap,
		.qp_type = attr->qp_type,
		.sq_sig_all = attr->sq_sig_all,
		.comp_mask = IBV_QP_INIT_ATTR_PD,
		.pd = pd,
	};
	struct ibv_qp *qp = verbs_create_qp_ex(pd->context, &ex);

	if (qp)
		attr->cap = ex.cap;
	return qp;
}

/*
 * Returns whether a QP is attached to a multicast group. Such a QP may not be destroyed, as in the
 * Linux kernel (uverbs, rxe).
 */
static bool qp_in_group(struct verbs_qp *qp)
{
	bool in;

	drive_control_lock(qp->drive);
	in = !qp->ended && nic_qp_groups(qp->nic_qp) != 0;
	drive_control_unlock(qp->drive);
	return in;
}

/*
 * Removes the QP from the NIC, and then its completions from the CQs: a later QP may get the same
 * number.
 *
 * The program may know by other means than a packet of the connection that the peer has its last
 * message, for example by a DREQ, which takes another way than packets through shared memory. The
 * ACK has arrived by then, and the message must complete. A NIC in hardware has processed it: it
 * processes packets in the order of their arrival, and does not wait for a core.
 */
static void qp_end(struct verbs_qp *qp)
{
	struct verbs_cqs_end end;

	if (qp->ended) /* by a thread that was cancelled in qp_wait_acks() */
		return;
	drive_receive(qp->drive, qp->pu);
	drive_control_lock(qp->drive);
	drive_own(qp->drive, qp->pu);
	if (qp->qp.qp_type == IBV_QPT_UD)
		drive_send_datagrams(qp->drive, qp->pu);
	nic_qp_destroy(drive_nic(qp->drive), qp->nic_qp);
	qp->ended = true;
	end = verbs_cqs_end(qp);
	drive_disown(qp->drive, qp->pu);
	drive_control_unlock(qp->drive);
	verbs_cqs_clean(qp, end);
}

/* As cq_wait_acks() in cq.c. */
static void qp_wait_acks(struct verbs_qp *qp)
{
	uint32_t reported = 0;
	int i;

	for (i = 0; i < VERBS_QP_EVENTS; i++)
		reported = evq_forget(&verbs_ctx(qp->qp.context)->async, &qp->events[i]);
	pthread_mutex_lock(&qp->qp.mutex);
	pthread_cleanup_push(verbs_unlock, &qp->qp.mutex);
	while (qp->qp.events_completed != reported)
		pthread_cond_wait(&qp->qp.cond, &qp->qp.mutex);
	pthread_cleanup_pop(1);
}

VERBS_EXPORT int ibv_destroy_qp(struct ibv_qp *ibqp)
{
	struct verbs_qp *qp = verbs_qp(ibqp);
	struct verbs_ctx *ctx = verbs_ctx(ibqp->context);

	if (qp_in_group(qp) || atomic_load_explicit(&qp->ring_regions, memory_order_relaxed))
		return verbs_ret(-EBUSY);
	qp_end(qp);
	qp_wait_acks(qp);
	pthread_mutex_lock(&ctx->lock);
	list_del(&qp->link);
	pthread_mutex_unlock(&ctx->lock);
	pthread_mutex_destroy(&ibqp->mutex);
	pthread_cond_destroy(&ibqp->cond);
	verbs_queues_free(ctx, qp->mem, qp->mem_size);
	free(qp);
	return 0;
}

/*
 * Ends the queue pairs. Their memory stays, because the program still has the objects (as in cq.c).
 */
void verbs_qp_reap(struct verbs_ctx *ctx)
{
	struct verbs_qp *qp;

	while (!list_empty(&ctx->qps)) {
		qp = list_first_entry(&ctx->qps, struct verbs_qp, link);
		list_del(&qp->link);
		qp_end(qp);
	}
}
