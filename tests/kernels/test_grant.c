/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Regions of the node that are granted to kernels: by number, with the granted rights, for all
 * versions, and for no other kernel.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "rig.h"

static struct rig R, *const r = &R;

enum what { READ, WRITE, COPY_OUT, COPY_IN, CAS, SEND_FROM, REPLY_FROM, WHATS };

/*
 * agent: executes its parameters, at an address of a granted region and one of the caller's region.
 */
struct params {
	uint64_t what, n, va, own;
};

struct state {
	uint64_t word, scrap;
};

static enum roost_next agent(struct roost_call *c)
{
	const struct params *p = c->params;
	struct state *s = c->state;

	ROOST_STEPS(c);
	s->word = 7;
	if (p->what == READ)
		ROOST_READ_IN(c, (uint32_t)p->n, p->va, &s->word, 8);
	if (p->what == WRITE)
		ROOST_WRITE_IN(c, (uint32_t)p->n, p->va, &s->word, 8);
	if (p->what == COPY_OUT)
		ROOST_COPY_IN(c, 0, p->own, (uint32_t)p->n, p->va, 8);
	if (p->what == COPY_IN)
		ROOST_COPY_IN(c, (uint32_t)p->n, p->va, 0, p->own, 8);
	if (p->what == CAS)
		ROOST_CAS_IN(c, (uint32_t)p->n, p->va, &s->word, 9);
	if (p->what == SEND_FROM) {
		ROOST_SEND_FROM_IN(c, (uint32_t)p->n, p->va, 8);
		return ROOST_DONE;
	}
	if (p->what == REPLY_FROM)
		ROOST_REPLY_FROM_IN(c, (uint32_t)p->n, p->va, 8);
	/* The choice of a region applies to one step only. */
	ROOST_READ(c, p->own, &s->scrap, 8);
	ROOST_REPLY(c, &s->word, 8);
	ROOST_STEPS_END;
}

/* Replies with its grants. */
static enum roost_next asks(struct roost_call *c)
{
	return roost_reply(c, ROOST_RPC_OK, c->grants,
			   c->num_grants * (uint32_t)sizeof(*c->grants));
}

/* flood: sends n pieces of a granted region; with n 0, replies with one. */
static enum roost_next flood(struct roost_call *c)
{
	const struct params *p = c->params;
	struct state *s = c->state;

	ROOST_STEPS(c);
	if (!p->n)
		ROOST_REPLY_FROM_IN(c, 1, p->va, 8);
	for (s->word = 0; s->word < p->n; s->word++)
		ROOST_SEND_FROM_IN(c, 1, p->va, 8);
	ROOST_STEPS_END;
}

enum { AGENT = 0x1000, OTHER, FLOOD };

#define KERNEL(n, o, v, f)                                                                         \
	{                                                                                          \
		.abi = ROOST_KERNEL_ABI, .version = v, .name = n, .op = o,                         \
		.state_size = sizeof(struct state), .params = f                                    \
	}

static const struct roost_kernel agents[] = {KERNEL("agent", AGENT, 1, agent),
					     KERNEL("agent", AGENT, 2, agent),
					     KERNEL("asks", AGENT, 3, asks)},
				 other = KERNEL("other", OTHER, 1, agent),
				 flooder = KERNEL("flood", FLOOD, 1, flood);

static uint64_t memory[64];
static uint32_t pd, key;

/* Registers a region without remote rights, in a separate protection domain. */
static void open_rig(uint64_t seed, const struct sim_params *sp, bool writable)
{
	struct nic_mr_attr a = {.addr = memory,
				.len = sizeof(memory),
				.iova = 0x7000000000,
				.access = writable ? NIC_ACCESS_LOCAL_WRITE : 0};

	rig_open(r, seed, &(struct rig_shape){.sp = *sp, .mtu = 256});
	assert_int_equal(nic_pd_alloc(r->w.nic[1], &pd), 0);
	a.pd = pd;
	assert_int_equal(nic_mr_register(r->w.nic[1], &a, &key), 0);
	assert_int_equal(runtime_deploy(r->f, &agents[0], NULL), 0);
	assert_int_equal(runtime_deploy(r->f, &other, NULL), 0);
	for (unsigned i = 0; i < 64; i++)
		memory[i] = i;
}

static unsigned grant(uint64_t op, uint32_t access)
{
	struct roost_grant region = {.addr = 0x7000000000, .len = sizeof(memory), .access = access};
	unsigned number = 0;

	assert_int_equal(runtime_grant(r->f, op, &region, pd, key, &number), 0);
	return number;
}

static struct rig_reply ask(uint64_t op, enum what what, unsigned n, uint64_t off)
{
	struct params p = {.what = what, .n = n, .va = 0x7000000000 + off, .own = rig_va(r, 0)};

	return rig_call(r, op, &p, sizeof(p), 8);
}

static uint64_t value(struct rig_reply a)
{
	uint64_t v;

	assert_int_equal(a.status, ROOST_RPC_OK);
	assert_int_equal(a.len, 8);
	memcpy(&v, a.data, 8);
	return v;
}

static void what_was_granted(void **state)
{
	uint64_t *own;

	for (uint64_t seed = 1; seed < 4; seed++) {
		open_rig(seed, &(struct sim_params){.delay_ns = 1000, .loss = seed > 1 ? 0.1 : 0},
			 true);
		own = (uint64_t *)r->node[0].mem;
		assert_int_equal(grant(AGENT, 14), 1);
		assert_int_equal(value(ask(AGENT, READ, 1, 8 * 5)), 5);
		ask(AGENT, WRITE, 1, 8 * 6);
		assert_int_equal(memory[6], 7);
		ask(AGENT, COPY_OUT, 1, 8 * 11);
		assert_int_equal(own[0], 11);
		own[0] = 99;
		ask(AGENT, COPY_IN, 1, 8 * 12);
		assert_int_equal(memory[12], 99);
		assert_int_equal(value(ask(AGENT, CAS, 1, 8 * 7)), 7);
		assert_int_equal(memory[7], 9);
		for (unsigned i = 20; i < 40; i++) {
			assert_int_equal(value(ask(AGENT, SEND_FROM, 1, 8 * i)), i);
			assert_int_equal(value(ask(AGENT, REPLY_FROM, 1, 8 * i)), i);
		}
		rig_close(r);
	}
}

static void what_was_not(void **state)
{
	open_rig(10, &(struct sim_params){.delay_ns = 1000}, true);
	assert_int_equal(grant(AGENT, NIC_ACCESS_REMOTE_READ), 1);
	for (enum what w = 0; w < WHATS; w++) {
		bool reads = w == READ || w == COPY_OUT || w == SEND_FROM || w == REPLY_FROM;

		/*
		 * With its number; with other numbers; with its address only; beyond its ends; from
		 * another kernel.
		 */
		assert_int_equal(ask(AGENT, w, 1, 0).status,
				 reads ? ROOST_RPC_OK : ROOST_RPC_ACCESS);
		assert_int_equal(ask(AGENT, w, 0, 0).status, ROOST_RPC_ACCESS);
		assert_int_equal(ask(AGENT, w, 2, 0).status, ROOST_RPC_ACCESS);
		assert_int_equal(ask(AGENT, w, UINT32_MAX, 0).status, ROOST_RPC_ACCESS);
		assert_int_equal(ask(AGENT, w, 1, (uint64_t)-8).status, ROOST_RPC_ACCESS);
		assert_int_equal(ask(AGENT, w, 1, sizeof(memory) - 7).status, ROOST_RPC_ACCESS);
		assert_int_equal(ask(OTHER, w, 1, 0).status, ROOST_RPC_ACCESS);
	}
	for (unsigned i = 0; i < 64; i++)
		assert_int_equal(memory[i], i);
	rig_close(r);
	/* A grant of rights that the region itself does not have. */
	open_rig(11, &(struct sim_params){.delay_ns = 1000}, false);
	assert_int_equal(grant(AGENT, 14), 1);
	assert_int_equal(ask(AGENT, WRITE, 1, 0).status, ROOST_RPC_ACCESS);
	assert_int_equal(ask(AGENT, CAS, 1, 0).status, ROOST_RPC_ACCESS);
	assert_int_equal(ask(AGENT, READ, 1, 0).status, ROOST_RPC_OK);
	rig_close(r);
}

static void numbers(void **state)
{
	struct roost_grant region = {.addr = 1, .len = 1, .access = 4};
	struct kernel_version *s;
	unsigned n;

	open_rig(20, &(struct sim_params){.delay_ns = 1000}, true);
	assert_int_equal(runtime_grant(r->f, 0x9999, &region, pd, key, &n), -ENOENT);
	for (unsigned i = 1; i <= ROOST_KERNEL_GRANTS; i++)
		assert_int_equal(grant(AGENT, 4), i);
	assert_int_equal(runtime_grant(r->f, AGENT, &region, pd, key, &n), -ENOSPC);
	assert_int_equal(grant(OTHER, 4), 1);
	assert_int_equal(runtime_revoke(r->f, AGENT, 3), 0);
	assert_int_equal(runtime_revoke(r->f, AGENT, 3), -ENOENT);
	assert_int_equal(runtime_revoke(r->f, AGENT, 0), -ENOENT);
	assert_int_equal(runtime_revoke(r->f, AGENT, 9), -ENOENT);
	assert_int_equal(ask(AGENT, READ, 3, 0).status, ROOST_RPC_ACCESS);
	assert_int_equal(ask(AGENT, READ, 8, 0).status, ROOST_RPC_OK);
	assert_int_equal(grant(AGENT, 14), 3);
	assert_int_equal(ask(AGENT, WRITE, 3, 0).status, ROOST_RPC_OK);
	/* The next version has them too, and sees them. */
	for (unsigned i = 1; i < 3; i++) {
		assert_int_equal(runtime_prepare(r->f,
						 &(struct runtime_registration){.k = &agents[i],
										.replace = true},
						 &s),
				 0);
		runtime_publish(r->f, s);
		if (i == 1)
			assert_int_equal(ask(AGENT, READ, 3, 8).status, ROOST_RPC_OK);
	}
	{
		struct rig_reply a = rig_call(r, AGENT, NULL, 0, 1000);
		struct roost_grant has[ROOST_KERNEL_GRANTS];

		assert_int_equal(a.len, sizeof(has));
		memcpy(has, a.data, sizeof(has));
		assert_int_equal(has[2].access, 14);
		assert_int_equal(has[7].addr, 0x7000000000);
	}
	/* After a new deployment the kernel has no grants. */
	world_run(&r->w, world_now(&r->w) + SEC);
	assert_int_equal(runtime_undeploy(r->f, AGENT), 0);
	assert_int_equal(runtime_deploy(r->f, &agents[0], NULL), 0);
	assert_int_equal(ask(AGENT, READ, 1, 0).status, ROOST_RPC_ACCESS);
	/* A grant ends when its region is deregistered. */
	assert_int_equal(ask(OTHER, READ, 1, 0).status, ROOST_RPC_OK);
	assert_int_equal(nic_mr_deregister(r->w.nic[1], key), 0);
	assert_int_equal(ask(OTHER, READ, 1, 0).status, ROOST_RPC_ACCESS);
	rig_close(r);
}

static int drop_acks(void *ctx, const struct pkt_addr *src, const uint8_t *bth, uint32_t len)
{
	return bth[0] == PKT_ACK && pkt_addr_eq(src, ep_addr(&r->caller[0]));
}

#define PIECES 16u

/*
 * A grant is revoked while data of the region and replies wait for slots of the send queue. Each
 * call gets a status, and none gets less data than it says.
 */
static void revoked_while_replies_wait(void **state)
{
	struct params p = {.n = PIECES, .va = 0x7000000000};

	open_rig(1, &(struct sim_params){.delay_ns = 1000}, true);
	assert_int_equal(runtime_deploy(r->f, &flooder, NULL), 0);
	assert_int_equal(grant(FLOOD, NIC_ACCESS_REMOTE_READ), 1);
	sim_set_filter(r->w.sim, drop_acks, NULL);
	for (unsigned i = 0; i < RIG_SLOTS; i++) {
		p.n = i < RIG_SLOTS / 2 ? PIECES : 0;
		rig_post(r, 0, i, FLOOD, &p, sizeof(p), 8 * PIECES, 0);
		if (i % (RIG_SLOTS / 2) == RIG_SLOTS / 2 - 1)
			world_run(&r->w, world_now(&r->w) + 100000);
	}
	assert_int_equal(rig_counters(r).calls, RIG_SLOTS);
	assert_int_equal(runtime_revoke(r->f, FLOOD, 1), 0);
	sim_set_filter(r->w.sim, NULL, NULL);
	for (unsigned i = 0; i < RIG_SLOTS; i++)
		assert_int_equal(rig_wait(r, 0, i, 8 * PIECES).status, ROOST_RPC_ACCESS);
	rig_reap(r);
	rig_close(r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_was_granted),
		cmocka_unit_test(what_was_not),
		cmocka_unit_test(numbers),
		cmocka_unit_test(revoked_while_replies_wait),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
