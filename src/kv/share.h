/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Shares of clients in a number of places. A client gets a place if it has fewer places than
 * SHARE_RATIO times the free ones (dynamic thresholds: Choudhury and Hahne, 1998). So one client
 * alone gets nearly all places, the next client finds free ones, and clients with few places come
 * first when places become free. Pure: the caller decides the meaning of a place.
 */
#ifndef ROOST_KV_SHARE_H
#define ROOST_KV_SHARE_H

#include <stdbool.h>
#include <stdint.h>

#define SHARE_PLACES 256u /* the most places */
#define SHARE_RATIO  7u	  /* a client alone gets 224 of 256 */

struct share {
	uint64_t client;
	uint16_t used;
	uint16_t next; /* next entry of the slot, or of the free list */
};

struct shares {
	unsigned limit, used; /* number of places, and of places in use */
	uint16_t free;
	uint16_t slots[SHARE_PLACES];
	struct share clients[SHARE_PLACES]; /* clients that have a place */
};

/* Initialises the shares of `limit` places, 1 to SHARE_PLACES. */
void share_init(struct shares *s, unsigned limit);
/* Takes a place if the client may have one more. Returns whether it did. `client`: any number. */
bool share_take(struct shares *s, uint64_t client);
void share_give(struct shares *s, uint64_t client);

static inline bool share_is_full(const struct shares *s)
{
	return s->used == s->limit;
}

#endif
