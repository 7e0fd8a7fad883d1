/* SPDX-License-Identifier: BSD-2-Clause */
/* Functions of the tests of look-ups: images of queues, which are posted whole and started. */
#ifndef ROOST_TESTS_CHAIN_OFFLOAD_H
#define ROOST_TESTS_CHAIN_OFFLOAD_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "roost/chain_list.h"
#include "roost/chain_lookup.h"
#include "world.h"

/* `by` enables n WQEs of a queue. */
static inline void offload_enable(struct ep *by, enum roost_op op, const struct ep *e, uint32_t n)
{
	ep_post(by, &(struct wr){.op = op,
				 .raddr = nic_qp_num(e->qp) | ROOST_CHAIN_RELATIVE,
				 .swap_add = n,
				 .flags = ROOST_WQE_SOLICITED});
}

static inline struct roost_chain_queue offload_queue(const struct ep *e)
{
	return (struct roost_chain_queue){.ring = {(uintptr_t)e->sq, e->sq_key},
					  .qp_num = nic_qp_num(e->qp),
					  .depth = e->p.depth,
					  .stride = 1u << e->sq_shift,
					  .image = calloc(e->p.depth, 1u << e->sq_shift)};
}

/* Posts one receive in all places of the ring, as it is recycled. */
static inline void offload_receives(struct ep *e, const struct roost_sge *sge, unsigned num_sge)
{
	for (uint32_t i = 0; i < e->p.depth; i++)
		ep_post_recv(e, 0, sge, num_sge);
}

/* A managed queue of the server that is connected to itself, and to the receives of `watch`. */
static inline struct ep_params offload_params(const struct ep *server, uint32_t depth,
					      const struct ep *watch)
{
	return (struct ep_params){.chain = true,
				  .counts = true,
				  .managed_send = true,
				  .mem = 64,
				  .pd_of = server,
				  .depth = depth,
				  .watch = {watch}};
}

/* Two NICs over a link that loses, repeats and reorders packets; the server is NIC 0. */
static inline struct roost_chain_data offload_world(struct world *w, unsigned nics, unsigned pus,
						    struct ep *server, uint64_t mem)
{
	const struct sim_params link = {
		.delay_ns = 1000, .loss = 0.05, .dup = 0.05, .reorder = 0.05};

	world_init_shape(w, &(struct world_shape){.nics = nics, .pus = pus}, 17, &link);
	ep_init(server, w, 0, &(struct ep_params){.chain = true, .mem = mem});
	ep_connect_self(server);
	return (struct roost_chain_data){
		.at = {(uintptr_t)server->mem, server->key}, .image = server->mem, .size = 8192};
}

static inline void offload_send(struct ep *near, uint64_t offset, uint32_t len)
{
	ep_post(near, &(struct wr){.op = ROOST_OP_SEND,
				   .sge = {ep_sge(near, offset, len)},
				   .num_sge = 1});
}

/* Runs until a word has a value, and takes the completion of the SEND. */
static inline void offload_await(struct ep *near, const uint64_t *word, uint64_t value)
{
	const uint64_t until = world_now(near->w) + 100 * SEC;
	struct roost_cqe cqe;

	while (*word != value) {
		assert_true(world_now(near->w) < until);
		world_step(near->w, until);
	}
	assert_true(ep_wait_send(near, &cqe, SEC));
	assert_int_equal(cqe.status, NIC_WC_SUCCESS);
}

/* Posts an image that fills its ring, and frees it. */
static inline void offload_post(struct ep *e, const struct roost_chain_queue *q)
{
	assert_int_equal(q->error, 0);
	assert_int_equal(q->n, q->depth);
	memcpy(e->sq, q->image, (size_t)q->depth << e->sq_shift);
	free(q->image);
	atomic_store(&e->sqi.prod, q->n);
	nic_doorbell(e->nic, e->qp);
}

#endif
