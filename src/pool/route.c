/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Routes for management datagrams that the BPF program of an address gave to the wrong slot. The
 * port that gets such a datagram looks here and passes it on (port/udp_rx.c). There are two causes.
 * The program holds a limited number of services, fewer where net.core.optmem_max is small, and
 * requests for other services come to any slot. Linux steers a group of datagrams by the first
 * one.
 */
#include "pool/core.h"

#include "pool/filter.h"

int pool_management_slot(struct pool *p, const struct pkt_addr *addr, uint32_t scope,
			 const uint8_t *bth, uint32_t len)
{
	struct service_addrs at[2];
	uint64_t service;
	uint16_t sport;

	if (!pool_filter_service(bth, len, &service))
		return pool_filter_id_slot(bth, len);
	service_takers(addr, scope, at);
	for (unsigned pass = 0; pass < 2; pass++) {
		for (unsigned i = 0; i < POOL_SLOTS; i++) {
			/* A program with other addresses may listen on the same service. */
			if (pool_owner(p, i) && service_find(p, i, service, &at[pass]) &&
			    pool_mailbox(p, addr, scope, i, &sport))
				return (int)i;
		}
	}
	return -1;
}
