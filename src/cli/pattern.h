/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Bytes that tell where they belong: a stream of 64-bit words made from a key and their index, so
 * that any part of it can be made, or compared, without what stands before. About 5 GB/s.
 */
#ifndef ROOST_CLI_PATTERN_H
#define ROOST_CLI_PATTERN_H

#include <stdint.h>

#define PATTERN_SAME UINT64_MAX

/* A key from anything: equal inputs give equal keys, all others independent ones. */
uint64_t pattern_mix(uint64_t v);
uint64_t pattern_word(uint64_t key, uint64_t n);
/* The stream's bytes [from, from + len) to p. */
void pattern_fill(uint8_t *p, uint64_t len, uint64_t key, uint64_t from);
/* The first offset in p that differs from them, or PATTERN_SAME. */
uint64_t pattern_differs(const uint8_t *p, uint64_t len, uint64_t key, uint64_t from);

#endif
