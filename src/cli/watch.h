/* SPDX-License-Identifier: BSD-2-Clause */
/* --watch: repeats the output of a command at an interval. */
#ifndef ROOST_CLI_WATCH_H
#define ROOST_CLI_WATCH_H

#include <stdbool.h>
#include <stdint.h>

struct watch {
	double every;	/* seconds */
	uint64_t looks; /* number of looks; 0: until it is interrupted */
};

/*
 * Prints the output once. `since` is the number of seconds since the last call; 0 in the first
 * call. Returns an exit status; sets *end when there is nothing left to watch.
 */
typedef int watch_look(void *ctx, double since, bool *end);

/*
 * Calls `look` as `w` says. Returns the exit status of the last call. Ends early when stdout cannot
 * be written any more.
 */
int watch_run(const struct watch *w, watch_look *look, void *ctx);

/*
 * Clears the screen of a terminal, or separates tables by an empty line. Must be called before a
 * table is printed.
 */
void watch_page(double since);

#endif
