/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Compares the wheel with a plain array of deadlines: random adds, moves, deletes and jumps of
 * time, from a seed.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/rng.h"
#include "base/wheel.h"

#define TIMERS 200
#define STEPS  4000
#define SEEDS  30
#define TICK   (1ull << WHEEL_TICK_BITS)
#define SECOND 1000000000ull
#define HOUR   (3600 * SECOND)

static struct wheel w;

/* The timers that fired, in order. */
struct fired {
	unsigned n;
	struct wheel_timer *t[TIMERS];
};

static void note(void *ctx, struct wheel_timer *t)
{
	struct fired *f = ctx;

	assert_false(wheel_pending(t));
	assert_true(f->n < TIMERS);
	f->t[f->n++] = t;
}

static unsigned expire(uint64_t now, struct fired *f)
{
	f->n = 0;

	unsigned n = wheel_expire(&w, now, note, f);

	assert_int_equal(n, f->n);
	return n;
}

static void one_timer_fires_at_its_deadline(void **state)
{
	static const uint64_t starts[] = {0, 1, TICK - 1, 123456789, HOUR + 77};
	static const uint64_t after[] = {
		0,	   1,	   TICK - 1, TICK,	TICK + 1,      63 * TICK,     64 * TICK,
		65 * TICK, SECOND, HOUR,     24 * HOUR, 400000 * HOUR, 5000000 * HOUR};
	struct fired f;

	for (unsigned s = 0; s < sizeof(starts) / sizeof(*starts); s++) {
		for (unsigned a = 0; a < sizeof(after) / sizeof(*after); a++) {
			uint64_t deadline = starts[s] + after[a];
			struct wheel_timer t = {0};

			wheel_init(&w, starts[s]);
			assert_true(wheel_next(&w) == WHEEL_NEVER);
			assert_int_equal(expire(starts[s], &f), 0);
			wheel_add(&w, &t, deadline);
			assert_true(wheel_pending(&t));
			assert_true(wheel_next(&w) == deadline);
			if (after[a]) {
				assert_int_equal(expire(deadline - 1, &f), 0);
				assert_true(wheel_pending(&t));
				assert_true(wheel_next(&w) == deadline);
			}
			assert_int_equal(expire(deadline, &f), 1);
			assert_ptr_equal(f.t[0], &t);
			assert_true(wheel_next(&w) == WHEEL_NEVER);
		}
	}
}

static void past_deadline_fires_at_once(void **state)
{
	struct wheel_timer t = {0}, u = {0};
	struct fired f;

	wheel_init(&w, 10 * SECOND);
	wheel_add(&w, &t, SECOND);
	assert_true(wheel_next(&w) == SECOND);
	assert_int_equal(expire(10 * SECOND, &f), 1);
	/* Time may go back: then only the timers that are due fire. */
	wheel_add(&w, &t, 10 * SECOND);
	assert_int_equal(expire(9 * SECOND, &f), 0);
	assert_true(wheel_pending(&t));
	wheel_add(&w, &u, 8 * SECOND);
	assert_int_equal(expire(9 * SECOND, &f), 1);
	assert_ptr_equal(f.t[0], &u);
	assert_int_equal(expire(10 * SECOND, &f), 1);
}

static void end_of_time(void **state)
{
	struct wheel_timer t = {0}, never = {0};
	struct fired f;

	wheel_init(&w, 5);
	wheel_add(&w, &never, UINT64_MAX);
	wheel_add(&w, &t, UINT64_MAX - 1);
	assert_true(wheel_next(&w) == UINT64_MAX - 1);
	assert_int_equal(expire(UINT64_MAX - 2, &f), 0);
	assert_int_equal(expire(UINT64_MAX - 1, &f), 1);
	assert_ptr_equal(f.t[0], &t);
	assert_true(wheel_pending(&never));
	wheel_del(&w, &never);
	assert_true(wheel_next(&w) == WHEEL_NEVER);
}

static void ticks_fire_in_order(void **state)
{
	struct wheel_timer t[50] = {0};
	struct fired f;
	struct rng r;

	rng_seed(&r, 3);
	wheel_init(&w, 0);
	for (unsigned i = 0; i < 50; i++)
		wheel_add(&w, &t[i], rng_below(&r, 100 * SECOND));
	assert_int_equal(expire(100 * SECOND, &f), 50);
	for (unsigned i = 1; i < 50; i++)
		assert_true(f.t[i]->deadline / TICK >= f.t[i - 1]->deadline / TICK);
	/* Timers of one tick fire in the order in which they were added. */
	for (unsigned i = 0; i < 50; i++)
		wheel_add(&w, &t[i], 200 * SECOND);
	assert_int_equal(expire(200 * SECOND, &f), 50);
	for (unsigned i = 0; i < 50; i++)
		assert_ptr_equal(f.t[i], &t[i]);
}

struct model {
	struct wheel_timer t[TIMERS];
	uint64_t deadline[TIMERS]; /* 0: not armed */
	uint64_t now;
	bool meddle; /* the callback adds and deletes */
	struct rng rng;
	unsigned fired;
};

static uint64_t model_next(const struct model *m)
{
	uint64_t next = UINT64_MAX;

	for (unsigned i = 0; i < TIMERS; i++)
		if (m->deadline[i] && m->deadline[i] < next)
			next = m->deadline[i];
	return next;
}

/* Spans of every size: from within a tick to days. */
static uint64_t span(struct rng *r)
{
	return rng_below(r, 1ull << (1 + rng_below(r, 50)));
}

static void model_add(struct model *m, unsigned i)
{
	uint64_t d = m->now + span(&m->rng);

	if (rng_below(&m->rng, 20) == 0)
		d = 1 + rng_below(&m->rng, m->now + 1);
	m->deadline[i] = d ? d : 1;
	wheel_add(&w, &m->t[i], m->deadline[i]);
}

static void model_del(struct model *m, unsigned i)
{
	m->deadline[i] = 0;
	wheel_del(&w, &m->t[i]);
	assert_false(wheel_pending(&m->t[i]));
}

static void model_fire(void *ctx, struct wheel_timer *t)
{
	struct model *m = ctx;
	unsigned i = (unsigned)(t - m->t);

	assert_ptr_equal(t->owner, m);
	assert_true(m->deadline[i] != 0);
	assert_true(m->deadline[i] <= m->now);
	m->deadline[i] = 0;
	m->fired++;
	if (m->meddle && rng_below(&m->rng, 2)) {
		model_add(m, rng_below(&m->rng, 2) ? i : (unsigned)rng_below(&m->rng, TIMERS));
		model_del(m, (unsigned)rng_below(&m->rng, TIMERS));
	}
}

static void model_run(uint64_t seed, bool meddle)
{
	struct model m = {.meddle = meddle};

	rng_seed(&m.rng, seed);
	m.now = rng_below(&m.rng, 1ull << 40);
	wheel_init(&w, m.now);
	for (unsigned i = 0; i < TIMERS; i++)
		m.t[i].owner = &m;
	for (unsigned step = 0; step < STEPS; step++) {
		unsigned i = (unsigned)rng_below(&m.rng, TIMERS);

		switch (rng_below(&m.rng, 4)) {
		case 0:
		case 1:
			model_add(&m, i);
			break;
		case 2:
			model_del(&m, i);
			break;
		case 3:
			m.now = rng_below(&m.rng, 3) ? m.now + span(&m.rng) : wheel_next(&w);
			if (m.now == WHEEL_NEVER)
				m.now = 1ull << 40;
			wheel_expire(&w, m.now, model_fire, &m);
			/* No due timer is left, except those that the callbacks added. */
			if (!meddle)
				assert_true(model_next(&m) > m.now);
			break;
		}
		assert_true(wheel_next(&w) <= model_next(&m));
		for (unsigned k = 0; k < TIMERS; k++)
			assert_int_equal(wheel_pending(&m.t[k]), m.deadline[k] != 0);
	}
	/*
	 * No timer is lost: steps from deadline to deadline end, and each timer fires at its time.
	 */
	m.meddle = false;
	for (unsigned rounds = 0; model_next(&m) != UINT64_MAX; rounds++) {
		assert_true(rounds <= 2 * TIMERS);
		if (wheel_next(&w) > m.now)
			m.now = wheel_next(&w); /* a caller that sleeps until then does not spin */
		wheel_expire(&w, m.now, model_fire, &m);
		assert_true(model_next(&m) > m.now);
	}
	assert_true(m.fired > 100);
	assert_true(wheel_next(&w) == WHEEL_NEVER);
}

static void agrees_with_a_model(void **state)
{
	for (uint64_t seed = 0; seed < SEEDS; seed++) {
		print_message("seed %u\n", (unsigned)seed);
		model_run(seed, seed % 2);
	}
}

/* A callback deletes, moves and re-arms timers that were about to fire with it. */
static struct wheel_timer trio[3];
static unsigned trio_fired[3];

static void trio_fire(void *ctx, struct wheel_timer *t)
{
	trio_fired[t - trio]++;
	if (t == &trio[0]) {
		wheel_del(&w, &trio[1]);
		wheel_add(&w, &trio[2], 5 * SECOND);
		/* due already: it fires at the next expire, or this call would not end */
		wheel_add(&w, &trio[0], 1);
	}
}

static void callback_changes_due_timers(void **state)
{
	wheel_init(&w, 0);
	for (int i = 0; i < 3; i++)
		wheel_add(&w, &trio[i], SECOND + (uint64_t)i * TICK);
	assert_int_equal(wheel_expire(&w, 2 * SECOND, trio_fire, NULL), 1);
	assert_int_equal(trio_fired[0], 1);
	assert_int_equal(trio_fired[1] + trio_fired[2], 0);
	assert_false(wheel_pending(&trio[1]));
	assert_true(wheel_pending(&trio[0]));
	assert_true(wheel_next(&w) <= 2 * SECOND);
	assert_int_equal(wheel_expire(&w, 2 * SECOND, trio_fire, NULL), 1);
	assert_int_equal(trio_fired[0], 2);
	wheel_del(&w, &trio[0]);
	assert_int_equal(wheel_expire(&w, 5 * SECOND - 1, trio_fire, NULL), 0);
	assert_int_equal(wheel_expire(&w, 5 * SECOND, trio_fire, NULL), 1);
	assert_int_equal(trio_fired[2], 1);
	assert_true(wheel_next(&w) == WHEEL_NEVER);
}

/*
 * wheel_next() may still return the deadline of a deleted timer, but not after that time: no caller
 * spins on it.
 */
static void stale_next_goes_away(void **state)
{
	struct wheel_timer a = {0}, b = {0};
	struct fired f;

	wheel_init(&w, 0);
	wheel_add(&w, &a, SECOND);
	wheel_add(&w, &b, SECOND + 10);
	wheel_del(&w, &a);
	assert_true(wheel_next(&w) <= SECOND + 10);
	assert_int_equal(expire(SECOND + 5, &f), 0);
	assert_true(wheel_next(&w) == SECOND + 10);
	assert_int_equal(expire(SECOND + 10, &f), 1);
}

/*
 * A limited number fires at a time, in order. A timer that waits can be deleted or moved. Until all
 * have fired, the next deadline is in the past.
 */
static struct wheel_timer crowd[100];
static unsigned crowd_next;

static void crowd_fire(void *ctx, struct wheel_timer *t)
{
	assert_ptr_equal(t, &crowd[crowd_next++]);
	crowd_next += crowd_next == 40 || crowd_next == 90; /* deleted before */
}

static void fires_some_at_a_time(void **state)
{
	wheel_init(&w, 0);
	crowd_next = 0;
	for (unsigned i = 0; i < 100; i++)
		wheel_add(&w, &crowd[i], SECOND);
	assert_int_equal(wheel_expire_some(&w, 2 * SECOND, 30, crowd_fire, NULL), 30);
	assert_true(wheel_next(&w) <= 2 * SECOND);
	wheel_del(&w, &crowd[40]);
	wheel_add(&w, &crowd[90], 3 * SECOND);
	assert_true(wheel_pending(&crowd[50]));
	assert_int_equal(wheel_expire_some(&w, 2 * SECOND, 30, crowd_fire, NULL), 30);
	assert_int_equal(wheel_expire(&w, 2 * SECOND, crowd_fire, NULL), 38);
	assert_int_equal(crowd_next, 100);
	assert_true(wheel_next(&w) == 3 * SECOND);
	crowd_next = 90;
	assert_int_equal(wheel_expire_some(&w, 3 * SECOND, 30, crowd_fire, NULL), 1);
	assert_true(wheel_next(&w) == WHEEL_NEVER);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_timer_fires_at_its_deadline),
		cmocka_unit_test(past_deadline_fires_at_once),
		cmocka_unit_test(end_of_time),
		cmocka_unit_test(ticks_fire_in_order),
		cmocka_unit_test(agrees_with_a_model),
		cmocka_unit_test(callback_changes_due_timers),
		cmocka_unit_test(stale_next_goes_away),
		cmocka_unit_test(fires_some_at_a_time),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
