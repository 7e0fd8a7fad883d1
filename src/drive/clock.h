/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The clock that drives the NIC: monotonic, in nanoseconds, from an arbitrary start. Every turn
 * reads the clock, so a reading must be cheap. If the Linux kernel itself keeps time by the
 * processor's counter, the clock uses that counter (x86-64: the time-stamp counter, if it is
 * invariant; arm64: cntvct_el0). Otherwise it uses clock_gettime(CLOCK_MONOTONIC).
 */
#ifndef ROOST_DRIVE_CLOCK_H
#define ROOST_DRIVE_CLOCK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* base_ticks and base_ns are read-only as soon as mult, which is stored last, is not 0. */
struct clock_scale {
	uint64_t base_ticks;
	uint64_t base_ns;
	/*
	 * ns per tick, with 32 bits of fraction; 0: the counter is not trusted, is not calibrated
	 * yet, or was reset
	 */
	_Atomic uint64_t mult;
};

/*
 * Memory order: the thread that computes the scale stores base_ticks and base_ns, then `mult`
 * (release), once. clock_now() loads `mult` (acquire), then the others.
 */
extern struct clock_scale clock_scale;

/*
 * Starts the calibration, once per process. No thread waits for it: clock_now() reads the system's
 * clock until enough time has passed for a good scale. The next thread that reads the time computes
 * the scale. Any thread.
 */
void clock_start(void);

uint64_t clock_system(void);   /* returns CLOCK_MONOTONIC in ns */
uint64_t clock_unscaled(void); /* the same; also computes the scale when it is due */
/* The same; ends the use of the counter, which was reset. */
uint64_t clock_after_reset(void);

/* A counter so far behind the base was reset, as in a suspend to memory. */
#define CLOCK_RESET_TICKS (1ll << 30)

/*
 * Reads the processor's counter. On arm64 an `isb` precedes the read, as in the vDSO of the Linux
 * kernel. Without it the processor may read the counter early, out of order.
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

/* Returns the time in ns. Any thread, after clock_start(). */
static inline uint64_t clock_now(void)
{
#ifdef CLOCK_TICKS
	uint64_t mult = atomic_load_explicit(&clock_scale.mult, memory_order_acquire);

	if (__builtin_expect(mult != 0, 1)) {
		int64_t ticks = (int64_t)(clock_ticks() - clock_scale.base_ticks);

		if (__builtin_expect(ticks < -CLOCK_RESET_TICKS, 0))
			return clock_after_reset();
		/*
		 * The difference is signed, because the counter of a core may lag by some ticks.
		 * The time must not become huge then.
		 */
		return clock_scale.base_ns + (uint64_t)(((__int128)ticks * mult) >> 32);
	}
#endif
	return clock_unscaled();
}

#endif
