/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Joined replies: the replies to the calls of a burst come in few WRITEs, each in its own buffer,
 * and nothing is written outside of the buffers.
 */
#include <endian.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/rng.h"
#include "rig.h"

#define ECHO   0x100
#define PIECES 0x101
#define LEN    128 /* of a buffer */
#define SPACE  (LEN - 8)
#define MTU    1024
#define OTHER  0xee /* a byte that no reply has */

static struct rig R, *const r = &R;

static enum roost_next echo(struct roost_call *c)
{
	return roost_reply(c, ROOST_RPC_OK, c->params, c->params_len);
}

struct pieces {
	uint64_t base, count, at;
};

/* Sends pieces of 8 bytes from memory, and the reply. */
static enum roost_next pieces(struct roost_call *c)
{
	struct pieces *s = c->state;

	ROOST_STEPS(c);
	memcpy(s, c->params, 16);
	for (s->at = 0; s->at < s->count; s->at++)
		ROOST_SEND_FROM(c, s->base + s->at * 8, 8);
	ROOST_STEPS_END;
}

static const struct roost_kernel kernels[] = {
	{.abi = ROOST_KERNEL_ABI, .version = 1, .name = "echo", .op = ECHO, .params = echo},
	{.abi = ROOST_KERNEL_ABI,
	 .version = 1,
	 .name = "pieces",
	 .op = PIECES,
	 .state_size = sizeof(struct pieces),
	 .params = pieces},
};

static void open_rig(const struct rig_shape *shape)
{
	struct rig_shape s = *shape;

	if (!s.sp.delay_ns)
		s.sp.delay_ns = 1000;
	rig_open(r, 7, &s);
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(runtime_deploy(r->f, &kernels[i], NULL), 0);
	for (unsigned i = 0; i < RIG_CALLERS; i++)
		memset(r->caller[i].mem, OTHER, RIG_PARAMS);
}

/* Returns the number of WRITEs with replies that the callers have acknowledged. */
static uint64_t writes(void)
{
	struct nic_counters c;

	nic_counters(r->node[0].nic, &c);
	return c.rpc_replies;
}

/* ---- calls ---- */

/* A call: its buffer begins at `off` of the caller's memory. */
static void post(unsigned caller, unsigned slot, uint32_t off, uint32_t len, uint16_t flags)
{
	struct roost_rpc_head h = rig_head(r, caller, slot, SPACE, flags);
	uint8_t data[SPACE];

	memset(data, (int)(1 + slot % 200), sizeof(data));
	h.reply_addr = (uintptr_t)r->caller[caller].mem + off;
	memset(r->caller[caller].mem + off + SPACE, 0, 8);
	rig_post_head(r, caller, slot, ECHO, &h, data, len);
}

static bool has_reply(unsigned caller, unsigned slot, uint32_t off, uint32_t len)
{
	const uint8_t *buf = r->caller[caller].mem + off;
	struct roost_rpc_tail tail;

	memcpy(&tail, buf + SPACE, sizeof(tail));
	if (!tail.mark)
		return false;
	assert_int_equal(tail.mark, slot + 1);
	assert_int_equal(tail.status, ROOST_RPC_OK);
	assert_int_equal(tail.len, len);
	assert_int_equal(tail.flags, 0);
	for (uint32_t i = 0; i < len; i++)
		assert_int_equal(buf[SPACE - len + i], 1 + slot % 200);
	/* What precedes the data is as before, or zeros. */
	for (uint32_t i = 0; i < SPACE - len; i++)
		assert_true(buf[i] == OTHER || buf[i] == 0);
	return true;
}

static void await(unsigned caller, unsigned slot, uint32_t off, uint32_t len)
{
	uint64_t until = world_now(&r->w) + 10 * SEC;

	while (!has_reply(caller, slot, off, len))
		assert_true(world_now(&r->w) < until && rig_step(r));
}

/* Posts n calls at once, whose buffers are `stride` apart, and waits. Returns the WRITEs. */
static uint64_t burst(unsigned n, uint32_t stride, uint16_t flags)
{
	uint64_t before = writes();

	memset(r->caller[0].mem, OTHER, RIG_PARAMS);
	for (unsigned i = 0; i < n; i++)
		post(0, i, i * stride, i % SPACE, flags);
	for (unsigned i = 0; i < n; i++)
		await(0, i, i * stride, i % SPACE);
	for (unsigned i = 0; i + 1 < n; i++)
		for (uint32_t at = i * stride + LEN; at < (i + 1) * stride; at++)
			assert_int_equal(r->caller[0].mem[at], OTHER);
	assert_int_equal(r->caller[0].mem[(n - 1) * stride + LEN], OTHER);
	world_run(&r->w, world_now(&r->w) + 100 * MSEC);
	rig_reap(r);
	return writes() - before;
}

/* ---- tests ---- */

static void in_few_writes(void **state)
{
	open_rig(&(struct rig_shape){0});
	for (unsigned i = 0; i < 8; i++)
		assert_in_range(burst(40, LEN, ROOST_RPC_JOIN), 40 * LEN / MTU, 15);
	assert_int_equal(burst(1, LEN, ROOST_RPC_JOIN), 1);
	rig_close(r);
}

static void not_if_not_allowed(void **state)
{
	open_rig(&(struct rig_shape){0});
	assert_int_equal(burst(40, LEN, 0), 40);
	rig_close(r);
}

static void not_if_apart(void **state)
{
	open_rig(&(struct rig_shape){0});
	assert_int_equal(burst(40, LEN + 8, ROOST_RPC_JOIN), 40);
	rig_close(r);
}

/* A reply with immediate completes a receive of its own. */
static void not_with_immediate(void **state)
{
	struct roost_cqe c;

	open_rig(&(struct rig_shape){0});
	for (unsigned i = 0; i < 10; i++)
		ep_post_recv(&r->caller[0], i, NULL, 0);
	assert_int_equal(burst(10, LEN, ROOST_RPC_JOIN | ROOST_RPC_IMM), 10);
	for (unsigned i = 0; i < 10; i++)
		assert_true(ep_poll_recv(&r->caller[0], &c));
	rig_close(r);
}

/* On loop-back there is no packet. */
static void on_loop_back(void **state)
{
	open_rig(&(struct rig_shape){.loop = true});
	assert_int_equal(burst(20, LEN, ROOST_RPC_JOIN), 20);
	rig_close(r);
}

/* A node at its limit of memory sends the replies alone. */
static void without_memory(void **state)
{
	open_rig(&(struct rig_shape){0});
	burst(40, LEN, 0); /* the slots have their memory */
	nic_memory_limit(r->node[0].nic, 1);
	assert_int_equal(burst(40, LEN, ROOST_RPC_JOIN), 40);
	nic_memory_limit(r->node[0].nic, 1ull << 30);
	for (unsigned i = 0; burst(40, LEN, ROOST_RPC_JOIN) == 40; i++)
		assert_true(i < 10); /* it does not try with each reply */
	rig_close(r);
}

/* More bursts than buffers before the first acknowledgement: all replies come. */
static void more_than_the_buffers(void **state)
{
	open_rig(&(struct rig_shape){.sp = {.delay_ns = 50000}});
	for (unsigned i = 0; i < 60; i++) {
		post(0, i, i * LEN, 20, ROOST_RPC_JOIN);
		world_run(&r->w, world_now(&r->w) + 1000);
	}
	for (unsigned i = 0; i < 60; i++)
		await(0, i, i * LEN, 20);
	rig_close(r);
}

/*
 * Replies find no space in the send queue, which WRITEs of another call fill: just so that this
 * call waits, too, or just so that it does not.
 */
static void no_space_for_the_write(void **state)
{
	struct pieces p = {0};

	open_rig(&(struct rig_shape){.sp = {.delay_ns = 5000}, .mtu = 4096});
	p.base = rig_va(r, 0);
	for (p.count = NIC_RPC_SENDS - 4; p.count < NIC_RPC_SENDS + 4; p.count++) {
		rig_post(r, 0, 40, PIECES, &p, 16, 3000, 0);
		for (unsigned i = 0; i < 8; i++)
			post(0, i, i * LEN, 30, ROOST_RPC_JOIN);
		for (unsigned i = 0; i < 8; i++)
			await(0, i, i * LEN, 30);
		assert_int_equal(rig_wait(r, 0, 40, 3000).status, ROOST_RPC_OK);
		rig_reap(r);
	}
	rig_close(r);
}

/*
 * Other calls of the connection wait for space all the time. A WRITE of joined replies takes its
 * turn among them: each of them sends at most a few WRITEs before it.
 */
static void its_turn_among_the_waiting(void **state)
{
	enum { OTHERS = 4, JOINED = 8 };
	struct pieces p = {.count = 1000};
	struct rig_reply end;
	uint64_t before;

	open_rig(&(struct rig_shape){.sp = {.delay_ns = 5000}, .mtu = 4096});
	p.base = rig_va(r, 0);
	for (unsigned i = 0; i < OTHERS; i++)
		rig_post(r, 0, 40 + i, PIECES, &p, 16, RIG_REPLY - 8, 0);
	while (writes() < NIC_RPC_SENDS)
		assert_true(rig_step(r));
	before = writes();
	for (unsigned i = 0; i < JOINED; i++)
		post(0, i, i * LEN, 30, ROOST_RPC_JOIN);
	for (unsigned i = 0; i < JOINED; i++)
		await(0, i, i * LEN, 30);
	assert_in_range(writes() - before, 1, 4 * NIC_RPC_SENDS);
	/* Nor do joined replies that keep coming hold the others back. */
	for (unsigned i = 0; !rig_poll(r, 0, 40, RIG_REPLY - 8, &end); i++) {
		assert_in_range(i, 0, 1000);
		post(0, i % JOINED, i % JOINED * LEN, 30, ROOST_RPC_JOIN);
		await(0, i % JOINED, i % JOINED * LEN, 30);
		rig_reap(r);
	}
	for (unsigned i = 0; i < OTHERS; i++)
		assert_int_equal(rig_wait(r, 0, 40 + i, RIG_REPLY - 8).status, ROOST_RPC_OK);
	rig_reap(r);
	rig_close(r);
}

/* Any lengths, distances and flags, from two callers, over a link with losses. */
static void over_a_bad_link(void **state)
{
	enum { CALLS = 40 };
	struct {
		uint32_t off, len;
	} call[RIG_CALLERS][CALLS];
	struct rng rng;

	rng_seed(&rng, 11);
	open_rig(&(struct rig_shape){
		.sp = {.delay_ns = 3000, .jitter_ns = 5000, .loss = 0.05, .dup = 0.05}});
	for (unsigned round = 0; round < 60; round++) {
		for (unsigned c = 0; c < RIG_CALLERS; c++) {
			uint32_t off = 0;

			memset(r->caller[c].mem, OTHER, RIG_PARAMS);
			for (unsigned i = 0; i < CALLS; i++) {
				off += rng_below(&rng, 4) ? 0 : 8 * (uint32_t)rng_below(&rng, 9);
				call[c][i].off = off;
				call[c][i].len = (uint32_t)rng_below(&rng, SPACE + 1);
				off += LEN;
				post(c, i, call[c][i].off, call[c][i].len,
				     rng_below(&rng, 8) ? ROOST_RPC_JOIN : 0);
				if (!rng_below(&rng, 10))
					world_run(&r->w, world_now(&r->w) + 2000);
			}
		}
		for (unsigned c = 0; c < RIG_CALLERS; c++) {
			uint32_t end = 0;

			for (unsigned i = 0; i < CALLS; i++) {
				await(c, i, call[c][i].off, call[c][i].len);
				for (; end < call[c][i].off; end++)
					assert_int_equal(r->caller[c].mem[end], OTHER);
				end += LEN;
			}
			assert_int_equal(r->caller[c].mem[end], OTHER);
		}
		rig_reap(r);
	}
	rig_close(r);
}

/* The queue pair ends at any moment: with replies to send, on their way, and acknowledged. */
static void the_qp_ends(void **state)
{
	for (unsigned steps = 0; steps < 40; steps++) {
		open_rig(&(struct rig_shape){0});
		for (unsigned i = 0; i < 40; i++)
			post(0, i, i * LEN, 40, ROOST_RPC_JOIN);
		for (unsigned i = 0; i < steps && rig_step(r); i++)
			;
		assert_int_equal(ep_modify(&r->node[0],
					   &(struct nic_qp_attr){.state = steps % 2 ? NIC_QPS_RESET
										    : NIC_QPS_ERR},
					   NIC_QPA_STATE),
				 0);
		world_run(&r->w, world_now(&r->w) + MSEC);
		/* The other connection does not notice. */
		post(1, 3, 0, 40, ROOST_RPC_JOIN);
		await(1, 3, 0, 40);
		rig_close(r);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(in_few_writes),
		cmocka_unit_test(not_if_not_allowed),
		cmocka_unit_test(not_if_apart),
		cmocka_unit_test(not_with_immediate),
		cmocka_unit_test(on_loop_back),
		cmocka_unit_test(without_memory),
		cmocka_unit_test(more_than_the_buffers),
		cmocka_unit_test(no_space_for_the_write),
		cmocka_unit_test(its_turn_among_the_waiting),
		cmocka_unit_test(over_a_bad_link),
		cmocka_unit_test(the_qp_ends),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
