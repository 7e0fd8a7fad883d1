/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * ibv_post_send() and ibv_post_recv() write a WQE into the ring for each work request. A list of
 * work requests costs one store of the producer index and one doorbell.
 */
#include "verbs/post.h"

/* For each op-code of the verbs: the op-code of the ring, and the fields that it uses. */
enum {
	WR_RADDR = 1,
	WR_IMM = 2,
	WR_ATOMIC = 4,
	WR_INLINE = 8,
	WR_KNOWN = 16,
	WR_LOCAL = 32,
	WR_BIND = 64
};

static const struct {
	uint8_t op, fields;
} wr_ops[16] = {
	[IBV_WR_RDMA_WRITE] = {ROOST_OP_WRITE, WR_KNOWN | WR_RADDR | WR_INLINE},
	[IBV_WR_RDMA_WRITE_WITH_IMM] = {ROOST_OP_WRITE_IMM,
					WR_KNOWN | WR_RADDR | WR_IMM | WR_INLINE},
	[IBV_WR_SEND] = {ROOST_OP_SEND, WR_KNOWN | WR_INLINE},
	[IBV_WR_SEND_WITH_IMM] = {ROOST_OP_SEND_IMM, WR_KNOWN | WR_IMM | WR_INLINE},
	[IBV_WR_SEND_WITH_INV] = {ROOST_OP_SEND_INV, WR_KNOWN | WR_IMM | WR_INLINE},
	[IBV_WR_RDMA_READ] = {ROOST_OP_READ, WR_KNOWN | WR_RADDR},
	[IBV_WR_ATOMIC_CMP_AND_SWP] = {ROOST_OP_CMP_SWAP, WR_KNOWN | WR_ATOMIC},
	[IBV_WR_ATOMIC_FETCH_AND_ADD] = {ROOST_OP_FETCH_ADD, WR_KNOWN | WR_ATOMIC},
	[IBV_WR_LOCAL_INV] = {ROOST_OP_LOCAL_INV, WR_KNOWN | WR_LOCAL | WR_IMM},
	[IBV_WR_BIND_MW] = {ROOST_OP_BIND_MW, WR_KNOWN | WR_LOCAL | WR_BIND},
};

static inline void put_sges(struct roost_sge *to, const struct ibv_sge *sges, uint32_t n)
{
	if (likely(n == 1))
		memcpy(to, sges, sizeof(*to));
	else if (n)
		memcpy(to, sges, n * sizeof(*to));
}

/* Writes the WQE of a request that moves no data. */
static int put_local(struct roost_wqe *w, const struct ibv_send_wr *wr, uint8_t fields)
{
	if (wr->num_sge || wr->send_flags & IBV_SEND_INLINE)
		return EINVAL;
	if (!(fields & WR_BIND)) {
		w->num_sge = 0;
		w->inline_len = 0;
		w->imm = wr->invalidate_rkey;
		return 0;
	}
	if (wr->bind_mw.mw->type != IBV_MW_TYPE_2)
		return EINVAL; /* windows of type 1 are bound by ibv_bind_mw() */
	return post_bind(w, wr->bind_mw.mw, wr->bind_mw.rkey, &wr->bind_mw.bind_info);
}

/* Writes WQE number n. Returns 0 or a positive errno. */
static inline int put_send(struct verbs_queue *sq, uint32_t n, const struct ibv_send_wr *wr)
{
	struct roost_wqe *w = post_slot(sq, n);
	uint8_t fields;

	if (unlikely((unsigned)wr->opcode >= ARRAY_SIZE(wr_ops)))
		return EINVAL;
	fields = wr_ops[wr->opcode].fields;
	if (unlikely(!fields))
		return EOPNOTSUPP;
	if (unlikely(!(sq->wr_ops >> wr->opcode & 1)))
		return EINVAL;
	if (unlikely((uint32_t)wr->num_sge > sq->max_sge || wr->send_flags & ~VERBS_SEND_FLAGS))
		return EINVAL;
	w->ctrl = ROOST_CTRL(wr_ops[wr->opcode].op, 0);
	w->flags = post_flags(wr->send_flags);
	if (unlikely(fields & WR_LOCAL))
		return put_local(w, wr, fields);
	if (fields & WR_ATOMIC) {
		w->raddr = wr->wr.atomic.remote_addr;
		w->rkey = wr->wr.atomic.rkey;
		if (wr->opcode == IBV_WR_ATOMIC_CMP_AND_SWP) {
			w->swap_add = wr->wr.atomic.swap;
			w->compare = wr->wr.atomic.compare_add;
		} else {
			w->swap_add = wr->wr.atomic.compare_add;
			w->compare = 0;
		}
	} else {
		if (sq->ud)
			post_ud_addr(w, wr->wr.ud.ah, wr->wr.ud.remote_qpn, wr->wr.ud.remote_qkey);
		if (fields & WR_RADDR) {
			w->raddr = wr->wr.rdma.remote_addr;
			w->rkey = wr->wr.rdma.rkey;
		}
		if (fields & WR_IMM)
			w->imm = wr->imm_data;
	}
	if (wr->send_flags & IBV_SEND_INLINE) {
		if (unlikely(!(fields & WR_INLINE)))
			return EINVAL;
		return post_inline(w, sq, wr->sg_list, wr->num_sge);
	}
	w->inline_len = 0;
	w->num_sge = (uint16_t)wr->num_sge;
	put_sges(w->sge, wr->sg_list, w->num_sge);
	return 0;
}

int verbs_post_send(struct ibv_qp *ibqp, struct ibv_send_wr *wr, struct ibv_send_wr **bad_wr)
{
	struct verbs_qp *qp = verbs_qp(ibqp);
	struct verbs_queue *sq = &qp->sq;
	uint32_t head;
	bool posted;
	int ret = 0;

	spin_lock(&sq->lock);
	head = sq->head;
	if (unlikely(!post_send_allowed(qp)))
		ret = EINVAL;
	for (; wr && !ret; wr = wr->next) {
		if (unlikely(!post_space(sq, head)))
			ret = ENOMEM;
		else
			ret = put_send(sq, head, wr);
		if (unlikely(ret))
			break;
		sq->wr_id[head & sq->mask] = wr->wr_id;
		head++;
	}
	posted = head != sq->head;
	if (likely(posted))
		post_publish(sq, head);
	spin_unlock(&sq->lock);
	if (unlikely(ret))
		*bad_wr = wr;
	if (likely(posted))
		drive_doorbell(qp->drive, qp->nic_qp);
	return ret;
}

/*
 * Binds a window of type 1. The inline function in verbs.h has checked the arguments. The window
 * gets its new key at once, as with hardware.
 */
int verbs_bind_mw(struct ibv_qp *ibqp, struct ibv_mw *mw, struct ibv_mw_bind *bind)
{
	struct verbs_qp *qp = verbs_qp(ibqp);
	struct verbs_queue *sq = &qp->sq;
	uint32_t key = ibv_inc_rkey(mw->rkey), head;
	struct roost_wqe *w;
	int ret = EINVAL;

	spin_lock(&sq->lock);
	head = sq->head;
	if (!post_send_allowed(qp) ||
	    bind->send_flags & ~(VERBS_SEND_FLAGS & ~(unsigned)IBV_SEND_INLINE))
		goto unlock;
	ret = ENOMEM;
	if (!post_space(sq, head))
		goto unlock;
	w = post_slot(sq, head);
	w->ctrl = ROOST_CTRL(ROOST_OP_BIND_MW, 0);
	w->flags = post_flags(bind->send_flags);
	ret = post_bind(w, mw, key, &bind->bind_info);
	if (ret)
		goto unlock;
	sq->wr_id[head & sq->mask] = bind->wr_id;
	mw->rkey = key;
	post_publish(sq, head + 1);
unlock:
	spin_unlock(&sq->lock);
	if (!ret)
		drive_doorbell(qp->drive, qp->nic_qp);
	return ret;
}

static inline int put_recv(struct verbs_queue *rq, uint32_t n, const struct ibv_recv_wr *wr)
{
	struct roost_recv_wqe *w = post_slot(rq, n);

	if (unlikely((uint32_t)wr->num_sge > rq->max_sge))
		return EINVAL;
	w->ctrl = ROOST_CTRL(ROOST_OP_RECV, 0);
	w->num_sge = (uint32_t)wr->num_sge;
	put_sges(w->sge, wr->sg_list, w->num_sge);
	return 0;
}

/*
 * Publishes receives. Returns whether they need a doorbell: they do only in the error state, where
 * they are flushed. The NIC stores the state (qp_set_state() in src/nic/qp.c), then reads the
 * producer index (req_idle()). This function stores the producer index, then reads the state. All
 * four accesses are sequentially consistent, so at least one side sees the other's store. A weaker
 * order would not keep a load behind a store to another word.
 */
static inline bool publish_recv(struct verbs_qp *qp, uint32_t head)
{
	qp->rq.head = head;
	atomic_exchange_explicit(&qp->rq.index->prod, head, memory_order_seq_cst);
	return nic_qp_state(qp->nic_qp) == NIC_QPS_ERR;
}

/*
 * Writes receives into the ring, starting at `head`. The queue is locked. Returns the new head. On
 * an error sets *err and *bad_wr.
 */
static inline uint32_t put_recvs(struct verbs_queue *rq, struct ibv_recv_wr *wr,
				 struct ibv_recv_wr **bad_wr, int *err)
{
	uint32_t head = rq->head;

	for (; wr; wr = wr->next) {
		*err = likely(post_space(rq, head)) ? put_recv(rq, head, wr) : ENOMEM;
		if (unlikely(*err)) {
			*bad_wr = wr;
			break;
		}
		rq->wr_id[head & rq->mask] = wr->wr_id;
		head++;
	}
	return head;
}

int verbs_post_recv(struct ibv_qp *ibqp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr)
{
	struct verbs_qp *qp = verbs_qp(ibqp);
	struct verbs_queue *rq = &qp->rq;
	uint32_t head;
	bool ring = false;
	int ret = 0;

	spin_lock(&rq->lock);
	if (unlikely(ibqp->state == IBV_QPS_RESET || ibqp->srq)) {
		ret = EINVAL;
		*bad_wr = wr;
	} else {
		head = put_recvs(rq, wr, bad_wr, &ret);
		if (likely(head != rq->head))
			ring = publish_recv(qp, head);
	}
	spin_unlock(&rq->lock);
	if (unlikely(ring))
		drive_doorbell(qp->drive, qp->nic_qp);
	return ret;
}

/* Rings no doorbell, because a QP that found the queue empty looks again when its peer retries. */
int verbs_post_srq_recv(struct ibv_srq *ibsrq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr)
{
	struct verbs_queue *rq = &verbs_srq(ibsrq)->rq;
	int ret = 0;

	spin_lock(&rq->lock);
	post_publish(rq, put_recvs(rq, wr, bad_wr, &ret));
	spin_unlock(&rq->lock);
	return ret;
}
