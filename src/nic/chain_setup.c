/* SPDX-License-Identifier: BSD-2-Clause */
/* Set-up, stop, reset and errors of queue pairs for chains. */
#include <stdlib.h>

#include "nic/chain.h"

/*
 * Makes the CQ count its completions from now on. If the CQ belongs to another PU, its users take
 * its lock.
 */
static void watch(struct nic_qp *qp, struct chain_watch *w, struct nic_cq *cq)
{
	if (!(cq->special & CQ_WATCHED)) {
		cq->count = cq->prod;
		cq->special |= CQ_WATCHED;
	}
	if (cq->pu != qp->pu_index)
		cq->special |= CQ_SHARED;
	cq->refs++;
	w->cq = cq;
}

static bool is_limited(const struct nic_chain_limit *l)
{
	return l->rate_limit || l->rate_burst || l->turn_limit;
}

static void take_limit(struct qp_chain *c, const struct nic_chain_limit *l, uint64_t now)
{
	tokens_init(&c->tokens, l->rate_limit, l->rate_burst ? l->rate_burst : NIC_CHAIN_BURST,
		    now);
	c->turn_limit = l->turn_limit ? l->turn_limit : NIC_CHAIN_TURN;
	c->turn = 0; /* the next WQE begins a turn */
}

int nic_qp_limit_chain(struct nic_qp *qp, const struct nic_chain_limit *limit, uint64_t now)
{
	if (!chain_managed(qp))
		return -EINVAL;
	take_limit(qp->chain, limit, now);
	if (qp->chain->throttled) {
		wheel_del(&qp->pu->wheel, &qp->chain->timer);
		nic_schedule(qp);
	}
	return 0;
}

unsigned nic_pd_stop_chains(struct nic *nic, uint32_t pd)
{
	unsigned n = 0;

	for (unsigned i = 0; i < NIC_MAX_QPS; i++) {
		struct nic_qp *qp = atomic_load_explicit(&nic->qps[i], memory_order_relaxed);

		if (!qp || qp->pd != pd || !qp->chain || qp->state == NIC_QPS_RESET)
			continue;
		n++;
		qp_error(qp);
	}
	for (unsigned i = 0; i < nic->cfg.pus; i++) {
		qp_end_lost(nic->pus[i]);
		if (nic->pus[i]->num_dirty)
			cq_notify_dirty(nic->pus[i]);
	}
	return n;
}

int nic_qp_set_chain(struct nic *nic, struct nic_qp *qp, const struct nic_chain_attr *attr)
{
	struct qp_chain *c;

	if (qp->type != NIC_QPT_RC)
		return -EOPNOTSUPP;
	if (qp->state > NIC_QPS_INIT || (attr->managed_recv && (qp->srq || !qp->resp.rq)) ||
	    (attr->audit && !attr->audit->ring) ||
	    (!attr->managed_send && (attr->audit || is_limited(&attr->limit))))
		return -EINVAL;
	if (qp->chain || qp->num_out)
		return -EBUSY;
	if (chain_mail_init(nic) || !nic_memory_take(nic, sizeof(*c)))
		return -ENOMEM;
	c = aligned_alloc(ROOST_CACHE_LINE, sizeof(*c));
	if (!c) {
		nic_memory_give(nic, sizeof(*c));
		return -ENOMEM;
	}
	*c = (struct qp_chain){.qp = qp};
	chain_refuse_mail(qp);
	c->timer.owner = qp;
	c->managed_send = attr->managed_send;
	c->managed_recv = attr->managed_recv;
	for (unsigned i = 0; i < ROOST_CHAIN_WATCHES; i++)
		if (attr->watch[i])
			watch(qp, &c->watch[i], attr->watch[i]);
	c->audit = attr->audit;
	if (c->audit) {
		c->audit->refs++;
		if (c->audit->pu != qp->pu_index)
			c->audit->special |= CQ_SHARED;
	}
	take_limit(c, &attr->limit, qp->pu->now);
	qp->bytes += sizeof(*c);
	nic->qp_bytes += sizeof(*c);
	qp->chain = c;
	chain_reset(qp);
	return 0;
}

bool nic_qp_has_chain(const struct nic_qp *qp)
{
	return qp->chain;
}

int nic_qp_set_calc(struct nic_qp *qp)
{
	if (qp->type != NIC_QPT_RC)
		return -EOPNOTSUPP;
	if (qp->state > NIC_QPS_INIT)
		return -EINVAL;
	qp_set_feature(qp, QP_CALC, true);
	return 0;
}

bool nic_qp_has_calc(const struct nic_qp *qp)
{
	return qp_has(qp, QP_CALC);
}

bool nic_qp_may_calc(const struct nic_qp *qp)
{
	return qp_has(qp, QP_LOOP | QP_CALC);
}

void chain_reset(struct nic_qp *qp)
{
	struct qp_chain *c = qp->chain;

	c->first = c->enabled = qp->sq.taken;
	c->first_recv = c->recv_enabled = qp->resp.rq ? qp->resp.rq->cons : 0;
	c->all_posted = c->all_recv_posted = false;
	c->has_failed = false;
	c->life = ++qp->pu->chain_lives;
	chain_expire_mail(qp);
	for (unsigned i = 0; i < ROOST_CHAIN_WATCHES; i++) {
		struct nic_cq *cq = c->watch[i].cq;

		if (!cq)
			continue;
		cq_lock(cq); /* another PU may count */
		c->watch[i].base = cq->count;
		cq_unlock(cq);
	}
}

void chain_stop(struct nic_qp *qp)
{
	struct qp_chain *c = qp->chain;
	struct nic_cq *cq = c->wait_cq;

	wheel_del(&qp->pu->wheel, &c->timer);
	c->wait_until = 0;
	c->throttled = false;
	if (!cq)
		return;
	cq_lock(cq);
	if (list_linked(&c->wait))
		list_del(&c->wait);
	cq_unlock(cq);
	c->wait_cq = NULL;
}

void chain_destroy(struct nic_qp *qp)
{
	struct qp_chain *c = qp->chain;

	if (!c)
		return;
	for (unsigned i = 0; i < ROOST_CHAIN_WATCHES; i++)
		if (c->watch[i].cq)
			c->watch[i].cq->refs--;
	if (c->audit)
		c->audit->refs--;
	qp->chain = NULL;
	free(c);
}

void chain_failed(struct nic_qp *qp, const struct sq_entry *e)
{
	struct qp_chain *c = qp->chain;

	if (e->status == NIC_WC_WR_FLUSH_ERR || c->has_failed)
		return;
	c->has_failed = true;
	c->failure =
		(struct nic_chain_failure){.status = e->status, .index = e->index, .wqe = e->wqe};
	qp_event(qp, NIC_EVENT_QP_FATAL);
}

bool nic_qp_chain_failure(const struct nic_qp *qp, struct nic_chain_failure *out)
{
	if (!qp->chain || !qp->chain->has_failed)
		return false;
	*out = qp->chain->failure;
	return true;
}
