/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Work requests of kernels, on queue pairs that the host has bound to them. Like replies (rpc.c),
 * they are entries of the send queue, behind the present entries. The requester does segmentation,
 * windows, retransmission and errors as for WQEs. Two things differ: the bytes may be in the
 * kernel's own memory (key 0), and completions go to the layer that serves calls, not to a CQ.
 */
#include "nic/core.h"
#include "nic/dma.h"
#include "nic/nic_kernel_wr.h"
#include "nic/nic_rpc.h"

int nic_qp_enable_kernel_wrs(struct nic *nic, struct nic_qp *qp)
{
	uint64_t before = qp->bytes;
	int rc;

	if (qp->type != NIC_QPT_RC || !nic->rpc_ops || !nic->rpc_ops->kernel_wr_done)
		return -EOPNOTSUPP;
	if (qp->kernel_wrs_enabled)
		return 0;
	rc = qp_size_entries(qp, qp->sq.window,
			     NIC_MAX_KERNEL_WRS + (qp_has(qp, QP_RPC) ? NIC_RPC_SENDS : 0));
	memory_of_qps(nic, before, qp->bytes);
	qp->kernel_wrs_enabled = rc == 0;
	return rc;
}

/* Returns true if the local memory allows the access. */
static bool memory_allows(const struct nic_qp *qp, const struct nic_kernel_wr *a)
{
	uint32_t access = op_gets_data(a->op) ? NIC_ACCESS_LOCAL_WRITE : MR_LOCAL;

	return !a->len || a->buf ||
	       mr_resolve(&qp->nic->mrs, a->key, qp->pd, a->va, a->len, access);
}

/* Refuses requests that would end the connection at the peer, or would never be answered. */
static bool is_valid(const struct nic_qp *qp, const struct nic_kernel_wr *a)
{
	if (a->len > NIC_MAX_MSG)
		return false;
	if (op_is_atomic(a->op) && (a->len != 8 || a->raddr & 7))
		return false;
	return qp->attr.max_rd_atomic || !op_gets_data(a->op);
}

int nic_post_kernel_wr(struct nic_qp *qp, const struct nic_kernel_wr *a)
{
	struct qp_sq *sq = &qp->sq;
	struct sq_entry *e;

	if (!qp->kernel_wrs_enabled || !is_valid(qp, a))
		return -EINVAL;
	if (qp->state != NIC_QPS_RTS && qp->state != NIC_QPS_SQD)
		return -ENOTCONN;
	if (!memory_allows(qp, a))
		return -EACCES;
	if (sq->count[SQ_KERNEL_WR] == NIC_MAX_KERNEL_WRS)
		return -EAGAIN;
	e = sq_next_entry(sq);
	e->origin = SQ_KERNEL_WR;
	e->owner = a->owner;
	e->number = a->number;
	e->npkts = a->len ? (a->len + qp->mtu - 1) >> qp->mtu_shift : 1;
	e->len = a->len;
	e->op = a->op;
	e->status = NIC_WC_SUCCESS;
	e->wqe.flags = a->solicited ? ROOST_WQE_SOLICITED : 0;
	e->wqe.raddr = a->raddr;
	e->wqe.rkey = a->rkey;
	e->wqe.imm = a->imm;
	e->wqe.swap_add = a->swap_add;
	e->wqe.compare = a->compare;
	e->kernel_wr.addr = a->buf ? (uintptr_t)a->buf : a->va;
	e->kernel_wr.key = a->buf ? 0 : a->key;
	sq_append(sq, e);
	nic_schedule(qp);
	return 0;
}

unsigned nic_kernel_wrs(const struct nic_qp *qp)
{
	return qp->sq.count[SQ_KERNEL_WR];
}

/*
 * Returns the address of n bytes of the memory of the work request, or NULL if the region does not
 * permit the access.
 */
static void *memory_at(struct nic_qp *qp, const struct sq_entry *e, uint32_t off, uint32_t n,
		       uint32_t access)
{
	uint64_t addr = e->kernel_wr.addr + off;

	if (!e->kernel_wr.key)
		return (void *)(uintptr_t)addr;
	return mr_resolve(&qp->nic->mrs, e->kernel_wr.key, qp->pd, addr, n, access);
}

int kernel_wr_gather(struct nic_qp *qp, const struct sq_entry *e, uint32_t off, uint8_t *dst,
		     uint32_t n)
{
	const void *src = n ? memory_at(qp, e, off, n, MR_LOCAL) : NULL;

	return !n ? 0 : src ? dma_load(dst, src, n) : -EACCES;
}

int kernel_wr_scatter(struct nic_qp *qp, const struct sq_entry *e, uint32_t off, const uint8_t *src,
		      uint32_t n)
{
	void *dst = n ? memory_at(qp, e, off, n, NIC_ACCESS_LOCAL_WRITE) : NULL;

	return !n ? 0 : dst ? dma_copy(dst, src, n) : -EACCES;
}

void kernel_wr_retired(struct nic_qp *qp, const struct sq_entry *e)
{
	struct nic *nic = qp->nic;

	qp->pu->ctr.kernel_requests += e->status == NIC_WC_SUCCESS;
	nic->rpc_ops->kernel_wr_done(nic->rpc_ctx, qp, e->owner, e->number, e->len,
				     (enum nic_wc_status)e->status);
	/* The kernel knows the error, but the host may have no work request that reports it. */
	if (e->status != NIC_WC_SUCCESS && e->status != NIC_WC_WR_FLUSH_ERR)
		qp_event(qp, NIC_EVENT_QP_FATAL);
}

void kernel_wr_drop_all(struct nic_qp *qp)
{
	struct qp_sq *sq = &qp->sq;

	for (uint32_t i = sq->una; sq->count[SQ_KERNEL_WR] && i != sq->fetched; i++) {
		struct sq_entry *e = sq_entry(sq, i);

		if (e->origin != SQ_KERNEL_WR)
			continue;
		sq->count[SQ_KERNEL_WR]--;
		e->status = NIC_WC_WR_FLUSH_ERR;
		kernel_wr_retired(qp, e);
	}
}

void kernel_wr_qp_gone(struct nic_qp *qp)
{
	if (qp->kernel_wrs_enabled)
		qp->nic->rpc_ops->gone(qp->nic->rpc_ctx, qp);
}
