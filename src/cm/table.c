/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The connections: a pool of fixed size, and three hash tables of chains through it. Memory of the
 * pool is touched only as far as it was ever used. Keys that the peer chooses are hashed with a
 * secret seed, so that no peer can fill one chain.
 */
#include "base/assert.h"
#include "cm/core.h"

#include <errno.h>
#include <string.h>
#include <xxhash.h>

#include "base/mem.h"

#define MOST_DRAWS 1000

static void *take(size_t n, size_t size, size_t *total)
{
	*total = n * size;
	return mem_alloc_pages(*total);
}

int cm_table_init(struct cm *cm)
{
	list_init(&cm->free);
	list_init(&cm->timewait);
	list_init(&cm->replied);
	list_init(&cm->free_listeners);
	cm->buckets = (uint32_t)pow2_ceil(cm->config.max_conns);
	cm->service_buckets = (uint32_t)pow2_ceil(cm->config.max_listeners);
	cm->conns = take(cm->config.max_conns, sizeof(*cm->conns), &cm->pool_size);
	cm->heads[0] = take(cm->buckets, CHAINS * sizeof(*cm->heads[0]), &cm->heads_size);
	cm->listeners = take(cm->config.max_listeners, sizeof(*cm->listeners), &cm->listeners_size);
	cm->services = take(cm->service_buckets, sizeof(*cm->services), &cm->services_size);
	cm->shares = take(CM_SHARES, sizeof(*cm->shares), &cm->shares_size);
	cm->known = take(CM_KNOWN, sizeof(*cm->known), &cm->known_size);
	cm->challenges =
		take(cm->config.max_challenges, sizeof(*cm->challenges), &cm->challenges_size);
	if (!cm->conns || !cm->heads[0] || !cm->listeners || !cm->services || !cm->shares ||
	    !cm->known || !cm->challenges)
		return -ENOMEM;
	for (int i = 1; i < CHAINS; i++)
		cm->heads[i] = cm->heads[0] + (size_t)i * cm->buckets;
	for (uint32_t i = 0; i < cm->config.max_listeners; i++)
		list_add_tail(&cm->listeners[i].link, &cm->free_listeners);
	for (uint32_t i = 0; i < cm->service_buckets; i++)
		list_init(&cm->services[i]);
	return 0;
}

void cm_table_free(struct cm *cm)
{
	mem_free_pages(cm->conns, cm->pool_size);
	mem_free_pages(cm->heads[0], cm->heads_size);
	mem_free_pages(cm->listeners, cm->listeners_size);
	mem_free_pages(cm->services, cm->services_size);
	mem_free_pages(cm->shares, cm->shares_size);
	mem_free_pages(cm->known, cm->known_size);
	mem_free_pages(cm->challenges, cm->challenges_size);
}

struct list_head *cm_service_bucket(struct cm *cm, uint64_t service_id)
{
	uint64_t h = XXH3_64bits_withSeed(&service_id, sizeof(service_id), cm->hash_seed);

	return &cm->services[h & (cm->service_buckets - 1)];
}

/* ---- chains ---- */

static struct cm_conn **peer_head(struct cm *cm, enum cm_chain chain, const struct cm_peer *p)
{
	uint64_t h = XXH3_64bits_withSeed(p, sizeof(*p), cm->hash_seed + (uint64_t)chain);

	return &cm->heads[chain][h & (cm->buckets - 1)];
}

_Static_assert(sizeof(struct cm_peer) == 32, "hashed as bytes: no padding");

static struct cm_peer peer_of(const struct cm_conn *c, enum cm_chain chain)
{
	return (struct cm_peer){c->dst, c->remote_guid,
				chain == CHAIN_QPN ? c->remote_qpn : c->remote_id, c->sidr};
}

static struct cm_conn **head_of(struct cm_conn *c, enum cm_chain chain)
{
	struct cm *cm = c->cm;
	struct cm_peer p;

	if (chain == CHAIN_ID)
		return &cm->heads[chain]
				 [c->local_id & (cm->buckets - 1)]; /* local ids are random */
	p = peer_of(c, chain);
	return peer_head(cm, chain, &p);
}

void cm_chain(struct cm_conn *c, enum cm_chain chain)
{
	struct cm_conn **head = head_of(c, chain);

	c->next[chain] = *head;
	*head = c;
	c->chained[chain] = true;
}

void cm_unchain(struct cm_conn *c, enum cm_chain chain)
{
	struct cm_conn **at;

	if (!c->chained[chain])
		return;
	for (at = head_of(c, chain); *at != c;)
		at = &(*at)->next[chain];
	*at = c->next[chain];
	c->chained[chain] = false;
}

struct cm_conn *cm_find_id(struct cm *cm, uint32_t id)
{
	struct cm_conn *c = cm->heads[CHAIN_ID][id & (cm->buckets - 1)];

	while (c && c->local_id != id)
		c = c->next[CHAIN_ID];
	return c;
}

struct cm_conn *cm_find_peer(struct cm *cm, enum cm_chain chain, const struct cm_peer *peer)
{
	struct cm_conn *c = *peer_head(cm, chain, peer);

	for (; c; c = c->next[chain]) {
		struct cm_peer p = peer_of(c, chain);

		if (memcmp(&p, peer, sizeof(p)) == 0)
			return c;
	}
	return NULL;
}

/* ---- the pool ---- */

static struct cm_conn *take_conn(struct cm *cm)
{
	struct cm_conn *c;

	if (list_empty(&cm->free) && cm->first_unused < cm->config.max_conns)
		return &cm->conns[cm->first_unused++];
	if (list_empty(&cm->free) && !list_empty(&cm->timewait)) {
		cm->counters.timewait_cut++;
		cm_conn_free(list_first_entry(&cm->timewait, struct cm_conn, link));
	}
	if (list_empty(&cm->free))
		return NULL;
	c = list_first_entry(&cm->free, struct cm_conn, link);
	list_del(&c->link);
	return c;
}

/*
 * The count of the sequence may be in memory of several programs. A hostile program must not keep
 * this program in the loop.
 */
static bool next_id(struct cm *cm, uint64_t now, unsigned *draws, uint32_t *id)
{
	if ((*draws)++ < MOST_DRAWS)
		return sequence_draw_rested(&cm->config.ids, now, id);
	*id = (uint32_t)secret_u64(&cm->secret);
	return true;
}

/* Finds an unused id. Returns false if there is none that has rested. */
static bool choose_id(struct cm_conn *c, uint64_t now)
{
	struct cm *cm = c->cm;
	unsigned draws = 0;
	uint32_t id;

	do {
		if (!next_id(cm, now, &draws, &id))
			return false;
		c->local_id = cm_id(cm, id);
	} while (!c->local_id || cm_find_id(cm, c->local_id));
	return true;
}

struct cm_conn *cm_conn_new(struct cm *cm, uint64_t now)
{
	struct cm_conn *c = take_conn(cm);

	if (!c)
		return NULL;
	memset(c, 0, sizeof(*c));
	c->cm = cm;
	c->owned = true;
	if (!choose_id(c, now)) {
		list_add(&c->link, &cm->free);
		return NULL;
	}
	cm_chain(c, CHAIN_ID);
	cm->in_use++;
	return c;
}

void cm_conn_free(struct cm_conn *c)
{
	struct cm *cm = c->cm;

	cm_set_state(c, CM_IDLE);
	wheel_del(&cm->wheel, &c->timer);
	for (int i = 0; i < CHAINS; i++)
		cm_unchain(c, (enum cm_chain)i);
	if (list_linked(&c->link))
		list_del(&c->link);
	list_add(&c->link, &cm->free);
	ROOST_ASSERT(cm->in_use);
	cm->in_use--;
}
