/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * QP 1 answers requests from forged addresses. A send to an address without a route fails. After a
 * few such failures in 100 ms the port reads the routes, and makes no paths to addresses that no
 * route covers. An address with a route is never refused, nor is any address if the routes are not
 * known. The clock is the test's.
 *
 * Usage: test_port_udp_routes [6]
 */
#include "../common/network.h"
#include "rig.h"

#include <errno.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/sys.h"
#include "port/udp.h"

#define SLICE_NS 100000000u
#define TRIED	 64   /* answers in a slice that fail before the routes are read */
#define ANSWERS	 1000 /* more than any limit of the port */
#define OURS	 (v6 ? "fd77::1" : "10.77.0.1")
#define THERE	 (v6 ? "fd77::2" : "10.77.0.2")

static bool v6;
static struct port *p;

static uint64_t clock_ns = 1000000000;
uint64_t __wrap_port_clock(void *ctx);
uint64_t __wrap_port_clock(void *ctx)
{
	return clock_ns;
}

/* The lists of routes that were read, and the last socket for one. */
static unsigned lists;
static int list_fd = -1;
/* Set: Linux refuses a socket for lists, or the end of the list is cut. */
static bool no_lists, cut_lists;

int __real_sys_socket(int domain, int type, int protocol);
int __wrap_sys_socket(int domain, int type, int protocol);
int __wrap_sys_socket(int domain, int type, int protocol)
{
	if (domain != AF_NETLINK || protocol != NETLINK_ROUTE)
		return __real_sys_socket(domain, type, protocol);
	lists++;
	list_fd = no_lists ? -EPROTONOSUPPORT : __real_sys_socket(domain, type, protocol);
	return list_fd;
}

ssize_t __real_sys_read(int fd, void *buf, size_t len);
ssize_t __wrap_sys_read(int fd, void *buf, size_t len);
ssize_t __wrap_sys_read(int fd, void *buf, size_t len)
{
	ssize_t n = __real_sys_read(fd, buf, len);

	return fd == list_fd && cut_lists && n > 2 ? n / 2 | 1 : n;
}

static struct pkt_addr addr4_or_6(const char *text4, const char *text6)
{
	return rig_addr(v6 ? text6 : text4);
}

/* Returns an address without a route. */
static struct pkt_addr nobody(unsigned n)
{
	struct pkt_addr a = addr4_or_6("100.99.0.0", "fd99::");

	a.b[14] = (uint8_t)(n >> 8);
	a.b[15] = (uint8_t)n;
	return a;
}

/* Adds or removes a route, over the loopback interface if it is of type RTN_UNICAST. */
static void route(int request, const struct pkt_addr *dst, unsigned len, unsigned type)
{
	struct {
		struct nlmsghdr head;
		struct rtmsg msg;
		struct rtattr dst_head;
		uint8_t rest[16 + RTA_LENGTH(sizeof(int))];
	} q = {.head = {.nlmsg_type = (uint16_t)request, .nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK},
	       .msg = {.rtm_family = v6 ? AF_INET6 : AF_INET,
		       .rtm_dst_len = (uint8_t)len,
		       .rtm_table = RT_TABLE_MAIN,
		       .rtm_protocol = RTPROT_STATIC,
		       .rtm_scope = type == RTN_UNICAST ? RT_SCOPE_LINK : RT_SCOPE_UNIVERSE,
		       .rtm_type = (uint8_t)type}};
	unsigned skip = v6 ? 0 : 12, bytes = 16 - skip;
	struct rtattr *oif = (struct rtattr *)(q.rest + bytes);
	int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE),
	    lo = (int)if_nametoindex("lo");
	struct {
		struct nlmsghdr head;
		struct nlmsgerr err;
	} in;

	if (request == RTM_NEWROUTE)
		q.head.nlmsg_flags |= NLM_F_CREATE | NLM_F_EXCL;
	q.dst_head = (struct rtattr){.rta_len = (uint16_t)RTA_LENGTH(bytes), .rta_type = RTA_DST};
	memcpy(q.rest, dst->b + skip, bytes);
	q.head.nlmsg_len = (uint32_t)(NLMSG_LENGTH(sizeof(q.msg)) + RTA_LENGTH(bytes));
	if (type == RTN_UNICAST) {
		*oif = (struct rtattr){.rta_len = RTA_LENGTH(sizeof(lo)), .rta_type = RTA_OIF};
		memcpy(RTA_DATA(oif), &lo, sizeof(lo));
		q.head.nlmsg_len += (uint32_t)RTA_LENGTH(sizeof(lo));
	}
	assert_true(fd >= 0);
	assert_int_equal(send(fd, &q, q.head.nlmsg_len, 0), q.head.nlmsg_len);
	assert_true(recv(fd, &in, sizeof(in), 0) >= (ssize_t)sizeof(in));
	assert_int_equal(in.head.nlmsg_type, NLMSG_ERROR);
	if (in.err.error)
		fail_msg("route: %s", strerror(-in.err.error));
	close(fd);
}

static void add(const struct pkt_addr *dst, unsigned len, unsigned type)
{
	route(RTM_NEWROUTE, dst, len, type);
}

static void drop(const struct pkt_addr *dst, unsigned len, unsigned type)
{
	route(RTM_DELROUTE, dst, len, type);
}

/* QP 1 answers. Returns false if the port refuses to make a path. */
static bool answer(const struct pkt_addr *to)
{
	struct port_path *path = p->ops->path_get(p, to, PKT_GSI_QPN);

	if (!path) {
		assert_int_equal(errno, ENETUNREACH);
		return false;
	}
	assert_int_equal(rig_send(p, path, 64, 0, PKT_GSI_QPN, 0), 0);
	assert_true(p->ops->flush(p));
	p->ops->path_put(p, path);
	return true;
}

/* Answers an address with a route. The packet leaves. */
static void is_answered(const struct pkt_addr *to)
{
	uint64_t before = p->stats.tx_packets;

	assert_true(answer(to));
	assert_int_equal(p->stats.tx_packets, before + 1);
}

/* Returns the number of answers, of many to addresses without a route, that the port tried. */
static unsigned tried(void)
{
	unsigned n = 0;

	for (unsigned i = 0; i < ANSWERS; i++) {
		struct pkt_addr to = nobody(i);

		n += answer(&to);
	}
	return n;
}

static void next_slice(void)
{
	clock_ns += SLICE_NS;
}

static int open_ours(void **state)
{
	char spec[64];

	snprintf(spec, sizeof(spec), "udp:%s", OURS);
	p = rig_open(spec);
	next_slice();
	return 0;
}

/*
 * A few answers are tried in each slice, and one list is read. Packets to an address with a route
 * leave, before and after that.
 */
static void few_are_tried(void **state)
{
	struct pkt_addr there = rig_addr(THERE), somebody = nobody(7);

	for (unsigned slice = 0; slice < 3; slice++) {
		unsigned before = lists;
		uint64_t dropped = p->stats.tx_dropped;

		is_answered(&there);
		assert_int_equal(tried(), TRIED);
		assert_int_equal(p->stats.tx_dropped, dropped + TRIED);
		assert_int_equal(tried(), 0);
		is_answered(&there);
		assert_int_equal(lists, before + 1);
		assert_null(p->ops->path_get(p, &somebody, 0x111)); /* as without a flood */
		assert_int_equal(errno, ENETUNREACH);
		next_slice();
		is_answered(&there);
		assert_int_equal(lists, before + 1);
	}
}

/*
 * An address with a route is answered, at the ends of the prefix too. A route that appears during a
 * slice counts in the next one.
 */
static void routes_are_answered(void **state)
{
	struct pkt_addr net = addr4_or_6("100.99.32.0", "fd99:0:2000::"),
			first = addr4_or_6("100.99.32.1", "fd99:0:2000::1"),
			last = addr4_or_6("100.99.63.254", "fd99:0:3fff:ffff:ffff:ffff:ffff:fffe"),
			before =
				addr4_or_6("100.99.31.254", "fd99:0:1fff:ffff:ffff:ffff:ffff:ffff"),
			after = addr4_or_6("100.99.64.1", "fd99:0:4000::");
	unsigned len = v6 ? 35 : 19;

	for (unsigned i = 0; i < TRIED; i++)
		assert_true(answer(&before));
	assert_false(answer(&first));
	add(&net, len, RTN_UNICAST);
	assert_false(answer(&first));
	next_slice();
	for (unsigned i = 0; i < TRIED; i++)
		assert_true(answer(&before));
	is_answered(&first);
	is_answered(&last);
	assert_false(answer(&before));
	assert_false(answer(&after));
	drop(&net, len, RTN_UNICAST);
}

/* A route that says that there is none covers no address. One beside a default route does. */
static void reject_routes(void **state)
{
	struct pkt_addr all = addr4_or_6("0.0.0.0", "::"), net = nobody(0);

	add(&all, 0, RTN_UNREACHABLE);
	assert_int_equal(tried(), TRIED);
	drop(&all, 0, RTN_UNREACHABLE);
	next_slice();
	add(&all, 0, RTN_UNICAST);
	add(&net, v6 ? 64 : 16, RTN_PROHIBIT);
	assert_int_equal(tried(), ANSWERS);
	drop(&net, v6 ? 64 : 16, RTN_PROHIBIT);
	drop(&all, 0, RTN_UNICAST);
}

/* No address is refused if the routes cannot be read. */
static void unknown_routes(void **state)
{
	no_lists = true;
	assert_int_equal(tried(), ANSWERS);
	no_lists = false;
	next_slice();
	cut_lists = true;
	assert_int_equal(tried(), ANSWERS);
	cut_lists = false;
	next_slice();
	assert_int_equal(tried(), TRIED);
}

/* An address with a route of its own: number n of many. */
static struct pkt_addr host(unsigned n)
{
	struct pkt_addr a = addr4_or_6("100.98.0.0", "fd98::");

	a.b[14] = (uint8_t)(n >> 8);
	a.b[15] = (uint8_t)n;
	return a;
}

static void hosts(int request, unsigned first, unsigned end)
{
	for (unsigned n = first; n < end; n++) {
		struct pkt_addr a = host(n);

		route(request, &a, v6 ? 128 : 32, RTN_UNICAST);
	}
}

/*
 * Each of many routes is known; some addresses between them count as if they had one. Too many
 * routes are not read, and no address is refused.
 */
static void many_routes(void **state)
{
	hosts(RTM_NEWROUTE, 1, 400);
	assert_int_equal(tried(), TRIED);
	for (unsigned n = 1; n < 400; n++) {
		struct pkt_addr a = host(n);

		is_answered(&a);
	}
	next_slice();
	hosts(RTM_NEWROUTE, 400, 1100);
	assert_int_equal(tried(), ANSWERS);
	hosts(RTM_DELROUTE, 1, 1100);
}

/*
 * Nor is any if this thread has left the network of the port, so that the routes are those of
 * another one. The last test: the thread does not return.
 */
static void another_network(void **state)
{
	struct pkt_addr there = rig_addr(THERE);

	assert_int_equal(unshare(CLONE_NEWNET), 0);
	assert_int_equal(tried(), ANSWERS);
	is_answered(&there);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, open_ours, rig_close_all)

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		TEST(few_are_tried),  TEST(routes_are_answered), TEST(reject_routes),
		TEST(unknown_routes), TEST(many_routes),	 TEST(another_network),
	};

	v6 = argc > 1;
	if (!network_private()) {
		printf("skipped: no network of its own\n");
		return 77;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
