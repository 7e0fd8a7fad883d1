/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Kernels on streams that post work requests. They copy incoming or outgoing bytes to a replica,
 * over any network. A kernel that waits pauses its own stream and no other.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/rng.h"
#include "conclude.h"
#include "scene.h"

enum { COPY_OP = 0x1001, BUFFER_OP, STRETCH_OP };

#define BUFFER 4096u

/* ---- the kernels: they send the bytes that they see to a bound queue pair ---- */

struct copy_params {
	uint64_t from, to; /* bytes at `from` are copied to `to` */
	uint32_t rkey, qp;
	bool each;  /* waits for each */
	bool xored; /* the one with buffers: changes the bytes */
};

struct copy {
	struct copy_params p;
	uint32_t which, op[2];
	uint64_t to;
	uint8_t status; /* of the first failed operation */
};

struct told_copy {
	uint32_t posted, failed;
	uint8_t status;
};

static bool bytes_stayed;
static bool brief; /* replies after its first piece */

static enum roost_next copy_params(struct roost_call *c)
{
	memcpy(&((struct copy *)c->state)->p, c->params, sizeof(struct copy_params));
	return ROOST_DONE;
}

static enum roost_next tell(struct roost_call *c)
{
	struct copy *m = c->state;
	struct told_copy *told = c->scratch;

	*told = (struct told_copy){c->qp_posted, c->qp_failed, m->status};
	return roost_reply(c, ROOST_RPC_OK, told, sizeof(*told));
}

static void note(struct roost_call *c, struct copy *m)
{
	for (uint32_t n = 1; !m->status && c->qp_failed && n <= c->qp_done; n++)
		m->status = (uint8_t)roost_qp_status(c, n);
	bytes_stayed |= c->data || c->rewrite;
}

/* Copies from the region in which the bytes arrived. */
static enum roost_next copy(struct roost_call *c)
{
	struct copy *m = c->state;

	if (!c->total)
		return tell(c);
	ROOST_STEPS(c);
	m->to = m->p.to + (c->where - m->p.from);
	if (m->p.each)
		ROOST_QP_WRITE_AT(c, m->p.qp, m->to, m->p.rkey, c->where, c->len);
	else
		ROOST_QP_POST(c,
			      roost_qp_write(c, m->p.qp, m->to, m->p.rkey, NULL, c->where, c->len));
	note(c, m);
	if (brief)
		return tell(c);
	ROOST_STEPS_END;
}

/* Copies from two buffers of its own; after a piece one of them is free. */
static enum roost_next buffered(struct roost_call *c)
{
	struct copy *m = c->state;
	uint8_t *buf = (uint8_t *)c->scratch + m->which * BUFFER;

	if (!c->total)
		return tell(c);
	ROOST_STEPS(c);
	for (uint32_t i = 0; i < c->len; i++)
		buf[i] = m->p.xored ? (c->rewrite[i] ^= 0x5a) : c->data[i];
	m->to = m->p.to + (c->where - m->p.from);
	ROOST_QP_POST_WRITE(c, m->p.qp, m->to, m->p.rkey, buf, c->len);
	m->op[m->which] = c->qp_posted;
	m->which ^= 1;
	ROOST_QP_WAIT(c, m->op[m->which]);
	note(c, m);
	ROOST_STEPS_END;
}

/* A kernel that may change lengths, but does not. */
static enum roost_next stretched(struct roost_call *c)
{
	ROOST_STEPS(c);
	if (!c->total)
		return ROOST_DONE;
	memcpy(c->scratch, c->data, c->len);
	ROOST_SEND(c, c->scratch, c->len);
	ROOST_STEPS_END;
}

#define KERNEL(op_, stream_, ...)                                                                  \
	{                                                                                          \
		.abi = ROOST_KERNEL_ABI, .version = 1, .name = "copy", .op = op_,                  \
		.state_size = sizeof(struct copy), .scratch_size = 2 * BUFFER,                     \
		.params = copy_params, .stream = stream_, ##__VA_ARGS__                            \
	}

static const struct roost_kernel kernels[] = {
	KERNEL(COPY_OP, copy),
	KERNEL(BUFFER_OP, buffered, .rewrites = true),
	KERNEL(STRETCH_OP, stretched, .resizes = true),
};

/* ---- the scene: WRITEs between `caller` and `called`; the replica is peer 1's memory ---- */

static uint32_t region; /* called's memory, for work requests of bound[1] */
static struct told_copy told;

static void open_copies(uint64_t seed, const struct shape *shape, uint32_t ops)
{
	const struct runtime_qp_limits limits = {.ops = ops};

	open_scene(seed, shape);
	bytes_stayed = false;
	for (unsigned i = 0; i < sizeof(kernels) / sizeof(kernels[0]); i++) {
		unsigned number;

		assert_int_equal(runtime_deploy(s->f, &kernels[i], NULL), 0);
		assert_int_equal(
			runtime_bind_qp(s->f, kernels[i].op, s->bound[1].qp, &limits, &number), 0);
	}
	assert_int_equal(nic_mr_register(s->called.nic,
					 &(struct nic_mr_attr){.pd = s->bound[1].pd,
							       .addr = s->called.mem,
							       .len = MEM,
							       .iova = (uintptr_t)s->called.mem},
					 &region),
			 0);
}

static struct local_call *begin(uint64_t op, const struct ep *from, bool each, bool xored)
{
	struct copy_params p = {.from = (uintptr_t)from->mem,
				.to = (uintptr_t)s->peer[1].mem,
				.rkey = s->peer[1].key,
				.qp = 1,
				.each = each,
				.xored = xored};
	struct local_call_attr a = {.op = op,
				    .params = &p,
				    .params_len = sizeof(p),
				    .pd = s->bound[1].pd,
				    .key = region,
				    .reply = (uint8_t *)&told,
				    .space = sizeof(told)};
	struct local_call *call;

	assert_int_equal(local_call_begin(s->f, 0, &a, &call), 0);
	return call;
}

static void close_copies(void)
{
	if (region)
		assert_int_equal(nic_mr_deregister(s->w.nic[0], region), 0);
	close_scene();
}

static unsigned unfinished;

static void write_some(struct ep *from, struct ep *to, uint64_t off, uint32_t len)
{
	struct wr wr = wr_rdma(ROOST_OP_WRITE, from, off, len, to, off);

	ep_post(from, &wr);
	unfinished++;
}

static void reap(struct ep *e)
{
	struct roost_cqe cqe;

	while (ep_poll_send(e, &cqe)) {
		assert_int_equal(cqe.status, NIC_WC_SUCCESS);
		unfinished--;
	}
}

/* Posts n WRITEs of random bytes and lengths, and waits for them. */
static void write_random(struct rng *rng, struct ep *from, struct ep *to, unsigned n)
{
	for (uint32_t i = 0; i < MEM; i++)
		from->mem[i] = (uint8_t)rng_u64(rng);
	unfinished = 0;
	for (unsigned i = 0; i < n; i++) {
		uint32_t len = (uint32_t)rng_below(rng, i % 8 ? 3000 : 30000);

		write_some(from, to, rng_below(rng, MEM - len), len);
		while (unfinished > 32) {
			assert_true(turn());
			reap(from);
		}
	}
	while (unfinished) {
		assert_true(turn());
		reap(from);
	}
}

/* Detaches a local call, and waits for its end. */
static void end(struct local_call *p, uint32_t status)
{
	assert_int_equal(local_call_detach(p), 0);
	conclude(p, status, turn);
}

static const struct shape shapes[] = {
	{.sp = {.delay_ns = 2000}, .rnr_retry = 7},
	{.sp = {.delay_ns = 2000, .loss = 0.05}, .rnr_retry = 7},
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

static uint64_t hook_waits(void)
{
	struct nic_counters ctr;

	nic_counters(s->w.nic[0], &ctr);
	return ctr.out_of_buffer;
}

/* ---- successful copies ---- */

/* All bytes that arrived are in the replica too. The sender waits; no byte is lost. */
static void what_comes_in(void **state)
{
	for (unsigned i = 0; i < 6 * SHAPES; i++) {
		bool on_region = i / SHAPES & 1;
		unsigned way = i / SHAPES / 2;
		struct local_call *p;
		struct rng rng;

		rng_seed(&rng, i);
		open_copies(i + 1, &shapes[i % SHAPES], way == 1 ? 1 : 0);
		memset(s->called.mem, 0, MEM);
		memset(s->peer[1].mem, 0, MEM);
		p = begin(COPY_OP, &s->called, way == 2, false);
		assert_int_equal(on_region ? local_call_attach_region(p, s->called.key)
					   : local_call_attach_in(p, s->called.qp),
				 0);
		write_random(&rng, &s->caller, &s->called, 60);
		end(p, ROOST_RPC_OK);
		assert_int_equal(told.failed, 0);
		assert_true(told.posted >= 60);
		assert_memory_equal(s->peer[1].mem, s->called.mem, MEM);
		assert_false(bytes_stayed);
		if (way)
			assert_true(hook_waits() > 0);
		close_copies();
	}
}

/* Outgoing bytes go to the peer and to the replica, unchanged or rewritten. */
static void what_leaves(void **state)
{
	for (unsigned i = 0; i < 4 * SHAPES; i++) {
		bool xored = i / SHAPES & 1;
		struct local_call *p;
		struct rng rng;

		rng_seed(&rng, 100 + i);
		open_copies(i + 1, &shapes[i % SHAPES], i / SHAPES / 2);
		memset(s->caller.mem, 0, MEM);
		memset(s->peer[1].mem, 0, MEM);
		p = begin(BUFFER_OP, &s->caller, false, xored);
		assert_int_equal(local_call_attach_out(p, s->called.qp), 0);
		write_random(&rng, &s->called, &s->caller, 60);
		end(p, ROOST_RPC_OK);
		assert_int_equal(told.failed, 0);
		assert_memory_equal(s->peer[1].mem, s->caller.mem, MEM);
		for (uint32_t k = 0; k < MEM; k++)
			if (s->caller.mem[k])
				assert_int_equal(s->caller.mem[k],
						 s->called.mem[k] ^ (xored ? 0x5a : 0));
		assert_false(bytes_stayed);
		/* A hook that is gone does not delay outgoing messages. */
		write_random(&rng, &s->called, &s->caller, 5);
		close_copies();
	}
}

/*
 * A sender on an unreliable connection cannot be made to wait. Messages are lost, and the replica
 * has the rest.
 */
static void unreliable(void **state)
{
	struct ep a, b;
	struct local_call *p;
	struct rng rng;

	rng_seed(&rng, 1);
	open_copies(1, &shapes[0], 4);
	ep_init(&a, &s->w, 1, &(struct ep_params){.type = NIC_QPT_UC, .mem = MEM});
	ep_init(&b, &s->w, 0, &(struct ep_params){.type = NIC_QPT_UC, .mem = MEM});
	ep_connect(&a, &b);
	assert_int_equal(nic_mr_deregister(s->called.nic, region), 0);
	assert_int_equal(nic_mr_register(b.nic,
					 &(struct nic_mr_attr){.pd = s->bound[1].pd,
							       .addr = b.mem,
							       .len = MEM,
							       .iova = (uintptr_t)b.mem},
					 &region),
			 0);
	memset(b.mem, 0, MEM);
	memset(s->peer[1].mem, 0, MEM);
	p = begin(COPY_OP, &b, false, false);
	assert_int_equal(local_call_attach_in(p, b.qp), 0);
	write_random(&rng, &a, &b, 20); /* as fast as possible */
	for (unsigned i = 0; i < 20; i++) {
		world_run(&s->w, world_now(&s->w) + 100000);
		write_some(&a, &b, i * 4096, 1 + (uint32_t)rng_below(&rng, 4096));
	}
	while (turn())
		;
	end(p, ROOST_RPC_OK);
	assert_memory_equal(s->peer[1].mem, b.mem, MEM);
	assert_memory_not_equal(b.mem, a.mem, MEM);
	assert_true(told.posted > 5);
	assert_true(hook_waits() > 0);
	ep_fini(&a);
	ep_fini(&b);
	close_copies();
}

/* For tests in which the replica's acknowledgements are lost for a time. */
static const struct shape slow = {
	.sp = {.delay_ns = 2000}, .rnr_retry = 7, .timeout = 14, .retry_cnt = 7};

static int drop_replica(void *ctx, const struct pkt_addr *src, const uint8_t *bth, uint32_t len)
{
	return pkt_addr_eq(src, ep_addr(&s->peer[1]));
}

/*
 * A paused stream delays neither other streams of its NIC nor the opposite direction.
 */
static void nobody_else_waits(void **state)
{
	struct roost_cqe cqe;
	struct local_call *p;

	open_copies(1, &slow, 1);
	memset(s->caller.mem, 'n', MEM);
	p = begin(COPY_OP, &s->called, false, false);
	assert_int_equal(local_call_attach_in(p, s->called.qp), 0);
	sim_set_filter(s->w.sim, drop_replica, NULL); /* no operation is ever done there */
	unfinished = 0;
	write_some(&s->caller, &s->called, 0, 1000);
	write_some(&s->caller, &s->called, 1000, 1000);
	write_some(&s->caller, &s->called, 2000, 1000);
	for (unsigned i = 0; i < 50; i++)
		assert_true(turn());
	reap(&s->caller);
	assert_int_equal(unfinished, 1);
	for (unsigned i = 0; i < 10; i++) {
		struct wr there = wr_rdma(ROOST_OP_WRITE, &s->bound[0], 0, 5000, &s->peer[0], 0);
		struct wr back = wr_rdma(ROOST_OP_WRITE, &s->called, 8192, 5000, &s->caller, 8192);

		ep_post(&s->bound[0], &there);
		assert_true(ep_wait_send(&s->bound[0], &cqe, MSEC));
		assert_int_equal(cqe.status, NIC_WC_SUCCESS);
		ep_post(&s->called, &back);
		assert_true(ep_wait_send(&s->called, &cqe, MSEC));
		assert_int_equal(cqe.status, NIC_WC_SUCCESS);
	}
	reap(&s->caller);
	assert_int_equal(unfinished, 1);
	assert_true(local_call_busy(p));
	sim_set_filter(s->w.sim, NULL, NULL);
	while (unfinished) {
		assert_true(turn());
		reap(&s->caller);
	}
	end(p, ROOST_RPC_OK);
	filled(s->peer[1].mem, 'n', 3000);
	close_copies();
}

/* ---- failures ---- */

/* The replica refuses an operation: the kernel gets the status, and the stream continues. */
static void the_replica_refuses(void **state)
{
	struct local_call *p;
	struct rng rng;

	rng_seed(&rng, 5);
	for (unsigned i = 0; i < 2; i++) {
		open_copies(1, &shapes[i ? 3 : 0], 2);
		s->peer[1].key ^= 0x100;
		p = begin(COPY_OP, &s->called, false, false);
		s->peer[1].key ^= 0x100;
		assert_int_equal(local_call_attach_in(p, s->called.qp), 0);
		write_random(&rng, &s->caller, &s->called, 40);
		end(p, ROOST_RPC_OK);
		assert_int_equal(told.status, ROOST_QP_REM_ACCESS);
		assert_int_equal(told.failed, told.posted);
		close_copies();
	}
}

/*
 * While the kernel waits, the queue pair of its stream or the bound one is destroyed, or the kernel
 * is detached or unloaded.
 */
static void what_goes_meanwhile(void **state)
{
	for (unsigned how = 0; how < 4; how++) {
		struct local_call *p;
		unsigned turns = 0;

		open_copies(1, &shapes[0], 1);
		p = begin(COPY_OP, &s->called, true, false);
		assert_int_equal(local_call_attach_in(p, s->called.qp), 0);
		unfinished = 0;
		write_some(&s->caller, &s->called, 0, 4000);
		while (!local_call_busy(p))
			assert_true(turn());
		if (how == 0) {
			ep_fini(&s->called);
			while (local_call_busy(p))
				assert_true(turn());
			assert_int_equal(local_call_detach(p), 0);
			local_call_end_stream(p);
			local_call_free(p);
			assert_int_equal(told.posted, 1);
			ep_init(&s->called, &s->w, 0, &(struct ep_params){.rpc = true, .mem = MEM});
		} else if (how == 1) {
			assert_int_equal(nic_mr_deregister(s->w.nic[0], region), 0);
			region = 0;
			ep_fini(&s->bound[1]);
			s->bound[1].qp = NULL;
			while (unfinished) {
				assert_true(turns++ < 10000 && turn());
				reap(&s->caller);
			}
			end(p, ROOST_RPC_OK);
			assert_int_equal(told.status, ROOST_QP_FLUSHED);
			assert_int_equal(told.failed, told.posted);
		} else if (how == 2) { /* given up in the middle */
			assert_int_equal(local_call_detach(p), 0);
			assert_true(local_call_busy(p));
			local_call_free(p);
			while (unfinished) {
				assert_true(turns++ < 10000 && turn());
				reap(&s->caller);
			}
			while (turn())
				;
			assert_int_equal(runtime_undeploy(s->f, COPY_OP), 0);
		} else {
			assert_int_equal(runtime_unload(s->f, COPY_OP), 0);
			while (unfinished) {
				assert_true(turns++ < 10000 && turn());
				reap(&s->caller);
			}
			end(p, ROOST_RPC_OK);
			assert_int_equal(told.failed, 0);
		}
		close_copies();
	}
}

/* A kernel that changes lengths is attached behind a kernel that waits; its bytes wait too. */
static void joins_who_waits(void **state)
{
	struct local_call *p, *q;

	open_copies(1, &slow, 1);
	sim_set_filter(s->w.sim, drop_replica, NULL); /* no operation completes there */
	unfinished = 0;
	p = begin(BUFFER_OP, &s->caller, false, false);
	q = begin(STRETCH_OP, &s->caller, false, false);
	assert_int_equal(local_call_attach_out(p, s->called.qp), 0);
	write_some(&s->called, &s->caller, 0, 100);
	write_some(&s->called, &s->caller, 100, 100);
	while (unfinished) {
		assert_true(turn());
		reap(&s->called);
	}
	/* No message of the stream is in flight, and p waits for a slot after its first copy. */
	assert_true(local_call_busy(p));
	assert_int_equal(local_call_attach_out(q, s->called.qp), 0);
	write_some(&s->called, &s->caller, 200, 100);
	for (unsigned i = 0; i < 100; i++)
		assert_true(turn());
	reap(&s->called);
	assert_int_equal(unfinished, 1);
	sim_set_filter(s->w.sim, NULL, NULL);
	while (unfinished) {
		assert_true(turn());
		reap(&s->called);
	}
	end(q, ROOST_RPC_OK);
	end(p, ROOST_RPC_OK);
	assert_int_equal(told.posted, 3);
	assert_int_equal(told.failed, 0);
	close_copies();
}

/*
 * A local call that has replied is busy while an operation is in progress, and the region of the
 * operation cannot be deregistered.
 */
static void replied_meanwhile(void **state)
{
	for (unsigned on_region = 0; on_region < 2; on_region++) {
		struct local_call_result result;
		struct local_call *p;

		open_copies(1, &slow, 0);
		sim_set_filter(s->w.sim, drop_replica, NULL);
		brief = true;
		p = begin(COPY_OP, &s->called, false, false);
		assert_int_equal(on_region ? local_call_attach_region(p, s->called.key)
					   : local_call_attach_in(p, s->called.qp),
				 0);
		write_some(&s->caller, &s->called, 0, 100);
		while (!local_call_finished(p, &result))
			assert_true(turn());
		assert_true(local_call_busy(p));
		assert_int_equal(local_call_detach(p), 0);
		assert_true(local_call_busy(p));
		if (on_region)
			assert_int_equal(nic_mr_deregister(s->called.nic, s->called.key), -EBUSY);
		sim_set_filter(s->w.sim, NULL, NULL);
		end(p, ROOST_RPC_OK);
		assert_memory_equal(s->peer[1].mem, s->called.mem, 100);
		brief = false;
		close_copies();
	}
}

/* ---- rules ---- */

static void rules(void **state)
{
	struct local_call *p;
	unsigned number;

	unfinished = 0;
	/* An outgoing message must not wait for a message that may wait for it. */
	open_copies(1, &shapes[0], 0);
	assert_int_equal(runtime_unbind_qp(s->f, BUFFER_OP, 1), 0);
	assert_int_equal(runtime_bind_qp(s->f, BUFFER_OP, s->called.qp,
					 &(struct runtime_qp_limits){0}, &number),
			 0);
	assert_int_equal(number, 1);
	p = begin(BUFFER_OP, &s->caller, false, false);
	assert_int_equal(local_call_attach_out(p, s->called.qp), 0);
	write_some(&s->called, &s->caller, 0, 3000);
	while (unfinished) {
		assert_true(turn());
		reap(&s->called);
	}
	end(p, ROOST_RPC_OK);
	assert_int_equal(told.status, ROOST_QP_INVALID);
	assert_int_equal(told.failed, told.posted);
	close_copies();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_comes_in),
		cmocka_unit_test(what_leaves),
		cmocka_unit_test(unreliable),
		cmocka_unit_test(nobody_else_waits),
		cmocka_unit_test(the_replica_refuses),
		cmocka_unit_test(what_goes_meanwhile),
		cmocka_unit_test(joins_who_waits),
		cmocka_unit_test(replied_meanwhile),
		cmocka_unit_test(rules),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
