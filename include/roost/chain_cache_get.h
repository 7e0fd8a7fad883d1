/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The client of a cache whose gets are chains (roost/chain_cache.h). It posts nothing: the caller
 * SENDs the request, and waits for a reply in its memory.
 *
 *	roost_cache_get_start(&get, &shape, key, key_len);
 *	do {
 *		roost_cache_get_request(&get, &request);
 *		... SEND the request ...
 *		do {
 *			result = roost_cache_get_result(&get, reply, now, &item);
 *		} while (result == ROOST_CACHE_PENDING);
 *	} while (result == ROOST_CACHE_AGAIN);
 *
 * A hit is an item that was in the cache at a moment between start and result. Thread rule: one
 * thread at a time for a struct roost_cache_get; one get in progress for each chain.
 */
#ifndef ROOST_CHAIN_CACHE_GET_H
#define ROOST_CHAIN_CACHE_GET_H

#include "roost/chain_cache.h"

#ifdef __cplusplus
extern "C" {
#endif

enum roost_cache_result {
	ROOST_CACHE_PENDING, /* no reply yet */
	ROOST_CACHE_AGAIN,   /* send the next request of this get */
	ROOST_CACHE_HIT,
	ROOST_CACHE_MISS,
};

/* The caller clears it once, before the first get of a chain. */
struct roost_cache_get {
	const struct roost_cache_shape *shape;
	const void *key;
	uint64_t key48;
	uint64_t number;		       /* number of the request */
	uint64_t other[ROOST_CACHE_ATTEMPTS];  /* versions of other keys' items, of this round */
	uint64_t before[ROOST_CACHE_ATTEMPTS]; /* the same of the previous round */
	uint32_t key_len, attempt;
	bool second;	      /* `before` is valid */
	uint64_t torn, moved; /* requests that were repeated, for statistics */
};

/*
 * Begins a get. shape and key must stay valid until its result. A shape that comes from a peer has
 * been checked by roost_cache_shape_fits(). key_len: 1 to ROOST_CACHE_KEY_MAX.
 */
static inline void roost_cache_get_start(struct roost_cache_get *g,
					 const struct roost_cache_shape *shape, const void *key,
					 uint32_t key_len)
{
	g->shape = shape;
	g->key = key;
	g->key_len = key_len;
	g->attempt = 0;
	g->second = false;
	memset(g->other, 0, sizeof(g->other));
}

/* Fills in the next request. */
static inline void roost_cache_get_request(struct roost_cache_get *g, struct roost_cache_request *r)
{
	g->key48 = roost_cache_key48(g->shape, g->key, g->key_len, g->attempt);
	roost_cache_buckets(g->shape, g->key48, r->bucket);
	r->key[0] = r->key[1] = ROOST_OPERAND(g->key48);
	r->number = ++g->number;
}

/*
 * Ends a round that found items of other keys only. The item of this key may have moved from a
 * later attempt to an earlier one meanwhile. It has not if a second round finds the same items; the
 * result is then a miss.
 */
static inline enum roost_cache_result roost_cache_get_none(struct roost_cache_get *g)
{
	if (g->attempt == 0 || (g->second && !memcmp(g->before, g->other, sizeof(g->other))))
		return ROOST_CACHE_MISS;
	memcpy(g->before, g->other, sizeof(g->before));
	memset(g->other, 0, sizeof(g->other));
	g->attempt = 0;
	g->second = true;
	return ROOST_CACHE_AGAIN;
}

/* Checks whether the item's own key may be in the table with the key of 48 bits of the get. */
static inline bool roost_cache_get_fits(const struct roost_cache_get *g,
					const struct roost_cache_item *item)
{
	const uint8_t *key = (const uint8_t *)item + item->key_at;

	for (uint32_t i = 0; i < ROOST_CACHE_ATTEMPTS; i++)
		if (roost_cache_key48(g->shape, key, item->key_len, i) == g->key48)
			return true;
	return false;
}

/*
 * Evaluates the reply. `reply` is the client's memory, ROOST_CACHE_REPLY(max_item) bytes with any
 * contents; it must not change until the value was used. now: seconds since 1970. A hit stores the
 * item, which is in the reply.
 */
static inline enum roost_cache_result roost_cache_get_result(struct roost_cache_get *g,
							     const void *reply, uint64_t now,
							     const struct roost_cache_item **item)
{
	const struct roost_cache_reply *r = (const struct roost_cache_reply *)reply;
	const struct roost_cache_item *it =
		(const struct roost_cache_item *)(const void *)((const uint8_t *)reply +
								ROOST_CACHE_REPLY_ITEM);

	*item = NULL;
	if (__atomic_load_n(&r->number, __ATOMIC_ACQUIRE) != g->number)
		return ROOST_CACHE_PENDING;
	if (r->found[0] != ROOST_OPERAND(g->key48) && r->found[1] != ROOST_OPERAND(g->key48)) {
		if (r->moves[0] == r->moves[1])
			return roost_cache_get_none(g);
		g->moved++;
		return ROOST_CACHE_AGAIN;
	}
	if (!roost_cache_sound(it, g->shape->max_item) ||
	    it->expiry >> 32 != (uint32_t)it->version || !roost_cache_get_fits(g, it)) {
		g->torn++;
		return ROOST_CACHE_AGAIN;
	}
	if (it->key_len != g->key_len ||
	    memcmp((const uint8_t *)it + it->key_at, g->key, g->key_len) != 0) {
		g->other[g->attempt] = it->version;
		if (++g->attempt == ROOST_CACHE_ATTEMPTS)
			return roost_cache_get_none(g);
		return ROOST_CACHE_AGAIN;
	}
	if ((uint32_t)it->expiry && (uint32_t)it->expiry <= now)
		return ROOST_CACHE_MISS;
	*item = it;
	return ROOST_CACHE_HIT;
}

/* Returns the value of an item; it has item->value_len bytes. */
static inline const void *roost_cache_item_value(const struct roost_cache_item *item)
{
	return (const uint8_t *)item + item->value_at;
}

#ifdef __cplusplus
}
#endif

#endif
