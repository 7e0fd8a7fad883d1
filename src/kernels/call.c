/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Calls: from their first packet to the acknowledgement of their reply. A call that asked for memory goes to the end of its PU's queue, with the
 * lines on their way to the cache; when its turn comes they are there, however many calls there are.
 */
#include <errno.h>
#include <endian.h>
#include <string.h>

#include "base/mem.h"
#include "kernels/call.h"

#define RUN_BUDGET   256 /* steps of a PU's turn */
#define PIECE_BUDGET 256 /* steps for one piece of payload, then its packet comes again */

enum did { DID, NOT_YET, ENDED };

static uint8_t *body(const struct call *call)
{
	return call->q->bodies + (size_t)(call - call->q->calls) * CALL_BODY;
}

static void make_ready(struct call *call)
{
	call->state = CALL_READY;
	if (call->payload)
		return;
	list_add_tail(&call->link, &call->q->pu->ready);
	nic_rpc_schedule(call->q->qp);
}

/* Release: who finds none any more finds all done that they did. */
static void count_calls(const struct call *call, int by)
{
	_Atomic uint32_t *n = &call->s->pu[call->q->pu->index].calls;

	atomic_store_explicit(n, atomic_load_explicit(n, memory_order_relaxed) + (uint32_t)by,
			      memory_order_release);
}

static struct call *take(struct call_qp *q, struct served *s, uint64_t op, uint32_t rkey)
{
	struct call *call;

	if (!q->num_free) {
		q->pu->ctr.refused++;
		return NULL;
	}
	call = &q->calls[q->free[--q->num_free]];
	*call = (struct call){
		.q = q, .s = s, .rkey = rkey, .steps = q->f->max_steps, .state = CALL_READY, .c.op = op};
	if (s) {
		count_calls(call, 1);
		s->pu[q->pu->index].ctr.calls++;
	}
	q->pu->ctr.calls++;
	return call;
}

static void release(struct call *call)
{
	struct call_qp *q = call->q;

	call->state = CALL_FREE;
	q->free[q->num_free++] = (uint8_t)(call - q->calls);
	/* Last: its version may go now. */
	if (call->s)
		count_calls(call, -1);
}

/* Lays out parameters, state and scratch. */
static void furnish(struct call *call, const void *params, uint32_t len)
{
	const struct roost_kernel *k = call->s->k;
	struct roost_call *c = &call->c;
	uint8_t *p = body(call);

	if (len)
		memcpy(p, params, len);
	c->params = p;
	c->params_len = len;
	p += ALIGN_UP(len, 64u);
	memset(p, 0, k->state_size);
	c->state = p;
	c->scratch = p + ALIGN_UP(k->state_size, 64u);
	c->self = call->s->self;
	c->room = call->head.reply_len > 8 ? call->head.reply_len - 8 : 0;
}

/* ---- sending ---- */

static enum did wait_for_room(struct call *call)
{
	call->state = CALL_WAITING;
	list_add_tail(&call->link, &call->q->waiting);
	return NOT_YET;
}

/* A WRITE at `off` of the reply buffer: `len` bytes of buf or, without one, of the region; and the tail. */
static int write_back(struct call *call, uint32_t off, uint32_t len, bool from, bool tail)
{
	const struct roost_call *c = &call->c;
	bool imm = tail && call->head.flags & ROOST_RPC_IMM;
	struct nic_rpc_send m = {
		.cookie = from || !len ? 0 : (uint64_t)(call - call->q->calls) + 1,
		.raddr = call->head.reply_addr + off,
		.rkey = call->head.reply_rkey,
		.len = len,
		.buf = from ? NULL : c->buf,
		.va = c->from,
		.key = call->rkey,
		.tail_len = tail ? sizeof(call->tail) : 0,
		.has_imm = imm,
		.imm = imm ? htobe32(call->head.mark) : 0,
	};

	memcpy(&m.tail, &call->tail, sizeof(call->tail));
	return nic_rpc_send(call->q->qp, &m);
}

static enum did send_piece(struct call *call)
{
	struct roost_call *c = &call->c;
	bool from = c->ask == ROOST_ASK_SEND_FROM;
	int rc;

	if (!c->ask_len || !call->head.reply_len)
		return DID;
	rc = write_back(call, call->sent, c->ask_len, from, false);
	if (rc == -EAGAIN)
		return wait_for_room(call);
	call->sent += c->ask_len;
	if (from || rc)
		return DID;
	/* The kernel may change its memory again when the caller's NIC has it. */
	call->pending = false;
	call->state = CALL_WAITING;
	return NOT_YET;
}

static void send_reply(struct call *call)
{
	struct roost_call *c = &call->c;
	bool from = c->ask == ROOST_ASK_REPLY_FROM;
	int rc = write_back(call, call->head.reply_len - 8 - c->ask_len, c->ask_len, from, true);

	if (rc == -EAGAIN)
		wait_for_room(call);
	else if (rc || from || !c->ask_len)
		release(call);
	else
		call->state = CALL_ENDING;
}

/* ---- ends ---- */

/* Of the PU, and of the kernel. */
#define COUNT_END(ctr, status)                                                                               \
	do {                                                                                                 \
		switch (status) {                                                                            \
		case ROOST_RPC_OK:                                                                           \
			(ctr)->ended_ok++;                                                                   \
			break;                                                                               \
		case ROOST_RPC_BAD_PARAMS:                                                                   \
			(ctr)->bad_params++;                                                                 \
			break;                                                                               \
		case ROOST_RPC_ACCESS:                                                                       \
			(ctr)->access++;                                                                     \
			break;                                                                               \
		case ROOST_RPC_TOO_LONG:                                                                     \
			(ctr)->too_long++;                                                                   \
			break;                                                                               \
		case ROOST_RPC_BOUND:                                                                        \
			(ctr)->bound++;                                                                      \
			break;                                                                               \
		default:                                                                                     \
			(ctr)->ended_other++;                                                                \
		}                                                                                            \
	} while (0)

static void count_end(const struct call *call, uint32_t status)
{
	struct fabric_pu *pu = call->q->pu;

	if (status == ROOST_RPC_NO_KERNEL) {
		pu->ctr.no_kernel++;
		return;
	}
	COUNT_END(&pu->ctr, status);
	COUNT_END(&call->s->pu[pu->index].ctr, status);
}

/* The call ends with the data that c asks for, and `len` in its tail. */
static void conclude(struct call *call, uint32_t status, uint32_t len)
{
	struct call_qp *q = call->q;

	if (q->stream == call)
		q->stream = NULL;
	if (q->msg == call)
		q->msg = NULL;
	call->payload = call->pending = false;
	call->ending = true;
	call->tail = (struct roost_rpc_tail){.len = htole32(len),
					     .status = (uint8_t)status,
					     .flags = call->sent ? ROOST_RPC_FRONT : 0,
					     .mark = htole16(call->head.mark)};
	count_end(call, status);
	if (call->head.reply_len)
		send_reply(call);
	else
		release(call);
}

/* It ends without further data. */
static void end(struct call *call, uint32_t status, uint32_t len)
{
	call->c.ask = ROOST_ASK_REPLY;
	call->c.ask_len = 0;
	conclude(call, status, len);
}

static bool may(const struct call *call, uint64_t va, uint32_t access)
{
	return nic_rpc_prefetch(call->q->qp, call->rkey, va, call->c.ask_len, access);
}

/* The kernel has replied. */
static void replied(struct call *call)
{
	struct roost_call *c = &call->c;

	if (!call->head.reply_len)
		c->ask_len = 0;
	if (!c->ask_len)
		end(call, c->status, call->sent);
	else if (call->sent)
		end(call, ROOST_RPC_FAILED, call->sent);
	else if (c->ask_len > c->room)
		end(call, ROOST_RPC_TOO_LONG, c->ask_len);
	else if (c->ask == ROOST_ASK_REPLY_FROM && !may(call, c->from, NIC_ACCESS_REMOTE_READ))
		end(call, ROOST_RPC_ACCESS, 0);
	else
		conclude(call, c->status, c->ask_len);
}

/* ---- steps ---- */

/* Does what the kernel asked for. */
static enum did perform(struct call *call)
{
	struct roost_call *c = &call->c;
	struct nic_qp *qp = call->q->qp;
	int rc = 0;

	switch ((enum roost_ask)c->ask) {
	case ROOST_ASK_READ:
		rc = nic_rpc_read(qp, call->rkey, c->va, c->buf, c->ask_len);
		break;
	case ROOST_ASK_WRITE:
		rc = nic_rpc_write(qp, call->rkey, c->va, c->buf, c->ask_len);
		break;
	case ROOST_ASK_COPY:
		rc = nic_rpc_copy(qp, call->rkey, c->va, c->from, c->ask_len);
		break;
	case ROOST_ASK_CAS:
		rc = nic_rpc_cmp_swap(qp, call->rkey, c->va, c->buf, c->from);
		break;
	case ROOST_ASK_SEND:
	case ROOST_ASK_SEND_FROM:
		return send_piece(call);
	case ROOST_ASK_NONE:
	case ROOST_ASK_REPLY:
	case ROOST_ASK_REPLY_FROM:
		break;
	}
	if (likely(!rc))
		return DID;
	end(call, ROOST_RPC_ACCESS, call->sent);
	return ENDED;
}

/* Is what it asked for to be had? 0, or the status to end with. What is in memory is sent for. */
static uint32_t asked(struct call *call)
{
	struct roost_call *c = &call->c;
	bool ok = true;

	switch ((enum roost_ask)c->ask) {
	case ROOST_ASK_READ:
		ok = may(call, c->va, NIC_ACCESS_REMOTE_READ);
		break;
	case ROOST_ASK_WRITE:
		ok = may(call, c->va, NIC_ACCESS_REMOTE_WRITE);
		break;
	case ROOST_ASK_COPY:
		ok = may(call, c->from, NIC_ACCESS_REMOTE_READ) && may(call, c->va, NIC_ACCESS_REMOTE_WRITE);
		break;
	case ROOST_ASK_CAS:
		ok = may(call, c->va, NIC_ACCESS_REMOTE_ATOMIC);
		break;
	case ROOST_ASK_SEND_FROM:
		ok = may(call, c->from, NIC_ACCESS_REMOTE_READ);
		/* fall through */
	case ROOST_ASK_SEND:
		if (ok && call->head.reply_len && c->ask_len > c->room - call->sent)
			return ROOST_RPC_TOO_LONG;
		break;
	case ROOST_ASK_NONE:
		break;
	default:
		return ROOST_RPC_FAILED;
	}
	return ok ? 0 : ROOST_RPC_ACCESS;
}

static void stepped(struct call *call, enum roost_next next)
{
	struct roost_call *c = &call->c;

	if (next == ROOST_AGAIN) {
		uint32_t status = asked(call);

		if (status) {
			end(call, status,
			    status == ROOST_RPC_TOO_LONG ? call->sent + c->ask_len : call->sent);
			return;
		}
		call->pending = true;
		make_ready(call);
	} else if (c->ask == ROOST_ASK_REPLY || c->ask == ROOST_ASK_REPLY_FROM) {
		replied(call);
	} else if (call->payload ? !c->last : call->stream) {
		call->state = CALL_STREAM;
		c->resume = 0;
	} else {
		end(call, ROOST_RPC_OK, call->sent);
	}
}

/* Runs the kernel once. */
static void step(struct call *call)
{
	const struct roost_kernel *k = call->s->k;

	if (unlikely(!call->steps)) {
		end(call, ROOST_RPC_BOUND, call->sent);
		return;
	}
	call->steps--;
	call->q->pu->ctr.steps++;
	call->s->pu[call->q->pu->index].ctr.steps++;
	call->c.ask = ROOST_ASK_NONE;
	stepped(call, call->payload ? k->payload(&call->c) : k->params(&call->c));
}

/* A call whose turn it is: out of the queue already. */
static void advance(struct call *call)
{
	if (call->ending) {
		send_reply(call);
		return;
	}
	if (unlikely(call->broken)) {
		end(call, ROOST_RPC_BAD_PARAMS, call->sent);
		return;
	}
	if (call->pending) {
		if (perform(call) != DID)
			return;
		call->pending = false;
	}
	step(call);
}

unsigned call_run(struct fabric_pu *pu, bool *more)
{
	unsigned n = 0;

	while (n < RUN_BUDGET && !list_empty(&pu->ready)) {
		struct call *call = list_first_entry(&pu->ready, struct call, link);

		list_del(&call->link);
		advance(call);
		n++;
	}
	*more = !list_empty(&pu->ready);
	return n;
}

/* Runs it here and now, since a packet waits for it. */
static void drive(struct call *call, unsigned budget)
{
	while (budget-- && call->state == CALL_READY && !call->ending) {
		if (list_linked(&call->link))
			list_del(&call->link);
		advance(call);
	}
}

/* ---- what comes in ---- */

static bool take_head(struct roost_rpc_head *h, const uint8_t *data)
{
	memcpy(h, data, sizeof(*h));
	h->reply_addr = le64toh(h->reply_addr);
	h->reply_rkey = le32toh(h->reply_rkey);
	h->reply_len = le32toh(h->reply_len);
	h->mark = le16toh(h->mark);
	h->flags = le16toh(h->flags);
	return h->reply_len == 0 ||
	       (h->reply_len >= sizeof(struct roost_rpc_tail) && h->reply_len <= NIC_MAX_MSG);
}

/* What is wrong with a call before its kernel sees it; 0: nothing. */
static uint32_t check(const struct call *call)
{
	const struct roost_kernel *k = call->s ? call->s->k : NULL;

	if (!k)
		return ROOST_RPC_NO_KERNEL;
	if (call->head.reserved || call->head.flags & ~(ROOST_RPC_IMM | ROOST_RPC_STREAM) || !k->params)
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
	call = take(q, fabric_find(q->f, p->op), p->op, p->rkey);
	if (!call)
		return false;
	call->head = head;
	status = check(call);
	if (status) {
		end(call, status, 0);
		return true;
	}
	furnish(call, p->data + sizeof(head), p->len - (uint32_t)sizeof(head));
	call->stream = head.flags & ROOST_RPC_STREAM;
	if (call->stream) {
		q->announced = true;
		q->announced_op = p->op;
		q->stream = call;
	}
	step(call);
	return true;
}

/* Whose payload begins here. False: its kernel has no room. */
static bool begin_msg(struct call_qp *q, const struct nic_rpc_piece *p)
{
	struct served *s;

	q->msg = NULL;
	q->in_piece = false;
	if (q->announced && q->announced_op == p->op) {
		q->msg = q->stream; /* or it is over already, and this is nobody's */
		q->stream = NULL;
		q->announced = false;
	} else {
		s = fabric_find(q->f, p->op);
		if (s && s->k->payload) {
			q->msg = take(q, s, p->op, p->rkey);
			if (!q->msg)
				return false;
			furnish(q->msg, NULL, 0);
			q->msg->stream = true;
			q->msg->state = CALL_STREAM;
		} else {
			q->pu->ctr.no_kernel++;
		}
	}
	q->in_msg = true;
	q->msg_op = p->op;
	q->msg_total = p->total;
	q->msg_off = 0;
	return true;
}

/* Is it what follows, or what was there before and could not be taken? The wire is no authority on that. */
static bool continues(const struct call_qp *q, const struct nic_rpc_piece *p)
{
	return q->in_msg && p->off == q->msg_off && p->total == q->msg_total && p->op == q->msg_op &&
	       (!q->in_piece || p->len == q->piece_len);
}

/* Hands the piece to its kernel. False: it could not be done with it. */
static bool feed(struct call_qp *q, const struct nic_rpc_piece *p)
{
	struct call *call = q->msg;
	struct roost_call *c = &call->c;

	if (!q->in_piece) {
		/* What it does with its parameters comes first. */
		drive(call, PIECE_BUDGET);
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
		call->state = CALL_READY;
	}
	c->data = p->data;
	drive(call, PIECE_BUDGET);
	if (q->msg != call)
		return true;
	c->data = NULL;
	return call->state == CALL_STREAM;
}

/* Its payload stops short. What it has sent must be acknowledged before its slot can go. */
static void break_off(struct call_qp *q)
{
	struct call *call = q->msg;
	bool in_list = list_linked(&call->link);

	q->msg = NULL;
	call->payload = false;
	call->broken = true;
	if (in_list)
		list_del(&call->link);
	if (call->state != CALL_WAITING || in_list)
		end(call, ROOST_RPC_BAD_PARAMS, call->sent);
}

static bool deliver_payload(struct call_qp *q, const struct nic_rpc_piece *p)
{
	if (!continues(q, p)) {
		if (q->in_msg && q->msg)
			break_off(q);
		if (p->off == 0 && !begin_msg(q, p)) {
			q->in_msg = false;
			return false;
		}
	}
	if (q->msg) {
		struct served *s = q->msg->s;

		if (!feed(q, p)) {
			q->pu->ctr.refused++;
			return false;
		}
		q->pu->ctr.payload_bytes += p->len;
		s->pu[q->pu->index].ctr.payload_bytes += p->len;
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

void call_sent(struct call_qp *q, uint64_t cookie)
{
	if (cookie) {
		struct call *call = &q->calls[cookie - 1];

		if (call->state == CALL_ENDING)
			release(call);
		else
			make_ready(call);
	}
	if (!list_empty(&q->waiting)) {
		struct call *call = list_first_entry(&q->waiting, struct call, link);

		list_del(&call->link);
		make_ready(call);
	}
}

void call_stop(struct call_qp *q)
{
	for (unsigned i = 0; i < q->f->calls; i++) {
		struct call *call = &q->calls[i];

		if (call->state == CALL_FREE)
			continue;
		if (list_linked(&call->link))
			list_del(&call->link);
		q->pu->ctr.dropped += !call->ending;
		if (call->s)
			call->s->pu[q->pu->index].ctr.dropped += !call->ending;
		release(call);
	}
	q->stream = q->msg = NULL;
	q->announced = q->in_msg = q->in_piece = false;
}
