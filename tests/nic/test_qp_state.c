/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The state machine of a queue pair: every change of state with its required and optional
 * attributes (InfiniBand Architecture Specification, volume 1, 11.2.5.2; the table here is separate
 * from the core's table), and values out of range. test_qp_life.c tests the effects of the states.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <errno.h>
#include <cmocka.h>

#include "peer.h"

static struct peer P, *const p = &P;

#define A(x) NIC_QPA_##x

static const struct transition {
	enum nic_qp_state from, to;
	uint32_t required, optional;
} allowed[] = {
	{NIC_QPS_RESET, NIC_QPS_INIT, A(PKEY_INDEX) | A(PORT) | A(ACCESS_FLAGS), 0},
	{NIC_QPS_INIT, NIC_QPS_INIT, 0, A(PKEY_INDEX) | A(PORT) | A(ACCESS_FLAGS)},
	{NIC_QPS_INIT, NIC_QPS_RTR,
	 A(AV) | A(PATH_MTU) | A(DEST_QPN) | A(RQ_PSN) | A(MAX_DEST_RD_ATOMIC) | A(MIN_RNR_TIMER),
	 A(ACCESS_FLAGS) | A(PKEY_INDEX)},
	{NIC_QPS_RTR, NIC_QPS_RTS,
	 A(SQ_PSN) | A(TIMEOUT) | A(RETRY_CNT) | A(RNR_RETRY) | A(MAX_QP_RD_ATOMIC),
	 A(CUR_STATE) | A(ACCESS_FLAGS) | A(MIN_RNR_TIMER)},
	{NIC_QPS_RTS, NIC_QPS_RTS, 0, A(CUR_STATE) | A(ACCESS_FLAGS) | A(MIN_RNR_TIMER)},
	{NIC_QPS_RTS, NIC_QPS_SQD, 0, A(EN_SQD_ASYNC_NOTIFY)},
	{NIC_QPS_SQD, NIC_QPS_RTS, 0, A(CUR_STATE) | A(ACCESS_FLAGS) | A(MIN_RNR_TIMER)},
	{NIC_QPS_SQD, NIC_QPS_SQD, 0,
	 A(PORT) | A(AV) | A(TIMEOUT) | A(RETRY_CNT) | A(RNR_RETRY) | A(MAX_QP_RD_ATOMIC) |
		 A(MAX_DEST_RD_ATOMIC) | A(ACCESS_FLAGS) | A(PKEY_INDEX) | A(MIN_RNR_TIMER)},
	{NIC_QPS_RESET, NIC_QPS_RESET, 0, 0},
	{NIC_QPS_INIT, NIC_QPS_RESET, 0, 0},
	{NIC_QPS_RTR, NIC_QPS_RESET, 0, 0},
	{NIC_QPS_RTS, NIC_QPS_RESET, 0, 0},
	{NIC_QPS_SQD, NIC_QPS_RESET, 0, 0},
	{NIC_QPS_ERR, NIC_QPS_RESET, 0, 0},
	{NIC_QPS_RESET, NIC_QPS_ERR, 0, 0},
	{NIC_QPS_INIT, NIC_QPS_ERR, 0, 0},
	{NIC_QPS_RTR, NIC_QPS_ERR, 0, 0},
	{NIC_QPS_RTS, NIC_QPS_ERR, 0, 0},
	{NIC_QPS_SQD, NIC_QPS_ERR, 0, 0},
	{NIC_QPS_ERR, NIC_QPS_ERR, 0, 0},
};
/*
 * Every bit of enum ibv_qp_attr_mask but STATE and CUR_STATE; a bit that no transition names is
 * refused in all.
 */
static const uint32_t every_bit[] = {A(EN_SQD_ASYNC_NOTIFY),
				     A(ACCESS_FLAGS),
				     A(PKEY_INDEX),
				     A(PORT),
				     A(QKEY),
				     A(AV),
				     A(PATH_MTU),
				     A(TIMEOUT),
				     A(RETRY_CNT),
				     A(RNR_RETRY),
				     A(RQ_PSN),
				     A(MAX_QP_RD_ATOMIC),
				     A(ALT_PATH),
				     A(MIN_RNR_TIMER),
				     A(SQ_PSN),
				     A(MAX_DEST_RD_ATOMIC),
				     A(PATH_MIG_STATE),
				     A(CAP),
				     A(DEST_QPN),
				     A(RATE_LIMIT),
				     1u << 21,
				     1u << 31};
#define BITS (sizeof(every_bit) / sizeof(every_bit[0]))

static struct nic_qp_attr attr;

static int change(enum nic_qp_state to, uint32_t mask)
{
	attr.state = to;
	attr.cur_state = nic_qp_state(p->e.qp);
	return ep_modify(&p->e, &attr, mask | A(STATE));
}

static void bring_to(enum nic_qp_state state)
{
	assert_int_equal(change(NIC_QPS_RESET, 0), 0);
	peer_attr(p, &attr);
	if (state == NIC_QPS_RESET)
		return;
	assert_int_equal(change(NIC_QPS_INIT, MASK_INIT), 0);
	if (state == NIC_QPS_INIT)
		return;
	if (state != NIC_QPS_ERR) {
		assert_int_equal(change(NIC_QPS_RTR, MASK_RTR), 0);
		if (state == NIC_QPS_RTR)
			return;
		assert_int_equal(change(NIC_QPS_RTS, MASK_RTS), 0);
		if (state == NIC_QPS_RTS)
			return;
	}
	assert_int_equal(change(state, 0), 0);
}

static const struct transition *find(enum nic_qp_state from, enum nic_qp_state to)
{
	for (unsigned i = 0; i < sizeof(allowed) / sizeof(allowed[0]); i++)
		if (allowed[i].from == from && allowed[i].to == to)
			return &allowed[i];
	return NULL;
}

static void refused(enum nic_qp_state from, enum nic_qp_state to, uint32_t mask)
{
	struct nic_qp_attr before, after;

	nic_qp_query(p->e.qp, &before);
	if (change(to, mask) != -EINVAL) {
		print_error("%d -> %d with mask 0x%x is not refused\n", from, to, mask);
		fail();
	}
	/* On error nothing has changed. */
	nic_qp_query(p->e.qp, &after);
	assert_memory_equal(&before, &after, sizeof(before));
	assert_int_equal(nic_qp_state(p->e.qp), from);
}

static void accepted(enum nic_qp_state from, enum nic_qp_state to, uint32_t mask)
{
	bring_to(from);
	if (change(to, mask)) {
		print_error("%d -> %d with mask 0x%x is refused\n", from, to, mask);
		fail();
	}
	assert_int_equal(nic_qp_state(p->e.qp), to);
}

static void one_transition(enum nic_qp_state from, enum nic_qp_state to)
{
	const struct transition *t = find(from, to);

	bring_to(from);
	if (!t) {
		refused(from, to, 0);
		refused(from, to, MASK_INIT & ~A(STATE));
		refused(from, to, MASK_RTR & ~A(STATE));
		refused(from, to, MASK_RTS & ~A(STATE));
		return;
	}
	for (unsigned b = 0; b < BITS; b++) {
		uint32_t bit = every_bit[b];

		if (t->required & bit)
			refused(from, to, t->required & ~bit);
		else if (!(t->optional & bit))
			refused(from, to, t->required | bit);
	}
	accepted(from, to, t->required);
	accepted(from, to, t->required | t->optional);
	for (unsigned b = 0; b < BITS; b++)
		if (t->optional & every_bit[b])
			accepted(from, to, t->required | every_bit[b]);
}

static void every_transition(void **state)
{
	static const enum nic_qp_state states[] = {NIC_QPS_RESET, NIC_QPS_INIT, NIC_QPS_RTR,
						   NIC_QPS_RTS,	  NIC_QPS_SQD,	NIC_QPS_ERR};

	peer_open_init(p, NULL, 0);
	for (unsigned from = 0; from < 6; from++) {
		for (unsigned to = 0; to < 6; to++)
			one_transition(states[from], states[to]);
		/* There is no SQE on a reliable connection, and no state behind the last. */
		bring_to(states[from]);
		refused(states[from], NIC_QPS_SQE, 0);
		refused(states[from], 7, 0);
		refused(states[from], (enum nic_qp_state) - 1, 0);
	}
	peer_close(p);
}

/* CUR_STATE is the state in which the program assumes the QP to be. */
static void current_state(void **state)
{
	peer_open(p, NULL, 0);
	peer_attr(p, &attr);
	attr.state = NIC_QPS_RTS;
	attr.cur_state = NIC_QPS_SQD;
	assert_int_equal(ep_modify(&p->e, &attr, A(STATE) | A(CUR_STATE)), -EINVAL);
	attr.cur_state = NIC_QPS_RTS;
	assert_int_equal(ep_modify(&p->e, &attr, A(STATE) | A(CUR_STATE)), 0);
	/* A modification without STATE is one within the present state. */
	attr.access = NIC_ACCESS_REMOTE_READ;
	assert_int_equal(ep_modify(&p->e, &attr, A(ACCESS_FLAGS)), 0);
	assert_int_equal(ep_modify(&p->e, &attr, A(TIMEOUT)), -EINVAL);
	nic_qp_query(p->e.qp, &attr);
	assert_int_equal(attr.access, NIC_ACCESS_REMOTE_READ);
	peer_close(p);
}

#define BAD(state_, field, value)                                                                  \
	do {                                                                                       \
		enum nic_qp_state from_ = state_ == NIC_QPS_INIT  ? NIC_QPS_RESET                  \
					  : state_ == NIC_QPS_RTR ? NIC_QPS_INIT                   \
								  : NIC_QPS_RTR;                   \
		bring_to(from_);                                                                   \
		attr.field = value;                                                                \
		refused(from_, state_,                                                             \
			(state_ == NIC_QPS_INIT	 ? MASK_INIT                                       \
			 : state_ == NIC_QPS_RTR ? MASK_RTR                                        \
						 : MASK_RTS) &                                     \
				~A(STATE));                                                        \
	} while (0)

static void values(void **state)
{
	peer_open_init(p, NULL, 0);
	BAD(NIC_QPS_INIT, port, 0);
	BAD(NIC_QPS_INIT, port, 2);
	BAD(NIC_QPS_INIT, pkey_index, 1);
	BAD(NIC_QPS_RTR, path_mtu, 0);
	BAD(NIC_QPS_RTR, path_mtu, 128);
	BAD(NIC_QPS_RTR, path_mtu, 255);
	BAD(NIC_QPS_RTR, path_mtu, 1000);
	BAD(NIC_QPS_RTR, path_mtu, 8192);
	BAD(NIC_QPS_RTR, path_mtu, 0x80000000);
	BAD(NIC_QPS_RTR, dest_qpn, 1u << 24);
	BAD(NIC_QPS_RTR, sgid_index, 1);
	BAD(NIC_QPS_RTR, min_rnr_timer, 32);
	BAD(NIC_QPS_RTR, max_dest_rd_atomic, NIC_MAX_RD_ATOMIC + 1);
	BAD(NIC_QPS_RTS, timeout, 32);
	BAD(NIC_QPS_RTS, retry_cnt, 8);
	BAD(NIC_QPS_RTS, rnr_retry, 8);
	BAD(NIC_QPS_RTS, max_rd_atomic, NIC_MAX_RD_ATOMIC + 1);
	peer_close(p);
	/* The port's own MTU is a bound too. */
	{
		struct world w;
		struct ep e;
		struct nic_qp_attr a;

		world_init(&w, 1, 1, &(struct sim_params){.mtu = 1024});
		ep_init(&e, &w, 0, NULL);
		ep_to_init(&e);
		ep_attr(&e, &e, &a);
		a.state = NIC_QPS_RTR;
		a.path_mtu = 2048;
		assert_int_equal(ep_modify(&e, &a, MASK_RTR), -EINVAL);
		a.path_mtu = 1024;
		assert_int_equal(ep_modify(&e, &a, MASK_RTR), 0);
		ep_fini(&e);
		world_fini(&w);
	}
}

/* A query returns the attributes that were set; PSNs have 24 bits. */
static void query(void **state)
{
	struct nic_qp_attr q;

	peer_open_init(p, NULL, 0);
	bring_to(NIC_QPS_INIT);
	attr.path_mtu = 2048;
	attr.rq_psn = 0xff123456;
	attr.min_rnr_timer = 31;
	attr.max_dest_rd_atomic = 5;
	attr.traffic_class = 104;
	attr.hop_limit = 9;
	attr.flow_label = 0x54321;
	attr.sl = 3;
	assert_int_equal(change(NIC_QPS_RTR, MASK_RTR), 0);
	attr.sq_psn = 0xabcdef;
	attr.timeout = 31;
	attr.retry_cnt = 7;
	attr.rnr_retry = 3;
	attr.max_rd_atomic = 16;
	assert_int_equal(change(NIC_QPS_RTS, MASK_RTS), 0);
	nic_qp_query(p->e.qp, &q);
	assert_int_equal(q.state, NIC_QPS_RTS);
	assert_int_equal(q.cur_state, NIC_QPS_RTS);
	assert_int_equal(q.path_mtu, 2048);
	assert_int_equal(q.rq_psn, 0x123456);
	assert_int_equal(q.sq_psn, 0xabcdef);
	assert_int_equal(q.min_rnr_timer, 31);
	assert_int_equal(q.max_dest_rd_atomic, 5);
	assert_int_equal(q.max_rd_atomic, 16);
	assert_int_equal(q.traffic_class, 104);
	assert_int_equal(q.hop_limit, 9);
	assert_int_equal(q.flow_label, 0x54321);
	assert_int_equal(q.sl, 3);
	assert_int_equal(q.timeout, 31);
	assert_int_equal(q.retry_cnt, 7);
	assert_int_equal(q.rnr_retry, 3);
	assert_int_equal(q.dest_qpn, PEER_QPN);
	assert_int_equal(q.port, 1);
	assert_true(pkt_addr_eq(&q.dgid, &p->addr));
	/* RESET discards all attributes. */
	assert_int_equal(change(NIC_QPS_RESET, 0), 0);
	nic_qp_query(p->e.qp, &q);
	assert_int_equal(q.state, NIC_QPS_RESET);
	assert_int_equal(q.path_mtu + q.rq_psn + q.sq_psn + q.timeout + q.retry_cnt +
				 q.max_rd_atomic + q.access,
			 0);
	peer_close(p);
}

/* Parameters that nic_qp_create refuses. */
static void creation(void **state)
{
	struct ep e;
	struct world w;
	struct nic_qp_init good = {.type = NIC_QPT_RC}, bad;
	struct nic_qp *qp;

	world_init(&w, 1, 1, NULL);
	ep_init(&e, &w, 0, NULL);
	good.pd = e.pd;
	good.send_cq = e.scq;
	good.recv_cq = e.rcq;
	good.sq = (struct nic_queue_attr){e.sq, e.sq_wr, &e.sqi, e.p.depth, e.sq_shift};
	good.rq = (struct nic_queue_attr){e.rq, e.rq_wr, &e.rqi, e.p.depth, e.rq_shift};
#define REFUSED(change_, error)                                                                    \
	do {                                                                                       \
		bad = good;                                                                        \
		bad.change_;                                                                       \
		assert_int_equal(nic_qp_create(w.nic[0], &bad, &qp), error);                       \
	} while (0)
	REFUSED(type = (enum nic_qp_type)9, -EOPNOTSUPP);
	REFUSED(pd = 77, -EINVAL);
	REFUSED(send_cq = NULL, -EINVAL);
	REFUSED(recv_cq = NULL, -EINVAL);
	REFUSED(sq.depth = 0, -EINVAL);
	REFUSED(sq.depth = 3, -EINVAL);
	REFUSED(sq.depth = 2 * NIC_MAX_WR, -EINVAL);
	REFUSED(sq.stride_shift = 5, -EINVAL);
	REFUSED(sq.stride_shift = 11, -EINVAL);
	REFUSED(sq.ring = NULL, -EINVAL);
	REFUSED(sq.wr_id = NULL, -EINVAL);
	REFUSED(sq.index = NULL, -EINVAL);
	REFUSED(rq.depth = 6, -EINVAL);
	REFUSED(rq.ring = NULL, -EINVAL);
	REFUSED(rq.stride_shift = 0, -EINVAL);
	REFUSED(max_inline = 33, -EINVAL);
	{
		struct nic_usage u;

		nic_usage(w.nic[0], &u);
		assert_int_equal(u.qps, 1);
		assert_int_equal(u.cqs, 2);
		assert_int_equal(u.mrs, 1);
		assert_int_equal(u.pds, 1);
		/* Objects in use cannot be destroyed. */
		assert_int_equal(nic_cq_destroy(w.nic[0], e.scq), -EBUSY);
		assert_int_equal(nic_cq_destroy(w.nic[0], e.rcq), -EBUSY);
		assert_int_equal(nic_pd_free(w.nic[0], e.pd), -EBUSY);
		assert_int_equal(nic_pd_free(w.nic[0], 12345), -EINVAL);
	}
	ep_fini(&e);
	{
		struct nic_usage u;

		nic_usage(w.nic[0], &u);
		assert_int_equal(u.qps + u.cqs + u.mrs + u.pds + u.qp_bytes, 0);
	}
	world_fini(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_transition), cmocka_unit_test(current_state),
		cmocka_unit_test(values),	    cmocka_unit_test(query),
		cmocka_unit_test(creation),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
