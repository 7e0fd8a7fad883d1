/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Flushes that also receive. On a busy port a look and a flush take one system call together, and
 * each packet still comes once and in order. Where io_uring fails or is forbidden, the port makes
 * two system calls as before.
 */
#include "../common/network.h"
#include "rig.h"

#include <dirent.h>
#include <errno.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/sys.h"
#include "base/uring.h"

#define QPN 0x1230
#define LEN 96
/* a datagram that is too long for an exchange */
#define LONG	 9
#define LONG_LEN 4096
/* packets that a sends at a time, as one datagram; with so many, a look requests one datagram */
#define GROUP  64
#define ROUNDS 200 /* of a busy port */
#define WARM   20  /* rounds after which flushes receive, if looks find packets */

/* ---- the kernel ---- */

static struct {
	unsigned looks, sends, exchanges;
	int setup_fails, enter_fails; /* -errno; 0: Linux does it */
	unsigned enter_most;	      /* Linux gets at most this many requests */
} calls;
/* The thread of the pool makes system calls, too, which do not count. */
static _Thread_local bool is_tester;

int __real_sys_io_uring_setup(unsigned entries, struct io_uring_params *p);
int __wrap_sys_io_uring_setup(unsigned entries, struct io_uring_params *p);
int __wrap_sys_io_uring_setup(unsigned entries, struct io_uring_params *p)
{
	return calls.setup_fails ? calls.setup_fails : __real_sys_io_uring_setup(entries, p);
}

int __real_sys_io_uring_enter(int fd, unsigned submit, unsigned wait, unsigned flags);
int __wrap_sys_io_uring_enter(int fd, unsigned submit, unsigned wait, unsigned flags);
int __wrap_sys_io_uring_enter(int fd, unsigned submit, unsigned wait, unsigned flags)
{
	calls.exchanges++;
	if (calls.enter_fails)
		return calls.enter_fails;
	if (submit > calls.enter_most)
		submit = calls.enter_most;
	return __real_sys_io_uring_enter(fd, submit, wait, flags);
}

ssize_t __real_sys_recvmsg(int fd, struct msghdr *msg, int flags);
ssize_t __wrap_sys_recvmsg(int fd, struct msghdr *msg, int flags);
ssize_t __wrap_sys_recvmsg(int fd, struct msghdr *msg, int flags)
{
	if (is_tester)
		calls.looks++;
	return __real_sys_recvmsg(fd, msg, flags);
}

int __real_sys_recvmmsg(int fd, struct mmsghdr *msgs, unsigned n, int flags);
int __wrap_sys_recvmmsg(int fd, struct mmsghdr *msgs, unsigned n, int flags);
int __wrap_sys_recvmmsg(int fd, struct mmsghdr *msgs, unsigned n, int flags)
{
	if (is_tester)
		calls.looks++;
	return __real_sys_recvmmsg(fd, msgs, n, flags);
}

ssize_t __real_sys_sendmsg(int fd, const struct msghdr *msg, int flags);
ssize_t __wrap_sys_sendmsg(int fd, const struct msghdr *msg, int flags);
ssize_t __wrap_sys_sendmsg(int fd, const struct msghdr *msg, int flags)
{
	if (is_tester)
		calls.sends++;
	return __real_sys_sendmsg(fd, msg, flags);
}

ssize_t __real_sys_sendto(int fd, const void *buf, size_t len, int flags,
			  const struct sockaddr *addr, socklen_t addr_len);
ssize_t __wrap_sys_sendto(int fd, const void *buf, size_t len, int flags,
			  const struct sockaddr *addr, socklen_t addr_len);
ssize_t __wrap_sys_sendto(int fd, const void *buf, size_t len, int flags,
			  const struct sockaddr *addr, socklen_t addr_len)
{
	if (is_tester)
		calls.sends++;
	return __real_sys_sendto(fd, buf, len, flags, addr, addr_len);
}

/* ---- two ports ---- */

static struct {
	struct port *a, *b;
	struct port_path *to_b, *to_a;
	unsigned sent, taken;	     /* packets of a */
	unsigned answered, received; /* packets of b */
} t;

static bool has_io_uring(void)
{
	struct uring r;
	int rc = uring_open(&r, 2, IORING_FEAT_LINKED_FILE);

	uring_close(&r);
	if (rc)
		print_message("SKIPPED: Linux has no io_uring for this process: %s\n",
			      strerror(-rc));
	return !rc;
}

static void open_ports(void)
{
	memset(&t, 0, sizeof(t));
	t.a = rig_open("udp:127.0.83.1");
	t.b = rig_open("udp:127.0.83.2");
	t.to_b = t.a->ops->path_get(t.a, &t.b->addr, rig_qpn(t.b));
	t.to_a = t.b->ops->path_get(t.b, &t.a->addr, rig_qpn(t.a));
	assert_non_null(t.to_b);
	assert_non_null(t.to_a);
}

static int setup(void **state)
{
	is_tester = true;
	memset(&calls, 0, sizeof(calls));
	calls.enter_most = UINT32_MAX;
	open_ports();
	return 0;
}

static int teardown(void **state)
{
	calls.setup_fails = 0;
	return rig_close_all(state);
}

/* Port a sends n packets, which Linux delivers as one datagram. */
static void request(unsigned n)
{
	for (unsigned i = 0; i < n; i++, t.sent++)
		assert_int_equal(rig_send(t.a, t.to_b, LEN, 0, QPN, t.sent), 0);
	assert_true(t.a->ops->flush(t.a));
}

static void check(const struct port_pkt *pkts, int n, unsigned first)
{
	for (int i = 0; i < n; i++) {
		assert_int_equal(pkts[i].len, LEN);
		rig_check(t.b, &pkts[i], QPN, first + (unsigned)i);
	}
}

/*
 * One turn of port b: it takes a burst and sends an answer. The packets of the burst stay valid
 * after the flush. Returns the length of the burst.
 */
static int turn(void)
{
	struct port_pkt pkts[PORT_BURST];
	int n = t.b->ops->rx_burst(t.b, pkts, PORT_BURST);

	if (n > 0)
		assert_int_equal(rig_send(t.b, t.to_a, LEN, 0, QPN, t.answered++), 0);
	assert_true(t.b->ops->flush(t.b));
	check(pkts, n, t.taken);
	t.taken += (unsigned)n;
	return n;
}

/* Port a takes all answers. */
static void take_answers(void)
{
	struct port_pkt pkts[PORT_BURST];

	while (t.received < t.answered) {
		int n = rig_burst(t.a, pkts, PORT_BURST);

		assert_true(n > 0);
		for (int i = 0; i < n; i++, t.received++)
			rig_check(t.a, &pkts[i], QPN, t.received);
	}
}

/* Turns of a port for which packets always wait. */
static void be_busy(unsigned rounds)
{
	for (unsigned i = 0; i < rounds; i++) {
		while (t.sent - t.taken < 2 * GROUP)
			request(GROUP);
		turn();
		take_answers();
	}
}

static void drain(void)
{
	for (unsigned looks = 0; t.taken < t.sent; looks++) {
		assert_true(looks < 2 * t.sent);
		turn();
	}
	take_answers();
}

static unsigned all_calls(void)
{
	return calls.looks + calls.sends + calls.exchanges;
}

static void finish(void)
{
	struct port_pkt pkt;

	drain();
	assert_int_equal(t.b->ops->rx_burst(t.b, &pkt, 1), 0);
	assert_int_equal(t.b->stats.rx_packets, t.sent);
	assert_int_equal(t.b->stats.rx_bad, 0);
	t.a->ops->path_put(t.a, t.to_b);
	t.b->ops->path_put(t.b, t.to_a);
	rig_close(t.a);
	rig_close(t.b);
}

/* A turn of a busy port takes one system call, but for a look after each row of exchanges. */
static void one_call_for_a_turn(void **state)
{
	unsigned a_calls;

	if (!has_io_uring())
		skip();
	be_busy(WARM);
	calls.looks = calls.sends = calls.exchanges = 0;
	be_busy(ROUNDS);
	a_calls = t.sent / GROUP * 2; /* at most: its own flushes, and its looks for answers */
	assert_true(calls.exchanges >= ROUNDS * 9 / 10);
	assert_true(all_calls() <= ROUNDS + ROUNDS / 10 + a_calls);
	finish();
}

/* A datagram that a flush received prevents sleep, because nothing else announces it. */
static void a_received_datagram_prevents_sleep(void **state)
{
	if (!has_io_uring())
		skip();
	be_busy(WARM);
	assert_true(calls.exchanges > 0);
	assert_false(t.b->ops->arm(t.b));
	drain();
	assert_true(t.b->ops->arm(t.b));
	assert_false(rig_readable(t.b, 0));
	request(GROUP);
	assert_true(rig_readable(t.b, RIG_WAIT_MS));
	t.b->ops->disarm(t.b, true);
	finish();
}

/* While a thread sleeps on the port, flushes leave the packets in the socket. */
static void no_exchange_beside_a_sleeper(void **state)
{
	if (!has_io_uring())
		skip();
	be_busy(WARM);
	drain();
	assert_true(t.b->ops->arm(t.b));
	calls.exchanges = 0;
	for (unsigned i = 0; i < WARM; i++) {
		be_busy(1);
		assert_int_equal(calls.exchanges, 0);
		assert_true(t.taken == t.sent || rig_readable(t.b, RIG_WAIT_MS));
	}
	t.b->ops->disarm(t.b, true);
	be_busy(WARM);
	assert_true(calls.exchanges > 0);
	finish();
}

/* No datagram waits after the flushes of round trips. */
static void round_trips_have_no_exchange(void **state)
{
	struct port_pkt pkt;

	if (!has_io_uring())
		skip();
	for (unsigned i = 0; i < ROUNDS; i++) {
		request(GROUP);
		while (!turn())
			;
		assert_int_equal(t.b->ops->rx_burst(t.b, &pkt, 1), 0);
		take_answers();
	}
	finish();
	assert_int_equal(calls.exchanges, 0);
}

/* Single packets come better by one recvmmsg(). */
static void single_packets_have_no_exchange(void **state)
{
	if (!has_io_uring())
		skip();
	for (unsigned i = 0; i < 3; i++)
		request(1);
	for (unsigned i = 0; i < ROUNDS; i++) {
		request(1);
		turn();
		take_answers();
	}
	finish();
	assert_int_equal(calls.exchanges, 0);
}

/* Sends n packets of `len` bytes from b to a, which takes and forgets them. */
static void answer(unsigned n, uint32_t len)
{
	struct port_pkt pkts[PORT_BURST];
	unsigned got = 0;

	for (unsigned i = 0; i < n; i++)
		assert_int_equal(rig_send(t.b, t.to_a, len, 0, QPN, 0), 0);
	assert_true(t.b->ops->flush(t.b));
	while (got < n) {
		int burst = rig_burst(t.a, pkts, PORT_BURST);

		assert_true(burst > 0);
		got += (unsigned)burst;
	}
}

/* After long answers, the rest of the same turn is no exchange. */
static void one_flush_in_a_turn(void **state)
{
	struct port_pkt pkts[PORT_BURST];

	if (!has_io_uring())
		skip();
	be_busy(WARM);
	for (unsigned i = 0; i < WARM; i++) {
		while (t.sent - t.taken < 2 * GROUP)
			request(GROUP);
		t.taken += (unsigned)t.b->ops->rx_burst(t.b, pkts, PORT_BURST);
		answer(LONG, LONG_LEN);
		calls.exchanges = 0;
		answer(1, LEN);
		assert_int_equal(calls.exchanges, 0);
	}
	finish();
}

/* Long datagrams, in either direction, are no exchanges. */
static void long_datagrams(void **state)
{
	struct port_pkt pkts[PORT_BURST];

	if (!has_io_uring())
		skip();
	be_busy(WARM);
	for (unsigned i = 0; i < WARM; i++) {
		while (t.sent - t.taken < 2 * GROUP)
			request(GROUP);
		t.taken += (unsigned)t.b->ops->rx_burst(t.b, pkts, PORT_BURST);
		calls.exchanges = 0;
		answer(LONG, LONG_LEN);
		assert_int_equal(calls.exchanges, 0);
	}
	be_busy(WARM);
	drain();
	calls.exchanges = 0;
	for (unsigned i = 0; i < WARM; i++) {
		for (unsigned k = 0; k < LONG; k++)
			assert_int_equal(rig_send(t.a, t.to_b, LONG_LEN, 0, QPN, 0), 0);
		assert_true(t.a->ops->flush(t.a));
		if (i == 0)
			continue;
		assert_true(t.b->ops->rx_burst(t.b, pkts, PORT_BURST) > 1);
		answer(1, LEN);
	}
	assert_int_equal(calls.exchanges, 0);
}

/* Many datagrams that wait on a port with exchanges come by few system calls. */
static void many_datagrams_end_a_row(void **state)
{
	unsigned before;

	if (!has_io_uring())
		skip();
	be_busy(WARM);
	drain();
	for (unsigned i = 0; i < ROUNDS; i++)
		request(2);
	before = all_calls();
	while (t.taken < t.sent)
		turn();
	assert_true(all_calls() - before < ROUNDS / 2);
	finish();
}

/* The port of a group has another socket, which must be looked at, too. */
static void a_group_ends_exchanges(void **state)
{
	struct pkt_addr group = rig_addr("239.83.0.1");

	if (!has_io_uring())
		skip();
	be_busy(WARM);
	assert_int_equal(t.b->ops->join(t.b, &group), 0);
	drain();
	calls.exchanges = 0;
	be_busy(WARM);
	assert_int_equal(calls.exchanges, 0);
	t.b->ops->leave(t.b, &group);
	finish();
}

/* An ICMP error of another packet makes the send of an exchange fail. No packet is lost. */
static void an_error_of_another_packet(void **state)
{
	struct pkt_addr nobody = rig_addr("127.0.83.9");
	struct port_pkt pkts[PORT_BURST];
	struct port_path *path;

	if (!has_io_uring())
		skip();
	path = t.b->ops->path_get(t.b, &nobody, QPN);
	assert_non_null(path);
	for (unsigned i = 0; i < WARM; i++) {
		unsigned before;

		be_busy(WARM);
		assert_int_equal(rig_send(t.b, path, LEN, 0, QPN, 0), 0);
		assert_true(t.b->ops->flush(t.b));
		while (t.b->ops->rx_burst(t.b, pkts, PORT_BURST))
			t.taken += GROUP;
		request(GROUP);
		request(GROUP);
		before = calls.exchanges;
		assert_int_equal(turn(), GROUP);
		assert_int_equal(calls.exchanges, before + 1);
		take_answers();
	}
	t.b->ops->path_put(t.b, path);
	assert_int_equal(t.b->stats.tx_dropped, 0);
	finish();
}

/* After failures that pass, the port makes exchanges again. */
static void recovers(void)
{
	be_busy(ROUNDS);
	assert_true(calls.exchanges > 1);
	calls.enter_most = UINT32_MAX;
	calls.enter_fails = 0;
	calls.exchanges = 0;
	be_busy(ROUNDS);
	assert_true(calls.exchanges > ROUNDS / 2);
	finish();
}

/* Linux takes the send only: the packets stay in the socket. */
static void half_an_exchange(void **state)
{
	if (!has_io_uring())
		skip();
	calls.enter_most = 1;
	recovers();
}

/* Linux lacks memory for the requests. The port tries again. */
static void no_memory_for_an_exchange(void **state)
{
	if (!has_io_uring())
		skip();
	calls.enter_fails = -EAGAIN;
	recovers();
}

/* Linux refuses the call. The port goes on without exchanges. */
static void a_refused_exchange(void **state)
{
	if (!has_io_uring())
		skip();
	calls.enter_fails = -EPERM;
	be_busy(ROUNDS);
	assert_int_equal(calls.exchanges, 1);
	finish();
}

static void no_io_uring(void **state)
{
	calls.setup_fails = -EPERM;
	be_busy(ROUNDS);
	assert_int_equal(calls.exchanges, 0);
	finish();
}

/* ---- forks and ends ---- */

/* Returns the number of rings of io_uring that this process has open. */
static int open_rings(void)
{
	DIR *fds = opendir("/proc/self/fd");
	struct dirent *e;
	int n = 0;

	while (fds && (e = readdir(fds))) {
		char to[64] = "";

		if (readlinkat(dirfd(fds), e->d_name, to, sizeof(to) - 1) > 0)
			n += !strcmp(to, "anon_inode:[io_uring]");
	}
	return fds && !closedir(fds) ? n : -1;
}

/* Port b has received a datagram ahead. */
static void receive_ahead(void)
{
	be_busy(WARM);
	assert_true(calls.exchanges > 0);
	assert_true(open_rings() > 0);
	assert_false(t.b->ops->arm(t.b));
}

/*
 * A forked child leaves the datagram that was received ahead, and the ring of exchanges, to its
 * parent: each packet still comes once.
 */
static void a_fork_with_a_received_datagram(void **state)
{
	int status;
	pid_t pid;

	if (!has_io_uring())
		skip();
	receive_ahead();
	pid = fork();
	if (pid == 0) {
		t.a->ops->after_fork(t.a);
		t.b->ops->after_fork(t.b);
		t.b->ops->close(t.b);
		_exit(open_rings());
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	calls.exchanges = 0;
	be_busy(ROUNDS);
	assert_true(calls.exchanges > ROUNDS / 2);
	finish();
}

/* A datagram that was received ahead ends with its port: the next one gets only its packets. */
static void an_end_with_a_received_datagram(void **state)
{
	if (!has_io_uring())
		skip();
	receive_ahead();
	rig_close(t.a);
	rig_close(t.b);
	assert_int_equal(open_rings(), 0);
	open_ports();
	be_busy(WARM);
	finish();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(one_call_for_a_turn, setup, teardown),
		cmocka_unit_test_setup_teardown(a_received_datagram_prevents_sleep, setup,
						teardown),
		cmocka_unit_test_setup_teardown(no_exchange_beside_a_sleeper, setup, teardown),
		cmocka_unit_test_setup_teardown(round_trips_have_no_exchange, setup, teardown),
		cmocka_unit_test_setup_teardown(single_packets_have_no_exchange, setup, teardown),
		cmocka_unit_test_setup_teardown(one_flush_in_a_turn, setup, teardown),
		cmocka_unit_test_setup_teardown(long_datagrams, setup, teardown),
		cmocka_unit_test_setup_teardown(many_datagrams_end_a_row, setup, teardown),
		cmocka_unit_test_setup_teardown(a_group_ends_exchanges, setup, teardown),
		cmocka_unit_test_setup_teardown(an_error_of_another_packet, setup, teardown),
		cmocka_unit_test_setup_teardown(half_an_exchange, setup, teardown),
		cmocka_unit_test_setup_teardown(no_memory_for_an_exchange, setup, teardown),
		cmocka_unit_test_setup_teardown(a_refused_exchange, setup, teardown),
		cmocka_unit_test_setup_teardown(no_io_uring, setup, teardown),
		cmocka_unit_test_setup_teardown(a_fork_with_a_received_datagram, setup, teardown),
		cmocka_unit_test_setup_teardown(an_end_with_a_received_datagram, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
