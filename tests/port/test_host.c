/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The host port: the way of packets (ring or udp), and that both ways lead to the same process. The
 * test runs in a network namespace of its own, so that no other program takes slots of the pool.
 */
#include "rig.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../common/network.h"
#include "base/mem.h"
#include "pool/core.h"
#include "port/port_impl.h"

#define A "127.0.0.1"

static bool is(const struct port_path *path, const char *kind)
{
	return strcmp(path->port->ops->name, kind) == 0;
}

static struct port_path *path_to(struct port *from, struct port *to)
{
	struct port_path *path = from->ops->path_get(from, &to->addr, rig_qpn(to));

	assert_non_null(path);
	return path;
}

static void send_one(struct port *p, struct port_path *path, uint32_t qpn, uint32_t n)
{
	assert_int_equal(rig_send(p, path, 300, 0, qpn, n), 0);
	assert_true(p->ops->flush(p));
}

/* Does control work until a packet comes; it must be packet n from `from`. */
static void expect(struct port *p, struct port *from, uint32_t qpn, uint32_t n)
{
	struct port_pkt pkt;
	int got = 0;

	for (int i = 0; i < RIG_WAIT_MS * 10 && !got; i++) {
		if (p->ops->control)
			p->ops->control(p);
		got = p->ops->rx_burst(p, &pkt, 1);
		if (!got && i > 100)
			usleep(100);
	}
	assert_int_equal(got, 1);
	rig_check(p, &pkt, qpn, n);
	assert_true(pkt_addr_eq(pkt.src, &from->addr));
}

static void exchange(struct port *a, struct port *b)
{
	struct port_path *ab = path_to(a, b), *ba = path_to(b, a);

	for (uint32_t n = 0; n < 200; n++) {
		send_one(a, ab, rig_qpn(b), n);
		expect(b, a, rig_qpn(b), n);
		send_one(b, ba, rig_qpn(a), n);
		expect(a, b, rig_qpn(a), n);
	}
	a->ops->path_put(a, ab);
	b->ops->path_put(b, ba);
}

/* Programs of one pool exchange packets by shared memory, if both ends have it. */
static void test_ways(void **state)
{
	struct port *a = rig_open("host:" A), *b = rig_open("host:127.0.0.2"),
		    *u = rig_open("udp:127.0.0.3");
	struct port_path *path = path_to(a, b);

	assert_true(is(path, "shm"));
	assert_int_equal(path->window, 0);
	assert_int_equal(path->lag, 1);
	assert_ptr_equal(path_to(a, b), path);
	path = path_to(a, u);
	assert_true(is(path, "udp"));
	assert_true(path->window > 0);
	assert_int_equal(path->lag, 0);
	assert_true(is(path_to(u, a), "udp"));
	exchange(a, b);
	exchange(a, u);
	assert_true(port_stats_of(a).rx_packets == 400 && port_stats_of(a).tx_packets == 400);
	assert_int_equal(port_stats_of(a).rx_shm_packets, 200);
	assert_int_equal(port_stats_of(a).tx_shm_packets, 200);
	/* udp was not a substitute */
	assert_int_equal(port_stats_of(a).tx_shm_fallbacks, 0);
	assert_int_equal(port_stats_of(b).tx_shm_fallbacks, 0);
}

/* Packets are delivered although their sender ended before its ring was accepted. */
static void test_last_words(void **state)
{
	struct port *a = rig_open("host:" A), *b = rig_open("host:127.0.0.2");
	struct pkt_addr from = b->addr;
	struct port_path *path = path_to(b, a);
	struct port_pkt pkts[8];
	int got = 0;

	assert_true(is(path, "shm"));
	for (uint32_t n = 0; n < ARRAY_SIZE(pkts); n++)
		send_one(b, path, rig_qpn(a), n);
	rig_close(b);
	for (int i = 0; i < RIG_WAIT_MS && !got; i++) {
		a->ops->control(a);
		got = a->ops->rx_burst(a, pkts, ARRAY_SIZE(pkts));
		usleep(got ? 0 : 1000);
	}
	assert_int_equal(got, ARRAY_SIZE(pkts));
	for (uint32_t n = 0; n < ARRAY_SIZE(pkts); n++) {
		rig_check(a, &pkts[n], rig_qpn(a), n);
		assert_true(pkt_addr_eq(pkts[n].src, &from));
	}
}

/* A port without a free descriptor says that its control work must rest; wrappers pass this on. */
static void test_rests(void **state)
{
	static const char *const spec[] = {"host:" A, "host:" A ",loss=0.5"};

	for (unsigned i = 0; i < ARRAY_SIZE(spec); i++) {
		struct port *a = rig_open(spec[i]), *b = rig_open("host:127.0.0.2");
		struct rlimit was, none;

		assert_true(is(path_to(b, a), "shm"));
		assert_int_equal(getrlimit(RLIMIT_NOFILE, &was), 0);
		none = was;
		none.rlim_cur = 1;
		assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
		a->ops->control(a);
		assert_int_equal(setrlimit(RLIMIT_NOFILE, &was), 0);
		assert_true(a->rests);
		a->ops->control(a);
		assert_false(a->rests);
		rig_close(b);
		rig_close(a);
	}
}

/* QP 1 and groups have no slot, and a slot without a program is not in the pool. */
static void test_by_udp(void **state)
{
	struct port *a = rig_open("host:" A), *b = rig_open("host:127.0.0.2");
	struct pkt_addr group = rig_addr("239.1.2.3");
	struct port_path *path;

	path = a->ops->path_get(a, &b->addr, PKT_GSI_QPN);
	assert_true(path && is(path, "udp"));
	send_one(a, path, PKT_GSI_QPN, 7);
	expect(b, a, PKT_GSI_QPN, 7);
	path = a->ops->path_get(a, &b->addr, ((uint32_t)b->slot ^ 1) << 18 | 0x75);
	assert_true(path && is(path, "udp"));
	path = a->ops->path_get(a, &group, 0xffffff);
	assert_true(path && is(path, "udp"));
	assert_int_equal(port_stats_of(a).tx_shm_fallbacks, 0);
	assert_int_equal(b->ops->join(b, &group), 0);
	b->ops->leave(b, &group);
}

/* A sleeper is woken by packets of both ways, and finds them at once. */
static void test_sleep(void **state)
{
	struct port *a = rig_open("host:" A), *b = rig_open("host:127.0.0.2"),
		    *u = rig_open("udp:127.0.0.3");
	struct port *from[] = {b, u, b, u, u, b};
	struct port_pkt pkt;

	exchange(a, b);
	for (unsigned i = 0; i < ARRAY_SIZE(from); i++) {
		struct port_path *path = path_to(from[i], a);

		/* Rings come and go before; this wakes, too. */
		while (!a->ops->arm(a) || rig_readable(a, 0)) {
			a->ops->disarm(a, true);
			a->ops->control(a);
			assert_int_equal(a->ops->rx_burst(a, &pkt, 1), 0);
		}
		send_one(from[i], path, rig_qpn(a), i);
		from[i]->ops->rx_burst(from[i], &pkt, 1); /* wakes sleepers that it missed */
		assert_true(rig_readable(a, RIG_WAIT_MS));
		a->ops->disarm(a, true);
		assert_int_equal(a->ops->rx_burst(a, &pkt, 1), 1);
		rig_check(a, &pkt, rig_qpn(a), i);
	}
}

/* Packets by udp come although a sender by shared memory fills each burst. */
static void test_full_bursts(void **state)
{
	struct port *a = rig_open("host:" A), *b = rig_open("host:127.0.0.2"),
		    *u = rig_open("udp:127.0.0.3");
	struct port_path *ba = path_to(b, a);
	struct port_pkt pkts[4];
	bool found = false;

	exchange(a, b);
	for (int i = 0; i < 10000; i++)
		assert_int_equal(a->ops->rx_burst(a, pkts, 1), 0);
	assert_int_equal(a->batch, 0);
	send_one(u, path_to(u, a), rig_qpn(a), 1);
	for (uint32_t i = 0; i < 1000 && !found; i++) {
		int n;

		for (uint32_t k = 0; k < ARRAY_SIZE(pkts); k++)
			send_one(b, ba, rig_qpn(a), k);
		n = a->ops->rx_burst(a, pkts, ARRAY_SIZE(pkts));
		assert_int_equal(n, ARRAY_SIZE(pkts));
		found = pkt_addr_eq(pkts[n - 1].src, &u->addr);
	}
	assert_true(found);
}

/* While the udp port is cold, packets there are found by looks that are not made each time. */
static void test_cold(void **state)
{
	struct port *a = rig_open("host:" A), *u = rig_open("udp:127.0.0.3");
	struct port_path *path = path_to(u, a);
	struct port_pkt pkt;

	assert_int_equal(a->batch, 0);
	send_one(u, path, rig_qpn(a), 1);
	expect(a, u, rig_qpn(a), 1);
	assert_true(a->batch > 0); /* its looks cost system calls now */
	for (int i = 0; i < 10000; i++)
		assert_int_equal(a->ops->rx_burst(a, &pkt, 1), 0);
	assert_int_equal(a->batch, 0);
	send_one(u, path, rig_qpn(a), 2);
	expect(a, u, rig_qpn(a), 2);
}

/* A capture shows the packets of both ways, and nothing changes for its user. */
static void test_wrapped(void **state)
{
	struct port *a = rig_open("host:" A ",pcap=/dev/null,loss=0.0001"),
		    *b = rig_open("host:127.0.0.2"), *u = rig_open("udp:127.0.0.3");

	assert_true(is(path_to(a, b), "shm"));
	exchange(a, b);
	exchange(a, u);
	assert_true(a->batch > 0);
	assert_int_equal(port_stats_of(a).rx_packets, 400);
}

static void test_options(void **state)
{
	char err[256] = "";

	assert_null(port_open("host:" A ",ring=100000", 0, 1, err, sizeof(err)));
	assert_non_null(strstr(err, "ring="));
	assert_null(port_open("host:224.0.0.1", 0, 1, err, sizeof(err)));
}

/* ---- other processes ---- */

struct program {
	pid_t pid;
	int fd; /* its end: the program ends */
	uint32_t qpn;
	struct pkt_addr addr;
};

static unsigned descriptors; /* that the next program may open after its port; 0: no limit */

static void leave_descriptors(unsigned n)
{
	int fd[16];
	struct rlimit limit;

	for (unsigned i = 0; i < n; i++)
		fd[i] = dup(STDOUT_FILENO);
	getrlimit(RLIMIT_NOFILE, &limit);
	limit.rlim_cur = (rlim_t)fd[n - 1] + 1;
	setrlimit(RLIMIT_NOFILE, &limit);
	for (unsigned i = 0; i < n; i++)
		close(fd[i]);
}

/*
 * Receives until the parent closes the socket. Sends the number of each packet to it.
 */
static void serve(int fd, const char *spec)
{
	char err[256];
	struct port *p = port_open(spec, 0, 1, err, sizeof(err));
	struct program self = {.qpn = p ? rig_qpn(p) : 0};
	struct port_pkt pkts[PORT_BURST];

	if (!p)
		_exit(1);
	self.addr = p->addr;
	if (write(fd, &self, sizeof(self)) != sizeof(self))
		_exit(1);
	if (descriptors)
		leave_descriptors(descriptors);
	for (;;) {
		int n;
		char c;

		p->ops->control(p);
		n = p->ops->rx_burst(p, pkts, PORT_BURST);
		for (int i = 0; i < n; i++) {
			uint32_t psn = rig_psn(&pkts[i]);

			if (write(fd, &psn, sizeof(psn)) != sizeof(psn))
				_exit(1);
		}
		if (recv(fd, &c, 1, MSG_DONTWAIT) == 0)
			_exit(0);
		if (!n)
			usleep(100);
	}
}

/* `user`: of the program; 0: that of this program. */
static struct program start_as(uid_t user, const char *spec)
{
	struct program p = {.fd = -1}, told;
	int fd[2];

#ifdef __SANITIZE_THREAD__ /* it ends a forked child that starts threads */
	skip();
#endif
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fd), 0);
	p.pid = fork();
	assert_true(p.pid >= 0);
	if (p.pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(fd[0]);
		if (user && setresuid(user, user, user))
			_exit(1);
		serve(fd[1], spec);
	}
	close(fd[1]);
	p.fd = fd[0];
	assert_int_equal(read(p.fd, &told, sizeof(told)), sizeof(told));
	p.qpn = told.qpn;
	p.addr = told.addr;
	return p;
}

static struct program start(void)
{
	return start_as(0, "host:" A);
}

static void end(struct program *p, int sig)
{
	if (sig)
		kill(p->pid, sig);
	close(p->fd);
	assert_int_equal(waitpid(p->pid, NULL, 0), p->pid);
}

static uint32_t received(const struct program *p)
{
	uint32_t psn = UINT32_MAX;

	assert_int_equal(read(p->fd, &psn, sizeof(psn)), sizeof(psn));
	return psn;
}

/*
 * A killed program's slot goes to a successor at the same address. Packets of the old path reach
 * nobody, and a new path leads to the successor. All other slots are claimed, so the successor
 * gets the slot for certain.
 */
static void test_successor(void **state)
{
	struct port *a = rig_open("host:" A);
	struct program first = start(), second;
	struct pkt_addr to = first.addr;
	struct port_path *old = a->ops->path_get(a, &to, first.qpn), *path;
	unsigned slot = PORT_SLOT_OF_QPN(first.qpn);
	uint32_t ways;
	struct port_pkt pkt;
	int claim[POOL_SLOTS];
	bool hinted = false;

	assert_true(old && is(old, "shm"));
	assert_int_not_equal(slot, a->slot);
	send_one(a, old, first.qpn, 1);
	assert_int_equal(received(&first), 1);
	a->ops->rx_burst(a, &pkt, 1);
	ways = a->path_generation;
	for (unsigned i = 0; i < POOL_SLOTS; i++)
		claim[i] = i == slot || i == a->slot ? -1 : pool_bind_name(NAME_CLAIM, i);
	end(&first, SIGKILL);
	second = start();
	for (unsigned i = 0; i < POOL_SLOTS; i++)
		close(claim[i]);
	assert_int_equal(second.qpn, first.qpn);
	for (uint32_t n = 100; n < 150; n++) {
		send_one(a, old, first.qpn, n);
		a->ops->control(a);
		assert_int_equal(a->ops->rx_burst(a, &pkt, 1), 0);
		hinted |= a->num_hints > 0;
		usleep(1000);
	}
	assert_true(hinted);
	a->num_hints = 0;
	assert_int_not_equal(a->path_generation, ways);
	path = a->ops->path_get(a, &to, second.qpn);
	assert_true(path && path != old && is(path, "shm"));
	send_one(a, path, second.qpn, 200);
	assert_int_equal(received(&second), 200);
	a->ops->path_put(a, old);
	a->ops->path_put(a, path);
	end(&second, 0);
}

/* The child of a fork leaves the port to its parent, and may have one of its own. */
static void test_fork(void **state)
{
	struct port *a = rig_open("host:" A);
	struct program p = start();
	struct port_path *path = a->ops->path_get(a, &p.addr, p.qpn);
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		struct program q;

		a->ops->after_fork(a);
		q = start();
		end(&q, 0);
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	assert_true(path && is(path, "shm"));
	send_one(a, path, p.qpn, 5);
	assert_int_equal(received(&p), 5);
	end(&p, 0);
}

/* Without names for rings, e.g. after another program took them, packets go by udp. */
static void test_no_shm(void **state)
{
	struct port *a = rig_open("udp:" A), *b;
	struct pkt_addr addr = rig_addr("127.0.0.2");
	struct sockaddr_un name;
	socklen_t len = pool_ring_name(&name, &addr, a->slot);
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	assert_int_equal(bind(fd, (struct sockaddr *)&name, len), 0);
	b = rig_open("host:127.0.0.2"); /* one line with the cause */
	assert_true(is(path_to(b, a), "udp"));
	exchange(a, b);
	close(fd);
}

/* The same where the limit of file sizes leaves no space for a ring, which would be a signal. */
static void test_no_ring(void **state)
{
	struct port *a = rig_open("host:" A), *b;
	struct rlimit was, less;

	assert_int_equal(getrlimit(RLIMIT_FSIZE, &was), 0);
	less = was;
	less.rlim_cur = 32 << 10;
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &less), 0);
	b = rig_open("host:127.0.0.2"); /* one line with the cause */
	assert_true(is(path_to(a, b), "udp"));
	assert_true(is(path_to(b, a), "udp"));
	exchange(a, b);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &was), 0);
	assert_true(is(path_to(a, b), "udp")); /* b has announced that it takes no ring */
	assert_int_equal(port_stats_of(a).tx_shm_packets, 0);
	assert_true(port_stats_of(a).tx_shm_fallbacks > 0); /* b has a host port nevertheless */
}

/* The sender can make no ring, while the receiver has space for one. */
static void test_no_own_ring(void **state)
{
	struct port *a = rig_open("host:" A), *b = rig_open("host:127.0.0.2");
	struct rlimit was, less;

	assert_int_equal(getrlimit(RLIMIT_FSIZE, &was), 0);
	less = was;
	less.rlim_cur = 32 << 10;
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &less), 0);
	for (unsigned i = 0; i < 2; i++) {
		assert_true(is(path_to(a, b), "udp"));
		assert_int_equal(port_stats_of(a).tx_shm_fallbacks, i + 1);
	}
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &was), 0);
	assert_true(is(path_to(a, b), "shm"));
	assert_int_equal(port_stats_of(a).tx_shm_fallbacks, 2);
	assert_int_equal(port_stats_of(b).tx_shm_fallbacks, 0);
}

/*
 * A program has descriptors for the ring of one peer. It announces this, and the next peer uses
 * udp; the first one keeps its ring.
 */
static void test_no_space(void **state)
{
	struct port *a = rig_open("host:" A), *b = rig_open("host:127.0.0.2");
	struct port_path *path[2];
	struct pool_socket sock = {.ring = 1};
	struct program p;

	descriptors = 2;
	p = start_as(0, "host:127.0.0.3");
	descriptors = 0;
	path[0] = a->ops->path_get(a, &p.addr, p.qpn);
	assert_true(path[0] && is(path[0], "shm"));
	send_one(a, path[0], p.qpn, 1);
	assert_int_equal(received(&p), 1);
	assert_true(pool_find(pool_mine(), &p.addr, 0, PORT_SLOT_OF_QPN(p.qpn), &sock));
	assert_int_equal(sock.ring, 0);
	path[1] = b->ops->path_get(b, &p.addr, p.qpn);
	assert_true(path[1] && is(path[1], "udp"));
	send_one(b, path[1], p.qpn, 2);
	assert_int_equal(received(&p), 2);
	send_one(a, path[0], p.qpn, 3);
	assert_int_equal(received(&p), 3);
	assert_int_equal(port_stats_of(b).tx_shm_packets, 0);
	assert_int_equal(port_stats_of(a).tx_shm_packets, 2);
	assert_int_equal(port_stats_of(b).tx_shm_fallbacks, 1);
	assert_int_equal(port_stats_of(a).tx_shm_fallbacks, 0);
	a->ops->path_put(a, path[0]);
	b->ops->path_put(b, path[1]);
	end(&p, 0);
}

#define STRANGER 65534

/* False without the right, and in a user namespace that has root alone. */
static bool can_be_stranger(void)
{
	int status = 1;
	pid_t pid = fork();

	if (pid == 0)
		_exit(setresuid(STRANGER, STRANGER, STRANGER) ? 1 : 0);
	return waitpid(pid, &status, 0) == pid && status == 0;
}

/* Another user's program is reached by udp. */
static void test_other_user(void **state)
{
	struct port *a = rig_open("host:" A);
	struct program p;
	struct port_path *path;

	if (geteuid() == STRANGER || !can_be_stranger()) {
		printf("SKIPPED: no program of another user can be started here\n");
		skip();
	}
	p = start_as(STRANGER, "host:127.0.0.9");
	path = a->ops->path_get(a, &p.addr, p.qpn);
	assert_true(path && is(path, "udp"));
	send_one(a, path, p.qpn, 3);
	assert_int_equal(received(&p), 3);
	assert_int_equal(port_stats_of(a).tx_shm_packets, 0);
	assert_int_equal(port_stats_of(a).tx_shm_fallbacks, 0); /* there is no other way to it */
	a->ops->path_put(a, path);
	end(&p, 0);
}

/* Sends until the ring is full. Returns the packets that its reader has taken. */
static uint64_t taken_when_full(struct port *p, struct port_path *path, uint32_t qpn)
{
	const struct port_progress *reader;

	while (rig_send(p, path, 4000, 0, qpn, 0) == 0)
		p->ops->flush(p);
	reader = port_progress_of(p, path);
	assert_non_null(reader);
	return reader->taken;
}

/* The number that tells whether a reader takes packets, also with a capture. */
static void test_progress(void **state)
{
	static const char *const spec[] = {"host:" A, "host:" A ",pcap=/dev/null"};
	struct port_pkt pkts[4];
	uint64_t before;

	for (unsigned i = 0; i < ARRAY_SIZE(spec); i++) {
		struct port *a = rig_open(spec[i]), *b = rig_open("host:127.0.0.2");
		struct port_path *path = path_to(a, b);

		before = taken_when_full(a, path, rig_qpn(b));
		assert_int_equal(taken_when_full(a, path, rig_qpn(b)), before);
		b->ops->control(b);
		while (b->ops->rx_burst(b, pkts, ARRAY_SIZE(pkts)) > 0)
			;
		assert_true(taken_when_full(a, path, rig_qpn(b)) > before);
		/* udp does not know */
		path = a->ops->path_get(a, &b->addr, PKT_GSI_QPN);
		assert_null(port_progress_of(a, path));
		rig_close(a);
		rig_close(b);
	}
}

#define TEST(f) cmocka_unit_test_teardown(f, rig_close_all)

int main(void)
{
	static const struct CMUnitTest tests[] = {
		TEST(test_ways),	TEST(test_last_words), TEST(test_by_udp),
		TEST(test_rests),	TEST(test_sleep),      TEST(test_cold),
		TEST(test_full_bursts), TEST(test_wrapped),    TEST(test_options),
		TEST(test_successor),	TEST(test_fork),       TEST(test_no_shm),
		TEST(test_no_ring),	TEST(test_no_space),   TEST(test_no_own_ring),
		TEST(test_other_user),	TEST(test_progress),
	};

	if (!network_own()) {
		printf("no network namespace of its own here\n");
		return 77;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
