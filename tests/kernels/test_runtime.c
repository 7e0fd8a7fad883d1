/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The kernel runtime through its public interface: kernels of all kinds are called over links that
 * lose, duplicate and reorder packets, and over loop-back. Each call runs once and accesses only
 * permitted memory, and no call hangs.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/rng.h"
#include "rig.h"

/* ---- kernels ---- */

/* echo: replies with its parameters. */
static enum roost_next echo(struct roost_call *c)
{
	return roost_reply(c, ROOST_RPC_OK, c->params, c->params_len);
}

/* count: adds one to the number at the address given, without an atomic; replies with the sum. */
struct count {
	uint64_t where, value;
};

static enum roost_next count(struct roost_call *c)
{
	struct count *s = c->state;

	ROOST_STEPS(c);
	if (c->params_len != 8)
		ROOST_FAIL(c, ROOST_RPC_BAD_PARAMS);
	memcpy(&s->where, c->params, 8);
	ROOST_READ(c, s->where, &s->value, 8);
	s->value++;
	ROOST_WRITE(c, s->where, &s->value, 8);
	ROOST_REPLY(c, &s->value, 8);
	ROOST_STEPS_END;
}

/*
 * gather: sends the pieces in its parameters, (address, length) each, one after the other, from its
 * state or from memory.
 */
struct piece {
	uint64_t va;
	uint32_t len, buffered;
};

struct gather {
	uint32_t i;
	struct piece p;
	uint8_t buf[4096];
};

static enum roost_next gather(struct roost_call *c)
{
	struct gather *s = c->state;

	ROOST_STEPS(c);
	for (; (s->i + 1) * sizeof(s->p) <= c->params_len; s->i++) {
		memcpy(&s->p, (const uint8_t *)c->params + s->i * sizeof(s->p), sizeof(s->p));
		if (!s->p.buffered) {
			ROOST_SEND_FROM(c, s->p.va, s->p.len);
			continue;
		}
		ROOST_READ(c, s->p.va, s->buf, s->p.len);
		ROOST_SEND(c, s->buf, s->p.len);
		memset(s->buf, 0xdd, sizeof(s->buf));
	}
	ROOST_STEPS_END;
}

/* copy: parameters are to, from, length. */
static enum roost_next copy(struct roost_call *c)
{
	uint64_t p[3];

	ROOST_STEPS(c);
	memcpy(p, c->params, sizeof(p));
	ROOST_COPY(c, p[0], p[1], (uint32_t)p[2]);
	ROOST_STEPS_END;
}

static enum roost_next from(struct roost_call *c)
{
	uint64_t p[2];

	memcpy(p, c->params, sizeof(p));
	return roost_reply_from(c, p[0], (uint32_t)p[1]);
}

static enum roost_next forever(struct roost_call *c)
{
	return ROOST_AGAIN;
}

/*
 * sum: adds up the bytes of a stream. Its parameters have the address of a word that is added too,
 * and of a log. Each piece reads and writes the log and sends four bytes, so that the kernel waits
 * in all possible ways.
 */
struct sum {
	uint64_t word, log, total;
	uint32_t i, piece;
};

static enum roost_next sum_params(struct roost_call *c)
{
	struct sum *s = c->state;

	ROOST_STEPS(c);
	if (c->params_len != 16)
		ROOST_FAIL(c, ROOST_RPC_BAD_PARAMS);
	memcpy(&s->word, c->params, 16);
	ROOST_READ(c, s->word, &s->total, 8);
	ROOST_STEPS_END;
}

static enum roost_next sum_payload(struct roost_call *c)
{
	struct sum *s = c->state;

	ROOST_STEPS(c);
	for (s->i = 0; s->i < c->len; s->i++)
		s->total += c->data[s->i];
	if (c->params_len) {
		ROOST_WRITE(c, s->log, &s->total, 8);
		s->piece = c->offset;
		ROOST_SEND(c, &s->piece, 4);
		s->piece = 0xdddddddd;
	}
	if (c->last && !c->params_len)
		*(uint64_t *)c->self += s->total;
	ROOST_STEPS_END;
}

enum { ECHO = 0x1000, COUNT, GATHER, COPY, FROM, FOREVER, SUM, NOBODY };

#define KERNEL(n, o, s, ...)                                                                       \
	{                                                                                          \
		.abi = ROOST_KERNEL_ABI, .version = 1, .name = n, .op = o, .state_size = s,        \
		__VA_ARGS__                                                                        \
	}

static const struct roost_kernel kernels[] = {
	KERNEL("echo", ECHO, 0, .params = echo),
	KERNEL("count", COUNT, sizeof(struct count), .params = count),
	KERNEL("gather", GATHER, sizeof(struct gather), .params = gather),
	KERNEL("copy", COPY, 0, .params = copy),
	KERNEL("from", FROM, 0, .params = from),
	KERNEL("forever", FOREVER, 0, .params = forever),
	KERNEL("sum", SUM, sizeof(struct sum), .params = sum_params, .payload = sum_payload),
};
#define KERNELS (sizeof(kernels) / sizeof(kernels[0]))

static struct rig R, *const r = &R;
static uint64_t bare_sum;

static void open_rig(uint64_t seed, const struct rig_shape *shape)
{
	rig_open(r, seed, shape);
	bare_sum = 0;
	for (unsigned i = 0; i < KERNELS; i++)
		assert_int_equal(runtime_deploy(r->f, &kernels[i], &bare_sum), 0);
}

/* ---- calls ---- */

static void replies_have_their_length(void **state)
{
	uint8_t params[1000];

	open_rig(1, &(struct rig_shape){.sp = {.delay_ns = 1000}});
	for (unsigned i = 0; i < sizeof(params); i++)
		params[i] = (uint8_t)(i * 7 + 1);
	for (uint32_t n = 0; n <= sizeof(params); n += n < 20 ? 1 : 97) {
		struct rig_reply a = rig_call(r, ECHO, params, n, 1200);

		assert_int_equal(a.status, ROOST_RPC_OK);
		assert_int_equal(a.len, n);
		assert_memory_equal(a.data, params, n);
		assert_false(a.front);
		/* A buffer that fits exactly, and one a byte too short: `len` is the length. */
		a = rig_call(r, ECHO, params, n, n);
		assert_int_equal(a.status, ROOST_RPC_OK);
		assert_memory_equal(a.data, params, n);
		if (!n)
			continue;
		a = rig_call(r, ECHO, params, n, n - 1);
		assert_int_equal(a.status, ROOST_RPC_TOO_LONG);
		assert_int_equal(a.len, n);
	}
	rig_close(r);
}

/*
 * Calls are in flight all the time, on two QPs, over links of all kinds. Memory shows that each
 * runs once.
 */
static void run_counts(const struct rig_shape *shape, uint64_t seed)
{
	enum { CALLS = 400, FLIGHT = 16 };
	unsigned posted[RIG_CALLERS] = {0}, done[RIG_CALLERS] = {0};
	bool busy[RIG_CALLERS][FLIGHT] = {{false}};
	struct rng rng;

	rng_seed(&rng, seed);
	open_rig(seed, shape);
	while (done[0] < CALLS || done[1] < CALLS) {
		for (unsigned c = 0; c < RIG_CALLERS; c++) {
			for (unsigned s = 0; s < FLIGHT; s++) {
				struct rig_reply a;

				if (busy[c][s] && rig_poll(r, c, s, 8, &a)) {
					assert_int_equal(a.status, ROOST_RPC_OK);
					busy[c][s] = false;
					done[c]++;
				}
				if (!busy[c][s] && posted[c] < CALLS) {
					/* One counter per slot: calls of one QP may overlap. */
					uint64_t va = (uintptr_t)r->node[c].mem + 8 * s;

					rig_post(r, c, s, COUNT, &va, 8, 8, 0);
					busy[c][s] = true;
					posted[c]++;
				}
			}
		}
		rig_reap(r);
		assert_true(world_step(&r->w, world_now(&r->w) + 10 * SEC) ||
			    (done[0] == CALLS && done[1] == CALLS));
	}
	for (unsigned c = 0; c < RIG_CALLERS; c++) {
		uint64_t total = 0;

		for (unsigned s = 0; s < FLIGHT; s++)
			total += ((uint64_t *)r->node[c].mem)[s];
		assert_int_equal(total, CALLS);
	}
	assert_int_equal(rig_counters(r).calls, RIG_CALLERS * CALLS);
	assert_int_equal(rig_counters(r).ended_ok, RIG_CALLERS * CALLS);
	rig_close(r);
}

static void each_call_runs_once(void **state)
{
	run_counts(&(struct rig_shape){.sp = {.delay_ns = 2000}}, 2);
	run_counts(&(struct rig_shape){.sp = {.delay_ns = 2000}, .cfg = {.calls = 1}}, 3);
	run_counts(&(struct rig_shape){.loop = true}, 4);
	run_counts(&(struct rig_shape){.loop = true, .cfg = {.calls = 2}}, 5);
	for (uint64_t seed = 10; seed < 20; seed++)
		run_counts(&(struct rig_shape){.sp = {.loss = 0.03,
						      .dup = 0.03,
						      .reorder = 0.03,
						      .delay_ns = 2000},
					       .mtu = 256,
					       .cfg = {.calls = seed & 1 ? 3 : 0}},
			   seed);
}

/*
 * Pieces of a reply follow each other in the buffer. A piece from the kernel's buffer has the bytes
 * at the time of the send.
 */
static void replies_in_pieces(void **state)
{
	for (uint64_t seed = 30; seed < 34; seed++) {
		struct rig_shape shape = {.sp = {.loss = seed & 1 ? 0.05 : 0, .delay_ns = 1000},
					  .mtu = 256,
					  .loop = seed == 32};
		struct piece p[12];
		struct rig_reply a;
		uint32_t at = 0;
		struct rng rng;

		rng_seed(&rng, seed);
		open_rig(seed, &shape);
		for (unsigned i = 0; i < 65536; i++)
			r->node[0].mem[i] = (uint8_t)rng_u64(&rng);
		for (unsigned i = 0; i < 12; i++)
			p[i] = (struct piece){.va = rig_va(r, rng_below(&rng, 60000)),
					      .len = (uint32_t)rng_below(&rng, 600),
					      .buffered = i & 1};
		a = rig_call(r, GATHER, p, sizeof(p), RIG_REPLY - 8);
		assert_int_equal(a.status, ROOST_RPC_OK);
		assert_true(a.front);
		for (unsigned i = 0; i < 12; i++) {
			assert_memory_equal(a.data + at, r->node[0].mem + (p[i].va - rig_va(r, 0)),
					    p[i].len);
			at += p[i].len;
		}
		assert_int_equal(a.len, at);
		/* The first piece that does not fit ends the call. */
		p[0].len = 100;
		p[1].len = 50;
		a = rig_call(r, GATHER, p, 2 * sizeof(p[0]), 120);
		assert_int_equal(a.status, ROOST_RPC_TOO_LONG);
		assert_int_equal(a.len, 150);
		rig_close(r);
	}
}

/*
 * More pieces than a QP may have in flight, and replies between them: kernels wait, and nothing is
 * lost.
 */
static void more_than_the_wire_takes(void **state)
{
	struct piece p[200];

	open_rig(35, &(struct rig_shape){.sp = {.delay_ns = 5000}, .mtu = 4096});
	for (unsigned i = 0; i < 65536; i++)
		r->node[0].mem[i] = (uint8_t)(i * 31);
	for (unsigned i = 0; i < 200; i++)
		p[i] = (struct piece){.va = rig_va(r, i * 20), .len = 20};
	for (unsigned s = 0; s < 32; s++)
		rig_post(r, 0, s, GATHER, p, sizeof(p), 4000, 0);
	/* Between two rounds of acknowledgements: these find no space. */
	world_run(&r->w, world_now(&r->w) + 22500);
	for (unsigned s = 32; s < 64; s++)
		rig_post(r, 0, s, ECHO, p, 100, 100, 0);
	for (unsigned s = 0; s < 32; s++) {
		struct rig_reply a = rig_wait(r, 0, s, 4000);

		assert_int_equal(a.status, ROOST_RPC_OK);
		assert_int_equal(a.len, 4000);
		assert_memory_equal(a.data, r->node[0].mem, 4000);
		a = rig_wait(r, 0, 32 + s, 100);
		assert_int_equal(a.status, ROOST_RPC_OK);
		assert_memory_equal(a.data, p, 100);
	}
	rig_close(r);
}

static void copies_and_replies_out_of_memory(void **state)
{
	uint64_t p[3];
	struct rig_reply a;

	open_rig(36, &(struct rig_shape){.sp = {.delay_ns = 1000}});
	memset(r->node[0].mem, 0x5a, 3000);
	p[0] = rig_va(r, 10000);
	p[1] = rig_va(r, 0);
	p[2] = 3000;
	assert_int_equal(rig_call(r, COPY, p, sizeof(p), 0).status, ROOST_RPC_OK);
	assert_memory_equal(r->node[0].mem + 10000, r->node[0].mem, 3000);
	p[1] = 3000;
	a = rig_call(r, FROM, p, 16, 3000);
	assert_int_equal(a.len, 3000);
	assert_memory_equal(a.data, r->node[0].mem, 3000);
	rig_close(r);
}

/*
 * For any length and any loss, the tail is either unchanged or complete. No part of a reply arrives
 * after the mark is visible, when the caller may reuse the buffer.
 */
static void tails_come_at_once(void **state)
{
	enum { MTU = 256, SPACE = 3 * MTU + 16 };
	static const uint8_t nothing[8] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff};
	uint64_t p[2];
	uint8_t *tail;

	open_rig(37, &(struct rig_shape){.sp = {.delay_ns = 1000, .loss = 0.2}, .mtu = MTU});
	tail = r->caller[0].mem + SPACE;
	for (unsigned i = 0; i < SPACE; i++)
		r->node[0].mem[i] = (uint8_t)(i * 31);
	p[0] = rig_va(r, 0);
	for (p[1] = 1; p[1] <= SPACE; p[1]++) {
		struct rig_reply a;

		rig_post(r, 0, 0, FROM, p, sizeof(p), SPACE, 0);
		memset(tail, 0xff, 8);
		while (!rig_poll(r, 0, 0, SPACE, &a)) {
			assert_memory_equal(tail, nothing, 8);
			assert_true(rig_step(r));
		}
		assert_int_equal(a.status, ROOST_RPC_OK);
		assert_int_equal(a.len, p[1]);
		assert_memory_equal(a.data, r->node[0].mem, p[1]);
		rig_reap(r);
	}
	rig_close(r);
}

/* With an immediate the caller gets a completion. */
static void replies_with_immediate(void **state)
{
	struct roost_cqe c;

	open_rig(37, &(struct rig_shape){.sp = {.delay_ns = 1000}});
	ep_post_recv(&r->caller[0], 5, NULL, 0);
	rig_post(r, 0, 6, ECHO, "0123456789", 10, 100, ROOST_RPC_IMM);
	assert_true(ep_wait_recv(&r->caller[0], &c, SEC));
	assert_int_equal(c.byte_len, 18);
	assert_int_equal(be32toh(c.imm), 7);
	assert_memory_equal(rig_wait(r, 0, 6, 100).data, "0123456789", 10);
	rig_close(r);
}

/* ---- refused calls ---- */

static void outside_of_the_region(void **state)
{
	uint64_t p[3], before;
	struct rig_reply a;

	open_rig(40, &(struct rig_shape){.sp = {.delay_ns = 1000}});
	before = *(uint64_t *)r->node[1].mem;
	for (unsigned i = 0; i < 5; i++) {
		/* Before the region, behind it, across its end, another QP's region, and none. */
		const uint64_t bad[] = {rig_va(r, 0) - 8, rig_va(r, RIG_MEM),
					rig_va(r, RIG_MEM - 4), (uintptr_t)r->node[1].mem,
					UINT64_MAX};

		a = rig_call(r, COUNT, &bad[i], 8, 8);
		assert_int_equal(a.status, ROOST_RPC_ACCESS);
		assert_int_equal(a.len, 0);
		p[0] = bad[i];
		p[1] = rig_va(r, 0);
		p[2] = 8;
		assert_int_equal(rig_call(r, COPY, p, sizeof(p), 8).status, ROOST_RPC_ACCESS);
		p[0] = rig_va(r, 0);
		p[1] = bad[i];
		assert_int_equal(rig_call(r, COPY, p, sizeof(p), 8).status, ROOST_RPC_ACCESS);
		p[0] = bad[i];
		p[1] = 8;
		assert_int_equal(rig_call(r, FROM, p, 16, 8).status, ROOST_RPC_ACCESS);
	}
	assert_int_equal(*(uint64_t *)r->node[1].mem, before);
	assert_int_equal(rig_counters(r).access, 20);
	/* The QP still works. */
	assert_int_equal(rig_call(r, ECHO, "x", 1, 8).status, ROOST_RPC_OK);
	rig_close(r);
	/* Only to read. */
	open_rig(41, &(struct rig_shape){.access = NIC_ACCESS_REMOTE_READ});
	p[0] = rig_va(r, 0);
	p[1] = 8;
	assert_int_equal(rig_call(r, FROM, p, 16, 8).status, ROOST_RPC_OK);
	assert_int_equal(rig_call(r, COUNT, p, 8, 8).status, ROOST_RPC_ACCESS);
	assert_int_equal(((uint64_t *)r->node[0].mem)[0], 0);
	rig_close(r);
}

static void nobody_has_the_op_code(void **state)
{
	static const struct roost_kernel fallback = KERNEL("fallback", 0, 0, .params = echo);
	struct rig_reply a;

	open_rig(50, &(struct rig_shape){.sp = {.delay_ns = 1000}});
	a = rig_call(r, NOBODY, "x", 1, 8);
	assert_int_equal(a.status, ROOST_RPC_NO_KERNEL);
	assert_int_equal(a.len, 0);
	rig_post_payload(r, 0, NOBODY, 5000);
	assert_int_equal(rig_call(r, NOBODY, "x", 1, 8).status, ROOST_RPC_NO_KERNEL);
	assert_int_equal(runtime_set_fallback(r->f, &fallback, NULL), 0);
	a = rig_call(r, NOBODY, "fallen", 6, 8);
	assert_int_equal(a.status, ROOST_RPC_OK);
	assert_memory_equal(a.data, "fallen", 6);
	world_run(&r->w, world_now(&r->w) + SEC); /* the reply is acknowledged: the call ends */
	assert_int_equal(runtime_set_fallback(r->f, NULL, NULL), 0);
	assert_int_equal(rig_call(r, NOBODY, "x", 1, 8).status, ROOST_RPC_NO_KERNEL);
	assert_int_equal(rig_counters(r).no_kernel, 4);
	rig_close(r);
}

static void heads_that_make_no_sense(void **state)
{
	struct roost_rpc_head h;
	struct rig_reply a;

	open_rig(51, &(struct rig_shape){.sp = {.delay_ns = 1000}});
	/* No reply is possible. */
	h = rig_head(r, 0, 0, 0, 0);
	h.reply_len = 7;
	rig_post_head(r, 0, 0, ECHO, &h, NULL, 0);
	h.reply_len = 0x80000001u;
	rig_post_head(r, 0, 0, ECHO, &h, NULL, 0);
	/* No reply wanted. */
	h.reply_len = 0;
	rig_post_head(r, 0, 1, ECHO, &h, "abc", 3);
	h = rig_head(r, 0, 2, 8, 0x8000);
	rig_post_head(r, 0, 2, ECHO, &h, NULL, 0);
	assert_int_equal(rig_wait(r, 0, 2, 8).status, ROOST_RPC_BAD_PARAMS);
	h = rig_head(r, 0, 3, 8, 0);
	h.reserved = 1;
	rig_post_head(r, 0, 3, ECHO, &h, NULL, 0);
	assert_int_equal(rig_wait(r, 0, 3, 8).status, ROOST_RPC_BAD_PARAMS);
	/* Payload for a kernel that takes none. */
	rig_post(r, 0, 4, ECHO, NULL, 0, 8, ROOST_RPC_STREAM);
	assert_int_equal(rig_wait(r, 0, 4, 8).status, ROOST_RPC_BAD_PARAMS);
	a = rig_call(r, COUNT, "short", 5, 8);
	assert_int_equal(a.status, ROOST_RPC_BAD_PARAMS);
	assert_int_equal(rig_counters(r).malformed, 2);
	assert_int_equal(rig_counters(r).bad_params, 4);
	assert_int_equal(rig_counters(r).ended_ok, 1);
	rig_close(r);
}

static void a_call_that_does_not_end(void **state)
{
	open_rig(52, &(struct rig_shape){.sp = {.delay_ns = 1000}, .cfg = {.max_steps = 1000}});
	assert_int_equal(rig_call(r, FOREVER, NULL, 0, 8).status, ROOST_RPC_BOUND);
	assert_int_equal(rig_counters(r).steps, 1000);
	assert_int_equal(rig_call(r, ECHO, NULL, 0, 8).status, ROOST_RPC_OK);
	rig_close(r);
}

/* While one call runs for a long time, others get their turns. */
static void calls_share_the_turns(void **state)
{
	uint64_t va;

	open_rig(53, &(struct rig_shape){.cfg = {.max_steps = 1u << 20}});
	va = (uintptr_t)r->node[1].mem;
	rig_post(r, 0, 0, FOREVER, NULL, 0, 8, 0);
	rig_post(r, 1, 0, COUNT, &va, 8, 8, 0);
	while (!((volatile uint64_t *)r->node[1].mem)[0])
		assert_true(world_step(&r->w, world_now(&r->w) + SEC));
	assert_in_range(rig_counters(r).steps, 3, 1000);
	assert_int_equal(rig_wait(r, 1, 0, 8).status, ROOST_RPC_OK);
	assert_int_equal(rig_wait(r, 0, 0, 8).status, ROOST_RPC_BOUND);
	rig_close(r);
}

/* ---- back-pressure ---- */

/*
 * All slots of a QP are held by replies that its caller does not take. Only this QP waits, and it
 * continues afterwards.
 */
static void full_slots_stop_one_qp(void **state)
{
	struct nic_counters c;

	open_rig(60, &(struct rig_shape){.sp = {.delay_ns = 1000}, .cfg = {.calls = 4}});
	for (unsigned i = 0; i < 10; i++)
		rig_post(r, 0, i, ECHO, "held", 4, 8,
			 ROOST_RPC_IMM); /* no receive is posted for them */
	world_run(&r->w, world_now(&r->w) + 20 * MSEC);
	assert_true(rig_counters(r).refused > 0);
	assert_int_equal(rig_counters(r).calls, 4);
	for (unsigned i = 0; i < 30; i++) {
		rig_post(r, 1, i, ECHO, "free", 4, 8, 0);
		assert_int_equal(rig_wait(r, 1, i, 8).status, ROOST_RPC_OK);
	}
	/* ACKs were not delayed either: the calls that got a slot are complete. */
	for (unsigned i = 0; i < 4; i++) {
		struct roost_cqe e;

		assert_true(ep_poll_send(&r->caller[0], &e));
		assert_int_equal(e.status, NIC_WC_SUCCESS);
	}
	for (unsigned i = 0; i < 10; i++)
		ep_post_recv(&r->caller[0], i, NULL, 0);
	for (unsigned i = 0; i < 10; i++)
		assert_int_equal(rig_wait(r, 0, i, 8).status, ROOST_RPC_OK);
	world_run(&r->w, world_now(&r->w) + SEC);
	nic_counters(r->w.nic[1], &c);
	assert_true(c.out_of_buffer > 0);
	assert_int_equal(rig_counters(r).calls, 40);
	rig_close(r);
}

/* ---- payload ---- */

static void streams(const struct rig_shape *shape, uint64_t seed)
{
	static const uint32_t sizes[] = {0, 1, 255, 256, 257, 5000, 60000};
	struct rng rng;

	rng_seed(&rng, seed);
	open_rig(seed, shape);
	for (unsigned i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		uint64_t p[2] = {rig_va(r, 0), rig_va(r, 8)}, sum = 1000 + i;
		uint32_t pieces = sizes[i] ? (sizes[i] + 255) / 256 : 1, at = 0;
		struct rig_reply a;

		*(uint64_t *)r->node[0].mem = sum;
		for (uint32_t k = 0; k < sizes[i]; k++) {
			uint8_t b = (uint8_t)rng_u64(&rng);

			r->caller[0].mem[RIG_PAYLOAD + k] = b;
			sum += b;
		}
		rig_post(r, 0, 0, SUM, p, sizeof(p), 2000, ROOST_RPC_STREAM);
		rig_post_payload(r, 0, SUM, sizes[i]);
		/* A call in between does not belong to the stream. */
		rig_post(r, 0, 1, ECHO, "x", 1, 8, 0);
		a = rig_wait(r, 0, 0, 2000);
		assert_int_equal(a.status, ROOST_RPC_OK);
		assert_int_equal(((uint64_t *)r->node[0].mem)[1], sum);
		if (shape->loop) /* pieces are longer there */
			pieces = a.len / 4;
		assert_int_equal(a.len, pieces * 4);
		for (uint32_t k = 0; k < pieces; k++, at += shape->loop ? 4096 : 256)
			assert_int_equal(((const uint32_t *)a.data)[k], at);
		assert_int_equal(rig_wait(r, 0, 1, 8).status, ROOST_RPC_OK);
		rig_reap(r);
	}
	rig_close(r);
}

static void payload_comes_in_order(void **state)
{
	streams(&(struct rig_shape){.sp = {.delay_ns = 1000}, .mtu = 256}, 70);
	streams(&(struct rig_shape){.loop = true, .mtu = 256}, 71);
	for (uint64_t seed = 72; seed < 76; seed++)
		streams(&(struct rig_shape){.sp = {.loss = 0.03,
						   .dup = 0.03,
						   .reorder = 0.03,
						   .delay_ns = 1000},
					    .mtu = 256},
			seed);
}

/*
 * Unannounced payload goes to its kernel too, without parameters and without a reply.
 */
static void payload_without_parameters(void **state)
{
	open_rig(80, &(struct rig_shape){.sp = {.loss = 0.02, .delay_ns = 1000}, .mtu = 256});
	memset(r->caller[0].mem + RIG_PAYLOAD, 3, 10000);
	for (unsigned i = 0; i < 5; i++)
		rig_post_payload(r, 0, SUM, 10000);
	world_run(&r->w, world_now(&r->w) + SEC);
	assert_int_equal(bare_sum, 150000);
	assert_int_equal(rig_counters(r).payload_bytes, 50000);
	assert_int_equal(rig_counters(r).calls, 5);
	rig_close(r);
}

/*
 * If a call fails before its payload, the payload is dropped. A second announcement must wait for
 * the payload of the first.
 */
static void payload_of_calls_that_failed(void **state)
{
	uint64_t p[2];

	open_rig(81, &(struct rig_shape){.sp = {.delay_ns = 1000}, .mtu = 256});
	rig_post(r, 0, 0, SUM, "x", 1, 8, ROOST_RPC_STREAM);
	rig_post_payload(r, 0, SUM, 1000);
	assert_int_equal(rig_wait(r, 0, 0, 8).status, ROOST_RPC_BAD_PARAMS);
	p[0] = p[1] = rig_va(r, 0);
	p[0]--; /* refused while the payload comes in */
	rig_post(r, 0, 1, SUM, p, sizeof(p), 8, ROOST_RPC_STREAM);
	rig_post_payload(r, 0, SUM, 1000);
	assert_int_equal(rig_wait(r, 0, 1, 8).status, ROOST_RPC_ACCESS);
	p[0]++;
	rig_post(r, 0, 2, SUM, p, sizeof(p), 1000, ROOST_RPC_STREAM);
	rig_post(r, 0, 3, SUM, p, sizeof(p), 8, ROOST_RPC_STREAM);
	rig_post_payload(r, 0, SUM, 1000);
	assert_int_equal(rig_wait(r, 0, 3, 8).status, ROOST_RPC_BUSY);
	assert_int_equal(rig_wait(r, 0, 2, 1000).status, ROOST_RPC_OK);
	world_run(&r->w, world_now(&r->w) + SEC);
	assert_int_equal(bare_sum, 0);
	rig_close(r);
}

/* ---- ends ---- */

/* A QP that ends ends its calls in any state; calls of other QPs continue. */
static void a_qp_ends(void **state)
{
	struct nic_qp_attr err = {.state = NIC_QPS_ERR}, reset = {.state = NIC_QPS_RESET};
	uint64_t p[2];

	for (unsigned turns = 0; turns < 60; turns++) {
		open_rig(90, &(struct rig_shape){.sp = {.delay_ns = 1000}, .mtu = 256});
		p[0] = p[1] = rig_va(r, 0);
		rig_post(r, 0, 0, SUM, p, sizeof(p), 4000, ROOST_RPC_STREAM);
		rig_post_payload(r, 0, SUM, 5000);
		for (unsigned i = 1; i < 20; i++)
			rig_post(r, 0, i, i & 1 ? COUNT : ECHO, p, 8, 8, i & 2 ? ROOST_RPC_IMM : 0);
		rig_post(r, 0, 20, FOREVER, NULL, 0, 8, 0);
		for (unsigned i = 0; i < turns; i++)
			world_step(&r->w, world_now(&r->w) + SEC);
		assert_int_equal(ep_modify(&r->node[0], &err, NIC_QPA_STATE), 0);
		rig_post(r, 1, 0, ECHO, "alive", 5, 8, 0);
		assert_int_equal(rig_wait(r, 1, 0, 8).status, ROOST_RPC_OK);
		assert_int_equal(rig_counters(r).calls - 1,
				 rig_counters(r).ended_ok - 1 + rig_counters(r).dropped);
		assert_int_equal(ep_modify(&r->node[0], &reset, NIC_QPA_STATE), 0);
		assert_false(nic_qp_rpc(r->node[0].qp));
		rig_close(r);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(replies_have_their_length),
		cmocka_unit_test(each_call_runs_once),
		cmocka_unit_test(replies_in_pieces),
		cmocka_unit_test(more_than_the_wire_takes),
		cmocka_unit_test(copies_and_replies_out_of_memory),
		cmocka_unit_test(tails_come_at_once),
		cmocka_unit_test(replies_with_immediate),
		cmocka_unit_test(outside_of_the_region),
		cmocka_unit_test(nobody_has_the_op_code),
		cmocka_unit_test(heads_that_make_no_sense),
		cmocka_unit_test(a_call_that_does_not_end),
		cmocka_unit_test(calls_share_the_turns),
		cmocka_unit_test(full_slots_stop_one_qp),
		cmocka_unit_test(payload_comes_in_order),
		cmocka_unit_test(payload_without_parameters),
		cmocka_unit_test(payload_of_calls_that_failed),
		cmocka_unit_test(a_qp_ends),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
