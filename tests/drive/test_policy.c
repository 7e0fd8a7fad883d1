/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The state machines of the drive's policy (src/drive/policy.h), one by one. test_models.c tests
 * them together, with programs.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "drive/policy.h"

#define NEVER UINT64_MAX
#define T0    (1000 * MS) /* far from 0, so that no earlier time counts as recent */

/* xorshift64* */
static uint64_t dice(uint64_t *seed)
{
	*seed ^= *seed >> 12;
	*seed ^= *seed << 25;
	*seed ^= *seed >> 27;
	return *seed * 0x2545f4914f6cdd1dull;
}

/* ---- bets ---- */

enum world { UNIFORM, SHORT_OR_NEVER, IN_RUNS, AGAINST_IT, MOSTLY_AGAINST_IT, WORLDS };

static uint64_t next_gap(enum world w, const struct bet *b, uint64_t stake, uint64_t *seed)
{
	uint64_t r = dice(seed), against = bet_on(b) ? stake : 0;

	switch (w) {
	case UNIFORM:
		return r % (2 * stake);
	case SHORT_OR_NEVER:
		return r % 3 ? r / 3 % (stake / 4) : NEVER;
	case IN_RUNS: /* of 32 */
		return *seed >> 5 & 1 ? stake / 8 : 10 * stake;
	case AGAINST_IT:
		return against;
	case MOSTLY_AGAINST_IT:
		return r % 16 ? against : r / 16 % (2 * stake);
	case WORLDS:
		break;
	}
	return 0;
}

static void bets_cost_three_times_the_best(void **state)
{
	(void)state;
	for (uint64_t run = 1; run <= 500; run++) {
		uint64_t seed = run * 0x9e3779b97f4a7c15ull,
			 stake = 10 * US + dice(&seed) % (190 * US);
		enum world w = (enum world)(run % WORLDS);
		uint64_t paid = 0, best = 0;
		struct bet b = {0};

		for (unsigned i = 0; i < 2000; i++) {
			uint64_t gap = next_gap(w, &b, stake, &seed);

			best += gap < stake ? gap : stake;
			if (bet_on(&b))
				paid += gap < stake ? gap : 2 * stake;
			else
				paid += stake;
			bet_settle(&b, stake, gap);
			if (paid > 3 * best + policy_table.bet_cap * stake)
				fail_msg(
					"run %lu (kind %u), event %u: paid %lu, best %lu, stake %lu",
					(unsigned long)run, (unsigned)w, i, (unsigned long)paid,
					(unsigned long)best, (unsigned long)stake);
		}
	}
}

/* Old events do not count: slightly more events than a bet remembers reverse it. */
static void bets_forget(void **state)
{
	struct bet b = {0};

	(void)state;
	for (unsigned i = 0; i < 1000; i++)
		bet_settle(&b, 20 * US, NEVER);
	assert_false(bet_on(&b));
	for (unsigned i = 0; i < policy_table.bet_cap; i++)
		bet_settle(&b, 20 * US, 0);
	assert_true(bet_on(&b));
	for (unsigned i = 0; i < 1000; i++)
		bet_settle(&b, 20 * US, 0);
	for (unsigned i = 0; i <= policy_table.bet_cap; i++)
		bet_settle(&b, 20 * US, NEVER);
	assert_false(bet_on(&b));
}

/* ---- the cost of a wake-up ---- */

static uint64_t learned(const struct wake_cost *w)
{
	return atomic_load(&w->ns);
}

static void stake_in_bounds(const struct wake_cost *w)
{
	assert_in_range(wake_cost_stake(w), policy_table.wake_min, policy_table.wake_max);
}

static void wake_cost_follows_the_median(void **state)
{
	static const uint64_t medians[] = {5 * US, 30 * US, 100 * US};

	(void)state;
	for (uint64_t run = 1; run <= 100; run++) {
		uint64_t seed = run * 0x9e3779b97f4a7c15ull;
		struct wake_cost w = {0};

		stake_in_bounds(&w);
		for (unsigned i = 0; i < 600; i++) {
			uint64_t m = medians[(run + i / 200) % 3]; /* the cost changes */
			uint64_t sample = m * (70 + dice(&seed) % 61) / 100, before = learned(&w);

			wake_cost_learn(&w, i % 40 == 39 ? 4 * MS : sample);
			if (before && (learned(&w) > before + before / 8 + 1 ||
				       learned(&w) < before - before / 8))
				fail_msg("run %lu: from %lu to %lu", (unsigned long)run,
					 (unsigned long)before, (unsigned long)learned(&w));
			stake_in_bounds(&w);
			if (i % 200 >= 60 && (learned(&w) < m / 2 || learned(&w) > 2 * m))
				fail_msg("run %lu, sample %u: %lu where the median is %lu",
					 (unsigned long)run, i, (unsigned long)learned(&w),
					 (unsigned long)m);
		}
	}
}

static void wake_cost_takes_any_sample(void **state)
{
	struct wake_cost w = {0};

	(void)state;
	wake_cost_learn(&w, 4 * MS); /* the first sample was an outlier */
	stake_in_bounds(&w);
	for (unsigned i = 0; i < 60; i++)
		wake_cost_learn(&w, 5 * US);
	assert_in_range(learned(&w), 4 * US, 6 * US);
	for (unsigned i = 0; i < 200; i++)
		wake_cost_learn(&w, 0);
	stake_in_bounds(&w);
	for (unsigned i = 0; i < 200; i++)
		wake_cost_learn(&w, 10000 * MS);
	stake_in_bounds(&w);
}

/* Twice the delay, within its bounds. */
static void stake_is_twice_the_delay(void **state)
{
	static const uint64_t rows[][2] = {
		{5 * US, 20 * US}, {30 * US, 60 * US}, {100 * US, 100 * US}};
	struct wake_cost w = {0};

	(void)state;
	assert_int_equal(wake_cost_stake(&w), 2 * policy_table.wake_first);
	for (unsigned i = 0; i < 3; i++) {
		atomic_store(&w.ns, rows[i][0]);
		assert_int_equal(wake_cost_stake(&w), rows[i][1]);
	}
}

/* ---- the service thread ---- */

#define STAKE (40 * US)

/*
 * Work comes every `gap` from *now on. The thread follows the policy. Returns whether it busy
 * polled until the last one.
 */
static bool work_every(struct spinner *s, uint64_t *now, uint64_t gap, unsigned times)
{
	bool looked = false;

	for (unsigned i = 0; i < times; i++) {
		uint64_t next = *now + gap;

		looked = true;
		for (; *now < next && looked; *now += US)
			looked = spinner_idle(s, *now, STAKE) != SPIN_SLEEP;
		*now = next;
		spinner_worked(s, *now, STAKE, !looked, false);
	}
	return looked;
}

static void spins_while_packets_are_close(void **state)
{
	struct spinner s = {0};
	uint64_t now = T0;

	(void)state;
	assert_int_equal(spinner_idle(&s, now, STAKE), SPIN_SLEEP); /* no packet has come yet */
	assert_true(work_every(&s, &now, 10 * US, 2));
	assert_true(work_every(&s, &now, 10 * US, 100));
	/* A busy poll does not last longer than the stake. */
	assert_int_not_equal(spinner_idle(&s, now + STAKE - 1, STAKE), SPIN_SLEEP);
	assert_int_equal(spinner_idle(&s, now + STAKE, STAKE), SPIN_SLEEP);
	/* Rare packets: it sleeps after as many as the bet remembers. */
	work_every(&s, &now, MS, policy_table.bet_cap + 1);
	assert_int_equal(spinner_idle(&s, now, STAKE), SPIN_SLEEP);
	/*
	 * It busy polls again when packets are close, although each wake-up makes the measured gap
	 * longer.
	 */
	work_every(&s, &now, 10 * US + STAKE / 2, 2 * policy_table.bet_cap);
	assert_true(work_every(&s, &now, 10 * US, 2));
}

static void yields_its_core(void **state)
{
	struct spinner s = {0};
	uint64_t now = T0, last = 0, yields = 0, woke_yields = 0;

	(void)state;
	for (unsigned i = 0; i < 1000; i++, now += US) {
		if (i % 10 == 0)
			spinner_worked(&s, now, STAKE, false, false);
		if (spinner_idle(&s, now, STAKE) != SPIN_YIELD)
			continue;
		assert_true(!last || now - last == policy_table.yield_every);
		last = now;
		yields++;
	}
	assert_int_equal(yields, 50);
	/* A woken thread of the program may wait for this core. */
	for (unsigned i = 0; i < 100; i++, now += US) {
		if (i % 10 == 0)
			spinner_worked(&s, now, STAKE, false, true);
		if (spinner_idle(&s, now, STAKE) == SPIN_YIELD) {
			assert_true(i % 10 == 0);
			woke_yields++;
		}
	}
	assert_int_equal(woke_yields, 10);
}

/* Returns whether it busy polls if packets are close: only a pause prevents that. */
static bool spins_at(const struct spinner *s, uint64_t now)
{
	struct spinner t = *s;

	t.bet.sum = 0;
	t.idle_since = now;
	return spinner_idle(&t, now, STAKE) != SPIN_SLEEP;
}

static void pauses_while_others_want_the_core(void **state)
{
	uint64_t now = T0, slice = 3 * MS, pause = policy_table.lost_factor * slice;
	struct spinner s = {0};

	(void)state;
	/*
	 * A yield that no thread took, and a short run of a thread of the Linux kernel, do not
	 * count.
	 */
	spinner_lost(&s, now, policy_table.yield_untaken - 1, true, STAKE);
	spinner_lost(&s, now, policy_table.lost_min - 1, false, STAKE);
	assert_true(spins_at(&s, now));
	/*
	 * Nor does the first run of another service thread, with cold caches, even if it takes a
	 * yield. A pause here makes ten READs of a new program wait for a wake-up each.
	 */
	spinner_lost(&s, now, 150 * US, true, STAKE);
	assert_true(spins_at(&s, now));
	spinner_lost(&s, now, 0, true, STAKE);
	/* A slice counts. */
	spinner_lost(&s, now, slice, true, STAKE);
	assert_false(spins_at(&s, now + pause - 1));
	assert_true(spins_at(&s, now + pause));
	/* Lost again at once: a pause twice as long, and so on, up to a bound. */
	for (unsigned i = 1; i < 20; i++) {
		uint64_t most = policy_table.lost_most * slice;

		now += pause;
		pause = 2 * pause < most ? 2 * pause : most;
		spinner_lost(&s, now, slice, i & 1, STAKE);
		assert_false(spins_at(&s, now + pause - 1));
		assert_true(spins_at(&s, now + pause));
	}
	/* After a while the count starts again. */
	now += 2 * pause;
	pause = policy_table.lost_factor * slice;
	spinner_lost(&s, now, slice, true, STAKE);
	assert_true(spins_at(&s, now + pause));
	/*
	 * A thread that takes one yield for a short time may be any timer. The next yield comes
	 * soon.
	 */
	for (int i = 0; i < 2; i++) {
		now += 10 * pause;
		spinner_lost(&s, now, 0, true, STAKE);
		spinner_lost(&s, now, policy_table.yield_untaken, true, STAKE);
		assert_true(spins_at(&s, now));
	}
	/* Another thread may take a yield later. */
	now += policy_table.in_a_row;
	spinner_lost(&s, now, policy_table.yield_untaken, true, STAKE);
	assert_true(spins_at(&s, now));
	/*
	 * A thread that takes the next yield too wants the core. It has cost at least as much as
	 * busy polling would have taken.
	 */
	spinner_lost(&s, now, policy_table.yield_untaken, true, STAKE);
	assert_false(spins_at(&s, now + policy_table.lost_factor * STAKE - 1));
	assert_true(spins_at(&s, now + policy_table.lost_factor * STAKE));
	/* After a machine was stopped for a minute, busy polling is delayed for lost_max. */
	now += 100000 * MS;
	spinner_lost(&s, now, 60000 * MS, false, STAKE);
	assert_false(spins_at(&s, now + policy_table.lost_max - 1));
	assert_true(spins_at(&s, now + policy_table.lost_max));
}

/* The service thread's naps beside a poller. */
static void naps_grow(void **state)
{
	struct caller c = {0};

	(void)state;
	caller_init(&c);
	for (unsigned armed = 0; armed < 2; armed++) {
		uint64_t most = armed ? policy_table.nap_armed : policy_table.nap_max, last = 0;

		for (unsigned i = 0; i < 20; i++) {
			uint64_t nap = policy_nap(&c, last, armed);

			assert_in_range(nap, policy_table.nap_min, most);
			assert_true(i ? nap == policy_table.nap_grow * last || nap == most
				      : nap == policy_table.nap_min);
			last = nap;
		}
		assert_int_equal(last, most);
	}
	/* If the ports are armed after long naps, the naps become shorter. */
	assert_int_equal(policy_nap(&c, policy_table.nap_max, true), policy_table.nap_armed);
}

/*
 * Packets that come as soon as the service thread sleeps, and not while it busy polled, must have
 * waited for its core.
 */
static void packets_that_wait_for_the_core(void **state)
{
	struct spinner s = {0};
	uint64_t now = T0;

	(void)state;
	/* Twice in a row counts; once may be chance. */
	for (int i = 0; i < 2; i++) {
		assert_int_equal(s.until, 0);
		s.bet.sum = 0; /* the busy poll did not pay; this tests the other conditions */
		spinner_worked(&s, now, STAKE, false, false);
		assert_true(spinner_idle(&s, now, STAKE) != SPIN_SLEEP);
		spinner_sleeps(&s, now + STAKE);
		now += STAKE + US;
		spinner_worked(&s, now, STAKE, true, false);
	}
	assert_true(s.until >= now + policy_table.lost_factor * STAKE);
	/*
	 * A packet that comes later has not waited; neither has a packet before which there was no
	 * busy poll.
	 */
	s = (struct spinner){0};
	for (int i = 0; i < 4; i++) {
		s.bet.sum = 0;
		spinner_worked(&s, now, STAKE, false, false);
		if (i & 1)
			assert_true(spinner_idle(&s, now, STAKE) != SPIN_SLEEP);
		spinner_sleeps(&s, now + STAKE);
		now += i & 1 ? 3 * STAKE : STAKE + US;
		spinner_worked(&s, now, STAKE, true, false);
	}
	assert_int_equal(s.until, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(packets_that_wait_for_the_core),
		cmocka_unit_test(bets_cost_three_times_the_best),
		cmocka_unit_test(bets_forget),
		cmocka_unit_test(wake_cost_follows_the_median),
		cmocka_unit_test(wake_cost_takes_any_sample),
		cmocka_unit_test(stake_is_twice_the_delay),
		cmocka_unit_test(spins_while_packets_are_close),
		cmocka_unit_test(yields_its_core),
		cmocka_unit_test(pauses_while_others_want_the_core),
		cmocka_unit_test(naps_grow),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
