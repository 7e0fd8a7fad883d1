/* SPDX-License-Identifier: BSD-2-Clause */
#include "trace.h"

#include <errno.h>
#include <stdlib.h>

static struct trace *current;

static unsigned nic_of(const struct trace *t, const struct pkt_addr *a)
{
	for (unsigned i = 0; i < t->w->nics; i++)
		for (unsigned p = 0; p < t->w->ports; p++)
			if (pkt_addr_eq(&t->w->port[i][p][0]->addr, a))
				return i;
	return WORLD_MAX_NICS;
}

static void print_one(const struct trace_packet *r, FILE *f)
{
	char text[200] = "(broken)", a[46], b[46];

	if (r->ok)
		pkt_print(&r->v, text, sizeof(text));
	fprintf(f, "%6llu %12.3f us %s %s > %s: %s\n", (unsigned long long)r->index, (double)r->at / 1000,
		r->in ? "took" : "sent", pkt_addr_print(&r->src, a, sizeof(a)),
		pkt_addr_print(&r->dst, b, sizeof(b)), text);
}

/*
 * A packet of an unreliable service that the NIC takes in: which messages are whole when they reach it. After a gap nothing counts before
 * the next FIRST or ONLY (IBA 9.8.2.2); a datagram is always whole.
 */
static void take_loose(struct trace *t, unsigned nic, const struct pkt_view *v)
{
	uint16_t flags = v->op->flags;
	struct trace_uc *c = NULL;
	bool gap;

	if (v->op->service == PKT_UD) {
		t->loose[nic].whole++;
		return;
	}
	for (unsigned i = 0; i < t->num_uc && !c; i++)
		if (t->uc[i].nic == nic && t->uc[i].qpn == v->dqpn)
			c = &t->uc[i];
	if (!c)
		abort();
	gap = v->psn != c->psn;
	t->loose[nic].gaps += gap;
	c->psn = (v->psn + 1) & 0xffffff;
	t->loose[nic].torn += c->inside && (flags & PKT_FIRST || gap);
	c->inside = flags & PKT_FIRST ? true : c->inside && !gap;
	if (flags & PKT_LAST) {
		t->loose[nic].whole += c->inside && (v->op->kind == PKT_KIND_SEND || flags & PKT_IMM);
		c->inside = false;
	}
}

static void record(struct trace *t, unsigned nic, bool in, const struct pkt_addr *src,
		   const struct pkt_addr *dst, const uint8_t *bth, uint32_t len)
{
	struct trace_packet *r = &t->last[t->packets % TRACE_KEEP];
	struct icrc_flow f;
	uint16_t id = 0;

	r->at = world_now(t->w);
	r->index = t->packets++;
	r->in = in;
	r->src = *src;
	r->dst = *dst;
	r->len = len;
	r->ok = pkt_parse(bth, len, &r->v) == PKT_OK;
	if (r->ok && in) {
		icrc_flow_init(&f, src, dst, PKT_UDP_PORT, PKT_UDP_PORT);
		r->ok = icrc_verify(&f, true, &id, bth, len);
	}
	if (in) {
		t->seen[nic].in++;
		t->seen[nic].in_bytes += len;
		t->seen[nic].bad += !r->ok;
	} else {
		t->seen[nic].out++;
		t->seen[nic].out_bytes += len;
	}
	if (r->ok && in && (r->v.op->service == PKT_UC || r->v.op->service == PKT_UD))
		take_loose(t, nic, &r->v);
	if (r->ok)
		oracle_feed(t->oracle[nic], r->index, r->at, src, dst, &r->v);
	if (t->live)
		print_one(r, t->live);
	r->v.payload = NULL;
}

static void on_send(void *ctx, uint64_t now, bool delivered, const struct pkt_addr *src,
		    const struct pkt_addr *dst, const uint8_t *bth, uint32_t len)
{
	struct trace *t = ctx;
	unsigned nic = nic_of(t, src);

	if (!delivered && nic < WORLD_MAX_NICS)
		record(t, nic, false, src, dst, bth, len);
}

/* What a NIC takes in is seen when it takes it, not when it arrived: the order in which it acts. */
static int tapped_rx(struct port *port, struct port_pkt *pkts, int max)
{
	struct trace *t = current;
	int n = t->real->rx_burst(port, pkts, max);

	for (int i = 0; i < n; i++)
		record(t, nic_of(t, &port->addr), true, pkts[i].src, pkts[i].dst, pkts[i].bth, pkts[i].len);
	return n;
}

static int tapped_reserve(struct port *port, struct port_path *path, uint32_t len, uint8_t tos,
			  struct port_room *room)
{
	struct trace *t = current;

	if (t->full > 0 && rng_double(&t->rng) < t->full)
		return -EAGAIN;
	return t->real->reserve(port, path, len, tos, room);
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
	for (unsigned i = 0; i < w->nics; i++) {
		struct oracle_options o = oracle_defaults;

		o.max_streams = 256;
		o.inflight = 1u << 16; /* without a window all of a program may be under way */
		o.mtu = mtu;
		o.has_local = w->ports == 1;
		o.local = w->port[i][0][0]->addr;
		o.disorder = disorder && o.has_local;
		t->oracle[i] = oracle_new(&o);
		if (!t->oracle[i])
			abort();
		for (unsigned p = 0; p < w->ports; p++)
			for (unsigned l = 0; l < w->pus; l++)
				w->port[i][p][l]->ops = &t->tapped;
	}
	sim_set_tap(w->sim, on_send, t);
}

void trace_pair(struct trace *t, const struct ep *a, const struct ep *b)
{
	const struct pkt_addr *x = &nic_port(a->nic, a->p.port, 0)->addr;
	const struct pkt_addr *y = &nic_port(b->nic, b->p.port, 0)->addr;

	if (pkt_addr_eq(x, y)) {
		t->loops[a->nic_index] = true;
		return;
	}
	for (unsigned i = 0; i < t->w->nics; i++)
		if (i == a->nic_index || i == b->nic_index)
			if (oracle_pair(t->oracle[i], x, nic_qp_num(a->qp), y, nic_qp_num(b->qp)) ||
			    oracle_begins(t->oracle[i], x, y, nic_qp_num(b->qp), a->p.psn) ||
			    oracle_begins(t->oracle[i], y, x, nic_qp_num(a->qp), b->p.psn))
				abort();
}

void trace_uc(struct trace *t, const struct ep *to, uint32_t psn)
{
	if (t->num_uc == TRACE_UCS)
		abort();
	t->uc[t->num_uc++] =
		(struct trace_uc){.nic = to->nic_index, .qpn = nic_qp_num(to->qp), .psn = psn & 0xffffff};
}

void trace_stop(struct trace *t)
{
	for (unsigned i = 0; i < t->w->nics; i++) {
		for (unsigned p = 0; p < t->w->ports; p++)
			for (unsigned l = 0; l < t->w->pus; l++)
				t->w->port[i][p][l]->ops = t->real;
		oracle_free(t->oracle[i]);
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

/* Sums over the streams that a NIC sends requests on (`requester`), or answers. */
static struct oracle_counts sum(struct trace *t, unsigned nic, bool requester)
{
	struct oracle_counts total = {0};
	struct oracle_stream s;

	for (uint32_t i = 0; oracle_stream_get(t->oracle[nic], i, &s); i++) {
		const uint64_t *c = (const uint64_t *)&s.c;

		if (nic_of(t, requester ? &s.src : &s.dst) != nic)
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
	fprintf(stderr, "NIC %u counted %llu %s, the capture has %llu\n", nic, (unsigned long long)counted,
		what, (unsigned long long)seen);
	return false;
}

/* Messages of which the first packets came, and not the rest: ended by another one, or still open at the end. */
static uint64_t torn(const struct trace *t, unsigned nic)
{
	uint64_t n = t->loose[nic].torn;

	for (unsigned i = 0; i < t->num_uc; i++)
		n += t->uc[i].nic == nic && t->uc[i].inside;
	return n;
}

static bool check_counters(struct trace *t, unsigned i, unsigned events)
{
	struct oracle_counts rq = sum(t, i, true), rs = sum(t, i, false);
	struct nic_counters c;
	bool ok = true;
	uint64_t drops, missed, late;

	nic_counters(t->w->nic[i], &c);
	ok &= equal(i, "sent_pkts", c.sent_pkts, t->seen[i].out);
	ok &= equal(i, "sent_bytes", c.sent_bytes, t->seen[i].out_bytes);
	ok &= equal(i, "rcvd_pkts", c.rcvd_pkts, t->seen[i].in);
	ok &= equal(i, "rcvd_bytes", c.rcvd_bytes, t->seen[i].in_bytes);
	drops = c.rx_short + c.rx_bad_opcode + c.rx_bad_version + c.rx_bad_pad + c.rx_icrc_encapsulated +
		c.rx_bad_pkey + c.rx_bad_qpn + c.rx_bad_source + c.rx_bad_service;
	if (!(events & TRACE_ERROR) || drops < t->seen[i].bad)
		ok &= equal(i, "dropped packets", drops, t->seen[i].bad);
	ok &= equal(i, "retransmitted_pkts", c.retransmitted_pkts, rq.retransmitted);
	/* NAKs that come when their QP is in the error state find nobody who counts them. */
	late = events & TRACE_ERROR && drops > t->seen[i].bad ? drops - t->seen[i].bad : 0;
	if (c.packet_seq_err > rq.naks_seq || rq.naks_seq - c.packet_seq_err > late)
		ok &= equal(i, "packet_seq_err", c.packet_seq_err, rq.naks_seq);
	if (!events) {
		ok &= equal(i, "duplicate_request", c.duplicate_request, rs.duplicates);
		ok &= equal(i, "out_of_sequence", c.out_of_sequence, rs.out_of_order + t->loose[i].gaps);
	}
	if (t->loops[i])
		return ok;
	if (c.rnr_nak_retry_err > rq.naks_rnr || rq.naks_rnr - c.rnr_nak_retry_err > late)
		ok &= equal(i, "rnr_nak_retry_err", c.rnr_nak_retry_err, rq.naks_rnr);
	/* Of a message that is not whole the first packet may have found no receive. */
	missed = rs.naks_rnr + t->loose[i].whole - t->loose[i].got;
	if (c.out_of_buffer < missed || c.out_of_buffer - missed > torn(t, i))
		ok &= equal(i, "out_of_buffer", c.out_of_buffer, missed);
	if (events & TRACE_ERROR && rq.naks_invalid + rq.naks_access + rq.naks_op > 1)
		return ok; /* copies of the NAK that ended the QP find nobody who counts them */
	ok &= equal(i, "req_remote_invalid_request", c.req_remote_invalid_request, rq.naks_invalid);
	ok &= equal(i, "req_remote_access_errors", c.req_remote_access_errors, rq.naks_access);
	ok &= equal(i, "req_remote_op_errors", c.req_remote_op_errors, rq.naks_op);
	return ok;
}

bool trace_check(struct trace *t, unsigned events)
{
	bool ok = true;

	for (unsigned i = 0; i < t->w->nics; i++) {
		size_t n;
		const struct oracle_finding *f = oracle_findings(t->oracle[i], &n);

		for (size_t k = 0; k < n && k < 5; k++)
			fprintf(stderr, "NIC %u, packet %llu, rule %s: %s\n", i,
				(unsigned long long)f[k].index, oracle_rule_name(f[k].rule), f[k].text);
		ok &= oracle_totals(t->oracle[i])->violations == 0;
		ok &= check_counters(t, i, events);
	}
	return ok;
}
