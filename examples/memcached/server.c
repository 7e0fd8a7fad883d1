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

/* Returns NULL with errno set on a failure. */
static struct ibv_qp *loop_queue(const struct roost_chain_attr *attr)
{
	struct ibv_qp_init_attr init = {
		.cap = {.max_send_wr = ROOST_CACHE_LOOP, .max_send_sge = 3},
		.qp_type = IBV_QPT_RC,
		.send_cq = server.quiet,
		.recv_cq = server.quiet,
	};
	struct ibv_qp *qp = ibv_create_qp(server.pd, &init);
	int err;

	if (!qp)
		return NULL;
	err = roost_qp_set_chain(qp, attr);
	if (!err)
		err = roost_qp_connect_self(qp, 1, 0);
	if (!err)
		return qp;
	ibv_destroy_qp(qp);
	errno = err;
	return NULL;
}

/* A send queue for a chain: its ring, which the chain changes, and the image to post. */
struct chain_queue {
	struct ibv_mr *ring;
	struct roost_chain_queue q;
};

/* What a client costs: two queue pairs, a ring each, and one accept. */
struct client {
	struct rdma_cm_id *id;
	struct ibv_cq *requests;
	struct ibv_qp *loop;
	struct chain_queue looping, answering;
};

/* Functions that return false set errno. */
static bool open_queue(struct chain_queue *c, struct ibv_qp *qp)
{
	const int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
			   IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_REMOTE_READ;

	c->ring = roost_reg_queue_mr(qp, ROOST_SEND_QUEUE, access);
	if (!c->ring)
		return false;
	c->q = (struct roost_chain_queue){
		.qp_num = qp->qp_num,
		.stride = roost_qp_stride(qp, ROOST_SEND_QUEUE),
		.ring = {(uintptr_t)c->ring->addr, c->ring->rkey},
	};
	c->q.depth = (uint32_t)(c->ring->length / c->q.stride);
	c->q.image = calloc(c->q.depth, c->q.stride);
	return c->q.image != NULL;
}

static void close_queue(struct chain_queue *c)
{
	if (c->ring)
		ibv_dereg_mr(c->ring);
	free(c->q.image);
}

static bool post(struct ibv_qp *qp, const struct roost_chain_queue *q)
{
	errno = q->error ? -q->error : roost_post_wqes(qp, q->image, q->n, 0);
	return errno == 0;
}

static bool enable(struct ibv_qp *qp, enum roost_queue queue, uint32_t n)
{
	struct roost_enable_wr wr = {
		.qp_num = qp->qp_num, .queue = queue, .count = n, .relative = true};

	errno = roost_post_enable(server.starter, &wr);
	return errno == 0;
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

static bool open_client(struct client *c)
{
	struct ibv_qp_init_attr init = {
		.cap = {.max_send_wr = ROOST_CACHE_ANSWER,
			.max_recv_wr = 1,
			.max_send_sge = 1,
			.max_recv_sge = ROOST_CACHE_SGES},
		.qp_type = IBV_QPT_RC,
		.send_cq = server.quiet,
	};

	c->requests = init.recv_cq = roost_create_counting_cq(c->id->verbs, 0);
	if (!c->requests || rdma_create_qp(c->id, server.pd, &init))
		return false;
	errno = roost_qp_set_chain(
		c->id->qp, &(struct roost_chain_attr){.managed_send = true, .managed_recv = true});
	if (errno)
		return false;
	c->loop = loop_queue(
		&(struct roost_chain_attr){.managed_send = true, .watch = {c->requests}});
	return c->loop && open_queue(&c->looping, c->loop) && open_queue(&c->answering, c->id->qp);
}

static void close_client(struct client *c)
{
	close_queue(&c->looping);
	close_queue(&c->answering);
	if (c->loop)
		ibv_destroy_qp(c->loop);
	rdma_destroy_ep(c->id);
	if (c->requests)
		ibv_destroy_cq(c->requests);
}

/* Accepts the client, and starts its chain. The client may have gone. */
static bool serve_client(struct client *c, const struct cache_hello *hello)
{
	struct rdma_conn_param param = {
		.private_data = &server.shape,
		.private_data_len = sizeof(server.shape),
		.rnr_retry_count = 7,
	};
	struct roost_cache_chain chain = {
		.loop = {.queue = &c->looping.q, .data = &server.data},
		.answer = {.queue = &c->answering.q, .data = &server.data},
		.index_key = server.index->rkey,
		.items_key = server.items->rkey,
		.reply = {hello->addr, hello->rkey},
	};
	struct roost_sge sge[ROOST_CACHE_SGES];

	roost_cache_emit(&chain, sge);
	if (!post(c->loop, &c->looping.q))
		return false;
	post_receives(c->id->qp, sge);
	/* The answer queue can be posted to when it is connected. */
	return rdma_accept(c->id, &param) == 0 && post(c->id->qp, &c->answering.q) &&
	       enable(c->id->qp, ROOST_RECV_QUEUE, 1) &&
	       enable(c->loop, ROOST_SEND_QUEUE, ROOST_CACHE_LOOP);
}

/* A client that cannot be served loses its connection, and the others keep theirs. */
static void accept_client(struct rdma_cm_id *id, const struct cache_hello *hello)
{
	struct client c = {.id = id};

	if (!open_client(&c) || !serve_client(&c, hello)) {
		fprintf(stderr, "cache: a client is not connected: %s\n", strerror(errno));
		close_client(&c);
		return;
	}
	free(c.looping.q.image);
	free(c.answering.q.image);
}

static bool hello_fits(const struct rdma_cm_event *event, struct cache_hello *hello)
{
	if (event->param.conn.private_data_len < sizeof(*hello))
		return false;
	memcpy(hello, event->param.conn.private_data, sizeof(*hello));
	return hello->addr % 8 == 0 && hello->len >= ROOST_CACHE_REPLY(server.shape.max_item);
}

/* Without a descriptor for a client, the library rejects it, and the next one may get one. */
static bool next_client(struct rdma_cm_id **id)
{
	while (rdma_get_request(server.listener, id)) {
		fprintf(stderr, "cache: a client is not connected: %s\n", strerror(errno));
		if (errno != EMFILE && errno != ENFILE && errno != ENOMEM)
			return false;
	}
	return true;
}

static void *accept_clients(void *arg)
{
	struct rdma_cm_id *id;
	struct cache_hello hello;

	while (next_client(&id)) {
		if (hello_fits(id->event, &hello))
			accept_client(id, &hello);
		else
			rdma_destroy_ep(id); /* rejects */
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
	must(server.starter != NULL, "creating a queue pair");
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
