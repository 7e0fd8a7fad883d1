/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Random operations on vectors, valid and invalid, compared with plain arrays: status, result and
 * value after each operation. Values are inline, in a record, or in extents.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <stdlib.h>

#include "base/mem.h"
#include "base/rng.h"
#include "kv/kv.h"
#include "oracle.h"

#define KEYS  40u
#define LARGE 140000u /* three extents */

struct model {
	struct kv *kv;
	struct rng rng;
	uint8_t *value[KEYS];
	uint32_t len[KEYS];
	uint8_t operand[LARGE], expect[LARGE], out[LARGE], expected[LARGE];
	unsigned codes[KV_CODES]
		      [5]; /* of each code: status 0, ENOENT, ERANGE, EMSGSIZE, ECANCELED */
};

static uint32_t random_length(struct rng *rng)
{
	static const uint32_t lengths[] = {0, 1, 2, 4, 8, 16, 24, 32, 33, 64, 1024, 2001, 8192};

	return rng_below(rng, 40) ? lengths[rng_below(rng, ARRAY_SIZE(lengths))] : LARGE;
}

static void put(struct model *m, uint32_t id)
{
	struct kv_op op = {.code = KV_PUT, .key = &id, .key_len = 4};

	m->len[id] = random_length(&m->rng);
	for (uint32_t i = 0; i < m->len[id]; i++)
		m->value[id][i] = (uint8_t)(rng_below(&m->rng, 3) ? rng_u64(&m->rng) : 0);
	op.value = m->value[id];
	op.value_len = m->len[id];
	kv_run(m->kv, &op, 1);
	assert_int_equal(op.status, 0);
}

/* Bad types, functions and lengths are rare. */
static void make_op(struct model *m, struct kv_op *op, uint32_t *id)
{
	struct rng *rng = &m->rng;
	unsigned width;

	*id = (uint32_t)rng_below(rng, KEYS);
	*op = (struct kv_op){.code = (uint8_t)(KV_UPDATE + rng_below(rng, KV_CODES - KV_UPDATE)),
			     .type = (uint8_t)rng_below(rng, KV_TYPES + (rng_below(rng, 9) == 0)),
			     .fetch = rng_below(rng, 2),
			     .key = id,
			     .key_len = 4,
			     .value = m->operand,
			     .expect = m->expect,
			     .out = m->out,
			     .out_cap = rng_below(rng, 9) ? LARGE : 6};
	op->fn = (uint16_t)(op->code == KV_FILTER ? KV_EQ + rng_below(rng, KV_FNS - KV_EQ)
						  : rng_below(rng, KV_SWAP + 1));
	if (rng_below(rng, 20) == 0)
		op->fn = (uint16_t)rng_below(rng, 1 + (rng_below(rng, 2) ? KV_FNS : UINT16_MAX));
	width = op->type < KV_TYPES ? oracle_width(op->type) : 1;
	op->value_len = op->code == KV_UPDATE_VECTOR ? m->len[*id] : width;
	if (rng_below(rng, 20) == 0)
		op->value_len = (uint32_t)rng_below(rng, 40);
	op->expect_len = rng_below(rng, 20) ? op->value_len : op->value_len + 1;
	for (uint32_t i = 0; i < op->value_len; i++)
		m->operand[i] = (uint8_t)(rng_below(rng, 3) ? rng_u64(rng) : 0);
	for (uint32_t i = 0; i < op->value_len; i++)
		m->expect[i] = (uint8_t)rng_below(rng, 2);
	if (op->value_len && op->value_len <= m->len[*id] && rng_below(rng, 2))
		memcpy(m->expect, m->value[*id], op->value_len);
}

static bool is_valid(const struct kv_op *op)
{
	unsigned width = op->type < KV_TYPES ? oracle_width(op->type) : 0;

	if (!width)
		return false;
	if (op->code == KV_FILTER ? op->fn < KV_EQ || op->fn >= KV_FNS
	    : op->fn == KV_SWAP	  ? op->code == KV_REDUCE || op->expect_len != op->value_len
				  : op->fn > KV_SWAP || !oracle_has(op->fn, op->type))
		return false;
	return op->code == KV_UPDATE_VECTOR ? op->value_len % width == 0 : op->value_len == width;
}

/* A NaN is a NaN: its sign and payload depend on the order of the operands. */
static bool same(const struct kv_op *op, const uint8_t *x, const uint8_t *y, uint32_t len)
{
	unsigned w = oracle_width(op->type);

	for (uint32_t at = 0; at < len; at += w)
		if (memcmp(x + at, y + at, w) &&
		    (op->type < KV_FLOAT || oracle_matches(KV_EQ, op->type, x + at, x + at) ||
		     oracle_matches(KV_EQ, op->type, y + at, y + at)))
			return false;
	return true;
}

static int give(struct model *m, const struct kv_op *op, uint32_t len)
{
	assert_int_equal(op->out_len, len);
	if (len > op->out_cap)
		return -EMSGSIZE;
	if (op->code == KV_REDUCE)
		assert_true(same(op, m->out, m->expected, len));
	else
		assert_memory_equal(m->out, m->expected, len);
	return 0;
}

static int expect_update(struct model *m, const struct kv_op *op, uint8_t *value, uint32_t len)
{
	unsigned w = oracle_width(op->type);
	int status = 0;

	memcpy(m->expected, value, len);
	if (op->fetch)
		status = give(m, op, len);
	else
		assert_int_equal(op->out_len, 0);
	if (!status && op->code == KV_UPDATE && op->fn == KV_SWAP && memcmp(value, m->expect, w))
		status = -ECANCELED;
	for (uint32_t at = 0; !status && at < len; at += w) {
		uint32_t from = op->code == KV_UPDATE_VECTOR ? at : 0;

		oracle_apply(op->fn, op->type, value + at, m->operand + from, m->expect + from);
	}
	return status;
}

/* Returns the status that the operation must have, and updates the model. */
static int expect(struct model *m, const struct kv_op *op, uint32_t id)
{
	uint32_t len = m->len[id], found = 0;
	unsigned w;

	if (!is_valid(op))
		return -EINVAL;
	w = oracle_width(op->type);
	if (op->code == KV_UPDATE	   ? len != w
	    : op->code == KV_UPDATE_VECTOR ? len != op->value_len
					   : len % w)
		return -ERANGE;
	if (op->code < KV_REDUCE)
		return expect_update(m, op, m->value[id], len);
	if (op->code == KV_REDUCE) {
		memcpy(m->expected, m->operand, w);
		for (uint32_t at = 0; at < len; at += w)
			oracle_apply(op->fn, op->type, m->expected, m->value[id] + at, m->operand);
		return give(m, op, w);
	}
	for (uint32_t at = 0; at < len; at += w) {
		if (!oracle_matches(op->fn, op->type, m->value[id] + at, m->operand))
			continue;
		memcpy(m->expected + found, m->value[id] + at, w);
		found += w;
	}
	return give(m, op, found);
}

static void check_value(struct model *m, const struct kv_op *op, uint32_t id)
{
	struct kv_op get = {
		.code = KV_GET, .key = &id, .key_len = 4, .out = m->out, .out_cap = sizeof(m->out)};

	kv_run(m->kv, &get, 1);
	assert_int_equal(get.status, 0);
	assert_int_equal(get.out_len, m->len[id]);
	if (op->status == 0 && op->code < KV_REDUCE) {
		assert_true(same(op, m->out, m->value[id], get.out_len));
		memcpy(m->value[id], m->out, get.out_len);
	} else {
		assert_memory_equal(m->out, m->value[id], get.out_len);
	}
}

static void count(struct model *m, const struct kv_op *op)
{
	static const int kinds[] = {0, -EINVAL, -ERANGE, -EMSGSIZE, -ECANCELED};

	for (unsigned i = 0; i < ARRAY_SIZE(kinds); i++)
		m->codes[op->code][i] += op->status == kinds[i];
}

static void random_operations(void **state)
{
	struct model *m = calloc(1, sizeof(*m));
	struct kv_config c = {.size = 64u << 20, .inline_max = 40};

	assert_non_null(m);
	rng_seed(&m->rng, 4711);
	assert_int_equal(kv_open(&c, &m->kv), 0);
	for (uint32_t id = 0; id < KEYS; id++) {
		m->value[id] = calloc(1, LARGE);
		assert_non_null(m->value[id]);
		put(m, id);
	}
	for (unsigned i = 0; i < 40000; i++) {
		struct kv_op op;
		uint32_t id;

		if (rng_below(&m->rng, 20) == 0)
			put(m, (uint32_t)rng_below(&m->rng, KEYS));
		make_op(m, &op, &id);
		kv_run(m->kv, &op, 1);
		assert_int_equal(op.status, expect(m, &op, id));
		check_value(m, &op, id);
		count(m, &op);
	}
	for (unsigned code = KV_UPDATE; code < KV_CODES; code++)
		assert_true(m->codes[code][0] > 300 && m->codes[code][1] > 50 &&
			    m->codes[code][2] > 50 && m->codes[code][3] > 3);
	assert_true(m->codes[KV_UPDATE][4] > 10);
	assert_null(kv_check(m->kv));
	kv_close(m->kv);
	for (uint32_t id = 0; id < KEYS; id++)
		free(m->value[id]);
	free(m);
}

/* Operations of a group on one key are in order, and a missing or expired key is an error. */
static void a_group_of_atomics(void **state)
{
	struct kv_config c = {.size = 1u << 20, .inline_max = 20};
	uint64_t one = 1, zero = 0, outs[100];
	struct kv_op ops[101], op = {.code = KV_PUT,
				     .key = "n",
				     .key_len = 1,
				     .value = &zero,
				     .value_len = 8,
				     .expires = 10};
	struct kv *kv;

	assert_int_equal(kv_open(&c, &kv), 0);
	for (unsigned i = 0; i < 101; i++)
		ops[i] = (struct kv_op){.code = KV_UPDATE,
					.type = KV_U64,
					.fn = KV_ADD,
					.fetch = true,
					.key = "n",
					.key_len = 1,
					.value = &one,
					.value_len = 8,
					.out = &outs[i % 100],
					.out_cap = 8};
	ops[100].key = "m";
	kv_run(kv, ops, 1);
	assert_int_equal(ops[0].status, -ENOENT);
	kv_run(kv, &op, 1);
	kv_run(kv, ops, 101);
	for (unsigned i = 0; i < 100; i++)
		assert_true(ops[i].status == 0 && outs[i] == i);
	assert_int_equal(ops[100].status, -ENOENT);
	kv_set_time(kv, 10);
	kv_run(kv, ops, 1);
	assert_int_equal(ops[0].status, -ENOENT);
	kv_close(kv);
}

/* An update in its place needs no memory and keeps the time at which the pair expires. */
static void updates_in_full_memory(void **state)
{
	struct kv_config c = {.size = 1u << 20, .inline_max = 0};
	static uint64_t big[100];
	uint64_t one = 1;
	struct kv_op put = {.code = KV_PUT, .key_len = 4, .value = big, .value_len = sizeof(big)};
	struct kv_op add = {.code = KV_UPDATE_EACH,
			    .type = KV_U64,
			    .fn = KV_ADD,
			    .key_len = 4,
			    .value = &one,
			    .value_len = 8};
	uint32_t key = 0, first = 0;
	struct kv *kv;

	assert_int_equal(kv_open(&c, &kv), 0);
	put.expires = 100;
	put.key = &key;
	do {
		kv_run(kv, &put, 1);
		put.expires = 0;
		key++;
	} while (put.status == 0);
	assert_int_equal(put.status, -ENOSPC);
	add.key = &first;
	kv_run(kv, &add, 1);
	assert_int_equal(add.status, 0);
	kv_set_time(kv, 100);
	kv_run(kv, &add, 1);
	assert_int_equal(add.status, -ENOENT);
	kv_close(kv);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(random_operations),
		cmocka_unit_test(a_group_of_atomics),
		cmocka_unit_test(updates_in_full_memory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
