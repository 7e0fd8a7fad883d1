/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The kernel `kv` against a plain model, over good and bad links: each operation is done once, its
 * result is right, and invalid batches do no harm.
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
#include "base/rng.h"
#include "builtin/builtin.h"
#include "builtin/kv_store.h"
#include "kvwire/kvwire.h"
#include "rig.h"

#define SEED  19
#define KEYS  24u
#define OPS   48u
#define BATCH 960u /* path MTU of 1024, less the head of the call */

static struct rig R, *const r = &R;

/* The model: values have a length and a number, from which their bytes follow. */
static struct {
	bool present;
	uint32_t len;
	uint8_t value[512];
} model[KEYS];

static void open_rig(const struct sim_params *sp)
{
	static struct roost_kv_config config = {.size = 8u << 20};

	rig_open(r, SEED, &(struct rig_shape){.sp = *sp});
	assert_int_equal(runtime_deploy(r->f, kernels_builtin("kv"), &config), 0);
	memset(model, 0, sizeof(model));
}

struct text {
	char key[8];
	uint8_t value[512], expect[512];
	unsigned k;
};

static void random_op(struct rng *rng, struct roost_kv_op *op, struct text *t)
{
	uint32_t most = rng_below(rng, 8) ? 24 : 300;

	t->k = (unsigned)rng_below(rng, KEYS);
	snprintf(t->key, sizeof(t->key), "key%u", t->k);
	*op = (struct roost_kv_op){.code = (uint8_t)rng_below(rng, ROOST_KV_TOUCH + 1),
				   .key = t->key,
				   .key_len = (uint32_t)strlen(t->key)};
	if (kvwire_has_value(op->code)) {
		op->value = t->value;
		op->value_len = (uint32_t)rng_below(rng, most);
		memset(t->value, (int)rng_below(rng, 256), op->value_len);
	}
	if (op->code == ROOST_KV_PUT_COMPARE) {
		op->expect = t->expect;
		op->expect_len = model[t->k].len;
		memcpy(t->expect, model[t->k].value, model[t->k].len);
		if (rng_below(rng, 2))
			op->expect_len = (uint32_t)rng_below(rng, op->expect_len + 1);
	}
}

/* Applies an operation to the model and compares the result. */
static void judge(const struct roost_kv_op *op, unsigned k, const struct kvwire_result *got)
{
	bool there = model[k].present, store = false;
	int status = 0;

	switch (op->code) {
	case ROOST_KV_GET:
		status = there ? 0 : -ENOENT;
		assert_int_equal(got->data != NULL || got->cut, there);
		if (!there)
			break;
		assert_int_equal(got->len, model[k].len);
		if (got->data && got->len)
			assert_memory_equal(got->data, model[k].value, got->len);
		break;
	case ROOST_KV_PUT:
		store = true;
		break;
	case ROOST_KV_PUT_ABSENT:
		store = !there;
		status = there ? -EEXIST : 0;
		break;
	case ROOST_KV_PUT_PRESENT:
		store = there;
		status = there ? 0 : -ENOENT;
		break;
	case ROOST_KV_PUT_COMPARE:
		store = there && op->expect_len == model[k].len &&
			memcmp(op->expect, model[k].value, model[k].len) == 0;
		status = !there ? -ENOENT : store ? 0 : -ECANCELED;
		if (status == -ECANCELED && got->data)
			assert_memory_equal(got->data, model[k].value, model[k].len);
		break;
	case ROOST_KV_DELETE:
		status = there ? 0 : -ENOENT;
		model[k].present = false;
		model[k].len = 0;
		break;
	default:
		status = there ? 0 : -ENOENT;
	}
	assert_int_equal(got->status, status);
	if (!store)
		return;
	model[k].present = true;
	model[k].len = op->value_len;
	if (op->value_len)
		memcpy(model[k].value, op->value, op->value_len);
}

static struct rig_reply call(const void *batch, size_t len, uint32_t space)
{
	/* Replies may be longer than those of the rig: they take its next slots, too. */
	struct roost_rpc_head head = rig_head(r, 0, 0, 0, 0);
	struct rig_reply reply;

	head.reply_len = space + 8;
	memset(r->caller[0].mem + space, 0, 8);
	rig_post_head(r, 0, 0, ROOST_KV_OP, &head, batch, (uint32_t)len);
	reply = rig_wait(r, 0, 0, space);
	rig_reap(r);
	return reply;
}

/* Compares the reply to a batch of n operations with the model. */
static void judge_reply(const struct rig_reply *a, const struct roost_kv_op *ops,
			const struct text *text, unsigned n)
{
	struct kvwire_results results;
	struct kvwire_result got;

	assert_int_equal(a->status, ROOST_RPC_OK);
	assert_int_equal(kvwire_reply_open(&results, a->data, a->len), 0);
	assert_int_equal(results.flags, 0);
	for (unsigned i = 0; i < n; i++) {
		assert_int_equal(kvwire_reply_next(&results, &got), 1);
		judge(&ops[i], text[i].k, &got);
	}
	assert_int_equal(kvwire_reply_next(&results, &got), 0);
}

static void batches(const struct sim_params *sp, unsigned rounds)
{
	static struct roost_kv_op ops[OPS];
	static struct text text[OPS];
	uint8_t buf[BATCH];
	struct kvwire_writer w;
	struct rng rng;

	rng_seed(&rng, SEED);
	open_rig(sp);
	for (unsigned round = 0; round < rounds; round++) {
		/* Expected values are those before the batch, so some are stale, as intended. */
		uint32_t space = rng_below(&rng, 4) ? 8000 : 300;
		struct rig_reply a;
		unsigned n = 0;

		kvwire_begin(&w, buf, sizeof(buf));
		do {
			random_op(&rng, &ops[n], &text[n]);
		} while (kvwire_add(&w, &ops[n]) && ++n < OPS);
		a = call(buf, kvwire_finish(&w, 0), space);
		judge_reply(&a, ops, text, n);
	}
	rig_close(r);
}

/*
 * Calls of one operation that arrive together. Their keys differ, so that any order is right. Some
 * replies have no space for the value.
 */
static void calls_of_a_burst(void **state)
{
	static struct roost_kv_op ops[RIG_SLOTS];
	static struct text text[RIG_SLOTS];
	uint8_t buf[BATCH];
	struct kvwire_writer w;
	uint32_t space[RIG_SLOTS];
	struct rng rng;

	rng_seed(&rng, SEED);
	open_rig(&(struct sim_params){.delay_ns = 1000});
	for (unsigned round = 0; round < 2000; round++) {
		bool taken[KEYS] = {false};
		unsigned n = 0;

		for (unsigned i = 0; i < KEYS; i++) {
			struct roost_rpc_head head;

			random_op(&rng, &ops[n], &text[n]);
			if (taken[text[n].k])
				continue;
			taken[text[n].k] = true;
			space[n] = rng_below(&rng, 4) ? 600 : 32;
			kvwire_begin(&w, buf, sizeof(buf));
			assert_true(kvwire_add(&w, &ops[n]));
			memset(r->caller[0].mem + n * RIG_REPLY + space[n], 0, 8);
			head = rig_head(r, 0, n, space[n], 0);
			rig_post_head(r, 0, n, ROOST_KV_OP, &head, buf,
				      (uint32_t)kvwire_finish(&w, 0));
			n++;
		}
		for (unsigned i = 0; i < n; i++) {
			struct rig_reply a = rig_wait(r, 0, i, space[i]);

			judge_reply(&a, &ops[i], &text[i], 1);
		}
		rig_reap(r);
	}
	rig_close(r);
}

static void as_the_model(void **state)
{
	batches(&(struct sim_params){.delay_ns = 1000}, 3000);
}

/* A retransmitted batch that was executed twice would differ from the model. */
static void once_over_a_bad_link(void **state)
{
	batches(&(struct sim_params){.loss = 0.05, .dup = 0.05, .delay_ns = 1000}, 1500);
}

static int one(struct roost_kv_op *op, unsigned flags, uint32_t space, uint8_t *out)
{
	static uint8_t buf[BATCH];
	struct kvwire_writer w;
	struct kvwire_results results;
	struct kvwire_result got;
	struct rig_reply a;

	kvwire_begin(&w, buf, sizeof(buf));
	assert_true(kvwire_add(&w, op));
	a = call(buf, kvwire_finish(&w, flags), space);
	assert_int_equal(a.status, ROOST_RPC_OK);
	assert_int_equal(kvwire_reply_open(&results, a.data, a.len), 0);
	assert_int_equal(kvwire_reply_next(&results, &got), 1);
	op->out_len = got.len;
	if (got.data)
		memcpy(out, got.data, got.len);
	return got.cut ? -EMSGSIZE : got.status;
}

/* A value that is longer than a packet comes as payload, and returns in pieces. */
static void long_values(void **state)
{
	static uint8_t out[1 << 18];
	uint32_t len = 200000;
	uint8_t *batch, *value = malloc(len);
	struct roost_kv_op put = {.code = ROOST_KV_PUT,
				  .key = "long",
				  .key_len = 4,
				  .value = value,
				  .value_len = len};
	struct roost_kv_op get = {.code = ROOST_KV_GET, .key = "long", .key_len = 4};
	struct kvwire_writer w;
	struct rig_reply a;
	uint32_t size;

	assert_non_null(value);
	for (uint32_t i = 0; i < len; i++)
		value[i] = (uint8_t)(i * 7 + i / 256);
	open_rig(&(struct sim_params){.loss = 0.02, .delay_ns = 1000});
	batch = r->caller[0].mem + RIG_PAYLOAD;
	kvwire_begin(&w, batch, RIG_MEM - RIG_PAYLOAD);
	assert_true(kvwire_add(&w, &put));
	size = (uint32_t)kvwire_finish(&w, 0);
	rig_post(r, 0, 0, ROOST_KV_OP, NULL, 0, 1000, ROOST_RPC_STREAM);
	rig_post_payload(r, 0, ROOST_KV_OP, size);
	a = rig_wait(r, 0, 0, 1000);
	assert_int_equal(a.status, ROOST_RPC_OK);
	assert_int_equal(a.len, KVWIRE_HEAD + 1);
	assert_int_equal(one(&get, 0, 8000, out), -EMSGSIZE);
	assert_int_equal(get.out_len, len);
	assert_int_equal(one(&get, KVWIRE_LONG, 8000, out), -EMSGSIZE);
	assert_int_equal(one(&get, KVWIRE_LONG, len + 16, out), 0);
	assert_int_equal(get.out_len, len);
	assert_memory_equal(out, value, len);
	free(value);
	rig_close(r);
}

/* Invalid batches: no operation is executed, or those before the error. */
static void nonsense(void **state)
{
	static const uint8_t other[] = {KVWIRE_VERSION - 1, 0, 0, 0};
	static const uint8_t beyond[] = {
		KVWIRE_VERSION, 0, 3, 0, 1, 1, 1, 'a', 'x', 0, 9, 'b', 0, 1, 'a'};
	static const uint8_t many[] = {KVWIRE_VERSION, 0, 0xff, 0xff};
	struct kvwire_results results;
	struct kvwire_result got;
	uint8_t out[16];
	struct roost_kv_op get = {.code = ROOST_KV_GET, .key = "a", .key_len = 1};
	struct roost_kv_op update = {.code = ROOST_KV_UPDATE, .key = "a", .key_len = 1};
	struct rig_reply a;

	open_rig(&(struct sim_params){0});
	assert_int_equal(call(other, sizeof(other), 100).status, ROOST_RPC_BAD_PARAMS);
	assert_int_equal(call(other, 3, 100).status, ROOST_RPC_BAD_PARAMS);
	assert_int_equal(one(&get, 0, 100, out), -ENOENT);
	a = call(beyond, sizeof(beyond), 100);
	assert_int_equal(a.status, ROOST_RPC_OK);
	assert_int_equal(kvwire_reply_open(&results, a.data, a.len), 0);
	assert_int_equal(results.flags, KVWIRE_BROKEN);
	assert_int_equal(kvwire_reply_next(&results, &got), 1);
	assert_int_equal(got.status, 0);
	assert_int_equal(kvwire_reply_next(&results, &got), 0);
	assert_int_equal(one(&get, 0, 100, out), 0);
	assert_int_equal(one(&update, 0, 100, out), -EINVAL);
	a = call(beyond, sizeof(beyond), 15);
	assert_int_equal(a.status, ROOST_RPC_TOO_LONG);
	assert_int_equal(a.len, 16);
	assert_int_equal(call(many, sizeof(many), 8000).status, ROOST_RPC_TOO_LONG);
	/* Space for the results, which the node does not have. */
	assert_int_equal(call(many, sizeof(many), 300000).status, ROOST_RPC_BAD_PARAMS);
	rig_close(r);
}

/* A scan in small replies visits each pair. */
static void scans(void **state)
{
	static uint8_t out[8192];
	struct roost_kv_op scan = {.code = ROOST_KV_SCAN}, unknown = scan;
	bool seen[500] = {false};
	unsigned count = 0, calls = 0;
	char key[8], value[8];

	open_rig(&(struct sim_params){0});
	for (unsigned i = 0; i < 500; i++) {
		struct roost_kv_op put = {.code = ROOST_KV_PUT, .key = key, .value = value};

		put.key_len = (uint32_t)snprintf(key, sizeof(key), "%u", i);
		put.value_len = (uint32_t)snprintf(value, sizeof(value), "v%u", i);
		assert_int_equal(one(&put, 0, 100, out), 0);
	}
	unknown.function = ROOST_KV_SCAN_STRAY + 1;
	assert_int_equal(one(&unknown, 0, 100, out), -EINVAL);
	do {
		struct roost_kv_pair pair;
		size_t at = 8, len;

		assert_int_equal(one(&scan, 0, 600, out), 0);
		while ((len = kvwire_get_pair(out + at, scan.out_len - at, &pair)) != 0) {
			int number;

			memcpy(key, pair.key, pair.key_len);
			key[pair.key_len] = '\0';
			number = atoi(key);
			assert_int_equal(pair.value_len, pair.key_len + 1);
			assert_memory_equal(pair.value + 1, pair.key, pair.key_len);
			count += !seen[number];
			seen[number] = true;
			at += len;
		}
		assert_int_equal(at, scan.out_len);
		memcpy(&scan.cursor, out, 8);
		calls++;
	} while (scan.cursor);
	assert_int_equal(count, 500);
	assert_true(calls > 5);
	rig_close(r);
}

/* A node refuses the operations of a move that has written another version than the node has. */
static void a_move_has_the_version_of_the_table(void **state)
{
	static struct kv_table t = {.version = 7,
				    .partitions = 1,
				    .nodes = 2,
				    .node = {{"a", 1}, {"b", 1}},
				    .from = {1}};
	struct roost_kv_op get = {.code = ROOST_KV_GET, .key = "k", .key_len = 1};
	struct roost_kv_op put = {.code = ROOST_KV_MOVE_PUT,
				  .key = "k",
				  .key_len = 1,
				  .value = "v",
				  .value_len = 1,
				  .cursor = 6};
	struct roost_kv_op remove = {.code = ROOST_KV_MOVE_DELETE, .key = "k", .key_len = 1};
	static struct roost_kv_config config;
	struct kv_store *store;
	uint8_t out[16];

	assert_int_equal(kv_store_open(NULL, NULL, &store), 0);
	config.store = store;
	rig_open(r, SEED, &(struct rig_shape){0});
	assert_int_equal(runtime_deploy(r->f, kernels_builtin("kv"), &config), 0);
	/* The partition comes from another node. */
	assert_int_equal(kv_store_set_table(store, &t, "a", 1), 0);
	assert_int_equal(one(&put, 0, 100, out), -EREMCHG);
	put.cursor = 8;
	assert_int_equal(one(&put, 0, 100, out), -EREMCHG);
	put.cursor = 7;
	assert_int_equal(one(&put, 0, 100, out), 0);
	assert_int_equal(one(&get, 0, 100, out), -EREMCHG);
	/* The other node has it. */
	t.version = 8;
	t.from[0] = KV_TABLE_NOBODY;
	t.owner[0] = 1;
	assert_int_equal(kv_store_set_table(store, &t, "a", 1), 0);
	assert_int_equal(one(&put, 0, 100, out), -EREMCHG);
	remove.cursor = 7;
	assert_int_equal(one(&remove, 0, 100, out), -EREMCHG);
	remove.cursor = 8;
	assert_int_equal(one(&remove, 0, 100, out), 0);
	assert_int_equal(one(&remove, 0, 100, out), -ENOENT);
	rig_close(r);
	kv_store_close(store);
}

/* Updates, reduce and filter in one batch, and their errors beside the others' results. */
static void vectors(void **state)
{
	static const uint32_t vector[] = {1, 2, 0xffffffff}, ten = 10, zero = 0;
	static const uint32_t after[] = {11, 12, 9}, sum = 32, big[] = {11, 12};
	static const struct {
		uint8_t code, function, type;
		bool fetch;
		const uint32_t *value;
		uint32_t value_len;
		int status;
		const void *data;
		uint32_t len;
	} rows[] = {
		{ROOST_KV_PUT, 0, 0, false, vector, 12, 0, NULL, 0},
		{ROOST_KV_UPDATE_EACH, ROOST_KV_ADD, ROOST_KV_U32, true, &ten, 4, 0, vector, 12},
		{ROOST_KV_UPDATE, ROOST_KV_ADD, ROOST_KV_U32, false, &ten, 4, -ERANGE, NULL, 0},
		{ROOST_KV_GET, 0, 0, false, NULL, 0, 0, after, 12},
		{ROOST_KV_REDUCE, ROOST_KV_ADD, ROOST_KV_U32, false, &zero, 4, 0, &sum, 4},
		{ROOST_KV_REDUCE, ROOST_KV_EQ, ROOST_KV_U32, false, &zero, 4, -EINVAL, NULL, 0},
		{ROOST_KV_FILTER, ROOST_KV_GT, ROOST_KV_U32, false, &ten, 4, 0, big, 8},
		{ROOST_KV_UPDATE_VECTOR, ROOST_KV_SUB, ROOST_KV_U32, false, vector, 12, 0, NULL, 0},
		{ROOST_KV_UPDATE_VECTOR, ROOST_KV_SUB, ROOST_KV_U32, false, vector, 8, -ERANGE,
		 NULL, 0},
		{ROOST_KV_FILTER, ROOST_KV_GT, ROOST_KV_TYPES, false, &ten, 4, -EINVAL, NULL, 0},
		{ROOST_KV_UPDATE_EACH, ROOST_KV_FUNCTIONS, ROOST_KV_U32, false, &ten, 4, -EINVAL,
		 NULL, 0},
	};
	uint8_t batch[512];
	struct kvwire_writer w;
	struct kvwire_results results;
	struct kvwire_result got;
	struct rig_reply reply;

	open_rig(&(struct sim_params){0});
	kvwire_begin(&w, batch, sizeof(batch));
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct roost_kv_op op = {.code = rows[i].code,
					 .function = rows[i].function,
					 .type = rows[i].type,
					 .fetch = rows[i].fetch,
					 .key = "vector",
					 .key_len = 6,
					 .value = rows[i].value,
					 .value_len = rows[i].value_len};

		assert_true(kvwire_add(&w, &op));
	}
	reply = call(batch, kvwire_finish(&w, 0), 1024);
	assert_int_equal(reply.status, ROOST_RPC_OK);
	assert_int_equal(kvwire_reply_open(&results, reply.data, reply.len), 0);
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		assert_int_equal(kvwire_reply_next(&results, &got), 1);
		assert_int_equal(got.status, rows[i].status);
		assert_int_equal(got.data != NULL, rows[i].data != NULL);
		if (!got.data)
			continue;
		assert_int_equal(got.len, rows[i].len);
		assert_memory_equal(got.data, rows[i].data, got.len);
	}
	rig_close(r);
}

#define LONG_VALUES 4u

/* Opens a node with a store that has LONG_VALUES values of a MiB, and a short one. */
static struct kv_store *open_long(void)
{
	static const struct roost_kv_config large = {.size = 64u << 20};
	static struct roost_kv_config config;
	struct kv_store *store;
	uint8_t *value = calloc(1, KV_VALUE_MAX);

	assert_non_null(value);
	assert_int_equal(kv_store_open(&large, NULL, &store), 0);
	for (unsigned i = 0; i <= LONG_VALUES; i++) {
		char key[4];
		struct kv_op put = {.code = KV_PUT,
				    .key = key,
				    .key_len = (uint32_t)snprintf(key, sizeof(key), "v%u", i),
				    .value = value,
				    .value_len = i < LONG_VALUES ? KV_VALUE_MAX : 4};

		kv_run(store->kv, &put, 1);
		assert_int_equal(put.status, 0);
	}
	free(value);
	config.store = store;
	rig_open(r, SEED, &(struct rig_shape){0});
	assert_int_equal(runtime_deploy(r->f, kernels_builtin("kv"), &config), 0);
	return store;
}

/* Runs a batch. Counts the steps of the kernel, and the turns of both NICs until the reply. */
static struct rig_reply call_counted(const void *batch, size_t len, uint64_t *steps,
				     unsigned *turns)
{
	struct roost_rpc_head head = rig_head(r, 0, 0, 4096, 0);
	uint64_t before = rig_counters(r).steps;
	struct rig_reply reply;

	*turns = 0;
	memset(r->caller[0].mem + 4096, 0, 8);
	rig_post_head(r, 0, 0, ROOST_KV_OP, &head, batch, (uint32_t)len);
	while (!rig_poll(r, 0, 0, 4096, &reply)) {
		assert_true(rig_step(r));
		++*turns;
	}
	rig_reap(r);
	*steps = rig_counters(r).steps - before;
	return reply;
}

/*
 * A step ends after 256 KiB of values, also within an operation, so 32 operations on values of a
 * MiB are 128 steps. The bytes are charged to the turn, so that these are in different turns, at
 * most two in one: the first of which may be the turn of the packet.
 */
static void long_values_take_turns(void **state)
{
	static const uint32_t zero;
	static const struct {
		uint8_t code, function;
		const void *value;
		uint32_t value_len;
		int status;
	} rows[] = {
		{ROOST_KV_TOUCH, 0, NULL, 0, 0},
		{ROOST_KV_UPDATE_EACH, ROOST_KV_ADD, &zero, 4, 0},
		{ROOST_KV_REDUCE, ROOST_KV_ADD, &zero, 4, 0},
		{ROOST_KV_FILTER, ROOST_KV_GT, &zero, 4, 0},
	};
	struct kv_store *store = open_long();

	for (size_t row = 0; row < ARRAY_SIZE(rows); row++) {
		struct kvwire_results results;
		struct kvwire_result got;
		struct kvwire_writer w;
		uint8_t batch[BATCH];
		struct rig_reply reply;
		uint64_t steps;
		unsigned turns;

		for (unsigned small = 0; small < 2; small++) {
			kvwire_begin(&w, batch, sizeof(batch));
			for (unsigned i = 0; i < 32; i++) {
				char key[4];
				struct roost_kv_op op = {.code = rows[row].code,
							 .function = rows[row].function,
							 .type = ROOST_KV_U32,
							 .key = key,
							 .value = rows[row].value,
							 .value_len = rows[row].value_len};

				op.key_len =
					(uint32_t)snprintf(key, sizeof(key), "v%u",
							   small ? LONG_VALUES : i % LONG_VALUES);
				assert_true(kvwire_add(&w, &op));
			}
			reply = call_counted(batch, kvwire_finish(&w, 0), &steps, &turns);
			assert_int_equal(reply.status, ROOST_RPC_OK);
			assert_int_equal(kvwire_reply_open(&results, reply.data, reply.len), 0);
			for (unsigned i = 0; i < 32; i++) {
				assert_int_equal(kvwire_reply_next(&results, &got), 1);
				assert_int_equal(got.status, rows[row].status);
			}
			if (small) {
				assert_true(steps <= 2);
			} else {
				assert_true(steps >= 128);
				assert_true(turns >= 64);
			}
		}
	}
	rig_close(r);
	kv_store_close(store);
}

/* The rest of a group, which runs in later steps, keeps the order of operations on one key. */
static void a_divided_group_keeps_its_order(void **state)
{
	static const uint32_t one_more = 1;
	struct kv_store *store = open_long();
	struct kvwire_results results;
	struct kvwire_result got;
	struct kvwire_writer w;
	uint8_t batch[BATCH];
	struct rig_reply reply;
	uint64_t steps;
	unsigned turns;

	kvwire_begin(&w, batch, sizeof(batch));
	for (uint32_t i = 0; i < 8; i++) {
		struct roost_kv_op put = {.code = ROOST_KV_PUT,
					  .key = "s",
					  .key_len = 1,
					  .value = &i,
					  .value_len = 4};
		struct roost_kv_op each = {.code = ROOST_KV_UPDATE_EACH,
					   .function = ROOST_KV_ADD,
					   .type = ROOST_KV_U32,
					   .key = "v0",
					   .key_len = 2,
					   .value = &one_more,
					   .value_len = 4};
		struct roost_kv_op sum = {.code = ROOST_KV_REDUCE,
					  .function = ROOST_KV_ADD,
					  .type = ROOST_KV_U32,
					  .key = "v0",
					  .key_len = 2,
					  .value = &i,
					  .value_len = 4};
		struct roost_kv_op get = {.code = ROOST_KV_GET, .key = "s", .key_len = 1};

		assert_true(kvwire_add(&w, &put) && kvwire_add(&w, &each) && kvwire_add(&w, &sum) &&
			    kvwire_add(&w, &get));
	}
	reply = call_counted(batch, kvwire_finish(&w, 0), &steps, &turns);
	assert_int_equal(reply.status, ROOST_RPC_OK);
	assert_true(steps >= 16);
	assert_int_equal(kvwire_reply_open(&results, reply.data, reply.len), 0);
	for (uint32_t i = 0; i < 8; i++) {
		uint32_t sum = i + (i + 1) * (KV_VALUE_MAX / 4);

		for (unsigned k = 0; k < 4; k++) {
			assert_int_equal(kvwire_reply_next(&results, &got), 1);
			assert_int_equal(got.status, 0);
			if (k < 2)
				continue;
			assert_int_equal(got.len, 4);
			assert_memory_equal(got.data, k == 2 ? &sum : &i, 4);
		}
	}
	rig_close(r);
	kv_store_close(store);
}

/*
 * A connection ends while a part of a group waits for the call's next step. The part is freed (the
 * build with ASan checks that), and other connections are served.
 */
static void a_connection_ends_within_a_group(void **state)
{
	struct nic_qp_attr err = {.state = NIC_QPS_ERR};

	for (unsigned steps = 1; steps < 32; steps += 6) {
		struct kv_store *store = open_long();
		uint64_t before = rig_counters(r).steps;
		struct roost_kv_op op = {.code = ROOST_KV_TOUCH, .key = "v0", .key_len = 2};
		struct roost_rpc_head head = rig_head(r, 0, 0, 4096, 0);
		uint8_t batch[BATCH];
		struct kvwire_results results;
		struct kvwire_result got;
		struct kvwire_writer w;
		struct rig_reply reply;

		kvwire_begin(&w, batch, sizeof(batch));
		for (unsigned i = 0; i < 32; i++)
			assert_true(kvwire_add(&w, &op));
		rig_post_head(r, 0, 0, ROOST_KV_OP, &head, batch, (uint32_t)kvwire_finish(&w, 0));
		while (rig_counters(r).steps - before < steps)
			assert_true(rig_step(r));
		assert_int_equal(ep_modify(&r->node[0], &err, NIC_QPA_STATE), 0);
		assert_int_equal(rig_counters(r).dropped, 1);

		op = (struct roost_kv_op){.code = ROOST_KV_GET, .key = "v4", .key_len = 2};
		kvwire_begin(&w, batch, sizeof(batch));
		assert_true(kvwire_add(&w, &op));
		rig_post(r, 1, 0, ROOST_KV_OP, batch, (uint32_t)kvwire_finish(&w, 0), 4096, 0);
		reply = rig_wait(r, 1, 0, 4096);
		assert_int_equal(reply.status, ROOST_RPC_OK);
		assert_int_equal(kvwire_reply_open(&results, reply.data, reply.len), 0);
		assert_int_equal(kvwire_reply_next(&results, &got), 1);
		assert_int_equal(got.status, 0);
		assert_int_equal(got.len, 4);
		rig_close(r);
		kv_store_close(store);
	}
}

/*
 * The payload of a batch is taken at once, however many turns its operations take. With an RNR NAK
 * the peer would send it again after the RNR timer: 0.66 s in a connection by rdma_cm.
 */
static void payload_does_not_wait_for_operations(void **state)
{
	struct kv_store *store = open_long();
	uint8_t *batch = r->caller[0].mem + RIG_PAYLOAD;
	struct kvwire_results results;
	struct kvwire_result got;
	struct kvwire_writer w;
	struct rig_reply reply;
	uint64_t steps = rig_counters(r).steps;

	kvwire_begin(&w, batch, BATCH);
	for (unsigned i = 0; i < 32; i++) {
		char key[4];
		struct roost_kv_op op = {.code = ROOST_KV_TOUCH, .key = key};

		op.key_len = (uint32_t)snprintf(key, sizeof(key), "v%u", i % LONG_VALUES);
		assert_true(kvwire_add(&w, &op));
	}
	rig_post(r, 0, 0, ROOST_KV_OP, NULL, 0, 4096, ROOST_RPC_STREAM);
	rig_post_payload(r, 0, ROOST_KV_OP, (uint32_t)kvwire_finish(&w, 0));
	reply = rig_wait(r, 0, 0, 4096);
	assert_int_equal(reply.status, ROOST_RPC_OK);
	assert_int_equal(kvwire_reply_open(&results, reply.data, reply.len), 0);
	for (unsigned i = 0; i < 32; i++) {
		assert_int_equal(kvwire_reply_next(&results, &got), 1);
		assert_int_equal(got.status, 0);
	}
	assert_true(rig_counters(r).steps - steps >= 32);
	assert_int_equal(rig_counters(r).refused, 0);
	rig_close(r);
	kv_store_close(store);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(as_the_model),
		cmocka_unit_test(calls_of_a_burst),
		cmocka_unit_test(once_over_a_bad_link),
		cmocka_unit_test(long_values),
		cmocka_unit_test(nonsense),
		cmocka_unit_test(scans),
		cmocka_unit_test(vectors),
		cmocka_unit_test(long_values_take_turns),
		cmocka_unit_test(payload_does_not_wait_for_operations),
		cmocka_unit_test(a_divided_group_keeps_its_order),
		cmocka_unit_test(a_connection_ends_within_a_group),
		cmocka_unit_test(a_move_has_the_version_of_the_table),
	};

	printf("seed %d\n", SEED);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
