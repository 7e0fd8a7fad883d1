/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Delivery of packets to calls: parameters, with which a call begins, and payload, in order. The
 * rest of a call's life is in call.c.
 */
#include <endian.h>
#include <string.h>

#include "kernels/call.h"

#define PIECE_BUDGET 256 /* steps for a piece of payload; beyond, its packet is refused */

static bool take_head(struct roost_rpc_head *h, const uint8_t *data)
{
	mem_copy_in(h, data, sizeof(*h));
	h->reply_addr = le64toh(h->reply_addr);
	h->reply_rkey = le32toh(h->reply_rkey);
	h->reply_len = le32toh(h->reply_len);
	h->mark = le16toh(h->mark);
	h->flags = le16toh(h->flags);
	return h->reply_len == 0 ||
	       (h->reply_len >= sizeof(struct roost_rpc_tail) && h->reply_len <= NIC_MAX_MSG);
}

/* Checks a call before its kernel runs. Returns 0 or the status to end with. */
static uint32_t check(const struct call *call)
{
	const struct roost_kernel *k = call->i.s ? call->i.s->k : NULL;

	if (!k)
		return ROOST_RPC_NO_KERNEL;
	if (version_disabled(call->i.s))
		return ROOST_RPC_DISABLED;
	if (call->head.reserved ||
	    call->head.flags & ~(ROOST_RPC_IMM | ROOST_RPC_STREAM | ROOST_RPC_JOIN) || !k->params)
		return ROOST_RPC_BAD_PARAMS;
	if (!(call->head.flags & ROOST_RPC_STREAM))
		return 0;
	if (!k->payload)
		return ROOST_RPC_BAD_PARAMS;
	return call->q->announced ? ROOST_RPC_BUSY : 0;
}

static bool deliver_params(struct call_qp *q, const struct nic_rpc_piece *p)
{
	struct roost_rpc_head head;
	struct call *call;
	uint32_t status;

	if (p->len < sizeof(head) || !take_head(&head, p->data)) {
		q->pu->ctr.malformed++;
		return true;
	}
	call = call_take(q, runtime_find(q->rt, p->op), p);
	if (!call)
		return false;
	call->head = head;
	status = check(call);
	if (status) {
		call_end(call, status, 0);
		return true;
	}
	call_lay_out(call, p->data + sizeof(head), p->len - (uint32_t)sizeof(head));
	units_begin_turn(q->pu);
	call->stream = head.flags & ROOST_RPC_STREAM;
	if (call->stream) {
		q->announced = true;
		q->announced_op = p->op;
		q->stream = call;
		q->last_rx = p->now;
		if (!idle_watched(q))
			idle_watch(q);
	}
	call_drive(call, 1, p->ends_burst);
	return true;
}

/* Finds the call that takes the payload that begins here. Returns false if no slot is free. */
static bool begin_msg(struct call_qp *q, const struct nic_rpc_piece *p)
{
	struct kernel_version *s;

	q->msg = NULL;
	q->in_piece = false;
	if (q->announced && q->announced_op == p->op) {
		q->msg = q->stream; /* NULL if the call has ended: the payload is dropped */
		q->stream = NULL;
		q->announced = false;
	} else {
		s = runtime_find(q->rt, p->op);
		if (s && s->k->payload && !version_disabled(s)) {
			q->msg = call_take(q, s, p);
			if (!q->msg)
				return false;
			call_lay_out(q->msg, NULL, 0);
			q->msg->stream = true;
			q->msg->state = CALL_STREAM;
		} else {
			q->pu->ctr.no_kernel++;
		}
	}
	if (unlikely(!idle_watched(q)) && !p->last)
		idle_watch(q);
	q->in_msg = true;
	q->msg_op = p->op;
	q->msg_total = p->total;
	q->msg_off = 0;
	return true;
}

/*
 * Returns whether the piece is the next one, or the one that could not be taken before. The peer is
 * not trusted to keep this order.
 */
static bool continues(const struct call_qp *q, const struct nic_rpc_piece *p)
{
	return q->in_msg && p->off == q->msg_off && p->total == q->msg_total &&
	       p->op == q->msg_op && (!q->in_piece || p->len == q->piece_len);
}

/* Hands the piece to its kernel. Returns false if the kernel could not finish it. */
static bool feed(struct call_qp *q, const struct nic_rpc_piece *p, uint32_t budget)
{
	struct call *call = q->msg;
	struct roost_call *c = &call->i.c;

	if (!q->in_piece) {
		/* The kernel must be done with its parameters first. */
		call_drive(call, budget, false);
		if (q->msg != call)
			return true;
		if (call->state != CALL_STREAM)
			return false;
		q->in_piece = true;
		q->piece_len = p->len;
		c->len = p->len;
		c->offset = p->off;
		c->total = p->total;
		c->last = p->last;
		c->resume = 0;
		call->payload = true;
		call->i.fn = call->i.s->k->payload;
		call->state = CALL_READY;
	}
	c->data = p->data;
	call_drive(call, budget, false);
	if (q->msg != call)
		return true;
	c->data = NULL;
	if (unlikely(call->paused && c->last)) {
		q->msg = NULL;
		call_pause_without_data(call);
		return true;
	}
	return call->state == CALL_STREAM;
}

static bool deliver_payload(struct call_qp *q, const struct nic_rpc_piece *p)
{
	q->last_rx = p->now;
	if (!continues(q, p)) {
		if (q->in_msg && q->msg)
			call_break(q->msg, ROOST_RPC_BAD_PARAMS);
		if (p->off == 0 && !begin_msg(q, p)) {
			q->in_msg = false;
			return false;
		}
	}
	if (q->msg) {
		struct kernel_counters *ctr = q->msg->i.ctr;
		uint32_t budget = units_for_piece(q, PIECE_BUDGET), before = q->pu->units.spent;
		bool fed;

		/*
		 * Count the bytes first: after feed() the call may have ended and its version may
		 * be freed. If the piece is refused the call has not ended.
		 */
		ctr->payload_bytes += p->len;
		fed = budget && feed(q, p, budget);
		if (budget) {
			units_spend(q->pu, 0, p->len);
			units_charge(q, before);
		}
		if (!fed) {
			ctr->payload_bytes -= p->len;
			q->pu->ctr.refused++;
			/* begin_msg() watches no message of one packet: few of them wait. */
			if (unlikely(!idle_watched(q)))
				idle_watch(q);
			return false;
		}
		q->pu->ctr.payload_bytes += p->len;
	}
	q->in_piece = false;
	q->msg_off = p->off + p->len;
	if (p->last)
		q->in_msg = false;
	return true;
}

bool call_deliver(struct call_qp *q, const struct nic_rpc_piece *p)
{
	return p->payload ? deliver_payload(q, p) : deliver_params(q, p);
}
