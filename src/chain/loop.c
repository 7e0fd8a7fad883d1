/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * roost/chain.h: loops and functions. They stop and start queues by ENABLEs that are rewritten:
 *
 *	break		an ENABLE of the queue itself; a CAS makes it a NOP
 *	loop		the last WQE of the ring enables one turn more; the WQE `after` is copied
 *			over it
 *	function	the last WQE of the ring is written by the caller: it enables the caller
 */
#include <errno.h>
#include <stddef.h>

#include "base/export.h"
#include "roost/chain.h"

#define WQE sizeof(struct roost_wqe)

/* Emits NOPs until WQE n is the next. */
static void fill(const struct roost_chain *c, uint32_t n)
{
	if (c->queue->n > n && !c->queue->error)
		c->queue->error = -ENOSPC;
	while (!c->queue->error && c->queue->n < n)
		roost_chain_emit(c, roost_wqe_nop());
}

static struct roost_wqe enable(const struct roost_chain_queue *q, uint32_t count)
{
	return roost_wqe_enable(ROOST_OP_ENABLE, q->qp_num, count);
}

ROOST_EXPORT uint64_t *roost_chain_break(const struct roost_chain *c, struct roost_ref x,
					 struct roost_operand y)
{
	struct roost_chain_queue *q = c->queue;
	const bool word = y.at.key;
	const uint32_t cas = q->n + 1 + word, n = cas + 1;
	uint32_t last;

	/* the copy has 6 bytes: the op-code stays ENABLE */
	roost_chain_emit(c, roost_wqe_write(roost_chain_field(q, n, 2), roost_ref_at(x, 2), 6));
	if (word)
		roost_chain_emit(c, roost_wqe_write(roost_ref_at(ROOST_FIELD(q, cas, compare), 2),
						    roost_ref_at(y.at, 2), 6));
	roost_chain_emit(c, roost_wqe_cas(ROOST_FIELD(q, n, ctrl), y.constant | ROOST_OP_ENABLE,
					  ROOST_CTRL(ROOST_OP_NOP, 0), c->scratch));
	last = roost_chain_emit(c, enable(q, 0));
	return q->error ? NULL : &q->image[last].swap_add;
}

ROOST_EXPORT void roost_chain_loop_end(const struct roost_chain *c, struct roost_ref x,
				       enum roost_compare cmp, struct roost_operand y,
				       struct roost_wqe after)
{
	struct roost_chain_queue *q = c->queue;
	const uint32_t last = q->depth - 1;

	roost_chain_if(c, x, cmp, y,
		       roost_wqe_write(roost_chain_field(q, last, 0),
				       roost_chain_bytes(c, &after, WQE), WQE));
	fill(c, last);
	roost_chain_emit(c, enable(q, q->depth));
}

ROOST_EXPORT void roost_chain_loop_start(const struct roost_chain *c,
					 const struct roost_chain_queue *loop)
{
	const struct roost_wqe again = enable(loop, loop->depth);

	roost_chain_emit(c, roost_wqe_write(roost_chain_field(loop, loop->depth - 1, 0),
					    roost_chain_bytes(c, &again, WQE), WQE));
	roost_chain_emit(c, again);
}

ROOST_EXPORT void roost_chain_function_end(const struct roost_chain *c)
{
	fill(c, c->queue->depth - 1);
	roost_chain_emit(c, roost_wqe_nop());
}

ROOST_EXPORT uint64_t *roost_chain_call(const struct roost_chain *c,
					const struct roost_chain_queue *function,
					const struct roost_argument *args, uint32_t num_args)
{
	const struct roost_wqe back = enable(c->queue, 0);
	struct roost_ref at = roost_chain_bytes(c, &back, WQE);

	for (uint32_t i = 0; i < num_args; i++)
		roost_chain_emit(c, roost_wqe_write(args[i].to, args[i].from, args[i].len));
	roost_chain_emit(
		c, roost_wqe_write(roost_chain_field(function, function->depth - 1, 0), at, WQE));
	roost_chain_emit(c, enable(function, function->depth));
	if (c->queue->error)
		return NULL;
	return (uint64_t *)((uint8_t *)c->data->image + (at.addr - c->data->at.addr) +
			    offsetof(struct roost_wqe, swap_add));
}
