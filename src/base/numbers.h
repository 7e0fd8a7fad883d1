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
#include <stdint.h>

/*
 * A sequence of all numbers below 2^bits: a permutation of a counter, whose order nobody can
 * predict without the seed. No number returns before all others were drawn.
 */
struct sequence {
	uint64_t seed[2];
	unsigned bits;		/* even, 2 .. 32 */
	_Atomic uint32_t *next; /* numbers drawn so far; several processes may share the counter */
};

/* Draws a number. Any thread and process. */
uint32_t sequence_draw(const struct sequence *s);

/*
 * The last generation of each QP index of a slot. Only the owner of the slot writes it. Zeroed
 * memory is a valid start.
 */
#define NUMBERS_QPS	    (1u << 14)
#define NUMBERS_GENERATIONS 16
struct qp_numbers {
	_Atomic uint32_t next;		   /* 1 + the first index to try; 0: none was used */
	_Atomic uint8_t last[NUMBERS_QPS]; /* 16 + the last generation; 0: none was used */
};

#endif
