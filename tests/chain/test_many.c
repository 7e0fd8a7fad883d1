/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * 3,000 clients of one server: each has a connection and two queues there, those of the parallel
 * look-up, which are 9,000 queue pairs. The memory that a client costs is printed. A client that
 * has no key of the server cannot READ or WRITE its table and its rings, and its look-up works.
 */
#include "../common/resident.h"
#include "offload.h"
#include "roost/chain_parallel.h"

#define CLIENTS 3000u
#define BUCKETS 4096u
#define VALUE	64u
#define DATA	512u /* of a client's chain, for templates and the end of the reply */
#define SLOT	256u /* of a client in its own NIC's memory: request, reply */
#define REPLY	128u

static struct world W, *const w = &W;
static struct ep server, local; /* memory of the table and the chains; of the clients */
static struct roost_bucket *table;
static uint8_t *values;

static struct client {
	struct ep near, inbox, conn, loop[2];
} * client;

static uint64_t key_of(uint32_t i)
{
	return 0x123400000000ull + i;
}

static void fill_table(void)
{
	table = (struct roost_bucket *)(server.mem + CLIENTS * DATA);
	values = (uint8_t *)(table + BUCKETS);
	for (uint32_t i = 0; i < BUCKETS; i++) {
		memset(values + (size_t)i * VALUE, (int)(i * 7 + 1), VALUE);
		table[i] = (struct roost_bucket){ROOST_OPERAND(key_of(i)),
						 (uintptr_t)values + (size_t)i * VALUE};
	}
}

/* The server's objects for a client: queues, regions of their rings, and the chain in them. */
static void serve(struct client *c, uint32_t id)
{
	struct roost_chain_data data = {
		.at = {(uintptr_t)server.mem + (size_t)id * DATA, server.key},
		.image = server.mem + (size_t)id * DATA,
		.size = DATA};
	struct ep *const ep[3] = {&c->loop[0], &c->loop[1], &c->conn};
	struct roost_chain_queue q[3];
	struct roost_parallel l = {
		.watch = {2, 2},
		.done = {2, 3},
		.table_key = server.key,
		.value_len = VALUE,
		.reply = {(uintptr_t)local.mem + (size_t)id * SLOT + REPLY, local.key},
	};
	struct roost_sge sge[ROOST_LOOKUP_SGES];

	for (unsigned i = 0; i < 3; i++)
		q[i] = offload_queue(ep[i]);
	for (unsigned i = 0; i < 2; i++)
		l.loop[i] = (struct roost_chain){.queue = &q[i], .data = &data};
	l.answer = (struct roost_chain){.queue = &q[2], .data = &data};
	roost_parallel_emit(&l, sge);
	for (unsigned i = 0; i < 3; i++)
		offload_post(ep[i], &q[i]);
	offload_receives(&c->conn, sge, ROOST_LOOKUP_SGES);
	offload_enable(&server, ROOST_OP_RECV_ENABLE, &c->conn, 1);
	for (unsigned i = 0; i < 3; i++)
		offload_enable(&server, ROOST_OP_ENABLE, ep[i], ep[i]->p.depth);
	world_run(w, world_now(w) + 1000);
}

static void open_client(uint32_t id)
{
	struct client *c = &client[id];
	struct ep_params p = {.counts = true, .pd_of = &server, .depth = 1, .only_cqs = true};

	ep_init(&c->inbox, w, 0, &p);
	for (unsigned i = 0; i < 2; i++) {
		p = offload_params(&server, ROOST_PARALLEL_LOOP, &c->inbox);
		p.no_mem = true;
		ep_init(&c->loop[i], w, 0, &p);
		ep_connect_self(&c->loop[i]);
	}
	p = offload_params(&server, ROOST_PARALLEL_ANSWER, &c->loop[0]);
	p.watch[1] = &c->loop[1];
	p.watch_sends = p.managed_recv = p.no_mem = true;
	p.recv_cq_of = &c->inbox;
	p.max_sge = ROOST_LOOKUP_SGES;
	p.access = 1; /* the client may SEND, and neither READ nor WRITE */
	ep_init(&c->conn, w, 0, &p);
	ep_connect(&c->near, &c->conn);
	serve(c, id);
}

static void close_client(struct client *c)
{
	ep_fini(&c->near);
	ep_fini(&c->conn);
	ep_fini(&c->loop[0]);
	ep_fini(&c->loop[1]);
	ep_fini(&c->inbox);
}

static uint8_t *memory_of(uint32_t id)
{
	return local.mem + (size_t)id * SLOT;
}

static void ask(uint32_t id, uint64_t number, uint32_t first, uint32_t second, uint64_t key)
{
	const uint64_t bucket[2] = {(uintptr_t)&table[first], (uintptr_t)&table[second]};
	const uint32_t len = roost_lookup_request((void *)memory_of(id), key, bucket, 2, number);

	memset(memory_of(id) + REPLY, 0xee, VALUE);
	ep_post(&client[id].near, &(struct wr){.op = ROOST_OP_SEND,
					       .sge = {ep_sge(&local, (uint64_t)id * SLOT, len)},
					       .num_sge = 1});
}

static void check_reply(uint32_t id, uint64_t number, uint64_t key, bool hit)
{
	const struct roost_lookup_end *e = (void *)(memory_of(id) + REPLY + VALUE);
	const uint8_t fill = hit ? (uint8_t)((key - key_of(0)) * 7 + 1) : 0xee;

	assert_int_equal(roost_lookup_result(e, key, 2, number),
			 hit ? ROOST_LOOKUP_HIT : ROOST_LOOKUP_MISS);
	for (uint32_t i = 0; i < VALUE; i++)
		assert_int_equal(memory_of(id)[REPLY + i], fill);
}

/* All clients have a request under way at once. */
static void all_ask(uint64_t number)
{
	const uint32_t step = (uint32_t)number * 5;

	for (uint32_t id = 0; id < CLIENTS; id++)
		ask(id, number, (id + step) % BUCKETS, (id + step + 9) % BUCKETS,
		    id % 3 == 2 ? key_of(BUCKETS) : key_of((id + step + (id % 3) * 9) % BUCKETS));
	world_run(w, world_now(w) + SEC);
	for (uint32_t id = 0; id < CLIENTS; id++)
		check_reply(id, number,
			    id % 3 == 2 ? key_of(BUCKETS)
					: key_of((id + step + (id % 3) * 9) % BUCKETS),
			    id % 3 != 2);
}

/*
 * A READ or a WRITE of a client to the table, or to the ring of its own connection. It has no key,
 * so it uses its own one; or it has learned the key of the server.
 */
static void intrude(uint32_t id, enum roost_op op, bool code, bool knows_key)
{
	struct client *c = &client[id];
	struct wr wr = {.op = op,
			.sge = {ep_sge(&local, (uint64_t)id * SLOT, 8)},
			.num_sge = 1,
			.raddr = code ? (uintptr_t)c->conn.sq : (uintptr_t)&table[id],
			.rkey = local.key};
	uint64_t before, after, got;

	if (knows_key)
		wr.rkey = code ? c->conn.sq_key : server.key;
	memcpy(&before, (void *)(uintptr_t)wr.raddr, 8);
	memset(memory_of(id), 0x5a, 8);
	ep_post(&c->near, &wr);
	world_run(w, world_now(w) + 10 * SEC);
	memcpy(&after, (void *)(uintptr_t)wr.raddr, 8);
	memcpy(&got, memory_of(id), 8);
	assert_int_equal(after, before);
	assert_int_equal(got, 0x5a5a5a5a5a5a5a5a);
	assert_int_equal(nic_qp_state(c->near.qp), NIC_QPS_ERR);
}

static void no_key_of_the_server(void)
{
	uint32_t id = 0;

	for (unsigned knows = 0; knows < 2; knows++)
		for (unsigned code = 0; code < 2; code++)
			for (unsigned read = 0; read < 2; read++, id++) {
				ask(id, 9, 1, 2, key_of(2));
				world_run(w, world_now(w) + SEC);
				check_reply(id, 9, key_of(2), true);
				intrude(id, read ? ROOST_OP_READ : ROOST_OP_WRITE, code, knows);
			}
	/* the others are served as before */
	ask(id, 9, 1, 2, key_of(1));
	world_run(w, world_now(w) + SEC);
	check_reply(id, 9, key_of(1), true);
}

static void many_clients(void **state)
{
	const uint64_t table_len = BUCKETS * (sizeof(struct roost_bucket) + VALUE);
	const uint64_t rings = 2 * ROOST_PARALLEL_LOOP * 64 + ROOST_PARALLEL_ANSWER * (256 + 256);
	uint64_t before, used;

	client = calloc(CLIENTS, sizeof(*client));
	memset(client, 1, CLIENTS * sizeof(*client)); /* resident */
	world_init(w, 2, 5, &(struct sim_params){.delay_ns = 1000});
	ep_init(&server, w, 0,
		&(struct ep_params){.chain = true, .mem = CLIENTS * DATA + table_len});
	ep_connect_self(&server);
	ep_init(&local, w, 1, &(struct ep_params){.mem = CLIENTS * SLOT});
	fill_table();
	for (uint32_t id = 0; id < CLIENTS; id++)
		ep_init(&client[id].near, w, 1,
			&(struct ep_params){
				.pd_of = &local, .depth = 1, .no_mem = true, .counts = true});
	before = resident_bytes();
	for (uint32_t id = 0; id < CLIENTS; id++)
		open_client(id);
	used = resident_bytes() - before;
	print_message("%u clients, %u queue pairs at the server: %llu bytes for each client, and "
		      "%u of the memory region (rings: about %llu)\n",
		      CLIENTS, 3 * CLIENTS, (unsigned long long)(used / CLIENTS), DATA,
		      (unsigned long long)rings);
	all_ask(1);
	all_ask(2);
	no_key_of_the_server();
	for (uint32_t id = 0; id < CLIENTS; id++)
		close_client(&client[id]);
	ep_fini(&server);
	ep_fini(&local);
	world_fini(w);
	free(client);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(many_clients),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
