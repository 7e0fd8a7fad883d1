/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The DMA engine's hands: the only code that dereferences an address that came from the wire or a
 * WQE. Callers have resolved it through the MR table (mr.h) just before.
 *
 * Memory may be unmapped after registration. Each access here is therefore guarded: a fault inside
 * becomes -EFAULT, by a table of code ranges and a SIGSEGV/SIGBUS handler that passes every other
 * fault on to whoever had the signal before.
 *
 * Programs, and kernels, look at this memory without asking: what they may count on is said at each
 * function. Where stores and loads stay in order by themselves (x86-64) it costs nothing; elsewhere
 * dma_copy() has store-releases and a barrier, dma_load_up() load-acquires and a barrier.
 */
#ifndef ROOST_NIC_DMA_H
#define ROOST_NIC_DMA_H

#include <stddef.h>
#include <stdint.h>

/* Installs the fault handler, once per process. 0 or -errno. Any thread. */
int dma_init(void);

/*
 * Copies n bytes. The last bytes are written by aligned stores of 8 bytes at least, in ascending
 * order and after all the rest, so a program that polls the last byte of a message sees the whole
 * message when it sees that byte. What was copied before, by the same thread, is seen before. 0 or
 * -EFAULT; what was copied before a fault stays. Any thread.
 */
int dma_copy(void *dst, const void *src, size_t n);

/*
 * The same, to where nobody looks before we are done, so written in any order. Where src is aligned
 * to 8 bytes, and dst or n too, each such word is read at once: what the program wrote in one
 * piece. In which order the words are read depends on the CPU. Any thread.
 */
int dma_load(void *dst, const void *src, size_t n);
/*
 * The same, and *crc (packet/crc32.h) goes on over what was copied; for n from about 1 KiB in one
 * pass, where the CPU can. At a fault *crc is as it was.
 */
int dma_load_crc(void *dst, const void *src, size_t n, uint32_t *crc);
/*
 * The same, past the cache where dst is aligned to 64 bytes and n a multiple of them: for what this
 * CPU does not look at again soon. The order of its stores, and with others, is that of
 * dma_fence(), before which nothing is told of them.
 */
int dma_stream(void *dst, const void *src, size_t n);
void dma_fence(void);

/*
 * As dma_load(), of memory that a thread of the program may be changing, in an order that means
 * something: where src is aligned to 8 bytes the words of the first 64 bytes are read upward, what
 * is behind them after these, and what the caller reads or writes next after all. Any thread.
 */
int dma_load_up(void *dst, const void *src, size_t n);

/*
 * 8-byte atomics of the CPU at an aligned address; *old gets the value before. 0 or -EFAULT. Any
 * thread.
 */
int dma_cmp_swap(void *addr, uint64_t compare, uint64_t swap, uint64_t *old);
int dma_fetch_add(void *addr, uint64_t add, uint64_t *old);

#endif
