/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Kernels that wait in params(), before their stream begins, or after its end. The stream begins,
 * or the kernel ends, when the wait is over.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "scene.h"

enum { SEE_OP = 0x1001, RESIZE_OP };

#define WEIGHT 1000003u

/*
 * ---- the kernel: reads a weight from peer 1, and writes the weighted sum of its stream there ----
 */

struct params {
	uint64_t at; /* the weight; the sum goes behind it */
	uint32_t rkey;
};

struct scale {
	struct params p;
	uint64_t weight, sum;
};

static unsigned read_twice; /* how often parameters were taken */

static enum roost_next take(struct roost_call *c)
{
	struct scale *t = c->state;

	ROOST_STEPS(c);
	read_twice++;
	memcpy(&t->p, c->params, sizeof(t->p));
	ROOST_QP_READ(c, 1, t->p.at, t->p.rkey, &t->weight, 8);
	if (c->qp_failed)
		ROOST_FAIL(c, ROOST_RPC_FAILED);
	ROOST_STEPS_END;
}

static enum roost_next weigh(struct roost_call *c)
{
	struct scale *t = c->state;

	ROOST_STEPS(c);
	if (c->total) {
		assert_int_equal(t->weight, WEIGHT);
		for (uint32_t i = 0; i < c->len; i++)
			t->sum += t->weight * c->data[i];
		if (c->op == RESIZE_OP) {
			memcpy(c->scratch, c->data, c->len);
			ROOST_SEND(c, c->scratch, c->len);
		}
		return ROOST_DONE;
	}
	ROOST_QP_WRITE(c, 1, t->p.at + 8, t->p.rkey, &t->sum, 8);
	ROOST_QP_POST_READ(c, 1, t->p.at + 8, t->p.rkey, &t->sum, 8);
	ROOST_QP_WAIT_ALL(c);
	if (c->qp_failed)
		ROOST_FAIL(c, ROOST_RPC_FAILED);
	ROOST_REPLY(c, &t->sum, 8);
	ROOST_STEPS_END;
}

static void scale_cut(struct roost_call *c)
{
	cuts++;
}

#define KERNEL(op_, resizes_)                                                                      \
	{                                                                                          \
		.abi = ROOST_KERNEL_ABI, .version = 1, .name = "scale", .op = op_,                 \
		.state_size = sizeof(struct scale), .scratch_size = 4096, .params = take,          \
		.stream = weigh, .cut = scale_cut, .resizes = resizes_                             \
	}

static const struct roost_kernel kernels[] = {KERNEL(SEE_OP, false), KERNEL(RESIZE_OP, true)};

/* ---- the scene ---- */

enum where { IN, REGION, OUT, OUT_RESIZED, WAYS };

static const struct shape shapes[] = {
	{.sp = {.delay_ns = 2000}, .rnr_retry = 7, .timeout = 14, .retry_cnt = 7},
	{.sp = {.delay_ns = 2000, .loss = 0.05, .dup = 0.03, .reorder = 0.03},
	 .rnr_retry = 7,
	 .timeout = 14,
	 .retry_cnt = 7},
	{.loop = true, .rnr_retry = 7},
};
#define SHAPES (sizeof(shapes) / sizeof(shapes[0]))

static uint64_t told;
static struct ep *from, *to; /* of the stream */

static void open_scales(uint64_t seed, const struct shape *shape, enum where where)
{
	open_scene(seed, shape);
	for (unsigned i = 0; i < 2; i++) {
		unsigned number;

		assert_int_equal(runtime_deploy(s->f, &kernels[i], NULL), 0);
		assert_int_equal(runtime_bind_qp(s->f, kernels[i].op, s->bound[1].qp,
						 &(struct runtime_qp_limits){0}, &number),
				 0);
	}
	from = where >= OUT ? &s->called : &s->caller;
	to = where >= OUT ? &s->caller : &s->called;
	for (uint32_t i = 0; i < MEM; i++)
		from->mem[i] = (uint8_t)(i * 7 + i / 256);
	memset(to->mem, 0, MEM);
	memcpy(s->peer[1].mem, &(uint64_t){WEIGHT}, 8);
	told = 0;
	read_twice = 0;
}

static int attach(enum where where, uint32_t rkey, struct local_call **out)
{
	const struct params p = {.at = (uintptr_t)s->peer[1].mem, .rkey = rkey};
	const struct local_call_attr a = {.op = where == OUT_RESIZED ? RESIZE_OP : SEE_OP,
					  .params = &p,
					  .params_len = sizeof(p),
					  .reply = (uint8_t *)&told,
					  .space = sizeof(told),
					  .out = where >= OUT};

	assert_int_equal(local_call_begin(s->f, 0, &a, out), 0);
	return where == IN	 ? local_call_attach_in(*out, s->called.qp)
	       : where == REGION ? local_call_attach_region(*out, s->called.key)
				 : local_call_attach_out(*out, s->called.qp);
}

static unsigned unfinished;

static void write_some(uint64_t off, uint32_t len)
{
	struct wr wr = wr_rdma(ROOST_OP_WRITE, from, off, len, to, off);

	ep_post(from, &wr);
	unfinished++;
}

static void reap(void)
{
	struct roost_cqe cqe;

	while (ep_poll_send(from, &cqe)) {
		assert_int_equal(cqe.status, NIC_WC_SUCCESS);
		unfinished--;
	}
}

static void finish_writes(void)
{
	while (unfinished) {
		assert_true(turn());
		reap();
	}
}

static uint64_t weight_of(uint32_t len)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < len; i++)
		sum += (uint64_t)WEIGHT * from->mem[i];
	return sum;
}

static int drop_peer(void *ctx, const struct pkt_addr *src, const uint8_t *bth, uint32_t len)
{
	return pkt_addr_eq(src, ep_addr(&s->peer[1]));
}

/* Ends a hook as roost_hook_detach() does: repeats it until it succeeds. */
static void end(struct local_call *p, uint32_t status)
{
	struct local_call_result result;
	bool again = false;

	while (local_call_detach(p))
		assert_true(turn());
	for (;;) {
		while (local_call_busy(p))
			assert_true(turn());
		local_call_end_stream(p);
		if (!local_call_busy(p))
			break;
		again = true;
	}
	assert_int_equal(again, status == ROOST_RPC_OK);
	assert_true(local_call_finished(p, &result));
	assert_int_equal(result.status, status);
	local_call_free(p);
}

/* ---- tests ---- */

static void before_and_behind(void **state)
{
	struct local_call *p;
	uint64_t left;

	for (unsigned i = 0; i < WAYS * SHAPES; i++) {
		enum where where = i / SHAPES;

		open_scales(i + 1, &shapes[i % SHAPES], where);
		assert_int_equal(attach(where, s->peer[1].key, &p), 0);
		assert_true(local_call_busy(p));
		for (unsigned k = 0; k < 20; k++)
			write_some(k * 5000, 5000);
		finish_writes();
		end(p, ROOST_RPC_OK);
		assert_memory_equal(to->mem, from->mem, 100000);
		assert_int_equal(told, weight_of(100000));
		memcpy(&left, s->peer[1].mem + 8, 8);
		assert_int_equal(left, told);
		assert_int_equal(read_twice, 1);
		/* A hook that is gone delays no stream. */
		write_some(0, 20000);
		finish_writes();
		close_scene();
	}
}

/* No bytes pass before the kernel is done with its parameters. */
static void stream_waits_for_parameters(void **state)
{
	struct local_call *p;

	for (unsigned where = 0; where < WAYS; where++) {
		open_scales(1, &shapes[0], where);
		sim_set_filter(s->w.sim, drop_peer, NULL);
		assert_int_equal(attach(where, s->peer[1].key, &p), 0);
		write_some(0, 3000);
		for (unsigned k = 0; k < 60; k++)
			assert_true(turn());
		reap();
		assert_int_equal(unfinished, 1);
		assert_int_equal(to->mem[1], 0);
		sim_set_filter(s->w.sim, NULL, NULL);
		finish_writes();
		end(p, ROOST_RPC_OK);
		assert_int_equal(told, weight_of(3000));
		close_scene();
	}
}

/*
 * If params() fails the stream continues without the kernel. While the kernel waits it may also be
 * detached, or never be attached.
 */
static void gives_up(void **state)
{
	struct local_call *p, *other[2];

	for (unsigned where = 0; where < WAYS; where++) {
		open_scales(1, &shapes[0], where);
		assert_int_equal(attach(where, s->peer[1].key ^ 0x100, &p), 0);
		write_some(0, 3000);
		finish_writes();
		assert_memory_equal(to->mem, from->mem, 3000);
		end(p, ROOST_RPC_FAILED);
		close_scene();

		open_scales(2, &shapes[0], where);
		assert_int_equal(attach(where, s->peer[1].key, &p), 0);
		assert_int_equal(local_call_detach(p), 0);
		cuts = 0;
		local_call_free(p);
		write_some(0, 3000);
		finish_writes();
		while (turn())
			;
		assert_int_equal(cuts, 1);
		assert_int_equal(runtime_undeploy(s->f, where == OUT_RESIZED ? RESIZE_OP : SEE_OP),
				 0);
		close_scene();
	}
	open_scales(3, &shapes[0], IN);
	assert_int_equal(attach(IN, s->peer[1].key, &other[0]), 0);
	assert_int_equal(attach(IN, s->peer[1].key, &other[1]), 0);
	assert_int_equal(attach(IN, s->peer[1].key, &p), -ENOSPC);
	local_call_free(p);
	write_some(0, 3000);
	finish_writes();
	end(other[0], ROOST_RPC_OK);
	end(other[1], ROOST_RPC_OK);
	while (turn())
		;
	assert_int_equal(runtime_undeploy(s->f, SEE_OP), 0);
	close_scene();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(before_and_behind),
		cmocka_unit_test(stream_waits_for_parameters),
		cmocka_unit_test(gives_up),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
