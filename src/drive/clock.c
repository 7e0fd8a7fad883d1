/* SPDX-License-Identifier: BSD-2-Clause */
#include "drive/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#define CALIBRATE_NS 4000000 /* a pair of readings is good to some 50 ns: about 10 ppm */

struct clock_scale clock_scale;

static uint64_t read_clock(clockid_t id)
{
	struct timespec ts;

	clock_gettime(id, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

uint64_t clock_system(void)
{
	return read_clock(CLOCK_MONOTONIC);
}

#if defined(__x86_64__)

/*
 * Invariant: it counts at one rate in all power states (Intel SDM volume 3, 18.17.1; CPUID 80000007h EDX bit
 * 8). That the counters of all cores agree no instruction can tell; the kernel has checked it where it keeps
 * time by it.
 */
static bool counter_is_trusted(void)
{
	static const char source[] = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
	unsigned a, b, c, d;
	char name[16] = "";
	int fd;

	if (!__get_cpuid(0x80000007, &a, &b, &c, &d) || !(d & 1u << 8))
		return false;
	fd = open(source, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	ssize_t n = read(fd, name, sizeof(name) - 1);
	close(fd);
	return n > 0 && strncmp(name, "tsc", 3) == 0;
}

struct reading {
	uint64_t tsc, raw_ns;
};

/*
 * The counter and the clock at one moment: of several tries the one with the least time between two counter
 * readings.
 */
static struct reading take_reading(void)
{
	struct reading best = {0};
	uint64_t best_gap = UINT64_MAX;

	for (int i = 0; i < 8; i++) {
		uint64_t before = __builtin_ia32_rdtsc();
		uint64_t ns = read_clock(CLOCK_MONOTONIC_RAW);
		uint64_t gap = __builtin_ia32_rdtsc() - before;

		if (gap < best_gap) {
			best_gap = gap;
			best = (struct reading){before + gap / 2, ns};
		}
	}
	return best;
}

static void calibrate(void)
{
	struct timespec nap = {.tv_nsec = CALIBRATE_NS};
	struct reading from, to;

	if (!counter_is_trusted())
		return;
	from = take_reading();
	while (nanosleep(&nap, &nap) < 0 && errno == EINTR)
		;
	to = take_reading();
	if (to.tsc <= from.tsc || to.raw_ns <= from.raw_ns)
		return;
	clock_scale.base_tsc = to.tsc;
	clock_scale.base_ns = clock_system();
	clock_scale.mult =
		(uint64_t)(((unsigned __int128)(to.raw_ns - from.raw_ns) << 32) / (to.tsc - from.tsc));
	log_debug("clock: time-stamp counter at %.3f MHz",
		  (double)(to.tsc - from.tsc) * 1e3 / (double)(to.raw_ns - from.raw_ns));
}

#else

static void calibrate(void)
{
}

#endif

void clock_start(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, calibrate);
}
