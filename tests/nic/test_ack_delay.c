/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The ACK of a reply waits for the caller's next request (nic/ack_delay.h): when it does, when it
 * leaves, and that it never waits for anything else. The peer of the NIC under test plays the node.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "nic/ack_delay.h"
#include "peer.h"

/* ns of virtual time after which each packet has left */
#define SETTLED 20000

static struct peer P, *const p = &P;
static uint32_t psn;  /* of the next packet of the peer */
static uint32_t sent; /* PSN of the next packet of the NIC */
static uint32_t calls;

static void start(const struct sim_params *link, bool rpc)
{
	peer_open_link(p, link, &(struct ep_params){.rpc = rpc, .depth = 64}, 1000);
	nic_rpc_single_call(p->e.qp, true);
	psn = 1000;
	sent = calls = 0;
}

static const struct sim_params plain;

/* Posts a call. */
static void post_call(void)
{
	peer_post(p, ROOST_OP_RPC, ++calls, 0, 32);
}

/* Posts a call, and expects an ACK in front of it. The node acknowledges the call. */
static void ack_leaves_before_call(void)
{
	struct roost_cqe cqe;

	post_call();
	expect_ack(p, PKT_AETH_ACK, psn - 1);
	expect(p, PKT_RPC_PARAMS, sent);
	peer_ack(p, PKT_AETH_ACK, sent++, calls);
	assert_true(ep_poll_send(&p->e, &cqe));
}

static void put_write(uint32_t len)
{
	peer_put(p, &(struct pkt_make){.opcode = PKT_WRITE_ONLY,
				       .psn = psn++,
				       .ackreq = true,
				       .va = (uintptr_t)p->e.mem + 4096,
				       .rkey = p->e.key,
				       .dmalen = len,
				       .len = len});
}

/* Runs turns until the NIC has taken `n` packets more. */
static void until_taken(uint64_t n)
{
	uint64_t end = peer_counters(p).rcvd_pkts + n;

	while (peer_counters(p).rcvd_pkts < end)
		assert_true(world_step(&p->w, UINT64_MAX));
}

static void reply(void)
{
	put_write(64);
	until_taken(1);
}

/* A reply, and directly behind it the next call. Returns true if the ACK leaves behind the call. */
static bool ack_is_behind(void)
{
	const struct got *g;
	bool behind;

	reply();
	post_call();
	g = peer_get(p, SETTLED);
	assert_non_null(g);
	behind = g->v.opcode == PKT_RPC_PARAMS;
	if (behind) {
		assert_int_equal(g->v.psn, sent);
		expect_ack(p, PKT_AETH_ACK, psn - 1);
	} else {
		assert_int_equal(g->v.opcode, PKT_ACK);
		assert_int_equal(g->v.psn, psn - 1);
		expect(p, PKT_RPC_PARAMS, sent);
	}
	peer_ack(p, PKT_AETH_ACK, sent++, calls);
	return behind;
}

/* Calls one after the other, until the NIC delays ACKs. */
static void make_habit(void)
{
	for (unsigned i = 0; i < ACK_DELAY_REPLIES; i++)
		assert_false(ack_is_behind());
	assert_true(ack_is_behind());
}

static void acks_follow_calls(void **state)
{
	start(&plain, true);
	make_habit();
	for (unsigned i = 0; i < 100; i++)
		assert_true(ack_is_behind());
	peer_close(p);
}

/* A caller that pauses before each call: the ACKs would wait for all these pauses. */
static void slow_callers_get_no_delay(void **state)
{
	start(&plain, true);
	make_habit();
	for (unsigned i = 0; i < 2 * ACK_DELAY_REPLIES; i++) {
		reply();
		sim_advance(p->w.sim, world_now(&p->w) + 2 * ACK_DELAY_NS);
		ack_leaves_before_call();
	}
	make_habit();
	peer_close(p);
}

static void only_connections_with_calls(void **state)
{
	struct roost_cqe cqe;

	start(&plain, false);
	for (unsigned i = 0; i < 4 * ACK_DELAY_REPLIES; i++) {
		reply();
		peer_post(p, ROOST_OP_WRITE, i, 0, 32);
		expect_ack(p, PKT_AETH_ACK, psn - 1);
		expect(p, PKT_WRITE_ONLY, sent);
		peer_ack(p, PKT_AETH_ACK, sent++, i + 1);
		assert_true(ep_poll_send(&p->e, &cqe));
	}
	peer_close(p);
}

static void not_where_a_flush_is_a_system_call(void **state)
{
	start(&(struct sim_params){.batch = 16}, true);
	for (unsigned i = 0; i < 4 * ACK_DELAY_REPLIES; i++)
		assert_false(ack_is_behind());
	peer_close(p);
}

static void leaves_without_a_call(void **state)
{
	start(&plain, true);
	make_habit();
	for (unsigned i = 0; i < 2 * ACK_DELAY_REPLIES; i++) {
		reply();
		expect_ack(p, PKT_AETH_ACK, psn - 1);
	}
	/* The caller has to show its habit again. */
	make_habit();
	reply();
	assert_true(nic_pending(p->e.nic, 0));
	expect_ack(p, PKT_AETH_ACK, psn - 1);
	assert_false(nic_pending(p->e.nic, 0));
	peer_close(p);
}

/* The ACK of the second reply is that of both. */
static void replies_together_do_not_wait(void **state)
{
	start(&plain, true);
	make_habit();
	put_write(64);
	put_write(64);
	until_taken(2);
	ack_leaves_before_call();
	peer_close(p);
}

static void callers_with_several_calls_get_no_delay(void **state)
{
	start(&plain, true);
	make_habit();
	nic_rpc_single_call(p->e.qp, false);
	for (unsigned i = 0; i < 2 * ACK_DELAY_REPLIES; i++)
		assert_false(ack_is_behind());
	peer_close(p);
}

/* A READ in the turn of the post: its response acknowledges the reply too. */
static void answers_do_not_wait(void **state)
{
	start(&plain, true);
	make_habit();
	reply();
	post_call();
	peer_put(p, &(struct pkt_make){.opcode = PKT_READ_REQUEST,
				       .psn = psn++,
				       .ackreq = true,
				       .va = (uintptr_t)p->e.mem,
				       .rkey = p->e.key,
				       .dmalen = 8});
	sim_advance(p->w.sim, world_now(&p->w) + 1);
	expect(p, PKT_READ_RESP_ONLY, psn - 1);
	expect(p, PKT_RPC_PARAMS, sent);
	expect_quiet(p, SETTLED);
	peer_ack(p, PKT_AETH_ACK, sent++, calls);
	assert_true(ack_is_behind());
	peer_close(p);
}

static void sends_do_not_wait(void **state)
{
	struct roost_sge sge;

	start(&plain, true);
	make_habit();
	sge = ep_sge(&p->e, 8192, 64);
	ep_post_recv(&p->e, 1, &sge, 1);
	peer_put(p, &(struct pkt_make){
			    .opcode = PKT_SEND_ONLY, .psn = psn++, .ackreq = true, .len = 64});
	until_taken(1);
	ack_leaves_before_call();
	peer_close(p);
}

static void long_writes_do_not_wait(void **state)
{
	start(&plain, true);
	make_habit();
	peer_put(p, &(struct pkt_make){.opcode = PKT_WRITE_FIRST,
				       .psn = psn++,
				       .va = (uintptr_t)p->e.mem,
				       .rkey = p->e.key,
				       .dmalen = 1024 + 8,
				       .len = 1024});
	until_taken(1);
	peer_put(p, &(struct pkt_make){
			    .opcode = PKT_WRITE_LAST, .psn = psn++, .ackreq = true, .len = 8});
	until_taken(1);
	ack_leaves_before_call();
	peer_close(p);
}

/* The queue pair ends while its ACK waits. */
static void connection_ends(void **state)
{
	start(&plain, true);
	make_habit();
	reply();
	assert_true(nic_pending(p->e.nic, 0));
	assert_int_equal(
		ep_modify(&p->e, &(struct nic_qp_attr){.state = NIC_QPS_RESET}, NIC_QPA_STATE), 0);
	assert_false(nic_pending(p->e.nic, 0));
	expect_quiet(p, SETTLED);
	peer_close(p);

	start(&plain, true);
	make_habit();
	reply();
	peer_close(p);
}

/* A program that ends without another turn sends its last ACK. */
static void leaves_at_exit(void **state)
{
	start(&plain, true);
	make_habit();
	reply();
	nic_send_datagrams(p->e.nic, 0, world_now(&p->w));
	assert_false(nic_pending(p->e.nic, 0));
	expect_ack(p, PKT_AETH_ACK, psn - 1);
	peer_close(p);
}

/* ---- the state machine alone ---- */

static void one_reply(struct ack_delay *d, uint64_t *now, bool delayed)
{
	assert_int_equal(ack_delay_reply(d, *now), delayed);
	assert_true(ack_delay_active(d));
	*now += ACK_DELAY_NS;
	assert_false(ack_delay_turn(d, true, *now));
	*now += ACK_DELAY_NS;
	assert_int_equal(ack_delay_turn(d, false, *now), delayed);
	assert_false(ack_delay_active(d));
}

static uint64_t with_habit(struct ack_delay *d)
{
	uint64_t now = UINT32_MAX - 3 * ACK_DELAY_NS; /* its lower half wraps */

	*d = (struct ack_delay){0};
	for (unsigned i = 0; i < ACK_DELAY_REPLIES; i++)
		one_reply(d, &now, false);
	one_reply(d, &now, true);
	return now;
}

static void takes_one_reply(void **state)
{
	struct ack_delay d;
	uint64_t now = with_habit(&d);

	assert_true(ack_delay_reply(&d, now));
	assert_false(ack_delay_reply(&d, now));
	assert_false(ack_delay_turn(&d, true, now));
	assert_false(ack_delay_reply(&d, now)); /* to the call that was posted */
	assert_true(ack_delay_turn(&d, true, now));
	one_reply(&d, &now, true);
}

static void habit_ends_without_a_post(void **state)
{
	struct ack_delay d;
	uint64_t now = with_habit(&d);

	assert_true(ack_delay_reply(&d, now));
	assert_true(ack_delay_turn(&d, false, now));
	one_reply(&d, &now, false);
}

static void habit_ends_with_a_late_post(void **state)
{
	struct ack_delay d;
	uint64_t now = with_habit(&d);

	assert_true(ack_delay_reply(&d, now));
	now += ACK_DELAY_NS + 1;
	assert_true(ack_delay_turn(&d, true, now));
	one_reply(&d, &now, false);
}

/* A program that posts at once, and computes before it polls. */
static void habit_ends_with_a_late_turn(void **state)
{
	struct ack_delay d;
	uint64_t now = with_habit(&d);

	assert_true(ack_delay_reply(&d, now));
	assert_false(ack_delay_turn(&d, true, now));
	now += ACK_DELAY_NS + 1;
	assert_true(ack_delay_turn(&d, false, now));
	one_reply(&d, &now, false);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(acks_follow_calls),
		cmocka_unit_test(slow_callers_get_no_delay),
		cmocka_unit_test(only_connections_with_calls),
		cmocka_unit_test(not_where_a_flush_is_a_system_call),
		cmocka_unit_test(leaves_without_a_call),
		cmocka_unit_test(replies_together_do_not_wait),
		cmocka_unit_test(answers_do_not_wait),
		cmocka_unit_test(sends_do_not_wait),
		cmocka_unit_test(callers_with_several_calls_get_no_delay),
		cmocka_unit_test(long_writes_do_not_wait),
		cmocka_unit_test(connection_ends),
		cmocka_unit_test(leaves_at_exit),
		cmocka_unit_test(takes_one_reply),
		cmocka_unit_test(habit_ends_without_a_post),
		cmocka_unit_test(habit_ends_with_a_late_post),
		cmocka_unit_test(habit_ends_with_a_late_turn),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
