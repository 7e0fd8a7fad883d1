/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The simulated link: any number of ports in one process, in virtual time. Loss, duplication,
 * reordering, corruption and delay are drawn from the seed. The same seed and the same calls give
 * the same run. Not thread-safe.
 */
#ifndef ROOST_PORT_SIM_H
#define ROOST_PORT_SIM_H

#include "port/port.h"

struct sim;

struct sim_params {
	/* probabilities, drawn for each packet, and for each member of a group */
	double loss, dup, reorder, corrupt;
	/* probability of the mark "congestion experienced", for injected packets too */
	double ce;
	uint64_t delay_ns; /* one way */
	/*
	 * maximum of a uniform additional delay; it keeps the order, except for reordered packets
	 */
	uint64_t jitter_ns;
	uint64_t bytes_per_us;	      /* bandwidth of each sending port; 0: unlimited */
	uint32_t window, read_window; /* as in struct port */
	uint16_t batch;		      /* as in struct port */
	uint32_t mtu;		      /* 0: 4096 */
	/* a packet without a receiver makes a hint, like an ICMP error */
	bool hints;
	bool readers; /* the ports know their readers, like ports of one machine */
};

/*
 * Called for each packet when it is sent and, with `delivered`, when it arrives. Captures and
 * oracles use it.
 */
typedef void (*sim_tap)(void *ctx, uint64_t now, bool delivered, const struct pkt_addr *src,
			const struct pkt_addr *dst, const uint8_t *bth, uint32_t len);
/*
 * Decides about a packet before the random faults. Returns 1 to drop it, or 0. For tests that lose
 * a particular packet.
 */
typedef int (*sim_filter)(void *ctx, const struct pkt_addr *src, const uint8_t *bth, uint32_t len);

/* Creates a link. Returns NULL if there is no memory. */
struct sim *sim_create(uint64_t seed, const struct sim_params *params);
/* Destroys the link. All ports must be closed before. */
void sim_destroy(struct sim *s);
/*
 * Adds a port to the link. Returns NULL if there is no memory, or if the link has too many ports.
 * The link does not close it.
 */
struct port *sim_port(struct sim *s, const struct pkt_addr *addr, unsigned lane, unsigned lanes);
/* Lets other ports have the same address: packets are then steered by slot. */
void sim_share(struct port *port, unsigned slot);
/* Changes the parameters for packets that are sent from now on. */
void sim_set_params(struct sim *s, const struct sim_params *params);
void sim_set_tap(struct sim *s, sim_tap tap, void *ctx);
void sim_set_filter(struct sim *s, sim_filter filter, void *ctx);

/* Returns the virtual time in ns. */
uint64_t sim_now(const struct sim *s);
/*
 * Returns the number of copies of packets that did not arrive as sent: they were lost or changed on
 * the way, or no port had space.
 */
uint64_t sim_lost(const struct sim *s);
/* Returns the time of the next delivery, or UINT64_MAX if no packet is on its way. */
uint64_t sim_next_event(const struct sim *s);
/* Moves virtual time forward to t. */
void sim_advance(struct sim *s, uint64_t t);
/* Injects a packet as if `src` had sent it, for hostile peers and replays. */
void sim_inject(struct sim *s, const struct pkt_addr *src, const struct pkt_addr *dst,
		const uint8_t *bth, uint32_t len);
/*
 * Sets the UDP source port of packets injected from now on. The default is 4791, as for packets of
 * ports.
 */
void sim_inject_port(struct sim *s, uint16_t sport);

#endif
