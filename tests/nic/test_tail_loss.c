/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A lost packet costs milliseconds, not the QP's time-out. Exchanges of every operation run once
 * without loss, to count their packets, then once for each packet (request, response or ACK) with
 * only this packet lost. The time-out is 20 (4.3 s), as connection managers choose it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

#include "world.h"

#define MTU	 512
#define DELAY	 20000
#define MAX_COST (5 * MSEC)

struct exchange {
	const char *name;
	struct {
		enum roost_op op;
		uint32_t len;
	} op[6];
	unsigned n;
};

static const struct exchange exchanges[] = {
	{"a small WRITE", {{ROOST_OP_WRITE, 8}}, 1},
	{"a long WRITE", {{ROOST_OP_WRITE, 9 * MTU + 3}}, 1},
	{"a small SEND", {{ROOST_OP_SEND, 8}}, 1},
	{"a long SEND", {{ROOST_OP_SEND_IMM, 5 * MTU}}, 1},
	{"a small READ", {{ROOST_OP_READ, 8}}, 1},
	{"a long READ", {{ROOST_OP_READ, 7 * MTU + 1}}, 1},
	{"an atomic", {{ROOST_OP_FETCH_ADD, 8}}, 1},
	{"WRITEs",
	 {{ROOST_OP_WRITE, 8},
	  {ROOST_OP_WRITE, MTU},
	  {ROOST_OP_WRITE, 8},
	  {ROOST_OP_WRITE, 2 * MTU}},
	 4},
	{"WRITE and notify", {{ROOST_OP_WRITE, 4 * MTU}, {ROOST_OP_WRITE_IMM, 8}}, 2},
	{"READs", {{ROOST_OP_READ, 2 * MTU}, {ROOST_OP_READ, 8}, {ROOST_OP_READ, 3 * MTU}}, 3},
	{"READ, then WRITE", {{ROOST_OP_READ, 3 * MTU}, {ROOST_OP_WRITE, 3 * MTU}}, 2},
	{"WRITE, then READ", {{ROOST_OP_WRITE, 3 * MTU}, {ROOST_OP_READ, 3 * MTU}}, 2},
	{"atomics", {{ROOST_OP_FETCH_ADD, 8}, {ROOST_OP_FETCH_ADD, 8}, {ROOST_OP_FETCH_ADD, 8}}, 3},
	{"some of each",
	 {{ROOST_OP_SEND, 3 * MTU},
	  {ROOST_OP_READ, 2 * MTU},
	  {ROOST_OP_FETCH_ADD, 8},
	  {ROOST_OP_WRITE, 100},
	  {ROOST_OP_FETCH_ADD, 8},
	  {ROOST_OP_WRITE_IMM, MTU + 1}},
	 6},
};

struct loss {
	unsigned seen, victim;
	uint8_t opcode;
	uint32_t psn;
};

static int lose(void *ctx, const struct pkt_addr *src, const uint8_t *bth, uint32_t len)
{
	struct loss *l = ctx;
	struct pkt_view v;

	assert_int_equal(pkt_parse(bth, len, &v), PKT_OK);
	if (l->seen++ == l->victim) {
		l->opcode = v.opcode;
		l->psn = v.psn;
		return 1;
	}
	return 0;
}

/* Executes the exchange and returns the virtual time that it took. */
static uint64_t carry_out(const struct exchange *x, struct loss *l, uint32_t psn)
{
	struct sim_params sp = {.delay_ns = DELAY};
	struct ep_params p = {.mtu = MTU, .timeout = 20, .psn = psn, .rd_atomic = 8};
	uint64_t took, adds = 0;
	struct roost_cqe c;
	struct world w;
	struct ep a, b;

	world_init(&w, 2, 3, &sp);
	sim_set_filter(w.sim, lose, l);
	ep_init(&a, &w, 0, &p);
	ep_init(&b, &w, 1, &p);
	ep_connect(&a, &b);
	for (uint32_t i = 0; i < 16384; i++) {
		a.mem[i] = (uint8_t)(i * 31 + 1);
		b.mem[i] = (uint8_t)(i * 17 + 5);
	}
	for (unsigned i = 0; i < 6; i++) {
		struct roost_sge s = ep_sge(&b, 40960 + 4096 * i, 4096);

		ep_post_recv(&b, i, &s, 1);
	}
	took = world_now(&w);
	for (unsigned i = 0; i < x->n; i++) {
		/*
		 * READs: from the start of b's memory to behind 16 KiB. WRITEs: the other way
		 * around.
		 */
		bool read = x->op[i].op == ROOST_OP_READ;
		struct wr wr = wr_rdma(x->op[i].op, &a, (read ? 16384 : 0) + 4096 * (i & 3),
				       x->op[i].len, &b, (read ? 0 : 16384) + 4096 * (i & 3));

		if (x->op[i].op == ROOST_OP_FETCH_ADD) {
			wr = wr_rdma(ROOST_OP_FETCH_ADD, &a, 40960 + 8 * i, 8, &b, 36864);
			wr.swap_add = 100;
		}
		wr.wr_id = i;
		ep_post(&a, &wr);
	}
	for (unsigned i = 0; i < x->n; i++) {
		assert_true(ep_wait_send(&a, &c, 60 * SEC));
		assert_int_equal(c.status, NIC_WC_SUCCESS);
		assert_int_equal(c.wr_id, i);
	}
	took = world_now(&w) - took;
	for (unsigned i = 0; i < x->n; i++) {
		uint32_t at = 4096 * (i & 3);

		switch ((int)x->op[i].op) {
		case ROOST_OP_READ:
			assert_memory_equal(a.mem + 16384 + at, b.mem + at, x->op[i].len);
			break;
		case ROOST_OP_WRITE:
		case ROOST_OP_WRITE_IMM:
			assert_memory_equal(b.mem + 16384 + at, a.mem + at, x->op[i].len);
			break;
		case ROOST_OP_FETCH_ADD:
			assert_int_equal(*(uint64_t *)(a.mem + 40960 + 8 * i), adds);
			adds += 100;
			break;
		}
		if (x->op[i].op == ROOST_OP_WRITE || x->op[i].op == ROOST_OP_READ ||
		    x->op[i].op == ROOST_OP_FETCH_ADD)
			continue;
		assert_true(ep_poll_recv(&b, &c));
		assert_int_equal(c.status, NIC_WC_SUCCESS);
		assert_int_equal(c.byte_len, x->op[i].len);
	}
	assert_int_equal(*(uint64_t *)(b.mem + 36864), adds);
	ep_fini(&a);
	ep_fini(&b);
	world_fini(&w);
	return took;
}

static void each_packet_lost(const struct exchange *x, uint32_t psn)
{
	struct loss none = {.victim = UINT32_MAX};
	uint64_t clean = carry_out(x, &none, psn);

	assert_in_range(clean, 2 * DELAY, 20 * DELAY);
	for (unsigned i = 0; i < none.seen; i++) {
		struct loss l = {.victim = i};
		uint64_t took = carry_out(x, &l, psn);

		if (took <= clean + MAX_COST)
			continue;
		print_error("%s: without packet %u (%s, PSN %u) it takes %llu us, not %llu\n",
			    x->name, i, pkt_ops[l.opcode].name, l.psn,
			    (unsigned long long)took / 1000, (unsigned long long)clean / 1000);
		fail();
	}
}

static void any_packet(void **state)
{
	for (unsigned i = 0; i < sizeof(exchanges) / sizeof(exchanges[0]); i++) {
		each_packet_lost(&exchanges[i], 100);
		each_packet_lost(&exchanges[i], 0xfffffe);
	}
}

/* Each of two packets is lost: the interval of probes doubles, far below the time-out. */
struct pair {
	unsigned seen, first, second;
};

static int lose_pair(void *ctx, const struct pkt_addr *src, const uint8_t *bth, uint32_t len)
{
	struct pair *l = ctx;
	unsigned n = l->seen++;

	return n == l->first || n == l->second;
}

static void any_two_packets(void **state)
{
	for (unsigned first = 0; first < 12; first++)
		for (unsigned second = first + 1; second < 16; second++) {
			struct pair l = {0, first, second};
			struct sim_params sp = {.delay_ns = DELAY};
			struct ep_params p = {.mtu = MTU, .timeout = 20};
			struct roost_cqe c;
			struct world w;
			struct ep a, b;
			struct wr wr;
			uint64_t took;

			world_init(&w, 2, 3, &sp);
			sim_set_filter(w.sim, lose_pair, &l);
			ep_init(&a, &w, 0, &p);
			ep_init(&b, &w, 1, &p);
			ep_connect(&a, &b);
			took = world_now(&w);
			wr = wr_rdma(ROOST_OP_WRITE, &a, 0, 3 * MTU, &b, 0);
			ep_post(&a, &wr);
			wr = wr_rdma(ROOST_OP_READ, &a, 8192, 3 * MTU, &b, 8192);
			ep_post(&a, &wr);
			wr = wr_rdma(ROOST_OP_WRITE, &a, 0, 3 * MTU, &b, 0);
			ep_post(&a, &wr);
			for (int i = 0; i < 3; i++)
				assert_true(ep_wait_send(&a, &c, 60 * SEC));
			took = world_now(&w) - took;
			if (took > 4 * MAX_COST) {
				print_error("without packets %u and %u it takes %llu us\n", first,
					    second, (unsigned long long)took / 1000);
				fail();
			}
			ep_fini(&a);
			ep_fini(&b);
			world_fini(&w);
		}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(any_packet),
		cmocka_unit_test(any_two_packets),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
