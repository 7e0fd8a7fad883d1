/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A cache whose gets are chains: items in memory that outlives their writer, and a cuckoo table of
 * RedN's buckets beside them. A client SENDs a key of 48 bits and the offsets of two buckets; the
 * NIC answers with the item by WRITEs. The writer, for example memcached, takes no part in a get,
 * and may be killed and started again meanwhile. docs/guide-memcached.md describes it,
 * roost/chain_cache_get.h has the client. The functions are in Roost's libibverbs.so.1.
 *
 * There are two regions of memory, which clients have no keys for. Both are registered with 0 as
 * the address of their first byte, so addresses in them are offsets:
 *
 *	index	struct roost_cache_control, and the buckets of two generations
 *	items	the items of two generations
 *
 * A writer has one generation and fills it, while that of the previous writer is active. Then
 * roost_cache_serve() makes its own generation the active one, by one store of 8 bytes.
 */
#ifndef ROOST_CHAIN_CACHE_H
#define ROOST_CHAIN_CACHE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "roost/chain.h"
#include "roost/chain_lookup.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- shared by writer, chain and client ---- */

/* The description of a cache that its clients need. */
struct roost_cache_shape {
	uint64_t seed;
	uint32_t log_buckets; /* a generation has 1 << log_buckets buckets; 1 to 28 */
	uint32_t key_bits;    /* bits of keys in buckets: 1 to 48; tests of collisions use few */
	uint32_t max_item;    /* bytes of an item that chains can answer with; below 2^24 */
	uint32_t reserved;
};

/* The start of the index. */
struct roost_cache_control {
	uint64_t moves;	  /* number of moved entries; a get without a hit compares it */
	uint64_t base;	  /* offset of the buckets of the active generation */
	uint64_t version; /* version of the newest item */
	uint64_t reserved[5];
	struct roost_cache_shape shape;
	uint64_t items_len; /* bytes of the items of both generations */
};
#define ROOST_CACHE_CONTROL 4096u /* bytes before the buckets */

/*
 * The start of an item; key and value follow, the value behind the key. All of it but `expiry` and
 * the bytes between this and the key are constant while a bucket names the item.
 */
struct roost_cache_item {
	uint64_t expiry;	      /* ROOST_CACHE_EXPIRY() */
	uint64_t check;		      /* roost_cache_check() */
	uint64_t version;	      /* differs in each item; 0: the item has left the table */
	uint32_t value_at, value_len; /* offset from this struct, and bytes */
	uint16_t key_at, key_len;
	uint32_t flags; /* for the writer's own use */
};
/* seconds since 1970, below 2^32; 0: never */
#define ROOST_CACHE_EXPIRY(version, seconds) ((uint64_t)(version) << 32 | (uint32_t)(seconds))
#define ROOST_CACHE_KEY_MAX		     250u

/*
 * Checks a shape. A client gets it from its peer, and a writer from shared memory, so it may be
 * invalid.
 */
static inline bool roost_cache_shape_fits(const struct roost_cache_shape *s)
{
	return s->log_buckets >= 1 && s->log_buckets <= 28 && s->key_bits >= 1 &&
	       s->key_bits <= 48 && s->max_item >= sizeof(struct roost_cache_item) &&
	       s->max_item < 1u << 24;
}

/* The `value` of a bucket: offset of the item in the region of items, and bytes of the item. */
#define ROOST_CACHE_AT_BITS	 40
#define ROOST_CACHE_VALUE(at, n) ((uint64_t)(at) | (uint64_t)(n) << ROOST_CACHE_AT_BITS)
#define ROOST_CACHE_AT(value)	 ((value) & ((1ull << ROOST_CACHE_AT_BITS) - 1))

/* Multiplies two words to 128 bits, and returns the upper half xor the lower half. */
static inline uint64_t roost_cache_mix(uint64_t a, uint64_t b)
{
	__extension__ typedef unsigned __int128 wide;
	wide p = (wide)a * b;

	return (uint64_t)p ^ (uint64_t)(p >> 64);
}

/* Returns the 8 bytes at p, which need not be aligned. */
static inline uint64_t roost_cache_word(const uint8_t *p)
{
	uint64_t w;

	memcpy(&w, p, sizeof(w));
	return w;
}

/* Returns a hash of n bytes. It multiplies 64 bits to 128, as wyhash does. */
static inline uint64_t roost_cache_hash(const void *bytes, size_t n, uint64_t seed)
{
	const uint64_t k0 = 0xa0761d6478bd642full, k1 = 0xe7037ed1a0b428dbull;
	const uint8_t *p = (const uint8_t *)bytes;
	uint64_t lane[3], last[2] = {0, 0};
	size_t left = n;

	lane[0] = lane[1] = lane[2] = seed ^ k0;
	for (; left >= 48; left -= 48, p += 48)
		for (int i = 0; i < 3; i++)
			lane[i] = roost_cache_mix(roost_cache_word(p + 16 * i) ^ k1,
						  roost_cache_word(p + 16 * i + 8) ^ lane[i]);
	lane[0] ^= lane[1] * 3 ^ lane[2] * 5;
	for (; left >= 16; left -= 16, p += 16)
		lane[0] = roost_cache_mix(roost_cache_word(p) ^ k1,
					  roost_cache_word(p + 8) ^ lane[0]);
	memcpy(last, p, left);
	lane[0] = roost_cache_mix(last[0] ^ k1, last[1] ^ lane[0]);
	return roost_cache_mix(lane[0] ^ k0, (uint64_t)n ^ k1);
}

#define ROOST_CACHE_ATTEMPTS 4u
/*
 * Returns the key of 48 bits that stands for a key in buckets. If two keys have the same 48 bits,
 * the table has the second key under its 48 bits of a later attempt, below ROOST_CACHE_ATTEMPTS.
 */
static inline uint64_t roost_cache_key48(const struct roost_cache_shape *s, const void *key,
					 size_t len, uint32_t attempt)
{
	uint64_t h = roost_cache_hash(key, len, s->seed + attempt);

	h &= (1ull << s->key_bits) - 1;
	return h ? h : 1;
}

/*
 * Stores the two buckets that a key of 48 bits may be in, as offsets from the first bucket, in
 * bytes.
 */
static inline void roost_cache_buckets(const struct roost_cache_shape *s, uint64_t key48,
				       uint64_t bucket[ROOST_LOOKUP_BUCKETS])
{
	const uint64_t mask = (1ull << s->log_buckets) - 1;
	uint64_t h = roost_cache_mix(key48 ^ 0x8ebc6af09c88c6e3ull, s->seed | 1);

	bucket[0] = h & mask;
	bucket[1] = h >> 32 & mask;
	if (bucket[0] == bucket[1])
		bucket[1] ^= 1;
	for (int i = 0; i < ROOST_LOOKUP_BUCKETS; i++)
		bucket[i] *= sizeof(struct roost_bucket);
}

/* Returns the bytes of an item. */
static inline uint64_t roost_cache_item_len(const struct roost_cache_item *item)
{
	return (uint64_t)item->value_at + item->value_len;
}

/* Returns the check word of an item, over its version, lengths, flags, key and value. */
uint64_t roost_cache_check(const struct roost_cache_item *item);
/*
 * Checks lengths and check word of an item of which n bytes are present. The reply of a get, and
 * memory that a killed writer left, may have any contents.
 */
bool roost_cache_sound(const struct roost_cache_item *item, uint64_t n);

/* ---- the writer. One thread at a time ---- */

#define ROOST_CACHE_DISPLACED 1024

struct roost_cache {
	struct roost_cache_shape shape;
	struct roost_cache_control *control;
	struct roost_bucket *bucket, *old;
	uint8_t *items;
	uint64_t items_len, old_next;
	uint32_t generation; /* 0 or 1 */
	/* items that the table has under a later attempt */
	struct roost_cache_displaced {
		struct roost_cache_item *item;
		uint32_t attempt;
	} displaced[ROOST_CACHE_DISPLACED];
	uint32_t num_displaced;
};

/* Returns the bytes of an index. */
static inline uint64_t roost_cache_index_len(const struct roost_cache_shape *s)
{
	return ROOST_CACHE_CONTROL + (2 * sizeof(struct roost_bucket) << s->log_buckets);
}

/*
 * Makes an empty cache in an index of zeros, once, before the first writer and the first get.
 * items_len: bytes of the region of items, a multiple of 16. Returns 0, or -EINVAL.
 */
int roost_cache_format(void *index, const struct roost_cache_shape *shape, uint64_t items_len);
/*
 * Starts a writer: takes the inactive generation, and empties its buckets. The caller keeps the
 * ownership of index and items. Returns 0, or -EINVAL: the index has no cache.
 */
int roost_cache_begin(struct roost_cache *c, void *index, void *items);
/* Returns the memory of this writer's items, of items_len / 2 bytes. */
static inline void *roost_cache_memory(const struct roost_cache *c)
{
	return c->items + c->generation * (c->items_len / 2);
}
/*
 * Returns the next sound item of the active generation, for the writer to load, or NULL after the
 * last one. It is valid until roost_cache_serve().
 */
const struct roost_cache_item *roost_cache_old(struct roost_cache *c);
/* Makes gets use this writer's generation from now on. */
void roost_cache_serve(struct roost_cache *c);

/*
 * Puts an item into the table, in place of an item with the same key. The caller has set all of it
 * but expiry, check and version; it lies in roost_cache_memory(), at a multiple of 8 bytes. An item
 * that is in the table stays as it is. Returns 0; or, when no item with this key is in the table
 * any more,
 *  -EMSGSIZE  the item is longer than max_item
 *  -EINVAL    the key is empty or too long, or the item lies elsewhere
 *  -ENOSPC    the table is full, or too many keys collide
 */
int roost_cache_publish(struct roost_cache *c, struct roost_cache_item *item, uint32_t expires);
/*
 * Takes an item out of the table, if it is there. Its memory may be used again after a grace
 * period: a get in progress may still read it, and would have to be repeated.
 */
void roost_cache_withdraw(struct roost_cache *c, struct roost_cache_item *item);
/* Changes the time at which an item expires. */
void roost_cache_touch(struct roost_cache_item *item, uint32_t expires);
/* Takes all items out of the table. */
void roost_cache_clear(struct roost_cache *c);

/* ---- the chain, one for each client ---- */

struct roost_cache_chain {
	struct roost_chain loop;   /* depth ROOST_CACHE_LOOP; it watches the receives */
	struct roost_chain answer; /* connected to the client, depth ROOST_CACHE_ANSWER */
	uint32_t watch;		   /* index of the CQ of the client's requests */
	uint32_t index_key, items_key;
	/* the client's memory: ROOST_CACHE_REPLY() bytes, aligned to 8 bytes */
	struct roost_ref reply;
};
#define ROOST_CACHE_LOOP   16u
#define ROOST_CACHE_STRIDE 128u /* stride of the loop: 3 SGEs */
#define ROOST_CACHE_ANSWER 4u	/* depth of the answer queue */
#define ROOST_CACHE_SGES   5u	/* of the receive */
#define ROOST_CACHE_DATA   256u /* bytes of data that a chain takes */

/*
 * Emits the chain into both queues, whose images must be empty, and stores the scatter list of the
 * receive to post. Then the caller posts both images and the receive, and enables one receive and
 * the whole loop queue, once. Errors: in the queues' `error`.
 */
void roost_cache_emit(const struct roost_cache_chain *l, struct roost_sge sge[ROOST_CACHE_SGES]);

/* The message that the client SENDs. */
struct roost_cache_request {
	uint64_t bucket[ROOST_LOOKUP_BUCKETS]; /* offsets of the buckets */
	uint64_t key[ROOST_LOOKUP_BUCKETS];    /* ROOST_OPERAND(), twice the same */
	uint64_t number;
};

/* The start of the reply, which is written last; the item follows at ROOST_CACHE_REPLY_ITEM. */
struct roost_cache_reply {
	uint64_t found[ROOST_LOOKUP_BUCKETS]; /* keys of the buckets */
	uint64_t moves[2];		      /* before and after the buckets were read */
	uint64_t number;		      /* of the request */
};
#define ROOST_CACHE_REPLY_ITEM	    64u
#define ROOST_CACHE_REPLY(max_item) (ROOST_CACHE_REPLY_ITEM + (max_item))

#ifdef __cplusplus
}
#endif

#endif
