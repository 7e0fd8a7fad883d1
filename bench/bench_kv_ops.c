/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Updates of a node's store through the NIC, after KV-Direct's table 2 and figure 13a: increments
 * of the elements of vectors by one operation, by an operation for each element, which is a key
 * then, and by a client that fetches the vector, changes it and stores it; and atomics on some
 * keys. Prints JSON.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/mem.h"
#include "base/rng.h"
#include "roost/kv.h"
#include "roost/node.h"

#define LONGEST 1024u  /* bytes of a vector */
#define VECTORS 10000u /* of each length */
#define FLIGHT	256u   /* operations in flight */
#define BATCH	32u    /* operations of a call, if a packet holds them */

enum way { UPDATE, UPDATE_FETCH, ELEMENTS, FETCH_STORE, ATOMICS, LOAD };

static const char *const names[] = {
	[UPDATE] = "one operation",
	[UPDATE_FETCH] = "one operation that returns the vector",
	[ELEMENTS] = "a key for each element",
	[FETCH_STORE] = "fetched, changed and stored",
	[ATOMICS] = "the store, batches",
};

struct slot {
	struct roost_kv_op op;
	uint64_t key;
	uint64_t value[LONGEST / 8];
	bool stores; /* the PUT of FETCH_STORE */
	struct slot *next;
};

static struct {
	struct roost_kv *kv;
	enum way way;
	uint32_t bytes;	     /* of a value */
	uint64_t keys, next; /* number of keys; the next key of LOAD */
	uint64_t done;	     /* operations, or pairs of a GET and a PUT */
	struct slot *ready;
	struct rng rng;
} run;

static const uint64_t one = 1;

static void fail(const char *what, int rc)
{
	fprintf(stderr, "bench_kv_ops: %s: %s\n", what, strerror(-rc));
	exit(1);
}

static double clock_s(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void completed(struct roost_kv_op *op)
{
	struct slot *s = op->context;

	if (op->status)
		fail("an operation", op->status);
	if (run.way == FETCH_STORE && !s->stores) {
		for (unsigned i = 0; i < op->out_len / 8; i++)
			s->value[i]++;
		s->stores = true;
	} else {
		s->stores = false;
		run.done++;
	}
	s->next = run.ready;
	run.ready = s;
}

/* Each length has keys of its own. */
static uint64_t draw_key(void)
{
	uint64_t n = run.way == LOAD ? run.next++ : rng_below(&run.rng, run.keys);

	return n << 16 | run.bytes;
}

static void submit(struct slot *s)
{
	struct roost_kv_op *op = &s->op;
	int rc;

	if (!s->stores)
		s->key = draw_key();
	*op = (struct roost_kv_op){.type = ROOST_KV_U64,
				   .function = ROOST_KV_ADD,
				   .key = &s->key,
				   .key_len = sizeof(s->key),
				   .value = &one,
				   .value_len = sizeof(one),
				   .out = s->value,
				   .out_cap = sizeof(s->value),
				   .complete = completed,
				   .context = s};
	if (run.way == LOAD || s->stores) {
		op->code = ROOST_KV_PUT;
		op->value = s->value;
		op->value_len = run.bytes;
	} else if (run.way == FETCH_STORE) {
		op->code = ROOST_KV_GET;
	} else {
		op->code = run.bytes == 8 ? ROOST_KV_UPDATE : ROOST_KV_UPDATE_EACH;
		op->fetch = run.way == UPDATE_FETCH || run.way == ATOMICS;
	}
	rc = roost_kv_submit(run.kv, op);
	if (rc)
		fail("an operation", rc);
}

static bool more(double until)
{
	return run.way == LOAD ? run.next < run.keys : clock_s() < until;
}

/* Returns the operations per second. */
static double measure(enum way way, uint32_t bytes, uint64_t keys, double seconds)
{
	static struct slot slots[FLIGHT];
	double start = clock_s();
	int rc;

	run.way = way;
	run.bytes = bytes;
	run.keys = keys;
	run.next = run.done = 0;
	run.ready = NULL;
	for (unsigned i = 0; i < FLIGHT; i++) {
		slots[i].stores = false;
		slots[i].next = run.ready;
		run.ready = &slots[i];
	}
	while (more(start + seconds)) {
		for (unsigned i = 0; run.ready && i < FLIGHT && more(start + seconds); i++) {
			struct slot *s = run.ready;

			run.ready = s->next;
			submit(s);
		}
		roost_kv_poll(run.kv);
	}
	rc = roost_kv_wait(run.kv);
	if (rc)
		fail("the connection", rc);
	return (double)run.done / (clock_s() - start);
}

static void vectors(uint32_t bytes, double seconds)
{
	measure(LOAD, bytes, VECTORS, 0);
	for (enum way way = UPDATE; way <= FETCH_STORE; way++) {
		bool element = way == ELEMENTS;
		double rate = measure(way, element ? 8 : bytes,
				      element ? VECTORS * bytes / 8 : VECTORS, seconds);

		printf("  {\"table\": \"2\", \"way\": \"%s\", \"bytes\": %u, \"rate\": %.0f},\n",
		       names[way], bytes, rate * (element ? 1 : bytes / 8));
	}
}

/* bench_kv_ops ADDRESS [SECONDS]: SECONDS for each row. */
int main(int argc, char **argv)
{
	const struct roost_kv_attr attr = {
		.batches = 2 * FLIGHT / BATCH, .ops = BATCH, .timeout_ms = 20000};
	double seconds = argc > 2 ? atof(argv[2]) : 0.3;
	int rc = argc > 1 ? roost_kv_open(argv[1], ROOST_NODE_SERVICE, &attr, &run.kv) : -EINVAL;

	if (rc)
		fail("the node", rc);
	rng_seed(&run.rng, 3);
	printf("{\"rows\": [\n");
	measure(LOAD, 8, VECTORS * LONGEST / 8, 0);
	for (uint32_t bytes = 64; bytes <= LONGEST; bytes *= 2)
		vectors(bytes, seconds);
	for (uint64_t keys = 1; keys <= 4096; keys *= 8)
		printf("  {\"figure\": \"13a\", \"way\": \"%s\", \"keys\": %u, \"rate\": %.0f}%s\n",
		       names[ATOMICS], (unsigned)keys, measure(ATOMICS, 8, keys, seconds),
		       keys < 4096 ? "," : "");
	printf("]}\n");
	roost_kv_close(run.kv);
	return 0;
}
