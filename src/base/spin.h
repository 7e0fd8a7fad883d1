/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A lock that is held for a few instructions: test and test-and-set on a C11 atomic, so that TSan
 * sees it. A thread that has waited long yields its core, because the holder may be preempted and
 * waiting for this core. A zeroed lock is unlocked. It is neither recursive nor fair.
 */
#ifndef ROOST_BASE_SPIN_H
#define ROOST_BASE_SPIN_H

#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "base/mem.h"

#define SPIN_PAUSES 200 /* pauses before each yield: a few microseconds */

struct spin {
	/* exchanged with acquire, cleared with release: an owner sees earlier owners' stores */
	atomic_uint taken;
};

static inline bool spin_trylock(struct spin *s)
{
	return !atomic_load_explicit(&s->taken, memory_order_relaxed) &&
	       !atomic_exchange_explicit(&s->taken, 1, memory_order_acquire);
}

static inline void spin_lock(struct spin *s)
{
	unsigned tries = 0;

	while (unlikely(!spin_trylock(s))) {
		cpu_pause();
		if (++tries % SPIN_PAUSES == 0)
			sched_yield();
	}
}

static inline void spin_unlock(struct spin *s)
{
	atomic_store_explicit(&s->taken, 0, memory_order_release);
}

static inline bool spin_is_locked(struct spin *s)
{
	return atomic_load_explicit(&s->taken, memory_order_relaxed);
}

#endif
