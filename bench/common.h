/* SPDX-License-Identifier: BSD-2-Clause */
/* What programs of bench share: the clock, and the end of the program on an error. */
#ifndef ROOST_BENCH_COMMON_H
#define ROOST_BENCH_COMMON_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/* Returns CLOCK_MONOTONIC in ns. */
static inline uint64_t monotonic_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* Prints `what` and the message of errno, and ends the process with status 1. */
static inline _Noreturn void die(const char *what)
{
	perror(what);
	exit(1);
}

#endif
