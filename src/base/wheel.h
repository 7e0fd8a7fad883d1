/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Hierarchical timing wheel: the timers of one processing unit, any number of them, over all of
 * 64-bit time.
 *
 * The caller gives the time in nanoseconds. A tick is 2^14 ns (16.4 us). The tick of a timer is
 * read as digits of base 64. The timer is in the level of the highest digit that differs from the
 * wheel's own tick, in the slot of that digit:
 *
 *   level 0   64 slots of 1 tick       (16.4 us)       the slot "now" and those up to 1 ms ahead
 *   level 1   64 slots of 64 ticks     (1.05 ms)       up to 67 ms
 *   level 2   64 slots of 4,096 ticks  (67 ms)         up to 4.3 s
 *   ...       level 8 reaches the end of 64-bit time
 *
 * All timers of a level are due before those of the levels above, and the slots of a level are due
 * in order. The first set bit of the lowest level in use therefore gives the earliest slot. Time
 * may jump by hours, because empty ticks are never visited.
 *
 * add, del and next are O(1). expire is O(1) per timer that fires, plus at most one move per level
 * in the life of a timer. No function allocates memory. Ticks order the slots only: a timer never
 * fires before its deadline, and fires at the first expire at or after it. Timers fire in the order
 * of their ticks, and within a tick in the order in which they reached it. The same calls give the
 * same order. One thread at a time.
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
 * A timer, part of its owner's struct. A zeroed timer is not pending. While it is pending, its
 * fields belong to the wheel, except `owner`, which belongs to the owner.
 */
struct wheel_timer {
	struct list_head link;
	uint64_t deadline; /* ns */
	void *owner;
	uint32_t slot; /* level * WHEEL_SLOTS + digit */
};

struct wheel {
	uint64_t tick; /* no slot before this one holds a timer */
	/* no timer is due before this time; it may be earlier than needed, never later */
	uint64_t next;
	uint32_t levels;	     /* bit l: a slot of level l is in use */
	uint64_t used[WHEEL_LEVELS]; /* bit s: slot s of the level is in use */
	struct list_head slot[WHEEL_LEVELS * WHEEL_SLOTS];
	struct list_head due; /* timers that are due and have not fired yet */
	/* lower bound of the deadlines in a slot in use */
	uint64_t earliest[WHEEL_LEVELS * WHEEL_SLOTS];
};

typedef void (*wheel_fn)(void *ctx, struct wheel_timer *t);

/* Makes a wheel without timers. `now` is in ns. */
void wheel_init(struct wheel *w, uint64_t now);

static inline bool wheel_pending(const struct wheel_timer *t)
{
	return list_linked(&t->link);
}

/* Arms t, or moves it if it is pending. A deadline in the past fires at the next expire. */
void wheel_add(struct wheel *w, struct wheel_timer *t, uint64_t deadline);

/* Disarms t. Has no effect when t is not pending. */
void wheel_del(struct wheel *w, struct wheel_timer *t);

/* The slow path of the two functions below, which callers use. */
unsigned wheel_run(struct wheel *w, uint64_t now, unsigned most, wheel_fn fn, void *ctx);

/*
 * Fires every timer whose deadline is at or before now. Returns their number. A timer is no longer
 * pending when fn is called. fn may add and delete any timer, including its own and timers that are
 * about to fire; a timer that is deleted or moved does not fire then. A timer that fn adds fires at
 * a later expire, even if it is due now. `now` may go back.
 */
static inline unsigned wheel_expire(struct wheel *w, uint64_t now, wheel_fn fn, void *ctx)
{
	return now < w->next ? 0 : wheel_run(w, now, UINT_MAX, fn, ctx);
}

/*
 * Fires timers like wheel_expire(), but at most `most` of them. The others fire at later expires,
 * in their order; until then wheel_next() is in the past.
 */
static inline unsigned wheel_expire_some(struct wheel *w, uint64_t now, unsigned most, wheel_fn fn,
					 void *ctx)
{
	return now < w->next ? 0 : wheel_run(w, now, most, fn, ctx);
}

/*
 * Returns the earliest deadline in ns, or WHEEL_NEVER if there is none. The result is exact, except
 * that the deadline of a deleted timer may remain until it has passed. It is never later than the
 * true earliest deadline.
 */
uint64_t wheel_next(const struct wheel *w);

#endif
