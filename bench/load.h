/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the clients of stores share (bench-kv-load and bench-stores): their options, the keys that
 * they draw, and their results. CPU time is that of this process and of the servers.
 */
#ifndef ROOST_BENCH_LOAD_H
#define ROOST_BENCH_LOAD_H

#include <stdbool.h>
#include <stdint.h>

#include "base/hist.h"

#define LOAD_KEY 8u /* bytes of a key */

struct load_options {
	const char *store, *at; /* what to connect to */
	bool fill;		/* only store all keys */
	unsigned batch, depth;	/* operations of a request, requests in flight */
	unsigned keys, value;	/* number of keys, bytes of a value */
	unsigned put;		/* percent of PUTs */
	double zipf;		/* skew of the keys; 0: uniform */
	double seconds;
	double rate;  /* operations a second that arrive; 0: as many as are done */
	bool poisson; /* times between arrivals are random */
	/* ids of their processes, with commas */
	const char *servers;
};

/* Reads the words NAME=VALUE. */
void load_parse(struct load_options *o, int argc, char **argv);
_Noreturn void load_fail(const char *what);

/* Returns the number of servers of the options, at least 1. */
unsigned load_servers(void);

/* Prepares load_key(), which draws one of `keys` keys. */
void load_prepare(const struct load_options *o);
uint64_t load_key(void);
/* Writes the key as 8 digits. */
void load_digits(char *at, uint64_t key);
/* A random number in 0 .. n - 1, and one in 0 .. 1. */
uint64_t load_below(uint64_t n);
double load_random(void);

/* The begin and the end of the measurement; print() is for the end, and prints JSON. */
void load_begin(void);
void load_print(const char *tool, uint64_t operations, const struct hist *h);

#endif
