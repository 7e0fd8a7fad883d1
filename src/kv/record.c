/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A record has a head of 4 bytes (key length, 8 bits; value length, 21 bits; a bit if it expires; a
 * bit if it has extents), the second at which it expires (4 bytes, only if it does), the key, and
 * the value. If these exceed a slab of 64 KiB, the value is in extents: slabs of 64 KiB, and a last
 * one of the class that fits. The record then has the places of the extents (4 bytes each) instead
 * of the value.
 */
#include <errno.h>

#include "kv/record.h"
#include "kv/store.h"

static uint32_t head_bytes(const struct kv_pair *p)
{
	return RECORD_HEAD + (p->expires ? 4 : 0) + p->key_len;
}

static bool in_extents(const struct kv_pair *p)
{
	return head_bytes(p) + p->value_len > SLAB_MAX;
}

static uint32_t extents_of(uint32_t value_len)
{
	return (value_len + SLAB_MAX - 1) / SLAB_MAX;
}

/* Returns the bytes of extent i. */
static uint32_t extent_bytes(uint32_t value_len, uint32_t i)
{
	uint32_t left = value_len - i * SLAB_MAX;

	return left < SLAB_MAX ? left : SLAB_MAX;
}

static unsigned class_for(const struct kv_pair *p)
{
	return slab_class_of(head_bytes(p) +
			     (in_extents(p) ? extents_of(p->value_len) * 4 : p->value_len));
}

bool kv_record_fits(const struct kv_pair *p, unsigned class)
{
	return !in_extents(p) && class_for(p) == class;
}

static uint8_t *write_head(uint8_t *at, const struct kv_pair *p, uint32_t flags)
{
	uint32_t head = p->key_len | p->value_len << RECORD_VALUE_SHIFT | flags |
			(p->expires ? RECORD_EXPIRES : 0);

	memcpy(at, &head, 4);
	at += 4;
	if (p->expires) {
		memcpy(at, &p->expires, 4);
		at += 4;
	}
	memcpy(at, p->key, p->key_len);
	return at + p->key_len;
}

void kv_record_write(struct kv *kv, struct slab *s, uint32_t place, const struct kv_pair *p)
{
	uint8_t *at = write_head(
		kv_write(&kv->mem, slab_addr(s, place), head_bytes(p) + p->value_len), p, 0);

	memcpy(at, p->value, p->value_len);
}

static void free_extents(struct slab *s, const uint8_t *places, uint32_t n, uint32_t value_len)
{
	for (uint32_t i = 0; i < n; i++) {
		uint32_t place;

		memcpy(&place, places + 4 * i, 4);
		slab_free(s, place, slab_class_of(extent_bytes(value_len, i)));
	}
}

static bool new_extents(struct slab *s, const struct kv_pair *p, uint8_t *places)
{
	uint32_t n = extents_of(p->value_len);

	for (uint32_t i = 0; i < n; i++) {
		uint32_t bytes = extent_bytes(p->value_len, i);
		uint32_t place = slab_alloc(s, slab_class_of(bytes));

		if (!place) {
			free_extents(s, places, i, p->value_len);
			return false;
		}
		memcpy(places + 4 * i, &place, 4);
	}
	return true;
}

/* Without a value, the caller writes the extents in pieces. */
static void write_extents(struct kv *kv, struct slab *s, const struct kv_pair *p,
			  const uint8_t *places)
{
	for (uint32_t i = 0; i < extents_of(p->value_len); i++) {
		uint32_t bytes = extent_bytes(p->value_len, i), place;

		memcpy(&place, places + 4 * i, 4);
		if (p->value)
			memcpy(kv_write(&kv->mem, slab_addr(s, place), bytes),
			       p->value + (uint64_t)i * SLAB_MAX, bytes);
		else
			kv->part.extent[i] = slab_addr(s, place);
	}
}

uint32_t kv_record_new(struct kv *kv, uint64_t hash, const struct kv_pair *p, unsigned *class)
{
	struct slab *s = kv_segment(kv, hash);
	uint32_t place;

	*class = class_for(p);
	place = slab_alloc(s, *class);
	if (!place)
		return 0;
	if (in_extents(p)) {
		uint8_t places[4 * (KV_VALUE_MAX / SLAB_MAX)];
		uint32_t list = 4 * extents_of(p->value_len);
		uint8_t *at;

		if (!new_extents(s, p, places)) {
			slab_free(s, place, *class);
			return 0;
		}
		write_extents(kv, s, p, places);
		at = kv_write(&kv->mem, slab_addr(s, place), head_bytes(p) + list);
		memcpy(write_head(at, p, RECORD_EXTENTS), places, list);
	} else {
		kv_record_write(kv, s, place, p);
	}
	return place;
}

static const uint8_t *parse(const uint8_t *at, struct kv_pair *p)
{
	uint32_t head;

	memcpy(&head, at, 4);
	at += 4;
	p->key_len = head & RECORD_KEY;
	p->value_len = head >> RECORD_VALUE_SHIFT & RECORD_VALUE;
	p->expires = 0;
	if (head & RECORD_EXPIRES) {
		memcpy(&p->expires, at, 4);
		at += 4;
	}
	p->key = at;
	at += p->key_len;
	p->value = head & RECORD_EXTENTS ? NULL : at;
	return at;
}

/*
 * Parses a record whose head was accessed. The head is in one line with the second of expiry, and
 * has the length of the rest.
 */
static const uint8_t *parse_more(struct kv *kv, uint64_t addr, struct kv_pair *p)
{
	const uint8_t *at = parse(kv_more(&kv->mem, addr, RECORD_HEAD), p);

	kv_more(&kv->mem, addr,
		head_bytes(p) + (p->value ? p->value_len : 4 * extents_of(p->value_len)));
	return at;
}

void kv_record_read(struct kv *kv, struct slab *s, uint32_t place, struct kv_pair *p)
{
	kv->mem.reads++;
	parse_more(kv, slab_addr(s, place), p);
}

void kv_want_records(struct kv *kv, const struct slab *s, const struct bucket *b)
{
	if (likely(kv->mem.near == NULL))
		return;
	for (unsigned i = 0; i < BUCKET_SLOTS; i++)
		if (bucket_holds(b, i) && !(bucket_starts(b) >> i & 1))
			kv_near_want(kv->mem.near, slab_addr(s, slot_place(bucket_slot(b, i))),
				     slab_size(bucket_class(b, i)));
}

/* Gets the extents from the far tier at the same time. */
static void want_extents(struct kv *kv, struct slab *s, const uint8_t *places, uint32_t value_len)
{
	for (uint32_t i = 0; i < extents_of(value_len); i++) {
		uint32_t extent;

		memcpy(&extent, places + 4 * i, 4);
		kv_near_want(kv->mem.near, slab_addr(s, extent), extent_bytes(value_len, i));
	}
}

const uint8_t *kv_record_value(struct kv *kv, struct slab *s, uint32_t place, struct kv_pair *p)
{
	const uint8_t *places;
	uint32_t n;

	if (p->value)
		return p->value;
	places = parse_more(kv, slab_addr(s, place), p);
	n = extents_of(p->value_len);
	if (unlikely(kv->mem.near != NULL))
		want_extents(kv, s, places, p->value_len);
	for (uint32_t i = 0; i < n; i++) {
		uint32_t extent;

		memcpy(&extent, places + 4 * i, 4);
		memcpy(kv->gather + (uint64_t)i * SLAB_MAX,
		       kv_read(&kv->mem, slab_addr(s, extent), extent_bytes(p->value_len, i)),
		       extent_bytes(p->value_len, i));
	}
	return kv->gather;
}

void kv_record_extents(struct kv *kv, struct slab *s, uint32_t place, uint64_t *addrs)
{
	struct kv_pair p;
	const uint8_t *at = parse_more(kv, slab_addr(s, place), &p);

	if (p.value) {
		addrs[0] = (uint64_t)(at - kv->mem.base);
		return;
	}
	for (uint32_t i = 0; i < extents_of(p.value_len); i++) {
		uint32_t extent;

		memcpy(&extent, at + 4 * i, 4);
		addrs[i] = slab_addr(s, extent);
	}
}

uint8_t *kv_record_change(struct kv *kv, struct slab *s, uint32_t place, const struct kv_pair *p,
			  uint32_t offset, uint32_t *bytes)
{
	uint64_t addr = slab_addr(s, place);
	struct kv_pair same;
	const uint8_t *at = parse_more(kv, addr, &same);
	uint32_t extent;

	if (same.value) {
		*bytes = p->value_len - offset;
		addr += (uint64_t)(at - (kv->mem.base + addr)) + offset;
		return kv_change(&kv->mem, addr, *bytes);
	}
	memcpy(&extent, at + 4 * (offset / SLAB_MAX), 4);
	*bytes = extent_bytes(p->value_len, offset / SLAB_MAX) - offset % SLAB_MAX;
	return kv_change(&kv->mem, slab_addr(s, extent) + offset % SLAB_MAX, *bytes);
}

void kv_record_free(struct kv *kv, struct slab *s, uint32_t place, unsigned class)
{
	struct kv_pair p;
	const uint8_t *places = parse(kv_more(&kv->mem, slab_addr(s, place), RECORD_HEAD), &p);

	if (!p.value) {
		parse_more(kv, slab_addr(s, place), &p);
		free_extents(s, places, extents_of(p.value_len), p.value_len);
	}
	slab_free(s, place, class);
}
