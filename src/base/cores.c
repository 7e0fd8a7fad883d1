/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/cores.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cgroup.h"

#define MIN_CORES 2

unsigned cores_allowed(void)
{
	cpu_set_t set;

	return sched_getaffinity(0, sizeof(set), &set) == 0 && CPU_COUNT(&set) > 0
		       ? (unsigned)CPU_COUNT(&set)
		       : 1;
}

/*
 * Returns the quota of one group. Version 2 has "QUOTA PERIOD" or "max PERIOD" in cpu.max; version
 * 1 has a file for each, with -1 for no limit. Both are in us.
 */
static double quota_of(const char *dir, bool v2)
{
	long long quota = 0, period = 0, none;
	bool there = v2 ? cgroup_numbers(dir, "cpu.max", &quota, &period) == 2
			: cgroup_numbers(dir, "cpu.cfs_quota_us", &quota, &none) >= 1 &&
				     cgroup_numbers(dir, "cpu.cfs_period_us", &period, &none) >= 1;

	return there && quota > 0 && period > 0 ? (double)quota / (double)period : 0;
}

double cores_quota_from(const char *mountinfo, const char *cgroup)
{
	return cgroup_least(mountinfo, cgroup, "cpu", quota_of);
}

static double own_quota;

static void read_own(void)
{
	own_quota = cores_quota_from("/proc/self/mountinfo", "/proc/self/cgroup");
}

double cores_quota(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, read_own);
	return own_quota;
}

bool cores_quota_short(void)
{
	double quota = cores_quota();

	return quota > 0 && quota < MIN_CORES;
}
