/* SPDX-License-Identifier: BSD-2-Clause */
#include "chain_hull.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

struct chain_hull chain_hull;

static uint32_t max_receives;

static void prepare(struct side *s, struct ibv_qp_init_attr *init)
{
	struct chain_hull *h = &chain_hull;

	h->receives = roost_create_counting_cq(s->ctx, 0);
	h->quiet = roost_create_counting_cq(s->ctx, 0);
	assert_non_null(h->receives);
	assert_non_null(h->quiet);
	init->recv_cq = h->receives;
	init->send_cq = h->quiet;
	init->cap.max_recv_wr = max_receives;
}

static void manage(struct side *s)
{
	struct roost_chain_attr a = {.managed_send = true};

	assert_int_equal(roost_qp_set_chain(s->qp, &a), 0);
}

void chain_hull_open(const struct chain_hull_shape *shape, int in, int out)
{
	struct chain_hull *h = &chain_hull;
	void *table;

	choose_port(true);
	h->hull = roost_hull_create();
	table = roost_hull_memory(h->hull, "table", shape->table);
	assert_non_null(table);
	max_receives = shape->receives;
	h->side.prepare = prepare;
	h->side.created = shape->managed ? manage : NULL;
	side_open(&h->side, table, shape->table, shape->access, in, out);
}

struct ibv_qp *chain_hull_loop(uint32_t depth, const struct roost_chain_attr *attr)
{
	struct ibv_qp_init_attr init = {
		.cap = {.max_send_wr = depth, .max_send_sge = 1},
		.qp_type = IBV_QPT_RC,
		.send_cq = chain_hull.quiet,
		.recv_cq = chain_hull.quiet,
	};
	struct ibv_qp *qp = ibv_create_qp(chain_hull.side.pd, &init);

	assert_non_null(qp);
	assert_int_equal(roost_qp_set_chain(qp, attr), 0);
	assert_int_equal(roost_qp_connect_self(qp, 1, 0), 0);
	return qp;
}

void chain_hull_register(unsigned n)
{
	const int access =
		IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
	struct chain_hull *h = &chain_hull;

	for (h->num_queues = 0; h->num_queues < n; h->num_queues++) {
		h->ring[h->num_queues] =
			roost_reg_queue_mr(h->queue[h->num_queues], ROOST_SEND_QUEUE, access);
		assert_non_null(h->ring[h->num_queues]);
	}
}

long chain_hull_describe(void *reply)
{
	const struct chain_hull *h = &chain_hull;
	struct chain_env *e = reply;

	memset(e, 0, sizeof(*e));
	for (unsigned i = 0; i < h->num_queues; i++) {
		e->qpn[i] = h->queue[i]->qp_num;
		e->ring[i] = (uintptr_t)h->ring[i]->addr;
		e->ring_key[i] = h->ring[i]->rkey;
	}
	e->table_key = h->side.mr->lkey;
	e->client = h->side.peer.addr;
	e->client_key = h->side.peer.rkey;
	return sizeof(*e);
}

static bool ended(void *ctx, int status)
{
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	return false;
}

void chain_hull_serve(const struct roost_hull_program *program, int in)
{
	struct roost_hull_program p = *program;
	struct chain_hull *h = &chain_hull;
	char end;

	p.ended = ended;
	assert_int_equal(roost_hull(h->hull, &p), 0);
	/* The child is dead. The chains serve until the client ends. */
	assert_int_equal(read(in, &end, 1), 1);
	for (unsigned i = 0; i < h->num_queues; i++) {
		assert_int_equal(ibv_destroy_qp(h->queue[i]), EBUSY);
		assert_int_equal(ibv_dereg_mr(h->ring[i]), 0);
		if (h->queue[i] != h->side.qp)
			assert_int_equal(ibv_destroy_qp(h->queue[i]), 0);
	}
	assert_int_equal(ibv_destroy_qp(h->side.qp), 0);
	assert_int_equal(ibv_destroy_cq(h->receives), 0);
	assert_int_equal(ibv_destroy_cq(h->quiet), 0);
	assert_int_equal(ibv_dereg_mr(h->side.mr), 0);
	assert_int_equal(ibv_destroy_cq(h->side.cq), 0);
	assert_int_equal(ibv_dealloc_pd(h->side.pd), 0);
	assert_int_equal(ibv_close_device(h->side.ctx), 0);
	roost_hull_destroy(h->hull);
}
