/* SPDX-License-Identifier: BSD-2-Clause */
/* The slab allocator: slabs do not overlap or get lost, and the stacks cost little. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/rng.h"
#include "../common/allocations.h"
#include "kv/slab.h"

#define SEGMENT	   (16ull << 20)
#define HUGE_PAGES "/sys/kernel/mm/transparent_hugepage"

struct rig {
	struct kv_memory mem;
	struct slab s;
	uint8_t *taken; /* a byte for each unit */
};

static void make(struct rig *r, uint64_t limit)
{
	assert_int_equal(kv_memory_open(&r->mem, SEGMENT + slab_stack_bytes(SEGMENT)), 0);
	slab_init(&r->s, &r->mem, 0, SEGMENT, limit, SEGMENT);
	r->taken = calloc(SEGMENT / SLAB_UNIT, 1);
	assert_non_null(r->taken);
}

static void drop(struct rig *r)
{
	free(r->taken);
	kv_memory_close(&r->mem);
}

static uint32_t take(struct rig *r, unsigned class)
{
	uint32_t place = slab_alloc(&r->s, class);

	if (!place)
		return 0;
	assert_int_equal(place % (1u << class), 0);
	assert_true(slab_addr(&r->s, place) + slab_size(class) <= r->s.limit);
	for (uint32_t i = 0; i < 1u << class; i++) {
		assert_int_equal(r->taken[place + i], 0);
		r->taken[place + i] = 1;
	}
	return place;
}

static void give(struct rig *r, uint32_t place, unsigned class)
{
	for (uint32_t i = 0; i < 1u << class; i++) {
		assert_int_equal(r->taken[place + i], 1);
		r->taken[place + i] = 0;
	}
	slab_free(&r->s, place, class);
}

static void a_class_is_the_smallest_that_holds(void **state)
{
	assert_int_equal(slab_class_of(1), 0);
	assert_int_equal(slab_class_of(32), 0);
	for (unsigned c = 1; c < SLAB_CLASSES; c++) {
		assert_int_equal(slab_class_of(slab_size(c)), c);
		assert_int_equal(slab_class_of(slab_size(c - 1) + 1), c);
	}
}

static void random_slabs_never_overlap(void **state)
{
	enum { LIVE = 20000 };
	static struct {
		uint32_t place;
		unsigned class;
	} live[LIVE];
	struct rig r;
	struct rng rng;
	uint64_t used = 0, failed = 0;

	rng_seed(&rng, 7);
	make(&r, SEGMENT / 2);
	memset(live, 0, sizeof(live));
	for (unsigned n = 0; n < 400000; n++) {
		unsigned i = (unsigned)rng_below(&rng, LIVE);
		unsigned class = (unsigned)rng_below(&rng, rng_below(&rng, SLAB_CLASSES) + 1);

		if (live[i].place) {
			give(&r, live[i].place, live[i].class);
			used -= slab_size(live[i].class);
			live[i].place = 0;
			continue;
		}
		live[i].class = class;
		live[i].place = take(&r, class);
		failed += !live[i].place;
		used += live[i].place ? slab_size(class) : 0;
		assert_true(r.s.used == used);
	}
	assert_true(failed > 0 && r.s.merges > 0);
	drop(&r);
}

static void shuffle(struct rng *rng, uint32_t *places, uint32_t n)
{
	for (uint32_t i = n; i > 1; i--) {
		uint32_t k = (uint32_t)rng_below(rng, i), t = places[k];

		places[k] = places[i - 1];
		places[i - 1] = t;
	}
}

/* A segment of small slabs that are all free again can be allocated as largest slabs. */
static void free_neighbours_merge(void **state)
{
	uint32_t *places = calloc(SEGMENT / SLAB_UNIT, sizeof(*places)), n = 0, large = 0;
	struct rig r;
	struct rng rng;

	assert_non_null(places);
	rng_seed(&rng, 8);
	make(&r, 4 << 20);
	while ((places[n] = take(&r, 0)))
		n++;
	assert_int_equal(n, (4 << 20) / SLAB_UNIT - 1);
	assert_int_equal(slab_alloc(&r.s, 5), 0);
	shuffle(&rng, places, n);
	for (uint32_t i = 0; i < n; i++)
		give(&r, places[i], 0);
	slab_merge_start(&r.s);
	while (slab_merge_step(&r.s))
		;
	while (take(&r, SLAB_CLASSES - 1))
		large++;
	assert_int_equal(large, (4 << 20) / SLAB_MAX - 1); /* the first unit is not used */
	free(places);
	drop(&r);
}

/*
 * A merge of many slabs takes many calls, and none of them takes long or allocates. Meanwhile the
 * slabs that the merge has taken can be allocated.
 */
static void merges_come_in_small_steps(void **state)
{
	uint32_t n = 0, *places = calloc(SEGMENT / SLAB_UNIT, sizeof(*places)), large = 0;
	uint64_t before, most = 0, allocated;
	struct rig r;

	assert_non_null(places);
	make(&r, SEGMENT);
	while ((places[n] = take(&r, 0)))
		n++;
	for (uint32_t i = 0; i < n; i++)
		give(&r, places[i], 0);
	allocated = allocations;
	for (uint32_t i = 0; i < 100000 && !large; i++) {
		uint32_t place;

		before = r.s.accesses;
		place = take(&r, SLAB_CLASSES - 1);
		most = r.s.accesses - before > most ? r.s.accesses - before : most;
		large += place != 0;
		before = r.s.accesses;
		place = take(&r, 0);
		assert_true(place);
		give(&r, place, 0);
		most = r.s.accesses - before > most ? r.s.accesses - before : most;
	}
	print_message("at most %llu accesses in a call\n", (unsigned long long)most);
	assert_true(large == 1 && most < 5000);
	while (take(&r, SLAB_CLASSES - 1) || slab_merge_step(&r.s))
		;
	assert_true(allocations == allocated);
	assert_true(r.s.used >= SEGMENT - 2 * SLAB_MAX);
	free(places);
	drop(&r);
}

static long page_faults(void)
{
	struct rusage u;

	assert_int_equal(getrusage(RUSAGE_SELF, &u), 0);
	return u.ru_minflt;
}

/*
 * Returns whether memory has only small pages, whose first access is short: the mapping has the
 * flag "nh", or the kernel has no huge pages.
 */
static bool has_small_pages(const uint8_t *at)
{
	FILE *f = fopen("/proc/self/smaps", "r");
	char line[1000];
	bool in = false, small = false;

	assert_non_null(f);
	while (fgets(line, sizeof(line), f)) {
		unsigned long from, to;

		if (sscanf(line, "%lx-%lx ", &from, &to) == 2)
			in = (uintptr_t)at >= from && (uintptr_t)at < to;
		if (in && strncmp(line, "VmFlags:", 8) == 0)
			small = strstr(line, " nh") || access(HUGE_PAGES, F_OK);
	}
	fclose(f);
	return small;
}

/*
 * The free slabs are in random order, and no memory of stacks and bitmap has been used before. The
 * first access to a page takes long, so a step has few of them.
 */
static void steps_are_short_on_fresh_memory(void **state)
{
	enum { BYTES = 64 << 20, SLABS = BYTES / SLAB_UNIT };
	uint32_t *places = calloc(SLABS, sizeof(*places)), n = 0;
	uint64_t steps = 0, accesses = 0;
	long faults = 0, all;
	struct kv_memory mem;
	struct rng rng;
	struct slab s;

	assert_non_null(places);
	assert_int_equal(kv_memory_open(&mem, BYTES + slab_stack_bytes(BYTES)), 0);
	slab_init(&s, &mem, 0, BYTES, BYTES, BYTES);
	for (uint64_t at = BYTES; at < BYTES + slab_stack_bytes(BYTES); at += 1 << 20)
		assert_true(has_small_pages(mem.base + at));
	rng_seed(&rng, 11);
	while ((places[n] = slab_alloc(&s, 0)))
		n++;
	shuffle(&rng, places, n);
	for (uint32_t i = 0; i < n; i++)
		slab_free(&s, places[i], 0);
	slab_merge_start(&s);
	all = page_faults();
	for (bool more = true; more; steps++) {
		uint64_t before = s.accesses;
		long start = page_faults();

		more = slab_merge_step(&s);
		start = page_faults() - start;
		faults = start > faults ? start : faults;
		accesses = s.accesses - before > accesses ? s.accesses - before : accesses;
	}
	print_message("%llu steps, at most %llu accesses and %ld page faults in one; %ld in all\n",
		      (unsigned long long)steps, (unsigned long long)accesses, faults,
		      page_faults() - all);
	assert_true(steps > SLABS / 256);
	assert_true(accesses <= 2 * SLAB_BATCH + 1);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) /* they touch pages, too */
	assert_true(faults <= 8);
#endif
	free(places);
	kv_memory_close(&mem);
}

/* The paper's figure: 0.07 accesses per allocation, amortised. */
static void stacks_cost_few_accesses(void **state)
{
	enum { LIVE = 50000 };
	static uint32_t live[LIVE];
	struct rig r;
	struct rng rng;

	rng_seed(&rng, 9);
	make(&r, SEGMENT);
	for (unsigned n = 0; n < 10; n++) {
		for (unsigned i = 0; i < LIVE; i++)
			live[i] = take(&r, i % 3);
		for (unsigned i = 0; i < LIVE; i++) {
			assert_true(live[i]);
			give(&r, live[i], i % 3);
		}
	}
	assert_true(r.s.accesses > 0);
	assert_true(r.s.accesses <= 0.07 * (double)r.s.allocs);
	assert_true(r.mem.reads + r.mem.writes == r.s.accesses);
	drop(&r);
}

/* Entries of 4 bytes are relative to their segment, at any place of the mapping. */
static void a_segment_above_64_gib(void **state)
{
	uint64_t base = 80ull << 30, size = 16ull << 20;
	struct kv_memory mem;
	struct slab s;

	if (kv_memory_open(&mem, base + size + slab_stack_bytes(size)))
		skip(); /* the machine does not overcommit */
	slab_init(&s, &mem, base, size, size, base + size);
	for (unsigned i = 0; i < 1000; i++) {
		uint32_t place = slab_alloc(&s, 3);

		assert_true(place && slab_addr(&s, place) >= base);
		memset(kv_write(&mem, slab_addr(&s, place), slab_size(3)), 0xa5, slab_size(3));
	}
	kv_memory_close(&mem);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_class_is_the_smallest_that_holds),
		cmocka_unit_test(random_slabs_never_overlap),
		cmocka_unit_test(free_neighbours_merge),
		cmocka_unit_test(merges_come_in_small_steps),
		cmocka_unit_test(steps_are_short_on_fresh_memory),
		cmocka_unit_test(stacks_cost_few_accesses),
		cmocka_unit_test(a_segment_above_64_gib),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
