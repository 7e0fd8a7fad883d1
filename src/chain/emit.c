/* SPDX-License-Identifier: BSD-2-Clause */
/* roost/chain.h: locations, data, and single work requests. */
#include <errno.h>
#include <string.h>

#include "base/export.h"
#include "roost/chain.h"

ROOST_EXPORT struct roost_wqe roost_wqe_nop(void)
{
	return (struct roost_wqe){.ctrl = ROOST_CTRL(ROOST_OP_NOP, 0)};
}

static struct roost_wqe move(enum roost_op op, struct roost_ref remote, struct roost_ref local,
			     uint32_t n)
{
	return (struct roost_wqe){.ctrl = ROOST_CTRL(op, 0),
				  .num_sge = 1,
				  .raddr = remote.addr,
				  .rkey = remote.key,
				  .sge = {{local.addr, n, local.key}}};
}

ROOST_EXPORT struct roost_wqe roost_wqe_write(struct roost_ref to, struct roost_ref from,
					      uint32_t n)
{
	return move(ROOST_OP_WRITE, to, from, n);
}

ROOST_EXPORT struct roost_wqe roost_wqe_read(struct roost_ref to, struct roost_ref from, uint32_t n)
{
	return move(ROOST_OP_READ, from, to, n);
}

ROOST_EXPORT struct roost_wqe roost_wqe_calc(enum roost_op op, struct roost_ref at,
					     uint64_t operand, struct roost_ref old)
{
	struct roost_wqe w = move(op, at, old, 8);

	w.swap_add = operand;
	return w;
}

ROOST_EXPORT struct roost_wqe roost_wqe_cas(struct roost_ref at, uint64_t compare, uint64_t swap,
					    struct roost_ref old)
{
	struct roost_wqe w = move(ROOST_OP_CMP_SWAP, at, old, 8);

	w.compare = compare;
	w.swap_add = swap;
	return w;
}

ROOST_EXPORT struct roost_wqe roost_wqe_wait(uint32_t watch, uint32_t count)
{
	return (struct roost_wqe){.ctrl = ROOST_CTRL(ROOST_OP_WAIT, 0),
				  .raddr = watch | ROOST_CHAIN_RELATIVE,
				  .swap_add = count};
}

ROOST_EXPORT struct roost_wqe roost_wqe_wait_time(uint64_t ns)
{
	return (struct roost_wqe){.ctrl = ROOST_CTRL(ROOST_OP_WAIT, 0),
				  .raddr = ROOST_CHAIN_TIME | ROOST_CHAIN_RELATIVE,
				  .swap_add = ns};
}

ROOST_EXPORT struct roost_wqe roost_wqe_enable(enum roost_op op, uint32_t qp_num, uint32_t count)
{
	return (struct roost_wqe){.ctrl = ROOST_CTRL(op, 0),
				  .raddr = qp_num | ROOST_CHAIN_RELATIVE,
				  .swap_add = count};
}

ROOST_EXPORT uint32_t roost_chain_emit(const struct roost_chain *c, struct roost_wqe wqe)
{
	struct roost_chain_queue *q = c->queue;

	if (!q->error && q->n >= q->depth)
		q->error = -ENOSPC;
	if (q->error)
		return 0;
	memcpy((uint8_t *)q->image + (size_t)q->n * q->stride, &wqe, sizeof(wqe));
	return q->n++;
}

ROOST_EXPORT struct roost_ref roost_chain_bytes(const struct roost_chain *c, const void *bytes,
						uint32_t n)
{
	struct roost_chain_data *d = c->data;
	uint32_t at = (d->n + 7) & ~7u;

	if (at > d->size || n > d->size - at) {
		if (!c->queue->error)
			c->queue->error = -ENOSPC;
		return (struct roost_ref){0};
	}
	memcpy((uint8_t *)d->image + at, bytes, n);
	d->n = at + n;
	return roost_ref_at(d->at, at);
}

ROOST_EXPORT struct roost_ref roost_chain_word(const struct roost_chain *c, uint64_t word)
{
	return roost_chain_bytes(c, &word, sizeof(word));
}
