/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Kernels on streams of a NIC with two processing units: on a region to which peers of both PUs
 * write, or on a queue pair. Operations on a bound queue pair run on its PU, whichever PU received
 * the bytes.
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
#include "kernels/local_call.h"
#include "world.h"

enum { OP = 0x1000, BUFFER_OP, RESIZE_OP, PUS = 2, MEM = 64 << 10 };

/* NIC 0 is the node, whose `called` have one region; NIC 1 calls; NIC 2 has the replica. */
static struct world W, *const w = &W;
static struct kernel_runtime *f;
static struct ep called[PUS], caller[PUS], bound, replica;
static unsigned unfinished, cuts;

/* ---- the kernel ---- */

struct params {
	uint64_t from, to;
	uint32_t rkey;
	bool each, twice;
};

struct copy {
	struct params p;
	uint64_t seen, at;
	uint32_t len;
};

static enum roost_next take(struct roost_call *c)
{
	memcpy(c->state, c->params, sizeof(struct params));
	return ROOST_DONE;
}

/*
 * Copies from the region to the replica; with `twice` in two pieces, and counts the second piece
 * when it is done.
 */
static enum roost_next copy(struct roost_call *c)
{
	struct copy *s = c->state;

	ROOST_STEPS(c);
	if (!c->total)
		ROOST_FAIL(c, c->qp_failed || s->seen != c->qp_posted ? ROOST_RPC_FAILED
								      : ROOST_RPC_OK);
	assert_non_null(c->data);
	s->at = c->where;
	s->len = c->len;
	if (s->p.twice && c->len > 1) {
		s->len = c->len / 2;
		ROOST_QP_POST(c, roost_qp_write(c, 1, s->p.to + (s->at - s->p.from), s->p.rkey,
						NULL, s->at, s->len));
		s->seen++;
		s->at += s->len;
		s->len = c->len - s->len;
	}
	if (s->p.each)
		ROOST_QP_WRITE_AT(c, 1, s->p.to + (s->at - s->p.from), s->p.rkey, s->at, s->len);
	else
		ROOST_QP_POST(c, roost_qp_write(c, 1, s->p.to + (s->at - s->p.from), s->p.rkey,
						NULL, s->at, s->len));
	assert_null(c->data);
	s->seen++;
	ROOST_STEPS_END;
}

/* Copies outgoing bytes from its own buffer. */
static enum roost_next buffered(struct roost_call *c)
{
	struct copy *s = c->state;

	ROOST_STEPS(c);
	if (!c->total)
		ROOST_FAIL(c, c->qp_failed || s->seen != c->qp_posted ? ROOST_RPC_FAILED
								      : ROOST_RPC_OK);
	memcpy(c->scratch, c->data, c->len);
	ROOST_QP_WRITE(c, 1, s->p.to + (c->where - s->p.from), s->p.rkey, c->scratch, c->len);
	s->seen++;
	ROOST_STEPS_END;
}

/* Tries to post, and gets the status that no queue pair is bound. */
static enum roost_next resized(struct roost_call *c)
{
	ROOST_STEPS(c);
	if (!c->total)
		ROOST_FAIL(c, ROOST_RPC_OK);
	memcpy(c->scratch, c->data, c->len);
	ROOST_QP_WRITE(c, 1, 0, 0, c->scratch, c->len);
	assert_int_equal(roost_qp_status(c, c->qp_posted), ROOST_QP_NONE);
	ROOST_SEND(c, c->scratch, c->len);
	ROOST_STEPS_END;
}

static void copy_cut(struct roost_call *c)
{
	cuts++;
}

#define KERNEL(op_, stream_, resizes_)                                                             \
	{                                                                                          \
		.abi = ROOST_KERNEL_ABI, .version = 1, .name = "copy", .op = op_,                  \
		.state_size = sizeof(struct copy), .scratch_size = 4096, .params = take,           \
		.stream = stream_, .cut = copy_cut, .resizes = resizes_                            \
	}

static const struct roost_kernel kernels[] = {
	KERNEL(OP, copy, false),
	KERNEL(BUFFER_OP, buffered, false),
	KERNEL(RESIZE_OP, resized, true),
};

/* ---- the scene ---- */

static void open_world(uint64_t seed, const struct sim_params *sp, uint8_t pu, uint32_t ops)
{
	struct ep_params p = {.mem = MEM, .rnr_retry = 7, .timeout = 14, .retry_cnt = 7};
	unsigned number;

	world_init_shape(w, &(struct world_shape){.nics = 3, .pus = PUS}, seed, sp);
	assert_int_equal(runtime_create(w->nic[0], NULL, &f), 0);
	for (uint8_t i = 0; i < PUS; i++) {
		p.pu = i;
		p.pd_of = i ? &called[0] : NULL;
		ep_init(&called[i], w, 0, &p);
		p.pd_of = NULL;
		ep_init(&caller[i], w, 1, &p);
		ep_connect(&caller[i], &called[i]);
	}
	p.pu = pu;
	p.pd_of = &called[0];
	ep_init(&bound, w, 0, &p);
	p.pu = 0;
	p.pd_of = NULL;
	ep_init(&replica, w, 2, &p);
	ep_connect(&bound, &replica);
	for (unsigned i = 0; i < sizeof(kernels) / sizeof(kernels[0]); i++) {
		assert_int_equal(runtime_deploy(f, &kernels[i], NULL), 0);
		assert_int_equal(runtime_bind_qp(f, kernels[i].op, bound.qp,
						 &(struct runtime_qp_limits){.ops = ops}, &number),
				 0);
	}
	memset(called[0].mem, 0, MEM);
	memset(replica.mem, 0, MEM);
	unfinished = cuts = 0;
}

static void close_world(void)
{
	ep_fini(&bound);
	ep_fini(&replica);
	for (unsigned i = PUS; i-- > 0;) {
		ep_fini(&caller[i]);
		ep_fini(&called[i]);
	}
	world_fini(w);
}

static struct local_call *begin_with(uint64_t op, const struct ep *from, unsigned pu, bool each,
				     bool twice)
{
	const struct params p = {.from = (uintptr_t)from->mem,
				 .to = (uintptr_t)replica.mem,
				 .rkey = replica.key,
				 .each = each,
				 .twice = twice};
	const struct local_call_attr a = {.op = op,
					  .params = &p,
					  .params_len = sizeof(p),
					  .pd = called[0].pd,
					  .key = from->key};
	struct local_call *call;

	assert_int_equal(local_call_begin(f, local_call_pu(f, op, pu), &a, &call), 0);
	return call;
}

static struct local_call *begin(bool each, bool twice)
{
	struct local_call *p = begin_with(OP, &called[0], 0, each, twice);

	assert_int_equal(local_call_attach_region(p, called[0].key), 0);
	return p;
}

static bool turn(void)
{
	return world_step(w, world_now(w) + 100 * SEC);
}

static void reap_of(struct ep *e)
{
	struct roost_cqe cqe;

	while (ep_poll_send(e, &cqe)) {
		assert_int_equal(cqe.status, NIC_WC_SUCCESS);
		unfinished--;
	}
}

static void reap(void)
{
	for (unsigned i = 0; i < PUS; i++)
		reap_of(&caller[i]);
}

static void post(unsigned i, uint64_t off, uint32_t len)
{
	struct wr wr = wr_rdma(ROOST_OP_WRITE, &caller[i], off, len, &called[0], off);

	ep_post(&caller[i], &wr);
	unfinished++;
}

static void finish_writes(unsigned left)
{
	while (unfinished > left) {
		assert_true(turn());
		reap();
	}
}

/* Caller i writes to its half of the memory. */
static void write_random(struct rng *rng, unsigned n)
{
	for (unsigned i = 0; i < PUS; i++)
		for (uint32_t k = 0; k < MEM; k++)
			caller[i].mem[k] = (uint8_t)rng_u64(rng);
	for (unsigned k = 0; k < n; k++) {
		for (unsigned i = 0; i < PUS; i++) {
			uint32_t len = 1 + (uint32_t)rng_below(rng, k % 8 ? 3000 : 20000);

			post(i, i * (MEM / 2) + rng_below(rng, MEM / 2 - len), len);
		}
		finish_writes(24);
	}
	finish_writes(0);
}

static void end(struct local_call *p, uint32_t status)
{
	assert_int_equal(local_call_detach(p), 0);
	conclude(p, status, turn);
}

/* ---- tests ---- */

static const struct sim_params links[] = {
	{.delay_ns = 2000},
	{.delay_ns = 2000,
	 .jitter_ns = 3000,
	 .loss = 0.02,
	 .dup = 0.03,
	 .reorder = 0.03,
	 .corrupt = 0.01},
};

/*
 * All bytes that arrived are in the replica too, whichever PU has the bound queue pair, and however
 * little space it has.
 */
static void all_goes_on(void **state)
{
	struct local_call *p;
	struct rng rng;

	for (unsigned i = 0; i < 32; i++) {
		rng_seed(&rng, i);
		open_world(i + 1, &links[i & 1], i >> 1 & 1, i >> 2 & 1);
		p = begin(i >> 3 & 1, i >> 4 & 1);
		write_random(&rng, 20);
		end(p, ROOST_RPC_OK);
		assert_memory_equal(replica.mem, called[0].mem, MEM);
		/* Without the hook no stream is delayed. */
		write_random(&rng, 4);
		close_world();
	}
}

static int drop_replica(void *ctx, const struct pkt_addr *src, const uint8_t *bth, uint32_t len)
{
	return pkt_addr_eq(src, ep_addr(&replica));
}

/* Incoming and outgoing bytes of a queue pair of either PU, with a bound queue pair of PU 0. */
static void streams_of_both(void **state)
{
	struct local_call *p;
	struct rng rng;

	for (unsigned i = 0; i < 32; i++) {
		struct ep *of = &called[i & 1], *from, *to;
		bool out = i >> 1 & 1;

		rng_seed(&rng, i);
		open_world(i + 1, &links[i >> 2 & 1], 0, i >> 3 & 1);
		from = out ? of : &caller[i & 1];
		to = out ? &caller[i & 1] : of;
		memset(to->mem, 0, MEM);
		p = begin_with(out ? BUFFER_OP : OP, to, i & 1, i >> 4 & 1, i >> 4 & 1);
		assert_int_equal(out ? local_call_attach_out(p, of->qp)
				     : local_call_attach_in(p, of->qp),
				 0);
		for (uint32_t k = 0; k < MEM; k++)
			from->mem[k] = (uint8_t)rng_u64(&rng);
		for (unsigned k = 0; k < 60; k++) {
			uint32_t len = 1 + (uint32_t)rng_below(&rng, k % 8 ? 3000 : 30000);
			uint64_t off = rng_below(&rng, MEM - len);
			struct wr wr = wr_rdma(ROOST_OP_WRITE, from, off, len, to, off);

			ep_post(from, &wr);
			for (unfinished++; unfinished > 16;) {
				assert_true(turn());
				reap_of(from);
			}
		}
		while (unfinished) {
			assert_true(turn());
			reap_of(from);
		}
		end(p, ROOST_RPC_OK);
		assert_memory_equal(replica.mem, to->mem, MEM);
		close_world();
	}
}

/*
 * The queue pair of a stream is destroyed while its kernel runs at the other PU. A kernel that
 * changes lengths must belong to the PU of its stream.
 */
static void the_stream_goes(void **state)
{
	struct ep_params again = {.pu = 1, .mem = MEM};
	struct roost_cqe cqe;
	struct local_call *p;
	struct wr wr;

	for (unsigned out = 0; out < 2; out++) {
		open_world(1, &links[0], 0, 0);
		sim_set_filter(w->sim, drop_replica, NULL);
		p = begin_with(BUFFER_OP, out ? &caller[1] : &called[1], 1, true, false);
		assert_int_equal(out ? local_call_attach_out(p, called[1].qp)
				     : local_call_attach_in(p, called[1].qp),
				 0);
		wr = out ? wr_rdma(ROOST_OP_WRITE, &called[1], 0, 3000, &caller[1], 0)
			 : wr_rdma(ROOST_OP_WRITE, &caller[1], 0, 3000, &called[1], 0);
		ep_post(out ? &called[1] : &caller[1], &wr);
		while (!local_call_busy(p))
			assert_true(turn());
		ep_fini(&called[1]);
		sim_set_filter(w->sim, NULL, NULL);
		end(p, ROOST_RPC_OK);
		ep_init(&called[1], w, 0, &again);
		close_world();
	}
	open_world(2, &links[0], 0, 0);
	p = begin_with(RESIZE_OP, &caller[1], 1, false, false);
	assert_int_equal(local_call_attach_out(p, called[0].qp), -EXDEV);
	assert_int_equal(local_call_attach_out(p, called[1].qp), 0);
	wr = wr_rdma(ROOST_OP_WRITE, &called[1], 0, 3000, &caller[1], 0);
	ep_post(&called[1], &wr);
	assert_true(ep_wait_send(&called[1], &cqe, SEC));
	assert_int_equal(cqe.status, NIC_WC_SUCCESS);
	assert_memory_equal(caller[1].mem, called[1].mem, 3000);
	end(p, ROOST_RPC_OK);
	close_world();
}

/* While the kernel waits, pieces of both PUs for the region wait, but no other WRITEs. */
static void both_wait(void **state)
{
	struct local_call *p;

	for (unsigned first = 0; first < PUS; first++) {
		struct wr elsewhere;
		struct roost_cqe cqe;

		open_world(1, &links[0], 0, 1);
		sim_set_filter(w->sim, drop_replica, NULL);
		memset(caller[0].mem, 'a', MEM);
		memset(caller[1].mem, 'b', MEM);
		p = begin(true, false);
		post(first, 0, 1000);
		finish_writes(0);
		post(!first, 1000, 1000);
		post(first, 2000, 1000);
		for (unsigned i = 0; i < 60; i++)
			assert_true(turn());
		reap();
		assert_int_equal(unfinished, 2);
		assert_int_equal(called[0].mem[1000], 0);
		assert_int_equal(called[0].mem[2000], 0);
		assert_true(local_call_busy(p));
		elsewhere = wr_rdma(ROOST_OP_WRITE, &called[1], 0, 1000, &caller[1], 8192);
		ep_post(&called[1], &elsewhere);
		assert_true(ep_wait_send(&called[1], &cqe, MSEC));
		assert_int_equal(cqe.status, NIC_WC_SUCCESS);
		sim_set_filter(w->sim, NULL, NULL);
		finish_writes(0);
		end(p, ROOST_RPC_OK);
		assert_memory_equal(replica.mem, called[0].mem, MEM);
		close_world();
	}
}

/*
 * A local call is freed, or its queue pair is destroyed, while it is being handed over from one PU
 * to the other.
 */
static void on_its_way(void **state)
{
	struct local_call *p;

	for (unsigned i = 0; i < 2; i++) {
		open_world(1, &links[0], 0, 0);
		p = begin(true, false);
		post(1, 0, 1000);
		while (!local_call_busy(p)) {
			uint64_t now = world_now(w);

			if (!nic_poll(w->nic[0], 1, now) && !nic_poll(w->nic[1], 1, now))
				sim_advance(w->sim, now + 100);
		}
		/* PU 0 has not taken it over yet. */
		assert_true(nic_pending(w->nic[0], 0));
		if (i) {
			assert_int_equal(runtime_unbind_qp(f, OP, 1), 0);
			finish_writes(0);
			assert_int_equal(local_call_detach(p), 0);
			while (local_call_busy(p))
				assert_true(turn());
			end(p, ROOST_RPC_FAILED);
		} else {
			assert_int_equal(local_call_detach(p), 0);
			local_call_free(p);
			assert_int_equal(cuts, 1);
			finish_writes(0);
			assert_int_equal(runtime_undeploy(f, OP), 0);
		}
		close_world();
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(all_goes_on),	   cmocka_unit_test(streams_of_both),
		cmocka_unit_test(the_stream_goes), cmocka_unit_test(both_wait),
		cmocka_unit_test(on_its_way),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
