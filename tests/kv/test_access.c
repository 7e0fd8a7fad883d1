/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Memory accesses per operation, at 50% of the slots in use. The paper claims one per GET and two
 * per PUT of an inline pair, and one more for other pairs.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/rng.h"
#include "kv/kv.h"

#define BUCKETS (1u << 14)

static uint8_t secret[KV_SECRET] = {9};

static uint64_t accesses(struct kv *kv)
{
	struct kv_stat s;

	kv_get_stat(kv, &s);
	return s.reads + s.writes;
}

static void run_one(struct kv *kv, uint8_t code, uint64_t key, const void *value, uint32_t len)
{
	uint8_t out[256];
	struct kv_op op = {.code = code,
			   .key = &key,
			   .key_len = 8,
			   .value = value,
			   .value_len = len,
			   .out = out,
			   .out_cap = sizeof(out)};

	kv_run(kv, &op, 1);
	assert_int_equal(op.status, 0);
}

static void measure(uint32_t value_len, unsigned inline_max, double get_max, double put_max)
{
	struct kv_config c = {.size = 64u << 20,
			      .buckets = BUCKETS,
			      .buckets_max = BUCKETS,
			      .inline_max = inline_max,
			      .secret = secret};
	uint8_t value[256] = {1};
	struct kv_stat s = {0};
	struct rng rng;
	uint64_t n = 0, before;
	struct kv *kv;
	double gets, puts, inserts;

	rng_seed(&rng, 5);
	assert_int_equal(kv_open(&c, &kv), 0);
	for (before = accesses(kv); s.slots < BUCKETS * 10 / 2; kv_get_stat(kv, &s))
		run_one(kv, KV_PUT, n++, value, value_len);
	inserts = (double)(accesses(kv) - before) / (double)n;
	before = accesses(kv);
	for (unsigned i = 0; i < 50000; i++)
		run_one(kv, KV_GET, rng_below(&rng, n), NULL, 0);
	gets = (double)(accesses(kv) - before) / 50000;
	before = accesses(kv);
	for (unsigned i = 0; i < 50000; i++)
		run_one(kv, KV_PUT, rng_below(&rng, n), value, value_len);
	puts = (double)(accesses(kv) - before) / 50000;
	print_message("%u B: %.3f a GET, %.3f a PUT, %.3f a PUT of a new key\n", 8 + value_len,
		      gets, puts, inserts);
	assert_true(gets <= get_max && puts <= put_max && inserts <= put_max);
	kv_get_stat(kv, &s);
	assert_true((double)s.stack_accesses <= 0.07 * (double)(s.allocs + s.frees));
	kv_close(kv);
}

static void inline_pairs(void **state)
{
	measure(2, 10, 1.1, 2.2);
	measure(5, 20, 1.1, 2.2);
}

static void records(void **state)
{
	measure(8, 0, 2.1, 3.2);
	measure(64, 20, 2.1, 3.2);
	measure(246, 20, 2.1, 3.2);
}

/* Linear hashing: a step splits one bucket, however large the index is. */
static void growth_comes_in_small_steps(void **state)
{
	struct kv_config c = {.size = 256u << 20, .inline_max = 20, .secret = secret};
	struct kv_stat a, b;
	uint64_t most = 0;
	struct kv *kv;

	assert_int_equal(kv_open(&c, &kv), 0);
	kv_get_stat(kv, &a);
	for (uint64_t n = 0; n < 300000; n++) {
		run_one(kv, KV_PUT, n, "0123456789abcdef", n & 1 ? 16 : 4);
		kv_get_stat(kv, &b);
		assert_true(b.growth_steps - a.growth_steps <= 2);
		if (b.growth_accesses - a.growth_accesses > most)
			most = b.growth_accesses - a.growth_accesses;
		assert_true(b.slots * 100 <= b.buckets * 10 * 56);
		a = b;
	}
	print_message("%llu buckets, at most %llu accesses of growth an operation\n",
		      (unsigned long long)b.buckets, (unsigned long long)most);
	/* Two chains with records: far below 1 ms at 100 ns per access. */
	assert_true(b.growth_steps > 30000 && most < 150);
	kv_close(kv);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(inline_pairs),
		cmocka_unit_test(records),
		cmocka_unit_test(growth_comes_in_small_steps),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
