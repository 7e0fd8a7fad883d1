/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The kernel `consistency`: reads an object that the node's own threads may be writing, and returns
 * it if it is consistent. If it is torn, the kernel reads it again, up to a number of tries. This
 * takes one round trip. A READ and a check by the caller take one round trip for each try. There
 * are two schemes:
 *
 *	CRC	after StRoM (EuroSys '20), section 6.3:
 *		| data | CRC-64 of the data, 8 bytes |
 *	VERSIONS	after FaRM (NSDI '14), lines of 64 bytes:
 *		| version 8, data 56 | version 2, data 62 | version 2, data 62 | ...
 *
 * The CRC-64 is that of ECMA-182, reflected, as in xz (ISA-L: crc64_ecma_refl). A writer with
 * versions makes the version odd, writes the data, and makes the version even again, 2 higher than
 * before. Each line after the first begins with the low 16 bits of the version. Numbers are
 * little-endian.
 *
 * The reply is the data, without CRC or versions, or ROOST_RPC_BOUND if the object was torn in all
 * tries.
 */
#ifndef ROOST_CONSISTENCY_H
#define ROOST_CONSISTENCY_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "roost/rpc.h"

#define ROOST_CONSISTENCY_OP  3ull
#define ROOST_CONSISTENCY_MAX 8192 /* bytes of an object, including CRC or versions */

enum roost_consistency_scheme { ROOST_CONSISTENCY_CRC = 0, ROOST_CONSISTENCY_VERSIONS = 1 };

struct roost_consistency_params {
	uint64_t object; /* address of the object */
	uint32_t len;	 /* its bytes, including CRC or versions; with versions a multiple of 64 */
	uint16_t tries;	 /* not 0 */
	uint16_t scheme; /* enum roost_consistency_scheme */
};

#ifndef __cplusplus
_Static_assert(sizeof(struct roost_consistency_params) == 16, "parameters of consistency");
#endif

/* The caller's side. */
static inline struct roost_consistency_params
roost_consistency_params(uint64_t object, uint32_t len, uint16_t tries, uint16_t scheme)
{
	struct roost_consistency_params p = {object, len, tries, scheme};

	return p;
}

/* Returns the CRC-64 of `len` bytes, for a writer that has no faster implementation. */
static inline uint64_t roost_consistency_crc(const void *data, size_t len)
{
	const uint8_t *p = (const uint8_t *)data;
	uint64_t crc = ~0ull;
	int bit;

	while (len--) {
		crc ^= *p++;
		for (bit = 0; bit < 8; bit++)
			crc = crc >> 1 ^ (crc & 1 ? 0xc96c5795d7870f42ull : 0);
	}
	return ~crc;
}

/*
 * Returns the size in bytes of an object with versions that has `data` bytes of data.
 */
static inline uint32_t roost_versions_len(uint32_t data)
{
	return data <= 56 ? 64 : 64 + (data - 56 + 61) / 62 * 64;
}

/* Returns the bytes of data that an object with versions of `len` bytes has. */
static inline uint32_t roost_versions_data(uint32_t len)
{
	return 56 + (len / 64 - 1) * 62;
}

/*
 * Writes new data to an object with versions. The object has `len` bytes at obj, which is aligned
 * to 64. `data` has roost_versions_data(len) bytes. An object must have one writer at a time.
 */
static inline void roost_versions_write(void *obj, uint32_t len, const void *data)
{
	uint8_t *to = (uint8_t *)obj;
	const uint8_t *from = (const uint8_t *)data;
	uint64_t version = __atomic_load_n((uint64_t *)obj, __ATOMIC_RELAXED);
	uint16_t low = (uint16_t)(version + 2);
	uint32_t line;

	__atomic_store_n((uint64_t *)obj, version + 1, __ATOMIC_RELAXED);
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	memcpy(to + 8, from, 56);
	from += 56;
	for (line = 64; line < len; line += 64, from += 62) {
		memcpy(to + line, &low, sizeof(low));
		memcpy(to + line + 2, from, 62);
	}
	__atomic_store_n((uint64_t *)obj, version + 2, __ATOMIC_RELEASE);
}

#endif
