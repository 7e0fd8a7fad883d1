/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Numbers of the wire format: lengths in one to three bytes, and numbers of fixed size, all
 * little-endian.
 */
#ifndef ROOST_KVWIRE_NUMBER_H
#define ROOST_KVWIRE_NUMBER_H

#include <endian.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define LENGTH_MAX ((1u << 21) - 1)

/* Writes a length, seven bits a byte, low bits first. Returns the end. There must be 3 bytes. */
static inline uint8_t *put_length(uint8_t *at, uint32_t v)
{
	while (v >= 0x80) {
		*at++ = (uint8_t)(v | 0x80);
		v >>= 7;
	}
	*at++ = (uint8_t)v;
	return at;
}

/*
 * Reads a length and advances *at. Returns false at the end, or if the length is not in its
 * shortest form.
 */
static inline bool get_length(const uint8_t **at, const uint8_t *end, uint32_t *v)
{
	*v = 0;
	for (unsigned shift = 0; shift < 21 && *at < end; shift += 7) {
		uint8_t byte = *(*at)++;

		*v |= (uint32_t)(byte & 0x7f) << shift;
		if (!(byte & 0x80))
			return byte || !shift;
	}
	return false;
}

static inline uint8_t *put_u16(uint8_t *at, uint16_t v)
{
	v = htole16(v);
	memcpy(at, &v, sizeof(v));
	return at + sizeof(v);
}

static inline uint8_t *put_u32(uint8_t *at, uint32_t v)
{
	v = htole32(v);
	memcpy(at, &v, sizeof(v));
	return at + sizeof(v);
}

static inline uint8_t *put_u64(uint8_t *at, uint64_t v)
{
	v = htole64(v);
	memcpy(at, &v, sizeof(v));
	return at + sizeof(v);
}

static inline uint16_t get_u16(const uint8_t *at)
{
	uint16_t v;

	memcpy(&v, at, sizeof(v));
	return le16toh(v);
}

static inline uint32_t get_u32(const uint8_t *at)
{
	uint32_t v;

	memcpy(&v, at, sizeof(v));
	return le32toh(v);
}

static inline uint64_t get_u64(const uint8_t *at)
{
	uint64_t v;

	memcpy(&v, at, sizeof(v));
	return le64toh(v);
}

#endif
