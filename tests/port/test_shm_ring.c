/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The ring of the shm port alone: order, wrapping, extending, back-pressure, and the checks of a
 * side that does not trust the other.
 */
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>

#include "shm_rig.h"

/* Both sides use one mapping, so that TSan sees that they share it. */
static void pair(uint32_t size, struct shm_prod *p, struct shm_cons *c)
{
	int fd;

	assert_int_equal(shm_prod_create(size, p, &fd), 0);
	close(fd);
	*c = (struct shm_cons){
		.ctl = p->ctl, .descs = p->descs, .data = p->data, .size = size, .populated = size};
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
	assert_true(p.pos > 40ull * SHM_RING_MIN && p.index > 4 * SHM_RING_DESCS);
	shm_prod_unmap(&p);
}

/*
 * Small packets of a burst share cache lines, except the two lines at its beginning, which the
 * consumer reads all the time: nothing is written there before the burst is published.
 */
static void test_burst_begins_in_watched_lines(void **state)
{
	static const uint32_t lens[] = {96, 20, SHM_SMALL, PKT_MAX_LEN};
	struct shm_prod p;
	struct shm_cons c;
	uint8_t *first, *a, *b, *bth = NULL, tos;
	uint32_t len = 0;

	pair(SHM_RING_MIN, &p, &c);
	for (unsigned i = 0; i < ARRAY_SIZE(lens); i++) {
		uint8_t *watched = c.data + ALIGN_UP(c.next, SHM_WATCHED);

		memset(watched, 0xee, SHM_WATCHED);
		first = shm_prod_reserve(&p, lens[i], 0);
		memset(first, (int)i, lens[i]);
		a = shm_prod_reserve(&p, 96, 0);
		b = shm_prod_reserve(&p, 20, 0);
		assert_true(a >= watched + SHM_WATCHED);
		assert_ptr_equal(b, a + 96);
		memset(a, 0x77, 96);
		memset(b, 0x77, 20);
		for (unsigned k = 0; k < SHM_WATCHED; k++)
			assert_int_equal(watched[k], 0xee);
		shm_prod_publish(&p);
		assert_int_equal(shm_cons_next(&c, &bth, &len, &tos), 1);
		assert_int_equal(len, lens[i]);
		for (uint32_t k = 0; k < len; k++)
			assert_int_equal(bth[k], i);
		if (len <= SHM_WATCHED)
			assert_ptr_equal(bth, watched);
		assert_int_equal(shm_cons_next(&c, &bth, &len, &tos), 1);
		assert_int_equal(shm_cons_next(&c, &bth, &len, &tos), 1);
		assert_int_equal(shm_cons_next(&c, &bth, &len, &tos), 0);
	}
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
	assert_false(p.broken);
	assert_true(p.pos <= SHM_RING_MIN && p.pos > SHM_RING_MIN - 2 * shm_rec_size(PKT_MAX_LEN));
	shm_prod_publish(&p);
	while (out < in / 2 && get(&c, out))
		out++;
	assert_false(put(&p, in)); /* consumed, but not released yet */
	shm_cons_release(&c);
	assert_true(put(&p, in));
	shm_prod_unmap(&p);
}

/* A packet without space does not take the end of the ring from one that fits. */
static void test_full_for_large_ones(void **state)
{
	struct shm_prod p;
	struct shm_cons c;
	unsigned n = 0;

	pair(SHM_RING_MIN, &p, &c);
	while (shm_prod_reserve(&p, 3000, 0))
		n++;
	assert_in_range(SHM_RING_MIN - n * shm_rec_size(3000), shm_rec_size(500),
			shm_rec_size(3000) - 1);
	assert_null(shm_prod_reserve(&p, 3000, 0));
	assert_non_null(shm_prod_reserve(&p, 500, 0));
	assert_false(p.broken);
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
		shm_prod_cancel(&p); /* removes only the last one, also if it is called again */
		assert_true(put(&p, n));
		shm_prod_publish(&p);
		assert_true(get(&c, n));
		assert_false(get(&c, n + 1));
		shm_cons_release(&c);
	}
	shm_prod_unmap(&p);
}

/* Of the whole pages that hold these bytes. */
static size_t resident(const void *at, size_t bytes)
{
	static unsigned char map[SHM_RING_DEFAULT / 4096 + 1];
	size_t page = mem_page_size(), n = 0;
	uintptr_t from = ALIGN_DOWN((uintptr_t)at, page);
	uintptr_t upto = ALIGN_UP((uintptr_t)at + bytes, page);

	assert_int_equal(mincore((void *)from, upto - from, map), 0);
	for (size_t i = 0; i < (upto - from) / page; i++)
		n += map[i] & 1;
	return n * page;
}

/* The first part of a ring, with the rest of its last page. */
static size_t first_part(const struct shm_prod *p)
{
	uintptr_t page = mem_page_size(), data = (uintptr_t)p->data;

	return ALIGN_UP(data + SHM_RING_FIRST, page) - ALIGN_DOWN(data, page);
}

/*
 * A ring whose reader keeps up uses only its first part. A ring that fills up extends to all of it.
 */
static void test_extent(void **state)
{
	struct shm_prod p;
	struct shm_cons c;
	uint64_t n = 0;

	pair(SHM_RING_DEFAULT, &p, &c);
	assert_true(resident(p.data, p.size) <= first_part(&p));
	for (; n < 3000; n++) {
		assert_true(put(&p, n));
		shm_prod_publish(&p);
		assert_true(get(&c, n));
		shm_cons_release(&c);
	}
	assert_int_equal(p.extent, SHM_RING_FIRST);
	assert_true(resident(p.data, p.size) <= first_part(&p));

	uint64_t in = n;

	/* Full: the most bytes that may be in flight, for any size of the ring. */
	while (put(&p, in)) {
		in++;
		shm_prod_publish(&p);
	}
	assert_true(p.extent > SHM_RING_WINDOW && p.extent <= SHM_RING_WINDOW + 2 * SHM_RING_STEP);
	/* A stream whose reader is always behind uses the whole ring. */
	while (p.extent < SHM_RING_DEFAULT) {
		assert_true(get(&c, n++));
		shm_cons_release(&c);
		while (put(&p, in)) {
			in++;
			shm_prod_publish(&p);
		}
		assert_true(in - n > 300 && n < 100000);
	}
	while (n < in)
		assert_true(get(&c, n++));
	shm_prod_unmap(&p);
}

/* Small packets use up the descriptors long before the data. */
static void test_descriptors_run_out(void **state)
{
	struct shm_prod p;
	struct shm_cons c;
	uint8_t *bth, tos;
	uint32_t len, n = 0;

	pair(SHM_RING_DEFAULT, &p, &c);
	for (int lap = 0; lap < 3; lap++) {
		for (; shm_prod_reserve(&p, 20, 0); n++)
			shm_prod_publish(&p);
		assert_int_equal(n, SHM_RING_DESCS);
		for (; n; n--)
			assert_int_equal(shm_cons_next(&c, &bth, &len, &tos), 1);
		assert_int_equal(shm_cons_next(&c, &bth, &len, &tos), 0);
		shm_cons_release(&c);
	}
	/* The places for unpublished packets are used up too. */
	for (; shm_prod_reserve(&p, 20, 0); n++)
		;
	assert_int_equal(n, SHM_RING_PENDING);
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

/* In each row a producer sends one valid packet, then writes wrong values. */
static void test_consumer_distrusts(void **state)
{
#define DESC(lap, offset, len) ((uint64_t)(lap) << 48 | (uint64_t)(offset) << 24 | (len))
	static const struct {
		const char *what;
		uint64_t desc;
	} rows[] = {
		{"a lap ahead", DESC(2, 0, 100)},
		{"laps behind", DESC(0xffff, 0, 100)},
		{"half way round", DESC(0x8000, 0, 100)},
		{"too short", DESC(1, 0, SHM_MIN_LEN - 1)},
		{"empty", DESC(1, 0, 0)},
		{"too long", DESC(1, 0, PKT_MAX_LEN + 1)},
		{"longest that can be said", DESC(1, 0, 0xffff)},
		{"hangs over the end",
		 DESC(1, SHM_RING_MIN / SHM_REC_ALIGN - 1, SHM_REC_ALIGN + 1)},
		{"long, over the end", DESC(1, SHM_RING_MIN / SHM_REC_ALIGN - 125, 4000)},
		{"behind the end", DESC(1, SHM_RING_MIN / SHM_REC_ALIGN, 16)},
		{"far behind the end", DESC(1, 0xffffff, 16)},
		{"ones", UINT64_MAX},
	};

	for (unsigned i = 0; i < ARRAY_SIZE(rows); i++) {
		struct shm_prod p;
		struct shm_cons c;
		uint8_t *bth, tos;
		uint32_t len;

		pair(SHM_RING_MIN, &p, &c);
		shm_prod_reserve(&p, 100, 0);
		shm_prod_publish(&p);
		assert_int_equal(shm_cons_next(&c, &bth, &len, &tos), 1);
		assert_int_equal(shm_cons_look(&c), 0);
		atomic_store(&p.descs[1], rows[i].desc);
		if (shm_cons_look(&c) == 0 || shm_cons_next(&c, &bth, &len, &tos) != -1)
			fail_msg("%s: accepted", rows[i].what);
		assert_int_equal(c.head, 1);
		shm_prod_unmap(&p);
	}
}

/* The last places of the ring are usable. */
static void test_end_of_the_ring(void **state)
{
	struct shm_prod p;
	struct shm_cons c;
	uint8_t *bth = NULL, tos;
	uint32_t len = 0;

	pair(SHM_RING_MIN, &p, &c);
	atomic_store(&p.descs[0], DESC(1, SHM_RING_MIN / SHM_REC_ALIGN - 1, SHM_REC_ALIGN));
	atomic_store(
		&p.descs[1],
		DESC(1, (SHM_RING_MIN - shm_rec_size(PKT_MAX_LEN)) / SHM_REC_ALIGN, PKT_MAX_LEN));
	assert_int_equal(shm_cons_next(&c, &bth, &len, &tos), 1);
	assert_ptr_equal(bth + len, p.data + SHM_RING_MIN);
	assert_int_equal(shm_cons_next(&c, &bth, &len, &tos), 1);
	assert_true(bth + len <= p.data + SHM_RING_MIN);
	shm_prod_unmap(&p);
}

/*
 * Memory is refused as a ring if it can shrink under a reader, cannot be written, has another size,
 * or is not allocated yet.
 */
static void test_consumer_wants_seals(void **state)
{
	static const struct {
		int seals, more, rc;
		bool unallocated;
	} rows[] = {
		{F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL, 0, 0, false},
		{F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL, 0, -EINVAL, true},
		{F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL, 4096, -EINVAL, false},
		{F_SEAL_GROW | F_SEAL_SEAL, 0, -EPERM, false},
		{F_SEAL_SHRINK | F_SEAL_SEAL, 0, -EPERM, false},
		{F_SEAL_SHRINK | F_SEAL_GROW, 0, -EPERM, false},
		{F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL | F_SEAL_WRITE, 0, -EPERM, false},
		{0, 0, -EPERM, false},
	};

	for (unsigned i = 0; i < ARRAY_SIZE(rows); i++) {
		int fd = memfd_create("ring", MFD_CLOEXEC | MFD_ALLOW_SEALING);
		struct shm_cons c = {0};

		assert_true(fd >= 0);
		assert_int_equal(ftruncate(fd, SHM_RING_OVERHEAD + SHM_RING_MIN + rows[i].more), 0);
		if (!rows[i].unallocated)
			assert_int_equal(fallocate(fd, 0, 0, SHM_RING_OVERHEAD + SHM_RING_MIN), 0);
		if (rows[i].seals)
			assert_int_equal(fcntl(fd, F_ADD_SEALS, rows[i].seals), 0);
		assert_int_equal(shm_cons_map(fd, SHM_RING_MIN, &c), rows[i].rc);
		shm_cons_unmap(&c);
		close(fd);
	}
}

static void test_producer_distrusts(void **state)
{
	static const int64_t wrong[] = {1, 1 << 20, -1, INT64_MAX}; /* from the published one */

	for (unsigned i = 0; i < ARRAY_SIZE(wrong); i++) {
		struct shm_prod p;
		struct shm_cons c;
		uint64_t n = 0;

		pair(SHM_RING_MIN, &p, &c);
		/* A valid round first, so that the head can go back. */
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
		assert_true(p.pos - p.free <= SHM_RING_MIN);
		shm_prod_unmap(&p);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_order_over_many_laps),
		cmocka_unit_test(test_burst_begins_in_watched_lines),
		cmocka_unit_test(test_unpublished_is_unseen),
		cmocka_unit_test(test_full_until_released),
		cmocka_unit_test(test_full_for_large_ones),
		cmocka_unit_test(test_cancel),
		cmocka_unit_test(test_extent),
		cmocka_unit_test(test_descriptors_run_out),
		cmocka_unit_test(test_two_threads),
		cmocka_unit_test(test_consumer_distrusts),
		cmocka_unit_test(test_end_of_the_ring),
		cmocka_unit_test(test_consumer_wants_seals),
		cmocka_unit_test(test_producer_distrusts),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
