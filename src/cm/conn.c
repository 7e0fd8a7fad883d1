/* SPDX-License-Identifier: BSD-2-Clause */
/* The functions of the caller on connections. */
#include "base/assert.h"
#include "cm/core.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

void cm_set_user(struct cm_conn *c, void *user)
{
	c->user = user;
}

static int compare_numbers(const void *a, const void *b)
{
	const uint32_t *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

/* The call is rare, so it looks once at all connections. A dead peer may have had most of them. */
void cm_peers_gone(struct cm *cm, uint64_t now, const uint32_t *local_qpns, unsigned n)
{
	struct cm_event e = {.type = CM_EV_DISCONNECTED, .status = -ETIMEDOUT};

	for (uint32_t i = 0; i < cm->first_unused; i++) {
		struct cm_conn *c = &cm->conns[i];

		if (c->state != CM_ESTABLISHED || c->sidr ||
		    !bsearch(&c->local_qpn, local_qpns, n, sizeof(*local_qpns), compare_numbers))
			continue;
		cm_enter_timewait(c, now, cm_path_ns(c));
		cm_report_event(c, &e);
	}
}

/*
 * A sender that cannot see the messages does not know their transaction ids, which have 64 random
 * bits. Two kinds of requests are given up: a request that was never answered, and the end of a
 * connection. Any other peer has answered, so it exists or existed, and its end is detected in
 * another way.
 */
void cm_lost(struct cm *cm, uint64_t now, const struct pkt_addr *dst, uint64_t tid)
{
	struct cm_conn *c = cm_find_id(cm, (uint32_t)tid);
	struct cm_event e = {.type = CM_EV_REJECTED, .reason = CM_REJ_INVALID_SERVICE_ID};

	if (!c || tid >> 32 != cm->tid_high || !pkt_addr_eq(&c->dst, dst))
		return;
	switch (c->state) {
	case CM_SIDR_REQ_SENT:
		e = (struct cm_event){.type = CM_EV_SIDR_REPLY, .status = CM_SIDR_UNSUPPORTED};
		break;
	case CM_REQ_SENT:
		break;
	case CM_DREQ_SENT:
		cm->counters.no_nic++;
		e = (struct cm_event){.type = CM_EV_DISCONNECTED, .status = -EHOSTUNREACH};
		cm_enter_timewait(c, now, cm_path_ns(c));
		cm_report_event(c, &e);
		return;
	default:
		return;
	}
	cm->counters.no_nic++;
	cm_end(c, &e);
}

enum cm_state cm_conn_state(const struct cm_conn *c)
{
	return c->state;
}

void cm_qp_attr(const struct cm_conn *c, struct cm_qp_attr *a)
{
	*a = (struct cm_qp_attr){
		.sgid = c->src,
		.dgid = c->dst,
		.flow_label = c->flow_label,
		.tclass = c->tclass,
		.hop_limit = c->hop_limit,
		.sl = c->sl,
		.path_mtu = c->mtu,
		.dest_qpn = c->remote_qpn,
		.rq_psn = c->rq_psn,
		.max_dest_rd_atomic = c->responder_resources,
		.sq_psn = c->sq_psn,
		.max_rd_atomic = c->initiator_depth,
		.timeout = c->ack_timeout,
		.retry_cnt = c->retry_count,
		.rnr_retry = c->rnr_retry,
	};
}

static bool is_24bits(uint32_t v)
{
	return v <= 0xffffff;
}

static bool awaits_answer(enum cm_state s)
{
	return s == CM_REQ_RCVD || s == CM_MRA_REQ_SENT;
}

static bool has_reply(enum cm_state s)
{
	return s == CM_REP_RCVD || s == CM_MRA_REP_SENT;
}

/* ---- active ---- */

/* Stores the addresses, followed by the private data. */
static void put_data(struct cm_msg *m, const struct cm_ip *ip, const void *data, size_t len)
{
	size_t at = 0;

	if (ip) {
		cm_ip_build(ip, m->data);
		at = CM_IP_LEN;
	}
	if (len)
		memcpy(m->data + at, data, len);
}

static void fill_req(const struct cm_conn *c, const struct cm_connect *p, struct cm_msg *m)
{
	struct cm_path *path = &m->req.primary;

	cm_msg_init(c, m, CM_REQ, true);
	m->attr_mod = p->ece.options;
	m->req = (struct cm_req){
		.service_id = p->service_id,
		.ca_guid = c->cm->config.guid,
		.vendor_id = p->ece.vendor_id,
		.qpn = p->qpn,
		.psn = p->psn,
		.pkey = 0xffff,
		.responder_resources = p->responder_resources,
		.initiator_depth = p->initiator_depth,
		.remote_timeout = p->response_timeout,
		.local_timeout = p->response_timeout,
		.transport = p->transport,
		.flow_control = p->flow_control != 0,
		.retry_count = p->retry_count,
		.rnr_retry = p->rnr_retry,
		.mtu = p->mtu,
		.max_cm_retries = p->max_retries,
		.srq = p->srq != 0,
	};
	memcpy(path->local_gid, p->src.b, CM_GID_LEN);
	memcpy(path->remote_gid, p->dst.b, CM_GID_LEN);
	path->local_lid = path->remote_lid = 0xffff; /* permissive: RoCE has no LIDs */
	path->flow_label = p->flow_label;
	path->tclass = p->tclass;
	path->hop_limit = p->hop_limit;
	path->sl = p->sl;
	path->ack_timeout = p->ack_timeout;
	put_data(m, p->ip, p->data, p->data_len);
}

static bool connect_valid(const struct cm_connect *p)
{
	return p->data_len <= CM_REQ_DATA - (p->ip ? CM_IP_LEN : 0u) && is_24bits(p->qpn) &&
	       is_24bits(p->psn) && p->transport <= CM_TRANSPORT_UC && p->mtu >= 1 && p->mtu <= 5 &&
	       p->ack_timeout <= 31 && p->response_timeout <= 31 && p->max_retries <= 15 &&
	       p->retry_count <= 7 && p->rnr_retry <= 7 && p->flow_label <= 0xfffff && p->sl <= 15;
}

int cm_connect(struct cm *cm, uint64_t now, const struct cm_connect *p, void *user,
	       struct cm_conn **out)
{
	struct cm_conn *c;
	struct cm_msg m;

	if (!connect_valid(p))
		return -EINVAL;
	c = cm_conn_new(cm, now);
	if (!c)
		return -ENOBUFS;
	c->active = true;
	c->user = user;
	c->service_id = p->service_id;
	c->src = p->src;
	c->dst = p->dst;
	c->flow_label = p->flow_label;
	c->tclass = p->tclass;
	c->hop_limit = p->hop_limit;
	c->sl = p->sl;
	c->mtu = p->mtu;
	c->ack_timeout = p->ack_timeout;
	c->local_qpn = p->qpn;
	c->rq_psn = p->psn;
	c->retry_count = p->retry_count;
	c->max_retries = p->max_retries;
	c->interval = cm_interval(p->ack_timeout, p->response_timeout);
	c->keep_ns = (c->max_retries + 1u) * c->interval; /* while the REP may come again */
	fill_req(c, p, &m);
	c->tid = m.tid;
	*out = c;
	cm_await(c, now, CM_REQ_SENT);
	cm_send(c, &m);
	return 0;
}

int cm_ready(struct cm_conn *c, const void *data, size_t data_len)
{
	struct cm_msg m;

	if (!has_reply(c->state) || data_len > CM_RTU_DATA)
		return -EINVAL;
	cm_msg_init(c, &m, CM_RTU, false);
	put_data(&m, NULL, data, data_len);
	cm_set_established(c);
	cm_send(c, &m);
	return 0;
}

/* ---- asking once more ---- */

int cm_repeat_request(struct cm_conn *c, uint64_t now, uint64_t delay)
{
	enum cm_attr asked = cm_saved_attr(c);

	if (!c->active || c->state != CM_IDLE || (asked != CM_REQ && asked != CM_SIDR_REQ))
		return -EINVAL;
	if (c->retries >= c->max_retries)
		return -EAGAIN;
	cm_set_state(c, c->sidr ? CM_SIDR_REQ_SENT : CM_REQ_SENT);
	wheel_add(&c->cm->wheel, &c->timer, now + delay);
	return 0;
}

/* ---- passive ---- */

void cm_request_taken(struct cm_conn *c)
{
	if (!c->listener)
		return;
	ROOST_ASSERT(c->listener->waiting_count && c->share->waiting);
	c->listener->waiting_count--;
	c->share->waiting--;
	list_del(&c->link);
	c->listener = NULL;
}

int cm_accept(struct cm_conn *c, uint64_t now, const struct cm_accept *p)
{
	struct cm_msg m;

	if (!awaits_answer(c->state) || p->data_len > CM_REP_DATA || !is_24bits(p->qpn) ||
	    !is_24bits(p->psn) || p->rnr_retry > 7)
		return -EINVAL;
	c->local_qpn = p->qpn;
	c->rq_psn = p->psn;
	c->responder_resources = p->responder_resources;
	c->initiator_depth = p->initiator_depth;
	cm_msg_init(c, &m, CM_REP, false);
	m.attr_mod = p->ece.options;
	m.rep = (struct cm_rep){
		.ca_guid = c->cm->config.guid,
		.vendor_id = p->ece.vendor_id,
		.qpn = p->qpn,
		.psn = p->psn,
		.responder_resources = p->responder_resources,
		.initiator_depth = p->initiator_depth,
		.ack_delay = c->cm->config.ack_delay,
		.flow_control = p->flow_control != 0,
		.rnr_retry = p->rnr_retry,
		.srq = p->srq != 0,
	};
	put_data(&m, NULL, p->data, p->data_len);
	cm_await(c, now, CM_REP_SENT);
	cm_send(c, &m);
	return 0;
}

int cm_established(struct cm_conn *c)
{
	struct cm_event e = {.type = CM_EV_ESTABLISHED};

	if (c->state == CM_ESTABLISHED)
		return -EISCONN;
	if (c->state != CM_REP_SENT && c->state != CM_MRA_REP_RCVD)
		return -EINVAL;
	c->cm->counters.established_early++;
	cm_set_established(c);
	cm_report_event(c, &e);
	return 0;
}

/* ---- either ---- */

int cm_reject(struct cm_conn *c, uint64_t now, uint16_t reason, const void *info, size_t info_len,
	      const void *data, size_t data_len)
{
	if ((!awaits_answer(c->state) && !has_reply(c->state)) || info_len > CM_ARI_LEN ||
	    data_len > CM_REJ_DATA)
		return -EINVAL;
	cm_send_rej(c, c->active ? CM_ABOUT_REP : CM_ABOUT_REQ, reason, info, info_len, data,
		    data_len);
	cm_enter_timewait(c, now, c->keep_ns);
	return 0;
}

int cm_delay(struct cm_conn *c, uint8_t service_timeout)
{
	if ((!awaits_answer(c->state) && !has_reply(c->state)) || service_timeout > 31)
		return -EINVAL;
	cm_send_mra(c, service_timeout);
	return 0;
}

int cm_disconnect(struct cm_conn *c, uint64_t now, const void *data, size_t data_len)
{
	if (data_len > (c->state == CM_ESTABLISHED ? CM_DREQ_DATA : CM_DREP_DATA))
		return -EINVAL;
	if (c->state == CM_ESTABLISHED) {
		cm_send_dreq(c, now, data, data_len);
	} else if (c->state == CM_DREQ_RCVD) {
		cm_send_drep(c, data, data_len);
		cm_enter_timewait(c, now, cm_path_ns(c));
	} else {
		return -ENOTCONN;
	}
	return 0;
}

/* ---- SIDR ---- */

int cm_sidr(struct cm *cm, uint64_t now, const struct cm_sidr *p, void *user, struct cm_conn **out)
{
	struct cm_conn *c;
	struct cm_msg m;

	if (p->data_len > CM_SIDR_REQ_DATA - (p->ip ? CM_IP_LEN : 0u) || p->response_timeout > 31 ||
	    p->max_retries > 15)
		return -EINVAL;
	c = cm_conn_new(cm, now);
	if (!c)
		return -ENOBUFS;
	c->active = true;
	c->sidr = true;
	c->user = user;
	c->service_id = p->service_id;
	c->src = p->src;
	c->dst = p->dst;
	c->tclass = p->tclass;
	c->max_retries = p->max_retries;
	c->interval = cm_interval(0, p->response_timeout);
	cm_msg_init(c, &m, CM_SIDR_REQ, true);
	m.sidr_req.service_id = p->service_id;
	m.sidr_req.pkey = 0xffff;
	put_data(&m, p->ip, p->data, p->data_len);
	*out = c;
	cm_await(c, now, CM_SIDR_REQ_SENT);
	cm_send(c, &m);
	return 0;
}

int cm_sidr_reply(struct cm_conn *c, uint64_t now, uint8_t status, uint32_t qpn, uint32_t qkey,
		  struct cm_ece ece, const void *data, size_t data_len)
{
	struct cm_msg m;

	if (c->state != CM_SIDR_REQ_RCVD || data_len > CM_SIDR_REP_DATA || !is_24bits(qpn))
		return -EINVAL;
	cm_msg_init(c, &m, CM_SIDR_REP, false);
	m.attr_mod = ece.options;
	m.sidr_rep.vendor_id = ece.vendor_id;
	m.sidr_rep.service_id = c->service_id;
	m.sidr_rep.status = status;
	m.sidr_rep.qpn = qpn;
	m.sidr_rep.qkey = qkey;
	put_data(&m, NULL, data, data_len);
	cm_send(c, &m);
	cm_enter_timewait(c, now, c->keep_ns);
	return 0;
}

/* ---- the end ---- */

void cm_release(struct cm_conn *c, uint64_t now)
{
	c->owned = false;
	switch (c->state) {
	case CM_REQ_SENT:
	case CM_MRA_REQ_RCVD:
		cm_send_rej_timeout(c);
		cm_end(c, NULL);
		break;
	case CM_REQ_RCVD:
	case CM_MRA_REQ_SENT:
	case CM_REP_RCVD:
	case CM_MRA_REP_SENT:
		cm_reject(c, now, CM_REJ_CONSUMER, NULL, 0, NULL, 0);
		break;
	case CM_ESTABLISHED:
	case CM_DREQ_RCVD:
		cm_disconnect(c, now, NULL, 0);
		break;
	case CM_SIDR_REQ_RCVD:
		cm_sidr_reply(c, now, CM_SIDR_REJECT, 0, 0, (struct cm_ece){0, 0}, NULL, 0);
		break;
	case CM_TIMEWAIT:
		list_add_tail(&c->link, &c->cm->timewait);
		break;
	case CM_REP_SENT: /* the RTU shows that there is a connection to end */
	case CM_MRA_REP_RCVD:
		break;
	case CM_DREQ_SENT: /* the timer has the peer's interval: nobody waits for its answer now */
		cm_hurry(c, now);
		break;
	default:
		cm_end(c, NULL);
	}
}
