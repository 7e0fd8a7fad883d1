/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The host port: one address, and two ways. Shared memory reaches a peer in the same pool that
 * accepts rings; udp reaches all others. Datagrams to QP 1 and to groups go by udp.
 *
 *	             +- shm --> programs of this pool (this user, this network namespace)
 *	core -- host-+
 *	             +- udp --> all others
 *
 * A path belongs to one of the two ports, and `port` in the path tells which. The choice is made
 * when the path is made, and does not change. It depends on the sender only, so the two directions
 * of a connection may differ. A shm path leads to one process: after its death all packets of the
 * path are lost, although another process may have its slot. The next path_get() makes another
 * path.
 *
 * The MTU of a connection within the pool does not depend on the way, because both ends must have
 * the same: udp_qp_mtu().
 *
 * Each look at the udp port and each flush of it cost a system call, which a program without such
 * traffic should not pay. The udp port is therefore hot while it sends or receives packets, and
 * cold otherwise. The host port looks at a cold udp port once in COLD_LOOK bursts, and after it has
 * woken a sleeper.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/sys.h"
#include "pool/pool.h"
#include "port/port_impl.h"

#define HOT_LOOKS 4096 /* looks without a packet after which the udp port is cold */
#define COLD_LOOK 128
#define COLD_BUSY 4 /* the looks for which a look with packets counts, because it takes longer */

struct host_port {
	struct port port; /* first */
	struct port *udp, *shm;
	struct port *last;	  /* the port of the last reservation */
	struct pool *pool;	  /* belongs to a reference of the udp port */
	uint64_t version;	  /* pool_version() at the last look */
	uint32_t path_generation; /* that of the udp port at the last look */
	/* looks until the udp port becomes cold, and until the next look at a cold udp port */
	uint32_t hot, cold;
	bool unsent;	    /* packets wait in the udp port */
	bool armed;	    /* the udp port is armed */
	uint64_t fallbacks; /* port_stats.tx_shm_fallbacks */
};

static struct host_port *host_port(const struct port *p)
{
	return (struct host_port *)(uintptr_t)p;
}

static void set_hot(struct host_port *h)
{
	h->hot = HOT_LOOKS;
	h->port.batch = h->udp->batch;
}

/* ---- paths ---- */

/* Returns true if a program of the pool would take rings there, but none can be made now. */
static bool lacks_ring(const struct host_port *h, const struct pkt_addr *dst, uint32_t dqpn)
{
	struct pool_socket sock;

	return pool_find(h->pool, dst, h->udp->medium, PORT_SLOT_OF_QPN(dqpn), &sock) && sock.host;
}

static struct port_path *host_path_get(struct port *p, const struct pkt_addr *dst, uint32_t dqpn)
{
	struct host_port *h = host_port(p);
	struct port_path *path = NULL;

	if (dqpn > PKT_GSI_QPN && !pkt_addr_is_group(dst)) {
		path = h->shm->ops->path_get(h->shm, dst, dqpn);
		h->fallbacks += !path && lacks_ring(h, dst, dqpn);
	}
	return path ? path : h->udp->ops->path_get(h->udp, dst, dqpn);
}

static uint32_t host_qp_mtu(struct port *p, const struct pkt_addr *dst, uint32_t dqpn, uint32_t mtu)
{
	return port_qp_mtu(host_port(p)->udp, dst, dqpn, mtu);
}

static void host_expect(struct port *p, const struct pkt_addr *dst, unsigned n)
{
	struct port *udp = host_port(p)->udp;

	udp->ops->expect(udp, dst, n);
}

static void host_path_put(struct port *p, struct port_path *path)
{
	path->port->ops->path_put(path->port, path);
}

static enum port_reader host_reader(struct port *p, const struct port_path *path)
{
	return port_reader_of(path->port, path);
}

static struct port_progress *host_progress(struct port *p, const struct port_path *path)
{
	return port_progress_of(path->port, path);
}

static int host_join(struct port *p, const struct pkt_addr *group)
{
	struct port *udp = host_port(p)->udp;

	return udp->ops->join(udp, group);
}

static void host_leave(struct port *p, const struct pkt_addr *group)
{
	struct port *udp = host_port(p)->udp;

	udp->ops->leave(udp, group);
}

/* ---- packets ---- */

static int host_reserve(struct port *p, struct port_path *path, uint32_t len, uint8_t tos,
			struct port_buf *buf)
{
	struct host_port *h = host_port(p);

	h->last = path->port;
	h->unsent |= path->port == h->udp;
	return path->port->ops->reserve(path->port, path, len, tos, buf);
}

static void host_cancel(struct port *p)
{
	struct port *last = host_port(p)->last;

	last->ops->cancel(last);
}

static bool host_flush(struct port *p)
{
	struct host_port *h = host_port(p);
	bool all = h->shm->ops->flush(h->shm);

	if (h->unsent) {
		h->unsent = !h->udp->ops->flush(h->udp);
		all &= !h->unsent;
		set_hot(h);
		port_pass_hints(p, h->udp);
	}
	port_pass_hints(p, h->shm);
	return all;
}

static int poll_udp(struct host_port *h, struct port_pkt *pkts, int max)
{
	int n = h->udp->ops->rx_burst(h->udp, pkts, max);

	port_pass_hints(&h->port, h->udp);
	if (n > 0)
		set_hot(h);
	else if (h->hot && --h->hot == 0)
		h->port.batch = 0;
	h->cold = COLD_LOOK;
	if (unlikely(h->udp->path_generation != h->path_generation)) {
		h->path_generation = h->udp->path_generation;
		h->port.path_generation++;
	}
	return n;
}

/*
 * If the udp port's turn has come, it gets a quarter of the burst: rings that are always full would
 * otherwise keep it from any look.
 */
static int host_rx_burst(struct port *p, struct port_pkt *pkts, int max)
{
	struct host_port *h = host_port(p);
	uint64_t version = pool_version(h->pool);
	bool due = h->hot || !h->cold;
	int n = h->shm->ops->rx_burst(h->shm, pkts, due ? max - max / 4 : max);

	if (due && n < max) {
		int more = poll_udp(h, pkts + n, max - n);

		n += more > 0 ? more : 0;
	} else if (h->cold) {
		uint32_t looks = n ? COLD_BUSY : 1;

		h->cold -= looks < h->cold ? looks : h->cold;
	}
	if (unlikely(version != h->version)) {
		h->version = version;
		p->path_generation++;
	}
	port_pass_hints(p, h->shm);
	return n;
}

/* ---- sleeping ---- */

static bool host_arm(struct port *p)
{
	struct host_port *h = host_port(p);

	if (!h->udp->ops->arm(h->udp))
		return false;
	h->armed = true;
	return h->shm->ops->arm(h->shm);
}

/*
 * Disarms the ports. A cold udp port stays armed: this saves system calls, and packets that would
 * wake the thread are rare. The next burst looks at the udp port after a wake-up, because a sleeper
 * that sees only changes (EPOLLET) is not woken again for a packet that already waits.
 */
static void host_disarm(struct port *p, bool woken)
{
	struct host_port *h = host_port(p);
	struct epoll_event ev[2];
	int n = woken ? sys_epoll_wait(p->fd, ev, 2, 0) : 0;
	bool by_udp = false, by_shm = false;

	for (int i = 0; i < n; i++) {
		by_udp |= ev[i].data.ptr == h->udp;
		by_shm |= ev[i].data.ptr == h->shm;
	}
	h->shm->ops->disarm(h->shm, by_shm);
	if (by_udp || (h->armed && h->hot)) {
		h->udp->ops->disarm(h->udp, by_udp);
		h->armed = false;
	}
	if (by_udp)
		set_hot(h);
	h->cold = 0;
}

static void host_control(struct port *p)
{
	struct host_port *h = host_port(p);

	h->shm->ops->control(h->shm);
	p->rests = h->shm->rests;
	port_pass_hints(p, h->shm);
}

/* ---- opening and closing ---- */

static struct port_stats host_stats(const struct port *p)
{
	const struct host_port *h = host_port(p);
	struct port_stats a = port_stats_of(h->udp), b = port_stats_of(h->shm);

	return (struct port_stats){
		.rx_packets = a.rx_packets + b.rx_packets,
		.rx_bytes = a.rx_bytes + b.rx_bytes,
		.tx_packets = a.tx_packets + b.tx_packets,
		.tx_bytes = a.tx_bytes + b.tx_bytes,
		.rx_bursts = a.rx_bursts + b.rx_bursts,
		.tx_bursts = a.tx_bursts + b.tx_bursts,
		.rx_bad = a.rx_bad + b.rx_bad,
		.tx_dropped = a.tx_dropped + b.tx_dropped,
		.tx_blocked = a.tx_blocked + b.tx_blocked,
		.rx_shm_packets = b.rx_packets,
		.tx_shm_packets = b.tx_packets,
		.tx_shm_fallbacks = h->fallbacks,
	};
}

static void close_fd(struct host_port *h)
{
	if (h->port.fd >= 0)
		sys_close(h->port.fd);
	h->port.fd = -1;
}

/* Calls the udp port last, because the pool belongs to it. */
static void host_after_fork(struct port *p)
{
	struct host_port *h = host_port(p);

	close_fd(h);
	h->shm->ops->after_fork(h->shm);
	h->udp->ops->after_fork(h->udp);
}

static void host_close(struct port *p)
{
	struct host_port *h = host_port(p);

	close_fd(h);
	h->shm->ops->close(h->shm);
	h->udp->ops->close(h->udp);
	free(h);
}

static const struct port_ops host_ops = {
	.name = "host",
	.path_get = host_path_get,
	.path_put = host_path_put,
	.qp_mtu = host_qp_mtu,
	.expect = host_expect,
	.reader = host_reader,
	.progress = host_progress,
	.join = host_join,
	.leave = host_leave,
	.reserve = host_reserve,
	.cancel = host_cancel,
	.flush = host_flush,
	.rx_burst = host_rx_burst,
	.arm = host_arm,
	.disarm = host_disarm,
	.control = host_control,
	.stats = host_stats,
	.after_fork = host_after_fork,
	.close = host_close,
};

/* Makes an epoll set of both ports. Returns its descriptor or -errno. */
static int watch_both(struct host_port *h)
{
	struct epoll_event udp = {.events = EPOLLIN, .data.ptr = h->udp},
			   shm = {.events = EPOLLIN, .data.ptr = h->shm};
	int fd = sys_epoll_create1(EPOLL_CLOEXEC), rc;

	if (fd < 0)
		return fd;
	rc = sys_epoll_ctl(fd, EPOLL_CTL_ADD, h->udp->fd, &udp);
	rc = rc ? rc : sys_epoll_ctl(fd, EPOLL_CTL_ADD, h->shm->fd, &shm);
	if (rc == 0)
		return fd;
	sys_close(fd);
	return rc;
}

/* Adds shared memory to a udp port. Returns NULL with one line in err if it does not work here. */
static struct port *add_shm(struct port *udp, const struct port_spec *spec, char *err,
			    size_t errlen)
{
	struct host_port *h = aligned_alloc(CACHE_LINE, ALIGN_UP(sizeof(*h), (size_t)CACHE_LINE));
	int fd;

	if (!h) {
		snprintf(err, errlen, "%s", strerror(ENOMEM));
		return NULL;
	}
	memset(h, 0, sizeof(*h));
	h->udp = h->last = udp;
	h->pool = pool_mine();
	h->cold = COLD_LOOK;
	h->shm = shm_open_in_pool(spec, h->pool, &udp->addr, udp->medium, udp->slot, err, errlen);
	if (!h->shm)
		goto free_port;
	fd = watch_both(h);
	if (fd < 0) {
		snprintf(err, errlen, "%s", strerror(-fd));
		port_close(h->shm);
		goto free_port;
	}
	h->port = *udp;
	h->port.ops = &host_ops;
	h->port.paths_block = true;
	h->port.fd = fd;
	h->port.ctl_fd = h->shm->ctl_fd;
	h->port.batch = 0;
	h->port.mask_fd = false;
	h->port.lag = h->shm->lag;
	return &h->port;

free_port:
	free(h);
	return NULL;
}

struct port *host_open_port(const struct port_spec *spec, unsigned lane, unsigned lanes, char *err,
			    size_t errlen)
{
	struct port *udp, *both;

	if (!shm_ring_ok(spec)) {
		snprintf(err, errlen, "host: ring= is a power of two from 64K to 64M");
		errno = EINVAL;
		return NULL;
	}
	udp = udp_open_port(spec, lane, lanes, err, errlen);
	if (!udp)
		return NULL;
	both = add_shm(udp, spec, err, errlen);
	if (both)
		return both;
	if (lane == 0)
		log_warn(
			"host: no shared memory with other programs of this machine (%s): their packets go over udp",
			err);
	err[0] = '\0';
	return udp;
}
