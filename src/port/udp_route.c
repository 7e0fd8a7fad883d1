/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Addresses without a route. QP 1 answers each forged REQ. An answer to an address without a route
 * ends a call that sends many, and a look for errors follows: two system calls for each REQ, 30% of
 * the CPU time of the service thread in a flood. So after some such failures the port reads the
 * routes of this network namespace, and refuses further answers to addresses that none of them
 * covers.
 *
 * An address is refused only if no route of any table covers it. Rules and devices select among
 * these tables, so a destination that Linux can reach is never refused. If the routes are not known
 * completely, no address is refused.
 */
#include <errno.h>
#include <linux/rtnetlink.h>
#include <string.h>

#include "base/netlink.h"
#include "port/udp.h"

/* After this many failures in a slice of this time, the routes are read, once in the slice. */
#define FAILED_MOST 64
#define SLICE_NS    100000000u

#define READ_MOST 1024 /* routes; more of them take too long to read */

/* ---- the prefixes ---- */

/* Returns the number of first bits that two addresses have in common. */
static unsigned common_bits(const struct pkt_addr *a, const struct pkt_addr *b)
{
	for (unsigned i = 0; i < sizeof(a->b); i++) {
		unsigned differ = a->b[i] ^ b->b[i];

		if (differ)
			return 8 * i + (unsigned)__builtin_clz(differ) - 24;
	}
	return 8 * sizeof(a->b);
}

static bool covers(const struct udp_prefix *p, const struct pkt_addr *a)
{
	return common_bits(&p->addr, a) >= p->len;
}

static bool is_covered(const struct udp_routes *r, const struct pkt_addr *a, unsigned most)
{
	for (unsigned i = 0; i < r->count; i++) {
		if (r->prefix[i].len <= most && covers(&r->prefix[i], a))
			return true;
	}
	return false;
}

/*
 * Makes a prefix so short that it covers the nearest other one. It then covers addresses without a
 * route, too, whose answers are sent in vain.
 */
static void widen(const struct udp_routes *r, struct udp_prefix *p)
{
	unsigned most = 0;

	for (unsigned i = 0; i < r->count; i++) {
		unsigned n = common_bits(&p->addr, &r->prefix[i].addr);

		most = n > most ? n : most;
	}
	p->len = (uint8_t)most;
}

/* Adds a prefix in place of those that it covers. */
static void add_prefix(struct udp_routes *r, struct udp_prefix p)
{
	unsigned kept = 0;

	if (is_covered(r, &p.addr, p.len))
		return;
	if (r->count == UDP_PREFIXES)
		widen(r, &p);
	for (unsigned i = 0; i < r->count; i++) {
		if (!covers(&p, &r->prefix[i].addr))
			r->prefix[kept++] = r->prefix[i];
	}
	r->count = kept;
	r->prefix[r->count++] = p;
}

/* ---- the list of routes (rtnetlink(7)) ---- */

struct reader {
	struct udp_port *u;
	unsigned routes; /* read so far */
};

/* Returns false for a route that says that there is none. */
static bool is_usable(unsigned type)
{
	return type != RTN_BLACKHOLE && type != RTN_UNREACHABLE && type != RTN_PROHIBIT &&
	       type != RTN_THROW;
}

static int read_route(void *ctx, const struct nlmsghdr *h)
{
	struct reader *r = ctx;
	const struct rtmsg *m = NLMSG_DATA(h);
	struct udp_prefix p = {.len = 0};
	unsigned skip = r->u->v6 ? 0 : 12, bytes;
	const void *dst;
	size_t len;

	if (h->nlmsg_type != RTM_NEWROUTE || h->nlmsg_len < NLMSG_LENGTH(sizeof(*m)))
		return -EPROTO;
	if (++r->routes > READ_MOST)
		return -E2BIG;
	if (m->rtm_family != (r->u->v6 ? AF_INET6 : AF_INET) || !is_usable(m->rtm_type))
		return 0;
	bytes = (m->rtm_dst_len + 7u) / 8;
	if (skip + bytes > sizeof(p.addr.b))
		return -EPROTO;
	if (skip)
		memset(p.addr.b + 10, 0xff, 2);
	p.len = (uint8_t)(8 * skip + m->rtm_dst_len);
	dst = netlink_attr(h, sizeof(*m), RTA_DST, bytes, &len);
	if (bytes && !dst)
		return -EPROTO;
	if (bytes)
		memcpy(p.addr.b + skip, dst, bytes);
	add_prefix(&r->u->routes, p);
	return m->rtm_dst_len == 0; /* a default route covers all others */
}

/* Returns 0 if the list is complete as far as it is needed, or -errno. */
static int list_routes(struct udp_port *u)
{
	struct {
		struct nlmsghdr head;
		struct rtmsg msg;
	} q = {.head = {.nlmsg_len = sizeof(q),
			.nlmsg_type = RTM_GETROUTE,
			.nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP},
	       .msg = {.rtm_family = u->v6 ? AF_INET6 : AF_INET}};
	struct reader r = {.u = u};

	u->routes.count = 0;
	return netlink_list(NETLINK_ROUTE, &q.head, read_route, &r);
}

/*
 * Returns false if the list may be that of another network namespace: a thread may have entered one
 * after the port was opened.
 */
static bool is_ours(const struct udp_port *u)
{
	return is_covered(&u->routes, &u->port.addr, 8 * sizeof(u->port.addr.b));
}

/* ---- the policy ---- */

static bool is_over(const struct udp_routes *r)
{
	return port_clock(NULL) - r->since >= SLICE_NS;
}

void udp_route_failed(struct udp_port *u)
{
	struct udp_routes *r = &u->routes;

	if (is_over(r)) {
		r->since = port_clock(NULL);
		r->failed = 0;
	}
	if (++r->failed == FAILED_MOST)
		r->known = list_routes(u) == 0 && is_ours(u);
}

bool udp_route_may_exist(const struct udp_port *u, const struct pkt_addr *dst)
{
	const struct udp_routes *r = &u->routes;

	return r->failed < FAILED_MOST || !r->known || is_over(r) ||
	       is_covered(r, dst, 8 * sizeof(dst->b));
}
