/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Kernels that are attached to streams: they see each written byte once and in order, and bytes
 * that they rewrite arrive rewritten, over any network.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/rng.h"
#include "builtin/builtin.h"
#include "kernels/local_call.h"
#include "rig.h"
#include "roost/aggregate.h"
#include "roost/get.h"
#include "roost/hll.h"

#define RECORDED (4u << 20)
#define SPACE	 (512u << 10) /* the part of a memory that WRITEs use */

enum { SEE_OP = 0x1000, CIPHER_OP, NO_STREAM_OP, STRETCH_OP };

static struct rig R, *const r = &R;

/* ---- the kernels ---- */

/* Records all bytes that a hook sees. There is one for each hook; they share `self`. */
struct record {
	uint32_t n, messages, next; /* next: expected offset */
	bool bad;
	uint64_t where;
	uint8_t bytes[RECORDED];
};
static struct record seen[2];

struct see_state {
	uint32_t which;
};

static enum roost_next see_params(struct roost_call *c)
{
	struct see_state *s = c->state;

	if (c->params_len != 4)
		return roost_reply(c, ROOST_RPC_BAD_PARAMS, NULL, 0);
	memcpy(&s->which, c->params, 4);
	return ROOST_DONE;
}

static enum roost_next see(struct roost_call *c)
{
	struct record *to = &seen[((struct see_state *)c->state)->which];

	if (!c->total)
		return roost_reply(c, ROOST_RPC_OK, &to->messages, 4);
	to->bad |=
		c->offset != to->next || c->last != (c->offset + c->len == c->total) || c->rewrite;
	to->bad |= c->offset && c->where != to->where;
	to->where = c->where + c->len;
	to->next = c->last ? 0 : c->offset + c->len;
	to->messages += c->last;
	if (c->len <= RECORDED - to->n)
		memcpy(to->bytes + to->n, c->data, c->len);
	to->n += c->len;
	return ROOST_DONE;
}

/*
 * A cipher whose key stream advances with each byte. If it ran twice for a byte, all later bytes
 * would be wrong.
 */
struct cipher_state {
	uint64_t at;
};

static uint8_t cipher_byte(uint64_t at)
{
	return (uint8_t)(roost_hll_hash(at / 8 + 1) >> at % 8 * 8);
}

static enum roost_next cipher(struct roost_call *c)
{
	struct cipher_state *s = c->state;

	for (uint32_t i = 0; i < c->len; i++)
		c->rewrite[i] ^= cipher_byte(s->at++);
	return ROOST_DONE;
}

/*
 * Outputs small bytes twice and large bytes not at all, in parts of 1000 bytes, or fewer at the end
 * of a piece.
 */
struct stretch_state {
	uint32_t at, n;
	uint8_t out[1000];
};

static uint32_t stretch_byte(uint8_t *to, uint8_t b)
{
	uint32_t n = b < 160 ? 2 : b < 200;

	memset(to, b, n);
	return n;
}

static enum roost_next stretch(struct roost_call *c)
{
	struct stretch_state *s = c->state;

	ROOST_STEPS(c);
	for (s->at = 0; s->at < c->len;) {
		for (s->n = 0; s->at < c->len && s->n + 2 <= sizeof(s->out); s->at++)
			s->n += stretch_byte(s->out + s->n, c->data[s->at]);
		ROOST_SEND(c, s->out, s->n);
	}
	ROOST_STEPS_END;
}

static enum roost_next nothing(struct roost_call *c)
{
	return ROOST_DONE;
}

static const struct roost_kernel see_kernel = {.abi = ROOST_KERNEL_ABI,
					       .name = "see",
					       .version = 1,
					       .op = SEE_OP,
					       .state_size = sizeof(struct see_state),
					       .params = see_params,
					       .stream = see};
static const struct roost_kernel cipher_kernel = {.abi = ROOST_KERNEL_ABI,
						  .name = "cipher",
						  .version = 1,
						  .op = CIPHER_OP,
						  .state_size = sizeof(struct cipher_state),
						  .stream = cipher,
						  .rewrites = true};
static const struct roost_kernel stretch_kernel = {.abi = ROOST_KERNEL_ABI,
						   .name = "stretch",
						   .version = 1,
						   .op = STRETCH_OP,
						   .state_size = sizeof(struct stretch_state),
						   .stream = stretch,
						   .resizes = true};
static const struct roost_kernel no_stream_kernel = {.abi = ROOST_KERNEL_ABI,
						     .name = "no-stream",
						     .version = 1,
						     .op = NO_STREAM_OP,
						     .params = nothing};

/* ---- the rig ---- */

static struct kernel_runtime *caller_runtime;

static void open_rig(uint64_t seed, struct rig_shape shape)
{
	static const struct roost_kernel *const all[] = {&see_kernel, &cipher_kernel,
							 &no_stream_kernel, &stretch_kernel};

	shape.rnr_retry = 7;
	memset(seen, 0, sizeof(seen));
	rig_open(r, seed, &shape);
	caller_runtime = rig_caller_runtime(r);
	for (unsigned i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
		assert_int_equal(runtime_deploy(r->f, all[i], NULL), 0);
		if (!shape.loop)
			assert_int_equal(runtime_deploy(caller_runtime, all[i], NULL), 0);
	}
	assert_int_equal(runtime_deploy(r->f, kernels_builtin("hll"), NULL), 0);
	assert_int_equal(runtime_deploy(r->f, kernels_builtin("aggregate"), NULL), 0);
	assert_int_equal(runtime_deploy(r->f, kernels_builtin("get"), NULL), 0);
}

static void settle(void)
{
	world_run(&r->w, world_now(&r->w) + 20 * SEC);
	rig_reap(r);
}

/* Posts n random WRITEs, and collects their bytes in `sent`. */
static uint32_t write_random(struct rng *rng, unsigned n, uint8_t *sent)
{
	struct ep *e = &r->caller[0];
	uint32_t total = 0;

	for (uint32_t i = 0; i < SPACE; i++)
		e->mem[i] = (uint8_t)rng_u64(rng);
	for (unsigned i = 0; i < n; i++) {
		uint32_t len = (uint32_t)rng_below(rng, i % 8 ? 6000 : 100000);
		uint64_t from = rng_below(rng, SPACE - len), to = rng_below(rng, SPACE - len);

		memcpy(sent + total, e->mem + from, len);
		total += len;
		rig_write(r, 0, from, to, len);
		if (i % 16 == 15)
			settle();
	}
	settle();
	return total;
}

static void check(const struct record *s, const uint8_t *sent, uint32_t n)
{
	assert_false(s->bad);
	assert_int_equal(s->n, n);
	assert_int_equal(s->next, 0);
	assert_memory_equal(s->bytes, sent, n);
}

static void end(struct local_call *p, uint32_t status)
{
	struct local_call_result result;

	assert_int_equal(local_call_detach(p), 0);
	local_call_end_stream(p);
	assert_true(local_call_finished(p, &result));
	assert_int_equal(result.status, status);
	local_call_free(p);
}

static const struct rig_shape shapes[] = {
	{.sp = {.delay_ns = 1000}, .mtu = 4096},
	{.loop = true},
	{.sp = {.loss = 0.05, .dup = 0.05, .reorder = 0.05, .delay_ns = 1000}, .mtu = 256},
	{.sp = {.loss = 0.15, .dup = 0.1, .reorder = 0.1, .delay_ns = 20000}, .mtu = 1024},
};
#define SHAPES (sizeof(shapes) / sizeof(shapes[0]))

static uint8_t sent[RECORDED];

/* ---- bytes that kernels see ---- */

static void sees_what_lands(void **state)
{
	struct rng rng;

	for (unsigned i = 0; i < SHAPES; i++) {
		struct local_call *p[2];
		uint32_t n;

		rng_seed(&rng, i);
		open_rig(i + 1, shapes[i]);
		for (uint32_t k = 0; k < 2; k++) { /* a chain: both see all */
			p[k] = rig_local_call(r, r->f, SEE_OP, &k, 4, NULL, 0);
			assert_int_equal(local_call_attach_in(p[k], r->node[0].qp), 0);
		}
		n = write_random(&rng, 60, sent);
		check(&seen[0], sent, n);
		check(&seen[1], sent, n);
		end(p[0], ROOST_RPC_TOO_LONG); /* it replies, and there is no space */
		rig_write(r, 0, 0, 0, 1000);
		settle();
		assert_int_equal(seen[0].n, n);
		assert_int_equal(seen[1].n, n + 1000);
		end(p[1], ROOST_RPC_TOO_LONG);
		rig_close(r);
	}
}

/*
 * Bytes that leave through a cipher arrive encrypted in memory, in the order of the stream.
 */
static void rewrites_what_leaves(void **state)
{
	struct rng rng;

	for (unsigned i = 0; i < SHAPES; i++) {
		struct local_call *c, *s, *after;
		uint32_t n;

		rng_seed(&rng, 100 + i);
		open_rig(i + 1, shapes[i]);
		c = rig_local_call(r, caller_runtime, CIPHER_OP, NULL, 0, NULL, 0);
		after = rig_local_call(r, caller_runtime, SEE_OP, &(uint32_t){1}, 4, NULL, 0);
		s = rig_local_call(r, r->f, SEE_OP, &(uint32_t){0}, 4, NULL, 0);
		assert_int_equal(local_call_attach_out(c, r->caller[0].qp), 0);
		assert_int_equal(local_call_attach_out(after, r->caller[0].qp),
				 0); /* the second of two hooks: it gets the bytes of the first */
		assert_int_equal(local_call_attach_in(s, r->node[0].qp), 0);
		n = write_random(&rng, 60, sent);
		for (uint32_t k = 0; k < n; k++)
			sent[k] ^= cipher_byte(k);
		check(&seen[0], sent, n);
		check(&seen[1], sent, n);
		/* Memory, too. */
		rig_write(r, 0, 0, 7, 5000);
		settle();
		for (uint32_t k = 0; k < 5000; k++)
			assert_int_equal(r->node[0].mem[7 + k],
					 r->caller[0].mem[k] ^ cipher_byte(n + k));
		end(c, ROOST_RPC_OK);
		end(after, ROOST_RPC_TOO_LONG);
		rig_write(r, 0, 0, 7, 5000);
		settle();
		assert_memory_equal(r->node[0].mem + 7, r->caller[0].mem, 5000);
		end(s, ROOST_RPC_TOO_LONG);
		rig_close(r);
	}
}

static uint32_t stretched(uint8_t *to, const uint8_t *from, uint32_t n)
{
	uint32_t len = 0;

	for (uint32_t i = 0; i < n; i++)
		len += stretch_byte(to + len, from[i]);
	return len;
}

static unsigned completions(unsigned status, unsigned *others)
{
	struct roost_cqe c;
	unsigned n = 0;

	*others = 0;
	while (ep_poll_send(&r->caller[0], &c)) {
		n += c.status == status;
		*others += c.status != status;
	}
	return n;
}

/*
 * A WRITE becomes several WRITEs of the changed bytes; the program's completions do not change. In
 * the chain there is a cipher before the kernel, and one that records behind it.
 */
static void changes_the_length(void **state)
{
	static uint8_t out[2 * RIG_MEM];
	static const uint32_t lens[] = {100000, 1, 0, 4096, 4097, 8191, 50000, 16384};
	struct rng rng;

	for (unsigned i = 0; i < SHAPES; i++) {
		struct local_call *c, *z, *after, *in;
		struct roost_cqe cqe;
		uint32_t enciphered = 0, total = 0, at = 0;
		unsigned others;
		struct wr imm;

		rng_seed(&rng, 200 + i);
		open_rig(i + 1, shapes[i]);
		for (uint32_t k = 0; k < SPACE; k++)
			r->caller[0].mem[k] = (uint8_t)rng_u64(&rng);
		memset(r->node[0].mem, 0, RIG_MEM);
		c = rig_local_call(r, caller_runtime, CIPHER_OP, NULL, 0, NULL, 0);
		z = rig_local_call(r, caller_runtime, STRETCH_OP, NULL, 0, NULL, 0);
		after = rig_local_call(r, caller_runtime, SEE_OP, &(uint32_t){1}, 4, NULL, 0);
		in = rig_local_call(r, r->f, SEE_OP, &(uint32_t){0}, 4, NULL, 0);
		assert_int_equal(local_call_attach_in(z, r->node[0].qp), -EOPNOTSUPP);
		assert_int_equal(local_call_attach_out(i & 1 ? c : z, r->caller[0].qp), 0);
		assert_int_equal(local_call_attach_out(i & 1 ? z : after, r->caller[0].qp), 0);
		assert_int_equal(local_call_attach_in(in, r->node[0].qp), 0);
		for (unsigned k = 0; k < sizeof(lens) / sizeof(lens[0]); k++) {
			uint32_t n;

			memcpy(sent, r->caller[0].mem + 100 * k, lens[k]);
			for (uint32_t b = 0; i & 1 && b < lens[k]; b++)
				sent[b] ^= cipher_byte(enciphered + b);
			enciphered += lens[k];
			n = stretched(out + total, sent, lens[k]);
			rig_write(r, 0, 100 * k, at, lens[k]);
			world_run(&r->w, world_now(&r->w) + 20 * SEC);
			assert_int_equal(completions(NIC_WC_SUCCESS, &others), 1);
			assert_int_equal(others, 0);
			assert_memory_equal(r->node[0].mem + at, out + total, n);
			assert_int_equal(r->node[0].mem[at + n], 0);
			total += n;
			at += n + 1;
		}
		check(&seen[0], out, total);
		if (!(i & 1))
			check(&seen[1], out, total);
		/* Many in flight, which may be lost: each is kept until it has arrived. */
		for (unsigned k = 0; k < 20; k++) {
			uint32_t n;

			memcpy(sent, r->caller[0].mem + 9973 * k, 20000);
			for (uint32_t b = 0; i & 1 && b < 20000; b++)
				sent[b] ^= cipher_byte(enciphered + b);
			enciphered += 20000;
			n = stretched(out + total, sent, 20000);
			assert_true(at + n < RIG_MEM);
			rig_write(r, 0, 9973 * k, at, 20000);
			total += n;
			at += n;
		}
		world_run(&r->w, world_now(&r->w) + 60 * SEC);
		assert_int_equal(completions(NIC_WC_SUCCESS, &others), 20);
		assert_int_equal(others, 0);
		check(&seen[0], out, total);
		/* Many at a time, then one with immediate data, which must arrive once. */
		for (unsigned k = 0; k < 40; k++)
			rig_write(r, 0, 0, 0, 20000);
		ep_post_recv(&r->node[0], 1, NULL, 0);
		imm = wr_rdma(ROOST_OP_WRITE_IMM, &r->caller[0], 0, 60000, &r->node[0], 0);
		imm.imm = 77;
		ep_post(&r->caller[0], &imm);
		assert_true(ep_wait_recv(&r->node[0], &cqe, 60 * SEC));
		assert_int_equal(cqe.imm, 77);
		world_run(&r->w, world_now(&r->w) + SEC);
		assert_int_equal(completions(NIC_WC_SUCCESS, &others), 41);
		assert_int_equal(others, 0);
		assert_false(ep_poll_recv(&r->node[0], &cqe));
		/*
		 * The peer refuses the second WRITE: it completes with an error, and the others are
		 * flushed, each once.
		 */
		for (unsigned k = 0; k < 5; k++)
			rig_write(r, 0, 0, k == 1 ? RIG_MEM - 30000 : 0, 200000);
		world_run(&r->w, world_now(&r->w) + 20 * SEC);
		{
			unsigned good = completions(NIC_WC_SUCCESS, &others);

			assert_int_equal(good, 1);
			assert_int_equal(others, 4);
		}
		assert_int_equal(local_call_detach(z), 0);
		local_call_free(z);
		if (i & 1) {
			assert_int_equal(local_call_detach(c), 0);
		} else {
			assert_int_equal(local_call_detach(after), 0);
		}
		local_call_free(c);
		local_call_free(after);
		assert_int_equal(local_call_detach(in), 0);
		local_call_free(in);
		rig_close(r);
	}
}

/* Two ciphers undo each other, and SENDs go through them too. */
static void sends(void **state)
{
	for (unsigned i = 0; i < SHAPES; i++) {
		struct ep *e, *to;
		struct local_call *c[2];
		struct roost_cqe cqe;

		open_rig(i + 1, shapes[i]);
		e = &r->caller[0];
		to = &r->node[0];
		for (uint32_t k = 0; k < 40000; k++)
			e->mem[k] = (uint8_t)(k * 31 >> 3);
		c[0] = rig_local_call(r, caller_runtime, CIPHER_OP, NULL, 0, NULL, 0);
		assert_int_equal(local_call_attach_out(c[0], e->qp), 0);
		for (unsigned round = 0; round < 2; round++) {
			struct roost_sge sge = ep_sge(to, 0, 65536);
			struct wr wr = {
				.op = ROOST_OP_SEND, .sge = {ep_sge(e, 0, 40000)}, .num_sge = 1};

			ep_post_recv(to, 1, &sge, 1);
			ep_post(e, &wr);
			assert_true(ep_wait_recv(to, &cqe, 20 * SEC));
			assert_int_equal(cqe.byte_len, 40000);
			settle();
			for (uint32_t k = 0; k < 40000; k++)
				assert_int_equal(
					to->mem[k],
					(uint8_t)(e->mem[k] ^ (round ? 0 : cipher_byte(k))));
			if (round)
				break;
			end(c[0], ROOST_RPC_OK);
			for (unsigned k = 0; k < 2; k++) {
				c[k] = rig_local_call(r, caller_runtime, CIPHER_OP, NULL, 0, NULL,
						      0);
				assert_int_equal(local_call_attach_out(c[k], e->qp), 0);
			}
		}
		end(c[0], ROOST_RPC_OK);
		end(c[1], ROOST_RPC_OK);
		rig_close(r);
	}
}

/*
 * A hook is refused while messages are in flight, as the third one, or without a function for
 * streams. A QP may go first.
 */
static void rules(void **state)
{
	struct local_call *p, *q, *z[2];
	struct local_call_attr a = {.op = 0xdead};

	open_rig(1, shapes[0]);
	assert_int_equal(local_call_begin(r->f, 0, &a, &p), -ENOENT);
	p = rig_local_call(r, caller_runtime, NO_STREAM_OP, NULL, 0, NULL, 0);
	assert_int_equal(local_call_attach_in(p, r->caller[0].qp), -EOPNOTSUPP);
	local_call_free(p);
	p = rig_local_call(r, caller_runtime, CIPHER_OP, NULL, 0, NULL, 0);
	rig_write(r, 0, 0, 0, 100000);
	world_run(&r->w, world_now(&r->w) + 1500);
	assert_int_equal(local_call_attach_out(p, r->caller[0].qp), -EBUSY);
	settle();
	assert_int_equal(local_call_attach_out(p, r->caller[0].qp), 0);
	rig_write(r, 0, 0, 0, 100000);
	world_run(&r->w, world_now(&r->w) + 1500);
	assert_int_equal(local_call_detach(p), -EBUSY);
	settle();
	for (unsigned i = 0; i < 2; i++) {
		/* One that changes lengths, and no second one. */
		q = rig_local_call(r, caller_runtime, STRETCH_OP, NULL, 0, NULL, 0);
		z[i] = q;
		assert_int_equal(local_call_attach_out(q, r->caller[1].qp), i ? -ENOSPC : 0);
	}
	assert_int_equal(local_call_detach(z[0]), 0);
	assert_int_equal(local_call_attach_out(z[1], r->caller[1].qp), 0);
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(local_call_detach(z[i]), 0);
		local_call_free(z[i]);
	}
	q = rig_local_call(r, caller_runtime, CIPHER_OP, NULL, 0, NULL, 0);
	assert_int_equal(local_call_attach_out(q, r->caller[0].qp), 0);
	/* too late to rewrite */
	assert_int_equal(local_call_attach_in(q, r->node[0].qp), -EOPNOTSUPP);
	assert_int_equal(local_call_attach_region(q, r->node[0].key), -EOPNOTSUPP);
	assert_int_equal(runtime_undeploy(caller_runtime, CIPHER_OP), -EBUSY);
	for (unsigned i = 0; i < 2; i++)
		ep_fini(&r->caller[i]), ep_fini(&r->node[i]);
	assert_int_equal(local_call_detach(p), 0);
	local_call_free(p);
	local_call_free(q);
	assert_int_equal(runtime_undeploy(caller_runtime, CIPHER_OP), 0);
	world_fini(&r->w);
}

/* ---- regions, and built-in kernels ---- */

static void count_on_a_region(void **state)
{
	for (unsigned i = 0; i < SHAPES; i++) {
		struct roost_hll_params p = roost_hll_params(5, ROOST_HLL_ADD, 12);
		uint8_t model[1 << 12] = {0}, other[64];
		struct local_call *h, *none;
		struct local_call_result result;
		struct rng rng;

		rng_seed(&rng, 7);
		open_rig(i + 1, shapes[i]);
		h = rig_local_call(r, r->f, ROOST_HLL_OP, &p, sizeof(p), other, sizeof(other));
		none = rig_local_call(r, r->f, SEE_OP, &(uint32_t){0}, 4, other, sizeof(other));
		assert_int_equal(local_call_attach_region(h, r->node[0].key), 0);
		assert_int_equal(local_call_attach_region(none, r->node[0].key + 1),
				 0); /* a key that no peer uses */
		for (uint32_t k = 0; k < SPACE; k += 8) {
			uint64_t item = rng_u64(&rng);

			memcpy(r->caller[0].mem + k, &item, 8);
			if (k < 200000)
				roost_hll_add(model, 12, item);
		}
		for (uint32_t at = 0; at < 200000; at += 20000)
			rig_write(r, 0, at, at, 20000);
		rig_write(r, 1, 300000, 300000, 20000); /* another region */
		settle();
		assert_int_equal(seen[0].n, 0);
		p = roost_hll_params(5, ROOST_HLL_REGISTERS, 0);
		{
			static uint8_t registers[1 << 12];
			struct local_call *ask = rig_local_call(
				r, r->f, ROOST_HLL_OP, &p, sizeof(p), registers, sizeof(registers));

			assert_true(local_call_finished(ask, &result));
			assert_int_equal(result.status, ROOST_RPC_OK);
			assert_int_equal(result.len, sizeof(registers));
			assert_memory_equal(registers, model, sizeof(model));
			local_call_free(ask);
		}
		assert_false(local_call_finished(h, &result));
		assert_int_equal(result.bytes, 200000);
		end(h, ROOST_RPC_OK);
		end(none, ROOST_RPC_OK);
		rig_close(r);
	}
}

static void aggregate_a_stream(void **state)
{
	for (unsigned i = 0; i < SHAPES; i++) {
		struct roost_aggregate_params p = {.record = 24,
						   .predicate = ROOST_AGGREGATE_GREATER_THAN,
						   .operand = 99,
						   .where = {.offset = 0, .width = 4},
						   .value = {.offset = 8, .width = 8}};
		struct roost_aggregate_result out;
		uint64_t sum = 0, matched = 0;
		struct local_call_result result;
		struct local_call *a;

		open_rig(i + 1, shapes[i]);
		for (uint64_t k = 0; k < 4000; k++) {
			uint32_t where = (uint32_t)(k % 200);

			memcpy(r->caller[0].mem + 24 * k, &where, 4);
			memcpy(r->caller[0].mem + 24 * k + 8, &k, 8);
			matched += where > 99;
			sum += where > 99 ? k : 0;
		}
		a = rig_local_call(r, r->f, ROOST_AGGREGATE_OP, &p, sizeof(p), (uint8_t *)&out,
				   sizeof(out));
		assert_int_equal(local_call_attach_in(a, r->node[0].qp), 0);
		for (uint32_t at = 0; at < 4000; at += 500)
			rig_write(r, 0, 24 * at, 24 * at, 24 * 500);
		settle();
		assert_int_equal(local_call_detach(a), 0);
		local_call_end_stream(a);
		assert_true(local_call_finished(a, &result));
		assert_int_equal(result.status, ROOST_RPC_OK);
		assert_int_equal(result.len, sizeof(out));
		assert_int_equal(out.records, 4000);
		assert_int_equal(out.matched, matched);
		assert_int_equal(out.sum, sum);
		local_call_free(a);
		rig_close(r);
	}
}

/* A message that is no whole records ends the call, not the stream. */
static void a_hook_that_fails(void **state)
{
	struct roost_aggregate_params p = {.record = 24};
	struct local_call_result result;
	struct local_call *a;

	open_rig(1, shapes[0]);
	a = rig_local_call(r, r->f, ROOST_AGGREGATE_OP, &p, sizeof(p), NULL, 0);
	assert_int_equal(local_call_attach_in(a, r->node[0].qp), 0);
	rig_write(r, 0, 0, 0, 240);
	rig_write(r, 0, 0, 0, 241);
	rig_write(r, 0, 0, 1000, 241);
	settle();
	assert_true(local_call_finished(a, &result));
	assert_int_equal(result.status, ROOST_RPC_BAD_PARAMS);
	assert_memory_equal(r->node[0].mem + 1000, r->caller[0].mem, 241);
	assert_int_equal(local_call_detach(a), 0);
	local_call_free(a);
	rig_close(r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sees_what_lands),
		cmocka_unit_test(rewrites_what_leaves),
		cmocka_unit_test(changes_the_length),
		cmocka_unit_test(sends),
		cmocka_unit_test(rules),
		cmocka_unit_test(count_on_a_region),
		cmocka_unit_test(aggregate_a_stream),
		cmocka_unit_test(a_hook_that_fails),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
