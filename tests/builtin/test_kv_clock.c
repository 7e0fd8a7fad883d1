/* SPDX-License-Identifier: BSD-2-Clause */
/* The time by which pairs expire, on clocks that the test sets. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <time.h>

#include "builtin/kv_store.h"

/* The clocks, in seconds. `running` stops while the machine is suspended. */
static time_t wall = 1700000000, running = 50000, boot = 58000;
static time_t stop; /* the thread is stopped for this time after it has read a clock */

int __wrap_clock_gettime(clockid_t id, struct timespec *t);

int __wrap_clock_gettime(clockid_t id, struct timespec *t)
{
	*t = (struct timespec){id == CLOCK_REALTIME   ? wall
			       : id == CLOCK_BOOTTIME ? boot
						      : running,
			       500000000};
	wall += stop;
	running += stop;
	boot += stop;
	return 0;
}

static void pass(time_t seconds)
{
	wall += seconds;
	running += seconds;
	boot += seconds;
}

static void suspend(time_t seconds)
{
	wall += seconds;
	boot += seconds;
}

static uint32_t near_wall(void)
{
	uint32_t now = kv_store_now();

	assert_in_range(now, wall - 2, wall + 2);
	return now;
}

static void it_counts_seconds_since_1970(void **state)
{
	uint32_t before = near_wall();

	pass(1);
	assert_int_equal(near_wall(), before + 1);
	pass(100000);
	assert_int_equal(near_wall(), before + 100001);
}

/* A suspend is noticed within a second after it. */
static void it_goes_on_while_the_machine_is_suspended(void **state)
{
	uint32_t before = kv_store_now();

	suspend(3600);
	pass(1);
	assert_int_equal(near_wall(), before + 3601);
	for (uint32_t i = 1; i < 10; i++) {
		suspend(1);
		pass(1);
		assert_int_equal(near_wall(), before + 3601 + 2 * i);
	}
}

static void it_does_not_follow_the_wall_clock(void **state)
{
	uint32_t before = kv_store_now();

	wall -= 1000;
	pass(5);
	assert_int_equal(kv_store_now(), before + 5);
	wall += 1000;
	assert_int_equal(near_wall(), before + 5);
}

/* The thread gets no core between two readings. The time does not go back, and is right again. */
static void it_bears_a_thread_that_is_stopped(void **state)
{
	uint32_t before = kv_store_now(), now;
	time_t from = running;

	pass(1);
	stop = 7;
	now = kv_store_now();
	stop = 0;
	assert_in_range(now, before, before + (running - from));
	pass(1);
	assert_int_equal(near_wall(), before + (running - from));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(it_counts_seconds_since_1970),
		cmocka_unit_test(it_goes_on_while_the_machine_is_suspended),
		cmocka_unit_test(it_does_not_follow_the_wall_clock),
		cmocka_unit_test(it_bears_a_thread_that_is_stopped),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
