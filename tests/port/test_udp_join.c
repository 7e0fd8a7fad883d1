/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Packets of different lengths in one datagram (src/port/udp_join.c). Only a port that offers to
 * take them gets them. They arrive in order, whole, and with the identifications that their ICRCs
 * cover. A datagram with an inconsistent head is not split.
 */
#include "../common/network.h"
#include "rig.h"

#include <stdio.h>
#include <arpa/inet.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/mem.h"
#include "port/udp.h"

static bool private_net;

static struct port *open_end(bool v6, unsigned end, const char *options)
{
	char spec[80];

	if (private_net)
		snprintf(spec, sizeof(spec), v6 ? "udp:fd77::%u%s" : "udp:10.77.0.%u%s", end,
			 options);
	else
		snprintf(spec, sizeof(spec), "udp:127.%d.%d.%u%s", 1 + (getpid() >> 8) % 250,
			 getpid() % 250, 210 + end, options);
	return rig_open(spec);
}

static bool joins(struct port *from, struct port *to)
{
	struct port_path *path = from->ops->path_get(from, &to->addr, rig_qpn(to));
	bool is = ((struct udp_path *)path)->joins;

	from->ops->path_put(from, path);
	return is;
}

/* Sends packets of these lengths in one flush. They must arrive in this number of datagrams. */
static void talk(bool v6, const uint32_t *len, unsigned count, unsigned datagrams)
{
	struct port *a = open_end(v6, 1, ""), *b = open_end(v6, 2, "");
	struct port_path *to_b = a->ops->path_get(a, &b->addr, rig_qpn(b));
	struct port_pkt pkts[PORT_BURST];
	unsigned got = 0;

	for (unsigned i = 0; i < count; i++)
		assert_int_equal(rig_send(a, to_b, len[i], 0, 7, i), 0);
	/* A full batch has been sent already. */
	assert_int_equal(a->stats.tx_bursts + udp_port(a)->tx.count, datagrams);
	assert_true(a->ops->flush(a));
	while (got < count) {
		int n = rig_burst(b, pkts, PORT_BURST);

		assert_true(n > 0);
		for (int i = 0; i < n; i++, got++) {
			assert_int_equal(pkts[i].len, len[got]);
			assert_true(rig_check(b, &pkts[i], 7, got));
		}
	}
	assert_int_equal(b->ops->rx_burst(b, pkts, PORT_BURST), 0);
	assert_int_equal(a->stats.tx_packets, count);
	assert_int_equal(a->stats.tx_dropped, 0);
	assert_int_equal(b->stats.rx_packets, count);
	assert_int_equal(b->stats.rx_bad, 0);
	a->ops->path_put(a, to_b);
	rig_close(a);
	rig_close(b);
}

/* Seven WRITEs of 8 KiB; an ACK among READ responses; packets shorter than the next one. */
static void test_one_datagram(void **state)
{
	static const uint32_t acks[] = {20, 4116, 4112, 4116, 20, 64}, growing[] = {16, 20, 24, 28};
	uint32_t writes[14];

	for (unsigned i = 0; i < ARRAY_SIZE(writes); i++)
		writes[i] = i % 2 ? 4112 : 4128;
	for (int v6 = 0; v6 <= (private_net ? 1 : 0); v6++) {
		talk(v6, writes, ARRAY_SIZE(writes), 1);
		talk(v6, acks, ARRAY_SIZE(acks), 1);
		talk(v6, growing, ARRAY_SIZE(growing), 1);
	}
}

/* At most as many packets as the head has space for, and as many bytes as fit in a datagram. */
static void test_limits(void **state)
{
	uint32_t many[UDP_JOIN_MAX + 2], large[16];

	for (unsigned i = 0; i < ARRAY_SIZE(many); i++)
		many[i] = i % 2 ? 20 : 64;
	talk(false, many, UDP_JOIN_MAX, 1);
	talk(false, many, ARRAY_SIZE(many), 2);
	for (unsigned i = 0; i < ARRAY_SIZE(large); i++)
		large[i] = i % 2 ? PKT_MAX_LEN : PKT_MAX_LEN - 4;
	assert_true(15 * PKT_MAX_LEN <= UDP_JOIN_BYTES && 16 * (PKT_MAX_LEN - 4) > UDP_JOIN_BYTES);
	talk(false, large, 15, 1);
	talk(false, large, 16, 2);
}

/* Cancelling leaves the datagram as it was before. */
static void test_cancel(void **state)
{
	struct port *a = open_end(false, 1, ""), *b = open_end(false, 2, "");
	struct port_path *to_b = a->ops->path_get(a, &b->addr, rig_qpn(b));
	const struct udp_group *g = &udp_port(a)->tx.group[0];
	struct port_pkt pkts[PORT_BURST];

	assert_int_equal(rig_send(a, to_b, 64, 0, 7, 0), 0);
	assert_int_equal(rig_send(a, to_b, 32, 0, 7, 1), 0);
	assert_int_equal(rig_send(a, to_b, 64, 0, 7, 2), 0);
	assert_true(g->mixed);
	a->ops->cancel(a);
	assert_false(g->mixed);
	assert_true(g->closed);
	assert_int_equal(rig_send(a, to_b, 128, 0, 7, 2), 0);
	assert_int_equal(rig_send(a, to_b, 64, 0, 7, 3), 0);
	a->ops->cancel(a);
	assert_true(g->mixed);
	assert_int_equal(udp_port(a)->tx.count, 1);
	assert_true(a->ops->flush(a));
	assert_int_equal(rig_burst(b, pkts, PORT_BURST), 3);
	for (unsigned i = 0; i < 3; i++)
		assert_true(rig_check(b, &pkts[i], 7, i));
	a->ops->path_put(a, to_b);
	rig_close(a);
	rig_close(b);
}

/*
 * A port that does not offer it, a socket of another program, and no socket. Each new connection
 * checks again.
 */
static void test_only_who_offers(void **state)
{
	struct port *a = open_end(false, 1, ""), *b = open_end(false, 2, ",offload=0");
	struct pkt_addr addr = b->addr;
	struct port_path *path, *again;
	union udp_name name;
	socklen_t len = udp_name(&name, &addr, PKT_UDP_PORT, 0);
	int fd;

	assert_false(joins(a, b));
	assert_false(joins(b, a)); /* a port with the option off does not send them either */
	rig_close(b);
	path = a->ops->path_get(a, &addr, rig_qpn(a));
	assert_false(((struct udp_path *)path)->joins);

	fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(fd, &name.sa, len), 0);
	again = a->ops->path_get(a, &addr, rig_qpn(a));
	assert_ptr_equal(again, path);
	assert_false(((struct udp_path *)path)->joins);
	assert_int_equal(rig_send(a, path, 4128, 0, 7, 0), 0);
	assert_int_equal(rig_send(a, path, 4112, 0, 7, 1), 0);
	assert_int_equal(rig_send(a, path, 4128, 0, 7, 2), 0);
	assert_int_equal(udp_port(a)->tx.count, 2);
	assert_true(a->ops->flush(a));
	a->ops->path_put(a, again);
	close(fd);

	b = open_end(false, 2, "");
	again = a->ops->path_get(a, &addr, rig_qpn(a));
	assert_true(((struct udp_path *)path)->joins);
	a->ops->path_put(a, again);
	a->ops->path_put(a, path);
	rig_close(a);
	rig_close(b);
}

/*
 * Datagrams with a short head, or with a wrong count or length. None is split. The core refuses
 * them by their op-code.
 */
static void test_hostile(void **state)
{
	static const struct {
		uint16_t count, len[3];
		uint32_t bytes; /* length of the datagram */
	} bad[] = {
		{0, {0}, 64},
		{0, {0}, 16},
		{1, {47}, 64},
		{1, {49}, 64},
		{2, {48, 0}, 64},
		{3, {0, 24, 24}, 64},
		{3, {16, 16, 17}, 64},
		{3, {16, 16, 15}, 64},
		{UDP_JOIN_MAX, {48}, 64},
		{UDP_JOIN_MAX + 1, {48}, 64},
		{0xffff, {0xffff}, 64},
		{2, {0xffff, 49}, 64},
		{1, {16}, 12},
		{1, {16}, 8},
	};
	struct port *b = open_end(false, 2, "");
	struct port_pkt pkts[PORT_BURST];
	union udp_name to;
	socklen_t len = udp_name(&to, &b->addr, PKT_UDP_PORT, 0);
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	for (unsigned i = 0; i < ARRAY_SIZE(bad); i++) {
		uint8_t data[64] = {0xff,
				    'R',
				    'o',
				    1,
				    0,
				    0,
				    0,
				    0,
				    (uint8_t)(bad[i].count >> 8),
				    (uint8_t)bad[i].count};

		for (unsigned k = 0; k < 3; k++)
			memcpy(data + 10 + 2 * k, &(uint16_t){htons(bad[i].len[k])}, 2);
		assert_int_equal(sendto(fd, data, bad[i].bytes, 0, &to.sa, len), bad[i].bytes);
		assert_int_equal(rig_burst(b, pkts, PORT_BURST), 1);
		assert_int_equal(pkts[0].len, bad[i].bytes);
		assert_int_equal(pkts[0].bth[0], 0xff);
	}
	close(fd);
	rig_close(b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(test_one_datagram, rig_close_all),
		cmocka_unit_test_teardown(test_limits, rig_close_all),
		cmocka_unit_test_teardown(test_cancel, rig_close_all),
		cmocka_unit_test_teardown(test_only_who_offers, rig_close_all),
		cmocka_unit_test_teardown(test_hostile, rig_close_all),
	};

	private_net = network_private();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
