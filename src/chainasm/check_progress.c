/* SPDX-License-Identifier: BSD-2-Clause */
/* The checker: WAITs that no completion satisfies, and loops without a limit. */
#include <string.h>

#include "chainasm/check_inside.h"

#define UNLIMITED UINT64_MAX

/* ---- WAITs ---- */

static bool is_message(uint16_t op)
{
	return op == ROOST_OP_SEND || op == ROOST_OP_SEND_IMM || op == ROOST_OP_WRITE_IMM;
}

/* Returns the number of slots below `end` that may raise a completion, or send a message. */
static uint64_t count_slots(const struct checker *c, unsigned queue, uint32_t end, bool messages)
{
	uint64_t n = 0;
	uint32_t last = UINT32_MAX;

	for (uint32_t i = 0; i < c->variants; i++) {
		const struct variant *v = &c->variant[i];

		if (v->queue != queue || v->slot >= end || v->slot == last)
			continue;
		if (messages ? is_message(variant_op(v)) || v->computed & 1
			     : v->w.flags & ROOST_WQE_SIGNALED || v->computed & 1 << 1) {
			n++;
			last = v->slot;
		}
	}
	return n;
}

/* Returns the number of WQEs of a queue that can run. */
static uint32_t can_run(const struct checker *c, unsigned queue)
{
	const struct chain_queue *q = &c->p->queue[queue];

	return !q->managed || c->total[queue] > q->n ? q->n : (uint32_t)c->total[queue];
}

static uint64_t times(const struct checker *c, unsigned queue, uint64_t n)
{
	return n && c->recycles[queue] ? UNLIMITED : n;
}

static uint64_t received(const struct checker *c, unsigned queue)
{
	const struct chain_queue *q = &c->p->queue[queue];
	const unsigned from = q->peer == CHAIN_PEER_SELF ? queue : (unsigned)q->peer;
	uint64_t space = q->recv, sent;

	if (q->managed_recv) {
		space = q->start_recv;
		for (uint32_t i = 0; i < c->variants; i++) {
			const struct variant *v = &c->variant[i];

			if (variant_op(v) == ROOST_OP_RECV_ENABLE &&
			    chain_queue_of_number(c->p, (uint32_t)v->w.raddr) == (int)queue)
				space = UNLIMITED;
		}
		space = q->recv ? space : 0;
	}
	if (q->peer == CHAIN_PEER_OUTSIDE)
		return space;
	sent = times(c, from, count_slots(c, from, can_run(c, from), true));
	return sent < space ? sent : space;
}

/* Returns the number of completions that a WAIT in this slot may see. */
static uint64_t available(const struct checker *c, const struct chain_watch_name *w,
			  const struct variant *v)
{
	if (w->receives)
		return received(c, (unsigned)w->queue);
	if (w->queue == v->queue && !c->recycles[v->queue])
		return count_slots(c, v->queue, v->slot, false);
	return times(c, (unsigned)w->queue,
		     count_slots(c, (unsigned)w->queue, can_run(c, (unsigned)w->queue), false));
}

/* Returns the completions that the WAIT needs in the first turn of its queue. */
static uint64_t needed(const struct checker *c, const struct chain_watch_name *w,
		       const struct variant *v)
{
	uint64_t n = (uint32_t)v->w.swap_add;

	for (uint32_t i = 0; i < c->variants && v->w.raddr & ROOST_CHAIN_RELATIVE; i++) {
		const struct variant *o = &c->variant[i];
		struct chain_watch_name other;

		if (o->queue == v->queue && o->slot < v->slot && !o->rewritten &&
		    check_waits(c, o, &other) && o->w.raddr & ROOST_CHAIN_RELATIVE &&
		    memcmp(&other, w, sizeof(other)) == 0)
			n += (uint32_t)o->w.swap_add;
	}
	return n;
}

void check_wait_counts(struct checker *c)
{
	for (uint32_t i = 0; i < c->variants; i++) {
		const struct variant *v = &c->variant[i];
		struct chain_watch_name w;
		uint64_t has, needs;

		if (!check_waits(c, v, &w) || v->computed & 1 << 4 || v->w.swap_add >> 31)
			continue;
		has = available(c, &w, v);
		needs = needed(c, &w, v);
		if (needs > has)
			check_fault(c, CHAIN_FAULT_WAIT, check_line(c, v->queue, v->slot),
				    "this WAIT needs %llu completions of %s.%s, and there are %llu",
				    (unsigned long long)needs, c->p->queue[w.queue].name,
				    w.receives ? "receives" : "sends", (unsigned long long)has);
	}
}

/* ---- loops ---- */

typedef bool edges[CHAIN_MAX_QUEUES][CHAIN_MAX_QUEUES];

/* Finds, among the queues that loop, the queues that each queue reaches by ENABLEs. */
static void reach(const struct checker *c, edges to)
{
	const unsigned n = c->p->queues;

	for (uint32_t i = 0; i < c->variants; i++) {
		const struct variant *v = &c->variant[i];
		int q = check_enables(c, v);

		/* an absolute ENABLE has no effect the second time, unless its count grows */
		if (q >= 0 && c->loops[q] && c->loops[v->queue] &&
		    (v->w.raddr & ROOST_CHAIN_RELATIVE || v->computed & 1 << 4))
			to[v->queue][q] = true;
	}
	for (unsigned k = 0; k < n; k++)
		for (unsigned a = 0; a < n; a++)
			for (unsigned b = 0; b < n; b++)
				to[a][b] |= to[a][k] && to[k][b];
}

static bool in_loop(const edges to, unsigned of, unsigned queue)
{
	return to[of][queue] && to[queue][of];
}

/* Returns true for a WAIT for a number of ns from its turn on. */
static bool takes_time(const struct variant *v)
{
	const uint64_t kind = ROOST_CHAIN_TIME | ROOST_CHAIN_RELATIVE;

	return variant_op(v) == ROOST_OP_WAIT && !(v->computed & 1 << 2) &&
	       (v->w.raddr & kind) == kind && (v->w.swap_add || v->computed & 1 << 4);
}

/*
 * Returns true if a queue of the loop waits for a time, or for completions of queues outside of the
 * loop.
 */
static bool is_paced(const struct checker *c, const edges to, unsigned loop)
{
	for (uint32_t i = 0; i < c->variants; i++) {
		const struct variant *v = &c->variant[i];
		struct chain_watch_name w;
		int from;

		if (in_loop(to, loop, v->queue) && takes_time(v))
			return true;
		if (!in_loop(to, loop, v->queue) || !check_waits(c, v, &w) ||
		    !(v->w.raddr & ROOST_CHAIN_RELATIVE || v->computed & 1 << 4))
			continue;
		from = w.queue;
		if (w.receives && c->p->queue[w.queue].peer != CHAIN_PEER_SELF)
			from = c->p->queue[w.queue].peer;
		if (from < 0 || !in_loop(to, loop, (unsigned)from))
			return true;
	}
	return false;
}

/* Returns true if an ENABLE of the loop may become a WQE that does not continue the loop. */
static bool has_end(const struct checker *c, const edges to, unsigned loop)
{
	for (uint32_t i = 0; i < c->variants; i++) {
		const struct variant *v = &c->variant[i];
		int q = check_enables(c, v);

		if (q < 0 || !in_loop(to, loop, v->queue) || !in_loop(to, loop, (unsigned)q))
			continue;
		for (uint32_t k = 0; k < c->variants; k++) {
			const struct variant *o = &c->variant[k];
			int other = check_enables(c, o);

			if (o->queue == v->queue && o->slot == v->slot &&
			    (other < 0 || !in_loop(to, loop, (unsigned)other)))
				return true;
		}
	}
	return false;
}

static uint32_t loop_line(const struct checker *c, const edges to, unsigned loop)
{
	for (uint32_t i = 0; i < c->variants; i++) {
		const struct variant *v = &c->variant[i];
		int q = check_enables(c, v);

		if (q >= 0 && v->queue == loop && in_loop(to, loop, (unsigned)q) && !v->rewritten)
			return check_line(c, v->queue, v->slot);
	}
	return c->p->queue[loop].line;
}

void check_loops(struct checker *c)
{
	bool told[CHAIN_MAX_QUEUES] = {false};
	edges to;

	memset(to, 0, sizeof(to));
	reach(c, to);
	for (unsigned i = 0; i < c->p->queues; i++) {
		bool limited = false;

		if (!to[i][i] || told[i])
			continue;
		for (unsigned k = 0; k < c->p->queues; k++)
			if (in_loop(to, i, k)) {
				told[k] = true;
				limited |= c->p->queue[k].rate_limit != 0;
			}
		if (limited || is_paced(c, to, i) || (!c->how->strict && has_end(c, to, i)))
			continue;
		check_fault(c, CHAIN_FAULT_LOOP, loop_line(c, to, i),
			    "the loop of the queue %s has no rate_limit and no WAIT for others%s",
			    c->p->queue[i].name, c->how->strict ? "" : ", and never ends");
	}
}
