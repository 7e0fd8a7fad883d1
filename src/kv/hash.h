/* SPDX-License-Identifier: BSD-2-Clause */
/* The hash of a key, for loops that hash many keys. Other code calls kv_hash(). */
#ifndef ROOST_KV_HASH_H
#define ROOST_KV_HASH_H

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "kv/store.h"

static inline uint64_t hash_of(const struct kv *kv, const void *key, uint32_t len)
{
	return XXH3_64bits_withSecret(key, len, kv->secret, KV_SECRET);
}

#endif
