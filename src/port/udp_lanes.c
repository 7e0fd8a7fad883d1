/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Several sockets of one address (SO_REUSEPORT), one for each lane, and a filter that steers
 * packets by the destination QP number.
 *
 * The kernel runs the filter once for a whole group of packets, with the QP number of the first
 * one. A sender with as many lanes keeps them apart (udp_path_get). A sender with fewer lanes mixes
 * them, so a lane gets packets for QPs of another. It copies them into the inbox of that lane, a
 * ring under a lock. The lane looks there before its socket; an eventfd wakes it when it sleeps.
 * Packets may overtake each other this way. It serves senders that do not know the lanes, and is
 * not fast.
 *
 *	socket of lane 0 --> lane 0's thread --copy--> inbox of lane 1 --> lane 1's thread
 *
 * Memory order of an inbox: The passing thread writes the slot, then `tail`. The lane loads `tail`
 * (acquire), then reads the slot, and gives it back by `head` (release). The passing thread loads
 * `head` (acquire) before it overwrites the slot. Sleeping: the passing thread stores `tail` or
 * `num_hints`, then loads `asleep`. The lane stores `asleep`, then loads those (udp_lanes_arm). All
 * of these accesses are sequentially consistent, so one of the two sees the other.
 *
 * Errors for packets of a lane may come to any of the sockets, so hints are for all lanes.
 *
 * The filter returns the index of a socket in the order of joining, so lanes are opened in order.
 */
#include "port/udp.h"

#include <errno.h>
#include <linux/filter.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/spin.h"
#include "base/sys.h"

#ifndef SO_ATTACH_REUSEPORT_CBPF
#define SO_ATTACH_REUSEPORT_CBPF 51
#endif

#define INBOX_SLOTS 256

struct inbox_slot {
	struct pkt_addr src;
	uint32_t len;
	uint16_t sport, ip_id;
	uint8_t tos, flags;
	uint8_t data[PKT_MAX_LEN] __attribute__((aligned(64)));
};

struct inbox {
	struct spin lock CACHE_ALIGNED; /* producers */
	atomic_uint tail;
	atomic_uint head CACHE_ALIGNED; /* consumer's; slots before it are free */
	atomic_bool asleep;
	unsigned taken; /* consumer: handed out beyond head */
	int event;	/* eventfd; -1: no lane */
	struct inbox_slot *slot;
	/* under the lock */
	struct port_hint hint[PORT_HINTS];
	atomic_uint num_hints;
};

/*
 * One per address. `groups_lock` protects the list and the counts. The lanes of a group begin and
 * end together.
 */
struct udp_lanes {
	struct list_head link;
	struct pkt_addr addr;
	pid_t pid; /* a forked child does not join its parent's */
	unsigned refs;
	uint32_t mtu; /* of all lanes: the first one may have had reasons of its own (udp_open.c) */
	struct inbox inbox[PORT_MAX_LANES];
};

static struct list_head groups = LIST_HEAD_INIT(groups);
static pthread_mutex_t groups_lock = PTHREAD_MUTEX_INITIALIZER;

/*
 * lane = (QP number >> 4) % lanes: PORT_LANE_OF_QPN. The filter sees the UDP payload. Bytes 4 to 7
 * of the BTH are its reserved byte and the QP number. If the index is of a lane that is not open
 * yet, the kernel chooses by hash.
 */
static int attach_filter(int sock, unsigned lanes)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 4),
		BPF_STMT(BPF_ALU | BPF_AND | BPF_K, PKT_QPN_MASK),
		BPF_STMT(BPF_ALU | BPF_RSH | BPF_K, 4),
		BPF_STMT(BPF_ALU | BPF_MOD | BPF_K, lanes),
		BPF_STMT(BPF_RET | BPF_A, 0),
	};
	struct sock_fprog prog = {ARRAY_SIZE(code), code};

	return sys_setsockopt(sock, SOL_SOCKET, SO_ATTACH_REUSEPORT_CBPF, &prog, sizeof(prog));
}

static struct udp_lanes *find_group(const struct pkt_addr *addr)
{
	struct udp_lanes *g;
	struct list_head *l;

	/*
	 * Not list_for_each_entry: the end of the list, cast to an entry, would not have the
	 * alignment of an entry.
	 */
	list_for_each (l, &groups) {
		g = list_entry(l, struct udp_lanes, link);
		if (g->pid == getpid() && pkt_addr_eq(&g->addr, addr))
			return g;
	}
	g = aligned_alloc(CACHE_LINE, sizeof(*g));
	if (!g)
		return NULL;
	memset(g, 0, sizeof(*g));
	g->addr = *addr;
	g->pid = getpid();
	for (unsigned i = 0; i < PORT_MAX_LANES; i++)
		g->inbox[i].event = -1;
	list_add(&g->link, &groups);
	return g;
}

/* The last one out frees. */
static void drop_group(struct udp_lanes *g)
{
	if (g->refs)
		return;
	list_del(&g->link);
	for (unsigned i = 0; i < PORT_MAX_LANES; i++) {
		if (g->inbox[i].event >= 0)
			sys_close(g->inbox[i].event);
		mem_free_pages(g->inbox[i].slot, INBOX_SLOTS * sizeof(struct inbox_slot));
	}
	free(g);
}

static int open_inbox(struct udp_port *u, struct inbox *b)
{
	struct epoll_event ev = {.events = EPOLLIN};

	if (b->event >= 0)
		return -EEXIST;
	b->slot = mem_alloc_pages(INBOX_SLOTS * sizeof(struct inbox_slot));
	if (!b->slot)
		return -ENOMEM;
	b->event = sys_eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (b->event < 0)
		return b->event;
	return sys_epoll_ctl(u->epoll, EPOLL_CTL_ADD, b->event, &ev);
}

int udp_lanes_join(struct udp_port *u)
{
	struct udp_lanes *g;
	int rc = 0;

	pthread_mutex_lock(&groups_lock);
	g = find_group(&u->port.addr);
	if (!g) {
		rc = -ENOMEM;
		goto out;
	}
	/*
	 * The first socket was bound before it allowed sharing. The filter is attached once there
	 * is a group.
	 */
	if (u->port.lane > 0)
		rc = attach_filter(u->sock, u->port.lanes);
	if (!rc)
		rc = open_inbox(u, &g->inbox[u->port.lane]);
	if (rc) {
		drop_group(g);
		goto out;
	}
	if (!g->refs++)
		g->mtu = u->port.mtu;
	u->port.mtu = g->mtu;
	u->lanes = g;
out:
	pthread_mutex_unlock(&groups_lock);
	return rc;
}

void udp_lanes_leave(struct udp_port *u)
{
	if (!u->lanes)
		return;
	pthread_mutex_lock(&groups_lock);
	u->lanes->refs--;
	drop_group(u->lanes);
	u->lanes = NULL;
	pthread_mutex_unlock(&groups_lock);
}

void udp_lanes_hint(struct udp_port *u, const struct port_hint *hint)
{
	uint64_t one = 1;

	for (unsigned i = 0; i < u->port.lanes; i++) {
		struct inbox *b = &u->lanes->inbox[i];
		unsigned n;

		if (i == u->port.lane || !b->slot)
			continue;
		spin_lock(&b->lock);
		n = atomic_load_explicit(&b->num_hints, memory_order_relaxed);
		if (n < PORT_HINTS) {
			b->hint[n] = *hint;
			atomic_store_explicit(&b->num_hints, n + 1, memory_order_seq_cst);
		}
		spin_unlock(&b->lock);
		if (atomic_load_explicit(&b->asleep, memory_order_seq_cst))
			sys_write(b->event, &one, sizeof(one));
	}
}

static void take_hints(struct udp_port *u, struct inbox *b)
{
	spin_lock(&b->lock);
	for (unsigned i = 0; i < atomic_load_explicit(&b->num_hints, memory_order_relaxed); i++)
		port_add_hint(&u->port, &b->hint[i]);
	atomic_store_explicit(&b->num_hints, 0, memory_order_relaxed);
	spin_unlock(&b->lock);
}

bool udp_lanes_pass(struct udp_port *u, unsigned lane, const struct port_pkt *pkt)
{
	struct inbox *b = &u->lanes->inbox[lane];
	struct inbox_slot *s;
	unsigned tail;
	uint64_t one = 1;

	if (pkt->len > PKT_MAX_LEN || !b->slot)
		return false;
	spin_lock(&b->lock);
	tail = atomic_load_explicit(&b->tail, memory_order_relaxed);
	if (tail - atomic_load_explicit(&b->head, memory_order_acquire) == INBOX_SLOTS) {
		spin_unlock(&b->lock);
		return false;
	}
	s = &b->slot[tail % INBOX_SLOTS];
	s->src = *pkt->src;
	s->len = pkt->len;
	s->sport = pkt->sport;
	s->ip_id = pkt->ip_id;
	s->tos = pkt->tos;
	s->flags = pkt->flags;
	memcpy(s->data, pkt->bth, pkt->len);
	/*
	 * Either this thread sees that the lane sleeps, or the last look of the lane before its
	 * sleep sees the packet.
	 */
	atomic_store_explicit(&b->tail, tail + 1, memory_order_seq_cst);
	spin_unlock(&b->lock);
	if (atomic_load_explicit(&b->asleep, memory_order_seq_cst))
		sys_write(b->event, &one, sizeof(one));
	return true;
}

int udp_lanes_take(struct udp_port *u, struct port_pkt *pkts, int max)
{
	struct inbox *b = &u->lanes->inbox[u->port.lane];
	unsigned head = atomic_load_explicit(&b->head, memory_order_relaxed);
	unsigned tail = atomic_load_explicit(&b->tail, memory_order_acquire);
	int n = 0;

	if (unlikely(atomic_load_explicit(&b->num_hints, memory_order_relaxed)))
		take_hints(u, b);

	for (; n < max && head + b->taken != tail; n++, b->taken++) {
		struct inbox_slot *s = &b->slot[(head + b->taken) % INBOX_SLOTS];

		pkts[n] = (struct port_pkt){
			.bth = s->data,
			.src = &s->src,
			.dst = &u->port.addr,
			.len = s->len,
			.sport = s->sport,
			.ip_id = s->ip_id,
			.tos = s->tos,
			.flags = s->flags,
		};
		u->port.stats.rx_packets++;
		u->port.stats.rx_bytes += s->len;
	}
	return n;
}

void udp_lanes_free(struct udp_port *u)
{
	struct inbox *b = &u->lanes->inbox[u->port.lane];

	if (!b->taken)
		return;
	atomic_fetch_add_explicit(&b->head, b->taken, memory_order_release);
	b->taken = 0;
}

bool udp_lanes_arm(struct udp_port *u)
{
	struct inbox *b = &u->lanes->inbox[u->port.lane];

	atomic_store_explicit(&b->asleep, true, memory_order_seq_cst);
	return atomic_load_explicit(&b->tail, memory_order_seq_cst) ==
		       atomic_load_explicit(&b->head, memory_order_relaxed) + b->taken &&
	       !atomic_load_explicit(&b->num_hints, memory_order_seq_cst);
}

void udp_lanes_disarm(struct udp_port *u)
{
	struct inbox *b = &u->lanes->inbox[u->port.lane];
	uint64_t count;

	if (!atomic_load_explicit(&b->asleep, memory_order_relaxed))
		return;
	atomic_store_explicit(&b->asleep, false, memory_order_relaxed);
	sys_read(b->event, &count, sizeof(count));
}
