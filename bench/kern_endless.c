/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * bench-kernels endless: 64-byte READs of one tenant, while chains without end of another one run
 * on the same NIC: none; one with a rate limit; one, and 16, without.
 */
#include <stdlib.h>

#include "kern.h"
#include "roost/chain_verbs.h"

#define CHAINS 16u
#define DEPTH  64u
#define LIMIT  1000000u /* WQEs a second */

enum { NONE = 1, LIMITED, ONE, ALL };
enum { STOP, RUNS }; /* figures: the phase is to end; its chains run */

static struct ibv_qp *chain[CHAINS];
static struct ibv_pd *pd; /* of the other tenant */

static struct ibv_qp *make_qp(struct duo *s, bool managed)
{
	struct ibv_cq *cq = roost_create_counting_cq(s->ctx, 0);
	struct ibv_qp_init_attr init = {.send_cq = cq,
					.recv_cq = cq,
					.qp_type = IBV_QPT_RC,
					.cap = {.max_send_wr = DEPTH, .max_send_sge = 1}};
	struct ibv_qp *qp = cq ? ibv_create_qp(pd, &init) : NULL;

	if (!qp || roost_qp_set_chain(qp, &(struct roost_chain_attr){.managed_send = managed}) ||
	    roost_qp_connect_self(qp, 1, 0))
		duo_fail("endless: can't make a queue of a chain");
	return qp;
}

/* A chain of WRITEs and an ENABLE of the next round. */
static void start(struct ibv_qp *qp, struct ibv_qp *starter)
{
	static uint64_t data[16];
	struct ibv_mr *mr = ibv_reg_mr(pd, data, sizeof(data),
				       IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	struct roost_enable_wr go = {.qp_num = qp->qp_num,
				     .count = DEPTH,
				     .relative = true,
				     .send_flags = IBV_SEND_SIGNALED};
	struct ibv_sge sge = {(uintptr_t)data, 64, 0};
	struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE}, *bad;

	if (!mr)
		duo_fail("endless: can't register memory");
	sge.lkey = mr->lkey;
	wr.wr.rdma.remote_addr = (uintptr_t)&data[8];
	wr.wr.rdma.rkey = mr->rkey;
	for (unsigned i = 0; i < DEPTH - 1; i++)
		if (ibv_post_send(qp, &wr, &bad))
			duo_fail("endless: can't post");
	if (roost_post_enable(qp, &go) || roost_post_enable(starter, &go))
		duo_fail("endless: can't start a chain");
}

static void wait(struct duo *s, struct ibv_qp *qp)
{
	struct roost_chain_failure f;

	if (roost_qp_chain_failure(qp, &f) == 0)
		duo_fail("endless: a chain failed: %s", ibv_wc_status_str(f.status));
	duo_reap(s);
}

/* Until the client stops it. */
static void phase(struct duo *s, unsigned n)
{
	const unsigned chains = n == ALL ? CHAINS : n > NONE;
	struct ibv_qp *starter;

	pd = ibv_alloc_pd(s->ctx);
	if (!pd)
		duo_fail("endless: can't make a protection domain");
	starter = make_qp(s, false);
	for (unsigned i = 0; i < chains; i++) {
		chain[i] = make_qp(s, true);
		if (n == LIMITED && roost_qp_limit_chain(chain[i], &(struct roost_chain_limit){
									   .rate_limit = LIMIT}))
			duo_fail("endless: can't limit a chain");
		start(chain[i], starter);
	}
	for (unsigned i = 0; i < chains; i++)
		while (!roost_cq_count(chain[i]->send_cq))
			wait(s, chain[i]);
	atomic_store(duo_figure(s, RUNS), 1);
	while (!atomic_load(duo_figure(s, STOP)))
		duo_reap(s);
	if (roost_pd_remove_chains(pd))
		duo_fail("endless: can't remove the chains");
}

/* ---- the client ---- */

static unsigned once(struct duo *c, uint64_t random, unsigned size)
{
	duo_read(c, 0, c->remote + random % 64 * 64, size);
	return 1;
}

static void begin(struct duo *c, unsigned n)
{
	atomic_store(duo_figure(c, RUNS), 0);
	atomic_store(duo_figure(c, STOP), 0);
	duo_phase(c, n);
	while (!atomic_load(duo_figure(c, RUNS)))
		duo_reap(c);
}

#define BEGIN(name, n)                                                                             \
	static void begin_##name(struct duo *c)                                                    \
	{                                                                                          \
		begin(c, n);                                                                       \
	}

BEGIN(none, NONE)
BEGIN(limited, LIMITED)
BEGIN(one, ONE)
BEGIN(all, ALL)

static void end(struct duo *c)
{
	atomic_store(duo_figure(c, STOP), 1);
	duo_phase_end(c);
}

static void client(struct duo *c)
{
	static struct kern_way ways[] = {
		{.name = "no chain", .once = once, .begin = begin_none, .end = end},
		{.name = "a chain of 1 M WQEs/s", .once = once, .begin = begin_limited, .end = end},
		{.name = "a chain without limit", .once = once, .begin = begin_one, .end = end},
		{.name = "16 chains without limit", .once = once, .begin = begin_all, .end = end},
	};

	kern_compare(c, "endless", ways, sizeof(ways) / sizeof(ways[0]), 64, "");
}

void kern_endless(void)
{
	duo_run(&(struct duo_plan){.delay_ns = kern.delay_ns,
				   .client_len = 4096,
				   .server_len = 4096,
				   .phase = phase,
				   .client = client});
}
