/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A tap at every NIC of a world: the packets that it sent and received, in order. It feeds one
 * oracle per address of a NIC (packet/oracle.h, at that end), keeps the last packets to print them,
 * and compares the NICs' counters with the packets.
 */
#ifndef ROOST_TESTS_TRACE_H
#define ROOST_TESTS_TRACE_H

#include <stdio.h>

#include "base/rng.h"
#include "packet/oracle.h"
#include "world.h"

#define TRACE_KEEP 64
#define TRACE_ENDS (2 * 16)

struct trace_packet {
	uint64_t at, index;
	bool in, ok; /* ok: it parses and its ICRC is right */
	struct pkt_addr src, dst;
	struct pkt_view v;
	uint32_t len;
};

struct trace {
	struct world *w;
	struct oracle *oracle[WORLD_MAX_NICS][NIC_MAX_PORTS + 1]; /* NULL behind the last */
	struct {
		uint64_t out, out_bytes, in, in_bytes, bad;
		uint64_t cnp_in, cnp_out;
		/* marked packets of connections that were to be answered with one */
		uint64_t cnp_due;
		/* whole, for a connection, and not from its peer or not to its address */
		uint64_t strange;
	} seen[WORLD_MAX_NICS];
	/*
	 * Of unreliable services, messages that take a receive; the first and last are told by
	 * whoever knows.
	 */
	struct {
		uint64_t sent;
		uint64_t whole; /* of connections: all their packets were taken in, in order */
		uint64_t due;	/* datagrams: once for each QP that they are for */
		/* those of a group that nobody is in any more; told by whoever knows */
		uint64_t stray;
		uint64_t got;  /* delivered */
		uint64_t torn; /* only the first of them were */
		uint64_t gaps; /* of connections: packets that are not the next one */
	} loose[WORLD_MAX_NICS];
	struct trace_end {
		const struct ep *e, *peer;
		bool uc, inside;   /* a message of which nothing is missing */
		uint32_t psn;	   /* UC: expected */
		uint64_t cnp_next; /* a marked packet is answered from then on */
	} end[TRACE_ENDS];
	unsigned num_ends;
	/*
	 * Told of each whole datagram as it leaves its NIC and as it is taken in, by that port: for
	 * how many QPs is it then? NULL: one.
	 */
	unsigned (*datagram)(void *ctx, const struct port *port, const struct trace_packet *r);
	void *ctx;
	uint8_t sample[PKT_MAX_LEN]; /* the latest packet of a connection */
	struct pkt_addr sample_src, sample_dst;
	uint32_t sample_len;
	/* QPs of it talk to each other: their errors are counted and not seen */
	bool loops[WORLD_MAX_NICS];
	struct trace_packet last[TRACE_KEEP];
	uint64_t packets;
	double full; /* how often a port has no room for a packet */
	struct rng rng;
	FILE *live;		     /* where to print every packet at once; NULL: nowhere */
	const struct port_ops *real; /* the simulator's */
	struct port_ops tapped;
};

/*
 * One trace at a time in a process. `disorder`: the link reorders or duplicates. `mtu`: of all
 * connections; 0: various, which makes the oracles less sharp. Call before anything is sent.
 */
void trace_start(struct trace *t, struct world *w, bool disorder, uint32_t mtu);
/* They are connected, RC or UC, and not before it was said. */
void trace_pair(struct trace *t, const struct ep *a, const struct ep *b);
void trace_stop(struct trace *t);
void trace_print(const struct trace *t, FILE *f);
enum trace_events {
	/* there were RNR NAKs, which make the trace's idea of the expected PSN uncertain */
	TRACE_RNR = 1,
	TRACE_ERROR = 2, /* QPs went to the error state, in which a NIC drops what is right */
	TRACE_MTU = 4,	 /* path MTUs are various, so how many PSNs a READ takes is not known */
};

/*
 * True when no oracle has found anything and all counters equal what was seen. Says on stderr what
 * is wrong.
 */
bool trace_check(struct trace *t, unsigned events);

#endif
