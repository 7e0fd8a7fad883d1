/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Limits of the control groups of this process (cgroups(7)), of both versions. Any thread; reads
 * files.
 */
#ifndef ROOST_BASE_CGROUP_H
#define ROOST_BASE_CGROUP_H

#include <stdbool.h>

/* Returns the limit of one group, whose files are in dir; 0: no limit. */
typedef double cgroup_limit(const char *dir, bool v2);

/*
 * Returns the smallest limit of the own group and the visible ones above it; 0: no limit. The
 * controller is that of the hierarchy of version 1. The files have the contents of
 * /proc/self/mountinfo and /proc/self/cgroup.
 */
double cgroup_least(const char *mountinfo, const char *cgroup, const char *controller,
		    cgroup_limit *of);

/* Reads up to two numbers from the first line of dir/name. Returns how many there are. */
int cgroup_numbers(const char *dir, const char *name, long long *a, long long *b);

#endif
