/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * CRC-64 of ECMA-182, reflected, as ISA-L's crc64_ecma_refl() with initial value 0. It is twice as
 * fast on a CPU with carry-less multiplication of 256 bits.
 */
#ifndef ROOST_BUILTIN_CRC64_H
#define ROOST_BUILTIN_CRC64_H

#include <stddef.h>
#include <stdint.h>

typedef uint64_t crc64_fn(const uint8_t *data, size_t len);

/* crc64_plain() runs on any CPU; crc64_best() returns the fastest for this CPU. Any thread. */
uint64_t crc64_plain(const uint8_t *data, size_t len);
crc64_fn *crc64_best(void);

#endif
