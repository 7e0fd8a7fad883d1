/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Capture files in the classic pcap format. The functions work on memory: they open, read and write
 * no files.
 *
 * The encoders write the packets in the format of tcpdump: little-endian, nanoseconds, LINKTYPE_RAW
 * (the frame starts at the IP header). The reader accepts the files of tcpdump and Wireshark: both
 * byte orders, microseconds and nanoseconds, Ethernet (with VLAN tags), raw IP, and Linux "cooked"
 * captures of the device "any".
 *
 * Source: draft-ietf-opsawg-pcap; the link types are those of the list of tcpdump.org.
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
/* Space that pcap_encode_record() needs for any packet that pkt_parse() accepts. */
#define PCAP_MAX_RECORD (PCAP_REC_HDR_LEN + PCAP_IP6_UDP_LEN + PKT_MAX_LEN)

/*
 * Encoders. Each writes at most `cap` bytes at `out`, and returns the bytes written, or 0 if they
 * do not fit. For a frame the result is also 0 if the packet is too long for the 16-bit length of
 * the IP header, or if src and dst are of different families. No encoder reads past bth + len. The
 * encoders are pure; any thread may call them.
 */

/* Encodes the 24 bytes at the start of a file. */
size_t pcap_encode_file_header(uint8_t *out, size_t cap);

/*
 * Encodes the 16 bytes before a frame of frame_len bytes. time_ns counts from the epoch (or from 0
 * in virtual time).
 */
size_t pcap_encode_record_header(uint8_t *out, size_t cap, uint64_t time_ns, uint32_t frame_len);

/*
 * Encodes IP + UDP headers and the packet BTH .. ICRC (`len` counts the ICRC). The header is IPv4
 * if src and dst are mapped IPv4 addresses, or else IPv6. Ports are in host order. `tos` is the
 * whole byte, ECN bits included. `ip_id` is in host order, and ignored for IPv6. DF is set, TTL or
 * hop limit is 64, the flow label is 0, and the IPv4 header checksum is right. The UDP checksum is
 * 0 on IPv4, and right on IPv6. The destination port is dport: 4791 for RoCE.
 */
size_t pcap_encode_frame(uint8_t *out, size_t cap, const struct pkt_addr *src,
			 const struct pkt_addr *dst, uint16_t sport, uint16_t dport, uint8_t tos,
			 uint32_t ip_id, const uint8_t *bth, size_t len);

/* Encodes a record header and a frame, as a port appends them to a file for each packet. */
size_t pcap_encode_record(uint8_t *out, size_t cap, uint64_t time_ns, const struct pkt_addr *src,
			  const struct pkt_addr *dst, uint16_t sport, uint16_t dport, uint8_t tos,
			  uint32_t ip_id, const uint8_t *bth, size_t len);

/* The kind of a record of a file. */
enum pcap_kind {
	PCAP_ROCE,  /* a UDP datagram to port 4791, whole */
	PCAP_OTHER, /* another packet (ARP, TCP, another port); it is not checked */
	PCAP_CUT,   /* a datagram to port 4791 that the snap length of the capture cut */
	/* an IP fragment. RoCE packets are never fragmented, and a fragment cannot be checked */
	PCAP_FRAGMENT,
	PCAP_BAD, /* the headers of the frame contradict each other */
	PCAP_KIND_COUNT
};

struct pcap_record {
	enum pcap_kind kind;
	uint64_t time_ns;
	/* These are valid for PCAP_ROCE only. Ports, ids and labels are in host order. */
	struct pkt_addr src, dst;
	uint16_t sport, dport;
	bool v4;
	uint8_t tos;	/* type of service or traffic class, ECN bits included */
	uint8_t ttl;	/* or hop limit */
	uint16_t ip_id; /* 0 for IPv6 */
	uint32_t flow;	/* IPv6 flow label, 0 for IPv4 */
	/* Both pointers point into the memory of the file. */
	/* IP header for icrc_compute_frame(); NULL if it has options or extensions */
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
 * Starts to read the file image data[0..size), which must stay valid as long as the reader and the
 * records are used. Returns 0, -EINVAL (no pcap file), -EPROTONOSUPPORT (a pcapng file) or -ENOTSUP
 * (an unknown link type).
 */
int pcap_reader_init(struct pcap_reader *r, const void *data, size_t size);

/*
 * Reads the next record. Returns 1 (*rec is filled), 0 (the file ends after the last record),
 * -ENODATA (the file ends inside a record) or -EBADMSG (the length of a record is invalid; the rest
 * cannot be read).
 */
int pcap_reader_next(struct pcap_reader *r, struct pcap_record *rec);

/*
 * Continues with a file that comes in pieces. After 0 or -ENODATA, the caller gives the unread
 * bytes (from r->off on) and more bytes after them as data[0..size).
 */
void pcap_reader_more(struct pcap_reader *r, const void *data, size_t size);

#endif
