/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Selects the inline threshold and the hash index ratio of a store for a distribution of sizes and
 * a utilization, as KV-Direct does (section 5.1): for each threshold the largest index that leaves
 * enough memory for the pairs, and of these the one with the fewest accesses. The functions are
 * pure: the same arguments give the same result. tune.c describes the model.
 */
#ifndef ROOST_KV_TUNE_H
#define ROOST_KV_TUNE_H

#include <stdint.h>

#define KV_TUNE_SIZES	   64u
#define KV_TUNE_SIZE_MAX   65532u /* longer pairs are stored in extents */
#define KV_TUNE_MEMORY_MIN (4ull << 20)

struct kv_tune_size {
	uint32_t bytes; /* of key and value together */
	double weight;	/* its number of pairs, relative to the other sizes */
};

struct kv_workload {
	const struct kv_tune_size *sizes;
	unsigned num_sizes;
	uint64_t memory;    /* bytes of index, pairs and chained buckets */
	double utilization; /* bytes of keys and values for each byte of memory */
};

/* Settings for kv_open(), and what they cost. `buckets` is also buckets_max. */
struct kv_tuned {
	unsigned inline_max;
	uint64_t buckets, size;
	double index_ratio; /* share of the index in the memory */
	uint64_t pairs;
	double get, put; /* accesses of a GET; of a PUT that replaces a value of the same length */
};

/*
 * Predicts the accesses of a store with a given threshold and number of buckets. Returns 0;
 * -EINVAL: a value is out of its bounds; -ENOSPC: the pairs do not fit, or chains have more than 16
 * buckets; or -ENOMEM.
 */
int kv_predict(const struct kv_workload *w, unsigned inline_max, uint64_t buckets,
	       struct kv_tuned *out);

/* Selects both. Returns 0 or an error as kv_predict() does. */
int kv_tune(const struct kv_workload *w, struct kv_tuned *out);

#endif
