/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Hash look-ups as chains: hits and misses in one and two buckets, by two clients, over a link that
 * loses packets. The clients have no key of the server's memory.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "offload.h"

#define TABLE	16 /* buckets */
#define CLIENTS 2
#define SPACE	(64u << 10) /* for each value */
#define REPLY	4096	    /* offset in the client's memory */

static struct world W, *const w = &W;
static struct ep server; /* its memory: data of chains, buckets, values */
static struct roost_bucket *table;
static uint32_t value_len = 200;

static struct client {
	struct ep near, conn, loop;
	uint64_t number;
} client[CLIENTS];

static void client_open(struct client *c, struct roost_chain_data *data, uint32_t buckets)
{
	const struct ep_params queue = {
		.chain = true, .counts = true, .managed_send = true, .mem = 64, .pd_of = &server};
	struct ep_params conn = queue, loop = queue;
	struct roost_sge sge[ROOST_LOOKUP_SGES];
	struct roost_chain_queue lq, cq;
	struct roost_lookup l;
	uint32_t n;

	conn.managed_recv = true;
	conn.depth = ROOST_LOOKUP_ANSWER;
	conn.max_sge = 3 * buckets + 1;
	loop.depth = ROOST_LOOKUP_LOOP(buckets);
	loop.watch[0] = &c->conn;
	memset(c, 0, sizeof(*c));
	ep_init(&c->near, w, 1, &(struct ep_params){.rnr_retry = 7, .mem = REPLY + (68u << 10)});
	ep_init(&c->conn, w, 0, &conn);
	ep_init(&c->loop, w, 0, &loop);
	ep_connect(&c->near, &c->conn);
	ep_connect_self(&c->loop);
	lq = offload_queue(&c->loop);
	cq = offload_queue(&c->conn);
	l = (struct roost_lookup){
		.loop = {.queue = &lq, .data = data},
		.answer = {.queue = &cq, .data = data},
		.buckets = buckets,
		.watch = 2,
		.table_key = server.key,
		.value_len = value_len,
		.reply = {(uintptr_t)c->near.mem + REPLY, c->near.key},
	};
	roost_lookup_emit(&l, sge, &n);
	assert_int_equal(n, 3 * buckets + 1);
	offload_post(&c->loop, &lq);
	offload_post(&c->conn, &cq);
	/* the queue has two receives; both are this one */
	ep_post_recv(&c->conn, 0, sge, n);
	ep_post_recv(&c->conn, 0, sge, n);
	offload_enable(&server, ROOST_OP_RECV_ENABLE, &c->conn, 1);
	offload_enable(&server, ROOST_OP_ENABLE, &c->loop, loop.depth);
}

static void client_close(struct client *c)
{
	ep_fini(&c->near);
	ep_fini(&c->loop);
	ep_fini(&c->conn);
}

static void start(uint32_t buckets)
{
	struct roost_chain_data data = {.size = 8192};

	world_init(
		w, 2, 11,
		&(struct sim_params){.delay_ns = 1000, .loss = 0.05, .dup = 0.05, .reorder = 0.05});
	ep_init(&server, w, 0,
		&(struct ep_params){.chain = true, .mem = 16384 + TABLE * (uint64_t)SPACE});
	ep_connect_self(&server);
	data.at = (struct roost_ref){(uintptr_t)server.mem, server.key};
	data.image = server.mem;
	table = (struct roost_bucket *)(server.mem + data.size);
	for (int i = 0; i < CLIENTS; i++)
		client_open(&client[i], &data, buckets);
	world_run(w, world_now(w) + SEC);
}

static void end(void)
{
	for (int i = 0; i < CLIENTS; i++)
		client_close(&client[i]);
	ep_fini(&server);
	world_fini(w);
}

/* Each byte of a value identifies its key. */
static void insert(uint32_t i, uint64_t key, uint8_t fill)
{
	uint8_t *value = server.mem + 16384 + (size_t)i * SPACE;

	memset(value, fill, value_len);
	table[i] = (struct roost_bucket){ROOST_OPERAND(key), (uintptr_t)value};
}

static void ask(struct client *c, uint64_t key, const uint64_t *bucket, uint32_t buckets)
{
	struct roost_lookup_request *r = (void *)c->near.mem;
	uint32_t len = roost_lookup_request(r, key, bucket, buckets, ++c->number);

	memset(c->near.mem + REPLY, 0xee, value_len);
	ep_post(&c->near,
		&(struct wr){.op = ROOST_OP_SEND, .sge = {ep_sge(&c->near, 0, len)}, .num_sge = 1});
}

static enum roost_lookup_result answer(struct client *c, uint64_t key, uint32_t buckets)
{
	const struct roost_lookup_end *e = (void *)(c->near.mem + REPLY + value_len);
	uint64_t until = world_now(w) + 100 * SEC;
	struct roost_cqe cqe;

	while (roost_lookup_result(e, key, buckets, c->number) == ROOST_LOOKUP_PENDING) {
		assert_true(world_now(w) < until);
		world_step(w, until);
	}
	assert_true(ep_wait_send(&c->near, &cqe, SEC));
	assert_int_equal(cqe.status, NIC_WC_SUCCESS);
	return roost_lookup_result(e, key, buckets, c->number);
}

static void holds(const struct client *c, uint8_t fill)
{
	for (uint32_t i = 0; i < value_len; i++)
		if (c->near.mem[REPLY + i] != fill)
			assert_int_equal(c->near.mem[REPLY + i], fill);
}

#define KEY(i) (0xabc000000000ull + (i))

static void look_ups(void **state)
{
	for (uint32_t buckets = 1; buckets <= 2; buckets++) {
		start(buckets);
		for (uint32_t i = 0; i < TABLE; i++)
			insert(i, KEY(i), (uint8_t)(i + 1));
		for (uint32_t i = 0; i < 200; i++) {
			struct client *c = &client[i % CLIENTS];
			uint32_t at = i * 7 % TABLE, other = (at + 5) % TABLE;
			bool second = i / 2 % 2, miss = i % 5 == 0;
			uint64_t bucket[2] = {(uintptr_t)&table[at], (uintptr_t)&table[other]};
			uint64_t key = miss ? KEY(100 + i) : KEY(at);

			if (second && buckets == 2 && !miss)
				key = KEY(other);
			ask(c, key, bucket, buckets);
			assert_int_equal(answer(c, key, buckets),
					 miss ? ROOST_LOOKUP_MISS : ROOST_LOOKUP_HIT);
			holds(c, miss ? 0xee : (uint8_t)(key - KEY(0) + 1));
		}
		/* an empty bucket, and a key whose upper byte alone differs */
		table[3] = (struct roost_bucket){0};
		ask(&client[0], KEY(3), (uint64_t[]){(uintptr_t)&table[3], (uintptr_t)&table[3]},
		    buckets);
		assert_int_equal(answer(&client[0], KEY(3), buckets), ROOST_LOOKUP_MISS);
		ask(&client[0], KEY(4) ^ 1ull << 47,
		    (uint64_t[]){(uintptr_t)&table[4], (uintptr_t)&table[4]}, buckets);
		assert_int_equal(answer(&client[0], KEY(4) ^ 1ull << 47, buckets),
				 ROOST_LOOKUP_MISS);
		holds(&client[0], 0xee);
		end();
	}
}

static void sizes(void **state)
{
	for (value_len = 64; value_len <= SPACE; value_len *= 4) {
		uint64_t bucket[2];

		start(2);
		for (uint32_t i = 0; i < 4; i++)
			insert(i, KEY(i), (uint8_t)(i + 1));
		bucket[0] = (uintptr_t)&table[0];
		for (uint32_t i = 0; i < 4; i++) {
			bucket[1] = (uintptr_t)&table[i];
			ask(&client[0], KEY(i), bucket, 2);
			assert_int_equal(answer(&client[0], KEY(i), 2), ROOST_LOOKUP_HIT);
			holds(&client[0], (uint8_t)(i + 1));
		}
		end();
	}
	value_len = 200;
}

/* A client that names an address outside of the table ends its own chain, and no other. */
static void bad_address(void **state)
{
	struct nic_chain_failure f;

	start(1);
	insert(0, KEY(0), 7);
	ask(&client[1], KEY(0), (uint64_t[]){(uintptr_t)&W}, 1);
	world_run(w, world_now(w) + 10 * SEC);
	assert_int_equal(nic_qp_state(client[1].loop.qp), NIC_QPS_ERR);
	assert_true(nic_qp_chain_failure(client[1].loop.qp, &f));
	assert_int_equal(f.status, NIC_WC_LOC_PROT_ERR);
	assert_int_equal(f.wqe.sge[0].addr, (uintptr_t)&W);
	ask(&client[0], KEY(0), (uint64_t[]){(uintptr_t)&table[0]}, 1);
	assert_int_equal(answer(&client[0], KEY(0), 1), ROOST_LOOKUP_HIT);
	holds(&client[0], 7);
	end();
}

/* The client's own READs and WRITEs of the table and of rings are refused: it has no key. */
static void no_key_of_the_server(void **state)
{
	struct roost_cqe cqe;
	struct wr wr;

	start(1);
	wr = wr_rdma(ROOST_OP_READ, &client[1].near, 0, 8, &server, 8192);
	wr.rkey = client[1].near.key; /* the only key that the client has */
	ep_post(&client[1].near, &wr);
	assert_true(ep_wait_send(&client[1].near, &cqe, 10 * SEC));
	assert_int_equal(cqe.status, NIC_WC_REM_ACCESS_ERR);
	insert(0, KEY(0), 7);
	ask(&client[0], KEY(0), (uint64_t[]){(uintptr_t)&table[0]}, 1);
	assert_int_equal(answer(&client[0], KEY(0), 1), ROOST_LOOKUP_HIT);
	end();
}

static void wrong_queues(void **state)
{
	struct roost_chain_queue loop = {.depth = 16, .stride = 64}, conn = {.depth = 2};
	struct roost_lookup l = {
		.loop = {.queue = &loop}, .answer = {.queue = &conn}, .buckets = 1};
	uint32_t n;

	roost_lookup_emit(&l, NULL, &n);
	assert_int_equal(loop.error, -EINVAL);
	assert_int_equal(conn.error, -EINVAL);
	assert_int_equal(n, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(look_ups),	cmocka_unit_test(sizes),
		cmocka_unit_test(bad_address),	cmocka_unit_test(no_key_of_the_server),
		cmocka_unit_test(wrong_queues),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
