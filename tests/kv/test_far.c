/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Operations of several clients on a store with a far tier, in virtual time. Operations on one key
 * must have the results of an execution in the order in which they were submitted: this is more
 * than linearizability per key, which allows any order of operations that overlap.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <endian.h>
#include <errno.h>
#include <stdlib.h>

#include "../common/resident.h"
#include "base/mem.h"
#include "base/rng.h"
#include "far_model.h"
#include "kv/kv.h"

#define KEYS	4000u
#define CLIENTS 8u
#define BATCH	24u
#define VALUE	400u /* bytes of the longest value; the first 8 are a number */

static uint8_t secret[KV_SECRET] = {9, 1, 9};
static struct far_model far_model;

static struct kv *open_store(unsigned in_flight, unsigned cacheable, bool evict)
{
	struct kv_config c = {.size = 8 << 20,
			      .inline_max = 20,
			      .secret = secret,
			      .far = &far_model.far,
			      .near = 64 << 10,
			      .cacheable = cacheable,
			      .in_flight = in_flight,
			      .evict = evict};
	struct kv *kv;

	far_model_init(&far_model, 50, 200);
	assert_int_equal(kv_open(&c, &kv), 0);
	return kv;
}

/* Half of the operations are on a sixteenth of the keys, and of these again. */
static uint64_t skewed(struct rng *rng)
{
	uint64_t n = KEYS;

	while (n > 16 && rng_below(rng, 2))
		n /= 16;
	return rng_below(rng, n);
}

static void put_all(struct kv *kv)
{
	for (uint64_t k = 0; k < KEYS; k++) {
		uint8_t value[VALUE] = {(uint8_t)k};
		struct kv_op op = {.code = KV_PUT,
				   .key = &k,
				   .key_len = 8,
				   .value = value,
				   .value_len = VALUE};

		kv_run(kv, &op, 1);
		assert_int_equal(op.status, 0);
	}
}

/* ---- many clients ---- */

struct client {
	struct kv_batch batch;
	struct kv_op ops[BATCH];
	uint64_t keys[BATCH], values[BATCH][VALUE / 8];
	uint8_t outs[BATCH][VALUE + 28], space[BATCH * (VALUE + 28)];
	struct kv_arena arena;
	/* what the map says */
	int status[BATCH];
	uint32_t len[BATCH];
	uint64_t result[BATCH];
	bool busy;
};

static struct {
	bool there;
	uint32_t len;
	uint64_t value;
} map[KEYS];

/* Executes an operation on the map. */
static void expect(struct client *c, unsigned i)
{
	struct kv_op *op = &c->ops[i];
	uint64_t key = c->keys[i];

	c->status[i] = map[key].there || op->code == KV_PUT ? 0 : -ENOENT;
	c->len[i] = map[key].len;
	c->result[i] = map[key].value;
	if (op->code == KV_UPDATE && !c->status[i] && map[key].len != 8)
		c->status[i] = -ERANGE;
	if (c->status[i])
		return;
	if (op->code == KV_PUT) {
		map[key].there = true;
		map[key].len = op->value_len;
		map[key].value = c->values[i][0];
	} else if (op->code == KV_DELETE) {
		map[key].there = false;
	} else if (op->code == KV_UPDATE) {
		map[key].value += c->values[i][0];
	}
}

static void submit(struct kv *kv, struct client *c, struct rng *rng)
{
	static const uint8_t codes[] = {KV_GET,	   KV_GET,    KV_PUT,	KV_PUT,
					KV_UPDATE, KV_UPDATE, KV_DELETE};
	bool arena = rng_below(rng, 2);

	c->batch = (struct kv_batch){.ops = c->ops, .n = 1 + (unsigned)rng_below(rng, BATCH)};
	c->arena = (struct kv_arena){c->space, c->space + sizeof(c->space)};
	for (unsigned i = 0; i < c->batch.n; i++) {
		uint8_t code = codes[rng_below(rng, ARRAY_SIZE(codes))];
		bool lengthy = code == KV_PUT && rng_below(rng, 2);

		c->keys[i] = skewed(rng);
		c->values[i][0] = rng_u64(rng);
		c->ops[i] = (struct kv_op){.code = code,
					   .type = KV_U64,
					   .fn = KV_ADD,
					   .fetch = rng_below(rng, 2),
					   .key = &c->keys[i],
					   .key_len = 8,
					   .value = c->values[i],
					   .value_len = lengthy ? VALUE : 8,
					   .out = c->outs[i],
					   .out_cap = sizeof(c->outs[i]),
					   .arena = arena ? &c->arena : NULL};
		expect(c, i);
	}
	c->busy = true;
	kv_submit(kv, &c->batch);
}

static void check(struct client *c)
{
	const uint8_t *last = c->space;

	for (unsigned i = 0; i < c->batch.n; i++) {
		const struct kv_op *op = &c->ops[i];

		assert_int_equal(op->status, c->status[i]);
		if (op->status || (op->code != KV_GET && !(op->code == KV_UPDATE && op->fetch)))
			continue;
		assert_int_equal(op->out_len, c->len[i]);
		assert_memory_equal(op->out, &c->result[i], 8);
		if (!op->arena)
			continue;
		assert_ptr_equal(op->out, last);
		last += op->out_len;
	}
	c->busy = false;
}

static void play(unsigned in_flight, unsigned cacheable, unsigned batches)
{
	struct kv *kv = open_store(in_flight, cacheable, false);
	struct client *clients = calloc(CLIENTS, sizeof(*clients));
	struct kv_stat s;
	struct rng rng;
	const char *wrong;
	unsigned busy = 0;

	assert_non_null(clients);
	rng_seed(&rng, 31);
	put_all(kv);
	for (unsigned k = 0; k < KEYS; k++) {
		map[k].there = true;
		map[k].len = VALUE;
		map[k].value = htole64(k % 256);
	}
	while (batches || busy) {
		struct client *c = &clients[rng_below(&rng, CLIENTS)];

		if (batches && !c->busy) {
			submit(kv, c, &rng);
			batches--;
		}
		kv_poll(kv, rng_below(&rng, 4) == 0);
		busy = 0;
		for (unsigned i = 0; i < CLIENTS; i++) {
			if (clients[i].busy && kv_finished(&clients[i].batch))
				check(&clients[i]);
			busy += clients[i].busy;
		}
	}
	wrong = kv_check(kv);
	assert_null(wrong);
	kv_get_stat(kv, &s);
	print_message("%lu accesses, %lu far reads, %lu far writes, %lu parked, %lu forwarded, "
		      "%lu writes merged\n",
		      s.reads + s.writes, s.far_reads, s.far_writes, s.parked, s.forwarded,
		      s.merged);
	assert_true(s.far_reads && s.far_writes && s.parked && s.merged);
	if (in_flight != 1)
		assert_true(s.forwarded > 0);
	kv_close(kv);
	assert_true(far_model.closed);
	free(clients);
}

static void clients_share_keys(void **state)
{
	play(0, 100, 1500);
}

static void lines_are_not_cacheable(void **state)
{
	play(0, 1, 700);
}

static void in_order(void **state)
{
	play(1, 50, 300);
}

/* ---- time ---- */

/* Returns the virtual time of operations in batches of 256, half of which are PUTs. */
static uint64_t time_of(unsigned in_flight)
{
	static struct kv_op ops[256];
	static uint64_t keys[256], out[256][VALUE / 8];
	struct kv *kv = open_store(in_flight, 100, false);
	struct rng rng;
	uint64_t start;

	put_all(kv);
	rng_seed(&rng, 12);
	start = far_model.now;
	for (unsigned n = 0; n < 8; n++) {
		for (unsigned i = 0; i < 256; i++) {
			keys[i] = skewed(&rng);
			ops[i] = (struct kv_op){.code = i % 2 ? KV_PUT : KV_GET,
						.key = &keys[i],
						.key_len = 8,
						.value = "constant",
						.value_len = 8,
						.out = out[i],
						.out_cap = sizeof(out[i])};
		}
		kv_run(kv, ops, 256);
	}
	start = far_model.now - start;
	kv_close(kv);
	return start;
}

static void out_of_order_is_faster(void **state)
{
	uint64_t one = time_of(1), many = time_of(0);

	print_message("in order %lu, out of order %lu\n", one, many);
	assert_true(one >= 5 * many);
}

/* The lines of some keys do not come for long. Operations on keys in other lines are finished. */
static void a_parked_key_delays_no_other(void **state)
{
	struct kv *kv = open_store(0, 100, false);
	static struct kv_batch batches[200];
	static struct kv_op ops[200];
	static uint64_t keys[200], out[200][VALUE / 8];
	unsigned done = 0, at_first = 0;
	uint64_t start;

	put_all(kv);
	start = far_model.now;
	/* 128 KiB behind the index; lines are pages */
	far_model.stuck = ((4 << 20) + (64 << 10)) / mem_page_size();
	far_model.stuck_num = (128 << 10) / mem_page_size();
	far_model.stuck_by = 1000000;
	for (unsigned i = 0; i < 200; i++) {
		keys[i] = i * 20;
		ops[i] = (struct kv_op){.code = KV_GET,
					.key = &keys[i],
					.key_len = 8,
					.out = out[i],
					.out_cap = sizeof(out[i])};
		batches[i] = (struct kv_batch){.ops = &ops[i], .n = 1};
		kv_submit(kv, &batches[i]);
	}
	while (done < 200) {
		kv_poll(kv, true);
		done = 0;
		for (unsigned i = 0; i < 200; i++) {
			if (!kv_finished(&batches[i]))
				continue;
			assert_int_equal(ops[i].status, 0);
			assert_int_equal(*(uint8_t *)out[i], (uint8_t)keys[i]);
			done++;
		}
		if (far_model.now - start < 500000)
			at_first = done;
	}
	print_message("%u operations of 200 did not wait for the lines\n", at_first);
	assert_true(at_first > 150 && at_first < 200);
	kv_close(kv);
}

/* ---- ends ---- */

static void a_cancelled_batch_changes_nothing(void **state)
{
	struct kv *kv = open_store(0, 50, false);
	static struct kv_op ops[3][64];
	static uint64_t keys[64], old[64][VALUE / 8];
	struct kv_batch b[3];

	put_all(kv);
	for (unsigned n = 0; n < 3; n++) {
		for (unsigned i = 0; i < 64; i++) {
			keys[i] = i * 61;
			ops[n][i] = (struct kv_op){.code = n == 2 ? KV_GET : KV_PUT,
						   .key = &keys[i],
						   .key_len = 8,
						   .value = n ? "second" : "first",
						   .value_len = 5,
						   .out = old[i],
						   .out_cap = sizeof(old[i])};
		}
		b[n] = (struct kv_batch){.ops = ops[n], .n = 64};
		kv_submit(kv, &b[n]);
	}
	kv_poll(kv, false);
	kv_cancel(kv, &b[0]);
	memset(ops[0], 0xee, sizeof(ops[0]));
	while (!kv_finished(&b[2]))
		kv_poll(kv, true);
	for (unsigned i = 0; i < 64; i++) {
		assert_int_equal(ops[2][i].status, 0);
		assert_memory_equal(old[i], "secon", 5);
	}
	assert_null(kv_check(kv));
	kv_close(kv);
}

static void count_failure(void *ctx, int err)
{
	assert_int_equal(err, -EBADMSG);
	++*(unsigned *)ctx;
}

static void a_broken_tier_ends_operations(void **state)
{
	struct kv *kv = open_store(0, 50, false);
	static struct kv_op ops[256];
	static uint64_t keys[256], out[256][VALUE / 8];
	unsigned failed = 0, reported = 0;
	struct kv_stat stat;

	kv_on_far_error(kv, count_failure, &reported);
	put_all(kv);
	assert_int_equal(reported, 0);
	far_model.fail_at = far_model.started + (160 << 10) / mem_page_size();
	for (unsigned i = 0; i < 256; i++) {
		keys[i] = i * 15;
		ops[i] = (struct kv_op){.code = KV_GET,
					.key = &keys[i],
					.key_len = 8,
					.out = out[i],
					.out_cap = sizeof(out[i])};
	}
	kv_run(kv, ops, 256);
	for (unsigned i = 0; i < 256; i++) {
		if (!ops[i].status)
			assert_int_equal(*(uint8_t *)out[i], (uint8_t)keys[i]);
		else
			assert_int_equal(ops[i].status, -EIO);
		failed += ops[i].status != 0;
	}
	assert_true(failed > 0);
	kv_run(kv, ops, 1);
	assert_int_equal(ops[0].status, -EIO);
	kv_get_stat(kv, &stat);
	assert_true(stat.far_errors > 1); /* many requests fail, and one is reported */
	assert_int_equal(reported, 1);
	kv_close(kv);
}

/* While one client waits for the far tier with all it may have, the next one is served. */
static void a_client_leaves_places(void **state)
{
	struct kv *kv = open_store(0, 100, false);
	static struct kv_op ops[KEYS];
	static uint64_t keys[KEYS], out[KEYS][VALUE / 8];
	struct kv_batch many = {.ops = ops, .n = KEYS - 1, .client = 1};
	struct kv_batch one = {.ops = &ops[KEYS - 1], .n = 1, .client = 2};
	struct kv_batch more = {.ops = &ops[KEYS - 1], .n = 1, .client = 1};

	put_all(kv);
	for (unsigned i = 0; i < KEYS; i++) {
		keys[i] = i;
		ops[i] = (struct kv_op){.code = KV_GET,
					.key = &keys[i],
					.key_len = 8,
					.out = out[i],
					.out_cap = sizeof(out[i])};
	}
	kv_run(kv, &ops[KEYS - 1], 1); /* its lines are near */
	far_model.stopped = true;
	kv_submit(kv, &many);
	for (unsigned i = 0; i < 100; i++)
		kv_poll(kv, false);
	assert_in_range(many.begun - many.ended, 200, KV_IN_FLIGHT - 1);
	kv_submit(kv, &more);
	kv_submit(kv, &one);
	kv_poll(kv, false);
	assert_true(kv_finished(&one));
	assert_int_equal(ops[KEYS - 1].status, 0);
	assert_false(kv_finished(&more));
	kv_cancel(kv, &more);
	far_model.stopped = false;
	while (!kv_finished(&many))
		kv_poll(kv, true);
	for (unsigned i = 0; i < KEYS; i++)
		assert_int_equal(ops[i].status, 0);
	kv_close(kv);
}

/* ---- memory ---- */

#define BIG	  65000u
#define NUM_BIG	  512u
#define SPACE_MAX (16u << 20) /* of 32 MiB in the far tier, and 1 MiB in near memory */

/* Puts or gets all values of BIG bytes, several at a time. */
static void all_big(struct kv *kv, uint8_t code, uint8_t (*values)[BIG])
{
	static struct kv_op ops[8];
	static uint64_t keys[8];

	for (uint64_t k = 0; k < NUM_BIG; k += 8) {
		for (unsigned i = 0; i < 8; i++) {
			keys[i] = k + i;
			memset(values[i], code == KV_PUT ? (int)keys[i] + 1 : 0, BIG);
			ops[i] = (struct kv_op){.code = code,
						.key = &keys[i],
						.key_len = 8,
						.value = values[i],
						.value_len = BIG,
						.out = values[i],
						.out_cap = BIG};
		}
		kv_run(kv, ops, 8);
		for (unsigned i = 0; i < 8; i++) {
			assert_int_equal(ops[i].status, 0);
			assert_int_equal(values[i][0], (uint8_t)(keys[i] + 1));
			assert_int_equal(values[i][BIG - 1], (uint8_t)(keys[i] + 1));
		}
	}
}

static void lines_that_leave_return_their_memory(void **state)
{
	struct kv_config c = {.size = 64 << 20, .secret = secret, .near = 1 << 20};
	uint8_t(*values)[BIG];
	uint64_t before;
	struct kv *kv;

#ifdef __SANITIZE_THREAD__
	print_message("TSan keeps memory for each byte that was ever used\n");
	skip();
#endif
	values = malloc(8 * sizeof(*values));
	assert_non_null(values);
	assert_int_equal(kv_far_file(".", false, &c.far), 0);
	assert_int_equal(kv_open(&c, &kv), 0);
	before = resident_bytes();
	all_big(kv, KV_PUT, values);
	assert_true(resident_bytes() < before + SPACE_MAX);
	all_big(kv, KV_GET, values);
	assert_true(resident_bytes() < before + SPACE_MAX);
	kv_close(kv);
	free(values);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(clients_share_keys),
		cmocka_unit_test(lines_are_not_cacheable),
		cmocka_unit_test(in_order),
		cmocka_unit_test(out_of_order_is_faster),
		cmocka_unit_test(a_parked_key_delays_no_other),
		cmocka_unit_test(a_cancelled_batch_changes_nothing),
		cmocka_unit_test(a_broken_tier_ends_operations),
		cmocka_unit_test(a_client_leaves_places),
		cmocka_unit_test(lines_that_leave_return_their_memory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
