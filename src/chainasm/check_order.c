/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The checker: rewrites of WQEs that may have been fetched. A WQE may be rewritten
 *
 *	in its own queue	by a WQE before it; by one behind it if the ring is recycled
 *	in another queue	before an ENABLE covers it, or while its queue is in a WAIT before
 *				it that the writer ends
 *
 * In both cases the queue must be managed. A receive may be rewritten before a RECV_ENABLE covers
 * it, or behind a WAIT for the message that it took, and a RECV_ENABLE must follow. RECV_ENABLEs of
 * third queues cover the receive too, unless they can only come after the write.
 */
#include <stdio.h>
#include <string.h>

#include "chainasm/check_inside.h"

struct target {
	unsigned queue;
	uint32_t slot;
};

static void say(struct checker *c, const struct rewrite *r, const struct target *t, const char *why)
{
	const struct chain_queue *q = &c->p->queue[r->queue];
	const uint32_t line = r->receive ? (q->recv_lines ? q->recv_lines[r->slot] : q->line)
					 : check_line(c, r->queue, r->slot);
	char location[96];

	chain_print_location(c->p, r->region, r->offset, location, sizeof(location));
	check_fault(c, CHAIN_FAULT_REWRITE, line,
		    "%s %s of the WQE in line %u, which may have been fetched: %s",
		    r->receive ? "the receive stores" : "this rewrites", location,
		    check_line(c, t->queue, t->slot), why);
}

/* Returns true if a WQE of the slot is signaled, or may become signaled. */
static bool signals(const struct checker *c, unsigned queue, uint32_t slot)
{
	for (uint32_t i = 0; i < c->variants; i++) {
		const struct variant *v = &c->variant[i];

		if (v->queue == queue && v->slot == slot &&
		    (v->w.flags & ROOST_WQE_SIGNALED || v->computed & 1 << 1))
			return true;
	}
	return false;
}

static bool signals_from(const struct checker *c, unsigned queue, uint32_t slot)
{
	for (; slot < c->p->queue[queue].n; slot++)
		if (signals(c, queue, slot))
			return true;
	return false;
}

/* Returns true if the WAIT in `watch` ends because of the writer, after its write. */
static bool ended_by(const struct checker *c, const struct chain_watch_name *watch,
		     const struct rewrite *r)
{
	const struct chain_queue *by = &c->p->queue[r->queue];

	if (r->receive)
		return watch->receives && watch->queue == r->queue;
	if (!watch->receives)
		return watch->queue == r->queue && signals_from(c, r->queue, r->slot);
	if (watch->queue != (by->peer == CHAIN_PEER_SELF ? (int)r->queue : by->peer))
		return false;
	for (uint32_t i = 0; i < c->variants; i++) { /* looks for a SEND behind the writer */
		const struct variant *v = &c->variant[i];
		uint16_t op = variant_op(v);

		if (v->queue == r->queue && v->slot >= r->slot &&
		    (op == ROOST_OP_SEND || op == ROOST_OP_SEND_IMM || op == ROOST_OP_WRITE_IMM))
			return true;
	}
	return false;
}

/* Returns true if the queue has a WAIT below the slot that the writer ends. */
static bool waits_below(const struct checker *c, unsigned queue, uint32_t slot,
			const struct rewrite *r)
{
	struct chain_watch_name watch;

	for (uint32_t i = 0; i < c->variants; i++) {
		const struct variant *v = &c->variant[i];

		if (v->queue == queue && v->slot < slot && check_waits(c, v, &watch) &&
		    ended_by(c, &watch, r))
			return true;
	}
	return false;
}

/*
 * Returns true if an ENABLE of `to` follows the write: behind the writer in its queue, in a queue
 * behind a WAIT that the writer ends, or in a queue that one of these queues enables.
 */
static bool enabled_after(const struct checker *c, unsigned to, const struct rewrite *r)
{
	bool reached[CHAIN_MAX_QUEUES] = {false}, more = true;

	while (more && !reached[to]) {
		more = false;
		for (uint32_t i = 0; i < c->variants; i++) {
			const struct variant *v = &c->variant[i];
			int q = check_enables(c, v);

			if (q < 0 || reached[q])
				continue;
			if (reached[v->queue] ||
			    (!r->receive && v->queue == r->queue && v->slot > r->slot) ||
			    waits_below(c, v->queue, v->slot, r))
				reached[q] = more = true;
		}
	}
	return reached[to];
}

/*
 * Returns the number of WQEs of `to` that were enabled at the start, or by the writer's queue
 * before its write.
 */
static uint64_t enabled_before(const struct checker *c, unsigned to, const struct rewrite *r)
{
	const struct chain_queue *q = &c->p->queue[to];
	uint64_t n = q->start;

	for (uint32_t i = 0; i < c->variants && !r->receive; i++) {
		const struct variant *v = &c->variant[i];

		if (v->queue == r->queue && v->slot < r->slot && check_enables(c, v) == (int)to)
			n += (uint32_t)v->w.swap_add;
	}
	/* WQEs that were enabled in whole turns have been executed when the ring is recycled */
	return c->recycles[to] && n >= q->depth && q->start < q->depth ? n % q->depth : n;
}

static void check_own(struct checker *c, const struct rewrite *r, const struct target *t)
{
	if (t->slot <= r->slot && !c->recycles[t->queue]) {
		say(c, r, t, t->slot == r->slot ? "it is this one" : "it is before this one");
		return;
	}
	if (!r->response || t->slot <= r->slot)
		return;
	for (uint32_t i = 0; i < c->variants; i++) {
		const struct variant *v = &c->variant[i];
		struct chain_watch_name watch;

		if (v->queue == t->queue && v->slot > r->slot && v->slot < t->slot &&
		    check_waits(c, v, &watch) && watch.queue == (int)t->queue && !watch.receives &&
		    signals(c, r->queue, r->slot))
			return;
	}
	say(c, r, t, "the answer comes later, and there is no WAIT in between");
}

/* The next message must not rewrite a WQE of the turn that executes. */
static void check_next_receive(struct checker *c, const struct rewrite *r, const struct target *t)
{
	const struct chain_queue *from = &c->p->queue[r->queue];

	if (!c->recycles[t->queue])
		return;
	if (from->managed_recv ? from->start_recv > 1 : from->recv > 1) {
		say(c, r, t, "the next message may come before it is executed");
		return;
	}
	for (uint32_t i = 0; i < c->variants; i++) {
		const struct variant *v = &c->variant[i];

		if (v->queue == t->queue && v->slot < t->slot &&
		    variant_op(v) == ROOST_OP_RECV_ENABLE &&
		    chain_queue_of_number(c->p, (uint32_t)v->w.raddr) == (int)r->queue) {
			say(c, r, t, "the receive is enabled again before it");
			return;
		}
	}
}

static void check_target(struct checker *c, const struct rewrite *r, const struct target *t)
{
	const struct chain_queue *q = &c->p->queue[t->queue];
	const bool same = r->queue == t->queue && !r->receive;

	if (!q->managed) {
		say(c, r, t, "the queue is not managed");
		return;
	}
	if (same) {
		check_own(c, r, t);
		return;
	}
	if (enabled_before(c, t->queue, r) > t->slot && !waits_below(c, t->queue, t->slot, r))
		say(c, r, t, "an ENABLE covers it already");
	else if (c->total[t->queue] > t->slot && !waits_below(c, t->queue, t->slot, r) &&
		 !enabled_after(c, t->queue, r))
		say(c, r, t, "no ENABLE of it follows this");
	else if (r->receive)
		check_next_receive(c, r, t);
}

/* ---- receives ---- */

static void say_receive(struct checker *c, const struct rewrite *r, const struct target *t,
			const char *why)
{
	const struct chain_queue *by = &c->p->queue[r->queue], *of = &c->p->queue[t->queue];

	check_fault(c, CHAIN_FAULT_REWRITE,
		    !r->receive	     ? check_line(c, r->queue, r->slot)
		    : by->recv_lines ? by->recv_lines[r->slot]
				     : by->line,
		    "%s receive %u of the queue %s, which may have been taken: %s",
		    r->receive ? "the receive stores over" : "this rewrites", t->slot, of->name,
		    why);
}

static bool enables_receives(const struct checker *c, const struct variant *v, unsigned of)
{
	return variant_op(v) == ROOST_OP_RECV_ENABLE &&
	       chain_queue_of_number(c->p, (uint32_t)v->w.raddr) == (int)of;
}

/*
 * Returns true if the writer's queue waits for a message of the queue, from slot `from` to the
 * writer.
 */
static bool waits_for_message(const struct checker *c, const struct rewrite *r, unsigned of,
			      uint32_t from)
{
	struct chain_watch_name watch;

	for (uint32_t i = 0; i < c->variants; i++) {
		const struct variant *v = &c->variant[i];

		if (v->queue == r->queue && v->slot >= from && v->slot < r->slot &&
		    check_waits(c, v, &watch) && watch.receives && watch.queue == (int)of)
			return true;
	}
	return false;
}

/* Returns true if a RECV_ENABLE of the queue follows the write. */
static bool receives_after(const struct checker *c, const struct rewrite *r, unsigned of)
{
	for (uint32_t i = 0; i < c->variants; i++) {
		const struct variant *v = &c->variant[i];

		if (enables_receives(c, v, of) &&
		    ((!r->receive && v->queue == r->queue &&
		      (v->slot > r->slot || c->recycles[r->queue])) ||
		     waits_below(c, v->queue, v->slot, r) || enabled_after(c, v->queue, r)))
			return true;
	}
	return false;
}

/*
 * Returns true if the WQE of a queue can only be executed after the write: it is behind the writer
 * or behind a WAIT that the writer ends, or only ENABLEs reach it that come after the write.
 * `early`: the queues that have other ENABLEs.
 */
static bool comes_after(const struct checker *c, unsigned queue, uint32_t slot,
			const struct rewrite *r, const bool early[CHAIN_MAX_QUEUES])
{
	const struct chain_queue *q = &c->p->queue[queue];
	const bool own = !r->receive && queue == r->queue;

	return (own ? slot > r->slot : q->managed && q->start <= slot && !early[queue]) ||
	       waits_below(c, queue, slot, r);
}

/*
 * Finds the queues that have an ENABLE which may be executed before the write. The search goes over
 * queues, since the number of paths of ENABLEs grows with the factorial of the queues.
 */
static void find_early(const struct checker *c, const struct rewrite *r,
		       bool early[CHAIN_MAX_QUEUES])
{
	bool more = true;

	while (more) {
		more = false;
		for (uint32_t i = 0; i < c->variants; i++) {
			const struct variant *v = &c->variant[i];
			int q = check_enables(c, v);

			if (q >= 0 && !early[q] && !comes_after(c, v->queue, v->slot, r, early))
				early[q] = more = true;
		}
	}
}

/*
 * Returns the number of receives of a queue that may be enabled before the write: at the start, and
 * by third queues. *line: the line of such a WQE of a third queue, or 0.
 */
static uint64_t receives_before(const struct checker *c, const struct rewrite *r, unsigned of,
				uint32_t *line)
{
	uint64_t n = c->p->queue[of].start_recv;
	bool early[CHAIN_MAX_QUEUES] = {false};

	*line = 0;
	find_early(c, r, early);
	for (uint32_t i = 0; i < c->variants; i++) {
		const struct variant *v = &c->variant[i];
		const uint32_t count = (uint32_t)v->w.swap_add;

		if (!enables_receives(c, v, of) || (!r->receive && v->queue == r->queue) ||
		    comes_after(c, v->queue, v->slot, r, early))
			continue;
		*line = check_line(c, v->queue, v->slot);
		if (v->computed & 1 << 4 ||
		    (v->w.raddr & ROOST_CHAIN_RELATIVE && count && c->recycles[v->queue]))
			n = UINT32_MAX;
		else if (v->w.raddr & ROOST_CHAIN_RELATIVE)
			n += count;
		else if (n < count)
			n = count;
	}
	return n;
}

static void check_receive(struct checker *c, const struct rewrite *r, const struct target *t)
{
	const struct chain_queue *q = &c->p->queue[t->queue];
	/* a receive that rewrites itself has been taken; other receives may be enabled */
	const bool taken = r->receive ? r->queue == t->queue && r->slot == t->slot
				      : waits_for_message(c, r, t->queue, 0);
	char why[64];
	uint32_t line;

	if (!q->managed_recv) {
		say_receive(c, r, t, "the receives are not managed");
		return;
	}
	if (q->start_recv > t->slot && !taken) {
		say_receive(c, r, t, "it is enabled at the start");
		return;
	}
	for (uint32_t i = 0; i < c->variants && !r->receive; i++) {
		const struct variant *v = &c->variant[i];

		if (v->queue != r->queue || v->slot >= r->slot ||
		    !enables_receives(c, v, t->queue) || waits_for_message(c, r, t->queue, v->slot))
			continue;
		say_receive(c, r, t, "a RECV_ENABLE covers it already");
		return;
	}
	/* a taken receive may be rewritten until the next turn of its slot */
	if (receives_before(c, r, t->queue, &line) > t->slot + (taken ? q->recvs : 0) && line) {
		snprintf(why, sizeof(why), "the RECV_ENABLE in line %u may come before", line);
		say_receive(c, r, t, why);
		return;
	}
	if (!receives_after(c, r, t->queue))
		say_receive(c, r, t, "no RECV_ENABLE of it follows this");
}

/* Calls a check for each WQE that a rewrite touches, until it finds a fault. */
static void each_target(struct checker *c, const struct rewrite *r, uint32_t stride,
			void (*check)(struct checker *, const struct rewrite *,
				      const struct target *))
{
	const unsigned queue = c->p->region[r->region].queue;
	const int faults = c->faults;

	for (uint64_t slot = r->offset / stride;
	     slot <= (r->offset + r->len - 1) / stride && faults == c->faults; slot++)
		check(c, r, &(struct target){queue, (uint32_t)slot});
}

void check_rewrites(struct checker *c)
{
	for (uint32_t i = 0; i < c->rewrites; i++) {
		const struct rewrite *r = &c->rewrite[i];
		const struct chain_region *region = &c->p->region[r->region];
		const struct chain_queue *q = &c->p->queue[region->queue];

		if (region->kind == CHAIN_SEND_RING && r->len)
			each_target(c, r, q->stride, check_target);
		else if (region->kind == CHAIN_RECV_RING && r->len)
			each_target(c, r, q->recv_stride, check_receive);
	}
}
