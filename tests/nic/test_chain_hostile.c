/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Chains that are wrong or hostile: their queue goes to the error state, which names the WQE and
 * the reason; other queues continue; no memory outside of their regions changes.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/rng.h"
#include "world.h"

#define REL ROOST_CHAIN_RELATIVE

static struct world W, *const w = &W;
static struct ep A, B, C, *const a = &A, *const b = &B, *const c = &C;

static void loop_queue(struct ep *e, struct ep_params p, const struct ep *of)
{
	p.pd_of = of;
	ep_init(e, w, 0, &p);
	ep_connect_self(e);
}

static void run(void)
{
	world_run(w, world_now(w) + 100 * MSEC);
}

static uint64_t *word(const struct ep *e, uint64_t off)
{
	return (uint64_t *)(e->mem + off);
}

/* Queue a, and a queue beside it that must continue. */
static void start(unsigned pus)
{
	world_init_shape(w, &(struct world_shape){.nics = 1, .pus = pus}, 5, NULL);
	loop_queue(a, (struct ep_params){.chain = true, .counts = true}, NULL);
	loop_queue(c, (struct ep_params){.chain = true}, NULL);
}

static void others_continue(void)
{
	struct wr wr = wr_rdma(ROOST_OP_FETCH_ADD, c, 8, 8, c, 0);
	uint64_t before = *word(c, 0);

	wr.swap_add = 1;
	ep_post(c, &wr);
	run();
	assert_int_equal(*word(c, 0), before + 1);
	assert_int_equal(nic_qp_state(c->qp), NIC_QPS_RTS);
}

static void end(void)
{
	ep_fini(a);
	ep_fini(c);
	world_fini(w);
}

/* The WQE fails with this status, and is reported. */
static void fails(struct wr wr, enum nic_wc_status status)
{
	struct nic_chain_failure f;
	uint32_t at;

	assert_false(nic_qp_chain_failure(a->qp, &f));
	ep_post(a, &(struct wr){.op = ROOST_OP_NOP});
	at = atomic_load(&a->sqi.prod);
	ep_post(a, &wr);
	ep_post(a, &(struct wr){.op = ROOST_OP_NOP});
	run();
	assert_int_equal(nic_qp_state(a->qp), NIC_QPS_ERR);
	assert_true(nic_qp_chain_failure(a->qp, &f));
	assert_int_equal(f.status, status);
	assert_int_equal(f.index, at);
	assert_int_equal(ROOST_CTRL_OP(f.wqe.ctrl), wr.op);
	assert_int_equal(f.wqe.raddr, wr.raddr);
	assert_true(a->events & 1u << NIC_EVENT_QP_FATAL);
	others_continue();
	a->events = 0;
	ep_modify(a, &(struct nic_qp_attr){.state = NIC_QPS_RESET}, NIC_QPA_STATE);
	ep_connect_self(a);
}

static void wrong_names(void **state)
{
	struct wr wr = {.op = ROOST_OP_WAIT, .swap_add = 1};
	static const uint64_t watches[] = {2, 4, UINT32_MAX, 1ull << 34, 1ull << 63};

	start(1);
	for (size_t i = 0; i < sizeof(watches) / sizeof(watches[0]); i++) {
		wr.raddr = watches[i];
		fails(wr, NIC_WC_LOC_QP_OP_ERR);
	}
	for (wr.op = ROOST_OP_ENABLE; wr.op <= ROOST_OP_RECV_ENABLE; wr.op++) {
		const uint64_t names[] = {
			0,
			nic_qp_num(a->qp) ^ 1,
			nic_qp_num(a->qp), /* not managed */
			nic_qp_num(a->qp) | ROOST_CHAIN_TIME,
		};

		for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
			wr.raddr = names[i];
			fails(wr, NIC_WC_LOC_QP_OP_ERR);
		}
	}
	end();
}

/* A queue of another protection domain cannot be enabled, on the same PU or on another. */
static void other_owners(void **state)
{
	const struct ep_params managed = {
		.chain = true, .counts = true, .managed_send = true, .managed_recv = true};
	struct ep_params there = managed;
	struct ep D;
	struct wr wr = {.swap_add = 1};

	there.pu = 1;
	start(2);
	loop_queue(b, managed, NULL);
	loop_queue(&D, there, NULL);
	for (wr.op = ROOST_OP_ENABLE; wr.op <= ROOST_OP_RECV_ENABLE; wr.op++) {
		wr.raddr = nic_qp_num(b->qp);
		fails(wr, NIC_WC_LOC_QP_OP_ERR);
		wr.raddr = nic_qp_num(D.qp);
		fails(wr, NIC_WC_LOC_QP_OP_ERR);
	}
	ep_fini(b);
	ep_fini(&D);
	end();
}

static void wrong_requests(void **state)
{
	struct wr wr;

	start(1);
	for (unsigned op = ROOST_OP_XOR + 1; op < 40; op++)
		fails((struct wr){.op = op}, NIC_WC_LOC_QP_OP_ERR);
	fails((struct wr){.op = ROOST_OP_RECV}, NIC_WC_LOC_QP_OP_ERR);
	fails((struct wr){.op = 0xff00}, NIC_WC_LOC_QP_OP_ERR);
	for (unsigned op = ROOST_OP_MAX; op <= ROOST_OP_XOR; op++) {
		wr = wr_rdma(op, a, 0, 8, a, 64);
		wr.raddr += 4;
		fails(wr, NIC_WC_REM_INV_REQ_ERR);
		wr = wr_rdma(op, a, 0, 8, c, 64);
		wr.rkey = a->key;
		fails(wr, NIC_WC_REM_ACCESS_ERR);
		fails(wr_rdma(op, a, 0, 4, a, 64), NIC_WC_LOC_LEN_ERR);
	}
	/* One byte past the ring. */
	wr = wr_rdma(ROOST_OP_WRITE, a, 0, 9, a, 0);
	wr.raddr = (uintptr_t)a->sq + ((uint64_t)a->p.depth << a->sq_shift) - 8;
	wr.rkey = a->sq_key;
	fails(wr, NIC_WC_REM_ACCESS_ERR);
	wr.raddr = (uintptr_t)a->sq - 1;
	fails(wr, NIC_WC_REM_ACCESS_ERR);
	end();
}

/* Op-codes of chains are refused without set-up, calculations where there are packets. */
static void not_set_up(void **state)
{
	for (unsigned op = ROOST_OP_WAIT; op <= ROOST_OP_XOR; op++) {
		struct ep_params p = {.chain = op >= ROOST_OP_MAX};
		struct wr wr = {.op = op};
		struct roost_cqe cqe;

		world_init_shape(w, &(struct world_shape){.nics = 2}, 5, NULL);
		ep_init(a, w, 0, &p);
		ep_init(b, w, 1, &p);
		ep_connect(a, b);
		if (op >= ROOST_OP_MAX)
			wr = wr_rdma(op, a, 0, 8, b, 0);
		ep_post(a, &wr);
		assert_true(ep_wait_send(a, &cqe, SEC));
		assert_int_equal(cqe.status, NIC_WC_LOC_QP_OP_ERR);
		ep_fini(a);
		ep_fini(b);
		world_fini(w);
	}
}

static void set_up_is_checked(void **state)
{
	struct nic_chain_attr attr = {.managed_recv = true};
	struct ep_params p = {.own_srq = true};

	world_init_shape(w, &(struct world_shape){.nics = 1}, 5, NULL);
	ep_init(a, w, 0, &p);
	assert_int_equal(nic_qp_set_chain(a->nic, a->qp, &attr), -EINVAL);
	attr.managed_recv = false;
	assert_false(nic_qp_has_chain(a->qp));
	assert_int_equal(nic_qp_set_chain(a->nic, a->qp, &attr), 0);
	assert_true(nic_qp_has_chain(a->qp));
	assert_int_equal(nic_qp_set_chain(a->nic, a->qp, &attr), -EBUSY);
	ep_fini(a);
	ep_init(a, w, 0, NULL);
	ep_connect_self(a);
	assert_int_equal(nic_qp_set_chain(a->nic, a->qp, &attr), -EINVAL);
	ep_fini(a);
	ep_init(a, w, 0, &(struct ep_params){.type = NIC_QPT_UC});
	assert_int_equal(nic_qp_set_chain(a->nic, a->qp, &attr), -EOPNOTSUPP);
	ep_fini(a);
	world_fini(w);
}

/* Chains without end, with and without packets: the queue beside them is served in every turn. */
static void without_end(void **state)
{
	static const enum roost_op ops[] = {ROOST_OP_NOP, ROOST_OP_ENABLE, ROOST_OP_WAIT,
					    ROOST_OP_WRITE, ROOST_OP_FETCH_ADD};
	struct ep_params p = {.chain = true, .counts = true, .managed_send = true, .depth = 4};

	for (unsigned i = 0; i < 2 * sizeof(ops) / sizeof(ops[0]); i++) {
		bool far = i % 2;
		struct wr wr = {.op = ops[i / 2]}, more = {.op = ROOST_OP_ENABLE, .swap_add = 4};
		uint64_t before;

		world_init_shape(w, &(struct world_shape){.nics = 2}, 5,
				 &(struct sim_params){.delay_ns = 1000});
		ep_init(a, w, 0, &p);
		ep_init(b, w, far, &p);
		loop_queue(c, (struct ep_params){.chain = true}, a);
		ep_connect(a, b);
		more.raddr = nic_qp_num(a->qp) | REL;
		if (wr.op == ROOST_OP_ENABLE) {
			wr.raddr = more.raddr;
			wr.swap_add = 1;
		} else if (wr.op != ROOST_OP_WAIT && wr.op != ROOST_OP_NOP) {
			wr = wr_rdma(wr.op, a, 0, 8, b, 0);
		}
		ep_post(a, &more);
		for (int n = 0; n < 3; n++)
			ep_post(a, &wr);
		ep_post(c, &more);
		for (int n = 0; n < 1000; n++)
			world_step(w, world_now(w) + MSEC);
		assert_int_equal(nic_qp_state(a->qp), NIC_QPS_RTS);
		before = atomic_load(&a->sidx.prod);
		assert_true(before > 500);
		ep_post(c, &(struct wr){.op = ROOST_OP_NOP, .wr_id = 9});
		world_step(w, world_now(w) + MSEC);
		world_step(w, world_now(w) + MSEC);
		assert_int_equal(atomic_load(&c->sidx.prod), 2);
		assert_true(atomic_load(&a->sidx.prod) - before <= 2 * 256);
		ep_fini(c);
		ep_fini(a);
		ep_fini(b);
		world_fini(w);
	}
}

/*
 * A recycled queue fails in its second turn, and so does a queue with receives that are not
 * enabled. The NIC then has no more work.
 */
static void failed_queues_are_idle(void **state)
{
	const struct ep_params p = {.chain = true,
				    .counts = true,
				    .managed_send = true,
				    .managed_recv = true,
				    .depth = 4};
	struct wr wr;

	world_init_shape(w, &(struct world_shape){.nics = 1}, 5, NULL);
	loop_queue(a, p, NULL);
	loop_queue(c, (struct ep_params){.chain = true}, a);
	/* WQE 2 adds to the op-code of WQE 1, a NOP: in the second turn it does not exist. */
	wr = wr_rdma(ROOST_OP_FETCH_ADD, a, 0, 8, a, 0);
	wr.raddr = (uintptr_t)a->sq + (1u << a->sq_shift);
	wr.rkey = a->sq_key;
	wr.swap_add = 27;
	for (int i = 0; i < 4; i++)
		ep_post(a, i == 2 ? &wr : &(struct wr){.op = ROOST_OP_NOP});
	ep_post_recv(a, 0, NULL, 0);
	ep_post_recv(a, 0, NULL, 0);
	ep_post(c, &(struct wr){.op = ROOST_OP_ENABLE,
				.raddr = nic_qp_num(a->qp) | REL,
				.swap_add = 1000});
	for (int n = 0; n < 10000 && world_step(w, world_now(w) + SEC); n++)
		assert_true(n < 9999);
	assert_int_equal(nic_qp_state(a->qp), NIC_QPS_ERR);
	assert_int_equal(atomic_load(&a->sqi.cons), 6);
	assert_false(nic_pending(a->nic, 0));
	ep_fini(c);
	ep_fini(a);
	world_fini(w);
}

/* Random rings, that also rewrite themselves: no crash, and no byte outside of the regions. */
static void random_programs(void **state)
{
	const unsigned seeds = 300;

	for (uint64_t seed = 1; seed <= seeds; seed++) {
		struct ep_params p = {.chain = true,
				      .counts = true,
				      .managed_send = true,
				      .managed_recv = true,
				      .depth = 16,
				      .mem = 4096};
		uint8_t *outside;
		struct rng rng;

		rng_seed(&rng, seed);
		world_init_shape(w, &(struct world_shape){.nics = 1}, seed, NULL);
		loop_queue(a, p, NULL);
		loop_queue(b, p, a);
		loop_queue(c, (struct ep_params){.chain = true, .mem = 4096}, a);
		outside = calloc(1, 4096);
		for (unsigned i = 0; i < 32; i++) {
			struct ep *e = i % 2 ? a : b;
			struct wr wr = {.op = (enum roost_op)rng_below(&rng, 28)};
			uint64_t off = rng_below(&rng, 512) * 8;

			wr.flags = (uint16_t)(1 + rng_below(&rng, 4));
			wr.sge[0] = ep_sge(e, rng_below(&rng, 512) * 8,
					   rng_below(&rng, 4) ? 8 : (uint32_t)rng_below(&rng, 64));
			wr.num_sge = rng_below(&rng, 8) != 0;
			wr.swap_add = rng_below(&rng, 3) ? rng_below(&rng, 4) : rng_u64(&rng);
			wr.compare = rng_below(&rng, 64);
			switch (rng_below(&rng, 6)) {
			case 0:
				wr.raddr = (uintptr_t)a->sq + off % (16u << a->sq_shift);
				wr.rkey = a->sq_key;
				break;
			case 1:
				wr.raddr = (uintptr_t)outside;
				wr.rkey = e->key;
				break;
			case 2:
			case 3:
				wr.raddr = nic_qp_num(rng_below(&rng, 2) ? a->qp : b->qp) | REL;
				break;
			default:
				wr.raddr = (uintptr_t)e->mem + off;
				wr.rkey = e->key;
			}
			if (wr.op == ROOST_OP_WAIT)
				wr.raddr = rng_below(&rng, 3) | REL;
			ep_post(e, &wr);
			ep_post_recv(e, 0, &wr.sge[0], 1);
		}
		for (unsigned i = 0; i < 4; i++) {
			struct wr go = {.op = i % 2 ? ROOST_OP_ENABLE : ROOST_OP_RECV_ENABLE,
					.raddr = nic_qp_num(i < 2 ? a->qp : b->qp) | REL,
					.swap_add = 40};

			ep_post(c, &go);
		}
		for (int n = 0; n < 50; n++)
			world_step(w, world_now(w) + MSEC);
		for (unsigned i = 0; i < 4096; i++)
			if (outside[i])
				fail_msg("seed %llu: byte %u changed", (unsigned long long)seed, i);
		ep_fini(c);
		ep_fini(b);
		ep_fini(a);
		free(outside);
		world_fini(w);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(wrong_names),
		cmocka_unit_test(other_owners),
		cmocka_unit_test(wrong_requests),
		cmocka_unit_test(not_set_up),
		cmocka_unit_test(set_up_is_checked),
		cmocka_unit_test(without_end),
		cmocka_unit_test(failed_queues_are_idle),
		cmocka_unit_test(random_programs),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
