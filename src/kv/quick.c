/* SPDX-License-Identifier: BSD-2-Clause */
#include "kv/quick.h"

#include "kv/match.h"
#include "kv/record.h"

/* A pair without expiry and extents. It is passed by value, so that a GET keeps it in registers. */
struct found {
	uint8_t *value;
	uint32_t value_len;
	unsigned class;	 /* slab class of a record */
	unsigned record; /* 1: a record; 0: an inline pair */
	unsigned reads;	 /* accesses of the search */
};

#define QUICK_INLINE static inline __attribute__((always_inline))

QUICK_INLINE bool find_inline(struct bucket *b, uint64_t hash, const struct kv_op *op,
			      struct found *found)
{
	uint32_t starts = bucket_starts(b);
	uint64_t map;

	if (!starts) /* a store of records */
		return false;
	map = bucket_tagged(b, kv_tag(hash));
	while (map) {
		unsigned i = bucket_next(&map, BUCKET_NIBBLES);
		uint8_t *at = b->slots + i * BUCKET_SLOT;
		unsigned bytes, dense;

		if (!(starts >> i & 1))
			continue;
		dense = bucket_dense_at(b, i, &bytes);
		if (dense) {
			if (dense != op->key_len || !match_equal(at, op->key, op->key_len))
				continue;
			found->value = at + op->key_len;
			found->value_len = bytes - op->key_len;
		} else {
			/* the first byte of a pair that expires may equal the length of a key */
			if (at[0] & BUCKET_EXPIRES || at[0] != op->key_len ||
			    !match_equal(at + 2, op->key, op->key_len))
				continue;
			found->value = at + 2 + op->key_len;
			found->value_len = at[1];
		}
		found->record = 0;
		return true;
	}
	return false;
}

enum match { OTHER_KEY, UNCOMMON, COMMON };

/* Compares the key with that of the record at `addr`, to which slot i points. */
QUICK_INLINE enum match match_key(struct kv *kv, const struct bucket *b, unsigned i, uint64_t addr,
				  const struct kv_op *op, struct found *found)
{
	uint8_t *at = kv->mem.base + addr;
	uint32_t head = match_u32(at);

	found->reads++;
	if ((head & RECORD_KEY) != op->key_len ||
	    !match_equal(at + RECORD_HEAD, op->key, op->key_len))
		return OTHER_KEY;
	/* The eviction clock needs the mark of the pair as used. */
	if (head & (RECORD_EXPIRES | RECORD_EXTENTS) || (kv->config.evict && !(b->used >> i & 1)))
		return UNCOMMON;
	found->value = at + RECORD_HEAD + op->key_len;
	found->value_len = head >> RECORD_VALUE_SHIFT;
	found->class = bucket_class(b, i);
	found->record = 1;
	return COMMON;
}

static inline uint64_t record_at(struct kv *kv, const struct bucket *b, unsigned i, uint64_t hash)
{
	return slab_addr(kv_segment(kv, hash), slot_place(bucket_slot(b, i)));
}

static bool find_record(struct kv *kv, struct bucket *b, uint64_t hash, const struct kv_op *op,
			struct found *found)
{
	uint64_t map = bucket_candidates(b, kv_second_hash(hash));

	while (map) {
		unsigned i = bucket_next(&map, BUCKET_BYTEWISE);
		enum match m;

		if (!match_record(b, i, hash))
			continue;
		m = match_key(kv, b, i, record_at(kv, b, i, hash), op, found);
		if (m != OTHER_KEY)
			return m == COMMON;
	}
	return false;
}

static inline void count(struct kv *kv, struct found found, unsigned writes)
{
	kv->mem.reads += found.reads;
	kv->mem.writes += writes;
}

static bool get(struct kv *kv, struct kv_op *op, struct found found)
{
	count(kv, found, 0);
	op->status = kv_claim_result(op, found.value_len);
	if (likely(!op->status))
		match_copy(op->out, found.value, found.value_len);
	return true;
}

/* A call would store `found` to memory, and the value would be copied after it was loaded again. */
QUICK_INLINE bool put(struct kv *kv, struct kv_op *op, struct found found)
{
	if (op->expires)
		return false;
	if (op->value_len != found.value_len) {
		uint32_t bytes = RECORD_HEAD + op->key_len + op->value_len, head;

		/* A record keeps its place if the new length fits. */
		if (!found.record || bytes > SLAB_MAX || slab_class_of(bytes) != found.class ||
		    op->key_len + op->value_len <= kv->config.inline_max)
			return false;
		head = op->key_len | op->value_len << RECORD_VALUE_SHIFT;
		memcpy(found.value - op->key_len - RECORD_HEAD, &head, sizeof(head));
	}
	match_copy(found.value, op->value, op->value_len);
	count(kv, found, 1);
	return true;
}

/* Returns whether the operation fits to a value of `len` bytes, as in vector.c. */
static inline bool fits(const struct kv_op *op, uint32_t len, unsigned width)
{
	if (likely(op->code == KV_UPDATE))
		return len == width;
	return op->code == KV_UPDATE_VECTOR ? len == op->value_len : !(len & (width - 1));
}

static bool update(struct kv *kv, struct kv_op *op, struct found found)
{
	unsigned width = element_width(op->type);
	uint32_t len = found.value_len;
	const struct element_fn *f;

	if (op->fn >= KV_FNS_ELEMENT || !fits(op, len, width))
		return false;
	if (op->fetch) {
		op->status = kv_claim_result(op, len);
		if (unlikely(op->status)) {
			count(kv, found, 0);
			return true;
		}
		match_copy(op->out, found.value, len);
	}
	count(kv, found, 1);
	f = &kv->elements->fn[op->fn][op->type];
	if (op->code == KV_UPDATE_VECTOR)
		f->vector(found.value, op->value, len >> log2_floor(width));
	else
		f->each(found.value, op->value, len >> log2_floor(width));
	return true;
}

QUICK_INLINE bool execute(struct kv *kv, struct kv_op *op, struct found found)
{
	if (likely(op->code == KV_GET))
		return get(kv, op, found);
	switch (op->code) {
	case KV_PUT:
	case KV_PUT_PRESENT:
		return put(kv, op, found);
	case KV_UPDATE:
	case KV_UPDATE_EACH:
	case KV_UPDATE_VECTOR:
		return update(kv, op, found);
	default:
		return false;
	}
}

bool kv_quick(struct kv *kv, struct kv_op *op)
{
	uint64_t hash = op->hash;
	struct bucket *b = kv_bucket(kv, kv_bucket_addr(kv_home(kv, hash)));
	struct found found = {.reads = 1};

	while (!find_inline(b, hash, op, &found) && !find_record(kv, b, hash, op, &found)) {
		if (!b->chain)
			return false;
		b = kv_bucket(kv, slab_addr(kv_segment(kv, hash), b->chain));
		found.reads++;
	}
	return execute(kv, op, found);
}

/*
 * The slot proves that the record exists, and the key that it is the pair of the operation: a key
 * has one pair.
 */
bool kv_quick_slot(struct kv *kv, struct kv_op *op, const struct bucket *b, unsigned slot)
{
	struct found found = {.reads = 1};
	enum match m = OTHER_KEY;

	if (likely(slot < BUCKET_SLOTS && match_record(b, slot, op->hash)))
		m = match_key(kv, b, slot, record_at(kv, b, slot, op->hash), op, &found);
	if (unlikely(m == OTHER_KEY))
		return kv_quick(kv, op);
	return m == COMMON && execute(kv, op, found);
}

/* ---- groups ---- */

bool kv_quick_record(struct kv *kv, struct kv_op *op, const struct kv_hint *h)
{
	struct found found = {.reads = 1};

	return match_key(kv, h->bucket, h->slot, h->addr, op, &found) == COMMON &&
	       execute(kv, op, found);
}

/* Returns whether an inline pair with the tag of the hash begins in the bucket. */
static inline bool may_be_inline(const struct bucket *b, uint64_t hash)
{
	uint32_t starts = bucket_starts(b);
	uint64_t map;

	if (!starts)
		return false;
	for (map = bucket_tagged(b, kv_tag(hash)); map;)
		if (starts >> bucket_next(&map, BUCKET_NIBBLES) & 1)
			return true;
	return false;
}

/*
 * Notes the records to which the operation's bucket points, and the next bucket. Returns the
 * record, if there is only one.
 */
static struct kv_hint note(struct kv *kv, const struct bucket *b, uint64_t hash,
			   struct kv_later *later)
{
	uint64_t map = bucket_candidates(b, kv_second_hash(hash));
	struct kv_hint hint = {.bucket = b};
	unsigned num = 0;

	while (map) {
		unsigned k = bucket_next(&map, BUCKET_BYTEWISE), class;
		uint64_t addr;

		if (!match_record(b, k, hash))
			continue;
		class = bucket_class(b, k);
		addr = record_at(kv, b, k, hash);
		hint.addr = num++ ? 0 : addr;
		hint.slot = k;
		later->addrs[later->num_addrs++] = addr;
		if (class > KV_CHAIN_CLASS) /* the value is in the second line */
			later->addrs[later->num_addrs++] = addr + BUCKET_BYTES;
		if (slab_size(class) > 2 * BUCKET_BYTES)
			later->long_records[later->num_long++] = addr;
	}
	if (b->chain)
		later->addrs[later->num_addrs++] = slab_addr(kv_segment(kv, hash), b->chain);
	return hint;
}

static inline uint64_t key_bit(uint64_t hash)
{
	return 1ull << (hash & 63);
}

void kv_quick_group(struct kv *kv, struct kv_op *ops, unsigned n, struct kv_later *later)
{
	uint64_t waiting = 0; /* the bits of the keys of operations in `later` */

	later->n = later->num_addrs = later->num_long = 0;
	for (struct kv_op *op = ops; op != ops + n; op++) {
		uint64_t hash = op->hash, bit = key_bit(hash);
		struct found found = {.reads = 1};
		struct bucket *b;

		if (unlikely(op->status))
			continue;
		b = kv_bucket(kv, kv_bucket_addr(kv_home(kv, hash)));
		if (likely(!(waiting & (op->arena ? UINT64_MAX : bit))) &&
		    find_inline(b, hash, op, &found) && execute(kv, op, found))
			continue;
		waiting |= bit;
		later->hints[later->n].addr = 0;
		if (!may_be_inline(b, hash))
			later->hints[later->n] = note(kv, b, hash, later);
		later->ops[later->n++] = op;
	}
}
