/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The step loop of all invocations. It is inline, and the compiler knows the backend: only the
 * kernel's function is called through a pointer.
 */
#ifndef ROOST_KERNELS_STEP_H
#define ROOST_KERNELS_STEP_H

#include "kernels/call.h"
#include "kernels/invocation.h"

#define STEP_INLINE static inline __attribute__((always_inline))

/* Clears the request. */
static inline void ask_nothing(struct roost_call *c)
{
	c->ask = ROOST_ASK_NONE;
	c->va_in = c->from_in = 0;
}

/* Returns whether the request is an access to memory. */
static inline bool ask_accesses(const struct roost_call *c)
{
	return c->ask < ASKS && ask_rules[c->ask].kind == ASK_ACCESS;
}

STEP_INLINE bool ask_may(const struct invocation *i, uint32_t in, uint64_t va, uint32_t access,
			 const struct ask_backend *b)
{
	return b->may(i, invocation_region(i, in, access), va, i->c.ask_len, access);
}

/* Performs the requested access. Returns 0, or another value if the access is refused. */
STEP_INLINE int ask_access(struct invocation *i, const struct ask_backend *b)
{
	struct roost_call *c = &i->c;
	nic_rpc_key key;

	if (likely(c->ask == ROOST_ASK_READ))
		return b->read(i, invocation_region(i, c->va_in, NIC_ACCESS_REMOTE_READ), c->va,
			       c->buf, c->ask_len);
	key = invocation_region(i, c->va_in, ask_rules[c->ask].va);
	if (c->ask == ROOST_ASK_WRITE)
		return b->write(i, key, c->va, c->buf, c->ask_len);
	if (c->ask == ROOST_ASK_COPY)
		return b->copy(i, key, c->va,
			       invocation_region(i, c->from_in, NIC_ACCESS_REMOTE_READ), c->from,
			       c->ask_len);
	return b->cmp_swap(i, key, c->va, c->buf, c->from);
}

/*
 * Checks the request. Returns 0, or the status with which the invocation ends. `ask` equals
 * c->ask.
 */
STEP_INLINE uint32_t ask_check(const struct invocation *i, uint32_t ask,
			       const struct ask_backend *b)
{
	const struct roost_call *c = &i->c;
	const struct ask_rule *r = &ask_rules[ask];

	if (r->kind == ASK_REPLY)
		return ROOST_RPC_FAILED;
	if (r->kind != ASK_ACCESS && r->kind != ASK_SEND)
		return 0;
	if (r->va && !ask_may(i, c->va_in, c->va, r->va, b))
		return ROOST_RPC_ACCESS;
	if (r->from && !ask_may(i, c->from_in, c->from, r->from, b))
		return ROOST_RPC_ACCESS;
	if (r->kind == ASK_SEND && !i->discards_data && c->ask_len > b->space(i))
		return ROOST_RPC_TOO_LONG;
	return 0;
}

/* Performs the request. */
STEP_INLINE enum step_result ask_perform(struct invocation *i, const struct ask_backend *b)
{
	struct roost_call *c = &i->c;
	const struct ask_rule *r = &ask_rules[c->ask];

	switch ((enum ask_kind)r->kind) {
	case ASK_ACCESS:
		if (likely(!ask_access(i, b)))
			return STEP_ASKED;
		b->cut_off(i, ROOST_RPC_ACCESS, i->sent);
		return STEP_ENDED;
	case ASK_SEND:
		return b->send(i, r->from, r->from ? invocation_region(i, c->from_in, r->from) : 0);
	case ASK_WR:
	case ASK_WAIT:
		return b->post(i, r) ? STEP_ASKED : STEP_WAITS;
	default:
		return STEP_ASKED;
	}
}

/* Ends an invocation whose kernel has replied. */
STEP_INLINE void invocation_reply(struct invocation *i, const struct ask_backend *b)
{
	struct roost_call *c = &i->c;
	uint32_t status = c->status, len = c->ask_len;

	i->replied = true;
	if (unlikely(i->discards_data))
		len = 0;
	if (!len) {
		len = i->sent;
		c->ask_len = 0;
	} else if (unlikely(i->sent)) {
		status = ROOST_RPC_FAILED; /* no data is allowed after data was sent */
		len = i->sent;
		c->ask_len = 0;
	} else if (unlikely(len > c->space)) {
		status = ROOST_RPC_TOO_LONG;
		c->ask_len = 0;
	} else if (c->ask == ROOST_ASK_REPLY_FROM &&
		   unlikely(!ask_may(i, c->from_in, c->from, NIC_ACCESS_REMOTE_READ, b))) {
		status = ROOST_RPC_ACCESS;
		len = c->ask_len = 0;
	}
	if (!c->ask_len)
		c->ask = ROOST_ASK_REPLY;
	b->reply(i, status, len);
}

/* Runs the kernel's function once. Must be called within a guard's scope. */
STEP_INLINE enum roost_next invocation_run(struct invocation *i, const struct ask_backend *b)
{
	struct registered_kernel *registered = i->s->registered;
	struct runtime_pu *pu = i->pu;
	enum roost_next next;

	b->before(i);
	ask_nothing(&i->c);
	if (unlikely(i->revision != registered->revision)) {
		i->revision = registered->revision;
		i->c.num_grants = registered->num_grants;
		i->c.num_qps = registered->num_bound;
	}
	pu->running = i;
	guard_step(&pu->guard);
	next = i->fn(&i->c);
	guard_stepped(&pu->guard);
	b->count(i);
	return next;
}

/*
 * Runs a step: performs the pending request, then runs the function once. Must be called within a
 * guard's scope.
 */
STEP_INLINE enum step_result invocation_step(struct invocation *i, const struct ask_backend *b)
{
	struct roost_call *c = &i->c;
	enum roost_next next;
	uint32_t status;

	if (unlikely(version_disabled(i->s))) {
		b->cut_off(i, ROOST_RPC_DISABLED, i->sent);
		return STEP_ENDED;
	}
	if (i->pending) {
		enum step_result r = ask_perform(i, b);

		if (r != STEP_ASKED)
			return r;
		i->pending = false;
	}
	if (unlikely(!i->steps)) {
		b->cut_off(i, ROOST_RPC_BOUND, i->sent);
		return STEP_ENDED;
	}
	next = invocation_run(i, b);
	if (unlikely(i->refused)) {
		b->cut_off(i, ROOST_RPC_ACCESS, i->sent);
		return STEP_ENDED;
	}
	if (next == ROOST_AGAIN) {
		if (likely(c->ask == ROOST_ASK_READ))
			status = ask_check(i, ROOST_ASK_READ, b);
		else
			status = c->ask < ASKS ? ask_check(i, c->ask, b) : ROOST_RPC_FAILED;
		if (unlikely(status)) {
			b->cut_off(i, status,
				   status == ROOST_RPC_TOO_LONG ? i->sent + c->ask_len : i->sent);
			return STEP_ENDED;
		}
		if (unlikely(c->ask == ROOST_ASK_PAUSE))
			return STEP_PAUSED;
		i->pending = true;
		return STEP_ASKED;
	}
	if (c->ask == ROOST_ASK_REPLY || c->ask == ROOST_ASK_REPLY_FROM) {
		invocation_reply(i, b);
		return STEP_ENDED;
	}
	return STEP_DONE;
}

#endif
