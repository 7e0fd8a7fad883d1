/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Accesses to memory that a step requests: the region, the check of permissions, and the access
 * itself.
 */
#include "kernels/call.h"

nic_rpc_key call_region(const struct call *call, uint32_t n, uint32_t access)
{
	const struct registered_kernel *st;

	if (likely(!n))
		return call->rkey;
	st = call->s->registered;
	return n <= st->num_grants && (st->grants[n - 1].access & access) == access
		       ? st->keys[n - 1]
		       : 0;
}

bool call_may(const struct call *call, uint32_t in, uint64_t va, uint32_t access)
{
	return nic_rpc_prefetch(call->q->qp, call_region(call, in, access), va, call->c.ask_len,
				access);
}

static int __attribute__((noinline)) access_other(struct call *call)
{
	struct roost_call *c = &call->c;
	struct nic_qp *qp = call->q->qp;

	switch ((enum roost_ask)c->ask) {
	case ROOST_ASK_WRITE:
		return nic_rpc_write(qp, call_region(call, c->va_in, NIC_ACCESS_REMOTE_WRITE),
				     c->va, c->buf, c->ask_len);
	case ROOST_ASK_COPY:
		return nic_rpc_copy(qp, call_region(call, c->va_in, NIC_ACCESS_REMOTE_WRITE), c->va,
				    call_region(call, c->from_in, NIC_ACCESS_REMOTE_READ), c->from,
				    c->ask_len);
	case ROOST_ASK_CAS:
		return nic_rpc_cmp_swap(qp, call_region(call, c->va_in, NIC_ACCESS_REMOTE_ATOMIC),
					c->va, c->buf, c->from);
	default:
		return 0;
	}
}

int call_access(struct call *call)
{
	const struct roost_call *c = &call->c;

	if (unlikely(c->ask != ROOST_ASK_READ))
		return access_other(call);
	return nic_rpc_read(call->q->qp, call_region(call, c->va_in, NIC_ACCESS_REMOTE_READ), c->va,
			    c->buf, c->ask_len);
}
