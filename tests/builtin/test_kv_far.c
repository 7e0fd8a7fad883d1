/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The kernel `kv` on a store with a far tier that does not answer for a while: the calls that need
 * it wait, and all other calls are answered.
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
#include "builtin/builtin.h"
#include "builtin/kv_store.h"
#include "kvwire/kvwire.h"
#include "rig.h"

#define VALUE	   100u
#define SIZE	   1024u		       /* lines of the store */
#define NEAR	   32u			       /* lines of near memory */
#define KEYS	   ((unsigned)mem_page_size()) /* a line is a page, so this is many lines */
#define KEYS_MAX   65536u
#define SPACE	   1000u
#define LATE	   64u /* keys that are requested while the far tier does not answer */
#define TURNS	   2000u
#define BOUND	   1000u /* steps of a call */
#define SCAN_SPACE (RIG_REPLY - 8)

static struct rig R, *const r = &R;
static struct far_model far;
static struct kv_store *store;

/* Opens a store, the kernel and its callers. `near`: lines of near memory. */
static void open_rig_near(uint32_t max_steps, uint64_t near)
{
	struct roost_kv_config size = {.size = SIZE * mem_page_size()};
	static const uint8_t secret[KV_SECRET] = {1, 2, 3};
	struct kv_store_far tier = {
		.tier = &far.far, .near = near * mem_page_size(), .secret = secret};
	static struct roost_kv_config config;

	far_model_init(&far, 1, 20);
	assert_int_equal(kv_store_open(&size, &tier, &store), 0);
	config.store = store;
	rig_open(r, 1,
		 &(struct rig_shape){.sp = {.delay_ns = 1000},
				     .cfg = {.max_steps = max_steps},
				     .rnr_retry = 7});
	assert_int_equal(runtime_deploy(r->f, kernels_builtin("kv"), &config), 0);
}

static void open_rig(uint32_t max_steps)
{
	open_rig_near(max_steps, NEAR);
}

static void close_rig(void)
{
	assert_null(kv_check(store->kv));
	rig_close(r);
	kv_store_close(store);
	assert_true(far.closed);
}

struct text {
	char key[16];
	uint8_t value[VALUE];
};

static struct roost_kv_op op_of(struct text *t, unsigned code, unsigned k)
{
	struct roost_kv_op op = {.code = (uint8_t)code, .key = t->key, .value = t->value};

	op.key_len = (uint32_t)snprintf(t->key, sizeof(t->key), "key%u", k);
	if (code == ROOST_KV_PUT || code == ROOST_KV_MOVE_PUT)
		op.value_len = VALUE;
	if (code == ROOST_KV_MOVE_PUT || code == ROOST_KV_MOVE_DELETE)
		op.cursor = store->parts->version;
	memset(t->value, (int)(k * 7 % 251), VALUE);
	return op;
}

static uint32_t batch_of(uint8_t *buf, size_t len, unsigned code, unsigned k, unsigned n)
{
	struct kvwire_writer w;
	struct text t;

	kvwire_begin(&w, buf, len);
	for (unsigned i = 0; i < n; i++) {
		struct roost_kv_op op = op_of(&t, code, k + i);

		assert_true(kvwire_add(&w, &op));
	}
	return (uint32_t)kvwire_finish(&w, 0);
}

static void post(unsigned caller, unsigned slot, unsigned code, unsigned k, unsigned n)
{
	uint8_t buf[960];
	uint32_t len = batch_of(buf, sizeof(buf), code, k, n);

	rig_post(r, caller, slot, ROOST_KV_OP, buf, len, SPACE, 0);
}

/* Waits for a reply. All of its `n` results have this status. */
static void await_status(unsigned caller, unsigned slot, unsigned n, int status)
{
	struct rig_reply a = rig_wait(r, caller, slot, SPACE);
	struct kvwire_results results;
	struct kvwire_result got;

	assert_int_equal(a.status, ROOST_RPC_OK);
	assert_int_equal(kvwire_reply_open(&results, a.data, a.len), 0);
	for (unsigned i = 0; i < n; i++) {
		assert_int_equal(kvwire_reply_next(&results, &got), 1);
		assert_int_equal(got.status, status);
	}
	assert_int_equal(kvwire_reply_next(&results, &got), 0);
	rig_reap(r);
}

/* Checks the reply to GETs of `n` keys from k, or to PUTs. */
static void check(const struct rig_reply *a, unsigned code, unsigned k, unsigned n)
{
	struct kvwire_results results;
	struct kvwire_result got;
	uint8_t value[VALUE];

	assert_int_equal(a->status, ROOST_RPC_OK);
	assert_int_equal(kvwire_reply_open(&results, a->data, a->len), 0);
	for (unsigned i = 0; i < n; i++) {
		assert_int_equal(kvwire_reply_next(&results, &got), 1);
		assert_int_equal(got.status, 0);
		if (code != ROOST_KV_GET)
			continue;
		memset(value, (int)((k + i) * 7 % 251), VALUE);
		assert_int_equal(got.len, VALUE);
		assert_memory_equal(got.data, value, VALUE);
	}
	assert_int_equal(kvwire_reply_next(&results, &got), 0);
}

static void await(unsigned caller, unsigned slot, unsigned code, unsigned k, unsigned n)
{
	struct rig_reply a = rig_wait(r, caller, slot, SPACE);

	check(&a, code, k, n);
	rig_reap(r);
}

static void fill(void)
{
	for (unsigned k = 0; k < KEYS; k += 8) {
		post(0, 0, ROOST_KV_PUT, k, 8);
		await(0, 0, ROOST_KV_PUT, k, 8);
	}
}

static bool answered(unsigned caller, unsigned slot)
{
	struct rig_reply a;

	return rig_poll(r, caller, slot, SPACE, &a);
}

static void run(unsigned turns)
{
	while (turns--)
		assert_true(rig_step(r));
}

static void end_caller(void)
{
	struct nic_qp_attr reset = {.state = NIC_QPS_RESET};

	assert_int_equal(ep_modify(&r->node[0], &reset, NIC_QPA_STATE), 0);
}

/*
 * Caller 0 requests LATE keys, some of which are far, while the far tier does not answer. Returns
 * the number of calls that wait: their slots are the last ones.
 */
static unsigned hold(void)
{
	unsigned waiting = 0;

	/* Repeats this until all lines that leave have left. */
	for (unsigned i = 0; i < 200; i++) {
		post(1, 0, ROOST_KV_GET, KEYS - 1, 1);
		await(1, 0, ROOST_KV_GET, KEYS - 1, 1);
	}
	far.stopped = true;
	for (unsigned i = 0; i < LATE / 2; i++)
		post(0, i, ROOST_KV_GET, 2 * i, 2);
	run(TURNS);
	for (unsigned i = 0; i < LATE / 2; i++)
		waiting += !answered(0, i);
	return waiting;
}

static void others_are_answered(void **state)
{
	unsigned waiting;

	open_rig(0);
	fill();
	waiting = hold();
	printf("%u of %u calls wait\n", waiting, LATE / 2);
	assert_true(waiting >= LATE / 8);
	for (unsigned i = 0; i < 100; i++) {
		post(1, 1, ROOST_KV_GET, KEYS - 1, 1);
		await(1, 1, ROOST_KV_GET, KEYS - 1, 1);
	}
	for (unsigned i = 0, n = 0; i < LATE / 2; i++) {
		n += !answered(0, i);
		assert_true(n <= waiting);
	}
	far.stopped = false;
	for (unsigned i = 0; i < LATE / 2; i++)
		await(0, i, ROOST_KV_GET, 2 * i, 2);
	close_rig();
}

/* A call may wait for longer than its bound of steps. */
static void longer_than_the_bound(void **state)
{
	struct runtime_counters ctr;
	unsigned waiting;

	open_rig(BOUND);
	fill();
	waiting = hold();
	ctr = rig_counters(r);
	assert_true(waiting >= LATE / 8);
	while (rig_counters(r).steps < ctr.steps + (uint64_t)waiting * 2 * BOUND)
		run(TURNS);
	far.stopped = false;
	for (unsigned i = 0; i < LATE / 2; i++)
		await(0, i, ROOST_KV_GET, 2 * i, 2);
	close_rig();
}

/* The connection ends while its calls wait. The store does not use their memory any more. */
static void caller_gone(void **state)
{
	unsigned waiting;

	open_rig(0);
	fill();
	waiting = hold();
	assert_true(waiting >= LATE / 8);
	post(0, LATE / 2, ROOST_KV_PUT, 1, 1);
	run(TURNS);
	end_caller();
	post(1, 1, ROOST_KV_GET, KEYS - 1, 1);
	await(1, 1, ROOST_KV_GET, KEYS - 1, 1);
	assert_ptr_equal(store->dropped, NULL);
	far.stopped = false;
	for (unsigned k = 0; k < LATE; k += 8) {
		post(1, 2, ROOST_KV_GET, k, 8);
		await(1, 2, ROOST_KV_GET, k, 8);
	}
	close_rig();
}

/*
 * A node without a lease serves no key. An operation that began with the lease and ends without it
 * may have been done, and is not acknowledged.
 */
static void a_fence_closes(void **state)
{
	static struct kv_table table = {
		.version = 3, .partitions = 2, .nodes = 1, .node = {{"a", 1}}};
	struct kv_fence fence = {.until_ns = UINT64_MAX, .version = 3};
	bool waits[LATE / 2];
	unsigned waiting;

	memset(table.from, 0xff, sizeof(table.from));
	open_rig(0);
	store->fence = &fence;
	assert_int_equal(kv_store_set_table(store, &table, "a", 1), 0);
	fill();
	/* The table of the store is older than the lease requires. */
	fence.version = 4;
	post(1, 1, ROOST_KV_PUT, 1, 1);
	await_status(1, 1, 1, -EREMCHG);
	fence.version = 3;
	waiting = hold();
	assert_true(waiting >= LATE / 8);
	for (unsigned i = 0; i < LATE / 2; i++)
		waits[i] = !answered(0, i);
	fence.until_ns = kv_fence_now();
	post(1, 1, ROOST_KV_GET, KEYS - 1, 1);
	await_status(1, 1, 1, -EREMCHG);
	far.stopped = false;
	for (unsigned i = 0; i < LATE / 2; i++)
		await_status(0, i, 2, waits[i] ? -ETIMEDOUT : 0);
	fence.until_ns = UINT64_MAX;
	post(1, 1, ROOST_KV_GET, KEYS - 1, 1);
	await(1, 1, ROOST_KV_GET, KEYS - 1, 1);
	close_rig();
}

/* The connection ends while a thread that takes a snapshot owns the store. */
static void caller_gone_in_a_snapshot(void **state)
{
	open_rig(0);
	fill();
	assert_true(hold() >= LATE / 8);
	assert_true(kv_store_try(store, KV_STORE_READS));
	end_caller();
	assert_non_null(store->dropped);
	kv_store_leave(store);
	far.stopped = false;
	for (unsigned k = 0; k < LATE; k += 8) {
		post(1, 2, ROOST_KV_GET, k, 8);
		await(1, 2, ROOST_KV_GET, k, 8);
	}
	assert_null(store->dropped);
	close_rig();
}

/* A batch that came as payload waits, and other calls of the same connection are answered. */
static void payload_waits(void **state)
{
	uint8_t *batch;
	uint32_t len;

	open_rig(0);
	fill();
	assert_true(hold() >= LATE / 8);
	batch = r->caller[1].mem + RIG_PAYLOAD;
	len = batch_of(batch, RIG_MEM - RIG_PAYLOAD, ROOST_KV_PUT, 1000, 40);
	rig_post(r, 1, 1, ROOST_KV_OP, NULL, 0, SPACE, ROOST_RPC_STREAM);
	rig_post_payload(r, 1, ROOST_KV_OP, len);
	post(1, 2, ROOST_KV_GET, KEYS - 1, 1);
	await(1, 2, ROOST_KV_GET, KEYS - 1, 1);
	run(TURNS);
	assert_false(answered(1, 1));
	far.stopped = false;
	await(1, 1, ROOST_KV_PUT, 1000, 40);
	for (unsigned i = 0; i < LATE / 2; i++)
		await(0, i, ROOST_KV_GET, 2 * i, 2);
	close_rig();
}

#define WIDE                                                                                       \
	30u /* keys of a call, in all slots of a caller: more than the reservation station has */

/*
 * One connection has more operations than the station has entries; operations of another connection
 * are answered meanwhile.
 */
static void one_caller_leaves_places(void **state)
{
	uint8_t buf[960];

	open_rig(0);
	fill();
	assert_true(hold() >= LATE / 8);
	for (unsigned i = LATE / 2; i < RIG_SLOTS; i++) {
		uint32_t len = batch_of(buf, sizeof(buf), ROOST_KV_GET, WIDE * i, WIDE);

		rig_post(r, 0, i, ROOST_KV_OP, buf, len, RIG_REPLY - 8, 0);
	}
	run(TURNS);
	for (unsigned i = 0; i < 100; i++) {
		post(1, 1, ROOST_KV_GET, KEYS - 1, 1);
		run(TURNS);
		assert_true(answered(1, 1));
		await(1, 1, ROOST_KV_GET, KEYS - 1, 1);
	}
	far.stopped = false;
	for (unsigned i = LATE / 2; i < RIG_SLOTS; i++) {
		struct rig_reply a = rig_wait(r, 0, i, RIG_REPLY - 8);

		check(&a, ROOST_KV_GET, WIDE * i, WIDE);
	}
	close_rig();
}

/* Groups are shared in the same way: one connection may have more calls than there are groups. */
static void groups_are_shared(void **state)
{
	static struct kv_group *groups[KV_STORE_GROUPS + 1];
	unsigned n = 0, others = 0;

	open_rig(0);
	while ((groups[n] = kv_store_take_group(store, 1)) != NULL)
		n++;
	assert_in_range(n, KV_STORE_GROUPS * 3 / 4, KV_STORE_GROUPS - 1);
	/* Each further connection finds at least one group. */
	for (unsigned client = 2; client < 6; client++)
		while ((groups[n + others] = kv_store_take_group(store, client)) != NULL)
			others++;
	assert_in_range(others, 4, KV_STORE_GROUPS - n);
	/* The connection with the most groups does not get the group that is given back. */
	kv_store_give_group(store, groups[--n]);
	assert_ptr_equal(kv_store_take_group(store, 1), NULL);
	groups[n] = kv_store_take_group(store, 7);
	assert_non_null(groups[n]);
	for (unsigned i = 0; i < n + 1 + others; i++)
		kv_store_give_group(store, groups[i]);
	close_rig();
}

/* ---- scans ---- */

static void post_scan(unsigned caller, unsigned slot, uint64_t cursor)
{
	struct roost_kv_op op = {.code = ROOST_KV_SCAN, .cursor = cursor};
	struct kvwire_writer w;
	uint8_t buf[64];

	kvwire_begin(&w, buf, sizeof(buf));
	assert_true(kvwire_add(&w, &op));
	rig_post(r, caller, slot, ROOST_KV_OP, buf, (uint32_t)kvwire_finish(&w, 0), SCAN_SPACE, 0);
}

static unsigned scanned; /* pairs in the replies to scans */

/* Marks the pairs of the reply to a scan in `seen`. Returns the next cursor. */
static uint64_t take_scan(unsigned caller, unsigned slot, bool *seen)
{
	struct rig_reply a = rig_wait(r, caller, slot, SCAN_SPACE);
	struct kvwire_results results;
	struct kvwire_result got;
	struct roost_kv_pair pair;
	uint64_t next;
	size_t at = KVWIRE_CURSOR, len;

	assert_int_equal(a.status, ROOST_RPC_OK);
	assert_int_equal(kvwire_reply_open(&results, a.data, a.len), 0);
	assert_int_equal(kvwire_reply_next(&results, &got), 1);
	assert_int_equal(got.status, 0);
	assert_false(got.cut);
	while ((len = kvwire_get_pair(got.data + at, got.len - at, &pair)) != 0) {
		char key[16] = {0};
		uint8_t value[VALUE];
		unsigned k;

		assert_in_range(pair.key_len, 4, sizeof(key) - 1);
		memcpy(key, pair.key, pair.key_len);
		k = (unsigned)strtoul(key + 3, NULL, 10);
		memset(value, (int)(k * 7 % 251), VALUE);
		assert_int_equal(pair.value_len, VALUE);
		assert_memory_equal(pair.value, value, VALUE);
		assert_in_range(k, 0, KEYS - 1);
		seen[k] = true;
		scanned++;
		at += len;
	}
	assert_int_equal(at, got.len);
	memcpy(&next, got.data, sizeof(next));
	rig_reap(r);
	return next;
}

/* A scan waits for lines, and all other calls are answered meanwhile. It visits all pairs. */
static void a_scan_waits(void **state)
{
	static bool seen[KEYS_MAX];
	uint64_t cursor = 0, turns = 0;
	unsigned count = 0;

	/*
	 * The lines that scans and the growth of the index hold leave space for the lines of one
	 * key.
	 */
	open_rig_near(0, 2 * NEAR);
	fill();
	do {
		/* This key's line stays near: it was used just now. */
		far.stopped = false;
		post(1, 1, ROOST_KV_GET, KEYS - 1, 1);
		await(1, 1, ROOST_KV_GET, KEYS - 1, 1);
		far.stopped = true;
		post_scan(1, 2, cursor);
		run(TURNS);
		turns += !answered(1, 2);
		post(1, 1, ROOST_KV_GET, KEYS - 1, 1);
		await(1, 1, ROOST_KV_GET, KEYS - 1, 1);
		far.stopped = false;
		cursor = take_scan(1, 2, seen);
	} while (cursor);
	for (unsigned k = 0; k < KEYS; k++)
		count += seen[k];
	assert_int_equal(count, KEYS);
	assert_true(turns > 10); /* replies that had to wait */
	close_rig();
}

/* The index has fewer buckets than a call visits. The scan ends with the last one. */
static void a_scan_of_a_small_store_ends(void **state)
{
	static bool seen[KEYS_MAX];

	open_rig(0);
	post(1, 1, ROOST_KV_PUT, 7, 1);
	await(1, 1, ROOST_KV_PUT, 7, 1);
	scanned = 0;
	post_scan(1, 2, 0);
	assert_int_equal(take_scan(1, 2, seen), 0);
	assert_int_equal(scanned, 1);
	close_rig();
}

/* One caller has more scans than may wait. It ends, and the lines that the scans held leave. */
static void scans_of_a_caller_that_ends(void **state)
{
	static bool seen[KEYS_MAX];
	uint64_t cursor = 0;

	open_rig(0);
	fill();
	for (unsigned i = 0; i < 200; i++) {
		post(1, 0, ROOST_KV_GET, KEYS - 1, 1);
		await(1, 0, ROOST_KV_GET, KEYS - 1, 1);
	}
	far.stopped = true;
	for (unsigned i = 0; i < RIG_SLOTS; i++)
		post_scan(0, i, 8 * i);
	run(TURNS);
	post_scan(1, 2, 0);
	end_caller();
	post(1, 1, ROOST_KV_GET, KEYS - 1, 1);
	await(1, 1, ROOST_KV_GET, KEYS - 1, 1);
	far.stopped = false;
	cursor = take_scan(1, 2, seen);
	assert_int_not_equal(cursor, 0);
	while (cursor) {
		post_scan(1, 3, cursor);
		cursor = take_scan(1, 3, seen);
	}
	for (unsigned k = 0; k < KEYS; k++)
		assert_true(seen[k]);
	close_rig();
}

/* ---- partitions that move ---- */

#define OWN	"10.0.0.1"
#define SERVICE 4792u

/*
 * All keys are in one partition: owner and `from` are the indexes of nodes, and node 0 is this one.
 */
static void set_table(uint64_t version, unsigned owner, unsigned from)
{
	static struct kv_table t;

	t = (struct kv_table){.version = version,
			      .partitions = 1,
			      .nodes = 2,
			      .node = {{OWN, SERVICE}, {"10.0.0.2", SERVICE}},
			      .owner = {(uint16_t)owner},
			      .from = {(uint16_t)from}};
	assert_int_equal(kv_store_set_table(store, &t, OWN, SERVICE), 0);
}

static void post_one(unsigned caller, unsigned slot, const struct roost_kv_op *op)
{
	struct kvwire_writer w;
	uint8_t buf[512];

	kvwire_begin(&w, buf, sizeof(buf));
	assert_true(kvwire_add(&w, op));
	rig_post(r, caller, slot, ROOST_KV_OP, buf, (uint32_t)kvwire_finish(&w, 0), SPACE, 0);
}

/* Returns the result of one operation, and copies its data to `out`. */
static int take_one(unsigned caller, unsigned slot, void *out, size_t cap)
{
	struct rig_reply a = rig_wait(r, caller, slot, SPACE);
	struct kvwire_results results;
	struct kvwire_result got;

	assert_int_equal(a.status, ROOST_RPC_OK);
	assert_int_equal(kvwire_reply_open(&results, a.data, a.len), 0);
	assert_int_equal(kvwire_reply_next(&results, &got), 1);
	memset(out, 0, cap);
	if (!got.cut && got.len)
		memcpy(out, got.data, got.len < cap ? got.len : cap);
	rig_reap(r);
	return got.status;
}

static uint64_t table_version(void)
{
	struct roost_kv_op op = {.code = ROOST_KV_STAT};
	struct roost_kv_stat s;

	post_one(1, 5, &op);
	assert_int_equal(take_one(1, 5, &s, sizeof(s)), 0);
	return le64toh(s.table_version);
}

/*
 * Posts a store of a value of one byte for a key whose line is far. Returns false if the line is
 * near.
 */
static bool post_far(unsigned code, unsigned k, uint8_t byte)
{
	struct text t;
	struct roost_kv_op op = op_of(&t, code, k);

	op.value = &byte;
	op.value_len = 1;
	post_one(0, k, &op);
	run(TURNS);
	return !answered(0, k);
}

static uint8_t value_of(unsigned k)
{
	struct text t;
	struct roost_kv_op op = op_of(&t, ROOST_KV_GET, k);
	uint8_t byte;

	post_one(1, 4, &op);
	assert_int_equal(take_one(1, 4, &byte, 1), 0);
	return byte;
}

/* Begins a store that waits for the far tier, which does not answer. Returns its key. */
static unsigned begin_store(unsigned code, uint8_t byte)
{
	unsigned k = 0;

	/* Repeats this until all lines that leave have left. */
	for (unsigned i = 0; i < 200; i++)
		table_version();
	far.stopped = true;
	while (!post_far(code, k, byte))
		assert_true(++k < LATE);
	return k;
}

/*
 * A PUT waits for the far tier when its partition begins to move. The node does not say that it has
 * the new table before the PUT is done, so that the copy has it.
 */
static void a_move_waits_for_older_stores(void **state)
{
	struct roost_kv_op scan = {.code = ROOST_KV_SCAN, .function = ROOST_KV_SCAN_LEAVING};
	uint8_t pairs[SPACE];
	unsigned k;

	open_rig(0);
	set_table(1, 0, KV_TABLE_NOBODY);
	fill();
	k = begin_store(ROOST_KV_PUT, 201);
	assert_int_equal(table_version(), 1);
	set_table(2, 1, 0);
	assert_int_equal(table_version(), 1);
	far.stopped = false;
	while (!answered(0, k))
		run(1);
	assert_int_equal(table_version(), 2);
	post_one(1, 2, &scan);
	assert_int_not_equal(take_one(1, 2, pairs, sizeof(pairs)), -EOPNOTSUPP);
	set_table(3, 0, KV_TABLE_NOBODY);
	assert_int_equal(value_of(k), 201);
	close_rig();
}

/* The pair of a move waits for the far tier when the node becomes the owner: it is stored first. */
static void a_moved_pair_is_older(void **state)
{
	struct roost_kv_op op;
	struct roost_kv_stat s;
	struct text t;
	uint8_t byte = 203;
	unsigned k;

	open_rig(0);
	set_table(1, 0, KV_TABLE_NOBODY);
	fill();
	set_table(2, 0, 1);
	k = begin_store(ROOST_KV_MOVE_PUT, 202);
	set_table(3, 0, KV_TABLE_NOBODY);
	op = op_of(&t, ROOST_KV_PUT, k);
	op.value = &byte;
	op.value_len = 1;
	post_one(1, 3, &op);
	post_one(1, 5, &(struct roost_kv_op){.code = ROOST_KV_STAT}); /* needs no line */
	run(TURNS);
	assert_false(answered(1, 3));
	assert_false(answered(1, 5));
	far.stopped = false;
	assert_int_equal(take_one(1, 5, &s, sizeof(s)), 0);
	assert_int_equal(take_one(1, 3, &byte, 1), 0);
	assert_int_equal(take_one(0, k, &byte, 1), 0);
	assert_int_equal(value_of(k), 203);
	assert_int_equal(table_version(), 3);
	close_rig();
}

/* A pair that leaves has the time until it expires, not a second of the node's clock. */
static void a_leaving_pair_has_its_time_to_live(void **state)
{
	struct roost_kv_op op, scan = {.code = ROOST_KV_SCAN, .function = ROOST_KV_SCAN_LEAVING};
	uint32_t before, after, ttl[2];
	size_t at = KVWIRE_CURSOR;
	struct roost_kv_pair pair;
	uint8_t pairs[SPACE];
	struct text t;

	open_rig(0);
	set_table(1, 0, KV_TABLE_NOBODY);
	before = kv_store_now();
	for (unsigned k = 0; k < 2; k++) {
		op = op_of(&t, ROOST_KV_PUT, k);
		op.ttl = k * 600;
		post_one(1, 0, &op);
		assert_int_equal(take_one(1, 0, pairs, sizeof(pairs)), 0);
	}
	set_table(2, 1, 0);
	post_one(1, 2, &scan);
	assert_int_equal(take_one(1, 2, pairs, sizeof(pairs)), 0);
	after = kv_store_now();
	for (unsigned i = 0; i < 2; i++) {
		at += kvwire_get_pair(pairs + at, sizeof(pairs) - at, &pair);
		memcpy(&ttl[pair.key[3] - '0'], pairs + at, 4);
		at += 4;
	}
	assert_int_equal(ttl[0], 0);
	assert_in_range(le32toh(ttl[1]), 600 - (after - before), 600);
	close_rig();
}

/* Moves add and remove pairs whose lines are on the far tier. */
static void pairs_move(void **state)
{
	struct text t;
	uint8_t byte;

	open_rig(0);
	set_table(1, 0, 1);
	for (unsigned k = 0; k < KEYS; k += 8) {
		post(0, 0, ROOST_KV_MOVE_PUT, k, 8);
		await(0, 0, ROOST_KV_MOVE_PUT, k, 8);
	}
	set_table(2, 0, KV_TABLE_NOBODY);
	for (unsigned k = 0; k < KEYS; k += 8) {
		post(0, 0, ROOST_KV_GET, k, 8);
		await(0, 0, ROOST_KV_GET, k, 8);
	}
	set_table(3, 1, KV_TABLE_NOBODY);
	for (unsigned k = 0; k < KEYS; k += 8) {
		post(0, 0, ROOST_KV_MOVE_DELETE, k, 8);
		await(0, 0, ROOST_KV_MOVE_DELETE, k, 8);
	}
	set_table(4, 0, KV_TABLE_NOBODY);
	for (unsigned k = 0; k < KEYS; k += 97) {
		struct roost_kv_op op = op_of(&t, ROOST_KV_GET, k);

		post_one(1, 1, &op);
		assert_int_equal(take_one(1, 1, &byte, 1), -ENOENT);
	}
	close_rig();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(others_are_answered),
		cmocka_unit_test(longer_than_the_bound),
		cmocka_unit_test(caller_gone),
		cmocka_unit_test(payload_waits),
		cmocka_unit_test(caller_gone_in_a_snapshot),
		cmocka_unit_test(a_fence_closes),
		cmocka_unit_test(one_caller_leaves_places),
		cmocka_unit_test(groups_are_shared),
		cmocka_unit_test(a_scan_waits),
		cmocka_unit_test(a_scan_of_a_small_store_ends),
		cmocka_unit_test(scans_of_a_caller_that_ends),
		cmocka_unit_test(a_move_waits_for_older_stores),
		cmocka_unit_test(a_moved_pair_is_older),
		cmocka_unit_test(a_leaving_pair_has_its_time_to_live),
		cmocka_unit_test(pairs_move),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
