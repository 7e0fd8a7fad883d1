/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Programs that have a slot one after the other: the numbers of QPs and the memory keys continue.
 * None returns soon.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "nic/mr.h"
#include "world.h"

#define NUMBERS (1u << 24)

static struct world W, *const w = &W;
static struct qp_numbers slots[4];
static _Atomic uint32_t keys_drawn;
static uint8_t *qpns, *keys; /* by number: used before */

static void start_program(unsigned pus, uint64_t seed, struct qp_numbers *numbers)
{
	struct world_shape shape = {
		.nics = 1,
		.pus = pus,
		.one_address = true,
		.qp_numbers = numbers,
		.keys = {.seed = {3, 4}, .bits = MR_SEQUENCE_BITS, .next = &keys_drawn}};

	world_init_shape(w, &shape, seed, NULL);
}

static void use_qp(unsigned pu)
{
	struct ep e;
	uint32_t qpn;

	ep_init(&e, w, 0, &(struct ep_params){.pu = (uint8_t)pu, .mem = 4096, .depth = 1});
	qpn = nic_qp_num(e.qp);
	assert_int_equal(qpn >> 18, pu);
	assert_int_equal(qpns[qpn]++, 0);
	assert_int_equal(keys[e.key >> MR_LOW_BITS]++, 0);
	ep_fini(&e);
}

/* All start with one seed, which would give each of them the same numbers. */
static void numbers_continue(void **state)
{
	static const unsigned pus[] = {1, 1, 4, 2, 1, 3, 4, 1};

	for (unsigned i = 0; i < sizeof(pus) / sizeof(pus[0]); i++) {
		start_program(pus[i], 1, slots);
		for (unsigned n = 0; n < 200; n++)
			use_qp(n % pus[i]);
		world_fini(w);
	}
}

/* Nearly all numbers of a slot, by several programs: a generation is not skipped. */
static void numbers_last_long(void **state)
{
	for (unsigned program = 0; program < 8; program++) {
		start_program(1, 2, slots);
		for (unsigned n = 0; n < NIC_MAX_QPS / 4; n++)
			use_qp(0);
		world_fini(w);
	}
}

/* Without a pool that remembers, the start is random. */
static void random_start(void **state)
{
	struct ep e;
	uint32_t first[2];

	for (unsigned i = 0; i < 2; i++) {
		struct qp_numbers *fresh = calloc(1, sizeof(*fresh));

		assert_non_null(fresh);
		start_program(1, i, fresh);
		ep_init(&e, w, 0, &(struct ep_params){0});
		first[i] = nic_qp_num(e.qp);
		ep_fini(&e);
		world_fini(w);
		free(fresh);
	}
	assert_int_not_equal(first[0] >> 4, first[1] >> 4);
}

/* Whatever is in the memory that others may write, the numbers are those of the slot and differ. */
static void nonsense(void **state)
{
	struct qp_numbers *bad = malloc(sizeof(*bad));
	struct ep e[40];

	assert_non_null(bad);
	memset(bad, 0xff, sizeof(*bad));
	start_program(1, 1, bad);
	for (unsigned i = 0; i < 40; i++) {
		memset(bad, i & 1 ? 0xff : 0x7f, sizeof(*bad));
		ep_init(&e[i], w, 0, &(struct ep_params){.depth = 1, .mem = 4096});
		assert_int_equal(nic_qp_num(e[i].qp) >> 18, 0);
		for (unsigned k = 0; k < i; k++)
			assert_int_not_equal(nic_qp_num(e[i].qp) >> 4, nic_qp_num(e[k].qp) >> 4);
	}
	for (unsigned i = 0; i < 40; i++)
		ep_fini(&e[i]);
	world_fini(w);
	free(bad);
}

static int setup(void **state)
{
	qpns = calloc(NUMBERS, 1);
	keys = calloc(NUMBERS, 1);
	return !qpns || !keys;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(numbers_continue),
		cmocka_unit_test(numbers_last_long),
		cmocka_unit_test(random_start),
		cmocka_unit_test(nonsense),
	};

	return cmocka_run_group_tests(tests, setup, NULL);
}
