/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The pace of a chain: the rate limit of a managed queue, its share of a turn, and waits for a
 * time. This file also has the audit of executed WQEs.
 *
 *	turn	all managed queues of a PU take about NIC_CHAIN_TURN WQEs in a turn. The share of a
 *		queue is that number divided by the number of queues that took WQEs in the last turn
 *		or in this one, whichever is larger. A queue that has used its share continues in
 *		the next turn
 *	rate	each WQE takes a token. Without a token the queue waits until the next token comes
 */
#include "nic/chain.h"

void chain_begin_turn(struct nic_qp *qp)
{
	struct qp_chain *c = qp->chain;
	struct pu *pu = qp->pu;
	uint32_t share;

	if (pu->chain_turn != pu->polls) {
		pu->chain_queues_before = pu->chain_turn + 1 == pu->polls ? pu->chain_queues : 0;
		pu->chain_queues = 0;
		pu->chain_turn = pu->polls;
	}
	pu->chain_queues++;
	share = NIC_CHAIN_TURN / (pu->chain_queues > pu->chain_queues_before
					  ? pu->chain_queues
					  : pu->chain_queues_before);
	if (!share)
		share = 1;
	c->turn = pu->polls;
	c->turn_left = c->turn_limit < share ? c->turn_limit : share;
}

void chain_throttle(struct nic_qp *qp)
{
	struct qp_chain *c = qp->chain;

	if (c->turn_left) {
		chain_timer_at(qp, tokens_when(&c->tokens));
		req_blocked(qp, BLOCK_RATE);
	} else if (!list_linked(&qp->tx_link)) {
		list_add_tail(&qp->tx_link, &qp->pu->chain_later);
	}
}

void chain_next_turn(struct nic_qp *qp)
{
	if (list_linked(&qp->tx_link)) {
		nic_schedule(qp);
		return;
	}
	list_add_tail(&qp->tx_link, &qp->pu->chain_later);
	qp->sq.block = BLOCK_NONE;
}

void chain_timer_at(struct nic_qp *qp, uint64_t when)
{
	wheel_add(&qp->pu->wheel, &qp->chain->timer, when);
}

void chain_timer(struct nic_qp *qp)
{
	qp->chain->throttled = false;
	nic_schedule(qp);
}

bool chain_audit(struct nic_qp *qp, const struct sq_entry *e)
{
	const struct cqe_fields f = {.wr_id = e->wr_id,
				     .byte_len = e->len,
				     .imm = e->op,
				     .wqe = e->index,
				     .status = e->status,
				     .opcode = NIC_WC_SEND};

	if (e->status != NIC_WC_WR_FLUSH_ERR)
		cq_push(qp->chain->audit, qp, &f);
	return qp->sig_all || e->wqe.flags & ROOST_WQE_SIGNALED || e->status != NIC_WC_SUCCESS;
}
