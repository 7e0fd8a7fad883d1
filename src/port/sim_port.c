/* SPDX-License-Identifier: BSD-2-Clause */
/* The ports of the simulated link. */
#include "port/sim_int.h"

#include <errno.h>
#include <stdlib.h>

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

struct sim_group *sim_member(const struct sim_port *p, const struct pkt_addr *group)
{
	struct list_head *l;

	list_for_each (l, &p->groups) {
		struct sim_group *g = list_entry(l, struct sim_group, link);

		if (pkt_addr_eq(&g->addr, group))
			return g;
	}
	return NULL;
}

static void send_staged(struct sim_port *p, struct flight **staged)
{
	struct flight *f = *staged;

	if (!f)
		return;
	*staged = NULL;
	p->base.stats.tx_packets++;
	p->base.stats.tx_bytes += f->len;
	sim_transmit(p, f);
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
	struct sim_group *g = sim_member((struct sim_port *)port, group);

	if (!g)
		return;
	list_del(&g->link);
	free(g);
}

static int sim_reserve(struct port *port, struct port_path *path, uint32_t len, uint8_t tos,
		       struct port_buf *buf)
{
	struct sim_port *p = (struct sim_port *)port;

	struct flight *f = sim_flight_get(p->sim);

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
	buf->bth = p->staged->data;
	buf->ip_id = 0;
	return 0;
}

static void sim_cancel(struct port *port)
{
	struct sim_port *p = (struct sim_port *)port;

	send_staged(p, &p->before);
	if (p->staged)
		sim_flight_put(p->sim, p->staged);
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

	while (p->num_taken)
		sim_flight_put(s, p->taken[--p->num_taken]);
	while (p->num_taken < max && p->num_taken < PORT_BURST && s->head[i] != s->tail[i]) {
		struct flight *f = s->queue[i][s->head[i]++ % SIM_QUEUE];

		pkts[p->num_taken] = (struct port_pkt){
			.bth = f->data,
			.src = &f->src,
			.dst = &f->dst,
			.len = f->len,
			.sport = f->sport,
			.tos = f->tos,
			.flags = PORT_ID_KNOWN | ((f->tos & 3) == 3 ? PORT_CE : 0),
		};
		p->taken[p->num_taken++] = f;
		port->stats.rx_packets++;
		port->stats.rx_bytes += f->len;
	}
	return p->num_taken;
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
	while (p->num_taken)
		sim_flight_put(s, p->taken[--p->num_taken]);
	while (!list_empty(&p->paths)) {
		struct sim_path *path = list_first_entry(&p->paths, struct sim_path, link);

		list_del(&path->link);
		free(path);
	}
	while (!list_empty(&p->groups))
		sim_leave(port, &list_first_entry(&p->groups, struct sim_group, link)->addr);
	while (s->head[p->index] != s->tail[p->index])
		sim_flight_put(s, s->queue[p->index][s->head[p->index]++ % SIM_QUEUE]);
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
	p->base.medium = 1; /* all ports are on one link */
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
