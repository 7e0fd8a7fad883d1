/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The times in which a core that only spins stands still: interrupts and other threads of Linux,
 * and what Linux does not see, as the hypervisor below it. They delay every program that polls.
 */
#include "base/hist.h"
#include "cli/limits/limit.h"
#include "cli/term.h"

/* Reading the clock takes less than a tenth of this time. */
#define STALL_NS 5000

void limit_stalls(double seconds, double part[LIMIT_STALLS])
{
	uint64_t start = clock_ns(), last = start, now;
	struct hist gaps = {0}; /* ns */
	double run;

	do {
		now = clock_ns();
		if (now - last > STALL_NS)
			hist_add(&gaps, now - last);
		last = now;
	} while ((double)(now - start) < seconds * 1e9);
	run = (double)(now - start) / 1e9;
	part[LIMIT_STALLS_PER_SECOND] = (double)gaps.count / run;
	part[LIMIT_STALLS_MS] = (double)gaps.sum / 1e6 / run;
	part[LIMIT_STALLS_P50] = (double)hist_percentile(&gaps, 50);
}
