/* SPDX-License-Identifier: BSD-2-Clause */
/* Runs two pinned threads that work with each other, and measures their time. */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <time.h>

#include "base/mem.h"
#include "cli/limits/limit.h"
#include "cli/term.h"

#define WARM_UP_NS	20000000
#define SPINS_PER_YIELD 20000

/* Returns true if two processors share a core, and false if this is unknown. */
static bool siblings(int a, int b)
{
	char path[96];
	unsigned long lo, hi;
	bool found = false;
	int n;
	FILE *f;

	snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list",
		 a);
	f = fopen(path, "re");
	if (!f)
		return false;
	/* "0,64" or "0-1" */
	while ((n = fscanf(f, "%lu-%lu", &lo, &hi)) >= 1) {
		if (n == 1)
			hi = lo;
		found |= (unsigned long)b >= lo && (unsigned long)b <= hi;
		if (fgetc(f) != ',')
			break;
	}
	fclose(f);
	return found;
}

int limit_pick_cores(struct limit_cores *c)
{
	int first = -1, sibling = -1;
	cpu_set_t set;

	if (sched_getaffinity(0, sizeof(set), &set))
		return -errno;
	for (int i = 0; i < CPU_SETSIZE; i++) {
		if (!CPU_ISSET(i, &set))
			continue;
		if (first < 0) {
			first = i;
		} else if (!siblings(first, i)) {
			*c = (struct limit_cores){{first, i}, false};
			return 0;
		} else if (sibling < 0) {
			sibling = i;
		}
	}
	*c = (struct limit_cores){{first, sibling < 0 ? first : sibling}, sibling < 0};
	return 0;
}

bool limit_count(struct limit_pair *p, int side, uint64_t n)
{
	int phase = atomic_load_explicit(&p->phase, memory_order_relaxed);

	if (likely(phase == p->side[side].seen)) {
		p->side[side].done += n;
		return phase != LIMIT_STOP;
	}
	p->side[side].seen = phase;
	if (phase == LIMIT_MEASURE) {
		p->side[side].from = clock_ns();
		p->side[side].done = 0;
		return true;
	}
	p->side[side].done += n;
	p->side[side].to = clock_ns();
	return false;
}

void limit_wait(const struct limit_pair *p, unsigned *spins)
{
	cpu_pause();
	if (p->shared || ++*spins % SPINS_PER_YIELD == 0)
		sched_yield();
}

struct start {
	limit_side *fn;
	void *arg;
	int side;
	struct limit_pair *pair;
};

static void *enter(void *arg)
{
	struct start *s = arg;

	s->fn(s->arg, s->side, s->pair);
	return NULL;
}

static int start_pinned(pthread_t *t, int cpu, struct start *s)
{
	pthread_attr_t attr;
	cpu_set_t set;
	int rc;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	rc = pthread_attr_init(&attr);
	if (rc)
		return -rc;
	rc = pthread_attr_setaffinity_np(&attr, sizeof(set), &set);
	if (rc == 0)
		rc = pthread_create(t, &attr, enter, s);
	pthread_attr_destroy(&attr);
	return -rc;
}

static void sleep_ns(uint64_t ns)
{
	struct timespec t = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};

	while (nanosleep(&t, &t) && errno == EINTR)
		;
}

int limit_pair_run(const struct limit_cores *c, limit_side *fn, void *arg, double seconds,
		   double rate[2])
{
	struct limit_pair p = {.shared = c->shared};
	struct start s[2] = {{fn, arg, 0, &p}, {fn, arg, 1, &p}};
	pthread_t t[2];
	int started = 0, rc = 0;

	while (started < 2 && rc == 0) {
		rc = start_pinned(&t[started], c->cpu[started], &s[started]);
		started += rc == 0;
	}
	if (rc == 0) {
		sleep_ns(WARM_UP_NS);
		atomic_store(&p.phase, LIMIT_MEASURE);
		sleep_ns((uint64_t)(seconds * 1e9));
	}
	atomic_store(&p.phase, LIMIT_STOP);
	for (int i = 0; i < started; i++)
		pthread_join(t[i], NULL);
	for (int i = 0; i < 2; i++) {
		uint64_t ns = p.side[i].to - p.side[i].from;

		rate[i] = p.side[i].from && ns ? (double)p.side[i].done * 1e9 / (double)ns : 0;
	}
	return rc;
}
