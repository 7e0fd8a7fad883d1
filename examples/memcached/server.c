/* SPDX-License-Identifier: BSD-2-Clause */
#include "server.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <rdma/rdma_cma.h>
#include <roost/chain_verbs.h>

#define DATA_LEN (1u << 20) /* of chains */

static struct server {
	struct rdma_cm_id *listener;
	struct ibv_pd *pd;
	struct ibv_mr *index, *items, *data_mr;
	struct roost_chain_data data;
	struct ibv_qp *starter;
	struct ibv_cq *quiet;
	struct roost_cache_shape shape;
} server;

static void must(bool ok, const char *what)
{
	if (ok)
		return;
	fprintf(stderr, "cache: %s: %s\n", what, strerror(errno));
	exit(1);
}

static void set_chain(struct ibv_qp *qp, const struct roost_chain_attr *attr)
{
	errno = roost_qp_set_chain(qp, attr);
	must(errno == 0, "setting up a queue pair for chains");
}

static struct ibv_qp *loop_queue(const struct roost_chain_attr *attr)
{
	struct ibv_qp_init_attr init = {
		.cap = {.max_send_wr = ROOST_CACHE_LOOP, .max_send_sge = 3},
		.qp_type = IBV_QPT_RC,
		.send_cq = server.quiet,
		.recv_cq = server.quiet,
	};
	struct ibv_qp *qp = ibv_create_qp(server.pd, &init);

	must(qp != NULL, "creating a queue pair");
	set_chain(qp, attr);
	errno = roost_qp_connect_self(qp, 1, 0);
	must(errno == 0, "connecting a queue pair to itself");
	return qp;
}

static struct roost_chain_queue image_of(struct ibv_qp *qp)
{
	const int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
			   IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_REMOTE_READ;
	struct ibv_mr *ring = roost_reg_queue_mr(qp, ROOST_SEND_QUEUE, access);
	struct roost_chain_queue q = {.qp_num = qp->qp_num,
				      .stride = roost_qp_stride(qp, ROOST_SEND_QUEUE)};

	must(ring != NULL, "registering a ring");
	q.ring = (struct roost_ref){(uintptr_t)ring->addr, ring->rkey};
	q.depth = (uint32_t)(ring->length / q.stride);
	q.image = calloc(q.depth, q.stride);
	must(q.image != NULL, "memory");
	return q;
}

static void post(struct ibv_qp *qp, const struct roost_chain_queue *q)
{
	errno = q->error ? -q->error : roost_post_wqes(qp, q->image, q->n, 0);
	must(errno == 0, "posting a chain");
	free(q->image);
}

static void enable(struct ibv_qp *qp, enum roost_queue queue, uint32_t n)
{
	struct roost_enable_wr wr = {
		.qp_num = qp->qp_num, .queue = queue, .count = n, .relative = true};

	errno = roost_post_enable(server.starter, &wr);
	must(errno == 0, "enabling a queue");
}

/* The queue goes round when its whole ring has been posted. */
static void post_receives(struct ibv_qp *qp, const struct roost_sge *sge)
{
	struct ibv_sge list[ROOST_CACHE_SGES];
	struct ibv_recv_wr wr = {.sg_list = list, .num_sge = ROOST_CACHE_SGES}, *bad;

	for (uint32_t i = 0; i < ROOST_CACHE_SGES; i++)
		list[i] = (struct ibv_sge){sge[i].addr, sge[i].len, sge[i].lkey};
	while (ibv_post_recv(qp, &wr, &bad) == 0)
		;
}

/* Two queue pairs, a ring each, and one accept: all that a client costs. */
static void accept_client(struct rdma_cm_id *id, const struct cache_hello *hello)
{
	struct ibv_cq *requests = roost_create_counting_cq(id->verbs, 0);
	struct ibv_qp_init_attr init = {
		.cap = {.max_send_wr = ROOST_CACHE_ANSWER,
			.max_recv_wr = 1,
			.max_send_sge = 1,
			.max_recv_sge = ROOST_CACHE_SGES},
		.qp_type = IBV_QPT_RC,
		.send_cq = server.quiet,
		.recv_cq = requests,
	};
	struct rdma_conn_param param = {
		.private_data = &server.shape,
		.private_data_len = sizeof(server.shape),
		.rnr_retry_count = 7,
	};
	struct roost_chain_queue lq, aq;
	struct roost_sge sge[ROOST_CACHE_SGES];
	struct roost_cache_chain chain;
	struct ibv_qp *loop;

	must(requests != NULL, "creating a completion queue");
	must(rdma_create_qp(id, server.pd, &init) == 0, "creating a queue pair");
	set_chain(id->qp, &(struct roost_chain_attr){.managed_send = true, .managed_recv = true});
	loop = loop_queue(&(struct roost_chain_attr){.managed_send = true, .watch = {requests}});
	lq = image_of(loop);
	aq = image_of(id->qp);
	chain = (struct roost_cache_chain){
		.loop = {.queue = &lq, .data = &server.data},
		.answer = {.queue = &aq, .data = &server.data},
		.index_key = server.index->rkey,
		.items_key = server.items->rkey,
		.reply = {hello->addr, hello->rkey},
	};
	roost_cache_emit(&chain, sge);
	post(loop, &lq);
	post_receives(id->qp, sge);
	/* The client may have gone. The answer queue can be posted to when it is connected. */
	if (rdma_accept(id, &param)) {
		fprintf(stderr, "cache: a client is not connected: %s\n", strerror(errno));
		free(aq.image);
		return;
	}
	post(id->qp, &aq);
	enable(id->qp, ROOST_RECV_QUEUE, 1);
	enable(loop, ROOST_SEND_QUEUE, ROOST_CACHE_LOOP);
}

static bool hello_fits(const struct rdma_cm_event *event, struct cache_hello *hello)
{
	if (event->param.conn.private_data_len < sizeof(*hello))
		return false;
	memcpy(hello, event->param.conn.private_data, sizeof(*hello));
	return hello->addr % 8 == 0 && hello->len >= ROOST_CACHE_REPLY(server.shape.max_item);
}

static void *accept_clients(void *arg)
{
	struct rdma_cm_id *id;
	struct cache_hello hello;

	while (rdma_get_request(server.listener, &id) == 0) {
		if (hello_fits(id->event, &hello))
			accept_client(id, &hello);
		else
			rdma_reject(id, NULL, 0);
	}
	return NULL;
}

static void open_server(struct roost_hull *hull, uint64_t items_len)
{
	const int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ;
	const uint64_t index_len = roost_cache_index_len(&server.shape);
	void *index = roost_hull_memory(hull, CACHE_INDEX, index_len);
	void *items = roost_hull_memory(hull, CACHE_ITEMS, items_len);
	struct ibv_context *ctx = server.listener->verbs;

	must(ctx != NULL, "the address is that of no NIC");
	must(index && items, "the memory of the cache");
	errno = -roost_cache_format(index, &server.shape, items_len);
	must(errno == 0, "the shape of the cache");
	server.pd = ibv_alloc_pd(ctx);
	server.quiet = roost_create_counting_cq(ctx, 0);
	must(server.pd && server.quiet, "objects of the NIC");
	/* Chains count from the first byte. */
	server.index = ibv_reg_mr_iova(server.pd, index, index_len, 0, access);
	server.items = ibv_reg_mr_iova(server.pd, items, items_len, 0, access);
	server.data.image = calloc(1, DATA_LEN);
	server.data.size = DATA_LEN;
	must(server.data.image != NULL, "memory");
	server.data_mr = ibv_reg_mr(server.pd, server.data.image, DATA_LEN,
				    access | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC);
	must(server.index && server.items && server.data_mr, "registering memory");
	server.data.at = (struct roost_ref){(uintptr_t)server.data.image, server.data_mr->rkey};
	server.starter = loop_queue(&(struct roost_chain_attr){.managed_send = false});
}

void cache_serve(struct roost_hull *hull, const struct roost_cache_shape *shape, uint64_t items_len,
		 const char *address, const char *service)
{
	struct rdma_addrinfo hints = {.ai_port_space = RDMA_PS_TCP, .ai_flags = RAI_PASSIVE}, *info;
	pthread_t thread;

	server.shape = *shape;
	must(rdma_getaddrinfo(address, service, &hints, &info) == 0, "the address");
	must(rdma_create_ep(&server.listener, info, NULL, NULL) == 0, "making an endpoint");
	rdma_freeaddrinfo(info);
	open_server(hull, items_len);
	must(rdma_listen(server.listener, 64) == 0, "listening");
	errno = pthread_create(&thread, NULL, accept_clients, NULL);
	must(errno == 0, "starting a thread");
}
