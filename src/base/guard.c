/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/guard.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/sys.h"

/*
 * A SIGILL with a mark orders a thread to leave its step. A handler of this signal is installed
 * anyway, and few threads block it, because a blocked SIGILL kills a thread whose instruction
 * raises it.
 */
#define ORDER SIGILL
static const char mark;

/*
 * A signal handler reads this variable and may be the first to access it. The TLS model therefore
 * avoids memory that is allocated at the first access.
 */
static _Thread_local struct guard *open_guard __attribute__((tls_model("initial-exec")));
static _Thread_local int own_tid __attribute__((tls_model("initial-exec")));

static bool on_fault(int sig, siginfo_t *info, void *uc)
{
	bool order = sig == ORDER && info->si_code == SI_QUEUE && info->si_value.sival_ptr == &mark;
	struct guard *g = open_guard;
	uint64_t steps = g ? atomic_load_explicit(&g->steps, memory_order_relaxed) : 0;

	if (order && !(steps & 1 && !g->leaving &&
		       atomic_load_explicit(&g->aborted, memory_order_relaxed) == steps))
		return true; /* the step has returned meanwhile, or the thread is leaving it */
	/* A signal from another process is not caused by the step. */
	if (!(steps & 1) || g->leaving || (!order && info->si_code <= 0))
		return false;
	g->leaving = true; /* an order between the next two calls returns to them */
	g->end = order ? GUARD_STUCK : GUARD_FAULT;
	/*
	 * The mask is that of the time before the signal. Sanitizers block all signals in handlers,
	 * so the current mask is not usable.
	 */
	pthread_sigmask(SIG_SETMASK, &((const ucontext_t *)uc)->uc_sigmask, NULL);
	siglongjmp(g->scope->env, 1);
}

/* Forgets the cached thread id, because the thread of a forked child has another one. */
static void in_child(void)
{
	own_tid = 0;
}

static void watch_forks(void)
{
	pthread_atfork(NULL, NULL, in_child);
}

int guard_init(void)
{
	static const int signals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL};
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	int rc = 0;

	pthread_once(&once, watch_forks);
	for (unsigned i = 0; i < sizeof(signals) / sizeof(signals[0]) && rc == 0; i++)
		rc = fault_add(signals[i], on_fault);
	return rc;
}

static void __attribute__((noinline)) wake(struct guard_watch *w)
{
	if (atomic_exchange_explicit(&w->asleep, 0, memory_order_relaxed))
		sys_futex_wake(&w->asleep);
}

static void __attribute__((noinline, cold)) first_on_thread(void)
{
	fault_thread();
	own_tid = (int)syscall(SYS_gettid);
}

void guard_open(struct guard *g, struct guard_scope *scope)
{
	struct guard_watch *w = atomic_load_explicit(&g->watch, memory_order_relaxed);

	if (unlikely(!own_tid))
		first_on_thread();
	atomic_store_explicit(&g->tid, own_tid, memory_order_relaxed);
	if (w && unlikely(atomic_load_explicit(&w->asleep, memory_order_relaxed)))
		wake(w);
	scope->outer = g->scope;
	g->scope = scope;
	open_guard = g;
}

void guard_close(struct guard *g, struct guard_scope *scope)
{
	g->scope = scope->outer;
	if (!g->scope)
		open_guard = NULL;
}

enum guard_end guard_trapped(struct guard *g)
{
	guard_stepped(g);
	g->leaving = false;
	return (enum guard_end)g->end;
}

/* For the watchdog, the surrounding step ends before the call and a new one begins after it. */
enum guard_end guard_call(struct guard *own, void (*fn)(void *arg), void *arg)
{
	struct guard *const g = open_guard ? open_guard : own;
	const bool inside = atomic_load_explicit(&g->steps, memory_order_relaxed) & 1;
	volatile enum guard_end end = 0;
	struct guard_scope scope;

	if (inside)
		guard_stepped(g);
	guard_open(g, &scope);
	if (!sigsetjmp(scope.env, 0)) {
		guard_step(g);
		fn(arg);
		guard_stepped(g);
	} else {
		end = guard_trapped(g);
	}
	guard_close(g, &scope);
	if (inside)
		guard_step(g);
	return end;
}

/* Returns the CPU time of a thread in ns, or 0 if it is unknown. */
static uint64_t run_ns(int tid)
{
	/*
	 * This is Linux's encoding of the clocks of pthread_getcpuclockid(3); that function
	 * would need a pthread_t.
	 */
	clockid_t clock = (clockid_t)(~(unsigned)tid << 3 | 6);
	struct timespec ts;

	return clock_gettime(clock, &ts) ? 0
					 : (uint64_t)ts.tv_sec * 1000000000 + (uint64_t)ts.tv_nsec;
}

/*
 * Returns true if the thread runs or waits for a core. The state in proc_pid_stat(5) follows a name
 * in brackets that may contain any character.
 */
static bool is_runnable(int tid)
{
	char path[48], text[256];
	const char *name_end;
	ssize_t n = -1;
	int fd;

	snprintf(path, sizeof(path), "/proc/self/task/%d/stat", tid);
	fd = sys_open(path, O_RDONLY | O_CLOEXEC);
	if (fd >= 0) {
		n = sys_read(fd, text, sizeof(text) - 1);
		sys_close(fd);
	}
	text[n > 0 ? n : 0] = '\0';
	name_end = strrchr(text, ')');
	return name_end && strncmp(name_end, ") R", 3) == 0;
}

/*
 * Returns true if the step may continue: it has not reached the limits, or its thread waited for a
 * core most of the time.
 */
static bool within_limits(const struct guard *g, const struct watchdog_limits *p, int tid)
{
	uint64_t ran;

	if (g->checks < p->checks)
		return true;
	ran = run_ns(tid);
	return ran - g->cpu < p->cpu_ns &&
	       (g->checks < p->checks_asleep || (ran && is_runnable(tid)));
}

static void send_abort(struct guard *g, uint64_t steps, int tid)
{
	siginfo_t order;

	memset(&order, 0, sizeof(order));
	order.si_signo = ORDER;
	order.si_code = SI_QUEUE;
	order.si_pid = getpid();
	order.si_uid = getuid();
	order.si_value.sival_ptr = (void *)(uintptr_t)&mark;
	atomic_store_explicit(&g->aborted, steps, memory_order_relaxed);
	syscall(SYS_rt_tgsigqueueinfo, order.si_pid, tid, ORDER, &order);
}

bool guard_check(struct guard *g, const struct watchdog_limits *p)
{
	uint64_t steps = atomic_load_explicit(&g->steps, memory_order_relaxed);
	int tid = atomic_load_explicit(&g->tid, memory_order_relaxed);
	bool moved = steps != g->seen;

	g->seen = steps;
	if (moved || !(steps & 1)) {
		g->checks = 0;
		g->cpu = steps & 1 ? run_ns(tid) : 0;
		return moved;
	}
	g->checks++;
	if (within_limits(g, p, tid))
		return true;
	/* Each further check repeats the signal: the thread may block signals for a while. */
	send_abort(g, steps, tid);
	return true;
}
