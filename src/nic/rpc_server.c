/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The interface of the layer that serves calls: its registration with a NIC, the queue pairs that
 * have the op-codes, and the turns of the layer.
 */
#include "nic/nic_kernel_wr.h"
#include "nic/responder.h"
#include "nic/rpc.h"

/* The time for which a PU counts as shared after packets of two QPs came to it. */
#define SHARED_NS 20000000

int nic_rpc_serve(struct nic *nic, const struct nic_rpc_ops *ops, void *ctx)
{
	if (nic->rpc_ops)
		return -EEXIST;
	nic->rpc_ops = ops;
	nic->rpc_ctx = ctx;
	return 0;
}

void *nic_rpc_server(const struct nic *nic, const struct nic_rpc_ops *ops)
{
	return nic->rpc_ops == ops ? nic->rpc_ctx : NULL;
}

int nic_qp_set_rpc(struct nic *nic, struct nic_qp *qp)
{
	uint64_t before = qp->bytes;
	void *ctx = NULL;
	int rc;

	if (qp->type != NIC_QPT_RC)
		return -EOPNOTSUPP;
	if (qp->state != NIC_QPS_RESET && qp->state != NIC_QPS_INIT)
		return -EINVAL;
	if (qp_has(qp, QP_RPC))
		return 0;
	rc = qp_size_entries(qp, qp->sq.window,
			     NIC_RPC_SENDS + (qp->kernel_wrs_enabled ? NIC_MAX_KERNEL_WRS : 0));
	memory_of_qps(nic, before, qp->bytes);
	if (rc)
		return rc;
	if (nic->rpc_ops)
		rc = nic->rpc_ops->attach(nic->rpc_ctx, qp, &ctx);
	if (rc)
		return rc;
	qp->rpc_ctx = ctx;
	qp_set_feature(qp, QP_RPC, true);
	return 0;
}

bool nic_qp_rpc(const struct nic_qp *qp)
{
	return qp_has(qp, QP_RPC);
}

void nic_rpc_single_call(struct nic_qp *qp, bool single)
{
	if (atomic_load_explicit(&qp->single_call, memory_order_relaxed) != single)
		atomic_store_explicit(&qp->single_call, single, memory_order_relaxed);
}

bool nic_qp_batches(const struct nic_qp *qp)
{
	/*
	 * The test does not use `batch`, which changes while the port is open: the caller does not
	 * own the PU.
	 */
	return unlikely(qp_has(qp, QP_RPC)) && qp->pu->ports[qp_port(qp)].port->mask_fd;
}

void *nic_rpc_ctx(const struct nic_qp *qp)
{
	return qp->rpc_ctx;
}

void rpc_stop(struct nic_qp *qp)
{
	if (qp->rpc_ctx)
		qp->nic->rpc_ops->stop(qp->nic->rpc_ctx, qp->rpc_ctx);
}

void rpc_detach(struct nic_qp *qp)
{
	if (qp->rpc_ctx)
		qp->nic->rpc_ops->detach(qp->nic->rpc_ctx, qp->rpc_ctx);
	qp->rpc_ctx = NULL;
	qp_set_feature(qp, QP_RPC, false);
}

void nic_rpc_schedule(struct nic_qp *qp)
{
	qp->pu->rpc_work = true;
}

void nic_rpc_wake(struct nic *nic, unsigned pu)
{
	nic->pus[pu]->rpc_work = true;
}

void nic_rpc_request_turn_end(struct nic *nic, unsigned pu)
{
	nic->pus[pu]->turn_end_requested = true;
}

void nic_rpc_runs(struct nic_qp *qp)
{
	struct pu *pu = qp->pu;

	if (unlikely(qp != pu->rx_qp) && pu->now - pu->rx_at < SHARED_NS)
		pu->rx_mixed = pu->now;
}

void nic_rpc_at(struct nic *nic, unsigned pu, uint64_t when)
{
	struct pu *p = nic->pus[pu];

	if (!wheel_pending(&p->rpc_timer) || when < p->rpc_timer.deadline)
		wheel_add(&p->wheel, &p->rpc_timer, when);
}

const struct pkt_addr *nic_rpc_peer(const struct nic_qp *qp)
{
	return &qp->attr.dgid;
}

struct nic_rpc_turn nic_rpc_turn(const struct nic *nic, unsigned pu)
{
	const struct pu *p = nic->pus[pu];

	return (struct nic_rpc_turn){.number = p->polls,
				     .began = p->now,
				     .shared = p->now - p->rx_mixed < SHARED_NS && p->rx_mixed};
}

bool nic_turn_end_requested(const struct nic *nic, unsigned pu)
{
	return nic->pus[pu]->turn_end_requested;
}

void nic_turn_ended(struct nic *nic, unsigned pu, uint64_t now)
{
	nic->pus[pu]->turn_end_requested = false;
	nic->rpc_ops->turn_ended(nic->rpc_ctx, pu, now);
}

void nic_rpc_ring(struct nic *nic, unsigned pu)
{
	/*
	 * The ring has space for one besides the QPs (nic_doorbell()). Memory order: the caller
	 * stores the work, then exchanges true; the PU exchanges false, then looks for work
	 * (take_doorbells()). So the later exchange sees what was stored before the earlier one.
	 */
	if (!atomic_exchange_explicit(&nic->pus[pu]->rpc_ring_queued, true, memory_order_acq_rel))
		mpsc_push(&nic->pus[pu]->doorbells, RPC_RING);
	nic_kick(nic, pu);
}

unsigned rpc_run(struct pu *pu)
{
	struct nic *nic = pu->nic;
	bool more = false;
	unsigned n;

	pu->rpc_work = false;
	n = nic->rpc_ops->run(nic->rpc_ctx, pu->index, &more);
	pu->rpc_work |= more;
	return n;
}
