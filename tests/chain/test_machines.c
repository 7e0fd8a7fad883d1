/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Turing machines and rule 110 as recycled loops: the NIC computes, and no program posts. Each
 * result is compared with that of a C program.
 */
#include "automata.h"
#include "machine.h"

static struct machine M, *const m = &M;

#define TAPE 4096

static uint64_t ones_on(struct turing t)
{
	uint64_t n = 0;

	for (unsigned i = 0; i < TAPE; i++)
		n += *machine_word(m, roost_ref_at(t.tape, 8 * i)) != 0;
	return n;
}

/* The busy beavers of two, three and four states, which halt after 6, 21 and 107 steps. */
static void busy_beavers(void **state)
{
	static const struct rule two[] = {{1, 1, 2}, {1, -1, 2}, {1, -1, 1}, {1, 1, 0}};
	static const struct rule three[] = {{1, 1, 2}, {1, 1, 0},  {1, -1, 2},
					    {0, 1, 3}, {1, -1, 3}, {1, -1, 1}};
	static const struct rule four[] = {{1, 1, 2}, {1, -1, 2}, {1, -1, 1}, {0, -1, 3},
					   {1, 1, 0}, {1, -1, 4}, {1, 1, 4},  {0, 1, 1}};
	static const struct {
		const struct rule *rules;
		unsigned states, ones, steps;
	} beavers[] = {{two, 2, 4, 6}, {three, 3, 5, 21}, {four, 4, 13, 107}};

	for (unsigned i = 0; i < 3; i++) {
		struct roost_chain c;
		struct turing t;

		machine_open(m, (uint32_t)-112);
		c = machine_queue(m, 16);
		t = turing_build(&c, beavers[i].rules, beavers[i].states, TAPE, TAPE / 2,
				 roost_wqe_nop());
		machine_post(m, &c);
		machine_go(m, &c, 16);
		assert_int_equal(*machine_word(m, t.steps), beavers[i].steps);
		assert_int_equal(ones_on(t), beavers[i].ones);
		assert_int_equal(machine_executed(m, &c), 16 * beavers[i].steps);
		machine_close(m);
	}
}

/* A machine of five states that runs 47,176,870 steps: the first 20,000. */
static void runs_long(void **state)
{
	static const struct rule five[] = {{1, 1, 2}, {1, -1, 3}, {1, 1, 3},  {1, 1, 2},
					   {1, 1, 4}, {0, -1, 5}, {1, -1, 1}, {1, -1, 4},
					   {1, 1, 0}, {0, -1, 1}};
	static uint8_t tape[TAPE];
	unsigned at = TAPE / 2, s = 0;
	struct roost_chain c;
	uint64_t steps;
	struct turing t;

	machine_open(m, 0);
	c = machine_queue(m, 16);
	t = turing_build(&c, five, 5, TAPE, TAPE / 2, roost_wqe_nop());
	machine_post(m, &c);
	ep_post(&m->starter, &(struct wr){.op = ROOST_OP_ENABLE,
					  .raddr = c.queue->qp_num | ROOST_CHAIN_RELATIVE,
					  .swap_add = 16});
	while (*machine_word(m, t.steps) < 20000)
		world_step(&m->w, world_now(&m->w) + MSEC);
	/* stop it between two turns of the loop */
	ep_modify(&m->ep[0], &(struct nic_qp_attr){.state = NIC_QPS_SQD}, NIC_QPA_STATE);
	while (machine_executed(m, &c) % 16) {
		ep_modify(&m->ep[0], &(struct nic_qp_attr){.state = NIC_QPS_RTS}, NIC_QPA_STATE);
		world_step(&m->w, world_now(&m->w) + MSEC);
		ep_modify(&m->ep[0], &(struct nic_qp_attr){.state = NIC_QPS_SQD}, NIC_QPA_STATE);
	}
	steps = *machine_word(m, t.steps);
	for (uint64_t i = 0; i < steps; i++) {
		const struct rule *r = &five[2 * s + tape[at]];

		tape[at] = r->symbol;
		at += (unsigned)r->move;
		s = r->next - 1u;
	}
	for (unsigned i = 0; i < TAPE; i++)
		if (tape[i] != !!*machine_word(m, roost_ref_at(t.tape, 8 * i)))
			fail_msg("after %llu steps, cell %u", (unsigned long long)steps, i);
	assert_int_equal(*machine_word(m, t.head), t.tape.addr + 8 * at);
	ep_modify(&m->ep[0], &(struct nic_qp_attr){.state = NIC_QPS_RTS}, NIC_QPA_STATE);
	ep_modify(&m->ep[0], &(struct nic_qp_attr){.state = NIC_QPS_RESET}, NIC_QPA_STATE);
	ep_connect_self(&m->ep[0]);
	machine_close(m);
}

/* ---- rule 110 ---- */

#define CELLS 32 /* one byte each, with a dead cell at either end */

static void rule_110(void **state)
{
	const unsigned steps = 500;
	struct roost_ref cells, next, t, u, count;
	uint8_t model[CELLS + 2] = {0}, old[CELLS + 2];
	struct roost_chain c;

	machine_open(m, 0);
	c = machine_queue(m, 64);
	cells = roost_ref_at(roost_chain_bytes(&c, (uint64_t[8]){0}, 64), 8);
	next = roost_chain_bytes(&c, (uint64_t[8]){0}, 64);
	t = roost_chain_word(&c, 0);
	u = roost_chain_word(&c, 0);
	count = roost_chain_word(&c, 0);
	for (unsigned i = 0; i < CELLS; i += 8)
		emit_cells(&c, roost_ref_at(cells, i), roost_ref_at(next, i), t, u);
	copy(&c, cells, next, CELLS);
	calc(&c, ROOST_OP_FETCH_ADD, count, ROOST_OPERAND(1));
	roost_chain_loop_end(&c, count, ROOST_EQ, roost_constant(steps), roost_wqe_nop());
	model[CELLS] = ((uint8_t *)machine_word(m, cells))[CELLS - 1] = 1;
	machine_post(m, &c);
	machine_go(m, &c, 64);
	for (unsigned s = 0; s < steps; s++) {
		memcpy(old, model, sizeof(old));
		for (unsigned i = 1; i <= CELLS; i++)
			model[i] = (old[i] | old[i + 1]) ^ (old[i - 1] & old[i] & old[i + 1]);
	}
	assert_memory_equal(machine_word(m, cells), model + 1, CELLS);
	assert_int_equal(machine_executed(m, &c), 64 * steps);
	machine_close(m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(busy_beavers),
		cmocka_unit_test(runs_long),
		cmocka_unit_test(rule_110),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
