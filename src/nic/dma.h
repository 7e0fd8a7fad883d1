/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The memory accesses of the DMA engine. Only these functions dereference an address from the wire
 * or from a WQE. Callers resolve the address through the MR table (mr.h) just before.
 *
 * The program may unmap memory after its registration. So each access is guarded: a fault becomes
 * -EFAULT, by a table of code ranges and a SIGSEGV/SIGBUS handler. The handler passes every other
 * fault to the previous handler of the signal.
 *
 * Programs and kernels access this memory at the same time. Each function states the order of its
 * accesses. The order costs nothing on CPUs that keep stores and loads in order (x86-64). Elsewhere
 * dma_copy() and dma_copy_up() use store-releases and a barrier, dma_load_up() load-acquires and a
 * barrier.
 */
#ifndef ROOST_NIC_DMA_H
#define ROOST_NIC_DMA_H

#include <stddef.h>
#include <stdint.h>

/* Installs the fault handler, once per process. Returns 0 or -errno. Any thread. */
int dma_init(void);

/*
 * Copies n bytes. The last bytes are written by aligned stores of at least 8 bytes, in ascending
 * order and after all the others. So a program that polls the last byte of a message sees the whole
 * message when it sees that byte. Earlier copies of the same thread are visible before this one.
 * Returns 0 or -EFAULT; bytes that were copied before a fault stay. Any thread.
 */
int dma_copy(void *dst, const void *src, size_t n);
/*
 * Copies n bytes as dma_copy() does. Each aligned word of 8 bytes is visible after all bytes before
 * it, so a program may poll several words of the message. Long copies take longer. Any thread.
 */
int dma_copy_up(void *dst, const void *src, size_t n);

/*
 * Copies n bytes to memory that no other thread reads before the call returns. The stores have no
 * order. If src, and dst or n, are aligned to 8 bytes, each such word is loaded atomically. The
 * order of the loads depends on the CPU. Returns 0 or -EFAULT. Any thread.
 */
int dma_load(void *dst, const void *src, size_t n);
/*
 * Does the work of dma_load() and updates *crc (packet/crc32.h) with the bytes. If the CPU can, it
 * does both in one pass, for n from about 256 bytes. After a fault *crc is unchanged.
 */
int dma_load_crc(void *dst, const void *src, size_t n, uint32_t *crc);
/*
 * Copies bytes that this CPU does not read soon, past the cache if dst is aligned to 64 bytes and n
 * is a multiple of 64. The stores have no order, among themselves or with other stores, until
 * dma_fence(). Returns 0 or -EFAULT.
 */
int dma_stream(void *dst, const void *src, size_t n);
void dma_fence(void);

/*
 * Does the work of dma_load() with ordered loads, from memory that a thread of the program may be
 * changing. If src is aligned to 8 bytes, the words of the first 64 bytes are loaded upward, then
 * the bytes behind them; the caller's later loads and stores come after these. Any thread.
 */
int dma_load_up(void *dst, const void *src, size_t n);

/*
 * Execute an atomic of the CPU on 8 bytes at an aligned address; *old gets the old value. Return 0
 * or -EFAULT. Any thread.
 */
int dma_cmp_swap(void *addr, uint64_t compare, uint64_t swap, uint64_t *old);
int dma_fetch_add(void *addr, uint64_t add, uint64_t *old);

#endif
