/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Counts the allocations and frees of a program. The linker replaces malloc() and related functions
 * by the functions below (count_allocations in tests/meson.build). Include it in one file of a
 * program with one thread.
 */
#ifndef ROOST_TESTS_ALLOCATIONS_H
#define ROOST_TESTS_ALLOCATIONS_H

#include <stdint.h>
#include <stdlib.h>

static uint64_t allocations; /* allocations and frees */

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t m);
void *__real_realloc(void *p, size_t n);
void *__real_aligned_alloc(size_t a, size_t n);
void __real_free(void *p);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t m);
void *__wrap_realloc(void *p, size_t n);
void *__wrap_aligned_alloc(size_t a, size_t n);
void __wrap_free(void *p);

void *__wrap_malloc(size_t n)
{
	allocations++;
	return __real_malloc(n);
}

void *__wrap_calloc(size_t n, size_t m)
{
	allocations++;
	return __real_calloc(n, m);
}

void *__wrap_realloc(void *p, size_t n)
{
	allocations++;
	return __real_realloc(p, n);
}

void *__wrap_aligned_alloc(size_t a, size_t n)
{
	allocations++;
	return __real_aligned_alloc(a, n);
}

void __wrap_free(void *p)
{
	allocations += p != NULL;
	__real_free(p);
}

#endif
