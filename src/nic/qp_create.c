/* SPDX-License-Identifier: BSD-2-Clause */
/* Creation of queue pairs, with their numbers, rings and memory. */
#include <stdlib.h>

#include "nic/core.h"
#include "nic/cq.h"
#include "nic/qp.h"
#include "nic/requester.h"

#define MIN_STRIDE_SHIFT 6
#define MAX_STRIDE_SHIFT 10
#define RANDOM_TRIES	 64 /* they find an index if an eighth of them is free */

bool queue_ok(const struct nic_queue_attr *q)
{
	if (!q->depth)
		return true;
	return !(q->depth & (q->depth - 1)) && q->depth <= NIC_MAX_WR &&
	       q->stride_shift >= MIN_STRIDE_SHIFT && q->stride_shift <= MAX_STRIDE_SHIFT &&
	       q->ring && q->wr_id && q->index;
}

/*
 * Returns the next number of an index, or 0 if the index must rest first. A number returns after 16
 * uses of its index. `second`: numbers_second().
 */
static uint32_t next_number(struct nic *nic, struct qp_numbers *numbers, unsigned slot,
			    uint32_t index, uint32_t second)
{
	uint8_t last = atomic_load_explicit(&numbers->last[index], memory_order_relaxed);
	uint32_t gen = last ? last + 1u : (uint32_t)secret_u64(&nic->secret), qpn;

	/*
	 * Numbers 0 and 1 belong to the management QPs (IBA 3.9.1), and the last number to
	 * multicast (9.6.1.4).
	 */
	do
		qpn = (uint32_t)slot << 18 | index << 4 | (gen++ & (NUMBERS_GENERATIONS - 1));
	while (qpn <= 1 || qpn == NIC_MCAST_QPN);
	if (last && (last ^ qpn) & (NUMBERS_GENERATIONS / 2)) {
		if (numbers_rest(
			    atomic_load_explicit(&numbers->entered[index], memory_order_relaxed),
			    second))
			return 0;
		/* This store comes first, because the program may be killed in between. */
		atomic_store_explicit(&numbers->entered[index], second, memory_order_release);
	}
	atomic_store_explicit(&numbers->last[index],
			      (uint8_t)(NUMBERS_GENERATIONS | (qpn & (NUMBERS_GENERATIONS - 1))),
			      memory_order_release);
	return qpn;
}

/*
 * Gives a QP this index, if it is free. Returns -ENOMEM if it is in use, -EAGAIN if it must rest.
 */
static int take_index(struct nic *nic, struct nic_qp *qp, unsigned pu, uint32_t index,
		      uint32_t second)
{
	if (atomic_load_explicit(&nic->qps[index], memory_order_relaxed))
		return -ENOMEM;
	qp->qpn = next_number(nic, nic->cfg.qp_numbers[pu], nic->slot[pu], index, second);
	return qp->qpn ? (int)index : -EAGAIN;
}

/*
 * Takes a free QP number of the PU's lane: slot | index | generation. The slot is the PU's. The
 * index is random, so that a peer's number tells nothing about the numbers of others; a QP gets the
 * next generation of its index, so that a late packet for a destroyed QP finds no QP. The first
 * generations are random. Returns the index, -ENOMEM (all are in use), or -EAGAIN (the free ones
 * must rest).
 */
static int take_qpn(struct nic *nic, struct nic_qp *qp, unsigned pu, uint64_t now)
{
	/* The indices of a PU are pu, pu + pus, ... */
	uint32_t pus = nic->cfg.pus, slots = NIC_MAX_QPS / pus;
	uint32_t second = numbers_second(now), first = 0;
	int rc;

	for (unsigned i = 0; i < RANDOM_TRIES; i++) {
		first = (uint32_t)secret_below(&nic->secret, slots);
		rc = take_index(nic, qp, pu, first * pus + pu, second);
		if (rc >= 0)
			return rc;
	}
	/* Few are free: takes the next one behind a random index. */
	rc = -ENOMEM;
	for (uint32_t i = 0; i < slots; i++) {
		int took = take_index(nic, qp, pu, (first + i) % slots * pus + pu, second);

		if (took >= 0)
			return took;
		if (took == -EAGAIN)
			rc = -EAGAIN;
	}
	return rc;
}

static size_t entries_bytes(const struct qp_sq *sq)
{
	return (size_t)(sq->entry_mask + 1) * sq->entry_size;
}

int qp_size_entries(struct nic_qp *qp, uint32_t window, uint32_t more)
{
	struct qp_sq *sq = &qp->sq;
	uint32_t n = (uint32_t)pow2_ceil(window + more);
	uint8_t *entries = arena_alloc(&qp->nic->arena, (size_t)n * sq->entry_size);

	if (!entries)
		return -ENOMEM;
	for (uint32_t i = sq->una; i != sq->fetched; i++)
		memcpy(entries + (size_t)(i & (n - 1)) * sq->entry_size, sq_entry(sq, i),
		       sq->entry_size);
	if (sq->entries)
		qp->bytes -= entries_bytes(sq);
	arena_free(&qp->nic->arena, sq->entries, entries_bytes(sq));
	sq->entries = entries;
	sq->entry_mask = n - 1;
	sq->window = window;
	qp->bytes += (size_t)n * sq->entry_size;
	return 0;
}

static int init_sq(struct nic_qp *qp, const struct nic_qp_init *init)
{
	struct qp_sq *sq = &qp->sq;
	const struct nic_queue_attr *q = &init->sq;
	uint32_t stride = 1u << q->stride_shift;
	uint32_t sges;
	int rc;

	if (!q->depth)
		return -EINVAL;
	sq->ring = q->ring;
	sq->wr_ids = q->wr_id;
	sq->index = q->index;
	sq->mask = q->depth - 1;
	sq->stride_shift = q->stride_shift;
	sq->entry_size =
		(uint32_t)ALIGN_UP(offsetof(struct sq_entry, wqe) + stride, ROOST_CACHE_LINE);
	rc = qp_size_entries(qp, q->depth < NIC_SQ_WINDOW ? q->depth : NIC_SQ_WINDOW, 0);
	if (rc)
		return rc;
	sges = (stride - ROOST_WQE_SGE_OFFSET) / sizeof(struct roost_sge);
	sq->max_sge = (uint8_t)(sges < ROOST_MAX_SGE ? sges : ROOST_MAX_SGE);
	sq->max_inline = (uint16_t)(stride - ROOST_WQE_INLINE_OFFSET);
	if (init->max_inline > sq->max_inline) {
		arena_free(&qp->nic->arena, sq->entries, entries_bytes(sq));
		return -EINVAL;
	}
	return 0;
}

void recv_ring_init(struct recv_ring *rq, const struct nic_queue_attr *q, uint32_t pd)
{
	*rq = (struct recv_ring){
		.ring = q->ring,
		.wr_ids = q->wr_id,
		.index = q->index,
		.mask = q->depth - 1,
		.stride_shift = q->stride_shift,
		.pd = pd,
	};
}

static void init_rq(struct nic_qp *qp, const struct nic_qp_init *init)
{
	struct qp_resp *r = &qp->resp;

	if (init->srq) {
		qp->srq = init->srq;
		r->rq = &init->srq->rq;
	} else if (init->rq.depth) {
		recv_ring_init(&r->own_rq, &init->rq, init->pd);
		r->rq = &r->own_rq;
	}
}

unsigned nic_qp_home_pu(const struct nic_qp_init *init)
{
	return init->srq && init->srq->refs ? init->srq->pu : init->send_cq->pu;
}

void qp_free(struct nic_qp *qp)
{
	struct arena *arena = &qp->nic->arena;

	arena_free(arena, qp->sq.entries, entries_bytes(&qp->sq));
	arena_free(arena, qp, sizeof(*qp));
}

int nic_qp_create(struct nic *nic, const struct nic_qp_init *init, struct nic_qp **out)
{
	struct nic_qp *qp;
	int rc, index;

	if (init->type != NIC_QPT_RC && init->type != NIC_QPT_UC && init->type != NIC_QPT_UD)
		return -EOPNOTSUPP;
	if (!queue_ok(&init->sq) || (!init->srq && !queue_ok(&init->rq)) || !init->send_cq ||
	    !init->recv_cq)
		return -EINVAL;
	qp = arena_alloc(&nic->arena, sizeof(*qp));
	if (!qp)
		return -ENOMEM;
	memset(qp, 0, sizeof(*qp));
	qp->bytes = sizeof(*qp);
	qp->nic = nic;
	qp->pu_index = (uint8_t)nic_qp_home_pu(init);
	qp->pu = nic->pus[qp->pu_index];
	qp->type = (uint8_t)init->type;
	qp->peer_port = UINT32_MAX;
	qp->service = init->type == NIC_QPT_UD	 ? PKT_UD
		      : init->type == NIC_QPT_UC ? PKT_UC
						 : PKT_RC;
	qp->pd = init->pd;
	qp->send_cq = init->send_cq;
	qp->recv_cq = init->recv_cq;
	qp->sig_all = init->sig_all;
	qp->ctx = init->ctx;
	qp->timer.owner = qp;
	qp->windows = MR_NO_INDEX;
	rc = init_sq(qp, init);
	if (rc)
		goto free_qp;
	if (!nic_memory_take(nic, qp->bytes)) {
		rc = -ENOMEM;
		goto free_sq;
	}
	init_rq(qp, init);
	if (!nic_pd_ref(nic, init->pd)) {
		rc = -EINVAL;
		goto give_memory;
	}
	index = take_qpn(nic, qp, qp->pu_index, init->now);
	if (index < 0) {
		rc = index;
		goto unref_pd;
	}
	/*
	 * The flag stays set until RTS. Doorbells before RTS do nothing, and the change to RTS
	 * schedules the QP.
	 */
	atomic_store_explicit(&qp->db_active, 1, memory_order_relaxed);
	qp_set_state(qp, NIC_QPS_RESET);
	qp->send_cq->refs++;
	qp->recv_cq->refs++;
	if (qp->send_cq->pu != qp->pu_index)
		qp->send_cq->special |= CQ_SHARED;
	if (qp->recv_cq->pu != qp->pu_index)
		qp->recv_cq->special |= CQ_SHARED;
	if (qp->srq) {
		qp->srq->pu = qp->pu_index;
		qp->srq->refs++;
	}
	atomic_fetch_add_explicit(&nic->num_qps, 1, memory_order_relaxed);
	nic->qp_bytes += qp->bytes;
	atomic_store_explicit(&nic->qps[index], qp, memory_order_release);
	*out = qp;
	return 0;

unref_pd:
	nic_pd_unref(nic, init->pd);
give_memory:
	nic_memory_give(nic, qp->bytes);
free_sq:
	qp_free(qp);
	return rc;
free_qp:
	arena_free(&nic->arena, qp, sizeof(*qp));
	return rc;
}
