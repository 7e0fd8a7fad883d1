/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Two lanes of one address. Each gets, and is woken by, the packets of its own QPs, in any way that
 * the sender groups them.
 */
#include "rig.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "port/udp.h"

#define LANES 3

static struct port *lane[LANES], *sender;
static struct port_path *to;

static uint32_t qpn_of_lane(unsigned l)
{
	return (uint32_t)lane[l]->slot << 18 | (42 * LANES + l) << 4 | 5;
}

static int set_up(void **state)
{
	char spec[64], err[256];

	for (unsigned i = 0; i < LANES; i++) {
		snprintf(spec, sizeof(spec), "udp:127.%d.%d.203", 1 + (getpid() >> 8) % 250,
			 getpid() % 250);
		lane[i] = port_open(spec, i, LANES, err, sizeof(err));
		if (!lane[i])
			fail_msg("%s", err);
	}
	snprintf(spec, sizeof(spec), "udp:127.%d.%d.204", 1 + (getpid() >> 8) % 250,
		 getpid() % 250);
	sender = rig_open(spec);
	to = sender->ops->path_get(sender, &lane[0]->addr, qpn_of_lane(0));
	return to ? 0 : -1;
}

static int tear_down(void **state)
{
	for (unsigned i = 0; i < LANES; i++) {
		port_close(lane[i]);
		lane[i] = NULL;
	}
	return rig_close_all(state);
}

/* Takes `count` packets at lane l. They must be in order and belong to the lane. */
static void expect(unsigned l, unsigned count, unsigned first, unsigned step)
{
	struct port_pkt pkts[PORT_BURST];

	for (unsigned got = 0; got < count;) {
		int n = rig_burst(lane[l], pkts, PORT_BURST);

		if (!n)
			fail_msg("lane %u got %u of %u", l, got, count);
		for (int i = 0; i < n; i++, got++)
			rig_check(lane[l], &pkts[i], qpn_of_lane(l), first + step * got);
	}
	assert_int_equal(lane[l]->ops->rx_burst(lane[l], pkts, PORT_BURST), 0);
}

/*
 * Sends packets of one length, or of `len` and 64 in turn. The Linux kernel alone delivers the
 * datagrams of one lane's packets to that lane.
 */
static void steering(uint32_t len, uint32_t head)
{
	for (unsigned l = 0; l < LANES; l++) {
		for (unsigned i = 0; i < 20; i++)
			assert_int_equal(
				rig_send(sender, to, i % 2 ? len : 64, 0, qpn_of_lane(l), i), 0);
		assert_true(sender->ops->flush(sender));
	}
	for (unsigned l = 0; l < LANES; l++) {
		struct port_pkt pkts[PORT_BURST];

		assert_int_equal(rig_burst(lane[l], pkts, 1), 1);
		/* No packet came by an inbox: the rest is in the socket's own datagram. */
		assert_int_equal(udp_port(lane[l])->rx.buf[0].len, head + 10 * 64 + 10 * len);
		for (unsigned i = 1; i < 20; i++) {
			assert_int_equal(lane[l]->ops->rx_burst(lane[l], pkts, 1), 1);
			rig_check(lane[l], pkts, qpn_of_lane(l), i);
		}
	}
}

static void test_steering(void **state)
{
	steering(64, 0);
}

static void test_steering_joined(void **state)
{
	steering(128, ALIGN_UP(10 + 20 * 2, UDP_JOIN_ALIGN));
}

/*
 * One group has packets of all lanes. The Linux kernel gives it to one lane, which passes on the
 * others' packets.
 */
static void test_mixed_group(void **state)
{
	struct port_pkt pkts[PORT_BURST];
	struct port_pkt kept[LANES];

	for (unsigned i = 0; i < 60; i++)
		assert_int_equal(rig_send(sender, to, 64, 0, qpn_of_lane(i % LANES), i), 0);
	assert_true(sender->ops->flush(sender));
	for (unsigned l = 0; l < LANES; l++)
		assert_true(lane[l]->ops->arm(lane[l]));
	assert_true(rig_readable(lane[0], RIG_WAIT_MS));
	assert_false(rig_readable(lane[1], 0));
	lane[0]->ops->disarm(lane[0], true);
	assert_int_equal(rig_burst(lane[0], pkts, 1), 1);
	kept[0] = pkts[0];
	rig_check(lane[0], &kept[0], qpn_of_lane(0), 0);
	expect(0, 19, LANES, LANES);
	/* The other lanes slept, and are awake now. */
	for (unsigned l = 1; l < LANES; l++) {
		assert_true(rig_readable(lane[l], RIG_WAIT_MS));
		lane[l]->ops->disarm(lane[l], true);
		assert_false(rig_readable(lane[l], 0));
		assert_false(lane[l]->ops->arm(lane[l])); /* packets wait */
		expect(l, 20, l, LANES);
		assert_true(lane[l]->ops->arm(lane[l]));
		assert_false(rig_readable(lane[l], 0));
		lane[l]->ops->disarm(lane[l], true);
	}
}

/*
 * A lane that is not polled loses the packets that do not fit. The others continue.
 */
static void test_full_inbox(void **state)
{
	struct port_pkt pkts[PORT_BURST];
	unsigned sent = 0, kept = 0;

	for (unsigned round = 0; round < 3000; round++) {
		assert_int_equal(rig_send(sender, to, 64, 0, qpn_of_lane(0), round), 0);
		for (unsigned i = 0; i < 40; i++, sent++)
			assert_int_equal(rig_send(sender, to, 64, 0, qpn_of_lane(1), sent), 0);
		assert_true(sender->ops->flush(sender));
		expect(0, 1, round, 1);
	}
	for (int n; (n = lane[1]->ops->rx_burst(lane[1], pkts, PORT_BURST)) > 0;) {
		for (int i = 0; i < n; i++, kept++)
			rig_check(lane[1], &pkts[i], qpn_of_lane(1), kept);
	}
	assert_in_range(kept, 64, sent - 1);
}

/* A sender with as many lanes makes groups of one lane's packets only. */
static void test_sender_with_lanes(void **state)
{
	struct port_path *path[LANES];
	struct port_pkt pkts[PORT_BURST];

	for (unsigned l = 0; l < LANES; l++) {
		path[l] = lane[0]->ops->path_get(lane[0], &sender->addr, qpn_of_lane(l));
		assert_non_null(path[l]);
		for (unsigned k = 0; k < l; k++)
			assert_ptr_not_equal(path[l], path[k]);
		assert_ptr_equal(
			lane[0]->ops->path_get(lane[0], &sender->addr, qpn_of_lane(l) + 16 * LANES),
			path[l]);
		lane[0]->ops->path_put(lane[0], path[l]);
	}
	for (unsigned i = 0; i < 2 * LANES; i++)
		assert_int_equal(rig_send(lane[0], path[i / 2], 64, 0, qpn_of_lane(i / 2), i), 0);
	assert_int_equal(udp_port(lane[0])->tx.count, LANES);
	assert_true(lane[0]->ops->flush(lane[0]));
	for (unsigned got = 0; got < 2 * LANES;) {
		int n = rig_burst(sender, pkts, PORT_BURST);

		assert_true(n > 0);
		for (int i = 0; i < n; i++, got++)
			assert_true(rig_check(sender, &pkts[i], qpn_of_lane(got / 2), got));
	}
}

/* The address is taken, also for a process that would share it. */
static void test_in_use(void **state)
{
	char spec[64], err[256];

	snprintf(spec, sizeof(spec), "udp:127.%d.%d.203", 1 + (getpid() >> 8) % 250,
		 getpid() % 250);
	for (unsigned lanes = 1; lanes <= 2; lanes++) {
		assert_null(port_open(spec, 0, lanes, err, sizeof(err)));
		assert_non_null(strstr(err, "in use"));
	}
	assert_null(port_open("udp", 1, 2, err, sizeof(err)));
	assert_null(port_open("udp", 2, 2, err, sizeof(err)));
	assert_null(port_open("udp", 0, PORT_MAX_LANES + 1, err, sizeof(err)));
}

/* ---- two lanes driven by two threads that sleep ---- */

#define ROUNDS 2000

static atomic_uint arrived[LANES];
static bool seen[LANES][ROUNDS];

static void *drive(void *arg)
{
	unsigned l = (unsigned)(uintptr_t)arg;
	struct port_pkt pkts[PORT_BURST];

	memset(seen[l], 0, sizeof(seen[l]));
	while (atomic_load(&arrived[l]) < ROUNDS) {
		int n = lane[l]->ops->rx_burst(lane[l], pkts, PORT_BURST);

		if (n == 0) {
			if (lane[l]->ops->arm(lane[l]) && !rig_readable(lane[l], RIG_WAIT_MS))
				return "never woken";
			lane[l]->ops->disarm(lane[l], true);
			continue;
		}
		for (int i = 0; i < n; i++) {
			if (pkt_get24(((struct pkt_bth *)pkts[i].bth)->dqpn) != qpn_of_lane(l))
				return "another lane's packet";
			if (rig_psn(&pkts[i]) >= ROUNDS || seen[l][rig_psn(&pkts[i])])
				return "a packet that came before";
			seen[l][rig_psn(&pkts[i])] = true;
			atomic_fetch_add(&arrived[l], 1);
		}
	}
	return NULL;
}

static void test_threads(void **state)
{
	pthread_t t[LANES];
	void *problem;

	for (unsigned l = 0; l < LANES; l++) {
		atomic_store(&arrived[l], 0);
		pthread_create(&t[l], NULL, drive, (void *)(uintptr_t)l);
	}
	for (unsigned i = 0; i < ROUNDS; i++) {
		/* The lane to which the Linux kernel gives the group changes in turn. */
		for (unsigned l = 0; l < LANES; l++)
			assert_int_equal(
				rig_send(sender, to, 64, 0, qpn_of_lane((i + l) % LANES), i), 0);
		assert_true(sender->ops->flush(sender));
		/* No more packets under way than an inbox holds. */
		for (unsigned l = 0; l < LANES; l++) {
			while (i > 100 && atomic_load(&arrived[l]) < i - 100)
				usleep(50);
		}
	}
	for (unsigned l = 0; l < LANES; l++) {
		pthread_join(t[l], &problem);
		if (problem)
			fail_msg("lane %u: %s (packet %u)", l, (char *)problem,
				 atomic_load(&arrived[l]));
	}
}

/*
 * ICMP errors reach the slot that sent the packet, because each slot of an address sends from a
 * source port of its own. Nobody has the destination.
 */
static void test_errors(void **state)
{
	struct pkt_addr gone = sender->addr;
	struct port_pkt pkts[PORT_BURST];

	sender->ops->path_put(sender, to);
	rig_close(sender);
	for (unsigned l = 0; l < LANES; l++) {
		struct port_path *path = lane[l]->ops->path_get(lane[l], &gone, 0x123450);

		assert_non_null(path);
		assert_int_equal(rig_send(lane[l], path, 64, 0, 0x123450, 70 + l), 0);
		lane[l]->ops->flush(lane[l]);
		for (int i = 0; i < RIG_WAIT_MS && !lane[l]->num_hints; i++) {
			for (unsigned k = 0; k < LANES; k++) {
				lane[k]->ops->arm(lane[k]);
				rig_readable(lane[k], k == l ? 1 : 0);
				lane[k]->ops->disarm(lane[k], true);
				lane[k]->ops->rx_burst(lane[k], pkts, PORT_BURST);
			}
		}
		for (unsigned k = 0; k < LANES; k++)
			assert_int_equal(lane[k]->num_hints, k == l ? 1 : 0);
		assert_int_equal(lane[l]->hint[0].psn, 70 + l);
		lane[l]->num_hints = 0;
		lane[l]->ops->path_put(lane[l], path);
	}
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		T(test_steering),	   T(test_steering_joined),
		T(test_mixed_group),	   T(test_full_inbox),
		T(test_sender_with_lanes), T(test_in_use),
		T(test_threads),	   T(test_errors),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
