/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * QP 1, the general services interface: management datagrams of 256 bytes, sent and received as UD
 * SENDs with a Q_Key of their own (IBA 13.5.1, 3.9.4). It has no queues and no completions.
 * Received datagrams go to the host. A datagram that finds no space in the port waits (gsi_wait.c).
 * QP 1 belongs to the first PU.
 */
#include "nic/alive.h"
#include "nic/datagram.h"
#include "nic/tx.h"

enum pkt_error gsi_rx(struct pu *pu, const struct pu_port *pp, const struct port_pkt *pkt,
		      const struct pkt_view *v)
{
	const struct nic_config *cfg = &pu->nic->cfg;
	uint16_t ip_id = pkt->ip_id;
	struct icrc_flow flow;

	if (v->opcode != (PKT_UD | PKT_SEND_ONLY))
		return PKT_ERR_SERVICE;
	if (!cfg->ops->gsi || v->sqpn != NIC_GSI_QPN)
		return PKT_ERR_QPN;
	if (pkt_addr_is_group(pkt->dst))
		return PKT_ERR_GROUP;
	if (v->qkey != NIC_GSI_QKEY)
		return PKT_ERR_QKEY;
	if (v->payload_len != NIC_GSI_LEN)
		return PKT_ERR_SHORT;
	icrc_flow_init(&flow, pkt->src, pkt->dst, pkt->sport, PKT_UDP_PORT);
	if (!icrc_verify(&flow, pkt->flags & PORT_ID_KNOWN, &ip_id, pkt->bth, pkt->len))
		return PKT_ERR_ICRC;
	pu->ctr.rx_management++;
	cfg->ops->gsi(cfg->host, (unsigned)(pp - pu->ports), pkt->src, pkt->dst, v->payload);
	return PKT_OK;
}

/*
 * Keeps the paths to the last destinations. On shm a new path is another ring, so datagrams of one
 * connection could overtake each other. Each datagram asks the port for its path nevertheless, and
 * the port may return another one than before: udp_path_get().
 */
static void keep(struct nic *nic, struct dest *d)
{
	struct dest **oldest = &nic->gsi_dests[nic->gsi_oldest];

	for (unsigned i = 0; i < NIC_GSI_DESTS; i++) {
		if (nic->gsi_dests[i] == d)
			return;
	}
	if (*oldest)
		dest_put(*oldest);
	*oldest = d;
	d->refs++;
	nic->gsi_oldest = (nic->gsi_oldest + 1) % NIC_GSI_DESTS;
}

void gsi_forget(struct nic *nic)
{
	gsi_wait_end(nic);
	for (unsigned i = 0; i < NIC_GSI_DESTS; i++) {
		if (nic->gsi_dests[i])
			dest_put(nic->gsi_dests[i]);
		nic->gsi_dests[i] = NULL;
	}
}

void nic_gsi_expect(struct nic *nic, unsigned port_index, const struct pkt_addr *dst, unsigned n)
{
	struct port *port;

	if (port_index >= port_count(nic))
		return;
	port = nic->pus[0]->ports[port_index].port;
	if (port->ops->expect)
		port->ops->expect(port, dst, n);
}

int gsi_put(struct pu *pu, struct dest *d, uint8_t tclass, const uint8_t *mad)
{
	const uint32_t len =
		sizeof(struct pkt_bth) + sizeof(struct pkt_deth) + NIC_GSI_LEN + PKT_ICRC_LEN;
	struct port_buf buf;
	uint8_t *p;
	int rc = tx_begin_to(pu, d, tclass, len, &buf);

	if (rc)
		return rc;
	p = pkt_put_bth(buf.bth, PKT_UD | PKT_SEND_ONLY, PKT_BTH_MIGREQ, NIC_GSI_QPN, false,
			pu->nic->gsi_psn++);
	p = pkt_put_deth(p, NIC_GSI_QKEY, NIC_GSI_QPN);
	memcpy(p, mad, NIC_GSI_LEN);
	tx_end_to(pu, d, &buf, len);
	pu->ctr.tx_management++;
	return 0;
}

int nic_gsi_stage(struct nic *nic, unsigned port_index, const struct pkt_addr *dst, uint8_t tclass,
		  const uint8_t *mad)
{
	struct pu *pu = nic->pus[0];
	struct dest *d;
	int rc;

	if (port_index >= port_count(nic) || pkt_addr_is_group(dst))
		return -EINVAL;
	rc = dest_get(pu, (uint8_t)port_index, dst, NIC_GSI_QPN, &d);
	if (rc)
		return rc;
	keep(nic, d);
	/* a datagram does not overtake those that wait */
	rc = d->num_gsi_waiting ? -EAGAIN : gsi_put(pu, d, tclass, mad);
	if (rc == -EAGAIN)
		rc = gsi_wait(pu, d, tclass, mad);
	dest_put(d);
	return rc;
}

void nic_gsi_flush(struct nic *nic, unsigned port_index)
{
	struct pu_port *pp = &nic->pus[0]->ports[port_index];

	tx_flush(pp);
	/* Hints are handled now, because the next turn may come late. */
	if (pp->port->num_hints)
		alive_hints(nic->pus[0], pp->port);
}

int nic_gsi_send(struct nic *nic, unsigned port_index, const struct pkt_addr *dst, uint8_t tclass,
		 const uint8_t *mad)
{
	int rc = nic_gsi_stage(nic, port_index, dst, tclass, mad);

	if (rc == 0)
		nic_gsi_flush(nic, port_index);
	return rc;
}
