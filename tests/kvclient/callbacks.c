/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A client whose callbacks submit their operations again. Arguments: ADDRESS, or the file of a
 * table of partitions. test_kv.py and test_kv_parts.py run it.
 */
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "must.h"
#include "roost/kv.h"
#include "roost/node.h"

#define MANY	  100000u
#define ALONE	  1000u /* operations that travel alone */
#define LONGS	  300u
#define LONG	  20000u /* bytes of a value that needs a call of its own */
#define STACK_MAX 16384u /* bytes between the stack of main() and that of a callback */
#define OPS_MAX	  80u
/* Callbacks that take more than the timeout together, and each of them less */
#define TIMEOUT_MS 4000
#define NAPS	   5u
#define NAP_MS	   1400

static struct roost_kv *kv;
static char *top;
static unsigned done, limit;
static int inside;

static struct slot {
	struct roost_kv_op op;
	char key[32];
	uint8_t out[LONG];
} slots[OPS_MAX];

static void again(struct roost_kv_op *op)
{
	char local;
	int rc;

	must(top - &local < (ptrdiff_t)STACK_MAX, "the stack of a callback", -EOVERFLOW);
	must(!inside, "a callback inside of another one", -EDEADLK);
	must(!op->status, "an operation", op->status);
	if (++done >= limit)
		return;
	inside = 1;
	rc = roost_kv_submit(kv, op);
	inside = 0;
	must(!rc, "a submission by a callback", rc);
}

/* Stores a value for each operation, and keeps n operations going until `most` are done. */
static void keep_going(unsigned n, uint32_t len, unsigned most)
{
	static uint8_t value[LONG];
	int rc;

	done = 0;
	limit = most;
	for (unsigned i = 0; i < n; i++) {
		struct slot *s = &slots[i];

		snprintf(s->key, sizeof(s->key), "callback-%u", i);
		memset(value, (int)(i + 1), len);
		rc = roost_kv_put(kv, s->key, strlen(s->key), value, len, 0);
		must(!rc, "a PUT", rc);
		s->op = (struct roost_kv_op){.code = ROOST_KV_GET,
					     .key = s->key,
					     .key_len = (uint32_t)strlen(s->key),
					     .out = s->out,
					     .out_cap = len,
					     .complete = again};
	}
	for (unsigned i = 0; i < n; i++) {
		rc = roost_kv_submit(kv, &slots[i].op);
		must(!rc, "a submission", rc);
	}
	while (done < limit) {
		rc = roost_kv_poll(kv);
		must(rc >= 0, "a poll", rc);
	}
	rc = roost_kv_wait(kv);
	must(!rc && done == most + n - 1, "the end", rc);
	for (unsigned i = 0; i < n; i++) {
		memset(value, (int)(i + 1), len);
		must(!memcmp(slots[i].out, value, len), "a value", 0);
	}
}

static void note(struct roost_kv_op *op)
{
	*(bool *)op->context = true;
}

static void read_another(struct roost_kv_op *op)
{
	struct roost_kv_op other = *op;
	bool seen = false;
	int rc;

	other.complete = note;
	other.context = &seen;
	rc = roost_kv_run(kv, &other, 1);
	must(!rc && !other.status && other.out_len == 8, "a GET in a callback", rc);
	must(seen, "its own callback", 0);
}

/* A callback that waits gets its operation, and that of others. */
static void waits_inside(void)
{
	for (unsigned i = 0; i < 2; i++) {
		int rc;

		slots[i].op.complete = read_another;
		rc = roost_kv_submit(kv, &slots[i].op);
		must(!rc, "a submission", rc);
	}
	must(!roost_kv_wait(kv) && slots[0].op.done && slots[1].op.done, "both are done", 0);
}

static void take_a_while(struct roost_kv_op *op)
{
	must(!op->status, "an operation of a wait", op->status);
	nanosleep(&(struct timespec){NAP_MS / 1000, NAP_MS % 1000 * 1000000}, NULL);
	done++;
}

/*
 * A wait for operations of the long lane takes more than the timeout. Each of them ends in time, so
 * the connection is healthy.
 */
static void long_wait(void)
{
	int rc = 0;

	done = 0;
	for (unsigned i = 0; i < NAPS; i++) {
		slots[i].op.out_cap = LONG;
		slots[i].op.complete = take_a_while;
		rc = roost_kv_submit(kv, &slots[i].op);
		must(!rc, "a submission", rc);
	}
	while (!done)
		roost_kv_poll(kv);
	slots[NAPS].op = (struct roost_kv_op){.code = ROOST_KV_PUT,
					      .key = "long",
					      .key_len = 4,
					      .value = slots[0].out,
					      .value_len = LONG};
	rc = roost_kv_submit(kv, &slots[NAPS].op);
	must(!rc, "a submission behind them", rc);
	rc = roost_kv_wait(kv);
	must(!rc && done == NAPS && slots[NAPS].op.done && !slots[NAPS].op.status,
	     "the end of a long wait", rc);
}

static void open_one(const char *where, unsigned batches, unsigned ops, int timeout_ms)
{
	const struct roost_kv_attr attr = {
		.batches = batches, .ops = ops, .timeout_ms = timeout_ms};
	char why[300];
	int rc = *where == '/' ? roost_kv_open_table(where, &attr, &kv, why, sizeof(why))
			       : roost_kv_open(where, ROOST_NODE_SERVICE, &attr, &kv);

	must(!rc, where, rc);
}

int main(int argc, char **argv)
{
	char local;

	top = &local;
	must(argc == 2, "usage: kv-callbacks ADDRESS|TABLE", -EINVAL);
	open_one(argv[1], 1, 1, 60000);
	keep_going(3, LONG, LONGS);
	keep_going(2, 8, ALONE);
	waits_inside();
	roost_kv_close(kv);
	open_one(argv[1], 2, 16, 60000);
	keep_going(OPS_MAX, 8, MANY);
	roost_kv_close(kv);
	open_one(argv[1], 16, 64, TIMEOUT_MS);
	keep_going(NAPS, LONG, NAPS);
	long_wait();
	roost_kv_close(kv);
	puts("ok");
	return 0;
}
