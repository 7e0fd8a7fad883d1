/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/fault.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>

#define MAX_FNS 2

static struct fault {
	int sig;
	_Atomic(fault_fn) fn[MAX_FNS];
	struct sigaction old;
	bool installed;
} faults[] = {{.sig = SIGSEGV}, {.sig = SIGBUS}, {.sig = SIGFPE}, {.sig = SIGILL}};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static struct fault *find(int sig)
{
	for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++)
		if (faults[i].sig == sig)
			return &faults[i];
	return NULL;
}

/* Hands it to whoever had the signal before us. */
static void chain(const struct fault *f, siginfo_t *info, void *uc)
{
	if (f->old.sa_flags & SA_SIGINFO) {
		f->old.sa_sigaction(f->sig, info, uc);
	} else if (f->old.sa_handler == SIG_DFL || f->old.sa_handler == SIG_IGN) {
		/* Returning runs the instruction again, and the default action ends the process with a true core. */
		struct sigaction dfl = {.sa_handler = SIG_DFL};

		sigaction(f->sig, &dfl, NULL);
	} else {
		f->old.sa_handler(f->sig);
	}
}

static void on_fault(int sig, siginfo_t *info, void *uc)
{
	struct fault *f = find(sig);

	for (unsigned i = 0; i < MAX_FNS; i++) {
		fault_fn fn = atomic_load_explicit(&f->fn[i], memory_order_acquire);

		if (fn && fn(sig, info, uc))
			return;
	}
	chain(f, info, uc);
}

static int add(struct fault *f, fault_fn fn)
{
	struct sigaction sa = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK};

	for (unsigned i = 0; i < MAX_FNS; i++) {
		fault_fn had = atomic_load_explicit(&f->fn[i], memory_order_relaxed);

		if (had == fn)
			return 0;
		if (had)
			continue;
		sigemptyset(&sa.sa_mask);
		if (!f->installed && sigaction(f->sig, &sa, &f->old))
			return -errno;
		f->installed = true;
		atomic_store_explicit(&f->fn[i], fn, memory_order_release);
		return 0;
	}
	return -ENOSPC;
}

int fault_add(int sig, fault_fn fn)
{
	struct fault *f = find(sig);
	int rc;

	if (!f)
		return -EINVAL;
	pthread_mutex_lock(&lock);
	rc = add(f, fn);
	pthread_mutex_unlock(&lock);
	return rc;
}
