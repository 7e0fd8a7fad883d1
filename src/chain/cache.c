/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The chain of a get (roost/chain_cache.h). The loop runs one turn for each request:
 *
 *	WAIT		for a receive, which has stored bucket offsets, keys and number
 *	READ		the count of moves
 *	READ		the base of the active buckets, to the address of the first bucket
 *	copy		the address to that of the second bucket
 *	ADD, ADD	the offsets of the buckets
 *	copy		a NOP over the answer
 *	READ, READ	the buckets: the key to op-code and id of `hit`, place and length of the
 *			item into the template of the answer
 *	READ		the count of moves
 *	for each bucket:
 *	    CAS		if the key is the client's, `hit` is a WRITE; the key found goes to the
 *			reply
 *	    hit		copies the template over the answer
 *	RECV_ENABLE	the next request
 *	ENABLE		the answer queue: the item, the reply's start, and an ENABLE of the next
 *			turn
 *
 * The base is read once, so both buckets are of one generation. A get that hits nothing while an
 * entry moved from the second bucket to the first one finds two different counts of moves.
 */
#include <errno.h>
#include <stddef.h>

#include "base/export.h"
#include "roost/chain_cache.h"

enum { READ_BUCKET = 7, CAS = 10, HIT = 11 }; /* WQEs of the first bucket */

#define AT_BYTES (ROOST_CACHE_AT_BITS / 8)

static struct roost_sge sge_of(struct roost_ref r, uint32_t len)
{
	return (struct roost_sge){r.addr, len, r.key};
}

/*
 * READs a bucket to three addresses. The stores of address and length rely on little-endian order.
 */
static void emit_read(const struct roost_cache_chain *l, uint32_t hit, struct roost_ref part)
{
	struct roost_chain_queue *q = l->loop.queue;
	struct roost_wqe w =
		roost_wqe_read(ROOST_FIELD(q, hit, ctrl), (struct roost_ref){0, l->index_key}, 8);
	struct roost_sge more[2] = {
		sge_of(roost_ref_at(part, offsetof(struct roost_wqe, sge[0].addr)), AT_BYTES),
		sge_of(roost_ref_at(part, offsetof(struct roost_wqe, sge[0].len)), 8 - AT_BYTES),
	};
	uint32_t n;

	w.num_sge = 3;
	n = roost_chain_emit(&l->loop, w);
	if (!q->error)
		memcpy((uint8_t *)q->image + (size_t)n * q->stride + sizeof(w), more, sizeof(more));
}

static void emit_hit(const struct roost_cache_chain *l, uint32_t hit, struct roost_ref part,
		     struct roost_ref found)
{
	const struct roost_chain_queue *q = l->loop.queue;
	struct roost_wqe w = roost_wqe_write(ROOST_FIELD(l->answer.queue, 0, ctrl), part,
					     sizeof(struct roost_wqe));

	w.ctrl = ROOST_CTRL(ROOST_OP_NOP, 0);
	roost_chain_emit(&l->loop, roost_wqe_cas(ROOST_FIELD(q, hit, ctrl), 0,
						 ROOST_CTRL(ROOST_OP_WRITE, 0), found));
	roost_chain_emit(&l->loop, w);
}

static void emit_answer(const struct roost_cache_chain *l, struct roost_ref start)
{
	const struct roost_chain_queue *loop = l->loop.queue;

	roost_chain_emit(&l->answer, roost_wqe_nop());
	roost_chain_emit(&l->answer,
			 roost_wqe_write(l->reply, start, sizeof(struct roost_cache_reply)));
	roost_chain_emit(&l->answer, roost_wqe_enable(ROOST_OP_ENABLE, loop->qp_num, loop->depth));
	roost_chain_emit(&l->answer, roost_wqe_nop());
}

static void emit_loop(const struct roost_cache_chain *l, struct roost_ref start)
{
	const struct roost_ref index = {0, l->index_key};
	const struct roost_wqe item =
		roost_wqe_write(roost_ref_at(l->reply, ROOST_CACHE_REPLY_ITEM),
				(struct roost_ref){0, l->items_key}, 0);
	const struct roost_ref nop = roost_chain_word(&l->loop, ROOST_CTRL(ROOST_OP_NOP, 0));
	const struct roost_ref scratch = roost_chain_word(&l->loop, 0);
	const struct roost_ref part[2] = {roost_chain_bytes(&l->loop, &item, sizeof(item)),
					  roost_chain_bytes(&l->loop, &item, sizeof(item))};
	const struct roost_chain_queue *q = l->loop.queue, *answer = l->answer.queue;
	const struct roost_ref first = ROOST_FIELD(q, READ_BUCKET, raddr),
			       second = ROOST_FIELD(q, READ_BUCKET + 1, raddr);
	const struct roost_ref moves =
		roost_ref_at(start, offsetof(struct roost_cache_reply, moves));

	roost_chain_emit(&l->loop, roost_wqe_wait(l->watch, 1));
	roost_chain_emit(&l->loop, roost_wqe_read(moves, index, 8));
	roost_chain_emit(
		&l->loop,
		roost_wqe_read(first,
			       roost_ref_at(index, offsetof(struct roost_cache_control, base)), 8));
	roost_chain_emit(&l->loop, roost_wqe_write(second, first, 8));
	roost_chain_emit(&l->loop, roost_wqe_calc(ROOST_OP_FETCH_ADD, first, 0, scratch));
	roost_chain_emit(&l->loop, roost_wqe_calc(ROOST_OP_FETCH_ADD, second, 0, scratch));
	roost_chain_emit(&l->loop, roost_wqe_write(ROOST_FIELD(answer, 0, ctrl), nop, 8));
	emit_read(l, HIT, part[0]);
	emit_read(l, HIT + 2, part[1]);
	roost_chain_emit(&l->loop, roost_wqe_read(roost_ref_at(moves, 8), index, 8));
	emit_hit(l, HIT, part[0], start);
	emit_hit(l, HIT + 2, part[1], roost_ref_at(start, 8));
	roost_chain_emit(&l->loop, roost_wqe_enable(ROOST_OP_RECV_ENABLE, answer->qp_num, 1));
	roost_chain_emit(&l->loop,
			 roost_wqe_enable(ROOST_OP_ENABLE, answer->qp_num, answer->depth));
}

ROOST_EXPORT void roost_cache_emit(const struct roost_cache_chain *l,
				   struct roost_sge sge[ROOST_CACHE_SGES])
{
	struct roost_chain_queue *loop = l->loop.queue, *answer = l->answer.queue;
	const struct roost_cache_reply zero = {.number = 0};
	struct roost_ref start;

	if (loop->depth != ROOST_CACHE_LOOP || loop->stride < ROOST_CACHE_STRIDE || loop->n ||
	    answer->depth != ROOST_CACHE_ANSWER || answer->n) {
		loop->error = answer->error = -EINVAL;
		return;
	}
	start = roost_chain_bytes(&l->loop, &zero, sizeof(zero));
	emit_loop(l, start);
	emit_answer(l, start);
	for (uint32_t i = 0; i < ROOST_LOOKUP_BUCKETS; i++) {
		sge[i] = sge_of(ROOST_FIELD(loop, 4 + i, swap_add), 8);
		sge[2 + i] = sge_of(ROOST_FIELD(loop, CAS + 2 * i, compare), 8);
	}
	sge[4] = sge_of(roost_ref_at(start, offsetof(struct roost_cache_reply, number)), 8);
}
