/* SPDX-License-Identifier: BSD-2-Clause */
/* The token bucket: at most burst + rate * time tokens, and no fewer for a caller that waits. */
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <cmocka.h>

#include "base/rng.h"
#include "base/tokens.h"

static const struct {
	uint32_t rate, burst;
} rows[] = {{1, 1}, {7, 3}, {1000, 1}, {999999937, 5}, {UINT32_MAX, UINT32_MAX}, {3, UINT32_MAX}};
#define ROWS (sizeof(rows) / sizeof(rows[0]))

/* A caller that waits until tokens_when() gets each token at its time: errors do not add up. */
static void waiter_gets_the_rate(void **state)
{
	for (size_t i = 0; i < ROWS; i++) {
		const uint64_t start = 1234567;
		uint64_t now = start;
		struct tokens t;

		tokens_init(&t, rows[i].rate, rows[i].burst, now);
		t.credit = 0;
		for (uint64_t n = 1; n <= 1000; n++) {
			uint64_t due = start + (n * TOKENS_UNIT + rows[i].rate - 1) / rows[i].rate;

			while (!tokens_take(&t, now)) {
				assert_true(tokens_when(&t) > now);
				assert_false(tokens_take(&t, tokens_when(&t) - 1));
				now = tokens_when(&t);
			}
			assert_int_equal(now, due);
		}
	}
}

/* At random times, the count stays below burst + rate * time, also after long pauses. */
static void never_above_the_rate(void **state)
{
	const uint64_t seed = 20;
	struct rng r;

	rng_seed(&r, seed);
	printf("seed %" PRIu64 "\n", seed);
	for (size_t i = 0; i < ROWS; i++) {
		uint64_t now = 0, taken = 0;
		struct tokens t;

		if (rows[i].burst == UINT32_MAX)
			continue;
		tokens_init(&t, rows[i].rate, rows[i].burst, now);
		for (unsigned k = 0; k < 20000; k++) {
			now += rng_below(&r, 2) ? rng_below(&r, 100)
						: rng_below(&r, 3 * TOKENS_UNIT / rows[i].rate + 2);
			taken += tokens_take(&t, now);
			assert_true((__int128)taken * TOKENS_UNIT <=
				    (__int128)rows[i].burst * TOKENS_UNIT +
					    (__int128)now * rows[i].rate);
		}
		assert_true(taken > rows[i].burst);
	}
}

/* A bucket that was idle for centuries has its burst; time that goes back adds no tokens. */
static void full_bucket(void **state)
{
	struct tokens t;
	unsigned n = 0;

	tokens_init(&t, 5, 3, 0);
	while (tokens_take(&t, 10))
		n++;
	assert_int_equal(n, 3);
	for (n = 0; tokens_take(&t, UINT64_MAX / 2); n++)
		;
	assert_int_equal(n, 3);
	assert_false(tokens_take(&t, 7));
	assert_int_equal(tokens_when(&t), UINT64_MAX / 2 + TOKENS_UNIT / 5);
	tokens_init(&t, UINT32_MAX, TOKENS_MAX_BURST, 0);
	assert_true(tokens_take(&t, UINT64_MAX));
	assert_int_equal(t.credit, (TOKENS_MAX_BURST - 1ull) * TOKENS_UNIT);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(waiter_gets_the_rate),
		cmocka_unit_test(never_above_the_rate),
		cmocka_unit_test(full_bucket),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
