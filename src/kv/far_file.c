/* SPDX-License-Identifier: BSD-2-Clause */
/* A far tier in a file: requests by io_uring, or by threads. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/sys.h"
#include "kv/far.h"
#include "kv/far_ring.h"

#define THREADS	    16u
#define STACK_BYTES (256u << 10)

struct far_file {
	struct kv_far far;
	int fd;
	bool no_ring;
	struct far_ring *ring; /* NULL: threads and the members below are used */

	pthread_mutex_t lock;
	pthread_cond_t work, ended;
	struct kv_far_request *first, *last; /* queue of requests to execute */
	struct kv_far_request *done;
	pthread_t threads[THREADS];
	unsigned num_threads;
	bool stop;
};

/* ---- threads ---- */

static int transfer(int fd, const struct kv_far_request *q)
{
	ssize_t n;

	do {
		n = q->write ? pwrite(fd, q->data, q->len, (off_t)q->offset)
			     : pread(fd, q->data, q->len, (off_t)q->offset);
	} while (n < 0 && errno == EINTR);
	return n == (ssize_t)q->len ? 0 : n < 0 ? -errno : -EIO;
}

static void *work(void *arg)
{
	struct far_file *f = arg;

	pthread_mutex_lock(&f->lock);
	for (;;) {
		struct kv_far_request *q = f->first;

		if (!q && f->stop)
			break;
		if (!q) {
			pthread_cond_wait(&f->work, &f->lock);
			continue;
		}
		f->first = q->next;
		pthread_mutex_unlock(&f->lock);
		q->result = transfer(f->fd, q);
		pthread_mutex_lock(&f->lock);
		q->next = f->done;
		f->done = q;
		pthread_cond_signal(&f->ended);
	}
	pthread_mutex_unlock(&f->lock);
	return NULL;
}

static int start_threads(struct far_file *f)
{
	pthread_attr_t attr;
	sigset_t all, old;

	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, STACK_BYTES);
	sigfillset(&all); /* the program's threads handle signals */
	pthread_sigmask(SIG_SETMASK, &all, &old);
	while (f->num_threads < THREADS &&
	       !pthread_create(&f->threads[f->num_threads], &attr, work, f))
		f->num_threads++;
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	pthread_attr_destroy(&attr);
	return f->num_threads ? 0 : -EAGAIN;
}

static void queue(struct far_file *f, struct kv_far_request *q)
{
	q->next = NULL;
	pthread_mutex_lock(&f->lock);
	if (f->first)
		f->last->next = q;
	else
		f->first = q;
	f->last = q;
	pthread_cond_signal(&f->work);
	pthread_mutex_unlock(&f->lock);
}

static struct kv_far_request *take_done(struct far_file *f, bool wait)
{
	struct kv_far_request *list;

	pthread_mutex_lock(&f->lock);
	while (wait && !f->done)
		pthread_cond_wait(&f->ended, &f->lock);
	list = f->done;
	f->done = NULL;
	pthread_mutex_unlock(&f->lock);
	return list;
}

/* ---- the tier ---- */

static int far_open(struct kv_far *far, uint64_t size)
{
	struct far_file *f = (struct far_file *)far;

	if (ftruncate(f->fd, (off_t)size))
		return -errno;
	if (!f->no_ring && !far_ring_open(f->fd, &f->ring))
		return 0;
	return start_threads(f);
}

static void far_start(struct kv_far *far, struct kv_far_request *q)
{
	struct far_file *f = (struct far_file *)far;

	if (f->ring)
		far_ring_start(f->ring, q);
	else
		queue(f, q);
}

static struct kv_far_request *far_poll(struct kv_far *far, bool wait)
{
	struct far_file *f = (struct far_file *)far;

	return f->ring ? far_ring_poll(f->ring, wait) : take_done(f, wait);
}

static void far_close(struct kv_far *far)
{
	struct far_file *f = (struct far_file *)far;

	if (f->ring)
		far_ring_close(f->ring);
	pthread_mutex_lock(&f->lock);
	f->stop = true;
	pthread_cond_broadcast(&f->work);
	pthread_mutex_unlock(&f->lock);
	for (unsigned i = 0; i < f->num_threads; i++)
		pthread_join(f->threads[i], NULL);
	pthread_cond_destroy(&f->work);
	pthread_cond_destroy(&f->ended);
	pthread_mutex_destroy(&f->lock);
	sys_close(f->fd);
	free(f);
}

/* Opens a file without a name. Some file systems have no such files, and some have no O_DIRECT. */
static int open_unnamed(const char *folder)
{
	char path[4096];
	int fd = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);

	if (fd < 0 && (errno == EOPNOTSUPP || errno == EISDIR) &&
	    snprintf(path, sizeof(path), "%s/roost-far-XXXXXX", folder) < (int)sizeof(path)) {
		fd = mkostemp(path, O_CLOEXEC);
		if (fd >= 0)
			unlink(path);
	}
	if (fd < 0)
		return -errno;
	sys_fcntl(fd, F_SETFL, O_DIRECT);
	return fd;
}

int kv_far_file(const char *folder, bool threads, struct kv_far **out)
{
	struct far_file *f = calloc(1, sizeof(*f));

	if (!f)
		return -ENOMEM;
	f->fd = open_unnamed(folder);
	if (f->fd < 0) {
		int err = f->fd;

		free(f);
		return err;
	}
	f->far = (struct kv_far){far_open, far_start, far_poll, far_close};
	f->no_ring = threads;
	pthread_mutex_init(&f->lock, NULL);
	pthread_cond_init(&f->work, NULL);
	pthread_cond_init(&f->ended, NULL);
	*out = &f->far;
	return 0;
}
