/* SPDX-License-Identifier: BSD-2-Clause */
/* Compares the implementations of CRC-64 with the bitwise one of roost/consistency.h. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/rng.h"
#include "builtin/crc64.h"
#include "roost/consistency.h"

static uint8_t data[9000];

static void fill(void **state)
{
	struct rng rng;

	rng_seed(&rng, 64);
	for (size_t i = 0; i < sizeof(data); i++)
		data[i] = (uint8_t)rng_u64(&rng);
}

static void all_forms_agree(void **state)
{
	fill(state);
	for (size_t len = 0; len < sizeof(data) - 64; len += len < 1200 ? 1 : 97)
		for (size_t at = 0; at < 64; at += 21) {
			uint64_t want = roost_consistency_crc(data + at, len);

			assert_int_equal(crc64_plain(data + at, len), want);
			assert_int_equal(crc64_best()(data + at, len), want);
		}
}

/* Each bit changes the CRC, at any position of a block. */
static void a_bit_changes_it(void **state)
{
	uint64_t whole;

	fill(state);
	whole = crc64_best()(data, 4088);
	for (size_t bit = 0; bit < 8 * 4088; bit += 61) {
		data[bit / 8] ^= (uint8_t)(1u << bit % 8);
		assert_int_not_equal(crc64_best()(data, 4088), whole);
		data[bit / 8] ^= (uint8_t)(1u << bit % 8);
	}
	assert_int_equal(crc64_best()(data, 4088), whole);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(all_forms_agree),
		cmocka_unit_test(a_bit_changes_it),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
