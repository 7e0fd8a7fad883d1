/* SPDX-License-Identifier: BSD-2-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/mpsc.h"

#define PRODUCERS 4
#define EACH	  20000u

static void limits(void **state)
{
	struct mpsc m;

	assert_int_equal(mpsc_init(&m, 0), -EINVAL);
	assert_int_equal(mpsc_init(&m, MPSC_MAX_CAPACITY + 1), -EINVAL);
	memset(&m, 0, sizeof(m));
	mpsc_destroy(&m);
}

static void first_in_first_out_and_full(void **state)
{
	static const uint32_t capacities[] = {1, 2, 3, 8, 100};
	uint32_t v;

	for (unsigned c = 0; c < 5; c++) {
		struct mpsc m;
		uint32_t space = 0, next = 0;

		assert_int_equal(mpsc_init(&m, capacities[c]), 0);
		assert_true(mpsc_empty(&m));
		assert_false(mpsc_pop(&m, &v));
		while (mpsc_push(&m, space))
			space++;
		assert_true(space >= capacities[c]);
		assert_false(mpsc_push(&m, 0));
		assert_false(mpsc_empty(&m));
		/* Many rounds, with one free entry at any time. */
		for (unsigned i = 0; i < 1000; i++) {
			assert_true(mpsc_pop(&m, &v));
			assert_int_equal(v, next++);
			assert_true(mpsc_push(&m, space++));
			assert_false(mpsc_push(&m, 0));
		}
		while (mpsc_pop(&m, &v))
			assert_int_equal(v, next++);
		assert_int_equal(next, space);
		assert_true(mpsc_empty(&m));
		mpsc_destroy(&m);
	}
}

/* No push and no pop takes a page fault: the pages are there from the start (Linux 5.14). */
static void pages_are_there(void **state)
{
	const uint32_t cells = 1 << 15;
	size_t page = mem_page_size(), pages = cells * sizeof(uint64_t) / page;
	unsigned char *there = calloc(pages, 1);
	void *fresh = mem_alloc_pages(page);
	struct mpsc m;

	assert_non_null(there);
	assert_non_null(fresh);
	mem_populate(fresh, 0, page);
	assert_int_equal(mincore(fresh, page, there), 0);
	mem_free_pages(fresh, page);
	if (!(there[0] & 1)) {
		print_message("SKIPPED: this kernel does not populate pages\n");
		free(there);
		skip();
	}
	assert_int_equal(mpsc_init(&m, cells), 0);
	assert_int_equal(mincore(m.cell, pages * page, there), 0);
	for (size_t i = 0; i < pages; i++)
		assert_true(there[i] & 1);
	mpsc_destroy(&m);
	free(there);
}

/* Positions have 32 bits: the test crosses the wrap. */
static void positions_wrap(void **state)
{
	struct mpsc m;
	uint32_t v = 0;

	assert_int_equal(mpsc_init(&m, 4), 0);
	atomic_store(&m.head, UINT32_MAX - 5);
	atomic_store(&m.tail, UINT32_MAX - 5);
	for (uint32_t i = 0; i < 4; i++) {
		uint32_t pos = UINT32_MAX - 5 + i;

		atomic_store(&m.cell[pos & m.mask], mpsc_cell(&m, pos, pos, 0));
	}
	for (uint32_t i = 0; i < 20; i++) {
		assert_false(mpsc_pop(&m, &v));
		assert_true(mpsc_push(&m, i));
		assert_true(mpsc_push(&m, 100 + i));
		assert_true(mpsc_pop(&m, &v) && v == i);
		assert_true(mpsc_pop(&m, &v) && v == 100 + i);
	}
	mpsc_destroy(&m);
}

struct producer {
	pthread_t thread;
	struct mpsc *m;
	uint32_t id;
	uint32_t *payload; /* plain memory, published by the push: TSan watches the ordering */
};

static void *produce(void *arg)
{
	struct producer *p = arg;

	for (uint32_t i = 0; i < EACH; i++) {
		p->payload[i] = p->id ^ i;
		while (!mpsc_push(p->m, p->id * EACH + i))
			sched_yield();
	}
	return NULL;
}

static void many_producers(void **state)
{
	static uint32_t payload[PRODUCERS][EACH];
	struct producer p[PRODUCERS];
	uint32_t next[PRODUCERS] = {0}, v;
	struct mpsc m;

	assert_int_equal(mpsc_init(&m, 64), 0);
	for (uint32_t i = 0; i < PRODUCERS; i++) {
		p[i] = (struct producer){.m = &m, .id = i, .payload = payload[i]};
		assert_int_equal(pthread_create(&p[i].thread, NULL, produce, &p[i]), 0);
	}
	for (uint32_t got = 0; got < PRODUCERS * EACH;) {
		if (!mpsc_pop(&m, &v)) {
			sched_yield();
			continue;
		}

		uint32_t id = v / EACH, i = v % EACH;

		/* Each producer's values come in its own order, each once. */
		assert_true(id < PRODUCERS);
		assert_int_equal(i, next[id]++);
		assert_int_equal(payload[id][i], id ^ i);
		got++;
	}
	for (uint32_t i = 0; i < PRODUCERS; i++)
		pthread_join(p[i].thread, NULL);
	assert_true(mpsc_empty(&m));
	mpsc_destroy(&m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(limits),	   cmocka_unit_test(first_in_first_out_and_full),
		cmocka_unit_test(pages_are_there), cmocka_unit_test(positions_wrap),
		cmocka_unit_test(many_producers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
