/* SPDX-License-Identifier: BSD-2-Clause */
#include "runner_int.h"

#include <stdio.h>
#include <stdlib.h>

static uint32_t pick(struct rng *r, const uint32_t *list, unsigned n)
{
	return list[rng_below(r, n)];
}

static void pick_link(struct run *u)
{
	static const uint32_t windows[] = {0, 0, 1, 5000, 40000, 150000};
	static const uint32_t speeds[] = {0, 0, 1250, 5000};
	struct sim_params *q = &u->sp;
	struct rng *r = &u->r;

	q->delay_ns = 200 + rng_below(r, rng_below(r, 4) ? 5000 : 100000);
	q->jitter_ns = rng_below(r, 2) ? rng_below(r, q->delay_ns) : 0;
	q->bytes_per_us = pick(r, speeds, 4);
	q->window = pick(r, windows, 6);
	q->read_window = pick(r, windows, 6);
	switch (rng_below(r, 8)) {
	case 0:
		break;
	case 1:
		q->loss = 0.005;
		break;
	case 2:
		q->loss = 0.03;
		break;
	case 3:
		q->loss = 0.1;
		break;
	case 4:
		q->dup = 0.05;
		break;
	case 5:
		q->reorder = 0.05;
		break;
	case 6:
		q->corrupt = 0.03;
		break;
	default:
		q->loss = q->dup = q->reorder = q->corrupt = 0.02;
	}
	if (rng_below(r, 4) == 0)
		u->full = rng_double(r) * 0.5;
	if (rng_below(r, 3) == 0)
		u->pause_every = 20 + (unsigned)rng_below(r, 200);
	/* A NIC that is not polled for long overflows its receive queue. */
	u->lossy = q->loss > 0 || q->corrupt > 0 || u->pause_every || q->reorder > 0 || q->dup > 0;
}

static void make_programs(struct run *u, struct conn *c, const struct ep_params *p, enum fault fault)
{
	struct limits l = {.max_sge = p->max_sge,
			   .max_inline = p->max_inline,
			   .mtu = p->mtu,
			   .shared_words = SHARED_WORDS};

	side_init(&c->s[0], &u->r);
	side_init(&c->s[1], &u->r);
	for (int i = 0; i < 2; i++) {
		l.num_ops = 1 + (unsigned)rng_below(&u->r, 60);
		l.max_len = rng_below(&u->r, 3) ? 20000 : PROG_MAX_LEN;
		l.budget = 400000;
		if (fault && i == 1) /* the peer only listens: what it had begun would be cut off anywhere */
			l.num_ops = 0;
		l.fault = i == 0 ? fault : FAULT_NONE;
		direction_make(&c->d[i], &c->s[i], &c->s[1 - i], &l, &u->r);
	}
}

static void share(struct run *u, struct conn *c, int i)
{
	struct ep *e = &c->e[i];
	uint64_t *words = u->shared[e->nic_index];
	struct nic_mr_attr a = {.pd = e->pd,
				.addr = words,
				.len = SHARED_WORDS * 8,
				.iova = (uintptr_t)words,
				.access = NIC_ACCESS_LOCAL_WRITE | NIC_ACCESS_REMOTE_ATOMIC};

	if (nic_mr_register(e->nic, &a, &c->shared_key[i]))
		abort();
}

static void lend_keys(struct conn *c, int i)
{
	struct ep *e = &c->e[i];
	unsigned n = c->d[1 - i].num_inv;
	struct nic_mr_attr a = {.pd = e->pd, .addr = e->mem, .len = 64, .invalidatable = true};

	c->inv_key[i] = calloc(n + 1, sizeof(uint32_t));
	for (unsigned k = 0; k < n; k++)
		if (nic_mr_register(e->nic, &a, &c->inv_key[i][k]))
			abort();
}

static void make_conn(struct run *u, struct conn *c, enum fault fault)
{
	struct rng *r = &u->r;
	unsigned nic[2] = {(unsigned)rng_below(r, u->w.nics), (unsigned)rng_below(r, u->w.nics)};
	uint8_t pu[2] = {(uint8_t)rng_below(r, u->w.pus), (uint8_t)rng_below(r, u->w.pus)};
	struct ep_params p = {
		.mtu = u->mtu,
		.max_sge = 1 + (uint32_t)rng_below(r, rng_below(r, 2) ? 4 : ROOST_MAX_SGE),
		.max_inline = rng_below(r, 2) ? 0 : (uint32_t)rng_below(r, 300),
		.timeout = (uint8_t)(13 + rng_below(r, 6)),
		.rnr_retry = 7,
		.min_rnr_timer = (uint8_t)(1 + rng_below(r, 8)),
		.rd_atomic = (uint8_t)(1 + rng_below(r, NIC_MAX_RD_ATOMIC)),
	};

	if (nic[0] == nic[1])
		pu[1] = pu[0];
	make_programs(u, c, &p, fault);
	for (int i = 0; i < 2; i++) {
		struct ep *e = &c->e[i];

		p.pu = pu[i];
		p.depth = 1u << rng_below(r, 9);
		p.psn = rng_below(r, 2) ? 0xffffff - (uint32_t)rng_below(r, 300)
					: (uint32_t)rng_u64(r) & 0xffffff;
		p.mem = c->s[i].size + 4096;
		p.sig_all = rng_below(r, 5) == 0;
		/* What is left in an SRQ is not flushed, so not where something ends in error. */
		p.own_srq = !fault && rng_below(r, 3) == 0;
		ep_init(e, &u->w, nic[i], &p);
		memcpy(e->mem, c->s[i].model, AREA_LEN);
		share(u, c, i);
		lend_keys(c, i);
	}
	ep_connect(&c->e[0], &c->e[1]);
	trace_pair(&u->t, &c->e[0], &c->e[1]);
}

static void set_up(struct run *u)
{
	struct world_shape shape = {.nics = 2 + (unsigned)rng_below(&u->r, 3),
				    .pus = 1 + (unsigned)rng_below(&u->r, 2)};
	unsigned faulty = (unsigned)rng_below(&u->r, 12);

	pick_link(u);
	u->mtu = 256u << rng_below(&u->r, 5);
	world_init_shape(&u->w, &shape, u->seed, &u->sp);
	for (unsigned i = 0; i < u->w.nics; i++) {
		u->shared[i] = calloc(SHARED_WORDS, 8);
		for (unsigned k = 0; k < SHARED_WORDS; k++)
			u->got[i][k] = calloc(MAX_CONNS * 2 * 64, 1);
	}
	trace_start(&u->t, &u->w, u->sp.reorder > 0 || u->sp.dup > 0, u->mtu);
	u->t.full = u->full;
	u->num_conns = 1 + (unsigned)rng_below(&u->r, MAX_CONNS);
	u->faulty = faulty < u->num_conns;
	for (unsigned i = 0; i < u->num_conns; i++)
		make_conn(u, &u->c[i],
			  i == faulty ? (enum fault)(1 + rng_below(&u->r, FAULTS - 1)) : FAULT_NONE);
}

static void post_op(struct run *u, struct conn *c, int i, const struct op *o, uint64_t id)
{
	struct ep *e = &c->e[i], *peer = &c->e[1 - i];
	struct wr wr = {.op = o->op,
			.wr_id = id,
			.flags = (uint16_t)(o->flags & ~ROOST_WQE_INLINE)
					 ? o->flags & (uint16_t)~ROOST_WQE_INLINE
					 : 1 << 15,
			.num_sge = o->num_sge,
			.raddr = (uintptr_t)peer->mem + o->roff,
			.rkey = peer->key,
			.imm = o->imm,
			.swap_add = o->swap_add,
			.compare = o->compare};

	for (unsigned k = 0; k < o->num_sge; k++) {
		wr.sge[k] = ep_sge(e, o->sge[k].off, o->sge[k].len);
		if (!o->sge[k].len && o->len && rng_below(&u->r, 2))
			wr.sge[k].lkey = 0xbad; /* of an empty entry neither address nor key matter */
	}
	if (o->flags & ROOST_WQE_INLINE) {
		wr.inl = e->mem + o->sge[0].off;
		wr.inline_len = o->len;
	}
	if (o->shared) {
		wr.raddr = (uintptr_t)&u->shared[peer->nic_index][o->roff];
		wr.rkey = c->shared_key[1 - i];
		u->added[peer->nic_index][o->roff]++;
	}
	if (o->op == ROOST_OP_SEND_INV)
		wr.imm = c->inv_key[1 - i][o->imm];
	if (o->fault == FAULT_RKEY)
		wr.rkey ^= 0x40;
	if (o->fault == FAULT_BOUNDS)
		wr.raddr = (uintptr_t)peer->mem + ((peer->mem_len - (o->len - 1)) | 7) + 1;
	if (o->fault == FAULT_LKEY)
		wr.sge[0].lkey ^= 0x40;
	ep_post(e, &wr);
}

static bool sq_room(const struct ep *e)
{
	return atomic_load(&e->sqi.prod) - atomic_load(&e->sqi.cons) < e->p.depth;
}

static void post_some(struct run *u, struct conn *c, int i)
{
	struct direction *d = &c->d[i], *in = &c->d[1 - i];
	struct progress *at = &c->at[i];
	struct ep *e = &c->e[i];
	unsigned n = (unsigned)rng_below(&u->r, 12);

	while (n-- && at->recv_posted < in->num_receives &&
	       atomic_load(&e->rqi.prod) - atomic_load(&e->rqi.cons) < e->p.depth) {
		const struct receive *v = &in->receives[at->recv_posted];
		struct roost_sge sge[ROOST_MAX_SGE];

		for (unsigned k = 0; k < v->num_sge; k++)
			sge[k] = ep_sge(e, v->sge[k].off, v->sge[k].len);
		ep_post_recv(e, wr_id(u, at->recv_posted++), sge, v->num_sge);
	}
	n = (unsigned)rng_below(&u->r, 12);
	while (n-- && at->posted < d->num_ops && sq_room(e)) {
		post_op(u, c, i, &d->ops[at->posted], wr_id(u, at->posted));
		at->posted++;
	}
	if (at->posted == d->num_ops && is_faulty(d) && !at->extra_posted && sq_room(e)) {
		static const struct op extra = {
			.op = ROOST_OP_WRITE, .roff = AREA_TARGET, .num_sge = 1, .len = 8, .sge = {{0, 8}}};

		post_op(u, c, i, &extra, FLUSHED_ID);
		at->extra_posted = true;
	}
}

static bool side_done(struct conn *c, int i)
{
	struct direction *d = &c->d[i];
	struct progress *at = &c->at[i];
	unsigned total = d->num_ops + at->extra_posted;

	return at->posted == d->num_ops && atomic_load(&c->e[i].sqi.cons) == total &&
	       (!is_faulty(d) || at->extra_done) && at->recv_completed == c->d[1 - i].num_receives;
}

static bool carry_out(struct run *u)
{
	bool done;

	do {
		done = true;
		for (unsigned k = 0; k < u->num_conns; k++)
			for (int i = 0; i < 2; i++) {
				if (rng_below(&u->r, 2))
					post_some(u, &u->c[k], i);
				if (!run_poll_side(u, &u->c[k], i))
					return false;
				done &= side_done(&u->c[k], i);
			}
		if (u->pause_every && rng_below(&u->r, u->pause_every) == 0)
			u->w.paused_until[rng_below(&u->r, u->w.nics)] =
				world_now(&u->w) + rng_below(&u->r, 3 * MSEC);
		world_run(&u->w, world_now(&u->w) + rng_below(&u->r, 20000));
		if (world_now(&u->w) > VIRTUAL_MAX)
			return run_wrong(u, NULL, "not done after %llu s of virtual time", VIRTUAL_MAX / SEC);
	} while (!done);
	/* What is still under way are copies: they change nothing. */
	world_run(&u->w, world_now(&u->w) + 100 * MSEC);
	for (unsigned k = 0; k < u->num_conns; k++)
		if (!run_poll_side(u, &u->c[k], 0) || !run_poll_side(u, &u->c[k], 1))
			return false;
	return true;
}

static void add_stats(struct run *u, struct run_stats *st)
{
	st->packets += u->t.packets;
	st->virtual_ns += world_now(&u->w);
	for (unsigned n = 0; n < u->w.nics; n++) {
		struct nic_counters c;

		nic_counters(u->w.nic[n], &c);
		st->retransmitted += c.retransmitted_pkts;
	}
	for (unsigned k = 0; k < u->num_conns; k++)
		for (int i = 0; i < 2; i++) {
			st->ops += u->c[k].d[i].num_ops;
			for (unsigned o = 0; o < u->c[k].d[i].num_ops; o++) {
				st->bytes += u->c[k].d[i].ops[o].len;
				st->faults += u->c[k].d[i].ops[o].fault != FAULT_NONE;
			}
		}
}

static void tear_down(struct run *u)
{
	trace_stop(&u->t);
	for (unsigned k = 0; k < u->num_conns; k++)
		for (int i = 0; i < 2; i++) {
			if (nic_mr_deregister(u->c[k].e[i].nic, u->c[k].shared_key[i]))
				abort();
			for (unsigned n = 0; n < u->c[k].d[1 - i].num_inv; n++)
				if (nic_mr_deregister(u->c[k].e[i].nic, u->c[k].inv_key[i][n]))
					abort();
			free(u->c[k].inv_key[i]);
			ep_fini(&u->c[k].e[i]);
			side_free(&u->c[k].s[i]);
			direction_free(&u->c[k].d[i]);
		}
	for (unsigned n = 0; n < u->w.nics; n++) {
		free(u->shared[n]);
		for (unsigned k = 0; k < SHARED_WORDS; k++)
			free(u->got[n][k]);
	}
	world_fini(&u->w);
}

bool run_seed(uint64_t seed, bool verbose, FILE *live, struct run_stats *stats)
{
	struct run *u = calloc(1, sizeof(*u));
	bool ok;

	u->seed = seed;
	rng_seed(&u->r, seed);
	set_up(u);
	u->t.live = live;
	if (verbose)
		printf("seed %" PRIu64
		       ": %u NICs, %u PUs, %u connections; MTU %u, loss %g dup %g reorder %g corrupt %g, "
		       "delay %" PRIu64 " + %" PRIu64 " ns, %" PRIu64
		       " B/us, windows %u %u, pauses 1:%u, full %.2f\n",
		       seed, u->w.nics, u->w.pus, u->num_conns, u->mtu, u->sp.loss, u->sp.dup, u->sp.reorder,
		       u->sp.corrupt, u->sp.delay_ns, u->sp.jitter_ns, u->sp.bytes_per_us, u->sp.window,
		       u->sp.read_window, u->pause_every, u->full);
	ok = carry_out(u) && run_check_end(u);
	if (!ok)
		return false;
	add_stats(u, stats);
	tear_down(u);
	free(u);
	return true;
}
