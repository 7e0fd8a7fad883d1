/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The memory access engine. The index, slabs and stacks of a store access memory only through it,
 * and it counts the accesses. An access is one contiguous request.
 *
 * Addresses are offsets in one address range, which is reserved as a whole. Pages are allocated
 * when they are first written. One thread at a time.
 *
 * With a far tier (near.h) only some lines of the range are in memory. An access to another line
 * ends the operation, which runs again when the line is there, or waits for the line. Bytes that an
 * access returned are valid until the operation ends.
 */
#ifndef ROOST_KV_MEMORY_H
#define ROOST_KV_MEMORY_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "base/mem.h"

struct kv_near;

struct kv_memory {
	uint8_t *base;
	uint64_t size;
	uint64_t reads, writes; /* counts of accesses */
	struct kv_near *near;	/* NULL: all memory is near */
	void (*grown)(void *);	/* called when growth reaches another huge page; may be NULL */
	void *grown_ctx;
};

/* The index or a segment, which ended at `from`, ends at `to`. */
static inline void kv_memory_grows(const struct kv_memory *m, uint64_t from, uint64_t to)
{
	if (unlikely((from ^ to) / MEM_HUGE_PAGE) && m->grown)
		m->grown(m->grown_ctx);
}

/*
 * Reserves `size` bytes, rounded up to a page, with huge pages. Without a far tier the first access
 * to a huge page takes as long as Linux needs to clear it: 0.1 ms, but up to 8 ms if a hypervisor
 * has to find the memory. Returns 0 or -ENOMEM.
 */
int kv_memory_open(struct kv_memory *m, uint64_t size);
void kv_memory_close(struct kv_memory *m);
/* Gives a range small pages, whose first access is short. */
void kv_memory_small(const struct kv_memory *m, uint64_t addr, uint64_t len);

/* near.c: get the lines of an access into near memory, and save the bytes that will be written */
void kv_near_need(struct kv_near *n, uint64_t addr, uint32_t len);
void kv_near_change(struct kv_near *n, uint64_t addr, uint32_t len);
/* Requests lines that the operation needs later. Returns whether lines are missing. */
bool kv_near_want(struct kv_near *n, uint64_t addr, uint32_t len);
/* Saves bytes outside of the range, which return to their old value if the operation runs again. */
void kv_near_save(struct kv_near *n, void *at, uint32_t len);

/* Returns `len` bytes that follow those of the previous access. It does not count as an access. */
static inline const void *kv_more(const struct kv_memory *m, uint64_t addr, uint32_t len)
{
	if (unlikely(m->near != NULL))
		kv_near_need(m->near, addr, len);
	return m->base + addr;
}

/* Performs an access: returns `len` bytes that remain valid until they are written. */
static inline const void *kv_read(struct kv_memory *m, uint64_t addr, uint32_t len)
{
	m->reads++;
	return kv_more(m, addr, len);
}

/* Performs an access: returns the place where the caller writes `len` bytes at once. */
static inline void *kv_write(struct kv_memory *m, uint64_t addr, uint32_t len)
{
	m->writes++;
	if (unlikely(m->near != NULL))
		kv_near_change(m->near, addr, len);
	return m->base + addr;
}

/* Performs an access: returns `len` bytes that the caller has read, and now changes in place. */
static inline void *kv_change(struct kv_memory *m, uint64_t addr, uint32_t len)
{
	return kv_write(m, addr, len);
}

/* Saves a state of the caller that belongs to the memory, before the caller changes it. */
static inline void kv_save(const struct kv_memory *m, void *at, uint32_t len)
{
	if (unlikely(m->near != NULL))
		kv_near_save(m->near, at, len);
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
