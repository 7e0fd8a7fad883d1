/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Resolves the address and route of a connection. The NIC needs neither ARP nor a subnet manager,
 * so the results are known at once. The program gets them as events nevertheless.
 */
#include <ifaddrs.h>
#include <net/if.h>
#include <string.h>

#include "base/sys.h"
#include "rdmacm/rdmacm.h"

/* Values of a path record: "exactly", and four lanes of 10 Gbit/s, as ibv_query_port() reports. */
#define SELECT_EQUAL	 2
#define RATE_40_GBPS	 7
#define PACKET_LIFE_TIME 18
#define LID_PERMISSIVE	 0xffff

void rdmacm_set_path(struct rdmacm_id *id)
{
	struct ibv_sa_path_rec *p = &id->path;
	memset(p, 0, sizeof(*p));
	memcpy(p->sgid.raw, id->src.b, sizeof(p->sgid.raw));
	memcpy(p->dgid.raw, id->dst.b, sizeof(p->dgid.raw));
	p->slid = p->dlid = htobe16(LID_PERMISSIVE);
	p->hop_limit = RDMACM_HOP_LIMIT;
	p->traffic_class = id->tos;
	p->reversible = 1;
	p->numb_path = 1;
	p->pkey = htobe16(PKT_PKEY_DEFAULT);
	p->mtu_selector = SELECT_EQUAL;
	p->mtu = id->mtu;
	p->rate_selector = SELECT_EQUAL;
	p->rate = RATE_40_GBPS;
	p->packet_life_time_selector = SELECT_EQUAL;
	p->packet_life_time = id->ack_timeout ? (uint8_t)(id->ack_timeout - 1) : PACKET_LIFE_TIME;
	memcpy(id->id.route.addr.addr.ibaddr.dgid.raw, id->dst.b, sizeof(p->dgid.raw));
	id->id.route.path_rec = p;
	id->id.route.num_paths = 1;
}

/*
 * Returns the service id. The port space is in the upper bits, as in annex A11 and in the Linux
 * kernel (rdma_get_service_id).
 */
uint64_t rdmacm_service_id(const struct rdmacm_id *id, uint16_t port)
{
	return (uint64_t)id->id.ps << 16 | port;
}

/*
 * Gets the source address of the machine's route to dst, by connecting a socket, which sends
 * nothing.
 */
static bool routed_source(const struct sockaddr *dst, struct sockaddr_storage *src)
{
	socklen_t len = sizeof(*src);
	int fd = sys_socket(dst->sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	bool ok;

	if (fd < 0)
		return false;
	ok = !sys_connect(fd, dst, rdmacm_addr_len(dst)) &&
	     !sys_getsockname(fd, (struct sockaddr *)src, &len);
	sys_close(fd);
	return ok;
}

/* Opens the source address of the machine's route to dst. Returns 0 or -errno. */
static int open_routed(struct rdmacm_id *id, const struct sockaddr *dst)
{
	struct sockaddr_storage routed;

	if (!routed_source(dst, &routed))
		return -ENETUNREACH;
	return rdmacm_agent_open_for(id, (struct sockaddr *)&routed);
}

/*
 * Opens the first IPv6 address of an interface: a container may have a network without a default
 * route.
 */
static int open_first_ipv6(struct rdmacm_id *id)
{
	int ret = -ENETUNREACH;
	struct ifaddrs *all;

	if (getifaddrs(&all))
		return -errno;
	for (const struct ifaddrs *i = all; i && ret; i = i->ifa_next) {
		const struct sockaddr_in6 *a = (const void *)i->ifa_addr;

		if (a && a->sin6_family == AF_INET6 && i->ifa_flags & IFF_UP &&
		    !(i->ifa_flags & IFF_LOOPBACK) && !IN6_IS_ADDR_LINKLOCAL(&a->sin6_addr))
			ret = rdmacm_agent_open_for(id, i->ifa_addr);
	}
	freeifaddrs(all);
	return ret;
}

void rdmacm_open_ipv6(struct rdmacm_id *id)
{
	/*
	 * An address that only the default route reaches: 2001:db8::/32 is not assigned (RFC 3849).
	 */
	static const struct sockaddr_in6 outside = {.sin6_family = AF_INET6,
						    .sin6_addr.s6_addr = {0x20, 0x01, 0x0d,
									  0xb8, [15] = 1}},
					 loopback = {.sin6_family = AF_INET6,
						     .sin6_addr = IN6ADDR_LOOPBACK_INIT};
	static const struct pkt_addr like = {.b = {0x20, 0x01}};
	struct pkt_addr have;

	if (rdmacm_source_for(&like, &have) == 0)
		return;
	if (open_routed(id, (const struct sockaddr *)&outside) && open_first_ipv6(id))
		open_routed(id, (const struct sockaddr *)&loopback);
}

/*
 * Opens the source address that the program names. If it names none, and the NIC has no address of
 * the destination's family (it starts with an IPv4 address), opens the source address of the
 * machine's route. If this fails, settle_source() reports the error.
 */
static int open_source(struct rdmacm_id *id, const struct sockaddr *src, const struct sockaddr *dst)
{
	struct pkt_addr addr, have;
	uint16_t port;
	int ret;

	if (src && src->sa_family != dst->sa_family) /* checked before an address is opened */
		return -EINVAL;
	ret = rdmacm_agent_open_for(id, src);
	if (ret || (src && !rdmacm_addr_is_any(src)) || rdmacm_addr_from(dst, &addr, &port))
		return ret;
	if (rdmacm_source_for(&addr, &have))
		open_routed(id, dst);
	return 0;
}

/*
 * Sets the source of the id: the program's address, the address that the id is bound to, or the
 * best address for dst.
 */
static int settle_source(struct rdmacm_id *id, const struct sockaddr *src,
			 const struct pkt_addr *dst)
{
	struct rdma_addr *a = &id->id.route.addr;
	struct sockaddr_storage any = {.ss_family = pkt_addr_is_v4(dst) ? AF_INET : AF_INET6};
	int ret = 0;

	if (id->state == RDMACM_IDLE)
		ret = rdmacm_bind(id, src ? src : (struct sockaddr *)&any);
	if (ret || !id->any)
		return ret;
	ret = rdmacm_source_for(dst, &id->src);
	if (ret == 0)
		ret = rdmacm_attach(id);
	if (ret)
		return ret;
	id->any = false;
	rdmacm_addr_to(&id->src, id->port, &a->src_storage);
	return 0;
}

static int resolve_addr(struct rdmacm_id *id, const struct sockaddr *src,
			const struct sockaddr *dst)
{
	struct rdma_addr *a = &id->id.route.addr;
	struct pkt_addr addr;
	uint16_t port;
	int ret = rdmacm_addr_from(dst, &addr, &port);

	if (ret)
		return ret;
	if ((id->state != RDMACM_IDLE && id->state != RDMACM_BOUND) ||
	    (id->state == RDMACM_BOUND && a->src_addr.sa_family != dst->sa_family))
		return -EINVAL;
	ret = settle_source(id, src, &addr);
	if (ret)
		return ret;
	id->dst = rdmacm_addr_is_any(dst) ? id->src : addr; /* a wildcard is this host */
	rdmacm_addr_to(&id->dst, port, &a->dst_storage);
	memcpy(a->addr.ibaddr.dgid.raw, id->dst.b, sizeof(id->dst.b));
	id->state = RDMACM_ADDR_RESOLVED;
	return rdmacm_event_simple(id, RDMA_CM_EVENT_ADDR_RESOLVED, 0);
}

ROOST_EXPORT int rdma_resolve_addr(struct rdma_cm_id *pub, struct sockaddr *src_addr,
				   struct sockaddr *dst_addr, int timeout_ms)
{
	struct rdmacm_id *id = rdmacm_id(pub);
	int ret = dst_addr ? open_source(id, src_addr, dst_addr) : -EINVAL;

	if (ret)
		return rdmacm_ret(ret);
	rdmacm_lock();
	ret = resolve_addr(id, src_addr, dst_addr);
	rdmacm_unlock();
	if (ret == 0)
		ret = rdmacm_complete(id);
	return rdmacm_ret(ret);
}

ROOST_EXPORT int rdma_resolve_route(struct rdma_cm_id *pub, int timeout_ms)
{
	struct rdmacm_id *id = rdmacm_id(pub);
	int ret = -EINVAL;

	rdmacm_lock();
	if (id->state == RDMACM_ADDR_RESOLVED) {
		rdmacm_set_path(id);
		id->state = RDMACM_ROUTE_RESOLVED;
		ret = rdmacm_event_simple(id, RDMA_CM_EVENT_ROUTE_RESOLVED, 0);
	}
	rdmacm_unlock();
	if (ret == 0)
		ret = rdmacm_complete(id);
	return rdmacm_ret(ret);
}
