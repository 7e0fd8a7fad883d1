/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The memory access engine: index, slabs and stacks of a store reach memory only through it, and it
 * counts what they do. An access is one contiguous request, of any length.
 *
 * Addresses are offsets in one space, which is reserved as a whole; pages come when they are first
 * written. One thread at a time.
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

/* 0, or -ENOMEM. `size` is rounded up to a page. */
int kv_memory_open(struct kv_memory *m, uint64_t size);
void kv_memory_close(struct kv_memory *m);

/* An access: bytes that stay valid until they are written. */
static inline const void *kv_read(struct kv_memory *m, uint64_t addr)
{
	m->reads++;
	return m->base + addr;
}

/* Bytes that follow those of the access before: no access of its own. */
static inline const void *kv_more(const struct kv_memory *m, uint64_t addr)
{
	return m->base + addr;
}

/* An access: where the caller writes contiguous bytes at once. */
static inline void *kv_write(struct kv_memory *m, uint64_t addr)
{
	m->writes++;
	return m->base + addr;
}

/* No access, but the wish for one. */
static inline void kv_prefetch(const struct kv_memory *m, uint64_t addr)
{
	__builtin_prefetch(m->base + addr);
}

static inline uint64_t kv_accesses(const struct kv_memory *m)
{
	return m->reads + m->writes;
}

#endif
