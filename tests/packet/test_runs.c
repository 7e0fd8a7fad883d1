/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The oracles judge our own NICs: two NICs over the simulated link, with loss, reordering and
 * duplication, and a mixed load. The packets that each NIC sent and received obey every rule, and
 * the NICs' counters equal the counts of the trace.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/rng.h"
#include "packet/oracle.h"
#include "world.h"

#define MTU	 1024
#define MESSAGES 300
#define INFLIGHT 16

/* Trace of both ends, A's and B's. */
struct trace {
	struct oracle *o[2];
	struct pkt_addr addr[2];
	uint64_t index;
	uint64_t hide; /* a packet that A's trace is to lack; 0: none */
};

static void tap(void *ctx, uint64_t now, bool delivered, const struct pkt_addr *src,
		const struct pkt_addr *dst, const uint8_t *bth, uint32_t len)
{
	const struct pkt_addr *observer = delivered ? dst : src;
	struct trace *t = ctx;
	struct pkt_view v;

	if (pkt_parse(bth, len, &v) != PKT_OK)
		return;
	t->index++;
	if (t->index == t->hide)
		return;
	oracle_feed(t->o[pkt_addr_eq(observer, &t->addr[1])], t->index, now, src, dst, &v);
}

static void trace_begin(struct trace *t, struct world *w, bool disorder)
{
	for (int i = 0; i < 2; i++) {
		struct oracle_options oo = oracle_defaults;

		t->addr[i] = w->port[i][0][0]->addr;
		oo.max_streams = 4;
		oo.mtu = MTU;
		oo.has_local = true;
		oo.local = t->addr[i];
		oo.disorder = disorder;
		t->o[i] = oracle_new(&oo);
		assert_non_null(t->o[i]);
	}
	sim_set_tap(w->sim, tap, t);
}

static void trace_end(struct trace *t)
{
	for (int i = 0; i < 2; i++)
		oracle_free(t->o[i]);
}

static void post_receives(struct ep *e, unsigned n)
{
	struct roost_sge s = ep_sge(e, 1 << 19, 1 << 18);

	while (n--)
		ep_post_recv(e, 1, &s, 1);
}

static void post(struct ep *a, struct ep *b, struct rng *rng, uint64_t id)
{
	static const enum roost_op ops[] = {ROOST_OP_WRITE, ROOST_OP_READ, ROOST_OP_READ,
					    ROOST_OP_SEND, ROOST_OP_FETCH_ADD};
	enum roost_op op = ops[rng_below(rng, 5)];
	uint32_t n = (uint32_t)rng_below(rng, rng_below(rng, 3) ? 3000 : 30000);
	struct wr wr = wr_rdma(op, a, 0, op == ROOST_OP_FETCH_ADD ? 8 : n, b, 0);

	wr.wr_id = id;
	wr.swap_add = 1;
	ep_post(a, &wr);
}

/*
 * Posts MESSAGES and waits for their completions. With `stingy`, receives are posted only after an
 * RNR NAK.
 */
static void load(struct world *w, struct ep *a, struct ep *b, struct rng *rng, bool stingy)
{
	unsigned posted = 0, done = 0;
	struct roost_cqe c;

	post_receives(b, stingy ? 2 : 64);
	while (done < MESSAGES) {
		while (posted < MESSAGES && posted - done < INFLIGHT)
			post(a, b, rng, posted++);
		while (!ep_wait_send(a, &c, 5 * MSEC)) {
			assert_true(world_now(w) < 100 * SEC);
			if (stingy)
				post_receives(b, 2);
		}
		assert_int_equal(c.status, NIC_WC_SUCCESS);
		assert_int_equal(c.wr_id, done);
		done++;
		while (ep_poll_recv(b, &c)) {
			if (!stingy)
				post_receives(b, 1);
		}
	}
}

/*
 * Packets behind a SEND that found no receive look in order as long as the RNR NAK was not sent.
 */
static void check_counters(struct world *w, struct trace *t, uint64_t seed, bool rnr)
{
	const struct oracle_counts *at_a = &oracle_totals(t->o[0])->c,
				   *at_b = &oracle_totals(t->o[1])->c;
	struct nic_counters a, b;

	nic_counters(w->nic[0], &a);
	nic_counters(w->nic[1], &b);
	if (a.packet_seq_err != at_a->naks_seq || a.rnr_nak_retry_err != at_a->naks_rnr ||
	    a.retransmitted_pkts + a.tail_loss_probe != at_a->retransmitted ||
	    b.duplicate_request != at_b->duplicates || (b.out_of_sequence != at_b->gaps && !rnr) ||
	    b.out_of_buffer != at_b->naks_rnr)
		fail_msg(
			"seed %llu, counted and in the trace: sequence NAKs %llu %llu, RNR %llu %llu, "
			"again %llu %llu, duplicates %llu %llu, out of sequence %llu %llu",
			(unsigned long long)seed, (unsigned long long)a.packet_seq_err,
			(unsigned long long)at_a->naks_seq, (unsigned long long)a.rnr_nak_retry_err,
			(unsigned long long)at_a->naks_rnr,
			(unsigned long long)(a.retransmitted_pkts + a.tail_loss_probe),
			(unsigned long long)at_a->retransmitted,
			(unsigned long long)b.duplicate_request,
			(unsigned long long)at_b->duplicates, (unsigned long long)b.out_of_sequence,
			(unsigned long long)at_b->gaps);
}

/* Returns the number of broken rules, which must be 0 if `hide` is 0. */
static uint64_t run(uint64_t seed, const struct sim_params *sp, bool stingy, uint64_t hide)
{
	struct ep_params p = {.mem = 1 << 20,
			      .mtu = MTU,
			      .min_rnr_timer = 14,
			      .psn = (uint32_t)(seed * 0x9e3779) & PKT_PSN_MASK};
	struct trace t = {.hide = hide};
	uint64_t violations = 0;
	struct world w;
	struct ep a, b;
	struct rng rng;

	rng_seed(&rng, seed);
	world_init(&w, 2, seed, sp);
	ep_init(&a, &w, 0, &p);
	ep_init(&b, &w, 1, &p);
	ep_connect(&a, &b);
	trace_begin(&t, &w, sp->dup > 0 || sp->reorder > 0);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(oracle_pair(t.o[i], &t.addr[0], nic_qp_num(a.qp), &t.addr[1],
					     nic_qp_num(b.qp)),
				 0);
		assert_int_equal(
			oracle_begins(t.o[i], &t.addr[0], &t.addr[1], nic_qp_num(b.qp), p.psn), 0);
	}
	load(&w, &a, &b, &rng, stingy);
	for (int i = 0; i < 2; i++) {
		const struct oracle_finding *f;
		size_t n;

		f = oracle_findings(t.o[i], &n);
		if (n && !hide)
			fail_msg("seed %llu, end %c, packet %llu: %s: %s", (unsigned long long)seed,
				 "AB"[i], (unsigned long long)f -> index, oracle_rule_name(f->rule),
				 f -> text);
		violations += oracle_totals(t.o[i])->violations;
		assert_int_equal(oracle_totals(t.o[i])->unpaired, 0);
	}
	if (!hide)
		check_counters(&w, &t, seed, stingy);
	ep_fini(&a);
	ep_fini(&b);
	world_fini(&w);
	trace_end(&t);
	return violations;
}

static void test_loss(void **state)
{
	struct sim_params one = {.loss = 0.01, .delay_ns = 2000},
			  ten = {.loss = 0.1, .delay_ns = 50000};

	for (uint64_t seed = 1; seed <= 30; seed++)
		run(seed, &one, false, 0);
	for (uint64_t seed = 31; seed <= 50; seed++)
		run(seed, &ten, false, 0);
}

static void test_disorder(void **state)
{
	struct sim_params sp = {
		.loss = 0.02, .dup = 0.02, .reorder = 0.02, .delay_ns = 2000, .jitter_ns = 1000};

	for (uint64_t seed = 101; seed <= 130; seed++)
		run(seed, &sp, false, 0);
}

static void test_rnr(void **state)
{
	struct sim_params none = {.delay_ns = 2000}, one = {.loss = 0.01, .delay_ns = 2000};

	for (uint64_t seed = 201; seed <= 210; seed++)
		run(seed, &none, true, 0);
	for (uint64_t seed = 211; seed <= 220; seed++)
		run(seed, &one, true, 0);
}

/* Without loss, a trace that lacks one packet breaks a rule. */
static void test_notices(void **state)
{
	struct sim_params none = {.delay_ns = 2000};

	for (uint64_t hide = 20; hide < 120; hide += 20)
		assert_int_not_equal(run(7, &none, false, hide), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_loss),
		cmocka_unit_test(test_disorder),
		cmocka_unit_test(test_rnr),
		cmocka_unit_test(test_notices),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
