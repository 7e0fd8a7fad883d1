/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A program of the host beside a store (KV-Direct, table 4): the speed of its CPU, and its latency
 * and throughput of memory, by the time that passes. Prints JSON.
 *
 *	bench-host SECONDS
 */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "common.h"

#define LINES (4u << 20) /* 256 MiB */
#define READS 16u

struct line {
	uint32_t next;
	uint32_t rest[15];
};

static struct line *lines;
static uint64_t part_ns;
static struct rng rng;

static void keep(uint64_t v)
{
	__asm__ volatile("" : : "r"(v));
}

/* Makes one cycle of all lines, in random order. */
static void make_chain(void)
{
	for (uint32_t i = 0; i < LINES; i++)
		lines[i].next = i;
	for (uint32_t i = LINES - 1; i > 0; i--) { /* Sattolo's algorithm */
		uint32_t j = (uint32_t)rng_below(&rng, i), t = lines[i].next;

		lines[i].next = lines[j].next;
		lines[j].next = t;
	}
}

/* Each returns what one turn has done. */
static double compute(void)
{
	uint64_t v = 1;

	for (unsigned i = 0; i < 65536; i++)
		v = v * 6364136223846793005u + (v >> 33);
	keep(v);
	return 65536;
}

static double chase(void)
{
	static uint32_t at;

	for (unsigned i = 0; i < 1024; i++)
		at = lines[at].next;
	keep(at);
	return 1024;
}

static double stream(void)
{
	static uint32_t from;
	const uint64_t *p = (const void *)&lines[from];
	uint64_t sum = 0;

	for (unsigned i = 0; i < 65536 * 8; i++)
		sum += p[i];
	keep(sum);
	from = (from + 65536) % LINES;
	return 65536 * 64.0;
}

static double read_random(void)
{
	static uint32_t at[READS];
	uint64_t sum = 0;

	for (unsigned i = 0; i < 4096; i++) {
		for (unsigned k = 1; k < 16; k++)
			sum += lines[at[i % READS]].rest[k - 1];
		at[i % READS] = (uint32_t)rng_below(&rng, LINES);
		__builtin_prefetch(&lines[at[i % READS]]);
	}
	keep(sum);
	return 4096 * 64.0;
}

/* Writes whole lines but their first word, so the chain stays. */
static double write_random(void)
{
	for (unsigned i = 0; i < 4096; i++)
		memset(lines[rng_below(&rng, LINES)].rest, (int)i, sizeof(lines->rest));
	return 4096 * 64.0;
}

/* Returns what is done in a nanosecond. */
static double speed(double (*turn)(void))
{
	uint64_t start = monotonic_ns(), t;
	double done = 0;

	do {
		done += turn();
		t = monotonic_ns() - start;
	} while (t < part_ns);
	return done / (double)t;
}

int main(int argc, char **argv)
{
	part_ns = (uint64_t)((argc > 1 ? atof(argv[1]) : 1) * 1e9 / 5);
	lines = mem_alloc_pages(LINES * sizeof(*lines));
	if (!lines)
		die("bench-host");
	rng_seed(&rng, 4);
	make_chain();
	printf("{\"tool\": \"bench-host\", \"steps_per_us\": %.3f", 1e3 * speed(compute));
	printf(", \"random_ns\": %.3f", 1 / speed(chase));
	printf(", \"sequential_gbytes\": %.3f", speed(stream));
	printf(", \"random_read_gbytes\": %.3f", speed(read_random));
	printf(", \"random_write_gbytes\": %.3f}\n", speed(write_random));
	return 0;
}
