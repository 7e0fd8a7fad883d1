/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The time from the wake-up of a sleeping thread by another core until the thread runs: the lower
 * bound of the latency of a NIC that sleeps.
 */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "base/hist.h"
#include "base/mem.h"
#include "cli/limits/limit.h"
#include "cli/term.h"

struct wake {
	int fd;
	bool beside;			      /* another thread spins on the sleeper's core */
	_Alignas(128) _Atomic uint64_t woken; /* ns; 0: not yet */
	_Alignas(128) _Atomic bool stop;
	struct hist hist; /* ns */
};

static void *spin(void *arg)
{
	struct wake *w = arg;

	while (!atomic_load_explicit(&w->stop, memory_order_relaxed))
		cpu_pause();
	return NULL;
}

static void sleeper(struct wake *w, struct limit_pair *p)
{
	pthread_t beside;
	uint64_t count;
	bool two = w->beside && pthread_create(&beside, NULL, spin, w) == 0;

	for (;;) {
		if (read(w->fd, &count, sizeof(count)) != sizeof(count))
			break;
		if (atomic_load_explicit(&w->stop, memory_order_relaxed))
			break;
		atomic_store_explicit(&w->woken, clock_ns(), memory_order_release);
	}
	if (two)
		pthread_join(beside, NULL);
	limit_count(p, 1, 0);
}

static void wake_sleeper(const struct wake *w)
{
	uint64_t one = 1;

	if (write(w->fd, &one, sizeof(one)) != sizeof(one))
		abort(); /* cannot happen: the eventfd is far from full */
}

static void wake_side(void *arg, int me, struct limit_pair *p)
{
	const struct timespec nap = {.tv_nsec = LIMIT_SLEEP_NS};
	struct wake *w = arg;
	unsigned spins = 0, wakes = 0;

	if (me == 1) {
		sleeper(w, p);
		return;
	}
	do {
		uint64_t start, woken;

		nanosleep(&nap, NULL);
		atomic_store_explicit(&w->woken, 0, memory_order_relaxed);
		start = clock_ns();
		wake_sleeper(w);
		while (!(woken = atomic_load_explicit(&w->woken, memory_order_acquire))) {
			if (p->shared)
				limit_wait(p, &spins);
		}
		hist_add(&w->hist, woken > start ? woken - start : 0);
		wakes++;
	} while (limit_count(p, me, 1) || wakes < LIMIT_WAKES);
	atomic_store(&w->stop, true);
	wake_sleeper(w);
}

int limit_wake(const struct limit_cores *c, bool beside, unsigned percentile, double seconds,
	       double *ns)
{
	struct wake *w = aligned_alloc(128, ALIGN_UP(sizeof(*w), 128));
	double sides[2];
	int rc;

	if (!w)
		return -ENOMEM;
	memset(w, 0, sizeof(*w));
	w->beside = beside;
	w->fd = eventfd(0, EFD_CLOEXEC);
	rc = w->fd < 0 ? -errno : limit_pair_run(c, wake_side, w, seconds, sides);
	*ns = (double)hist_percentile(&w->hist, percentile);
	if (w->fd >= 0)
		close(w->fd);
	free(w);
	return rc;
}
