/* SPDX-License-Identifier: BSD-2-Clause */
/* What the tests of look-ups share: images of queues, posted whole and started. */
#ifndef ROOST_TESTS_CHAIN_OFFLOAD_H
#define ROOST_TESTS_CHAIN_OFFLOAD_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "roost/chain_list.h"
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
