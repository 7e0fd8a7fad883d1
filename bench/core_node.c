/* SPDX-License-Identifier: BSD-2-Clause */
#include "core_node.h"

#include "wire.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static void on_cq(void *host, void *ctx)
{
}

static void on_qp(void *host, enum nic_event ev, void *ctx)
{
	if (ev != NIC_EVENT_FIRST_PACKET) {
		const struct queue *q = ctx;
		struct nic_chain_failure f = {.index = 0};

		nic_qp_chain_failure(q->qp, &f);
		fprintf(stderr,
			"bench_core: event %d of a chain of %u WQEs: WQE %u, op-code %u, %u\n", ev,
			q->image.depth, f.index, (unsigned)ROOST_CTRL_OP(f.wqe.ctrl), f.status);
		exit(1);
	}
}

static const struct nic_host_ops host_ops = {
	.cq_event = on_cq, .qp_event = on_qp, .cq_error = on_cq};

void node_check(int rc)
{
	if (rc) {
		fprintf(stderr, "bench_core: a chain: %s\n", strerror(-rc));
		exit(1);
	}
}

void node_open(struct node *n, struct node *peer, const char *addr)
{
	struct nic_config cfg = {.pus = 1, .ports = 1, .seed = {9}, .ops = &host_ops};
	struct nic_mr_attr mr = {.len = NODE_MEM, .access = 15};

	if (!n->wire)
		n->wire = calloc(1, sizeof(*n->wire));
	if (!peer->wire)
		peer->wire = calloc(1, sizeof(*peer->wire));
	wire_init(n->wire, peer->wire, addr);
	cfg.port[0][0] = &n->wire->base;
	node_check(nic_create(&cfg, &n->nic));
	node_check(nic_pd_alloc(n->nic, &n->pd));
	n->mem = mem_alloc_pages(NODE_MEM);
	mr.pd = n->pd;
	mr.addr = n->mem;
	mr.iova = (uintptr_t)n->mem;
	node_check(nic_mr_register(n->nic, &mr, &n->key));
}

void node_open_units(struct node *units, unsigned count)
{
	struct nic_config cfg = {.pus = count, .ports = 1, .seed = {9}, .ops = &host_ops};

	for (unsigned i = 0; i < count; i++) {
		units[i] = (struct node){.wire = calloc(1, sizeof(struct wire)), .pu = i};
		wire_init(units[i].wire, units[i].wire, "10.0.1.3");
		units[i].wire->base.lanes = count;
		units[i].wire->base.lane = i;
		cfg.port[0][i] = &units[i].wire->base;
	}
	node_check(nic_create(&cfg, &units[0].nic));
	node_check(nic_pd_alloc(units[0].nic, &units[0].pd));
	for (unsigned i = 0; i < count; i++) {
		struct node *n = &units[i];
		struct nic_mr_attr mr = {.len = NODE_MEM, .access = 15};

		n->nic = units[0].nic;
		n->pd = units[0].pd;
		n->mem = mem_alloc_pages(NODE_MEM);
		mr.pd = n->pd;
		mr.addr = n->mem;
		mr.iova = (uintptr_t)n->mem;
		node_check(nic_mr_register(n->nic, &mr, &n->key));
	}
}

void queue_open(struct queue *q, struct node *n, uint32_t depth, uint8_t shift,
		struct nic_chain_attr attr)
{
	struct nic_cq_attr cq = {.pu = n->pu, .index = &q->ci};
	struct nic_mr_attr mr = {.pd = n->pd, .len = (uint64_t)depth << shift, .access = 15};
	struct nic_qp_init init = {.type = NIC_QPT_RC, .pd = n->pd, .ctx = q};

	q->node = n;
	q->ring = mem_alloc_pages((size_t)depth << shift);
	node_check(nic_cq_create(n->nic, &cq, &q->cq));
	init.send_cq = q->cq;
	init.recv_cq = q->recv_cq ? q->recv_cq : q->cq;
	init.sq = (struct nic_queue_attr){q->ring, q->wr, &q->si, depth, shift};
	init.rq = (struct nic_queue_attr){q->recv, q->recv_wr, &q->ri, 1, 8};
	node_check(nic_qp_create(n->nic, &init, &q->qp));
	attr.watch[3] = q->cq;
	node_check(nic_qp_set_chain(n->nic, q->qp, &attr));
	mr.addr = q->ring;
	mr.iova = (uintptr_t)q->ring;
	node_check(nic_mr_register(n->nic, &mr, &q->ring_key));
	q->image = (struct roost_chain_queue){.ring = {(uintptr_t)q->ring, q->ring_key},
					      .qp_num = nic_qp_num(q->qp),
					      .depth = depth,
					      .stride = 1u << shift,
					      .image = q->ring};
}

void queue_connect(struct queue *q, const struct queue *peer)
{
	struct nic_qp_attr a = {.state = NIC_QPS_INIT, .port = 1, .access = 15};
	struct nic *nic = q->node->nic;

	node_check(nic_qp_modify(
		nic, q->qp, &a,
		NIC_QPA_STATE | NIC_QPA_PKEY_INDEX | NIC_QPA_PORT | NIC_QPA_ACCESS_FLAGS, 1));
	a = (struct nic_qp_attr){.state = NIC_QPS_RTR,
				 .path_mtu = 4096,
				 .dgid = peer->node->wire->base.addr,
				 .dest_qpn = nic_qp_num(peer->qp),
				 .max_rd_atomic = 16,
				 .max_dest_rd_atomic = 16,
				 .timeout = 14,
				 .retry_cnt = 7,
				 .rnr_retry = 7,
				 .port = 1};
	node_check(nic_qp_modify(nic, q->qp, &a,
				 NIC_QPA_STATE | NIC_QPA_AV | NIC_QPA_PATH_MTU | NIC_QPA_DEST_QPN |
					 NIC_QPA_RQ_PSN | NIC_QPA_MAX_DEST_RD_ATOMIC |
					 NIC_QPA_MIN_RNR_TIMER,
				 1));
	a.state = NIC_QPS_RTS;
	node_check(nic_qp_modify(nic, q->qp, &a,
				 NIC_QPA_STATE | NIC_QPA_TIMEOUT | NIC_QPA_RETRY_CNT |
					 NIC_QPA_RNR_RETRY | NIC_QPA_SQ_PSN |
					 NIC_QPA_MAX_QP_RD_ATOMIC,
				 1));
}

void queue_publish(struct queue *q)
{
	node_check(q->image.error);
	atomic_store(&q->si.prod, q->image.n);
	nic_doorbell(q->node->nic, q->qp);
}

double node_cpu_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

double node_time_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static _Thread_local uint64_t fake = 1;

void node_poll(struct node *n)
{
	fake += 1000;
	nic_poll(n->nic, n->pu, fake);
}

void queue_start(struct node *n, struct queue *recv, uint32_t receives, struct queue *send,
		 uint32_t wqes)
{
	struct queue *starter = calloc(1, sizeof(*starter));
	struct roost_chain s = {.queue = &starter->image};

	queue_open(starter, n, 2, 6, (struct nic_chain_attr){0});
	queue_connect(starter, starter);
	if (receives)
		roost_chain_emit(
			&s, roost_wqe_enable(ROOST_OP_RECV_ENABLE, nic_qp_num(recv->qp), receives));
	if (wqes)
		roost_chain_emit(&s, roost_wqe_enable(ROOST_OP_ENABLE, nic_qp_num(send->qp), wqes));
	queue_publish(starter);
	node_poll(n);
	queue_close(starter);
	free(starter);
}

void queue_close(struct queue *q)
{
	nic_qp_destroy(q->node->nic, q->qp);
	node_check(nic_cq_destroy(q->node->nic, q->cq));
}
