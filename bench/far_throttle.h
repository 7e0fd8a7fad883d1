/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A far tier in memory with a throttle: a request ends `delay` ns after its start, and not before
 * `gap` ns have passed since the one before it. A wait is a loop, so the time is exact.
 */
#ifndef ROOST_BENCH_FAR_THROTTLE_H
#define ROOST_BENCH_FAR_THROTTLE_H

#include <stdint.h>

#include "kv/far.h"

/* Ends the program if there is no memory. */
struct kv_far *far_throttle(uint64_t delay_ns, uint64_t gap_ns);

#endif
