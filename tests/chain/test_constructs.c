/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The constructs of roost/chain.h, executed by the core. Each program runs again and again in its
 * ring. All tests run with counts from 0, and from 2^32 - 100.
 */
#include <errno.h>

#include "../common/counts.h"
#include "machine.h"

static struct machine M, *const m = &M;

static uint64_t value(struct roost_ref p)
{
	return ROOST_OPERAND_VALUE(*machine_word(m, p));
}

static void set(struct roost_ref p, uint64_t v)
{
	*machine_word(m, p) = ROOST_OPERAND(v);
}

static struct roost_wqe add(const struct roost_chain *c, struct roost_ref at, uint64_t n)
{
	return roost_wqe_calc(ROOST_OP_FETCH_ADD, at, ROOST_OPERAND(n), c->scratch);
}

#define BIG 0xffffffffffffull

static const uint64_t values[] = {0, 1, 41, 42, 43, 1ull << 47, BIG - 1, BIG};
#define VALUES (sizeof(values) / sizeof(values[0]))

static bool holds(enum roost_compare cmp, uint64_t x, uint64_t y)
{
	return cmp == ROOST_EQ ? x == y : cmp == ROOST_LE ? x <= y : x >= y;
}

/* The cost of each form, and its result for all pairs of values. */
static void conditions(void **state)
{
	static const uint32_t cost[2][3] = {{2, 3, 3}, {3, 5, 5}};

	for (unsigned form = 0; form < 6; form++) {
		enum roost_compare cmp = form % 3;
		bool word = form / 3;

		for (size_t j = 0; j < VALUES; j++) {
			struct roost_ref x, y, count;
			struct roost_chain c;
			uint32_t n;

			machine_open(m, first);
			c = machine_queue(m, 8);
			x = roost_chain_word(&c, 0);
			y = roost_chain_word(&c, ROOST_OPERAND(values[j]));
			count = roost_chain_word(&c, 0);
			n = roost_chain_if(&c, x, cmp,
					   word ? roost_word(y) : roost_constant(values[j]),
					   add(&c, count, 1));
			assert_int_equal(n, cost[word][cmp]);
			assert_int_equal(c.queue->n, n + 1);
			machine_post(m, &c);
			for (size_t i = 0; i < VALUES; i++) {
				set(x, values[i]);
				set(count, 0);
				machine_go(m, &c, 8);
				assert_int_equal(value(count), holds(cmp, values[i], values[j]));
				assert_int_equal(value(x), values[i]);
				assert_int_equal(value(y), values[j]);
			}
			machine_close(m);
		}
	}
}

static void if_else(void **state)
{
	struct roost_ref x, yes, no;
	struct roost_wqe t[2], e[2];
	struct roost_chain c;
	uint32_t at;

	machine_open(m, first);
	c = machine_queue(m, 16);
	x = roost_chain_word(&c, 0);
	yes = roost_chain_word(&c, 0);
	no = roost_chain_word(&c, 0);
	t[0] = t[1] = add(&c, yes, 1);
	e[0] = e[1] = add(&c, no, 10);
	/* With first = 2^32 - 100 the ring's end is 4 WQEs away: the block is behind it. */
	at = roost_chain_if_else(&c, x, ROOST_LE, roost_constant(42), t, e, 2);
	assert_int_equal(at, 5);
	machine_post(m, &c);
	for (size_t i = 0; i < VALUES; i++) {
		bool is = values[i] <= 42;

		set(x, values[i]);
		set(yes, 0);
		set(no, 0);
		machine_go(m, &c, 16);
		assert_int_equal(value(yes), is ? 2 : 0);
		assert_int_equal(value(no), is ? 0 : 20);
	}
	machine_close(m);
}

/*
 * x < y and x > y by MAX and MIN, as docs/chains.md says: with a constant, <= and >= of its
 * neighbour; with y in memory, the block `else` of >= and <=.
 */
static void less_and_greater(void **state)
{
	const struct roost_wqe nop = roost_wqe_nop();

	for (size_t j = 0; j < VALUES; j++) {
		const uint64_t y = values[j];
		const bool some_less = y > 0, some_greater = y < BIG;
		struct roost_ref x, in_memory, count[4];
		struct roost_wqe wqe[4];
		struct roost_chain c;

		machine_open(m, first);
		c = machine_queue(m, 64);
		x = roost_chain_word(&c, 0);
		in_memory = roost_chain_word(&c, ROOST_OPERAND(y));
		for (unsigned i = 0; i < 4; i++) {
			count[i] = roost_chain_word(&c, 0);
			wqe[i] = add(&c, count[i], 1);
		}
		if (some_less)
			roost_chain_if(&c, x, ROOST_LE, roost_constant(y - 1), wqe[0]);
		if (some_greater)
			roost_chain_if(&c, x, ROOST_GE, roost_constant(y + 1), wqe[1]);
		roost_chain_if_else(&c, x, ROOST_GE, roost_word(in_memory), &nop, &wqe[2], 1);
		roost_chain_if_else(&c, x, ROOST_LE, roost_word(in_memory), &nop, &wqe[3], 1);
		machine_post(m, &c);
		for (size_t i = 0; i < VALUES; i++) {
			set(x, values[i]);
			for (unsigned k = 0; k < 4; k++)
				set(count[k], 0);
			machine_go(m, &c, 64);
			assert_int_equal(value(count[0]), values[i] < y);
			assert_int_equal(value(count[1]), values[i] > y);
			assert_int_equal(value(count[2]), values[i] < y);
			assert_int_equal(value(count[3]), values[i] > y);
		}
		machine_close(m);
	}
}

static void equal_of_64_bits(void **state)
{
	static const uint64_t wide[] = {0,
					1,
					0xdeadbeef12345678,
					0x5eadbeef12345678,
					0xdeadbeef12345679,
					UINT64_MAX,
					UINT64_MAX >> 16};
	const size_t n = sizeof(wide) / sizeof(wide[0]);

	for (size_t j = 0; j < n; j++) {
		struct roost_ref x, count;
		struct roost_chain c;

		machine_open(m, first);
		c = machine_queue(m, 8);
		x = roost_chain_word(&c, 0);
		count = roost_chain_word(&c, 0);
		assert_int_equal(roost_chain_if_equal64(&c, x, wide[j], add(&c, count, 1)), 6);
		machine_post(m, &c);
		for (size_t i = 0; i < n; i++) {
			*machine_word(m, x) = wide[i];
			set(count, 0);
			machine_go(m, &c, 8);
			assert_int_equal(value(count), i == j);
		}
		machine_close(m);
	}
}

static void switches(void **state)
{
	const uint64_t cases[] = {3, BIG, 7};
	struct roost_wqe blocks[4];
	struct roost_ref x, result;
	struct roost_chain c;

	machine_open(m, first);
	c = machine_queue(m, 16);
	x = roost_chain_word(&c, 0);
	result = roost_chain_word(&c, 0);
	for (unsigned i = 0; i < 4; i++)
		blocks[i] = add(&c, result, i + 1);
	roost_chain_switch(&c, x, cases, blocks, 3);
	assert_int_equal(c.queue->n, 1 + 3 * 3 + 1);
	machine_post(m, &c);
	for (unsigned i = 0; i < 5; i++) {
		set(x, i < 3 ? cases[i] : i + 100);
		set(result, 0);
		machine_go(m, &c, 16);
		assert_int_equal(value(result), i < 3 ? i + 1 : 4);
	}
	machine_close(m);
}

/* An unrolled loop over a list, which it leaves at the element with the key. */
static void loop_breaks(void **state)
{
	const unsigned turns = 5;
	struct roost_ref key, list, found, seen;
	uint64_t *rest = NULL;
	uint32_t begin = 0;
	struct roost_chain c;

	for (unsigned at = 0; at <= turns; at++) {
		machine_open(m, first);
		c = machine_queue(m, 32);
		key = roost_chain_word(&c, ROOST_OPERAND(100 + at));
		found = roost_chain_word(&c, 0);
		seen = roost_chain_word(&c, 0);
		list = roost_chain_bytes(&c, (uint64_t[8]){0}, 64);
		for (unsigned i = 0; i < turns; i++) {
			set(roost_ref_at(list, 8 * i), 100 + i);
			begin = c.queue->n;
			roost_chain_emit(&c, add(&c, seen, 1));
			roost_chain_emit(&c, roost_wqe_write(found, roost_ref_at(list, 8 * i), 8));
			if (i + 1 < turns) {
				if (rest && i)
					*rest = c.queue->n - begin + 4;
				rest = roost_chain_break(&c, roost_ref_at(list, 8 * i),
							 roost_word(key));
				assert_non_null(rest);
				*rest = 2;
			}
		}
		machine_post(m, &c);
		machine_go(m, &c, 6);
		assert_int_equal(value(seen), at < turns ? at + 1 : turns);
		assert_int_equal(value(found), 100 + (at < turns ? at : turns - 1));
		machine_close(m);
	}
}

/* A recycled loop of eight WQEs: i += 1 while i < n, sum += i. It is started again by a chain. */
static void loop_is_recycled(void **state)
{
	struct roost_chain loop, start, after;
	struct roost_ref i, sum, ends;
	const uint32_t n = 1000;

	machine_open(m, first);
	loop = machine_queue(m, 8);
	start = machine_queue(m, 2);
	after = machine_queue(m, 1);
	i = roost_chain_word(&loop, 0);
	sum = roost_chain_word(&loop, 0);
	ends = roost_chain_word(&loop, 0);
	/* the operand of the second ADD is written by the first WQE */
	roost_chain_emit(&loop, add(&loop, i, 1));
	roost_chain_emit(&loop, roost_wqe_write(ROOST_FIELD(loop.queue, 2, swap_add), i, 8));
	roost_chain_emit(&loop, add(&loop, sum, 0));
	roost_chain_loop_end(&loop, i, ROOST_GE, roost_constant(n),
			     roost_wqe_enable(ROOST_OP_ENABLE, after.queue->qp_num, 1));
	roost_chain_emit(&after, add(&after, ends, 1));
	roost_chain_loop_start(&start, loop.queue);
	machine_post(m, &loop);
	machine_post(m, &start);
	machine_post(m, &after);
	for (unsigned runs = 1; runs <= 3; runs++) {
		set(i, 0);
		set(sum, 0);
		machine_go(m, &start, 2);
		assert_int_equal(value(i), n);
		assert_int_equal(value(sum), n * (n + 1) / 2);
		assert_int_equal(value(ends), runs);
		assert_int_equal(machine_executed(m, &loop), runs * n * 8);
	}
	machine_close(m);
}

/* f(a, b): result += a + b, called from two places of one queue, which then continues. */
static void calls(void **state)
{
	struct roost_ref result, marks, a[2], b[2], seen[2];
	struct roost_chain f, main;
	uint64_t *rest[2];
	uint32_t at[3];

	machine_open(m, first);
	f = machine_queue(m, 4);
	main = machine_queue(m, 16);
	result = roost_chain_word(&f, 0);
	marks = roost_chain_word(&f, 0);
	roost_chain_emit(&f, add(&f, result, 0));
	roost_chain_emit(&f, add(&f, result, 0));
	roost_chain_function_end(&f);
	for (unsigned i = 0; i < 2; i++) {
		a[i] = roost_chain_word(&f, ROOST_OPERAND(10 + i));
		b[i] = roost_chain_word(&f, ROOST_OPERAND(200 + i));
		rest[i] = roost_chain_call(
			&main, f.queue,
			(struct roost_argument[]){{a[i], ROOST_FIELD(f.queue, 0, swap_add), 8},
						  {b[i], ROOST_FIELD(f.queue, 1, swap_add), 8}},
			2);
		assert_non_null(rest[i]);
		at[i] = main.queue->n;
		roost_chain_emit(&main, add(&main, marks, 1));
		seen[i] = roost_chain_word(&f, 0);
		roost_chain_emit(&main, roost_wqe_write(seen[i], result, 8));
	}
	at[2] = main.queue->n;
	*rest[0] = at[1] - at[0];
	*rest[1] = at[2] - at[1];
	machine_post(m, &f);
	machine_post(m, &main);
	machine_go(m, &main, at[0]);
	assert_int_equal(value(seen[0]), 10 + 200);
	assert_int_equal(value(seen[1]), 10 + 200 + 11 + 201);
	assert_int_equal(value(marks), 2);
	assert_int_equal(machine_executed(m, &main), at[2]);
	machine_close(m);
}

static void errors_are_kept(void **state)
{
	struct roost_wqe inl = {.flags = ROOST_WQE_INLINE}, blocks[9] = {{0}};
	struct roost_ref x;
	struct roost_chain c;

	machine_open(m, first);
	c = machine_queue(m, 4);
	x = roost_chain_word(&c, 0);
	roost_chain_if_else(&c, x, ROOST_EQ, roost_constant(1), blocks, blocks, 9);
	assert_int_equal(c.queue->error, -EINVAL);
	assert_int_equal(c.queue->n, 0);
	roost_chain_emit(&c, roost_wqe_nop());
	assert_int_equal(c.queue->n, 0);
	c.queue->error = 0;
	roost_chain_if(&c, x, ROOST_EQ, roost_constant(1), inl);
	assert_int_equal(c.queue->error, -EINVAL);
	c.queue->error = 0;
	for (int i = 0; i < 5; i++)
		roost_chain_emit(&c, roost_wqe_nop());
	assert_int_equal(c.queue->error, -ENOSPC);
	c.queue->error = 0;
	c.queue->n = 0;
	m->data.n = m->data.size - 4;
	roost_chain_word(&c, 0);
	assert_int_equal(c.queue->error, -ENOSPC);
	assert_null(roost_chain_break(&c, x, roost_constant(0)));
	c.queue->error = 0;
	assert_null(roost_chain_call(&c, c.queue, NULL, 0));
	c.queue->error = 0;
	machine_close(m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(conditions),	    cmocka_unit_test(if_else),
		cmocka_unit_test(less_and_greater), cmocka_unit_test(equal_of_64_bits),
		cmocka_unit_test(switches),	    cmocka_unit_test(loop_breaks),
		cmocka_unit_test(loop_is_recycled), cmocka_unit_test(calls),
		cmocka_unit_test(errors_are_kept),
	};

	return run_from_both_counts(tests);
}
