/* SPDX-License-Identifier: BSD-2-Clause */
/* Datagrams from outside to UDP port 4791 of an address. The last four bytes are a mark. */
#ifndef ROOST_TESTS_POOL_DATAGRAM_H
#define ROOST_TESTS_POOL_DATAGRAM_H

#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>

#include "cm/mad.h"
#include "packet/headers.h"

#define DATAGRAM_REQUEST_LEN (sizeof(struct pkt_bth) + sizeof(struct pkt_deth) + CM_MAD_LEN)

/* The address is one of IPv4. */
static inline void datagram_send(const struct pkt_addr *addr, uint8_t *pkt, size_t len,
				 uint32_t mark)
{
	static int from = -1;
	struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(4791)};

	if (from < 0)
		from = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	memcpy(&to.sin_addr, addr->b + 12, 4);
	memcpy(pkt + len - 4, &mark, 4);
	sendto(from, pkt, len, 0, (struct sockaddr *)&to, sizeof(to));
}

/* Sends a packet for a queue pair of the slot. */
static inline void datagram_qp(const struct pkt_addr *addr, unsigned slot, uint32_t mark)
{
	uint8_t pkt[64] = {0};

	pkt_put24(((struct pkt_bth *)pkt)->dqpn, slot << 18 | 0x21);
	datagram_send(addr, pkt, sizeof(pkt), mark);
}

/* Makes a connection request for a service. */
static inline void datagram_make_request(uint8_t pkt[DATAGRAM_REQUEST_LEN], uint64_t service)
{
	struct cm_msg m = {.attr = CM_REQ};

	m.req.service_id = service;
	memset(pkt, 0, DATAGRAM_REQUEST_LEN);
	pkt_put24(((struct pkt_bth *)pkt)->dqpn, 1);
	cm_build(&m, pkt + DATAGRAM_REQUEST_LEN - CM_MAD_LEN);
}

/* Sends a connection request for a service. */
static inline void datagram_request(const struct pkt_addr *addr, uint64_t service, uint32_t mark)
{
	uint8_t pkt[DATAGRAM_REQUEST_LEN];

	datagram_make_request(pkt, service);
	datagram_send(addr, pkt, sizeof(pkt), mark);
}

#endif
