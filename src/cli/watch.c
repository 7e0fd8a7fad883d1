/* SPDX-License-Identifier: BSD-2-Clause */
#include "cli/watch.h"

#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "cli/term.h"

int watch_run(const struct watch *w, watch_look *look, void *ctx)
{
	const struct timespec pause = {.tv_sec = (time_t)w->every,
				       .tv_nsec =
					       (long)((w->every - (double)(time_t)w->every) * 1e9)};
	uint64_t then = 0, left = w->looks;
	bool end = false;

	for (;;) {
		uint64_t now = clock_ns();
		int rc = look(ctx, then ? (double)(now - then) / 1e9 : 0, &end);

		if (end || fflush(stdout) != 0 || --left == 0)
			return rc;
		then = now;
		nanosleep(&pause, NULL);
	}
}

void watch_page(double since)
{
	if (isatty(STDOUT_FILENO))
		printf("\033[H\033[J"); /* clears the screen and continues at its top */
	else if (since > 0)
		putchar('\n');
}
