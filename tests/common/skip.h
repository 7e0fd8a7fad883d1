/* SPDX-License-Identifier: BSD-2-Clause */
/* The end of a test that cannot run here, as in skip.py. */
#ifndef ROOST_TESTS_SKIP_H
#define ROOST_TESTS_SKIP_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/*
 * Prints the reason, and returns the exit status: 77, or 1 with ROOST_INTEROP=required, which CI
 * sets because it must run all it can.
 */
static inline int skip_status(const char *why)
{
	const char *interop = getenv("ROOST_INTEROP");
	int required = interop && strcmp(interop, "required") == 0;

	fprintf(stderr, "%s: %s\n", required ? "FAILED" : "SKIPPED", why);
	return required ? 1 : 77;
}

#endif
