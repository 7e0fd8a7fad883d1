/* SPDX-License-Identifier: BSD-2-Clause */
#include "look_chain.h"

#include <stdlib.h>

#include "roost/chain_list.h"
#include "roost/chain_lookup.h"
#include "roost/chain_parallel.h"
#include "roost/chain_verbs.h"

static bool is_list(const struct look_chain *k)
{
	return k->kind == LOOK_LIST || k->kind == LOOK_LIST_WHOLE;
}

static uint32_t loops(const struct look_chain *k)
{
	return is_list(k) ? 3 : k->kind == LOOK_PARALLEL ? 2 : 1;
}

static uint32_t loop_depth(const struct look_chain *k, uint32_t i)
{
	static const uint32_t list[LOOK_LOOPS] = {8, 16, 2};

	if (is_list(k))
		return list[i];
	return k->kind == LOOK_PARALLEL ? ROOST_PARALLEL_LOOP
					: ROOST_LOOKUP_LOOP(k->kind == LOOK_FIRST ? 1 : 2);
}

static uint32_t answer_depth(const struct look_chain *k)
{
	return k->kind == LOOK_PARALLEL ? ROOST_PARALLEL_ANSWER : ROOST_LOOKUP_ANSWER;
}

static struct ibv_cq *make_cq(struct duo *s)
{
	struct ibv_cq *cq = roost_create_counting_cq(s->ctx, 0);

	if (!cq)
		duo_fail("can't make a completion queue that counts");
	return cq;
}

static struct ibv_qp *make_queue(struct duo *s, struct ibv_cq *sends, struct ibv_cq *receives,
				 struct ibv_qp_cap cap, const struct roost_chain_attr *attr)
{
	struct ibv_qp_init_attr init = {
		.send_cq = sends, .recv_cq = receives, .cap = cap, .qp_type = IBV_QPT_RC};
	struct ibv_qp *qp = ibv_create_qp(s->pd, &init);

	if (!qp || roost_qp_set_chain(qp, attr))
		duo_fail("can't make a queue pair of a chain");
	return qp;
}

struct ibv_qp *look_chain_make(struct duo *s, struct look_chain *k, enum look_kind kind)
{
	struct roost_chain_attr attr = {.managed_send = true};

	k->kind = kind;
	if (!k->receives)
		k->receives = make_cq(s);
	k->sends = make_cq(s);
	attr.watch[0] = k->receives;
	for (uint32_t i = 0; i < loops(k); i++) {
		attr.audit = i == 0 ? k->audit : NULL;
		k->loop_sends[i] = make_cq(s);
		attr.watch[ROOST_CHAIN_WATCHES - 1] = k->loop_sends[i];
		k->loop[i] = make_queue(
			s, k->loop_sends[i], k->sends,
			(struct ibv_qp_cap){.max_send_wr = loop_depth(k, i), .max_send_sge = 1},
			&attr);
		if (roost_qp_connect_self(k->loop[i], 1, 0))
			duo_fail("can't connect a queue pair to itself");
	}
	k->starter = make_queue(s, k->sends, k->sends,
				(struct ibv_qp_cap){.max_send_wr = 4, .max_send_sge = 1},
				&(struct roost_chain_attr){0});
	if (roost_qp_connect_self(k->starter, 1, 0))
		duo_fail("can't connect a queue pair to itself");
	attr = (struct roost_chain_attr){.managed_send = true, .managed_recv = true};
	if (kind == LOOK_PARALLEL) {
		attr.watch[1] = k->loop_sends[0];
		attr.watch[2] = k->loop_sends[1];
	}
	k->conn = make_queue(s, k->sends, k->receives,
			     (struct ibv_qp_cap){.max_send_wr = answer_depth(k),
						 .max_send_sge = 2,
						 .max_recv_wr = 1,
						 .max_recv_sge = ROOST_LOOKUP_SGES},
			     &attr);
	return k->conn;
}

static struct roost_chain_queue image_of(struct ibv_qp *qp, uint32_t depth)
{
	struct ibv_mr *ring =
		roost_reg_queue_mr(qp, ROOST_SEND_QUEUE,
				   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
					   IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC);
	const uint32_t stride = roost_qp_stride(qp, ROOST_SEND_QUEUE);
	void *image = calloc(depth, stride);

	if (!ring || !image)
		duo_fail("can't register the ring of a chain");
	return (struct roost_chain_queue){.ring = {(uintptr_t)ring->addr, ring->rkey},
					  .qp_num = qp->qp_num,
					  .depth = depth,
					  .stride = stride,
					  .image = image};
}

/* Posts an image and frees it. */
static void post(struct ibv_qp *qp, struct roost_chain_queue *q)
{
	if (q->error || roost_post_wqes(qp, q->image, q->depth, 0))
		duo_fail("can't post a chain");
	free(q->image);
}

static void enable(const struct look_chain *k, const struct ibv_qp *qp, enum roost_queue queue,
		   uint32_t count)
{
	if (roost_post_enable(k->starter, &(struct roost_enable_wr){.qp_num = qp->qp_num,
								    .queue = queue,
								    .count = count,
								    .relative = true}))
		duo_fail("can't start a chain");
}

static void post_recv(struct ibv_qp *qp, const struct roost_sge *sge, uint32_t n)
{
	struct ibv_sge list[ROOST_LOOKUP_SGES];
	struct ibv_recv_wr wr = {.sg_list = list, .num_sge = (int)n}, *bad;

	for (uint32_t i = 0; i < n; i++)
		list[i] = (struct ibv_sge){sge[i].addr, sge[i].len, sge[i].lkey};
	if (ibv_post_recv(qp, &wr, &bad))
		duo_fail("can't post the receive of a chain");
}

void look_chain_start(struct duo *s, struct look_chain *k, uint32_t value_len, size_t data_at,
		      size_t reply)
{
	struct roost_chain_queue loop[LOOK_LOOPS], answer = image_of(k->conn, answer_depth(k));
	struct roost_chain_data data = {.at = {(uintptr_t)s->mem + data_at, s->mr->rkey},
					.image = s->mem + data_at,
					.size = LOOK_DATA};
	const struct roost_ref to = {s->remote + reply, s->rkey};
	struct roost_sge sge[ROOST_LOOKUP_SGES];
	uint32_t n = ROOST_LOOKUP_SGES;

	for (uint32_t i = 0; i < loops(k); i++)
		loop[i] = image_of(k->loop[i], loop_depth(k, i));
	if (is_list(k)) {
		struct roost_list l = {.begin = {.queue = &loop[0], .data = &data},
				       .walk = {.queue = &loop[1], .data = &data},
				       .found = {.queue = &loop[2], .data = &data},
				       .answer = {.queue = &answer, .data = &data},
				       .list_key = s->mr->lkey,
				       .value_len = value_len,
				       .whole = k->kind == LOOK_LIST_WHOLE,
				       .reply = to};

		l.walk.scratch = roost_chain_word(&l.walk, 0);
		roost_list_emit(&l, sge);
		n = ROOST_LIST_SGES;
	} else if (k->kind == LOOK_PARALLEL) {
		struct roost_parallel p = {.answer = {.queue = &answer, .data = &data},
					   .done = {1, 2},
					   .table_key = s->mr->lkey,
					   .value_len = value_len,
					   .reply = to};

		for (unsigned i = 0; i < 2; i++)
			p.loop[i] = (struct roost_chain){.queue = &loop[i], .data = &data};
		roost_parallel_emit(&p, sge);
	} else {
		roost_lookup_emit(
			&(struct roost_lookup){.loop = {.queue = &loop[0], .data = &data},
					       .answer = {.queue = &answer, .data = &data},
					       .buckets = k->kind == LOOK_FIRST ? 1 : 2,
					       .table_key = s->mr->lkey,
					       .value_len = value_len,
					       .reply = to},
			sge, &n);
	}
	for (uint32_t i = 0; i < loops(k); i++)
		post(k->loop[i], &loop[i]);
	post(k->conn, &answer);
	post_recv(k->conn, sge, n);
	enable(k, k->conn, ROOST_RECV_QUEUE, 1);
	for (uint32_t i = 0; i < (is_list(k) ? 1 : loops(k)); i++)
		enable(k, k->loop[i], ROOST_SEND_QUEUE, loop_depth(k, i));
	if (k->kind == LOOK_PARALLEL)
		enable(k, k->conn, ROOST_SEND_QUEUE, answer_depth(k));
}
