/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Memory for regions of tests. A test that runs hundreds of cases needs buffers of the same few
 * sizes again and again. If each came from the C library, which maps and unmaps large ones, page
 * faults would be most of the time.
 */
#ifndef ROOST_TESTS_SPARE_MEM_H
#define ROOST_TESTS_SPARE_MEM_H

#include <stddef.h>

/* Returns `len` bytes of zeroed memory, aligned to a page. Not thread-safe. */
void *spare_mem_take(size_t len);
/* Gives memory back with its length. gcc's ASan reports accesses from now on. `p` may be NULL. */
void spare_mem_give(void *p, size_t len);

#endif
