/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Tests that run twice: with the counts of queues from 0, and from 2^32 - 100, so that they wrap.
 */
#ifndef ROOST_TESTS_COUNTS_H
#define ROOST_TESTS_COUNTS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

static uint32_t first; /* the first count */

static int from_zero(void **state)
{
	first = 0;
	return 0;
}

static int from_the_end(void **state)
{
	first = (uint32_t)-100;
	return 0;
}

/* Runs an array of tests with both. The number of failures. */
#define run_from_both_counts(tests)                                                                \
	(cmocka_run_group_tests_name("counts from 0", tests, from_zero, NULL) +                    \
	 cmocka_run_group_tests_name("counts from 2^32 - 100", tests, from_the_end, NULL))

#endif
