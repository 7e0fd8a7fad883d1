/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The kernel `consistency`: unchanging objects, objects that are torn at any place, and objects
 * that a thread rewrites all the time.
 */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/rng.h"
#include "builtin/builtin.h"
#include "rig.h"
#include "roost/consistency.h"

#define OBJECT 4096u
#define SPACE  8184u

static struct rig R, *const r = &R;
static uint8_t data[ROOST_CONSISTENCY_MAX];

static void open_rig(const struct sim_params *sp)
{
	rig_open(r, 1, &(struct rig_shape){.sp = *sp, .mtu = 4096});
	assert_int_equal(runtime_deploy(r->f, kernels_builtin("consistency"), NULL), 0);
}

static uint8_t *object(void)
{
	return r->node[0].mem + OBJECT;
}

static struct rig_reply read_object(uint32_t len, uint16_t tries, uint16_t scheme)
{
	struct roost_consistency_params p =
		roost_consistency_params(rig_va(r, OBJECT), len, tries, scheme);

	return rig_call(r, ROOST_CONSISTENCY_OP, &p, sizeof(p), SPACE);
}

/* Writes a new state of the object. Returns its bytes of data. */
static uint32_t write_object(uint32_t len, uint16_t scheme, uint8_t seed)
{
	uint32_t n = scheme == ROOST_CONSISTENCY_CRC ? len - 8 : roost_versions_data(len);
	uint64_t crc;

	for (uint32_t i = 0; i < n; i++)
		data[i] = (uint8_t)(i * 7 + seed);
	if (scheme == ROOST_CONSISTENCY_VERSIONS) {
		roost_versions_write(object(), len, data);
		return n;
	}
	memcpy(object(), data, n);
	crc = roost_consistency_crc(data, n);
	memcpy(object() + n, &crc, 8);
	return n;
}

static const uint32_t crc_lens[] = {8, 9, 64, 100, 1000, 4096, 4104, 8192};
static const uint32_t version_lens[] = {64, 128, 1024, 4096, 8192};

static void whole(uint32_t len, uint16_t scheme)
{
	for (uint8_t seed = 0; seed < 3; seed++) {
		uint32_t n = write_object(len, scheme, seed);
		struct rig_reply a = read_object(len, 1, scheme);

		assert_int_equal(a.status, ROOST_RPC_OK);
		assert_int_equal(a.len, n);
		if (n)
			assert_memory_equal(a.data, data, n);
	}
}

static void objects_at_rest(void **state)
{
	/* The check value of CRC-64/XZ. */
	assert_true(roost_consistency_crc("123456789", 9) == 0x995dc9bbdf1939faull);
	for (uint32_t n = 0; n < 1000; n++) {
		assert_true(roost_versions_data(roost_versions_len(n)) >= n);
		assert_true(n <= 56 || roost_versions_data(roost_versions_len(n) - 64) < n);
	}
	for (unsigned link = 0; link < 2; link++) {
		open_rig(&(struct sim_params){.loss = link ? 0.05 : 0, .delay_ns = 1000});
		for (unsigned i = 0; i < sizeof(crc_lens) / sizeof(crc_lens[0]); i++)
			whole(crc_lens[i], ROOST_CONSISTENCY_CRC);
		for (unsigned i = 0; i < sizeof(version_lens) / sizeof(version_lens[0]); i++)
			whole(version_lens[i], ROOST_CONSISTENCY_VERSIONS);
		rig_close(r);
	}
}

/* Any wrong bit is detected, and the call ends after the requested number of tries. */
static void torn_objects(void **state)
{
	struct rng rng;

	rng_seed(&rng, 2);
	open_rig(&(struct sim_params){0});
	for (unsigned i = 0; i < 200; i++) {
		uint32_t len = crc_lens[1 + rng_below(&rng, 7)],
			 at = (uint32_t)rng_below(&rng, len);
		uint64_t steps;

		write_object(len, ROOST_CONSISTENCY_CRC, (uint8_t)i);
		object()[at] ^= (uint8_t)(1u << rng_below(&rng, 8));
		steps = rig_counters(r).steps;
		assert_int_equal(
			read_object(len, (uint16_t)(1 + i % 5), ROOST_CONSISTENCY_CRC).status,
			ROOST_RPC_BOUND);
		assert_int_equal(rig_counters(r).steps - steps, 2 + i % 5);
	}
	for (unsigned i = 0; i < 100; i++) {
		uint32_t len = version_lens[1 + rng_below(&rng, 4)];
		uint64_t *version = (uint64_t *)(void *)object();

		write_object(len, ROOST_CONSISTENCY_VERSIONS, (uint8_t)i);
		if (i & 1)
			++*version; /* being written */
		else
			object()[64 * (1 + rng_below(&rng, len / 64 - 1)) + rng_below(&rng, 2)] ^=
				4;
		assert_int_equal(read_object(len, 3, ROOST_CONSISTENCY_VERSIONS).status,
				 ROOST_RPC_BOUND);
		*version += i & 1;
	}
	rig_close(r);
}

/* A try finds the object torn; a later try finds it whole, after the writer has finished. */
static void read_again(void **state)
{
	struct roost_consistency_params p;
	struct rig_reply a;
	uint32_t n;

	open_rig(&(struct sim_params){0});
	p = roost_consistency_params(rig_va(r, OBJECT), 1000, UINT16_MAX, ROOST_CONSISTENCY_CRC);
	n = write_object(1000, ROOST_CONSISTENCY_CRC, 1);
	object()[5] ^= 1;
	rig_post(r, 0, 0, ROOST_CONSISTENCY_OP, &p, sizeof(p), SPACE, 0);
	while (rig_counters(r).steps < 500) {
		assert_true(world_step(&r->w, world_now(&r->w) + SEC));
		assert_false(rig_poll(r, 0, 0, SPACE, &a));
	}
	object()[5] ^= 1;
	a = rig_wait(r, 0, 0, SPACE);
	assert_int_equal(a.status, ROOST_RPC_OK);
	assert_memory_equal(a.data, data, n);
	rig_close(r);
}

/* ---- a writer without a pause ---- */

struct writer {
	uint8_t *object;
	uint32_t len;
	uint16_t scheme;
	atomic_bool stop;
};

/* Each state has one value in all its bytes. */
static void write_state(const struct writer *w, uint8_t value)
{
	uint8_t state[ROOST_CONSISTENCY_MAX];
	uint64_t crc;

	memset(state, value, w->len);
	if (w->scheme == ROOST_CONSISTENCY_VERSIONS) {
		roost_versions_write(w->object, w->len, state);
		return;
	}
	crc = roost_consistency_crc(state, w->len - 8);
	memcpy(state + w->len - 8, &crc, 8);
	memcpy(w->object, state, w->len);
}

static void *write_on(void *arg)
{
	struct writer *w = arg;

	for (uint8_t i = 1; !atomic_load(&w->stop); i++)
		write_state(w, i);
	return NULL;
}

static void beside_a_writer(void **state)
{
	for (uint16_t scheme = 0; scheme < 2; scheme++) {
		struct writer w = {.len = 1024, .scheme = scheme};
		pthread_t id;

		open_rig(&(struct sim_params){0});
		w.object = object();
		write_state(&w, 0);
		assert_int_equal(pthread_create(&id, NULL, write_on, &w), 0);
		for (unsigned i = 0; i < 300; i++) {
			struct rig_reply a = read_object(w.len, 20, scheme);

			assert_true(a.status == ROOST_RPC_OK || a.status == ROOST_RPC_BOUND);
			for (uint32_t k = 1; a.status == ROOST_RPC_OK && k < a.len; k++)
				assert_int_equal(a.data[k], a.data[0]);
		}
		atomic_store(&w.stop, true);
		pthread_join(id, NULL);
		assert_int_equal(read_object(w.len, 1, scheme).status, ROOST_RPC_OK);
		rig_close(r);
	}
}

static void bad_parameters(void **state)
{
	uint8_t some[24] = {0};

	open_rig(&(struct sim_params){0});
	for (uint32_t n = 0; n < sizeof(some); n++)
		assert_int_equal(rig_call(r, ROOST_CONSISTENCY_OP, some, n, SPACE).status,
				 ROOST_RPC_BAD_PARAMS);
	assert_int_equal(read_object(7, 1, ROOST_CONSISTENCY_CRC).status, ROOST_RPC_BAD_PARAMS);
	assert_int_equal(read_object(8193, 1, ROOST_CONSISTENCY_CRC).status, ROOST_RPC_BAD_PARAMS);
	assert_int_equal(read_object(64, 0, ROOST_CONSISTENCY_CRC).status, ROOST_RPC_BAD_PARAMS);
	assert_int_equal(read_object(0, 1, ROOST_CONSISTENCY_VERSIONS).status,
			 ROOST_RPC_BAD_PARAMS);
	assert_int_equal(read_object(100, 1, ROOST_CONSISTENCY_VERSIONS).status,
			 ROOST_RPC_BAD_PARAMS);
	assert_int_equal(read_object(64, 1, 2).status, ROOST_RPC_BAD_PARAMS);
	rig_close(r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(objects_at_rest), cmocka_unit_test(torn_objects),
		cmocka_unit_test(read_again),	   cmocka_unit_test(beside_a_writer),
		cmocka_unit_test(bad_parameters),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
