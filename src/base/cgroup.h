/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Reads the limits of the control groups of this process (cgroups(7)), versions 1 and 2. Any
 * thread; reads files.
 */
#ifndef ROOST_BASE_CGROUP_H
#define ROOST_BASE_CGROUP_H

#include <stdbool.h>

/* Returns the limit of the group whose files are in `dir`, or 0 if it has none. */
typedef double cgroup_limit(const char *dir, bool v2);

/*
 * Returns the smallest limit of the process's own group and the visible groups above it, or 0 if
 * none has a limit. `controller` selects the hierarchy of version 1. `mountinfo` and `cgroup` are
 * files with the contents of /proc/self/mountinfo and /proc/self/cgroup.
 */
double cgroup_least(const char *mountinfo, const char *cgroup, const char *controller,
		    cgroup_limit *of);

/*
 * Reads up to two numbers from the first line of the file dir/name. Returns the number of numbers
 * read; 0 or less if there are none.
 */
int cgroup_numbers(const char *dir, const char *name, long long *a, long long *b);

#endif
