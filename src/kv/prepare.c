/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Memory for growth. The index and each segment grow at their end, so the pages behind it are
 * needed next. The thread that uses the store publishes the ends; the other members that are used
 * here do not change, or belong to the thread that calls kv_prepare().
 */
#include "kv/store.h"

#define AHEAD (2 * MEM_HUGE_PAGE)

/*
 * Makes the page behind *ready present, if less than AHEAD bytes behind `end` are. The range begins
 * at `base` and has at most `most` bytes.
 */
static bool prepare(const struct kv_memory *m, uint64_t base, uint64_t end, uint64_t most,
		    uint64_t *ready)
{
	uint64_t want = most - end < AHEAD ? most : end + AHEAD, upto;

	if (*ready < end)
		*ready = end;
	if (*ready >= want)
		return false;
	upto = ALIGN_UP(base + *ready + 1, MEM_HUGE_PAGE) - base;
	if (upto > most)
		upto = most;
	mem_populate(m->base, base + *ready, base + upto);
	*ready = upto;
	return true;
}

bool kv_prepare(struct kv *kv)
{
	bool missing =
		prepare(&kv->mem, 0, atomic_load_explicit(&kv->index_end, memory_order_relaxed),
			kv_bucket_addr(kv->buckets_max), &kv->index_ready);

	for (unsigned i = 0; i < kv->segments; i++) {
		struct slab *s = &kv->slabs[i];

		missing |= prepare(&kv->mem, s->base,
				   atomic_load_explicit(&s->end, memory_order_relaxed), s->reserve,
				   &s->ready);
	}
	return missing;
}

bool kv_on_growth(struct kv *kv, void (*grown)(void *ctx), void *ctx)
{
	if (kv->mem.near)
		return false;
	kv->mem.grown = grown;
	kv->mem.grown_ctx = ctx;
	return true;
}
