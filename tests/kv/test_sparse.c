/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A store of 256 GiB: four segments of 64 GiB in one sparse mapping, of which few pages are used.
 * Where the system does not give so much address space, the tests are skipped, and say so.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "kv/store.h"

#define GIB	 (1ull << 30)
#define SEGMENTS 4u
#define PAIRS	 4000u
#define BIG	 (100u << 10) /* a value in extents */
#define MOST	 (256ull << 20)

static uint8_t secret[KV_SECRET] = {11};

static void skip_loudly(const char *what, uint64_t bytes)
{
	print_message("SKIPPED: %s needs %llu GiB of address space without reservation "
		      "(vm.overcommit_memory, ulimit -v)\n",
		      what, (unsigned long long)(bytes / GIB));
	skip();
}

static uint64_t resident(void)
{
	unsigned long long size, pages = 0;
	FILE *f = fopen("/proc/self/statm", "r");

	assert_non_null(f);
	assert_int_equal(fscanf(f, "%llu %llu", &size, &pages), 2);
	fclose(f);
	return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

static uint32_t length_of(uint32_t key)
{
	return key % 1000 == 999 ? BIG : key % 900;
}

static void run_one(struct kv *kv, uint8_t code, uint32_t key, uint8_t salt)
{
	static uint8_t value[BIG], out[BIG];
	uint32_t len = length_of(key);
	struct kv_op op = {.code = code,
			   .key = &key,
			   .key_len = 4,
			   .value = value,
			   .value_len = len,
			   .out = out,
			   .out_cap = sizeof(out)};

	memset(value, (int)(key ^ salt), len);
	kv_run(kv, &op, 1);
	assert_int_equal(op.status, 0);
	if (code == KV_GET) {
		assert_int_equal(op.out_len, len);
		assert_memory_equal(out, value, len);
	}
}

static void pairs_are_in_segments_beyond_64_gib(void **state)
{
	struct kv_config c = {.size = SEGMENTS * SLAB_SEGMENT_MAX,
			      .buckets = 1024,
			      .buckets_max = 1024,
			      .inline_max = 20,
			      .secret = secret};
	uint64_t before = resident(), after;
	struct kv *kv;

	if (kv_open(&c, &kv))
		skip_loudly("a store of four segments", c.size * 5 / 4);
	assert_int_equal(kv->segments, SEGMENTS);
	for (uint8_t salt = 1; salt < 3; salt++) { /* new keys, then the same keys again */
		for (uint32_t k = 0; k < PAIRS; k++)
			run_one(kv, KV_PUT, k, salt);
		for (uint32_t k = 0; k < PAIRS; k++)
			run_one(kv, KV_GET, k, salt);
	}
	for (unsigned i = 0; i < SEGMENTS; i++) {
		assert_true(kv->slabs[i].base >= i * SLAB_SEGMENT_MAX);
		assert_true(kv->slabs[i].used > (64u << 10));
	}
	for (uint32_t k = 0; k < PAIRS; k += 2)
		run_one(kv, KV_DELETE, k, 0);
	for (uint32_t k = 1; k < PAIRS; k += 2)
		run_one(kv, KV_GET, k, 2);
	assert_null(kv_check(kv));
	after = resident();
	print_message("%u segments, %llu MiB resident\n", SEGMENTS,
		      (unsigned long long)(after - before) >> 20);
	assert_true(after < before + MOST);
	kv_close(kv);
}

/* The last slabs of a segment: their places need all 31 bits, and entries still have 4 bytes. */
static void the_end_of_a_segment_beyond_64_gib(void **state)
{
	const uint64_t base = 3 * SLAB_SEGMENT_MAX, tail = 4ull << 20;
	const unsigned class = 2, n = (unsigned)(tail / slab_size(2));
	static uint32_t places[(4u << 20) / 128];
	static struct slab s;
	struct kv_memory mem;

	if (kv_memory_open(&mem, base + SLAB_SEGMENT_MAX + slab_stack_bytes(SLAB_SEGMENT_MAX)))
		skip_loudly("a segment at 192 GiB", base + SLAB_SEGMENT_MAX * 5 / 4);
	slab_init(&s, &mem, base, SLAB_SEGMENT_MAX, SLAB_SEGMENT_MAX, base + SLAB_SEGMENT_MAX);
	assert_int_equal(sizeof(s.classes[class].near[0]), 4);
	/* As if everything before had been allocated. */
	s.top = SLAB_SEGMENT_MAX - tail;
	for (unsigned round = 0; round < 2; round++) {
		for (unsigned i = 0; i < n; i++) {
			uint64_t addr;

			places[i] = slab_alloc(&s, class);
			addr = slab_addr(&s, places[i]);
			assert_true(addr >= base + SLAB_SEGMENT_MAX - tail);
			assert_true(addr + slab_size(class) <= base + SLAB_SEGMENT_MAX);
			*(uint32_t *)kv_write(&mem, addr, 4) = places[i];
		}
		assert_int_equal(slab_alloc(&s, class), 0);
		/* No slab overlaps another one: each still has its own number. */
		for (unsigned i = 0; i < n; i++) {
			assert_int_equal(
				*(const uint32_t *)kv_read(&mem, slab_addr(&s, places[i]), 4),
				places[i]);
			slab_free(&s, places[i], class);
		}
		/* Their entries are in the far stack, 4 bytes each. */
		assert_true(s.classes[class].far_count > n / 2 || s.merge.running);
	}
	kv_memory_close(&mem);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(pairs_are_in_segments_beyond_64_gib),
		cmocka_unit_test(the_end_of_a_segment_beyond_64_gib),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
