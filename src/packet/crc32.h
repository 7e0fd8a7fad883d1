/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * CRC-32 (Ethernet's, bits reflected), as ISA-L's crc32_gzip_refl(). Debian 12's ISA-L multiplies 128 bits at a time, one after the other, where a CPU has no
 * AVX-512. Here it is 256 bits, where the CPU can: short runs without a chain, long ones in four, which halves what these cost.
 */
#ifndef ROOST_PACKET_CRC32_H
#define ROOST_PACKET_CRC32_H

#include <stddef.h>
#include <stdint.h>

/* The CRC of what `crc` is of (0: nothing), and n bytes behind. Any thread. */
uint32_t crc32_update(uint32_t crc, const void *p, size_t n);

#endif
