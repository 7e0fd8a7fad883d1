/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Memory for thousands of small objects that are all in use at once: pieces lie close together in
 * huge pages, so that a walk over them misses the caches only, not the TLB as well.
 *
 *	size --> room[] --> chunk of 2 MiB: | header | piece | piece | ... pieces of this one size
 *
 * A chunk is aligned to its size, so a piece's address names its chunk. The first of a size begins
 * with ordinary pages, resident as far as they are used: few objects cost what they are. When it is
 * full the kernel may make a huge page of it. Further ones are huge pages from the start, of which
 * one that is just begun is resident whole. What is freed is used again for the same size. An empty
 * chunk goes back when another has room.
 *
 * Pieces of more than a page come from the allocator: of these an idle object may touch the first
 * page alone, and in a huge page all would be resident.
 *
 * No locks: one thread at a time.
 */
#ifndef ROOST_BASE_ARENA_H
#define ROOST_BASE_ARENA_H

#include "base/list.h"
#include "base/mem.h"

#define ARENA_LARGEST 4096 /* bytes of a piece that lies in a chunk */
#define ARENA_SIZES   (ARENA_LARGEST / CACHE_LINE / 2 + 1)

struct arena {
	struct list_head room[ARENA_SIZES]; /* by size: chunks with free pieces */
	uint32_t chunks[ARENA_SIZES];	    /* all there are */
};

void arena_init(struct arena *a);
/* Pieces that are in use stay where they are, for good. */
void arena_fini(struct arena *a);

/* `size` bytes, aligned to a cache line, of any content. NULL: no memory. 0 is no size. */
void *arena_alloc(struct arena *a, size_t size);
/* `size` is that of arena_alloc(). NULL is allowed. */
void arena_free(struct arena *a, void *p, size_t size);

#endif
