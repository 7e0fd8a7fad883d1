/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Shares of QPs: steps in turns, quotas, slots. Measured in turns and virtual time, not by the
 * clock.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "rig.h"

static struct rig R, *const r = &R;

/* walk: makes the number of reads that its parameters give. */
struct walk {
	uint64_t left, word;
};

static enum roost_next walk(struct roost_call *c)
{
	const uint64_t *p = c->params;
	struct walk *s = c->state;

	ROOST_STEPS(c);
	for (s->left = p[1]; s->left; s->left--)
		ROOST_READ(c, p[0], &s->word, 8);
	ROOST_REPLY(c, &s->word, 8);
	ROOST_STEPS_END;
}

static enum roost_next begin(struct roost_call *c)
{
	return ROOST_DONE;
}

/* 100 steps for each piece. */
static enum roost_next slowly(struct roost_call *c)
{
	struct walk *s = c->state;

	ROOST_STEPS(c);
	for (s->left = 99; s->left; s->left--)
		ROOST_WAIT(c, ROOST_AGAIN);
	s->word += c->len;
	if (c->last)
		ROOST_REPLY(c, &s->word, 8);
	ROOST_STEPS_END;
}

enum { WALK = 0x1000, SLOW };

static const struct roost_kernel walker = {.abi = ROOST_KERNEL_ABI,
					   .name = "walk",
					   .version = 1,
					   .op = WALK,
					   .state_size = sizeof(struct walk),
					   .params = walk},
				 slow = {.abi = ROOST_KERNEL_ABI,
					 .name = "slow",
					 .version = 1,
					 .op = SLOW,
					 .state_size = sizeof(struct walk),
					 .params = begin,
					 .payload = slowly};

static void open_rig(uint64_t seed)
{
	rig_open(r, seed,
		 &(struct rig_shape){.sp = {.delay_ns = 1000},
				     .cfg = {.calls = 64},
				     .mtu = 256,
				     .rnr_retry = 7,
				     .turn_ns = 500});
	assert_int_equal(runtime_deploy(r->f, &walker, NULL), 0);
	assert_int_equal(runtime_deploy(r->f, &slow, NULL), 0);
}

static void post(unsigned caller, unsigned slot, uint64_t reads, uint16_t flags)
{
	uint64_t p[2] = {(uintptr_t)r->node[caller].mem, reads};

	rig_post(r, caller, slot, WALK, p, sizeof(p), 8, flags);
}

static uint64_t steps(void)
{
	return rig_counters(r).steps;
}

static void until_steps(uint64_t n)
{
	while (steps() < n)
		assert_true(rig_step(r));
}

/* 60 calls of one QP, and one call of another, which gets every second step. */
static void a_step_each(void **state)
{
	uint64_t before;

	open_rig(1);
	for (unsigned i = 0; i < 60; i++)
		post(0, i, 1u << 20, 0);
	until_steps(1000);
	before = steps();
	post(1, 0, 5000, 0);
	assert_int_equal(rig_wait(r, 1, 0, 8).status, ROOST_RPC_OK);
	/* The packets to and from the node take some more turns. */
	assert_in_range(steps() - before, 2 * 5000, 2 * 5000 + 12 * 256);
	rig_close(r);
}

/* The steps of a turn are bounded, and the steps of a QP with a quota within it. */
static void quotas_of_steps(void **state)
{
	struct runtime_quota quota = {.steps = 16};
	uint64_t before;

	open_rig(2);
	for (unsigned i = 0; i < 60; i++)
		post(0, i, 1u << 20, 0);
	until_steps(1000);
	for (unsigned i = 0; i < 50; i++) {
		before = steps();
		rig_step(r);
		assert_in_range(steps() - before, 1, 256);
	}
	assert_int_equal(runtime_set_quota(r->f, r->node[0].qp, &quota), 0);
	for (unsigned i = 0; i < 50; i++) {
		before = steps();
		rig_step(r);
		assert_in_range(steps() - before, 1, 16);
	}
	/* The other QP gets the rest: 240 steps per turn. */
	before = steps();
	post(1, 0, 24000, 0);
	assert_int_equal(rig_wait(r, 1, 0, 8).status, ROOST_RPC_OK);
	assert_in_range(steps() - before, 24000 + 99 * 16, 24000 + 110 * 16);
	assert_int_equal(runtime_set_quota(r->f, r->node[0].qp, &(struct runtime_quota){0}), 0);
	before = steps();
	rig_step(r);
	assert_int_equal(steps() - before, 256);
	assert_int_equal(runtime_set_quota(r->f, r->caller[0].qp, &quota), -EINVAL);
	rig_close(r);
}

/* A piece of payload that needs more steps than a turn has is sent again, and continues. */
static void quotas_and_payload(void **state)
{
	open_rig(3);
	assert_int_equal(
		runtime_set_quota(r->f, r->node[0].qp, &(struct runtime_quota){.steps = 7}), 0);
	rig_post(r, 0, 0, SLOW, NULL, 0, 8, ROOST_RPC_STREAM);
	rig_post_payload(r, 0, SLOW, 2000);
	for (uint64_t before = 0; steps() < 8 * 100; before = steps()) {
		assert_in_range(steps() - before, 0, 7);
		assert_true(rig_step(r));
	}
	assert_int_equal(*(const uint64_t *)rig_wait(r, 0, 0, 8).data, 2000);
	rig_close(r);
}

static void quotas_of_calls(void **state)
{
	open_rig(4);
	assert_int_equal(
		runtime_set_quota(r->f, r->node[0].qp, &(struct runtime_quota){.calls = 3}), 0);
	for (unsigned i = 0; i < 10; i++)
		post(0, i, 10000, 0);
	for (unsigned i = 0; i < 50; i++)
		post(1, i, 10000, 0);
	until_steps(60000);
	assert_int_equal(rig_counters(r).calls, 53);
	assert_true(rig_counters(r).refused > 0);
	for (unsigned i = 0; i < 10; i++)
		assert_int_equal(rig_wait(r, 0, i, 8).status, ROOST_RPC_OK);
	for (unsigned i = 0; i < 50; i++)
		assert_int_equal(rig_wait(r, 1, i, 8).status, ROOST_RPC_OK);
	rig_close(r);
}

/* The ACK of a reply comes behind the next call (nic/ack_delay.h). */
static void a_quota_of_one_call(void **state)
{
	struct rig_reply reply;

	open_rig(5);
	assert_int_equal(
		runtime_set_quota(r->f, r->node[0].qp, &(struct runtime_quota){.calls = 1}), 0);
	nic_rpc_single_call(r->caller[0].qp, true);
	for (unsigned i = 0; i < 50; i++) {
		post(0, 0, 10, 0);
		while (!rig_poll(r, 0, 0, 8, &reply))
			rig_step(r);
		assert_int_equal(reply.status, ROOST_RPC_OK);
		rig_reap(r);
	}
	assert_int_equal(rig_counters(r).calls, 50);
	assert_int_equal(rig_counters(r).refused, 0);
	/* Two calls at a time are too many, as soon as the last ACK has come. */
	for (unsigned i = 0; i < 1000; i++)
		rig_step(r);
	post(0, 0, 1000, 0);
	post(0, 1, 1000, 0);
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(rig_wait(r, 0, i, 8).status, ROOST_RPC_OK);
	assert_true(rig_counters(r).refused > 0);
	rig_close(r);
}

/* Virtual time that 4,000 calls of caller 1 take, 8 at a time. */
static uint64_t time_of_calls(void)
{
	enum { CALLS = 4000, FLIGHT = 8 };
	uint64_t start = world_now(&r->w);
	bool busy[FLIGHT] = {false};
	unsigned posted = 0, done = 0;

	while (done < CALLS) {
		for (unsigned s = 0; s < FLIGHT; s++) {
			struct rig_reply a;

			if (busy[s] && rig_poll(r, 1, s, 8, &a)) {
				assert_int_equal(a.status, ROOST_RPC_OK);
				busy[s] = false;
				done++;
			}
			if (!busy[s] && posted < CALLS) {
				post(1, s, 10, 0);
				busy[s] = true;
				posted++;
			}
		}
		rig_reap(r);
		rig_step(r);
	}
	return world_now(&r->w) - start;
}

/*
 * One QP holds all its slots by replies that its caller does not take, and makes further calls: it
 * gets RNR NAKs. The other QP keeps 95% of its rate.
 */
static void full_slots_cost_others_nothing(void **state)
{
	uint64_t alone, beside, refused;

	open_rig(5);
	alone = time_of_calls();
	for (unsigned i = 0; i < 64; i++)
		post(0, i, 1, ROOST_RPC_IMM); /* no receives are posted for them */
	world_run(&r->w, world_now(&r->w) + MSEC);
	for (unsigned i = 0; i < 32; i++)
		post(0, i, 1, 0);
	world_run(&r->w, world_now(&r->w) + MSEC);
	refused = rig_counters(r).refused;
	assert_true(refused > 0);
	beside = time_of_calls();
	assert_true(rig_counters(r).refused > refused);
	assert_in_range(beside, 0, alone * 100 / 95);
	rig_close(r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_step_each),
		cmocka_unit_test(quotas_of_steps),
		cmocka_unit_test(quotas_and_payload),
		cmocka_unit_test(quotas_of_calls),
		cmocka_unit_test(a_quota_of_one_call),
		cmocka_unit_test(full_slots_cost_others_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
