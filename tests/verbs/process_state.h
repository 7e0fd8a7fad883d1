/* SPDX-License-Identifier: BSD-2-Clause */
/* The states of other processes, by /proc. Include fixture.h first. */
#ifndef ROOST_TESTS_PROCESS_STATE_H
#define ROOST_TESTS_PROCESS_STATE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* The state letter of a process; 0: there is none. */
static char state_of(uint64_t pid)
{
	char path[64], text[256] = "", *p;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%llu/stat", (unsigned long long)pid);
	f = fopen(path, "r");
	if (!f)
		return 0;
	if (!fgets(text, sizeof(text), f))
		text[0] = 0;
	fclose(f);
	p = strrchr(text, ')');
	return p ? p[2] : 0;
}

/* Waits until a process is stopped, or has ended. */
static void wait_for_state(uint64_t pid, bool stopped)
{
	time_t until = time(NULL) + TIMEOUT_S;

	while (stopped ? state_of(pid) != 'T' : state_of(pid) && state_of(pid) != 'Z') {
		assert_true(time(NULL) < until);
		usleep(1000);
	}
}

#endif
