/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * x86's mov, which alone is Turing complete, as chains: immediate, direct, indirect and indexed,
 * loads and stores. A register is a word of the data. Each chain runs in its ring again and again,
 * with other registers each time, and is compared with a C program.
 */
#include "../common/counts.h"
#include "automata.h"
#include "machine.h"

#define WORDS 16u

static struct machine M, *const m = &M;

/* The registers, and the memory that their addresses name. */
struct cpu {
	struct roost_ref a, b, i, memory;
};

/* Sets the address of the WQE `ahead` from the next one on: base, plus a register or a constant. */
static void address(struct roost_chain *c, uint32_t ahead, size_t field, struct roost_ref base,
		    const struct roost_ref *index, uint64_t constant)
{
	const uint32_t n = c->queue->n + ahead;
	const struct roost_ref at = roost_chain_field(c->queue, n, field);

	copy(c, at, base, 8);
	if (index)
		copy(c, AHEAD(c, 1, swap_add), *index, 8);
	if (index || constant)
		calc(c, ROOST_OP_FETCH_ADD, at, constant);
	assert_int_equal(c->queue->n, n);
}

#define LOAD  offsetof(struct roost_wqe, sge[0].addr)
#define STORE offsetof(struct roost_wqe, raddr)

/* mov a, 77 */
static void immediate(struct roost_chain *c, const struct cpu *r)
{
	copy(c, r->a, roost_chain_word(c, 77), 8);
}

/* mov a, i */
static void direct(struct roost_chain *c, const struct cpu *r)
{
	copy(c, r->a, r->i, 8);
}

/* mov a, [b] */
static void indirect_load(struct roost_chain *c, const struct cpu *r)
{
	address(c, 1, LOAD, r->b, NULL, 0);
	copy(c, r->a, r->memory, 8);
}

/* mov a, [b + 24] */
static void displaced_load(struct roost_chain *c, const struct cpu *r)
{
	address(c, 2, LOAD, r->b, NULL, 24);
	copy(c, r->a, r->memory, 8);
}

/* mov a, [b + i] */
static void indexed_load(struct roost_chain *c, const struct cpu *r)
{
	address(c, 3, LOAD, r->b, &r->i, 0);
	copy(c, r->a, r->memory, 8);
}

/* mov [b], 77 */
static void immediate_store(struct roost_chain *c, const struct cpu *r)
{
	address(c, 1, STORE, r->b, NULL, 0);
	copy(c, r->memory, roost_chain_word(c, 77), 8);
}

/* mov [b], a */
static void indirect_store(struct roost_chain *c, const struct cpu *r)
{
	address(c, 1, STORE, r->b, NULL, 0);
	copy(c, r->memory, r->a, 8);
}

/* mov [b + 24], a */
static void displaced_store(struct roost_chain *c, const struct cpu *r)
{
	address(c, 2, STORE, r->b, NULL, 24);
	copy(c, r->memory, r->a, 8);
}

/* mov [b + i], a */
static void indexed_store(struct roost_chain *c, const struct cpu *r)
{
	address(c, 3, STORE, r->b, &r->i, 0);
	copy(c, r->memory, r->a, 8);
}

static const struct {
	void (*emit)(struct roost_chain *c, const struct cpu *r);
	uint32_t wqes;
	enum { IMMEDIATE, DIRECT, FROM_MEMORY, TO_MEMORY, IMMEDIATE_TO_MEMORY } kind;
	bool indexed;
	uint32_t displacement;
} forms[] = {
	{immediate, 1, IMMEDIATE, false, 0},
	{direct, 1, DIRECT, false, 0},
	{indirect_load, 2, FROM_MEMORY, false, 0},
	{displaced_load, 3, FROM_MEMORY, false, 24},
	{indexed_load, 4, FROM_MEMORY, true, 0},
	{immediate_store, 2, IMMEDIATE_TO_MEMORY, false, 0},
	{indirect_store, 2, TO_MEMORY, false, 0},
	{displaced_store, 3, TO_MEMORY, false, 24},
	{indexed_store, 4, TO_MEMORY, true, 0},
};

static void movs(void **state)
{
	for (size_t f = 0; f < sizeof(forms) / sizeof(forms[0]); f++) {
		uint64_t model[WORDS], *memory, *target, a;
		struct roost_chain c;
		struct cpu r;

		machine_open(m, first);
		c = machine_queue(m, 4);
		r.memory = roost_chain_bytes(&c, (uint64_t[WORDS]){0}, sizeof(model));
		r.a = roost_chain_word(&c, 0);
		r.b = roost_chain_word(&c, 0);
		r.i = roost_chain_word(&c, 0);
		forms[f].emit(&c, &r);
		assert_int_equal(c.queue->n, forms[f].wqes);
		machine_post(m, &c);
		memory = machine_word(m, r.memory);
		for (uint64_t k = 0; k < WORDS; k++)
			model[k] = memory[k] = 1000 + k;
		for (uint64_t turn = 0; turn < 20; turn++) {
			const uint64_t b = turn * 5 % 8, i = turn * 3 % 8 * 8;
			const uint64_t at =
				b + (forms[f].indexed ? i / 8 : 0) + forms[f].displacement / 8;

			*machine_word(m, r.a) = a = 5000 + turn;
			*machine_word(m, r.b) = r.memory.addr + 8 * b;
			*machine_word(m, r.i) = i;
			target = forms[f].kind <= FROM_MEMORY ? &a : &model[at];
			switch (forms[f].kind) {
			case IMMEDIATE:
			case IMMEDIATE_TO_MEMORY:
				*target = 77;
				break;
			case DIRECT:
				*target = i;
				break;
			case FROM_MEMORY:
				*target = model[at];
				break;
			case TO_MEMORY:
				*target = a;
				break;
			}
			machine_go(m, &c, 4);
			assert_int_equal(*machine_word(m, r.a), a);
			assert_int_equal(*machine_word(m, r.b), r.memory.addr + 8 * b);
			assert_int_equal(*machine_word(m, r.i), i);
			assert_memory_equal(memory, model, sizeof(model));
		}
		machine_close(m);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(movs),
	};

	return run_from_both_counts(tests);
}
