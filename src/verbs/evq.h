/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A queue of events behind a descriptor, for completion channels and asynchronous events.
 *
 * The descriptor is an eventfd that is readable exactly while the queue holds something: programs
 * poll() it, put it into an epoll set, level or edge triggered, and set O_NONBLOCK on it; nobody
 * but this file reads or writes it. The events are links inside the objects that raise them, so
 * raising one allocates nothing, never blocks for long, and an object that goes away takes its
 * unread events along, as the kernel does.
 */
#ifndef ROOST_VERBS_EVQ_H
#define ROOST_VERBS_EVQ_H

#include <pthread.h>
#include <stdbool.h>
#include <stdatomic.h>
#include <stdint.h>

#include "base/export.h"
#include "base/list.h"
#include "drive/drive.h"

struct evq {
	pthread_mutex_t lock;
	struct list_head events;
	int fd;
	/* events taken in a row without a wait; EVQ_OUTSIDE: as many, or no wait yet */
	_Atomic uint8_t at_once;
};

#define EVQ_OUTSIDE 8

/* Part of the object that raises it; zeroed is idle. */
struct evq_event {
	struct list_head link;
	uint32_t pending; /* raised and not yet read */
	/* counts the reads, under the queue's lock; compared with what was acknowledged */
	uint32_t *reported;
	int type; /* enum ibv_event_type, for asynchronous events */
	void *object;
};

/* 0 or -errno. */
ROOST_EXPORT int evq_init(struct evq *q);
ROOST_EXPORT void evq_destroy(struct evq *q);
/*
 * In a forked child: forgets what the parent's objects raised, and parts with its descriptor,
 * keeping the number.
 */
ROOST_EXPORT void evq_renew(struct evq *q);

/* Any thread; also under PU ownership. */
ROOST_EXPORT void evq_raise(struct evq *q, struct evq_event *ev);

/*
 * Takes the oldest event. Waits for one when there is none, unless the program has set O_NONBLOCK:
 * then -EAGAIN. With `drive` the wait drives the NIC, otherwise it only sleeps. -EINTR when a
 * signal came whose handler does not ask for restarts. On success *type and *object are set.
 */
ROOST_EXPORT int evq_take(struct evq *q, struct drive *drive, int *type, void **object);

/*
 * Does the program wait for events in evq_take(), not outside of this library (poll(2) on the
 * descriptor)? As far as its last waits tell.
 */
static inline bool evq_waits_inside(const struct evq *q)
{
	return atomic_load_explicit(&q->at_once, memory_order_relaxed) < EVQ_OUTSIDE;
}

/*
 * Drops the unread ones of an event that will not be raised any more; returns how many were ever
 * read.
 */
ROOST_EXPORT uint32_t evq_forget(struct evq *q, struct evq_event *ev);

#endif
