/* SPDX-License-Identifier: BSD-2-Clause */
/* The hash of a key, for loops that hash many keys. Other code calls kv_hash(). */
#ifndef ROOST_KV_HASH_H
#define ROOST_KV_HASH_H

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "kv/store.h"

/* Most keys are short. XXH3_64bits_withSecret() does the same for them, but is not inlined. */
static inline uint64_t hash_of(const struct kv *kv, const void *key, uint32_t len)
{
	if (likely(len <= 16))
		return XXH3_len_0to16_64b(key, len, kv->secret, 0);
	return XXH3_64bits_withSecret(key, len, kv->secret, KV_SECRET);
}

#endif
