/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Datagrams over shared memory: NICs on ports of kind shm, whose turns the test runs, at times that
 * it chooses. The lane of a datagram is that of its receiver, whose number of PUs may differ from
 * the sender's.
 */
#include <stdlib.h>

#include "nic/counters.h"
#include "nic/nic.h"
#include "../port/shm_rig.h"
#include "world.h"

#define RING (64u << 10)
#define LEN  1024  /* of datagrams; a ring has space for some sixty of them */
#define RECV 32768 /* where receives are, one on the other */
#define QKEY 0x11111111u
#define GRH  40

/* The NICs, which take addresses 10.0.0.1, 10.0.0.2 ... */
static struct world w;
static unsigned pus[WORLD_MAX_NICS];

static void on_qp_event(void *host, enum nic_event ev, void *ctx)
{
}

static void open_nic(unsigned i, unsigned num_pus)
{
	static const struct nic_host_ops ops = {.qp_event = on_qp_event};
	struct nic_config cfg = {.pus = num_pus, .ports = 1, .seed = {77 + i}, .ops = &ops};
	char addr[32];

	snprintf(addr, sizeof(addr), "10.0.0.%u", i + 1);
	pus[i] = num_pus;
	for (unsigned l = 0; l < num_pus; l++) {
		w.port[i][0][l] = srig_open_lane(addr, RING, l, num_pus, NULL);
		cfg.port[0][l] = w.port[i][0][l];
	}
	assert_int_equal(nic_create(&cfg, &w.nic[i]), 0);
}

static void close_nic(unsigned i)
{
	nic_destroy(w.nic[i]);
	for (unsigned l = 0; l < pus[i]; l++)
		port_close(w.port[i][0][l]);
	w.nic[i] = NULL;
}

/* Runs turns of a NIC until it has no work. */
static void run_nic(unsigned i, uint64_t now)
{
	for (unsigned idle = 0; idle < 3; idle++) {
		for (unsigned l = 0; l < pus[i]; l++) {
			w.port[i][0][l]->ops->control(w.port[i][0][l]);
			if (nic_poll(w.nic[i], l, now))
				idle = 0;
		}
	}
}

static void open_ud(struct ep *e, unsigned nic, unsigned pu, uint32_t depth)
{
	struct nic_qp_attr a = {0};

	ep_init(e, &w, nic, &(struct ep_params){.type = NIC_QPT_UD, .pu = pu, .depth = depth});
	ep_to_init(e);
	ep_to_rtr(e, &a);
	ep_to_rts(e, &a);
}

static uint32_t make_ah(const struct ep *from, unsigned to)
{
	struct nic_ah_attr a = {.pd = from->pd, .dgid = w.port[to][0][0]->addr, .port = 1};
	uint32_t handle;

	assert_int_equal(nic_ah_create(from->nic, &a, &handle), 0);
	return handle;
}

static void post_recvs(struct ep *e, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		struct roost_sge sge = ep_sge(e, RECV, GRH + LEN);

		ep_post_recv(e, i, &sge, 1);
	}
}

static void post_to(struct ep *from, uint32_t handle, const struct ep *to, uint64_t wr_id,
		    uint32_t len)
{
	struct wr wr = {.op = ROOST_OP_SEND,
			.wr_id = wr_id,
			.sge = {ep_sge(from, 0, len)},
			.num_sge = 1,
			.raddr = ROOST_UD_ADDR(handle, nic_qp_num(to->qp)),
			.rkey = QKEY};

	ep_post(from, &wr);
}

static void expect_sent(struct ep *e, uint64_t wr_id)
{
	struct roost_cqe c;

	assert_true(ep_poll_send(e, &c));
	assert_int_equal(c.wr_id, wr_id);
	assert_int_equal(c.status, NIC_WC_SUCCESS);
}

/* Takes all completions, which must be successful. Returns their number. */
static unsigned take_all(struct ep *e, bool (*poll)(struct ep *, struct roost_cqe *))
{
	struct roost_cqe c;
	unsigned n = 0;

	for (; poll(e, &c); n++)
		assert_int_equal(c.status, NIC_WC_SUCCESS);
	return n;
}

static struct nic_counters counters(unsigned nic)
{
	struct nic_counters c;

	nic_counters(w.nic[nic], &c);
	return c;
}

/* ---- lanes ---- */

#define QPS_OF_PU 3

/* Sends from each PU of NIC 0 to queue pairs of all PUs of NIC 1: each gets its datagram. */
static void each_pu_to_each(unsigned senders, unsigned receivers)
{
	struct ep from[NIC_MAX_PUS], to[NIC_MAX_PUS * QPS_OF_PU];
	unsigned num_to = receivers * QPS_OF_PU;
	struct roost_cqe c;
	uint32_t handle;

	open_nic(0, senders);
	open_nic(1, receivers);
	for (unsigned i = 0; i < senders; i++)
		open_ud(&from[i], 0, i, 16);
	for (unsigned i = 0; i < num_to; i++) {
		open_ud(&to[i], 1, i % receivers, 16);
		post_recvs(&to[i], senders);
	}
	for (unsigned i = 0; i < senders; i++) {
		handle = make_ah(&from[i], 1);
		for (unsigned k = 0; k < num_to; k++)
			post_to(&from[i], handle, &to[k], k, 8 + k);
		run_nic(0, 1);
		run_nic(1, 1);
		for (unsigned k = 0; k < num_to; k++) {
			expect_sent(&from[i], k);
			if (!ep_poll_recv(&to[k], &c))
				fail_msg("%u PUs to %u: no datagram from PU %u to PU %u", senders,
					 receivers, i, k % receivers);
			assert_int_equal(c.byte_len, GRH + 8 + k);
			assert_int_equal(c.src_qpn, nic_qp_num(from[i].qp));
		}
		assert_int_equal(nic_ah_destroy(w.nic[0], handle), 0);
	}
	for (unsigned i = 0; i < senders; i++)
		ep_fini(&from[i]);
	for (unsigned i = 0; i < num_to; i++)
		ep_fini(&to[i]);
	close_nic(0);
	close_nic(1);
}

static void pus_differ(void **state)
{
	for (unsigned senders = 1; senders <= NIC_MAX_PUS; senders++)
		for (unsigned receivers = 1; receivers <= NIC_MAX_PUS; receivers++)
			each_pu_to_each(senders, receivers);
}

/* An address handle outlives its peer. The next program there has more PUs. */
static void peer_returns_with_more_pus(void **state)
{
	struct ep from, to;
	struct roost_cqe c;
	uint32_t handle;

	open_nic(0, 1);
	open_ud(&from, 0, 0, 16);
	open_nic(1, 1);
	handle = make_ah(&from, 1);
	close_nic(1);
	open_nic(1, 4);
	for (unsigned pu = 0; pu < 4; pu++) {
		bool came = false;

		open_ud(&to, 1, pu, 16);
		post_recvs(&to, 16);
		/* The port looks for a peer that has ended from time to time. */
		for (unsigned ms = 0; ms < SRIG_WAIT_MS && !came; ms++) {
			post_to(&from, handle, &to, ms, 8);
			run_nic(0, 1);
			run_nic(1, 1);
			expect_sent(&from, ms);
			came = ep_poll_recv(&to, &c);
			if (!came)
				usleep(1000);
		}
		if (!came)
			fail_msg("no datagram to PU %u", pu);
		ep_fini(&to);
	}
	assert_int_equal(nic_ah_destroy(w.nic[0], handle), 0);
	ep_fini(&from);
	close_nic(0);
	close_nic(1);
}

/* ---- receivers that do not read ---- */

#define DEPTH 256

/* A sender on NIC 0, and receivers on NICs 1 and 2, with receives for all of its datagrams. */
struct three {
	struct ep from, silent, reader;
	uint32_t to_silent, to_reader; /* address handles */
};

static void open_three(struct three *t)
{
	for (unsigned i = 0; i < 3; i++)
		open_nic(i, 1);
	open_ud(&t->from, 0, 0, DEPTH);
	open_ud(&t->silent, 1, 0, DEPTH);
	open_ud(&t->reader, 2, 0, DEPTH);
	post_recvs(&t->silent, DEPTH);
	post_recvs(&t->reader, DEPTH);
	t->to_silent = make_ah(&t->from, 1);
	t->to_reader = make_ah(&t->from, 2);
}

static void close_three(struct three *t)
{
	assert_int_equal(nic_ah_destroy(w.nic[0], t->to_silent), 0);
	assert_int_equal(nic_ah_destroy(w.nic[0], t->to_reader), 0);
	ep_fini(&t->from);
	ep_fini(&t->silent);
	ep_fini(&t->reader);
	for (unsigned i = 0; i < 3; i++)
		close_nic(i);
}

static void post_silent(struct three *t, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		post_to(&t->from, t->to_silent, &t->silent, i, LEN);
}

/*
 * Posts more datagrams to the silent receiver than its ring takes, and one to the reader, at time
 * `now`. Returns the number in the ring.
 */
static unsigned fill_ring(struct three *t, unsigned posted, uint64_t now)
{
	unsigned sent;

	post_silent(t, posted);
	post_to(&t->from, t->to_reader, &t->reader, 0, LEN);
	run_nic(0, now);
	sent = take_all(&t->from, ep_poll_send);
	assert_in_range(sent, 1, posted - 1);
	return sent;
}

/*
 * A receiver that stops reading delays the datagrams to others for a while. Those to it are then
 * lost, and they complete. A thread that sleeps until the NIC's deadline runs in time. Later
 * datagrams to this receiver are lost at once, until it reads again.
 */
static void silent_receiver(void **state)
{
	const uint64_t now = MSEC;
	struct three t;
	unsigned in_ring;
	uint64_t end;

	open_three(&t);
	in_ring = fill_ring(&t, 100, now);
	end = nic_deadline(w.nic[0], 0);
	assert_in_range(end, now + MSEC, now + 100 * MSEC);
	run_nic(0, end - 1);
	run_nic(2, end - 1);
	assert_int_equal(take_all(&t.from, ep_poll_send), 0);
	assert_int_equal(take_all(&t.reader, ep_poll_recv), 0);
	assert_int_equal(counters(0).tx_ud_dropped, 0);

	run_nic(0, end);
	run_nic(2, end);
	assert_int_equal(take_all(&t.from, ep_poll_send), 101 - in_ring);
	assert_int_equal(take_all(&t.reader, ep_poll_recv), 1);
	assert_int_equal(counters(0).tx_ud_dropped, 100 - in_ring);
	assert_int_equal(counters(0).sent_pkts, in_ring + 1);

	post_silent(&t, 10);
	post_to(&t.from, t.to_reader, &t.reader, 0, LEN);
	run_nic(0, end);
	run_nic(2, end);
	assert_int_equal(take_all(&t.from, ep_poll_send), 11);
	assert_int_equal(take_all(&t.reader, ep_poll_recv), 1);
	assert_int_equal(counters(0).tx_ud_dropped, 110 - in_ring);

	run_nic(1, end);
	assert_int_equal(take_all(&t.silent, ep_poll_recv), in_ring);
	post_silent(&t, 10);
	run_nic(0, end);
	run_nic(1, end);
	assert_int_equal(take_all(&t.silent, ep_poll_recv), 10);
	assert_int_equal(counters(0).tx_ud_dropped, 110 - in_ring);
	close_three(&t);
}

/*
 * All queue pairs of a receiver share its ring, whatever their lane keys: a sender waits once for a
 * receiver that does not read, not once for each of its queue pairs.
 */
static void silent_receiver_of_many(void **state)
{
	enum { MANY = 2 * PORT_LANE_KEYS };
	const uint64_t now = MSEC;
	struct ep more[MANY];
	struct three t;
	unsigned in_ring;
	uint64_t end;

	open_three(&t);
	for (unsigned i = 0; i < MANY; i++)
		open_ud(&more[i], 1, 0, 16);
	in_ring = fill_ring(&t, 100, now);
	for (unsigned i = 0; i < MANY; i++)
		post_to(&t.from, t.to_silent, &more[i], i, LEN);
	post_to(&t.from, t.to_reader, &t.reader, 0, LEN);
	end = nic_deadline(w.nic[0], 0);
	run_nic(0, end);
	run_nic(2, end);
	assert_int_equal(take_all(&t.from, ep_poll_send), 102 + MANY - in_ring);
	assert_int_equal(take_all(&t.reader, ep_poll_recv), 2);
	assert_int_equal(counters(0).tx_ud_dropped, 100 + MANY - in_ring);
	for (unsigned i = 0; i < MANY; i++)
		ep_fini(&more[i]);
	close_three(&t);
}

/* A receiver that read again has the whole time again. */
static void silent_twice(void **state)
{
	uint64_t now = MSEC, first, second;
	struct three t;

	open_three(&t);
	fill_ring(&t, 100, now);
	first = nic_deadline(w.nic[0], 0) - now;
	now += first;
	run_nic(0, now);
	run_nic(1, now);
	take_all(&t.from, ep_poll_send);
	assert_int_equal(counters(0).tx_ud_dropped, 100 - take_all(&t.silent, ep_poll_recv));
	fill_ring(&t, 100, now);
	second = nic_deadline(w.nic[0], 0) - now;
	assert_int_equal(second, first);
	close_three(&t);
}

/*
 * A slow receiver loses nothing: the sender waits for it, in total for longer than for one that
 * does not read.
 */
static void slow_receiver(void **state)
{
	uint64_t now = MSEC, wait;
	unsigned in_ring, sent, got = 0;
	struct three t;

	open_three(&t);
	in_ring = sent = fill_ring(&t, 200, now);
	wait = nic_deadline(w.nic[0], 0) - now;
	for (unsigned i = 0; i < 10; i++) {
		now += wait - 1;
		run_nic(1, now);
		run_nic(0, now);
		sent += take_all(&t.from, ep_poll_send);
		got += take_all(&t.silent, ep_poll_recv);
		if (i == 0) {
			assert_in_range(sent, in_ring + 1, 200);
			assert_int_equal(nic_deadline(w.nic[0], 0), now + wait);
		}
	}
	assert_int_equal(sent, 201);
	assert_int_equal(got, 200);
	assert_int_equal(counters(0).tx_ud_dropped, 0);
	close_three(&t);
}

/* Takes one packet from the ring, and releases the one before it. */
static void take_one(unsigned nic)
{
	struct port *p = w.port[nic][0][0];
	struct port_pkt pkt;

	p->ops->control(p);
	assert_int_equal(p->ops->rx_burst(p, &pkt, 1), 1);
}

/* A receiver that takes packets counts as one that reads, even if a datagram does not fit yet. */
static void progress_without_space(void **state)
{
	enum { SMALL = 200 };
	uint64_t now = MSEC, wait;
	unsigned looks = 0;
	struct three t;

	open_three(&t);
	do {
		post_to(&t.from, t.to_silent, &t.silent, 0, SMALL);
		run_nic(0, now);
	} while (take_all(&t.from, ep_poll_send));
	take_one(1);
	take_one(1);
	run_nic(0, now);
	assert_int_equal(take_all(&t.from, ep_poll_send), 1);
	post_to(&t.from, t.to_silent, &t.silent, 0, LEN);
	run_nic(0, now);
	wait = nic_deadline(w.nic[0], 0) - now;
	for (; !take_all(&t.from, ep_poll_send); looks++) {
		assert_int_equal(nic_deadline(w.nic[0], 0), now + wait);
		now += wait - 1;
		take_one(1);
		run_nic(0, now);
	}
	assert_in_range(looks, 2, 20);
	assert_int_equal(counters(0).tx_ud_dropped, 0);
	close_three(&t);
}

/* Sends to a queue pair of NIC 1 until a datagram leaves, because the port has found the NIC. */
static void send_until_connected(struct three *t, struct ep *to, uint64_t now)
{
	/* The port notices the end of a peer, and looks for the next one, from time to time. */
	for (unsigned ms = 0; ms < SRIG_WAIT_MS; ms++) {
		uint64_t before = w.port[0][0][0]->stats.tx_packets;

		post_to(&t->from, t->to_silent, to, 0, LEN);
		run_nic(0, now);
		take_all(&t->from, ep_poll_send);
		if (w.port[0][0][0]->stats.tx_packets > before)
			return;
		usleep(1000);
	}
	fail_msg("the port does not find the next program");
}

/*
 * The next program at the address of a receiver that did not read has the whole time, too, even if
 * its ring was filled by datagrams to other queue pairs.
 */
static void next_receiver(void **state)
{
	uint64_t now = MSEC, wait, dropped;
	struct ep other, second;
	struct three t;
	uint32_t key, handle;

	open_three(&t);
	open_ud(&second, 0, 0, DEPTH);
	handle = make_ah(&second, 1);
	fill_ring(&t, 100, now);
	wait = nic_deadline(w.nic[0], 0) - now;
	now += 10 * wait;
	run_nic(0, now);
	dropped = counters(0).tx_ud_dropped;
	assert_true(dropped != 0);
	take_all(&t.from, ep_poll_send);
	key = PORT_LANE_KEY_OF_QPN(nic_qp_num(t.silent.qp));
	ep_fini(&t.silent);
	close_nic(1);
	open_nic(1, 1);
	open_ud(&t.silent, 1, 0, DEPTH);
	open_ud(&other, 1, 0, DEPTH);
	assert_int_equal(PORT_LANE_KEY_OF_QPN(nic_qp_num(t.silent.qp)), key);
	assert_int_not_equal(PORT_LANE_KEY_OF_QPN(nic_qp_num(other.qp)), key);
	send_until_connected(&t, &other, now);
	for (unsigned i = 0; i < 100; i++)
		post_to(&t.from, t.to_silent, &other, i, LEN);
	run_nic(0, now);
	assert_in_range(take_all(&t.from, ep_poll_send), 1, 99);
	post_to(&second, handle, &t.silent, 0, LEN);
	run_nic(0, now);
	assert_int_equal(take_all(&second, ep_poll_send), 0);
	assert_int_equal(nic_deadline(w.nic[0], 0), now + wait);
	assert_int_equal(counters(0).tx_ud_dropped, dropped);
	assert_int_equal(nic_ah_destroy(w.nic[0], handle), 0);
	ep_fini(&second);
	ep_fini(&other);
	close_three(&t);
}

/* A datagram whose memory is not accessible ends in error, although its receiver does not read. */
static void wrong_memory(void **state)
{
	struct roost_cqe c;
	struct three t;
	struct wr wr = {.op = ROOST_OP_SEND, .wr_id = 77, .num_sge = 1, .rkey = QKEY};
	uint64_t end;

	open_three(&t);
	fill_ring(&t, 100, MSEC);
	end = nic_deadline(w.nic[0], 0);
	run_nic(0, end);
	take_all(&t.from, ep_poll_send);
	wr.sge[0] = ep_sge(&t.from, 0, LEN);
	wr.sge[0].lkey ^= 1u << 31;
	wr.raddr = ROOST_UD_ADDR(t.to_silent, nic_qp_num(t.silent.qp));
	ep_post(&t.from, &wr);
	run_nic(0, end);
	assert_true(ep_poll_send(&t.from, &c));
	assert_int_equal(c.wr_id, 77);
	assert_int_equal(c.status, NIC_WC_LOC_PROT_ERR);
	close_three(&t);
}

/*
 * A connection has one receiver, so its packets wait for it as long as it takes, also those of an
 * unreliable connection: none is lost.
 */
static void connections_wait(void **state)
{
	static const enum nic_qp_type types[] = {NIC_QPT_RC, NIC_QPT_UC};
	struct ep from, to;

	for (unsigned i = 0; i < 2; i++) {
		struct ep_params p = {.type = types[i], .depth = DEPTH};

		open_nic(0, 1);
		open_nic(1, 1);
		ep_init(&from, &w, 0, &p);
		ep_init(&to, &w, 1, &p);
		ep_connect(&from, &to);
		post_recvs(&to, DEPTH);
		for (unsigned k = 0; k < 100; k++) {
			struct wr wr = {
				.op = ROOST_OP_SEND, .sge = {ep_sge(&from, 0, LEN)}, .num_sge = 1};

			ep_post(&from, &wr);
		}
		for (uint64_t now = MSEC; now < 10 * SEC; now += 10 * MSEC)
			run_nic(0, now);
		assert_int_equal(nic_qp_state(from.qp), NIC_QPS_RTS);
		for (unsigned k = 0; k < 100; k++) {
			run_nic(1, 10 * SEC);
			run_nic(0, 10 * SEC);
		}
		assert_int_equal(take_all(&from, ep_poll_send), 100);
		assert_int_equal(take_all(&to, ep_poll_recv), 100);
		assert_int_equal(counters(0).tx_ud_dropped, 0);
		ep_fini(&from);
		ep_fini(&to);
		close_nic(0);
		close_nic(1);
	}
}

static int setup(void **state)
{
	memset(&w, 0, sizeof(w));
	w.sim = sim_create(1, NULL); /* the time of ep_init() */
	return srig_setup(state);
}

static int teardown(void **state)
{
	sim_destroy(w.sim);
	return srig_teardown(state);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(pus_differ, setup, teardown),
		cmocka_unit_test_setup_teardown(peer_returns_with_more_pus, setup, teardown),
		cmocka_unit_test_setup_teardown(silent_receiver, setup, teardown),
		cmocka_unit_test_setup_teardown(silent_receiver_of_many, setup, teardown),
		cmocka_unit_test_setup_teardown(silent_twice, setup, teardown),
		cmocka_unit_test_setup_teardown(slow_receiver, setup, teardown),
		cmocka_unit_test_setup_teardown(progress_without_space, setup, teardown),
		cmocka_unit_test_setup_teardown(next_receiver, setup, teardown),
		cmocka_unit_test_setup_teardown(wrong_memory, setup, teardown),
		cmocka_unit_test_setup_teardown(connections_wait, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
