/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Queue pairs: changes of state, the error state, destruction. qp_create.c creates queue pairs, and
 * qp_state.c has the transition rules.
 */
#include <stdlib.h>

#include "base/assert.h"
#include "nic/alive.h"
#include "nic/chain.h"
#include "nic/cq.h"
#include "nic/datagram.h"
#include "nic/dest.h"
#include "nic/requester.h"
#include "nic/responder.h"
#include "nic/rpc.h"
#include "nic/stream.h"

void qp_set_state(struct nic_qp *qp, enum nic_qp_state state)
{
	qp->state = (uint8_t)state;
	qp->attr.state = state;
	/*
	 * The store is sequentially consistent, like the load of the receives' index after it:
	 * verbs/post.c, publish_recv().
	 */
	atomic_store_explicit(&qp->state_hint, (uint8_t)state, memory_order_seq_cst);
}

/* Removes the QP from every list and releases its part of the windows. */
static void detach(struct nic_qp *qp)
{
	if (qp->dest) {
		dest_release(qp, qp->sq.inflight);
		dest_release_read(qp, qp->sq.read_bytes);
	}
	if (list_linked(&qp->tx_link))
		list_del(&qp->tx_link);
	if (list_linked(&qp->resp_link))
		list_del(&qp->resp_link);
	if (qp->pu->reply_qp == qp)
		qp->pu->reply_qp = NULL;
	if (list_linked(&qp->lost_link))
		list_del(&qp->lost_link);
	wheel_del(&qp->pu->wheel, &qp->timer);
	qp->sq.block = BLOCK_NONE;
	if (qp->chain)
		chain_stop(qp);
	rpc_stop(qp);
}

static void drop_dest(struct nic_qp *qp)
{
	if (qp->dest) {
		alive_detach(qp);
		dest_put(qp->dest);
	}
	qp->dest = NULL;
}

void nic_qp_destroy(struct nic *nic, struct nic_qp *qp)
{
	mw_unbind_all(qp);
	mcast_detach_all(qp);
	atomic_store_explicit(&nic->qps[(qp->qpn >> 4) & (NIC_MAX_QPS - 1)], NULL,
			      memory_order_release);
	detach(qp);
	kernel_wr_drop_all(qp);
	kernel_wr_qp_gone(qp);
	rpc_detach(qp);
	stream_detach(qp);
	chain_destroy(qp);
	drop_dest(qp);
	ROOST_ASSERT(qp->send_cq->refs && qp->recv_cq->refs);
	qp->send_cq->refs--;
	qp->recv_cq->refs--;
	if (qp->srq)
		qp->srq->refs--;
	nic_pd_unref(nic, qp->pd);
	atomic_fetch_sub_explicit(&nic->num_qps, 1, memory_order_relaxed);
	memory_of_qps(nic, qp->bytes, 0);
	free(qp->resp.replay);
	qp_free(qp);
}

uint32_t nic_qp_num(const struct nic_qp *qp)
{
	return qp->qpn;
}

unsigned nic_qp_pu(const struct nic_qp *qp)
{
	return qp->pu_index;
}

enum nic_qp_state nic_qp_state(const struct nic_qp *qp)
{
	return (enum nic_qp_state)atomic_load_explicit(
		&((struct nic_qp *)(uintptr_t)qp)->state_hint, memory_order_seq_cst);
}

void qp_event(struct nic_qp *qp, enum nic_event ev)
{
	if (qp->events & (1u << ev))
		return;
	qp->events |= 1u << ev;
	qp->nic->cfg.ops->qp_event(qp->nic->cfg.host, ev, qp->ctx);
}

/*
 * Raises the event of the first packet. The verbs have an event for a QP in RTR (11.6.3.2).
 * Connection management needs an event in RTS as well.
 */
void qp_first_packet(struct nic_qp *qp)
{
	qp->has_received = true;
	qp_event(qp, qp->state == NIC_QPS_RTR ? NIC_EVENT_COMM_EST : NIC_EVENT_FIRST_PACKET);
}

void qp_error(struct nic_qp *qp)
{
	if (qp->state == NIC_QPS_ERR)
		return;
	detach(qp);
	qp_set_state(qp, NIC_QPS_ERR);
	sq_flush(qp);
	resp_flush(qp);
	if (qp->srq)
		/* IBA 10.3.1.9: the SRQ loses no receive with the QP */
		qp_event(qp, NIC_EVENT_LAST_WQE);
	/* The next turn flushes work posted meanwhile. Later work is flushed by its doorbell. */
	atomic_store_explicit(&qp->db_active, 1, memory_order_relaxed);
	nic_schedule(qp);
}

void qp_end_all_lost(struct pu *pu)
{
	while (!list_empty(&pu->lost)) {
		struct nic_qp *qp = container_of(pu->lost.next, struct nic_qp, lost_link);

		qp_event(qp, NIC_EVENT_QP_FATAL);
		qp_error(qp);
	}
}

void qp_sq_error(struct nic_qp *qp)
{
	struct qp_sq *sq = &qp->sq;

	wheel_del(&qp->pu->wheel, &qp->timer);
	sq->block = BLOCK_NONE;
	qp->attr.sq_draining = false;
	qp_set_state(qp, NIC_QPS_SQE);
	sq_flush(qp);
	sq->psn_fetch = sq->psn_next; /* unsent packets take no PSN */
	nic_schedule(qp);
}

/* Replaces the replay ring by a longer one of `size` entries; NULL: by none. */
static void give_replay(struct nic_qp *qp, struct resp_entry *to, uint8_t size)
{
	struct resp_entry *old = qp->resp.replay;
	uint64_t before = qp->bytes;

	qp->bytes += (uint64_t)size * sizeof(*to);
	qp->bytes -= (uint64_t)qp->resp.replay_size * sizeof(*to);
	memory_of_qps(qp->nic, before, qp->bytes);
	if (to)
		resp_move_replay(&qp->resp, to, size);
	free(old);
}

/* Resets the QP to the state of a new QP. The work that is posted in the rings counts as taken. */
static void reset(struct nic_qp *qp)
{
	struct qp_sq *sq = &qp->sq;
	struct qp_resp *r = &qp->resp;
	struct qp_sq keep = *sq;
	struct recv_ring *rq = r->rq, own = r->own_rq;

	detach(qp);
	kernel_wr_drop_all(qp);
	rpc_detach(qp);
	if (qp->resize)
		resize_reset(qp);
	drop_dest(qp);
	qp->keepalive = false;
	memset(sq, 0, sizeof(*sq));
	sq->ring = keep.ring;
	sq->wr_ids = keep.wr_ids;
	sq->index = keep.index;
	sq->mask = keep.mask;
	sq->stride_shift = keep.stride_shift;
	sq->entries = keep.entries;
	sq->entry_mask = keep.entry_mask;
	sq->entry_size = keep.entry_size;
	sq->window = keep.window;
	sq->max_inline = keep.max_inline;
	sq->max_sge = keep.max_sge;
	sq->taken = atomic_load_explicit(&sq->index->prod, memory_order_acquire);
	atomic_store_explicit(&sq->index->cons, sq->taken, memory_order_release);
	give_replay(qp, NULL, 0);
	qp->replay_limit = 0;
	memset(r, 0, sizeof(*r));
	r->rq = rq;
	r->own_rq = own;
	if (rq && !qp->srq) {
		rq->cons = rq->prod_seen =
			atomic_load_explicit(&rq->index->prod, memory_order_acquire);
		atomic_store_explicit(&rq->index->cons, rq->cons, memory_order_release);
	}
	if (qp->chain)
		chain_reset(qp);
	qp->events = 0;
	qp->has_received = false;
	qp->peer_port = UINT32_MAX;
	qp_set_feature(qp, QP_LOOP, false);
	qp_set_feature(qp, QP_CALC, false);
	memset(&qp->attr, 0, sizeof(qp->attr));
	qp->access = 0;
	atomic_store_explicit(&qp->db_active, 1, memory_order_relaxed);
}

/*
 * Returns true if the peer, at this address, is a QP of this NIC on the same PU; loop.c is used
 * then. Both ends get the same result. A QP of another slot belongs to another NIC, even at the
 * same address.
 */
static bool is_loop(const struct nic_qp *qp, unsigned port_index, const struct pkt_addr *dgid)
{
	const struct port *port = qp->pu->ports[port_index].port;

	return pkt_addr_eq(&port->addr, dgid) &&
	       PORT_SLOT_OF_QPN(qp->dest_qpn) == qp->nic->slot[qp->pu_index] &&
	       PORT_LANE_OF_QPN(qp->dest_qpn, qp->nic->cfg.pus) == qp->pu_index;
}

/*
 * Returns whether the connection can continue on another path, in SQD. With loop-back it cannot
 * leave the NIC, because the peer's PSNs have not moved. Its MTU stays, so the packets must fit.
 */
static bool path_fits(const struct nic_qp *qp, const struct nic_qp_attr *a, unsigned port_index)
{
	struct port *port = qp->pu->ports[port_index].port;

	if (qp_has(qp, QP_LOOP))
		return is_loop(qp, port_index, &a->dgid);
	return qp->mtu <= port_qp_mtu(port, &a->dgid, qp->dest_qpn, port->mtu);
}

static int take_path(struct nic_qp *qp, const struct nic_qp_attr *a, uint32_t mask)
{
	uint8_t port_num = mask & NIC_QPA_PORT ? a->port : qp->attr.port;
	uint32_t dqpn = mask & NIC_QPA_DEST_QPN ? a->dest_qpn : qp->dest_qpn;
	struct nic_gid gid = {0};
	struct dest *d;
	int rc;

	if (pkt_addr_is_group(&a->dgid)) /* a connection has one peer */
		return -EINVAL;
	nic_gid(qp->nic, port_num, a->sgid_index, &gid); /* qp_check_modify() has checked it */
	if (qp->state == NIC_QPS_SQD && !path_fits(qp, a, gid.port))
		return -EINVAL;
	rc = dest_get(qp->pu, (uint8_t)gid.port, &a->dgid, dqpn, &d);
	if (rc)
		return rc;
	if (qp->dest) {
		dest_release(qp, qp->sq.inflight);
		dest_release_read(qp, qp->sq.read_bytes);
		if (qp->sq.block == BLOCK_WINDOW) /* the QP waits for the window of the old path */
			nic_schedule(qp);
		drop_dest(qp);
	}
	qp->dest = d;
	alive_attach(qp);
	qp_set_port(qp, gid.port);
	qp->tos = a->traffic_class;
	qp->attr.dgid = a->dgid;
	qp->attr.sgid_index = a->sgid_index;
	qp->attr.traffic_class = a->traffic_class;
	qp->attr.hop_limit = a->hop_limit;
	qp->attr.flow_label = a->flow_label;
	qp->attr.sl = a->sl;
	return 0;
}

static void take_mtu(struct nic_qp *qp, uint32_t mtu)
{
	uint32_t window = qp->dest ? qp->dest->path->read_window : 0;
	uint32_t chunk = window ? window / 4 : NIC_READ_CHUNK;

	qp->mtu = qp->attr.path_mtu = mtu;
	qp->mtu_shift = (uint8_t)__builtin_ctz(mtu);
	/* Four READ requests fill the port's window, so requests and responses overlap. */
	qp->read_chunk = chunk >> qp->mtu_shift ? chunk >> qp->mtu_shift : 1;
}

/* Takes the MTU that the program states, or the larger one of the way to the peer. */
static void take_mtu_of_path(struct nic_qp *qp, uint32_t stated)
{
	struct port *port = qp->pu->ports[qp->port].port;

	take_mtu(qp, port_qp_mtu(port, &qp->attr.dgid, qp->dest_qpn, stated));
}

static void take_values(struct nic_qp *qp, const struct nic_qp_attr *a, uint32_t mask)
{
	struct nic_qp_attr *q = &qp->attr;

	if (mask & NIC_QPA_ACCESS_FLAGS)
		q->access = qp->access = a->access;
	if (mask & NIC_QPA_PKEY_INDEX)
		q->pkey_index = a->pkey_index;
	if (mask & NIC_QPA_PORT)
		q->port = a->port;
	if (mask & NIC_QPA_PORT && qp->type == NIC_QPT_UD) { /* UD has no path */
		qp_set_port(qp, a->port - 1u);
		take_mtu(qp, qp->pu->ports[qp->port].port->mtu);
	}
	if (mask & NIC_QPA_QKEY)
		q->qkey = a->qkey;
	if (mask & NIC_QPA_DEST_QPN)
		q->dest_qpn = qp->dest_qpn = a->dest_qpn;
	if (mask & NIC_QPA_RQ_PSN) {
		q->rq_psn = a->rq_psn & PKT_PSN_MASK;
		qp->resp.epsn = q->rq_psn;
	}
	if (mask & NIC_QPA_SQ_PSN) {
		q->sq_psn = a->sq_psn & PKT_PSN_MASK;
		qp->sq.psn_una = qp->sq.psn_next = qp->sq.psn_max = qp->sq.psn_fetch = q->sq_psn;
	}
	if (mask & NIC_QPA_TIMEOUT)
		q->timeout = a->timeout & 31;
	if (mask & NIC_QPA_RETRY_CNT)
		q->retry_cnt = qp->sq.retries = a->retry_cnt;
	if (mask & NIC_QPA_RNR_RETRY)
		q->rnr_retry = qp->sq.rnr_retries = a->rnr_retry;
	if (mask & NIC_QPA_MIN_RNR_TIMER)
		q->min_rnr_timer = a->min_rnr_timer;
	if (mask & NIC_QPA_MAX_QP_RD_ATOMIC) {
		q->max_rd_atomic = a->max_rd_atomic;
		if (qp->sq.rd_limit >= a->max_rd_atomic)
			qp->sq.rd_limit = 0;
	}
	if (mask & NIC_QPA_MAX_DEST_RD_ATOMIC)
		q->max_dest_rd_atomic = qp->replay_limit = a->max_dest_rd_atomic;
}

static void enter_state(struct nic_qp *qp, enum nic_qp_state to, const struct nic_qp_attr *a,
			uint32_t mask)
{
	enum nic_qp_state from = qp->state;

	switch (to) {
	case NIC_QPS_RESET:
		reset(qp);
		break;
	case NIC_QPS_ERR:
		qp_error(qp);
		return;
	case NIC_QPS_RTS:
		qp->attr.sq_draining = false;
		if (from == NIC_QPS_RTR)
			qp_set_feature(qp, QP_LOOP,
				       qp_acknowledged(qp) &&
					       is_loop(qp, qp->port, &qp->attr.dgid));
		break;
	case NIC_QPS_SQD:
		if (from == NIC_QPS_RTS) {
			qp->attr.sq_draining = true;
			/* the event is raised once for each change to SQD */
			qp->events &= ~(1u << NIC_EVENT_SQ_DRAINED);
			qp->sq.drained_event = mask & NIC_QPA_EN_SQD_ASYNC_NOTIFY;
		}
		break;
	default:
		break;
	}
	qp_set_state(qp, to);
	if (to == NIC_QPS_RTS) {
		atomic_store_explicit(&qp->db_active, 1, memory_order_release);
		nic_schedule(qp);
	}
	if (to == NIC_QPS_SQD)
		sq_drained(qp);
}

int nic_qp_modify(struct nic *nic, struct nic_qp *qp, const struct nic_qp_attr *a, uint32_t mask,
		  uint64_t now)
{
	int rc = qp_check_modify(qp, a, mask);
	struct resp_entry *replay = NULL;

	if (rc)
		return rc;
	qp->pu->now = now;
	if (mask & NIC_QPA_MAX_DEST_RD_ATOMIC && a->max_dest_rd_atomic > qp->resp.replay_size) {
		replay = calloc(a->max_dest_rd_atomic, sizeof(*replay));
		if (!replay)
			return -ENOMEM;
	}
	if (mask & NIC_QPA_AV) {
		rc = take_path(qp, a, mask);
		if (rc) {
			free(replay);
			return rc;
		}
	}
	if (replay)
		give_replay(qp, replay, a->max_dest_rd_atomic);
	take_values(qp, a, mask);
	if (mask & NIC_QPA_PATH_MTU)
		take_mtu_of_path(qp, a->path_mtu);
	if (mask & NIC_QPA_STATE)
		enter_state(qp, a->state, a, mask);
	qp_end_lost(qp->pu);
	if (qp->pu->num_dirty)
		cq_notify_dirty(qp->pu);
	return 0;
}

void nic_qp_query(const struct nic_qp *qp, struct nic_qp_attr *a)
{
	*a = qp->attr;
	a->cur_state = a->state;
	a->sq_psn = qp->sq.psn_next & PKT_PSN_MASK;
	a->rq_psn = qp->resp.epsn & PKT_PSN_MASK;
}
