/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The part of a hull that owns the NIC: it registers the memory of a cache (roost/chain_cache.h),
 * and gives each client that connects a chain that answers its gets.
 */
#ifndef EXAMPLE_CACHE_SERVER_H
#define EXAMPLE_CACHE_SERVER_H

#include <roost/chain_cache.h>
#include <roost/hull.h>

/* The names of the hull's memory. */
#define CACHE_INDEX "index"
#define CACHE_ITEMS "items"

/* The private data of rdma_cm from client and server. */
struct cache_hello {
	uint64_t addr; /* of the memory for replies */
	uint32_t rkey, len;
} __attribute__((packed));

/*
 * Makes the memory of a cache, of items_len bytes for items of two generations, and starts a thread
 * that accepts clients at address:service, an address of the NIC. Ends the process with a message
 * if something fails.
 */
void cache_serve(struct roost_hull *hull, const struct roost_cache_shape *shape, uint64_t items_len,
		 const char *address, const char *service);

#endif
