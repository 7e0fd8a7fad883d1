/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Destinations and their windows. The receive buffer of a socket is small, all QPs that send to it
 * share it, and loopback has no flow control. So each destination (an address and a slot) limits
 * the bytes in flight of all its QPs, and each port limits the READ bytes that were requested. A
 * congestion controller (cc.h) sets the window.
 *
 * Packets of an unacknowledged service get no ACK. They count as received at a rate of one window
 * in DIGEST_NS, which is slower than a running receiver. The service may lose packets nevertheless.
 */
#include <stdlib.h>

#include "base/assert.h"
#include "nic/alive.h"
#include "nic/dest.h"
#include "nic/requester.h"
#include "nic/tx.h"

#define MIN_WINDOW_PACKETS 8
#define DIGEST_SHIFT	   18
#define DIGEST_NS	   (1u << DIGEST_SHIFT)
#define RTO_MAX_NS	   1000000000u
/*
 * The longest wait of a datagram for a receiver that takes no packets. All datagrams behind it in
 * the send queue wait, too, whatever their destination. A receiver that runs takes packets within
 * this time even if it shares its core with a few threads, each of which runs for 3 to 4 ms (the
 * slices of Linux).
 */
#define NO_READER_NS 20000000u

static void open_window(struct dest *d)
{
	uint32_t floor = MIN_WINDOW_PACKETS * (d->port->mtu + PKT_MAX_HEADERS);
	uint32_t window = d->path->window;

	d->cc = (struct cc){
		.ops = &cc_window, .min = floor < window ? floor : window, .max = window};
	d->cc.ops->init(&d->cc);
}

int dest_get(struct pu *pu, uint8_t port_index, const struct pkt_addr *addr, uint32_t dqpn,
	     struct dest **out)
{
	struct port *port = pu->ports[port_index].port;
	struct port_path *path = port->ops->path_get(port, addr, dqpn);
	struct list_head *l;
	struct dest *d;

	if (!path)
		return errno ? -errno : -EHOSTUNREACH;
	list_for_each (l, &pu->dests) {
		d = list_entry(l, struct dest, link);
		if (d->path == path && d->slot == PORT_SLOT_OF_QPN(dqpn)) {
			/* a destination has one reference to its path */
			port->ops->path_put(port, path);
			d->refs++;
			*out = d;
			return 0;
		}
	}
	d = calloc(1, sizeof(*d));
	if (!d) {
		port->ops->path_put(port, path);
		return -ENOMEM;
	}
	d->port = port;
	d->path = path;
	d->pu = pu;
	d->port_index = port_index;
	d->slot = PORT_SLOT_OF_QPN(dqpn);
	d->refs = 1;
	open_window(d);
	list_init(&d->waiters);
	list_init(&d->qps);
	d->awaits_rx = true; /* alive_await_rx() may have run before this destination existed */
	icrc_flow_init(&d->tx, &port->addr, addr, path->sport, PKT_UDP_PORT);
	icrc_flow_init(&d->rx, addr, &port->addr, PKT_UDP_PORT, PKT_UDP_PORT);
	spin_lock(&pu->nic->dests_lock);
	list_add_tail(&d->link, &pu->dests);
	spin_unlock(&pu->nic->dests_lock);
	*out = d;
	return 0;
}

/* Releases a slot. A destination has no reference to itself. */
static void slot_put(const struct dest *d, struct dest_slot *s)
{
	if (s->dest && s->dest != d)
		dest_put(s->dest);
	s->dest = NULL;
}

static unsigned num_slots(const struct dest *d)
{
	return d->port->shared ? PORT_SLOTS : PORT_LANE_KEYS;
}

/* Sets entry `i` of the table to the destination of a QP number. Returns 0 or -errno. */
static int fill_slot(struct dest *d, unsigned i, uint32_t dqpn)
{
	struct dest *found;
	int rc;

	if (!d->slots)
		d->slots = calloc(num_slots(d), sizeof(*d->slots));
	if (!d->slots)
		return -ENOMEM;
	rc = dest_get(d->pu, d->port_index, &d->path->dst, dqpn, &found);
	if (rc)
		return rc;
	slot_put(d, &d->slots[i]);
	if (found == d)
		dest_put(found);
	d->slots[i] = (struct dest_slot){found, d->port->path_generation};
	return 0;
}

int dest_make_lanes(struct dest *d)
{
	if (d->port->shared || pkt_addr_is_group(&d->path->dst))
		return 0;
	for (unsigned key = 0; key < PORT_LANE_KEYS; key++) {
		int rc = d->slots && d->slots[key].dest
				 ? 0
				 : fill_slot(d, key, PORT_QPN_OF_LANE_KEY(key));

		if (rc)
			return rc;
	}
	return 0;
}

struct dest *dest_look_up(struct dest *d, uint32_t dqpn)
{
	unsigned slot = PORT_SLOT_OF_QPN(dqpn);

	/* after an error the port sends the datagram to some slot, or drops it */
	if (pkt_addr_is_group(&d->path->dst) || fill_slot(d, slot, dqpn))
		return d;
	return d->slots[slot].dest;
}

void dest_put(struct dest *d)
{
	ROOST_ASSERT(d->refs);
	if (--d->refs)
		return;
	for (unsigned i = 0; d->slots && i < num_slots(d); i++)
		slot_put(d, &d->slots[i]);
	free(d->slots);
	spin_lock(&d->pu->nic->dests_lock);
	alive_copy_rx_tick(d);
	list_del(&d->link);
	spin_unlock(&d->pu->nic->dests_lock);
	wheel_del(&d->pu->wheel, &d->alive_timer);
	tx_finish_late(&d->pu->ports[d->port_index]); /* its last packet may wait for its ICRC */
	d->port->ops->path_put(d->port, d->path);
	free(d);
}

/* Returns the bytes of unacknowledged services that the receiver may not have received yet. */
static uint32_t decay_unacked(struct dest *d)
{
	uint64_t now = d->pu->now, past = now > d->unacked_at ? now - d->unacked_at : 0;
	uint64_t digested = past >= DIGEST_NS ? UINT32_MAX : past * d->cc.window >> DIGEST_SHIFT;

	if (digested >= d->unacked_bytes) {
		d->unacked_bytes = 0;
		d->unacked_at = now;
	} else if (digested) { /* if it is 0, unacked_at stays: the parts of a byte add up */
		d->unacked_bytes -= (uint32_t)digested;
		d->unacked_at = now;
	}
	return d->unacked_bytes;
}

/*
 * Does the work of dest_admit() for an unacknowledged service. If it returns false, a timer
 * schedules the QP, because no ACK may come.
 */
bool dest_admit_unacked(struct nic_qp *qp, struct dest *d, uint32_t bytes)
{
	uint64_t out;

	if (!d->cc.window)
		return true;
	out = (uint64_t)d->inflight + decay_unacked(d);
	if (!out || out + bytes <= d->cc.window)
		return true;
	req_blocked(qp, BLOCK_WINDOW);
	wheel_add(&qp->pu->wheel, &qp->timer, qp->pu->now + DIGEST_NS / 4);
	return false;
}

void dest_sent_unacked(struct dest *d, uint32_t bytes)
{
	if (d->cc.window)
		d->unacked_bytes += bytes;
}

/*
 * Returns the time since when a reader is known to have taken no packet. A note of an earlier wait
 * is valid, too: the packets that were in the way then are still there.
 */
static uint64_t silent_since(struct port_progress *r, uint64_t now)
{
	if (!r->noted || r->seen != r->taken) {
		r->noted = true;
		r->seen = r->taken;
		r->since = now;
	}
	return r->since;
}

bool dest_gives_up(struct nic_qp *qp, struct dest *d)
{
	uint64_t most = (uint64_t)NO_READER_NS * qp->nic->cfg.timeout_scale, end;
	struct port_progress *reader = port_progress_of(d->port, d->path);

	if (!reader)
		return false;
	end = silent_since(reader, qp->pu->now) + most;
	if (qp->pu->now >= end)
		return true;
	wheel_add(&qp->pu->wheel, &qp->timer, end);
	return false;
}

/*
 * Returns true if the window has space for the bytes. Otherwise the QP waits in the FIFO of
 * waiters.
 */
bool dest_admit(struct nic_qp *qp, uint32_t bytes)
{
	struct dest *d = qp->dest;

	if (!d->cc.window || !d->inflight || d->inflight + decay_unacked(d) + bytes <= d->cc.window)
		return true;
	req_blocked(qp, BLOCK_WINDOW);
	list_add_tail(&qp->tx_link, &d->waiters);
	return false;
}

static void wake(struct list_head *waiters)
{
	while (!list_empty(waiters)) {
		struct nic_qp *qp = list_first_entry(waiters, struct nic_qp, tx_link);

		nic_schedule(qp);
	}
}

void dest_window_release(struct dest *d, uint32_t bytes)
{
	ROOST_ASSERT(bytes <= d->inflight);
	d->inflight -= bytes;
	if (d->inflight < d->cc.window)
		wake(&d->waiters);
}

void dest_lost(struct dest *d)
{
	d->cc.ops->on_lost(&d->cc, d->pu->now, d->srtt);
}

void dest_cnp(struct dest *d)
{
	if (d->cc.ops->on_cnp)
		d->cc.ops->on_cnp(&d->cc, d->pu->now, d->srtt);
}

static uint64_t half_more(uint64_t ns)
{
	return ns + ns / 2 < RTO_MAX_NS ? ns + ns / 2 : RTO_MAX_NS;
}

/*
 * Takes a round-trip sample of a packet that was sent once. The sample is smoothed as in TCP (RFC
 * 6298, 2.2 and 2.3), with gains 1/8 and 1/4. `alone`: the QP had nothing else in flight, so the
 * sample is the path's round trip. Otherwise it is an upper bound, because the packet may have
 * waited behind others.
 */
void dest_rtt(struct dest *d, uint64_t ns, bool alone)
{
	uint64_t off = ns > d->srtt ? ns - d->srtt : d->srtt - ns;

	if (d->srtt) {
		d->rttvar += off / 4 - d->rttvar / 4;
		d->srtt += ns / 8 - d->srtt / 8;
	} else {
		d->srtt = ns;
		d->rttvar = ns / 2;
	}
	if (!d->rtt_min || ns < d->rtt_min)
		d->rtt_min = ns;
	if (alone || half_more(ns) < d->base_rtt)
		d->base_rtt = half_more(ns);
	d->base_rtt_measured = true;
	if (d->cc.ops->on_rtt)
		d->cc.ops->on_rtt(&d->cc, ns, d->pu->now);
}

/*
 * Returns the RTO of the samples. It is at least twice srtt, because an answer may be delayed (RFC
 * 8985, 7.2).
 */
static uint64_t rto_of_samples(const struct dest *d)
{
	uint64_t rto = d->srtt + 4 * d->rttvar;

	/* The limit bounds the effect of one long stall of the peer. */
	if (rto > RTO_MAX_NS)
		rto = RTO_MAX_NS;
	return rto > 2 * d->srtt ? rto : 2 * d->srtt;
}

/*
 * Takes an answer that came after `ns`, with the last retransmission or time-out `last` ns ago. It
 * is unknown which copy the answer is for, so this is no sample (Karn's algorithm, RFC 6298, 3).
 * But on a slow path no sample would ever come unless the time-out grows (5.5 to 5.7). The time-out
 * does not grow if a loss is more likely: the answer fits the last copy, or the time-out already
 * has this length.
 */
void dest_waited(struct dest *d, uint64_t ns, uint64_t last)
{
	if (d->srtt && last >= d->rtt_min / 2 && last <= rto_of_samples(d))
		return;
	if (!d->base_rtt_measured && d->base_rtt && ns > d->base_rtt)
		d->base_rtt = 0;
	else if (half_more(ns) > d->base_rtt)
		d->base_rtt = half_more(ns);
	d->base_rtt_measured = false;
}

/* Returns the retransmission time-out of the destination, in ns; 0: unknown. */
uint64_t dest_rto(const struct dest *d)
{
	uint64_t rto = rto_of_samples(d);

	return rto > d->base_rtt ? rto : d->base_rtt;
}

bool dest_admit_read(struct nic_qp *qp, uint32_t bytes)
{
	struct pu_port *pp = &qp->pu->ports[qp->port];
	uint32_t window = qp->dest->path->read_window;

	if (!window || !pp->read_out || pp->read_out + bytes <= window)
		return true;
	req_blocked(qp, BLOCK_WINDOW);
	list_add_tail(&qp->tx_link, &pp->read_waiters);
	return false;
}

void dest_release_read(struct nic_qp *qp, uint32_t bytes)
{
	struct pu_port *pp = &qp->pu->ports[qp->port];

	ROOST_ASSERT(bytes <= qp->sq.read_bytes);
	qp->sq.read_bytes -= bytes;
	if (!qp->dest || !qp->dest->path->read_window)
		return;
	ROOST_ASSERT(bytes <= pp->read_out);
	pp->read_out -= bytes;
	if (!list_empty(&pp->read_waiters) && pp->read_out < pp->port->read_window)
		wake(&pp->read_waiters);
}
