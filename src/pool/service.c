/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Services are a list in the record of each slot; only the owner of the slot writes it. A program
 * holds the publisher's name while it publishes, so if two programs publish the same service at
 * once, the second one fails. If the holder is stopped, other programs continue without the name
 * after a second. Then both programs may fail, but never both succeed: each writes its entry before
 * it looks for others.
 */
#include "pool/core.h"

#include <errno.h>

#include "pool/filter.h"

#define PUBLISH_SLEEP 2 /* ms between looks at a publisher */

/*
 * These loads and the stores of pool_publish() have one order for all programs. Otherwise two
 * programs that publish at once might not see each other's entries.
 */
static uint32_t used_services(struct slot_record *record)
{
	uint32_t n = atomic_load_explicit(&record->services, memory_order_seq_cst);

	return n < SLOT_SERVICES ? n : SLOT_SERVICES;
}

static bool is_used(struct slot_service *s)
{
	return atomic_load_explicit(&s->used, memory_order_seq_cst);
}

/* Returns true if a listener at these addresses has one in common with the entry. */
static bool is_there(struct slot_service *s, const struct service_addrs *at)
{
	uint32_t has = atomic_load_explicit(&s->families, memory_order_relaxed);

	return at->addr ? !has && state_is_at(s->addr, &s->scope, at->addr, at->scope)
			: (has & at->families) != 0;
}

struct slot_service *service_find(struct pool *p, unsigned slot, uint64_t id,
				  const struct service_addrs *at)
{
	struct slot_record *record = &p->state->record[slot];

	for (unsigned i = 0; i < used_services(record); i++) {
		struct slot_service *s = &record->service[i];

		if (is_used(s) && atomic_load_explicit(&s->id, memory_order_relaxed) == id &&
		    is_there(s, at))
			return s;
	}
	return NULL;
}

/* Returns a free entry of an own record, or NULL. */
static struct slot_service *free_entry(struct pool *p, unsigned slot)
{
	struct slot_record *record = &p->state->record[slot];

	for (unsigned i = 0; i < SLOT_SERVICES; i++) {
		if (is_used(&record->service[i]))
			continue;
		if (i >= used_services(record))
			atomic_store_explicit(&record->services, i + 1, memory_order_seq_cst);
		return &record->service[i];
	}
	return NULL;
}

/*
 * Returns true if another listener conflicts with a new one. A listener on all addresses listens on
 * all addresses of its program, so two such listeners conflict only if their programs share an
 * address.
 */
static bool taken(struct pool *p, unsigned slot, uint64_t id, const struct service_addrs *at)
{
	for (unsigned i = 0; i < POOL_SLOTS; i++) {
		if (i != slot &&
		    atomic_load_explicit(&p->state->record[i].owned, memory_order_seq_cst) &&
		    service_find(p, i, id, at) &&
		    (at->addr || addr_shared(p, slot, i, at->families)) && !pool_reclaim_slot(p, i))
			return true;
	}
	return false;
}

int pool_hold_publisher(void)
{
	struct pool_wait wait = pool_wait_begin(ANSWER_MS);
	int fd;

	while ((fd = pool_bind_name(NAME_PUBLISHER, 0)) == -EADDRINUSE && pool_wait_look(&wait))
		pool_sleep_ms(PUBLISH_SLEEP);
	return fd < 0 ? -1 : fd;
}

int pool_publish(struct pool *p, unsigned slot, uint64_t service, const struct pkt_addr *addr,
		 uint32_t scope, unsigned families)
{
	static const struct pkt_addr none;
	const struct service_addrs at = {addr, scope, families};
	struct slot_service *s;
	int rc = 0;

	pthread_mutex_lock(&p->lock);
	s = free_entry(p, slot);
	if (!s) {
		rc = -ENOSPC;
	} else {
		atomic_store_explicit(&s->id, service, memory_order_relaxed);
		atomic_store_explicit(&s->families, addr ? 0 : families, memory_order_relaxed);
		state_store_addr(s->addr, addr ? addr : &none);
		atomic_store_explicit(&s->scope, scope, memory_order_relaxed);
		atomic_store_explicit(&s->used, 1, memory_order_seq_cst);
		if (taken(p, slot, service, &at)) {
			atomic_store_explicit(&s->used, 0, memory_order_seq_cst);
			rc = -EADDRINUSE;
		}
		state_changed(p->state);
	}
	pthread_mutex_unlock(&p->lock);
	pool_execute_wills(p); /* taken() may have reclaimed slots */
	/* Another member may have steered while a refused entry was there. */
	pool_steer(p);
	return rc;
}

void pool_withdraw(struct pool *p, unsigned slot, uint64_t service, const struct pkt_addr *addr,
		   uint32_t scope, unsigned families)
{
	const struct service_addrs at = {addr, scope, families};
	struct slot_service *s;

	pthread_mutex_lock(&p->lock);
	s = service_find(p, slot, service, &at);
	if (s)
		atomic_store_explicit(&s->used, 0, memory_order_release);
	state_changed(p->state);
	pthread_mutex_unlock(&p->lock);
	pool_steer(p);
}

void pool_manages(struct pool *p, unsigned slot, bool manages)
{
	atomic_store_explicit(&p->state->record[slot].manages, manages, memory_order_release);
	state_changed(p->state);
	pool_steer(p);
}

static void add_routes(struct pool *p, unsigned slot, const struct service_addrs *at,
		       struct pool_table *t)
{
	struct slot_record *record = &p->state->record[slot];

	for (unsigned i = 0; i < used_services(record); i++) {
		struct slot_service *s = &record->service[i];

		if (!is_used(s) || !is_there(s, at))
			continue;
		if (t->num == POOL_FILTER_SERVICES) {
			t->cut = true;
			return;
		}
		t->route[t->num++] = (struct pool_route){
			atomic_load_explicit(&s->id, memory_order_relaxed), (uint8_t)slot};
	}
}

void service_takers(const struct pkt_addr *addr, uint32_t scope, struct service_addrs at[2])
{
	at[0] = (struct service_addrs){.addr = addr, .scope = scope};
	at[1] = (struct service_addrs){.families = pkt_addr_is_v4(addr) ? POOL_IPV4 : POOL_IPV6};
}

void service_routes(const struct pool_addr *a, uint64_t alive, struct pool_table *t)
{
	struct service_addrs at[2];

	service_takers(&a->addr, a->scope, at);
	for (unsigned pass = 0; pass < 2; pass++) {
		for (unsigned i = 0; i < POOL_SLOTS; i++) {
			if (alive >> i & 1)
				add_routes(a->pool, i, &at[pass], t);
		}
	}
}
