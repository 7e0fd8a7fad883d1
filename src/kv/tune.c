/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The model: a sample of chains is filled with pairs as index.c does it. A pair goes to a random
 * chain, and there to the first bucket with enough empty slots. Linear hashing gives a bucket that
 * is not split yet twice the pairs of others, unless the number of buckets is a power of two. A GET
 * reads the buckets of the chain up to the pair, the record if the pair is not inline, and records
 * whose secondary hash of 9 bits is the same by chance. A PUT writes once more.
 */
#include "kv/tune.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "kv/bucket.h"
#include "kv/kv.h"
#include "kv/record.h"
#include "kv/slab.h"

#define CHAINS 4096u /* of the sample */
#define DEPTH  16u   /* most buckets of a chain */
#define STEPS  64u   /* index ratios that are tried */
#define REFINE 4u    /* halvings of the distance between two of them */

struct sample {
	struct {
		uint8_t used, inlined, records; /* slots; pairs */
	} b[CHAINS][DEPTH];
	double limit[KV_TUNE_SIZES]; /* of a random number up to which it selects this size */
};

static int check(const struct kv_workload *w)
{
	if (!w->num_sizes || w->num_sizes > KV_TUNE_SIZES || w->memory < KV_TUNE_MEMORY_MIN ||
	    w->memory > 1ull << 46 || !(w->utilization > 0 && w->utilization < 1))
		return -EINVAL;
	for (unsigned i = 0; i < w->num_sizes; i++)
		if (!w->sizes[i].bytes || w->sizes[i].bytes > KV_TUNE_SIZE_MAX ||
		    !(w->sizes[i].weight > 0 && w->sizes[i].weight < 1e18))
			return -EINVAL;
	return 0;
}

static double sum_of_weights(const struct kv_workload *w)
{
	double sum = 0;

	for (unsigned i = 0; i < w->num_sizes; i++)
		sum += w->sizes[i].weight;
	return sum;
}

static uint64_t count_pairs(const struct kv_workload *w)
{
	double bytes = 0;

	for (unsigned i = 0; i < w->num_sizes; i++)
		bytes += w->sizes[i].bytes * w->sizes[i].weight;
	return (uint64_t)((double)w->memory * w->utilization * sum_of_weights(w) / bytes);
}

/* Returns the bytes of slabs for the records of all pairs. */
static double record_bytes(const struct kv_workload *w, unsigned inline_max)
{
	double bytes = 0;

	for (unsigned i = 0; i < w->num_sizes; i++)
		if (w->sizes[i].bytes > inline_max)
			bytes += w->sizes[i].weight *
				 slab_size(slab_class_of(RECORD_HEAD + w->sizes[i].bytes));
	return bytes / sum_of_weights(w) * (double)count_pairs(w);
}

/* Returns the bytes that a store needs for these slabs: each segment has a free slab per class. */
static double with_slack(uint64_t memory, double slabs)
{
	uint64_t segments = memory / SLAB_SEGMENT_MAX + 1;

	return slabs * 1.01 + (double)(2 * SLAB_CLASSES * SLAB_MAX * segments);
}

static bool add(struct sample *s, uint64_t chain, unsigned need, bool inlined)
{
	for (unsigned d = 0; d < DEPTH; d++) {
		if (s->b[chain][d].used + need > BUCKET_SLOTS)
			continue;
		s->b[chain][d].used = (uint8_t)(s->b[chain][d].used + need);
		if (inlined)
			s->b[chain][d].inlined++;
		else
			s->b[chain][d].records++;
		return true;
	}
	return false;
}

/* Fills the chains. Returns false if one becomes too long. */
static bool fill(struct sample *s, const struct kv_workload *w, unsigned inline_max,
		 uint64_t buckets)
{
	uint64_t twice = pow2_ceil(buckets) - buckets; /* buckets that are not split yet */
	uint64_t once = CHAINS - twice * CHAINS / buckets;
	uint64_t n = (uint64_t)((double)count_pairs(w) * CHAINS / (double)buckets);
	double sum = 0, all = sum_of_weights(w);
	struct rng rng;

	if (n > CHAINS * DEPTH * BUCKET_SLOTS)
		return false;
	rng_seed(&rng, 1);
	memset(s, 0, sizeof(*s));
	for (unsigned i = 0; i < w->num_sizes; i++)
		s->limit[i] = sum += w->sizes[i].weight;
	for (uint64_t k = 0; k < n; k++) {
		uint64_t chain = rng_below(&rng, once + 2 * (CHAINS - once));
		double which = rng_double(&rng) * all;
		unsigned i = 0;
		bool inlined;

		if (chain >= once)
			chain = once + (chain - once) / 2;
		while (i + 1 < w->num_sizes && which >= s->limit[i])
			i++;
		inlined = w->sizes[i].bytes <= inline_max;
		if (!add(s, chain, inlined ? bucket_slots_for(w->sizes[i].bytes, false) : 1,
			 inlined))
			return false;
	}
	return true;
}

/* Returns the accesses of a GET, and the number of buckets behind the first ones. */
static double count(const struct sample *s, uint64_t *chained)
{
	double accesses = 0, pairs = 0;

	*chained = 0;
	for (unsigned c = 0; c < CHAINS; c++) {
		double before = 0; /* records of earlier buckets of the chain */

		for (unsigned d = 0; d < DEPTH && s->b[c][d].used; d++) {
			double in = s->b[c][d].inlined, out = s->b[c][d].records;

			accesses += in * (d + 1 + before / 512);
			accesses += out * (d + 2 + (before + (out - 1) / 2) / 512);
			pairs += in + out;
			before += out;
			*chained += d > 0;
		}
	}
	return pairs > 0 ? accesses / pairs : 1;
}

static int predict(struct sample *s, const struct kv_workload *w, unsigned inline_max,
		   uint64_t buckets, struct kv_tuned *out)
{
	double index = (double)buckets * BUCKET_BYTES, slabs = record_bytes(w, inline_max);
	double memory = (double)w->memory;
	uint64_t chained;

	/* Most settings that do not fit are found without a sample. */
	if (index + with_slack(w->memory, slabs) > memory || !fill(s, w, inline_max, buckets))
		return -ENOSPC;
	*out = (struct kv_tuned){.inline_max = inline_max,
				 .buckets = buckets,
				 .size = w->memory - buckets * BUCKET_BYTES,
				 .index_ratio = index / memory,
				 .pairs = count_pairs(w)};
	out->get = count(s, &chained);
	out->put = out->get + 1;
	slabs += (double)chained / CHAINS * index;
	return index + with_slack(w->memory, slabs) > memory ? -ENOSPC : 0;
}

int kv_predict(const struct kv_workload *w, unsigned inline_max, uint64_t buckets,
	       struct kv_tuned *out)
{
	int rc = check(w);
	struct sample *s;

	if (rc || inline_max > KV_INLINE_MAX || !buckets || buckets > w->memory / BUCKET_BYTES)
		return -EINVAL;
	s = malloc(sizeof(*s));
	if (!s)
		return -ENOMEM;
	rc = predict(s, w, inline_max, buckets, out);
	free(s);
	return rc;
}

/* Finds the largest index with which the pairs fit. */
static int largest_index(struct sample *s, const struct kv_workload *w, unsigned inline_max,
			 struct kv_tuned *out)
{
	uint64_t step = w->memory / BUCKET_BYTES / STEPS, buckets;
	struct kv_tuned t;
	int rc = -ENOSPC;

	for (buckets = step * (STEPS - 1); rc && buckets; buckets -= rc ? step : 0)
		rc = predict(s, w, inline_max, buckets, out);
	if (rc)
		return rc;
	buckets = out->buckets;
	for (unsigned i = 0; i < REFINE; i++) {
		step /= 2;
		if (!predict(s, w, inline_max, buckets + step, &t)) {
			buckets += step;
			*out = t;
		}
	}
	return 0;
}

int kv_tune(const struct kv_workload *w, struct kv_tuned *out)
{
	int rc = check(w), found = -ENOSPC;
	struct kv_tuned t;
	struct sample *s;

	if (rc)
		return rc;
	s = malloc(sizeof(*s));
	if (!s)
		return -ENOMEM;
	/* A threshold between two sizes does the same as the smaller size. */
	for (unsigned max = 0; max <= KV_INLINE_MAX; max++) {
		bool is_size = max == 0;

		for (unsigned i = 0; i < w->num_sizes; i++)
			is_size |= w->sizes[i].bytes == max;
		if (!is_size || largest_index(s, w, max, &t))
			continue;
		if (found || t.get < out->get)
			*out = t;
		found = 0;
	}
	free(s);
	return found;
}
