/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Completion channels and asynchronous events: the NIC reports events, and programs take and
 * acknowledge them.
 */
#include <stdatomic.h>
#include <stdlib.h>

#include "base/sys.h"
#include "verbs/objects.h"
#include "verbs/private.h"

/* ---- from the NIC, under PU ownership ---- */

void verbs_cq_fired(struct verbs_cq *cq)
{
	if (!cq->cq.channel)
		return;
	atomic_store_explicit(&cq->announced,
			      atomic_load_explicit(&cq->index->prod, memory_order_acquire),
			      memory_order_relaxed);
	drive_cq_fired(cq->drive);
	evq_raise(verbs_evq(cq->cq.channel), &cq->comp_event);
}

static void on_cq_event(void *host, void *cq_ctx)
{
	verbs_cq_fired(cq_ctx);
}

/* Stored (release) when its owner is initialized, loaded (acquire) by the owner of a PU. */
static _Atomic(void (*)(uint32_t qpn)) first_packet_hook;

void verbs_on_first_packet(void (*fn)(uint32_t qpn))
{
	atomic_store_explicit(&first_packet_hook, fn, memory_order_release);
}

static void call_first_packet_hook(const struct verbs_qp *qp)
{
	void (*fn)(uint32_t qpn) = atomic_load_explicit(&first_packet_hook, memory_order_acquire);

	if (fn)
		fn(qp->qp.qp_num);
}

static void on_qp_event(void *host, enum nic_event ev, void *qp_ctx)
{
	struct verbs_qp *qp = qp_ctx;

	unsigned slot = ev == NIC_EVENT_LAST_WQE ? VERBS_QP_LAST_WQE : (unsigned)ev;

	if (ev == NIC_EVENT_COMM_EST || ev == NIC_EVENT_FIRST_PACKET)
		call_first_packet_hook(qp);
	if (slot < VERBS_QP_EVENTS)
		evq_raise(&verbs_ctx(qp->qp.context)->async, &qp->events[slot]);
}

static void on_cq_error(void *host, void *cq_ctx)
{
	struct verbs_cq *cq = cq_ctx;

	evq_raise(&verbs_ctx(cq->cq.context)->async, &cq->async_event);
}

static void on_srq_event(void *host, enum nic_event ev, void *srq_ctx)
{
	struct verbs_srq *srq = srq_ctx;

	evq_raise(&verbs_ctx(srq->srq.context)->async,
		  ev == NIC_EVENT_SRQ_LIMIT ? &srq->limit_event : &srq->error_event);
}

const struct nic_host_ops verbs_host_ops = {
	.cq_event = on_cq_event,
	.qp_event = on_qp_event,
	.cq_error = on_cq_error,
	.srq_event = on_srq_event,
};

/* ---- completion channels ---- */

VERBS_EXPORT struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *context)
{
	struct verbs_channel *ch = verbs_new(sizeof(*ch));
	int ret;

	if (!ch)
		return NULL;
	ret = evq_init(&ch->events);
	if (ret) {
		free(ch);
		return verbs_null(-ret);
	}
	ch->channel.context = context;
	ch->channel.fd = ch->events.fd;
	return &ch->channel;
}

VERBS_EXPORT int ibv_destroy_comp_channel(struct ibv_comp_channel *channel)
{
	struct ibv_context *context = channel->context;
	struct verbs_channel *ch = (struct verbs_channel *)channel;
	bool busy;

	pthread_mutex_lock(&context->mutex);
	busy = channel->refcnt != 0;
	pthread_mutex_unlock(&context->mutex);
	if (busy)
		return verbs_ret(-EBUSY);
	evq_destroy(&ch->events);
	free(ch);
	return 0;
}

VERBS_EXPORT int ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq,
				  void **cq_context)
{
	struct verbs_channel *ch = (struct verbs_channel *)channel;
	void *object;
	int type, ret;

	ret = evq_take(&ch->events, verbs_ctx(channel->context)->drive, &type, &object);
	if (ret) {
		errno = -ret;
		return -1;
	}
	*cq = object;
	*cq_context = (*cq)->cq_context;
	return 0;
}

VERBS_EXPORT void ibv_ack_cq_events(struct ibv_cq *cq, unsigned int nevents)
{
	if (!nevents)
		return;
	pthread_mutex_lock(&cq->mutex);
	cq->comp_events_completed += nevents;
	pthread_cond_signal(&cq->cond);
	pthread_mutex_unlock(&cq->mutex);
}

/* ---- asynchronous events ---- */

/*
 * Sleeps without driving the NIC. Most programs call it in a thread of its own, which must not take
 * the NIC from the thread that polls.
 */
VERBS_EXPORT int ibv_get_async_event(struct ibv_context *context, struct ibv_async_event *event)
{
	void *object;
	int type, ret;

	ret = evq_take(&verbs_ctx(context)->async, NULL, &type, &object);
	if (ret) {
		errno = -ret;
		return -1;
	}
	event->event_type = (enum ibv_event_type)type;
	if (type == IBV_EVENT_CQ_ERR)
		event->element.cq = object;
	else if (type == IBV_EVENT_SRQ_ERR || type == IBV_EVENT_SRQ_LIMIT_REACHED)
		event->element.srq = object;
	else
		event->element.qp = object;
	return 0;
}

VERBS_EXPORT void ibv_ack_async_event(struct ibv_async_event *event)
{
	switch (event->event_type) {
	case IBV_EVENT_CQ_ERR:
		pthread_mutex_lock(&event->element.cq->mutex);
		event->element.cq->async_events_completed++;
		pthread_cond_signal(&event->element.cq->cond);
		pthread_mutex_unlock(&event->element.cq->mutex);
		break;
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
	case IBV_EVENT_COMM_EST:
	case IBV_EVENT_SQ_DRAINED:
	case IBV_EVENT_QP_LAST_WQE_REACHED:
		pthread_mutex_lock(&event->element.qp->mutex);
		event->element.qp->events_completed++;
		pthread_cond_signal(&event->element.qp->cond);
		pthread_mutex_unlock(&event->element.qp->mutex);
		break;
	case IBV_EVENT_SRQ_ERR:
	case IBV_EVENT_SRQ_LIMIT_REACHED:
		pthread_mutex_lock(&event->element.srq->mutex);
		event->element.srq->events_completed++;
		pthread_cond_signal(&event->element.srq->cond);
		pthread_mutex_unlock(&event->element.srq->mutex);
		break;
	default:
		break; /* events of the device and its ports are not counted */
	}
}
