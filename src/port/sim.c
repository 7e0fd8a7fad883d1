/* SPDX-License-Identifier: BSD-2-Clause */
#include "port/sim.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/list.h"
#include "base/rng.h"
#include "packet/headers.h"
#include "port/port_impl.h"

#define SIM_MAX_PORTS 128
#define SIM_NOBODY    SIM_MAX_PORTS /* as receiver */
#define SIM_START     1000000	    /* start of virtual time: 0 means "never" in places */
#define SIM_QUEUE     512	    /* packets a port holds before it drops, as a socket would */

struct flight {
	uint64_t at, order; /* delivery; ties in the order of sending */
	struct pkt_addr src, dst;
	unsigned port; /* receiver, or SIM_NOBODY */
	uint32_t len;
	uint16_t sport;
	uint8_t tos;
	uint8_t data[PKT_MAX_LEN];
};

struct sim_path {
	struct port_path base;
	struct list_head link;
	unsigned refs;
	uint32_t slot, lane;
};

struct sim_group {
	struct pkt_addr addr;
	struct list_head link;
};

struct sim_port {
	struct port base;
	struct sim *sim;
	unsigned index;
	struct list_head paths, groups;
	/* the last reservation; it may lack its ICRC until the flush (port.h, `lag`) */
	struct flight *staged;
	/* the reservation before it, complete when the next is made */
	struct flight *before;
	uint64_t busy_until;
	uint64_t last_at; /* arrival time of its latest packet that was not reordered */
	struct flight *held[PORT_BURST];
	int num_held;
};

struct sim {
	struct sim_params params;
	struct rng rng;
	uint64_t now, order, lost;
	struct sim_port *ports[SIM_MAX_PORTS];
	unsigned num_ports;
	/* binary heap by (at, order) */
	struct flight **heap;
	size_t count, cap;
	/* arrived, in order, per port */
	struct flight *queue[SIM_MAX_PORTS][SIM_QUEUE];
	unsigned head[SIM_MAX_PORTS], tail[SIM_MAX_PORTS];
	struct flight **spare;
	size_t num_spare, cap_spare;
	sim_tap tap;
	void *tap_ctx;
	sim_filter filter;
	void *filter_ctx;
	uint16_t inject_port;
};

static struct flight *flight_get(struct sim *s)
{
	return s->num_spare ? s->spare[--s->num_spare] : malloc(sizeof(struct flight));
}

static void flight_put(struct sim *s, struct flight *f)
{
	if (s->num_spare == s->cap_spare) {
		size_t cap = s->cap_spare ? s->cap_spare * 2 : 256;
		struct flight **p = realloc(s->spare, cap * sizeof(*p));

		if (!p) {
			free(f);
			return;
		}
		s->spare = p;
		s->cap_spare = cap;
	}
	s->spare[s->num_spare++] = f;
}

static bool before(const struct flight *a, const struct flight *b)
{
	return a->at != b->at ? a->at < b->at : a->order < b->order;
}

static void heap_push(struct sim *s, struct flight *f)
{
	size_t i;

	if (s->count == s->cap) {
		size_t cap = s->cap ? s->cap * 2 : 256;
		struct flight **p = realloc(s->heap, cap * sizeof(*p));

		if (!p) { /* no memory: a loss like another */
			flight_put(s, f);
			return;
		}
		s->heap = p;
		s->cap = cap;
	}
	f->order = s->order++;
	for (i = s->count++; i && before(f, s->heap[(i - 1) / 2]); i = (i - 1) / 2)
		s->heap[i] = s->heap[(i - 1) / 2];
	s->heap[i] = f;
}

static struct flight *heap_pop(struct sim *s)
{
	struct flight *top = s->heap[0], *last = s->heap[--s->count];
	size_t i = 0, c;

	while ((c = 2 * i + 1) < s->count) {
		if (c + 1 < s->count && before(s->heap[c + 1], s->heap[c]))
			c++;
		if (!before(s->heap[c], last))
			break;
		s->heap[i] = s->heap[c];
		i = c;
	}
	s->heap[i] = last;
	return top;
}

static bool is_mine(const struct sim_port *p, const struct pkt_addr *dst, uint32_t qpn)
{
	if (!p || !pkt_addr_eq(&p->base.addr, dst))
		return false;
	if (p->base.shared && qpn > 1)
		return p->base.slot == PORT_SLOT_OF_QPN(qpn);
	return p->base.lane == PORT_LANE_OF_QPN(qpn, p->base.lanes);
}

/*
 * Returns the port for a packet to `dst`, or SIM_NOBODY. If several ports share the address, the
 * first one receives packets to QP 1.
 */
static unsigned receiver(struct sim *s, const struct pkt_addr *dst, const uint8_t *bth)
{
	uint32_t qpn = pkt_get24(((const struct pkt_bth *)bth)->dqpn);

	for (unsigned i = 0; i < s->num_ports; i++)
		if (is_mine(s->ports[i], dst, qpn))
			return i;
	return SIM_NOBODY;
}

static bool chance(struct sim *s, double p)
{
	return p > 0 && rng_double(&s->rng) < p;
}

static struct sim_group *member(const struct sim_port *p, const struct pkt_addr *group)
{
	struct list_head *l;

	list_for_each (l, &p->groups) {
		struct sim_group *g = list_entry(l, struct sim_group, link);

		if (pkt_addr_eq(&g->addr, group))
			return g;
	}
	return NULL;
}

/* The sender gets the hint at once; its exact time does not matter. */
static void hint(struct sim *s, const struct flight *f)
{
	struct port_hint h = {.dst = f->dst, .quotes = true};

	port_quote(&h, f->data, f->len);
	for (unsigned i = 0; i < s->num_ports; i++) {
		if (s->ports[i] && pkt_addr_eq(&s->ports[i]->base.addr, &f->src))
			port_add_hint(&s->ports[i]->base, &h);
	}
}

static void arrive(struct sim *s, struct flight *f, uint64_t at)
{
	if (f->port == SIM_NOBODY) {
		if (s->params.hints)
			hint(s, f);
		flight_put(s, f);
		return;
	}
	if (chance(s, s->params.ce))
		f->tos |= 3;
	f->at = at;
	heap_push(s, f);
}

/* Applies the random faults to the copy of one receiver. `at`: the time at which it left. */
static void travel(struct sim_port *p, struct flight *f, uint64_t at)
{
	struct sim *s = p->sim;
	const struct sim_params *q = &s->params;

	if (chance(s, q->loss)) {
		s->lost++;
		flight_put(s, f);
		return;
	}
	at += q->delay_ns;
	if (q->jitter_ns)
		at += rng_below(&s->rng, q->jitter_ns);
	if (at < p->last_at)
		at = p->last_at;
	if (chance(s, q->reorder))
		at += (q->delay_ns ? q->delay_ns : 1000) * (1 + rng_below(&s->rng, 4));
	else
		p->last_at = at;
	if (chance(s, q->dup)) {
		struct flight *g = flight_get(s);

		if (g) {
			*g = *f;
			arrive(s, g, at + rng_below(&s->rng, 2 * q->delay_ns + 1));
		}
	}
	if (chance(s, q->corrupt)) {
		s->lost++;
		f->data[rng_below(&s->rng, f->len)] ^= (uint8_t)(1u << rng_below(&s->rng, 8));
	}
	arrive(s, f, at);
}

/*
 * Sends a packet to its receivers; for a group, a copy to each member, including the sender. `from`
 * NULL: no random faults.
 */
static void launch(struct sim *s, struct sim_port *from, struct flight *f, uint64_t at)
{
	bool group = pkt_addr_is_group(&f->dst);

	for (unsigned i = 0; group && i < s->num_ports; i++) {
		struct flight *copy;

		if (!s->ports[i] || !member(s->ports[i], &f->dst))
			continue;
		copy = flight_get(s);
		if (!copy)
			break;
		*copy = *f;
		copy->port = i;
		if (from)
			travel(from, copy, at);
		else
			arrive(s, copy, at);
	}
	if (group) {
		flight_put(s, f);
		return;
	}
	f->port = receiver(s, &f->dst, f->data);
	if (from)
		travel(from, f, at);
	else
		arrive(s, f, at);
}

static void transmit(struct sim_port *p, struct flight *f)
{
	struct sim *s = p->sim;

	if (s->tap)
		s->tap(s->tap_ctx, s->now, false, &f->src, &f->dst, f->data, f->len);
	if (s->filter && s->filter(s->filter_ctx, &f->src, f->data, f->len)) {
		s->lost++;
		flight_put(s, f);
		return;
	}
	if (p->busy_until < s->now)
		p->busy_until = s->now;
	if (s->params.bytes_per_us)
		p->busy_until += (uint64_t)f->len * 1000 / s->params.bytes_per_us;
	launch(s, p, f, p->busy_until);
}

static void send_staged(struct sim_port *p, struct flight **staged)
{
	struct flight *f = *staged;

	if (!f)
		return;
	*staged = NULL;
	p->base.stats.tx_packets++;
	p->base.stats.tx_bytes += f->len;
	transmit(p, f);
}

static struct port_path *sim_path_get(struct port *port, const struct pkt_addr *dst, uint32_t dqpn)
{
	struct sim_port *p = (struct sim_port *)port;
	uint32_t slot = PORT_SLOT_OF_QPN(dqpn);
	/* ports that share an address have a slot for each lane */
	uint32_t lane = port->shared ? 0 : PORT_LANE_OF_QPN(dqpn, PORT_MAX_LANES);
	struct sim_path *path;
	struct list_head *l;

	list_for_each (l, &p->paths) {
		path = list_entry(l, struct sim_path, link);
		if (pkt_addr_eq(&path->base.dst, dst) && path->slot == slot && path->lane == lane) {
			path->refs++;
			return &path->base;
		}
	}
	path = calloc(1, sizeof(*path));
	if (!path) {
		errno = ENOMEM;
		return NULL;
	}
	port_path_init(&path->base, port, dst, PKT_UDP_PORT);
	path->slot = slot;
	path->lane = lane;
	path->refs = 1;
	list_add_tail(&path->link, &p->paths);
	return &path->base;
}

static void sim_path_put(struct port *port, struct port_path *base)
{
	struct sim_path *path = (struct sim_path *)base;

	if (--path->refs)
		return;
	list_del(&path->link);
	free(path);
}

static enum port_reader sim_reader(struct port *port, const struct port_path *path)
{
	const struct sim *s = ((struct sim_port *)port)->sim;
	const struct sim_path *to = (const struct sim_path *)path;
	enum port_reader found = PORT_READER_UNKNOWN;

	for (unsigned i = 0; i < s->num_ports && s->params.readers; i++) {
		const struct sim_port *p = s->ports[i];

		if (!p || !pkt_addr_eq(&p->base.addr, &path->dst) ||
		    (p->base.shared && p->base.slot != to->slot))
			continue;
		if (s->head[i] != s->tail[i])
			return PORT_READER_STALLED;
		found = PORT_READER_READS;
	}
	return found;
}

static int sim_join(struct port *port, const struct pkt_addr *group)
{
	struct sim_port *p = (struct sim_port *)port;
	struct sim_group *g = calloc(1, sizeof(*g));

	if (!g)
		return -ENOMEM;
	g->addr = *group;
	list_add_tail(&g->link, &p->groups);
	return 0;
}

static void sim_leave(struct port *port, const struct pkt_addr *group)
{
	struct sim_group *g = member((struct sim_port *)port, group);

	if (!g)
		return;
	list_del(&g->link);
	free(g);
}

static int sim_reserve(struct port *port, struct port_path *path, uint32_t len, uint8_t tos,
		       struct port_room *room)
{
	struct sim_port *p = (struct sim_port *)port;

	struct flight *f = flight_get(p->sim);

	if (!f)
		return -EAGAIN;
	send_staged(p, &p->before);
	p->before = p->staged;
	p->staged = f;
	p->staged->src = port->addr;
	p->staged->dst = path->dst;
	p->staged->len = len;
	p->staged->tos = tos;
	p->staged->sport = PKT_UDP_PORT;
	room->bth = p->staged->data;
	room->ip_id = 0;
	return 0;
}

static void sim_cancel(struct port *port)
{
	struct sim_port *p = (struct sim_port *)port;

	send_staged(p, &p->before);
	if (p->staged)
		flight_put(p->sim, p->staged);
	p->staged = NULL;
}

static bool sim_flush(struct port *port)
{
	struct sim_port *p = (struct sim_port *)port;

	send_staged(p, &p->before);
	send_staged(p, &p->staged);
	return true;
}

static int sim_rx_burst(struct port *port, struct port_pkt *pkts, int max)
{
	struct sim_port *p = (struct sim_port *)port;
	struct sim *s = p->sim;
	unsigned i = p->index;

	while (p->num_held)
		flight_put(s, p->held[--p->num_held]);
	while (p->num_held < max && p->num_held < PORT_BURST && s->head[i] != s->tail[i]) {
		struct flight *f = s->queue[i][s->head[i]++ % SIM_QUEUE];

		pkts[p->num_held] = (struct port_pkt){
			.bth = f->data,
			.src = &f->src,
			.dst = &f->dst,
			.len = f->len,
			.sport = f->sport,
			.tos = f->tos,
			.flags = PORT_ID_KNOWN | ((f->tos & 3) == 3 ? PORT_CE : 0),
		};
		p->held[p->num_held++] = f;
		port->stats.rx_packets++;
		port->stats.rx_bytes += f->len;
	}
	return p->num_held;
}

static bool sim_arm(struct port *port)
{
	struct sim_port *p = (struct sim_port *)port;

	return p->sim->head[p->index] == p->sim->tail[p->index];
}

static void sim_disarm(struct port *port, bool woken)
{
}

static void sim_after_fork(struct port *port)
{
}

static void sim_close(struct port *port)
{
	struct sim_port *p = (struct sim_port *)port;
	struct sim *s = p->sim;

	sim_cancel(port);
	while (p->num_held)
		flight_put(s, p->held[--p->num_held]);
	while (!list_empty(&p->paths)) {
		struct sim_path *path = list_first_entry(&p->paths, struct sim_path, link);

		list_del(&path->link);
		free(path);
	}
	while (!list_empty(&p->groups))
		sim_leave(port, &list_first_entry(&p->groups, struct sim_group, link)->addr);
	while (s->head[p->index] != s->tail[p->index])
		flight_put(s, s->queue[p->index][s->head[p->index]++ % SIM_QUEUE]);
	s->ports[p->index] = NULL;
	free(p);
}

static const struct port_ops sim_ops = {
	.name = "sim",
	.path_get = sim_path_get,
	.path_put = sim_path_put,
	.reader = sim_reader,
	.join = sim_join,
	.leave = sim_leave,
	.reserve = sim_reserve,
	.cancel = sim_cancel,
	.flush = sim_flush,
	.rx_burst = sim_rx_burst,
	.arm = sim_arm,
	.disarm = sim_disarm,
	.after_fork = sim_after_fork,
	.close = sim_close,
};

struct sim *sim_create(uint64_t seed, const struct sim_params *params)
{
	struct sim *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	rng_seed(&s->rng, seed);
	s->inject_port = PKT_UDP_PORT;
	s->now = SIM_START;
	if (params)
		s->params = *params;
	return s;
}

void sim_destroy(struct sim *s)
{
	while (s->count)
		free(heap_pop(s));
	while (s->num_spare)
		free(s->spare[--s->num_spare]);
	free(s->spare);
	free(s->heap);
	free(s);
}

struct port *sim_port(struct sim *s, const struct pkt_addr *addr, unsigned lane, unsigned lanes)
{
	struct sim_port *p;

	if (s->num_ports == SIM_MAX_PORTS)
		return NULL;
	p = calloc(1, sizeof(*p));
	if (!p)
		return NULL;
	p->base.ops = &sim_ops;
	p->base.addr = *addr;
	p->base.mtu = s->params.mtu ? s->params.mtu : PKT_MAX_PAYLOAD;
	p->base.window = s->params.window;
	p->base.read_window = s->params.read_window;
	p->base.batch = s->params.batch;
	p->base.lag = 1;
	p->base.medium = 1; /* one link for all */
	p->base.fd = p->base.ctl_fd = -1;
	p->base.lane = (uint8_t)lane;
	p->base.lanes = (uint8_t)lanes;
	p->sim = s;
	p->index = s->num_ports;
	list_init(&p->paths);
	list_init(&p->groups);
	s->ports[s->num_ports++] = p;
	return &p->base;
}

void sim_share(struct port *port, unsigned slot)
{
	port->shared = true;
	port->slot = (uint8_t)slot;
}

void sim_set_params(struct sim *s, const struct sim_params *params)
{
	s->params = *params;
}

void sim_set_tap(struct sim *s, sim_tap tap, void *ctx)
{
	s->tap = tap;
	s->tap_ctx = ctx;
}

void sim_set_filter(struct sim *s, sim_filter filter, void *ctx)
{
	s->filter = filter;
	s->filter_ctx = ctx;
}

uint64_t sim_now(const struct sim *s)
{
	return s->now;
}

uint64_t sim_lost(const struct sim *s)
{
	return s->lost;
}

uint64_t sim_next_event(const struct sim *s)
{
	return s->count ? s->heap[0]->at : UINT64_MAX;
}

void sim_advance(struct sim *s, uint64_t t)
{
	if (t > s->now)
		s->now = t;
	while (s->count && s->heap[0]->at <= s->now) {
		struct flight *f = heap_pop(s);
		unsigned i = f->port;

		/* Gone, or its queue is full: lost. */
		if (!s->ports[i] || s->tail[i] - s->head[i] == SIM_QUEUE) {
			s->lost++;
			flight_put(s, f);
			continue;
		}
		if (s->tap)
			s->tap(s->tap_ctx, s->now, true, &f->src, &f->dst, f->data, f->len);
		s->queue[i][s->tail[i]++ % SIM_QUEUE] = f;
	}
}

void sim_inject_port(struct sim *s, uint16_t sport)
{
	s->inject_port = sport;
}

void sim_inject(struct sim *s, const struct pkt_addr *src, const struct pkt_addr *dst,
		const uint8_t *bth, uint32_t len)
{
	struct flight *f;

	if (len < sizeof(struct pkt_bth) || len > PKT_MAX_LEN)
		return;
	f = flight_get(s);
	if (!f)
		return;
	f->src = *src;
	f->dst = *dst;
	f->len = len;
	f->sport = s->inject_port;
	f->tos = 0;
	memcpy(f->data, bth, len);
	launch(s, NULL, f, s->now + s->params.delay_ns);
}
