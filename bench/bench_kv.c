/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Measures the engine of the key-value store alone, on one thread, with half of the slots in use
 * and a store that is much larger than the cache. The limit is measured in the same run: random
 * reads of 64 bytes in memory of the same size and with the same pages. Prints JSON.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "kv/functions.h"
#include "kv/memory.h"
#include "runs.h"

#define BATCH  256u
#define ROUNDS 7u  /* the median counts */
#define VALUE  64u /* bytes of a record's value */

/* Vectors of which the lines come while another one is changed, in the limit of vectors. */
#define VECTORS_AHEAD 4u

static double seconds = 0.2;
static struct rng rng;
static bool first = true;

struct bench {
	struct kv *kv;
	uint64_t pairs;
	uint32_t value_len;
	uint64_t keys[BATCH];
	uint8_t values[BATCH * 1024], outs[BATCH * 1024]; /* one value after the other */
	struct kv_op ops[BATCH];
};

static void row(const char *what, double rate, double limit)
{
	printf("%s\n  {\"way\": \"%s\", \"rate\": %.0f", first ? "" : ",", what, rate);
	if (limit > 0)
		printf(", \"of_limit\": %.3f", rate / limit);
	printf("}");
	fflush(stdout);
	first = false;
}

/* Runs `turn`, which returns the number of its operations, for a time. Returns the rate. */
static double rate(uint64_t (*turn)(void *), void *ctx)
{
	double rates[ROUNDS];

	for (unsigned r = 0; r < ROUNDS; r++) {
		double start = now_ns(), t;
		uint64_t n = 0;

		do {
			for (unsigned i = 0; i < 16; i++)
				n += turn(ctx);
			t = now_ns() - start;
		} while (t < seconds * 1e9 / ROUNDS);
		rates[r] = (double)n * 1e9 / t;
	}
	return median(rates, ROUNDS);
}

/* ---- the limit ---- */

struct reads {
	struct kv_memory mem;
	uint64_t lines;
	volatile uint64_t sink;
};

static inline uint64_t read_lines(struct reads *r, unsigned flight)
{
	const uint64_t *at[64];
	uint64_t sum = 0;

	for (unsigned i = 0; i < flight; i++) {
		at[i] = (const uint64_t *)(r->mem.base + rng_below(&rng, r->lines) * 64);
		__builtin_prefetch(at[i]);
	}
	for (unsigned n = 0; n < 1024; n++) {
		const uint64_t *p = at[n % flight];

		for (unsigned k = 0; k < 8; k++)
			sum += p[k];
		p = (const uint64_t *)(r->mem.base + rng_below(&rng, r->lines) * 64);
		__builtin_prefetch(p);
		at[n % flight] = p;
	}
	r->sink = sum;
	return 1024;
}

static uint64_t read_16(void *ctx)
{
	return read_lines(ctx, 16);
}

static uint64_t read_64(void *ctx)
{
	return read_lines(ctx, 64);
}

static inline const uint64_t *random_line(const struct reads *r)
{
	return (const uint64_t *)(r->mem.base + rng_below(&rng, r->lines) * 64);
}

/*
 * Reads lines as a GET of a record does that takes two lines: one, which says where the other two
 * are.
 */
static uint64_t read_records(void *ctx)
{
	struct reads *r = ctx;
	const uint64_t *index[16], *record[16];
	uint64_t sum = 0;

	for (unsigned i = 0; i < 16; i++)
		index[i] = record[i] = (const uint64_t *)r->mem.base;
	for (unsigned n = 0; n < 1024; n++) {
		const uint64_t **i = &index[n % 16], **p = &record[n % 16];

		for (unsigned k = 0; k < 16; k++)
			sum += (*p)[k];
		/* All words are equal, so the place depends on the line, and is random. */
		*p = random_line(r) + ((*i)[0] - (*i)[7]);
		__builtin_prefetch(*p);
		__builtin_prefetch(*p + 8);
		*i = random_line(r);
		__builtin_prefetch(*i);
	}
	r->sink = sum;
	return 1024;
}

#define VECTOR 1024u /* bytes */

/* Adds one to each element of random vectors. The lines of the next vectors come meanwhile. */
static uint64_t add_to_vectors(void *ctx)
{
	struct reads *r = ctx;
	uint64_t *at[VECTORS_AHEAD];

	for (unsigned i = 0; i < VECTORS_AHEAD; i++)
		at[i] = (uint64_t *)r->mem.base;
	for (unsigned n = 0; n < 64; n++) {
		uint64_t **v = &at[n % VECTORS_AHEAD];

		for (unsigned k = 0; k < VECTOR / 8; k++)
			(*v)[k]++;
		*v = (uint64_t *)(r->mem.base + rng_below(&rng, r->lines * 64 / VECTOR) * VECTOR);
		for (unsigned k = 0; k < VECTOR / 8; k += 8)
			__builtin_prefetch(*v + k);
	}
	return 64 * VECTOR / 8;
}

/* Returns the limit with 16 in flight. *elements: the elements of vectors that can be changed. */
static double limit(uint64_t bytes, double *elements)
{
	struct reads r = {.lines = bytes / 64 - 1};
	double few, many;

	if (kv_memory_open(&r.mem, bytes))
		exit(1);
	memset(r.mem.base, 1, bytes);
	few = rate(read_16, &r);
	row("random reads of 64 bytes, 16 in flight", few, 0);
	many = rate(read_64, &r);
	row("random reads of 64 bytes, 64 in flight", many, 0);
	row("a random line, and the two lines that it names, 16 in flight", rate(read_records, &r),
	    few);
	*elements = rate(add_to_vectors, &r);
	row("elements of vectors, 1024 bytes, without a store", *elements, 0);
	kv_memory_close(&r.mem);
	return few;
}

/* ---- the store ---- */

static void run(struct bench *b, unsigned n)
{
	kv_run(b->kv, b->ops, n);
	for (unsigned i = 0; i < n; i++)
		if (b->ops[i].status) {
			fprintf(stderr, "bench_kv: an operation fails: %d\n", b->ops[i].status);
			exit(1);
		}
}

static void set_ops(struct bench *b, uint8_t code, uint32_t value_len)
{
	uint32_t space = ALIGN_UP(b->value_len, 8u);

	for (unsigned i = 0; i < BATCH; i++)
		b->ops[i] = (struct kv_op){.code = code,
					   .key = &b->keys[i],
					   .key_len = 8,
					   .value = b->values + i * space,
					   .value_len = value_len,
					   .out = b->outs + i * space,
					   .out_cap = space};
}

/* Makes a store with half of the slots of `buckets` in use, or with `pairs` if not 0. */
static void fill(struct bench *b, uint64_t buckets, unsigned inline_max, uint32_t value_len,
		 uint64_t pairs)
{
	struct kv_config c = {.size = 1ull << 30,
			      .buckets = buckets,
			      .buckets_max = buckets,
			      .inline_max = inline_max};
	struct kv_stat s = {0};

	if (kv_open(&c, &b->kv))
		exit(1);
	b->value_len = value_len;
	b->pairs = 0;
	memset(b->values, 1, sizeof(b->values));
	set_ops(b, KV_PUT, value_len);
	while (pairs ? b->pairs < pairs : s.slots < buckets * 10 / 2) {
		for (unsigned i = 0; i < BATCH; i++)
			b->keys[i] = b->pairs++;
		run(b, BATCH);
		kv_get_stat(b->kv, &s);
	}
}

static uint64_t random_ops(void *ctx)
{
	struct bench *b = ctx;

	for (unsigned i = 0; i < BATCH; i++)
		b->keys[i] = rng_below(&rng, b->pairs);
	run(b, BATCH);
	return BATCH;
}

static uint64_t same_ops(void *ctx)
{
	run(ctx, BATCH);
	return BATCH;
}

static void gets_and_puts(struct bench *b, const char *kind, double lines)
{
	char name[64];

	set_ops(b, KV_GET, 0);
	snprintf(name, sizeof(name), "GET %s", kind);
	row(name, rate(random_ops, b), lines);
	set_ops(b, KV_PUT, b->value_len);
	snprintf(name, sizeof(name), "PUT %s", kind);
	row(name, rate(random_ops, b), lines);
}

static void set_update(struct bench *b, uint8_t code, uint8_t type, uint16_t fn)
{
	set_ops(b, code, 8);
	for (unsigned i = 0; i < BATCH; i++) {
		b->ops[i].type = type;
		b->ops[i].fn = fn;
		b->keys[i] = 1;
	}
}

static void atomics(struct bench *b, double lines)
{
	set_update(b, KV_UPDATE, KV_U64, KV_ADD);
	row("atomics on one key", rate(same_ops, b), 0);
	for (unsigned i = 0; i < BATCH; i++)
		b->ops[i].fetch = true;
	row("atomics on one key, fetch", rate(same_ops, b), 0);
	row("atomics on random keys, fetch", rate(random_ops, b), lines);
	set_update(b, KV_UPDATE, KV_U64, KV_ADD);
}

static void times(const char *what, double by)
{
	printf(",\n  {\"way\": \"%s against a key for each element\", \"times\": %.1f}", what, by);
}

/* The rates are of elements. */
static void vectors(struct bench *b, uint32_t bytes, double single)
{
	char name[64];
	double each;

	set_update(b, KV_UPDATE_EACH, KV_U64, KV_ADD);
	each = rate(random_ops, b) * bytes / 8;
	snprintf(name, sizeof(name), "elements of vectors, %u bytes", bytes);
	row(name, each, 0);
	snprintf(name, sizeof(name), "vectors of %u bytes", bytes);
	times(name, each / single);
}

static void add_one(const struct roost_kv_call *c)
{
	uint64_t *v = c->elements;
	const uint64_t *by = c->operands;

	for (size_t i = 0; i < c->num; i++)
		v[i] += by[0];
}

static void registered(struct bench *b)
{
	static const struct roost_kv_function f = {
		.name = "add", .type = ROOST_KV_U64, .update = add_one};
	int fn = kv_register(b->kv, &f);

	if (fn < 0)
		exit(1);
	set_update(b, KV_UPDATE_EACH, KV_U64, (uint16_t)fn);
	row("elements of vectors, 1024 bytes, registered function", rate(random_ops, b) * 1024 / 8,
	    0);
}

/* bench_kv [SECONDS]: SECONDS for each row. */
int main(int argc, char **argv)
{
	static struct bench b;
	double lines, single, elements;

	if (argc > 1)
		seconds = atof(argv[1]);
	rng_seed(&rng, 5);
	printf("{\"tool\": \"bench_kv\", \"unit\": \"operations per second\", \"rows\": [");
	lines = limit(256ull << 20, &elements);
	fill(&b, 4u << 20, 20, 2, 0);
	gets_and_puts(&b, "inline, 10 bytes", lines);
	kv_close(b.kv);
	fill(&b, 4u << 20, 20, 8, 0);
	atomics(&b, lines);
	single = rate(random_ops, &b);
	row("updates of elements, a key for each", single, lines);
	kv_close(b.kv);
	fill(&b, 1u << 19, 20, VALUE, 0);
	gets_and_puts(&b, "record, 72 bytes", lines);
	vectors(&b, VALUE, single);
	kv_close(b.kv);
	fill(&b, 1u << 17, 20, 1024, 1u << 18);
	vectors(&b, 1024, single);
	times("vectors of 1024 bytes, without a store,", elements / single);
	registered(&b);
	kv_close(b.kv);
	printf("\n]}\n");
	return 0;
}
