/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Listeners at one link-local address on two interfaces. On the other interface the address is
 * another machine's. Two slots of one program stand for two programs.
 */
#include "../common/network.h"

#include <errno.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "datagram.h"
#include "pool/pool.h"

#define BOTH	"fe80::84:1"
#define SERVICE 0x000000000106fe80ull
#define WAIT_MS 60000

static const char *const device[2] = {"tun0", "tun1"};

static struct pkt_addr addr;
static uint32_t scope[2];
static struct pool *pool;
static unsigned slot[2];
static struct pool_addr *opened[2];
static int sock[2][2]; /* by interface and slot */

/* Both slots use the address on both interfaces. */
static int open_all(void **state)
{
	unsigned silent;

	pool = pool_get();
	assert_non_null(pool);
	for (unsigned i = 0; i < 2; i++) {
		scope[i] = if_nametoindex(device[i]);
		opened[i] = pool_addr_get(pool, &addr, scope[i], &silent);
		assert_non_null(opened[i]);
		for (unsigned k = 0; k < 2; k++) {
			struct pool_socket told = {.sport = (uint16_t)(4700 + 2 * i + k)};

			slot[k] = (unsigned)pool_slot(pool, k);
			sock[i][k] = pool_addr_use(opened[i], slot[k]);
			assert_true(sock[i][k] >= 0);
			assert_int_equal(pool_addr_tell(opened[i], slot[k], &told), 0);
		}
	}
	return 0;
}

static int close_all(void **state)
{
	for (unsigned i = 0; i < 2; i++) {
		for (unsigned k = 0; k < 2; k++)
			pool_addr_unuse(opened[i], slot[k]);
		pool_addr_put(opened[i]);
	}
	pool_put(pool);
	return 0;
}

static int publish(unsigned k, unsigned i)
{
	return pool_publish(pool, slot[k], SERVICE, &addr, scope[i], 0);
}

static void withdraw(unsigned k, unsigned i)
{
	pool_withdraw(pool, slot[k], SERVICE, &addr, scope[i], 0);
}

static int routed(unsigned i)
{
	uint8_t pkt[DATAGRAM_REQUEST_LEN];

	datagram_make_request(pkt, SERVICE);
	return pool_management_slot(pool, &addr, scope[i], pkt, sizeof(pkt));
}

/* A request to the address on interface i comes to slot k. */
static void comes_to(unsigned i, unsigned k)
{
	struct sockaddr_in6 to = {
		.sin6_family = AF_INET6, .sin6_port = htons(4791), .sin6_scope_id = scope[i]};
	int from = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	struct pollfd p = {.fd = sock[i][k], .events = POLLIN};
	uint8_t pkt[DATAGRAM_REQUEST_LEN];

	memcpy(&to.sin6_addr, addr.b, 16);
	datagram_make_request(pkt, SERVICE);
	assert_int_equal(sendto(from, pkt, sizeof(pkt), 0, (struct sockaddr *)&to, sizeof(to)),
			 sizeof(pkt));
	assert_int_equal(poll(&p, 1, WAIT_MS), 1);
	assert_int_equal(recv(sock[i][k], pkt, sizeof(pkt), MSG_DONTWAIT), sizeof(pkt));
	close(from);
	assert_int_equal(routed(i), (int)slot[k]);
}

static void each_interface_has_its_listener(void **state)
{
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(publish(i, i), 0);
	assert_int_equal(publish(1, 0), -EADDRINUSE);
	for (unsigned i = 0; i < 2; i++)
		comes_to(i, i);
	withdraw(0, 0);
	assert_int_equal(routed(0), -1);
	comes_to(1, 1);
}

/* A program ends its listener on one interface, and keeps that on the other one. */
static void one_of_two_listeners_ends(void **state)
{
	for (unsigned ends = 0; ends < 2; ends++) {
		for (unsigned i = 0; i < 2; i++)
			assert_int_equal(publish(1, i), 0);
		withdraw(1, ends);
		assert_int_equal(routed(ends), -1);
		comes_to(!ends, 1);
		withdraw(1, !ends);
	}
}

/* An observer sees the address with its interface, and with a number if that has no name. */
static void is_seen_with_its_interface(void **state)
{
	struct pool_seen seen[POOL_SLOTS];
	char text[POOL_ADDR_TEXT], want[POOL_ADDR_TEXT];

	pool_look(seen);
	for (unsigned k = 0; k < 2; k++) {
		const struct pool_seen *s = &seen[slot[k]];

		assert_int_equal(s->num_addrs, 2);
		for (unsigned i = 0; i < 2; i++) {
			snprintf(want, sizeof(want), BOTH "%%%s", device[i]);
			assert_string_equal(pool_addr_print(&s->addr[i], s->scope[i], text), want);
		}
	}
	assert_string_equal(pool_addr_print(&addr, 12345, text), BOTH "%12345");
	assert_string_equal(pool_addr_print(&addr, 0, text), BOTH);
	assert_int_equal(pkt_addr_parse("fd77::1", &addr), 0);
	assert_string_equal(pool_addr_print(&addr, scope[0], text), "fd77::1");
	pkt_addr_parse(BOTH, &addr);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(each_interface_has_its_listener, open_all,
						close_all),
		cmocka_unit_test_setup_teardown(one_of_two_listeners_ends, open_all, close_all),
		cmocka_unit_test_setup_teardown(is_seen_with_its_interface, open_all, close_all),
	};

	if (pkt_addr_parse(BOTH, &addr) || !network_own() || network_link(device[0], BOTH) < 0 ||
	    network_link(device[1], BOTH) < 0) {
		printf("skipped: no network of its own with tunnel devices\n");
		return 77;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
