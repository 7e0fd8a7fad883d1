/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A queue of events with a descriptor, for completion channels and asynchronous events.
 *
 * The descriptor is an eventfd. It is readable exactly while the queue has events. Programs poll()
 * it, add it to an epoll set (level or edge triggered), and set O_NONBLOCK on it. Only evq.c reads
 * and writes it.
 *
 * The events are links inside the objects that raise them. Raising an event therefore allocates
 * nothing and never blocks for long. An object that is destroyed takes its unread events with it,
 * as in the Linux kernel.
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
	/*
	 * Number of events taken in a row without a wait, at most EVQ_OUTSIDE. Also EVQ_OUTSIDE
	 * before the first wait.
	 */
	_Atomic uint8_t at_once;
};

#define EVQ_OUTSIDE 8

/* A member of the object that raises the event. If all bytes are 0, no event is pending. */
struct evq_event {
	struct list_head link;
	uint32_t pending; /* number of events raised and not yet read */
	/* number of events read, under the queue's lock; compared with the number acknowledged */
	uint32_t *reported;
	int type; /* enum ibv_event_type, for asynchronous events */
	void *object;
};

/* Initializes the queue and opens its descriptor. Returns 0 or -errno. */
ROOST_EXPORT int evq_init(struct evq *q);
/* Closes the descriptor and frees the queue's resources. No thread may use the queue. */
ROOST_EXPORT void evq_destroy(struct evq *q);
/*
 * Drops the events that the parent's objects raised, and replaces the descriptor shared with the
 * parent by a new one of the same number. For a forked child.
 */
ROOST_EXPORT void evq_renew(struct evq *q);

/* Adds an event to the queue. Any thread, also under PU ownership. */
ROOST_EXPORT void evq_raise(struct evq *q, struct evq_event *ev);

/*
 * Takes the oldest event and sets *type and *object. If there is none, it waits for one. With
 * `drive` the wait drives the NIC; otherwise it only sleeps. Returns 0 or:
 * - -EAGAIN: there is no event, and the program has set O_NONBLOCK
 * - -EINTR: a signal came, and the program has a handler without SA_RESTART
 * - another -errno of fcntl(2) or of the wait
 */
ROOST_EXPORT int evq_take(struct evq *q, struct drive *drive, int *type, void **object);

/*
 * Returns true if the program waits for events in evq_take(), false if it waits outside of this
 * library (poll(2) on the descriptor). This is judged by the last calls of evq_take().
 */
static inline bool evq_waits_inside(const struct evq *q)
{
	return atomic_load_explicit(&q->at_once, memory_order_relaxed) < EVQ_OUTSIDE;
}

/*
 * Drops the unread events of `ev`, which must not be raised again. Returns how many were ever read.
 */
ROOST_EXPORT uint32_t evq_forget(struct evq *q, struct evq_event *ev);

#endif
