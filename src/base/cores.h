/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * How many cores this process may keep busy: by its mask of CPUs, and by the quota of CPU time that
 * its control groups have.
 */
#ifndef ROOST_BASE_CORES_H
#define ROOST_BASE_CORES_H

#include <stdbool.h>

/* CPUs in the mask of the calling thread. At least 1. */
unsigned cores_allowed(void);

/*
 * CPU time a second that the control groups of this process have, in CPUs: 0.5 is half a second a
 * second. The least of its own group and those above, as far as they can be seen; 0: no limit. Read
 * once a process. Any thread.
 */
double cores_quota(void);

/*
 * There is a quota below two CPUs: a thread that spins takes from the time of the one that it waits
 * for, as on one core. Any thread.
 */
bool cores_quota_short(void);

/*
 * The same as cores_quota(), read anew, from files with the contents of /proc/self/mountinfo and
 * /proc/self/cgroup (cgroups(7)).
 */
double cores_quota_from(const char *mountinfo, const char *cgroup);

#endif
