/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Hierarchical timing wheel: the timers of one processing unit, any number of them, over all of
 * 64-bit time.
 *
 * Time is nanoseconds, given by the caller; a tick is 2^14 ns (16.4 us). A timer's tick is read as
 * digits of base 64. It hangs in the level of the highest digit in which it differs from the
 * wheel's own tick, in the slot of that digit:
 *
 *   level 0   64 slots of 1 tick       (16.4 us)       the slot "now" and those up to 1 ms ahead
 *   level 1   64 slots of 64 ticks     (1.05 ms)       up to 67 ms
 *   level 2   64 slots of 4,096 ticks  (67 ms)         up to 4.3 s
 *   ...       level 8 reaches the end of 64-bit time
 *
 * So everything in a level is due before everything in the levels above, and in a level slot by
 * slot: the first set bit of the lowest level that has one names the earliest slot. Time may jump
 * by hours: empty ticks are never visited.
 *
 * add, del and next are O(1); expire is O(1) per timer that fires, plus at most one move per level
 * in a timer's life. Nothing allocates. Ticks order the slots only: a timer never fires before its
 * deadline, and fires at the first expire at or after it. Timers fire in the order of their ticks,
 * inside a tick in the order in which they got there; the same calls give the same order. One
 * thread at a time.
 */
#ifndef ROOST_BASE_WHEEL_H
#define ROOST_BASE_WHEEL_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"

#define WHEEL_TICK_BITS	 14
#define WHEEL_DIGIT_BITS 6
#define WHEEL_SLOTS	 (1 << WHEEL_DIGIT_BITS)
#define WHEEL_LEVELS	 9 /* 9 digits of 6 bits cover the 50 bits of a tick */
#define WHEEL_NEVER	 UINT64_MAX

/*
 * Part of its owner's struct. Zeroed is not pending. Fields are the wheel's while pending; `owner`
 * is the owner's.
 */
struct wheel_timer {
	struct list_head link;
	uint64_t deadline; /* ns */
	void *owner;
	uint32_t slot; /* level * WHEEL_SLOTS + digit */
};

struct wheel {
	uint64_t tick;		     /* no slot before this one holds a timer */
	uint64_t next;		     /* no timer is due before; may be too early, never too late */
	uint32_t levels;	     /* bit l: some slot of level l is in use */
	uint64_t used[WHEEL_LEVELS]; /* bit s: slot s of the level is in use */
	struct list_head slot[WHEEL_LEVELS * WHEEL_SLOTS];
	struct list_head due; /* found due, and not fired yet */
	/* lower bound of the deadlines in a slot in use */
	uint64_t earliest[WHEEL_LEVELS * WHEEL_SLOTS];
};

typedef void (*wheel_fn)(void *ctx, struct wheel_timer *t);

void wheel_init(struct wheel *w, uint64_t now);

static inline bool wheel_pending(const struct wheel_timer *t)
{
	return list_linked(&t->link);
}

/* Arms t, or moves it if it is pending. A deadline in the past fires at the next expire. */
void wheel_add(struct wheel *w, struct wheel_timer *t, uint64_t deadline);

/* Disarms t; no effect when it is not pending. */
void wheel_del(struct wheel *w, struct wheel_timer *t);

/* Slow path of the two below. */
unsigned wheel_run(struct wheel *w, uint64_t now, unsigned most, wheel_fn fn, void *ctx);

/*
 * Fires every timer whose deadline is at or before now, and returns how many. A timer is no longer
 * pending when fn sees it. fn may add and delete any timer, its own and ones that are about to fire
 * included (one deleted or moved does not fire then); what it adds fires at a later expire, even if
 * due now. `now` may go back.
 */
static inline unsigned wheel_expire(struct wheel *w, uint64_t now, wheel_fn fn, void *ctx)
{
	return now < w->next ? 0 : wheel_run(w, now, UINT_MAX, fn, ctx);
}

/*
 * At most so many of them: the others fire at later expires, in their turn, and until then a
 * deadline is over.
 */
static inline unsigned wheel_expire_some(struct wheel *w, uint64_t now, unsigned most, wheel_fn fn,
					 void *ctx)
{
	return now < w->next ? 0 : wheel_run(w, now, most, fn, ctx);
}

/*
 * The earliest deadline in ns, WHEEL_NEVER when there is none. Exact, except that a deleted timer's
 * deadline may linger until it has passed: never later than the true one.
 */
uint64_t wheel_next(const struct wheel *w);

#endif
