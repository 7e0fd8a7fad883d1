/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Rows of `roost doctor` about the network: interfaces, address families, buffers, UDP offloads,
 * the port, and the Linux kernel's own RoCE.
 */
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/text.h"
#include "cli/doctor/doctor.h"
#include "packet/headers.h"
#include "pool/pool.h"
#include "port/port_impl.h"
#include "port/udp.h"

#define BUFFER_WANTED (4u << 20) /* src/port/udp_open.c */
#define IP_UDP	      28	 /* bytes of both headers */

static int udp_socket(int family)
{
	return socket(family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
}

/* ---- interfaces ---- */

/* Returns the path MTU that fits an interface, or 0 if none fits. */
static uint32_t path_mtu(const char *name)
{
	struct ifreq req = {0};
	int fd = udp_socket(AF_INET), rc;

	if (fd < 0)
		return 0;
	snprintf(req.ifr_name, sizeof(req.ifr_name), "%s", name);
	rc = ioctl(fd, SIOCGIFMTU, &req);
	close(fd);
	return rc || req.ifr_mtu <= IP_UDP ? 0 : port_mtu_fit((uint32_t)req.ifr_mtu - IP_UDP, 0);
}

/*
 * Lists interfaces that are up and have an IPv4 address. Roost uses other interfaces only on
 * request.
 */
void doctor_interfaces(const struct doctor *d, struct doctor_finding *f)
{
	struct text list = {.buf = f->found, .n = sizeof(f->found)};
	struct ifaddrs *all = NULL;
	unsigned up = 0, beyond = 0;
	char last[IFNAMSIZ] = "";

	if (getifaddrs(&all))
		all = NULL;
	for (struct ifaddrs *i = all; i; i = i->ifa_next) {
		uint32_t mtu;

		if (!i->ifa_addr || i->ifa_addr->sa_family != AF_INET || !(i->ifa_flags & IFF_UP) ||
		    strcmp(last, i->ifa_name) == 0)
			continue;
		snprintf(last, sizeof(last), "%s", i->ifa_name);
		mtu = path_mtu(last);
		text_put(&list, "%s%s: path MTU %u", up++ ? ", " : "", last, mtu);
		beyond += !(i->ifa_flags & IFF_LOOPBACK);
		if (mtu == 0)
			doctor_remedy(f, DOCTOR_WARN,
				      "packets of MTU 256 do not fit %s: ip link set %s mtu 1500",
				      last, last);
		else if (mtu < 1024)
			doctor_remedy(f, DOCTOR_WARN,
				      "small packets are slow: ip link set %s mtu 1500", last);
	}
	if (all)
		freeifaddrs(all);
	if (!up) {
		doctor_found(f, "none is up");
		doctor_remedy(f, d->udp ? DOCTOR_FAIL : DOCTOR_WARN,
			      "udp has no address: ip link set lo up");
	} else if (!beyond) {
		doctor_remedy(
			f, DOCTOR_WARN,
			"reaches programs of this machine alone: give an interface an address (not --network none)");
	}
}

void doctor_ipv6(const struct doctor *d, struct doctor_finding *f)
{
	bool wanted = d->udp && d->chosen && !pkt_addr_is_v4(&d->addr);
	struct ifaddrs *all = NULL;
	int fd = udp_socket(AF_INET6), addresses = 0;

	if (fd < 0) {
		doctor_found(f, "this kernel has none (%s)", strerror(errno));
		doctor_remedy(f, wanted ? DOCTOR_FAIL : DOCTOR_WARN,
			      "only for programs that want IPv6: boot without ipv6.disable=1");
		return;
	}
	close(fd);
	if (getifaddrs(&all))
		all = NULL;
	for (struct ifaddrs *i = all; i; i = i->ifa_next)
		addresses += i->ifa_addr && i->ifa_addr->sa_family == AF_INET6 &&
			     (i->ifa_flags & IFF_UP);
	if (all)
		freeifaddrs(all);
	doctor_found(f, addresses ? "addresses: %d" : "no address", addresses);
	if (!addresses)
		doctor_remedy(
			f, wanted ? DOCTOR_FAIL : DOCTOR_WARN,
			"only for programs that want IPv6: sysctl net.ipv6.conf.all.disable_ipv6=0 (--sysctl ...)");
}

/* ---- sockets ---- */

/*
 * Returns the number of bytes that the Linux kernel allows. If a container does not show this
 * limit, returns the bytes that a socket gets when it asks for BUFFER_WANTED.
 */
static uint32_t buffer_limit(const char *name, int option)
{
	uint32_t wanted = BUFFER_WANTED, got = 0;
	socklen_t n = sizeof(got);
	char path[64], line[32];
	int fd;

	snprintf(path, sizeof(path), "/proc/sys/net/core/%s", name);
	if (doctor_line(path, line, sizeof(line)))
		return (uint32_t)strtoul(line, NULL, 10);
	fd = udp_socket(AF_INET);
	if (fd < 0)
		return 0;
	setsockopt(fd, SOL_SOCKET, option, &wanted, sizeof(wanted));
	getsockopt(fd, SOL_SOCKET, option, &got, &n);
	close(fd);
	return got / 2; /* the Linux kernel doubles it (socket(7)) */
}

void doctor_buffers(const struct doctor *d, struct doctor_finding *f)
{
	uint32_t rmem = buffer_limit("rmem_max", SO_RCVBUF),
		 wmem = buffer_limit("wmem_max", SO_SNDBUF);

	doctor_found(f, "receive %u KiB, send %u KiB", rmem >> 10, wmem >> 10);
	if (rmem < BUFFER_WANTED || wmem < BUFFER_WANTED)
		doctor_remedy(f, DOCTOR_WARN,
			      "fewer bytes can be in flight: sysctl -w net.core.%s=%u, on the host",
			      rmem < BUFFER_WANTED ? "rmem_max" : "wmem_max", BUFFER_WANTED);
}

void doctor_offload(const struct doctor *d, struct doctor_finding *f)
{
	int fd = udp_socket(AF_INET), size = 1024, on = 1;
	bool cuts = fd >= 0 && setsockopt(fd, SOL_UDP, UDP_SEGMENT, &size, sizeof(size)) == 0;
	bool joins = fd >= 0 && setsockopt(fd, SOL_UDP, UDP_GRO, &on, sizeof(on)) == 0;

	if (fd >= 0)
		close(fd);
	doctor_found(f, "UDP_SEGMENT %s, UDP_GRO %s", cuts ? "yes" : "no", joins ? "yes" : "no");
	if (!cuts || !joins)
		doctor_remedy(
			f, DOCTOR_WARN,
			"packets are sent one by one, at a fraction of the rate: use a kernel with %s (gVisor has none)",
			cuts ? "UDP_GRO" : "UDP_SEGMENT");
}

/* ---- the owner of the port ---- */

static bool has_socket(const char *pid, unsigned long inode)
{
	char path[300], link[64], want[64];
	struct dirent *e;
	bool found = false;
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%.16s/fd", pid);
	snprintf(want, sizeof(want), "socket:[%lu]", inode);
	dir = opendir(path);
	while (dir && !found && (e = readdir(dir)) != NULL) {
		ssize_t n = readlinkat(dirfd(dir), e->d_name, link, sizeof(link) - 1);

		link[n > 0 ? n : 0] = '\0';
		found = strcmp(link, want) == 0;
	}
	if (dir)
		closedir(dir);
	return found;
}

/* Prints "process 123 (name)", or that the process is not visible. */
static void name_holder(const struct udp_holder *h, char *buf, size_t n)
{
	unsigned long inode = h->inode;

	DIR *proc = opendir("/proc");
	char path[64], name[64];
	struct dirent *e;

	snprintf(buf, n, "a process of another user or container, or the kernel");
	if (inode && h->uid && h->uid != geteuid())
		snprintf(buf, n, "a process of user %u", h->uid);
	while (inode && proc && (e = readdir(proc)) != NULL) {
		if (e->d_name[0] < '1' || e->d_name[0] > '9' || !has_socket(e->d_name, inode))
			continue;
		snprintf(path, sizeof(path), "/proc/%.16s/comm", e->d_name);
		if (!doctor_line(path, name, sizeof(name)))
			snprintf(name, sizeof(name), "?");
		snprintf(buf, n, "process %.16s (%s)", e->d_name, name);
		break;
	}
	if (proc)
		closedir(proc);
}

static int bind_port(const struct pkt_addr *addr)
{
	union udp_name name;
	socklen_t len = udp_name(&name, addr, PKT_UDP_PORT, 0);
	int fd = udp_socket(name.sa.sa_family), rc;

	if (fd < 0)
		return errno;
	rc = bind(fd, &name.sa, len) ? errno : 0;
	close(fd);
	return rc;
}

/* Returns true if the programs that have the address share it with another program of this user. */
static bool is_shared(const struct pkt_addr *addr)
{
	struct pool *p = pool_get();
	struct pool_addr *a;
	unsigned silent;

	if (!p)
		return false;
	a = pool_addr_get(p, addr, 0, &silent);
	if (a)
		pool_addr_put(a);
	pool_put(p);
	return a != NULL;
}

void doctor_port(const struct doctor *d, struct doctor_finding *f)
{
	/*
	 * The addresses that src/port/udp_claim.c tries when it may choose and its first choice is
	 * taken: 127.0.0.2 and the following ones.
	 */
	static const struct pkt_addr second = {
		{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127, 0, 0, 2}};
	struct udp_holder holder = {0};
	char addr[64], who[128];
	int e;

	if (!d->udp) {
		doctor_found(f, "not used by shm");
		return;
	}
	pkt_addr_print(&d->addr, addr, sizeof(addr));
	e = bind_port(&d->addr);
	if (e == 0) {
		doctor_found(f, "free at %s", addr);
		return;
	}
	if (e != EADDRINUSE) {
		doctor_found(f, "%s: %s", addr, strerror(e));
		doctor_remedy(f, DOCTOR_FAIL,
			      "choose an address that `ip address` lists, or 127.0.0.2");
		return;
	}
	if (is_shared(&d->addr)) {
		doctor_found(f, "programs of yours use %s and share it", addr);
		return;
	}
	udp_owner(&d->addr, &holder);
	name_holder(&holder, who, sizeof(who));
	doctor_found(f, "%s has it at %s", who, addr);
	if (d->chosen || bind_port(&second) == EADDRINUSE)
		doctor_remedy(f, DOCTOR_FAIL,
			      "stop it, or choose another address, as in --port udp:127.0.0.2");
	else
		doctor_remedy(
			f, DOCTOR_WARN,
			"the next program gets an address of 127/8, for this machine alone: stop it, or give another "
			"address to --port");
}

/*
 * rdma_rxe holds a socket at the port, for all addresses of the network namespace in which its
 * device was created. Its devices have the file `parent`.
 */
void doctor_rxe(const struct doctor *d, struct doctor_finding *f)
{
	struct text list = {.buf = f->found, .n = sizeof(f->found)};
	DIR *dir = opendir("/sys/class/infiniband");
	struct dirent *e;
	unsigned count = 0;
	char path[320], netdev[64];

	while (dir && (e = readdir(dir)) != NULL) {
		snprintf(path, sizeof(path), "/sys/class/infiniband/%.255s/parent", e->d_name);
		if (e->d_name[0] != '.' && doctor_line(path, netdev, sizeof(netdev)))
			text_put(&list, "%s%.32s on %.32s", count++ ? ", " : "", e->d_name, netdev);
	}
	if (dir)
		closedir(dir);
	if (!count) {
		doctor_found(f, "the kernel has no RoCE device");
		return;
	}
	if (d->udp && bind_port(&d->addr) == EADDRINUSE)
		doctor_remedy(f, d->chosen ? DOCTOR_FAIL : DOCTOR_WARN,
			      "it holds the port: rdma link delete NAME, or modprobe -r rdma_rxe");
	else
		doctor_remedy(
			f, DOCTOR_WARN,
			"it may take the port: rdma link delete NAME, or modprobe -r rdma_rxe");
}
