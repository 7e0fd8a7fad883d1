/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The choice of the address of a udp port, and its sockets. Only files of src/port include this
 * header.
 *
 * With an address in the specification, the port has this address or does not open. Without one it
 * takes the primary address of the machine: the source address of the route to the outside. If
 * that can't be used, it takes the first free address of 127.0.0.2 to 127.0.0.254, which other
 * machines can't reach, and a warning says why. A machine without a primary address begins at
 * 127.0.0.1.
 */
#ifndef ROOST_PORT_UDP_CLAIM_H
#define ROOST_PORT_UDP_CLAIM_H

#include "port/udp.h"

/* A port that is being opened. */
struct udp_opening {
	struct udp_port *u;
	const struct port_spec *spec;
	unsigned lane, lanes;
	/* another process has the primary address of the machine; this one was chosen besides */
	bool second;
	struct pkt_addr primary;
	unsigned silent; /* members of the pool that did not answer */
	bool own;	 /* this process has the address and slot already */
	char *err;	 /* the message of a failure, errlen bytes */
	size_t errlen;
};

/* Writes the message of a failure. */
void __attribute__((format(printf, 2, 3))) udp_say(struct udp_opening *o, const char *fmt, ...);
/*
 * Joins the pool, chooses the address, takes the socket of the slot there, and opens the socket that
 * sends. Needs `buffer` and `merge` of the port. Returns 0, or -errno with the message written.
 */
int udp_claim(struct udp_opening *o);
/* Leaves the address. The rest of the port is as it was. */
void udp_unclaim(struct udp_port *u);
/* Warns that no other program can use the address, and why. Once: the first lane. */
void udp_warn_alone(struct udp_opening *o);
/*
 * Finds the interface of an address: its index, for link-local addresses, and its MTU; 0: unknown.
 */
void udp_find_interface(const struct pkt_addr *addr, int sock, uint32_t *index, uint32_t *mtu);

#endif
