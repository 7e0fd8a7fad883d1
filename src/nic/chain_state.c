/* SPDX-License-Identifier: BSD-2-Clause */
/* The state of chains, for debuggers and monitors. */
#include "nic/chain.h"

void nic_qp_trace_chain(struct nic_qp *qp, const struct nic_chain_trace *trace)
{
	if (qp->chain)
		qp->chain->trace = trace ? *trace : (struct nic_chain_trace){0};
}

/* Returns true if the WAIT in progress has not been woken, which another PU may do. */
static bool still_waits(const struct qp_chain *c)
{
	struct nic_cq *cq = c->wait_cq;
	bool waits;

	if (!cq)
		return false;
	cq_lock(cq);
	waits = list_linked(&c->wait);
	cq_unlock(cq);
	return waits;
}

static enum nic_chain_activity activity_of(struct nic_qp *qp)
{
	const struct qp_sq *sq = &qp->sq;

	if (qp->state == NIC_QPS_ERR)
		return NIC_CHAIN_FAILED;
	if (qp->chain->throttled)
		return NIC_CHAIN_LIMITED;
	if (sq->next == sq->fetched && !chain_posted(qp))
		return NIC_CHAIN_IDLE;
	if (sq->block == BLOCK_CHAIN)
		return still_waits(qp->chain) ? NIC_CHAIN_WAITS : NIC_CHAIN_RUNS;
	return sq->block == BLOCK_RNR ? NIC_CHAIN_NO_RECV : NIC_CHAIN_RUNS;
}

void nic_qp_chain_state(const struct nic_qp *qp, struct nic_chain_state *out)
{
	/* chain_posted() records that the ring was full, and changes nothing else */
	struct nic_qp *q = (struct nic_qp *)qp;

	*out = (struct nic_chain_state){
		.qpn = qp->qpn,
		.executed = atomic_load_explicit(&qp->sq.index->cons, memory_order_relaxed) -
			    qp->chain->first,
		.activity = activity_of(q),
		.managed = qp->chain->managed_send};
}

unsigned nic_chain_states(const struct nic *nic, unsigned pu, struct nic_chain_state *out,
			  unsigned max)
{
	unsigned found = 0, kept = 0;

	for (unsigned i = 0; i < NIC_MAX_QPS; i++) {
		struct nic_qp *qp = atomic_load_explicit(&nic->qps[i], memory_order_acquire);
		struct nic_chain_state s;
		unsigned at;

		if (!qp || !qp->chain || qp->pu_index != pu)
			continue;
		found++;
		nic_qp_chain_state(qp, &s);
		at = kept < max ? kept++ : max;
		/* the list is sorted: the most WQEs come first */
		while (at && out[at - 1].executed < s.executed) {
			if (at < max)
				out[at] = out[at - 1];
			at--;
		}
		if (at < max)
			out[at] = s;
	}
	return found;
}
