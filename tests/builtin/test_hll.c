/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Compares the kernel `hll` with a plain model: registers byte by byte, estimates within the
 * theoretical bound, and making and dropping of sketches.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/rng.h"
#include "builtin/builtin.h"
#include "builtin/hll_update.h"
#include "rig.h"
#include "roost/hll.h"

#define SPACE	(RIG_REPLY - 8)
#define MAX_P	12u /* the largest precision whose registers fit in a reply of the rig */
#define PAYLOAD (RIG_MEM - RIG_PAYLOAD)

static struct rig R, *const r = &R;

static void open_rig(const struct rig_shape *shape)
{
	rig_open(r, 1, shape);
	assert_int_equal(runtime_deploy(r->f, kernels_builtin("hll"), NULL), 0);
}

static struct rig_reply ask(uint64_t name, uint32_t what, uint32_t precision)
{
	struct roost_hll_params p = roost_hll_params(name, what, precision);

	return rig_call(r, ROOST_HLL_OP, &p, sizeof(p), SPACE);
}

static struct rig_reply join(uint64_t name, uint64_t from, uint32_t precision)
{
	struct roost_hll_params p = {name, from, ROOST_HLL_JOIN, precision};

	return rig_call(r, ROOST_HLL_OP, &p, sizeof(p), SPACE);
}

static struct roost_hll_info info(uint64_t name)
{
	struct rig_reply a = ask(name, ROOST_HLL_ESTIMATE, 0);
	struct roost_hll_info i;

	assert_int_equal(a.status, ROOST_RPC_OK);
	assert_int_equal(a.len, sizeof(i));
	memcpy(&i, a.data, sizeof(i));
	return i;
}

/* Makes a call with payload: the `len` bytes at RIG_PAYLOAD of the caller's memory. */
static unsigned stream(uint64_t name, uint32_t what, uint32_t precision, uint32_t len)
{
	struct roost_hll_params p = roost_hll_params(name, what, precision);
	unsigned status;

	rig_post(r, 0, 0, ROOST_HLL_OP, &p, sizeof(p), 8, ROOST_RPC_STREAM);
	rig_post_payload(r, 0, ROOST_HLL_OP, len);
	status = rig_wait(r, 0, 0, 8).status;
	world_run(&r->w, world_now(&r->w) + SEC);
	rig_reap(r);
	return status;
}

/* Draws n items from `of` different ones, and adds them at RIG_PAYLOAD and to the model. */
static uint32_t items(uint8_t *model, unsigned precision, uint32_t n, uint64_t of, struct rng *rng)
{
	uint8_t *to = r->caller[0].mem + RIG_PAYLOAD;

	assert_true(8 * n <= PAYLOAD);
	for (uint32_t i = 0; i < n; i++) {
		uint64_t item = rng_below(rng, of);

		roost_hll_add(model, precision, item);
		memcpy(to + 8 * i, &item, 8);
	}
	return 8 * n;
}

static void check_registers(uint64_t name, const uint8_t *model, unsigned precision)
{
	struct rig_reply a = ask(name, ROOST_HLL_REGISTERS, 0);

	assert_int_equal(a.status, ROOST_RPC_OK);
	assert_int_equal(a.len, 1u << precision);
	assert_memory_equal(a.data, model, 1u << precision);
}

static void streams(const struct rig_shape *shape)
{
	static const uint32_t counts[] = {1, 0, 7, 1000, 511, 20000};
	uint8_t model[1u << MAX_P];
	uint64_t total;
	struct rng rng;

	rng_seed(&rng, 2);
	open_rig(shape);
	for (unsigned p = ROOST_HLL_MIN_PRECISION; p <= MAX_P; p += 4) {
		memset(model, 0, sizeof(model));
		total = 0;
		for (unsigned i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
			uint32_t len = items(model, p, counts[i], UINT64_MAX >> 40, &rng);

			assert_int_equal(stream(p, ROOST_HLL_ADD, p, len), ROOST_RPC_OK);
			check_registers(p, model, p);
			total += counts[i];
		}
		assert_int_equal(info(p).items, total);
		assert_int_equal(info(p).precision, p);
		assert_int_equal(info(p).estimate, (uint64_t)(roost_hll_estimate(model, p) + 0.5));
	}
	rig_close(r);
}

static void registers_are_the_models(void **state)
{
	streams(&(struct rig_shape){.sp = {.delay_ns = 1000}, .mtu = 4096});
	streams(&(struct rig_shape){.loop = true});
	streams(&(struct rig_shape){
		.sp = {.loss = 0.02, .dup = 0.02, .reorder = 0.02, .delay_ns = 1000}, .mtu = 256});
}

/*
 * One to ten million distinct items, added by the kernel's own loop: each estimate is within four
 * standard errors, and their mean within one.
 */
static void estimates(void **state)
{
	static const uint32_t up_to[] = {1,	10,	100,	1000,	 3000,	  10000,
					 30000, 100000, 400000, 1000000, 3000000, 10000000};
	static uint8_t reg[1u << ROOST_HLL_MAX_PRECISION];
	struct rng rng;

	for (unsigned p = ROOST_HLL_MIN_PRECISION; p <= ROOST_HLL_MAX_PRECISION; p += 2) {
		double bound = 1.04 / sqrt(1u << p), sum = 0;
		unsigned n_of = sizeof(up_to) / sizeof(up_to[0]);
		uint64_t next = (uint64_t)p << 40, block[1000];
		uint32_t n = 0;

		rng_seed(&rng, p);
		memset(reg, 0, sizeof(reg));
		for (unsigned i = 0; i < n_of; i++) {
			double error;

			while (n < up_to[i]) {
				uint32_t k = 0;

				while (k < 1000 && n < up_to[i])
					block[k++] = next += 1 + rng_below(&rng, 9), n++;
				hll_update_best()(reg, p, (const uint8_t *)block, k);
			}
			error = roost_hll_estimate(reg, p) / n - 1;
			assert_true(fabs(error) < 4 * bound + 0.5 / n);
			sum += error;
		}
		assert_true(fabs(sum / n_of) < bound);
	}
}

/* All implementations of the loop agree, for any number of items at any alignment. */
static void forms_agree(void **state)
{
	static uint8_t a[1u << ROOST_HLL_MAX_PRECISION], b[1u << ROOST_HLL_MAX_PRECISION],
		c[1u << ROOST_HLL_MAX_PRECISION], data[8 * 3000 + 8];
	struct rng rng;

	rng_seed(&rng, 3);
	for (unsigned round = 0; round < 200; round++) {
		unsigned p = ROOST_HLL_MIN_PRECISION + round % 15;
		size_t n = rng_below(&rng, round & 1 ? 100 : 3000), off = rng_below(&rng, 8);

		for (size_t i = 0; i < sizeof(data); i++)
			data[i] = (uint8_t)rng_u64(&rng);
		memset(a, 0, sizeof(a));
		memset(b, 0, sizeof(b));
		memset(c, 0, sizeof(c));
		hll_update_scalar(a, p, data + off, n);
		hll_update_best()(b, p, data + off, n);
		for (size_t i = 0; i < n; i++) {
			uint64_t item;

			memcpy(&item, data + off + 8 * i, 8);
			roost_hll_add(c, p, item);
		}
		assert_memory_equal(a, b, sizeof(a));
		assert_memory_equal(a, c, sizeof(a));
	}
}

/* Replaces the kernel runtime's take(): returns the first resource. */
static uint32_t take_first(struct roost_call *c)
{
	return 1;
}

/* Pieces that no network makes: an item lies across two or more pieces. */
static void items_across_pieces(void **state)
{
	const struct roost_kernel *k = kernels_builtin("hll");
	static uint8_t data[8 * 500];
	uint8_t model[256] = {0}, state_of[1024] __attribute__((aligned(64)));
	struct roost_hll_params p = roost_hll_params(1, ROOST_HLL_ADD, 8);
	struct roost_call c = {
		.state = state_of, .params = &p, .params_len = sizeof(p), .take = take_first};
	struct rng rng;

	rng_seed(&rng, 4);
	for (size_t i = 0; i < sizeof(data); i++)
		data[i] = (uint8_t)rng_u64(&rng);
	hll_update_scalar(model, 8, data, 500);
	assert_true(k->state_size <= sizeof(state_of));
	assert_int_equal(k->start(&c.self), 0);
	for (unsigned round = 0; round < 50; round++) {
		uint32_t at = 0;

		memset(state_of, 0, sizeof(state_of));
		p.what = ROOST_HLL_RESET;
		c.resume = 0;
		k->params(&c);
		memset(state_of, 0, sizeof(state_of));
		p.what = ROOST_HLL_ADD;
		c = (struct roost_call){.state = state_of,
					.self = c.self,
					.params = &p,
					.params_len = sizeof(p),
					.take = take_first};
		assert_int_equal(k->params(&c), ROOST_DONE);
		assert_int_equal(c.ask, ROOST_ASK_NONE);
		while (at < sizeof(data)) {
			uint32_t n = 1 + (uint32_t)rng_below(&rng, round < 25 ? 12 : 300);

			c.len = n < sizeof(data) - at ? n : (uint32_t)sizeof(data) - at;
			c.data = data + at;
			c.offset = at;
			c.total = sizeof(data);
			at += c.len;
			c.last = at == sizeof(data);
			assert_int_equal(k->payload(&c), ROOST_DONE);
			assert_int_equal(c.ask, ROOST_ASK_NONE);
		}
		memset(state_of, 0, sizeof(state_of));
		p.what = ROOST_HLL_REGISTERS;
		assert_int_equal(k->params(&c), ROOST_DONE);
		assert_int_equal(c.ask_len, 256);
		assert_memory_equal(c.buf, model, 256);
	}
	(k->stop)(c.self); /* cmocka 2 has a macro stop() */
}

static void sketches_are_merged(void **state)
{
	uint8_t a[1024] = {0}, b[1024] = {0};
	struct rng rng;

	rng_seed(&rng, 5);
	open_rig(&(struct rig_shape){.sp = {.delay_ns = 1000}});
	assert_int_equal(stream(1, ROOST_HLL_ADD, 10, items(a, 10, 3000, 1u << 20, &rng)),
			 ROOST_RPC_OK);
	assert_int_equal(stream(2, ROOST_HLL_ADD, 10, items(b, 10, 5000, 1u << 20, &rng)),
			 ROOST_RPC_OK);
	/* JOIN to an existing sketch, and to a new one. */
	assert_int_equal(join(3, 2, 10).status, ROOST_RPC_OK);
	check_registers(3, b, 10);
	assert_int_equal(join(3, 1, 10).status, ROOST_RPC_OK);
	/* MERGE of registers of another sketch. */
	memcpy(r->caller[0].mem + RIG_PAYLOAD, b, 1024);
	assert_int_equal(stream(1, ROOST_HLL_MERGE, 10, 1024), ROOST_RPC_OK);
	roost_hll_merge(a, b, 10);
	check_registers(1, a, 10);
	check_registers(3, a, 10);
	assert_int_equal(info(3).items, 0);
	assert_int_equal(info(1).items, 3000);
	/* Impossible registers, and wrong lengths. */
	r->caller[0].mem[RIG_PAYLOAD + 1000] = 65 - 10 + 1;
	assert_int_equal(stream(1, ROOST_HLL_MERGE, 10, 1024), ROOST_RPC_BAD_PARAMS);
	assert_int_equal(stream(1, ROOST_HLL_MERGE, 10, 1016), ROOST_RPC_BAD_PARAMS);
	assert_int_equal(stream(1, ROOST_HLL_MERGE, 10, 2048), ROOST_RPC_BAD_PARAMS);
	check_registers(1, a, 10);
	assert_int_equal(join(1, 9, 10).status, ROOST_RPC_MISS);
	assert_int_equal(join(1, 2, 9).status, ROOST_HLL_PRECISION);
	rig_close(r);
}

static void sketches_come_and_go(void **state)
{
	uint8_t model[1024] = {0};
	struct rng rng;

	rng_seed(&rng, 6);
	open_rig(&(struct rig_shape){.sp = {.delay_ns = 1000}});
	assert_int_equal(ask(1, ROOST_HLL_ESTIMATE, 0).status, ROOST_RPC_MISS);
	assert_int_equal(ask(1, ROOST_HLL_RESET, 0).status, ROOST_RPC_MISS);
	assert_int_equal(ask(1, ROOST_HLL_DROP, 0).status, ROOST_RPC_MISS);
	for (unsigned i = 1; i <= ROOST_HLL_SHARE; i++) {
		assert_int_equal(ask(i, ROOST_HLL_ADD, 10).status, ROOST_RPC_OK);
		assert_int_equal(info(i).estimate, 0);
		assert_int_equal(info(i).zeros, 1024);
	}
	assert_int_equal(ask(100, ROOST_HLL_ADD, 10).status, ROOST_HLL_FULL);
	assert_int_equal(join(100, 1, 10).status, ROOST_HLL_FULL);
	assert_int_equal(stream(5, ROOST_HLL_ADD, 10, items(model, 10, 500, 1u << 20, &rng)),
			 ROOST_RPC_OK);
	assert_true(info(5).estimate > 0);
	assert_int_equal(info(4).estimate, 0);
	assert_int_equal(ask(5, ROOST_HLL_ESTIMATE, 11).status, ROOST_HLL_PRECISION);
	assert_int_equal(ask(5, ROOST_HLL_ADD, 11).status, ROOST_HLL_PRECISION);
	/* The slot of a dropped sketch is empty for the next one, of another precision. */
	assert_int_equal(ask(5, ROOST_HLL_DROP, 0).status, ROOST_RPC_OK);
	assert_int_equal(ask(5, ROOST_HLL_ESTIMATE, 0).status, ROOST_RPC_MISS);
	assert_int_equal(ask(100, ROOST_HLL_ADD, 12).status, ROOST_RPC_OK);
	assert_int_equal(info(100).zeros, 4096);
	assert_int_equal(info(100).items, 0);
	/* Reset. */
	assert_int_equal(stream(7, ROOST_HLL_ADD, 10, items(model, 10, 500, 1u << 20, &rng)),
			 ROOST_RPC_OK);
	assert_int_equal(ask(7, ROOST_HLL_RESET, 0).status, ROOST_RPC_OK);
	assert_int_equal(info(7).estimate, 0);
	assert_int_equal(info(7).items, 0);
	rig_close(r);
}

/*
 * A sketch is dropped during a stream: the stream ends, and the next sketch in the slot gets none
 * of its items.
 */
static void dropped_meanwhile(void **state)
{
	struct roost_hll_params p = roost_hll_params(1, ROOST_HLL_ADD, 10);
	struct roost_hll_params drop = roost_hll_params(1, ROOST_HLL_DROP, 0);
	uint8_t model[1024] = {0};
	struct rng rng;

	rng_seed(&rng, 7);
	open_rig(&(struct rig_shape){.sp = {.delay_ns = 1000}});
	rig_post(r, 0, 0, ROOST_HLL_OP, &p, sizeof(p), 8, ROOST_RPC_STREAM);
	rig_post(r, 0, 1, ROOST_HLL_OP, &drop, sizeof(drop), 8, 0);
	p.name = 2;
	rig_post(r, 0, 2, ROOST_HLL_OP, &p, sizeof(p), 8, 0);
	rig_post_payload(r, 0, ROOST_HLL_OP, items(model, 10, 1000, UINT64_MAX, &rng));
	assert_int_equal(rig_wait(r, 0, 0, 8).status, ROOST_RPC_MISS);
	assert_int_equal(rig_wait(r, 0, 1, 8).status, ROOST_RPC_OK);
	assert_int_equal(rig_wait(r, 0, 2, 8).status, ROOST_RPC_OK);
	world_run(&r->w, world_now(&r->w) + SEC);
	assert_int_equal(info(2).estimate, 0);
	rig_close(r);
}

static void bad_parameters(void **state)
{
	const struct roost_hll_params bad[] = {
		{0, 0, ROOST_HLL_ADD, 10},	{1, 0, 0, 10},
		{1, 0, ROOST_HLL_DROP + 1, 10}, {1, 0, ROOST_HLL_ADD, 0},
		{1, 0, ROOST_HLL_ADD, 3},	{1, 0, ROOST_HLL_ADD, 19},
		{1, 2, ROOST_HLL_ADD, 10},	{1, 0, ROOST_HLL_JOIN, 10},
		{1, 1, ROOST_HLL_JOIN, 0},	{1, 0, ROOST_HLL_MERGE, UINT32_MAX},
		{1, 0, ROOST_HLL_ESTIMATE, 20},
	};
	uint8_t some[40] = {1};

	open_rig(&(struct rig_shape){.sp = {0}});
	for (unsigned i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_int_equal(rig_call(r, ROOST_HLL_OP, &bad[i], sizeof(bad[i]), 64).status,
				 ROOST_RPC_BAD_PARAMS);
	for (uint32_t n = 0; n < sizeof(some); n++)
		if (n != sizeof(bad[0]))
			assert_int_equal(rig_call(r, ROOST_HLL_OP, some, n, 64).status,
					 ROOST_RPC_BAD_PARAMS);
	/* Incomplete items; unannounced items. */
	assert_int_equal(stream(1, ROOST_HLL_ADD, 10, 1001), ROOST_RPC_BAD_PARAMS);
	assert_int_equal(info(1).items, 0);
	rig_post_payload(r, 0, ROOST_HLL_OP, 800);
	world_run(&r->w, world_now(&r->w) + SEC);
	assert_int_equal(info(1).items, 0);
	/* Registers that exceed the reply buffer. */
	assert_int_equal(ask(2, ROOST_HLL_ADD, 18).status, ROOST_RPC_OK);
	assert_int_equal(ask(2, ROOST_HLL_REGISTERS, 0).status, ROOST_RPC_TOO_LONG);
	assert_int_equal(ask(2, ROOST_HLL_REGISTERS, 0).len, 1u << 18);
	rig_close(r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(registers_are_the_models),
		cmocka_unit_test(estimates),
		cmocka_unit_test(forms_agree),
		cmocka_unit_test(items_across_pieces),
		cmocka_unit_test(sketches_are_merged),
		cmocka_unit_test(sketches_come_and_go),
		cmocka_unit_test(dropped_meanwhile),
		cmocka_unit_test(bad_parameters),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
