/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Datagrams: endpoints that send to each other, and to groups that they join and leave meanwhile.
 *
 * The link may lose, repeat or delay a datagram. A NIC delivers each datagram that it receives once
 * to exactly those QPs for which it is at that moment: to the QP that it names, or to all QPs that
 * are attached to the group and have its Q_Key, including the sender. The trace sees each packet
 * that a NIC receives, so the model counts the datagrams that are due to each QP. A QP gets at most
 * these; the NIC must have counted the others as dropped because no receive was posted. On a link
 * without faults, each QP that is a member when a datagram leaves, and remains one, gets it.
 */
#include "runner_int.h"

#include <errno.h>
#include <stdlib.h>

#define GRH 40

/* ---- setting up ---- */

static void make_groups(struct run *u)
{
	static const uint32_t qkeys[] = {0x11111111, 0x11111111, 0x22222222};
	struct crowd *k = &u->crowd;

	k->num_groups = (unsigned)rng_below(&u->r, MAX_GROUPS + 1);
	for (unsigned g = 0; g < k->num_groups; g++) {
		/* Mostly of the family that all NICs have. */
		bool v6 = (u->seed % 3 == 0) != (rng_below(&u->r, 4) == 0);
		char text[32];

		snprintf(text, sizeof(text), v6 ? "ff0e::7:%x" : "239.7.0.%u", g + 1);
		if (pkt_addr_parse(text, &k->group[g].addr))
			abort();
		k->group[g].qkey = qkeys[rng_below(&u->r, 3)];
	}
}

static const struct pkt_addr *address(const struct nic *n, unsigned port_num, unsigned gid)
{
	struct nic_gid g;

	return nic_gid(n, port_num, gid, &g) ? &nic_port(n, g.port, 0)->addr : NULL;
}

/* Picks a GID of the family on the endpoint's port; -1: it has none. */
static int pick_gid(struct run *u, unsigned i, bool v4)
{
	const struct ep *e = &u->crowd.e[i];
	unsigned n = nic_gids(e->nic, e->p.port + 1u), start = (unsigned)rng_below(&u->r, n);

	for (unsigned k = 0; k < n; k++)
		if (pkt_addr_is_v4(address(e->nic, e->p.port + 1u, (start + k) % n)) == v4)
			return (int)((start + k) % n);
	return -1;
}

/* Makes the address handle of endpoint i for `to`, another endpoint or a group. */
static void make_way(struct run *u, unsigned i, unsigned to)
{
	struct crowd *k = &u->crowd;
	struct ep *e = &k->e[i];
	struct nic_ah_attr a = {.pd = e->pd, .port = (uint8_t)(e->p.port + 1)};
	int gid = -1, theirs;

	if (to >= k->n) {
		a.dgid = k->group[to - k->n].addr;
		gid = pick_gid(u, i, pkt_addr_is_v4(&a.dgid));
	} else {
		bool v4 = rng_below(&u->r, 2);

		for (int both = 0; both < 2 && gid < 0; both++, v4 = !v4) {
			theirs = pick_gid(u, to, v4);
			gid = theirs < 0 ? -1 : pick_gid(u, i, v4);
			if (gid >= 0)
				a.dgid = *address(k->e[to].nic, k->e[to].p.port + 1u,
						  (unsigned)theirs);
		}
	}
	if (gid < 0)
		return;
	a.sgid_index = (uint8_t)gid;
	k->src[i][to] = *address(e->nic, e->p.port + 1u, (unsigned)gid);
	k->dst[i][to] = a.dgid;
	if (nic_ah_create(e->nic, &a, &k->ah[i][to]))
		abort();
}

static void make_endpoint(struct run *u, unsigned i)
{
	struct crowd *k = &u->crowd;
	struct rng *r = &u->r;
	struct ep_params p = {.type = NIC_QPT_UD,
			      .pu = (uint8_t)rng_below(r, u->w.pus),
			      .port = (uint8_t)rng_below(r, u->w.ports),
			      .mtu = run_pick_mtu(u),
			      .max_sge = 1 + (uint32_t)rng_below(r, 4),
			      .max_inline = rng_below(r, 2) ? 0 : (uint32_t)rng_below(r, 300),
			      .qkey = rng_below(r, 4) ? 0x11111111 : 0x22222222};
	unsigned nic = (unsigned)rng_below(r, u->w.nics);
	struct nic_qp_attr a;

	side_init(&k->s[i], r);
	k->pool[i] = rng_below(r, 3) ? &k->own[i] : run_shared_pool(u, nic, p.pu);
	run_make_ep(u, &k->e[i], &p, nic, AREA_LEN, k->pool[i], &k->own[i]);
	memcpy(k->e[i].mem, k->s[i].model, AREA_LEN);
	a = (struct nic_qp_attr){.sq_psn = k->e[i].p.psn};
	ep_to_init(&k->e[i]);
	ep_to_rtr(&k->e[i], &a);
	ep_to_rts(&k->e[i], &a);
}

static void make_program(struct run *u, unsigned i)
{
	struct crowd *k = &u->crowd;
	const struct ep_params *p = &k->e[i].p;
	struct limits l = {.type = NIC_QPT_UD,
			   .num_ops = (unsigned)rng_below(&u->r, MAX_SENT),
			   .max_sge = p->max_sge,
			   .max_inline = p->max_inline,
			   .mtu = p->mtu,
			   .max_len = p->mtu,
			   .receivers = k->n + k->num_groups};
	unsigned sent = 0;

	datagrams_make(&k->d[i], &k->s[i], &l, &u->r);
	for (unsigned n = 0; n < k->d[i].num_ops; n++) {
		struct op *o = &k->d[i].ops[n];

		if (!k->ah[i][o->to])
			o->to = i;
		if (run_takes_receive(o))
			k->request[i][sent++] = n;
	}
}

static unsigned datagram(void *ctx, const struct port *port, const struct trace_packet *r);

void crowd_make(struct run *u)
{
	struct crowd *k = &u->crowd;

	if (rng_below(&u->r, 2))
		return;
	k->n = 2 + (unsigned)rng_below(&u->r, MAX_CROWD - 1);
	make_groups(u);
	for (unsigned i = 0; i < k->n; i++)
		make_endpoint(u, i);
	for (unsigned i = 0; i < k->n; i++)
		for (unsigned to = 0; to < k->n + k->num_groups; to++)
			make_way(u, i, to);
	for (unsigned i = 0; i < k->n; i++)
		make_program(u, i);
	u->t.datagram = datagram;
	u->t.ctx = u;
}

void crowd_close(struct crowd *k)
{
	for (unsigned i = 0; i < k->n; i++)
		for (unsigned to = 0; to < k->n + k->num_groups; to++)
			if (k->ah[i][to] && nic_ah_destroy(k->e[i].nic, k->ah[i][to]))
				abort();
	for (unsigned i = 0; i < k->n; i++) {
		ep_fini(&k->e[i]); /* of all its groups */
		side_free(&k->s[i]);
		direction_free(&k->d[i]);
	}
}

/* ---- datagrams due to each endpoint ---- */

static unsigned sender_of(const struct crowd *k, const struct trace_packet *r, unsigned *op)
{
	for (unsigned i = 0; i < k->n; i++)
		if (nic_qp_num(k->e[i].qp) == r->v.sqpn &&
		    world_nic_of(k->e[i].w, &r->src) == k->e[i].nic_index) {
			*op = k->request[i][(r->v.psn - k->e[i].p.psn) & (MAX_SENT - 1)];
			return i;
		}
	abort();
}

static const struct group *group_of(const struct crowd *k, const struct pkt_addr *addr)
{
	for (unsigned g = 0; g < k->num_groups; g++)
		if (pkt_addr_eq(&k->group[g].addr, addr))
			return &k->group[g];
	return NULL;
}

/*
 * Records the present members when a datagram leaves. They get it if the link has no faults and
 * they remain members.
 */
static void left(struct crowd *k, unsigned from, unsigned op, const struct trace_packet *r)
{
	const struct group *g = group_of(k, &r->dst);

	for (unsigned i = 0; i < k->n; i++)
		if (g ? g->in[i] && k->e[i].p.qkey == r->v.qkey : i == k->d[from].ops[op].to)
			k->owed[from][op] |= (uint8_t)(1u << i);
}

/* Records a datagram that a port receives. Returns the number of QPs that get it. */
static unsigned taken(struct run *u, unsigned from, unsigned op, const struct port *port,
		      const struct trace_packet *r)
{
	struct crowd *k = &u->crowd;
	const struct group *g = group_of(k, &r->dst);
	unsigned nic = world_nic_of(&u->w, &port->addr), members = 0, n = 0;
	struct nic_gid at;

	for (unsigned i = 0; i < k->n; i++) {
		const struct ep *e = &k->e[i];

		if (e->nic_index != nic || !nic_gid_of(e->nic, &port->addr, &at) ||
		    at.port_num != e->p.port + 1u)
			continue;
		if (g ? !g->in[i] || nic_qp_pu(e->qp) != port->lane
		      : nic_qp_num(e->qp) != r->v.dqpn)
			continue;
		members++;
		if (e->p.qkey != r->v.qkey) {
			k->bad_qkey[nic]++;
			continue;
		}
		k->due[i][from][op]++;
		n++;
	}
	u->t.loose[nic].stray += !members;
	return n;
}

static unsigned datagram(void *ctx, const struct port *port, const struct trace_packet *r)
{
	struct crowd *k = &((struct run *)ctx)->crowd;
	unsigned op = 0, from = sender_of(k, r, &op);

	if (r->in)
		return taken(ctx, from, op, port, r);
	left(k, from, op, r);
	return 0;
}

/* No datagrams of this group are due to the endpoint any more. */
static void forget_owed(struct crowd *k, unsigned i, unsigned g)
{
	for (unsigned from = 0; from < k->n; from++)
		for (unsigned op = 0; op < k->d[from].num_ops; op++)
			if (k->d[from].ops[op].to == k->n + g)
				k->owed[from][op] &= (uint8_t) ~(1u << i);
}

/* ---- steps ---- */

static bool join_or_leave(struct run *u, unsigned i, unsigned g)
{
	struct crowd *k = &u->crowd;
	struct ep *e = &k->e[i];
	struct group *group = &k->group[g];
	bool in = group->in[i], leaves = in ? rng_below(&u->r, 4) : rng_below(&u->r, 8) == 0;
	int want = 0, rc;

	if (leaves) {
		rc = nic_qp_detach(e->nic, e->qp, &group->addr);
		want = in ? 0 : -ENOENT;
		group->in[i] = false;
		forget_owed(k, i, g);
	} else {
		/* A member may attach again. */
		rc = nic_qp_attach(e->nic, e->qp, &group->addr);
		if (pick_gid(u, i, pkt_addr_is_v4(&group->addr)) < 0)
			want = -EAFNOSUPPORT;
		else
			group->in[i] = true;
	}
	return rc == want ||
	       run_wrong(u, e, "%s group %u: %d, not %d", leaves ? "leaves" : "joins", g, rc, want);
}

static void post(struct run *u, unsigned i)
{
	struct crowd *k = &u->crowd;
	struct direction *d = &k->d[i];
	struct progress *at = &k->at[i];
	unsigned n = (unsigned)rng_below(&u->r, 12);

	pool_post(k->pool[i], (unsigned)rng_below(&u->r, 12), &u->r);
	while (n-- && at->posted < d->num_ops && run_sq_space(&k->e[i])) {
		const struct op *o = &d->ops[at->posted];
		struct wr wr = run_begin(o, wr_id(u, at->posted));
		bool group = o->to >= k->n;

		run_set_local(u, &k->e[i], o, &wr);
		wr.raddr = ROOST_UD_ADDR(k->ah[i][o->to],
					 group ? NIC_MCAST_QPN : nic_qp_num(k->e[o->to].qp));
		wr.rkey = group ? k->group[o->to - k->n].qkey : k->e[o->to].p.qkey;
		ep_post(&k->e[i], &wr);
		at->posted++;
	}
}

/*
 * Checks the IP header of a datagram: addresses, and a length of at least IP, UDP, BTH, DETH,
 * payload and ICRC.
 */
static bool check_grh(const struct pkt_addr *src, const struct pkt_addr *dst, const uint8_t *grh,
		      uint32_t len)
{
	if (!pkt_addr_is_v4(dst))
		return grh[0] >> 4 == 6 && memcmp(grh + 8, src->b, 16) == 0 &&
		       memcmp(grh + 24, dst->b, 16) == 0 &&
		       (grh[4] << 8 | grh[5]) >= (int)(8 + 12 + 8 + len + 4);
	/* IPv4: in the last 20 bytes, addresses last. */
	return memcmp(grh + 32, src->b + 12, 4) == 0 && memcmp(grh + 36, dst->b + 12, 4) == 0 &&
	       grh[20] == 0x45 && (grh[22] << 8 | grh[23]) >= (int)(20 + 8 + 12 + 8 + len + 4);
}

/* Finds the request that has arrived, among those that are due. Returns false if there is none. */
static bool find(struct run *u, unsigned i, unsigned from, const struct roost_cqe *cqe,
		 const uint8_t *slot)
{
	struct crowd *k = &u->crowd;
	uint32_t len = cqe->byte_len - GRH;

	for (unsigned n = 0; n < k->at[from].posted; n++) {
		const struct op *o = &k->d[from].ops[n];

		if (k->got[i][from][n] >= k->due[i][from][n] ||
		    (n < k->matched[i][from][o->to] && !run_disorder(u)) ||
		    !run_is_message(o, &k->s[from], cqe, slot + GRH, len) ||
		    !check_grh(&k->src[from][o->to], &k->dst[from][o->to], slot, len))
			continue;
		k->got[i][from][n]++;
		k->matched[i][from][o->to] = n + 1;
		return true;
	}
	return false;
}

static bool check_datagram(struct run *u, unsigned i, const struct roost_cqe *cqe)
{
	struct crowd *k = &u->crowd;
	struct ep *e = &k->e[i];
	uint8_t *slot = pool_slot(k->pool[i], cqe->wr_id);
	bool found = false;

	if (!slot || cqe->status || !(cqe->flags & NIC_WC_GRH) || cqe->byte_len < GRH)
		return run_wrong(u, e,
				 "datagram 0x%" PRIx64 ", status %u, from 0x%x, flags %u, %u bytes",
				 cqe->wr_id, cqe->status, cqe->src_qpn, cqe->flags, cqe->byte_len);
	/* QPs of different NICs may have the same number. */
	for (unsigned from = 0; from < k->n && !found; from++)
		found = nic_qp_num(k->e[from].qp) == cqe->src_qpn && find(u, i, from, cqe, slot);
	if (!found)
		return run_wrong(u, e, "%u bytes from 0x%x of no datagram that can come now",
				 cqe->byte_len - GRH, cqe->src_qpn);
	if (!pool_rest_untouched(slot, cqe->byte_len))
		return run_wrong(u, e, "what is behind the datagram has changed");
	pool_free(k->pool[i], cqe->wr_id);
	u->t.loose[e->nic_index].got++;
	return true;
}

static bool poll(struct run *u, unsigned i)
{
	struct crowd *k = &u->crowd;
	struct progress *at = &k->at[i];
	struct roost_cqe cqe;

	while (ep_poll_send(&k->e[i], &cqe)) {
		while (at->completed < at->posted && !k->e[i].p.sig_all &&
		       !(k->d[i].ops[at->completed].flags & ROOST_WQE_SIGNALED))
			at->completed++;
		if (at->completed == at->posted)
			return run_wrong(u, &k->e[i], "a completion too many: 0x%" PRIx64,
					 cqe.wr_id);
		if (!run_check_sent(u, &k->e[i], &k->d[i].ops[at->completed], at->completed, &cqe))
			return false;
		at->completed++;
	}
	while (ep_poll_recv(&k->e[i], &cqe))
		if (!check_datagram(u, i, &cqe))
			return false;
	return true;
}

bool crowd_step(struct run *u, bool *done)
{
	struct crowd *k = &u->crowd;

	for (unsigned i = 0; i < k->n; i++) {
		if (k->num_groups && rng_below(&u->r, 8) == 0 &&
		    !join_or_leave(u, i, (unsigned)rng_below(&u->r, k->num_groups)))
			return false;
		if (rng_below(&u->r, 2))
			post(u, i);
		if (!poll(u, i))
			return false;
		*done &= run_sent_all(&k->e[i], &k->d[i], &k->at[i]);
	}
	return true;
}

/* ---- at the end ---- */

static bool check_owed(struct run *u, unsigned from, unsigned op)
{
	struct crowd *k = &u->crowd;

	for (unsigned i = 0; i < k->n; i++)
		if (k->owed[from][op] >> i & 1 && k->due[i][from][op] != 1)
			return run_wrong(u, &k->e[i],
					 "request %u of QP 0x%06x has come to its NIC %u times", op,
					 nic_qp_num(k->e[from].qp), k->due[i][from][op]);
	return true;
}

bool crowd_check_end(struct run *u)
{
	struct crowd *k = &u->crowd;

	for (unsigned i = 0; i < k->n; i++) {
		struct ep *e = &k->e[i];

		for (unsigned n = 0; n < k->d[i].num_ops; n++) {
			u->t.loose[e->nic_index].sent += run_takes_receive(&k->d[i].ops[n]);
			if (run_all_came(u) && !check_owed(u, i, n))
				return false;
		}
		if (nic_qp_state(e->qp) != NIC_QPS_RTS || e->events & ~(1u << NIC_EVENT_COMM_EST))
			return run_wrong(u, e, "state %u, events 0x%x", nic_qp_state(e->qp),
					 e->events);
		if (memcmp(e->mem, k->s[i].model, AREA_LEN))
			return run_wrong(u, e, "what it sends from has changed");
	}
	for (unsigned n = 0; n < u->w.nics; n++) {
		struct nic_counters c;

		nic_counters(u->w.nic[n], &c);
		if (c.rx_bad_qkey != k->bad_qkey[n])
			return run_wrong(u, NULL,
					 "NIC %u counted %" PRIu64 " wrong Q_Keys, %" PRIu64
					 " came",
					 n, c.rx_bad_qkey, k->bad_qkey[n]);
	}
	return true;
}
