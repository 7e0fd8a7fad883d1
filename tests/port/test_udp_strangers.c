/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Sockets of other programs at port 4791 beside those of an address: facts of the Linux kernel that
 * the pool relies on. A stranger takes none of the packets for the address, or the address is
 * refused with one line.
 */
#include "../common/network.h"
#include "rig.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "port/udp.h"

#define OWN	(v6 ? "fd81::1" : "127.0.81.1")
#define OUTSIDE (v6 ? "fd81::2" : "127.0.81.2")
#define NOBODY	(v6 ? "fd81::3" : "127.0.81.3")
#define PACKETS 50
#define OTHER	65534 /* a user */

/* The sockets of an IPv6 address are for IPv6 alone, so only one kind of stranger concerns them. */
enum kind { WILDCARD6, WILDCARD, MAPPED, KINDS };

static bool v6;

static const char *const kind_names[] = {"IPv6 wildcard for both families", "wildcard",
					 "IPv4-mapped address"};

static unsigned kinds(void)
{
	return v6 ? 1 : KINDS;
}

static struct port *open_at(const char *address)
{
	char spec[64];

	snprintf(spec, sizeof(spec), "udp:%s", address);
	return rig_open(spec);
}

/* The address is refused. Returns the message. */
static const char *refused(void)
{
	static char err[512];
	char spec[64];

	snprintf(spec, sizeof(spec), "udp:%s", OWN);
	assert_null(port_open(spec, 0, 1, err, sizeof(err)));
	assert_int_equal(errno, EADDRINUSE);
	return err;
}

/* Returns a socket that is bound to port 4791, or -errno. */
static int stranger(enum kind kind, int option)
{
	struct pkt_addr own = rig_addr(OWN);
	union udp_name n = {.v6 = {.sin6_family = AF_INET6, .sin6_port = htons(PKT_UDP_PORT)}};
	socklen_t len = sizeof(n.v6);
	int fd, on = 1, off = 0;

	if (kind == WILDCARD) {
		n.v4 = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons(PKT_UDP_PORT)};
		len = sizeof(n.v4);
	} else if (kind == MAPPED) {
		memcpy(&n.v6.sin6_addr, own.b, sizeof(own.b));
	}
	fd = socket(n.sa.sa_family, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	if (kind != WILDCARD)
		setsockopt(fd, SOL_IPV6, IPV6_V6ONLY, &off, sizeof(off));
	if (option)
		setsockopt(fd, SOL_SOCKET, option, &on, sizeof(on));
	if (bind(fd, &n.sa, len) == 0)
		return fd;
	on = -errno;
	close(fd);
	return on;
}

/* Packets from `from` reach the port, and none of them the stranger. */
static void exchange(struct port *p, struct port *from, int fd)
{
	struct port_path *path = from->ops->path_get(from, &p->addr, rig_qpn(p));
	struct port_pkt pkts[PORT_BURST];
	uint8_t byte;

	assert_non_null(path);
	for (uint32_t i = 0; i < PACKETS; i++) {
		assert_int_equal(rig_send(from, path, i % 2 ? 300 : 64, 0, rig_qpn(p), i), 0);
		assert_true(from->ops->flush(from));
	}
	for (uint32_t got = 0; got < PACKETS;) {
		int n = rig_burst(p, pkts, PORT_BURST);

		assert_true(n > 0);
		for (int i = 0; i < n; i++, got++)
			rig_check(p, &pkts[i], rig_qpn(p), got);
	}
	from->ops->path_put(from, path);
	assert_int_equal(recv(fd, &byte, sizeof(byte), MSG_DONTWAIT), -1);
}

/* It binds after the pool has: the kernel prefers the sockets of the exact address and family. */
static void after_the_pool(void **state)
{
	struct port *p = open_at(OWN), *from = open_at(OUTSIDE);

	for (unsigned kind = 0; kind < kinds(); kind++) {
		int fd = stranger((enum kind)kind, SO_REUSEPORT);

		if (fd < 0) { /* the kernel keeps it out, or there is no IPv6 */
			printf("%s: %s\n", kind_names[kind], strerror(-fd));
			continue;
		}
		exchange(p, from, fd);
		exchange(from, p, fd);
		close(fd);
		exchange(p, from, -1);
	}
}

/* The stranger was first: one line reports that the port is in use. */
static void before_the_pool(void **state)
{
	for (unsigned kind = 0; kind < kinds(); kind++) {
		int fd = stranger((enum kind)kind, SO_REUSEPORT);
		const char *err;

		if (fd < 0) {
			printf("%s: %s\n", kind_names[kind], strerror(-fd));
			continue;
		}
		err = refused();
		if (!strstr(err, "in use") || !strstr(err, OWN) || strchr(err, '\n'))
			fail_msg("%s: the message is: %s", kind_names[kind], err);
		close(fd);
		rig_close(open_at(OWN));
	}
}

/* Runs fn as another user. Returns its result, or -1: it can't be done here. */
static int as_other(int (*fn)(void))
{
	int status;
	pid_t pid;

	fflush(stdout);
	pid = fork();
	if (pid == 0)
		_exit(setresuid(OTHER, OTHER, OTHER) ? 255 : fn());
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status) == 255 ? -1 : WEXITSTATUS(status);
}

/* Returns 0 if no option makes the kernel let this user bind over the group. */
static int is_kept_out(void)
{
	static const int options[] = {0, SO_REUSEADDR, SO_REUSEPORT};
	union udp_name n;
	struct pkt_addr own = rig_addr(OWN);
	socklen_t len = udp_name(&n, &own, PKT_UDP_PORT, 0);

	for (unsigned i = 0; i < sizeof(options) / sizeof(options[0]); i++) {
		int fd = socket(n.sa.sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0), on = 1;

		if (options[i])
			setsockopt(fd, SOL_SOCKET, options[i], &on, sizeof(on));
		if (bind(fd, &n.sa, len) == 0 || errno != EADDRINUSE)
			return 1;
		for (unsigned kind = 0; kind < kinds(); kind++) {
			if (stranger((enum kind)kind, options[i]) >= 0)
				return 2 + (int)kind;
		}
		close(fd);
	}
	return 0;
}

static void another_user(void **state)
{
	struct port *p = open_at(OWN);
	int rc;

#ifdef __SANITIZE_THREAD__ /* it ends a forked child of a process with threads */
	skip();
#endif
	rc = as_other(is_kept_out);
	rig_close(p);
	if (rc < 0) {
		printf("SKIPPED: no program of another user can be started here\n");
		skip();
	}
	assert_int_equal(rc, 0);
}

/* Another user has the port: the line names the user. */
static int other_user_fd[2];

static int hold_port(void)
{
	union udp_name n;
	struct pkt_addr own = rig_addr(OWN);
	socklen_t len = udp_name(&n, &own, PKT_UDP_PORT, 0);
	int fd = socket(n.sa.sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	char byte = 1;

	if (bind(fd, &n.sa, len) || write(other_user_fd[1], &byte, 1) != 1)
		return 1;
	return read(other_user_fd[1], &byte, 1) == 0 ? 0 : 1; /* until the test ends */
}

static void port_of_another_user(void **state)
{
	char text[32], byte;
	const char *err;
	int status;
	pid_t pid;

	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, other_user_fd), 0);
	fflush(stdout);
	pid = fork();
	if (pid == 0) {
		close(other_user_fd[0]);
		_exit(setresuid(OTHER, OTHER, OTHER) ? 255 : hold_port());
	}
	close(other_user_fd[1]);
	if (read(other_user_fd[0], &byte, 1) != 1) {
		waitpid(pid, &status, 0);
		close(other_user_fd[0]);
		printf("SKIPPED: no program of another user can be started here\n");
		skip();
	}
	err = refused();
	snprintf(text, sizeof(text), "belongs to user %d", OTHER);
	if (!strstr(err, text) || !strstr(err, OWN) || strchr(err, '\n'))
		fail_msg("the message is: %s", err);
	close(other_user_fd[0]);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	rig_close(open_at(OWN));
}

/*
 * No socket of the group has a peer, also after traffic and its errors: a connected one would take
 * all packets of the peer, for any slot. /proc/net/udp shows the peers of all sockets.
 */
static void no_socket_is_connected(void **state)
{
	struct port *p = open_at(OWN), *from = open_at(OUTSIDE);
	struct pkt_addr nobody = rig_addr(NOBODY);
	struct port_path *path = p->ops->path_get(p, &nobody, rig_qpn(p));
	unsigned seen = 0;
	char line[512];
	FILE *f;

	exchange(p, from, -1);
	exchange(from, p, -1);
	assert_int_equal(rig_send(p, path, 64, 0, rig_qpn(p), 0), 0);
	assert_true(p->ops->flush(p));
	f = fopen(v6 ? "/proc/net/udp6" : "/proc/net/udp", "r");
	assert_non_null(f);
	while (fgets(line, sizeof(line), f)) {
		char peer[33];
		unsigned port, peer_port;

		if (sscanf(line, " %*u: %*[0-9A-F]:%x %32[0-9A-F]:%x", &port, peer, &peer_port) !=
			    3 ||
		    port != PKT_UDP_PORT)
			continue;
		seen++;
		assert_int_equal(strspn(peer, "0"), strlen(peer));
		assert_int_equal(peer_port, 0);
	}
	fclose(f);
	assert_true(seen >= 2 * POOL_SLOTS);
	p->ops->path_put(p, path);
}

#define TEST(f) cmocka_unit_test_teardown(f, rig_close_all)

/* Usage: test_port_udp_strangers [6] */
int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		TEST(port_of_another_user), /* first: this process has no threads yet */
		TEST(after_the_pool),	    TEST(before_the_pool),
		TEST(another_user),	    TEST(no_socket_is_connected),
	};

	v6 = argc > 1;
	if (v6 ? network_tunnel("10.81.0.1", OWN, 1500) < 0 || !network_add6("tun0", OUTSIDE)
	       : !network_own()) { /* other programs of the machine have port 4791 */
		printf("skipped: no network of its own\n");
		return 77;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
