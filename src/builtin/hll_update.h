/* SPDX-License-Identifier: BSD-2-Clause */
/* The loop of the kernel `hll`: apart from it, so that its forms can be compared and measured. */
#ifndef ROOST_BUILTIN_HLL_UPDATE_H
#define ROOST_BUILTIN_HLL_UPDATE_H

#include <stddef.h>
#include <stdint.h>

/*
 * Adds n items of 8 bytes, at any alignment, each read once, to 2^precision registers. Several
 * threads may add to the same ones. Any thread.
 */
typedef void hll_update_fn(uint8_t *registers, unsigned precision, const uint8_t *items, size_t n);

hll_update_fn hll_update_scalar;
/* The fastest form that this machine has; all have the same result. */
hll_update_fn *hll_update_best(void);

#endif
