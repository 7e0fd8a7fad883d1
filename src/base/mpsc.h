/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Bounded ring of 32-bit values: many producers, one consumer at a time, no locks (D. Vyukov's
 * bounded queue).
 *
 * A cell is one 64-bit word, sequence << 32 | value, so that value and state change together:
 *   sequence == position                  free for the producer that claims this position
 *   sequence == position + 1              holds the value pushed at this position
 * Taking the value out sets the sequence one lap ahead. Positions are 32 bits and wrap. Sequences
 * are kept less the index of their cell,
 * so that memory of zeros is an empty ring, and its pages cost nothing until they are used.
 *
 * Memory order: a cell's word is stored with release by who pushes and by who pops, and loaded with
 * acquire by both. So a push, and what its thread did before, is ordered before the pop that
 * returns its value, and a pop before the push a lap later. The claim of a position (tail) orders
 * nothing; the consumer's head travels with the ownership of the consumer's side. A producer that
 * must know whether the consumer sleeps needs a full fence of its own between its push and that
 * question.
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

/* The sequence in a cell that stands for this position. */
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
 * Room for at least `capacity` values. 0, -EINVAL (none, or beyond MPSC_MAX_CAPACITY), -ENOMEM.
 * Control path.
 */
int mpsc_init(struct mpsc *m, uint32_t capacity);
/* Nobody pushes or pops any more. Harmless on a zeroed struct. */
void mpsc_destroy(struct mpsc *m);

/* False when the ring is full. Any thread. */
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
			return false; /* still holds the value of a lap ago */
		pos = atomic_load_explicit(&m->tail, memory_order_relaxed);
	}
}

/*
 * False when there is nothing, or when the oldest push has not finished yet. The consumer's thread.
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

/* Would mpsc_pop() find nothing now? Any thread; an answer of the moment. */
static inline bool mpsc_empty(struct mpsc *m)
{
	uint32_t pos = atomic_load_explicit(&m->head, memory_order_relaxed);

	return mpsc_sequence(m, pos,
			     atomic_load_explicit(&m->cell[pos & m->mask], memory_order_acquire)) !=
	       pos + 1;
}

#endif
