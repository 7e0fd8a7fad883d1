/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Hints for operations that are executed one by one, as those of many small batches are: first the
 * buckets of all hints are prefetched, then the lines of their records are loaded. Both are short
 * loops, as in run.c: a prefetch does not retire before its page walk ends, and the window of the
 * CPU has space for many walks only if little else is between them. A hint does not change the
 * store.
 */
#include "kv/hash.h"
#include "kv/match.h"
#include "kv/quick.h"

#define LINES 64u /* lines of records that are loaded together */

static void load_lines(const struct kv *kv, const uint64_t *addrs, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		uint8_t byte = kv->mem.base[addrs[i]];

		__asm__ volatile("" : : "r"(byte));
	}
}

/*
 * Adds the addresses of the records to which the slots of a bucket point. Adds the slot of one of
 * them to *hint, the address of the bucket. Returns the number of addresses. Within the loop of its
 * caller it would need more registers than there are.
 */
static __attribute__((noinline)) unsigned add_records(struct kv *kv, uint64_t hash, uint64_t *addrs,
						      uint64_t *hint)
{
	const struct bucket *b = kv_bucket(kv, *hint);
	uint64_t map = bucket_candidates(b, kv_second_hash(hash));
	struct slab *s = kv_segment(kv, hash);
	unsigned n = 0, slot = BUCKET_SLOTS;

	while (map) {
		unsigned i = bucket_next(&map, BUCKET_BYTEWISE);
		uint64_t addr;

		if (!match_record(b, i, hash))
			continue;
		slot = i;
		addr = slab_addr(s, slot_place(bucket_slot(b, i)));
		addrs[n++] = addr;
		/* The value is in the second line. */
		if (bucket_class(b, i) > KV_CHAIN_CLASS)
			addrs[n++] = addr + BUCKET_BYTES;
	}
	*hint |= slot;
	return n;
}

void kv_ahead_fetch(struct kv *kv, struct kv_ahead *a)
{
	uint64_t addrs[LINES + 2 * BUCKET_SLOTS], *hints = a->hints + a->first;
	unsigned n = 0, keys = a->n;

	for (unsigned i = 0; i < keys; i++) {
		hints[i] = kv_bucket_addr(kv_home(kv, a->hash[i]));
		kv_prefetch(&kv->mem, hints[i]);
	}
	for (unsigned i = 0; i < keys; i++) {
		n += add_records(kv, a->hash[i], addrs + n, &hints[i]);
		if (unlikely(n >= LINES)) {
			load_lines(kv, addrs, n);
			n = 0;
		}
	}
	load_lines(kv, addrs, n);
	a->n = 0;
	a->first += keys;
	if (a->first >= KV_HINTS)
		a->first = 0;
}

/* A line of the far tier cannot be read here. */
static inline void add(struct kv *kv, struct kv_ahead *a, uint64_t hash, bool alone)
{
	if (unlikely(kv->mem.near != NULL))
		return;
	if (alone)
		kv_prefetch(&kv->mem, kv_bucket_addr(kv_home(kv, hash)));
	a->hash[a->n++] = hash;
	if (unlikely(a->n == KV_AHEAD))
		kv_ahead_fetch(kv, a);
}

void kv_ahead_key(struct kv *kv, struct kv_ahead *a, const void *key, uint32_t len)
{
	if (len && len <= KV_KEY_MAX)
		add(kv, a, hash_of(kv, key, len), false);
}

void kv_ahead_op(struct kv *kv, struct kv_ahead *a, struct kv_op *op, bool alone)
{
	kv_begin(kv, op);
	if (unlikely(op->status))
		return;
	op->entry = a->first + a->n;
	add(kv, a, op->hash, alone);
}

bool kv_run_ahead(struct kv *kv, const struct kv_ahead *a, struct kv_op *op)
{
	uint64_t hint = a->hints[op->entry];

	if (unlikely(op->status || kv->mem.near))
		return false;
	return kv_quick_slot(kv, op, kv_bucket(kv, hint & ~(BUCKET_BYTES - 1ull)),
			     hint % BUCKET_BYTES);
}
