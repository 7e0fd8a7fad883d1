/* SPDX-License-Identifier: BSD-2-Clause */
#include "kv/hash.h"

uint64_t kv_hash(const struct kv *kv, const void *key, uint32_t len)
{
	return hash_of(kv, key, len);
}
