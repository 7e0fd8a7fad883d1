/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/rng.h"

#include <errno.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

uint64_t rng_entropy(void)
{
	uint64_t v;
	ssize_t n;

	do
		n = getrandom(&v, sizeof(v), 0);
	while (n < 0 && errno == EINTR);
	if (n == (ssize_t)sizeof(v))
		return v;

	/* A sandbox that forbids getrandom: still different from process to process and from call to call. */
	struct timespec ts;
	struct rng r;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	rng_seed(&r, (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec + ((uint64_t)getpid() << 40));
	return rng_u64(&r);
}
