/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Turing machines and rule 110 as recycled loops: the NIC computes, and no program posts. Each
 * result is compared with that of a C program.
 */
#include "machine.h"

static struct machine M, *const m = &M;

static void emit(const struct roost_chain *c, struct roost_wqe w)
{
	roost_chain_emit(c, w);
}

static void copy(const struct roost_chain *c, struct roost_ref to, struct roost_ref from,
		 uint32_t n)
{
	emit(c, roost_wqe_write(to, from, n));
}

static void calc(const struct roost_chain *c, enum roost_op op, struct roost_ref at, uint64_t n)
{
	emit(c, roost_wqe_calc(op, at, n, c->scratch));
}

/* The place of a field of the n-th WQE from the next one on. */
#define AHEAD(c, k, field) ROOST_FIELD((c)->queue, (c)->queue->n + (k), field)

/* ---- Turing machines ---- */

#define TAPE 4096

/* A row of the table, for a state and a symbol. */
struct row {
	uint64_t symbol; /* 0, or the size of a row: the offset of the row for the symbol 1 */
	uint64_t move;	 /* 8 or -8 */
	uint64_t next;	 /* address of the two rows of the next state */
	uint64_t halt;	 /* an operand: 1 */
};

/* symbol, direction, next state (0: halt), for each state and symbol read */
struct rule {
	uint8_t symbol;
	int8_t move;
	uint8_t next;
};

struct turing {
	struct roost_ref head, state, steps, row, tape;
};

/*
 * One step, in one turn of a ring of 16:
 *	symbol = *head; row = table[state][symbol]; *head = row.symbol; head += row.move;
 *	state = row.next; loop while !row.halt
 */
static struct turing build(struct roost_chain *c, const struct rule *rules, unsigned states)
{
	struct row rows[2 * 6] = {{0}};
	struct turing t;
	struct roost_ref table = roost_chain_bytes(c, rows, states * 2 * sizeof(rows[0]));

	for (unsigned i = 0; i < 2 * states; i++)
		rows[i] = (struct row){
			.symbol = rules[i].symbol ? sizeof(struct row) : 0,
			.move = (uint64_t)(8 * (int64_t)rules[i].move),
			.next = table.addr +
				(rules[i].next ? rules[i].next - 1u : 0) * 2 * sizeof(struct row),
			.halt = ROOST_OPERAND(rules[i].next == 0),
		};
	memcpy(machine_word(m, table), rows, states * 2 * sizeof(rows[0]));
	t.tape = roost_chain_bytes(c, (uint64_t[TAPE]){0}, TAPE * 8);
	t.head = roost_chain_word(c, t.tape.addr + TAPE / 2 * 8);
	t.state = roost_chain_word(c, table.addr);
	t.steps = roost_chain_word(c, 0);
	t.row = roost_chain_bytes(c, rows, sizeof(rows[0]));

	copy(c, AHEAD(c, 1, sge[0].addr), t.head, 8);
	copy(c, AHEAD(c, 2, swap_add), t.tape, 8); /* *head */
	copy(c, AHEAD(c, 2, sge[0].addr), t.state, 8);
	calc(c, ROOST_OP_FETCH_ADD, AHEAD(c, 1, sge[0].addr), 0);
	copy(c, t.row, table, sizeof(rows[0])); /* *row */
	copy(c, AHEAD(c, 1, raddr), t.head, 8);
	copy(c, t.tape, t.row, 8); /* *head */
	copy(c, AHEAD(c, 1, swap_add), roost_ref_at(t.row, offsetof(struct row, move)), 8);
	calc(c, ROOST_OP_FETCH_ADD, t.head, 0);
	copy(c, t.state, roost_ref_at(t.row, offsetof(struct row, next)), 8);
	calc(c, ROOST_OP_FETCH_ADD, t.steps, 1);
	roost_chain_loop_end(c, roost_ref_at(t.row, offsetof(struct row, halt)), ROOST_EQ,
			     roost_constant(1), roost_wqe_nop());
	return t;
}

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
		t = build(&c, beavers[i].rules, beavers[i].states);
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
	t = build(&c, five, 5);
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

/*
 * new = (cell | right) ^ (left & cell & right), for eight cells at a time. Neighbours are the same
 * bytes at the next address: copies need no alignment.
 */
static void emit_cells(struct roost_chain *c, struct roost_ref from, struct roost_ref to,
		       struct roost_ref t, struct roost_ref u)
{
	struct roost_ref left = roost_ref_at(from, (uint64_t)-1), right = roost_ref_at(from, 1);

	copy(c, t, from, 8);
	copy(c, AHEAD(c, 1, swap_add), right, 8);
	calc(c, ROOST_OP_OR, t, 0);
	copy(c, u, from, 8);
	copy(c, AHEAD(c, 1, swap_add), left, 8);
	calc(c, ROOST_OP_AND, u, 0);
	copy(c, AHEAD(c, 1, swap_add), right, 8);
	calc(c, ROOST_OP_AND, u, 0);
	copy(c, AHEAD(c, 1, swap_add), u, 8);
	calc(c, ROOST_OP_XOR, t, 0);
	copy(c, to, t, 8);
}

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
