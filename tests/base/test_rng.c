/* SPDX-License-Identifier: BSD-2-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/rng.h"

#define DRAWS 100000

/*
 * The authors' reference: splitmix64 from 0 starts e220a8397b1dcdaf, 6e789e6aa1b965f4,
 * 06c45d188009454f, f88bb8a8724c81ec; xoshiro256** from that state starts with the values below.
 */
static void reference_values(void **state)
{
	struct rng r;

	rng_seed(&r, 0);
	assert_true(r.s[0] == 0xe220a8397b1dcdafu && r.s[1] == 0x6e789e6aa1b965f4u);
	assert_true(r.s[2] == 0x06c45d188009454fu && r.s[3] == 0xf88bb8a8724c81ecu);
	assert_true(rng_u64(&r) == 0x99ec5f36cb75f2b4u);
	assert_true(rng_u64(&r) == 0xbf6e1f784956452au);
	assert_true(rng_u64(&r) == 0x1a5f849d4933e6e0u);
	assert_true(rng_u64(&r) == 0x6aa594f1262d2d2cu);
}

static void same_seed_same_numbers(void **state)
{
	struct rng a, b, c;
	unsigned differ = 0;

	rng_seed(&a, 42);
	rng_seed(&b, 42);
	rng_seed(&c, 43);
	for (int i = 0; i < 100; i++) {
		uint64_t v = rng_u64(&a);

		assert_true(v == rng_u64(&b));
		differ += v != rng_u64(&c);
	}
	assert_int_equal(differ, 100);
}

static void below_is_in_range_and_even(void **state)
{
	unsigned seen[10] = {0};
	struct rng r;

	rng_seed(&r, 1);
	for (int i = 0; i < DRAWS; i++)
		seen[rng_below(&r, 10)]++;
	for (int i = 0; i < 10; i++)
		assert_in_range(seen[i], DRAWS / 10 - 500, DRAWS / 10 + 500);
	for (int i = 0; i < 100; i++) {
		assert_true(rng_below(&r, 1) == 0);
		assert_true(rng_below(&r, 0) == 0);
		assert_true(rng_below(&r, (1ull << 63) + 1) <= 1ull << 63);
	}
}

static void doubles_fill_the_unit_interval(void **state)
{
	double sum = 0, lo = 1, hi = 0;
	struct rng r;

	rng_seed(&r, 2);
	for (int i = 0; i < DRAWS; i++) {
		double d = rng_double(&r);

		assert_true(d >= 0 && d < 1);
		sum += d;
		lo = d < lo ? d : lo;
		hi = d > hi ? d : hi;
	}
	assert_true(sum / DRAWS > 0.49 && sum / DRAWS < 0.51);
	assert_true(lo < 0.001 && hi > 0.999);
}

static void entropy_differs(void **state)
{
	assert_true(rng_entropy() != rng_entropy());
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(reference_values),
		cmocka_unit_test(same_seed_same_numbers),
		cmocka_unit_test(below_is_in_range_and_even),
		cmocka_unit_test(doubles_fill_the_unit_interval),
		cmocka_unit_test(entropy_differs),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
