/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The receiving half of the requester. ACKs, NAKs, READ responses and results of atomics move
 * psn_una and retire WQEs, or cause retransmission.
 */
#include "base/assert.h"
#include "nic/chain.h"
#include "nic/dest.h"
#include "nic/requester.h"

#define FEW_READS 4 /* with at most this many outstanding, a loss does not set rd_limit */

/*
 * Go-back-N: the requester sends everything from psn_una again. The running round-trip sample is
 * dropped, because it could include the wait of an RNR NAK.
 */
void req_rewind(struct nic_qp *qp)
{
	struct qp_sq *sq = &qp->sq;

	dest_release(qp, sq->inflight);
	dest_release_read(qp, sq->read_bytes);
	sq->rd_out = 0;
	sq->next = sq->una;
	sq->next_pkt = 0;
	if (sq->una != sq->fetched)
		sq->next_pkt = sq->psn_una - sq_entry(sq, sq->una)->psn;
	sq->psn_next = sq->psn_una;
	sq->since_ackreq = 0;
	sq->rtt_start = 0;
	sq->probe_acked = false;
	nic_schedule(qp);
}

/*
 * After a rewind, ACKs of the first copies may pass psn_next. The requester then continues at
 * psn_una.
 */
static void skip_acked(struct nic_qp *qp)
{
	struct qp_sq *sq = &qp->sq;

	if (!psn_before(sq->psn_next, sq->psn_una))
		return;
	dest_release(qp, sq->inflight);
	dest_release_read(qp, sq->read_bytes);
	sq->rd_out = 0;
	sq->psn_next = sq->psn_una;
	sq->next = sq->una;
	sq->next_pkt = sq->una != sq->fetched ? sq->psn_una - sq_entry(sq, sq->una)->psn : 0;
}

/* Updates the round trip after an answer to all packets before `upto`. */
static inline __attribute__((always_inline)) void rtt_answered(struct nic_qp *qp, uint32_t upto)
{
	struct qp_sq *sq = &qp->sq;
	uint64_t now = qp->pu->now;

	if (unlikely(sq->probes | sq->backoff))
		dest_waited(qp->dest, now - sq->una_since,
			    now - (sq->probed > sq->progress ? sq->probed : sq->progress));
	if (sq->rtt_start && psn_before(sq->rtt_psn, upto)) {
		dest_rtt(qp->dest, now - sq->rtt_start, sq->rtt_alone);
		sq->rtt_start = 0;
	}
}

/*
 * The window after an RNR NAK. A responder that took a part of the packets in flight has no space
 * for the rest: its program has posted no more receives, or a kernel has used its share of a turn.
 * The rest travels twice, so the window becomes three quarters of that part, but not less than half
 * of what was in flight: an ACK may have come for another part before. While packets are
 * acknowledged, the window grows by a sixteenth per window, until it limits nothing.
 */
#define RNR_WINDOW_MIN 2

static void rnr_window_set(struct qp_sq *sq, uint32_t psn, uint32_t window)
{
	if (window < RNR_WINDOW_MIN)
		window = RNR_WINDOW_MIN;
	sq->rnr_window = (uint8_t)(window <= UINT8_MAX ? window : 0);
	sq->rnr_psn = psn + window;
}

static __attribute__((noinline)) void rnr_window_grow(struct qp_sq *sq)
{
	if (!psn_before(sq->psn_una, sq->rnr_psn))
		rnr_window_set(sq, sq->psn_una, sq->rnr_window + sq->rnr_window / 16u + 1);
}

/* An RNR NAK came. The responder took the packets before `psn` of those from `una` to psn_next. */
static void rnr_window_cut(struct qp_sq *sq, uint32_t una, uint32_t psn)
{
	uint32_t half = (sq->psn_next - una) / 2, taken = psn - una;

	rnr_window_set(sq, psn, taken - taken / 4 > half ? taken - taken / 4 : half);
}

static inline __attribute__((always_inline)) void progressed(struct nic_qp *qp)
{
	struct qp_sq *sq = &qp->sq;
	struct pu *pu = qp->pu;

	skip_acked(qp);
	rtt_answered(qp, sq->psn_una);
	if (unlikely(qp->chain))
		chain_retire(qp);
	sq->progress = sq->una_since = pu->now;
	sq->retries = qp->attr.retry_cnt;
	sq->rnr_retries = qp->attr.rnr_retry;
	if (unlikely(sq->probes | sq->backoff)) {
		sq->probes = sq->backoff = 0;
		/* The timer is still set to twice the interval or more. */
		if (sq->psn_una == sq->psn_max)
			wheel_del(&pu->wheel, &qp->timer);
		else
			retry_arm(qp);
	}
	sq->stalled_at = 0;
	sq->gap = sq->nak_seen = false;
	if (unlikely(sq->rnr_window))
		rnr_window_grow(sq);
	if (sq->block != BLOCK_NONE && sq->block != BLOCK_RNR)
		nic_schedule(qp);
	if (unlikely(qp->state == NIC_QPS_SQD))
		sq_drained(qp);
}

/*
 * Ends the oldest entry, which the responder has acknowledged or answered in full. It has then
 * succeeded, even if it could not be sent again meanwhile (send_one() in req.c).
 */
static inline void acknowledged(struct nic_qp *qp, struct sq_entry *e)
{
	e->status = NIC_WC_SUCCESS;
	sq_retire(qp, e);
}

/*
 * Acknowledges all packets before `upto`. Stops at a READ or atomic without an answer: an ACK
 * beyond it means that the answer was lost (an implied NAK, IBA 9.7.5.2.8). Returns false if it
 * stopped.
 */
static bool ack_upto(struct nic_qp *qp, uint32_t upto)
{
	struct qp_sq *sq = &qp->sq;
	uint32_t bytes = 0;
	bool all = true, moved = false;

	while (psn_before(sq->psn_una, upto)) {
		struct sq_entry *e = sq_entry(sq, sq->una);
		uint32_t end = e->psn + e->npkts;

		if (op_gets_data(e->op)) {
			all = false;
			break;
		}
		if (psn_before(upto, end))
			end = upto;
		bytes += req_bytes(qp, e, sq->psn_una - e->psn, end - e->psn);
		sq->psn_una = end;
		moved = true;
		if (end != e->psn + e->npkts)
			break;
		acknowledged(qp, e);
	}
	if (moved) {
		uint32_t release = bytes < sq->inflight ? bytes : sq->inflight;

		if (sq->psn_una == sq->psn_next)
			release = sq->inflight;
		dest_release(qp, release);
		dest_acked(qp->dest, bytes, qp->pu->now);
		progressed(qp);
	}
	return all;
}

/*
 * Handles a response before which others are missing: requests them again, once per gap. The
 * responder executes them behind all earlier requests. So the number of outstanding READs is
 * halved; otherwise answers would come later than the time-outs. The function ignores an answer to
 * a first copy while its second copy has not been sent, because it says nothing about the second
 * copies.
 */
static void implied_nak(struct nic_qp *qp, uint32_t psn)
{
	struct qp_sq *sq = &qp->sq;

	if (sq->gap || !psn_before(psn, sq->psn_next))
		return;
	qp->pu->ctr.implied_nak_seq_err++;
	if (sq->rd_out > FEW_READS)
		sq->rd_limit = sq->rd_out / 2;
	dest_lost(qp->dest);
	req_rewind(qp);
	sq->gap = true;
}

/*
 * Called when a READ request or atomic is fully answered. rd_limit grows by one for each of them,
 * so it doubles per round trip.
 */
static void read_answered(struct nic_qp *qp)
{
	struct qp_sq *sq = &qp->sq;

	ROOST_ASSERT(sq->rd_out);
	sq->rd_out--;
	if (unlikely(sq->rd_limit) && ++sq->rd_limit >= qp->attr.max_rd_atomic)
		sq->rd_limit = 0;
}

void req_fail(struct nic_qp *qp, enum nic_wc_status status)
{
	struct qp_sq *sq = &qp->sq;

	if (sq->una != sq->fetched) {
		struct sq_entry *e = sq_entry(sq, sq->una);

		e->status = (uint8_t)status;
		sq_retire(qp, e);
	}
	qp_error(qp);
}

void req_fail_local(struct nic_qp *qp, const struct sq_entry *e)
{
	if (e->status == NIC_WC_LOC_PROT_ERR)
		qp->pu->ctr.req_local_protection_error++;
	else
		qp->pu->ctr.req_local_qp_op_error++;
	req_fail(qp, e->status);
}

/* Returns true if an ACK that comes now can be the probe's, by the smallest round trip. */
static bool answers_probe(const struct nic_qp *qp)
{
	uint64_t min = qp->dest->rtt_min;

	return min && qp->pu->now - qp->sq.probed >= min / 2;
}

static void on_ack(struct nic_qp *qp, uint32_t psn)
{
	struct qp_sq *sq = &qp->sq;
	bool only_probe = sq->probing && psn == sq->psn_una && psn_before(psn + 1, sq->probe_end);
	bool before = sq->probe_acked;

	if (!ack_upto(qp, psn + 1)) {
		implied_nak(qp, psn);
		return;
	}
	/*
	 * The ACK covers only the packet of the probe, so the packets after it are lost. But it may
	 * be the ACK of the first copy, with more ACKs behind it, if it comes too early for the
	 * probe's ACK, or if no round trip is known. Then the next probe decides.
	 */
	if (only_probe && (before || answers_probe(qp))) {
		dest_lost(qp->dest);
		req_rewind(qp);
		only_probe = false;
	}
	sq->probe_acked = only_probe;
	sq->probing = false;
}

static void on_seq_nak(struct nic_qp *qp, uint32_t psn)
{
	struct qp_sq *sq = &qp->sq;

	if (!ack_upto(qp, psn)) {
		implied_nak(qp, psn);
		return;
	}
	/*
	 * After an RNR NAK the later packets are out of sequence, and some responders NAK them
	 * (rxe: check_psn() in rxe_resp.c). They were not lost; the requester sends them after the
	 * wait.
	 */
	if (sq->rnr_until)
		return;
	/*
	 * The same PSN in a second NAK without progress counts as a retry (IBA 9.7.5.2.4).
	 */
	if (sq->nak_seen && sq->nak_psn == psn && !retry_count(qp))
		return;
	sq->nak_seen = true;
	sq->nak_psn = psn;
	sq->probing = false;
	dest_lost(qp->dest);
	req_rewind(qp);
}

static void on_rnr(struct nic_qp *qp, uint32_t psn, uint8_t timer)
{
	struct qp_sq *sq = &qp->sq;
	uint32_t una = sq->psn_una;

	if (!ack_upto(qp, psn)) {
		implied_nak(qp, psn);
		return;
	}
	if (sq->rnr_until)
		return; /* a copy of the NAK that started the wait */
	rnr_window_cut(sq, una, psn);
	rtt_answered(qp, psn + 1);
	sq->probes = sq->backoff = 0;  /* an RNR NAK is an answer */
	if (qp->attr.rnr_retry != 7) { /* 7: without limit */
		if (sq->rnr_retries == 0) {
			qp->pu->ctr.retry_rnr_exceeded_err++;
			req_fail(qp, NIC_WC_RNR_RETRY_EXC_ERR);
			return;
		}
		sq->rnr_retries--;
	}
	req_rewind(qp);
	retry_rnr_wait(qp, retry_rnr_ns(timer));
}

enum nic_wc_status req_nak_status(uint8_t syndrome)
{
	switch (syndrome) {
	case PKT_NAK_INVALID_REQ:
		return NIC_WC_REM_INV_REQ_ERR;
	case PKT_NAK_REM_ACCESS:
		return NIC_WC_REM_ACCESS_ERR;
	case PKT_NAK_REM_OP:
		return NIC_WC_REM_OP_ERR;
	default: /* other codes are reserved or for RD, as "invalid RD request" */
		return NIC_WC_BAD_RESP_ERR;
	}
}

static void on_error_nak(struct nic_qp *qp, uint32_t psn, uint8_t syndrome)
{
	enum nic_wc_status status;

	if (!ack_upto(qp, psn)) {
		implied_nak(qp, psn);
		return;
	}
	status = req_nak_status(syndrome);
	qp->pu->ctr.req_bad_response += status == NIC_WC_BAD_RESP_ERR;
	req_fail(qp, status);
}

/*
 * Counts every NAK received, also copies and late NAKs, so that the counters agree with a capture.
 */
void req_count_nak(struct nic_counters *c, uint8_t syndrome)
{
	switch (syndrome) {
	case PKT_NAK_PSN_SEQ:
		c->packet_seq_err++;
		break;
	case PKT_NAK_INVALID_REQ:
		c->req_remote_invalid_request++;
		break;
	case PKT_NAK_REM_ACCESS:
		c->req_remote_access_errors++;
		break;
	case PKT_NAK_REM_OP:
		c->req_remote_op_errors++;
		break;
	default:
		if (PKT_AETH_TYPE(syndrome) == PKT_AETH_TYPE_RNR)
			c->rnr_nak_retry_err++;
	}
}

static void on_aeth(struct nic_qp *qp, const struct pkt_view *v, uint32_t psn)
{
	switch (PKT_AETH_TYPE(v->syndrome)) {
	case PKT_AETH_TYPE_ACK:
		on_ack(qp, psn);
		break;
	case PKT_AETH_TYPE_RNR:
		on_rnr(qp, psn, v->syndrome & 0x1f);
		break;
	case PKT_AETH_TYPE_NAK:
		if (v->syndrome == PKT_NAK_PSN_SEQ)
			on_seq_nak(qp, psn);
		else
			on_error_nak(qp, psn, v->syndrome);
		break;
	default:
		qp->pu->ctr.req_bad_response++;
	}
}

/*
 * Returns true if this is a valid response `pkt` of e. Inside a READ, FIRST and MIDDLE are both
 * valid: a repeated execution may begin there, and late packets of the earlier execution are valid,
 * too.
 */
static bool fits(const struct nic_qp *qp, const struct sq_entry *e, const struct pkt_view *v,
		 uint32_t pkt)
{
	uint32_t left = e->len - (pkt << qp->mtu_shift);

	if (v->op->kind == PKT_KIND_ATOMIC_ACK)
		return op_is_atomic(e->op);
	if (!op_is_read(e->op) || v->payload_len != (left < qp->mtu ? left : qp->mtu))
		return false;
	/* The first packet of a request always begins an execution. */
	if (pkt % qp->read_chunk == 0 && !(v->op->flags & PKT_FIRST))
		return false;
	/*
	 * A MIDDLE or FIRST can't be the last packet of a message. An ONLY or LAST must be the last
	 * packet of a request.
	 */
	if (!(v->op->flags & PKT_LAST))
		return pkt + 1 != e->npkts;
	return (pkt + 1) % qp->read_chunk == 0 || pkt + 1 == e->npkts;
}

static void on_data(struct nic_qp *qp, const struct pkt_view *v, uint32_t psn)
{
	struct qp_sq *sq = &qp->sq;
	struct sq_entry *e;
	uint32_t pkt;
	int rc;

	/* A READ response that answers a probe says nothing about the packets after the READ. */
	sq->probing = sq->probe_acked = false;
	ack_upto(qp, psn);
	if (sq->psn_una != psn) {
		implied_nak(qp, psn);
		return;
	}
	e = sq_entry(sq, sq->una);
	pkt = psn - e->psn;
	if (sq->una == sq->fetched || !fits(qp, e, v, pkt)) {
		qp->pu->ctr.req_bad_response++;
		req_fail(qp, NIC_WC_BAD_RESP_ERR);
		return;
	}
	if (v->op->kind == PKT_KIND_ATOMIC_ACK)
		rc = sq_scatter(qp, e, 0, (const uint8_t *)&v->swap_add, sizeof(v->swap_add));
	else
		rc = sq_scatter(qp, e, pkt << qp->mtu_shift, v->payload, v->payload_len);
	if (unlikely(rc)) {
		qp->pu->ctr.memory_faults += rc == -EFAULT;
		qp->pu->ctr.req_local_protection_error++;
		req_fail(qp, NIC_WC_LOC_PROT_ERR);
		return;
	}
	sq->psn_una++;
	if (!psn_before(sq->psn_next, sq->psn_una)) {
		dest_release_read(qp, sq->read_bytes < qp->mtu ? sq->read_bytes : qp->mtu);
		if (((pkt + 1) % qp->read_chunk == 0 || pkt + 1 == e->npkts) && sq->rd_out)
			read_answered(qp);
	}
	if (pkt + 1 == e->npkts)
		acknowledged(qp, e);
	progressed(qp);
}

void req_rx(struct nic_qp *qp, const struct pkt_view *v)
{
	struct qp_sq *sq = &qp->sq;
	uint32_t psn = psn_extend(sq->psn_una, v->psn);

	if (qp->state != NIC_QPS_RTS && qp->state != NIC_QPS_SQD)
		return;
	if (v->op->kind == PKT_KIND_ACK && unlikely(v->syndrome & PKT_AETH_TYPE_NAK))
		req_count_nak(&qp->pu->ctr, v->syndrome);
	if (!psn_before(psn, sq->psn_max)) {
		qp->pu->ctr.req_bad_response++; /* the answer is to a PSN that was never sent */
		return;
	}
	if (psn_before(psn, sq->psn_una))
		return; /* a copy, or a late answer */
	if (v->op->kind == PKT_KIND_ACK)
		on_aeth(qp, v, psn);
	else
		on_data(qp, v, psn);
}
