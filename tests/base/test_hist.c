/* SPDX-License-Identifier: BSD-2-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/hist.h"
#include "base/rng.h"

static struct hist a, b;

static void empty(void **state)
{
	hist_reset(&a);
	assert_true(hist_percentile(&a, 50) == 0);
	assert_true(hist_min(&a) == 0 && hist_max(&a) == 0 && hist_mean(&a) == 0);
}

static void buckets_cover_all_values_in_order(void **state)
{
	unsigned last = 0;

	for (unsigned bit = 0; bit < 64; bit++) {
		for (uint64_t part = 0; part < 256; part++) {
			uint64_t v = (1ull << bit) + (bit >= 8 ? part << (bit - 8) : 0);
			unsigned i = hist_bucket(v);

			assert_true(i >= last);
			assert_true(i < HIST_BUCKETS);
			assert_true(i - last <= 1 || part == 0);
			last = i;
		}
	}
	assert_int_equal(hist_bucket(0), 0);
	assert_int_equal(hist_bucket(127), 127);
	assert_int_equal(hist_bucket(UINT64_MAX), HIST_BUCKETS - 1);
}

static void small_values_are_exact(void **state)
{
	hist_reset(&a);
	for (uint64_t v = 1; v <= 100; v++)
		hist_add(&a, v);
	for (unsigned p = 1; p <= 100; p++)
		assert_int_equal(hist_percentile(&a, p), p);
	assert_int_equal(hist_percentile(&a, 0), 1);
	assert_int_equal(hist_percentile(&a, 50.5), 51);
	assert_true(hist_mean(&a) == 50.5);
}

static void large_values_are_within_a_64th(void **state)
{
	struct rng r;

	rng_seed(&r, 5);
	for (int i = 0; i < 1000; i++) {
		uint64_t v = rng_u64(&r) >> rng_below(&r, 64), got;

		hist_reset(&a);
		hist_add(&a, v);
		hist_add(&a, v);
		hist_add(&a, 0); /* so that neither min nor max clips the answer */
		hist_add(&a, UINT64_MAX);
		got = hist_percentile(&a, 75);
		assert_true(got >= v);
		assert_true(got - v <= v / 64);
		assert_true(hist_min(&a) == 0);
		assert_true(hist_max(&a) == UINT64_MAX);
	}
}

static void merged_equals_added(void **state)
{
	static struct hist all;
	struct rng r;

	hist_reset(&a);
	hist_reset(&b);
	rng_seed(&r, 6);
	for (int i = 0; i < 10000; i++) {
		uint64_t v = rng_below(&r, 1000000);

		hist_add(i % 3 ? &a : &b, v);
		hist_add(&all, v);
	}
	hist_merge(&a, &b);
	assert_memory_equal(&a, &all, sizeof(a));
	/* A merge of an empty histogram has no effect; a merge into an empty one copies. */
	hist_reset(&b);
	hist_merge(&a, &b);
	assert_memory_equal(&a, &all, sizeof(a));
	hist_merge(&b, &a);
	assert_memory_equal(&b, &all, sizeof(a));
}

static void equal_values(void **state)
{
	hist_reset(&a);
	hist_reset(&b);
	for (uint64_t v = 1; v < 1000000; v *= 3) {
		hist_add_equal(&a, v, v % 7 + 1);
		for (uint64_t i = 0; i < v % 7 + 1; i++)
			hist_add(&b, v);
	}
	assert_memory_equal(&a, &b, sizeof(a));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(empty),
		cmocka_unit_test(buckets_cover_all_values_in_order),
		cmocka_unit_test(small_values_are_exact),
		cmocka_unit_test(large_values_are_within_a_64th),
		cmocka_unit_test(merged_equals_added),
		cmocka_unit_test(equal_values),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
