/* SPDX-License-Identifier: BSD-2-Clause */
#include "nic/dma.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <ucontext.h>
#if defined(__aarch64__)
#include <sys/auxv.h>
#endif

#include "base/fault.h"
#include "packet/crc32.h"

static pthread_once_t once = PTHREAD_ONCE_INIT;
static int init_error;

/* Copies the bytes and computes the CRC in two passes. */
static int load_then_crc(void *dst, const void *src, size_t n, uint32_t *crc)
{
	int rc = dma_load(dst, src, n);

	if (!rc)
		*crc = crc32_update(*crc, dst, n);
	return rc;
}

#define FOLD_MIN (2 * CRC32_FOLD)

extern const char dma_text_begin[], dma_text_end[], dma_fixup[];

#if defined(__x86_64__)

int dma_copy_sse2(void *dst, const void *src, size_t n);
int dma_copy_avx(void *dst, const void *src, size_t n);
int dma_copy_up_words(void *dst, const void *src, size_t n);
int dma_copy_up_avx(void *dst, const void *src, size_t n);
int dma_load_avx(void *dst, const void *src, size_t n);
/*
 * Copies and computes in one pass. n is a multiple of CRC32_FOLD, and at least 2 * CRC32_FOLD.
 * `fold` is the change to the first block on entry, and the last block on return.
 */
int dma_fold_avx2(void *dst, const void *src, size_t n, uint32_t fold[CRC32_FOLD / 4],
		  const uint64_t by[2]);
int dma_stream_sse2(void *dst, const void *src, size_t n);
int dma_stream_avx(void *dst, const void *src, size_t n);

static int (*copy)(void *, const void *, size_t) = dma_copy_sse2;
static int (*copy_up)(void *, const void *, size_t) = dma_copy_up_words;
static int (*load)(void *, const void *, size_t) = dma_copy_sse2;
static int (*stream)(void *, const void *, size_t) = dma_stream_sse2;
static int (*fold_blocks)(void *, const void *, size_t, uint32_t *, const uint64_t *);

int dma_copy(void *dst, const void *src, size_t n)
{
	return copy(dst, src, n);
}

int dma_copy_up(void *dst, const void *src, size_t n)
{
	return copy_up(dst, src, n);
}

int dma_load(void *dst, const void *src, size_t n)
{
	return load(dst, src, n);
}

/* This CPU keeps loads in order; the call is a compiler barrier. */
int dma_load_up(void *dst, const void *src, size_t n)
{
	return load(dst, src, n);
}

int dma_stream(void *dst, const void *src, size_t n)
{
	return ((uintptr_t)dst | n) % 64 ? copy(dst, src, n) : stream(dst, src, n);
}

void dma_fence(void)
{
	__builtin_ia32_sfence();
}

static greg_t *counter_of(ucontext_t *uc)
{
	return &uc->uc_mcontext.gregs[REG_RIP];
}

static void choose(void)
{
	if (__builtin_cpu_supports("avx")) {
		copy = dma_copy_avx;
		copy_up = dma_copy_up_avx;
		load = dma_load_avx;
		stream = dma_stream_avx;
	}
	if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("vpclmulqdq"))
		fold_blocks = dma_fold_avx2;
}

#elif defined(__aarch64__)

int dma_fold_pmull(void *dst, const void *src, size_t n, uint32_t fold[CRC32_FOLD / 4],
		   const uint64_t by[2]);
int dma_stream_lines(void *dst, const void *src, size_t n);
int dma_cmp_swap_lse(void *addr, uint64_t compare, uint64_t swap, uint64_t *old);
int dma_cmp_swap_llsc(void *addr, uint64_t compare, uint64_t swap, uint64_t *old);
int dma_fetch_add_lse(void *addr, uint64_t add, uint64_t *old);
int dma_fetch_add_llsc(void *addr, uint64_t add, uint64_t *old);

static int (*fold_blocks)(void *, const void *, size_t, uint32_t *, const uint64_t *);
static int (*cmp_swap)(void *, uint64_t, uint64_t, uint64_t *) = dma_cmp_swap_llsc;
static int (*fetch_add)(void *, uint64_t, uint64_t *) = dma_fetch_add_llsc;

int dma_stream(void *dst, const void *src, size_t n)
{
	return ((uintptr_t)dst | n) % 64 ? dma_copy(dst, src, n) : dma_stream_lines(dst, src, n);
}

void dma_fence(void)
{
	atomic_thread_fence(memory_order_release);
}

int dma_cmp_swap(void *addr, uint64_t compare, uint64_t swap, uint64_t *old)
{
	return cmp_swap(addr, compare, swap, old);
}

int dma_fetch_add(void *addr, uint64_t add, uint64_t *old)
{
	return fetch_add(addr, add, old);
}

static greg_t *counter_of(ucontext_t *uc)
{
	return (greg_t *)&uc->uc_mcontext.pc;
}

static void choose(void)
{
	unsigned long has = getauxval(AT_HWCAP);

	if (has & HWCAP_ATOMICS) {
		cmp_swap = dma_cmp_swap_lse;
		fetch_add = dma_fetch_add_lse;
	}
	if (has & HWCAP_PMULL)
		fold_blocks = dma_fold_pmull;
}

#endif

/* Not inlined, because `fold` would align the stack frames of small packets, too. */
__attribute__((noinline)) int dma_load_crc(void *dst, const void *src, size_t n, uint32_t *crc)
{
	_Alignas(32) uint32_t fold[CRC32_FOLD / 4] = {~*crc};
	size_t blocks = n - n % CRC32_FOLD;
	uint32_t so_far;
	int rc;

	if (!fold_blocks || blocks < FOLD_MIN)
		return load_then_crc(dst, src, n, crc);
	rc = fold_blocks(dst, src, blocks, fold, crc32_fold_by);
	if (rc)
		return rc;
	so_far = crc32_update(CRC32_NOTHING, fold, sizeof(fold));
	rc = load_then_crc((uint8_t *)dst + blocks, (const uint8_t *)src + blocks, n - blocks,
			   &so_far);
	if (!rc)
		*crc = so_far;
	return rc;
}

static bool on_fault(int sig, siginfo_t *info, void *ucv)
{
	greg_t *counter = counter_of(ucv);

	/* A signal sent by a process is not a fault of the interrupted access. */
	if (info->si_code <= 0 || (uintptr_t)*counter < (uintptr_t)dma_text_begin ||
	    (uintptr_t)*counter >= (uintptr_t)dma_text_end)
		return false;
	*counter = (greg_t)(uintptr_t)dma_fixup;
	return true;
}

static void init(void)
{
	choose();
	init_error = fault_add(SIGSEGV, on_fault);
	if (!init_error)
		init_error = fault_add(SIGBUS, on_fault);
}

int dma_init(void)
{
	pthread_once(&once, init);
	return init_error;
}
