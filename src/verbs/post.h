/* SPDX-License-Identifier: BSD-2-Clause */
/* Functions that write work requests into a ring, for post.c and qp_ex.c. */
#ifndef ROOST_VERBS_POST_H
#define ROOST_VERBS_POST_H

#include <string.h>

#include "verbs/objects.h"

#define VERBS_SEND_FLAGS (IBV_SEND_FENCE | IBV_SEND_SIGNALED | IBV_SEND_SOLICITED | IBV_SEND_INLINE)

/*
 * Converts enum ibv_send_flags to enum roost_wqe_flags. The bits are in the same order, except for
 * the fence.
 */
static inline uint16_t post_flags(unsigned int f)
{
	return (uint16_t)((f >> 1 & (ROOST_WQE_SIGNALED | ROOST_WQE_SOLICITED)) |
			  (f & IBV_SEND_FENCE ? ROOST_WQE_FENCE : 0) | (f & ROOST_WQE_INLINE));
}
_Static_assert(IBV_SEND_SIGNALED >> 1 == ROOST_WQE_SIGNALED, "send flags");
_Static_assert(IBV_SEND_SOLICITED >> 1 == ROOST_WQE_SOLICITED, "send flags");
_Static_assert((int)IBV_SEND_INLINE == (int)ROOST_WQE_INLINE, "send flags");

/* struct ibv_sge and struct roost_sge have the same layout, so that lists are copied whole. */
_Static_assert(sizeof(struct ibv_sge) == sizeof(struct roost_sge), "SGE");
_Static_assert(offsetof(struct ibv_sge, length) == offsetof(struct roost_sge, len), "SGE");
_Static_assert(offsetof(struct ibv_sge, lkey) == offsetof(struct roost_sge, lkey), "SGE");

/* Returns whether the ring has space for WQE number `head`. */
static inline bool post_space(struct verbs_queue *q, uint32_t head)
{
	if (likely(head - q->cons_seen < q->depth))
		return true;
	q->cons_seen = atomic_load_explicit(&q->index->cons, memory_order_acquire);
	return head - q->cons_seen < q->depth;
}

static inline void *post_slot(const struct verbs_queue *q, uint32_t n)
{
	return q->ring + ((size_t)(n & q->mask) << q->shift);
}

/*
 * Returns whether work requests may be posted in the present state. In ERR and SQE they are flushed
 * (IBA 10.3.1).
 */
static inline bool post_send_allowed(const struct verbs_qp *qp)
{
	return qp->qp.state >= IBV_QPS_RTS && qp->qp.state <= IBV_QPS_ERR;
}

/*
 * Builds a WQE that binds a window. The NIC checks the rules of binding; the function only checks
 * those for which the WQE has no field. Returns 0 or a positive errno.
 */
static inline int post_bind(struct roost_wqe *w, const struct ibv_mw *mw, uint32_t rkey,
			    const struct ibv_mw_bind_info *info)
{
	/* The program may change only the low 8 bits of the key. */
	if (unlikely((mw->rkey ^ rkey) >> 8 || (info->length && !info->mr)))
		return EINVAL;
	w->num_sge = 0;
	w->inline_len = 0;
	w->raddr = info->addr;
	w->rkey = mw->rkey;
	w->imm = rkey;
	w->swap_add = info->length;
	w->compare = ROOST_BIND(info->mr ? info->mr->lkey : 0, info->mw_access_flags);
	return 0;
}

/* Copies the data into the WQE. Returns 0, or a positive errno if the data do not fit. */
static inline int post_inline(struct roost_wqe *w, const struct verbs_queue *sq,
			      const struct ibv_sge *sges, int n)
{
	uint8_t *to = (uint8_t *)w + ROOST_WQE_INLINE_OFFSET;
	uint32_t space = sq->max_inline, len = 0;
	int i;

	for (i = 0; i < n; i++) {
		uint32_t part = sges[i].length;

		if (part > space)
			return EINVAL;
		space -= part;
		if (part)
			memcpy(to + len, (const void *)(uintptr_t)sges[i].addr, part);
		len += part;
	}
	w->inline_len = len;
	w->num_sge = 0;
	return 0;
}

static inline void post_ud_addr(struct roost_wqe *w, const struct ibv_ah *ah, uint32_t qpn,
				uint32_t qkey)
{
	w->raddr = ROOST_UD_ADDR(ah->handle, qpn & PKT_QPN_MASK);
	w->rkey = qkey;
}

/*
 * Makes the WQEs before `head` visible to the NIC. The queue is locked. The caller rings the
 * doorbell after it has unlocked the queue.
 */
static inline void post_publish(struct verbs_queue *q, uint32_t head)
{
	q->head = head;
	atomic_store_explicit(&q->index->prod, head, memory_order_release);
}

#endif
