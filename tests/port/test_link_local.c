/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Link-local addresses of two interfaces. On the other interface such an address is another
 * machine's, so packets leave by their own interface, and no member of the pool gets them, although
 * one has the address there.
 */
#include "../common/network.h"
#include "rig.h"

#include <errno.h>
#include <net/if.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "pool/pool.h"

#define OWN	  "fe80::77:1"
#define NEIGHBOUR "fe80::77:2" /* on the same interface */
#define ELSEWHERE "fe80::77:3" /* on the other interface */
#define BOTH	  "fe80::77:4"

static int end[2]; /* the other ends of the interfaces */

static bool goes_by(struct port *from, const char *to, const char *way)
{
	struct pkt_addr addr = rig_addr(to);
	struct port_path *path = from->ops->path_get(from, &addr, rig_qpn(from));
	bool yes;

	assert_non_null(path);
	yes = strcmp(path->port->ops->name, way) == 0;
	from->ops->path_put(from, path);
	return yes;
}

static void shared_memory_stays_on_the_link(void **state)
{
	struct port *a = rig_open("host:" OWN);
	struct port *b = rig_open("host:" NEIGHBOUR), *c = rig_open("host:" ELSEWHERE);

	assert_true(goes_by(a, NEIGHBOUR, "shm"));
	assert_true(goes_by(a, ELSEWHERE, "udp"));
	assert_true(goes_by(c, NEIGHBOUR, "udp"));
	assert_int_equal(port_stats_of(a).tx_shm_fallbacks, 0);
	rig_close(c);
	rig_close(b);
	rig_close(a);
}

/* Returns true if an IPv6 packet to the address leaves by this interface. */
static bool leaves(int fd, const struct pkt_addr *dst)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};
	uint8_t packet[2048];

	while (poll(&p, 1, RIG_WAIT_MS) == 1) {
		ssize_t n = read(fd, packet, sizeof(packet));

		if (n >= 40 && !memcmp(packet + 24, dst->b, 16))
			return true;
	}
	return false;
}

static void packets_leave_by_the_link(void **state)
{
	struct port *a = rig_open("host:" OWN), *c = rig_open("host:" ELSEWHERE);
	struct port_path *path = a->ops->path_get(a, &c->addr, rig_qpn(c));
	struct port_pkt pkts[PORT_BURST];

	assert_non_null(path);
	assert_int_equal(rig_send(a, path, 64, 0, rig_qpn(c), 1), 0);
	assert_true(a->ops->flush(a));
	assert_true(leaves(end[0], &c->addr));
	assert_int_equal(c->ops->rx_burst(c, pkts, PORT_BURST), 0);
	a->ops->path_put(a, path);
	rig_close(c);
	rig_close(a);
}

/* A program has one address on both interfaces. The pool tells the sockets apart. */
static void one_address_on_both(void **state)
{
	struct pkt_addr addr = rig_addr(BOTH);
	uint32_t scope[2] = {if_nametoindex("tun0"), if_nametoindex("tun1")};
	struct pool *pool = pool_get();
	unsigned slot, silent;
	struct pool_addr *a[2];
	struct pool_socket s = {0};

	assert_non_null(pool);
	slot = (unsigned)pool_slot(pool, 0);
	for (unsigned i = 0; i < 2; i++) {
		a[i] = pool_addr_get(pool, &addr, scope[i], &silent);
		assert_non_null(a[i]);
		assert_true(pool_addr_use(a[i], slot) >= 0);
		s.sport = (uint16_t)(10 + i);
		assert_int_equal(pool_serves(pool, &addr, scope[i]), false);
		assert_int_equal(pool_addr_tell(a[i], slot, &s), 0);
	}
	for (unsigned i = 0; i < 2; i++) {
		uint16_t sport;

		assert_true(pool_find(pool, &addr, scope[i], slot, &s));
		assert_int_equal(s.sport, 10 + i);
		assert_non_null(pool_mailbox(pool, &addr, scope[i], slot, &sport));
		assert_int_equal(sport, 10 + i);
		assert_false(pool_sent_lately(pool, &addr, scope[i], sport));
		assert_true(pool_sends(pool, &addr, scope[i], sport));
		assert_false(pool_sends(pool, &addr, scope[!i], sport));
	}
	assert_int_not_equal(pool_inode(pool, &addr, scope[0], slot),
			     pool_inode(pool, &addr, scope[1], slot));
	pool_addr_unuse(a[1], slot);
	assert_true(pool_serves(pool, &addr, scope[0]));
	assert_false(pool_serves(pool, &addr, scope[1]));
	assert_false(pool_sends(pool, &addr, scope[1], 11));
	assert_true(pool_sent_lately(pool, &addr, scope[1], 11));
	assert_false(pool_sent_lately(pool, &addr, scope[0], 11));
	pool_addr_unuse(a[0], slot);
	assert_false(pool_serves(pool, &addr, scope[0]));
	for (unsigned i = 0; i < 2; i++)
		pool_addr_put(a[i]);
	pool_put(pool);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(shared_memory_stays_on_the_link, rig_close_all),
		cmocka_unit_test_teardown(packets_leave_by_the_link, rig_close_all),
		cmocka_unit_test(one_address_on_both),
	};

	end[0] = network_own() ? network_link("tun0", OWN) : -1;
	end[1] = end[0] < 0 ? -1 : network_link("tun1", ELSEWHERE);
	if (end[1] < 0 || !network_add6("tun0", NEIGHBOUR) || !network_add6("tun0", BOTH) ||
	    !network_add6("tun1", BOTH)) {
		printf("skipped: no network of its own with tunnel devices\n");
		return 77;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
