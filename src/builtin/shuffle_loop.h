/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The loop of the kernel `shuffle`. It is a separate file so that tests can compare and measure it.
 */
#ifndef ROOST_BUILTIN_SHUFFLE_LOOP_H
#define ROOST_BUILTIN_SHUFFLE_LOOP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "roost/shuffle.h"

/*
 * The buffered tuples of a partition are [from, at). A tuple's place in the line is its address in
 * memory modulo the line's size.
 */
struct shuffle_bounds {
	uint64_t from, end;
};

struct shuffle_work {
	struct roost_shuffle_params p;
	uint64_t *at;		       /* for each partition: address of its next tuple */
	struct shuffle_bounds *bounds; /* for each partition */
	uint8_t *lines;		       /* ROOST_SHUFFLE_LINE bytes for each, aligned to that */
	/* Writes a line to memory. The loop ends if it returns anything but 0. */
	int (*put)(void *ctx, uint64_t va, const void *buf, uint32_t len);
	void *ctx;
};

enum shuffle_end { SHUFFLE_OK, SHUFFLE_FULL, SHUFFLE_REFUSED };

/* Returns whether tuple, key, partitions, how and shift are valid. */
bool shuffle_ok(const struct roost_shuffle_params *p);

/* Stores the partitions of n tuples in `part`. No other thread may write the tuples meanwhile. */
void shuffle_parts(const struct roost_shuffle_params *p, const uint8_t *tuples, uint32_t n,
		   uint32_t *part);

/* Partitions n tuples, at any alignment; reads each byte once. Any thread, one at a time. */
typedef enum shuffle_end shuffle_fn(struct shuffle_work *w, const uint8_t *tuples, size_t n);

/*
 * Return the loop for these parameters: one that runs on any CPU, and the fastest for this CPU.
 * Both have the same result.
 */
shuffle_fn *shuffle_plain(const struct roost_shuffle_params *p);
shuffle_fn *shuffle_best(const struct roost_shuffle_params *p);

/* Writes the rest of a partition's line to memory. */
enum shuffle_end shuffle_flush(struct shuffle_work *w, uint32_t part);

#endif
