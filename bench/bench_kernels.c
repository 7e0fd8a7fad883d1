/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Compares kernels with READs, ONC RPC over TCP, and work on the receiver's CPU. Two processes,
 * each with a NIC and a core, communicate over shm. Prints JSON. Latency is from the post to the
 * data.
 *
 *	bench-kernels TEST [--delay US] [--point SECONDS] [--size BYTES]
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kern.h"
#include "runs.h"

#define SLICES	  5u
#define MAX_RATES 24

struct kern_options kern = {.point_ns = 100000000};

static bool any_row;

static void row_begin(const char *test, const char *way, uint64_t size)
{
	printf("%s\n  {\"test\": \"%s\", \"way\": \"%s\", \"size\": %llu, \"delay_us\": %g",
	       any_row ? "," : "", test, way, (unsigned long long)size,
	       (double)kern.delay_ns / 1e3);
	any_row = true;
}

void kern_expect(const char *test, const void *got, const void *want, size_t len)
{
	if (!got || memcmp(got, want, len))
		duo_fail("%s: the data that came are wrong", test);
}

struct roost_caller *kern_caller;

void kern_make_caller(struct duo *c, unsigned calls, uint32_t space)
{
	kern_caller = roost_caller_create(c->qp, calls, space);
	if (!kern_caller)
		duo_fail("can't make a caller");
}

void kern_mix(uint32_t *order, uint32_t n, uint32_t kept, uint64_t seed)
{
	struct rng rng;

	rng_seed(&rng, seed);
	for (uint32_t i = 0; i < n; i++)
		order[i] = i;
	for (uint32_t i = n - 1; i > kept; i--) {
		uint32_t j = kept + (uint32_t)rng_below(&rng, i - kept + 1), t = order[i];

		order[i] = order[j];
		order[j] = t;
	}
}

void kern_deploy(struct duo *s, const char *builtin)
{
	if (roost_kernel_deploy(s->ctx, roost_kernel_builtin(builtin), NULL))
		duo_fail("can't deploy the kernel %s", builtin);
}

struct roost_result kern_wait(unsigned id)
{
	struct roost_result r;
	int rc;

	do
		rc = roost_call_poll(kern_caller, id, &r);
	while (rc == EAGAIN);
	if (rc)
		duo_fail("a call fails: %s", strerror(rc));
	return r;
}

const void *kern_call(uint64_t op, uint32_t rkey, const void *params, uint32_t len, uint32_t want)
{
	struct roost_result r;
	unsigned id;

	if (roost_call_begin(kern_caller, op, rkey, params, len, 0, &id))
		duo_fail("a call can't begin");
	r = kern_wait(id);
	if (r.status || r.len != want)
		duo_fail("a call ends with status %u, %u bytes", r.status, r.len);
	roost_call_end(kern_caller, id);
	return r.data;
}

static void slice(struct duo *c, struct kern_way *w, struct rng *rng, unsigned size)
{
	uint64_t start, now;

	if (w->begin)
		w->begin(c);
	for (unsigned i = 0; i < 20; i++)
		w->once(c, rng_u64(rng), size);
	start = now = duo_ns();
	while (now - start < kern.point_ns / SLICES) {
		uint64_t from = now;

		w->trips += w->once(c, rng_u64(rng), size);
		now = duo_ns();
		hist_add(&w->hist, now - from);
	}
	if (w->end)
		w->end(c);
}

void kern_row(const char *test, const char *way, unsigned size, const struct hist *h,
	      uint64_t trips, const char *extra)
{
	row_begin(test, way, size);
	printf(", \"p50_us\": %.3f, \"p99_us\": %.3f, \"rate\": %.0f",
	       (double)hist_percentile(h, 50) / 1e3, (double)hist_percentile(h, 99) / 1e3,
	       1e9 / hist_mean(h));
	if (trips)
		printf(", \"round_trips\": %.2f", (double)trips / (double)h->count);
	printf("%s}", extra);
}

void kern_compare(struct duo *c, const char *test, struct kern_way *ways, unsigned n, unsigned size,
		  const char *extra)
{
	struct rng rng;

	rng_seed(&rng, size);
	for (unsigned i = 0; i < n; i++) {
		hist_reset(&ways[i].hist);
		ways[i].trips = 0;
	}
	for (unsigned s = 0; s < SLICES; s++)
		for (unsigned i = 0; i < n; i++)
			slice(c, &ways[i], &rng, size);
	for (unsigned i = 0; i < n; i++)
		kern_row(test, ways[i].name, size, &ways[i].hist, ways[i].trips, extra);
}

void kern_rates(struct duo *c, const char *test, const struct kern_rate *ways, unsigned n,
		unsigned turns, const char *unit)
{
	double v[MAX_RATES][KERN_TURNS];

	for (unsigned t = 0; t < turns; t++)
		for (unsigned i = 0; i < n; i++)
			v[i][t] = ways[i].run(c, ways[i].size);
	for (unsigned i = 0; i < n; i++) {
		qsort(v[i], turns, sizeof(v[i][0]), by_value);
		row_begin(test, ways[i].name, ways[i].size);
		printf(", \"%s\": %.4f}", unit, v[i][turns / 2]);
	}
}

static const struct {
	const char *name;
	void (*run)(void);
} tests[] = {
	{"list", kern_list},
	{"get", kern_get},
	{"object", kern_object},
	{"chain", kern_chain},
	{"chain_list", kern_chain_list},
	{"writers", kern_writers},
	{"endless", kern_endless},
	{"walk", kern_walk},
	{"gather", kern_gather},
	{"hll", kern_hll},
	{"shuffle", kern_shuffle},
};

#define NUM_TESTS (sizeof(tests) / sizeof(tests[0]))

static int usage(void)
{
	fprintf(stderr,
		"usage: bench-kernels TEST [--delay US] [--point SECONDS] [--size BYTES]\ntests:");
	for (unsigned i = 0; i < NUM_TESTS; i++)
		fprintf(stderr, " %s", tests[i].name);
	fputc('\n', stderr);
	return 2;
}

int main(int argc, char **argv)
{
	unsigned t = 0;

	while (argc > 1 && t < NUM_TESTS && strcmp(argv[1], tests[t].name))
		t++;
	if (argc < 2 || t == NUM_TESTS || argc % 2)
		return usage();
	for (int i = 2; i < argc; i += 2) {
		double v = atof(argv[i + 1]);

		if (strcmp(argv[i], "--delay") == 0 && v >= 0 && v < 1e6)
			kern.delay_ns = (uint64_t)(v * 1e3);
		else if (strcmp(argv[i], "--point") == 0 && v > 0 && v < 1000)
			kern.point_ns = (uint64_t)(v * 1e9);
		else if (strcmp(argv[i], "--size") == 0 && v >= 0 && v < 1e9)
			kern.size = (unsigned)v;
		else
			return usage();
	}
	printf("{\"tool\": \"bench-kernels\", \"test\": \"%s\", \"rows\": [", argv[1]);
	tests[t].run();
	printf("\n]}\n");
	return 0;
}
