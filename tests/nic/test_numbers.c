/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Programs that have a slot one after the other: the numbers of QPs and the memory keys continue.
 * No number returns soon.
 */
#include <errno.h>
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
static struct key_counts keys_drawn;
static uint8_t *qpns, *keys; /* by number: used before */

static void start_program(unsigned pus, uint64_t seed, struct qp_numbers *numbers)
{
	struct world_shape shape = {
		.nics = 1,
		.pus = pus,
		.one_address = true,
		.qp_numbers = numbers,
		.keys = {.seed = {3, 4}, .bits = KEY_UPPER_BITS, .drawn = &keys_drawn}};

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
	assert_int_equal(keys[e.key >> KEY_LOW_BITS]++, 0);
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

/* ---- numbers rest for 60 s ---- */

#define SECOND	  1000000000ull
#define REST	  (NUMBERS_REST_S * SECOND)
#define FREE	  32 /* indices beside the QPs that stay */
#define PER_INDEX (NUMBERS_GENERATIONS / 2)

static struct nic_qp *many[NIC_MAX_QPS + 1];
static uint64_t ended[1u << 18]; /* by number below the slot: 1 + when its last QP ended */
static uint64_t now;		 /* ns; continues when programs end, as the machine's clock does */

static int create_qp(const struct ep *e, struct nic_qp **qp)
{
	static uint8_t ring[64] __attribute__((aligned(64))); /* no QP uses it */
	static struct roost_queue_index posted;
	static uint64_t wr_id;
	struct nic_qp_init q = {.type = NIC_QPT_RC,
				.pd = e->pd,
				.send_cq = e->scq,
				.recv_cq = e->scq,
				.sq = {ring, &wr_id, &posted, 1, 6},
				.now = now};
	int rc = nic_qp_create(e->nic, &q, qp);
	uint64_t was = rc ? 0 : ended[nic_qp_num(*qp) & 0x3ffff];

	if (was && now - (was - 1) < REST)
		fail_msg("number %#x returned after %g s", nic_qp_num(*qp),
			 (double)(now - (was - 1)) / SECOND);
	return rc;
}

static void destroy_qp(const struct ep *e, struct nic_qp *qp)
{
	ended[nic_qp_num(qp) & 0x3ffff] = now + 1;
	nic_qp_destroy(e->nic, qp);
}

/* Creates QPs until that fails. Returns their number. */
static unsigned fill(const struct ep *e, int error)
{
	unsigned n = 0;
	int rc;

	while ((rc = create_qp(e, &many[n])) == 0)
		n++;
	assert_int_equal(rc, error);
	return n;
}

/* Creates and destroys at most `most` QPs one after the other. Returns the number of QPs. */
static unsigned churn(const struct ep *e, unsigned most, uint64_t pause)
{
	struct nic_qp *qp;
	unsigned n = 0;

	for (; n < most && create_qp(e, &qp) == 0; n++) {
		now += pause;
		destroy_qp(e, qp);
	}
	return n;
}

/*
 * At any rate of creating and destroying QPs, no QP gets a number that was in use within the last
 * 60 s. Most of the table stays in use, so the numbers of few indices are used up soon. They can be
 * used again after 60 s, also by the next program of the slot, whose calls fail before that.
 */
static void qp_numbers_rest(void **state)
{
	struct qp_numbers *numbers = calloc(1, sizeof(*numbers));
	unsigned n, all;
	struct ep e;

	assert_non_null(numbers);
	now = 1000 * SECOND;
	start_program(1, 5, numbers);
	ep_init(&e, w, 0, &(struct ep_params){.only_cqs = true});
	n = fill(&e, -ENOMEM);
	assert_int_equal(n, NIC_MAX_QPS);
	for (unsigned i = 0; i < FREE; i++)
		destroy_qp(&e, many[--n]);
	/* at one in a millisecond, and at the highest rate */
	all = churn(&e, UINT32_MAX, SECOND / 1000);
	assert_true(all >= FREE * PER_INDEX && all <= FREE * NUMBERS_GENERATIONS);
	for (unsigned round = 0; round < 20; round++) {
		now += round % 4 ? REST + 2 * SECOND : REST / 2;
		all = churn(&e, UINT32_MAX, round % 2 ? 0 : SECOND / 10000);
		if (round % 4)
			assert_true(all >= FREE * PER_INDEX);
		else
			assert_int_equal(all, 0);
		assert_true(all <= FREE * NUMBERS_GENERATIONS);
	}
	/* At a lower rate, no QP is refused. */
	now += REST + 2 * SECOND;
	all = 10 * FREE * PER_INDEX;
	assert_int_equal(churn(&e, all, (REST + 2 * SECOND) / (FREE * PER_INDEX)), all);
	now += REST + 2 * SECOND;
	churn(&e, UINT32_MAX, 0);
	/* The program is killed, and the next one has the slot at once. */
	while (n)
		destroy_qp(&e, many[--n]);
	ep_fini(&e);
	world_fini(w);
	start_program(1, 5, numbers);
	ep_init(&e, w, 0, &(struct ep_params){.only_cqs = true});
	n = fill(&e, -EAGAIN);
	assert_int_equal(n, NIC_MAX_QPS - FREE);
	now += REST + 2 * SECOND;
	assert_int_equal(create_qp(&e, &many[n]), 0);
	for (n++; n;)
		destroy_qp(&e, many[--n]);
	ep_fini(&e);
	world_fini(w);
	free(numbers);
}

/*
 * When half of the windows' keys were drawn within 60 s, no further window is allocated, nor by the
 * next program. Regions have more keys, and are registered.
 */
static void window_keys_rest(void **state)
{
	const unsigned half = 1u << (KEY_UPPER_BITS - 2);
	struct qp_numbers *numbers = calloc(1, sizeof(*numbers));
	uint32_t key;

	assert_non_null(numbers);
	now = 1000 * SECOND;
	keys_drawn.windows = half - 2;
	keys_drawn.entered = numbers_second(now);
	for (unsigned program = 0; program < 2; program++) {
		struct ep e;

		start_program(1, 6, numbers);
		ep_init(&e, w, 0, &(struct ep_params){.depth = 1, .mem = 4096});
		for (unsigned i = 0; i < 2 && !program; i++) {
			assert_int_equal(nic_mw_alloc(e.nic, e.pd, 1 + i, now, &key), 0);
			assert_int_equal(nic_mw_dealloc(e.nic, key), 0);
		}
		now += REST / 2 - 1;
		assert_int_equal(nic_mw_alloc(e.nic, e.pd, 1, now, &key), -EAGAIN);
		assert_int_equal(nic_mw_alloc(e.nic, e.pd, 2, now, &key), -EAGAIN);
		if (program) {
			now += 2 * SECOND;
			assert_int_equal(nic_mw_alloc(e.nic, e.pd, 1, now, &key), 0);
			assert_int_equal(nic_mw_dealloc(e.nic, key), 0);
		}
		ep_fini(&e);
		world_fini(w);
	}
	free(numbers);
}

/*
 * The number of a QP tells nothing about those of the next and of the previous one. Each bit of the
 * index and of the generation changes half of the time, and differences do not repeat. Some QPs are
 * destroyed meanwhile.
 */
static void numbers_tell_nothing_of_others(void **state)
{
	enum { QPS = 4096 };
	static uint8_t seen[1u << 18]; /* differences */
	unsigned flips[18] = {0}, again = 0;
	uint32_t before = 0;
	struct ep e;

	now = 1000 * SECOND;
	memset(ended, 0, sizeof(ended));
	start_program(1, 7, NULL);
	ep_init(&e, w, 0, &(struct ep_params){.only_cqs = true});
	for (unsigned i = 0; i < QPS; i++) {
		uint32_t qpn;

		assert_int_equal(create_qp(&e, &many[i]), 0);
		qpn = nic_qp_num(many[i]);
		for (unsigned bit = 0; bit < 18 && i; bit++)
			flips[bit] += (qpn ^ before) >> bit & 1;
		again += i && seen[(qpn - before) & 0x3ffff]++ > 0;
		before = qpn;
		if (i % 4 == 3)
			destroy_qp(&e, many[i]);
	}
	for (unsigned bit = 0; bit < 18; bit++)
		assert_in_range(flips[bit], QPS / 2 - QPS / 16, QPS / 2 + QPS / 16);
	assert_in_range(again, 0, QPS / 64);
	for (unsigned i = 0; i < QPS; i++)
		if (i % 4 != 3)
			destroy_qp(&e, many[i]);
	ep_fini(&e);
	world_fini(w);
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

/* With any contents of the shared memory, the numbers are those of the slot and differ. */
static void nonsense(void **state)
{
	struct qp_numbers *bad = malloc(sizeof(*bad));
	struct ep e[40];

	assert_non_null(bad);
	memset(bad, 0xef, sizeof(*bad));
	start_program(1, 1, bad);
	for (unsigned i = 0; i < 40; i++) {
		memset(bad, i & 1 ? 0xef : 0x7f, sizeof(*bad));
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
		cmocka_unit_test(qp_numbers_rest),
		cmocka_unit_test(window_keys_rest),
		cmocka_unit_test(random_start),
		cmocka_unit_test(nonsense),
		cmocka_unit_test(numbers_tell_nothing_of_others),
	};

	return cmocka_run_group_tests(tests, setup, NULL);
}
