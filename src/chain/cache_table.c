/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The writer's side of roost/chain_cache.h: a cuckoo table with one entry in a bucket. Chains read
 * it at any moment, and the writer may be killed between any two stores. So after each store, each
 * key that is in the table is found in one of its two buckets:
 *
 * - An item is sealed before a bucket names it. Another item replaces it by one store.
 * - An entry moves by a copy to its other bucket; then the bucket that it leaves is emptied. A get
 * that read one bucket too early and the other bucket too late finds that `moves` has changed.
 * - A new generation is complete before the base names it.
 */
#include <errno.h>
#include <stddef.h>

#include "base/export.h"
#include "roost/chain_cache.h"

#define PATH_MAX_MOVES 250

/* Makes a store that chains can see. Tests check the table after each store. */
#ifdef CACHE_TABLE_STORED
void CACHE_TABLE_STORED(void);
#else
#define CACHE_TABLE_STORED() ((void)0)
#endif

static void store(uint64_t *word, uint64_t value)
{
	__atomic_store_n(word, value, __ATOMIC_SEQ_CST);
	CACHE_TABLE_STORED();
}

static void count_move(struct roost_cache *c)
{
	store(&c->control->moves, c->control->moves + 1);
}

/* ---- items ---- */

ROOST_EXPORT uint64_t roost_cache_check(const struct roost_cache_item *item)
{
	const size_t head = offsetof(struct roost_cache_item, version);
	uint64_t h = roost_cache_hash(&item->version, sizeof(*item) - head, 0);

	return roost_cache_hash((const uint8_t *)item + item->key_at,
				roost_cache_item_len(item) - item->key_at, h);
}

ROOST_EXPORT bool roost_cache_sound(const struct roost_cache_item *item, uint64_t n)
{
	return n >= sizeof(*item) && item->version && item->key_len &&
	       item->key_len <= ROOST_CACHE_KEY_MAX && item->key_at >= sizeof(*item) &&
	       item->value_at >= (uint32_t)item->key_at + item->key_len &&
	       roost_cache_item_len(item) <= n && item->check == roost_cache_check(item);
}

static void seal(struct roost_cache *c, struct roost_cache_item *item, uint32_t expires)
{
	item->version = ++c->control->version;
	item->expiry = ROOST_CACHE_EXPIRY(item->version, expires);
	item->check = roost_cache_check(item);
}

ROOST_EXPORT void roost_cache_touch(struct roost_cache_item *item, uint32_t expires)
{
	store(&item->expiry, ROOST_CACHE_EXPIRY(item->version, expires));
}

static const uint8_t *key_of(const struct roost_cache_item *item)
{
	return (const uint8_t *)item + item->key_at;
}

static bool same_key(const struct roost_cache_item *a, const struct roost_cache_item *b)
{
	return a->key_len == b->key_len && memcmp(key_of(a), key_of(b), a->key_len) == 0;
}

static uint64_t key48(const struct roost_cache *c, const struct roost_cache_item *item,
		      uint32_t attempt)
{
	return roost_cache_key48(&c->shape, key_of(item), item->key_len, attempt);
}

static uint64_t value_of(const struct roost_cache *c, const struct roost_cache_item *item)
{
	return ROOST_CACHE_VALUE((uint64_t)((const uint8_t *)item - c->items),
				 roost_cache_item_len(item));
}

static struct roost_cache_item *item_of(const struct roost_cache *c, const struct roost_bucket *b)
{
	return (struct roost_cache_item *)(void *)(c->items + ROOST_CACHE_AT(b->value));
}

/* ---- buckets ---- */

static struct roost_bucket *bucket_at(const struct roost_cache *c, uint64_t offset)
{
	return (struct roost_bucket *)(void *)((uint8_t *)c->bucket + offset);
}

static struct roost_bucket *find(const struct roost_cache *c, uint64_t key)
{
	uint64_t offset[ROOST_LOOKUP_BUCKETS];

	roost_cache_buckets(&c->shape, key, offset);
	for (int i = 0; i < ROOST_LOOKUP_BUCKETS; i++)
		if (bucket_at(c, offset[i])->key == ROOST_OPERAND(key))
			return bucket_at(c, offset[i]);
	return NULL;
}

/* Removes an entry. */
static void empty(struct roost_cache *c, uint64_t key)
{
	struct roost_bucket *b = find(c, key);

	if (b)
		store(&b->key, 0);
}

static void fill(struct roost_bucket *b, uint64_t key, uint64_t value)
{
	store(&b->value, value);
	store(&b->key, key);
}

static struct roost_bucket *other_bucket(const struct roost_cache *c, struct roost_bucket *b)
{
	uint64_t offset[ROOST_LOOKUP_BUCKETS];

	roost_cache_buckets(&c->shape, ROOST_OPERAND_VALUE(b->key), offset);
	return bucket_at(c, bucket_at(c, offset[0]) == b ? offset[1] : offset[0]);
}

/*
 * Empties a bucket by moving its entry, after the entries in its way: the path is first followed to
 * an empty bucket, then the moves are made from its end.
 */
static bool make_space(struct roost_cache *c, struct roost_bucket *b)
{
	struct roost_bucket *path[PATH_MAX_MOVES + 1] = {b};
	uint32_t n = 0;

	while (path[n]->key) {
		if (n == PATH_MAX_MOVES)
			return false;
		path[n + 1] = other_bucket(c, path[n]);
		for (uint32_t i = 0; i <= n; i++)
			if (path[i] == path[n + 1])
				return false;
		n++;
	}
	for (; n > 0; n--) {
		fill(path[n], path[n - 1]->key, path[n - 1]->value);
		count_move(c);
		store(&path[n - 1]->key, 0);
	}
	return true;
}

static bool insert(struct roost_cache *c, uint64_t key, uint64_t value)
{
	uint64_t offset[ROOST_LOOKUP_BUCKETS];

	roost_cache_buckets(&c->shape, key, offset);
	for (int i = 0; i < ROOST_LOOKUP_BUCKETS; i++)
		if (!bucket_at(c, offset[i])->key) {
			fill(bucket_at(c, offset[i]), ROOST_OPERAND(key), value);
			return true;
		}
	for (int i = 0; i < ROOST_LOOKUP_BUCKETS; i++)
		if (make_space(c, bucket_at(c, offset[i]))) {
			fill(bucket_at(c, offset[i]), ROOST_OPERAND(key), value);
			return true;
		}
	return false;
}

/* ---- keys that collide ---- */

static struct roost_cache_displaced *displaced_of(struct roost_cache *c,
						  const struct roost_cache_item *item)
{
	for (uint32_t i = 0; i < c->num_displaced; i++)
		if (c->displaced[i].item == item)
			return &c->displaced[i];
	return NULL;
}

static void forget(struct roost_cache *c, struct roost_cache_displaced *d)
{
	*d = c->displaced[--c->num_displaced];
}

/* Removes the entry of an attempt. An item that waits for this key of 48 bits replaces it. */
static void release(struct roost_cache *c, uint64_t key)
{
	struct roost_cache_displaced *d = c->displaced;
	struct roost_bucket *b = find(c, key);

	for (; d < c->displaced + c->num_displaced; d++)
		for (uint32_t attempt = 0; attempt < d->attempt; attempt++) {
			uint64_t later = key48(c, d->item, d->attempt);

			if (key48(c, d->item, attempt) != key)
				continue;
			store(&b->value, value_of(c, d->item));
			d->attempt = attempt;
			if (!attempt)
				forget(c, d);
			release(c, later);
			return;
		}
	empty(c, key);
}

/* The location of the item with a key in the table; `item` NULL: there is none. */
struct entry_at {
	struct roost_bucket *bucket;
	struct roost_cache_item *item;
	uint32_t attempt;
};

static struct entry_at find_same(const struct roost_cache *c, const struct roost_cache_item *item)
{
	struct entry_at p = {.attempt = 0};

	for (; p.attempt < ROOST_CACHE_ATTEMPTS; p.attempt++) {
		p.bucket = find(c, key48(c, item, p.attempt));
		if (!p.bucket)
			break;
		if (same_key(item_of(c, p.bucket), item)) {
			p.item = item_of(c, p.bucket);
			break;
		}
	}
	return p;
}

static void take_out(struct roost_cache *c, struct entry_at p)
{
	struct roost_cache_displaced *d = displaced_of(c, p.item);

	if (d)
		forget(c, d);
	release(c, key48(c, p.item, p.attempt));
}

static void replace(struct roost_cache *c, struct entry_at p, struct roost_cache_item *item)
{
	struct roost_cache_displaced *d = displaced_of(c, p.item);

	if (d)
		d->item = item;
	store(&p.bucket->value, value_of(c, item));
}

static int add(struct roost_cache *c, uint32_t attempt, struct roost_cache_item *item)
{
	if (attempt == ROOST_CACHE_ATTEMPTS ||
	    (attempt && c->num_displaced == ROOST_CACHE_DISPLACED) ||
	    !insert(c, key48(c, item, attempt), value_of(c, item)))
		return -ENOSPC;
	if (attempt)
		c->displaced[c->num_displaced++] = (struct roost_cache_displaced){item, attempt};
	return 0;
}

static int check_item(const struct roost_cache *c, const struct roost_cache_item *item)
{
	const uint8_t *start = roost_cache_memory(c), *p = (const uint8_t *)item;

	if (!item->key_len || item->key_len > ROOST_CACHE_KEY_MAX || p < start ||
	    p >= start + c->items_len / 2 ||
	    roost_cache_item_len(item) > (uint64_t)(start + c->items_len / 2 - p))
		return -EINVAL;
	return roost_cache_item_len(item) > c->shape.max_item ? -EMSGSIZE : 0;
}

ROOST_EXPORT int roost_cache_publish(struct roost_cache *c, struct roost_cache_item *item,
				     uint32_t expires)
{
	int rc = check_item(c, item);
	struct entry_at p;

	if (rc == -EINVAL)
		return rc;
	p = find_same(c, item);
	if (rc) {
		if (p.item)
			take_out(c, p);
		return rc;
	}
	if (p.item == item)
		return 0;
	seal(c, item, expires);
	if (!p.item)
		return add(c, p.attempt, item);
	replace(c, p, item);
	return 0;
}

ROOST_EXPORT void roost_cache_withdraw(struct roost_cache *c, struct roost_cache_item *item)
{
	struct entry_at p;

	if (!item->version) /* the item was never published */
		return;
	p = find_same(c, item);
	if (p.item == item)
		take_out(c, p);
	store(&item->version, 0);
}

ROOST_EXPORT void roost_cache_clear(struct roost_cache *c)
{
	c->num_displaced = 0;
	for (uint64_t i = 0; i < 1ull << c->shape.log_buckets; i++)
		if (c->bucket[i].key)
			store(&c->bucket[i].key, 0);
}

/* ---- start and successors of the writer ---- */

static uint64_t base_of(const struct roost_cache_shape *s, uint32_t generation)
{
	return ROOST_CACHE_CONTROL + (generation * sizeof(struct roost_bucket) << s->log_buckets);
}

static bool control_fits(const struct roost_cache_shape *s, uint64_t items_len)
{
	return roost_cache_shape_fits(s) && items_len > 0 && items_len % 16 == 0 &&
	       items_len <= 1ull << ROOST_CACHE_AT_BITS;
}

ROOST_EXPORT int roost_cache_format(void *index, const struct roost_cache_shape *shape,
				    uint64_t items_len)
{
	struct roost_cache_control *control = index;

	if (!control_fits(shape, items_len))
		return -EINVAL;
	control->shape = *shape;
	control->items_len = items_len;
	store(&control->base, base_of(shape, 0));
	return 0;
}

ROOST_EXPORT int roost_cache_begin(struct roost_cache *c, void *index, void *items)
{
	struct roost_cache_control *control = index;
	uint32_t serves;

	if (!control_fits(&control->shape, control->items_len))
		return -EINVAL;
	serves = control->base == base_of(&control->shape, 1);
	memset(c, 0, sizeof(*c));
	c->shape = control->shape;
	c->control = control;
	c->items = items;
	c->items_len = control->items_len;
	c->generation = !serves;
	c->bucket = (void *)((uint8_t *)index + base_of(&c->shape, c->generation));
	c->old = (void *)((uint8_t *)index + base_of(&c->shape, serves));
	/* A get that has the base of the previous generation would find the table empty. */
	count_move(c);
	roost_cache_clear(c);
	return 0;
}

ROOST_EXPORT const struct roost_cache_item *roost_cache_old(struct roost_cache *c)
{
	while (c->old_next < 1ull << c->shape.log_buckets) {
		const struct roost_bucket *b = &c->old[c->old_next++];
		uint64_t at = ROOST_CACHE_AT(b->value);
		const struct roost_cache_item *item = item_of(c, b);

		if (b->key && at % 8 == 0 && at < c->items_len &&
		    roost_cache_sound(item, c->items_len - at < c->shape.max_item
						    ? c->items_len - at
						    : c->shape.max_item))
			return item;
	}
	return NULL;
}

ROOST_EXPORT void roost_cache_serve(struct roost_cache *c)
{
	store(&c->control->base, base_of(&c->shape, c->generation));
}
