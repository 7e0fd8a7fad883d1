/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Limits that the control groups of this process have (cgroups(7)), of both versions. Any thread;
 * reads files.
 */
#ifndef ROOST_BASE_CGROUP_H
#define ROOST_BASE_CGROUP_H

#include <stdbool.h>

/* What one group, whose files are in dir, says; 0: no limit. */
typedef double cgroup_limit(const char *dir, bool v2);

/*
 * The least of our own group and those above, as far as they can be seen; 0: no limit. The
 * controller is that of the hierarchy of version 1. The files have the contents of
 * /proc/self/mountinfo and /proc/self/cgroup.
 */
double cgroup_least(const char *mountinfo, const char *cgroup, const char *controller,
		    cgroup_limit *of);

/* Numbers in the first line of dir/name; how many of the two there are. */
int cgroup_numbers(const char *dir, const char *name, long long *a, long long *b);

#endif
