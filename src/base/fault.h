/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Handlers of the signals that an instruction raises (SIGSEGV, SIGBUS, SIGFPE, SIGILL). A signal
 * goes to the functions added here, and if none of them handles it, to the handler that was
 * installed before. Signals that a process sent (si_code <= 0) go the same way. A program that
 * installs its own handler later must pass signals on to this handler.
 */
#ifndef ROOST_BASE_FAULT_H
#define ROOST_BASE_FAULT_H

#include <signal.h>
#include <stdbool.h>

#include "base/mem.h"

/*
 * Called in the signal handler, on the thread that raised the signal or received it. Returns true
 * if the signal was handled and the thread may continue. It may also leave by a jump.
 */
typedef bool (*fault_fn)(int sig, siginfo_t *info, void *ucontext);

void fault_unblock(void);
/*
 * Unblocks these signals on the calling thread permanently. A signal that an instruction raises
 * while it is blocked ends the process, so threads of the program call this before they run code
 * that may raise one. The first call on a thread makes a system call; later calls read a variable.
 * Signals that the program blocks afterwards stay blocked.
 */
static inline void fault_thread(void)
{
	extern _Thread_local bool fault_thread_ready __attribute__((tls_model("initial-exec")));

	if (unlikely(!fault_thread_ready))
		fault_unblock();
}

/*
 * Adds a function for this signal. Functions are called in the order in which they were added. A
 * function that was added already is not added again. Returns 0, -EINVAL (the signal is none of the
 * four), -ENOSPC (two functions are installed), or another -errno. Any thread.
 */
int fault_add(int sig, fault_fn fn);

#endif
