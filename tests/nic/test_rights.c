/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Rights that the program withdraws from a connected QP (IBV_QP_ACCESS_FLAGS). No packet that is
 * executed after nic_qp_modify() accesses memory by such a right: not in the middle of a message,
 * not for a repeated READ, not in loop-back. The request gets the NAK that its first packet would
 * get (Linux rxe_resp.c, check_op_valid).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

#include "peer.h"

#define MTU 256
#define ALL (NIC_ACCESS_REMOTE_WRITE | NIC_ACCESS_REMOTE_READ | NIC_ACCESS_REMOTE_ATOMIC)
#define S   0xfffffeu /* first PSN of the peer */

static struct peer P, *const p = &P;

static void allow(struct ep *e, uint32_t access)
{
	struct nic_qp_attr a = {.access = access};

	assert_int_equal(ep_modify(e, &a, NIC_QPA_ACCESS_FLAGS), 0);
}

static struct pkt_make mk(uint8_t opcode, uint32_t psn, uint32_t dmalen, uint32_t len)
{
	return (struct pkt_make){.opcode = opcode,
				 .psn = psn,
				 .ackreq = true,
				 .va = (uintptr_t)p->e.mem,
				 .rkey = p->e.key,
				 .dmalen = dmalen,
				 .len = len};
}

static void send(struct pkt_make m)
{
	peer_send(p, &m);
}

/* A right is checked for each packet of a WRITE. Its return before the next packet is harmless. */
static void write_in_progress(void **state)
{
	peer_open(p, &(struct ep_params){.mtu = MTU}, S);
	send(mk(PKT_WRITE_FIRST, S, 4 * MTU, MTU));
	expect_ack(p, PKT_AETH_ACK, S);
	allow(&p->e, ALL & ~NIC_ACCESS_REMOTE_WRITE);
	allow(&p->e, ALL);
	send(mk(PKT_WRITE_MIDDLE, S + 1, 0, MTU));
	expect_ack(p, PKT_AETH_ACK, S + 1);
	assert_int_equal(p->e.mem[MTU + 1], pkt_pattern(1));
	allow(&p->e, ALL & ~NIC_ACCESS_REMOTE_WRITE);
	send(mk(PKT_WRITE_MIDDLE, S + 2, 0, MTU));
	expect_ack(p, PKT_NAK_INVALID_REQ, S + 2);
	assert_int_equal(p->e.mem[2 * MTU + 1], 0);
	assert_int_equal(nic_qp_state(p->e.qp), NIC_QPS_ERR);
	assert_true(p->e.events & 1u << NIC_EVENT_QP_REQ_ERR);
	peer_close(p);
}

/* UC has no NAK: the rest of the message is dropped, and the QP continues. */
static void unreliable_write_in_progress(void **state)
{
	peer_open(p, &(struct ep_params){.type = NIC_QPT_UC, .mtu = MTU}, S);
	send(mk(PKT_UC + PKT_WRITE_FIRST, S, 2 * MTU, MTU));
	allow(&p->e, ALL & ~NIC_ACCESS_REMOTE_WRITE);
	send(mk(PKT_UC + PKT_WRITE_LAST, S + 1, 0, MTU));
	assert_int_equal(p->e.mem[1], pkt_pattern(1));
	assert_int_equal(p->e.mem[MTU + 1], 0);
	assert_int_equal(peer_counters(p).rx_uc_dropped, 1);
	allow(&p->e, ALL);
	send(mk(PKT_UC + PKT_WRITE_ONLY, S + 2, 8, 8));
	assert_int_equal(peer_counters(p).rx_write_requests, 2);
	peer_close(p);
}

/* The responses of a long READ end with a NAK, which names the first one that is not sent. */
static void read_in_progress(void **state)
{
	struct pkt_make m;
	const struct got *g;
	uint32_t psn = S;

	peer_open(p, &(struct ep_params){.mtu = MTU}, S);
	m = mk(PKT_READ_REQUEST, S, 200 * MTU, 0);
	peer_put(p, &m);
	assert_non_null(peer_get(p, PEER_SETTLE));
	allow(&p->e, ALL & ~NIC_ACCESS_REMOTE_READ);
	while ((g = peer_get(p, PEER_SETTLE)) && g->v.opcode == PKT_READ_RESP_MIDDLE)
		psn++;
	assert_non_null(g);
	assert_true(psn - S < 100);
	assert_int_equal(g->v.opcode, PKT_ACK);
	assert_int_equal(g->v.syndrome, PKT_NAK_INVALID_REQ);
	assert_int_equal(g->v.psn, (psn + 1) & PKT_PSN_MASK);
	expect_quiet(p, SEC);
	assert_int_equal(nic_qp_state(p->e.qp), NIC_QPS_ERR);
	peer_close(p);
}

/*
 * A copy of an answered READ reads memory again, so it gets no response. It does not end the
 * connection, because it may be late. A copy of an atomic is answered from the saved result.
 */
static void repeated_requests(void **state)
{
	struct pkt_make add;

	peer_open(p, &(struct ep_params){.mtu = MTU}, S);
	add = mk(PKT_FETCH_ADD, S + 1, 0, 0);
	add.swap_add = 1;
	send(mk(PKT_READ_REQUEST, S, 8, 0));
	expect(p, PKT_READ_RESP_ONLY, S);
	send(add);
	expect(p, PKT_ATOMIC_ACK, S + 1);
	send(mk(PKT_READ_REQUEST, S, 8, 0));
	expect(p, PKT_READ_RESP_ONLY, S);
	allow(&p->e, NIC_ACCESS_REMOTE_WRITE);
	send(mk(PKT_READ_REQUEST, S, 8, 0));
	expect_quiet(p, SEC);
	send(add);
	assert_int_equal(expect(p, PKT_ATOMIC_ACK, S + 1)->v.swap_add, 0);
	assert_int_equal(p->e.mem[0], 1);
	send(mk(PKT_WRITE_ONLY, S + 2, 8, 8));
	expect_ack(p, PKT_AETH_ACK, S + 2);
	assert_int_equal(nic_qp_state(p->e.qp), NIC_QPS_RTS);
	peer_close(p);
}

/* In loop-back a long message moves in turns, and each turn checks the right. */
static void loop_back(void **state)
{
	static const enum roost_op ops[] = {ROOST_OP_WRITE, ROOST_OP_READ};
	const uint32_t len = 500000;
	struct ep_params params = {.mem = 1 << 20};
	static struct world w;
	static struct ep a, b;

	for (unsigned o = 0; o < 2; o++) {
		struct roost_cqe c;
		struct wr wr;
		uint8_t *dst;

		world_init_shape(&w, &(struct world_shape){.nics = 1}, 21, &(struct sim_params){0});
		ep_init(&a, &w, 0, &params);
		ep_init(&b, &w, 0, &params);
		ep_connect(&a, &b);
		memset(o ? b.mem : a.mem, 7, len);
		dst = o ? a.mem : b.mem;
		wr = wr_rdma(ops[o], &a, 0, len, &b, 0);
		ep_post(&a, &wr);
		world_step(&w, UINT64_MAX);
		world_step(&w, UINT64_MAX);
		assert_int_equal(dst[0], 7);
		assert_int_equal(dst[len - 1], 0);
		allow(&b, ALL & ~(o ? NIC_ACCESS_REMOTE_READ : NIC_ACCESS_REMOTE_WRITE));
		assert_true(ep_wait_send(&a, &c, SEC));
		assert_int_equal(c.status, NIC_WC_REM_INV_REQ_ERR);
		assert_int_equal(dst[len - 1], 0);
		assert_int_equal(nic_qp_state(a.qp), NIC_QPS_ERR);
		assert_int_equal(nic_qp_state(b.qp), NIC_QPS_ERR);
		assert_true(b.events & 1u << NIC_EVENT_QP_REQ_ERR);
		ep_fini(&a);
		ep_fini(&b);
		world_fini(&w);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(write_in_progress), cmocka_unit_test(unreliable_write_in_progress),
		cmocka_unit_test(read_in_progress),  cmocka_unit_test(repeated_requests),
		cmocka_unit_test(loop_back),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
