/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The sending half of the responder. It sends READ responses, in turns that can be resumed, results
 * of atomics, and behind them the latest ACK or NAK.
 *
 * READs and atomics share a replay ring of at least max_dest_rd_atomic entries, oldest first:
 *
 *      head                         head + count
 *       | READ done | ATOMIC done | READ running | READ waiting |
 *
 * A duplicate READ is executed again from the PSN that it names, if its memory may still be read. A
 * duplicate atomic is answered from its entry. A duplicate older than the ring is dropped (IBA
 * 9.7.5.1.5 and 9.7.7.2.2).
 */
#include "base/assert.h"
#include "nic/dma.h"
#include "nic/responder.h"
#include "nic/tx.h"

#define NIC_RESP_BURST 32 /* READ responses of a QP before the next QP's turn */

static struct resp_entry *entry_at(const struct qp_resp *r, unsigned i)
{
	unsigned n = r->head + i;

	return &r->replay[n >= r->replay_size ? n - r->replay_size : n];
}

/* Moves r->oldest behind entries without responses to send. */
static void skip_answered(struct qp_resp *r)
{
	while (r->oldest < r->count) {
		const struct resp_entry *e = entry_at(r, r->oldest);

		if (e->cur != e->end)
			break;
		r->oldest++;
	}
}

bool resp_replay_full(const struct nic_qp *qp)
{
	const struct qp_resp *r = &qp->resp;

	if (!qp->replay_limit)
		return true;
	/* the entries that a new one replaces: at most one, unless the limit was reduced */
	for (int i = 0; i <= r->count - qp->replay_limit; i++) {
		if (!entry_at(r, (unsigned)i)->done)
			return true;
	}
	return false;
}

/* Returns the number of a new entry. resp_replay_full() has returned false. */
static unsigned new_entry(struct nic_qp *qp)
{
	struct qp_resp *r = &qp->resp;

	while (r->count >= qp->replay_limit) {
		/* If it is being answered again, its requester no longer needs the answer. */
		if (unlikely(r->oldest == 0)) {
			r->oldest = 1;
			skip_answered(r);
		}
		r->head = (uint8_t)(r->head + 1 == r->replay_size ? 0 : r->head + 1);
		r->oldest--;
		r->count--;
	}
	ROOST_ASSERT(r->count < r->replay_size);
	return r->count++;
}

/* Starts to send the responses [from, to) of entry i. */
static void run_entry(struct nic_qp *qp, unsigned i, uint32_t from, uint32_t to)
{
	struct qp_resp *r = &qp->resp;
	struct resp_entry *e = entry_at(r, i);

	if (i < r->oldest)
		r->oldest = (uint8_t)i;
	e->start = e->cur = from;
	e->end = to;
	nic_schedule_resp(qp);
}

/* The response acknowledges everything before it, so a pending ACK is not sent. */
void resp_queue_read(struct nic_qp *qp, const struct pkt_view *v, uint32_t psn, uint32_t npkts)
{
	unsigned i = new_entry(qp);

	*entry_at(&qp->resp, i) = (struct resp_entry){
		.psn = psn,
		.npkts = npkts,
		.msn = qp->resp.msn,
		.rkey = v->rkey,
		.len = v->dmalen,
		.va = v->va,
		.limit = v->dmalen,
	};
	qp->resp.ack = false;
	run_entry(qp, i, 0, npkts);
}

void resp_queue_atomic(struct nic_qp *qp, uint32_t psn, uint64_t result)
{
	unsigned i = new_entry(qp);

	*entry_at(&qp->resp, i) = (struct resp_entry){
		.psn = psn, .npkts = 1, .msn = qp->resp.msn, .result = result, .atomic = true};
	qp->resp.ack = false;
	run_entry(qp, i, 0, 1);
}

static struct resp_entry *find_entry(struct qp_resp *r, uint32_t psn, unsigned *where)
{
	for (unsigned i = r->count; i-- > 0;) {
		struct resp_entry *e = entry_at(r, i);

		if (!psn_before(psn, e->psn) && psn_before(psn, e->psn + e->npkts)) {
			*where = i;
			return e;
		}
	}
	return NULL;
}

/* A requester that goes back repeats all later requests, too. So the later responses stop here. */
static void cancel_younger(struct qp_resp *r, unsigned i)
{
	while (++i < r->count) {
		struct resp_entry *e = entry_at(r, i);

		e->cur = e->end;
	}
	skip_answered(r);
}

void resp_duplicate(struct nic_qp *qp, const struct pkt_view *v, uint32_t psn)
{
	struct qp_resp *r = &qp->resp;
	struct resp_entry *e;
	uint32_t from, npkts;
	unsigned i;

	if (v->op->kind != PKT_KIND_READ_REQ && v->op->kind != PKT_KIND_ATOMIC) {
		/*
		 * The request was executed before: it is acknowledged again, up to epsn - 1. A
		 * pending NAK does that as well.
		 */
		if (!r->nak) {
			r->ack = true;
			nic_schedule_resp(qp);
		}
		return;
	}
	e = find_entry(r, psn, &i);
	if (!e || e->atomic != (v->op->kind == PKT_KIND_ATOMIC))
		return;
	/*
	 * The request is for the response that is the next to send: it is a probe, which came while
	 * this process did not run. A requester that probes does not go back, so later responses
	 * continue.
	 */
	if (e->cur != e->end && psn == e->psn + e->cur)
		return;
	if (e->atomic) {
		cancel_younger(r, i);
		run_entry(qp, i, 0, 1);
		return;
	}
	from = psn - e->psn;
	npkts = v->dmalen ? (uint32_t)(((uint64_t)v->dmalen + qp->mtu - 1) >> qp->mtu_shift) : 1;
	/* The duplicate must lie within the original request. */
	if (v->va != e->va + ((uint64_t)from << qp->mtu_shift) || v->rkey != e->rkey ||
	    npkts > e->npkts - from || v->dmalen > e->len - (from << qp->mtu_shift))
		return;
	cancel_younger(r, i);
	e->limit = (from << qp->mtu_shift) + v->dmalen;
	run_entry(qp, i, from, from + npkts);
}

static int send_aeth(struct nic_qp *qp, uint8_t syndrome, uint32_t psn)
{
	uint32_t len = pkt_ops[PKT_ACK].hdr_len + PKT_ICRC_LEN;
	struct port_buf buf;
	uint8_t *p;
	int rc = tx_begin(qp, len, &buf);

	if (rc)
		return rc;
	p = pkt_put_bth(buf.bth, PKT_ACK, PKT_BTH_MIGREQ, qp->dest_qpn, false, psn);
	pkt_put_aeth(p, syndrome, qp->resp.msn);
	tx_end(qp, &buf, len);
	return 0;
}

/*
 * The notification point of DCQCN (Zhu et al., SIGCOMM 2015, 3.1). It answers a packet with an ECN
 * mark with a CNP at once, unless it sent a CNP in the last 50 us. A flow is a connection. Only
 * requests and READ responses count, because the peer can send these more slowly. Datagrams have no
 * rate to reduce.
 */
#define CNP_EVERY 50000 /* ns */

void resp_congested(struct nic_qp *qp, const struct pkt_view *v)
{
	struct qp_resp *r = &qp->resp;

	qp->pu->ctr.np_ecn_marked_roce_packets++;
	if (qp->type == NIC_QPT_UD || !(v->op->flags & (PKT_REQUEST | PKT_PAYLOAD)) ||
	    qp->pu->now < r->cnp_next)
		return;
	r->cnp_next = qp->pu->now + CNP_EVERY;
	r->cnp = true;
	nic_schedule_resp(qp);
}

/*
 * A CNP has BECN set, no PSN, and 16 reserved bytes (A17.9.3). Its ECN bits are 0, so it is never
 * marked.
 */
static int send_cnp(struct nic_qp *qp)
{
	uint32_t len = pkt_ops[PKT_CNP].hdr_len + PKT_ICRC_LEN;
	struct port_buf buf;
	uint8_t *p;
	int rc = tx_begin_to(qp->pu, qp->dest, qp->tos & 0xfc, len, &buf);

	if (rc)
		return rc;
	p = pkt_put_bth(buf.bth, PKT_CNP, 0, qp->dest_qpn, false, 0);
	buf.bth[4] = PKT_BTH_BECN;
	memset(p, 0, 16);
	tx_end(qp, &buf, len);
	qp->pu->ctr.np_cnp_sent++;
	return 0;
}

static int send_atomic_ack(struct nic_qp *qp, const struct resp_entry *e)
{
	uint32_t len = pkt_ops[PKT_ATOMIC_ACK].hdr_len + PKT_ICRC_LEN;
	struct port_buf buf;
	uint8_t *p;
	int rc = tx_begin(qp, len, &buf);

	if (rc)
		return rc;
	p = pkt_put_bth(buf.bth, PKT_ATOMIC_ACK, PKT_BTH_MIGREQ, qp->dest_qpn, false, e->psn);
	p = pkt_put_aeth(p, PKT_AETH_ACK, e->msn);
	pkt_put_be64(p, e->result);
	tx_end(qp, &buf, len);
	return 0;
}

/* Returns 0, -EAGAIN, or a NAK syndrome if the memory can't be read. */
static int send_read_response(struct nic_qp *qp, const struct resp_entry *e)
{
	bool first = e->cur == e->start, last = e->cur + 1 == e->end;
	uint8_t opcode = first ? (last ? PKT_READ_RESP_ONLY : PKT_READ_RESP_FIRST)
			       : (last ? PKT_READ_RESP_LAST : PKT_READ_RESP_MIDDLE);
	uint32_t off = e->cur << qp->mtu_shift;
	uint32_t n = e->limit - off < qp->mtu ? e->limit - off : qp->mtu;
	uint32_t pad = -n & 3;
	uint32_t len = pkt_ops[opcode].hdr_len + n + pad + PKT_ICRC_LEN;
	struct port_buf buf;
	void *src = NULL;
	uint8_t *p;
	int rc;

	if (n) {
		/* The program may have withdrawn the right since the request came. */
		if (unlikely(!(qp->access & NIC_ACCESS_REMOTE_READ)))
			return PKT_NAK_INVALID_REQ;
		src = qp_resolve(qp, e->rkey, e->va + off, n, NIC_ACCESS_REMOTE_READ);
		if (unlikely(!src))
			return PKT_NAK_REM_ACCESS;
	}
	/*
	 * READs are executed in order, and each one upward, packet by packet. The fence orders the
	 * loads after those of the previous packet.
	 */
	atomic_thread_fence(memory_order_acquire);
	rc = tx_begin(qp, len, &buf);
	if (rc)
		return rc;
	p = pkt_put_bth(buf.bth, opcode, (uint8_t)(PKT_BTH_MIGREQ | pad << PKT_BTH_PAD_SHIFT),
			qp->dest_qpn, false, e->psn + e->cur);
	if (pkt_ops[opcode].flags & PKT_AETH)
		p = pkt_put_aeth(p, PKT_AETH_ACK, e->msn);
	if (n >= TX_ONE_PASS) {
		rc = tx_end_copied(qp, &buf, p, src, n, len);
	} else {
		rc = n ? dma_load(p, src, n) : 0;
		if (likely(!rc)) {
			tx_pad(p, n);
			tx_end(qp, &buf, len);
		}
	}
	if (likely(!rc))
		return 0;
	tx_cancel(qp);
	qp->pu->ctr.memory_faults++;
	return PKT_NAK_REM_OP;
}

void resp_move_replay(struct qp_resp *r, struct resp_entry *to, uint8_t size)
{
	for (uint8_t i = 0; i < r->count; i++)
		to[i] = *entry_at(r, i);
	r->replay = to;
	r->head = 0;
	r->replay_size = size;
}

void resp_refused(struct nic_qp *qp, uint8_t syndrome)
{
	struct nic_counters *c = &qp->pu->ctr;

	if (syndrome == PKT_NAK_INVALID_REQ) {
		c->resp_remote_invalid_request++;
		qp_event(qp, NIC_EVENT_QP_REQ_ERR);
	} else if (syndrome == PKT_NAK_REM_ACCESS) {
		c->resp_remote_access_errors++;
		qp_event(qp, NIC_EVENT_QP_ACCESS_ERR);
	} else {
		c->resp_remote_op_errors += syndrome == PKT_NAK_REM_OP;
		qp_event(qp, NIC_EVENT_QP_FATAL);
	}
}

/* Counts a NAK that was sent. A NAK that ends the connection takes the QP to the error state. */
static void after_nak(struct nic_qp *qp, uint8_t syndrome)
{
	struct nic_counters *c = &qp->pu->ctr;

	if (PKT_AETH_TYPE(syndrome) == PKT_AETH_TYPE_RNR) {
		c->out_of_buffer++;
		c->send_rnr_err++;
	}
	if (PKT_AETH_TYPE(syndrome) != PKT_AETH_TYPE_NAK || syndrome == PKT_NAK_PSN_SEQ)
		return;
	resp_refused(qp, syndrome);
	qp->resp.last_nak = syndrome;
	qp_error(qp);
}

/*
 * Handles a request for a QP in the error state, which drops all packets (IBA 10.3.1.9), with one
 * exception. The NAK that ended the connection may have been lost, and the requester would use up
 * its retries without the reason. So a copy of the refused request is refused again.
 */
void resp_refuse_again(struct nic_qp *qp, const struct pkt_view *v)
{
	struct qp_resp *r = &qp->resp;

	if (r->last_nak && v->opcode != PKT_CNP && psn_extend(r->nak_psn, v->psn) == r->nak_psn)
		send_aeth(qp, r->last_nak, r->nak_psn);
}

/*
 * Returns true if the ACK waits for the next turn, on a queue pair with calls whose port makes a
 * system call for each flush. A caller takes the replies of this turn and often begins the next
 * calls at once. They and the ACK then leave together.
 */
static bool ack_waits(struct nic_qp *qp)
{
	const struct qp_sq *sq = &qp->sq;

	if (qp->ack_waited || !qp->pu->ports[qp->port].port->batch || sq->next != sq->fetched ||
	    sq_posted(sq))
		return false;
	qp->ack_waited = true;
	return true;
}

enum req_result resp_run(struct nic_qp *qp)
{
	struct qp_resp *r = &qp->resp;
	unsigned budget = NIC_RESP_BURST;

	if (qp->state < NIC_QPS_RTR || qp->state == NIC_QPS_ERR)
		return REQ_IDLE;
	if (unlikely(r->cnp)) {
		if (send_cnp(qp))
			return REQ_PORT_FULL;
		r->cnp = false;
	}
	while (r->oldest < r->count) {
		struct resp_entry *e = entry_at(r, r->oldest);
		int rc;

		if (!budget--)
			return REQ_MORE;
		rc = e->atomic ? send_atomic_ack(qp, e) : send_read_response(qp, e);
		if (rc == -EAGAIN)
			return REQ_PORT_FULL;
		if (unlikely(rc) && e->done) {
			/*
			 * The READ was fully answered before, so its memory may be gone. A late
			 * copy does not end the connection.
			 */
			e->cur = e->end;
			skip_answered(r);
			continue;
		}
		if (unlikely(rc)) {
			/* The NAK names the first response that cannot be sent. */
			uint32_t psn = e->psn + e->cur;

			e->cur = e->end;
			cancel_younger(r, r->oldest);
			resp_nak(qp, (uint8_t)rc, psn);
			break;
		}
		if (++e->cur == e->npkts)
			e->done = true;
		skip_answered(r);
	}
	if (r->nak) {
		uint8_t syndrome = r->nak;

		if (send_aeth(qp, syndrome, r->nak_psn))
			return REQ_PORT_FULL;
		r->nak = 0;
		after_nak(qp, syndrome);
	} else if (r->ack) {
		if (unlikely(qp_has(qp, QP_RPC)) && ack_waits(qp))
			return REQ_MORE;
		if (send_aeth(qp, PKT_AETH_ACK, r->epsn - 1))
			return REQ_PORT_FULL;
		r->ack = qp->ack_waited = false;
	}
	return REQ_IDLE;
}
