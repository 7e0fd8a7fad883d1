/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The sending half of the requester. It segments messages at the path MTU, splits READs into
 * requests, and decides when a QP must wait. req_resp.c handles the responses, and retry.c the
 * time-outs.
 */
#include "nic/chain.h"
#include "nic/requester.h"
#include "nic/responder.h"
#include "nic/stream.h"
#include "nic/tx.h"

#define BATCH_BEHIND 8	   /* the least number of outstanding requests behind which others wait */
#define BATCH_NS     20000 /* after this time of waiting, the next ACK or doorbell ends the wait */
#define BATCH_BYTES  (32u << 10) /* with this many posted bytes the requests do not wait */

/*
 * Returns the op-code of packet `pkt` of a SEND, WRITE or call. IBA 9.4: FIRST, MIDDLE .. LAST, or
 * ONLY.
 */
static uint8_t request_opcode(const struct sq_entry *e, uint32_t pkt)
{
	static const uint8_t table[][4] = {
		/* in the order FIRST, MIDDLE, LAST, ONLY */
		[ROOST_OP_WRITE] = {PKT_WRITE_FIRST, PKT_WRITE_MIDDLE, PKT_WRITE_LAST,
				    PKT_WRITE_ONLY},
		[ROOST_OP_WRITE_IMM] = {PKT_WRITE_FIRST, PKT_WRITE_MIDDLE, PKT_WRITE_LAST_IMM,
					PKT_WRITE_ONLY_IMM},
		[ROOST_OP_SEND] = {PKT_SEND_FIRST, PKT_SEND_MIDDLE, PKT_SEND_LAST, PKT_SEND_ONLY},
		[ROOST_OP_SEND_IMM] = {PKT_SEND_FIRST, PKT_SEND_MIDDLE, PKT_SEND_LAST_IMM,
				       PKT_SEND_ONLY_IMM},
		[ROOST_OP_SEND_INV] = {PKT_SEND_FIRST, PKT_SEND_MIDDLE, PKT_SEND_LAST_INV,
				       PKT_SEND_ONLY_INV},
		/* The parameters are always one packet, as sq.c checks. */
		[ROOST_OP_RPC] = {PKT_RPC_PARAMS, PKT_RPC_PARAMS, PKT_RPC_PARAMS, PKT_RPC_PARAMS},
		[ROOST_OP_RPC_WRITE] = {PKT_RPC_WRITE_FIRST, PKT_RPC_WRITE_MIDDLE,
					PKT_RPC_WRITE_LAST, PKT_RPC_WRITE_ONLY},
	};
	bool first = pkt == 0, last = pkt + 1 == e->npkts;

	return table[e->op][first ? (last ? 3 : 0) : (last ? 2 : 1)];
}

/*
 * Returns the number of PSNs of the request packet at `pkt`: 1, or the number of responses of a
 * READ request.
 */
uint32_t req_covers(const struct nic_qp *qp, const struct sq_entry *e, uint32_t pkt)
{
	uint32_t end;

	if (!op_is_read(e->op))
		return 1;
	/*
	 * READ requests end at multiples of read_chunk, also those that are sent again from the
	 * middle.
	 */
	end = pkt - pkt % qp->read_chunk + qp->read_chunk;
	return (end < e->npkts ? end : e->npkts) - pkt;
}

uint32_t req_payload(const struct nic_qp *qp, const struct sq_entry *e, uint32_t pkt)
{
	uint32_t off = pkt << qp->mtu_shift;

	return e->len - off < qp->mtu ? e->len - off : qp->mtu;
}

/*
 * Returns the bytes of packets [from, to) of a message, as the destination's window counts them.
 * READ requests and atomics are small and count 0.
 */
uint32_t req_bytes(const struct nic_qp *qp, const struct sq_entry *e, uint32_t from, uint32_t to)
{
	uint32_t end = to == e->npkts ? e->len : to << qp->mtu_shift;

	if (op_gets_data(e->op) || from == to)
		return 0;
	return end - (from << qp->mtu_shift) + (to - from) * PKT_MAX_HEADERS;
}

static uint8_t *put_extension(uint8_t *p, const struct nic_qp *qp, const struct sq_entry *e,
			      uint32_t pkt, uint16_t flags)
{
	const struct roost_wqe *w = &e->wqe;
	uint32_t off = pkt << qp->mtu_shift;

	if (flags & PKT_RETH) {
		uint32_t len = e->len;

		if (op_is_read(e->op)) {
			len = req_covers(qp, e, pkt) << qp->mtu_shift;
			if (len > e->len - off)
				len = e->len - off;
		}
		p = pkt_put_reth(p, w->raddr + off, w->rkey, len);
	}
	if (likely(!(flags & (PKT_ATOMIC_ETH | PKT_IMM | PKT_IETH))))
		return p;
	if (flags & PKT_ATOMIC_ETH)
		p = pkt_put_atomic(p, w->raddr, w->rkey, w->swap_add,
				   flags & PKT_NEEDS_CALC ? chain_calc_of(e->op) : w->compare);
	if (flags & PKT_IMM)
		p = pkt_put_imm(p, w->imm);
	if (flags & PKT_IETH)
		p = pkt_put_ieth(p, w->imm);
	return p;
}

/*
 * Builds and sends request packet `pkt` of a WQE. Does not change the QP's state. 0; -EAGAIN: no
 * space in the port; -EACCES, -EFAULT: the payload can't be read, nothing was sent.
 */
int req_send_packet(struct nic_qp *qp, struct sq_entry *e, uint32_t pkt, bool ackreq)
{
	struct port_buf buf;
	uint8_t opcode, flags = PKT_BTH_MIGREQ, *p;
	uint32_t n = 0, pad, len;
	int rc;

	if (op_gets_data(e->op)) {
		opcode = op_is_read(e->op) ? PKT_READ_REQUEST : chain_atomic_opcode(e->op);
	} else {
		opcode = (uint8_t)(qp->service + request_opcode(e, pkt));
		n = req_payload(qp, e, pkt);
		/* The solicited event bit is set on the last packet only (IBA 9.2.3). */
		if ((e->wqe.flags & ROOST_WQE_SOLICITED) && pkt + 1 == e->npkts)
			flags |= PKT_BTH_SE;
	}
	pad = -n & 3;
	flags |= (uint8_t)(pad << PKT_BTH_PAD_SHIFT);
	len = pkt_ops[opcode].hdr_len + n + pad + PKT_ICRC_LEN;
	rc = tx_begin(qp, len, &buf);
	if (unlikely(rc))
		return rc;
	p = pkt_put_bth(buf.bth, opcode, flags, qp->dest_qpn, ackreq, e->psn + pkt);
	p = put_extension(p, qp, e, pkt, pkt_ops[opcode].flags);
	if (n >= TX_ONE_PASS && likely(!stream_sees_out(qp, e))) {
		const void *src = sq_piece(qp, e, pkt << qp->mtu_shift, n);

		if (likely(src)) {
			rc = tx_end_copied(qp, &buf, p, src, n, len);
			if (unlikely(rc))
				tx_cancel(qp);
			return rc;
		}
	}
	if (n) {
		rc = unlikely(stream_sees_out(qp, e))
			     ? stream_gather(qp, e, pkt, p, n)
			     : sq_gather(qp, e, pkt << qp->mtu_shift, p, n);
		if (unlikely(rc)) {
			tx_cancel(qp);
			return rc;
		}
		tx_pad(p, n);
	}
	tx_end(qp, &buf, len);
	return 0;
}

/* Accounts for a request packet and moves psn_next. */
static void advance(struct nic_qp *qp, struct sq_entry *e, uint32_t covered, uint32_t bytes,
		    bool ackreq)
{
	struct qp_sq *sq = &qp->sq;
	struct pu *pu = qp->pu;

	/* Nothing was in flight (idle, RNR wait, full window), so the time-out starts now. */
	if (sq->psn_next == sq->psn_una) {
		sq->progress = pu->now;
		if (!(sq->probes | sq->backoff))
			sq->una_since = pu->now;
	}
	if (psn_before(sq->psn_next, sq->psn_max)) {
		pu->ctr.retransmitted_pkts++;
	} else if (ackreq && !sq->rtt_start) {
		sq->rtt_start = pu->now;
		sq->rtt_psn = sq->psn_next;
		sq->rtt_alone = sq->psn_next == sq->psn_una;
	}
	sq->since_ackreq = ackreq ? 0 : sq->since_ackreq + 1;
	sq->inflight += bytes;
	sq->psn_next += covered;
	if (psn_before(sq->psn_max, sq->psn_next))
		sq->psn_max = sq->psn_next;
	sq->next_pkt += covered;
	if (sq->next_pkt == e->npkts) {
		sq->next++;
		sq->next_pkt = 0;
	}
	if (unlikely(!wheel_pending(&qp->timer)))
		retry_arm(qp);
}

void req_blocked(struct nic_qp *qp, enum qp_block why)
{
	struct nic_counters *ctr = &qp->pu->ctr;

	qp->sq.block = (uint8_t)why;
	switch (why) {
	case BLOCK_NONE:
		break;
	case BLOCK_WINDOW:
		ctr->wait_window++;
		break;
	case BLOCK_READS:
		ctr->wait_reads++;
		break;
	case BLOCK_PSN:
		ctr->wait_psn++;
		break;
	case BLOCK_COPIES:
		ctr->wait_copies++;
		break;
	case BLOCK_BATCH:
		ctr->wait_batch++;
		break;
	case BLOCK_ORDER:
		ctr->wait_order++;
		break;
	case BLOCK_HOOK:
		ctr->wait_hook++;
		break;
	case BLOCK_CHAIN:
		ctr->wait_chain++;
		break;
	case BLOCK_RATE:
		ctr->wait_rate++;
		break;
	case BLOCK_RNR:
		ctr->wait_rnr++;
		break;
	}
}

static enum req_result wait_for(struct nic_qp *qp, enum qp_block why)
{
	req_blocked(qp, why);
	return REQ_IDLE;
}

/*
 * Ends a WQE without a PSN (a local operation, or a WQE that failed its checks) once all earlier
 * WQEs are done. So a key is not invalidated while an earlier request uses it.
 */
static enum req_result end_unsendable(struct nic_qp *qp, struct sq_entry *e)
{
	struct qp_sq *sq = &qp->sq;

	if (unlikely(qp->chain) && chain_in_turn(e)) {
		enum req_result r = chain_run(qp, e);

		if (e->status == NIC_WC_SUCCESS)
			return r;
	}
	if (sq->una != sq->next)
		return wait_for(qp, BLOCK_ORDER);
	if (e->status == NIC_WC_SUCCESS && sq_local(qp, e)) {
		sq->next++;
		sq_retire(qp, e);
		return REQ_MORE;
	}
	req_fail_local(qp, e);
	return REQ_IDLE;
}

/* Returns true if the window after an RNR NAK allows `more` packets in flight. One always is. */
static bool rnr_window_fits(const struct qp_sq *sq, uint32_t more)
{
	uint32_t out = sq->psn_next - sq->psn_una;

	return !out || out + more <= sq->rnr_window;
}

/*
 * Returns true if the packet requests an ACK: the last packet of a message, one in
 * NIC_ACKREQ_EVERY, and one before a window is full, since only an ACK opens it.
 */
static bool wants_ack(const struct nic_qp *qp, const struct sq_entry *e, uint32_t pkt,
		      uint32_t bytes)
{
	const struct dest *d = qp->dest;
	uint32_t since = qp->sq.since_ackreq + 1;

	if (pkt + 1 == e->npkts || since >= NIC_ACKREQ_EVERY)
		return true;
	if (unlikely(qp->sq.rnr_window && !rnr_window_fits(&qp->sq, 2)))
		return true;
	if (!d->cc.window)
		return false;
	return d->inflight + 2 * bytes > d->cc.window ||
	       (uint64_t)since << qp->mtu_shift >= d->cc.window / 4;
}

/* ---- the service RC ---- */

static enum req_result rc_end(struct nic_qp *qp, struct sq_entry *e, struct tx_burst *burst)
{
	return end_unsendable(qp, e);
}

static enum req_admission rc_waits(struct nic_qp *qp, enum qp_block why)
{
	req_blocked(qp, why);
	return REQ_WAITS;
}

static inline enum req_admission rc_admit(struct nic_qp *qp, struct sq_entry *e,
					  struct req_packet *p)
{
	const struct qp_sq *sq = &qp->sq;
	uint32_t pkt = sq->next_pkt;

	p->response = op_gets_data(e->op);
	p->covered = req_covers(qp, e, pkt);
	if (unlikely(sq->psn_next + p->covered - sq->psn_una > NIC_PSN_WINDOW) ||
	    unlikely(sq->rnr_window && !rnr_window_fits(sq, p->covered)))
		return rc_waits(qp, BLOCK_PSN);
	if (unlikely((e->wqe.flags & ROOST_WQE_FENCE) && pkt == 0 && sq->rd_out))
		return rc_waits(qp, BLOCK_READS);
	p->bytes = req_bytes(qp, e, pkt, pkt + p->covered);
	if (p->response) {
		/* With max_rd_atomic 0 the request would wait for ever. */
		if (unlikely(!qp->attr.max_rd_atomic)) {
			e->status = NIC_WC_LOC_QP_OP_ERR;
			return REQ_REFUSED;
		}
		if (sq->rd_out >= (sq->rd_limit ? sq->rd_limit : qp->attr.max_rd_atomic))
			return rc_waits(qp, BLOCK_READS);
		p->ackreq = true;
		return dest_admit_read(qp, p->covered << qp->mtu_shift) ? REQ_ADMITTED : REQ_WAITS;
	}
	if (unlikely(stream_sees_out(qp, e)) && !stream_space(qp))
		return rc_waits(qp, BLOCK_HOOK);
	if (!dest_admit(qp, p->bytes))
		return REQ_WAITS;
	p->ackreq = wants_ack(qp, e, pkt, p->bytes);
	return REQ_ADMITTED;
}

static inline int rc_send(struct nic_qp *qp, struct sq_entry *e, struct req_packet *p)
{
	return req_send_packet(qp, e, qp->sq.next_pkt, p->ackreq);
}

static inline enum req_result rc_complete(struct nic_qp *qp, struct sq_entry *e,
					  const struct req_packet *p, struct tx_burst *burst)
{
	if (p->response) {
		qp->sq.rd_out++;
		dest_requested(qp, p->covered << qp->mtu_shift);
	} else {
		dest_sent(qp->dest, p->bytes, qp->pu->now);
	}
	advance(qp, e, p->covered, p->bytes, p->ackreq);
	return REQ_MORE;
}

static const struct req_service rc_service = {rc_admit, rc_send, rc_complete, rc_end},
				unacked_service = {unacked_admit, unacked_send, unacked_complete,
						   unacked_end},
				loop_service = {loop_admit, loop_send, loop_complete, loop_end};

/* Clears db_active and checks the queues again. Returns true if they are empty. */
static __attribute__((noinline)) bool go_idle(struct nic_qp *qp)
{
	const struct recv_ring *rq = qp->resp.rq;
	bool more;

	atomic_exchange_explicit(&qp->db_active, 0, memory_order_acq_rel);
	more = likely(!qp->chain) ? sq_posted(&qp->sq) : chain_posted(qp);
	/* In the error state receives are work, too: they are flushed. */
	if (unlikely(qp->state == NIC_QPS_ERR && rq && !qp->srq))
		more |= (likely(!qp->chain)
				 ? atomic_load_explicit(&rq->index->prod, memory_order_seq_cst)
				 : chain_receives(qp)) != rq->cons;
	if (!more)
		return true;
	atomic_exchange_explicit(&qp->db_active, 1, memory_order_acq_rel);
	return false;
}

/*
 * Called when there is nothing to send. Clears db_active, so that doorbells queue the QP, and then
 * checks the queues again. Returns true if they are empty. The counterpart is nic_doorbell().
 */
bool req_idle(struct nic_qp *qp)
{
	/*
	 * db_active is clear already, so every doorbell puts the QP on the PU's ring. (A post of a
	 * receive rings the doorbell only in the error state: verbs/post.c.)
	 */
	if (!atomic_load_explicit(&qp->db_active, memory_order_relaxed) && qp->state != NIC_QPS_ERR)
		return true;
	return go_idle(qp);
}

/*
 * Returns true if the posted requests wait for more, on a port whose flush is a system call. A few
 * small requests wait while others are outstanding, and leave together, as with Nagle's algorithm
 * (RFC 896). The wait ends when the program has posted enough, or with an ACK if little is
 * outstanding or BATCH_NS have passed.
 */
static bool batches(const struct nic_qp *qp)
{
	const struct qp_sq *sq = &qp->sq;
	uint32_t batch = qp->dest->path->batch, ahead = sq->next - sq->una, posted, space;

	if (sq->next != sq->fetched || sq->rd_out || qp->resize || qp->chain ||
	    qp->state != NIC_QPS_RTS ||
	    (sq->batch_since && qp->pu->now - sq->batch_since >= BATCH_NS))
		return false;
	if (batch > sq->window / 4)
		batch = sq->window / 4;
	if (ahead < BATCH_BEHIND || ahead < batch / 4)
		return false;
	posted = atomic_load_explicit(&sq->index->prod, memory_order_acquire) - sq->taken;
	space = sq->window - sq_of_program(sq);
	if (posted > space)
		posted = space;
	return posted < batch && (uint64_t)posted * sq->inflight < (uint64_t)ahead * BATCH_BYTES;
}

/*
 * Does the work of req_idle() for a QP that batches. A doorbell or an ACK schedules the QP again.
 */
static bool req_batch(struct nic_qp *qp)
{
	atomic_exchange_explicit(&qp->db_active, 0, memory_order_acq_rel);
	if (batches(qp)) {
		if (!qp->sq.batch_since)
			qp->sq.batch_since = qp->pu->now;
		return true;
	}
	atomic_exchange_explicit(&qp->db_active, 1, memory_order_acq_rel);
	return false;
}

/* Sends one packet of the entry. */
static __attribute__((always_inline)) inline enum req_result
send_one(struct nic_qp *qp, struct sq_entry *e, const struct req_service *s, struct tx_burst *burst)
{
	struct req_packet p;
	int rc;

	switch (s->admit(qp, e, &p)) {
	case REQ_ADMITTED:
		break;
	case REQ_WAITS:
		return REQ_IDLE;
	case REQ_REFUSED:
		return s->end(qp, e, burst);
	}
	rc = s->send(qp, e, &p);
	if (likely(!rc))
		return s->complete(qp, e, &p, burst);
	if (rc == -EAGAIN)
		return REQ_PORT_FULL;
	/*
	 * A local protection error. On RC the packets that were sent get no answer, and the WQE
	 * ends in error once the earlier ones are done.
	 */
	qp->pu->ctr.memory_faults += rc == -EFAULT;
	e->status = NIC_WC_LOC_PROT_ERR;
	return s->end(qp, e, burst);
}

/*
 * The requester's loop. It is inlined for each service, whose functions are then called directly.
 */
static __attribute__((always_inline)) inline enum req_result
run(struct nic_qp *qp, const struct req_service *s, struct tx_burst burst)
{
	struct qp_sq *sq = &qp->sq;

	while (tx_goes_on(qp, &burst)) {
		struct sq_entry *e;
		enum req_result r;

		if (s == &unacked_service && unlikely(qp->state == NIC_QPS_SQE)) {
			sq_flush(qp);
			return req_idle(qp) ? REQ_IDLE : REQ_MORE;
		}
		/*
		 * In SQD, messages in progress are completed, and no message starts (IBA 10.3.1.7).
		 */
		if (unlikely(qp->state == NIC_QPS_SQD && sq->next_pkt == 0 &&
			     !psn_before(sq->psn_next, sq->psn_max) && !resize_continues(qp)))
			return REQ_IDLE;
		if (sq->next == sq->fetched && !sq_fetch(qp)) {
			if (unlikely(qp->state == NIC_QPS_ERR))
				return REQ_MORE;
			/*
			 * No space for copies: wait for an ACK. Tested here rather than with
			 * sq_posted(), since work may have been posted after sq_fetch().
			 */
			if (sq_full(sq) || resize_blocked(qp))
				return wait_for(qp, BLOCK_COPIES);
			if (req_idle(qp))
				return REQ_IDLE;
			continue;
		}
		e = sq_entry(sq, sq->next);
		if (unlikely(e->npkts == 0 || e->status != NIC_WC_SUCCESS))
			r = s->end(qp, e, &burst);
		else
			r = send_one(qp, e, s, &burst);
		if (r != REQ_MORE)
			return r;
		if (unlikely(qp->state == NIC_QPS_ERR))
			return REQ_MORE;
	}
	return REQ_MORE;
}

enum req_result req_run(struct nic_qp *qp)
{
	struct qp_sq *sq = &qp->sq;

	if (unlikely(qp->state == NIC_QPS_ERR)) {
		sq_flush(qp);
		resp_flush(qp);
		return req_idle(qp) ? REQ_IDLE : REQ_MORE;
	}
	if (!qp_acknowledged(qp) && qp->state >= NIC_QPS_RTS)
		return run(qp, &unacked_service, tx_burst(qp));
	if (unlikely(qp->state != NIC_QPS_RTS && qp->state != NIC_QPS_SQD))
		return REQ_IDLE; /* db_active stays set: the change to RTS schedules the QP */
	if (unlikely(sq->rnr_until)) {
		if (qp->pu->now < sq->rnr_until)
			return wait_for(qp, BLOCK_RNR);
		sq->rnr_until = 0;
		sq->progress = qp->pu->now;
	}
	sq_fetch_program(qp);
	if (unlikely(qp->state == NIC_QPS_ERR))
		return REQ_MORE;
	if (qp_has(qp, QP_LOOP)) {
		struct tx_burst burst = {
			.packets = UINT32_MAX, .copy = LOOP_TURN, .end = UINT64_MAX};

		return run(qp, &loop_service, burst);
	}
	if (unlikely(qp->dest->path->batch) && batches(qp) && req_batch(qp))
		return wait_for(qp, BLOCK_BATCH);
	sq->batch_since = 0;
	return run(qp, &rc_service, tx_burst(qp));
}
