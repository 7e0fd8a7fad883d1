/* SPDX-License-Identifier: BSD-2-Clause */
/* The common part of bench-kernels' tests. Each prints rows, objects of one JSON array. */
#ifndef ROOST_BENCH_KERN_H
#define ROOST_BENCH_KERN_H

#include "base/hist.h"
#include "base/rng.h"
#include "duo.h"

struct kern_options {
	uint64_t delay_ns; /* of a round trip on the wire */
	uint64_t point_ns; /* duration of each measurement */
	unsigned size;	   /* chain: only values of this size; 0: of all */
};

extern struct kern_options kern;

/*
 * One of several methods for the same operation. once() runs it with a random number and returns
 * its number of round trips, or 0 if that is not defined.
 */
struct kern_way {
	const char *name;
	unsigned (*once)(struct duo *c, uint64_t random, unsigned size);
	void (*begin)(struct duo *c), (*end)(struct duo *c); /* around a slice; may be NULL */
	struct hist hist;
	uint64_t trips;
};

/*
 * Measures all methods in alternating slices, each for kern.point_ns in total, and prints a row for
 * each: latency, rate, round trips. `extra`: more JSON members, or "".
 */
void kern_compare(struct duo *c, const char *test, struct kern_way *ways, unsigned n, unsigned size,
		  const char *extra);
/* Prints a row: `trips` is the number of round trips in all, or 0. */
void kern_row(const char *test, const char *way, unsigned size, const struct hist *h,
	      uint64_t trips, const char *extra);
struct kern_rate {
	const char *name;
	double (*run)(struct duo *c, unsigned size); /* for kern.point_ns */
	unsigned size;
};

/* Measures rates, `turns` times alternating (at most KERN_TURNS). Prints medians in `unit`. */
#define KERN_TURNS 5u
void kern_rates(struct duo *c, const char *test, const struct kern_rate *ways, unsigned n,
		unsigned turns, const char *unit);
/* Fails unless the bytes are equal. */
void kern_expect(const char *test, const void *got, const void *want, size_t len);

/* Creates kern_caller for `calls` calls in flight, with replies of up to `space` bytes. */
void kern_make_caller(struct duo *c, unsigned calls, uint32_t space);
extern struct roost_caller *kern_caller;
/* Polls until the call has its result. */
struct roost_result kern_wait(unsigned id);
/* Calls and waits. Returns the reply of `want` bytes, which is valid until the next call. */
const void *kern_call(uint64_t op, uint32_t rkey, const void *params, uint32_t len, uint32_t want);
void kern_deploy(struct duo *s, const char *builtin);
/* Stores the numbers below n; those from index `kept` on are shuffled. */
void kern_mix(uint32_t *order, uint32_t n, uint32_t kept, uint64_t seed);

/* The tests. */
void kern_list(void);
void kern_get(void);
void kern_object(void);
void kern_walk(void);
void kern_chain(void);
void kern_chain_list(void);
void kern_writers(void);
void kern_endless(void);
void kern_gather(void);
void kern_hll(void);
void kern_shuffle(void);

#endif
