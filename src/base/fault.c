/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/fault.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#define MAX_FNS 2

static struct fault {
	int sig;
	_Atomic(fault_fn) fn[MAX_FNS];
	struct sigaction old;
	atomic_bool reset; /* the one call that SA_RESETHAND allows has been made */
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

/*
 * Returns true if no instruction of this thread raised the signal: a process sent it, or it reports
 * memory that was not accessed yet.
 */
static bool was_sent(int sig, const siginfo_t *info)
{
	return info->si_code <= 0 || (sig == SIGBUS && info->si_code == BUS_MCEERR_AO);
}

/*
 * Ends the process. The return executes the faulting instruction again, if there was one, and
 * leaves a correct core file.
 */
static void end_process(int sig, siginfo_t *info)
{
	struct sigaction dfl = {.sa_handler = SIG_DFL};
	sigset_t own;

	sigaction(sig, &dfl, NULL);
	if (!was_sent(sig, info))
		return;
	sigemptyset(&own);
	sigaddset(&own, sig);
	pthread_sigmask(SIG_UNBLOCK, &own, NULL);
	syscall(SYS_rt_tgsigqueueinfo, getpid(), (pid_t)syscall(SYS_gettid), sig, info);
}

/*
 * Returns true if a handler of the program must be called. One with SA_RESETHAND is called the
 * first time only.
 */
static bool has_handler(struct fault *f)
{
	if (f->old.sa_handler == SIG_DFL || f->old.sa_handler == SIG_IGN)
		return false;
	return !(f->old.sa_flags & SA_RESETHAND) || !atomic_exchange(&f->reset, true);
}

/*
 * Acts as the Linux kernel would for the earlier handler (sigaction(2)), but keeps this handler
 * installed. A stray signal of another process must not remove it, or the next fault in a step
 * would end the process. Linux restores the mask on return, and ends a process that ignores a
 * fault of its own.
 */
static void chain(struct fault *f, siginfo_t *info, void *uc)
{
	sigset_t mask;

	if (!has_handler(f)) {
		if (f->old.sa_handler != SIG_IGN || !was_sent(f->sig, info))
			end_process(f->sig, info);
		return;
	}
	sigorset(&mask, &((const ucontext_t *)uc)->uc_sigmask, &f->old.sa_mask);
	if (!(f->old.sa_flags & SA_NODEFER))
		sigaddset(&mask, f->sig);
	pthread_sigmask(SIG_SETMASK, &mask, NULL);
	if (f->old.sa_flags & SA_SIGINFO)
		f->old.sa_sigaction(f->sig, info, uc);
	else
		f->old.sa_handler(f->sig);
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

static int install(struct fault *f)
{
	struct sigaction sa = {.sa_sigaction = on_fault,
			       .sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK};

	/*
	 * SIGILL in the mask makes a repeated order of the watchdog (guard.c) wait until the
	 * handler has returned or jumped. Otherwise handlers would accumulate on the signal stack,
	 * which may be small.
	 */
	sigemptyset(&sa.sa_mask);
	sigaddset(&sa.sa_mask, SIGILL);
	if (sigaction(f->sig, NULL, &f->old))
		return -1;
	/* An ignored signal interrupts no system call. */
	if (f->old.sa_handler == SIG_IGN || f->old.sa_flags & SA_RESTART)
		sa.sa_flags |= SA_RESTART;
	return sigaction(f->sig, &sa, NULL);
}

/*
 * Memory order: what a handler reads is written before its pointer is stored (release). on_fault()
 * loads the pointer (acquire), also on a thread that faults at this moment.
 */
static int add(struct fault *f, fault_fn fn)
{
	for (unsigned i = 0; i < MAX_FNS; i++) {
		fault_fn had = atomic_load_explicit(&f->fn[i], memory_order_relaxed);

		if (had == fn)
			return 0;
		if (had)
			continue;
		if (!f->installed && install(f))
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

_Thread_local bool fault_thread_ready __attribute__((tls_model("initial-exec")));

void fault_unblock(void)
{
	sigset_t raised;

	sigemptyset(&raised);
	for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++)
		sigaddset(&raised, faults[i].sig);
	pthread_sigmask(SIG_UNBLOCK, &raised, NULL);
	fault_thread_ready = true;
}
