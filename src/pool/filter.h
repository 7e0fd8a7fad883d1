/* SPDX-License-Identifier: BSD-2-Clause */
/* The BPF program that steers the datagrams of an address to slots. The functions are pure. */
#ifndef ROOST_POOL_FILTER_H
#define ROOST_POOL_FILTER_H

#include <linux/filter.h>
#include <stdint.h>

#include "pool/pool.h"

/*
 * The most services in the program, so that it fits net.core.optmem_max of 20,480 bytes (the
 * default before Linux 6.7). addr_steer() uses fewer if Linux refuses this many.
 */
#define POOL_FILTER_SERVICES 256
#define POOL_FILTER_MAX	     (32 + 5 * POOL_FILTER_SERVICES + 2 * POOL_SLOTS)

struct pool_route {
	uint64_t service;
	uint8_t slot;
};

struct pool_table {
	uint8_t otherwise; /* slot of datagrams to QP 1 that no rule steers */
	bool single;	   /* no other slot is in use, so `otherwise` gets all datagrams */
	/*
	 * Not all services are among the routes. A request for another service goes to one of these
	 * slots, at random, so that a repeated request does not wait for a stopped program.
	 */
	bool cut;
	uint64_t any; /* bit mask of these slots, not 0 if `cut` */
	unsigned num;
	/* routes in order of precedence */
	struct pool_route route[POOL_FILTER_SERVICES];
};

/*
 * Writes the program and returns the number of instructions. The result of the program is below
 * POOL_SLOTS for any datagram, because Linux would otherwise choose by hash.
 */
unsigned pool_filter(const struct pool_table *t, struct sock_filter code[POOL_FILTER_MAX]);

/*
 * Returns true if a datagram is a request that the program steers by its service id. Sets *service
 * to this id.
 */
bool pool_filter_service(const uint8_t *bth, uint32_t len, uint64_t *service);
/*
 * Returns the slot to which the program steers another message of connection management, by the
 * receiver's id in the message, or -1 if the datagram is no such message.
 */
int pool_filter_id_slot(const uint8_t *bth, uint32_t len);

#endif
