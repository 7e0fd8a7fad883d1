/* SPDX-License-Identifier: BSD-2-Clause */
/* Threads of the library, in a program that handles signals in its own way. */
#ifndef ROOST_BASE_THREAD_H
#define ROOST_BASE_THREAD_H

#include <pthread.h>
#include <stddef.h>

/* Starts a thread that receives no signals of the program. Returns 0 or -errno. */
int thread_start(pthread_t *thread, size_t stack, void *(*fn)(void *), void *arg);

#endif
