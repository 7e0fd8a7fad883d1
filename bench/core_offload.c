/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Rows of bench_core: the orders of WQEs, and offloads that eight clients use at once, each with
 * one request under way. Values are checked. READs do the same work beside them: one READ of the
 * value (the ideal), FaRM's way, a READ of six buckets and one of the value, and a READ for each
 * node of a list.
 */
#include "core_offload.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "roost/chain_atomic.h"
#include "roost/chain_hopscotch.h"
#include "roost/chain_list.h"
#include "roost/chain_parallel.h"

#define CLIENTS 8u
#define HOOD	6u
#define NODES	8u
#define SLOT	(80u << 10) /* of a client in its node's memory: reply, request behind it */
#define TABLE	NODE_DATA   /* offset of buckets or list nodes in the server's memory */
#define VALUES	(TABLE + (16u << 10))

/* ---- orders ---- */

enum order { QUEUE_ORDER, COMPLETION_ORDER, DOORBELL_ORDER };

#define BATCH 256u

/* ns for `batch` NOPs, at most BATCH, and the WQEs that order them, with one doorbell. */
static double orders(struct node *n, enum order order, uint32_t batch, double seconds)
{
	const uint32_t wqes = order == QUEUE_ORDER ? batch : 2 * batch;
	const struct roost_wqe nop = roost_wqe_nop();
	struct queue *q = calloc(1, sizeof(*q)), *managed = calloc(1, sizeof(*managed));
	struct roost_wqe signaled = nop;
	double start, t;
	uint64_t done = 0;

	signaled.flags = ROOST_WQE_SIGNALED;
	queue_open(managed, n, BATCH, 6, (struct nic_chain_attr){.managed_send = true});
	queue_connect(managed, managed);
	queue_open(q, n, 2 * BATCH, 6, (struct nic_chain_attr){.watch = {managed->cq}});
	queue_connect(q, q);
	for (uint32_t i = 0; i < 2 * BATCH; i++) {
		const struct roost_wqe second = order == COMPLETION_ORDER ? roost_wqe_wait(3, 1)
						: order == DOORBELL_ORDER ? roost_wqe_wait(0, 1)
									  : nop;

		if (order == DOORBELL_ORDER)
			q->ring[i] = i % 2 ? second
					   : roost_wqe_enable(ROOST_OP_ENABLE,
							      nic_qp_num(managed->qp), 1);
		else
			q->ring[i] = i % 2 ? second : order == COMPLETION_ORDER ? signaled : nop;
		managed->ring[i % BATCH] = signaled;
	}
	atomic_store(&managed->si.prod, BATCH);
	nic_doorbell(n->nic, managed->qp);
	for (start = t = node_cpu_ns(); t - start < seconds * 1e9; t = node_cpu_ns()) {
		const uint32_t end = atomic_load(&q->si.prod) + wqes;

		atomic_store(&q->si.prod, end);
		nic_doorbell(n->nic, q->qp);
		while (atomic_load(&q->si.cons) != end)
			node_poll(n);
		done++;
	}
	queue_close(q);
	queue_close(managed);
	return (t - start) / (double)done;
}

/* ---- offloads ---- */

enum kind {
	LOOKUP,
	SECOND, /* two buckets one after the other; the second one has the key */
	PARALLEL,
	HOPSCOTCH,
	COUNTER,
	LIST,
	LIST_WHOLE,
	READ_VALUE,
	READ_TWICE,
	READ_LIST
};

struct client {
	struct queue near, conn, loop[3];
	uint8_t *reply, *request;
	uint64_t number, turn;
	uint32_t posted, reads; /* READs of this look-up that are done */
};

struct bench {
	struct node *near, *server;
	enum kind kind;
	uint32_t value_len;
	uint32_t range; /* of the keys, that many of the first ones */
	struct roost_chain_data data;
	struct client *client;
};

static bool is_read(enum kind kind)
{
	return kind == READ_VALUE || kind == READ_TWICE || kind == READ_LIST;
}

static bool is_list(enum kind kind)
{
	return kind == LIST || kind == LIST_WHOLE || kind == READ_LIST;
}

static uint64_t key_of(uint64_t i)
{
	return 0x770000000000ull + i;
}

static void fill(const struct bench *b)
{
	struct roost_bucket *bucket = (struct roost_bucket *)(b->server->mem + TABLE);
	struct roost_list_node *node = (struct roost_list_node *)(b->server->mem + TABLE);

	for (uint64_t i = 0; i < NODES; i++) {
		uint8_t *value = b->server->mem + VALUES + i * b->value_len;

		memset(value, (int)i + 1, b->value_len);
		if (is_list(b->kind))
			node[i] = (struct roost_list_node){
				ROOST_OPERAND(key_of(i)), (uintptr_t)value, (uintptr_t)&node[i + 1],
				i + 1 == NODES ? ROOST_OPERAND(1) : 0};
		else
			bucket[i] =
				(struct roost_bucket){ROOST_OPERAND(key_of(i)), (uintptr_t)value};
	}
}

static uint64_t which(const struct bench *b, const struct client *c)
{
	return c->turn % b->range;
}

static void loop_queue(const struct bench *b, struct queue *q, uint32_t depth, uint8_t shift,
		       struct nic_cq *watch)
{
	queue_open(q, b->server, depth, shift,
		   (struct nic_chain_attr){.managed_send = true, .watch = {watch}});
	queue_connect(q, q);
}

static struct roost_chain chain_of(struct bench *b, struct queue *q)
{
	return (struct roost_chain){.queue = &q->image, .data = &b->data};
}

static void emit_pair(struct bench *b, struct client *c, struct roost_ref reply,
		      struct roost_sge *sge, uint32_t *n)
{
	if (b->kind == COUNTER) {
		loop_queue(b, &c->loop[0], ROOST_COUNTER_LOOP, 6, c->conn.cq);
		roost_counter_emit(&(struct roost_counter){.loop = chain_of(b, &c->loop[0]),
							   .answer = chain_of(b, &c->conn),
							   .counter_key = b->server->key,
							   .reply = reply},
				   sge);
		*n = ROOST_COUNTER_SGES;
		return;
	}
	if (b->kind == LOOKUP || b->kind == SECOND) {
		const uint32_t buckets = b->kind == LOOKUP ? 1 : 2;

		loop_queue(b, &c->loop[0], ROOST_LOOKUP_LOOP(buckets), 6, c->conn.cq);
		roost_lookup_emit(&(struct roost_lookup){.loop = chain_of(b, &c->loop[0]),
							 .answer = chain_of(b, &c->conn),
							 .buckets = buckets,
							 .table_key = b->server->key,
							 .value_len = b->value_len,
							 .reply = reply},
				  sge, n);
		return;
	}
	loop_queue(b, &c->loop[0], ROOST_HOOD_LOOP(HOOD), 9, c->conn.cq);
	roost_hood_emit(&(struct roost_hood){.loop = chain_of(b, &c->loop[0]),
					     .answer = chain_of(b, &c->conn),
					     .buckets = HOOD,
					     .table_key = b->server->key,
					     .value_len = b->value_len,
					     .reply = reply},
			sge);
	*n = ROOST_HOOD_SGES(HOOD);
}

static void emit_list(struct bench *b, struct client *c, struct roost_ref reply,
		      struct roost_sge *sge, uint32_t *n)
{
	struct roost_list l = {.list_key = b->server->key,
			       .value_len = b->value_len,
			       .whole = b->kind == LIST_WHOLE,
			       .reply = reply};

	loop_queue(b, &c->loop[0], 8, 6, c->conn.cq);
	loop_queue(b, &c->loop[1], 16, 6, NULL);
	loop_queue(b, &c->loop[2], 2, 6, NULL);
	l.begin = chain_of(b, &c->loop[0]);
	l.walk = chain_of(b, &c->loop[1]);
	l.found = chain_of(b, &c->loop[2]);
	l.answer = chain_of(b, &c->conn);
	l.walk.scratch = roost_chain_word(&l.walk, 0);
	roost_list_emit(&l, sge);
	*n = ROOST_LIST_SGES;
}

/* The connection watches the loops, and these watch it by a CQ that is made before: `inbox`. */
static void emit_parallel(struct bench *b, struct client *c, struct roost_ref reply,
			  struct roost_sge *sge, uint32_t *n)
{
	struct roost_parallel l = {.done = {1, 2},
				   .watch = {0, 0},
				   .table_key = b->server->key,
				   .value_len = b->value_len,
				   .reply = reply};

	for (unsigned i = 0; i < 2; i++)
		l.loop[i] = chain_of(b, &c->loop[i]);
	l.answer = chain_of(b, &c->conn);
	roost_parallel_emit(&l, sge);
	*n = ROOST_LOOKUP_SGES;
}

static void open_conn(struct bench *b, struct client *c)
{
	struct nic_chain_attr attr = {.managed_send = true, .managed_recv = true};

	if (is_read(b->kind)) {
		queue_open(&c->conn, b->server, 4, 6, (struct nic_chain_attr){0});
	} else if (b->kind == PARALLEL) {
		struct nic_cq_attr cq = {.index = &c->loop[2].ci};

		node_check(nic_cq_create(b->server->nic, &cq, &c->loop[2].cq));
		for (unsigned i = 0; i < 2; i++)
			queue_open(&c->loop[i], b->server, ROOST_PARALLEL_LOOP, 6,
				   (struct nic_chain_attr){.managed_send = true,
							   .watch = {c->loop[2].cq}});
		attr.watch[1] = c->loop[0].cq;
		attr.watch[2] = c->loop[1].cq;
		c->conn.recv_cq = c->loop[2].cq;
		queue_open(&c->conn, b->server, ROOST_PARALLEL_ANSWER, 7, attr);
	} else {
		queue_open(&c->conn, b->server, ROOST_LOOKUP_ANSWER, 7, attr);
	}
	queue_connect(&c->near, &c->conn);
	queue_connect(&c->conn, &c->near);
	/* The wire has one path for all: the connection comes first, as its source is checked. */
	for (unsigned i = 0; i < 2 && b->kind == PARALLEL; i++)
		queue_connect(&c->loop[i], &c->loop[i]);
}

static void open_client(struct bench *b, uint32_t id)
{
	struct client *c = &b->client[id];
	struct roost_recv_wqe *recv = (void *)c->conn.recv;
	struct roost_ref reply;
	struct roost_sge sge[16];
	uint32_t n = 0;

	c->reply = b->near->mem + NODE_DATA + (size_t)id * SLOT;
	c->request = c->reply + SLOT - 1024;
	c->turn = id;
	reply = (struct roost_ref){(uintptr_t)c->reply, b->near->key};
	queue_open(&c->near, b->near, 64, 6, (struct nic_chain_attr){0});
	open_conn(b, c);
	if (b->kind == PARALLEL)
		emit_parallel(b, c, reply, sge, &n);
	else if (b->kind == LIST || b->kind == LIST_WHOLE)
		emit_list(b, c, reply, sge, &n);
	else if (!is_read(b->kind))
		emit_pair(b, c, reply, sge, &n);
	if (!n)
		return;
	recv->num_sge = n;
	memcpy(recv->sge, sge, n * sizeof(sge[0]));
	atomic_store(&c->conn.ri.prod, 1);
	for (unsigned i = 0; i < 3; i++)
		if (c->loop[i].qp)
			queue_publish(&c->loop[i]);
	queue_publish(&c->conn);
	queue_start(b->server, &c->conn, 1, &c->loop[0], c->loop[0].image.depth);
	if (b->kind == PARALLEL) {
		queue_start(b->server, NULL, 0, &c->loop[1], ROOST_PARALLEL_LOOP);
		queue_start(b->server, NULL, 0, &c->conn, ROOST_PARALLEL_ANSWER);
	}
}

static void post(struct bench *b, struct client *c, struct roost_wqe w)
{
	c->near.ring[c->posted % 64] = w;
	atomic_store(&c->near.si.prod, ++c->posted);
	nic_doorbell(b->near->nic, c->near.qp);
}

static void read_from(struct bench *b, struct client *c, uint64_t offset, uint32_t len)
{
	post(b, c,
	     roost_wqe_read((struct roost_ref){(uintptr_t)c->reply, b->near->key},
			    (struct roost_ref){(uintptr_t)b->server->mem + offset, b->server->key},
			    len));
}

static void ask(struct bench *b, struct client *c)
{
	const uint64_t table = (uintptr_t)b->server->mem + TABLE, i = which(b, c);
	struct roost_wqe w = {.ctrl = ROOST_CTRL(ROOST_OP_SEND, 0), .num_sge = 1};
	uint64_t bucket[2];
	uint32_t len = 0;

	c->number++;
	switch (b->kind) {
	case LOOKUP:
		bucket[0] = table + i * 16;
		len = roost_lookup_request((void *)c->request, key_of(i), bucket, 1, c->number);
		break;
	case SECOND:
	case PARALLEL:
		bucket[0] = table + (i + 1) % HOOD * 16;
		bucket[1] = table + i * 16;
		len = roost_lookup_request((void *)c->request, key_of(i), bucket, 2, c->number);
		break;
	case HOPSCOTCH:
		len = roost_hood_request((void *)c->request, key_of(i), table, HOOD, c->number);
		break;
	case COUNTER:
		len = roost_counter_request((void *)c->request, table, 1, c->number);
		break;
	case LIST:
	case LIST_WHOLE:
		len = roost_list_request((void *)c->request, key_of(i), table, c->number);
		break;
	case READ_VALUE:
	case READ_TWICE:
		c->reads = b->kind == READ_VALUE;
		if (c->reads)
			read_from(b, c, VALUES + i * b->value_len, b->value_len);
		else
			read_from(b, c, TABLE, HOOD * 16);
		return;
	case READ_LIST:
		c->reads = 0;
		read_from(b, c, TABLE, sizeof(struct roost_list_node));
		return;
	}
	w.sge[0] = (struct roost_sge){(uintptr_t)c->request, len, b->near->key};
	post(b, c, w);
}

/* Returns true if the request is answered. */
static bool answered(struct bench *b, struct client *c)
{
	const uint8_t *end = c->reply + b->value_len;
	uint64_t before;

	switch (b->kind) {
	case LOOKUP:
		return roost_lookup_result((const void *)end, key_of(which(b, c)), 1, c->number) ==
		       ROOST_LOOKUP_HIT;
	case SECOND:
	case PARALLEL:
		return roost_lookup_result((const void *)end, key_of(which(b, c)), 2, c->number) ==
		       ROOST_LOOKUP_HIT;
	case HOPSCOTCH:
		return roost_hood_result((const void *)end, key_of(which(b, c)), HOOD, c->number) ==
		       ROOST_LOOKUP_HIT;
	case COUNTER:
		return roost_counter_result((const void *)c->reply, c->number, &before);
	case LIST:
	case LIST_WHOLE:
		return roost_lookup_result((const void *)end, key_of(which(b, c)), 1, c->number) ==
		       ROOST_LOOKUP_HIT;
	case READ_VALUE:
	case READ_TWICE:
		if (atomic_load(&c->near.si.cons) != c->posted)
			return false;
		if (c->reads++)
			return true;
		read_from(b, c, VALUES + which(b, c) * b->value_len, b->value_len);
		return false;
	case READ_LIST: /* the nodes up to that of the key, then the value */
		if (atomic_load(&c->near.si.cons) != c->posted)
			return false;
		c->reads++;
		if (c->reads > which(b, c) + 1)
			return true;
		if (c->reads == which(b, c) + 1)
			read_from(b, c, VALUES + which(b, c) * b->value_len, b->value_len);
		else
			read_from(b, c, TABLE + c->reads * sizeof(struct roost_list_node),
				  sizeof(struct roost_list_node));
		return false;
	}
	return false;
}

static void check_value(const struct bench *b, const struct client *c)
{
	if (b->kind != COUNTER &&
	    (c->reply[0] != which(b, c) + 1 || c->reply[b->value_len - 1] != which(b, c) + 1)) {
		fprintf(stderr, "bench_core: a wrong value\n");
		exit(1);
	}
}

static void close_client(struct client *c)
{
	nic_qp_destroy(c->near.node->nic, c->near.qp);
	nic_qp_destroy(c->conn.node->nic, c->conn.qp);
	for (unsigned i = 0; i < 3; i++)
		if (c->loop[i].qp)
			nic_qp_destroy(c->conn.node->nic, c->loop[i].qp);
}

/* Takes the answers that are still to come. */
static void drain(struct bench *b)
{
	for (int i = 0; i < 1000; i++) {
		node_poll(b->near);
		node_poll(b->server);
		for (uint32_t k = 0; k < CLIENTS; k++)
			answered(b, &b->client[k]);
	}
}

/* ns for each request, of both sides. */
static double offload(struct node *near, struct node *server, enum kind kind, uint32_t value_len,
		      uint32_t range, double seconds)
{
	struct bench b = {
		.near = near,
		.server = server,
		.kind = kind,
		.value_len = value_len,
		.range = range,
		.data = {.at = {(uintptr_t)server->mem, server->key},
			 .image = server->mem,
			 .size = NODE_DATA},
		.client = calloc(CLIENTS, sizeof(struct client)),
	};
	uint64_t done = 0;
	double start, t;

	fill(&b);
	for (uint32_t i = 0; i < CLIENTS; i++)
		open_client(&b, i);
	for (uint32_t i = 0; i < CLIENTS; i++)
		ask(&b, &b.client[i]);
	for (start = t = node_cpu_ns(); t - start < seconds * 1e9; t = node_cpu_ns())
		for (int k = 0; k < 64; k++) {
			node_poll(near);
			node_poll(server);
			for (uint32_t i = 0; i < CLIENTS; i++) {
				struct client *c = &b.client[i];

				if (!answered(&b, c))
					continue;
				check_value(&b, c);
				done++;
				c->turn++;
				ask(&b, c);
			}
		}
	drain(&b);
	for (uint32_t i = 0; i < CLIENTS; i++)
		close_client(&b.client[i]);
	if (!done) {
		fprintf(stderr, "bench_core: no answers of offload %d\n", kind);
		exit(1);
	}
	return (t - start) / (double)done;
}

void offload_rows(struct node *near, struct node *server, double seconds,
		  void (*print)(const char *op, uint32_t size, double ns))
{
	static const uint32_t sizes[] = {64, 256, 1024, 4096, 16384, 65536},
			      lengths[] = {1, 2, 4, 8, 16, 32, 64, 256};
	static const struct {
		const char *op;
		enum kind kind;
	} sized[] = {{"read_value", READ_VALUE},   {"read_twice", READ_TWICE},
		     {"chain_one", LOOKUP},	   {"chain_second", SECOND},
		     {"chain_parallel", PARALLEL}, {"chain_hopscotch", HOPSCOTCH}},
	  lists[] = {
		  {"read_list", READ_LIST}, {"chain_list", LIST}, {"chain_list_whole", LIST_WHOLE}};

	for (unsigned i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
		const uint32_t n = lengths[i];

		print("order_queue", n, orders(server, QUEUE_ORDER, n, seconds));
		print("order_completion", n, orders(server, COMPLETION_ORDER, n, seconds));
		print("order_doorbell", n, orders(server, DOORBELL_ORDER, n, seconds));
	}
	for (unsigned i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
		for (unsigned k = 0; k < sizeof(sized) / sizeof(sized[0]); k++)
			print(sized[k].op, sizes[i],
			      offload(near, server, sized[k].kind, sizes[i], HOOD, seconds));
	print("chain_counter", 8, offload(near, server, COUNTER, 64, HOOD, seconds));
	for (uint32_t range = 1; range <= NODES; range++)
		for (unsigned k = 0; k < sizeof(lists) / sizeof(lists[0]); k++)
			print(lists[k].op, range,
			      offload(near, server, lists[k].kind, 64, range, seconds));
}
