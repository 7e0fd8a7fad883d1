/* SPDX-License-Identifier: BSD-2-Clause */
/* Memory in whole pages, and basic helpers: cache line, pause, branch hints, powers of two. */
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

/* Returns the smallest power of two at or above x; 1 for 0. x is at most 2^63. */
static inline uint64_t pow2_ceil(uint64_t x)
{
	return x <= 1 ? 1 : 1ull << (64 - __builtin_clzll(x - 1));
}

/* Returns the exponent of the largest power of two at or below x. x is not 0. */
static inline unsigned log2_floor(uint64_t x)
{
	return 63 - (unsigned)__builtin_clzll(x);
}

/*
 * Copies bytes that another thread or process may change meanwhile (rings of a program, memory
 * shared with a peer). The barrier ensures that the caller uses the values that it has checked:
 * without it a compiler may load a field from `src` again after the check.
 */
static inline void mem_copy_in(void *dst, const void *src, size_t n)
{
	memcpy(dst, src, n);
	__asm__ volatile("" : : : "memory");
}

/*
 * Waits a moment, in a loop that waits for another core. arm64 has no `pause`: its `yield` does
 * nothing on a core with one thread, so this uses `isb`, which empties the pipeline and takes about
 * as long as `pause` of x86.
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
 * Prefetches the line at p for writing. The builtin of the compiler only prefetches for reading,
 * unless the compiler knows the processor; a store to a line that another core shares then has to
 * fetch the line again. Processors without the instruction ignore it (all 64-bit x86 processors of
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
 * Allocates at least `size` bytes of zeroed memory, aligned to a page. Memory of at least 2 MiB is
 * aligned to 2 MiB, and Linux is advised to use huge pages. Returns NULL with errno set if
 * there is no memory or size is 0. mem_free_pages() with the same size frees the memory. Any
 * thread.
 */
void *mem_alloc_pages(size_t size);
/* Does the same without huge pages, for memory of which little may be used. */
void *mem_alloc_small_pages(size_t size);
/*
 * Frees memory of mem_alloc_pages(). `size` is the size that was requested. `p` may be NULL. Any
 * thread.
 */
void mem_free_pages(void *p, size_t size);

/*
 * Makes the pages with the bytes [from, upto) of `data` present, so that no later access takes a
 * page fault. Returns false if there is no memory for them. Kernels before 5.14 cannot do this; the
 * result is then true, and each page comes with the first access. Any thread.
 */
bool mem_populate(void *data, size_t from, size_t upto);

/*
 * Returns true if a file of this process may have this many bytes (RLIMIT_FSIZE); the limit also
 * holds for memory with a descriptor. A longer one would end the process with SIGXFSZ. Any thread.
 */
bool mem_file_fits(uint64_t bytes);

/* Returns the size of a page in bytes. */
size_t mem_page_size(void);
/*
 * Returns the bytes of memory that this process may use: the memory of the machine, or the limit of
 * its control groups if that is lower. Any thread; reads files.
 */
uint64_t mem_allowed(void);
/*
 * Returns the memory limit of the control groups in bytes, or 0 if there is none. The files have
 * the contents of /proc/self/mountinfo and /proc/self/cgroup.
 */
uint64_t mem_allowed_from(const char *mountinfo, const char *cgroup);

#endif
