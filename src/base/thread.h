/* SPDX-License-Identifier: BSD-2-Clause */
/* Starts threads of the library in a program that handles signals in its own way. */
#ifndef ROOST_BASE_THREAD_H
#define ROOST_BASE_THREAD_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Starts a thread that receives no signals of the program. `stack` is in bytes; the thread gets the
 * default size if the program's thread-local data do not fit. Returns 0 or -errno.
 */
int thread_start(pthread_t *thread, size_t stack, void *(*fn)(void *), void *arg);

/*
 * Waits until the thread ends. Unlike pthread_join(3) it is no cancellation point, because its
 * callers hold locks.
 */
void thread_join(pthread_t thread);
/* Does the same, but waits at most `ns`. Returns whether the thread has ended. */
bool thread_join_for(pthread_t thread, uint64_t ns);

/* Takes the mutex and returns true, or returns false after `ns`. */
bool thread_lock_for(pthread_mutex_t *lock, uint64_t ns);

#endif
