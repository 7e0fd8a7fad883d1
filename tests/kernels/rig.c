/* SPDX-License-Identifier: BSD-2-Clause */
#include "rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

void rig_open(struct rig *r, uint64_t seed, const struct rig_shape *shape)
{
	struct ep_params p = {.rpc = true,
			      .mem = RIG_MEM,
			      .mtu = shape->mtu ? shape->mtu : 1024,
			      .depth = 128,
			      .psn = 0xfffffa,
			      .rnr_retry = shape->rnr_retry};
	unsigned node = shape->loop ? 0 : 1;

	r->turn_ns = shape->turn_ns;
	r->loop = shape->loop;
	world_init(&r->w, node + 1, seed, &shape->sp);
	r->w.turn_ns = shape->turn_ns;
	assert_int_equal(runtime_create(r->w.nic[node], &shape->cfg, &r->f), 0);
	for (unsigned i = 0; i < RIG_CALLERS; i++) {
		p.access = 0;
		ep_init(&r->caller[i], &r->w, 0, &p);
		p.access = shape->access;
		ep_init(&r->node[i], &r->w, node, &p);
		ep_connect(&r->caller[i], &r->node[i]);
	}
}

void rig_close(struct rig *r)
{
	for (unsigned i = 0; i < RIG_CALLERS; i++) {
		ep_fini(&r->caller[i]);
		ep_fini(&r->node[i]);
	}
	world_fini(&r->w);
}

bool rig_step(struct rig *r)
{
	bool more = world_step(&r->w, world_now(&r->w) + 10 * SEC);

	if (r->turn_ns)
		sim_advance(r->w.sim, world_now(&r->w) + r->turn_ns);
	return more;
}

static uint8_t *reply_of(struct rig *r, unsigned caller, unsigned slot)
{
	return r->caller[caller].mem + slot * RIG_REPLY;
}

struct roost_rpc_head rig_head(struct rig *r, unsigned caller, unsigned slot, uint32_t space,
			       uint16_t flags)
{
	assert_in_range(space, 0, RIG_REPLY - 8);
	return (struct roost_rpc_head){.reply_addr = (uintptr_t)reply_of(r, caller, slot),
				       .reply_rkey = r->caller[caller].key,
				       .reply_len = space + 8,
				       .mark = (uint16_t)(slot + 1),
				       .flags = flags};
}

void rig_post_head(struct rig *r, unsigned caller, unsigned slot, uint64_t op,
		   const struct roost_rpc_head *head, const void *params, uint32_t len)
{
	struct ep *e = &r->caller[caller];
	uint64_t off = RIG_PARAMS + slot * 4096u;
	struct wr wr = {.op = ROOST_OP_RPC,
			.sge = {ep_sge(e, off, (uint32_t)sizeof(*head) + len)},
			.num_sge = 1,
			.raddr = op,
			.rkey = r->node[caller].key};

	memcpy(e->mem + off, head, sizeof(*head));
	if (len)
		memcpy(e->mem + off + sizeof(*head), params, len);
	ep_post(e, &wr);
}

void rig_post(struct rig *r, unsigned caller, unsigned slot, uint64_t op, const void *params,
	      uint32_t len, uint32_t space, uint16_t flags)
{
	struct roost_rpc_head head = rig_head(r, caller, slot, space, flags);

	memset(reply_of(r, caller, slot), 0, RIG_REPLY);
	rig_post_head(r, caller, slot, op, &head, params, len);
}

void rig_post_payload(struct rig *r, unsigned caller, uint64_t op, uint32_t len)
{
	struct ep *e = &r->caller[caller];
	struct wr wr = {.op = ROOST_OP_RPC_WRITE,
			.sge = {ep_sge(e, RIG_PAYLOAD, len)},
			.num_sge = 1,
			.raddr = op,
			.rkey = r->node[caller].key};

	assert_in_range(len, 0, RIG_MEM - RIG_PAYLOAD);
	ep_post(e, &wr);
}

bool rig_poll(struct rig *r, unsigned caller, unsigned slot, uint32_t space, struct rig_reply *out)
{
	const uint8_t *buf = reply_of(r, caller, slot);
	struct roost_rpc_tail tail;

	memcpy(&tail, buf + space, sizeof(tail));
	if (tail.mark != slot + 1)
		return false;
	*out = (struct rig_reply){
		.status = tail.status, .len = tail.len, .front = tail.flags & ROOST_RPC_FRONT};
	if (tail.len <= space)
		out->data = out->front ? buf : buf + space - tail.len;
	return true;
}

struct rig_reply rig_wait(struct rig *r, unsigned caller, unsigned slot, uint32_t space)
{
	uint64_t until = world_now(&r->w) + 10 * SEC;
	struct rig_reply out = {0};

	while (!rig_poll(r, caller, slot, space, &out))
		assert_true(world_now(&r->w) < until && rig_step(r));
	return out;
}

struct rig_reply rig_call(struct rig *r, uint64_t op, const void *params, uint32_t len,
			  uint32_t space)
{
	struct rig_reply reply;

	rig_post(r, 0, 0, op, params, len, space, 0);
	reply = rig_wait(r, 0, 0, space);
	rig_reap(r);
	return reply;
}

void rig_reap(struct rig *r)
{
	struct roost_cqe c;

	for (unsigned i = 0; i < RIG_CALLERS; i++)
		while (ep_poll_send(&r->caller[i], &c))
			assert_int_equal(c.status, NIC_WC_SUCCESS);
}

struct runtime_counters rig_counters(const struct rig *r)
{
	struct runtime_counters c;

	runtime_counters(r->f, &c);
	return c;
}

void rig_write(struct rig *r, unsigned caller, uint64_t from, uint64_t to, uint32_t len)
{
	struct wr wr = wr_rdma(ROOST_OP_WRITE, &r->caller[caller], from, len, &r->node[caller], to);

	ep_post(&r->caller[caller], &wr);
}

struct kernel_runtime *rig_caller_runtime(struct rig *r)
{
	struct kernel_runtime *f = r->f;

	if (!r->loop)
		assert_int_equal(runtime_create(r->w.nic[0], NULL, &f), 0);
	return f;
}

struct local_call *rig_local_call(struct rig *r, struct kernel_runtime *f, uint64_t op,
				  const void *params, uint32_t len, void *reply, uint32_t space)
{
	struct local_call_attr a = {.op = op,
				    .params = params,
				    .params_len = len,
				    .pd = r->node[0].pd,
				    .key = r->node[0].key,
				    .reply = reply,
				    .space = space};
	struct local_call *p;

	assert_int_equal(local_call_begin(f, 0, &a, &p), 0);
	return p;
}
