/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A token bucket, as a state machine in the time of its caller: `rate` tokens come in each second,
 * and at most `burst` of them are kept. The bucket is full at first. Credit is counted in units of
 * 10^-9 token, so a nanosecond brings `rate` units, and nothing is rounded. Only tokens_when() of
 * an empty bucket divides. `now` may go back; no tokens come in then.
 */
#ifndef ROOST_BASE_TOKENS_H
#define ROOST_BASE_TOKENS_H

#include <stdbool.h>
#include <stdint.h>

#define TOKENS_UNIT	 1000000000ull
#define TOKENS_MAX_BURST UINT32_MAX

struct tokens {
	uint64_t credit; /* at the time `at`; at most burst * TOKENS_UNIT */
	uint64_t at;	 /* ns */
	uint32_t rate;	 /* tokens per second, not 0 */
	uint32_t burst;	 /* not 0 */
};

static inline void tokens_init(struct tokens *t, uint32_t rate, uint32_t burst, uint64_t now)
{
	*t = (struct tokens){
		.credit = burst * TOKENS_UNIT, .at = now, .rate = rate, .burst = burst};
}

/*
 * Takes a token. Returns false if there is none; tokens_when() then returns the time of the next
 * one.
 */
static inline bool tokens_take(struct tokens *t, uint64_t now)
{
	if (now > t->at) {
		const uint64_t space = t->burst * TOKENS_UNIT - t->credit;
		uint64_t more;

		if (__builtin_mul_overflow(now - t->at, (uint64_t)t->rate, &more) || more > space)
			more = space;
		t->credit += more;
		t->at = now;
	}
	if (t->credit < TOKENS_UNIT)
		return false;
	t->credit -= TOKENS_UNIT;
	return true;
}

/* Returns the earliest time at which tokens_take() succeeds, in ns. */
static inline uint64_t tokens_when(const struct tokens *t)
{
	if (t->credit >= TOKENS_UNIT)
		return t->at;
	return t->at + (TOKENS_UNIT - t->credit + t->rate - 1) / t->rate;
}

#endif
