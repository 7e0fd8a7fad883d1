/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Messages that end connections: REJ, DREQ, DREP; and those of path migration, which RoCE does not
 * have: LAP, APR.
 */
#include "cm/core.h"

#include <endian.h>
#include <errno.h>
#include <string.h>

/* ---- REJ ---- */

static bool knows_our_id(const struct cm_conn *c)
{
	return c->active || (c->state != CM_REQ_RCVD && c->state != CM_MRA_REQ_SENT &&
			     c->state != CM_REP_SENT && c->state != CM_MRA_REP_RCVD);
}

/*
 * Finds the connection of a REJ. A peer that gave up waiting may not know the local id; it then
 * names itself by its GUID and its own id (12.6.7.2). If both ends know both ids, a REJ must name
 * both. A sender that guesses one id, or knows one from a message to itself, therefore cannot end a
 * connection of others.
 */
static struct cm_conn *rej_conn(struct cm *cm, const struct cm_rx *rx)
{
	const struct cm_rej *r = &rx->m.rej;
	struct cm_peer peer = {rx->src, 0, rx->m.local_id, false};
	struct cm_conn *c = NULL;

	if (r->reason == CM_REJ_TIMEOUT && r->ari_len >= sizeof(peer.guid)) {
		memcpy(&peer.guid, r->ari, sizeof(peer.guid));
		peer.guid = be64toh(peer.guid);
		c = cm_find_peer(cm, CHAIN_REMOTE, &peer);
		if (c && !knows_our_id(c))
			return c;
	}
	c = cm_rx_conn(cm, rx, false);
	if (!c)
		return NULL;
	/*
	 * Before the id of the peer is known, any id is accepted: the peer may have none for this
	 * connection.
	 */
	if (c->remote_id && c->remote_id != rx->m.local_id) {
		cm->counters.unknown_id++;
		return NULL;
	}
	return c;
}

/*
 * Returns true if a REJ fits the state, by the message that it rejects. A REJ of a REQ that was
 * answered in another way since is late, and does not end the connection: the REQ was sent twice,
 * and the first copy found no listener.
 */
static bool rej_fits(const struct cm_conn *c, uint8_t about)
{
	switch (about) {
	case CM_ABOUT_REQ:
		return c->state == CM_REQ_SENT || c->state == CM_MRA_REQ_RCVD;
	case CM_ABOUT_REP:
		return !c->active;
	default:
		return true;
	}
}

void cm_rx_rej(struct cm *cm, const struct cm_rx *rx)
{
	const struct cm_rej *r = &rx->m.rej;
	struct cm_conn *c = rej_conn(cm, rx);
	struct cm_event e = {
		.type = CM_EV_REJECTED,
		.reason = r->reason,
		.info = r->ari,
		.info_len = r->ari_len,
		.data = rx->m.data,
		.data_len = CM_REJ_DATA,
	};

	if (!c)
		return;
	if (r->reason < CM_REASONS)
		cm->counters.rejects_received[r->reason]++;
	if (!rej_fits(c, r->about)) {
		cm->counters.unexpected++;
		return;
	}
	switch (c->state) {
	case CM_REQ_SENT:
	case CM_MRA_REQ_RCVD:
		cm_end(c, &e);
		return;
	case CM_REQ_RCVD:
	case CM_MRA_REQ_SENT:
	case CM_REP_SENT:
	case CM_MRA_REP_RCVD:
	case CM_REP_RCVD:
	case CM_MRA_REP_SENT:
		cm_enter_timewait(c, rx->now, c->keep_ns); /* a late copy of its REQ may come */
		break;
	case CM_ESTABLISHED:
	case CM_DREQ_SENT:
		e.type = CM_EV_DISCONNECTED;
		e.status = c->state == CM_ESTABLISHED ? -ECONNRESET : 0;
		cm_enter_timewait(c, rx->now, cm_path_ns(c));
		break;
	default:
		cm->counters.unexpected++;
		return;
	}
	cm_report_event(c, &e);
}

/* ---- DREQ, DREP ---- */

/*
 * Answers a DREQ for an unknown connection, which has ended. Without the answer the peer repeats
 * the DREQ until it gives up (12.6.11).
 */
static void drep_unknown(struct cm *cm, const struct cm_rx *rx)
{
	struct cm_msg m = {.attr = CM_DREP,
			   .tid = rx->m.tid,
			   .local_id = rx->m.remote_id,
			   .remote_id = rx->m.local_id};

	cm_count_duplicate(cm, CM_DREQ);
	cm_answer(cm, &rx->dst, &rx->src, &m);
}

/* Handles a repeated DREQ, or a DREQ after this end gave up. A saved refusal stays saved. */
static void dreq_again(struct cm_conn *c, const struct cm_rx *rx)
{
	cm_count_duplicate(c->cm, CM_DREQ);
	if (cm_saved_attr(c) == CM_DREP) {
		cm_send_again(c);
	} else {
		struct cm_msg m;

		c->tid = rx->m.tid;
		cm_msg_init(c, &m, CM_DREP, false);
		cm_answer(c->cm, &c->src, &c->dst, &m);
	}
}

/* Answers at once, because no program must be asked. */
static void dreq_answer(struct cm_conn *c, uint64_t now)
{
	cm_send_drep(c, NULL, 0);
	cm_enter_timewait(c, now, cm_path_ns(c));
}

void cm_rx_dreq(struct cm *cm, const struct cm_rx *rx)
{
	struct cm_event e = {
		.type = CM_EV_DISCONNECTED, .data = rx->m.data, .data_len = CM_DREQ_DATA};
	struct cm_conn *c = cm_find_id(cm, rx->m.remote_id);

	if (!c || c->state == CM_IDLE || c->remote_id != rx->m.local_id) {
		cm->counters.unknown_id++;
		drep_unknown(cm, rx);
		return;
	}
	c = cm_rx_conn(cm, rx, true);
	if (!c)
		return;
	if (c->local_qpn != rx->m.dreq.qpn) {
		cm->counters.wrong_qpn++;
		return;
	}
	switch (c->state) {
	case CM_REP_SENT:
	case CM_MRA_REP_RCVD:
	case CM_REP_RCVD:
	case CM_MRA_REP_SENT:
	case CM_ESTABLISHED:
		wheel_del(&cm->wheel, &c->timer);
		if (!c->was_established) /* the peer is connected: an RTU of either end is late */
			cm_set_established(c);
		c->tid = rx->m.tid;
		cm_set_state(c, CM_DREQ_RCVD);
		if (!c->owned)
			dreq_answer(c, rx->now);
		break;
	case CM_DREQ_SENT: /* both ends disconnect at the same time */
		c->tid = rx->m.tid;
		dreq_answer(c, rx->now);
		break;
	case CM_TIMEWAIT:
		dreq_again(c, rx);
		return;
	case CM_DREQ_RCVD:
		cm_count_duplicate(cm, CM_DREQ);
		return;
	default:
		cm->counters.unexpected++;
		return;
	}
	cm_report_event(c, &e);
}

void cm_rx_drep(struct cm *cm, const struct cm_rx *rx)
{
	struct cm_event e = {
		.type = CM_EV_DISCONNECTED, .data = rx->m.data, .data_len = CM_DREP_DATA};
	struct cm_conn *c;

	if (cm_challenge_answered(cm, rx))
		return;
	c = cm_rx_conn(cm, rx, true);
	if (!c)
		return;
	/* the peer does not know the connection: cm_probe_peer() */
	if (c->state == CM_ESTABLISHED && c->peer_probed) {
		cm->counters.stale_ended++;
		e.status = -ECONNRESET;
	} else if (c->state != CM_DREQ_SENT) {
		cm_count_duplicate(cm, CM_DREP);
		return;
	}
	cm_enter_timewait(c, rx->now, cm_path_ns(c));
	cm_report_event(c, &e);
}

/* ---- LAP, APR ---- */

/* Refuses a LAP, because RoCE has no alternate paths. The Linux kernel does not answer. */
void cm_rx_lap(struct cm *cm, const struct cm_rx *rx)
{
	struct cm_msg m = {.attr = CM_APR,
			   .tid = rx->m.tid,
			   .local_id = rx->m.remote_id,
			   .remote_id = rx->m.local_id};

	m.apr.status = cm_rx_conn(cm, rx, true) ? CM_APR_UNSUPPORTED : CM_APR_INVALID_ID;
	cm_answer(cm, &rx->dst, &rx->src, &m);
}

/* Counts an APR. This end never sends a LAP. */
void cm_rx_apr(struct cm *cm, const struct cm_rx *rx)
{
	cm->counters.unexpected++;
}
