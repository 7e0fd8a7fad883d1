/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Any user of a machine may send from its loopback addresses, also from a peer's; only the peer's
 * port 4791 is not available. So the udp port drops packets from loopback with another source port,
 * before the core sees them. Addresses of other networks may send from any port.
 */
#include "../common/network.h"
#include "rig.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "port/udp.h"

static bool private_net;

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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(from_loopback, rig_close_all),
		cmocka_unit_test_teardown(from_loopback_of_ipv6, rig_close_all),
		cmocka_unit_test_teardown(from_elsewhere, rig_close_all),
	};

	private_net = network_private();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
