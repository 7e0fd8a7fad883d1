/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Memory in whole pages, and the small words of the machine: cache line, pause, branch hints,
 * powers of two.
 */
#ifndef ROOST_BASE_MEM_H
#define ROOST_BASE_MEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define CACHE_LINE    64
#define CACHE_ALIGNED __attribute__((aligned(CACHE_LINE)))
#define MEM_HUGE_PAGE (2ul << 20)

#define likely(x)   __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)

/* `a` is a power of two. */
#define ALIGN_UP(x, a)	 (((x) + ((__typeof__(x))(a)-1)) & ~((__typeof__(x))(a)-1))
#define ALIGN_DOWN(x, a) ((x) & ~((__typeof__(x))(a)-1))

#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))

static inline bool is_pow2(uint64_t x)
{
	return x && !(x & (x - 1));
}

/* The smallest power of two at or above x; 1 for 0. x is at most 2^63. */
static inline uint64_t pow2_ceil(uint64_t x)
{
	return x <= 1 ? 1 : 1ull << (64 - __builtin_clzll(x - 1));
}

/* The exponent of the largest power of two at or below x; x is not 0. */
static inline unsigned log2_floor(uint64_t x)
{
	return 63 - (unsigned)__builtin_clzll(x);
}

/*
 * Copies bytes that others may change meanwhile (a program's rings, memory shared with a peer).
 * What is checked afterwards is what is used: without the barrier a compiler may load a field from
 * `src` again, after the check.
 */
static inline void mem_copy_in(void *dst, const void *src, size_t n)
{
	memcpy(dst, src, n);
	__asm__ volatile("" : : : "memory");
}

/*
 * Inside a loop that waits for another core. On arm64 `yield` does nothing where a core has one
 * thread; `isb`, which empties the pipeline, takes about as long as x86's `pause`.
 */
static inline void cpu_pause(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("isb" : : : "memory");
#endif
}

/*
 * Asks for the line at p, to be written. The compiler's own prefetch for writing is one for reading
 * unless it is told what processor it is for, and a line that the other core shares must then be
 * asked for again by the store. Processors that lack it take it for nothing (all 64-bit ones of
 * this century).
 */
static inline void mem_prefetch_write(const void *p)
{
#if defined(__x86_64__)
	__asm__ volatile("prefetchw %0" : : "m"(*(const char *)p));
#else
	__builtin_prefetch(p, 1, 3);
#endif
}

/*
 * At least `size` bytes of zeroed memory, aligned to a page, or to 2 MiB with huge pages advised
 * when it is at least that large. NULL with errno set when there is none, or when size is 0. Free
 * with the same size. Any thread.
 */
void *mem_alloc_pages(size_t size);
void mem_free_pages(void *p, size_t size);

/* Bytes in a page of this machine. */
size_t mem_page_size(void);
/*
 * Bytes that this process may have: those of the machine, or what its control groups allow, if that
 * is less. Any thread; reads files.
 */
uint64_t mem_allowed(void);
/*
 * What control groups allow; 0: no limit. The files have the contents of /proc/self/mountinfo and
 * /proc/self/cgroup.
 */
uint64_t mem_allowed_from(const char *mountinfo, const char *cgroup);

#endif
