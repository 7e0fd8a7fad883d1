/* SPDX-License-Identifier: BSD-2-Clause */
#include <stdlib.h>
#include <sys/mman.h>

#include "base/arena.h"

#include "base/assert.h"

/*
 * Under the address sanitizer all pieces come from the allocator. The sanitizer then knows where
 * each piece was allocated and freed, checks its ends, and delays the reuse of freed pieces.
 * Poisoning the free pieces of a chunk would show fewer errors, and only until a piece is used
 * again.
 */
#if defined(__SANITIZE_ADDRESS__)
#define IN_CHUNKS 0
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define IN_CHUNKS 0
#endif
#endif
#ifndef IN_CHUNKS
#define IN_CHUNKS ARENA_LARGEST
#endif

struct piece {
	struct piece *next;
};

/* The first bytes of a chunk. */
struct chunk {
	struct list_head link; /* in partial[], while it has a free piece */
	struct piece *freed;
	uint32_t used, fresh; /* pieces in use; index after the last piece that was ever used */
	bool small_pages;
} CACHE_ALIGNED;

/*
 * Returns an odd number of cache lines, so that the same field of all pieces is spread over all
 * sets of a cache. With pieces of 2 KiB it would be in one set of 32, and a cache would hold few of
 * the fields.
 */
static unsigned lines_of(size_t size)
{
	return (unsigned)((size + CACHE_LINE - 1) / CACHE_LINE) | 1;
}

static struct piece *piece_at(struct chunk *c, unsigned lines, uint32_t i)
{
	return (struct piece *)((char *)(c + 1) + (size_t)i * lines * CACHE_LINE);
}

static bool full(const struct chunk *c, unsigned lines)
{
	return !c->freed && c->fresh == (MEM_HUGE_PAGE - sizeof(*c)) / (lines * CACHE_LINE);
}

void arena_init(struct arena *a)
{
	for (unsigned i = 0; i < ARENA_SIZES; i++) {
		list_init(&a->partial[i]);
		a->chunks[i] = 0;
	}
}

void arena_fini(struct arena *a)
{
	for (unsigned i = 0; i < ARENA_SIZES; i++)
		while (!list_empty(&a->partial[i])) {
			struct chunk *c = list_first_entry(&a->partial[i], struct chunk, link);

			list_del(&c->link);
			if (!c->used)
				mem_free_pages(c, MEM_HUGE_PAGE);
		}
}

static struct chunk *add_chunk(struct arena *a, unsigned kind)
{
	struct chunk *c = mem_alloc_pages(MEM_HUGE_PAGE);

	if (!c)
		return NULL;
	if (!a->chunks[kind]++) { /* before the memory is touched */
		madvise(c, MEM_HUGE_PAGE, MADV_NOHUGEPAGE);
		c->small_pages = true;
	}
	list_add(&c->link, &a->partial[kind]);
	return c;
}

/*
 * Linux makes the huge page later, because this is only advice. MADV_COLLAPSE would make it at
 * once, but takes milliseconds, during which all PUs would stop.
 */
static void make_huge(struct chunk *c)
{
	c->small_pages = false;
	madvise(c, MEM_HUGE_PAGE, MADV_HUGEPAGE);
}

void *arena_alloc(struct arena *a, size_t size)
{
	unsigned lines = lines_of(size), kind = lines / 2;
	struct piece *p;
	struct chunk *c;

	if (size > IN_CHUNKS)
		return aligned_alloc(CACHE_LINE, ALIGN_UP(size, CACHE_LINE));
	if (list_empty(&a->partial[kind]) && !add_chunk(a, kind))
		return NULL;
	c = list_first_entry(&a->partial[kind], struct chunk, link);
	p = c->freed;
	if (p)
		c->freed = p->next;
	else
		p = piece_at(c, lines, c->fresh++);
	c->used++;
	if (full(c, lines)) {
		list_del(&c->link);
		if (c->small_pages)
			make_huge(c);
	}
	return p;
}

void arena_free(struct arena *a, void *p, size_t size)
{
	unsigned lines = lines_of(size), kind = lines / 2;
	struct chunk *c = (struct chunk *)ALIGN_DOWN((uintptr_t)p, MEM_HUGE_PAGE);
	struct piece *piece = p;

	if (size > IN_CHUNKS || !p) {
		free(p);
		return;
	}
	if (full(c, lines))
		list_add_tail(&c->link, &a->partial[kind]);
	ROOST_ASSERT(c->used);
	piece->next = c->freed;
	c->freed = piece;
	if (--c->used == 0 && a->partial[kind].next != a->partial[kind].prev) {
		list_del(&c->link);
		a->chunks[kind]--;
		mem_free_pages(c, MEM_HUGE_PAGE);
	}
}
