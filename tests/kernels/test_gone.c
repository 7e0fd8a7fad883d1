/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Memory that is deregistered while replies wait to be sent from it: their calls end with
 * ROOST_RPC_ACCESS, and the connection continues.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <cmocka.h>

#include "../common/handlers.h"
#include "rig.h"

static struct rig R, *const r = &R;

#define BYTES 65536
#define CALLS 60
#define LEN   3000

/* whole: replies from memory, in one piece. */
static enum roost_next whole(struct roost_call *c)
{
	return roost_reply_from(c, *(const uint64_t *)c->params, LEN);
}

/* pieces: replies from memory, in three pieces. */
static enum roost_next pieces(struct roost_call *c)
{
	uint32_t *i = c->state;

	ROOST_STEPS(c);
	for (; *i < 3; ++*i)
		ROOST_SEND_FROM(c, *(const uint64_t *)c->params + *i * (LEN / 3), LEN / 3);
	ROOST_STEPS_END;
}

static enum roost_next echo(struct roost_call *c)
{
	return roost_reply(c, ROOST_RPC_OK, c->params, c->params_len);
}

enum { WHOLE = 0x1000, PIECES, ECHO };

static const struct roost_kernel kernels[] = {
	{.abi = ROOST_KERNEL_ABI, .name = "whole", .version = 1, .op = WHOLE, .params = whole},
	{.abi = ROOST_KERNEL_ABI,
	 .name = "pieces",
	 .version = 1,
	 .op = PIECES,
	 .state_size = 4,
	 .params = pieces},
	{.abi = ROOST_KERNEL_ABI, .name = "echo", .version = 1, .op = ECHO, .params = echo},
};

static void goes(uint64_t seed, uint64_t op, bool unmap, const struct rig_shape *shape)
{
	uint8_t *mem =
		mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct nic_mr_attr a = {.addr = mem,
				.len = BYTES,
				.iova = (uintptr_t)mem,
				.access = NIC_ACCESS_REMOTE_READ};
	struct nic *nic;
	uint32_t key, own;
	unsigned good = 0, gone = 0;

	take_back_handlers();
	rig_open(r, seed, shape);
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(runtime_deploy(r->f, &kernels[i], NULL), 0);
	for (unsigned i = 0; i < BYTES; i++)
		mem[i] = (uint8_t)(i * 7 + i / 256 + 1);
	nic = r->w.nic[shape->loop ? 0 : 1];
	a.pd = r->node[0].pd;
	assert_int_equal(nic_mr_register(nic, &a, &key), 0);
	own = r->node[0].key;
	r->node[0].key = key;
	for (unsigned i = 0; i < CALLS; i++) {
		uint64_t va = (uintptr_t)mem + i * 1000;

		rig_post(r, 0, i, op, &va, 8, LEN, 0);
	}
	/*
	 * All calls have arrived (a later one would end the connection). The first have replies,
	 * some of them partial.
	 */
	while (!good || rig_counters(r).calls < CALLS) {
		for (unsigned i = 0; i < CALLS && !good; i++) {
			struct rig_reply reply;

			good = rig_poll(r, 0, i, LEN, &reply);
		}
		rig_step(r);
	}
	if (unmap)
		assert_int_equal(munmap(mem, BYTES), 0);
	else
		assert_int_equal(nic_mr_deregister(nic, key), 0);
	good = 0;
	for (unsigned i = 0; i < CALLS; i++) {
		struct rig_reply reply = rig_wait(r, 0, i, LEN);

		if (reply.status == ROOST_RPC_OK) {
			good++;
			assert_int_equal(reply.len, LEN);
			for (unsigned k = 0; k < LEN; k++) {
				unsigned at = i * 1000 + k;

				assert_int_equal(reply.data[k], (uint8_t)(at * 7 + at / 256 + 1));
			}
			continue;
		}
		gone++;
		assert_int_equal(reply.status, ROOST_RPC_ACCESS);
		/*
		 * If a piece was refused at once, `len` is the length of the pieces sent before.
		 */
		assert_in_range(reply.len, 0, op == PIECES ? LEN : 0);
	}
	assert_true(good > 0);
	assert_true(gone > 0);
	assert_true(rig_counters(r).lost > 0);
	rig_reap(r);
	r->node[0].key = own;
	assert_int_equal(rig_call(r, ECHO, "alive", 5, 8).status, ROOST_RPC_OK);
	assert_int_equal(nic_qp_state(r->node[0].qp), NIC_QPS_RTS);
	if (unmap)
		assert_int_equal(nic_mr_deregister(nic, key), 0);
	else
		munmap(mem, BYTES);
	rig_close(r);
}

static void regions_deregistered(void **state)
{
	for (uint64_t seed = 1; seed < 9; seed++) {
		struct rig_shape shape = {.sp = {.delay_ns = 1000, .loss = seed & 2 ? 0.05 : 0},
					  .mtu = 256,
					  .turn_ns = 500};

		goes(seed, seed & 1 ? WHOLE : PIECES, seed & 4, &shape);
	}
}

/* Loop-back transfers one message per turn. */
static void on_loop_back(void **state)
{
	for (unsigned i = 0; i < 2; i++)
		goes(20 + i, WHOLE, i,
		     &(struct rig_shape){.loop = true, .mtu = 256, .turn_ns = 500});
}

static int install(void **state)
{
	rig_open(r, 1, &(struct rig_shape){.mtu = 256});
	rig_close(r);
	keep_handlers();
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(regions_deregistered),
		cmocka_unit_test(on_loop_back),
	};

	return cmocka_run_group_tests(tests, install, NULL);
}
