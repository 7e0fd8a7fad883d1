/* SPDX-License-Identifier: BSD-2-Clause */
/* Memory regions. mw.c has the windows. */
#include "nic/mr.h"
#include "base/assert.h"
#include "nic/stream.h"

#include <errno.h>
#include <stdlib.h>

#include "base/mem.h"

#define CHUNK_BYTES (sizeof(struct mr_entry) << MR_CHUNK_BITS)
#define THROWS	    64

void mr_table_init(struct mr_table *t, const struct key_sequence *keys)
{
	t->keys = keys;
}

void mr_table_fini(struct mr_table *t)
{
	for (unsigned i = 0; i < MR_CHUNKS; i++)
		mem_free_pages(atomic_load_explicit(&t->chunk[i], memory_order_relaxed),
			       CHUNK_BYTES);
}

struct mr_entry *mr_entry(struct mr_table *t, uint32_t index)
{
	struct mr_entry *c =
		atomic_load_explicit(&t->chunk[index >> MR_CHUNK_BITS], memory_order_acquire);

	return c ? &c[index & ((1u << MR_CHUNK_BITS) - 1)] : NULL;
}

void *mr_resolve_region_addr(struct mr_table *t, uint32_t key, uint32_t pd, uint64_t va,
			     uint64_t len, uint32_t access, struct mr_region_addr *out)
{
	const struct mr_entry *e = mr_entry(t, key >> MR_TAG_BITS), *region;
	uint64_t tag;
	uint8_t *p;

	if (!e)
		return NULL;
	do {
		uint32_t parent;

		tag = atomic_load_explicit(&e->tag, memory_order_acquire);
		p = mr_resolve(t, key, pd, va, len, access);
		if (!p)
			return NULL;
		parent = atomic_load_explicit(&e->parent, memory_order_relaxed);
		region = parent == MR_NO_INDEX ? e : mr_entry(t, parent);
		out->key = mr_key_of(atomic_load_explicit(&region->tag, memory_order_relaxed));
		out->va =
			atomic_load_explicit(&region->iova, memory_order_relaxed) +
			((uintptr_t)p - atomic_load_explicit(&region->addr, memory_order_relaxed));
		/*
		 * The loop repeats if the window was bound anew. While it is bound, its region
		 * stays.
		 */
		atomic_thread_fence(memory_order_acquire);
	} while (atomic_load_explicit(&e->tag, memory_order_relaxed) != tag);
	return p;
}

static bool is_free(struct mr_table *t, uint32_t index)
{
	const struct mr_entry *e = mr_entry(t, index);

	return !e || e->kind == MR_FREE;
}

/* Returns whether the last key of the index had the same upper bits. */
static bool is_last(struct mr_table *t, uint32_t key)
{
	const struct mr_entry *e = mr_entry(t, key >> MR_TAG_BITS);

	return e && e->last_key && (key ^ e->last_key) >> KEY_LOW_BITS == 0;
}

/*
 * Draws keys until a key has a free index and is new there. In a nearly full table, takes the first
 * free index after the last drawn one. Returns false if the keys of windows must rest.
 */
static bool draw(struct mr_table *t, enum mr_kind kind, uint64_t now, uint32_t *key)
{
	uint32_t index;

	for (unsigned throws = 0; throws < THROWS; throws++) {
		if (kind == MR_REGION)
			*key = key_draw_region(t->keys);
		else if (!key_draw_window(t->keys, now, key))
			return false;
		if (is_free(t, *key >> MR_TAG_BITS) && !is_last(t, *key))
			return true;
	}
	index = *key >> MR_TAG_BITS;
	while (!is_free(t, index))
		index = (index + 1) % NIC_MAX_MRS;
	*key = index << MR_TAG_BITS | (*key & ((1u << MR_TAG_BITS) - 1));
	return true;
}

static int make_chunk(struct mr_table *t, uint32_t index)
{
	struct mr_entry *c;

	if (mr_entry(t, index))
		return 0;
	c = mem_alloc_pages(CHUNK_BYTES); /* only the used pages of a chunk take memory */
	if (!c)
		return -ENOMEM;
	atomic_store_explicit(&t->chunk[index >> MR_CHUNK_BITS], c, memory_order_release);
	return 0;
}

int mr_take(struct mr_table *t, enum mr_kind kind, uint64_t now, uint32_t *key)
{
	struct mr_entry *e;
	uint32_t k;
	int rc;

	if (t->taken == NIC_MAX_MRS)
		return -ENOMEM;
	if (!draw(t, kind, now, &k))
		return -EAGAIN;
	rc = make_chunk(t, k >> MR_TAG_BITS);
	if (rc)
		return rc;
	e = mr_entry(t, k >> MR_TAG_BITS);
	/*
	 * An old key must not become valid again, not even in a nearly full table. All keys with
	 * its upper 24 bits belong to a window.
	 */
	if (is_last(t, k))
		k ^= 1u << KEY_LOW_BITS;
	if (k == 0) /* 0 is no key */
		k = 1;
	t->taken++;
	e->last_key = k;
	e->kind = kind;
	atomic_store_explicit(&e->parent, MR_NO_INDEX, memory_order_relaxed);
	e->windows = 0;
	*key = k;
	return 0;
}

void mr_give_back(struct mr_table *t, struct mr_entry *e)
{
	mr_clear_key(e);
	e->kind = MR_FREE;
	ROOST_ASSERT(t->taken);
	t->taken--;
}

static void set_tag(struct mr_entry *e, uint32_t key)
{
	uint64_t changes = (atomic_load_explicit(&e->tag, memory_order_relaxed) >> 32) + 1;

	atomic_store_explicit(&e->tag, changes << 32 | key, memory_order_release);
}

/* Clears the key. Readers must see this store before any store of a new field. */
void mr_clear_key(struct mr_entry *e)
{
	set_tag(e, 0);
	atomic_thread_fence(memory_order_release);
}

void mr_set_key(struct mr_entry *e, uint32_t key)
{
	set_tag(e, key);
}

void *mr_resolve_keep(struct mr_table *t, uint32_t key, uint32_t pd, uint64_t va, uint64_t len,
		      uint32_t access, struct mr_last *last)
{
	void *p = mr_resolve(t, key, pd, va, len, access);
	struct mr_entry *e;
	struct mr_last now;

	if (!p)
		return NULL;
	e = mr_entry(t, key >> MR_TAG_BITS);
	now = (struct mr_last){
		.e = e,
		.tag = atomic_load_explicit(&e->tag, memory_order_acquire),
		.iova = atomic_load_explicit(&e->iova, memory_order_relaxed),
		.len = atomic_load_explicit(&e->len, memory_order_relaxed),
		.addr = atomic_load_explicit(&e->addr, memory_order_relaxed),
		.pd = atomic_load_explicit(&e->pd, memory_order_relaxed),
	};
	/* The second load of the seqlock: the result is not stored if the entry has changed. */
	atomic_thread_fence(memory_order_acquire);
	if (mr_key_of(now.tag) == key &&
	    atomic_load_explicit(&e->tag, memory_order_relaxed) == now.tag)
		*last = now;
	return p;
}

int nic_mr_register(struct nic *nic, const struct nic_mr_attr *a, uint32_t *key)
{
	struct mr_table *t = &nic->mrs;
	struct mr_entry *e;
	uint32_t k;
	int rc;

	/* Remote writes and atomics require local write (IBA 11.2.8.2). */
	if ((a->access & (NIC_ACCESS_REMOTE_WRITE | NIC_ACCESS_REMOTE_ATOMIC)) &&
	    !(a->access & NIC_ACCESS_LOCAL_WRITE))
		return -EINVAL;
	if (a->len > UINT64_MAX - (uintptr_t)a->addr || a->len > UINT64_MAX - a->iova)
		return -EINVAL;
	if (!nic_pd_ref(nic, a->pd))
		return -EINVAL;
	spin_lock(&t->lock);
	rc = mr_take(t, MR_REGION, 0, &k);
	if (rc) {
		spin_unlock(&t->lock);
		nic_pd_unref(nic, a->pd);
		return rc;
	}
	e = mr_entry(t, k >> MR_TAG_BITS);
	mr_clear_key(e);
	atomic_store_explicit(&e->pd, a->pd, memory_order_relaxed);
	atomic_store_explicit(&e->access,
			      a->access | MR_VALID | MR_LOCAL |
				      (a->invalidatable ? MR_INVALIDATABLE : 0),
			      memory_order_relaxed);
	atomic_store_explicit(&e->iova, a->iova, memory_order_relaxed);
	atomic_store_explicit(&e->len, a->len, memory_order_relaxed);
	atomic_store_explicit(&e->addr, (uintptr_t)a->addr, memory_order_relaxed);
	mr_set_key(e, k);
	t->regions++;
	spin_unlock(&t->lock);
	*key = k;
	return 0;
}

int nic_mr_deregister(struct nic *nic, uint32_t key)
{
	struct mr_table *t = &nic->mrs;
	uint32_t index = key >> MR_TAG_BITS, pd;
	struct mr_entry *e;
	int rc = -ENOENT;

	spin_lock(&t->lock);
	e = mr_entry(t, index);
	if (!e || e->kind != MR_REGION || e->last_key != key)
		goto unlock;
	rc = -EBUSY;
	if (e->windows || stream_on_region(nic, key))
		goto unlock;
	rc = 0;
	pd = atomic_load_explicit(&e->pd, memory_order_relaxed);
	mr_give_back(t, e);
	t->regions--;
	nic_pd_unref(nic, pd);
unlock:
	spin_unlock(&t->lock);
	return rc;
}
