/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/numbers.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

/* Each number is drawn once before a number is drawn again. */
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

/* The count continues across 2^32, and a continued sequence gives the same numbers. */
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

/* At any rate, no number returns within 60 s; slower draws are not refused. */
static void numbers_rest_a_minute(void **state)
{
	static const uint64_t steps[] = {1, 1000000, 50000000, 130000000, 1000000000};
	const uint64_t second = 1000000000ull;
	uint64_t now = 1000 * second;
	unsigned refused[5] = {0};

	for (unsigned k = 0; k < 5; k++) {
		_Atomic uint32_t next = 0, entered = 0;
		struct sequence s = {
			.seed = {1, 2}, .bits = 10, .next = &next, .entered = &entered};
		uint64_t drawn_at[1u << 10] = {0};

		for (unsigned i = 0; i < 5000; i++) {
			uint32_t number;

			now += steps[k];
			while (!sequence_draw_rested(&s, now, &number)) {
				refused[k]++;
				now += second / 2;
			}
			if (drawn_at[number] && now - drawn_at[number] < NUMBERS_REST_S * second)
				fail_msg("%u returned after %g s", number,
					 (double)(now - drawn_at[number]) / (double)second);
			drawn_at[number] = now;
		}
	}
	assert_true(refused[0] && refused[1] && refused[2]);
	assert_int_equal(refused[3] + refused[4], 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(all_once),
		cmocka_unit_test(continues),
		cmocka_unit_test(depends_on_the_seed),
		cmocka_unit_test(numbers_rest_a_minute),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
