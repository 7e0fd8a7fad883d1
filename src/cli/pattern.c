/* SPDX-License-Identifier: BSD-2-Clause */
#include "cli/pattern.h"

#include <string.h>

/*
 * Computes the finalizer of SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number
 * generators, 2014).
 */
uint64_t pattern_mix(uint64_t v)
{
	v = (v ^ v >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	v = (v ^ v >> 27) * UINT64_C(0x94d049bb133111eb);
	return v ^ v >> 31;
}

static inline uint64_t word(uint64_t key, uint64_t n)
{
	uint64_t v = (n + key) * UINT64_C(0x9e3779b97f4a7c15);

	return v ^ v >> 32;
}

uint64_t pattern_word(uint64_t key, uint64_t n)
{
	return word(key, n);
}

static uint8_t byte_at(uint64_t key, uint64_t offset)
{
	return (uint8_t)(word(key, offset / 8) >> 8 * (offset % 8));
}

void pattern_fill(uint8_t *p, uint64_t len, uint64_t key, uint64_t from)
{
	uint64_t i = 0, w;

	for (; i < len && (from + i) % 8; i++)
		p[i] = byte_at(key, from + i);
	for (; i + 8 <= len; i += 8) {
		w = word(key, (from + i) / 8);
		memcpy(p + i, &w, 8);
	}
	for (; i < len; i++)
		p[i] = byte_at(key, from + i);
}

uint64_t pattern_differs(const uint8_t *p, uint64_t len, uint64_t key, uint64_t from)
{
	uint64_t i = 0, v;

	for (; i < len && (from + i) % 8; i++) {
		if (p[i] != byte_at(key, from + i))
			return i;
	}
	for (; i + 8 <= len; i += 8) {
		memcpy(&v, p + i, 8);
		if (v != word(key, (from + i) / 8))
			break;
	}
	for (; i < len; i++) {
		if (p[i] != byte_at(key, from + i))
			return i;
	}
	return PATTERN_SAME;
}
