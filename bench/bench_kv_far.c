/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Measures a store with a far tier in a file: Zipf 0.99, half of the operations are PUTs, near
 * memory is a sixteenth of the pairs. One operation after the other, and out of order; a snapshot;
 * then the far tier alone: one read at a time, many reads, and as many reads and writes as the run
 * out of order had. Prints JSON.
 *
 * With --throttle the far tier is memory with a throttle, and the rows are those of figures 13 and
 * 14 and of tables 5 and 6 of KV-Direct. Pairs of 16 bytes are inline, so an operation needs one
 * line. Figure 13: atomics on some keys, and Zipf with several shares of PUTs, in order and out of
 * order. One line in a hundred may stay in near memory, so nearly each operation that is not
 * forwarded reads a line, as in the paper. Figure 14: GETs over the share of lines that may stay in
 * near memory, in order and without a delay: the lines that are read for each are counted.
 */
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/mem.h"
#include "base/rng.h"
#include "far_throttle.h"
#include "kv/far.h"
#include "kv/kv.h"
#include "kv/snapshot.h"
#include "kv/store.h"

#define PAIRS_MIN (1u << 13)
#define PAIRS_MAX (1u << 24)
#define PAIRS_BY  (DEEP * LINE / 2 / RECORD) /* so that DEEP divides the number of lines */
#define VALUE	  100u			     /* bytes of a value; a record takes 128 */
#define RECORD	  128u
#define BATCH	  32u
#define BATCHES	  32u
#define SKEW	  0.99
#define LINE	  4096u
#define DEEP	  256u /* lines in flight in the measurement of the far tier alone */
#define GAP_NS	  100u /* between two lines of the throttled tier */

static const char usage[] =
	"usage: bench-kv-far [--pairs N] [FOLDER [SECONDS]]\n"
	"       bench-kv-far [--pairs N] --throttle US [SECONDS]\n"
	"\n"
	"Measures a store with a far tier in a file in FOLDER (.), SECONDS (2) for each row.\n"
	"\n"
	"  --pairs N  pairs in the store, a multiple of 4096 from 8192 to 16777216 (524288); a pair\n"
	"             has 256 bytes of the file and 8 bytes of near memory. With few pairs near\n"
	"             memory has fewer lines than operations may be in flight, and the rate out of\n"
	"             order falls\n"
	"  --throttle US  the far tier is memory; a line comes US microseconds after its request,\n"
	"             and at most 10 million lines come in a second\n"
	"  --help     prints this text\n";

static uint32_t pairs = 1u << 19;
static const char *folder = ".";
static double seconds = 2;
static struct rng rng;
static bool first = true;
static uint32_t *scattered; /* the key of each rank */

/* The load. */
static struct {
	uint32_t value_len;
	unsigned puts; /* percent */
	bool uniform;
	uint64_t atomics; /* keys of atomics; 0: GETs and PUTs */
} load = {.value_len = VALUE, .puts = 50};

/* The store. */
struct store {
	unsigned in_flight, cacheable;
	bool throttle;
	uint64_t delay_ns, gap_ns; /* of the throttled tier */
	uint64_t near;		   /* bytes */
};

/* The time that passes: waits for the far tier count. */
static double clock_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static uint64_t store_size(void)
{
	return pairs * 2ull * RECORD;
}

static uint64_t near_size(void)
{
	return (uint64_t)pairs * RECORD / 16;
}

static uint64_t num_lines(void)
{
	return store_size() / LINE;
}

/* ---- Zipf (Gray and others, SIGMOD '94) ---- */

static double zeta_n, eta, alpha;

static void prepare_zipf(void)
{
	double zeta_2 = 1 + pow(0.5, SKEW);

	for (unsigned i = 1; i <= pairs; i++)
		zeta_n += pow(1.0 / i, SKEW);
	alpha = 1 / (1 - SKEW);
	eta = (1 - pow(2.0 / pairs, 1 - SKEW)) / (1 - zeta_2 / zeta_n);
	scattered = malloc(pairs * sizeof(*scattered));
	if (!scattered)
		exit(1);
	for (unsigned i = 0; i < pairs; i++)
		scattered[i] = i;
	for (unsigned i = pairs - 1; i; i--) {
		unsigned j = (unsigned)rng_below(&rng, i + 1);
		uint32_t other = scattered[j];

		scattered[j] = scattered[i];
		scattered[i] = other;
	}
}

static uint64_t next_key(void)
{
	double u = (double)(rng_u64(&rng) >> 11) * 0x1p-53, uz = u * zeta_n;
	uint64_t rank = uz < 1 ? 0
			: uz < 1 + pow(0.5, SKEW)
				? 1
				: (uint64_t)(pairs * pow(eta * u - eta + 1, alpha));

	return scattered[rank < pairs ? rank : pairs - 1];
}

/* ---- the store ---- */

struct client {
	struct kv_batch batch;
	struct kv_op ops[BATCH];
	uint64_t keys[BATCH];
	uint8_t outs[BATCH][VALUE];
};

static struct client clients[BATCHES];
static uint8_t value[VALUE];

/* A key and its bucket. */
struct placed {
	uint64_t bucket, key;
};

static int by_bucket(const void *a, const void *b)
{
	uint64_t x = ((const struct placed *)a)->bucket, y = ((const struct placed *)b)->bucket;

	return (x > y) - (x < y);
}

/*
 * Stores all pairs in the order of their buckets, so that neighbours need the same lines. In the
 * order of the keys each pair would read a line, one after the other.
 */
static void fill(struct kv *kv)
{
	struct placed *all = malloc(pairs * sizeof(*all));

	if (!all)
		exit(1);
	for (uint64_t k = 0; k < pairs; k++)
		all[k] = (struct placed){kv_home(kv, kv_hash(kv, &k, sizeof(k))), k};
	qsort(all, pairs, sizeof(*all), by_bucket);
	for (uint32_t i = 0; i < pairs; i++) {
		struct kv_op op = {.code = KV_PUT,
				   .key = &all[i].key,
				   .key_len = 8,
				   .value = value,
				   .value_len = load.value_len};

		kv_run(kv, &op, 1);
		if (op.status)
			exit(1);
	}
	free(all);
}

static struct kv *open_store(const struct store *s)
{
	struct kv_config c = {.size = store_size(),
			      .inline_max = 20,
			      .buckets = s->throttle ? pairs : pairs / 5,
			      .near = s->near,
			      .cacheable = s->cacheable,
			      .in_flight = s->in_flight};
	struct kv *kv;
	int err = 0;

	if (s->throttle)
		c.far = far_throttle(s->delay_ns, s->gap_ns);
	else
		err = kv_far_file(folder, false, &c.far);
	if (err || kv_open(&c, &kv)) {
		fprintf(stderr, "bench_kv_far: no store in %s: %s\n", folder, strerror(-err));
		exit(1);
	}
	fill(kv);
	return kv;
}

static uint8_t next_code(void)
{
	if (load.atomics)
		return KV_UPDATE;
	return rng_below(&rng, 100) < load.puts ? KV_PUT : KV_GET;
}

static void submit(struct kv *kv, struct client *c)
{
	for (unsigned i = 0; i < BATCH; i++) {
		c->keys[i] = load.atomics   ? scattered[rng_below(&rng, load.atomics)]
			     : load.uniform ? rng_below(&rng, pairs)
					    : next_key();
		c->ops[i] = (struct kv_op){.code = next_code(),
					   .type = KV_U64,
					   .fn = KV_ADD,
					   .fetch = load.atomics,
					   .key = &c->keys[i],
					   .key_len = 8,
					   .value = value,
					   .value_len = load.value_len,
					   .out = c->outs[i],
					   .out_cap = VALUE};
	}
	c->batch = (struct kv_batch){.ops = c->ops, .n = BATCH};
	kv_submit(kv, &c->batch);
}

/* Executes operations for `ns`. Returns their number. */
static uint64_t serve(struct kv *kv, double ns)
{
	double start = clock_ns();
	uint64_t done = 0;
	unsigned busy = 0;

	for (unsigned i = 0; i < BATCHES; i++, busy++)
		submit(kv, &clients[i]);
	while (busy) {
		bool more = clock_ns() - start < ns;

		kv_poll(kv, true);
		for (unsigned i = 0; i < BATCHES; i++) {
			struct client *c = &clients[i];

			if (!c->batch.n || !kv_finished(&c->batch))
				continue;
			for (unsigned k = 0; k < BATCH; k++)
				if (c->ops[k].status)
					exit(1);
			done += BATCH;
			c->batch.n = 0;
			if (more)
				submit(kv, c);
			else
				busy--;
		}
	}
	return done;
}

/* ---- rows ---- */

struct result {
	double rate, reads, writes; /* operations per second; lines per operation */
};

/* Returns microseconds of the processor, for this thread. */
static double cpu_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t); /* with the workers of io_uring */
	return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

/* Measures a row. `what` has further members of its object. */
static struct result row(const char *way, const char *what, const struct store *st)
{
	struct kv *kv = open_store(st);
	struct kv_stat a, b;
	struct result r;
	double start, t, cpu, accesses;
	uint64_t n;

	serve(kv, seconds / 2 * 1e9); /* warms near memory up with the lines that are used often */
	kv_get_stat(kv, &a);
	start = clock_ns();
	cpu = cpu_us();
	n = serve(kv, seconds * 1e9);
	cpu = cpu_us() - cpu;
	t = (clock_ns() - start) / 1e9;
	kv_get_stat(kv, &b);
	accesses = (double)(b.reads + b.writes - a.reads - a.writes);
	r = (struct result){(double)n / t, (double)(b.far_reads - a.far_reads) / (double)n,
			    (double)(b.far_writes - a.far_writes) / (double)n};
	printf("%s\n  {\"way\": \"%s\", %s\"rate\": %.0f, \"cpu_us\": %.2f, \"near_hits\": %.3f, ",
	       first ? "" : ",", way, what, r.rate, cpu / (double)n,
	       1 - (double)(b.far_reads - a.far_reads) / accesses);
	printf("\"forwarded\": %.4f, \"far_reads\": %.3f, \"far_writes\": %.3f, "
	       "\"writes_merged\": %.3f}",
	       (double)(b.forwarded - a.forwarded) / (double)n, r.reads, r.writes,
	       (double)(b.merged - a.merged) / (double)n);
	fflush(stdout);
	first = false;
	kv_close(kv);
	return r;
}

/* ---- a snapshot ---- */

static void snapshot_row(void)
{
	const struct store all = {.cacheable = 100, .near = near_size()};
	struct kv *kv = open_store(&all);
	struct kv_snapshot *s;
	struct kv_stat a, b;
	char path[4096];
	double start, t;
	int more = snprintf(path, sizeof(path), "%s/bench-kv-far.snapshot", folder);

	if (more >= (int)sizeof(path) || kv_snapshot_start(kv, path, &s))
		exit(1);
	kv_get_stat(kv, &a);
	start = clock_ns();
	while ((more = kv_snapshot_step(s, 1024)) > 0)
		if (more == KV_SNAPSHOT_WAITS)
			kv_poll(kv, true);
	t = (clock_ns() - start) / 1e9;
	kv_get_stat(kv, &b);
	if (more)
		exit(1);
	printf(",\n  {\"way\": \"a snapshot\", \"lines\": %.0f, \"pairs\": %.0f, "
	       "\"seconds\": %.2f}",
	       (double)(b.far_reads - a.far_reads) / t, pairs / t, t);
	kv_snapshot_free(s); /* this removes the file */
	kv_close(kv);
}

/* ---- the far tier alone ---- */

static void start_line(struct kv_far *far, struct kv_far_request *r, uint64_t line, bool write)
{
	r->line = line;
	r->offset = line * r->len;
	r->write = write;
	far->start(far, r);
}

/* Moves random lines, of which this share is written. Returns the lines per second. */
static double move_lines(struct kv_far *far, struct kv_far_request *requests, unsigned in_flight,
			 double writes)
{
	double start = clock_ns(), ns = seconds / 2 * 1e9;
	uint64_t done = 0;
	unsigned busy;

	for (busy = 0; busy < in_flight; busy++)
		start_line(far, &requests[busy], rng_below(&rng, num_lines()), false);
	while (busy) {
		struct kv_far_request *r = far->poll(far, true), *next;

		for (; r; r = next) {
			next = r->next;
			if (r->result)
				exit(1);
			done++;
			busy--;
			if (clock_ns() - start > ns)
				continue;
			start_line(far, r, rng_below(&rng, num_lines()),
				   (double)rng_below(&rng, 1u << 20) < writes * (1u << 20));
			busy++;
		}
	}
	return (double)done / ((clock_ns() - start) / 1e9);
}

/* A line that was never written would be read without the disk. */
static void write_all(struct kv_far *far, struct kv_far_request *requests)
{
	for (uint64_t line = 0; line < num_lines(); line += DEEP) {
		unsigned busy = DEEP;

		for (unsigned i = 0; i < DEEP; i++)
			start_line(far, &requests[i], line + i, true);
		while (busy)
			for (struct kv_far_request *r = far->poll(far, true); r; r = r->next)
				busy--;
	}
}

/*
 * Measures three rows: one line at a time, many lines, and many lines of which a share is written.
 * Returns the lines per second of each.
 */
static struct far_limit {
	double one, many, mixed;
} far_rows(double writes)
{
	struct kv_far_request *requests = calloc(DEEP, sizeof(*requests));
	uint8_t *lines = mem_alloc_pages((size_t)DEEP * LINE);
	struct kv_far *far;
	struct far_limit l;

	if (!requests || !lines || kv_far_file(folder, false, &far) || far->open(far, store_size()))
		exit(1);
	for (unsigned i = 0; i < DEEP; i++) {
		requests[i].data = lines + (size_t)i * LINE;
		requests[i].len = LINE;
	}
	write_all(far, requests);
	l.one = move_lines(far, requests, 1, 0);
	l.many = move_lines(far, requests, DEEP, 0);
	l.mixed = move_lines(far, requests, DEEP, writes);
	printf(",\n  {\"way\": \"the far tier alone: reads, one at a time\", \"lines\": %.0f},"
	       "\n  {\"way\": \"the far tier alone: reads, %u at a time\", \"lines\": %.0f},"
	       "\n  {\"way\": \"the far tier alone: reads and writes, %u at a time\", "
	       "\"lines\": %.0f}",
	       l.one, DEEP, l.many, DEEP, l.mixed);
	far->close(far);
	mem_free_pages(lines, (size_t)DEEP * LINE);
	free(requests);
	return l;
}

/* ---- figures 13 and 14 ---- */

static void both(const char *what, uint64_t delay_ns)
{
	struct store s = {.cacheable = 1,
			  .throttle = true,
			  .delay_ns = delay_ns,
			  .gap_ns = GAP_NS,
			  .near = near_size()};

	row("out of order", what, &s);
	s.in_flight = 1;
	row("in order", what, &s);
}

static void order_rows(uint64_t delay_ns)
{
	char what[100];

	for (load.atomics = 1; load.atomics <= 4096; load.atomics *= 8) {
		snprintf(what, sizeof(what), "\"figure\": \"13a\", \"keys\": %u, ",
			 (unsigned)load.atomics);
		both(what, delay_ns);
	}
	load.atomics = 0;
	for (load.puts = 0; load.puts <= 100; load.puts += 25) {
		snprintf(what, sizeof(what), "\"figure\": \"13b\", \"puts\": %u, ", load.puts);
		both(what, delay_ns);
	}
}

static void dispatch_rows(void)
{
	struct store s = {.in_flight = 1, .throttle = true};

	load.puts = 0;
	for (unsigned uniform = 0; uniform < 2; uniform++)
		for (unsigned part = 64; part >= 4; part /= 4)
			for (s.cacheable = 10; s.cacheable <= 100; s.cacheable += 10) {
				char what[100];

				load.uniform = uniform;
				s.near = (uint64_t)pairs * 64 / part;
				snprintf(what, sizeof(what),
					 "\"figure\": \"14\", \"near\": %.6f, \"share\": %.1f, ",
					 1.0 / part, s.cacheable / 100.0);
				row(uniform ? "uniform" : "Zipf", what, &s);
			}
}

static double throttle_us; /* 0: a file */

static void read_options(int argc, char **argv)
{
	static const struct option options[] = {{"pairs", required_argument, NULL, 'p'},
						{"throttle", required_argument, NULL, 't'},
						{"help", no_argument, NULL, 'h'},
						{0}};
	int c;

	while ((c = getopt_long(argc, argv, "", options, NULL)) >= 0) {
		char *end = "";
		unsigned long n = pairs;

		if (c == 'p')
			n = strtoul(optarg, &end, 10);
		if (c == 't')
			throttle_us = strtod(optarg, &end);
		if (c == 'h')
			fputs(usage, stdout);
		if (c == 'h')
			exit(0);
		if (c == '?' || *end || (c == 't' && !(throttle_us > 0)) || n < PAIRS_MIN ||
		    n > PAIRS_MAX || n % PAIRS_BY) {
			fputs(usage, stderr);
			exit(2);
		}
		pairs = (uint32_t)n;
	}
	if (optind < argc && throttle_us <= 0)
		folder = argv[optind++];
	if (optind < argc)
		seconds = atof(argv[optind]);
}

int main(int argc, char **argv)
{
	struct store s = {0};
	struct result one, many;
	struct far_limit far;
	double moved;

	read_options(argc, argv);
	rng_seed(&rng, 7);
	prepare_zipf();
	s.near = near_size();
	printf("{\"tool\": \"bench_kv_far\", \"unit\": \"operations per second; the others for each "
	       "operation\", \"pairs\": %u, \"size\": %llu, \"near\": %llu, \"rows\": [",
	       pairs, (unsigned long long)store_size(), (unsigned long long)near_size());
	if (throttle_us > 0) {
		load.value_len = 8;
		order_rows((uint64_t)(throttle_us * 1000));
		dispatch_rows();
		printf("\n]}\n");
		return 0;
	}
	s.cacheable = 100;
	many = row("out of order", "", &s);
	s.in_flight = 1;
	one = row("in order", "", &s);
	s.cacheable = 60;
	row("in order, 60% cacheable", "", &s);
	s.in_flight = 0;
	row("out of order, 60% cacheable", "", &s);
	snapshot_row();
	moved = many.reads + many.writes;
	far = far_rows(many.writes / moved);
	printf("\n],\n\"out_of_order_times\": %.1f, \"times_at_limit\": %.1f, "
	       "\"far_tier_times\": %.1f}\n",
	       many.rate / one.rate, far.mixed / moved / one.rate, far.many / far.one);
	return 0;
}
