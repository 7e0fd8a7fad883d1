/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Routes for management datagrams that the BPF program of an address gave to the wrong slot. The
 * port that gets such a datagram looks here and passes it on (port/udp_rx.c). There are two causes.
 * The program holds a limited number of services, fewer where net.core.optmem_max is small, and
 * requests for other services come to any slot. The kernel steers a group of datagrams by the first
 * one.
 */
#include "pool/core.h"

#include "pool/filter.h"

static bool listens(struct slot_record *record, uint64_t service, const struct pkt_addr *addr,
		    unsigned families)
{
	uint32_t n = atomic_load_explicit(&record->services, memory_order_acquire);

	for (unsigned i = 0; i < n && i < SLOT_SERVICES; i++) {
		struct slot_service *s = &record->service[i];
		uint32_t has;

		if (!atomic_load_explicit(&s->used, memory_order_acquire) ||
		    atomic_load_explicit(&s->id, memory_order_relaxed) != service)
			continue;
		has = atomic_load_explicit(&s->families, memory_order_relaxed);
		if (addr ? !has && state_is_addr(s->addr, addr) : (has & families) != 0)
			return true;
	}
	return false;
}

int pool_management_slot(struct pool *p, const struct pkt_addr *addr, uint32_t scope,
			 const uint8_t *bth, uint32_t len)
{
	unsigned family = pkt_addr_is_v4(addr) ? POOL_IPV4 : POOL_IPV6;
	uint64_t service;
	uint16_t sport;

	if (!pool_filter_service(bth, len, &service))
		return pool_filter_id_slot(bth, len);
	/* Listeners on the exact address take precedence, as in the program. */
	for (unsigned pass = 0; pass < 2; pass++) {
		for (unsigned i = 0; i < POOL_SLOTS; i++) {
			struct slot_record *record = &p->state->record[i];

			/* A program with other addresses may listen on the same service. */
			if (atomic_load_explicit(&record->owned, memory_order_acquire) &&
			    listens(record, service, pass ? NULL : addr, pass ? family : 0) &&
			    pool_mailbox(p, addr, scope, i, &sport))
				return (int)i;
		}
	}
	return -1;
}
