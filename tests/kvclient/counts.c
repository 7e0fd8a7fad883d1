/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Calls of one operation, as many in flight as a connection allows. test_kv.py runs it.
 *
 *	kv-counts ADDRESS count N	N increments of some counters. Each returns the value
 *					before, so one that is applied twice, or not at all, shows.
 *	kv-counts ADDRESS stop		begins GETs with long replies, stops itself (SIGSTOP), and
 *					takes the replies when it is continued
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "must.h"
#include "roost/kv.h"
#include "roost/node.h"

#define DEPTH	 160u
#define COUNTERS 4u
#define LONG	 10000u

static struct roost_kv *kv;

/* ---- count ---- */

static struct increment {
	struct roost_kv_op op;
	char key[16];
	uint64_t before;
	unsigned counter;
} increments[DEPTH];

static unsigned char *seen[COUNTERS]; /* by the value before */
static unsigned begun, total;

static void begin(struct increment *i)
{
	static const uint64_t one = 1;
	int rc;

	i->counter = begun++ % COUNTERS;
	snprintf(i->key, sizeof(i->key), "counter-%u", i->counter);
	i->op.code = ROOST_KV_UPDATE;
	i->op.type = ROOST_KV_U64;
	i->op.fetch = true;
	i->op.function = ROOST_KV_ADD;
	i->op.key = i->key;
	i->op.key_len = (uint32_t)strlen(i->key);
	i->op.value = &one;
	i->op.value_len = sizeof(one);
	i->op.out = &i->before;
	i->op.out_cap = sizeof(i->before);
	i->op.context = i;
	rc = roost_kv_submit(kv, &i->op);
	must(!rc, "submit", rc);
}

static void counted(struct roost_kv_op *op)
{
	struct increment *i = op->context;

	must(!op->status && op->out_len == 8, "increment", op->status);
	must(i->before < total && !seen[i->counter][i->before], "a value came twice", 0);
	seen[i->counter][i->before] = 1;
	if (begun < total)
		begin(i);
}

static void count(unsigned n)
{
	const uint64_t zero = 0;
	char key[16];
	int rc;

	total = n;
	for (unsigned c = 0; c < COUNTERS; c++) {
		seen[c] = calloc(n, 1);
		snprintf(key, sizeof(key), "counter-%u", c);
		rc = seen[c] ? roost_kv_put(kv, key, strlen(key), &zero, sizeof(zero), 0) : -1;
		must(!rc, "put", rc);
	}
	for (unsigned i = 0; i < DEPTH && begun < total; i++) {
		increments[i].op.complete = counted;
		begin(&increments[i]);
	}
	rc = roost_kv_wait(kv);
	must(!rc, "wait", rc);
	for (unsigned c = 0; c < COUNTERS; c++) {
		uint64_t value = 0;
		size_t len;

		snprintf(key, sizeof(key), "counter-%u", c);
		rc = roost_kv_get(kv, key, strlen(key), &value, sizeof(value), &len);
		must(!rc && value == n / COUNTERS, "the sum is wrong", rc);
	}
}

/* ---- stop ---- */

static struct roost_kv_op gets[DEPTH];

static void stop(void)
{
	static uint8_t value[LONG], out[DEPTH][LONG];
	int rc;

	memset(value, 7, sizeof(value));
	rc = roost_kv_put(kv, "long", 4, value, sizeof(value), 0);
	must(!rc, "put", rc);
	for (unsigned i = 0; i < DEPTH; i++) {
		gets[i] = (struct roost_kv_op){.code = ROOST_KV_GET,
					       .key = "long",
					       .key_len = 4,
					       .out = out[i],
					       .out_cap = LONG};
		rc = roost_kv_submit(kv, &gets[i]);
		must(!rc, "submit", rc);
	}
	puts("stops");
	fflush(stdout);
	raise(SIGSTOP);
	rc = roost_kv_wait(kv);
	must(!rc, "wait", rc);
	for (unsigned i = 0; i < DEPTH; i++)
		must(!gets[i].status && gets[i].out_len == LONG && !memcmp(out[i], value, LONG),
		     "a long value", gets[i].status);
}

int main(int argc, char **argv)
{
	struct roost_kv_attr attr = {.batches = DEPTH, .ops = 1, .timeout_ms = 60000};
	int rc;

	if (argc < 3)
		return 2;
	rc = roost_kv_open(argv[1], ROOST_NODE_SERVICE, &attr, &kv);
	must(!rc, "open", rc);
	if (argc > 3)
		count((unsigned)atoi(argv[3]));
	else
		stop();
	roost_kv_close(kv);
	puts("ok");
	return 0;
}
