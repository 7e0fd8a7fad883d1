/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * roost/chain_lookup.h. The loop runs one turn for each request:
 *
 *	WAIT		for a receive, which has stored key and addresses in the WQEs below
 *	copy		`miss` over the answer
 *	for each bucket:
 *	    copy	the bucket's key to op-code and id of `hit`
 *	    copy	the bucket's pointer into the template of the answer with the value
 *	    CAS		if the key is the client's, `hit` is a WRITE; the key found goes to `end`
 *	    hit		copies the template over the answer
 *	RECV_ENABLE	the next request
 *	ENABLE		the answer queue: the answer, and an ENABLE of the next turn
 *
 * The answer is one WRITE of two pieces, so its last word is written last: the value, and `end`.
 * Without a hit the first piece is empty.
 */
#include <errno.h>
#include <stddef.h>

#include "base/export.h"
#include "chain/answer.h"
#include "roost/chain_lookup.h"

static struct answer answer_of(const struct roost_lookup *l)
{
	return (struct answer){.queue = &l->answer,
			       .data = &l->loop,
			       .reply = l->reply,
			       .region = l->table_key,
			       .value_len = l->value_len};
}

static bool fits(const struct roost_lookup *l)
{
	const struct roost_chain_queue *loop = l->loop.queue, *answer = l->answer.queue;

	return l->buckets >= 1 && l->buckets <= ROOST_LOOKUP_BUCKETS &&
	       loop->depth == ROOST_LOOKUP_LOOP(l->buckets) &&
	       loop->stride == sizeof(struct roost_wqe) && !loop->n && answer_fits(answer);
}

ROOST_EXPORT void roost_lookup_emit(const struct roost_lookup *l, struct roost_sge *sge,
				    uint32_t *num_sge)
{
	struct roost_chain_queue *loop = l->loop.queue, *answer = l->answer.queue;
	struct answer a = answer_of(l);
	struct roost_ref end;

	*num_sge = 0;
	if (!fits(l)) {
		loop->error = answer->error = -EINVAL;
		return;
	}
	end = answer_emit(&a, l->loop.queue);
	roost_chain_emit(&l->loop, roost_wqe_wait(l->watch, 1));
	roost_chain_emit(&l->loop,
			 roost_wqe_write(answer_ref(&a), answer_part(&a, 0), ANSWER_PART_LEN));
	for (uint32_t i = 0; i < l->buckets; i++, *num_sge += 3)
		answer_bucket(&a, &l->loop, roost_ref_at(end, 8 * i), &sge[*num_sge]);
	sge[(*num_sge)++] =
		answer_sge(roost_ref_at(end, offsetof(struct roost_lookup_end, number)));
	chain_fill(&l->loop, loop->depth - 2);
	roost_chain_emit(&l->loop, roost_wqe_enable(ROOST_OP_RECV_ENABLE, answer->qp_num, 1));
	roost_chain_emit(&l->loop,
			 roost_wqe_enable(ROOST_OP_ENABLE, answer->qp_num, answer->depth));
}
