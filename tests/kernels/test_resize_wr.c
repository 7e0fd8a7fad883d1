/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Kernels that change lengths and wait, or are attached beside kernels that wait: outgoing bytes
 * are the same, each once, and so are the bytes that the kernels post.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/rng.h"
#include "conclude.h"
#include "scene.h"

enum { DOUBLE_OP = 0x1001, MIRROR_OP };

#define PIECE	4096u
#define SEGMENT 16384u
#define HALF	(MEM / 2)

/* ---- the kernels ---- */

struct params {
	uint64_t from, to; /* bytes at remote `from` are read to local `to` */
	uint32_t rkey;
	bool gives_up;
};

struct doubling {
	struct params p;
	uint64_t to;
	uint32_t at, n;
	uint8_t out[1000];
};

static enum roost_next take_params(struct roost_call *c)
{
	memcpy(c->state, c->params, sizeof(struct params));
	return ROOST_DONE;
}

static enum roost_next tell(struct roost_call *c)
{
	return roost_reply(c, c->qp_failed ? ROOST_RPC_FAILED : ROOST_RPC_OK, NULL, 0);
}

/*
 * Outputs each byte twice, and writes each piece unchanged to peer 0 before the last byte of the
 * piece leaves. A WRITE to 2 n is the output for a WRITE to n.
 */
static enum roost_next doubling(struct roost_call *c)
{
	struct doubling *d = c->state;

	if (!c->total)
		return tell(c);
	ROOST_STEPS(c);
	memcpy(c->scratch, c->data, c->len);
	d->to = d->p.to + (c->where - c->offset - d->p.from) / 2 + c->offset;
	ROOST_QP_POST_WRITE(c, 1, d->to, d->p.rkey, c->scratch, c->len);
	for (d->at = 0; d->at < c->len;) {
		for (d->n = 0; d->at < c->len && d->n < sizeof(d->out); d->at++, d->n += 2)
			memset(d->out + d->n, c->data[d->at], 2);
		if (d->at == c->len)
			ROOST_QP_WAIT_ALL(c);
		ROOST_SEND(c, d->out, d->n);
	}
	if (d->p.gives_up && c->last)
		ROOST_FAIL(c, 200);
	ROOST_STEPS_END;
}

/* Copies each piece to peer 1's memory, and waits until it is there. */
static enum roost_next mirror(struct roost_call *c)
{
	struct params *p = c->state;
	uint8_t *buf = c->self;

	if (!c->total)
		return tell(c);
	ROOST_STEPS(c);
	assert_true(c->len <= SEGMENT);
	memcpy(buf, c->data, c->len);
	ROOST_QP_WRITE(c, 1, p->to + (c->where - p->from), p->rkey, buf, c->len);
	ROOST_STEPS_END;
}

static const struct roost_kernel double_kernel = {.abi = ROOST_KERNEL_ABI,
						  .version = 1,
						  .name = "double",
						  .op = DOUBLE_OP,
						  .state_size = sizeof(struct doubling),
						  .scratch_size = PIECE,
						  .params = take_params,
						  .stream = doubling,
						  .resizes = true};
static const struct roost_kernel mirror_kernel = {.abi = ROOST_KERNEL_ABI,
						  .version = 1,
						  .name = "mirror",
						  .op = MIRROR_OP,
						  .state_size = sizeof(struct params),
						  .params = take_params,
						  .stream = mirror};

/* ---- the scene: `called` WRITEs to `caller` ---- */

static uint8_t mirrored[SEGMENT];
static unsigned unfinished;

static void bind_to(uint64_t op, struct ep *e, uint32_t ops)
{
	unsigned number;

	assert_int_equal(
		runtime_bind_qp(s->f, op, e->qp, &(struct runtime_qp_limits){.ops = ops}, &number),
		0);
	assert_int_equal(number, 1);
}

static void open_doubling(uint64_t seed, const struct shape *shape, uint32_t ops)
{
	struct rng rng;

	open_scene(seed, shape);
	assert_int_equal(runtime_deploy(s->f, &double_kernel, NULL), 0);
	assert_int_equal(runtime_deploy(s->f, &mirror_kernel, mirrored), 0);
	bind_to(DOUBLE_OP, &s->bound[0], ops);
	bind_to(MIRROR_OP, &s->bound[1], ops);
	rng_seed(&rng, seed);
	for (uint32_t i = 0; i < MEM; i++)
		s->called.mem[i] = (uint8_t)rng_u64(&rng);
	memset(s->caller.mem, 0, MEM);
	memset(s->peer[0].mem, 0, MEM);
	memset(s->peer[1].mem, 0, MEM);
	unfinished = 0;
}

static struct local_call *begin(uint64_t op, bool gives_up)
{
	const struct ep *to = &s->peer[op == MIRROR_OP];
	struct params p = {.from = (uintptr_t)s->caller.mem,
			   .to = (uintptr_t)to->mem,
			   .rkey = to->key,
			   .gives_up = gives_up};
	struct local_call_attr a = {.op = op, .params = &p, .params_len = sizeof(p)};
	struct local_call *call;

	assert_int_equal(local_call_begin(s->f, 0, &a, &call), 0);
	assert_int_equal(local_call_attach_out(call, s->called.qp), 0);
	return call;
}

static void reap(uint8_t status)
{
	struct roost_cqe cqe;

	while (ep_poll_send(&s->called, &cqe)) {
		assert_int_equal(cqe.status, status);
		unfinished--;
	}
}

static void post(uint64_t off, uint32_t len)
{
	struct wr wr = wr_rdma(ROOST_OP_WRITE, &s->called, off, len, &s->caller, 2 * off);

	ep_post(&s->called, &wr);
	unfinished++;
}

/* Writes the first half of the memory, in WRITEs from from[i] to from[i + 1]. */
static unsigned write_all(struct rng *rng, uint32_t from[64])
{
	unsigned n = 0;

	for (uint32_t off = 0, len; off < HALF; off += len) {
		len = 1 + (uint32_t)rng_below(rng, n % 4 ? 3000 : 30000);
		len = len < HALF - off && n < 62 ? len : HALF - off;
		post(off, len);
		from[n++] = off;
		while (unfinished > 24) {
			assert_true(turn());
			reap(NIC_WC_SUCCESS);
		}
	}
	from[n] = HALF;
	while (unfinished) {
		assert_true(turn());
		reap(NIC_WC_SUCCESS);
	}
	return n;
}

static void end(struct local_call *p, uint32_t status)
{
	while (local_call_detach(p))
		assert_true(turn());
	conclude(p, status, turn);
}

static const struct shape shapes[] = {
	{.sp = {.delay_ns = 2000}, .rnr_retry = 7},
	{.sp = {.delay_ns = 2000,
		.jitter_ns = 3000,
		.loss = 0.02,
		.dup = 0.03,
		.reorder = 0.03,
		.corrupt = 0.01},
	 .rnr_retry = 7},
	{.loop = true, .rnr_retry = 7},
};
#define SHAPES (sizeof(shapes) / sizeof(shapes[0]))

static void expect_doubled(void)
{
	for (uint32_t i = 0; i < MEM; i++)
		assert_int_equal(s->caller.mem[i], s->called.mem[i / 2]);
	assert_memory_equal(s->peer[0].mem, s->called.mem, HALF);
}

/* ---- tests ---- */

static void alone(void **state)
{
	uint32_t from[64];
	struct local_call *p;
	struct rng rng;

	for (unsigned i = 0; i < 2 * SHAPES; i++) {
		rng_seed(&rng, i);
		open_doubling(i + 1, &shapes[i % SHAPES], i / SHAPES);
		p = begin(DOUBLE_OP, false);
		write_all(&rng, from);
		expect_doubled();
		end(p, ROOST_RPC_OK);
		close_scene();
	}
}

/* A kernel that waits before the resizing one in the chain, or behind it. */
static void in_a_chain(void **state)
{
	uint32_t from[64];
	struct local_call *p, *q;
	struct rng rng;
	unsigned n;

	for (unsigned i = 0; i < 2 * SHAPES; i++) {
		bool behind = i / SHAPES;

		rng_seed(&rng, i);
		open_doubling(i + 1, &shapes[i % SHAPES], 1);
		p = begin(behind ? DOUBLE_OP : MIRROR_OP, false);
		q = begin(behind ? MIRROR_OP : DOUBLE_OP, false);
		n = write_all(&rng, from);
		while (local_call_busy(p) || local_call_busy(q))
			assert_true(turn());
		expect_doubled();
		if (behind)
			assert_memory_equal(s->peer[1].mem, s->caller.mem, MEM);
		for (unsigned k = 0; k < n && !behind; k++)
			assert_memory_equal(s->peer[1].mem + 2 * from[k], s->called.mem + from[k],
					    from[k + 1] - from[k]);
		end(p, ROOST_RPC_OK);
		end(q, ROOST_RPC_OK);
		close_scene();
	}
}

static int drop_peers(void *ctx, const struct pkt_addr *src, const uint8_t *bth, uint32_t len)
{
	return pkt_addr_eq(src, ep_addr(&s->peer[1]));
}

static const struct shape slow = {
	.sp = {.delay_ns = 2000}, .rnr_retry = 7, .timeout = 14, .retry_cnt = 7};

/*
 * While a kernel waits, more is posted than can be sent: no message is lost, and the NIC does not
 * spin.
 */
static void posted_meanwhile(void **state)
{
	struct local_call *p, *q;
	struct nic_counters was, is;

	for (unsigned i = 0; i < 2; i++) {
		open_doubling(1, &slow, 1);
		/* the mirror is not done before that ends */
		sim_set_filter(s->w.sim, drop_peers, NULL);
		p = begin(i ? DOUBLE_OP : MIRROR_OP, false);
		q = begin(i ? MIRROR_OP : DOUBLE_OP, false);
		for (unsigned k = 0; k < 32; k++)
			post(k * 4096, 4096);
		for (unsigned k = 0; k < 100; k++)
			assert_true(turn());
		reap(NIC_WC_SUCCESS);
		assert_true(unfinished >= 31);
		nic_counters(s->w.nic[0], &was);
		world_run(&s->w, world_now(&s->w) + MSEC);
		assert_false(nic_pending(s->w.nic[0], 0));
		nic_counters(s->w.nic[0], &is);
		assert_true(is.turns - was.turns < 100);
		sim_set_filter(s->w.sim, NULL, NULL);
		while (unfinished) {
			assert_true(turn());
			reap(NIC_WC_SUCCESS);
		}
		expect_doubled();
		end(p, ROOST_RPC_OK);
		end(q, ROOST_RPC_OK);
		close_scene();
	}
}

/*
 * The stream's queue pair is reset or destroyed while its kernel waits in the middle of a piece.
 * The next stream works like the first.
 */
static void cut_short(void **state)
{
	struct local_call *p;

	for (unsigned i = 0; i < 2; i++) {
		struct ep_params ep = {.rpc = true, .mem = MEM, .rnr_retry = 7};

		open_doubling(1, &shapes[0], 0);
		p = begin(DOUBLE_OP, false);
		post(0, 30000);
		for (unsigned k = 0; k < 3; k++)
			assert_true(turn());
		assert_true(local_call_busy(p));
		if (i) {
			ep_fini(&s->called);
			ep_init(&s->called, &s->w, 0, &ep);
		} else {
			assert_int_equal(ep_modify(&s->called,
						   &(struct nic_qp_attr){.state = NIC_QPS_ERR},
						   NIC_QPA_STATE),
					 0);
			while (unfinished) {
				assert_true(turn());
				reap(NIC_WC_WR_FLUSH_ERR);
			}
		}
		end(p, ROOST_RPC_OK);
		/* The remaining operations of the kernel are done. */
		while (turn())
			;
		close_scene();
	}
	open_doubling(2, &shapes[0], 0);
	p = begin(DOUBLE_OP, true);
	post(0, 4097);
	while (unfinished) {
		assert_true(turn());
		reap(NIC_WC_SUCCESS);
	}
	for (uint32_t i = 0; i < 2 * 4097; i++)
		assert_int_equal(s->caller.mem[i], s->called.mem[i / 2]);
	/* The kernel has ended: the next piece is passed on unchanged. */
	post(8192, 5000);
	while (unfinished) {
		assert_true(turn());
		reap(NIC_WC_SUCCESS);
	}
	assert_memory_equal(s->caller.mem + 16384, s->called.mem + 8192, 5000);
	end(p, 200);
	close_scene();
}

/* Posts a WRITE of one piece on bound queue pair 1, which is a stream here. */
static void post_beside(void)
{
	struct wr wr = wr_rdma(ROOST_OP_WRITE, &s->bound[1], 0, PIECE, &s->peer[1], 0);

	ep_post(&s->bound[1], &wr);
}

/*
 * Two streams share a limit of one operation. The queue pair of one fails, is reset or destroyed
 * while its kernel waits for space, or after the space is reserved for it and before the kernel
 * runs: the space goes to the other stream.
 */
enum stream_end { FAILS, IS_RESET, IS_DESTROYED, STREAM_ENDS };

static void end_stream(enum stream_end how)
{
	const struct nic_qp_attr to = {.state = how == FAILS ? NIC_QPS_ERR : NIC_QPS_RESET};

	if (how == IS_DESTROYED)
		ep_fini(&s->called);
	else
		assert_int_equal(ep_modify(&s->called, &to, NIC_QPA_STATE), 0);
}

/* In this state the queue pair does not run the kernel whose first message has not left yet. */
static void hold_stream(void)
{
	static const struct nic_qp_attr sqd = {.state = NIC_QPS_SQD};

	assert_int_equal(ep_modify(&s->called, &sqd, NIC_QPA_STATE), 0);
}

static void space_of_a_stream_that_ends(void **state)
{
	struct ep_params ep = {.rpc = true, .mem = MEM, .rnr_retry = 7};
	struct local_call *p, *q;
	struct roost_cqe cqe;

	for (unsigned i = 0; i < 2 * STREAM_ENDS; i++) {
		enum stream_end how = i % STREAM_ENDS;
		struct params to;
		struct local_call_attr a = {
			.op = DOUBLE_OP, .params = &to, .params_len = sizeof(to)};

		open_doubling(1, &shapes[0], 1);
		to = (struct params){.from = (uintptr_t)s->peer[1].mem,
				     .to = (uintptr_t)s->peer[0].mem,
				     .rkey = s->peer[0].key};
		assert_int_equal(local_call_begin(s->f, 0, &a, &q), 0);
		assert_int_equal(local_call_attach_out(q, s->bound[1].qp), 0);
		p = begin(DOUBLE_OP, false);
		post_beside();
		while (!nic_kernel_wrs(s->bound[0].qp))
			assert_true(turn());
		post(0, PIECE); /* its kernel waits for the operation of the other one */
		assert_true(turn());
		assert_int_equal(nic_kernel_wrs(s->bound[0].qp), 1);
		if (i >= STREAM_ENDS) {
			hold_stream();
			while (nic_kernel_wrs(s->bound[0].qp))
				assert_true(turn());
		}
		end_stream(how);
		for (unsigned k = 0; k < 3; k++) {
			post_beside();
			assert_true(ep_wait_send(&s->bound[1], &cqe, SEC));
			assert_int_equal(cqe.status, NIC_WC_SUCCESS);
		}
		if (how == IS_DESTROYED)
			ep_init(&s->called, &s->w, 0, &ep);
		end(p, ROOST_RPC_OK);
		assert_true(ep_wait_send(&s->bound[1], &cqe, SEC));
		end(q, ROOST_RPC_OK);
		close_scene();
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(alone),
		cmocka_unit_test(in_a_chain),
		cmocka_unit_test(posted_meanwhile),
		cmocka_unit_test(cut_short),
		cmocka_unit_test(space_of_a_stream_that_ends),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
