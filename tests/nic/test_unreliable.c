/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Random programs of UC and UD over random links, a seed each. The model allows loss where a fault of the link, or of the program, makes
 * it, and nothing else: what is delivered is whole, has the content of one message that was sent to that QP, comes once and in
 * order unless the link repeats or reorders; and over a link without faults, with receives enough, all of it comes.
 *
 *   test-nic-unreliable             200 seeds
 *   test-nic-unreliable SEED        one alone
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#include "base/rng.h"
#include "world.h"

#define SEEDS	 200
#define MESSAGES 60
#define MAX_LEN	 9000
#define UD_MAX	 1024
#define DEPTH	 64
#define QKEY	 0x11111111u
#define GRH	 40
/* Memory of an endpoint: what is sent, where WRITEs go, where receives are; a slot a message. */
#define SLOT 9216u
#define SRC  0u
#define DST  (SRC + MESSAGES * SLOT)
#define RCV  (DST + MESSAGES * SLOT)
#define MEM  (RCV + DEPTH * SLOT)

struct message {
	uint32_t len;
	bool write;
	unsigned to; /* receiver */
};

struct run {
	uint64_t seed;
	struct rng r;
	struct sim_params sp;
	bool ud, starved; /* starved: receives are sometimes missing */
	struct world w;
	struct ep tx, rx[2];
	unsigned receivers;
	uint32_t ah[2];
	struct message m[MESSAGES];
	unsigned posted, done, got[2], taken[2], recvs[2];
	int last[2];
};

/* Byte i of message n. */
static uint8_t content(const struct run *u, unsigned n, uint32_t i)
{
	return (uint8_t)((u->seed * 131 + n * 29 + i * 7 + (i >> 8) * 11) ^ n >> 3);
}

static void check_bytes(const struct run *u, unsigned n, const uint8_t *p)
{
	for (uint32_t i = 0; i < u->m[n].len; i++)
		if (p[i] != content(u, n, i))
			fail_msg("seed %llu: byte %u of message %u is 0x%02x", (unsigned long long)u->seed, i,
				 n, p[i]);
}

static void set_up(struct run *u)
{
	struct ep_params ep = {.mem = MEM, .depth = DEPTH, .mtu = 256u << rng_below(&u->r, 3)};
	bool clean = rng_below(&u->r, 3) == 0;

	u->ud = rng_below(&u->r, 2);
	u->starved = rng_below(&u->r, 4) == 0;
	u->receivers = u->ud ? 2 : 1;
	u->sp = (struct sim_params){.delay_ns = 1000,
				    .window = rng_below(&u->r, 2) ? 20000 : 0,
				    .bytes_per_us = rng_below(&u->r, 2) ? 2000 : 0};
	if (!clean) {
		u->sp.loss = (double)rng_below(&u->r, 20) / 100;
		u->sp.dup = rng_below(&u->r, 2) ? 0.05 : 0;
		u->sp.reorder = rng_below(&u->r, 2) ? 0.05 : 0;
		u->sp.corrupt = rng_below(&u->r, 2) ? 0.05 : 0;
	}
	world_init_shape(&u->w, &(struct world_shape){.nics = 2, .pus = 1 + (unsigned)rng_below(&u->r, 2)},
			 u->seed, &u->sp);
	ep.type = u->ud ? NIC_QPT_UD : NIC_QPT_UC;
	ep.psn = (uint32_t)rng_below(&u->r, 2) ? 0xfffff0 : 5;
	ep_init(&u->tx, &u->w, 0, &ep);
	for (unsigned i = 0; i < u->receivers; i++) {
		ep.pu = (uint8_t)rng_below(&u->r, u->w.pus);
		ep_init(&u->rx[i], &u->w, i ? 0 : 1, &ep); /* the second on the sender's own NIC */
		u->last[i] = -1;
	}
	if (!u->ud) {
		ep_connect(&u->tx, &u->rx[0]);
		return;
	}
	for (unsigned i = 0; i <= u->receivers; i++) {
		struct ep *e = i < u->receivers ? &u->rx[i] : &u->tx;
		struct nic_qp_attr a = {.sq_psn = e->p.psn};

		ep_to_init(e);
		ep_to_rtr(e, &a);
		ep_to_rts(e, &a);
	}
	for (unsigned i = 0; i < u->receivers; i++) {
		struct nic_ah_attr a = {
			.pd = u->tx.pd, .port = 1, .dgid = nic_port(u->rx[i].nic, 0, 0)->addr};

		assert_int_equal(nic_ah_create(u->w.nic[0], &a, &u->ah[i]), 0);
	}
}

static void post(struct run *u)
{
	unsigned n = u->posted++;
	struct message *m = &u->m[n];
	struct wr wr = {.wr_id = n, .num_sge = 1, .imm = n};

	m->len = (uint32_t)rng_below(&u->r, (u->ud ? UD_MAX : MAX_LEN) + 1);
	m->write = !u->ud && rng_below(&u->r, 2);
	m->to = (unsigned)rng_below(&u->r, u->receivers);
	for (uint32_t i = 0; i < m->len; i++)
		u->tx.mem[SRC + n * SLOT + i] = content(u, n, i);
	wr.op = m->write ? ROOST_OP_WRITE_IMM : ROOST_OP_SEND_IMM;
	wr.sge[0] = ep_sge(&u->tx, SRC + n * SLOT, m->len);
	if (u->ud) {
		wr.raddr = ROOST_UD_ADDR(u->ah[m->to], nic_qp_num(u->rx[m->to].qp));
		wr.rkey = QKEY;
	} else {
		wr.raddr = (uintptr_t)u->rx[0].mem + DST + n * SLOT;
		wr.rkey = u->rx[0].key;
	}
	ep_post(&u->tx, &wr);
}

static void post_recvs(struct run *u, unsigned i)
{
	while (u->recvs[i] - u->taken[i] < DEPTH / 2) {
		unsigned slot = u->recvs[i] % DEPTH;
		struct roost_sge sge = ep_sge(&u->rx[i], RCV + slot * SLOT, SLOT);

		if (u->starved && rng_below(&u->r, 3))
			return;
		ep_post_recv(&u->rx[i], u->recvs[i]++, &sge, 1);
	}
}

static void received(struct run *u, unsigned i, const struct roost_cqe *c)
{
	unsigned n = c->imm;
	bool exact = u->sp.dup == 0 && u->sp.reorder == 0;

	assert_int_equal(c->status, NIC_WC_SUCCESS);
	assert_int_equal(c->wr_id, u->taken[i]); /* receives are used in order, none is lost */
	assert_true(n < u->posted);
	assert_int_equal(u->m[n].to, i);
	assert_int_equal(c->byte_len, u->m[n].len + (u->ud ? GRH : 0));
	assert_int_equal(c->src_qpn, nic_qp_num(u->tx.qp));
	assert_int_equal(c->opcode, u->m[n].write ? NIC_WC_RECV_WRITE_IMM : NIC_WC_RECV);
	check_bytes(u, n,
		    u->m[n].write ? u->rx[i].mem + DST + n * SLOT
				  : u->rx[i].mem + RCV + u->taken[i] % DEPTH * SLOT + (u->ud ? GRH : 0));
	if (exact && (int)n <= u->last[i])
		fail_msg("seed %llu: message %u came after %d", (unsigned long long)u->seed, n, u->last[i]);
	u->last[i] = (int)n;
	u->taken[i]++;
	u->got[i]++;
}

static void poll(struct run *u)
{
	struct roost_cqe c;

	while (ep_poll_send(&u->tx, &c)) {
		assert_int_equal(c.status, NIC_WC_SUCCESS);
		assert_int_equal(c.wr_id, u->done++);
	}
	for (unsigned i = 0; i < u->receivers; i++) {
		while (ep_poll_recv(&u->rx[i], &c))
			received(u, i, &c);
		post_recvs(u, i);
	}
}

static void check_end(struct run *u)
{
	unsigned sent[2] = {0};

	for (unsigned n = 0; n < MESSAGES; n++)
		sent[u->m[n].to]++;
	for (unsigned i = 0; i < u->receivers; i++) {
		bool faulty = u->sp.loss + u->sp.dup + u->sp.reorder + u->sp.corrupt > 0;

		assert_true(u->got[i] <= 2 * sent[i]);
		if (!faulty && !u->starved && u->got[i] != sent[i])
			fail_msg("seed %llu: %u of %u messages came over a link without faults",
				 (unsigned long long)u->seed, u->got[i], sent[i]);
		assert_int_equal(nic_qp_state(u->rx[i].qp), NIC_QPS_RTS);
	}
	/* What no message was for is as it was. */
	for (unsigned n = 0; n < MESSAGES && !u->ud; n++)
		for (uint32_t i = u->m[n].write ? u->m[n].len : 0; i < SLOT; i++)
			assert_int_equal(u->rx[0].mem[DST + n * SLOT + i], 0);
}

static unsigned run_seed(uint64_t seed)
{
	struct run *u = calloc(1, sizeof(*u));
	unsigned got;

	assert_non_null(u);
	u->seed = seed;
	rng_seed(&u->r, seed);
	set_up(u);
	for (unsigned i = 0; i < u->receivers; i++)
		post_recvs(u, i);
	while (u->done < MESSAGES) {
		if (u->posted < MESSAGES && u->posted - u->done < DEPTH && rng_below(&u->r, 2))
			post(u);
		world_run(&u->w, world_now(&u->w) + rng_below(&u->r, 20000));
		poll(u);
		assert_true(world_now(&u->w) < 100 * SEC);
	}
	world_run(&u->w, world_now(&u->w) + 100 * MSEC);
	poll(u);
	check_end(u);
	got = u->got[0] + u->got[1];
	for (unsigned i = 0; i < u->receivers && u->ud; i++)
		assert_int_equal(nic_ah_destroy(u->w.nic[0], u->ah[i]), 0);
	for (unsigned i = 0; i < u->receivers; i++)
		ep_fini(&u->rx[i]);
	ep_fini(&u->tx);
	world_fini(&u->w);
	free(u);
	return got;
}

static uint64_t only;

static void random_programs(void **state)
{
	unsigned got = 0;

	for (uint64_t s = only ? only : 1; s <= (only ? only : SEEDS); s++)
		got += run_seed(s);
	print_message("%u messages came of %u\n", got, (only ? 1 : SEEDS) * MESSAGES);
	/* Most do: a simulator that drops everything would show nothing. */
	assert_true(only || got > SEEDS * MESSAGES / 2);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(random_programs)};

	only = argc > 1 ? strtoull(argv[1], NULL, 0) : 0;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
