/* SPDX-License-Identifier: BSD-2-Clause */
#include "port/udp_claim.h"

#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/log.h"
#include "base/sys.h"

#define FIRST_FREE_LOOPBACK 2 /* 127.0.0.2 .. */
#define LAST_FREE_LOOPBACK  254

/*
 * TEST-NET-1 (RFC 5737): an address outside of this machine, used only for a routing look-up. No
 * packet is sent to it.
 */
static const struct pkt_addr outside_addr = {
	{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 0, 2, 1}};

void udp_fail(struct udp_opening *o, const char *fmt, ...)
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

void udp_find_interface(const struct pkt_addr *addr, int sock, uint32_t *index, uint32_t *mtu)
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
		/* All of 127/8 is local, although the interface lists only 127.0.0.1. */
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

/* Opens the sending socket, with a port that Linux chooses. Returns 0 or -errno. */
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
	udp_set_recverr(u, fd, true); /* without this there are no hints */
	rc = rc ? rc : sys_bind(fd, &name.sa, len);
	rc = rc ? rc : sys_getsockname(fd, &name.sa, &len);
	if (rc == 0)
		udp_addr(&name, &bound, &u->sport);
	return rc;
}

void udp_unclaim(struct udp_port *u)
{
	if (u->out >= 0)
		sys_close(u->out);
	if (u->slot_used)
		pool_addr_unuse(u->pool_addr, u->port.slot);
	if (u->pool_addr)
		pool_addr_put(u->pool_addr);
	u->out = u->sock = u->leftover = -1;
	u->slot_used = false;
	u->pool_addr = NULL;
}

/* Takes the socket of this lane's slot at addr:4791, in u->sock. Returns 0 or -errno. */
static int claim(struct udp_opening *o, const struct pkt_addr *addr)
{
	struct udp_port *u = o->u;
	uint32_t mtu;
	int rc;

	u->v6 = !pkt_addr_is_v4(addr);
	u->scope = 0;
	if (pkt_addr_is_link_local(addr)) {
		int fd = sys_socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);

		if (fd < 0)
			return fd;
		udp_find_interface(addr, fd, &u->scope, &mtu);
		sys_close(fd);
	}
	errno = 0;
	u->pool_addr = pool_addr_get(u->pool, addr, u->scope, &o->silent);
	if (!u->pool_addr)
		return -errno;
	u->leftovers = pool_addr_leftovers(u->pool_addr);
	rc = pool_addr_use(u->pool_addr, u->port.slot);
	o->own = rc == -EADDRINUSE;
	if (rc >= 0) {
		u->slot_used = true;
		u->sock = rc;
		rc = udp_configure(u, u->sock);
	}
	rc = rc ? rc : open_out(u, addr);
	if (rc) {
		udp_unclaim(u);
		return rc;
	}
	u->port.addr = *addr;
	return 0;
}

/* Joins the pool of this user's programs. Returns 0, or -errno after it has written the message. */
static int enter_pool(struct udp_opening *o)
{
	struct udp_port *u = o->u;
	int rc, strangers;
	uid_t uid = 0;

	errno = 0;
	u->pool = pool_get();
	rc = u->pool ? pool_slot(u->pool, o->lane) : -errno;
	strangers = rc == -ENOSPC ? pool_strangers(&uid) : 0;
	if (strangers > 0)
		udp_fail(
			o,
			"udp: no space for another program of this user: user %u holds %d names of its pool; let that user end "
			"these programs, or stop one of yours (roost devices lists them)",
			(unsigned)uid, strangers);
	else if (rc == -ENOSPC)
		udp_fail(
			o,
			"udp: %d processing units of this user's programs are in use, which is the most: stop a program "
			"(roost devices lists them), or use a port of kind shm, which needs none",
			POOL_SLOTS);
	else if (rc == -EPROTO)
		udp_fail(
			o,
			"udp: can't join the other programs of this user: the memory that they share is "
			"damaged, or of another version of Roost; end them (roost devices lists them), "
			"then start them again; a port of kind shm works meanwhile");
	else if (rc == -EFBIG)
		udp_fail(
			o,
			"udp: the first program of this user needs %u KiB of shared memory, and the limit of file "
			"sizes of this process is lower: raise it (ulimit -f unlimited), or start another program "
			"without this limit first",
			(unsigned)((pool_file_bytes() + 1023) / 1024));
	else if (rc < 0)
		udp_fail(
			o,
			"udp: can't join the other programs of this user: %s; look at the limits of this process (ulimit -n, "
			"roost doctor)",
			strerror(-rc));
	if (rc < 0)
		return rc;
	u->port.shared = true;
	u->port.slot = (uint8_t)rc;
	return 0;
}

void udp_warn_alone(struct udp_opening *o)
{
	int why = pool_addr_alone(o->u->pool_addr);
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

/* Takes the address of the specification. Returns 0, or -errno after it has written the message. */
static int claim_given(struct udp_opening *o)
{
	struct udp_holder holder;
	char text[64];
	int rc;

	pkt_addr_print(&o->spec->addr, text, sizeof(text));
	if (!udp_is_unicast(&o->spec->addr)) {
		udp_fail(
			o,
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
			udp_fail(
				o,
				"udp: the programs that use %s do not answer (stopped, or in a debugger?): continue or stop them, "
				"or choose another address, as in udp:127.0.0.2",
				text);
			break;
		}
		if (!o->own && pool_serves(o->u->pool, &o->spec->addr, o->u->scope)) {
			udp_fail(
				o,
				"udp: another program of this user has %s, and one of the two can't share it (see its messages, "
				"and roost doctor): choose another address, as in udp:127.0.0.2",
				text);
			break;
		}
		if (!o->own && pool_is_foreign(o->u->pool)) {
			udp_fail(
				o,
				"udp: %s is in use, and there are programs of another version of Roost (roost devices lists "
				"them): end these, or choose another address, as in udp:127.0.0.2",
				text);
			break;
		}
		if (udp_owner(&o->spec->addr, &holder) && holder.uid != geteuid()) {
			udp_fail(
				o,
				"udp: port %d of %s belongs to user %u%s, and only programs of one user share an address: choose "
				"another address, as in udp:127.0.0.2, or let that user end the program",
				PKT_UDP_PORT, text, holder.uid,
				holder.uid ? "" : " or to the rdma_rxe module");
			break;
		}
		udp_fail(
			o,
			"udp: port %d of %s is in use: stop the program that has it (roost doctor names it; the rdma_rxe module "
			"takes it on all addresses), or choose another address, as in udp:127.0.0.2",
			PKT_UDP_PORT, text);
		break;
	case EMFILE:
		udp_fail(
			o,
			"udp: the %d sockets of %s do not fit into the limit of open files: raise it (ulimit -n 2048), or "
			"choose another address, as in udp:127.0.0.2",
			POOL_SLOTS, text);
		break;
	case EADDRNOTAVAIL:
		udp_fail(
			o,
			"udp: %s is no address of this machine: choose one that `ip address` lists, or 127.0.0.2",
			text);
		break;
	case EACCES:
	case EPERM:
		udp_fail(
			o,
			"udp: no permission to bind %s port %d: a security policy forbids it to this process (see roost doctor)",
			text, PKT_UDP_PORT);
		break;
	case EAFNOSUPPORT:
		udp_fail(
			o,
			"udp: this machine has no %s: choose an address of the other kind (see roost doctor)",
			pkt_addr_is_v4(&o->spec->addr) ? "IPv4" : "IPv6");
		break;
	default:
		udp_fail(o, "udp: can't bind %s port %d: %s", text, PKT_UDP_PORT, strerror(-rc));
	}
	return rc;
}

/*
 * Gets the address of the first interface that has one: a container may have a network without a
 * route to the outside.
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
	socklen_t len = udp_name(&name, &outside_addr, PKT_UDP_PORT, 0);
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

/* Logs the reason why the primary address of the machine cannot be used. */
static void warn_second(struct udp_opening *o, const struct pkt_addr *addr, int rc)
{
	struct udp_holder h;
	char text[64], why[128];

	if (rc != -EADDRINUSE)
		snprintf(why, sizeof(why), "%s", strerror(-rc));
	else if (o->silent)
		snprintf(why, sizeof(why),
			 "the programs there do not answer (stopped, or in a debugger?)");
	else if (pool_serves(o->u->pool, addr, o->u->scope))
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

/*
 * Takes the primary address of the machine, or else a free loopback address. Returns 0, or -errno
 * after it has written the message.
 */
static int claim_any(struct udp_opening *o)
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
		udp_fail(
			o,
			"udp: port %d is in use on every address tried: unload the rdma_rxe module (modprobe -r rdma_rxe) if "
			"it is loaded, or choose an address, as in udp:127.0.1.1",
			PKT_UDP_PORT);
	else
		udp_fail(o, "udp: can't bind port %d of a loopback address: %s", PKT_UDP_PORT,
			 strerror(-rc));
	return rc;
}

int udp_claim(struct udp_opening *o)
{
	int rc = enter_pool(o);

	if (rc)
		return rc;
	return o->spec->has_address ? claim_given(o) : claim_any(o);
}
