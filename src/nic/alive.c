/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Detection of dead peers. A killed process does not answer. The time-outs that connection managers
 * set detect this after a minute, or never if nothing is outstanding. So the NIC uses hints: ICMP
 * errors (udp), a ring without a reader (shm). A hint proves nothing. It starts probes of the
 * peer, and any answer clears the suspicion:
 *
 *   hint --> suspected: probe every PROBE_NS ---- valid packet from the peer ---> not suspected
 *                |             ^             ---- no hint for FORGET_NS --------> not suspected
 *                +-- new hint -+
 *                     after GONE_NS and GONE_HINTS hints without a packet: gone
 *
 * A probe is a zero-length WRITE with the PSN before the oldest unacknowledged one. Every responder
 * acknowledges this duplicate again and does not execute it (IBA 9.7.5.1.2, C9-105). With
 * nic_qp_keepalive() the NIC also probes without a hint, when no packet has come for KEEP_NS. Both
 * ends must have agreed to that, since hardware does not do it. A stopped process does not
 * answer either, though a hardware NIC would answer for it. So the NIC waits for a process that
 * is alive and does not read (port_reader_of()).
 *
 * All queue pairs of a process end together. So each destination (an address, and a slot and lane
 * there) is probed once, by its queue pairs in turns.
 */
#include "nic/alive.h"
#include "nic/datagram.h"
#include "nic/requester.h"
#include "nic/tx.h"

#define MS_NS	    1000000ull
#define PROBE_NS    (250 * MS_NS)
#define GONE_NS	    (2000 * MS_NS)
#define GONE_HINTS  3
#define FORGET_NS   (3000 * MS_NS) /* Linux sends one ICMP error a second (icmp_ratelimit) */
#define CHECKS_MAX  4096	   /* the most comparisons with hints per millisecond */
#define KEEP_NS	    (1000 * MS_NS)
#define KEEP_PROBES 8 /* the most consecutive probes without an answer */
/*
 * The number of these probes that must follow a stall. A process that was just continued has
 * much to do.
 */
#define KEEP_PROBES_READS 4
/*
 * Replaces KEEP_PROBES if the state of the peer is unknown. The peer's machine may be suspended for
 * a while.
 */
#define KEEP_PROBES_UNKNOWN 30

/* The range of PSNs of the NIC's answers in flight. */
#define ANSWERS_BACK 4096

static uint64_t scaled(const struct dest *d, uint64_t ns)
{
	return ns * d->pu->nic->cfg.timeout_scale;
}

static uint64_t next_tick(const struct dest *d)
{
	return atomic_fetch_add_explicit(&d->pu->nic->ticks, 1, memory_order_acq_rel) + 1;
}

static bool can_probe(const struct nic_qp *qp)
{
	return qp_acknowledged(qp) && !qp_has(qp, QP_LOOP) &&
	       (qp->state == NIC_QPS_RTS || qp->state == NIC_QPS_SQD);
}

static void put_probe(struct nic_qp *qp)
{
	const uint8_t opcode = PKT_WRITE_ONLY;
	uint32_t len = pkt_ops[opcode].hdr_len + PKT_ICRC_LEN;
	struct port_buf buf;
	uint8_t *p;

	if (tx_begin(qp, len, &buf))
		return; /* no space: the packets in the port serve as the probe */
	p = pkt_put_bth(buf.bth, opcode, PKT_BTH_MIGREQ, qp->dest_qpn, true, qp->sq.psn_una - 1);
	pkt_put_reth(p, 0, 0, 0);
	tx_end(qp, &buf, len);
	qp->pu->ctr.alive_probe++;
}

/* Sends a probe from the next queue pair that can send it, at most once every PROBE_NS. */
static void send_probe(struct dest *d)
{
	struct list_head *l;

	if (d->probed_at && d->pu->now - d->probed_at < scaled(d, PROBE_NS))
		return;
	d->probed_at = d->pu->now;

	list_for_each (l, &d->qps) {
		struct nic_qp *qp = list_entry(l, struct nic_qp, dest_link);

		if (!can_probe(qp))
			continue;
		list_move_tail(&qp->dest_link, &d->qps);
		put_probe(qp);
		return;
	}
}

static void start_timer(struct dest *d, uint64_t ns)
{
	wheel_add(&d->pu->wheel, &d->alive_timer, d->pu->now + scaled(d, ns));
}

/* ---- gone ---- */

static void end_qp(struct nic_qp *qp)
{
	const struct nic_config *cfg = &qp->nic->cfg;
	bool waits = qp->sq.una != qp->sq.fetched;

	if (waits && !qp->attr.timeout)
		return; /* with timeout 0 the work waits without limit (IBA 11.2.5.2) */
	if (waits) {
		qp->pu->ctr.retry_exceeded_err++;
		req_fail(qp, NIC_WC_RETRY_EXC_ERR);
	} else {
		qp_event(qp, NIC_EVENT_QP_FATAL);
		qp_error(qp);
	}
	if (cfg->ops->peer_gone)
		cfg->ops->peer_gone(cfg->host, qp->qpn);
}

/* Ends the destination's connections. `agreed`: only those with keep-alive. */
static void end_connections(struct dest *d, bool agreed)
{
	struct list_head *l;

	d->suspected = 0;
	wheel_del(&d->pu->wheel, &d->alive_timer); /* no more probes */
	d->pu->ctr.peer_gone++;
	list_for_each (l, &d->qps) {
		struct nic_qp *qp = list_entry(l, struct nic_qp, dest_link);

		if (qp_acknowledged(qp) && !qp_has(qp, QP_LOOP) && qp->state >= NIC_QPS_RTR &&
		    qp->state < NIC_QPS_ERR && (qp->keepalive || !agreed))
			end_qp(qp);
	}
}

/* ---- hints ---- */

/*
 * Returns true if the hint quotes a packet that the NIC may have sent. A host that does not see the
 * NIC's packets cannot know the QP number and the PSN.
 */
static bool quotes_sent_packet(const struct dest *d, const struct port_hint *h)
{
	bool answer = pkt_ops[h->opcode].flags & PKT_RESPONSE;
	struct list_head *l;

	list_for_each (l, &d->qps) {
		const struct nic_qp *qp = list_entry(l, struct nic_qp, dest_link);
		uint32_t first = qp->sq.psn_una - 1, psn;

		d->pu->hint_checks++;
		if (qp->dest_qpn != h->dqpn || !qp_acknowledged(qp) || qp->state < NIC_QPS_RTR)
			continue;
		if (answer)
			first = qp->resp.epsn - ANSWERS_BACK;
		psn = psn_extend(first, h->psn);
		if (!psn_before(psn, first) &&
		    psn_before(psn, answer ? qp->resp.epsn : qp->sq.psn_max + 1))
			return true;
	}
	return false;
}

static void suspect(struct dest *d)
{
	uint64_t now = d->pu->now;

	if (!d->suspected) {
		d->suspected = now;
		d->num_hints = 0;
		atomic_store_explicit(&d->awaits_rx, true, memory_order_relaxed);
		send_probe(d);
		start_timer(d, PROBE_NS);
	}
	d->hinted_at = now;
	d->num_hints++;
	if (d->num_hints >= GONE_HINTS && now - d->suspected >= scaled(d, GONE_NS))
		end_connections(d, false);
}

/* Other processes at the address of one that is gone may be stopped, and must not end with it. */
static bool is_about(const struct port_hint *h, const struct dest *d, const struct port *port)
{
	return d->port == port && pkt_addr_eq(&d->path->dst, &h->dst) &&
	       (!h->owner || (d->path->owner == h->owner && d->slot == h->slot));
}

/*
 * Limits the work for hints. Forged hints may come at the speed of the network, and each is
 * compared with all queue pairs of its destination. Hints above the limit are ignored; time-outs
 * detect the dead peer instead.
 */
static bool may_check(struct pu *pu)
{
	if (pu->now - pu->hint_checks_at >= MS_NS) {
		pu->hint_checks_at = pu->now;
		pu->hint_checks = 0;
	}
	return pu->hint_checks < CHECKS_MAX;
}

/* Returns true if the hint may be genuine and is not one of many at the same time. */
static bool is_plausible(struct pu *pu, const struct port *port, const struct port_hint *h)
{
	struct list_head *l;

	list_for_each (l, &pu->dests) {
		const struct dest *d = list_entry(l, struct dest, link);

		pu->hint_checks++;
		if (is_about(h, d, port) && (!d->suspected || pu->now - d->hinted_at >= MS_NS) &&
		    (!h->quotes || quotes_sent_packet(d, h)))
			return true;
	}
	return false;
}

/*
 * Passes a hint about a datagram of QP 1 to the host, whose user of QP 1 checks it. All lanes get
 * the same hint, and QP 1 belongs to the first PU.
 */
static void report_gsi_lost(struct pu *pu, const struct port_hint *h)
{
	const struct nic_config *cfg = &pu->nic->cfg;

	if (pu->index == 0 && cfg->ops->gsi_lost)
		cfg->ops->gsi_lost(cfg->host, &h->dst, h->tid);
}

/*
 * Handles the port's hints. A hint that names no process is about an address, and so about all its
 * slots and lanes. The NIC probes each of these destinations separately.
 */
void alive_hints(struct pu *pu, struct port *port)
{
	struct list_head *l;

	for (unsigned i = 0; i < port->num_hints; i++) {
		const struct port_hint *h = &port->hint[i];

		pu->ctr.rx_unreachable++;
		if (h->tid)
			report_gsi_lost(pu, h);
		if (!may_check(pu)) {
			pu->ctr.hints_unread++;
			continue;
		}
		if (!is_plausible(pu, port, h))
			continue;
		list_for_each (l, &pu->dests) {
			struct dest *d = list_entry(l, struct dest, link);

			if (is_about(h, d, port))
				suspect(d);
		}
	}
	port->num_hints = 0;
}

/* ---- time ---- */

/*
 * Raises the tick and never lowers it: the owner of another destination may have stored a later
 * tick.
 */
static void raise_tick(_Atomic uint64_t *rx_tick, uint64_t to)
{
	uint64_t now = atomic_load_explicit(rx_tick, memory_order_relaxed);

	while (now < to && !atomic_compare_exchange_weak_explicit(
				   rx_tick, &now, to, memory_order_release, memory_order_relaxed))
		;
}

/*
 * Called when a packet came while `awaits_rx` was set. A later alive_await_rx() waits for another
 * packet.
 */
void alive_rx(struct dest *d)
{
	atomic_store_explicit(&d->awaits_rx, false, memory_order_relaxed);
	raise_tick(&d->rx_tick, next_tick(d));
	d->suspected = 0;
	d->unanswered = 0;
	d->stalled_at = 0;
}

/* Caches the result: port_reader_of() may read a file, and many QPs may ask in one turn. */
enum port_reader alive_reader(struct dest *d, uint64_t since)
{
	if (d->reader_at <= since) {
		d->reader_at = d->pu->now;
		d->reader = port_reader_of(d->port, d->path);
	}
	return d->reader;
}

/*
 * Returns true if both destinations are the same process, on any PU and lane: the same slot of the
 * same address. Other processes may have the same address. A wrapped port has the name of its kind.
 */
static bool same_peer(const struct dest *a, const struct dest *b)
{
	return a->port->ops->name == b->port->ops->name && a->slot == b->slot &&
	       a->path->owner == b->path->owner && pkt_addr_eq(&a->path->dst, &b->path->dst);
}

/*
 * Takes the tick first, so a packet that finds `awaits_rx` set has a later tick, on any PU.
 *
 *	this call				the PU that gets a packet
 *	ticks + 1, awaits_rx = true (release)	awaits_rx (acquire), ticks + 1, rx_tick (release)
 *
 * alive_rx_since() loads rx_tick (acquire).
 */
uint64_t alive_await_rx(const struct dest *d)
{
	struct nic *nic = d->pu->nic;
	uint64_t from = next_tick(d);
	struct list_head *l;

	spin_lock(&nic->dests_lock);
	for (unsigned i = 0; i < nic->cfg.pus; i++) {
		list_for_each (l, &nic->pus[i]->dests) {
			struct dest *other = list_entry(l, struct dest, link);

			if (same_peer(other, d))
				atomic_store_explicit(&other->awaits_rx, true,
						      memory_order_release);
		}
	}
	spin_unlock(&nic->dests_lock);
	return from;
}

void alive_copy_rx_tick(struct dest *d)
{
	struct nic *nic = d->pu->nic;
	uint64_t rx_tick = atomic_load_explicit(&d->rx_tick, memory_order_relaxed);
	struct list_head *l;

	for (unsigned i = 0; rx_tick && i < nic->cfg.pus; i++) {
		list_for_each (l, &nic->pus[i]->dests) {
			struct dest *other = list_entry(l, struct dest, link);

			if (same_peer(other, d))
				raise_tick(&other->rx_tick, rx_tick);
		}
	}
}

bool alive_rx_since(const struct dest *d, uint64_t from)
{
	struct nic *nic = d->pu->nic;
	struct list_head *l;
	bool received = false;

	spin_lock(&nic->dests_lock);
	for (unsigned i = 0; i < nic->cfg.pus; i++) {
		list_for_each (l, &nic->pus[i]->dests) {
			const struct dest *other = list_entry(l, struct dest, link);

			received |=
				same_peer(other, d) &&
				atomic_load_explicit(&other->rx_tick, memory_order_acquire) > from;
		}
	}
	spin_unlock(&nic->dests_lock);
	return received;
}

/*
 * Returns true if the silent peer counts as gone. A stalled process gets time. A busy process may
 * look stalled several times, but is not stalled if a packet has come from it between two looks.
 */
static bool is_dead(struct dest *d)
{
	if (d->unanswered <= KEEP_PROBES - KEEP_PROBES_READS)
		return false;
	switch (alive_reader(d, d->pu->now - scaled(d, KEEP_NS))) {
	case PORT_READER_STALLED:
		if (d->stalled_at && alive_rx_since(d, d->stalled_at))
			return d->unanswered > KEEP_PROBES;
		d->stalled_at = alive_await_rx(d);
		d->unanswered = KEEP_PROBES - KEEP_PROBES_READS;
		return false;
	case PORT_READER_READS:
		return d->unanswered > KEEP_PROBES;
	default:
		return d->unanswered > KEEP_PROBES_UNKNOWN;
	}
}

void alive_fire(struct dest *d)
{
	uint64_t now = d->pu->now;

	if (d->suspected && now - d->hinted_at >= scaled(d, FORGET_NS))
		d->suspected = 0;
	if (d->suspected) {
		send_probe(d);
		start_timer(d, PROBE_NS);
		return;
	}
	if (!d->num_keepalive)
		return;
	if (atomic_load_explicit(&d->awaits_rx, memory_order_relaxed)) {
		d->unanswered++;
		if (is_dead(d)) {
			d->unanswered = 0;
			end_connections(d, true);
			return;
		}
		send_probe(d);
	}
	atomic_store_explicit(&d->awaits_rx, true, memory_order_relaxed);
	start_timer(d, KEEP_NS);
}

/* ---- attach and detach of queue pairs ---- */

void alive_attach(struct nic_qp *qp)
{
	list_add_tail(&qp->dest_link, &qp->dest->qps);
	qp->dest->num_keepalive += qp->keepalive;
	if (qp->keepalive && !wheel_pending(&qp->dest->alive_timer))
		start_timer(qp->dest, KEEP_NS);
}

void alive_detach(struct nic_qp *qp)
{
	list_del(&qp->dest_link);
	qp->dest->num_keepalive -= qp->keepalive;
}

int nic_qp_keepalive(struct nic *nic, struct nic_qp *qp, bool on, uint64_t now)
{
	if (!qp_acknowledged(qp))
		return -EOPNOTSUPP;
	if (qp->keepalive == on)
		return 0;
	qp->pu->now = now;
	if (qp->dest)
		alive_detach(qp);
	qp->keepalive = on;
	if (qp->dest)
		alive_attach(qp);
	return 0;
}
