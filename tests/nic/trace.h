/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A tap at each NIC of a world: the packets that it sent and received, in order. It feeds an oracle
 * for each address of a NIC (packet/oracle.h), keeps the last packets to print them, and compares
 * the NICs' counters with the packets.
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
	struct oracle *oracle[WORLD_MAX_NICS][NIC_MAX_PORTS + 1]; /* the last one is NULL */
	struct {
		uint64_t out, out_bytes, in, in_bytes, bad;
		uint64_t cnp_in, cnp_out;
		/* marked packets of connections that require a CNP */
		uint64_t cnp_due;
		/*
		 * valid packets for a connection that are not from its peer, or not to its address
		 */
		uint64_t strange;
		/*
		 * broken packets that the NIC may count as such: their QP number is that of
		 * another connection, or the port of the peer is not known yet (rx.c checks the
		 * source before the ICRC)
		 */
		uint64_t suspect;
	} seen[WORLD_MAX_NICS];
	/*
	 * Of unreliable services, messages that take a receive; the caller sets the first and last
	 * of these fields.
	 */
	struct {
		uint64_t sent;
		uint64_t whole; /* of connections: all their packets were received in order */
		uint64_t due;	/* datagrams, once for each receiving QP */
		/* datagrams of a group without members; set by the caller */
		uint64_t stray;
		uint64_t got;  /* delivered */
		uint64_t torn; /* only the first packets were delivered */
		uint64_t gaps; /* of connections: packets with another than the expected PSN */
	} loose[WORLD_MAX_NICS];
	struct trace_end {
		const struct ep *e, *peer;
		bool uc, inside;   /* no packet of the message is missing */
		bool heard;	   /* a valid packet of the peer, which shows its port, was taken */
		uint32_t psn;	   /* UC: expected */
		uint64_t cnp_next; /* from this time on a marked packet causes a CNP */
	} end[TRACE_ENDS];
	unsigned num_ends;
	/*
	 * Called for each valid datagram when its NIC sends it, and when the port receives it.
	 * Returns the number of QPs that get it. NULL: one.
	 */
	unsigned (*datagram)(void *ctx, const struct port *port, const struct trace_packet *r);
	void *ctx;
	uint8_t sample[PKT_MAX_LEN]; /* the latest packet of a connection */
	struct pkt_addr sample_src, sample_dst;
	uint32_t sample_len;
	/* has QPs that are connected to each other: their errors are counted without packets */
	bool loops[WORLD_MAX_NICS];
	struct trace_packet last[TRACE_KEEP];
	uint64_t packets;
	double full; /* probability that a port is full */
	struct rng rng;
	FILE *live;		     /* prints each packet there at once; NULL: no output */
	const struct port_ops *real; /* the simulator's */
	struct port_ops tapped;
};

/*
 * One trace at a time in a process. `disorder`: the link reorders or duplicates. `mtu`: of all
 * connections; 0: various, which makes the oracles less sharp. Call before anything is sent.
 */
void trace_start(struct trace *t, struct world *w, bool disorder, uint32_t mtu);
/* Reports that two endpoints, RC or UC, are connected now. */
void trace_pair(struct trace *t, const struct ep *a, const struct ep *b);
void trace_stop(struct trace *t);
void trace_print(const struct trace *t, FILE *f);
enum trace_events {
	/* there were RNR NAKs, so the trace does not know the expected PSN exactly */
	TRACE_RNR = 1,
	TRACE_ERROR = 2, /* QPs went to the error state, in which a NIC drops valid packets */
	TRACE_MTU = 4,	 /* path MTUs differ, so the number of PSNs of a READ is unknown */
};

/*
 * Returns true if no oracle has found an error and all counters equal the trace. Prints errors to
 * stderr.
 */
bool trace_check(struct trace *t, unsigned events);

#endif
