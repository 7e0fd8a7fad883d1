/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Other operations of kernels than READs, WRITEs and SENDs: atomics, immediate data, solicited
 * SENDs.
 */
#include <endian.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "scene.h"

enum { KINDS_OP = 0x1001, COUNT_OP, ONE_OP };

static uint64_t word(const struct ep *e, uint64_t off)
{
	uint64_t v;

	memcpy(&v, e->mem + off, 8);
	return v;
}

static void set_word(struct ep *e, uint64_t off, uint64_t v)
{
	memcpy(e->mem + off, &v, 8);
}

static struct roost_kernel kernel_of(uint64_t op, enum roost_next (*params)(struct roost_call *c))
{
	return (struct roost_kernel){.abi = ROOST_KERNEL_ABI,
				     .version = 1,
				     .name = "ops",
				     .op = op,
				     .state_size = 1024,
				     .scratch_size = 4096,
				     .params = params};
}

/* ---- one of each ---- */

struct kinds_params {
	uint64_t raddr, at; /* at the peer, and in the region here */
	uint32_t rkey;
};

struct kinds {
	struct kinds_params p;
	uint64_t old[4];
	uint32_t failed, posted;
};

static enum roost_next kinds(struct roost_call *c)
{
	struct kinds *k = c->state;

	ROOST_STEPS(c);
	memcpy(&k->p, c->params, sizeof(k->p));
	memset(c->scratch, 'i', 3000);
	ROOST_QP_CAS(c, 1, k->p.raddr, k->p.rkey, &k->old[0], 5, 0x0123456789abcdef);
	ROOST_QP_CAS(c, 1, k->p.raddr, k->p.rkey, &k->old[1], 6, 7);
	ROOST_QP_FETCH_ADD(c, 1, k->p.raddr + 8, k->p.rkey, &k->old[2], 1ull << 40 | 3);
	ROOST_QP_CAS_AT(c, 1, k->p.raddr + 16, k->p.rkey, k->p.at, 0, 9);
	ROOST_QP_FETCH_ADD_AT(c, 1, k->p.raddr + 16, k->p.rkey, k->p.at + 8, 1);
	ROOST_QP_POST_FETCH_ADD(c, 1, k->p.raddr + 24, k->p.rkey, &k->old[3], 1);
	ROOST_QP_POST_CAS(c, 1, k->p.raddr + 24, k->p.rkey, &k->old[3], 1, 11);
	ROOST_QP_WRITE_IMM(c, 1, k->p.raddr + 64, k->p.rkey, c->scratch, 3000, htobe32(0xa1b2c3d4));
	ROOST_QP_WRITE_IMM_AT(c, 1, k->p.raddr + 4096, k->p.rkey, k->p.at + 16, 100, htobe32(2));
	ROOST_QP_SEND_IMM(c, 1, c->scratch, 2500, htobe32(3));
	ROOST_QP_SEND_IMM_AT(c, 1, k->p.at + 16, 50, htobe32(4));
	ROOST_QP_POST_WRITE_IMM(c, 1, k->p.raddr, k->p.rkey, c->scratch, 0, htobe32(5));
	ROOST_QP_POST_SEND_IMM(c, 1, c->scratch, 0, htobe32(6));
	ROOST_QP_WAIT_ALL(c);
	k->failed = c->qp_failed;
	k->posted = c->qp_posted;
	ROOST_REPLY(c, &k->old, sizeof(k->old) + 8);
	ROOST_STEPS_END;
}

static void arrives(uint32_t imm, uint32_t opcode, uint32_t len)
{
	struct roost_cqe cqe;

	assert_true(ep_poll_recv(&s->peer[0], &cqe));
	assert_int_equal(cqe.status, NIC_WC_SUCCESS);
	assert_int_equal(be32toh(cqe.imm), imm);
	assert_int_equal(cqe.opcode, opcode);
	assert_int_equal(cqe.byte_len, len);
	assert_true(cqe.flags & NIC_WC_WITH_IMM);
}

static void each_kind(void **state)
{
	static const struct shape lossy = {
		.sp = {.delay_ns = 2000, .loss = 0.1, .dup = 0.05, .reorder = 0.05},
		.rnr_retry = 7};
	const struct shape *shapes[] = {&plain, &over_loop, &lossy};
	const struct roost_kernel k = kernel_of(KINDS_OP, kinds);

	for (unsigned i = 0; i < 3; i++) {
		struct {
			uint64_t old[4];
			uint32_t failed, posted;
		} told;
		struct kinds_params p;
		struct roost_cqe cqe;

		open_scene(i + 1, shapes[i]);
		assert_int_equal(runtime_deploy(s->f, &k, NULL), 0);
		bind_qp(KINDS_OP, &s->bound[0], 1);
		p = (struct kinds_params){.raddr = (uintptr_t)s->peer[0].mem,
					  .rkey = s->peer[0].key,
					  .at = (uintptr_t)s->bound[0].mem};
		set_word(&s->peer[0], 0, 5);
		set_word(&s->peer[0], 8, 4);
		set_word(&s->bound[0], 0, 99);
		memset(s->bound[0].mem + 16, 'r', 100);
		for (unsigned n = 0; n < 6; n++) {
			struct roost_sge sge = ep_sge(&s->peer[0], 65536 + n * 4096, 4096);

			ep_post_recv(&s->peer[0], n, &sge, 1);
		}
		finish(start(KINDS_OP, &p, sizeof(p), &s->bound[0], &told, sizeof(told)),
		       ROOST_RPC_OK);
		assert_int_equal(told.failed, 0);
		assert_int_equal(told.posted, 13);
		assert_int_equal(told.old[0], 5);
		assert_int_equal(told.old[1], 0x0123456789abcdef);
		assert_int_equal(told.old[2], 4);
		assert_int_equal(told.old[3], 1);
		assert_int_equal(word(&s->peer[0], 0), 0x0123456789abcdef);
		assert_int_equal(word(&s->peer[0], 8), (1ull << 40) + 7);
		assert_int_equal(word(&s->peer[0], 16), 10);
		assert_int_equal(word(&s->peer[0], 24), 11);
		assert_int_equal(word(&s->bound[0], 0), 0);
		assert_int_equal(word(&s->bound[0], 8), 9);
		filled(s->peer[0].mem + 64, 'i', 3000);
		filled(s->peer[0].mem + 4096, 'r', 100);
		arrives(0xa1b2c3d4, NIC_WC_RECV_WRITE_IMM, 3000);
		arrives(2, NIC_WC_RECV_WRITE_IMM, 100);
		arrives(3, NIC_WC_RECV, 2500);
		arrives(4, NIC_WC_RECV, 50);
		arrives(5, NIC_WC_RECV_WRITE_IMM, 0);
		arrives(6, NIC_WC_RECV, 0);
		filled(s->peer[0].mem + 65536 + 2 * 4096, 'i', 2500);
		filled(s->peer[0].mem + 65536 + 3 * 4096, 'r', 50);
		/* the program gets no completion */
		assert_false(ep_poll_send(&s->bound[0], &cqe));
		close_scene();
	}
}

/* ---- a lock, and the count that it protects ---- */

struct count_params {
	uint64_t lock; /* behind it the count, and how many came */
	uint32_t rkey, qp, times;
};

struct count {
	struct count_params p;
	uint64_t old, value;
	uint32_t i;
};

/*
 * The count is changed by a READ and a WRITE. Without the lock, or if an atomic is done twice, it
 * is wrong at the end.
 */
static enum roost_next count(struct roost_call *c)
{
	struct count *n = c->state;

	ROOST_STEPS(c);
	memcpy(&n->p, c->params, sizeof(n->p));
	for (n->i = 0; n->i < n->p.times; n->i++) {
		do
			ROOST_QP_CAS(c, n->p.qp, n->p.lock, n->p.rkey, &n->old, 0, n->p.qp);
		while (n->old && !c->qp_failed);
		ROOST_QP_READ(c, n->p.qp, n->p.lock + 8, n->p.rkey, &n->value, 8);
		n->value++;
		ROOST_QP_WRITE(c, n->p.qp, n->p.lock + 8, n->p.rkey, &n->value, 8);
		ROOST_QP_POST_FETCH_ADD(c, n->p.qp, n->p.lock + 16, n->p.rkey, &n->old, 1);
		ROOST_QP_CAS(c, n->p.qp, n->p.lock, n->p.rkey, &n->value, n->p.qp, 0);
		if (c->qp_failed || n->value != n->p.qp)
			ROOST_FAIL(c, ROOST_RPC_FAILED);
	}
	ROOST_STEPS_END;
}

static void two_count(void **state)
{
	static const struct shape shapes[] = {
		{.sp = {.delay_ns = 2000, .loss = 0.05}},
		{.sp = {.delay_ns = 2000,
			.loss = 0.03,
			.dup = 0.05,
			.reorder = 0.05,
			.corrupt = 0.01}},
		{.loop = true},
	};
	const struct roost_kernel k = kernel_of(COUNT_OP, count);

	for (uint64_t seed = 1; seed <= 9; seed++) {
		struct count_params p = {.times = 50};
		struct ep second, its_peer;
		struct local_call *run[2];
		bool loop = shapes[seed % 3].loop;

		open_scene(seed, &shapes[seed % 3]);
		assert_int_equal(runtime_deploy(s->f, &k, NULL), 0);
		/* Another way to peer 0's NIC, with a region of the same memory. */
		ep_init(&second, &s->w, 0, &(struct ep_params){.mem = 64});
		ep_init(&its_peer, &s->w, loop ? 0 : 1, &(struct ep_params){.mem = 64});
		ep_connect(&second, &its_peer);
		bind_qp(COUNT_OP, &s->bound[0], 1);
		bind_qp(COUNT_OP, &second, 2);
		memset(its_peer.mem, 0, 64);
		assert_int_equal(nic_mr_deregister(its_peer.nic, its_peer.key), 0);
		assert_int_equal(
			nic_mr_register(its_peer.nic,
					&(struct nic_mr_attr){.pd = its_peer.pd,
							      .addr = s->peer[0].mem,
							      .len = 64,
							      .iova = (uintptr_t)s->peer[0].mem,
							      .access = 15},
					&its_peer.key),
			0);
		p.lock = (uintptr_t)s->peer[0].mem;
		p.qp = 1;
		p.rkey = s->peer[0].key;
		run[0] = start(COUNT_OP, &p, sizeof(p), NULL, NULL, 0);
		p.qp = 2;
		p.rkey = its_peer.key;
		run[1] = start(COUNT_OP, &p, sizeof(p), NULL, NULL, 0);
		finish(run[0], ROOST_RPC_OK);
		finish(run[1], ROOST_RPC_OK);
		assert_int_equal(word(&s->peer[0], 0), 0);
		assert_int_equal(word(&s->peer[0], 8), 100);
		assert_int_equal(word(&s->peer[0], 16), 100);
		ep_fini(&second);
		ep_fini(&its_peer);
		close_scene();
	}
}

/* ---- one operation, given by the parameters ---- */

struct one_params {
	uint32_t ask, qp, rkey, len, solicited;
	uint64_t raddr, at;
	bool region;
};

struct one {
	struct one_params p;
	uint64_t old;
	uint8_t status;
};

static enum roost_next one_of(struct roost_call *c, struct one *o)
{
	const struct one_params *p = &o->p;
	uint64_t *old = p->region ? NULL : &o->old;

	switch ((enum roost_ask)p->ask) {
	case ROOST_ASK_QP_CAS:
		return roost_qp_cas(c, p->qp, p->raddr, p->rkey, old, p->at, 0, 1);
	case ROOST_ASK_QP_FETCH_ADD:
		return roost_qp_fetch_add(c, p->qp, p->raddr, p->rkey, old, p->at, 1);
	case ROOST_ASK_QP_WRITE_IMM:
		return roost_qp_write_imm(c, p->qp, p->raddr, p->rkey, old, p->at, p->len, 1);
	case ROOST_ASK_QP_SEND_IMM:
		return roost_qp_send_imm(c, p->qp, old, p->at, p->len, 1);
	default:
		return roost_qp_send(c, p->qp, old, p->at, p->len);
	}
}

static enum roost_next one(struct roost_call *c)
{
	struct one *o = c->state;

	ROOST_STEPS(c);
	memcpy(&o->p, c->params, sizeof(o->p));
	if (o->p.solicited)
		ROOST_QP_DO(c, roost_qp_solicit(c, one_of(c, o)));
	else
		ROOST_QP_DO(c, one_of(c, o));
	o->status = (uint8_t)roost_qp_status(c, c->qp_posted);
	ROOST_REPLY(c, &o->status, 1);
	ROOST_STEPS_END;
}

static unsigned try(struct one_params p, const struct ep *region)
{
	uint8_t status = 77;
	const struct ep *peer = &s->peer[p.qp == 2];

	p.qp = p.qp ? p.qp : 1;
	p.rkey = p.rkey ? p.rkey : peer->key;
	p.raddr = p.raddr ? p.raddr : (uintptr_t)peer->mem;
	p.region = region;
	finish(start(ONE_OP, &p, sizeof(p), region, &status, 1), ROOST_RPC_OK);
	return status;
}

static const struct roost_kernel *one_kernel(void)
{
	static struct roost_kernel k;

	k = kernel_of(ONE_OP, one);
	return &k;
}

static void open_for_one(const struct shape *shape)
{
	open_scene(1, shape);
	assert_int_equal(runtime_deploy(s->f, one_kernel(), NULL), 0);
	bind_qp(ONE_OP, &s->bound[0], 1);
	bind_qp(ONE_OP, &s->bound[1], 2);
}

/* A CQ that is armed for solicited completions gets an event for those only. */
static void solicited(void **state)
{
	static const uint32_t asks[] = {ROOST_ASK_QP_SEND, ROOST_ASK_QP_SEND_IMM,
					ROOST_ASK_QP_WRITE_IMM};
	const struct shape *shapes[] = {&plain, &over_loop};

	for (unsigned i = 0; i < 6; i++) {
		open_for_one(shapes[i % 2]);
		for (unsigned n = 0; n < 4; n++) {
			struct roost_sge sge = ep_sge(&s->peer[0], 0, 64);

			ep_post_recv(&s->peer[0], n, &sge, 1);
			atomic_store(&s->peer[0].ridx.arm, ROOST_CQ_ARM_SOLICITED);
			s->w.cq_events = 0;
			assert_int_equal(try((struct one_params){.ask = asks[i / 2],
								 .len = 8,
								 .solicited = n & 1},
					     NULL),
					 ROOST_QP_OK);
			assert_int_equal(s->w.cq_events, n & 1);
		}
		close_scene();
	}
}

/* Operations that would break the connection are refused before they are sent. */
static void refused_locally(void **state)
{
	static const uint32_t atomics[] = {ROOST_ASK_QP_CAS, ROOST_ASK_QP_FETCH_ADD};
	struct ep none, nones, read_only;

	open_for_one(&plain);
	ep_init(&none, &s->w, 0, &(struct ep_params){.rd_atomic = 255});
	ep_init(&nones, &s->w, 1, &(struct ep_params){.rd_atomic = 255});
	ep_connect(&none, &nones);
	bind_qp(ONE_OP, &none, 3);
	read_only = s->bound[0];
	assert_int_equal(nic_mr_register(read_only.nic,
					 &(struct nic_mr_attr){.pd = read_only.pd,
							       .addr = read_only.mem,
							       .len = MEM,
							       .iova = (uintptr_t)read_only.mem},
					 &read_only.key),
			 0);
	for (unsigned i = 0; i < 2; i++) {
		struct one_params p = {.ask = atomics[i]};
		uint64_t local = (uintptr_t)s->bound[0].mem;

		p.raddr = (uintptr_t)s->peer[0].mem + 4;
		assert_int_equal(try(p, NULL), ROOST_QP_INVALID);
		p.raddr = (uintptr_t)nones.mem;
		p.rkey = nones.key;
		p.qp = 3;
		assert_int_equal(try(p, NULL), ROOST_QP_INVALID);
		p = (struct one_params){.ask = atomics[i], .at = local + MEM - 7};
		assert_int_equal(try(p, &s->bound[0]), ROOST_QP_LOCAL);
		p.at = (uintptr_t)s->bound[1].mem;
		assert_int_equal(try(p, &s->bound[1]), ROOST_QP_LOCAL);
		p.at = local;
		assert_int_equal(try(p, &read_only), ROOST_QP_LOCAL);
		assert_int_equal(try(p, &s->bound[0]), ROOST_QP_OK);
	}
	assert_int_equal(try((struct one_params){.ask = ROOST_ASK_QP_SEND_IMM, .len = 8, .at = 8},
			     &s->bound[0]),
			 ROOST_QP_LOCAL);
	assert_int_equal(nic_qp_state(s->bound[0].qp), NIC_QPS_RTS);
	assert_int_equal(nic_qp_state(none.qp), NIC_QPS_RTS);
	ep_fini(&none);
	ep_fini(&nones);
	assert_int_equal(nic_mr_deregister(read_only.nic, read_only.key), 0);
	close_scene();
}

/* Operations that the peer refuses end the connection; the status is the reason. */
static void refused_there(void **state)
{
	static const struct {
		uint32_t ask;
		uint32_t key; /* in which bits it differs from the right one */
		unsigned status;
	} rows[] = {
		{ROOST_ASK_QP_CAS, 0x100, ROOST_QP_REM_ACCESS},
		{ROOST_ASK_QP_FETCH_ADD, 0x100, ROOST_QP_REM_ACCESS},
		{ROOST_ASK_QP_WRITE_IMM, 0x100, ROOST_QP_REM_ACCESS},
		{ROOST_ASK_QP_WRITE_IMM, 0, ROOST_QP_RNR},
		{ROOST_ASK_QP_SEND_IMM, 0, ROOST_QP_RNR},
	};
	const struct shape shapes[] = {{.sp = {.delay_ns = 2000}, .rnr_retry = 2},
				       {.loop = true, .rnr_retry = 2}};

	for (unsigned i = 0; i < 2 * sizeof(rows) / sizeof(rows[0]); i++) {
		struct one_params p = {.ask = rows[i / 2].ask, .len = 8};

		open_for_one(&shapes[i % 2]);
		p.rkey = s->peer[0].key ^ rows[i / 2].key;
		assert_int_equal(try(p, NULL), rows[i / 2].status);
		assert_int_equal(nic_qp_state(s->bound[0].qp), NIC_QPS_ERR);
		assert_int_equal(word(&s->peer[0], 0), 0);
		p.rkey = 0;
		assert_int_equal(try(p, NULL), ROOST_QP_STATE);
		p = (struct one_params){.ask = ROOST_ASK_QP_FETCH_ADD, .qp = 2};
		assert_int_equal(try(p, NULL), ROOST_QP_OK); /* other queue pairs continue */
		assert_int_equal(word(&s->peer[1], 0), 1);
		close_scene();
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_kind),	 cmocka_unit_test(two_count),
		cmocka_unit_test(solicited),	 cmocka_unit_test(refused_locally),
		cmocka_unit_test(refused_there),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
