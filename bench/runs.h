/* SPDX-License-Identifier: BSD-2-Clause */
/* The common part of benchmarks of bare loops: duration of a run, median of several runs. */
#ifndef ROOST_BENCH_RUNS_H
#define ROOST_BENCH_RUNS_H

#include <stdlib.h>
#include <time.h>

/* CPU time of the thread, without other programs of the machine. */
static inline double now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static inline int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* Sorts t. */
static inline double median(double *t, unsigned n)
{
	qsort(t, n, sizeof(*t), by_value);
	return t[n / 2];
}

#endif
