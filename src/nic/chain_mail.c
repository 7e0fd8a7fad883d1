/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * ENABLEs of queues of another PU. Only the owner of a PU accesses its queue pairs, and a control
 * call may destroy them meanwhile. So the ENABLE travels as a message. Each pair of PUs has a ring,
 * with one producer and one consumer, and a doorbell. A message that names no managed queue of the
 * sender's protection domain comes back, and the sending queue pair fails.
 *
 *	sending PU				receiving PU
 *	slot, head (release)			take the doorbell, chain_mailed = false,
 *	exchange chain_mailed true, doorbell	head (acquire), slot, tail (release)
 *
 * The stores of the sender before the ENABLE are visible to the queue that it enables.
 */
#include <stdlib.h>

#include "nic/chain.h"

#define SLOTS 64u /* a power of two */

struct chain_mail {
	uint64_t name;	/* raddr of the WQE */
	uint32_t count; /* swap_add of the WQE */
	uint32_t pd, from, index;
	uint8_t op;
	bool refused; /* on its way back */
};

struct chain_box {
	_Atomic uint32_t head CACHE_ALIGNED;
	_Atomic uint32_t tail CACHE_ALIGNED;
	struct chain_mail slot[SLOTS] CACHE_ALIGNED;
};

int chain_mail_init(struct nic *nic)
{
	for (unsigned to = 0; to < nic->cfg.pus; to++) {
		for (unsigned from = 0; from < nic->cfg.pus; from++) {
			struct chain_box **box = &nic->pus[to]->chain_box[from];

			if (from == to || *box)
				continue;
			*box = aligned_alloc(ROOST_CACHE_LINE, sizeof(**box));
			if (!*box)
				return -ENOMEM;
			memset(*box, 0, sizeof(**box));
		}
	}
	return 0;
}

void chain_mail_fini(struct pu *pu)
{
	for (unsigned i = 0; i < NIC_MAX_PUS; i++)
		free(pu->chain_box[i]);
}

/* Returns false if the box is full. */
static bool put(struct pu *from, unsigned to_index, const struct chain_mail *m)
{
	struct pu *to = from->nic->pus[to_index];
	struct chain_box *box = to->chain_box[from->index];
	uint32_t head = atomic_load_explicit(&box->head, memory_order_relaxed);

	if (head - atomic_load_explicit(&box->tail, memory_order_acquire) == SLOTS)
		return false;
	box->slot[head % SLOTS] = *m;
	atomic_store_explicit(&box->head, head + 1, memory_order_release);
	if (!atomic_exchange_explicit(&to->chain_mailed, true, memory_order_acq_rel))
		mpsc_push(&to->doorbells, CHAIN_MAIL);
	nic_kick(from->nic, to_index);
	return true;
}

bool chain_send_mail(struct nic_qp *qp, const struct sq_entry *e, unsigned pu)
{
	return put(qp->pu, pu,
		   &(struct chain_mail){.name = e->wqe.raddr,
					.count = (uint32_t)e->wqe.swap_add,
					.pd = qp->pd,
					.from = qp->qpn,
					.index = e->index,
					.op = e->op});
}

/*
 * Handles a refused message. Its WQE has completed already, so its queue pair ends with the error.
 */
static void refused(struct pu *pu, struct sq_entry *e, const struct chain_mail *m)
{
	struct nic_qp *qp = nic_find_qp(pu->nic, m->from);

	if (!qp || qp->pu != pu || !qp->chain ||
	    (qp->state != NIC_QPS_RTS && qp->state != NIC_QPS_SQD))
		return;
	e->status = NIC_WC_LOC_QP_OP_ERR;
	chain_failed(qp, e);
	pu->ctr.req_local_qp_op_error++;
	qp_error(qp);
}

static void take(struct pu *pu, unsigned from, struct chain_mail *m)
{
	struct sq_entry e = {
		.op = m->op,
		.index = m->index,
		.wqe = {.ctrl = ROOST_CTRL(m->op, 0), .raddr = m->name, .swap_add = m->count}};

	if (m->refused) {
		refused(pu, &e, m);
	} else if (!chain_enable(pu, m->pd, NULL, &e)) {
		m->refused = true;
		/* if the box is full, the refusal is lost, and the sender gets no error */
		put(pu, from, m);
	}
}

/* Not inlined: its large frame is not for each turn of the PU. */
__attribute__((noinline)) void chain_take_mail(struct pu *pu)
{
	atomic_exchange_explicit(&pu->chain_mailed, false, memory_order_acq_rel);
	for (unsigned from = 0; from < pu->nic->cfg.pus; from++) {
		struct chain_box *box = pu->chain_box[from];
		uint32_t tail, head;

		if (!box)
			continue;
		tail = atomic_load_explicit(&box->tail, memory_order_relaxed);
		head = atomic_load_explicit(&box->head, memory_order_acquire);
		for (; tail != head; tail++) {
			struct chain_mail m = box->slot[tail % SLOTS];

			atomic_store_explicit(&box->tail, tail + 1, memory_order_release);
			take(pu, from, &m);
		}
	}
}
