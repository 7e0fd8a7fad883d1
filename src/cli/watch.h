/* SPDX-License-Identifier: BSD-2-Clause */
/* --watch: the same look again and again. */
#ifndef ROOST_CLI_WATCH_H
#define ROOST_CLI_WATCH_H

#include <stdbool.h>
#include <stdint.h>

struct watch {
	double every;	/* seconds */
	uint64_t looks; /* 0: until it is interrupted */
};

/*
 * Looks and prints; `since`: seconds since the look before, 0: there was none. An exit status;
 * *end: there is nothing to look at any more.
 */
typedef int watch_look(void *ctx, double since, bool *end);

/* The exit status of the last look. Ends, too, when stdout can't be written any more. */
int watch_run(const struct watch *w, watch_look *look, void *ctx);

/*
 * Before a look prints a table: an empty screen at a terminal; else a line between it and the one
 * before.
 */
void watch_page(double since);

#endif
