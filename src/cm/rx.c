/* SPDX-License-Identifier: BSD-2-Clause */
/* Messages of connections that are being set up: REP, RTU, MRA, SIDR_REP. */
#include "cm/core.h"

#include <endian.h>
#include <string.h>

struct cm_conn *cm_rx_conn(struct cm *cm, const struct cm_rx *rx, bool both_ids)
{
	struct cm_conn *c = cm_find_id(cm, rx->m.remote_id);

	if (!c || c->state == CM_IDLE || (both_ids && c->remote_id != rx->m.local_id)) {
		cm->counters.unknown_id++;
		return NULL;
	}
	if (!pkt_addr_eq(&c->dst, &rx->src)) {
		cm->counters.wrong_source++;
		return NULL;
	}
	return c;
}

/* ---- REP ---- */

uint8_t cm_ack_timeout(unsigned ack_delay, unsigned life_time)
{
	unsigned t = life_time + 1;

	/*
	 * 2^t is twice the one-way time. Adding 2^delay increases t by one if both are about as
	 * large.
	 */
	if (t >= ack_delay)
		t += ack_delay >= t - 1;
	else
		t = ack_delay + (t >= ack_delay - 1);
	return (uint8_t)(t < 31 ? t : 31);
}

/* Handles a repeated REP: the answer was lost, or the program has not answered yet. */
static void rep_again(struct cm_conn *c)
{
	cm_count_duplicate(c->cm, CM_REP);
	if (c->state == CM_REP_RCVD)
		cm_send_mra(c, CM_SERVICE_TIMEOUT);
	else if (c->state == CM_MRA_REP_SENT || c->state == CM_ESTABLISHED ||
		 (c->state == CM_TIMEWAIT && cm_saved_attr(c) == CM_REJ))
		cm_send_again(c);
}

static void refuse_rep(struct cm *cm, const struct cm_rx *rx, uint16_t reason)
{
	cm_refuse(cm, &rx->dst, &rx->src, &rx->m, CM_ABOUT_REP, reason, NULL, 0);
}

/* Handles a REP that names a QP of the peer that is connected already, according to the table. */
static void rep_stale(struct cm_conn *c, struct cm_conn *old, const struct cm_rx *rx)
{
	struct cm_event e = {.type = CM_EV_REJECTED, .reason = CM_REJ_STALE};

	refuse_rep(c->cm, rx, CM_REJ_STALE);
	cm_stale(old, rx->now);
	cm_end(c, &e);
}

static void rep_accept(struct cm_conn *c, const struct cm_rx *rx)
{
	const struct cm_rep *r = &rx->m.rep;
	struct cm_event e = {
		.type = CM_EV_REPLY,
		.responder_resources = r->initiator_depth,
		.initiator_depth = r->responder_resources,
		.flow_control = r->flow_control,
		.rnr_retry = r->rnr_retry,
		.srq = r->srq,
		.qpn = r->qpn,
		.psn = r->psn,
		.ece = {r->vendor_id, rx->m.attr_mod},
		.data = rx->m.data,
		.data_len = CM_REP_DATA,
	};

	c->remote_id = rx->m.local_id;
	c->remote_guid = r->ca_guid;
	c->remote_qpn = r->qpn;
	c->tid = rx->m.tid;
	c->sq_psn = r->psn;
	c->responder_resources = r->initiator_depth;
	c->initiator_depth = r->responder_resources;
	c->rnr_retry = r->rnr_retry;
	if (c->ack_timeout)
		c->ack_timeout = cm_ack_timeout(r->ack_delay, c->ack_timeout - 1u);
	cm_chain(c, CHAIN_REMOTE);
	cm_chain(c, CHAIN_QPN);
	wheel_del(&c->cm->wheel, &c->timer);
	cm_set_state(c, CM_REP_RCVD);
	cm_report_event(c, &e);
}

void cm_rx_rep(struct cm *cm, const struct cm_rx *rx)
{
	struct cm_peer peer = {rx->src, rx->m.rep.ca_guid, rx->m.local_id, false};
	struct cm_conn *c = cm_rx_conn(cm, rx, false), *old;

	if (c && c->state != CM_REQ_SENT && c->state != CM_MRA_REQ_RCVD) {
		if (c->active && c->remote_id == rx->m.local_id) {
			rep_again(c);
			return;
		}
		cm->counters.unexpected++;
		c = NULL;
	}
	if (c && cm_find_peer(cm, CHAIN_REMOTE, &peer)) {
		cm->counters.unexpected++; /* the peer's id belongs to another connection */
		c = NULL;
	}
	if (!c) {
		/*
		 * The Linux kernel does not answer here, and the peer repeats the REP until it
		 * gives up. 12.6.7.2 has a reason for this case.
		 */
		refuse_rep(cm, rx, CM_REJ_INVALID_COMM_ID);
		return;
	}
	peer.number = rx->m.rep.qpn;
	old = cm_find_peer(cm, CHAIN_QPN, &peer);
	if (old)
		rep_stale(c, old, rx);
	else
		rep_accept(c, rx);
}

/* ---- RTU ---- */

void cm_rx_rtu(struct cm *cm, const struct cm_rx *rx)
{
	struct cm_event e = {
		.type = CM_EV_ESTABLISHED, .data = rx->m.data, .data_len = CM_RTU_DATA};
	struct cm_conn *c = cm_rx_conn(cm, rx, true);

	if (!c)
		return;
	if (c->state != CM_REP_SENT && c->state != CM_MRA_REP_RCVD) {
		cm_count_duplicate(cm, CM_RTU);
		if (c->state == CM_TIMEWAIT && cm_saved_attr(c) == CM_REJ)
			cm_send_again(c); /* the peer does not know yet that this end gave up */
		return;
	}
	cm_set_established(c);
	if (!c->owned) {
		cm_send_dreq(c, rx->now, NULL, 0);
		return;
	}
	cm_report_event(c, &e);
}

/* ---- MRA ---- */

void cm_rx_mra(struct cm *cm, const struct cm_rx *rx)
{
	const struct cm_mra *r = &rx->m.mra;
	struct cm_conn *c = cm_rx_conn(cm, rx, r->about != CM_ABOUT_REQ);

	if (!c)
		return;
	if (c->state == CM_REQ_SENT && r->about == CM_ABOUT_REQ) {
		cm_set_state(c, CM_MRA_REQ_RCVD);
	} else if (c->state == CM_REP_SENT && r->about == CM_ABOUT_REP) {
		cm_set_state(c, CM_MRA_REP_RCVD);
	} else {
		if (c->state == CM_MRA_REQ_RCVD || c->state == CM_MRA_REP_RCVD)
			cm_count_duplicate(cm, CM_MRA);
		else
			cm->counters.unexpected++;
		return;
	}
	/* The peer has the message, so the count of retries restarts after the requested time. */
	c->retries = 0;
	wheel_add(&cm->wheel, &c->timer, rx->now + cm_interval(c->ack_timeout, r->service_timeout));
}

/* ---- SIDR_REP ---- */

void cm_rx_sidr_rep(struct cm *cm, const struct cm_rx *rx)
{
	const struct cm_sidr_rep *r = &rx->m.sidr_rep;
	struct cm_conn *c = cm_rx_conn(cm, rx, false);
	struct cm_event e = {
		.type = CM_EV_SIDR_REPLY,
		.status = r->status,
		.info = r->info,
		.info_len = r->info_len,
		.qpn = r->qpn,
		.qkey = r->qkey,
		.ece = {r->vendor_id, rx->m.attr_mod},
		.data = rx->m.data,
		.data_len = CM_SIDR_REP_DATA,
	};

	if (!c)
		return;
	if (c->state != CM_SIDR_REQ_SENT) {
		cm->counters.unexpected++;
		return;
	}
	cm_end(c, &e);
}
