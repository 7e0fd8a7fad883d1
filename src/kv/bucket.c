/* SPDX-License-Identifier: BSD-2-Clause */
#include "kv/bucket.h"

static void set_maps(struct bucket *b, uint32_t in, uint32_t starts)
{
	uint32_t maps = in | starts << 10;

	b->maps[0] = (uint8_t)maps;
	b->maps[1] = (uint8_t)(maps >> 8);
	b->maps[2] = (uint8_t)(maps >> 16);
}

unsigned bucket_load(const struct bucket *b)
{
	return BUCKET_SLOTS - bucket_count(bucket_empty(b));
}

static void set_class(struct bucket *b, unsigned i, unsigned class)
{
	b->classes[i / 2] &= (uint8_t) ~(0xfu << (i & 1) * 4);
	b->classes[i / 2] |= (uint8_t)(class << (i & 1) * 4);
}

void bucket_clear(struct bucket *b, unsigned i)
{
	uint32_t in = bucket_inline(b), starts = bucket_starts(b), mask = 1u << i;

	if (in & mask) {
		struct inline_pair p;

		bucket_inline_at(b, i, &p);
		mask = ((1u << bucket_slots_for(p.key_len + p.value_len, p.expires)) - 1) << i;
		set_maps(b, in & ~mask, starts & ~mask);
	}
	b->used &= (uint16_t)~mask;
	for (; mask >> i & 1; i++) {
		memset(b->slots + i * BUCKET_SLOT, 0, BUCKET_SLOT);
		set_class(b, i, 0);
	}
}

void bucket_set(struct bucket *b, unsigned i, uint32_t place, uint32_t hash, unsigned class)
{
	uint64_t slot = place | (uint64_t)hash << 31;
	uint32_t low = (uint32_t)slot;

	memcpy(b->slots + i * BUCKET_SLOT, &low, 4);
	b->slots[i * BUCKET_SLOT + 4] = (uint8_t)(slot >> 32);
	set_class(b, i, class);
}

int bucket_add(struct bucket *b, uint32_t place, uint32_t hash, unsigned class)
{
	uint32_t empty = bucket_empty(b);
	int i = __builtin_ffs((int)empty) - 1;

	if (i >= 0)
		bucket_set(b, (unsigned)i, place, hash, class);
	return i;
}

static int run_of(uint32_t empty, unsigned n)
{
	for (unsigned i = 1; i < n; i++)
		empty &= empty >> 1;
	return __builtin_ffs((int)empty) - 1;
}

static void write_inline(struct bucket *b, unsigned i, const struct inline_pair *p, unsigned n)
{
	uint8_t *at = b->slots + i * BUCKET_SLOT;
	uint32_t mask = ((1u << n) - 1) << i;

	set_maps(b, bucket_inline(b) | mask, bucket_starts(b) | 1u << i);
	set_class(b, i, p->tag);
	if (bucket_is_dense(p->key_len + p->value_len, p->expires)) {
		set_class(b, i + 1, (p->key_len - 1u) % BUCKET_DENSE + 1);
		if (n > 2)
			set_class(b, i + 2, (p->key_len - 1u) / BUCKET_DENSE);
	} else {
		*at++ = (uint8_t)(p->key_len | (p->expires ? BUCKET_EXPIRES : 0));
		*at++ = p->value_len;
		if (p->expires) {
			memcpy(at, &p->expires, 4);
			at += 4;
		}
	}
	memcpy(at, p->key, p->key_len);
	memcpy(at + p->key_len, p->value, p->value_len);
}

/* Moves the used slots together, so that the empty slots are the last. */
static void pack(struct bucket *b)
{
	struct bucket old = *b;
	uint32_t in = bucket_inline(&old), starts = bucket_starts(&old);
	unsigned to = 0;

	memset(b->slots, 0, sizeof(b->slots));
	memset(b->classes, 0, sizeof(b->classes));
	b->used = 0;
	set_maps(b, 0, 0);
	for (unsigned i = 0; i < BUCKET_SLOTS; i++) {
		uint16_t used = (uint16_t)((old.used >> i & 1) << to);

		if (starts >> i & 1) {
			struct inline_pair p;
			unsigned n;

			bucket_inline_at(&old, i, &p);
			n = bucket_slots_for(p.key_len + p.value_len, p.expires);
			write_inline(b, to, &p, n);
			to += n;
		} else if (!(in >> i & 1) && bucket_slot(&old, i)) {
			uint64_t slot = bucket_slot(&old, i);

			bucket_set(b, to, slot_place(slot), slot_hash(slot), bucket_class(&old, i));
			to++;
		} else {
			continue;
		}
		b->used |= used;
	}
}

int bucket_add_inline(struct bucket *b, const struct inline_pair *p)
{
	unsigned n = bucket_slots_for(p->key_len + p->value_len, p->expires);
	uint32_t empty = bucket_empty(b);
	int i;

	if (bucket_count(empty) < n)
		return -1;
	i = run_of(empty, n);
	if (i < 0) {
		pack(b);
		i = run_of(bucket_empty(b), n);
	}
	write_inline(b, (unsigned)i, p, n);
	return i;
}

bool bucket_copy(struct bucket *b, const struct bucket *from, unsigned i)
{
	uint64_t slot = bucket_slot(from, i);
	struct inline_pair p;
	int to;

	if (bucket_starts(from) >> i & 1) {
		bucket_inline_at(from, i, &p);
		to = bucket_add_inline(b, &p);
	} else {
		to = bucket_add(b, slot_place(slot), slot_hash(slot), bucket_class(from, i));
	}
	if (to < 0)
		return false;
	b->used |= (uint16_t)((from->used >> i & 1) << to);
	return true;
}
