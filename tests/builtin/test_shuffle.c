/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Compares the kernel `shuffle` with a plain model: each tuple is in its partition, in the order of
 * the stream, and no other memory is written.
 */
#include <endian.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/rng.h"
#include "builtin/builtin.h"
#include "builtin/shuffle_loop.h"
#include "rig.h"

#define PAYLOAD (RIG_MEM - RIG_PAYLOAD)
#define TABLE	0u	     /* in the node's memory */
#define OUT	(256u << 10) /* from here on, partitions */
#define PARTS	ROOST_SHUFFLE_PARTITIONS

static struct rig R, *const r = &R;
static uint8_t model[RIG_MEM];
static struct roost_shuffle_part table[PARTS];
static uint64_t counts[PARTS];

static void open_rig(const struct rig_shape *shape)
{
	rig_open(r, 1, shape);
	assert_int_equal(runtime_deploy(r->f, kernels_builtin("shuffle"), NULL), 0);
}

static struct roost_shuffle_params radix(uint32_t partitions, uint16_t tuple)
{
	return (struct roost_shuffle_params){
		.partitions = partitions, .tuple = tuple, .how = ROOST_SHUFFLE_RADIX};
}

/* Makes random tuples at `to`, with any keys (0) or this number of different ones. */
static void make_tuples(uint8_t *to, uint32_t bytes, struct rng *rng)
{
	for (uint32_t i = 0; i < bytes; i += 8) {
		uint64_t x = rng_u64(rng);

		memcpy(to + i, &x, 8);
	}
}

/*
 * Computes the expected memory in `model`, and makes the table and counts; the table begins behind
 * `used` tuples.
 */
static void run_model(const struct roost_shuffle_params *p, const uint8_t *tuples, uint32_t n,
		      uint32_t align)
{
	static uint64_t at[PARTS];

	memset(counts, 0, sizeof(counts));
	roost_shuffle_count(counts, p, tuples, n);
	assert_true(roost_shuffle_layout(table, counts, p, rig_va(r, OUT), align) <= RIG_MEM - OUT);
	for (uint32_t i = 0; i < p->partitions; i++)
		at[i] = table[i].addr - rig_va(r, 0);
	for (uint32_t i = 0; i < n; i++) {
		const uint8_t *t = tuples + (size_t)i * p->tuple;
		uint64_t key;
		uint32_t part;

		memcpy(&key, t + p->key, 8);
		part = p->how == ROOST_SHUFFLE_RADIX
			       ? (uint32_t)(key >> p->shift & (p->partitions - 1))
			       : (uint32_t)((roost_shuffle_hash(key) >> 32) * p->partitions >> 32);
		memcpy(model + at[part], t, p->tuple);
		at[part] += p->tuple;
	}
}

/* Makes a call with the `len` bytes of payload at RIG_PAYLOAD of the caller's memory. */
static unsigned stream(const struct roost_shuffle_params *p, uint32_t len, uint64_t *tuples)
{
	struct rig_reply a;

	rig_post(r, 0, 0, ROOST_SHUFFLE_OP, p, sizeof(*p), 8, ROOST_RPC_STREAM);
	rig_post_payload(r, 0, ROOST_SHUFFLE_OP, len);
	a = rig_wait(r, 0, 0, 8);
	if (tuples && a.status == ROOST_RPC_OK)
		memcpy(tuples, a.data, 8);
	world_run(&r->w, world_now(&r->w) + SEC);
	rig_reap(r);
	return a.status;
}

static void start_memory(void)
{
	memset(r->node[0].mem, 0x5a, RIG_MEM);
	memset(model, 0x5a, RIG_MEM);
}

/* The table in the region, or at the front of the payload. */
static void one(struct roost_shuffle_params p, uint32_t n, uint32_t align, bool in_region,
		struct rng *rng)
{
	uint32_t size = p.partitions * (uint32_t)sizeof(table[0]), front = in_region ? 0 : size;
	uint8_t *payload = r->caller[0].mem + RIG_PAYLOAD;
	uint64_t tuples = 0;

	if (front + n * p.tuple > PAYLOAD)
		n = (PAYLOAD - front) / p.tuple;
	start_memory();
	make_tuples(payload + front, n * p.tuple, rng);
	run_model(&p, payload + front, n, align);
	if (in_region) {
		memcpy(r->node[0].mem + TABLE, table, size);
		memcpy(model + TABLE, table, size);
		p.table = rig_va(r, TABLE);
	} else {
		memcpy(payload, table, size);
	}
	assert_int_equal(stream(&p, front + n * p.tuple, &tuples), ROOST_RPC_OK);
	assert_int_equal(le64toh(tuples), n);
	assert_memory_equal(r->node[0].mem, model, RIG_MEM);
}

static void all(const struct rig_shape *shape)
{
	static const uint32_t parts[] = {1, 2, 16, 1024, 4096, 8192};
	struct roost_shuffle_params p;
	struct rng rng;

	rng_seed(&rng, 2);
	open_rig(shape);
	for (unsigned i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
		for (uint16_t tuple = 8; tuple <= 128; tuple *= 2) {
			p = radix(parts[i], tuple);
			p.shift = (uint8_t)rng_below(&rng, 52);
			p.key = (uint16_t)(rng_below(&rng, tuple / 8) * 8);
			one(p, (uint32_t)rng_below(&rng, 20000), tuple, i & 1, &rng);
			p.how = ROOST_SHUFFLE_HASH;
			p.shift = 0;
			p.partitions -= i > 2 ? (uint32_t)rng_below(&rng, 1000) : 0;
			one(p, (uint32_t)rng_below(&rng, 20000), p.partitions > 2000 ? tuple : 128,
			    !(i & 1), &rng);
		}
	}
	one(radix(4, 8), 0, 8, true, &rng);
	one(radix(4, 8), 0, 8, false, &rng);
	rig_close(r);
}

static void partitions_are_the_models(void **state)
{
	all(&(struct rig_shape){.sp = {.delay_ns = 1000}, .mtu = 4096});
	all(&(struct rig_shape){.loop = true});
}

static void whatever_the_network_does(void **state)
{
	all(&(struct rig_shape){
		.sp = {.loss = 0.02, .dup = 0.02, .reorder = 0.02, .delay_ns = 1000}, .mtu = 512});
}

/* Two calls: the second appends to the partitions by the table in the region. */
static void calls_continue(void **state)
{
	struct roost_shuffle_params p = radix(64, 16);
	uint8_t *payload = r->caller[0].mem + RIG_PAYLOAD;
	struct rng rng;

	rng_seed(&rng, 3);
	open_rig(&(struct rig_shape){.sp = {.delay_ns = 1000}});
	start_memory();
	payload = r->caller[0].mem + RIG_PAYLOAD;
	make_tuples(payload, 16 * 3000, &rng);
	run_model(&p, payload, 3000, 16);
	memcpy(r->node[0].mem + TABLE, table, 64 * sizeof(table[0]));
	p.table = rig_va(r, TABLE);
	p.flags = ROOST_SHUFFLE_ADVANCE;
	assert_int_equal(stream(&p, 16 * 1111, NULL), ROOST_RPC_OK);
	memmove(payload, payload + 16 * 1111, 16 * (3000 - 1111));
	assert_int_equal(stream(&p, 16 * (3000 - 1111), NULL), ROOST_RPC_OK);
	for (unsigned i = 0; i < 64; i++)
		table[i] = (struct roost_shuffle_part){table[i].addr + table[i].len, 0};
	memcpy(model + TABLE, table, 64 * sizeof(table[0]));
	assert_memory_equal(r->node[0].mem, model, RIG_MEM);
	/* The partitions are full then. */
	assert_int_equal(stream(&p, 16, NULL), ROOST_SHUFFLE_FULL);
	assert_memory_equal(r->node[0].mem, model, RIG_MEM);
	rig_close(r);
}

/*
 * A partition that is one tuple too small, at any place in a line: an error, and no memory outside
 * of the partitions changes.
 */
static void overflow(void **state)
{
	struct rng rng;

	rng_seed(&rng, 4);
	open_rig(&(struct rig_shape){.sp = {.delay_ns = 1000}});
	for (uint32_t n = 1; n < 40; n++) {
		struct roost_shuffle_params p = radix(2, 8);
		uint8_t *payload = r->caller[0].mem + RIG_PAYLOAD;
		uint8_t *mem = r->node[0].mem;
		uint64_t low, high;

		start_memory();
		for (uint64_t i = 0; i < n; i++)
			memcpy(payload + 8 * i, &(uint64_t){2 * i}, 8);
		low = OUT + 8 * rng_below(&rng, 16);
		high = low + 8 * (n - 1);
		memcpy(mem + TABLE,
		       (struct roost_shuffle_part[]){{rig_va(r, low), high - low},
						     {rig_va(r, high), 0}},
		       sizeof(table[0]) * 2);
		p.table = rig_va(r, TABLE);
		assert_int_equal(stream(&p, 8 * n, NULL), ROOST_SHUFFLE_FULL);
		for (uint64_t i = TABLE + 32; i < RIG_MEM; i++)
			assert_true((i >= low && i < high) || mem[i] == 0x5a);
	}
	rig_close(r);
}

static void refused(void **state)
{
	struct roost_shuffle_params good = radix(4, 16), p;
	const struct {
		uint32_t offset;
		uint8_t value;
	} bad[] = {
		{offsetof(struct roost_shuffle_params, partitions), 0},
		{offsetof(struct roost_shuffle_params, partitions), 5},
		{offsetof(struct roost_shuffle_params, partitions) + 2, 1},
		{offsetof(struct roost_shuffle_params, tuple), 0},
		{offsetof(struct roost_shuffle_params, tuple), 4},
		{offsetof(struct roost_shuffle_params, tuple), 24},
		{offsetof(struct roost_shuffle_params, tuple) + 1, 1},
		{offsetof(struct roost_shuffle_params, key), 4},
		{offsetof(struct roost_shuffle_params, key), 16},
		{offsetof(struct roost_shuffle_params, how), 0},
		{offsetof(struct roost_shuffle_params, how), 3},
		{offsetof(struct roost_shuffle_params, shift), 64},
		{offsetof(struct roost_shuffle_params, flags), 2},
		{offsetof(struct roost_shuffle_params, reserved), 1},
	};
	uint8_t *payload = r->caller[0].mem + RIG_PAYLOAD;

	open_rig(&(struct rig_shape){.sp = {0}});
	payload = r->caller[0].mem + RIG_PAYLOAD;
	good.table = rig_va(r, TABLE);
	memset(r->node[0].mem, 0, RIG_MEM);
	for (unsigned i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		p = good;
		((uint8_t *)&p)[bad[i].offset] = bad[i].value;
		assert_int_equal(rig_call(r, ROOST_SHUFFLE_OP, &p, sizeof(p), 64).status,
				 ROOST_RPC_BAD_PARAMS);
	}
	assert_int_equal(rig_call(r, ROOST_SHUFFLE_OP, &good, sizeof(good) - 1, 64).status,
			 ROOST_RPC_BAD_PARAMS);
	p = good;
	p.table = 0;
	p.flags = ROOST_SHUFFLE_ADVANCE; /* without a table in the region */
	assert_int_equal(rig_call(r, ROOST_SHUFFLE_OP, &p, sizeof(p), 64).status,
			 ROOST_RPC_BAD_PARAMS);
	/*
	 * Incomplete tuples; an incomplete table; entries that are no multiples, or wrap around.
	 */
	assert_int_equal(stream(&good, 17, NULL), ROOST_RPC_BAD_PARAMS);
	p.flags = 0;
	assert_int_equal(stream(&p, 48, NULL), ROOST_RPC_BAD_PARAMS);
	memset(payload, 0, 256);
	payload[0] = 8;
	assert_int_equal(stream(&p, 64 + 16, NULL), ROOST_RPC_BAD_PARAMS);
	memset(payload, 0xf0, 16);
	assert_int_equal(stream(&p, 64 + 16, NULL), ROOST_RPC_BAD_PARAMS);
	/* A table, and partitions, outside of the region. */
	p = good;
	p.table = rig_va(r, RIG_MEM) - 8;
	assert_int_equal(stream(&p, 16, NULL), ROOST_RPC_ACCESS);
	table[0] = (struct roost_shuffle_part){rig_va(r, RIG_MEM) - 64, 4096};
	memcpy(r->node[0].mem + TABLE, table, sizeof(table[0]));
	memset(payload, 0, 4096);
	assert_int_equal(stream(&good, 16 * 8, NULL),
			 ROOST_RPC_ACCESS); /* one line, of which half is outside */
	assert_int_equal(stream(&good, 16 * 4, NULL), ROOST_RPC_OK);
	/* Unannounced tuples. */
	rig_post_payload(r, 0, ROOST_SHUFFLE_OP, 800);
	world_run(&r->w, world_now(&r->w) + SEC);
	assert_int_equal(stream(&good, 16 * 4, NULL), ROOST_RPC_OK);
	rig_close(r);
}

/* More calls than benches; the benches of a QP that ends are freed. */
static void benches(void **state)
{
	struct roost_shuffle_params p = radix(4, 8);
	uint64_t op = ROOST_SHUFFLE_OP;

	open_rig(&(struct rig_shape){.sp = {.delay_ns = 1000}});
	memset(r->node[0].mem, 0, RIG_MEM);
	p.table = rig_va(r, TABLE);
	for (unsigned round = 0; round < 40; round++) /* each ends */
		assert_int_equal(stream(&p, 0, NULL), ROOST_RPC_OK);
	for (unsigned round = 0; round < 40; round++) /* with an error, too */
		assert_int_equal(stream(&p, 8, NULL), ROOST_SHUFFLE_FULL);
	for (unsigned round = 0; round < 40; round++) {
		rig_post(r, 1, 0, op, &p, sizeof(p), 8, ROOST_RPC_STREAM);
		world_run(&r->w, world_now(&r->w) + SEC);
		ep_fini(&r->node[1]);
		ep_fini(&r->caller[1]);
		ep_init(&r->caller[1], &r->w, 0,
			&(struct ep_params){
				.rpc = true, .mem = RIG_MEM, .mtu = 1024, .depth = 128});
		ep_init(&r->node[1], &r->w, 1,
			&(struct ep_params){
				.rpc = true, .mem = RIG_MEM, .mtu = 1024, .depth = 128});
		ep_connect(&r->caller[1], &r->node[1]);
	}
	assert_int_equal(stream(&p, 0, NULL), ROOST_RPC_OK);
	rig_close(r);
}

static int into(void *ctx, uint64_t va, const void *buf, uint32_t len)
{
	memcpy((uint8_t *)ctx + va, buf, len);
	return 0;
}

/* Both implementations of the loop, for any number of tuples at any alignment. */
static void forms_agree(void **state)
{
	static uint64_t at[2][64];
	static struct shuffle_bounds bounds[2][64];
	static uint8_t lines[2][64 * ROOST_SHUFFLE_LINE] __attribute__((aligned(128))),
		out[2][64 << 14], data[40000];
	struct rng rng;

	rng_seed(&rng, 5);
	for (unsigned round = 0; round < 300; round++) {
		struct roost_shuffle_params p = radix(64, 8);
		struct shuffle_work w[2];

		if (round & 1)
			p.how = ROOST_SHUFFLE_HASH,
			p.partitions = 1 + (uint32_t)rng_below(&rng, 64);
		else
			p.shift = (uint8_t)(round % 64);
		make_tuples(data, sizeof(data), &rng);
		memset(out, 0, sizeof(out));
		for (unsigned k = 0; k < 2; k++) {
			w[k] = (struct shuffle_work){p, at[k], bounds[k], lines[k], into, out[k]};
			for (unsigned i = 0; i < 64; i++) {
				at[k][i] = bounds[k][i].from = (i << 14) + 8 * (i + round) % 256;
				bounds[k][i].end = (i + 1) << 14;
			}
		}
		for (unsigned piece = 0; piece < 6; piece++) {
			size_t n = rng_below(&rng, 300), off = rng_below(&rng, 30000);

			assert_int_equal(shuffle_plain(&p)(&w[0], data + off, n), SHUFFLE_OK);
			assert_int_equal(shuffle_best(&p)(&w[1], data + off, n), SHUFFLE_OK);
		}
		for (unsigned i = 0; i < 64; i++)
			for (unsigned k = 0; k < 2; k++)
				assert_int_equal(shuffle_flush(&w[k], i), SHUFFLE_OK);
		assert_memory_equal(at[0], at[1], sizeof(at[0]));
		assert_memory_equal(out[0], out[1], sizeof(out[0]));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(partitions_are_the_models),
		cmocka_unit_test(whatever_the_network_does),
		cmocka_unit_test(calls_continue),
		cmocka_unit_test(overflow),
		cmocka_unit_test(refused),
		cmocka_unit_test(benches),
		cmocka_unit_test(forms_agree),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
