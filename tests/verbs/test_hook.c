/* SPDX-License-Identifier: BSD-2-Clause */
/* Hooks and kernels that the host runs, through the verbs: between threads, PUs and ports. */
#include "fixture.h"

#include "roost/hll.h"
#include "roost/verbs.h"

#define LEN 32768u

/* xor with a stream that continues. If it runs twice for a byte, it is out of step. */
static enum roost_next scramble(struct roost_call *c)
{
	uint64_t *at = c->state;

	for (uint32_t i = 0; i < c->len; i++, (*at)++)
		c->rewrite[i] ^= (uint8_t)roost_hll_hash(*at);
	return ROOST_DONE;
}

static const struct roost_kernel scrambler = {.abi = ROOST_KERNEL_ABI,
					      .name = "scramble",
					      .version = 1,
					      .op = 0x1000,
					      .state_size = 8,
					      .stream = scramble,
					      .rewrites = true};

static void write_all(struct pair *p, unsigned times)
{
	struct ibv_sge sge;

	for (unsigned i = 0; i < times; i++) {
		struct ibv_send_wr wr = write_wr(p, &sge, i, LEN);

		assert_int_equal(post_one(p->qp[0], &wr), 0);
		wait_good(p->cq[0]);
	}
}

static struct roost_hll_info info(struct ibv_context *ctx, uint64_t name)
{
	struct roost_hll_params q = roost_hll_params(name, ROOST_HLL_ESTIMATE, 0);
	struct roost_hll_info i;
	struct roost_invocation_attr a = {.op = ROOST_HLL_OP,
					  .params = &q,
					  .params_len = sizeof(q),
					  .reply = &i,
					  .space = sizeof(i)};
	struct roost_result r;

	assert_int_equal(roost_kernel_run(ctx, &a, NULL, 0, &r), 0);
	assert_int_equal(r.status, ROOST_RPC_OK);
	assert_int_equal(r.len, sizeof(i));
	assert_ptr_equal(r.data, &i);
	return i;
}

/* Sketches on the queue pair, on the region, and fed by the host all count the same. */
static void counted_unchanged(void **state)
{
	struct roost_hll_params q = roost_hll_params(1, ROOST_HLL_ADD, 14);
	struct roost_invocation_attr a = {
		.op = ROOST_HLL_OP, .params = &q, .params_len = sizeof(q)};
	struct roost_hook *on_qp, *on_mr;
	struct roost_result r;
	uint64_t bytes;
	struct pair p;

	pair_open(&p, NULL);
	for (uint64_t i = 0; i < LEN / 8; i++)
		memcpy(p.buf[0] + 8 * i, &(uint64_t){i / 2}, 8);
	assert_null(roost_qp_attach(p.qp[1], ROOST_IN, &a));
	assert_int_equal(errno, ENOENT);
	assert_int_equal(roost_kernel_deploy(p.ctx, roost_kernel_builtin("hll"), NULL), 0);
	on_qp = roost_qp_attach(p.qp[1], ROOST_IN, &a);
	assert_non_null(on_qp);
	q.name = 2;
	on_mr = roost_mr_attach(p.mr[1], &a);
	assert_non_null(on_mr);
	q.name = 3;
	assert_int_equal(roost_kernel_run(p.ctx, &a, p.buf[0], LEN, &r), 0);
	assert_int_equal(r.status, ROOST_RPC_OK);
	q.precision = 99;
	assert_null(roost_qp_attach(p.qp[1], ROOST_IN, &a));
	assert_int_equal(errno, EINVAL);
	write_all(&p, 3);
	assert_int_equal(roost_hook_query(on_qp, &bytes), 0);
	assert_int_equal(bytes, 3 * LEN);
	assert_int_equal(info(p.ctx, 1).items, 3 * LEN / 8);
	assert_int_equal(info(p.ctx, 2).items, 3 * LEN / 8);
	assert_int_equal(info(p.ctx, 3).items, LEN / 8);
	assert_int_equal(info(p.ctx, 1).estimate, info(p.ctx, 3).estimate);
	assert_int_equal(info(p.ctx, 2).estimate, info(p.ctx, 3).estimate);
	assert_int_equal(roost_kernel_undeploy(p.ctx, ROOST_HLL_OP), EBUSY);
	assert_int_equal(ibv_dereg_mr(p.mr[1]), EBUSY);
	assert_int_equal(roost_hook_detach(on_mr, NULL), 0);
	write_all(&p, 1);
	assert_int_equal(info(p.ctx, 1).items, 4 * LEN / 8);
	assert_int_equal(info(p.ctx, 2).items, 3 * LEN / 8);
	assert_int_equal(roost_hook_detach(on_qp, &r), 0);
	assert_int_equal(r.status, ROOST_RPC_OK);
	assert_int_equal(roost_kernel_undeploy(p.ctx, ROOST_HLL_OP), 0);
	pair_close(&p);
}

static void rewritten_before_it_leaves(void **state)
{
	struct roost_invocation_attr a = {.op = 0x1000};
	struct roost_hook *hook;
	struct pair p;

	pair_open(&p, NULL);
	memset(p.buf[0], 'x', LEN);
	assert_int_equal(roost_kernel_deploy(p.ctx, &scrambler, NULL), 0);
	assert_null(roost_qp_attach(p.qp[0], ROOST_IN, &a));
	assert_int_equal(errno, EOPNOTSUPP);
	hook = roost_qp_attach(p.qp[0], ROOST_OUT, &a);
	assert_non_null(hook);
	write_all(&p, 4);
	for (uint64_t i = 0; i < LEN; i++)
		assert_int_equal(p.buf[1][i], 'x' ^ (uint8_t)roost_hll_hash(3 * LEN + i));
	assert_int_equal(roost_hook_detach(hook, NULL), 0);
	write_all(&p, 1);
	assert_memory_equal(p.buf[1], p.buf[0], LEN);
	/* The queue pair may be destroyed first. */
	hook = roost_qp_attach(p.qp[0], ROOST_OUT, &a);
	assert_non_null(hook);
	assert_int_equal(ibv_destroy_qp(p.qp[0]), 0);
	assert_int_equal(roost_hook_detach(hook, NULL), 0);
	p.qp[0] = NULL;
	assert_int_equal(roost_kernel_undeploy(p.ctx, 0x1000), 0);
	pair_close(&p);
}

/* ---- a kernel that forwards its input ---- */

struct forward {
	uint64_t from, to;
	uint32_t rkey, failed;
	uint32_t last; /* bytes of this struct that it writes last, at its end */
};

static enum roost_next forward_params(struct roost_call *c)
{
	memcpy(c->state, c->params, sizeof(struct forward));
	return ROOST_DONE;
}

static enum roost_next forward(struct roost_call *c)
{
	struct forward *f = c->state;

	ROOST_STEPS(c);
	if (!c->total) {
		f->failed = c->qp_failed;
		if (f->last)
			ROOST_QP_POST_WRITE(c, 1, f->to, f->rkey, f, f->last);
		ROOST_REPLY(c, &f->failed, sizeof(f->failed));
	}
	ROOST_QP_POST(c, roost_qp_write(c, 1, f->to + (c->where - f->from), f->rkey, NULL, c->where,
					c->len));
	ROOST_STEPS_END;
}

static const struct roost_kernel forwarder = {.abi = ROOST_KERNEL_ABI,
					      .name = "forward",
					      .version = 1,
					      .op = 0x1001,
					      .state_size = sizeof(struct forward),
					      .params = forward_params,
					      .stream = forward};

/*
 * Forwards the stream to its origin, behind the original bytes. With a limit of one operation the
 * stream waits for each operation.
 */
static void sent_on(void **state)
{
	static const struct roost_qp_limits limits[] = {{0}, {.ops = 1}, {.bytes = 8192}};

	for (unsigned i = 0; i < 3; i++) {
		struct roost_invocation_attr a = {.op = 0x1001};
		struct roost_hook *hook;
		struct forward f = {0};
		struct roost_result r;
		uint32_t failed = 1;
		unsigned number;
		struct pair p;
		int ret;

		pair_open(&p, NULL);
		for (uint32_t k = 0; k < BUF_SIZE; k++)
			p.buf[0][k] = k < LEN ? (uint8_t)(k * 2654435761u >> 24) : 0;
		f.from = (uintptr_t)p.buf[1];
		f.to = (uintptr_t)p.buf[0] + LEN;
		f.rkey = p.mr[0]->rkey;
		a.params = &f;
		a.params_len = sizeof(f);
		a.mr = p.mr[1];
		a.reply = &failed;
		a.space = sizeof(failed);
		assert_int_equal(roost_kernel_deploy(p.ctx, &forwarder, NULL), 0);
		assert_int_equal(roost_kernel_bind_qp(p.ctx, 0x1001, p.qp[1], i ? &limits[i] : NULL,
						      &number),
				 0);
		assert_int_equal(number, 1);
		hook = roost_qp_attach(p.qp[1], ROOST_IN, &a);
		assert_non_null(hook);
		write_all(&p, 4);
		while ((ret = roost_hook_detach(hook, &r)) == EBUSY)
			settle(p.cq[1]);
		assert_int_equal(ret, 0);
		assert_int_equal(r.status, ROOST_RPC_OK);
		assert_int_equal(failed, 0);
		assert_memory_equal(p.buf[0] + LEN, p.buf[0], LEN);
		assert_memory_equal(p.buf[1], p.buf[0], LEN);
		write_all(&p, 1);
		assert_int_equal(roost_kernel_undeploy(p.ctx, 0x1001), 0);
		pair_close(&p);
	}
}

/*
 * Forwards by other queue pairs, from a region or a queue pair. With two processing units, these
 * queue pairs belong to the unit that receives the bytes, or to the other one.
 */
static void sent_on_by_others(void **state)
{
	static const struct roost_qp_limits limits[] = {{0}, {.ops = 1}};

	for (unsigned i = 0; i < 8; i++) {
		unsigned via = i & 1, number;
		struct roost_invocation_attr a = {.op = 0x1001};
		struct roost_hook *hook;
		struct forward f = {0};
		struct roost_result r;
		struct ibv_mr *from;
		uint32_t failed = 1;
		struct pair p, q;
		int ret;

		pair_open(&p, NULL);
		pair_open(&q, NULL);
		for (uint32_t k = 0; k < BUF_SIZE; k++)
			p.buf[0][k] = k < LEN ? (uint8_t)(k * 2654435761u >> 24) : 0;
		from = ibv_reg_mr(q.pd, p.buf[1], BUF_SIZE, IBV_ACCESS_LOCAL_WRITE);
		assert_non_null(from);
		f.from = (uintptr_t)p.buf[1];
		f.to = (uintptr_t)q.buf[!via];
		f.rkey = q.mr[!via]->rkey;
		a.params = &f;
		a.params_len = sizeof(f);
		a.mr = from;
		a.reply = &failed;
		a.space = sizeof(failed);
		assert_int_equal(roost_kernel_deploy(p.ctx, &forwarder, NULL), 0);
		assert_int_equal(roost_kernel_bind_qp(p.ctx, 0x1001, q.qp[via], &limits[i >> 1 & 1],
						      &number),
				 0);
		hook = i & 4 ? roost_qp_attach(p.qp[1], ROOST_IN, &a)
			     : roost_mr_attach(p.mr[1], &a);
		assert_non_null(hook);
		write_all(&p, 4);
		while ((ret = roost_hook_detach(hook, &r)) == EBUSY)
			settle(q.cq[via]);
		assert_int_equal(ret, 0);
		assert_int_equal(r.status, ROOST_RPC_OK);
		assert_int_equal(failed, 0);
		assert_memory_equal(q.buf[!via], p.buf[0], LEN);
		assert_memory_equal(p.buf[1], p.buf[0], LEN);
		write_all(&p, 1);
		assert_int_equal(ibv_dereg_mr(from), 0);
		assert_int_equal(roost_kernel_undeploy(p.ctx, 0x1001), 0);
		pair_close(&q);
		pair_close(&p);
	}
}

/* A hook ends only after the operations that its kernel posts at its end have completed. */
static void last_words(void **state)
{
	struct roost_invocation_attr a = {.op = 0x1001};
	struct forward f = {.last = sizeof(f)};
	struct roost_hook *hook;
	struct roost_result r;
	uint32_t failed = 1;
	unsigned number, busy = 0;
	struct pair p;
	int ret;

	pair_open(&p, NULL);
	f.from = (uintptr_t)p.buf[1];
	f.to = (uintptr_t)p.buf[0];
	f.rkey = p.mr[0]->rkey;
	memset(p.buf[0], 0, sizeof(f));
	a.params = &f;
	a.params_len = sizeof(f);
	a.reply = &failed;
	a.space = sizeof(failed);
	assert_int_equal(roost_kernel_deploy(p.ctx, &forwarder, NULL), 0);
	assert_int_equal(roost_kernel_bind_qp(p.ctx, 0x1001, p.qp[1], NULL, &number), 0);
	hook = roost_qp_attach(p.qp[1], ROOST_IN, &a);
	assert_non_null(hook);
	while ((ret = roost_hook_detach(hook, &r)) == EBUSY) {
		settle(p.cq[1]);
		busy++;
	}
	assert_int_equal(ret, 0);
	assert_true(busy > 0);
	assert_int_equal(r.status, ROOST_RPC_OK);
	assert_memory_equal(p.buf[0], &f, sizeof(f));
	assert_int_equal(roost_kernel_undeploy(p.ctx, 0x1001), 0);
	pair_close(&p);
}

/* Closing a device removes the hooks on its regions. There may be eight hooks at a time. */
static void closed_below_hooks(void **state)
{
	struct roost_hll_params q = roost_hll_params(1, ROOST_HLL_ADD, 14);
	struct roost_invocation_attr a = {
		.op = ROOST_HLL_OP, .params = &q, .params_len = sizeof(q)};
	/*
	 * Their contexts are closed, so they may not be used. They are kept so that they are no
	 * leaks.
	 */
	static struct roost_hook *hooks[20];
	static struct ibv_pd *pds[20];
	static struct ibv_mr *mrs[20];
	struct pair p;

	pair_open(&p, NULL);
	assert_int_equal(roost_kernel_deploy(p.ctx, roost_kernel_builtin("hll"), NULL), 0);
	for (unsigned i = 0; i < 20; i++) {
		struct ibv_context *ctx = open_device();

		pds[i] = ibv_alloc_pd(ctx);
		assert_non_null(pds[i]);
		mrs[i] = ibv_reg_mr(pds[i], p.buf[0], LEN,
				    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
		assert_non_null(mrs[i]);
		hooks[i] = roost_mr_attach(mrs[i], &a);
		assert_non_null(hooks[i]);
		assert_int_equal(ibv_close_device(ctx), 0);
	}
	write_all(&p, 1);
	pair_close(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(counted_unchanged), cmocka_unit_test(rewritten_before_it_leaves),
		cmocka_unit_test(sent_on),	     cmocka_unit_test(sent_on_by_others),
		cmocka_unit_test(last_words),	     cmocka_unit_test(closed_below_hooks),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
