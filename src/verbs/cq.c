/* SPDX-License-Identifier: BSD-2-Clause */
/* Control of completion queues. poll.c and cq_ex.c take the completions out. */
#include <stdlib.h>
#include <string.h>

#include "verbs/objects.h"

static void cq_init_events(struct verbs_cq *cq)
{
	cq->comp_event.reported = &cq->comp_reported;
	cq->comp_event.object = &cq->cq;
	cq->async_event.reported = &cq->async_reported;
	cq->async_event.object = &cq->cq;
	cq->async_event.type = IBV_EVENT_CQ_ERR;
	pthread_mutex_init(&cq->cq.mutex, NULL);
	pthread_cond_init(&cq->cq.cond, NULL);
}

#define TOUCHED 65536u /* bytes */

/*
 * Touches the first pages, so that they are resident. Otherwise the first completion on each page
 * would cost a page fault of some microseconds.
 */
static int cq_alloc_ring(uint32_t depth, struct roost_cqe **ring, size_t *size)
{
	volatile char *p;

	*size = (size_t)depth * sizeof(**ring);
	p = mem_alloc_pages(*size);
	*ring = (struct roost_cqe *)p;
	for (size_t at = 0; p && at < *size && at < TOUCHED; at += mem_page_size())
		p[at] = 0;
	return p ? 0 : -ENOMEM;
}

static int cq_start(struct verbs_ctx *ctx, struct verbs_cq *cq, uint32_t depth)
{
	struct nic_cq_attr attr = {.pu = cq->pu, .depth = depth, .ctx = cq};
	int ret;

	cq->index = verbs_new(sizeof(*cq->index));
	if (!cq->index)
		return -ENOMEM;
	ret = cq_alloc_ring(depth, &cq->ring, &cq->ring_size);
	if (ret)
		goto free_index;
	cq->mask = depth - 1;
	if (cq->counting)
		attr.depth = 0;
	else
		attr.ring = cq->ring;
	attr.index = cq->index;
	drive_control_lock(cq->drive);
	ret = nic_cq_create(ctx->nic, &attr, &cq->nic_cq);
	drive_control_unlock(cq->drive);
	if (!ret)
		return 0;
	mem_free_pages(cq->ring, cq->ring_size);
free_index:
	free(cq->index);
	return ret;
}

static void channel_ref(struct ibv_comp_channel *channel, int n)
{
	if (!channel)
		return;
	pthread_mutex_lock(&channel->context->mutex);
	channel->refcnt += n;
	pthread_mutex_unlock(&channel->context->mutex);
}

static int cq_check(const struct verbs_ctx *ctx, const struct ibv_cq_init_attr_ex *attr)
{
	if (!attr->cqe || attr->cqe > NIC_MAX_CQE)
		return -EINVAL;
	if (attr->comp_vector >= (uint32_t)ctx->vctx.context.num_comp_vectors)
		return -EINVAL;
	if (attr->comp_mask & ~(uint32_t)IBV_CQ_INIT_ATTR_MASK_FLAGS)
		return -EOPNOTSUPP;
	if (attr->wc_flags & ~(uint64_t)VERBS_CQ_EX_FLAGS)
		return -EOPNOTSUPP;
	if (attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS &&
	    attr->flags & ~(uint32_t)IBV_CREATE_CQ_ATTR_SINGLE_THREADED)
		return -EOPNOTSUPP;
	return 0;
}

struct ibv_cq *verbs_create_any_cq(struct ibv_context *context, struct ibv_cq_init_attr_ex *attr,
				   bool counting)
{
	struct verbs_ctx *ctx = verbs_ctx(context);
	int ret = cq_check(ctx, attr);
	struct verbs_cq *cq;

	if (ret)
		return verbs_null(-ret);
	cq = verbs_new(sizeof(*cq));
	if (!cq)
		return NULL;
	cq->drive = ctx->drive;
	cq->pu = attr->comp_vector;
	cq->counting = counting;
	cq->single_threaded = attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS &&
			      attr->flags & IBV_CREATE_CQ_ATTR_SINGLE_THREADED;
	cq->cq.context = context;
	cq->cq.channel = attr->channel;
	cq->cq.cq_context = attr->cq_context;
	cq_init_events(cq);
	verbs_cq_ex_init(cq);
	ret = cq_start(ctx, cq, (uint32_t)pow2_ceil(attr->cqe));
	if (ret) {
		free(cq);
		return verbs_null(-ret);
	}
	cq->cq.cqe = (int)(cq->mask + 1);
	channel_ref(cq->cq.channel, 1);
	pthread_mutex_lock(&ctx->lock);
	list_add_tail(&cq->link, &ctx->cqs);
	pthread_mutex_unlock(&ctx->lock);
	return &cq->cq;
}

struct ibv_cq_ex *verbs_create_cq_ex(struct ibv_context *context, struct ibv_cq_init_attr_ex *attr)
{
	return (struct ibv_cq_ex *)verbs_create_any_cq(context, attr, false);
}

VERBS_EXPORT struct ibv_cq *ibv_create_cq(struct ibv_context *context, int cqe, void *cq_context,
					  struct ibv_comp_channel *channel, int comp_vector)
{
	struct ibv_cq_init_attr_ex attr = {
		.cqe = cqe > 0 ? (uint32_t)cqe : 0,
		.cq_context = cq_context,
		.channel = channel,
		.comp_vector = (uint32_t)comp_vector,
	};

	return (struct ibv_cq *)verbs_create_cq_ex(context, &attr);
}

static int cq_end(struct verbs_cq *cq)
{
	uint32_t arm;
	int ret;

	if (cq->ended) /* by a thread that was cancelled in cq_wait_acks() */
		return 0;
	drive_control_lock(cq->drive);
	drive_own(cq->drive, cq->pu);
	ret = nic_cq_destroy(drive_nic(cq->drive), cq->nic_cq);
	drive_disown(cq->drive, cq->pu);
	drive_control_unlock(cq->drive);
	if (ret)
		return ret;
	cq->ended = true;
	arm = atomic_exchange_explicit(&cq->index->arm, ROOST_CQ_UNARMED, memory_order_acq_rel);
	if (arm != ROOST_CQ_UNARMED && cq->cq.channel)
		drive_cq_disarmed(cq->drive);
	return 0;
}

/*
 * Drops unread events and waits until the program has acknowledged the others. The NIC raises no
 * further events. The wait is a cancellation point, as in rdma-core. A thread that is cancelled
 * there leaves the object to another call of the same function.
 */
static void cq_wait_acks(struct verbs_cq *cq)
{
	struct ibv_comp_channel *channel = cq->cq.channel;
	const uint32_t comp = channel ? evq_forget(verbs_evq(channel), &cq->comp_event) : 0;
	const uint32_t async = evq_forget(&verbs_ctx(cq->cq.context)->async, &cq->async_event);

	pthread_mutex_lock(&cq->cq.mutex);
	pthread_cleanup_push(verbs_unlock, &cq->cq.mutex);
	while (cq->cq.comp_events_completed != comp || cq->cq.async_events_completed != async)
		pthread_cond_wait(&cq->cq.cond, &cq->cq.mutex);
	pthread_cleanup_pop(1);
}

VERBS_EXPORT int ibv_destroy_cq(struct ibv_cq *ibcq)
{
	struct verbs_cq *cq = verbs_cq(ibcq);
	struct verbs_ctx *ctx = verbs_ctx(ibcq->context);
	int ret = cq_end(cq);

	if (ret)
		return verbs_ret(ret);
	cq_wait_acks(cq);
	channel_ref(ibcq->channel, -1);
	pthread_mutex_lock(&ctx->lock);
	list_del(&cq->link);
	pthread_mutex_unlock(&ctx->lock);
	pthread_mutex_destroy(&ibcq->mutex);
	pthread_cond_destroy(&ibcq->cond);
	mem_free_pages(cq->ring, cq->ring_size);
	free(cq->index);
	free(cq);
	return 0;
}

/*
 * Makes the NIC stop using the CQs. Their memory stays, because the program still has the objects.
 */
void verbs_cq_reap(struct verbs_ctx *ctx)
{
	struct verbs_cq *cq;

	while (!list_empty(&ctx->cqs)) {
		cq = list_first_entry(&ctx->cqs, struct verbs_cq, link);
		list_del(&cq->link);
		cq_end(cq);
		if (cq->cq.channel)
			evq_forget(&container_of(cq->cq.channel, struct verbs_channel, channel)
					    ->events,
				   &cq->comp_event);
	}
}

/* Returns whether the n-th completion is in the ring. */
static bool cqe_there(const struct verbs_cq *cq, uint32_t n)
{
	return atomic_load_explicit(&cq->ring[n & cq->mask].seq, memory_order_acquire) == n + 1;
}

/* Copies a completion into the slot of completion n. */
static void cqe_store(struct roost_cqe *to, const struct roost_cqe *from, uint32_t n)
{
	memcpy(to, from, offsetof(struct roost_cqe, seq));
	atomic_store_explicit(&to->seq, n + 1, memory_order_release);
}

static uint32_t newest(struct ibv_cq *cq)
{
	return atomic_load_explicit(&verbs_cq(cq)->index->prod, memory_order_relaxed);
}

struct verbs_cqs_end verbs_cqs_end(const struct verbs_qp *qp)
{
	return (struct verbs_cqs_end){newest(qp->qp.send_cq), newest(qp->qp.recv_cq)};
}

/*
 * Removes the QP's completions before number `end`. Those that stay move towards `end`. The free
 * slots are then at the oldest end, where the program takes completions:
 *
 *	cons              end             cons          end
 *	 | a X b X X c d e | f X   ->      . . . a b c d e | f X
 *
 * The NIC may add completions meanwhile. It writes to other slots.
 */
static void cq_clean(struct verbs_cq *cq, uint32_t qpn, uint32_t end)
{
	uint32_t n, holes = 0;

	spin_lock(&cq->lock);
	for (n = cq->cons; (int32_t)(n - end) < 0 && n - cq->cons <= cq->mask && cqe_there(cq, n);
	     n++)
		;
	for (; n != cq->cons; n--) {
		struct roost_cqe *cqe = &cq->ring[(n - 1) & cq->mask];

		if (cqe->qpn == qpn)
			holes++;
		else if (holes)
			cqe_store(&cq->ring[(n - 1 + holes) & cq->mask], cqe, n - 1 + holes);
	}
	cq->cons += holes;
	atomic_store_explicit(&cq->index->cons, cq->cons, memory_order_release);
	spin_unlock(&cq->lock);
}

void verbs_cqs_clean(const struct verbs_qp *qp, struct verbs_cqs_end end)
{
	cq_clean(verbs_cq(qp->qp.recv_cq), qp->qp.qp_num, end.recv);
	if (qp->qp.send_cq != qp->qp.recv_cq)
		cq_clean(verbs_cq(qp->qp.send_cq), qp->qp.qp_num, end.send);
}

/* Moves the waiting completions to a new ring. CQ locked, all PUs owned. */
static int cq_move_to(struct verbs_cq *cq, struct roost_cqe *ring, uint32_t depth)
{
	uint32_t n = cq->cons, i;

	for (; n - cq->cons <= cq->mask && cqe_there(cq, n); n++)
		if (n - cq->cons >= depth)
			return -EINVAL; /* the new ring is too small for the waiting completions */
	/*
	 * Zero is a valid sequence number once the count has wrapped, so each slot gets a number
	 * that is not valid for it yet.
	 */
	for (i = 0; i < depth; i++)
		atomic_store_explicit(&ring[(cq->cons + i) & (depth - 1)].seq, cq->cons + i,
				      memory_order_relaxed);
	while (n-- != cq->cons)
		cqe_store(&ring[n & (depth - 1)], &cq->ring[n & cq->mask], n);
	nic_cq_set_ring(cq->nic_cq, ring, depth);
	return 0;
}

VERBS_EXPORT int ibv_resize_cq(struct ibv_cq *ibcq, int cqe)
{
	struct verbs_cq *cq = verbs_cq(ibcq);
	struct roost_cqe *ring, *old;
	size_t size, old_size;
	uint32_t depth;
	int ret;

	if (cqe < 1 || (uint32_t)cqe > NIC_MAX_CQE || cq->counting)
		return verbs_ret(-EINVAL);
	depth = (uint32_t)pow2_ceil((uint32_t)cqe);
	ret = cq_alloc_ring(depth, &ring, &size);
	if (ret)
		return verbs_ret(ret);
	spin_lock(&cq->lock);
	drive_control_lock(cq->drive);
	verbs_own_all(cq->drive); /* several PUs may write completions to this CQ */
	ret = cq_move_to(cq, ring, depth);
	old = ret ? ring : cq->ring;
	old_size = ret ? size : cq->ring_size;
	if (!ret) {
		cq->ring = ring;
		cq->ring_size = size;
		cq->mask = depth - 1;
		ibcq->cqe = (int)depth;
	}
	verbs_disown_all(cq->drive);
	drive_control_unlock(cq->drive);
	spin_unlock(&cq->lock);
	mem_free_pages(old, old_size);
	return verbs_ret(ret);
}

/*
 * Returns whether completions wait that came after the last event. With `solicited_only`, only
 * solicited ones and errors count.
 */
static bool cq_waits(const struct verbs_cq *cq, bool solicited_only)
{
	const struct roost_cq_index *index = cq->index;
	uint32_t newest = atomic_load_explicit(solicited_only ? &index->solicited : &index->prod,
					       memory_order_acquire);

	uint32_t cons = atomic_load_explicit(&index->cons, memory_order_relaxed);
	uint32_t announced = atomic_load_explicit(&cq->announced, memory_order_relaxed);

	if ((int32_t)(newest - cons) <= 0)
		return false;
	/*
	 * If the counts have wrapped since the last event, it announced none of these completions.
	 */
	return announced - cons > cq->mask + 1 || (int32_t)(newest - announced) > 0;
}

int verbs_req_notify_cq(struct ibv_cq *ibcq, int solicited_only)
{
	struct verbs_cq *cq = verbs_cq(ibcq);
	uint32_t arm = solicited_only ? ROOST_CQ_ARM_SOLICITED : ROOST_CQ_ARM_NEXT, before;

	/* Arming for solicited completions only does not undo an earlier arming for all. */
	if (solicited_only &&
	    atomic_load_explicit(&cq->index->arm, memory_order_relaxed) == ROOST_CQ_ARM_NEXT)
		arm = ROOST_CQ_ARM_NEXT;
	/*
	 * The NIC stores a completion, and then reads `arm` by a read-modify-write. This is a
	 * read-modify-write too. In either order, either the NIC sees that the CQ is armed, or this
	 * thread sees the completion.
	 */
	before = atomic_exchange_explicit(&cq->index->arm, arm, memory_order_acq_rel);
	if (ibcq->channel)
		drive_cq_armed(cq->drive, before == ROOST_CQ_UNARMED,
			       evq_waits_inside(verbs_evq(ibcq->channel)));
	/*
	 * Completions that came since the last event raise another event at once. ConnectX does the
	 * same: its arm doorbell has the consumer index. Programs that do not poll between arming
	 * and sleeping (UCX) rely on it. Completions that the last event announced raise no event:
	 * programs that take an event, arm and then poll once (perftest -e) would find the queue
	 * empty after the next event.
	 */
	if (cq_waits(cq, solicited_only) &&
	    atomic_exchange_explicit(&cq->index->arm, ROOST_CQ_UNARMED, memory_order_acq_rel) !=
		    ROOST_CQ_UNARMED)
		verbs_cq_fired(cq);
	return 0;
}
