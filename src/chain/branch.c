/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * roost/chain.h: conditionals. Each is a NOP that a CAS turns into a WQE:
 *
 *	copy	x to the word op-code | id of `then`: it is a NOP with the id x
 *	CAS	that word: NOP with the id y -> the op-code of `then`
 *	then
 *
 * For an order, MAX or MIN with y comes between the copy and the CAS: max(x, y) == y means x <= y.
 */
#include <errno.h>
#include <string.h>

#include "base/export.h"
#include "roost/chain.h"

static uint32_t broken(const struct roost_chain *c)
{
	if (!c->queue->error)
		c->queue->error = -EINVAL;
	return 0;
}

static void copy(const struct roost_chain *c, struct roost_ref to, struct roost_ref from,
		 uint32_t n)
{
	roost_chain_emit(c, roost_wqe_write(to, from, n));
}

static struct roost_ref scratch(const struct roost_chain *c)
{
	return c->scratch;
}

/*
 * Emits a comparison without the copy of x: `then` has the op-code NOP, and x is in its ctrl
 * already.
 */
static uint32_t compare(const struct roost_chain *c, enum roost_compare cmp, struct roost_operand y,
			struct roost_wqe then)
{
	const struct roost_chain_queue *q = c->queue;
	const bool ordered = cmp != ROOST_EQ, word = y.at.key;
	const uint32_t calc = q->n + (word ? 1u + ordered : 0), cas = calc + ordered, n = cas + 1;
	uint64_t swap = then.ctrl;

	if (word && ordered)
		copy(c, ROOST_FIELD(q, calc, swap_add), y.at, 8);
	if (word)
		copy(c, ROOST_FIELD(q, cas, compare), y.at, 8);
	if (ordered)
		roost_chain_emit(c,
				 roost_wqe_calc(cmp == ROOST_LE ? ROOST_OP_MAX : ROOST_OP_MIN,
						ROOST_FIELD(q, n, ctrl), y.constant, scratch(c)));
	roost_chain_emit(c, roost_wqe_cas(ROOST_FIELD(q, n, ctrl), y.constant, swap, scratch(c)));
	then.ctrl = ROOST_CTRL(ROOST_OP_NOP, 0);
	return roost_chain_emit(c, then);
}

/* Returns whether one copy can write n WQEs from number `at` on. */
static bool is_block(const struct roost_chain_queue *q, uint32_t at, uint32_t n)
{
	return n >= 1 && n <= ROOST_CHAIN_BLOCK &&
	       ((q->first + at) & (q->depth - 1)) + n <= q->depth;
}

ROOST_EXPORT uint32_t roost_chain_if(const struct roost_chain *c, struct roost_ref x,
				     enum roost_compare cmp, struct roost_operand y,
				     struct roost_wqe then)
{
	const bool word = y.at.key, ordered = cmp != ROOST_EQ;
	/* the copies of x and of y, the calculation and the CAS are before `then` */
	const uint32_t n = c->queue->n + 2 + (word ? 1u + ordered : 0) + ordered;

	if (then.flags & ROOST_WQE_INLINE || cmp > ROOST_GE)
		return broken(c);
	copy(c, ROOST_FIELD(c->queue, n, ctrl), x, 8);
	return compare(c, cmp, y, then);
}

ROOST_EXPORT uint32_t roost_chain_if_else(const struct roost_chain *c, struct roost_ref x,
					  enum roost_compare cmp, struct roost_operand y,
					  const struct roost_wqe *then_block,
					  const struct roost_wqe *else_block, uint32_t n)
{
	struct roost_chain_queue *q = c->queue;
	const bool word = y.at.key, ordered = cmp != ROOST_EQ;
	const uint32_t bytes = n * (uint32_t)sizeof(struct roost_wqe);
	/* the copy of the else-block, and roost_chain_if() */
	const uint32_t at = q->n + 1 + 3 + (word ? 1u + ordered : 0) + ordered;
	struct roost_ref block = roost_chain_field(q, at, 0);

	if (!is_block(q, at, n))
		return broken(c);
	copy(c, block, roost_chain_bytes(c, else_block, bytes), bytes);
	roost_chain_if(c, x, cmp, y,
		       roost_wqe_write(block, roost_chain_bytes(c, then_block, bytes), bytes));
	for (uint32_t i = 0; i < n; i++)
		roost_chain_emit(c, roost_wqe_nop());
	return at;
}

ROOST_EXPORT uint32_t roost_chain_if_equal64(const struct roost_chain *c, struct roost_ref x,
					     uint64_t y, struct roost_wqe then)
{
	struct roost_chain_queue *q = c->queue;
	/* four copies, a CAS of the high part, the CAS that it makes, `then` */
	const uint32_t second = q->n + 5, n = second + 1;
	const struct roost_ref zero = roost_chain_word(c, 0);
	struct roost_wqe low;

	if (then.flags & ROOST_WQE_INLINE)
		return broken(c);
	low = roost_wqe_cas(ROOST_FIELD(q, n, ctrl), ROOST_OPERAND(y), then.ctrl, scratch(c));
	copy(c, ROOST_FIELD(q, n, ctrl), zero, 8);
	copy(c, roost_chain_field(q, n, 2), x, 6);
	copy(c, ROOST_FIELD(q, second, ctrl), zero, 8);
	copy(c, roost_chain_field(q, second, 2), roost_ref_at(x, 6), 2);
	roost_chain_emit(c, roost_wqe_cas(ROOST_FIELD(q, second, ctrl), ROOST_OPERAND(y >> 48),
					  low.ctrl, scratch(c)));
	low.ctrl = ROOST_CTRL(ROOST_OP_NOP, 0);
	roost_chain_emit(c, low);
	then.ctrl = ROOST_CTRL(ROOST_OP_NOP, 0);
	return roost_chain_emit(c, then);
}

ROOST_EXPORT uint32_t roost_chain_switch(const struct roost_chain *c, struct roost_ref x,
					 const uint64_t *values, const struct roost_wqe *blocks,
					 uint32_t cases)
{
	struct roost_chain_queue *q = c->queue;
	const uint32_t at = q->n + 1 + 3 * cases, bytes = sizeof(struct roost_wqe);
	struct roost_ref block = roost_chain_field(q, at, 0);

	copy(c, block, roost_chain_bytes(c, &blocks[cases], bytes), bytes);
	for (uint32_t i = 0; i < cases && !q->error; i++)
		roost_chain_if(
			c, x, ROOST_EQ, roost_constant(values[i]),
			roost_wqe_write(block, roost_chain_bytes(c, &blocks[i], bytes), bytes));
	return roost_chain_emit(c, roost_wqe_nop());
}
