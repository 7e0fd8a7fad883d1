/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Elements of values, and the built-in functions on them. A table has one entry for each function
 * and type. Elements need no alignment. The buffers of a call must not overlap, except where a
 * comment says so. Any thread.
 */
#ifndef ROOST_KV_ELEMENT_H
#define ROOST_KV_ELEMENT_H

#include <stddef.h>
#include <stdint.h>

#include "kv/kv.h"

/*
 * One of the first KV_FNS_ELEMENT functions for a type: element := fn(element, operand). `n` is the
 * number of elements of `to` and `from`.
 */
struct element_fn {
	/* The operand is a vector of `n` elements, or one element for all. */
	void (*vector)(void *to, const void *operand, size_t n);
	void (*each)(void *to, const void *operand, size_t n);
	/* acc := fn(acc, element) for each element, from the first to the last. */
	void (*reduce)(void *acc, const void *from, size_t n);
};

/* Compare-and-swap for a width; it compares the bytes of elements. */
struct element_swap {
	void (*vector)(void *to, const void *expect, const void *operand, size_t n);
	void (*each)(void *to, const void *expect, const void *operand, size_t n);
};

struct element_table {
	struct element_fn fn[KV_FNS_ELEMENT][KV_TYPES]; /* all members NULL: no such function */
	struct element_swap swap[4];			/* for elements of 1, 2, 4 and 8 bytes */
};

/* Copies the elements that match to `out`, which may be `from`. Returns their number. */
typedef size_t element_filter_fn(void *out, const void *from, const void *operand, size_t n);

/* Returns the bytes of an element, or 0 if there is no such type. */
unsigned element_width(unsigned type);

/* element_plain() runs on any CPU; element_best() returns the fastest table for this CPU. */
const struct element_table *element_plain(void);
const struct element_table *element_best(void);

/* Returns the filter for a built-in predicate and a type, or NULL if there is none. */
element_filter_fn *element_filter(unsigned fn, unsigned type);

#endif
