/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Packet sequence numbers have 32 bits in the core and 24 on the wire. 2^32 is a multiple of 2^24,
 * so differences are right across both wraps. Comparisons use signed differences.
 */
#ifndef ROOST_NIC_PSN_H
#define ROOST_NIC_PSN_H

#include <stdbool.h>
#include <stdint.h>

/* IBA 9.7.7.3.1 bounds outstanding PSNs to half the number space. */
#define NIC_PSN_WINDOW ((1u << 23) - 1)

static inline bool psn_before(uint32_t a, uint32_t b)
{
	return (int32_t)(a - b) < 0;
}

/* Returns the 32-bit PSN nearest to `ref` whose low 24 bits are `wire`. */
static inline uint32_t psn_extend(uint32_t ref, uint32_t wire)
{
	return ref + (uint32_t)((int32_t)((wire - ref) << 8) >> 8);
}

#endif
