/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Transmission of a packet: space in the port, then the ICRC; and the burst of a QP's turn. If the
 * port allows it (port.h, `lag`), a packet's ICRC is computed after the next packet is built.
 */
#ifndef ROOST_NIC_TX_H
#define ROOST_NIC_TX_H

#include "nic/core.h"
#include "nic/dest.h"
#include "nic/dma.h"
#include "packet/crc32.h"

/*
 * Reserves space for a packet of `len` bytes, BTH .. ICRC, to a destination. Returns 0 or
 * -EAGAIN.
 */
static inline int tx_begin_to(struct pu *pu, struct dest *d, uint8_t tos, uint32_t len,
			      struct port_buf *buf)
{
	int rc = d->port->ops->reserve(d->port, d->path, len, tos, buf);

	if (unlikely(rc))
		pu->ports[d->port_index].blocked = true;
	return rc;
}

/* Reserves the same for a packet to the QP's peer. */
static inline int tx_begin(struct nic_qp *qp, uint32_t len, struct port_buf *buf)
{
	return tx_begin_to(qp->pu, qp->dest, qp->tos, len, buf);
}

static inline void tx_finish(const struct late_packet *p)
{
	icrc_store(p->bth + p->len - PKT_ICRC_LEN, icrc_compute(p->flow, p->ip_id, p->bth, p->len));
}

/* Ends a packet that is complete except for its ICRC, and counts it. */
static inline void tx_end_to(struct pu *pu, const struct dest *d, const struct port_buf *buf,
			     uint32_t len)
{
	struct late_packet this = {buf->bth, &d->tx, len, buf->ip_id}, *late;

	if (d->port->lag && d->path->lag) {
		late = &pu->ports[d->port_index].late;
		if (late->bth)
			tx_finish(late);
		*late = this;
	} else {
		tx_finish(&this);
	}
	pu->ctr.sent_pkts++;
	pu->ctr.sent_bytes += len;
}

static inline void tx_end(struct nic_qp *qp, const struct port_buf *buf, uint32_t len)
{
	tx_end_to(qp->pu, qp->dest, buf, len);
}

static inline void tx_finish_late(struct pu_port *pp)
{
	if (pp->late.bth)
		tx_finish(&pp->late);
	pp->late.bth = NULL;
}

/* Flushes the port. */
static inline void tx_flush(struct pu_port *pp)
{
	tx_finish_late(pp);
	pp->blocked = !pp->port->ops->flush(pp->port);
}

/* Cancels a packet that can't be built. Completes the previous packet first. */
static inline void tx_cancel_to(struct pu *pu, const struct dest *d)
{
	tx_finish_late(&pu->ports[d->port_index]);
	d->port->ops->cancel(d->port);
}

static inline void tx_cancel(struct nic_qp *qp)
{
	tx_cancel_to(qp->pu, qp->dest);
}

/*
 * Zeroes the padding behind `n` bytes of payload at p, and the bytes behind it up to a word, where
 * the ICRC comes later. Returns the length of the padding.
 */
static inline uint32_t tx_pad(uint8_t *p, uint32_t n)
{
	memset(p + n, 0, PKT_ICRC_LEN);
	return -n & 3;
}
_Static_assert(PKT_ICRC_LEN > 3, "the padding has up to 3 bytes");

/* Contiguous payload of at least this length is copied and checksummed in one pass. */
#define TX_ONE_PASS 2048

/*
 * Copies n bytes of payload to p, behind the headers, pads the packet and ends it. Returns 0, or
 * -EFAULT; the caller must then call tx_cancel().
 */
static inline int tx_end_copied(struct nic_qp *qp, const struct port_buf *buf, uint8_t *p,
				const void *src, uint32_t n, uint32_t len)
{
	struct pu *pu = qp->pu;
	uint32_t crc = icrc_begin(&qp->dest->tx, buf->ip_id, buf->bth, (size_t)(p - buf->bth), len),
		 pad;

	if (unlikely(dma_load_crc(p, src, n, &crc)))
		return -EFAULT;
	pad = tx_pad(p, n);
	if (pad)
		crc = crc32_update(crc, p + n, pad);
	icrc_store(p + n + pad, crc);
	tx_finish_late(&pu->ports[qp->dest->port_index]);
	pu->ctr.sent_pkts++;
	pu->ctr.sent_bytes += len;
	return 0;
}

/*
 * The most packets that a QP sends before the next QP's turn. A port that batches sets another
 * number, but the bytes are limited as well.
 */
#define NIC_TX_BURST 32
#define NIC_TX_BYTES (NIC_TX_BURST * 4096u)

/* The part of a QP's turn that is left. */
struct tx_burst {
	uint32_t packets;
	uint32_t copy; /* bytes that loop-back may copy */
	uint64_t end;  /* value of the PU's sent_bytes at which the turn ends */
};

/*
 * Begins a QP's turn. Calls and replies leave in parts, so that the other side works on the first
 * part while this side builds the next one. If they left in one burst, all calls in flight would go
 * back and forth together, and one side would always wait.
 */
static inline struct tx_burst tx_burst(const struct nic_qp *qp)
{
	uint32_t batch = qp->dest ? qp->dest->path->batch : qp->pu->ports[qp->port].port->batch;

	if (unlikely(qp_has(qp, QP_RPC)) && batch / 4)
		batch /= 4;
	return (struct tx_burst){.packets = batch ? batch : NIC_TX_BURST,
				 .end = qp->pu->ctr.sent_bytes + NIC_TX_BYTES};
}

static inline bool tx_goes_on(const struct nic_qp *qp, struct tx_burst *burst)
{
	return burst->packets-- && qp->pu->ctr.sent_bytes < burst->end;
}

#endif
