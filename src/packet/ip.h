/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * IP headers as RoCE v2 packets carry them: for captures, and for the 40 bytes in front of what a
 * UD queue pair receives.
 */
#ifndef ROOST_PACKET_IP_H
#define ROOST_PACKET_IP_H

#include "packet/icrc.h"

#define IP4_HDR_LEN  20
#define IP6_HDR_LEN  40
#define IP_PROTO_UDP 17

/*
 * The header of a packet from src to dst, IPv4 when src is a mapped IPv4 address, with `len` bytes
 * behind it. `tos` is the whole byte, ECN bits included; `id` in host order, or'ed with IP_NO_DF
 * where DF is clear, ignored for IPv6. TTL or hop limit 64, flow label 0, checksum right. Writes
 * and returns IP4_HDR_LEN or IP6_HDR_LEN bytes.
 */
#define IP_NO_DF 0x10000u
size_t ip_put_header(uint8_t *out, const struct pkt_addr *src, const struct pkt_addr *dst,
		     uint8_t tos, uint32_t id, uint16_t len);

/* The Internet checksum (RFC 1071): a running sum of big-endian 16-bit words, and its folding. */
uint64_t ip_sum16(uint64_t sum, const uint8_t *p, size_t n);
uint16_t ip_fold16(uint64_t sum);

#endif
