/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * `roost chain costs`: the WQEs of the constructs of roost/chain.h, beside table 2 of RedN. Each
 * construct is emitted and its WQEs are counted. A WQE of the program, which a construct executes
 * or not, is no cost.
 */
#include <stdio.h>
#include <string.h>

#include "cli/chain/chain.h"
#include "cli/commands.h"
#include "roost/chain.h"

#define DEPTH 64
#define BYTES 4096

/* A queue with its image. */
struct queue {
	struct roost_wqe wqe[DEPTH];
	struct roost_chain_queue queue;
};

struct costs {
	struct queue main, other; /* `other`: the function of a call */
	uint64_t bytes[BYTES / 8];
	struct roost_chain_data data;
	struct roost_chain c, function;
	struct roost_ref x, y;
	struct roost_wqe wqe; /* of the program */
};

/* WQEs of the program, from number `at` on. */
struct program_wqes {
	uint32_t at, n;
};

static void open_queue(struct queue *q, uint32_t key, uint32_t depth)
{
	q->queue = (struct roost_chain_queue){.ring = {(uintptr_t)q->wqe, key},
					      .qp_num = key,
					      .depth = depth,
					      .stride = sizeof(struct roost_wqe),
					      .image = q->wqe};
}

static void open_costs(struct costs *c, uint32_t depth)
{
	memset(c, 0, sizeof(*c));
	open_queue(&c->main, 1, depth);
	open_queue(&c->other, 2, 4);
	c->data = (struct roost_chain_data){
		.at = {(uintptr_t)c->bytes, 3}, .image = c->bytes, .size = sizeof(c->bytes)};
	c->c = (struct roost_chain){&c->main.queue, &c->data, {0, 0}};
	c->c.scratch = roost_chain_word(&c->c, 0);
	c->function = (struct roost_chain){&c->other.queue, &c->data, c->c.scratch};
	c->x = roost_chain_word(&c->c, 0);
	c->y = roost_chain_word(&c->c, 0);
	c->wqe = roost_wqe_write(c->x, c->y, 8);
}

/* ---- constructs. Each returns its WQEs that are the program's ---- */

static struct program_wqes condition(struct costs *c, enum roost_compare cmp,
				     struct roost_operand y)
{
	return (struct program_wqes){roost_chain_if(&c->c, c->x, cmp, y, c->wqe), 1};
}

static struct program_wqes equal(struct costs *c)
{
	return condition(c, ROOST_EQ, roost_constant(7));
}

static struct program_wqes equal_word(struct costs *c)
{
	return condition(c, ROOST_EQ, roost_word(c->y));
}

static struct program_wqes less(struct costs *c)
{
	return condition(c, ROOST_LE, roost_constant(7));
}

static struct program_wqes less_word(struct costs *c)
{
	return condition(c, ROOST_LE, roost_word(c->y));
}

static struct program_wqes if_else(struct costs *c)
{
	return (struct program_wqes){
		roost_chain_if_else(&c->c, c->x, ROOST_EQ, roost_constant(7), &c->wqe, &c->wqe, 1),
		1};
}

static struct program_wqes equal64(struct costs *c)
{
	return (struct program_wqes){roost_chain_if_equal64(&c->c, c->x, 7, c->wqe), 1};
}

static struct program_wqes switch3(struct costs *c)
{
	const uint64_t values[] = {1, 2, 3};
	const struct roost_wqe blocks[] = {c->wqe, c->wqe, c->wqe, c->wqe};

	return (struct program_wqes){roost_chain_switch(&c->c, c->x, values, blocks, 3), 1};
}

static struct program_wqes unrolled(struct costs *c)
{
	roost_chain_break(&c->c, c->x, roost_constant(7));
	return (struct program_wqes){0, 0};
}

/* The WQE that the condition enables is executed in the last turn only. */
static struct program_wqes recycled(struct costs *c)
{
	roost_chain_loop_end(&c->c, c->x, ROOST_EQ, roost_constant(7), c->wqe);
	return (struct program_wqes){2, 1};
}

static struct program_wqes call2(struct costs *c)
{
	const struct roost_argument args[] = {{c->x, ROOST_FIELD(&c->other.queue, 0, swap_add), 8},
					      {c->y, ROOST_FIELD(&c->other.queue, 1, swap_add), 8}};

	roost_chain_call(&c->c, &c->other.queue, args, 2);
	/* the call writes this one over the last WQE of the function */
	roost_chain_emit(&c->c, roost_wqe_enable(ROOST_OP_ENABLE, 1, 1));
	return (struct program_wqes){0, 0};
}

#define REDN_IF	      "1 copy, 1 atomic, 3 WAIT or ENABLE"
#define REDN_RECYCLED "3 copies, 2 atomics, 4 WAIT or ENABLE"

static const struct {
	const char *name;
	struct program_wqes (*emit)(struct costs *c);
	const char *redn;
} rows[] = {
	{"if x == constant", equal, REDN_IF},
	{"if x == y", equal_word, "-"},
	{"if x <= constant, if x >= constant", less, "-"},
	{"if x <= y, if x >= y", less_word, "-"},
	{"if x == constant, else", if_else, "-"},
	{"if x == constant of 64 bits", equal64, "-"},
	{"switch with 3 cases", switch3, "-"},
	{"turn of an unrolled loop with a break", unrolled, REDN_IF},
	{"turn of a recycled loop", recycled, REDN_RECYCLED},
	{"call with 2 arguments", call2, "-"},
};

/* ---- counting ---- */

struct counts {
	unsigned copies, atomics, enables;
};

static bool is_atomic(uint16_t op)
{
	return op == ROOST_OP_CMP_SWAP || op == ROOST_OP_FETCH_ADD ||
	       (op >= ROOST_OP_MAX && op <= ROOST_OP_XOR);
}

/* A NOP with an address is a copy or an atomic that another WQE may enable. Others are fillers. */
static void count(struct counts *n, const struct roost_wqe *w)
{
	const uint16_t op = ROOST_CTRL_OP(w->ctrl);

	if (op == ROOST_OP_NOP && !w->raddr)
		return;
	if (op >= ROOST_OP_WAIT && op <= ROOST_OP_RECV_ENABLE)
		n->enables++;
	else if (is_atomic(op) || (op == ROOST_OP_NOP && w->swap_add))
		n->atomics++;
	else
		n->copies++;
}

int chain_costs(const struct opt_command *cmd)
{
	static struct costs c;

	printf("%-38s %6s %8s %15s %5s   %s\n", "construct", "copies", "atomics", "WAIT or ENABLE",
	       "WQEs", "RedN, table 2");
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct counts n = {0, 0, 0};
		struct program_wqes own;

		open_costs(&c, rows[i].emit == recycled ? 8 : DEPTH);
		own = rows[i].emit(&c);
		if (c.c.queue->error)
			return opt_failed(cmd, "can't emit: %s", rows[i].name);
		for (uint32_t k = 0; k < c.c.queue->n; k++)
			if (k - own.at >= own.n)
				count(&n, &c.main.wqe[k]);
		printf("%-38s %6u %8u %15u %5u   %s\n", rows[i].name, n.copies, n.atomics,
		       n.enables, n.copies + n.atomics + n.enables, rows[i].redn);
	}
	return CLI_OK;
}
