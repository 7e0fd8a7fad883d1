/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The memory accesses of the DMA engine: the only code that dereferences an address from the wire
 * or from a WQE. Callers resolve the address through the MR table (mr.h) just before.
 *
 * Memory may be unmapped after registration. So each access is guarded: a fault becomes -EFAULT, by
 * a table of code ranges and a SIGSEGV/SIGBUS handler. The handler passes every other fault to the
 * previous handler of the signal.
 *
 * Programs and kernels read this memory concurrently. Each function states its order of accesses.
 * The order is free on CPUs that keep stores and loads in order (x86-64). Elsewhere dma_copy() uses
 * store-releases and a barrier, dma_load_up() load-acquires and a barrier.
 */
#ifndef ROOST_NIC_DMA_H
#define ROOST_NIC_DMA_H

#include <stddef.h>
#include <stdint.h>

/* Installs the fault handler, once per process. 0 or -errno. Any thread. */
int dma_init(void);

/*
 * Copies n bytes. The last bytes are written by aligned stores of at least 8 bytes, in ascending
 * order and after all the others. So a program that polls the last byte of a message sees the whole
 * message when it sees that byte. Earlier copies of the same thread are visible before. 0 or
 * -EFAULT; bytes copied before a fault stay. Any thread.
 */
int dma_copy(void *dst, const void *src, size_t n);

/*
 * The same, to memory that no other thread reads before the call returns; the stores have no order.
 * If src, and dst or n, are aligned to 8 bytes, each such word is loaded atomically. The order of
 * the loads depends on the CPU. Any thread.
 */
int dma_load(void *dst, const void *src, size_t n);
/*
 * dma_load() that also updates *crc (packet/crc32.h) with the bytes; in one pass for n from about
 * 1 KiB, if the CPU can. On a fault *crc is unchanged.
 */
int dma_load_crc(void *dst, const void *src, size_t n, uint32_t *crc);
/*
 * Copies past the cache if dst is aligned to 64 bytes and n a multiple of 64, for bytes that this
 * CPU does not read soon. The stores have no order, among themselves or with others, until
 * dma_fence().
 */
int dma_stream(void *dst, const void *src, size_t n);
void dma_fence(void);

/*
 * As dma_load(), from memory that a thread of the program may be changing, with ordered loads. If
 * src is aligned to 8 bytes, the words of the first 64 bytes are loaded upward, then the bytes
 * behind them, then the caller's later loads and stores. Any thread.
 */
int dma_load_up(void *dst, const void *src, size_t n);

/*
 * Atomics of the CPU on 8 bytes at an aligned address; *old is the old value. 0 or -EFAULT. Any
 * thread.
 */
int dma_cmp_swap(void *addr, uint64_t compare, uint64_t swap, uint64_t *old);
int dma_fetch_add(void *addr, uint64_t add, uint64_t *old);

#endif
