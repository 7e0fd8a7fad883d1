/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Acknowledgements that wait for the program's answer. Where each flush is a system call, a program that answers what it gets (a server, a
 * ping-pong) pays for two: its NIC acknowledges, and a moment later the program posts. So the acknowledgement of a QP whose program has
 * answered a few times running leaves behind the answer, in the same flush; without one, in a turn after HOLD_NS (who stops polling just then
 * leaves it to the drive's next look, milliseconds at most: the peer's tail probe asks before). IBA 9.7.5.1.2 lets a responder
 * coalesce; TCP does the same with its delayed ACKs (RFC 9293, 3.8.6.3).
 *
 * The other end gains more than a system call. A program that polls for its completion, and then spins on memory for the answer
 * (ib_write_lat), finds both in the same poll, and its NIC need not wake anybody. Hence the order: the answer, then the ACK.
 *
 * Not where it makes things worse: two programs that share a core get on by their NICs' being woken. So the time from our answer to the
 * peer's next request decides, with ACKs held and without.
 */
#include "nic/tx.h"

#define HOLD_NS	   50000
#define HOLD_AFTER 16	  /* answers, each within */
#define ANSWER_NS  500000 /* of the request */
#define TRIES	   32	  /* before the times are compared */
#define WARY_FIRST 512	  /* so many requests without, when it was worse, then twice as many, and so on */
#define WARY_MAX   32768

/* Towards the short ones of the times, of which few are accidents. */
static void weigh(uint32_t *gap, uint64_t t)
{
	if (!*gap)
		*gap = t < UINT32_MAX / 2 ? (uint32_t)t : UINT32_MAX / 2;
	else if (t < *gap)
		*gap -= *gap / 8;
	else if (*gap < UINT32_MAX / 2)
		*gap += *gap / 32 + 1;
}

/* The peer's next request is here. True: it came later than it did without. */
static bool held_in_vain(struct hold *h, uint64_t now)
{
	weigh(&h->gap[h->held], now - h->answered);
	if (!h->held || ++h->tries < TRIES)
		return false;
	h->tries = 0;
	if (h->gap[1] / 5 <= h->gap[0] / 4)
		return false;
	h->wariness = h->wariness < WARY_FIRST ? WARY_FIRST : h->wariness;
	h->wary = h->wariness;
	if (h->wariness < WARY_MAX)
		h->wariness = (uint16_t)(h->wariness * 2);
	return true;
}

bool hold_ack(struct nic_qp *qp)
{
	struct qp_resp *r = &qp->resp;
	struct hold *h = &r->hold;
	struct pu *pu = qp->pu;

	if (!pu->ports[qp->port].port->gather)
		return false;
	if (h->asked) /* the one before had no answer */
		h->answers = 0;
	else if (h->answered && held_in_vain(h, pu->now))
		h->answers = 0;
	h->asked = pu->now;
	h->held = false;
	if (h->wary) {
		h->wary--;
		h->gap[1] = h->gap[0];
		return false;
	}
	if (h->answers < HOLD_AFTER || list_linked(&qp->resp_link))
		return false;
	if (!h->gap[1])
		h->gap[1] = h->gap[0];
	if (list_empty(&pu->held))
		pu->held_until = pu->now + HOLD_NS;
	r->held = h->held = true;
	list_add_tail(&qp->resp_link, &pu->held);
	return true;
}

void hold_answered(struct nic_qp *qp)
{
	struct hold *h = &qp->resp.hold;

	h->answered = qp->pu->now;
	if (h->answered - h->asked > ANSWER_NS)
		h->answers = 0;
	else if (h->answers < HOLD_AFTER)
		h->answers++;
	h->asked = 0;
}

/* They leave with what this turn sends. */
void hold_release(struct pu *pu)
{
	while (!list_empty(&pu->held))
		nic_schedule_resp(container_of(pu->held.next, struct nic_qp, resp_link));
}

/* Of a QP whose link is taken from where it is. */
void hold_end(struct nic_qp *qp)
{
	qp->resp.held = false;
	list_del(&qp->resp_link);
}

/* The QP ends: what it took in is acknowledged, or its peer would never know. */
void hold_leave(struct nic_qp *qp)
{
	hold_end(qp);
	resp_run(qp);
	tx_flush(&qp->pu->ports[qp->port]);
}
