/* SPDX-License-Identifier: BSD-2-Clause */
/* Look-ups in a neighbourhood of one to eight buckets, over a link that loses packets. */
#include <errno.h>

#include "offload.h"
#include "roost/chain_hopscotch.h"

#define VALUE 104u
#define TABLE 24 /* buckets */
#define REPLY 4096u

static struct world W, *const w = &W;
static struct ep server, near, conn, loop;
static struct roost_bucket *table;
static uint32_t buckets;

static void emit(struct roost_chain_data *data)
{
	struct roost_chain_queue lq = offload_queue(&loop), cq = offload_queue(&conn);
	const struct roost_hood h = {
		.loop = {.queue = &lq, .data = data},
		.answer = {.queue = &cq, .data = data},
		.buckets = buckets,
		.watch = 2,
		.table_key = server.key,
		.value_len = VALUE,
		.reply = {(uintptr_t)near.mem + REPLY, near.key},
	};
	struct roost_sge sge[ROOST_HOOD_SGES(ROOST_HOOD_BUCKETS)];

	roost_hood_emit(&h, sge);
	offload_post(&loop, &lq);
	offload_post(&conn, &cq);
	offload_receives(&conn, sge, ROOST_HOOD_SGES(buckets));
	offload_enable(&server, ROOST_OP_RECV_ENABLE, &conn, 1);
	offload_enable(&server, ROOST_OP_ENABLE, &loop, loop.p.depth);
}

static void start(uint32_t n)
{
	struct roost_chain_data data = offload_world(w, 2, 1, &server, 65536);
	struct ep_params p = offload_params(&server, ROOST_LOOKUP_ANSWER, NULL);

	buckets = n;
	table = (struct roost_bucket *)(server.mem + data.size);
	for (uint32_t i = 0; i < TABLE; i++) {
		uint8_t *value = server.mem + 16384 + (size_t)i * 256;

		memset(value, (int)i + 1, VALUE);
		table[i] = (struct roost_bucket){ROOST_OPERAND(1000 + i), (uintptr_t)value};
	}
	p.managed_recv = true;
	p.max_sge = ROOST_HOOD_SGES(buckets);
	ep_init(&near, w, 1, NULL);
	ep_init(&conn, w, 0, &p);
	p = offload_params(&server, ROOST_HOOD_LOOP(buckets), &conn);
	p.max_sge = 2 * ROOST_HOOD_BUCKETS;
	ep_init(&loop, w, 0, &p);
	ep_connect(&near, &conn);
	ep_connect_self(&loop);
	emit(&data);
	world_run(w, world_now(w) + SEC);
}

static void end(void)
{
	struct ep *const all[] = {&near, &loop, &conn, &server};

	for (int i = 0; i < 4; i++) {
		assert_int_equal(nic_qp_state(all[i]->qp), NIC_QPS_RTS);
		ep_fini(all[i]);
	}
	world_fini(w);
}

static void ask(uint64_t number, uint32_t first, uint64_t key)
{
	const struct roost_hood_end *e = (const void *)(near.mem + REPLY + VALUE);
	const bool hit = key >= 1000 + first && key < 1000 + first + buckets;

	memset(near.mem + REPLY, 0xee, VALUE);
	offload_send(&near, 0,
		     roost_hood_request((void *)near.mem, key, (uintptr_t)&table[first], buckets,
					number));
	offload_await(&near, &e->number, number);
	assert_int_equal(roost_hood_result(e, key, buckets, number),
			 hit ? ROOST_LOOKUP_HIT : ROOST_LOOKUP_MISS);
	for (uint32_t i = 0; i < VALUE; i++)
		assert_int_equal(near.mem[REPLY + i], hit ? (int)(key - 999) : 0xee);
}

static void look_ups(void **state)
{
	for (uint32_t n = 1; n <= ROOST_HOOD_BUCKETS; n++) {
		start(n);
		for (uint32_t i = 0; i < 30; i++) {
			uint32_t first = i * 5 % (TABLE - n);

			ask(i + 1, first, 1000 + first + i % (n + 1));
		}
		end();
	}
}

/* A neighbourhood that ends outside of the region ends the client's chain without an answer. */
static void behind_the_end(void **state)
{
	const struct roost_hood_end *e;

	start(6);
	e = (const void *)(near.mem + REPLY + VALUE);
	offload_send(&near, 0,
		     roost_hood_request((void *)near.mem, 1000,
					(uintptr_t)server.mem + server.mem_len - 16, 6, 1));
	world_run(w, world_now(w) + 10 * SEC);
	assert_int_equal(e->number, 0);
	assert_int_equal(nic_qp_state(loop.qp), NIC_QPS_ERR);
	ep_fini(&near);
	ep_fini(&loop);
	ep_fini(&conn);
	ep_fini(&server);
	world_fini(w);
}

static void wrong_queues(void **state)
{
	struct roost_chain_queue loop_queue = {.depth = 32, .stride = 256},
				 conn_queue = {.depth = 2, .stride = 128};
	struct roost_hood h = {
		.loop = {.queue = &loop_queue}, .answer = {.queue = &conn_queue}, .buckets = 6};

	roost_hood_emit(&h, NULL);
	assert_int_equal(loop_queue.error, -EINVAL);
	assert_int_equal(conn_queue.error, -EINVAL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(look_ups),
		cmocka_unit_test(behind_the_end),
		cmocka_unit_test(wrong_queues),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
