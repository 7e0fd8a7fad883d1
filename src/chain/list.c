/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * roost/chain_list.h. Four queues:
 *
 *	begin	WAIT for a request; copies that undo the last one; RECV_ENABLE; ENABLE walk
 *	walk	a turn for each node: copy the node; its `next` becomes the address of the next
 *		copy; if it is the last node, the ENABLE at the end of the turn becomes one of
 *		`answer`; if it has the key, one of `found`. Without break, the template with the
 *		value is copied over the answer at once, and the key to the end of the reply
 *	found	copies the template with the value over the answer; ENABLE answer
 *	answer	the WRITE to the client; ENABLE of the next turn of `begin`
 */
#include <errno.h>

#include "base/export.h"
#include "chain/answer.h"
#include "roost/chain_list.h"

#define WQE ((uint32_t)sizeof(struct roost_wqe))

static struct roost_ref enable_template(const struct roost_chain *c,
					const struct roost_chain_queue *q)
{
	struct roost_wqe w = roost_wqe_enable(ROOST_OP_ENABLE, q->qp_num, q->depth);

	return roost_chain_bytes(c, &w, sizeof(w));
}

static bool is_empty(const struct roost_chain_queue *q, uint32_t depth)
{
	return q->depth == depth && q->stride == WQE && !q->n;
}

/* Emits the turn of a node. `end`, `part`: see answer.h. */
static void emit_walk(const struct roost_list *l, const struct answer *a, struct roost_ref end,
		      struct roost_ref part, struct roost_sge *sge)
{
	const struct roost_list_node zero = {0, 0, 0, 0};
	const struct roost_chain_queue *q = l->walk.queue;
	struct roost_ref node = roost_chain_bytes(&l->walk, &zero, sizeof(zero)),
			 last = roost_chain_field(q, q->depth - 1, 0);
	struct roost_wqe hit;
	uint32_t n;

	n = roost_chain_emit(
		&l->walk, roost_wqe_write(node, (struct roost_ref){0, l->list_key}, sizeof(zero)));
	sge[1] = answer_sge(ROOST_FIELD(q, n, sge[0].addr));
	roost_chain_emit(&l->walk,
			 roost_wqe_write(ROOST_FIELD(q, n, sge[0].addr),
					 roost_ref_at(node, offsetof(struct roost_list_node, next)),
					 8));
	roost_chain_emit(
		&l->walk,
		roost_wqe_write(roost_ref_at(part, ANSWER_VALUE),
				roost_ref_at(node, offsetof(struct roost_list_node, value)), 8));
	roost_chain_if(&l->walk, roost_ref_at(node, offsetof(struct roost_list_node, last)),
		       ROOST_EQ, roost_constant(1),
		       roost_wqe_write(last, enable_template(&l->walk, l->answer.queue), WQE));
	/* as roost_chain_if(), but the receive stores the key, and the key found goes to `end` */
	n = q->n;
	roost_chain_emit(&l->walk, roost_wqe_write(ROOST_FIELD(q, n + 2, ctrl), node, 8));
	roost_chain_emit(&l->walk, roost_wqe_cas(ROOST_FIELD(q, n + 2, ctrl), 0,
						 ROOST_CTRL(ROOST_OP_WRITE, 0),
						 l->whole ? l->walk.scratch : end));
	sge[0] = answer_sge(ROOST_FIELD(q, n + 1, compare));
	hit = roost_wqe_write(last, enable_template(&l->walk, l->found.queue), WQE);
	if (l->whole)
		hit = roost_wqe_write(answer_ref(a), part, ANSWER_PART_LEN);
	hit.ctrl = ROOST_CTRL(ROOST_OP_NOP, 0);
	roost_chain_emit(&l->walk, hit);
	if (l->whole) { /* the second WQE has the same condition */
		roost_chain_emit(&l->walk, roost_wqe_write(ROOST_FIELD(q, n + 4, ctrl),
							   ROOST_FIELD(q, n + 2, ctrl), 8));
		hit = roost_wqe_write(end, node, 8);
		hit.ctrl = ROOST_CTRL(ROOST_OP_NOP, 0);
		roost_chain_emit(&l->walk, hit);
	}
	chain_fill(&l->walk, q->depth - 1);
	roost_chain_emit(&l->walk, roost_wqe_enable(ROOST_OP_ENABLE, q->qp_num, q->depth));
}

ROOST_EXPORT void roost_list_emit(const struct roost_list *l, struct roost_sge *sge)
{
	struct roost_chain_queue *begin = l->begin.queue, *answer = l->answer.queue;
	struct answer a = {.queue = &l->answer,
			   .data = &l->begin,
			   .reply = l->reply,
			   .region = l->list_key,
			   .value_len = l->value_len};
	struct roost_ref end, part;

	if (!is_empty(begin, 8) || !is_empty(l->walk.queue, 16) || !is_empty(l->found.queue, 2) ||
	    !answer_fits(answer)) {
		begin->error = l->walk.queue->error = l->found.queue->error = answer->error =
			-EINVAL;
		return;
	}
	end = answer_emit(&a, begin);
	part = answer_part(&a, l->value_len);
	sge[2] = answer_sge(roost_ref_at(end, offsetof(struct roost_lookup_end, number)));
	emit_walk(l, &a, end, part, sge);
	roost_chain_emit(&l->found, roost_wqe_write(answer_ref(&a), part, ANSWER_PART_LEN));
	roost_chain_emit(&l->found,
			 roost_wqe_enable(ROOST_OP_ENABLE, answer->qp_num, answer->depth));
	roost_chain_emit(&l->begin, roost_wqe_wait(l->watch, 1));
	roost_chain_emit(&l->begin,
			 roost_wqe_write(answer_ref(&a), answer_part(&a, 0), ANSWER_PART_LEN));
	roost_chain_emit(&l->begin, roost_wqe_write(end, roost_chain_word(&l->begin, 0), 8));
	roost_chain_emit(&l->begin, roost_wqe_enable(ROOST_OP_RECV_ENABLE, answer->qp_num, 1));
	chain_fill(&l->begin, begin->depth - 2);
	roost_chain_loop_start(&l->begin, l->walk.queue);
}
