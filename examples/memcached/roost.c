/* SPDX-License-Identifier: BSD-2-Clause */
#include "memcached.h"
#include "roost.h"

#include <roost/chain_cache.h>
#include <roost/hull.h>

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Gets under way may read memory that is freed. They notice; a grace makes it rare. */
#define GRACE_NS 200000
#define DEFERRED 16384

bool roost_on;

static struct roost_cache cache;
static pthread_mutex_t cache_lock = PTHREAD_MUTEX_INITIALIZER;

static struct deferred {
	item *it;
	size_t ntotal;
	unsigned int clsid;
	uint64_t ripe;
} deferred[DEFERRED];
static unsigned int deferred_first, deferred_end; /* modulo 2^32 */
static pthread_mutex_t deferred_lock = PTHREAD_MUTEX_INITIALIZER;

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

void *roost_memory(size_t *limit)
{
	struct roost_hull *hull;

	if (!getenv("ROOST_HULL"))
		return NULL;
	hull = roost_hull_join();
	if (!hull || roost_cache_begin(&cache, roost_hull_memory(hull, "index", 0),
				       roost_hull_memory(hull, "items", 0))) {
		fprintf(stderr, "memcached: the hull has no memory of a cache\n");
		exit(EXIT_FAILURE);
	}
	roost_on = true;
	*limit = cache.items_len / 2;
	return roost_cache_memory(&cache);
}

static uint32_t expires(const item *it)
{
	return it->exptime ? (uint32_t)(it->exptime + process_started) : 0;
}

void roost_link(item *it)
{
	struct roost_cache_item *n = &it->roost;
	uint32_t flags;

	if (!roost_on || (it->it_flags & (ITEM_CHUNKED | ITEM_HDR)))
		return;
	FLAGS_CONV(it, flags);
	pthread_mutex_lock(&cache_lock);
	if (!n->version) {
		n->key_at = (uint16_t)(ITEM_key(it) - (char *)n);
		n->key_len = it->nkey;
		n->value_at = (uint32_t)(ITEM_data(it) - (char *)n);
		n->value_len = it->nbytes - 2;
		n->flags = flags;
	}
	/* An item that has no place there is still got by memcached's protocol. */
	roost_cache_publish(&cache, n, expires(it));
	pthread_mutex_unlock(&cache_lock);
}

void roost_unlink(item *it)
{
	if (!roost_on)
		return;
	pthread_mutex_lock(&cache_lock);
	roost_cache_withdraw(&cache, &it->roost);
	pthread_mutex_unlock(&cache_lock);
}

void roost_touch(item *it)
{
	if (!roost_on)
		return;
	pthread_mutex_lock(&cache_lock);
	if (it->roost.version)
		roost_cache_touch(&it->roost, expires(it));
	pthread_mutex_unlock(&cache_lock);
}

void roost_flush(void)
{
	if (!roost_on)
		return;
	pthread_mutex_lock(&cache_lock);
	roost_cache_clear(&cache);
	pthread_mutex_unlock(&cache_lock);
}

/* Takes the oldest one out, if its grace is over. */
static bool take_ripe(struct deferred *h)
{
	bool ripe;

	pthread_mutex_lock(&deferred_lock);
	ripe = deferred_first != deferred_end &&
	       deferred[deferred_first % DEFERRED].ripe <= now_ns();
	if (ripe)
		*h = deferred[deferred_first++ % DEFERRED];
	pthread_mutex_unlock(&deferred_lock);
	return ripe;
}

static void free_ripe(void)
{
	struct deferred h;

	while (take_ripe(&h))
		slabs_free(h.it, h.ntotal, h.clsid);
}

bool roost_hold(item *it, size_t ntotal, unsigned int clsid)
{
	bool space;

	if (!roost_on)
		return false;
	free_ripe();
	pthread_mutex_lock(&deferred_lock);
	space = deferred_end - deferred_first < DEFERRED;
	if (space)
		deferred[deferred_end++ % DEFERRED] =
			(struct deferred){it, ntotal, clsid, now_ns() + GRACE_NS};
	pthread_mutex_unlock(&deferred_lock);
	return space;
}

bool roost_wait(void)
{
	struct deferred h;
	bool any;

	if (!roost_on)
		return false;
	while (!take_ripe(&h)) {
		pthread_mutex_lock(&deferred_lock);
		any = deferred_first != deferred_end;
		pthread_mutex_unlock(&deferred_lock);
		if (!any)
			return false;
		sched_yield();
	}
	slabs_free(h.it, h.ntotal, h.clsid);
	free_ripe();
	return true;
}

static void load(const struct roost_cache_item *old)
{
	const char *bytes = (const char *)old;
	uint32_t when = (uint32_t)old->expiry;
	rel_time_t exptime = when ? (rel_time_t)(when - process_started) : 0;
	item *it;

	if (when && when <= (uint64_t)time(NULL))
		return;
	it = item_alloc((char *)(uintptr_t)bytes + old->key_at, old->key_len, old->flags, exptime,
			old->value_len + 2);
	if (!it)
		return;
	if (!(it->it_flags & ITEM_CHUNKED)) {
		memcpy(ITEM_data(it), bytes + old->value_at, old->value_len);
		memcpy(ITEM_data(it) + old->value_len, "\r\n", 2);
		item_link(it);
	}
	item_remove(it);
}

void roost_load(void)
{
	const struct roost_cache_item *old;

	if (!roost_on)
		return;
	while ((old = roost_cache_old(&cache)))
		load(old);
	roost_cache_serve(&cache);
}
