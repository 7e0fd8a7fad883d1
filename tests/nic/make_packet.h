/* SPDX-License-Identifier: BSD-2-Clause */
/* Builds packets, valid or invalid. */
#ifndef ROOST_TESTS_MAKE_PACKET_H
#define ROOST_TESTS_MAKE_PACKET_H

#include "packet/headers.h"
#include "packet/icrc.h"

/* A packet to build: only the fields that its op-code's headers have are used. */
struct pkt_make {
	uint8_t opcode;
	bool ackreq, solicited;
	uint32_t psn;
	uint64_t va;
	uint32_t rkey, dmalen;
	uint64_t swap_add, compare; /* swap_add: also the value of an atomic's answer */
	uint8_t syndrome;
	uint32_t msn, imm, inv_rkey;
	uint32_t qkey, sqpn; /* 0: 0x11111111, 0x777 */
	const void *payload; /* NULL: `len` bytes of a pattern */
	uint32_t len;
};

/*
 * Writes the packet without its ICRC. Returns its length with the ICRC. `out` has space for
 * PKT_MAX_LEN.
 */
uint32_t pkt_make_raw(uint8_t *out, const struct pkt_make *m, uint32_t dqpn);
/* Writes the ICRC behind len - 4 bytes, for a packet from src to dst. */
void pkt_seal(uint8_t *p, uint32_t len, const struct pkt_addr *src, const struct pkt_addr *dst);
/* Returns byte i of the payload of pkt_make() if `payload` is NULL. */
static inline uint8_t pkt_pattern(uint32_t i)
{
	return (uint8_t)(i * 7 + 3);
}

#endif
