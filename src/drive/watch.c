/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The watchdog: a thread that checks guards (base/guard.h) from time to time and ends a step that
 * does not return. The service thread cannot do this, because it may run that step itself. While no
 * steps run, the watchdog sleeps; the first step wakes it.
 *
 * Memory order: drive_watch() stores the guards, then `num` (release); the watchdog loads `num`
 * (acquire), then the guards. watch_stop() stores `stop` (release), then clears `asleep`; the
 * watchdog stores `asleep`, waits for an interval, then loads `stop` (acquire). A guard's counts of
 * steps are relaxed: the watchdog compares them with those of an earlier check (guard_check()).
 */
#include <errno.h>
#include <sys/prctl.h>

#include "base/sys.h"
#include "drive/engine.h"

#define CHECK_NS (50 * MS)
#define IDLE	 20 /* the thread sleeps after this many checks without a change */

#define STACK_BYTES (64 * 1024)

/* The limits count checks, not time, because a process may be stopped for any length of time. */
static const struct watchdog_limits limits = {.checks = 4, .cpu_ns = 100 * MS, .checks_asleep = 6};

static bool check_guards(struct watch *w)
{
	unsigned n = atomic_load_explicit(&w->num, memory_order_acquire);
	bool moved = false;

	for (unsigned i = 0; i < n; i++)
		moved |= guard_check(w->guard[i], &limits);
	return moved;
}

/*
 * Stores that the watchdog sleeps, and returns true if it may. A thread that opens a guard may see
 * the store late. The watchdog therefore checks once more after one more interval.
 */
static bool may_sleep(struct watch *w)
{
	atomic_store_explicit(&w->shared.asleep, 1, memory_order_seq_cst);
	sys_futex_wait(&w->shared.asleep, 1, CHECK_NS);
	if (!check_guards(w))
		return true;
	atomic_store_explicit(&w->shared.asleep, 0, memory_order_relaxed);
	return false;
}

static void *watch_main(void *arg)
{
	struct watch *w = arg;
	unsigned idle = 0;

	prctl(PR_SET_NAME, "roost-watch", 0, 0, 0);
	while (!atomic_load_explicit(&w->stop, memory_order_acquire)) {
		idle = check_guards(w) ? 0 : idle + 1;
		if (idle < IDLE) {
			sys_futex_wait(&w->shared.asleep, 0, CHECK_NS);
			continue;
		}
		idle = 0;
		if (may_sleep(w) && !atomic_load_explicit(&w->stop, memory_order_acquire))
			sys_futex_wait(&w->shared.asleep, 1, UINT64_MAX);
	}
	return NULL;
}

int drive_watch(struct drive *d, struct guard *const *guards, unsigned n)
{
	struct watch *w = &d->watch;
	int rc;

	for (unsigned i = 0; i < n; i++)
		w->guard[i] = guards[i];
	atomic_store_explicit(&w->num, n, memory_order_release);
	rc = thread_start(&w->thread, STACK_BYTES, watch_main, w);
	if (rc)
		return rc;
	w->running = true;
	for (unsigned i = 0; i < n; i++)
		atomic_store_explicit(&guards[i]->watch, &w->shared, memory_order_relaxed);
	return 0;
}

void watch_stop(struct watch *w)
{
	if (!w->running)
		return;
	atomic_store_explicit(&w->stop, true, memory_order_release);
	atomic_store_explicit(&w->shared.asleep, 0, memory_order_relaxed);
	sys_futex_wake(&w->shared.asleep);
	thread_join(w->thread);
	w->running = false;
}
