/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Numbers that must not return soon: memory keys, communication ids, QP numbers. A peer may still
 * send packets with the numbers of a program that has ended. The count of drawn numbers is in
 * memory that may outlive the program (src/pool), so the next program of the slot continues with
 * the numbers that follow.
 */
#ifndef ROOST_BASE_NUMBERS_H
#define ROOST_BASE_NUMBERS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define NUMBERS_REST_S 60 /* seconds in which no number returns */

/*
 * Converts a time in ns of the machine's monotonic clock to the form in the memory; 0 is no time.
 */
static inline uint32_t numbers_second(uint64_t now)
{
	return (uint32_t)(now / 1000000000) + 1;
}

/*
 * Returns true if less than NUMBERS_REST_S have passed since then. A second is added because the
 * times are whole seconds. A time far in the future is invalid, and is ignored.
 */
static inline bool numbers_rest(uint32_t then, uint32_t second)
{
	return then && second - then + NUMBERS_REST_S <= 2 * NUMBERS_REST_S;
}

/*
 * A sequence of all numbers below 2^bits: a permutation of a counter, whose order nobody can
 * predict without the seed. No number returns before all others were drawn. Several processes may
 * share the counter. Any thread and process may call the functions.
 */
struct sequence {
	uint64_t seed[2];
	unsigned bits;		/* even, 2 .. 32 */
	_Atomic uint32_t *next; /* numbers drawn so far */
	/*
	 * of sequence_draw_rested(): the present half of the numbers, counted on, << 32 |
	 * numbers_second() when it was entered. Zeroed memory is a valid start.
	 */
	_Atomic uint64_t *entered;
};

/* Draws a number. */
uint32_t sequence_draw(const struct sequence *s);
/*
 * Draws a number as sequence_draw() does, but returns false if the number might return within
 * NUMBERS_REST_S: the half of the numbers to which it does not belong was drawn in less time.
 */
bool sequence_draw_rested(const struct sequence *s, uint64_t now, uint32_t *number);

/*
 * Memory keys: upper bits and KEY_LOW_BITS lower bits. Programs choose the lower bits of a window's
 * key, so a window takes all keys with its upper bits. A secret half of the upper bits belongs to
 * regions, the other half to windows. So a key never changes from one kind to the other.
 *
 * A key of a region returns after all 2^31 keys of regions: more than 60 s at any rate that
 * processors reach (35 million per second). The upper bits of a window return after 2^23 windows,
 * and rest by time.
 */
#define KEY_UPPER_BITS 24
#define KEY_LOW_BITS   8
struct key_counts {
	_Atomic uint64_t entered; /* as in struct sequence, of the windows */
	_Atomic uint32_t regions, windows;
};
struct key_sequence {
	uint64_t seed[2];
	unsigned bits; /* KEY_UPPER_BITS; fewer in tests */
	/* Zeroed memory is a valid start. Several processes may share it. */
	struct key_counts *drawn;
};

/* Draw a key. Any thread and process. The key may be 0. */
uint32_t key_draw_region(const struct key_sequence *s);
/* Returns false if the upper bits might return within NUMBERS_REST_S. */
bool key_draw_window(const struct key_sequence *s, uint64_t now, uint32_t *key);

/*
 * The last generation of each QP index of a slot. Only the owner of the slot writes it. Zeroed
 * memory is a valid start.
 *
 * Generations follow each other, one QP at a time. They form two halves: when the first generation
 * of a half is taken, all numbers of the other half are out of use. A number therefore rests at
 * least as long as the other half lasted, and each index needs only one time.
 */
#define NUMBERS_QPS	    (1u << 14)
#define NUMBERS_GENERATIONS 16
struct qp_numbers {
	_Atomic uint8_t last[NUMBERS_QPS]; /* 16 + the last generation; 0: none was used */
	/* numbers_second() when the half of `last` was entered; 0: the other half was not used */
	_Atomic uint32_t entered[NUMBERS_QPS];
};

#endif
