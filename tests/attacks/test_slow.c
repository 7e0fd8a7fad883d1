/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A peer answers correctly on thousands of connections, but as late as the time-outs allow. A
 * tenant of the same NIC READs 64 bytes, one READ after the other. The test counts the packets that
 * the NIC sends during one READ, in virtual time: if one turn handled all silent connections, it
 * would send thousands.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <cmocka.h>

#include "../nic/world.h"
#include "port/port_impl.h"

enum { ATTACKED, TENANT, SLOW, NICS };

#define CONNECTIONS 4000
#define TIMEOUT	    14		/* 4.096 us << 14: 67 ms */
#define LATE	    (60 * MSEC) /* delay of each answer */
#define ROUNDS	    3
#define DELAY	    2000
#define PACKET_NS   300 /* time of the NIC for a packet */

static struct world w;
static struct ep attacked[CONNECTIONS], attacker[CONNECTIONS], tenant, memory;

static uint64_t sent(void)
{
	struct nic_counters c = {0};

	nic_pu_counters(w.nic[ATTACKED], 0, &c);
	return c.sent_pkts;
}

static uint64_t lost(void)
{
	struct nic_counters c = {0};

	nic_pu_counters(w.nic[ATTACKED], 0, &c);
	return c.retry_exceeded_err;
}

static uint64_t bytes(void)
{
	struct nic_usage u;

	nic_usage(w.nic[ATTACKED], &u);
	return u.qp_bytes;
}

static void open_all(void)
{
	struct world_shape shape = {.nics = NICS};
	struct sim_params link = {.delay_ns = DELAY};
	struct ep_params few = {.depth = 4, .mem = 4096, .timeout = TIMEOUT},
			 some = {.timeout = TIMEOUT};

	world_init_shape(&w, &shape, 1, &link);
	ep_init(&tenant, &w, TENANT, &some);
	ep_init(&memory, &w, ATTACKED, &some);
	ep_connect(&tenant, &memory);
	for (unsigned i = 0; i < CONNECTIONS; i++) {
		ep_init(&attacked[i], &w, ATTACKED, &few);
		ep_init(&attacker[i], &w, SLOW, &few);
		ep_connect(&attacked[i], &attacker[i]);
	}
}

static void close_all(void)
{
	for (unsigned i = 0; i < CONNECTIONS; i++) {
		ep_fini(&attacked[i]);
		ep_fini(&attacker[i]);
	}
	ep_fini(&tenant);
	ep_fini(&memory);
	world_fini(&w);
}

/*
 * READs until the given time. Counts the READs, and the most packets that the attacked NIC sent in
 * one turn and during one READ.
 */
static void reads_until(uint64_t end, uint64_t *reads, uint64_t *turn, uint64_t *wait)
{
	struct roost_cqe c;

	while (world_now(&w) < end) {
		struct wr wr = wr_rdma(ROOST_OP_READ, &tenant, 0, 64, &memory, 0);
		uint64_t from = sent(), was = from, now;

		ep_post(&tenant, &wr);
		while (!ep_poll_send(&tenant, &c)) {
			world_step(&w, UINT64_MAX);
			now = sent();
			*turn = now - was > *turn ? now - was : *turn;
			sim_advance(w.sim, world_now(&w) + (now - was) * PACKET_NS);
			was = now;
		}
		assert_int_equal(c.status, NIC_WC_SUCCESS);
		*wait = was - from > *wait ? was - from : *wait;
		++*reads;
	}
}

static void post_all(void)
{
	for (unsigned i = 0; i < CONNECTIONS; i++) {
		struct wr wr = wr_rdma(ROOST_OP_WRITE, &attacked[i], 0, 64, &attacker[i], 0);

		ep_post(&attacked[i], &wr);
	}
}

static void answers_late_on_all(void **state)
{
	uint64_t reads = 0, idle = 0, turn = 0, wait = 0, span = 0, memory_then = 0;
	struct roost_cqe c;

	open_all();
	reads_until(world_now(&w) + LATE, &idle, &turn, &wait);
	turn = wait = 0;
	for (unsigned round = 0; round < ROUNDS; round++) {
		w.paused_until[SLOW] = world_now(&w) + LATE;
		post_all();
		reads_until(world_now(&w) + LATE, &reads, &turn, &wait);
		span += LATE;
		/* The peer's buffer is small: packets that it drops are sent again. */
		for (unsigned i = 0; i < CONNECTIONS; i++) {
			for (unsigned k = 0; !ep_poll_send(&attacked[i], &c); k++, span += MSEC) {
				if (k == 1000)
					fail_msg("round %u: connection %u was not answered", round,
						 i);
				reads_until(world_now(&w) + MSEC, &reads, &turn, &wait);
			}
			assert_int_equal(c.status, NIC_WC_SUCCESS);
		}
		if (round == 0)
			memory_then = bytes();
	}
	print_message(
		"%lu READs alone, %lu beside it in as long; at most %lu packets in a turn, %lu during a READ\n",
		(unsigned long)idle, (unsigned long)(reads * LATE / span), (unsigned long)turn,
		(unsigned long)wait);
	assert_int_equal(lost(), 0);
	assert_int_equal(bytes(), memory_then);
	assert_true(turn <= 256);
	assert_true(wait <= 512);
	close_all();
}

/*
 * A flood of ICMP errors about a peer with thousands of connections. They quote random queue pairs,
 * and each would be compared with all connections. The NIC must check only a few in a millisecond,
 * and none may end a connection.
 */
static void errors_about_thousands(void **state)
{
	struct port_hint h = {.quotes = true, .opcode = PKT_WRITE_ONLY};
	struct nic_counters c = {0};
	struct roost_cqe e;
	uint64_t begin;
	unsigned turns = 0;

	open_all();
	h.dst = *ep_addr(&attacker[0]);
	post_all();
	for (begin = world_now(&w); world_now(&w) < begin + 10 * MSEC; turns++) {
		for (unsigned i = 0; i < PORT_HINTS; i++) {
			h.dqpn = (h.dqpn * 1103515245 + 12345) & PKT_QPN_MASK;
			h.psn = h.dqpn >> 3;
			port_add_hint(w.port[ATTACKED][0][0], &h);
		}
		nic_poll(w.nic[ATTACKED], 0, world_now(&w));
		sim_advance(w.sim, world_now(&w) + 10000);
	}
	nic_pu_counters(w.nic[ATTACKED], 0, &c);
	assert_int_equal(c.rx_unreachable, turns * PORT_HINTS);
	/*
	 * Ten milliseconds, and two hints in each at most: the last one that is looked at may look
	 * at all.
	 */
	assert_in_range(c.rx_unreachable - c.hints_unread, 1, 2 * 11);
	assert_int_equal(c.alive_probe, 0);
	for (unsigned i = 0; i < CONNECTIONS; i++) {
		assert_true(ep_wait_send(&attacked[i], &e, SEC));
		assert_int_equal(e.status, NIC_WC_SUCCESS);
	}
	close_all();
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(answers_late_on_all),
					   cmocka_unit_test(errors_about_thousands)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
