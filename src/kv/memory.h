/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The memory access engine. The index, slabs and stacks of a store access memory only through it,
 * and it counts the accesses. An access is one contiguous request of any length.
 *
 * Addresses are offsets in one address range, which is reserved as a whole. Pages are allocated
 * when they are first written. One thread at a time.
 */
#ifndef ROOST_KV_MEMORY_H
#define ROOST_KV_MEMORY_H

#include <stdint.h>
#include <string.h>

#include "base/mem.h"

struct kv_memory {
	uint8_t *base;
	uint64_t size;
	uint64_t reads, writes; /* accesses */
};

/* Reserves `size` bytes, rounded up to a page. Returns 0 or -ENOMEM. */
int kv_memory_open(struct kv_memory *m, uint64_t size);
void kv_memory_close(struct kv_memory *m);

/* An access: returns bytes that remain valid until they are written. */
static inline const void *kv_read(struct kv_memory *m, uint64_t addr)
{
	m->reads++;
	return m->base + addr;
}

/* Returns bytes that follow those of the previous access. It does not count as an access. */
static inline const void *kv_more(const struct kv_memory *m, uint64_t addr)
{
	return m->base + addr;
}

/* An access: returns the place where the caller writes contiguous bytes at once. */
static inline void *kv_write(struct kv_memory *m, uint64_t addr)
{
	m->writes++;
	return m->base + addr;
}

/* An access: returns bytes that the caller has read, and now changes in place. */
static inline void *kv_change(struct kv_memory *m, uint64_t addr)
{
	return kv_write(m, addr);
}

/* Prefetches. It does not count as an access. */
static inline void kv_prefetch(const struct kv_memory *m, uint64_t addr)
{
	__builtin_prefetch(m->base + addr);
}

static inline uint64_t kv_accesses(const struct kv_memory *m)
{
	return m->reads + m->writes;
}

#endif
