/* SPDX-License-Identifier: BSD-2-Clause */
/* One packet out: room in the port, then the ICRC over what was put there. */
#ifndef ROOST_NIC_TX_H
#define ROOST_NIC_TX_H

#include "nic/core.h"

/* Room for a packet of `len` bytes, BTH .. ICRC, to the QP's peer. 0 or -EAGAIN. */
static inline int tx_begin(struct nic_qp *qp, uint32_t len, struct port_room *room)
{
	struct dest *d = qp->dest;
	int rc = d->port->ops->reserve(d->port, d->path, len, qp->tos, room);

	if (unlikely(rc))
		qp->pu->ports[qp->port].blocked = true;
	return rc;
}

/* The packet is complete but for its ICRC. */
static inline void tx_end(struct nic_qp *qp, const struct port_room *room, uint32_t len)
{
	icrc_store(room->bth + len - PKT_ICRC_LEN, icrc_compute(&qp->dest->tx, room->ip_id, room->bth, len));
	qp->pu->ctr.sent_pkts++;
	qp->pu->ctr.sent_bytes += len;
}

static inline void tx_cancel(struct nic_qp *qp)
{
	qp->dest->port->ops->cancel(qp->dest->port);
}

/* Zeroes the padding behind `n` bytes of payload at p; returns how much it is. */
static inline uint32_t tx_pad(uint8_t *p, uint32_t n)
{
	uint32_t pad = -n & 3;

	for (uint32_t i = 0; i < pad; i++)
		p[n + i] = 0;
	return pad;
}

#endif
