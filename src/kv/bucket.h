/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A bucket of the hash index, 64 bytes:
 *
 *	 0   ten slots of 5 bytes: a pointer (31 bits, in units of 32 bytes), and a secondary hash
 *	     (9 bits); 0: the slot is empty
 *	50   of each slot, 4 bits: the slab class of a record; the tag of an inline pair, in the
 *	     slot where it begins; the key length of a dense pair (below), in the slots after that;
 *	     0 in other slots
 *	55   two bitmaps of 10 bits: slots of inline pairs, and those in which one begins
 *	58   the place of the next bucket of the chain; 0: none
 *	62   a bitmap of slots that were used since the eviction clock passed
 *
 * An inline pair takes consecutive slots: key length (bit 7: the pair expires), value length, the
 * second at which the pair expires (4 bytes, only if it does), key, value.
 *
 * A pair is dense if it does not expire and the bytes of its key and value fill two slots or more
 * exactly. Its slots have the key and the value only. The key length is L + 15 H: L (1 to 15) is in
 * the 4 bits of the second slot, H in those of the third one (0 if there is none). The value takes
 * the rest of the slots.
 */
#ifndef ROOST_KV_BUCKET_H
#define ROOST_KV_BUCKET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#define BUCKET_SLOTS	  10u
#define BUCKET_SLOT	  5u
#define BUCKET_BYTES	  64u
#define BUCKET_INLINE_MAX (BUCKET_SLOTS * BUCKET_SLOT - 2) /* bytes of key and value */
#define BUCKET_EXPIRES	  0x80u
#define BUCKET_DENSE	  15u /* largest L */

struct bucket {
	uint8_t slots[BUCKET_SLOTS * BUCKET_SLOT];
	uint8_t classes[BUCKET_SLOTS / 2];
	uint8_t maps[3];
	uint32_t chain;
	uint16_t used;
} __attribute__((packed, aligned(2)));
_Static_assert(sizeof(struct bucket) == BUCKET_BYTES, "a bucket is a cache line");

/* The tag has 4 bits of the hash, and is 1 to 15: a slot without a tag matches none. */
struct inline_pair {
	const uint8_t *key, *value;
	uint32_t expires;
	uint8_t key_len, value_len, tag;
};

/* Returns the classes (40 bits) and the two bitmaps. One load for all of them. */
static inline uint64_t bucket_classes_and_maps(const struct bucket *b)
{
	uint64_t x;

	memcpy(&x, b->classes, sizeof(x));
	return x;
}
_Static_assert(offsetof(struct bucket, maps) - offsetof(struct bucket, classes) == 5 &&
		       sizeof(((struct bucket *)0)->maps) == 3,
	       "classes and maps are a word");

static inline uint32_t bucket_maps(const struct bucket *b)
{
	return (uint32_t)(bucket_classes_and_maps(b) >> 40);
}

static inline uint32_t bucket_inline(const struct bucket *b)
{
	return bucket_maps(b) & 0x3ff;
}

static inline uint32_t bucket_starts(const struct bucket *b)
{
	return bucket_maps(b) >> 10 & 0x3ff;
}

static inline uint64_t bucket_slot(const struct bucket *b, unsigned i)
{
	uint32_t low;

	memcpy(&low, b->slots + i * BUCKET_SLOT, 4);
	return low | (uint64_t)b->slots[i * BUCKET_SLOT + 4] << 32;
}

static inline uint32_t slot_place(uint64_t slot)
{
	return slot & 0x7fffffff;
}

static inline uint32_t slot_hash(uint64_t slot)
{
	return (uint32_t)(slot >> 31);
}

static inline unsigned bucket_class(const struct bucket *b, unsigned i)
{
	return b->classes[i / 2] >> (i & 1) * 4 & 0xf;
}

/* Returns the number of a slot, and removes it from a map with a bit for each `stride` bits. */
static inline unsigned bucket_next(uint64_t *map, unsigned stride)
{
	unsigned i = (unsigned)__builtin_ctzll(*map) / stride;

	*map &= *map - 1;
	return i;
}

/*
 * Returns the slots in which an inline pair with this tag may begin: bit 4i for slot i. The classes
 * and the two bitmaps are read as one word. A slot with a record may match, so the caller checks
 * that a pair begins there.
 */
#define BUCKET_NIBBLES 4u
static inline uint64_t bucket_tagged(const struct bucket *b, unsigned tag)
{
	const uint64_t ones = 0x1111111111;
	uint64_t x = bucket_classes_and_maps(b) ^ tag * ones;

	x |= x >> 1;
	x |= x >> 2;
	return ~x & ones;
}

/*
 * Returns the slots that may point to a record with this secondary hash: bit 5i for slot i. Empty
 * slots and those of inline pairs may match.
 */
#define BUCKET_BYTEWISE 5u
static inline uint64_t bucket_candidates(const struct bucket *b, uint32_t hash)
{
	uint8_t high = (uint8_t)(hash >> 1);
	uint64_t map = 0;

#if defined(__SSE2__)
	const uint8_t *at = b->slots;
	const __m128i same = _mm_set1_epi8((char)high);

	for (unsigned i = 0; i < 4; i++) {
		__m128i equal = _mm_cmpeq_epi8(
			_mm_loadu_si128((const __m128i *)(const void *)(at + 16 * i)), same);

		map |= (uint64_t)(uint32_t)_mm_movemask_epi8(equal) << 16 * i;
	}
	map >>= BUCKET_SLOT - 1;
#else
	for (unsigned i = 0; i < BUCKET_SLOTS; i++)
		map |= (uint64_t)(b->slots[i * BUCKET_SLOT + BUCKET_SLOT - 1] == high)
		       << i * BUCKET_SLOT;
#endif
	return map & 0x210842108421;
}

/* Returns a bitmap of the empty slots. */
static inline uint32_t bucket_empty(const struct bucket *b)
{
	uint32_t map = 0, low;

	for (unsigned i = 0; i < BUCKET_SLOTS; i++) {
		memcpy(&low, b->slots + i * BUCKET_SLOT, 4);
		map |= (uint32_t)(slot_place(low) == 0) << i;
	}
	return map & ~bucket_inline(b);
}

/*
 * Returns the number of bits of a bitmap of slots. The base instruction set may have no instruction
 * for it.
 */
static inline unsigned bucket_count(uint32_t map)
{
	map -= map >> 1 & 0x5555;
	map = (map & 0x3333) + (map >> 2 & 0x3333);
	map = (map + (map >> 4)) & 0x0f0f;
	return (map + (map >> 8)) & 0x1f;
}

/* Returns whether a pair is in slot i: a pointer to a record, or the start of an inline pair. */
static inline bool bucket_holds(const struct bucket *b, unsigned i)
{
	return bucket_starts(b) >> i & 1 || (!(bucket_inline(b) >> i & 1) && bucket_slot(b, i));
}

static inline bool bucket_is_dense(uint32_t bytes, bool expires)
{
	return !expires && bytes >= 2 * BUCKET_SLOT && bytes % BUCKET_SLOT == 0;
}

/* Returns the number of slots that an inline pair of `bytes` bytes of key and value takes. */
static inline unsigned bucket_slots_for(uint32_t bytes, bool expires)
{
	if (bucket_is_dense(bytes, expires))
		return bytes / BUCKET_SLOT;
	return (2 + (expires ? 4 : 0) + bytes + BUCKET_SLOT - 1) / BUCKET_SLOT;
}

/*
 * Returns the key length of the pair that begins in slot i if it is dense, and the length of key
 * and value together; otherwise 0.
 */
static inline unsigned bucket_dense_at(const struct bucket *b, unsigned i, unsigned *bytes)
{
	uint64_t word = bucket_classes_and_maps(b) >> 4 * i;
	unsigned low = word >> 4 & 0xf, high = word >> 8 & 0xf, slots;
	uint32_t more;

	if (!low)
		return 0;
	/* the slots behind slot i in which no pair begins */
	more = (bucket_inline(b) & ~bucket_starts(b)) >> i >> 1;
	if (!(more & 1))
		return 0;
	slots = 1 + (unsigned)__builtin_ctz(~more);
	*bytes = slots * BUCKET_SLOT;
	return slots == 2 ? low : low + BUCKET_DENSE * high;
}

static inline void bucket_inline_at(const struct bucket *b, unsigned i, struct inline_pair *p)
{
	const uint8_t *at = b->slots + i * BUCKET_SLOT;
	unsigned bytes, key_len = bucket_dense_at(b, i, &bytes);

	if (key_len) {
		*p = (struct inline_pair){.key = at,
					  .value = at + key_len,
					  .key_len = (uint8_t)key_len,
					  .value_len = (uint8_t)(bytes - key_len),
					  .tag = (uint8_t)bucket_class(b, i)};
		return;
	}
	p->key_len = at[0] & 0x7f;
	p->value_len = at[1];
	p->tag = (uint8_t)bucket_class(b, i);
	p->expires = 0;
	p->key = at + 2;
	if (at[0] & BUCKET_EXPIRES) {
		memcpy(&p->expires, at + 2, 4);
		p->key += 4;
	}
	p->value = p->key + p->key_len;
}

/* Returns the number of slots in use. */
unsigned bucket_load(const struct bucket *b);
/* Empties slot i, or all slots of the inline pair that begins there. */
void bucket_clear(struct bucket *b, unsigned i);
void bucket_set(struct bucket *b, unsigned i, uint32_t place, uint32_t hash, unsigned class);
/*
 * Add a pair. Return the slot, or -1 if there is no space. The key and value of `p` must be outside
 * of `b`.
 */
int bucket_add_inline(struct bucket *b, const struct inline_pair *p);
int bucket_add(struct bucket *b, uint32_t place, uint32_t hash, unsigned class);
/* Adds the pair in slot i of another bucket, if there is space. Returns whether it was added. */
bool bucket_copy(struct bucket *b, const struct bucket *from, unsigned i);

#endif
