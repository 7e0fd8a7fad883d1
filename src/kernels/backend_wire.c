/* SPDX-License-Identifier: BSD-2-Clause */
#include "kernels/backend_wire.h"

#include <endian.h>
#include <errno.h>
#include <string.h>

/* ---- memory ---- */

int wire_write(const struct invocation *i, nic_rpc_key key, uint64_t va, const void *src,
	       uint32_t n)
{
	return nic_rpc_write(call_of(i)->q->qp, key, va, src, n);
}

int wire_copy(const struct invocation *i, nic_rpc_key dst_key, uint64_t dst, nic_rpc_key src_key,
	      uint64_t src, uint32_t n)
{
	return nic_rpc_copy(call_of(i)->q->qp, dst_key, dst, src_key, src, n);
}

int wire_cmp_swap(const struct invocation *i, nic_rpc_key key, uint64_t va, uint64_t *old,
		  uint64_t swap)
{
	return nic_rpc_cmp_swap(call_of(i)->q->qp, key, va, old, swap);
}

int wire_put(struct roost_call *c, uint64_t va, const void *buf, uint32_t len)
{
	struct invocation *i = invocation_of(c);
	struct call *call = call_of(i);
	int rc = nic_rpc_put(call->q->qp, i->key, va, buf, len);

	call->put = true;
	if (unlikely(rc))
		i->refused = true;
	return rc;
}

uint32_t wire_take(struct invocation *i, struct ledger *l)
{
	struct call_qp *q = call_of(i)->q;
	uint32_t number = 0;

	if (!q->ends)
		number = ledger_take(q->rt, l, q->owner, nic_rpc_peer(q->qp));
	q->has_resources |= number != 0;
	return number;
}

/*
 * Returns the key of the region that a work request names, or 0 if it uses the kernel's own memory
 * or the access is refused.
 */
static uint32_t local_key(const struct invocation *i, const struct ask_rule *rule)
{
	const struct roost_call *c = &i->c;
	nic_rpc_key key;

	if (c->buf || rule->kind == ASK_WAIT)
		return 0;
	key = invocation_region(i, c->va_in, rule->va);
	return wire_may(i, key, c->va, c->ask_len, rule->va) ? (uint32_t)key : 0;
}

bool wire_post(struct invocation *i, const struct ask_rule *rule)
{
	if (kernel_wrs_post(&i->wrs, i->s->registered, i->pu, local_key(i, rule)))
		return true;
	call_of(i)->state = CALL_WAITING;
	return false;
}

/* ---- sending ---- */

static void wait_for_space(struct call *call)
{
	call->state = CALL_WAITING;
	list_add_tail(&call->link, &call->q->waiting);
}

/*
 * Returns the bytes of a tail as one word. If the fields were stored one by one, the load of all of
 * them would have to wait until the stores have left the CPU's store buffer.
 */
static inline uint64_t tail_bytes(const struct call *call, uint32_t len, uint8_t status,
				  uint8_t flags)
{
	_Static_assert(offsetof(struct roost_rpc_tail, status) == 4 &&
			       offsetof(struct roost_rpc_tail, flags) == 5 &&
			       offsetof(struct roost_rpc_tail, mark) == 6,
		       "the fields of a tail");
	return htole64(len | (uint64_t)status << 32 | (uint64_t)flags << 40 |
		       (uint64_t)call->head.mark << 48);
}

/*
 * Sends a WRITE to offset `off` of the reply buffer: `len` bytes of c->buf, or of the region `key`
 * if `from`; and the tail if `tail`.
 */
static int write_back(struct call *call, uint32_t off, uint32_t len, bool from, nic_rpc_key key,
		      bool tail)
{
	const struct roost_call *c = &call->i.c;
	bool imm = tail && call->head.flags & ROOST_RPC_IMM;
	uint64_t gone = tail_bytes(call, 0, ROOST_RPC_ACCESS, 0);
	struct nic_rpc_send m = {
		.call = call->id,
		.cookie = from || !len ? 0 : (uint64_t)call_slot(call) + 1,
		.raddr = call->head.reply_addr + off,
		.rkey = call->head.reply_rkey,
		.len = len,
		.buf = from ? NULL : c->buf,
		.va = c->from,
		.key = key,
		.tail_len = tail ? sizeof(call->tail) : 0,
		.tail = call->lost ? gone : call->tail,
		.lost = gone,
		.has_imm = imm,
		.imm = imm ? htobe32(call->head.mark) : 0,
	};

	return nic_rpc_send(call->q->qp, &m);
}

uint32_t wire_space(const struct invocation *i)
{
	return i->c.space - i->sent;
}

enum step_result wire_send(struct invocation *i, bool from, nic_rpc_key key)
{
	struct call *call = call_of(i);
	const struct roost_call *c = &i->c;
	int rc;

	if (!c->ask_len || i->discards_data)
		return STEP_ASKED;
	if (unlikely(from && !key)) { /* the grant was revoked after the request */
		i->pending = false;
		call_cut_off(call, ROOST_RPC_ACCESS, i->sent);
		return STEP_ENDED;
	}
	rc = write_back(call, i->sent, c->ask_len, from, key, false);
	if (rc == -EAGAIN) {
		wait_for_space(call);
		return STEP_WAITS;
	}
	i->sent += c->ask_len;
	if (from || rc)
		return STEP_ASKED;
	/* The kernel must not change its memory before the caller's NIC has acknowledged it. */
	i->pending = false;
	call->state = CALL_WAITING;
	return STEP_WAITS;
}

static void note_time(const struct call *call)
{
	struct runtime_pu *pu = call->q->pu;

	if (pu->ended && call->i.s)
		times_note(pu, call->i.s, call->began);
}

/*
 * Returns whether the reply may leave with others: it is one WRITE, without immediate, and the call
 * is not alone in its turn (only then its accesses are done at once).
 */
static bool may_join(const struct call *call)
{
	return !(call->head.flags & ROOST_RPC_IMM) && !call->i.sent && !call->lost &&
	       (!call->i.c.at_once || list_linked(&call->q->join.link));
}

bool call_send_reply(struct call *call)
{
	struct roost_call *c = &call->i.c;
	bool from = c->ask == ROOST_ASK_REPLY_FROM;
	nic_rpc_key key =
		from ? invocation_region(&call->i, c->from_in, NIC_ACCESS_REMOTE_READ) : 0;
	int rc;

	if (unlikely(from && !key)) { /* the grant was revoked while the reply waited */
		call->lost = true;
		c->ask_len = 0;
	}
	if (call->head.flags & ROOST_RPC_JOIN && !from && may_join(call) &&
	    join_reply(call, c->buf, c->ask_len)) {
		note_time(call);
		call_release(call);
		return true;
	}
	rc = write_back(call, call->head.reply_len - 8 - c->ask_len, c->ask_len, from, key, true);
	if (rc == -EAGAIN) {
		wait_for_space(call);
		return false;
	}
	note_time(call);
	if (rc || from || !c->ask_len) {
		call_release(call);
		return false;
	}
	call->state = CALL_ENDING;
	call->q->ending++;
	return false;
}

/* ---- ends ---- */

void wire_reply(struct invocation *i, uint32_t status, uint32_t len)
{
	struct call *call = call_of(i);
	struct call_qp *q = call->q;

	if (unlikely(call->lost)) {
		status = ROOST_RPC_ACCESS;
		len = i->c.ask_len = 0;
	}

	if (unlikely(i->wrs.qp))
		kernel_wrs_stop(&i->wrs);
	if (q->stream == call)
		q->stream = NULL;
	if (q->msg == call)
		q->msg = NULL;
	if (call->put)
		nic_rpc_put_done();
	call->payload = i->pending = false;
	call->ending = true;
	call->tail = tail_bytes(call, len, (uint8_t)status, i->sent ? ROOST_RPC_FRONT : 0);
	call_count_end(call, status);
	if (call->head.reply_len) {
		call_send_reply(call);
		return;
	}
	note_time(call);
	call_release(call);
}

void wire_cut_off(struct invocation *i, uint32_t status, uint32_t len)
{
	call_cut_off(call_of(i), status, len);
}

void call_end(struct call *call, uint32_t status, uint32_t len)
{
	call->i.c.ask = ROOST_ASK_REPLY;
	call->i.c.ask_len = 0;
	wire_reply(&call->i, status, len);
}

void call_cut_off(struct call *call, uint32_t status, uint32_t len)
{
	call_run_cut(call);
	call_end(call, status, len);
}
