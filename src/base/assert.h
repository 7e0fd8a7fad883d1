/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Assertions that stay in release builds. Use them for a condition that must end the program, if
 * the test only compares values in registers: an index beyond its array, or a sum that would wrap.
 * Input from outside is never asserted; it is refused with an error.
 */
#ifndef ROOST_BASE_ASSERT_H
#define ROOST_BASE_ASSERT_H

/* Prints one line and ends the process by abort(). Any thread. */
_Noreturn void assert_failed(const char *cond, const char *file, int line);

/* Ends the process if `cond` is false. All builds evaluate `cond`, once. */
#define ROOST_ASSERT(cond)                                                                         \
	do {                                                                                       \
		if (__builtin_expect(!(cond), 0))                                                  \
			assert_failed(#cond, __FILE__, __LINE__);                                  \
	} while (0)

#endif
