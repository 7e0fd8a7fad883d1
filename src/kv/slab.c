/* SPDX-License-Identifier: BSD-2-Clause */
#include "kv/slab.h"

#include "base/assert.h"

#include <stddef.h>
#include <string.h>

/* Steps of a merge in an allocation that finds no memory. */
#define MERGE_STEPS 16u

uint64_t slab_stack_bytes(uint64_t bytes)
{
	uint64_t sum = 0;

	for (unsigned c = 0; c < SLAB_CLASSES; c++)
		sum += ALIGN_UP(bytes / slab_size(c) * sizeof(uint32_t), 64);
	return sum + ALIGN_UP(bytes / SLAB_UNIT / 8, SLAB_BLOCK / 8);
}

void slab_init(struct slab *s, struct kv_memory *mem, uint64_t base, uint64_t reserve,
	       uint64_t limit, uint64_t stacks)
{
	memset(s, 0, sizeof(*s));
	s->mem = mem;
	s->base = base;
	s->limit = limit;
	s->reserve = reserve;
	for (unsigned c = 0; c < SLAB_CLASSES; c++) {
		s->classes[c].far = stacks;
		stacks += ALIGN_UP(reserve / slab_size(c) * sizeof(uint32_t), 64);
	}
	s->merge.marks = stacks;
	kv_memory_small(mem, s->classes[0].far, slab_stack_bytes(reserve));
}

static void push_far(struct slab *s, struct slab_class *k, const uint32_t *entries, uint32_t n)
{
	uint64_t at = k->far + (uint64_t)k->far_count * sizeof(uint32_t);

	memcpy(kv_write(s->mem, at, n * sizeof(uint32_t)), entries, n * sizeof(uint32_t));
	s->accesses++;
	k->far_count += n;
}

static void pull_far(struct slab *s, struct slab_class *k)
{
	uint32_t n = k->far_count < SLAB_BATCH ? k->far_count : SLAB_BATCH;

	k->far_count -= n;
	memcpy(k->near + k->near_count,
	       kv_read(s->mem, k->far + (uint64_t)k->far_count * sizeof(uint32_t),
		       n * sizeof(uint32_t)),
	       n * sizeof(uint32_t));
	s->accesses++;
	k->near_count += n;
}

/* The oldest entries move to the far stack: the top entries were used last and are in the cache. */
void slab_push(struct slab *s, unsigned class, uint32_t place)
{
	struct slab_class *k = &s->classes[class];

	if (k->near_count == SLAB_NEAR) {
		push_far(s, k, k->near, SLAB_BATCH);
		k->near_count -= SLAB_BATCH;
		memmove(k->near, k->near + SLAB_BATCH, k->near_count * sizeof(uint32_t));
	}
	k->near[k->near_count++] = place;
}

/*
 * Makes the part of the merge's bitmap present that belongs to the next block, which has no bit
 * there. A step of a merge sets bits at random places, and would otherwise take a page fault for
 * each. With a far tier a line that was never written is not read.
 */
static void touch_marks(struct slab *s)
{
	if (!s->mem->near)
		*(volatile uint8_t *)(s->mem->base + s->merge.marks + s->top / SLAB_UNIT / 8) = 0;
}

static bool add_block(struct slab *s)
{
	if (s->top + SLAB_MAX > s->limit)
		return false;
	touch_marks(s);
	/* Place 0 means none, so the first unit of the first block is not used. */
	if (s->top == 0) {
		for (unsigned c = 0; c + 1 < SLAB_CLASSES; c++)
			slab_push(s, c, 1u << c);
	} else {
		slab_push(s, SLAB_CLASSES - 1, (uint32_t)(s->top / SLAB_UNIT));
	}
	s->top += SLAB_MAX;
	atomic_store_explicit(&s->end, s->top, memory_order_relaxed);
	kv_memory_grows(s->mem, s->top - SLAB_MAX, s->top);
	return true;
}

static bool ensure_available(struct slab *s, unsigned class)
{
	struct slab_class *k = &s->classes[class];

	if (!k->near_count && k->far_count)
		pull_far(s, k);
	if (!k->near_count)
		slab_merge_give(s, class);
	return k->near_count;
}

/* Halves the smallest larger slab, down to `class`. */
static bool split(struct slab *s, unsigned class)
{
	unsigned from = class + 1;
	uint32_t place;

	while (from < SLAB_CLASSES && !ensure_available(s, from))
		from++;
	if (from >= SLAB_CLASSES)
		return false;
	place = s->classes[from].near[--s->classes[from].near_count];
	for (; from > class; from--) {
		slab_push(s, from - 1, place + (1u << (from - 1)));
		s->splits++;
	}
	slab_push(s, class, place);
	return true;
}

static bool refill(struct slab *s, unsigned class)
{
	do {
		if (ensure_available(s, class) || split(s, class))
			return true;
	} while (add_block(s));
	return false;
}

/* Merges, in bounded time, until there is a free slab. */
static bool merge_for(struct slab *s, unsigned class)
{
	if (!s->merge.running) {
		/* Do not merge again before enough slabs were freed since the last merge began. */
		if (s->frees - s->merged_at < SLAB_BATCH || s->top - s->used < slab_size(class))
			return false;
		slab_merge_start(s);
	}
	for (unsigned i = 0; i < MERGE_STEPS && slab_merge_step(s); i++)
		if (ensure_available(s, class) || split(s, class))
			return true;
	return false;
}

/* Saves the state of the slabs, for an operation that is undone and runs again. */
static void save(struct slab *s)
{
	kv_save(s->mem, s, offsetof(struct slab, merge.blocks));
}

uint32_t slab_alloc(struct slab *s, unsigned class)
{
	struct slab_class *k = &s->classes[class];

	save(s);
	slab_merge_step(s);
	if (unlikely(!ensure_available(s, class)) && !refill(s, class) && !merge_for(s, class))
		return 0;
	s->allocs++;
	s->used += slab_size(class);
	return k->near[--k->near_count];
}

void slab_free(struct slab *s, uint32_t place, unsigned class)
{
	save(s);
	slab_merge_step(s);
	s->frees++;
	ROOST_ASSERT(s->used >= slab_size(class));
	s->used -= slab_size(class);
	slab_push(s, class, place);
}
