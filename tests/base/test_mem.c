/* SPDX-License-Identifier: BSD-2-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "base/mem.h"

static void arithmetic(void **state)
{
	assert_int_equal(ALIGN_UP(0, 64), 0);
	assert_int_equal(ALIGN_UP(1, 64), 64);
	assert_int_equal(ALIGN_UP(64, 64), 64);
	assert_int_equal(ALIGN_DOWN(127, 64), 64);
	assert_true(ALIGN_UP((1ull << 40) + 1, 4096) == (1ull << 40) + 4096);
	assert_false(is_pow2(0));
	assert_true(is_pow2(1) && is_pow2(1ull << 63) && !is_pow2(6));
	assert_int_equal(pow2_ceil(0), 1);
	assert_int_equal(pow2_ceil(1), 1);
	assert_int_equal(pow2_ceil(5), 8);
	assert_int_equal(pow2_ceil(8), 8);
	assert_true(pow2_ceil((1ull << 62) + 1) == 1ull << 63);
	assert_int_equal(log2_floor(1), 0);
	assert_int_equal(log2_floor(4095), 11);
	assert_int_equal(log2_floor(UINT64_MAX), 63);
}

static bool mapped(void *p)
{
	unsigned char vec;

	return mincore(p, mem_page_size(), &vec) == 0;
}

static void pages(void **state)
{
	static const size_t sizes[] = {1, 4096, 4097, 100000, 2u << 20, (2u << 20) + 1, 9u << 20};

	for (unsigned i = 0; i < ARRAY_SIZE(sizes); i++) {
		char *p = mem_alloc_pages(sizes[i]);
		size_t page = mem_page_size(), whole = ALIGN_UP(sizes[i], page);

		assert_non_null(p);
		assert_int_equal((uintptr_t)p % page, 0);
		if (sizes[i] >= 2u << 20)
			assert_int_equal((uintptr_t)p % (2u << 20), 0);
		for (size_t k = 0; k < whole; k += page)
			assert_int_equal(p[k], 0);
		memset(p, 0xa5, whole);
		mem_free_pages(p, sizes[i]);
		assert_false(mapped(p));
		assert_false(mapped(p + whole - page));
	}
}

static long mapped_pages(void)
{
	FILE *f = fopen("/proc/self/statm", "r");
	long n = -1;

	assert_non_null(f);
	assert_int_equal(fscanf(f, "%ld", &n), 1);
	fclose(f);
	return n;
}

/* The excess of an alignment is unmapped at once, the rest when the memory is freed. */
static void no_leak(void **state)
{
	const size_t size = (5u << 20) + 3, rounds = 50;
	long before = mapped_pages();

	for (size_t i = 0; i < rounds; i++) {
		void *p = mem_alloc_pages(size);

		assert_non_null(p);
		mem_free_pages(p, size);
	}
	assert_true((size_t)(mapped_pages() - before) * mem_page_size() < rounds * mem_page_size());
}

static void impossible(void **state)
{
	assert_null(mem_alloc_pages(0));
	assert_int_equal(errno, EINVAL);
	assert_null(mem_alloc_pages(SIZE_MAX - 5));
	assert_int_equal(errno, ENOMEM);
	assert_null(mem_alloc_pages(SIZE_MAX / 2));
	mem_free_pages(NULL, 4096);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(arithmetic),
		cmocka_unit_test(pages),
		cmocka_unit_test(no_leak),
		cmocka_unit_test(impossible),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
