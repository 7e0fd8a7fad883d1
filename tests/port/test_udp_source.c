/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Any user of a machine may send from its loopback addresses, also from a peer's; only the peer's
 * port 4791 is not available. So the udp port drops packets from loopback with another source port,
 * before the core sees them. Addresses of other networks may send from any port.
 */
#include "../common/network.h"
#include "rig.h"

#include <errno.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "port/udp.h"

#define OTHER 65534 /* a user */

static bool private_net;

/* The port's clock, and the number of times that it read the list of sockets. */
static uint64_t clock_ns = 1000000000;
static unsigned lists_read;

uint64_t __wrap_port_clock(void *ctx);
uint64_t __wrap_port_clock(void *ctx)
{
	return clock_ns;
}

/* Added to the pool's clock. */
static uint64_t later_ms;

uint64_t __real_pool_clock_ms(void);
uint64_t __wrap_pool_clock_ms(void);
uint64_t __wrap_pool_clock_ms(void)
{
	return __real_pool_clock_ms() + later_ms;
}

int __real_sys_open(const char *path, int flags);
int __wrap_sys_open(const char *path, int flags);
int __wrap_sys_open(const char *path, int flags)
{
	lists_read += strncmp(path, "/proc/net/udp", strlen("/proc/net/udp")) == 0;
	return __real_sys_open(path, flags);
}

/* Set: the kernel refuses questions about sockets. */
static bool no_diag;

/* The socket for such questions, and the number of calls that asked by it. */
static int diag = -1;
static unsigned diag_writes;

ssize_t __real_sys_write(int fd, const void *buf, size_t len);
ssize_t __wrap_sys_write(int fd, const void *buf, size_t len);
ssize_t __wrap_sys_write(int fd, const void *buf, size_t len)
{
	diag_writes += fd == diag;
	return __real_sys_write(fd, buf, len);
}

int __real_sys_socket(int domain, int type, int protocol);
int __wrap_sys_socket(int domain, int type, int protocol);
int __wrap_sys_socket(int domain, int type, int protocol)
{
	if (no_diag && domain == AF_NETLINK)
		return -EPROTONOSUPPORT;
	if (domain != AF_NETLINK)
		return __real_sys_socket(domain, type, protocol);
	diag = __real_sys_socket(domain, type, protocol);
	return diag;
}

static int socket_at(const struct pkt_addr *addr, uint16_t port)
{
	union udp_name name;
	socklen_t len = udp_name(&name, addr, port, 0);
	int fd = socket(name.sa.sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	assert_true(fd >= 0);
	assert_int_equal(bind(fd, &name.sa, len), 0);
	return fd;
}

/* Sends packet n from that socket. Only its source port may be wrong. */
static void send_from(int fd, const struct port *to, uint32_t n)
{
	union udp_name from, name;
	socklen_t len = sizeof(from), to_len = udp_name(&name, &to->addr, PKT_UDP_PORT, 0);
	struct icrc_flow flow;
	struct pkt_addr src;
	uint8_t pkt[64];
	uint16_t port;

	assert_int_equal(getsockname(fd, &from.sa, &len), 0);
	udp_addr(&from, &src, &port);
	icrc_flow_init(&flow, &src, &to->addr, port, PKT_UDP_PORT);
	rig_build(pkt, sizeof(pkt), 5, n, &flow, 0);
	assert_int_equal(sendto(fd, pkt, sizeof(pkt), 0, &name.sa, to_len), sizeof(pkt));
}

/*
 * The first packet, sent from `other`, is dropped if it comes from loopback. A packet from 4791
 * arrives.
 */
static void check(const char *us, const char *them, bool heard)
{
	struct pkt_addr addr = rig_addr(them);
	struct port_pkt pkts[PORT_BURST];
	int other = socket_at(&addr, 0), right;
	char spec[80];
	struct port *p;

	snprintf(spec, sizeof(spec), "udp:%s", us);
	p = rig_open(spec);
	send_from(other, p, 0);
	if (heard) {
		assert_int_equal(rig_burst(p, pkts, PORT_BURST), 1);
		assert_int_equal(rig_psn(&pkts[0]), 0);
	}
	if (!pkt_addr_eq(&addr, &p->addr)) {
		right = socket_at(&addr, PKT_UDP_PORT);
		send_from(right, p, 1);
		assert_int_equal(rig_burst(p, pkts, PORT_BURST), 1);
		rig_check(p, &pkts[0], 5, 1);
		close(right);
	} else { /* this process has the only port 4791: check only that no packet comes */
		while (!p->stats.rx_bad)
			assert_int_equal(p->ops->rx_burst(p, pkts, PORT_BURST), 0);
	}
	assert_int_equal(p->stats.rx_bad, !heard);
	close(other);
	rig_close(p);
}

static void from_loopback(void **state)
{
	char us[40], them[40];

	snprintf(us, sizeof(us), "127.%d.%d.1", 1 + (getpid() >> 8) % 250, getpid() % 250);
	snprintf(them, sizeof(them), "127.%d.%d.2", 1 + (getpid() >> 8) % 250, getpid() % 250);
	check(us, them, false);
}

static void from_loopback_of_ipv6(void **state)
{
	if (!private_net)
		skip();
	check("::1", "::1", false);
}

static void from_elsewhere(void **state)
{
	if (!private_net)
		skip();
	check("10.77.0.1", "10.77.0.2", true);
}

/*
 * Sends packet n to the port as another user, from a source port of that address. Returns false if
 * no program of another user can be started here.
 */
static bool other_user_sends(const struct pkt_addr *from, uint16_t sport, const struct port *to,
			     uint32_t n)
{
	int status;
	pid_t pid;

	fflush(stdout);
	pid = fork();
	if (pid == 0) {
		if (setresuid(OTHER, OTHER, OTHER))
			_exit(255);
		send_from(socket_at(from, sport), to, n);
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	if (WEXITSTATUS(status) == 255)
		return false;
	assert_int_equal(WEXITSTATUS(status), 0);
	return true;
}

static void dropped(struct port *p, uint64_t bad)
{
	struct port_pkt pkts[PORT_BURST];

	for (int i = 0; p->stats.rx_bad < bad && i < RIG_WAIT_MS; i++) {
		assert_int_equal(p->ops->rx_burst(p, pkts, PORT_BURST), 0);
		usleep(1000);
	}
	assert_int_equal(p->stats.rx_bad, bad);
}

/*
 * Another user sends from the address of a program of the pool: from a port that no program has,
 * and from the source port of a program that has ended. The latter's own datagrams may be read a
 * little later, so that port is refused after ten seconds.
 */
static void another_user_in_a_programs_name(void **state)
{
	struct port *p, *gone;
	struct pkt_addr addr;
	struct port_path *path;
	struct port_pkt pkts[PORT_BURST];
	uint16_t sport;

#ifdef __SANITIZE_THREAD__ /* it ends a forked child of a process with threads */
	skip();
#endif
	if (!private_net)
		skip();
	p = rig_open("udp:127.0.82.1");
	gone = rig_open("udp:127.0.82.2");
	addr = gone->addr;
	path = gone->ops->path_get(gone, &p->addr, rig_qpn(p));
	sport = path->sport;
	assert_int_not_equal(sport, PKT_UDP_PORT);
	if (!other_user_sends(&addr, 0, p, 0)) {
		printf("SKIPPED: no program of another user can be started here\n");
		skip();
	}
	dropped(p, 1);
	assert_int_equal(rig_send(gone, path, 64, 0, rig_qpn(p), 1), 0);
	assert_true(gone->ops->flush(gone));
	assert_int_equal(rig_burst(p, pkts, PORT_BURST), 1);
	assert_int_equal(rig_send(gone, path, 64, 0, rig_qpn(p), 2), 0);
	assert_true(gone->ops->flush(gone));
	gone->ops->path_put(gone, path);
	rig_close(gone);
	assert_int_equal(rig_burst(p, pkts, PORT_BURST), 1);
	rig_check(p, &pkts[0], rig_qpn(p), 2);
	later_ms += 10000;
	assert_true(other_user_sends(&addr, sport, p, 3));
	dropped(p, 2);
	rig_close(p);
}

/* Returns 127.200.x.y, where x.y is the number n. */
static struct pkt_addr numbered(unsigned n)
{
	char text[40];

	snprintf(text, sizeof(text), "127.200.%u.%u", n >> 8, n & 255);
	return rig_addr(text);
}

/* Returns the source port of the path to QP `qpn` of that address; 0: there is no such path. */
static uint16_t source_port(struct port *p, unsigned n, uint32_t qpn)
{
	struct pkt_addr to = numbered(n);
	struct port_path *path;
	uint16_t sport;

	path = p->ops->path_get(p, &to, qpn);
	if (!path) {
		assert_int_equal(errno, EHOSTUNREACH);
		return 0;
	}
	sport = path->sport;
	p->ops->path_put(p, path);
	return sport;
}

/* Returns true if this kernel answers questions about UDP sockets: it lists them. */
static bool may_diag(void)
{
	struct {
		struct nlmsghdr head;
		struct inet_diag_req_v2 req;
	} q = {.head = {.nlmsg_len = sizeof(q),
			.nlmsg_type = SOCK_DIAG_BY_FAMILY,
			.nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP},
	       .req = {.sdiag_family = AF_INET,
		       .sdiag_protocol = IPPROTO_UDP,
		       .idiag_states = UINT32_MAX}};
	struct {
		struct nlmsghdr head;
		int err; /* of the last message of a list */
	} in = {.err = 0};
	int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
	bool lists = fd >= 0 && send(fd, &q, sizeof(q), 0) == sizeof(q) &&
		     recv(fd, &in, sizeof(in), 0) > 0 && in.head.nlmsg_type != NLMSG_ERROR &&
		     (in.head.nlmsg_type != NLMSG_DONE || in.err == 0);

	close(fd);
	return lists;
}

#define READER	    (99 << 8 | 1) /* number of an address that has a reader */
#define LATE_READER (98 << 8 | 1) /* of one that gets a reader during a test */

/* Opens a port, and a socket at the address READER. */
static struct port *open_beside_reader(int *reader)
{
	struct pkt_addr there = rig_addr("127.200.99.1");
	char spec[80];

	snprintf(spec, sizeof(spec), "udp:127.%d.%d.3", 1 + (getpid() >> 8) % 250, getpid() % 250);
	*reader = socket_at(&there, PKT_UDP_PORT);
	return rig_open(spec);
}

/*
 * QP 1 answers requests from forged addresses of this machine. The port asks the kernel for the
 * reader of each address. A few answers in 100 ms leave although there is none, from the port's own
 * socket, which hears of ICMP errors. An answer to a reader always leaves. Connections have no
 * limit.
 */
static void absent_readers_get_few_answers(void **state)
{
	unsigned n = 0;
	struct port *p;
	int reader;

	if (!private_net || !may_diag())
		skip();
	p = open_beside_reader(&reader);
	for (unsigned slice = 0; slice < 2; slice++, clock_ns += 100000000) {
		unsigned before = lists_read, sent = 0;

		for (unsigned i = 0; i < 1000; i++) {
			uint16_t sport = source_port(p, ++n, PKT_GSI_QPN);

			assert_int_not_equal(sport, PKT_UDP_PORT);
			sent += sport != 0;
		}
		assert_int_equal(sent, PORT_HINTS);
		assert_int_equal(source_port(p, READER, PKT_GSI_QPN), PKT_UDP_PORT);
		assert_int_equal(source_port(p, READER, 0x111), PKT_UDP_PORT);
		assert_in_range(source_port(p, ++n, 0x111), 1, UINT16_MAX);
		assert_int_equal(lists_read, before);
	}
	close(reader);
	rig_close(p);
}

/*
 * The readers of many addresses are asked for at once. The paths are the same as without, until the
 * port has been told that they were made: then it asks again.
 */
static void readers_are_expected(void **state)
{
	struct pkt_addr to[64];
	struct port *p;
	int reader;

	if (!private_net || !may_diag())
		skip();
	p = open_beside_reader(&reader);
	for (unsigned i = 0; i < 64; i++)
		to[i] = numbered(i == 40 ? READER : 1000 + i);
	diag_writes = 0;
	p->ops->expect(p, to, 64);
	assert_in_range(diag_writes, 1, 2); /* the first question is about the port itself */
	for (unsigned i = 0; i < PORT_HINTS; i++)
		assert_in_range(source_port(p, 1000 + i, PKT_GSI_QPN), PKT_UDP_PORT + 1,
				UINT16_MAX);
	assert_int_equal(source_port(p, 1000 + 50, PKT_GSI_QPN), 0);
	assert_int_equal(source_port(p, READER, PKT_GSI_QPN), PKT_UDP_PORT);
	assert_in_range(diag_writes, 1, 2);
	p->ops->expect(p, NULL, 0);
	close(reader);
	assert_int_not_equal(source_port(p, READER, PKT_GSI_QPN), PKT_UDP_PORT);
	assert_in_range(diag_writes, 2, 3);
	rig_close(p);
}

/*
 * In a flood of requests from forged addresses the kernel is asked for the readers of 1,024
 * addresses in 100 ms. Then a list of sockets tells which addresses may have a reader, and the
 * kernel is asked for those alone. An address whose reader appears after the list gets its answers
 * in the next 100 ms.
 */
static void a_flood_asks_few_questions(void **state)
{
	struct pkt_addr late = numbered(LATE_READER), to[64];
	int reader, other = -1;
	unsigned n = 0;
	struct port *p;

	if (!private_net || !may_diag())
		skip();
	p = open_beside_reader(&reader);
	for (unsigned slice = 0; slice < 2; slice++, clock_ns += 100000000) {
		unsigned lists = lists_read, asked;

		for (unsigned i = 0; i < 1024; i++)
			source_port(p, ++n, PKT_GSI_QPN);
		assert_int_equal(lists_read, lists);
		asked = diag_writes;
		for (unsigned i = 0; i < 3000; i++)
			assert_int_equal(source_port(p, ++n, PKT_GSI_QPN), 0);
		assert_in_range(diag_writes - asked, 0, 60); /* different addresses, same hash */
		for (unsigned i = 0; i < 10; i++)
			assert_int_equal(source_port(p, READER, PKT_GSI_QPN), PKT_UDP_PORT);
		if (other < 0) {
			other = socket_at(&late, PKT_UDP_PORT);
			assert_int_equal(source_port(p, LATE_READER, PKT_GSI_QPN), 0);
		} else {
			assert_int_equal(source_port(p, LATE_READER, PKT_GSI_QPN), PKT_UDP_PORT);
		}
		/* The same for answers that leave together: one call asks for the reader alone. */
		for (unsigned i = 0; i < 64; i++)
			to[i] = numbered(i == 40 ? READER : ++n);
		asked = diag_writes;
		p->ops->expect(p, to, 64);
		assert_int_equal(source_port(p, READER, PKT_GSI_QPN), PKT_UDP_PORT);
		assert_int_equal(source_port(p, n, PKT_GSI_QPN), 0);
		assert_int_equal(diag_writes, asked + 1);
		p->ops->expect(p, NULL, 0);
		assert_int_equal(lists_read, lists + 1);
		assert_int_equal(source_port(p, LATE_READER, 0x111), PKT_UDP_PORT);
	}
	close(reader);
	close(other);
	rig_close(p);
}

/*
 * If the kernel does not answer such questions, a few answers in 100 ms make the port read a list
 * of all sockets. The others leave from port 4791, which each reader accepts. Connections always
 * search.
 */
static void few_answers_search(void **state)
{
	unsigned n = 0, before;
	struct port *p;
	int reader;

	if (!private_net)
		skip();
	no_diag = true;
	p = open_beside_reader(&reader);
	for (unsigned slice = 0; slice < 2; slice++, clock_ns += 100000000) {
		before = lists_read;
		assert_int_equal(source_port(p, READER, PKT_GSI_QPN), PKT_UDP_PORT);
		assert_int_not_equal(source_port(p, ++n, PKT_GSI_QPN), PKT_UDP_PORT);
		for (unsigned i = 0; i < 1000; i++)
			assert_int_not_equal(source_port(p, ++n, PKT_GSI_QPN), 0);
		assert_in_range(lists_read - before, 2, 4);
		assert_int_equal(source_port(p, READER, PKT_GSI_QPN), PKT_UDP_PORT);
		assert_int_equal(source_port(p, ++n, PKT_GSI_QPN), PKT_UDP_PORT);
		assert_int_equal(source_port(p, READER, 0x111), PKT_UDP_PORT);
		assert_int_not_equal(source_port(p, ++n, 0x111), PKT_UDP_PORT);
	}
	no_diag = false;
	close(reader);
	rig_close(p);
}

/*
 * Returns the path to QP `qpn` of an address, which leaves from port 4791 or from another one. Each
 * call may search.
 */
static struct port_path *path_from(struct port *p, const struct pkt_addr *to, uint32_t qpn,
				   bool from_4791)
{
	struct port_path *path;

	clock_ns += 100000000;
	path = p->ops->path_get(p, to, qpn);
	assert_non_null(path);
	assert_int_equal(path->sport == PKT_UDP_PORT, from_4791);
	return path;
}

/* The same, where `path` is expected and stays in use. */
static void same_path(struct port *p, const struct port_path *path, uint32_t qpn)
{
	struct port_path *again = path_from(p, &path->dst, qpn, path->sport == PKT_UDP_PORT);

	assert_ptr_equal(again, path);
	p->ops->path_put(p, again);
}

static void reader_appears(struct port *p, uint32_t qpn)
{
	struct pkt_addr to = rig_addr("127.200.98.1");
	struct port_path *before = path_from(p, &to, qpn, false), *after;
	int reader;

	same_path(p, before, qpn);
	reader = socket_at(&to, PKT_UDP_PORT);
	after = path_from(p, &to, qpn, true);
	same_path(p, after, qpn);
	close(reader);
	same_path(p, before, qpn);
	p->ops->path_put(p, after);
	p->ops->path_put(p, before);
}

/*
 * A program of another user starts at a loopback address while paths to it are in use: QP 1 keeps
 * its last ones. The next look-up finds another path, from the port that this program accepts. When
 * the program has ended, it finds the first path again, which hears of ICMP errors.
 */
static void a_reader_that_appears_gets_another_path(void **state)
{
	char spec[80];
	struct port *p;

	if (!private_net)
		skip();
	snprintf(spec, sizeof(spec), "udp:127.%d.%d.3", 1 + (getpid() >> 8) % 250, getpid() % 250);
	for (unsigned i = 0; i < 2; i++) {
		no_diag = i;
		p = rig_open(spec);
		reader_appears(p, PKT_GSI_QPN);
		reader_appears(p, 0x111);
		rig_close(p);
	}
	no_diag = false;
}

/*
 * A packet finds no reader at a loopback address: the core must look for the paths of its datagrams
 * anew (port.ways).
 */
static void an_absent_reader_changes_the_ways(void **state)
{
	static const char *const kinds[] = {"udp", "host"};
	struct pkt_addr to = rig_addr("127.200.97.1");
	struct port_pkt pkts[PORT_BURST];

	if (!private_net)
		skip();
	for (unsigned i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		char spec[80];
		struct port *p;
		struct port_path *path;
		uint32_t ways;

		snprintf(spec, sizeof(spec), "%s:127.%d.%d.%u", kinds[i], 1 + (getpid() >> 8) % 250,
			 getpid() % 250, 4 + i);
		p = rig_open(spec);
		path = path_from(p, &to, 0x111, false);
		p->ops->rx_burst(p, pkts, PORT_BURST);
		ways = p->path_generation;
		/*
		 * The packet is repeated: the queue of a core, which all namespaces of a machine
		 * share, may be full (net.core.netdev_max_backlog).
		 */
		for (time_t end = time(NULL) + 60; p->path_generation == ways && time(NULL) < end;
		     usleep(1000)) {
			assert_int_equal(rig_send(p, path, 64, 0, 0x111, 0), 0);
			assert_true(p->ops->flush(p));
			p->ops->rx_burst(p, pkts, PORT_BURST);
		}
		assert_int_not_equal(p->path_generation, ways);
		p->ops->path_put(p, path);
		rig_close(p);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(from_loopback, rig_close_all),
		cmocka_unit_test_teardown(from_loopback_of_ipv6, rig_close_all),
		cmocka_unit_test_teardown(from_elsewhere, rig_close_all),
		cmocka_unit_test_teardown(another_user_in_a_programs_name, rig_close_all),
		cmocka_unit_test_teardown(absent_readers_get_few_answers, rig_close_all),
		cmocka_unit_test_teardown(readers_are_expected, rig_close_all),
		cmocka_unit_test_teardown(a_flood_asks_few_questions, rig_close_all),
		cmocka_unit_test_teardown(few_answers_search, rig_close_all),
		cmocka_unit_test_teardown(a_reader_that_appears_gets_another_path, rig_close_all),
		cmocka_unit_test_teardown(an_absent_reader_changes_the_ways, rig_close_all),
	};

	private_net = network_private();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
