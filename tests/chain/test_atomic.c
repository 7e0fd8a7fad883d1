/* SPDX-License-Identifier: BSD-2-Clause */
/* Counters and locks of several clients, over a link that loses packets. */
#include <errno.h>

#include "offload.h"
#include "roost/chain_atomic.h"

#define CLIENTS 3
#define REPLY	4096u

static struct world W, *const w = &W;
static struct ep server;
static uint64_t *words; /* counters or locks */

static struct client {
	struct ep near, conn, loop;
	uint64_t number;
} client[CLIENTS];

#define OWNER(c) (0x1100000000000011ull * (unsigned)((c)-client + 1))

static void emit(struct client *c, struct roost_chain_data *data, bool lock)
{
	struct roost_chain_queue lq = offload_queue(&c->loop), cq = offload_queue(&c->conn);
	const struct roost_chain loop = {.queue = &lq, .data = data},
				 answer = {.queue = &cq, .data = data};
	const struct roost_ref reply = {(uintptr_t)c->near.mem + REPLY, c->near.key};
	struct roost_sge sge[ROOST_LOCK_SGES];

	if (lock)
		roost_lock_emit(&(struct roost_lock){.loop = loop,
						     .answer = answer,
						     .watch = 2,
						     .lock_key = server.key,
						     .owner = OWNER(c),
						     .reply = reply},
				sge);
	else
		roost_counter_emit(&(struct roost_counter){.loop = loop,
							   .answer = answer,
							   .watch = 2,
							   .counter_key = server.key,
							   .reply = reply},
				   sge);
	offload_post(&c->loop, &lq);
	offload_post(&c->conn, &cq);
	offload_receives(&c->conn, sge, lock ? ROOST_LOCK_SGES : ROOST_COUNTER_SGES);
	offload_enable(&server, ROOST_OP_RECV_ENABLE, &c->conn, 1);
	offload_enable(&server, ROOST_OP_ENABLE, &c->loop, c->loop.p.depth);
}

static void start(bool lock)
{
	struct roost_chain_data data = offload_world(w, 2, 1, &server, 65536);

	words = (uint64_t *)(server.mem + data.size);
	for (struct client *c = client; c < client + CLIENTS; c++) {
		struct ep_params p = offload_params(&server, ROOST_LOOKUP_ANSWER, NULL);

		memset(c, 0, sizeof(*c));
		p.managed_recv = true;
		p.max_sge = ROOST_LOCK_SGES;
		ep_init(&c->near, w, 1, NULL);
		ep_init(&c->conn, w, 0, &p);
		p = offload_params(&server, lock ? ROOST_LOCK_LOOP : ROOST_COUNTER_LOOP, &c->conn);
		ep_init(&c->loop, w, 0, &p);
		ep_connect(&c->near, &c->conn);
		ep_connect_self(&c->loop);
		emit(c, &data, lock);
	}
	world_run(w, world_now(w) + SEC);
}

static void end(void)
{
	for (struct client *c = client; c < client + CLIENTS; c++) {
		ep_fini(&c->near);
		ep_fini(&c->loop);
		ep_fini(&c->conn);
	}
	ep_fini(&server);
	world_fini(w);
}

static const struct roost_lookup_end *reply(const struct client *c)
{
	return (const void *)(c->near.mem + REPLY);
}

static void count(struct client *c, uint64_t *counter, uint64_t add)
{
	uint32_t len =
		roost_counter_request((void *)c->near.mem, (uintptr_t)counter, add, ++c->number);

	offload_send(&c->near, 0, len);
}

/* All clients at once: no addition is lost, and each old value is returned once. */
static void counters(void **state)
{
	bool seen[CLIENTS * 50] = {false};
	uint64_t before = 0;

	start(false);
	words[1] = 7;
	for (int turn = 0; turn < 50; turn++) {
		for (int i = 0; i < CLIENTS; i++)
			count(&client[i], &words[0], 1);
		for (int i = 0; i < CLIENTS; i++) {
			offload_await(&client[i].near, &reply(&client[i])->number,
				      client[i].number);
			assert_true(
				roost_counter_result(reply(&client[i]), client[i].number, &before));
			assert_true(before < sizeof(seen));
			assert_false(seen[before]);
			seen[before] = true;
		}
	}
	assert_int_equal(words[0], CLIENTS * 50);
	assert_false(roost_counter_result(reply(&client[0]), client[0].number + 1, &before));
	count(&client[0], &words[1], (uint64_t)-7);
	offload_await(&client[0].near, &reply(&client[0])->number, client[0].number);
	assert_int_equal(reply(&client[0])->found[0], 7);
	assert_int_equal(words[1], 0);
	/* an address that is not aligned ends the chain of this client, and no other */
	count(&client[1], (uint64_t *)((uintptr_t)&words[0] + 4), 1);
	world_run(w, world_now(w) + 10 * SEC);
	assert_int_equal(nic_qp_state(client[1].loop.qp), NIC_QPS_ERR);
	count(&client[2], &words[0], 1);
	offload_await(&client[2].near, &reply(&client[2])->number, client[2].number);
	end();
}

static enum roost_lock_result request(struct client *c, enum roost_lock_action action,
				      unsigned lock)
{
	offload_send(&c->near, 0,
		     roost_lock_request((void *)c->near.mem, action, (uintptr_t)&words[lock],
					++c->number));
	offload_await(&c->near, &reply(c)->number, c->number);
	return roost_lock_result(reply(c), action, OWNER(c), c->number);
}

static void locks(void **state)
{
	struct client *a = &client[0], *b = &client[1];

	start(true);
	for (int i = 0; i < 20; i++) {
		assert_int_equal(request(a, ROOST_LOCK, 0), ROOST_LOCK_DONE);
		assert_int_equal(words[0], OWNER(a));
		assert_int_equal(request(b, ROOST_LOCK, 0), ROOST_LOCK_REFUSED);
		assert_int_equal(reply(b)->found[0], OWNER(a));
		assert_int_equal(request(b, ROOST_UNLOCK, 0), ROOST_LOCK_REFUSED);
		assert_int_equal(words[0], OWNER(a));
		assert_int_equal(request(b, ROOST_LOCK, 1), ROOST_LOCK_DONE);
		assert_int_equal(request(a, ROOST_LOCK, 0), ROOST_LOCK_REFUSED); /* its own */
		assert_int_equal(request(a, ROOST_UNLOCK, 0), ROOST_LOCK_DONE);
		assert_int_equal(words[0], 0);
		assert_int_equal(request(a, ROOST_UNLOCK, 0), ROOST_LOCK_REFUSED);
		assert_int_equal(request(b, ROOST_UNLOCK, 1), ROOST_LOCK_DONE);
	}
	assert_int_equal(roost_lock_result(reply(a), ROOST_LOCK, OWNER(a), a->number + 1),
			 ROOST_LOCK_PENDING);
	end();
}

/* Three clients try until they have the lock: no two have it at once. */
static void contended(void **state)
{
	bool holds[CLIENTS] = {false};
	uint32_t turns[CLIENTS] = {0};

	start(true);
	for (int step = 0; step < 100; step++) {
		for (int i = 0; i < CLIENTS; i++)
			offload_send(&client[i].near, 0,
				     roost_lock_request((void *)client[i].near.mem,
							holds[i] ? ROOST_UNLOCK : ROOST_LOCK,
							(uintptr_t)&words[0], ++client[i].number));
		for (int i = 0; i < CLIENTS; i++) {
			struct client *c = &client[i];

			offload_await(&c->near, &reply(c)->number, c->number);
			if (roost_lock_result(reply(c), holds[i] ? ROOST_UNLOCK : ROOST_LOCK,
					      OWNER(c), c->number) == ROOST_LOCK_DONE)
				holds[i] = !holds[i];
			else
				assert_false(holds[i]);
			turns[i] += holds[i];
		}
		assert_true(holds[0] + holds[1] + holds[2] <= 1);
	}
	assert_true(turns[0] + turns[1] + turns[2] > 10);
	end();
}

/* A client cannot put an op-code into the chain: an unknown action has no effect. */
static void hostile_action(void **state)
{
	struct client *c = &client[0];
	uint64_t *r;

	start(true);
	words[0] = 5;
	r = (void *)c->near.mem;
	roost_lock_request((void *)r, ROOST_LOCK, (uintptr_t)&words[0], ++c->number);
	r[0] = ROOST_OPERAND(77) | ROOST_OP_FETCH_ADD;
	offload_send(&c->near, 0, 32);
	offload_await(&c->near, &reply(c)->number, c->number);
	assert_int_equal(words[0], 5);
	words[0] = 0;
	assert_int_equal(request(c, ROOST_LOCK, 0), ROOST_LOCK_DONE);
	end();
}

static void wrong_queues(void **state)
{
	struct roost_chain_queue loop = {.depth = 8, .stride = 64}, conn = {.depth = 2};

	roost_counter_emit(
		&(struct roost_counter){.loop = {.queue = &loop}, .answer = {.queue = &conn}},
		NULL);
	assert_int_equal(loop.error, -EINVAL);
	loop.error = 0;
	roost_lock_emit(&(struct roost_lock){.loop = {.queue = &loop}, .answer = {.queue = &conn}},
			NULL);
	assert_int_equal(loop.error, -EINVAL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(counters),	cmocka_unit_test(locks),
		cmocka_unit_test(contended),	cmocka_unit_test(hostile_action),
		cmocka_unit_test(wrong_queues),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
