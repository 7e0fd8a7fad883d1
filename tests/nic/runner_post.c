/* SPDX-License-Identifier: BSD-2-Clause */
#include "runner_int.h"

/* The next key of a window: its low 8 bits are the program's (IBA 10.6.7.2.2). */
static uint32_t next_key(uint32_t key)
{
	uint32_t next = (key & ~0xffu) | ((key + 1) & 0xff);

	return next ? next : 1;
}

/* A refused binding: of a type 2 window that is bound, or of a window beyond the region. */
static void set_bad_bind(struct conn *c, int i, struct wr *wr)
{
	const struct side *s = &c->s[i];

	wr->rkey = s->num_windows ? c->window[i][0] : 0xbad00;
	wr->raddr = (uintptr_t)c->e[i].mem + c->e[i].mem_len - 4;
	for (unsigned w = 0; w < s->num_windows; w++)
		if (s->window_type[w] == 2 && s->bound[w] && s->grants[s->bound[w] - 1].open) {
			wr->rkey = c->window[i][w];
			wr->raddr = (uintptr_t)c->e[i].mem;
		}
	wr->imm = wr->rkey ^ 1;
	wr->swap_add = 8;
	wr->compare = ROOST_BIND(c->bind_key[i], NIC_ACCESS_REMOTE_READ);
}

static void set_bind(struct conn *c, int i, const struct op *o, struct wr *wr)
{
	struct ep *e = &c->e[i];
	const struct grant *g = &c->s[i].grants[o->grant - 1];
	uint32_t *window = &c->window[i][g->window - 1];

	wr->rkey = *window;
	wr->imm = c->key[i][o->grant - 1] = *window = next_key(*window);
	wr->raddr = (uintptr_t)e->mem + g->range.off;
	wr->swap_add = o->unbind ? 0 : g->range.len;
	wr->compare = ROOST_BIND(c->bind_key[i],
				 g->access | (g->zero_based ? NIC_ACCESS_ZERO_BASED : 0u));
}

/* Sets the remote address and the key. */
static void set_remote(struct run *u, struct conn *c, int i, const struct op *o, struct wr *wr)
{
	struct ep *peer = &c->e[1 - i];

	wr->raddr = (uintptr_t)peer->mem + o->roff;
	wr->rkey = peer->key;
	if (o->shared) {
		wr->raddr = (uintptr_t)&u->shared[peer->nic_index][o->roff];
		wr->rkey = c->shared_key[1 - i];
		u->added[peer->nic_index][o->roff]++;
	} else if (o->grant) {
		const struct grant *g = &c->s[1 - i].grants[o->grant - 1];

		wr->rkey = c->key[1 - i][o->grant - 1];
		if (g->zero_based)
			wr->raddr = o->roff - g->range.off;
	}
	if (o->fault == FAULT_RKEY)
		wr->rkey ^= 0x40;
	if (o->fault == FAULT_BOUNDS)
		wr->raddr = (uintptr_t)peer->mem + ((peer->mem_len - (o->len - 1)) | 7) + 1;
}

/* Sets the local memory: the scatter list, or inline data. */
void run_set_local(struct run *u, const struct ep *e, const struct op *o, struct wr *wr)
{
	for (unsigned k = 0; k < o->num_sge; k++) {
		wr->sge[k] = ep_sge(e, o->sge[k].off, o->sge[k].len);
		if (!o->sge[k].len && o->len && rng_below(&u->r, 2))
			wr->sge[k].lkey =
				0xbad; /* address and key of an empty entry have no effect */
	}
	if (o->flags & ROOST_WQE_INLINE) {
		wr->inl = e->mem + o->sge[0].off;
		wr->inline_len = o->len;
	}
	if (o->fault == FAULT_LKEY)
		wr->sge[0].lkey ^= 0x40;
}

struct wr run_begin(const struct op *o, uint64_t id)
{
	uint16_t flags = o->flags & (uint16_t)~ROOST_WQE_INLINE;

	return (struct wr){.op = o->op,
			   .wr_id = id,
			   .flags = flags ? flags : 1 << 15,
			   .num_sge = o->num_sge,
			   .imm = o->imm,
			   .swap_add = o->swap_add,
			   .compare = o->compare};
}

static void post_op(struct run *u, struct conn *c, int i, const struct op *o, uint64_t id)
{
	struct wr wr = run_begin(o, id);

	run_set_local(u, &c->e[i], o, &wr);
	switch ((int)o->op) {
	case ROOST_OP_RPC:
	case ROOST_OP_RPC_WRITE:
		calls_post(u, c, i, o, &wr);
		break;
	case ROOST_OP_BIND_MW:
		if (o->fault)
			set_bad_bind(c, i, &wr);
		else
			set_bind(c, i, o, &wr);
		break;
	case ROOST_OP_LOCAL_INV:
		wr.imm = o->fault ? c->e[i].key : c->key[i][o->grant - 1];
		break;
	case ROOST_OP_SEND_INV:
		wr.imm = o->fault ? c->e[1 - i].key : c->key[1 - i][o->grant - 1];
		break;
	default:
		set_remote(u, c, i, o, &wr);
	}
	ep_post(&c->e[i], &wr);
}

bool run_sq_space(const struct ep *e)
{
	return atomic_load(&e->sqi.prod) - atomic_load(&e->sqi.cons) < e->p.depth;
}

static void post_receives(struct run *u, struct conn *c, int i)
{
	struct direction *in = &c->d[1 - i];
	struct progress *at = &c->at[i];
	struct ep *e = &c->e[i];
	unsigned n = (unsigned)rng_below(&u->r, 12);

	if (c->pool[i]) {
		pool_post(c->pool[i], n, &u->r);
		return;
	}
	while (n-- && at->recv_posted < in->num_receives &&
	       atomic_load(&e->rqi.prod) - atomic_load(&e->rqi.cons) < e->p.depth) {
		const struct receive *v = &in->receives[at->recv_posted];
		struct roost_sge sge[ROOST_MAX_SGE];

		for (unsigned k = 0; k < v->num_sge; k++)
			sge[k] = ep_sge(e, v->sge[k].off, v->sge[k].len);
		ep_post_recv(e, wr_id(u, at->recv_posted++), sge, v->num_sge);
	}
}

void run_post_side(struct run *u, struct conn *c, int i)
{
	static const struct op extra = {
		.op = ROOST_OP_WRITE, .roff = AREA_TARGET, .num_sge = 1, .len = 8, .sge = {{0, 8}}};
	struct direction *d = &c->d[i];
	struct progress *at = &c->at[i];
	unsigned n;

	post_receives(u, c, i);
	n = (unsigned)rng_below(&u->r, 12);
	while (n-- && at->posted < d->num_ops && run_sq_space(&c->e[i])) {
		if (c->at[1 - i].completed < d->ops[at->posted].after)
			return;
		post_op(u, c, i, &d->ops[at->posted], wr_id(u, at->posted));
		at->posted++;
	}
	if (at->posted == d->num_ops && is_faulty(d) && !at->extra_posted &&
	    run_sq_space(&c->e[i])) {
		post_op(u, c, i, &extra, FLUSHED_ID);
		at->extra_posted = true;
	}
}

bool run_sent_all(const struct ep *e, const struct direction *d, const struct progress *at)
{
	return at->posted == d->num_ops &&
	       atomic_load(&e->sqi.cons) == d->num_ops + at->extra_posted;
}

bool run_side_done(const struct run *u, struct conn *c, int i)
{
	struct direction *d = &c->d[i];
	struct progress *at = &c->at[i];

	return run_sent_all(&c->e[i], d, at) && (!is_faulty(d) || at->extra_done) &&
	       (c->uc || at->recv_completed == c->d[1 - i].num_receives) && calls_done(u, c, i);
}
