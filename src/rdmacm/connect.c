/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The active side of a connection, the end of a connection, and the calls of both sides. Listeners
 * are in listen.c.
 */
#include <stdlib.h>
#include <string.h>

#include "rdmacm/rdmacm.h"
#include "roost/node.h"

/* ---- parameters ---- */

static int device_limits(const struct rdmacm_id *id, struct ibv_device_attr *dev)
{
	memset(dev, 0, sizeof(*dev));
	if (!id->id.verbs)
		return -EINVAL;
	return -ibv_query_device(id->id.verbs, dev);
}

static uint8_t limit_of(int max)
{
	return max > UINT8_MAX ? UINT8_MAX : (uint8_t)max;
}

static uint8_t choose(const uint8_t *asked, uint8_t any, uint8_t otherwise)
{
	return asked && *asked != any ? *asked : otherwise;
}

/*
 * Sets the number of READs and atomics in flight in each direction. The default is the device's
 * maximum; on the passive side the peer's request is an upper limit.
 */
int rdmacm_settle_depths(struct rdmacm_id *id, const struct rdma_conn_param *p)
{
	struct ibv_device_attr dev;
	uint8_t resources, depth;
	int ret = device_limits(id, &dev);

	if (ret)
		return ret;
	resources = limit_of(dev.max_qp_rd_atom);
	depth = limit_of(dev.max_qp_init_rd_atom);
	if (id->id.ps == RDMA_PS_TCP &&
	    ((!id->id.qp && !p) ||
	     (p && p->responder_resources != RDMA_MAX_RESP_RES &&
	      p->responder_resources > resources) ||
	     (p && p->initiator_depth != RDMA_MAX_INIT_DEPTH && p->initiator_depth > depth)))
		return -EINVAL;
	if (id->passive && id->responder_resources < resources)
		resources = id->responder_resources;
	if (id->passive && id->initiator_depth < depth)
		depth = id->initiator_depth;
	id->responder_resources =
		choose(p ? &p->responder_resources : NULL, RDMA_MAX_RESP_RES, resources);
	id->initiator_depth = choose(p ? &p->initiator_depth : NULL, RDMA_MAX_INIT_DEPTH, depth);
	return 0;
}

uint32_t rdmacm_qp_number(const struct rdmacm_id *id, const struct rdma_conn_param *p)
{
	return id->id.qp ? id->id.qp->qp_num : p ? p->qp_num & 0xffffff : 0;
}

bool rdmacm_has_srq(const struct rdmacm_id *id, const struct rdma_conn_param *p)
{
	return id->id.qp ? id->id.qp->srq != NULL : p && p->srq;
}

struct cm_ece rdmacm_cm_ece(const struct ibv_ece *e)
{
	return (struct cm_ece){e->vendor_id, e->options};
}

/* ---- requests ---- */

struct request_data {
	struct cm_ip ip;
	uint8_t data[CM_DATA_MAX];
	size_t len;
};

/*
 * Collects the private data of a request: those of rdma_getaddrinfo(), followed by those of the
 * program.
 */
static int gather(const struct rdmacm_id *id, const struct rdma_conn_param *p,
		  struct request_data *a)
{
	size_t n = p && p->private_data ? p->private_data_len : 0;

	a->ip = (struct cm_ip){
		.src = id->src, .dst = id->dst, .sport = id->port, .v4 = pkt_addr_is_v4(&id->dst)};
	if (id->connect_len + n > sizeof(a->data))
		return -EINVAL;
	if (id->connect_len)
		memcpy(a->data, id->connect, id->connect_len);
	if (n)
		memcpy(a->data + id->connect_len, p->private_data, n);
	a->len = id->connect_len + n;
	return 0;
}

/*
 * Gets the options that the QP offers to the peer. If the QP belongs to the program, the program
 * sets the offer with rdma_set_local_ece(3).
 */
static void offer_ece(struct rdmacm_id *id)
{
	if (id->id.qp && ibv_query_ece(id->id.qp, &id->local_ece))
		id->local_ece = (struct ibv_ece){0};
}

static int ask_for_connection(struct rdmacm_id *id, const struct rdma_conn_param *p,
			      const struct request_data *a)
{
	bool uc = (id->id.qp ? id->id.qp->qp_type : id->id.qp_type) == IBV_QPT_UC;
	struct cm_connect c = {
		.service_id = rdmacm_service_id(id, be16toh(rdma_get_dst_port(&id->id))),
		.src = id->src,
		.dst = id->dst,
		.tclass = id->tos,
		.hop_limit = RDMACM_HOP_LIMIT,
		.mtu = id->path.mtu,
		.ack_timeout = id->ack_timeout ? id->ack_timeout : RDMACM_ACK_TIMEOUT,
		.response_timeout = RDMACM_RESPONSE_TIMEOUT,
		.max_retries = RDMACM_MAX_RETRIES,
		.transport = uc ? CM_TRANSPORT_UC : CM_TRANSPORT_RC,
		.qpn = rdmacm_qp_number(id, p),
		.psn = id->psn,
		.responder_resources = id->responder_resources,
		.initiator_depth = id->initiator_depth,
		.flow_control = p ? p->flow_control : 0,
		.retry_count = p && p->retry_count < 7 ? p->retry_count : 7,
		.rnr_retry = p && p->rnr_retry_count < 7 ? p->rnr_retry_count : 7,
		.srq = rdmacm_has_srq(id, p),
		.ece = rdmacm_cm_ece(&id->local_ece),
		.ip = &a->ip,
		.data = a->data,
		.data_len = a->len,
	};

	return cm_connect(agent.cm, rdmacm_now(), &c, id, &id->conn);
}

static int ask_for_datagram_qp(struct rdmacm_id *id, const struct request_data *a)
{
	struct cm_sidr s = {
		.service_id = rdmacm_service_id(id, be16toh(rdma_get_dst_port(&id->id))),
		.src = id->src,
		.dst = id->dst,
		.tclass = id->tos,
		.response_timeout = RDMACM_RESPONSE_TIMEOUT,
		.max_retries = RDMACM_MAX_RETRIES,
		.ip = &a->ip,
		.data = a->data,
		.data_len = a->len,
	};

	return cm_sidr(agent.cm, rdmacm_now(), &s, id, &id->conn);
}

static int start_connecting(struct rdmacm_id *id, const struct rdma_conn_param *p)
{
	struct request_data a;
	int ret;

	if (id->state != RDMACM_ROUTE_RESOLVED)
		return -EINVAL;
	ret = rdmacm_settle_depths(id, p);
	if (ret == 0)
		ret = gather(id, p, &a);
	if (ret)
		return ret;
	offer_ece(id);
	ret = rdmacm_is_ud(id) ? ask_for_datagram_qp(id, &a) : ask_for_connection(id, p, &a);
	if (ret)
		return ret;
	id->state = RDMACM_CONNECT;
	id->refused = 0;
	rdmacm_started();
	return 0;
}

ROOST_EXPORT int rdma_connect(struct rdma_cm_id *pub, struct rdma_conn_param *conn_param)
{
	struct rdmacm_id *id = rdmacm_id(pub);
	int ret;

	rdmacm_lock();
	ret = start_connecting(id, conn_param);
	rdmacm_unlock();
	if (ret == 0)
		ret = rdmacm_complete(id);
	return rdmacm_ret(ret);
}

/* ---- replies ---- */

/* Brings the QP up. On a failure the caller stores the error code in the event's status. */
static int bring_up(struct rdmacm_id *id)
{
	int ret;

	if (!id->conn)
		return -EINVAL;
	ret = rdmacm_qp_to_rtr(id);
	if (ret == 0)
		ret = rdmacm_qp_to_rts(id);
	if (ret == 0)
		ret = id->conn ? cm_ready(id->conn, NULL, 0) : -EINVAL;
	return ret;
}

static void take_reply(struct rdmacm_id *id, struct rdmacm_event *e)
{
	e->event.status = bring_up(id);
	if (!e->event.status) {
		e->event.event = RDMA_CM_EVENT_ESTABLISHED;
		return;
	}
	e->event.event = RDMA_CM_EVENT_CONNECT_ERROR;
	id->connect_error = true;
	rdmacm_qp_to_error(id);
	if (id->conn)
		cm_reject(id->conn, rdmacm_now(), CM_REJ_CONSUMER, NULL, 0, NULL, 0);
}

void rdmacm_take_reply(struct rdmacm_event *e)
{
	struct rdmacm_id *id = rdmacm_id(e->event.id);

	rdmacm_change_begin(id);
	if (id->id.qp)
		take_reply(id, e);
	rdmacm_change_end(id);
}

ROOST_EXPORT int rdma_establish(struct rdma_cm_id *pub)
{
	struct rdmacm_id *id = rdmacm_id(pub);
	int ret = -EINVAL;

	if (pub->qp) /* the library answers for a QP that it created */
		return rdmacm_ret(ret);
	rdmacm_lock();
	if (id->conn)
		ret = cm_ready(id->conn, NULL, 0);
	rdmacm_unlock();
	return rdmacm_ret(ret);
}

/* ---- both sides ---- */

static int reject(struct rdmacm_id *id, uint16_t reason, const void *data, uint8_t len)
{
	struct cm_ece none = {0, 0};
	uint64_t now;
	int ret;

	if (!id->conn)
		return -EINVAL;
	now = rdmacm_now();
	if (rdmacm_is_ud(id))
		ret = cm_sidr_reply(id->conn, now, CM_SIDR_REJECT, 0, 0, none, data, len);
	else
		ret = cm_reject(id->conn, now, reason, NULL, 0, data, len);
	rdmacm_started();
	return ret;
}

static int reject_locked(struct rdma_cm_id *pub, uint16_t reason, const void *data, uint8_t len)
{
	int ret;

	rdmacm_lock();
	ret = reject(rdmacm_id(pub), reason, data, len);
	rdmacm_unlock();
	return rdmacm_ret(ret);
}

ROOST_EXPORT int rdma_reject(struct rdma_cm_id *id, const void *private_data,
			     uint8_t private_data_len)
{
	return reject_locked(id, CM_REJ_CONSUMER, private_data, private_data_len);
}

ROOST_EXPORT int roost_node_reject(struct rdma_cm_id *id)
{
	return reject_locked(id, CM_REJ_NO_RESOURCES, NULL, 0) ? errno : 0;
}

ROOST_EXPORT int rdma_reject_ece(struct rdma_cm_id *id, const void *private_data,
				 uint8_t private_data_len)
{
	return reject_locked(id, CM_REJ_VENDOR_OPTION, private_data, private_data_len);
}

ROOST_EXPORT int rdma_notify(struct rdma_cm_id *pub, enum ibv_event_type event)
{
	struct rdmacm_id *id = rdmacm_id(pub);
	int ret = -EINVAL;

	rdmacm_lock();
	if (event == IBV_EVENT_COMM_EST && id->conn)
		ret = cm_established(id->conn);
	rdmacm_unlock();
	return rdmacm_ret(ret == -EISCONN ? 0 : ret);
}

/*
 * Disconnects. If the connection has ended already, this is no error, because the peer was faster
 * (as in the Linux kernel's rdma_disconnect()).
 */
static int disconnect(struct rdmacm_id *id)
{
	int ret;

	if (!id->conn)
		return -EINVAL;
	ret = rdmacm_qp_to_error(id);
	if (ret)
		return ret;
	if (!id->conn)
		return -EINVAL;
	ret = cm_disconnect(id->conn, rdmacm_now(), NULL, 0);
	rdmacm_started();
	return ret == -ENOTCONN ? 0 : ret;
}

ROOST_EXPORT int rdma_disconnect(struct rdma_cm_id *pub)
{
	struct rdmacm_id *id = rdmacm_id(pub);
	int ret;

	rdmacm_lock();
	rdmacm_change_begin(id);
	ret = disconnect(id);
	rdmacm_change_end(id);
	rdmacm_unlock();
	if (ret == 0)
		ret = rdmacm_complete(id);
	return rdmacm_ret(ret);
}

/* ---- events of the state machine ---- */

void rdmacm_fill_conn(struct rdma_conn_param *to, const struct cm_event *e)
{
	to->responder_resources = e->responder_resources;
	to->initiator_depth = e->initiator_depth;
	to->flow_control = e->flow_control;
	to->retry_count = e->retry_count;
	to->rnr_retry_count = e->rnr_retry;
	to->srq = e->srq;
	to->qp_num = e->qpn;
}

static void fill_ud(const struct rdmacm_id *id, struct rdma_ud_param *to, const struct cm_event *e)
{
	rdmacm_fill_ah(id, &to->ah_attr);
	to->qp_num = e->qpn;
	to->qkey = e->qkey;
}

struct translation {
	enum rdma_cm_event_type type;
	bool conn, ud;
};

static const struct translation translations[CM_EVENTS] = {
	[CM_EV_REPLY] = {RDMA_CM_EVENT_CONNECT_RESPONSE, .conn = true},
	[CM_EV_ESTABLISHED] = {RDMA_CM_EVENT_ESTABLISHED, .conn = false},
	[CM_EV_REJECTED] = {RDMA_CM_EVENT_REJECTED, .conn = false},
	[CM_EV_UNREACHABLE] = {RDMA_CM_EVENT_UNREACHABLE, .conn = false},
	[CM_EV_DISCONNECTED] = {RDMA_CM_EVENT_DISCONNECTED, .conn = false},
	[CM_EV_TIMEWAIT_EXIT] = {RDMA_CM_EVENT_TIMEWAIT_EXIT, .conn = false},
	[CM_EV_SIDR_REPLY] = {RDMA_CM_EVENT_ESTABLISHED, .ud = true},
};

static int status_of(const struct cm_event *e)
{
	return e->type == CM_EV_REJECTED ? e->reason : e->status;
}

/*
 * A server that serves one client after the other destroys its listener and creates the next one
 * (perftest with -R does this twice for a test). A client that connects in between is refused by
 * the Linux kernel. Clients of Roost often do, because they need no system call for a request. So
 * an id that is refused because the service does not exist repeats its request, for about a second,
 * if another id of this process is connected to the service. A Roost server keeps early requests:
 * early.c.
 */
#define AGAIN_FIRST_NS 2000000u
#define AGAIN_TIMES    9 /* the delay doubles each time: a second in total */

static bool is_connected_to(const struct pkt_addr *dst, __be16 port)
{
	struct rdmacm_id *id;

	list_for_each_entry (id, &agent.ids, link) {
		if (id->conn && !id->passive && cm_conn_state(id->conn) == CM_ESTABLISHED &&
		    rdma_get_dst_port(&id->id) == port && pkt_addr_eq(&id->dst, dst))
			return true;
	}
	return false;
}

static bool is_service_refusal(const struct cm_event *e)
{
	return (e->type == CM_EV_REJECTED && e->reason == CM_REJ_INVALID_SERVICE_ID) ||
	       (e->type == CM_EV_SIDR_REPLY && e->status == CM_SIDR_UNSUPPORTED);
}

static bool repeats_request(struct rdmacm_id *id, const struct cm_event *e)
{
	if (!is_service_refusal(e) || id->refused == AGAIN_TIMES ||
	    !is_connected_to(&id->dst, rdma_get_dst_port(&id->id)))
		return false;
	return !cm_repeat_request(e->conn, rdmacm_now(), (uint64_t)AGAIN_FIRST_NS << id->refused++);
}

void rdmacm_on_cm_event(void *ctx, const struct cm_event *e)
{
	const struct translation *t = &translations[e->type];
	struct rdmacm_id *id = e->user;
	struct rdmacm_event *out;

	if (e->type == CM_EV_REQUEST || e->type == CM_EV_SIDR_REQUEST) {
		rdmacm_on_request(e);
		return;
	}
	if (repeats_request(id, e))
		return;
	rdmacm_await_no_rtu(id);
	out = rdmacm_event_new(id, id, t->type);
	if (!out)
		return; /* the program gets no event, as if the datagram had been lost */
	out->event.status = status_of(e);
	if (t->conn) {
		rdmacm_fill_conn(&out->event.param.conn, e);
		id->remote_ece =
			(struct ibv_ece){.vendor_id = e->ece.vendor_id, .options = e->ece.options};
	}
	if (t->ud)
		fill_ud(id, &out->event.param.ud, e);
	if (e->type == CM_EV_SIDR_REPLY && e->status != CM_SIDR_OK)
		out->event.event = RDMA_CM_EVENT_UNREACHABLE;
	rdmacm_event_data(out, e->data, e->data_len);
	rdmacm_event_raise(out);
}
