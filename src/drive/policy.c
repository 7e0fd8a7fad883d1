/* SPDX-License-Identifier: BSD-2-Clause */
#include "drive/policy.h"

static uint64_t min64(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static uint64_t max64(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

/* ---- the cost of a wake-up ---- */

void wake_cost_learn(struct wake_cost *w, uint64_t late)
{
	uint64_t ns = atomic_load_explicit(&w->ns, memory_order_relaxed);

	if (ns == 0)
		ns = late;
	else
		ns = late > ns ? ns + ns / 8 + 1 : ns - ns / 8;
	atomic_store_explicit(&w->ns, max64(ns, 1), memory_order_relaxed);
}

uint64_t wake_cost_stake(const struct wake_cost *w)
{
	uint64_t ns = atomic_load_explicit(&w->ns, memory_order_relaxed);

	return min64(max64(2 * (ns ? ns : policy_table.wake_first), policy_table.wake_min),
		     policy_table.wake_max);
}

/* ---- bets ---- */

void bet_settle(struct bet *b, uint64_t stake, uint64_t gap)
{
	int64_t cap = (int64_t)(policy_table.bet_cap * stake);

	b->sum += gap < stake ? (int64_t)(stake - gap) : -(int64_t)stake;
	if (b->sum > cap)
		b->sum = cap;
	if (b->sum < -cap)
		b->sum = -cap;
}

/* ---- the service thread ---- */

/*
 * Returns the length of a gap. A gap that ended with a wake-up would have ended earlier without the
 * wake-up.
 */
static uint64_t gap_until(uint64_t since, uint64_t now, uint64_t stake, bool slept)
{
	uint64_t gap = now > since ? now - since : 0;

	return !slept ? gap : gap > stake / 2 ? gap - stake / 2 : 0;
}

void spinner_init(struct spinner *s)
{
	*s = (struct spinner){.bet.sum = (int64_t)(policy_table.bet_cap * policy_table.wake_max)};
}

void spinner_sleeps(struct spinner *s, uint64_t now)
{
	s->slept_at = s->busy_polled ? now : 0;
	s->busy_polled = false;
}

/*
 * Stops spinning for `ns`, at least as long as a busy poll, or for twice the last pause if that
 * pause lasts or ended within its length.
 */
static void pause_spinning(struct spinner *s, uint64_t now, uint64_t ns)
{
	bool again = s->pause && now < s->until + s->pause;

	s->pause = max64(again ? 2 * s->pause : 0, policy_table.lost_factor * ns);
	s->pause = min64(s->pause, min64(policy_table.lost_most * ns, policy_table.lost_max));
	s->until = now + s->pause;
}

void spinner_worked(struct spinner *s, uint64_t now, uint64_t stake, bool slept, bool woke)
{
	if (s->idle_since)
		bet_settle(&s->bet, stake, gap_until(s->idle_since, now, stake, slept));
	if (s->slept_at) {
		bool waited = slept && now - s->slept_at < stake;

		if (waited && s->waited)
			pause_spinning(s, now, stake);
		s->waited = waited;
	}
	s->slept_at = 0;
	s->busy_polled = false;
	s->idle_since = now;
	s->woke = woke;
}

enum spin_action spinner_idle(struct spinner *s, uint64_t now, uint64_t stake)
{
	if (now < s->until || !s->idle_since || now - s->idle_since >= stake || !bet_on(&s->bet))
		return SPIN_SLEEP;
	s->busy_polled = true;
	if (!s->woke &&
	    now - s->yielded < (s->taken ? policy_table.yield_again : policy_table.yield_every))
		return SPIN_BUSY_POLL;
	s->woke = false;
	s->yielded = now;
	return SPIN_YIELD;
}

void spinner_lost(struct spinner *s, uint64_t now, uint64_t ns, bool yielded, uint64_t stake)
{
	bool brief = ns < policy_table.lost_min,
	     taken_before = s->taken && now - s->yield_ended < policy_table.in_a_row;

	if (yielded) {
		s->taken = ns >= policy_table.yield_untaken;
		s->yield_ended = now;
	}
	if (!brief || (yielded && s->taken && taken_before))
		pause_spinning(s, now, max64(ns, stake));
}

/* ---- the program ---- */

void caller_init(struct caller *c)
{
	atomic_store_explicit(&c->mem_spin, 0, memory_order_relaxed);
	atomic_store_explicit(&c->trial, (uint8_t)policy_table.trial, memory_order_relaxed);
	atomic_store_explicit(&c->hits, (uint8_t)policy_table.armed_hits, memory_order_relaxed);
	atomic_store_explicit(&c->enough, (uint16_t)policy_table.poller_from, memory_order_relaxed);
	atomic_store_explicit(&c->post_yields.every, 1, memory_order_relaxed);
	atomic_store_explicit(&c->poll_yields.every, 1, memory_order_relaxed);
}

/* Ends the row of requests that busy polls found. */
static void end_row(struct caller *c)
{
	atomic_store_explicit(&c->found, 0, memory_order_relaxed);
}

/* Returns true if busy polls find every request. caller_gone() reports the first one missed. */
static bool in_row(const struct caller *c)
{
	return atomic_load_explicit(&c->found, memory_order_relaxed) >=
	       atomic_load_explicit(&c->enough, memory_order_relaxed);
}

/* CALLER_SLEEPS takes precedence, because any packet may have to wake such a program. */
enum caller_kind caller_kind(const struct caller *c)
{
	if (caller_sleeps(c))
		return CALLER_SLEEPS;
	if (in_row(c))
		return CALLER_POLLS;
	return caller_spins(c) ? CALLER_SPINS : CALLER_POLLS;
}

void caller_armed(struct caller *c)
{
	atomic_store_explicit(&c->hits, 0, memory_order_seq_cst);
}

/*
 * A successful poll shows that the program neither spins on memory nor sleeps. While busy polls
 * find the requests of its peer, a successful poll shows nothing, because without them the program
 * would spin on memory.
 */
void caller_hit(struct caller *c)
{
	uint8_t mem_spin = atomic_load_explicit(&c->mem_spin, memory_order_relaxed);
	uint8_t hits = atomic_load_explicit(&c->hits, memory_order_relaxed);

	if (mem_spin > 0 && !atomic_load_explicit(&c->found, memory_order_relaxed))
		atomic_store_explicit(&c->mem_spin, mem_spin - 1, memory_order_relaxed);
	/* The exchange must not overwrite a concurrent arming. */
	if (hits < policy_table.armed_hits)
		atomic_compare_exchange_strong_explicit(&c->hits, &hits, hits + 1,
							memory_order_relaxed, memory_order_relaxed);
}

/*
 * Packets waited for the service thread although the program called a moment ago, so the program
 * may spin on memory. Each call counts once: a poller that was preempted does not come back between
 * the turns that the service thread runs in a row.
 */
void caller_found_by_service(struct caller *c, uint64_t last_call, uint64_t now)
{
	uint8_t mem_spin = atomic_load_explicit(&c->mem_spin, memory_order_relaxed);

	if (!last_call || last_call == c->counted)
		return;
	if (now <= last_call + policy_table.mem_spin_min ||
	    now >= last_call + policy_table.mem_spin_max)
		return;
	c->counted = last_call;
	if (in_row(c)) { /* nothing but this look would have found the packets */
		unsigned enough = atomic_load_explicit(&c->enough, memory_order_relaxed) * 2u;

		if (enough > policy_table.poller_most)
			enough = policy_table.poller_most;
		atomic_store_explicit(&c->enough, (uint16_t)enough, memory_order_relaxed);
	}
	end_row(c);
	if (mem_spin < policy_table.mem_spin_cap)
		atomic_store_explicit(&c->mem_spin,
				      (uint8_t)(mem_spin + policy_table.mem_spin_step),
				      memory_order_relaxed);
}

void caller_posted(struct caller *c, uint64_t now, uint64_t requests, uint64_t stake)
{
	caller_requests(c, now, stake, requests, false);
	if (c->awaits_since) { /* the post before this one got no answer */
		bet_settle(&c->busy_poll, stake, UINT64_MAX);
		end_row(c);
	}
	c->awaits_since = 0;
	if (c->posted)
		c->posts_polled = 0;
	c->posted = c->awaits = true;
	c->requests = requests;
}

/*
 * Returns the action beside a program that spins on memory. If the program is about to poll,
 * packets need not wake the service thread.
 */
static enum caller_action mask_or_not(struct caller *c, enum pu_turn turn, bool masked)
{
	switch (turn) {
	case PU_IDLE:
		return CALLER_KEEP;
	case PU_POSTED:
		if (c->posts_polled >= policy_table.posts_polled)
			return CALLER_MASK;
		return masked ? CALLER_UNMASK : CALLER_REARM;
	case PU_YIELDS: /* the thread looks for the answer after the yield */
		return CALLER_MASK;
	case PU_IN_VAIN:
		if (masked || ++c->in_vain < policy_table.vain_polls)
			return CALLER_KEEP;
		return CALLER_MASK;
	case PU_BUSY:
		return CALLER_MASK;
	case PU_TAKEN:
		c->in_vain = 0;
		return masked ? CALLER_UNMASK : CALLER_REARM;
	case PU_SENT:
	case PU_POLLED:
	case PU_WORKED:
		break;
	}
	return masked ? CALLER_KEEP : CALLER_REARM;
}

/* Returns the action beside a program that polls for all its packets. */
static enum caller_action poller_beside(struct caller *c, enum pu_turn turn, bool masked,
					uint64_t now, uint64_t wake)
{
	bool dense;

	switch (turn) {
	case PU_IDLE:
	case PU_IN_VAIN:
		return CALLER_KEEP;
	/* the answer need not wake the service thread if a poll is going to find it */
	case PU_POSTED:
		c->posts_polled = c->posted ? 0 : c->posts_polled;
		c->posted = true;
		if (c->posts_polled < policy_table.posts_polled)
			return masked ? CALLER_UNMASK : CALLER_REARM;
		if (wake > now + policy_table.mask_most)
			return masked ? CALLER_WAKE : CALLER_REARM;
		return masked ? CALLER_KEEP : CALLER_MASK;
	case PU_POLLED:
		dense = now - c->found_at < policy_table.dense;
		c->found_at = now;
		return dense ? CALLER_WAKE : masked ? CALLER_UNMASK : CALLER_REARM;
	case PU_BUSY:
		return CALLER_WAKE;
	case PU_TAKEN: /* its busy poll masked the packets, and it may not poll again */
		return masked ? CALLER_UNMASK : CALLER_REARM;
	case PU_SENT:
	case PU_WORKED:
	case PU_YIELDS:
		break;
	}
	return masked ? CALLER_KEEP : CALLER_REARM;
}

/*
 * Returns the action beside a program whose busy polls find every request. Each wake-up of the
 * service thread would take a core from this program or its peer, so the thread sleeps on, masked,
 * until its own time to look. It leaves the ports then.
 */
static enum caller_action row_beside(enum pu_turn turn, bool masked, uint64_t now, uint64_t wake)
{
	if (turn == PU_IDLE || turn == PU_IN_VAIN)
		return CALLER_KEEP;
	if (turn == PU_SENT && !masked) /* the program may sleep until the answer */
		return CALLER_REARM;
	if (wake > now + policy_table.mask_most)
		return CALLER_WAKE;
	return masked ? CALLER_KEEP : CALLER_MASK;
}

enum caller_action caller_beside(struct caller *c, enum pu_turn turn, bool masked, uint64_t now,
				 uint64_t wake, bool waiter)
{
	enum caller_action action;

	switch (caller_kind(c)) {
	case CALLER_POLLS:
		if (in_row(c) && !waiter)
			return row_beside(turn, masked, now, wake);
		return poller_beside(c, turn, masked, now, wake);
	case CALLER_SLEEPS:
		if (masked)
			return CALLER_UNMASK;
		return turn == PU_IN_VAIN || turn == PU_IDLE ? CALLER_KEEP : CALLER_REARM;
	case CALLER_SPINS:
		break;
	}
	action = mask_or_not(c, turn, masked);
	/*
	 * The program may never poll again, so the service thread must look by itself before long.
	 */
	if (action == CALLER_MASK)
		return wake > now + policy_table.mask_most ? CALLER_WAKE
		       : masked				   ? CALLER_KEEP
							   : CALLER_MASK;
	return action;
}

/* Counts a poll that did not find the request of the peer. */
static void trial_step(struct caller *c)
{
	uint8_t trial = atomic_load_explicit(&c->trial, memory_order_relaxed);

	if (trial)
		atomic_store_explicit(&c->trial, trial - 1, memory_order_relaxed);
}

uint64_t caller_busy_poll(struct caller *c, uint64_t now, uint64_t stake, uint64_t requests)
{
	bool batch = atomic_load_explicit(&c->batch, memory_order_relaxed),
	     awaits = c->awaits && !batch;

	if (batch)
		atomic_store_explicit(&c->batch, false, memory_order_relaxed);
	c->awaits = false;
	if (!awaits || requests != c->requests || c->awaits_since || caller_sleeps(c)) {
		trial_step(c);
		return 0;
	}
	c->awaits_since = now;
	return bet_on(&c->busy_poll) ? now + stake : 0;
}

void caller_gone(struct caller *c)
{
	uint8_t mem_spin = atomic_load_explicit(&c->mem_spin, memory_order_relaxed);

	if (in_row(c)) { /* the service thread is woken now, so no packet waits for its own look */
		unsigned half = atomic_load_explicit(&c->enough, memory_order_relaxed) / 2u;

		if (half < policy_table.poller_from)
			half = policy_table.poller_from;
		atomic_store_explicit(&c->enough, (uint16_t)half, memory_order_relaxed);
	}
	end_row(c);
	/* as many points as one successful poll undoes */
	if (c->awaits_since && atomic_load_explicit(&c->trial, memory_order_relaxed) &&
	    mem_spin < policy_table.mem_spin_from)
		atomic_store_explicit(&c->mem_spin, (uint8_t)policy_table.mem_spin_from,
				      memory_order_relaxed);
	trial_step(c);
}

void caller_received(struct caller *c)
{
	c->awaits_since = 0;
	end_row(c);
	trial_step(c);
}

/*
 * Counts a request that came soon after the program took its completion. The first such request
 * ends the trial: the program spins on memory.
 */
static void found_one(struct caller *c)
{
	uint16_t found = atomic_load_explicit(&c->found, memory_order_relaxed),
		 enough = atomic_load_explicit(&c->enough, memory_order_relaxed);

	if (atomic_load_explicit(&c->trial, memory_order_relaxed)) {
		found = enough - 1;
		atomic_store_explicit(&c->trial, 0, memory_order_relaxed);
		if (!caller_spins(c))
			atomic_store_explicit(&c->mem_spin, (uint8_t)policy_table.mem_spin_cap,
					      memory_order_relaxed);
	}
	if (found < enough)
		atomic_store_explicit(&c->found, found + 1, memory_order_relaxed);
}

void caller_requests(struct caller *c, uint64_t now, uint64_t stake, uint64_t requests, bool slept)
{
	uint64_t gap;

	if (!c->awaits_since || requests == c->requests)
		return;
	gap = gap_until(c->awaits_since, now, stake, slept);
	bet_settle(&c->busy_poll, stake, gap);
	/* The peer of a new program answers, though late: it may have begun late. */
	if (c->busy_poll.sum < 0 && atomic_load_explicit(&c->trial, memory_order_relaxed))
		c->busy_poll.sum = 0;
	c->awaits_since = 0;
	if (slept || gap >= stake)
		end_row(c);
	else
		found_one(c);
}

/* ---- yielding the only core ---- */

/* Counts an occasion. Returns true if the thread yields now. */
static bool yield_due(struct yield_rate *r)
{
	uint32_t left = atomic_load_explicit(&r->in, memory_order_relaxed);

	if (left > 1) {
		atomic_store_explicit(&r->in, left - 1, memory_order_relaxed);
		return false;
	}
	atomic_store_explicit(&r->in, atomic_load_explicit(&r->every, memory_order_relaxed),
			      memory_order_relaxed);
	return true;
}

/* Makes yields more rare, unless another thread took this one. */
static void yield_count(struct yield_rate *r, uint64_t took, uint64_t call)
{
	uint32_t every = atomic_load_explicit(&r->every, memory_order_relaxed);

	if (took >= max64(policy_table.yield_untaken, policy_table.yield_calls * call))
		every = 1;
	else if (every < policy_table.yield_rarely)
		every *= 2;
	atomic_store_explicit(&r->every, every, memory_order_relaxed);
}

bool caller_yields(struct caller *c, uint64_t now)
{
	return yield_due(&c->post_yields) &&
	       now >= atomic_load_explicit(&c->no_yield_until, memory_order_relaxed);
}

void caller_yield_needless(struct caller *c, uint64_t now)
{
	atomic_store_explicit(&c->one_core, false, memory_order_relaxed);
	atomic_store_explicit(&c->no_yield_until, now + policy_table.core_recheck,
			      memory_order_relaxed);
}

void caller_yielded(struct caller *c, uint64_t now, uint64_t took, uint64_t call, bool answered)
{
	atomic_store_explicit(&c->one_core, true, memory_order_relaxed);
	atomic_store_explicit(&c->call_ns, call, memory_order_relaxed);
	yield_count(&c->post_yields, took, call);
	if (took > policy_table.yield_long && !answered)
		atomic_store_explicit(&c->no_yield_until,
				      now + took * (1 + policy_table.yield_factor),
				      memory_order_relaxed);
}

bool caller_yields_in_poll(struct caller *c)
{
	return atomic_load_explicit(&c->one_core, memory_order_relaxed) &&
	       yield_due(&c->poll_yields);
}

void caller_yielded_in_poll(struct caller *c, uint64_t took)
{
	yield_count(&c->poll_yields, took, atomic_load_explicit(&c->call_ns, memory_order_relaxed));
}

uint64_t policy_nap(const struct caller *c, uint64_t last, bool armed)
{
	uint64_t nap = in_row(c) ? policy_table.nap_max
		       : last	 ? policy_table.nap_grow * last
				 : policy_table.nap_min;

	return min64(nap, armed ? policy_table.nap_armed : policy_table.nap_max);
}
