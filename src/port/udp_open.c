/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Opens the udp port: its memory, and the values that follow from its address (udp_claim.c).
 *
 * Windows. Linux charges the receive buffer of a socket for the memory of a packet, not for
 * its length: 8,448 bytes for a single packet of 4,148, and 63,052 for fifteen that came as one
 * group (Linux 6.18, x86). It releases memory in portions of a quarter of the buffer
 * (net/ipv4/udp.c, udp_rmem_release), so a quarter of the buffer may be charged without a packet in
 * it. Hence:
 *
 *	window = (3/4 buffer / memory of a single packet) packets, at most WINDOW_PACKETS
 *
 * This many bytes of WRITEs and SENDs always fit if every packet comes alone. Packets that come in
 * groups need half of that, and leave the other half to the READ responses that the receiver
 * requested. The READ window is the same for the buffer of this port. A sender does not know the
 * buffer of the receiver, and assumes the buffer that an ordinary process gets on this machine.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/sys.h"
#include "port/udp_claim.h"

/* bytes to request; Linux doubles them, and limits them to rmem_max */
#define BUFFER_BYTES (4 << 20)
/*
 * The largest windows, in full packets of MTU 4096: three and four groups (UDP_SEGMENT) of 15
 * packets. Larger windows reduce the goodput over loopback (figures: docs/decisions/ports.md).
 * Networks with long delays need more: window=.
 */
#define WINDOW_PACKETS	    45
#define READ_WINDOW_PACKETS 60

static int set_int(int fd, int level, int name, int value)
{
	return sys_setsockopt(fd, level, name, &value, sizeof(value));
}

static uint32_t get_u32(int fd, int level, int name)
{
	uint32_t value = 0;
	socklen_t n = sizeof(value);

	return sys_getsockopt(fd, level, name, &value, &n) ? 0 : value;
}

/*
 * Sets the options of a socket. With IP_PMTUDISC_PROBE, DF is set, and the MTU of the device limits
 * the packets. ICMP errors about the MTU of the path have no effect, unlike with IP_PMTUDISC_DO.
 * Linux believes any error that names the addresses and ports, so a forged one could block
 * packets for ten minutes (net.ipv4.route.mtu_expires).
 */
int udp_configure(const struct udp_port *u, int fd)
{
	int rc;

	if (u->v6) {
		rc = set_int(fd, SOL_IPV6, IPV6_MTU_DISCOVER, IPV6_PMTUDISC_PROBE);
		rc = rc ? rc : set_int(fd, SOL_IPV6, IPV6_RECVTCLASS, 1);
		/*
		 * rxe sends without a checksum. If the option is refused, only packets of rxe are
		 * lost.
		 */
		if (!rc && set_int(fd, SOL_UDP, UDP_NO_CHECK6_RX, 1))
			log_info("udp: this kernel drops IPv6 packets without UDP checksum");
	} else {
		rc = set_int(fd, SOL_IP, IP_MTU_DISCOVER, IP_PMTUDISC_PROBE);
		rc = rc ? rc : set_int(fd, SOL_IP, IP_RECVTOS, 1);
	}
	set_int(fd, SOL_UDP, UDP_GRO, u->merge); /* without UDP_GRO packets come one by one */
	set_int(fd, SOL_SOCKET, SO_SNDBUF, (int)u->buffer);
	set_int(fd, SOL_SOCKET, SO_RCVBUF, (int)u->buffer);
	return rc;
}

/*
 * Ports that choose their own address have one MTU, with the primary address or a loopback address.
 * rxe does the same: one device serves the addresses of the interface and other addresses of the
 * machine, with one active_mtu that follows from the interface (rxe.c, rxe_set_mtu). A program
 * chooses the size of its datagrams by the MTU of its own port, and the peer the size of its
 * receives by the MTU of its port. If the two differ, datagrams are lost.
 */
static uint32_t same_as_primary(const struct udp_opening *o, uint32_t mtu)
{
	uint32_t index, primary;

	if (!o->second)
		return mtu;
	udp_find_interface(&o->primary, o->u->sock, &index, &primary);
	return primary && primary < mtu ? primary : mtu;
}

/*
 * Returns the MTU for packets to host ports of the pool, or 0 if it is that of the interface. Those
 * that take no ring go over loopback.
 */
static uint32_t find_local_mtu(const struct udp_opening *o, uint32_t overhead)
{
	static const struct pkt_addr loopback = {
		{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127, 0, 0, 1}};
	uint32_t index, mtu;

	if (strcmp(o->spec->kind, "host") != 0)
		return 0;
	udp_find_interface(&loopback, o->u->sock, &index, &mtu);
	return mtu > overhead ? port_mtu_fit(mtu - overhead, o->spec->mtu) : 0;
}

static int set_mtu(struct udp_opening *o)
{
	struct udp_port *u = o->u;
	uint32_t overhead = (u->v6 ? 40 : 20) + 8, index, mtu;
	struct pool_socket first;
	char text[64];

	udp_find_interface(&u->port.addr, u->sock, &index, &mtu);
	/* The interface of the socket counts: another one may have got the address meanwhile. */
	if (pkt_addr_is_link_local(&u->port.addr))
		index = u->scope;
	u->scope = u->port.medium = index;
	if (!mtu)
		/*
		 * the address is of a tunnel, or was bound with ip_nonlocal_bind: take the usual
		 * MTU
		 */
		mtu = 1500;
	mtu = same_as_primary(o, mtu);
	u->port.mtu = mtu > overhead ? port_mtu_fit(mtu - overhead, o->spec->mtu) : 0;
	u->local_mtu = find_local_mtu(o, overhead);
	/* All lanes have the MTU of the first lane, which may have another reason to limit it. */
	if (o->lane > 0 &&
	    pool_find(u->pool, &u->port.addr, u->scope, (unsigned)pool_slot(u->pool, 0), &first)) {
		u->port.mtu = first.mtu;
		u->local_mtu = first.local_mtu;
	}
	if (u->port.mtu)
		return 0;
	udp_fail(
		o,
		"udp: packets of MTU 256 do not fit into the %u bytes of the interface of %s: choose another address",
		mtu, pkt_addr_print(&u->port.addr, text, sizeof(text)));
	return -EMSGSIZE;
}

/* `packet`: bytes of the longest packet. `most`: the largest window, in packets of MTU 4096. */
static uint32_t window_of(uint32_t buffer, const struct udp_abilities *can, uint32_t packet,
			  uint32_t most)
{
	uint64_t packets = (uint64_t)buffer * 3 / 4 / can->cost;
	uint64_t window = (packets ? packets : 1) * packet;
	uint32_t limit = most * (4096 + PKT_MAX_HEADERS);

	return window < limit ? (uint32_t)window : limit;
}

static void set_windows(struct udp_opening *o)
{
	struct udp_port *u = o->u;
	uint32_t bytes = u->port.mtu + PKT_MAX_HEADERS + PKT_ICRC_LEN;
	uint32_t ordinary = get_u32(u->sock, SOL_SOCKET, SO_RCVBUF);
	struct udp_abilities can;
	char text[64];

	/* A privileged process may exceed rmem_max. */
	set_int(u->sock, SOL_SOCKET, SO_RCVBUFFORCE, (int)u->buffer);
	u->rcvbuf = get_u32(u->sock, SOL_SOCKET, SO_RCVBUF);
	udp_probe(&u->port.addr, u->scope, bytes, &can);
	u->tx.max_segs = o->spec->no_offload ? 1 : can.max_segs;
	u->port.window = o->spec->window ? o->spec->window
					 : window_of(ordinary, &can, bytes, WINDOW_PACKETS);
	u->port.batch = UDP_BATCH;
	u->port.mask_fd = true;
	u->port.read_window = o->spec->window
				      ? o->spec->window
				      : window_of(u->rcvbuf, &can, bytes, READ_WINDOW_PACKETS);
	log_info(
		"udp: %s lane %u: MTU %u, receive buffer %u, a packet takes %u of it, window %u, READ window %u, %u packets "
		"a call",
		pkt_addr_print(&u->port.addr, text, sizeof(text)), o->lane, u->port.mtu, u->rcvbuf,
		can.cost, u->port.window, u->port.read_window, u->tx.max_segs);
}

/*
 * The descriptor to sleep on is an epoll set, because a sleeper also waits for space, errors and
 * mail. It is the same descriptor for the life of the port, so a sleeper may use it without
 * the owner. The socket is in the set only while a thread may sleep. Otherwise each packet that
 * arrives or leaves would wake the epoll set in vain (8% of the time of a sender).
 */
static int watch_one(struct udp_port *u, int sock, uint32_t *watched, uint32_t events)
{
	struct epoll_event ev = {.events = events};
	int rc;

	if (events == *watched)
		return 0;
	rc = sys_epoll_ctl(u->epoll,
			   !events    ? EPOLL_CTL_DEL
			   : *watched ? EPOLL_CTL_MOD
				      : EPOLL_CTL_ADD,
			   sock, &ev);
	if (!rc)
		*watched = events;
	return rc;
}

/* Watches the sockets, or ends this. The sending socket is watched for errors and mail. */
static int watch(struct udp_port *u, bool on)
{
	uint32_t out = !on ? 0 : EPOLLIN | (u->tx.blocked ? EPOLLOUT : 0);
	int rc = watch_one(u, u->sock, &u->watched, on ? EPOLLIN : 0);

	return rc ? rc : watch_one(u, u->out, &u->watched_out, out);
}

static bool udp_arm(struct port *p)
{
	struct udp_port *u = udp_port(p);

	if (udp_rx_waiting(u) || udp_mail_waits(u) || udp_leftovers_wait(u))
		return false;
	exchange_sleeps(&u->exchange.history);
	/* If this fails for lack of memory, the thread does not sleep but looks again. */
	return !watch(u, true);
}

static void udp_disarm(struct port *p, bool woken)
{
	struct udp_port *u = udp_port(p);

	watch(u, false);
	u->woken |= woken;
}

static void close_descriptors(struct udp_port *u)
{
	if (u->epoll >= 0)
		sys_close(u->epoll);
	u->epoll = -1;
	uring_close(&u->exchange.ring);
	udp_mail_close(u);
	udp_mcast_close(u);
	udp_diag_close(u);
	udp_unclaim(u);
	if (u->pool)
		pool_put(u->pool);
	u->pool = NULL;
}

static void udp_after_fork(struct port *p)
{
	/*
	 * The epoll set is shared with the parent and must not be changed; closing the child's
	 * descriptors does not affect it. The child does not leave the pool either, because the
	 * membership is the parent's.
	 */
	udp_port(p)->watched = udp_port(p)->watched_out = 0;
	close_descriptors(udp_port(p));
}

static void udp_close(struct port *p)
{
	struct udp_port *u = udp_port(p);
	struct udp_path *path, *tmp;

	close_descriptors(u);
	list_for_each_entry_safe (path, tmp, &u->paths, link)
		free(path);
	udp_tx_fini(u);
	udp_rx_fini(u);
	free(u);
}

static const struct port_ops udp_ops = {
	.name = "udp",
	.path_get = udp_path_get,
	.path_put = udp_path_put,
	.qp_mtu = udp_qp_mtu,
	.expect = udp_expect,
	.reader = udp_reader,
	.join = udp_join,
	.leave = udp_leave,
	.reserve = udp_reserve,
	.cancel = udp_cancel,
	.flush = udp_flush,
	.rx_burst = udp_rx_burst,
	.arm = udp_arm,
	.disarm = udp_disarm,
	.after_fork = udp_after_fork,
	.close = udp_close,
};

static int set_memory(struct udp_port *u)
{
	int rc = udp_tx_init(u);

	rc = rc ? rc : udp_rx_init(u);
	if (rc)
		return rc;
	u->epoll = sys_epoll_create1(EPOLL_CLOEXEC);
	if (u->epoll < 0)
		return u->epoll;
	u->port.fd = u->epoll;
	return 0;
}

/* Completes the port after its address is known, and lets packets come. */
static int finish_open(struct udp_port *u, const struct port_spec *spec)
{
	struct pool_socket sock = {
		.sport = u->sport,
		.joins = u->joins,
		.host = strcmp(spec->kind, "host") == 0,
		.mtu = u->port.mtu,
		.local_mtu = u->local_mtu,
	};

	int rc = pool_addr_tell(u->pool_addr, u->port.slot, &sock);

	return rc ? rc : udp_mail_open(u);
}

struct port *udp_open_port(const struct port_spec *spec, unsigned lane, unsigned lanes, char *err,
			   size_t errlen)
{
	struct udp_opening o = {
		.spec = spec, .lane = lane, .lanes = lanes, .err = err, .errlen = errlen};
	struct udp_port *u = calloc(1, sizeof(*u));
	int rc;

	if (!u) {
		udp_fail(&o, "udp: out of memory");
		errno = ENOMEM;
		return NULL;
	}
	o.u = u;
	u->port.ops = &udp_ops;
	u->port.ctl_fd = u->sock = u->out = u->epoll = u->groups_epoll = -1;
	u->leftover = u->diag = u->exchange.ring.fd = -1;
	u->port.lane = (uint8_t)lane;
	u->port.lanes = (uint8_t)lanes;
	list_init(&u->paths);
	list_init(&u->groups);
	u->buffer = spec->buffer ? spec->buffer : BUFFER_BYTES;
	u->merge = !spec->no_offload;
	if (lane > 0 && !spec->has_address) {
		udp_fail(&o, "udp: lanes after the first need the address of the first");
		rc = -EINVAL;
		goto fail;
	}
	rc = udp_claim(&o);
	if (!rc)
		rc = set_mtu(&o);
	if (rc)
		goto fail;
	udp_warn_alone(&o);
	set_windows(&o);
	rc = set_memory(u);
	u->joins = !spec->no_offload;
	rc = rc ? rc : finish_open(u, spec);
	if (!rc)
		return &u->port;
	udp_fail(&o, "udp: %s", strerror(-rc));
fail:
	udp_close(&u->port);
	errno = -rc;
	return NULL;
}
