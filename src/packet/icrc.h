/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The invariant CRC of RoCE v2: CRC-32 over eight bytes of ones, the IP and UDP headers with their
 * mutable fields as ones, the BTH with its reserved byte as ones, and the rest. It is little-endian
 * on the wire.
 *
 * The code relies on the linearity of CRC. The state after the pseudo header is the state of a flow
 * (addresses and ports), combined by exclusive or with the contributions of the length, the IPv4
 * identification and the reserved byte of the BTH. Each contribution is one table look-up. A packet
 * costs one pass over BTH .. pad and is not written to.
 *
 * The CRC also covers the IPv4 identification, which a socket does not show. The residue of a
 * packet, shifted back to the place of the identification, gives the one of 65,536 values that
 * makes the packet right, or none: icrc_verify() does this. The CRC also covers the DF flag, which
 * is hidden too, so both of its values are accepted. One in 32,768 corrupted packets passes this
 * way (one in 2^32 if the identification is known).
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

/* Returns true for the address of a multicast group: 224/4 or ff00::/8. */
static inline bool pkt_addr_is_group(const struct pkt_addr *a)
{
	return a->b[0] == 0xff || ((a->b[12] & 0xf0) == 0xe0 && pkt_addr_is_v4(a));
}

/* Returns true for an address of the loopback interface: 127/8 or ::1. */
static inline bool pkt_addr_is_loopback(const struct pkt_addr *a)
{
	static const struct pkt_addr loopback6 = {{[15] = 1}};

	return (a->b[12] == 127 && pkt_addr_is_v4(a)) || pkt_addr_eq(a, &loopback6);
}

/* Returns true for an address that is valid on one interface only: fe80::/10. */
static inline bool pkt_addr_is_link_local(const struct pkt_addr *a)
{
	return a->b[0] == 0xfe && (a->b[1] & 0xc0) == 0x80;
}

/* Parses an IPv4 or IPv6 address into *a. Returns 0 or -EINVAL. */
int pkt_addr_parse(const char *text, struct pkt_addr *a);
/* Prints the address into buf; 46 bytes are always enough. Returns buf. */
const char *pkt_addr_print(const struct pkt_addr *a, char *buf, size_t n);

/*
 * The constant part of the ICRC between two addresses and ports. Read-only after icrc_flow_init(),
 * so threads may share it.
 */
struct icrc_flow {
	struct pkt_addr src, dst;
	uint16_t sport, dport; /* host order */
	bool v4;
	/* CRC state after the UDP header, with lengths and identification as 0 */
	uint32_t base;
};

/* The longest BTH .. ICRC that the functions below accept (PKT_MAX_LEN of headers.h). */
#define ICRC_MAX_LEN 4148

/* Computes the constant part for packets from src to dst. Ports are in host order. */
void icrc_flow_init(struct icrc_flow *f, const struct pkt_addr *src, const struct pkt_addr *dst,
		    uint16_t sport, uint16_t dport);

/*
 * Returns the ICRC of a packet whose BTH is at `bth`. `len` counts BTH .. ICRC; the four bytes of
 * the ICRC are not read. `len` must be a multiple of 4 from 16 to ICRC_MAX_LEN. `ip_id` is ignored
 * for IPv6. DF is taken to be set, as in sent packets. The result is in host order; on the wire it
 * is little-endian.
 */
uint32_t icrc_compute(const struct icrc_flow *f, uint16_t ip_id, const uint8_t *bth, size_t len);

/*
 * Returns the ICRC of a packet with its IP header: `ip` points to 20 bytes of IPv4 (no options) or
 * 40 bytes of IPv6, followed by the 8 bytes of the UDP header. Lengths and flags come from these
 * headers. It is slower than icrc_compute(), and meant for captures.
 */
uint32_t icrc_compute_frame(const uint8_t *ip, const uint8_t *bth, size_t len);

/*
 * Returns the CRC up to and including the first n bytes of the packet, at least 12. crc32_update()
 * continues it, and its result is the ICRC after the pad. Other arguments: as for icrc_compute().
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
	/* right, but DF is clear (IPv4): the sender lets routers fragment the packet */
	ICRC_RIGHT_NO_DF,
};

/*
 * Checks a received packet. Returns ICRC_WRONG for every length that icrc_compute() does not
 * accept. With `id_known`, *ip_id is the value of the header, and DF is set. Otherwise *ip_id is a
 * prediction, which may be any number. If the prediction is wrong, the function computes the
 * identification and DF from the difference. If the packet is right, it sets *ip_id (IPv4 only), so
 * that the caller can predict the next one.
 */
enum icrc_result icrc_verify(const struct icrc_flow *f, bool id_known, uint16_t *ip_id,
			     const uint8_t *bth, size_t len);

#endif
