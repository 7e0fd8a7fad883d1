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
#define RECV 32768 /* where receives are, 128 bytes each */
#define QKEY 0x11111111u
#define GRH  40

/* The NICs, which take addresses 10.0.0.1, 10.0.0.2 ... */
static struct world w;
static unsigned pus[WORLD_MAX_NICS];

static void open_nic(unsigned i, unsigned num_pus)
{
	static const struct nic_host_ops ops;
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
		struct roost_sge sge = ep_sge(e, RECV + 128 * i, 128);

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

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(pus_differ),
		TEST(peer_returns_with_more_pus),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
