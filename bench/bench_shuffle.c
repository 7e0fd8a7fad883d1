/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Measures the loop of the kernel `shuffle` alone. Tuples are in the cache, as they come from a
 * port, and go into partitions in memory larger than the cache. It measures the portable form, the
 * form chosen for this machine, and a loop without buffers. Prints JSON.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "builtin/shuffle_loop.h"
#include "nic/dma.h"
#include "runs.h"

#define PIECE  4096
#define PIECES 128 /* in cache, as packets are */
#define OUT    (256u << 20)
#define RUNS   5

static uint8_t tuples[PIECES][PIECE];
static uint8_t *out;
static uint64_t at[ROOST_SHUFFLE_PARTITIONS];
static struct shuffle_bounds bounds[ROOST_SHUFFLE_PARTITIONS];
static uint8_t lines[ROOST_SHUFFLE_PARTITIONS * ROOST_SHUFFLE_LINE] __attribute__((aligned(128)));

static int copy(void *ctx, uint64_t va, const void *buf, uint32_t len)
{
	return dma_copy((uint8_t *)ctx + va, buf, len);
}

static int stream(void *ctx, uint64_t va, const void *buf, uint32_t len)
{
	return dma_stream((uint8_t *)ctx + va, buf, len);
}

static int nowhere(void *ctx, uint64_t va, const void *buf, uint32_t len)
{
	return 0;
}

/* Stores each tuple directly, without buffers. */
static enum shuffle_end direct(struct shuffle_work *w, const uint8_t *from, size_t n)
{
	for (size_t i = 0; i < n; i++, from += 8) {
		uint32_t part;
		uint64_t key;

		memcpy(&key, from, 8);
		part = roost_shuffle_partition(&w->p, key);
		memcpy(out + w->at[part], &key, 8);
		w->at[part] += 8;
	}
	return SHUFFLE_OK;
}

/* Median over RUNS of the Gbit/s of tuples. */
static double measure(shuffle_fn *fn, const struct roost_shuffle_params *p,
		      int (*put)(void *ctx, uint64_t va, const void *buf, uint32_t len))
{
	struct shuffle_work w = {*p, at, bounds, lines, put, out};
	double t[RUNS];

	for (int r = 0; r < RUNS; r++) {
		uint64_t each = OUT / p->partitions, n = OUT / 2 / PIECE;
		double start;

		for (uint32_t i = 0; i < p->partitions; i++) {
			at[i] = bounds[i].from = i * each;
			bounds[i].end = at[i] + each;
		}
		start = now_ns();
		for (uint64_t i = 0; i < n; i++)
			if (fn(&w, tuples[i % PIECES], PIECE / p->tuple))
				abort();
		t[r] = 8.0 * (double)n * PIECE / (now_ns() - start);
	}
	return median(t, RUNS);
}

static void row(const char *name, const struct roost_shuffle_params *p, const char *end)
{
	shuffle_fn *plain = shuffle_plain(p), *best = shuffle_best(p);

	printf("\"%s\": {\"partitions\": %u, \"tuple\": %u, ", name, p->partitions, p->tuple);
	if (p->tuple == 8)
		printf("\"unbuffered\": %.1f, ", measure(direct, p, copy));
	printf("\"plain\": %.1f, \"chosen\": %.1f, \"chosen_through_cache\": %.1f, \"chosen_to_nowhere\": %.1f}%s",
	       measure(plain, p, stream), measure(best, p, stream), measure(best, p, copy),
	       measure(best, p, nowhere), end);
}

int main(void)
{
	struct rng rng;

	rng_seed(&rng, 1);
	for (size_t i = 0; i < sizeof(tuples); i += 8) {
		uint64_t key = rng_u64(&rng);

		memcpy(&tuples[0][0] + i, &key, 8);
	}
	out = mem_alloc_pages(OUT);
	if (!out || dma_init())
		return 1;
	memset(out, 1, OUT);
	printf("{\"tool\": \"bench_shuffle\", \"gbps\": {");
	row("radix_16",
	    &(struct roost_shuffle_params){
		    .partitions = 16, .tuple = 8, .how = ROOST_SHUFFLE_RADIX},
	    ", ");
	row("radix_256",
	    &(struct roost_shuffle_params){
		    .partitions = 256, .tuple = 8, .how = ROOST_SHUFFLE_RADIX},
	    ", ");
	row("radix_1024",
	    &(struct roost_shuffle_params){
		    .partitions = 1024, .tuple = 8, .how = ROOST_SHUFFLE_RADIX},
	    ", ");
	row("radix_4096",
	    &(struct roost_shuffle_params){
		    .partitions = 4096, .tuple = 8, .how = ROOST_SHUFFLE_RADIX},
	    ", ");
	row("hash_1024",
	    &(struct roost_shuffle_params){
		    .partitions = 1024, .tuple = 8, .how = ROOST_SHUFFLE_HASH},
	    ", ");
	row("hash_1024_32",
	    &(struct roost_shuffle_params){
		    .partitions = 1024, .tuple = 32, .how = ROOST_SHUFFLE_HASH},
	    "}}\n");
	return 0;
}
