/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Items of memcached in the store. The value of a pair is the data of the item, then a trailer. A
 * value without a trailer, which another client stored, is an item without flags.
 *
 *	| data | cas 8 B | flags 4 B | expires 4 B | state 1 B | "RMc" 3 B |
 *
 * Items are changed by a compare and PUT of the whole value, so changes are atomic among all
 * clients of the store. One thread at a time.
 */
#ifndef ROOST_MEMCACHED_ITEM_H
#define ROOST_MEMCACHED_ITEM_H

#include <stdbool.h>
#include <stdint.h>

#include "roost/kv.h"

#define ITEM_TRAILER 20u
#define ITEM_MAX     (ROOST_KV_VALUE_MAX - ITEM_TRAILER) /* bytes of data */
#define ITEM_BATCH   16u /* items of a get that are loaded at once */

enum item_state {
	ITEM_STALE = 1, /* set by the command md with the flag I */
	ITEM_WON = 2,	/* a client was told to store a new value */
};

struct item {
	/* with the trailer; valid until the next call; NULL if there is no pair with this key */
	const uint8_t *value;
	uint32_t value_len;
	uint32_t len; /* bytes of the data */
	uint64_t cas;
	uint32_t flags;
	uint32_t expires; /* second of Unix time; 0: never */
	uint8_t state;
};

struct item_key {
	const void *p;
	uint32_t len;
};

/* The state of a front end for all its connections. */
struct items {
	const char *host; /* host of the node */
	uint16_t service;
	struct roost_kv *kv; /* NULL: not connected */
	uint64_t cas;	     /* the last cas value that was given */
	uint64_t now;	     /* Unix time, set by items_tick() */
	uint8_t *loaded;     /* ITEM_BATCH values */
	uint8_t *fresh; /* the data of an item that is being made, ITEM_MAX bytes and a trailer */
};

/* Initializes the state of a front end. Returns 0 or -ENOMEM. */
int items_open(struct items *s, const char *host, uint16_t service);
void items_close(struct items *s);
/* Reads the clock. Call it before the requests of an event. */
void items_tick(struct items *s);

/*
 * Load one item, or up to ITEM_BATCH items at once; found[i] is false if item i does not exist.
 * Return 0, -ENOENT (item_load() only), or another negative errno.
 */
int item_load(struct items *s, struct item_key key, struct item *it);
int item_load_all(struct items *s, const struct item_key *key, unsigned n, struct item *it,
		  bool *found);

/*
 * Stores the `len` bytes of data at s->fresh with flags, expires and state of *it; If it->cas is 0,
 * it gets a new value. `code` is one of the PUTs; `old` is the item that a compare and PUT expects.
 * Returns 0, -ENOENT, -EEXIST, -ECANCELED, -ENOSPC or another errno.
 */
int item_store(struct items *s, unsigned code, struct item_key key, uint32_t len, struct item *it,
	       const struct item *old);
/* Stores an item whose key does not exist. Returns -EEXIST if it does. */
int item_add(struct items *s, struct item_key key, uint32_t len, struct item *it);
/* Stores an item whose key exists. Returns -ENOENT if it does not, or if its time is over. */
int item_replace(struct items *s, struct item_key key, uint32_t len, struct item *it);
/* Deletes an item. Returns -ENOENT if it does not exist, or if its time was over. */
int item_delete(struct items *s, struct item_key key);
/* Deletes all pairs. */
int items_flush(struct items *s);
int items_stat(struct items *s, struct roost_kv_stat *stat);

/*
 * Converts a time of the protocol: 0 is never; up to 30 days it is relative; else it is Unix time.
 * If the time is over, the result is a second in the past.
 */
uint32_t item_expires(const struct items *s, int64_t exptime);

#endif
