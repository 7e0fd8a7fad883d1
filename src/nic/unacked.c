/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The requester of services without acknowledgements, for the loop in req.c. A request is complete
 * when the port has taken its last packet. There is no retransmission, so `una` equals `next`. A
 * failed request takes the send queue to the SQE state; the receive queue continues. Packets to QPs
 * of this NIC go through the port as well.
 */
#include "nic/datagram.h"
#include "nic/requester.h"
#include "nic/tx.h"

/*
 * The bytes that a packet counts in the window in addition to its length. A small packet takes
 * about this much of a socket's receive buffer, and it is not sent again when the buffer is full.
 */
#define PACKET_WEIGHT (256 + PKT_MAX_HEADERS)

enum req_result unacked_end(struct nic_qp *qp, struct sq_entry *e, struct tx_burst *burst)
{
	if (likely(e->status == NIC_WC_SUCCESS) && sq_local(qp, e)) {
		qp->sq.next++;
		sq_retire(qp, e);
		return REQ_MORE;
	}
	if (e->status == NIC_WC_LOC_PROT_ERR)
		qp->pu->ctr.req_local_protection_error++;
	else
		qp->pu->ctr.req_local_qp_op_error++;
	sq_retire(qp, e);
	qp_sq_error(qp);
	return REQ_MORE;
}

enum req_admission unacked_admit(struct nic_qp *qp, struct sq_entry *e, struct req_packet *p)
{
	struct nic_ah *ah = NULL;
	uint32_t dqpn;

	p->dest = qp->dest;
	if (qp->type == NIC_QPT_UD) {
		e->status = ud_address(qp, e, &ah);
		if (unlikely(e->status))
			return REQ_REFUSED;
		dqpn = ROOST_UD_QPN(e->wqe.raddr);
		p->dest = dest_of_datagram(ah->dest[qp->pu_index], dqpn);
	}
	p->ah = ah;
	p->bytes = PACKET_WEIGHT + req_payload(qp, e, qp->sq.next_pkt);
	return dest_admit_unacked(qp, p->dest, p->bytes) ? REQ_ADMITTED : REQ_WAITS;
}

int unacked_send(struct nic_qp *qp, struct sq_entry *e, struct req_packet *p)
{
	return p->ah ? ud_send_packet(qp, e, p->ah, p->dest)
		     : req_send_packet(qp, e, qp->sq.next_pkt, false);
}

enum req_result unacked_complete(struct nic_qp *qp, struct sq_entry *e, const struct req_packet *p,
				 struct tx_burst *burst)
{
	struct qp_sq *sq = &qp->sq;

	dest_sent_unacked(p->dest, p->bytes);
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
