/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The rows of chains in bench_core: a loop-back WQE, an `if`, a turn of a recycled loop, and
 * look-ups of 20,000 keys in 65,536 buckets by eight clients over the wire of bench_core, beside
 * the same SENDs and WRITEs without a chain. No program posts to the chains while they are
 * measured.
 */
#include "core_chain.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core_node.h"
#include "core_offload.h"
#include "roost/chain_lookup.h"

#define DATA	NODE_DATA
#define CLIENTS 8
#define BUCKETS (1u << 16)
#define VALUE	64u

/* A turn of this length was interrupted by another program. Its time does not count. */
#define INTERRUPTED_NS 50000

/* The duration of an interval without work. */
static double empty_ns(void)
{
	double sum = 0, before;

	for (int i = 0; i < 10000; i++) {
		before = node_time_ns();
		sum += node_time_ns() - before;
	}
	return sum / 10000;
}

static bool first_row;

static void print(const char *op, uint32_t size, double ns)
{
	printf("%s\n  {\"op\": \"%s\", \"size\": %u, \"posted\": 0, \"ns\": %.1f}",
	       first_row ? "" : ",", op, size, ns);
	first_row = false;
}

/* ---- loop-back ---- */

#define MAX_UNITS 4u

enum program { WRITES, READS, CASES, ADDS, MAXES, IFS, BREAKS, LOOP, PROGRAMS };

static uint32_t emit(struct roost_chain *c, enum program p)
{
	struct roost_ref x = roost_chain_word(c, ROOST_OPERAND(5)),
			 y = roost_chain_word(c, ROOST_OPERAND(0)), z = roost_chain_word(c, 0);

	const struct roost_ref to = roost_ref_at(c->data->at, 4096),
			       from = roost_ref_at(c->data->at, 8192);
	uint64_t *count;

	switch (p) {
	case WRITES:
	case READS:
	case CASES:
	case ADDS:
	case MAXES:
		for (int i = 0; i < 63; i++)
			roost_chain_emit(c, p == WRITES	 ? roost_wqe_write(to, from, 64)
					    : p == READS ? roost_wqe_read(to, from, 64)
					    : p == CASES
						    ? roost_wqe_cas(z, 0, 0, c->scratch)
						    : roost_wqe_calc(p == ADDS ? ROOST_OP_FETCH_ADD
									       : ROOST_OP_MAX,
								     z, 1, c->scratch));
		break;
	case BREAKS: /* 16 turns of a body of one WQE, each enables the next one */
		for (int i = 0; i < 16; i++) {
			roost_chain_emit(c, roost_wqe_calc(ROOST_OP_FETCH_ADD, z, 1, c->scratch));
			count = roost_chain_break(c, x, roost_constant(6));
			if (count)
				*count = 4;
		}
		return c->queue->n;
	case IFS:
		roost_chain_if(c, x, ROOST_EQ, roost_constant(5), roost_wqe_write(y, z, 8));
		break;
	case LOOP: /* the loop of docs/chains.md */
		roost_chain_emit(
			c, roost_wqe_calc(ROOST_OP_FETCH_ADD, y, ROOST_OPERAND(1), c->scratch));
		roost_chain_emit(c, roost_wqe_write(ROOST_FIELD(c->queue, 2, swap_add), y, 8));
		roost_chain_emit(c, roost_wqe_calc(ROOST_OP_FETCH_ADD, z, 0, c->scratch));
		roost_chain_loop_end(c, y, ROOST_GE, roost_constant(0xffffffffffff),
				     roost_wqe_nop());
		return 8;
	case PROGRAMS:
		break;
	}
	roost_chain_emit(c, roost_wqe_enable(ROOST_OP_ENABLE, c->queue->qp_num, c->queue->depth));
	return c->queue->n;
}

/* A program in a ring of a processing unit, which goes round without end. */
struct turns {
	struct node *n;
	struct queue *q, *starter;
	uint32_t depth, parts;
	double seconds;
	double ns; /* per turn of the ring, divided by `parts` */
};

static void turns_open(struct turns *r, enum program p)
{
	struct roost_chain_data data = {
		.at = {(uintptr_t)r->n->mem, r->n->key}, .image = r->n->mem, .size = DATA};
	struct roost_chain c = {.data = &data}, s = {.data = &data};

	r->q = calloc(1, sizeof(*r->q));
	r->starter = calloc(1, sizeof(*r->starter));
	queue_open(r->q, r->n, r->depth, 6, (struct nic_chain_attr){.managed_send = true});
	queue_connect(r->q, r->q);
	queue_open(r->starter, r->n, 1, 6, (struct nic_chain_attr){0});
	queue_connect(r->starter, r->starter);
	c.queue = &r->q->image;
	c.scratch = roost_chain_word(&c, 0);
	if (emit(&c, p) != r->depth)
		abort();
	s.queue = &r->starter->image;
	roost_chain_emit(
		&s, roost_wqe_enable(ROOST_OP_ENABLE, c.queue->qp_num, p == BREAKS ? 4 : r->depth));
	queue_publish(r->q);
	queue_publish(r->starter);
}

/* Runs the processing unit. */
static void *turns_run(void *arg)
{
	struct turns *r = arg;
	uint64_t wqes = 0;
	double start, t;
	uint32_t before, now;

	for (int i = 0; i < 1000; i++)
		node_poll(r->n);
	before = atomic_load(&r->q->si.cons);
	for (start = t = node_cpu_ns(); t - start < r->seconds * 1e9; t = node_cpu_ns()) {
		for (int i = 0; i < 64; i++)
			node_poll(r->n);
		now = atomic_load(&r->q->si.cons);
		wqes += now - before;
		before = now;
	}
	r->ns = (t - start) / (double)wqes * r->depth / r->parts;
	return NULL;
}

static void turns_close(struct turns *r)
{
	nic_qp_destroy(r->n->nic, r->q->qp);
	nic_qp_destroy(r->n->nic, r->starter->qp);
}

static double run(struct node *n, enum program p, uint32_t depth, double seconds, uint32_t parts)
{
	struct turns r = {.n = n, .depth = depth, .parts = parts, .seconds = seconds};

	turns_open(&r, p);
	turns_run(&r);
	turns_close(&r);
	return r.ns;
}

/*
 * Runs the program on each unit of a NIC at once, by a thread for each. Returns the ns by the rate
 * of all units together, with the processor time of each thread: as if each had a core.
 */
static double run_units(struct node *units, unsigned count, enum program p, uint32_t depth,
			double seconds, uint32_t parts)
{
	struct turns r[MAX_UNITS];
	pthread_t thread[MAX_UNITS];
	double rate = 0;

	for (unsigned i = 0; i < count; i++) {
		r[i] = (struct turns){
			.n = &units[i], .depth = depth, .parts = parts, .seconds = seconds};
		turns_open(&r[i], p);
	}
	for (unsigned i = 0; i < count; i++)
		node_check(-pthread_create(&thread[i], NULL, turns_run, &r[i]));
	for (unsigned i = 0; i < count; i++) {
		pthread_join(thread[i], NULL);
		rate += 1 / r[i].ns;
	}
	for (unsigned i = 0; i < count; i++)
		turns_close(&r[i]);
	return 1 / rate;
}

/* ---- look-ups ---- */

struct client {
	struct queue near, conn, loop;
	struct roost_lookup_request *request;
	uint8_t *reply;
	uint64_t key, number;
	uint32_t posted;
	/* without a chain: what the server's program has received, the end of its answers */
	struct roost_lookup_request *in;
	struct roost_lookup_end *end;
	uint32_t answers;
};

static uint64_t hash(uint64_t key, unsigned i)
{
	return (key * (i ? 0x9e3779b97f4a7c15 : 0xc2b2ae3d27d4eb4f)) >> 48;
}

static struct roost_bucket *bucket(struct node *server, uint64_t key, unsigned i)
{
	return (struct roost_bucket *)(server->mem + DATA) + hash(key, i);
}

/* The limit: the same messages, but the server's program takes each SEND and posts the WRITE. */
#define NO_CHAIN 0

static void client_open_plain(struct client *c, struct node *near, struct node *server, uint32_t id)
{
	struct roost_recv_wqe *recv = (void *)c->conn.recv;

	queue_open(&c->near, near, 64, 6, (struct nic_chain_attr){0});
	queue_open(&c->conn, server, ROOST_LOOKUP_ANSWER, 7, (struct nic_chain_attr){0});
	queue_connect(&c->near, &c->conn);
	queue_connect(&c->conn, &c->near);
	c->in = (void *)(server->mem + 256 * id);
	c->end = (void *)(server->mem + 256 * id + 128);
	memset(c->in, 0, 256);
	recv->num_sge = 1;
	recv->sge[0] = (struct roost_sge){(uintptr_t)c->in, sizeof(*c->in), server->key};
	atomic_store(&c->conn.ri.prod, 1);
}

/* The server's program: answers a request that has come, and posts its receive again. */
static void answer(struct client *c, const struct node *near, const struct node *server)
{
	const struct roost_bucket *b;
	struct roost_wqe *w = (void *)((char *)c->conn.ring + (c->answers % 2 << 7));
	const uint64_t number = __atomic_load_n(&c->in->word[3], __ATOMIC_ACQUIRE);

	if (number == c->end->number)
		return;
	b = (const struct roost_bucket *)(uintptr_t)c->in->word[1];
	c->end->found[0] = b->key;
	c->end->number = number;
	*w = (struct roost_wqe){.ctrl = ROOST_CTRL(ROOST_OP_WRITE, 0),
				.num_sge = 2,
				.raddr = (uintptr_t)c->reply,
				.rkey = near->key};
	w->sge[0] = (struct roost_sge){(uintptr_t)b->value, b->key == c->in->word[0] ? VALUE : 0,
				       server->key};
	w->sge[1] = (struct roost_sge){(uintptr_t)c->end, sizeof(*c->end), server->key};
	atomic_store(&c->conn.ri.prod, ++c->answers + 1);
	atomic_store(&c->conn.si.prod, c->answers);
	nic_doorbell(server->nic, c->conn.qp);
}

static void client_open(struct client *c, struct node *near, struct node *server,
			struct roost_chain_data *data, uint32_t id, uint32_t buckets)
{
	struct roost_lookup l = {.buckets = buckets,
				 .table_key = server->key,
				 .value_len = VALUE,
				 .reply = {(uintptr_t)near->mem + 4096 * (id + 1), near->key}};
	struct nic_chain_attr attr = {.managed_send = true, .managed_recv = true};
	struct roost_recv_wqe *recv = (void *)c->conn.recv;
	struct roost_sge sge[ROOST_LOOKUP_SGES];
	struct queue starter = {0};
	struct roost_chain s;
	uint32_t n;

	c->reply = near->mem + 4096 * (id + 1);
	c->request = (void *)(near->mem + 4096 * (id + 1) + 2048);
	if (buckets == NO_CHAIN) {
		client_open_plain(c, near, server, id);
		return;
	}
	queue_open(&c->near, near, 64, 6, (struct nic_chain_attr){0});
	queue_open(&c->conn, server, ROOST_LOOKUP_ANSWER, 7, attr);
	attr.managed_recv = false;
	attr.watch[0] = c->conn.cq;
	queue_open(&c->loop, server, ROOST_LOOKUP_LOOP(buckets), 6, attr);
	queue_open(&starter, server, 2, 6, (struct nic_chain_attr){0});
	queue_connect(&c->near, &c->conn);
	queue_connect(&c->conn, &c->near);
	queue_connect(&c->loop, &c->loop);
	queue_connect(&starter, &starter);
	l.loop = (struct roost_chain){.queue = &c->loop.image, .data = data};
	l.answer = (struct roost_chain){.queue = &c->conn.image, .data = data};
	roost_lookup_emit(&l, sge, &n);
	recv->num_sge = n;
	memcpy(recv->sge, sge, n * sizeof(sge[0]));
	atomic_store(&c->conn.ri.prod, 1);
	queue_publish(&c->loop);
	queue_publish(&c->conn);
	s = (struct roost_chain){.queue = &starter.image, .data = data};
	roost_chain_emit(&s, roost_wqe_enable(ROOST_OP_RECV_ENABLE, nic_qp_num(c->conn.qp), 1));
	roost_chain_emit(
		&s, roost_wqe_enable(ROOST_OP_ENABLE, nic_qp_num(c->loop.qp), c->loop.image.depth));
	queue_publish(&starter);
	node_poll(server);
	nic_qp_destroy(server->nic, starter.qp);
}

static void ask(struct client *c, struct node *near, struct node *server, uint32_t buckets,
		uint64_t key)
{
	uint64_t addr[2] = {(uintptr_t)bucket(server, key, 0), (uintptr_t)bucket(server, key, 1)};
	struct roost_wqe *w = &c->near.ring[c->posted % 64];
	uint32_t len = roost_lookup_request(c->request, key, addr, buckets, ++c->number);

	c->key = key;
	*w = (struct roost_wqe){.ctrl = ROOST_CTRL(ROOST_OP_SEND, 0),
				.num_sge = 1,
				.sge = {{(uintptr_t)c->request, len, near->key}}};
	atomic_store(&c->near.si.prod, ++c->posted);
	nic_doorbell(near->nic, c->near.qp);
}

/*
 * Keys whose first bucket has them, or with two buckets the second. NO_CHAIN: the limit. Returns
 * the time for each look-up, of both sides or of the server's processing unit. It ends after about
 * `most` look-ups instead of `seconds` if that is not 0.
 */
static double look_ups(struct node *near, struct node *server, uint32_t chain, double seconds,
		       uint64_t most, bool server_only)
{
	const uint32_t buckets = chain == NO_CHAIN ? 1 : chain;
	struct roost_chain_data data = {
		.at = {(uintptr_t)server->mem, server->key}, .image = server->mem, .size = DATA};
	struct client *clients = calloc(CLIENTS, sizeof(*clients));
	uint8_t *values = server->mem + DATA + BUCKETS * sizeof(struct roost_bucket);
	const uint64_t keys = 20000;
	uint64_t done = 0, next = 1;
	double start, t, before, turn, busy = 0, empty = empty_ns();

	memset(server->mem + DATA, 0, BUCKETS * sizeof(struct roost_bucket));
	for (uint64_t k = 1; k <= keys; k++) {
		memset(values + k * VALUE, (int)k, VALUE);
		*bucket(server, k, buckets - 1) =
			(struct roost_bucket){ROOST_OPERAND(k), (uintptr_t)values + k * VALUE};
	}
	for (uint32_t i = 0; i < CLIENTS; i++)
		client_open(&clients[i], near, server, &data, i, chain);
	for (uint32_t i = 0; i < CLIENTS; i++)
		ask(&clients[i], near, server, buckets, next++);
	for (start = t = node_cpu_ns(); most ? done < most : t - start < seconds * 1e9;
	     t = node_cpu_ns()) {
		for (int k = 0; k < 64; k++) {
			node_poll(near);
			before = server_only ? node_time_ns() : 0;
			node_poll(server);
			turn = server_only ? node_time_ns() - before - empty : 0;
			busy += turn < INTERRUPTED_NS ? turn : 0;
			for (uint32_t i = 0; i < CLIENTS && chain == NO_CHAIN; i++)
				answer(&clients[i], near, server);
			for (uint32_t i = 0; i < CLIENTS; i++) {
				struct client *c = &clients[i];
				const struct roost_lookup_end *end = (void *)(c->reply + VALUE);
				enum roost_lookup_result r =
					roost_lookup_result(end, c->key, buckets, c->number);

				if (r == ROOST_LOOKUP_PENDING)
					continue;
				/* a key may have lost its bucket to a later one */
				if (r == ROOST_LOOKUP_HIT &&
				    c->reply[VALUE - 1] != (uint8_t)c->key) {
					fprintf(stderr, "bench_core: a wrong value\n");
					exit(1);
				}
				done++;
				next = next % keys + 1;
				ask(c, near, server, buckets, next);
			}
		}
	}
	for (uint32_t i = 0; i < CLIENTS; i++) {
		nic_qp_destroy(near->nic, clients[i].near.qp);
		if (clients[i].loop.qp)
			nic_qp_destroy(server->nic, clients[i].loop.qp);
		nic_qp_destroy(server->nic, clients[i].conn.qp);
	}
	return (server_only ? busy : t - start) / (double)done;
}

static const char *wanted; /* the only row to measure; NULL: all */

/* Measures and prints a row if it is wanted. */
#define ROW(op, size, ns)                                                                          \
	do {                                                                                       \
		if (!wanted || !strcmp(wanted, op))                                                \
			print(op, size, ns);                                                       \
	} while (0)

void chain_rows(double seconds, bool first, const char *only, uint64_t most)
{
	static const struct {
		const char *local, *remote;
		enum roost_op op;
		uint32_t size;
	} verbs[] = {{"local_nop", "", ROOST_OP_NOP, 0},
		     {"local_write", "remote_write", ROOST_OP_WRITE, 64},
		     {"local_read", "remote_read", ROOST_OP_READ, 64},
		     {"local_cas", "remote_cas", ROOST_OP_CMP_SWAP, 8},
		     {"local_add", "remote_add", ROOST_OP_FETCH_ADD, 8},
		     {"local_max", "remote_max", ROOST_OP_MAX, 8}};
	static struct node a, b;

	first_row = first;
	wanted = only;
	node_open(&a, &b, "10.0.1.1");
	node_open(&b, &a, "10.0.1.2");
	for (unsigned i = 0; i < sizeof(verbs) / sizeof(verbs[0]); i++) {
		ROW(verbs[i].local, verbs[i].size,
		    verb_latency(&a, &b, verbs[i].op, false, seconds));
		if (verbs[i].op != ROOST_OP_NOP) /* has no packets */
			ROW(verbs[i].remote, verbs[i].size,
			    verb_latency(&a, &b, verbs[i].op, true, seconds));
	}
	ROW("chain_write", 64, run(&a, WRITES, 64, seconds, 64));
	ROW("chain_read", 64, run(&a, READS, 64, seconds, 64));
	ROW("chain_cas", 8, run(&a, CASES, 64, seconds, 64));
	ROW("chain_add", 8, run(&a, ADDS, 64, seconds, 64));
	ROW("chain_max", 8, run(&a, MAXES, 64, seconds, 64));
	ROW("chain_if", 8, run(&a, IFS, 4, seconds, 1));
	ROW("chain_break", 8, run(&a, BREAKS, 64, seconds, 16));
	ROW("chain_loop", 8, run(&a, LOOP, 8, seconds, 1));
	for (unsigned k = 0; k < 2; k++) {
		static const char *const names[2][PROGRAMS] = {
			{"write_2_units", "read_2_units", "cas_2_units", "add_2_units",
			 "max_2_units", "if_2_units", "break_2_units", "loop_2_units"},
			{"write_4_units", "read_4_units", "cas_4_units", "add_4_units",
			 "max_4_units", "if_4_units", "break_4_units", "loop_4_units"}};
		static const uint32_t depths[PROGRAMS] = {64, 64, 64, 64, 64, 4, 64, 8},
				      parts[PROGRAMS] = {64, 64, 64, 64, 64, 1, 16, 1};
		static struct node units[MAX_UNITS];

		if (only && !strstr(only, "_units"))
			break;
		node_open_units(units, k ? 4 : 2);
		for (unsigned p = 0; p < PROGRAMS; p++)
			ROW(names[k][p], 8,
			    run_units(units, k ? 4 : 2, p, depths[p], seconds, parts[p]));
	}
	ROW("lookup_limit", VALUE, look_ups(&a, &b, NO_CHAIN, seconds, most, false));
	ROW("lookup_limit_server", VALUE, look_ups(&a, &b, NO_CHAIN, seconds, most, true));
	ROW("chain_lookup_1", VALUE, look_ups(&a, &b, 1, seconds, most, false));
	ROW("chain_lookup_1_server", VALUE, look_ups(&a, &b, 1, seconds, most, true));
	ROW("chain_lookup_2", VALUE, look_ups(&a, &b, 2, seconds, most, false));
	ROW("chain_lookup_2_server", VALUE, look_ups(&a, &b, 2, seconds, most, true));
	if (!only)
		offload_rows(&a, &b, seconds, print);
}
