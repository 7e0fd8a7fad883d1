/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The slab allocator of a segment of at most 64 GiB. Sizes are powers of two from 32 bytes to
 * 64 KiB. A free slab is an entry of 4 bytes (its place in units of 32 bytes) on the stack of its
 * class. The top of the stack is near (an array in struct slab_class), the rest is far (in the
 * store's memory):
 *
 *	near   [ . . . . . . . . ]   full: SLAB_BATCH entries go to the far stack, in one access
 *	far    [ ................    near is empty: as many come back, in one access
 *
 * If both are empty a larger slab is split, or fresh memory if there is no larger slab. Free slabs
 * are merged only when memory runs out, or by slab_merge(): the entries of a class are sorted by
 * place (radix sort), and neighbours become a slab of the next class.
 */
#ifndef ROOST_KV_SLAB_H
#define ROOST_KV_SLAB_H

#include <stdbool.h>
#include <stdint.h>

#include "kv/memory.h"

#define SLAB_UNIT    32u
#define SLAB_CLASSES 12u
#define SLAB_MAX     (SLAB_UNIT << (SLAB_CLASSES - 1))
#define SLAB_BATCH   64u
#define SLAB_NEAR    (3 * SLAB_BATCH)
/* The largest segment: 31 bits of units. */
#define SLAB_SEGMENT_MAX ((uint64_t)SLAB_UNIT << 31)

struct slab_class {
	uint32_t near[SLAB_NEAR];
	uint32_t near_count;
	uint32_t far_count;
	uint64_t far; /* address of the far stack */
};

struct slab {
	struct kv_memory *mem;
	uint64_t base;	/* address of the segment; place 0 is never allocated */
	uint64_t limit; /* bytes that may be in use, including free slabs */
	uint64_t top;	/* bytes that were ever in use */
	uint64_t used;	/* bytes in slabs that are not free */
	uint64_t allocs, frees, splits, merges;
	uint64_t merged_at; /* `frees` at the last merge because of full memory */
	uint64_t accesses;  /* of the stacks */
	struct slab_class classes[SLAB_CLASSES];
};

static inline uint32_t slab_size(unsigned class)
{
	return SLAB_UNIT << class;
}

/* Returns the smallest class for `bytes`, which is 1 to SLAB_MAX. */
static inline unsigned slab_class_of(uint32_t bytes)
{
	return bytes <= SLAB_UNIT ? 0 : log2_floor(bytes - 1) - 4;
}

/* Returns the most bytes that the far stacks of a segment of `bytes` need. */
uint64_t slab_stack_bytes(uint64_t bytes);

/*
 * Initialises a segment at address `base`, which may grow to `reserve` bytes, a multiple of
 * SLAB_MAX. Its far stacks are at address `stacks`.
 */
void slab_init(struct slab *s, struct kv_memory *mem, uint64_t base, uint64_t reserve,
	       uint64_t limit, uint64_t stacks);

/* Returns a place (in units, never 0), or 0 if memory is full. */
uint32_t slab_alloc(struct slab *s, unsigned class);
void slab_free(struct slab *s, uint32_t place, unsigned class);

/*
 * Merges free slabs of all classes, from the smallest. Returns the number of pairs that were
 * merged. Allocates memory for the sort, and does not merge if there is none.
 */
uint64_t slab_merge(struct slab *s);

static inline uint64_t slab_addr(const struct slab *s, uint32_t place)
{
	return s->base + (uint64_t)place * SLAB_UNIT;
}

#endif
