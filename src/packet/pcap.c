/* SPDX-License-Identifier: BSD-2-Clause */
/* The pcap format: an encoder for sent packets, and a reader that checks everything in the file. */
#include <endian.h>
#include <errno.h>
#include <string.h>

#include "packet/pcap.h"

#include "packet/ip.h"

#define MAGIC_USEC   0xa1b2c3d4u
#define MAGIC_NSEC   0xa1b23c4du
#define MAGIC_PCAPNG 0x0a0d0d0au

#define LINK_ETHERNET 1
#define LINK_RAW      101
#define LINK_SLL      113 /* Linux "cooked" */
#define LINK_IPV4     228
#define LINK_IPV6     229
#define LINK_SLL2     276

#define SNAPLEN 65535
/* The longest record that a valid capture can have (limit of libpcap). */
#define MAX_RECORD (256u * 1024)

#define ETH_IPV4  0x0800
#define ETH_IPV6  0x86dd
#define ETH_VLAN  0x8100
#define ETH_QINQ  0x88a8
#define MAX_VLANS 4

#define PROTO_FRAGMENT 44
#define IP_OFFSET_MASK 0x3fff /* more fragments, offset */

static uint16_t get16(const uint8_t *p)
{
	return (uint16_t)(p[0] << 8 | p[1]);
}

static void put16(uint8_t *p, unsigned v)
{
	p[0] = (uint8_t)(v >> 8);
	p[1] = (uint8_t)v;
}

static void put_le32(uint8_t *p, uint32_t v)
{
	v = htole32(v);
	memcpy(p, &v, 4);
}

size_t pcap_encode_file_header(uint8_t *out, size_t cap)
{
	if (cap < PCAP_FILE_HDR_LEN)
		return 0;
	memset(out, 0, PCAP_FILE_HDR_LEN);
	put_le32(out, MAGIC_NSEC);
	out[4] = 2; /* version 2.4 */
	out[6] = 4;
	put_le32(out + 16, SNAPLEN);
	put_le32(out + 20, LINK_RAW);
	return PCAP_FILE_HDR_LEN;
}

size_t pcap_encode_record_header(uint8_t *out, size_t cap, uint64_t time_ns, uint32_t frame_len)
{
	if (cap < PCAP_REC_HDR_LEN)
		return 0;
	put_le32(out, (uint32_t)(time_ns / 1000000000));
	put_le32(out + 4, (uint32_t)(time_ns % 1000000000));
	put_le32(out + 8, frame_len);
	put_le32(out + 12, frame_len);
	return PCAP_REC_HDR_LEN;
}

size_t pcap_encode_frame(uint8_t *out, size_t cap, const struct pkt_addr *src,
			 const struct pkt_addr *dst, uint16_t sport, uint16_t dport, uint8_t tos,
			 uint32_t ip_id, const uint8_t *bth, size_t len)
{
	bool v4 = pkt_addr_is_v4(src);
	size_t hdr = v4 ? PCAP_IP4_UDP_LEN : PCAP_IP6_UDP_LEN;
	uint16_t check;
	uint8_t *udp;

	if (v4 != pkt_addr_is_v4(dst) || len > SNAPLEN - hdr || cap < hdr + len)
		return 0;
	udp = out + ip_put_header(out, src, dst, tos, ip_id, (uint16_t)(8 + len));
	memset(udp, 0, 8);
	put16(udp, sport);
	put16(udp + 2, dport);
	put16(udp + 4, (unsigned)(8 + len));
	if (len)
		memcpy(out + hdr, bth, len);
	if (!v4) {
		/*
		 * The pseudo header consists of addresses, length and protocol. A sum of 0 is sent
		 * as ones (RFC 8200, 8.1).
		 */
		check = ip_fold16(ip_sum16(8 + len + IP_PROTO_UDP, out + 8, 32 + 8 + len));
		put16(udp + 6, check ? check : 0xffff);
	}
	return hdr + len;
}

size_t pcap_encode_record(uint8_t *out, size_t cap, uint64_t time_ns, const struct pkt_addr *src,
			  const struct pkt_addr *dst, uint16_t sport, uint16_t dport, uint8_t tos,
			  uint32_t ip_id, const uint8_t *bth, size_t len)
{
	size_t n;

	if (cap < PCAP_REC_HDR_LEN)
		return 0;
	n = pcap_encode_frame(out + PCAP_REC_HDR_LEN, cap - PCAP_REC_HDR_LEN, src, dst, sport,
			      dport, tos, ip_id, bth, len);
	if (!n)
		return 0;
	pcap_encode_record_header(out, cap, time_ns, (uint32_t)n);
	return PCAP_REC_HDR_LEN + n;
}

static uint32_t file32(const struct pcap_reader *r, const uint8_t *p)
{
	uint32_t v;

	memcpy(&v, p, 4);
	return r->big ? be32toh(v) : le32toh(v);
}

int pcap_reader_init(struct pcap_reader *r, const void *data, size_t size)
{
	uint32_t magic;

	memset(r, 0, sizeof(*r));
	r->data = data;
	r->size = size;
	if (size < 4)
		return -EINVAL;
	magic = file32(r, r->data);
	if (magic == MAGIC_PCAPNG)
		return -EPROTONOSUPPORT;
	if (magic != MAGIC_USEC && magic != MAGIC_NSEC) {
		r->big = true;
		magic = file32(r, r->data);
	}
	if ((magic != MAGIC_USEC && magic != MAGIC_NSEC) || size < PCAP_FILE_HDR_LEN)
		return -EINVAL;
	r->nanos = magic == MAGIC_NSEC;
	/* The upper bits describe frame check sequences. */
	r->linktype = file32(r, r->data + 20) & 0x03ffffff;
	r->off = PCAP_FILE_HDR_LEN;
	switch (r->linktype) {
	case LINK_ETHERNET:
	case LINK_RAW:
	case LINK_SLL:
	case LINK_IPV4:
	case LINK_IPV6:
	case LINK_SLL2:
		return 0;
	default:
		return -ENOTSUP;
	}
}

/*
 * Finds the IP header after the header of the link layer. Returns its offset, or n if the frame has
 * none or is too short.
 */
static size_t skip_link(uint32_t linktype, const uint8_t *f, size_t n)
{
	size_t at; /* offset of the EtherType */

	switch (linktype) {
	case LINK_ETHERNET:
		at = 12;
		break;
	case LINK_SLL:
		at = 14;
		break;
	case LINK_SLL2:
		if (n < 20)
			return n;
		return get16(f) == ETH_IPV4 || get16(f) == ETH_IPV6 ? 20 : n;
	default:
		return 0;
	}
	for (int tags = 0; tags <= MAX_VLANS && at + 2 <= n; tags++) {
		uint16_t type = get16(f + at);

		at += 2;
		if (type == ETH_IPV4 || type == ETH_IPV6)
			return at;
		if (type != ETH_VLAN && type != ETH_QINQ)
			return n;
		at += 2;
	}
	return n;
}

/*
 * Reads a frame from the IP header on. `n` bytes of it were captured; `whole`: nothing was cut off.
 * Lengths come from the headers, so padding and check sequence of Ethernet are ignored.
 */
static enum pcap_kind read_udp(const uint8_t *udp, size_t n, bool whole, struct pcap_record *rec)
{
	size_t len;

	if (n < 8)
		return whole ? PCAP_BAD : PCAP_OTHER;
	rec->sport = get16(udp);
	rec->dport = get16(udp + 2);
	if (rec->dport != PKT_UDP_PORT)
		return PCAP_OTHER;
	len = get16(udp + 4);
	if (len < 8)
		return PCAP_BAD;
	if (len > n)
		return whole ? PCAP_BAD : PCAP_CUT;
	rec->bth = udp + 8;
	rec->len = len - 8;
	return PCAP_ROCE;
}

static void map_v4(struct pkt_addr *a, const uint8_t *p)
{
	memset(a->b, 0, 10);
	memset(a->b + 10, 0xff, 2);
	memcpy(a->b + 12, p, 4);
}

static enum pcap_kind read_ip4(const uint8_t *ip, size_t n, size_t orig, struct pcap_record *rec)
{
	size_t hdr, total;

	if (n < 20)
		return PCAP_OTHER;
	hdr = (ip[0] & 15) * 4u;
	total = get16(ip + 2);
	if (hdr < 20 || total < hdr || total > orig)
		return PCAP_BAD;
	if (ip[9] != IP_PROTO_UDP)
		return PCAP_OTHER;
	rec->v4 = true;
	rec->tos = ip[1];
	rec->ip_id = get16(ip + 4);
	rec->ttl = ip[8];
	map_v4(&rec->src, ip + 12);
	map_v4(&rec->dst, ip + 16);
	rec->ip = hdr == 20 ? ip : NULL;
	/*
	 * Only the first fragment has the UDP port. It is counted; the other fragments cannot be
	 * identified.
	 */
	if (get16(ip + 6) & IP_OFFSET_MASK) {
		if (get16(ip + 6) & 0x1fff)
			return PCAP_OTHER;
		return n >= hdr + 4 && get16(ip + hdr + 2) == PKT_UDP_PORT ? PCAP_FRAGMENT
									   : PCAP_OTHER;
	}
	if (n < hdr)
		return PCAP_OTHER;
	return read_udp(ip + hdr, (total < n ? total : n) - hdr, total <= n, rec);
}

static enum pcap_kind read_ip6(const uint8_t *ip, size_t n, size_t orig, struct pcap_record *rec)
{
	size_t total;

	if (n < 40)
		return PCAP_OTHER;
	total = 40 + (size_t)get16(ip + 4);
	if (total > orig)
		return PCAP_BAD;
	rec->v4 = false;
	rec->tos = (uint8_t)(ip[0] << 4 | ip[1] >> 4);
	rec->flow = (uint32_t)(ip[1] & 15) << 16 | get16(ip + 2);
	rec->ip_id = 0;
	rec->ttl = ip[7];
	memcpy(rec->src.b, ip + 8, 16);
	memcpy(rec->dst.b, ip + 24, 16);
	rec->ip = ip;
	if (ip[6] == PROTO_FRAGMENT) {
		if (n < 52 || ip[40] != IP_PROTO_UDP || (get16(ip + 42) & 0xfff8))
			return PCAP_OTHER;
		return get16(ip + 50) == PKT_UDP_PORT ? PCAP_FRAGMENT : PCAP_OTHER;
	}
	if (ip[6] != IP_PROTO_UDP)
		return PCAP_OTHER;
	return read_udp(ip + 40, (total < n ? total : n) - 40, total <= n, rec);
}

static enum pcap_kind read_frame(const struct pcap_reader *r, const uint8_t *f, size_t n,
				 size_t orig, struct pcap_record *rec)
{
	size_t at = skip_link(r->linktype, f, n);

	if (at >= n)
		return PCAP_OTHER;
	switch (f[at] >> 4) {
	case 4:
		return read_ip4(f + at, n - at, orig - at, rec);
	case 6:
		return read_ip6(f + at, n - at, orig - at, rec);
	default:
		return PCAP_OTHER;
	}
}

int pcap_reader_next(struct pcap_reader *r, struct pcap_record *rec)
{
	const uint8_t *h = r->data + r->off;
	size_t left = r->size - r->off;
	uint32_t n, orig;

	if (left == 0)
		return 0;
	if (left < PCAP_REC_HDR_LEN)
		return -ENODATA;
	memset(rec, 0, sizeof(*rec));
	n = file32(r, h + 8);
	orig = file32(r, h + 12);
	if (n > MAX_RECORD)
		return -EBADMSG;
	if (n > left - PCAP_REC_HDR_LEN)
		return -ENODATA;
	rec->time_ns = (uint64_t)file32(r, h) * 1000000000 +
		       (uint64_t)file32(r, h + 4) * (r->nanos ? 1 : 1000);
	r->off += PCAP_REC_HDR_LEN + n;
	rec->kind = read_frame(r, h + PCAP_REC_HDR_LEN, n, orig < n ? n : orig, rec);
	return 1;
}

void pcap_reader_more(struct pcap_reader *r, const void *data, size_t size)
{
	r->data = data;
	r->size = size;
	r->off = 0;
}
