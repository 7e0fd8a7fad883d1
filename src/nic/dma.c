/* SPDX-License-Identifier: BSD-2-Clause */
#include "nic/dma.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <ucontext.h>

static struct sigaction old_segv, old_bus;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static int init_error;

/* Hands a fault that is not ours to whoever had the signal before us. */
static void chain(int sig, siginfo_t *info, void *uc)
{
	const struct sigaction *old = sig == SIGSEGV ? &old_segv : &old_bus;

	if (old->sa_flags & SA_SIGINFO) {
		old->sa_sigaction(sig, info, uc);
	} else if (old->sa_handler == SIG_DFL || old->sa_handler == SIG_IGN) {
		/* Returning runs the instruction again, and the default action ends the process with a true core. */
		struct sigaction dfl = {.sa_handler = SIG_DFL};

		sigaction(sig, &dfl, NULL);
	} else {
		old->sa_handler(sig);
	}
}

#if defined(__x86_64__)

int dma_copy_sse2(void *dst, const void *src, size_t n);
int dma_copy_avx(void *dst, const void *src, size_t n);
extern const char dma_text_begin[], dma_text_end[], dma_fixup[];

static int (*copy)(void *, const void *, size_t) = dma_copy_sse2;

int dma_copy(void *dst, const void *src, size_t n)
{
	return copy(dst, src, n);
}

static void on_fault(int sig, siginfo_t *info, void *ucv)
{
	ucontext_t *uc = ucv;
	uintptr_t ip = (uintptr_t)uc->uc_mcontext.gregs[REG_RIP];

	if (ip >= (uintptr_t)dma_text_begin && ip < (uintptr_t)dma_text_end) {
		uc->uc_mcontext.gregs[REG_RIP] = (greg_t)(uintptr_t)dma_fixup;
		return;
	}
	chain(sig, info, ucv);
}

static void choose(void)
{
	if (__builtin_cpu_supports("avx"))
		copy = dma_copy_avx;
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

int dma_load_line(void *dst, const void *src)
{
	return GUARDED(memcpy(dst, src, 64));
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

static void on_fault(int sig, siginfo_t *info, void *ucv)
{
	if (guard)
		siglongjmp(*guard, 1);
	chain(sig, info, ucv);
}

static void choose(void)
{
}

#endif

static void init(void)
{
	struct sigaction sa = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK};

	choose();
	sigemptyset(&sa.sa_mask);
	if (sigaction(SIGSEGV, &sa, &old_segv) || sigaction(SIGBUS, &sa, &old_bus))
		init_error = -errno;
}

int dma_init(void)
{
	pthread_once(&once, init);
	return init_error;
}
