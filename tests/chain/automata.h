/* SPDX-License-Identifier: BSD-2-Clause */
/* Turing machines and rule 110 as bodies of recycled loops. */
#ifndef ROOST_TESTS_CHAIN_AUTOMATA_H
#define ROOST_TESTS_CHAIN_AUTOMATA_H

#include <string.h>

#include "roost/chain.h"

static inline void emit(const struct roost_chain *c, struct roost_wqe w)
{
	roost_chain_emit(c, w);
}

static inline void copy(const struct roost_chain *c, struct roost_ref to, struct roost_ref from,
			uint32_t n)
{
	emit(c, roost_wqe_write(to, from, n));
}

static inline void calc(const struct roost_chain *c, enum roost_op op, struct roost_ref at,
			uint64_t n)
{
	emit(c, roost_wqe_calc(op, at, n, c->scratch));
}

/* The place of a field of the n-th WQE from the next one on. */
#define AHEAD(c, k, field) ROOST_FIELD((c)->queue, (c)->queue->n + (k), field)

/* ---- Turing machines ---- */

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
 * The head starts at cell `start` of a tape whose words are 0. `after` follows the last step.
 */
static inline struct turing turing_build(struct roost_chain *c, const struct rule *rules,
					 unsigned states, unsigned cells, unsigned start,
					 struct roost_wqe after)
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
	memcpy((char *)c->data->image + (table.addr - c->data->at.addr), rows,
	       states * 2 * sizeof(rows[0]));
	t.tape = roost_chain_word(c, 0);
	for (unsigned n = 1; n < cells; n++)
		roost_chain_word(c, 0);
	t.head = roost_chain_word(c, t.tape.addr + start * 8);
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
			     roost_constant(1), after);
	return t;
}

/* ---- rule 110 ---- */

/*
 * new = (cell | right) ^ (left & cell & right), for eight cells at a time. Neighbours are the same
 * bytes at the next address: copies need no alignment.
 */
static inline void emit_cells(struct roost_chain *c, struct roost_ref from, struct roost_ref to,
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

#endif
