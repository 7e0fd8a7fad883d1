/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Unreliable datagrams (IBA 9.8.3): a message is one packet. Its WQE names the destination, and any
 * sender with the Q_Key is accepted. A receive begins with 40 bytes for a global route header. On
 * RoCE v2 they hold the IP header: an IPv6 header fills them, an IPv4 header is in the last 20
 * bytes (A17.4.5.2; Linux union rdma_network_hdr).
 *
 * A queue pair sends to many receivers. One that stops reading must not keep it from sending to the
 * others, so datagrams for which there is no space count as lost after a while (dest_gives_up()).
 */
#include "nic/cq.h"
#include "nic/datagram.h"
#include "nic/responder.h"
#include "nic/tx.h"
#include "packet/ip.h"

#define GRH_LEN 40

/*
 * A Q_Key with the highest bit set in a WQE selects the QP's own Q_Key (IBA 10.2.5).
 */
#define QKEY_OWN 0x80000000u

uint8_t ud_address(const struct nic_qp *qp, const struct sq_entry *e, struct nic_ah **out)
{
	struct nic_ah *ah = ah_find(qp->nic, (uint32_t)e->wqe.raddr);

	if (unlikely(!ah || ah->port_num != qp->attr.port))
		return NIC_WC_LOC_QP_OP_ERR;
	if (unlikely(e->len > ah->mtu)) /* the MTU of its port may be less than that of the QP */
		return NIC_WC_LOC_LEN_ERR;
	if (unlikely(ah->pd != qp->pd))
		return NIC_WC_LOC_PROT_ERR;
	*out = ah;
	return NIC_WC_SUCCESS;
}

/*
 * Handles a datagram for which the port has no space. The memory of its payload is checked even if
 * the datagram counts as lost, so that its errors do not depend on the receiver.
 */
static __attribute__((noinline)) int no_space(struct nic_qp *qp, struct sq_entry *e, struct dest *d)
{
	uint8_t unused[PKT_MAX_LEN];
	int rc;

	if (!dest_gives_up(qp, d))
		return -EAGAIN;
	rc = e->len ? sq_gather(qp, e, 0, unused, e->len) : 0;
	if (!rc)
		qp->pu->ctr.tx_ud_dropped++;
	return rc;
}

int ud_send_packet(struct nic_qp *qp, struct sq_entry *e, const struct nic_ah *ah, struct dest *d)
{
	const struct roost_wqe *w = &e->wqe;
	bool imm = e->op == ROOST_OP_SEND_IMM;
	uint8_t opcode = imm ? PKT_UD + PKT_SEND_ONLY_IMM : PKT_UD + PKT_SEND_ONLY;
	uint32_t pad = -e->len & 3, len = pkt_ops[opcode].hdr_len + e->len + pad + PKT_ICRC_LEN;
	uint8_t flags = (uint8_t)(PKT_BTH_MIGREQ | pad << PKT_BTH_PAD_SHIFT), *p;
	struct port_buf buf;
	int rc;

	if (w->flags & ROOST_WQE_SOLICITED)
		flags |= PKT_BTH_SE;
	rc = tx_begin_to(qp->pu, d, ah->tos, len, &buf);
	if (unlikely(rc))
		return rc == -EAGAIN ? no_space(qp, e, d) : rc;
	p = pkt_put_bth(buf.bth, opcode, flags, ROOST_UD_QPN(w->raddr), false, e->psn);
	p = pkt_put_deth(p, w->rkey & QKEY_OWN ? qp->attr.qkey : w->rkey, qp->qpn);
	if (imm)
		p = pkt_put_imm(p, w->imm);
	if (e->len) {
		rc = sq_gather(qp, e, 0, p, e->len);
		if (unlikely(rc)) {
			tx_cancel_to(qp->pu, d);
			return rc;
		}
		tx_pad(p, e->len);
	}
	tx_end_to(qp->pu, d, &buf, len);
	return 0;
}

static void drop(struct nic_qp *qp)
{
	qp->pu->ctr.rx_ud_dropped++;
	resp_keep_recv(&qp->resp);
}

/*
 * Builds the IP header from the fields that the port reports: addresses, type of service,
 * identification, length.
 */
static void put_grh(uint8_t grh[GRH_LEN], const struct port_pkt *pkt)
{
	size_t skip = pkt_addr_is_v4(pkt->src) ? GRH_LEN - IP4_HDR_LEN : 0;

	memset(grh, 0, skip);
	ip_put_header(grh + skip, pkt->src, pkt->dst, pkt->tos,
		      pkt->ip_id | (pkt->flags & PORT_NO_DF ? IP_NO_DF : 0),
		      (uint16_t)(8 + pkt->len));
}

void ud_rx(struct nic_qp *qp, const struct pkt_view *v, const struct port_pkt *pkt)
{
	struct cqe_fields f = {
		.status = NIC_WC_SUCCESS,
		.opcode = NIC_WC_RECV,
		.flags = NIC_WC_GRH,
		.byte_len = GRH_LEN + v->payload_len,
		.src_qpn = v->sqpn,
		.sl = pkt_addr_is_v4(pkt->src) ? ROOST_CQE_IPV4 : ROOST_CQE_IPV6,
		.solicited = v->solicited,
	};
	uint8_t grh[GRH_LEN], nak;

	if (unlikely(v->qkey != qp->attr.qkey)) {
		qp->pu->ctr.rx_bad_qkey++;
		return;
	}
	if (unlikely(v->payload_len > qp->mtu)) {
		drop(qp);
		return;
	}
	if (unlikely(!qp->resp.has_recv && !resp_take_recv(qp))) {
		qp->pu->ctr.out_of_buffer++;
		drop(qp);
		return;
	}
	put_grh(grh, pkt);
	nak = resp_scatter_or_nak(qp, grh, GRH_LEN);
	if (!nak)
		nak = resp_scatter_or_nak(qp, v->payload, v->payload_len);
	if (unlikely(nak)) {
		drop(qp);
		/* a local error; the receive has completed (IBA 9.9.3, class A) */
		if (nak == PKT_NAK_REM_OP)
			qp_error(qp);
		return;
	}
	if (v->op->flags & PKT_IMM) {
		f.flags |= NIC_WC_WITH_IMM;
		f.imm = v->imm;
	}
	qp->pu->ctr.rx_send_requests++;
	resp_complete_recv(qp, &f);
}
