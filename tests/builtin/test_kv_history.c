/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Is the kernel `kv` linearizable for each key? Two connections, with several calls in flight each,
 * run random operations over a link that loses, repeats and reorders packets. Some calls are given
 * up, and one of the connections is killed; then two new ones continue with the same store. The
 * outcome of an operation that was given up or killed is not known. The checker of history.h judges
 * the history of the whole store.
 *
 * tests/nic/mutants.py breaks forwarding, write-backs and the recognition of repeated calls, one at
 * a time; this test must detect each.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "../kv/far_model.h"
#include "../kv/history.h"
#include "builtin/builtin.h"
#include "builtin/kv_store.h"
#include "kvwire/kvwire.h"
#include "rig.h"

#define KEYS	  3000u
#define HOT	  8u /* keys of half of the operations */
#define NEAR	  (64u << 10)
#define OPS	  10000u
#define ROUND	  500u /* operations with the same connections */
#define SLOTS	  6u   /* calls in flight of a connection */
#define EACH	  6u   /* operations of a call */
#define BATCH	  960u
#define SPACE	  4000u
#define COUNT_MAX 60u	  /* elements of a value */
#define IDLE	  300000u /* steps without a call or a reply */

struct call {
	bool busy, given_up;
	unsigned n;
	struct history_op *ops;
};

static struct rig R, *const r = &R;
static struct far_model far;
static struct kv_store *store;
static struct rng rng;
static struct history_op history[KEYS + OPS + EACH];
static size_t num;
static uint64_t now; /* posts and replies, counted */
static uint64_t seen[KEYS];
static struct call calls[RIG_CALLERS][SLOTS];
static bool dead[RIG_CALLERS];
static unsigned given_up[RIG_CALLERS]; /* calls of the round: their slots are not used any more */
static unsigned idle;

/* ---- values ---- */

/*
 * A value is a number, repeated; the upper half of the number gives the count, and sums change its
 * lower half only. So the test detects a value that was written in part.
 */
static unsigned count_of(uint64_t value)
{
	uint64_t id = value >> 32;

	return 1 + (unsigned)(id * 7 % (id % 4 ? 8 : COUNT_MAX));
}

static uint64_t new_value(void)
{
	static uint64_t id;

	return ++id << 32;
}

static uint32_t fill(uint64_t *to, uint64_t value)
{
	unsigned count = count_of(value);

	for (unsigned i = 0; i < count; i++)
		to[i] = value;
	return count * 8;
}

static uint64_t value_of(const void *data, uint32_t len)
{
	uint64_t elements[COUNT_MAX];

	assert_in_range(len, 8, sizeof(elements));
	memcpy(elements, data, len);
	assert_int_equal(len, count_of(elements[0]) * 8);
	for (unsigned i = 1; i < len / 8; i++)
		assert_int_equal(elements[i], elements[0]);
	return elements[0];
}

/* ---- the store ---- */

static void put_all(void)
{
	for (uint64_t k = 0; k < KEYS; k++) {
		uint64_t value[COUNT_MAX], v = new_value();
		struct kv_op op = {.code = KV_PUT,
				   .key = &k,
				   .key_len = 8,
				   .value = value,
				   .value_len = fill(value, v)};

		kv_run(store->kv, &op, 1);
		assert_int_equal(op.status, 0);
		history[num++] = (struct history_op){.key = k,
						     .code = HISTORY_PUT,
						     .start = now + 1,
						     .end = now + 2,
						     .value = v};
		now += 2;
		seen[k] = v;
	}
}

static void open_store(bool with_far)
{
	struct roost_kv_config size = {.size = 4u << 20};
	static const uint8_t secret[KV_SECRET] = {1, 2, 3};
	struct kv_store_far tier = {.near = NEAR, .secret = secret};

	far_model_init(&far, 1, 20);
	if (with_far)
		tier.tier = &far.far;
	assert_int_equal(kv_store_open(&size, &tier, &store), 0);
	num = 0;
	now = 0;
	put_all();
}

/* ---- calls ---- */

static uint64_t draw_key(void)
{
	return rng_below(&rng, 2) ? rng_below(&rng, HOT) * (KEYS / HOT) : rng_below(&rng, KEYS);
}

static void draw(struct history_op *h)
{
	*h = (struct history_op){.key = draw_key(),
				 .code = (uint32_t)rng_below(&rng, HISTORY_ADD + 1),
				 .start = now,
				 .end = HISTORY_OPEN,
				 .batch = now};
	if (h->code == HISTORY_DELETE && rng_below(&rng, 2))
		h->code = HISTORY_PUT;
	if (h->code == HISTORY_PUT || h->code == HISTORY_COMPARE)
		h->value = new_value();
	if (h->code == HISTORY_COMPARE)
		h->expect = seen[h->key];
	if (h->code == HISTORY_ADD)
		h->value = 1 + rng_below(&rng, 1000);
}

static bool add(struct kvwire_writer *w, const struct history_op *h)
{
	static const uint8_t codes[] = {[HISTORY_GET] = ROOST_KV_GET,
					[HISTORY_PUT] = ROOST_KV_PUT,
					[HISTORY_DELETE] = ROOST_KV_DELETE,
					[HISTORY_COMPARE] = ROOST_KV_PUT_COMPARE,
					[HISTORY_ADD] = ROOST_KV_UPDATE_EACH};
	uint64_t value[COUNT_MAX], expect[COUNT_MAX];
	struct roost_kv_op op = {.code = codes[h->code],
				 .key = &h->key,
				 .key_len = 8,
				 .value = value,
				 .expect = expect};

	if (h->code == HISTORY_PUT || h->code == HISTORY_COMPARE)
		op.value_len = fill(value, h->value);
	if (h->code == HISTORY_COMPARE)
		op.expect_len = fill(expect, h->expect);
	if (h->code == HISTORY_ADD) {
		op.type = ROOST_KV_U64;
		op.function = ROOST_KV_ADD;
		op.fetch = true;
		op.value_len = 8;
		value[0] = h->value;
	}
	return kvwire_add(w, &op);
}

static void post(unsigned caller, unsigned slot)
{
	struct call *c = &calls[caller][slot];
	unsigned most = 1 + (unsigned)rng_below(&rng, EACH);
	uint8_t buf[BATCH];
	struct kvwire_writer w;

	now++;
	*c = (struct call){.busy = true, .ops = &history[num]};
	kvwire_begin(&w, buf, sizeof(buf));
	while (c->n < most) {
		draw(&c->ops[c->n]);
		if (!add(&w, &c->ops[c->n]))
			break;
		c->n++;
	}
	assert_true(c->n > 0);
	num += c->n;
	c->given_up = given_up[caller] < SLOTS / 2 && rng_below(&rng, 50) == 0;
	given_up[caller] += c->given_up;
	idle = 0;
	rig_post(r, caller, slot, ROOST_KV_OP, buf, (uint32_t)kvwire_finish(&w, 0), SPACE, 0);
}

static void take_result(struct history_op *h, const struct kvwire_result *got)
{
	bool returns = h->code == HISTORY_GET || h->code == HISTORY_ADD;

	h->end = now;
	h->status = got->status;
	if (got->status != -ENOENT && got->status != -ECANCELED)
		assert_int_equal(got->status, 0);
	if (got->status == (h->code == HISTORY_COMPARE ? -ECANCELED : 0) &&
	    (returns || h->code == HISTORY_COMPARE)) {
		assert_non_null(got->data);
		h->result = value_of(got->data, got->len);
		seen[h->key] = h->result;
	}
	if (h->code == HISTORY_PUT || (h->code == HISTORY_COMPARE && !got->status))
		seen[h->key] = h->value;
	if (h->code == HISTORY_ADD && !got->status)
		seen[h->key] = h->result + h->value;
}

static void poll(unsigned caller, unsigned slot)
{
	struct call *c = &calls[caller][slot];
	struct kvwire_results results;
	struct kvwire_result got;
	struct rig_reply a;

	if (!c->busy || c->given_up || dead[caller] || !rig_poll(r, caller, slot, SPACE, &a))
		return;
	now++;
	idle = 0;
	c->busy = false;
	assert_int_equal(a.status, ROOST_RPC_OK);
	assert_int_equal(kvwire_reply_open(&results, a.data, a.len), 0);
	for (unsigned i = 0; i < c->n; i++) {
		assert_int_equal(kvwire_reply_next(&results, &got), 1);
		take_result(&c->ops[i], &got);
	}
	assert_int_equal(kvwire_reply_next(&results, &got), 0);
}

/* ---- rounds ---- */

static void open_rig(uint64_t seed)
{
	static struct roost_kv_config config;

	config.store = store;
	rig_open(r, seed,
		 &(struct rig_shape){
			 .sp = {.loss = 0.03, .dup = 0.03, .reorder = 0.03, .delay_ns = 1000},
			 .rnr_retry = 7});
	assert_int_equal(runtime_deploy(r->f, kernels_builtin("kv"), &config), 0);
	memset(calls, 0, sizeof(calls));
	memset(dead, 0, sizeof(dead));
	memset(given_up, 0, sizeof(given_up));
}

static void kill_caller(unsigned caller)
{
	struct nic_qp_attr reset = {.state = NIC_QPS_RESET};

	assert_int_equal(ep_modify(&r->caller[caller], &reset, NIC_QPA_STATE), 0);
	dead[caller] = true;
}

static bool awaits_replies(void)
{
	for (unsigned i = 0; i < RIG_CALLERS; i++)
		for (unsigned k = 0; k < SLOTS && !dead[i]; k++)
			if (calls[i][k].busy && !calls[i][k].given_up)
				return true;
	return false;
}

static void play_round(uint64_t seed)
{
	size_t last = num + ROUND, kill_at = num + 1 + rng_below(&rng, ROUND - 1);
	unsigned victim = (unsigned)rng_below(&rng, RIG_CALLERS);

	open_rig(seed);
	while (num < last || awaits_replies()) {
		unsigned caller = (unsigned)rng_below(&rng, RIG_CALLERS);
		unsigned slot = (unsigned)rng_below(&rng, SLOTS);

		if (num < last && !dead[caller] && !calls[caller][slot].busy)
			post(caller, slot);
		rig_step(r);
		assert_true(++idle < IDLE);
		for (unsigned i = 0; i < RIG_CALLERS; i++)
			for (unsigned k = 0; k < SLOTS; k++)
				poll(i, k);
		rig_reap(r);
		if (num >= kill_at && !dead[victim])
			kill_caller(victim);
	}
	rig_close(r);
}

static void play(bool with_far, unsigned ops, uint64_t seed)
{
	struct kv_stat s;
	unsigned open = 0;

	print_message("seed %lu\n", seed);
	rng_seed(&rng, seed);
	open_store(with_far);
	while (num < KEYS + ops - ROUND)
		play_round(seed++);
	assert_true(kv_store_try(store, KV_STORE_SERVES)); /* cancels the operations in flight */
	kv_store_leave(store);
	assert_null(kv_check(store->kv));
	kv_get_stat(store->kv, &s);
	for (size_t i = 0; i < num; i++)
		open += history[i].end == HISTORY_OPEN;
	print_message("%zu operations, %u of unknown outcome; %lu forwarded, %lu parked, "
		      "%lu far writes, %lu writes merged\n",
		      num - KEYS, open, s.forwarded, s.parked, s.far_writes, s.merged);
	assert_true(open > 0);
	if (with_far)
		assert_true(s.forwarded && s.parked && s.far_writes && s.merged);
	kv_store_close(store);
	assert_true(history_check(history, num, stdout));
}

static void linearizable_with_a_far_tier(void **state)
{
	play(true, OPS, 19);
}

static void linearizable(void **state)
{
	play(false, OPS / 2, 190);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(linearizable_with_a_far_tier),
		cmocka_unit_test(linearizable),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
