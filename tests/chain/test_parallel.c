/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Parallel hash look-ups: the two buckets are tested by queues of one and of two processing units,
 * over a link that loses packets, with values of 64 B to 64 KiB.
 */
#include <errno.h>

#include "offload.h"
#include "roost/chain_parallel.h"

#define TABLE  8 /* buckets */
#define VALUES 16384u
#define MEM    (VALUES + TABLE * (64u << 10))
#define REPLY  4096u

static struct world W, *const w = &W;
static struct ep server, near, inbox, conn, loop[2];
static struct roost_bucket *table;
static uint32_t value_len;

static void emit(struct roost_chain_data *data)
{
	struct roost_chain_queue q[3] = {offload_queue(&loop[0]), offload_queue(&loop[1]),
					 offload_queue(&conn)};
	struct ep *const ep[3] = {&loop[0], &loop[1], &conn};
	const struct roost_parallel l = {
		.loop = {{.queue = &q[0], .data = data}, {.queue = &q[1], .data = data}},
		.answer = {.queue = &q[2], .data = data},
		.watch = {2, 2},
		.done = {2, 3},
		.table_key = server.key,
		.value_len = value_len,
		.reply = {(uintptr_t)near.mem + REPLY, near.key},
	};
	struct roost_sge sge[ROOST_LOOKUP_SGES];

	roost_parallel_emit(&l, sge);
	for (int i = 0; i < 3; i++)
		offload_post(ep[i], &q[i]);
	offload_receives(&conn, sge, ROOST_LOOKUP_SGES);
	offload_enable(&server, ROOST_OP_RECV_ENABLE, &conn, 1);
	for (int i = 0; i < 3; i++)
		offload_enable(&server, ROOST_OP_ENABLE, ep[i], ep[i]->p.depth);
}

static void start(unsigned pus, uint32_t len)
{
	struct roost_chain_data data = offload_world(w, 2, pus, &server, MEM);
	struct ep_params p;

	value_len = len;
	table = (struct roost_bucket *)(server.mem + data.size);
	ep_init(&near, w, 1, &(struct ep_params){.mem = REPLY + (65u << 10)});
	/* the loops and the connection watch each other: the CQ of receives is made first */
	ep_init(&inbox, w, 0,
		&(struct ep_params){.counts = true, .only_cqs = true, .pd_of = &server});
	for (unsigned i = 0; i < 2; i++) {
		p = offload_params(&server, ROOST_PARALLEL_LOOP, &inbox);
		p.pu = (uint8_t)(i % pus);
		ep_init(&loop[i], w, 0, &p);
		ep_connect_self(&loop[i]);
	}
	p = offload_params(&server, ROOST_PARALLEL_ANSWER, &loop[0]);
	p.watch[1] = &loop[1];
	p.watch_sends = p.managed_recv = true;
	p.recv_cq_of = &inbox;
	p.max_sge = ROOST_LOOKUP_SGES;
	ep_init(&conn, w, 0, &p);
	ep_connect(&near, &conn);
	emit(&data);
	world_run(w, world_now(w) + SEC);
}

static void end(void)
{
	struct ep *const all[] = {&near, &conn, &loop[0], &loop[1], &inbox, &server};

	for (int i = 0; i < 6; i++) {
		if (all[i] != &inbox)
			assert_int_equal(nic_qp_state(all[i]->qp), NIC_QPS_RTS);
		ep_fini(all[i]);
	}
	world_fini(w);
}

#define KEY(i) (0xabc000000000ull + (i))

/* Each byte of a value identifies its key. */
static void insert(uint32_t i)
{
	uint8_t *value = server.mem + VALUES + (size_t)i * (64u << 10);

	memset(value, (int)i + 1, value_len);
	table[i] = (struct roost_bucket){ROOST_OPERAND(KEY(i)), (uintptr_t)value};
}

static void ask(uint64_t number, uint32_t first, uint32_t second, uint64_t key, bool hit)
{
	const uint64_t bucket[2] = {(uintptr_t)&table[first], (uintptr_t)&table[second]};
	const struct roost_lookup_end *e = (void *)(near.mem + REPLY + value_len);
	const int fill = hit ? (int)(key - KEY(0) + 1) : 0xee;

	memset(near.mem + REPLY, 0xee, value_len);
	offload_send(&near, 0, roost_lookup_request((void *)near.mem, key, bucket, 2, number));
	offload_await(&near, &e->number, number);
	assert_int_equal(roost_lookup_result(e, key, 2, number),
			 hit ? ROOST_LOOKUP_HIT : ROOST_LOOKUP_MISS);
	for (uint32_t i = 0; i < value_len; i++)
		if (near.mem[REPLY + i] != fill)
			assert_int_equal(near.mem[REPLY + i], fill);
}

static void look_ups(unsigned pus, uint32_t len, uint32_t n)
{
	start(pus, len);
	for (uint32_t i = 0; i < TABLE; i++)
		insert(i);
	for (uint32_t i = 0; i < n; i++) {
		uint32_t at = i * 3 % TABLE, other = (at + 5) % TABLE;

		ask(i + 1, at, other, i % 5 == 4 ? KEY(90) : KEY(i / 2 % 2 ? other : at),
		    i % 5 != 4);
	}
	ask(n + 1, 2, 2, KEY(2), true); /* both buckets have it */
	end();
}

static void one_unit(void **state)
{
	look_ups(1, 64, 60);
}

static void two_units(void **state)
{
	look_ups(2, 64, 60);
}

static void sizes(void **state)
{
	for (uint32_t len = 256; len <= 64u << 10; len *= 4)
		look_ups(len == 1024 ? 2 : 1, len, 6);
}

static void wrong_queues(void **state)
{
	struct roost_chain_queue q[3] = {
		{.depth = 8, .stride = 64}, {.depth = 8, .stride = 64}, {.depth = 8}};
	struct roost_parallel l = {.loop = {{.queue = &q[0]}, {.queue = &q[1]}},
				   .answer = {.queue = &q[2]}};

	roost_parallel_emit(&l, NULL);
	for (int i = 0; i < 3; i++)
		assert_int_equal(q[i].error, -EINVAL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_unit),
		cmocka_unit_test(two_units),
		cmocka_unit_test(sizes),
		cmocka_unit_test(wrong_queues),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
