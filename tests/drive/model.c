/* SPDX-License-Identifier: BSD-2-Clause */
/* The machine of the model: cores, run queues, wake-ups. */
#include <string.h>

#include "model.h"

#define SLICE	  (3 * MS)
#define SWITCH_NS 1000 /* duration of a switch between tasks */

void model_init(struct model *m, unsigned cores, uint64_t wake)
{
	memset(m, 0, sizeof(*m));
	m->num_cores = cores;
	m->wake = wake;
	m->wire = 300;
	m->late_at = NEVER;
	m->now = 1000 * MS; /* a time of 0 means never */
	m->stale = true;
}

struct task *model_task(struct model *m, void (*step)(struct task *t), unsigned cores)
{
	struct task *t = &m->task[m->num_tasks++];

	t->m = m;
	t->step = step;
	t->cores = cores;
	t->state = TASK_ASLEEP;
	t->wakes = m->wake;
	t->until = m->now;
	t->ready = NEVER;
	t->slept = m->now;
	m->stale = true;
	return t;
}

bool model_one_core(const struct task *t)
{
	unsigned cores = t->cores & ((1u << t->m->num_cores) - 1);

	return (cores & (cores - 1)) == 0;
}

static void hog_step(struct task *t)
{
	t->cost = 20 * US;
	if (!t->period)
		return;
	if (!t->begun)
		t->begun = t->ran + t->cost;
	else if (t->ran - t->begun + t->cost >= t->burst) {
		t->begun = 0;
		t->sleeps = true;
		t->until = t->m->now + t->period - t->burst;
	}
}

struct task *model_hog(struct model *m, unsigned cores, uint64_t period, uint64_t burst)
{
	struct task *t = model_task(m, hog_step, cores);

	t->period = period;
	t->burst = burst;
	return t;
}

/* ---- scheduling ---- */

static void run(struct model *m, unsigned c, struct task *t)
{
	/* On an idle core the switch is part of the wake-up. */
	m->core[c].until = m->now + (m->core[c].task ? SWITCH_NS : 0);
	m->core[c].task = t;
	m->core[c].slice_end = m->now + SLICE;
	m->num_ready -= t->state == TASK_READY;
	t->state = TASK_RUNS;
	t->core = c;
	m->stale = true;
}

static void make_ready(struct model *m, struct task *t)
{
	t->state = TASK_READY;
	m->num_ready++;
	m->stale = true;
}

/* Returns the waiting task of this core with the least run time. */
static struct task *most_due(struct model *m, unsigned c)
{
	struct task *best = NULL;

	if (!m->num_ready)
		return NULL;
	for (unsigned i = 0; i < m->num_tasks; i++) {
		struct task *t = &m->task[i];

		if (t->state == TASK_READY && t->core == c &&
		    (!best || t->vruntime < best->vruntime))
			best = t;
	}
	return best;
}

/* An idle core takes a task that waits for another core. */
static struct task *steal(struct model *m, unsigned c)
{
	for (unsigned i = 0; i < m->num_tasks; i++) {
		struct task *t = &m->task[i];

		if (t->state == TASK_READY && t->cores & 1u << c)
			return t;
	}
	return NULL;
}

static void next_task(struct model *m, unsigned c)
{
	struct task *t = most_due(m, c);

	if (!t)
		t = steal(m, c);
	m->core[c].task = NULL;
	m->stale = true;
	if (t)
		run(m, c, t);
}

/*
 * Chooses the last core if it is idle, else another idle core, else the last core. There the task
 * preempts a task that has run longer.
 */
static void enqueue(struct model *m, struct task *t)
{
	unsigned c = t->core;
	struct task *other;

	t->wakeups++;
	t->ready = NEVER;
	t->until = NEVER;
	if (!(t->cores & 1u << c) || m->core[c].task) {
		for (unsigned k = 0; k < m->num_cores; k++) {
			if (t->cores & 1u << k && (!m->core[k].task || !(t->cores & 1u << c)))
				c = k;
		}
	}
	t->core = c;
	other = m->core[c].task;
	if (!other) {
		run(m, c, t);
		return;
	}
	/*
	 * A sleeping task loses its excess of run time, and gains the credit of one slice at most.
	 */
	if (t->vruntime > other->vruntime)
		t->vruntime -= (int64_t)(m->now - t->slept);
	if (t->vruntime < other->vruntime - (int64_t)SLICE)
		t->vruntime = other->vruntime - (int64_t)SLICE;
	make_ready(m, t);
	if (t->vruntime < other->vruntime)
		m->core[c].slice_end = m->now; /* ends with the current step */
}

/* If the only allowed core is awake, the wake-up costs a switch. */
static uint64_t wake_up(const struct task *t)
{
	return model_one_core(t) && t->m->core[t->core].task ? 0 : t->wakes;
}

void model_wake(struct task *t)
{
	if (t->state != TASK_ASLEEP)
		t->woken = true;
	else if (t->ready == NEVER) {
		t->ready = t->m->now + wake_up(t);
		t->m->stale = true;
	}
}

/* Ends the step of the task on this core. */
static void end_of_step(struct model *m, unsigned c)
{
	struct task *t = m->core[c].task, *other;

	if (t->sleeps && !t->woken) {
		t->sleeps = false;
		t->state = TASK_ASLEEP;
		t->slept = m->now;
		t->ready = NEVER;
		next_task(m, c);
		return;
	}
	other = most_due(m, c);
	if (other && (t->yields || m->now >= m->core[c].slice_end)) {
		t->forced++; /* Linux counts a yield too, since the task stays runnable */
		if (t->yields || other->vruntime < t->vruntime) {
			make_ready(m, t);
			run(m, c, other);
		} else {
			t->forced--;
			m->core[c].slice_end = m->now + SLICE;
		}
	}
	t->sleeps = t->yields = false;
}

static void step(struct model *m, unsigned c)
{
	struct task *t = m->core[c].task;

	t->woken = false;
	t->cost = 0;
	t->step(t);
	t->steps++;
	t->ran += t->cost;
	t->vruntime += (int64_t)t->cost;
	m->core[c].until = m->now + (t->cost ? t->cost : 1);
}

static uint64_t min64(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static uint64_t task_due(const struct task *t)
{
	if (t->state != TASK_ASLEEP)
		return NEVER;
	return min64(t->ready, t->until == NEVER ? NEVER : t->until + wake_up(t));
}

static void find_due(struct model *m)
{
	m->stale = false;
	m->due = NEVER;
	for (unsigned i = 0; i < m->num_tasks; i++)
		m->due = min64(m->due, task_due(&m->task[i]));
	for (unsigned i = 0; i < m->num_ends; i++)
		m->due = min64(m->due, end_next_packet(&m->end[i]));
}

static uint64_t next_event(struct model *m)
{
	uint64_t next;

	if (m->stale)
		find_due(m);
	next = m->due;
	for (unsigned c = 0; c < m->num_cores; c++) {
		if (m->core[c].task)
			next = min64(next, m->core[c].until);
	}
	return next;
}

/* Delivers packets and wakes tasks. A packet may wake a task without delay. */
static void deliver_due(struct model *m)
{
	m->stale = true;
	for (unsigned i = 0; i < m->num_ends; i++) {
		while (end_next_packet(&m->end[i]) <= m->now)
			end_packet_came(&m->end[i]);
	}
	for (unsigned i = 0; i < m->num_tasks; i++) {
		if (task_due(&m->task[i]) <= m->now)
			enqueue(m, &m->task[i]);
	}
}

void model_run(struct model *m, uint64_t ns)
{
	uint64_t end = m->now + ns, next;

	while ((next = next_event(m)) <= end) {
		m->now = next;
		if (m->due <= m->now)
			deliver_due(m);
		for (unsigned c = 0; c < m->num_cores; c++) {
			if (m->core[c].task && m->core[c].until <= m->now)
				end_of_step(m, c);
			if (m->core[c].task && m->core[c].until <= m->now)
				step(m, c);
		}
	}
	m->now = end;
}
