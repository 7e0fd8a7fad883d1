/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Memory for thousands of small objects that are all in use at once. The pieces lie close together
 * in huge pages, so a walk over them misses the caches only, not the TLB.
 *
 *	size --> partial[] --> chunk of 2 MiB: | header | piece | piece | ... pieces of one size
 *
 * A chunk is aligned to its size, so the address of a piece gives its chunk. The first chunk of a
 * size begins with ordinary pages, which are resident as far as they are used: few objects cost
 * little memory. When it is full, Linux may make a huge page of it. Further chunks are huge
 * pages from the start; a chunk that has just begun is resident as a whole. Freed pieces are used
 * again for the same size. An empty chunk is returned when another chunk has space.
 *
 * Pieces of more than a page come from the allocator, because an idle object may touch only the
 * first of its pages, and in a huge page all of them would be resident.
 *
 * There are no locks: one thread at a time.
 */
#ifndef ROOST_BASE_ARENA_H
#define ROOST_BASE_ARENA_H

#include "base/list.h"
#include "base/mem.h"

#define ARENA_LARGEST 4096 /* bytes of the largest piece in a chunk */
#define ARENA_SIZES   (ARENA_LARGEST / CACHE_LINE / 2 + 1)

struct arena {
	struct list_head partial[ARENA_SIZES]; /* by size: chunks with free pieces */
	uint32_t chunks[ARENA_SIZES];	       /* number of all chunks */
};

/* Makes an empty arena. */
void arena_init(struct arena *a);
/* Ends the arena. Pieces in use stay valid and are never freed. */
void arena_fini(struct arena *a);

/*
 * Returns `size` bytes, aligned to a cache line; the contents are undefined. `size` must not be 0.
 * Returns NULL if there is no memory.
 */
void *arena_alloc(struct arena *a, size_t size);
/* Frees a piece. `size` is the one that arena_alloc() got. `p` may be NULL. */
void arena_free(struct arena *a, void *p, size_t size);

#endif
