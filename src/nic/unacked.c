/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The requester of services without acknowledgements. A request is complete when the port has taken
 * its last packet. There is no retransmission, so `una` equals `next`. A failed request takes the
 * send queue to the SQE state; the receive queue continues. Packets to QPs of this NIC go through
 * the port as well.
 */
#include "nic/datagram.h"
#include "nic/requester.h"
#include "nic/tx.h"

/*
 * Bytes that a packet counts in the window beyond its length. A small packet takes about this much
 * of a socket's receive buffer, and it is not sent again when the buffer is full.
 */
#define PACKET_WEIGHT (256 + PKT_MAX_HEADERS)

static enum req_result fail(struct nic_qp *qp, struct sq_entry *e)
{
	if (e->status == NIC_WC_LOC_PROT_ERR)
		qp->pu->ctr.req_local_protection_error++;
	else
		qp->pu->ctr.req_local_qp_op_error++;
	sq_retire(qp, e);
	qp_sq_error(qp);
	return REQ_MORE;
}

static uint32_t weight(const struct nic_qp *qp, const struct sq_entry *e, uint32_t pkt)
{
	return PACKET_WEIGHT + req_payload(qp, e, pkt);
}

/* Sends one packet of the WQE at `next`. */
static enum req_result send_one(struct nic_qp *qp, struct sq_entry *e)
{
	struct qp_sq *sq = &qp->sq;
	uint32_t bytes = weight(qp, e, sq->next_pkt);
	struct dest *d = qp->dest;
	struct nic_ah *ah = NULL;
	int rc;

	if (qp->type == NIC_QPT_UD) {
		e->status = ud_address(qp, e, &ah);
		if (unlikely(e->status))
			return fail(qp, e);
		d = ah->dest[qp->pu_index]
			    [PORT_LANE_OF_QPN(ROOST_UD_QPN(e->wqe.raddr), qp->nic->cfg.pus)];
	}
	if (!dest_admit_unacked(qp, d, bytes))
		return REQ_IDLE;
	rc = ah ? ud_send_packet(qp, e, ah, d) : req_send_packet(qp, e, sq->next_pkt, false);
	if (unlikely(rc == -EAGAIN))
		return REQ_PORT_FULL;
	if (unlikely(rc)) {
		qp->pu->ctr.memory_faults += rc == -EFAULT;
		e->status = NIC_WC_LOC_PROT_ERR;
		return fail(qp, e);
	}
	dest_sent_unacked(d, bytes);
	sq->psn_una = sq->psn_max = ++sq->psn_next;
	if (++sq->next_pkt < e->npkts)
		return REQ_MORE;
	sq->next++;
	sq->next_pkt = 0;
	sq_retire(qp, e);
	if (unlikely(qp->state == NIC_QPS_SQD))
		sq_drained(qp);
	return REQ_MORE;
}

static enum req_result step(struct nic_qp *qp, struct sq_entry *e)
{
	if (unlikely(e->status != NIC_WC_SUCCESS))
		return fail(qp, e);
	if (unlikely(e->npkts == 0)) {
		if (!sq_local(qp, e))
			return fail(qp, e);
		qp->sq.next++;
		sq_retire(qp, e);
		return REQ_MORE;
	}
	return send_one(qp, e);
}

enum req_result unacked_run(struct nic_qp *qp)
{
	struct qp_sq *sq = &qp->sq;
	struct tx_burst burst = tx_burst(qp);

	while (tx_goes_on(qp, &burst)) {
		enum req_result r;

		if (unlikely(qp->state == NIC_QPS_SQE)) {
			sq_flush(qp);
			return req_idle(qp) ? REQ_IDLE : REQ_MORE;
		}
		/* SQD: messages in progress are completed, no new one starts (IBA 10.3.1.7). */
		if (unlikely(qp->state == NIC_QPS_SQD && sq->next_pkt == 0))
			return REQ_IDLE;
		if (sq->next == sq->fetched && !sq_fetch(qp)) {
			if (unlikely(qp->state == NIC_QPS_ERR))
				return REQ_MORE;
			if (req_idle(qp))
				return REQ_IDLE;
			continue;
		}
		r = step(qp, sq_entry(sq, sq->next));
		if (r != REQ_MORE)
			return r;
	}
	return REQ_MORE;
}
