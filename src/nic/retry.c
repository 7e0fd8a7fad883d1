/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Time-outs of the requester. Each QP has one timer. It is set when work becomes outstanding, and
 * ACKs do not move it. When the timer fires, `progress` is compared with the time, so the fast path
 * does not access the wheel.
 *
 *  progress        + probe interval             + T                            + T * retries
 *     |------------------|--- doubling ---|--------|--- go-back-N, again ... ----|  QP to error
 *                   one packet sent again
 *
 * T is 4.096 us x 2^timeout (IBA 9.7.6.1.3). A lost tail costs the probe interval, max(RTO, 1 ms),
 * not T. The RTO comes from the destination's round trips (dest_rto). If the path's round trip is
 * longer than 1 ms, T is not shorter than that: a shorter T would retransmit packets that cannot
 * have been answered yet.
 */
#include "nic/alive.h"
#include "nic/dest.h"
#include "nic/requester.h"

#define PROBE_MIN_NS	  1000000u
#define PROBE_MAX_SHIFT	  6 /* the interval doubles up to 64 times the first one */
#define BACKOFF_MAX_SHIFT 2 /* waits stay between T and 4T */

/* RNR timer codes in units of 10 us (IBA table 45). */
static const uint32_t rnr_10us[32] = {65536, 1,	   2,	 3,	4,     6,     8,     12,
				      16,    24,   32,	 48,	64,    96,    128,   192,
				      256,   384,  512,	 768,	1024,  1536,  2048,  3072,
				      4096,  6144, 8192, 12288, 16384, 24576, 32768, 49152};

uint64_t retry_rnr_ns(uint8_t timer)
{
	return (uint64_t)rnr_10us[timer & 31] * 10000;
}

static uint64_t timeout_ns(const struct nic_qp *qp)
{
	uint64_t t = 4096ull << qp->attr.timeout << qp->sq.backoff, trip = qp->dest->base_rtt;

	return (trip > PROBE_MIN_NS && trip > t ? trip : t) * qp->nic->cfg.timeout_scale;
}

static uint64_t probe_ns(const struct nic_qp *qp)
{
	uint64_t base = dest_rto(qp->dest);
	unsigned shift = qp->sq.probes < PROBE_MAX_SHIFT ? qp->sq.probes : PROBE_MAX_SHIFT;

	if (base < PROBE_MIN_NS)
		base = PROBE_MIN_NS;
	return (base << shift) * qp->nic->cfg.timeout_scale;
}

/* Returns the time of the next probe or time-out. */
static uint64_t deadline(const struct nic_qp *qp)
{
	const struct qp_sq *sq = &qp->sq;
	uint64_t probe = (sq->probes && sq->probed > sq->progress ? sq->probed : sq->progress) +
			 probe_ns(qp);
	uint64_t expiry = sq->progress + timeout_ns(qp);

	if (sq->rnr_until)
		return sq->rnr_until;
	/* Timeout 0 means a wait without limit (IBA 11.2.5.2); probes are sent nevertheless. */
	return qp->attr.timeout && expiry < probe ? expiry : probe;
}

void retry_arm(struct nic_qp *qp)
{
	wheel_add(&qp->pu->wheel, &qp->timer, deadline(qp));
}

void retry_rnr_wait(struct nic_qp *qp, uint64_t ns)
{
	qp->sq.rnr_until = qp->pu->now + ns * qp->nic->cfg.timeout_scale;
	qp->sq.probing = false;
	wheel_add(&qp->pu->wheel, &qp->timer, qp->sq.rnr_until);
}

bool retry_count(struct nic_qp *qp)
{
	if (qp->sq.retries == 0) {
		qp->pu->ctr.retry_exceeded_err++;
		req_fail(qp, NIC_WC_RETRY_EXC_ERR);
		return false;
	}
	qp->sq.retries--;
	return true;
}

static void probe(struct nic_qp *qp)
{
	struct qp_sq *sq = &qp->sq;
	struct sq_entry *e = sq_entry(sq, sq->una);

	if (sq->probes < UINT8_MAX)
		sq->probes++;
	sq->probed = qp->pu->now;
	if (req_send_packet(qp, e, sq->psn_una - e->psn, true) == 0) {
		qp->pu->ctr.tail_loss_probe++;
		sq->probing = true;
		sq->probe_end = sq->psn_max;
		/*
		 * A round trip is ambiguous now: the answer to a later packet may be lost, and the
		 * answer to the probe looks the same.
		 */
		sq->rtt_start = 0;
	}
}

/*
 * Returns true if the retries are used up because the peer's process is stopped. A hardware NIC
 * would have answered instead, so the retries start again. A single check cannot tell a stopped
 * process from a busy one. So a second check counts only if no packet has come since the first.
 */
static bool peer_stalled(struct nic_qp *qp)
{
	struct qp_sq *sq = &qp->sq;

	if (sq->retries || (sq->stalled_at && alive_rx_since(qp->dest, sq->stalled_at)) ||
	    alive_reader(qp->dest, sq->progress) != PORT_READER_STALLED)
		return false;
	sq->stalled_at = alive_await_rx(qp->dest);
	return true;
}

static void expire(struct nic_qp *qp)
{
	struct qp_sq *sq = &qp->sq;

	qp->pu->ctr.local_ack_timeout_err++;
	if (peer_stalled(qp))
		sq->retries = qp->attr.retry_cnt;
	else if (!retry_count(qp))
		return;
	if (sq->backoff < BACKOFF_MAX_SHIFT)
		sq->backoff++;
	sq->progress = qp->pu->now;
	sq->gap = sq->probing = false;
	sq->rd_limit = 1;
	dest_lost(qp->dest);
	req_rewind(qp);
}

void retry_fire(struct nic_qp *qp)
{
	struct qp_sq *sq = &qp->sq;
	uint64_t now = qp->pu->now;

	/* In the usual case everything was acknowledged. This check touches one cache line. */
	if (likely(sq->psn_una == sq->psn_max && !sq->rnr_until && sq->block == BLOCK_NONE))
		return;
	if (qp->state != NIC_QPS_RTS && qp->state != NIC_QPS_SQD)
		return;
	if (!qp_acknowledged(qp)) { /* the destination's window was full: the QP tries again */
		nic_schedule(qp);
		return;
	}
	if (sq->rnr_until && now >= sq->rnr_until) {
		sq->rnr_until = 0;
		sq->progress = now;
		nic_schedule(qp);
		return; /* the next packet sets the timer again */
	}
	if (qp_has(qp, QP_LOOP)) {
		nic_schedule(qp);
		return;
	}
	if (sq->psn_una == sq->psn_max && !sq->rnr_until)
		return;
	if (now >= deadline(qp)) {
		if (!psn_before(sq->psn_una, sq->psn_next))
			/* the QP was rewound and waits, so no packet is in flight */
			sq->progress = now;
		else if (qp->attr.timeout && now >= sq->progress + timeout_ns(qp))
			expire(qp);
		else
			probe(qp);
		if (qp->state == NIC_QPS_ERR)
			return;
	}
	/*
	 * The time-out counts from `progress`, and the next, doubled probe interval from the last
	 * probe.
	 */
	retry_arm(qp);
}
