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
 * If both are empty, a larger slab is split, or unused memory is taken if there is no larger slab.
 * When memory runs out, a merge begins (merge.c). It continues in small steps, one in each later
 * call.
 */
#ifndef ROOST_KV_SLAB_H
#define ROOST_KV_SLAB_H

#include <stdatomic.h>
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
/* Bits of a block of the bitmap of a merge. */
#define SLAB_BLOCK 4096u

struct slab_class {
	uint32_t near[SLAB_NEAR];
	uint32_t near_count;
	uint32_t far_count;
	uint64_t far; /* address of the far stack */
};

/* A merge in progress. It merges one class after the other. */
struct slab_merge {
	bool running, sweeping;
	unsigned class;
	uint64_t marks;	 /* address of a bitmap: a bit for each slab of the class */
	uint64_t marked; /* bits that are set */
	uint32_t from;	 /* word of `blocks` at which the sweep continues */
	/* a bit for each block of the bitmap that has a bit */
	uint64_t blocks[SLAB_SEGMENT_MAX / SLAB_UNIT / SLAB_BLOCK / 64];
};

struct slab {
	struct kv_memory *mem;
	uint64_t base;	/* address of the segment; place 0 is never allocated */
	uint64_t limit; /* bytes that may be in use, including free slabs */
	uint64_t top;	/* bytes that were ever in use */
	uint64_t reserve;
	_Atomic uint64_t end; /* `top`, for kv_prepare() */
	uint64_t ready;	      /* used by kv_prepare() */
	uint64_t used;	      /* bytes in slabs that are not free */
	uint64_t allocs, frees, splits, merges;
	uint64_t merged_at; /* `frees` when the last merge began */
	uint64_t accesses;  /* accesses of the stacks */
	struct slab_class classes[SLAB_CLASSES];
	struct slab_merge merge;
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

/* Returns the most bytes that the stacks and the bitmap of a segment of `bytes` need. */
uint64_t slab_stack_bytes(uint64_t bytes);

/*
 * Initialises a segment at address `base`, which may grow to `reserve` bytes, a multiple of
 * SLAB_MAX. Its far stacks and its bitmap are at address `stacks`.
 */
void slab_init(struct slab *s, struct kv_memory *mem, uint64_t base, uint64_t reserve,
	       uint64_t limit, uint64_t stacks);

/*
 * Returns a place (in units, never 0), or 0 if memory is full. Memory that is free in smaller slabs
 * counts as full until a merge has found it.
 */
uint32_t slab_alloc(struct slab *s, unsigned class);
void slab_free(struct slab *s, uint32_t place, unsigned class);

/* Adds a free slab to the stack of its class. */
void slab_push(struct slab *s, unsigned class, uint32_t place);

/* Starts a merge if no merge is running. */
void slab_merge_start(struct slab *s);
/*
 * Performs one step of the running merge, which moves at most 256 slabs. Returns false if no merge
 * is running.
 */
bool slab_merge_step(struct slab *s);
/* Gives back at least one of the slabs that the merge of this class has taken, if there is one. */
void slab_merge_give(struct slab *s, unsigned class);

static inline uint64_t slab_addr(const struct slab *s, uint32_t place)
{
	return s->base + (uint64_t)place * SLAB_UNIT;
}

#endif
