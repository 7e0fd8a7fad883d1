/* SPDX-License-Identifier: BSD-2-Clause */
/* bench-kernels: what its tests share. Each prints rows, objects of one JSON array. */
#ifndef ROOST_BENCH_KERN_H
#define ROOST_BENCH_KERN_H

#include "base/hist.h"
#include "base/rng.h"
#include "duo.h"

struct kern_options {
	uint64_t delay_ns; /* of a round trip on the wire */
	uint64_t point_ns; /* for each figure */
};

extern struct kern_options kern;

/*
 * One way to do the same thing: `once` does it with a random number; it returns how many round
 * trips it took, 0 when that makes no sense.
 */
struct kern_way {
	const char *name;
	unsigned (*once)(struct duo *c, uint64_t random, unsigned size);
	void (*begin)(struct duo *c), (*end)(struct duo *c); /* around a slice; may be NULL */
	struct hist hist;
	uint64_t trips;
};

/*
 * Measures all ways by turns, each for kern.point_ns in slices, and prints a row for each: latency,
 * rate, round trips. `extra`: more members, or "".
 */
void kern_compare(struct duo *c, const char *test, struct kern_way *ways, unsigned n, unsigned size,
		  const char *extra);
struct kern_rate {
	const char *name;
	double (*run)(struct duo *c, unsigned size); /* for kern.point_ns */
	unsigned size;
};

/* Rates by turns, so many (KERN_TURNS at most) times; a row for each with the median, in `unit`. */
#define KERN_TURNS 5u
void kern_rates(struct duo *c, const char *test, const struct kern_rate *ways, unsigned n,
		unsigned turns, const char *unit);
/* Fails unless they are the same. */
void kern_expect(const char *test, const void *got, const void *want, size_t len);

/* For `calls` at once, with replies of up to `room` bytes. */
void kern_make_caller(struct duo *c, unsigned calls, uint32_t room);
extern struct roost_caller *kern_caller;
/* Polls until it is there. */
struct roost_result kern_wait(unsigned id);
/* Calls and waits; the reply, of `want` bytes. It stays until the next call. */
const void *kern_call(uint64_t op, uint32_t rkey, const void *params, uint32_t len, uint32_t want);
void kern_deploy(struct duo *s, const char *builtin);
/* The numbers below n; from `kept` on in any order. */
void kern_mix(uint32_t *order, uint32_t n, uint32_t kept, uint64_t seed);

/* The tests. */
void kern_list(void);
void kern_get(void);
void kern_object(void);
void kern_walk(void);
void kern_hll(void);
void kern_shuffle(void);

#endif
