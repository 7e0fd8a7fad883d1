/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Pieces of random sizes keep their bytes and do not overlap; freed memory is used again, and is
 * returned to the system. The address sanitizer has no chunks, so tests of chunks are skipped
 * there.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "base/arena.h"
#include "base/rng.h"

#define SIZE 1536 /* of the tests that look at one size */
#define MANY 7000 /* of these fill several chunks */

static uint32_t chunks(const struct arena *a)
{
	uint32_t n = 0;

	for (unsigned i = 0; i < ARENA_SIZES; i++)
		n += a->chunks[i];
	return n;
}

static void take_many(struct arena *a, void **p, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		p[i] = arena_alloc(a, SIZE);
		assert_non_null(p[i]);
		memset(p[i], 1, SIZE);
	}
}

static void free_many(struct arena *a, void **p, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		arena_free(a, p[i], SIZE);
}

/* Skips the rest of the test if there are no chunks. */
static void need_chunks(void)
{
	struct arena a;
	void *p;
	uint32_t n;

	arena_init(&a);
	take_many(&a, &p, 1);
	n = chunks(&a);
	free_many(&a, &p, 1);
	arena_fini(&a);
	if (!n) {
		print_message(
			"SKIPPED: under the address sanitizer there are no chunks; the other builds run it\n");
		skip();
	}
}

/* ---- contents ---- */

#define SLOTS 8000

struct slot {
	uint8_t *p;
	size_t size;
	uint64_t mark;
};

static uint8_t byte_at(const struct slot *s, size_t i)
{
	return (uint8_t)(s->mark >> i % 8 * 8);
}

static void fill(const struct slot *s)
{
	for (size_t i = 0; i < s->size; i++)
		s->p[i] = byte_at(s, i);
}

static void check(const struct slot *s)
{
	for (size_t i = 0; i < s->size; i++)
		if (s->p[i] != byte_at(s, i))
			fail_msg("byte %zu of a piece of %zu has changed", i, s->size);
}

static size_t any_size(struct rng *r)
{
	static const size_t often[] = {64, 128, SIZE, 2048, 4096};

	switch (rng_below(r, 8)) {
	case 0:
		return 1 + rng_below(r, ARENA_LARGEST);
	case 1:
		return rng_below(r, 50) ? 1 + rng_below(r, 200)
					: ARENA_LARGEST + 1 + rng_below(r, 100000);
	default:
		return often[rng_below(r, ARRAY_SIZE(often))];
	}
}

static void random_sizes(void **state)
{
	struct slot *slots = calloc(SLOTS, sizeof(*slots));
	struct arena a;
	struct rng r;

	rng_seed(&r, 11);
	arena_init(&a);
	for (unsigned round = 0; round < 50000; round++) {
		/* Nearly all pieces are taken, then nearly none, in turn. */
		unsigned in_use = round / 10000 % 2 ? SLOTS / 50 : SLOTS;
		struct slot *s = &slots[rng_below(&r, SLOTS)];

		if (s->p) {
			check(s);
			arena_free(&a, s->p, s->size);
			s->p = NULL;
		}
		if (s >= slots + in_use)
			continue;
		s->size = any_size(&r);
		s->mark = rng_u64(&r);
		s->p = arena_alloc(&a, s->size);
		assert_non_null(s->p);
		assert_int_equal((uintptr_t)s->p % CACHE_LINE, 0);
		fill(s);
	}
	for (unsigned i = 0; i < SLOTS; i++)
		if (slots[i].p) {
			check(&slots[i]);
			arena_free(&a, slots[i].p, slots[i].size);
		}
	arena_free(&a, NULL, SIZE);
	arena_free(&a, NULL, ARENA_LARGEST + 1);
	arena_fini(&a);
	free(slots);
}

/* Pieces of any size end at the end of a chunk, or before. */
static void whole_chunks(void **state)
{
	static void *p[40000];
	struct arena a;

	need_chunks();
	for (size_t size = CACHE_LINE; size <= ARENA_LARGEST; size += CACHE_LINE) {
		unsigned n = 0;

		arena_init(&a);
		for (; chunks(&a) < 2; n++) {
			assert_in_range(n, 0, ARRAY_SIZE(p) - 1);
			p[n] = arena_alloc(&a, size);
			assert_non_null(p[n]);
			assert_int_equal((uintptr_t)p[n] / MEM_HUGE_PAGE,
					 ((uintptr_t)p[n] + size - 1) / MEM_HUGE_PAGE);
		}
		assert_in_range(n * size, MEM_HUGE_PAGE / 2, MEM_HUGE_PAGE + size);
		while (n)
			arena_free(&a, p[--n], size);
		arena_fini(&a);
	}
}

/* ---- memory in use ---- */

/* Returns the number of mapped chunks of these pieces. */
static unsigned mapped(void **p, unsigned n)
{
	uintptr_t seen[MANY * SIZE / MEM_HUGE_PAGE + 3];
	unsigned num_seen = 0, num = 0;
	unsigned char vec;

	for (unsigned i = 0, k; i < n; i++) {
		uintptr_t chunk = ALIGN_DOWN((uintptr_t)p[i], MEM_HUGE_PAGE);

		for (k = 0; k < num_seen && seen[k] != chunk; k++)
			;
		if (k < num_seen)
			continue;
		assert_in_range(num_seen, 0, ARRAY_SIZE(seen) - 1);
		seen[num_seen++] = chunk;
		num += mincore((void *)chunk, mem_page_size(), &vec) == 0;
	}
	return num;
}

/*
 * Memory that is freed in any order is used again, and all chunks but one are unmapped; the last
 * one is unmapped at the end.
 */
static void goes_round(void **state)
{
	static void *p[MANY];
	struct arena a;
	uint32_t top;
	struct rng r;

	need_chunks();
	rng_seed(&r, 12);
	arena_init(&a);
	take_many(&a, p, MANY);
	top = chunks(&a);
	assert_in_range(top, 2, MANY * SIZE / MEM_HUGE_PAGE + 2);
	assert_int_equal(mapped(p, MANY), top);
	for (unsigned round = 0; round < 20; round++) {
		unsigned n = round ? (unsigned)rng_below(&r, MANY) : MANY;

		for (unsigned i = MANY - 1; i; i--) {
			unsigned k = (unsigned)rng_below(&r, i + 1);
			void *t = p[i];

			p[i] = p[k];
			p[k] = t;
		}
		free_many(&a, p, n);
		take_many(&a, p, n);
		assert_int_equal(chunks(&a), top);
	}
	free_many(&a, p, MANY);
	assert_int_equal(chunks(&a), 1);
	assert_int_equal(mapped(p, MANY), 1);
	arena_fini(&a);
	assert_int_equal(mapped(p, MANY), 0);
}

/* Memory that is still in use when the arena ends stays as it is. */
static void outlives(void **state)
{
	struct arena a;
	void *p[3];

	need_chunks();
	arena_init(&a);
	take_many(&a, p, 2);
	p[2] = arena_alloc(&a, 64);
	arena_free(&a, p[0], SIZE);
	arena_free(&a, p[2], 64);
	arena_fini(&a);
	assert_int_equal(mapped(p + 1, 1), 1);
	assert_int_equal(mapped(p + 2, 1), 0);
	for (unsigned i = 0; i < SIZE; i++)
		assert_int_equal(((char *)p[1])[i], 1);
	mem_free_pages((void *)ALIGN_DOWN((uintptr_t)p[1], MEM_HUGE_PAGE), MEM_HUGE_PAGE);
}

/* A caller that takes and frees one object repeatedly, where a new chunk begins, maps it once. */
static void no_flutter(void **state)
{
	static void *p[MANY];
	struct arena a;
	unsigned n;
	void *other;

	need_chunks();
	arena_init(&a);
	for (n = 0; chunks(&a) < 2; n++)
		take_many(&a, p + n, 1);
	other = arena_alloc(&a, 64);
	for (unsigned i = 0; i < 10; i++) {
		arena_free(&a, p[n - 1], SIZE);
		assert_int_equal(chunks(&a), 3);
		take_many(&a, p + n - 1, 1);
		assert_int_equal(chunks(&a), 3);
	}
	/* Of two chunks with space, the empty one is unmapped. */
	arena_free(&a, p[0], SIZE);
	arena_free(&a, p[n - 1], SIZE);
	assert_int_equal(chunks(&a), 2);
	free_many(&a, p + 1, n - 2);
	arena_free(&a, other, 64);
	arena_fini(&a);
}

/* A few objects do not use a huge page: only the pages that they touch are resident. */
static void few_cost_little(void **state)
{
	static unsigned char resident[MEM_HUGE_PAGE / 4096];
	size_t page = mem_page_size(), pages = 0;
	struct arena a;
	void *p[10];

	need_chunks();
	arena_init(&a);
	take_many(&a, p, 10);
	assert_int_equal(mincore((void *)ALIGN_DOWN((uintptr_t)p[0], MEM_HUGE_PAGE), MEM_HUGE_PAGE,
				 resident),
			 0);
	for (size_t i = 0; i < MEM_HUGE_PAGE / page; i++)
		pages += resident[i] & 1;
	assert_in_range(pages * page, 10 * SIZE, 11 * SIZE + 2 * page);
	free_many(&a, p, 10);
	arena_fini(&a);
}

static void no_memory(void **state)
{
	struct rlimit old, low;
	struct arena a;
	void *p[2];

	need_chunks();
	arena_init(&a);
	assert_int_equal(getrlimit(RLIMIT_AS, &old), 0);
	low = old;
	low.rlim_cur = 1 << 20;
	assert_int_equal(setrlimit(RLIMIT_AS, &low), 0);
	p[0] = arena_alloc(&a, SIZE);
	assert_int_equal(setrlimit(RLIMIT_AS, &old), 0);
	assert_null(p[0]);
	take_many(&a, p, 2);
	free_many(&a, p, 2);
	arena_fini(&a);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(random_sizes), cmocka_unit_test(whole_chunks),
		cmocka_unit_test(goes_round),	cmocka_unit_test(no_flutter),
		cmocka_unit_test(outlives),	cmocka_unit_test(few_cost_little),
		cmocka_unit_test(no_memory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
