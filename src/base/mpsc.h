/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Bounded ring of 32-bit values: many producers, one consumer at a time, no locks (D. Vyukov's
 * bounded queue).
 *
 * A cell is one 64-bit word, sequence << 32 | value, so that value and state change together:
 *   sequence == position                  free for the producer that claims this position
 *   sequence == position + 1              holds the value pushed at this position
 * Popping the value sets the sequence one lap ahead. Positions have 32 bits and wrap. The index of
 * the cell is subtracted from the stored sequence, so that zeroed memory is an empty ring.
 *
 * Memory order: push and pop store the word of a cell with release and load it with acquire. A
 * push, and the earlier stores of its thread, are therefore ordered before the pop that returns its
 * value, and a pop before the push one lap later. The claim of a position (tail) orders nothing.
 * The ownership of the consumer's side orders the accesses to the head. A producer that must know
 * whether the consumer sleeps needs its own full fence between its push and that check.
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
		/* consumer only; atomic because the ownership of the consumer's side moves */
		CACHE_ALIGNED;
	atomic_uint tail CACHE_ALIGNED; /* only producers write it */
};

/* Returns the sequence of `cell`, seen as the cell of position `pos`. */
static inline uint32_t mpsc_sequence(const struct mpsc *m, uint32_t pos, uint64_t cell)
{
	return (uint32_t)(cell >> 32) + (pos & m->mask);
}

static inline uint64_t mpsc_cell(const struct mpsc *m, uint32_t pos, uint32_t sequence,
				 uint32_t value)
{
	return (uint64_t)(sequence - (pos & m->mask)) << 32 | value;
}

/*
 * Makes a ring for at least `capacity` values. Returns 0, -EINVAL (capacity is 0 or more than
 * MPSC_MAX_CAPACITY) or -ENOMEM. Control path.
 */
int mpsc_init(struct mpsc *m, uint32_t capacity);
/* Frees the ring. No thread may push or pop any more. A zeroed struct is allowed. */
void mpsc_destroy(struct mpsc *m);

/* Pushes a value. Returns false if the ring is full. Any thread. */
static inline bool mpsc_push(struct mpsc *m, uint32_t value)
{
	uint32_t pos = atomic_load_explicit(&m->tail, memory_order_relaxed);

	for (;;) {
		_Atomic uint64_t *cell = &m->cell[pos & m->mask];
		uint32_t seq =
			mpsc_sequence(m, pos, atomic_load_explicit(cell, memory_order_acquire));

		if (seq == pos) {
			if (!atomic_compare_exchange_weak_explicit(&m->tail, &pos, pos + 1,
								   memory_order_relaxed,
								   memory_order_relaxed))
				continue;
			atomic_store_explicit(cell, mpsc_cell(m, pos, pos + 1, value),
					      memory_order_release);
			return true;
		}
		if ((int32_t)(seq - pos) < 0)
			return false; /* the cell still holds the value of the previous lap */
		pos = atomic_load_explicit(&m->tail, memory_order_relaxed);
	}
}

/*
 * Pops a value. Returns false if there is none, or if the push of the oldest value has not finished
 * yet. Consumer only.
 */
static inline bool mpsc_pop(struct mpsc *m, uint32_t *value)
{
	uint32_t pos = atomic_load_explicit(&m->head, memory_order_relaxed);
	_Atomic uint64_t *cell = &m->cell[pos & m->mask];
	uint64_t word = atomic_load_explicit(cell, memory_order_acquire);

	if (mpsc_sequence(m, pos, word) != pos + 1)
		return false;
	*value = (uint32_t)word;
	atomic_store_explicit(&m->head, pos + 1, memory_order_relaxed);
	atomic_store_explicit(cell, mpsc_cell(m, pos, pos + m->mask + 1, 0), memory_order_release);
	return true;
}

/*
 * Returns true if mpsc_pop() would find no value now. The answer may be outdated at once. Any
 * thread.
 */
static inline bool mpsc_empty(struct mpsc *m)
{
	uint32_t pos = atomic_load_explicit(&m->head, memory_order_relaxed);

	return mpsc_sequence(m, pos,
			     atomic_load_explicit(&m->cell[pos & m->mask], memory_order_acquire)) !=
	       pos + 1;
}

#endif
