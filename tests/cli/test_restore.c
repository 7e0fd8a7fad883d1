/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The pairs of a snapshot that `roost kv move --lost --snapshot` stores at the new owner of a
 * partition. The new owner's clock is more than 50 years behind that of this machine. The test
 * executes the operations in the place of the node.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <endian.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/kv/kv.h"
#include "kv/snapshot.h"

#define NODE_NOW   1000000u
#define LATER	   (2 * NODE_NOW)
#define STORED_MAX 8u

static struct {
	char key[8];
	uint32_t ttl;
} stored[STORED_MAX];
static unsigned num_stored;
static bool old_node;
static uint8_t buf[4096];

int roost_kv_run(struct roost_kv *kv, struct roost_kv_op *ops, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		struct roost_kv_stat s = {.now = old_node ? 0 : htole64(NODE_NOW)};

		ops[i].status = 0;
		if (ops[i].code == ROOST_KV_STAT) {
			assert_true(ops[i].out_cap == sizeof(s));
			memcpy(ops[i].out, &s, sizeof(s));
			continue;
		}
		assert_int_equal(ops[i].code, ROOST_KV_MOVE_PUT);
		assert_true(num_stored < STORED_MAX && ops[i].key_len < sizeof(stored[0].key));
		memcpy(stored[num_stored].key, ops[i].key, ops[i].key_len);
		stored[num_stored++].ttl = ops[i].ttl;
	}
	return 0;
}

static void put(struct kv *kv, const char *key, uint32_t expires)
{
	struct kv_op op = {.code = KV_PUT,
			   .key = key,
			   .key_len = (uint32_t)strlen(key),
			   .value = "v",
			   .value_len = 1,
			   .expires = expires};

	kv_run(kv, &op, 1);
	assert_int_equal(op.status, 0);
}

static void write_snapshot(const char *path)
{
	struct kv_config config = {.size = 1u << 20};
	struct kv_snapshot *s;
	struct kv *kv;

	assert_int_equal(kv_open(&config, &kv), 0);
	put(kv, "ever", 0);
	put(kv, "over", NODE_NOW - 1);
	put(kv, "later", LATER);
	assert_int_equal(kv_snapshot_start(kv, path, &s), 0);
	while (kv_snapshot_step(s, 1000) > 0)
		;
	assert_int_equal(kv_snapshot_finish(s), 0);
	kv_snapshot_free(s);
	kv_close(kv);
}

static void restore(void)
{
	static struct kv_table table = {.version = 5, .partitions = 1};
	char path[] = "/tmp/roost-restore-XXXXXX", why[200];
	int fd = mkstemp(path);

	assert_true(fd >= 0);
	close(fd);
	write_snapshot(path);
	memset(stored, 0, sizeof(stored));
	num_stored = 0;
	assert_int_equal(kv_restore_partition(NULL, NULL, &table, 0, path, buf, sizeof(buf), why,
					      sizeof(why)),
			 0);
	unlink(path);
}

/* Returns the time to live of a pair that was stored, or -1. */
static int64_t ttl_of(const char *key)
{
	for (unsigned i = 0; i < num_stored; i++)
		if (!strcmp(stored[i].key, key))
			return stored[i].ttl;
	return -1;
}

static void pairs_expire_by_the_clock_of_the_node(void **state)
{
	restore();
	assert_int_equal(num_stored, 2);
	assert_int_equal(ttl_of("ever"), 0);
	assert_int_equal(ttl_of("over"), -1);
	/* The test takes less than half of this time. */
	assert_in_range(ttl_of("later"), NODE_NOW / 2, LATER - NODE_NOW);
}

/* The clock of this machine is the best guess: all pairs that expire are over by it. */
static void an_old_node_does_not_tell_its_clock(void **state)
{
	old_node = true;
	restore();
	assert_int_equal(num_stored, 1);
	assert_int_equal(ttl_of("ever"), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(pairs_expire_by_the_clock_of_the_node),
		cmocka_unit_test(an_old_node_does_not_tell_its_clock),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
