/* SPDX-License-Identifier: BSD-2-Clause */
#include "verbs/evq.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/sys.h"

int evq_init(struct evq *q)
{
	int fd = sys_eventfd(0, EFD_CLOEXEC);

	if (fd < 0)
		return fd;
	q->fd = fd;
	atomic_store_explicit(&q->at_once, EVQ_OUTSIDE, memory_order_relaxed);
	list_init(&q->events);
	pthread_mutex_init(&q->lock, NULL);
	return 0;
}

void evq_destroy(struct evq *q)
{
	sys_close(q->fd);
	pthread_mutex_destroy(&q->lock);
}

void evq_renew(struct evq *q)
{
	int fd = sys_eventfd(0, EFD_CLOEXEC);

	/* a thread that does not exist in the child may have held it */
	pthread_mutex_init(&q->lock, NULL);
	while (!list_empty(&q->events)) {
		struct evq_event *ev = list_first_entry(&q->events, struct evq_event, link);

		ev->pending = 0;
		list_del(&ev->link);
	}
	if (fd < 0)
		return;
	dup3(fd, q->fd, O_CLOEXEC);
	sys_close(fd);
}

void evq_raise(struct evq *q, struct evq_event *ev)
{
	uint64_t one = 1;

	pthread_mutex_lock(&q->lock);
	if (ev->pending++ == 0)
		list_add_tail(&ev->link, &q->events);
	/*
	 * Each event writes, even if the fd is readable already: edge-triggered sleepers need each
	 * write.
	 */
	(void)sys_write(q->fd, &one, sizeof(one));
	pthread_mutex_unlock(&q->lock);
}

/*
 * Resets the descriptor if the queue is empty. The counter is above zero here, so the read resets
 * it and does not block.
 */
static void evq_drain_if_empty(struct evq *q)
{
	uint64_t count;

	if (list_empty(&q->events))
		(void)sys_read(q->fd, &count, sizeof(count));
}

static bool evq_try_take(struct evq *q, int *type, void **object)
{
	struct evq_event *ev;
	bool got = false;

	pthread_mutex_lock(&q->lock);
	if (!list_empty(&q->events)) {
		ev = list_first_entry(&q->events, struct evq_event, link);
		*type = ev->type;
		*object = ev->object;
		++*ev->reported;
		if (--ev->pending == 0)
			list_del(&ev->link);
		else
			list_move_tail(&ev->link, &q->events);
		evq_drain_if_empty(q);
		got = true;
	}
	pthread_mutex_unlock(&q->lock);
	return got;
}

/*
 * Returns whether a signal ends a wait. The Linux kernel's read() of an event is restarted after
 * handlers with SA_RESTART, but the waits here are polls, which are not. The signal that
 * interrupted the wait is unknown, so the wait ends if the program has any handler without
 * SA_RESTART.
 */
static bool evq_interrupts(void)
{
	struct sigaction sa;
	int sig;

	for (sig = 1; sig < SIGRTMAX; sig++) {
		if (sigaction(sig, NULL, &sa))
			continue;
		if ((sa.sa_flags & SA_SIGINFO ||
		     (sa.sa_handler != SIG_DFL && sa.sa_handler != SIG_IGN)) &&
		    !(sa.sa_flags & SA_RESTART))
			return true;
	}
	return false;
}

static int evq_wait(struct evq *q, struct drive *drive)
{
	struct pollfd pfd = {.fd = q->fd, .events = POLLIN};
	int ret, old;

	if (drive) {
		ret = drive_wait_fd(drive, q->fd, UINT64_MAX);
	} else {
		/*
		 * The wait is a cancellation point, as drive_wait_fd() is: programs cancel threads
		 * that wait for events.
		 */
		pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &old);
		ret = sys_ppoll(&pfd, 1, NULL, NULL);
		pthread_setcanceltype(old, NULL);
	}
	if (ret == -EINTR)
		return evq_interrupts() ? ret : 0;
	return ret < 0 ? ret : 0;
}

int evq_take(struct evq *q, struct drive *drive, int *type, void **object)
{
	uint8_t at_once = atomic_load_explicit(&q->at_once, memory_order_relaxed);
	int ret, flags;

	if (at_once < EVQ_OUTSIDE)
		atomic_store_explicit(&q->at_once, at_once + 1, memory_order_relaxed);
	while (!evq_try_take(q, type, object)) {
		flags = sys_fcntl(q->fd, F_GETFL, 0);
		if (flags < 0)
			return flags;
		if (flags & O_NONBLOCK)
			return -EAGAIN;
		atomic_store_explicit(&q->at_once, 0, memory_order_relaxed);
		ret = evq_wait(q, drive);
		if (ret)
			return ret;
	}
	return 0;
}

uint32_t evq_forget(struct evq *q, struct evq_event *ev)
{
	uint32_t reported;

	pthread_mutex_lock(&q->lock);
	if (ev->pending) {
		ev->pending = 0;
		list_del(&ev->link);
		evq_drain_if_empty(q);
	}
	reported = *ev->reported;
	pthread_mutex_unlock(&q->lock);
	return reported;
}
