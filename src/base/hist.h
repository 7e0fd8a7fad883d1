/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A latency histogram with logarithmic ranges of linear buckets, like HdrHistogram. It has 64
 * buckets per power of two. Values below 128 are exact, and all others up to 2^64 are exact to 1/64
 * (1.6%). It takes 30 KiB of fixed memory, and adding a value takes a few instructions. One thread
 * at a time may add, so each thread has a histogram of its own; they are merged afterwards. A
 * zeroed histogram is empty.
 */
#ifndef ROOST_BASE_HIST_H
#define ROOST_BASE_HIST_H

#include <stdint.h>

#define HIST_SUB_BITS 6
#define HIST_BUCKETS  ((64 - HIST_SUB_BITS + 1) << HIST_SUB_BITS)

struct hist {
	uint64_t count, sum, min, max; /* min and max are exact; min is undefined when count is 0 */
	uint64_t bucket[HIST_BUCKETS];
};

/* Returns the index of the bucket of a value. */
static inline unsigned hist_bucket(uint64_t ns)
{
	unsigned shift =
		ns >> HIST_SUB_BITS ? 63 - (unsigned)__builtin_clzll(ns) - HIST_SUB_BITS : 0;

	return (shift << HIST_SUB_BITS) + (unsigned)(ns >> shift);
}

/* Adds `n` > 0 equal values. */
static inline void hist_add_equal(struct hist *h, uint64_t ns, uint64_t n)
{
	if (h->count == 0 || ns < h->min)
		h->min = ns;
	if (ns > h->max)
		h->max = ns;
	h->count += n;
	h->sum += n * ns;
	h->bucket[hist_bucket(ns)] += n;
}

static inline void hist_add(struct hist *h, uint64_t ns)
{
	hist_add_equal(h, ns, 1);
}

void hist_reset(struct hist *h);
/* Adds the values of `from` to `to`. */
void hist_merge(struct hist *to, const struct hist *from);

/*
 * Returns the value that `percent` (0 .. 100) of the values do not exceed: the upper end of its
 * bucket, limited to the min and max seen. Returns 0 for an empty histogram.
 */
uint64_t hist_percentile(const struct hist *h, double percent);
/* Return the exact minimum, the exact maximum and the mean, or 0 for an empty histogram. */
uint64_t hist_min(const struct hist *h);
uint64_t hist_max(const struct hist *h);
double hist_mean(const struct hist *h);

#endif
