/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Checks whether the history of a store is linearizable for each key: whether there is an order of
 * the operations on the key in which each has its result, and in which no operation is before one
 * that had ended when it began. The search is that of Wing and Gong (1993) with the memory of Lowe
 * (2017), for each key by itself, as Porcupine does it.
 *
 * A value of the store is one number here.
 */
#ifndef ROOST_TESTS_KV_HISTORY_H
#define ROOST_TESTS_KV_HISTORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum history_code {
	HISTORY_GET,
	HISTORY_PUT,
	HISTORY_DELETE,
	HISTORY_COMPARE, /* puts `value` if the value is `expect` */
	HISTORY_ADD,	 /* adds `value` and returns the value of before */
};

/* The end of an operation whose outcome is not known: it has its effect at any time, or never. */
#define HISTORY_OPEN UINT64_MAX

struct history_op {
	uint64_t key;
	uint64_t start, end; /* times; operations that touch overlap */
	uint64_t value, expect;
	uint64_t result; /* GET, ADD: the value, of status 0. COMPARE: the value, of -ECANCELED */
	int32_t status;
	uint32_t code; /* enum history_code */
	/*
	 * Not 0: the operations of a batch on one key take effect in their order in the list. They
	 * have one start, which no other batch has.
	 */
	uint64_t batch;
};

/*
 * Sorts the operations by key and start. Returns whether the history is linearizable. If not,
 * writes the operations on the first key for which it is not to `out` (NULL: nothing), and marks
 * the one whose end no order reaches.
 */
bool history_check(struct history_op *ops, size_t n, FILE *out);

#endif
