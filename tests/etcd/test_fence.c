/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The fence while a thread closes it and opens it for the next version of the table, and other
 * threads look: none of them may serve by a version before the one for which it was opened.
 */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "etcd/tenure.h"

#define VERSIONS 100000u
#define READERS	 3
#define LEASE_S	 10

static struct kv_fence fence;
static atomic_bool stop;
static atomic_ulong opened;

/* Returns the time until which the fence for a version is open: each version has a later one. */
static uint64_t end_of(uint64_t version)
{
	static const uint64_t certain = LEASE_S * UINT64_C(800000000);

	return certain + version;
}

/* Returns the number of times that the fence was open for too old a version, which is 0. */
static void *read_fence(void *arg)
{
	uintptr_t wrong = 0;

	(void)arg;
	while (!atomic_load(&stop)) {
		uint64_t version = atomic_load(&fence.version);

		/* Only a fence for a later version is open at this time. */
		wrong += kv_fence_open(&fence, version, end_of(version));
		if (kv_fence_open(&fence, version + 1, end_of(version)))
			atomic_fetch_add(&opened, 1);
	}
	return (void *)wrong;
}

static void open_for(struct tenure *t, uint64_t version)
{
	tenure_granted(t, version, version, LEASE_S);
	tenure_registered(t);
	tenure_read(t, version);
}

static void no_older_version_serves(void **state)
{
	pthread_t reader[READERS];
	struct tenure t;
	void *wrong;

	tenure_init(&t, LEASE_S, &fence);
	for (unsigned i = 0; i < READERS; i++)
		assert_int_equal(pthread_create(&reader[i], NULL, read_fence, NULL), 0);
	/* On one core the readers may get no time for a while. */
	for (uint64_t v = 1; v <= VERSIONS || !atomic_load(&opened); v++) {
		open_for(&t, v);
		assert_true(kv_fence_open(&fence, v, end_of(v) - 1));
		tenure_lost(&t);
		assert_false(kv_fence_open(&fence, v, 0));
	}
	atomic_store(&stop, true);
	for (unsigned i = 0; i < READERS; i++) {
		assert_int_equal(pthread_join(reader[i], &wrong), 0);
		assert_null(wrong);
	}
	(void)state;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(no_older_version_serves),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
