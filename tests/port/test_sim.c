/* SPDX-License-Identifier: BSD-2-Clause */
/* The simulated link: virtual time, and the same run from the same seed. */
#include "rig.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "port/sim.h"

#define SENT 3000

struct seen {
	unsigned count;
	struct {
		uint64_t at;
		uint32_t psn, len;
		bool whole;
	} pkt[2 * SENT];
};

static struct seen first, second;

static void run(const struct sim_params *params, uint64_t seed, struct seen *out)
{
	struct sim *s = sim_create(seed, params);
	struct pkt_addr addr[2] = {rig_addr("10.0.0.1"), rig_addr("10.0.0.2")};
	struct port *a = sim_port(s, &addr[0], 0, 1), *b = sim_port(s, &addr[1], 0, 1);
	struct port_path *path = a->ops->path_get(a, &addr[1], 5);
	struct icrc_flow flow;
	unsigned sent = 0;

	memset(out, 0, sizeof(*out));
	icrc_flow_init(&flow, &addr[0], &addr[1], path->sport, PKT_UDP_PORT);
	while (sent < SENT || sim_next_event(s) != UINT64_MAX) {
		struct port_pkt pkts[PORT_BURST];
		int n;

		for (unsigned i = 0; i < 10 && sent < SENT; i++, sent++)
			assert_int_equal(rig_send(a, path, 64 + sent % 9 * 4, 3, 5, sent), 0);
		assert_true(a->ops->flush(a));
		sim_advance(s, sent < SENT ? sim_now(s) + 1000 : sim_next_event(s));
		while ((n = b->ops->rx_burst(b, pkts, PORT_BURST)) > 0) {
			for (int i = 0; i < n; i++, out->count++) {
				uint16_t id = pkts[i].ip_id;

				assert_in_range(out->count, 0, 2 * SENT - 1);
				assert_true(pkt_addr_eq(pkts[i].src, &addr[0]) &&
					    pkt_addr_eq(pkts[i].dst, &addr[1]));
				assert_int_equal(pkts[i].tos, 3);
				assert_true(pkts[i].flags & PORT_CE);
				out->pkt[out->count].at = sim_now(s);
				out->pkt[out->count].psn = rig_psn(&pkts[i]);
				out->pkt[out->count].len = pkts[i].len;
				out->pkt[out->count].whole =
					icrc_verify(&flow, pkts[i].flags & PORT_ID_KNOWN, &id,
						    pkts[i].bth, pkts[i].len);
			}
		}
	}
	assert_int_equal(b->stats.rx_packets, out->count);
	a->ops->path_put(a, path);
	port_close(a);
	port_close(b);
	sim_destroy(s);
}

static void test_perfect(void **state)
{
	const struct sim_params params = {.delay_ns = 2000};

	run(&params, 1, &first);
	assert_int_equal(first.count, SENT);
	for (unsigned i = 0; i < SENT; i++) {
		assert_int_equal(first.pkt[i].psn, i);
		assert_int_equal(first.pkt[i].len, 64 + i % 9 * 4);
		assert_true(first.pkt[i].whole);
	}
}

static void test_seed(void **state)
{
	const struct sim_params params = {.loss = 0.1,
					  .dup = 0.1,
					  .reorder = 0.1,
					  .corrupt = 0.1,
					  .delay_ns = 2000,
					  .jitter_ns = 500,
					  .bytes_per_us = 1000};
	unsigned bad = 0;

	run(&params, 42, &first);
	run(&params, 42, &second);
	assert_memory_equal(&first, &second, sizeof(first));
	run(&params, 43, &second);
	assert_memory_not_equal(&first, &second, sizeof(first));
	assert_in_range(first.count, SENT * 9 / 10, SENT * 11 / 10);
	for (unsigned i = 0; i < first.count; i++)
		bad += !first.pkt[i].whole;
	assert_in_range(bad, SENT / 20, SENT / 6);
}

/* A packet arrives exactly on time, to the nanosecond. Bandwidth spaces packets out. */
static void test_time(void **state)
{
	const struct sim_params params = {.delay_ns = 5000, .bytes_per_us = 100};
	struct sim *s = sim_create(1, &params);
	struct pkt_addr addr[2] = {rig_addr("10.0.0.1"), rig_addr("10.0.0.2")};
	struct port *a = sim_port(s, &addr[0], 0, 1), *b = sim_port(s, &addr[1], 0, 1);
	struct port_path *path = a->ops->path_get(a, &addr[1], 5);
	struct port_pkt pkts[4];
	uint64_t start = sim_now(s);

	assert_int_equal(sim_next_event(s), UINT64_MAX);
	assert_int_equal(rig_send(a, path, 100, 0, 5, 0), 0);
	assert_int_equal(rig_send(a, path, 100, 0, 5, 1), 0);
	assert_true(a->ops->flush(a));
	assert_int_equal(sim_next_event(s), start + 1000 + 5000);
	sim_advance(s, start + 5999);
	assert_int_equal(b->ops->rx_burst(b, pkts, 4), 0);
	assert_true(b->ops->arm(b));
	sim_advance(s, start + 6000);
	assert_false(b->ops->arm(b));
	assert_int_equal(b->ops->rx_burst(b, pkts, 4), 1);
	assert_int_equal(sim_next_event(s), start + 7000);
	sim_advance(s, start + 7000);
	assert_int_equal(b->ops->rx_burst(b, pkts, 4), 1);
	assert_int_equal(rig_psn(pkts), 1);
	a->ops->path_put(a, path);
	port_close(a);
	port_close(b);
	sim_destroy(s);
}

/*
 * Each member gets a group's packet, also the sender. Each copy has its own faults. Others get
 * none.
 */
static void test_group(void **state)
{
	const struct sim_params params = {.loss = 0.5, .delay_ns = 1000};
	struct sim *s = sim_create(7, &params);
	struct pkt_addr group = rig_addr("239.1.1.1");
	struct port *port[4];
	struct port_path *path;
	uint8_t got[4][SENT] = {0};
	unsigned came = 0, one_of_two = 0;

	for (unsigned i = 0; i < 4; i++) {
		char text[16];
		struct pkt_addr a;

		snprintf(text, sizeof(text), "10.0.0.%u", i + 1);
		a = rig_addr(text);
		port[i] = sim_port(s, &a, 0, 1);
		if (i < 3)
			assert_int_equal(port[i]->ops->join(port[i], &group), 0);
	}
	path = port[0]->ops->path_get(port[0], &group, 0xffffff);
	for (unsigned n = 0; n < SENT; n++) {
		struct port_pkt pkts[4];

		if (n == SENT / 2)
			port[2]->ops->leave(port[2], &group);
		assert_int_equal(rig_send(port[0], path, 64, 0, 0xffffff, n), 0);
		assert_true(port[0]->ops->flush(port[0]));
		sim_advance(s, sim_now(s) + 2000);
		for (unsigned i = 0; i < 4; i++)
			if (port[i]->ops->rx_burst(port[i], pkts, 4)) {
				assert_int_equal(rig_psn(pkts), n);
				got[i][n]++;
				came++;
			}
		one_of_two += got[0][n] != got[1][n];
	}
	assert_in_range(one_of_two, SENT / 3, SENT * 2 / 3);
	for (unsigned n = 0; n < SENT; n++) {
		assert_int_equal(got[3][n], 0);
		assert_true(n < SENT / 2 || !got[2][n]);
	}
	assert_int_equal(came + sim_lost(s), SENT * 2 + SENT / 2);
	port[0]->ops->path_put(port[0], path);
	for (unsigned i = 0; i < 4; i++)
		port_close(port[i]);
	sim_destroy(s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_perfect),
		cmocka_unit_test(test_seed),
		cmocka_unit_test(test_time),
		cmocka_unit_test(test_group),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
