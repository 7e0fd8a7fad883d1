/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Event channels and their events. An event belongs to an id from the time it is raised until it is
 * acknowledged. When the id ends, events that were not taken are dropped, and the id waits until
 * the others are acknowledged. A connection request belongs to its listener.
 *
 * raised: on the owner's list, in the channel's queue -> taken: on the list -> acknowledged: freed
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "rdmacm/rdmacm.h"

/* ---- channels ---- */

ROOST_EXPORT struct rdma_event_channel *rdma_create_event_channel(void)
{
	struct rdmacm_channel *ch = calloc(1, sizeof(*ch));
	int ret;

	if (!ch) {
		errno = ENOMEM;
		return NULL;
	}
	ret = evq_init(&ch->queue);
	if (ret) {
		free(ch);
		errno = -ret;
		return NULL;
	}
	ch->channel.fd = ch->queue.fd;
	rdmacm_lock();
	list_add_tail(&ch->link, &agent.channels);
	rdmacm_unlock();
	return &ch->channel;
}

/*
 * Programs destroy a channel while one of their threads waits on it, or is about to (rping at its
 * end). With the Linux kernel's descriptor such a thread continues to sleep. The same happens here:
 * the memory of the last channels is kept, so that the thread can see that its channel is closed.
 */
static struct rdmacm_channel *closed_channels[16];

ROOST_EXPORT void rdma_destroy_event_channel(struct rdma_event_channel *channel)
{
	struct rdmacm_channel *ch = (struct rdmacm_channel *)channel;
	static unsigned next;
	struct rdmacm_channel *oldest;

	rdmacm_lock();
	list_del(&ch->link);
	ch->closed = true;
	oldest = closed_channels[next];
	closed_channels[next] = ch;
	next = (next + 1) % (sizeof(closed_channels) / sizeof(closed_channels[0]));
	rdmacm_unlock();
	evq_destroy(&ch->queue);
	free(oldest);
}

static void sleep_if_closed(const struct rdmacm_channel *ch)
{
	bool closed;

	rdmacm_lock();
	closed = ch->closed;
	rdmacm_unlock();
	while (closed)
		pause();
}

static struct evq *queue_of(const struct rdma_event_channel *channel)
{
	return &((struct rdmacm_channel *)channel)->queue;
}

/* ---- raising ---- */

struct rdmacm_event *rdmacm_event_new(struct rdmacm_id *owner, struct rdmacm_id *about,
				      enum rdma_cm_event_type type)
{
	struct rdmacm_event *e = calloc(1, sizeof(*e));

	if (!e)
		return NULL;
	e->owner = owner;
	e->event.id = &about->id;
	e->event.event = type;
	e->queued.object = e;
	e->queued.reported = &e->taken;
	return e;
}

/* The pointer to the private data has the same place in both kinds of events. */
void rdmacm_event_data(struct rdmacm_event *e, const void *data, size_t len)
{
	if (!data || len > sizeof(e->data))
		return;
	memcpy(e->data, data, len);
	e->event.param.conn.private_data = e->data;
	e->event.param.conn.private_data_len = (uint8_t)len;
}

void rdmacm_event_raise(struct rdmacm_event *e)
{
	list_add_tail(&e->link, &e->owner->events);
	evq_raise(queue_of(e->owner->id.channel), &e->queued);
}

int rdmacm_event_simple(struct rdmacm_id *id, enum rdma_cm_event_type type, int status)
{
	struct rdmacm_event *e = rdmacm_event_new(id, id, type);

	if (!e)
		return -ENOMEM;
	e->event.status = status;
	rdmacm_event_raise(e);
	return 0;
}

/* ---- ending events ---- */

/*
 * Takes an event out of the queue of its channel. Returns true if the program has not taken the
 * event; it will not get it any more.
 */
static bool withdraw(struct rdmacm_event *e)
{
	return evq_forget(queue_of(e->owner->id.channel), &e->queued) == 0;
}

static void discard(struct rdmacm_event *e)
{
	list_del(&e->link);
	if (e->event.event == RDMA_CM_EVENT_CONNECT_REQUEST && !e->taken)
		/* the program has not seen the id, so its request is rejected */
		rdmacm_id_end(rdmacm_id(e->event.id));
	free(e);
}

/*
 * Drops an event that the program has not taken. Returns false if there is none. The lock may be
 * released meanwhile, so the list may be another one afterwards.
 */
static bool drop_one(struct rdmacm_id *id)
{
	struct rdmacm_event *e;

	list_for_each_entry (e, &id->events, link) {
		if (withdraw(e)) {
			discard(e);
			return true;
		}
	}
	return false;
}

void rdmacm_events_end(struct rdmacm_id *id)
{
	while (drop_one(id))
		;
	while (!list_empty(&id->events))
		rdmacm_wait();
}

static bool is_about_group(const struct rdmacm_event *e, const struct pkt_addr *group)
{
	return (e->event.event == RDMA_CM_EVENT_MULTICAST_JOIN ||
		e->event.event == RDMA_CM_EVENT_MULTICAST_ERROR) &&
	       memcmp(e->event.param.ud.ah_attr.grh.dgid.raw, group->b, sizeof(group->b)) == 0;
}

void rdmacm_events_drop_group(struct rdmacm_id *id, const struct pkt_addr *group)
{
	struct rdmacm_event *e, *tmp;

	list_for_each_entry_safe (e, tmp, &id->events, link) {
		if (is_about_group(e, group) && withdraw(e))
			discard(e);
	}
}

ROOST_EXPORT int rdma_ack_cm_event(struct rdma_cm_event *event)
{
	struct rdmacm_event *e = (struct rdmacm_event *)event;

	if (!event)
		return rdmacm_ret(-EINVAL);
	rdmacm_lock();
	discard(e);
	pthread_cond_broadcast(&agent.progress);
	rdmacm_unlock();
	return 0;
}

/* ---- taking ---- */

/* Returns false if the program must not see the event. Lock held; it is released for a while. */
static bool take_rejection(struct rdmacm_id *id)
{
	bool seen;

	rdmacm_change_begin(id);
	seen = !id->connect_error;
	if (seen)
		rdmacm_qp_to_error(id);
	rdmacm_change_end(id);
	return seen;
}

/*
 * Prepares an event for the program. Returns false if the program must not see it. The id exists
 * until the event is acknowledged. Lock held; it may be released for a while.
 */
static bool take(struct rdmacm_event *e)
{
	struct rdmacm_id *id = rdmacm_id(e->event.id);

	/* Another thread is ending the listener, and with it a request that was not taken. */
	if (id->passive && !id->shown && e->event.event != RDMA_CM_EVENT_CONNECT_REQUEST)
		return false;
	switch (e->event.event) {
	case RDMA_CM_EVENT_CONNECT_REQUEST:
		id->shown = true;
		if (id->conn)
			cm_request_taken(id->conn);
		break;
	case RDMA_CM_EVENT_CONNECT_RESPONSE:
		rdmacm_take_reply(e);
		break;
	case RDMA_CM_EVENT_REJECTED:
		return take_rejection(id);
	case RDMA_CM_EVENT_DISCONNECTED:
		return !id->connect_error;
	default:
		break;
	}
	return true;
}

/*
 * Sleeps without driving the NIC. Most programs call this in a thread of its own, and the service
 * thread brings the events anyway.
 */
ROOST_EXPORT int rdma_get_cm_event(struct rdma_event_channel *channel, struct rdma_cm_event **event)
{
	struct rdmacm_event *e;
	void *object;
	int type, ret;
	bool seen;

	if (!channel || !event)
		return rdmacm_ret(-EINVAL);
	do {
		sleep_if_closed((struct rdmacm_channel *)channel);
		ret = evq_take(queue_of(channel), NULL, &type, &object);
		if (ret) {
			sleep_if_closed((struct rdmacm_channel *)channel);
			return rdmacm_ret(ret);
		}
		e = object;
		rdmacm_lock();
		seen = take(e);
		rdmacm_unlock();
		if (!seen)
			rdma_ack_cm_event(&e->event);
	} while (!seen);
	if (e->event.event == RDMA_CM_EVENT_CONNECT_REQUEST && e->owner->sync) {
		ret = rdma_migrate_id(e->event.id, NULL);
		if (ret) {
			ret = errno;
			rdma_destroy_id(e->event.id);
			rdma_ack_cm_event(&e->event);
			return rdmacm_ret(-ret);
		}
	}
	*event = &e->event;
	return 0;
}

int rdmacm_complete(struct rdmacm_id *id)
{
	struct rdma_cm_id *pub = &id->id;

	if (!id->sync)
		return 0;
	if (pub->event) {
		rdma_ack_cm_event(pub->event);
		pub->event = NULL;
	}
	if (rdma_get_cm_event(pub->channel, &pub->event))
		return -errno;
	if (!pub->event->status)
		return 0;
	if (pub->event->event == RDMA_CM_EVENT_REJECTED)
		return -ECONNREFUSED;
	return pub->event->status < 0 ? pub->event->status : -pub->event->status;
}

/* ---- migrating ---- */

static void withdraw_all(struct rdmacm_id *id, struct list_head *moved)
{
	struct rdmacm_event *e, *tmp;

	list_for_each_entry_safe (e, tmp, &id->events, link) {
		if (withdraw(e))
			list_move_tail(&e->link, moved);
	}
}

/* The id of a request that was not taken gets its events where the request is. */
static void move_request(const struct rdmacm_event *request, struct rdma_event_channel *to)
{
	struct rdmacm_id *id = rdmacm_id(request->event.id);
	struct list_head moved = LIST_HEAD_INIT(moved);
	struct rdmacm_event *e, *tmp;

	withdraw_all(id, &moved);
	id->id.channel = to;
	list_for_each_entry_safe (e, tmp, &moved, link) {
		list_del(&e->link);
		rdmacm_event_raise(e);
	}
}

/*
 * Events that were not taken move to the new channel, in order. The call waits until the others are
 * acknowledged, as with the Linux kernel.
 */
static void move_events(struct rdmacm_id *id, struct rdma_event_channel *to)
{
	struct rdmacm_event *e, *tmp;
	struct list_head moved = LIST_HEAD_INIT(moved);

	for (;;) {
		withdraw_all(id, &moved);
		if (list_empty(&id->events))
			break;
		rdmacm_wait();
	}
	id->id.channel = to;
	list_for_each_entry_safe (e, tmp, &moved, link) {
		list_del(&e->link);
		rdmacm_event_raise(e);
		if (e->event.event == RDMA_CM_EVENT_CONNECT_REQUEST)
			move_request(e, to);
	}
}

ROOST_EXPORT int rdma_migrate_id(struct rdma_cm_id *pub, struct rdma_event_channel *channel)
{
	struct rdma_event_channel *old = pub->channel;
	struct rdmacm_id *id = rdmacm_id(pub);
	bool was_sync = id->sync, sync = !channel;

	if (sync) {
		channel = rdma_create_event_channel();
		if (!channel)
			return -1;
	}
	if (was_sync && pub->event) {
		rdma_ack_cm_event(pub->event);
		pub->event = NULL;
	}
	rdmacm_lock();
	move_events(id, channel);
	id->sync = sync;
	rdmacm_unlock();
	if (was_sync)
		rdma_destroy_event_channel(old);
	return 0;
}
