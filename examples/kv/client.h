/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Functions that the examples of the key-value store share. To build and run an example:
 *
 *	roost node --kv 1G &
 *	cc -O2 -o counters counters.c $(pkg-config --cflags --libs roost) -lm -lpthread
 *	./counters ADDRESS-OF-THE-NODE
 */
#ifndef EXAMPLE_KV_CLIENT_H
#define EXAMPLE_KV_CLIENT_H

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <roost/kv.h>
#include <roost/node.h>

static const char *address; /* address of the node */

/* Ends the program with a message if rc, a negative errno, is not 0. */
static inline void must(int rc, const char *what)
{
	if (!rc)
		return;
	fprintf(stderr, "%s: %s\n", what, strerror(-rc));
	exit(1);
}

static inline void *memory(size_t n, size_t size)
{
	void *p = calloc(n, size);

	must(p ? 0 : -ENOMEM, "memory");
	return p;
}

/* Reads ADDRESS [NUMBER], and returns the number. */
static inline unsigned long arguments(int argc, char **argv, unsigned long number)
{
	must(argc == 2 || argc == 3 ? 0 : -EINVAL, "usage: ADDRESS [NUMBER]");
	address = argv[1];
	return argc == 3 ? strtoul(argv[2], NULL, 10) : number;
}

/* Connects to the store. One thread at a time may use a connection. */
static inline struct roost_kv *connect_to_store(void)
{
	struct roost_kv *kv;

	must(roost_kv_open(address, ROOST_NODE_SERVICE, NULL, &kv), address);
	return kv;
}

/* Executes operations, each of which must succeed. */
static inline void run_all(struct roost_kv *kv, struct roost_kv_op *ops, unsigned n,
			   const char *what)
{
	must(roost_kv_run(kv, ops, n), what);
	for (unsigned i = 0; i < n; i++)
		must(ops[i].status, what);
}

static inline double seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* Draws a number: Marsaglia's xorshift. The state must not be 0. */
static inline uint64_t draw(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

/* Runs `n` threads, which get the numbers from 0. */
static inline void run_workers(unsigned n, void *(*work)(void *number))
{
	pthread_t *threads = memory(n, sizeof(*threads));

	for (uintptr_t i = 0; i < n; i++)
		must(-pthread_create(&threads[i], NULL, work, (void *)i), "a thread");
	for (unsigned i = 0; i < n; i++)
		pthread_join(threads[i], NULL);
	free(threads);
}

#endif
