/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The checker of histories, on histories that are known to be right or wrong, and on random ones.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "history.h"

#define GET(from, to, rc, v)                                                                       \
	{                                                                                          \
		.code = HISTORY_GET, .start = (from), .end = (to), .status = (rc), .result = (v)   \
	}
#define PUT(from, to, v)                                                                           \
	{                                                                                          \
		.code = HISTORY_PUT, .start = (from), .end = (to), .value = (v)                    \
	}
#define ADD(from, to, v, old)                                                                      \
	{                                                                                          \
		.code = HISTORY_ADD, .start = (from), .end = (to), .value = (v), .result = (old)   \
	}
#define DELETE(from, to, rc)                                                                       \
	{                                                                                          \
		.code = HISTORY_DELETE, .start = (from), .end = (to), .status = (rc)               \
	}
#define COMPARE(from, to, old, new, rc, was)                                                       \
	{                                                                                          \
		.code = HISTORY_COMPARE, .start = (from), .end = (to), .expect = (old),            \
		.value = (new), .status = (rc), .result = (was)                                    \
	}
#define OPEN HISTORY_OPEN

static const struct {
	const char *what;
	bool right;
	unsigned n;
	struct history_op ops[6];
} rows[] = {
	{"one after the other", true, 3, {PUT(1, 2, 7), GET(3, 4, 0, 7), DELETE(5, 6, 0)}},
	{"a stale value", false, 3, {PUT(1, 2, 7), PUT(3, 4, 8), GET(5, 6, 0, 7)}},
	{"an old value while the PUT runs", true, 3, {PUT(1, 2, 7), PUT(3, 6, 8), GET(4, 5, 0, 7)}},
	{"times that touch", true, 2, {PUT(1, 2, 7), GET(2, 3, -ENOENT, 0)}},
	{"back to the old value",
	 false,
	 4,
	 {PUT(1, 2, 7), PUT(3, 9, 8), GET(4, 5, 0, 8), GET(6, 7, 0, 7)}},
	{"a lost PUT", false, 2, {PUT(1, 2, 7), GET(3, 4, -ENOENT, 0)}},
	{"sums", true, 4, {PUT(1, 2, 7), ADD(3, 6, 1, 8), ADD(4, 5, 1, 7), GET(7, 8, 0, 9)}},
	{"two sums with one old value", false, 3, {PUT(1, 2, 7), ADD(3, 6, 1, 7), ADD(4, 5, 1, 7)}},
	{"a sum applied twice", false, 3, {PUT(1, 2, 7), ADD(3, 4, 1, 7), GET(5, 6, 0, 9)}},
	{"an open sum that was applied",
	 true,
	 3,
	 {PUT(1, 2, 7), ADD(3, OPEN, 1, 0), GET(5, 6, 0, 8)}},
	{"an open sum, once", false, 3, {PUT(1, 2, 7), ADD(3, OPEN, 1, 0), GET(5, 6, 0, 9)}},
	{"an open sum that was not", true, 3, {PUT(1, 2, 7), ADD(3, OPEN, 1, 0), GET(5, 6, 0, 7)}},
	{"an open PUT takes effect late",
	 true,
	 4,
	 {PUT(1, OPEN, 7), PUT(2, 3, 8), GET(4, 5, 0, 8), GET(6, 7, 0, 7)}},
	{"an open PUT takes effect before it began", false, 2, {GET(1, 2, 0, 7), PUT(3, OPEN, 7)}},
	{"an open DELETE", true, 3, {PUT(1, 2, 7), DELETE(3, OPEN, 0), GET(4, 5, -ENOENT, 0)}},
	{"a comparison", true, 3, {PUT(1, 2, 7), COMPARE(3, 4, 7, 9, 0, 0), GET(5, 6, 0, 9)}},
	{"one that should be equal", false, 2, {PUT(1, 2, 7), COMPARE(3, 4, 7, 9, -ECANCELED, 7)}},
	{"two that succeed",
	 false,
	 3,
	 {PUT(1, 2, 7), COMPARE(3, 6, 7, 9, 0, 0), COMPARE(4, 5, 7, 8, 0, 0)}},
	{"one that fails, with the value",
	 true,
	 2,
	 {PUT(1, 2, 7), COMPARE(3, 4, 8, 9, -ECANCELED, 7)}},
};

static void known_histories(void **state)
{
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct history_op ops[6];

		memcpy(ops, rows[i].ops, sizeof(ops));
		print_message("%s\n", rows[i].what);
		assert_int_equal(history_check(ops, rows[i].n, NULL), rows[i].right);
	}
}

static void keys_have_orders_of_their_own(void **state)
{
	struct history_op ops[] = {PUT(1, 2, 7), GET(3, 4, 0, 7), PUT(1, 2, 9), GET(3, 4, 0, 9)};

	ops[2].key = ops[3].key = 1;
	assert_true(history_check(ops, 4, NULL));
	ops[3].key = 0;
	assert_false(history_check(ops, 4, NULL));
}

static void batches_have_an_order(void **state)
{
	struct history_op ops[] = {PUT(1, 4, 7), PUT(1, 4, 8), GET(5, 6, 0, 7)};
	struct history_op cut[] = {PUT(1, OPEN, 7), PUT(1, OPEN, 8), GET(5, 6, 0, 7)};

	assert_true(history_check(ops, 3, NULL));
	ops[0].batch = ops[1].batch = 3;
	assert_false(history_check(ops, 3, NULL));
	/* The first part of a batch. */
	cut[0].batch = cut[1].batch = 3;
	assert_true(history_check(cut, 3, NULL));
}

/* ---- against all orders ---- */

#define FEW 6u

struct value {
	uint64_t value;
	bool there;
};

static bool fits(const struct history_op *op, struct value *v)
{
	switch (op->code) {
	case HISTORY_GET:
		return op->end == OPEN ||
		       (v->there ? !op->status && op->result == v->value : op->status == -ENOENT);
	case HISTORY_PUT:
		*v = (struct value){op->value, true};
		return true;
	default:
		if (!v->there)
			return op->end == OPEN || op->status == -ENOENT;
		v->value += op->value;
		return op->end == OPEN || (!op->status && op->result == v->value - op->value);
	}
}

/* Tries each operation next that may be next, without any memory. */
static bool any_order(const struct history_op *ops, unsigned n, unsigned done, struct value v)
{
	uint64_t first_end = OPEN;
	bool all = true;

	for (unsigned i = 0; i < n; i++) {
		if (done >> i & 1)
			continue;
		all = all && ops[i].end == OPEN;
		if (ops[i].end < first_end)
			first_end = ops[i].end;
	}
	for (unsigned i = 0; !all && i < n; i++) {
		struct value after = v;

		if (done >> i & 1 || ops[i].start > first_end || !fits(&ops[i], &after))
			continue;
		all = any_order(ops, n, done | 1u << i, after);
	}
	return all;
}

static void as_all_orders(void **state)
{
	unsigned right = 0, rounds = 20000;
	struct rng rng;

	rng_seed(&rng, 19);
	for (unsigned round = 0; round < rounds; round++) {
		struct history_op ops[FEW];
		bool expected;

		for (unsigned i = 0; i < FEW; i++) {
			uint64_t start = rng_below(&rng, 12);
			bool open = rng_below(&rng, 8) == 0;

			ops[i] = (struct history_op){
				.code = rng_below(&rng, 3) ? HISTORY_GET : HISTORY_PUT,
				.start = start,
				.end = open ? OPEN : start + 1 + rng_below(&rng, 8),
				.value = rng_below(&rng, 3),
				.result = rng_below(&rng, 3)};
			if (rng_below(&rng, 4) == 0)
				ops[i].code = HISTORY_ADD;
			if (ops[i].code != HISTORY_PUT && rng_below(&rng, 6) == 0)
				ops[i].status = -ENOENT;
		}
		expected = any_order(ops, FEW, 0, (struct value){0});
		right += expected;
		if (history_check(ops, FEW, NULL) != expected)
			fail_msg("round %u: it is %s", round, expected ? "right" : "wrong");
	}
	print_message("%u of %u are linearizable\n", right, rounds);
	assert_in_range(right, rounds / 20, rounds - rounds / 20);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(known_histories),
		cmocka_unit_test(keys_have_orders_of_their_own),
		cmocka_unit_test(batches_have_an_order),
		cmocka_unit_test(as_all_orders),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
