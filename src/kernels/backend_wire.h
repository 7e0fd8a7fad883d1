/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Performs the requests of calls from the wire. Accesses have the rights of the caller or of a
 * granted region. Data is sent to the caller's memory as WRITEs.
 */
#ifndef ROOST_KERNELS_BACKEND_WIRE_H
#define ROOST_KERNELS_BACKEND_WIRE_H

#include "kernels/call.h"

static inline struct call *call_of(const struct invocation *i)
{
	return (struct call *)(uintptr_t)container_of(i, struct call, i);
}

static inline bool wire_may(const struct invocation *i, nic_rpc_key key, uint64_t va, uint32_t n,
			    uint32_t access)
{
	return nic_rpc_prefetch(call_of(i)->q->qp, key, va, n, access);
}

static inline int wire_read(const struct invocation *i, nic_rpc_key key, uint64_t va, void *dst,
			    uint32_t n)
{
	return nic_rpc_read(call_of(i)->q->qp, key, va, dst, n);
}

int wire_write(const struct invocation *i, nic_rpc_key key, uint64_t va, const void *src,
	       uint32_t n);
int wire_copy(const struct invocation *i, nic_rpc_key dst_key, uint64_t dst, nic_rpc_key src_key,
	      uint64_t src, uint32_t n);
int wire_cmp_swap(const struct invocation *i, nic_rpc_key key, uint64_t va, uint64_t *old,
		  uint64_t swap);
uint32_t wire_space(const struct invocation *i);
enum step_result wire_send(struct invocation *i, bool from, nic_rpc_key key);
bool wire_post(struct invocation *i, const struct ask_rule *rule);
void wire_reply(struct invocation *i, uint32_t status, uint32_t len);
void wire_cut_off(struct invocation *i, uint32_t status, uint32_t len);
uint32_t wire_take(struct invocation *i, struct ledger *l);
int wire_put(struct roost_call *c, uint64_t va, const void *buf, uint32_t len);

/*
 * Returns the steps that the call may take now, including the next one, by the limits of the call,
 * the QP and the turn.
 */
static inline uint32_t wire_steps_left(const struct invocation *i)
{
	const struct call_qp *q = call_of(i)->q;
	uint32_t n = i->pu->limit - i->pu->done + 1;

	if (i->steps < n)
		n = i->steps;
	if (unlikely(q->quota.steps) && q->quota.steps - q->used < n)
		n = q->quota.steps - q->used;
	return n;
}

static inline void wire_before(struct invocation *i)
{
	if (i->c.at_once)
		i->pu->max_accesses = wire_steps_left(i) - 1;
	i->pu->accesses = 0;
}

/* Counts the step, and one for each access at once. */
static inline void wire_count(struct invocation *i)
{
	struct runtime_pu *pu = i->pu;
	uint32_t n = pu->accesses + 1;

	pu->done += pu->accesses;
	pu->ctr.steps += n;
	i->steps -= n;
	call_of(i)->q->used += n;
	i->ctr->steps += n;
	if (unlikely(i->c.charged >> 10)) {
		call_charge(pu, i->c.charged >> 10);
		i->c.charged &= 1023;
	}
}

static const struct ask_backend wire_backend = {
	.may = wire_may,
	.read = wire_read,
	.write = wire_write,
	.copy = wire_copy,
	.cmp_swap = wire_cmp_swap,
	.space = wire_space,
	.send = wire_send,
	.post = wire_post,
	.reply = wire_reply,
	.cut_off = wire_cut_off,
	.before = wire_before,
	.count = wire_count,
	.take = wire_take,
	.put = wire_put,
};

#endif
