/* SPDX-License-Identifier: BSD-2-Clause */
#include "kv/slab.h"

#include <stdlib.h>
#include <string.h>

uint64_t slab_stack_bytes(uint64_t bytes)
{
	uint64_t sum = 0;

	for (unsigned c = 0; c < SLAB_CLASSES; c++)
		sum += ALIGN_UP(bytes / slab_size(c) * sizeof(uint32_t), 64);
	return sum;
}

void slab_init(struct slab *s, struct kv_memory *mem, uint64_t base, uint64_t reserve,
	       uint64_t limit, uint64_t stacks)
{
	memset(s, 0, sizeof(*s));
	s->mem = mem;
	s->base = base;
	s->limit = limit;
	for (unsigned c = 0; c < SLAB_CLASSES; c++) {
		s->classes[c].far = stacks;
		stacks += ALIGN_UP(reserve / slab_size(c) * sizeof(uint32_t), 64);
	}
}

static void push_far(struct slab *s, struct slab_class *k, const uint32_t *entries, uint32_t n)
{
	uint64_t at = k->far + (uint64_t)k->far_count * sizeof(uint32_t);

	memcpy(kv_write(s->mem, at), entries, n * sizeof(uint32_t));
	s->accesses++;
	k->far_count += n;
}

static void pull_far(struct slab *s, struct slab_class *k)
{
	uint32_t n = k->far_count < SLAB_BATCH ? k->far_count : SLAB_BATCH;

	k->far_count -= n;
	memcpy(k->near + k->near_count,
	       kv_read(s->mem, k->far + (uint64_t)k->far_count * sizeof(uint32_t)),
	       n * sizeof(uint32_t));
	s->accesses++;
	k->near_count += n;
}

/* The oldest entries move to the far stack: the top entries were used last and are in the cache. */
static void push(struct slab *s, unsigned class, uint32_t place)
{
	struct slab_class *k = &s->classes[class];

	if (k->near_count == SLAB_NEAR) {
		push_far(s, k, k->near, SLAB_BATCH);
		k->near_count -= SLAB_BATCH;
		memmove(k->near, k->near + SLAB_BATCH, k->near_count * sizeof(uint32_t));
	}
	k->near[k->near_count++] = place;
}

static bool fresh(struct slab *s)
{
	if (s->top + SLAB_MAX > s->limit)
		return false;
	/* Place 0 means none, so the first unit of the first block is not used. */
	if (s->top == 0) {
		for (unsigned c = 0; c + 1 < SLAB_CLASSES; c++)
			push(s, c, 1u << c);
	} else {
		push(s, SLAB_CLASSES - 1, (uint32_t)(s->top / SLAB_UNIT));
	}
	s->top += SLAB_MAX;
	return true;
}

static bool has(struct slab *s, unsigned class)
{
	struct slab_class *k = &s->classes[class];

	if (!k->near_count && k->far_count)
		pull_far(s, k);
	return k->near_count;
}

/* Halves the smallest larger slab, down to `class`. */
static bool split(struct slab *s, unsigned class)
{
	unsigned from = class + 1;
	uint32_t place;

	while (from < SLAB_CLASSES && !has(s, from))
		from++;
	if (from >= SLAB_CLASSES)
		return false;
	place = s->classes[from].near[--s->classes[from].near_count];
	for (; from > class; from--) {
		push(s, from - 1, place + (1u << (from - 1)));
		s->splits++;
	}
	push(s, class, place);
	return true;
}

static bool refill(struct slab *s, unsigned class)
{
	do {
		if (has(s, class) || split(s, class))
			return true;
	} while (fresh(s));
	return false;
}

uint32_t slab_alloc(struct slab *s, unsigned class)
{
	struct slab_class *k = &s->classes[class];

	if (unlikely(!has(s, class)) && !refill(s, class)) {
		/* Do not merge again before enough slabs were freed since the last merge. */
		if (s->frees - s->merged_at < SLAB_BATCH || s->top - s->used < slab_size(class))
			return 0;
		s->merged_at = s->frees;
		if (!slab_merge(s) || !(has(s, class) || split(s, class)))
			return 0;
	}
	s->allocs++;
	s->used += slab_size(class);
	return k->near[--k->near_count];
}

void slab_free(struct slab *s, uint32_t place, unsigned class)
{
	s->frees++;
	s->used -= slab_size(class);
	push(s, class, place);
}

/* Sorts by place, least significant byte first. The result is in `a`. */
static void radix_sort(uint32_t *a, uint32_t *b, uint32_t n)
{
	for (unsigned shift = 0; shift < 32; shift += 8) {
		uint32_t count[257] = {0}, *swap;

		for (uint32_t i = 0; i < n; i++)
			count[(a[i] >> shift & 0xff) + 1]++;
		for (unsigned i = 0; i < 256; i++)
			count[i + 1] += count[i];
		for (uint32_t i = 0; i < n; i++)
			b[count[a[i] >> shift & 0xff]++] = a[i];
		swap = a;
		a = b;
		b = swap;
	}
}

static uint32_t collect(struct slab *s, struct slab_class *k, uint32_t *out)
{
	uint32_t n = 0;

	for (;;) {
		memcpy(out + n, k->near, k->near_count * sizeof(uint32_t));
		n += k->near_count;
		k->near_count = 0;
		if (!k->far_count)
			return n;
		pull_far(s, k);
	}
}

static uint64_t merge_class(struct slab *s, unsigned class)
{
	struct slab_class *k = &s->classes[class];
	uint32_t n = k->near_count + k->far_count, step = 1u << class;
	uint64_t merged = 0;
	uint32_t *a;

	if (n < 2)
		return 0;
	a = malloc(2 * n * sizeof(uint32_t));
	if (!a)
		return 0;
	collect(s, k, a);
	radix_sort(a, a + n, n);
	for (uint32_t i = 0; i < n; i++) {
		if (i + 1 < n && !(a[i] & step) && a[i + 1] == a[i] + step) {
			push(s, class + 1, a[i]);
			merged++;
			i++;
		} else {
			push(s, class, a[i]);
		}
	}
	free(a);
	s->merges += merged;
	return merged;
}

uint64_t slab_merge(struct slab *s)
{
	uint64_t merged = 0;

	for (unsigned c = 0; c + 1 < SLAB_CLASSES; c++)
		merged += merge_class(s, c);
	return merged;
}
