/* SPDX-License-Identifier: BSD-2-Clause */
#include "kernels/invocation.h"

#include <string.h>

#include "kernels/call.h"
#include "kernels/guarded.h"

/*
 * roost_take(). The watchdog must not count the runtime's locks and allocations as time of the
 * kernel's step.
 */
static uint32_t take(struct roost_call *c)
{
	struct invocation *i = invocation_of(c);
	struct ledger *l = i->s->shared_self->ledger;
	struct guard *g = &i->pu->guard;
	uint32_t number;

	guard_stepped(g);
	number = l ? i->b->take(i, l) : 0;
	i->pu->ctr.resources_refused += !number;
	guard_step(g);
	return number;
}

static void give(struct roost_call *c, uint32_t number)
{
	struct invocation *i = invocation_of(c);
	struct guard *g = &i->pu->guard;

	guard_stepped(g);
	if (i->s->shared_self->ledger)
		ledger_give(i->s->shared_self->ledger, number);
	guard_step(g);
}

void invocation_lay_out(struct invocation *i, uint8_t *body, const void *params, uint32_t len)
{
	const struct roost_kernel *k = i->s->k;
	struct roost_call *c = &i->c;
	uint8_t *at = body;

	if (len)
		memcpy(at, params, len);
	c->params = at;
	c->params_len = len;
	at += ALIGN_UP(len, 64u);
	if (k->state_size)
		memset(at, 0, k->state_size);
	c->state = at;
	c->scratch = at + ALIGN_UP(k->state_size, 64u);
	c->self = i->s->self;
	c->grants = i->s->registered->grants;
	c->put = i->b->put;
	c->take = take;
	c->give = give;
	i->wrs.c = c;
}

void invocation_move(struct invocation *i, struct runtime_pu *pu)
{
	i->pu = pu;
	i->ctr = &i->s->pu[pu->index].ctr;
}

nic_rpc_key invocation_granted(const struct invocation *i, uint32_t n, uint32_t access)
{
	const struct registered_kernel *st = i->s->registered;

	return n <= st->num_grants && (st->grants[n - 1].access & access) == access
		       ? st->keys[n - 1]
		       : 0;
}

static void run_cut(void *arg)
{
	struct invocation *i = arg;

	i->s->k->cut(&i->c);
}

void invocation_cut(struct invocation *i)
{
	int how;

	if (!i->s || !i->s->k->cut || version_disabled(i->s))
		return;
	how = guarded_step(&i->pu->guard, run_cut, i);
	if (how)
		version_disable(i->s, (enum guard_end)how);
}

void invocation_trapped(struct invocation *i, int how)
{
	i->b->count(i);
	version_disable(i->s, (enum guard_end)how);
	i->b->cut_off(i, how == GUARD_STUCK ? ROOST_RPC_STUCK : ROOST_RPC_FAULT, i->sent);
}
