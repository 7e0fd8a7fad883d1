/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * CRC-32 (Ethernet's, bits reflected), as ISA-L's crc32_gzip_refl(). Debian 12's ISA-L multiplies
 * 128 bits at a time, one after the other, where a CPU has no AVX-512. Here it is 256 bits, where
 * the CPU can: short runs without a chain, long ones in four, which halves what these cost.
 */
#ifndef ROOST_PACKET_CRC32_H
#define ROOST_PACKET_CRC32_H

#include <stddef.h>
#include <stdint.h>

/* The CRC of what `crc` is of (0: nothing), and n bytes behind. Any thread. */
uint32_t crc32_update(uint32_t crc, const void *p, size_t n);

/*
 * For who moves a long run and takes its CRC in one pass (nic/dma.h): a block of CRC32_FOLD bytes
 * is taken forward over the next one by two carry-less multiplications of each 128 bits, their
 * halves with those of crc32_fold_by, and an exclusive or with what stands there. The last block
 * has the CRC that the run has, from crc32_update(CRC32_NOTHING, ...), where the first four bytes
 * were changed by ~ the CRC before the run.
 */
#define CRC32_FOLD    128
#define CRC32_NOTHING 0xffffffffu
extern const uint64_t crc32_fold_by[2];

#endif
