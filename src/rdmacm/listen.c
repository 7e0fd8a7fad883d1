/* SPDX-License-Identifier: BSD-2-Clause */
/* The passive side: listening, requests, accepting. */
#include <string.h>

#include "base/sys.h"
#include "pool/pool.h"
#include "rdmacm/rdmacm.h"

/* ---- listening ---- */

/*
 * Converts the id's address to CM_LISTEN_* flags. `all`: the address is a wildcard, of its family
 * or of both families.
 */
static unsigned kinds_of(const struct rdmacm_id *id, bool all)
{
	unsigned kinds = rdmacm_is_ud(id) ? CM_LISTEN_UD : CM_LISTEN_CONN;

	if (all && id->id.route.addr.src_addr.sa_family == AF_INET)
		kinds |= CM_LISTEN_IPV4;
	else if (all && id->af_only)
		kinds |= CM_LISTEN_IPV6;
	return kinds;
}

/* Returns the families of the addresses that an id listens on, for drive_gsi_listen(). */
static unsigned families_of(const struct rdmacm_id *id)
{
	unsigned kinds = kinds_of(id, id->any);

	return kinds & CM_LISTEN_IPV4	? POOL_IPV4
	       : kinds & CM_LISTEN_IPV6 ? POOL_IPV6
					: POOL_IPV4 | POOL_IPV6;
}

/* Makes a listener, and directs the requests for its service to this process and no other. */
static int open_listener(struct rdmacm_id *id, uint32_t backlog)
{
	const struct pkt_addr *addr = id->any ? NULL : &id->src;
	uint64_t service = rdmacm_service_id(id, id->port);
	int ret = cm_listen(agent.cm, service, addr, kinds_of(id, id->any), backlog, id,
			    &id->listener);

	if (ret)
		return ret;
	ret = drive_gsi_listen(verbs_drive(agent.verbs), service, addr, families_of(id));
	if (ret == 0)
		return 0;
	cm_unlisten(id->listener);
	id->listener = NULL;
	return ret;
}

void rdmacm_close_listener(struct rdmacm_id *id)
{
	uint64_t service = rdmacm_service_id(id, id->port);

	if (!id->listener)
		return;
	drive_gsi_unlisten(verbs_drive(agent.verbs), service, id->any ? NULL : &id->src,
			   families_of(id));
	cm_unlisten(id->listener);
	id->listener = NULL;
	rdmacm_early_unlisten(service);
}

static int start_listening(struct rdmacm_id *id, int backlog)
{
	static const struct sockaddr_storage any = {.ss_family = AF_INET};
	int ret;

	if (id->state == RDMACM_IDLE) {
		ret = rdmacm_bind(id, (const struct sockaddr *)&any);
		if (ret)
			return ret;
	}
	if (id->state != RDMACM_BOUND)
		return -EINVAL;
	/* Only ids that do not listen may share a port. */
	if (rdmacm_port_conflicts(id, id->port, false))
		return -EADDRINUSE;
	ret = open_listener(id, backlog > 0 && backlog < RDMACM_MAX_BACKLOG ? (uint32_t)backlog
									    : RDMACM_MAX_BACKLOG);
	if (ret == 0) {
		id->state = RDMACM_LISTEN;
		rdmacm_early_listen(rdmacm_service_id(id, id->port));
	}
	return ret;
}

bool rdmacm_any_in(enum rdmacm_state state, uint64_t service_id)
{
	struct rdmacm_id *id;

	list_for_each_entry (id, rdmacm_port_bucket((uint16_t)service_id), port_link) {
		if (id->state == state && rdmacm_service_id(id, id->port) == service_id)
			return true;
	}
	return false;
}

ROOST_EXPORT int rdma_listen(struct rdma_cm_id *pub, int backlog)
{
	const struct sockaddr *src = &pub->route.addr.src_addr;
	int ret = rdmacm_agent_open(NULL), publisher;

	if (ret)
		return rdmacm_ret(ret);
	if (src->sa_family == AF_INET6 && rdmacm_addr_is_any(src))
		rdmacm_open_ipv6(rdmacm_id(pub));
	publisher = drive_gsi_hold(verbs_drive(agent.verbs));
	rdmacm_lock();
	ret = start_listening(rdmacm_id(pub), backlog);
	rdmacm_unlock();
	if (publisher >= 0)
		sys_close(publisher);
	return rdmacm_ret(ret);
}

/* ---- requests ---- */

/*
 * Fills in the addresses of a request. The peer's address is the source of the datagram, not the
 * address in the private data, because RoCE v2's GIDs are IP addresses. Only the port comes from
 * the private data.
 */
static int describe(struct rdmacm_id *id, const struct cm_event *e)
{
	struct rdma_addr *a = &id->id.route.addr;
	struct cm_qp_attr q;
	int ret;

	cm_qp_attr(e->conn, &q);
	id->src = q.sgid;
	id->dst = q.dgid;
	id->tos = q.tclass;
	ret = rdmacm_attach(id);
	if (ret)
		return ret;
	id->port = (uint16_t)e->service_id;
	rdmacm_addr_to(&id->src, id->port, &a->src_storage);
	rdmacm_addr_to(&id->dst, e->has_ip ? e->ip.sport : 0, &a->dst_storage);
	rdmacm_set_path(id);
	if (q.path_mtu)
		id->path.mtu = q.path_mtu;
	return 0;
}

static struct rdmacm_id *child_of(const struct rdmacm_id *listener, const struct cm_event *e)
{
	enum ibv_qp_type type = listener->id.qp_type;
	struct rdmacm_id *id;

	if (e->type == CM_EV_REQUEST)
		type = e->transport == CM_TRANSPORT_UC ? IBV_QPT_UC : IBV_QPT_RC;
	id = rdmacm_id_new(listener->id.channel, listener->id.context, listener->id.ps, type);
	if (!id)
		return NULL;
	id->passive = true;
	id->state = RDMACM_CONNECT;
	id->responder_resources = e->responder_resources;
	id->initiator_depth = e->initiator_depth;
	id->remote_ece = (struct ibv_ece){.vendor_id = e->ece.vendor_id, .options = e->ece.options};
	return id;
}

/* Refuses a request if the program cannot be told about it, because no reply would come. */
void rdmacm_on_request(const struct cm_event *e)
{
	struct rdmacm_id *listener = e->user, *id = child_of(listener, e);
	struct rdmacm_event *out;

	if (!id) {
		cm_release(e->conn, rdmacm_now());
		return;
	}
	id->conn = e->conn;
	cm_set_user(e->conn, id);
	out = describe(id, e) ? NULL
			      : rdmacm_event_new(listener, id, RDMA_CM_EVENT_CONNECT_REQUEST);
	if (!out) {
		rdmacm_id_end(id);
		return;
	}
	out->event.listen_id = &listener->id;
	if (e->type == CM_EV_REQUEST)
		rdmacm_fill_conn(&out->event.param.conn, e);
	rdmacm_event_data(out, e->data, e->data_len);
	rdmacm_event_raise(out);
}

/* ---- accepting ---- */

static int accept_datagrams(struct rdmacm_id *id, const struct rdma_conn_param *p)
{
	return cm_sidr_reply(id->conn, rdmacm_now(), CM_SIDR_OK, rdmacm_qp_number(id, p),
			     RDMA_UDP_QKEY, rdmacm_cm_ece(&id->local_ece),
			     p ? p->private_data : NULL,
			     p && p->private_data ? p->private_data_len : 0);
}

/*
 * Brings the QP up. This precedes the REP, because the peer's first packet may come before its RTU.
 */
static int bring_up(struct rdmacm_id *id)
{
	int ret = 0;

	if (id->id.qp)
		ret = rdmacm_qp_to_rtr(id);
	if (id->id.qp && ret == 0)
		ret = rdmacm_qp_to_rts(id);
	return ret;
}

static int accept_connection(struct rdmacm_id *id, const struct rdma_conn_param *p)
{
	struct cm_accept a = {
		.qpn = rdmacm_qp_number(id, p),
		.psn = id->psn,
		.responder_resources = id->responder_resources,
		.initiator_depth = id->initiator_depth,
		.flow_control = p ? p->flow_control : 0,
		.rnr_retry = p && p->rnr_retry_count < 7 ? p->rnr_retry_count : 7,
		.srq = rdmacm_has_srq(id, p),
		.data = p ? p->private_data : NULL,
		.data_len = p && p->private_data ? p->private_data_len : 0,
	};
	int ret = bring_up(id);

	if (ret == 0 && !id->conn)
		ret = -EINVAL;
	if (ret == 0) {
		a.ece = rdmacm_cm_ece(&id->local_ece);
		rdmacm_await_rtu(id, a.qpn);
		ret = cm_accept(id->conn, rdmacm_now(), &a);
	}
	if (ret) {
		rdmacm_await_no_rtu(id);
		rdmacm_qp_to_error(id);
	}
	return ret;
}

/* A second call must not change the queue pair of the connection. */
static bool has_accepted(const struct rdmacm_id *id)
{
	enum cm_state state = cm_conn_state(id->conn);

	return !rdmacm_is_ud(id) && state != CM_REQ_RCVD && state != CM_MRA_REQ_SENT;
}

static int start_accepting(struct rdmacm_id *id, const struct rdma_conn_param *p)
{
	int ret;

	if (id->state != RDMACM_CONNECT || !id->passive || !id->conn || has_accepted(id))
		return -EINVAL;
	ret = rdmacm_settle_depths(id, p);
	if (ret)
		return ret;
	ret = rdmacm_is_ud(id) ? accept_datagrams(id, p) : accept_connection(id, p);
	if (id->conn)
		rdmacm_started();
	return ret;
}

ROOST_EXPORT int rdma_accept(struct rdma_cm_id *pub, struct rdma_conn_param *conn_param)
{
	struct rdmacm_id *id = rdmacm_id(pub);
	int ret;

	rdmacm_lock();
	rdmacm_change_begin(id);
	ret = start_accepting(id, conn_param);
	rdmacm_change_end(id);
	rdmacm_unlock();
	if (ret == 0 && !rdmacm_is_ud(id)) {
		ret = rdmacm_complete(id);
	} else if (ret == 0 && id->sync && pub->event) {
		/* no event follows, and the listener cannot end before this one is acknowledged */
		rdma_ack_cm_event(pub->event);
		pub->event = NULL;
	}
	return rdmacm_ret(ret);
}
