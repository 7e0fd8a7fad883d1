/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Peers that end or stop: hints (also forged ones), probes, and keepalive. The time is virtual;
 * ordinary time-outs would take minutes.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>

#include "packet/headers.h"
#include "port/port_impl.h"
#include "rule.h"
#include "world.h"

#define TIMEOUT 20 /* 4.3 seconds, and seven times more */

static struct world W, *const w = &W;
static struct ep A[2], B[2];
static uint64_t packets, num_probes;
static uint32_t asked_psn;
static bool readers; /* ports of the next world know whether their readers read */
static unsigned pus; /* PUs of the next world, one for each connection; 0: one for both */

static void tap(void *ctx, uint64_t now, bool delivered, const struct pkt_addr *src,
		const struct pkt_addr *dst, const uint8_t *bth, uint32_t len)
{
	const struct pkt_bth *h = (const void *)bth;
	struct pkt_view v;

	packets++;
	if (delivered || h->opcode != PKT_WRITE_ONLY ||
	    pkt_parse((uint8_t *)(uintptr_t)bth, len, &v) != PKT_OK || v.payload_len)
		return;
	num_probes++;
	asked_psn = v.psn;
	assert_int_equal(v.dmalen, 0);
	assert_true(v.ackreq);
}

static uint32_t lane_of(const struct ep *e)
{
	return PORT_LANE_OF_QPN(nic_qp_num(e->qp), PORT_MAX_LANES);
}

/* Makes the second endpoint of a NIC. Its lane is not that of the first one. */
static void init_second(struct ep e[2], unsigned nic, const struct ep_params *p)
{
	ep_init(&e[1], w, nic, p);
	while (lane_of(&e[1]) == lane_of(&e[0])) {
		ep_fini(&e[1]);
		ep_init(&e[1], w, nic, p);
	}
}

/*
 * Two connections between NIC 0 (A) and NIC 1 (B); first PSN s. Their queue pairs have different
 * lanes, so that they are two destinations.
 */
static void begin(uint32_t s, bool hints, uint8_t timeout)
{
	struct ep_params p = {.psn = s, .timeout = timeout};

	memset(w, 0, sizeof(*w));
	world_init_shape(
		w, &(struct world_shape){.nics = 2, .pus = pus}, 7,
		&(struct sim_params){.delay_ns = 1000, .hints = hints, .readers = readers});
	sim_set_tap(w->sim, tap, NULL);
	ep_init(&A[0], w, 0, &p);
	ep_init(&B[0], w, 1, &p);
	p.pu = pus > 1;
	init_second(A, 0, &p);
	init_second(B, 1, &p);
	for (int i = 0; i < 2; i++)
		ep_connect(&A[i], &B[i]);
	packets = num_probes = 0;
	readers = false;
	pus = 0;
}

static void end(void)
{
	for (int i = 0; i < 2; i++) {
		ep_fini(&A[i]);
		if (w->nic[1])
			ep_fini(&B[i]);
		else
			ep_forget(&B[i]);
	}
	world_fini(w);
}

static void post_write(int i)
{
	struct wr wr = wr_rdma(ROOST_OP_WRITE, &A[i], 0, 1000, &B[i], 5000);

	ep_post(&A[i], &wr);
}

static void still_works(void)
{
	struct roost_cqe c;

	for (int i = 0; i < 2; i++) {
		post_write(i);
		assert_true(ep_wait_send(&A[i], &c, SEC));
		assert_int_equal(c.status, NIC_WC_SUCCESS);
	}
}

static uint64_t count(uint64_t (*of)(const struct nic_counters *c))
{
	struct nic_counters c;

	nic_counters(w->nic[0], &c);
	return of(&c);
}

static uint64_t probes(const struct nic_counters *c)
{
	return c->alive_probe;
}

static uint64_t hints_seen(const struct nic_counters *c)
{
	return c->rx_unreachable;
}

static uint64_t ended(const struct nic_counters *c)
{
	return c->peer_gone;
}

/*
 * The connection with outstanding work ends with an error of its own, the idle one with an event.
 * Both are flushed.
 */
RULE(killed)
{
	struct roost_sge sge;
	struct roost_cqe c;
	uint64_t start;

	begin(s, true, TIMEOUT);
	still_works();
	sge = ep_sge(&A[1], 0, 100);
	ep_post_recv(&A[1], 5, &sge, 1);
	world_kill(w, 1);
	start = world_now(w);
	post_write(0);
	assert_true(ep_wait_send(&A[0], &c, 6 * SEC));
	assert_in_range(world_now(w) - start, 2 * SEC, 5 * SEC);
	assert_int_equal(c.status, NIC_WC_RETRY_EXC_ERR);
	assert_true(ep_wait_recv(&A[1], &c, MSEC));
	assert_int_equal(c.status, NIC_WC_WR_FLUSH_ERR);
	assert_int_equal(nic_qp_state(A[1].qp), NIC_QPS_ERR);
	assert_int_equal(w->peers_gone, 2);
	assert_int_equal(A[0].events & 1u << NIC_EVENT_QP_FATAL, 0);
	assert_int_not_equal(A[1].events & 1u << NIC_EVENT_QP_FATAL, 0);
	assert_int_equal(count(ended),
			 2); /* destinations: the simulated link has one for each lane */
	end();
}

/* Without hints and keepalive nothing is sent and no timer runs, as in hardware. */
RULE(idle_is_silent)
{
	begin(s, true, TIMEOUT);
	world_run(w, world_now(w) + 600 * SEC);
	assert_int_equal(packets, 0);
	assert_true(nic_deadline(w->nic[0], 0) == UINT64_MAX);
	end();
}

/* With time-out 0 the connection waits without a limit. */
RULE(timeout_zero)
{
	struct roost_cqe c;

	begin(s, true, 255);
	world_kill(w, 1);
	post_write(0);
	assert_false(ep_wait_send(&A[0], &c, 60 * SEC));
	assert_int_equal(nic_qp_state(A[0].qp), NIC_QPS_RTS);
	end();
}

static void forge(uint8_t opcode, uint32_t dqpn, uint32_t psn)
{
	struct port_hint h = {.dst = nic_port(w->nic[1], 0, 0)->addr,
			      .quotes = true,
			      .opcode = opcode,
			      .dqpn = dqpn,
			      .psn = psn & PKT_PSN_MASK};

	port_add_hint(w->port[0][0][0], &h);
}

/*
 * Hints that quote a valid packet arrive repeatedly while the peer lives. It is asked, and answers.
 */
RULE(forged_and_right)
{
	begin(s, true, TIMEOUT);
	for (int i = 0; i < 200; i++) {
		forge(PKT_WRITE_ONLY, nic_qp_num(B[0].qp), s);
		world_run(w, world_now(w) + 50 * MSEC);
	}
	assert_in_range(num_probes, 2, 2 * 41); /* ten seconds, two lanes of the peer */
	assert_int_equal(asked_psn, (s - 1) & PKT_PSN_MASK);
	still_works();
	/*
	 * A probe between other packets: its answer acknowledges what the peer has received, and
	 * no more.
	 */
	forge(PKT_WRITE_ONLY, nic_qp_num(B[1].qp), s);
	still_works();
	assert_int_equal(A[0].events | A[1].events, 0);
	assert_int_equal(count(ended), 0);
	world_run(w, world_now(w) + 5 * SEC);
	assert_true(nic_deadline(w->nic[0], 0) == UINT64_MAX); /* the suspicion has ended */
	end();
}

/*
 * Hints of an attacker that does not see our packets have no effect, even while the peer does not
 * answer for long.
 */
RULE(forged_and_wrong)
{
	struct roost_cqe c;

	begin(s, true, TIMEOUT);
	w->paused_until[1] = world_now(w) + 8 * SEC;
	post_write(0);
	for (int i = 0; i < 100; i++) {
		forge(PKT_WRITE_ONLY, nic_qp_num(B[0].qp) ^ 1, s);
		forge(PKT_WRITE_ONLY, nic_qp_num(B[0].qp), s + 1000);
		forge(PKT_WRITE_ONLY, nic_qp_num(B[0].qp), s - 1000);
		forge(PKT_ACK, nic_qp_num(B[0].qp), s + 1);
		world_run(w, world_now(w) + 70 * MSEC);
	}
	assert_int_equal(num_probes, 0);
	assert_int_equal(count(hints_seen), 400);
	assert_true(ep_wait_send(&A[0], &c, 10 * SEC));
	assert_int_equal(c.status, NIC_WC_SUCCESS);
	end();
}

/* Hints that another process at the address is gone have no effect, even on a stopped peer. */
RULE(another_is_gone)
{
	struct port_hint h = {.owner = 7};
	struct roost_cqe c;

	begin(s, true, TIMEOUT);
	h.dst = nic_port(w->nic[1], 0, 0)->addr;
	w->paused_until[1] = world_now(w) + 8 * SEC;
	post_write(0);
	for (int i = 0; i < 100; i++) {
		port_add_hint(w->port[0][0][0], &h);
		world_run(w, world_now(w) + 70 * MSEC);
	}
	assert_int_equal(num_probes, 0);
	assert_int_equal(count(hints_seen), 100);
	assert_true(ep_wait_send(&A[0], &c, 10 * SEC));
	assert_int_equal(c.status, NIC_WC_SUCCESS);
	end();
}

/*
 * A peer with keepalive is probed from time to time. When it dies without a hint, the connections
 * with keepalive end.
 */
RULE(kept_alive)
{
	struct roost_sge sge;
	struct roost_cqe c;
	uint64_t start, earlier;

	begin(s, false, TIMEOUT);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(nic_qp_keepalive(w->nic[0], A[i].qp, true, world_now(w)), 0);
		sge = ep_sge(&A[i], 0, 100);
		ep_post_recv(&A[i], 5, &sge, 1);
	}
	world_run(w, world_now(w) + 100 * SEC + SEC / 2);
	assert_in_range(
		count(probes), 90,
		110); /* for each destination, one for each lane of the peer, every other second */
	assert_int_equal(
		/* and an answer; each is counted when it is sent and when it is delivered */
		packets, 4 * count(probes));
	still_works();
	/* Keepalive ends when it is turned off. */
	assert_int_equal(nic_qp_keepalive(w->nic[0], A[1].qp, false, world_now(w)), 0);
	world_kill(w, 1);
	start = world_now(w);
	earlier = num_probes;
	assert_true(ep_wait_recv(&A[0], &c, 40 * SEC));
	assert_in_range(world_now(w) - start, 30 * SEC, 34 * SEC);
	assert_int_equal(c.status, NIC_WC_WR_FLUSH_ERR);
	assert_int_not_equal(A[0].events & 1u << NIC_EVENT_QP_FATAL, 0);
	assert_in_range(num_probes - earlier, 7, 31);
	assert_int_equal(nic_qp_state(A[1].qp), NIC_QPS_RTS);
	end();
}

/*
 * If the port reports that the peer is stalled, neither an idle nor a busy connection ends, however
 * long the stall is.
 */
RULE(stopped)
{
	struct roost_cqe c;

	readers = true;
	begin(s, false, 14); /* 67 ms, and seven times more */
	for (int i = 0; i < 2; i++)
		assert_int_equal(nic_qp_keepalive(w->nic[0], A[i].qp, true, world_now(w)), 0);
	w->paused_until[1] = world_now(w) + 100 * SEC;
	post_write(0);
	world_run(w, world_now(w) + 99 * SEC);
	assert_int_equal(A[0].events | A[1].events, 0);
	assert_true(ep_wait_send(&A[0], &c, 5 * SEC));
	assert_int_equal(c.status, NIC_WC_SUCCESS);
	still_works();
	assert_int_equal(count(ended), 0);
	end();
}

/* Ends a connection, and makes another one between the same processing units. */
static void anew(int i)
{
	struct ep_params p = A[i].p;

	ep_fini(&A[i]);
	ep_fini(&B[i]);
	ep_init(&A[i], w, 0, &p);
	ep_init(&B[i], w, 1, &p);
	ep_connect(&A[i], &B[i]);
}

/*
 * One connection is busy, so that its peer looks stalled at each check. The peer's QP of the other
 * connection is destroyed. Stores the completion that ends the other one, of a send or a receive.
 * Returns its time. `brief`: the busy connection is replaced by a new one again and again.
 */
static uint64_t ends_beside_a_busy_one(struct roost_cqe *c, bool brief)
{
	uint64_t start = world_now(w);
	struct roost_sge sge = ep_sge(&A[1], 0, 100);

	ep_fini(&B[1]);
	ep_post_recv(&A[1], 5, &sge, 1);
	while (nic_qp_state(A[1].qp) != NIC_QPS_ERR && world_now(w) - start < 60 * SEC) {
		post_write(0);
		w->paused_until[1] = world_now(w) + 10 * MSEC;
		world_run(w, world_now(w) + 10 * MSEC);
		assert_true(ep_wait_send(&A[0], c, MSEC));
		assert_int_equal(c->status, NIC_WC_SUCCESS);
		if (brief)
			anew(0);
	}
	assert_int_equal(nic_qp_state(A[0].qp), NIC_QPS_RTS);
	ep_init(&B[1], w, 1, &(struct ep_params){.pu = B[1].p.pu});
	return world_now(w) - start;
}

static void retries_beside_a_busy_one(uint32_t s, unsigned of_pus, bool brief)
{
	struct roost_cqe c;

	readers = true;
	pus = of_pus;
	begin(s, false, 14); /* 67 ms, and seven times more: 1.8 s in all */
	post_write(1);
	assert_in_range(ends_beside_a_busy_one(&c, brief), SEC, 5 * SEC);
	assert_true(ep_wait_send(&A[1], &c, 0));
	assert_int_equal(c.status, NIC_WC_RETRY_EXC_ERR);
	end();
}

/*
 * A busy peer looks stalled at many checks. This renews the retries of a QP whose peer QP is gone
 * once, and not as long as other connections get answers.
 */
RULE(busy_is_not_stopped)
{
	retries_beside_a_busy_one(s, 0, false);
}

/* The same if the others belong to another PU at both ends. */
RULE(busy_elsewhere_is_not_stopped)
{
	retries_beside_a_busy_one(s, 2, false);
}

/* The same if the others are connections of short life. */
RULE(busy_in_brief_is_not_stopped)
{
	retries_beside_a_busy_one(s, 2, true);
}

/* The same without outstanding work, with keepalive. */
RULE(kept_alive_beside_a_busy_one)
{
	struct roost_cqe c;

	readers = true;
	pus = 2;
	begin(s, false, TIMEOUT);
	assert_int_equal(nic_qp_keepalive(w->nic[0], A[1].qp, true, world_now(w)), 0);
	assert_in_range(ends_beside_a_busy_one(&c, false), 8 * SEC, 16 * SEC);
	assert_true(ep_wait_recv(&A[1], &c, MSEC));
	assert_int_equal(c.status, NIC_WC_WR_FLUSH_ERR);
	end();
}

/*
 * An idle connection has keepalive. The peer's queue pair is destroyed, and the peer reads nothing
 * for the time `stopped`. Our queue pair must end between `from` and `to`.
 */
static void ends_between(uint32_t s, uint64_t stopped, uint64_t from, uint64_t to)
{
	struct roost_sge sge;
	struct roost_cqe c;
	uint64_t start;

	readers = true;
	begin(s, false, TIMEOUT);
	assert_int_equal(nic_qp_keepalive(w->nic[0], A[0].qp, true, world_now(w)), 0);
	sge = ep_sge(&A[0], 0, 100);
	ep_post_recv(&A[0], 5, &sge, 1);
	ep_fini(&B[0]);
	start = world_now(w);
	if (stopped)
		w->paused_until[1] = start + stopped;
	assert_true(ep_wait_recv(&A[0], &c, stopped + 20 * SEC));
	assert_in_range(world_now(w) - start, from, to);
	assert_int_equal(c.status, NIC_WC_WR_FLUSH_ERR);
	ep_init(&B[0], w, 1, &(struct ep_params){0});
	end();
}

/*
 * A peer that continues after a long stop gets time to answer: silence during the stop does not
 * count.
 */
RULE(goes_on_and_is_silent)
{
	ends_between(s, 60 * SEC, 63 * SEC, 67 * SEC);
}

/*
 * A peer that reads and does not answer counts as dead: its queue pair was destroyed, or another
 * process has the address.
 */
RULE(reads_and_is_silent)
{
	ends_between(s, 0, 8 * SEC, 12 * SEC);
}

/* With hints the connection ends sooner. */
RULE(kept_alive_with_hints)
{
	struct roost_sge sge;
	struct roost_cqe c;

	begin(s, true, TIMEOUT);
	assert_int_equal(nic_qp_keepalive(w->nic[0], A[0].qp, true, world_now(w)), 0);
	sge = ep_sge(&A[0], 0, 100);
	ep_post_recv(&A[0], 5, &sge, 1);
	world_kill(w, 1);
	assert_true(ep_wait_recv(&A[0], &c, 5 * SEC));
	assert_int_equal(c.status, NIC_WC_WR_FLUSH_ERR);
	world_run(w, world_now(w) + 60 * SEC);
	assert_true(nic_deadline(w->nic[0], 0) == UINT64_MAX);
	end();
}

/*
 * On a busy connection no probes are sent. A QP that is destroyed with keepalive leaves no
 * timer.
 */
RULE(busy_is_not_asked)
{
	begin(s, false, TIMEOUT);
	assert_int_equal(nic_qp_keepalive(w->nic[0], A[0].qp, true, world_now(w)), 0);
	for (int i = 0; i < 100; i++) {
		still_works();
		world_run(w, world_now(w) + 100 * MSEC);
	}
	assert_int_equal(num_probes, 0);
	ep_fini(&A[0]);
	world_run(w, world_now(w) + 10 * SEC);
	assert_int_equal(num_probes, 0);
	assert_true(nic_deadline(w->nic[0], 0) == UINT64_MAX);
	ep_init(&A[0], w, 0, &(struct ep_params){0});
	end();
}

static void only_reliable(void **state)
{
	struct ep e;

	world_init(w, 1, 1, NULL);
	ep_init(&e, w, 0, &(struct ep_params){.type = NIC_QPT_UC});
	assert_int_equal(nic_qp_keepalive(w->nic[0], e.qp, true, 0), -EOPNOTSUPP);
	ep_fini(&e);
	world_fini(w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(killed),
		cmocka_unit_test(idle_is_silent),
		cmocka_unit_test(timeout_zero),
		cmocka_unit_test(forged_and_right),
		cmocka_unit_test(forged_and_wrong),
		cmocka_unit_test(another_is_gone),
		cmocka_unit_test(kept_alive),
		cmocka_unit_test(stopped),
		cmocka_unit_test(busy_is_not_stopped),
		cmocka_unit_test(busy_elsewhere_is_not_stopped),
		cmocka_unit_test(busy_in_brief_is_not_stopped),
		cmocka_unit_test(kept_alive_beside_a_busy_one),
		cmocka_unit_test(goes_on_and_is_silent),
		cmocka_unit_test(reads_and_is_silent),
		cmocka_unit_test(kept_alive_with_hints),
		cmocka_unit_test(busy_is_not_asked),
		cmocka_unit_test(only_reliable),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
