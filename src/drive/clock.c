/* SPDX-License-Identifier: BSD-2-Clause */
#include "drive/clock.h"

#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <time.h>

#include "base/log.h"
#include "base/sys.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

/* a pair of readings is exact to about 50 ns, so the rate is exact to about 5 ppm */
#define CALIBRATE_NS 10000000
/*
 * After this time the machine may have slept between the readings. The counter then ran on or was
 * reset.
 */
#define TOO_LATE_NS 1000000000
#define NS_PER_S    1000000000ull
/*
 * An older reading is not used as the base, because the error of the rate would make the time jump.
 */
#define STALE_NS 20000

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

#ifdef CLOCK_TICKS

/* Returns true if the Linux kernel keeps time by the counter of this name. */
static bool kernel_counts_by(const char *counter)
{
	static const char source[] =
		"/sys/devices/system/clocksource/clocksource0/current_clocksource";
	char name[24] = "";
	int fd = sys_open(source, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return false;
	ssize_t n = sys_read(fd, name, sizeof(name) - 1);
	sys_close(fd);
	return n > 0 && strncmp(name, counter, strlen(counter)) == 0;
}

#if defined(__x86_64__)

/*
 * The counter must be invariant: one rate in all power states (Intel SDM volume 3, 18.17.1; CPUID
 * 80000007h EDX bit 8). No instruction tells whether the counters of all cores agree. The Linux
 * kernel has checked this if it keeps time by the counter.
 */
static bool counter_is_trusted(void)
{
	unsigned a, b, c, d;

	return __get_cpuid(0x80000007, &a, &b, &c, &d) && d & 1u << 8 && kernel_counts_by("tsc");
}

/* The processor does not report the rate, so the measured one is used. */
static uint64_t ticks_per_second(uint64_t measured)
{
	return measured;
}

#else /* arm64 */

/* The counter has one rate in all power states and is the same on all cores (Arm ARM, D12.1.2). */
static bool counter_is_trusted(void)
{
	return kernel_counts_by("arch_sys_counter");
}

/*
 * Returns the rate that the firmware reports, which is exact. If it differs from the measured rate
 * by more than a thousandth, the firmware is wrong, and the measured rate is returned.
 */
static uint64_t ticks_per_second(uint64_t measured)
{
	uint64_t hz, off;

	__asm__ volatile("mrs %0, cntfrq_el0" : "=r"(hz));
	off = hz > measured ? hz - measured : measured - hz;
	return off < measured / 1000 ? hz : measured;
}

#endif

struct reading {
	/* the counter before the clocks were read, and in the middle of the reading */
	uint64_t from, ticks;
	uint64_t raw_ns, ns;
	uint64_t boot_ns; /* this clock includes sleep */
};

/*
 * Reads the counter and the clocks at one moment. Of several tries, the one with the least time
 * between two counter readings counts.
 */
static struct reading take_reading(void)
{
	struct reading best = {0};
	uint64_t best_gap = UINT64_MAX;

	for (int i = 0; i < 8; i++) {
		uint64_t before = clock_ticks();
		uint64_t raw_ns = read_clock(CLOCK_MONOTONIC_RAW);
		uint64_t ns = clock_system();
		uint64_t gap = clock_ticks() - before;

		if (gap < best_gap) {
			best_gap = gap;
			best = (struct reading){before, before + gap / 2, raw_ns, ns, 0};
		}
	}
	best.boot_ns = read_clock(CLOCK_BOOTTIME);
	return best;
}

static struct reading first;
/*
 * Time of the second reading, by the system's clock. UINT64_MAX: a thread takes the reading now, or
 * none is needed. Memory order: schedule_reading() stores it (release) after `first`; the thread
 * whose exchange takes the value acquires it, then reads `first`.
 */
static _Atomic uint64_t reading_due = UINT64_MAX;

static void schedule_reading(void)
{
	atomic_store_explicit(&reading_due, clock_system() + CALIBRATE_NS, memory_order_release);
}

static void begin(void)
{
	if (!counter_is_trusted())
		return;
	first = take_reading();
	schedule_reading();
}

/*
 * Sets the scale. The time then counts from the start of the second reading, so it does not go back
 * unless this thread was delayed since. Only the thread that took `reading_due` accesses `first`
 * and the scale.
 */
static void finish(void)
{
	struct reading last = take_reading();
	uint64_t ticks = last.ticks - first.ticks, ns = last.raw_ns - first.raw_ns;

	if (last.boot_ns - first.boot_ns > TOO_LATE_NS) {
		first = last;
		schedule_reading();
		return;
	}
	if (last.ticks <= first.ticks || last.raw_ns <= first.raw_ns)
		return;

	uint64_t hz = ticks_per_second((uint64_t)((unsigned __int128)ticks * NS_PER_S / ns));
	uint64_t mult = (uint64_t)(((unsigned __int128)NS_PER_S << 32) / hz);

	clock_scale.base_ticks = last.from;
	clock_scale.base_ns = last.ns;
	if (clock_system() - last.ns > STALE_NS) {
		schedule_reading();
		return;
	}
	atomic_store_explicit(&clock_scale.mult, mult, memory_order_release);
	log_debug("clock: reads the processor's counter, at %.3f MHz", (double)hz / 1e6);
}

/*
 * No thread computes another scale: a thread that has loaded `mult` may still read the base. The
 * system's clock takes some tens of nanoseconds more.
 */
uint64_t clock_after_reset(void)
{
	atomic_store_explicit(&clock_scale.mult, 0, memory_order_relaxed);
	return clock_system();
}

uint64_t clock_unscaled(void)
{
	uint64_t ns = clock_system(),
		 when = atomic_load_explicit(&reading_due, memory_order_acquire);

	/* The exchange takes only this value: another thread may have set a later one meanwhile. */
	if (ns >= when &&
	    atomic_compare_exchange_strong_explicit(&reading_due, &when, UINT64_MAX,
						    memory_order_acq_rel, memory_order_relaxed))
		finish();
	return ns;
}

#else

static void begin(void)
{
}

uint64_t clock_unscaled(void)
{
	return clock_system();
}

#endif

void clock_start(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, begin);
}
