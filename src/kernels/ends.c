/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Ends of calls without a reply of the kernel: kernels that crash, payload that is cut short,
 * memory that is deregistered, queue pairs that end.
 */
#include "base/log.h"
#include "kernels/call.h"

void version_disable(struct kernel_version *s, enum guard_end how)
{
	atomic_store_explicit(&s->disabled, true, memory_order_relaxed);
	log_error("kernel %s (op-code 0x%llx, version %u) %s: it is disabled until it is replaced",
		  s->k->name, (unsigned long long)s->op, s->k->version,
		  how == GUARD_STUCK ? "did not return" : "crashed");
}

/* cut() may free memory, so it must not run while operations use the memory. */
void call_run_cut(struct call *call)
{
	struct kernel_version *s = call->i.s;

	call->cut = s && s->k->cut && !version_disabled(s) && call->i.wrs.out;
	if (!call->cut)
		invocation_cut(&call->i);
}

void call_break(struct call *call, uint32_t status)
{
	struct call_qp *q = call->q;
	bool in_list = list_linked(&call->link);

	if (q->msg == call)
		q->msg = NULL;
	call->payload = false;
	call->broken = (uint8_t)status;
	if (in_list)
		list_del(&call->link);
	if (call->state != CALL_WAITING || in_list)
		call_cut_off(call, status, call->i.sent);
}

void call_lost(struct call_qp *q, uint32_t id)
{
	struct call *call = &q->calls[(uint8_t)id];

	q->pu->ctr.lost++;
	/* The call's reply gets the status too, unless the slot has another call by now. */
	if (call->state != CALL_FREE && call->state != CALL_GONE && call->id == id)
		call->lost = true;
}

/* ---- the queue pair ---- */

bool slot_open(struct call_qp *q)
{
	if (!nic_memory_take(q->rt->nic, CALL_SLOT))
		return false;
	q->slots++;
	return true;
}

void call_qp_ended(struct call_qp *q)
{
	if (q->ends) {
		owner_ends(q->pu, q->owner);
		q->ends = q->has_resources = false;
	}
	if (q->detached)
		atomic_store_explicit(&q->deferred.may_free, true, memory_order_release);
}

void call_stop(struct call_qp *q)
{
	/* Slots are opened in the order of their numbers. */
	for (unsigned i = 0; i < q->slots; i++) {
		struct call *call = &q->calls[i];

		if (call->state == CALL_FREE || call->state == CALL_GONE)
			continue;
		if (list_linked(&call->link))
			list_del(&call->link);
		if (!call->ending)
			call_run_cut(call);
		q->pu->ctr.dropped += !call->ending;
		if (call->i.s)
			call->i.ctr->dropped += !call->ending;
		call_release(call);
	}
	q->ending = 0;
	if (list_linked(&q->link))
		list_del(&q->link);
	join_stop(q);
	q->stream = q->msg = NULL;
	q->announced = q->in_msg = q->in_piece = false;
	if (list_linked(&q->idle_link))
		list_del(&q->idle_link);
	q->ends = q->has_resources;
	if (!q->wrs_pending)
		call_qp_ended(q);
}
