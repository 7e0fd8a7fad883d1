/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A port for benchmarks of the core. Packets stay where they were built, and the other NIC gets
 * pointers to them. There is no system call and no copy.
 */
#ifndef ROOST_BENCH_WIRE_H
#define ROOST_BENCH_WIRE_H

#include "base/mem.h"
#include "nic/nic.h"

#define WIRE_SLOTS 1024

struct wire {
	struct port base;
	struct wire *peer;
	struct port_path path;
	uint8_t *slots;
	uint32_t len[WIRE_SLOTS];
	uint32_t head, tail; /* packets sent to this port */
};

static struct port_path *path_get(struct port *p, const struct pkt_addr *dst, uint32_t dqpn)
{
	struct wire *w = (struct wire *)p;

	w->path.dst = *dst;
	w->path.sport = PKT_UDP_PORT;
	return &w->path;
}

static void path_put(struct port *p, struct port_path *path)
{
}

static int reserve(struct port *p, struct port_path *path, uint32_t len, uint8_t tos,
		   struct port_buf *buf)
{
	struct wire *to = ((struct wire *)p)->peer;

	if (to->tail - to->head == WIRE_SLOTS)
		return -11;
	buf->bth = to->slots + (size_t)(to->tail % WIRE_SLOTS) * 4160;
	buf->ip_id = 0;
	to->len[to->tail++ % WIRE_SLOTS] = len;
	return 0;
}

static void cancel(struct port *p)
{
	((struct wire *)p)->peer->tail--;
}

static bool flush(struct port *p)
{
	return true;
}

static int rx_burst(struct port *p, struct port_pkt *pkts, int max)
{
	struct wire *w = (struct wire *)p;
	int n = 0;

	while (n < max && w->head != w->tail) {
		uint32_t i = w->head++ % WIRE_SLOTS;

		pkts[n++] = (struct port_pkt){.bth = w->slots + (size_t)i * 4160,
					      .len = w->len[i],
					      .src = &w->peer->base.addr,
					      .dst = &w->base.addr,
					      .sport = PKT_UDP_PORT,
					      .flags = PORT_ID_KNOWN};
	}
	return n;
}

static bool arm(struct port *p)
{
	return false;
}

static void disarm(struct port *p, bool woken)
{
}

static void nothing(struct port *p)
{
}

static const struct port_ops wire_ops = {.name = "wire",
					 .path_get = path_get,
					 .path_put = path_put,
					 .reserve = reserve,
					 .cancel = cancel,
					 .flush = flush,
					 .rx_burst = rx_burst,
					 .arm = arm,
					 .disarm = disarm,
					 .after_fork = nothing,
					 .close = nothing};

static inline void wire_init(struct wire *w, struct wire *peer, const char *addr)
{
	pkt_addr_parse(addr, &w->base.addr);
	w->base.ops = &wire_ops;
	w->base.mtu = 4096;
	w->base.fd = w->base.ctl_fd = -1;
	w->base.lanes = 1;
	w->peer = peer;
	w->slots = mem_alloc_pages(WIRE_SLOTS * 4160);
}

#endif
