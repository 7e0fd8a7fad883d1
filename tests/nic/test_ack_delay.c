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
	psn = 1000;
	sent = calls = 0;
}

static const struct sim_params plain;

/* Posts a call. */
static void post_call(void)
{
	peer_post(p, ROOST_OP_RPC, ++calls, 0, 32);
}

/* The call leaves, and the node acknowledges it. */
static void call_leaves(void)
{
	struct roost_cqe cqe;

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
	for (unsigned i = 0; i < ACK_DELAY_POSTS; i++)
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

static void only_connections_with_calls(void **state)
{
	struct roost_cqe cqe;

	start(&plain, false);
	for (unsigned i = 0; i < 4 * ACK_DELAY_POSTS; i++) {
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
	for (unsigned i = 0; i < 4 * ACK_DELAY_POSTS; i++)
		assert_false(ack_is_behind());
	peer_close(p);
}

static void leaves_without_a_call(void **state)
{
	start(&plain, true);
	make_habit();
	for (unsigned i = 0; i < 2 * ACK_DELAY_POSTS; i++) {
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

static void replies_together_do_not_wait(void **state)
{
	start(&plain, true);
	make_habit();
	put_write(64);
	put_write(64);
	until_taken(2);
	post_call();
	expect_ack(p, PKT_AETH_ACK, psn - 1);
	call_leaves();
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
	post_call();
	expect_ack(p, PKT_AETH_ACK, psn - 1);
	call_leaves();
	peer_close(p);
}

static void a_long_write_does_not_wait(void **state)
{
	start(&plain, true);
	make_habit();
	put_write(1024);
	put_write(0);
	until_taken(2);
	expect_ack(p, PKT_AETH_ACK, psn - 1);
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

/* ---- the state machine alone ---- */

static void takes_one_reply(void **state)
{
	struct ack_delay d = {0};

	for (unsigned i = 0; i < ACK_DELAY_POSTS; i++) {
		assert_false(ack_delay_active(&d));
		assert_false(ack_delay_reply(&d, true));
		assert_false(ack_delay_turn(&d, true));
	}
	assert_true(ack_delay_reply(&d, true));
	assert_false(ack_delay_reply(&d, true)); /* of another connection */
	assert_true(ack_delay_active(&d));
	assert_false(ack_delay_turn(&d, true));
	assert_false(ack_delay_reply(&d, true)); /* the reply to the call that was posted */
	assert_true(ack_delay_turn(&d, false));
	assert_false(ack_delay_active(&d));
	assert_true(ack_delay_reply(&d, true));
	assert_true(ack_delay_turn(&d, false)); /* the post did not come */
	assert_false(ack_delay_reply(&d, true));
}

static void habit_ends_with_replies_together(void **state)
{
	struct ack_delay d = {.posts = ACK_DELAY_POSTS};

	assert_false(ack_delay_reply(&d, false));
	assert_false(ack_delay_turn(&d, true));
	assert_false(ack_delay_reply(&d, true));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(acks_follow_calls),
		cmocka_unit_test(only_connections_with_calls),
		cmocka_unit_test(not_where_a_flush_is_a_system_call),
		cmocka_unit_test(leaves_without_a_call),
		cmocka_unit_test(replies_together_do_not_wait),
		cmocka_unit_test(answers_do_not_wait),
		cmocka_unit_test(sends_do_not_wait),
		cmocka_unit_test(a_long_write_does_not_wait),
		cmocka_unit_test(connection_ends),
		cmocka_unit_test(takes_one_reply),
		cmocka_unit_test(habit_ends_with_replies_together),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
