/* SPDX-License-Identifier: BSD-2-Clause */
/* The loop of the kernel `hll`. It is a separate file so that tests can compare and measure it. */
#ifndef ROOST_BUILTIN_HLL_UPDATE_H
#define ROOST_BUILTIN_HLL_UPDATE_H

#include <stddef.h>
#include <stdint.h>

/*
 * Adds n items of 8 bytes, at any alignment, to 2^precision registers. Reads each item once.
 * Several threads may add to the same registers. Any thread.
 */
typedef void hll_update_fn(uint8_t *registers, unsigned precision, const uint8_t *items, size_t n);

hll_update_fn hll_update_scalar;
/* Returns the fastest implementation for this CPU. All have the same result. */
hll_update_fn *hll_update_best(void);

#endif
