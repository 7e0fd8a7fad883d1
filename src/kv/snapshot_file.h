/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The file of a snapshot, version 1. Numbers are little-endian.
 *
 *	head	"roost-kv", the version (4 bytes), 0 (4 bytes)
 *	pair	4 bytes: length of the key (8 bits), of the value (21 bits), a bit if it expires;
 *		[the second at which it expires (4 bytes)], key, value
 *	end	0 (4 bytes), the number of pairs (8 bytes), XXH3-64 of all bytes before (8 bytes)
 */
#ifndef ROOST_KV_SNAPSHOT_FILE_H
#define ROOST_KV_SNAPSHOT_FILE_H

#include <stdint.h>

#include "kv/kv.h"

#define SNAPSHOT_MAGIC	 "roost-kv"
#define SNAPSHOT_VERSION 1u
#define SNAPSHOT_EXPIRES (1u << 29)

struct snapshot_head {
	char magic[8];
	uint32_t version, zero;
};
_Static_assert(sizeof(struct snapshot_head) == 16, "the head of the file");

/* Bytes of a buffer for several pairs. */
#define SNAPSHOT_BUFFER (2u << 20)
_Static_assert(sizeof(struct snapshot_head) + 8 + KV_KEY_MAX + KV_VALUE_MAX <= SNAPSHOT_BUFFER,
	       "the head and the longest pair fit");

#endif
