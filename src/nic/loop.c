/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Loop-back between two QPs of one PU. The DMA engine executes work requests without packets, with
 * the checks of the packet path. A message moves in turns of LOOP_TURN bytes. The peer's responder
 * state (epsn, msn) does not change, since both ends use this path for the life of the connection.
 */
#include "nic/chain.h"
#include "nic/cq.h"
#include "nic/dma.h"
#include "nic/requester.h"
#include "nic/responder.h"
#include "nic/rpc.h"
#include "nic/stream.h"

#define LOOP_TURN  (64u * 1024)
#define LOCAL_COST 1024u /* of LOOP_TURN, for a WQE that moves no data */

/* The peer QP if it exists and can receive; else NULL. */
static struct nic_qp *peer_of(struct nic_qp *qp)
{
	struct nic_qp *peer = nic_find_qp(qp->nic, qp->dest_qpn);

	if (!peer || peer->pu != qp->pu || peer->dest_qpn != qp->qpn || peer->state < NIC_QPS_RTR ||
	    peer->state == NIC_QPS_ERR || !pkt_addr_eq(&peer->attr.dgid, &qp->attr.dgid))
		return NULL;
	return peer;
}

static uint8_t wc_of_nak(uint8_t nak)
{
	switch (nak) {
	case PKT_NAK_INVALID_REQ:
		return NIC_WC_REM_INV_REQ_ERR;
	case PKT_NAK_REM_ACCESS:
		return NIC_WC_REM_ACCESS_ERR;
	default:
		return NIC_WC_REM_OP_ERR;
	}
}

/* The peer refuses the request: ends the peer as after a NAK, and this QP with the error. */
static void refuse(struct nic_qp *qp, struct nic_qp *peer, uint8_t nak)
{
	struct nic_counters *c = &qp->pu->ctr;

	if (nak == PKT_NAK_REM_ACCESS) {
		c->resp_remote_access_errors++;
		c->req_remote_access_errors++;
		qp_event(peer, NIC_EVENT_QP_ACCESS_ERR);
	} else if (nak == PKT_NAK_INVALID_REQ) {
		c->resp_remote_invalid_request++;
		c->req_remote_invalid_request++;
		qp_event(peer, NIC_EVENT_QP_REQ_ERR);
	} else {
		c->resp_remote_op_errors++;
		c->req_remote_op_errors++;
		qp_event(peer, NIC_EVENT_QP_FATAL);
	}
	if (peer != qp)
		qp_error(peer);
	req_fail(qp, wc_of_nak(nak));
}

/*
 * After a fault of a copy: true if it is in the peer's memory. For a WRITE, the local memory can
 * then be read; for a READ, the peer's memory cannot.
 */
static bool peer_at_fault(struct nic_qp *qp, struct sq_entry *e, uint32_t off,
			  const uint8_t *remote, uint32_t n)
{
	uint8_t bounce[4096];

	for (uint32_t done = 0; done < n; done += sizeof(bounce)) {
		uint32_t part = n - done < sizeof(bounce) ? n - done : sizeof(bounce);

		if (op_is_read(e->op)) {
			if (dma_load(bounce, remote + done, part))
				return true;
		} else if (sq_gather(qp, e, off + done, bounce, part)) {
			return false;
		}
	}
	return !op_is_read(e->op);
}

/*
 * Copies up to one turn of a WRITE or READ between the scatter list and the peer's memory. Sets
 * *nak or *local on failure.
 */
static uint32_t move(struct nic_qp *qp, struct nic_qp *peer, struct sq_entry *e, uint32_t off,
		     uint8_t *nak, bool *local)
{
	bool read = op_is_read(e->op);
	uint32_t n = e->len - off < LOOP_TURN ? e->len - off : LOOP_TURN;
	uint8_t *remote;
	int rc;

	remote = qp_resolve(peer, e->wqe.rkey, e->wqe.raddr + off, n,
			    read ? NIC_ACCESS_REMOTE_READ : NIC_ACCESS_REMOTE_WRITE);
	if (!remote) {
		*nak = PKT_NAK_REM_ACCESS;
		return 0;
	}
	if (read)
		rc = sq_scatter(qp, e, off, remote, n);
	else if (e->wqe.flags & ROOST_WQE_INLINE)
		rc = dma_copy(remote, (const uint8_t *)&e->wqe + ROOST_WQE_INLINE_OFFSET + off, n);
	else
		rc = sq_gather(qp, e, off, remote, n);
	if (likely(!rc))
		return n;
	qp->pu->ctr.memory_faults += rc == -EFAULT;
	if (rc == -EFAULT && peer_at_fault(qp, e, off, remote, n))
		*nak = PKT_NAK_REM_OP;
	else
		*local = true;
	return 0;
}

/* True if an outgoing hook holds the message back. */
static bool held_back(struct nic_qp *qp, const struct sq_entry *e)
{
	return unlikely(stream_leaves(qp, e)) && !stream_room(qp);
}

/*
 * Copies up to one turn of a WRITE that hooks see, through a bounce buffer, in pieces like packets.
 * Stops early at a paused hook.
 */
static uint32_t move_watched(struct nic_qp *qp, struct nic_qp *peer, struct sq_entry *e,
			     uint32_t off, uint8_t *nak, bool *local)
{
	uint8_t bounce[4096];
	uint32_t done = 0, n;
	struct mr_region_addr region_addr;
	uint8_t *remote;

	while (done < LOOP_TURN && off + done < e->len && !held_back(qp, e)) {
		uint32_t at = off + done;
		int rc;

		n = e->len - at < sizeof(bounce) ? e->len - at : sizeof(bounce);
		rc = sq_gather(qp, e, at, bounce, n);
		if (unlikely(rc)) {
			qp->pu->ctr.memory_faults += rc == -EFAULT;
			*local = true;
			return done;
		}
		remote = qp_resolve_region_addr(peer, e->wqe.rkey, e->wqe.raddr + at, n,
						NIC_ACCESS_REMOTE_WRITE, &region_addr);
		if (remote && stream_watched(peer) && !stream_enter(peer, region_addr.key))
			break;
		if (stream_leaves(qp, e))
			stream_leave(qp, e, bounce, at, n);
		if (unlikely(!remote || dma_copy(remote, bounce, n))) {
			qp->pu->ctr.memory_faults += remote != NULL;
			*nak = remote ? PKT_NAK_REM_OP : PKT_NAK_REM_ACCESS;
			if (remote && stream_watched(peer))
				stream_missed(peer, region_addr.key);
			return done;
		}
		if (stream_watched(peer))
			stream_landed(peer, region_addr.key,
				      &(struct nic_stream_piece){.va = region_addr.va,
								 .data = bounce,
								 .total = e->len,
								 .off = at,
								 .len = n,
								 .last = at + n == e->len,
								 .pu = qp->pu_index});
		done += n;
	}
	return done;
}

/* Copies up to one turn of a SEND, through a bounce buffer between the two scatter lists. */
static uint32_t move_send(struct nic_qp *qp, struct nic_qp *peer, struct sq_entry *e, uint32_t off,
			  uint8_t *nak, bool *local)
{
	uint8_t bounce[4096];
	uint32_t done = 0, n;
	int rc;

	while (done < LOOP_TURN && off + done < e->len && !held_back(qp, e)) {
		n = e->len - off - done < sizeof(bounce) ? e->len - off - done : sizeof(bounce);
		rc = sq_gather(qp, e, off + done, bounce, n);
		if (unlikely(rc)) {
			qp->pu->ctr.memory_faults += rc == -EFAULT;
			*local = true;
			return done;
		}
		if (unlikely(stream_leaves(qp, e)))
			stream_leave(qp, e, bounce, off + done, n);
		switch (resp_scatter(peer, bounce, n)) {
		case SCATTER_OK:
			break;
		case SCATTER_TOO_LONG:
			peer->pu->ctr.resp_local_length_error++;
			resp_complete_recv(peer,
					   &(struct cqe_fields){.opcode = NIC_WC_RECV,
								.status = NIC_WC_LOC_LEN_ERR});
			*nak = PKT_NAK_INVALID_REQ;
			return done;
		case SCATTER_BAD_MEMORY:
			peer->pu->ctr.resp_local_protection_error++;
			resp_complete_recv(peer,
					   &(struct cqe_fields){.opcode = NIC_WC_RECV,
								.status = NIC_WC_LOC_PROT_ERR});
			*nak = PKT_NAK_REM_OP;
			return done;
		}
		done += n;
	}
	return done;
}

/* The checks of a message's first packet. */
static uint8_t check_start(const struct nic_qp *peer, const struct sq_entry *e)
{
	const struct roost_wqe *w = &e->wqe;
	uint32_t right;

	switch (e->op) {
	case ROOST_OP_WRITE:
	case ROOST_OP_WRITE_IMM:
		right = NIC_ACCESS_REMOTE_WRITE;
		break;
	case ROOST_OP_READ:
		right = NIC_ACCESS_REMOTE_READ;
		break;
	default:
		return 0;
	}
	if (!(peer->access & right) || (right == NIC_ACCESS_REMOTE_READ && !peer->resp.replay_size))
		return PKT_NAK_INVALID_REQ;
	if (e->len && !qp_resolve(peer, w->rkey, w->raddr, e->len, right))
		return PKT_NAK_REM_ACCESS;
	return 0;
}

static void finish(struct nic_qp *qp, struct sq_entry *e)
{
	struct qp_sq *sq = &qp->sq;

	qp->pu->ctr.loopback_wqes++;
	sq->next++;
	sq->next_pkt = 0; /* here: bytes done */
	sq->psn_una = sq->psn_next = sq->psn_max = e->psn + e->npkts;
	sq->retries = qp->attr.retry_cnt;
	sq->rnr_retries = qp->attr.rnr_retry;
	sq->progress = qp->pu->now;
	sq->probing = false;
	chain_executed(qp, e);
	sq_retire(qp, e);
	if (unlikely(qp->state == NIC_QPS_SQD))
		sq_drained(qp);
}

static bool needs_recv(const struct sq_entry *e, bool at_end)
{
	bool send =
		e->op == ROOST_OP_SEND || e->op == ROOST_OP_SEND_IMM || e->op == ROOST_OP_SEND_INV;

	return send || (at_end && e->op == ROOST_OP_WRITE_IMM);
}

static enum req_result not_ready(struct nic_qp *qp, struct nic_qp *peer)
{
	struct qp_sq *sq = &qp->sq;

	qp->pu->ctr.out_of_buffer++;
	qp->pu->ctr.rnr_nak_retry_err++;
	if (qp->attr.rnr_retry != 7 && sq->rnr_retries-- == 0) {
		qp->pu->ctr.retry_rnr_exceeded_err++;
		req_fail(qp, NIC_WC_RNR_RETRY_EXC_ERR);
		return REQ_IDLE;
	}
	retry_rnr_wait(qp, retry_rnr_ns(peer->attr.min_rnr_timer));
	req_blocked(qp, BLOCK_RNR);
	return REQ_IDLE;
}

/*
 * There is no peer: the message counts as lost until the retries are exhausted. `probing` is set
 * while its time-out runs.
 */
static enum req_result nobody(struct nic_qp *qp)
{
	struct qp_sq *sq = &qp->sq;
	uint64_t wait = (4096ull << qp->attr.timeout) * qp->nic->cfg.timeout_scale;

	req_blocked(qp, BLOCK_RNR);
	if (!qp->attr.timeout) {
		wait = retry_rnr_ns(0);
	} else if (sq->probing) {
		qp->pu->ctr.local_ack_timeout_err++;
		if (!retry_count(qp))
			return REQ_IDLE;
	}
	sq->probing = true;
	sq->rnr_until = qp->pu->now + wait;
	wheel_add(&qp->pu->wheel, &qp->timer, sq->rnr_until);
	return REQ_IDLE;
}

static void complete_at_peer(struct nic_qp *peer, const struct sq_entry *e)
{
	bool imm = e->op == ROOST_OP_SEND_IMM || e->op == ROOST_OP_WRITE_IMM;
	struct cqe_fields f = {
		.status = NIC_WC_SUCCESS,
		.opcode = e->op == ROOST_OP_WRITE_IMM ? NIC_WC_RECV_WRITE_IMM : NIC_WC_RECV,
		.byte_len = e->len,
		.flags = imm			      ? NIC_WC_WITH_IMM
			 : e->op == ROOST_OP_SEND_INV ? NIC_WC_WITH_INV
						      : 0,
		.imm = e->wqe.imm,
		.solicited = e->wqe.flags & ROOST_WQE_SOLICITED,
	};

	resp_complete_recv(peer, &f);
}

/* Delivers up to one turn of a call, through a bounce buffer, in pieces like packets. */
static enum req_result step_rpc(struct nic_qp *qp, struct nic_qp *peer, struct sq_entry *e)
{
	struct nic_rpc_piece piece = {.op = e->wqe.raddr,
				      .rkey = e->wqe.rkey,
				      .total = e->len,
				      .payload = e->op == ROOST_OP_RPC_WRITE,
				      .now = qp->pu->now};
	uint32_t end = e->len - qp->sq.next_pkt < LOOP_TURN ? e->len : qp->sq.next_pkt + LOOP_TURN;
	uint8_t bounce[4096];
	int rc;

	if (!peer->rpc_ctx) {
		refuse(qp, peer, PKT_NAK_INVALID_REQ);
		return REQ_IDLE;
	}
	if (!qp->sq.next_pkt && unlikely(!rpc_key_ok(peer, piece.rkey))) {
		refuse(qp, peer, PKT_NAK_REM_ACCESS);
		return REQ_IDLE;
	}
	piece.data = bounce;
	do {
		piece.off = qp->sq.next_pkt;
		piece.len = end - piece.off < sizeof(bounce) ? end - piece.off : sizeof(bounce);
		piece.last = piece.off + piece.len == e->len;
		rc = sq_gather(qp, e, piece.off, bounce, piece.len);
		if (unlikely(rc)) {
			qp->pu->ctr.memory_faults += rc == -EFAULT;
			qp->pu->ctr.req_local_protection_error++;
			req_fail(qp, NIC_WC_LOC_PROT_ERR);
			return REQ_IDLE;
		}
		if (!rpc_deliver(peer, &piece))
			return not_ready(qp, peer);
		qp->sq.next_pkt += piece.len;
		peer->pu->ctr.rx_rpc_requests++;
	} while (qp->sq.next_pkt < end);
	if (end == e->len)
		finish(qp, e);
	return REQ_MORE;
}

/* Executes one WQE, or one turn of it. */
static enum req_result step(struct nic_qp *qp, struct nic_qp *peer, struct sq_entry *e)
{
	uint32_t done = qp->sq.next_pkt, n = 0;
	bool local = false, last;
	uint8_t nak = 0;

	if (unlikely((op_is_read(e->op) || op_is_atomic(e->op)) && !qp->attr.max_rd_atomic)) {
		qp->pu->ctr.req_local_qp_op_error++;
		req_fail(qp, NIC_WC_LOC_QP_OP_ERR); /* as req.c */
		return REQ_IDLE;
	}
	if (unlikely(!peer->heard))
		qp_first_packet(peer);
	if (op_is_rpc(e->op))
		return step_rpc(qp, peer, e);
	if (op_is_atomic(e->op)) {
		uint64_t old = 0;

		nak = PKT_NAK_INVALID_REQ;
		if (peer->resp.replay_size)
			nak = resp_execute_atomic(peer, e->op, e->wqe.raddr, e->wqe.rkey,
						  e->wqe.swap_add, e->wqe.compare, &old);
		if (!nak) {
			int rc = sq_scatter(qp, e, 0, (const uint8_t *)&old, sizeof(old));

			qp->pu->ctr.memory_faults += rc == -EFAULT;
			local = rc != 0;
		}
	} else {
		if (done == 0)
			nak = check_start(peer, e);
		last = e->len - done <= LOOP_TURN;
		if (!nak && needs_recv(e, last) && !peer->resp.has_recv && !resp_take_recv(peer))
			return not_ready(qp, peer);
		if (!nak && e->len)
			n = needs_recv(e, false) ? move_send(qp, peer, e, done, &nak, &local)
			    : !op_is_read(e->op) && (stream_leaves(qp, e) || stream_watched(peer))
				    ? move_watched(qp, peer, e, done, &nak, &local)
				    : move(qp, peer, e, done, &nak, &local);
	}
	if (nak) {
		refuse(qp, peer, nak);
		return REQ_IDLE;
	}
	if (local) {
		qp->pu->ctr.req_local_protection_error++;
		req_fail(qp, NIC_WC_LOC_PROT_ERR);
		return REQ_IDLE;
	}
	if (unlikely(!n && e->len && !op_is_atomic(e->op))) { /* a hook is paused */
		if (!held_back(qp, e))
			return not_ready(qp, peer);
		req_blocked(qp, BLOCK_HOOK);
		return REQ_IDLE;
	}
	if (!op_is_atomic(e->op) && done + n < e->len) {
		qp->sq.next_pkt = done + n;
		qp->sq.rnr_retries = qp->attr.rnr_retry;
		return REQ_MORE;
	}
	if (e->op == ROOST_OP_SEND_INV && !mr_invalidate(peer, e->wqe.imm)) {
		resp_complete_recv(peer, &(struct cqe_fields){.opcode = NIC_WC_RECV,
							      .status = NIC_WC_LOC_PROT_ERR});
		refuse(qp, peer, PKT_NAK_REM_ACCESS);
		return REQ_IDLE;
	}
	if (needs_recv(e, true))
		complete_at_peer(peer, e);
	/* the peer's CQ overran: it ends without an ACK, as on the wire */
	if (unlikely(list_linked(&peer->lost_link)))
		return nobody(qp);
	finish(qp, e);
	return REQ_MORE;
}

enum req_result loop_run(struct nic_qp *qp)
{
	struct qp_sq *sq = &qp->sq;
	uint32_t budget = LOOP_TURN;

	for (;;) {
		struct nic_qp *peer;
		struct sq_entry *e;
		enum req_result r;

		if (sq->next == sq->fetched && qp->state != NIC_QPS_SQD && !sq_fetch(qp)) {
			if (unlikely(resize_stuck(qp)))
				return REQ_IDLE;
			return qp->state != NIC_QPS_ERR && req_idle(qp) ? REQ_IDLE : REQ_MORE;
		}
		if (unlikely(qp->state == NIC_QPS_SQD && sq->next_pkt == 0))
			return REQ_IDLE; /* no new message starts (IBA 10.3.1.7) */
		e = sq_entry(sq, sq->next);
		if (e->status != NIC_WC_SUCCESS) {
			qp->pu->ctr.req_local_qp_op_error++;
			req_fail(qp, e->status);
			return REQ_IDLE;
		}
		if (op_is_local(e->op)) {
			if (e->op < ROOST_OP_WAIT)
				sq_local(qp, e);
			else if (chain_step(qp, e) == CHAIN_WAITS)
				return REQ_IDLE;
			if (unlikely(e->status != NIC_WC_SUCCESS)) {
				qp->pu->ctr.req_local_qp_op_error++;
				req_fail(qp, e->status);
				return REQ_IDLE;
			}
			finish(qp, e);
			if (unlikely(budget < LOCAL_COST))
				return REQ_MORE;
			budget -= LOCAL_COST;
			continue;
		}
		peer = peer_of(qp);
		if (!peer)
			return nobody(qp);
		r = step(qp, peer, e);
		if (r != REQ_MORE || qp->state == NIC_QPS_ERR)
			return r;
		if (budget < e->len + 256)
			return REQ_MORE;
		budget -= e->len + 256;
	}
}
