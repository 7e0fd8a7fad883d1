/* SPDX-License-Identifier: BSD-2-Clause */
#include "kernels/owners.h"

#include <stdlib.h>
#include <string.h>

#include "base/spin.h"
#include "kernels/call.h"
#include "kernels/guarded.h"

enum resource_state { FREE, TAKEN, ENDING };

struct holder {
	uint64_t owner;
	struct pkt_addr peer;
	enum resource_state state;
};

struct ledger {
	/* taken to take, to give, and to end a connection: at most once or twice per call */
	struct spin lock;
	bool dead;	     /* the `self` is freed, or about to be freed */
	uint32_t num_ending; /* PUs that call ended() */
	uint32_t n, each, peer;
	/* numbers up to this one were taken before and have memory */
	uint32_t high_water;
	uint64_t bytes;
	_Atomic uint32_t taken;
	const struct kernel_version *version; /* NULL: not published yet */
	/*
	 * list of the kernel runtime; changed with all PUs owned, or before the ledger is visible
	 * to connections
	 */
	struct ledger *next;
	struct holder holder[ROOST_KERNEL_RESOURCES];
};

/* ---- open and close ---- */

/* Returns a ledger whose `self` has been freed, for reuse, or NULL. */
static struct ledger *find_dead(struct kernel_runtime *rt)
{
	struct ledger *l = atomic_load_explicit(&rt->ledgers, memory_order_relaxed);

	while (l && !l->dead)
		l = l->next;
	return l;
}

struct ledger *ledger_open(struct kernel_runtime *rt, const struct roost_kernel *k)
{
	struct ledger *l = find_dead(rt);
	bool found = l;

	if (!found)
		l = calloc(1, sizeof(*l));
	if (!l)
		return NULL;
	spin_lock(&l->lock);
	memset(l->holder, 0, sizeof(l->holder));
	l->n = k->resources;
	l->each = k->resources_each && k->resources_each < l->n ? k->resources_each : l->n;
	l->peer = (l->n + 1) / 2 > l->each ? (l->n + 1) / 2 : l->each;
	l->bytes = k->resource_bytes;
	l->high_water = 0;
	l->version = NULL;
	l->dead = false;
	atomic_store_explicit(&l->taken, 0, memory_order_relaxed);
	spin_unlock(&l->lock);
	if (!found) {
		l->next = atomic_load_explicit(&rt->ledgers, memory_order_relaxed);
		/* Release: readers of the list see an initialised ledger. */
		atomic_store_explicit(&rt->ledgers, l, memory_order_release);
	}
	return l;
}

void ledger_serve(struct ledger *l, const struct kernel_version *s)
{
	l->version = s;
}

bool ledger_close(struct kernel_runtime *rt, struct ledger *l)
{
	bool quiet, first;

	spin_lock(&l->lock);
	quiet = l->num_ending == 0;
	first = quiet && !l->dead;
	if (quiet)
		l->dead = true;
	spin_unlock(&l->lock);
	if (first)
		nic_memory_give(rt->nic, l->high_water * l->bytes);
	return quiet;
}

void ledgers_free(struct kernel_runtime *rt)
{
	struct ledger *l = atomic_load_explicit(&rt->ledgers, memory_order_relaxed), *next;

	for (; l; l = next) {
		next = l->next;
		free(l);
	}
}

/* ---- taking and giving ---- */

/* Returns whether the owner may take another resource. The caller holds the lock. */
static bool has_share(const struct ledger *l, uint64_t owner, const struct pkt_addr *peer)
{
	uint32_t own = 0, peers = 0;

	if (owner == OWNER_HOST)
		return true;
	for (uint32_t i = 0; i < l->high_water; i++) {
		const struct holder *h = &l->holder[i];

		if (h->state == FREE || h->owner == OWNER_HOST)
			continue;
		own += h->owner == owner;
		peers += pkt_addr_eq(&h->peer, peer);
	}
	return own < l->each && peers < l->peer;
}

/* Returns the first free resource, or l->n. A resource that was never taken needs memory. */
static uint32_t find_free(struct kernel_runtime *rt, struct ledger *l)
{
	uint32_t i = 0;

	while (i < l->high_water && l->holder[i].state != FREE)
		i++;
	if (i < l->high_water || i == l->n)
		return i;
	if (!nic_memory_take(rt->nic, l->bytes))
		return l->n;
	l->high_water++;
	return i;
}

uint32_t ledger_take(struct kernel_runtime *rt, struct ledger *l, uint64_t owner,
		     const struct pkt_addr *peer)
{
	uint32_t i = l->n;

	spin_lock(&l->lock);
	if (has_share(l, owner, peer))
		i = find_free(rt, l);
	if (i < l->n) {
		l->holder[i] = (struct holder){.owner = owner, .state = TAKEN};
		if (peer)
			l->holder[i].peer = *peer;
		atomic_fetch_add_explicit(&l->taken, 1, memory_order_relaxed);
	}
	spin_unlock(&l->lock);
	return i < l->n ? i + 1 : 0;
}

/* The caller holds the lock. */
static void set_free(struct ledger *l, struct holder *h)
{
	h->state = FREE;
	atomic_fetch_sub_explicit(&l->taken, 1, memory_order_relaxed);
}

void ledger_give(struct ledger *l, uint32_t number)
{
	struct holder *h = &l->holder[number - 1];

	if (!number || number > l->n)
		return;
	spin_lock(&l->lock);
	/*
	 * A resource in state ENDING becomes free after ended() has returned. Otherwise ended()
	 * could end a resource that was taken again meanwhile.
	 */
	if (h->state == TAKEN)
		set_free(l, h);
	spin_unlock(&l->lock);
}

uint32_t ledger_taken(const struct ledger *l)
{
	return atomic_load_explicit(&((struct ledger *)(uintptr_t)l)->taken, memory_order_relaxed);
}

uint32_t ledger_size(const struct ledger *l)
{
	return l->n;
}

/* ---- the end of a connection ---- */

struct resource {
	const struct kernel_version *s;
	uint32_t number;
};

static void call_ended(void *arg)
{
	const struct resource *r = arg;

	r->s->k->ended(r->s->shared_self->self, r->number);
}

static void report_ended(struct runtime_pu *pu, const struct ledger *l, uint32_t number)
{
	struct kernel_version *s = (struct kernel_version *)(uintptr_t)l->version;
	int how;

	if (!s || !s->k->ended || version_disabled(s))
		return;
	how = guarded_step(&pu->guard, call_ended, &(struct resource){s, number});
	if (how)
		version_disable(s, (enum guard_end)how);
}

static void end_resources_of(struct runtime_pu *pu, struct ledger *l, uint64_t owner)
{
	spin_lock(&l->lock);
	l->num_ending++;
	for (uint32_t i = 0; i < l->high_water && !l->dead; i++) {
		struct holder *h = &l->holder[i];

		if (h->state != TAKEN || h->owner != owner)
			continue;
		h->state = ENDING;
		spin_unlock(&l->lock);
		report_ended(pu, l, i + 1);
		spin_lock(&l->lock);
		set_free(l, h);
		pu->ctr.resources_ended++;
	}
	l->num_ending--;
	spin_unlock(&l->lock);
}

void owner_ends(struct runtime_pu *pu, uint64_t owner)
{
	struct ledger *l = atomic_load_explicit(&pu->rt->ledgers, memory_order_acquire);

	for (; l; l = l->next)
		end_resources_of(pu, l, owner);
}
