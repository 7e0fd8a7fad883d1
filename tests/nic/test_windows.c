/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Memory windows of type 1 and 2, and invalidation of keys: InfiniBand Architecture Specification,
 * volume 1, 10.6.7.2. The table has a row that breaks each rule of a binding. All tests run over
 * the link and in loop-back.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "world.h"

#define REMOTE (NIC_ACCESS_REMOTE_WRITE | NIC_ACCESS_REMOTE_READ | NIC_ACCESS_REMOTE_ATOMIC)
#define WIN    4096u /* offset of windows in b's memory */
#define LEN    1024u

static struct world W, *const w = &W;
static struct ep A, B, C, *const a = &A, *const b = &B, *const c = &C;
static uint32_t region; /* b's region, to which windows may be bound */

static uint32_t reg(struct ep *e, uint32_t access)
{
	struct nic_mr_attr m = {.pd = e->pd,
				.addr = e->mem,
				.len = e->mem_len,
				.iova = (uintptr_t)e->mem,
				.access = access};
	uint32_t key;

	assert_int_equal(nic_mr_register(e->nic, &m, &key), 0);
	return key;
}

/* a is connected to b; c has a PD of its own on b's NIC. */
static void start(unsigned of_b)
{
	struct ep_params p = {.mtu = 256};

	world_init(w, 2, 9, NULL);
	ep_init(a, w, 0, &p);
	ep_init(b, w, of_b, &p);
	ep_init(c, w, of_b, &p);
	ep_connect(a, b);
	region = reg(b, NIC_ACCESS_LOCAL_WRITE | NIC_ACCESS_MW_BIND);
}

static void close_all(void)
{
	assert_int_equal(nic_mr_deregister(b->nic, region), 0);
	ep_fini(a);
	ep_fini(c);
	ep_fini(b);
	world_fini(w);
}

/* After an error: connects both ends again. Bindings stay. */
static void again(void)
{
	struct nic_qp_attr reset = {.state = NIC_QPS_RESET};
	struct roost_cqe cqe;

	assert_int_equal(ep_modify(a, &reset, NIC_QPA_STATE), 0);
	assert_int_equal(ep_modify(b, &reset, NIC_QPA_STATE), 0);
	while (ep_poll_send(a, &cqe) || ep_poll_recv(a, &cqe) || ep_poll_send(b, &cqe) ||
	       ep_poll_recv(b, &cqe))
		;
	ep_connect(a, b);
}

static unsigned status_of(struct ep *e, const struct wr *wr)
{
	struct roost_cqe cqe;

	ep_post(e, wr);
	assert_true(ep_wait_send(e, &cqe, 100 * SEC));
	return cqe.status;
}

static struct wr binding(uint32_t key, uint32_t new_key, uint32_t lkey, uint64_t va, uint64_t len,
			 uint32_t access)
{
	return (struct wr){.op = ROOST_OP_BIND_MW,
			   .rkey = key,
			   .imm = new_key,
			   .raddr = va,
			   .swap_add = len,
			   .compare = ROOST_BIND(lkey, access)};
}

static uint64_t va(uint64_t off)
{
	return (uintptr_t)b->mem + off;
}

static uint32_t alloc(struct ep *e, unsigned type)
{
	uint32_t key;

	assert_int_equal(nic_mw_alloc(e->nic, e->pd, type, 0, &key), 0);
	return key;
}

/* Binds a window of b's to [WIN, WIN + LEN) with all remote rights. Returns its key. */
static uint32_t bound(unsigned type)
{
	uint32_t key = alloc(b, type);
	/* Programs request local write, too; no window gives it (not_local). */
	struct wr wr = binding(key, key ^ 1, region, va(WIN), LEN, REMOTE | NIC_ACCESS_LOCAL_WRITE);

	assert_int_equal(status_of(b, &wr), NIC_WC_SUCCESS);
	return key ^ 1;
}

/* a accesses b's memory with this key. Returns the status. */
static unsigned reach(enum roost_op op, uint64_t raddr, uint32_t len, uint32_t key)
{
	struct wr wr = wr_rdma(op, a, 0, len, b, 0);
	unsigned status;

	wr.raddr = raddr;
	wr.rkey = key;
	wr.swap_add = 1;
	status = status_of(a, &wr);
	if (status)
		again();
	return status;
}

static unsigned local_inv(struct ep *e, uint32_t key)
{
	struct wr wr = {.op = ROOST_OP_LOCAL_INV, .imm = key};
	unsigned status = status_of(e, &wr);

	if (status)
		again();
	return status;
}

static unsigned send_inv(uint32_t key, struct roost_cqe *at_b)
{
	struct wr wr = {.op = ROOST_OP_SEND_INV, .imm = key};
	unsigned status;

	ep_post_recv(b, 77, NULL, 0);
	status = status_of(a, &wr);
	assert_true(ep_wait_recv(b, at_b, SEC));
	if (status)
		again();
	return status;
}

static void type_2(unsigned of_b)
{
	uint32_t key, first;

	start(of_b);
	key = first = alloc(b, 2);
	/* Not bound yet, so it has no key. */
	assert_int_equal(reach(ROOST_OP_WRITE, va(WIN), 8, key), NIC_WC_REM_ACCESS_ERR);
	assert_int_equal(local_inv(b, key), NIC_WC_LOC_QP_OP_ERR);
	for (unsigned round = 0; round < 3; round++) {
		struct wr wr;

		/* The second attempt has the same key, the third one another. */
		key = (first & ~0xffu) | (round < 2 ? 0x5a : 0xa5);
		wr = binding(first, key, region, va(WIN + 64 * round), LEN, REMOTE);
		assert_int_equal(status_of(b, &wr), NIC_WC_SUCCESS);
		assert_int_equal(reach(ROOST_OP_WRITE, va(WIN + 64 * round), LEN, key),
				 NIC_WC_SUCCESS);
		assert_int_equal(reach(ROOST_OP_READ, va(WIN + 64 * round), LEN, key),
				 NIC_WC_SUCCESS);
		assert_int_equal(reach(ROOST_OP_FETCH_ADD, va(WIN + 64 * round), 8, key),
				 NIC_WC_SUCCESS);
		/* Not one byte more on either side. */
		assert_int_equal(reach(ROOST_OP_WRITE, va(WIN + 64 * round - 1), LEN, key),
				 NIC_WC_REM_ACCESS_ERR);
		assert_int_equal(reach(ROOST_OP_WRITE, va(WIN + 64 * round), LEN + 1, key),
				 NIC_WC_REM_ACCESS_ERR);
		/* Only the present key is valid. */
		assert_int_equal(reach(ROOST_OP_READ, va(WIN + 64 * round), 8, key ^ 0xff),
				 NIC_WC_REM_ACCESS_ERR);
		assert_int_equal(local_inv(b, key ^ 0xff), NIC_WC_LOC_QP_OP_ERR);
		assert_int_equal(local_inv(b, key), NIC_WC_SUCCESS);
		assert_int_equal(reach(ROOST_OP_READ, va(WIN + 64 * round), 8, key),
				 NIC_WC_REM_ACCESS_ERR);
		assert_int_equal(local_inv(b, key), NIC_WC_LOC_QP_OP_ERR);
	}
	assert_int_equal(nic_mw_dealloc(b->nic, first), 0);
	assert_int_equal(nic_mw_dealloc(b->nic, first), -ENOENT);
	close_all();
}

static void type_1(unsigned of_b)
{
	struct roost_cqe cqe;
	uint32_t key, next;
	struct wr wr;

	start(of_b);
	key = bound(1);
	assert_int_equal(reach(ROOST_OP_WRITE, va(WIN), LEN, key), NIC_WC_SUCCESS);
	/* Neither end can invalidate it (o10-37.2.26). */
	assert_int_equal(local_inv(b, key), NIC_WC_LOC_QP_OP_ERR);
	assert_int_equal(send_inv(key, &cqe), NIC_WC_REM_ACCESS_ERR);
	assert_int_equal(cqe.status, NIC_WC_LOC_PROT_ERR);
	assert_int_equal(reach(ROOST_OP_WRITE, va(WIN), LEN, key), NIC_WC_SUCCESS);
	/* A second binding moves the window, and its former key is invalid. */
	next = key ^ 2;
	wr = binding(key, next, region, va(2 * WIN), 8, NIC_ACCESS_REMOTE_READ);
	assert_int_equal(status_of(b, &wr), NIC_WC_SUCCESS);
	assert_int_equal(reach(ROOST_OP_READ, va(WIN), 8, key), NIC_WC_REM_ACCESS_ERR);
	assert_int_equal(reach(ROOST_OP_READ, va(WIN), 8, next), NIC_WC_REM_ACCESS_ERR);
	assert_int_equal(reach(ROOST_OP_READ, va(2 * WIN), 8, next), NIC_WC_SUCCESS);
	assert_int_equal(reach(ROOST_OP_WRITE, va(2 * WIN), 8, next), NIC_WC_REM_ACCESS_ERR);
	/* A binding of length 0 unbinds it, and its region can be deregistered. */
	assert_int_equal(nic_mr_deregister(b->nic, region), -EBUSY);
	wr = binding(next, key, 0, 0, 0, 0);
	assert_int_equal(status_of(b, &wr), NIC_WC_SUCCESS);
	assert_int_equal(reach(ROOST_OP_READ, va(2 * WIN), 8, next), NIC_WC_REM_ACCESS_ERR);
	assert_int_equal(reach(ROOST_OP_READ, va(2 * WIN), 8, key), NIC_WC_REM_ACCESS_ERR);
	assert_int_equal(nic_mw_dealloc(b->nic, key), 0);
	close_all();
}

/* SEND with invalidate ends a binding once, and reports the key to the receiver. */
static void sent_back(unsigned of_b)
{
	struct roost_cqe cqe;
	uint32_t key;

	start(of_b);
	key = bound(2);
	assert_int_equal(send_inv(key, &cqe), NIC_WC_SUCCESS);
	assert_int_equal(cqe.status, NIC_WC_SUCCESS);
	assert_int_equal(cqe.flags, NIC_WC_WITH_INV);
	assert_int_equal(cqe.imm, key);
	assert_int_equal(reach(ROOST_OP_WRITE, va(WIN), 8, key), NIC_WC_REM_ACCESS_ERR);
	assert_int_equal(send_inv(key, &cqe), NIC_WC_REM_ACCESS_ERR);
	assert_int_equal(cqe.status, NIC_WC_LOC_PROT_ERR);
	/* The peer cannot invalidate the key of a region. */
	assert_int_equal(send_inv(b->key, &cqe), NIC_WC_REM_ACCESS_ERR);
	assert_int_equal(reach(ROOST_OP_WRITE, va(0), 8, b->key), NIC_WC_SUCCESS);
	assert_int_equal(nic_mw_dealloc(b->nic, key), 0);
	close_all();
}

/* Zero-based: addresses count from the window's first byte. */
static void zero_based(unsigned of_b)
{
	uint32_t key;
	struct wr wr;

	start(of_b);
	key = alloc(b, 2);
	wr = binding(key, key ^ 3, region, va(WIN), LEN, REMOTE | NIC_ACCESS_ZERO_BASED);
	assert_int_equal(status_of(b, &wr), NIC_WC_SUCCESS);
	memset(a->mem, 0x6e, 16);
	assert_int_equal(reach(ROOST_OP_WRITE, 16, 16, key ^ 3), NIC_WC_SUCCESS);
	assert_memory_equal(b->mem + WIN + 16, a->mem, 16);
	assert_int_equal(b->mem[WIN + 15] + b->mem[WIN + 32], 0);
	assert_int_equal(reach(ROOST_OP_WRITE, LEN - 15, 16, key ^ 3), NIC_WC_REM_ACCESS_ERR);
	assert_int_equal(reach(ROOST_OP_WRITE, va(WIN), 16, key ^ 3), NIC_WC_REM_ACCESS_ERR);
	assert_int_equal(nic_mw_dealloc(b->nic, key), 0);
	close_all();
}

/* A window's key cannot be used as a local key. */
static void not_local(unsigned of_b)
{
	struct roost_sge sge;
	struct roost_cqe cqe;
	struct wr wr;
	uint32_t key;

	start(of_b);
	for (unsigned type = 1; type <= 2; type++) {
		key = bound(type);
		wr = wr_rdma(ROOST_OP_WRITE, b, WIN, 8, a, 0);
		wr.sge[0].lkey = key;
		assert_int_equal(status_of(b, &wr), NIC_WC_LOC_PROT_ERR);
		again();
		sge = ep_sge(b, WIN, 8);
		sge.lkey = key;
		ep_post_recv(b, 5, &sge, 1);
		wr = wr_rdma(ROOST_OP_SEND, a, 0, 8, b, 0);
		assert_int_equal(status_of(a, &wr), NIC_WC_REM_OP_ERR);
		assert_true(ep_wait_recv(b, &cqe, SEC));
		assert_int_equal(cqe.status, NIC_WC_LOC_PROT_ERR);
		again();
		assert_int_equal(nic_mw_dealloc(b->nic, key), 0);
	}
	close_all();
}

/* Type 2 belongs to the QP that bound it; type 1 to all of its PD. */
static void whose(unsigned of_b)
{
	struct nic_qp_attr reset = {.state = NIC_QPS_RESET};
	struct ep *const d = c;
	uint32_t one, two;
	struct wr wr;

	start(of_b);
	/* d: another QP of b's PD. */
	ep_fini(c);
	ep_init(d, w, of_b, &(struct ep_params){.mtu = 256});
	nic_qp_destroy(d->nic, d->qp);
	{
		struct nic_qp_init init = {
			.type = NIC_QPT_RC,
			.pd = b->pd,
			.send_cq = d->scq,
			.recv_cq = d->rcq,
			.sq = {d->sq, d->sq_wr, &d->sqi, d->p.depth, d->sq_shift},
			.ctx = d};

		assert_int_equal(nic_qp_create(d->nic, &init, &d->qp), 0);
	}
	one = bound(1);
	two = bound(2);
	assert_int_equal(reach(ROOST_OP_READ, va(WIN), 8, one), NIC_WC_SUCCESS);
	assert_int_equal(reach(ROOST_OP_READ, va(WIN), 8, two), NIC_WC_SUCCESS);
	/* Now a is connected to d. */
	assert_int_equal(ep_modify(a, &reset, NIC_QPA_STATE), 0);
	assert_int_equal(ep_modify(b, &reset, NIC_QPA_STATE), 0);
	ep_connect(a, d);
	wr = wr_rdma(ROOST_OP_READ, a, 0, 8, b, WIN);
	wr.rkey = one;
	assert_int_equal(status_of(a, &wr), NIC_WC_SUCCESS);
	/* d cannot invalidate it. */
	wr.rkey = two;
	assert_int_equal(status_of(a, &wr), NIC_WC_REM_ACCESS_ERR);
	assert_int_equal(ep_modify(a, &reset, NIC_QPA_STATE), 0);
	assert_int_equal(ep_modify(d, &reset, NIC_QPA_STATE), 0);
	ep_connect(a, d);
	wr = (struct wr){.op = ROOST_OP_LOCAL_INV, .imm = two};
	assert_int_equal(status_of(d, &wr), NIC_WC_LOC_QP_OP_ERR);
	assert_int_equal(nic_mw_dealloc(b->nic, one), 0);
	assert_int_equal(nic_mw_dealloc(b->nic, two), 0);
	close_all();
}

/*
 * A peer cannot use windows of another protection domain, of either type. Peers of their own domain
 * can.
 */
static void strangers(unsigned of_b)
{
	uint32_t lkey;

	start(of_b);
	ep_connect_self(c);
	lkey = reg(c, NIC_ACCESS_LOCAL_WRITE | NIC_ACCESS_MW_BIND);
	for (unsigned type = 1; type <= 2; type++) {
		uint32_t key = alloc(c, type);
		struct wr wr = binding(key, key ^ 1, lkey, (uintptr_t)c->mem, 64, REMOTE);
		struct wr own = wr_rdma(ROOST_OP_WRITE, c, 512, 8, c, 0);
		struct roost_cqe cqe;

		assert_int_equal(status_of(c, &wr), NIC_WC_SUCCESS);
		assert_int_equal(reach(ROOST_OP_WRITE, (uintptr_t)c->mem, 8, key ^ 1),
				 NIC_WC_REM_ACCESS_ERR);
		assert_int_equal(reach(ROOST_OP_READ, (uintptr_t)c->mem, 8, key ^ 1),
				 NIC_WC_REM_ACCESS_ERR);
		assert_int_equal(send_inv(key ^ 1, &cqe), NIC_WC_REM_ACCESS_ERR);
		assert_int_equal(local_inv(b, key ^ 1), NIC_WC_LOC_QP_OP_ERR);
		own.rkey = key ^ 1;
		assert_int_equal(status_of(c, &own), NIC_WC_SUCCESS);
		assert_int_equal(nic_mw_dealloc(c->nic, key), 0);
	}
	assert_int_equal(nic_mr_deregister(c->nic, lkey), 0);
	close_all();
}

/* A binding that violates a rule ends in error, and an earlier binding stays. */
static void refused(unsigned of_b)
{
	uint32_t no_bind, no_write, gone, strange_region, w1, w2, strange, taken;

	start(of_b);
	no_bind = b->key;
	no_write = reg(b, NIC_ACCESS_MW_BIND);
	gone = reg(b, NIC_ACCESS_LOCAL_WRITE | NIC_ACCESS_MW_BIND);
	assert_int_equal(nic_mr_deregister(b->nic, gone), 0);
	strange_region = reg(c, NIC_ACCESS_LOCAL_WRITE | NIC_ACCESS_MW_BIND);
	w1 = alloc(b, 1);
	w2 = alloc(b, 2);
	strange = alloc(c, 2);
	taken = bound(2);
	{
		uint64_t end = b->mem_len;
		const struct wr rows[] = {
			binding(strange, strange, region, va(0), 8,
				REMOTE), /* C10-72: a window of another PD */
			binding(w2, w2, strange_region, (uintptr_t)c->mem, 8,
				REMOTE),			    /* a region of another PD */
			binding(w2, w2, no_bind, va(0), 8, REMOTE), /* C10-73: no right to bind */
			binding(w1, w1, no_bind, va(0), 8, REMOTE),
			binding(w2, w2, no_write, va(0), 8, NIC_ACCESS_REMOTE_WRITE), /* C10-74 */
			binding(w2, w2, no_write, va(0), 8, NIC_ACCESS_REMOTE_ATOMIC),
			binding(w2, w2, region, va(0) - 1, 8,
				REMOTE), /* C10-75: beyond the region */
			binding(w2, w2, region, va(end - 7), 8, REMOTE),
			binding(w2, w2, region, va(0), end + 1, REMOTE),
			binding(w2, w2, region, va(8), UINT64_MAX - 4, REMOTE),
			binding(w2, w2, gone, va(0), 8, REMOTE),
			binding(w2, w2, taken, va(WIN), 8, REMOTE), /* to a window */
			binding(w2, w2 ^ 0x100, region, va(0), 8,
				REMOTE), /* bits of the key that are not the program's */
			binding(w2 ^ 0x100, w2 ^ 0x100, region, va(0), 8, REMOTE),
			binding(w2 ^ 0x80000000, w2, region, va(0), 8, REMOTE), /* no such window */
			binding(region, region, region, va(0), 8, REMOTE),	/* no window */
			/* o10-37.2.30: bound already */
			binding(taken, taken, region, va(0), 8, REMOTE),
			binding(w2, w2, region, va(0), 0, REMOTE), /* o10-37.2.40: to nothing */
			binding(w2, w2, 0, 0, 0, 0),
			binding(w1, w1, region, va(0), 8,
				REMOTE | NIC_ACCESS_ZERO_BASED), /* o10-36.2.2 */
			binding(w2, w2, region, va(0), 8, REMOTE | NIC_ACCESS_MW_BIND),
		};

		for (unsigned i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
			if (status_of(b, &rows[i]) != NIC_WC_MW_BIND_ERR)
				fail_msg("row %u", i);
			again();
			assert_int_equal(reach(ROOST_OP_WRITE, va(WIN), LEN, taken),
					 NIC_WC_SUCCESS);
		}
	}
	/* Reading needs no right to write. */
	{
		struct wr wr = binding(w2, w2, no_write, va(0), 8, NIC_ACCESS_REMOTE_READ);

		assert_int_equal(status_of(b, &wr), NIC_WC_SUCCESS);
	}
	assert_int_equal(nic_mw_dealloc(b->nic, w1), 0);
	assert_int_equal(nic_mw_dealloc(b->nic, w2), 0);
	assert_int_equal(nic_mw_dealloc(b->nic, strange), 0);
	assert_int_equal(nic_mw_dealloc(b->nic, taken), 0);
	assert_int_equal(nic_mr_deregister(b->nic, no_write), 0);
	assert_int_equal(nic_mr_deregister(b->nic, strange_region), 0);
	close_all();
}

/* Bindings end with the window and with the QP; until then the region cannot be deregistered. */
static void ends(unsigned of_b)
{
	uint32_t key[8], pd;
	struct nic_usage u;

	start(of_b);
	assert_int_equal(nic_mw_alloc(b->nic, b->pd, 3, 0, &pd), -EINVAL);
	assert_int_equal(nic_mw_alloc(b->nic, 4711, 1, 0, &pd), -EINVAL);
	assert_int_equal(nic_pd_alloc(b->nic, &pd), 0);
	assert_int_equal(nic_mw_alloc(b->nic, pd, 1, 0, &key[0]), 0);
	assert_int_equal(nic_pd_free(b->nic, pd), -EBUSY);
	assert_int_equal(nic_mr_deregister(b->nic, key[0]), -ENOENT);
	assert_int_equal(nic_mw_dealloc(b->nic, region), -ENOENT);
	assert_int_equal(nic_mw_dealloc(b->nic, key[0]), 0);
	assert_int_equal(nic_pd_free(b->nic, pd), 0);
	for (unsigned i = 0; i < 8; i++)
		key[i] = bound(2);
	nic_usage(b->nic, &u);
	assert_int_equal(u.mws, 8);
	assert_int_equal(nic_mr_deregister(b->nic, region), -EBUSY);
	/* From the middle, the front and the back of the QP's windows. */
	assert_int_equal(nic_mw_dealloc(b->nic, key[3]), 0);
	assert_int_equal(nic_mw_dealloc(b->nic, key[7]), 0);
	assert_int_equal(nic_mw_dealloc(b->nic, key[0]), 0);
	assert_int_equal(local_inv(b, key[5]), NIC_WC_SUCCESS);
	assert_int_equal(reach(ROOST_OP_WRITE, va(WIN), 8, key[4]), NIC_WC_SUCCESS);
	assert_int_equal(nic_mr_deregister(b->nic, region), -EBUSY);
	nic_qp_destroy(b->nic, b->qp);
	assert_int_equal(nic_mr_deregister(b->nic, region), 0);
	for (unsigned i = 0; i < 8; i++)
		assert_int_equal(nic_mw_dealloc(b->nic, key[i]),
				 i == 0 || i == 3 || i == 7 ? -ENOENT : 0);
	nic_usage(b->nic, &u);
	assert_int_equal(u.mws, 0);
	/* For stop(). */
	ep_fini(c);
	{
		struct nic_qp_init init = {
			.type = NIC_QPT_RC,
			.pd = b->pd,
			.send_cq = b->scq,
			.recv_cq = b->rcq,
			.sq = {b->sq, b->sq_wr, &b->sqi, b->p.depth, b->sq_shift},
			.ctx = b};

		assert_int_equal(nic_qp_create(b->nic, &init, &b->qp), 0);
	}
	ep_init(c, w, of_b, NULL);
	region = reg(b, NIC_ACCESS_LOCAL_WRITE);
	close_all();
}

/*
 * Local operations wait for earlier requests, complete in order, and are flushed as others.
 */
static void order(unsigned of_b)
{
	struct roost_cqe cqe;
	uint32_t key = 0;

	start(of_b);
	key = bound(2);
	for (uint64_t i = 0; i < 3; i++) {
		struct wr wr = wr_rdma(ROOST_OP_READ, b, 0, 4000, a, 0);

		wr.wr_id = i;
		if (i == 1)
			wr = (struct wr){.op = ROOST_OP_LOCAL_INV, .imm = key, .wr_id = i};
		ep_post(b, &wr);
	}
	for (uint64_t i = 0; i < 3; i++) {
		assert_true(ep_wait_send(b, &cqe, SEC));
		assert_int_equal(cqe.status, NIC_WC_SUCCESS);
		assert_int_equal(cqe.wr_id, i);
		assert_int_equal(cqe.opcode, i == 1 ? NIC_WC_LOCAL_INV : NIC_WC_READ);
	}
	assert_int_equal(ep_modify(b, &(struct nic_qp_attr){.state = NIC_QPS_ERR}, NIC_QPA_STATE),
			 0);
	{
		struct wr wr = binding(key, key, region, va(0), 8, REMOTE);

		assert_int_equal(status_of(b, &wr), NIC_WC_WR_FLUSH_ERR);
	}
	assert_int_equal(nic_mw_dealloc(b->nic, key), 0);
	close_all();
}

#define BOTH(name)                                                                                 \
	static void name##_on_the_wire(void **state)                                               \
	{                                                                                          \
		name(1);                                                                           \
	}                                                                                          \
	static void name##_in_loop_back(void **state)                                              \
	{                                                                                          \
		name(0);                                                                           \
	}
BOTH(type_1)
BOTH(type_2)
BOTH(sent_back)
BOTH(zero_based)
BOTH(not_local)
BOTH(whose)
BOTH(strangers)
BOTH(refused)
BOTH(ends)
BOTH(order)

#define cmocka_unit_test_both(name)                                                                \
	cmocka_unit_test(name##_on_the_wire), cmocka_unit_test(name##_in_loop_back)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_both(type_1),	  cmocka_unit_test_both(type_2),
		cmocka_unit_test_both(sent_back), cmocka_unit_test_both(zero_based),
		cmocka_unit_test_both(not_local), cmocka_unit_test_both(whose),
		cmocka_unit_test_both(strangers), cmocka_unit_test_both(refused),
		cmocka_unit_test_both(ends),	  cmocka_unit_test_both(order),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
