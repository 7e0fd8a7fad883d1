/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the network says of packets that we sent: ICMP errors, which the kernel keeps with a quotation of the packet (ip(7), IP_RECVERR). Only
 * one of them means anything to us: nobody has port 4791 there. It becomes a hint; who looks at it decides by the quotation
 * whether to believe that it is about a packet of ours.
 */
#include <errno.h>
#include <time.h>

/* after <time.h>, which it relies on */
#include <linux/errqueue.h>

#include "base/sys.h"
#include "port/udp.h"

#define ERRORS_MOST 64 /* taken at a time; the rest fails the next call, and is taken then */

/* The error among the control data; NULL: none. */
static const struct sock_extended_err *find_error(struct msghdr *h)
{
	for (struct cmsghdr *c = CMSG_FIRSTHDR(h); c; c = CMSG_NXTHDR(h, c)) {
		if ((c->cmsg_level == SOL_IP && c->cmsg_type == IP_RECVERR) ||
		    (c->cmsg_level == SOL_IPV6 && c->cmsg_type == IPV6_RECVERR))
			return (const void *)CMSG_DATA(c);
	}
	return NULL;
}

static void look(struct udp_port *u, struct msghdr *h, const void *quoted, ssize_t len)
{
	const struct sock_extended_err *e = find_error(h);
	struct port_hint hint = {.quotes = true};
	uint16_t port;

	if (!e || e->ee_errno != ECONNREFUSED || h->msg_namelen != udp_name_len(u) ||
	    (e->ee_origin != SO_EE_ORIGIN_ICMP && e->ee_origin != SO_EE_ORIGIN_ICMP6) ||
	    len < (ssize_t)sizeof(struct pkt_bth))
		return;
	udp_addr(h->msg_name, &hint.dst, &port);
	if (port != PKT_UDP_PORT)
		return;
	port_quote(&hint, quoted, (size_t)len);
	port_add_hint(&u->port, &hint);
	if (u->lanes)
		udp_lanes_hint(u, &hint);
}

bool udp_take_errors(struct udp_port *u)
{
	char control[512] __attribute__((aligned(8)));
	uint8_t quoted[PORT_QUOTE_LEN];
	union udp_name name;
	int n = 0;

	for (; n < ERRORS_MOST; n++) {
		struct iovec iov = {quoted, sizeof(quoted)};
		struct msghdr h = {
			.msg_name = &name,
			.msg_namelen = sizeof(name),
			.msg_iov = &iov,
			.msg_iovlen = 1,
			.msg_control = control,
			.msg_controllen = sizeof(control),
		};
		ssize_t len = sys_recvmsg(u->sock, &h, MSG_ERRQUEUE | MSG_DONTWAIT);

		if (len < 0)
			break;
		look(u, &h, quoted, len);
	}
	return n > 0;
}
