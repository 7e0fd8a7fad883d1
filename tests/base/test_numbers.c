/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/numbers.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

/* Each number comes once before any comes again. */
static void all_once(void **state)
{
	static const unsigned bits[] = {2, 8, 14, 20};

	for (unsigned i = 0; i < sizeof(bits) / sizeof(bits[0]); i++) {
		uint32_t all = 1u << bits[i], first;
		_Atomic uint32_t next = 12345;
		struct sequence s = {.seed = {i, 7}, .bits = bits[i], .next = &next};
		uint8_t *seen = calloc(all, 1);

		assert_non_null(seen);
		first = sequence_draw(&s);
		seen[first] = 1;
		for (uint32_t n = 1; n < all; n++) {
			uint32_t number = sequence_draw(&s);

			assert_true(number < all);
			assert_int_equal(seen[number]++, 0);
		}
		assert_int_equal(sequence_draw(&s), first);
		free(seen);
	}
}

/* The count goes on across 2^32, and a sequence that continues gives what the first one would. */
static void continues(void **state)
{
	_Atomic uint32_t next = UINT32_MAX - 1, copy = UINT32_MAX;
	struct sequence s = {.seed = {1, 2}, .bits = 24, .next = &next};
	struct sequence successor = {.seed = {1, 2}, .bits = 24, .next = &copy};

	sequence_draw(&s);
	for (int i = 0; i < 100; i++)
		assert_int_equal(sequence_draw(&s), sequence_draw(&successor));
}

/* Neither part of the seed may be without effect, and neighbours have no common difference. */
static void depends_on_the_seed(void **state)
{
	_Atomic uint32_t next[3] = {0};
	struct sequence s[3];
	unsigned same = 0, steps = 0;
	uint32_t before = 0, step = 0;

	for (unsigned i = 0; i < 3; i++)
		s[i] = (struct sequence){.seed = {i & 1, i & 2}, .bits = 24, .next = &next[i]};
	for (int n = 0; n < 1000; n++) {
		uint32_t a = sequence_draw(&s[0]), b = sequence_draw(&s[1]),
			 c = sequence_draw(&s[2]);

		same += (a == b) + (a == c) + (b == c);
		steps += a - before == step;
		step = a - before;
		before = a;
	}
	assert_true(same < 5);
	assert_true(steps < 5);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(all_once),
		cmocka_unit_test(continues),
		cmocka_unit_test(depends_on_the_seed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
