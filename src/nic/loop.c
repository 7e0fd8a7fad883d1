/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Loop-back between two QPs of one PU, as a service of the loop in req.c. The DMA engine executes
 * work requests without packets, with the checks and completions of the responder (resp.c). A
 * message moves in turns of LOOP_TURN bytes. The peer's PSN and MSN do not change, because both
 * ends use this path for the life of the connection. The peer's `resp.msg` says whether a message
 * is in progress, as with packets, because one end may be reset in the middle of a message.
 */
#include "nic/chain.h"
#include "nic/cq.h"
#include "nic/dma.h"
#include "nic/requester.h"
#include "nic/responder.h"
#include "nic/rpc.h"
#include "nic/stream.h"
#include "nic/tx.h"

/* Costs in bytes of LOOP_TURN: of a local operation, and of another WQE in addition to its data. */
#define LOCAL_COST   1024u
#define MESSAGE_COST 256u

/* Returns the peer QP if it exists and can receive; else NULL. */
static struct nic_qp *peer_of(struct nic_qp *qp)
{
	struct nic_qp *peer;

	if (qp->dest_qpn == qp->qpn)
		return qp; /* it sends, so it can receive */
	peer = nic_find_qp(qp->nic, qp->dest_qpn);
	if (!peer || peer->pu != qp->pu || peer->dest_qpn != qp->qpn || peer->state < NIC_QPS_RTR ||
	    peer->state == NIC_QPS_ERR || !pkt_addr_eq(&peer->attr.dgid, &qp->attr.dgid))
		return NULL;
	return peer;
}

/*
 * Handles a request that the peer refuses: ends the peer as after a NAK, and this QP with the
 * error.
 */
static void refuse(struct nic_qp *qp, struct nic_qp *peer, uint8_t nak)
{
	resp_refused(peer, nak);
	req_count_nak(&qp->pu->ctr, nak);
	if (peer != qp)
		qp_error(peer);
	req_fail(qp, req_nak_status(nak));
}

/*
 * Returns true if a copy faulted in the peer's memory. For a WRITE, the local memory can then be
 * read; for a READ, the peer's memory cannot.
 */
static bool peer_memory_faulted(struct nic_qp *qp, struct sq_entry *e, uint32_t off,
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
 * p->bytes, or p->nak. Returns 0, or an error of the local memory.
 */
static int move(struct nic_qp *qp, struct sq_entry *e, struct req_packet *p)
{
	bool read = op_is_read(e->op);
	uint32_t off = qp->sq.next_pkt, n = e->len - off < LOOP_TURN ? e->len - off : LOOP_TURN;
	uint8_t *remote = p->dst;
	int rc;

	if (!remote)
		remote = qp_resolve(p->peer, e->wqe.rkey, e->wqe.raddr + off, n,
				    read ? NIC_ACCESS_REMOTE_READ : NIC_ACCESS_REMOTE_WRITE);
	if (!remote) {
		p->nak = PKT_NAK_REM_ACCESS;
		return 0;
	}
	if (read)
		rc = sq_scatter(qp, e, off, remote, n);
	else if (e->wqe.flags & ROOST_WQE_INLINE)
		rc = dma_copy(remote, (const uint8_t *)&e->wqe + ROOST_WQE_INLINE_OFFSET + off, n);
	else
		rc = sq_gather(qp, e, off, remote, n);
	if (likely(!rc)) {
		p->bytes = n;
		return 0;
	}
	if (rc != -EFAULT || !peer_memory_faulted(qp, e, off, remote, n))
		return rc;
	qp->pu->ctr.memory_faults++;
	p->nak = PKT_NAK_REM_OP;
	return 0;
}

/* Returns true if an outgoing hook holds the message back. */
static bool hook_blocks(struct nic_qp *qp, const struct sq_entry *e)
{
	return unlikely(stream_sees_out(qp, e)) && !stream_space(qp);
}

/*
 * Copies up to one turn of a WRITE that hooks see, through a bounce buffer, in pieces like packets.
 * Stops early at a paused hook. Results: as of move().
 */
static int move_with_hooks(struct nic_qp *qp, struct sq_entry *e, struct req_packet *p)
{
	struct nic_qp *peer = p->peer;
	uint8_t bounce[4096];
	uint32_t off = qp->sq.next_pkt, n;
	struct mr_region_addr region_addr;
	uint8_t *remote;

	for (; p->bytes < LOOP_TURN && off < e->len && !hook_blocks(qp, e); off += n) {
		int rc;

		n = e->len - off < sizeof(bounce) ? e->len - off : sizeof(bounce);
		rc = sq_gather(qp, e, off, bounce, n);
		if (unlikely(rc))
			return rc;
		remote = qp_resolve_region_addr(peer, e->wqe.rkey, e->wqe.raddr + off, n,
						NIC_ACCESS_REMOTE_WRITE, &region_addr);
		if (remote && stream_has_in(peer) && !stream_begin_in(peer, region_addr.key))
			return 0;
		if (stream_sees_out(qp, e))
			stream_run_out(qp, e, bounce, off, n);
		if (unlikely(!remote || dma_copy(remote, bounce, n))) {
			qp->pu->ctr.memory_faults += remote != NULL;
			p->nak = remote ? PKT_NAK_REM_OP : PKT_NAK_REM_ACCESS;
			if (remote && stream_has_in(peer))
				stream_abort_in(peer, region_addr.key);
			return 0;
		}
		if (stream_has_in(peer))
			stream_run_in(peer, region_addr.key,
				      &(struct nic_stream_piece){.va = region_addr.va,
								 .data = bounce,
								 .total = e->len,
								 .off = off,
								 .len = n,
								 .last = off + n == e->len,
								 .pu = qp->pu_index});
		p->bytes += n;
	}
	return 0;
}

/*
 * Copies up to one turn of a SEND, through a bounce buffer between the two scatter lists. Results:
 * as of move().
 */
static int move_send(struct nic_qp *qp, struct sq_entry *e, struct req_packet *p)
{
	uint8_t bounce[4096];
	uint32_t off = qp->sq.next_pkt, n;
	int rc;

	for (; p->bytes < LOOP_TURN && off < e->len && !hook_blocks(qp, e); off += n) {
		n = e->len - off < sizeof(bounce) ? e->len - off : sizeof(bounce);
		rc = sq_gather(qp, e, off, bounce, n);
		if (unlikely(rc))
			return rc;
		if (unlikely(stream_sees_out(qp, e)))
			stream_run_out(qp, e, bounce, off, n);
		p->nak = resp_scatter_or_nak(p->peer, bounce, n);
		if (unlikely(p->nak))
			return 0;
		p->bytes += n;
	}
	return 0;
}

/*
 * Returns true if the peer's QP allows the rest of a message. The program may have withdrawn the
 * right since the last turn.
 */
static bool still_allowed(const struct nic_qp *peer, uint8_t op)
{
	if (op_is_read(op))
		return peer->access & NIC_ACCESS_REMOTE_READ;
	return (op != ROOST_OP_WRITE && op != ROOST_OP_WRITE_IMM) ||
	       peer->access & NIC_ACCESS_REMOTE_WRITE;
}

/*
 * Does the checks of a message's first packet. Returns 0, or the NAK. For a WRITE with data, sets
 * p->dst.
 */
static uint8_t check_start(const struct sq_entry *e, struct req_packet *p)
{
	const struct nic_qp *peer = p->peer;
	const struct roost_wqe *w = &e->wqe;

	if (unlikely(peer->resp.msg != PKT_KIND_NONE)) /* the sender of that message was reset */
		return PKT_NAK_INVALID_REQ;
	switch (e->op) {
	case ROOST_OP_WRITE:
	case ROOST_OP_WRITE_IMM:
		return resp_check_write(peer, w->rkey, w->raddr, e->len, &p->dst);
	case ROOST_OP_READ:
		return resp_check_read(peer, w->rkey, w->raddr, e->len);
	case ROOST_OP_RPC:
	case ROOST_OP_RPC_WRITE:
		return !peer->rpc_ctx || rpc_key_ok(peer, w->rkey) ? 0 : PKT_NAK_REM_ACCESS;
	default:
		return op_is_atomic(e->op) && !peer->replay_limit ? PKT_NAK_INVALID_REQ : 0;
	}
}

static void finish(struct nic_qp *qp, struct sq_entry *e)
{
	struct qp_sq *sq = &qp->sq;

	qp->pu->ctr.loopback_wqes++;
	sq->next++;
	sq->next_pkt = 0; /* with loop-back: number of bytes copied */
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

static void not_ready(struct nic_qp *qp, const struct nic_qp *peer)
{
	struct qp_sq *sq = &qp->sq;

	qp->pu->ctr.out_of_buffer++;
	qp->pu->ctr.rnr_nak_retry_err++;
	if (qp->attr.rnr_retry != 7 && sq->rnr_retries-- == 0) {
		qp->pu->ctr.retry_rnr_exceeded_err++;
		req_fail(qp, NIC_WC_RNR_RETRY_EXC_ERR);
		return;
	}
	retry_rnr_wait(qp, retry_rnr_ns(peer->attr.min_rnr_timer));
	req_blocked(qp, BLOCK_RNR);
}

/*
 * Waits because there is no peer. The message counts as lost until the retries are used up.
 * `probing` is set while its time-out runs.
 */
static void wait_for_peer(struct nic_qp *qp)
{
	struct qp_sq *sq = &qp->sq;
	uint64_t wait = (4096ull << qp->attr.timeout) * qp->nic->cfg.timeout_scale;

	req_blocked(qp, BLOCK_RNR);
	if (!qp->attr.timeout) {
		wait = retry_rnr_ns(0);
	} else if (sq->probing) {
		qp->pu->ctr.local_ack_timeout_err++;
		if (!retry_count(qp))
			return;
	}
	sq->probing = true;
	sq->rnr_until = qp->pu->now + wait;
	wheel_add(&qp->pu->wheel, &qp->timer, sq->rnr_until);
}

/* Completes the receive of the peer. Returns 0, or the NAK. */
static uint8_t complete_at_peer(struct nic_qp *peer, const struct sq_entry *e)
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

	return resp_end_send(peer, &f);
}

/*
 * Delivers up to one turn of a call, through a bounce buffer, in pieces like packets. Results: as
 * of move(), and p->not_ready.
 */
static int move_rpc(struct nic_qp *qp, struct sq_entry *e, struct req_packet *p)
{
	struct nic_rpc_piece piece = {.op = e->wqe.raddr,
				      .rkey = e->wqe.rkey,
				      .total = e->len,
				      .payload = e->op == ROOST_OP_RPC_WRITE,
				      .now = qp->pu->now};
	uint32_t end = e->len - qp->sq.next_pkt < LOOP_TURN ? e->len : qp->sq.next_pkt + LOOP_TURN;
	uint8_t bounce[4096];
	int rc;

	if (!p->peer->rpc_ctx) {
		p->nak = PKT_NAK_INVALID_REQ;
		return 0;
	}
	piece.data = bounce;
	do {
		piece.off = qp->sq.next_pkt;
		piece.len = end - piece.off < sizeof(bounce) ? end - piece.off : sizeof(bounce);
		piece.last = piece.off + piece.len == e->len;
		rc = sq_gather(qp, e, piece.off, bounce, piece.len);
		if (unlikely(rc))
			return rc;
		if (!rpc_deliver(p->peer, &piece)) {
			p->not_ready = true;
			return 0;
		}
		qp->sq.next_pkt += piece.len;
		qp->sq.rnr_retries = qp->attr.rnr_retry;
		p->peer->pu->ctr.rx_rpc_requests++;
	} while (qp->sq.next_pkt < end);
	return 0;
}

static int execute_atomic(struct nic_qp *qp, struct sq_entry *e, struct req_packet *p)
{
	uint64_t old = 0;

	p->nak = resp_execute_atomic(p->peer, e->op, e->wqe.raddr, e->wqe.rkey, e->wqe.swap_add,
				     e->wqe.compare, &old);
	return p->nak ? 0 : sq_scatter(qp, e, 0, (const uint8_t *)&old, sizeof(old));
}

/* Returns true if the peer was reset since the last turn of this message, which then is lost. */
static bool is_forgotten(const struct nic_qp *peer, const struct sq_entry *e)
{
	return !op_gets_data(e->op) && peer->resp.msg == PKT_KIND_NONE;
}

/* Records at the peer whether it has a part of the message. */
static void note_part(const struct nic_qp *qp, const struct sq_entry *e, const struct req_packet *p)
{
	uint32_t done = qp->sq.next_pkt + p->bytes;
	uint8_t kind = op_is_rpc(e->op)	      ? PKT_KIND_RPC_WRITE
		       : needs_recv(e, false) ? PKT_KIND_SEND
					      : PKT_KIND_WRITE;

	p->peer->resp.msg = done && done < e->len ? kind : PKT_KIND_NONE;
}

static int move_part(struct nic_qp *qp, struct sq_entry *e, struct req_packet *p)
{
	if (op_is_rpc(e->op))
		return move_rpc(qp, e, p);
	if (needs_recv(e, false))
		return move_send(qp, e, p);
	if (!op_is_read(e->op) && (stream_sees_out(qp, e) || stream_has_in(p->peer)))
		return move_with_hooks(qp, e, p);
	return move(qp, e, p);
}

/* ---- the service ---- */

enum req_admission loop_admit(struct nic_qp *qp, struct sq_entry *e, struct req_packet *p)
{
	struct nic_qp *peer = peer_of(qp);
	uint32_t done = qp->sq.next_pkt;

	*p = (struct req_packet){.peer = peer};
	if (unlikely(!peer || (done && is_forgotten(peer, e)))) {
		wait_for_peer(qp);
		return REQ_WAITS;
	}
	if (unlikely(op_gets_data(e->op) && !qp->attr.max_rd_atomic)) {
		e->status = NIC_WC_LOC_QP_OP_ERR; /* as in req.c */
		return REQ_REFUSED;
	}
	if (unlikely(!peer->has_received))
		qp_first_packet(peer);
	if (done == 0)
		p->nak = check_start(e, p);
	else if (unlikely(!still_allowed(peer, e->op)))
		p->nak = PKT_NAK_INVALID_REQ;
	if (!p->nak && needs_recv(e, e->len - done <= LOOP_TURN) && !peer->resp.has_recv &&
	    !resp_take_recv(peer)) {
		/* The QP has ended if it is its own peer and its index of receives is invalid. */
		if (likely(qp->state != NIC_QPS_ERR))
			not_ready(qp, peer);
		return REQ_WAITS;
	}
	return REQ_ADMITTED;
}

int loop_send(struct nic_qp *qp, struct sq_entry *e, struct req_packet *p)
{
	int rc;

	if (unlikely(p->nak))
		return 0;
	if (op_is_atomic(e->op))
		return execute_atomic(qp, e, p);
	if (!e->len && !op_is_rpc(e->op))
		return 0;
	rc = move_part(qp, e, p);
	if (!op_is_read(e->op))
		note_part(qp, e, p);
	if (!op_is_rpc(e->op))
		p->not_ready = !rc && !p->nak && !p->bytes; /* a hook is paused */
	return rc;
}

enum req_result loop_complete(struct nic_qp *qp, struct sq_entry *e, const struct req_packet *p,
			      struct tx_burst *burst)
{
	struct qp_sq *sq = &qp->sq;
	uint32_t len = op_is_atomic(e->op) ? 0 : e->len, cost = e->len + MESSAGE_COST;
	uint8_t nak = p->nak;

	if (unlikely(p->not_ready)) {
		if (!op_is_rpc(e->op) && hook_blocks(qp, e))
			req_blocked(qp, BLOCK_HOOK);
		else
			not_ready(qp, p->peer);
		return REQ_IDLE;
	}
	sq->next_pkt += p->bytes;
	if (!nak && sq->next_pkt == len && needs_recv(e, true))
		nak = complete_at_peer(p->peer, e);
	if (unlikely(nak)) {
		refuse(qp, p->peer, nak);
		return REQ_IDLE;
	}
	if (sq->next_pkt < len) {
		sq->rnr_retries = qp->attr.rnr_retry;
	} else if (unlikely(list_linked(&p->peer->lost_link))) {
		/* the peer's CQ overran: the peer ends without an ACK, as on the wire */
		wait_for_peer(qp);
		return REQ_IDLE;
	} else {
		finish(qp, e);
	}
	if (burst->copy < cost)
		burst->packets = 0;
	else
		burst->copy -= cost;
	return REQ_MORE;
}

enum req_result loop_end(struct nic_qp *qp, struct sq_entry *e, struct tx_burst *burst)
{
	if (e->status == NIC_WC_SUCCESS) {
		if (e->op < ROOST_OP_WAIT)
			sq_local(qp, e);
		else if (chain_step(qp, e) == CHAIN_WAITS)
			return REQ_IDLE;
	}
	if (unlikely(e->status != NIC_WC_SUCCESS)) {
		req_fail_local(qp, e);
		return REQ_IDLE;
	}
	finish(qp, e);
	if (unlikely(burst->copy < LOCAL_COST))
		burst->packets = 0;
	else
		burst->copy -= LOCAL_COST;
	return REQ_MORE;
}
