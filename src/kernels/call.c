/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Calls, from their first step to the acknowledgement of their reply. deliver.c hands them the
 * packets. A call that requests memory goes to the end of its QP's queue and its lines are
 * prefetched. When its turn comes the lines are in the cache, however many calls there are.
 */
#include <errno.h>
#include <endian.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "kernels/call.h"

#define RUN_BUDGET 256 /* steps of a PU's turn */

enum did { DID, NOT_YET, ENDED };

static uint8_t *body(const struct call *call)
{
	return call->q->bodies + (size_t)(call - call->q->calls) * CALL_BODY;
}

/* ---- turns ---- */

/* Returns whether the QP may take another step in this turn. */
static bool has_steps(struct call_qp *q)
{
	if (likely(!q->quota.steps))
		return true;
	if (q->turn != q->pu->turn) {
		q->turn = q->pu->turn;
		q->used = 0;
	}
	return q->used < q->quota.steps;
}

static void queue_qp(struct call_qp *q)
{
	if (!list_linked(&q->link))
		list_add_tail(&q->link, &q->pu->ready);
	nic_rpc_schedule(q->qp);
}

static void make_ready(struct call *call)
{
	call->state = CALL_READY;
	if (call->payload)
		return;
	list_add_tail(&call->link, &call->q->ready);
	queue_qp(call->q);
}

/* ---- slots ---- */

struct call *call_take(struct call_qp *q, struct kernel_version *s, const struct nic_rpc_piece *p)
{
	struct call *call;

	if (!q->num_free || (q->quota.calls && q->rt->calls - q->num_free >= q->quota.calls)) {
		q->pu->ctr.refused++;
		return NULL;
	}
	if (unlikely(q->free[q->num_free - 1] == q->slots) && !slot_open(q)) {
		q->pu->ctr.refused++;
		return NULL;
	}
	call = &q->calls[q->free[--q->num_free]];
	q->ids += RUNTIME_MAX_CALLS;
	*call = (struct call){.id = q->ids | (uint32_t)(call - q->calls),
			      .q = q,
			      .s = s,
			      .rkey = p->rkey,
			      .began = p->now,
			      .steps = q->rt->max_steps,
			      .state = CALL_READY,
			      .c.op = p->op};
	if (s) {
		version_count(s, q->pu->index, 1);
		s->pu[q->pu->index].ctr.calls++;
	}
	q->pu->ctr.calls++;
	return call;
}

static void free_slot(struct call *call)
{
	struct call_qp *q = call->q;

	if (unlikely(call->cut))
		call_tell(call);
	call->state = CALL_FREE;
	q->free[q->num_free++] = (uint8_t)(call - q->calls);
	/* The last access to the version, which may be freed from now on. */
	if (call->s)
		version_count(call->s, q->pu->index, -1);
}

static void wrs_wake(struct kernel_wrs *a);

void call_release(struct call *call)
{
	if (likely(kernel_wrs_leave(&call->wrs))) {
		free_slot(call);
		return;
	}
	/* Its memory is in use until its operations are done. */
	call->state = CALL_GONE;
	call->q->wrs_pending++;
}

static int put(struct roost_call *c, uint64_t va, const void *buf, uint32_t len)
{
	struct call *call = container_of(c, struct call, c);
	int rc = nic_rpc_put(call->q->qp, call->rkey, va, buf, len);

	call->put = true;
	if (unlikely(rc))
		call->refused = true;
	return rc;
}

/*
 * roost_take(). The watchdog must not count the runtime's locks and allocations as time of the
 * kernel's step.
 */
static uint32_t take(struct roost_call *c)
{
	struct call *call = container_of(c, struct call, c);
	struct call_qp *q = call->q;
	struct ledger *l = call->s->own->ledger;
	uint32_t number = 0;

	guard_stepped(&q->pu->guard);
	if (l && !q->ends)
		number = ledger_take(q->rt, l, q->owner, nic_rpc_peer(q->qp));
	guard_step(&q->pu->guard);
	q->holds |= number != 0;
	q->pu->ctr.resources_refused += !number;
	return number;
}

static void give(struct roost_call *c, uint32_t number)
{
	struct call *call = container_of(c, struct call, c);
	struct guard *g = &call->q->pu->guard;

	guard_stepped(g);
	if (call->s->own->ledger)
		ledger_give(call->s->own->ledger, number);
	guard_step(g);
}

void call_furnish(struct call *call, const void *params, uint32_t len)
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
	c->grants = call->s->registered->grants;
	c->put = put;
	c->owner = call->q->owner;
	c->take = take;
	c->give = give;
	call->wrs.c = c;
	call->wrs.wake = wrs_wake;
	c->room = call->head.reply_len > 8 ? call->head.reply_len - 8 : 0;
}

/* ---- sending ---- */

static enum did wait_for_room(struct call *call)
{
	call->state = CALL_WAITING;
	list_add_tail(&call->link, &call->q->waiting);
	return NOT_YET;
}

/*
 * Sends a WRITE to offset `off` of the reply buffer: `len` bytes of the region if `from`, else of
 * c->buf; and the tail if `tail`.
 */
static int write_back(struct call *call, uint32_t off, uint32_t len, bool from, bool tail)
{
	const struct roost_call *c = &call->c;
	bool imm = tail && call->head.flags & ROOST_RPC_IMM;
	struct roost_rpc_tail gone = {.status = ROOST_RPC_ACCESS, .mark = call->tail.mark};
	struct nic_rpc_send m = {
		.call = call->id,
		.cookie = from || !len ? 0 : (uint64_t)(call - call->q->calls) + 1,
		.raddr = call->head.reply_addr + off,
		.rkey = call->head.reply_rkey,
		.len = len,
		.buf = from ? NULL : c->buf,
		.va = c->from,
		.key = from ? call_region(call, c->from_in, NIC_ACCESS_REMOTE_READ) : 0,
		.tail_len = tail ? sizeof(call->tail) : 0,
		.has_imm = imm,
		.imm = imm ? htobe32(call->head.mark) : 0,
	};

	memcpy(&m.tail, call->lost ? &gone : &call->tail, sizeof(call->tail));
	memcpy(&m.lost, &gone, sizeof(gone));
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
	/* The kernel must not change its memory before the caller's NIC has acknowledged it. */
	call->pending = false;
	call->state = CALL_WAITING;
	return NOT_YET;
}

static void note_time(const struct call *call)
{
	struct runtime_pu *pu = call->q->pu;

	if (pu->ended && call->s)
		times_note(pu, call->s, call->began);
}

static void send_reply(struct call *call)
{
	struct roost_call *c = &call->c;
	bool from = c->ask == ROOST_ASK_REPLY_FROM;
	int rc = write_back(call, call->head.reply_len - 8 - c->ask_len, c->ask_len, from, true);

	if (rc == -EAGAIN) {
		wait_for_room(call);
		return;
	}
	note_time(call);
	if (rc || from || !c->ask_len)
		call_release(call);
	else
		call->state = CALL_ENDING;
}

/*
 * Returns the key of the region that an operation on a bound queue pair uses, or 0 if it uses the
 * kernel's own memory or the access is refused.
 */
static uint32_t local_key(const struct call *call)
{
	const struct roost_call *c = &call->c;
	uint32_t access = kernel_wrs_fetches(c) ? NIC_ACCESS_REMOTE_WRITE : NIC_ACCESS_REMOTE_READ;
	nic_rpc_key key;

	if (c->buf || c->ask == ROOST_ASK_QP_WAIT)
		return 0;
	key = call_region(call, c->va_in, access);
	return nic_rpc_prefetch(call->q->qp, key, c->va, c->ask_len, access) ? (uint32_t)key : 0;
}

static enum did post_wr(struct call *call)
{
	if (kernel_wrs_post(&call->wrs, call->s->registered, call->q->pu, local_key(call)))
		return DID;
	call->state = CALL_WAITING;
	return NOT_YET;
}

/* ---- ends ---- */

/* Ends the call with the data that c requests to reply, and `len` in its tail. */
static void conclude(struct call *call, uint32_t status, uint32_t len)
{
	struct call_qp *q = call->q;

	if (unlikely(call->lost)) {
		status = ROOST_RPC_ACCESS;
		len = call->c.ask_len = 0;
	}

	if (unlikely(call->wrs.at))
		kernel_wrs_stop(&call->wrs);
	if (q->stream == call)
		q->stream = NULL;
	if (q->msg == call)
		q->msg = NULL;
	if (call->put)
		nic_rpc_put_done();
	call->payload = call->pending = false;
	call->ending = true;
	call->tail = (struct roost_rpc_tail){.len = htole32(len),
					     .status = (uint8_t)status,
					     .flags = call->sent ? ROOST_RPC_FRONT : 0,
					     .mark = htole16(call->head.mark)};
	call_count_end(call, status);
	if (call->head.reply_len) {
		send_reply(call);
		return;
	}
	note_time(call);
	call_release(call);
}

void call_end(struct call *call, uint32_t status, uint32_t len)
{
	call->c.ask = ROOST_ASK_REPLY;
	call->c.ask_len = 0;
	conclude(call, status, len);
}

/*
 * kernel_wrs.wake: the call can continue, or all operations of a call that has ended are done.
 */
static void wrs_wake(struct kernel_wrs *a)
{
	struct call *call = container_of(a, struct call, wrs);
	struct call_qp *q = call->q;

	if (!a->gone) {
		make_ready(call);
		return;
	}
	free_slot(call);
	q->wrs_pending--;
	if (!q->wrs_pending)
		call_qp_over(q);
}

void call_cut_off(struct call *call, uint32_t status, uint32_t len)
{
	call_tell(call);
	call_end(call, status, len);
}

/* Ends a call whose kernel has replied. */
static void replied(struct call *call)
{
	struct roost_call *c = &call->c;

	if (!call->head.reply_len)
		c->ask_len = 0;
	if (!c->ask_len)
		call_end(call, c->status, call->sent);
	else if (call->sent)
		call_end(call, ROOST_RPC_FAILED, call->sent);
	else if (c->ask_len > c->room)
		call_end(call, ROOST_RPC_TOO_LONG, c->ask_len);
	else if (c->ask == ROOST_ASK_REPLY_FROM &&
		 !call_may(call, c->from_in, c->from, NIC_ACCESS_REMOTE_READ))
		call_end(call, ROOST_RPC_ACCESS, 0);
	else
		conclude(call, c->status, c->ask_len);
}

/* ---- steps ---- */

/* Performs the kernel's request. */
static enum did perform(struct call *call)
{
	switch ((enum roost_ask)call->c.ask) {
	case ROOST_ASK_SEND:
	case ROOST_ASK_SEND_FROM:
		return send_piece(call);
	case ROOST_ASK_QP_READ ... ROOST_ASK_QP_FETCH_ADD:
		return post_wr(call);
	default:
		if (likely(!call_access(call)))
			return DID;
		call_cut_off(call, ROOST_RPC_ACCESS, call->sent);
		return ENDED;
	}
}

/* Checks the kernel's request, and prefetches memory. Returns 0 or the status to end with. */
static uint32_t asked(struct call *call)
{
	struct roost_call *c = &call->c;
	bool ok = true;

	switch ((enum roost_ask)c->ask) {
	case ROOST_ASK_READ:
		ok = call_may(call, c->va_in, c->va, NIC_ACCESS_REMOTE_READ);
		break;
	case ROOST_ASK_WRITE:
		ok = call_may(call, c->va_in, c->va, NIC_ACCESS_REMOTE_WRITE);
		break;
	case ROOST_ASK_COPY:
		ok = call_may(call, c->from_in, c->from, NIC_ACCESS_REMOTE_READ) &&
		     call_may(call, c->va_in, c->va, NIC_ACCESS_REMOTE_WRITE);
		break;
	case ROOST_ASK_CAS:
		ok = call_may(call, c->va_in, c->va, NIC_ACCESS_REMOTE_ATOMIC);
		break;
	case ROOST_ASK_SEND_FROM:
		ok = call_may(call, c->from_in, c->from, NIC_ACCESS_REMOTE_READ);
		/* fall through */
	case ROOST_ASK_SEND:
		if (ok && call->head.reply_len && c->ask_len > c->room - call->sent)
			return ROOST_RPC_TOO_LONG;
		break;
	case ROOST_ASK_QP_READ ... ROOST_ASK_QP_FETCH_ADD:
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

	if (unlikely(call->refused)) {
		call_cut_off(call, ROOST_RPC_ACCESS, call->sent);
	} else if (next == ROOST_AGAIN) {
		uint32_t status = asked(call);

		if (status) {
			call_cut_off(call, status,
				     status == ROOST_RPC_TOO_LONG ? call->sent + c->ask_len
								  : call->sent);
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
		call_end(call, ROOST_RPC_OK, call->sent);
	}
}

/* Clears the request. */
static inline void ask_nothing(struct roost_call *c)
{
	c->ask = ROOST_ASK_NONE;
	c->va_in = c->from_in = 0;
}

static uint32_t min_u32(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

/*
 * Returns the steps that the call may take now, including the next one, by the limits of the call,
 * the turn and the QP.
 */
static uint32_t steps_left(const struct call *call)
{
	const struct call_qp *q = call->q;
	uint32_t n = min_u32(call->steps, q->pu->limit - q->pu->done + 1);

	return likely(!q->quota.steps) ? n : min_u32(n, q->quota.steps - q->used);
}

/* Counts the step, and one for each access at once. */
static void count_steps(struct call *call)
{
	struct runtime_pu *pu = call->q->pu;
	uint32_t n = pu->hops + 1;

	pu->done += pu->hops;
	pu->ctr.steps += n;
	call->steps -= n;
	call->q->used += n;
	call->s->pu[pu->index].ctr.steps += n;
}

/*
 * roost_call.at_once, for a call that is alone in the turn: no other call would run between the
 * request and its access. Returns false, so that the request takes the way through the queues, if
 * the access is refused, or the steps of the call or the turn are used up.
 */
static bool at_once(struct roost_call *c)
{
	struct call *call = container_of(c, struct call, c);
	struct runtime_pu *pu = call->q->pu;
	uint32_t kib = c->ask_len >> 10;
	int rc;

	if (unlikely(!call_accesses(c) || pu->hops + kib >= pu->most))
		return false;
	/*
	 * The watchdog must not count the time or a fault of the runtime's access as the kernel's.
	 * The rest of the function counts as a new step.
	 */
	guard_stepped(&pu->guard);
	rc = call_access(call);
	guard_step(&pu->guard);
	if (unlikely(rc)) {
		call->refused = true;
		return false;
	}
	pu->hops++;
	/* A long access counts as more than a step of the turn. */
	if (unlikely(kib)) {
		pu->most -= kib;
		pu->done += kib;
	}
	ask_nothing(c);
	return true;
}

/* Runs the kernel once. Within a guard's scope. */
static void step(struct call *call)
{
	const struct roost_kernel *k = call->s->k;
	struct runtime_pu *pu = call->q->pu;
	enum roost_next next;

	if (unlikely(!call->steps)) {
		call_cut_off(call, ROOST_RPC_BOUND, call->sent);
		return;
	}
	pu->most = steps_left(call) - 1;
	pu->hops = 0;
	ask_nothing(&call->c);
	call->c.num_grants = call->s->registered->num_grants;
	call->c.num_qps = call->s->registered->num_bound;
	pu->running = call;
	guard_step(&pu->guard);
	next = call->payload ? k->payload(&call->c) : k->params(&call->c);
	guard_stepped(&pu->guard);
	count_steps(call);
	stepped(call, next);
}

/* A long access counts as steps of the turn, and beyond the steps left as units. */
static void __attribute__((noinline)) charge_access(struct runtime_pu *pu, uint32_t kib)
{
	uint32_t n = min_u32(kib, pu->limit - pu->done);

	pu->done += n;
	units_spend(pu, kib - n, 0);
}

/* Runs a call that was removed from the queue. */
static void advance(struct call *call)
{
	if (call->ending) {
		send_reply(call);
		return;
	}
	if (unlikely(call->broken)) {
		call_cut_off(call, call->broken, call->sent);
		return;
	}
	if (unlikely(version_disabled(call->s))) {
		call_end(call, ROOST_RPC_DISABLED, call->sent);
		return;
	}
	if (call->pending) {
		if (unlikely(call->c.ask_len >> 10))
			charge_access(call->q->pu, call->c.ask_len >> 10);
		if (perform(call) != DID)
			return;
		call->pending = false;
	}
	step(call);
}

/* The running step was left by a signal: disables the version and ends the call. */
static void trapped(struct runtime_pu *pu)
{
	enum guard_end how = guard_trapped(&pu->guard);
	struct call *call = pu->running;

	count_steps(call);
	version_disable(call->s, how);
	call_end(call, how == GUARD_STUCK ? ROOST_RPC_STUCK : ROOST_RPC_FAULT, call->sent);
}

/* Each QP takes one step in turn, whatever its number of calls. */
static void __attribute__((noinline)) run_round(struct runtime_pu *pu)
{
	while (pu->done < pu->limit && !list_empty(&pu->ready)) {
		struct call_qp *q = list_first_entry(&pu->ready, struct call_qp, link);
		struct call *call;

		list_del(&q->link);
		if (list_empty(&q->ready))
			continue;
		if (unlikely(!has_steps(q))) {
			list_add_tail(&q->link, &pu->spent);
			continue;
		}
		call = list_first_entry(&q->ready, struct call, link);
		list_del(&call->link);
		if (!list_empty(&q->ready))
			list_add_tail(&q->link, &pu->ready);
		pu->done++;
		call->c.at_once = list_empty(&pu->ready) ? at_once : NULL;
		advance(call);
	}
}

unsigned call_run(struct runtime_pu *pu, bool *more)
{
	struct guard_scope scope;

	pu->turn++;
	pu->done = 0;
	if (!list_empty(&pu->ready))
		nic_rpc_runs(list_first_entry(&pu->ready, struct call_qp, link)->qp);
	units_see(pu);
	pu->limit = units_left(pu, RUN_BUDGET);
	guard_open(&pu->guard, &scope);
	if (sigsetjmp(scope.env, 0))
		trapped(pu);
	run_round(pu);
	guard_close(&pu->guard, &scope);
	units_spend(pu, pu->done, 0);
	units_ask(pu);
	if (unlikely(atomic_load_explicit(&pu->handed, memory_order_relaxed)))
		local_call_take_handed(pu);
	if (unlikely(!list_empty(&pu->runs)))
		local_call_run(pu);
	list_splice_tail_init(&pu->spent, &pu->ready);
	*more = !list_empty(&pu->ready) || !list_empty(&pu->runs);
	if (unlikely(!list_empty(&pu->idle)))
		*more |= idle_look(pu);
	return pu->done;
}

static bool may_drive(struct call *call)
{
	return call->state == CALL_READY && !call->ending;
}

static void __attribute__((noinline)) drive_steps(struct call *call, unsigned budget, bool lone)
{
	struct runtime_pu *pu = call->q->pu;

	pu->done = 0;
	pu->limit = RUN_BUDGET;
	call->c.at_once = lone && list_empty(&pu->ready) && !pu->units.shared ? at_once : NULL;
	for (; budget && may_drive(call) && has_steps(call->q); budget--) {
		if (list_linked(&call->link))
			list_del(&call->link);
		pu->done++;
		advance(call);
	}
}

void call_drive(struct call *call, unsigned budget, bool lone)
{
	struct runtime_pu *pu = call->q->pu;
	struct guard_scope scope;

	if (!may_drive(call))
		return;
	guard_open(&pu->guard, &scope);
	if (!sigsetjmp(scope.env, 0))
		drive_steps(call, budget, lone);
	else
		trapped(pu);
	guard_close(&pu->guard, &scope);
	units_spend(pu, pu->done, 0);
	if (unlikely(may_drive(call)) && !list_linked(&call->link))
		make_ready(call);
	if (unlikely(!has_steps(call->q)))
		nic_rpc_schedule(call->q->qp);
}

/* ---- the end of a WRITE ---- */

void call_sent(struct call_qp *q, uint64_t cookie)
{
	if (cookie) {
		struct call *call = &q->calls[cookie - 1];

		if (call->state == CALL_ENDING)
			call_release(call);
		else
			make_ready(call);
	}
	if (!list_empty(&q->waiting)) {
		struct call *call = list_first_entry(&q->waiting, struct call, link);

		list_del(&call->link);
		make_ready(call);
	}
}
