/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Delivery of received packets to QPs. This file does all checks that do not need the transport's
 * state, once: length, op-code, P_Key, QP and its state, service, source address, ICRC. The code
 * after it relies on these checks.
 */
#include "nic/alive.h"
#include "nic/datagram.h"
#include "nic/dest.h"
#include "nic/requester.h"
#include "nic/responder.h"

static void count_refused(struct nic_counters *c, enum pkt_error why)
{
	switch (why) {
	case PKT_ERR_SHORT:
		c->rx_short++;
		break;
	case PKT_ERR_OPCODE:
		c->rx_bad_opcode++;
		break;
	case PKT_ERR_VERSION:
		c->rx_bad_version++;
		break;
	case PKT_ERR_PAD:
		c->rx_bad_pad++;
		break;
	case PKT_ERR_ICRC:
		c->rx_icrc_encapsulated++;
		break;
	case PKT_ERR_PKEY:
		c->rx_bad_pkey++;
		break;
	case PKT_ERR_QPN:
		c->rx_bad_qpn++;
		break;
	case PKT_ERR_SOURCE:
		c->rx_bad_source++;
		break;
	case PKT_ERR_SERVICE:
		c->rx_bad_service++;
		break;
	case PKT_ERR_QKEY:
		c->rx_bad_qkey++;
		break;
	case PKT_ERR_GROUP:
		c->rx_bad_group++;
		break;
	case PKT_OK:
	case PKT_ERR_COUNT:
		break;
	}
}

/*
 * P_Keys match if their lower 15 bits are equal and one of them is a full member (IBA 10.9.3). The
 * NIC's P_Key is 0xffff.
 */
static bool pkey_ok(uint16_t pkey)
{
	return (pkey & 0x7fff) == (PKT_PKEY_DEFAULT & 0x7fff);
}

bool rx_icrc_right(const struct icrc_flow *flow, struct port_pkt *pkt)
{
	enum icrc_result r =
		icrc_verify(flow, pkt->flags & PORT_ID_KNOWN, &pkt->ip_id, pkt->bth, pkt->len);

	if (unlikely(r == ICRC_RIGHT_NO_DF))
		pkt->flags |= PORT_NO_DF;
	return r != ICRC_WRONG;
}

struct icrc_flow *rx_ud_flow(struct pu_port *pp, const struct port_pkt *pkt)
{
	struct icrc_flow *f = &pp->ud_rx;

	if (unlikely(f->sport != pkt->sport || !pkt_addr_eq(pkt->src, &f->src) ||
		     !pkt_addr_eq(pkt->dst, &f->dst)))
		icrc_flow_init(f, pkt->src, pkt->dst, pkt->sport, PKT_UDP_PORT);
	return f;
}

/* Returns the flow of the peer's packets on a connection. */
static struct icrc_flow *connection_flow(struct nic_qp *qp, const struct port_pkt *pkt)
{
	struct icrc_flow *f = &qp->dest->rx;

	if (unlikely(f->sport != pkt->sport))
		icrc_flow_init(f, pkt->src, &f->dst, pkt->sport, PKT_UDP_PORT);
	return f;
}

/*
 * A connection has one address at each end. A datagram may have any source, and any address of the
 * QP's port number as its destination.
 */
static bool source_ok(const struct nic_qp *qp, const struct pu_port *pp, const struct port_pkt *pkt)
{
	if (qp->type == NIC_QPT_UD)
		return pp->num == qp->attr.port;
	return &qp->pu->ports[qp->port] == pp && pkt_addr_eq(pkt->src, &qp->dest->rx.src);
}

/*
 * The largest distance from the expected PSN of a request with a new source port. It is larger than
 * the number of packets in flight on any known path.
 */
#define PORT_WINDOW 8192

/*
 * Returns true if the connection may change to this packet's source port. All packets of a
 * connection have the source port of the first one, so a forger has to guess it. Hardware may
 * change the port later to change the path (mlx5dv_modify_qp_udp_sport(3)); the packet's PSN must
 * then be plausible. The first packet of UC may have any PSN, since packets before it may be lost.
 */
static bool may_change_port(const struct nic_qp *qp, const struct pkt_view *v)
{
	uint32_t first = qp->resp.epsn - PORT_WINDOW, end = qp->resp.epsn + PORT_WINDOW, psn;

	if (qp->type == NIC_QPT_UC && qp->peer_port > UINT16_MAX)
		return true;
	if (v->op->flags & PKT_RESPONSE) { /* first: the answer to a probe of alive.c */
		first = qp->sq.psn_una - 1;
		end = qp->sq.psn_max + 1;
	}
	psn = psn_extend(first, v->psn);
	return !psn_before(psn, first) && psn_before(psn, end);
}

/*
 * Handles a packet from a new source port. A CNP (A17.9.3) has no PSN, and may have another source
 * port than the data.
 */
static __attribute__((noinline)) enum pkt_error change_port(struct nic_qp *qp, struct port_pkt *pkt,
							    const struct pkt_view *v)
{
	if (v->opcode == PKT_CNP)
		return PKT_OK;
	if (!may_change_port(qp, v))
		return PKT_ERR_SOURCE;
	if (!rx_icrc_right(connection_flow(qp, pkt), pkt))
		return PKT_ERR_ICRC;
	qp->peer_port = pkt->sport;
	return PKT_OK;
}

/*
 * Stands for a reserved op-code of RC, and for a private op-code on a QP whose ends did not agree
 * to it. The packet is a request for an unsupported function, which the responder refuses (resp.c).
 * Its headers are unknown and not parsed.
 */
static const struct pkt_op unsupported = {
	.name = "unsupported", .flags = PKT_REQUEST, .service = PKT_RC};

/* Returns true if both ends agreed to the private op-code. */
static bool agreed(const struct nic_qp *qp, const struct pkt_view *v)
{
	return qp_has(qp, v->op->flags & PKT_NEEDS_RPC ? QP_RPC : QP_CALC);
}

static enum pkt_error check(struct pu *pu, struct pu_port *pp, struct port_pkt *pkt,
			    struct pkt_view *v, struct nic_qp **out)
{
	enum pkt_error err = pkt_parse(pkt->bth, pkt->len, v);
	struct icrc_flow *flow;
	struct nic_qp *qp;
	bool answers;

	if (unlikely(err == PKT_ERR_OPCODE && (v->opcode & PKT_SERVICE_MASK) == PKT_RC))
		v->op = &unsupported;
	else if (unlikely(err != PKT_OK))
		return err;
	if (unlikely(!pkey_ok(v->pkey)))
		return PKT_ERR_PKEY;
	if (unlikely(v->dqpn == NIC_GSI_QPN))
		return gsi_rx(pu, pp, pkt, v);
	if (unlikely(v->dqpn == NIC_MCAST_QPN))
		return mcast_rx(pu, pp, pkt, v);
	/* A queue pair of another PU may be freed at this moment. */
	if (pu->nic->cfg.pus > 1 && PORT_LANE_OF_QPN(v->dqpn, pu->nic->cfg.pus) != pu->index)
		return PKT_ERR_QPN;
	qp = nic_find_qp(pu->nic, v->dqpn);
	if (unlikely(!qp || qp->pu != pu))
		return PKT_ERR_QPN;
	if (unlikely(qp->state < NIC_QPS_RTR || (qp->state == NIC_QPS_ERR && !qp->resp.last_nak)))
		return PKT_ERR_QPN;
	if (unlikely(v->op->service != qp->service && v->opcode != PKT_CNP))
		return PKT_ERR_SERVICE;
	answers = v->op->flags & PKT_RESPONSE;
	if (unlikely(answers && qp->state == NIC_QPS_RTR))
		return PKT_ERR_QPN;
	if (unlikely(v->op->flags & (PKT_NEEDS_RPC | PKT_NEEDS_CALC) && !agreed(qp, v)))
		v->op = &unsupported;
	if (unlikely(!source_ok(qp, pp, pkt)))
		return PKT_ERR_SOURCE;
	if (qp->type == NIC_QPT_UD) {
		/*
		 * Only packets with the QP number of multicast may have a group as their
		 * destination.
		 */
		if (unlikely(pkt_addr_is_group(pkt->dst)))
			return PKT_ERR_GROUP;
		flow = rx_ud_flow(pp, pkt);
	} else {
		if (unlikely(pkt->sport != qp->peer_port)) {
			err = change_port(qp, pkt, v);
			if (err != PKT_OK)
				return err;
		}
		flow = connection_flow(qp, pkt);
	}
	if (unlikely(!rx_icrc_right(flow, pkt)))
		return PKT_ERR_ICRC;
	if (unlikely(qp->state == NIC_QPS_ERR)) {
		if (!answers)
			resp_refuse_again(qp, v);
		return PKT_ERR_QPN;
	}
	*out = qp;
	return PKT_OK;
}

/*
 * The number of packets by which a prefetch of headers, and of a QP, is ahead. If packets of many
 * QPs alternate, each QP is probably out of the caches.
 */
#define HEADERS_AHEAD 6
#define QP_AHEAD      3

/* Prefetches for packets behind p[0]. `n`: number of packets from p[0] on. */
static __attribute__((noinline)) void prefetch_next(struct nic *nic, const struct port_pkt *p,
						    int n)
{
	const struct pkt_bth *bth;
	const struct nic_qp *qp;

	if (n > HEADERS_AHEAD)
		__builtin_prefetch(p[HEADERS_AHEAD].bth);
	if (n <= QP_AHEAD || p[QP_AHEAD].len < sizeof(*bth))
		return;
	bth = (const void *)p[QP_AHEAD].bth;
	qp = nic_peek_qp(nic, (uint32_t)(bth->dqpn[0] << 16 | bth->dqpn[1] << 8 | bth->dqpn[2]));
	if (!qp)
		return;
	if (pkt_ops[bth->opcode].flags & PKT_RESPONSE)
		qp_prefetch_requester(qp);
	else
		qp_prefetch_responder(qp);
}

void rx_packets(struct pu *pu, struct pu_port *pp, struct port_pkt *pkts, int n)
{
	pu->rx_at = pu->now;
	for (int i = 0; i < n; i++) {
		struct nic_qp *qp = NULL;
		struct pkt_view v;
		enum pkt_error err;

		pu->rx_last = i + 1 == n;
		if (i + 1 < n) {
			__builtin_prefetch(pkts[i + 1].bth);
			__builtin_prefetch(pkts[i + 1].bth + 64);
		}
		pu->ctr.rcvd_pkts++;
		pu->ctr.rcvd_bytes += pkts[i].len;
		err = check(pu, pp, &pkts[i], &v, &qp);
		if (unlikely(err != PKT_OK)) {
			count_refused(&pu->ctr, err);
			continue;
		}
		if (unlikely(!qp)) { /* delivered to QP 1 or to a multicast group */
			qp_end_lost(pu);
			continue;
		}
		if (qp != pu->rx_qp) {
			if (likely(pu->rx_qp))
				pu->rx_mixed = pu->now;
			pu->rx_qp = qp;
			prefetch_next(pu->nic, pkts + i, n - i);
		}
		if (unlikely(qp->dest &&
			     atomic_load_explicit(&qp->dest->awaits_rx, memory_order_acquire)))
			alive_rx(qp->dest);
		if (unlikely(pkts[i].flags & PORT_CE))
			resp_congested(qp, &v);
		if (unlikely(v.opcode == PKT_CNP)) {
			pu->ctr.rp_cnp_handled++;
			if (qp->dest)
				dest_cnp(qp->dest);
		} else if (v.op->flags & PKT_RESPONSE) {
			req_rx(qp, &v);
		} else if (v.op->service == PKT_UC) {
			uc_rx(qp, &v);
		} else if (v.op->service == PKT_UD) {
			ud_rx(qp, &v, &pkts[i]);
		} else {
			resp_rx(qp, &v);
		}
		qp_end_lost(pu); /* before the packet is acknowledged */
	}
}
