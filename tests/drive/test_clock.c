/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The clock: from the first reading, through the moment at which the counter takes over, to long
 * after.
 */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <unistd.h>

#include "drive/clock.h"

#define THREADS 2
#define LATE_US 1100000
#define RUN_NS	60000000u /* several times the duration of a calibration */

/* The clock does not go back, and has the rate of the system's clock. */
static void *read_it(void *arg)
{
	uint64_t before = clock_system(), first = clock_now(), after = clock_system();
	uint64_t last = first, now, begin, end;

	do {
		begin = clock_system();
		now = clock_now();
		end = clock_system();
		if (now < last)
			return "it went back";
		last = now;
	} while (end - before < RUN_NS);
	if ((double)(now - first) < (double)(begin - after) * 0.99)
		return "it is slow";
	if ((double)(now - first) > (double)(end - before) * 1.01 + 1e6)
		return "it is fast";
	return NULL;
}

/* The second reading comes so late that the machine may have slept: it is a first one then. */
static void a_late_reading_makes_no_scale(void **state)
{
	clock_start();
	usleep(LATE_US);
	clock_now();
	assert_true(atomic_load(&clock_scale.mult) == 0);
}

static void the_counter_takes_over_without_a_step_back(void **state)
{
	pthread_t t[THREADS];
	void *wrong;

	clock_start();
	for (int i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&t[i], NULL, read_it, NULL), 0);
	for (int i = 0; i < THREADS; i++) {
		assert_int_equal(pthread_join(t[i], &wrong), 0);
		if (wrong)
			fail_msg("%s", (const char *)wrong);
	}
}

/* A suspend resets the counter: the clock is that of the system from then on. */
static void a_reset_counter_is_not_used(void **state)
{
#ifdef CLOCK_TICKS
	uint64_t before, now;

	/* A scale, also if the counter of this machine is not trusted. */
	clock_scale.base_ticks = clock_ticks() + (1ull << 40);
	clock_scale.base_ns = clock_system();
	atomic_store(&clock_scale.mult, 1ull << 32);
	for (int i = 0; i < 2; i++) {
		before = clock_system();
		now = clock_now();
		assert_true(now >= before && now <= clock_system());
	}
	assert_true(atomic_load(&clock_scale.mult) == 0);
#else
	skip();
#endif
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_late_reading_makes_no_scale), /* before a scale is there */
		cmocka_unit_test(the_counter_takes_over_without_a_step_back),
		cmocka_unit_test(a_reset_counter_is_not_used), /* the last one: no scale is left */
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
