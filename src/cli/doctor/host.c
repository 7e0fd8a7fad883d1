/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Rows of `roost doctor` about the system: Linux kernel and clock, cores and quota, allowed system
 * calls, libraries.
 */
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <link.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/cores.h"
#include "base/mem.h"
#include "cli/doctor/doctor.h"
#include "cli/run/dropins.h"

/*
 * The oldest Linux kernel of a distribution that is still maintained (Debian 11), and the oldest
 * one that Roost supports.
 */
#define KERNEL_MAJOR 5
#define KERNEL_MINOR 10

void doctor_kernel(const struct doctor *d, struct doctor_finding *f)
{
	unsigned major = 0, minor = 0;
	struct utsname u = {0};

	uname(&u);
	doctor_found(f, "%.64s %.64s, %.32s", u.sysname, u.release, u.machine);
	if (sscanf(u.release, "%u.%u", &major, &minor) < 2 || major < KERNEL_MAJOR ||
	    (major == KERNEL_MAJOR && minor < KERNEL_MINOR))
		doctor_remedy(f, DOCTOR_FAIL, "boot a kernel of version %d.%d or later",
			      KERNEL_MAJOR, KERNEL_MINOR);
}

/*
 * The clock sources that src/drive/clock.c trusts. With any other source each reading of the time
 * is a call that may enter the Linux kernel.
 */
void doctor_clock(const struct doctor *d, struct doctor_finding *f)
{
	static const char path[] =
		"/sys/devices/system/clocksource/clocksource0/current_clocksource";
	char name[64];

	if (!doctor_line(path, name, sizeof(name)))
		snprintf(name, sizeof(name), "unknown");
	doctor_found(f, "%s", name);
	if (strncmp(name, "tsc", 3) != 0 && strcmp(name, "arch_sys_counter") != 0)
		doctor_remedy(
			f, DOCTOR_WARN,
			"latencies grow: ask for the processor's own counter (x86: clocksource=tsc to the kernel; "
			"in a virtual machine the host decides)");
}

void doctor_cores(const struct doctor *d, struct doctor_finding *f)
{
	double quota = cores_quota();
	unsigned allowed = cores_allowed();

	if (quota > 0)
		doctor_found(f, "%u allowed, quota of %.2f CPUs", allowed, quota);
	else
		doctor_found(f, "%u allowed, no quota", allowed);
	if (quota > 0 && quota < 1)
		doctor_remedy(
			f, DOCTOR_WARN,
			"a program that polls uses up the quota and then stops for up to 100 ms: give 1 CPU or more "
			"(--cpus=2), or let it sleep on events");
	else if (allowed < 2 || cores_quota_short())
		doctor_remedy(
			f, DOCTOR_WARN,
			"program and service thread share one core: give 2 for the best latency (--cpus=2)");
}

/* ---- seccomp ---- */

/*
 * System calls with arguments that the Linux kernel refuses, or that have no effect. A seccomp
 * filter is recognized by its own error.
 */
static long try_memfd(void)
{
	return syscall(SYS_memfd_create, NULL, ~0u);
}

static long try_sendmmsg(void)
{
	return syscall(SYS_sendmmsg, -1, NULL, 0, 0);
}

static long try_recvmmsg(void)
{
	return syscall(SYS_recvmmsg, -1, NULL, 0, 0, NULL);
}

static long try_eventfd(void)
{
	return syscall(SYS_eventfd2, 0, ~0);
}

static long try_epoll(void)
{
	return syscall(SYS_epoll_create1, ~0);
}

static long try_affinity(void)
{
	return syscall(SYS_sched_setaffinity, 0, 0, NULL);
}

static long try_order(void)
{
	siginfo_t none;

	memset(&none, 0, sizeof(none));
	none.si_code = SI_QUEUE;
	return syscall(SYS_rt_tgsigqueueinfo, getpid(), (int)syscall(SYS_gettid), 0, &none);
}

static const struct probe {
	const char *call;
	long (*try)(void);
	enum doctor_state without;
	const char *what;
} probes[] = {
	{"memfd_create", try_memfd, DOCTOR_FAIL, "no program can open the device"},
	{"sendmmsg", try_sendmmsg, DOCTOR_FAIL, "nothing is sent over udp"},
	{"recvmmsg", try_recvmmsg, DOCTOR_FAIL, "nothing is received over udp"},
	{"eventfd2", try_eventfd, DOCTOR_FAIL, "the NIC does not start"},
	{"epoll_create1", try_epoll, DOCTOR_FAIL, "the NIC does not start"},
	{"sched_setaffinity", try_affinity, DOCTOR_WARN,
	 "the service thread can't move away from a busy core"},
	{"rt_tgsigqueueinfo", try_order, DOCTOR_WARN,
	 "a kernel that does not return cannot be ended"},
};

/* Returns the member Seccomp of /proc/self/status, or -1 if it is absent. */
static int seccomp_mode(void)
{
	FILE *f = fopen("/proc/self/status", "re");
	char line[256];
	int mode = -1;

	while (f && fgets(line, sizeof(line), f)) {
		if (sscanf(line, "Seccomp: %d", &mode) == 1)
			break;
	}
	if (f)
		fclose(f);
	return mode;
}

void doctor_seccomp(const struct doctor *d, struct doctor_finding *f)
{
	char refused[256] = "";
	size_t used = 0;

	for (size_t i = 0; i < ARRAY_SIZE(probes); i++) {
		errno = 0;
		if (probes[i].try() >= 0 || (errno != EPERM && errno != ENOSYS && errno != EACCES))
			continue;
		used += (size_t)snprintf(refused + used, sizeof(refused) - used, " %s",
					 probes[i].call);
		doctor_remedy(f, probes[i].without, "%s: allow the call %s in the seccomp profile",
			      probes[i].what, probes[i].call);
	}
	if (refused[0])
		doctor_found(f, "refused:%s", refused);
	else
		doctor_found(f, "%s, all calls that Roost needs are allowed",
			     seccomp_mode() == 2 ? "a filter" : "no filter");
}

/* ---- libibverbs ---- */

/*
 * Finds the libibverbs.so.1 that the loader selects for a new program. Our verbs are linked into
 * this command, so dlopen() finds the same library as in other programs.
 */
static bool find_system(char *path, size_t n)
{
	void *lib = dlopen("libibverbs.so.1", RTLD_LAZY | RTLD_LOCAL);
	struct link_map *map = NULL;
	char real[PATH_MAX];

	if (!lib)
		return false;
	dlinfo(lib, RTLD_DI_LINKMAP, &map);
	snprintf(path, n, "%s", map && realpath(map->l_name, real) ? real : "libibverbs.so.1");
	dlclose(lib);
	return true;
}

void doctor_library(const struct doctor *d, struct doctor_finding *f)
{
	char dir[PATH_MAX], ours[PATH_MAX + 32], real[PATH_MAX], theirs[PATH_MAX],
		err[2 * PATH_MAX];
	bool found = find_system(theirs, sizeof(theirs));

	if (!dropins_find(dir, sizeof(dir), err, sizeof(err))) {
		doctor_found(f, "roost run finds none; a program loads %.200s",
			     found ? theirs : "none");
		doctor_remedy(f, DOCTOR_FAIL, "%.400s", err);
		return;
	}
	snprintf(ours, sizeof(ours), "%s/libibverbs.so.1", dir);
	if (found && realpath(ours, real) && strcmp(real, theirs) == 0)
		doctor_found(f, "every program loads Roost's, %.300s", ours);
	else
		doctor_found(f, "a program loads %.200s; under roost run, %.200s",
			     found ? theirs : "none", ours);
	if (strpbrk(dir, ": "))
		doctor_remedy(
			f, DOCTOR_FAIL,
			"the path has a blank or a colon, which the loader can't take: move Roost, or set ROOST_LIBDIR");
}
