/* SPDX-License-Identifier: BSD-2-Clause */
/* Single operations, their errors, and the settings of a store. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "far_model.h"
#include "kv/bucket.h"
#include "kv/kv.h"
#include "kv/store.h"

static struct kv *open_kv(void **state)
{
	struct kv_config c = {.size = 8u << 20, .inline_max = 20};
	struct kv *kv;

	assert_int_equal(kv_open(&c, &kv), 0);
	return kv;
}

static int run(struct kv *kv, struct kv_op *op)
{
	kv_run(kv, op, 1);
	return op->status;
}

static void settings_have_bounds(void **state)
{
	const struct kv_config bad[] = {
		{.size = 1000},
		{.size = 8u << 20, .inline_max = KV_INLINE_MAX + 1},
		{.size = 8u << 20, .fill_percent = 101},
		{.size = 8u << 20, .segment = (1u << 20) + 1},
		{.size = 8u << 20, .segment = 128ull << 30},
	};
	struct kv *kv;

	for (unsigned i = 0; i < ARRAY_SIZE(bad); i++)
		assert_int_equal(kv_open(&bad[i], &kv), -EINVAL);
}

static void bad_operations_leave_the_others(void **state)
{
	struct kv *kv = open_kv(state);
	static uint8_t big[KV_VALUE_MAX + 1];
	char out[8];
	struct kv_op ops[] = {
		{.code = KV_PUT, .key = "a", .key_len = 1, .value = "1", .value_len = 1},
		{.code = KV_CODES, .key = "a", .key_len = 1},
		{.code = KV_GET, .key = "a", .key_len = 0},
		{.code = KV_GET, .key = big, .key_len = KV_KEY_MAX + 1},
		{.code = KV_PUT, .key = "a", .key_len = 1, .value = big, .value_len = sizeof(big)},
		{.code = KV_GET, .key = "a", .key_len = 1, .out = out, .out_cap = 8},
	};
	const int expected[] = {0, -EINVAL, -EINVAL, -E2BIG, -E2BIG, 0};

	kv_run(kv, ops, ARRAY_SIZE(ops));
	for (unsigned i = 0; i < ARRAY_SIZE(ops); i++)
		assert_int_equal(ops[i].status, expected[i]);
	assert_int_equal(ops[5].out_len, 1);
	assert_memory_equal(out, "1", 1);
	kv_close(kv);
}

static void a_group_runs_in_order(void **state)
{
	struct kv *kv = open_kv(state);
	char out[3][8];
	struct kv_op ops[] = {
		{.code = KV_GET, .key = "k", .key_len = 1, .out = out[0], .out_cap = 8},
		{.code = KV_PUT_ABSENT, .key = "k", .key_len = 1, .value = "one", .value_len = 3},
		{.code = KV_GET, .key = "k", .key_len = 1, .out = out[1], .out_cap = 8},
		{.code = KV_PUT_COMPARE,
		 .key = "k",
		 .key_len = 1,
		 .expect = "one",
		 .expect_len = 3,
		 .value = "two",
		 .value_len = 3},
		{.code = KV_GET, .key = "k", .key_len = 1, .out = out[2], .out_cap = 8},
		{.code = KV_DELETE, .key = "k", .key_len = 1},
		{.code = KV_DELETE, .key = "k", .key_len = 1},
	};
	const int expected[] = {-ENOENT, 0, 0, 0, 0, 0, -ENOENT};

	kv_run(kv, ops, ARRAY_SIZE(ops));
	for (unsigned i = 0; i < ARRAY_SIZE(ops); i++)
		assert_int_equal(ops[i].status, expected[i]);
	assert_memory_equal(out[1], "one", 3);
	assert_memory_equal(out[2], "two", 3);
	kv_close(kv);
}

#define BATCH 70u /* more than four groups */

struct batch {
	struct kv *kv;
	uint32_t keys[BATCH];
	char outs[BATCH][64];
	struct kv_op ops[BATCH];
};

static void set_op(struct batch *b, unsigned i, uint8_t code, uint32_t key)
{
	b->keys[i] = key;
	b->ops[i] = (struct kv_op){.code = code,
				   .key = &b->keys[i],
				   .key_len = sizeof(key),
				   .out = b->outs[i],
				   .out_cap = sizeof(b->outs[i])};
}

static void put_value(struct batch *b, unsigned i, uint32_t key, const char *value)
{
	set_op(b, i, KV_PUT, key);
	b->ops[i].value = value;
	b->ops[i].value_len = (uint32_t)strlen(value);
}

static void run_batch(struct batch *b)
{
	kv_run(b->kv, b->ops, BATCH);
	for (unsigned i = 0; i < BATCH; i++)
		assert_int_equal(b->ops[i].status, 0);
}

static const char *const short_and_long[] = {
	"inline", "a value that takes a record of its own, and no slots"};

/* Pairs in buckets do not wait for pairs in records, except on one key. */
static void a_batch_is_in_order_on_each_key(void **state)
{
	struct batch b = {.kv = open_kv(state)};
	unsigned turn = 0;

	for (unsigned i = 0; i < BATCH; i++)
		put_value(&b, i, i, short_and_long[0]);
	run_batch(&b);
	for (unsigned first = 0; first < 32; first++) {
		for (unsigned second = first + 1; second < first + 38; second++) {
			const char *value = short_and_long[++turn % 2];

			for (unsigned i = 0; i < BATCH; i++)
				set_op(&b, i, KV_GET, i);
			put_value(&b, first, BATCH, value);
			set_op(&b, second, KV_GET, BATCH);
			run_batch(&b);
			assert_int_equal(b.ops[second].out_len, strlen(value));
			assert_memory_equal(b.outs[second], value, strlen(value));
		}
	}
	kv_close(b.kv);
}

static void results_in_an_arena_are_in_order(void **state)
{
	struct batch b = {.kv = open_kv(state)};
	uint8_t space[BATCH * 64];
	struct kv_arena arena = {space, space + sizeof(space)};
	const uint8_t *at = space;

	for (unsigned i = 0; i < BATCH; i++)
		put_value(&b, i, i, short_and_long[i % 3 == 1]);
	run_batch(&b);
	for (unsigned i = 0; i < BATCH; i++) {
		set_op(&b, i, KV_GET, i);
		b.ops[i].arena = &arena;
	}
	run_batch(&b);
	for (unsigned i = 0; i < BATCH; i++) {
		const char *value = short_and_long[i % 3 == 1];

		assert_ptr_equal(b.ops[i].out, at);
		assert_int_equal(b.ops[i].out_len, strlen(value));
		assert_memory_equal(at, value, strlen(value));
		at += b.ops[i].out_len;
	}
	kv_close(b.kv);
}

static void a_key_or_value_of_any_length(void **state)
{
	static const uint32_t lengths[] = {0,		1,     11,     12,
					   40,		41,    65275,  65276,
					   65277,	65536, 131072, KV_VALUE_MAX - 1,
					   KV_VALUE_MAX};
	static uint8_t value[KV_VALUE_MAX], out[KV_VALUE_MAX], key[KV_KEY_MAX];
	struct kv *kv = open_kv(state);

	for (unsigned i = 0; i < sizeof(value); i++)
		value[i] = (uint8_t)(i * 7 + (i >> 8));
	for (unsigned i = 0; i < ARRAY_SIZE(lengths); i++) {
		for (uint32_t k = 1; k <= KV_KEY_MAX; k += 127) {
			struct kv_op op = {.code = KV_PUT,
					   .key = key,
					   .key_len = k,
					   .value = value,
					   .value_len = lengths[i]};
			struct kv_op get = {.code = KV_GET,
					    .key = key,
					    .key_len = k,
					    .out = out,
					    .out_cap = sizeof(out)};

			assert_int_equal(run(kv, &op), 0);
			assert_int_equal(run(kv, &get), 0);
			assert_int_equal(get.out_len, lengths[i]);
			assert_memory_equal(out, value, lengths[i]);
		}
	}
	assert_null(kv_check(kv));
	kv_close(kv);
}

static void pairs_expire(void **state)
{
	struct kv *kv = open_kv(state);
	struct kv_stat stat;
	struct kv_op put = {.code = KV_PUT,
			    .key = "k",
			    .key_len = 1,
			    .value = "v",
			    .value_len = 1,
			    .expires = 10};
	struct kv_op touch = {.code = KV_TOUCH, .key = "k", .key_len = 1, .expires = 20};
	struct kv_op get = {.code = KV_GET, .key = "k", .key_len = 1};

	assert_int_equal(run(kv, &put), 0);
	kv_set_time(kv, 9);
	assert_int_equal(run(kv, &get), -EMSGSIZE);
	assert_int_equal(run(kv, &touch), 0);
	kv_set_time(kv, 19);
	kv_set_time(kv, 5); /* the time does not go back */
	assert_int_equal(run(kv, &get), -EMSGSIZE);
	kv_set_time(kv, 20);
	assert_int_equal(run(kv, &get), -ENOENT);
	kv_get_stat(kv, &stat);
	assert_true(stat.pairs == 0 && stat.expired == 1);
	kv_close(kv);
}

/*
 * In the head of an inline pair, the bit of a time to live is 128, so the head of a key of 1 byte
 * looks like a length of 129. A key of 129 bytes that are what lies in memory behind such a head is
 * not this pair. The test changes the value until both keys have the same bucket and tag.
 */
static void a_long_key_is_no_pair_that_expires(void **state)
{
	enum { LONG = BUCKET_EXPIRES | 1 };
	struct kv *kv = open_kv(state);
	uint32_t value;
	uint8_t key[LONG], out[64];
	struct kv_op put = {.code = KV_PUT,
			    .key = "k",
			    .key_len = 1,
			    .value = &value,
			    .value_len = sizeof(value),
			    .expires = 10};
	struct kv_op get = {
		.code = KV_GET, .key = key, .key_len = LONG, .out = out, .out_cap = sizeof(out)};
	bool same = false;

	for (value = 0; !same && value < 1000000; value++) {
		uint64_t hash, other;
		struct bucket *b;

		assert_int_equal(run(kv, &put), 0);
		hash = kv_hash(kv, "k", 1);
		b = kv_bucket(kv, kv_bucket_addr(kv_home(kv, hash)));
		assert_int_equal(b->slots[0], LONG); /* alone in its bucket */
		memcpy(key, b->slots + 2, LONG);
		other = kv_hash(kv, key, LONG);
		same = kv_home(kv, other) == kv_home(kv, hash) && kv_tag(other) == kv_tag(hash);
	}
	assert_true(same);
	assert_int_equal(run(kv, &get), -ENOENT);
	assert_null(kv_check(kv));
	kv_close(kv);
}

/* Slots of an inline pair. Its lengths take two bytes unless key and value fill its slots. */
static unsigned slots_of(uint32_t bytes, bool expires)
{
	if (!expires && bytes >= 10 && bytes % 5 == 0)
		return bytes / 5;
	return (bytes + (expires ? 6 : 2) + 4) / 5;
}

static uint64_t slots_in_use(struct kv *kv)
{
	struct kv_stat stat;

	kv_get_stat(kv, &stat);
	return stat.slots;
}

/*
 * Each division of an inline pair into key and value is kept, between two other pairs, and whether
 * it expires or not.
 */
static void inline_pairs_of_all_lengths(void **state)
{
	struct kv_config c = {
		.size = 8u << 20, .buckets = 1, .buckets_max = 1, .inline_max = KV_INLINE_MAX};
	uint8_t key[3][KV_INLINE_MAX + 1], value[KV_INLINE_MAX + 1], out[KV_INLINE_MAX];
	struct kv *kv;

	assert_int_equal(kv_open(&c, &kv), 0);
	for (uint32_t bytes = 2; bytes <= KV_INLINE_MAX; bytes++)
		for (uint32_t len = 1; len <= bytes; len++) {
			bool expires = len & 1;
			unsigned slots = 2 * slots_of(bytes, false) + slots_of(bytes, expires);

			/* The second round sets other values of the same length. */
			for (unsigned i = 0; i < 6; i++) {
				struct kv_op put = {.code = KV_PUT,
						    .key = key[i % 3],
						    .key_len = len,
						    .value = value,
						    .value_len = bytes - len,
						    .expires = expires && i % 3 == 1 ? 9 : 0};

				memset(key[i % 3], (int)(i % 3 + 1), sizeof(key[0]));
				memset(value, (int)(i + 10), sizeof(value));
				assert_int_equal(run(kv, &put), 0);
			}
			assert_int_equal(slots_in_use(kv), slots);
			assert_null(kv_check(kv));
			for (unsigned i = 0; i < 3; i++) {
				struct kv_op op = {.code = KV_GET,
						   .key = key[i],
						   .key_len = len + 1,
						   .out = out,
						   .out_cap = sizeof(out)};

				assert_int_equal(run(kv, &op), -ENOENT); /* another key */
				op.key_len = len;
				assert_int_equal(run(kv, &op), 0);
				assert_int_equal(op.out_len, bytes - len);
				memset(value, (int)(i + 13), sizeof(value));
				assert_memory_equal(out, value, bytes - len);
				op.code = KV_DELETE;
				assert_int_equal(run(kv, &op), 0);
			}
			assert_int_equal(slots_in_use(kv), 0);
		}
	kv_close(kv);
}

static void more_memory_may_be_allowed(void **state)
{
	static uint8_t value[1000];
	struct kv *kv = open_kv(state);
	unsigned first = 0, second = 0;
	uint32_t key = 0;

	assert_int_equal(kv_set_limit(kv, 16u << 20), -EINVAL);
	assert_int_equal(kv_set_limit(kv, 1u << 20), 0);
	for (unsigned round = 0; round < 2; round++) {
		for (;; key++) {
			struct kv_op op = {.code = KV_PUT,
					   .key = &key,
					   .key_len = 4,
					   .value = value,
					   .value_len = sizeof(value)};

			if (run(kv, &op) == -ENOSPC)
				break;
			assert_int_equal(op.status, 0);
			*(round ? &second : &first) += 1;
		}
		assert_int_equal(kv_set_limit(kv, 8u << 20), 0);
	}
	assert_true(first > 900 && second > 6 * first);
	assert_null(kv_check(kv));
	kv_close(kv);
}

/* A pair that is read between any two evictions is not evicted. */
static void eviction_spares_what_is_used(void **state)
{
	struct kv_config c = {.size = 2u << 20, .evict = true};
	static uint8_t value[1000], out[1000];
	struct kv_op hot = {.code = KV_PUT,
			    .key = "hot!!",
			    .key_len = 5,
			    .value = value,
			    .value_len = sizeof(value),
			    .out = out,
			    .out_cap = sizeof(out)};
	struct kv_stat stat;
	struct kv *kv;

	assert_int_equal(kv_open(&c, &kv), 0);
	assert_int_equal(run(kv, &hot), 0);
	hot.code = KV_GET;
	for (uint32_t key = 0; key < 20000; key++) {
		struct kv_op put = {.code = KV_PUT,
				    .key = &key,
				    .key_len = 4,
				    .value = value,
				    .value_len = sizeof(value)};

		assert_int_equal(run(kv, &put), 0);
		assert_int_equal(run(kv, &hot), 0);
	}
	kv_get_stat(kv, &stat);
	assert_true(stat.evicted > 10000);
	kv_close(kv);
}

static int put_number(struct kv *kv, uint64_t key, const void *value, uint32_t len,
		      uint32_t expires)
{
	struct kv_op op = {.code = KV_PUT,
			   .key = &key,
			   .key_len = sizeof(key),
			   .value = value,
			   .value_len = len,
			   .expires = expires};

	return run(kv, &op);
}

/* Pairs that are all inline make space for each other, too. */
static void eviction_of_inline_pairs(void **state)
{
	struct kv_config c = {.size = 1u << 20, .inline_max = 20, .evict = true};
	uint64_t value = 0, key;
	struct kv_stat stat;
	struct kv *kv;

	assert_int_equal(kv_open(&c, &kv), 0);
	for (key = 0; key < 200000; key++) {
		struct kv_op get = {.code = KV_GET,
				    .key = &key,
				    .key_len = sizeof(key),
				    .out = &value,
				    .out_cap = sizeof(value)};

		assert_int_equal(put_number(kv, key, &key, sizeof(key), 0), 0);
		assert_int_equal(run(kv, &get), 0);
		assert_true(value == key);
	}
	kv_get_stat(kv, &stat);
	assert_true(stat.evicted > 100000 && stat.pairs == stat.inline_pairs);
	assert_null(kv_check(kv));
	kv_close(kv);
}

static bool count_pair(void *ctx, const struct kv_pair *p)
{
	++*(unsigned *)ctx;
	return true;
}

/* Returns the number of pairs that a store with eviction keeps of many inline ones. */
static unsigned kept(bool after_expired)
{
	struct kv_config c = {.size = 1u << 20, .inline_max = 20, .evict = true};
	uint64_t key = 0;
	unsigned num = 0;
	struct kv *kv;

	assert_int_equal(kv_open(&c, &kv), 0);
	kv_set_time(kv, 5);
	for (; after_expired && key < 100000; key++)
		assert_int_equal(put_number(kv, key, &key, sizeof(key), 10), 0);
	kv_set_time(kv, 10);
	for (unsigned i = 0; i < 400000; i++, key++)
		assert_int_equal(put_number(kv, key, &key, sizeof(key), 0), 0);
	kv_scan(kv, 0, UINT64_MAX, count_pair, &num);
	assert_null(kv_check(kv));
	kv_close(kv);
	return num;
}

static void eviction_removes_expired_inline_pairs(void **state)
{
	unsigned fresh = kept(false), after = kept(true);

	assert_true(fresh > 30000);
	assert_true(after > fresh * 9 / 10);
}

/* Fills the store, and once more when all pairs have expired, which nothing has looked up. */
static void fill_twice(uint32_t len, bool far)
{
	struct kv_config c = {.size = 1u << 20, .inline_max = 20, .near = 256u << 10};
	static const uint8_t value[3000];
	static struct far_model model;
	uint64_t key = 0, num;
	struct kv_stat stat;
	struct kv *kv;

	if (far) {
		far_model_init(&model, 5, 20);
		c.far = &model.far;
	}
	assert_int_equal(kv_open(&c, &kv), 0);
	kv_set_time(kv, 5);
	while (!put_number(kv, key, value, len, 10 + key % 10))
		key++;
	num = key;
	kv_set_time(kv, 9);
	assert_int_equal(put_number(kv, key, value, len, 0), -ENOSPC);
	kv_set_time(kv, 19);
	for (; key < num + num * 3 / 4; key++)
		assert_int_equal(put_number(kv, key, value, len, 100), 0);
	kv_get_stat(kv, &stat);
	assert_true(stat.expired > num / 2 && !stat.evicted);
	assert_null(kv_check(kv));
	/* The pairs with a longer time are there. */
	while (!put_number(kv, key, value, len, 100))
		key++;
	kv_set_time(kv, 99);
	assert_int_equal(put_number(kv, key, value, len, 100), -ENOSPC);
	kv_set_time(kv, 100);
	assert_int_equal(put_number(kv, key, value, len, 100), 0);
	kv_close(kv);
}

static void expired_pairs_make_space(void **state)
{
	for (unsigned far = 0; far < 2; far++) {
		fill_twice(3000, far);
		fill_twice(100, far);
	}
	fill_twice(8, false); /* inline */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(settings_have_bounds),
		cmocka_unit_test(bad_operations_leave_the_others),
		cmocka_unit_test(a_group_runs_in_order),
		cmocka_unit_test(a_batch_is_in_order_on_each_key),
		cmocka_unit_test(results_in_an_arena_are_in_order),
		cmocka_unit_test(a_key_or_value_of_any_length),
		cmocka_unit_test(pairs_expire),
		cmocka_unit_test(a_long_key_is_no_pair_that_expires),
		cmocka_unit_test(inline_pairs_of_all_lengths),
		cmocka_unit_test(more_memory_may_be_allowed),
		cmocka_unit_test(eviction_spares_what_is_used),
		cmocka_unit_test(eviction_of_inline_pairs),
		cmocka_unit_test(eviction_removes_expired_inline_pairs),
		cmocka_unit_test(expired_pairs_make_space),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
