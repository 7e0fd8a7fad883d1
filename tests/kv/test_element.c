/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Each built-in function on each type and on pairs of boundary values, in vectors of lengths that
 * are not those of registers, at addresses that are not aligned. Both tables are compared with the
 * oracle, to the bit.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>

#include "base/mem.h"
#include "kv/element.h"
#include "oracle.h"

#define VALUES 14u
#define PAIRS  (VALUES * VALUES)
#define BYTES  (PAIRS * 8)

/* Returns how many there are. */
static unsigned boundaries(unsigned type, uint8_t out[VALUES * 8])
{
	static const float floats[] = {0.0f,   -0.0f,	1.0f,	  INFINITY, -INFINITY, NAN,
				       1e-45f, 3.4e38f, -3.4e38f, 0.1f,	    -7.5f};
	static const double doubles[] = {0.0,	 1.0,	  -0.0,	    INFINITY, -INFINITY, NAN,
					 5e-324, 1.7e308, -1.7e308, 0.1,      -7.5};
	static const int64_t offsets[] = {0, 1, 2, 3, 7, -1, -2, -3};
	unsigned width = oracle_width(type), n = 0;

	if (type == KV_FLOAT) {
		memcpy(out, floats, sizeof(floats));
		return ARRAY_SIZE(floats);
	}
	if (type == KV_DOUBLE) {
		memcpy(out, doubles, sizeof(doubles));
		return ARRAY_SIZE(doubles);
	}
	for (unsigned i = 0; i < ARRAY_SIZE(offsets); i++)
		memcpy(out + width * n++, &offsets[i], width);
	/* Around the sign bit, and half of the bits. */
	for (int i = -2; i < 2; i++) {
		uint64_t v = (1ull << (8 * width - 1)) + (uint64_t)i;

		memcpy(out + width * n++, &v, width);
	}
	for (int i = -1; i < 1; i++) {
		uint64_t v = (1ull << (4 * width)) + (uint64_t)i;

		memcpy(out + width * n++, &v, width);
	}
	return n;
}

struct pairs {
	unsigned n, width;
	uint8_t a[BYTES], b[BYTES];
};

static void make_pairs(unsigned type, struct pairs *p)
{
	uint8_t values[VALUES * 8];
	unsigned n = boundaries(type, values), w = oracle_width(type);

	p->n = 0;
	p->width = w;
	for (unsigned i = 0; i < n; i++) {
		for (unsigned k = 0; k < n; k++, p->n++) {
			memcpy(p->a + p->n * w, values + i * w, w);
			memcpy(p->b + p->n * w, values + k * w, w);
		}
	}
}

/* A NaN is a NaN: its sign and payload depend on the order of the operands. */
static void assert_same(unsigned type, const uint8_t *x, const uint8_t *y, unsigned n)
{
	for (unsigned i = 0; i < n; i++, x += oracle_width(type), y += oracle_width(type)) {
		if (!memcmp(x, y, oracle_width(type)))
			continue;
		assert_true(type >= KV_FLOAT);
		assert_true(!oracle_matches(KV_EQ, type, x, x) &&
			    !oracle_matches(KV_EQ, type, y, y));
	}
}

static void check_function(const struct element_table *t, unsigned fn, unsigned type,
			   const struct pairs *p, unsigned n)
{
	const struct element_fn *f = &t->fn[fn][type];
	uint8_t got[BYTES + 1], expected[BYTES], acc[8], expected_acc[8];
	unsigned w = p->width;

	memcpy(expected, p->a, n * w);
	for (unsigned i = 0; i < n; i++)
		oracle_apply(fn, type, expected + i * w, p->b + i * w, p->b);
	memcpy(got + 1, p->a, n * w);
	f->vector(got + 1, p->b, n);
	assert_same(type, got + 1, expected, n);

	memcpy(acc, p->b + 2 * w, w);
	memcpy(expected_acc, acc, w);
	memcpy(got + 1, p->a, n * w);
	memcpy(expected, p->a, n * w);
	for (unsigned i = 0; i < n; i++) {
		oracle_apply(fn, type, expected + i * w, p->b + w, p->b);
		oracle_apply(fn, type, expected_acc, p->a + i * w, p->b);
	}
	f->each(got + 1, p->b + w, n);
	assert_same(type, got + 1, expected, n);
	f->reduce(acc, p->a, n);
	assert_same(type, acc, expected_acc, 1);
}

static void check_swap(const struct element_table *t, unsigned type, const struct pairs *p)
{
	const struct element_swap *s = &t->swap[log2_floor(p->width)];
	uint8_t got[BYTES + 1], expected[BYTES], operand[BYTES];
	unsigned w = p->width;

	for (unsigned i = 0; i < p->n * w; i++)
		operand[i] = (uint8_t)(i * 11 + 1);
	memcpy(got + 1, p->a, p->n * w);
	memcpy(expected, p->a, p->n * w);
	for (unsigned i = 0; i < p->n; i++)
		oracle_apply(KV_SWAP, type, expected + i * w, operand + i * w, p->b + i * w);
	s->vector(got + 1, p->b, operand, p->n);
	assert_memory_equal(got + 1, expected, p->n * w);
	memcpy(got + 1, p->b, p->n * w);
	memcpy(expected, p->b, p->n * w);
	for (unsigned i = 0; i < p->n; i++)
		oracle_apply(KV_SWAP, type, expected + i * w, operand, p->a);
	s->each(got + 1, p->a, operand, p->n);
	assert_memory_equal(got + 1, expected, p->n * w);
}

static void check_table(const struct element_table *t)
{
	static struct pairs p;

	for (unsigned type = 0; type < KV_TYPES; type++) {
		make_pairs(type, &p);
		assert_int_equal(element_width(type), p.width);
		for (unsigned fn = 0; fn < KV_FNS_ELEMENT; fn++) {
			bool has = oracle_has(fn, type);

			assert_int_equal(has, t->fn[fn][type].vector != NULL);
			assert_int_equal(has, t->fn[fn][type].each != NULL);
			assert_int_equal(has, t->fn[fn][type].reduce != NULL);
			for (unsigned n = 0; has && n <= p.n; n++)
				check_function(t, fn, type, &p, n);
		}
		check_swap(t, type, &p);
	}
	assert_int_equal(element_width(KV_TYPES), 0);
}

static void portable_functions(void **state)
{
	check_table(element_plain());
}

static void functions_for_this_cpu(void **state)
{
	check_table(element_best());
}

static void predicates(void **state)
{
	static struct pairs p;

	for (unsigned type = 0; type < KV_TYPES; type++) {
		make_pairs(type, &p);
		for (unsigned fn = KV_EQ; fn < KV_FNS; fn++) {
			for (unsigned k = 0; k < p.n; k++) {
				uint8_t got[BYTES + 1], expected[BYTES];
				unsigned n = 0, w = p.width;

				for (unsigned i = 0; i < p.n; i++)
					if (oracle_matches(fn, type, p.a + i * w, p.b + k * w))
						memcpy(expected + w * n++, p.a + i * w, w);
				/* In place, too. */
				memcpy(got + 1, p.a, p.n * w);
				assert_int_equal(element_filter(fn, type)(got + 1, got + 1,
									  p.b + k * w, p.n),
						 n);
				assert_memory_equal(got + 1, expected, n * w);
			}
		}
		assert_null(element_filter(KV_ADD, type));
		assert_null(element_filter(KV_FNS, type));
	}
	assert_null(element_filter(KV_EQ, KV_TYPES));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(portable_functions),
		cmocka_unit_test(functions_for_this_cpu),
		cmocka_unit_test(predicates),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
