/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * For tests that fork beside threads of the NIC. ASan's allocator (GCC 12) does not hold its locks
 * over fork(2), and a thread that starts takes one of them. A child that was forked meanwhile waits
 * for this lock for ever.
 */
#ifndef ROOST_TESTS_THREADS_SETTLE_H
#define ROOST_TESTS_THREADS_SETTLE_H

#include <dirent.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Whether thread `tid` of this process sleeps, or has ended. */
static inline bool thread_sleeps(pid_t tid)
{
	char path[64], line[512];
	const char *end;
	FILE *f;
	bool got;

	snprintf(path, sizeof(path), "/proc/self/task/%d/stat", tid);
	f = fopen(path, "re");
	if (!f)
		return true;
	got = fgets(line, sizeof(line), f) != NULL;
	fclose(f);
	/* proc(5): the state follows the name, which is in parentheses. */
	end = got ? strrchr(line, ')') : NULL;
	return !end || strchr("SZX", end[2]);
}

/* Waits until all other threads sleep, 10 s at most. */
static inline void threads_settle(void)
{
	for (int ms = 0; ms < 10000; ms++) {
		DIR *dir = opendir("/proc/self/task");
		struct dirent *e;
		bool all = true;

		while (dir && (e = readdir(dir))) {
			pid_t tid = (pid_t)strtol(e->d_name, NULL, 10);

			if (tid > 0 && tid != gettid() && !thread_sleeps(tid))
				all = false;
		}
		if (dir)
			closedir(dir);
		if (all)
			return;
		usleep(1000);
	}
}

#endif
