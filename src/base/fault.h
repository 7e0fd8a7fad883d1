/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Handlers of the signals that an instruction raises (SIGSEGV, SIGBUS, SIGFPE, SIGILL). A signal
 * goes to the functions added here, and if none handles it, to the handler that was installed
 * before. A signal sent by a process (si_code <= 0) is handed on as well, and has no effect here. A
 * program that installs its own handler later must hand signals on to this one.
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
 * Unblocks these signals on this thread permanently: a signal that an instruction raises while it
 * is blocked ends the process. To be called on threads of the program before they run code that may
 * raise one. The first call on a thread makes a system call; later ones read a variable. Signals
 * that the program blocks later stay blocked.
 */
static inline void fault_thread(void)
{
	extern _Thread_local bool fault_thread_ready __attribute__((tls_model("initial-exec")));

	if (unlikely(!fault_thread_ready))
		fault_unblock();
}

/*
 * Adds a function for this signal. Functions are called in the order in which they were added. Once
 * is enough. Returns 0 or -errno. Any thread.
 */
int fault_add(int sig, fault_fn fn);

#endif
