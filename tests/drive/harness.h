/* SPDX-License-Identifier: BSD-2-Clause */
/* Shared by the drive tests: cmocka, and an engine on the fake core in a private folder. */
#ifndef TESTS_DRIVE_HARNESS_H
#define TESTS_DRIVE_HARNESS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "fake_nic.h"

static char harness_dir[64];

static inline int harness_begin(void **state)
{
	strcpy(harness_dir, "/tmp/roost-test-XXXXXX");
	if (!mkdtemp(harness_dir))
		return -1;
	setenv("ROOST_SHM_DIR", harness_dir, 1);
	setenv("ROOST_PORT", "fake", 1);
	return 0;
}

static inline int harness_end(void **state)
{
	return rmdir(harness_dir); /* fails if an engine left a file behind */
}

static void harness_cq_event(void *host, void *ctx)
{
	uint64_t one = 1;

	if (write(*(int *)ctx, &one, sizeof(one)) != sizeof(one))
		abort();
}

static void harness_ignore(void *host, void *ctx)
{
}

static void harness_qp_event(void *host, enum nic_event ev, void *ctx)
{
}

static const struct nic_host_ops harness_ops = {
	.cq_event = harness_cq_event,
	.qp_event = harness_qp_event,
	.cq_error = harness_ignore,
};

static inline struct drive *harness_open(void)
{
	char err[256] = "";
	struct drive *d = NULL;
	int rc = drive_get(&harness_ops, &d, err, sizeof(err));

	if (rc)
		fail_msg("drive_get: %d, %s", rc, err);
	return d;
}

static inline int harness_setup(void **state)
{
	*state = harness_open();
	return 0;
}

static inline void harness_sleep_ms(unsigned ms)
{
	struct timespec ts = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};

	nanosleep(&ts, NULL);
}

/* Returns the thread id of the service thread, found by its name; 0: there is none. */
static inline int harness_service_tid(void)
{
	DIR *dir = opendir("/proc/self/task");
	struct dirent *e;
	int tid = 0;

	while (dir && (e = readdir(dir)) != NULL) {
		char path[300], name[32] = "";
		FILE *f;

		snprintf(path, sizeof(path), "/proc/self/task/%s/comm", e->d_name);
		f = fopen(path, "r");
		if (!f)
			continue;
		if (fgets(name, sizeof(name), f) && strcmp(name, "roost\n") == 0)
			tid = atoi(e->d_name);
		fclose(f);
	}
	if (dir)
		closedir(dir);
	return tid;
}

/* Waits for the service thread: a new thread takes a moment to set its name. */
static inline int harness_find_service(void)
{
	int tid = 0;

	for (int tries = 0; tries < 20000 && !(tid = harness_service_tid()); tries++)
		harness_sleep_ms(1);
	return tid;
}

/* Waits until the thread is gone: it may stay under /proc for a moment after it was joined. */
static inline bool harness_service_ended(void)
{
	for (int tries = 0; tries < 20000 && harness_service_tid(); tries++)
		harness_sleep_ms(1);
	return !harness_service_tid();
}

/* Waits until the service thread is gone, so that the next test does not find it. */
static inline int harness_teardown(void **state)
{
	drive_put(*state);
	return harness_service_ended() ? 0 : -1;
}

/* Returns the number of a thread's context switches of both kinds; -1: no such thread. */
static inline long harness_switches(int tid)
{
	char path[64], line[128];
	long sum = 0, n;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/self/task/%d/status", tid);
	f = fopen(path, "r");
	if (!f)
		return -1;
	while (fgets(line, sizeof(line), f)) {
		if (sscanf(line, "voluntary_ctxt_switches: %ld", &n) == 1 ||
		    sscanf(line, "nonvoluntary_ctxt_switches: %ld", &n) == 1)
			sum += n;
	}
	fclose(f);
	return sum;
}

#endif
