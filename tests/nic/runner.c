/* SPDX-License-Identifier: BSD-2-Clause */
#include "runner_int.h"

#include "make_packet.h"

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
	static const uint32_t batches[] = {0, 0, 8, 128};
	struct sim_params *q = &u->sp;
	struct rng *r = &u->r;

	q->delay_ns = 200 + rng_below(r, rng_below(r, 4) ? 5000 : 100000);
	q->jitter_ns = rng_below(r, 2) ? rng_below(r, q->delay_ns) : 0;
	q->bytes_per_us = pick(r, speeds, 4);
	q->window = pick(r, windows, 6);
	q->read_window = pick(r, windows, 6);
	q->batch = (uint16_t)pick(r, batches, 4);
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
	if (u->seed % 3 == 0) /* not drawn, so that the rest of the run of a seed does not change */
		q->ce = u->seed % 2 ? 0.05 : 0.5;
	if (rng_below(r, 4) == 0)
		u->full = rng_double(r) * 0.5;
	if (rng_below(r, 3) == 0)
		u->pause_every = 20 + (unsigned)rng_below(r, 200);
	if (rng_below(r, 4) == 0)
		u->breaks_left = 1 + (unsigned)rng_below(r, 3);
	/* A NIC that is not polled for long overflows its receive queue. */
	u->lossy = q->loss > 0 || q->corrupt > 0 || q->reorder > 0 || q->dup > 0 ||
		   u->pause_every || u->breaks_left;
}

static void make_programs(struct run *u, struct conn *c, const struct ep_params *p,
			  enum fault fault)
{
	struct limits l[2];

	for (int i = 0; i < 2; i++) {
		bool pooled = c->pool[1 - i];

		side_init(&c->s[i], &u->r);
		l[i] = (struct limits){.type = c->uc ? NIC_QPT_UC : NIC_QPT_RC,
				       .max_sge = p->max_sge,
				       .max_inline = p->max_inline,
				       .mtu = p->mtu,
				       .shared_words = SHARED_WORDS,
				       .num_ops = 1 + (unsigned)rng_below(&u->r, 60),
				       .max_len = rng_below(&u->r, 3) ? 20000 : PROG_MAX_LEN,
				       .budget = 400000,
				       .max_send = pooled ? POOL_SLOT_LEN : 0,
				       .pooled = pooled,
				       .calls = c->calls[i],
				       .both_call = c->calls[0] && c->calls[1],
				       .imm_replies = c->pool[i],
				       .fault = i == 0 ? fault : FAULT_NONE};
	}
	programs_make(c->d, c->s, l, &u->r);
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

/* Makes the keys of this side that its peer may use from the beginning. */
static void give_keys(struct conn *c, int i)
{
	struct ep *e = &c->e[i];
	struct side *s = &c->s[i];
	struct nic_mr_attr all = {.pd = e->pd,
				  .addr = e->mem,
				  .len = e->mem_len,
				  .iova = (uintptr_t)e->mem,
				  .access = NIC_ACCESS_LOCAL_WRITE | NIC_ACCESS_MW_BIND};

	if (nic_mr_register(e->nic, &all, &c->bind_key[i]))
		abort();
	for (unsigned k = 0; k < s->num_regions; k++) {
		const struct grant *g = &s->grants[k];
		struct nic_mr_attr a = {.pd = e->pd,
					.addr = e->mem + g->range.off,
					.len = g->range.len,
					.iova = (uintptr_t)e->mem + g->range.off,
					.access = g->access | NIC_ACCESS_LOCAL_WRITE,
					.invalidatable = true};

		if (nic_mr_register(e->nic, &a, &c->key[i][k]))
			abort();
	}
	for (unsigned k = 0; k < s->num_windows; k++)
		if (nic_mw_alloc(e->nic, e->pd, s->window_type[k], 0, &c->window[i][k]))
			abort();
}

struct pool *run_shared_pool(struct run *u, unsigned nic, unsigned pu)
{
	if (!u->pool_used[nic][pu])
		pool_init_shared(&u->pool[nic][pu], u->w.nic[nic]);
	u->pool_used[nic][pu] = true;
	return &u->pool[nic][pu];
}

static uint32_t pick_psn(struct rng *r)
{
	return rng_below(r, 2) ? 0xffffff - (uint32_t)rng_below(r, 300)
			       : (uint32_t)rng_u64(r) & 0xffffff;
}

uint32_t run_pick_mtu(struct run *u)
{
	return u->mtu ? u->mtu : 256u << rng_below(&u->r, 5);
}

void run_make_ep(struct run *u, struct ep *e, struct ep_params *p, unsigned nic, uint32_t used,
		 struct pool *pool, struct pool *own)
{
	uint32_t base = (used + 1024) & ~7u;

	p->depth = 1u << rng_below(&u->r, 9);
	p->mem = base + 4096;
	if (pool == own) {
		p->depth *= POOL_DEPTH;
		p->mem += POOL_SLOTS * POOL_SLOT_LEN;
		pool_init_own(own, e, base);
	}
	p->cq_depth = 4 * (p->depth < POOL_DEPTH ? POOL_DEPTH : p->depth);
	p->srq = pool && pool != own ? &pool->srq : NULL;
	p->psn = pick_psn(&u->r);
	p->sig_all = rng_below(&u->r, 5) == 0;
	ep_init(e, &u->w, nic, p);
}

static bool has_family(const struct nic *n, bool v4)
{
	for (unsigned i = 0; i < nic_ports(n); i++)
		if (pkt_addr_is_v4(&nic_port(n, i, 0)->addr) == v4)
			return true;
	return false;
}

/* Picks an address of the NIC, of the family of `like` if it has one; NULL: any. */
static void pick_address(struct run *u, unsigned nic, const struct pkt_addr *like,
			 struct ep_params *p)
{
	const struct nic *n = u->w.nic[nic];
	struct nic_gid g[NIC_MAX_PORTS];
	unsigned count = 0;

	for (unsigned port = 1; port <= nic_port_nums(n); port++)
		for (unsigned i = 0; i < nic_gids(n, port); i++) {
			nic_gid(n, port, i, &g[count]);
			if (!like || pkt_addr_is_v4(&nic_port(n, g[count].port, 0)->addr) ==
					     pkt_addr_is_v4(like))
				count++;
		}
	count = (unsigned)rng_below(&u->r, count);
	p->port = (uint8_t)(g[count].port_num - 1);
	p->gid = (uint8_t)g[count].index;
}

/* Sometimes limits a QP's calls in flight, or its steps in a turn. */
static void limit_calls(struct run *u, const struct conn *c, int i)
{
	const struct ep *e = &c->e[i];
	bool many = c->calls[i] || rng_below(&u->r, 2);
	struct runtime_quota q = {.calls = many ? 0 : 2 + (uint32_t)rng_below(&u->r, 4),
				  .steps = rng_below(&u->r, 2) ? 0
							       : 1 + (uint32_t)rng_below(&u->r, 8)};

	if (runtime_set_quota(u->runtime[e->nic_index], e->qp, &q))
		abort();
}

/*
 * Both sides make calls only if neither can lack a slot: replies wait behind refused requests, so
 * each side would wait for the other forever (docs/kernels.md).
 */
static void pick_callers(struct run *u, struct conn *c, const unsigned nic[2])
{
	int one = (int)rng_below(&u->r, 2);

	c->calls[one] = true;
	c->calls[1 - one] = !u->few_slots[nic[0]] && !u->few_slots[nic[1]] && rng_below(&u->r, 2);
}

static void make_conn(struct run *u, struct conn *c, enum fault fault)
{
	struct rng *r = &u->r;
	unsigned nic[2] = {(unsigned)rng_below(r, u->w.nics), (unsigned)rng_below(r, u->w.nics)};
	uint8_t pu[2] = {(uint8_t)rng_below(r, u->w.pus), (uint8_t)rng_below(r, u->w.pus)};
	struct ep_params p = {
		.mtu = run_pick_mtu(u),
		.max_sge = 1 + (uint32_t)rng_below(r, rng_below(r, 2) ? 4 : ROOST_MAX_SGE),
		.max_inline = rng_below(r, 2) ? 0 : (uint32_t)rng_below(r, 300),
		.timeout = (uint8_t)(13 + rng_below(r, 6)),
		.rnr_retry = 7,
		.min_rnr_timer = (uint8_t)(1 + rng_below(r, 8)),
		.rd_atomic = (uint8_t)(1 + rng_below(r, rng_below(r, 2) ? 8 : NIC_MAX_RD_ATOMIC)),
	};

	/* All NICs have an address of the first family, and some of the other. */
	const struct pkt_addr *common = &nic_port(u->w.nic[0], 0, 0)->addr;

	if (nic[0] == nic[1])
		pu[1] = pu[0];
	if (has_family(u->w.nic[nic[1]], !pkt_addr_is_v4(common)))
		common = NULL;
	c->uc = fault < FAULTS_LOCAL && rng_below(r, 4) == 0;
	p.rpc = !c->uc && !fault && rng_below(r, 3) == 0;
	if (p.rpc)
		pick_callers(u, c, nic);
	p.type = c->uc ? NIC_QPT_UC : NIC_QPT_RC;
	for (int i = 0; i < 2; i++) {
		/* Receives of an SRQ are not flushed, so there is none in runs with errors. */
		bool shared = !fault && rng_below(r, 3) == 0;

		c->pool[i] = shared ? run_shared_pool(u, nic[i], pu[i]) : c->uc ? &c->own[i] : NULL;
	}
	make_programs(u, c, &p, fault);
	for (int i = 0; i < 2; i++) {
		struct ep *e = &c->e[i];

		p.pu = pu[i];
		pick_address(u, nic[i], i ? ep_addr(&c->e[0]) : common, &p);
		p.own_srq = !fault && !c->pool[i] && rng_below(r, 3) == 0;
		run_make_ep(u, e, &p, nic[i], c->s[i].size, c->pool[i], &c->own[i]);
		memcpy(e->mem, c->s[i].model, AREA_LEN);
		share(u, c, i);
		give_keys(c, i);
	}
	ep_connect(&c->e[0], &c->e[1]);
	for (int i = 0; p.rpc && i < 2; i++)
		limit_calls(u, c, i);
	trace_pair(&u->t, &c->e[0], &c->e[1]);
}

static int link_stopped(void *ctx, const struct pkt_addr *src, const uint8_t *bth, uint32_t len)
{
	struct run *u = ctx;

	unsigned i = world_nic_of(&u->w, src);

	return i < u->w.nics && world_now(&u->w) < u->stopped_until[i];
}

/* Each NIC serves calls, with many slots a QP or few. */
static void serve_calls(struct run *u)
{
	for (unsigned i = 0; i < u->w.nics; i++) {
		struct runtime_config cfg = {0};

		u->few_slots[i] = rng_below(&u->r, 2);
		/* one for a call that waits for its payload, and one for others */
		if (u->few_slots[i])
			cfg.calls = 2 + (unsigned)rng_below(&u->r, 6);
		if (runtime_create(u->w.nic[i], &cfg, &u->runtime[i]) ||
		    runtime_deploy(u->runtime[i], &tally_kernel, &u->tally[i]))
			abort();
	}
}

/* Adds addresses of both families, on one port or two. */
static void add_addresses(struct run *u)
{
	for (unsigned i = 0; i < u->w.nics; i++)
		for (unsigned k = (unsigned)rng_below(&u->r, 4); k > 0; k--) {
			unsigned port = 1 + (unsigned)rng_below(&u->r, u->w.ports);
			char text[32];

			snprintf(text, sizeof(text),
				 rng_below(&u->r, 2) ? "fd00::%x:%x" : "10.0.%u.%u", 4 + k, i + 1);
			if (world_add_addr(&u->w, i, port, text))
				abort();
		}
}

static void set_up(struct run *u)
{
	bool various = rng_below(&u->r, 3) == 0;
	struct world_shape shape = {.nics = 2 +
					    (unsigned)rng_below(&u->r, rng_below(&u->r, 3) ? 3 : 7),
				    .pus = 1 + (unsigned)rng_below(&u->r, 2),
				    .ports = various ? 1 + (unsigned)rng_below(&u->r, 2) : 1,
				    .v6 = u->seed % 3 == 0};
	unsigned faulty = (unsigned)rng_below(&u->r, 6);

	pick_link(u);
	u->mtu = rng_below(&u->r, 4) ? 256u << rng_below(&u->r, 5) : 0;
	world_init_shape(&u->w, &shape, u->seed, &u->sp);
	if (various)
		add_addresses(u);
	serve_calls(u);
	sim_set_filter(u->w.sim, link_stopped, u);
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
			  i == faulty ? (enum fault)(1 + rng_below(&u->r, FAULTS - 1))
				      : FAULT_NONE);
	crowd_make(u);
}

/* Runs a step of all programs. Returns false after an error. */
static bool step_all(struct run *u, bool *done)
{
	for (unsigned k = 0; k < u->num_conns; k++)
		for (int i = 0; i < 2; i++) {
			if (rng_below(&u->r, 2))
				run_post_side(u, &u->c[k], i);
			if (!run_poll_side(u, &u->c[k], i))
				return false;
			*done &= run_side_done(u, &u->c[k], i);
		}
	if (!crowd_step(u, done))
		return false;
	for (unsigned n = 0; n < u->w.nics; n++)
		for (unsigned pu = 0; pu < u->w.pus; pu++)
			if (u->pool_used[n][pu] && !pool_check_limit(&u->pool[n][pu], &u->r))
				return run_wrong(
					u, NULL,
					"NIC %u: a limit event is missing, or was not asked for",
					n);
	return true;
}

/*
 * Sometimes stops a NIC, or loses all its packets, for a time. Long times are rare, so that retries
 * are not used up (at least 7 of 33 ms and more).
 */
static void disturb(struct run *u)
{
	struct rng *r = &u->r;
	uint64_t end;

	if (u->pause_every && rng_below(r, u->pause_every) == 0)
		u->w.paused_until[rng_below(r, u->w.nics)] =
			world_now(&u->w) + rng_below(r, 3 * MSEC);
	if (!u->breaks_left || rng_below(r, 200))
		return;
	u->breaks_left--;
	end = world_now(&u->w) + rng_below(r, rng_below(r, 2) ? 40 * MSEC : 200 * MSEC);
	if (rng_below(r, 2))
		u->w.paused_until[rng_below(r, u->w.nics)] = end;
	else
		u->stopped_until[rng_below(r, u->w.nics)] = end;
}

/*
 * Repeats a packet of a connection with another source address than the peer's, or with another
 * address of the NIC than the connection's. The rest of the packet is valid.
 */
static void forge(struct run *u)
{
	struct trace *t = &u->t;
	struct pkt_addr src = t->sample_src, dst = t->sample_dst, other;
	unsigned nic = (unsigned)rng_below(&u->r, u->w.nics);

	if (!t->sample_len)
		return;
	other = u->w.port[nic][rng_below(&u->r, nic_ports(u->w.nic[nic]))][0]->addr;
	if (pkt_addr_is_v4(&other) != pkt_addr_is_v4(&src) || pkt_addr_eq(&other, &src) ||
	    pkt_addr_eq(&other, &dst))
		return;
	if (nic == world_nic_of(&u->w, &dst) && rng_below(&u->r, 2))
		dst = other;
	else
		src = other;
	pkt_seal(t->sample, t->sample_len, &src, &dst);
	sim_inject(u->w.sim, &src, &dst, t->sample, t->sample_len);
	t->sample_len = 0;
}

static bool not_done(struct run *u)
{
	run_wrong(u, NULL, "not done after %llu s of virtual time", VIRTUAL_MAX / SEC);
	for (unsigned k = 0; k < u->num_conns; k++)
		for (int i = 0; i < 2; i++) {
			struct conn *c = &u->c[k];

			if (!run_side_done(u, c, i))
				fprintf(stderr,
					"QP 0x%06x: %u of %u posted, %u completed, %u of %u received%s\n",
					nic_qp_num(c->e[i].qp), c->at[i].posted, c->d[i].num_ops,
					c->at[i].completed, c->at[i].recv_completed,
					c->d[1 - i].num_receives,
					calls_done(u, c, i) ? "" : ", calls not answered");
		}
	return false;
}

static bool carry_out(struct run *u)
{
	bool done;

	do {
		done = true;
		if (!step_all(u, &done))
			return false;
		disturb(u);
		if (rng_below(&u->r, 16) == 0)
			forge(u);
		world_run(&u->w, world_now(&u->w) + rng_below(&u->r, 20000));
		if (world_now(&u->w) > VIRTUAL_MAX)
			return not_done(u);
	} while (!done);
	/* Only copies, which change nothing, and unreliable packets are still in flight. */
	memset(u->w.paused_until, 0, sizeof(u->w.paused_until));
	world_run(&u->w, world_now(&u->w) + 100 * MSEC);
	return step_all(u, &done);
}

static void count_ops(const struct direction *d, struct run_stats *st)
{
	st->ops += d->num_ops;
	st->calls += d->num_calls;
	for (unsigned o = 0; o < d->num_ops; o++) {
		st->bytes += d->ops[o].len;
		st->faults += d->ops[o].fault != FAULT_NONE;
	}
}

static void add_stats(struct run *u, struct run_stats *st)
{
	st->packets += u->t.packets;
	st->virtual_ns += world_now(&u->w);
	for (unsigned n = 0; n < u->w.nics; n++) {
		struct nic_counters c;

		nic_counters(u->w.nic[n], &c);
		st->retransmitted += c.retransmitted_pkts + c.tail_loss_probe;
		st->loose_sent += u->t.loose[n].sent;
		st->loose_got += u->t.loose[n].got;
	}
	for (unsigned k = 0; k < u->num_conns; k++)
		for (int i = 0; i < 2; i++)
			count_ops(&u->c[k].d[i], st);
	for (unsigned i = 0; i < u->crowd.n; i++)
		count_ops(&u->crowd.d[i], st);
}

static void close_side(struct conn *c, int i)
{
	struct ep *e = &c->e[i];

	for (unsigned n = 0; n < c->s[i].num_windows; n++)
		if (nic_mw_dealloc(e->nic, c->window[i][n]))
			abort();
	for (unsigned n = 0; n < c->s[i].num_regions; n++)
		if (nic_mr_deregister(e->nic, c->key[i][n]))
			abort();
	if (nic_mr_deregister(e->nic, c->shared_key[i]) ||
	    nic_mr_deregister(e->nic, c->bind_key[i]))
		abort();
	ep_fini(e);
	side_free(&c->s[i]);
	direction_free(&c->d[i]);
}

static void tear_down(struct run *u)
{
	trace_stop(&u->t);
	for (unsigned k = 0; k < u->num_conns; k++)
		for (int i = 0; i < 2; i++)
			close_side(&u->c[k], i);
	crowd_close(&u->crowd);
	for (unsigned n = 0; n < u->w.nics; n++) {
		for (unsigned pu = 0; pu < u->w.pus; pu++)
			if (u->pool_used[n][pu])
				pool_fini(&u->pool[n][pu]);
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
		       ": %u NICs, %u PUs, %u connections, %u datagram QPs; MTU %u, loss %g dup %g reorder %g "
		       "corrupt %g marked %g, delay %" PRIu64 " + %" PRIu64 " ns, %" PRIu64
		       " B/us, windows %u %u, batches %u, pauses 1:%u, long breaks %u, full %.2f\n",
		       seed, u->w.nics, u->w.pus, u->num_conns, u->crowd.n, u->mtu, u->sp.loss,
		       u->sp.dup, u->sp.reorder, u->sp.corrupt, u->sp.ce, u->sp.delay_ns,
		       u->sp.jitter_ns, u->sp.bytes_per_us, u->sp.window, u->sp.read_window,
		       u->sp.batch, u->pause_every, u->breaks_left, u->full);
	ok = carry_out(u) && run_check_end(u);
	if (!ok)
		return false;
	add_stats(u, stats);
	tear_down(u);
	free(u);
	return true;
}
