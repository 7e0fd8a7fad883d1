/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Fuzzes the client of a cache (roost/chain_cache_get.h) with bytes as the shape that a server
 * sends and as its replies. The memory for replies is exactly as large as the shape says. A hit has
 * the key of the get, and its value lies in the reply. The input:
 *
 *	log_buckets | key_bits | bytes of max_item (2) | seed | key_len | now | reply...
 *	reply: repairs | len (2) | at (2) | bytes
 *
 * Each reply is stored over the previous one. Its repairs set the fields that random bytes seldom
 * have right.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "input.h"
#include "roost/chain_cache_get.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define ROUNDS 64

enum repair {
	REPAIR_NUMBER = 1,
	REPAIR_FOUND = 2,
	REPAIR_MOVES = 4,
	REPAIR_KEY = 8, /* the key of the get is behind the head of the item */
	REPAIR_LENGTHS = 16,
	REPAIR_EXPIRY = 32,
	REPAIR_CHECK = 64,
};

static uint8_t key[ROOST_CACHE_KEY_MAX];
static struct roost_cache_shape shape;
static struct roost_cache_get get;
static uint8_t *reply;

static void repair_item(struct roost_cache_item *it, uint8_t repairs)
{
	const uint32_t head = sizeof(*it) + get.key_len;

	if (repairs & REPAIR_KEY && head <= shape.max_item) {
		it->key_at = sizeof(*it);
		it->key_len = (uint16_t)get.key_len;
		memcpy(it + 1, key, get.key_len);
	}
	if (repairs & REPAIR_LENGTHS && head <= shape.max_item) {
		it->version |= 1;
		it->value_at = head;
		it->value_len %= shape.max_item - head + 1;
	}
	if (repairs & REPAIR_EXPIRY)
		it->expiry = ROOST_CACHE_EXPIRY(it->version, it->expiry);
	if (repairs & REPAIR_CHECK && it->key_at >= sizeof(*it) &&
	    roost_cache_item_len(it) <= shape.max_item && it->key_at <= it->value_at)
		it->check = roost_cache_check(it);
}

static void store_reply(struct input *in)
{
	const uint8_t repairs = u8(in);
	const uint32_t space = ROOST_CACHE_REPLY(shape.max_item);
	uint32_t len = u16(in), at = u16(in) % space;
	struct roost_cache_reply *r = (void *)reply;

	for (; len && at < space && in->p < in->end; len--)
		reply[at++] = u8(in);
	if (repairs & REPAIR_NUMBER)
		r->number = get.number;
	if (repairs & REPAIR_FOUND)
		r->found[get.number % ROOST_LOOKUP_BUCKETS] = ROOST_OPERAND(get.key48);
	if (repairs & REPAIR_MOVES)
		r->moves[0] = r->moves[1];
	repair_item((void *)(reply + ROOST_CACHE_REPLY_ITEM), repairs);
}

static void check_hit(const struct roost_cache_item *it)
{
	const uint8_t *value = roost_cache_item_value(it), *end = value + it->value_len;

	must(value >= reply + ROOST_CACHE_REPLY_ITEM + sizeof(*it) &&
		     end <= reply + ROOST_CACHE_REPLY(shape.max_item),
	     "a value outside of the reply");
	must(it->key_len == get.key_len &&
		     memcmp((const uint8_t *)it + it->key_at, key, get.key_len) == 0,
	     "an item with another key");
	while (value < end)
		(void)*(const volatile uint8_t *)value++;
}

static void play(struct input *in, uint64_t now)
{
	enum roost_cache_result result = ROOST_CACHE_AGAIN;
	const struct roost_cache_item *item = NULL;
	struct roost_cache_request request;

	for (int i = 0; i < ROUNDS && result < ROOST_CACHE_HIT && in->p < in->end; i++) {
		if (result == ROOST_CACHE_AGAIN) {
			roost_cache_get_request(&get, &request);
			for (int k = 0; k < ROOST_LOOKUP_BUCKETS; k++)
				must(request.bucket[k] < sizeof(struct roost_bucket)
								 << shape.log_buckets,
				     "a bucket outside of the table");
		}
		store_reply(in);
		result = roost_cache_get_result(&get, reply, now, &item);
		must(!item == (result != ROOST_CACHE_HIT), "an item without a hit");
	}
	if (result == ROOST_CACHE_HIT)
		check_hit(item);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = {data, data + size};
	uint32_t key_len;
	uint64_t now;

	memset(&get, 0, sizeof(get));
	memset(&shape, 0, sizeof(shape));
	shape.log_buckets = u8(&in);
	shape.key_bits = u8(&in);
	shape.max_item = u16(&in);
	shape.seed = u8(&in);
	key_len = 1 + u8(&in) % ROOST_CACHE_KEY_MAX;
	now = u8(&in);
	if (!roost_cache_shape_fits(&shape))
		return 0;
	for (uint32_t i = 0; i < key_len; i++)
		key[i] = (uint8_t)(i * 7 + shape.seed);
	/* the allocator's bounds are those of the reply */
	reply = calloc(1, ROOST_CACHE_REPLY(shape.max_item));
	must(reply != NULL, "no memory");
	roost_cache_get_start(&get, &shape, key, key_len);
	play(&in, now);
	free(reply);
	return 0;
}
