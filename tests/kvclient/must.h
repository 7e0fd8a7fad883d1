/* SPDX-License-Identifier: BSD-2-Clause */
/* The check of the programs that test the client of the store. */
#ifndef ROOST_TESTS_KVCLIENT_MUST_H
#define ROOST_TESTS_KVCLIENT_MUST_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Ends the program unless `ok`. `rc` is an errno of either sign, or 0. */
static inline void must(int ok, const char *what, int rc)
{
	if (ok)
		return;
	fprintf(stderr, "%s: %s\n", what, strerror(abs(rc)));
	exit(1);
}

#endif
