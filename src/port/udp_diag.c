/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Asks the Linux kernel whether a socket of this network namespace would receive datagrams from
 * this port at an address and port 4791 (sock_diag(7)). That is one look-up in a hash table, which
 * takes a microsecond; a list of all sockets (udp_reader.c) takes a hundred. A sandbox may refuse
 * such a socket, and Linux may lack its module udp_diag. A missing module and a missing socket
 * have the same error, so the first question is about the port's own socket.
 */
#include <errno.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <string.h>

#include "base/sys.h"
#include "port/udp.h"

#define LOOPBACK_IFINDEX 1 /* include/net/flow.h of Linux */
#define REPLY_BYTES	 512
#define STALE_MOST	 16 /* replies to earlier questions, which the reader skips */

struct question {
	struct nlmsghdr head;
	struct inet_diag_req_v2 req;
};

struct reply {
	struct nlmsghdr head;
	struct nlmsgerr err; /* if the type says so */
};

/* The addresses are those of a datagram, not of the socket (net/ipv4/udp_diag.c, udp_dump_one). */
static void fill(const struct udp_port *u, const struct pkt_addr *dst, struct question *q)
{
	size_t skip = u->v6 ? 0 : 12;

	memset(q, 0, sizeof(*q));
	q->head.nlmsg_len = sizeof(*q);
	q->head.nlmsg_type = SOCK_DIAG_BY_FAMILY;
	q->head.nlmsg_flags = NLM_F_REQUEST;
	q->head.nlmsg_seq = u->diag_seq;
	q->req.sdiag_family = u->v6 ? AF_INET6 : AF_INET;
	q->req.sdiag_protocol = IPPROTO_UDP;
	q->req.idiag_states = UINT32_MAX;
	q->req.id.idiag_if = LOOPBACK_IFINDEX; /* datagrams to these addresses come from there */
	q->req.id.idiag_sport = q->req.id.idiag_dport = htons(PKT_UDP_PORT);
	memcpy(q->req.id.idiag_src, u->port.addr.b + skip, sizeof(u->port.addr.b) - skip);
	memcpy(q->req.id.idiag_dst, dst->b + skip, sizeof(dst->b) - skip);
	q->req.id.idiag_cookie[0] = q->req.id.idiag_cookie[1] = INET_DIAG_NOCOOKIE;
}

static enum udp_presence presence(const struct reply *in, ssize_t n)
{
	if (in->head.nlmsg_type == SOCK_DIAG_BY_FAMILY)
		return UDP_PRESENT;
	return in->head.nlmsg_type == NLMSG_ERROR && n >= (ssize_t)sizeof(*in) &&
			       in->err.error == -ENOENT
		       ? UDP_ABSENT
		       : UDP_UNKNOWN;
}

/* Linux has queued the reply when the question was sent. */
static enum udp_presence ask(struct udp_port *u, const struct pkt_addr *dst)
{
	union {
		struct reply reply;
		uint8_t bytes[REPLY_BYTES];
	} in;
	struct question q;

	u->diag_seq++;
	fill(u, dst, &q);
	if (sys_write(u->diag, &q, sizeof(q)) != (ssize_t)sizeof(q))
		return UDP_UNKNOWN;
	for (int i = 0; i < STALE_MOST; i++) {
		ssize_t n = sys_read(u->diag, &in, sizeof(in));

		if (n < (ssize_t)sizeof(in.reply.head))
			break;
		if (in.reply.head.nlmsg_seq != u->diag_seq)
			continue;
		return presence(&in.reply, n);
	}
	return UDP_UNKNOWN;
}

static void open_diag(struct udp_port *u)
{
	u->diag =
		sys_socket(AF_NETLINK, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
	u->diag_tried = u->diag != -EMFILE && u->diag != -ENFILE && u->diag != -ENOMEM;
	if (u->diag >= 0 && ask(u, &u->port.addr) != UDP_PRESENT)
		udp_diag_close(u);
}

void udp_diag_close(struct udp_port *u)
{
	if (u->diag >= 0)
		sys_close(u->diag);
	u->diag = -1;
}

enum udp_presence udp_diag(struct udp_port *u, const struct pkt_addr *dst)
{
	if (!u->diag_tried)
		open_diag(u);
	return u->diag < 0 ? UDP_UNKNOWN : ask(u, dst);
}

/* Reads replies to the questions from `first` on. Returns the number of messages; 0: no more. */
static unsigned read_replies(struct udp_port *u, uint32_t first, struct udp_found *found,
			     unsigned n)
{
	struct mmsghdr msgs[UDP_EXPECT_MAX];
	struct iovec iov[UDP_EXPECT_MAX];
	struct reply
		in[UDP_EXPECT_MAX]; /* the rest of a reply, which quotes the question, is cut */
	int got;

	for (unsigned i = 0; i < n; i++) {
		iov[i] = (struct iovec){&in[i], sizeof(in[i])};
		msgs[i].msg_hdr = (struct msghdr){.msg_iov = &iov[i], .msg_iovlen = 1};
	}
	got = sys_recvmmsg(u->diag, msgs, n, MSG_DONTWAIT);
	for (int i = 0; i < got; i++) {
		uint32_t at = in[i].head.nlmsg_seq - first;

		if (msgs[i].msg_len >= sizeof(in[i].head) && at < n)
			found[at].there = presence(&in[i], msgs[i].msg_len);
	}
	return got > 0 ? (unsigned)got : 0;
}

void udp_diag_all(struct udp_port *u, struct udp_found *found, unsigned n)
{
	struct question q[UDP_EXPECT_MAX];
	uint32_t first;

	if (!u->diag_tried)
		open_diag(u);
	first = u->diag_seq + 1;
	for (unsigned i = 0; i < n; i++) {
		found[i].there = UDP_UNKNOWN;
		u->diag_seq++;
		fill(u, &found[i].addr, &q[i]);
	}
	if (u->diag < 0 || sys_write(u->diag, q, n * sizeof(q[0])) != (ssize_t)(n * sizeof(q[0])))
		return;
	/* replies to earlier questions may be among them */
	for (unsigned left = n + STALE_MOST, got; left; left -= got < left ? got : left) {
		got = read_replies(u, first, found, n);
		if (!got || found[n - 1].there != UDP_UNKNOWN)
			return;
	}
}
