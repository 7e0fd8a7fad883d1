/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A client of a store that compares each result with a model: batches of random operations, values
 * of all lengths, many batches at once. Arguments: ADDRESS ROUNDS. test_kv.py runs it.
 */
#include <errno.h>
#include <rdma/rdma_cma.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/rng.h"
#include "roost/kv.h"
#include "roost/node.h"

#define SEED  19
#define KEYS  40u
#define OPS   24u
#define BATCH 6u
#define LONG  60000u

static struct roost_kv *kv;
static struct rng rng;

static void must(int ok, const char *what, int rc)
{
	if (ok)
		return;
	fprintf(stderr, "seed %d: %s: %s\n", SEED, what, strerror(-rc));
	exit(1);
}

static struct {
	int present;
	uint32_t len;
	uint8_t first;
} model[KEYS];

/* A value consists of its first byte, counted up. */
static void fill(uint8_t *value, uint8_t first, uint32_t len)
{
	for (uint32_t i = 0; i < len; i++)
		value[i] = (uint8_t)(first + i);
}

static uint32_t random_len(void)
{
	switch (rng_below(&rng, 16)) {
	case 0:
		return (uint32_t)rng_below(&rng, LONG);
	case 1:
		return (uint32_t)rng_below(&rng, 3000);
	default:
		return (uint32_t)rng_below(&rng, 60);
	}
}

struct slot {
	struct roost_kv_op op;
	unsigned key;
	uint8_t first;
	char text[16];
	uint8_t *value, *out, *expect;
};

static struct slot slots[OPS];

static void draw(struct slot *s, unsigned key)
{
	static const uint8_t some[] = {ROOST_KV_GET,	    ROOST_KV_GET,	  ROOST_KV_PUT,
				       ROOST_KV_PUT_ABSENT, ROOST_KV_PUT_COMPARE, ROOST_KV_DELETE};
	struct roost_kv_op *op = &s->op;

	s->key = key;
	snprintf(s->text, sizeof(s->text), "key-%u", key);
	memset(s->out, 0xee, LONG);
	*op = (struct roost_kv_op){.code = some[rng_below(&rng, sizeof(some))],
				   .key = s->text,
				   .key_len = (uint32_t)strlen(s->text),
				   .value = s->value,
				   .expect = s->expect,
				   .out = s->out,
				   .out_cap = LONG};
	if (op->code == ROOST_KV_GET || op->code == ROOST_KV_DELETE)
		return;
	s->first = (uint8_t)rng_u64(&rng);
	op->value_len = random_len();
	fill(s->value, s->first, op->value_len);
	if (op->code == ROOST_KV_PUT_COMPARE) {
		op->expect_len = model[key].len;
		fill(s->expect, model[key].first, model[key].len);
		if (rng_below(&rng, 2))
			op->expect_len++;
	}
}

static void judge(const struct slot *s)
{
	const struct roost_kv_op *op = &s->op;
	int there = model[s->key].present, store = 0, status = 0;
	uint32_t len = model[s->key].len;

	switch (op->code) {
	case ROOST_KV_GET:
		status = there ? 0 : -ENOENT;
		if (!there)
			break;
		must(op->out_len == len, "the length of a value", 0);
		fill(s->expect, model[s->key].first, len);
		must(!memcmp(s->out, s->expect, len), "a value", 0);
		break;
	case ROOST_KV_PUT:
		store = 1;
		break;
	case ROOST_KV_PUT_ABSENT:
		store = !there;
		status = there ? -EEXIST : 0;
		break;
	case ROOST_KV_PUT_COMPARE:
		store = there && op->expect_len == len;
		status = !there ? -ENOENT : store ? 0 : -ECANCELED;
		break;
	default:
		status = there ? 0 : -ENOENT;
		model[s->key].present = 0;
		model[s->key].len = 0;
	}
	must(op->status == status && op->done, "a status", op->status);
	if (store) {
		model[s->key].present = 1;
		model[s->key].len = op->value_len;
		model[s->key].first = s->first;
	}
}

/* Operations on different keys: they have no order. */
static void rounds(unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		unsigned from = (unsigned)rng_below(&rng, KEYS),
			 count = 1 + (unsigned)rng_below(&rng, OPS);
		int rc;

		for (unsigned k = 0; k < count; k++) {
			draw(&slots[k], (from + k) % KEYS);
			rc = roost_kv_submit(kv, &slots[k].op);
			must(!rc, "submitting", rc);
			if (rng_below(&rng, 8) == 0)
				roost_kv_flush(kv);
		}
		rc = roost_kv_wait(kv);
		must(!rc, "waiting", rc);
		for (unsigned k = 0; k < count; k++)
			judge(&slots[k]);
	}
}

/*
 * Additions by compare and PUT, 200 in flight one after the other: an operation that was applied
 * twice, or not at all, changes the sum.
 */
static void additions(void)
{
	uint64_t sum = 0, next, seen;
	size_t len;
	int rc = roost_kv_put(kv, "sum", 3, &sum, sizeof(sum), 0);

	must(!rc, "a sum", rc);
	for (unsigned i = 0; i < 200; i++) {
		struct roost_kv_op op = {.code = ROOST_KV_PUT_COMPARE,
					 .key = "sum",
					 .key_len = 3,
					 .value = &next,
					 .value_len = 8,
					 .expect = &sum,
					 .expect_len = 8};

		next = sum + i;
		rc = roost_kv_run(kv, &op, 1);
		must(!rc && !op.status, "an addition", rc ? rc : op.status);
		sum = next;
	}
	rc = roost_kv_get(kv, "sum", 3, &seen, sizeof(seen), &len);
	must(!rc && len == 8 && seen == 199 * 200 / 2, "the sum", rc);
}

/* The longest value and key, and longer ones. */
static void limits(void)
{
	uint8_t *big = malloc(ROOST_KV_VALUE_MAX + 1), *back = malloc(ROOST_KV_VALUE_MAX);
	char key[ROOST_KV_KEY_MAX + 1], few[4];
	struct roost_kv_op op;
	size_t len;
	int rc;

	must(big && back, "memory", -ENOMEM);
	memset(key, 'k', sizeof(key));
	for (uint32_t i = 0; i < ROOST_KV_VALUE_MAX; i++)
		big[i] = (uint8_t)(i * 5 + i / 256);
	rc = roost_kv_put(kv, key, ROOST_KV_KEY_MAX, big, ROOST_KV_VALUE_MAX, 0);
	must(!rc, "a PUT of a mebibyte", rc);
	rc = roost_kv_get(kv, key, ROOST_KV_KEY_MAX, back, ROOST_KV_VALUE_MAX, &len);
	must(!rc && len == ROOST_KV_VALUE_MAX && !memcmp(big, back, len), "a GET of a mebibyte",
	     rc);
	rc = roost_kv_get(kv, key, ROOST_KV_KEY_MAX, few, sizeof(few), &len);
	must(rc == -EMSGSIZE && len == ROOST_KV_VALUE_MAX, "a GET that does not fit", rc);
	rc = roost_kv_put(kv, key, ROOST_KV_KEY_MAX, big, ROOST_KV_VALUE_MAX + 1, 0);
	must(rc == -E2BIG, "a PUT of a mebibyte and a byte", rc);
	op = (struct roost_kv_op){.code = ROOST_KV_PUT,
				  .key = key,
				  .key_len = ROOST_KV_KEY_MAX,
				  .value = big,
				  .value_len = ROOST_KV_VALUE_MAX + 1};
	rc = roost_kv_submit(kv, &op);
	must(rc == -E2BIG, "an asynchronous PUT of a mebibyte and a byte", rc);
	rc = roost_kv_get(kv, key, ROOST_KV_KEY_MAX, back, ROOST_KV_VALUE_MAX, &len);
	must(!rc && len == ROOST_KV_VALUE_MAX && !memcmp(big, back, len), "the value is as before",
	     rc);
	rc = roost_kv_put(kv, key, sizeof(key), "", 0, 0);
	must(rc == -E2BIG, "a key that is too long", rc);
	rc = roost_kv_get(kv, key, 0, few, sizeof(few), &len);
	must(rc == -EINVAL, "no key", rc);
	rc = roost_kv_delete(kv, key, ROOST_KV_KEY_MAX);
	must(!rc, "a DELETE", rc);
	free(big);
	free(back);
}

/* A program of an earlier version knows fewer statistics than the node has. */
static void earlier_statistics(void)
{
	uint64_t out[3] = {0, 0, 7};
	struct roost_kv_op op = {.code = ROOST_KV_STAT, .out = out, .out_cap = 2 * sizeof(out[0])};
	int rc = roost_kv_put(kv, "one", 3, "", 0, 0);

	if (!rc)
		rc = roost_kv_run(kv, &op, 1);
	must(!rc && !op.status && op.out_len == op.out_cap, "statistics", rc ? rc : op.status);
	must(out[0] && out[2] == 7, "the first two of the statistics", 0);
}

/* Stores the value that fill() makes. */
static void put(const char *key, uint8_t *space, uint8_t first, uint32_t len)
{
	int rc;

	fill(space, first, len);
	rc = roost_kv_put(kv, key, (uint32_t)strlen(key), space, len, 0);
	must(!rc, "a PUT of a long value", rc);
}

/* A comparison that fails returns a value that is longer than the reply to a batch. */
static void long_comparison(void)
{
	struct roost_kv_op op = {.code = ROOST_KV_PUT_COMPARE,
				 .key = "long",
				 .key_len = 4,
				 .value = "y",
				 .value_len = 1,
				 .expect = "x",
				 .expect_len = 1,
				 .out = slots[0].out,
				 .out_cap = LONG};
	int rc;

	put("long", slots[0].value, 3, 20480);
	rc = roost_kv_run(kv, &op, 1);
	must(!rc && op.status == -ECANCELED && op.out_len == 20480, "a long comparison",
	     rc ? rc : op.status);
	must(!memcmp(op.out, slots[0].value, 20480), "the value of a long comparison", 0);
	op.out_cap = 100;
	rc = roost_kv_run(kv, &op, 1);
	must(!rc && op.status == -ECANCELED && op.out_len == 20480, "a comparison without space",
	     rc ? rc : op.status);
}

/* Operand and old value are each longer than a packet and than the reply to a batch. */
static void long_update(void)
{
	struct roost_kv_op op = {.code = ROOST_KV_UPDATE_VECTOR,
				 .type = ROOST_KV_U8,
				 .function = ROOST_KV_ADD,
				 .fetch = true,
				 .key = "vector",
				 .key_len = 6,
				 .value = slots[1].value,
				 .value_len = LONG,
				 .out = slots[0].out,
				 .out_cap = LONG};
	size_t len;
	int rc;

	put("vector", slots[0].value, 1, LONG);
	memset(slots[1].value, 1, LONG);
	for (unsigned i = 0; i < 4; i++) {
		fill(slots[0].value, (uint8_t)(1 + i), LONG);
		rc = roost_kv_run(kv, &op, 1);
		must(!rc && !op.status && op.out_len == LONG, "an update of a long vector",
		     rc ? rc : op.status);
		must(!memcmp(op.out, slots[0].value, LONG), "the old vector", 0);
	}
	fill(slots[0].value, 5, LONG);
	rc = roost_kv_get(kv, "vector", 6, slots[0].out, LONG, &len);
	must(!rc && !memcmp(slots[0].out, slots[0].value, LONG), "the new vector", rc);
}

/*
 * A value that is longer than `out` takes space in the reply. The operations behind it keep their
 * order.
 */
static void short_out(void)
{
	uint64_t number = 5, old = 0, seen = 0, one = 1, last = 100;
	size_t len;
	struct roost_kv_op ops[] = {{.code = ROOST_KV_PUT_COMPARE,
				     .key = "compared",
				     .key_len = 8,
				     .value = "x",
				     .value_len = 1,
				     .expect = "y",
				     .expect_len = 1},
				    {.code = ROOST_KV_UPDATE,
				     .type = ROOST_KV_U64,
				     .function = ROOST_KV_ADD,
				     .fetch = true,
				     .key = "number",
				     .key_len = 6,
				     .value = &one,
				     .value_len = 8,
				     .out = &old,
				     .out_cap = 8},
				    {.code = ROOST_KV_PUT,
				     .key = "number",
				     .key_len = 6,
				     .value = &last,
				     .value_len = 8}};
	int rc;

	for (uint32_t value_len = 80; value_len < 120; value_len++) {
		put("compared", slots[0].value, 1, value_len);
		rc = roost_kv_put(kv, "number", 6, &number, 8, 0);
		must(!rc, "a number", rc);
		rc = roost_kv_run(kv, ops, 3);
		must(!rc && ops[0].status == -ECANCELED, "a comparison fails", rc);
		must(!ops[1].status && old == number, "the old number", ops[1].status);
		rc = roost_kv_get(kv, "number", 6, &seen, 8, &len);
		must(!rc && seen == last, "the last number", (int)seen);
	}
}

#define SCANNED	   24u /* of few buckets, so that some have more than a long reply takes */
#define SCAN_VALUE 600000u

/* A scan returns all pairs, also those of a bucket whose pairs exceed the longest reply. */
static void long_scan(void)
{
	struct roost_kv_op op = {.code = ROOST_KV_SCAN, .out_cap = ROOST_KV_VALUE_MAX + 65536};
	uint8_t *space = malloc(SCAN_VALUE), *out = malloc(op.out_cap);
	unsigned seen = 0, rounds = 0;
	char key[16];
	int rc;

	must(space && out, "memory", -ENOMEM);
	op.out = out;
	for (unsigned i = 0; i < SCANNED; i++) {
		snprintf(key, sizeof(key), "scan-%02u", i);
		put(key, space, (uint8_t)i, SCAN_VALUE);
	}
	do {
		struct roost_kv_pair pair;
		uint32_t at = 0;

		rc = roost_kv_run(kv, &op, 1);
		must(!rc && !op.status, "a scan", rc ? rc : op.status);
		while (roost_kv_next_pair(&op, &at, &pair, &op.cursor)) {
			unsigned i;

			memcpy(key, pair.key, pair.key_len < 15 ? pair.key_len : 15);
			key[pair.key_len < 15 ? pair.key_len : 15] = 0;
			if (sscanf(key, "scan-%u", &i) != 1 || i >= SCANNED)
				continue;
			fill(space, (uint8_t)i, SCAN_VALUE);
			must(pair.value_len == SCAN_VALUE && !memcmp(pair.value, space, SCAN_VALUE),
			     "a value of a scan", 0);
			seen |= 1u << i;
		}
		must(++rounds < 1000, "a scan ends", 0);
	} while (op.cursor);
	must(seen == (1u << SCANNED) - 1, "a scan has all pairs", 0);
	for (unsigned i = 0; i < SCANNED; i++) {
		snprintf(key, sizeof(key), "scan-%02u", i);
		rc = roost_kv_delete(kv, key, (uint32_t)strlen(key));
		must(!rc, "a DELETE", rc);
	}
	free(space);
	free(out);
}

/*
 * A poll sends a batch that is not full if no other batch is in flight. Otherwise a program that
 * waits for its operations before it begins others would wait for ever.
 */
static void polls_send(void)
{
	struct roost_kv_op *op = &slots[0].op;
	int rc;

	*op = (struct roost_kv_op){.code = ROOST_KV_GET, .key = "none", .key_len = 4};
	rc = roost_kv_submit(kv, op);
	must(!rc, "a submission", rc);
	for (unsigned i = 0; i < 60000 && !op->done; i++) {
		roost_kv_poll(kv);
		if (!op->done)
			usleep(1000);
	}
	must(op->done && op->status == -ENOENT, "an operation that polls send", op->status);
}

static int (*poll_cq)(struct ibv_cq *cq, int n, struct ibv_wc *wc);
static unsigned polls;

static int count_poll(struct ibv_cq *cq, int n, struct ibv_wc *wc)
{
	polls++;
	return poll_cq(cq, n, wc);
}

/*
 * A poll that finds several replies in memory drives the NIC all the same, which otherwise takes
 * the program for one that does not poll. Most of the replies come during the sleep.
 */
static void drives(void)
{
	struct ibv_context **list = rdma_get_devices(NULL);
	struct slot *s = slots;
	int rc = 0;

	must(list && list[0], "the devices", -errno);
	poll_cq = list[0]->ops.poll_cq;
	for (unsigned i = 0; list[i]; i++)
		list[i]->ops.poll_cq = count_poll;
	for (unsigned i = 0; i < 1000 && !polls; i++) {
		for (unsigned k = 0; k < 2 * BATCH; k++) {
			s[k].op = (struct roost_kv_op){
				.code = ROOST_KV_GET, .key = "none", .key_len = 4};
			rc = roost_kv_submit(kv, &s[k].op);
			must(!rc, "a submission", rc);
		}
		usleep(2000);
		roost_kv_poll(kv);
		rc = roost_kv_wait(kv);
		must(!rc, "the end of two batches", rc);
	}
	must(polls > 0, "no poll drives the NIC beside replies that are there", 0);
	for (unsigned i = 0; list[i]; i++)
		list[i]->ops.poll_cq = poll_cq;
	rdma_free_devices(list);
}

int main(int argc, char **argv)
{
	const struct roost_kv_attr attr = {.batches = 8, .ops = BATCH, .timeout_ms = 60000};
	int rc;

	must(argc == 3, "usage: client ADDRESS ROUNDS", 0);
	rng_seed(&rng, SEED);
	for (unsigned i = 0; i < OPS; i++) {
		slots[i].value = malloc(LONG);
		slots[i].out = malloc(LONG);
		slots[i].expect = malloc(LONG + 1);
		must(slots[i].value && slots[i].out && slots[i].expect, "memory", -ENOMEM);
	}
	rc = roost_kv_open(argv[1], ROOST_NODE_SERVICE, &attr, &kv);
	must(!rc, argv[1], rc);
	rounds((unsigned)atoi(argv[2]));
	additions();
	limits();
	earlier_statistics();
	long_comparison();
	long_update();
	short_out();
	long_scan();
	polls_send();
	drives();
	roost_kv_close(kv);
	for (unsigned i = 0; i < OPS; i++) {
		free(slots[i].value);
		free(slots[i].out);
		free(slots[i].expect);
	}
	puts("ok");
	return 0;
}
