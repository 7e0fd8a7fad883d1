/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/hist.h"

#include <string.h>

void hist_reset(struct hist *h)
{
	memset(h, 0, sizeof(*h));
}

void hist_merge(struct hist *to, const struct hist *from)
{
	if (from->count == 0)
		return;
	if (to->count == 0 || from->min < to->min)
		to->min = from->min;
	if (from->max > to->max)
		to->max = from->max;
	to->count += from->count;
	to->sum += from->sum;
	for (unsigned i = 0; i < HIST_BUCKETS; i++)
		to->bucket[i] += from->bucket[i];
}

/* Returns the largest value that falls into a bucket: the inverse of hist_bucket(). */
static uint64_t bucket_top(unsigned i)
{
	unsigned shift = i >> HIST_SUB_BITS ? (i >> HIST_SUB_BITS) - 1 : 0;
	uint64_t base = i - (shift << HIST_SUB_BITS);

	return (base << shift) + ((1ull << shift) - 1);
}

uint64_t hist_percentile(const struct hist *h, double percent)
{
	if (h->count == 0)
		return 0;
	if (percent <= 0)
		return h->min;
	if (percent >= 100)
		return h->max;

	/* Values count from 1: of 10 values, 50 percent is the fifth, and 51 percent the sixth. */
	double exact = percent / 100 * (double)h->count *
		       (1 - 1e-12); /* 10% of 10 must be 1, despite rounding */
	uint64_t rank = (uint64_t)exact + 1, seen = 0;

	for (unsigned i = 0; i < HIST_BUCKETS; i++) {
		seen += h->bucket[i];
		if (seen >= rank) {
			uint64_t top = bucket_top(i);

			return top < h->min ? h->min : top > h->max ? h->max : top;
		}
	}
	return h->max;
}

uint64_t hist_min(const struct hist *h)
{
	return h->count ? h->min : 0;
}

uint64_t hist_max(const struct hist *h)
{
	return h->max;
}

double hist_mean(const struct hist *h)
{
	return h->count ? (double)h->sum / (double)h->count : 0;
}
