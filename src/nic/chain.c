/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The execution of chains: managed queues, WAIT, ENABLE, calculations. Three rules hold:
 *
 *	WAIT	parks the queue pair on the CQ. A completion without error wakes it (cq.c)
 *	ENABLE	moves the count of a managed queue of the same protection domain, and schedules the
 *		queue; it runs in the same turn if it belongs to the same PU, the turn has space,
 *		and the ENABLE is not behind packets that the turn has to send
 *	managed	a WQE is copied from the ring only when it is enabled and the one before it has
 *		been issued, so every WQE executed before may have rewritten it
 *
 * All counts are modulo 2^32 and are compared by their difference.
 */
#include "nic/chain.h"
#include "nic/dma.h"

static bool before(uint32_t a, uint32_t b)
{
	return (int32_t)(a - b) < 0;
}

/* ---- managed queues ---- */

/*
 * Returns the lower of `enabled` and the count of the WQEs that exist. Before the ring was full,
 * these are the WQEs posted so far. Afterwards there is no such limit, because the NIC takes them
 * again and again.
 */
static uint32_t limit(uint32_t enabled, uint32_t first, uint32_t mask, bool *all,
		      const struct roost_queue_index *index)
{
	uint32_t prod;

	if (likely(*all))
		return enabled;
	prod = atomic_load_explicit(&index->prod, memory_order_acquire);
	if (prod - first > mask) {
		*all = true;
		return enabled;
	}
	return before(enabled, prod) ? enabled : prod;
}

static uint32_t send_limit(struct nic_qp *qp)
{
	struct qp_chain *c = qp->chain;

	return limit(c->enabled, c->first, qp->sq.mask, &c->all_posted, qp->sq.index);
}

/*
 * Prefetches the data that WQE `ahead` from the next one on reads, in a queue that goes round. A
 * look-up reads a bucket and a value that are in no cache, at addresses that were just stored in
 * the ring. The address is not checked yet: a prefetch never faults, and it delivers no data.
 */
static void prefetch_data(const struct nic_qp *qp, uint32_t ahead)
{
	const struct qp_sq *sq = &qp->sq;
	const size_t slot = (sq->taken + ahead) & sq->mask;
	const struct roost_wqe *w = (const void *)(sq->ring + (slot << sq->stride_shift));

	/* before, the program may be writing this WQE */
	if (!qp->chain->all_posted)
		return;
	if (__atomic_load_n(&w->num_sge, __ATOMIC_RELAXED))
		__builtin_prefetch((const void *)(uintptr_t)__atomic_load_n(&w->sge[0].addr,
									    __ATOMIC_RELAXED));
}

bool chain_fetch(struct nic_qp *qp)
{
	struct qp_sq *sq = &qp->sq;
	struct sq_entry *e;

	if (!before(sq->taken, send_limit(qp)) || sq_full(sq) || !chain_may_take(qp))
		return false;
	sq_restart(sq);
	prefetch_data(qp, 1);
	e = sq_next_entry(sq);
	sq_copy(qp, e);
	e->signaled |= qp->chain->audit != NULL;
	sq_append(sq, e);
	return true;
}

bool chain_posted(struct nic_qp *qp)
{
	const struct qp_sq *sq = &qp->sq;

	if (!qp->chain->managed_send)
		return sq_posted(sq);
	/* In the error state the NIC flushes only posted WQEs, not WQEs that would run again. */
	if (qp->state == NIC_QPS_ERR)
		return before(sq->taken,
			      atomic_load_explicit(&sq->index->prod, memory_order_acquire));
	return !qp->chain->throttled && before(sq->taken, send_limit(qp));
}

uint32_t chain_receives(struct nic_qp *qp)
{
	struct recv_ring *rq = qp->resp.rq;
	struct qp_chain *c = qp->chain;
	uint32_t end = atomic_load_explicit(&rq->index->prod, memory_order_acquire);

	if (!c->managed_recv)
		return end;
	if (qp->state == NIC_QPS_ERR) /* as in chain_posted() */
		return before(rq->cons, end) ? end : rq->cons;
	end = limit(c->recv_enabled, c->first_recv, rq->mask, &c->all_recv_posted, rq->index);
	if (!before(rq->cons, end))
		return rq->cons;
	return end - rq->cons > rq->mask ? rq->cons + rq->mask + 1 : end;
}

/* ---- WAIT and ENABLE ---- */

static enum chain_result fail(struct sq_entry *e)
{
	e->status = NIC_WC_LOC_QP_OP_ERR;
	return CHAIN_FAILED;
}

static bool is_relative(const struct sq_entry *e)
{
	return e->wqe.raddr & ROOST_CHAIN_RELATIVE;
}

/*
 * Stores the low half of raddr, the name of an object, in *name. Returns false if other bits than
 * ROOST_CHAIN_RELATIVE are set.
 */
static bool name_of(const struct sq_entry *e, uint32_t *name)
{
	*name = (uint32_t)e->wqe.raddr;
	return !(e->wqe.raddr & ~(ROOST_CHAIN_RELATIVE | UINT32_MAX));
}

/* Waits until a time of the NIC's clock, or for a length of time. */
static enum chain_result wait_time(struct nic_qp *qp, struct sq_entry *e)
{
	const uint64_t now = qp->pu->now, ns = e->wqe.swap_add;
	struct qp_chain *c = qp->chain;

	if (e->wqe.raddr & ~(ROOST_CHAIN_TIME | ROOST_CHAIN_RELATIVE))
		return fail(e);
	if (!c->wait_until) {
		c->wait_until = ns;
		if (is_relative(e) && __builtin_add_overflow(now, ns, &c->wait_until))
			c->wait_until = UINT64_MAX;
	}
	if (now < c->wait_until) {
		chain_timer_at(qp, c->wait_until);
		req_blocked(qp, BLOCK_CHAIN);
		return CHAIN_WAITS;
	}
	c->wait_until = 0;
	return CHAIN_DONE;
}

static enum chain_result wait_for(struct nic_qp *qp, struct sq_entry *e)
{
	struct qp_chain *c = qp->chain;
	uint32_t name, target = (uint32_t)e->wqe.swap_add;
	struct chain_watch *watch;
	struct nic_cq *cq;
	bool reached;

	if (unlikely(e->wqe.raddr & ROOST_CHAIN_TIME))
		return wait_time(qp, e);
	if (!name_of(e, &name) || name >= ROOST_CHAIN_WATCHES || !c->watch[name].cq)
		return fail(e);
	watch = &c->watch[name];
	if (is_relative(e))
		target += watch->base;
	cq = watch->cq;
	cq_lock(cq);
	if (list_linked(&c->wait))
		list_del(&c->wait);
	reached = !before(cq->count, target);
	if (!reached) {
		c->wait_cq = cq;
		c->wait_target = target;
		list_add_tail(&c->wait, &cq->waiters);
	}
	cq_unlock(cq);
	if (!reached) {
		req_blocked(qp, BLOCK_CHAIN);
		return CHAIN_WAITS;
	}
	if (is_relative(e))
		watch->base = target;
	return CHAIN_DONE;
}

void chain_wake(struct nic_cq *cq, struct pu *pu)
{
	struct list_head *l, *next;

	for (l = cq->waiters.next; l != &cq->waiters; l = next) {
		struct qp_chain *c = list_entry(l, struct qp_chain, wait);

		next = l->next;
		if (before(cq->count, c->wait_target))
			continue;
		list_del(l);
		if (c->qp->pu == pu) {
			qp_prefetch_requester(c->qp);
			nic_schedule(c->qp);
		} else {
			nic_ring(c->qp);
		}
	}
}

static void move_count(uint32_t *count, const struct sq_entry *e)
{
	uint32_t n = (uint32_t)e->wqe.swap_add;

	if (is_relative(e))
		*count += n;
	else if (before(*count, n))
		*count = n;
}

bool chain_enable(struct pu *pu, uint32_t pd, const struct nic_qp *by, const struct sq_entry *e)
{
	uint32_t qpn = (uint32_t)e->wqe.raddr;
	struct nic_qp *to = PORT_LANE_OF_QPN(qpn, pu->nic->cfg.pus) == pu->index
				    ? nic_find_qp(pu->nic, qpn)
				    : NULL;

	if (!to || to->pu != pu || !chain_enables(to, pd, e->op))
		return false;
	if (e->op == ROOST_OP_RECV_ENABLE) {
		move_count(&to->chain->recv_enabled, e);
		return true;
	}
	move_count(&to->chain->enabled, e);
	if (to != by)
		prefetch_data(to, 0);
	/*
	 * A queue in a WAIT, or a queue that waits for the time of an RNR NAK or of its rate,
	 * continues later.
	 */
	if (to == by || to->sq.block == BLOCK_CHAIN || to->sq.block == BLOCK_RNR ||
	    to->sq.block == BLOCK_RATE)
		return true;
	/*
	 * Behind packets, as those of an answer, the packets leave first. The next turn receives
	 * before the queue runs, so a queue that begins with a WAIT often finds its completion.
	 */
	if (by && !qp_has(by, QP_LOOP))
		chain_next_turn(to);
	else
		nic_schedule(to);
	return true;
}

/*
 * Only its own PU may access a queue pair. So an ENABLE for a queue of another PU is sent as mail.
 */
static enum chain_result enable(struct nic_qp *qp, struct sq_entry *e)
{
	uint32_t name;
	unsigned pu;

	if (!name_of(e, &name))
		return fail(e);
	pu = qp->nic->cfg.pus == 1 ? 0 : PORT_LANE_OF_QPN(name, qp->nic->cfg.pus);
	if (likely(pu == qp->pu_index))
		return chain_enable(qp->pu, qp->pd, qp, e) ? CHAIN_DONE : fail(e);
	if (chain_send_mail(qp, e, pu))
		return CHAIN_DONE;
	/* the mailbox is full: the QP tries again in the next turn */
	chain_timer_at(qp, qp->pu->now);
	req_blocked(qp, BLOCK_CHAIN);
	return CHAIN_WAITS;
}

enum chain_result chain_step(struct nic_qp *qp, struct sq_entry *e)
{
	if (e->executed)
		return CHAIN_DONE;
	switch (e->op) {
	case ROOST_OP_WAIT:
		return wait_for(qp, e);
	case ROOST_OP_ENABLE:
	case ROOST_OP_RECV_ENABLE:
		return enable(qp, e);
	default:
		return CHAIN_DONE;
	}
}

/* ---- queue pairs with packets ---- */

enum req_result chain_run(struct nic_qp *qp, struct sq_entry *e)
{
	if (chain_step(qp, e) != CHAIN_DONE)
		return REQ_IDLE;
	e->executed = true;
	qp->sq.next++;
	chain_retire(qp);
	return REQ_MORE;
}

void chain_retire(struct nic_qp *qp)
{
	struct qp_sq *sq = &qp->sq;

	while (sq->una != sq->next) {
		struct sq_entry *e = sq_entry(sq, sq->una);

		if (e->npkts || !e->executed)
			break;
		sq_retire(qp, e);
	}
}

/* ---- calculations ---- */

static uint64_t calc(uint8_t op, uint64_t a, uint64_t b)
{
	switch (op) {
	case ROOST_OP_MAX:
		return a > b ? a : b;
	case ROOST_OP_MIN:
		return a < b ? a : b;
	case ROOST_OP_MAX_SIGNED:
		return (int64_t)a > (int64_t)b ? a : b;
	case ROOST_OP_MIN_SIGNED:
		return (int64_t)a < (int64_t)b ? a : b;
	case ROOST_OP_AND:
		return a & b;
	case ROOST_OP_OR:
		return a | b;
	default:
		return a ^ b;
	}
}

int chain_calc(uint8_t op, void *addr, uint64_t operand, uint64_t *old)
{
	uint64_t expected;
	int rc = dma_load(&expected, addr, sizeof(expected));

	while (!rc) {
		rc = dma_cmp_swap(addr, expected, calc(op, expected, operand), old);
		if (rc || *old == expected)
			break;
		expected = *old;
	}
	return rc;
}
