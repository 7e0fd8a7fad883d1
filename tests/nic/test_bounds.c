/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The responder at its limits: the longest message in the smallest packets, and a full completion
 * queue.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/mman.h>
#include <cmocka.h>

#include "peer.h"
#include "rule.h"

#define MTU 256

static struct peer P, *const p = &P;

/* The NIC gets it in its next turn, though it has work without end. */
static void put_at_once(const struct pkt_make *m)
{
	peer_put(p, m);
	sim_advance(p->w.sim, world_now(&p->w));
}

/*
 * A READ of 2^31 bytes at path MTU 256 takes 2^23 PSNs, half of all: the most that may be
 * outstanding (9.7.7.3.1). The request behind it is new. Its last packet is requested again by its
 * own PSN. The pages of the region do not exist: only the bytes that are sent are accessed.
 */
RULE(longest_message)
{
	const uint64_t all = 1ull << 31;
	struct nic_mr_attr mr = {.len = all, .access = NIC_ACCESS_REMOTE_READ};
	struct pkt_make m = {.opcode = PKT_READ_REQUEST, .ackreq = true};
	const struct got *g;
	uint32_t rkey;

	peer_open(p, &(struct ep_params){.mtu = MTU}, s);
	mr.pd = p->e.pd;
	mr.addr = mmap(NULL, all, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	assert_true(mr.addr != MAP_FAILED);
	mr.iova = (uintptr_t)mr.addr;
	assert_int_equal(nic_mr_register(p->e.nic, &mr, &rkey), 0);
	m.rkey = rkey;
	m.psn = s;
	m.va = mr.iova;
	m.dmalen = (uint32_t)all;
	put_at_once(&m);
	expect(p, PKT_READ_RESP_FIRST, s);
	expect(p, PKT_READ_RESP_MIDDLE, s + 1);
	/* Only its last packet is requested again. */
	m.psn = s + (1u << 23) - 1;
	m.va = mr.iova + all - MTU;
	m.dmalen = MTU;
	put_at_once(&m);
	do
		g = peer_get(p, PEER_SETTLE);
	while (g && g->v.opcode == PKT_READ_RESP_MIDDLE);
	assert_non_null(g);
	assert_int_equal(g->v.opcode, PKT_READ_RESP_ONLY);
	assert_int_equal(g->v.psn, (s + (1u << 23) - 1) & PKT_PSN_MASK);
	assert_int_equal(peer_counters(p).duplicate_request, 1);
	m = (struct pkt_make){.opcode = PKT_WRITE_ONLY,
			      .psn = s + (1u << 23),
			      .ackreq = true,
			      .va = (uintptr_t)p->e.mem,
			      .rkey = p->e.key,
			      .dmalen = 10,
			      .len = 10};
	peer_send(p, &m);
	expect_ack(p, PKT_AETH_ACK, s + (1u << 23));
	assert_int_equal(peer_counters(p).out_of_sequence, 0);
	assert_int_equal(nic_mr_deregister(p->e.nic, rkey), 0);
	peer_close(p);
	munmap(mr.addr, all);
}

/*
 * C11-37, 9.9.3: a completion that finds its CQ full is lost. The CQ reports this once, and the QP
 * ends with an asynchronous error. The message is not acknowledged (rxe does not answer here,
 * either). The earlier completions can be taken from the CQ, and it gets no more.
 */
RULE(cq_overrun)
{
	struct roost_cqe c;

	peer_open(p, &(struct ep_params){.mtu = MTU, .cq_depth = 4, .depth = 16}, s);
	for (uint64_t i = 0; i < 8; i++)
		ep_post_recv(&p->e, 100 + i,
			     &(struct roost_sge){(uintptr_t)p->e.mem, 1024, p->e.key}, 1);
	for (uint32_t i = 0; i < 4; i++) {
		peer_send(p, &(struct pkt_make){.opcode = PKT_SEND_ONLY,
						.psn = s + i,
						.ackreq = true,
						.len = 10});
		expect_ack(p, PKT_AETH_ACK, s + i);
	}
	/* Two in one burst: the second finds a QP that has ended. */
	for (uint32_t i = 4; i < 6; i++)
		peer_put(p,
			 &(struct pkt_make){
				 .opcode = PKT_SEND_ONLY, .psn = s + i, .ackreq = true, .len = 10});
	peer_run(p, PEER_SETTLE);
	expect_quiet(p, SEC);
	assert_int_equal(nic_qp_state(p->e.qp), NIC_QPS_ERR);
	assert_int_equal(p->e.events, 1u << NIC_EVENT_QP_FATAL);
	assert_int_equal(peer_counters(p).cq_overrun, 1);
	assert_int_equal(p->w.cq_errors, 1);
	assert_int_equal(peer_counters(p).rdma_recvs, 5);
	for (unsigned i = 0; i < 4; i++)
		expect_recv(p, 100 + i, NIC_WC_SUCCESS, 10);
	ep_post_recv(&p->e, 200, &(struct roost_sge){(uintptr_t)p->e.mem, 1024, p->e.key}, 1);
	peer_run(p, SEC);
	assert_false(ep_poll_recv(&p->e, &c));
	peer_close(p);
}

/*
 * C9-218: the same if a request of our own finds the CQ full. The receives of the QP have another
 * CQ, and are flushed there.
 */
RULE(cq_overrun_requester)
{
	struct roost_cqe c;

	peer_open(p, &(struct ep_params){.mtu = MTU, .cq_depth = 4, .depth = 16, .psn = s}, 0);
	ep_post_recv(&p->e, 100, &(struct roost_sge){(uintptr_t)p->e.mem, 1024, p->e.key}, 1);
	for (uint32_t i = 0; i < 6; i++)
		peer_post(p, ROOST_OP_WRITE, i, 0, 8);
	peer_run(p, PEER_SETTLE);
	assert_int_equal(nic_qp_state(p->e.qp), NIC_QPS_RTS);
	peer_ack(p, PKT_AETH_ACK, s + 5, 6);
	peer_run(p, PEER_SETTLE);
	assert_int_equal(nic_qp_state(p->e.qp), NIC_QPS_ERR);
	assert_true(p->e.events & 1u << NIC_EVENT_QP_FATAL);
	assert_int_equal(p->w.cq_errors, 1);
	for (unsigned i = 0; i < 4; i++)
		expect_done(p, i, NIC_WC_SUCCESS);
	assert_false(ep_poll_send(&p->e, &c));
	expect_recv(p, 100, NIC_WC_WR_FLUSH_ERR, 0);
	peer_close(p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(longest_message),
		cmocka_unit_test(cq_overrun),
		cmocka_unit_test(cq_overrun_requester),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
