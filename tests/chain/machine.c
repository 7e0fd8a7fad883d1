/* SPDX-License-Identifier: BSD-2-Clause */
#include "machine.h"

void machine_open(struct machine *m, uint32_t first)
{
	struct ep_params p = {.chain = true, .first = first, .mem = 1 << 20};

	memset(m, 0, sizeof(*m));
	world_init(&m->w, 1, 3, NULL);
	ep_init(&m->starter, &m->w, 0, &p);
	ep_connect_self(&m->starter);
	m->data = (struct roost_chain_data){.at = {(uintptr_t)m->starter.mem, m->starter.key},
					    .image = m->starter.mem,
					    .size = (uint32_t)m->starter.mem_len};
}

void machine_close(struct machine *m)
{
	for (unsigned i = 0; i < m->queues; i++) {
		assert_int_equal(nic_qp_state(m->ep[i].qp), NIC_QPS_RTS);
		free(m->queue[i].image);
		ep_fini(&m->ep[i]);
	}
	ep_fini(&m->starter);
	world_fini(&m->w);
}

struct roost_chain machine_queue(struct machine *m, uint32_t depth)
{
	struct ep_params p = {.chain = true,
			      .managed_send = true,
			      .counts = true,
			      .depth = depth,
			      .first = m->starter.p.first,
			      .pd_of = &m->starter,
			      .mem = 64};
	struct ep *e = &m->ep[m->queues];
	struct roost_chain_queue *q = &m->queue[m->queues++];
	struct roost_chain c = {.queue = q, .data = &m->data};

	assert_true(m->queues <= MACHINE_QUEUES);
	ep_init(e, &m->w, 0, &p);
	ep_connect_self(e);
	assert_int_equal(e->sq_shift, 6);
	*q = (struct roost_chain_queue){.ring = {(uintptr_t)e->sq, e->sq_key},
					.qp_num = nic_qp_num(e->qp),
					.depth = depth,
					.first = p.first,
					.stride = sizeof(struct roost_wqe),
					.image = calloc(depth, sizeof(struct roost_wqe))};
	c.scratch = roost_chain_word(&c, 0);
	return c;
}

static struct ep *ep_of(struct machine *m, const struct roost_chain *c)
{
	return &m->ep[c->queue - m->queue];
}

void machine_post(struct machine *m, const struct roost_chain *c)
{
	const struct roost_chain_queue *q = c->queue;
	struct ep *e = ep_of(m, c);

	assert_int_equal(q->error, 0);
	for (uint32_t i = 0; i < q->depth; i++)
		memcpy(e->sq + ((size_t)((q->first + i) & (q->depth - 1)) << 6), &q->image[i],
		       sizeof(q->image[i]));
	atomic_store(&e->sqi.prod, q->first + q->depth);
	nic_doorbell(e->nic, e->qp);
}

void machine_run(struct machine *m)
{
	world_run(&m->w, world_now(&m->w) + 100 * SEC);
}

void machine_go(struct machine *m, const struct roost_chain *c, uint32_t n)
{
	ep_post(&m->starter, &(struct wr){.op = ROOST_OP_ENABLE,
					  .raddr = c->queue->qp_num | ROOST_CHAIN_RELATIVE,
					  .swap_add = n,
					  .flags = ROOST_WQE_SOLICITED});
	machine_run(m);
}

uint32_t machine_executed(const struct machine *m, const struct roost_chain *c)
{
	return atomic_load(&m->ep[c->queue - m->queue].sqi.cons) - c->queue->first;
}

uint64_t *machine_word(struct machine *m, struct roost_ref p)
{
	return (uint64_t *)(uintptr_t)p.addr;
}
