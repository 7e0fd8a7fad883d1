/* SPDX-License-Identifier: BSD-2-Clause */
#include "wire.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "packet/headers.h"
#include "packet/ip.h"
#include "packet/pcap.h"

#define PROTO_ICMP  1
#define PROTO_ICMP6 58

static uint8_t frame[WIRE_BATCH][WIRE_FRAME];
static struct iovec iov[WIRE_BATCH];
static struct mmsghdr msg[WIRE_BATCH];

static void __attribute__((noreturn)) give_up(const char *what)
{
	fprintf(stderr, "attacker: %s: %s\n", what, strerror(errno));
	exit(1);
}

static int open_device(int protocol)
{
	struct sockaddr_ll to = {.sll_family = AF_PACKET,
				 .sll_protocol = htons((uint16_t)protocol)};
	int fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0);

	to.sll_ifindex = (int)if_nametoindex(WIRE_DEVICE);
	if (fd < 0 || !to.sll_ifindex || bind(fd, (struct sockaddr *)&to, sizeof(to)))
		give_up("device " WIRE_DEVICE);
	return fd;
}

static void enter(int fd)
{
	if (fd < 0 || setns(fd, CLONE_NEWNET))
		give_up("network namespace");
}

void wire_open(struct wire *w, const char *see)
{
	int one = 1, own_ns;

	w->out = open_device(0);
	setsockopt(w->out, SOL_PACKET, PACKET_QDISC_BYPASS, &one, sizeof(one));
	w->seen = -1;
	if (see) {
		own_ns = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
		enter(open(see, O_RDONLY | O_CLOEXEC));
		w->seen = open_device(ETH_P_ALL);
		enter(own_ns);
	}
	w->waiting = 0;
	w->sent = 0;
}

uint8_t *wire_space(struct wire *w)
{
	return frame[w->waiting] + ETH_HLEN;
}

void wire_put(struct wire *w, enum side to, size_t len)
{
	struct ether_header *eth = (struct ether_header *)frame[w->waiting];

	/* MAC addresses of the two sides and of the attacker, as test_network.py sets them. */
	*eth = (struct ether_header){.ether_dhost = {2, 0, 0, 0, 0, (uint8_t)(1 + to)},
				     .ether_shost = {2, 0, 0, 0, 0, 3}};
	eth->ether_type =
		htons(frame[w->waiting][ETH_HLEN] >> 4 == 4 ? ETHERTYPE_IP : ETHERTYPE_IPV6);
	iov[w->waiting] = (struct iovec){frame[w->waiting], ETH_HLEN + len};
	msg[w->waiting].msg_hdr = (struct msghdr){.msg_iov = &iov[w->waiting], .msg_iovlen = 1};
	if (++w->waiting == WIRE_BATCH)
		wire_flush(w);
}

void wire_flush(struct wire *w)
{
	unsigned done = 0;

	while (done < w->waiting) {
		int n = sendmmsg(w->out, msg + done, w->waiting - done, 0);

		if (n < 0 && (errno == ENOBUFS || errno == EAGAIN || errno == EINTR))
			continue;
		if (n < 0)
			give_up("sending");
		done += (unsigned)n;
	}
	w->sent += done;
	w->waiting = 0;
}

int wire_side(const struct wire *w, const struct pkt_addr *a)
{
	for (unsigned i = 0; i < w->pairs; i++) {
		for (int s = 0; s < 2; s++) {
			if (pkt_addr_eq(a, &w->addr[i][s]))
				return s;
		}
	}
	return -1;
}

void wire_packet_to(struct wire *w, const struct pkt_addr *src, const struct pkt_addr *dst,
		    uint8_t *bth, uint32_t len, bool sealed)
{
	int to = wire_side(w, dst);
	struct icrc_flow f;
	size_t n;

	if (to < 0)
		return;
	if (sealed && len >= 16 && len <= ICRC_MAX_LEN && len % 4 == 0) {
		icrc_flow_init(&f, src, dst, PKT_UDP_PORT, PKT_UDP_PORT);
		icrc_store(bth + len - PKT_ICRC_LEN, icrc_compute(&f, 0, bth, len));
	}
	n = pcap_encode_frame(wire_space(w), WIRE_FRAME - ETH_HLEN, src, dst, PKT_UDP_PORT,
			      PKT_UDP_PORT, 0, 0, bth, len);
	if (n)
		wire_put(w, (enum side)to, n);
}

void wire_packet(struct wire *w, unsigned pair, enum side to, const struct pkt_addr *from,
		 uint8_t *bth, uint32_t len, bool sealed)
{
	wire_packet_to(w, from ? from : &w->addr[pair][!to], &w->addr[pair][to], bth, len, sealed);
}

void wire_icmp(struct wire *w, const struct pkt_addr *from, const struct pkt_addr *dst,
	       uint8_t type, uint8_t code, uint32_t rest, const uint8_t *quoted, size_t len)
{
	uint8_t *ip = wire_space(w), *icmp;
	size_t hdr = ip_put_header(ip, from, dst, 0, 0, (uint16_t)(8 + len));
	int to = wire_side(w, dst);
	uint16_t check;

	if (to < 0)
		return;
	icmp = ip + hdr;
	memset(icmp, 0, 8);
	icmp[0] = type;
	icmp[1] = code;
	pkt_put_be32(icmp + 4, rest);
	memcpy(icmp + 8, quoted, len);
	if (w->v4) {
		ip[9] = PROTO_ICMP;
		memset(ip + 10, 0, 2);
		check = htons(ip_fold16(ip_sum16(0, ip, hdr)));
		memcpy(ip + 10, &check, 2);
		check = htons(ip_fold16(ip_sum16(0, icmp, 8 + len)));
	} else {
		ip[6] = PROTO_ICMP6;
		ip[7] = 255; /* a redirect is accepted only from a neighbour (RFC 4861, 8.1) */
		check = htons(ip_fold16(ip_sum16(8 + len + PROTO_ICMP6, ip + 8, 32 + 8 + len)));
	}
	memcpy(icmp + 2, &check, 2);
	wire_put(w, (enum side)to, hdr + 8 + len);
}

size_t wire_see(struct wire *w, uint8_t *ip, size_t cap, int ms)
{
	static uint8_t buf[ETH_HLEN + 65536];
	struct pollfd p = {.fd = w->seen, .events = POLLIN};

	while (poll(&p, 1, ms) > 0) {
		ssize_t n = recv(w->seen, buf, sizeof(buf), MSG_DONTWAIT);
		const uint8_t *at = buf + ETH_HLEN;
		size_t hdr = at[0] >> 4 == 4 ? IP4_HDR_LEN : IP6_HDR_LEN;

		if (n < (ssize_t)(ETH_HLEN + hdr + 8 + sizeof(struct pkt_bth)))
			continue;
		n -= ETH_HLEN;
		if ((at[0] >> 4 == 4) != w->v4 || at[w->v4 ? 9 : 6] != IP_PROTO_UDP ||
		    at[hdr + 2] != PKT_UDP_PORT >> 8 || at[hdr + 3] != (PKT_UDP_PORT & 0xff))
			continue;
		if ((size_t)n > cap)
			n = (ssize_t)cap;
		memcpy(ip, at, (size_t)n);
		return (size_t)n;
	}
	return 0;
}
