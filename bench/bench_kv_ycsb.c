/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * YCSB's workloads A, B, C, D and F on the engine of the store, on one thread (KV-Direct, figure
 * 16): uniform and Zipf 0.99, pairs of 5 to 254 bytes, with keys of 4 bytes. F counts a read and
 * the write after it as one operation. D reads the newest pairs most. The limit, random reads of 64
 * bytes with 16 in flight, is measured in the same run. Prints JSON.
 *
 *	bench-kv-ycsb [BYTES]
 *
 * measures pairs of all sizes, or of this one.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "kv/kv.h"
#include "runs.h"

#define BATCH 64u
#define DRAWS (1u << 18)
#define SKEW  0.99
#define LINES (1u << 21) /* of the limit: 128 MiB */
#define MOST  252u

static double seconds = 0.05;
static struct rng rng;
static uint32_t ranks[DRAWS], keys[2 * BATCH];
static uint8_t value[MOST], outs[2 * BATCH][MOST];

/* Draws ranks by the method of Gray, as YCSB does. */
static void draw(uint64_t n, bool zipf)
{
	double zeta = 0, alpha = 1 / (1 - SKEW), eta;

	for (uint64_t i = 1; zipf && i <= n; i++)
		zeta += pow((double)i, -SKEW);
	eta = (1 - pow(2.0 / (double)n, 1 - SKEW)) / (1 - (1 + pow(0.5, SKEW)) / zeta);
	for (unsigned i = 0; i < DRAWS; i++) {
		double u = rng_double(&rng);
		double r = u * zeta < 1 ? 0
			   : u * zeta < 1 + pow(0.5, SKEW)
				   ? 1
				   : (double)n * pow(eta * u - eta + 1, alpha);

		ranks[i] = zipf ? (uint32_t)r % (uint32_t)n : (uint32_t)rng_below(&rng, n);
	}
}

static void set(struct kv_op *op, unsigned at, uint8_t code, uint32_t key, uint32_t len)
{
	keys[at] = key;
	*op = (struct kv_op){.code = code,
			     .key = &keys[at],
			     .key_len = 4,
			     .value = value,
			     .value_len = len,
			     .out = outs[at],
			     .out_cap = MOST};
}

/* Runs a workload for a time. Returns operations a second. */
static double workload(struct kv *kv, char name, uint32_t *n, uint32_t len)
{
	unsigned write = name == 'A' || name == 'F' ? 50 : name == 'C' ? 0 : 5, at = 0;
	double start = now_ns(), t;
	struct kv_op ops[2 * BATCH];
	uint64_t count = 0;

	do {
		unsigned used = 0;

		for (unsigned i = 0; i < BATCH; i++) {
			uint32_t rank = ranks[at++ % DRAWS];
			uint32_t key = name == 'D' ? *n - 1 - rank : rank * 2654435761u % *n;
			bool writes = rng_below(&rng, 100) < write;

			if (!writes || name == 'F')
				set(&ops[used], used, KV_GET, key, 0), used++;
			if (writes)
				set(&ops[used], used, KV_PUT, name == 'D' ? (*n)++ : key, len),
					used++;
		}
		kv_run(kv, ops, used);
		for (unsigned i = 0; i < used; i++)
			if (ops[i].status) {
				fprintf(stderr, "bench-kv-ycsb: status %d\n", ops[i].status);
				exit(1);
			}
		count += BATCH;
		t = now_ns() - start;
	} while (t < seconds * 1e9);
	return (double)count * 1e9 / t;
}

static double limit(void)
{
	uint64_t *lines = mem_alloc_pages(LINES * 64ull), sum = 0, count = 0, next[16] = {0};
	double start, t;

	if (!lines)
		exit(1);
	memset(lines, 1, LINES * 64ull);
	start = now_ns();
	do {
		for (unsigned i = 0; i < 1024; i++) {
			const uint64_t *p = lines + next[i % 16] * 8;

			for (unsigned k = 0; k < 8; k++)
				sum += p[k];
			next[i % 16] = rng_below(&rng, LINES);
			__builtin_prefetch(lines + next[i % 16] * 8);
		}
		count += 1024;
		t = now_ns() - start;
	} while (t < 4 * seconds * 1e9);
	__asm__ volatile("" : : "r"(sum));
	mem_free_pages(lines, LINES * 64ull);
	return (double)count * 1e9 / t;
}

int main(int argc, char **argv)
{
	static const uint32_t sizes[] = {5, 10, 62, 126, 254};
	unsigned any = 0;
	double lines;

	rng_seed(&rng, 5);
	lines = limit();
	printf("{\"limit\": %.0f, \"rows\": [", lines);
	for (unsigned s = 0; s < 5; s++) {
		uint32_t n = sizes[s] > 100 ? 250000 : 1000000, len = sizes[s] - 4, first = n;
		struct kv_config c = {.size = 1ull << 30, .inline_max = 20};
		struct kv_op op;
		struct kv *kv;

		if (argc > 1 && sizes[s] != (uint32_t)atoi(argv[1]))
			continue;
		if (kv_open(&c, &kv))
			return 1;
		for (uint32_t k = 0; k < n; k++) {
			set(&op, 0, KV_PUT, k, len);
			kv_run(kv, &op, 1);
		}
		for (unsigned z = 0; z < 2; z++) {
			draw(first, z);
			for (const char *w = "ABCFD"; *w; w++) {
				double r = workload(kv, *w, &n, len);

				printf("%s\n  {\"workload\": \"%c\", \"zipf\": %u, \"bytes\": %u, "
				       "\"rate\": %.0f, \"of_limit\": %.3f}",
				       any++ ? "," : "", *w, z, sizes[s], r, r / lines);
			}
		}
		kv_close(kv);
	}
	printf("\n]}\n");
	return 0;
}
