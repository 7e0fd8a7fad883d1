/* SPDX-License-Identifier: BSD-2-Clause */
#include "cli/chain/load.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "roost/chain_verbs.h"

#define ACCESS                                                                                     \
	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |               \
	 IBV_ACCESS_REMOTE_ATOMIC)

static int failed(struct chain_loaded *l, int rc, const char *what, const char *name)
{
	snprintf(l->err, sizeof(l->err), "%s %s: %s", what, name, strerror(rc));
	return rc ? -rc : -EIO;
}

/* ---- queue pairs ---- */

static int make_queue(struct chain_loaded *l, unsigned i)
{
	struct chain_queue *q = &l->p->queue[i];
	struct ibv_qp_init_attr init = {.cap = {.max_send_wr = q->depth,
						.max_recv_wr = q->recvs,
						.max_send_sge = q->sges,
						.max_recv_sge = q->recvs ? q->recv_sges : 0},
					.qp_type = IBV_QPT_RC};

	l->sends[i] = roost_create_counting_cq(l->nic.ctx, 0);
	l->receives[i] = roost_create_counting_cq(l->nic.ctx, 0);
	if (!l->sends[i] || !l->receives[i])
		return failed(l, errno, "can't create the completion queues of", q->name);
	init.send_cq = l->sends[i];
	init.recv_cq = l->receives[i];
	l->qp[i] = ibv_create_qp(l->nic.pd, &init);
	if (!l->qp[i])
		return failed(l, errno, "can't create the queue", q->name);
	if (init.cap.max_send_wr != q->depth || (q->recvs && init.cap.max_recv_wr != q->recvs) ||
	    roost_qp_stride(l->qp[i], ROOST_SEND_QUEUE) != q->stride ||
	    (q->recvs && roost_qp_stride(l->qp[i], ROOST_RECV_QUEUE) != q->recv_stride))
		return failed(l, EINVAL, "the NIC gives another size to the queue", q->name);
	q->qp_num = l->qp[i]->qp_num;
	return 0;
}

static int set_chain(struct chain_loaded *l, unsigned i)
{
	const struct chain_queue *q = &l->p->queue[i];
	struct roost_chain_attr attr = {.managed_send = q->managed,
					.managed_recv = q->managed_recv,
					.limit.rate_limit = (uint32_t)q->rate_limit};
	int rc;

	for (unsigned k = 0; k < ROOST_CHAIN_WATCHES; k++)
		if (q->watch[k].queue >= 0)
			attr.watch[k] = q->watch[k].receives ? l->receives[q->watch[k].queue]
							     : l->sends[q->watch[k].queue];
	rc = roost_qp_set_chain(l->qp[i], &attr);
	return rc ? failed(l, rc, "can't set up the queue", q->name) : 0;
}

static int connect_all(struct chain_loaded *l)
{
	for (unsigned i = 0; i < l->p->queues; i++) {
		const struct chain_queue *q = &l->p->queue[i];
		int rc;

		if (q->peer == CHAIN_PEER_OUTSIDE)
			return failed(l, ENOTCONN, "a program that runs alone has no peer for",
				      q->name);
		rc = perf_nic_connect(l->qp[i],
				      l->qp[q->peer == CHAIN_PEER_SELF ? (int)i : q->peer]->qp_num,
				      l->nic.gid.raw, ACCESS & ~IBV_ACCESS_LOCAL_WRITE);
		if (rc)
			return failed(l, rc, "can't connect the queue", q->name);
	}
	return 0;
}

/* Makes a queue pair that enables the others. */
static int make_starter(struct chain_loaded *l)
{
	struct ibv_qp_init_attr init = {
		.cap = {.max_send_wr = 2 * CHAIN_MAX_QUEUES, .max_send_sge = 1},
		.qp_type = IBV_QPT_RC};
	int rc;

	l->starts = roost_create_counting_cq(l->nic.ctx, 0);
	init.send_cq = init.recv_cq = l->starts;
	l->starter = l->starts ? ibv_create_qp(l->nic.pd, &init) : NULL;
	if (!l->starter)
		return failed(l, errno, "can't create", "a queue");
	rc = roost_qp_set_chain(l->starter, &(struct roost_chain_attr){0});
	if (!rc)
		rc = roost_qp_connect_self(l->starter, 1, 0);
	return rc ? failed(l, rc, "can't connect", "a queue") : 0;
}

/* ---- memory ---- */

static int register_region(struct chain_loaded *l, unsigned i)
{
	struct chain_region *r = &l->p->region[i];

	switch ((enum chain_region_kind)r->kind) {
	case CHAIN_DATA:
		l->mr[i] = ibv_reg_mr(l->nic.pd, r->image, r->size ? r->size : 1,
				      r->readonly ? IBV_ACCESS_REMOTE_READ : ACCESS);
		break;
	case CHAIN_SEND_RING:
		l->mr[i] = roost_reg_queue_mr(l->qp[r->queue], ROOST_SEND_QUEUE, ACCESS);
		break;
	case CHAIN_RECV_RING:
		l->mr[i] = roost_reg_queue_mr(l->qp[r->queue], ROOST_RECV_QUEUE, ACCESS);
		break;
	}
	if (!l->mr[i])
		return failed(l, errno, "can't register the region", r->name);
	r->addr = (uintptr_t)l->mr[i]->addr;
	r->key = l->mr[i]->rkey;
	l->memory[i] = l->mr[i]->addr;
	return 0;
}

int chain_load(struct chain_loaded *l, struct chain_program *p)
{
	struct chain_error err;
	int rc;

	memset(l, 0, sizeof(*l));
	l->p = p;
	rc = perf_nic_open(&l->nic);
	if (rc) {
		snprintf(l->err, sizeof(l->err), "%s", l->nic.err);
		return rc;
	}
	for (unsigned i = 0; i < p->queues && !rc; i++)
		rc = make_queue(l, i);
	for (unsigned i = 0; i < p->queues && !rc; i++)
		rc = set_chain(l, i);
	if (!rc)
		rc = make_starter(l);
	if (!rc)
		rc = connect_all(l);
	for (unsigned i = 0; i < p->regions && !rc; i++)
		rc = register_region(l, i);
	if (!rc && !chain_bind(p, &err)) {
		snprintf(l->err, sizeof(l->err), "line %u: %s", err.line, err.text);
		rc = -EINVAL;
	}
	return rc;
}

/* ---- posting ---- */

/* A receive that was written as raw words may name more pieces than its slot has. */
static int too_many_pieces(struct chain_loaded *l, const struct chain_queue *q, uint32_t k)
{
	snprintf(l->err, sizeof(l->err), "line %u: a receive has more pieces than recv_sges=%u",
		 q->recv_lines ? q->recv_lines[k] : q->line, q->recv_sges);
	return -EINVAL;
}

static int post_receives(struct chain_loaded *l, unsigned i)
{
	const struct chain_queue *q = &l->p->queue[i];
	const uint32_t most = (q->recv_stride - ROOST_RECV_SGE_OFFSET) / sizeof(struct roost_sge);

	for (uint32_t k = 0; k < q->recv; k++) {
		const uint8_t *slot = chain_recv_slot(l->p, q, k);
		struct ibv_sge sge[ROOST_MAX_SGE];
		struct ibv_recv_wr wr = {.sg_list = sge}, *bad;
		struct roost_recv_wqe r;
		int rc;

		memcpy(&r, slot, sizeof(r));
		if (r.num_sge > most || r.num_sge > ROOST_MAX_SGE)
			return too_many_pieces(l, q, k);
		for (; wr.num_sge < (int)r.num_sge; wr.num_sge++) {
			struct roost_sge s;

			memcpy(&s, slot + ROOST_RECV_SGE_OFFSET + wr.num_sge * (int)sizeof(s),
			       sizeof(s));
			sge[wr.num_sge] = (struct ibv_sge){s.addr, s.len, s.lkey};
		}
		rc = ibv_post_recv(l->qp[i], &wr, &bad);
		if (rc)
			return failed(l, rc, "can't post a receive of", q->name);
	}
	return 0;
}

static int post(struct chain_loaded *l, unsigned i)
{
	const struct chain_queue *q = &l->p->queue[i];
	const uint32_t n = q->managed ? q->depth : q->n;
	int rc = n ? roost_post_wqes(l->qp[i], l->p->region[q->region].image, n, 0) : 0;

	return rc ? failed(l, rc, "can't post the queue", q->name) : 0;
}

static int enable(struct chain_loaded *l, unsigned i, enum roost_queue queue, uint32_t n)
{
	int rc = n ? roost_post_enable(l->starter,
				       &(struct roost_enable_wr){.qp_num = l->qp[i]->qp_num,
								 .queue = queue,
								 .count = n,
								 .relative = true})
		   : 0;

	return rc ? failed(l, rc, "can't enable", l->p->queue[i].name) : 0;
}

int chain_start(struct chain_loaded *l)
{
	const struct chain_program *p = l->p;
	int rc = 0;

	for (unsigned i = 0; i < p->queues && !rc; i++) {
		rc = post_receives(l, i);
		if (!rc && p->queue[i].managed)
			rc = post(l, i);
	}
	for (unsigned i = 0; i < p->queues && !rc; i++) {
		rc = enable(l, i, ROOST_RECV_QUEUE, p->queue[i].start_recv);
		if (!rc)
			rc = enable(l, i, ROOST_SEND_QUEUE, p->queue[i].start);
	}
	for (unsigned i = 0; i < p->queues && !rc; i++)
		if (!p->queue[i].managed)
			rc = post(l, i);
	return rc;
}

void chain_unload(struct chain_loaded *l)
{
	for (unsigned i = 0; i < CHAIN_MAX_REGIONS; i++)
		if (l->mr[i])
			ibv_dereg_mr(l->mr[i]);
	for (unsigned i = 0; i < CHAIN_MAX_QUEUES; i++)
		if (l->qp[i])
			ibv_destroy_qp(l->qp[i]);
	if (l->starter)
		ibv_destroy_qp(l->starter);
	for (unsigned i = 0; i < CHAIN_MAX_QUEUES; i++) {
		if (l->sends[i])
			ibv_destroy_cq(l->sends[i]);
		if (l->receives[i])
			ibv_destroy_cq(l->receives[i]);
	}
	if (l->starts)
		ibv_destroy_cq(l->starts);
	perf_nic_close(&l->nic);
}
