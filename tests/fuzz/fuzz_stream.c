/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Fuzzes built-in kernels from a caller's side: any parameters, with payload of any length or none,
 * calls and payload out of order, and memory with any contents. Calls go over loop-back, where
 * pieces and steps have no delay. Addresses begin at 0, so that many random numbers are addresses.
 * No memory outside of the region and of the reply buffer changes, turns stay bounded, and the QP
 * answers afterwards.
 *
 * The input is commands: one byte of kind, and its arguments.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "builtin/builtin.h"
#include "input.h"
#include "kernels/runtime.h"
#include "roost/shuffle.h"
#include "world.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define MEM	 32768u /* of each side, but for the guard behind it */
#define GUARD	 256u
#define REPLY	 0u    /* of the caller: where replies go */
#define SPACE	 4096u /* bytes of it */
#define PARAMS	 8192u
#define PAYLOAD	 12288u
#define MAX_TURN 5000
#define NOBODY	 0xffffu

static void bytes(struct input *in, uint8_t *to, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		to[i] = u8(in);
}

struct rig {
	struct world w;
	struct ep caller, node, bound,
		sink;	 /* of the node, and its peer, to which shuffle-out sends */
	unsigned posted; /* not known to be done */
};

/* A region from address 0, and a guard behind it. */
static void lay_out(struct ep *e, uint32_t access)
{
	struct nic_mr_attr m = {
		.pd = e->pd, .addr = e->mem, .len = MEM, .iova = 0, .access = access | 1};

	must(nic_mr_deregister(e->nic, e->key) == 0 && nic_mr_register(e->nic, &m, &e->key) == 0,
	     "no region");
	memset(e->mem, 0, MEM);
	memset(e->mem + MEM, 0xa5, GUARD);
}

static void turns(struct rig *r, unsigned n)
{
	struct roost_cqe c;

	while (n--) {
		must(nic_poll(r->w.nic[0], 0, world_now(&r->w)) <= MAX_TURN, "a turn without end");
		world_step(&r->w, world_now(&r->w) + 10 * MSEC);
		while (ep_poll_send(&r->caller, &c)) {
			must(c.status == NIC_WC_SUCCESS, "a request failed");
			r->posted--;
		}
	}
}

static void post(struct rig *r, enum roost_op op, uint64_t kernel, uint32_t off, uint32_t len)
{
	struct wr wr = {.op = op,
			.sge = {{off, len, r->caller.key}},
			.num_sge = 1,
			.raddr = kernel,
			.rkey = r->node.key};

	for (unsigned i = 0; r->posted == 32; i++) {
		must(i < 10000, "requests that do not end");
		turns(r, 1);
	}
	ep_post(&r->caller, &wr);
	r->posted++;
}

static void call(struct rig *r, uint64_t kernel, uint32_t space, uint16_t mark, uint16_t flags,
		 const uint8_t *params, uint32_t len)
{
	struct roost_rpc_head head = {.reply_addr = REPLY,
				      .reply_rkey = r->caller.key,
				      .reply_len = space,
				      .mark = mark,
				      .flags = flags};

	/*
	 * A change of the parameters of a call in flight is allowed: the call has other parameters.
	 */
	memcpy(r->caller.mem + PARAMS, &head, sizeof(head));
	memcpy(r->caller.mem + PARAMS + sizeof(head), params, len);
	post(r, ROOST_OP_RPC, kernel, PARAMS, (uint32_t)sizeof(head) + len);
}

/* Op-codes of built-in kernels, and a few that no kernel has. */
static uint64_t op_of(uint8_t which)
{
	return which & 15;
}

static void command(struct input *in, struct rig *r)
{
	uint8_t kind = u8(in), which, params[512];
	uint32_t off, len;

	switch (kind % 8) {
	case 0:
	case 1: /* the node's memory */
		off = u16(in) % MEM;
		len = u8(in);
		bytes(in, r->node.mem + off, len < MEM - off ? len : MEM - off);
		break;
	case 2: /* the payload */
		off = u16(in) % (MEM - PAYLOAD);
		len = u8(in);
		bytes(in, r->caller.mem + PAYLOAD + off,
		      len < MEM - PAYLOAD - off ? len : MEM - PAYLOAD - off);
		break;
	case 3:
	case 4:
		which = u8(in);
		len = u16(in) % sizeof(params);
		bytes(in, params, len);
		call(r, op_of(which), which & 128 ? 8 + kind * 16u : SPACE, 1,
		     kind % 8 == 3 ? ROOST_RPC_STREAM : 0, params, len);
		break;
	case 5:
	case 6:
		which = u8(in);
		post(r, ROOST_OP_RPC_WRITE, op_of(which), PAYLOAD, u16(in) % (MEM - PAYLOAD));
		break;
	default:
		turns(r, 1 + (kind >> 3));
	}
}

/* Kernels end for any contents of the memory, and the QP continues. */
static void still_serves(struct rig *r)
{
	struct roost_rpc_tail tail;

	turns(r, 200);
	memset(r->caller.mem + REPLY, 0, SPACE);
	call(r, NOBODY, SPACE, 2, 0, (const uint8_t *)"", 0);
	for (unsigned i = 0; i < 2000; i++) {
		turns(r, 1);
		memcpy(&tail, r->caller.mem + REPLY + SPACE - 8, 8);
		if (tail.mark == 2) {
			must(tail.status == ROOST_RPC_NO_KERNEL, "another answer");
			return;
		}
	}
	must(false, "the QP does not answer any more");
}

/* The peer may refuse data: this ends this connection, and no other. */
static void bind_qp(struct rig *r, struct kernel_runtime *f)
{
	struct ep_params p = {.mem = MEM + GUARD};
	unsigned number;

	ep_init(&r->bound, &r->w, 0, &p);
	ep_init(&r->sink, &r->w, 0, &p);
	lay_out(&r->sink, 15);
	ep_connect(&r->bound, &r->sink);
	must(runtime_bind_qp(f, ROOST_SHUFFLE_OUT_OP, r->bound.qp, &(struct runtime_qp_limits){0},
			     &number) == 0 &&
		     number == 1,
	     "not bound");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const uint8_t zero[MEM];
	struct input in = {data, data + size};
	uint8_t shape = u8(&in);
	struct runtime_config cfg = {.calls = shape & 1 ? 2 : 0, .max_steps = 3000};
	struct ep_params p = {.rpc = true, .depth = 64, .mem = MEM + GUARD};
	struct runtime_counters ctr;
	struct kernel_runtime *f;
	struct rig r = {.posted = 0};

	world_init(&r.w, 1, 1, &(struct sim_params){0});
	must(runtime_create(r.w.nic[0], &cfg, &f) == 0, "no kernel runtime");
	for (unsigned i = 0; kernels_builtin_at(i); i++)
		must(runtime_deploy(f, kernels_builtin_at(i), NULL) == 0, "no kernel");
	ep_init(&r.caller, &r.w, 0, &p);
	ep_init(&r.node, &r.w, 0, &p);
	lay_out(&r.caller, NIC_ACCESS_REMOTE_WRITE);
	lay_out(&r.node, shape & 2 ? NIC_ACCESS_REMOTE_READ : 15);
	ep_connect(&r.caller, &r.node);
	bind_qp(&r, f);
	while (in.p < in.end)
		command(&in, &r);
	still_serves(&r);
	for (unsigned i = 0; i < GUARD; i++)
		must(r.node.mem[MEM + i] == 0xa5 && r.caller.mem[MEM + i] == 0xa5 &&
			     r.sink.mem[MEM + i] == 0xa5,
		     "wrote behind a region");
	must(!memcmp(r.caller.mem + REPLY + SPACE, zero, PARAMS - REPLY - SPACE),
	     "wrote behind a reply");
	runtime_counters(f, &ctr);
	must(!ctr.faults && !ctr.stuck, "a kernel crashed, or did not return");
	ep_fini(&r.bound);
	ep_fini(&r.sink);
	ep_fini(&r.caller);
	ep_fini(&r.node);
	world_fini(&r.w);
	return 0;
}
