/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Operations on long values that run in pieces have the results of operations that do not, and
 * leave the same values. Two stores execute the same random groups: one by kv_run(), the other by
 * kv_run_some() and kv_run_on(), or by kv_poll() with a far tier.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "far_model.h"
#include "base/rng.h"
#include "kv/kv.h"

#define SEED  20261127
#define KEYS  12u
#define GROUP 6u
#define SPACE (GROUP * KV_VALUE_MAX)

enum { WHOLE, DIVIDED };

static struct {
	struct kv *kv[2];
	struct rng rng;
	uint8_t *out[2]; /* of SPACE bytes */
	uint8_t *values; /* of KV_VALUE_MAX + 64 bytes */
	uint8_t *current;
	unsigned pieces, codes[KV_CODES][2]; /* of each code: whole, divided */
	struct far_model far;		     /* of DIVIDED, if it has one */
	bool has_far;
	unsigned cancelled;
} t;

/* near: bytes of near memory of the store that divides; 0: no far tier */
static void open_stores(uint64_t size, bool evict, uint64_t near)
{
	static uint8_t secret[KV_SECRET];
	struct kv_config config = {.size = size, .evict = evict, .secret = secret};

	memset(&t, 0, sizeof(t));
	far_model_init(&t.far, 5, 50);
	t.has_far = near;
	rng_seed(&t.rng, SEED);
	for (unsigned i = 0; i < KV_SECRET; i++)
		secret[i] = (uint8_t)rng_u64(&t.rng);
	for (unsigned i = 0; i < 2; i++) {
		config.near = near;
		config.far = i == DIVIDED && near ? &t.far.far : NULL;
		assert_int_equal(kv_open(&config, &t.kv[i]), 0);
		kv_set_time(t.kv[i], 100);
		t.out[i] = calloc(1, SPACE);
		assert_non_null(t.out[i]);
	}
	t.values = malloc(KV_VALUE_MAX + 64);
	t.current = malloc(KV_VALUE_MAX);
	assert_true(t.values && t.current);
	for (uint32_t i = 0; i < KV_VALUE_MAX + 64; i++)
		t.values[i] = (uint8_t)(rng_below(&t.rng, 3) ? rng_u64(&t.rng) : 0);
}

static void close_stores(void)
{
	for (unsigned i = 0; i < 2; i++) {
		assert_null(kv_check(t.kv[i]));
		kv_close(t.kv[i]);
		free(t.out[i]);
	}
	free(t.values);
	free(t.current);
}

static uint32_t any_length(void)
{
	static const uint32_t lengths[] = {4,	   4096,   65528,  65536,	65544,
					   140000, 262144, 600000, KV_VALUE_MAX};

	return lengths[rng_below(&t.rng, ARRAY_SIZE(lengths))];
}

/* Returns the length of the value of a key, and copies it to t.current; 0: the key is not there. */
static uint32_t look(uint32_t *key)
{
	struct kv_op op = {.key = key, .key_len = 4, .out = t.current, .out_cap = KV_VALUE_MAX};

	/* in both: a read pair counts as used, and is evicted later */
	kv_run(t.kv[DIVIDED], &op, 1);
	kv_run(t.kv[WHOLE], &op, 1);
	return op.status ? 0 : op.out_len;
}

/* Sets an operation that mostly fits the value of its key. */
static void make_op(struct kv_op *op, uint32_t *key)
{
	static const uint8_t filters[] = {KV_EQ, KV_LT, KV_GE};
	static const uint8_t functions[] = {KV_ADD, KV_MIN, KV_XOR, KV_SWAP};
	uint32_t len;

	*key = (uint32_t)rng_below(&t.rng, KEYS);
	len = look(key);
	*op = (struct kv_op){.code = (uint8_t)rng_below(&t.rng, KV_CODES),
			     .key = key,
			     .key_len = 4,
			     .value = t.values + rng_below(&t.rng, 64),
			     .expires = rng_below(&t.rng, 2) ? 1000 : 0,
			     .type = (uint8_t)(rng_below(&t.rng, 2) ? KV_U32 : KV_U8),
			     .fetch = rng_below(&t.rng, 2)};
	if (op->code <= KV_TOUCH) {
		op->value_len = any_length();
		op->expect = t.values;
		op->expect_len = rng_below(&t.rng, 4) ? len : any_length();
		if (op->code == KV_PUT_COMPARE && rng_below(&t.rng, 2)) {
			/* its own value, of which some byte may differ */
			uint8_t *same = malloc(KV_VALUE_MAX);

			assert_non_null(same);
			memcpy(same, t.current, len);
			if (len && rng_below(&t.rng, 2))
				same[rng_below(&t.rng, len)] ^= 1;
			op->expect = same;
			op->expect_len = len;
		}
		return;
	}
	op->fn = op->code == KV_FILTER
			 ? filters[rng_below(&t.rng, ARRAY_SIZE(filters))]
			 : functions[rng_below(&t.rng,
					       ARRAY_SIZE(functions) - (op->code == KV_REDUCE))];
	op->value_len = op->code == KV_UPDATE_VECTOR ? len : op->type == KV_U32 ? 4 : 1;
	op->expect = t.values;
	op->expect_len = op->value_len;
}

/* Polls until a batch is finished. Sometimes it is cancelled in the middle, and begins again. */
static void run_with_far_tier(struct kv_op *ops, unsigned n)
{
	struct kv_batch b = {.ops = ops, .n = n};
	struct kv *kv = t.kv[DIVIDED];

	kv_submit(kv, &b);
	while (!kv_finished(&b)) {
		uint64_t before = kv_bytes(kv);
		bool was_divided = kv_divided(kv);

		kv_poll(kv, false);
		t.pieces += was_divided;
		/* an extent that is changed, or a record that TOUCH reads and writes */
		assert_true(kv_bytes(kv) - before <= KV_RUN_BYTES + 2 * 65536);
		if (n == 1 && kv_divided(kv) && rng_below(&t.rng, 8) == 0) {
			kv_cancel(kv, &b);
			assert_false(kv_divided(kv));
			assert_null(kv_check(kv));
			t.cancelled++;
			kv_submit(kv, &b);
		}
	}
	assert_false(kv_divided(kv));
}

static void run_divided(struct kv_op *ops, unsigned n)
{
	struct kv *kv = t.kv[DIVIDED];
	bool done = kv_run_some(kv, ops, n);
	struct kv_op moved[GROUP];

	while (!done) {
		uint64_t before = kv_bytes(kv);

		t.pieces++;
		if (kv_divided(kv) && rng_below(&t.rng, 4) == 0) {
			/* The operations may move. */
			memcpy(moved, ops, n * sizeof(*ops));
			kv_moved_ops(kv, ops, moved, n);
			done = kv_run_on(kv, moved, n);
			kv_moved_ops(kv, moved, ops, n);
			memcpy(ops, moved, n * sizeof(*ops));
		} else if (kv_divided(kv) && rng_below(&t.rng, 8) == 0) {
			kv_end_divided(kv);
			assert_false(kv_divided(kv));
			continue;
		} else {
			done = kv_run_on(kv, ops, n);
		}
		/* the last piece: an extent, or a record that TOUCH reads and writes */
		assert_true(kv_bytes(kv) - before <= KV_RUN_BYTES + 2 * 65536);
	}
	assert_false(kv_divided(kv));
}

static void run_group(unsigned n, bool arena)
{
	struct kv_op ops[2][GROUP] = {0};
	struct kv_arena arenas[2];
	uint32_t keys[GROUP];

	for (unsigned i = 0; i < n; i++)
		make_op(&ops[WHOLE][i], &keys[i]);
	memcpy(ops[DIVIDED], ops[WHOLE], sizeof(ops[0]));
	for (unsigned k = 0; k < 2; k++) {
		arenas[k] = (struct kv_arena){t.out[k], t.out[k] + SPACE};
		if (arena && n == 1)
			arenas[k].end = t.out[k] + 300000; /* may be too short */
	}
	for (unsigned i = 0; i < n; i++) {
		uint32_t cap = rng_below(&t.rng, 3) ? KV_VALUE_MAX : 100000;

		for (unsigned k = 0; k < 2; k++) {
			ops[k][i].arena = arena ? &arenas[k] : NULL;
			ops[k][i].out = t.out[k] + i * KV_VALUE_MAX;
			ops[k][i].out_cap = cap;
		}
	}
	kv_run(t.kv[WHOLE], ops[WHOLE], n);
	if (t.has_far)
		run_with_far_tier(ops[DIVIDED], n);
	else
		run_divided(ops[DIVIDED], n);
	for (unsigned i = 0; i < n; i++) {
		const struct kv_op *a = &ops[WHOLE][i], *b = &ops[DIVIDED][i];
		bool result = a->code == KV_GET || a->code >= KV_UPDATE ||
			      (a->code == KV_PUT_COMPARE && a->status == -ECANCELED);

		if (a->status != b->status || a->out_len != b->out_len)
			fail_msg("code %u: status %d and %d, length %u and %u", a->code, a->status,
				 b->status, a->out_len, b->out_len);
		if (result && !a->status && a->out_len)
			assert_memory_equal(a->out, b->out, a->out_len);
		if (a->code == KV_PUT_COMPARE && a->expect != t.values)
			free((void *)(uintptr_t)a->expect);
		t.codes[a->code][!a->status]++;
	}
}

static void same_values(void)
{
	for (uint32_t key = 0; key < KEYS; key++) {
		struct kv_op get[2];

		for (unsigned k = 0; k < 2; k++) {
			get[k] = (struct kv_op){.key = &key,
						.key_len = 4,
						.out = t.out[k],
						.out_cap = KV_VALUE_MAX};
			kv_run(t.kv[k], &get[k], 1);
		}
		assert_int_equal(get[0].status, get[1].status);
		assert_int_equal(get[0].out_len, get[1].out_len);
		if (!get[0].status)
			assert_memory_equal(t.out[0], t.out[1], get[0].out_len);
	}
}

static void groups_have_the_same_results(void **state)
{
	open_stores(64u << 20, false, 0);
	for (unsigned i = 0; i < 600; i++) {
		run_group(1 + (unsigned)rng_below(&t.rng, GROUP), rng_below(&t.rng, 2));
		if (i % 50 == 0)
			same_values();
	}
	same_values();
	assert_true(t.pieces > 400);
	for (unsigned code = 0; code < KV_CODES; code++)
		assert_true(code == KV_UPDATE || t.codes[code][1] > 20);
	close_stores();
}

/*
 * Operations on different keys are not in order, so the results of those that share an arena are
 * not compared if it is too short. First all lines stay in near memory, then few do.
 */
static void a_far_tier_has_the_same_results(void **state)
{
	for (unsigned few = 0; few < 2; few++) {
		open_stores(64u << 20, false, few ? 4u << 20 : 64u << 20);
		for (unsigned i = 0; i < 400; i++) {
			run_group(1 + (unsigned)rng_below(&t.rng, GROUP), rng_below(&t.rng, 2));
			if (i % 50 == 0)
				same_values();
		}
		same_values();
		assert_true(t.pieces > 200 && t.cancelled > 3);
		for (unsigned code = 0; code < KV_CODES; code++)
			assert_true(code == KV_UPDATE || t.codes[code][1] > 10);
		close_stores();
	}
}

/* Memory is short. One operation at a time, so that the stores evict the same pairs. */
static void evictions_are_the_same(void **state)
{
	open_stores(6u << 20, true, 0);
	for (unsigned i = 0; i < 1200; i++) {
		run_group(1, rng_below(&t.rng, 2));
		if (i % 100 == 0)
			same_values();
	}
	same_values();
	close_stores();
}

/*
 * A result that has no space has cost as much as one that has. 16 KiB of work each: a step ends
 * after 16 of these operations.
 */
static void results_without_space_count(void **state)
{
	static const uint32_t above = 0;
	struct kv_op put, ops[32];
	unsigned steps = 1;
	bool done;

	open_stores(64u << 20, false, 0);
	put = (struct kv_op){
		.code = KV_PUT, .key = "key", .key_len = 3, .value = t.values, .value_len = 4096};
	kv_run(t.kv[DIVIDED], &put, 1);
	for (unsigned i = 0; i < ARRAY_SIZE(ops); i++)
		ops[i] = (struct kv_op){.code = KV_FILTER,
					.key = "key",
					.key_len = 3,
					.type = KV_U32,
					.fn = KV_GE,
					.value = &above,
					.value_len = 4};
	for (done = kv_run_some(t.kv[DIVIDED], ops, ARRAY_SIZE(ops)); !done; steps++)
		done = kv_run_on(t.kv[DIVIDED], ops, ARRAY_SIZE(ops));
	for (unsigned i = 0; i < ARRAY_SIZE(ops); i++)
		assert_int_equal(ops[i].status, -EMSGSIZE);
	assert_int_equal(steps, 2);
	close_stores();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(groups_have_the_same_results),
		cmocka_unit_test(a_far_tier_has_the_same_results),
		cmocka_unit_test(evictions_are_the_same),
		cmocka_unit_test(results_without_space_count),
	};

	printf("seed %d\n", SEED);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
