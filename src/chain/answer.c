/* SPDX-License-Identifier: BSD-2-Clause */
#include "chain/answer.h"

#include <string.h>

void chain_fill(const struct roost_chain *c, uint32_t n)
{
	while (!c->queue->error && c->queue->n < n)
		roost_chain_emit(c, roost_wqe_nop());
}

void chain_pieces(const struct roost_chain *c, uint32_t n, const struct roost_sge *sge,
		  uint32_t pieces)
{
	struct roost_chain_queue *q = c->queue;
	uint8_t *wqe = (uint8_t *)q->image + (size_t)n * q->stride;
	const uint16_t num = (uint16_t)(1 + pieces);

	if (q->error)
		return;
	memcpy(wqe + offsetof(struct roost_wqe, num_sge), &num, sizeof(num));
	memcpy(wqe + sizeof(struct roost_wqe), sge, pieces * sizeof(*sge));
}

struct roost_ref answer_part(const struct answer *a, uint32_t len)
{
	struct roost_ref to = roost_ref_at(a->reply, a->value_len - len);
	struct roost_wqe w = roost_wqe_write(to, (struct roost_ref){0, a->region}, len);

	return roost_chain_bytes(a->data, (uint8_t *)&w + ANSWER_PART, ANSWER_PART_LEN);
}

struct roost_ref answer_end(const struct answer *a, uint32_t len)
{
	const uint8_t zero[16 * 8] = {0};

	return roost_chain_bytes(a->data, zero, len);
}

void answer_write(struct answer *a, struct roost_ref end, uint32_t len)
{
	const struct roost_sge second = {end.addr, len, end.key};

	a->at = roost_chain_emit(a->queue,
				 roost_wqe_write(a->reply, (struct roost_ref){0, a->region}, 0));
	if (len)
		chain_pieces(a->queue, a->at, &second, 1);
}

struct roost_ref answer_emit(struct answer *a, const struct roost_chain_queue *next)
{
	const uint32_t len = sizeof(struct roost_lookup_end);
	struct roost_ref end = answer_end(a, len);

	answer_write(a, end, len);
	roost_chain_emit(a->queue, roost_wqe_enable(ROOST_OP_ENABLE, next->qp_num, next->depth));
	return end;
}

void answer_bucket(const struct answer *a, const struct roost_chain *loop, struct roost_ref found,
		   struct roost_sge *sge)
{
	const struct roost_chain_queue *q = loop->queue;
	const struct roost_ref table = {0, a->region}, part = answer_part(a, a->value_len);
	const uint32_t n = q->n, hit = n + 3;
	struct roost_wqe w;

	roost_chain_emit(loop, roost_wqe_write(ROOST_FIELD(q, hit, ctrl), table, 8));
	roost_chain_emit(loop, roost_wqe_write(roost_ref_at(part, ANSWER_VALUE), table, 8));
	roost_chain_emit(loop, roost_wqe_cas(ROOST_FIELD(q, hit, ctrl), 0,
					     ROOST_CTRL(ROOST_OP_WRITE, 0), found));
	w = roost_wqe_write(answer_ref(a), part, ANSWER_PART_LEN);
	w.ctrl = ROOST_CTRL(ROOST_OP_NOP, 0);
	roost_chain_emit(loop, w);
	sge[0] = answer_sge(ROOST_FIELD(q, n + 2, compare));
	sge[1] = answer_sge(ROOST_FIELD(q, n, sge[0].addr));
	sge[2] = answer_sge(ROOST_FIELD(q, n + 1, sge[0].addr));
}
