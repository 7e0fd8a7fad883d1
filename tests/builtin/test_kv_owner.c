/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Who owns a store: threads that serve, one that reads as a snapshot does, and threads that drop
 * groups without being the owner. What the owner changes is no atomic, so TSan and the counts show
 * two owners at a time; and a dropped group comes back. Calls wait for the owner.
 */
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

#include "../kv/far_model.h"
#include "base/mem.h"
#include "builtin/builtin.h"
#include "builtin/kv_store.h"
#include "kvwire/kvwire.h"
#include "rig.h"

#define SIZE	1024u /* lines of the store */
#define NEAR	32u   /* lines of near memory */
#define SERVERS 3
#define TURNS	20000u
#define READS	200u
#define BOUND	1000u /* steps of a call */

static struct far_model far;
static struct kv_store *store;
static atomic_uint serving; /* threads that have turns left */

/* Serves, and drops the group that it took. Returns the number of groups. */
static void *serve(void *arg)
{
	uint64_t client = (uintptr_t)arg;
	uintptr_t taken = 0;

	for (unsigned turn = 0; turn < TURNS;) {
		struct kv_group *g;

		if (!kv_store_try(store, KV_STORE_SERVES)) {
			sched_yield();
			continue;
		}
		turn++;
		store->operations++;
		g = kv_store_take_group(store, client);
		if (g)
			kv_store_begin_group(store, g);
		kv_store_leave(store);
		if (g)
			kv_store_drop_group(store, g);
		taken += g != NULL;
	}
	atomic_fetch_sub(&serving, 1);
	return (void *)taken;
}

/* Takes the store as a thread that writes a snapshot. */
static void read_store(void)
{
	uint64_t before;

	while (!kv_store_try(store, KV_STORE_READS))
		sched_yield();
	before = store->operations;
	sched_yield();
	assert_int_equal(store->operations, before);
	kv_store_leave(store);
}

static unsigned free_groups(void)
{
	unsigned n = 0;

	for (const struct kv_group *g = store->free; g; g = g->next)
		n++;
	return n;
}

static void one_owner_at_a_time(void **state)
{
	struct roost_kv_config size = {.size = SIZE * mem_page_size()};
	static const uint8_t secret[KV_SECRET] = {1, 2, 3};
	struct kv_store_far tier = {
		.tier = &far.far, .near = NEAR * mem_page_size(), .secret = secret};
	pthread_t thread[SERVERS];
	void *taken;

	far_model_init(&far, 1, 20);
	assert_int_equal(kv_store_open(&size, &tier, &store), 0);
	atomic_store(&serving, SERVERS);
	for (uintptr_t i = 0; i < SERVERS; i++)
		assert_int_equal(pthread_create(&thread[i], NULL, serve, (void *)(i + 1)), 0);
	for (unsigned i = 0; i < READS && atomic_load(&serving); i++)
		read_store();
	for (unsigned i = 0; i < SERVERS; i++) {
		assert_int_equal(pthread_join(thread[i], &taken), 0);
		assert_true((uintptr_t)taken > 0);
	}
	assert_true(kv_store_try(store, KV_STORE_SERVES)); /* cancels what was dropped last */
	assert_int_equal(store->operations, SERVERS * TURNS);
	assert_int_equal(free_groups(), KV_STORE_GROUPS);
	kv_store_leave(store);
	kv_store_close(store);
	(void)state;
}

/* ---- calls ---- */

static struct rig R, *const r = &R;

static void post_get(void)
{
	struct roost_kv_op op = {.code = ROOST_KV_GET, .key = "key", .key_len = 3};
	struct kvwire_writer w;
	uint8_t batch[64];

	kvwire_begin(&w, batch, sizeof(batch));
	assert_true(kvwire_add(&w, &op));
	rig_post(r, 0, 0, ROOST_KV_OP, batch, (uint32_t)kvwire_finish(&w, 0), 64, 0);
}

/*
 * A call waits for a thread that keeps the store: one that writes a snapshot to a slow file, or a
 * processing unit whose thread does not run. The wait does not count as steps of the call.
 */
static void a_call_waits_for_the_owner(void **state)
{
	static const enum kv_store_busy busy[] = {KV_STORE_READS, KV_STORE_SERVES,
						  KV_STORE_DIVIDED};
	static struct roost_kv_config config;
	struct rig_reply reply;

	assert_int_equal(kv_store_open(NULL, NULL, &store), 0);
	config.store = store;
	rig_open(r, 1, &(struct rig_shape){.sp = {.delay_ns = 1000}, .cfg = {.max_steps = BOUND}});
	assert_int_equal(runtime_deploy(r->f, kernels_builtin("kv"), &config), 0);
	for (unsigned i = 0; i < sizeof(busy) / sizeof(busy[0]); i++) {
		assert_true(kv_store_try(store, busy[i]));
		post_get();
		for (unsigned turn = 0; turn < 10 * BOUND; turn++) {
			assert_true(rig_step(r));
			assert_false(rig_poll(r, 0, 0, 64, &reply));
		}
		kv_store_leave(store);
		assert_int_equal(rig_wait(r, 0, 0, 64).status, ROOST_RPC_OK);
		rig_reap(r);
	}
	rig_close(r);
	kv_store_close(store);
	(void)state;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_owner_at_a_time),
		cmocka_unit_test(a_call_waits_for_the_owner),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
