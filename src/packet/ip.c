/* SPDX-License-Identifier: BSD-2-Clause */
/* IP headers and the Internet checksum. Sources: RFC 791, RFC 8200, RFC 1071. */
#include "packet/ip.h"

static void put16(uint8_t *p, unsigned v)
{
	p[0] = (uint8_t)(v >> 8);
	p[1] = (uint8_t)v;
}

uint64_t ip_sum16(uint64_t sum, const uint8_t *p, size_t n)
{
	for (; n > 1; p += 2, n -= 2)
		sum += (unsigned)p[0] << 8 | p[1];
	return n ? sum + ((unsigned)*p << 8) : sum;
}

uint16_t ip_fold16(uint64_t sum)
{
	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	return (uint16_t)~sum;
}

size_t ip_put_header(uint8_t *out, const struct pkt_addr *src, const struct pkt_addr *dst,
		     uint8_t tos, uint32_t id, uint16_t len)
{
	if (pkt_addr_is_v4(src)) {
		memset(out, 0, IP4_HDR_LEN);
		out[0] = 0x45;
		out[1] = tos;
		put16(out + 2, IP4_HDR_LEN + (unsigned)len);
		put16(out + 4, id & 0xffff);
		out[6] = id & IP_NO_DF ? 0 : 0x40;
		out[8] = 64;
		out[9] = IP_PROTO_UDP;
		memcpy(out + 12, src->b + 12, 4);
		memcpy(out + 16, dst->b + 12, 4);
		put16(out + 10, ip_fold16(ip_sum16(0, out, IP4_HDR_LEN)));
		return IP4_HDR_LEN;
	}
	memset(out, 0, IP6_HDR_LEN);
	out[0] = 0x60 | tos >> 4;
	out[1] = (uint8_t)(tos << 4);
	put16(out + 4, len);
	out[6] = IP_PROTO_UDP;
	out[7] = 64;
	memcpy(out + 8, src->b, 16);
	memcpy(out + 24, dst->b, 16);
	return IP6_HDR_LEN;
}
