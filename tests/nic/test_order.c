/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The order in which threads see the NIC's accesses: two messages, a record that is read while it
 * is written, and regions that are registered and deregistered during look-ups. On a strongly
 * ordered machine, or an emulation on one, errors do not show; there TSan checks the atomics.
 */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <sched.h>
#include <string.h>
#include <cmocka.h>

#include "nic/dma.h"
#include "nic/mr.h"

#define ROUNDS 200000u

static atomic_bool stop;
static _Atomic unsigned wrong, seen;

static uint64_t look(const uint64_t *p)
{
	return __atomic_load_n(p, __ATOMIC_RELAXED);
}

/* A thread that sees the last word of the second message sees all of the first. */
static uint64_t first_message[9] __attribute__((aligned(64))),
	second_message[9] __attribute__((aligned(64)));

static void *reads_backwards(void *arg)
{
	while (!atomic_load_explicit(&stop, memory_order_relaxed)) {
		uint64_t late = __atomic_load_n(&second_message[8], __ATOMIC_ACQUIRE);

		for (unsigned i = 0; i < 8; i++)
			wrong += look(&second_message[i]) < late;
		for (unsigned i = 0; i < 9; i++)
			wrong += look(&first_message[i]) < late;
		seen++;
	}
	return NULL;
}

/* No byte of the second message is visible before the first message is. */
static void *reads_the_middle(void *arg)
{
	while (!atomic_load_explicit(&stop, memory_order_relaxed)) {
		uint64_t late = __atomic_load_n(&second_message[0], __ATOMIC_ACQUIRE);

		for (unsigned i = 0; i < 9; i++)
			wrong += look(&first_message[i]) < late;
		seen++;
	}
	return NULL;
}

static void messages_keep_their_order(void **state)
{
	pthread_t t[2];
	uint64_t data[9];

	stop = false;
	wrong = seen = 0;
	assert_int_equal(pthread_create(&t[0], NULL, reads_backwards, NULL), 0);
	assert_int_equal(pthread_create(&t[1], NULL, reads_the_middle, NULL), 0);
	for (uint64_t n = 1; n < ROUNDS || seen < 1000; n++) {
		for (unsigned i = 0; i < 9; i++)
			data[i] = n;
		assert_int_equal(dma_copy(first_message, data, sizeof(data)), 0);
		assert_int_equal(dma_copy(second_message, data, sizeof(data)), 0);
	}
	stop = true;
	for (unsigned i = 0; i < 2; i++)
		pthread_join(t[i], NULL);
	assert_int_equal(wrong, 0);
}

/* Each word of a message that dma_copy_up() writes is visible after the words before it. */
static uint64_t joined[33] __attribute__((aligned(64)));

static void *reads_downward(void *arg)
{
	while (!atomic_load_explicit(&stop, memory_order_relaxed)) {
		uint64_t late = 0;

		for (unsigned i = 33; i-- > 0;) {
			uint64_t word = __atomic_load_n(&joined[i], __ATOMIC_ACQUIRE);

			wrong += word < late;
			late = word;
		}
		seen++;
	}
	return NULL;
}

static void words_of_a_message_keep_their_order(void **state)
{
	uint64_t data[33];
	pthread_t t;

	stop = false;
	wrong = seen = 0;
	assert_int_equal(pthread_create(&t, NULL, reads_downward, NULL), 0);
	for (uint64_t n = 1; n < ROUNDS || seen < 1000; n++) {
		unsigned at = n % 2; /* aligned to 16 bytes, and not */

		for (unsigned i = 0; i < 33; i++)
			data[i] = n;
		if (at)
			assert_int_equal(dma_copy_up(joined, data, 8), 0);
		assert_int_equal(dma_copy_up(joined + at, data, sizeof(data) - 8 * at), 0);
	}
	stop = true;
	pthread_join(t, NULL);
	assert_int_equal(wrong, 0);
}

/*
 * A writer as roost_versions_write(): odd version, the rest, even version. A reader that reads the
 * same even version before and after has one state.
 */
static uint64_t record[16] __attribute__((aligned(64)));

static void *rewrites(void *arg)
{
	for (uint64_t n = 0; !atomic_load_explicit(&stop, memory_order_relaxed); n += 2) {
		__atomic_store_n(&record[0], n + 1, __ATOMIC_RELAXED);
		atomic_thread_fence(memory_order_release);
		for (unsigned i = 1; i < 16; i++)
			__atomic_store_n(&record[i], n + 2, __ATOMIC_RELAXED);
		__atomic_store_n(&record[0], n + 2, __ATOMIC_RELEASE);
		if (n % 64 == 0)
			sched_yield();
	}
	return NULL;
}

static void a_record_is_read_in_order(void **state)
{
	uint64_t got[16], again;
	unsigned whole = 0;
	pthread_t t;

	stop = false;
	assert_int_equal(pthread_create(&t, NULL, rewrites, NULL), 0);
	for (unsigned n = 0; n < ROUNDS || whole < 1000; n++) {
		assert_int_equal(dma_load_up(got, record, sizeof(got)), 0);
		assert_int_equal(dma_load_up(&again, record, sizeof(again)), 0);
		if (got[0] & 1 || got[0] != again) {
			sched_yield();
			continue;
		}
		whole++;
		for (unsigned i = 1; i < 16; i++)
			if (got[i] != got[0])
				wrong++;
	}
	stop = true;
	pthread_join(t, NULL);
	assert_int_equal(wrong, 0);
}

/* A region has the address of its iova, after any number of uses of its entry. */
#define BASE 0x100000u
static struct mr_table table;
static _Atomic uint32_t newest;

static void *looks_up(void *arg)
{
	while (!atomic_load_explicit(&stop, memory_order_relaxed)) {
		uint32_t key = atomic_load_explicit(&newest, memory_order_relaxed);

		for (uint64_t k = 1; k <= 8; k++) {
			void *p =
				mr_resolve(&table, key, 0, k * BASE + 8, 8, NIC_ACCESS_REMOTE_READ);

			seen += p != NULL;
			wrong += p && (uintptr_t)p != k * 2 * BASE + 8;
		}
	}
	return NULL;
}

static void regions_change_under_look_ups(void **state)
{
	struct key_counts drawn = {0};
	struct key_sequence keys = {.seed = {1, 2}, .bits = KEY_UPPER_BITS, .drawn = &drawn};
	pthread_t t[2];

	stop = false;
	wrong = seen = 0;
	mr_table_init(&table, &keys);
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(pthread_create(&t[i], NULL, looks_up, NULL), 0);
	for (uint64_t n = 0; n < ROUNDS || seen < 1000; n++) {
		uint64_t k = 1 + n % 8;
		struct mr_entry *e;
		uint32_t key;

		spin_lock(&table.lock);
		assert_int_equal(mr_take(&table, MR_REGION, 0, &key), 0);
		e = mr_entry(&table, key >> MR_TAG_BITS);
		mr_clear_key(e);
		atomic_store_explicit(&e->pd, 0, memory_order_relaxed);
		atomic_store_explicit(&e->access, NIC_ACCESS_REMOTE_READ | MR_VALID,
				      memory_order_relaxed);
		atomic_store_explicit(&e->iova, k * BASE, memory_order_relaxed);
		atomic_store_explicit(&e->len, 64, memory_order_relaxed);
		atomic_store_explicit(&e->addr, k * 2 * BASE, memory_order_relaxed);
		mr_set_key(e, key);
		atomic_store_explicit(&newest, key, memory_order_relaxed);
		spin_unlock(&table.lock);
		if (n % 256 == 0)
			sched_yield();
		spin_lock(&table.lock);
		mr_give_back(&table, e);
		spin_unlock(&table.lock);
	}
	stop = true;
	for (unsigned i = 0; i < 2; i++)
		pthread_join(t[i], NULL);
	mr_table_fini(&table);
	assert_int_equal(wrong, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(messages_keep_their_order),
		cmocka_unit_test(words_of_a_message_keep_their_order),
		cmocka_unit_test(a_record_is_read_in_order),
		cmocka_unit_test(regions_change_under_look_ups),
	};

	return dma_init() ? 1 : cmocka_run_group_tests(tests, NULL, NULL);
}
