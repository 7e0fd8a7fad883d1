/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A client of Roost's store, by one thread. Without `rate`, `depth` batches are in flight all the
 * time. With it, batches arrive at this rate of operations, whether earlier ones are done or not
 * (an open loop): evenly spaced, or at random times (a Poisson process). At most `depth` batches
 * are in flight; further ones wait here. The delay of an operation is counted from the time when
 * its batch should have arrived. All slots are used once before the measurement, so that it has no
 * page faults of a new connection.
 *
 *	bench-kv-load at=ADDRESS fill=1 batch=N depth=N keys=N value=BYTES put=PERCENT zipf=SKEW
 *		seconds=S servers=PID,PID rate=N poisson=0|1
 *	bench-kv-load store=TABLE-OF-PARTITIONS ...
 *
 * With a table, `servers` names all nodes, and `depth` batches are in flight for each of them.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common.h"
#include "load.h"
#include "roost/kv.h"
#include "roost/node.h"

#define MOST_BATCHES 160u
#define FEW	     16u /* operations */
#define WARM_NS	     10000000u

struct slot {
	struct roost_kv_op op;
	char key[LOAD_KEY];
	uint64_t since;
	uint8_t *value;
	struct slot *next;
};

static struct load_options o = {.batch = 1, .depth = 1, .keys = 100000, .value = 64, .seconds = 1};
static struct roost_kv *kv;
static struct slot *ready;
static unsigned ready_num, slots_num;
static struct hist hist;
static uint64_t now, done;
static uint64_t round_began; /* the submission of the first operation of a round */
static bool now_is_fresh, round_has_begun;

static void must(int rc, const char *what)
{
	if (!rc)
		return;
	fprintf(stderr, "bench-kv-load: %s: %s\n", what, strerror(-rc));
	exit(1);
}

static unsigned marked(void)
{
	return o.value < LOAD_KEY ? o.value : LOAD_KEY;
}

/* Values end with the last bytes of their key, as far as they fit. */
static void on_complete(struct roost_kv_op *op)
{
	struct slot *s = op->context;
	unsigned n = marked();

	if (!now_is_fresh) {
		now = monotonic_ns();
		now_is_fresh = true;
		round_has_begun = false; /* a submission of the round waited for this */
	}
	must(op->status, "an operation");
	if (op->code == ROOST_KV_GET &&
	    (op->out_len != o.value ||
	     memcmp(s->value + o.value - n, s->key + LOAD_KEY - n, n) != 0))
		load_fail("a value is not that of its key");
	hist_add(&hist, now - s->since);
	done++;
	s->next = ready;
	ready = s;
	ready_num++;
}

/*
 * since: when the operation was due, in an open loop; 0: now. Its delay then begins when the key
 * has been made, as that of a READ of `roost perf` begins when its address has been chosen.
 */
static void submit(bool put, uint64_t key, uint64_t since)
{
	struct slot *s = ready;
	struct roost_kv_op *op = &s->op;
	unsigned n = marked();

	ready = s->next;
	ready_num--;
	load_digits(s->key, key);
	*op = (struct roost_kv_op){.code = put ? ROOST_KV_PUT : ROOST_KV_GET,
				   .key = s->key,
				   .key_len = LOAD_KEY,
				   .complete = on_complete,
				   .context = s};
	if (put) {
		memcpy(s->value + o.value - n, s->key + LOAD_KEY - n, n);
		op->value = s->value;
		op->value_len = o.value;
	} else {
		op->out = s->value;
		op->out_cap = o.value;
	}
	if (!since && !round_has_begun) {
		round_began = monotonic_ns();
		round_has_begun = true;
	}
	s->since = since ? since : round_began;
	must(roost_kv_submit(kv, op), "a submission");
}

static void submit_next(uint64_t since)
{
	bool put = o.put && load_below(100) < o.put;

	submit(put, load_key(), since);
}

static void poll_once(void)
{
	now_is_fresh = false;
	roost_kv_poll(kv);
	if (!now_is_fresh)
		now = monotonic_ns();
}

static void make_slots(unsigned n)
{
	struct slot *slots = calloc(n, sizeof(*slots));
	uint8_t *values = calloc(n, o.value + 1);

	if (!slots || !values)
		load_fail("no memory");
	memset(values, 1, (size_t)n * (o.value + 1)); /* its page faults come before the load */
	for (unsigned i = 0; i < n; i++) {
		slots[i].value = values + (size_t)i * (o.value + 1);
		slots[i].next = ready;
		ready = &slots[i];
	}
	ready_num = slots_num = n;
}

static void fill(void)
{
	for (uint64_t key = 0; key < o.keys;) {
		if (ready)
			submit(true, key++, 0);
		else
			poll_once();
	}
	must(roost_kv_wait(kv), "the end");
}

/* A submission that waits for a batch makes other operations ready: at most one round. */
static void closed_loop(uint64_t until)
{
	while (now < until) {
		round_has_begun = false;
		for (unsigned left = slots_num; left && ready; left--) {
			now_is_fresh = false;
			submit_next(0);
		}
		poll_once();
	}
}

/*
 * Begins only a few operations between two polls, also after a stop of this program. A poll sends
 * what was posted since the last one, so the node would wait while this loop begins the others.
 */
static void open_loop(uint64_t until)
{
	double gap = 1e9 * o.batch / o.rate, next = (double)now;
	unsigned most = o.batch < FEW ? FEW / o.batch : 1;

	while (now < until) {
		for (unsigned k = 0; k < most && (double)now >= next && ready_num >= o.batch; k++) {
			for (unsigned i = 0; i < o.batch; i++)
				submit_next((uint64_t)next);
			next += o.poisson ? -log(1 - load_random()) * gap : gap;
			now_is_fresh = false;
			now = monotonic_ns();
		}
		poll_once();
	}
}

int main(int argc, char **argv)
{
	struct roost_kv_attr attr;
	char why[256] = "";

	load_parse(&o, argc, argv);
	if (o.depth > MOST_BATCHES || o.batch > 1024)
		load_fail("a number is out of range");
	attr = (struct roost_kv_attr){.batches = o.depth, .ops = o.batch};
	must(o.store ? roost_kv_open_table(o.store, &attr, &kv, why, sizeof(why))
		     : roost_kv_open(o.at, ROOST_NODE_SERVICE, &attr, &kv),
	     *why ? why : "the store");
	make_slots(o.batch * o.depth * (o.store ? load_servers() : 1));
	if (o.fill) {
		fill();
	} else {
		load_prepare(&o);
		now = monotonic_ns();
		closed_loop(now + WARM_NS);
		must(roost_kv_wait(kv), "the end of the warm-up");
		load_begin();
		hist_reset(&hist);
		done = 0;
		now = monotonic_ns();
		(o.rate > 0 ? open_loop : closed_loop)(now + (uint64_t)(o.seconds * 1e9));
		load_print("bench-kv-load", done, &hist);
		must(roost_kv_wait(kv), "the end");
	}
	roost_kv_close(kv);
	return 0;
}
