/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The number of cores that this process may keep busy: by its CPU mask, and by the quota of CPU
 * time of its control groups.
 */
#ifndef ROOST_BASE_CORES_H
#define ROOST_BASE_CORES_H

#include <stdbool.h>

/* Returns the number of CPUs in the mask of the calling thread, at least 1. */
unsigned cores_allowed(void);

/*
 * Returns the quota of CPU time of the control groups of this process, in CPUs: 0.5 is half a
 * second per second. It is the smallest quota of the own group and the visible ones above it; 0: no
 * limit. Read once per process. Any thread.
 */
double cores_quota(void);

/*
 * True if there is a quota below two CPUs. A spinning thread then takes time from the thread that
 * it waits for, as on one core. Any thread.
 */
bool cores_quota_short(void);

/*
 * As cores_quota(), but read again, from files with the contents of /proc/self/mountinfo and
 * /proc/self/cgroup (cgroups(7)).
 */
double cores_quota_from(const char *mountinfo, const char *cgroup);

#endif
