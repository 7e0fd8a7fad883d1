/* SPDX-License-Identifier: BSD-2-Clause */
/* The row of `roost doctor` about the pool: the programs of this user that share addresses. */
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include "cli/doctor/doctor.h"
#include "pool/pool.h"

/* The sockets of one address, and other descriptors of a program. */
#define FILES_LEAST (POOL_SLOTS + 64)

/* Counts programs, and the slots that other programs cannot take. */
static void count(const struct pool_seen seen[POOL_SLOTS], unsigned *programs, unsigned *taken)
{
	*programs = *taken = 0;
	for (unsigned i = 0; i < POOL_SLOTS; i++) {
		*taken += seen[i].taken;
		*programs += seen[i].taken && seen[i].known && seen[i].first == i;
	}
}

void doctor_pool(const struct doctor *d, struct doctor_finding *f)
{
	struct pool_seen seen[POOL_SLOTS];
	unsigned programs, taken, silent = pool_look(seen);
	int steers = pool_can_steer(), strangers;
	struct rlimit limit = {0};
	char files[32] = "no limit of";
	uid_t uid = 0;

	count(seen, &programs, &taken);
	strangers = pool_strangers(&uid);
	getrlimit(RLIMIT_NOFILE, &limit);
	if (limit.rlim_max != RLIM_INFINITY)
		snprintf(files, sizeof(files), "%llu", (unsigned long long)limit.rlim_max);
	doctor_found(
		f,
		"%u %s of yours, %u of %d slots free; SO_ATTACH_REUSEPORT_CBPF %s; %s open files; names of "
		"another user: %s",
		programs, programs == 1 ? "program" : "programs", POOL_SLOTS - taken, POOL_SLOTS,
		steers ? "no" : "yes", files,
		strangers < 0	? "unknown"
		: strangers > 0 ? "yes"
				: "none");
	if (taken == POOL_SLOTS)
		doctor_remedy(
			f, d->udp ? DOCTOR_FAIL : DOCTOR_WARN,
			"no further program can open a udp port: stop one (roost devices lists them)%s",
			strangers > 0 ? ", or let the other user end those that hold names" : "");
	if (strangers > 0)
		doctor_remedy(
			f, DOCTOR_WARN,
			"fewer programs fit: user %u holds %d names of your pool, in a user namespace (unshare -r, a "
			"rootless container) or on purpose; let that user end these programs",
			(unsigned)uid, strangers);
	if (silent)
		doctor_remedy(
			f, DOCTOR_WARN,
			"no program of yours answers (stopped, or in a debugger?): the next one takes an address of "
			"its own; continue or stop them (roost devices lists them)");
	if (steers)
		doctor_remedy(
			f, DOCTOR_WARN,
			"a program has its address for itself (%s): allow this option of setsockopt in the seccomp "
			"profile, or give each program an address, as in --port udp:127.0.0.2",
			strerror(-steers));
	if (limit.rlim_max < FILES_LEAST)
		doctor_remedy(
			f, DOCTOR_WARN,
			"a program has its address for itself: an address takes %d descriptors; raise the "
			"hard limit (ulimit -Hn 2048, --ulimit nofile=2048)",
			POOL_SLOTS);
}
