/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Addresses and ports: conversion of socket addresses, the device's address for an id, and the port
 * numbers in use.
 */
#include <string.h>

#include "base/sys.h"
#include "rdmacm/rdmacm.h"

/* The default range of Linux (net.ipv4.ip_local_port_range). */
#define EPHEMERAL_FIRST 32768u
#define EPHEMERAL_COUNT 28232u

/* ---- socket addresses ---- */

int rdmacm_addr_from(const struct sockaddr *sa, struct pkt_addr *addr, uint16_t *port)
{
	const struct sockaddr_in *in = (const void *)sa;
	const struct sockaddr_in6 *in6 = (const void *)sa;

	if (!sa)
		return -EINVAL;
	switch (sa->sa_family) {
	case AF_INET:
		memset(addr->b, 0, 10);
		memset(addr->b + 10, 0xff, 2);
		memcpy(addr->b + 12, &in->sin_addr, 4);
		*port = be16toh(in->sin_port);
		return 0;
	case AF_INET6:
		memcpy(addr->b, &in6->sin6_addr, 16);
		*port = be16toh(in6->sin6_port);
		return 0;
	default:
		return -EAFNOSUPPORT;
	}
}

void rdmacm_addr_to(const struct pkt_addr *addr, uint16_t port, struct sockaddr_storage *sa)
{
	struct sockaddr_in *in = (void *)sa;
	struct sockaddr_in6 *in6 = (void *)sa;

	memset(sa, 0, sizeof(*sa));
	if (pkt_addr_is_v4(addr)) {
		in->sin_family = AF_INET;
		in->sin_port = htobe16(port);
		memcpy(&in->sin_addr, addr->b + 12, 4);
	} else {
		in6->sin6_family = AF_INET6;
		in6->sin6_port = htobe16(port);
		memcpy(&in6->sin6_addr, addr->b, 16);
	}
}

bool rdmacm_addr_is_any(const struct sockaddr *sa)
{
	const struct sockaddr_in6 *in6 = (const void *)sa;

	if (sa->sa_family == AF_INET)
		return ((const struct sockaddr_in *)(const void *)sa)->sin_addr.s_addr == 0;
	return IN6_IS_ADDR_UNSPECIFIED(&in6->sin6_addr);
}

socklen_t rdmacm_addr_len(const struct sockaddr *sa)
{
	return sa->sa_family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
}

static __be16 *port_field(struct sockaddr_storage *sa)
{
	/* sin_port and sin6_port have the same offset */
	return &((struct sockaddr_in *)(void *)sa)->sin_port;
}

ROOST_EXPORT __be16 rdma_get_src_port(struct rdma_cm_id *id)
{
	return *port_field(&id->route.addr.src_storage);
}

ROOST_EXPORT __be16 rdma_get_dst_port(struct rdma_cm_id *id)
{
	return *port_field(&id->route.addr.dst_storage);
}

/* ---- the device's addresses ---- */

/* Calls fn for each address of the device until fn returns true. */
static void each_gid(bool (*fn)(const struct pkt_addr *have, void *arg), void *arg)
{
	struct ibv_device_attr dev;
	struct ibv_port_attr attr;
	struct pkt_addr have;
	union ibv_gid gid;

	if (ibv_query_device(agent.verbs, &dev))
		return;
	for (uint8_t port = 1; port <= dev.phys_port_cnt; port++) {
		if (ibv_query_port(agent.verbs, port, &attr))
			continue;
		for (int i = 0; i < attr.gid_tbl_len; i++) {
			if (ibv_query_gid(agent.verbs, port, i, &gid))
				continue;
			memcpy(have.b, gid.raw, sizeof(have.b));
			if (fn(&have, arg))
				return;
		}
	}
}

static bool is_not_loopback(const struct pkt_addr *have, void *arg)
{
	*(bool *)arg = !pkt_addr_is_loopback(have);
	return *(bool *)arg;
}

/* Returns whether the device has an address that other hosts reach. */
static bool has_outside_addr(void)
{
	bool outside = false;

	if (agent.verbs)
		each_gid(is_not_loopback, &outside);
	return outside;
}

static bool is_ours(const struct pkt_addr *addr)
{
	struct drive_addr where;

	return agent.verbs && drive_find_addr(agent.drive, addr, &where);
}

/*
 * The loopback interface has no NIC, and the Linux kernel binds its addresses like a wildcard
 * (drivers/infiniband/core/cma.c, cma_any_addr): libfabric binds localhost to find a NIC. This
 * library does the same if other hosts reach the NIC, unless the NIC has the address. Lock held.
 */
static bool has_no_device(const struct sockaddr *sa)
{
	struct pkt_addr addr;
	uint16_t port;

	return !rdmacm_addr_from(sa, &addr, &port) && pkt_addr_is_loopback(&addr) &&
	       has_outside_addr() && !is_ours(&addr);
}

struct nearest {
	const struct pkt_addr *target;
	struct pkt_addr *best;
	int common; /* length of the common prefix in bits; -1: none found */
};

static int common_bits(const struct pkt_addr *a, const struct pkt_addr *b)
{
	int n = 0;

	while (n < 128 && !((a->b[n / 8] ^ b->b[n / 8]) & 0x80 >> n % 8))
		n++;
	return n;
}

static bool is_nearest(const struct pkt_addr *have, void *arg)
{
	struct nearest *n = arg;

	if (pkt_addr_is_v4(have) == pkt_addr_is_v4(n->target) &&
	    common_bits(have, n->target) > n->common) {
		n->common = common_bits(have, n->target);
		*n->best = *have;
	}
	return n->common == 128;
}

/*
 * Chooses the address with the longest common prefix, because the NIC has few addresses and no
 * routes.
 */
int rdmacm_source_for(const struct pkt_addr *like, struct pkt_addr *src)
{
	struct nearest n = {like, src, -1};

	each_gid(is_nearest, &n);
	return n.common < 0 ? -ENETUNREACH : 0;
}

static uint8_t mtu_code(uint32_t bytes)
{
	uint8_t code = IBV_MTU_256;

	while (code < IBV_MTU_4096 && 256u << code <= bytes)
		code++;
	return code;
}

int rdmacm_attach(struct rdmacm_id *id)
{
	struct rdma_ib_addr *ib = &id->id.route.addr.addr.ibaddr;
	struct drive_addr where;

	if (!drive_find_addr(agent.drive, &id->src, &where))
		return -EADDRNOTAVAIL;
	id->id.port_num = where.port_num;
	id->gid_index = where.gid_index;
	id->mtu = mtu_code(where.mtu);
	memcpy(ib->sgid.raw, id->src.b, sizeof(ib->sgid.raw));
	ib->pkey = htobe16(PKT_PKEY_DEFAULT);
	id->id.verbs = agent.verbs;
	id->id.pd = agent.pd;
	return 0;
}

/* ---- ports ---- */

struct list_head *rdmacm_port_bucket(uint16_t port)
{
	return &agent.ports[port % RDMACM_PORT_BUCKETS];
}

/* Returns whether there is an address on which both ids would listen. */
static bool overlap(const struct rdmacm_id *a, const struct rdmacm_id *b)
{
	const struct sockaddr *sa = &a->id.route.addr.src_addr, *sb = &b->id.route.addr.src_addr;

	if (sa->sa_family != sb->sa_family) {
		/* A wildcard of IPv6 includes IPv4, unless af_only is set. */
		const struct rdmacm_id *six = sa->sa_family == AF_INET6 ? a : b;

		return six->any && !six->af_only;
	}
	return a->any || b->any || pkt_addr_eq(&a->src, &b->src);
}

bool rdmacm_port_conflicts(const struct rdmacm_id *id, uint16_t port, bool reuse)
{
	struct rdmacm_id *other;

	list_for_each_entry (other, rdmacm_port_bucket(port), port_link) {
		if (other != id && other->port == port && other->id.ps == id->id.ps &&
		    !(reuse && other->reuse_addr && other->state != RDMACM_LISTEN) &&
		    overlap(id, other))
			return true;
	}
	return false;
}

int rdmacm_port_take(struct rdmacm_id *id, uint16_t port)
{
	if (port == 0) {
		uint32_t first, n = 0;
		int rc = rdmacm_draw(EPHEMERAL_COUNT, &first);

		if (rc)
			return rc;
		do {
			if (n == EPHEMERAL_COUNT)
				return -EADDRNOTAVAIL;
			port = (uint16_t)(EPHEMERAL_FIRST + (first + n++) % EPHEMERAL_COUNT);
		} while (rdmacm_port_conflicts(id, port, false));
	} else if (rdmacm_port_conflicts(id, port, id->reuse_addr)) {
		return -EADDRINUSE;
	}
	id->port = port;
	*port_field(&id->id.route.addr.src_storage) = htobe16(port);
	list_add(&id->port_link, rdmacm_port_bucket(port));
	return 0;
}

void rdmacm_port_release(struct rdmacm_id *id)
{
	if (list_linked(&id->port_link))
		list_del(&id->port_link);
}

/* Returns net.ipv6.bindv6only, the default of a new socket. */
static bool system_af_only(void)
{
	int fd = sys_socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0), only = 0;
	socklen_t len = sizeof(only);

	if (fd < 0)
		return false;
	sys_getsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &only, &len);
	sys_close(fd);
	return only;
}

int rdmacm_bind(struct rdmacm_id *id, const struct sockaddr *sa)
{
	struct rdma_addr *a = &id->id.route.addr;
	uint16_t port;
	int ret;

	if (id->state != RDMACM_IDLE)
		return -EINVAL;
	ret = rdmacm_addr_from(sa, &id->src, &port);
	if (ret)
		return ret;
	id->any = rdmacm_addr_is_any(sa) || has_no_device(sa);
	if (!id->any) {
		ret = rdmacm_attach(id);
		if (ret)
			return ret;
	}
	memcpy(&a->src_storage, sa, rdmacm_addr_len(sa));
	if (sa->sa_family == AF_INET6 && !id->af_only_set)
		id->af_only = system_af_only();
	ret = rdmacm_port_take(id, port);
	if (ret) {
		memset(&a->src_storage, 0, sizeof(a->src_storage));
		id->id.verbs = NULL;
		return ret;
	}
	id->state = RDMACM_BOUND;
	return 0;
}

ROOST_EXPORT int rdma_bind_addr(struct rdma_cm_id *id, struct sockaddr *addr)
{
	bool none;
	int ret;

	if (!addr)
		return rdmacm_ret(-EINVAL);
	rdmacm_lock();
	none = has_no_device(addr);
	rdmacm_unlock();
	ret = rdmacm_agent_open_for(rdmacm_id(id), none ? NULL : addr);
	if (ret)
		return rdmacm_ret(ret);
	rdmacm_lock();
	ret = rdmacm_bind(rdmacm_id(id), addr);
	rdmacm_unlock();
	return rdmacm_ret(ret);
}
