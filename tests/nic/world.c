/* SPDX-License-Identifier: BSD-2-Clause */
#include "world.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "nic/check.h"
#include "spare_mem.h"

#define CHECK(x)                                                                                   \
	do {                                                                                       \
		if (!(x)) {                                                                        \
			fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #x);                    \
			abort();                                                                   \
		}                                                                                  \
	} while (0)

static void on_cq_event(void *host, void *ctx)
{
	((struct world *)host)->cq_events++;
}

static void on_qp_event(void *host, enum nic_event ev, void *ctx)
{
	if (ev != NIC_EVENT_FIRST_PACKET) /* every connection has it */
		((struct ep *)ctx)->events |= 1u << ev;
}

static void on_cq_error(void *host, void *ctx)
{
	((struct world *)host)->cq_errors++;
}

static void on_srq_event(void *host, enum nic_event ev, void *ctx)
{
	struct shared_rq *q = ctx;

	if (!q)
		return; /* the queue of one QP */
	*(ev == NIC_EVENT_SRQ_LIMIT ? &q->limit_events : &q->errors) += 1;
}

static void on_gsi(void *host, unsigned port, const struct pkt_addr *src,
		   const struct pkt_addr *dst, const uint8_t *mad)
{
	struct world *w = host;

	w->gsi.count++;
	w->gsi.port = port;
	w->gsi.src = *src;
	w->gsi.dst = *dst;
	memcpy(w->gsi.mad, mad, NIC_GSI_LEN);
}

static void on_gsi_lost(void *host, const struct pkt_addr *dst, uint64_t tid)
{
	struct world *w = host;

	w->gsi_lost.count++;
	w->gsi_lost.dst = *dst;
	w->gsi_lost.tid = tid;
}

static void on_peer_gone(void *host, uint32_t qpn)
{
	((struct world *)host)->peers_gone++;
}

static const struct nic_host_ops ops = {on_cq_event, on_qp_event, on_cq_error,	on_srq_event,
					on_gsi,	     on_gsi_lost, on_peer_gone, NULL};

void world_init_shape(struct world *w, const struct world_shape *shape, uint64_t seed,
		      const struct sim_params *params)
{
	memset(w, 0, sizeof(*w));
	w->sim = sim_create(seed, params);
	CHECK(w->sim);
	w->nics = shape->nics ? shape->nics : 1;
	w->ports = shape->ports ? shape->ports : 1;
	w->pus = shape->pus ? shape->pus : 1;
	for (unsigned i = 0; i < w->nics; i++) {
		struct nic_config cfg = {.pus = w->pus,
					 .ports = w->ports,
					 .seed = {seed * 31 + i},
					 .keys = shape->keys,
					 .timeout_scale = shape->timeout_scale,
					 .ops = &ops,
					 .host = w};

		for (unsigned p = 0; p < w->ports; p++) {
			struct pkt_addr addr;
			char text[32];

			snprintf(text, sizeof(text), shape->v6 ? "fd00::%x:%x" : "10.0.%u.%u", p,
				 shape->one_address ? 1 : i + 1);
			CHECK(pkt_addr_parse(text, &addr) == 0);
			for (unsigned l = 0; l < w->pus; l++) {
				w->port[i][p][l] = shape->open ? shape->open(i)
							       : sim_port(w->sim, &addr, l, w->pus);
				CHECK(w->port[i][p][l]);
				if (shape->one_address)
					sim_share(w->port[i][p][l], i * w->pus + l);
				cfg.port[p][l] = w->port[i][p][l];
			}
		}
		for (unsigned l = 0; shape->qp_numbers && l < w->pus; l++)
			cfg.qp_numbers[l] = &shape->qp_numbers[i * w->pus + l];
		CHECK(nic_create(&cfg, &w->nic[i]) == 0);
	}
}

void world_init(struct world *w, unsigned nics, uint64_t seed, const struct sim_params *params)
{
	world_init_shape(w, &(struct world_shape){.nics = nics}, seed, params);
}

void world_kill(struct world *w, unsigned i)
{
	unsigned ports = nic_ports(w->nic[i]);

	nic_destroy(w->nic[i]);
	for (unsigned p = 0; p < ports; p++)
		for (unsigned l = 0; l < w->pus; l++)
			port_close(w->port[i][p][l]);
	w->nic[i] = NULL;
	w->paused_until[i] = UINT64_MAX;
}

void world_fini(struct world *w)
{
	for (unsigned i = 0; i < w->nics; i++)
		if (w->nic[i])
			world_kill(w, i);
	sim_destroy(w->sim);
}

int world_add_addr(struct world *w, unsigned nic, unsigned port_num, const char *text)
{
	struct port *lane[NIC_MAX_PUS] = {NULL};
	unsigned at = nic_ports(w->nic[nic]);
	struct pkt_addr addr;
	int rc;

	CHECK(pkt_addr_parse(text, &addr) == 0);
	for (unsigned l = 0; l < w->pus; l++) {
		lane[l] = sim_port(w->sim, &addr, l, w->pus);
		CHECK(lane[l]);
	}
	rc = nic_port_add(w->nic[nic], port_num, lane);
	for (unsigned l = 0; l < w->pus; l++) {
		if (rc)
			port_close(lane[l]);
		else
			w->port[nic][at][l] = lane[l];
	}
	return rc;
}

unsigned world_nic_of(const struct world *w, const struct pkt_addr *a)
{
	for (unsigned i = 0; i < w->nics; i++)
		for (unsigned p = 0; p < NIC_MAX_PORTS && w->port[i][p][0]; p++)
			if (pkt_addr_eq(&w->port[i][p][0]->addr, a))
				return i;
	return WORLD_MAX_NICS;
}

uint64_t world_now(const struct world *w)
{
	return sim_now(w->sim);
}

/* Ends the test if the turn left the PU in a state that breaks an invariant. */
static void check(const struct world *w, unsigned i, unsigned pu)
{
	uint32_t qpn;
	const char *broken = nic_check(w->nic[i], pu, &qpn);

	if (!broken)
		return;
	fprintf(stderr, "NIC %u, PU %u, QP 0x%06x at %" PRIu64 " ns: the invariant is broken: %s\n",
		i, pu, qpn, world_now(w), broken);
	abort();
}

static bool turn(struct world *w)
{
	uint64_t now = sim_now(w->sim);
	bool any = false;

	for (unsigned i = 0; i < w->nics; i++) {
		if (now < w->paused_until[i])
			continue;
		for (unsigned l = 0; l < w->pus; l++) {
			any |= nic_poll(w->nic[i], l, now) != 0 || nic_pending(w->nic[i], l);
			check(w, i, l);
			if (nic_turn_end_requested(w->nic[i], l))
				nic_turn_ended(w->nic[i], l, now + w->turn_ns);
		}
	}
	return any;
}

/* Returns the time at which NIC i must run again. */
static uint64_t wants(const struct world *w, unsigned i)
{
	uint64_t next = UINT64_MAX;

	if (sim_now(w->sim) < w->paused_until[i])
		return w->paused_until[i];
	for (unsigned l = 0; l < w->pus; l++) {
		uint64_t d = nic_deadline(w->nic[i], l);

		next = d < next ? d : next;
	}
	return next;
}

bool world_step(struct world *w, uint64_t until)
{
	uint64_t next;

	if (turn(w))
		return true;
	next = sim_next_event(w->sim);
	for (unsigned i = 0; i < w->nics; i++) {
		uint64_t d = wants(w, i);

		next = d < next ? d : next;
	}
	if (next > until) {
		if (until != UINT64_MAX && until > sim_now(w->sim))
			sim_advance(w->sim, until);
		return false;
	}
	sim_advance(w->sim, next > sim_now(w->sim) ? next : sim_now(w->sim) + 1);
	return true;
}

void world_run(struct world *w, uint64_t until)
{
	while (world_step(w, until))
		;
}

static uint8_t shift_for(uint32_t bytes)
{
	uint8_t s = 6;

	while ((1u << s) < bytes)
		s++;
	return s;
}

static uint8_t or_default(uint8_t v, uint8_t dflt)
{
	return v == 255 ? 0 : v ? v : dflt;
}

static void ep_first_counts(struct ep *e)
{
	e->scons = e->rcons = e->p.first;
	atomic_store(&e->sidx.prod, e->p.first);
	atomic_store(&e->sidx.cons, e->p.first);
	atomic_store(&e->ridx.prod, e->p.first);
	atomic_store(&e->ridx.cons, e->p.first);
	atomic_store(&e->sqi.prod, e->p.first);
	atomic_store(&e->rqi.prod, e->p.first);
}

static uint32_t ring_region(const struct ep *e, void *ring, uint8_t shift)
{
	struct nic_mr_attr a = {.pd = e->pd,
				.addr = ring,
				.len = (uint64_t)e->p.depth << shift,
				.iova = (uintptr_t)ring,
				.access = 15};
	uint32_t key;

	CHECK(nic_mr_register(e->nic, &a, &key) == 0);
	return key;
}

static void ep_set_chain(struct ep *e)
{
	struct nic_chain_attr a = {.managed_send = e->p.managed_send,
				   .managed_recv = e->p.managed_recv,
				   .watch = {e->scq, e->rcq},
				   .audit = e->p.audit ? e->p.audit->rcq : NULL,
				   .limit = e->p.limit};

	for (unsigned i = 0; i < 2; i++) {
		const struct ep *of = e->p.watch[i];

		a.watch[2 + i] = !of ? NULL : e->p.watch_sends ? of->scq : of->rcq;
	}
	/* A reset takes the counts over. */
	CHECK(ep_modify(e, &(struct nic_qp_attr){.state = NIC_QPS_RESET}, NIC_QPA_STATE) == 0);
	CHECK(nic_qp_set_chain(e->nic, e->qp, &a) == 0);
	e->sq_key = ring_region(e, e->sq, e->sq_shift);
	e->rq_key = ring_region(e, e->rq, e->rq_shift);
}

void ep_init(struct ep *e, struct world *w, unsigned nic, const struct ep_params *params)
{
	struct nic_qp_init init = {.now = world_now(w)};
	struct nic_cq_attr cqa = {0};
	struct nic_mr_attr mra = {0};
	uint32_t sq_bytes;

	memset(e, 0, sizeof(*e));
	if (params)
		e->p = *params;
	e->p.type = e->p.type ? e->p.type : NIC_QPT_RC;
	e->p.qkey = e->p.qkey ? e->p.qkey : 0x11111111;
	e->p.depth = e->p.depth ? e->p.depth : 64;
	e->p.max_sge = e->p.max_sge ? e->p.max_sge : 1;
	e->p.mtu = e->p.mtu ? e->p.mtu : 1024;
	e->p.timeout = or_default(e->p.timeout, 14);
	e->p.retry_cnt = or_default(e->p.retry_cnt, 7);
	e->p.rnr_retry = or_default(e->p.rnr_retry, 7);
	e->p.min_rnr_timer = or_default(e->p.min_rnr_timer, 1);
	e->p.rd_atomic = or_default(e->p.rd_atomic, 4);
	e->p.access = e->p.access ? e->p.access : 15;
	e->w = w;
	e->nic_index = nic;
	e->nic = w->nic[nic];
	if (!e->p.no_mem && !e->p.only_cqs) {
		e->mem_len = e->p.mem ? e->p.mem : 65536;
		e->mem = spare_mem_take(e->mem_len);
	}
	if (e->p.pd_of)
		e->pd = e->p.pd_of->pd;
	else
		CHECK(nic_pd_alloc(e->nic, &e->pd) == 0);
	mra = (struct nic_mr_attr){.pd = e->pd,
				   .addr = e->mem,
				   .len = e->mem_len,
				   .iova = (uintptr_t)e->mem,
				   .access = e->p.access | 1};
	if (e->mem)
		CHECK(nic_mr_register(e->nic, &mra, &e->key) == 0);
	e->p.cq_depth = e->p.cq_depth ? e->p.cq_depth : 4 * e->p.depth;
	e->cq_mask = e->p.cq_depth - 1;
	if (!e->p.counts) {
		e->sring = calloc(e->p.cq_depth, sizeof(*e->sring));
		e->rring = calloc(e->p.cq_depth, sizeof(*e->rring));
	}
	cqa = (struct nic_cq_attr){.pu = e->p.pu,
				   .depth = e->p.cq_depth,
				   .ring = e->sring,
				   .index = &e->sidx,
				   .ctx = e};
	if (e->p.counts) {
		cqa.depth = 0;
		cqa.ring = NULL;
	}
	ep_first_counts(e);
	CHECK(nic_cq_create(e->nic, &cqa, &e->scq) == 0);
	cqa.ring = e->p.counts ? NULL : e->rring;
	cqa.index = &e->ridx;
	CHECK(nic_cq_create(e->nic, &cqa, &e->rcq) == 0);
	if (e->p.only_cqs)
		return;
	sq_bytes = ROOST_WQE_SGE_OFFSET + 16 * e->p.max_sge;
	if (ROOST_WQE_INLINE_OFFSET + e->p.max_inline > sq_bytes)
		sq_bytes = ROOST_WQE_INLINE_OFFSET + e->p.max_inline;
	e->sq_shift = shift_for(sq_bytes);
	e->rq_shift = shift_for(ROOST_RECV_SGE_OFFSET + 16 * e->p.max_sge);
	e->sq = calloc(e->p.depth, 1u << e->sq_shift);
	e->rq = calloc(e->p.depth, 1u << e->rq_shift);
	e->sq_wr = calloc(e->p.depth, 8);
	e->rq_wr = calloc(e->p.depth, 8);
	init.type = e->p.type;
	init.pd = e->pd;
	init.send_cq = e->scq;
	init.recv_cq = e->p.recv_cq_of ? e->p.recv_cq_of->rcq : e->rcq;
	init.sq = (struct nic_queue_attr){e->sq, e->sq_wr, &e->sqi, e->p.depth, e->sq_shift};
	init.rq = (struct nic_queue_attr){e->rq, e->rq_wr, &e->rqi, e->p.depth, e->rq_shift};
	if (e->p.own_srq) {
		struct nic_srq_attr a = {.pd = e->pd, .rq = init.rq};

		CHECK(nic_srq_create(e->nic, &a, &e->own_srq) == 0);
	}
	init.srq = e->p.srq ? e->p.srq->srq : e->own_srq;
	init.max_inline = e->p.max_inline;
	init.sig_all = e->p.sig_all;
	init.ctx = e;
	CHECK(nic_qp_create(e->nic, &init, &e->qp) == 0);
	if (e->p.chain)
		ep_set_chain(e);
}

void ep_fini(struct ep *e)
{
	if (e->qp)
		nic_qp_destroy(e->nic, e->qp);
	if (e->own_srq)
		CHECK(nic_srq_destroy(e->nic, e->own_srq) == 0);
	CHECK(nic_cq_destroy(e->nic, e->scq) == 0);
	CHECK(nic_cq_destroy(e->nic, e->rcq) == 0);
	if (e->key)
		CHECK(nic_mr_deregister(e->nic, e->key) == 0);
	if (e->sq_key)
		CHECK(nic_mr_deregister(e->nic, e->sq_key) == 0);
	if (e->rq_key)
		CHECK(nic_mr_deregister(e->nic, e->rq_key) == 0);
	if (!e->p.pd_of)
		CHECK(nic_pd_free(e->nic, e->pd) == 0);
	ep_forget(e);
}

void ep_forget(struct ep *e)
{
	free(e->sring);
	free(e->rring);
	free(e->sq);
	free(e->rq);
	free(e->sq_wr);
	free(e->rq_wr);
	spare_mem_give(e->mem, e->mem_len);
}

const struct pkt_addr *ep_addr(const struct ep *e)
{
	struct nic_gid g;

	CHECK(nic_gid(e->nic, e->p.port + 1u, e->p.gid, &g));
	return &nic_port(e->nic, g.port, 0)->addr;
}

void ep_attr(const struct ep *e, const struct ep *peer, struct nic_qp_attr *a)
{
	*a = (struct nic_qp_attr){
		.path_mtu = e->p.mtu,
		.rq_psn = peer->p.psn,
		.sq_psn = e->p.psn,
		.dest_qpn = nic_qp_num(peer->qp),
		.access = e->p.access,
		.dgid = *ep_addr(peer),
		.sgid_index = e->p.gid,
		.hop_limit = 64,
		.port = (uint8_t)(e->p.port + 1),
		.timeout = e->p.timeout,
		.retry_cnt = e->p.retry_cnt,
		.rnr_retry = e->p.rnr_retry,
		.min_rnr_timer = e->p.min_rnr_timer,
		.max_rd_atomic = e->p.rd_atomic,
		.max_dest_rd_atomic = e->p.rd_atomic,
	};
}

int ep_modify(struct ep *e, const struct nic_qp_attr *a, uint32_t mask)
{
	return nic_qp_modify(e->nic, e->qp, a, mask, world_now(e->w));
}

void ep_to_init(struct ep *e)
{
	struct nic_qp_attr a = {.state = NIC_QPS_INIT,
				.port = (uint8_t)(e->p.port + 1),
				.access = e->p.access,
				.qkey = e->p.qkey};

	CHECK(ep_modify(e, &a, e->p.type == NIC_QPT_UD ? MASK_INIT_UD : MASK_INIT) == 0);
	if (e->p.rpc)
		CHECK(nic_qp_set_rpc(e->nic, e->qp) == 0);
	if (e->p.calc)
		CHECK(nic_qp_set_calc(e->qp) == 0);
}

void ep_to_rtr(struct ep *e, const struct nic_qp_attr *attr)
{
	struct nic_qp_attr a = *attr;

	a.state = NIC_QPS_RTR;
	CHECK(ep_modify(e, &a,
			e->p.type == NIC_QPT_UD	  ? MASK_RTR_UD
			: e->p.type == NIC_QPT_UC ? MASK_RTR_UC
						  : MASK_RTR) == 0);
}

void ep_to_rts(struct ep *e, const struct nic_qp_attr *attr)
{
	struct nic_qp_attr a = *attr;

	a.state = NIC_QPS_RTS;
	CHECK(ep_modify(e, &a, e->p.type == NIC_QPT_RC ? MASK_RTS : MASK_RTS_UX) == 0);
}

static void to_rts(struct ep *e, struct ep *peer)
{
	struct nic_qp_attr a;

	ep_attr(e, peer, &a);
	ep_to_rtr(e, &a);
	ep_to_rts(e, &a);
}

void ep_connect(struct ep *a, struct ep *b)
{
	ep_to_init(a);
	ep_to_init(b);
	to_rts(a, b);
	to_rts(b, a);
}

void ep_connect_self(struct ep *e)
{
	ep_to_init(e);
	to_rts(e, e);
}

void ep_post(struct ep *e, const struct wr *wr)
{
	uint32_t prod = atomic_load(&e->sqi.prod);
	uint32_t slot = prod & (e->p.depth - 1);
	struct roost_wqe *w = (struct roost_wqe *)(e->sq + ((size_t)slot << e->sq_shift));

	CHECK(prod - atomic_load(&e->sqi.cons) < e->p.depth);
	w->ctrl = ROOST_CTRL(wr->op, prod & 0xffff);
	w->flags = wr->flags ? wr->flags : ROOST_WQE_SIGNALED;
	w->num_sge = (uint16_t)wr->num_sge;
	w->inline_len = 0;
	w->raddr = wr->raddr;
	w->rkey = wr->rkey;
	w->imm = wr->imm;
	if (wr->inl) {
		w->flags |= ROOST_WQE_INLINE;
		w->inline_len = wr->inline_len;
		memcpy((uint8_t *)w + ROOST_WQE_INLINE_OFFSET, wr->inl, wr->inline_len);
	} else {
		w->swap_add = wr->swap_add;
		w->compare = wr->compare;
		memcpy((uint8_t *)w + ROOST_WQE_SGE_OFFSET, wr->sge,
		       wr->num_sge * sizeof(wr->sge[0]));
	}
	e->sq_wr[slot] = wr->wr_id;
	atomic_store(&e->sqi.prod, prod + 1);
	nic_doorbell(e->nic, e->qp);
}

void ep_post_recv(struct ep *e, uint64_t wr_id, const struct roost_sge *sge, unsigned num_sge)
{
	uint32_t prod = atomic_load(&e->rqi.prod);
	uint32_t slot = prod & (e->p.depth - 1);
	struct roost_recv_wqe *w = (struct roost_recv_wqe *)(e->rq + ((size_t)slot << e->rq_shift));

	CHECK(prod - atomic_load(&e->rqi.cons) < e->p.depth);
	w->ctrl = ROOST_CTRL(ROOST_OP_RECV, prod & 0xffff);
	w->num_sge = num_sge;
	if (num_sge)
		memcpy((uint8_t *)w + ROOST_RECV_SGE_OFFSET, sge, num_sge * sizeof(*sge));
	e->rq_wr[slot] = wr_id;
	atomic_store(&e->rqi.prod, prod + 1);
	if (nic_qp_state(e->qp) == NIC_QPS_ERR)
		nic_doorbell(e->nic, e->qp);
}

void shared_rq_init(struct shared_rq *q, struct nic *nic, uint32_t depth)
{
	struct nic_mr_attr mra;
	struct nic_srq_attr a;

	memset(q, 0, sizeof(*q));
	q->nic = nic;
	q->depth = depth;
	q->mem = spare_mem_take(SHARED_RQ_MEM);
	q->ring = calloc(depth, 64);
	q->wr_ids = calloc(depth, 8);
	CHECK(nic_pd_alloc(nic, &q->pd) == 0);
	mra = (struct nic_mr_attr){.pd = q->pd,
				   .addr = q->mem,
				   .len = SHARED_RQ_MEM,
				   .iova = (uintptr_t)q->mem,
				   .access = NIC_ACCESS_LOCAL_WRITE};
	CHECK(nic_mr_register(nic, &mra, &q->key) == 0);
	a = (struct nic_srq_attr){
		.pd = q->pd, .rq = {q->ring, q->wr_ids, &q->index, depth, 6}, .ctx = q};
	CHECK(nic_srq_create(nic, &a, &q->srq) == 0);
}

int shared_rq_fini(struct shared_rq *q)
{
	int rc = nic_srq_destroy(q->nic, q->srq);

	if (rc)
		return rc;
	CHECK(nic_mr_deregister(q->nic, q->key) == 0);
	CHECK(nic_pd_free(q->nic, q->pd) == 0);
	spare_mem_give(q->mem, SHARED_RQ_MEM);
	free(q->ring);
	free(q->wr_ids);
	return 0;
}

void shared_rq_post(struct shared_rq *q, uint64_t wr_id, const struct roost_sge *sge,
		    unsigned num_sge)
{
	uint32_t prod = atomic_load(&q->index.prod), slot = prod & (q->depth - 1);
	struct roost_recv_wqe *w = (struct roost_recv_wqe *)(q->ring + (size_t)slot * 64);

	CHECK(prod - atomic_load(&q->index.cons) < q->depth && num_sge <= 3);
	w->ctrl = ROOST_CTRL(ROOST_OP_RECV, prod & 0xffff);
	w->num_sge = num_sge;
	if (num_sge)
		memcpy(w->sge, sge, num_sge * sizeof(*sge));
	q->wr_ids[slot] = wr_id;
	atomic_store(&q->index.prod, prod + 1);
}

static bool take(struct roost_cqe *ring, struct roost_cq_index *idx, uint32_t *cons, uint32_t mask,
		 struct roost_cqe *out)
{
	struct roost_cqe *c = &ring[*cons & mask];

	if (atomic_load(&c->seq) != *cons + 1)
		return false;
	memcpy(out, c, sizeof(*out));
	++*cons;
	atomic_store(&idx->cons, *cons);
	return true;
}

bool ep_poll_send(struct ep *e, struct roost_cqe *out)
{
	return take(e->sring, &e->sidx, &e->scons, e->cq_mask, out);
}

bool ep_poll_recv(struct ep *e, struct roost_cqe *out)
{
	return take(e->rring, &e->ridx, &e->rcons, e->cq_mask, out);
}

static bool wait(struct ep *e, struct roost_cqe *out, uint64_t ns,
		 bool (*poll)(struct ep *, struct roost_cqe *))
{
	uint64_t until = world_now(e->w) + ns;

	do {
		if (poll(e, out))
			return true;
	} while (world_now(e->w) <= until && world_step(e->w, until));
	return poll(e, out);
}

bool ep_wait_send(struct ep *e, struct roost_cqe *out, uint64_t ns)
{
	return wait(e, out, ns, ep_poll_send);
}

bool ep_wait_recv(struct ep *e, struct roost_cqe *out, uint64_t ns)
{
	return wait(e, out, ns, ep_poll_recv);
}
