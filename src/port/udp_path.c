/* SPDX-License-Identifier: BSD-2-Clause */
/* Destinations of the udp port: one object for each address and slot. */
#include "port/udp.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/sys.h"

socklen_t udp_name(union udp_name *n, const struct pkt_addr *addr, uint16_t port, uint32_t scope)
{
	memset(n, 0, sizeof(*n));
	if (pkt_addr_is_v4(addr)) {
		n->v4.sin_family = AF_INET;
		n->v4.sin_port = htons(port);
		memcpy(&n->v4.sin_addr, addr->b + 12, 4);
		return sizeof(n->v4);
	}
	n->v6.sin6_family = AF_INET6;
	n->v6.sin6_port = htons(port);
	memcpy(&n->v6.sin6_addr, addr->b, 16);
	if (IN6_IS_ADDR_LINKLOCAL(&n->v6.sin6_addr) || IN6_IS_ADDR_MC_LINKLOCAL(&n->v6.sin6_addr) ||
	    IN6_IS_ADDR_MC_NODELOCAL(&n->v6.sin6_addr))
		n->v6.sin6_scope_id = scope;
	return sizeof(n->v6);
}

void udp_addr(const union udp_name *n, struct pkt_addr *addr, uint16_t *port)
{
	if (n->sa.sa_family == AF_INET) {
		memset(addr->b, 0, 10);
		memset(addr->b + 10, 0xff, 2);
		memcpy(addr->b + 12, &n->v4.sin_addr, 4);
		*port = ntohs(n->v4.sin_port);
	} else {
		memcpy(addr->b, &n->v6.sin6_addr, 16);
		*port = ntohs(n->v6.sin6_port);
	}
}

bool udp_is_unicast(const struct pkt_addr *a)
{
	static const struct pkt_addr none6,
		broadcast4 = {{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 255, 255, 255, 255}};

	if (pkt_addr_is_v4(a))
		return a->b[12] != 0 && !pkt_addr_is_group(a) && !pkt_addr_eq(a, &broadcast4);
	return !pkt_addr_is_group(a) && !pkt_addr_eq(a, &none6);
}

/*
 * Checks whether there is a route to an address. It connects a socket, which sends nothing. Returns
 * 0 and the MTU of the path, or -errno.
 */
static int probe_path(const struct udp_port *u, const struct pkt_addr *dst, uint32_t *mtu)
{
	union udp_name us, them;
	socklen_t len = udp_name(&us, &u->port.addr, 0, u->scope), n = sizeof(int);
	int value = 0, rc, fd;

	udp_name(&them, dst, PKT_UDP_PORT, u->scope);
	fd = sys_socket(us.sa.sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return fd;
	rc = sys_bind(fd, &us.sa, len);
	if (!rc && pkt_addr_is_group(dst))
		rc = udp_mcast_out(u, fd);
	if (!rc)
		rc = sys_connect(fd, &them.sa, len);
	if (!rc &&
	    !sys_getsockopt(fd, u->v6 ? SOL_IPV6 : SOL_IP, u->v6 ? IPV6_MTU : IP_MTU, &value, &n) &&
	    value > 0)
		*mtu = (uint32_t)value;
	sys_close(fd);
	/* Linux returns EINVAL for a route from a loopback address to another machine. */
	return rc == -EINVAL ? -ENETUNREACH : rc;
}

/* Prepares a path that also carries packets to other QPs than QP 1. Returns 0 or -errno. */
static int probe(struct udp_port *u, struct udp_path *path)
{
	int rc = path->probed ? 0 : probe_path(u, &path->path.dst, &path->mtu);

	if (!rc && !path->probed && pkt_addr_is_group(&path->path.dst))
		rc = udp_mcast_out(u, u->out);
	path->probed |= rc == 0;
	path->joins = path->probed && udp_join_path(u, path);
	return rc;
}

/*
 * QP 1 answers each forged address of this machine. More lists of sockets than this in this time
 * would take the core from others, and so would more answers to addresses without a reader: the
 * kernel makes an ICMP error for each, which costs as much as two answers.
 */
#define SEARCHES_MOST 4
#define ABSENT_MOST   PORT_HINTS
#define GSI_SLICE_NS  100000000u

/*
 * A question costs 2 us, more than to receive the request, and half of the CPU time of a flood. So
 * after this many questions in this time, one list of the sockets tells which addresses have no
 * reader. The kernel is only asked for the others.
 */
#define QUESTIONS_MOST 1024

static void count_gsi(struct udp_port *u)
{
	uint64_t now = port_clock(NULL);

	if (now - u->gsi_since < GSI_SLICE_NS)
		return;
	u->gsi_since = now;
	u->searches = u->no_reader = u->questions = 0;
	u->listed = false;
}

/* The reader at an address, as far as it decides the source port of packets. */
enum reader {
	READER_REMOTE_OR_OURS, /* on another machine, or in this pool */
	READER_FOREIGN,	       /* another user's port, or a program outside of the pool */
	READER_ABSENT,
};

/* Returns whether a program outside of this pool may read at an address of this machine. */
static bool may_be_foreign(const struct udp_port *u, const struct pkt_addr *dst)
{
	return pkt_addr_is_loopback(dst) && !pool_serves(u->pool, dst, u->scope);
}

/* Returns false if QP 1 must take an address for one without a reader, without a question. */
static bool may_ask(struct udp_port *u, const struct pkt_addr *dst)
{
	bool refused = u->diag_tried && u->diag < 0; /* a question makes no system call */

	if (refused || u->questions++ < QUESTIONS_MOST)
		return true;
	if (!u->listed)
		udp_readers_list(u);
	u->listed = true;
	return udp_readers_may_have(u, dst);
}

void udp_expect(struct port *p, const struct pkt_addr *dst, unsigned n)
{
	struct udp_port *u = udp_port(p);
	struct pkt_addr absent[UDP_EXPECT_MAX];
	unsigned num_absent = 0;

	u->num_found = 0;
	if (n)
		count_gsi(u);
	for (unsigned i = 0; i < n && i < UDP_EXPECT_MAX; i++) {
		if (pkt_addr_is_v4(&dst[i]) == u->v6 || !may_be_foreign(u, &dst[i]))
			continue;
		if (may_ask(u, &dst[i]))
			u->found[u->num_found++].addr = dst[i];
		else
			absent[num_absent++] = dst[i];
	}
	if (u->num_found)
		udp_diag_all(u, u->found, u->num_found);
	for (unsigned i = 0; i < num_absent; i++)
		u->found[u->num_found++] = (struct udp_found){absent[i], UDP_ABSENT};
}

/* Returns what udp_expect() has found. */
static enum udp_presence expected(const struct udp_port *u, const struct pkt_addr *dst)
{
	for (unsigned i = 0; i < u->num_found; i++) {
		if (pkt_addr_eq(&u->found[i].addr, dst))
			return u->found[i].there;
	}
	return UDP_UNKNOWN;
}

/* Finds out who reads at an address. If this is unknown for QP 1, the result is READER_FOREIGN. */
static enum reader find_reader(struct udp_port *u, const struct pkt_addr *dst, bool gsi)
{
	enum udp_presence there = gsi ? expected(u, dst) : UDP_UNKNOWN;

	if (there == UDP_UNKNOWN) {
		if (!may_be_foreign(u, dst))
			return READER_REMOTE_OR_OURS;
		if (gsi)
			count_gsi(u);
		there = !gsi || may_ask(u, dst) ? udp_diag(u, dst) : UDP_ABSENT;
	}
	if (there == UDP_UNKNOWN && (!gsi || u->searches++ < SEARCHES_MOST))
		there = udp_reader_is_there(u, dst) ? UDP_PRESENT : UDP_ABSENT;
	return there == UDP_ABSENT ? READER_ABSENT : READER_FOREIGN;
}

/* Makes a path. Returns NULL with errno set if there is no route or no memory. */
static struct udp_path *make_path(struct udp_port *u, const struct pkt_addr *dst, unsigned slot,
				  bool gsi, bool foreign)
{
	struct udp_path *path = calloc(1, sizeof(*path));
	int rc;

	if (!path)
		return NULL;
	port_path_init(&path->path, &u->port, dst, foreign ? PKT_UDP_PORT : u->sport);
	path->sock = foreign ? pool_addr_sender(u->pool_addr, u->port.slot) : u->out;
	path->slot = (uint8_t)slot;
	path->gsi = path->no_gso = gsi;
	rc = gsi ? 0 : probe(u, path);
	if (rc) {
		free(path);
		errno = -rc;
		return NULL;
	}
	udp_name(&path->name, dst, PKT_UDP_PORT, u->scope);
	icrc_flow_init(&path->flow, &u->port.addr, dst, path->path.sport, PKT_UDP_PORT);
	list_add_tail(&path->link, &u->paths);
	return path;
}

/*
 * Packets leave from the source port of this lane. Over loopback, however, a port accepts only
 * packets of its own pool and packets from port 4791 (udp_rx.c), so packets to a port of another
 * user leave from port 4791. Packets to QP 1 also leave from it if the reader is unknown: each
 * reader accepts them, but this lane receives no ICMP error if there is no reader.
 *
 * The source port does not change during the life of a path, since the core computes ICRCs with it.
 * So each call looks for the reader anew: another user's program may have started at the address
 * since the path was made, or ended. The packets to it then need another path.
 */
struct port_path *udp_path_get(struct port *p, const struct pkt_addr *dst, uint32_t dqpn)
{
	struct udp_port *u = udp_port(p);
	/*
	 * Linux steers a group by its first packet, so packets for different slots must not
	 * share one.
	 */
	unsigned slot = PORT_SLOT_OF_QPN(dqpn);
	/*
	 * Anybody may send to QP 1, from addresses that no host has, and QP 1 answers. So for
	 * addresses other than loopback, no system call is made before the send itself.
	 */
	bool gsi = dqpn == PKT_GSI_QPN;
	struct udp_path *path;
	enum reader reader;
	uint16_t sport;
	int rc = 0;

	if (pkt_addr_is_v4(dst) == u->v6 || (!udp_is_unicast(dst) && !pkt_addr_is_group(dst))) {
		errno = pkt_addr_is_v4(dst) == u->v6 ? EAFNOSUPPORT : EINVAL;
		return NULL;
	}
	reader = find_reader(u, dst, gsi);
	sport = reader == READER_FOREIGN ? PKT_UDP_PORT : u->sport;
	list_for_each_entry (path, &u->paths, link) {
		if (!pkt_addr_eq(&path->path.dst, dst) || path->slot != slot || path->gsi != gsi ||
		    path->path.sport != sport)
			continue;
		if (!gsi)
			rc = probe(u, path);
		if (rc) {
			errno = -rc;
			return NULL;
		}
		path->refs++;
		return &path->path;
	}
	if (gsi && reader == READER_ABSENT && u->no_reader++ >= ABSENT_MOST) {
		errno = EHOSTUNREACH;
		return NULL;
	}
	if (gsi && !udp_route_may_exist(u, dst)) {
		errno = ENETUNREACH;
		return NULL;
	}
	path = make_path(u, dst, slot, gsi, reader == READER_FOREIGN);
	if (!path)
		return NULL;
	path->refs = 1;
	return &path->path;
}

void udp_path_put(struct port *p, struct port_path *base)
{
	struct udp_path *path = (struct udp_path *)base;

	if (--path->refs)
		return;
	udp_tx_forget(udp_port(p), path);
	list_del(&path->link);
	free(path);
}

/*
 * The interface of the address limits packets to other machines, but not those to programs of this
 * machine: they take rings, or loopback, whose MTU is large. Connected QPs between host ports of
 * one pool therefore use the larger `local_mtu`, if their programs state the MTU that both ports
 * report. A smaller one is a choice of the programs, and is kept.
 *
 * Both ends must come to the same result, because each PSN stands for one MTU of a READ response.
 * So the result depends only on what the pool says about the two ports, which stays the same while
 * their programs live. It does not depend on the way that the packets take.
 */
uint32_t udp_qp_mtu(struct port *p, const struct pkt_addr *dst, uint32_t dqpn, uint32_t mtu)
{
	struct udp_port *u = udp_port(p);
	struct pool_socket peer;
	uint32_t local;

	if (!u->local_mtu || !pool_find(u->pool, dst, u->scope, PORT_SLOT_OF_QPN(dqpn), &peer) ||
	    mtu != (peer.mtu < p->mtu ? peer.mtu : p->mtu))
		return mtu;
	local = peer.local_mtu < u->local_mtu ? peer.local_mtu : u->local_mtu;
	return local > mtu && is_pow2(local) ? local : mtu;
}

void udp_path_warn(struct udp_port *u, struct udp_path *path, int rc, uint32_t len)
{
	uint32_t overhead = (u->v6 ? 40 : 20) + 8, fit = 0;
	char us[64], them[64];

	if (path->error_logged || !path->probed)
		return;
	path->error_logged = true;
	pkt_addr_print(&u->port.addr, us, sizeof(us));
	pkt_addr_print(&path->path.dst, them, sizeof(them));
	/* Linux may have learned a new MTU of the path. */
	if (rc == -EMSGSIZE && !probe_path(u, &path->path.dst, &path->mtu) && path->mtu > overhead)
		fit = port_mtu_fit(path->mtu - overhead, 0);
	if (fit)
		log_warn(
			"udp: packets of %u bytes do not fit on the way from %s to %s: choose a smaller "
			"MTU, as in --port udp:%s,mtu=%u",
			len, us, them, us, fit);
	else
		log_warn("udp: %s can't send to %s: %s", us, them, strerror(-rc));
}

void udp_path_too_long(struct udp_port *u, const struct pkt_addr *dst, uint32_t mtu)
{
	uint32_t overhead = (u->v6 ? 40 : 20) + 8,
		 fit = mtu > overhead ? port_mtu_fit(mtu - overhead, 0) : 0;
	struct udp_path *path;
	char us[64], them[64];

	list_for_each_entry (path, &u->paths, link) {
		if (path->mtu_logged || fit >= u->port.mtu || !pkt_addr_eq(&path->path.dst, dst))
			continue;
		path->mtu_logged = true;
		pkt_addr_print(&u->port.addr, us, sizeof(us));
		pkt_addr_print(dst, them, sizeof(them));
		if (fit)
			log_warn(
				"udp: an ICMP error says that packets from %s to %s get lost if they are longer than "
				"%u bytes. If this is true, connections fail: choose a smaller MTU, as in --port "
				"udp:%s,mtu=%u",
				us, them, mtu, us, fit);
		return;
	}
}
