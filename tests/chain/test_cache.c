/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Gets by chains while a writer changes the table: the writer stops after each of its stores, for a
 * random number of turns of the NICs, which execute one WQE of a chain in a turn. Items are freed
 * and their memory is used again at once, by stores of 8 bytes, which is worse than any allowed
 * writer. Each get must return a value that its key had between its start and its end.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "offload.h"
#include "roost/chain_cache_get.h"

static void writer_stored(void);
#define CACHE_TABLE_STORED writer_stored
#include "../../src/chain/cache_table.c"

#define CLIENTS	  2
#define KEYS	  24
#define SLOTS	  64 /* of a generation */
#define SLOT	  512u
#define ITEMS_LEN (2ull * SLOTS * SLOT)
#define INDEX_AT  8192u
#define ITEMS_AT  65536u
#define REPLY	  4096u /* offset in the client's memory */
#define VALUES	  256	/* that a key may have had during a get */
#define NOW	  1000u

static struct world W, *const w = &W;
static struct ep server;
static struct roost_cache cache;
static struct roost_cache_shape shape;
static uint32_t index_key, items_key;
static uint64_t random_state;
static bool concurrent; /* stores of the writer let the NICs and clients run */

/* The value of a key: 0, or the number that fills its value. `next`: during an operation. */
static struct key {
	char name[32];
	uint32_t len;
	uint64_t value, next;
	struct roost_cache_item *item;
} keys[KEYS];
static bool slot_used[2][SLOTS];
static uint32_t freed;
static uint64_t values, gets, hits, torn, moved;

static struct client {
	struct ep near, conn, loop;
	struct roost_cache_get get;
	struct key *key; /* of the get under way */
	uint64_t may[VALUES];
	uint32_t num_may;
} client[CLIENTS];

static uint32_t below(uint32_t n)
{
	random_state = random_state * 6364136223846793005ull + 1442695040888963407ull;
	return (uint32_t)((random_state >> 33) % n);
}

/* ---- clients ---- */

static uint8_t *reply_of(struct client *c)
{
	return c->near.mem + REPLY;
}

static void send_request(struct client *c)
{
	roost_cache_get_request(&c->get, (void *)c->near.mem);
	ep_post(&c->near,
		&(struct wr){.op = ROOST_OP_SEND,
			     .sge = {ep_sge(&c->near, 0, sizeof(struct roost_cache_request))},
			     .num_sge = 1});
}

static void may_be(struct client *c, uint64_t value)
{
	assert_true(c->num_may < VALUES);
	c->may[c->num_may++] = value;
}

static void get_start(struct client *c, struct key *k)
{
	c->key = k;
	c->num_may = 0;
	may_be(c, k->value);
	may_be(c, k->next);
	roost_cache_get_start(&c->get, &shape, k->name, k->len);
	send_request(c);
	gets++;
}

static uint64_t number_in(const struct roost_cache_item *item)
{
	const uint8_t *p = roost_cache_item_value(item);
	uint64_t n = item ? roost_cache_word(p) : 0;

	for (uint32_t i = 0; item && i < item->value_len / 8; i++)
		assert_int_equal(roost_cache_word(p + 8 * (size_t)i), n);
	return n;
}

static enum roost_cache_result get_poll(struct client *c, const struct roost_cache_item **item)
{
	enum roost_cache_result r = roost_cache_get_result(&c->get, reply_of(c), NOW, item);
	struct roost_cqe cqe;

	if (r == ROOST_CACHE_AGAIN)
		send_request(c);
	while (ep_poll_send(&c->near, &cqe))
		assert_int_equal(cqe.status, NIC_WC_SUCCESS);
	return r;
}

static void client_step(struct client *c)
{
	const struct roost_cache_item *item;
	uint64_t found;

	if (!c->key)
		return;
	switch (get_poll(c, &item)) {
	case ROOST_CACHE_PENDING:
	case ROOST_CACHE_AGAIN:
		return;
	case ROOST_CACHE_HIT:
		hits++;
		break;
	case ROOST_CACHE_MISS:
		break;
	}
	found = item ? number_in(item) : 0;
	for (uint32_t i = 0; i < c->num_may; i++)
		if (c->may[i] == found) {
			c->key = NULL;
			return;
		}
	fail_msg("key %s: a get found %llu, which it did not have", c->key->name,
		 (unsigned long long)found);
}

static void turn(void)
{
	world_step(w, world_now(w) + 1000);
	for (int i = 0; i < CLIENTS; i++) {
		if (!client[i].key)
			get_start(&client[i], &keys[below(KEYS)]);
		client_step(&client[i]);
	}
}

static void finish_gets(void)
{
	uint64_t until = world_now(w) + 100 * SEC;

	for (int i = 0; i < CLIENTS; i++)
		while (client[i].key) {
			assert_true(world_now(w) < until);
			world_step(w, until);
			client_step(&client[i]);
		}
}

/* A get without other work. */
static const struct roost_cache_item *get_alone(struct key *k)
{
	uint64_t until = world_now(w) + 100 * SEC;
	const struct roost_cache_item *item;
	enum roost_cache_result r;

	roost_cache_get_start(&client[0].get, &shape, k->name, k->len);
	send_request(&client[0]);
	while ((r = get_poll(&client[0], &item)) != ROOST_CACHE_HIT && r != ROOST_CACHE_MISS) {
		assert_true(world_now(w) < until);
		world_step(w, until);
	}
	return item;
}

/* ---- the server ---- */

static uint32_t region_of_server(uint32_t at, uint64_t len)
{
	struct nic_mr_attr mr = {
		.pd = server.pd, .addr = server.mem + at, .len = len, .access = 15};
	uint32_t key;

	assert_int_equal(nic_mr_register(server.nic, &mr, &key), 0);
	return key;
}

static void client_open(struct client *c, struct roost_chain_data *data)
{
	struct ep_params conn = {.chain = true,
				 .counts = true,
				 .managed_send = true,
				 .mem = 64,
				 .pd_of = &server,
				 .mtu = 256, /* an item takes two packets */
				 .limit = {.turn_limit = 1}};
	struct ep_params loop = conn;
	struct roost_sge sge[ROOST_CACHE_SGES];
	struct roost_chain_queue lq, cq;
	struct roost_cache_chain chain;

	conn.managed_recv = true;
	conn.depth = ROOST_CACHE_ANSWER;
	conn.max_sge = ROOST_CACHE_SGES;
	loop.depth = ROOST_CACHE_LOOP;
	loop.max_sge = 3;
	loop.watch[0] = &c->conn;
	memset(c, 0, sizeof(*c));
	ep_init(&c->near, w, 1, &(struct ep_params){.rnr_retry = 7, .mtu = 256});
	ep_init(&c->conn, w, 0, &conn);
	ep_init(&c->loop, w, 0, &loop);
	ep_connect(&c->near, &c->conn);
	ep_connect_self(&c->loop);
	lq = offload_queue(&c->loop);
	cq = offload_queue(&c->conn);
	chain = (struct roost_cache_chain){
		.loop = {.queue = &lq, .data = data},
		.answer = {.queue = &cq, .data = data},
		.watch = 2,
		.index_key = index_key,
		.items_key = items_key,
		.reply = {(uintptr_t)reply_of(c), c->near.key},
	};
	roost_cache_emit(&chain, sge);
	offload_post(&c->loop, &lq);
	offload_post(&c->conn, &cq);
	for (uint32_t i = 0; i < ROOST_CACHE_ANSWER; i++) /* the queue; all are this receive */
		ep_post_recv(&c->conn, 0, sge, ROOST_CACHE_SGES);
	offload_enable(&server, ROOST_OP_RECV_ENABLE, &c->conn, 1);
	offload_enable(&server, ROOST_OP_ENABLE, &c->loop, loop.depth);
}

static void start(uint32_t key_bits, uint32_t log_buckets, const struct sim_params *link)
{
	struct roost_chain_data data = {.size = INDEX_AT};

	shape = (struct roost_cache_shape){
		.seed = 77, .log_buckets = log_buckets, .key_bits = key_bits, .max_item = SLOT};
	world_init(w, 2, 11, link);
	ep_init(&server, w, 0, &(struct ep_params){.chain = true, .mem = ITEMS_AT + ITEMS_LEN});
	ep_connect_self(&server);
	memset(server.mem, 0, ITEMS_AT + ITEMS_LEN);
	index_key = region_of_server(INDEX_AT, roost_cache_index_len(&shape));
	items_key = region_of_server(ITEMS_AT, ITEMS_LEN);
	data.at = (struct roost_ref){(uintptr_t)server.mem, server.key};
	data.image = server.mem;
	concurrent = false;
	memset(slot_used, 0, sizeof(slot_used));
	memset(keys, 0, sizeof(keys));
	for (uint32_t i = 0; i < KEYS; i++)
		keys[i].len = (uint32_t)snprintf(keys[i].name, sizeof(keys[i].name), "key:%u", i);
	assert_int_equal(roost_cache_format(server.mem + INDEX_AT, &shape, ITEMS_LEN), 0);
	assert_int_equal(roost_cache_begin(&cache, server.mem + INDEX_AT, server.mem + ITEMS_AT),
			 0);
	roost_cache_serve(&cache);
	for (int i = 0; i < CLIENTS; i++)
		client_open(&client[i], &data);
	world_run(w, world_now(w) + SEC);
}

static void end(void)
{
	for (int i = 0; i < CLIENTS; i++) {
		torn += client[i].get.torn;
		moved += client[i].get.moved;
		ep_fini(&client[i].near);
		ep_fini(&client[i].loop);
		ep_fini(&client[i].conn);
	}
	assert_int_equal(nic_mr_deregister(server.nic, index_key), 0);
	assert_int_equal(nic_mr_deregister(server.nic, items_key), 0);
	ep_fini(&server);
	world_fini(w);
}

/* ---- the writer ---- */

static void writer_stored(void)
{
	for (uint32_t n = concurrent ? below(6) : 0; n; n--)
		turn();
}

static struct roost_cache_item *slot_take(void)
{
	uint32_t i = freed; /* the last one, which gets may still read */

	while (slot_used[cache.generation][i])
		i = (i + 1) % SLOTS;
	slot_used[cache.generation][i] = true;
	return (void *)((uint8_t *)roost_cache_memory(&cache) + (size_t)i * SLOT);
}

static void slot_free(const struct roost_cache_item *item)
{
	size_t at = (size_t)((const uint8_t *)item - (uint8_t *)roost_cache_memory(&cache));

	freed = (uint32_t)(at / SLOT);
	slot_used[cache.generation][freed] = false;
}

/* Writes an item, while chains may still read the former contents. */
static struct roost_cache_item *make(const char *name, uint32_t name_len, uint64_t number,
				     uint32_t value_len)
{
	struct roost_cache_item *item = slot_take();
	uint64_t image[SLOT / 8] = {0}, *to = (uint64_t *)item;
	struct roost_cache_item *it = (void *)image;

	*it = (struct roost_cache_item){.key_at = sizeof(*it),
					.key_len = (uint16_t)name_len,
					.value_at = sizeof(*it) + 32,
					.value_len = value_len};
	memcpy((uint8_t *)it + it->key_at, name, name_len);
	for (uint32_t i = 0; i < value_len; i += 8)
		memcpy((uint8_t *)it + it->value_at + i, &number, 8);
	for (uint32_t i = 0; i < (it->value_at + value_len) / 8; i++) {
		to[i] = image[i];
		if (i % 8 == 0)
			writer_stored();
	}
	return item;
}

static void will_be(struct key *k, uint64_t value)
{
	k->next = value;
	for (int i = 0; i < CLIENTS; i++)
		if (client[i].key == k)
			may_be(&client[i], value);
}

/* Returns false if the table has no place. */
static bool set(struct key *k)
{
	struct roost_cache_item *item = make(k->name, k->len, ++values, 8 * (1 + below(40)));
	struct roost_cache_item *before = k->item;
	bool done;

	will_be(k, values);
	done = roost_cache_publish(&cache, item, 0) == 0;
	if (!done) {
		assert_null(before);
		slot_free(item);
		will_be(k, 0);
	} else {
		k->item = item;
	}
	if (before) {
		roost_cache_withdraw(&cache, before);
		slot_free(before);
	}
	k->value = k->next;
	return done;
}

static void del(struct key *k)
{
	if (!k->item)
		return;
	will_be(k, 0);
	roost_cache_withdraw(&cache, k->item);
	slot_free(k->item);
	k->item = NULL;
	k->value = 0;
}

static struct key *key_named(const struct roost_cache_item *item)
{
	for (uint32_t i = 0; i < KEYS; i++)
		if (item->key_len == keys[i].len &&
		    !memcmp((const uint8_t *)item + item->key_at, keys[i].name, keys[i].len))
			return &keys[i];
	fail_msg("an item without a key");
	return NULL;
}

/* The writer was killed: another writer loads the active generation. */
static void restart(void)
{
	const struct roost_cache_item *old;
	uint32_t loaded = 0, had = 0;

	for (uint32_t i = 0; i < KEYS; i++)
		had += keys[i].item != NULL;
	assert_int_equal(roost_cache_begin(&cache, server.mem + INDEX_AT, server.mem + ITEMS_AT),
			 0);
	memset(slot_used[cache.generation], 0, sizeof(slot_used[0]));
	while ((old = roost_cache_old(&cache))) {
		struct key *k = key_named(old);
		struct roost_cache_item *item;

		item = make(k->name, k->len, number_in(old), old->value_len);
		loaded++;
		k->item = item;
		/*
		 * in another order, a key may have as many others before it as there are attempts
		 */
		if (roost_cache_publish(&cache, item, 0) != 0) {
			assert_true(shape.key_bits < 48);
			slot_free(item);
			k->item = NULL;
			will_be(k, 0);
		}
	}
	assert_int_equal(loaded, had);
	roost_cache_serve(&cache);
	for (uint32_t i = 0; i < KEYS; i++)
		keys[i].value = keys[i].next;
}

static void changes_during_gets(uint32_t key_bits, uint32_t log_buckets, uint32_t rounds)
{
	const struct sim_params link = {
		.delay_ns = 1000, .loss = 0.05, .dup = 0.02, .reorder = 0.02};

	random_state = 5 + key_bits;
	start(key_bits, log_buckets, &link);
	concurrent = true;
	for (uint32_t i = 0; i < rounds; i++) {
		struct key *k = &keys[below(KEYS)];

		if (below(3))
			set(k);
		else
			del(k);
		if (below(rounds / 10) == 0)
			restart();
	}
	concurrent = false;
	finish_gets();
	for (uint32_t i = 0; i < KEYS; i++) {
		const struct roost_cache_item *item = get_alone(&keys[i]);

		assert_int_equal(item ? number_in(item) : 0, keys[i].value);
	}
	end();
	print_message("%u bits: %llu gets, %llu hits, %llu torn, %llu moved\n", key_bits,
		      (unsigned long long)gets, (unsigned long long)hits, (unsigned long long)torn,
		      (unsigned long long)moved);
	assert_true(hits > gets / 4 && torn > 0);
	gets = hits = torn = 0;
}

static void writer_against_gets(void **state)
{
	changes_during_gets(48, 6, 4000);
}

/* Keys collide in 6 bits of hash: each third one or so is in the table by a later attempt. */
static void colliding_keys(void **state)
{
	changes_during_gets(6, 7, 4000);
}

/* Lets the only entry move to its other bucket after n turns of a get: it is found. */
static void move_after(struct key *k, uint32_t n)
{
	struct roost_bucket *b = find(&cache, key48(&cache, k->item, 0)), *other;

	other = other_bucket(&cache, b);
	get_start(&client[0], k);
	while (n--)
		world_step(w, world_now(w) + 100);
	fill(other, b->key, b->value);
	count_move(&cache);
	store(&b->key, 0);
	finish_gets();
}

static void moves_during_a_get(void **state)
{
	uint64_t again;

	start(48, 6, &(struct sim_params){.delay_ns = 1000});
	assert_true(set(&keys[5]));
	for (uint32_t n = 0; n < 200; n++)
		move_after(&keys[5], n / 2); /* both ways */
	again = client[0].get.moved;
	assert_int_equal(hits, 200);
	assert_in_range(again, 1, 20);
	hits = gets = 0;
	end();
}

/* Two keys whose 48 bits are equal, of the seed 77. */
static void collision_of_48_bits(void **state)
{
	struct key *a = &keys[0], *b = &keys[1];

	start(48, 6, &(struct sim_params){.delay_ns = 1000});
	a->len = (uint32_t)snprintf(a->name, sizeof(a->name), "collide:15192355");
	b->len = (uint32_t)snprintf(b->name, sizeof(b->name), "collide:18173419");
	assert_int_equal(roost_cache_key48(&shape, a->name, a->len, 0),
			 roost_cache_key48(&shape, b->name, b->len, 0));
	assert_true(set(a));
	assert_null(get_alone(b));
	assert_true(set(b));
	assert_int_equal(number_in(get_alone(a)), a->value);
	assert_int_equal(number_in(get_alone(b)), b->value);
	del(a);
	assert_null(get_alone(a));
	assert_int_equal(number_in(get_alone(b)), b->value);
	assert_int_equal(cache.num_displaced, 0);
	end();
}

static void expiry(void **state)
{
	struct roost_cache_item *item;

	start(48, 6, &(struct sim_params){.delay_ns = 1000});
	item = make(keys[3].name, keys[3].len, 9, 64);
	assert_int_equal(roost_cache_publish(&cache, item, NOW), 0);
	assert_null(get_alone(&keys[3]));
	roost_cache_touch(item, NOW + 1);
	assert_int_equal(number_in(get_alone(&keys[3])), 9);
	roost_cache_touch(item, 0);
	assert_non_null(get_alone(&keys[3]));
	roost_cache_clear(&cache);
	assert_null(get_alone(&keys[3]));
	end();
}

static void refuses(void **state)
{
	struct roost_chain_queue loop = {.depth = 16, .stride = 64}, conn = {.depth = 4};
	struct roost_cache_chain chain = {.loop = {.queue = &loop}, .answer = {.queue = &conn}};
	struct roost_cache_shape bad = {.log_buckets = 5, .key_bits = 49, .max_item = 512};
	struct roost_cache_item *item;

	roost_cache_emit(&chain, NULL);
	assert_int_equal(loop.error, -EINVAL);
	assert_int_equal(roost_cache_format(NULL, &bad, 4096), -EINVAL);
	start(48, 6, &(struct sim_params){.delay_ns = 1000});
	assert_true(set(&keys[0]));
	item = make(keys[0].name, keys[0].len, 5, 64);
	item->value_len = SLOT;
	/* an item that chains cannot return: the older item is removed */
	assert_int_equal(roost_cache_publish(&cache, item, 0), -EMSGSIZE);
	assert_null(get_alone(&keys[0]));
	item->key_len = 0;
	assert_int_equal(roost_cache_publish(&cache, item, 0), -EINVAL);
	assert_int_equal(roost_cache_publish(&cache, (void *)server.mem, 0), -EINVAL);
	end();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(writer_against_gets),
		cmocka_unit_test(colliding_keys),
		cmocka_unit_test(moves_during_a_get),
		cmocka_unit_test(collision_of_48_bits),
		cmocka_unit_test(expiry),
		cmocka_unit_test(refuses),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
