/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The udp port between two addresses of this machine: each packet arrives once, in order, whole,
 * with a right ICRC.
 */
#include "../common/network.h"
#include "rig.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/rng.h"
#include "port/udp.h"

#define MAX_PACKETS 4096
#define CROWD	    100

static bool private_net;
static uint64_t seed = 20240607;

struct pair {
	struct port *a, *b;
	struct port_path *to_b;
};

static const char *const FAMILY[2][2] = {{"10.77.0.1", "10.77.0.2"}, {"fd77::1", "fd77::2"}};

static struct pair open_pair(bool v6, const char *options)
{
	struct pair p;
	char spec[2][128];

	for (int i = 0; i < 2; i++) {
		if (private_net)
			snprintf(spec[i], sizeof(spec[i]), "udp:%s%s", FAMILY[v6][i], options);
		else
			snprintf(spec[i], sizeof(spec[i]), "udp:127.%d.%d.%d%s",
				 1 + (getpid() >> 8) % 250, getpid() % 250, i + 1, options);
	}
	p.a = rig_open(spec[0]);
	p.b = rig_open(spec[1]);
	p.to_b = p.a->ops->path_get(p.a, &p.b->addr, rig_qpn(p.b));
	assert_non_null(p.to_b);
	return p;
}

static void close_pair(struct pair *p)
{
	p->a->ops->path_put(p->a, p->to_b);
	rig_close(p->a);
	rig_close(p->b);
}

/*
 * Sends packets of these lengths from a and receives them at b. Returns the number of
 * identifications that were not predicted.
 */
static unsigned talk(struct pair *p, const uint32_t *len, unsigned count, uint8_t tos)
{
	struct port_pkt pkts[PORT_BURST];
	unsigned sent = 0, got = 0, missed = 0;
	struct port_stats before = p->b->stats;
	int rc = 0;

	while (got < count) {
		/* Limited to the window, as the core does. */
		for (uint32_t bytes = 0; sent < count && bytes < p->a->window; sent++) {
			rc = rig_send(p->a, p->to_b, len[sent], tos, 0x1230, sent);
			assert_int_equal(rc, 0);
			bytes += len[sent] < 1024 ? 1024
						  : len[sent]; /* small ones take extra buffer */
		}
		assert_true(p->a->ops->flush(p->a));
		while (got < sent) {
			int n = rig_burst(p->b, pkts, PORT_BURST);

			if (n == 0)
				fail_msg("packet %u of %u did not arrive", got, count);
			for (int i = 0; i < n; i++, got++) {
				assert_int_equal(pkts[i].len, len[got]);
				assert_int_equal(pkts[i].tos, tos);
				assert_int_equal(!!(pkts[i].flags & PORT_CE), (tos & 3) == 3);
				assert_true(pkt_addr_eq(pkts[i].src, &p->a->addr));
				assert_int_equal(pkts[i].sport, p->to_b->sport);
				missed += !rig_check(p->b, &pkts[i], 0x1230, got);
			}
		}
	}
	assert_int_equal(p->b->ops->rx_burst(p->b, pkts, PORT_BURST), 0);
	assert_int_equal(p->b->stats.rx_packets - before.rx_packets, count);
	return missed;
}

/*
 * A packet from a loopback address arrives although its sender has closed before the receiver
 * looks: the pool remembers the source port.
 */
static void packet_of_a_sender_that_ended(void **state)
{
	struct port *a = rig_open("udp:127.77.0.1"), *b = rig_open("udp:127.77.0.2");
	struct port_path *path = a->ops->path_get(a, &b->addr, rig_qpn(b));
	struct port_pkt pkt;

	assert_non_null(path);
	assert_int_equal(rig_send(a, path, 64, 0, rig_qpn(b), 0), 0);
	assert_true(a->ops->flush(a));
	a->ops->path_put(a, path);
	rig_close(a);
	assert_int_equal(rig_burst(b, &pkt, 1), 1);
	assert_int_equal(pkt.len, 64);
	assert_int_equal(b->stats.rx_bad, 0);
	rig_close(b);
}

static unsigned fill_sizes(uint32_t *len, unsigned max)
{
	struct rng r;
	unsigned n = 0;

	/* Full groups; a smaller last packet; hundreds of small ones; alternating; then random. */
	for (int i = 0; i < 40; i++)
		len[n++] = PKT_MAX_LEN;
	len[n++] = 1076;
	for (int i = 0; i < 300; i++)
		len[n++] = 96;
	for (int i = 0; i < 50; i++)
		len[n++] = i % 2 ? 20 : 4128;
	rng_seed(&r, seed);
	while (n < max)
		len[n++] = RIG_MIN_LEN +
			   4 * (uint32_t)rng_below(&r, (PKT_MAX_LEN - RIG_MIN_LEN) / 4 + 1);
	return n;
}

static void mixed_sizes(bool v6, const char *options)
{
	static uint32_t len[700];
	unsigned n = fill_sizes(len, ARRAY_SIZE(len));
	struct pair p = open_pair(v6, options);

	print_message("seed %llu\n", (unsigned long long)seed);
	assert_int_equal(talk(&p, len, n, 0), 0);
	assert_int_equal(p.a->stats.tx_packets, n);
	assert_int_equal(p.a->stats.tx_dropped, 0);
	close_pair(&p);
}

static void test_v4(void **state)
{
	mixed_sizes(false, "");
}

static void test_v4_plain(void **state)
{
	mixed_sizes(false, ",offload=0");
}

static void test_v6(void **state)
{
	if (!private_net) {
		print_message("SKIPPED: no IPv6 addresses to use without a network namespace\n");
		skip();
	}
	mixed_sizes(true, "");
	mixed_sizes(true, ",offload=0");
}

/* A large group is sent by one system call, and arrives as one datagram. */
static void test_groups(void **state)
{
	static uint32_t len[64];
	struct pair p = open_pair(false, "");

	if (udp_port(p.a)->tx.max_segs < 64) {
		print_message("SKIPPED: this kernel has no UDP_SEGMENT\n");
		close_pair(&p);
		skip();
	}
	for (unsigned i = 0; i < ARRAY_SIZE(len); i++)
		len[i] = 128;
	talk(&p, len, ARRAY_SIZE(len), 0);
	assert_int_equal(p.a->stats.tx_bursts, 1);
	assert_int_equal(p.b->stats.rx_bursts, 1);
	close_pair(&p);
}

/*
 * Sends a message of `count` packets. The first is 16 bytes longer than the others. Returns the
 * number of the next packet.
 */
static unsigned send_message(struct pair *p, unsigned first, unsigned count)
{
	for (unsigned i = 0; i < count; i++)
		assert_int_equal(rig_send(p->a, p->to_b, i ? 1040 : 1056, 0, 7, first + i), 0);
	return first + count;
}

static void expect_groups(const struct pair *p, const unsigned *counts, unsigned n)
{
	const struct udp_tx *t = &udp_port(p->a)->tx;

	assert_int_equal(t->count, n);
	for (unsigned i = 0; i < n; i++)
		assert_int_equal(t->group[i].count, counts[i]);
}

static void expect_sent(struct pair *p, unsigned from, unsigned to)
{
	struct port_pkt pkts[PORT_BURST];

	assert_true(p->a->ops->flush(p->a));
	while (from < to) {
		int n = rig_burst(p->b, pkts, PORT_BURST);

		assert_true(n > 0);
		for (int i = 0; i < n; i++)
			assert_true(rig_check(p->b, &pkts[i], 7, from++));
	}
	assert_int_equal(from, to);
}

/* Opens a pair whose ends send each other only groups, as to another machine. */
static struct pair open_apart(void)
{
	struct pair p = open_pair(false, "");

	((struct udp_path *)p.to_b)->joins = false;
	return p;
}

/*
 * The first packet of a long message is sent alone once such messages are under way. For messages
 * of two packets this ends soon.
 */
static void test_first_packet(void **state)
{
	struct pair p = open_apart();
	unsigned sent = 0, from = 0;

	if (udp_port(p.a)->tx.max_segs < 64) {
		print_message("SKIPPED: this kernel has no UDP_SEGMENT\n");
		close_pair(&p);
		skip();
	}
	sent = send_message(&p, sent, 4);
	sent = send_message(&p, sent, 4);
	expect_groups(&p, (unsigned[]){2, 2, 1, 3}, 4);
	expect_sent(&p, from, sent);

	from = sent;
	sent = send_message(&p, sent, 4);
	expect_groups(&p, (unsigned[]){1, 3}, 2);
	expect_sent(&p, from, sent);

	/*
	 * The next call after two packets, a new message or a flush, shows that the message had two
	 * packets.
	 */
	from = sent;
	sent = send_message(&p, sent, 2);
	sent = send_message(&p, sent, 2);
	expect_groups(&p, (unsigned[]){1, 1, 2}, 3);
	expect_sent(&p, from, sent);

	from = sent;
	sent = send_message(&p, sent, 4);
	sent = send_message(&p, sent, 2);
	expect_groups(&p, (unsigned[]){2, 2, 1, 1}, 4);
	expect_sent(&p, from, sent);

	from = sent;
	sent = send_message(&p, sent, 2);
	expect_groups(&p, (unsigned[]){2}, 1);
	expect_sent(&p, from, sent);
	close_pair(&p);
}

static void test_tos(void **state)
{
	static uint32_t len[] = {4148, 4148, 4148, 20, 64, 64, 64};
	uint8_t all[] = {0x68, 0x01, 0x03, 0x6b, 0};

	for (int v6 = 0; v6 <= (private_net ? 1 : 0); v6++) {
		struct pair p = open_pair(v6, "");

		for (unsigned i = 0; i < ARRAY_SIZE(all); i++)
			talk(&p, len, ARRAY_SIZE(len), all[i]);
		close_pair(&p);
	}
}

static void test_tos_splits_groups(void **state)
{
	struct pair p = open_pair(false, "");
	struct port_pkt pkts[PORT_BURST];
	unsigned got = 0;

	for (unsigned i = 0; i < 12; i++)
		assert_int_equal(rig_send(p.a, p.to_b, 64, i % 6 < 3 ? 0 : 0x20, 7, i), 0);
	assert_true(p.a->ops->flush(p.a));
	while (got < 12) {
		int n = rig_burst(p.b, pkts, PORT_BURST);

		assert_true(n > 0);
		for (int i = 0; i < n; i++, got++) {
			assert_int_equal(pkts[i].tos, got % 6 < 3 ? 0 : 0x20);
			assert_true(rig_check(p.b, &pkts[i], 7, got));
		}
	}
	close_pair(&p);
}

/* Cancelled packets are not sent, at any place in a group. */
static void test_cancel(void **state)
{
	struct pair p = open_apart();
	struct port_pkt pkts[PORT_BURST];
	const struct {
		uint32_t len;
		bool cancel;
	} step[] = {{64, true},	 {64, false}, {64, true},  {64, false}, {32, true}, {64, false},
		    {128, true}, {64, false}, {32, false}, {32, false}, {20, true}};
	unsigned sent = 0, got = 0;

	for (unsigned i = 0; i < ARRAY_SIZE(step); i++) {
		assert_int_equal(rig_send(p.a, p.to_b, step[i].len, 0, 7, sent), 0);
		if (step[i].cancel) {
			p.a->ops->cancel(p.a);
			p.a->ops->cancel(p.a); /* nothing is left to cancel */
		} else {
			sent++;
		}
	}
	/*
	 * Cancelling leaves the groups unchanged: four packets of 64 and one of 32, and the last.
	 */
	assert_int_equal(udp_port(p.a)->tx.count, 2);
	assert_true(p.a->ops->flush(p.a));
	while (got < sent) {
		int n = rig_burst(p.b, pkts, PORT_BURST);

		assert_true(n > 0);
		for (int i = 0; i < n; i++, got++)
			assert_true(rig_check(p.b, &pkts[i], 7, got));
	}
	assert_int_equal(p.b->ops->rx_burst(p.b, pkts, PORT_BURST), 0);
	assert_int_equal(p.a->stats.tx_packets, sent);
	close_pair(&p);
}

/* A burst returns at most the requested number. The rest comes with the next burst. */
static void test_small_bursts(void **state)
{
	struct pair p = open_pair(false, "");
	struct port_pkt pkts[5];
	unsigned got = 0;

	for (unsigned i = 0; i < 64; i++)
		assert_int_equal(rig_send(p.a, p.to_b, 256, 0, 7, i), 0);
	assert_true(p.a->ops->flush(p.a));
	while (got < 64) {
		int n = rig_burst(p.b, pkts, 5);

		assert_in_range(n, 1, 5);
		for (int i = 0; i < n; i++, got++)
			assert_true(rig_check(p.b, &pkts[i], 7, got));
		if (got < 64)
			assert_true(!p.b->ops->arm(p.b) || rig_readable(p.b, RIG_WAIT_MS));
		p.b->ops->disarm(p.b, true);
	}
	close_pair(&p);
}

/*
 * The windows' number of packets fits while the receiver does not read: one by one, and in groups
 * beside READ responses.
 */
static void test_window(void **state)
{
	struct port_pkt pkts[PORT_BURST];
	/* The buffer of an ordinary process with default settings, and Roost's own. */
	const char *const options[] = {",buffer=212992,offload=0", ",buffer=212992", ",offload=0",
				       ""};

	for (unsigned i = 0; i < ARRAY_SIZE(options); i++) {
		bool grouped = i & 1;
		struct pair p = open_pair(false, options[i]);
		uint32_t bytes = p.a->window + (grouped ? p.b->read_window : 0), sent = 0;
		unsigned got = 0;

		for (; (sent + 1) * PKT_MAX_LEN <= bytes; sent++)
			assert_int_equal(rig_send(p.a, p.to_b, PKT_MAX_LEN, 0, 7, sent), 0);
		assert_true(p.a->ops->flush(p.a));
		while (got < sent) {
			int n = rig_burst(p.b, pkts, PORT_BURST);

			if (n == 0)
				fail_msg("%s: %u of %u packets arrived; buffer %u", options[i], got,
					 sent, udp_port(p.b)->rcvbuf);
			for (int k = 0; k < n; k++, got++)
				rig_check(p.b, &pkts[k], 7, got);
		}
		print_message("%s: %u packets of %u waited, none was lost\n", options[i], sent,
			      PKT_MAX_LEN);
		close_pair(&p);
	}
}

static void test_sleep(void **state)
{
	struct pair p = open_pair(false, "");
	struct port_pkt pkts[PORT_BURST];

	assert_true(p.b->ops->arm(p.b));
	assert_false(rig_readable(p.b, 0));
	assert_int_equal(rig_send(p.a, p.to_b, 64, 0, 7, 1), 0);
	assert_true(p.a->ops->flush(p.a));
	assert_true(rig_readable(p.b, RIG_WAIT_MS));
	p.b->ops->disarm(p.b, true);
	assert_int_equal(rig_burst(p.b, pkts, PORT_BURST), 1);
	assert_true(p.b->ops->arm(p.b));
	assert_false(rig_readable(p.b, 0));
	/*
	 * Packets that came before arming count too. A port that is not armed wakes no sleeper,
	 * even if it was armed before.
	 */
	p.b->ops->disarm(p.b, true);
	p.b->ops->disarm(p.b, true);
	assert_int_equal(rig_send(p.a, p.to_b, 64, 0, 7, 2), 0);
	assert_true(p.a->ops->flush(p.a));
	assert_false(rig_readable(p.b, 20));
	assert_true(p.b->ops->arm(p.b));
	assert_true(p.b->ops->arm(p.b));
	assert_true(rig_readable(p.b, RIG_WAIT_MS));
	p.b->ops->disarm(p.b, true);
	close_pair(&p);
}

/* A child that closes its copy of the port does not disturb the parent. */
static void test_fork(void **state)
{
	struct pair p = open_pair(false, "");
	pid_t child;
	int status, said[2];
	char c;

	assert_int_equal(pipe(said), 0);
	assert_true(p.b->ops->arm(p.b));
	child = fork();
	if (child == 0) {
		p.a->ops->after_fork(p.a);
		p.b->ops->after_fork(p.b);
		assert_int_equal(write(said[1], "x", 1), 1);
		alarm(60); /* in case the parent fails */
		pause();
	}
	assert_int_equal(read(said[0], &c, 1), 1);
	assert_int_equal(rig_send(p.a, p.to_b, 64, 0, 7, 1), 0);
	assert_true(p.a->ops->flush(p.a));
	assert_true(rig_readable(p.b, RIG_WAIT_MS));
	p.b->ops->disarm(p.b, true);
	/* The address is free when the parent closes it, even while the child lives. */
	close_pair(&p);
	p = open_pair(false, "");
	close_pair(&p);
	kill(child, SIGKILL);
	assert_int_equal(waitpid(child, &status, 0), child);
	close(said[0]);
	close(said[1]);
}

static void test_paths(void **state)
{
	struct pair p = open_pair(false, "");
	struct pkt_addr v6 = rig_addr("fd77::2"), none = rig_addr("0.0.0.0"),
			all = rig_addr("255.255.255.255");
	struct port_path *again = p.a->ops->path_get(p.a, &p.b->addr, rig_qpn(p.b) + 77);

	assert_ptr_equal(again, p.to_b);
	p.a->ops->path_put(p.a, again);
	errno = 0;
	assert_null(p.a->ops->path_get(p.a, &v6, 0));
	assert_int_equal(errno, EAFNOSUPPORT);
	assert_null(p.a->ops->path_get(p.a, &none, 0));
	assert_null(p.a->ops->path_get(p.a, &all, 0));
	if (private_net) {
		struct pkt_addr far = rig_addr("198.51.100.1");

		assert_null(p.a->ops->path_get(p.a, &far, 0));
		assert_int_equal(errno, ENETUNREACH);
	}
	/* Waiting packets are sent before the path is released. */
	assert_int_equal(rig_send(p.a, p.to_b, 64, 0, 7, 1), 0);
	p.a->ops->path_put(p.a, p.to_b);
	assert_true(p.b->ops->arm(p.b));
	assert_true(rig_readable(p.b, RIG_WAIT_MS));
	p.b->ops->disarm(p.b, true);
	rig_close(p.a);
	rig_close(p.b);
}

static void expect_error(const char *spec, const char *part, const char *advice)
{
	char err[256];
	struct port *p = port_open(spec, 0, 1, err, sizeof(err));

	if (p)
		fail_msg("%s was opened", spec);
	if (!strstr(err, part) || !strstr(err, advice) || strchr(err, '\n'))
		fail_msg("%s: the message is: %s", spec, err);
}

static void test_errors(void **state)
{
	struct pair p = open_pair(false, "");
	char text[64], spec[80];

	pkt_addr_print(&p.a->addr, text, sizeof(text));
	snprintf(spec, sizeof(spec), "udp:%s", text);
	expect_error(spec, text, "in use: stop the program that has it");
	if (!private_net)
		expect_error("udp:198.51.100.77", "198.51.100.77 is no address of this machine",
			     "ip address");
	else
		expect_error("udp:fd77::3", "fd77::3 is no address of this machine", "ip address");
	expect_error("udp:0.0.0.0", "0.0.0.0 is no address of one endpoint", "ip address");
	expect_error("udp:::", ":: is no address of one endpoint", "ip address");
	expect_error("udp:224.0.0.1", "224.0.0.1 is no address", "ip address");
	expect_error("udp:255.255.255.255", "255.255.255.255 is no address", "ip address");
	expect_error("udp:ff02::1", "ff02::1 is no address", "ip address");
	close_pair(&p);
}

/* Without an address, the port takes a free one. No two ports get the same. */
static void test_choice(void **state)
{
	struct port *p[3];
	char text[64];

	for (int i = 0; i < 3; i++) {
		p[i] = rig_open("udp");
		print_message("%s\n", pkt_addr_print(&p[i]->addr, text, sizeof(text)));
		for (int j = 0; j < i; j++)
			assert_false(pkt_addr_eq(&p[i]->addr, &p[j]->addr));
	}
	if (private_net) {
		/*
		 * There is no default route: the first address outside of loopback comes first,
		 * then loopback addresses.
		 */
		struct pkt_addr first = rig_addr("10.77.0.1"), third = rig_addr("127.0.0.3");

		assert_true(pkt_addr_eq(&p[0]->addr, &first));
		assert_true(pkt_addr_eq(&p[2]->addr, &third));
	}
	for (int i = 0; i < 3; i++)
		rig_close(p[i]);
}

static void test_mtu(void **state)
{
	struct pair p = open_pair(false, "");

	assert_int_equal(p.a->mtu, 4096);
	close_pair(&p);
	p = open_pair(false, ",mtu=1024");
	assert_int_equal(p.a->mtu, 1024);
	close_pair(&p);
}

/*
 * Takes a hint about the packet, which was sent to an address without a reader. The hint must come.
 * Linux limits its ICMP errors to all programs, so the packet is sent again from time to time. Only
 * a failure reaches the limit of the wait.
 */
static struct port_hint take_hint(struct port *p, struct port_path *to, uint32_t dqpn, uint32_t psn)
{
	struct port_pkt pkts[PORT_BURST];
	struct port_hint h;

	for (int i = 1; i < RIG_WAIT_MS && !p->num_hints; i++) {
		p->ops->arm(p);
		rig_readable(p, 1);
		p->ops->disarm(p, true);
		p->ops->rx_burst(p, pkts, PORT_BURST);
		if (i % 500 == 0 && !p->num_hints) {
			assert_int_equal(rig_send(p, to, 64, 0, dqpn, psn), 0);
			p->ops->flush(p);
		}
	}
	assert_true(p->num_hints > 0);
	h = p->hint[0];
	p->num_hints = 0;
	return h;
}

/*
 * No process has the address: the hint quotes the packet. Packets to others arrive, and no error is
 * left that keeps a sleeper awake.
 */
static void hints(bool v6)
{
	struct pair p = open_pair(v6, "");
	struct pkt_addr gone = p.b->addr;
	struct port_pkt pkts[PORT_BURST];
	struct port_path *self;
	struct port_hint h;
	unsigned sent = 0, got = 0;
	bool awake = true;

	rig_close(p.b);
	assert_int_equal(rig_send(p.a, p.to_b, 64, 0, 0x123450, 77), 0);
	p.a->ops->flush(p.a);
	h = take_hint(p.a, p.to_b, 0x123450, 77);
	assert_true(h.quotes);
	assert_true(pkt_addr_eq(&h.dst, &gone));
	assert_int_equal(h.dqpn, 0x123450);
	assert_int_equal(h.psn, 77);

	self = p.a->ops->path_get(p.a, &p.a->addr, 0);
	for (int i = 0; i < 20; i++) {
		assert_int_equal(rig_send(p.a, i % 2 ? self : p.to_b, 64, 0, 9, (uint32_t)i), 0);
		sent += i % 2;
		if (i % 7 == 6)
			p.a->ops->flush(p.a);
	}
	p.a->ops->flush(p.a);
	while (got < sent) {
		int n = rig_burst(p.a, pkts, PORT_BURST);

		assert_true(n > 0);
		for (int i = 0; i < n; i++, got++)
			assert_int_equal(rig_psn(&pkts[i]), 2 * got + 1);
	}
	take_hint(p.a, p.to_b, 9, 0);
	/* The last errors may take a moment. Then the port is quiet. */
	for (int i = 0; i < RIG_WAIT_MS && awake; i++) {
		while (p.a->ops->rx_burst(p.a, pkts, PORT_BURST) || p.a->num_hints)
			p.a->num_hints = 0;
		awake = !p.a->ops->arm(p.a) || rig_readable(p.a, 1);
		p.a->ops->disarm(p.a, true);
	}
	assert_false(awake);
	p.a->ops->path_put(p.a, self);
	p.a->ops->path_put(p.a, p.to_b);
	rig_close(p.a);
}

static void test_hints_v4(void **state)
{
	hints(false);
}

static void test_hints_v6(void **state)
{
	if (!private_net) {
		print_message("SKIPPED: no IPv6 addresses to use without a network namespace\n");
		skip();
	}
	hints(true);
}

/* Waits: the loopback may deliver after the sending call has returned. */
static void wait_for_reader(const struct pair *p, enum port_reader wanted)
{
	for (int ms = 0; ms < RIG_WAIT_MS && port_reader_of(p->a, p->to_b) != wanted; ms++)
		usleep(1000);
	assert_int_equal(port_reader_of(p->a, p->to_b), wanted);
}

/* Opens enough other sockets to make the Linux kernel's list longer than one read of it. */
static void open_crowd(bool v6, int fds[CROWD])
{
	for (int i = 0; i < CROWD; i++) {
		struct sockaddr_storage any = {
			.ss_family = v6 ? AF_INET6 : AF_INET}; /* any address, any port */

		fds[i] = socket(any.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
		assert_true(fds[i] >= 0);
		assert_int_equal(bind(fds[i], (struct sockaddr *)&any, sizeof(any)), 0);
	}
}

/*
 * The Linux kernel shows the waiting bytes of a socket of this machine, and nothing of a missing
 * one.
 */
static void reader(bool v6)
{
	struct pair p = open_pair(v6, "");
	struct port_pkt pkts[PORT_BURST];
	int crowd[CROWD];

	open_crowd(v6, crowd);
	assert_int_equal(port_reader_of(p.a, p.to_b), PORT_READER_READS);
	assert_int_equal(rig_send(p.a, p.to_b, 100, 0, 0x1230, 0), 0);
	assert_true(p.a->ops->flush(p.a));
	wait_for_reader(&p, PORT_READER_STALLED);
	assert_int_equal(rig_burst(p.b, pkts, PORT_BURST), 1);
	wait_for_reader(&p, PORT_READER_READS);
	rig_close(p.b);
	wait_for_reader(&p, PORT_READER_UNKNOWN);
	for (int i = 0; i < CROWD; i++)
		close(crowd[i]);
	p.a->ops->path_put(p.a, p.to_b);
	rig_close(p.a);
}

static void test_reader_v4(void **state)
{
	reader(false);
}

static void test_reader_v6(void **state)
{
	if (!private_net)
		skip();
	reader(true);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(test_v4, rig_close_all),
		cmocka_unit_test_teardown(test_v4_plain, rig_close_all),
		cmocka_unit_test_teardown(test_v6, rig_close_all),
		cmocka_unit_test_teardown(packet_of_a_sender_that_ended, rig_close_all),
		cmocka_unit_test_teardown(test_groups, rig_close_all),
		cmocka_unit_test_teardown(test_first_packet, rig_close_all),
		cmocka_unit_test_teardown(test_tos, rig_close_all),
		cmocka_unit_test_teardown(test_tos_splits_groups, rig_close_all),
		cmocka_unit_test_teardown(test_cancel, rig_close_all),
		cmocka_unit_test_teardown(test_small_bursts, rig_close_all),
		cmocka_unit_test_teardown(test_window, rig_close_all),
		cmocka_unit_test_teardown(test_sleep, rig_close_all),
		cmocka_unit_test_teardown(test_fork, rig_close_all),
		cmocka_unit_test_teardown(test_paths, rig_close_all),
		cmocka_unit_test_teardown(test_errors, rig_close_all),
		cmocka_unit_test_teardown(test_reader_v4, rig_close_all),
		cmocka_unit_test_teardown(test_reader_v6, rig_close_all),
		cmocka_unit_test_teardown(test_choice, rig_close_all),
		cmocka_unit_test_teardown(test_mtu, rig_close_all),
		cmocka_unit_test_teardown(test_hints_v4, rig_close_all),
		cmocka_unit_test_teardown(test_hints_v6, rig_close_all),
	};

	if (getenv("SEED"))
		seed = strtoull(getenv("SEED"), NULL, 0);
	private_net = network_private();
	if (!private_net)
		print_message(
			"no network namespace to be had: on the machine's own loopback, without IPv6\n");
	return cmocka_run_group_tests(tests, NULL, NULL);
}
