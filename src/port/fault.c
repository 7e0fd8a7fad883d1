/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Fault injection: a port that wraps a port. Packets are built in a pool of this port. When a
 * packet is complete, its faults are drawn, and the result is copied into a buffer of the inner
 * port.
 *
 *	built --draw--+--> lost
 *		      +--> late, until 1 to 4 others have passed it (reordered)
 *		      +--> queue, in the order of release: now, or after the delay --> inner port
 *
 * Four numbers are drawn for every packet, and more only for its own corruption and place. The n-th
 * packet therefore has the same faults whenever the seed is the same, and a change of one
 * probability hardly changes the other faults.
 *
 * The buffers of this port have identification 0. If the inner port needs another, the ICRC is
 * computed again before bits are flipped.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/timerfd.h>

#include "base/list.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/sys.h"
#include "packet/headers.h"
#include "port/port_impl.h"

#define POOL_PACKETS 2048 /* the port is full while this many packets wait */
#define SLOT_BYTES   ((PKT_MAX_LEN + 63) & ~63)
#define FORWARD_AT   32 /* packets that are due make a burst of the inner port at this number */
#define LATE_MAX     16
#define LATE_PASS    4	      /* a reordered packet lets 1 to this many others pass */
#define LATE_NS	     1000000u /* a late packet leaves after this time even if no others come */
#define FLIPS_MAX    3

struct fault_item {
	struct list_head link;
	struct port_path *path;
	/* NULL: no packet; the inner path is released when the queue reaches this item */
	uint8_t *data;
	uint64_t due; /* ns of the clock */
	uint32_t len;
	uint8_t tos;
	uint8_t pass;  /* late: packets that must still pass */
	uint8_t flips; /* bits to flip */
	uint16_t flip[FLIPS_MAX];
};

struct fault_port {
	struct port port;    /* first */
	struct port_ops ops; /* the name is that of the inner port */
	struct port *inner;
	struct port_faults f;
	struct rng rng;
	uint64_t (*clock)(void *);
	void *clock_ctx;
	/* -1: there are no delays, or `clock` is not one that a timer can follow */
	int epoll, timer;
	bool timer_set;
	bool stuck; /* the inner port had no space for a packet that was due */
	unsigned ready, num_late;
	struct fault_item *building;
	struct list_head spare, late, queue;
	struct fault_counts counts;
	/* the path for which `flow` was computed last */
	const struct port_path *flow_path;
	struct icrc_flow flow;
	uint8_t *mem;
	struct fault_item item[POOL_PACKETS];
};

static struct fault_port *fault_port(const struct port *p)
{
	return (struct fault_port *)(uintptr_t)p;
}

static struct fault_item *take_spare(struct fault_port *f)
{
	struct fault_item *it;

	if (list_empty(&f->spare))
		return NULL;
	it = list_first_entry(&f->spare, struct fault_item, link);
	list_del(&it->link);
	return it;
}

/* Puts the memory at the front, so that the next packet finds it in the cache. */
static void give_back(struct fault_port *f, struct fault_item *it)
{
	list_add(&it->link, &f->spare);
}

/* Copies the counters of the inner port and adds the losses of this port. */
static void sync_stats(struct fault_port *f)
{
	uint64_t blocked = f->port.stats.tx_blocked;

	f->port.stats = port_stats_of(f->inner);
	f->port.stats.tx_dropped += f->counts.lost;
	f->port.stats.tx_blocked = blocked;
}

static bool needs_time(const struct fault_port *f)
{
	return f->f.delay_ns || f->f.reorder > 0;
}

static uint64_t now(const struct fault_port *f)
{
	return needs_time(f) ? f->clock(f->clock_ctx) : 0;
}

/* ---- from the queue to the inner port ---- */

static void fix_icrc(struct fault_port *f, const struct fault_item *it, uint8_t *bth,
		     uint16_t ip_id)
{
	if (it->len < sizeof(struct pkt_bth) + PKT_ICRC_LEN || it->len > ICRC_MAX_LEN ||
	    it->len % 4)
		return;
	if (f->flow_path != it->path) {
		icrc_flow_init(&f->flow, &f->port.addr, &it->path->dst, it->path->sport,
			       PKT_UDP_PORT);
		f->flow_path = it->path;
	}
	icrc_store(bth + it->len - PKT_ICRC_LEN, icrc_compute(&f->flow, ip_id, bth, it->len));
}

static bool forward(struct fault_port *f, struct fault_item *it)
{
	struct port *in = f->inner;
	struct port_buf buf;

	if (!it->data) {
		in->ops->path_put(in, it->path);
		if (f->flow_path == it->path)
			f->flow_path = NULL;
		list_del(&it->link);
		free(it);
		return true;
	}
	if (in->ops->reserve(in, it->path, it->len, it->tos, &buf)) {
		in->ops->flush(in);
		if (in->ops->reserve(in, it->path, it->len, it->tos, &buf))
			return false;
	}
	memcpy(buf.bth, it->data, it->len);
	if (buf.ip_id)
		fix_icrc(f, it, buf.bth, buf.ip_id);
	for (unsigned i = 0; i < it->flips; i++)
		buf.bth[it->flip[i] / 8] ^= (uint8_t)(1u << it->flip[i] % 8);
	list_del(&it->link);
	give_back(f, it);
	return true;
}

static void enqueue(struct fault_port *f, struct fault_item *it, uint64_t due)
{
	/* The order of releases stays the same, even if a reordered packet is late. */
	if (!list_empty(&f->queue) &&
	    list_last_entry(&f->queue, struct fault_item, link)->due > due)
		due = list_last_entry(&f->queue, struct fault_item, link)->due;
	it->due = due;
	list_add_tail(&it->link, &f->queue);
	f->ready++;
}

static void release_late(struct fault_port *f, struct fault_item *it, uint64_t due)
{
	list_del(&it->link);
	f->num_late--;
	enqueue(f, it, due);
}

/*
 * Moves all packets that are due at t. Returns true if the inner port got packets and needs a
 * flush.
 */
static bool forward_due(struct fault_port *f, uint64_t t)
{
	struct fault_item *it, *tmp;
	bool any = false;

	list_for_each_entry_safe (it, tmp, &f->late, link) {
		if (it->due <= t)
			release_late(f, it, t);
	}
	f->stuck = false;
	while (!list_empty(&f->queue)) {
		it = list_first_entry(&f->queue, struct fault_item, link);
		if (it->due > t)
			break;
		if (!forward(f, it)) {
			f->stuck = true;
			break;
		}
		any = true;
	}
	f->ready = 0;
	return any;
}

/* ---- faults of a packet ---- */

static void duplicate(struct fault_port *f, const struct fault_item *it, uint64_t due)
{
	struct fault_item *copy = take_spare(f);

	if (!copy)
		return;
	copy->path = it->path;
	copy->len = it->len;
	copy->tos = it->tos;
	copy->flips = 0;
	memcpy(copy->data, it->data, it->len);
	enqueue(f, copy, due);
	f->counts.duplicated++;
}

static void pass_late(struct fault_port *f, uint64_t due)
{
	struct fault_item *it, *tmp;

	list_for_each_entry_safe (it, tmp, &f->late, link) {
		if (--it->pass == 0)
			release_late(f, it, due);
	}
}

static bool draw(struct fault_port *f, double p)
{
	return rng_double(&f->rng) < p;
}

/* Draws the faults of the packet under construction, which is complete. */
static void complete(struct fault_port *f)
{
	struct fault_item *it = f->building;
	bool lose, dup, late, spoil;
	uint64_t due;

	if (!it)
		return;
	f->building = NULL;
	f->counts.seen++;
	lose = draw(f, f->f.loss);
	dup = draw(f, f->f.dup);
	late = draw(f, f->f.reorder);
	spoil = draw(f, f->f.corrupt);
	it->flips = 0;
	if (spoil) {
		it->flips = (uint8_t)(1 + rng_below(&f->rng, FLIPS_MAX));
		for (unsigned i = 0; i < it->flips; i++)
			it->flip[i] = (uint16_t)rng_below(&f->rng, it->len * 8u);
	}
	it->pass = (uint8_t)(late ? 1 + rng_below(&f->rng, LATE_PASS) : 0);
	if (lose) {
		f->counts.lost++;
		give_back(f, it);
		return;
	}
	f->counts.corrupted += spoil;
	f->counts.delayed += f->f.delay_ns != 0;
	due = now(f) + f->f.delay_ns;
	if (late && f->num_late < LATE_MAX) {
		if (dup)
			duplicate(f, it, due);
		it->due = due + LATE_NS;
		list_add_tail(&it->link, &f->late);
		f->num_late++;
		f->counts.reordered++;
		return;
	}
	enqueue(f, it, due);
	if (dup)
		duplicate(f, it, due);
	pass_late(f, due);
}

/* ---- port_ops ---- */

static struct port_path *fault_path_get(struct port *p, const struct pkt_addr *dst, uint32_t dqpn)
{
	struct port *in = fault_port(p)->inner;

	return in->ops->path_get(in, dst, dqpn);
}

static uint32_t fault_qp_mtu(struct port *p, const struct pkt_addr *dst, uint32_t dqpn,
			     uint32_t mtu)
{
	return port_qp_mtu(fault_port(p)->inner, dst, dqpn, mtu);
}

/* Releases the path after the waiting packets, which still need it. */
static void fault_path_put(struct port *p, struct port_path *path)
{
	struct fault_port *f = fault_port(p);
	struct fault_item *it, *tmp;

	complete(f);
	list_for_each_entry_safe (it, tmp, &f->late, link)
		release_late(f, it, now(f));
	it = list_empty(&f->queue) ? NULL : calloc(1, sizeof(*it));
	if (it) {
		it->path = path;
		enqueue(f, it, 0);
		return;
	}
	/* No packet waits, or there is no memory for an item: waiting packets leave now. */
	forward_due(f, UINT64_MAX);
	list_for_each_entry_safe (it, tmp, &f->queue, link) {
		if (it->path == path && it->data) {
			f->counts.lost++;
			list_del(&it->link);
			give_back(f, it);
		}
	}
	if (f->flow_path == path)
		f->flow_path = NULL;
	f->inner->ops->path_put(f->inner, path);
}

static enum port_reader fault_reader(struct port *p, const struct port_path *path)
{
	return port_reader_of(fault_port(p)->inner, path);
}

static int fault_join(struct port *p, const struct pkt_addr *group)
{
	struct port *in = fault_port(p)->inner;

	return in->ops->join(in, group);
}

static void fault_leave(struct port *p, const struct pkt_addr *group)
{
	struct port *in = fault_port(p)->inner;

	in->ops->leave(in, group);
}

static int fault_reserve(struct port *p, struct port_path *path, uint32_t len, uint8_t tos,
			 struct port_buf *buf)
{
	struct fault_port *f = fault_port(p);
	struct fault_item *it;

	complete(f);
	if (f->ready >= FORWARD_AT)
		forward_due(f, now(f));
	it = len <= SLOT_BYTES ? take_spare(f) : NULL;
	if (!it) {
		p->stats.tx_blocked++;
		return -EAGAIN;
	}
	it->path = path;
	it->len = len;
	it->tos = tos;
	f->building = it;
	buf->bth = it->data;
	buf->ip_id = 0;
	return 0;
}

static void fault_cancel(struct port *p)
{
	struct fault_port *f = fault_port(p);

	if (f->building)
		give_back(f, f->building);
	f->building = NULL;
}

static bool fault_flush(struct port *p)
{
	struct fault_port *f = fault_port(p);
	bool sent;

	complete(f);
	if (!list_empty(&f->queue) || f->num_late)
		forward_due(f, now(f));
	sent = f->inner->ops->flush(f->inner);
	sync_stats(f);
	/* The core counts packets that wait for their time as sent. */
	return sent && !f->stuck;
}

static int fault_rx_burst(struct port *p, struct port_pkt *pkts, int max)
{
	struct fault_port *f = fault_port(p);
	int n;

	if ((!list_empty(&f->queue) || f->num_late) && forward_due(f, now(f)))
		f->inner->ops->flush(f->inner);
	n = f->inner->ops->rx_burst(f->inner, pkts, max);
	port_pass_state(p, f->inner);
	sync_stats(f);
	return n;
}

/* Returns the time at which the next packet is due, or UINT64_MAX if none waits. */
static uint64_t next_due(const struct fault_port *f)
{
	const struct fault_item *it;
	uint64_t due = UINT64_MAX;

	if (!list_empty(&f->queue))
		due = list_first_entry(&f->queue, struct fault_item, link)->due;
	list_for_each_entry (it, &f->late, link) {
		if (it->due < due)
			due = it->due;
	}
	return due;
}

static void set_timer(struct fault_port *f, uint64_t at)
{
	struct itimerspec ts = {.it_value = {.tv_sec = (time_t)(at / 1000000000),
					     .tv_nsec = (long)(at % 1000000000)}};

	timerfd_settime(f->timer, TFD_TIMER_ABSTIME, &ts, NULL);
	f->timer_set = at != 0;
}

static bool fault_arm(struct port *p)
{
	struct fault_port *f = fault_port(p);
	uint64_t due = f->stuck ? UINT64_MAX
				: next_due(f); /* stuck: the inner port tells when there is space */

	if (due != UINT64_MAX) {
		if (due <= now(f))
			return false;
		if (f->timer >= 0)
			set_timer(f, due);
	}
	return f->inner->ops->arm(f->inner);
}

static void fault_disarm(struct port *p, bool woken)
{
	struct fault_port *f = fault_port(p);

	f->inner->ops->disarm(f->inner, woken);
	if (f->timer_set)
		set_timer(f, 0);
}

static void fault_control(struct port *p)
{
	struct port *in = fault_port(p)->inner;

	if (in->ops->control)
		in->ops->control(in);
	port_pass_state(p, in);
}

static void close_fds(struct fault_port *f)
{
	if (f->timer >= 0)
		sys_close(f->timer);
	if (f->epoll >= 0)
		sys_close(f->epoll);
	f->timer = f->epoll = -1;
	f->timer_set = false;
}

static void fault_after_fork(struct port *p)
{
	struct fault_port *f = fault_port(p);

	close_fds(f); /* the timer itself belongs to the parent */
	f->inner->ops->after_fork(f->inner);
}

static void fault_free(struct fault_port *f)
{
	struct fault_item *it, *tmp;

	list_for_each_entry_safe (it, tmp, &f->queue, link) {
		if (!it->data)
			free(it);
	}
	close_fds(f);
	mem_free_pages(f->mem, (size_t)POOL_PACKETS * SLOT_BYTES);
	free(f);
}

static void fault_close(struct port *p)
{
	struct fault_port *f = fault_port(p);
	struct port *in = f->inner;

	log_info(
		"fault: %llu packets sent: %llu lost, %llu duplicated, %llu reordered, %llu corrupted, %llu delayed",
		(unsigned long long)f->counts.seen, (unsigned long long)f->counts.lost,
		(unsigned long long)f->counts.duplicated, (unsigned long long)f->counts.reordered,
		(unsigned long long)f->counts.corrupted, (unsigned long long)f->counts.delayed);
	fault_free(f);
	in->ops->close(in);
}

static const struct port_ops fault_ops = {
	.path_get = fault_path_get,
	.path_put = fault_path_put,
	.qp_mtu = fault_qp_mtu,
	.reader = fault_reader,
	.join = fault_join,
	.leave = fault_leave,
	.reserve = fault_reserve,
	.cancel = fault_cancel,
	.flush = fault_flush,
	.rx_burst = fault_rx_burst,
	.arm = fault_arm,
	.disarm = fault_disarm,
	.control = fault_control,
	.after_fork = fault_after_fork,
	.close = fault_close,
};

/* Opens an epoll set with the inner port's descriptor and a timer. Returns 0 or -errno. */
static int open_fds(struct fault_port *f)
{
	struct epoll_event ev = {.events = EPOLLIN};
	int rc;

	f->timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
	if (f->timer < 0)
		return -errno;
	f->epoll = sys_epoll_create1(EPOLL_CLOEXEC);
	if (f->epoll < 0)
		return f->epoll;
	rc = sys_epoll_ctl(f->epoll, EPOLL_CTL_ADD, f->timer, &ev);
	return rc ? rc : sys_epoll_ctl(f->epoll, EPOLL_CTL_ADD, f->inner->fd, &ev);
}

struct port *fault_wrap(struct port *inner, const struct port_faults *faults,
			uint64_t (*clock)(void *), void *ctx)
{
	struct fault_port *f = calloc(1, sizeof(*f));
	int rc = 0;

	if (!f)
		return NULL;
	f->port = *inner;
	f->ops = fault_ops;
	f->ops.name = inner->ops->name;
	f->port.ops = &f->ops;
	/* a packet is read when the next one is reserved, to draw its faults */
	f->port.lag = 0;
	f->inner = inner;
	f->f = *faults;
	f->clock = clock ? clock : port_clock;
	f->clock_ctx = ctx;
	f->epoll = f->timer = -1;
	rng_seed(&f->rng, faults->seed);
	list_init(&f->spare);
	list_init(&f->late);
	list_init(&f->queue);
	f->mem = mem_alloc_pages((size_t)POOL_PACKETS * SLOT_BYTES);
	if (!f->mem)
		rc = -ENOMEM;
	else if (needs_time(f) && !clock && inner->fd >= 0)
		rc = open_fds(f);
	if (rc) {
		fault_free(f);
		errno = -rc;
		return NULL;
	}
	if (f->epoll >= 0)
		f->port.fd = f->epoll;
	for (unsigned i = 0; i < POOL_PACKETS; i++) {
		f->item[i].data = f->mem + (size_t)i * SLOT_BYTES;
		list_add_tail(&f->item[i].link, &f->spare);
	}
	return &f->port;
}

struct fault_counts fault_counts(const struct port *p)
{
	return fault_port(p)->counts;
}
