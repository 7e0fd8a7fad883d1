/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Rules of the private op-code of calculations (docs/wire.md), with packets that the test makes for
 * one NIC, and between two NICs over a bad link.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

#include "peer.h"
#include "rule.h"

static struct peer P, *const p = &P;

static const struct row {
	enum roost_op op;
	uint64_t function, at, with, result;
} rows[] = {
	{ROOST_OP_FETCH_ADD, 0, 5, 7, 12},
	{ROOST_OP_MAX, 1, 5, (uint64_t)-7, (uint64_t)-7},
	{ROOST_OP_MIN, 2, 5, (uint64_t)-7, 5},
	{ROOST_OP_MAX_SIGNED, 3, 5, (uint64_t)-7, 5},
	{ROOST_OP_MIN_SIGNED, 4, 5, (uint64_t)-7, (uint64_t)-7},
	{ROOST_OP_AND, 5, 0xff0f, 0x0ff1, 0x0f01},
	{ROOST_OP_OR, 6, 0xff00, 0x0ff1, 0xfff1},
	{ROOST_OP_XOR, 7, 0xff00, 0x0ff1, 0xf0f1},
};
#define ROWS (sizeof(rows) / sizeof(rows[0]))

static struct pkt_make mk_calc(uint32_t psn, uint64_t function, uint64_t operand)
{
	return (struct pkt_make){.opcode = PKT_CALC,
				 .psn = psn,
				 .ackreq = true,
				 .va = (uintptr_t)p->e.mem,
				 .rkey = p->e.key,
				 .swap_add = operand,
				 .compare = function};
}

static void send(struct pkt_make m)
{
	peer_send(p, &m);
}

/* One packet with an AtomicETH: the operand, and the function in the place of the comparand. */
RULE(calc_on_the_wire)
{
	peer_open(p, &(struct ep_params){.calc = true, .psn = s}, 0x1000);
	for (uint32_t i = 1; i < ROWS; i++) {
		const struct got *g;
		uint64_t old = 0;

		peer_post(p, rows[i].op, i, 64, 8);
		g = expect(p, PKT_CALC, s + i - 1);
		assert_int_equal(g->v.va, PEER_VA);
		assert_int_equal(g->v.rkey, PEER_RKEY);
		assert_int_equal(g->v.swap_add, 0x1122334455667788);
		assert_int_equal(g->v.compare, rows[i].function);
		assert_int_equal(g->v.payload_len, 0);
		peer_send(p, &(struct pkt_make){.opcode = PKT_ATOMIC_ACK,
						.syndrome = PKT_AETH_ACK,
						.psn = s + i - 1,
						.msn = i,
						.swap_add = 1000 + i});
		expect_done(p, i, NIC_WC_SUCCESS);
		memcpy(&old, p->e.mem + 64, 8);
		assert_int_equal(old, 1000 + i);
	}
	peer_close(p);
}

RULE(calc_functions)
{
	uint64_t *word;

	peer_open(p, &(struct ep_params){.calc = true}, s);
	word = (uint64_t *)p->e.mem;
	for (uint32_t i = 0; i < ROWS; i++) {
		const struct got *g;

		*word = rows[i].at;
		send(mk_calc(s + i, rows[i].function, rows[i].with));
		g = expect(p, PKT_ATOMIC_ACK, s + i);
		assert_int_equal(g->v.swap_add, rows[i].at);
		assert_int_equal(g->v.msn, i + 1);
		assert_int_equal(*word, rows[i].result);
		assert_int_equal(word[1], 0);
	}
	assert_int_equal(peer_counters(p).rx_atomic_requests, ROWS);
	peer_close(p);
}

/* A duplicate is answered from the saved result, and changes nothing. */
RULE(duplicate_calc)
{
	uint64_t *word;

	peer_open(p, &(struct ep_params){.calc = true, .rd_atomic = 4}, s);
	word = (uint64_t *)p->e.mem;
	for (uint32_t i = 0; i < 4; i++) {
		send(mk_calc(s + i, PKT_CALC_XOR, 1u << i));
		assert_int_equal(expect(p, PKT_ATOMIC_ACK, s + i)->v.swap_add, (1u << i) - 1);
	}
	for (uint32_t i = 0; i < 4; i++)
		for (int k = 0; k < 2; k++) {
			send(mk_calc(s + i, PKT_CALC_XOR, 1u << i));
			assert_int_equal(expect(p, PKT_ATOMIC_ACK, s + i)->v.swap_add,
					 (1u << i) - 1);
		}
	assert_int_equal(*word, 15);
	assert_int_equal(peer_counters(p).rx_atomic_requests, 4);
	assert_int_equal(peer_counters(p).duplicate_request, 8);
	peer_close(p);
}

/* An unknown function, an address that is not aligned, a missing right. */
RULE(calc_refused)
{
	static const uint64_t functions[] = {PKT_CALCS, 255, 1ull << 32, UINT64_MAX};

	for (unsigned i = 0; i < 7; i++) {
		struct pkt_make m = mk_calc(s, 0, 1);
		uint8_t nak = PKT_NAK_INVALID_REQ;

		peer_open(p, &(struct ep_params){.calc = true, .access = i == 6 ? 7 : 0}, s);
		m = mk_calc(s, i < 4 ? functions[i] : PKT_CALC_OR, 1);
		if (i == 4)
			m.va += 4;
		if (i == 5) {
			m.rkey ^= 0x100;
			nak = PKT_NAK_REM_ACCESS;
		}
		send(m);
		expect_ack(p, nak, s);
		for (uint32_t k = 0; k < 16; k++)
			assert_int_equal(p->e.mem[k], 0);
		peer_close(p);
	}
}

/* Without an agreement of the ends the requester sends nothing, and the responder refuses. */
RULE(calc_not_agreed)
{
	for (uint32_t i = 1; i < ROWS; i++) {
		peer_open(p, &(struct ep_params){.psn = s}, 0x1000);
		peer_post(p, rows[i].op, 5, 64, 8);
		expect_quiet(p, MSEC);
		expect_done(p, 5, NIC_WC_LOC_QP_OP_ERR);
		peer_close(p);
		peer_open(p, NULL, s);
		send(mk_calc(s, rows[i].function, 1));
		expect_ack(p, PKT_NAK_INVALID_REQ, s);
		assert_int_equal(p->e.mem[0], 0);
		peer_close(p);
	}
}

/* Between two NICs each calculation has its effect once, also on a bad link. */
static void once_over_a_bad_link(void **state)
{
	const struct sim_params link = {.delay_ns = 5000, .loss = 0.2, .dup = 0.1, .reorder = 0.1};
	static struct world w;
	static struct ep a, b;
	uint64_t model = 3, sum = 0;

	world_init(&w, 2, 11, &link);
	ep_init(&a, &w, 0, &(struct ep_params){.calc = true, .depth = 256});
	ep_init(&b, &w, 1, &(struct ep_params){.calc = true});
	ep_connect(&a, &b);
	*(uint64_t *)b.mem = model;
	for (uint32_t i = 0; i < 200; i++) {
		const enum roost_op op = i % 3 == 0   ? ROOST_OP_XOR
					 : i % 3 == 1 ? ROOST_OP_FETCH_ADD
						      : ROOST_OP_MAX_SIGNED;
		struct wr wr = wr_rdma(op, &a, 8 * i, 8, &b, 0);

		wr.swap_add = i * 0x9e3779b97f4a7c15;
		ep_post(&a, &wr);
	}
	world_run(&w, world_now(&w) + 1000 * SEC);
	for (uint32_t i = 0; i < 200; i++) {
		const uint64_t n = i * 0x9e3779b97f4a7c15;

		assert_int_equal(((uint64_t *)a.mem)[i], model);
		model = i % 3 == 0		      ? model ^ n
			: i % 3 == 1		      ? model + n
			: (int64_t)model > (int64_t)n ? model
						      : n;
		sum += model;
	}
	assert_int_equal(*(uint64_t *)b.mem, model);
	assert_true(sum);
	ep_fini(&a);
	ep_fini(&b);
	world_fini(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(calc_on_the_wire), cmocka_unit_test(calc_functions),
		cmocka_unit_test(duplicate_calc),   cmocka_unit_test(calc_refused),
		cmocka_unit_test(calc_not_agreed),  cmocka_unit_test(once_over_a_bad_link),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
