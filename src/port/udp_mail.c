/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Packets that came to the socket of another slot of the address. Linux steers a whole group
 * of packets by the first one (UDP_SEGMENT of the sender, or UDP_GRO of a network device). Roost
 * keeps slots apart when it sends, but other senders and devices may not. The port that gets such a
 * packet passes it on in a datagram to the sending socket of the right port, which receives nothing
 * else:
 *
 *	socket of slot 3 --> port of slot 3 --mail--> port of slot 9, perhaps in another process
 *
 * Linux holds the mail, so neither end waits for the other, and either may be killed at any
 * instant. If the buffer is full, the packets are lost, as in any socket. Packets may overtake each
 * other this way. A port accepts mail only from its own address and from the source port of a
 * member of the pool; no other user and no other machine can send from there.
 *
 * A count in the memory of the pool shows that there is mail, so a poll costs one load. A sleeper
 * also watches the socket. The sender increments the count (release) after it has sent; the
 * receiver loads the count (acquire), then receives. If the sender is killed in between, the mail
 * waits until the next mail or the next sleep.
 *
 * Linux does not tell a sender that the buffer was full. The sender therefore counts the
 * packets, too. When the receiver finds the socket empty, the counted packets that did not come are
 * lost, and it counts them in rx_bad.
 */
#include "port/udp.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>

#include "base/mem.h"
#include "base/sys.h"

/* The header of a packet in a mail. The packet follows, then padding. */
struct mail_head {
	struct pkt_addr src;
	uint32_t len;
	uint16_t sport, ip_id;
	uint8_t tos, flags;
	uint8_t pad[2];
};
#define MAIL_ALIGN 8

struct mail_out {
	uint8_t slot;
	uint32_t used, packets;
	uint8_t data[UDP_MAIL_BYTES] __attribute__((aligned(MAIL_ALIGN)));
};

struct udp_mail {
	struct pool_mailbox *box; /* of this port, in the memory of the pool */
	unsigned seen;		  /* mails that were counted when the socket was empty */
	/*
	 * packets that were counted then, and those that have come since; these may include some
	 * that their sender has yet to count
	 */
	unsigned counted, come;
	bool look; /* there may be mail that was not counted */
	/* the mail whose packets are being handed out */
	uint32_t len, off;
	unsigned num_out;
	struct mail_out out[UDP_MAIL_OUT];
	uint8_t in[UDP_MAIL_BYTES] __attribute__((aligned(MAIL_ALIGN)));
};

int udp_mail_open(struct udp_port *u)
{
	struct udp_mail *m = mem_alloc_pages(sizeof(*m));
	uint16_t sport;

	if (!m)
		return -ENOMEM;
	u->mail = m;
	m->box = pool_mailbox(u->pool, &u->port.addr, u->scope, u->port.slot, &sport);
	if (!m->box)
		return -ENOSPC;
	m->seen = atomic_load_explicit(&m->box->mails, memory_order_relaxed);
	m->counted = atomic_load_explicit(&m->box->packets, memory_order_relaxed);
	return 0;
}

void udp_mail_close(struct udp_port *u)
{
	mem_free_pages(u->mail, sizeof(*u->mail));
	u->mail = NULL;
}

/* ---- passing on ---- */

static void send_one(struct udp_port *u, struct mail_out *o)
{
	uint16_t sport;
	struct pool_mailbox *box = pool_mailbox(u->pool, &u->port.addr, u->scope, o->slot, &sport);
	union udp_name name;
	socklen_t len;

	if (!o->used)
		return;
	len = udp_name(&name, &u->port.addr, box ? sport : 0, u->scope);
	if (!box ||
	    sys_sendto(u->out, o->data, o->used, MSG_DONTWAIT | MSG_NOSIGNAL, &name.sa, len) < 0) {
		u->port.stats.rx_bad += o->packets;
	} else {
		atomic_fetch_add_explicit(&box->packets, o->packets, memory_order_relaxed);
		atomic_fetch_add_explicit(&box->mails, 1, memory_order_release);
	}
	o->used = o->packets = 0;
}

void udp_mail_flush(struct udp_port *u)
{
	for (unsigned i = 0; i < u->mail->num_out; i++)
		send_one(u, &u->mail->out[i]);
	u->mail->num_out = 0;
}

static struct mail_out *out_for(struct udp_port *u, unsigned slot)
{
	struct udp_mail *m = u->mail;

	for (unsigned i = 0; i < m->num_out; i++) {
		if (m->out[i].slot == slot)
			return &m->out[i];
	}
	if (m->num_out == UDP_MAIL_OUT)
		udp_mail_flush(u);
	m->out[m->num_out].slot = (uint8_t)slot;
	m->out[m->num_out].used = m->out[m->num_out].packets = 0;
	return &m->out[m->num_out++];
}

bool udp_mail_pass(struct udp_port *u, unsigned slot, const struct port_pkt *pkt)
{
	uint32_t need = ALIGN_UP((uint32_t)sizeof(struct mail_head) + pkt->len, MAIL_ALIGN);
	struct mail_head *h;
	struct mail_out *o;
	uint16_t sport;

	if (pkt->len > PKT_MAX_LEN || !pool_mailbox(u->pool, &u->port.addr, u->scope, slot, &sport))
		return false;
	o = out_for(u, slot);
	if (o->used + need > sizeof(o->data))
		send_one(u, o);
	h = (struct mail_head *)(o->data + o->used);
	*h = (struct mail_head){.src = *pkt->src,
				.len = pkt->len,
				.sport = pkt->sport,
				.ip_id = pkt->ip_id,
				.tos = pkt->tos,
				.flags = pkt->flags};
	memcpy(h + 1, pkt->bth, pkt->len);
	o->used += need;
	o->packets++;
	return true;
}

/* ---- receiving ---- */

/* Receives the next mail. Returns false if there is none. */
static bool receive(struct udp_port *u)
{
	struct udp_mail *m = u->mail;
	union udp_name name;
	socklen_t len = sizeof(name);
	struct pkt_addr src;
	uint16_t sport;
	ssize_t n = sys_recvfrom(u->out, m->in, sizeof(m->in), MSG_DONTWAIT, &name.sa, &len);

	if (n < 0 && n != -EAGAIN) { /* this is the error of an earlier send */
		udp_take_errors(u);
		return n != -EINTR;
	}
	if (n < 0)
		return false;
	udp_addr(&name, &src, &sport);
	/* An empty mail only wakes this port: see pool_addr_leftovers(). */
	if (n &&
	    (!pkt_addr_eq(&src, &u->port.addr) || !pool_sends(u->pool, &src, u->scope, sport))) {
		u->port.stats.rx_bad++;
		n = 0;
	}
	m->off = 0;
	m->len = (uint32_t)n;
	u->port.stats.rx_bursts += n > 0;
	return true;
}

bool udp_mail_waits(const struct udp_port *u)
{
	const struct udp_mail *m = u->mail;

	return m->off < m->len || m->look ||
	       atomic_load_explicit(&m->box->mails, memory_order_acquire) != m->seen;
}

void udp_mail_look(struct udp_port *u)
{
	u->mail->look = true;
}

/*
 * Counts lost packets. The socket is empty, and `counted` packets had been counted before this was
 * found.
 */
static void count_lost(struct udp_port *u, unsigned counted)
{
	struct udp_mail *m = u->mail;
	unsigned sent = counted - m->counted;

	m->counted = counted;
	if (sent > m->come)
		u->port.stats.rx_bad += sent - m->come;
	m->come -= sent < m->come ? sent : m->come;
}

int udp_mail_take(struct udp_port *u, struct port_pkt *pkts, int max)
{
	struct udp_mail *m = u->mail;
	int n = 0;

	/* All packets of a mail are handed out before the next mail overwrites them. */
	if (m->off >= m->len) {
		unsigned mails = atomic_load_explicit(&m->box->mails, memory_order_acquire);
		unsigned packets = atomic_load_explicit(&m->box->packets, memory_order_relaxed);

		m->look = false;
		if (!receive(u)) {
			m->seen = mails;
			count_lost(u, packets);
			return 0;
		}
		m->look = true; /* further looks are needed until the socket is found empty */
	}
	while (n < max && m->off < m->len && m->len - m->off >= sizeof(struct mail_head)) {
		struct mail_head *h = (struct mail_head *)(m->in + m->off);
		uint32_t space = m->len - m->off - (uint32_t)sizeof(*h);

		if (h->len > space || h->len > PKT_MAX_LEN) {
			m->off = m->len; /* the rest of the mail is invalid */
			break;
		}
		pkts[n++] = (struct port_pkt){.bth = (uint8_t *)(h + 1),
					      .src = &h->src,
					      .dst = &u->port.addr,
					      .len = h->len,
					      .sport = h->sport,
					      .ip_id = h->ip_id,
					      .tos = h->tos,
					      .flags = h->flags};
		m->come++;
		u->port.stats.rx_packets++;
		u->port.stats.rx_bytes += h->len;
		m->off += ALIGN_UP((uint32_t)sizeof(*h) + h->len, MAIL_ALIGN);
	}
	if (m->off > m->len || m->len - m->off < sizeof(struct mail_head))
		m->off = m->len;
	return n;
}
