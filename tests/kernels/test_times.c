/* SPDX-License-Identifier: BSD-2-Clause */
/* Durations of calls on the node, which the drive reports in whole turns. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "rig.h"

static struct rig R, *const r = &R;

enum { OP = 0x1000, TURN_NS = 700, TURN_STEPS = 256 };

/* Takes the number of steps that its parameters give. */
static enum roost_next steps(struct roost_call *c)
{
	uint64_t *left = c->state;

	ROOST_STEPS(c);
	if (c->params_len != sizeof(*left))
		ROOST_FAIL(c, ROOST_RPC_BAD_PARAMS);
	for (*left = *(const uint64_t *)c->params; *left > 1; --*left)
		ROOST_WAIT(c, (c->ask = ROOST_ASK_NONE, ROOST_AGAIN));
	ROOST_REPLY(c, NULL, 0);
	ROOST_STEPS_END;
}

static enum roost_next swallow(struct roost_call *c)
{
	return ROOST_DONE;
}

static const struct roost_kernel kernel = {.abi = ROOST_KERNEL_ABI,
					   .name = "steps",
					   .version = 1,
					   .op = OP,
					   .state_size = 8,
					   .params = steps,
					   .payload = swallow};

static void open_rig(uint64_t seed, bool loop, bool timed)
{
	rig_open(r, seed,
		 &(struct rig_shape){.sp = {.delay_ns = 1000},
				     .cfg = {.timed = timed},
				     .loop = loop,
				     .turn_ns = TURN_NS});
	assert_int_equal(runtime_deploy(r->f, &kernel, NULL), 0);
}

static void call(uint64_t num_steps, unsigned times)
{
	while (times--)
		assert_int_equal(rig_call(r, OP, &num_steps, sizeof(num_steps), 0).status,
				 ROOST_RPC_OK);
}

static struct runtime_kernel_info info_of(unsigned i)
{
	struct runtime_kernel_info info;

	assert_true(runtime_kernel_info(r->f, i, &info));
	assert_int_equal(info.in_flight, 0);
	return info;
}

/* A call takes one turn, or as many as its steps need; percentiles are over all calls. */
static void whole_turns(void **state)
{
	struct runtime_times t;

	for (int loop = 0; loop < 2; loop++) {
		open_rig(1, loop, true);
		t = info_of(0).times;
		assert_int_equal(t.count, 0);
		call(1, 90);
		t = info_of(0).times;
		assert_int_equal(t.count, 90);
		assert_int_equal(t.p50, TURN_NS);
		assert_int_equal(t.max, TURN_NS);
		call(10 * TURN_STEPS, 10);
		t = info_of(0).times;
		assert_int_equal(t.count, 100);
		assert_in_range(t.p50, TURN_NS, TURN_NS + TURN_NS / 64);
		assert_in_range(t.p99, 10 * TURN_NS, 12 * TURN_NS);
		assert_in_range(t.max, t.p99, 12 * TURN_NS);
		rig_close(r);
	}
}

/* Calls of two kernels that end in one turn: each kernel counts its own. */
static void many_in_a_turn(void **state)
{
	struct roost_kernel other = kernel;
	uint64_t one = 1, many = 5 * TURN_STEPS;
	struct runtime_times t;

	other.op = OP + 1;
	open_rig(6, false, true);
	assert_int_equal(runtime_deploy(r->f, &other, NULL), 0);
	/* in runs of three, and the first one takes longer than the others */
	for (unsigned i = 0; i < 24; i++)
		rig_post(r, 0, i, i / 3 % 2 ? OP + 1 : OP, i ? &one : &many, sizeof(one), 0, 0);
	for (unsigned i = 0; i < 24; i++)
		assert_int_equal(rig_wait(r, 0, i, 0).status, ROOST_RPC_OK);
	for (unsigned k = 0; k < 2; k++) {
		t = info_of(k).times;
		assert_int_equal(t.count, 12);
		assert_in_range(t.p50, TURN_NS, 2 * TURN_NS);
		if (k)
			assert_in_range(t.max, TURN_NS, 2 * TURN_NS);
		else
			assert_in_range(t.max, 5 * TURN_NS, 8 * TURN_NS);
	}
	rig_close(r);
}

/* Time counts from the parameters, however late the payload is; failed calls count too. */
static void with_payload(void **state)
{
	uint64_t one = 1, began;
	struct runtime_times t;

	open_rig(2, false, true);
	rig_post_payload(r, 0, OP, 3000);
	began = world_now(&r->w);
	while (!rig_counters(r).ended_ok)
		assert_true(rig_step(r) && world_now(&r->w) < began + SEC);
	t = info_of(0).times;
	assert_int_equal(t.count, 1);
	assert_in_range(t.max, TURN_NS, 10 * TURN_NS);
	assert_int_equal(rig_call(r, OP, &one, 3, 0).status, ROOST_RPC_BAD_PARAMS);
	t = info_of(0).times;
	assert_int_equal(t.count, 2);
	rig_close(r);
}

/* Each version has separate times; a kernel runtime that is not `timed` has none. */
static void versions(void **state)
{
	struct roost_kernel next = kernel;
	struct kernel_version *s;

	open_rig(3, false, true);
	call(1, 3);
	next.version = 2;
	assert_int_equal(
		runtime_prepare(r->f, &(struct runtime_registration){.k = &next, .replace = true},
				&s),
		0);
	runtime_publish(r->f, s);
	call(1, 2);
	runtime_reap(r->f);
	assert_int_equal(info_of(0).times.count, 2);
	assert_int_equal(info_of(0).ctr.calls, 5);
	rig_close(r);

	open_rig(4, false, false);
	call(1, 3);
	assert_int_equal(info_of(0).times.count, 0);
	rig_close(r);
}

/* A call uses its version until the end of the turn is reported. */
static void nobody_tells(void **state)
{
	struct runtime_kernel_info info;
	uint64_t one = 1;

	open_rig(5, true, true);
	rig_post(r, 0, 0, OP, &one, sizeof(one), 0, 0);
	while (!rig_counters(r).ended_ok) {
		nic_poll(r->w.nic[0], 0, world_now(&r->w));
		sim_advance(r->w.sim, world_now(&r->w) + 100);
	}
	assert_true(nic_turn_end_requested(r->w.nic[0], 0));
	assert_true(runtime_kernel_info(r->f, 0, &info));
	assert_true(info.in_flight > 0);
	assert_int_equal(runtime_unload(r->f, OP), 0);
	runtime_reap(r->f);
	rig_close(r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(whole_turns),	cmocka_unit_test(many_in_a_turn),
		cmocka_unit_test(with_payload), cmocka_unit_test(versions),
		cmocka_unit_test(nobody_tells),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
