/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Calls of kernels in the simulator's programs. Each call has its own reply buffer, word at the
 * peer, and entry in the ledger. However often the network repeats or loses a call, its kernel gets
 * the bytes once and in order (the digest) and acts once (the word, the ledger), and the reply
 * arrives once. To check the last point, the program overwrites the reply buffer as soon as the
 * reply is visible; the buffer must not change afterwards.
 */
#include "runner_int.h"

#include <endian.h>
#include <stdlib.h>

#include "roost/rpc.h"

#define MAX_EXTRA 100u /* bytes of parameters beyond the kernel's */
#define SCRIBBLE  0x5a

/* ---- the program ---- */

void calls_make(struct op *o, struct direction *d, struct side *from, struct side *to,
		const struct limits *l, struct rng *r)
{
	struct call *call = &d->calls[d->num_calls++];

	*call = (struct call){
		.how = (unsigned)rng_below(r, TALLY_HOWS + 2),
		.reads = (unsigned)rng_below(r, rng_below(r, 2) ? 3 : 20),
		.extra = (uint32_t)rng_below(r, MAX_EXTRA),
		.len = (uint32_t)rng_below(r, rng_below(r, 4) ? 300 : 9000),
		.nobody = rng_below(r, 16) == 0,
		.imm = l->imm_replies && rng_below(r, 3) == 0,
		.stream = d->num_ops < l->num_ops && !d->stream && rng_below(r, 3) == 0,
	};
	/* with its tail the reply fills its packets */
	if (call->how == TALLY_FROM && rng_below(r, 3) == 0)
		call->len = l->mtu * (1 + (uint32_t)rng_below(r, 2)) -
			    (uint32_t)sizeof(struct roost_rpc_tail);
	/*
	 * A kernel that sends in the middle of payload delays the payload and the requests behind
	 * it, and so does the kernel of the other side.
	 */
	call->join = call->extra % 2; /* no draw of its own: the programs of all seeds stay */
	if (call->how >= TALLY_HOWS || (call->how == TALLY_PIECES && call->stream && l->both_call))
		call->how = TALLY_DIGEST;
	if (rng_below(r, 8)) {
		call->space = call->how == TALLY_LONG ? call->len / 2 : call->len + 8;
		call->len += call->how == TALLY_LONG;
		call->space += call->how == TALLY_LONG ? 0 : (uint32_t)rng_below(r, 40);
		call->reply_len = call->space + (uint32_t)sizeof(struct roost_rpc_tail);
		call->reply = side_take(from, call->reply_len, r);
	}
	call->from = AREA_SOURCE + (uint32_t)rng_below(r, AREA_LEN - 10000);
	call->word = side_take(to, 8, r);
	call->text = side_take(from, o->len = CALL_HEAD + call->extra, r);
	for (uint32_t i = 0; i < call->extra; i++)
		from->model[call->text + CALL_HEAD + i] = (uint8_t)rng_below(r, 256);
	/* It is contiguous in memory, and is sent from up to two pieces. */
	o->num_sge = l->max_sge > 1 ? 2 : 1;
	o->sge[0] = (struct piece){call->text, o->len};
	if (o->num_sge == 2) {
		o->sge[0].len = (uint32_t)rng_below(r, o->len + 1);
		o->sge[1] = (struct piece){call->text + o->sge[0].len, o->len - o->sge[0].len};
	}
	o->flags &= (uint16_t)~ROOST_WQE_SOLICITED;
	o->call = d->num_calls;
	if (call->stream)
		d->stream = o->call;
}

/* ---- the model, at the post, when addresses are known ---- */

static uint8_t model_status(const struct call *call)
{
	if (call->nobody)
		return ROOST_RPC_NO_KERNEL;
	switch (call->how) {
	case TALLY_FAIL:
		return TALLY_STATUS;
	case TALLY_ACCESS:
		return ROOST_RPC_ACCESS;
	case TALLY_LONG:
		return ROOST_RPC_TOO_LONG;
	default:
		return ROOST_RPC_OK;
	}
}

/* Writes the reply to the caller's model. */
static void model_reply(struct call *call, struct side *caller, const struct side *callee)
{
	struct roost_rpc_tail tail = {.status = model_status(call), .mark = htole16(call->mark)};
	uint8_t *end = caller->model + call->reply + call->space,
		*front = caller->model + call->reply;
	const uint8_t *data = callee->model + call->from;

	if (tail.status == ROOST_RPC_TOO_LONG) {
		tail.len = call->len;
	} else if (tail.status == ROOST_RPC_OK && call->how == TALLY_DIGEST) {
		tail.len = 8;
		memcpy(end - 8, &call->digest, 8);
	} else if (tail.status == ROOST_RPC_OK && call->how == TALLY_FROM) {
		tail.len = call->len;
		memcpy(end - call->len, data, call->len);
	} else if (tail.status == ROOST_RPC_OK) {
		tail.len = call->len + 8;
		tail.flags = ROOST_RPC_FRONT;
		memcpy(front, data, call->len / 2);
		memcpy(front + call->len / 2, &call->digest, 8);
		memcpy(front + call->len / 2 + 8, data + call->len / 2, call->len - call->len / 2);
	}
	tail.len = htole32(tail.len);
	memcpy(end, &tail, sizeof(tail));
}

/* Executes a call, all of whose bytes are known. */
static void model_end(struct call *call, struct side *caller, const struct side *callee)
{
	call->complete = true;
	if (call->reply_len)
		model_reply(call, caller, callee);
}

static void post_params(struct run *u, struct conn *c, int i, struct call *call)
{
	struct ep *e = &c->e[i], *peer = &c->e[1 - i];
	struct side *s = &c->s[i], *to = &c->s[1 - i];
	uint8_t *text = s->model + call->text;
	uint64_t one = 1;
	struct roost_rpc_head head = {
		.reply_addr = htole64((uintptr_t)e->mem + call->reply),
		.reply_rkey = htole32(e->key),
		.reply_len = htole32(call->reply_len),
		.mark = htole16(call->mark),
		.flags = htole16((call->imm ? ROOST_RPC_IMM : 0) |
				 (call->stream ? ROOST_RPC_STREAM : 0) |
				 (call->join ? ROOST_RPC_JOIN : 0)),
	};
	struct tally_params p = {
		.from = (uintptr_t)peer->mem + call->from,
		.word = (uintptr_t)peer->mem + call->word,
		.entry = call->entry = (uint32_t)((c - u->c) * 2 + i) * MAX_CALLS + call->mark - 1u,
		.len = call->len,
		.how = call->how,
		.reads = (uint16_t)call->reads,
		.stream = call->stream,
	};

	memcpy(text, &head, sizeof(head));
	memcpy(text + sizeof(head), &p, sizeof(p));
	memcpy(e->mem + call->text, text, CALL_HEAD + call->extra);
	call->digest =
		tally_add(TALLY_START, text + sizeof(head), (uint32_t)sizeof(p) + call->extra);
	call->digest = tally_add(call->digest, to->model + call->from, call->reads * TALLY_BLOCK);
	if (!call->nobody)
		memcpy(to->model + call->word, &one, sizeof(one));
	/*
	 * Without a kernel no call waits for the payload, and a call that its parameters have ended
	 * does not take it.
	 */
	if (!call->stream || call->nobody)
		model_end(call, s, to);
}

static void post_payload(struct conn *c, int i, const struct op *o, struct call *call)
{
	uint8_t *data = malloc(o->len + 1);

	if (!data)
		abort();
	gather(&c->s[i], o, data);
	call->digest = tally_add(call->digest, data, o->len);
	free(data);
	if (!call->complete)
		model_end(call, &c->s[i], &c->s[1 - i]);
}

void calls_post(struct run *u, struct conn *c, int i, const struct op *o, struct wr *wr)
{
	struct direction *d = &c->d[i];
	struct call *call = &d->calls[o->call - 1];

	call->mark = (uint16_t)o->call;
	call->posted = true;
	if (o->op == ROOST_OP_RPC)
		post_params(u, c, i, call);
	else
		post_payload(c, i, o, call);
	wr->raddr = call->nobody ? TALLY_NOBODY : TALLY_OP;
	wr->rkey = c->e[1 - i].key;
}

/* ---- replies ---- */

static bool tail_there(const struct conn *c, int i, const struct call *call)
{
	struct roost_rpc_tail tail;

	memcpy(&tail, c->e[i].mem + call->reply + call->space, sizeof(tail));
	return tail.mark != 0;
}

/* Returns the bytes of the reply buffer that precede the data. */
static uint32_t before_data(const struct call *call)
{
	uint8_t status = model_status(call);

	if (status != ROOST_RPC_OK)
		return call->space;
	switch (call->how) {
	case TALLY_DIGEST:
		return call->space - 8;
	case TALLY_FROM:
		return call->space - call->len;
	default:
		return 0;
	}
}

static bool check_reply(struct run *u, struct conn *c, int i, struct call *call)
{
	uint8_t *is = c->e[i].mem + call->reply, *want = c->s[i].model + call->reply;
	uint32_t filled = call->join ? before_data(call) : 0;

	if (!call->complete)
		return run_wrong(u, &c->e[i], "call %u is answered before all of it was sent",
				 call->mark);
	/* What precedes the data of a joined reply is as before, or zeros. */
	for (uint32_t b = 0; b < filled; b++)
		want[b] = is[b] ? want[b] : 0;
	for (uint32_t b = 0; b < call->reply_len; b++)
		if (is[b] != want[b])
			return run_wrong(
				u, &c->e[i],
				"byte %u of the reply to call %u is 0x%02x, not 0x%02x (tail at %u)",
				b, call->mark, is[b], want[b], call->space);
	for (uint32_t b = 0; b < call->reply_len; b++)
		is[b] = want[b] ^= SCRIBBLE;
	call->seen = true;
	return true;
}

bool calls_poll(struct run *u, struct conn *c, int i)
{
	struct direction *d = &c->d[i];

	for (unsigned n = 0; n < d->num_calls; n++) {
		struct call *call = &d->calls[n];

		if (call->posted && call->reply_len && !call->seen && tail_there(c, i, call) &&
		    !check_reply(u, c, i, call))
			return false;
	}
	return true;
}

/* Handles a receive that is a reply's immediate. Returns false for other receives. */
bool calls_take_imm(struct run *u, struct conn *c, int i, const struct roost_cqe *cqe, bool *ok)
{
	uint32_t mark = be32toh(cqe->imm);
	struct direction *d = &c->d[i];
	struct call *call;
	uint8_t *slot;

	if (cqe->opcode != NIC_WC_RECV_WRITE_IMM || !mark || mark > d->num_calls)
		return false;
	call = &d->calls[mark - 1];
	slot = pool_slot(c->pool[i], cqe->wr_id);
	*ok = call->imm && !call->imm_seen && !cqe->status && slot &&
	      pool_rest_untouched(slot, 0) && cqe->flags == NIC_WC_WITH_IMM &&
	      (call->seen || tail_there(c, i, call));
	if (!*ok) {
		run_wrong(u, &c->e[i], "the immediate of call %u: status %u, flags %u, %s, %s",
			  mark, cqe->status, cqe->flags, call->imm_seen ? "again" : "the first",
			  call->seen || tail_there(c, i, call) ? "behind its reply"
							       : "before its reply");
		return true;
	}
	call->imm_seen = true;
	pool_free(c->pool[i], cqe->wr_id);
	return true;
}

static const struct tally_entry *ledger(const struct run *u, const struct conn *c, int i,
					const struct call *call)
{
	return &u->tally[c->e[1 - i].nic_index].entry[call->entry];
}

bool calls_done(const struct run *u, const struct conn *c, int i)
{
	const struct direction *d = &c->d[i];

	for (unsigned n = 0; n < d->num_calls; n++) {
		const struct call *call = &d->calls[n];
		const struct tally_entry *e = ledger(u, c, i, call);

		if (call->reply_len ? !call->seen || (call->imm && !call->imm_seen)
				    : !call->nobody && !e->ended && !e->cut)
			return false;
	}
	return true;
}

bool calls_check_end(struct run *u, struct conn *c, int i)
{
	const struct direction *d = &c->d[i];

	for (unsigned n = 0; n < d->num_calls; n++) {
		const struct call *call = &d->calls[n];
		const struct tally_entry *e = ledger(u, c, i, call);
		bool cut = !call->nobody && call->how == TALLY_ACCESS;

		if (e->begun != !call->nobody || e->ended != (!call->nobody && !cut) ||
		    e->cut != cut || e->wrong)
			return run_wrong(
				u, &c->e[i],
				"call %u was begun %u times, ended %u, cut %u, out of place %u",
				n + 1, e->begun, e->ended, e->cut, e->wrong);
	}
	return true;
}
