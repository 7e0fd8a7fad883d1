/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Memory of send and receive queues, and ownership of several processing units at once. qp.c, srq.c
 * and cq.c use it.
 */
#include "verbs/objects.h"

#define MIN_SHIFT 6

uint32_t verbs_stride_shift(size_t bytes)
{
	uint32_t shift = MIN_SHIFT;

	while (bytes > 1u << shift)
		shift++;
	return shift;
}

void verbs_recv_size(struct verbs_queue *rq, uint32_t max_wr, uint32_t max_sge)
{
	rq->depth = (uint32_t)pow2_ceil(max_wr);
	rq->mask = rq->depth - 1;
	rq->shift = verbs_stride_shift(ROOST_RECV_SGE_OFFSET + max_sge * sizeof(struct roost_sge));
	rq->max_sge = max_sge;
}

/*
 * Takes the memory of a small queue from an arena, so that the queues of many queue pairs lie close
 * together. The NIC's own memory of queue pairs is laid out the same way.
 */
static void *take_small(struct verbs_ctx *ctx, size_t size)
{
	void *p;

	pthread_mutex_lock(&ctx->lock);
	p = arena_alloc(&ctx->queues, size);
	pthread_mutex_unlock(&ctx->lock);
	return p ? memset(p, 0, size) : NULL;
}

void verbs_queues_free(struct verbs_ctx *ctx, void *mem, size_t size)
{
	nic_memory_give(ctx->nic, size);
	if (size > ARENA_LARGEST) {
		mem_free_pages(mem, size);
		return;
	}
	pthread_mutex_lock(&ctx->lock);
	arena_free(&ctx->queues, mem, size);
	pthread_mutex_unlock(&ctx->lock);
}

int verbs_queues_alloc(struct verbs_ctx *ctx, struct verbs_queue *const *queues, int n, void **mem,
		       size_t *size)
{
	uint8_t *p;
	int i;

	*size = 0;
	for (i = 0; i < n; i++)
		*size += sizeof(struct roost_queue_index) +
			 ((size_t)queues[i]->depth << queues[i]->shift) +
			 ALIGN_UP(queues[i]->depth * sizeof(uint64_t), CACHE_LINE);
	if (!nic_memory_take(ctx->nic, *size))
		return -ENOMEM;
	p = *size > ARENA_LARGEST ? mem_alloc_pages(*size) : take_small(ctx, *size);
	if (!p) {
		nic_memory_give(ctx->nic, *size);
		return -ENOMEM;
	}
	*mem = p;
	for (i = 0; i < n; i++) {
		queues[i]->index = (struct roost_queue_index *)p;
		p += sizeof(struct roost_queue_index);
	}
	for (i = 0; i < n; i++) {
		queues[i]->ring = p;
		p += (size_t)queues[i]->depth << queues[i]->shift;
	}
	for (i = 0; i < n; i++) {
		queues[i]->wr_id = (uint64_t *)p;
		p += ALIGN_UP(queues[i]->depth * sizeof(uint64_t), CACHE_LINE);
	}
	return 0;
}

struct nic_queue_attr verbs_queue_attr(const struct verbs_queue *q)
{
	return (struct nic_queue_attr){
		.ring = q->ring,
		.wr_id = q->wr_id,
		.index = q->index,
		.depth = q->depth,
		.stride_shift = (uint8_t)q->shift,
	};
}

void verbs_own_all(struct drive *d)
{
	unsigned i, pus = nic_pus(drive_nic(d));

	for (i = 0; i < pus; i++)
		drive_own(d, i);
}

void verbs_disown_all(struct drive *d)
{
	unsigned i, pus = nic_pus(drive_nic(d));

	for (i = 0; i < pus; i++)
		drive_disown(d, i);
}
