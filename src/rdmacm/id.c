/* SPDX-License-Identifier: BSD-2-Clause */
/* Creating and destroying ids. */
#include <stdlib.h>

#include "rdmacm/rdmacm.h"

struct rdmacm_id *rdmacm_id_new(struct rdma_event_channel *channel, void *context,
				enum rdma_port_space ps, enum ibv_qp_type qp_type)
{
	struct rdmacm_id *id = calloc(1, sizeof(*id));

	if (!id)
		return NULL;
	id->id.channel = channel;
	id->id.context = context;
	id->id.ps = ps;
	id->id.qp_type = qp_type;
	errno = -rdmacm_draw(1u << 24, &id->psn);
	if (errno) {
		free(id);
		return NULL;
	}
	list_init(&id->events);
	list_init(&id->groups);
	list_add_tail(&id->link, &agent.ids);
	return id;
}

void rdmacm_id_end(struct rdmacm_id *id)
{
	rdmacm_change_await(id);
	rdmacm_leave_all(id);
	rdmacm_close_listener(id);
	if (id->conn) {
		cm_release(id->conn, rdmacm_now());
		rdmacm_started();
	}
	id->conn = NULL;
	rdmacm_port_release(id);
	rdmacm_await_no_rtu(id);
	rdmacm_events_end(id);
	list_del(&id->link);
	free(id->qp_init);
	rdma_freeaddrinfo(id->resolved);
	free(id->connect);
	free(id);
}

static int port_space_known(enum rdma_port_space ps)
{
	return ps == RDMA_PS_TCP || ps == RDMA_PS_UDP || ps == RDMA_PS_IB || ps == RDMA_PS_IPOIB;
}

int rdmacm_create_id(struct rdma_event_channel *channel, void *context, enum rdma_port_space ps,
		     enum ibv_qp_type qp_type, struct rdma_cm_id **out)
{
	struct rdma_event_channel *own = NULL;
	struct rdmacm_id *id;
	int ret;

	if (!port_space_known(ps))
		return -EINVAL;
	if (!channel) {
		channel = own = rdma_create_event_channel();
		if (!own)
			return -errno;
	}
	rdmacm_lock();
	id = rdmacm_id_new(channel, context, ps, qp_type);
	ret = -errno;
	rdmacm_unlock();
	if (!id) {
		if (own)
			rdma_destroy_event_channel(own);
		return ret;
	}
	id->sync = own;
	*out = &id->id;
	return 0;
}

ROOST_EXPORT int rdma_create_id(struct rdma_event_channel *channel, struct rdma_cm_id **id,
				void *context, enum rdma_port_space ps)
{
	bool ud = ps == RDMA_PS_UDP || ps == RDMA_PS_IPOIB;

	return rdmacm_ret(rdmacm_create_id(channel, context, ps, ud ? IBV_QPT_UD : IBV_QPT_RC, id));
}

ROOST_EXPORT int rdma_destroy_id(struct rdma_cm_id *pub)
{
	struct rdma_event_channel *own = rdmacm_id(pub)->sync ? pub->channel : NULL;

	if (pub->event) {
		rdma_ack_cm_event(pub->event);
		pub->event = NULL;
	}
	rdmacm_lock();
	rdmacm_id_end(rdmacm_id(pub));
	rdmacm_unlock();
	if (own)
		rdma_destroy_event_channel(own);
	return 0;
}
