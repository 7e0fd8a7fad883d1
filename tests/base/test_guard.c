/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Tests which steps that do not return are ended by the watchdog. The test itself makes the
 * watchdog's checks, so the result does not depend on a clock.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../common/handlers.h"
#include "base/guard.h"

#define LOOKS	 200
#define HANDLERS 6

static struct guard guard;
static atomic_bool in_step, let_go;

static void sleeps(void)
{
	while (!atomic_load(&let_go))
		usleep(1000000);
}

static void spins(void)
{
	while (!atomic_load(&let_go))
		;
}

/* Must call no function: those of ThreadSanitizer hold locks, which an ended step would keep. */
static void spins_for_ever(void)
{
	for (;;)
		__asm__ volatile("");
}

/* Runs one step. Returns NULL if the step returned, or the cause of its end. */
static void *run(void *body)
{
	struct guard_scope scope;
	volatile enum guard_end how = 0;

	guard_open(&guard, &scope);
	if (sigsetjmp(scope.env, 0)) {
		how = guard_trapped(&guard);
	} else {
		guard_step(&guard);
		atomic_store(&in_step, true);
		((void (*)(void))body)();
		guard_stepped(&guard);
	}
	guard_close(&guard, &scope);
	atomic_store(&in_step, false);
	return (void *)(uintptr_t)how;
}

static pthread_t start(void (*body)(void))
{
	pthread_t t;

	take_back_handlers();
	guard = (struct guard){0};
	atomic_store(&in_step, false);
	atomic_store(&let_go, false);
	assert_int_equal(pthread_create(&t, NULL, run, (void *)body), 0);
	while (!atomic_load(&in_step))
		usleep(1000);
	return t;
}

static void *end(pthread_t t)
{
	void *how;

	assert_int_equal(pthread_join(t, &how), 0);
	return how;
}

/* The clock of its CPU does not advance: the step is ended after the most checks. */
static void one_that_sleeps_is_ended(void **state)
{
	const struct watchdog_limits p = {.checks = 2, .cpu_ns = UINT64_MAX, .checks_asleep = 5};
	pthread_t t = start(sleeps);

	while (atomic_load(&in_step)) {
		guard_check(&guard, &p);
		usleep(1000);
	}
	assert_int_equal((uintptr_t)end(t), GUARD_STUCK);
}

/* A step that used little CPU time is not ended: on a busy machine it may wait for a core. */
static void one_that_wants_a_core_is_not(void **state)
{
	const struct watchdog_limits p = {.checks = 2, .cpu_ns = UINT64_MAX, .checks_asleep = 5};
	pthread_t t = start(spins);

	for (unsigned i = 0; i < LOOKS; i++)
		guard_check(&guard, &p);
	atomic_store(&let_go, true);
	assert_int_equal((uintptr_t)end(t), 0);
}

static void one_that_has_run_for_long_is_ended(void **state)
{
	const struct watchdog_limits p = {
		.checks = 2, .cpu_ns = 1000000, .checks_asleep = UINT32_MAX};
	pthread_t t = start(spins_for_ever);

	while (atomic_load(&in_step)) {
		guard_check(&guard, &p);
		usleep(1000);
	}
	assert_int_equal((uintptr_t)end(t), GUARD_STUCK);
}

/* Steps that begin and end do not count as one long step. */
static void steps_that_return_are_let_be(void **state)
{
	const struct watchdog_limits p = {.checks = 0, .cpu_ns = 0, .checks_asleep = 0};
	struct guard_scope scope;

	take_back_handlers();
	guard = (struct guard){0};
	guard_open(&guard, &scope);
	assert_int_equal(sigsetjmp(scope.env, 0), 0);
	for (unsigned i = 0; i < LOOKS; i++) {
		guard_step(&guard);
		assert_true(guard_check(&guard, &p));
		guard_stepped(&guard);
		assert_true(guard_check(&guard, &p));
		assert_false(guard_check(&guard, &p));
	}
	guard_close(&guard, &scope);
}

/* A signal stack with place for a few handlers at once, as sanitizers and some programs have it. */
static void *run_on_small_stack(void *body)
{
	size_t size = (size_t)sysconf(_SC_MINSIGSTKSZ) * HANDLERS;
	stack_t own = {.ss_sp = malloc(size), .ss_size = size}, old;
	void *how = body;

	assert_non_null(own.ss_sp);
	assert_int_equal(sigaltstack(&own, &old), 0);
	for (unsigned i = 0; i < LOOKS; i++)
		how = run(body);
	atomic_store(&let_go, true);
	assert_int_equal(sigaltstack(&old, NULL), 0);
	free(own.ss_sp);
	return how;
}

/*
 * The watchdog repeats its signal before the thread has left the step. Skipped with
 * ThreadSanitizer, whose own handlers use up the signal stack.
 */
static void orders_do_not_pile_up(void **state)
{
#ifdef __SANITIZE_THREAD__
	print_message("SKIPPED: TSan uses up the signal stack; the other builds run it\n");
	skip();
#endif
	const struct watchdog_limits p = {.checks = 0, .cpu_ns = 0, .checks_asleep = 0};
	pthread_t t;

	take_back_handlers();
	guard = (struct guard){0};
	atomic_store(&let_go, false);
	assert_int_equal(pthread_create(&t, NULL, run_on_small_stack, (void *)spins_for_ever), 0);
	while (!atomic_load(&let_go))
		guard_check(&guard, &p);
	assert_int_equal((uintptr_t)end(t), GUARD_STUCK);
}

#ifdef ROOST_BASE_UNDEFINED_H
static void overflows(void)
{
	volatile int most = INT_MAX;

	most += 1;
}

/* UBSan finds an error in a step. It is not a fault of the step, which only ends the step. */
static void undefined_behaviour_ends_the_program(void **state)
{
	int status;
	pid_t child = fork();

	if (!child) {
		close(STDERR_FILENO); /* ASan's report */
		take_back_handlers();
		guard = (struct guard){0};
		run((void *)overflows);
		_exit(0);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_not_equal(status, 0);
}
#endif

static int set_up(void **state)
{
	int rc = guard_init();

	keep_handlers();
	return rc;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_that_sleeps_is_ended),
		cmocka_unit_test(one_that_wants_a_core_is_not),
		cmocka_unit_test(one_that_has_run_for_long_is_ended),
		cmocka_unit_test(steps_that_return_are_let_be),
		cmocka_unit_test(orders_do_not_pile_up),
#ifdef ROOST_BASE_UNDEFINED_H
		cmocka_unit_test(undefined_behaviour_ends_the_program),
#endif
	};

	return cmocka_run_group_tests(tests, set_up, NULL);
}
