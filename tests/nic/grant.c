/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Keys that a side of a connection gives to its peer for a time: regions that may be invalidated,
 * and memory windows. The model knows which keys are valid at each point of a program, and the
 * progress of both programs that this requires.
 */
#include "program.h"

#define RW (NIC_ACCESS_REMOTE_WRITE | NIC_ACCESS_REMOTE_READ)

/* A part of an area, and rights that go with it. */
static void pick_range(struct grant *g, struct rng *r)
{
	uint32_t off, len;

	switch (rng_below(r, 4)) {
	case 0:
		off = 8 * (uint32_t)rng_below(r, AREA_WORDS_N);
		len = 8 * (1 + (uint32_t)rng_below(r, AREA_WORDS_N - off / 8));
		g->range = (struct piece){AREA_WORDS + off, len};
		g->access = NIC_ACCESS_REMOTE_ATOMIC;
		return;
	case 1:
		off = (uint32_t)rng_below(r, AREA_LEN);
		g->range = (struct piece){AREA_SOURCE + off,
					  1 + (uint32_t)rng_below(r, AREA_LEN - off)};
		g->access = NIC_ACCESS_REMOTE_READ;
		return;
	default:
		off = (uint32_t)rng_below(r, AREA_LEN);
		len = 1 + (uint32_t)rng_below(r, rng_below(r, 2) ? AREA_LEN - off : 3000);
		g->range = (struct piece){AREA_TARGET + off,
					  len < AREA_LEN - off ? len : AREA_LEN - off};
		g->access = rng_below(r, 2)   ? RW
			    : rng_below(r, 2) ? NIC_ACCESS_REMOTE_WRITE
					      : NIC_ACCESS_REMOTE_READ;
	}
}

void grants_init(struct side *s, struct rng *r)
{
	s->num_regions = (unsigned)rng_below(r, 12);
	for (unsigned i = 0; i < s->num_regions; i++) {
		struct grant *g = &s->grants[s->num_grants++];

		pick_range(g, r);
		g->open = true;
	}
	s->num_windows = (unsigned)rng_below(r, MAX_WINDOWS + 1);
	for (unsigned i = 0; i < s->num_windows; i++)
		s->window_type[i] = 1 + (unsigned)rng_below(r, 2);
}

/* Returns 1 + the index of an open grant that `good` accepts; 0: there is none. */
static unsigned pick(const struct side *s,
		     bool (*good)(const struct side *, const struct grant *, const void *),
		     const void *arg, struct rng *r)
{
	unsigned start, n = s->num_grants;

	if (!n)
		return 0;
	start = (unsigned)rng_below(r, n);
	for (unsigned i = 0; i < n; i++) {
		unsigned k = (start + i) % n;

		if (s->grants[k].open && good(s, &s->grants[k], arg))
			return k + 1;
	}
	return 0;
}

struct use {
	const struct op *o;
	uint32_t access;
	bool fixed; /* roff and len are not changed */
};

static bool usable(const struct side *s, const struct grant *g, const void *arg)
{
	const struct use *u = arg;

	if ((g->access & u->access) != u->access)
		return false;
	if (u->o->len == 0) /* without bytes, key and address have no effect */
		return false;
	return !u->fixed || (u->o->roff >= g->range.off &&
			     u->o->roff + u->o->len <= g->range.off + g->range.len);
}

void grant_use(struct op *o, unsigned index, struct side *owner, const struct limits *l,
	       struct rng *r)
{
	struct use u = {.o = o,
			.access = o->op == ROOST_OP_READ ? NIC_ACCESS_REMOTE_READ
				  : o->op == ROOST_OP_WRITE || o->op == ROOST_OP_WRITE_IMM
					  ? NIC_ACCESS_REMOTE_WRITE
					  : NIC_ACCESS_REMOTE_ATOMIC,
			.fixed = l->type != NIC_QPT_RC};
	struct grant *g;

	o->grant = pick(owner, usable, &u, r);
	if (!o->grant)
		return;
	g = &owner->grants[o->grant - 1];
	if (!u.fixed) {
		if (o->len > g->range.len)
			o->len = g->range.len;
		o->roff = g->range.off + (uint32_t)rng_below(r, g->range.len - o->len + 1);
		if (g->access & NIC_ACCESS_REMOTE_ATOMIC)
			o->roff &= ~7u;
	}
	o->after = g->given;
	g->used = index + 1;
}

/* A request of `o`'s side revokes it, after the peer's last use is complete. */
static void end(struct op *o, struct grant *g, struct direction *peer)
{
	g->open = false;
	o->after = g->used;
	if (g->used)
		peer->ops[g->used - 1].flags |= ROOST_WQE_SIGNALED;
}

bool grant_bind(struct op *o, unsigned index, struct side *owner, struct direction *peer,
		const struct limits *l, struct rng *r)
{
	struct grant *g, *old;
	unsigned w;

	if (!owner->num_windows || owner->num_grants == MAX_GRANTS)
		return false;
	w = (unsigned)rng_below(r, owner->num_windows);
	old = owner->bound[w] ? &owner->grants[owner->bound[w] - 1] : NULL;
	o->op = ROOST_OP_BIND_MW;
	if (old && old->open) {
		/*
		 * The model does not know which unreliable messages are in flight, so their keys
		 * stay.
		 */
		if (owner->window_type[w] == 2 || (old->used && l->type != NIC_QPT_RC))
			return false;
		end(o, old, peer);
	} else if (old) {
		o->after = owner->freed[w];
		if (o->after)
			peer->ops[o->after - 1].flags |= ROOST_WQE_SIGNALED;
	}
	g = &owner->grants[owner->num_grants++];
	g->window = w + 1;
	pick_range(g, r);
	if (l->type != NIC_QPT_RC) {
		g->range = (struct piece){AREA_TARGET, AREA_LEN};
		g->access = RW;
	}
	g->zero_based = owner->window_type[w] == 2 && rng_below(r, 2);
	g->given = index + 1;
	g->open = true;
	if (owner->window_type[w] == 1 && rng_below(r, 6) == 0) {
		o->unbind = true;
		g->open = false;
	}
	owner->bound[w] = o->grant = owner->num_grants;
	owner->freed[w] = 0;
	o->flags |= ROOST_WQE_SIGNALED;
	return true;
}

static bool ends_well(const struct side *s, const struct grant *g, const void *arg)
{
	const struct limits *l = arg;

	return (!g->window || s->window_type[g->window - 1] == 2) &&
	       (l->type == NIC_QPT_RC || !g->used);
}

bool grant_local_inv(struct op *o, struct side *owner, struct direction *peer,
		     const struct limits *l, struct rng *r)
{
	o->grant = pick(owner, ends_well, l, r);
	if (!o->grant)
		return false;
	o->op = ROOST_OP_LOCAL_INV;
	end(o, &owner->grants[o->grant - 1], peer);
	return true;
}

bool grant_send_inv(struct op *o, unsigned index, struct side *owner, struct direction *of_owner,
		    const struct hazards *h, struct rng *r)
{
	static const struct limits rc = {.type = NIC_QPT_RC};
	struct grant *g;

	o->grant = pick(owner, ends_well, &rc, r);
	if (!o->grant)
		return false;
	g = &owner->grants[o->grant - 1];
	o->op = ROOST_OP_SEND_INV;
	o->after = g->given;
	g->open = false;
	if (g->window)
		owner->freed[g->window - 1] = index + 1;
	if (g->given)
		of_owner->ops[g->given - 1].flags |= ROOST_WQE_SIGNALED;
	for (unsigned i = 0; i < h->num_remote; i++)
		if (h->by[i] == o->grant)
			o->flags |= ROOST_WQE_FENCE;
	return true;
}

bool grant_fault(struct op *o, const struct side *owner, struct rng *r)
{
	unsigned n = owner->num_grants, start = n ? (unsigned)rng_below(r, n) : 0;

	for (unsigned i = 0; i < n; i++) {
		const struct grant *g = &owner->grants[(start + i) % n];

		if (g->open != (o->fault != FAULT_STALE) || g->range.len < 8)
			continue;
		if (o->fault == FAULT_RIGHTS && g->access == RW)
			continue;
		o->grant = (start + i) % n + 1;
		o->roff = g->range.off;
		/* READ for a key with write access, WRITE for a key without it. */
		o->op = g->access & NIC_ACCESS_REMOTE_WRITE ? ROOST_OP_READ : ROOST_OP_WRITE;
		if (o->fault == FAULT_OUTSIDE) {
			o->op = g->access & NIC_ACCESS_REMOTE_READ ? ROOST_OP_READ
								   : ROOST_OP_FETCH_ADD;
			if (g->access == NIC_ACCESS_REMOTE_WRITE)
				o->op = ROOST_OP_WRITE;
			o->roff =
				g->range.off + g->range.len - (o->op == ROOST_OP_FETCH_ADD ? 0 : 7);
		}
		return true;
	}
	return false;
}
