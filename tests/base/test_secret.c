/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/secret.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

/*
 * RFC 8439, A.1, vector 1: key, nonce and counter 0. The second half of the block is output, the
 * first half is the next key.
 */
static void vector(void **state)
{
	static const uint64_t half[4] = {
		0x8d485751 * 0x100000000ull + 0x7c5941da, 0x374ad8b8 * 0x100000000ull + 0x3fe02477,
		0x1ca11815 * 0x100000000ull + 0xf4b8436a, 0x8665eeb2 * 0x100000000ull + 0x69b687c3};
	static const uint64_t key[4] = {
		0x903df1a0 * 0x100000000ull + 0xade0b876, 0x28bd8653 * 0x100000000ull + 0xe56a5d40,
		0x1aed8da0 * 0x100000000ull + 0xb819d2bd, 0xc70d778b * 0x100000000ull + 0xccef36a8};
	struct secret s, next;

	secret_seed(&s, (const uint64_t[SECRET_WORDS]){0});
	secret_seed(&next, key);
	for (int i = 0; i < 4; i++)
		assert_int_equal(secret_u64(&s), half[i]);
	for (int i = 0; i < 100; i++)
		assert_int_equal(secret_u64(&s), secret_u64(&next));
}

/* Each bit of the seed changes all output. Output is not kept in memory. */
static void seeds(void **state)
{
	struct secret s;
	uint64_t first[256];

	for (int bit = 0; bit < 256; bit++) {
		uint64_t seed[SECRET_WORDS] = {0};

		seed[bit / 64] = 1ull << bit % 64;
		secret_seed(&s, seed);
		first[bit] = secret_u64(&s);
		assert_null(memmem(&s, sizeof(s), &first[bit], 8));
		for (int i = 0; i < bit; i++)
			assert_true(first[i] != first[bit]);
	}
}

static void below(void **state)
{
	unsigned count[5] = {0};
	struct secret s;

	secret_seed(&s, (const uint64_t[SECRET_WORDS]){5});
	assert_int_equal(secret_below(&s, 0), 0);
	assert_int_equal(secret_below(&s, 1), 0);
	for (int i = 0; i < 50000; i++)
		count[secret_below(&s, 5)]++;
	for (int i = 0; i < 5; i++)
		assert_in_range(count[i], 9600, 10400);
	for (int i = 0; i < 1000; i++)
		assert_true(secret_below(&s, (1ull << 63) + 1) <= 1ull << 63);
}

static void entropy(void **state)
{
	uint64_t a[SECRET_WORDS], b[SECRET_WORDS];

	assert_int_equal(secret_entropy(a), 0);
	assert_int_equal(secret_entropy(b), 0);
	for (int i = 0; i < SECRET_WORDS; i++)
		for (int k = 0; k < SECRET_WORDS; k++)
			assert_true(a[i] != b[k] && (i == k || a[i] != a[k]));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(vector),
		cmocka_unit_test(seeds),
		cmocka_unit_test(below),
		cmocka_unit_test(entropy),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
