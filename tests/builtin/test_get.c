/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Compares the kernel `get` with a plain model: tables of both schemes, full and empty, and tables
 * with invalid pointers.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/rng.h"
#include "builtin/builtin.h"
#include "rig.h"
#include "roost/get.h"

#define ENTRIES 64u
#define MORE	64u
#define TABLE	4096u
#define VALUES	65536u
#define SPACE	1024u

static struct rig R, *const r = &R;

static struct roost_get_entry *table(void)
{
	return (struct roost_get_entry *)(r->node[0].mem + TABLE);
}

static void open_rig(const struct sim_params *sp)
{
	rig_open(r, 1, &(struct rig_shape){.sp = *sp});
	assert_int_equal(runtime_deploy(r->f, kernels_builtin("get"), NULL), 0);
}

static struct rig_reply get(uint64_t key, uint32_t flags, uint32_t bound)
{
	struct roost_get_params p = roost_get_params(rig_va(r, TABLE), ENTRIES, key, flags);

	if (bound)
		p.bound = bound;
	return rig_call(r, ROOST_GET_OP, &p, sizeof(p), SPACE);
}

/* Value and length of a key depend on its number in the order of insertion. */
static uint32_t len_of(unsigned i)
{
	return i % 7 ? i * 13 % SPACE : 0;
}

static unsigned fill(uint64_t *keys, unsigned n, uint32_t flags, struct rng *rng)
{
	uint32_t used = 0;
	unsigned i;

	memset(table(), 0, sizeof(struct roost_get_entry) * (ENTRIES + MORE));
	for (i = 0; i < n; i++) {
		uint64_t value = VALUES + (uint64_t)i * 1024;

		keys[i] = rng_u64(rng);
		for (uint32_t k = 0; k < len_of(i); k++)
			r->node[0].mem[value + k] = (uint8_t)(i * 31 + k);
		if (roost_get_insert(table(), ENTRIES, MORE, &used, keys[i], rig_va(r, value),
				     len_of(i), flags))
			break;
	}
	return i;
}

static void check_all(const uint64_t *keys, unsigned n, uint32_t flags, struct rng *rng)
{
	for (unsigned i = 0; i < n; i++) {
		struct rig_reply a = get(keys[i], flags, 0);

		assert_int_equal(a.status, ROOST_RPC_OK);
		assert_int_equal(a.len, len_of(i));
		for (uint32_t k = 0; k < a.len; k++)
			assert_int_equal(a.data[k], (uint8_t)(i * 31 + k));
	}
	for (unsigned i = 0; i < 100; i++)
		assert_int_equal(get(rng_u64(rng), flags, 0).status, ROOST_RPC_MISS);
}

static void tables(const struct sim_params *sp)
{
	static const unsigned loads[] = {0, 1, 50, 150, 170, 190};
	uint64_t keys[512];
	struct rng rng;

	rng_seed(&rng, 7);
	open_rig(sp);
	for (unsigned i = 0; i < sizeof(loads) / sizeof(loads[0]); i++) {
		assert_int_equal(fill(keys, loads[i], 0, &rng), loads[i]);
		check_all(keys, loads[i], 0, &rng);
		assert_int_equal(fill(keys, loads[i], ROOST_GET_PROBE, &rng), loads[i]);
		check_all(keys, loads[i], ROOST_GET_PROBE, &rng);
	}
	/* As full as possible with chains. */
	check_all(keys, fill(keys, 350, 0, &rng), 0, &rng);
	rig_close(r);
}

static void hits_and_misses(void **state)
{
	tables(&(struct sim_params){.delay_ns = 1000});
}

static void over_a_bad_link(void **state)
{
	tables(&(struct sim_params){.loss = 0.05, .dup = 0.05, .delay_ns = 1000});
}

/* A table without a free bucket and a chain with a cycle: the call ends at the bound. */
static void bounds(void **state)
{
	uint64_t keys[ENTRIES * 3];
	struct rng rng;

	rng_seed(&rng, 8);
	open_rig(&(struct sim_params){0});
	assert_int_equal(fill(keys, ENTRIES * 3, ROOST_GET_PROBE, &rng), ENTRIES * 3);
	assert_int_equal(get(1, ROOST_GET_PROBE, 64).status, ROOST_RPC_BOUND);
	assert_int_equal(get(1, ROOST_GET_PROBE, 1).status, ROOST_RPC_BOUND);
	for (unsigned i = 0; i < ENTRIES; i++)
		table()[i].next = (i ^ 1) + 1;
	assert_int_equal(get(1, 0, 1000).status, ROOST_RPC_BOUND);
	rig_close(r);
}

/* Tables and values that point out of the region. */
static void astray(void **state)
{
	struct roost_get_params p;
	uint64_t keys[4];
	struct rng rng;

	rng_seed(&rng, 9);
	open_rig(&(struct sim_params){0});
	fill(keys, 4, 0, &rng);
	for (unsigned i = 0; i < ENTRIES; i++)
		table()[i].next = UINT32_MAX;
	assert_int_equal(get(12345, 0, 0).status, ROOST_RPC_ACCESS);
	for (unsigned i = 0; i < ENTRIES; i++)
		for (unsigned k = 0; k < 3; k++)
			table()[i].bucket[k] =
				(struct roost_get_bucket){77, rig_va(r, RIG_MEM - 8), 16};
	assert_int_equal(get(77, 0, 0).status, ROOST_RPC_ACCESS);
	/* A value that is longer than the caller's buffer. */
	for (unsigned i = 0; i < ENTRIES; i++)
		table()[i].bucket[0] = (struct roost_get_bucket){77, rig_va(r, 0), SPACE + 1};
	assert_int_equal(get(77, 0, 0).status, ROOST_RPC_TOO_LONG);
	assert_int_equal(get(77, 0, 0).len, SPACE + 1);
	p = roost_get_params(rig_va(r, RIG_MEM - 64 * (ENTRIES / 2)), 1ull << 40, 5,
			     ROOST_GET_PROBE);
	assert_int_equal(rig_call(r, ROOST_GET_OP, &p, sizeof(p), SPACE).status, ROOST_RPC_ACCESS);
	rig_close(r);
}

static void bad_parameters(void **state)
{
	struct roost_get_params p;

	open_rig(&(struct sim_params){0});
	for (uint32_t n = 0; n < 60; n++) {
		uint8_t some[60] = {0};

		if (n != sizeof(p))
			assert_int_equal(rig_call(r, ROOST_GET_OP, some, n, SPACE).status,
					 ROOST_RPC_BAD_PARAMS);
	}
	p = roost_get_params(rig_va(r, TABLE), 48, 5, 0);
	assert_int_equal(rig_call(r, ROOST_GET_OP, &p, sizeof(p), SPACE).status,
			 ROOST_RPC_BAD_PARAMS);
	p = roost_get_params(rig_va(r, TABLE), 64, 5, 2);
	assert_int_equal(rig_call(r, ROOST_GET_OP, &p, sizeof(p), SPACE).status,
			 ROOST_RPC_BAD_PARAMS);
	p.flags = 0;
	p.bound = 0;
	assert_int_equal(rig_call(r, ROOST_GET_OP, &p, sizeof(p), SPACE).status,
			 ROOST_RPC_BAD_PARAMS);
	rig_close(r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(hits_and_misses), cmocka_unit_test(over_a_bad_link),
		cmocka_unit_test(bounds),	   cmocka_unit_test(astray),
		cmocka_unit_test(bad_parameters),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
