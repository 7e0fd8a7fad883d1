/* SPDX-License-Identifier: BSD-2-Clause */
/* Endpoints: an id with a channel of its own and a QP, for programs that wait for each step. */
#include <stdlib.h>
#include <string.h>

#include "rdmacm/rdmacm.h"

#define RESOLVE_MS 2000

static int dup_bytes(void **to, const void *from, size_t len)
{
	*to = malloc(len);
	if (!*to)
		return -ENOMEM;
	memcpy(*to, from, len);
	return 0;
}

/*
 * Stores the QP attributes of a listener. The listener has no QP, but its connections get QPs with
 * these attributes.
 */
static int prepare_listener(struct rdma_cm_id *pub, const struct rdma_addrinfo *res,
			    struct ibv_pd *pd, const struct ibv_qp_init_attr *qp_init)
{
	int ret;

	if (rdma_bind_addr(pub, res->ai_src_addr))
		return -errno;
	if (!qp_init)
		return 0;
	ret = dup_bytes((void **)&rdmacm_id(pub)->qp_init, qp_init, sizeof(*qp_init));
	if (ret)
		return ret;
	rdmacm_id(pub)->qp_init->qp_type = (enum ibv_qp_type)res->ai_qp_type;
	if (pd)
		pub->pd = pd;
	return 0;
}

static int prepare_active(struct rdma_cm_id *pub, const struct rdma_addrinfo *res,
			  struct ibv_pd *pd, struct ibv_qp_init_attr *qp_init)
{
	if (rdma_resolve_addr(pub, res->ai_src_addr, res->ai_dst_addr, RESOLVE_MS) ||
	    rdma_resolve_route(pub, RESOLVE_MS))
		return -errno;
	if (qp_init) {
		qp_init->qp_type = (enum ibv_qp_type)res->ai_qp_type;
		if (rdma_create_qp(pub, pd, qp_init))
			return -errno;
	}
	if (!res->ai_connect_len)
		return 0;
	rdmacm_id(pub)->connect_len = res->ai_connect_len;
	return dup_bytes(&rdmacm_id(pub)->connect, res->ai_connect, res->ai_connect_len);
}

ROOST_EXPORT int rdma_create_ep(struct rdma_cm_id **id, struct rdma_addrinfo *res,
				struct ibv_pd *pd, struct ibv_qp_init_attr *qp_init_attr)
{
	struct rdma_cm_id *pub;
	int ret;

	ret = rdmacm_create_id(NULL, NULL, (enum rdma_port_space)res->ai_port_space,
			       (enum ibv_qp_type)res->ai_qp_type, &pub);
	if (ret)
		return rdmacm_ret(ret);
	if (res->ai_flags & RAI_PASSIVE)
		ret = prepare_listener(pub, res, pd, qp_init_attr);
	else
		ret = prepare_active(pub, res, pd, qp_init_attr);
	if (ret) {
		rdma_destroy_ep(pub);
		return rdmacm_ret(ret);
	}
	*id = pub;
	return 0;
}

ROOST_EXPORT void rdma_destroy_ep(struct rdma_cm_id *id)
{
	if (id->qp)
		rdma_destroy_qp(id);
	if (id->srq)
		rdma_destroy_srq(id);
	rdma_destroy_id(id);
}

static int make_qp(struct rdma_cm_id *listen, struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr attr;

	if (!rdmacm_id(listen)->qp_init)
		return 0;
	attr = *rdmacm_id(listen)->qp_init;
	return rdma_create_qp(id, listen->pd, &attr) ? -errno : 0;
}

ROOST_EXPORT int rdma_get_request(struct rdma_cm_id *listen, struct rdma_cm_id **id)
{
	struct rdma_cm_event *event;
	int ret;

	if (!rdmacm_id(listen)->sync)
		return rdmacm_ret(-EINVAL);
	if (listen->event) {
		rdma_ack_cm_event(listen->event);
		listen->event = NULL;
	}
	if (rdma_get_cm_event(listen->channel, &event))
		return -1;
	if (event->event != RDMA_CM_EVENT_CONNECT_REQUEST) {
		ret = event->status < 0 ? event->status : -EINVAL;
		rdma_ack_cm_event(event);
		return rdmacm_ret(ret);
	}
	ret = make_qp(listen, event->id);
	if (ret) {
		rdma_reject(event->id, NULL, 0);
		rdma_destroy_ep(event->id);
		rdma_ack_cm_event(event);
		return rdmacm_ret(ret);
	}
	/*
	 * The library acknowledges the event with the connection's next event or at its end,
	 * because the program may use the private data until then.
	 */
	event->id->event = event;
	*id = event->id;
	return 0;
}
