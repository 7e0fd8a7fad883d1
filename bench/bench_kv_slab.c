/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The slab allocator of the store (KV-Direct, sections 3.3.2 and 5.1.2, figure 12): the time to
 * split slabs of 64 KiB into slabs of 32 bytes, to free these in random order, and to merge them,
 * for several amounts of memory. CPU time of one thread. A split makes two entries of
 * a stack. Prints JSON.
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/rng.h"
#include "kv/slab.h"
#include "runs.h"

static struct kv_memory mem;
static struct slab s;

static void shuffle(uint32_t *places, uint64_t n)
{
	struct rng rng;

	rng_seed(&rng, 1);
	for (uint64_t i = n; i > 1; i--) {
		uint64_t k = rng_below(&rng, i);
		uint32_t place = places[k];

		places[k] = places[i - 1];
		places[i - 1] = place;
	}
}

/* Takes all memory as slabs of 64 KiB, and gives it back. */
static void touch(uint32_t *places)
{
	uint64_t n = 0;

	while ((places[n] = slab_alloc(&s, SLAB_CLASSES - 1)))
		n++;
	while (n)
		slab_free(&s, places[--n], SLAB_CLASSES - 1);
}

static void measure(uint64_t bytes, bool first)
{
	uint32_t *places = malloc((bytes / SLAB_UNIT + 1) * sizeof(*places));
	double start, alloc, released, merged;
	uint64_t n = 0, splits, accesses;

	if (!places || kv_memory_open(&mem, bytes + slab_stack_bytes(bytes)))
		exit(1);
	slab_init(&s, &mem, 0, bytes, bytes, bytes);
	touch(places);
	splits = s.splits;
	accesses = s.accesses;
	start = now_ns();
	while ((places[n] = slab_alloc(&s, 0)))
		n++;
	alloc = now_ns() - start;
	splits = s.splits - splits;
	shuffle(places, n);
	start = now_ns();
	for (uint64_t i = 0; i < n; i++)
		slab_free(&s, places[i], 0);
	released = now_ns() - start;
	accesses = s.accesses - accesses;
	if (s.merge.running)
		exit(1);
	s.merges = 0;
	start = now_ns();
	slab_merge_start(&s);
	while (slab_merge_step(&s))
		;
	merged = now_ns() - start;
	printf("%s\n  {\"bytes\": %.0f, \"slabs\": %.0f, \"alloc_ns\": %.1f, \"free_ns\": %.1f, "
	       "\"accesses\": %.4f, \"split_per_second\": %.0f, \"merge_s\": %.4f, "
	       "\"merge_ns\": %.1f, \"merges\": %.0f}",
	       first ? "" : ",", (double)bytes, (double)n, alloc / (double)n, released / (double)n,
	       (double)accesses / (double)(2 * n), 2 * (double)splits * 1e9 / alloc, merged / 1e9,
	       merged / (double)n, (double)s.merges);
	kv_memory_close(&mem);
	free(places);
}

int main(void)
{
	printf("{\"rows\": [");
	for (uint64_t bytes = 16u << 20; bytes <= 1u << 30; bytes *= 8)
		measure(bytes, bytes == 16u << 20);
	printf("\n]}\n");
	return 0;
}
