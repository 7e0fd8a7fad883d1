/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Multicast groups on udp. A socket that is bound to the address of the port never receives packets
 * to a group, because the destination must match. A socket bound to the wildcard would receive
 * packets to other NICs of this machine. Each group therefore has a socket of its own, bound to the
 * address of the group. Linux then filters by destination, and the destination of each packet
 * is known. Sockets can share an address only if all of them have SO_REUSEADDR; here they share
 * only the group, and the addresses of NICs stay exclusive. Every socket of the group gets a copy,
 * so all NICs of a machine and all lanes of a NIC get one.
 *
 * The socket joins on the interface of the port's address, and receives packets of that membership
 * only (IP_MULTICAST_ALL off). Linux handles IGMP and MLD. Packets to a group leave by the
 * same interface and come back to members on this machine; over loopback the device itself returns
 * them. Their time to live is 64, as in RoCE of the Linux kernel.
 *
 * A poll looks at all groups with one epoll_wait(). A port without groups makes no such call.
 */
#include <errno.h>
#include <stdlib.h>

#include "base/sys.h"
#include "port/udp.h"

/* Values: include/uapi/linux/in.h and in6.h. */
#ifndef IP_MULTICAST_ALL
#define IP_MULTICAST_ALL 49
#endif
#ifndef IPV6_MULTICAST_ALL
#define IPV6_MULTICAST_ALL 29
#endif

#define HOPS 64

static int set_int(int fd, int level, int name, int value)
{
	return sys_setsockopt(fd, level, name, &value, sizeof(value));
}

static struct ip_mreqn membership(const struct udp_port *u, const struct pkt_addr *group)
{
	struct ip_mreqn m = {.imr_ifindex = (int)u->scope};

	if (group)
		memcpy(&m.imr_multiaddr, group->b + 12, 4);
	memcpy(&m.imr_address, u->port.addr.b + 12, 4);
	return m;
}

int udp_mcast_out(const struct udp_port *u, int fd)
{
	struct ip_mreqn m = membership(u, NULL);
	int rc;

	if (u->v6) {
		rc = set_int(fd, SOL_IPV6, IPV6_MULTICAST_IF, (int)u->scope);
		rc = rc ? rc : set_int(fd, SOL_IPV6, IPV6_MULTICAST_LOOP, 1);
		return rc ? rc : set_int(fd, SOL_IPV6, IPV6_MULTICAST_HOPS, HOPS);
	}
	rc = sys_setsockopt(fd, SOL_IP, IP_MULTICAST_IF, &m, sizeof(m));
	rc = rc ? rc : set_int(fd, SOL_IP, IP_MULTICAST_LOOP, 1);
	return rc ? rc : set_int(fd, SOL_IP, IP_MULTICAST_TTL, HOPS);
}

static int become_member(const struct udp_port *u, int fd, const struct pkt_addr *group)
{
	struct ip_mreqn m = membership(u, group);
	struct ipv6_mreq m6 = {.ipv6mr_interface = u->scope};
	int rc;

	if (u->v6) {
		/*
		 * Kernels before 4.20 do not support this option. The socket still gets only
		 * packets to the group to which it is bound.
		 */
		set_int(fd, SOL_IPV6, IPV6_MULTICAST_ALL, 0);
		memcpy(&m6.ipv6mr_multiaddr, group->b, 16);
		return sys_setsockopt(fd, SOL_IPV6, IPV6_ADD_MEMBERSHIP, &m6, sizeof(m6));
	}
	rc = set_int(fd, SOL_IP, IP_MULTICAST_ALL, 0);
	return rc ? rc : sys_setsockopt(fd, SOL_IP, IP_ADD_MEMBERSHIP, &m, sizeof(m));
}

static int open_socket(const struct udp_port *u, const struct pkt_addr *group, int *out)
{
	union udp_name name;
	socklen_t len = udp_name(&name, group, PKT_UDP_PORT, u->scope);
	int fd = sys_socket(name.sa.sa_family, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), rc;

	if (fd < 0)
		return fd;
	rc = udp_configure(u, fd);
	rc = rc ? rc : set_int(fd, SOL_SOCKET, SO_REUSEADDR, 1);
	/*
	 * The membership precedes the bind: otherwise packets for members on other interfaces could
	 * come in between.
	 */
	rc = rc ? rc : become_member(u, fd, group);
	rc = rc ? rc : sys_bind(fd, &name.sa, len);
	if (rc) {
		sys_close(fd);
		return rc;
	}
	*out = fd;
	return 0;
}

/*
 * Opens the epoll set of all groups, and adds it to the set of a sleeper. It is level triggered and
 * costs nothing while no packets come.
 */
static int open_epoll(struct udp_port *u)
{
	struct epoll_event ev = {.events = EPOLLIN};
	int fd, rc;

	if (u->groups_epoll >= 0)
		return 0;
	fd = sys_epoll_create1(EPOLL_CLOEXEC);
	if (fd < 0)
		return fd;
	rc = sys_epoll_ctl(u->epoll, EPOLL_CTL_ADD, fd, &ev);
	if (rc) {
		sys_close(fd);
		return rc;
	}
	u->groups_epoll = fd;
	return 0;
}

/* Closes the epoll set when the last group is left, so that polls cost nothing again. */
static void close_epoll(struct udp_port *u)
{
	if (u->groups_epoll < 0 || !list_empty(&u->groups))
		return;
	sys_epoll_ctl(u->epoll, EPOLL_CTL_DEL, u->groups_epoll, NULL);
	sys_close(u->groups_epoll);
	u->groups_epoll = -1;
	u->groups_turn = false;
}

int udp_join(struct port *p, const struct pkt_addr *group)
{
	struct udp_port *u = udp_port(p);
	struct epoll_event ev = {.events = EPOLLIN};
	struct udp_mcast *g;
	int rc;

	if (pkt_addr_is_v4(group) == u->v6)
		return -EAFNOSUPPORT;
	g = malloc(sizeof(*g));
	if (!g)
		return -ENOMEM;
	rc = open_socket(u, group, &g->sock);
	if (rc)
		goto free_group;
	rc = open_epoll(u);
	if (rc)
		goto close_socket;
	ev.data.ptr = g;
	rc = sys_epoll_ctl(u->groups_epoll, EPOLL_CTL_ADD, g->sock, &ev);
	if (rc) {
		close_epoll(u);
		goto close_socket;
	}
	g->addr = *group;
	list_add_tail(&g->link, &u->groups);
	return 0;

close_socket:
	sys_close(g->sock);
free_group:
	free(g);
	return rc;
}

void udp_leave(struct port *p, const struct pkt_addr *group)
{
	struct udp_port *u = udp_port(p);
	struct udp_mcast *g, *next;

	list_for_each_entry_safe (g, next, &u->groups, link) {
		if (!pkt_addr_eq(&g->addr, group))
			continue;
		list_del(&g->link);
		/*
		 * A forked child may have a copy of the descriptor; without the removal, epoll
		 * would still report it.
		 */
		sys_epoll_ctl(u->groups_epoll, EPOLL_CTL_DEL, g->sock, NULL);
		sys_close(g->sock);
		free(g);
		close_epoll(u);
		return;
	}
}

struct udp_mcast *udp_mcast_ready(struct udp_port *u)
{
	struct epoll_event ev;

	return sys_epoll_wait(u->groups_epoll, &ev, 1, 0) == 1 ? ev.data.ptr : NULL;
}

/*
 * This is also called in a forked child: entries of the epoll sets belong to the parent and must
 * stay.
 */
void udp_mcast_close(struct udp_port *u)
{
	struct udp_mcast *g, *next;

	list_for_each_entry_safe (g, next, &u->groups, link) {
		sys_close(g->sock);
		free(g);
	}
	list_init(&u->groups);
	if (u->groups_epoll >= 0)
		sys_close(u->groups_epoll);
	u->groups_epoll = -1;
}
