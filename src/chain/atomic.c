/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * roost/chain_atomic.h. A turn for each request:
 *
 *	counter	WAIT; FETCH_ADD, whose address and operand the receive has stored; RECV_ENABLE;
 *		ENABLE answer
 *	lock	WAIT; if the action is LOCK, a CAS from 0 to the owner; if it is UNLOCK, a CAS from
 *		the owner to 0; RECV_ENABLE; ENABLE answer
 *
 * A receive stores only the upper 6 bytes of the action: the lower ones would be an op-code.
 */
#include <errno.h>
#include <stddef.h>

#include "base/export.h"
#include "chain/answer.h"
#include "roost/chain_atomic.h"

static bool is_empty(const struct roost_chain_queue *q, uint32_t depth)
{
	return q->depth == depth && q->stride == sizeof(struct roost_wqe) && !q->n;
}

static void finish(const struct roost_chain *loop, const struct roost_chain_queue *answer)
{
	chain_fill(loop, loop->queue->depth - 2);
	roost_chain_emit(loop, roost_wqe_enable(ROOST_OP_RECV_ENABLE, answer->qp_num, 1));
	roost_chain_emit(loop, roost_wqe_enable(ROOST_OP_ENABLE, answer->qp_num, answer->depth));
}

/* The answer is the end alone. */
static struct roost_ref emit_answer(const struct roost_chain *answer,
				    const struct roost_chain *loop, struct roost_ref reply)
{
	const uint32_t len = sizeof(struct roost_lookup_end);
	struct answer a = {.data = loop};
	struct roost_ref end = answer_end(&a, len);

	roost_chain_emit(answer, roost_wqe_write(reply, end, len));
	roost_chain_emit(
		answer, roost_wqe_enable(ROOST_OP_ENABLE, loop->queue->qp_num, loop->queue->depth));
	return end;
}

ROOST_EXPORT void roost_counter_emit(const struct roost_counter *c, struct roost_sge *sge)
{
	struct roost_chain_queue *q = c->loop.queue;
	struct roost_ref end;
	uint32_t n;

	if (!is_empty(q, ROOST_COUNTER_LOOP) || !answer_fits(c->answer.queue)) {
		q->error = c->answer.queue->error = -EINVAL;
		return;
	}
	end = emit_answer(&c->answer, &c->loop, c->reply);
	roost_chain_emit(&c->loop, roost_wqe_wait(c->watch, 1));
	n = roost_chain_emit(
		&c->loop,
		roost_wqe_calc(ROOST_OP_FETCH_ADD, (struct roost_ref){0, c->counter_key}, 0, end));
	finish(&c->loop, c->answer.queue);
	sge[0] = answer_sge(ROOST_FIELD(q, n, raddr));
	sge[1] = answer_sge(ROOST_FIELD(q, n, swap_add));
	sge[2] = answer_sge(roost_ref_at(end, offsetof(struct roost_lookup_end, number)));
}

ROOST_EXPORT void roost_lock_emit(const struct roost_lock *l, struct roost_sge *sge)
{
	const struct roost_ref at = {0, l->lock_key};
	struct roost_chain_queue *q = l->loop.queue;
	struct roost_ref end, action, rest;
	struct roost_chain c = l->loop;
	uint32_t lock, unlock;

	if (!is_empty(q, ROOST_LOCK_LOOP) || !answer_fits(l->answer.queue) || !l->owner) {
		q->error = l->answer.queue->error = -EINVAL;
		return;
	}
	end = emit_answer(&l->answer, &l->loop, l->reply);
	action = roost_chain_word(&l->loop, 0);
	c.scratch = rest = roost_chain_word(&l->loop, 0);
	roost_chain_emit(&c, roost_wqe_wait(l->watch, 1));
	lock = roost_chain_if(&c, action, ROOST_EQ, roost_constant(ROOST_LOCK),
			      roost_wqe_cas(at, 0, l->owner, end));
	unlock = roost_chain_if(&c, action, ROOST_EQ, roost_constant(ROOST_UNLOCK),
				roost_wqe_cas(at, l->owner, 0, end));
	finish(&c, l->answer.queue);
	sge[0] = (struct roost_sge){rest.addr, 2, rest.key};
	sge[1] = (struct roost_sge){action.addr + 2, 6, action.key};
	sge[2] = answer_sge(ROOST_FIELD(q, lock, raddr));
	sge[3] = answer_sge(ROOST_FIELD(q, unlock, raddr));
	sge[4] = answer_sge(roost_ref_at(end, offsetof(struct roost_lookup_end, number)));
}
