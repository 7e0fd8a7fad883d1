/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * IP headers of RoCE v2 packets. Captures need them, and the 40 bytes before the payload that a UD
 * queue pair receives.
 */
#ifndef ROOST_PACKET_IP_H
#define ROOST_PACKET_IP_H

#include "packet/icrc.h"

#define IP4_HDR_LEN  20
#define IP6_HDR_LEN  40
#define IP_PROTO_UDP 17

/*
 * Writes the header of a packet from src to dst with `len` bytes after it: IPv4 if src is a mapped
 * IPv4 address, else IPv6. `tos` is the whole byte, ECN bits included. `id` is in host order, or'ed
 * with IP_NO_DF if DF is clear, and ignored for IPv6. TTL or hop limit is 64, the flow label 0, the
 * checksum right. Returns the bytes written: IP4_HDR_LEN or IP6_HDR_LEN.
 */
#define IP_NO_DF 0x10000u
size_t ip_put_header(uint8_t *out, const struct pkt_addr *src, const struct pkt_addr *dst,
		     uint8_t tos, uint32_t id, uint16_t len);

/*
 * Compute the Internet checksum (RFC 1071): ip_sum16() adds big-endian 16-bit words to a sum, and
 * ip_fold16() makes the checksum of it.
 */
uint64_t ip_sum16(uint64_t sum, const uint8_t *p, size_t n);
uint16_t ip_fold16(uint64_t sum);

#endif
