/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A sender chooses keys that a multiplication by a constant of the source would put into one slot
 * of the index of the kernel `aggregate`. The kernel must not need more instructions for them than
 * for other keys. The test counts instructions in a process under ptrace(2).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../common/skip.h"
#include "builtin/builtin.h"
#include "kernels/runtime.h"
#include "roost/aggregate.h"

#define CONSTANT 0x9e3779b97f4a7c15ull
#define KEYS	 256

static uint64_t keys[2 * KEYS]; /* each twice, so that the second is a look-up */
static uint8_t state[8192] __attribute__((aligned(64))),
	scratch[65536] __attribute__((aligned(64)));

/* The multiplicative inverse modulo 2^64, by Newton's method. */
static uint64_t inverse(uint64_t a)
{
	uint64_t x = a;

	for (unsigned i = 0; i < 6; i++)
		x *= 2 - a * x;
	return x;
}

static void colliding(void)
{
	for (uint64_t i = 0; i < KEYS; i++)
		keys[i] = keys[KEYS + i] = (i + 1) * inverse(CONSTANT);
}

static void harmless(void)
{
	for (uint64_t i = 0; i < KEYS; i++)
		keys[i] = keys[KEYS + i] = (i + 1) << 32 ^ i * 0x1234567;
}

/* Runs the kernel on a piece of payload, as the kernel runtime does, between two stops. */
static void one_piece(void)
{
	const struct roost_kernel *k = kernels_builtin("aggregate");
	struct roost_aggregate_params p = {
		.record = 8, .group = {.width = 8}, .max_groups = ROOST_AGGREGATE_MAX_GROUPS};
	struct roost_call c = {.params = &p,
			       .params_len = sizeof(p),
			       .state = state,
			       .scratch = scratch,
			       .space = 65536};

	if (k->state_size > sizeof(state) || k->scratch_size > sizeof(scratch) ||
	    (k->start && k->start(&c.self)) || k->params(&c) != ROOST_DONE)
		_exit(1);
	c.data = (const uint8_t *)keys;
	c.len = sizeof(keys);
	c.total = 2 * sizeof(keys);
	raise(SIGSTOP);
	k->payload(&c);
	raise(SIGSTOP);
	_exit(0);
}

/* Returns the number of instructions; 0: they cannot be counted on this machine. */
static uint64_t instructions(void)
{
	uint64_t n = 0;
	pid_t child;
	int status;

	child = fork();
	if (child == 0) {
		if (ptrace(PTRACE_TRACEME, 0, NULL, NULL))
			_exit(2);
		one_piece();
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	if (WIFEXITED(status)) {
		assert_int_equal(WEXITSTATUS(status), 2);
		return 0;
	}
	assert_int_equal(WSTOPSIG(status), SIGSTOP);
	for (;; n++) {
		assert_int_equal(ptrace(PTRACE_SINGLESTEP, child, NULL, NULL), 0);
		assert_int_equal(waitpid(child, &status, 0), child);
		assert_true(WIFSTOPPED(status));
		if (WSTOPSIG(status) == SIGSTOP)
			break;
	}
	kill(child, SIGKILL);
	waitpid(child, &status, 0);
	return n;
}

static void chosen_keys(void **unused)
{
	uint64_t any, chosen;

	harmless();
	any = instructions();
	if (!any)
		exit(skip_status("ptrace(2) is not allowed here"));
	colliding();
	chosen = instructions();
	print_message("%llu instructions for any keys, %llu for chosen ones\n",
		      (unsigned long long)any, (unsigned long long)chosen);
	assert_in_range(chosen, any / 2, any + any / 4);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(chosen_keys)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
