/* SPDX-License-Identifier: BSD-2-Clause */
/* roost/node.h: connects to a node by the calls of rdma_cm that any program may use. */
#include <endian.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rdmacm/rdmacm.h"
#include "roost/node.h"
#include "roost/verbs.h"

#define SENDS	 64
#define RECEIVES 16

_Static_assert(sizeof(struct roost_node_hello) == 56, "what a node says of itself");

/* Takes the next event. The caller acknowledges it. */
static int next_event(struct rdma_event_channel *ch, uint64_t until, struct rdma_cm_event **e)
{
	struct pollfd p = {.fd = ch->fd, .events = POLLIN};

	while (rdma_get_cm_event(ch, e)) {
		uint64_t now = rdmacm_now();

		if (errno != EAGAIN && errno != EINTR)
			return errno;
		if (now >= until)
			return ETIMEDOUT;
		poll(&p, 1, (int)((until - now) / 1000000 + 1));
	}
	return 0;
}

/*
 * Takes the next event, which must be of the wanted type. Other events are converted to an errno.
 */
static int await(struct rdma_event_channel *ch, enum rdma_cm_event_type wanted, uint64_t until,
		 struct rdma_cm_event **e)
{
	enum rdma_cm_event_type type;
	int ret = next_event(ch, until, e);
	bool full;

	if (ret)
		return ret;
	type = (*e)->event;
	if (type == wanted)
		return 0;
	full = (*e)->status == CM_REJ_NO_RESOURCES;
	rdma_ack_cm_event(*e);
	return type == RDMA_CM_EVENT_REJECTED && full ? ENOMEM
	       : type == RDMA_CM_EVENT_REJECTED	      ? ECONNREFUSED
	       : type == RDMA_CM_EVENT_ADDR_ERROR || type == RDMA_CM_EVENT_ROUTE_ERROR
		       ? EHOSTUNREACH
		       : ETIMEDOUT;
}

static int step(struct rdma_event_channel *ch, enum rdma_cm_event_type wanted, uint64_t until)
{
	struct rdma_cm_event *e;
	int ret = await(ch, wanted, until, &e);

	if (ret == 0)
		rdma_ack_cm_event(e);
	return ret;
}

static int resolve(struct rdma_cm_id *id, const char *host, uint16_t service, int timeout_ms)
{
	struct addrinfo *list, hints = {.ai_socktype = SOCK_STREAM};
	char port[8];
	int ret;

	snprintf(port, sizeof(port), "%u", service);
	if (getaddrinfo(host, port, &hints, &list))
		return EHOSTUNREACH;
	ret = rdma_resolve_addr(id, NULL, list->ai_addr, timeout_ms) ? errno : 0;
	freeaddrinfo(list);
	return ret;
}

static int make_qp(struct rdma_cm_id *id, unsigned sends)
{
	struct ibv_qp_init_attr attr = {
		.qp_type = IBV_QPT_RC,
		.cap = {.max_send_wr = sends,
			.max_recv_wr = RECEIVES,
			.max_send_sge = 1,
			.max_recv_sge = 1,
			.max_inline_data = 64},
	};

	if (rdma_create_qp(id, NULL, &attr))
		return errno;
	return roost_qp_offer_rpc(id->qp);
}

/*
 * Reads the hello from the private data. The length of private data is that of the field in the
 * message, and does not show how much was sent.
 */
static int take_hello(const struct rdma_conn_param *p, struct roost_node_hello *h)
{
	if (!p->private_data || p->private_data_len < sizeof(*h))
		return EPROTO;
	memcpy(h, p->private_data, sizeof(*h));
	h->magic = le32toh(h->magic);
	h->version = le16toh(h->version);
	h->size = le16toh(h->size);
	h->addr = le64toh(h->addr);
	h->len = le64toh(h->len);
	h->rkey = le32toh(h->rkey);
	h->flags = le32toh(h->flags);
	h->table = le64toh(h->table);
	h->entries = le64toh(h->entries);
	h->used = le64toh(h->used);
	return h->magic == ROOST_NODE_MAGIC && h->version == ROOST_NODE_VERSION &&
			       h->size >= sizeof(*h)
		       ? 0
		       : EPROTO;
}

static int connect_and_wait(struct roost_node *n, uint64_t until)
{
	struct rdma_conn_param param = {.responder_resources = RDMA_MAX_RESP_RES,
					.initiator_depth = RDMA_MAX_INIT_DEPTH,
					.retry_count = 7,
					.rnr_retry_count = 7};
	struct rdma_cm_event *e;
	int ret;

	if (rdma_connect(n->id, &param))
		return errno;
	ret = await(n->id->channel, RDMA_CM_EVENT_ESTABLISHED, until, &e);
	if (ret)
		return ret;
	ret = take_hello(&e->param.conn, &n->hello);
	rdma_ack_cm_event(e);
	return ret == 0 && !roost_qp_has_rpc(n->id->qp) ? EPROTO : ret;
}

static int connect_to(struct roost_node *n, const char *host, uint16_t service, int timeout_ms,
		      unsigned sends)
{
	struct rdma_event_channel *ch = n->id->channel;
	uint64_t until;
	int ret = resolve(n->id, host, service, timeout_ms);

	if (ret)
		return ret;
	until = rdmacm_now() + (uint64_t)timeout_ms * 1000000;
	ret = step(ch, RDMA_CM_EVENT_ADDR_RESOLVED, until);
	if (ret == 0 && rdma_resolve_route(n->id, timeout_ms))
		ret = errno;
	if (ret == 0)
		ret = step(ch, RDMA_CM_EVENT_ROUTE_RESOLVED, until);
	if (ret == 0)
		ret = make_qp(n->id, sends);
	return ret ? ret : connect_and_wait(n, until);
}

static void destroy(struct roost_node *n)
{
	struct rdma_event_channel *ch = n->id->channel;

	if (n->id->qp)
		rdma_destroy_qp(n->id);
	rdma_destroy_id(n->id);
	rdma_destroy_event_channel(ch);
	free(n);
}

ROOST_EXPORT int roost_node_connect_sends(const char *host, uint16_t service, int timeout_ms,
					  unsigned sends, struct roost_node **out)
{
	struct roost_node *n = calloc(1, sizeof(*n));
	struct rdma_event_channel *ch = n ? rdma_create_event_channel() : NULL;
	int ret;

	if (!ch || fcntl(ch->fd, F_SETFL, O_NONBLOCK) < 0 ||
	    rdma_create_id(ch, &n->id, NULL, RDMA_PS_TCP)) {
		ret = errno;
		if (ch)
			rdma_destroy_event_channel(ch);
		free(n);
		return ret;
	}
	ret = connect_to(n, host, service, timeout_ms, sends);
	if (ret) {
		destroy(n);
		return ret;
	}
	*out = n;
	return 0;
}

ROOST_EXPORT int roost_node_connect(const char *host, uint16_t service, int timeout_ms,
				    struct roost_node **out)
{
	return roost_node_connect_sends(host, service, timeout_ms, SENDS, out);
}

ROOST_EXPORT void roost_node_close(struct roost_node *node)
{
	rdma_disconnect(node->id);
	destroy(node);
}
