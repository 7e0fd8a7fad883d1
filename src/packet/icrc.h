/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The invariant CRC of RoCE v2: CRC-32 over eight bytes of ones, the IP and UDP headers with their
 * mutable fields as ones, the BTH with its reserved byte as ones, and the rest; little-endian on
 * the wire.
 *
 * CRC is linear, and everything here lives on that. The state after the pseudo header is the state
 * of a flow (addresses and ports) plus, by exclusive or, what the length adds, what the IPv4
 * identification adds and what the BTH's reserved byte takes away: one table look-up each. A packet
 * costs one pass over BTH .. pad and is not written to.
 *
 * The IPv4 identification is covered too, and a socket does not show it. The residue of a packet,
 * shifted back to where the identification stands, names the one of 65,536 that makes the packet
 * right, or none: icrc_verify() solves for it. The DF flag behind it is covered as well, and hidden
 * as well: both of its values are accepted. Of corrupted packets one in 32,768 so passes (of those
 * with a known identification one in 2^32).
 *
 * Source: InfiniBand Architecture Specification, annex A17 (RoCE v2); checked against every golden
 * capture.
 */
#ifndef ROOST_PACKET_ICRC_H
#define ROOST_PACKET_ICRC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/*
 * An IPv6 address, or an IPv4 address mapped into one (::ffff:a.b.c.d): the form of a RoCE v2 GID.
 */
struct pkt_addr {
	uint8_t b[16];
} __attribute__((aligned(8)));

static inline bool pkt_addr_is_v4(const struct pkt_addr *a)
{
	static const uint8_t mapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

	return memcmp(a->b, mapped, 12) == 0;
}

static inline bool pkt_addr_eq(const struct pkt_addr *a, const struct pkt_addr *b)
{
	const uint64_t *x = (const void *)a, *y = (const void *)b;

	return ((x[0] ^ y[0]) | (x[1] ^ y[1])) == 0;
}

/* Is it that of a multicast group: 224/4 or ff00::/8? */
static inline bool pkt_addr_is_group(const struct pkt_addr *a)
{
	return a->b[0] == 0xff || ((a->b[12] & 0xf0) == 0xe0 && pkt_addr_is_v4(a));
}

/* Does it lead to this host, whichever that is: 127/8 or ::1? */
static inline bool pkt_addr_is_loopback(const struct pkt_addr *a)
{
	static const struct pkt_addr loopback6 = {{[15] = 1}};

	return (a->b[12] == 127 && pkt_addr_is_v4(a)) || pkt_addr_eq(a, &loopback6);
}

/* Fills *a from text, IPv4 or IPv6. 0 or -EINVAL. */
int pkt_addr_parse(const char *text, struct pkt_addr *a);
/* Prints into buf (46 bytes are always enough); returns buf. */
const char *pkt_addr_print(const struct pkt_addr *a, char *buf, size_t n);

/*
 * What is constant between two addresses and ports. Read-only once made: many threads may share
 * one.
 */
struct icrc_flow {
	struct pkt_addr src, dst;
	uint16_t sport, dport; /* host order */
	bool v4;
	/* CRC state after the UDP header, its lengths and the identification taken as 0 */
	uint32_t base;
};

/* Longest BTH .. ICRC that the functions below take (PKT_MAX_LEN of headers.h). */
#define ICRC_MAX_LEN 4148

void icrc_flow_init(struct icrc_flow *f, const struct pkt_addr *src, const struct pkt_addr *dst,
		    uint16_t sport, uint16_t dport);

/*
 * The ICRC of a packet whose BTH stands at `bth`; `len` counts BTH .. ICRC (the ICRC's own four
 * bytes are not read): a multiple of 4 from 16 to ICRC_MAX_LEN, anything else is a bug of the
 * caller. `ip_id` is ignored for IPv6. DF is taken to be set, as we send it. The result is in host
 * order; put it on the wire little-endian.
 */
uint32_t icrc_compute(const struct icrc_flow *f, uint16_t ip_id, const uint8_t *bth, size_t len);

/*
 * The same, for a packet whose IP header is at hand: `ip` points to 20 bytes of IPv4 (no options)
 * or 40 of IPv6 with the 8 bytes of UDP header behind. Lengths and flags are taken as they stand
 * there. Slower; for captures.
 */
uint32_t icrc_compute_frame(const uint8_t *ip, const uint8_t *bth, size_t len);

/*
 * The CRC up to and with the first n of them, 12 at least: crc32_update() goes on from it, and is
 * the ICRC when the pad is done. Other arguments as above.
 */
uint32_t icrc_begin(const struct icrc_flow *f, uint16_t ip_id, const uint8_t *bth, size_t n,
		    size_t len);

static inline void icrc_store(uint8_t *p, uint32_t icrc)
{
	p[0] = (uint8_t)icrc;
	p[1] = (uint8_t)(icrc >> 8);
	p[2] = (uint8_t)(icrc >> 16);
	p[3] = (uint8_t)(icrc >> 24);
}

static inline uint32_t icrc_load(const uint8_t *p)
{
	return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

enum icrc_result {
	ICRC_WRONG = 0,
	ICRC_RIGHT,
	ICRC_RIGHT_NO_DF, /* from a sender that lets routers fragment: IPv4, DF clear */
};

/*
 * Checks a received packet; ICRC_WRONG for every length that icrc_compute() would not take. With
 * `id_known`, *ip_id is what the header said, and DF is set. Otherwise *ip_id is a prediction (any
 * number will do); if it does not fit, the identification and DF are solved for and, where the
 * packet is right, *ip_id set to it (IPv4 only), so that the caller can predict the next.
 */
enum icrc_result icrc_verify(const struct icrc_flow *f, bool id_known, uint16_t *ip_id,
			     const uint8_t *bth, size_t len);

#endif
