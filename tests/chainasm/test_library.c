/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The checker accepts the ready-made chains of the library, as their functions emit them, and the
 * model executes them: a client SENDs a request, and the answer is in its memory. The same chain in
 * a queue that is not managed is refused.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "chainasm/check.h"
#include "chainasm/model.h"
#include "roost/chain_atomic.h"
#include "roost/chain_cache_get.h"
#include "roost/chain_hopscotch.h"
#include "roost/chain_list.h"
#include "roost/chain_parallel.h"
#include "roost/chain_replica.h"

#define DATA	 8192u
#define TABLE	 4096u
#define VALUE_AT 2048u /* offset of the values in the table */
#define VALUE	 64u
#define KEY(i)	 (0xabc000000000ull + (i))
#define NUMBER	 7u

static struct chain_program *p;
static struct roost_chain_data data;
static unsigned table, reply, request; /* regions that all programs have */

/* ---- programs ---- */

static unsigned add_region(const char *name, enum chain_region_kind kind, unsigned queue,
			   uint32_t size)
{
	struct chain_region *r = &p->region[p->regions];

	assert_true(p->regions < CHAIN_MAX_REGIONS);
	*r = (struct chain_region){.kind = kind, .queue = (uint16_t)queue, .size = size};
	snprintf(r->name, sizeof(r->name), "%s", name);
	r->image = calloc(1, size);
	assert_non_null(r->image);
	return p->regions++;
}

/* A queue: managed, connected to itself, without receives. */
static unsigned add_queue(const char *name, uint32_t depth, uint32_t sges)
{
	const unsigned i = p->queues++;
	struct chain_queue *q = &p->queue[i];

	assert_true(p->queues < CHAIN_MAX_QUEUES);
	*q = (struct chain_queue){.managed = true,
				  .peer = CHAIN_PEER_SELF,
				  .depth = depth,
				  .sges = sges,
				  .recv_sges = 1,
				  .stride = chain_send_stride(sges),
				  .recv_stride = chain_recv_stride(1),
				  .recv_region = -1};
	snprintf(q->name, sizeof(q->name), "%s", name);
	for (unsigned k = 0; k < ROOST_CHAIN_WATCHES; k++)
		q->watch[k].queue = -1;
	q->region = (int)add_region(name, CHAIN_SEND_RING, i, depth * q->stride);
	return i;
}

/* Adds a managed receive queue of one receive, which is enabled. */
static void add_receive(unsigned queue, uint32_t sges)
{
	struct chain_queue *q = &p->queue[queue];

	q->managed_recv = true;
	q->recvs = q->recv = q->start_recv = 1;
	q->recv_sges = sges;
	q->recv_stride = chain_recv_stride(sges);
	q->recv_region = (int)add_region(q->name, CHAIN_RECV_RING, queue, q->recv_stride);
}

static void watch(unsigned queue, unsigned index, unsigned of, bool receives)
{
	p->queue[queue].watch[index] =
		(struct chain_watch_name){.queue = (int16_t)of, .receives = receives};
}

static void peers(unsigned a, unsigned b)
{
	p->queue[a].peer = (int)b;
	p->queue[b].peer = (int)a;
}

static void open_program(void)
{
	p = calloc(1, sizeof(*p));
	assert_non_null(p);
	data = (struct roost_chain_data){.size = DATA};
	data.image = p->region[add_region("data", CHAIN_DATA, 0, DATA)].image;
	table = add_region("table", CHAIN_DATA, 0, TABLE);
	reply = add_region("reply", CHAIN_DATA, 0, TABLE);
	request = add_region("request", CHAIN_DATA, 0, TABLE);
}

static uint64_t at(unsigned region, uint64_t offset)
{
	return p->region[region].addr + offset;
}

static struct roost_ref ref(unsigned region, uint64_t offset)
{
	return (struct roost_ref){at(region, offset), p->region[region].key};
}

static void *bytes(unsigned region, uint64_t offset)
{
	return p->region[region].image + offset;
}

/* Gives addresses, keys and numbers to regions and queues. Nothing is added afterwards. */
static void bind(void)
{
	chain_bind_own(p);
	data.at = ref(0, 0);
}

static struct roost_chain_queue image_of(unsigned queue)
{
	const struct chain_queue *q = &p->queue[queue];

	return (struct roost_chain_queue){.ring = ref((unsigned)q->region, 0),
					  .qp_num = q->qp_num,
					  .depth = q->depth,
					  .stride = q->stride,
					  .image = bytes((unsigned)q->region, 0)};
}

/* Posts the image, and enables `start` WQEs when the program starts. */
static void post(unsigned queue, const struct roost_chain_queue *image, uint32_t start)
{
	assert_int_equal(image->error, 0);
	assert_int_equal(image->n, image->depth);
	p->queue[queue].n = image->n;
	p->queue[queue].start = start;
}

static void post_receive(unsigned queue, const struct roost_sge *sge, uint32_t n)
{
	uint8_t *slot = bytes((unsigned)p->queue[queue].recv_region, 0);
	const struct roost_recv_wqe r = {.num_sge = n};

	assert_int_equal(n, p->queue[queue].recv_sges);
	memcpy(slot, &r, sizeof(r));
	memcpy(slot + ROOST_RECV_SGE_OFFSET, sge, n * sizeof(*sge));
}

static unsigned add_client(unsigned peer)
{
	const unsigned client = add_queue("client", 1, 1);

	p->queue[client].managed = false;
	peers(client, peer);
	return client;
}

static void client_sends(unsigned client, uint32_t len)
{
	const struct roost_wqe w = {.ctrl = ROOST_CTRL(ROOST_OP_SEND, 0),
				    .num_sge = 1,
				    .sge = {{at(request, 0), len, p->region[request].key}}};

	memcpy(bytes((unsigned)p->queue[client].region, 0), &w, sizeof(w));
	p->queue[client].n = 1;
}

/* A connection that answers the client, and the loop that waits for its receives. */
struct pair {
	unsigned client, answer, loop;
	struct roost_chain_queue answer_image, loop_image;
};

static void add_pair(struct pair *o, uint32_t depth, uint32_t loop_sges, uint32_t answer_depth,
		     uint32_t recv_sges)
{
	o->answer = add_queue("answer", answer_depth, 2);
	add_receive(o->answer, recv_sges);
	o->loop = add_queue("loop", depth, loop_sges);
	watch(o->loop, 0, o->answer, true);
	o->client = add_client(o->answer);
}

static void bind_pair(struct pair *o)
{
	bind();
	o->answer_image = image_of(o->answer);
	o->loop_image = image_of(o->loop);
}

static void post_pair(struct pair *o, const struct roost_sge *sge, uint32_t n, uint32_t len)
{
	post(o->answer, &o->answer_image, 0);
	post(o->loop, &o->loop_image, o->loop_image.depth);
	post_receive(o->answer, sge, n);
	client_sends(o->client, len);
}

/* ---- checks ---- */

static void print_fault(void *ctx, const struct chain_fault *f)
{
	if (ctx)
		print_message("%s: %s: %s\n", (const char *)ctx, chain_fault_names[f->class],
			      f->text);
}

static int faults(const char *name)
{
	const struct chain_check how = {
		.strict = true, .fault = print_fault, .ctx = (void *)(uintptr_t)name};

	return chain_check(p, &how);
}

/* The checker accepts the program, and refuses it when `queue` is not managed. */
static void accepted(const char *name, unsigned queue)
{
	const struct chain_queue kept = p->queue[queue];

	assert_int_equal(faults(name), 0);
	p->queue[queue].managed = false;
	p->queue[queue].start = 0;
	assert_true(faults(NULL) > 0);
	p->queue[queue] = kept;
}

/*
 * Runs the program in the model. No queue fails. Returns the number of WQEs of the server. The
 * caller closes the program.
 */
static unsigned execute(void)
{
	struct chain_model m;
	uint64_t wqes;

	assert_true(model_open(&m, p));
	assert_true(model_run(&m, 10000));
	for (unsigned i = 0; i < p->queues; i++)
		assert_false(m.q[i].failed);
	assert_false(m.open);
	wqes = m.executed - 1; /* the client's SEND */
	model_close(&m);
	return (unsigned)wqes;
}

static void answered_with(unsigned i)
{
	for (unsigned k = 0; k < VALUE; k++)
		assert_int_equal(*(uint8_t *)bytes(reply, k), i + 1);
}

/* ---- tables ---- */

static void fill_table(unsigned buckets)
{
	struct roost_bucket *b = bytes(table, 0);

	for (unsigned i = 0; i < buckets; i++) {
		memset(bytes(table, VALUE_AT + i * VALUE), (int)i + 1, VALUE);
		b[i] = (struct roost_bucket){ROOST_OPERAND(KEY(i)),
					     at(table, VALUE_AT + i * VALUE)};
	}
}

static uint64_t bucket(unsigned i)
{
	return at(table, i * sizeof(struct roost_bucket));
}

static void look_up(void **state)
{
	for (uint32_t buckets = 1; buckets <= ROOST_LOOKUP_BUCKETS; buckets++) {
		struct roost_sge sge[ROOST_LOOKUP_SGES];
		struct roost_lookup l;
		uint64_t at_bucket[2];
		struct pair o;
		uint32_t n;

		open_program();
		add_pair(&o, ROOST_LOOKUP_LOOP(buckets), 1, ROOST_LOOKUP_ANSWER, 3 * buckets + 1);
		bind_pair(&o);
		fill_table(4);
		at_bucket[0] = bucket(buckets == 1 ? 1 : 3);
		at_bucket[1] = bucket(1);
		l = (struct roost_lookup){.loop = {.queue = &o.loop_image, .data = &data},
					  .answer = {.queue = &o.answer_image, .data = &data},
					  .buckets = buckets,
					  .table_key = p->region[table].key,
					  .value_len = VALUE,
					  .reply = ref(reply, 0)};
		roost_lookup_emit(&l, sge, &n);
		post_pair(&o, sge, n,
			  roost_lookup_request(bytes(request, 0), KEY(1), at_bucket, buckets,
					       NUMBER));
		accepted("look-up", o.loop);
		execute();
		assert_int_equal(roost_lookup_result(bytes(reply, VALUE), KEY(1), buckets, NUMBER),
				 ROOST_LOOKUP_HIT);
		answered_with(1);
		chain_free(p);
	}
}

static void look_up_side_by_side(void **state)
{
	struct roost_chain_queue image[3];
	struct roost_sge sge[ROOST_LOOKUP_SGES];
	unsigned answer, loop[2], client;
	struct roost_parallel l;
	uint64_t at_bucket[2];

	open_program();
	answer = add_queue("answer", ROOST_PARALLEL_ANSWER, 2);
	add_receive(answer, ROOST_LOOKUP_SGES);
	for (unsigned i = 0; i < 2; i++) {
		loop[i] = add_queue(i ? "loop1" : "loop0", ROOST_PARALLEL_LOOP, 1);
		watch(loop[i], 0, answer, true);
		watch(answer, i, loop[i], false);
	}
	client = add_client(answer);
	bind();
	fill_table(4);
	image[0] = image_of(loop[0]);
	image[1] = image_of(loop[1]);
	image[2] = image_of(answer);
	at_bucket[0] = bucket(0);
	at_bucket[1] = bucket(2);
	l = (struct roost_parallel){
		.loop = {{.queue = &image[0], .data = &data}, {.queue = &image[1], .data = &data}},
		.answer = {.queue = &image[2], .data = &data},
		.done = {0, 1},
		.table_key = p->region[table].key,
		.value_len = VALUE,
		.reply = ref(reply, 0)};
	roost_parallel_emit(&l, sge);
	post(loop[0], &image[0], image[0].depth);
	post(loop[1], &image[1], image[1].depth);
	post(answer, &image[2], image[2].depth);
	post_receive(answer, sge, ROOST_LOOKUP_SGES);
	client_sends(client, roost_lookup_request(bytes(request, 0), KEY(2), at_bucket, 2, NUMBER));
	accepted("parallel look-up", loop[1]);
	execute();
	assert_int_equal(roost_lookup_result(bytes(reply, VALUE), KEY(2), 2, NUMBER),
			 ROOST_LOOKUP_HIT);
	answered_with(2);
	chain_free(p);
}

static void neighbourhood(void **state)
{
	for (uint32_t buckets = 1; buckets <= ROOST_HOOD_BUCKETS; buckets++) {
		struct roost_sge sge[ROOST_HOOD_SGES(ROOST_HOOD_BUCKETS)];
		struct roost_hood h;
		struct pair o;

		open_program();
		add_pair(&o, ROOST_HOOD_LOOP(buckets), 2 * ROOST_HOOD_BUCKETS, ROOST_LOOKUP_ANSWER,
			 ROOST_HOOD_SGES(buckets));
		bind_pair(&o);
		fill_table(ROOST_HOOD_BUCKETS);
		h = (struct roost_hood){.loop = {.queue = &o.loop_image, .data = &data},
					.answer = {.queue = &o.answer_image, .data = &data},
					.buckets = buckets,
					.table_key = p->region[table].key,
					.value_len = VALUE,
					.reply = ref(reply, 0)};
		roost_hood_emit(&h, sge);
		post_pair(&o, sge, ROOST_HOOD_SGES(buckets),
			  roost_hood_request(bytes(request, 0), KEY(buckets - 1), bucket(0),
					     buckets, NUMBER));
		accepted("neighbourhood", o.loop);
		execute();
		assert_int_equal(
			roost_hood_result(bytes(reply, VALUE), KEY(buckets - 1), buckets, NUMBER),
			ROOST_LOOKUP_HIT);
		answered_with(buckets - 1);
		chain_free(p);
	}
}

#define NODES 8u /* as in RedN's figure 13 */

/* A walk to node `key` of a list of NODES. */
static void walk(unsigned key, bool whole)
{
	static const char *const names[] = {"begin", "walk", "found", "answer"};
	static const uint32_t depth[] = {8, 16, 2, ROOST_LOOKUP_ANSWER};
	struct roost_chain_queue image[4];
	struct roost_sge sge[ROOST_LIST_SGES];
	struct roost_list_node *node;
	unsigned queue[4], client, wqes;
	struct roost_list l;

	open_program();
	for (unsigned i = 0; i < 4; i++)
		queue[i] = add_queue(names[i], depth[i], i == 3 ? 2 : 1);
	add_receive(queue[3], ROOST_LIST_SGES);
	watch(queue[0], 0, queue[3], true);
	client = add_client(queue[3]);
	bind();
	node = bytes(table, 0);
	for (unsigned i = 0; i < NODES; i++) {
		memset(bytes(table, VALUE_AT + i * VALUE), (int)i + 1, VALUE);
		node[i] = (struct roost_list_node){.key = ROOST_OPERAND(KEY(i)),
						   .value = at(table, VALUE_AT + i * VALUE),
						   .next = at(table, (i + 1) * sizeof(*node)),
						   .last = i + 1 == NODES ? ROOST_OPERAND(1) : 0};
	}
	for (unsigned i = 0; i < 4; i++)
		image[i] = image_of(queue[i]);
	l = (struct roost_list){.begin = {.queue = &image[0], .data = &data},
				.walk = {.queue = &image[1], .data = &data},
				.found = {.queue = &image[2], .data = &data},
				.answer = {.queue = &image[3], .data = &data},
				.list_key = p->region[table].key,
				.value_len = VALUE,
				.whole = whole,
				.reply = ref(reply, 0)};
	l.walk.scratch = roost_chain_word(&l.walk, 0);
	roost_list_emit(&l, sge);
	for (unsigned i = 0; i < 4; i++)
		post(queue[i], &image[i], i ? 0 : image[i].depth);
	post_receive(queue[3], sge, ROOST_LIST_SGES);
	client_sends(client, roost_list_request(bytes(request, 0), KEY(key), at(table, 0), NUMBER));
	accepted(whole ? "list without break" : "list with break", queue[1]);
	wqes = execute();
	assert_int_equal(roost_lookup_result(bytes(reply, VALUE), KEY(key), 1, NUMBER),
			 ROOST_LOOKUP_HIT);
	answered_with(key);
	/* begin, a turn for each node, found, answer */
	assert_int_equal(wqes, whole ? 8 + 16 * NODES + 2 : 8 + 16 * (key + 1) + 2 + 2);
	chain_free(p);
}

static void list(void **state)
{
	for (unsigned key = 0; key < NODES; key++) {
		walk(key, false);
		walk(key, true);
	}
}

/* ---- counters and locks ---- */

static void counter(void **state)
{
	struct roost_sge sge[ROOST_COUNTER_SGES];
	struct roost_counter c;
	uint64_t before;
	struct pair o;

	open_program();
	add_pair(&o, ROOST_COUNTER_LOOP, 1, ROOST_LOOKUP_ANSWER, ROOST_COUNTER_SGES);
	bind_pair(&o);
	*(uint64_t *)bytes(table, 8) = 100;
	c = (struct roost_counter){.loop = {.queue = &o.loop_image, .data = &data},
				   .answer = {.queue = &o.answer_image, .data = &data},
				   .counter_key = p->region[table].key,
				   .reply = ref(reply, 0)};
	roost_counter_emit(&c, sge);
	post_pair(&o, sge, ROOST_COUNTER_SGES,
		  roost_counter_request(bytes(request, 0), at(table, 8), 5, NUMBER));
	accepted("counter", o.loop);
	execute();
	assert_true(roost_counter_result(bytes(reply, 0), NUMBER, &before));
	assert_int_equal(before, 100);
	assert_int_equal(*(uint64_t *)bytes(table, 8), 105);
	chain_free(p);
}

static void lock(void **state)
{
	const uint64_t owner = 0x1100000000000011, other = 0x2200000000000022;
	/* an action, the owner before and after it, and the answer */
	static const struct {
		enum roost_lock_action action;
		bool mine, others;
		enum roost_lock_result result;
	} rows[] = {
		{ROOST_LOCK, false, false, ROOST_LOCK_DONE},
		{ROOST_LOCK, false, true, ROOST_LOCK_REFUSED},
		{ROOST_UNLOCK, true, false, ROOST_LOCK_DONE},
		{ROOST_UNLOCK, false, true, ROOST_LOCK_REFUSED},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		const uint64_t before = rows[i].mine ? owner : rows[i].others ? other : 0;
		struct roost_sge sge[ROOST_LOCK_SGES];
		struct roost_lock l;
		struct pair o;

		open_program();
		add_pair(&o, ROOST_LOCK_LOOP, 1, ROOST_LOOKUP_ANSWER, ROOST_LOCK_SGES);
		bind_pair(&o);
		*(uint64_t *)bytes(table, 8) = before;
		l = (struct roost_lock){.loop = {.queue = &o.loop_image, .data = &data},
					.answer = {.queue = &o.answer_image, .data = &data},
					.lock_key = p->region[table].key,
					.owner = owner,
					.reply = ref(reply, 0)};
		roost_lock_emit(&l, sge);
		post_pair(&o, sge, ROOST_LOCK_SGES,
			  roost_lock_request(bytes(request, 0), rows[i].action, at(table, 8),
					     NUMBER));
		accepted("lock", o.loop);
		execute();
		assert_int_equal(roost_lock_result(bytes(reply, 0), rows[i].action, owner, NUMBER),
				 rows[i].result);
		if (rows[i].result == ROOST_LOCK_REFUSED)
			assert_int_equal(*(uint64_t *)bytes(table, 8), before);
		else
			assert_int_equal(*(uint64_t *)bytes(table, 8),
					 rows[i].action == ROOST_LOCK ? owner : 0);
		chain_free(p);
	}
}

/* ---- replication over three nodes ---- */

#define REPLICAS 3u
#define LEN	 200u

static void replication(void **state)
{
	unsigned in[REPLICAS], loop[REPLICAS], out[REPLICAS], store[REPLICAS], client, acks;
	uint64_t to[REPLICAS];
	uint8_t written[LEN];

	open_program();
	for (unsigned i = 0; i < REPLICAS; i++) {
		char name[CHAIN_NAME];

		snprintf(name, sizeof(name), "store%u", i);
		store[i] = add_region(name, CHAIN_DATA, 0, TABLE);
		snprintf(name, sizeof(name), "in%u", i);
		in[i] = add_queue(name, 1, 1);
		p->queue[in[i]].managed = false;
		add_receive(in[i], ROOST_REPLICA_SGES);
		snprintf(name, sizeof(name), "loop%u", i);
		loop[i] = add_queue(name, ROOST_REPLICA_LOOP, 1);
		watch(loop[i], 0, in[i], true);
		snprintf(name, sizeof(name), "out%u", i);
		out[i] = add_queue(name, ROOST_REPLICA_OUT, 1);
		if (i)
			peers(out[i - 1], in[i]);
	}
	client = add_client(in[0]);
	acks = add_queue("acks", 1, 1);
	p->queue[acks].managed = false;
	peers(out[REPLICAS - 1], acks);
	bind();
	for (unsigned i = 0; i < REPLICAS; i++) {
		struct roost_chain_queue lq = image_of(loop[i]), oq = image_of(out[i]);
		const struct roost_replica r = {.loop = {.queue = &lq, .data = &data},
						.out = {.queue = &oq, .data = &data},
						.in = p->queue[in[i]].qp_num,
						.after = REPLICAS - 1 - i,
						.len = LEN,
						.store_key = p->region[store[i]].key,
						.staging = ref(store[i], 2048),
						.ack = ref(reply, 0)};
		struct roost_sge sge[ROOST_REPLICA_SGES];

		roost_replica_emit(&r, sge);
		post(loop[i], &lq, lq.depth);
		post(out[i], &oq, 0);
		post_receive(in[i], sge, ROOST_REPLICA_SGES);
		to[i] = at(store[i], 8 * i);
	}
	for (unsigned k = 0; k < LEN; k++)
		written[k] = (uint8_t)(3 * k + 1);
	client_sends(client,
		     roost_replica_request(bytes(request, 0), to, REPLICAS, NUMBER, written, LEN));
	accepted("replication", loop[1]);
	assert_false(roost_replica_done(bytes(reply, 0), NUMBER));
	execute();
	assert_true(roost_replica_done(bytes(reply, 0), NUMBER));
	for (unsigned i = 0; i < REPLICAS; i++)
		assert_memory_equal(bytes(store[i], 8 * i), written, LEN);
	chain_free(p);
}

/* ---- a cache ---- */

#define ITEMS 8192u

static const struct roost_cache_shape shape = {
	.seed = 99, .log_buckets = 4, .key_bits = 48, .max_item = 512};

/* An item is its head, a key of 8 bytes, and a value. */
static void publish(struct roost_cache *c, const char key[8])
{
	struct roost_cache_item *item = roost_cache_memory(c);
	uint8_t *k = (uint8_t *)(item + 1);

	item->key_at = sizeof(*item);
	item->key_len = 8;
	item->value_at = sizeof(*item) + 8;
	item->value_len = VALUE;
	memcpy(k, key, 8);
	memset(k + 8, 3, VALUE);
	assert_int_equal(roost_cache_publish(c, item, 0), 0);
}

static void cache(void **state)
{
	static struct roost_cache c;
	const char key[] = "a client";
	const struct roost_cache_item *item;
	struct roost_sge sge[ROOST_CACHE_SGES];
	struct roost_cache_get get = {0};
	struct roost_cache_chain chain;
	unsigned index, items;
	struct pair o;

	open_program();
	index = add_region("index", CHAIN_DATA, 0, (uint32_t)roost_cache_index_len(&shape));
	items = add_region("items", CHAIN_DATA, 0, ITEMS);
	add_pair(&o, ROOST_CACHE_LOOP, 3, ROOST_CACHE_ANSWER, ROOST_CACHE_SGES);
	bind_pair(&o);
	p->region[index].addr = p->region[items].addr = 0; /* addresses are offsets */
	assert_int_equal(roost_cache_format(bytes(index, 0), &shape, ITEMS), 0);
	assert_int_equal(roost_cache_begin(&c, bytes(index, 0), bytes(items, 0)), 0);
	publish(&c, key);
	roost_cache_serve(&c);
	chain = (struct roost_cache_chain){.loop = {.queue = &o.loop_image, .data = &data},
					   .answer = {.queue = &o.answer_image, .data = &data},
					   .index_key = p->region[index].key,
					   .items_key = p->region[items].key,
					   .reply = ref(reply, 0)};
	roost_cache_emit(&chain, sge);
	roost_cache_get_start(&get, &shape, key, 8);
	roost_cache_get_request(&get, bytes(request, 0));
	post_pair(&o, sge, ROOST_CACHE_SGES, sizeof(struct roost_cache_request));
	accepted("cache", o.loop);
	execute();
	assert_int_equal(roost_cache_get_result(&get, bytes(reply, 0), 1, &item), ROOST_CACHE_HIT);
	assert_int_equal(item->value_len, VALUE);
	assert_int_equal(*(const uint8_t *)roost_cache_item_value(item), 3);
	chain_free(p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(look_up),	 cmocka_unit_test(look_up_side_by_side),
		cmocka_unit_test(neighbourhood), cmocka_unit_test(list),
		cmocka_unit_test(counter),	 cmocka_unit_test(lock),
		cmocka_unit_test(replication),	 cmocka_unit_test(cache),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
