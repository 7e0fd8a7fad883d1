/* SPDX-License-Identifier: BSD-2-Clause */
/* The tuner: its prediction is compared with the accesses that a store of its settings counts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <math.h>
#include <string.h>

#include "base/rng.h"
#include "kv/kv.h"
#include "kv/tune.h"

#define MEMORY (24ull << 20)
#define BOUND  0.03 /* of the accesses of one operation */
#define KEY    4u
#define PROBES 40000u

static uint8_t secret[KV_SECRET] = {7};

/* Returns the length of the value of a key, by the weights. The same key has the same length. */
static uint32_t length_of(const struct kv_workload *w, uint32_t key)
{
	double sum = 0, which;
	struct rng rng;
	unsigned i = 0;

	for (unsigned k = 0; k < w->num_sizes; k++)
		sum += w->sizes[k].weight;
	rng_seed(&rng, key);
	for (which = rng_double(&rng) * sum; i + 1 < w->num_sizes && which >= w->sizes[i].weight;
	     i++)
		which -= w->sizes[i].weight;
	return w->sizes[i].bytes - KEY;
}

static void run_one(struct kv *kv, const struct kv_workload *w, uint8_t code, uint32_t key)
{
	static const uint8_t value[1024];
	static uint8_t out[1024];
	struct kv_op op = {.code = code,
			   .key = &key,
			   .key_len = KEY,
			   .value = value,
			   .value_len = length_of(w, key),
			   .out = out,
			   .out_cap = sizeof(out)};

	kv_run(kv, &op, 1);
	assert_int_equal(op.status, 0);
}

static double count(struct kv *kv, const struct kv_workload *w, uint8_t code, uint64_t pairs)
{
	struct kv_stat a, b;
	struct rng rng;

	rng_seed(&rng, 3);
	kv_get_stat(kv, &a);
	for (unsigned i = 0; i < PROBES; i++)
		run_one(kv, w, code, (uint32_t)rng_below(&rng, pairs));
	kv_get_stat(kv, &b);
	return (double)(b.reads + b.writes - a.reads - a.writes) / PROBES;
}

/* All pairs fit into a store with these settings, and it counts as many accesses as predicted. */
static void compare(const struct kv_workload *w, const struct kv_tuned *t)
{
	struct kv_config c = {.size = t->size,
			      .buckets = t->buckets,
			      .buckets_max = t->buckets,
			      .inline_max = t->inline_max,
			      .secret = secret};
	double get, put;
	struct kv *kv;

	assert_int_equal(kv_open(&c, &kv), 0);
	for (uint32_t k = 0; k < t->pairs; k++)
		run_one(kv, w, KV_PUT, k);
	get = count(kv, w, KV_GET, t->pairs);
	put = count(kv, w, KV_PUT, t->pairs);
	print_message("inline up to %u B, index ratio %.3f: %.3f a GET (predicted %.3f), %.3f a "
		      "PUT (%.3f)\n",
		      t->inline_max, t->index_ratio, get, t->get, put, t->put);
	assert_true(fabs(get - t->get) <= BOUND * t->get && fabs(put - t->put) <= BOUND * t->put);
	kv_close(kv);
}

static const struct kv_tune_size small[] = {{10, 1}}, large[] = {{74, 1}, {254, 1}},
				 mixed[] = {{10, 4}, {20, 3}, {40, 2}, {254, 1}};
#define WORKLOAD(sizes_, utilization_)                                                             \
	{                                                                                          \
		sizes_, sizeof(sizes_) / sizeof(*(sizes_)), MEMORY, utilization_                   \
	}

static void the_prediction_is_what_a_store_counts(void **state)
{
	static const struct kv_workload loads[] = {WORKLOAD(small, 0.2), WORKLOAD(small, 0.4),
						   WORKLOAD(small, 0.6), WORKLOAD(large, 0.3),
						   WORKLOAD(large, 0.4), WORKLOAD(mixed, 0.25),
						   WORKLOAD(mixed, 0.4)};
	struct kv_tuned t;

	for (unsigned i = 0; i < sizeof(loads) / sizeof(*loads); i++) {
		assert_int_equal(kv_tune(&loads[i], &t), 0);
		compare(&loads[i], &t);
	}
}

/* Also for settings that the tuner does not select: chains, and an index between powers of two. */
static void other_settings_are_predicted(void **state)
{
	static const struct kv_workload w = WORKLOAD(mixed, 0.3);
	struct kv_tuned t;

	for (unsigned max = 0; max <= 40; max += 20)
		for (uint64_t buckets = 40000; buckets <= 100000; buckets += 20000) {
			assert_int_equal(kv_predict(&w, max, buckets, &t), 0);
			compare(&w, &t);
		}
}

/* No threshold on a grid of index ratios is better than what the tuner selects. */
static void the_selection_has_the_fewest_accesses(void **state)
{
	static const struct kv_workload w = WORKLOAD(mixed, 0.4);
	static const unsigned thresholds[] = {0, 10, 20, 40};
	struct kv_tuned best, t;
	unsigned fit = 0;

	assert_int_equal(kv_tune(&w, &best), 0);
	for (unsigned i = 0; i < 4; i++)
		for (unsigned r = 1; r < 32; r++) {
			if (kv_predict(&w, thresholds[i], MEMORY / 64 * r / 32, &t))
				continue;
			assert_true(best.get <= t.get + 0.01);
			fit++;
		}
	assert_true(fit > 4);
}

static void bad_values_are_refused(void **state)
{
	static const struct kv_tune_size none[] = {{0, 1}}, huge[] = {{KV_TUNE_SIZE_MAX + 1, 1}},
					 weightless[] = {{10, 0}}, not_a_number[] = {{10, NAN}};
	static const struct kv_workload bad[] = {
		WORKLOAD(none, 0.5),	     WORKLOAD(huge, 0.5),     WORKLOAD(weightless, 0.5),
		WORKLOAD(small, 0),	     WORKLOAD(small, 1),      WORKLOAD(small, NAN),
		WORKLOAD(not_a_number, 0.5), {small, 0, MEMORY, 0.5}, {small, 1, 1 << 20, 0.5}};
	static const struct kv_workload full = WORKLOAD(large, 0.95), w = WORKLOAD(small, 0.3);
	struct kv_tuned t;

	for (unsigned i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		assert_int_equal(kv_tune(&bad[i], &t), -EINVAL);
	assert_int_equal(kv_tune(&full, &t), -ENOSPC);
	assert_int_equal(kv_predict(&w, KV_INLINE_MAX + 1, 1000, &t), -EINVAL);
	assert_int_equal(kv_predict(&w, 10, 0, &t), -EINVAL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_prediction_is_what_a_store_counts),
		cmocka_unit_test(other_settings_are_predicted),
		cmocka_unit_test(the_selection_has_the_fewest_accesses),
		cmocka_unit_test(bad_values_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
