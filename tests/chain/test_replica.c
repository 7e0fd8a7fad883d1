/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Chain replication over three nodes and links that lose packets: an acknowledged write is on all
 * nodes.
 */
#include <errno.h>

#include "offload.h"
#include "roost/chain_replica.h"

#define NODES	3
#define STORE	8192u /* offset in each node's memory */
#define STAGING 4096u
#define LEN	200u

static struct world W, *const w = &W;
static struct ep client, acks; /* of NIC 3: SENDs to the first node; ACKs come from the last */

static struct node {
	struct ep store, in, loop, out;
} node[NODES];

/* The node's memory: data of its chain, the staging area, the store. */
static void emit(unsigned i)
{
	struct node *n = &node[i];
	struct roost_chain_data data = {.at = {(uintptr_t)n->store.mem, n->store.key},
					.image = n->store.mem,
					.size = STAGING};
	struct roost_chain_queue lq = offload_queue(&n->loop), oq = offload_queue(&n->out);
	const struct roost_replica r = {
		.loop = {.queue = &lq, .data = &data},
		.out = {.queue = &oq, .data = &data},
		.in = nic_qp_num(n->in.qp),
		.watch = 2,
		.after = NODES - 1 - i,
		.len = LEN,
		.store_key = n->store.key,
		.staging = {(uintptr_t)n->store.mem + STAGING, n->store.key},
		.ack = {(uintptr_t)acks.mem, acks.key},
	};
	struct roost_sge sge[ROOST_REPLICA_SGES];

	roost_replica_emit(&r, sge);
	offload_post(&n->loop, &lq);
	offload_post(&n->out, &oq);
	offload_receives(&n->in, sge, ROOST_REPLICA_SGES);
	offload_enable(&n->store, ROOST_OP_RECV_ENABLE, &n->in, 1);
	offload_enable(&n->store, ROOST_OP_ENABLE, &n->loop, n->loop.p.depth);
}

static void open_node(unsigned i)
{
	struct node *n = &node[i];
	struct ep_params p = {.chain = true};

	ep_init(&n->store, w, i, &p);
	ep_connect_self(&n->store);
	p = offload_params(&n->store, 1, NULL);
	p.managed_send = false;
	p.managed_recv = true;
	p.max_sge = ROOST_REPLICA_SGES;
	ep_init(&n->in, w, i, &p);
	p = offload_params(&n->store, ROOST_REPLICA_LOOP, &n->in);
	ep_init(&n->loop, w, i, &p);
	ep_connect_self(&n->loop);
	p = offload_params(&n->store, ROOST_REPLICA_OUT, NULL);
	ep_init(&n->out, w, i, &p);
}

static void start(void)
{
	world_init(
		w, NODES + 1, 23,
		&(struct sim_params){.delay_ns = 1000, .loss = 0.05, .dup = 0.05, .reorder = 0.05});
	ep_init(&client, w, NODES, NULL);
	ep_init(&acks, w, NODES, NULL);
	for (unsigned i = 0; i < NODES; i++)
		open_node(i);
	ep_connect(&client, &node[0].in);
	for (unsigned i = 0; i + 1 < NODES; i++)
		ep_connect(&node[i].out, &node[i + 1].in);
	ep_connect(&node[NODES - 1].out, &acks);
	for (unsigned i = 0; i < NODES; i++)
		emit(i);
	world_run(w, world_now(w) + SEC);
}

static void end(void)
{
	for (unsigned i = 0; i < NODES; i++) {
		ep_fini(&node[i].loop);
		ep_fini(&node[i].in);
		ep_fini(&node[i].out);
		ep_fini(&node[i].store);
	}
	ep_fini(&client);
	ep_fini(&acks);
	world_fini(w);
}

static void send_write(uint64_t number, uint32_t offset)
{
	uint64_t at[NODES];
	uint8_t bytes[LEN];

	for (unsigned i = 0; i < NODES; i++)
		at[i] = (uintptr_t)node[i].store.mem + STORE + offset;
	for (unsigned i = 0; i < LEN; i++)
		bytes[i] = (uint8_t)(number * 31 + i);
	offload_send(&client, 0, roost_replica_request(client.mem, at, NODES, number, bytes, LEN));
}

/* Checked at the moment of the ACK, before any NIC runs. */
static void check_nodes(uint64_t number, uint32_t offset)
{
	for (unsigned i = 0; i < NODES; i++) {
		const uint8_t *at = node[i].store.mem + STORE + offset;

		for (unsigned k = 0; k < LEN; k++)
			assert_int_equal(at[k], (uint8_t)(number * 31 + k));
	}
}

static void writes(void **state)
{
	const uint64_t *ack;

	start();
	ack = (const uint64_t *)acks.mem;
	for (uint64_t number = 1; number <= 100; number++) {
		const uint32_t offset = (uint32_t)(number * 7 % 50) * 256;
		const uint64_t until = world_now(w) + 100 * SEC;
		struct roost_cqe cqe;

		send_write(number, offset);
		while (!roost_replica_done(ack, number)) {
			assert_true(world_now(w) < until);
			world_step(w, until);
		}
		check_nodes(number, offset);
		assert_true(ep_wait_send(&client, &cqe, SEC));
	}
	for (unsigned i = 0; i < NODES; i++)
		assert_int_equal(nic_qp_state(node[i].loop.qp), NIC_QPS_RTS);
	end();
}

/* An address outside of the store of the second node: no ACK, and the last node has no data. */
static void no_ack_without_all(void **state)
{
	uint64_t at[NODES];
	uint8_t bytes[LEN];

	start();
	memset(bytes, 9, LEN);
	for (unsigned i = 0; i < NODES; i++)
		at[i] = (uintptr_t)node[i].store.mem + STORE;
	at[1] = (uintptr_t)&W;
	offload_send(&client, 0, roost_replica_request(client.mem, at, NODES, 1, bytes, LEN));
	world_run(w, world_now(w) + 10 * SEC);
	assert_false(roost_replica_done((const uint64_t *)acks.mem, 1));
	assert_int_equal(node[0].store.mem[STORE], 9);
	assert_int_equal(node[2].store.mem[STORE], 0);
	assert_int_equal(nic_qp_state(node[1].loop.qp), NIC_QPS_ERR);
	end();
}

static void wrong_queues(void **state)
{
	struct roost_chain_queue loop = {.depth = 4, .stride = 64}, out = {.depth = 4};

	roost_replica_emit(
		&(struct roost_replica){.loop = {.queue = &loop}, .out = {.queue = &out}}, NULL);
	assert_int_equal(loop.error, -EINVAL);
	assert_int_equal(out.error, -EINVAL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(writes),
		cmocka_unit_test(no_ack_without_all),
		cmocka_unit_test(wrong_queues),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
