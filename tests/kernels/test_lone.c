/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A call that is alone in its turn: accesses are done at once, with the same checks, bounds and
 * counters.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/guard.h"
#include "rig.h"

static struct rig R, *const r = &R;

enum { OP = 0x1000, TURN = 256 };

struct params {
	/* after `reads` reads, one reads `outside` if that is not 0 */
	uint64_t at, reads, outside;
};

struct state {
	uint64_t left, word, old;
};

static unsigned entered; /* how often the kernel was called */

/* Writes, copies and swaps a word, then reads it repeatedly. */
static enum roost_next work(struct roost_call *c)
{
	const struct params *p = c->params;
	struct state *s = c->state;

	entered++;
	ROOST_STEPS(c);
	s->word = 0x1111;
	ROOST_WRITE(c, p->at, &s->word, 8);
	ROOST_COPY(c, p->at + 8, p->at, 8);
	s->old = 0x1111;
	ROOST_CAS(c, p->at + 8, &s->old, 0x2222);
	for (s->left = p->reads; s->left; s->left--)
		ROOST_READ(c, p->at + 8, &s->word, 8);
	if (p->outside) {
		ROOST_READ(c, p->outside, &s->word, 8);
		ROOST_WRITE(c, p->at, &s->word, 8);
	}
	s->word += s->old << 16;
	ROOST_REPLY(c, &s->word, 8);
	ROOST_STEPS_END;
}

static const struct roost_kernel kernel = {.abi = ROOST_KERNEL_ABI,
					   .name = "work",
					   .version = 1,
					   .op = OP,
					   .state_size = sizeof(struct state),
					   .params = work};

static void open_rig(uint64_t seed, uint32_t max_steps)
{
	rig_open(r, seed,
		 &(struct rig_shape){.sp = {.delay_ns = 1000},
				     .cfg = {.max_steps = max_steps},
				     .turn_ns = 500});
	assert_int_equal(runtime_deploy(r->f, &kernel, NULL), 0);
	entered = 0;
}

static void post(unsigned slot, uint64_t reads, uint64_t outside)
{
	struct params p = {rig_va(r, 64 * slot), reads, outside};

	rig_post(r, 0, slot, OP, &p, sizeof(p), 8, 0);
}

static void expect_words(unsigned slot, const struct rig_reply *reply)
{
	const uint64_t *at = (const void *)(r->node[0].mem + 64 * slot);
	uint64_t word;

	assert_int_equal(reply->status, ROOST_RPC_OK);
	assert_int_equal(reply->len, 8);
	memcpy(&word, reply->data, 8);
	assert_int_equal(word, 0x11112222);
	assert_int_equal(at[0], 0x1111);
	assert_int_equal(at[1], 0x2222);
}

/*
 * The kernel is entered for the first step, and once per turn. Its steps are counted as usual, and
 * the watchdog sees each as a separate step.
 */
static void one_call_goes_on(void **state)
{
	struct rig_reply reply;

	open_rig(1, 0);
	post(0, 10 * TURN, 0);
	reply = rig_wait(r, 0, 0, 8);
	expect_words(0, &reply);
	assert_int_equal(rig_counters(r).steps, 4 + 10 * TURN);
	assert_int_equal(atomic_load(&runtime_guard(r->f, 0)->steps), 2 * (4 + 10 * TURN));
	assert_in_range(entered, 11, 13);
	rig_close(r);
}

/* No packet follows and no other call waits: the call ends without another turn. */
static void ends_where_it_came_in(void **state)
{
	struct rig_reply reply;

	open_rig(6, 0);
	post(0, 200, 0);
	reply = rig_wait(r, 0, 0, 8);
	expect_words(0, &reply);
	assert_int_equal(rig_counters(r).steps, 204);
	assert_int_equal(entered, 1);
	/* Two calls in one burst: neither is alone. */
	post(0, 200, 0);
	post(1, 200, 0);
	for (unsigned slot = 0; slot < 2; slot++) {
		reply = rig_wait(r, 0, slot, 8);
		expect_words(slot, &reply);
	}
	assert_in_range(entered, 1 + 2 * 200, 1 + 2 * 204);
	rig_close(r);
}

/* With several calls each access is a separate step, and the calls take turns. */
static void several_take_turns(void **state)
{
	open_rig(2, 0);
	for (unsigned slot = 0; slot < 4; slot++)
		post(slot, 300, 0);
	for (unsigned slot = 0; slot < 4; slot++) {
		struct rig_reply reply = rig_wait(r, 0, slot, 8);

		expect_words(slot, &reply);
	}
	assert_int_equal(rig_counters(r).steps, 4 * 304);
	/* The first call may have been alone before the others came, the last after they ended. */
	assert_in_range(entered, 4 * 304 - 2 * 304, 4 * 304);
	rig_close(r);
}

static void refused_as_ever(void **state)
{
	struct rig_reply reply;
	uint64_t before;

	open_rig(3, 0);
	post(0, 20, (uintptr_t)r->node[0].mem + RIG_MEM - 7);
	reply = rig_wait(r, 0, 0, 8);
	assert_int_equal(reply.status, ROOST_RPC_ACCESS);
	assert_int_equal(rig_counters(r).access, 1);
	memcpy(&before, r->node[0].mem, 8);
	assert_int_equal(before, 0x1111);
	post(1, 20, 0);
	reply = rig_wait(r, 0, 1, 8);
	expect_words(1, &reply);
	rig_close(r);
}

static void bounded_as_ever(void **state)
{
	open_rig(4, 500);
	post(0, 497, 0);
	assert_int_equal(rig_wait(r, 0, 0, 8).status, ROOST_RPC_BOUND);
	assert_int_equal(rig_counters(r).steps, 500);
	post(0, 496, 0);
	assert_int_equal(rig_wait(r, 0, 0, 8).status, ROOST_RPC_OK);
	rig_close(r);
}

static void quotas_as_ever(void **state)
{
	struct rig_reply reply;

	open_rig(5, 0);
	assert_int_equal(
		runtime_set_quota(r->f, r->node[0].qp, &(struct runtime_quota){.steps = 10}), 0);
	post(0, 200, 0);
	reply = rig_wait(r, 0, 0, 8);
	expect_words(0, &reply);
	assert_int_equal(rig_counters(r).steps, 204);
	assert_in_range(entered, 20, 23);
	rig_close(r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_call_goes_on), cmocka_unit_test(several_take_turns),
		cmocka_unit_test(refused_as_ever),  cmocka_unit_test(bounded_as_ever),
		cmocka_unit_test(quotas_as_ever),   cmocka_unit_test(ends_where_it_came_in),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
