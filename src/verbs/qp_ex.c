/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The extended QP: wr_start, then a builder (wr_send ...) and a data setter for each work request,
 * then wr_complete. The builders write into the ring under the send queue's lock. The NIC sees
 * nothing before wr_complete. If there was an error, wr_complete returns the first one and posts
 * nothing.
 */
#include "verbs/post.h"

static struct verbs_qp *qp_of(struct ibv_qp_ex *ex)
{
	return (struct verbs_qp *)ex;
}

static void wr_begin(struct verbs_qp *qp)
{
	spin_lock(&qp->sq.lock);
	atomic_store_explicit(&qp->wr_thread, (uintptr_t)pthread_self(), memory_order_relaxed);
}

static void wr_end(struct verbs_qp *qp)
{
	atomic_store_explicit(&qp->wr_thread, 0, memory_order_relaxed);
	spin_unlock(&qp->sq.lock);
}

static void wr_start(struct ibv_qp_ex *ex)
{
	struct verbs_qp *qp = qp_of(ex);

	wr_begin(qp);
	qp->wr_head = qp->sq.head;
	qp->wr_cur = NULL;
	qp->wr_err = post_send_allowed(qp) ? 0 : EINVAL;
}

static void wr_abort(struct ibv_qp_ex *ex)
{
	wr_end(qp_of(ex));
}

static int wr_complete(struct ibv_qp_ex *ex)
{
	struct verbs_qp *qp = qp_of(ex);
	int err = qp->wr_err;
	bool posted = !err && qp->wr_head != qp->sq.head;

	if (posted)
		post_publish(&qp->sq, qp->wr_head);
	wr_end(qp);
	if (posted)
		drive_doorbell(qp->drive, qp->nic_qp);
	return err;
}

static void wr_fail(struct verbs_qp *qp, int err)
{
	if (!qp->wr_err)
		qp->wr_err = err;
	qp->wr_cur = NULL;
}

/* Returns the next WQE with the common fields filled in, or NULL after an error. */
static struct roost_wqe *wr_next(struct ibv_qp_ex *ex, enum roost_op op)
{
	struct verbs_qp *qp = qp_of(ex);
	struct roost_wqe *w;

	if (unlikely(qp->wr_err))
		return NULL;
	if (unlikely(!post_space(&qp->sq, qp->wr_head))) {
		wr_fail(qp, ENOMEM);
		return NULL;
	}
	if (unlikely(ex->wr_flags & ~VERBS_SEND_FLAGS)) {
		wr_fail(qp, EINVAL);
		return NULL;
	}
	w = post_slot(&qp->sq, qp->wr_head);
	qp->sq.wr_id[qp->wr_head & qp->sq.mask] = ex->wr_id;
	qp->wr_head++;
	qp->wr_cur = w;
	w->ctrl = ROOST_CTRL(op, 0);
	/* The data setter decides whether data are inline. */
	w->flags = post_flags(ex->wr_flags & ~(unsigned)IBV_SEND_INLINE);
	w->num_sge = 0;
	w->inline_len = 0;
	return w;
}

static void wr_rdma(struct ibv_qp_ex *ex, enum roost_op op, uint32_t rkey, uint64_t raddr,
		    uint32_t imm)
{
	struct roost_wqe *w = wr_next(ex, op);

	if (unlikely(!w))
		return;
	w->raddr = raddr;
	w->rkey = rkey;
	w->imm = imm;
}

static void wr_rdma_write(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t raddr)
{
	wr_rdma(ex, ROOST_OP_WRITE, rkey, raddr, 0);
}

static void wr_rdma_write_imm(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t raddr, __be32 imm)
{
	wr_rdma(ex, ROOST_OP_WRITE_IMM, rkey, raddr, imm);
}

static void wr_rdma_read(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t raddr)
{
	wr_rdma(ex, ROOST_OP_READ, rkey, raddr, 0);
}

static void wr_send(struct ibv_qp_ex *ex)
{
	wr_rdma(ex, ROOST_OP_SEND, 0, 0, 0);
}

static void wr_send_imm(struct ibv_qp_ex *ex, __be32 imm)
{
	wr_rdma(ex, ROOST_OP_SEND_IMM, 0, 0, imm);
}

static void wr_send_inv(struct ibv_qp_ex *ex, uint32_t rkey)
{
	wr_rdma(ex, ROOST_OP_SEND_INV, 0, 0, rkey);
}

static void wr_atomic(struct ibv_qp_ex *ex, enum roost_op op, uint32_t rkey, uint64_t raddr,
		      uint64_t swap_add, uint64_t compare)
{
	struct roost_wqe *w = wr_next(ex, op);

	if (unlikely(!w))
		return;
	w->raddr = raddr;
	w->rkey = rkey;
	w->swap_add = swap_add;
	w->compare = compare;
}

static void wr_atomic_cmp_swp(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t raddr, uint64_t compare,
			      uint64_t swap)
{
	wr_atomic(ex, ROOST_OP_CMP_SWAP, rkey, raddr, swap, compare);
}

static void wr_atomic_fetch_add(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t raddr, uint64_t add)
{
	wr_atomic(ex, ROOST_OP_FETCH_ADD, rkey, raddr, add, 0);
}

static void wr_local_inv(struct ibv_qp_ex *ex, uint32_t rkey)
{
	wr_rdma(ex, ROOST_OP_LOCAL_INV, 0, 0, rkey);
}

static void wr_bind_mw(struct ibv_qp_ex *ex, struct ibv_mw *mw, uint32_t rkey,
		       const struct ibv_mw_bind_info *info)
{
	struct roost_wqe *w = wr_next(ex, ROOST_OP_BIND_MW);
	int err;

	if (unlikely(!w))
		return;
	err = mw->type == IBV_MW_TYPE_2 ? post_bind(w, mw, rkey, info) : EINVAL;
	if (unlikely(err))
		wr_fail(qp_of(ex), err);
}

/* ---- unsupported operations; programs call these pointers without a check ---- */

static void wr_no_tso(struct ibv_qp_ex *ex, void *hdr, uint16_t hdr_sz, uint16_t mss)
{
	wr_fail(qp_of(ex), EOPNOTSUPP);
}

static void wr_no_xrc_srqn(struct ibv_qp_ex *ex, uint32_t srqn)
{
	wr_fail(qp_of(ex), EOPNOTSUPP);
}

/* ---- address of a datagram ---- */

static void wr_set_ud_addr(struct ibv_qp_ex *ex, struct ibv_ah *ah, uint32_t qpn, uint32_t qkey)
{
	struct verbs_qp *qp = qp_of(ex);

	if (unlikely(!qp->sq.ud))
		wr_fail(qp, EOPNOTSUPP);
	else if (likely(qp->wr_cur != NULL))
		post_ud_addr(qp->wr_cur, ah, qpn, qkey);
}

/* ---- data ---- */

static void wr_set_sge_list(struct ibv_qp_ex *ex, size_t num_sge, const struct ibv_sge *sges)
{
	struct verbs_qp *qp = qp_of(ex);
	struct roost_wqe *w = qp->wr_cur;

	if (unlikely(!w))
		return;
	if (unlikely(num_sge > qp->sq.max_sge)) {
		wr_fail(qp, EINVAL);
		return;
	}
	w->num_sge = (uint16_t)num_sge;
	if (num_sge)
		memcpy(w->sge, sges, num_sge * sizeof(*sges));
}

static void wr_set_sge(struct ibv_qp_ex *ex, uint32_t lkey, uint64_t addr, uint32_t length)
{
	struct ibv_sge sge = {.addr = addr, .length = length, .lkey = lkey};

	wr_set_sge_list(ex, 1, &sge);
}

static void wr_set_inline_data_list(struct ibv_qp_ex *ex, size_t num_buf,
				    const struct ibv_data_buf *bufs)
{
	struct verbs_qp *qp = qp_of(ex);
	struct roost_wqe *w = qp->wr_cur;
	uint8_t *to = (uint8_t *)w + ROOST_WQE_INLINE_OFFSET;
	size_t len = 0, i;
	uint16_t op;

	if (unlikely(!w))
		return;
	op = ROOST_CTRL_OP(w->ctrl);
	if (unlikely(op >= ROOST_OP_READ)) { /* these operations send no data */
		wr_fail(qp, EINVAL);
		return;
	}
	for (i = 0; i < num_buf; i++) {
		if (unlikely(bufs[i].length > qp->sq.max_inline - len)) {
			wr_fail(qp, EINVAL);
			return;
		}
		if (bufs[i].length)
			memcpy(to + len, bufs[i].addr, bufs[i].length);
		len += bufs[i].length;
	}
	w->inline_len = (uint32_t)len;
	w->flags |= ROOST_WQE_INLINE;
}

static void wr_set_inline_data(struct ibv_qp_ex *ex, void *addr, size_t length)
{
	struct ibv_data_buf buf = {.addr = addr, .length = length};

	wr_set_inline_data_list(ex, 1, &buf);
}

/*
 * Members after wr_send_tso stay NULL. Programs test them to find out whether a provider has the
 * operation (librpma: wr_atomic_write and wr_flush).
 */
void verbs_qp_ex_init(struct verbs_qp *qp)
{
	struct ibv_qp_ex *ex = &qp->ex;

	qp->has_ex = true;
	ex->wr_start = wr_start;
	ex->wr_complete = wr_complete;
	ex->wr_abort = wr_abort;
	ex->wr_rdma_write = wr_rdma_write;
	ex->wr_rdma_write_imm = wr_rdma_write_imm;
	ex->wr_rdma_read = wr_rdma_read;
	ex->wr_send = wr_send;
	ex->wr_send_imm = wr_send_imm;
	ex->wr_send_inv = wr_send_inv;
	ex->wr_atomic_cmp_swp = wr_atomic_cmp_swp;
	ex->wr_atomic_fetch_add = wr_atomic_fetch_add;
	ex->wr_bind_mw = wr_bind_mw;
	ex->wr_local_inv = wr_local_inv;
	ex->wr_send_tso = wr_no_tso;
	ex->wr_set_ud_addr = wr_set_ud_addr;
	ex->wr_set_xrc_srqn = wr_no_xrc_srqn;
	ex->wr_set_sge = wr_set_sge;
	ex->wr_set_sge_list = wr_set_sge_list;
	ex->wr_set_inline_data = wr_set_inline_data;
	ex->wr_set_inline_data_list = wr_set_inline_data_list;
}

VERBS_EXPORT struct ibv_qp_ex *ibv_qp_to_qp_ex(struct ibv_qp *qp)
{
	return verbs_qp(qp)->has_ex ? &verbs_qp(qp)->ex : NULL;
}
