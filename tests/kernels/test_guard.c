/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Kernels that crash, and calls that end without their kernel: callers get a status, and the NIC
 * and other calls continue.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <cmocka.h>

#include "../common/handlers.h"
#include "rig.h"

static struct rig R, *const r = &R;

/* ---- kernels ---- */

enum how { NULL_POINTER, NO_ACCESS, FILE_END, DIVIDE, NO_INSTRUCTION, HOWS };

static uint8_t *forbidden, *beyond;

static void __attribute__((no_sanitize("undefined"))) crash(uint64_t how)
{
	switch (how) {
	case NULL_POINTER:
		*(volatile uint8_t *)(uintptr_t)(how * 8) = 1;
		break;
	case NO_ACCESS:
		*(volatile uint8_t *)forbidden = 1;
		break;
	case FILE_END:
		*(volatile uint8_t *)beyond = 1;
		break;
#ifdef __x86_64__
	case DIVIDE:
		asm volatile("xor %%ecx, %%ecx\n\txor %%edx, %%edx\n\tidivl %%ecx" ::
				     : "eax", "ecx", "edx", "cc");
		break;
	case NO_INSTRUCTION:
		asm volatile(".byte 0x0f, 0x0b"); /* ud2, which base/undefined.h replaces */
		break;
#endif
	}
	*(volatile uint8_t *)forbidden = 1;
}

struct state {
	uint64_t word, log;
};

/* Crashes in the step after its first READ, in the way of its parameters; 99: never ends. */
static enum roost_next bad(struct roost_call *c)
{
	struct state *s = c->state;

	ROOST_STEPS(c);
	ROOST_READ(c, ((const uint64_t *)c->params)[0], &s->word, 8);
	while (((const uint64_t *)c->params)[1] == 99)
		ROOST_READ(c, ((const uint64_t *)c->params)[0], &s->word, 8);
	crash(((const uint64_t *)c->params)[1]);
	ROOST_STEPS_END;
}

static enum roost_next begin(struct roost_call *c)
{
	return ROOST_DONE;
}

static enum roost_next bad_payload(struct roost_call *c)
{
	if (c->offset > 1000)
		crash(NO_ACCESS);
	return ROOST_DONE;
}

static enum roost_next good(struct roost_call *c)
{
	struct state *s = c->state;

	ROOST_STEPS(c);
	ROOST_READ(c, *(const uint64_t *)c->params, &s->word, 8);
	ROOST_REPLY(c, &s->word, 8);
	ROOST_STEPS_END;
}

static enum roost_next better(struct roost_call *c)
{
	return roost_reply(c, ROOST_RPC_OK, "better", 6);
}

enum { BAD = 0x1000, GOOD, BORROWER };

#define KERNEL(n, o, s, ...)                                                                       \
	{                                                                                          \
		.abi = ROOST_KERNEL_ABI, .version = 1, .name = n, .op = o, .state_size = s,        \
		__VA_ARGS__                                                                        \
	}

static volatile unsigned stopped, cuts; /* volatile: counted before a crash, which is a jump */

static void count_stop(void *self)
{
	stopped++;
}

static void bad_cut(struct roost_call *c)
{
	cuts++;
}

static const struct roost_kernel bad_kernel =
	KERNEL("bad", BAD, sizeof(struct state), .params = bad, .stop = count_stop, .cut = bad_cut);
static const struct roost_kernel stream_kernel =
	KERNEL("bad stream", BAD, 0, .params = begin, .payload = bad_payload);
static const struct roost_kernel good_kernel =
	KERNEL("good", GOOD, sizeof(struct state), .params = good);
static const struct roost_kernel better_kernel = KERNEL("better", BAD, 0, .params = better);

static void replace(const struct roost_kernel *k, void *self, int rc)
{
	struct kernel_version *s;

	assert_int_equal(
		runtime_prepare(
			r->f, &(struct runtime_registration){.k = k, .self = self, .replace = true},
			&s),
		rc);
	if (!rc)
		runtime_publish(r->f, s);
}

static void open_rig(uint64_t seed)
{
	take_back_handlers();
	rig_open(r, seed, &(struct rig_shape){.mtu = 256, .turn_ns = 500});
	stopped = cuts = 0;
	assert_int_equal(runtime_deploy(r->f, &good_kernel, NULL), 0);
}

static void is_well(unsigned caller, unsigned slot)
{
	uint64_t va = (uintptr_t)r->node[caller].mem;

	rig_post(r, caller, slot, GOOD, &va, 8, 8, 0);
	assert_int_equal(rig_wait(r, caller, slot, 8).status, ROOST_RPC_OK);
}

/* ---- crashes ---- */

static void a_step_that_crashes(void **state)
{
	for (uint64_t how = 0; how < HOWS; how++) {
		uint64_t p[2] = {0, 99};
		struct runtime_kernel_info info;

		open_rig(how);
		assert_int_equal(runtime_deploy(r->f, &bad_kernel, NULL), 0);
		/* Calls are in progress on both QPs when another one crashes. */
		for (unsigned i = 0; i < 10; i++) {
			p[0] = (uintptr_t)r->node[i & 1].mem;
			rig_post(r, i & 1, i, BAD, p, sizeof(p), 8, 0);
		}
		while (rig_counters(r).steps < 30)
			rig_step(r);
		p[0] = rig_va(r, 0);
		p[1] = how;
		rig_post(r, 0, 20, BAD, p, sizeof(p), 8, 0);
		is_well(0, 21);
		is_well(1, 22);
		assert_int_equal(rig_wait(r, 0, 20, 8).status, ROOST_RPC_FAULT);
		for (unsigned i = 0; i < 10; i++)
			assert_int_equal(rig_wait(r, i & 1, i, 8).status, ROOST_RPC_DISABLED);
		assert_int_equal(rig_call(r, BAD, p, sizeof(p), 8).status, ROOST_RPC_DISABLED);
		assert_int_equal(rig_counters(r).faults, 1);
		assert_int_equal(rig_counters(r).disabled, 11);
		assert_true(runtime_kernel_info(r->f, 1, &info));
		assert_int_equal(info.state, RUNTIME_KERNEL_DISABLED);
		assert_int_equal(info.ctr.faults, 1);
		/* A correct version replaces it; no function of the bad one is called any more. */
		world_run(&r->w, world_now(&r->w) + SEC);
		replace(&better_kernel, NULL, 0);
		assert_int_equal(rig_call(r, BAD, p, sizeof(p), 8).status, ROOST_RPC_OK);
		is_well(1, 22);
		rig_close(r);
		assert_int_equal(stopped, 0);
		assert_int_equal(cuts, 0);
	}
}

/* A crash in the middle of payload: the rest of the payload is dropped. */
static void a_stream_that_crashes(void **state)
{
	open_rig(20);
	assert_int_equal(runtime_deploy(r->f, &stream_kernel, NULL), 0);
	rig_post(r, 0, 0, BAD, NULL, 0, 8, ROOST_RPC_STREAM);
	rig_post_payload(r, 0, BAD, 10000);
	assert_int_equal(rig_wait(r, 0, 0, 8).status, ROOST_RPC_FAULT);
	is_well(0, 1);
	rig_post(r, 0, 0, BAD, NULL, 0, 8, ROOST_RPC_STREAM);
	rig_post_payload(r, 0, BAD, 10000);
	assert_int_equal(rig_wait(r, 0, 0, 8).status, ROOST_RPC_DISABLED);
	rig_post_payload(r, 0, BAD, 10000); /* unannounced */
	is_well(0, 1);
	is_well(1, 1);
	rig_close(r);
}

/* ---- start() and stop() that crash ---- */

static int start_crashes(void **self)
{
	crash(NO_ACCESS);
	return 0;
}

static void stop_crashes(void *self)
{
	stopped++;
	crash(NO_ACCESS);
}

static int take_over_crashes(void **self, const struct roost_kernel *old)
{
	crash(NO_ACCESS);
	return 0;
}

static void beginnings_and_ends(void **state)
{
	static const struct roost_kernel no_start = KERNEL("no start", BAD, 0, .params = better,
							   .start = start_crashes),
					 no_stop = KERNEL("no stop", BAD, 0, .params = better,
							  .stop = stop_crashes),
					 no_taking = KERNEL("no taking", BAD, 0, .params = better,
							    .take_over = take_over_crashes);

	open_rig(30);
	assert_int_equal(runtime_deploy(r->f, &no_start, NULL), -EFAULT);
	assert_int_equal(rig_call(r, BAD, NULL, 0, 8).status, ROOST_RPC_NO_KERNEL);
	assert_int_equal(runtime_deploy(r->f, &no_stop, NULL), 0);
	assert_int_equal(rig_call(r, BAD, NULL, 0, 8).status, ROOST_RPC_OK);
	replace(&no_taking, NULL, -EFAULT);
	assert_int_equal(rig_call(r, BAD, NULL, 0, 8).status, ROOST_RPC_OK);
	world_run(&r->w, world_now(&r->w) + SEC);
	assert_int_equal(runtime_undeploy(r->f, BAD), 0);
	assert_int_equal(stopped, 1);
	is_well(0, 0);
	rig_close(r);
}

/* ---- calls that end without their kernel ---- */

/* borrower: borrows from `self` while a call runs. */
static enum roost_next borrow(struct roost_call *c)
{
	const uint64_t *p = c->params;
	struct state *s = c->state;

	ROOST_STEPS(c);
	++*(int *)c->self;
	for (s->log = p[1]; s->log; s->log--)
		ROOST_READ(c, p[0], &s->word, 8);
	if (!(c->params_len & 8)) /* a call with payload gives it back at the end of the payload */
		--*(int *)c->self;
	ROOST_STEPS_END;
}

static enum roost_next borrow_payload(struct roost_call *c)
{
	ROOST_STEPS(c);
	ROOST_READ(c, *(const uint64_t *)c->params, c->state, 8);
	if (c->last)
		--*(int *)c->self;
	ROOST_STEPS_END;
}

static void give_back(struct roost_call *c)
{
	assert_int_equal(c->op, BORROWER);
	cuts++;
	--*(int *)c->self;
}

static const struct roost_kernel borrower =
	KERNEL("borrower", BORROWER, sizeof(struct state), .params = borrow,
	       .payload = borrow_payload, .cut = give_back);

static void what_was_taken_is_given_back(void **state)
{
	struct nic_qp_attr err = {.state = NIC_QPS_ERR};
	int borrowed = 0;
	uint64_t p[3];

	cuts = 0;
	rig_open(r, 40,
		 &(struct rig_shape){.sp = {.delay_ns = 1000},
				     .mtu = 256,
				     .turn_ns = 500,
				     .cfg = {.max_steps = 5000}});
	assert_int_equal(runtime_deploy(r->f, &borrower, &borrowed), 0);
	assert_int_equal(runtime_deploy(r->f, &good_kernel, NULL), 0);
	/* A call that ends by itself. */
	p[0] = rig_va(r, 0);
	p[1] = 10;
	assert_int_equal(rig_call(r, BORROWER, p, 16, 8).status, ROOST_RPC_OK);
	assert_int_equal(cuts, 0);
	assert_int_equal(borrowed, 0);
	/* An access that is refused, and too many of them. */
	p[0] -= 8;
	assert_int_equal(rig_call(r, BORROWER, p, 16, 8).status, ROOST_RPC_ACCESS);
	assert_int_equal(cuts, 1);
	p[0] = rig_va(r, 0);
	p[1] = 100000;
	assert_int_equal(rig_call(r, BORROWER, p, 16, 8).status, ROOST_RPC_BOUND);
	assert_int_equal(cuts, 2);
	assert_int_equal(borrowed, 0);
	/* With payload; and payload whose accesses are refused. */
	p[1] = 0;
	rig_post(r, 0, 1, BORROWER, p, 24, 8, ROOST_RPC_STREAM);
	rig_post_payload(r, 0, BORROWER, 1000);
	assert_int_equal(rig_wait(r, 0, 1, 8).status, ROOST_RPC_OK);
	assert_int_equal(cuts, 2);
	p[0] = 8;
	rig_post(r, 0, 1, BORROWER, p, 24, 8, ROOST_RPC_STREAM);
	rig_post_payload(r, 0, BORROWER, 1000);
	assert_int_equal(rig_wait(r, 0, 1, 8).status, ROOST_RPC_ACCESS);
	assert_int_equal(cuts, 3);
	assert_int_equal(borrowed, 0);
	/* The QP ends with calls in all states. */
	p[0] = rig_va(r, 0);
	p[1] = 4000;
	for (unsigned i = 0; i < 10; i++)
		rig_post(r, 0, i, BORROWER, p, 16, 8, 0);
	p[1] = 0;
	rig_post(r, 0, 10, BORROWER, p, 24, 8, ROOST_RPC_STREAM);
	while (borrowed < 11)
		rig_step(r);
	assert_int_equal(ep_modify(&r->node[0], &err, NIC_QPA_STATE), 0);
	assert_int_equal(borrowed, 0);
	assert_int_equal(cuts, 14);
	is_well(1, 0);
	rig_close(r);
}

static void cut_crashes(struct roost_call *c)
{
	cuts++;
	crash(NO_ACCESS);
}

/* A cut() that crashes disables its kernel only. */
static void a_cut_that_crashes(void **state)
{
	static const struct roost_kernel k =
		KERNEL("bad cut", BAD, sizeof(struct state), .params = borrow, .cut = cut_crashes);
	struct nic_qp_attr err = {.state = NIC_QPS_ERR};
	uint64_t p[2] = {8, 1};
	int borrowed = 0;

	for (unsigned way = 0; way < 2; way++) {
		open_rig(50 + way);
		assert_int_equal(runtime_deploy(r->f, &k, &borrowed), 0);
		if (way) {
			p[0] = rig_va(r, 0);
			p[1] = 1u << 30;
			rig_post(r, 0, 0, BAD, p, 16, 8, 0);
			while (!rig_counters(r).calls)
				rig_step(r);
			assert_int_equal(ep_modify(&r->node[0], &err, NIC_QPA_STATE), 0);
		} else {
			assert_int_equal(rig_call(r, BAD, p, 16, 8).status, ROOST_RPC_ACCESS);
		}
		assert_int_equal(cuts, 1);
		rig_post(r, 1, 0, BAD, p, 16, 8, 0);
		assert_int_equal(rig_wait(r, 1, 0, 8).status, ROOST_RPC_DISABLED);
		is_well(1, 1);
		rig_close(r);
	}
}

static int map(void **state)
{
	long page = sysconf(_SC_PAGESIZE);
	int fd = memfd_create("empty", 0);

	forbidden = mmap(NULL, (size_t)page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	beyond = mmap(NULL, (size_t)page, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	rig_open(r, 1, &(struct rig_shape){.mtu = 256, .turn_ns = 500});
	rig_close(r);
	keep_handlers();
	return forbidden == MAP_FAILED || beyond == MAP_FAILED ? -1 : 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_step_that_crashes),
		cmocka_unit_test(a_stream_that_crashes),
		cmocka_unit_test(beginnings_and_ends),
		cmocka_unit_test(what_was_taken_is_given_back),
		cmocka_unit_test(a_cut_that_crashes),
	};

	return cmocka_run_group_tests(tests, map, NULL);
}
