/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Calls, from their first step to the acknowledgement of their reply. deliver.c hands them the
 * packets. A call that requests memory goes to the end of its QP's queue and its lines are
 * prefetched. When its turn comes the lines are in the cache, however many calls there are.
 */
#include "base/assert.h"
#include "base/mem.h"
#include "kernels/backend_wire.h"
#include "kernels/guarded.h"
#include "kernels/step.h"

#define RUN_BUDGET 256	 /* steps of a PU's turn */
#define PAUSE_NS   10000 /* from a pause to the turn in which the calls continue */

static uint8_t *body(const struct call *call)
{
	return call->q->bodies + (size_t)call_slot(call) * CALL_BODY;
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
	/*
	 * As long as the QP is on the list a turn is scheduled, by this function or by
	 * call_run().
	 */
	if (list_linked(&q->link))
		return;
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

/* A step of a call that pauses does not count. */
static void pause_call(struct call *call)
{
	struct runtime_pu *pu = call->q->pu;

	call->i.steps++;
	call->paused = true;
	if (call->payload)
		return;
	if (list_empty(&pu->paused)) {
		pu->resumes_at = pu->units.began + PAUSE_NS;
		nic_rpc_at(pu->rt->nic, pu->index, pu->resumes_at);
	}
	list_add_tail(&call->link, &pu->paused);
}

void call_pause_without_data(struct call *call)
{
	call->payload = call->stream = false;
	pause_call(call);
	call->i.steps--;
}

static void end_pauses(struct runtime_pu *pu)
{
	while (!list_empty(&pu->paused)) {
		struct call *call = list_first_entry(&pu->paused, struct call, link);

		list_del(&call->link);
		make_ready(call);
	}
}

/* ---- slots ---- */

/*
 * Clears lines by vector stores. For this size compilers choose a string instruction, whose start
 * alone takes longer.
 */
static void zero_lines(void *p, size_t len)
{
	typedef uint64_t vector __attribute__((vector_size(16), may_alias));
	vector *at = p, *end = (vector *)((char *)p + len);

	for (; at != end; at += CACHE_LINE / sizeof(vector)) {
		at[0] = at[1] = at[2] = at[3] = (vector){0};
		__asm__ volatile("" : : : "memory"); /* the compiler must keep the loop */
	}
}
_Static_assert(sizeof(struct call) % CACHE_LINE == 0, "it is cleared by lines");

struct call *call_take(struct call_qp *q, struct kernel_version *s, const struct nic_rpc_piece *p)
{
	struct call *call;
	uint8_t slot;

	/* The ACK of the last reply may come behind the next call (nic/ack_delay.h). */
	if (!q->num_free ||
	    (q->quota.calls && q->rt->calls - q->num_free >= q->quota.calls + (q->ending != 0))) {
		q->pu->ctr.refused++;
		return NULL;
	}
	slot = q->free[q->num_free - 1];
	if (unlikely(slot == q->slots) && !slot_open(q)) {
		q->pu->ctr.refused++;
		return NULL;
	}
	q->num_free--;
	call = &q->calls[slot];
	q->ids += RUNTIME_MAX_CALLS;
	zero_lines(call, sizeof(*call));
	call->id = q->ids | slot;
	call->q = q;
	call->began = p->now;
	call->state = CALL_READY;
	call->i.s = s;
	call->i.b = &wire_backend;
	call->i.key = p->rkey;
	call->i.steps = q->rt->max_steps;
	call->i.c.op = p->op;
	if (likely(s)) {
		invocation_move(&call->i, q->pu);
		version_count(s, q->pu->index, 1);
		call->i.ctr->calls++;
	}
	q->pu->ctr.calls++;
	return call;
}

static void free_slot(struct call *call)
{
	struct call_qp *q = call->q;

	if (unlikely(call->cut))
		call_run_cut(call);
	call->state = CALL_FREE;
	q->free[q->num_free++] = call_slot(call);
	/* This is the last access to the version, which may be freed from now on. */
	if (call->i.s)
		version_count(call->i.s, q->pu->index, -1);
}

static void wrs_wake(struct kernel_wrs *a);

void call_release(struct call *call)
{
	if (likely(kernel_wrs_leave(&call->i.wrs))) {
		free_slot(call);
		return;
	}
	/* The memory of the call is in use until its operations are done. */
	call->state = CALL_GONE;
	call->q->wrs_pending++;
}

void call_lay_out(struct call *call, const void *params, uint32_t len)
{
	struct invocation *i = &call->i;

	invocation_lay_out(i, body(call), params, len);
	i->fn = i->s->k->params;
	i->c.owner = call->q->owner;
	i->c.space = call->head.reply_len > 8 ? call->head.reply_len - 8 : 0;
	i->discards_data = !call->head.reply_len;
	i->wrs.wake = wrs_wake;
}

/* ---- ends ---- */

/*
 * kernel_wrs.wake: the call can continue, or all operations of a call that has ended are done.
 */
static void wrs_wake(struct kernel_wrs *a)
{
	struct call *call = container_of(a, struct call, i.wrs);
	struct call_qp *q = call->q;

	if (!a->gone) {
		make_ready(call);
		return;
	}
	free_slot(call);
	ROOST_ASSERT(q->wrs_pending);
	q->wrs_pending--;
	if (!q->wrs_pending)
		call_qp_ended(q);
}

/* ---- steps ---- */

/*
 * Ends an access that was performed within a step and began with guard_stepped(). The watchdog must
 * not attribute the time or a fault of the runtime's access to the kernel. The rest of the function
 * counts as a new step. Returns false if the access was refused.
 */
STEP_INLINE bool accessed(struct invocation *i, int rc)
{
	struct runtime_pu *pu = i->pu;

	guard_step(&pu->guard);
	if (unlikely(rc)) {
		i->refused = true;
		return false;
	}
	pu->accesses++;
	ask_nothing(&i->c);
	return true;
}

/* Does the work of at_once() for any request. A long access counts as several steps of the turn. */
static __attribute__((noinline)) bool at_once_slow(struct roost_call *c)
{
	struct invocation *i = invocation_of(c);
	struct runtime_pu *pu = i->pu;
	uint32_t kib = c->ask_len >> 10;

	if (!ask_accesses(c) || pu->accesses + kib >= pu->max_accesses)
		return false;
	guard_stepped(&pu->guard);
	if (!accessed(i, ask_access(i, &wire_backend)))
		return false;
	pu->max_accesses -= kib;
	pu->done += kib;
	return true;
}

/*
 * roost_call.at_once, for a call that is alone in the turn: no other call would run between the
 * request and its access. Returns false, so that the request takes the way through the queues, if
 * the access is refused, or the steps of the call or the turn are used up.
 *
 * Kernels that follow pointers spend their time here. Short READs of the caller's region therefore
 * have a path of their own, without the tests and saved registers that only other requests need.
 */
static bool at_once(struct roost_call *c)
{
	struct invocation *i = invocation_of(c);
	struct runtime_pu *pu = i->pu;
	uint32_t n = c->ask_len;

	if (unlikely(c->ask != ROOST_ASK_READ || c->va_in || !n || n >> 10 ||
		     pu->accesses >= pu->max_accesses))
		return at_once_slow(c);
	guard_stepped(&pu->guard);
	return accessed(i, wire_read(i, i->key, c->va, c->buf, n));
}

/* The kernel's function is done: the call waits for payload, or ends. */
static void function_done(struct call *call)
{
	struct roost_call *c = &call->i.c;

	if (call->payload ? !c->last : call->stream) {
		call->state = CALL_STREAM;
		c->resume = 0;
	} else {
		call_end(call, ROOST_RPC_OK, call->i.sent);
	}
}

void __attribute__((noinline)) call_charge(struct runtime_pu *pu, uint32_t kib)
{
	uint32_t left = pu->done < pu->limit ? pu->limit - pu->done : 0;
	uint32_t n = kib < left ? kib : left;

	pu->done += n;
	units_spend(pu, kib - n, 0);
}

/* There is space for one WRITE: it goes to the first that waits. */
static void wake_first(struct call_qp *q)
{
	struct list_head *first = q->waiting.next;

	if (unlikely(first == &q->join.link)) {
		join_wake(q);
		return;
	}
	list_del(first);
	make_ready(list_entry(first, struct call, link));
}

/*
 * Sends the reply of a call that is ending, for which there is space now, or ends a call with
 * broken payload. A reply that has joined others leaves its space to the next that waits.
 */
static void __attribute__((noinline)) finish_call(struct call *call)
{
	struct call_qp *q = call->q;

	if (!call->ending)
		call_cut_off(call, call->broken, call->i.sent);
	else if (call_send_reply(call) && !list_empty(&q->waiting))
		wake_first(q);
}

/* Runs a call that was removed from the queue. */
static void advance(struct call *call)
{
	struct invocation *i = &call->i;

	if (unlikely(call->ending | call->broken)) {
		finish_call(call);
		return;
	}
	call->paused = false;
	if (unlikely(i->pending && i->c.ask_len >> 10))
		call_charge(i->pu, i->c.ask_len >> 10);
	switch (invocation_step(i, &wire_backend)) {
	case STEP_ASKED:
		make_ready(call);
		return;
	case STEP_DONE:
		function_done(call);
		return;
	case STEP_PAUSED:
		pause_call(call);
		return;
	case STEP_WAITS:
	case STEP_ENDED:
		return;
	}
}

/* Each QP takes one step in turn, whatever its number of calls. */
static void run_round(void *arg)
{
	struct runtime_pu *pu = arg;

	while (pu->done < pu->limit && !list_empty(&pu->ready)) {
		struct call_qp *q = list_first_entry(&pu->ready, struct call_qp, link);
		struct call *call;

		if (unlikely(list_empty(&q->ready))) {
			list_del(&q->link);
			continue;
		}
		if (unlikely(!has_steps(q))) {
			list_move_tail(&q->link, &pu->spent);
			continue;
		}
		call = list_first_entry(&q->ready, struct call, link);
		list_del(&call->link);
		if (list_empty(&q->ready))
			list_del(&q->link);
		else if (pu->ready.prev != &q->link)
			list_move_tail(&q->link, &pu->ready);
		pu->done++;
		call->i.c.at_once = list_empty(&pu->ready) ? at_once : NULL;
		advance(call);
	}
}

unsigned call_run(struct runtime_pu *pu, bool *more)
{
	int how;

	pu->turn++;
	pu->in_run = true;
	pu->done = 0;
	if (!list_empty(&pu->ready))
		nic_rpc_runs(list_first_entry(&pu->ready, struct call_qp, link)->qp);
	if (unlikely(!list_empty(&pu->due_joins)))
		join_send_due(pu);
	units_begin_turn(pu);
	if (unlikely(!list_empty(&pu->paused)) && pu->units.began >= pu->resumes_at)
		end_pauses(pu);
	pu->limit = units_left(pu, RUN_BUDGET);
	while (unlikely((how = guarded(&pu->guard, run_round, pu)) != 0))
		invocation_trapped(pu->running, how);
	units_spend(pu, pu->done, 0);
	units_request_time(pu);
	if (unlikely(atomic_load_explicit(&pu->handed, memory_order_relaxed)))
		local_call_take_handed(pu);
	if (unlikely(!list_empty(&pu->local_calls)))
		local_call_run(pu);
	list_splice_tail_init(&pu->spent, &pu->ready);
	pu->in_run = false;
	if (!list_empty(&pu->joins))
		join_send(pu);
	*more = !list_empty(&pu->ready) || !list_empty(&pu->local_calls);
	if (unlikely(!list_empty(&pu->paused)))
		nic_rpc_at(pu->rt->nic, pu->index, pu->resumes_at);
	if (unlikely(!list_empty(&pu->idle)))
		*more |= idle_look(pu);
	return pu->done;
}

static bool may_drive(struct call *call)
{
	return call->state == CALL_READY && !call->ending;
}

struct drive {
	struct call *call;
	unsigned budget;
};

static void drive_steps(void *arg)
{
	struct drive *d = arg;
	struct call *call = d->call;
	struct runtime_pu *pu = call->q->pu;

	do {
		if (list_linked(&call->link))
			list_del(&call->link);
		pu->done++;
		advance(call);
		if (unlikely(call->paused))
			return;
	} while (--d->budget && pu->done < pu->limit && may_drive(call) && has_steps(call->q));
}

void call_drive(struct call *call, unsigned budget, bool ends_burst)
{
	struct runtime_pu *pu = call->q->pu;
	struct drive d = {call, budget};
	int how = 0;

	if (!may_drive(call))
		return;
	pu->done = 0;
	pu->limit = RUN_BUDGET;
	call->i.c.at_once =
		ends_burst && list_empty(&pu->ready) && !pu->units.shared ? at_once : NULL;
	if (likely(has_steps(call->q)))
		how = guarded(&pu->guard, drive_steps, &d);
	if (unlikely(how))
		invocation_trapped(&call->i, how);
	units_spend(pu, pu->done, 0);
	if (unlikely(may_drive(call)) && !list_linked(&call->link))
		make_ready(call);
	if (unlikely(!has_steps(call->q)))
		nic_rpc_schedule(call->q->qp);
}

/* ---- the end of a WRITE ---- */

void call_sent(struct call_qp *q, uint64_t cookie)
{
	join_sent(q, cookie);
	if (cookie && cookie <= RUNTIME_MAX_CALLS) {
		struct call *call = &q->calls[cookie - 1];

		if (call->state == CALL_ENDING) {
			q->ending--;
			call_release(call);
		} else {
			make_ready(call);
		}
	}
	if (!list_empty(&q->waiting))
		wake_first(q);
}
