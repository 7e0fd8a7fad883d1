/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/thread.h"

#include <errno.h>
#include <signal.h>
#include <time.h>

#define NS_PER_SEC 1000000000u

int thread_start(pthread_t *thread, size_t stack, void *(*fn)(void *), void *arg)
{
	sigset_t all, old;
	pthread_attr_t attr;
	int rc;

	/*
	 * The thread blocks the signals of the program. It does not block signals that its own
	 * instructions raise: a blocked one would kill the process.
	 */
	sigfillset(&all);
	sigdelset(&all, SIGSEGV);
	sigdelset(&all, SIGBUS);
	sigdelset(&all, SIGFPE);
	sigdelset(&all, SIGILL);
	sigdelset(&all, SIGTRAP);
	sigdelset(&all, SIGSYS);
	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, stack);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	rc = pthread_create(thread, &attr, fn, arg);
	if (rc == EINVAL) /* the thread-local data of the program need a larger stack */
		rc = pthread_create(thread, NULL, fn, arg);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	pthread_attr_destroy(&attr);
	return -rc;
}

void thread_join(pthread_t thread)
{
	int old;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &old);
	pthread_join(thread, NULL);
	pthread_setcancelstate(old, &old);
}

/* Returns the time of CLOCK_REALTIME in `ns`. */
static struct timespec time_in(uint64_t ns)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	ns += (uint64_t)t.tv_nsec;
	t.tv_sec += (time_t)(ns / NS_PER_SEC);
	t.tv_nsec = (long)(ns % NS_PER_SEC);
	return t;
}

bool thread_join_for(pthread_t thread, uint64_t ns)
{
	struct timespec until = time_in(ns);
	int old, rc;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &old);
	rc = pthread_timedjoin_np(thread, NULL, &until);
	pthread_setcancelstate(old, &old);
	return rc == 0;
}

bool thread_lock_for(pthread_mutex_t *lock, uint64_t ns)
{
	struct timespec until = time_in(ns);

	return pthread_mutex_timedlock(lock, &until) == 0;
}
