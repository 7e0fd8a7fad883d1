/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Fuzzes a program that changes its rings while the NIC reads them. A second thread writes to work
 * queue elements, indices and registered memory without pause, while the first thread posts valid
 * work and runs the NIC. A field that the NIC loads twice, once to check it and once to use it,
 * then has two values. The input gives the writes of the second thread and the posted work:
 *
 *	shape
 *	number of lies
 *	lies of 5 bytes: where, offset, size, two values
 *	commands of one byte
 *
 * With any timing of the threads, no memory outside of the regions may change, a turn stays
 * bounded, and other queue pairs continue.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rings.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define MEM	 8192
#define LIES	 8
#define DEPTH	 4
#define COMMANDS 64

/* The other thread writes `value[0]` and `value[1]` by turns, to every `stride` bytes. */
struct lie {
	uint8_t *at;
	uint32_t count, stride, bytes;
	uint64_t value[2];
};

struct liar {
	struct lie lie[LIES];
	unsigned lies;
	atomic_bool stop;
};

/* Stores as a program makes them. NIC and program race for these bytes by design. */
static void put(uint8_t *at, uint32_t bytes, uint64_t value)
{
	switch (bytes) {
	case 1:
		*(volatile uint8_t *)at = (uint8_t)value;
		break;
	case 2:
		*(volatile uint16_t *)(void *)at = (uint16_t)value;
		break;
	case 4:
		*(volatile uint32_t *)(void *)at = (uint32_t)value;
		break;
	default:
		*(volatile uint64_t *)(void *)at = value;
	}
}

static void *write_on(void *arg)
{
	struct liar *l = arg;

	while (!atomic_load_explicit(&l->stop, memory_order_relaxed)) {
		for (unsigned i = 0; i < l->lies; i++) {
			const struct lie *y = &l->lie[i];

			for (unsigned n = 0; n < 2 * y->count; n++)
				put(y->at + (size_t)(n >> 1) * y->stride, y->bytes,
				    y->value[n & 1]);
		}
	}
	return NULL;
}

/* Numbers that are small, at the limits of a field, or far outside. */
static uint64_t number(uint8_t how)
{
	if (how < 64)
		return how;
	if (how < 128)
		return 1ull << (how & 31);
	if (how < 192)
		return (1ull << (how & 31)) - 1;
	return 0x0101010101010101ull * how;
}

static void take_lie(struct input *in, struct lie *y, struct ep *e)
{
	uint8_t where = u8(in), offset = u8(in), size = u8(in) % 4;

	*y = (struct lie){.count = 1, .bytes = 1u << size};
	y->value[0] = number(u8(in));
	y->value[1] = number(u8(in));
	switch (where % 8) {
	default: /* receives */
		y->at = e->rq;
		y->stride = 1u << e->rq_shift;
		y->count = DEPTH;
		break;
	case 3:
	case 4:
	case 5: /* sends */
		y->at = e->sq;
		y->stride = 1u << e->sq_shift;
		y->count = DEPTH;
		break;
	case 6: /* payload, and the memory of READs and atomics */
		y->at = e->mem;
		y->stride = 64;
		y->count = MEM / 64;
		break;
	case 7: /* indices; the NIC seldom reads the last two */
		y->at = where & 8    ? (uint8_t *)&e->sqi.prod
			: where & 16 ? (uint8_t *)&e->rqi.prod
			: where & 32 ? (uint8_t *)&e->sidx.cons
				     : (uint8_t *)&e->ridx.cons;
		y->bytes = y->stride = 4;
		offset = 0;
	}
	y->at += offset % y->stride & ~(y->bytes - 1);
}

/* Writes the slot at prod, free or not: the second thread changes indices, too. */
static void post(struct ep *e, const struct ep *peer, uint8_t how)
{
	static const enum roost_op ops[] = {ROOST_OP_SEND,	ROOST_OP_WRITE,	   ROOST_OP_READ,
					    ROOST_OP_FETCH_ADD, ROOST_OP_SEND_IMM, ROOST_OP_SEND,
					    ROOST_OP_WRITE,	ROOST_OP_SEND};
	uint32_t prod = atomic_load(&e->sqi.prod);
	struct roost_wqe *w =
		(struct roost_wqe *)(e->sq + ((size_t)(prod & (DEPTH - 1)) << e->sq_shift));
	struct roost_sge *s = w->sge;
	enum roost_op op = ops[how & 7];
	bool plain = op == ROOST_OP_READ || op == ROOST_OP_FETCH_ADD;

	w->ctrl = ROOST_CTRL(op, how);
	w->flags = ROOST_WQE_SIGNALED;
	w->raddr = (uintptr_t)peer->mem + 1024 + how * 8u;
	w->rkey = peer->key;
	if (how & 32 && !plain) {
		w->flags |= ROOST_WQE_INLINE;
		w->inline_len = how & 63;
	} else {
		w->swap_add = 1;
		w->num_sge = op == ROOST_OP_FETCH_ADD ? 1 : 3;
		s[0] = ep_sge(e, how * 8u, how & 64 && !plain ? 600 : 8);
		s[1] = ep_sge(e, 4096, how & 15);
		s[2] = ep_sge(e, 5000, how & 31);
	}
	atomic_store(&e->sqi.prod, prod + 1);
	nic_doorbell(e->nic, e->qp);
}

static void post_recv(struct ep *e, uint8_t how)
{
	uint32_t prod = atomic_load(&e->rqi.prod);
	struct roost_recv_wqe *w =
		(struct roost_recv_wqe *)(e->rq + ((size_t)(prod & (DEPTH - 1)) << e->rq_shift));

	if (prod - atomic_load(&e->rqi.cons) >= DEPTH)
		return;
	w->num_sge = 1 + how % 3;
	w->sge[0] = ep_sge(e, how * 16u, 300);
	w->sge[1] = ep_sge(e, 4096, 300);
	w->sge[2] = ep_sge(e, 6000, 400);
	atomic_store(&e->rqi.prod, prod + 1);
	nic_doorbell(e->nic, e->qp);
}

static void take_completions(struct ep *e)
{
	struct roost_cqe c;

	/* The positions of the ring may be wrong: at most one ring of entries at a time. */
	for (unsigned i = 0; i < 4 * DEPTH && ep_poll_send(e, &c); i++)
		must(c.qpn == nic_qp_num(e->qp), "a completion of another QP");
	for (unsigned i = 0; i < 4 * DEPTH && ep_poll_recv(e, &c); i++)
		must(c.qpn == nic_qp_num(e->qp), "a receive of another QP");
}

static void connect_again(struct ep *e, struct ep *peer)
{
	struct nic_qp_attr a = {.state = NIC_QPS_RESET};

	for (int i = 0; i < 2; i++) {
		struct ep *x = i ? peer : e;

		must(ep_modify(x, &a, NIC_QPA_STATE) == 0, "no RESET");
		/* A QP that is reset begins with empty rings (libibverbs does the same). */
		atomic_store(&x->sqi.prod, 0);
		atomic_store(&x->sqi.cons, 0);
		if (!x->own_srq) {
			atomic_store(&x->rqi.prod, 0);
			atomic_store(&x->rqi.cons, 0);
		}
	}
	ep_connect(e, peer);
}

static void command(struct world *w, struct ep *e, struct ep *peer, uint8_t how)
{
	if (nic_qp_state(e->qp) == NIC_QPS_ERR || nic_qp_state(peer->qp) == NIC_QPS_ERR)
		connect_again(e, peer);
	/*
	 * The second thread writes to both rings in turn: e's sends meet peer's receives, and vice
	 * versa.
	 */
	post_recv(e, how);
	post_recv(peer, how);
	post(e, peer, how);
	post(peer, e, how);
	turns(w, 1 + (how >> 6));
	take_completions(e);
	take_completions(peer);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = {data, data + size};
	uint8_t shape = u8(&in);
	struct ep_params p = {.depth = DEPTH,
			      .max_sge = 3,
			      .max_inline = 64,
			      .mem = MEM + GUARD,
			      .own_srq = shape & 2,
			      .mtu = 256,
			      .timeout = 1,
			      .retry_cnt = 1,
			      .rnr_retry = 1};
	struct sim_params sp = {.delay_ns = 1000};
	struct liar liar = {.lies = 0};
	struct ep e, peer;
	struct world w;
	pthread_t other;

	world_init(&w, 2, 1, &sp);
	ep_init(&e, &w, 0, &p);
	ep_init(&peer, &w, shape & 1 ? 0 : 1, &p);
	guard_put(&e, MEM, 15);
	guard_put(&peer, MEM, 15);
	ep_connect(&e, &peer);
	liar.lies = u8(&in) % (LIES + 1);
	for (unsigned i = 0; i < liar.lies; i++)
		take_lie(&in, &liar.lie[i], i & 1 ? &peer : &e);
	must(pthread_create(&other, NULL, write_on, &liar) == 0, "no thread");
	for (unsigned i = 0; i < COMMANDS && in.p < in.end; i++)
		command(&w, &e, &peer, u8(&in));
	atomic_store(&liar.stop, true);
	pthread_join(other, NULL);
	turns(&w, 20);
	guard_check(&e, MEM);
	guard_check(&peer, MEM);
	still_serves(&w, shape & 1);
	ep_fini(&e);
	ep_fini(&peer);
	world_fini(&w);
	return 0;
}
