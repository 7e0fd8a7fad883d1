/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Data that are appended or prepended to an item: the result has at most ITEM_MAX bytes. The value
 * of a native client has no trailer, so it may be longer than that. Behind the buffer of the result
 * is a page that cannot be accessed.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <cmocka.h>

#include "base/mem.h"
#include "memcached/session.h"

static struct items items;
static uint8_t *old_value, *data;

static int open_items(void **state)
{
	size_t page = mem_page_size(), size = ALIGN_UP(ROOST_KV_VALUE_MAX, page);

	items.fresh =
		mmap(NULL, size + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	old_value = malloc(ROOST_KV_VALUE_MAX);
	data = malloc(ROOST_KV_VALUE_MAX);
	if (items.fresh == MAP_FAILED || !old_value || !data)
		return -1;
	memset(old_value, 'o', ROOST_KV_VALUE_MAX);
	memset(data, 'd', ROOST_KV_VALUE_MAX);
	return mprotect(items.fresh + size, page, PROT_NONE);
}

static int close_items(void **state)
{
	size_t page = mem_page_size();

	free(old_value);
	free(data);
	return munmap(items.fresh, ALIGN_UP(ROOST_KV_VALUE_MAX, page) + page);
}

static uint32_t join(uint32_t old_len, uint32_t len, bool prepend)
{
	const struct item old = {.value = old_value, .value_len = old_len, .len = old_len};

	return mc_join(&items, &old, data, len, prepend);
}

static void assert_joined(uint32_t old_len, uint32_t len)
{
	assert_int_equal(join(old_len, len, false), old_len + len);
	assert_memory_equal(items.fresh, old_value, old_len);
	assert_memory_equal(items.fresh + old_len, data, len);
	assert_int_equal(join(old_len, len, true), old_len + len);
	assert_memory_equal(items.fresh, data, len);
	assert_memory_equal(items.fresh + len, old_value, old_len);
}

static void items_of_the_greatest_length(void **state)
{
	assert_joined(0, 0);
	assert_joined(0, ITEM_MAX);
	assert_joined(ITEM_MAX, 0);
	assert_joined(ITEM_MAX - 7, 7);
	assert_joined(7, ITEM_MAX - 7);
}

static void longer_ones_are_refused(void **state)
{
	static const uint32_t old[] = {7, ITEM_MAX, ITEM_MAX + 1, ROOST_KV_VALUE_MAX};

	for (unsigned i = 0; i < sizeof(old) / sizeof(old[0]); i++) {
		for (int prepend = 0; prepend < 2; prepend++) {
			uint32_t least = old[i] < ITEM_MAX ? ITEM_MAX - old[i] + 1 : 1;

			assert_int_equal(join(old[i], least, prepend), 0);
			assert_int_equal(join(old[i], ITEM_MAX, prepend), 0);
		}
	}
	assert_int_equal(join(ITEM_MAX + 1, 0, false), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(items_of_the_greatest_length),
		cmocka_unit_test(longer_ones_are_refused),
	};

	return cmocka_run_group_tests(tests, open_items, close_items);
}
