/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * roost/chain_hopscotch.h. The loop runs one turn for each request:
 *
 *	WAIT		for a request
 *	copy		takes the last answer back
 *	READ		of the neighbourhood: key i to op-code and id of `hit` i, pointer i into the
 *			template of an answer
 *	CAS, hit	for each bucket: if the key is the client's, the template is copied over the
 *			answer
 *	RECV_ENABLE	the next request
 *	ENABLE		the answer queue: the answer, and an ENABLE of the next turn
 */
#include <errno.h>
#include <stddef.h>

#include "base/export.h"
#include "chain/answer.h"
#include "roost/chain_hopscotch.h"

static bool fits(const struct roost_hood *h)
{
	const struct roost_chain_queue *loop = h->loop.queue;

	return h->buckets >= 1 && h->buckets <= ROOST_HOOD_BUCKETS &&
	       loop->depth == ROOST_HOOD_LOOP(h->buckets) && loop->stride >= ROOST_HOOD_STRIDE &&
	       !loop->n && answer_fits(h->answer.queue);
}

/*
 * Emits the READ of the neighbourhood. Returns its number. `parts`: the templates of the
 * answers.
 */
static uint32_t emit_read(const struct roost_hood *h, const struct roost_ref *parts)
{
	const struct roost_chain_queue *q = h->loop.queue;
	struct roost_sge sge[2 * ROOST_HOOD_BUCKETS];
	const uint32_t hit = q->n + 2; /* number behind the READ and the first CAS */
	uint32_t n;

	for (uint32_t i = 0; i < h->buckets; i++) {
		sge[2 * i] = answer_sge(ROOST_FIELD(q, hit + 2 * i, ctrl));
		sge[2 * i + 1] = answer_sge(roost_ref_at(parts[i], ANSWER_VALUE));
	}
	n = roost_chain_emit(&h->loop, roost_wqe_read((struct roost_ref){sge[0].addr, sge[0].lkey},
						      (struct roost_ref){0, h->table_key}, 8));
	chain_pieces(&h->loop, n, &sge[1], 2 * h->buckets - 1);
	return n;
}

static void emit_loop(const struct roost_hood *h, const struct answer *a, struct roost_ref end,
		      struct roost_sge *sge)
{
	const struct roost_chain_queue *q = h->loop.queue;
	struct roost_ref parts[ROOST_HOOD_BUCKETS];
	struct roost_wqe hit;
	uint32_t n;

	for (uint32_t i = 0; i < h->buckets; i++)
		parts[i] = answer_part(a, h->value_len);
	n = emit_read(h, parts);
	sge[0] = answer_sge(ROOST_FIELD(q, n, raddr));
	for (uint32_t i = 0; i < h->buckets; i++) {
		n = roost_chain_emit(&h->loop, roost_wqe_cas(ROOST_FIELD(q, q->n + 1, ctrl), 0,
							     ROOST_CTRL(ROOST_OP_WRITE, 0),
							     roost_ref_at(end, 8 * i)));
		sge[1 + i] = answer_sge(ROOST_FIELD(q, n, compare));
		hit = roost_wqe_write(answer_ref(a), parts[i], ANSWER_PART_LEN);
		hit.ctrl = ROOST_CTRL(ROOST_OP_NOP, 0);
		roost_chain_emit(&h->loop, hit);
	}
}

ROOST_EXPORT void roost_hood_emit(const struct roost_hood *h, struct roost_sge *sge)
{
	struct roost_chain_queue *loop = h->loop.queue, *answer = h->answer.queue;
	struct answer a = {.queue = &h->answer,
			   .data = &h->loop,
			   .reply = h->reply,
			   .region = h->table_key,
			   .value_len = h->value_len};
	struct roost_ref end;

	if (!fits(h)) {
		loop->error = answer->error = -EINVAL;
		return;
	}
	end = answer_end(&a, sizeof(struct roost_hood_end));
	answer_write(&a, end, sizeof(struct roost_hood_end));
	roost_chain_emit(&h->answer, roost_wqe_enable(ROOST_OP_ENABLE, loop->qp_num, loop->depth));
	roost_chain_emit(&h->loop, roost_wqe_wait(h->watch, 1));
	roost_chain_emit(&h->loop,
			 roost_wqe_write(answer_ref(&a), answer_part(&a, 0), ANSWER_PART_LEN));
	emit_loop(h, &a, end, sge);
	sge[1 + h->buckets] =
		answer_sge(roost_ref_at(end, offsetof(struct roost_hood_end, number)));
	chain_fill(&h->loop, loop->depth - 2);
	roost_chain_emit(&h->loop, roost_wqe_enable(ROOST_OP_RECV_ENABLE, answer->qp_num, 1));
	roost_chain_emit(&h->loop,
			 roost_wqe_enable(ROOST_OP_ENABLE, answer->qp_num, answer->depth));
}
