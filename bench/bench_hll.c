/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the loop of the kernel `hll` does by itself: items in cache, as they come from a port, into sketches of several precisions; the form for any
 * machine, and the one chosen for this one. Prints JSON.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/rng.h"
#include "kernels/hll_update.h"
#include "roost/hll.h"

#define PIECE  4096
#define PIECES 64 /* in cache, as packets are */
#define ROUNDS 500
#define RUNS   9

static uint8_t items[PIECES][PIECE];
static uint8_t registers[1u << ROOST_HLL_MAX_PRECISION];

/* The thread's own time: other programs on the machine don't count. */
static double now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* Median over RUNS of the Gbit/s of items. */
static double measure(hll_update_fn *update, unsigned precision)
{
	double t[RUNS];

	memset(registers, 0, sizeof(registers));
	for (int r = 0; r < RUNS; r++) {
		double start = now_ns();

		for (int i = 0; i < ROUNDS; i++)
			for (int k = 0; k < PIECES; k++)
				update(registers, precision, items[k], PIECE / 8);
		t[r] = 8.0 * ROUNDS * sizeof(items) / (now_ns() - start);
	}
	qsort(t, RUNS, sizeof(t[0]), by_value);
	return t[RUNS / 2];
}

int main(void)
{
	static const unsigned precisions[] = {4, 10, 14, 18};
	struct rng rng;

	rng_seed(&rng, 1);
	for (size_t i = 0; i < sizeof(items); i += 8) {
		uint64_t item = rng_u64(&rng);

		memcpy(&items[0][0] + i, &item, 8);
	}
	printf("{\"tool\": \"bench_hll\", \"chosen_is_scalar\": %s, \"item_bytes\": 8, \"gbps\": {",
	       hll_update_best() == hll_update_scalar ? "true" : "false");
	for (size_t i = 0; i < sizeof(precisions) / sizeof(precisions[0]); i++)
		printf("%s\"%u\": {\"scalar\": %.1f, \"chosen\": %.1f}", i ? ", " : "", precisions[i],
		       measure(hll_update_scalar, precisions[i]), measure(hll_update_best(), precisions[i]));
	printf("}}\n");
	return 0;
}
