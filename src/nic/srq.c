/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Shared receive queues: one ring of receives for many QPs (IBA 10.2.9). resp.c takes receives from
 * it as from a QP's own ring. This file has creation, destruction and the events. All QPs of an SRQ
 * have the same PU, so taking a receive needs no lock.
 */
#include <stdlib.h>

#include "nic/core.h"
#include "nic/responder.h"

int nic_srq_create(struct nic *nic, const struct nic_srq_attr *a, struct nic_srq **out)
{
	struct nic_srq *srq;

	if (!a->rq.depth || !queue_ok(&a->rq))
		return -EINVAL;
	if (nic->num_srqs == NIC_MAX_SRQS)
		return -ENOMEM;
	srq = calloc(1, sizeof(*srq));
	if (!srq)
		return -ENOMEM;
	if (!nic_pd_ref(nic, a->pd)) {
		free(srq);
		return -EINVAL;
	}
	recv_ring_init(&srq->rq, &a->rq, a->pd);
	srq->nic = nic;
	srq->ctx = a->ctx;
	list_add_tail(&srq->link, &nic->srqs);
	nic->num_srqs++;
	*out = srq;
	return 0;
}

int nic_srq_destroy(struct nic *nic, struct nic_srq *srq)
{
	if (srq->refs)
		return -EBUSY;
	nic_pd_unref(nic, srq->rq.pd);
	list_del(&srq->link);
	nic->num_srqs--;
	free(srq);
	return 0;
}

int nic_srq_set_limit(struct nic_srq *srq, uint32_t limit)
{
	if (limit > srq->rq.mask + 1)
		return -EINVAL;
	srq->limit = limit;
	return 0;
}

static void move_recv(struct recv_ring *from, const struct nic_queue_attr *to, uint32_t n)
{
	size_t slot = (size_t)(n & (to->depth - 1));

	memcpy((uint8_t *)to->ring + (slot << to->stride_shift),
	       from->ring + ((size_t)(n & from->mask) << from->stride_shift),
	       (size_t)1 << to->stride_shift);
	to->wr_id[slot] = from->wr_ids[n & from->mask];
}

int nic_srq_set_ring(struct nic_srq *srq, const struct nic_queue_attr *to)
{
	struct recv_ring *rq = &srq->rq;
	uint32_t prod = atomic_load_explicit(&rq->index->prod, memory_order_acquire);

	if (!to->depth || !queue_ok(to) || to->stride_shift != rq->stride_shift)
		return -EINVAL;
	if (prod - rq->cons > to->depth || prod - rq->cons > rq->mask + 1 || srq->limit > to->depth)
		return -EINVAL;
	for (uint32_t n = rq->cons; n != prod; n++)
		move_recv(rq, to, n);
	atomic_store_explicit(&to->index->prod, prod, memory_order_relaxed);
	atomic_store_explicit(&to->index->cons, rq->cons, memory_order_release);
	rq->ring = to->ring;
	rq->wr_ids = to->wr_id;
	rq->index = to->index;
	rq->mask = to->depth - 1;
	return 0;
}

uint32_t nic_srq_limit(const struct nic_srq *srq)
{
	return srq->limit;
}

unsigned nic_srq_pu(const struct nic_srq *srq)
{
	return srq->pu;
}

static void raise(struct nic_srq *srq, enum nic_event ev)
{
	srq->nic->cfg.ops->srq_event(srq->nic->cfg.host, ev, srq->ctx);
}

void srq_taken(struct nic_srq *srq)
{
	const struct recv_ring *rq = &srq->rq;

	if (likely(!srq->limit))
		return;
	if (atomic_load_explicit(&rq->index->prod, memory_order_relaxed) - rq->cons >= srq->limit)
		return;
	srq->limit = 0;
	raise(srq, NIC_EVENT_SRQ_LIMIT);
}

void srq_broken(struct nic_srq *srq)
{
	if (srq->broken)
		return;
	srq->broken = true;
	raise(srq, NIC_EVENT_SRQ_ERR);
}
