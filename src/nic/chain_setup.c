/* SPDX-License-Identifier: BSD-2-Clause */
/* Queue pairs for chains: set up, stopped, reset, and their errors. */
#include <stdlib.h>

#include "nic/chain.h"

/* From now on its completions are counted; a CQ on another PU takes its lock. */
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

int nic_qp_set_chain(struct nic *nic, struct nic_qp *qp, const struct nic_chain_attr *attr)
{
	struct qp_chain *c;

	if (qp->type != NIC_QPT_RC)
		return -EOPNOTSUPP;
	if (qp->state > NIC_QPS_INIT || (attr->managed_recv && (qp->srq || !qp->resp.rq)))
		return -EINVAL;
	if (qp->chain || qp->num_out)
		return -EBUSY;
	if (!nic_memory_take(nic, sizeof(*c)))
		return -ENOMEM;
	c = calloc(1, sizeof(*c));
	if (!c) {
		nic_memory_give(nic, sizeof(*c));
		return -ENOMEM;
	}
	c->qp = qp;
	c->managed_send = attr->managed_send;
	c->managed_recv = attr->managed_recv;
	for (unsigned i = 0; i < ROOST_CHAIN_WATCHES; i++)
		if (attr->watch[i])
			watch(qp, &c->watch[i], attr->watch[i]);
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

void chain_reset(struct nic_qp *qp)
{
	struct qp_chain *c = qp->chain;

	c->first = c->enabled = qp->sq.taken;
	c->first_recv = c->recv_enabled = qp->resp.rq ? qp->resp.rq->cons : 0;
	c->all_posted = c->all_recv_posted = false;
	c->has_failed = false;
	for (unsigned i = 0; i < ROOST_CHAIN_WATCHES; i++)
		if (c->watch[i].cq)
			c->watch[i].base = c->watch[i].cq->count;
}

void chain_stop(struct nic_qp *qp)
{
	struct qp_chain *c = qp->chain;
	struct nic_cq *cq = c->wait_cq;

	if (!cq)
		return;
	if (cq->special & CQ_SHARED)
		spin_lock(&cq->lock);
	if (list_linked(&c->wait))
		list_del(&c->wait);
	if (cq->special & CQ_SHARED)
		spin_unlock(&cq->lock);
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
