/* SPDX-License-Identifier: BSD-2-Clause */
#include "pool.h"

#include <stdlib.h>

#define TAG 0xb00100000000ull /* above a slot's number in its wr_id */

void pool_init_shared(struct pool *p, struct nic *nic)
{
	memset(p, 0, sizeof(*p));
	shared_rq_init(&p->srq, nic, POOL_DEPTH);
}

void pool_init_own(struct pool *p, struct ep *e, uint32_t base)
{
	memset(p, 0, sizeof(*p));
	p->own = e;
	p->base = base;
}

void pool_fini(struct pool *p)
{
	if (!p->own && shared_rq_fini(&p->srq))
		abort();
}

static uint8_t *slot_at(const struct pool *p, unsigned i)
{
	return (p->own ? p->own->mem + p->base : p->srq.mem) + i * POOL_SLOT_LEN;
}

/* Posts one slot, in up to three pieces. */
static unsigned cut_slot(const struct pool *p, unsigned i, struct roost_sge *sge, struct rng *r)
{
	uint32_t key = p->own ? p->own->key : p->srq.key, left = POOL_SLOT_LEN;
	unsigned max = p->own && p->own->p.max_sge < 3 ? p->own->p.max_sge : 3;
	unsigned n = 1 + (unsigned)rng_below(r, max);
	uint64_t at = (uintptr_t)slot_at(p, i);

	for (unsigned k = 0; k < n; k++) {
		uint32_t len =
			k + 1 == n ? left : (uint32_t)rng_below(r, rng_below(r, 2) ? 60 : left);

		len = len < left ? len : left;
		sge[k] = (struct roost_sge){at, len, key};
		at += len;
		left -= len;
	}
	return n;
}

void pool_post(struct pool *p, unsigned n, struct rng *r)
{
	unsigned start = (unsigned)rng_below(r, POOL_SLOTS);

	for (unsigned k = 0; k < POOL_SLOTS && n; k++) {
		unsigned i = (start + k) % POOL_SLOTS;
		struct roost_sge sge[3];
		unsigned num_sge;

		if (p->busy[i])
			continue;
		p->busy[i] = true;
		n--;
		memset(slot_at(p, i), POOL_FILL, POOL_SLOT_LEN);
		num_sge = cut_slot(p, i, sge, r);
		if (p->own)
			ep_post_recv(p->own, TAG | i, sge, num_sge);
		else
			shared_rq_post(&p->srq, TAG | i, sge, num_sge);
	}
}

uint8_t *pool_slot(struct pool *p, uint64_t wr_id)
{
	uint64_t i = wr_id ^ TAG;

	return i < POOL_SLOTS && p->busy[i] ? slot_at(p, (unsigned)i) : NULL;
}

void pool_free(struct pool *p, uint64_t wr_id)
{
	p->busy[wr_id ^ TAG] = false;
}

bool pool_rest_untouched(const uint8_t *slot, uint32_t from)
{
	for (uint32_t i = from; i < POOL_SLOT_LEN; i++)
		if (slot[i] != POOL_FILL)
			return false;
	return true;
}

bool pool_check_limit(struct pool *p, struct rng *r)
{
	struct shared_rq *q = &p->srq;
	uint32_t taken, left;

	if (p->own)
		return true;
	taken = atomic_load(&q->index.cons);
	left = atomic_load(&q->index.prod) - taken;
	if (q->errors || q->limit_events - p->events > (p->limit ? 1u : 0u))
		return false;
	/*
	 * `left` grows only by posts. It is smaller now, and a receive was taken since, so it was
	 * below the limit then.
	 */
	if (p->limit && taken != p->limit_from && left < p->limit && q->limit_events == p->events)
		return false;
	if (q->limit_events != p->events && nic_srq_limit(q->srq))
		return false; /* it is requested once */
	if (rng_below(r, 4))
		return true;
	p->limit = (uint32_t)rng_below(r, POOL_DEPTH + 1);
	p->limit_from = taken;
	p->events = q->limit_events;
	return nic_srq_set_limit(q->srq, p->limit) == 0;
}
