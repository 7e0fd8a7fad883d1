/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Implements nic/dma.h in C, for CPUs without an assembly version. A saved context guards each
 * access. The tests run this file on all CPUs (tests/nic/meson.build).
 */
#include "nic/dma.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>

#include "base/fault.h"
#include "packet/crc32.h"

struct access {
	void *dst;
	const void *src;
	size_t n;
	bool up;
	uint64_t compare, value; /* for an atomic */
	uint64_t *old;
};

/*
 * The context of the current access. A signal handler reads this pointer, and must not be the first
 * to access it. So it must not be in thread-local memory that is allocated lazily.
 */
static _Thread_local sigjmp_buf *guard __attribute__((tls_model("initial-exec")));

/*
 * Runs an access, and returns -EFAULT after a fault. Neither this function nor its callees are
 * inlined, so no variable is in a register that the jump restores. The fences tell the compiler
 * that the handler reads `guard`. Without them the compiler could omit the store, because only the
 * handler reads it.
 */
static __attribute__((noinline)) int guarded(void (*run)(const struct access *),
					     const struct access *a)
{
	sigjmp_buf env;

	if (sigsetjmp(env, 0)) {
		guard = NULL;
		return -EFAULT;
	}
	guard = &env;
	atomic_signal_fence(memory_order_seq_cst);
	run(a);
	atomic_signal_fence(memory_order_seq_cst);
	guard = NULL;
	return 0;
}

/* Stores the words in order, after all earlier copies. */
static __attribute__((noinline)) void copy_up(const struct access *a)
{
	unsigned char *d = a->dst;
	const unsigned char *s = a->src;
	size_t n = a->n;

	atomic_thread_fence(memory_order_release);
	for (; n && (((uintptr_t)d & 7) || n < 8); n--)
		__atomic_store_n(d++, *s++, __ATOMIC_RELEASE);
	for (; n >= 8; n -= 8, d += 8, s += 8) {
		uint64_t v;

		memcpy(&v, s, 8);
		__atomic_store_n((uint64_t *)(uintptr_t)d, v, __ATOMIC_RELEASE);
	}
	for (; n; n--)
		__atomic_store_n(d++, *s++, __ATOMIC_RELEASE);
}

static __attribute__((noinline)) void load_words(const struct access *a)
{
	unsigned char *d = a->dst;
	const unsigned char *s = a->src;
	size_t n = a->n;

	for (; n >= 8 && !((uintptr_t)s & 7); n -= 8, d += 8, s += 8) {
		uint64_t v = __atomic_load_n((const uint64_t *)(uintptr_t)s, __ATOMIC_RELAXED);

		if (a->up)
			atomic_thread_fence(memory_order_acquire);
		memcpy(d, &v, 8);
	}
	memcpy(d, s, n);
	if (a->up)
		atomic_thread_fence(memory_order_acquire);
}

int dma_copy(void *dst, const void *src, size_t n)
{
	return guarded(copy_up, &(struct access){.dst = dst, .src = src, .n = n});
}

int dma_copy_up(void *dst, const void *src, size_t n)
{
	return dma_copy(dst, src, n);
}

int dma_load(void *dst, const void *src, size_t n)
{
	return guarded(load_words, &(struct access){.dst = dst, .src = src, .n = n});
}

int dma_load_up(void *dst, const void *src, size_t n)
{
	return guarded(load_words, &(struct access){.dst = dst, .src = src, .n = n, .up = true});
}

int dma_load_crc(void *dst, const void *src, size_t n, uint32_t *crc)
{
	int rc = dma_load(dst, src, n);

	if (!rc)
		*crc = crc32_update(*crc, dst, n);
	return rc;
}

int dma_stream(void *dst, const void *src, size_t n)
{
	return dma_copy(dst, src, n);
}

void dma_fence(void)
{
	atomic_thread_fence(memory_order_release);
}

static __attribute__((noinline)) void swap_word(const struct access *a)
{
	uint64_t expected = a->compare;

	__atomic_compare_exchange_n((uint64_t *)a->dst, &expected, a->value, 0, __ATOMIC_SEQ_CST,
				    __ATOMIC_SEQ_CST);
	*a->old = expected;
}

static __attribute__((noinline)) void add_word(const struct access *a)
{
	*a->old = __atomic_fetch_add((uint64_t *)a->dst, a->value, __ATOMIC_SEQ_CST);
}

int dma_cmp_swap(void *addr, uint64_t compare, uint64_t swap, uint64_t *old)
{
	return guarded(
		swap_word,
		&(struct access){.dst = addr, .compare = compare, .value = swap, .old = old});
}

int dma_fetch_add(void *addr, uint64_t add, uint64_t *old)
{
	return guarded(add_word, &(struct access){.dst = addr, .value = add, .old = old});
}

static bool on_fault(int sig, siginfo_t *info, void *ucv)
{
	if (guard && info->si_code > 0)
		siglongjmp(*guard, 1);
	return false;
}

static pthread_once_t once = PTHREAD_ONCE_INIT;
static int init_error;

static void init(void)
{
	init_error = fault_add(SIGSEGV, on_fault);
	if (!init_error)
		init_error = fault_add(SIGBUS, on_fault);
}

int dma_init(void)
{
	pthread_once(&once, init);
	return init_error;
}
