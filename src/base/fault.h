/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Signals that an instruction raises (SIGSEGV, SIGBUS, SIGFPE, SIGILL): handed to those of us who
 * know what to do about some of them, and else to whoever had the signal before us. What a process
 * sends (si_code <= 0) is handed on as well, and changes nothing for us. A program that installs a
 * handler of its own later has to hand on to ours.
 */
#ifndef ROOST_BASE_FAULT_H
#define ROOST_BASE_FAULT_H

#include <signal.h>
#include <stdbool.h>

#include "base/mem.h"

/*
 * In the signal handler, on the thread that raised it or was sent it. True: dealt with, the thread
 * goes on. It may also jump out.
 */
typedef bool (*fault_fn)(int sig, siginfo_t *info, void *ucontext);

void fault_unblock(void);
/*
 * Unblocks these signals on this thread, for good: one that an instruction raises while it is
 * blocked ends the process. For threads of the program's, before they run what may raise one; the
 * first time a system call, then a look at a variable. What the program blocks later stays blocked.
 */
static inline void fault_thread(void)
{
	extern _Thread_local bool fault_thread_ready __attribute__((tls_model("initial-exec")));

	if (unlikely(!fault_thread_ready))
		fault_unblock();
}

/*
 * Asks fn about this signal from now on, those added before it first. Once is enough. 0 or -errno.
 * Any thread.
 */
int fault_add(int sig, fault_fn fn);

#endif
