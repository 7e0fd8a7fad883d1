/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/thread.h"

#include <errno.h>
#include <signal.h>

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
