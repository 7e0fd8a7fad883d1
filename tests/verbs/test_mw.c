/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Memory windows, invalidation and re-registration through the verbs. Side 1 binds, side 0
 * accesses.
 */
#include "fixture.h"

#include "roost/verbs.h"

#define WIN 4096u
#define LEN 512u

static struct pair P, *const p = &P;
static struct ibv_mr *region;

static void start(uint64_t send_ops)
{
	const struct pair_options o = {
		.cap = {.max_send_wr = 16, .max_recv_wr = 16, .max_send_sge = 1, .max_recv_sge = 1},
		.send_ops = send_ops,
	};

	pair_open(p, &o);
	region =
		ibv_reg_mr(p->pd, p->buf[1], BUF_SIZE, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
	assert_non_null(region);
}

static void close_all(void)
{
	assert_int_equal(ibv_dereg_mr(region), 0);
	pair_close(p);
}

static struct ibv_mw_bind_info info(uint64_t off, uint64_t len, unsigned access)
{
	return (struct ibv_mw_bind_info){region, (uintptr_t)p->buf[1] + off, len, access};
}

static enum ibv_wc_status write_with(uint64_t raddr, uint32_t rkey)
{
	struct ibv_sge sge;
	struct ibv_send_wr wr = write_wr(p, &sge, 1, 16);
	struct ibv_wc wc;

	wr.wr.rdma.remote_addr = raddr;
	wr.wr.rdma.rkey = rkey;
	assert_int_equal(post_one(p->qp[0], &wr), 0);
	wait_wcs(p->cq[0], &wc, 1);
	return wc.status;
}

static enum ibv_wc_status bind_2(struct ibv_mw *mw, uint32_t key, struct ibv_mw_bind_info i)
{
	struct ibv_send_wr wr = {.wr_id = 9,
				 .opcode = IBV_WR_BIND_MW,
				 .send_flags = IBV_SEND_SIGNALED,
				 .bind_mw = {mw, key, i}};
	struct ibv_wc wc;

	assert_int_equal(post_one(p->qp[1], &wr), 0);
	wait_wcs(p->cq[1], &wc, 1);
	if (wc.status == IBV_WC_SUCCESS)
		assert_int_equal(wc.opcode, IBV_WC_BIND_MW);
	return wc.status;
}

static void type_1(void **state)
{
	struct ibv_device_attr dev;
	struct ibv_mw_bind bind = {.wr_id = 3, .send_flags = IBV_SEND_SIGNALED};
	struct ibv_mw *mw;
	uint32_t before, key;

	start(0);
	assert_int_equal(ibv_query_device(p->ctx, &dev), 0);
	assert_true(dev.device_cap_flags & IBV_DEVICE_MEM_WINDOW);
	mw = ibv_alloc_mw(p->pd, IBV_MW_TYPE_1);
	assert_non_null(mw);
	assert_ptr_equal(mw->pd, p->pd);
	before = mw->rkey;
	bind.bind_info = info(WIN, LEN, IBV_ACCESS_REMOTE_WRITE);
	assert_int_equal(ibv_bind_mw(p->qp[1], mw, &bind), 0);
	key = mw->rkey;
	assert_int_not_equal(key, before);
	assert_int_equal(wait_good(p->cq[1]).opcode, IBV_WC_BIND_MW);
	assert_int_equal(write_with((uintptr_t)p->buf[1] + WIN, key), IBV_WC_SUCCESS);
	/* Bound to another place. Meanwhile the region may be neither deregistered nor changed. */
	bind.bind_info = info(2 * WIN, LEN, IBV_ACCESS_REMOTE_WRITE);
	assert_int_equal(ibv_bind_mw(p->qp[1], mw, &bind), 0);
	wait_good(p->cq[1]);
	assert_int_equal(write_with((uintptr_t)p->buf[1] + 2 * WIN, mw->rkey), IBV_WC_SUCCESS);
	assert_int_equal(ibv_dereg_mr(region), EBUSY);
	assert_int_equal(ibv_rereg_mr(region, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0,
				      IBV_ACCESS_LOCAL_WRITE),
			 IBV_REREG_MR_ERR_INPUT);
	assert_int_equal(errno, EBUSY);
	assert_int_equal(write_with((uintptr_t)p->buf[1] + 2 * WIN, mw->rkey), IBV_WC_SUCCESS);
	assert_int_equal(write_with((uintptr_t)p->buf[1] + WIN, key), IBV_WC_REM_ACCESS_ERR);
	assert_int_equal(ibv_dealloc_mw(mw), 0);
	close_all();
}

static void type_2(void **state)
{
	struct ibv_mw *mw;
	struct ibv_send_wr wr = {.opcode = IBV_WR_LOCAL_INV, .send_flags = IBV_SEND_SIGNALED};
	struct ibv_mw_bind bind = {.wr_id = 3};
	struct ibv_sge sge = {0};
	struct ibv_wc wc;
	uint32_t key;

	start(0);
	mw = ibv_alloc_mw(p->pd, IBV_MW_TYPE_2);
	assert_non_null(mw);
	key = ibv_inc_rkey(mw->rkey);
	bind.bind_info = info(WIN, LEN, IBV_ACCESS_REMOTE_WRITE);
	assert_int_equal(ibv_bind_mw(p->qp[1], mw, &bind), EINVAL);
	assert_int_equal(
		bind_2(mw, key, info(WIN, LEN, IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_ZERO_BASED)),
		IBV_WC_SUCCESS);
	memset(p->buf[0], 0x3d, 16);
	assert_int_equal(write_with(32, key), IBV_WC_SUCCESS);
	assert_memory_equal(p->buf[1] + WIN + 32, p->buf[0], 16);
	/* Invalidated locally, bound again, invalidated by the peer. */
	wr.invalidate_rkey = key;
	wr.sg_list = &sge;
	wr.num_sge = 1;
	assert_int_equal(post_one(p->qp[1], &wr), EINVAL);
	wr.num_sge = 0;
	assert_int_equal(post_one(p->qp[1], &wr), 0);
	assert_int_equal(wait_good(p->cq[1]).opcode, IBV_WC_LOCAL_INV);
	key = ibv_inc_rkey(key);
	assert_int_equal(bind_2(mw, key, info(WIN, LEN, IBV_ACCESS_REMOTE_WRITE)), IBV_WC_SUCCESS);
	assert_int_equal(write_with((uintptr_t)p->buf[1] + WIN, key), IBV_WC_SUCCESS);
	assert_int_equal(post_recv_one(p, 1, 6, 64), 0);
	wr = (struct ibv_send_wr){.opcode = IBV_WR_SEND_WITH_INV,
				  .send_flags = IBV_SEND_SIGNALED,
				  .invalidate_rkey = key};
	assert_int_equal(post_one(p->qp[0], &wr), 0);
	wait_good(p->cq[0]);
	wc = wait_good(p->cq[1]);
	assert_int_equal(wc.wc_flags, IBV_WC_WITH_INV);
	assert_int_equal(wc.invalidated_rkey, key);
	assert_int_equal(
		ibv_rereg_mr(region, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, p->buf[1], WIN, 0), 0);
	assert_int_equal(write_with((uintptr_t)p->buf[1] + WIN, key), IBV_WC_REM_ACCESS_ERR);
	assert_int_equal(ibv_dealloc_mw(mw), 0);
	close_all();
}

/* A window that exceeds its region cannot be bound. */
static void beyond(void **state)
{
	struct ibv_mw *mw;

	start(0);
	mw = ibv_alloc_mw(p->pd, IBV_MW_TYPE_2);
	assert_non_null(mw);
	assert_int_equal(
		bind_2(mw, ibv_inc_rkey(mw->rkey), info(BUF_SIZE - 8, 16, IBV_ACCESS_REMOTE_WRITE)),
		IBV_WC_MW_BIND_ERR);
	assert_int_equal(ibv_dealloc_mw(mw), 0);
	close_all();
}

static void builders(void **state)
{
	struct ibv_mw_bind_info i;
	struct ibv_qp_ex *ex, *peer;
	struct ibv_mw *mw, *one;
	uint32_t key;

	start(IBV_QP_EX_WITH_BIND_MW | IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_SEND_WITH_INV);
	ex = ibv_qp_to_qp_ex(p->qp[1]);
	peer = ibv_qp_to_qp_ex(p->qp[0]);
	mw = ibv_alloc_mw(p->pd, IBV_MW_TYPE_2);
	one = ibv_alloc_mw(p->pd, IBV_MW_TYPE_1);
	assert_non_null(mw);
	assert_non_null(one);
	key = ibv_inc_rkey(mw->rkey);
	i = info(WIN, LEN, IBV_ACCESS_REMOTE_WRITE);
	/* Bound, invalidated and bound again in one list. */
	ibv_wr_start(ex);
	ex->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_bind_mw(ex, mw, key, &i);
	ibv_wr_local_inv(ex, key);
	ibv_wr_bind_mw(ex, mw, ibv_inc_rkey(key), &i);
	assert_int_equal(ibv_wr_complete(ex), 0);
	assert_int_equal(wait_good(p->cq[1]).opcode, IBV_WC_BIND_MW);
	assert_int_equal(wait_good(p->cq[1]).opcode, IBV_WC_LOCAL_INV);
	assert_int_equal(wait_good(p->cq[1]).opcode, IBV_WC_BIND_MW);
	key = ibv_inc_rkey(key);
	assert_int_equal(write_with((uintptr_t)p->buf[1] + WIN, key), IBV_WC_SUCCESS);
	/* Errors that are reported at once. */
	ibv_wr_start(ex);
	ibv_wr_bind_mw(ex, one, ibv_inc_rkey(one->rkey), &i);
	assert_int_equal(ibv_wr_complete(ex), EINVAL);
	ibv_wr_start(ex);
	ibv_wr_bind_mw(ex, mw, mw->rkey ^ 0x100, &i);
	assert_int_equal(ibv_wr_complete(ex), EINVAL);
	ibv_wr_start(ex);
	ibv_wr_local_inv(ex, key);
	ibv_wr_set_inline_data(ex, &i, 8);
	assert_int_equal(ibv_wr_complete(ex), EINVAL);
	assert_int_equal(post_recv_one(p, 1, 6, 64), 0);
	ibv_wr_start(peer);
	peer->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_send_inv(peer, key);
	assert_int_equal(ibv_wr_complete(peer), 0);
	wait_good(p->cq[0]);
	assert_int_equal(wait_good(p->cq[1]).invalidated_rkey, key);
	assert_int_equal(write_with((uintptr_t)p->buf[1] + WIN, key), IBV_WC_REM_ACCESS_ERR);
	assert_int_equal(ibv_dealloc_mw(mw), 0);
	assert_int_equal(ibv_dealloc_mw(one), 0);
	close_all();
}

/* Re-registration of a region changes its place, its PD or its rights. */
static void rereg(void **state)
{
	const int all = IBV_REREG_MR_CHANGE_TRANSLATION | IBV_REREG_MR_CHANGE_PD |
			IBV_REREG_MR_CHANGE_ACCESS;
	struct ibv_pd *pd;
	struct ibv_mr *mr;
	uint32_t key;

	start(0);
	pd = ibv_alloc_pd(p->ctx);
	mr = ibv_reg_mr(pd, p->buf[1], 64, 0);
	assert_non_null(mr);
	assert_int_equal(ibv_rereg_mr(mr, all, p->pd, p->buf[1] + WIN, LEN,
				      IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE),
			 0);
	assert_int_equal(ibv_dealloc_pd(pd), 0);
	assert_ptr_equal(mr->addr, p->buf[1] + WIN);
	assert_int_equal(mr->length, LEN);
	assert_int_equal(write_with((uintptr_t)p->buf[1] + WIN, mr->rkey), IBV_WC_SUCCESS);
	key = mr->rkey;
	/* Refused: the region and its key are unchanged. */
	assert_int_equal(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0,
				      IBV_ACCESS_REMOTE_WRITE),
			 IBV_REREG_MR_ERR_INPUT);
	assert_int_equal(mr->rkey, key);
	assert_int_equal(write_with((uintptr_t)p->buf[1] + WIN, key), IBV_WC_SUCCESS);
	assert_int_equal(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, p->buf[1], 16, 0),
			 0);
	assert_int_equal(write_with((uintptr_t)p->buf[1], mr->rkey), IBV_WC_SUCCESS);
	assert_int_equal(write_with((uintptr_t)p->buf[1] + WIN, key), IBV_WC_REM_ACCESS_ERR);
	assert_int_equal(ibv_dereg_mr(mr), 0);
	close_all();
}

/* The program chooses the address of the first byte. It may be zero. */
static void iova(void **state)
{
	const unsigned access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
	struct ibv_mr *zero, *high;

	start(0);
	zero = ibv_reg_mr_iova2(p->pd, p->buf[1] + WIN, LEN, 0, access);
	high = ibv_reg_mr_iova2(p->pd, p->buf[1] + 2 * WIN, LEN, 1ull << 63, access);
	assert_non_null(zero);
	assert_non_null(high);
	memset(p->buf[0], 0x77, 16);
	assert_int_equal(write_with(8, zero->rkey), IBV_WC_SUCCESS);
	assert_memory_equal(p->buf[1] + WIN + 8, p->buf[0], 16);
	assert_int_equal(write_with((1ull << 63) + 8, high->rkey), IBV_WC_SUCCESS);
	assert_memory_equal(p->buf[1] + 2 * WIN + 8, p->buf[0], 16);
	/* Kept if only the access changes. */
	assert_int_equal(ibv_rereg_mr(zero, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0,
				      (int)access | IBV_ACCESS_REMOTE_READ),
			 0);
	assert_int_equal(write_with(LEN - 16, zero->rkey), IBV_WC_SUCCESS);
	assert_int_equal(write_with(LEN - 15, zero->rkey), IBV_WC_REM_ACCESS_ERR);
	assert_int_equal(ibv_dereg_mr(zero), 0);
	assert_int_equal(ibv_dereg_mr(high), 0);
	close_all();
	/* The same with the flag of older programs. */
	start(0);
	zero = ibv_reg_mr(p->pd, p->buf[1] + WIN, LEN, (int)access | IBV_ACCESS_ZERO_BASED);
	assert_non_null(zero);
	assert_int_equal(write_with(LEN - 16, zero->rkey), IBV_WC_SUCCESS);
	assert_memory_equal(p->buf[1] + WIN + LEN - 16, p->buf[0], 16);
	assert_int_equal(write_with((uintptr_t)p->buf[1] + WIN, zero->rkey), IBV_WC_REM_ACCESS_ERR);
	assert_int_equal(ibv_dereg_mr(zero), 0);
	close_all();
}

/* A program may close its device without destroying its objects. */
static void left_behind(void **state)
{
	struct ibv_context *ctx = open_device(), *other = open_device();
	struct ibv_pd *pd = ibv_alloc_pd(ctx), *again;
	struct ibv_srq_init_attr a = {.attr = {.max_wr = 4, .max_sge = 1}};
	static void *volatile keep[3];
	uint32_t number = pd->handle;

	keep[0] = pd;
	keep[1] = ibv_alloc_mw(pd, IBV_MW_TYPE_1);
	keep[2] = ibv_create_srq(pd, &a);
	assert_non_null(keep[1]);
	assert_non_null(keep[2]);
	assert_int_equal(ibv_close_device(ctx), 0);
	again = ibv_alloc_pd(other);
	assert_int_equal(again->handle, number);
	assert_int_equal(ibv_dealloc_pd(again), 0);
	assert_int_equal(ibv_close_device(other), 0);
}

/* ---- a hook on the region ---- */

struct landed {
	uint64_t where, bytes, messages;
};

static enum roost_next watch(struct roost_call *c)
{
	struct landed *l = c->self;

	l->where = c->where;
	l->bytes += c->len;
	l->messages += c->total && c->last;
	return ROOST_DONE;
}

static const struct roost_kernel watcher = {
	.abi = ROOST_KERNEL_ABI, .name = "watch", .version = 1, .op = 0x1000, .stream = watch};

/*
 * The hook sees every write to its region, by any key, and no other writes. It gets the region's
 * addresses.
 */
static void hook_on_its_region(void **state)
{
	struct roost_invocation_attr a = {.op = 0x1000};
	struct landed l = {0};
	struct roost_hook *hook;
	struct ibv_mw_bind bind = {.send_flags = IBV_SEND_SIGNALED};
	struct ibv_mw_bind_info i;
	struct ibv_mw *one, *two;
	uint64_t base, bytes;

	start(0);
	base = (uintptr_t)p->buf[1];
	assert_int_equal(roost_kernel_deploy(p->ctx, &watcher, &l), 0);
	hook = roost_mr_attach(region, &a);
	assert_non_null(hook);
	one = ibv_alloc_mw(p->pd, IBV_MW_TYPE_1);
	two = ibv_alloc_mw(p->pd, IBV_MW_TYPE_2);
	bind.bind_info = info(WIN, LEN, IBV_ACCESS_REMOTE_WRITE);
	assert_int_equal(ibv_bind_mw(p->qp[1], one, &bind), 0);
	wait_good(p->cq[1]);
	assert_int_equal(write_with(base + WIN + 8, one->rkey), IBV_WC_SUCCESS);
	assert_int_equal(roost_hook_query(hook, &bytes), 0);
	assert_int_equal(bytes, 16);
	assert_int_equal(l.where, base + WIN + 8);
	/* Zero-based: the peer uses 24, the hook gets the region's address. */
	i = info(2 * WIN, LEN, IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_ZERO_BASED);
	assert_int_equal(bind_2(two, two->rkey, i), IBV_WC_SUCCESS);
	assert_int_equal(write_with(24, two->rkey), IBV_WC_SUCCESS);
	assert_int_equal(roost_hook_query(hook, &bytes), 0);
	assert_int_equal(bytes, 32);
	assert_int_equal(l.where, base + 2 * WIN + 24);
	assert_int_equal(l.messages, 2);
	/*
	 * Another region of the same memory has no hook; neither has another region that the window
	 * is bound to later.
	 */
	assert_int_equal(write_with(base + WIN, p->mr[1]->rkey), IBV_WC_SUCCESS);
	assert_int_equal(roost_hook_query(hook, &bytes), 0);
	assert_int_equal(bytes, 32);
	{
		struct ibv_mr *other = ibv_reg_mr(p->pd, p->buf[1], BUF_SIZE,
						  IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);

		assert_non_null(other);
		bind.bind_info =
			(struct ibv_mw_bind_info){other, base, LEN, IBV_ACCESS_REMOTE_WRITE};
		assert_int_equal(ibv_bind_mw(p->qp[1], one, &bind), 0);
		wait_good(p->cq[1]);
		assert_int_equal(write_with(base, one->rkey), IBV_WC_SUCCESS);
		assert_int_equal(roost_hook_query(hook, &bytes), 0);
		assert_int_equal(bytes, 32);
		assert_int_equal(ibv_dealloc_mw(one), 0);
		assert_int_equal(ibv_dereg_mr(other), 0);
	}
	assert_int_equal(roost_hook_detach(hook, NULL), 0);
	assert_int_equal(ibv_dealloc_mw(two), 0);
	assert_int_equal(roost_kernel_undeploy(p->ctx, 0x1000), 0);
	close_all();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(type_1),      cmocka_unit_test(type_2),
		cmocka_unit_test(beyond),      cmocka_unit_test(builders),
		cmocka_unit_test(rereg),       cmocka_unit_test(iova),
		cmocka_unit_test(left_behind), cmocka_unit_test(hook_on_its_region),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
