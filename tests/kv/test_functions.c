/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Registered functions from a shared object: they work like the built-in ones, and one that crashes
 * or does not return ends its own operation, is disabled, and leaves the value unchanged.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "../common/handlers.h"
#include "kernels/object.h"
#include "kv/functions.h"

#define LARGE 100000u /* two extents */

struct rig {
	struct kv *kv;
	struct object object;
	pthread_t watchdog;
	_Atomic bool stop;
};

static uint8_t value[LARGE], out[LARGE];

static void *watch(void *arg)
{
	static const struct watchdog_limits limits = {
		.checks = 2, .cpu_ns = 5000000, .checks_asleep = 100};
	struct rig *r = arg;

	while (!r->stop) {
		guard_check(kv_guard(r->kv), &limits);
		usleep(5000);
	}
	return NULL;
}

static int group_setup(void **state)
{
	if (guard_init())
		return -1;
	keep_handlers();
	return 0;
}

static int make(void **state)
{
	struct kv_config c = {.size = 8u << 20, .inline_max = 40};
	static struct rig rig;
	char why[200] = "";
	struct rig *r = &rig;

	memset(r, 0, sizeof(*r));
	assert_int_equal(kv_open(&c, &r->kv), 0);
	assert_null(kv_guard(r->kv));
	assert_int_equal(kv_function(r->kv, "scale"), -ENOENT);
	assert_int_equal(
		object_open_functions(OBJECTS "/functions.so", &r->object, why, sizeof(why)), 0);
	for (unsigned i = 0; i < r->object.functions->num; i++)
		assert_int_equal(kv_register(r->kv, &r->object.functions->list[i]),
				 KV_FN_REGISTERED + i);
	assert_int_equal(pthread_create(&r->watchdog, NULL, watch, r), 0);
	*state = r;
	return 0;
}

static int drop(void **state)
{
	struct rig *r = *state;

	r->stop = true;
	pthread_join(r->watchdog, NULL);
	kv_close(r->kv);
	object_close(&r->object);
	return 0;
}

static int run(struct rig *r, struct kv_op op)
{
	op.key = "key";
	op.key_len = 3;
	op.out = out;
	op.out_cap = sizeof(out);
	kv_run(r->kv, &op, 1);
	return op.status ? op.status : (int)op.out_len;
}

static void put(struct rig *r, const void *data, uint32_t len)
{
	assert_int_equal(run(r, (struct kv_op){.code = KV_PUT, .value = data, .value_len = len}),
			 0);
}

static struct kv_op with(struct rig *r, uint8_t code, const char *name, uint8_t type,
			 const void *operands, uint32_t len)
{
	return (struct kv_op){.code = code,
			      .type = type,
			      .fn = (uint16_t)kv_function(r->kv, name),
			      .value = operands,
			      .value_len = len};
}

/* In a bucket, in a record, and in extents. */
static void updates(void **state)
{
	static const uint32_t lengths[] = {8, 16, 64, 800, LARGE};
	static double v[LARGE / 8], by[LARGE / 8];
	double add = 0.5;
	struct rig *r = *state;

	for (unsigned k = 0; k < sizeof(lengths) / sizeof(lengths[0]); k++) {
		uint32_t n = lengths[k] / 8;
		struct kv_op op;

		for (uint32_t i = 0; i < n; i++) {
			v[i] = i;
			by[i] = 2 + i % 3;
		}
		put(r, v, lengths[k]);
		op = with(r, KV_UPDATE_VECTOR, "scale", KV_DOUBLE, by, lengths[k]);
		op.fetch = true;
		assert_int_equal(run(r, op), lengths[k]);
		assert_memory_equal(out, v, lengths[k]);
		op = with(r, KV_UPDATE_EACH, "scale", KV_DOUBLE, by, 8);
		op.param = &add;
		op.param_len = 8;
		assert_int_equal(run(r, op), 0);
		assert_int_equal(run(r, (struct kv_op){.code = KV_GET}), lengths[k]);
		for (uint32_t i = 0; i < n; i++)
			v[i] = v[i] * by[i] * by[0] + add;
		assert_memory_equal(out, v, lengths[k]);
	}
}

/* An update of an empty vector has no operands, and none are read. */
static void an_empty_vector(void **state)
{
	struct rig *r = *state;

	put(r, "", 0);
	assert_int_equal(run(r, with(r, KV_UPDATE_VECTOR, "scale", KV_DOUBLE, NULL, 0)), 0);
	assert_int_equal(run(r, (struct kv_op){.code = KV_GET}), 0);
}

static void reduce_and_filter(void **state)
{
	int32_t numbers[] = {1, -2, 3, 4}, initial = 100, sum;
	uint16_t shorts[] = {1, 2, 3, 4, 6, 9}, by = 3, expected[] = {3, 6, 9};
	struct rig *r = *state;

	put(r, numbers, sizeof(numbers));
	assert_int_equal(run(r, with(r, KV_REDUCE, "squares", KV_I32, &initial, 4)), 4);
	memcpy(&sum, out, 4);
	assert_int_equal(sum, 130);
	put(r, shorts, sizeof(shorts));
	assert_int_equal(run(r, with(r, KV_FILTER, "multiples", KV_U16, &by, 2)), 6);
	assert_memory_equal(out, expected, 6);
	assert_int_equal(run(r, (struct kv_op){.code = KV_GET}), sizeof(shorts));
	assert_memory_equal(out, shorts, sizeof(shorts));
	/* A wrong type, the wrong kind, no such function. */
	assert_int_equal(run(r, with(r, KV_FILTER, "multiples", KV_I16, &by, 2)), -EINVAL);
	assert_int_equal(run(r, with(r, KV_REDUCE, "multiples", KV_U16, &by, 2)), -EINVAL);
	assert_int_equal(run(r, with(r, KV_REDUCE, "none", KV_U16, &by, 2)), -EINVAL);
}

/*
 * A step ends after 256 KiB, also if the results have no space: four of these operations, each of
 * which takes as long as a copy of 64 KiB.
 */
static void steps_are_bounded(void **state)
{
	struct rig *r = *state;
	uint16_t by = 1;
	struct kv_op ops[16];

	for (unsigned space = 0; space < 2; space++) {
		unsigned steps = 1;
		bool done;

		put(r, value, 8192);
		for (unsigned i = 0; i < 16; i++) {
			ops[i] = with(r, KV_FILTER, "multiples", KV_U16, &by, 2);
			ops[i].key = "key";
			ops[i].key_len = 3;
			ops[i].out = out;
			ops[i].out_cap = space ? sizeof(out) : 0;
		}
		for (done = kv_run_some(r->kv, ops, 16); !done; steps++)
			done = kv_run_on(r->kv, ops, 16);
		for (unsigned i = 0; i < 16; i++)
			assert_int_equal(ops[i].status, space ? 0 : -EMSGSIZE);
		assert_int_equal(steps, 4);
	}
}

/* A clock that only the following functions move on: 1 us for each element. */
static struct {
	uint64_t ns;
	unsigned calls;
	size_t most; /* elements of a call */
} slow;

static uint64_t slow_clock(void *ctx)
{
	return slow.ns;
}

static void take_time(const struct roost_kv_call *c)
{
	slow.ns += c->num * 1000;
	slow.calls++;
	if (c->num > slow.most)
		slow.most = c->num;
	assert_int_equal((uintptr_t)c->elements % 8, 0);
}

static void slow_add(const struct roost_kv_call *c)
{
	const uint8_t *by = c->operands;
	uint8_t *v = c->elements;

	for (size_t i = 0; i < c->num; i++)
		v[i] = (uint8_t)(v[i] + by[c->num_operands == 1 ? 0 : i]);
	take_time(c);
}

static void slow_sum(const struct roost_kv_call *c)
{
	const uint8_t *v = c->elements;
	uint8_t *acc = c->acc;

	for (size_t i = 0; i < c->num; i++)
		*acc = (uint8_t)(*acc + v[i]);
	take_time(c);
}

static size_t slow_above(const struct roost_kv_call *c)
{
	const uint8_t *than = c->operands;
	uint8_t *v = c->elements;
	size_t n = 0;

	for (size_t i = 0; i < c->num; i++)
		if (v[i] > *than)
			v[n++] = v[i];
	take_time(c);
	return n;
}

static const struct roost_kv_function slow_functions[] = {
	{.name = "add", .type = ROOST_KV_U8, .update = slow_add},
	{.name = "sum", .type = ROOST_KV_U8, .reduce = slow_sum},
	{.name = "above", .type = ROOST_KV_U8, .filter = slow_above},
	{.name = "whole", .type = ROOST_KV_U8, .reduce = slow_sum, .whole = true},
};

static void register_slow(struct rig *r)
{
	for (unsigned i = 0; i < sizeof(slow_functions) / sizeof(slow_functions[0]); i++)
		assert_in_range(kv_register(r->kv, &slow_functions[i]), KV_FN_REGISTERED, 1000);
	kv_set_clock(r->kv, slow_clock, NULL);
	memset(&slow, 0, sizeof(slow));
}

/* Runs an operation in steps. Returns its status or length. *longest: time of the longest step. */
static int run_in_steps(struct rig *r, struct kv_op op, uint64_t *longest)
{
	uint64_t began = slow.ns;
	bool done;

	op.key = "key";
	op.key_len = 3;
	op.out = out;
	op.out_cap = sizeof(out);
	*longest = 0;
	for (done = kv_run_some(r->kv, &op, 1);; done = kv_run_on(r->kv, &op, 1)) {
		if (slow.ns - began > *longest)
			*longest = slow.ns - began;
		began = slow.ns;
		if (done)
			break;
	}
	return op.status ? op.status : (int)op.out_len;
}

/*
 * A step takes as long as a copy of 256 KiB, 26 us, and a piece more. The first calls have 64
 * elements, because the time of an element is not known.
 */
static void steps_are_bounded_by_time(void **state)
{
	static uint8_t expected[LARGE], by[LARGE], sum;
	static const uint32_t lengths[] = {1000, 60000, LARGE}; /* in records and in extents */
	struct rig *r = *state;
	uint8_t one = 1, than = 200;
	uint64_t longest;

	register_slow(r);
	for (unsigned k = 0; k < sizeof(lengths) / sizeof(lengths[0]); k++) {
		uint32_t len = lengths[k], above = 0;
		struct kv_op op;

		sum = one;
		for (uint32_t i = 0; i < len; i++) {
			value[i] = (uint8_t)(i * 7 + i / 256);
			by[i] = (uint8_t)(i * 3);
			sum = (uint8_t)(sum + value[i]);
		}
		put(r, value, len);
		assert_int_equal(
			run_in_steps(r, with(r, KV_REDUCE, "sum", KV_U8, &one, 1), &longest), 1);
		assert_int_equal(out[0], sum);
		assert_in_range(longest, 20000, k ? 40000 : 80000);
		for (uint32_t i = 0; i < len; i++)
			if (value[i] > than)
				expected[above++] = value[i];
		assert_int_equal(
			run_in_steps(r, with(r, KV_FILTER, "above", KV_U8, &than, 1), &longest),
			above);
		assert_memory_equal(out, expected, above);
		assert_in_range(longest, 20000, k ? 40000 : 80000);
		op = with(r, KV_UPDATE_VECTOR, "add", KV_U8, by, len);
		op.fetch = true;
		assert_int_equal(run_in_steps(r, op, &longest), len);
		assert_memory_equal(out, value, len);
		assert_in_range(longest, 20000, k ? 40000 : 80000);
		assert_int_equal(
			run_in_steps(r, with(r, KV_UPDATE_EACH, "add", KV_U8, &one, 1), &longest),
			0);
		assert_in_range(longest, 20000, 40000);
		assert_int_equal(run(r, (struct kv_op){.code = KV_GET}), len);
		for (uint32_t i = 0; i < len; i++)
			expected[i] = (uint8_t)(value[i] + by[i] + 1);
		assert_memory_equal(out, expected, len);
	}
	assert_int_equal(slow.most, 64);
	assert_null(kv_check(r->kv));
}

/* A function on whole values has one call, and the step ends after it. */
static void whole_values_are_charged_by_time(void **state)
{
	struct rig *r = *state;
	struct kv_op ops[4];
	uint8_t one = 1;
	unsigned steps = 1;
	bool done;

	register_slow(r);
	put(r, value, LARGE);
	for (unsigned i = 0; i < 4; i++) {
		ops[i] = with(r, KV_REDUCE, "whole", KV_U8, &one, 1);
		ops[i].key = "key";
		ops[i].key_len = 3;
		ops[i].out = out;
		ops[i].out_cap = 1;
	}
	for (done = kv_run_some(r->kv, ops, 4); !done; steps++)
		done = kv_run_on(r->kv, ops, 4);
	assert_int_equal(steps, 4);
	assert_int_equal(slow.calls, 4);
	assert_int_equal(slow.most, LARGE);
	assert_in_range(kv_bytes(r->kv), 4 * 10ull * LARGE * 1000, 5 * 10ull * LARGE * 1000);
}

static void check_fault(struct rig *r, uint8_t code, const char *name, int status)
{
	uint8_t one = 1;

	for (unsigned i = 0; i < sizeof(value); i++)
		value[i] = (uint8_t)(i * 3);
	put(r, value, sizeof(value));
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(run(r, with(r, code, name, KV_U8, &one, 1)), status);
	assert_int_equal(run(r, (struct kv_op){.code = KV_GET}), sizeof(value));
	assert_memory_equal(out, value, sizeof(value));
}

static void faults(void **state)
{
	struct rig *r = *state;
	uint64_t longest;
	uint8_t one = 1;

	take_back_handlers();
	check_fault(r, KV_UPDATE_EACH, "crash", -EFAULT);
	check_fault(r, KV_UPDATE_EACH, "spin", -ETIME);
	check_fault(r, KV_FILTER, "too many", -EFAULT);
	assert_int_equal(
		run_in_steps(r, with(r, KV_UPDATE_EACH, "crash later", KV_U8, &one, 1), &longest),
		-EFAULT);
	assert_int_equal(run(r, (struct kv_op){.code = KV_GET}), sizeof(value));
	assert_memory_equal(out, value, sizeof(value));
	reduce_and_filter(state);
	assert_null(kv_check(r->kv));
}

/* As in a kernel that uses the store: its guard has a step that continues. */
static void a_fault_within_a_step(void **state)
{
	struct rig *r = *state;
	struct guard guard = {0};
	struct guard_scope scope;
	volatile bool left = false;
	int *volatile nowhere = (int *)8;
	uint8_t one = 1;

	take_back_handlers();
	put(r, "abc", 3);
	guard_open(&guard, &scope);
	if (!sigsetjmp(scope.env, 0)) {
		guard_step(&guard);
		assert_int_equal(run(r, with(r, KV_UPDATE_EACH, "crash", KV_U8, &one, 1)), -EFAULT);
		assert_int_equal(run(r, (struct kv_op){.code = KV_GET}), 3);
		*nowhere = 1;
	} else {
		assert_int_equal(guard_trapped(&guard), GUARD_FAULT);
		left = true;
	}
	guard_close(&guard, &scope);
	assert_true(left && guard.steps % 2 == 0);
}

static void bad_functions(void **state)
{
	struct rig *r = *state;
	struct roost_kv_function f = r->object.functions->list[0];
	struct object o;
	char why[200] = "", name[16];
	int rc = 0;

	assert_int_equal(kv_register(r->kv, &f), -EEXIST);
	f.name = "a name that is a little too long";
	assert_int_equal(kv_register(r->kv, &f), -EINVAL);
	f.name = "";
	assert_int_equal(kv_register(r->kv, &f), -EINVAL);
	f.name = "both";
	f.filter = r->object.functions->list[2].filter;
	assert_int_equal(kv_register(r->kv, &f), -EINVAL);
	f.filter = NULL;
	f.type = (enum roost_kv_type)KV_TYPES;
	assert_int_equal(kv_register(r->kv, &f), -EINVAL);
	f.type = ROOST_KV_DOUBLE;
	f.name = name;
	for (unsigned i = 0; rc >= 0; i++) {
		snprintf(name, sizeof(name), "f%u", i);
		rc = kv_register(r->kv, &f);
	}
	assert_int_equal(rc, -ENOSPC);
	assert_int_equal(kv_function(r->kv, "f56"), KV_FN_REGISTERED + KV_FUNCTIONS_MAX - 1);
	assert_int_equal(object_open_functions(OBJECTS "/functions-abi.so", &o, why, sizeof(why)),
			 -EPROTO);
	assert_non_null(strstr(why, "version 99"));
	assert_int_equal(object_open(OBJECTS "/functions.so", &o, why, sizeof(why)), -EINVAL);
	assert_non_null(strstr(why, "ROOST_KERNEL_EXPORT"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(updates, make, drop),
		cmocka_unit_test_setup_teardown(an_empty_vector, make, drop),
		cmocka_unit_test_setup_teardown(reduce_and_filter, make, drop),
		cmocka_unit_test_setup_teardown(steps_are_bounded, make, drop),
		cmocka_unit_test_setup_teardown(steps_are_bounded_by_time, make, drop),
		cmocka_unit_test_setup_teardown(whole_values_are_charged_by_time, make, drop),
		cmocka_unit_test_setup_teardown(faults, make, drop),
		cmocka_unit_test_setup_teardown(a_fault_within_a_step, make, drop),
		cmocka_unit_test_setup_teardown(bad_functions, make, drop),
	};

	return cmocka_run_group_tests(tests, group_setup, NULL);
}
