/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * `roost kv bench`: the rate and delay of operations on a store. `depth` batches are in flight all
 * the time. Values begin with their key, which each GET checks.
 *
 * The workloads of YCSB: A has 50% PUTs, B 5%, C none. D has 5% PUTs of new keys, and its GETs
 * prefer the newest keys. F has 50% read-modify-writes: a GET, and then a PUT of the same key; they
 * count as one operation.
 */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "base/hist.h"
#include "base/machine.h"
#include "base/rng.h"
#include "cli/kv/kv.h"
#include "cli/commands.h"
#include "cli/term.h"

#define SEED 1

const char *const kv_workloads[] = {"A", "B", "C", "D", "F", NULL};
enum { WORKLOAD_D = 3, WORKLOAD_F = 4 };
static const unsigned put_percents[] = {50, 5, 0, 5, 50};

/* One operation in flight, and its memory. */
struct slot {
	struct roost_kv_op op;
	uint64_t key, began;
	uint8_t *value;
	bool inserts;  /* the PUT of a new key is in flight */
	bool modifies; /* a PUT follows the GET */
	struct slot *next;
};

static struct {
	const struct kv_bench *b;
	struct roost_kv *kv;
	struct slot *slots, *ready;
	uint8_t *values;
	struct rng rng;
	struct hist hist;
	uint64_t now, done, wrong;
	uint64_t keys; /* keys that were stored, or are being stored */
	unsigned put_percent;
	uint64_t round; /* when the first operation of this round was submitted */
	bool now_is_fresh, round_has_begun;
	int err;
	double zeta, eta, alpha, half; /* parameters of the Zipf distribution */
} run;

/* ---- keys ---- */

/*
 * Computes the constants of a Zipf distribution, as in Gray and others, "Quickly generating
 * billion-record synthetic databases" (SIGMOD '94).
 */
static void zipf_prepare(uint64_t n, double skew)
{
	double zeta = 0, two = 1 + pow(0.5, skew);

	for (uint64_t i = 1; i <= n; i++)
		zeta += pow((double)i, -skew);
	run.zeta = zeta;
	run.alpha = 1 / (1 - skew);
	run.half = two;
	run.eta = (1 - pow(2.0 / (double)n, 1 - skew)) / (1 - two / zeta);
}

static uint64_t draw_rank(void)
{
	uint64_t n = run.b->keys, k;
	double u, uz;

	if (run.b->zipf <= 0)
		return rng_below(&run.rng, n);
	u = (double)(rng_u64(&run.rng) >> 11) * 0x1p-53;
	uz = u * run.zeta;
	if (uz < 1)
		return 0;
	if (uz < run.half)
		return 1;
	k = (uint64_t)((double)n * pow(run.eta * u - run.eta + 1, run.alpha));
	return k < n ? k : n - 1;
}

/* Returns the number of keys below the first one that is being stored. */
static uint64_t stored_keys(void)
{
	uint64_t n = run.keys;

	for (uint64_t i = 0; i < run.b->batch * run.b->depth; i++)
		if (run.slots[i].inserts && run.slots[i].key < n)
			n = run.slots[i].key;
	return n;
}

/* ---- operations ---- */

static void on_complete(struct roost_kv_op *op)
{
	struct slot *s = op->context;

	if (!run.now_is_fresh) {
		run.now = clock_ns();
		run.now_is_fresh = true;
		run.round_has_begun = false; /* a submission of the round waited for this */
	}
	s->inserts = false;
	s->modifies = s->modifies && op->code == ROOST_KV_GET;
	if (!s->modifies) {
		hist_add(&run.hist, run.now - s->began);
		run.done++;
	}
	if (op->status)
		run.err = op->status;
	if (op->code == ROOST_KV_GET && run.b->value >= sizeof(s->key) &&
	    (op->out_len != run.b->value || memcmp(s->value, &s->key, sizeof(s->key)) != 0))
		run.wrong++;
	s->next = run.ready;
	run.ready = s;
}

static int submit(struct slot *s, unsigned code, uint64_t key)
{
	struct roost_kv_op *op = &s->op;

	s->key = key;
	*op = (struct roost_kv_op){.code = (uint8_t)code,
				   .key = &s->key,
				   .key_len = sizeof(s->key),
				   .complete = on_complete,
				   .context = s};
	if (code == ROOST_KV_GET) {
		op->out = s->value;
		op->out_cap = (uint32_t)run.b->value;
	} else {
		memcpy(s->value, &key, run.b->value < sizeof(key) ? run.b->value : sizeof(key));
		op->value = s->value;
		op->value_len = (uint32_t)run.b->value;
	}
	return roost_kv_submit(run.kv, op);
}

static int poll_once(void)
{
	run.now_is_fresh = false;
	roost_kv_poll(run.kv);
	return run.err;
}

/* Stores all keys. */
static int load(void)
{
	uint64_t key = 0;
	int rc = 0;

	run.now = clock_ns();
	while (!rc && key < run.b->keys) {
		struct slot *s = run.ready;

		if (!s) {
			rc = poll_once();
			continue;
		}
		run.ready = s->next;
		s->began = run.now;
		rc = submit(s, ROOST_KV_PUT, key++);
	}
	run.keys = key;
	return rc ? rc : roost_kv_wait(run.kv);
}

/* Submits the next operation of the workload. */
static int submit_next(struct slot *s, uint64_t newest)
{
	bool put = run.put_percent && rng_below(&run.rng, 100) < run.put_percent;
	uint64_t key;

	if (s->modifies) /* the value is the one that was read */
		return submit(s, ROOST_KV_PUT, s->key);
	key = draw_rank();
	if (run.b->workload == WORKLOAD_D) {
		s->inserts = put;
		key = put ? run.keys++ : newest - 1 - key;
	} else if (run.b->workload == WORKLOAD_F) {
		s->modifies = put;
		put = false;
	}
	if (!run.round_has_begun) { /* the delay begins when the key has been chosen */
		run.round = clock_ns();
		run.round_has_begun = true;
	}
	s->began = run.round;
	return submit(s, put ? ROOST_KV_PUT : ROOST_KV_GET, key);
}

/*
 * Submits the operations that are ready, at most one round: a submission that waits for the oldest
 * batch makes other operations ready.
 */
static int submit_round(void)
{
	uint64_t left = run.b->batch * run.b->depth;
	uint64_t newest = run.b->workload == WORKLOAD_D ? stored_keys() : 0;
	int rc = 0;

	run.round_has_begun = false;
	for (struct slot *s; !rc && left && (s = run.ready) != NULL; left--) {
		run.ready = s->next;
		run.now_is_fresh = false;
		rc = submit_next(s, newest);
	}
	return rc;
}

static int measure(uint64_t *ns)
{
	uint64_t start = clock_ns(), until = start + run.b->duration_ns;
	int rc = 0;

	hist_reset(&run.hist);
	run.done = 0;
	run.now = start;
	while (!rc && run.now < until) {
		rc = submit_round();
		if (!rc)
			rc = poll_once();
		if (!run.now_is_fresh)
			run.now = clock_ns();
	}
	*ns = run.now - start;
	return rc ? rc : run.err;
}

static bool make_slots(void)
{
	uint64_t n = run.b->batch * run.b->depth;

	run.slots = calloc(n, sizeof(*run.slots));
	run.values = calloc(n, run.b->value + 1);
	if (!run.slots || !run.values)
		return false;
	for (uint64_t i = 0; i < n; i++) {
		run.slots[i].value = run.values + i * (run.b->value + 1);
		run.slots[i].next = run.ready;
		run.ready = &run.slots[i];
	}
	return true;
}

/* The work of a store with a far tier during the measurement. */
static struct {
	bool has_far;
	double forwarded, merged; /* per operation */
	double near_hits;	  /* per access */
} far;

static void compare_stats(const struct roost_kv_stat *a, const struct roost_kv_stat *b)
{
	double n = (double)(b->operations - a->operations);
	double accesses = (double)(b->accesses - a->accesses);

	far.has_far = b->near_hits;
	if (n <= 0 || accesses <= 0)
		return;
	far.forwarded = (double)(b->forwarded - a->forwarded) / n;
	far.merged = (double)(b->merged - a->merged) / n;
	far.near_hits = 1 - (double)(b->far_reads - a->far_reads) / accesses;
}

static void add_far(json_t *o)
{
	if (far.has_far)
		json_object_update_new(o,
				       json_pack("{s:f,s:f,s:f}", "forwarded", far.forwarded,
						 "merged", far.merged, "near_hits", far.near_hits));
}

static void print(uint64_t done, uint64_t ns)
{
	const struct kv_bench *b = run.b;
	double rate = (double)done * 1e9 / (double)ns;
	double p50 = (double)hist_percentile(&run.hist, 50) / 1e3;
	double p99 = (double)hist_percentile(&run.hist, 99) / 1e3;
	json_t *o;

	if (!b->json) {
		printf("%.3f million operations a second, p50 %.1f us, p99 %.1f us (", rate / 1e6,
		       p50, p99);
		if (b->workload < 0)
			printf("%u%% PUT", run.put_percent);
		else
			printf("YCSB %s", kv_workloads[b->workload]);
		printf(", batches of %" PRIu64 ", %" PRIu64 " in flight)\n", b->batch, b->depth);
		if (far.has_far)
			printf("far tier: %.1f%% of the operations forwarded, %.2f writes merged for each, "
			       "%.1f%% of the accesses in near memory\n",
			       100 * far.forwarded, far.merged, 100 * far.near_hits);
		return;
	}
	o = json_pack("{s:s,s:I,s:f,s:f,s:f,s:I,s:I,s:I,s:I,s:I,s:f}", "tool", "kv bench",
		      "operations", (json_int_t)done, "per_second", rate, "p50_us", p50, "p99_us",
		      p99, "batch", (json_int_t)b->batch, "depth", (json_int_t)b->depth, "keys",
		      (json_int_t)b->keys, "value", (json_int_t)b->value, "put_percent",
		      (json_int_t)run.put_percent, "zipf", b->zipf);
	if (b->workload >= 0)
		json_object_set_new(o, "workload", json_string(kv_workloads[b->workload]));
	add_far(o);
	json_dumpf(o, stdout, JSON_COMPACT);
	putchar('\n');
	json_decref(o);
}

int kv_bench_run(const struct opt_command *cmd, struct roost_kv *kv, struct kv_view *view,
		 const struct kv_bench *b)
{
	struct roost_kv_stat before = {0}, after = {0};
	uint64_t ns = 0, done;
	int rc;

	run.b = b;
	run.kv = kv;
	run.put_percent = b->workload < 0 ? (unsigned)b->put_percent : put_percents[b->workload];
	rng_seed(&run.rng, SEED);
	if (b->zipf > 0)
		zipf_prepare(b->keys, b->zipf);
	rc = make_slots() ? load() : -ENOMEM;
	if (!rc)
		rc = kv_view_read(view, &before);
	if (!rc)
		rc = measure(&ns);
	done = run.done;
	if (!rc)
		rc = roost_kv_wait(kv);
	if (!rc)
		rc = kv_view_read(view, &after);
	compare_stats(&before, &after);
	if (!rc && run.wrong)
		rc = opt_failed(cmd, "%" PRIu64 " values were not those of their keys", run.wrong);
	else if (rc)
		rc = opt_failed(cmd, "%s", kv_error(rc));
	else
		print(done, ns);
	return rc;
}
