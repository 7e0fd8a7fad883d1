/* SPDX-License-Identifier: BSD-2-Clause */
/* ibv_poll_cq(): takes completions out of the ring. It drives the NIC only if the ring is empty. */
#include "verbs/objects.h"

/* The NIC writes the values of the verbs (abi_check.c), so this only copies and widens fields. */
static inline void wc_fill(struct ibv_wc *wc, const struct roost_cqe *cqe)
{
	wc->wr_id = cqe->wr_id;
	wc->status = (enum ibv_wc_status)cqe->status;
	wc->opcode = (enum ibv_wc_opcode)cqe->opcode;
	wc->vendor_err = cqe->vendor_err;
	wc->byte_len = cqe->byte_len;
	wc->imm_data = cqe->imm;
	wc->qp_num = cqe->qpn;
	wc->src_qp = cqe->src_qpn;
	wc->wc_flags = cqe->flags;
	wc->pkey_index = 0;
	wc->slid = 0;
	wc->sl = cqe->sl;
	wc->dlid_path_bits = 0;
}

static int cq_take(struct verbs_cq *cq, int max, struct ibv_wc *wc)
{
	const struct roost_cqe *cqe;
	uint32_t cons;
	int n = 0;

	if (!cq->single_threaded)
		spin_lock(&cq->lock);
	cons = cq->cons;
	while (n < max) {
		cqe = &cq->ring[cons & cq->mask];
		if (atomic_load_explicit(&cqe->seq, memory_order_acquire) != cons + 1)
			break;
		__builtin_prefetch(&cq->ring[(cons + 1) & cq->mask]);
		wc_fill(&wc[n++], cqe);
		cons++;
	}
	if (n) {
		cq->cons = cons;
		atomic_store_explicit(&cq->index->cons, cons, memory_order_release);
	}
	if (!cq->single_threaded)
		spin_unlock(&cq->lock);
	return n;
}

int verbs_poll_cq(struct ibv_cq *ibcq, int max, struct ibv_wc *wc)
{
	struct verbs_cq *cq = verbs_cq(ibcq);
	int n;

	if (unlikely(max < 0))
		return -EINVAL;
	n = cq_take(cq, max, wc);
	if (!n) {
		/*
		 * This does not hold the lock, so that another thread that polls meanwhile does not
		 * wait.
		 */
		drive_progress(cq->drive, cq->pu);
		n = cq_take(cq, max, wc);
	}
	if (n)
		drive_cqes_taken(cq->drive, cq->pu);
	return n;
}
