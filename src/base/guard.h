/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Code that is not ours, run on a thread of ours or the program's, in short steps. A step that
 * raises a signal (SIGSEGV, SIGBUS, SIGFPE, SIGILL) is left by a jump; so is one that never
 * returns, on the order of a watch, which is another thread (src/drive/watch.c).
 *
 *	struct guard_scope scope;
 *
 *	guard_open(g, &scope);
 *	if (sigsetjmp(scope.env, 0))
 *		...			guard_trapped(g) says how the step ended; none is running
 * 					now
 *	...
 *	guard_step(g);
 *	...				not our code
 *	guard_stepped(g);
 *	...
 *	guard_close(g, &scope);
 *
 * What the step held it holds for ever: a lock that it took stays taken. It must have none of ours.
 * Neither a step nor what stands around it costs a system call, as long as nothing is wrong and the
 * watch is awake.
 */
#ifndef ROOST_BASE_GUARD_H
#define ROOST_BASE_GUARD_H

#include <setjmp.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/mem.h"

enum guard_end { GUARD_FAULT = 1, GUARD_STUCK = 2 };

/* Of all guards that one thread watches. */
struct guard_watch {
	_Atomic uint32_t asleep; /* a futex: the watch sleeps until somebody opens a guard */
};

/* On the stack of who runs steps: where they are left to. May stand within another one. */
struct guard_scope {
	sigjmp_buf env;
	struct guard_scope *outer;
};

struct guard {
	struct guard_scope *scope; /* the innermost; NULL: none */
	/* begun and ended: odd while one runs. The thread that has opened it */
	_Atomic uint64_t steps;
	_Atomic int tid;		   /* of that thread */
	int end;			   /* enum guard_end, of the step that was left last */
	struct guard_watch *_Atomic watch; /* NULL: nobody watches it */
	_Atomic uint64_t aborted;	   /* the value of steps that is to be left */
	/* the watch's */
	uint64_t seen;
	uint64_t cpu; /* ns that its thread had run when the step was seen first */
	unsigned looks;
};

/* When a step has not returned for too long. */
struct watchdog_limits {
	unsigned looks;	  /* that found it running after the first, and */
	uint64_t cpu_ns;  /* so much that its thread has run meanwhile; or */
	unsigned at_most; /* so many, and it is asleep: who waits for a core is not at fault */
};

/* Installs what it takes, once a process. 0 or -errno. Any thread. */
int guard_init(void);

/* The thread may run steps until it closes it. One guard a thread at a time, one thread a guard. */
void guard_open(struct guard *g, struct guard_scope *scope);
void guard_close(struct guard *g, struct guard_scope *scope);
/* How the step that was left has ended. */
enum guard_end guard_trapped(struct guard *g);

static inline void guard_step(struct guard *g)
{
	atomic_store_explicit(&g->steps, atomic_load_explicit(&g->steps, memory_order_relaxed) + 1,
			      memory_order_relaxed);
	/* A fault in it finds the mark set. */
	atomic_signal_fence(memory_order_seq_cst);
}

static inline void guard_stepped(struct guard *g)
{
	atomic_signal_fence(memory_order_seq_cst);
	atomic_store_explicit(&g->steps, atomic_load_explicit(&g->steps, memory_order_relaxed) + 1,
			      memory_order_relaxed);
}

/*
 * The watch, at equal intervals: true when steps were run since its last look, or one is running.
 * Ends one that has reached the limits.
 */
bool guard_look(struct guard *g, const struct watchdog_limits *p);

#endif
