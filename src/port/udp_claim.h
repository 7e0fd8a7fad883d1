/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The choice of the address of a udp port, and its sockets. Only files of src/port include this
 * header.
 *
 * If the specification has an address, the port takes this address or does not open. Without one it
 * takes the primary address of the machine: the source address of the route to the outside. If this
 * address cannot be used, the port takes the first free address of 127.0.0.2 to 127.0.0.254, which
 * other machines cannot reach, and logs the reason. On a machine without a primary address the
 * search begins at 127.0.0.1.
 */
#ifndef ROOST_PORT_UDP_CLAIM_H
#define ROOST_PORT_UDP_CLAIM_H

#include "port/udp.h"

/* A port that is being opened. */
struct udp_opening {
	struct udp_port *u;
	const struct port_spec *spec;
	unsigned lane, lanes;
	/* another process has the primary address of the machine, so the port took another one */
	bool second;
	struct pkt_addr primary;
	unsigned silent; /* members of the pool that did not answer */
	bool own;	 /* this process has the address and slot already */
	char *err;	 /* the message of a failure, errlen bytes */
	size_t errlen;
};

/* Writes the message of a failure. */
void __attribute__((format(printf, 2, 3))) udp_fail(struct udp_opening *o, const char *fmt, ...);
/*
 * Joins the pool, chooses the address, takes the socket of the slot there, and opens the sending
 * socket. `buffer` and `merge` of the port must be set. Returns 0, or -errno after it has written
 * the message.
 */
int udp_claim(struct udp_opening *o);
/* Gives up the address. The other members of the port are unchanged. */
void udp_unclaim(struct udp_port *u);
/*
 * Warns that no other program can use the address, and gives the reason. Only the first lane warns.
 */
void udp_warn_alone(struct udp_opening *o);
/*
 * Finds the interface of an address: its index, which link-local addresses need, and its MTU. Both
 * are 0 if they are unknown.
 */
void udp_find_interface(const struct pkt_addr *addr, int sock, uint32_t *index, uint32_t *mtu);

#endif
