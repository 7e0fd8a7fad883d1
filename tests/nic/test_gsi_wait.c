/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Datagrams of QP 1 to a full ring of shared memory wait for space: NICs on ports of kind shm with
 * the smallest ring, whose turns the test runs.
 */
#include <stdlib.h>

#include "nic/core.h"
#include "nic/counters.h"
#include "../port/shm_rig.h"

#define RING (64u << 10)

struct node {
	struct nic *nic;
	struct port *port;
	uint32_t received, first, last; /* number of datagrams; numbers of the first and the last */
	bool in_order;
};

static void on_gsi(void *host, unsigned port, const struct pkt_addr *src,
		   const struct pkt_addr *dst, const uint8_t *mad)
{
	struct node *n = host;
	uint32_t number;

	memcpy(&number, mad, sizeof(number));
	if (!n->received++)
		n->first = number;
	else
		n->in_order &= number == n->last + 1;
	n->last = number;
}

static const struct nic_host_ops ops = {.gsi = on_gsi};

static void open_node(struct node *n, const char *addr)
{
	struct nic_config cfg = {.pus = 1, .ports = 1, .ops = &ops, .host = n};

	*n = (struct node){.port = srig_open(addr, RING), .in_order = true};
	cfg.port[0][0] = n->port;
	assert_int_equal(nic_create(&cfg, &n->nic), 0);
}

static void close_node(struct node *n)
{
	nic_destroy(n->nic);
	port_close(n->port);
}

static struct nic_counters counters(const struct node *n)
{
	struct nic_counters c;

	nic_counters(n->nic, &c);
	return c;
}

static void send_number(const struct node *from, const struct node *to, uint32_t number)
{
	uint8_t mad[NIC_GSI_LEN] = {0};

	memcpy(mad, &number, sizeof(number));
	assert_int_equal(nic_gsi_send(from->nic, 0, &to->port->addr, 0, mad), 0);
}

static void turn(const struct node *n)
{
	if (n->port->ops->control)
		n->port->ops->control(n->port);
	nic_poll(n->nic, 0, 1);
}

/* Runs turns of both until neither has work. */
static void settle(const struct node *a, const struct node *b)
{
	for (unsigned i = 0; i < 100; i++) {
		turn(a);
		turn(b);
	}
}

/* All datagrams reach a reader that comes late, in order and once. */
static void late_reader(void **state)
{
	struct node a, b;
	struct nic_counters c;

	open_node(&a, "10.0.0.1");
	open_node(&b, "10.0.0.2");
	for (uint32_t i = 0; i < NIC_GSI_WAITING_DEST; i++)
		send_number(&a, &b, i);
	c = counters(&a);
	assert_true(c.tx_management_waits != 0);
	assert_int_equal(c.tx_management + c.tx_management_waits, NIC_GSI_WAITING_DEST);
	settle(&a, &b);
	assert_int_equal(b.received, NIC_GSI_WAITING_DEST);
	assert_true(b.in_order);
	c = counters(&a);
	assert_int_equal(c.tx_management, NIC_GSI_WAITING_DEST);
	assert_int_equal(c.tx_management_dropped, 0);
	/* later datagrams do not wait */
	send_number(&a, &b, NIC_GSI_WAITING_DEST);
	assert_int_equal(counters(&a).tx_management_waits, c.tx_management_waits);
	settle(&a, &b);
	assert_int_equal(b.received, NIC_GSI_WAITING_DEST + 1);
	assert_true(b.in_order);
	close_node(&a);
	close_node(&b);
}

/* A datagram does not overtake those that wait, although the ring has got space. */
static void no_overtaking(void **state)
{
	struct node a, b;
	uint32_t n = 0;

	open_node(&a, "10.0.0.1");
	open_node(&b, "10.0.0.2");
	while (!counters(&a).tx_management_waits)
		send_number(&a, &b, n++);
	turn(&b);
	turn(&b);
	assert_true(b.received != 0);
	send_number(&a, &b, n++);
	settle(&a, &b);
	assert_int_equal(b.received, n);
	assert_true(b.in_order);
	close_node(&a);
	close_node(&b);
}

/*
 * Peers that never read: their oldest datagrams are dropped and counted, and another peer loses
 * none, also while the table is full.
 */
static void no_reader(void **state)
{
	enum {
		SILENT = NIC_GSI_WAITING / NIC_GSI_WAITING_DEST + 1,
		SENT = NIC_GSI_WAITING_DEST * 2
	};
	struct node a, b, silent[SILENT];
	uint64_t dropped;
	uint32_t late = 300, in_rings;

	open_node(&a, "10.0.0.1");
	open_node(&b, "10.0.0.2");
	for (unsigned s = 0; s < SILENT; s++) {
		char addr[32];

		snprintf(addr, sizeof(addr), "10.0.0.%u", s + 3);
		open_node(&silent[s], addr);
		for (uint32_t i = 0; i < SENT; i++)
			send_number(&a, &silent[s], i);
	}
	in_rings = (uint32_t)counters(&a).tx_management;
	dropped = counters(&a).tx_management_dropped;
	assert_int_equal(in_rings + NIC_GSI_WAITING + dropped, (uint64_t)SILENT * SENT);
	/* more than the ring holds: some wait in the full table, in place of the silent peers' */
	for (uint32_t i = 0; i < late; i++)
		send_number(&a, &b, i);
	assert_true(counters(&a).tx_management - in_rings < late);
	settle(&a, &b);
	assert_int_equal(b.received, late);
	assert_true(b.in_order);
	/* what is left of a silent peer's datagrams: those in its ring, and the newest */
	settle(&a, &silent[0]);
	assert_int_equal(silent[0].first, 0);
	assert_int_equal(silent[0].last, SENT - 1);
	assert_false(silent[0].in_order);
	assert_true(silent[0].received <= in_rings / SILENT + NIC_GSI_WAITING_DEST);
	close_node(&a);
	close_node(&b);
	for (unsigned s = 0; s < SILENT; s++)
		close_node(&silent[s]);
}

/*
 * Datagrams that wait for a peer that ends do not wait any longer, and a later NIC at its address
 * gets those that are sent to it. A port looks for an absent peer only from time to time.
 */
static void reader_ends(void **state)
{
	struct node a, b;
	uint32_t n = 500;

	open_node(&a, "10.0.0.1");
	open_node(&b, "10.0.0.2");
	for (uint32_t i = 0; i < n; i++)
		send_number(&a, &b, i);
	assert_true(counters(&a).tx_management < n);
	close_node(&b);
	for (unsigned ms = 0; counters(&a).tx_management < n && ms < SRIG_WAIT_MS; ms++) {
		turn(&a);
		usleep(1000);
	}
	assert_int_equal(counters(&a).tx_management, n);
	open_node(&b, "10.0.0.2");
	for (unsigned ms = 0; !b.received && ms < SRIG_WAIT_MS; ms++) {
		send_number(&a, &b, n++);
		settle(&a, &b);
		usleep(1000);
	}
	assert_true(b.first >= 500);
	/* A NIC may end while datagrams wait. */
	for (uint32_t i = 0; i < 500; i++)
		send_number(&a, &b, i);
	close_node(&a);
	close_node(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(late_reader, srig_setup, srig_teardown),
		cmocka_unit_test_setup_teardown(no_overtaking, srig_setup, srig_teardown),
		cmocka_unit_test_setup_teardown(no_reader, srig_setup, srig_teardown),
		cmocka_unit_test_setup_teardown(reader_ends, srig_setup, srig_teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
