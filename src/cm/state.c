/* SPDX-License-Identifier: BSD-2-Clause */
/* States, the counts by state, and timers: retries, giving up, time-wait. */
#include "cm/core.h"

#include <errno.h>

const char *cm_state_str(enum cm_state s)
{
	static const char *const text[CM_STATES] = {
		[CM_IDLE] = "IDLE",
		[CM_REQ_SENT] = "REQ_SENT",
		[CM_MRA_REQ_RCVD] = "MRA_REQ_RCVD",
		[CM_REP_RCVD] = "REP_RCVD",
		[CM_MRA_REP_SENT] = "MRA_REP_SENT",
		[CM_REQ_RCVD] = "REQ_RCVD",
		[CM_MRA_REQ_SENT] = "MRA_REQ_SENT",
		[CM_REP_SENT] = "REP_SENT",
		[CM_MRA_REP_RCVD] = "MRA_REP_RCVD",
		[CM_ESTABLISHED] = "ESTABLISHED",
		[CM_DREQ_SENT] = "DREQ_SENT",
		[CM_DREQ_RCVD] = "DREQ_RCVD",
		[CM_TIMEWAIT] = "TIMEWAIT",
		[CM_SIDR_REQ_SENT] = "SIDR_REQ_SENT",
		[CM_SIDR_REQ_RCVD] = "SIDR_REQ_RCVD",
	};

	return (unsigned)s < CM_STATES ? text[s] : "unknown";
}

const char *cm_event_str(enum cm_event_type t)
{
	static const char *const text[CM_EVENTS] = {
		[CM_EV_REQUEST] = "REQUEST",
		[CM_EV_REPLY] = "REPLY",
		[CM_EV_ESTABLISHED] = "ESTABLISHED",
		[CM_EV_REJECTED] = "REJECTED",
		[CM_EV_UNREACHABLE] = "UNREACHABLE",
		[CM_EV_DISCONNECTED] = "DISCONNECTED",
		[CM_EV_TIMEWAIT_EXIT] = "TIMEWAIT_EXIT",
		[CM_EV_SIDR_REQUEST] = "SIDR_REQUEST",
		[CM_EV_SIDR_REPLY] = "SIDR_REPLY",
	};

	return (unsigned)t < CM_EVENTS ? text[t] : "unknown";
}

/*
 * Limits: the values of a peer must neither cause fast retries nor keep a half-open connection, or
 * a time-wait, for hours. The longest code is 31, 2.4 hours.
 */
#define TIME_MAX cm_time_ns(24)

/*
 * The interval is that of Linux (ib_send_cm_req): the round trip, and the time that the other
 * end has for its answer.
 */
uint64_t cm_interval(unsigned ack_timeout, unsigned response_timeout)
{
	uint64_t ns = cm_time_ns(ack_timeout) + cm_time_ns(response_timeout);

	return ns < CM_INTERVAL_MIN ? CM_INTERVAL_MIN : ns > TIME_MAX ? TIME_MAX : ns;
}

/*
 * Returns true if the peer waits for an answer of this end: the connection counts against the
 * listener's backlog.
 */
static bool is_waiting(enum cm_state s)
{
	return s == CM_REQ_RCVD || s == CM_MRA_REQ_SENT || s == CM_SIDR_REQ_RCVD;
}

static bool is_half_open(enum cm_state s)
{
	return is_waiting(s) || s == CM_REP_SENT || s == CM_MRA_REP_RCVD;
}

static bool is_replied(enum cm_state s)
{
	return s == CM_REP_SENT || s == CM_MRA_REP_RCVD;
}

void cm_set_state(struct cm_conn *c, enum cm_state s)
{
	uint32_t change = (uint32_t)is_half_open(s) - (uint32_t)is_half_open(c->state);

	c->cm->half_open += change;
	if (change)
		c->share->half_open += change;
	if (!is_waiting(s))
		cm_request_taken(c);
	if (is_replied(s) && !is_replied(c->state))
		list_add_tail(&c->link, &c->cm->replied);
	else if (is_replied(c->state) && !is_replied(s))
		list_del(&c->link);
	if ((s == CM_ESTABLISHED) != (c->state == CM_ESTABLISHED))
		cm_leave_will(c, s == CM_ESTABLISHED);
	c->state = s;
}

/*
 * Returns true if a peer that does not answer would keep a connection that no program of this end
 * uses: it is half open, or the program has released it. The values of the peer do not count then.
 */
static bool is_brief(const struct cm_conn *c)
{
	return is_replied(c->state) || (c->state == CM_DREQ_SENT && !c->owned);
}

static uint64_t interval(const struct cm_conn *c)
{
	return is_brief(c) && c->interval > CM_BRIEF_INTERVAL ? CM_BRIEF_INTERVAL : c->interval;
}

static uint8_t max_retries(const struct cm_conn *c)
{
	return is_brief(c) && c->max_retries > CM_BRIEF_RETRIES ? CM_BRIEF_RETRIES : c->max_retries;
}

void cm_hurry(struct cm_conn *c, uint64_t now)
{
	if (interval(c) < c->interval)
		wheel_add(&c->cm->wheel, &c->timer, now + interval(c));
}

void cm_await(struct cm_conn *c, uint64_t now, enum cm_state s)
{
	cm_set_state(c, s);
	c->retries = 0;
	wheel_add(&c->cm->wheel, &c->timer, now + interval(c));
}

uint64_t cm_path_ns(const struct cm_conn *c)
{
	uint64_t ns = cm_time_ns(c->ack_timeout);

	return ns > TIME_MAX ? TIME_MAX : ns;
}

void cm_enter_timewait(struct cm_conn *c, uint64_t now, uint64_t ns)
{
	/*
	 * The peer may use its QP again before the time-wait of this end is over. As in Linux,
	 * this does not count as stale.
	 */
	cm_unchain(c, CHAIN_QPN);
	if (c->was_established && c->state != CM_TIMEWAIT)
		c->cm->counters.disconnected++;
	cm_set_state(c, CM_TIMEWAIT);
	wheel_add(&c->cm->wheel, &c->timer, now + ns);
	if (!c->owned)
		list_add_tail(&c->link, &c->cm->timewait);
}

void cm_set_established(struct cm_conn *c)
{
	wheel_del(&c->cm->wheel, &c->timer);
	cm_set_state(c, CM_ESTABLISHED);
	if (c->unverified && c->cm->num_unverified)
		c->cm->num_unverified--;
	c->unverified = false;
	c->was_established = true;
	cm_earn_credits(c->cm, &c->dst);
	c->cm->counters.connected++;
}

void cm_report_event(struct cm_conn *c, struct cm_event *e)
{
	if (!c->owned)
		return;
	e->conn = c;
	if (e->type != CM_EV_REQUEST && e->type != CM_EV_SIDR_REQUEST)
		e->user = c->user;
	e->service_id = c->service_id;
	c->cm->ops.event(c->cm->ops.ctx, e);
}

void cm_end(struct cm_conn *c, struct cm_event *e)
{
	wheel_del(&c->cm->wheel, &c->timer);
	cm_unchain(c, CHAIN_REMOTE);
	cm_unchain(c, CHAIN_QPN);
	cm_set_state(c, CM_IDLE);
	if (!c->owned)
		cm_conn_free(c);
	else if (e)
		cm_report_event(c, e);
}

/* ---- timers ---- */

void cm_give_up(struct cm_conn *c, uint64_t now)
{
	struct cm_event e = {.type = CM_EV_UNREACHABLE, .status = -ETIMEDOUT};

	c->cm->counters.timeouts++;
	switch (c->state) {
	case CM_REQ_SENT:
	case CM_MRA_REQ_RCVD:
		/* The peer may have the REQ, and its program may not have answered yet. */
		cm_send_rej_timeout(c);
		cm_end(c, &e);
		return;
	case CM_REP_SENT:
	case CM_MRA_REP_RCVD:
		cm_send_rej_timeout(c);
		cm_enter_timewait(c, now, c->keep_ns);
		break;
	case CM_DREQ_SENT:
		e.type = CM_EV_DISCONNECTED;
		cm_enter_timewait(c, now, cm_path_ns(c));
		break;
	default:
		cm_end(c, &e);
		return;
	}
	cm_report_event(c, &e);
}

void cm_timer(void *ctx, struct wheel_timer *t)
{
	struct cm_conn *c = container_of(t, struct cm_conn, timer);
	uint64_t now = *(uint64_t *)ctx;
	struct cm_event e = {.type = CM_EV_TIMEWAIT_EXIT};

	if (c->state == CM_TIMEWAIT) {
		cm_end(c, c->was_established ? &e : NULL);
		return;
	}
	if (c->retries >= max_retries(c)) {
		cm_give_up(c, now);
		return;
	}
	c->retries++;
	c->cm->counters.retried[cm_saved_attr(c) - CM_ATTR_FIRST]++;
	wheel_add(&c->cm->wheel, &c->timer, now + interval(c));
	cm_send_again(c);
}
