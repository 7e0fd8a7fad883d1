/* SPDX-License-Identifier: BSD-2-Clause */
#include "nic/dma.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <ucontext.h>

#include "base/fault.h"
#include "packet/crc32.h"

static pthread_once_t once = PTHREAD_ONCE_INIT;
static int init_error;

/* In two passes. */
static int load_then_crc(void *dst, const void *src, size_t n, uint32_t *crc)
{
	int rc = dma_load(dst, src, n);

	if (!rc)
		*crc = crc32_update(*crc, dst, n);
	return rc;
}

#if defined(__x86_64__)

#define FOLD_MIN (2 * CRC32_FOLD)

int dma_copy_sse2(void *dst, const void *src, size_t n);
int dma_copy_avx(void *dst, const void *src, size_t n);
int dma_load_avx(void *dst, const void *src, size_t n);
/* n: a multiple of CRC32_FOLD, and twice that at least; fold: what the first block is changed by, then the last one. */
int dma_fold_avx2(void *dst, const void *src, size_t n, uint32_t fold[CRC32_FOLD / 4], const uint64_t by[2]);
int dma_stream_sse2(void *dst, const void *src, size_t n);
int dma_stream_avx(void *dst, const void *src, size_t n);
extern const char dma_text_begin[], dma_text_end[], dma_fixup[];

static int (*copy)(void *, const void *, size_t) = dma_copy_sse2;
static int (*load)(void *, const void *, size_t) = dma_copy_sse2;
static int (*stream)(void *, const void *, size_t) = dma_stream_sse2;
static bool folds;

int dma_copy(void *dst, const void *src, size_t n)
{
	return copy(dst, src, n);
}

int dma_load(void *dst, const void *src, size_t n)
{
	return load(dst, src, n);
}

int dma_load_crc(void *dst, const void *src, size_t n, uint32_t *crc)
{
	_Alignas(32) uint32_t fold[CRC32_FOLD / 4] = {~*crc};
	size_t blocks = n - n % CRC32_FOLD;
	uint32_t so_far;
	int rc;

	if (!folds || blocks < FOLD_MIN)
		return load_then_crc(dst, src, n, crc);
	rc = dma_fold_avx2(dst, src, blocks, fold, crc32_fold_by);
	if (rc)
		return rc;
	so_far = crc32_update(CRC32_NOTHING, fold, sizeof(fold));
	rc = load_then_crc((uint8_t *)dst + blocks, (const uint8_t *)src + blocks, n - blocks, &so_far);
	if (!rc)
		*crc = so_far;
	return rc;
}

int dma_stream(void *dst, const void *src, size_t n)
{
	return ((uintptr_t)dst | n) % 64 ? copy(dst, src, n) : stream(dst, src, n);
}

void dma_fence(void)
{
	__builtin_ia32_sfence();
}

static bool on_fault(int sig, siginfo_t *info, void *ucv)
{
	ucontext_t *uc = ucv;
	uintptr_t ip = (uintptr_t)uc->uc_mcontext.gregs[REG_RIP];

	/* What a process has sent is no fault of the access that it interrupts. */
	if (info->si_code <= 0 || ip < (uintptr_t)dma_text_begin || ip >= (uintptr_t)dma_text_end)
		return false;
	uc->uc_mcontext.gregs[REG_RIP] = (greg_t)(uintptr_t)dma_fixup;
	return true;
}

static void choose(void)
{
	if (__builtin_cpu_supports("avx")) {
		copy = dma_copy_avx;
		load = dma_load_avx;
		stream = dma_stream_avx;
	}
	folds = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("vpclmulqdq");
}

#else /* any other CPU: C, guarded by a saved context per access */

#include <setjmp.h>
#include <stdatomic.h>

static _Thread_local sigjmp_buf *guard;

#define GUARDED(body)                                                                                        \
	({                                                                                                   \
		sigjmp_buf env;                                                                              \
		int rc = -EFAULT;                                                                            \
		if (!sigsetjmp(env, 0)) {                                                                    \
			guard = &env;                                                                        \
			body;                                                                                \
			rc = 0;                                                                              \
		}                                                                                            \
		guard = NULL;                                                                                \
		rc;                                                                                          \
	})

static void copy_up(volatile unsigned char *d, const unsigned char *s, size_t n)
{
	for (; n && ((uintptr_t)d & 7); n--)
		*d++ = *s++;
	for (; n >= 8; n -= 8, d += 8, s += 8) {
		uint64_t v;

		memcpy(&v, s, 8);
		__atomic_store_n((uint64_t *)(uintptr_t)d, v, __ATOMIC_RELEASE);
	}
	for (; n; n--)
		__atomic_store_n(d++, *s++, __ATOMIC_RELEASE);
}

int dma_copy(void *dst, const void *src, size_t n)
{
	return GUARDED(copy_up(dst, src, n));
}

int dma_load(void *dst, const void *src, size_t n)
{
	return GUARDED(memcpy(dst, src, n));
}

int dma_load_crc(void *dst, const void *src, size_t n, uint32_t *crc)
{
	return load_then_crc(dst, src, n, crc);
}

int dma_stream(void *dst, const void *src, size_t n)
{
	return dma_copy(dst, src, n);
}

void dma_fence(void)
{
	atomic_thread_fence(memory_order_seq_cst);
}

int dma_cmp_swap(void *addr, uint64_t compare, uint64_t swap, uint64_t *old)
{
	return GUARDED({
		__atomic_compare_exchange_n((uint64_t *)addr, &compare, swap, 0, __ATOMIC_SEQ_CST,
					    __ATOMIC_SEQ_CST);
		*old = compare;
	});
}

int dma_fetch_add(void *addr, uint64_t add, uint64_t *old)
{
	return GUARDED(*old = __atomic_fetch_add((uint64_t *)addr, add, __ATOMIC_SEQ_CST));
}

static bool on_fault(int sig, siginfo_t *info, void *ucv)
{
	if (guard && info->si_code > 0)
		siglongjmp(*guard, 1);
	return false;
}

static void choose(void)
{
}

#endif

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
