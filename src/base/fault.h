/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Signals that an instruction raises (SIGSEGV, SIGBUS, SIGFPE, SIGILL): handed to those of us who know what to do about some of them, and else to
 * whoever had the signal before us.
 */
#ifndef ROOST_BASE_FAULT_H
#define ROOST_BASE_FAULT_H

#include <signal.h>
#include <stdbool.h>

/* In the signal handler, on the thread that raised it or was sent it. True: dealt with, the thread goes on. It may also jump out. */
typedef bool (*fault_fn)(int sig, siginfo_t *info, void *ucontext);

/* Asks fn about this signal from now on, those added before it first. Once is enough. 0 or -errno. Any thread. */
int fault_add(int sig, fault_fn fn);

#endif
