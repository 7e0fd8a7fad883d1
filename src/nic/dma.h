/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The DMA engine's hands: the only code that dereferences an address that came from the wire or a WQE. Callers have
 * resolved it through the MR table (mr.h) just before.
 *
 * Memory may be unmapped after registration. Each access here is therefore guarded: a fault inside becomes -EFAULT, by a table of code
 * ranges and a SIGSEGV/SIGBUS handler that passes every other fault on to whoever had the signal before.
 */
#ifndef ROOST_NIC_DMA_H
#define ROOST_NIC_DMA_H

#include <stddef.h>
#include <stdint.h>

/* Installs the fault handler, once per process. 0 or -errno. Any thread. */
int dma_init(void);

/*
 * Copies n bytes upward in address. The last bytes are written by aligned stores of 8 bytes, or of 16 where the CPU writes those whole, in ascending
 * order, so a program that polls the last byte of a message sees the whole message when it sees that byte. 0 or -EFAULT;
 * what was copied before a fault stays. Any thread.
 */
int dma_copy(void *dst, const void *src, size_t n);

/*
 * The same, to where nobody looks before we are done, so written in any order. It is read upward. Where src is aligned to 8 bytes, and dst or n
 * too, each such word is read at once: what the program wrote in one piece. Any thread.
 */
int dma_load(void *dst, const void *src, size_t n);
/*
 * The same, and *crc (packet/crc32.h) goes on over what was copied; for n from about 1 KiB in one pass, where the CPU can. At a fault *crc is as
 * it was.
 */
int dma_load_crc(void *dst, const void *src, size_t n, uint32_t *crc);
/*
 * The same, past the cache where dst is aligned to 64 bytes and n a multiple of them: for what this CPU does not look at again soon. The order of
 * its stores, and with others, is that of dma_fence(), before which nothing is told of them.
 */
int dma_stream(void *dst, const void *src, size_t n);
void dma_fence(void);

/* 8-byte atomics of the CPU at an aligned address; *old gets the value before. 0 or -EFAULT. Any thread. */
int dma_cmp_swap(void *addr, uint64_t compare, uint64_t swap, uint64_t *old);
int dma_fetch_add(void *addr, uint64_t add, uint64_t *old);

#endif
