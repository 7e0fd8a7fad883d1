/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * roost/chain_parallel.h. A turn for each request:
 *
 *	loop i	WAIT for a request; a copy that takes the last answer back; the test of bucket i; a
 *		NOP, whose completion shows that the bucket was tested
 *	answer	WAIT for both loops; the WRITE of the first bucket's value; the WRITE of the second
 *		one's, and of the end; RECV_ENABLE; ENABLE of both loops and of the next turn
 *
 * Each loop rewrites a WRITE of its own, so the two need no order. A WRITE without a hit is empty.
 */
#include <errno.h>

#include "base/export.h"
#include "chain/answer.h"
#include "roost/chain_parallel.h"

static bool fits(const struct roost_parallel *l)
{
	const struct roost_chain_queue *answer = l->answer.queue;

	for (unsigned i = 0; i < ROOST_LOOKUP_BUCKETS; i++)
		if (l->loop[i].queue->depth != ROOST_PARALLEL_LOOP ||
		    l->loop[i].queue->stride != sizeof(struct roost_wqe) || l->loop[i].queue->n)
			return false;
	return answer->depth == ROOST_PARALLEL_ANSWER && answer->stride >= ROOST_LOOKUP_STRIDE &&
	       !answer->n;
}

static void emit_loop(const struct roost_parallel *l, unsigned i, const struct answer *a,
		      struct roost_ref found, struct roost_sge *sge)
{
	const struct roost_chain *c = &l->loop[i];
	struct roost_wqe done = roost_wqe_nop();

	done.flags = ROOST_WQE_SIGNALED;
	roost_chain_emit(c, roost_wqe_wait(l->watch[i], 1));
	roost_chain_emit(c, roost_wqe_write(answer_ref(a), answer_part(a, 0), ANSWER_PART_LEN));
	answer_bucket(a, c, found, sge);
	chain_fill(c, ROOST_PARALLEL_LOOP - 1);
	roost_chain_emit(c, done);
}

static void emit_answer(const struct roost_parallel *l, struct answer *a, struct roost_ref end)
{
	const struct roost_chain_queue *q = l->answer.queue;

	for (unsigned i = 0; i < ROOST_LOOKUP_BUCKETS; i++)
		roost_chain_emit(&l->answer, roost_wqe_wait(l->done[i], 1));
	answer_write(&a[0], end, 0);
	answer_write(&a[1], end, sizeof(struct roost_lookup_end));
	roost_chain_emit(&l->answer, roost_wqe_enable(ROOST_OP_RECV_ENABLE, q->qp_num, 1));
	for (unsigned i = 0; i < ROOST_LOOKUP_BUCKETS; i++)
		roost_chain_emit(&l->answer,
				 roost_wqe_enable(ROOST_OP_ENABLE, l->loop[i].queue->qp_num,
						  ROOST_PARALLEL_LOOP));
	roost_chain_emit(&l->answer, roost_wqe_enable(ROOST_OP_ENABLE, q->qp_num, q->depth));
}

ROOST_EXPORT void roost_parallel_emit(const struct roost_parallel *l, struct roost_sge *sge)
{
	struct answer a[ROOST_LOOKUP_BUCKETS];
	struct roost_ref end;

	if (!fits(l)) {
		l->loop[0].queue->error = l->loop[1].queue->error = -EINVAL;
		l->answer.queue->error = -EINVAL;
		return;
	}
	for (unsigned i = 0; i < ROOST_LOOKUP_BUCKETS; i++)
		a[i] = (struct answer){.queue = &l->answer,
				       .data = &l->answer,
				       .reply = l->reply,
				       .region = l->table_key,
				       .value_len = l->value_len};
	end = answer_end(&a[0], sizeof(struct roost_lookup_end));
	emit_answer(l, a, end);
	for (unsigned i = 0; i < ROOST_LOOKUP_BUCKETS; i++)
		emit_loop(l, i, &a[i], roost_ref_at(end, 8 * i), &sge[3 * i]);
	sge[3 * ROOST_LOOKUP_BUCKETS] =
		answer_sge(roost_ref_at(end, offsetof(struct roost_lookup_end, number)));
}
