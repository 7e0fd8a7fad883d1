/* SPDX-License-Identifier: BSD-2-Clause */
#include "trace.h"

#include <errno.h>
#include <stdlib.h>

static struct trace *current;

/* One of our own addresses. */
struct nic_port {
	unsigned nic, port;
};

static struct nic_port nic_port_of(const struct trace *t, const struct pkt_addr *a)
{
	struct nic_port at = {world_nic_of(t->w, a), 0};

	while (at.nic < WORLD_MAX_NICS && !pkt_addr_eq(&t->w->port[at.nic][at.port][0]->addr, a))
		at.port++;
	return at;
}

static void print_one(const struct trace_packet *r, FILE *f)
{
	char text[200] = "(broken)", a[46], b[46];

	if (r->ok)
		pkt_print(&r->v, text, sizeof(text));
	fprintf(f, "%6llu %12.3f us %s %s > %s: %s\n", (unsigned long long)r->index,
		(double)r->at / 1000, r->in ? "took" : "sent",
		pkt_addr_print(&r->src, a, sizeof(a)), pkt_addr_print(&r->dst, b, sizeof(b)), text);
}

static struct trace_end *end_of(struct trace *t, unsigned nic, uint32_t qpn)
{
	for (unsigned i = 0; i < t->num_ends; i++)
		if (t->end[i].e->nic_index == nic && nic_qp_num(t->end[i].e->qp) == qpn)
			return &t->end[i];
	return NULL;
}

/*
 * Returns true if a packet of a connection is forged: not from the peer's address, or not to its
 * own.
 */
static bool is_strange(const struct trace_end *end, const struct trace_packet *r)
{
	return end &&
	       !(pkt_addr_eq(&r->src, ep_addr(end->peer)) && pkt_addr_eq(&r->dst, ep_addr(end->e)));
}

/* Notes from where a received packet comes. Returns true if the NIC must drop it for that. */
static bool take_source(struct trace *t, unsigned nic, const struct trace_packet *r)
{
	struct trace_end *end = end_of(t, nic, r->v.dqpn);

	if (!r->ok) {
		t->seen[nic].suspect += end && (!end->heard || is_strange(end, r));
		return false;
	}
	if (r->v.op->service == PKT_UD)
		return false;
	if (is_strange(end, r)) {
		t->seen[nic].strange++;
		return true;
	}
	if (end && r->v.opcode != PKT_CNP)
		end->heard = true;
	return false;
}

/*
 * Records a received packet of an unreliable connection, to know the complete messages. After a gap
 * packets do not count before the next FIRST or ONLY (IBA 9.8.2.2).
 */
static void take_uc(struct trace *t, unsigned nic, const struct pkt_view *v)
{
	struct trace_end *c = end_of(t, nic, v->dqpn);
	uint16_t flags = v->op->flags;
	bool gap;

	if (!c || !c->uc)
		abort();
	gap = v->psn != c->psn;
	t->loose[nic].gaps += gap;
	c->psn = (v->psn + 1) & 0xffffff;
	t->loose[nic].torn += c->inside && (flags & PKT_FIRST || gap);
	c->inside = flags & PKT_FIRST ? true : c->inside && !gap;
	if (flags & PKT_LAST) {
		t->loose[nic].whole +=
			c->inside && (v->op->kind == PKT_KIND_SEND || flags & PKT_IMM);
		c->inside = false;
	}
}

/*
 * DCQCN's notification point: at most one CNP in 50 us for each connection, after marked packets
 * whose rate the sender can reduce.
 */
static void take_marked(struct trace *t, unsigned nic, const struct trace_packet *r)
{
	struct trace_end *c = end_of(t, nic, r->v.dqpn);

	if (!c || !(r->v.op->flags & (PKT_REQUEST | PKT_PAYLOAD)) || r->at < c->cnp_next)
		return;
	c->cnp_next = r->at + 50000;
	t->seen[nic].cnp_due++;
}

static void datagram(struct trace *t, unsigned nic, const struct port *port,
		     const struct trace_packet *r)
{
	unsigned n = t->datagram ? t->datagram(t->ctx, port, r) : 1;

	if (r->in)
		t->loose[nic].due += n;
}

/* `port`: the port of arrival, or a port with the address of departure. */
static void record(struct trace *t, const struct port *port, struct nic_port at, bool in,
		   bool marked, const struct pkt_addr *src, const struct pkt_addr *dst,
		   const uint8_t *bth, uint32_t len)
{
	unsigned nic = at.nic;
	struct trace_packet *r = &t->last[t->packets % TRACE_KEEP];
	struct icrc_flow f;
	uint16_t id = 0;

	r->at = world_now(t->w);
	r->index = t->packets++;
	r->in = in;
	r->src = *src;
	r->dst = *dst;
	r->len = len;
	r->v.dqpn = 0; /* short packets have none */
	r->ok = pkt_parse(bth, len, &r->v) == PKT_OK;
	if (r->ok && in) {
		icrc_flow_init(&f, src, dst, PKT_UDP_PORT, PKT_UDP_PORT);
		r->ok = icrc_verify(&f, true, &id, bth, len);
	}
	if (in && take_source(t, nic, r))
		r->ok = false;
	if (in) {
		t->seen[nic].in++;
		t->seen[nic].in_bytes += len;
		t->seen[nic].bad += !r->ok;
	} else {
		t->seen[nic].out++;
		t->seen[nic].out_bytes += len;
	}
	if (r->ok && r->v.opcode == PKT_CNP)
		*(in ? &t->seen[nic].cnp_in : &t->seen[nic].cnp_out) += 1;
	if (r->ok && in && marked)
		take_marked(t, nic, r);
	if (r->ok && in && r->v.op->service == PKT_UC)
		take_uc(t, nic, &r->v);
	if (r->ok && r->v.op->service == PKT_UD)
		datagram(t, nic, port, r);
	if (r->ok)
		oracle_feed(t->oracle[nic][at.port], r->index, r->at, src, dst, &r->v);
	if (t->live)
		print_one(r, t->live);
	r->v.payload = NULL;
}

static void on_send(void *ctx, uint64_t now, bool delivered, const struct pkt_addr *src,
		    const struct pkt_addr *dst, const uint8_t *bth, uint32_t len)
{
	struct trace *t = ctx;
	struct pkt_view v;
	struct nic_port at;

	if (delivered)
		return;
	at = nic_port_of(t, src);
	if (at.nic == WORLD_MAX_NICS)
		return;
	record(t, t->w->port[at.nic][at.port][0], at, false, false, src, dst, bth, len);
	if (pkt_parse(bth, len, &v) == PKT_OK && v.op->service != PKT_UD) {
		t->sample_len = len;
		t->sample_src = *src;
		t->sample_dst = *dst;
		memcpy(t->sample, bth, len);
	}
}

/* Records packets when the NIC receives them, not when they arrive: the NIC acts in this order. */
static int tapped_rx(struct port *port, struct port_pkt *pkts, int max)
{
	struct trace *t = current;
	struct nic_port at = nic_port_of(t, &port->addr);
	int n = t->real->rx_burst(port, pkts, max);

	for (int i = 0; i < n; i++)
		record(t, port, at, true, pkts[i].flags & PORT_CE, pkts[i].src, pkts[i].dst,
		       pkts[i].bth, pkts[i].len);
	return n;
}

static int tapped_reserve(struct port *port, struct port_path *path, uint32_t len, uint8_t tos,
			  struct port_buf *buf)
{
	struct trace *t = current;

	if (t->full > 0 && rng_double(&t->rng) < t->full)
		return -EAGAIN;
	return t->real->reserve(port, path, len, tos, buf);
}

void trace_start(struct trace *t, struct world *w, bool disorder, uint32_t mtu)
{
	memset(t, 0, sizeof(*t));
	t->w = w;
	current = t;
	t->real = w->port[0][0][0]->ops;
	t->tapped = *t->real;
	t->tapped.rx_burst = tapped_rx;
	t->tapped.reserve = tapped_reserve;
	rng_seed(&t->rng, w->nics);
	for (unsigned i = 0; i < w->nics; i++)
		for (unsigned p = 0; p < nic_ports(w->nic[i]); p++) {
			struct oracle_options o = oracle_defaults;

			o.max_streams = 64;
			/* without a window all requests of a program may be in flight */
			o.inflight = 1u << 16;
			o.mtu = mtu;
			o.has_local = true;
			o.local = w->port[i][p][0]->addr;
			o.disorder = disorder;
			t->oracle[i][p] = oracle_new(&o);
			if (!t->oracle[i][p])
				abort();
			for (unsigned l = 0; l < w->pus; l++)
				w->port[i][p][l]->ops = &t->tapped;
		}
	sim_set_tap(w->sim, on_send, t);
}

static void add_end(struct trace *t, const struct ep *e, const struct ep *peer)
{
	if (t->num_ends == TRACE_ENDS)
		abort();
	t->end[t->num_ends++] = (struct trace_end){
		.e = e, .peer = peer, .uc = e->p.type == NIC_QPT_UC, .psn = peer->p.psn & 0xffffff};
}

/* Tells the oracle of `own` about the connection. */
static void tell(struct trace *t, const struct pkt_addr *own, const struct ep *a,
		 const struct ep *b)
{
	struct nic_port at = nic_port_of(t, own);
	struct oracle *o = t->oracle[at.nic][at.port];

	if (oracle_pair(o, ep_addr(a), nic_qp_num(a->qp), ep_addr(b), nic_qp_num(b->qp)) ||
	    oracle_begins(o, ep_addr(a), ep_addr(b), nic_qp_num(b->qp), a->p.psn) ||
	    oracle_begins(o, ep_addr(b), ep_addr(a), nic_qp_num(a->qp), b->p.psn))
		abort();
}

void trace_pair(struct trace *t, const struct ep *a, const struct ep *b)
{
	bool loop = pkt_addr_eq(ep_addr(a), ep_addr(b)), rc = a->p.type == NIC_QPT_RC;

	add_end(t, a, b);
	if (a != b)
		add_end(t, b, a);
	if (loop)
		t->loops[a->nic_index] |= rc;
	if (loop || !rc)
		return;
	tell(t, ep_addr(a), a, b);
	tell(t, ep_addr(b), a, b);
}

void trace_stop(struct trace *t)
{
	for (unsigned i = 0; i < t->w->nics; i++)
		for (unsigned p = 0; t->oracle[i][p]; p++) {
			for (unsigned l = 0; l < t->w->pus; l++)
				t->w->port[i][p][l]->ops = t->real;
			oracle_free(t->oracle[i][p]);
		}
	sim_set_tap(t->w->sim, NULL, NULL);
	current = NULL;
}

void trace_print(const struct trace *t, FILE *f)
{
	uint64_t from = t->packets > TRACE_KEEP ? t->packets - TRACE_KEEP : 0;

	fprintf(f, "the last %llu of %llu packets, as each NIC sent or took them:\n",
		(unsigned long long)(t->packets - from), (unsigned long long)t->packets);
	for (uint64_t i = from; i < t->packets; i++)
		print_one(&t->last[i % TRACE_KEEP], f);
}

/* Sums over the streams on which a NIC sends requests (`requester`), or responses. */
static struct oracle_counts sum(struct trace *t, unsigned nic, bool requester)
{
	struct oracle_counts total = {0};
	struct oracle_stream s;

	for (unsigned p = 0; t->oracle[nic][p]; p++)
		for (uint32_t i = 0; oracle_stream_get(t->oracle[nic][p], i, &s); i++) {
			const uint64_t *c = (const uint64_t *)&s.c;

			if (!pkt_addr_eq(requester ? &s.src : &s.dst, &t->w->port[nic][p][0]->addr))
				continue;
			for (size_t k = 0; k < sizeof(total) / sizeof(*c); k++)
				((uint64_t *)&total)[k] += c[k];
		}
	return total;
}

static bool equal(unsigned nic, const char *what, uint64_t counted, uint64_t seen)
{
	if (counted == seen)
		return true;
	fprintf(stderr, "NIC %u counted %llu %s, the capture has %llu\n", nic,
		(unsigned long long)counted, what, (unsigned long long)seen);
	return false;
}

/*
 * Returns the number of incomplete messages: ended by another message, or still open at the end.
 */
static uint64_t torn(const struct trace *t, unsigned nic)
{
	uint64_t n = t->loose[nic].torn;

	for (unsigned i = 0; i < t->num_ends; i++)
		n += t->end[i].e->nic_index == nic && t->end[i].inside;
	return n;
}

static bool check_counters(struct trace *t, unsigned i, unsigned events)
{
	struct oracle_counts rq = sum(t, i, true), rs = sum(t, i, false);
	struct nic_counters c;
	bool ok = true;
	uint64_t drops, bad = t->seen[i].bad + t->loose[i].stray, missed, late;

	nic_counters(t->w->nic[i], &c);
	ok &= equal(i, "sent_pkts", c.sent_pkts, t->seen[i].out);
	ok &= equal(i, "sent_bytes", c.sent_bytes, t->seen[i].out_bytes);
	ok &= equal(i, "rcvd_pkts", c.rcvd_pkts, t->seen[i].in);
	ok &= equal(i, "rcvd_bytes", c.rcvd_bytes, t->seen[i].in_bytes);
	if (!(events & TRACE_ERROR) && (c.rx_bad_source < t->seen[i].strange ||
					c.rx_bad_source > t->seen[i].strange + t->seen[i].suspect))
		ok &= equal(i, "rx_bad_source", c.rx_bad_source, t->seen[i].strange);
	drops = c.rx_short + c.rx_bad_opcode + c.rx_bad_version + c.rx_bad_pad +
		c.rx_icrc_encapsulated + c.rx_bad_pkey + c.rx_bad_qpn + c.rx_bad_source +
		c.rx_bad_service + c.rx_bad_group;
	if (!(events & TRACE_ERROR) || drops < bad)
		ok &= equal(i, "dropped packets", drops, bad);
	ok &= equal(i, "np_cnp_sent", c.np_cnp_sent, t->seen[i].cnp_out);
	if (!(events & TRACE_ERROR))
		ok &= equal(i, "rp_cnp_handled", c.rp_cnp_handled, t->seen[i].cnp_in);
	/* A packet for which the port is full leaves later, with the next one. */
	if (c.np_cnp_sent > t->seen[i].cnp_due || (!(events & TRACE_ERROR) && t->full <= 0))
		ok &= equal(i, "np_cnp_sent, of what was marked", c.np_cnp_sent,
			    t->seen[i].cnp_due);
	ok &= equal(i, "retransmitted_pkts", c.retransmitted_pkts + c.tail_loss_probe,
		    rq.retransmitted);
	/* NAKs that arrive when their QP is in the error state are not counted. */
	late = events & TRACE_ERROR && drops > bad ? drops - bad : 0;
	if (c.packet_seq_err > rq.naks_seq || rq.naks_seq - c.packet_seq_err > late)
		ok &= equal(i, "packet_seq_err", c.packet_seq_err, rq.naks_seq);
	if (!events) {
		ok &= equal(i, "duplicate_request", c.duplicate_request, rs.duplicates);
		ok &= equal(i, "out_of_sequence", c.out_of_sequence, rs.gaps + t->loose[i].gaps);
	}
	if (t->loops[i])
		return ok;
	if (c.rnr_nak_retry_err > rq.naks_rnr || rq.naks_rnr - c.rnr_nak_retry_err > late)
		ok &= equal(i, "rnr_nak_retry_err", c.rnr_nak_retry_err, rq.naks_rnr);
	/* The first packet of an incomplete message may have found no receive. */
	missed = rs.naks_rnr + t->loose[i].whole + t->loose[i].due - t->loose[i].got;
	if (c.out_of_buffer < missed || c.out_of_buffer - missed > torn(t, i))
		ok &= equal(i, "out_of_buffer", c.out_of_buffer, missed);
	if (events & TRACE_ERROR && rq.naks_invalid + rq.naks_access + rq.naks_op > 1)
		return ok; /* copies of the NAK that ended the QP are not counted */
	ok &= equal(i, "req_remote_invalid_request", c.req_remote_invalid_request, rq.naks_invalid);
	ok &= equal(i, "req_remote_access_errors", c.req_remote_access_errors, rq.naks_access);
	ok &= equal(i, "req_remote_op_errors", c.req_remote_op_errors, rq.naks_op);
	return ok;
}

bool trace_check(struct trace *t, unsigned events)
{
	bool ok = true;

	for (unsigned i = 0; i < t->w->nics; i++) {
		for (unsigned p = 0; t->oracle[i][p]; p++) {
			size_t n;
			const struct oracle_finding *f = oracle_findings(t->oracle[i][p], &n);

			for (size_t k = 0; k < n && k < 5; k++)
				fprintf(stderr, "NIC %u, packet %llu, rule %s: %s\n", i,
					(unsigned long long)f[k].index, oracle_rule_name(f[k].rule),
					f[k].text);
			ok &= oracle_totals(t->oracle[i][p])->violations == 0;
		}
		ok &= check_counters(t, i, events);
	}
	return ok;
}
