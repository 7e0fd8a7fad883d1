/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * CRC-32 (of Ethernet, bits reflected), like crc32_gzip_refl() of ISA-L. Without AVX-512, ISA-L of
 * Debian 12 multiplies 128 bits at a time, and each step depends on the previous one. This code
 * multiplies 256 bits where the CPU can. Short runs have no dependency chain, and long ones have
 * four, which halves their cost.
 */
#ifndef ROOST_PACKET_CRC32_H
#define ROOST_PACKET_CRC32_H

#include <stddef.h>
#include <stdint.h>

/* Returns the CRC of the data that `crc` covers (0: none) followed by n bytes. Any thread. */
uint32_t crc32_update(uint32_t crc, const void *p, size_t n);

/*
 * Constants for code that copies a long run and computes its CRC in one pass (nic/dma.h). A block
 * of CRC32_FOLD bytes is folded into the next one: for each 128 bits, two carry-less
 * multiplications of their halves with the halves of crc32_fold_by, and an exclusive or with the
 * data there. crc32_update(CRC32_NOTHING, ...) of the last block is then the CRC of the run, if the
 * complement of the CRC before the run was added to its first four bytes by exclusive or.
 */
#define CRC32_FOLD    128
#define CRC32_NOTHING 0xffffffffu
extern const uint64_t crc32_fold_by[2];

#endif
