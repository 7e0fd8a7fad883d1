/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * roost/chain_replica.h. A message has the addresses for this node and the nodes behind it, the
 * number, and the data. The receive stores the first address in the WQE that copies, and the rest
 * in the staging area. The staging area then holds the message for the next node.
 *
 *	loop	WAIT for a message; a copy of the data into the store; RECV_ENABLE; ENABLE out
 *	out	a SEND of the staging area, or at the last node a WRITE of the number to the client;
 *		ENABLE of the next turn
 */
#include <errno.h>

#include "base/export.h"
#include "chain/answer.h"
#include "roost/chain_replica.h"

static bool fits(const struct roost_replica *r)
{
	const struct roost_chain_queue *loop = r->loop.queue, *out = r->out.queue;

	return r->after < ROOST_REPLICA_NODES && loop->depth == ROOST_REPLICA_LOOP && !loop->n &&
	       loop->stride == sizeof(struct roost_wqe) && out->depth == ROOST_REPLICA_OUT &&
	       !out->n;
}

ROOST_EXPORT void roost_replica_emit(const struct roost_replica *r, struct roost_sge *sge)
{
	const uint32_t bytes = ROOST_REPLICA_BYTES(r->after, r->len);
	struct roost_chain_queue *loop = r->loop.queue, *out = r->out.queue;
	struct roost_wqe w;
	uint32_t n;

	if (!fits(r)) {
		loop->error = out->error = -EINVAL;
		return;
	}
	roost_chain_emit(&r->loop, roost_wqe_wait(r->watch, 1));
	n = roost_chain_emit(&r->loop,
			     roost_wqe_write((struct roost_ref){0, r->store_key},
					     roost_ref_at(r->staging, bytes - r->len), r->len));
	roost_chain_emit(&r->loop, roost_wqe_enable(ROOST_OP_RECV_ENABLE, r->in, 1));
	roost_chain_emit(&r->loop, roost_wqe_enable(ROOST_OP_ENABLE, out->qp_num, out->depth));
	w = roost_wqe_write(r->ack, r->staging, 8);
	if (r->after) {
		w = roost_wqe_write((struct roost_ref){0, 0}, r->staging, bytes);
		w.ctrl = ROOST_CTRL(ROOST_OP_SEND, 0);
	}
	roost_chain_emit(&r->out, w);
	roost_chain_emit(&r->out, roost_wqe_enable(ROOST_OP_ENABLE, loop->qp_num, loop->depth));
	sge[0] = answer_sge(ROOST_FIELD(loop, n, raddr));
	sge[1] = (struct roost_sge){r->staging.addr, bytes, r->staging.key};
}
