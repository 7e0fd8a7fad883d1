/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Opens the udp port: its address, its socket, and the values that follow from them.
 *
 * Windows. The kernel charges the receive buffer of a socket with the memory of a packet, not with
 * its length: 8,448 bytes for a single packet of 4,148, and 63,052 for fifteen that came as one
 * group (Linux 6.18, x86). It releases memory in portions of a quarter of the buffer
 * (net/ipv4/udp.c, udp_rmem_release), so a quarter may be charged without a packet. Hence:
 *
 *	window = (3/4 buffer / memory of a single packet) packets, at most UDP_WINDOW_MAX
 *
 * This many bytes of WRITEs and SENDs fit for certain if every packet comes alone. Packets that
 * come in groups need half of that, and leave the other half to the READ responses that the
 * receiver requested. The READ window is the same for the own buffer. A sender does not know the
 * buffer of the receiver, and assumes the one that an ordinary process gets on this machine.
 */
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/sys.h"
#include "port/udp.h"

/* bytes to request; the kernel doubles them, and stops at rmem_max */
#define BUFFER_BYTES (4 << 20)
/*
 * A larger window does not help over loopback, because the packets leave the caches while they
 * wait. WRITEs of 64 KiB between two cores with 2 MiB of L2 each: 28 Gbit/s with windows from 128
 * to 256 KiB, 19 with 384 KiB to 1 MiB. Networks with long delays need more: window=. The number of
 * full packets is a power of two, as in messages: a packet that just does not fit is sent alone
 * later, and needs another call or group.
 */
#define UDP_WINDOW_MAX (64u * (4096 + PKT_MAX_HEADERS))

#define FIRST_FREE_LOOPBACK 2 /* 127.0.0.2 .. */
#define LAST_FREE_LOOPBACK  254

/*
 * TEST-NET-1 (RFC 5737): an address outside of this machine. It is used for routing only; no packet
 * is sent to it.
 */
static const struct pkt_addr somewhere = {{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 0, 2, 1}};

struct opening {
	struct udp_port *u;
	const struct port_spec *spec;
	unsigned lane, lanes;
	/* another process has the primary address of the machine; this one was chosen besides */
	bool second;
	struct pkt_addr primary;
	unsigned silent; /* members of the pool that did not answer */
	bool own;	 /* this process has the address and slot already */
	char *err;
	size_t errlen;
};

static void __attribute__((format(printf, 2, 3))) say(struct opening *o, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(o->err, o->errlen, fmt, ap);
	va_end(ap);
}

static struct pkt_addr loopback(unsigned last)
{
	struct pkt_addr a = {{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127, 0, 0, (uint8_t)last}};

	return a;
}

static bool is_loopback4(const struct pkt_addr *a)
{
	return pkt_addr_is_v4(a) && a->b[12] == 127;
}

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
 * Finds the interface of an address: its index, for link-local addresses, and its MTU; 0: unknown.
 */
static void find_interface(const struct pkt_addr *addr, int sock, uint32_t *index, uint32_t *mtu)
{
	struct ifaddrs *all, *i;
	struct ifreq req = {0};
	struct pkt_addr a;
	uint16_t port;

	*index = *mtu = 0;
	if (getifaddrs(&all))
		return;
	for (i = all; i; i = i->ifa_next) {
		if (!i->ifa_addr ||
		    (i->ifa_addr->sa_family != AF_INET && i->ifa_addr->sa_family != AF_INET6))
			continue;
		udp_addr((const union udp_name *)i->ifa_addr, &a, &port);
		/* All of 127/8 is local, although only 127.0.0.1 is listed. */
		if (pkt_addr_eq(&a, addr) || (is_loopback4(addr) && is_loopback4(&a))) {
			*index = if_nametoindex(i->ifa_name);
			snprintf(req.ifr_name, sizeof(req.ifr_name), "%s", i->ifa_name);
			if (!ioctl(sock, SIOCGIFMTU, &req) && req.ifr_mtu > 0)
				*mtu = (uint32_t)req.ifr_mtu;
			break;
		}
	}
	freeifaddrs(all);
}

/*
 * IP_PMTUDISC_PROBE: DF is set, and the MTU of the device limits the packets. ICMP errors about the
 * MTU of the path have no effect, unlike with IP_PMTUDISC_DO. The kernel believes any error that
 * names the addresses and ports, so a forged one could block packets for ten minutes
 * (net.ipv4.route.mtu_expires).
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
	set_int(fd, SOL_UDP, UDP_GRO, u->merge); /* without it packets come one by one */
	set_int(fd, SOL_SOCKET, SO_SNDBUF, (int)u->buffer);
	set_int(fd, SOL_SOCKET, SO_RCVBUF, (int)u->buffer);
	return rc;
}

/* Opens the socket that sends, with a port of the kernel's choice. Returns 0 or -errno. */
static int open_out(struct udp_port *u, const struct pkt_addr *addr)
{
	union udp_name name;
	socklen_t len = udp_name(&name, addr, 0, u->scope);
	struct pkt_addr bound;
	int fd = sys_socket(name.sa.sa_family, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), rc;

	if (fd < 0)
		return fd;
	u->out = fd;
	rc = udp_configure(u, fd);
	udp_set_heard(u, fd, true); /* else no hints */
	rc = rc ? rc : sys_bind(fd, &name.sa, len);
	rc = rc ? rc : sys_getsockname(fd, &name.sa, &len);
	if (rc == 0)
		udp_addr(&name, &bound, &u->sport);
	return rc;
}

/* Leaves the address. The rest of the port is as it was. */
static void unclaim(struct udp_port *u)
{
	if (u->out >= 0)
		sys_close(u->out);
	if (u->homed)
		pool_addr_unuse(u->home, u->port.slot);
	if (u->home)
		pool_addr_put(u->home);
	u->out = u->sock = -1;
	u->homed = false;
	u->home = NULL;
}

/* Takes the socket of our slot at addr:4791, in u->sock. Returns 0 or -errno. */
static int claim(struct opening *o, const struct pkt_addr *addr)
{
	struct udp_port *u = o->u;
	uint32_t mtu;
	int rc;

	u->v6 = !pkt_addr_is_v4(addr);
	u->buffer = o->spec->buffer ? o->spec->buffer : BUFFER_BYTES;
	u->merge = !o->spec->no_offload;
	u->scope = 0;
	if (u->v6 && addr->b[0] == 0xfe && (addr->b[1] & 0xc0) == 0x80) {
		int fd = sys_socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);

		if (fd < 0)
			return fd;
		find_interface(addr, fd, &u->scope, &mtu);
		sys_close(fd);
	}
	errno = 0;
	u->home = pool_addr_get(u->pool, addr, u->scope, &o->silent);
	if (!u->home)
		return -errno;
	rc = pool_addr_use(u->home, u->port.slot);
	o->own = rc == -EADDRINUSE;
	if (rc >= 0) {
		u->homed = true;
		u->sock = rc;
		rc = udp_configure(u, u->sock);
	}
	rc = rc ? rc : open_out(u, addr);
	if (rc) {
		unclaim(u);
		return rc;
	}
	u->port.addr = *addr;
	return 0;
}

/* Joins the programs of this user. Returns 0 or -errno, said. */
static int enter_pool(struct opening *o)
{
	struct udp_port *u = o->u;
	int rc, strangers;
	uid_t uid = 0;

	errno = 0;
	u->pool = pool_get();
	rc = u->pool ? pool_slot(u->pool, o->lane) : -errno;
	strangers = rc == -ENOSPC ? pool_strangers(&uid) : 0;
	if (strangers > 0)
		say(o,
		    "udp: no room for another program of this user: user %u holds %d names of its pool; let that user end "
		    "these programs, or stop one of yours (roost devices lists them)",
		    (unsigned)uid, strangers);
	else if (rc == -ENOSPC)
		say(o,
		    "udp: %d processing units of this user's programs are in use, which is the most: stop a program "
		    "(roost devices lists them)",
		    POOL_SLOTS);
	else if (rc == -EPROTO)
		say(o,
		    "udp: can't join the other programs of this user: the memory that they share is damaged, or of another "
		    "version of Roost; end them (roost devices lists them), then start them again");
	else if (rc < 0)
		say(o,
		    "udp: can't join the other programs of this user: %s; look at the limits of this process (ulimit -n, "
		    "roost doctor)",
		    strerror(-rc));
	if (rc < 0)
		return rc;
	u->port.shared = true;
	u->port.slot = (uint8_t)rc;
	return 0;
}

/* Says that no other program can use the address, and why. Once: the first lane. */
static void warn_alone(struct opening *o)
{
	int why = pool_addr_alone(o->u->home);
	char text[64];

	if (!why || o->lane > 0)
		return;
	pkt_addr_print(&o->u->port.addr, text, sizeof(text));
	if (why == -EMFILE)
		log_warn(
			"udp: this program has %s for itself, because %d sockets do not fit into its limit of open files: "
			"it works, but other programs need other addresses (as in udp:127.0.0.2), or raise the limit "
			"(ulimit -n 2048)",
			text, POOL_SLOTS);
	else
		log_warn(
			"udp: this program has %s for itself, because the system refuses SO_ATTACH_REUSEPORT_CBPF (%s): it "
			"works, but other programs need other addresses (as in udp:127.0.0.2)",
			text, strerror(-why));
}

/* 0 or -errno, said. */
static int claim_given(struct opening *o)
{
	struct udp_holder holder;
	char text[64];
	int rc;

	pkt_addr_print(&o->spec->addr, text, sizeof(text));
	if (!udp_is_unicast(&o->spec->addr)) {
		say(o,
		    "udp: %s is no address of one endpoint: choose one that `ip address` lists, or 127.0.0.2",
		    text);
		return -EINVAL;
	}
	rc = claim(o, &o->spec->addr);
	switch (-rc) {
	case 0:
		break;
	case EADDRINUSE:
		if (o->silent) {
			say(o,
			    "udp: the programs that use %s do not answer (stopped, or in a debugger?): continue or stop them, "
			    "or choose another address, as in udp:127.0.0.2",
			    text);
			break;
		}
		if (!o->own && pool_serves(o->u->pool, &o->spec->addr)) {
			say(o,
			    "udp: another program of this user has %s, and one of the two can't share it (see its messages, "
			    "and roost doctor): choose another address, as in udp:127.0.0.2",
			    text);
			break;
		}
		if (udp_owner(&o->spec->addr, &holder) && holder.uid != geteuid()) {
			say(o,
			    "udp: port %d of %s belongs to user %u%s, and only programs of one user share an address: choose "
			    "another address, as in udp:127.0.0.2, or let that user end the program",
			    PKT_UDP_PORT, text, holder.uid,
			    holder.uid ? "" : " or to the rdma_rxe module");
			break;
		}
		say(o,
		    "udp: port %d of %s is in use: stop the program that has it (roost doctor names it; the rdma_rxe module "
		    "takes it on all addresses), or choose another address, as in udp:127.0.0.2",
		    PKT_UDP_PORT, text);
		break;
	case EMFILE:
		say(o,
		    "udp: the %d sockets of %s do not fit into the limit of open files: raise it (ulimit -n 2048), or "
		    "choose another address, as in udp:127.0.0.2",
		    POOL_SLOTS, text);
		break;
	case EADDRNOTAVAIL:
		say(o,
		    "udp: %s is no address of this machine: choose one that `ip address` lists, or 127.0.0.2",
		    text);
		break;
	case EACCES:
	case EPERM:
		say(o,
		    "udp: no permission to bind %s port %d: a security policy forbids it to this process (see roost doctor)",
		    text, PKT_UDP_PORT);
		break;
	case EAFNOSUPPORT:
		say(o,
		    "udp: this machine has no %s: choose an address of the other kind (see roost doctor)",
		    pkt_addr_is_v4(&o->spec->addr) ? "IPv4" : "IPv6");
		break;
	default:
		say(o, "udp: can't bind %s port %d: %s", text, PKT_UDP_PORT, strerror(-rc));
	}
	return rc;
}

/*
 * The address of the first interface with one: a container may have a network without a route to
 * the outside.
 */
static bool first_address(struct pkt_addr *out)
{
	struct ifaddrs *all, *i;
	uint16_t port;

	if (getifaddrs(&all))
		return false;
	for (i = all; i; i = i->ifa_next) {
		if (!i->ifa_addr || i->ifa_addr->sa_family != AF_INET || !(i->ifa_flags & IFF_UP))
			continue;
		udp_addr((const union udp_name *)i->ifa_addr, out, &port);
		if (!is_loopback4(out))
			break;
	}
	freeifaddrs(all);
	return i != NULL;
}

/* Gets the source address of the route to the outside: the primary address of the host. */
static bool primary_address(struct pkt_addr *out)
{
	union udp_name name;
	socklen_t len = udp_name(&name, &somewhere, PKT_UDP_PORT, 0);
	uint16_t port;
	int fd = sys_socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	bool ok;

	if (fd < 0)
		return false;
	ok = !sys_connect(fd, &name.sa, len) && !sys_getsockname(fd, &name.sa, &len);
	sys_close(fd);
	if (ok)
		udp_addr(&name, out, &port);
	return (ok && !is_loopback4(out)) || first_address(out);
}

void udp_first_address(struct pkt_addr *out)
{
	if (!primary_address(out))
		*out = loopback(1);
}

/* Says why the primary address of the machine can't be used. */
static void warn_second(struct opening *o, const struct pkt_addr *addr, int rc)
{
	struct udp_holder h;
	char text[64], why[128];

	if (rc != -EADDRINUSE)
		snprintf(why, sizeof(why), "%s", strerror(-rc));
	else if (o->silent)
		snprintf(why, sizeof(why),
			 "the programs there do not answer (stopped, or in a debugger?)");
	else if (pool_serves(o->u->pool, addr))
		snprintf(why, sizeof(why),
			 "another program has it, and one of the two can't share it");
	else if (udp_owner(addr, &h) && h.uid != geteuid())
		snprintf(why, sizeof(why), "its port %d belongs to user %u%s", PKT_UDP_PORT, h.uid,
			 h.uid ? "" : " or to the rdma_rxe module");
	else
		snprintf(
			why, sizeof(why),
			"its port %d belongs to a program outside of Roost, to the rdma_rxe module, or "
			"to a container",
			PKT_UDP_PORT);
	log_warn(
		"udp: can't use %s: %s; this program takes an address of its own, which other machines can't "
		"reach",
		pkt_addr_print(addr, text, sizeof(text)), why);
}

/* The same. */
static int claim_any(struct opening *o)
{
	struct pkt_addr addr;
	unsigned last = FIRST_FREE_LOOPBACK;
	int rc;

	if (primary_address(&addr)) {
		rc = claim(o, &addr);
		if (!rc)
			return 0;
		if (!o->own)
			warn_second(o, &addr, rc);
		o->second = true;
		o->primary = addr;
	} else {
		last = 1;
	}
	do {
		addr = loopback(last);
		rc = claim(o, &addr);
	} while ((rc == -EADDRINUSE || rc == -EMFILE) && last++ < LAST_FREE_LOOPBACK);
	if (!rc)
		return 0;
	if (rc == -EADDRINUSE)
		say(o,
		    "udp: port %d is in use on every address tried: unload the rdma_rxe module (modprobe -r rdma_rxe) if "
		    "it is there, or choose an address, as in udp:127.0.1.1",
		    PKT_UDP_PORT);
	else
		say(o, "udp: can't bind port %d of a loopback address: %s", PKT_UDP_PORT,
		    strerror(-rc));
	return rc;
}

/*
 * Ports that choose their own address have one MTU, with the primary address or a loopback address.
 * rxe does the same: one device serves the addresses of the interface and other addresses of the
 * machine, with one active_mtu that follows from the interface (rxe.c, rxe_set_mtu). Programs
 * choose the size of datagrams by their own port, and the peer chooses its receives by its port. If
 * the two differ, datagrams are lost.
 */
static uint32_t same_as_primary(const struct opening *o, uint32_t mtu)
{
	uint32_t index, primary;

	if (!o->second)
		return mtu;
	find_interface(&o->primary, o->u->sock, &index, &primary);
	return primary && primary < mtu ? primary : mtu;
}

static int set_mtu(struct opening *o)
{
	struct udp_port *u = o->u;
	uint32_t overhead = (u->v6 ? 40 : 20) + 8, index, mtu;
	struct pool_home first;
	char text[64];

	find_interface(&u->port.addr, u->sock, &index, &mtu);
	u->scope = u->port.medium = index;
	if (!mtu)
		/* an address of a tunnel, or bound with ip_nonlocal_bind: the usual MTU */
		mtu = 1500;
	mtu = same_as_primary(o, mtu);
	u->port.mtu = mtu > overhead ? port_mtu_fit(mtu - overhead, o->spec->mtu) : 0;
	/* All lanes have one MTU: the first may have had reasons of its own. */
	if (o->lane > 0 &&
	    pool_find(u->pool, &u->port.addr, (unsigned)pool_slot(u->pool, 0), &first))
		u->port.mtu = first.mtu;
	if (u->port.mtu)
		return 0;
	say(o,
	    "udp: packets of MTU 256 do not fit into the %u bytes of the interface of %s: choose another address",
	    mtu, pkt_addr_print(&u->port.addr, text, sizeof(text)));
	return -EMSGSIZE;
}

static uint32_t window_of(uint32_t buffer, const struct udp_abilities *can, uint32_t bytes)
{
	uint64_t packets = (uint64_t)buffer * 3 / 4 / can->cost;
	uint64_t window = (packets ? packets : 1) * bytes;

	return window < UDP_WINDOW_MAX ? (uint32_t)window : UDP_WINDOW_MAX;
}

static void set_windows(struct opening *o)
{
	struct udp_port *u = o->u;
	uint32_t bytes = u->port.mtu + PKT_MAX_HEADERS + PKT_ICRC_LEN;
	uint32_t ordinary = get_u32(u->sock, SOL_SOCKET, SO_RCVBUF);
	struct udp_abilities can;
	char text[64];

	/* Privileged processes may go beyond rmem_max. */
	set_int(u->sock, SOL_SOCKET, SO_RCVBUFFORCE, (int)u->buffer);
	u->rcvbuf = get_u32(u->sock, SOL_SOCKET, SO_RCVBUF);
	udp_probe(&u->port.addr, u->scope, bytes, &can);
	u->tx.max_segs = o->spec->no_offload ? 1 : can.max_segs;
	u->port.window = o->spec->window ? o->spec->window : window_of(ordinary, &can, bytes);
	u->port.batch = UDP_BATCH;
	u->port.mask_fd = true;
	u->port.read_window = o->spec->window ? o->spec->window : window_of(u->rcvbuf, &can, bytes);
	log_info(
		"udp: %s lane %u: MTU %u, receive buffer %u, a packet takes %u of it, window %u, READ window %u, %u packets "
		"a call",
		pkt_addr_print(&u->port.addr, text, sizeof(text)), o->lane, u->port.mtu, u->rcvbuf,
		can.cost, u->port.window, u->port.read_window, u->tx.max_segs);
}

/*
 * The descriptor to sleep on is an epoll set, because a sleeper also waits for room, errors and
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

/* The socket that sends is watched for errors and mail, too. */
static int watch(struct udp_port *u, bool on)
{
	uint32_t out = !on ? 0 : EPOLLIN | (u->tx.blocked ? EPOLLOUT : 0);
	int rc = watch_one(u, u->sock, &u->watched, on ? EPOLLIN : 0);

	return rc ? rc : watch_one(u, u->out, &u->watched_out, out);
}

static bool udp_arm(struct port *p)
{
	struct udp_port *u = udp_port(p);

	if (udp_rx_waiting(u) || udp_mail_waits(u))
		return false;
	/* If this fails (no memory), the thread does not sleep and looks again. */
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
	udp_mail_close(u);
	udp_mcast_close(u);
	unclaim(u);
	if (u->pool)
		pool_put(u->pool);
	u->pool = NULL;
}

static void udp_after_fork(struct port *p)
{
	/*
	 * The epoll set is shared with the parent and must not be changed. Closing the descriptors
	 * of this process does not affect it. Nor does the child leave the pool for its parent.
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

/* Lets packets come. */
static int settle(struct udp_port *u)
{
	struct pool_home home = {.sport = u->sport, .joins = u->joins, .mtu = u->port.mtu};

	pool_addr_tell(u->home, u->port.slot, &home);
	return udp_mail_open(u);
}

struct port *udp_open_port(const struct port_spec *spec, unsigned lane, unsigned lanes, char *err,
			   size_t errlen)
{
	struct opening o = {
		.spec = spec, .lane = lane, .lanes = lanes, .err = err, .errlen = errlen};
	struct udp_port *u = calloc(1, sizeof(*u));
	int rc;

	if (!u) {
		say(&o, "udp: out of memory");
		errno = ENOMEM;
		return NULL;
	}
	o.u = u;
	u->port.ops = &udp_ops;
	u->port.ctl_fd = u->sock = u->out = u->epoll = u->groups_epoll = -1;
	u->port.lane = (uint8_t)lane;
	u->port.lanes = (uint8_t)lanes;
	list_init(&u->paths);
	list_init(&u->groups);
	if (lane > 0 && !spec->has_address) {
		say(&o, "udp: lanes after the first need the address of the first");
		rc = -EINVAL;
		goto fail;
	}
	rc = enter_pool(&o);
	if (!rc)
		rc = (spec->has_address ? claim_given : claim_any)(&o);
	if (!rc)
		rc = set_mtu(&o);
	if (rc)
		goto fail;
	warn_alone(&o);
	set_windows(&o);
	rc = set_memory(u);
	u->joins = !spec->no_offload;
	rc = rc ? rc : settle(u);
	if (!rc)
		return &u->port;
	say(&o, "udp: %s", strerror(-rc));
fail:
	udp_close(&u->port);
	errno = -rc;
	return NULL;
}
