/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * CRC-64 of ECMA-182, reflected, as ISA-L's crc64_ecma_refl() from 0; twice as fast where the CPU
 * multiplies 256 bits without carry.
 */
#ifndef ROOST_BUILTIN_CRC64_H
#define ROOST_BUILTIN_CRC64_H

#include <stddef.h>
#include <stdint.h>

typedef uint64_t crc64_fn(const uint8_t *data, size_t len);

/* The form for any machine, and the one for this one. Any thread. */
uint64_t crc64_plain(const uint8_t *data, size_t len);
crc64_fn *crc64_best(void);

#endif
