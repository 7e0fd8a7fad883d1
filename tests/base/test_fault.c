/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Signals that are sent, ignored or blocked, and steps that crash after them: the program's earlier
 * action is taken as the Linux kernel would take it, and the guard still works. Each case runs in a
 * process of its own, and the test checks its wait status.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/guard.h"

static struct guard guard;
static volatile sig_atomic_t heard, masked;
static char *nowhere; /* memory that is not there */

static void hears(int sig)
{
	sigset_t now;

	heard++;
	pthread_sigmask(SIG_BLOCK, NULL, &now);
	masked = sigismember(&now, sig) && sigismember(&now, SIGUSR1);
}

static void hears_info(int sig, siginfo_t *info, void *uc)
{
	if (uc && info->si_signo == sig && info->si_code <= 0)
		hears(sig);
}

static void crash(void)
{
	*(volatile char *)nowhere = 1;
}

/* True: the step has crashed and was left. */
static bool guarded_crash(void)
{
	struct guard_scope scope;
	volatile bool left = false;

	guard_open(&guard, &scope);
	if (sigsetjmp(scope.env, 0)) {
		left = guard_trapped(&guard) == GUARD_FAULT;
	} else {
		guard_step(&guard);
		crash();
		guard_stepped(&guard);
	}
	guard_close(&guard, &scope);
	return left;
}

/* The action that the program set before Roost. */
static void before(int sig, void (*handler)(int), int flags)
{
	struct sigaction sa = {.sa_handler = handler, .sa_flags = flags & ~SA_SIGINFO};

	sigemptyset(&sa.sa_mask);
	sigaddset(&sa.sa_mask, SIGUSR1);
	if (flags & SA_SIGINFO) {
		sa.sa_flags |= SA_SIGINFO;
		sa.sa_sigaction = hears_info;
	}
	sigaction(sig, &sa, NULL);
}

/* Returns the wait status of a process that runs body() and exits with its result; 0: success. */
static int in_process(int (*body)(void))
{
	const struct rlimit no_core = {0, 0};
	int status;
	pid_t child;

	child = fork();
	if (child == 0) {
		setrlimit(RLIMIT_CORE, &no_core);
		nowhere = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		for (int i = 0; i < 4; i++)
			before((const int[]){SIGSEGV, SIGBUS, SIGFPE, SIGILL}[i], SIG_DFL, 0);
		_exit(nowhere == MAP_FAILED ? 99 : body());
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	return status;
}

static void assert_good(int status)
{
	if (!WIFEXITED(status) || WEXITSTATUS(status))
		fail_msg("wait status 0x%x", status);
}

static void assert_killed(int status, int sig)
{
	if (!WIFSIGNALED(status) || WTERMSIG(status) != sig)
		fail_msg("wait status 0x%x, not signal %d", status, sig);
}

static int ignored_and_sent(void)
{
	before(SIGSEGV, SIG_IGN, 0);
	if (guard_init())
		return 1;
	kill(getpid(), SIGSEGV);
	raise(SIGSEGV);
	return guarded_crash() && guarded_crash() ? 0 : 2;
}

static void one_that_is_ignored_does_nothing(void **state)
{
	assert_good(in_process(ignored_and_sent));
}

static int sent_by_default(void)
{
	if (guard_init())
		return 1;
	kill(getpid(), SIGSEGV);
	return 2;
}

/*
 * The result is that without Roost. Otherwise the handler would be removed, and the next crash of a
 * kernel would end the process later, without a visible cause.
 */
static void one_that_kills_kills_at_once(void **state)
{
	assert_killed(in_process(sent_by_default), SIGSEGV);
}

static int handled_and_sent(void)
{
	before(SIGSEGV, hears, 0);
	if (guard_init())
		return 1;
	kill(getpid(), SIGSEGV);
	if (heard != 1 || !masked || !guarded_crash())
		return 2;
	raise(SIGSEGV);
	return heard == 2 && guarded_crash() ? 0 : 3;
}

static int handled_with_info(void)
{
	before(SIGSEGV, NULL, SA_SIGINFO);
	if (guard_init())
		return 1;
	kill(getpid(), SIGSEGV);
	return heard == 1 && masked && guarded_crash() ? 0 : 2;
}

/* The handler runs with the signals blocked that it asked for. */
static void the_programs_handler_is_called(void **state)
{
	assert_good(in_process(handled_and_sent));
	assert_good(in_process(handled_with_info));
}

static int handled_once(void)
{
	before(SIGSEGV, hears, SA_RESETHAND);
	if (guard_init())
		return 1;
	raise(SIGSEGV);
	if (heard != 1 || !guarded_crash())
		return 2;
	raise(SIGSEGV);
	return 3;
}

static void one_for_one_time_is_called_once(void **state)
{
	assert_killed(in_process(handled_once), SIGSEGV);
}

static int crash_outside(void)
{
	if (guard_init() || !guarded_crash())
		return 1;
	crash();
	return 2;
}

static int crash_outside_ignored(void)
{
	before(SIGSEGV, SIG_IGN, 0);
	return crash_outside();
}

/* A signal that the program ignores is ignored. */
static void a_crash_of_the_programs_ends_it(void **state)
{
	assert_killed(in_process(crash_outside), SIGSEGV);
	assert_killed(in_process(crash_outside_ignored), SIGSEGV);
}

static int blocked(void)
{
	sigset_t all;

	if (guard_init())
		return 1;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, NULL);
	if (!guarded_crash() || !guarded_crash())
		return 2;
	pthread_sigmask(SIG_BLOCK, NULL, &all);
	return sigismember(&all, SIGUSR1) ? 0 : 3; /* Roost does not change other signals */
}

static void a_thread_that_blocks_all_is_guarded(void **state)
{
	assert_good(in_process(blocked));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_that_is_ignored_does_nothing),
		cmocka_unit_test(one_that_kills_kills_at_once),
		cmocka_unit_test(the_programs_handler_is_called),
		cmocka_unit_test(one_for_one_time_is_called_once),
		cmocka_unit_test(a_crash_of_the_programs_ends_it),
		cmocka_unit_test(a_thread_that_blocks_all_is_guarded),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
