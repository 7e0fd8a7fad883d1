/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Memory windows (IBA 10.6.7.2). A window is a separate key for a part of a region. Work requests
 * of a QP bind and invalidate it. A bound window is an entry of the table like a region, so a
 * look-up costs the same. A type 2 window is in the private domain of its QP (2B).
 *
 *	type 1   alloc -> unbound <-> bound, bound again at will, by any QP of its PD
 *	type 2   alloc -> free -> bound -> free (invalidated, locally or by the peer's SEND)
 */
#include "nic/core.h"

#define REMOTE_RIGHTS (NIC_ACCESS_REMOTE_WRITE | NIC_ACCESS_REMOTE_READ | NIC_ACCESS_REMOTE_ATOMIC)
#define WRITE_RIGHTS  (NIC_ACCESS_REMOTE_WRITE | NIC_ACCESS_REMOTE_ATOMIC)

/* Compares the bits of a window's key that do not change during its life. */
static bool same_window(uint32_t a, uint32_t b)
{
	return (a ^ b) >> KEY_LOW_BITS == 0;
}

static uint32_t parent_of(const struct mr_entry *w)
{
	return atomic_load_explicit(&w->parent, memory_order_relaxed);
}

static struct mr_entry *find(struct mr_table *t, uint32_t key)
{
	struct mr_entry *e = mr_entry(t, key >> MR_TAG_BITS);

	return e && (e->kind == MR_WINDOW_1 || e->kind == MR_WINDOW_2) &&
			       same_window(e->last_key, key)
		       ? e
		       : NULL;
}

/* ---- the list of a QP's type 2 windows ---- */

static void link_window(struct mr_table *t, struct nic_qp *qp, struct mr_entry *e)
{
	uint32_t index = e->last_key >> MR_TAG_BITS;

	e->prev = MR_NO_INDEX;
	e->next = qp->windows;
	if (e->next != MR_NO_INDEX)
		mr_entry(t, e->next)->prev = index;
	qp->windows = index;
}

static void unlink_window(struct mr_table *t, struct nic_qp *qp, struct mr_entry *e)
{
	if (e->prev == MR_NO_INDEX)
		qp->windows = e->next;
	else
		mr_entry(t, e->prev)->next = e->next;
	if (e->next != MR_NO_INDEX)
		mr_entry(t, e->next)->prev = e->prev;
}

static void unbind(struct nic *nic, struct mr_entry *e)
{
	struct mr_table *t = &nic->mrs;

	mr_clear_key(e);
	if (parent_of(e) == MR_NO_INDEX)
		return;
	mr_entry(t, parent_of(e))->windows--;
	atomic_store_explicit(&e->parent, MR_NO_INDEX, memory_order_relaxed);
	if (e->kind == MR_WINDOW_2)
		unlink_window(t,
			      nic_find_qp(nic, atomic_load_explicit(&e->pd, memory_order_relaxed) &
						       PKT_QPN_MASK),
			      e);
}

/* ---- control ---- */

int nic_mw_alloc(struct nic *nic, uint32_t pd, unsigned type, uint64_t now, uint32_t *key)
{
	struct mr_table *t = &nic->mrs;
	int rc;

	if ((type != 1 && type != 2) || !nic_pd_ref(nic, pd))
		return -EINVAL;
	spin_lock(&t->lock);
	rc = mr_take(t, type == 1 ? MR_WINDOW_1 : MR_WINDOW_2, now, key);
	if (rc) {
		nic_pd_unref(nic, pd);
	} else {
		mr_entry(t, *key >> MR_TAG_BITS)->windows = pd;
		t->windows++;
	}
	spin_unlock(&t->lock);
	return rc;
}

int nic_mw_dealloc(struct nic *nic, uint32_t key)
{
	struct mr_table *t = &nic->mrs;
	struct mr_entry *e;
	int rc = -ENOENT;

	spin_lock(&t->lock);
	e = find(t, key);
	if (e) {
		unbind(nic, e);
		nic_pd_unref(nic, e->windows);
		mr_give_back(t, e);
		t->windows--;
		rc = 0;
	}
	spin_unlock(&t->lock);
	return rc;
}

void mw_unbind_all(struct nic_qp *qp)
{
	struct mr_table *t = &qp->nic->mrs;

	spin_lock(&t->lock);
	while (qp->windows != MR_NO_INDEX)
		unbind(qp->nic, mr_entry(t, qp->windows));
	spin_unlock(&t->lock);
}

/* ---- binding ---- */

/* The fields of a bind WQE. */
struct binding {
	uint32_t key, new_key, lkey, access;
	uint64_t va, len;
};

/* Returns the region of the WQE if the window may be bound to it (C10-72 .. C10-75); else NULL. */
static struct mr_entry *region_for(struct mr_table *t, const struct nic_qp *qp,
				   const struct binding *b)
{
	struct mr_entry *e = mr_entry(t, b->lkey >> MR_TAG_BITS);
	uint32_t access;
	uint64_t off, len;

	if (!e || e->kind != MR_REGION || e->last_key != b->lkey ||
	    atomic_load_explicit(&e->pd, memory_order_relaxed) != qp->pd)
		return NULL;
	access = atomic_load_explicit(&e->access, memory_order_relaxed);
	if ((access & (MR_VALID | NIC_ACCESS_MW_BIND)) != (MR_VALID | NIC_ACCESS_MW_BIND))
		return NULL;
	if (b->access & WRITE_RIGHTS && !(access & NIC_ACCESS_LOCAL_WRITE))
		return NULL;
	off = b->va - atomic_load_explicit(&e->iova, memory_order_relaxed);
	len = atomic_load_explicit(&e->len, memory_order_relaxed);
	return off <= len && b->len <= len - off ? e : NULL;
}

static bool window_ok(const struct nic_qp *qp, const struct mr_entry *w, const struct binding *b)
{
	if (!same_window(b->key, b->new_key) || b->new_key == 0 || w->windows != qp->pd ||
	    b->access & ~(uint32_t)(REMOTE_RIGHTS | NIC_ACCESS_ZERO_BASED | NIC_ACCESS_LOCAL_WRITE))
		return false;
	if (w->kind == MR_WINDOW_1) /* o10-36.2.2 */
		return !(b->access & NIC_ACCESS_ZERO_BASED);
	/* o10-37.2.30, o10-37.2.40: a bound window, or length 0, is an error. */
	return parent_of(w) == MR_NO_INDEX && b->len;
}

static void bind(struct nic_qp *qp, struct mr_entry *w, struct mr_entry *region,
		 const struct binding *b)
{
	struct mr_table *t = &qp->nic->mrs;
	uint64_t off = b->va - atomic_load_explicit(&region->iova, memory_order_relaxed);
	bool mine = w->kind == MR_WINDOW_2;

	atomic_store_explicit(&w->pd, mine ? MR_QP_DOMAIN(qp->qpn) : qp->pd, memory_order_relaxed);
	atomic_store_explicit(&w->access, (b->access & REMOTE_RIGHTS) | MR_VALID,
			      memory_order_relaxed);
	atomic_store_explicit(&w->iova, b->access & NIC_ACCESS_ZERO_BASED ? 0 : b->va,
			      memory_order_relaxed);
	atomic_store_explicit(&w->len, b->len, memory_order_relaxed);
	atomic_store_explicit(&w->addr,
			      atomic_load_explicit(&region->addr, memory_order_relaxed) +
				      (uintptr_t)off,
			      memory_order_relaxed);
	atomic_store_explicit(&w->parent, region->last_key >> MR_TAG_BITS, memory_order_relaxed);
	region->windows++;
	if (mine)
		link_window(t, qp, w);
	mr_set_key(w, b->new_key);
}

bool mw_bind(struct nic_qp *qp, const struct roost_wqe *wqe)
{
	const struct binding b = {
		.key = wqe->rkey,
		.new_key = wqe->imm,
		.lkey = (uint32_t)wqe->compare,
		.access = (uint32_t)(wqe->compare >> 32),
		.va = wqe->raddr,
		.len = wqe->swap_add,
	};
	struct mr_table *t = &qp->nic->mrs;
	struct mr_entry *w, *region = NULL;
	bool ok;

	spin_lock(&t->lock);
	w = find(t, b.key);
	ok = w && window_ok(qp, w, &b);
	if (ok && b.len) {
		region = region_for(t, qp, &b);
		ok = region;
	}
	if (ok) {
		unbind(qp->nic, w);
		w->last_key = b.new_key;
		if (region)
			bind(qp, w, region, &b);
	}
	spin_unlock(&t->lock);
	return ok;
}

bool mr_invalidate(struct nic_qp *qp, uint32_t key)
{
	struct mr_table *t = &qp->nic->mrs;
	struct mr_entry *e;
	uint32_t access;
	bool ok = false;

	spin_lock(&t->lock);
	e = mr_entry(t, key >> MR_TAG_BITS);
	if (!e || key == 0 || mr_key_of(atomic_load_explicit(&e->tag, memory_order_relaxed)) != key)
		goto unlock;
	access = atomic_load_explicit(&e->access, memory_order_relaxed);
	if (e->kind == MR_WINDOW_2) {
		ok = atomic_load_explicit(&e->pd, memory_order_relaxed) == MR_QP_DOMAIN(qp->qpn);
		if (ok)
			unbind(qp->nic, e);
	} else if (e->kind == MR_REGION) { /* a type 1 window cannot be invalidated (o10-37.2.26) */
		ok = atomic_load_explicit(&e->pd, memory_order_relaxed) == qp->pd &&
		     (access & (MR_VALID | MR_INVALIDATABLE)) == (MR_VALID | MR_INVALIDATABLE) &&
		     !e->windows;
		if (ok)
			atomic_store_explicit(&e->access, access & ~MR_VALID, memory_order_release);
	}
unlock:
	spin_unlock(&t->lock);
	return ok;
}
