/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Wills: a connection manager leaves the DREQ of each established connection. If its program is
 * killed, survivors send them, as the Linux kernel does for a dead process. Otherwise the peers
 * would notice the end only by silence: the address is still open, so no ICMP error comes. Members
 * of a pool may have different addresses. A survivor sends the wills whose source is an address of
 * its own, if it can send from it already, and leaves the others to later looks and to survivors
 * that have their addresses.
 *
 * The next owner of the slot may come while a survivor reads. Each will has the number of the owner
 * that left it. The survivor that replaces this number by 0 has a copy of the dead program's will,
 * and is the only one that sends it.
 *
 * Neither the owner nor a survivor takes a lock that another program may hold, nor a name of the
 * pool. A program that is stopped, wherever it stands, does not delay the wills of others.
 */
#include "pool/core.h"

/*
 * After this time the wills of a dead program that nobody could send have no use: their peers have
 * noticed the silence.
 */
#define WILL_MS 60000

/*
 * Memory order, of the owner and of a survivor that executes the wills of a dead program:
 *
 *	used = 0, fence (release), will,	used (acquire), will, fence (acquire), owned,
 *	used = owner (release)			exchange used: the same owner for 0
 *
 * A survivor that copies parts of two wills finds that the slot has an owner again, or that `used`
 * has changed.
 */
void pool_leave_will(struct pool *p, unsigned slot, uint32_t index, const struct pool_will *w)
{
	struct slot_record *record = &p->state->record[slot];
	struct slot_will *s;

	if (index >= POOL_WILLS)
		return;
	s = &record->will[index];
	atomic_store_explicit(&s->used, 0, memory_order_seq_cst);
	if (!w)
		return;
	atomic_thread_fence(memory_order_release);
	s->will = *w;
	if (index >= atomic_load_explicit(&record->wills, memory_order_relaxed))
		atomic_store_explicit(&record->wills, index + 1, memory_order_release);
	atomic_store_explicit(&s->used, atomic_load_explicit(&record->owned, memory_order_relaxed),
			      memory_order_release);
}

void pool_execute(struct pool *p,
		  bool (*can)(void *ctx, const struct pkt_addr *src, uint32_t scope),
		  void (*fn)(void *ctx, const struct pool_will *w), void *ctx)
{
	pthread_mutex_lock(&p->will_lock);
	p->can_execute = can;
	p->execute = fn;
	p->execute_ctx = ctx;
	pthread_mutex_unlock(&p->will_lock);
}

static bool has_addr(struct pool *p, const struct pkt_addr *addr, uint32_t scope)
{
	bool found;

	pthread_mutex_lock(&p->lock);
	found = addr_find(p, addr, scope);
	pthread_mutex_unlock(&p->lock);
	return found;
}

static void execute_slot(struct pool *p, struct slot_record *record)
{
	uint32_t n = atomic_load_explicit(&record->wills, memory_order_acquire);

	for (uint32_t i = 0; i < n && i < POOL_WILLS; i++) {
		struct slot_will *s = &record->will[i];
		uint32_t owner = atomic_load_explicit(&s->used, memory_order_acquire);
		struct pool_will w;

		if (!owner)
			continue;
		w = s->will;
		atomic_thread_fence(memory_order_acquire);
		if (atomic_load_explicit(&record->owned, memory_order_seq_cst))
			return;
		if (has_addr(p, &w.src, w.scope) &&
		    p->can_execute(p->execute_ctx, &w.src, w.scope) &&
		    atomic_compare_exchange_strong(&s->used, &owner, 0))
			p->execute(p->execute_ctx, &w);
	}
}

void pool_execute_wills(struct pool *p)
{
	pthread_mutex_lock(&p->will_lock);
	for (unsigned slot = 0; p->execute && slot < POOL_SLOTS; slot++) {
		struct slot_record *record = &p->state->record[slot];
		uint64_t since;

		if (atomic_load_explicit(&record->owned, memory_order_seq_cst))
			continue;
		since = atomic_load_explicit(&record->reclaimed, memory_order_relaxed);
		if (pool_clock_ms() - since < WILL_MS)
			execute_slot(p, record);
	}
	pthread_mutex_unlock(&p->will_lock);
}
