/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * For tests of the suite `single` whose code can start a thread, but does not in these tests. The
 * linker replaces pthread_create(), so the test fails as soon as this is no longer true.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*run)(void *),
			  void *arg);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*run)(void *),
			  void *arg)
{
	fprintf(stderr,
		"a test of the suite `single` starts a thread: take it out of the suite, so "
		"that TSan sees it\n");
	abort();
}
