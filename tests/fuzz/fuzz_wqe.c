/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Fuzzes the memory that a program shares with the NIC: rings, indices, work queue elements of all
 * shapes, at any time. The first byte chooses the peer (over the link, or on the same NIC) and the
 * shape of the queues (receives of the deepest ones are in an SRQ); the rest are commands. With any
 * posted work, a turn of the NIC stays bounded, no memory outside of the regions changes, and other
 * queue pairs continue.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rings.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define MEM 16384

/* An address that is valid, at the end of a region, or in no region. */
static uint64_t address(struct input *in, const struct ep *e)
{
	uint8_t how = u8(in);
	uint64_t base = (uintptr_t)e->mem + ((uint32_t)how << 6);

	if (how < 200)
		return base;
	if (how < 230)
		return (uintptr_t)e->mem + MEM - (how & 15);
	return (uint64_t)u32(in) << 32 | u32(in);
}

/* Windows of both sides: one of type 1, two of type 2. */
#define WINDOWS 3
static struct windows {
	const struct ep *e;
	uint32_t key[WINDOWS];
} windows[2];

static uint32_t window(struct input *in, const struct ep *e)
{
	uint8_t which = u8(in);

	return windows[e != windows[0].e].key[which % WINDOWS] ^ (which >> 6);
}

static uint32_t key(struct input *in, const struct ep *e)
{
	uint8_t how = u8(in);

	if (how < 200)
		return e->key;
	return how < 230 ? window(in, e) : e->key ^ u32(in);
}

static uint32_t length(struct input *in)
{
	uint8_t how = u8(in);

	if (how < 128)
		return how;
	if (how < 240)
		return (uint32_t)(how - 127) * 100;
	return u32(in);
}

/* Writes a work queue element that is mostly valid into the slot at prod. */
static void put_wqe(struct input *in, struct ep *e, struct ep *peer)
{
	uint32_t prod = atomic_load(&e->sqi.prod), slot = prod & (e->p.depth - 1);
	uint32_t stride = 1u << e->sq_shift;
	struct roost_wqe *w = (struct roost_wqe *)(e->sq + (size_t)slot * stride);
	uint8_t op = u8(in), sges;

	w->ctrl = ROOST_CTRL(op < 200 ? op % 11 : op, u32(in));
	w->flags = u8(in) & 7;
	sges = u8(in);
	w->num_sge = sges < 200 ? sges % 4 : sges;
	w->raddr = address(in, peer);
	w->rkey = key(in, peer);
	w->imm = u32(in);
	if (u8(in) & 1) {
		w->flags |= ROOST_WQE_INLINE;
		w->inline_len = length(in);
	} else {
		struct roost_sge *s = (struct roost_sge *)((uint8_t *)w + ROOST_WQE_SGE_OFFSET);

		w->swap_add = u32(in);
		w->compare = u32(in);
		for (uint32_t i = 0;
		     i < w->num_sge && ROOST_WQE_SGE_OFFSET + 16 * (i + 1) <= stride; i++)
			s[i] = (struct roost_sge){address(in, e), (op % 9) >= 7 ? 8 : length(in),
						  key(in, e)};
	}
	switch (ROOST_CTRL_OP(w->ctrl)) {
	case ROOST_OP_SEND_INV:
		w->imm = key(in, peer);
		break;
	case ROOST_OP_LOCAL_INV:
		w->imm = key(in, e);
		break;
	case ROOST_OP_BIND_MW:
		w->flags &= ~ROOST_WQE_INLINE;
		w->num_sge = 0;
		w->raddr = address(in, e);
		w->rkey = window(in, e);
		w->imm = w->rkey ^ (u8(in) & 3);
		w->swap_add = length(in);
		w->compare = ROOST_BIND(key(in, e), u8(in) & 0x3f);
		break;
	default:
		break;
	}
	e->sq_wr[slot] = op;
	atomic_store(&e->sqi.prod, prod + 1);
	nic_doorbell(e->nic, e->qp);
}

static void put_recv(struct input *in, struct ep *e)
{
	uint32_t prod = atomic_load(&e->rqi.prod), slot = prod & (e->p.depth - 1);
	uint32_t stride = 1u << e->rq_shift;
	struct roost_recv_wqe *w = (struct roost_recv_wqe *)(e->rq + (size_t)slot * stride);
	struct roost_sge *s = (struct roost_sge *)((uint8_t *)w + ROOST_RECV_SGE_OFFSET);
	uint8_t n = u8(in);

	w->num_sge = n < 250 ? n % 4 : u32(in);
	for (uint32_t i = 0; i < w->num_sge && ROOST_RECV_SGE_OFFSET + 16 * (i + 1) <= stride; i++)
		s[i] = (struct roost_sge){address(in, e), length(in), key(in, e)};
	atomic_store(&e->rqi.prod, prod + 1);
	nic_doorbell(e->nic, e->qp);
}

static void scribble(struct input *in, uint8_t *ring, uint32_t bytes)
{
	uint32_t at = u32(in) % bytes, n = u8(in);

	while (n-- && at < bytes)
		ring[at++] = u8(in);
}

/* Some turns, each of them bounded. */
static void take_completions(struct ep *e)
{
	struct roost_cqe c;

	while (ep_poll_send(e, &c))
		must(c.qpn == nic_qp_num(e->qp), "a completion of another QP");
	while (ep_poll_recv(e, &c))
		must(c.qpn == nic_qp_num(e->qp), "a receive of another QP");
}

static void set_state(struct input *in, struct ep *e, struct ep *peer)
{
	struct nic_qp_attr a;

	switch (u8(in) % 8) {
	case 0:
		a.state = NIC_QPS_ERR;
		ep_modify(e, &a, NIC_QPA_STATE);
		break;
	case 1:
	case 2: /* both are reset and connected again */
		a.state = NIC_QPS_RESET;
		ep_modify(e, &a, NIC_QPA_STATE);
		ep_modify(peer, &a, NIC_QPA_STATE);
		ep_connect(e, peer);
		break;
	case 3:
	case 4:
		a.state = NIC_QPS_SQD;
		ep_modify(e, &a, NIC_QPA_STATE | NIC_QPA_EN_SQD_ASYNC_NOTIFY);
		break;
	default:
		a.state = NIC_QPS_RTS;
		ep_modify(e, &a, NIC_QPA_STATE);
		break;
	}
}

static void command(struct input *in, struct world *w, struct ep *e, struct ep *peer)
{
	uint8_t c = u8(in);

	switch (c % 16) {
	case 0:
		scribble(in, e->sq, e->p.depth << e->sq_shift);
		break;
	case 1:
		scribble(in, e->rq, e->p.depth << e->rq_shift);
		break;
	case 2: /* indices that no posting makes */
		atomic_store(&e->sqi.prod, c & 16 ? u32(in) : atomic_load(&e->sqi.prod) + u8(in));
		nic_doorbell(e->nic, e->qp);
		break;
	case 3:
		atomic_store(&e->rqi.prod, c & 16 ? u32(in) : atomic_load(&e->rqi.prod) + u8(in));
		nic_doorbell(e->nic, e->qp);
		break;
	case 4:
		atomic_store(c & 16 ? &e->sidx.cons : &e->ridx.cons, u32(in));
		break;
	case 5:
		atomic_store(c & 16 ? &e->sidx.arm : &e->ridx.arm, u8(in));
		break;
	case 6:
		set_state(in, e, peer);
		break;
	case 7:
		atomic_store(&e->sqi.cons, u32(in));
		atomic_store(&e->rqi.cons, u32(in));
		break;
	case 8:
	case 9:
		turns(w, 1 + (c >> 4));
		take_completions(e);
		break;
	case 10:
		put_recv(in, peer);
		break;
	case 11:
		put_recv(in, e);
		break;
	case 12:
		put_wqe(in, peer, e);
		break;
	default:
		put_wqe(in, e, peer);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = {data, data + size};
	uint8_t shape = u8(&in);
	struct ep_params p = {.depth = 1u << (shape >> 1 & 3),
			      .max_sge = 1 + (shape >> 3 & 7),
			      .max_inline = shape & 64 ? 100 : 0,
			      .mem = MEM + GUARD,
			      .own_srq = (shape >> 1 & 3) == 3,
			      .mtu = 256,
			      .timeout = 1,
			      .retry_cnt = 1,
			      .rnr_retry = 1};
	struct sim_params sp = {.delay_ns = 1000, .window = shape & 128 ? 2000 : 0};
	struct ep e, peer;
	struct world w;

	world_init(&w, 2, 1, &sp);
	ep_init(&e, &w, 0, &p);
	ep_init(&peer, &w, shape & 1 ? 0 : 1, &p);
	for (int i = 0; i < 2; i++) {
		struct ep *x = i ? &peer : &e;

		guard_put(x, MEM, 31);
		windows[i].e = x;
		for (unsigned k = 0; k < WINDOWS; k++)
			must(nic_mw_alloc(x->nic, x->pd, k ? 2 : 1, 0, &windows[i].key[k]) == 0,
			     "no window");
	}
	ep_connect(&e, &peer);
	while (in.p < in.end)
		command(&in, &w, &e, &peer);
	turns(&w, 40);
	take_completions(&e);
	guard_check(&e, MEM);
	guard_check(&peer, MEM);
	still_serves(&w, shape & 1);
	for (int i = 0; i < 2; i++)
		for (unsigned k = 0; k < WINDOWS; k++)
			must(nic_mw_dealloc(windows[i].e->nic, windows[i].key[k]) == 0,
			     "a window went away");
	ep_fini(&e);
	ep_fini(&peer);
	world_fini(&w);
	return 0;
}
