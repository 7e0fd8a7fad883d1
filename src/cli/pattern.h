/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Position-dependent test data: a stream of 64-bit words that are computed from a key and the index
 * of the word. Any part of the stream can be generated or compared without the part before it.
 * About 5 GB/s.
 */
#ifndef ROOST_CLI_PATTERN_H
#define ROOST_CLI_PATTERN_H

#include <stdint.h>

#define PATTERN_SAME UINT64_MAX

/*
 * Returns a key for any number: equal inputs give equal keys, different inputs give independent
 * keys.
 */
uint64_t pattern_mix(uint64_t v);
uint64_t pattern_word(uint64_t key, uint64_t n);
/* Writes the stream's bytes [from, from + len) to p. */
void pattern_fill(uint8_t *p, uint64_t len, uint64_t key, uint64_t from);
/* Returns the first offset at which p differs from these bytes, or PATTERN_SAME. */
uint64_t pattern_differs(const uint8_t *p, uint64_t len, uint64_t key, uint64_t from);

#endif
