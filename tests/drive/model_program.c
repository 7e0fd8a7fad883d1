/* SPDX-License-Identifier: BSD-2-Clause */
/* The programs of the model: they call the library as their script says. */
#include "model.h"

#define LOOK_NS 30 /* a read of memory */

static void answered(struct end *e, struct task *t)
{
	if (e->posted_at && e->samples < MODEL_SAMPLES)
		e->lat[e->samples++] = clk(t) - e->posted_at;
	e->posted_at = 0;
	e->doing = D_THINK;
	e->until = clk(t) + (clk(t) < e->script.slow_from ? 0 : e->script.think);
}

/* Polls the completion queue once. Returns whether it had a completion. */
static bool poll_cq(struct end *e, struct task *t)
{
	if (!e->cqes)
		drive_progress(e, t);
	else
		t->cost += CALL_NS;
	if (!e->cqes)
		return false;
	e->cqes--;
	return true;
}

static void post(struct end *e, struct task *t)
{
	bool one = model_one_core(t);

	e->posted_at = clk(t);
	if (++e->posts == e->script.fault_at)
		t->cost += e->script.fault;
	e->after = e->script.habit == SPINS ? D_COMPLETE : D_WAIT;
	e->vain = 0;
	e->doing = e->after;
	if (!drive_doorbell(e, t))
		return;
	e->yielded_at = clk(t);
	if (!one) {
		drive_yield_back(e, t, false);
		return;
	}
	t->cost += SYS_NS;
	t->yields = true;
	e->doing = D_YIELD;
}

static void sleep_in_channel(struct end *e, struct task *t)
{
	t->cost += SYS_NS;
	e->doing = D_SLEEP;
	if (e->event)
		return;
	t->sleeps = true;
	t->until = NEVER;
}

static void wait(struct end *e, struct task *t)
{
	if (e->script.habit == SPINS) {
		t->cost += LOOK_NS;
		if (e->memory == e->memory_seen)
			return;
		e->memory_seen++;
		answered(e, t);
		return;
	}
	if (poll_cq(e, t)) {
		answered(e, t);
		return;
	}
	if (e->script.habit != SLEEPS_IN || ++e->vain < e->script.vain_polls)
		return;
	/* A waiting completion raises the event at once. */
	e->vain = 0;
	e->event = e->cqes > 0;
	e->cq_armed = !e->event;
	drive_cq_armed(e, t);
	e->doing = D_LAST_POLL;
}

void program_step(struct task *t)
{
	struct end *e = t->end;

	if (e->script.habit == PASSIVE ||
	    (e->script.stop && t->m->now >= e->script.stop && !e->owned)) {
		t->sleeps = true;
		t->until = NEVER;
		return;
	}
	switch (e->doing) {
	case D_BEGIN:
		t->cost += LOOK_NS;
		if (clk(t) >= e->until)
			e->doing = e->script.starts ? D_POST : D_WAIT;
		break;
	case D_THINK:
		t->cost += LOOK_NS;
		if (clk(t) >= e->until) {
			e->doing = D_POST;
		} else if (e->script.habit == SLEEPS_IN) {
			t->sleeps = true;
			t->until = e->until;
		}
		break;
	case D_POST:
		post(e, t);
		break;
	case D_YIELD:
		e->doing = e->after;
		drive_yield_back(e, t, true);
		break;
	case D_COMPLETE:
		if (poll_cq(e, t))
			e->doing = drive_cqes_taken(e, t) ? D_BUSY_POLL : D_WAIT;
		break;
	case D_BUSY_POLL:
		drive_busy_poll(e, t);
		break;
	case D_BUSY_POLL_BACK:
		drive_busy_poll_back(e, t);
		break;
	case D_WAIT:
		wait(e, t);
		break;
	case D_LAST_POLL:
		if (e->script.last_poll && poll_cq(e, t))
			answered(e, t);
		else
			sleep_in_channel(e, t);
		break;
	case D_SLEEP:
		t->cost += SYS_NS;
		e->doing = D_WAIT;
		break;
	}
}
