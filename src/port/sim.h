/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The simulated link: any number of ports in one process, in virtual time. Loss, duplication,
 * reordering, corruption and delay come from the seed: the same seed and the same calls give the
 * same run. One thread.
 */
#ifndef ROOST_PORT_SIM_H
#define ROOST_PORT_SIM_H

#include "port/port.h"

struct sim;

struct sim_params {
	/* probabilities a packet, and of a group's for each member */
	double loss, dup, reorder, corrupt;
	/* likewise: marked "congestion experienced", injected ones too */
	double ce;
	uint64_t delay_ns;	      /* one way */
	uint64_t jitter_ns;	      /* added, uniform; keeps order unless reorder strikes */
	uint64_t bytes_per_us;	      /* serialization, per sending port; 0: none */
	uint32_t window, read_window; /* as struct port reports them, */
	uint16_t gather;	      /* and this too */
	uint32_t mtu;		      /* 0: 4096 */
	bool hints;		      /* who sends to nobody is told, as by an ICMP error */
	bool readers;		      /* a port knows who reads, as on one machine */
};

/*
 * Sees every packet as it is sent and, with `delivered`, as it arrives. For captures and oracles.
 */
typedef void (*sim_tap)(void *ctx, uint64_t now, bool delivered, const struct pkt_addr *src,
			const struct pkt_addr *dst, const uint8_t *bth, uint32_t len);
/*
 * Decides a packet's fate before chance does: 0 as usual, 1 drop. For tests that lose one certain
 * packet.
 */
typedef int (*sim_filter)(void *ctx, const struct pkt_addr *src, const uint8_t *bth, uint32_t len);

/* NULL: no memory. */
struct sim *sim_create(uint64_t seed, const struct sim_params *params);
/* All its ports are closed. */
void sim_destroy(struct sim *s);
struct port *sim_port(struct sim *s, const struct pkt_addr *addr, unsigned lane, unsigned lanes);
/* Others have that address, too; packets find this port by its slot. */
void sim_share(struct port *port, unsigned slot);
void sim_set_params(struct sim *s, const struct sim_params *params);
void sim_set_tap(struct sim *s, sim_tap tap, void *ctx);
void sim_set_filter(struct sim *s, sim_filter filter, void *ctx);

uint64_t sim_now(const struct sim *s);
/*
 * Copies of packets that did not arrive as they were sent: lost or changed on the way, or nobody
 * had room for them.
 */
uint64_t sim_lost(const struct sim *s);
/* Time of the next delivery, UINT64_MAX when nothing is on its way. */
uint64_t sim_next_event(const struct sim *s);
/* Moves virtual time forward to t. */
void sim_advance(struct sim *s, uint64_t t);
/* Puts a packet on the link as if `src` had sent it: hostile peers, replays. */
void sim_inject(struct sim *s, const struct pkt_addr *src, const struct pkt_addr *dst,
		const uint8_t *bth, uint32_t len);
/*
 * The UDP source port of packets injected from now on; at first 4791, as of those that ports send.
 */
void sim_inject_port(struct sim *s, uint16_t sport);

#endif
