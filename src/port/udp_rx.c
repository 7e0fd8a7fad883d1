/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Receives into buffers of the port. With UDP_GRO Linux delivers merged datagrams, or groups that
 * it did not segment (over loopback a group arrives as it was sent), and the length of the pieces.
 * The pieces are handed out as packets without a copy.
 *
 * Buffers are filled again only when all their packets were handed out and the caller has requested
 * the next burst, so descriptors stay valid as port.h promises. A flush may receive a datagram
 * ahead, in a spare buffer (udp_exchange.c); it is the next burst.
 *
 * A socket does not show identifications. The prediction is the place of the packet in its
 * datagram. This is right for every group that arrives as it was sent, and for every packet that a
 * udp port of Roost sends alone.
 */
#include "port/udp.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/sys.h"

#define ECN_MASK 3
#define ECN_CE	 3

/*
 * Errors of sent packets wait on another socket than received packets. A look for errors costs a
 * system call, and is made after this many looks for packets that found none.
 */
#define IDLE_LOOKS 64

/*
 * The control data: piece length of UDP_GRO, and type of service (one byte in IPv4, an int in
 * IPv6).
 */
#define CONTROL_BYTES (CMSG_SPACE(sizeof(int)) + CMSG_SPACE(sizeof(int)))

#define RX_BUFS (UDP_RX_BUFS + UDP_RX_SPARE)

struct rx_msg {
	union udp_name name;
	struct iovec iov;
	char control[CONTROL_BYTES] __attribute__((aligned(8)));
};

/* One block: the headers for the system call, followed by the data that they point to. */
struct rx_msgs {
	struct mmsghdr msg[RX_BUFS];
	struct rx_msg part[RX_BUFS];
};

static struct rx_msgs *rx_msgs(struct udp_rx *r)
{
	return (struct rx_msgs *)r->msgs;
}

static void reset_msg(const struct udp_port *u, struct rx_msgs *m, unsigned i)
{
	struct msghdr *h = &m->msg[i].msg_hdr;

	h->msg_namelen = udp_name_len(u);
	h->msg_controllen = CONTROL_BYTES;
	h->msg_flags = 0;
}

int udp_rx_init(struct udp_port *u)
{
	struct udp_rx *r = &u->rx;
	struct rx_msgs *m = calloc(1, sizeof(*m));

	r->mem = mem_alloc_pages((size_t)RX_BUFS * UDP_RX_STRIDE);
	r->msgs = (struct mmsghdr *)m;
	if (!r->mem || !m)
		return -ENOMEM; /* udp_rx_fini() frees the other allocation */
	r->want = 1;
	r->spare = UDP_RX_BUFS;
	for (unsigned i = 0; i < RX_BUFS; i++) {
		struct msghdr *h = &m->msg[i].msg_hdr;

		r->buf[i].data = r->mem + (size_t)i * UDP_RX_STRIDE;
		m->part[i].iov = (struct iovec){r->buf[i].data, 65536};
		h->msg_name = &m->part[i].name;
		h->msg_iov = &m->part[i].iov;
		h->msg_iovlen = 1;
		h->msg_control = m->part[i].control;
		reset_msg(u, m, i);
	}
	return 0;
}

void udp_rx_fini(struct udp_port *u)
{
	mem_free_pages(u->rx.mem, (size_t)RX_BUFS * UDP_RX_STRIDE);
	free(u->rx.msgs);
	u->rx.mem = NULL;
	u->rx.msgs = NULL;
}

static void read_control(struct msghdr *h, struct udp_rx_buf *b)
{
	int value;

	for (struct cmsghdr *c = CMSG_FIRSTHDR(h); c; c = CMSG_NXTHDR(h, c)) {
		if (c->cmsg_level == SOL_IP && c->cmsg_type == IP_TOS) {
			b->tos = *CMSG_DATA(c);
		} else if (c->cmsg_level == SOL_IPV6 && c->cmsg_type == IPV6_TCLASS) {
			memcpy(&value, CMSG_DATA(c), sizeof(value));
			b->tos = (uint8_t)value;
		} else if (c->cmsg_level == SOL_UDP && c->cmsg_type == UDP_GRO) {
			memcpy(&value, CMSG_DATA(c), sizeof(value));
			if (value > 0 && (uint32_t)value < b->len)
				b->seg = (uint32_t)value;
		}
	}
}

/*
 * Returns true if the source of a datagram belongs to a member of the pool, or to one that has
 * ended lately. The answers about members are kept until the pool changes.
 */
static bool is_member(struct udp_port *u, const struct udp_rx_buf *b)
{
	struct udp_known *k = &u->known[b->sport % UDP_KNOWN];
	uint64_t version = pool_version(u->pool);

	if (likely(k->version == version && k->sport == b->sport && pkt_addr_eq(&k->src, &b->src)))
		return true;
	if (!pool_sends(u->pool, &b->src, u->scope, b->sport))
		return pool_sent_lately(u->pool, &b->src, u->scope, b->sport);
	*k = (struct udp_known){b->src, version, b->sport};
	return true;
}

/*
 * Returns false if the datagram cannot come from a NIC. Any user of this machine can send from
 * loopback addresses, but only the NIC that holds port 4791 of an address sends from that port, and
 * the pool knows the source ports of its members. NICs on other machines choose their source ports
 * (IBA A17.9.3), so that connections take several paths; see rx.c for these.
 */
static bool is_from_nic(struct udp_port *u, const struct udp_rx_buf *b)
{
	return !pkt_addr_is_loopback(&b->src) || b->sport == PKT_UDP_PORT || is_member(u, b);
}

/* Sets the common fields of the packets of datagram i. */
static void open_datagram(struct udp_port *u, struct rx_msgs *m, unsigned i,
			  const struct pkt_addr *dst)
{
	struct udp_rx_buf *b = &u->rx.buf[i];
	struct msghdr *h = &m->msg[i].msg_hdr;

	b->dst = *dst;
	b->off = 0;
	b->head = NULL;
	b->index = 0;
	b->tos = 0;
	b->len = b->seg = m->msg[i].msg_len;
	if (unlikely(h->msg_flags & MSG_TRUNC || h->msg_namelen != udp_name_len(u))) {
		u->port.stats.rx_bad++;
		b->len = b->seg = 0;
	} else {
		udp_addr(&m->part[i].name, &b->src, &b->sport);
		read_control(h, b);
		if (unlikely(!is_from_nic(u, b))) {
			u->port.stats.rx_bad++;
			b->len = b->seg = 0;
		} else if (b->seg == b->len) {
			b->head = udp_join_open(b->data, b->len, &b->off);
		}
	}
	/* IPv6 has no identification, so none is missing. */
	b->flags = (uint8_t)((u->v6 ? PORT_ID_KNOWN : 0) |
			     ((b->tos & ECN_MASK) == ECN_CE ? PORT_CE : 0));
	reset_msg(u, m, i);
}

static unsigned packets_of(const struct udp_rx_buf *b)
{
	return b->head ? ntohs(b->head->count) : b->seg ? (b->len + b->seg - 1) / b->seg : 1;
}

/*
 * Returns the number of datagrams to request. After a call that found none it is one, because a
 * look for an absent second datagram costs a tenth of a round trip. It grows while all requested
 * datagrams come, up to a total of UDP_RX_BUFS packets, so that the copied data are still in the
 * cache when they are read.
 */
static unsigned next_want(const struct udp_rx *r, int got)
{
	unsigned packets, most;

	if (got < 1)
		return 1;
	if ((unsigned)got < r->want)
		return r->want;
	packets = packets_of(&r->buf[got - 1]);
	most = packets < UDP_RX_BUFS ? UDP_RX_BUFS / packets : 1;
	return 2 * r->want < most ? 2 * r->want : most;
}

/*
 * Returns the number of received datagrams or -errno. recvmsg() costs less than recvmmsg(), which
 * shortens the time between two looks of a thread that polls.
 */
static int receive_msgs(int sock, struct mmsghdr *msg, unsigned want)
{
	ssize_t n;

	if (want > 1)
		return sys_recvmmsg(sock, msg, want, MSG_DONTWAIT);
	n = sys_recvmsg(sock, &msg->msg_hdr, MSG_DONTWAIT);
	if (n < 0)
		return (int)n;
	msg->msg_len = (unsigned)n;
	return 1;
}

static void receive_from(struct udp_port *u, int sock, const struct pkt_addr *dst)
{
	struct udp_rx *r = &u->rx;
	struct rx_msgs *m = rx_msgs(r);
	int n = receive_msgs(sock, m->msg, exchange_request(&u->exchange.history, r->want));

	for (int i = 0; i < n; i++)
		open_datagram(u, m, (unsigned)i, dst);
	r->want = next_want(r, n);
	if (n < 1)
		return;
	r->count = r->got = (unsigned)n;
	u->port.stats.rx_bursts++;
}

bool udp_rx_may_receive(const struct udp_port *u)
{
	return !u->watched && !udp_rx_waiting(u) && u->groups_epoll < 0 && !udp_leftovers_wait(u) &&
	       !u->error_pending && !u->errors_off;
}

struct msghdr *udp_rx_spare(struct udp_port *u)
{
	return &rx_msgs(&u->rx)->msg[u->rx.spare].msg_hdr;
}

void udp_rx_ahead(struct udp_port *u, int len)
{
	struct udp_rx *r = &u->rx;

	if (len < 0)
		return;
	rx_msgs(r)->msg[r->spare].msg_len = (unsigned)len;
	r->ahead = r->spare;
	r->spare = r->spare == UDP_RX_BUFS ? UDP_RX_BUFS + 1 : UDP_RX_BUFS;
}

static void take_ahead(struct udp_port *u)
{
	struct udp_rx *r = &u->rx;

	r->next = r->ahead;
	r->count = r->ahead + 1;
	r->ahead = 0;
	open_datagram(u, rx_msgs(r), r->next, &u->port.addr);
	u->port.stats.rx_bursts++;
	r->got = 1;
}

static void receive_group(struct udp_port *u)
{
	struct udp_mcast *g = udp_mcast_ready(u);

	if (g)
		receive_from(u, g->sock, &g->addr);
	u->rx.group = u->rx.count != 0;
}

/*
 * Receives datagrams that came for an ended program. If another program has the slot now, this port
 * leaves the rest to it, and passes on the received ones by mail.
 */
static void receive_leftovers(struct udp_port *u)
{
	if (u->leftover >= 0 && pool_owner(u->pool, u->leftover_slot))
		u->leftover = -1;
	if (u->leftover < 0)
		u->leftover = pool_addr_adopt(u->pool_addr, &u->leftover_slot);
	if (u->leftover < 0)
		return;
	receive_from(u, u->leftover, &u->port.addr);
	u->rx.adopted = u->rx.count != 0;
	if (!u->rx.count)
		u->leftover = -1;
}

/*
 * Receives datagrams. Groups and the port's own address take turns in being read first, so that
 * neither delays the other.
 */
static void receive(struct udp_port *u)
{
	struct udp_rx *r = &u->rx;

	r->group = r->adopted = false;
	if (r->ahead) {
		take_ahead(u);
		return;
	}
	r->next = r->count = 0;
	if (unlikely(udp_leftovers_wait(u))) {
		u->leftovers_turn = !u->leftovers_turn;
		if (u->leftovers_turn)
			receive_leftovers(u);
	}
	if (unlikely(u->error_pending)) {
		u->error_pending = false;
		udp_take_errors(u);
	}
	if (unlikely(u->errors_off))
		udp_resume_errors(u);
	if (unlikely(u->groups_epoll >= 0))
		u->groups_turn = !u->groups_turn;
	if (unlikely(u->groups_turn) && !r->count)
		receive_group(u);
	if (!r->count) {
		receive_from(u, u->sock, &u->port.addr);
		exchange_looked(&u->exchange.history, r->count != 0);
	}
	if (unlikely(u->groups_epoll >= 0 && !u->groups_turn && !r->count))
		receive_group(u);
	if (r->count) {
		u->empty_polls = 0;
	} else if (u->woken || ++u->empty_polls >= IDLE_LOOKS) {
		u->empty_polls = 0;
		udp_take_errors(u);
		if (u->woken)
			udp_mail_look(u);
	}
	u->woken = false;
}

/* Hands out the next packet of a datagram; at least one is left. */
static void take(struct udp_port *u, struct udp_rx_buf *b, struct port_pkt *pkt)
{
	uint32_t len = b->len - b->off < b->seg ? b->len - b->off : b->seg;

	if (b->head)
		len = ntohs(b->head->len[b->index]);
	*pkt = (struct port_pkt){
		.bth = b->data + b->off,
		.src = &b->src,
		.dst = &b->dst,
		.len = len,
		.sport = b->sport,
		.ip_id = b->index++,
		.tos = b->tos,
		.flags = b->flags,
	};
	b->off += len;
}

/*
 * A management datagram may belong to another program: Linux's filter has no space for its
 * service, or it came in a group behind a packet for this slot.
 */
static bool pass_management(struct udp_port *u, const struct port_pkt *pkt)
{
	int slot = pool_management_slot(u->pool, &u->port.addr, u->scope, pkt->bth, pkt->len);

	return slot >= 0 && slot != u->port.slot && udp_mail_pass(u, (unsigned)slot, pkt);
}

/*
 * Passes on a packet for a QP of another slot. Returns true if the core must not see the packet: it
 * was passed on, or it was for a queue pair of a program that has ended and is dropped. If no
 * program has that slot, the core gets the packet and refuses it. Packets to a group are not passed
 * on, because every lane gets its own copy.
 */
static bool pass_on(struct udp_port *u, const struct port_pkt *pkt)
{
	uint32_t qpn;

	if (pkt->len < sizeof(struct pkt_bth) || u->rx.group)
		return false;
	qpn = pkt_get24(((const struct pkt_bth *)pkt->bth)->dqpn);
	if (unlikely(qpn <= PKT_GSI_QPN))
		return pass_management(u, pkt);
	return unlikely(PORT_SLOT_OF_QPN(qpn) != u->port.slot) &&
	       (udp_mail_pass(u, PORT_SLOT_OF_QPN(qpn), pkt) || u->rx.adopted);
}

int udp_rx_burst(struct port *p, struct port_pkt *pkts, int max)
{
	struct udp_port *u = udp_port(p);
	struct udp_rx *r = &u->rx;
	bool passed = false;
	int n = 0;

	if (r->next == r->count)
		receive(u);
	if (unlikely(udp_mail_waits(u)))
		n = udp_mail_take(u, pkts, max);
	while (n < max && r->next < r->count) {
		struct udp_rx_buf *b = &r->buf[r->next];

		if (b->off == b->len) {
			r->next++;
			continue;
		}
		take(u, b, &pkts[n]);
		if (pass_on(u, &pkts[n])) {
			passed = true;
			continue;
		}
		p->stats.rx_packets++;
		p->stats.rx_bytes += pkts[n].len;
		n++;
	}
	if (unlikely(passed))
		udp_mail_flush(u);
	while (r->next < r->count && r->buf[r->next].off == r->buf[r->next].len)
		r->next++;
	u->exchange.suits =
		r->count && exchange_suits(r->got, (unsigned)n, r->buf[r->count - 1].len);
	return n;
}
