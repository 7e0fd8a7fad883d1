/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Shared by the files of src/port: the specification of a port, the functions that port_open()
 * uses, and the wrappers. Only src/port, its tests, and users of the simulator (port/sim.h) include
 * this header.
 */
#ifndef ROOST_PORT_PORT_IMPL_H
#define ROOST_PORT_PORT_IMPL_H

#include <endian.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "packet/headers.h"
#include "packet/opcode.h"
#include "port/port.h"

#define PORT_DEFAULT_SEED 1

/* Faults that the fault port adds to outgoing packets. Probabilities are 0 .. 1. */
struct port_faults {
	double loss, dup, reorder, corrupt;
	uint64_t delay_ns;
	uint64_t seed;
};

/* A specification, parsed: KIND[:ADDRESS][,OPTION=VALUE...]. */
struct port_spec {
	char kind[16];
	bool has_address;
	struct pkt_addr addr; /* valid with has_address; otherwise the port chooses an address */
	/*
	 * 256 .. 4096; 0: no limit. The port takes the smaller one of this and the largest MTU that
	 * fits
	 */
	uint32_t mtu;
	uint32_t window; /* bytes; 0: the port chooses it */
	/* buffer=: bytes to request for the buffers of a udp socket; 0: as many as are useful */
	uint32_t buffer;
	uint32_t ring;	 /* ring=: bytes of a shm ring, a power of two; 0: the port chooses it */
	bool no_offload; /* offload=0: udp uses neither UDP_SEGMENT nor UDP_GRO */
	char pcap[256];	 /* file to write; "": no capture */
	struct port_faults faults;
};

/* Parses a specification. Returns 0, or -EINVAL with one line in err. Pure. */
int port_spec_parse(const char *text, struct port_spec *spec, char *err, size_t errlen);
/* Returns true if any fault injection is requested. */
bool port_faults_any(const struct port_faults *f);

/*
 * Returns the largest path MTU (256 .. 4096) whose packets fit in `bytes` of BTH .. ICRC. The
 * result is at most `limit`, unless that is 0. Returns 0 if none fits.
 */
uint32_t port_mtu_fit(uint32_t bytes, uint32_t limit);

/*
 * Open a lane of a kind, without faults and capture. Without spec->has_address they choose an
 * address. They return NULL, with errno set and one line in err with the remedy, if this fails.
 */
struct port *udp_open_port(const struct port_spec *spec, unsigned lane, unsigned lanes, char *err,
			   size_t errlen);
struct port *shm_open_port(const struct port_spec *spec, unsigned lane, unsigned lanes, char *err,
			   size_t errlen);

/*
 * Opens a lane with udp and shm behind one address: shared memory reaches the ports of this kind in
 * the same pool, udp all others (port/host.c). If shared memory does not work on this machine, it
 * logs one line and returns a udp port.
 */
struct port *host_open_port(const struct port_spec *spec, unsigned lane, unsigned lanes, char *err,
			    size_t errlen);
/*
 * Opens an shm endpoint at an address and slot of the pool. `scope` is that of pool_addr_get().
 * Other members find the endpoint by the pool. It has no address, folder or groups of its own.
 * `slot` belongs to this process, and pool_addr_tell() was called for it. path_get() returns NULL
 * with errno EHOSTUNREACH if the other end takes no rings.
 */
struct pool;
/* Returns true if the ring size of the specification is 0 or an allowed size. */
bool shm_ring_ok(const struct port_spec *spec); /* ring= */
struct port *shm_open_in_pool(const struct port_spec *spec, struct pool *pool,
			      const struct pkt_addr *addr, uint32_t scope, unsigned slot, char *err,
			      size_t errlen);

/* Get the address that the kind chooses for the first process of a machine. */
void udp_first_address(struct pkt_addr *out);
void shm_first_address(struct pkt_addr *out);

/*
 * The bytes of a packet that a hint needs from a quotation: the transaction id is in bytes 8 to 15
 * of a management datagram (IBA 13.4.2).
 */
#define PORT_QUOTE_LEN (sizeof(struct pkt_bth) + sizeof(struct pkt_deth) + 16)

/*
 * Fills in a hint from the quoted start of a packet. A quotation may be short, but has at least a
 * BTH.
 */
static inline void port_quote(struct port_hint *h, const void *packet, size_t len)
{
	const struct pkt_bth *bth = packet;
	uint64_t tid;

	h->opcode = bth->opcode;
	h->dqpn = pkt_get24(bth->dqpn);
	h->psn = pkt_get24(bth->psn);
	if (h->opcode != (PKT_UD | PKT_SEND_ONLY) || h->dqpn != 1 || len < PORT_QUOTE_LEN)
		return;
	memcpy(&tid, (const uint8_t *)packet + PORT_QUOTE_LEN - sizeof(tid), sizeof(tid));
	h->tid = be64toh(tid);
}

/* Fills in a new path with the defaults of its port. */
static inline void port_path_init(struct port_path *path, struct port *p,
				  const struct pkt_addr *dst, uint16_t sport)
{
	*path = (struct port_path){
		.dst = *dst,
		.sport = sport,
		.batch = p->batch,
		.lag = p->lag,
		.window = p->window,
		.read_window = p->read_window,
		.port = p,
	};
}

/* Adds a hint if there is space. */
static inline void port_add_hint(struct port *p, const struct port_hint *h)
{
	if (p->num_hints < PORT_HINTS)
		p->hint[p->num_hints++] = *h;
}

/* Passes the hints of the inner port to its wrapper. */
static inline void port_pass_hints(struct port *p, struct port *inner)
{
	for (unsigned i = 0; i < inner->num_hints; i++)
		port_add_hint(p, &inner->hint[i]);
	inner->num_hints = 0;
}

/* Passes on the fields that a call of the inner port may have changed. For wrappers. */
static inline void port_pass_state(struct port *p, struct port *inner)
{
	port_pass_hints(p, inner);
	p->batch = inner->batch;
	p->path_generation = inner->path_generation;
	p->rests = inner->rests;
}

/* Returns monotonic nanoseconds: the default clock of the wrappers. */
uint64_t port_clock(void *ctx);

/*
 * Wraps a port with fault injection. The wrapper owns `inner` and closes it. `clock` gives the time
 * in ns; NULL: port_clock. Returns NULL with errno set if there is no memory or descriptor; `inner`
 * then still belongs to the caller.
 */
struct port *fault_wrap(struct port *inner, const struct port_faults *faults,
			uint64_t (*clock)(void *), void *ctx);

/*
 * Wraps a port and writes the packets of both directions to a pcap file, which is created or
 * replaced. "%p" in the name is the process id, and lanes after the first append ".LANE". The
 * wrapper owns `inner`, as above. `clock` gives nanoseconds since the epoch; NULL: the real-time
 * clock. Returns NULL with one line in err if the file cannot be created. A later error of the file
 * (disk full) ends the capture, not the port.
 */
struct port *pcap_wrap(struct port *inner, const char *path, uint64_t (*clock)(void *), void *ctx,
		       char *err, size_t errlen);

/*
 * The counts of the faults that the fault port has made. `p` is the port that fault_wrap()
 * returned.
 */
struct fault_counts {
	uint64_t seen, lost, duplicated, reordered, corrupted, delayed;
};
struct fault_counts fault_counts(const struct port *p);

#endif
