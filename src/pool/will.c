/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Wills: a connection manager leaves the DREQ of each established connection. If its program is
 * killed, the survivor that removes the program's ownership sends them, as the Linux kernel does
 * for a dead process. Otherwise the peers would notice the end only by silence: the address is
 * still open, so no ICMP error comes.
 *
 * The next owner of the slot may come while a survivor reads. The owner marks the record before it
 * leaves wills, so a copy that was made before the mark belongs to the dead program.
 */
#include "pool/core.h"

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
	s->will = *w;
	if (index >= atomic_load_explicit(&record->wills, memory_order_relaxed))
		atomic_store_explicit(&record->wills, index + 1, memory_order_release);
	atomic_store_explicit(&s->used, 1, memory_order_release);
}

void pool_execute(struct pool *p, void (*fn)(void *ctx, const struct pool_will *w), void *ctx)
{
	pthread_mutex_lock(&p->will_lock);
	p->execute = fn;
	p->execute_ctx = ctx;
	pthread_mutex_unlock(&p->will_lock);
}

void will_execute(struct pool *p, unsigned slot)
{
	struct slot_record *record = &p->state->record[slot];
	uint32_t n = atomic_load_explicit(&record->wills, memory_order_acquire);

	pthread_mutex_lock(&p->will_lock);
	for (uint32_t i = 0; p->execute && i < n && i < POOL_WILLS; i++) {
		struct slot_will *s = &record->will[i];
		struct pool_will w;

		if (!atomic_load_explicit(&s->used, memory_order_acquire))
			continue;
		w = s->will;
		if (atomic_load_explicit(&record->owned, memory_order_seq_cst))
			break;
		p->execute(p->execute_ctx, &w);
	}
	pthread_mutex_unlock(&p->will_lock);
}
