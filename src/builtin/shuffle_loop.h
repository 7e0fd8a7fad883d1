/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The loop of the kernel `shuffle`: apart from it, so that its forms can be compared and measured.
 */
#ifndef ROOST_BUILTIN_SHUFFLE_LOOP_H
#define ROOST_BUILTIN_SHUFFLE_LOOP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "roost/shuffle.h"

/*
 * Buffered tuples of a partition: [from, at). They stand in its line where they will stand in
 * memory, modulo the line.
 */
struct shuffle_bounds {
	uint64_t from, end;
};

struct shuffle_work {
	struct roost_shuffle_params p;
	uint64_t *at;		       /* of each partition: where its next tuple goes */
	struct shuffle_bounds *bounds; /* of each */
	uint8_t *lines;		       /* ROOST_SHUFFLE_LINE bytes for each, aligned to them */
	/* Where lines go: 0, or not 0 and the loop ends. */
	int (*put)(void *ctx, uint64_t va, const void *buf, uint32_t len);
	void *ctx;
};

enum shuffle_end { SHUFFLE_OK, SHUFFLE_FULL, SHUFFLE_REFUSED };

/* Do tuple, key, partitions and how make sense? */
bool shuffle_ok(const struct roost_shuffle_params *p);

/* The partitions of n tuples that nobody else writes. */
void shuffle_parts(const struct roost_shuffle_params *p, const uint8_t *tuples, uint32_t n,
		   uint32_t *part);

/* Takes n tuples, at any alignment, each byte read once. Any thread, one at a time. */
typedef enum shuffle_end shuffle_fn(struct shuffle_work *w, const uint8_t *tuples, size_t n);

/*
 * The form for these parameters that any machine has, and the fastest one of this machine; both do
 * the same.
 */
shuffle_fn *shuffle_plain(const struct roost_shuffle_params *p);
shuffle_fn *shuffle_best(const struct roost_shuffle_params *p);

/* What is left in the line of a partition goes to memory. */
enum shuffle_end shuffle_flush(struct shuffle_work *w, uint32_t part);

#endif
