/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Capture files in the classic pcap format, as functions over memory: no file is opened, read or
 * written here.
 *
 * Encoding makes what tcpdump would have seen of our packets: little-endian, nanoseconds,
 * LINKTYPE_RAW (the frame starts at the IP header). Reading takes what tcpdump and Wireshark write:
 * both byte orders, microseconds and nanoseconds, Ethernet (with VLAN tags), raw IP, Linux "cooked"
 * captures of the device "any".
 *
 * Source: draft-ietf-opsawg-pcap; the link types are those of tcpdump.org's list.
 */
#ifndef ROOST_PACKET_PCAP_H
#define ROOST_PACKET_PCAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "packet/headers.h"
#include "packet/icrc.h"

#define PCAP_FILE_HDR_LEN 24
#define PCAP_REC_HDR_LEN  16
#define PCAP_IP4_UDP_LEN  28
#define PCAP_IP6_UDP_LEN  48
/* Room that pcap_encode_record() needs for any packet that pkt_parse() accepts. */
#define PCAP_MAX_RECORD (PCAP_REC_HDR_LEN + PCAP_IP6_UDP_LEN + PKT_MAX_LEN)

/*
 * Encoders. Each writes at `out`, at most `cap` bytes, and returns the bytes written, or 0 when
 * they do not fit (or, for frames, when the packet is too long for the IP header's 16-bit length,
 * or src and dst are of different families). Pure: any thread. None reads behind bth + len.
 */

/* The 24 bytes that a file starts with. */
size_t pcap_encode_file_header(uint8_t *out, size_t cap);

/*
 * The 16 bytes in front of a frame of frame_len bytes; time_ns counts from the epoch (or from 0 in
 * virtual time).
 */
size_t pcap_encode_record_header(uint8_t *out, size_t cap, uint64_t time_ns, uint32_t frame_len);

/*
 * IP + UDP headers and the packet BTH .. ICRC (`len` counts the ICRC). IPv4 if src and dst are
 * mapped IPv4 addresses, else IPv6. Ports in host order; `tos` is the whole byte, ECN bits
 * included; `ip_id` in host order, ignored for IPv6. DF set, TTL or hop limit 64, flow label 0,
 * IPv4 header checksum right; UDP checksum 0 on IPv4, right on IPv6. The destination port is dport:
 * 4791 for RoCE.
 */
size_t pcap_encode_frame(uint8_t *out, size_t cap, const struct pkt_addr *src,
			 const struct pkt_addr *dst, uint16_t sport, uint16_t dport, uint8_t tos,
			 uint32_t ip_id, const uint8_t *bth, size_t len);

/* Record header and frame in one: what a port appends to a file for each packet. */
size_t pcap_encode_record(uint8_t *out, size_t cap, uint64_t time_ns, const struct pkt_addr *src,
			  const struct pkt_addr *dst, uint16_t sport, uint16_t dport, uint8_t tos,
			  uint32_t ip_id, const uint8_t *bth, size_t len);

/* What a record of a file turned out to be. */
enum pcap_kind {
	PCAP_ROCE,  /* a UDP datagram to port 4791, whole */
	PCAP_OTHER, /* something else (ARP, TCP, another port): not ours to judge */
	PCAP_CUT,   /* to port 4791, but the capture's snap length cut it */
	/* an IP fragment: RoCE packets are never fragmented, and this one can't be checked */
	PCAP_FRAGMENT,
	PCAP_BAD, /* the frame's own headers contradict each other */
	PCAP_KIND_COUNT
};

struct pcap_record {
	enum pcap_kind kind;
	uint64_t time_ns;
	/* Valid for PCAP_ROCE only. Ports, ids and labels in host order. */
	struct pkt_addr src, dst;
	uint16_t sport, dport;
	bool v4;
	uint8_t tos;	/* type of service or traffic class, ECN bits included */
	uint8_t ttl;	/* or hop limit */
	uint16_t ip_id; /* 0 for IPv6 */
	uint32_t flow;	/* IPv6 flow label, 0 for IPv4 */
	/* Both point into the file's memory. */
	/* IP header: what icrc_compute_frame() takes (NULL if it has options or extensions) */
	const uint8_t *ip;
	const uint8_t *bth;
	size_t len; /* BTH .. ICRC */
};

struct pcap_reader {
	const uint8_t *data;
	size_t size, off;
	uint32_t linktype;
	bool big;   /* the file is big-endian */
	bool nanos; /* its time stamps are in nanoseconds */
};

/*
 * Starts to read the file image data[0..size), which the caller keeps until it is done with the
 * reader and the records. 0; -EINVAL: no pcap file; -EPROTONOSUPPORT: a pcapng file; -ENOTSUP: a
 * link type we don't know.
 */
int pcap_reader_init(struct pcap_reader *r, const void *data, size_t size);

/*
 * The next record. 1: *rec is filled; 0: the file ended where a record ends; -ENODATA: it ends
 * within a record (truncated); -EBADMSG: a record's length can't be (nothing behind it can be
 * read).
 */
int pcap_reader_next(struct pcap_reader *r, struct pcap_record *rec);

/*
 * For a file that comes in pieces: after 0 or -ENODATA, what was not read yet (from r->off on) and
 * more behind it stands at data[0..size) now, and the reader goes on there.
 */
void pcap_reader_more(struct pcap_reader *r, const void *data, size_t size);

#endif
