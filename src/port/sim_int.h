/* SPDX-License-Identifier: BSD-2-Clause */
/* Shared by the simulated link (sim.c) and its ports (sim_port.c). */
#ifndef ROOST_PORT_SIM_INT_H
#define ROOST_PORT_SIM_INT_H

#include "base/list.h"
#include "base/rng.h"
#include "packet/headers.h"
#include "port/port_impl.h"
#include "port/sim.h"

#define SIM_MAX_PORTS 128
#define SIM_NOBODY    SIM_MAX_PORTS /* a receiver that does not exist */
/* start of virtual time; not 0, which means "never" in some fields */
#define SIM_START 1000000
/* packets that a port holds before it drops packets, like a socket */
#define SIM_QUEUE 512

struct flight {
	uint64_t at, order; /* time of delivery; the order of sending decides ties */
	struct pkt_addr src, dst;
	unsigned port; /* receiver, or SIM_NOBODY */
	uint32_t len;
	uint16_t sport;
	uint8_t tos;
	uint8_t data[PKT_MAX_LEN];
};

struct sim_group;

struct sim_port {
	struct port base;
	struct sim *sim;
	unsigned index;
	struct list_head paths, groups;
	/* the last reservation; it may lack its ICRC until the flush (port.h, `lag`) */
	struct flight *staged;
	/* the reservation before it; it is complete when the next one is made */
	struct flight *before;
	uint64_t busy_until;
	uint64_t last_at; /* arrival time of its latest packet that was not reordered */
	/* the packets of the last burst, freed at the next burst */
	struct flight *taken[PORT_BURST];
	int num_taken;
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
	/* arrived packets of each port, in order */
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

/* ---- sim.c ---- */

/* Returns a spare packet or a new one, or NULL if there is no memory. */
struct flight *sim_flight_get(struct sim *s);
/* Returns a packet to the spare packets. */
void sim_flight_put(struct sim *s, struct flight *f);
/* Sends a packet from a port. The link owns it from then on. */
void sim_transmit(struct sim_port *p, struct flight *f);

/* ---- sim_port.c ---- */

/* Returns the port's membership of a group, or NULL. */
struct sim_group *sim_member(const struct sim_port *p, const struct pkt_addr *group);

#endif
