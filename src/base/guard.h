/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Runs foreign code in short steps, on a thread of the library or of the program. A step that
 * raises a signal (SIGSEGV, SIGBUS, SIGFPE, SIGILL) is left by a jump. A step that does not return
 * is left by a jump, too, at the order of the watchdog, which is another thread
 * (src/drive/watch.c).
 *
 *	struct guard_scope scope;
 *
 *	guard_open(g, &scope);
 *	if (sigsetjmp(scope.env, 0))
 *		...			guard_trapped(g) says how the step ended; none is running
 *					now
 *	...
 *	guard_step(g);
 *	...				foreign code
 *	guard_stepped(g);
 *	...
 *	guard_close(g, &scope);
 *
 * A step that is left by a jump releases nothing: a lock that it took stays taken. A step must
 * therefore hold no lock of the library. As long as no step fails and the watchdog is awake,
 * neither a step nor the code around it makes a system call.
 */
#ifndef ROOST_BASE_GUARD_H
#define ROOST_BASE_GUARD_H

#include <setjmp.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/mem.h"

enum guard_end { GUARD_FAULT = 1, GUARD_STUCK = 2 };

/* The shared state of all guards that one thread watches. */
struct guard_watch {
	_Atomic uint32_t asleep; /* a futex: the watchdog sleeps until a guard is opened */
};

/* The target of the jump, on the stack of the thread that runs steps. Scopes may be nested. */
struct guard_scope {
	sigjmp_buf env;
	struct guard_scope *outer;
};

struct guard {
	struct guard_scope *scope; /* the innermost scope; NULL: none */
	/*
	 * steps begun plus steps ended; odd while a step runs. Only the thread that opened the
	 * guard writes it
	 */
	_Atomic uint64_t steps;
	_Atomic int tid;		   /* id of the thread that opened the guard */
	int end;			   /* enum guard_end of the last step that was left */
	volatile bool leaving;		   /* a signal handler is about to leave the step */
	struct guard_watch *_Atomic watch; /* NULL: the guard is not watched */
	/* the value of `steps` during the step that must be left */
	_Atomic uint64_t aborted;
	/* only the watchdog uses the fields below */
	uint64_t seen;
	uint64_t cpu; /* ns; CPU time of the thread when the watchdog first saw the step */
	unsigned checks;
};

/* The limits after which the watchdog ends a step. */
struct watchdog_limits {
	unsigned checks; /* checks since the first check that found the step running, if also ... */
	uint64_t cpu_ns; /* ... the thread has run for this many ns meanwhile */
	/* or this many checks, if the thread sleeps; a thread that waits for a core is not ended */
	unsigned checks_asleep;
};

/* Installs the signal handlers; further calls have no effect. Returns 0 or -errno. Any thread. */
int guard_init(void);

/*
 * Opens a guard: the thread may run steps until it closes the guard. A thread has at most one open
 * guard, and a guard is open on at most one thread.
 */
void guard_open(struct guard *g, struct guard_scope *scope);
/* Closes the guard that the thread opened with this scope. No step may run. */
void guard_close(struct guard *g, struct guard_scope *scope);
/* Ends a step that was left by a jump, and returns the cause. To be called once, after the jump. */
enum guard_end guard_trapped(struct guard *g);

/*
 * Runs fn(arg) as a step with its own time limit. It runs in the open guard of the thread, even
 * inside of a step, or in `own` if no guard is open. Returns 0 if fn returned, or else the cause
 * for which it was left.
 */
enum guard_end guard_call(struct guard *own, void (*fn)(void *arg), void *arg);

static inline void guard_step(struct guard *g)
{
	atomic_store_explicit(&g->steps, atomic_load_explicit(&g->steps, memory_order_relaxed) + 1,
			      memory_order_relaxed);
	/* A fault in the step must find the mark set. */
	atomic_signal_fence(memory_order_seq_cst);
}

static inline void guard_stepped(struct guard *g)
{
	atomic_signal_fence(memory_order_seq_cst);
	atomic_store_explicit(&g->steps, atomic_load_explicit(&g->steps, memory_order_relaxed) + 1,
			      memory_order_relaxed);
}

/*
 * Checks the guard; the watchdog calls this at equal intervals. Orders the thread to leave a step
 * that has reached the limits. Returns true if steps were run since the last check, or if one is
 * running.
 */
bool guard_check(struct guard *g, const struct watchdog_limits *p);

#endif
