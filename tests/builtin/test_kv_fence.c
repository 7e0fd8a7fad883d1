/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Scans of a store with a far tier, which take many turns, while the fence of the node closes and
 * opens: a scan has all pairs, or says that it may not.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>
#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "../kv/far_model.h"
#include "base/mem.h"
#include "builtin/kv_group.h"
#include "builtin/kv_store.h"
#include "kvwire/kvwire.h"

#define SIZE  1024u /* lines of the store */
#define NEAR  32u   /* lines of near memory */
#define KEYS  4000u
#define VALUE 100u
#define REPLY (1u << 20)
/* turns of a scan at which the fence closes, each in a scan of its own */
#define POINTS 16u

static struct far_model far;
static struct kv_store *store;
static struct kv_fence fence;
static uint8_t reply[REPLY];

static void fill(void)
{
	for (unsigned k = 0; k < KEYS; k++) {
		uint8_t value[VALUE] = {0};
		char key[16];
		struct kv_op put = {.code = KV_PUT, .key = key, .value = value, .value_len = VALUE};

		put.key_len = (uint32_t)snprintf(key, sizeof(key), "key%u", k);
		kv_run(store->kv, &put, 1);
		assert_int_equal(put.status, 0);
	}
}

static void open_store(void)
{
	static struct kv_table table = {
		.version = 3, .partitions = 2, .nodes = 1, .node = {{"a", 1}}};
	struct roost_kv_config size = {.size = SIZE * mem_page_size()};
	static const uint8_t secret[KV_SECRET] = {1, 2, 3};
	struct kv_store_far tier = {
		.tier = &far.far, .near = NEAR * mem_page_size(), .secret = secret};

	memset(table.from, 0xff, sizeof(table.from));
	far_model_init(&far, 1, 20);
	assert_int_equal(kv_store_open(&size, &tier, &store), 0);
	fence.until_ns = UINT64_MAX;
	fence.version = 3;
	store->fence = &fence;
	assert_int_equal(kv_store_set_table(store, &table, "a", 1), 0);
	fill();
}

/*
 * Runs a scan from the start, and closes the fence for `n` turns from turn `closed` on. Returns the
 * number of turns.
 */
static unsigned scan(unsigned closed, unsigned n, struct kvwire_result *got)
{
	struct kvwire_results results;
	struct kvwire_reply w;
	struct kv_group *g;
	unsigned turns = 0;
	bool done;

	assert_true(kv_store_try(store, KV_STORE_SERVES));
	g = kv_store_take_group(store, 1);
	assert_non_null(g);
	g->alone = (struct roost_kv_op){.code = ROOST_KV_SCAN};
	g->scan.data = NULL;
	kv_store_begin_group(store, g);
	assert_true(kvwire_reply_begin(&w, reply, sizeof(reply), 1));
	do {
		fence.until_ns = turns++ - closed < n ? 0 : UINT64_MAX;
		kv_parts_begin(store->parts, store->fence);
		done = kv_store_scan(store, &w, g);
		kv_poll(store->kv, false);
	} while (!done);
	kv_scan_end(store->kv, &g->scan.state);
	kv_store_give_group(store, g);
	kv_store_leave(store);
	assert_int_equal(kvwire_reply_open(&results, reply, kvwire_reply_finish(&w, 0)), 0);
	assert_int_equal(kvwire_reply_next(&results, got), 1);
	return turns;
}

static void a_fence_closes_within_a_scan(void **state)
{
	struct kvwire_result all, got;
	unsigned turns = 0;

	open_store();
	for (unsigned i = 0; i < 3; i++)
		turns = scan(0, 0, &all);
	assert_int_equal(all.status, 0);
	assert_true(turns > 2 * POINTS);
	for (unsigned i = 0; i < POINTS; i++) {
		scan(1 + i * (turns / POINTS), turns / POINTS, &got);
		assert_int_equal(got.status, -ETIMEDOUT);
	}
	scan(0, 0, &got);
	assert_int_equal(got.status, 0);
	assert_int_equal(got.len, all.len);
	assert_null(kv_check(store->kv));
	kv_store_close(store);
	(void)state;
}

static void a_scan_behind_a_closed_fence(void **state)
{
	struct kvwire_result got;
	uint64_t version;

	open_store();
	scan(0, 1, &got);
	assert_int_equal(got.status, -EREMCHG);
	assert_int_equal(got.len, sizeof(version));
	memcpy(&version, got.data, sizeof(version));
	assert_int_equal(le64toh(version), 3);
	scan(0, 0, &got);
	assert_int_equal(got.status, 0);
	kv_store_close(store);
	(void)state;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_fence_closes_within_a_scan),
		cmocka_unit_test(a_scan_behind_a_closed_fence),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
