/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Sends packets. They are built in staging memory, one group after the other, and leave with
 * sendmmsg(), one group per message.
 *
 *	stage	| 4148 | 4148 | 4148 | 1076 |...| 20 | 20 |.......| 64 |
 *		 group 0, count 4, closed         group 1           group 2
 *
 * Linux segments a group of several packets into datagrams with identifications 0, 1, 2 ...
 * (net/ipv4/af_inet.c, inet_gso_segment; the first is 0 because the socket is not connected and DF
 * is set, include/net/ip.h, ip_select_ident_segs). If Linux refuses to segment (a device
 * without checksum offload on an older kernel, IPsec), the packets are sent one by one, each with
 * identification 0 and a new ICRC. So are all later packets on that path.
 */
#include "port/udp.h"

#include <errno.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/sys.h"

/* failures by errors of other packets that a flush tolerates; the next flush continues */
#define FOREIGN_MOST 16

#define CONTROL_BYTES (CMSG_SPACE(sizeof(uint16_t)) + CMSG_SPACE(sizeof(int)))

/* The arguments of sendmmsg(). They are on the stack, and only the used messages are written. */
struct out_msgs {
	struct mmsghdr msg[UDP_MAX_GROUPS];
	struct iovec iov[UDP_MAX_GROUPS][2];
	char control[UDP_MAX_GROUPS][CONTROL_BYTES] __attribute__((aligned(8)));
};

int udp_tx_init(struct udp_port *u)
{
	u->tx.stage = mem_alloc_pages(UDP_STAGE_BYTES);
	return u->tx.stage ? 0 : -ENOMEM;
}

void udp_tx_fini(struct udp_port *u)
{
	mem_free_pages(u->tx.stage, UDP_STAGE_BYTES);
	u->tx.stage = NULL;
}

static bool can_append(const struct udp_tx *t, const struct udp_group *g,
		       const struct udp_path *path, uint32_t len, uint8_t tos)
{
	return g->path == path && g->tos == tos && !g->closed && !g->mixed && len <= g->size &&
	       g->count < t->max_segs && !path->no_gso && g->bytes + len <= UDP_MAX_DATAGRAM &&
	       !(path->first_alone && g->count == 1 && len < g->size);
}

static bool can_join(const struct udp_group *g, const struct udp_path *path, uint32_t len,
		     uint8_t tos)
{
	return path->joins && g->path == path && g->tos == tos && g->count < UDP_JOIN_MAX &&
	       g->bytes + len <= UDP_JOIN_BYTES;
}

/*
 * Learns whether the longer first packet of a message should be sent alone. The first packet of a
 * long message is longer than the others by its extended header, so no packet fits after the second
 * one in its group. The message has as many groups if the first packet is sent alone, but a single
 * packet costs Linux much less than a group of two (no segmentation, no pages). A message of
 * two packets then needs one more group. The lengths of the last packets show which kind of message
 * is sent. `len` is the length of the next packet; 0: a flush. A path that joins packets does not
 * need this.
 */
static void learn_first_alone(const struct udp_tx *t, uint32_t len)
{
	const struct udp_group *g = &t->group[t->count - 1];

	if (g->path->joins)
		return;
	if (g->count == 2 && g->closed && len == g->bytes - g->size)
		g->path->first_alone = true;
	else if (g->count == 1 && t->count > 1 && g[-1].count == 1 && g[-1].path == g->path &&
		 g->size < g[-1].size)
		g->path->first_alone = false;
}

static int blocked(struct udp_port *u)
{
	u->port.stats.tx_blocked++;
	return -EAGAIN;
}

/* Begins a new group, after a flush if the batch is full. NULL: no space. */
static struct udp_group *open_group(struct udp_port *u, struct udp_path *path, uint32_t len,
				    uint8_t tos)
{
	struct udp_tx *t = &u->tx;
	struct udp_group *g;

	if (t->count && t->group[t->count - 1].path == path)
		learn_first_alone(t, len);
	if (t->count == UDP_MAX_GROUPS || t->used >= UDP_BATCH_BYTES) {
		if (!udp_flush(&u->port))
			return NULL;
	}
	t->used = ALIGN_UP(t->used, UDP_STAGE_ALIGN);
	g = &t->group[t->count++];
	g->path = path;
	g->data = t->stage + t->used;
	g->bytes = 0;
	g->size = (uint16_t)len;
	g->count = g->sent = 0;
	g->tos = tos;
	g->closed = g->mixed = false;
	return g;
}

int udp_reserve(struct port *p, struct port_path *path, uint32_t len, uint8_t tos,
		struct port_buf *buf)
{
	struct udp_port *u = udp_port(p);
	struct udp_tx *t = &u->tx;
	struct udp_group *g;

	t->reserved = 0;
	if (unlikely(t->blocked))
		return blocked(u);
	g = t->count ? &t->group[t->count - 1] : NULL;
	t->was_closed = t->was_mixed = false;
	if (g && can_append(t, g, (struct udp_path *)path, len, tos)) {
		/* the packet joins the earlier packets unchanged */
	} else if (g && can_join(g, (struct udp_path *)path, len, tos)) {
		t->was_closed = g->closed;
		t->was_mixed = g->mixed;
		g->mixed = true;
	} else {
		g = open_group(u, (struct udp_path *)path, len, tos);
		if (unlikely(!g))
			return blocked(u);
	}
	if (g->count < UDP_JOIN_MAX)
		g->head.len[g->count] = htons((uint16_t)len);
	buf->bth = g->data + g->bytes;
	buf->ip_id = g->count;
	g->bytes += len;
	g->count++;
	g->closed = len < g->size;
	t->used += len;
	t->reserved = len;
	return 0;
}

void udp_cancel(struct port *p)
{
	struct udp_tx *t = &udp_port(p)->tx;
	struct udp_group *g;

	if (!t->reserved)
		return;
	g = &t->group[t->count - 1];
	g->bytes -= t->reserved;
	t->used -= t->reserved;
	t->reserved = 0;
	g->closed = t->was_closed;
	g->mixed = t->was_mixed;
	if (--g->count == 0)
		t->count--;
}

static void add_control(struct msghdr *m, int level, int type, const void *value, size_t n)
{
	struct cmsghdr *c = (struct cmsghdr *)((char *)m->msg_control + m->msg_controllen);

	c->cmsg_level = level;
	c->cmsg_type = type;
	c->cmsg_len = CMSG_LEN(n);
	memcpy(CMSG_DATA(c), value, n);
	m->msg_controllen += CMSG_SPACE(n);
}

/*
 * Fills in message i: `bytes` at `data` to the path of the group. Linux segments them into
 * packets of `segment` bytes, unless that is 0.
 */
static void fill_msg(const struct udp_port *u, struct out_msgs *o, unsigned i, struct udp_group *g,
		     uint8_t *data, uint32_t bytes, uint16_t segment)
{
	struct msghdr *m = &o->msg[i].msg_hdr;

	o->iov[i][0] = (struct iovec){data, bytes};
	m->msg_name = &g->path->name;
	m->msg_namelen = udp_name_len(u);
	m->msg_iov = o->iov[i];
	m->msg_iovlen = 1;
	if (g->mixed) {
		o->iov[i][1] = o->iov[i][0];
		o->iov[i][0] = (struct iovec){&g->head, udp_join_close(&g->head, g->count, data)};
		m->msg_iovlen = 2;
	}
	m->msg_control = o->control[i];
	m->msg_controllen = 0;
	m->msg_flags = 0;
	if (segment)
		add_control(m, SOL_UDP, UDP_SEGMENT, &segment, sizeof(segment));
	if (g->tos) {
		int tos = g->tos;

		add_control(m, u->v6 ? SOL_IPV6 : SOL_IP, u->v6 ? IPV6_TCLASS : IP_TOS, &tos,
			    sizeof(tos));
	}
	if (!m->msg_controllen)
		m->msg_control = NULL;
}

static void count_sent(struct udp_port *u, unsigned packets, uint32_t bytes)
{
	u->port.stats.tx_packets += packets;
	u->port.stats.tx_bytes += bytes;
}

static bool gso_refused(int rc)
{
	return rc == -EINVAL || rc == -EIO || rc == -ENOPROTOOPT || rc == -EOPNOTSUPP;
}

static bool no_space_now(int rc)
{
	return rc == -EAGAIN || rc == -EINTR;
}

/* Sends n messages. Returns the number sent, or the error of the first message. */
static int send_msgs(struct udp_port *u, int sock, struct out_msgs *o, unsigned n)
{
	struct msghdr *m = &o->msg[0].msg_hdr;
	ssize_t rc;

	if (n == 1 && udp_exchange(u, sock, m))
		return 1;
	exchange_flushed(&u->exchange.history);
	if (n > 1) {
		int sent = sys_sendmmsg(sock, o->msg, n, MSG_DONTWAIT | MSG_NOSIGNAL);

		/*
		 * Linux does not report an error after the first message, but has removed it
		 * from the socket.
		 */
		u->error_pending |= sent > 0 && (unsigned)sent < n;
		return sent;
	}
	/*
	 * With fewer fields Linux reads less, which shortens the round trip of a small packet.
	 */
	if (m->msg_control || m->msg_iovlen > 1)
		rc = sys_sendmsg(sock, m, MSG_DONTWAIT | MSG_NOSIGNAL);
	else
		rc = sys_sendto(sock, o->iov[0][0].iov_base, o->iov[0][0].iov_len,
				MSG_DONTWAIT | MSG_NOSIGNAL, m->msg_name, m->msg_namelen);
	return rc < 0 ? (int)rc : 1;
}

static bool needs_single(const struct udp_group *g)
{
	return g->path->no_gso && g->count > 1 && !g->mixed;
}

/*
 * Sends waiting groups up to the first group that must be sent singly, or from another socket.
 * Returns the number sent, or the error of the first group.
 */
static int send_groups(struct udp_port *u)
{
	struct udp_tx *t = &u->tx;
	int sock = t->group[t->first].path->sock, rc;
	struct out_msgs o;
	unsigned n = 0;

	for (unsigned i = t->first; i < t->count; i++, n++) {
		struct udp_group *g = &t->group[i];

		if (!g->path || g->path->sock != sock || needs_single(g))
			break;
		fill_msg(u, &o, n, g, g->data, g->bytes, g->count > 1 && !g->mixed ? g->size : 0);
	}
	rc = send_msgs(u, sock, &o, n);
	for (int i = 0; i < rc; i++, t->first++)
		count_sent(u, t->group[t->first].count, t->group[t->first].bytes);
	return rc;
}

/*
 * Sends the remaining packets of the first waiting group, one per datagram. Returns the number
 * sent, or the error of the first packet.
 */
static int send_singly(struct udp_port *u)
{
	struct udp_tx *t = &u->tx;
	struct udp_group *g = &t->group[t->first];
	struct out_msgs o;
	unsigned n = 0;
	int rc;

	for (unsigned k = g->sent; k < g->count && n < UDP_MAX_GROUPS; k++, n++) {
		uint32_t off = (uint32_t)k * g->size;

		fill_msg(u, &o, n, g, g->data + off, k + 1u < g->count ? g->size : g->bytes - off,
			 0);
	}
	rc = send_msgs(u, g->path->sock, &o, n);
	for (int i = 0; i < rc; i++, g->sent++)
		count_sent(u, 1, (uint32_t)o.iov[i][0].iov_len);
	if (g->sent == g->count)
		t->first++;
	return rc;
}

/*
 * Computes the ICRCs of a group again. Its packets were built with identifications 0, 1, 2 ... and
 * leave with identification 0.
 */
static void rebuild(const struct udp_group *g)
{
	for (unsigned k = 1; g->path->flow.v4 && !g->mixed && k < g->count; k++) {
		uint32_t off = (uint32_t)k * g->size;
		uint32_t len = k + 1u < g->count ? g->size : g->bytes - off;
		uint8_t *bth = g->data + off;

		if (len >= sizeof(struct pkt_bth) + PKT_ICRC_LEN && len <= ICRC_MAX_LEN &&
		    len % 4 == 0)
			icrc_store(bth + len - PKT_ICRC_LEN,
				   icrc_compute(&g->path->flow, 0, bth, len));
	}
}

static void disable_gso(struct udp_port *u, struct udp_path *path, int rc)
{
	char text[64];

	log_info("udp: the kernel does not segment packets to %s (%s): they are sent one by one",
		 pkt_addr_print(&path->path.dst, text, sizeof(text)), strerror(-rc));
	path->no_gso = true;
	for (unsigned i = u->tx.first; i < u->tx.count; i++) {
		if (u->tx.group[i].path == path)
			rebuild(&u->tx.group[i]);
	}
}

/*
 * Drops packets that cannot be sent: the first waiting group, or only its next packet if it is sent
 * singly.
 */
static void drop(struct udp_port *u, int rc)
{
	struct udp_tx *t = &u->tx;
	struct udp_group *g = &t->group[t->first];

	udp_path_warn(u, g->path, rc, g->size);
	if (g->path->gsi)
		udp_route_failed(u);
	if (needs_single(g)) {
		u->port.stats.tx_dropped++;
		if (++g->sent < g->count)
			return;
	} else {
		u->port.stats.tx_dropped += g->count;
	}
	t->first++;
}

/*
 * Returns true if another packet may have caused the error. ICMP errors come at any time, from any
 * host, in any number, and each makes a call fail; none may cost a packet. Linux queues an
 * error first and then makes a call fail for it. So once after errors were read, a failure may
 * belong to one of them although the queue is empty. Only ECONNREFUSED is never an error of the
 * packet of the call.
 */
static bool is_foreign(struct udp_port *u, int rc)
{
	if (udp_take_errors(u) || rc == -ECONNREFUSED) {
		u->tx.retry_send = false;
		return true;
	}
	if (u->tx.retry_send || !u->errors_read)
		return false;
	u->errors_read = false;
	u->tx.retry_send = true;
	return true;
}

/*
 * Makes the progress of one system call. Returns false if Linux has no space, or too many
 * forged errors came.
 */
static bool push(struct udp_port *u, unsigned *foreign)
{
	struct udp_tx *t = &u->tx;
	struct udp_group *g = &t->group[t->first];
	bool singly;
	int rc;

	if (!g->path) {
		t->first++;
		return true;
	}
	singly = needs_single(g);
	rc = singly ? send_singly(u) : send_groups(u);
	if (likely(rc > 0)) {
		u->port.stats.tx_bursts++;
		u->errors_read = t->retry_send = false;
		return true;
	}
	if (no_space_now(rc))
		return false;
	if (is_foreign(u, rc))
		return ++*foreign < FOREIGN_MOST;
	if (gso_refused(rc) && !singly && g->count > 1 && !g->mixed) {
		disable_gso(u, g->path, rc);
	} else {
		/* Retransmitted packets will leave in datagrams of the ordinary kind. */
		if (g->mixed && (rc == -EMSGSIZE || gso_refused(rc)))
			g->path->joins = false;
		drop(u, rc);
		t->retry_send = false;
	}
	return true;
}

bool udp_flush(struct port *p)
{
	struct udp_port *u = udp_port(p);
	struct udp_tx *t = &u->tx;
	unsigned foreign = 0;

	t->reserved = 0;
	t->blocked = false;
	if (t->count > 1 && t->group[t->count - 1].path)
		learn_first_alone(t, 0);
	while (t->first < t->count) {
		if (!push(u, &foreign)) {
			t->blocked = true;
			return false;
		}
	}
	t->first = t->count = 0;
	t->used = 0;
	return true;
}

void udp_tx_forget(struct udp_port *u, const struct udp_path *path)
{
	struct udp_tx *t = &u->tx;
	bool waits = false;

	/*
	 * Without a waiting packet there is no flush, so that answers to many addresses share one.
	 */
	for (unsigned i = t->first; i < t->count; i++)
		waits |= t->group[i].path == path;
	if (!waits || udp_flush(&u->port))
		return;
	for (unsigned i = t->first; i < t->count; i++) {
		struct udp_group *g = &t->group[i];

		if (g->path != path)
			continue;
		u->port.stats.tx_dropped += g->count - g->sent;
		g->path = NULL;
	}
}
