/* SPDX-License-Identifier: BSD-2-Clause */
/* Destinations: the window, the round trips and the liveness of a peer. */
#ifndef ROOST_NIC_DEST_H
#define ROOST_NIC_DEST_H

#include "base/list.h"
#include "base/wheel.h"
#include "nic/cc.h"
#include "nic/nic.h"

struct pu;

/*
 * A destination of one PU: an address and a slot. All QPs of the PU that send to it share its
 * window.
 */
struct dest {
	struct list_head link;
	struct port *port;
	struct port_path *path;
	struct pu *pu;
	uint8_t port_index, slot; /* the slot is the peer's */
	/* alive.c waits for a packet, and none has come since. [any PU's owner] */
	atomic_bool awaits_rx;
	uint32_t refs;
	struct cc cc;
	uint32_t inflight;
	/* bytes sent on unacknowledged services; the number decays with time */
	uint32_t unacked_bytes;
	uint64_t unacked_at; /* time of the last decay */
	/* ns; 0: no sample yet. rtt_min is the smallest sample */
	uint64_t srtt, rttvar, rtt_min;
	/*
	 * ns; 1.5 times the round trip of a packet with nothing else in flight, or an estimate; 0:
	 * unknown
	 */
	uint64_t base_rtt;
	bool base_rtt_measured; /* base_rtt was measured with a packet that was sent once */
	struct list_head waiters;
	/*
	 * table for dest_of_datagram(): by slot if the port is shared, otherwise by lane key; NULL:
	 * not used yet
	 */
	struct dest_slot *slots;
	/* liveness of the peer: alive.c */
	struct list_head qps;
	struct wheel_timer alive_timer; /* its owner is NULL, unlike a QP's timer */
	uint64_t suspected;		/* time when the suspicion began; 0: not suspected */
	uint64_t hinted_at, probed_at;	/* times of the last hint and of the last probe */
	uint32_t num_hints, unanswered;
	uint32_t num_keepalive; /* QPs with keep-alive */
	struct icrc_flow tx, rx;
	/* nic->ticks at the last packet that ended `awaits_rx`. [any PU's owner] */
	_Atomic uint64_t rx_tick;
	uint64_t reader_at; /* time and result of the last port_reader_of() */
	enum port_reader reader;
	/*
	 * the tick of alive_await_rx() when the peer was found stalled; 0: a packet has come since
	 */
	uint64_t stalled_at;
	/* datagrams of QP 1 that wait for space, if there are any: gsi_wait.c */
	struct list_head gsi_waiting, gsi_link;
	unsigned num_gsi_waiting;
};

/*
 * Gets a reference to the destination of an address and of the slot of `dqpn`, and creates the
 * destination if there is none. Returns 0, -ENOMEM, or the error of the port if it cannot reach the
 * address.
 */
int dest_get(struct pu *pu, uint8_t port, const struct pkt_addr *addr, uint32_t dqpn,
	     struct dest **out);
/* Drops a reference. The last one frees the destination. */
void dest_put(struct dest *d);
/*
 * Makes the destinations of all lanes of the peer at the address of `d`, so that dest_of_datagram()
 * finds them. Has no effect if the port steers by slots, or the address is a group. Returns 0 or
 * the error of dest_get(). Control path.
 */
int dest_make_lanes(struct dest *d);
/* Does the slow part of dest_of_datagram(). */
struct dest *dest_look_up(struct dest *d, uint32_t dqpn);
bool dest_admit(struct nic_qp *qp, uint32_t bytes);
/* Does the work of dest_release() for a destination with a window. */
void dest_window_release(struct dest *d, uint32_t bytes);
bool dest_admit_unacked(struct nic_qp *qp, struct dest *d, uint32_t bytes);
/* Counts the bytes of a packet that was sent on an unacknowledged service. */
void dest_sent_unacked(struct dest *d, uint32_t bytes);
/*
 * Called when a datagram found no space in the port. Returns true if it counts as lost, because the
 * receiver has taken no packet for too long. Otherwise a timer of the QP runs until then.
 */
bool dest_gives_up(struct nic_qp *qp, struct dest *d);
void dest_lost(struct dest *d);
void dest_cnp(struct dest *d);
void dest_rtt(struct dest *d, uint64_t ns, bool alone);
void dest_waited(struct dest *d, uint64_t ns, uint64_t last);
uint64_t dest_rto(const struct dest *d);
/*
 * Returns true if the READ window of the path allows the request. Otherwise the QP waits in the
 * list of the port.
 */
bool dest_admit_read(struct nic_qp *qp, uint32_t bytes);
/* Counts READ bytes as received, and schedules the QPs that wait for the READ window. */
void dest_release_read(struct nic_qp *qp, uint32_t bytes);

/* An entry of dest.slots: the destination of one slot or lane key, for datagrams. */
struct dest_slot {
	struct dest *dest;	  /* NULL: not looked up yet */
	uint32_t path_generation; /* `path_generation` of the port at the look-up */
};

/*
 * Returns the destination of a datagram to a QP, where `d` is the destination of its address
 * handle. An address that several programs share has a destination for each slot, and the address
 * of one program has one for each lane key. The number of our lanes does not matter: the peer may
 * have another number.
 */
static inline struct dest *dest_of_datagram(struct dest *d, uint32_t dqpn)
{
	const struct dest_slot *s;

	if (!d->port->shared) /* without a table: a group */
		return likely(d->slots != NULL) ? d->slots[PORT_LANE_KEY_OF_QPN(dqpn)].dest : d;
	s = d->slots ? &d->slots[PORT_SLOT_OF_QPN(dqpn)] : NULL;
	return likely(s && s->dest && s->path_generation == d->port->path_generation)
		       ? s->dest
		       : dest_look_up(d, dqpn);
}

/*
 * Counts READ bytes that were requested. They count for the port's window only if the path has one.
 */
static inline void dest_requested(struct nic_qp *qp, uint32_t bytes)
{
	qp->sq.read_bytes += bytes;
	if (qp->dest->path->read_window)
		qp->pu->ports[qp->port].read_out += bytes;
}

/*
 * Counts the bytes of a packet that was sent on an acknowledged service. A destination without a
 * window counts none.
 */
static inline void dest_sent(struct dest *d, uint32_t bytes, uint64_t now)
{
	if (!d->cc.window)
		return;
	d->inflight += bytes;
	if (d->cc.ops->on_sent)
		d->cc.ops->on_sent(&d->cc, bytes, now);
}

/* Counts bytes of a QP as no longer in flight, and schedules the QPs that wait for the window. */
static inline void dest_release(struct nic_qp *qp, uint32_t bytes)
{
	ROOST_ASSERT(bytes <= qp->sq.inflight);
	qp->sq.inflight -= bytes;
	if (qp->dest->cc.window)
		dest_window_release(qp->dest, bytes);
}

/* Tells the controller of a window of acknowledged bytes. */
static inline void dest_acked(struct dest *d, uint32_t bytes, uint64_t now)
{
	if (d->cc.window)
		d->cc.ops->on_acked(&d->cc, bytes, now);
}

#endif
