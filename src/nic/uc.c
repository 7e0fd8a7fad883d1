/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The responder of unreliable connections (IBA 9.8.2). It sends no answers. A message that is
 * damaged (a missing PSN, FIRST or LAST) or refused (key, length, no receive) is dropped and
 * counted. The next FIRST or ONLY starts a new message with any PSN. Bytes that a damaged WRITE has
 * stored stay. If a dropped SEND had begun to fill a receive, the next message uses this receive
 * (IBA 9.9.3, class D; rxe_resp.c, do_class_d1e_error).
 */
#include "nic/datagram.h"
#include "nic/responder.h"

/* Drops the message in progress; the next message fills its receive. */
static void abandon(struct nic_qp *qp)
{
	qp->resp.msg = PKT_KIND_NONE;
	resp_keep_recv(&qp->resp);
}

static void drop(struct nic_qp *qp)
{
	qp->pu->ctr.rx_uc_dropped++;
	qp->resp.drop = true;
	abandon(qp);
}

static uint8_t execute(struct nic_qp *qp, const struct pkt_view *v)
{
	if (!resp_in_sequence(qp, v))
		return PKT_NAK_INVALID_REQ;
	return v->op->kind == PKT_KIND_SEND ? resp_send(qp, v) : resp_write(qp, v);
}

void uc_rx(struct nic_qp *qp, const struct pkt_view *v)
{
	struct qp_resp *r = &qp->resp;
	uint32_t psn = psn_extend(r->epsn, v->psn);
	bool gap = psn != r->epsn;
	uint8_t nak;

	if (unlikely(!qp->has_received))
		qp_first_packet(qp);
	r->epsn = psn + 1;
	qp->pu->ctr.out_of_sequence += gap;
	if (v->op->flags & PKT_FIRST) {
		if (unlikely(r->msg != PKT_KIND_NONE)) {
			qp->pu->ctr.rx_uc_dropped++; /* the previous message has no end */
			abandon(qp);
		}
		r->drop = false;
	} else if (unlikely(gap || r->drop)) {
		drop(qp);
		return;
	}
	nak = execute(qp, v);
	if (likely(!nak)) {
		if (v->op->kind == PKT_KIND_SEND)
			qp->pu->ctr.rx_send_requests++;
		else
			qp->pu->ctr.rx_write_requests++;
		return;
	}
	qp->pu->ctr.out_of_buffer += PKT_AETH_TYPE(nak) == PKT_AETH_TYPE_RNR;
	drop(qp);
	/*
	 * The memory of the receive was not accessible, and the receive has completed in error.
	 * This is a local error (IBA 9.9.3, class A).
	 */
	if (v->op->kind == PKT_KIND_SEND && nak == PKT_NAK_REM_OP)
		qp_error(qp);
}
