/* SPDX-License-Identifier: BSD-2-Clause */
#include "nic/mr.h"

#include <errno.h>
#include <stdlib.h>

#include "nic/core.h"

#define NO_INDEX UINT32_MAX

void mr_table_init(struct mr_table *t, uint64_t seed)
{
	rng_seed(&t->rng, seed);
	t->first = (uint32_t)rng_below(&t->rng, NIC_MAX_MRS);
	t->free = t->free_tail = NO_INDEX;
}

void mr_table_fini(struct mr_table *t)
{
	for (unsigned i = 0; i < MR_CHUNKS; i++)
		free(atomic_load_explicit(&t->chunk[i], memory_order_relaxed));
}

static struct mr_entry *entry(struct mr_table *t, uint32_t index)
{
	struct mr_entry *c = atomic_load_explicit(&t->chunk[index >> MR_CHUNK_BITS], memory_order_acquire);

	return c ? &c[index & ((1u << MR_CHUNK_BITS) - 1)] : NULL;
}

/* The oldest free index, so that a key is not soon used again; else a new one. */
static int take_index(struct mr_table *t, uint32_t *out)
{
	uint32_t index;

	if (t->free != NO_INDEX) {
		index = t->free;
		t->free = entry(t, index)->next_free;
		if (t->free == NO_INDEX)
			t->free_tail = NO_INDEX;
		*out = index;
		return 0;
	}
	if (t->used == NIC_MAX_MRS)
		return -ENOMEM;
	index = (t->first + t->used) % NIC_MAX_MRS;
	if (!entry(t, index)) {
		struct mr_entry *c = calloc(1u << MR_CHUNK_BITS, sizeof(*c));

		if (!c)
			return -ENOMEM;
		atomic_store_explicit(&t->chunk[index >> MR_CHUNK_BITS], c, memory_order_release);
	}
	t->used++;
	*out = index;
	return 0;
}

int nic_mr_register(struct nic *nic, const struct nic_mr_attr *a, uint32_t *key)
{
	struct mr_table *t = &nic->mrs;
	struct mr_entry *e;
	uint32_t index, k;
	int rc;

	/* Remote writes and atomics change local memory (IBA 11.2.8.2): they need local write too. */
	if ((a->access & (NIC_ACCESS_REMOTE_WRITE | NIC_ACCESS_REMOTE_ATOMIC)) &&
	    !(a->access & NIC_ACCESS_LOCAL_WRITE))
		return -EINVAL;
	if (a->len > UINT64_MAX - (uintptr_t)a->addr || a->len > UINT64_MAX - a->iova)
		return -EINVAL;
	if (!nic_pd_ref(nic, a->pd))
		return -EINVAL;
	rc = take_index(t, &index);
	if (rc) {
		nic_pd_unref(nic, a->pd);
		return rc;
	}
	e = entry(t, index);
	/* The key before stays dead. */
	do {
		k = index << MR_TAG_BITS | (uint32_t)rng_below(&t->rng, 1u << MR_TAG_BITS);
	} while (k == 0 || k == e->last_key);
	e->last_key = k;
	/* Readers that still hold the old key must see it gone before any of the new fields. */
	atomic_thread_fence(memory_order_release);
	atomic_store_explicit(&e->pd, a->pd, memory_order_relaxed);
	atomic_store_explicit(&e->access, a->access | MR_VALID | (a->invalidatable ? MR_INVALIDATABLE : 0),
			      memory_order_relaxed);
	atomic_store_explicit(&e->iova, a->iova, memory_order_relaxed);
	atomic_store_explicit(&e->len, a->len, memory_order_relaxed);
	atomic_store_explicit(&e->addr, (uintptr_t)a->addr, memory_order_relaxed);
	atomic_store_explicit(&e->key, k, memory_order_release);
	t->live++;
	*key = k;
	return 0;
}

bool mr_invalidate(struct mr_table *t, uint32_t key, uint32_t pd)
{
	struct mr_entry *e = entry(t, key >> MR_TAG_BITS);
	uint32_t access;

	if (!e || key == 0 || atomic_load_explicit(&e->key, memory_order_acquire) != key ||
	    atomic_load_explicit(&e->pd, memory_order_relaxed) != pd)
		return false;
	access = atomic_load_explicit(&e->access, memory_order_relaxed);
	if ((access & (MR_VALID | MR_INVALIDATABLE)) != (MR_VALID | MR_INVALIDATABLE))
		return false;
	/* Fails only if somebody else took it back, or the slot was given away, in between. */
	return atomic_compare_exchange_strong_explicit(&e->access, &access, access & ~MR_VALID,
						       memory_order_acq_rel, memory_order_relaxed);
}

int nic_mr_deregister(struct nic *nic, uint32_t key)
{
	struct mr_table *t = &nic->mrs;
	uint32_t index = key >> MR_TAG_BITS;
	struct mr_entry *e = entry(t, index);

	if (!e || key == 0 || atomic_load_explicit(&e->key, memory_order_relaxed) != key)
		return -ENOENT;
	atomic_store_explicit(&e->key, 0, memory_order_release);
	nic_pd_unref(nic, atomic_load_explicit(&e->pd, memory_order_relaxed));
	e->next_free = NO_INDEX;
	if (t->free_tail == NO_INDEX)
		t->free = index;
	else
		entry(t, t->free_tail)->next_free = index;
	t->free_tail = index;
	t->live--;
	return 0;
}
