/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/numbers.h"

#include <pthread.h>
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
		_Atomic uint32_t next = 0;
		_Atomic uint64_t entered = 0;
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

/* ---- memory keys ---- */

#define SECONDS	   1000000000ull
#define UPPER_BITS 8
#define WINDOWS	   (1u << (UPPER_BITS - 1))
#define REGIONS	   (1u << (UPPER_BITS - 1 + KEY_LOW_BITS))

static struct key_counts drawn;
static const struct key_sequence small = {.seed = {5, 6}, .bits = UPPER_BITS, .drawn = &drawn};

/*
 * Each key of a region comes once before any comes again, and none is a key that a window can have,
 * whatever its program chooses.
 */
static void regions_and_windows_differ(void **state)
{
	uint8_t *region = calloc(1u << (UPPER_BITS + KEY_LOW_BITS), 1), window[1u << UPPER_BITS];
	unsigned upper = 0;

	assert_non_null(region);
	memset(window, 0, sizeof(window));
	drawn = (struct key_counts){.regions = UINT32_MAX - 7}; /* the count goes on across 2^32 */
	for (unsigned i = 0; i < WINDOWS; i++) {
		uint32_t key;

		assert_true(key_draw_window(&small, i, &key));
		assert_true(key >> KEY_LOW_BITS < 1u << UPPER_BITS);
		assert_int_equal(window[key >> KEY_LOW_BITS]++, 0);
	}
	for (unsigned round = 0; round < 2; round++) {
		for (unsigned i = 0; i < REGIONS; i++) {
			uint32_t key = key_draw_region(&small);

			assert_int_equal(region[key]++, round);
			assert_int_equal(window[key >> KEY_LOW_BITS], 0);
		}
	}
	for (unsigned i = 0; i < 1u << UPPER_BITS; i++)
		upper += window[i];
	assert_int_equal(upper, WINDOWS);
	free(region);
}

/* The lower bits of the keys with equal upper bits are in no order either. */
static void lower_bits_have_no_order(void **state)
{
	uint32_t first[WINDOWS], equal[256] = {0};

	drawn = (struct key_counts){0};
	for (unsigned i = 0; i < WINDOWS; i++)
		first[i] = key_draw_region(&small);
	for (unsigned i = 0; i < WINDOWS; i++) {
		uint32_t key = key_draw_region(&small);

		assert_int_equal(key >> KEY_LOW_BITS, first[i] >> KEY_LOW_BITS);
		equal[(key - first[i]) & 0xff]++;
	}
	for (unsigned i = 0; i < 256; i++)
		assert_in_range(equal[i], 0, 8);
}

/* Draws as two processes do, one of which lags behind with its clock. */
static void windows_rest_a_minute(void **state)
{
	uint64_t drawn_at[1u << UPPER_BITS] = {0}, now = 1000 * SECONDS;
	unsigned refused = 0;

	drawn = (struct key_counts){0};
	for (unsigned i = 0; i < 20 * WINDOWS; i++) {
		uint64_t *at;
		uint32_t key;

		now += SECONDS / 100;
		while (!key_draw_window(&small, i & 1 ? now : now - SECONDS / 200, &key)) {
			refused++;
			now += SECONDS / 2;
		}
		at = &drawn_at[key >> KEY_LOW_BITS];
		if (*at && now - *at < NUMBERS_REST_S * SECONDS)
			fail_msg("%#x returned after %g s", key,
				 (double)(now - *at) / (double)SECONDS);
		*at = now;
	}
	assert_true(refused);
	/* Slower than half of them in 61 s, none is refused. */
	now += 100 * SECONDS;
	for (unsigned i = 0; i < 5 * WINDOWS; i++) {
		uint32_t key;

		now += 62 * SECONDS / (WINDOWS / 2);
		assert_true(key_draw_window(&small, now, &key));
	}
}

struct drawer {
	pthread_t thread;
	unsigned got;
	uint32_t key[WINDOWS];
};

static void *draw_all(void *arg)
{
	struct drawer *d = arg;

	while (d->got < WINDOWS && key_draw_window(&small, SECONDS, &d->key[d->got]))
		d->got++;
	return NULL;
}

/* Programs that draw at the same time get different windows, and are told to wait together. */
static void windows_differ_between_programs(void **state)
{
	static struct drawer d[2];

	for (unsigned round = 0; round < 100; round++) {
		uint8_t seen[1u << UPPER_BITS] = {0};

		memset(d, 0, sizeof(d));
		drawn = (struct key_counts){0};
		for (unsigned i = 0; i < 2; i++)
			assert_int_equal(pthread_create(&d[i].thread, NULL, draw_all, &d[i]), 0);
		for (unsigned i = 0; i < 2; i++)
			pthread_join(d[i].thread, NULL);
		assert_int_equal(d[0].got + d[1].got, WINDOWS);
		for (unsigned i = 0; i < 2; i++)
			for (unsigned n = 0; n < d[i].got; n++)
				assert_int_equal(seen[d[i].key[n] >> KEY_LOW_BITS]++, 0);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(all_once),
		cmocka_unit_test(continues),
		cmocka_unit_test(depends_on_the_seed),
		cmocka_unit_test(numbers_rest_a_minute),
		cmocka_unit_test(regions_and_windows_differ),
		cmocka_unit_test(lower_bits_have_no_order),
		cmocka_unit_test(windows_rest_a_minute),
		cmocka_unit_test(windows_differ_between_programs),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
