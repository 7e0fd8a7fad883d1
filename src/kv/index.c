/* SPDX-License-Identifier: BSD-2-Clause */
/* The hash index: finds, stores and removes pairs in the chain of their bucket. */
#include <errno.h>

#include "kv/match.h"
#include "kv/store.h"

unsigned kv_slots_of(const struct kv *kv, const struct kv_pair *p)
{
	if (p->key_len + p->value_len > kv->config.inline_max)
		return 0;
	return bucket_slots_for(p->key_len + p->value_len, p->expires);
}

static bool match_inline(struct kv_loc *loc, uint64_t hash, const void *key, uint32_t len)
{
	uint64_t map = bucket_tagged(loc->at, kv_tag(hash));

	while (map) {
		unsigned i = bucket_next(&map, BUCKET_NIBBLES);
		struct inline_pair p;

		if (!(bucket_starts(loc->at) >> i & 1))
			continue;
		bucket_inline_at(loc->at, i, &p);
		if (p.key_len != len || !match_equal(p.key, key, len))
			continue;
		loc->pair = (struct kv_pair){p.key, p.value, p.key_len, p.value_len, p.expires};
		loc->slot = i;
		loc->is_inline = true;
		return true;
	}
	return false;
}

static bool match_records(struct kv *kv, uint64_t hash, struct kv_loc *loc, const void *key,
			  uint32_t len)
{
	uint64_t map = bucket_candidates(loc->at, kv_second_hash(hash));

	while (map) {
		unsigned i = bucket_next(&map, BUCKET_BYTEWISE);

		if (!match_record(loc->at, i, hash))
			continue;
		kv_record_read(kv, kv_segment(kv, hash), slot_place(bucket_slot(loc->at, i)),
			       &loc->pair);
		if (loc->pair.key_len == len && match_equal(loc->pair.key, key, len)) {
			loc->slot = i;
			loc->is_inline = false;
			return true;
		}
	}
	return false;
}

static void load_bucket(struct kv *kv, uint64_t addr, struct kv_loc *loc)
{
	loc->addr = addr;
	loc->at = kv_read(&kv->mem, addr, BUCKET_BYTES);
}

/* Finds the first bucket of a chain that has space. The chain must have been read. */
static void find_space(struct kv *kv, uint64_t home, unsigned need, struct kv_loc *loc)
{
	uint64_t addr = kv_bucket_addr(home);

	for (;;) {
		const struct bucket *b = kv_more(&kv->mem, addr, BUCKET_BYTES);

		if (bucket_count(bucket_empty(b)) >= need) {
			loc->has_space = true;
			loc->space = addr;
			return;
		}
		if (!b->chain)
			return;
		addr = slab_addr(kv_segment(kv, home), b->chain);
	}
}

bool kv_find(struct kv *kv, uint64_t hash, const void *key, uint32_t len, unsigned need,
	     struct kv_loc *loc)
{
	uint64_t home = kv_home(kv, hash);

	loc->chained = false;
	loc->has_space = false;
	load_bucket(kv, kv_bucket_addr(home), loc);
	for (;;) {
		if (match_inline(loc, hash, key, len) || match_records(kv, hash, loc, key, len))
			return true;
		if (!loc->at->chain)
			break;
		loc->prev = loc->addr;
		loc->chained = true;
		load_bucket(kv, slab_addr(kv_segment(kv, home), loc->at->chain), loc);
	}
	if (need)
		find_space(kv, home, need, loc);
	return false;
}

static void write_bucket(struct kv *kv, uint64_t addr, const struct bucket *b)
{
	*(struct bucket *)kv_write(&kv->mem, addr, BUCKET_BYTES) = *b;
}

/* An entry of a bucket: an inline pair, or a pointer to a record. */
struct entry {
	unsigned slots; /* slots of an inline pair; 0: a pointer */
	struct inline_pair pair;
	uint32_t place, hash;
	unsigned class;
};

static int add(struct bucket *b, const struct entry *e)
{
	return e->slots ? bucket_add_inline(b, &e->pair)
			: bucket_add(b, e->place, e->hash, e->class);
}

/* Appends a new bucket to the chain whose last bucket is at `last`. */
static int append(struct kv *kv, uint64_t home, uint64_t last, const struct entry *e)
{
	struct slab *s = kv_segment(kv, home);
	uint32_t place = slab_alloc(s, KV_CHAIN_CLASS);
	struct bucket fresh = {0}, old;

	if (!place)
		return -ENOSPC;
	add(&fresh, e);
	write_bucket(kv, slab_addr(s, place), &fresh);
	old = *(const struct bucket *)kv_more(&kv->mem, last, BUCKET_BYTES);
	old.chain = place;
	write_bucket(kv, last, &old);
	kv->chained++;
	return 0;
}

/* Inserts into a bucket of the chain other than `except`, which has no space. */
static int insert_elsewhere(struct kv *kv, uint64_t home, uint64_t except, const struct entry *e)
{
	uint64_t addr = kv_bucket_addr(home);

	for (;;) {
		struct bucket b = *(const struct bucket *)kv_read(&kv->mem, addr, BUCKET_BYTES);

		if (addr != except && add(&b, e) >= 0) {
			write_bucket(kv, addr, &b);
			return 0;
		}
		if (!b.chain)
			return append(kv, home, addr, e);
		addr = slab_addr(kv_segment(kv, home), b.chain);
	}
}

/* Empties the pair's slots in the copy, and updates the counts. */
static void clear(struct kv *kv, struct bucket *b, unsigned slot, bool is_inline)
{
	unsigned before = bucket_load(b);

	bucket_clear(b, slot);
	kv->slots -= before - bucket_load(b);
	kv->pairs--;
	kv->inline_pairs -= is_inline;
}

static void count_in(struct kv *kv, const struct entry *e)
{
	kv->slots += e->slots ? e->slots : 1;
	kv->pairs++;
	kv->inline_pairs += e->slots != 0;
}

static int insert(struct kv *kv, uint64_t hash, struct kv_loc *loc, const struct entry *e)
{
	int err = 0;

	if (loc->has_space) {
		struct bucket space =
			*(const struct bucket *)kv_more(&kv->mem, loc->space, BUCKET_BYTES);

		add(&space, e);
		write_bucket(kv, loc->space, &space);
	} else {
		err = append(kv, kv_home(kv, hash), loc->addr, e);
	}
	if (!err)
		count_in(kv, e);
	return err;
}

static int replace(struct kv *kv, uint64_t hash, struct kv_loc *loc, const struct entry *e)
{
	struct bucket without = *loc->at;
	uint64_t old = bucket_slot(loc->at, loc->slot);
	unsigned class = bucket_class(loc->at, loc->slot);
	int err = 0;

	bucket_clear(&without, loc->slot);
	if (add(&without, e) >= 0) {
		struct bucket gone = *loc->at;

		clear(kv, &gone, loc->slot, loc->is_inline);
	} else {
		err = insert_elsewhere(kv, kv_home(kv, hash), loc->addr, e);
		if (err)
			return err;
		/* The bucket may have a new successor in the chain. */
		without = *loc->at;
		clear(kv, &without, loc->slot, loc->is_inline);
	}
	write_bucket(kv, loc->addr, &without);
	if (!loc->is_inline)
		kv_record_free(kv, kv_segment(kv, hash), slot_place(old), class);
	count_in(kv, e);
	return 0;
}

/* Writes only the value. Returns false if another part of the pair changes. */
static bool overwrite_inline(struct kv *kv, uint64_t hash, struct kv_loc *loc,
			     const struct kv_pair *p)
{
	uint32_t n;

	if (!loc->is_inline || loc->pair.value_len != p->value_len ||
	    loc->pair.expires != p->expires)
		return false;
	memcpy(kv_value_change(kv, hash, loc, 0, &n), p->value, p->value_len);
	return true;
}

int kv_store(struct kv *kv, uint64_t hash, struct kv_loc *loc, bool found, const struct kv_pair *p)
{
	struct entry e = {.slots = kv_slots_of(kv, p), .hash = kv_second_hash(hash)};
	struct slab *s = kv_segment(kv, hash);
	int err;

	kv_note_expiry(kv, p->expires);
	if (e.slots) {
		if (found && overwrite_inline(kv, hash, loc, p))
			return 0;
		e.pair = (struct inline_pair){p->key,
					      p->value,
					      p->expires,
					      (uint8_t)p->key_len,
					      (uint8_t)p->value_len,
					      (uint8_t)kv_tag(hash)};
	} else {
		/* Overwrite the old record if it has the shape of the new one. */
		if (found && !loc->is_inline && loc->pair.value &&
		    kv_record_fits(p, bucket_class(loc->at, loc->slot))) {
			kv_record_write(kv, s, slot_place(bucket_slot(loc->at, loc->slot)), p);
			return 0;
		}
		e.place = kv_record_new(kv, hash, p, &e.class);
		if (!e.place)
			return -ENOSPC;
	}
	err = found ? replace(kv, hash, loc, &e) : insert(kv, hash, loc, &e);
	if (err && !e.slots)
		kv_record_free(kv, s, e.place, e.class);
	return err;
}

void kv_remove(struct kv *kv, uint64_t hash, struct kv_loc *loc)
{
	uint64_t old = bucket_slot(loc->at, loc->slot);
	unsigned class = bucket_class(loc->at, loc->slot);
	struct bucket left = *loc->at;

	clear(kv, &left, loc->slot, loc->is_inline);
	if (loc->chained && bucket_load(&left) == 0) {
		struct slab *s = kv_segment(kv, kv_home(kv, hash));
		struct bucket prev =
			*(const struct bucket *)kv_read(&kv->mem, loc->prev, BUCKET_BYTES);

		slab_free(s, prev.chain, KV_CHAIN_CLASS);
		prev.chain = left.chain;
		write_bucket(kv, loc->prev, &prev);
		kv->chained--;
	} else {
		write_bucket(kv, loc->addr, &left);
	}
	if (!loc->is_inline)
		kv_record_free(kv, kv_segment(kv, hash), slot_place(old), class);
}

const uint8_t *kv_value(struct kv *kv, uint64_t hash, struct kv_loc *loc)
{
	if (loc->is_inline)
		return loc->pair.value;
	return kv_record_value(kv, kv_segment(kv, hash),
			       slot_place(bucket_slot(loc->at, loc->slot)), &loc->pair);
}

uint8_t *kv_value_change(struct kv *kv, uint64_t hash, struct kv_loc *loc, uint32_t offset,
			 uint32_t *bytes)
{
	if (!loc->is_inline)
		return kv_record_change(kv, kv_segment(kv, hash),
					slot_place(bucket_slot(loc->at, loc->slot)), &loc->pair,
					offset, bytes);
	*bytes = loc->pair.value_len - offset;
	return (uint8_t *)kv_change(&kv->mem, loc->addr, BUCKET_BYTES) +
	       (loc->pair.value - (const uint8_t *)loc->at) + offset;
}
