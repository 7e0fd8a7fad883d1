/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Listeners, and their messages: REQ and SIDR_REQ. The peers are not known yet, so all resources
 * are limited.
 */
#include "cm/core.h"

#include <endian.h>
#include <errno.h>
#include <string.h>

#define FAMILIES (CM_LISTEN_IPV4 | CM_LISTEN_IPV6)

static struct cm_listener *find(struct cm *cm, uint64_t service_id, const struct pkt_addr *addr)
{
	struct list_head *bucket = cm_service_bucket(cm, service_id);
	struct cm_listener *l;

	list_for_each_entry (l, bucket, link) {
		if (l->service_id == service_id && !l->families && pkt_addr_eq(&l->addr, addr))
			return l;
	}
	return NULL;
}

/* Returns the listener on all addresses of some of these families. */
static struct cm_listener *find_any(struct cm *cm, uint64_t service_id, unsigned families)
{
	struct list_head *bucket = cm_service_bucket(cm, service_id);
	struct cm_listener *l;

	list_for_each_entry (l, bucket, link) {
		if (l->service_id == service_id && l->families & families)
			return l;
	}
	return NULL;
}

int cm_listen(struct cm *cm, uint64_t service_id, const struct pkt_addr *addr, unsigned kinds,
	      uint32_t backlog, void *user, struct cm_listener **out)
{
	unsigned families = kinds & FAMILIES;
	struct cm_listener *l;

	kinds &= ~FAMILIES;
	if (!kinds || kinds & ~(unsigned)(CM_LISTEN_CONN | CM_LISTEN_UD) || (addr && families))
		return -EINVAL;
	if (!addr && !families)
		families = FAMILIES;
	if (addr ? find(cm, service_id, addr) : find_any(cm, service_id, families))
		return -EADDRINUSE;
	if (list_empty(&cm->free_listeners))
		return -ENOSPC;
	l = list_first_entry(&cm->free_listeners, struct cm_listener, link);
	list_del(&l->link);
	*l = (struct cm_listener){.cm = cm,
				  .service_id = service_id,
				  .families = families,
				  .kinds = kinds,
				  .user = user};
	l->backlog = backlog ? backlog : cm->config.max_half_open;
	if (addr)
		l->addr = *addr;
	list_init(&l->waiting);
	list_add_tail(&l->link, cm_service_bucket(cm, service_id));
	cm->listening++;
	*out = l;
	return 0;
}

void cm_unlisten(struct cm_listener *l)
{
	struct cm_conn *c, *tmp;

	list_for_each_entry_safe (c, tmp, &l->waiting, link)
		cm_request_taken(c);
	list_del(&l->link);
	list_add(&l->link, &l->cm->free_listeners);
	l->cm->listening--;
}

/*
 * Returns the listener of a service at this address. A listener on the exact address takes
 * precedence over a listener on all addresses.
 */
static struct cm_listener *find_listener(struct cm *cm, uint64_t service_id,
					 const struct pkt_addr *addr, unsigned kind)
{
	struct cm_listener *l = find(cm, service_id, addr);

	if (!l || !(l->kinds & kind))
		l = find_any(cm, service_id,
			     pkt_addr_is_v4(addr) ? CM_LISTEN_IPV4 : CM_LISTEN_IPV6);
	return l && l->kinds & kind ? l : NULL;
}

/*
 * Makes a connection that waits at a listener. Returns NULL, and counts the request, if a limit is
 * reached. The peer then repeats its request.
 */
static struct cm_conn *admit(struct cm *cm, struct cm_listener *l, const struct cm_rx *rx,
			     enum cm_state s)
{
	struct cm_conn *c;

	if (l->waiting_count >= l->backlog) {
		cm->counters.backlog_full++;
		return NULL;
	}
	if (cm->half_open >= cm->config.max_half_open) {
		cm->counters.half_open_full++;
		return NULL;
	}
	if (cm_share_full(cm, l, &rx->src))
		return NULL;
	c = cm_conn_new(cm, rx->now);
	if (!c) {
		cm->counters.table_full++;
		return NULL;
	}
	c->src = rx->dst;
	c->dst = rx->src;
	c->tid = rx->m.tid;
	c->remote_id = rx->m.local_id;
	c->user = l->user;
	c->listener = l;
	l->waiting_count++;
	c->unverified = !rx->src_verified;
	cm->num_unverified += c->unverified;
	c->share = cm_share_of(cm, &rx->src);
	c->share->waiting++;
	list_add_tail(&c->link, &l->waiting);
	cm_set_state(c, s);
	return c;
}

/* Takes the private data, and the addresses in front of them. */
static void take_data(struct cm_event *e, uint64_t service_id, const struct cm_msg *m)
{
	size_t skip = 0;

	e->has_ip = cm_service_is_ip(service_id) && cm_ip_parse(m->data, &e->ip) == 0;
	if (e->has_ip)
		skip = CM_IP_LEN;
	e->data = m->data + skip;
	e->data_len = (uint8_t)(cm_data_len(m->attr) - skip);
}

/* ---- REQ ---- */

/* Answers a repeated REQ, whose answer may have been lost. */
static void req_again(struct cm_conn *c, const struct cm_rx *rx)
{
	cm_count_duplicate(c->cm, CM_REQ);
	switch (c->state) {
	case CM_REQ_RCVD:
		cm_send_mra(c, CM_SERVICE_TIMEOUT);
		break;
	case CM_MRA_REQ_SENT:
	case CM_REP_SENT:
		cm_send_again(c);
		break;
	case CM_TIMEWAIT:
		if (cm_saved_attr(c) == CM_REJ)
			cm_send_again(c);
		else
			cm_refuse(c->cm, &rx->dst, &rx->src, &rx->m, CM_ABOUT_REQ, CM_REJ_STALE,
				  NULL, 0);
		break;
	default:
		break; /* the peer has the answer of this end, or was asked to wait */
	}
}

/*
 * Returns the reason to reject a REQ that no listener can serve; 0: none. The QP will send to the
 * GID in the REQ, so the REQ must come from that address.
 */
static uint16_t req_problem(const struct cm_rx *rx)
{
	const struct cm_req *r = &rx->m.req;

	if (r->transport != CM_TRANSPORT_RC && r->transport != CM_TRANSPORT_UC)
		return CM_REJ_INVALID_TRANSPORT;
	if (r->mtu < 1 || r->mtu > 5)
		return CM_REJ_INVALID_MTU;
	if (memcmp(r->primary.local_gid, rx->src.b, CM_GID_LEN) != 0 ||
	    memcmp(r->primary.remote_gid, rx->dst.b, CM_GID_LEN) != 0)
		return CM_REJ_INVALID_GID;
	return 0;
}

static void refuse_req(struct cm *cm, const struct cm_rx *rx, uint16_t reason)
{
	bool gid = reason == CM_REJ_INVALID_GID; /* additional information: this end's GID */

	cm_refuse(cm, &rx->dst, &rx->src, &rx->m, CM_ABOUT_REQ, reason, gid ? rx->dst.b : NULL,
		  gid ? CM_GID_LEN : 0);
}

void cm_stale(struct cm_conn *old, uint64_t now)
{
	old->cm->counters.stale++;
	if (old->state != CM_ESTABLISHED ||
	    (old->peer_probed && now - old->probed_at < CM_INTERVAL_MIN))
		return;
	old->peer_probed = true;
	old->probed_at = now;
	cm_probe_peer(old);
}

static void fill_from_req(struct cm_conn *c, const struct cm_req *r)
{
	c->service_id = r->service_id;
	c->remote_guid = r->ca_guid;
	c->remote_qpn = r->qpn;
	c->sq_psn = r->psn;
	c->flow_label = r->primary.flow_label;
	c->tclass = r->primary.tclass;
	c->hop_limit = r->primary.hop_limit;
	c->sl = r->primary.sl;
	c->mtu = r->mtu;
	c->ack_timeout = r->primary.ack_timeout;
	c->responder_resources = r->initiator_depth;
	c->initiator_depth = r->responder_resources;
	c->retry_count = r->retry_count;
	c->rnr_retry = r->rnr_retry;
	c->max_retries = r->max_cm_retries;
	c->interval = cm_interval(r->primary.ack_timeout, r->local_timeout);
	/*
	 * The connection is kept as long as the peer may repeat the request. Otherwise the program
	 * would get the request twice.
	 */
	c->keep_ns =
		(r->max_cm_retries + 1u) * cm_interval(r->primary.ack_timeout, r->remote_timeout);
	cm_chain(c, CHAIN_REMOTE);
	cm_chain(c, CHAIN_QPN);
}

static void report_request(struct cm_conn *c, struct cm_listener *l, const struct cm_rx *rx)
{
	const struct cm_req *r = &rx->m.req;
	struct cm_event e = {
		.type = CM_EV_REQUEST,
		.user = l->user,
		.listener = l,
		.responder_resources = c->responder_resources,
		.initiator_depth = c->initiator_depth,
		.flow_control = r->flow_control,
		.retry_count = r->retry_count,
		.rnr_retry = r->rnr_retry,
		.srq = r->srq,
		.transport = r->transport,
		.qpn = r->qpn,
		.psn = r->psn,
		.ece = {r->vendor_id, rx->m.attr_mod},
	};

	take_data(&e, r->service_id, &rx->m);
	cm_report_event(c, &e);
}

void cm_rx_req(struct cm *cm, const struct cm_rx *rx)
{
	const struct cm_req *r = &rx->m.req;
	struct cm_peer peer = {rx->src, r->ca_guid, rx->m.local_id, false};
	struct cm_conn *c = cm_find_peer(cm, CHAIN_REMOTE, &peer);
	uint16_t problem = req_problem(rx);
	struct cm_listener *l;

	if (c) {
		req_again(c, rx);
		return;
	}
	if (problem) {
		cm->counters.bad_request++;
		refuse_req(cm, rx, problem);
		return;
	}
	peer.number = r->qpn;
	c = cm_find_peer(cm, CHAIN_QPN, &peer);
	if (c) {
		refuse_req(cm, rx, CM_REJ_STALE);
		cm_stale(c, rx->now);
		return;
	}
	l = find_listener(cm, r->service_id, &rx->dst, CM_LISTEN_CONN);
	if (!l) {
		cm->counters.no_listener++;
		refuse_req(cm, rx, CM_REJ_INVALID_SERVICE_ID);
		return;
	}
	if (cm_challenged(cm, l, rx))
		return;
	if (cm_limit_half_open(cm, rx->now)) /* its event may have ended the listener */
		l = find_listener(cm, r->service_id, &rx->dst, CM_LISTEN_CONN);
	c = l ? admit(cm, l, rx, CM_REQ_RCVD) : NULL;
	if (!c)
		return;
	fill_from_req(c, r);
	report_request(c, l, rx);
}

/* ---- SIDR_REQ ---- */

/*
 * The time that a SIDR_REP is kept, because the request does not say when it is repeated: twice the
 * interval of rxe, 6.4 s.
 */
#define SIDR_KEEP_NS (2 * (cm_time_ns(19) + cm_time_ns(20)))

void cm_rx_sidr_req(struct cm *cm, const struct cm_rx *rx)
{
	uint64_t service_id = rx->m.sidr_req.service_id;
	struct cm_peer peer = {rx->src, 0, rx->m.local_id, true};
	struct cm_conn *c = cm_find_peer(cm, CHAIN_REMOTE, &peer);
	struct cm_event e = {.type = CM_EV_SIDR_REQUEST};
	struct cm_listener *l;

	if (c) {
		cm_count_duplicate(cm, CM_SIDR_REQ);
		if (c->state == CM_TIMEWAIT) {
			cm_send_again(c);
			wheel_add(&cm->wheel, &c->timer, rx->now + c->keep_ns);
		}
		return;
	}
	l = find_listener(cm, service_id, &rx->dst, CM_LISTEN_UD);
	if (!l) {
		struct cm_msg m = {
			.attr = CM_SIDR_REP, .tid = rx->m.tid, .remote_id = rx->m.local_id};

		cm->counters.no_listener++;
		m.sidr_rep.status = CM_SIDR_UNSUPPORTED;
		m.sidr_rep.service_id = service_id;
		cm_answer(cm, &rx->dst, &rx->src, &m);
		return;
	}
	if (cm_challenged(cm, l, rx))
		return;
	if (cm_limit_half_open(cm, rx->now))
		l = find_listener(cm, service_id, &rx->dst, CM_LISTEN_UD);
	c = l ? admit(cm, l, rx, CM_SIDR_REQ_RCVD) : NULL;
	if (!c)
		return;
	c->sidr = true;
	c->service_id = service_id;
	c->keep_ns = SIDR_KEEP_NS;
	cm_chain(c, CHAIN_REMOTE);
	e.user = l->user;
	e.listener = l;
	take_data(&e, service_id, &rx->m);
	cm_report_event(c, &e);
}
