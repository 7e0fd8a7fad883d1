/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The clock that drives the NIC: nanoseconds, monotonic, from an arbitrary start. Read once a turn,
 * so it has to be cheap: the processor's counter (x86-64: time-stamp counter, where it is
 * invariant; arm64: cntvct_el0) where the kernel itself keeps time by it, otherwise
 * clock_gettime(CLOCK_MONOTONIC).
 */
#ifndef ROOST_DRIVE_CLOCK_H
#define ROOST_DRIVE_CLOCK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* Read-only once mult, which is stored last, is not 0. */
struct clock_scale {
	uint64_t base_ticks;
	uint64_t base_ns;
	/* ns per tick, 32 bits of fraction; 0: no counter to trust, or not known yet */
	_Atomic uint64_t mult;
};

extern struct clock_scale clock_scale;

/*
 * Begins to calibrate, once per process. Nobody waits for it: the system's clock serves until the
 * first one who reads the time late enough for a good scale. Any thread.
 */
void clock_start(void);

uint64_t clock_system(void);   /* CLOCK_MONOTONIC, ns */
uint64_t clock_unscaled(void); /* the same, and finds the scale when it is time to */

/*
 * The processor's counter. Not before what stands before it: `isb`, as the kernel's vDSO has it
 * (arm64 may read it early, out of order).
 */
#if defined(__x86_64__)
#define CLOCK_TICKS
static inline uint64_t clock_ticks(void)
{
	return __builtin_ia32_rdtsc();
}
#elif defined(__aarch64__)
#define CLOCK_TICKS
static inline uint64_t clock_ticks(void)
{
	uint64_t ticks;

	__asm__ volatile("isb\n\tmrs %0, cntvct_el0" : "=r"(ticks) : : "memory");
	return ticks;
}
#endif

/* Any thread, after clock_start(). */
static inline uint64_t clock_now(void)
{
#ifdef CLOCK_TICKS
	uint64_t mult = atomic_load_explicit(&clock_scale.mult, memory_order_acquire);

	if (__builtin_expect(mult != 0, 1)) {
		uint64_t ticks = clock_ticks() - clock_scale.base_ticks;

		/* Signed: a core whose counter lags by some ticks must not see the far future. */
		return clock_scale.base_ns + (uint64_t)(((__int128)(int64_t)ticks * mult) >> 32);
	}
#endif
	return clock_unscaled();
}

#endif
