/* SPDX-License-Identifier: BSD-2-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <pthread.h>

#include "base/spin.h"

#define THREADS 4
#define EACH	20000

static struct spin lock;
static unsigned counter; /* plain: only the lock protects it */

static void trylock(void **state)
{
	struct spin s = {0};

	assert_false(spin_is_locked(&s));
	assert_true(spin_trylock(&s));
	assert_true(spin_is_locked(&s));
	assert_false(spin_trylock(&s));
	spin_unlock(&s);
	spin_lock(&s);
	assert_false(spin_trylock(&s));
	spin_unlock(&s);
	assert_true(spin_trylock(&s));
}

static void *count(void *arg)
{
	for (int i = 0; i < EACH; i++) {
		if (i % 2) {
			spin_lock(&lock);
		} else {
			while (!spin_trylock(&lock))
				cpu_pause();
		}
		counter++;
		spin_unlock(&lock);
	}
	return NULL;
}

static void excludes(void **state)
{
	pthread_t t[THREADS];

	for (int i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&t[i], NULL, count, NULL), 0);
	for (int i = 0; i < THREADS; i++)
		pthread_join(t[i], NULL);
	assert_int_equal(counter, THREADS * EACH);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(trylock),
		cmocka_unit_test(excludes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
