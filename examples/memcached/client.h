/* SPDX-License-Identifier: BSD-2-Clause */
/* A client of a cache whose gets are chains: connects by rdma_cm, one get at a time. */
#ifndef EXAMPLE_CACHE_CLIENT_H
#define EXAMPLE_CACHE_CLIENT_H

#include <roost/chain_cache_get.h>

struct cache_client;

/* space: for the longest item. NULL: errno says why. */
struct cache_client *cache_connect(const char *address, const char *service, uint32_t space);
void cache_close(struct cache_client *c);
/*
 * Gets an item. Returns 1 and stores it, valid until the next get; 0: there is none; or a negative
 * errno: -EIO (the connection failed), -ETIMEDOUT (no sound reply in 10 seconds).
 */
int cache_get(struct cache_client *c, const void *key, uint32_t len,
	      const struct roost_cache_item **item);
/* Returns how many requests were repeated: torn items, and moved entries. */
uint64_t cache_repeated(const struct cache_client *c);

#endif
