/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Fuzzes calls: parameters of the built-in kernels and of a kernel with payload, the memory that
 * these kernels read, and a peer that sends RPC packets in any order and may not acknowledge
 * replies. The input's first bytes fill the memory; the rest are commands. No memory outside of the
 * region may change, replies may only be sent to the peer's reply buffers, and every turn stays
 * bounded.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "builtin/builtin.h"
#include "input.h"
#include "kernels/runtime.h"
#include "make_packet.h"
#include "roost/consistency.h"
#include "roost/get.h"
#include "roost/traversal.h"
#include "world.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define PEER_QPN   0x345678u
#define MEM	   4096u
#define GUARD	   256u
#define MTU	   1024u
#define WINDOW	   0x7f0000000000ull /* of the peer: where replies may go */
#define WINDOW_LEN 8192u
#define MAX_TURN   5000
#define OP_STREAM  0x1000

struct rig {
	struct world w;
	struct ep e;
	struct kernel_runtime *f;
	struct pkt_addr peer;
	uint64_t sent;
};

/*
 * A kernel that executes its payload: two bytes of each piece choose accesses, in both ways of
 * writing steps.
 */
struct stream {
	uint32_t i;
	uint8_t buf[64];
};

static enum roost_next stream_params(struct roost_call *c)
{
	return c->params_len & 1 ? ROOST_DONE : roost_reply(c, 200, c->params, c->params_len);
}

static enum roost_next stream_payload(struct roost_call *c)
{
	struct stream *s = c->state;
	uint64_t va = (uint64_t)(uintptr_t)c->self;

	ROOST_STEPS(c);
	for (s->i = 0; s->i + 1 < c->len; s->i += 200) {
		if (c->data[s->i] < 60)
			ROOST_READ(c, va + c->data[s->i + 1] * 20u, s->buf, c->data[s->i]);
		else if (c->data[s->i] < 100)
			ROOST_WRITE(c, va + c->data[s->i + 1] * 20u, s->buf, 64);
		else if (c->data[s->i] < 140)
			ROOST_SEND(c, s->buf, c->data[s->i + 1] & 63);
		else if (c->data[s->i] < 180)
			ROOST_SEND_FROM(c, va, c->data[s->i + 1]);
		else if (c->data[s->i] < 200)
			ROOST_COPY(c, va, va + 512, c->data[s->i + 1]);
		else if (c->data[s->i] < 202)
			ROOST_REPLY(c, s->buf, c->data[s->i + 1] & 63);
	}
	ROOST_STEPS_END;
}

static const struct roost_kernel stream = {.abi = ROOST_KERNEL_ABI,
					   .name = "stream",
					   .version = 1,
					   .op = OP_STREAM,
					   .state_size = sizeof(struct stream),
					   .params = stream_params,
					   .payload = stream_payload};

static void on_packet(void *ctx, uint64_t now, bool delivered, const struct pkt_addr *src,
		      const struct pkt_addr *dst, const uint8_t *bth, uint32_t len)
{
	struct rig *r = ctx;
	struct pkt_view v;

	if (delivered)
		return;
	r->sent++;
	must(pkt_parse(bth, len, &v) == PKT_OK, "sent a malformed packet");
	if (v.op->kind != PKT_KIND_WRITE)
		return;
	if (v.op->flags & PKT_RETH)
		must(v.va >= WINDOW && v.va + v.dmalen <= WINDOW + WINDOW_LEN,
		     "a reply to where none was wanted");
}

static void attributes(struct rig *r, struct nic_qp_attr *a)
{
	ep_attr(&r->e, &r->e, a);
	a->dest_qpn = PEER_QPN;
	a->dgid = r->peer;
	a->rq_psn = 0xfffff0;
}

static void connect_again(struct rig *r)
{
	struct nic_qp_attr a = {.state = NIC_QPS_RESET};

	must(ep_modify(&r->e, &a, NIC_QPA_STATE) == 0, "no RESET");
	attributes(r, &a);
	ep_to_init(&r->e);
	ep_to_rtr(&r->e, &a);
	ep_to_rts(&r->e, &a);
}

static void open_rig(struct rig *r, uint8_t shape)
{
	struct ep_params p = {.rpc = true,
			      .depth = 16,
			      .mem = MEM + GUARD,
			      .mtu = MTU,
			      .timeout = 1,
			      .retry_cnt = 2,
			      .rnr_retry = 2,
			      .access = shape & 1 ? NIC_ACCESS_REMOTE_READ : 15};
	struct runtime_config cfg = {.calls = 1 + (shape >> 1 & 7), .max_steps = 2000};
	struct nic_mr_attr m;

	memset(r, 0, sizeof(*r));
	must(pkt_addr_parse("10.7.7.7", &r->peer) == 0, "no address");
	world_init(&r->w, 1, 1, &(struct sim_params){0});
	sim_set_tap(r->w.sim, on_packet, r);
	must(runtime_create(r->w.nic[0], &cfg, &r->f) == 0, "no kernel runtime");
	ep_init(&r->e, &r->w, 0, &p);
	must(nic_mr_deregister(r->e.nic, r->e.key) == 0, "no region");
	m = (struct nic_mr_attr){.pd = r->e.pd,
				 .addr = r->e.mem,
				 .len = MEM,
				 .iova = (uintptr_t)r->e.mem,
				 .access = p.access | NIC_ACCESS_LOCAL_WRITE};
	must(nic_mr_register(r->e.nic, &m, &r->e.key) == 0, "no region");
	for (unsigned i = 0; kernels_builtin_at(i); i++)
		must(runtime_deploy(r->f, kernels_builtin_at(i), NULL) == 0, "no kernel");
	must(runtime_deploy(r->f, &stream, r->e.mem) == 0, "no kernel");
	connect_again(r);
}

static uint64_t address(struct input *in, const struct rig *r)
{
	uint8_t how = u8(in);

	return how < 220   ? (uintptr_t)r->e.mem + (how & 63) * 64u
	       : how < 240 ? (uintptr_t)r->e.mem + MEM - (how & 15)
			   : (uint64_t)how << 56 | u8(in);
}

/* Fills the memory with small numbers, and with addresses in it. */
static void fill(struct input *in, struct rig *r)
{
	uint64_t *w = (uint64_t *)(void *)r->e.mem;

	for (unsigned i = 0; i < MEM / 8; i++) {
		uint8_t how = u8(in);

		w[i] = how < 128 ? how : address(in, r);
	}
	memset(r->e.mem + MEM, 0xa5, GUARD);
}

/* Makes parameters that are partly valid. Returns their length. */
static uint32_t parameters(struct input *in, const struct rig *r, uint64_t op, uint8_t *out)
{
	uint32_t n = 0, len = op == ROOST_GET_OP	   ? sizeof(struct roost_get_params)
			      : op == ROOST_TRAVERSAL_OP   ? sizeof(struct roost_traversal_params)
			      : op == ROOST_CONSISTENCY_OP ? sizeof(struct roost_consistency_params)
							   : u8(in);
	uint64_t root = address(in, r);

	for (n = 0; n < len; n++)
		out[n] = u8(in);
	if (n >= 8)
		memcpy(out, &root, 8);
	if (op == ROOST_TRAVERSAL_OP && out[40] & 1) { /* lengths that pass */
		struct roost_traversal_params *p = (struct roost_traversal_params *)(void *)out;

		p->element_len = 4u * (2 + p->element_len % 60);
		p->key_len = p->key_len & 1 ? 4 : 8;
		p->bound = 1 + p->bound % 100;
		p->predicate &= 3;
		p->next &= 3;
		p->flags &= 3;
		p->key_mask[0] &= 3;
		p->key_mask[1] = p->key_mask[2] = p->key_mask[3] = 0;
		memset(p->order_mask, 0, sizeof(p->order_mask));
		p->order_mask[0] = p->key[9] & 3;
	}
	if (op == ROOST_CONSISTENCY_OP && out[10] & 1) {
		struct roost_consistency_params *p = (struct roost_consistency_params *)(void *)out;

		p->len %= 4096;
		p->tries = 1 + p->tries % 50;
		p->scheme &= 1;
		if (p->scheme)
			p->len &= ~63u;
	}
	if (op == ROOST_GET_OP && out[16] & 1) {
		struct roost_get_params *p = (struct roost_get_params *)(void *)out;

		p->mask = (1u << (out[8] & 7)) - 1;
		p->bound = 1 + p->bound % 100;
		p->flags &= 1;
	}
	return u8(in) < 240 ? len : u8(in);
}

static void inject(struct rig *r, const struct pkt_make *m)
{
	uint8_t buf[PKT_MAX_LEN];
	uint32_t len = pkt_make_raw(buf, m, nic_qp_num(r->e.qp));

	pkt_seal(buf, len, &r->peer, &nic_port(r->e.nic, 0, 0)->addr);
	sim_inject(r->w.sim, &r->peer, &nic_port(r->e.nic, 0, 0)->addr, buf, len);
}

static void command(struct input *in, struct rig *r)
{
	static const uint64_t ops[] = {ROOST_GET_OP, ROOST_TRAVERSAL_OP, ROOST_CONSISTENCY_OP,
				       OP_STREAM,    OP_STREAM,		 77};
	uint8_t what = u8(in) % 8, payload[2048] = {0};
	struct pkt_make m = {
		.ackreq = true, .rkey = u8(in) < 240 ? r->e.key : 5, .payload = payload};
	struct nic_qp_attr q;

	nic_qp_query(r->e.qp, &q);
	m.psn = q.rq_psn;
	m.va = ops[u8(in) % 6];
	if (what < 3) {
		struct roost_rpc_head head = {.reply_addr = WINDOW,
					      .reply_rkey = 9,
					      .reply_len = u8(in) * 16u,
					      .mark = 3,
					      .flags = u8(in) & 7};

		if (head.flags & ROOST_RPC_JOIN) /* buffers that adjoin, or lie across each other */
			head.reply_addr += u8(in) * 16u;
		if (u8(in) > 240)
			head.flags = u8(in);
		memcpy(payload, &head, sizeof(head));
		m.opcode = PKT_RPC_PARAMS;
		m.len = (uint32_t)sizeof(head) + parameters(in, r, m.va, payload + sizeof(head));
		m.dmalen = u8(in) < 250 ? m.len : u8(in);
	} else if (what < 6) {
		static const uint8_t opcodes[] = {PKT_RPC_WRITE_FIRST, PKT_RPC_WRITE_MIDDLE,
						  PKT_RPC_WRITE_LAST, PKT_RPC_WRITE_ONLY};
		uint8_t which = u8(in) & 3;

		m.opcode = opcodes[which];
		m.len = which < 2 ? MTU : u8(in) * 4u;
		m.dmalen = which == 3 ? m.len : MTU * (1 + (u8(in) & 3)) + u8(in) * 4u;
		for (uint32_t i = 0; i < m.len; i++)
			payload[i] = u8(in);
	} else {
		uint8_t how = u8(in);

		m.opcode = PKT_ACK;
		m.psn = q.sq_psn - 1 - (how & 3);
		m.syndrome = how < 200	 ? PKT_AETH_ACK
			     : how < 230 ? PKT_AETH_TYPE_RNR | 1
					 : PKT_NAK_PSN_SEQ;
	}
	inject(r, &m);
}

static void turns(struct rig *r, uint64_t ns)
{
	uint64_t until = world_now(&r->w) + ns;

	for (int i = 0; i < 400; i++) {
		uint64_t before = r->sent;

		if (!world_step(&r->w, until))
			break;
		must(r->sent - before <= MAX_TURN, "a turn without end");
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = {data, data + size};
	struct rig *r = calloc(1, sizeof(*r));

	open_rig(r, u8(&in));
	fill(&in, r);
	for (int i = 0; i < 64 && in.p < in.end; i++) {
		command(&in, r);
		if (u8(&in) & 1)
			turns(r, 100000);
		if (nic_qp_state(r->e.qp) == NIC_QPS_ERR)
			connect_again(r);
	}
	turns(r, MSEC);
	for (unsigned i = 0; i < GUARD; i++)
		must(r->e.mem[MEM + i] == 0xa5, "memory behind the region has changed");
	ep_fini(&r->e);
	world_fini(&r->w);
	free(r);
	return 0;
}
