/* SPDX-License-Identifier: BSD-2-Clause */
#include "look_server.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "roost/chain_verbs.h"

#define RECEIVES (4 * LOOK_WINDOW)
#define BATCH	 16
#define INLINE	 256u
#define SIGNAL	 32u /* one of so many answers has a completion */
#define REAP	 4u  /* signaled answers under way, beside another thread */

struct ibv_qp *look_server_make(struct duo *s, struct look_server *l, look_find *find)
{
	struct ibv_qp_init_attr init = {.send_cq = s->cq,
					.qp_type = IBV_QPT_RC,
					.cap = {DUO_DEPTH, RECEIVES, 2, 1, INLINE}};
	struct ibv_cq_init_attr_ex cq = {.cqe = RECEIVES,
					 .wc_flags = IBV_WC_EX_WITH_COMPLETION_TIMESTAMP};

	l->find = find;
	l->channel = ibv_create_comp_channel(s->ctx);
	cq.channel = l->channel;
	l->cq = l->channel ? ibv_create_cq_ex(s->ctx, &cq) : NULL;
	l->ring = calloc(RECEIVES, sizeof(*l->ring));
	l->mr = l->ring ? ibv_reg_mr(s->pd, l->ring, RECEIVES * sizeof(*l->ring),
				     IBV_ACCESS_LOCAL_WRITE)
			: NULL;
	init.recv_cq = l->cq ? ibv_cq_ex_to_cq(l->cq) : NULL;
	l->qp = l->cq && l->mr ? ibv_create_qp(s->pd, &init) : NULL;
	if (!l->qp)
		duo_fail("can't make a two-sided server");
	return l->qp;
}

/* Posts the next n receives, as a list; a receive's slot is its number modulo RECEIVES. */
static void post_receives(struct look_server *l, uint32_t n)
{
	struct ibv_recv_wr wr[BATCH], *bad;
	struct ibv_sge sge[BATCH];

	for (uint32_t i = 0; i < n; i++) {
		const uint32_t slot = l->posted++ % RECEIVES;

		sge[i] = (struct ibv_sge){(uintptr_t)&l->ring[slot], sizeof(l->ring[0]),
					  l->mr->lkey};
		wr[i] = (struct ibv_recv_wr){.wr_id = slot,
					     .sg_list = &sge[i],
					     .num_sge = 1,
					     .next = i + 1 < n ? &wr[i + 1] : NULL};
	}
	if (n && ibv_post_recv(l->qp, wr, &bad))
		duo_fail("can't post receives");
}

void look_server_start(struct look_server *l)
{
	for (uint32_t i = 0; i < RECEIVES / BATCH; i++)
		post_receives(l, BATCH);
}

/* The answers to a batch. A value that fits goes inline, in one WRITE with the number behind it. */
struct answers {
	struct ibv_send_wr wr[2 * BATCH];
	struct ibv_sge sge[2 * BATCH][2];
	uint32_t n;
};

static struct ibv_send_wr *add_write(struct duo *s, struct answers *a, uint64_t to)
{
	struct ibv_send_wr *wr = &a->wr[a->n];

	*wr = (struct ibv_send_wr){.sg_list = a->sge[a->n],
				   .num_sge = 1,
				   .opcode = IBV_WR_RDMA_WRITE,
				   .wr.rdma = {s->remote + to, s->rkey}};
	if (a->n++)
		wr[-1].next = wr;
	return wr;
}

static void add_answer(struct duo *s, struct look_server *l, struct answers *a,
		       const struct look_request *r)
{
	const struct ibv_sge value = {(uintptr_t)l->find(s, r->key, r->size), r->size, s->mr->lkey},
			     number = {(uintptr_t)&r->number, sizeof(r->number), 0};
	struct ibv_send_wr *wr;

	if (r->set || r->size + sizeof(r->number) > INLINE) {
		if (!r->set)
			add_write(s, a, r->reply)->sg_list[0] = value;
		wr = add_write(s, a, r->reply + r->size);
		wr->sg_list[0] = number;
	} else {
		wr = add_write(s, a, r->reply);
		wr->sg_list[0] = value;
		wr->sg_list[1] = number;
		wr->num_sge = 2;
	}
	wr->send_flags = IBV_SEND_INLINE;
	if (l->answers++ % SIGNAL == 0) {
		wr->send_flags |= IBV_SEND_SIGNALED;
		s->outstanding++;
	}
}

struct request {
	const struct look_request *r;
	uint64_t arrived; /* the NIC's clock; 0: not measured */
};

/* Takes up to a batch of requests. */
static unsigned take(const struct look_server *l, struct request *request)
{
	struct ibv_wc wc[BATCH];
	unsigned n = 0;
	int rc;

	if (!l->gets) {
		rc = ibv_poll_cq(ibv_cq_ex_to_cq(l->cq), BATCH, wc);
		for (; (int)n < rc; n++) {
			if (wc[n].status)
				duo_fail("a receive failed: %s", ibv_wc_status_str(wc[n].status));
			request[n] = (struct request){.r = &l->ring[wc[n].wr_id]};
		}
		return n;
	}
	rc = ibv_start_poll(l->cq, &(struct ibv_poll_cq_attr){0});
	if (rc)
		return 0;
	for (; !rc; rc = n < BATCH ? ibv_next_poll(l->cq) : ENOENT) {
		if (l->cq->status)
			duo_fail("a receive failed: %s", ibv_wc_status_str(l->cq->status));
		request[n++] =
			(struct request){&l->ring[l->cq->wr_id], ibv_wc_read_completion_ts(l->cq)};
	}
	ibv_end_poll(l->cq);
	return n;
}

/*
 * Serves a batch of requests; returns their number, or -1 after the last one of the phase. beside:
 * polls no completion queue that may be empty, as that would drive the NIC.
 */
static int serve(struct duo *s, struct look_server *l, bool beside)
{
	struct answers a = {.n = 0};
	struct request request[BATCH];
	struct ibv_send_wr *bad;
	unsigned n = take(l, request);
	uint64_t now;
	bool over = false;

	for (unsigned i = 0; i < n; i++) {
		const struct look_request *r = request[i].r;

		over |= !r->size;
		if (r->set)
			memcpy(l->find(s, r->key, r->size), r->value, LOOK_SET);
		if (r->size && !r->quiet)
			add_answer(s, l, &a, r);
	}
	if (a.n && ibv_post_send(l->qp, a.wr, &bad))
		duo_fail("the two-sided server can't answer");
	now = l->gets && n ? roost_chain_time(s->ctx) : 0;
	for (unsigned i = 0; i < n; i++)
		if (l->gets && !request[i].r->set && request[i].r->size)
			hist_add(l->gets, now - request[i].arrived);
	for (unsigned i = 0; i < n; i++)
		l->ring[l->taken++ % RECEIVES].number = 0;
	post_receives(l, n);
	if (!beside || s->outstanding > REAP)
		duo_reap(s);
	return over ? -1 : (int)n;
}

void look_server_run(struct duo *s, struct look_server *l, bool blocks)
{
	struct ibv_cq *cq;
	void *ctx;
	int n;

	while ((n = serve(s, l, false)) >= 0) {
		if (n || !blocks)
			continue;
		if (ibv_req_notify_cq(ibv_cq_ex_to_cq(l->cq), 0))
			duo_fail("can't ask for an event");
		n = serve(s, l, false);
		if (n < 0)
			return;
		if (n)
			continue;
		if (ibv_get_cq_event(l->channel, &cq, &ctx))
			duo_fail("no event");
		ibv_ack_cq_events(cq, 1);
	}
}

void look_server_run_beside(struct duo *s, struct look_server *l)
{
	do {
		/* a request is in memory before its completion */
		while (!__atomic_load_n(&l->ring[l->taken % RECEIVES].number, __ATOMIC_ACQUIRE))
			sched_yield();
	} while (serve(s, l, true) >= 0);
}
