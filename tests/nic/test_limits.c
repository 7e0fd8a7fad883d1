/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Limits: 16,000 connected QPs on a NIC and the cost of an idle one, unpredictable numbers, overrun
 * of completion queues, and no allocation per operation. The linker redirects malloc() and the
 * other allocation functions to a counter.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "../common/allocations.h"
#include "base/rng.h"
#include "world.h"

/* ---- many QPs ---- */

#define QPS	   16000
#define QP_DEPTH   4
#define STRIDE	   6
#define IDLE_BYTES 3072 /* bytes of the core that an idle QP with small queues may use */

/* A QP with the fewest other objects. */
struct small {
	struct nic_qp *qp;
	uint8_t sq[QP_DEPTH << STRIDE];
	uint64_t wr[QP_DEPTH];
	struct roost_queue_index idx;
};

struct crowd {
	struct nic *nic;
	uint32_t pd, key;
	struct nic_cq *cq;
	struct roost_cqe *ring;
	struct roost_cq_index idx;
	uint32_t cons;
	uint64_t *mem;
	struct small *s;
};

#define CQ_DEPTH (1u << 15)

static void crowd_init(struct crowd *c, struct nic *nic)
{
	struct nic_cq_attr a = {.depth = CQ_DEPTH, .index = &c->idx};
	struct nic_mr_attr m = {.len = QPS * 8, .access = 15};

	memset(c, 0, sizeof(*c));
	c->nic = nic;
	c->ring = calloc(CQ_DEPTH, sizeof(*c->ring));
	c->mem = calloc(QPS, 8);
	c->s = aligned_alloc(64, QPS * sizeof(*c->s));
	memset(c->s, 0, QPS * sizeof(*c->s));
	a.ring = c->ring;
	assert_int_equal(nic_pd_alloc(nic, &c->pd), 0);
	assert_int_equal(nic_cq_create(nic, &a, &c->cq), 0);
	m.pd = c->pd;
	m.addr = c->mem;
	m.iova = (uintptr_t)c->mem;
	assert_int_equal(nic_mr_register(nic, &m, &c->key), 0);
	for (unsigned i = 0; i < QPS; i++) {
		struct small *s = &c->s[i];
		struct nic_qp_init q = {.type = NIC_QPT_RC,
					.pd = c->pd,
					.send_cq = c->cq,
					.recv_cq = c->cq,
					.sq = {s->sq, s->wr, &s->idx, QP_DEPTH, STRIDE}};

		assert_int_equal(nic_qp_create(nic, &q, &s->qp), 0);
	}
}

static void crowd_fini(struct crowd *c)
{
	for (unsigned i = 0; i < QPS; i++)
		nic_qp_destroy(c->nic, c->s[i].qp);
	assert_int_equal(nic_cq_destroy(c->nic, c->cq), 0);
	assert_int_equal(nic_mr_deregister(c->nic, c->key), 0);
	free(c->ring);
	free(c->mem);
	free(c->s);
}

static void crowd_connect(struct crowd *c, struct crowd *peer, uint64_t now)
{
	for (unsigned i = 0; i < QPS; i++) {
		struct nic_qp_attr a = {.state = NIC_QPS_INIT,
					.path_mtu = 1024,
					.dest_qpn = nic_qp_num(peer->s[i].qp),
					.access = 15,
					.dgid = nic_port(peer->nic, 0, 0)->addr,
					.port = 1,
					.timeout = 14,
					.retry_cnt = 7,
					.rnr_retry = 7,
					.min_rnr_timer = 1,
					.max_rd_atomic = 1,
					.max_dest_rd_atomic = 1};

		assert_int_equal(nic_qp_modify(c->nic, c->s[i].qp, &a, MASK_INIT, now), 0);
		a.state = NIC_QPS_RTR;
		assert_int_equal(nic_qp_modify(c->nic, c->s[i].qp, &a, MASK_RTR, now), 0);
		a.state = NIC_QPS_RTS;
		assert_int_equal(nic_qp_modify(c->nic, c->s[i].qp, &a, MASK_RTS, now), 0);
	}
}

/* One WRITE of 8 bytes on each QP: its own number, to its own place. */
static void crowd_write(struct crowd *c, struct crowd *peer, unsigned i)
{
	struct small *s = &c->s[i];
	uint32_t prod = atomic_load(&s->idx.prod);
	struct roost_wqe *w = (struct roost_wqe *)(s->sq + ((size_t)(prod % QP_DEPTH) << STRIDE));

	*w = (struct roost_wqe){.ctrl = ROOST_CTRL(ROOST_OP_WRITE, 0),
				.flags = ROOST_WQE_SIGNALED,
				.num_sge = 1,
				.raddr = (uintptr_t)&peer->mem[i],
				.rkey = peer->key};
	w->sge[0] = (struct roost_sge){(uintptr_t)&c->mem[i], 8, c->key};
	s->wr[prod % QP_DEPTH] = i;
	atomic_store(&s->idx.prod, prod + 1);
	nic_doorbell(c->nic, s->qp);
}

static unsigned crowd_poll(struct crowd *c, uint8_t *seen)
{
	unsigned n = 0;

	for (;; n++) {
		struct roost_cqe *e = &c->ring[c->cons % CQ_DEPTH];

		if (atomic_load(&e->seq) != c->cons + 1)
			return n;
		assert_int_equal(e->status, NIC_WC_SUCCESS);
		assert_in_range(e->wr_id, 0, QPS - 1);
		assert_int_equal(seen[e->wr_id]++, 0);
		c->cons++;
		atomic_store(&c->idx.cons, c->cons);
	}
}

static void sixteen_thousand_qps(void **state)
{
	uint8_t *seen = calloc(QPS, 1);
	struct nic_usage u;
	struct crowd x, y;
	struct world w;
	unsigned done = 0;

	world_init(&w, 2, 6, &(struct sim_params){.delay_ns = 1000, .window = 200000});
	crowd_init(&x, w.nic[0]);
	crowd_init(&y, w.nic[1]);
	nic_usage(x.nic, &u);
	assert_int_equal(u.qps, QPS);
	print_message("an idle QP with queues of %u WQEs: %llu bytes in the core\n", QP_DEPTH,
		      (unsigned long long)(u.qp_bytes / QPS));
	assert_in_range(u.qp_bytes / QPS, 1, IDLE_BYTES);
	crowd_connect(&x, &y, world_now(&w));
	crowd_connect(&y, &x, world_now(&w));
	nic_usage(x.nic, &u);
	assert_in_range(u.qp_bytes / QPS, 1, IDLE_BYTES);
	/* Connected and idle: no PU has work. */
	world_run(&w, world_now(&w) + SEC);
	assert_int_equal(nic_deadline(x.nic, 0), UINT64_MAX);
	assert_false(nic_pending(x.nic, 0));
	for (unsigned i = 0; i < QPS; i++) {
		x.mem[i] = 0x1234567800000000 + i;
		crowd_write(&x, &y, i);
	}
	while (done < QPS) {
		assert_true(world_step(&w, world_now(&w) + SEC));
		done += crowd_poll(&x, seen);
	}
	assert_memory_equal(x.mem, y.mem, QPS * 8);
	/* The NIC is idle again soon. */
	world_run(&w, world_now(&w) + SEC);
	assert_int_equal(nic_deadline(x.nic, 0), UINT64_MAX);
	crowd_fini(&x);
	crowd_fini(&y);
	nic_usage(w.nic[0], &u);
	assert_int_equal(u.qps, 0);
	assert_int_equal(u.qp_bytes, 0);
	world_fini(&w);
	free(seen);
}

/* The table is full at NIC_MAX_QPS; after destroyed QPs, new ones can be made. */
static void all_qps(void **state)
{
	struct nic_qp **qp = malloc((NIC_MAX_QPS + 1) * sizeof(struct nic_qp *));
	uint8_t *used = calloc(1u << 24, 1);
	struct world w;
	struct ep e;
	struct nic_qp_init q = {.type = NIC_QPT_RC};
	unsigned n = 0;

	world_init(&w, 1, 6, NULL);
	ep_init(&e, &w, 0, NULL);
	q.pd = e.pd;
	q.send_cq = q.recv_cq = e.scq;
	q.sq = (struct nic_queue_attr){e.sq, e.sq_wr, &e.sqi, 1, 6};
	used[nic_qp_num(e.qp)] = 1;
	while (nic_qp_create(e.nic, &q, &qp[n]) == 0) {
		uint32_t num = nic_qp_num(qp[n]);

		assert_in_range(num, 2, (1u << 24) - 1);
		assert_int_equal(used[num]++, 0);
		assert_in_range(++n, 1, NIC_MAX_QPS);
	}
	assert_int_equal(n, NIC_MAX_QPS - 1);
	assert_int_equal(nic_qp_create(e.nic, &q, &qp[n]), -ENOMEM);
	/* A new QP may have any index, and has another number. */
	for (unsigned i = 0; i < 3000; i++) {
		uint32_t old = nic_qp_num(qp[(i * 7919) % n]);

		nic_qp_destroy(e.nic, qp[(i * 7919) % n]);
		assert_int_equal(nic_qp_create(e.nic, &q, &qp[(i * 7919) % n]), 0);
		assert_int_not_equal(nic_qp_num(qp[(i * 7919) % n]), old);
	}
	while (n)
		nic_qp_destroy(e.nic, qp[--n]);
	ep_fini(&e);
	world_fini(&w);
	free(used);
	free(qp);
}

/* QP numbers depend on the seed only. */
static void numbers_by_seed(void **state)
{
	uint32_t num[8][3];

	for (int i = 0; i < 8; i++) {
		struct world w;
		struct ep e[3];

		world_init(&w, 1, 50 + (uint64_t)(i / 2), NULL);
		for (int k = 0; k < 3; k++) {
			ep_init(&e[k], &w, 0, NULL);
			num[i][k] = nic_qp_num(e[k].qp);
		}
		for (int k = 0; k < 3; k++)
			ep_fini(&e[k]);
		world_fini(&w);
	}
	for (int i = 0; i < 8; i++)
		for (int k = 0; k < i; k++) {
			assert_int_equal(num[i][0] == num[k][0], i / 2 == k / 2);
			assert_int_equal(num[i][2] == num[k][2], i / 2 == k / 2);
		}
}

/* ---- completion queues ---- */

/*
 * More completions than the queue has space for: one event, and the first completions are
 * unchanged.
 */
static void overrun(void **state)
{
	struct ep_params p = {.depth = 64, .cq_depth = 16};
	struct nic_counters n;
	struct roost_cqe c;
	struct world w;
	struct ep a, b;

	world_init(&w, 2, 6, NULL);
	ep_init(&a, &w, 0, &p);
	ep_init(&b, &w, 1, &p);
	ep_connect(&a, &b);
	for (uint64_t i = 0; i < 40; i++) {
		struct wr wr = wr_rdma(ROOST_OP_WRITE, &a, 0, 8, &b, 0);

		wr.wr_id = i;
		ep_post(&a, &wr);
	}
	world_run(&w, world_now(&w) + MSEC);
	assert_int_equal(w.cq_errors, 1);
	nic_counters(a.nic, &n);
	assert_int_equal(n.cq_overrun, 1);
	for (uint64_t i = 0; i < 16; i++) {
		assert_true(ep_poll_send(&a, &c));
		assert_int_equal(c.wr_id, i);
	}
	assert_false(ep_poll_send(&a, &c));
	assert_int_equal(nic_qp_state(a.qp), NIC_QPS_ERR);
	assert_int_equal(nic_qp_state(b.qp), NIC_QPS_RTS);
	ep_fini(&a);
	ep_fini(&b);
	world_fini(&w);
}

/*
 * A CQ that is armed once raises one event; if armed for solicited completions, only for those of
 * solicited SENDs and of errors.
 */
static void notification(void **state)
{
	struct roost_cqe c;
	struct world w;
	struct ep a, b;
	struct wr wr;

	world_init(&w, 2, 6, NULL);
	ep_init(&a, &w, 0, NULL);
	ep_init(&b, &w, 1, NULL);
	ep_connect(&a, &b);
	wr = wr_rdma(ROOST_OP_SEND, &a, 0, 8, &b, 0);
	for (int i = 0; i < 8; i++)
		ep_post_recv(&b, (uint64_t)i, &(struct roost_sge){(uintptr_t)b.mem, 64, b.key}, 1);
#define ONE(flags_, arm_, events_, arm_after)                                                      \
	do {                                                                                       \
		atomic_store(&b.ridx.arm, arm_);                                                   \
		w.cq_events = 0;                                                                   \
		wr.flags = ROOST_WQE_SIGNALED | (flags_);                                          \
		ep_post(&a, &wr);                                                                  \
		assert_true(ep_wait_send(&a, &c, SEC));                                            \
		assert_true(ep_poll_recv(&b, &c));                                                 \
		assert_int_equal(w.cq_events, events_);                                            \
		assert_int_equal(atomic_load(&b.ridx.arm), arm_after);                             \
	} while (0)
	ONE(0, ROOST_CQ_UNARMED, 0, ROOST_CQ_UNARMED);
	ONE(0, ROOST_CQ_ARM_NEXT, 1, ROOST_CQ_UNARMED);
	ONE(0, ROOST_CQ_ARM_SOLICITED, 0, ROOST_CQ_ARM_SOLICITED);
	ONE(ROOST_WQE_SOLICITED, ROOST_CQ_ARM_SOLICITED, 1, ROOST_CQ_UNARMED);
	ONE(ROOST_WQE_SOLICITED, ROOST_CQ_ARM_NEXT, 1, ROOST_CQ_UNARMED);
	/* Errors count as solicited. */
	atomic_store(&b.ridx.arm, ROOST_CQ_ARM_SOLICITED);
	w.cq_events = 0;
	assert_int_equal(ep_modify(&b, &(struct nic_qp_attr){.state = NIC_QPS_ERR}, NIC_QPA_STATE),
			 0);
	assert_int_equal(w.cq_events, 1);
	ep_fini(&a);
	ep_fini(&b);
	world_fini(&w);
}

/* ---- no allocation per operation ---- */

static void work(struct ep *a, struct ep *b, unsigned n)
{
	static const enum roost_op ops[] = {ROOST_OP_WRITE, ROOST_OP_SEND, ROOST_OP_READ,
					    ROOST_OP_FETCH_ADD, ROOST_OP_WRITE_IMM};
	struct roost_cqe c;

	for (unsigned i = 0; i < n; i++) {
		enum roost_op op = ops[i % 5];
		struct wr wr = wr_rdma(op, a, 0, op == ROOST_OP_FETCH_ADD ? 8 : 20000, b, 0);

		ep_post_recv(b, i, &(struct roost_sge){(uintptr_t)b->mem + 32768, 32768, b->key},
			     1);
		ep_post(a, &wr);
		assert_true(ep_wait_send(a, &c, SEC));
		assert_int_equal(c.status, NIC_WC_SUCCESS);
		while (ep_poll_recv(b, &c))
			;
		if (op != ROOST_OP_SEND && op != ROOST_OP_WRITE_IMM) { /* receive not taken */
			wr = wr_rdma(ROOST_OP_SEND, a, 0, 1, b, 0);
			ep_post(a, &wr);
			assert_true(ep_wait_send(a, &c, SEC));
			assert_true(ep_poll_recv(b, &c));
		}
	}
}

static void steady_state_allocates_nothing(void **state)
{
	for (int loop = 0; loop < 2; loop++) {
		struct world w;
		struct ep a, b;

		/* With losses: retransmission does not allocate, either. */
		world_init(&w, 2, 6,
			   &(struct sim_params){.delay_ns = 1000, .loss = 0.02, .window = 100000});
		ep_init(&a, &w, 0, NULL);
		ep_init(&b, &w, loop ? 0 : 1, NULL);
		ep_connect(&a, &b);
		work(&a, &b, 300); /* the simulator's own buffers grow to their size */
		assert_in_range(allocations, 10, UINT32_MAX);
		allocations = 0;
		work(&a, &b, 300);
		assert_int_equal(allocations, 0);
		ep_fini(&a);
		ep_fini(&b);
		world_fini(&w);
	}
}

/* Datagrams to two destinations by turns, every receive taken. */
static void send_datagrams(struct ep *a, struct ep *b, const uint32_t ah[2], unsigned n)
{
	struct roost_cqe c;

	for (unsigned i = 0; i < n; i++) {
		struct wr wr = wr_rdma(ROOST_OP_SEND, a, 0, 1000, b, 0);

		wr.raddr = ROOST_UD_ADDR(ah[i & 1], nic_qp_num(i & 1 ? b->qp : a->qp));
		wr.rkey = a->p.qkey;
		ep_post_recv(i & 1 ? b : a, i,
			     &(struct roost_sge){(uintptr_t)(i & 1 ? b : a)->mem + 32768, 32768,
						 (i & 1 ? b : a)->key},
			     1);
		ep_post(a, &wr);
		assert_true(ep_wait_send(a, &c, SEC));
		assert_int_equal(c.status, NIC_WC_SUCCESS);
		assert_true(ep_wait_recv(i & 1 ? b : a, &c, SEC));
	}
}

static void datagrams_allocate_nothing(void **state)
{
	struct ep_params ep = {.type = NIC_QPT_UD};
	struct nic_qp_attr q = {0};
	uint32_t ah[2];
	struct world w;
	struct ep e[2];

	world_init(&w, 2, 6, &(struct sim_params){.delay_ns = 1000, .window = 100000});
	for (unsigned i = 0; i < 2; i++) {
		ep_init(&e[i], &w, i, &ep);
		ep_to_init(&e[i]);
		ep_to_rtr(&e[i], &q);
		ep_to_rts(&e[i], &q);
	}
	for (unsigned i = 0; i < 2; i++) {
		struct nic_ah_attr a = {
			.pd = e[0].pd, .port = 1, .dgid = nic_port(w.nic[i], 0, 0)->addr};

		assert_int_equal(nic_ah_create(w.nic[0], &a, &ah[i]), 0);
	}
	send_datagrams(&e[0], &e[1], ah, 100);
	allocations = 0;
	send_datagrams(&e[0], &e[1], ah, 300);
	assert_int_equal(allocations, 0);
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(nic_ah_destroy(w.nic[0], ah[i]), 0);
	ep_fini(&e[0]);
	ep_fini(&e[1]);
	world_fini(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sixteen_thousand_qps),
		cmocka_unit_test(all_qps),
		cmocka_unit_test(numbers_by_seed),
		cmocka_unit_test(overrun),
		cmocka_unit_test(notification),
		cmocka_unit_test(steady_state_allocates_nothing),
		cmocka_unit_test(datagrams_allocate_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
