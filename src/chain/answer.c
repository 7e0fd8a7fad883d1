/* SPDX-License-Identifier: BSD-2-Clause */
#include "chain/answer.h"

#include <string.h>

struct roost_ref answer_part(const struct answer *a, uint32_t len)
{
	struct roost_ref to = roost_ref_at(a->reply, a->value_len - len);
	struct roost_wqe w = roost_wqe_write(to, (struct roost_ref){0, a->region}, len);

	return roost_chain_bytes(a->data, (uint8_t *)&w + ANSWER_PART, ANSWER_PART_LEN);
}

struct roost_ref answer_emit(const struct answer *a, const struct roost_chain_queue *next)
{
	const struct roost_lookup_end zero = {{0}, 0};
	struct roost_ref end = roost_chain_bytes(a->data, &zero, sizeof(zero));
	struct roost_chain_queue *q = a->queue->queue;
	struct roost_sge second = {end.addr, sizeof(zero), end.key};
	struct roost_wqe w = roost_wqe_write(a->reply, end, 0);

	w.num_sge = 2;
	roost_chain_emit(a->queue, w);
	if (!q->error)
		memcpy((uint8_t *)q->image + sizeof(w), &second, sizeof(second));
	roost_chain_emit(a->queue, roost_wqe_enable(ROOST_OP_ENABLE, next->qp_num, next->depth));
	return end;
}
