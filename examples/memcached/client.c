/* SPDX-License-Identifier: BSD-2-Clause */
#include "client.h"

#include <errno.h>
#include <stdlib.h>
#include <time.h>

#include <rdma/rdma_cma.h>

#include "server.h"

#define LIMIT 10 /* seconds */

struct cache_client {
	struct rdma_cm_id *id;
	struct ibv_mr *mr;
	struct roost_cache_request *request; /* the memory, with the reply behind it */
	uint8_t *reply;
	struct roost_cache_shape shape;
	struct roost_cache_get get;
};

struct cache_client *cache_connect(const char *address, const char *service, uint32_t space)
{
	struct ibv_qp_init_attr qp = {
		.cap = {4, 1, 1, 1, 64}, .qp_type = IBV_QPT_RC, .sq_sig_all = 1};
	struct rdma_addrinfo hints = {.ai_port_space = RDMA_PS_TCP}, *info;
	struct cache_client *c = calloc(1, sizeof(*c));
	struct cache_hello hello = {.len = ROOST_CACHE_REPLY(space)};
	struct rdma_conn_param param = {.private_data = &hello,
					.private_data_len = sizeof(hello),
					.retry_count = 7,
					.rnr_retry_count = 7};
	int err;

	if (!c || rdma_getaddrinfo(address, service, &hints, &info))
		goto failed;
	err = rdma_create_ep(&c->id, info, NULL, &qp);
	rdma_freeaddrinfo(info);
	c->request = err ? NULL : aligned_alloc(64, (64 + hello.len + 63) & ~63u);
	if (!c->request)
		goto failed;
	memset(c->request, 0, 64 + hello.len);
	c->reply = (uint8_t *)c->request + 64;
	c->mr = ibv_reg_mr(c->id->pd, c->request, 64 + hello.len,
			   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	if (!c->mr)
		goto failed;
	hello.addr = (uintptr_t)c->reply;
	hello.rkey = c->mr->rkey;
	if (rdma_connect(c->id, &param) ||
	    c->id->event->param.conn.private_data_len < sizeof(c->shape))
		goto failed;
	memcpy(&c->shape, c->id->event->param.conn.private_data, sizeof(c->shape));
	if (!roost_cache_shape_fits(&c->shape) || c->shape.max_item > space) {
		errno = EPROTO;
		goto failed;
	}
	return c;
failed:
	err = errno;
	cache_close(c);
	errno = err;
	return NULL;
}

void cache_close(struct cache_client *c)
{
	if (!c)
		return;
	if (c->mr)
		ibv_dereg_mr(c->mr);
	if (c->id)
		rdma_destroy_ep(c->id);
	free(c->request);
	free(c);
}

static int send_request(struct cache_client *c)
{
	struct ibv_sge sge = {(uintptr_t)c->request, sizeof(*c->request), c->mr->lkey};
	struct ibv_send_wr wr = {.sg_list = &sge,
				 .num_sge = 1,
				 .opcode = IBV_WR_SEND,
				 .send_flags = IBV_SEND_INLINE},
			   *bad;

	roost_cache_get_request(&c->get, c->request);
	return ibv_post_send(c->id->qp, &wr, &bad) ? -EIO : 0;
}

/* Takes the completion of a SEND, if there is one; the reply may come before it. */
static int poll_send(struct cache_client *c)
{
	struct ibv_wc wc;
	int n = ibv_poll_cq(c->id->send_cq, 1, &wc);

	return n < 0 || (n == 1 && wc.status != IBV_WC_SUCCESS) ? -EIO : n;
}

int cache_get(struct cache_client *c, const void *key, uint32_t len,
	      const struct roost_cache_item **item)
{
	const time_t start = time(NULL);
	enum roost_cache_result r = ROOST_CACHE_AGAIN;
	uint32_t pending = 0;
	time_t now = start;
	int n;

	roost_cache_get_start(&c->get, &c->shape, key, len);
	for (uint32_t turn = 1; r < ROOST_CACHE_HIT || pending; turn++) {
		if (r == ROOST_CACHE_AGAIN && !pending) {
			n = send_request(c);
			if (n)
				return n;
			pending++;
			r = ROOST_CACHE_PENDING;
		}
		n = poll_send(c);
		if (n < 0)
			return n;
		pending -= (uint32_t)n;
		if (r == ROOST_CACHE_PENDING)
			r = roost_cache_get_result(&c->get, c->reply, (uint64_t)now, item);
		if (turn % 1024 == 0) {
			now = time(NULL);
			if (now > start + LIMIT)
				return -ETIMEDOUT;
		}
	}
	return r == ROOST_CACHE_HIT;
}

uint64_t cache_repeated(const struct cache_client *c)
{
	return c->get.torn + c->get.moved;
}
