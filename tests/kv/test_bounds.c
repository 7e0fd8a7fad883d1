/* SPDX-License-Identifier: BSD-2-Clause */
/* The work of one operation is bounded, growth continues with any chain, and a scan may stop. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "kv/kv.h"

static uint8_t secret[KV_SECRET] = {7};

static int run(struct kv *kv, uint8_t code, uint32_t key, uint32_t value_len, uint64_t *hash)
{
	static uint8_t value[2000];
	struct kv_op op = {.code = code,
			   .key = &key,
			   .key_len = 4,
			   .value = value,
			   .value_len = value_len,
			   .out = value,
			   .out_cap = sizeof(value)};

	kv_run(kv, &op, 1);
	if (hash)
		*hash = op.hash;
	return op.status;
}

static uint64_t accesses(struct kv *kv)
{
	struct kv_stat s;

	kv_get_stat(kv, &s);
	return s.reads + s.writes;
}

/* 600 pairs of different lengths belong to bucket 0 or to the one that is split from it first. */
static void a_long_chain_is_split(void **state)
{
	struct kv_config c = {.size = 16u << 20, .inline_max = 44, .secret = secret};
	struct kv_stat s;
	uint32_t key = 0, n = 0;
	struct kv *kv;

	assert_int_equal(kv_open(&c, &kv), 0);
	for (; n < 600; key++) {
		uint64_t hash;

		run(kv, KV_GET, key, 0, &hash);
		if (hash % 64 == 0) {
			assert_int_equal(run(kv, KV_PUT, key, key % 60, NULL), 0);
			n++;
		}
	}
	kv_get_stat(kv, &s);
	assert_true(s.pairs == 600);
	for (; n < 30000; key++, n++)
		assert_int_equal(run(kv, KV_PUT, key, key % 60, NULL), 0);
	kv_get_stat(kv, &s);
	print_message("%llu buckets, %llu chained\n", (unsigned long long)s.buckets,
		      (unsigned long long)s.chained);
	assert_true(s.slots * 100 <= s.buckets * 10 * 56);
	assert_true(s.pairs == 30000);
	assert_null(kv_check(kv));
	kv_close(kv);
}

static long page_faults(void)
{
	struct rusage u;

	assert_int_equal(getrusage(RUSAGE_SELF, &u), 0);
	return u.ru_minflt;
}

static void note_growth(void *ctx)
{
	*(bool *)ctx = true;
}

/*
 * Index and memory grow, and kv_prepare() is called after each operation that asks for it. An
 * operation then takes a page fault only for the allocator's bitmap, one for each MiB of growth.
 * The accesses of growth are few in each operation.
 */
static void growth_finds_its_memory_present(void **state)
{
	struct kv_config c = {.size = 64u << 20, .inline_max = 20, .secret = secret};
	uint64_t most = 0, before = 0;
	struct kv_stat s;
	bool grows = true;
	long faults = 0;
	struct kv *kv;

	assert_int_equal(kv_open(&c, &kv), 0);
	kv_on_growth(kv, note_growth, &grows);
	for (uint32_t key = 0; key < 300000; key++) {
		long start;

		while (grows && kv_prepare(kv))
			;
		grows = false;
		start = page_faults();
		assert_int_equal(run(kv, KV_PUT, key, 100, NULL), 0);
		faults += page_faults() - start;
		kv_get_stat(kv, &s);
		if (s.growth_accesses - before > most)
			most = s.growth_accesses - before;
		before = s.growth_accesses;
	}
	print_message("%llu MiB, %llu buckets: %ld page faults; at most %llu accesses of growth in "
		      "an operation\n",
		      (unsigned long long)s.top >> 20, (unsigned long long)s.buckets, faults,
		      (unsigned long long)most);
	assert_true(s.top > 32u << 20 && s.growth_steps > 30000);
	assert_true(most <= 100);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) /* they touch pages, too */
	assert_true(faults <= (long)(s.top >> 20) + 8);
#endif
	kv_close(kv);
}

/* All pairs were used, and the index is large and nearly empty. */
static void an_eviction_looks_at_few_buckets(void **state)
{
	struct kv_config c = {
		.size = 4u << 20, .buckets = 1u << 20, .evict = true, .secret = secret};
	uint32_t n = 0;
	uint64_t before;
	struct kv_stat s = {0};
	struct kv *kv;

	assert_int_equal(kv_open(&c, &kv), 0);
	for (; !s.evicted; n++, kv_get_stat(kv, &s))
		assert_int_equal(run(kv, KV_PUT, n, 1000, NULL), 0);
	for (uint32_t i = 0; i < n; i++)
		run(kv, KV_GET, i, 0, NULL);
	for (uint32_t i = 0; i < 100; i++) {
		before = accesses(kv);
		assert_int_equal(run(kv, KV_PUT, n + i, 1000, NULL), 0);
		assert_true(accesses(kv) - before < 70000);
	}
	assert_null(kv_check(kv));
	kv_close(kv);
}

struct visits {
	uint8_t seen[6000];
	unsigned left, total;
};

static bool visit(void *ctx, const struct kv_pair *p)
{
	struct visits *v = ctx;
	uint32_t key;

	if (!v->left)
		return false;
	v->left--;
	v->total++;
	memcpy(&key, p->key, 4);
	v->seen[key] = 1;
	return true;
}

/*
 * Chains are long, and each call takes at most three pairs. Meanwhile other pairs come and go, so
 * that pairs move within the chains, and the index grows.
 */
static void a_scan_goes_on_where_it_stopped(void **state)
{
	struct kv_config c = {
		.size = 16u << 20, .inline_max = 20, .fill_percent = 100, .secret = secret};
	struct visits *v = calloc(1, sizeof(*v));
	uint64_t cursor = 0;
	uint32_t others = 0;
	struct kv *kv;

	assert_non_null(v);
	assert_int_equal(kv_open(&c, &kv), 0);
	for (uint32_t key = 0; key < 6000; key++)
		assert_int_equal(run(kv, KV_PUT, key, key % 40, NULL), 0);
	for (uint32_t key = 1; key < 6000; key += 2)
		assert_int_equal(run(kv, KV_DELETE, key, 0, NULL), 0);
	do {
		v->left = 3;
		cursor = kv_scan(kv, cursor, 1000, visit, v);
		for (unsigned i = 0; i < 4; i++, others++)
			run(kv, KV_PUT, 1 + 2 * (others * 7 % 3000), others % 50, NULL);
	} while (cursor);
	for (uint32_t key = 0; key < 6000; key += 2)
		assert_int_equal(v->seen[key], 1);
	/* Pairs are seldom visited twice. */
	assert_true(v->total < 6300);
	assert_null(kv_check(kv));
	/* A cursor from elsewhere is harmless. */
	v->left = 100000;
	assert_int_equal(kv_scan(kv, UINT64_MAX, 10, visit, v), 0);
	kv_close(kv);
	free(v);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_long_chain_is_split),
		cmocka_unit_test(growth_finds_its_memory_present),
		cmocka_unit_test(an_eviction_looks_at_few_buckets),
		cmocka_unit_test(a_scan_goes_on_where_it_stopped),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
