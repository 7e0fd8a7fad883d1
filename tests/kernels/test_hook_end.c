/* SPDX-License-Identifier: BSD-2-Clause */
/* Ends of hooks: bytes that the kernel has not processed, and replies that are too long. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

#include "kernels/local_call.h"
#include "rig.h"

enum { QUITTER_OP = 0x1000, CHATTY_OP, SHORTEN_OP };

static struct rig R, *const r = &R;
static struct kernel_runtime *caller_runtime;

/* Outputs the first piece without its last byte; fails at the next piece. */
struct quitter_state {
	uint8_t out[4096];
};

static enum roost_next quitter(struct roost_call *c)
{
	struct quitter_state *s = c->state;

	ROOST_STEPS(c);
	if (c->offset)
		ROOST_FAIL(c, 200);
	memcpy(s->out, c->data, c->len - 1);
	ROOST_SEND(c, s->out, c->len - 1);
	ROOST_STEPS_END;
}

/* Outputs each piece without its last byte. */
static enum roost_next shorten(struct roost_call *c)
{
	struct quitter_state *s = c->state;

	ROOST_STEPS(c);
	if (!c->total)
		ROOST_FAIL(c, ROOST_RPC_OK);
	memcpy(s->out, c->data, c->len - 1);
	ROOST_SEND(c, s->out, c->len - 1);
	ROOST_STEPS_END;
}

/* Three words of six bytes. */
static enum roost_next chatty(struct roost_call *c)
{
	static const char words[] = "firsts"
				    "second"
				    "thirds";

	ROOST_STEPS(c);
	ROOST_SEND(c, words, 6);
	ROOST_SEND(c, words + 6, 6);
	ROOST_SEND(c, words + 12, 6);
	ROOST_STEPS_END;
}

static const struct roost_kernel quitter_kernel = {.abi = ROOST_KERNEL_ABI,
						   .name = "quitter",
						   .version = 1,
						   .op = QUITTER_OP,
						   .state_size = sizeof(struct quitter_state),
						   .stream = quitter,
						   .resizes = true};
static const struct roost_kernel shorten_kernel = {.abi = ROOST_KERNEL_ABI,
						   .name = "shorten",
						   .version = 1,
						   .op = SHORTEN_OP,
						   .state_size = sizeof(struct quitter_state),
						   .stream = shorten,
						   .resizes = true};
static const struct roost_kernel chatty_kernel = {.abi = ROOST_KERNEL_ABI,
						  .name = "chatty",
						  .version = 1,
						  .op = CHATTY_OP,
						  .params = chatty,
						  .stream = quitter};
static const struct rig_shape shapes[] = {
	{.sp = {.delay_ns = 1000}, .mtu = 4096},
	{.loop = true},
	{.sp = {.loss = 0.15, .dup = 0.1, .reorder = 0.1, .delay_ns = 20000}, .mtu = 1024},
};
#define SHAPES (sizeof(shapes) / sizeof(shapes[0]))

static void open_rig(uint64_t seed, const struct rig_shape *shape)
{
	rig_open(r, seed, shape);
	caller_runtime = rig_caller_runtime(r);
	assert_int_equal(runtime_deploy(caller_runtime, &quitter_kernel, NULL), 0);
	assert_int_equal(runtime_deploy(r->f, &chatty_kernel, NULL), 0);
}

/* After the end of a kernel that changes lengths, all remaining bytes are passed on unchanged. */
static void the_rest_passes(void **state)
{
	struct local_call_result result;
	const uint8_t *from;
	struct local_call *z;

	for (unsigned i = 0; i < SHAPES; i++) {
		open_rig(i + 1, &shapes[i]);
		from = r->caller[0].mem;
		for (uint32_t k = 0; k < 100000; k++)
			r->caller[0].mem[k] = (uint8_t)(k * 7 + k / 256);
		memset(r->node[0].mem, 0, 100000);
		z = rig_local_call(r, caller_runtime, QUITTER_OP, NULL, 0, NULL, 0);
		assert_int_equal(local_call_attach_out(z, r->caller[0].qp), 0);
		rig_write(r, 0, 0, 0, 100000);
		world_run(&r->w, world_now(&r->w) + 20 * SEC);
		rig_reap(r);
		assert_memory_equal(r->node[0].mem, from, 4095);
		assert_memory_equal(r->node[0].mem + 4095, from + 4096, 100000 - 4096);
		assert_int_equal(r->node[0].mem[99999], 0);
		assert_int_equal(local_call_detach(z), 0);
		assert_true(local_call_finished(z, &result));
		assert_int_equal(result.status, 200);
		local_call_free(z);
		rig_close(r);
	}
}

static int drop_all(void *ctx, const struct pkt_addr *src, const uint8_t *bth, uint32_t len)
{
	return 1;
}

/*
 * The queue pair is reset in the middle of a message, when all segments are full and the kernel has
 * output for the next one. The first message of the next connection has only its own bytes.
 */
static void a_reset_drops_output(void **state)
{
	static const struct nic_qp_attr reset = {.state = NIC_QPS_RESET};
	struct local_call_result result;
	struct local_call *z;

	open_rig(1, &shapes[0]);
	assert_int_equal(runtime_deploy(caller_runtime, &shorten_kernel, NULL), 0);
	memset(r->caller[0].mem, 'a', 400000);
	memset(r->caller[0].mem + 400000, 'b', 1000);
	memset(r->node[0].mem, 0, 2000);
	z = rig_local_call(r, caller_runtime, SHORTEN_OP, NULL, 0, NULL, 0);
	assert_int_equal(local_call_attach_out(z, r->caller[0].qp), 0);
	sim_set_filter(r->w.sim, drop_all, NULL);
	rig_write(r, 0, 0, 0, 400000);
	world_run(&r->w, world_now(&r->w) + MSEC);
	assert_false(local_call_finished(z, &result));
	assert_in_range(result.bytes, 16 * 16384, 17 * 16384);
	sim_set_filter(r->w.sim, NULL, NULL);
	assert_int_equal(ep_modify(&r->caller[0], &reset, NIC_QPA_STATE), 0);
	assert_int_equal(ep_modify(&r->node[0], &reset, NIC_QPA_STATE), 0);
	ep_connect(&r->caller[0], &r->node[0]);
	rig_write(r, 0, 400000, 0, 1000);
	world_run(&r->w, world_now(&r->w) + SEC);
	rig_reap(r);
	assert_memory_equal(r->node[0].mem, r->caller[0].mem + 400000, 999);
	for (unsigned i = 999; i < 2000; i++)
		assert_int_equal(r->node[0].mem[i], 0);
	assert_int_equal(local_call_detach(z), 0);
	local_call_end_stream(z);
	assert_true(local_call_finished(z, &result));
	assert_int_equal(result.status, ROOST_RPC_OK);
	local_call_free(z);
	rig_close(r);
}

/* All data for the host together must fit in the host's buffer. */
static void a_reply_has_its_space(void **state)
{
	struct local_call_result result;
	uint8_t reply[24];
	struct local_call *p;

	open_rig(1, &shapes[0]);
	for (uint32_t space = 0; space <= 18; space += 6) {
		memset(reply, 0x5a, sizeof(reply));
		p = rig_local_call(r, r->f, CHATTY_OP, NULL, 0, reply, space);
		assert_int_equal(local_call_finished(p, &result), space < 18);
		assert_int_equal(result.len, space < 18 ? space + 6 : 18);
		assert_memory_equal(reply, "firstssecondthirds", space);
		for (uint32_t i = space; i < sizeof(reply); i++)
			assert_int_equal(reply[i], 0x5a);
		if (space < 18)
			assert_int_equal(result.status, ROOST_RPC_TOO_LONG);
		local_call_free(p);
	}
	rig_close(r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_rest_passes),
		cmocka_unit_test(a_reply_has_its_space),
		cmocka_unit_test(a_reset_drops_output),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
