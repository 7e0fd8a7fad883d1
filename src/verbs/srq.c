/* SPDX-License-Identifier: BSD-2-Clause */
/* Control of shared receive queues. post.c posts to them. */
#include <stdlib.h>

#include "verbs/objects.h"

static void srq_init_events(struct verbs_srq *srq)
{
	srq->limit_event.reported = srq->error_event.reported = &srq->reported;
	srq->limit_event.object = srq->error_event.object = &srq->srq;
	srq->limit_event.type = IBV_EVENT_SRQ_LIMIT_REACHED;
	srq->error_event.type = IBV_EVENT_SRQ_ERR;
	pthread_mutex_init(&srq->srq.mutex, NULL);
	pthread_cond_init(&srq->srq.cond, NULL);
}

static int srq_start(struct verbs_ctx *ctx, struct verbs_srq *srq)
{
	struct nic_srq_attr attr = {
		.pd = srq->srq.pd->handle, .rq = verbs_queue_attr(&srq->rq), .ctx = srq};
	int ret;

	drive_control_lock(srq->drive);
	ret = nic_srq_create(ctx->nic, &attr, &srq->nic_srq);
	drive_control_unlock(srq->drive);
	return ret;
}

/*
 * Creates an SRQ of the basic type. ibv_create_srq_ex() of verbs.h comes here too. Only
 * ibv_modify_srq() arms a limit, as the specification says.
 */
VERBS_EXPORT struct ibv_srq *ibv_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *init)
{
	static _Atomic uint32_t numbers;
	struct verbs_ctx *ctx = verbs_ctx(pd->context);
	struct ibv_srq_attr *a = &init->attr;
	struct verbs_queue *queue;
	struct verbs_srq *srq;
	int ret;

	if (!a->max_wr || a->max_wr > NIC_MAX_WR || a->max_sge > ROOST_MAX_SGE)
		return verbs_null(EINVAL);
	srq = verbs_new(sizeof(*srq));
	if (!srq)
		return NULL;
	srq->drive = ctx->drive;
	srq->number = atomic_fetch_add_explicit(&numbers, 1, memory_order_relaxed) & PKT_QPN_MASK;
	srq->srq.context = pd->context;
	srq->srq.srq_context = init->srq_context;
	srq->srq.pd = pd;
	srq->srq.handle = srq->number;
	srq_init_events(srq);
	verbs_recv_size(&srq->rq, a->max_wr, a->max_sge);
	queue = &srq->rq;
	ret = verbs_queues_alloc(ctx, &queue, 1, &srq->mem, &srq->mem_size);
	if (ret)
		goto free_srq;
	ret = srq_start(ctx, srq);
	if (ret)
		goto free_mem;
	a->max_wr = srq->rq.depth;
	a->max_sge = srq->rq.max_sge;
	pthread_mutex_lock(&ctx->lock);
	list_add_tail(&srq->link, &ctx->srqs);
	pthread_mutex_unlock(&ctx->lock);
	return &srq->srq;

free_mem:
	verbs_queues_free(ctx, srq->mem, srq->mem_size);
free_srq:
	free(srq);
	return verbs_null(-ret);
}

/* Changes the size of a queue. PU owned. The queue's lock makes posting wait. */
static int srq_resize(struct verbs_srq *srq, uint32_t max_wr)
{
	struct verbs_ctx *ctx = verbs_ctx(srq->srq.context);
	struct verbs_queue next = {.max_sge = srq->rq.max_sge, .shift = srq->rq.shift},
			   *queue = &next;
	struct nic_queue_attr attr;
	void *mem, *old = srq->mem;
	size_t size, old_size = srq->mem_size;
	int ret;

	if (!max_wr || max_wr > NIC_MAX_WR)
		return -EINVAL;
	next.depth = (uint32_t)pow2_ceil(max_wr);
	ret = verbs_queues_alloc(ctx, &queue, 1, &mem, &size);
	if (ret)
		return ret;
	attr = verbs_queue_attr(&next);
	spin_lock(&srq->rq.lock);
	ret = nic_srq_set_ring(srq->nic_srq, &attr);
	if (!ret) {
		srq->rq.ring = next.ring;
		srq->rq.wr_id = next.wr_id;
		srq->rq.index = next.index;
		srq->rq.depth = next.depth;
		srq->rq.mask = next.depth - 1;
		srq->rq.cons_seen = atomic_load_explicit(&next.index->cons, memory_order_relaxed);
		srq->mem = mem;
		srq->mem_size = size;
	}
	spin_unlock(&srq->rq.lock);
	verbs_queues_free(ctx, ret ? mem : old, ret ? size : old_size);
	return ret;
}

/* Makes all changes of the mask, or none. PU owned. */
static int srq_modify(struct verbs_srq *srq, const struct ibv_srq_attr *attr, int mask)
{
	uint32_t old = nic_srq_limit(srq->nic_srq);
	int ret = 0;

	if (!(mask & IBV_SRQ_MAX_WR))
		return mask & IBV_SRQ_LIMIT ? nic_srq_set_limit(srq->nic_srq, attr->srq_limit) : 0;
	if (mask & IBV_SRQ_LIMIT) {
		if (attr->srq_limit > attr->max_wr)
			return -EINVAL;
		/* the new size need not fit the old limit */
		nic_srq_set_limit(srq->nic_srq, 0);
	}
	ret = srq_resize(srq, attr->max_wr);
	if (mask & IBV_SRQ_LIMIT)
		nic_srq_set_limit(srq->nic_srq, ret ? old : attr->srq_limit);
	return ret;
}

VERBS_EXPORT int ibv_modify_srq(struct ibv_srq *ibsrq, struct ibv_srq_attr *attr, int mask)
{
	struct verbs_srq *srq = verbs_srq(ibsrq);
	unsigned pu;
	int ret;

	if (mask & ~(IBV_SRQ_LIMIT | IBV_SRQ_MAX_WR))
		return verbs_ret(-EINVAL);
	drive_control_lock(srq->drive);
	pu = nic_srq_pu(srq->nic_srq);
	drive_own(srq->drive, pu);
	ret = srq_modify(srq, attr, mask);
	drive_disown(srq->drive, pu);
	drive_control_unlock(srq->drive);
	return verbs_ret(ret);
}

VERBS_EXPORT int ibv_query_srq(struct ibv_srq *ibsrq, struct ibv_srq_attr *attr)
{
	struct verbs_srq *srq = verbs_srq(ibsrq);
	unsigned pu;

	attr->max_wr = srq->rq.depth;
	attr->max_sge = srq->rq.max_sge;
	drive_control_lock(srq->drive);
	pu = nic_srq_pu(srq->nic_srq);
	drive_own(srq->drive, pu);
	attr->srq_limit = nic_srq_limit(srq->nic_srq);
	drive_disown(srq->drive, pu);
	drive_control_unlock(srq->drive);
	return 0;
}

/*
 * An SRQ of the basic type has no number on the wire. The number distinguishes SRQs of this
 * process.
 */
int verbs_get_srq_num(struct ibv_srq *srq, uint32_t *number)
{
	*number = verbs_srq(srq)->number;
	return 0;
}

static int srq_end(struct verbs_srq *srq)
{
	int ret;

	if (srq->ended) /* by a thread that was cancelled in srq_wait_acks() */
		return 0;
	drive_control_lock(srq->drive);
	ret = nic_srq_destroy(drive_nic(srq->drive), srq->nic_srq);
	drive_control_unlock(srq->drive);
	srq->ended = !ret;
	return ret;
}

/* As cq_wait_acks(). */
static void srq_wait_acks(struct verbs_srq *srq)
{
	struct evq *async = &verbs_ctx(srq->srq.context)->async;
	uint32_t reported;

	evq_forget(async, &srq->limit_event);
	reported = evq_forget(async, &srq->error_event);
	pthread_mutex_lock(&srq->srq.mutex);
	pthread_cleanup_push(verbs_unlock, &srq->srq.mutex);
	while (srq->srq.events_completed != reported)
		pthread_cond_wait(&srq->srq.cond, &srq->srq.mutex);
	pthread_cleanup_pop(1);
}

VERBS_EXPORT int ibv_destroy_srq(struct ibv_srq *ibsrq)
{
	struct verbs_srq *srq = verbs_srq(ibsrq);
	struct verbs_ctx *ctx = verbs_ctx(ibsrq->context);
	int ret = srq_end(srq);

	if (ret)
		return verbs_ret(ret);
	srq_wait_acks(srq);
	pthread_mutex_lock(&ctx->lock);
	list_del(&srq->link);
	pthread_mutex_unlock(&ctx->lock);
	pthread_mutex_destroy(&ibsrq->mutex);
	pthread_cond_destroy(&ibsrq->cond);
	verbs_queues_free(ctx, srq->mem, srq->mem_size);
	free(srq);
	return 0;
}

/*
 * Ends the shared receive queues. Their memory stays, because the program still has the objects (as
 * in cq.c).
 */
void verbs_srq_reap(struct verbs_ctx *ctx)
{
	struct verbs_srq *srq;

	while (!list_empty(&ctx->srqs)) {
		srq = list_first_entry(&ctx->srqs, struct verbs_srq, link);
		list_del(&srq->link);
		srq_end(srq);
	}
}
