/* SPDX-License-Identifier: BSD-2-Clause */
#include "nic/check.h"

#include "nic/core.h"
#include "nic/dest.h"
#include "nic/psn.h"

/* Makes a function return the text of an invariant that does not hold. */
#define HOLDS(cond)                                                                                \
	do {                                                                                       \
		if (!(cond))                                                                       \
			return #cond;                                                              \
	} while (0)

/* Checks the entries of the send queue: their counts, origins and PSNs. */
static const char *check_entries(const struct nic_qp *qp)
{
	const struct qp_sq *sq = &qp->sq;
	uint32_t count[SQ_ORIGINS] = {0}, entries = sq->fetched - sq->una;

	HOLDS(sq->next - sq->una <= entries);
	HOLDS(entries <= sq->entry_mask + 1);
	for (uint32_t n = sq->una; n != sq->fetched; n++) {
		const struct sq_entry *e = sq_entry(sq, n);
		bool last = n + 1 == sq->fetched;

		HOLDS(e->origin < SQ_ORIGINS);
		count[e->origin]++;
		HOLDS((last ? sq->psn_fetch : sq_entry(sq, n + 1)->psn) == e->psn + e->npkts);
	}
	for (unsigned o = 0; o < SQ_ORIGINS; o++)
		HOLDS(sq->count[o] == count[o]);
	HOLDS(sq_of_program(sq) <= sq->window);
	return NULL;
}

/* Checks the requester of an acknowledged service. */
static const char *check_requester(const struct nic_qp *qp)
{
	const struct qp_sq *sq = &qp->sq;
	const struct sq_entry *e = sq_entry(sq, sq->una);

	HOLDS(!psn_before(sq->psn_next, sq->psn_una));
	HOLDS(!psn_before(sq->psn_max, sq->psn_next));
	HOLDS(!psn_before(sq->psn_fetch, sq->psn_next));
	if (sq->next == sq->fetched)
		HOLDS(sq->psn_next == sq->psn_fetch);
	else if (!qp_has(qp, QP_LOOP)) /* there next_pkt counts bytes */
		HOLDS(sq->psn_next == sq_entry(sq, sq->next)->psn + sq->next_pkt);
	if (sq->una != sq->fetched && e->npkts) {
		HOLDS(!psn_before(sq->psn_una, e->psn));
		HOLDS(psn_before(sq->psn_una, e->psn + e->npkts));
	}
	HOLDS(sq->rd_out <= qp->attr.max_rd_atomic);
	HOLDS(sq->rd_out || !sq->read_bytes);
	if (sq->psn_una == sq->psn_next)
		HOLDS(!sq->inflight);
	return NULL;
}

static bool is_listed(const struct list_head *list, const struct list_head *link)
{
	for (const struct list_head *l = list->next; l != list; l = l->next)
		if (l == link)
			return true;
	return false;
}

/* Checks that the list of the queue pair agrees with the reason of its wait. */
static const char *check_wait(const struct nic_qp *qp)
{
	const struct pu *pu = qp->pu;

	switch ((enum qp_block)qp->sq.block) {
	case BLOCK_NONE:
		HOLDS(!list_linked(&qp->tx_link) || is_listed(&pu->senders, &qp->tx_link) ||
		      is_listed(&pu->stuck_senders, &qp->tx_link) ||
		      is_listed(&pu->chain_later, &qp->tx_link));
		break;
	case BLOCK_WINDOW:
		HOLDS(!qp_acknowledged(qp) || is_listed(&qp->dest->waiters, &qp->tx_link) ||
		      is_listed(&pu->ports[qp->port].read_waiters, &qp->tx_link));
		break;
	case BLOCK_READS:
	case BLOCK_PSN:
	case BLOCK_COPIES:
	case BLOCK_BATCH:
	case BLOCK_HOOK:
	case BLOCK_ORDER:
	case BLOCK_CHAIN:
	case BLOCK_RATE:
	case BLOCK_RNR:
		HOLDS(!list_linked(&qp->tx_link));
		break;
	}
	return NULL;
}

static bool ack_is_delayed(const struct pu *pu, const struct nic_qp *qp)
{
	return pu->reply_qp == qp && pu->ack_delay.delayed;
}

static const char *check_responder(const struct nic_qp *qp)
{
	const struct qp_resp *r = &qp->resp;

	HOLDS(r->count <= r->replay_size);
	HOLDS(qp->replay_limit <= r->replay_size);
	HOLDS(r->oldest <= r->count);
	for (unsigned i = 0; i <= r->oldest && i < r->count; i++) {
		const struct resp_entry *e = &r->replay[(r->head + i) % r->replay_size];

		HOLDS((e->cur == e->end) == (i < r->oldest));
	}
	HOLDS(!(r->oldest < r->count || r->nak || r->cnp) || list_linked(&qp->resp_link) ||
	      qp->state == NIC_QPS_ERR);
	HOLDS(!r->ack || list_linked(&qp->resp_link) || ack_is_delayed(qp->pu, qp) ||
	      qp->state == NIC_QPS_ERR);
	return NULL;
}

static const char *check_qp(const struct nic_qp *qp)
{
	const char *broken = check_entries(qp);

	if (!broken && qp_acknowledged(qp) &&
	    (qp->state == NIC_QPS_RTS || qp->state == NIC_QPS_SQD))
		broken = check_requester(qp);
	if (!broken)
		broken = check_wait(qp);
	if (!broken)
		broken = check_responder(qp);
	return broken;
}

static const char *check_dest(const struct dest *d, uint32_t *read_out, uint32_t *qpn)
{
	uint64_t inflight = 0;

	HOLDS(d->refs > 0);
	HOLDS(d->cc.window <= d->cc.max);
	for (const struct list_head *l = d->qps.next; l != &d->qps; l = l->next) {
		const struct nic_qp *qp = list_entry(l, struct nic_qp, dest_link);
		const char *broken;

		*qpn = qp->qpn;
		HOLDS(qp->dest == d);
		broken = check_qp(qp);
		if (broken)
			return broken;
		inflight += qp->sq.inflight;
		read_out[qp->port] += d->path->read_window ? qp->sq.read_bytes : 0;
	}
	*qpn = 0;
	HOLDS(d->inflight == (d->cc.window ? inflight : 0));
	return NULL;
}

const char *nic_check(const struct nic *nic, unsigned pu_index, uint32_t *qpn)
{
	const struct pu *pu = nic->pus[pu_index];
	unsigned ports = atomic_load_explicit(&nic->ports, memory_order_relaxed);
	uint32_t read_out[NIC_MAX_PORTS] = {0};

	*qpn = 0;
	if (atomic_load_explicit(&((struct nic *)(uintptr_t)nic)->num_qps, memory_order_relaxed) >
	    NIC_CHECK_QPS)
		return NULL;
	for (const struct list_head *l = pu->dests.next; l != &pu->dests; l = l->next) {
		const char *broken = check_dest(list_entry(l, struct dest, link), read_out, qpn);

		if (broken)
			return broken;
	}
	for (unsigned p = 0; p < ports; p++)
		HOLDS(pu->ports[p].read_out == read_out[p]);
	return NULL;
}
