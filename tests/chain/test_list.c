/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The traversal of a linked list as a chain, with and without break, over a link that loses
 * packets, with values of 64 B to 64 KiB.
 */
#include <errno.h>

#include "offload.h"

#define NODES  8
#define VALUES 16384u
#define SPACE  (64u << 10) /* for each value */
#define REPLY  4096	   /* offset in the client's memory */

static struct world W, *const w = &W;
static struct ep server, near, conn, begin, walk, found;
static struct roost_list_node *list;
static uint32_t value_len;

static void open_queue(struct ep *e, uint32_t depth, const struct ep *watch)
{
	struct ep_params p = {.chain = true,
			      .counts = true,
			      .managed_send = true,
			      .mem = 64,
			      .pd_of = &server,
			      .depth = depth,
			      .watch = {watch}};

	ep_init(e, w, 0, &p);
	ep_connect_self(e);
}

static void open_conn(void)
{
	struct ep_params p = {.chain = true,
			      .counts = true,
			      .managed_send = true,
			      .managed_recv = true,
			      .mem = 64,
			      .pd_of = &server,
			      .depth = ROOST_LOOKUP_ANSWER,
			      .max_sge = ROOST_LIST_SGES};

	ep_init(&near, w, 1, &(struct ep_params){.mem = REPLY + SPACE + 4096});
	ep_init(&conn, w, 0, &p);
	ep_connect(&near, &conn);
}

static void start(uint32_t len, bool whole)
{
	struct roost_chain_data data = {.size = 8192};
	struct roost_chain_queue q[4];
	struct roost_sge sge[ROOST_LIST_SGES];
	struct ep *const ep[] = {&begin, &walk, &found, &conn};
	struct roost_list l;

	value_len = len;
	world_init(w, 2, 11, &(struct sim_params){.delay_ns = 1000, .loss = 0.05, .dup = 0.05});
	ep_init(&server, w, 0, &(struct ep_params){.chain = true, .mem = VALUES + NODES * SPACE});
	ep_connect_self(&server);
	data.at = (struct roost_ref){(uintptr_t)server.mem, server.key};
	data.image = server.mem;
	open_conn();
	open_queue(&begin, 8, &conn);
	open_queue(&walk, 16, NULL);
	open_queue(&found, 2, NULL);
	for (int i = 0; i < 4; i++)
		q[i] = offload_queue(ep[i]);
	l = (struct roost_list){.begin = {.queue = &q[0], .data = &data},
				.walk = {.queue = &q[1], .data = &data},
				.found = {.queue = &q[2], .data = &data},
				.answer = {.queue = &q[3], .data = &data},
				.watch = 2,
				.list_key = server.key,
				.value_len = value_len,
				.whole = whole,
				.reply = {(uintptr_t)near.mem + REPLY, near.key}};
	l.walk.scratch = roost_chain_word(&l.walk, 0);
	roost_list_emit(&l, sge);
	for (int i = 0; i < 4; i++)
		offload_post(ep[i], &q[i]);
	/* the queue has two receives; both are this one */
	ep_post_recv(&conn, 0, sge, ROOST_LIST_SGES);
	ep_post_recv(&conn, 0, sge, ROOST_LIST_SGES);
	offload_enable(&server, ROOST_OP_RECV_ENABLE, &conn, 1);
	offload_enable(&server, ROOST_OP_ENABLE, &begin, 8);
	list = (struct roost_list_node *)(server.mem + data.size);
	/* The list is in the order 0, 3, 6, 1, 4, 7, 2, 5. */
	for (uint64_t i = 0; i < NODES; i++) {
		uint8_t *value = server.mem + VALUES + i * SPACE;

		memset(value, (int)i + 1, value_len);
		list[i] = (struct roost_list_node){ROOST_OPERAND(100 + i), (uintptr_t)value,
						   (uintptr_t)&list[(i + 3) % NODES],
						   i == 5 ? ROOST_OPERAND(1) : 0};
	}
	world_run(w, world_now(w) + SEC);
}

static void end(void)
{
	struct ep *const all[] = {&near, &begin, &walk, &found, &conn, &server};

	for (int i = 0; i < 6; i++) {
		assert_int_equal(nic_qp_state(all[i]->qp), NIC_QPS_RTS);
		ep_fini(all[i]);
	}
	world_fini(w);
}

static enum roost_lookup_result ask(uint64_t key, uint64_t number)
{
	const struct roost_lookup_end *e = (void *)(near.mem + REPLY + value_len);
	uint32_t len = roost_list_request((void *)near.mem, key, (uintptr_t)list, number);
	uint64_t until = world_now(w) + 100 * SEC;
	struct roost_cqe cqe;

	memset(near.mem + REPLY, 0xee, value_len);
	ep_post(&near,
		&(struct wr){.op = ROOST_OP_SEND, .sge = {ep_sge(&near, 0, len)}, .num_sge = 1});
	while (roost_lookup_result(e, key, 1, number) == ROOST_LOOKUP_PENDING) {
		assert_true(world_now(w) < until);
		world_step(w, until);
	}
	assert_true(ep_wait_send(&near, &cqe, SEC));
	return roost_lookup_result(e, key, 1, number);
}

static void walks(uint32_t len, bool whole, uint64_t n)
{
	start(len, whole);
	for (uint64_t i = 0; i < n; i++) {
		/* a key that is not there, twice after one that is */
		uint64_t key = i % 10 == 9 ? 100 + NODES : 100 + i * 7 % (NODES + 2);
		bool hit = key < 100 + NODES;
		uint32_t turns = atomic_load(&walk.sqi.cons);
		uint8_t fill = hit ? (uint8_t)(key - 99) : 0xee;

		assert_int_equal(ask(key, i + 1), hit ? ROOST_LOOKUP_HIT : ROOST_LOOKUP_MISS);
		for (uint32_t k = 0; k < value_len; k++)
			if (near.mem[REPLY + k] != fill)
				assert_int_equal(near.mem[REPLY + k], fill);
		/* it stops at the node: the k-th node has the key 100 + 3k mod 8 */
		turns = (atomic_load(&walk.sqi.cons) - turns) / 16;
		assert_int_equal(turns,
				 hit && !whole ? (key - 100) * 3 % NODES + 1 : (uint64_t)NODES);
	}
	end();
}

static void with_break(void **state)
{
	walks(64, false, 50);
}

static void without_break(void **state)
{
	walks(64, true, 50);
}

/* A key that was found and then removed is not found again. */
static void removed(void **state)
{
	for (int whole = 0; whole < 2; whole++) {
		start(64, whole);
		assert_int_equal(ask(103, 1), ROOST_LOOKUP_HIT);
		list[3].key = ROOST_OPERAND(200);
		assert_int_equal(ask(103, 2), ROOST_LOOKUP_MISS);
		assert_int_equal(ask(200, 3), ROOST_LOOKUP_HIT);
		end();
	}
}

static void sizes(void **state)
{
	for (uint32_t len = 256; len <= SPACE; len *= 4)
		walks(len, len == 4096, 4);
}

static void wrong_queues(void **state)
{
	struct roost_chain_queue q[4] = {{.depth = 8, .stride = 64}, {.depth = 8, .stride = 64}};
	struct roost_list l = {.begin = {.queue = &q[0]},
			       .walk = {.queue = &q[1]},
			       .found = {.queue = &q[2]},
			       .answer = {.queue = &q[3]}};

	roost_list_emit(&l, NULL);
	for (int i = 0; i < 4; i++)
		assert_int_equal(q[i].error, -EINVAL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(with_break),	cmocka_unit_test(without_break),
		cmocka_unit_test(removed),	cmocka_unit_test(sizes),
		cmocka_unit_test(wrong_queues),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
