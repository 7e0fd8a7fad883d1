/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The number of cores that this process may keep busy. Its CPU mask and the CPU quota of its
 * control groups limit this number.
 */
#ifndef ROOST_BASE_CORES_H
#define ROOST_BASE_CORES_H

#include <stdbool.h>

/* Returns the number of CPUs in the mask of the calling thread, at least 1. */
unsigned cores_allowed(void);

/*
 * Returns the CPU quota of the control groups of this process, in CPUs: 0.5 is half a second of CPU
 * time per second. The result is the smallest quota of the process's own group and the visible
 * groups above it, or 0 if none has a quota. The files are read once per process. Any thread.
 */
double cores_quota(void);

/*
 * Returns true if there is a quota below two CPUs. A spinning thread then takes time from the
 * thread that it waits for, as on one core. Any thread.
 */
bool cores_quota_short(void);

/*
 * Returns the same as cores_quota(), but reads the files at each call. They have the contents of
 * /proc/self/mountinfo and /proc/self/cgroup (cgroups(7)).
 */
double cores_quota_from(const char *mountinfo, const char *cgroup);

#endif
