/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The assembler: the lines of a queue. The constructs are those of roost/chain.h, each with one
 * macro:
 *
 *	if X == Y: INSTRUCTION			also <=, >=; Y is a value or a location
 *	if X == Y: / ... / else / ... / end	blocks of the same length
 *	if64 X == VALUE: INSTRUCTION
 *	switch X: / case VALUE: INSTRUCTION / default: INSTRUCTION / end
 *	break if X == Y
 *	until X >= Y [: INSTRUCTION]		the end of a recycled loop
 *	forever					the end of a recycled loop that has none
 *	restart QUEUE				starts a recycled loop, for the first time or again
 *	call QUEUE {, FROM -> TO, LEN}
 *	return					the end of a function
 */
#include <errno.h>
#include <string.h>

#include "chainasm/asm.h"

#define MAX_CASES 64

bool asm_constants(struct asm_state *s)
{
	if (s->section != ASM_QUEUE)
		return asm_fail(s, "outside of a queue, name the location of the old value");
	if (s->constants == -1 && s->second)
		return asm_fail(s, "out of memory");
	if (!s->data.n)
		roost_chain_word(&s->chain, 0);
	s->constants = s->constants == -1 ? -2 : s->constants;
	s->chain.scratch = s->data.at;
	return asm_emitted(s);
}

bool asm_emitted(struct asm_state *s)
{
	switch (s->queue.error) {
	case 0:
		return true;
	case -ENOSPC:
		return asm_fail(s, "the queue %s has no space: depth=%u",
				s->p->queue[s->index].name, s->queue.depth);
	default:
		return asm_fail(s, "this is too long, or goes round the end of the ring");
	}
}

static bool emit(struct asm_state *s, const struct asm_wqe *w)
{
	struct roost_chain_queue *q = &s->queue;

	if (w->len > q->stride)
		return asm_fail(s, "the WQE is longer than those of the queue: it needs sges=%u",
				(w->len - ROOST_WQE_SGE_OFFSET) / 16);
	roost_chain_emit(&s->chain, w->w);
	if (!asm_emitted(s))
		return false;
	if (w->len > sizeof(w->w))
		memcpy((uint8_t *)q->image + (size_t)(q->n - 1) * q->stride + sizeof(w->w),
		       w->bytes + sizeof(w->w), w->len - sizeof(w->w));
	return true;
}

static bool construct_ok(struct asm_state *s)
{
	if (s->queue.stride != sizeof(struct roost_wqe))
		return asm_fail(s, "constructs need a queue of sges=1");
	return asm_constants(s);
}

static bool comparison(struct asm_state *s, enum roost_compare *cmp)
{
	static const char *const names[] = {"==", "<=", ">="};

	for (int i = 0; i < 3; i++)
		if (asm_take(s, names[i])) {
			*cmp = (enum roost_compare)i;
			return true;
		}
	return asm_fail(s, "==, <= or >= is missing");
}

struct condition {
	struct roost_ref x;
	enum roost_compare cmp;
	struct roost_operand y;
};

static bool condition(struct asm_state *s, struct condition *c)
{
	return asm_ref(s, &c->x) && comparison(s, &c->cmp) && asm_operand(s, &c->y);
}

/* Parses an instruction of 64 bytes without inline data. */
static bool simple(struct asm_state *s, struct roost_wqe *w)
{
	struct asm_wqe full;

	if (!asm_instruction(s, &full) || !asm_end(s))
		return false;
	if (full.len != sizeof(*w) || full.w.flags & ROOST_WQE_INLINE)
		return asm_fail(s, "inside of a construct, a WQE has one piece, and none inside");
	*w = full.w;
	return true;
}

/* Advances to the next line that is not empty. */
static bool inner_line(struct asm_state *s)
{
	while (asm_next_line(s))
		if (asm_peek(s))
			return true;
	return asm_fail(s, "'end' is missing");
}

static bool if_blocks(struct asm_state *s, const struct condition *c)
{
	struct roost_wqe block[2][ROOST_CHAIN_BLOCK];
	unsigned n[2] = {0, 0}, in = 0;

	memset(block, 0, sizeof(block));
	for (;;) {
		if (!inner_line(s))
			return false;
		if (asm_take(s, "end"))
			break;
		if (asm_take(s, "else")) {
			if (in++)
				return asm_fail(s, "a second 'else'");
			if (!asm_end(s))
				return false;
			continue;
		}
		if (n[in] == ROOST_CHAIN_BLOCK)
			return asm_fail(s, "a block has at most %d WQEs", ROOST_CHAIN_BLOCK);
		if (!simple(s, &block[in][n[in]]))
			return false;
		n[in]++;
	}
	if (n[1] > n[0])
		n[0] = n[1]; /* the rest are NOPs */
	if (!n[0])
		return asm_fail(s, "the block is empty");
	roost_chain_if_else(&s->chain, c->x, c->cmp, c->y, block[0], block[1], n[0]);
	return asm_end(s);
}

static bool if_line(struct asm_state *s)
{
	struct condition c;
	struct roost_wqe w;

	if (!condition(s, &c) || !asm_want(s, ":"))
		return false;
	if (!asm_peek(s))
		return if_blocks(s, &c);
	if (!simple(s, &w))
		return false;
	roost_chain_if(&s->chain, c.x, c.cmp, c.y, w);
	return true;
}

static bool if64_line(struct asm_state *s)
{
	struct roost_ref x;
	struct roost_wqe w;
	uint64_t y;

	if (!asm_ref(s, &x) || !asm_want(s, "==") || !asm_value(s, &y) || !asm_want(s, ":") ||
	    !simple(s, &w))
		return false;
	roost_chain_if_equal64(&s->chain, x, y, w);
	return true;
}

static bool switch_lines(struct asm_state *s)
{
	struct roost_wqe blocks[MAX_CASES + 1];
	uint64_t values[MAX_CASES];
	bool has_default = false;
	struct roost_ref x;
	uint32_t n = 0;

	memset(blocks, 0, sizeof(blocks));
	if (!asm_ref(s, &x) || !asm_want(s, ":") || !asm_end(s))
		return false;
	for (;;) {
		if (!inner_line(s))
			return false;
		if (asm_take(s, "end"))
			break;
		if (has_default)
			return asm_fail(s, "'end' is missing behind 'default'");
		if (asm_take(s, "default")) {
			has_default = true;
			if (!asm_want(s, ":") || !simple(s, &blocks[n]))
				return false;
			continue;
		}
		if (n == MAX_CASES)
			return asm_fail(s, "more than %d cases", MAX_CASES);
		if (!asm_want(s, "case") || !asm_value(s, &values[n]) || !asm_want(s, ":") ||
		    !simple(s, &blocks[n]))
			return false;
		if (values[n] >> 48)
			return asm_fail(s, "an operand has at most 48 bits");
		n++;
	}
	roost_chain_switch(&s->chain, x, values, blocks, n);
	return asm_end(s);
}

static bool add_stop(struct asm_state *s, uint64_t *count)
{
	if (!count)
		return asm_emitted(s) && asm_fail(s, "out of memory");
	if (s->stops == ASM_STOPS)
		return asm_fail(s, "more than %d breaks and calls", ASM_STOPS);
	s->stop_count[s->stops] = count;
	s->stop_at[s->stops++] = s->queue.n;
	return true;
}

static bool break_line(struct asm_state *s)
{
	struct condition c;

	if (!asm_want(s, "if") || !condition(s, &c))
		return false;
	if (c.cmp != ROOST_EQ)
		return asm_fail(s, "a break compares by ==");
	return add_stop(s, roost_chain_break(&s->chain, c.x, c.y));
}

static bool loop_ok(struct asm_state *s)
{
	return s->depth_given ||
	       asm_fail(s, "the ring is the loop: give the queue a depth=N, the WQEs of a turn");
}

static bool until_line(struct asm_state *s)
{
	struct roost_wqe after = roost_wqe_nop();
	struct condition c;

	if (!loop_ok(s) || !condition(s, &c) || (asm_take(s, ":") && !simple(s, &after)))
		return false;
	roost_chain_loop_end(&s->chain, c.x, c.cmp, c.y, after);
	return true;
}

static bool forever_line(struct asm_state *s)
{
	const struct roost_chain_queue *q = &s->queue;

	if (!loop_ok(s))
		return false;
	while (asm_emitted(s) && q->n < q->depth - 1)
		roost_chain_emit(&s->chain, roost_wqe_nop());
	roost_chain_emit(&s->chain, roost_wqe_enable(ROOST_OP_ENABLE, q->qp_num, q->depth));
	return true;
}

/* Takes a queue as an argument for roost/chain.h. In the first pass it may be unknown. */
static bool other_queue(struct asm_state *s, struct roost_chain_queue *q)
{
	int i;

	*q = (struct roost_chain_queue){.depth = 1, .stride = 64};
	if (!asm_queue_name(s, &i))
		return false;
	if (i >= 0) {
		const struct chain_queue *of = &s->p->queue[i];

		q->depth = of->depth ? of->depth : 1;
		q->stride = of->stride;
		q->qp_num = of->qp_num;
		if (of->region >= 0)
			q->ring = (struct roost_ref){s->p->region[of->region].addr,
						     s->p->region[of->region].key};
	}
	return true;
}

static bool restart_line(struct asm_state *s)
{
	struct roost_chain_queue loop;

	if (!other_queue(s, &loop))
		return false;
	roost_chain_loop_start(&s->chain, &loop);
	return true;
}

static bool call_line(struct asm_state *s)
{
	struct roost_argument args[16];
	struct roost_chain_queue f;
	uint32_t n = 0;
	uint64_t len;

	if (!other_queue(s, &f))
		return false;
	for (; asm_take(s, ","); n++) {
		if (n == 16)
			return asm_fail(s, "more than 16 arguments");
		if (!asm_ref(s, &args[n].from) || !asm_want(s, "->") || !asm_ref(s, &args[n].to) ||
		    !asm_want(s, ",") || !asm_value(s, &len))
			return false;
		args[n].len = (uint32_t)len;
	}
	return add_stop(s, roost_chain_call(&s->chain, &f, args, n));
}

static bool return_line(struct asm_state *s)
{
	if (!loop_ok(s))
		return false;
	roost_chain_function_end(&s->chain);
	return true;
}

static bool receive_line(struct asm_state *s)
{
	struct chain_queue *q = &s->p->queue[s->index];
	uint32_t space = s->second ? q->recvs : CHAIN_MAX_RECEIVES;
	struct asm_wqe w;

	if (!asm_receive(s, &w))
		return false;
	if (w.len > q->recv_stride)
		return asm_fail(s, "the receive is longer than recv_sges=%u allows", q->recv_sges);
	if (q->recv >= space)
		return asm_fail(s, "more than receives=%u", space);
	if (s->second) {
		memcpy(chain_recv_slot(s->p, q, q->recv), w.bytes, w.len);
		q->recv_lines[q->recv] = s->number;
	}
	q->recv++;
	return true;
}

static const struct {
	const char *name;
	bool (*line)(struct asm_state *s);
} constructs[] = {
	{"if", if_line},	   {"if64", if64_line},
	{"switch", switch_lines},  {"break", break_line},
	{"until", until_line},	   {"forever", forever_line},
	{"restart", restart_line}, {"call", call_line},
	{"return", return_line},   {NULL, NULL},
};

bool asm_queue_line(struct asm_state *s)
{
	struct asm_wqe w;

	if (asm_take(s, "recv"))
		return receive_line(s) && asm_end(s);
	for (int i = 0; constructs[i].name; i++)
		if (asm_take(s, constructs[i].name))
			return construct_ok(s) && constructs[i].line(s) && asm_emitted(s) &&
			       asm_end(s);
	return asm_instruction(s, &w) && asm_end(s) && emit(s, &w);
}
