/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Compares random operations with a plain map: each answer, and at the end each pair, must be that
 * of the map. All options are used: inline threshold, growth, several segments, full memory,
 * eviction, time.
 *
 * usage: test-kv-model [(model | ring | threads) PART]: with a far tier in virtual time, in a file
 * by io_uring (if there is one), or in a file by threads; the PARTth part of the operations. A part
 * of the lines is not cacheable.
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
#include "far_model.h"
#include "kv/kv.h"

#include "kv/far.h"

#define KEYS  20000u
#define GROUP 40u

struct option {
	const char *name;
	struct kv_config config;
	uint32_t keys, value_max;
	unsigned operations;
	bool times;
};

struct known {
	uint8_t *value;
	uint32_t len, expires;
	bool there;
};

struct model {
	const struct option *o;
	struct known map[KEYS];
	struct rng rng;
	struct kv *kv;
	uint32_t now;
	uint64_t full, evicted_seen, ran_ahead;
	uint32_t ids[GROUP];
	struct kv_op ops[GROUP];
	struct kv_ahead ahead;
	uint8_t keys[GROUP][KV_KEY_MAX];
	uint8_t *values[GROUP], *outs[GROUP];
};

static uint8_t secret[KV_SECRET] = {1, 2, 3};
static const char *backend; /* NULL: no far tier */
static struct far_model far_model;

static unsigned part = 1;
static uint64_t far_reads, far_writes;

static void add_far(struct kv_config *c)
{
	if (!backend)
		return;
	c->near = 128 << 10;
	c->cacheable = 75;
	if (strcmp(backend, "model") == 0) {
		far_model_init(&far_model, 1, 20);
		c->far = &far_model.far;
	} else {
		assert_int_equal(kv_far_file(".", strcmp(backend, "threads") == 0, &c->far), 0);
	}
}

/* Length and contents depend on the number: some keys are prefixes of others. */
static uint32_t make_key(uint32_t id, uint8_t key[KV_KEY_MAX])
{
	uint32_t len = 4 + id % 7 + (id % 50 == 0 ? id % 245 : 0);

	memset(key, (int)(id % 3), len);
	memcpy(key, &id, 4);
	return len;
}

static uint32_t random_length(struct model *m)
{
	uint32_t max = rng_below(&m->rng, 200) ? 100 : m->o->value_max;

	return (uint32_t)rng_below(&m->rng, rng_below(&m->rng, max + 1) + 1);
}

static void make_op(struct model *m, unsigned i)
{
	static const uint8_t codes[] = {KV_GET,		KV_GET,	       KV_PUT,
					KV_PUT,		KV_PUT_ABSENT, KV_PUT_PRESENT,
					KV_PUT_COMPARE, KV_DELETE,     KV_TOUCH};
	uint32_t id = (uint32_t)rng_below(&m->rng, m->o->keys);
	struct known *k = &m->map[id];
	struct kv_op *op = &m->ops[i];

	m->ids[i] = id;
	*op = (struct kv_op){.code = codes[rng_below(&m->rng, ARRAY_SIZE(codes))],
			     .key = m->keys[i],
			     .key_len = make_key(id, m->keys[i]),
			     .value = m->values[i],
			     .value_len = random_length(m),
			     .out = m->outs[i],
			     .out_cap = rng_below(&m->rng, 20) ? KV_VALUE_MAX : 8};
	for (uint32_t b = 0; b < op->value_len; b += 61)
		m->values[i][b] = (uint8_t)rng_u64(&m->rng);
	if (m->o->times && rng_below(&m->rng, 3) == 0)
		op->expires = m->now + (uint32_t)rng_below(&m->rng, 5);
	/* The map's value when the group is made; earlier operations of it may change the value. */
	if (op->code == KV_PUT_COMPARE && k->there && rng_below(&m->rng, 4)) {
		op->expect_len = k->len;
		op->expect = k->value;
	} else {
		op->expect = "other";
		op->expect_len = 5;
	}
}

static void set(struct known *k, const void *value, uint32_t len, uint32_t expires)
{
	free(k->value);
	k->value = malloc(len + 1);
	assert_non_null(k->value);
	memcpy(k->value, value, len);
	k->len = len;
	k->expires = expires;
	k->there = true;
}

static void check_out(const struct kv_op *op, const struct known *k, int status)
{
	assert_int_equal(op->out_len, k->len);
	if (k->len > op->out_cap)
		status = -EMSGSIZE;
	else
		assert_memory_equal(op->out, k->value, k->len);
	assert_int_equal(op->status, status);
}

static void check_put(struct model *m, const struct kv_op *op, struct known *k)
{
	if (op->code == KV_PUT_ABSENT && k->there) {
		assert_int_equal(op->status, -EEXIST);
	} else if ((op->code == KV_PUT_PRESENT || op->code == KV_PUT_COMPARE) && !k->there) {
		assert_int_equal(op->status, -ENOENT);
	} else if (op->status == -ENOSPC) {
		m->full++;
	} else {
		assert_int_equal(op->status, 0);
		set(k, op->value, op->value_len, op->expires);
	}
}

/* Computes the map's answer, and applies the operation to the map. */
static void check_op(struct model *m, unsigned i, const uint8_t *expect, uint32_t expect_len)
{
	struct known *k = &m->map[m->ids[i]];
	const struct kv_op *op = &m->ops[i];

	if (k->there && k->expires && k->expires <= m->now)
		k->there = false;
	/* The pair was evicted. */
	if (m->o->config.evict && k->there &&
	    op->status == (op->code == KV_PUT_ABSENT ? 0 : -ENOENT)) {
		k->there = false;
		m->evicted_seen++;
	}
	switch (op->code) {
	case KV_GET:
		if (k->there)
			check_out(op, k, 0);
		else
			assert_int_equal(op->status, -ENOENT);
		break;
	case KV_DELETE:
		assert_int_equal(op->status, k->there ? 0 : -ENOENT);
		k->there = false;
		break;
	case KV_TOUCH:
		if (!k->there)
			assert_int_equal(op->status, -ENOENT);
		else if (op->status == -ENOSPC)
			m->full++;
		else
			k->expires = op->expires;
		break;
	case KV_PUT_COMPARE:
		if (k->there && (expect_len != k->len || memcmp(expect, k->value, k->len))) {
			check_out(op, k, -ECANCELED);
			break;
		}
		/* fall through */
	default:
		check_put(m, op, k);
	}
}

/* Executes the operations one by one, after hints that earlier ones make wrong. */
static void run_ahead(struct model *m, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		kv_ahead_op(m->kv, &m->ahead, &m->ops[i], rng_below(&m->rng, 2));
	kv_ahead_end(m->kv, &m->ahead);
	for (unsigned i = 0; i < n; i++) {
		if (kv_run_ahead(m->kv, &m->ahead, &m->ops[i]))
			m->ran_ahead++;
		else
			kv_run(m->kv, &m->ops[i], 1);
	}
}

static void run_group(struct model *m)
{
	unsigned n = 1 + (unsigned)rng_below(&m->rng, GROUP);
	uint8_t *expects[GROUP];

	for (unsigned i = 0; i < n; i++) {
		struct kv_op *op = &m->ops[i];

		make_op(m, i);
		expects[i] = malloc(op->expect_len + 1);
		assert_non_null(expects[i]);
		memcpy(expects[i], op->expect, op->expect_len);
		op->expect = expects[i];
	}
	if (rng_below(&m->rng, 3))
		kv_run(m->kv, m->ops, n);
	else
		run_ahead(m, n);
	for (unsigned i = 0; i < n; i++) {
		check_op(m, i, expects[i], m->ops[i].expect_len);
		free(expects[i]);
	}
}

struct sum {
	struct model *m;
	uint64_t pairs;
};

static bool count_pair(void *ctx, const struct kv_pair *p)
{
	struct sum *sum = ctx;
	struct known *k;
	uint32_t id;

	memcpy(&id, p->key, 4);
	assert_true(id < sum->m->o->keys);
	k = &sum->m->map[id];
	assert_true(k->there && k->expires == p->expires && k->len == p->value_len);
	assert_memory_equal(k->value, p->value, k->len);
	sum->pairs++;
	return true;
}

static void check_all(struct model *m)
{
	const char *wrong = kv_check(m->kv);
	struct sum sum = {m, 0};
	uint64_t there = 0, cursor = 0;

	if (wrong)
		fail_msg("%s: %s", m->o->name, wrong);
	do
		cursor = kv_scan(m->kv, cursor, 100, count_pair, &sum);
	while (cursor);
	for (uint32_t id = 0; id < m->o->keys; id++) {
		struct known *k = &m->map[id];

		there += k->there && !(k->expires && k->expires <= m->now);
	}
	if (!m->o->config.evict)
		assert_true(there == sum.pairs);
	else
		assert_true(there >= sum.pairs);
}

static void play(const struct option *o, struct kv_stat *stat, uint64_t *full)
{
	struct model *m = calloc(1, sizeof(*m));
	struct kv_config config = o->config;

	assert_non_null(m);
	m->o = o;
	m->now = 1;
	config.secret = secret;
	add_far(&config);
	rng_seed(&m->rng, 1919);
	assert_int_equal(kv_open(&config, &m->kv), 0);
	for (unsigned i = 0; i < GROUP; i++) {
		m->values[i] = calloc(1, KV_VALUE_MAX);
		m->outs[i] = malloc(KV_VALUE_MAX);
		assert_true(m->values[i] && m->outs[i]);
	}
	for (unsigned n = 0; n < o->operations / part / (GROUP / 2); n++) {
		run_group(m);
		if (o->times && n % 50 == 0)
			kv_set_time(m->kv, ++m->now);
		if (n % 2000 == 0)
			check_all(m);
	}
	check_all(m);
	kv_get_stat(m->kv, stat);
	if (backend) {
		print_message("%s: %lu far reads, %lu far writes, %lu parked, %lu forwarded, "
			      "%lu merged, %lu lines near\n",
			      o->name, stat->far_reads, stat->far_writes, stat->parked,
			      stat->forwarded, stat->merged, stat->near_lines);
		far_reads += stat->far_reads;
		far_writes += stat->far_writes;
	}
	*full = m->full;
	assert_true(backend ? !m->ran_ahead : m->ran_ahead > 1000);
	if (o->config.evict && part == 1)
		assert_true(m->evicted_seen > 0 && stat->evicted >= m->evicted_seen);
	kv_close(m->kv);
	for (unsigned i = 0; i < GROUP; i++) {
		free(m->values[i]);
		free(m->outs[i]);
	}
	for (uint32_t id = 0; id < KEYS; id++)
		free(m->map[id].value);
	free(m);
}

#define MIB (1ull << 20)

static void nothing_inline(void **state)
{
	struct option o = {"nothing inline", {.size = 64 * MIB}, KEYS, 5000, 400000, false};
	struct kv_stat stat;
	uint64_t full;

	play(&o, &stat, &full);
	assert_true(part > 1 || (stat.inline_pairs == 0 && stat.growth_steps > 1000 && full == 0));
}

static void all_that_fits_inline(void **state)
{
	struct option o = {"inline", {.size = 64 * MIB, .inline_max = KV_INLINE_MAX},
			   KEYS,     5000,
			   400000,   true};
	struct kv_stat stat;
	uint64_t full;

	play(&o, &stat, &full);
	assert_true(part > 1 || (stat.inline_pairs > 0 && stat.expired > 0 && full == 0));
}

static void long_chains(void **state)
{
	struct option o = {
		"chains", {.size = 64 * MIB, .inline_max = 20, .buckets = 64, .buckets_max = 64},
		3000,	  300,
		300000,	  true};
	struct kv_stat stat;
	uint64_t full;

	play(&o, &stat, &full);
	assert_true(stat.chained > 64 && stat.growth_steps == 0);
}

static void several_segments(void **state)
{
	struct option o = {"segments", {.size = 64 * MIB, .inline_max = 20, .segment = 8 * MIB},
			   KEYS,       70000,
			   300000,     true};
	struct kv_stat stat;
	uint64_t full;

	play(&o, &stat, &full);
	assert_true(part > 1 || (stat.growth_steps > 1000));
}

static void full_memory_loses_nothing(void **state)
{
	struct option o = {"full", {.size = 1 * MIB, .inline_max = 20}, KEYS, 90000, 400000, false};
	struct kv_stat stat;
	uint64_t full;

	play(&o, &stat, &full);
	assert_true(part > 1 || (full > 1000 && stat.merges > 0));
}

static void eviction_makes_space(void **state)
{
	struct option o = {"evict", {.size = 2 * MIB, .evict = true}, KEYS, 90000, 400000, true};
	struct kv_stat stat;
	uint64_t full;

	play(&o, &stat, &full);
	assert_true(part > 1 || (full == 0 && stat.evicted > 1000));
}

static void values_of_a_mebibyte(void **state)
{
	struct option o = {
		"extents", {.size = 256 * MIB, .inline_max = 20}, 500, KV_VALUE_MAX, 60000, true};
	struct kv_stat stat;
	uint64_t full;

	play(&o, &stat, &full);
	assert_true(full == 0);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nothing_inline),
		cmocka_unit_test(all_that_fits_inline),
		cmocka_unit_test(long_chains),
		cmocka_unit_test(several_segments),
		cmocka_unit_test(full_memory_loses_nothing),
		cmocka_unit_test(eviction_makes_space),
		cmocka_unit_test(values_of_a_mebibyte),
	};

	if (argc > 2) {
		backend = argv[1];
		part = (unsigned)atoi(argv[2]);
	}
	if (cmocka_run_group_tests(tests, NULL, NULL))
		return 1;
	/* The far tier was used. */
	return backend && (!far_reads || !far_writes);
}
