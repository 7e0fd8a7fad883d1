/* SPDX-License-Identifier: BSD-2-Clause */
/* The ring of the shm port by itself: order, turning, extending, back-pressure, and the checks of a distrustful side. */
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>

#include "shm_rig.h"

/* Both sides on one mapping: so that TSan sees that they share it. */
static void pair(uint32_t size, struct shm_prod *p, struct shm_cons *c)
{
	int fd;

	assert_int_equal(shm_prod_create(size, p, &fd), 0);
	close(fd);
	*c = (struct shm_cons){.ctl = p->ctl, .data = p->data, .size = size, .populated = size};
}

static bool put(struct shm_prod *p, uint64_t n)
{
	uint32_t len = srig_len(n);
	uint8_t *bth = shm_prod_reserve(p, len, (uint8_t)n);

	if (bth)
		srig_fill(bth, len, n);
	return bth != NULL;
}

static bool get(struct shm_cons *c, uint64_t n)
{
	struct port_pkt pkt = {0};
	int rc;

	if (c->head == c->tail && shm_cons_look(c) != 1)
		return false;
	rc = shm_cons_next(c, &pkt.bth, &pkt.len, &pkt.tos);
	assert_true(rc >= 0);
	if (rc == 0)
		return false;
	assert_int_equal(pkt.tos, (uint8_t)n);
	srig_check(&pkt, n);
	return true;
}

static void test_order_over_many_laps(void **state)
{
	struct shm_prod p;
	struct shm_cons c;
	uint64_t in = 0, out = 0;

	pair(SHM_RING_MIN, &p, &c);
	while (out < 5000) {
		while (in < out + 9 && put(&p, in))
			in++;
		shm_prod_publish(&p);
		while (get(&c, out))
			out++;
		assert_int_equal(in, out);
		shm_cons_release(&c);
	}
	assert_true(p.tail > 40ull * SHM_RING_MIN);
	shm_prod_unmap(&p);
}

static void test_unpublished_is_unseen(void **state)
{
	struct shm_prod p;
	struct shm_cons c;

	pair(SHM_RING_MIN, &p, &c);
	assert_true(put(&p, 0));
	assert_int_equal(shm_cons_look(&c), 0);
	shm_prod_publish(&p);
	assert_true(get(&c, 0));
	shm_prod_unmap(&p);
}

static void test_full_until_released(void **state)
{
	struct shm_prod p;
	struct shm_cons c;
	uint64_t in = 0, out = 0;

	pair(SHM_RING_MIN, &p, &c);
	while (put(&p, in))
		in++;
	assert_true(p.tail <= SHM_RING_MIN && p.tail > SHM_RING_MIN - 2 * shm_rec_size(PKT_MAX_LEN));
	shm_prod_publish(&p);
	while (out < in / 2 && get(&c, out))
		out++;
	assert_false(put(&p, in)); /* consumed, but not given back yet */
	shm_cons_release(&c);
	assert_true(put(&p, in));
	shm_prod_unmap(&p);
}

static void test_cancel(void **state)
{
	struct shm_prod p;
	struct shm_cons c;

	pair(SHM_RING_MIN, &p, &c);
	for (uint64_t n = 0; n < 200; n++) {
		assert_non_null(shm_prod_reserve(&p, 1000, 0));
		shm_prod_cancel(&p);
		shm_prod_cancel(&p); /* only the last one, whatever is called */
		assert_true(put(&p, n));
		shm_prod_publish(&p);
		assert_true(get(&c, n));
		assert_false(get(&c, n + 1));
		shm_cons_release(&c);
	}
	shm_prod_unmap(&p);
}

static unsigned resident_kib(const void *at, size_t bytes)
{
	static unsigned char map[SHM_RING_DEFAULT / 4096];
	unsigned n = 0;

	assert_int_equal(mincore((void *)(uintptr_t)at, bytes, map), 0);
	for (size_t i = 0; i < bytes / 4096; i++)
		n += map[i] & 1;
	return n * 4;
}

/* A ring whose reader keeps up stays in its first part; one that fills up extends to all of it. */
static void test_extent(void **state)
{
	struct shm_prod p;
	struct shm_cons c;
	uint64_t n = 0;

	pair(SHM_RING_DEFAULT, &p, &c);
	assert_true(resident_kib(p.data, p.size) <= SHM_RING_FIRST / 1024);
	for (; n < 3000; n++) {
		assert_true(put(&p, n));
		shm_prod_publish(&p);
		assert_true(get(&c, n));
		shm_cons_release(&c);
	}
	assert_int_equal(p.extent, SHM_RING_FIRST);
	assert_true(resident_kib(p.data, p.size) <= SHM_RING_FIRST / 1024);

	uint64_t in = n;

	while (put(&p, in))
		in++;
	shm_prod_publish(&p);
	assert_int_equal(p.extent, SHM_RING_DEFAULT);
	assert_true(p.tail - p.head > SHM_RING_DEFAULT - (256u << 10) - 2 * shm_rec_size(PKT_MAX_LEN));
	for (; n < in; n++)
		assert_true(get(&c, n));
	shm_prod_unmap(&p);
}

#define STREAM 20000

static void *produce(void *arg)
{
	struct shm_prod *p = arg;

	for (uint64_t n = 0; n < STREAM;) {
		bool ok = put(p, n);

		if (!ok || n % 5 == 4)
			shm_prod_publish(p);
		if (ok)
			n++;
		else
			sched_yield();
	}
	shm_prod_publish(p);
	return NULL;
}

static void test_two_threads(void **state)
{
	struct shm_prod p;
	struct shm_cons c;
	pthread_t t;

	pair(2 * SHM_RING_MIN, &p, &c);
	assert_int_equal(pthread_create(&t, NULL, produce, &p), 0);
	for (uint64_t n = 0; n < STREAM;) {
		if (get(&c, n)) {
			if (++n % 7 == 0)
				shm_cons_release(&c);
		} else {
			shm_cons_release(&c);
			sched_yield();
		}
	}
	pthread_join(t, NULL);
	assert_false(p.broken);
	shm_prod_unmap(&p);
}

/* Each row plays a producer that lies. */
static void test_consumer_distrusts(void **state)
{
	enum { FIRST = 128 }; /* one honest record of 100 bytes stands before what is tested */
	static const struct {
		const char *what;
		uint64_t word, tail;
	} rows[] = {
		{"more than the ring holds", 100 | SHM_REC_DATA << 24, SHM_RING_MIN + 64},
		{"tail far away", 100 | SHM_REC_DATA << 24, UINT64_MAX - 63},
		{"tail went back", 100 | SHM_REC_DATA << 24, 64},
		{"half a record", 100 | SHM_REC_DATA << 24, FIRST + 100},
		{"no such kind", 100 | 3u << 24, FIRST + 128},
		{"no kind", 100, FIRST + 128},
		{"upper bits", 100 | SHM_REC_DATA << 24 | 1ull << 32, FIRST + 128},
		{"too short", (SHM_MIN_LEN - 1) | SHM_REC_DATA << 24, FIRST + 128},
		{"empty", SHM_REC_DATA << 24, FIRST + 64},
		{"too long", (PKT_MAX_LEN + 1) | SHM_REC_DATA << 24, FIRST + 8192},
		{"longest that a header can say", 0xffff | SHM_REC_DATA << 24, SHM_RING_MIN},
		{"longer than what was published", 500 | SHM_REC_DATA << 24, FIRST + 448},
		{"turns beyond the tail", SHM_REC_TURN << 24, FIRST + 64},
		{"turn with a length", 1 | SHM_REC_TURN << 24, FIRST + SHM_RING_MIN},
	};

	for (unsigned i = 0; i < ARRAY_SIZE(rows); i++) {
		struct shm_prod p;
		struct shm_cons c;
		uint8_t *bth, tos;
		uint32_t len;
		int rc;

		pair(SHM_RING_MIN, &p, &c);
		shm_prod_reserve(&p, 100, 0);
		shm_prod_publish(&p);
		assert_int_equal(shm_cons_look(&c), 1);
		assert_int_equal(shm_cons_next(&c, &bth, &len, &tos), 1);
		assert_int_equal(c.head, FIRST);
		atomic_store(shm_rec_word(p.data, FIRST, p.size), rows[i].word);
		atomic_store(&p.ctl->tail, rows[i].tail);
		rc = shm_cons_look(&c);
		if (rc == 1)
			rc = shm_cons_next(&c, &bth, &len, &tos);
		if (rc != -1)
			fail_msg("%s: %d", rows[i].what, rc);
		shm_prod_unmap(&p);
	}
}

/* A packet may not hang over the end, even where the ring has room at its start. */
static void test_record_over_the_end(void **state)
{
	struct shm_prod p;
	struct shm_cons c;
	uint8_t *bth, tos;
	uint32_t len;

	pair(SHM_RING_MIN, &p, &c);
	c.head = c.released = c.tail = SHM_RING_MIN - 64;
	atomic_store(shm_rec_word(p.data, c.head, p.size), 1000 | SHM_REC_DATA << 24);
	atomic_store(&p.ctl->tail, c.head + 1024);
	assert_int_equal(shm_cons_look(&c), 1);
	assert_int_equal(shm_cons_next(&c, &bth, &len, &tos), -1);
	shm_prod_unmap(&p);
}

static void test_producer_distrusts(void **state)
{
	static const int64_t wrong[] = {64, 1 << 20, -64, INT64_MAX}; /* from what was published */

	for (unsigned i = 0; i < ARRAY_SIZE(wrong); i++) {
		struct shm_prod p;
		struct shm_cons c;
		uint64_t n = 0;

		pair(SHM_RING_MIN, &p, &c);
		/* An honest lap first, so that there is a head to go back from. */
		for (; n < 100; n++) {
			assert_true(put(&p, n));
			shm_prod_publish(&p);
			assert_true(get(&c, n));
			shm_cons_release(&c);
			shm_prod_look(&p);
		}
		assert_int_equal(p.head, p.published);
		atomic_store(&p.ctl->head, p.published + (uint64_t)wrong[i]);
		while (put(&p, n))
			n++;
		assert_true(p.broken);
		assert_true(p.tail - p.head <= SHM_RING_MIN);
		shm_prod_unmap(&p);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_order_over_many_laps),
		cmocka_unit_test(test_unpublished_is_unseen),
		cmocka_unit_test(test_full_until_released),
		cmocka_unit_test(test_cancel),
		cmocka_unit_test(test_extent),
		cmocka_unit_test(test_two_threads),
		cmocka_unit_test(test_consumer_distrusts),
		cmocka_unit_test(test_record_over_the_end),
		cmocka_unit_test(test_producer_distrusts),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
