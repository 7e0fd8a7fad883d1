/* SPDX-License-Identifier: BSD-2-Clause */
/* Groups on udp: each member on this machine gets each packet once, and other ports get none. */
#include "../common/capture.h"
#include "../common/network.h"
#include "rig.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "port/port.h"

#define QPN 0xffffffu

static char address[3][48], group_text[2][48];
static struct pkt_addr group, other;

/* Addresses and groups on loopback that no other test uses. */
static void choose(bool v6)
{
	int pid = getpid();

	for (int i = 0; i < 3; i++)
		snprintf(address[i], sizeof(address[i]), "udp:127.%d.%d.%d", 1 + (pid >> 8) % 250,
			 pid % 250, i + 1);
	for (int i = 0; i < 2; i++)
		snprintf(group_text[i], sizeof(group_text[i]), v6 ? "ff0e::%x:%x" : "239.%d.%d.77",
			 1 + (pid >> 8) % 120 + 125 * i, pid % 250);
	if (v6) {
		strcpy(address[0], "udp:fd78::1");
		strcpy(address[1], "udp:fd78::2");
		strcpy(address[2], "udp:fd78::3");
	}
	group = rig_addr(group_text[0]);
	other = rig_addr(group_text[1]);
}

static struct port *open_member(int i, const char *options, const struct pkt_addr *g)
{
	char spec[256];
	struct port *p;

	snprintf(spec, sizeof(spec), "%s%s", address[i], options);
	p = rig_open(spec);
	if (g)
		assert_int_equal(p->ops->join(p, g), 0);
	return p;
}

/* Checks that `count` packets to `dst`, numbered from `first`, have come by now. */
static void received(struct port *p, const struct pkt_addr *dst, uint32_t first, unsigned count)
{
	struct port_pkt pkts[PORT_BURST];
	unsigned got = 0;

	while (got < count) {
		int n = rig_burst(p, pkts, PORT_BURST);

		if (n == 0)
			fail_msg("packet %u of %u did not arrive", got, count);
		for (int i = 0; i < n; i++, got++)
			assert_true(rig_check_to(dst, &pkts[i], QPN, first + got));
	}
	for (int i = 0; i < 3; i++)
		assert_int_equal(p->ops->rx_burst(p, pkts, PORT_BURST), 0);
}

static void nothing(struct port *p)
{
	received(p, &group, 0, 0);
}

static struct port_path *path_to(struct port *p, const struct pkt_addr *dst)
{
	struct port_path *path = p->ops->path_get(p, dst, QPN);

	assert_non_null(path);
	assert_true(pkt_addr_eq(&path->dst, dst));
	return path;
}

/* Long packets in a row are sent by one call and arrive together. One packet is alone. */
static unsigned send_some(struct port *p, struct port_path *path, uint32_t first)
{
	static const uint32_t len[] = {1040, 1040, 1040, 1040, 500, 96, 96, 96, 20, 4128};

	for (unsigned i = 0; i < ARRAY_SIZE(len); i++)
		assert_int_equal(rig_send(p, path, len[i], 0, QPN, first + i), 0);
	assert_true(p->ops->flush(p));
	return ARRAY_SIZE(len);
}

static void members(bool v6)
{
	struct port *p[3];
	struct port_path *path[3];

	choose(v6);
	p[0] = open_member(0, "", &group);
	p[1] = open_member(1, "", &group);
	p[2] = open_member(2, "", &other);
	/* A member receives its own packets. A sender need not be a member. */
	for (unsigned i = 0; i < 3; i++) {
		unsigned n;

		path[i] = path_to(p[i], &group);
		n = send_some(p[i], path[i], 100 * i);
		received(p[0], &group, 100 * i, n);
		received(p[1], &group, 100 * i, n);
		nothing(p[2]);
	}
	/* The members' own addresses work as before. */
	struct port_path *direct = path_to(p[0], &p[1]->addr);
	unsigned n = send_some(p[0], direct, 7);

	received(p[1], &p[1]->addr, 7, n);
	p[0]->ops->path_put(p[0], direct);
	/* A member of two groups, then of one, then of none. */
	assert_int_equal(p[2]->ops->join(p[2], &group), 0);
	n = send_some(p[0], path[0], 3);
	received(p[2], &group, 3, n);
	received(p[0], &group, 3, n);
	received(p[1], &group, 3, n);
	p[2]->ops->leave(p[2], &group);
	p[1]->ops->leave(p[1], &group);
	n = send_some(p[0], path[0], 4);
	received(p[0], &group, 4, n);
	nothing(p[1]);
	nothing(p[2]);
	struct port_path *to_other = path_to(p[0], &other);

	n = send_some(p[0], to_other, 9);
	received(p[2], &other, 9, n);
	p[2]->ops->leave(p[2], &other);
	send_some(p[0], to_other, 9);
	nothing(p[2]);
	p[0]->ops->path_put(p[0], to_other);
	for (unsigned i = 0; i < 3; i++) {
		assert_int_equal(p[i]->stats.tx_dropped, 0);
		assert_int_equal(p[i]->stats.rx_bad, 0);
		p[i]->ops->path_put(p[i], path[i]);
		rig_close(p[i]);
	}
}

static void members4(void **state)
{
	members(false);
}

static void members6(void **state)
{
	/* Not on a loopback device, which has no route to IPv6 groups. */
	int tun = network_tunnel("10.78.0.1", "fd78::1", 9000);

	if (tun < 0 || !network_add6("tun0", "fd78::2") || !network_add6("tun0", "fd78::3")) {
		print_message("no tunnel device to be had: IPv6 groups are not tested\n");
		skip();
	}
	members(true);
	close(tun);
}

/*
 * A port that is busy with one kind of packets still gets the other: a group's packets and the
 * port's own come by different sockets.
 */
static void neither_starves(void **state)
{
	struct port *a, *b;
	struct port_path *to_group, *to_b;
	struct port_pkt pkts[PORT_BURST];
	unsigned own = 0, theirs = 0, turns = 0;

	choose(false);
	a = open_member(0, "", NULL);
	b = open_member(1, ",offload=0", &group);
	to_group = path_to(a, &group);
	to_b = path_to(a, &b->addr);
	for (unsigned i = 0; i < 24; i++) {
		assert_int_equal(rig_send(a, to_b, 96, 0, QPN, i), 0);
		assert_int_equal(rig_send(a, to_group, 96, 0, QPN, i), 0);
	}
	assert_true(a->ops->flush(a));
	while (own + theirs < 48) {
		int n = rig_burst(b, pkts, PORT_BURST);

		assert_true(n > 0);
		for (int i = 0; i < n; i++)
			*(pkt_addr_eq(pkts[i].dst, &group) ? &theirs : &own) += 1;
		if (++turns == 2)
			assert_true(own && theirs);
	}
	assert_int_equal(own, 24);
	rig_close(a);
	rig_close(b);
}

/* A packet to a group wakes a sleeping member, but not a port that has left the group. */
static void wakes(void **state)
{
	struct port *a, *b;
	struct port_path *path;

	choose(false);
	a = open_member(0, "", NULL);
	b = open_member(1, "", &group);
	path = path_to(a, &group);
	nothing(b);
	assert_true(b->ops->arm(b));
	assert_false(rig_readable(b, 0));
	send_some(a, path, 0);
	assert_true(rig_readable(b, RIG_WAIT_MS));
	b->ops->disarm(b, true);
	received(b, &group, 0, 10);
	b->ops->leave(b, &group);
	assert_true(b->ops->arm(b));
	send_some(a, path, 0);
	assert_false(rig_readable(b, 20));
	b->ops->disarm(b, true);
	rig_close(a);
	rig_close(b);
}

/* Each lane that is a member gets its own copy, for any lane in the QP number. */
static void lanes(void **state)
{
	struct port *lane[2], *a;
	struct port_path *path;
	char err[256];

	choose(false);
	for (unsigned i = 0; i < 2; i++) {
		lane[i] = port_open(address[1], i, 2, err, sizeof(err));
		if (!lane[i])
			fail_msg("%s", err);
	}
	a = open_member(0, "", NULL);
	path = path_to(a, &group);
	for (unsigned in = 1; in < 4; in++) {
		for (unsigned i = 0; i < 2; i++)
			if (in & 1u << i)
				assert_int_equal(lane[i]->ops->join(lane[i], &group), 0);
		send_some(a, path, in);
		for (unsigned i = 0; i < 2; i++) {
			received(lane[i], &group, in, in & 1u << i ? 10 : 0);
			if (in & 1u << i)
				lane[i]->ops->leave(lane[i], &group);
		}
	}
	port_close(lane[1]);
	port_close(lane[0]);
	rig_close(a);
}

static void refused(void **state)
{
	struct pkt_addr six = rig_addr("ff0e::1"), broadcast = rig_addr("255.255.255.255");
	struct port *p;

	choose(false);
	p = open_member(0, "", NULL);
	assert_int_equal(p->ops->join(p, &six), -EAFNOSUPPORT);
	assert_null(p->ops->path_get(p, &six, QPN));
	assert_int_equal(errno, EAFNOSUPPORT);
	assert_null(p->ops->path_get(p, &broadcast, QPN));
	assert_int_equal(errno, EINVAL);
	rig_close(p);
}

/* Counts the packets to the group in a capture. Each must have a right ICRC. */
static unsigned captured(const char *file)
{
	struct pcap_reader reader;
	struct pcap_record rec;
	unsigned count = 0;
	uint8_t *data = capture_load(NULL, file, &reader);

	while (pcap_reader_next(&reader, &rec) == 1) {
		struct icrc_flow flow;
		uint16_t id = rec.ip_id;

		assert_int_equal(rec.kind, PCAP_ROCE);
		assert_true(pkt_addr_eq(&rec.dst, &group));
		icrc_flow_init(&flow, &rec.src, &rec.dst, rec.sport, PKT_UDP_PORT);
		assert_true(icrc_verify(&flow, true, &id, rec.bth, rec.len));
		count++;
	}
	free(data);
	return count;
}

/* Faults and captures work for groups too. */
static void wrapped(void **state)
{
	char dir[] = "/tmp/roost-mcast-XXXXXX", options[2][128], file[2][64];
	struct port_pkt pkts[PORT_BURST];
	struct port *a, *b;
	struct port_path *path;
	unsigned got = 0;

	choose(false);
	assert_non_null(mkdtemp(dir));
	for (int i = 0; i < 2; i++)
		snprintf(file[i], sizeof(file[i]), "%s/%d.pcap", dir, i);
	snprintf(options[0], sizeof(options[0]), ",dup=1,pcap=%s", file[0]);
	snprintf(options[1], sizeof(options[1]), ",pcap=%s", file[1]);
	a = open_member(0, options[0], NULL);
	b = open_member(1, options[1], &group);
	path = path_to(a, &group);
	send_some(a, path, 50);
	while (got < 20) {
		int n = rig_burst(b, pkts, PORT_BURST);

		assert_true(n > 0);
		for (int i = 0; i < n; i++, got++)
			rig_check_to(&group, &pkts[i], QPN, 50 + got / 2);
	}
	b->ops->leave(b, &group);
	send_some(a, path, 50);
	nothing(b);
	a->ops->path_put(a, path);
	rig_close(a);
	rig_close(b);
	assert_int_equal(captured(file[0]), 20);
	assert_int_equal(captured(file[1]), 20);
	for (int i = 0; i < 2; i++)
		unlink(file[i]);
	rmdir(dir);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(members4, rig_close_all),
		cmocka_unit_test_teardown(members6, rig_close_all),
		cmocka_unit_test_teardown(neither_starves, rig_close_all),
		cmocka_unit_test_teardown(wakes, rig_close_all),
		cmocka_unit_test_teardown(lanes, rig_close_all),
		cmocka_unit_test_teardown(refused, rig_close_all),
		cmocka_unit_test_teardown(wrapped, rig_close_all),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
