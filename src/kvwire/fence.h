/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The time until which a node serves its partitions (docs/kv.md). The thread that keeps the node's
 * lease sets it, and the owner of the store reads it before and after each group of operations.
 *
 * Memory order: the thread stores `version`, then `until_ns`; the owner loads `until_ns`, then
 * `version`. All accesses are sequentially consistent, so an owner that finds the fence open has
 * the version for which it was opened, or a later one.
 */
#ifndef ROOST_KVWIRE_FENCE_H
#define ROOST_KVWIRE_FENCE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

struct kv_fence {
	_Atomic uint64_t until_ns; /* time of kv_fence_now(); 0: the node serves no partition */
	/* The least version of the table to serve by; it is set while until_ns is 0. */
	_Atomic uint64_t version;
};

/* Returns the time of a clock that advances while the machine is suspended. */
static inline uint64_t kv_fence_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_BOOTTIME, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

/* Returns whether a node with this version of the table may serve at `now`. NULL means always. */
static inline bool kv_fence_open(const struct kv_fence *f, uint64_t version, uint64_t now)
{
	return !f || (now < atomic_load(&f->until_ns) && version >= atomic_load(&f->version));
}

#endif
