/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Errors that the Linux kernel may return from a send. The linker puts a script between the port
 * and the calls that send. Counters stay right, nothing is sent twice, and no loop spins.
 */
#include "rig.h"

#include <errno.h>
#include <stdio.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/sys.h"
#include "port/udp.h"

/*
 * The script: call n returns answer[n], which is an error or the number of messages to send. ALL:
 * the call is passed on unchanged. It is the script of this thread: those of the pools send, too.
 */
#define ALL 1000
static _Thread_local const int *answer;
static _Thread_local unsigned answers, calls;

int __real_sys_sendmmsg(int fd, struct mmsghdr *msgs, unsigned n, int flags);
int __wrap_sys_sendmmsg(int fd, struct mmsghdr *msgs, unsigned n, int flags);

ssize_t __real_sys_sendmsg(int fd, const struct msghdr *msg, int flags);
ssize_t __wrap_sys_sendmsg(int fd, const struct msghdr *msg, int flags);
ssize_t __real_sys_sendto(int fd, const void *buf, size_t len, int flags,
			  const struct sockaddr *addr, socklen_t alen);
ssize_t __wrap_sys_sendto(int fd, const void *buf, size_t len, int flags,
			  const struct sockaddr *addr, socklen_t alen);

/* The port sends a single message by the shorter calls. */
ssize_t __wrap_sys_sendmsg(int fd, const struct msghdr *msg, int flags)
{
	unsigned call = calls++;

	return call < answers && answer[call] < 0 ? answer[call]
						  : __real_sys_sendmsg(fd, msg, flags);
}

ssize_t __wrap_sys_sendto(int fd, const void *buf, size_t len, int flags,
			  const struct sockaddr *addr, socklen_t alen)
{
	unsigned call = calls++;

	return call < answers && answer[call] < 0
		       ? answer[call]
		       : __real_sys_sendto(fd, buf, len, flags, addr, alen);
}

int __wrap_sys_sendmmsg(int fd, struct mmsghdr *msgs, unsigned n, int flags)
{
	unsigned call = calls++;

	if (call < answers && answer[call] < 0)
		return answer[call];
	if (call < answers && (unsigned)answer[call] < n)
		n = (unsigned)answer[call];
	return __real_sys_sendmmsg(fd, msgs, n, flags);
}

/*
 * Number of failed calls that find errors from the network. Every fourth call finds none, as if the
 * Linux kernel had queued an error and had not failed a call yet.
 */
static unsigned forged, looks;

bool __real_udp_take_errors(struct udp_port *u);
bool __wrap_udp_take_errors(struct udp_port *u);

bool __wrap_udp_take_errors(struct udp_port *u)
{
	if (!forged)
		return __real_udp_take_errors(u);
	forged--;
	u->errors_read |= ++looks % 4 != 0;
	return looks % 4 != 0;
}

static void script(const int *a, unsigned n)
{
	answer = a;
	answers = n;
	calls = forged = looks = 0;
}

#define SCRIPT(...) script((const int[]){__VA_ARGS__}, sizeof((int[]){__VA_ARGS__}) / sizeof(int))

static struct port *a, *b;
static struct port_path *to_b;

static int set_up(void **state)
{
	char spec[64];

	script(NULL, 0);
	snprintf(spec, sizeof(spec), "udp:127.%d.%d.201", 1 + (getpid() >> 8) % 250,
		 getpid() % 250);
	a = rig_open(spec);
	snprintf(spec, sizeof(spec), "udp:127.%d.%d.202", 1 + (getpid() >> 8) % 250,
		 getpid() % 250);
	b = rig_open(spec);
	to_b = a->ops->path_get(a, &b->addr, 0);
	if (!to_b)
		return -1;
	((struct udp_path *)to_b)->joins = false; /* as to another machine */
	return 0;
}

static void send_some(uint32_t len, unsigned count, unsigned first)
{
	for (unsigned i = 0; i < count; i++)
		assert_int_equal(rig_send(a, to_b, len, 0, 9, first + i), 0);
}

/*
 * The next packets at b are these, except `lost`, each with the predicted identification. No other
 * packets come.
 */
static void expect_without(unsigned first, unsigned count, unsigned lost)
{
	struct port_pkt pkts[PORT_BURST];
	unsigned got = 0;

	while (got < count) {
		int n = rig_burst(b, pkts, PORT_BURST);

		assert_true(n > 0);
		for (int i = 0; i < n; i++, got++) {
			got += first + got == lost;
			assert_true(rig_check(b, &pkts[i], 9, first + got));
		}
	}
	assert_int_equal(got, count);
	assert_int_equal(b->ops->rx_burst(b, pkts, PORT_BURST), 0);
}

static void expect(unsigned first, unsigned count)
{
	expect_without(first, count, UINT32_MAX);
}

static void expect_stats(uint64_t sent, uint64_t dropped)
{
	assert_int_equal(a->stats.tx_packets, sent);
	assert_int_equal(a->stats.tx_dropped, dropped);
}

/*
 * No space: the batch is kept, reserve returns -EAGAIN, and the descriptor shows when there is
 * space again.
 */
static void test_blocked(void **state)
{
	struct port_buf buf;

	SCRIPT(-EAGAIN, -EAGAIN);
	send_some(64, 3, 0);
	send_some(128, 2, 3);
	assert_false(a->ops->flush(a));
	assert_int_equal(calls, 1);
	assert_int_equal(a->ops->reserve(a, to_b, 64, 0, &buf), -EAGAIN);
	assert_int_equal(calls, 1);
	assert_int_equal(a->stats.tx_blocked, 1);
	expect_stats(0, 0);
	assert_true(a->ops->arm(a));
	assert_true(rig_readable(a, RIG_WAIT_MS)); /* the socket itself has space */
	a->ops->disarm(a, true);
	assert_false(rig_readable(a, 0));
	assert_false(a->ops->flush(a));
	assert_true(a->ops->flush(a));
	expect(0, 5);
	expect_stats(5, 0);
	send_some(64, 1, 5);
	assert_true(a->ops->flush(a));
	expect(5, 1);
}

/* A part of a batch is sent, the rest waits. No packet is sent twice. */
static void test_partial(void **state)
{
	SCRIPT(1, -EAGAIN, 1, ALL);
	for (unsigned i = 0; i < 4; i++)
		send_some(64 << i, 2, 2 * i); /* each length makes a group */
	assert_false(a->ops->flush(a));
	expect_stats(2, 0);
	assert_true(a->ops->flush(a));
	expect(0, 8);
	expect_stats(8, 0);
}

/* UDP_SEGMENT is refused: the packets are sent one by one with new ICRCs. Later packets too. */
static void refused(int error)
{
	SCRIPT(error);
	send_some(256, 40, 0);
	send_some(64, 10, 40);
	assert_true(a->ops->flush(a));
	expect(0, 50);
	expect_stats(50, 0);
	send_some(256, 5, 50);
	assert_true(a->ops->flush(a));
	expect(50, 5);
	expect_stats(55, 0);
}

static void test_refused(void **state)
{
	refused(-EINVAL);
}

static void test_refused_io(void **state)
{
	refused(-EIO);
}

/* Refused; then there is no space while the packets are sent one by one. */
static void test_refused_partial(void **state)
{
	SCRIPT(-EINVAL, 7, -EAGAIN, 3, -ENOBUFS, ALL);
	send_some(256, 20, 0);
	assert_false(a->ops->flush(a));
	expect(0, 7);
	assert_true(a->ops->flush(a));
	expect_without(7, 13, 10);
	expect_stats(19, 1);
}

/* The Linux kernel refuses to segment for a socket without checksums. */
static void test_refused_by_kernel(void **state)
{
	int one = 1;

	if (udp_port(a)->tx.max_segs == 1) {
		print_message("SKIPPED: this kernel has no UDP_SEGMENT\n");
		skip();
	}
	assert_int_equal(setsockopt(udp_port(a)->out, SOL_SOCKET, SO_NO_CHECK, &one, sizeof(one)),
			 0);
	send_some(256, 40, 0);
	send_some(64, 10, 40);
	assert_true(a->ops->flush(a));
	assert_true(((struct udp_path *)to_b)->no_gso);
	expect(0, 50);
	expect_stats(50, 0);
}

/*
 * A datagram of mixed packets is refused: its packets are lost, and the next ones are sent in
 * groups. A lack of memory does not change that.
 */
static void test_joined_refused(void **state)
{
	static const int errors[] = {-ENOBUFS, -EMSGSIZE};
	struct udp_path *path = (struct udp_path *)to_b;

	path->joins = true;
	for (unsigned i = 0; i < 2; i++) {
		SCRIPT(errors[i]);
		send_some(64, 2, 0);
		send_some(128, 2, 2);
		assert_true(a->ops->flush(a));
		assert_int_equal(calls, 1);
		expect_stats(0, 4 * (i + 1));
		assert_int_equal(path->joins, i == 0);
	}
	send_some(64, 2, 4);
	send_some(128, 2, 6);
	assert_int_equal(udp_port(a)->tx.count, 2);
	assert_true(a->ops->flush(a));
	expect(4, 4);
	expect_stats(4, 8);
}

/* Lost packets are counted and reported once. The next packets are sent. */
static void test_dropped(void **state)
{
	static const int errors[] = {-EMSGSIZE,	    -ENOBUFS,  -EPERM, -ENETUNREACH,
				     -EHOSTUNREACH, -ENETDOWN, -ENOMEM};
	unsigned n = 0;

	for (unsigned i = 0; i < ARRAY_SIZE(errors); i++, n += 6) {
		SCRIPT(errors[i], ALL);
		send_some(64, 4, n);
		send_some(128, 2, n + 4); /* a group of its own */
		assert_true(a->ops->flush(a));
		assert_int_equal(calls, 2);
		expect(n + 4, 2);
		expect_stats(2 * (i + 1), 4 * (i + 1));
	}
}

/*
 * Errors of earlier packets fail this call. It is repeated. If the errors do not end, the packets
 * wait for a later flush.
 */
static void test_connection_refused(void **state)
{
	int for_ever[80];

	SCRIPT(-ECONNREFUSED, ALL);
	send_some(64, 4, 0);
	assert_true(a->ops->flush(a));
	expect(0, 4);
	expect_stats(4, 0);
	SCRIPT(-ECONNREFUSED, -ECONNREFUSED, -ECONNREFUSED, -ECONNREFUSED);
	send_some(64, 4, 4);
	assert_true(a->ops->flush(a));
	assert_int_equal(calls, 5);
	expect(4, 4);
	expect_stats(8, 0);
	for (unsigned i = 0; i < ARRAY_SIZE(for_ever); i++)
		for_ever[i] = -ECONNREFUSED;
	script(for_ever, ARRAY_SIZE(for_ever));
	send_some(64, 4, 8);
	assert_false(a->ops->flush(a));
	assert_in_range(calls, 8, 64);
	script(NULL, 0);
	assert_true(a->ops->flush(a));
	expect(8, 4);
	expect_stats(12, 0);
}

/*
 * Errors of each kind from the network, without end. Any sender can cause them, and each fails a
 * call. They lose no packet, do not reduce the MTU, and do not stop groups. A flush ends; a later
 * one sends the waiting packets.
 */
static void test_forged(void **state)
{
	static const int errors[] = {-EMSGSIZE, -EOPNOTSUPP,  -EHOSTUNREACH, -ENETUNREACH,
				     -EPROTO,	-ENOPROTOOPT, -EACCES,	     -EHOSTDOWN};
	static int fails[100];
	unsigned n = 0;

	for (unsigned i = 0; i < ARRAY_SIZE(errors); i++, n += 6) {
		for (unsigned k = 0; k < ARRAY_SIZE(fails); k++)
			fails[k] = errors[(i + k) % ARRAY_SIZE(errors)];
		script(fails, ARRAY_SIZE(fails));
		forged = ARRAY_SIZE(fails);
		send_some(64, 4, n);
		send_some(128, 2, n + 4);
		while (!a->ops->flush(a)) {
			assert_true(calls <= ARRAY_SIZE(fails) + 1);
			assert_int_equal(a->stats.tx_dropped, 0);
		}
		assert_in_range(calls, ARRAY_SIZE(fails) + 1,
				ARRAY_SIZE(fails) + 2); /* two groups in one call or two */
		expect(n, 6);
		expect_stats(n + 6, 0);
		assert_false(((struct udp_path *)to_b)->no_gso);
	}
}

/* A flush ends, however many errors wait. */
static void test_forged_for_ever(void **state)
{
	static int fails[1000];

	for (unsigned k = 0; k < ARRAY_SIZE(fails); k++)
		fails[k] = -EHOSTUNREACH;
	script(fails, ARRAY_SIZE(fails));
	forged = ARRAY_SIZE(fails);
	send_some(64, 4, 0);
	assert_false(a->ops->flush(a));
	assert_in_range(calls, 2, 64);
	script(NULL, 0);
	assert_true(a->ops->flush(a));
	expect(0, 4);
	expect_stats(4, 0);
}

/* The port's clock only advances when a test moves it. */
static uint64_t time_now;
uint64_t __wrap_port_clock(void *ctx);
uint64_t __wrap_port_clock(void *ctx)
{
	return time_now;
}

#define NOBODIES 32 /* packets of a flush */

/*
 * Sends a packet to each of some unused addresses. The Linux kernel answers each with an error at
 * once.
 */
static void send_to_nobody(unsigned round)
{
	struct port_path *to[NOBODIES];
	char text[32];

	for (unsigned i = 0; i < NOBODIES; i++) {
		struct pkt_addr addr;

		snprintf(text, sizeof(text), "127.251.%u.%u", round, i + 1);
		addr = rig_addr(text);
		to[i] = a->ops->path_get(a, &addr, 2);
		assert_non_null(to[i]);
		assert_int_equal(rig_send(a, to[i], 64, 0, 2, i), 0);
	}
	while (!a->ops->flush(a))
		;
	for (unsigned i = 0; i < NOBODIES; i++)
		a->ops->path_put(a, to[i]);
}

/*
 * Packets to unused addresses cause errors. Each error ends a call that sends many, and costs a
 * call of its own. After some errors the port turns reports off for a time. No packet is lost.
 * After that time it gets reports of missing peers again.
 */
static void test_many_errors(void **state)
{
	struct port_pkt pkts[PORT_BURST];
	unsigned before;

	time_now = 1000000000;
	script(NULL, 0);
	a->num_hints = 0;
	for (unsigned i = 0; i < 20; i++)
		send_to_nobody(i);
	assert_in_range(a->num_hints, 1, PORT_HINTS);
	before = calls;
	for (unsigned i = 0; i < 20; i++)
		send_to_nobody(i);
	assert_in_range(calls - before, 20, 21);
	expect_stats(40 * NOBODIES, 0);
	a->num_hints = 0;
	assert_int_equal(a->ops->rx_burst(a, pkts, PORT_BURST), 0);
	send_to_nobody(0);
	assert_int_equal(a->ops->rx_burst(a, pkts, PORT_BURST), 0);
	assert_int_equal(a->num_hints, 0); /* the time is not over */
	time_now += 100000000;
	assert_int_equal(a->ops->rx_burst(a, pkts, PORT_BURST), 0);
	send_to_nobody(0);
	assert_int_equal(a->ops->rx_burst(a, pkts, PORT_BURST), 0);
	assert_in_range(a->num_hints, 1, PORT_HINTS);
	send_some(64, 4, 0);
	assert_true(a->ops->flush(a));
	expect(0, 4);
}

/* The path is released while its packets wait. */
static void test_path_gone(void **state)
{
	struct port_path *self;

	script(NULL, 0);
	send_some(64, 3, 0);
	a->ops->path_put(a, a->ops->path_get(a, &a->addr, 1));
	assert_int_equal(calls, 0); /* that path had no waiting packets */
	assert_true(a->ops->flush(a));
	expect(0, 3);
	self = a->ops->path_get(a, &a->addr, 0);
	SCRIPT(-EAGAIN, -EAGAIN, ALL);
	assert_int_equal(rig_send(a, self, 64, 0, 9, 0), 0);
	send_some(64, 3, 0);
	assert_false(a->ops->flush(a));
	a->ops->path_put(a, self);
	assert_true(a->ops->flush(a));
	expect(0, 3);
	expect_stats(6, 1);
}

/* A full batch is sent without a flush. */
static void test_full_batch(void **state)
{
	SCRIPT(ALL);
	for (unsigned i = 0; i < UDP_MAX_GROUPS; i++) /* each type of service makes a group */
		assert_int_equal(rig_send(a, to_b, 64, i % 2 ? 4 : 0, 9, i), 0);
	expect_stats(0, 0);
	send_some(64, 1, UDP_MAX_GROUPS);
	assert_int_equal(calls, 1);
	expect(0, UDP_MAX_GROUPS);
	assert_true(a->ops->flush(a));
	expect(UDP_MAX_GROUPS, 1);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, set_up, rig_close_all)
	const struct CMUnitTest tests[] = {
		T(test_blocked),	 T(test_partial),
		T(test_refused),	 T(test_refused_io),
		T(test_refused_partial), T(test_refused_by_kernel),
		T(test_dropped),	 T(test_connection_refused),
		T(test_path_gone),	 T(test_full_batch),
		T(test_joined_refused),	 T(test_forged),
		T(test_forged_for_ever), T(test_many_errors),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
