/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Batches and replies: a written batch is read again, a batch that is cut at any byte fails, and
 * lengths beyond the end fail.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "kvwire/kvwire.h"

#define SEED 19
#define OPS  40u

static uint8_t pool[4096]; /* keys and values */

static struct roost_kv_op random_op(struct rng *rng)
{
	struct roost_kv_op op = {.code = (uint8_t)rng_below(rng, ROOST_KV_CODES)};

	op.key = pool + rng_below(rng, 8);
	op.value = pool + rng_below(rng, 2);
	op.expect = pool;
	op.key_len = (uint32_t)(rng_below(rng, 2) ? 8 : rng_below(rng, ROOST_KV_KEY_MAX + 1));
	op.value_len = (uint32_t)(rng_below(rng, 2) ? 16 : rng_below(rng, 300));
	op.expect_len = (uint32_t)rng_below(rng, 20);
	op.ttl = rng_below(rng, 4) ? 0 : (uint32_t)rng_u64(rng);
	if (op.code >= ROOST_KV_UPDATE && op.code <= ROOST_KV_SCAN) {
		op.function = (uint16_t)rng_u64(rng);
		op.type = (uint8_t)rng_below(rng, 128);
		op.fetch = rng_below(rng, 2);
	}
	if (op.code >= ROOST_KV_UPDATE && op.code < ROOST_KV_SCAN) {
		op.param = pool + 9;
		op.param_len = (uint32_t)rng_below(rng, 40);
	}
	if (op.code == ROOST_KV_SCAN)
		op.cursor = rng_u64(rng);
	if (op.code >= ROOST_KV_SCAN)
		op.key_len = 0;
	if (!kvwire_has_value(op.code))
		op.value_len = 0;
	if (op.code != ROOST_KV_PUT_COMPARE &&
	    (op.code < ROOST_KV_UPDATE || op.code >= ROOST_KV_SCAN))
		op.expect_len = 0;
	return op;
}

static void assert_equal_ops(const struct roost_kv_op *a, const struct roost_kv_op *b)
{
	assert_int_equal(a->code, b->code);
	assert_int_equal(a->function, b->function);
	assert_int_equal(a->type, b->type);
	assert_int_equal(a->fetch, b->fetch);
	assert_int_equal(a->param_len, b->param_len);
	if (a->param_len)
		assert_memory_equal(a->param, b->param, a->param_len);
	assert_int_equal(a->ttl, b->ttl);
	assert_int_equal(a->cursor, b->cursor);
	assert_int_equal(a->key_len, b->key_len);
	assert_int_equal(a->value_len, b->value_len);
	assert_int_equal(a->expect_len, b->expect_len);
	if (a->key_len)
		assert_memory_equal(a->key, b->key, a->key_len);
	if (a->value_len)
		assert_memory_equal(a->value, b->value, a->value_len);
	if (a->expect_len)
		assert_memory_equal(a->expect, b->expect, a->expect_len);
}

static void batches_are_read_as_written(void **state)
{
	static uint8_t buf[OPS * 1024];
	struct roost_kv_op ops[OPS], op;
	struct kvwire_writer w;
	struct kvwire_reader r;
	struct rng rng;

	rng_seed(&rng, SEED);
	for (unsigned round = 0; round < 2000; round++) {
		unsigned n = (unsigned)rng_below(&rng, OPS + 1), flags = round & KVWIRE_LONG;
		size_t len;

		kvwire_begin(&w, buf, sizeof(buf));
		for (unsigned i = 0; i < n; i++) {
			ops[i] = random_op(&rng);
			assert_true(kvwire_add(&w, &ops[i]));
		}
		len = kvwire_finish(&w, flags);
		assert_int_equal(kvwire_open(&r, buf, len), 0);
		assert_int_equal(r.count, n);
		assert_int_equal(r.flags, flags);
		for (unsigned i = 0; i < n; i++) {
			assert_int_equal(kvwire_next(&r, &op), 1);
			assert_equal_ops(&op, &ops[i]);
		}
		assert_int_equal(kvwire_next(&r, &op), 0);
	}
}

/*
 * Reads the next operation as the kernel does. The decoder of GETs must take all of them but those
 * with a field that is rare.
 */
static int next_as_the_kernel(struct kvwire_reader *r, struct roost_kv_op *op)
{
	int rc;

	memset(op, 0, sizeof(*op));
	if (kvwire_next_get(r, &op->key, &op->key_len))
		return 1;
	rc = kvwire_next(r, op);
	assert_false(rc == 1 && op->code == ROOST_KV_GET && !op->ttl && op->key_len);
	return rc;
}

/* Both ways of reading end at the same place, with the same operations, however a batch is cut. */
static void gets_have_a_decoder(void **state)
{
	static uint8_t buf[OPS * 1024];
	struct kvwire_writer w;
	struct rng rng;

	rng_seed(&rng, SEED);
	for (unsigned round = 0; round < 300; round++) {
		unsigned n = 1 + (unsigned)rng_below(&rng, 6);
		size_t len;

		kvwire_begin(&w, buf, sizeof(buf));
		for (unsigned i = 0; i < n; i++) {
			struct roost_kv_op op = random_op(&rng);

			if (rng_below(&rng, 2))
				op = (struct roost_kv_op){
					.code = ROOST_KV_GET, .key = op.key, .key_len = op.key_len};
			assert_true(kvwire_add(&w, &op));
		}
		len = kvwire_finish(&w, 0);
		for (size_t cut = KVWIRE_HEAD; cut <= len; cut++) {
			uint8_t *exact = malloc(cut);
			struct kvwire_reader a, b;
			struct roost_kv_op x, y;
			int rc;

			assert_non_null(exact);
			memcpy(exact, buf, cut);
			assert_int_equal(kvwire_open(&a, exact, cut), 0);
			b = a;
			do {
				rc = kvwire_next(&a, &x);
				assert_int_equal(next_as_the_kernel(&b, &y), rc);
				if (rc == 1)
					assert_equal_ops(&y, &x);
			} while (rc == 1);
			free(exact);
		}
	}
}

/*
 * The paper's compaction: a PUT of the sizes and value of the previous one costs its key and a
 * byte.
 */
static void repetition_is_short(void **state)
{
	uint8_t buf[1024];
	struct kvwire_writer w;
	struct roost_kv_op op = {.code = ROOST_KV_PUT,
				 .key = "abcdefgh",
				 .key_len = 8,
				 .value = pool,
				 .value_len = 100};
	size_t one;

	kvwire_begin(&w, buf, sizeof(buf));
	assert_true(kvwire_add(&w, &op));
	one = kvwire_finish(&w, 0);
	assert_true(kvwire_add(&w, &op));
	assert_int_equal(kvwire_finish(&w, 0), one + 9);
	op.code = ROOST_KV_GET;
	assert_true(kvwire_add(&w, &op));
	assert_int_equal(kvwire_finish(&w, 0), one + 18);
	op.code = ROOST_KV_PUT;
	op.value = pool + 1;
	assert_true(kvwire_add(&w, &op));
	assert_int_equal(kvwire_finish(&w, 0), one + 27 + 100);
}

/* Reads a batch to its end from memory of exactly its length. Returns the operations, or -1. */
static int read_all(const uint8_t *from, size_t len)
{
	uint8_t *exact = malloc(len + !len);
	struct kvwire_reader r;
	struct roost_kv_op op;
	int rc, n = 0;

	assert_non_null(exact);
	memcpy(exact, from, len);
	rc = kvwire_open(&r, exact, len);
	while (rc == 0 && (rc = kvwire_next(&r, &op)) == 1) {
		n++;
		rc = 0;
		if (!r.left && r.at == r.end)
			break;
	}
	free(exact);
	return rc ? -1 : n;
}

static void cut_batches_fail(void **state)
{
	static uint8_t buf[OPS * 1024];
	struct kvwire_writer w;
	struct rng rng;
	size_t len;

	rng_seed(&rng, SEED);
	kvwire_begin(&w, buf, sizeof(buf));
	for (unsigned i = 0; i < 12; i++) {
		struct roost_kv_op op = random_op(&rng);

		assert_true(kvwire_add(&w, &op));
	}
	len = kvwire_finish(&w, 0);
	assert_int_equal(read_all(buf, len), 12);
	for (size_t cut = 0; cut < len; cut++)
		assert_int_equal(read_all(buf, cut), -1);
	/* Bytes behind the last operation. */
	buf[2]--;
	assert_int_equal(read_all(buf, len), -1);
}

static void invalid_batches_fail(void **state)
{
	static const struct {
		uint8_t bytes[16];
		size_t len;
	} bad[] = {
		{{KVWIRE_VERSION - 1, 0, 0, 0}, 4},			/* version */
		{{KVWIRE_VERSION, 2, 0, 0}, 4},				/* flag */
		{{KVWIRE_VERSION, 0, 1, 0, ROOST_KV_CODES, 1, 'k'}, 7}, /* code */
		{{KVWIRE_VERSION, 0, 1, 0, 0x80, 'k'}, 6},		/* sizes of no operation */
		{{KVWIRE_VERSION, 0, 1, 0, 0x41, 1, 'k'}, 7},		/* value of no operation */
		{{KVWIRE_VERSION, 0, 1, 0, 0x40, 1, 'k'}, 7},		/* value of a GET */
		{{KVWIRE_VERSION, 0, 1, 0, 0, 200, 'k'}, 7},		/* key beyond the end */
		{{KVWIRE_VERSION, 0, 1, 0, 1, 1, 0xff, 0xff, 0x7f, 'k'},
		 10}, /* value beyond the end */
		{{KVWIRE_VERSION, 0, 1, 0, 1, 1, 0x80, 0x80, 0x80, 'k'},
		 10}, /* length without an end */
		{{KVWIRE_VERSION, 0, 1, 0, 1, 1, 0x80, 0x00, 'k'},
		 9},					      /* length with an empty byte */
		{{KVWIRE_VERSION, 0, 2, 0, 0, 1, 'k'}, 7},    /* fewer operations */
		{{KVWIRE_VERSION, 0, 1, 0, 0, 1, 'k', 0}, 8}, /* more bytes */
		{{KVWIRE_VERSION, 0, 1, 0, ROOST_KV_SCAN | 0x80, 0, 0, 0}, 16},
	};

	for (unsigned i = 0; i < ARRAY_SIZE(bad); i++) {
		struct kvwire_reader r;
		struct roost_kv_op op;
		int rc = kvwire_open(&r, bad[i].bytes, bad[i].len);

		while (rc == 0 && (rc = kvwire_next(&r, &op)) == 1)
			rc = 0;
		assert_true(rc < 0);
	}
}

static void replies_are_read_as_written(void **state)
{
	static const int status[] = {0,	      -ENOENT,	   -EEXIST, -ECANCELED, -EINVAL, -E2BIG,
				     -ENOSPC, -EOPNOTSUPP, -ERANGE, -EFAULT,	-ETIME};
	static uint8_t buf[OPS * 400];
	struct kvwire_results r;
	struct kvwire_result got;
	struct kvwire_reply w;
	struct rng rng;

	rng_seed(&rng, SEED);
	for (unsigned round = 0; round < 3000; round++) {
		unsigned n = (unsigned)rng_below(&rng, OPS + 1), st[OPS];
		size_t space = kvwire_least(n) + rng_below(&rng, 4000), len;
		uint32_t lens[OPS];
		uint8_t *data[OPS];

		assert_false(kvwire_reply_begin(&w, buf, kvwire_least(n) - 1, n));
		assert_true(kvwire_reply_begin(&w, buf, space, n));
		for (unsigned i = 0; i < n; i++) {
			st[i] = (unsigned)rng_below(&rng, ARRAY_SIZE(status));
			lens[i] = (uint32_t)(rng_below(&rng, 2) ? 16 : rng_below(&rng, 300));
			data[i] = rng_below(&rng, 3) ? pool + rng_below(&rng, 2) : NULL;
			kvwire_reply_add(&w, status[st[i]], data[i], lens[i]);
		}
		len = kvwire_reply_finish(&w, 0);
		assert_true(len <= space);
		assert_int_equal(kvwire_reply_open(&r, buf, len), 0);
		for (unsigned i = 0; i < n; i++) {
			assert_int_equal(kvwire_reply_next(&r, &got), 1);
			assert_int_equal(got.status, status[st[i]]);
			if (!data[i]) {
				assert_null(got.data);
				assert_false(got.cut);
				continue;
			}
			assert_int_equal(got.len, lens[i]);
			if (!got.cut && got.len)
				assert_memory_equal(got.data, data[i], got.len);
		}
		assert_int_equal(kvwire_reply_next(&r, &got), 0);
		for (size_t cut = 0; round < 20 && cut < len; cut++) {
			int rc = kvwire_reply_open(&r, buf, cut);

			while (rc == 0 && (rc = kvwire_reply_next(&r, &got)) == 1)
				rc = 0;
			assert_true(rc < 0);
		}
	}
}

/* Data that were put into kvwire_reply_space() move to their results without damage. */
static void data_may_be_in_the_reply(void **state)
{
	uint8_t buf[600], *at;
	struct kvwire_results r;
	struct kvwire_result got;
	struct kvwire_reply w;
	uint8_t *data[20];
	size_t len;

	assert_true(kvwire_reply_begin(&w, buf, sizeof(buf), 20));
	at = kvwire_reply_space(&w, 20, &len);
	for (unsigned i = 0; i < 20; i++) {
		data[i] = at;
		memset(at, (int)i, i);
		at += i;
	}
	for (unsigned i = 0; i < 20; i++)
		kvwire_reply_add(&w, 0, data[i], i);
	len = kvwire_reply_finish(&w, 0);
	assert_int_equal(kvwire_reply_open(&r, buf, len), 0);
	for (unsigned i = 0; i < 20; i++) {
		assert_int_equal(kvwire_reply_next(&r, &got), 1);
		assert_int_equal(got.len, i);
		for (unsigned k = 0; k < i; k++)
			assert_int_equal(got.data[k], i);
	}
}

static void long_data_are_cut(void **state)
{
	uint8_t buf[64];
	struct kvwire_results r;
	struct kvwire_result got;
	struct kvwire_reply w;

	assert_true(kvwire_reply_begin(&w, buf, sizeof(buf), 3));
	kvwire_reply_add(&w, 0, pool, 49);
	kvwire_reply_add(&w, 0, pool, 48);
	kvwire_reply_add(&w, -ECANCELED, pool, 1000000);
	assert_true(kvwire_reply_finish(&w, KVWIRE_BROKEN) <= sizeof(buf));
	assert_int_equal(kvwire_reply_open(&r, buf, (size_t)(w.at - w.start)), 0);
	assert_int_equal(r.flags, KVWIRE_BROKEN);
	assert_int_equal(kvwire_reply_next(&r, &got), 1);
	assert_true(got.cut && got.len == 49);
	assert_int_equal(kvwire_reply_next(&r, &got), 1);
	assert_true(!got.cut && got.len == 48);
	assert_int_equal(kvwire_reply_next(&r, &got), 1);
	assert_true(got.cut && got.len == 1000000 && got.status == -ECANCELED);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(gets_have_a_decoder),
		cmocka_unit_test(batches_are_read_as_written),
		cmocka_unit_test(repetition_is_short),
		cmocka_unit_test(cut_batches_fail),
		cmocka_unit_test(invalid_batches_fail),
		cmocka_unit_test(replies_are_read_as_written),
		cmocka_unit_test(data_may_be_in_the_reply),
		cmocka_unit_test(long_data_are_cut),
	};

	for (unsigned i = 0; i < sizeof(pool); i++)
		pool[i] = (uint8_t)(i * 31 + i / 256);
	printf("seed %d\n", SEED);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
