/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Deployment of kernels: checks of the descriptor, slots, functions at start and end, calls in
 * flight.
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

static enum roost_next echo(struct roost_call *c)
{
	return roost_reply(c, ROOST_RPC_OK, c->params, c->params_len);
}

static enum roost_next forever(struct roost_call *c)
{
	return ROOST_AGAIN;
}

static unsigned started, stopped;

static int start(void **self)
{
	started++;
	return 0;
}

static void count_stop(void *self)
{
	stopped++;
}

static int start_fails(void **self)
{
	return -ENOKEY;
}

enum { ECHO = 0x1000, FOREVER };

#define KERNEL(n, o, s, ...)                                                                       \
	{                                                                                          \
		.abi = ROOST_KERNEL_ABI, .version = 1, .name = n, .op = o, .state_size = s,        \
		__VA_ARGS__                                                                        \
	}

static const struct roost_kernel kernels[] = {
	KERNEL("echo", ECHO, 0, .params = echo, .start = start, .stop = count_stop),
	KERNEL("forever", FOREVER, 0, .params = forever),
};
#define KERNELS (sizeof(kernels) / sizeof(kernels[0]))

static void deployment(void **state)
{
	static const struct roost_kernel bad[] = {
		KERNEL("", 1, 0, .params = echo),
		KERNEL("no functions", 1, 0, .start = start),
		KERNEL("too large", 1, ROOST_KERNEL_MAX_STATE + 1, .params = echo),
		KERNEL("too large", 1, 16, .params = echo,
		       .scratch_size = ROOST_KERNEL_MAX_STATE - 15),
	};
	static const struct roost_kernel old = {
		.abi = ROOST_KERNEL_ABI + 1, .name = "old", .op = 1, .params = echo};
	static const struct roost_kernel fails =
		KERNEL("fails", 1, 0, .params = echo, .start = start_fails);
	static struct roost_kernel many[RUNTIME_MAX_KERNELS];
	struct runtime_kernel_info info;
	unsigned n = KERNELS;

	started = stopped = 0;
	rig_open(r, 100, &(struct rig_shape){.sp = {.delay_ns = 1000}});
	assert_int_equal(runtime_deploy(r->f, &kernels[0], NULL), 0);
	assert_int_equal(runtime_deploy(r->f, &kernels[1], NULL), 0);
	assert_int_equal(started, 1);
	for (unsigned i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_int_equal(runtime_deploy(r->f, &bad[i], NULL), -EINVAL);
	assert_int_equal(runtime_deploy(r->f, &old, NULL), -EPROTO);
	assert_int_equal(runtime_deploy(r->f, &fails, NULL), -ENOKEY);
	assert_int_equal(runtime_deploy(r->f, &kernels[0], NULL), -EEXIST);
	/* In use, and then not. */
	rig_post(r, 0, 0, FOREVER, NULL, 0, 8, 0);
	while (rig_counters(r).steps == 0)
		world_step(&r->w, world_now(&r->w) + SEC);
	assert_int_equal(runtime_undeploy(r->f, FOREVER), -EBUSY);
	assert_int_equal(runtime_undeploy(r->f, ECHO), 0);
	assert_int_equal(stopped, 1);
	assert_int_equal(runtime_undeploy(r->f, ECHO), -ENOENT);
	rig_post(r, 1, 1, ECHO, NULL, 0, 8, 0);
	assert_int_equal(rig_wait(r, 1, 1, 8).status, ROOST_RPC_NO_KERNEL);
	assert_true(runtime_kernel_info(r->f, 0, &info));
	assert_ptr_equal(info.k, &kernels[1]);
	assert_false(runtime_kernel_info(r->f, KERNELS - 1, &info));
	/* Its slot is free again. */
	assert_int_equal(runtime_deploy(r->f, &kernels[0], NULL), 0);
	for (; n < RUNTIME_MAX_KERNELS; n++) {
		many[n] = (struct roost_kernel)KERNEL("many", 0x2000 + n, 0, .params = echo);
		assert_int_equal(runtime_deploy(r->f, &many[n], NULL), 0);
	}
	assert_int_equal(runtime_deploy(r->f,
					&(struct roost_kernel)KERNEL("more", 1, 0, .params = echo),
					NULL),
			 -ENOSPC);
	rig_close(r);
	assert_int_equal(started, 2);
	assert_int_equal(stopped, 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(deployment)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
