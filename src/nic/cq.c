/* SPDX-License-Identifier: BSD-2-Clause */
/* Completion queues: pushing a CQE, overrun, notification. */
#include <stdlib.h>

#include "nic/chain.h"
#include "nic/core.h"
#include "nic/cq.h"

int nic_cq_create(struct nic *nic, const struct nic_cq_attr *a, struct nic_cq **out)
{
	struct nic_cq *cq;

	if (a->pu >= nic->cfg.pus || !a->index || !a->ring != !a->depth ||
	    a->depth & (a->depth - 1) || a->depth > NIC_MAX_CQE)
		return -EINVAL;
	cq = calloc(1, sizeof(*cq));
	if (!cq)
		return -ENOMEM;
	cq->nic = nic;
	cq->ring = a->ring;
	cq->index = a->index;
	cq->mask = a->depth - 1;
	cq->prod = cq->cons_seen = cq->count =
		atomic_load_explicit(&a->index->prod, memory_order_relaxed);
	cq->special = a->ring ? 0 : CQ_WATCHED;
	list_init(&cq->waiters);
	cq->pu = (uint8_t)a->pu;
	cq->ctx = a->ctx;
	list_add_tail(&cq->link, &nic->cqs);
	nic->num_cqs++;
	*out = cq;
	return 0;
}

int nic_cq_destroy(struct nic *nic, struct nic_cq *cq)
{
	struct pu *pu = nic->pus[cq->pu];

	if (cq->refs)
		return -EBUSY;
	for (unsigned i = 0; i < pu->num_dirty; i++)
		if (pu->dirty[i] == cq)
			pu->dirty[i--] = pu->dirty[--pu->num_dirty];
	list_del(&cq->link);
	nic->num_cqs--;
	free(cq);
	return 0;
}

unsigned nic_cq_pu(const struct nic_cq *cq)
{
	return cq->pu;
}

void nic_cq_set_ring(struct nic_cq *cq, struct roost_cqe *ring, uint32_t depth)
{
	cq->ring = ring;
	cq->mask = depth - 1;
	if (cq->overrun)
		cq->cons_seen = cq->prod - depth;
}

/*
 * Called when the CQ is full and a completion is lost. The CQ stays unusable (C11-37). The QP ends
 * with an asynchronous error (C9-218 for requesters, class F; rxe_resp.c, class G, for responders),
 * because its completion cannot be reported. The caller still works on the QP, so the QP ends
 * later, in qp_end_lost().
 */
static void overrun(struct nic_cq *cq, struct nic_qp *qp)
{
	if (!cq->overrun) {
		cq->overrun = true;
		qp->pu->ctr.cq_overrun++;
		cq->nic->cfg.ops->cq_error(cq->nic->cfg.host, cq->ctx);
	}
	if (qp->state != NIC_QPS_ERR && !list_linked(&qp->lost_link))
		list_add_tail(&qp->lost_link, &qp->pu->lost);
}

/*
 * Raises the event if the CQ is armed for the completions just pushed.
 *
 *	NIC					program
 *	CQE, seq and prod, modify `arm`		exchange `arm`, read prod and seq
 *
 * The program's code is verbs_req_notify_cq(). Both sides modify `arm` with acquire and release. So
 * one modification is first, and the other side sees the stores before it: the NIC sees the arming,
 * or the program sees the completion. A plain load here could be executed before the NIC's stores
 * are visible.
 */
static void notify(struct nic_cq *cq, bool solicited)
{
	uint32_t arm = atomic_fetch_or_explicit(&cq->index->arm, 0, memory_order_acq_rel);

	if (arm == ROOST_CQ_UNARMED || (arm == ROOST_CQ_ARM_SOLICITED && !solicited))
		return;
	if (atomic_exchange_explicit(&cq->index->arm, ROOST_CQ_UNARMED, memory_order_acq_rel) ==
	    ROOST_CQ_UNARMED)
		return;
	cq->nic->cfg.ops->cq_event(cq->nic->cfg.host, cq->ctx);
}

void cq_notify_dirty(struct pu *pu)
{
	for (unsigned i = 0; i < pu->num_dirty; i++) {
		struct nic_cq *cq = pu->dirty[i];
		bool solicited = cq->dirty_solicited;

		cq->dirty = cq->dirty_solicited = false;
		notify(cq, solicited);
	}
	pu->num_dirty = 0;
}

static void push(struct nic_cq *cq, struct nic_qp *qp, const struct cqe_fields *f, bool solicited)
{
	struct roost_cqe *e;

	if (unlikely(cq->prod - cq->cons_seen > cq->mask)) {
		if (!cq->overrun) /* an overrun CQ stays full */
			cq->cons_seen =
				atomic_load_explicit(&cq->index->cons, memory_order_acquire);
		if (cq->prod - cq->cons_seen > cq->mask) {
			overrun(cq, qp);
			return;
		}
	}
	e = &cq->ring[cq->prod & cq->mask];
	e->wr_id = f->wr_id;
	e->qpn = qp->qpn;
	e->byte_len = f->byte_len;
	e->imm = f->imm;
	e->src_qpn = qp->type == NIC_QPT_UD ? f->src_qpn : qp->dest_qpn;
	e->status = f->status;
	e->opcode = f->opcode;
	e->flags = f->flags;
	e->vendor_err = 0;
	e->sl = f->sl;
	e->timestamp = qp->pu->now;
	e->wqe = f->wqe;
	cq->prod++;
	atomic_store_explicit(&e->seq, cq->prod, memory_order_release);
	atomic_store_explicit(&cq->index->prod, cq->prod, memory_order_release);
	if (solicited)
		atomic_store_explicit(&cq->index->solicited, cq->prod, memory_order_release);
}

static void mark_dirty(struct nic_cq *cq, struct pu *pu, bool solicited)
{
	cq->dirty_solicited |= solicited;
	if (cq->dirty)
		return;
	if (unlikely(pu->num_dirty == sizeof(pu->dirty) / sizeof(pu->dirty[0])))
		cq_notify_dirty(pu);
	cq->dirty = true;
	pu->dirty[pu->num_dirty++] = cq;
}

/* Pushes to a CQ that several PUs share, that counts only, or that QPs wait for. */
static __attribute__((noinline)) void push_special(struct nic_cq *cq, struct nic_qp *qp,
						   const struct cqe_fields *f, bool solicited)
{
	bool shared = cq->special & CQ_SHARED;

	if (shared)
		spin_lock(&cq->lock);
	if (cq->ring)
		push(cq, qp, f, solicited);
	if (cq->special & CQ_WATCHED && f->status == NIC_WC_SUCCESS) {
		cq->count++;
		if (!cq->ring)
			atomic_store_explicit(&cq->index->prod, cq->count, memory_order_release);
		if (!list_empty(&cq->waiters))
			chain_wake(cq, qp->pu);
	}
	if (shared)
		spin_unlock(&cq->lock);
	if (!cq->ring)
		return;
	if (shared)
		notify(cq, solicited);
	else
		mark_dirty(cq, qp->pu, solicited);
}

void cq_push(struct nic_cq *cq, struct nic_qp *qp, const struct cqe_fields *f)
{
	bool solicited = f->solicited || f->status != NIC_WC_SUCCESS;

	if (unlikely(cq->special)) {
		push_special(cq, qp, f, solicited);
		return;
	}
	push(cq, qp, f, solicited);
	mark_dirty(cq, qp->pu, solicited);
}
