/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Bounded ring of 32-bit values: many producers, one consumer at a time, no locks (D. Vyukov's bounded queue).
 *
 * A cell is one 64-bit word, sequence << 32 | value, so that value and state change together:
 *   sequence == position                  free for the producer that claims this position
 *   sequence == position + 1              holds the value pushed at this position
 * Taking the value out sets the sequence one lap ahead. Positions are 32 bits and wrap.
 *
 * A push is ordered before the pop that returns its value (release, acquire). A producer that must know whether the
 * consumer sleeps needs a full fence of its own between its push and that question.
 */
#ifndef ROOST_BASE_MPSC_H
#define ROOST_BASE_MPSC_H

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/mem.h"

#define MPSC_MAX_CAPACITY (1u << 30)

struct mpsc {
	_Atomic uint64_t *cell;
	uint32_t mask;
	atomic_uint head
		CACHE_ALIGNED; /* consumer's; atomic because ownership of the consumer's side moves */
	atomic_uint tail CACHE_ALIGNED; /* producers' */
};

/* Room for at least `capacity` values. 0, -EINVAL (none, or beyond MPSC_MAX_CAPACITY), -ENOMEM. Control path. */
int mpsc_init(struct mpsc *m, uint32_t capacity);
/* Nobody pushes or pops any more. Harmless on a zeroed struct. */
void mpsc_destroy(struct mpsc *m);

/* False when the ring is full. Any thread. */
static inline bool mpsc_push(struct mpsc *m, uint32_t value)
{
	uint32_t pos = atomic_load_explicit(&m->tail, memory_order_relaxed);

	for (;;) {
		_Atomic uint64_t *cell = &m->cell[pos & m->mask];
		uint32_t seq = (uint32_t)(atomic_load_explicit(cell, memory_order_acquire) >> 32);

		if (seq == pos) {
			if (!atomic_compare_exchange_weak_explicit(
				    &m->tail, &pos, pos + 1, memory_order_relaxed, memory_order_relaxed))
				continue;
			atomic_store_explicit(cell, (uint64_t)(pos + 1) << 32 | value, memory_order_release);
			return true;
		}
		if ((int32_t)(seq - pos) < 0)
			return false; /* still holds the value of a lap ago */
		pos = atomic_load_explicit(&m->tail, memory_order_relaxed);
	}
}

/* False when there is nothing, or when the oldest push has not finished yet. The consumer's thread. */
static inline bool mpsc_pop(struct mpsc *m, uint32_t *value)
{
	uint32_t pos = atomic_load_explicit(&m->head, memory_order_relaxed);
	_Atomic uint64_t *cell = &m->cell[pos & m->mask];
	uint64_t word = atomic_load_explicit(cell, memory_order_acquire);

	if ((uint32_t)(word >> 32) != pos + 1)
		return false;
	*value = (uint32_t)word;
	atomic_store_explicit(&m->head, pos + 1, memory_order_relaxed);
	atomic_store_explicit(cell, (uint64_t)(pos + m->mask + 1) << 32, memory_order_release);
	return true;
}

/* Would mpsc_pop() find nothing now? Any thread; an answer of the moment. */
static inline bool mpsc_empty(struct mpsc *m)
{
	uint32_t pos = atomic_load_explicit(&m->head, memory_order_relaxed);

	return (uint32_t)(atomic_load_explicit(&m->cell[pos & m->mask], memory_order_acquire) >> 32) !=
	       pos + 1;
}

#endif
