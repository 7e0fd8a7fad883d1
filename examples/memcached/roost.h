/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Functions that memcached calls so that its items are in a table for gets by chains, too
 * (roost/chain_cache.h). Without a hull, roost_on is false and the functions do nothing. Include
 * memcached.h first.
 */
#ifndef ROOST_MEMCACHED_H
#define ROOST_MEMCACHED_H

extern bool roost_on;

/* The memory for items, and its size in *limit; NULL: no hull started this process. */
void *roost_memory(size_t *limit);
/* Loads the items of the previous process, then makes this process's table the active one. */
void roost_load(void);

/* An item with the lock of its key: is linked, or takes another's place; is unlinked; expires. */
void roost_link(item *it);
void roost_unlink(item *it);
void roost_touch(item *it);
/* flush_all: no item is left. */
void roost_flush(void);

/* Keeps the memory of an item for a grace, then frees it. False: the caller frees it. */
bool roost_hold(item *it, size_t ntotal, unsigned int clsid);
/* Waits for the grace period of kept items. Returns false if there was none. */
bool roost_wait(void);

#endif
