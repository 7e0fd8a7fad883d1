/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Streams without data. A peer that announces payload and does not send it, or sends only a part,
 * holds a slot and the resources that the kernel took. After idle_ns the call ends with
 * ROOST_RPC_IDLE, and payload that arrives later is dropped. The list of QPs is in the order of
 * their next check, so only QPs that are due cost time.
 */
#include "kernels/call.h"

#define MOST 64 /* QPs that are checked per turn */

static bool has_stream(const struct call_qp *q)
{
	return (q->in_msg && q->msg) || (q->announced && q->stream);
}

static void watch(struct call_qp *q, uint64_t due)
{
	struct runtime_pu *pu = q->pu;

	q->idle_due = due;
	list_add_tail(&q->idle_link, &pu->idle);
	nic_rpc_at(pu->rt->nic, pu->index,
		   list_first_entry(&pu->idle, struct call_qp, idle_link)->idle_due);
}

void idle_watch(struct call_qp *q)
{
	watch(q, q->last_rx + q->rt->idle_ns);
}

/* Ends the stream. Returns false if the kernel is still processing data: it is not idle. */
static bool end_stream(struct call_qp *q)
{
	struct call *call = q->in_msg && q->msg ? q->msg : q->stream;

	if (call->state != CALL_STREAM && !(call == q->msg && q->in_piece))
		return false;
	q->pu->ctr.idle++;
	q->in_piece = false;
	call_break(call, ROOST_RPC_IDLE);
	return true;
}

/* A message may be in progress while another one is announced. */
static void end_streams(struct call_qp *q)
{
	while (has_stream(q) && end_stream(q))
		;
}

bool idle_look(struct runtime_pu *pu)
{
	uint64_t now = pu->units.began;

	for (unsigned i = 0; !list_empty(&pu->idle); i++) {
		struct call_qp *q = list_first_entry(&pu->idle, struct call_qp, idle_link);
		uint64_t due = now + pu->rt->idle_ns;

		if (q->idle_due > now) {
			nic_rpc_at(pu->rt->nic, pu->index, q->idle_due);
			return false;
		}
		if (i == MOST)
			return true;
		list_del(&q->idle_link);
		if (q->last_rx + pu->rt->idle_ns > now)
			due = q->last_rx + pu->rt->idle_ns;
		else
			end_streams(q);
		if (has_stream(q))
			watch(q, due);
	}
	return false;
}
