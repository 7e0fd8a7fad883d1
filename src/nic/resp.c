/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The responder. It takes requests in PSN order, checks and executes them, and records the answers
 * that are due. resp_send.c sends the answers in order, behind running READs.
 */
#include "nic/chain.h"
#include "nic/cq.h"
#include "nic/dma.h"
#include "nic/responder.h"
#include "nic/rpc.h"
#include "nic/stream.h"

#define ONLY (PKT_FIRST | PKT_LAST)

/*
 * Returns true if the ACK of the packet is delayed (ack_delay.h). Not if a flush is a system call:
 * an ACK of its own would then cost one more.
 */
static __attribute__((noinline)) bool delay_ack(struct nic_qp *qp, const struct pkt_view *v)
{
	struct pu *pu = qp->pu;

	if (v->op->kind != PKT_KIND_WRITE || (v->op->flags & ONLY) != ONLY ||
	    !atomic_load_explicit(&qp->single_call, memory_order_relaxed) ||
	    pu->ports[qp->port].port->batch || list_linked(&qp->resp_link) ||
	    ack_delay_active(&pu->ack_delay))
		return false;
	pu->reply_qp = qp;
	return ack_delay_reply(&pu->ack_delay, pu->now);
}

static void need_ack(struct nic_qp *qp, const struct pkt_view *v)
{
	qp->resp.ack = true;
	if (unlikely(qp_has(qp, QP_RPC)) && delay_ack(qp, v))
		return;
	nic_schedule_resp(qp);
}

static bool nak_is_fatal(uint8_t syndrome)
{
	return PKT_AETH_TYPE(syndrome) == PKT_AETH_TYPE_NAK && syndrome != PKT_NAK_PSN_SEQ;
}

/* Records a NAK, which also acknowledges everything before its PSN. */
void resp_nak(struct nic_qp *qp, uint8_t syndrome, uint32_t psn)
{
	qp->resp.nak = syndrome;
	qp->resp.nak_psn = psn;
	qp->resp.nak_sent = true;
	qp->resp.ack = false;
	nic_schedule_resp(qp);
}

/* ---- receives ---- */

/* Copies the next posted receive from its ring. Returns false if none is posted. */
bool resp_take_recv(struct nic_qp *qp)
{
	struct qp_resp *r = &qp->resp;
	struct recv_ring *rq = r->rq;
	const struct roost_recv_wqe *w;
	uint32_t slot, space, num;

	if (!rq)
		return false;
	if (rq->prod_seen == rq->cons) {
		rq->prod_seen = likely(!qp->chain) ? atomic_load_explicit(&rq->index->prod,
									  memory_order_acquire)
						   : chain_receives(qp);
		if (rq->prod_seen == rq->cons)
			return false;
		if (unlikely(rq->prod_seen - rq->cons > rq->mask + 1)) {
			/*
			 * The program stored an invalid index, so the QP ends. In the QP's own
			 * ring, one lap of receives counts as posted and is flushed.
			 */
			if (qp->srq) {
				rq->prod_seen = rq->cons;
				srq_broken(qp->srq);
			} else {
				rq->cons = rq->prod_seen - (rq->mask + 1);
			}
			if (qp->state != NIC_QPS_ERR) {
				qp_event(qp, NIC_EVENT_QP_FATAL);
				qp_error(qp);
				return false;
			}
			if (qp->srq)
				return false;
		}
	}
	slot = rq->cons & rq->mask;
	w = (const void *)(rq->ring + ((size_t)slot << rq->stride_shift));
	space = ((1u << rq->stride_shift) - ROOST_RECV_SGE_OFFSET) / sizeof(struct roost_sge);
	if (space > ROOST_MAX_SGE)
		space = ROOST_MAX_SGE;
	r->recv.wr_id = rq->wr_ids[slot];
	r->recv.index = rq->cons;
	/* read once, because the program can write here at any time */
	num = *(const volatile uint32_t *)&w->num_sge;
	r->recv.num_sge = num < space ? num : space;
	r->recv.sge = r->recv.sge_off = 0;
	/* one by one: a copy of unknown length is slower than those of a few */
	for (uint32_t i = 0; i < r->recv.num_sge; i++)
		mem_copy_in(&qp->recv_sges[i],
			    (const uint8_t *)w + ROOST_RECV_SGE_OFFSET + i * sizeof(w->sge[0]),
			    sizeof(w->sge[0]));
	rq->cons++;
	atomic_store_explicit(&rq->index->cons, rq->cons, memory_order_release);
	r->has_recv = true;
	if (qp->srq)
		srq_taken(qp->srq);
	return true;
}

/* Appends n bytes to the current receive. */
enum scatter_result resp_scatter(struct nic_qp *qp, const uint8_t *src, uint32_t n)
{
	struct qp_resp *r = &qp->resp;

	while (n) {
		struct roost_sge *s = &qp->recv_sges[r->recv.sge];
		uint32_t part;
		void *dst;

		if (r->recv.sge == r->recv.num_sge)
			return SCATTER_TOO_LONG;
		part = s->len - r->recv.sge_off;
		if (part > n)
			part = n;
		if (part) {
			dst = mr_resolve(&qp->nic->mrs, s->lkey, r->rq->pd,
					 s->addr + r->recv.sge_off, part, NIC_ACCESS_LOCAL_WRITE);
			if (unlikely(!dst))
				return SCATTER_BAD_MEMORY;
			if (unlikely(dma_copy(dst, src, part))) {
				qp->pu->ctr.memory_faults++;
				return SCATTER_BAD_MEMORY;
			}
		}
		src += part;
		n -= part;
		r->recv.sge_off += part;
		if (r->recv.sge_off == s->len) {
			r->recv.sge++;
			r->recv.sge_off = 0;
		}
	}
	return SCATTER_OK;
}

void resp_complete_recv(struct nic_qp *qp, const struct cqe_fields *f)
{
	struct cqe_fields full = *f;

	full.wr_id = qp->resp.recv.wr_id;
	full.wqe = qp->resp.recv.index;
	qp->resp.has_recv = false;
	if (likely(full.status == NIC_WC_SUCCESS))
		qp->pu->ctr.rdma_recvs++;
	else
		qp->pu->ctr.resp_cqe_error++;
	cq_push(qp->recv_cq, qp, &full);
}

/*
 * Flushes the receive in progress and all receives posted to this QP. Receives in an SRQ stay for
 * other QPs. The number of slots of the ring bounds the loop, because the program may change the
 * index meanwhile.
 */
void resp_flush(struct nic_qp *qp)
{
	struct cqe_fields f = {.status = NIC_WC_WR_FLUSH_ERR, .opcode = NIC_WC_RECV};
	uint32_t left = qp->srq || !qp->resp.rq ? 0 : qp->resp.rq->mask + 1;

	for (;;) {
		if (qp->resp.has_recv) {
			qp->pu->ctr.resp_cqe_flush_error++;
			resp_complete_recv(qp, &f);
		}
		if (!left-- || !resp_take_recv(qp))
			break;
	}
}

/* ---- execution ---- */

uint8_t resp_scatter_or_nak(struct nic_qp *qp, const uint8_t *payload, uint32_t n)
{
	struct cqe_fields f = {.opcode = NIC_WC_RECV};

	switch (resp_scatter(qp, payload, n)) {
	case SCATTER_OK:
		return 0;
	case SCATTER_TOO_LONG:
		qp->pu->ctr.resp_local_length_error++;
		if (!qp_acknowledged(qp))
			/* the message is dropped, and the receive stays (uc.c, ud.c) */
			return PKT_NAK_INVALID_REQ;
		f.status = NIC_WC_LOC_LEN_ERR;
		resp_complete_recv(qp, &f);
		return PKT_NAK_INVALID_REQ;
	case SCATTER_BAD_MEMORY:
		break;
	}
	qp->pu->ctr.resp_local_protection_error++;
	f.status = NIC_WC_LOC_PROT_ERR;
	resp_complete_recv(qp, &f);
	return PKT_NAK_REM_OP;
}

/* Checks the position of a packet in its message, and its length (IBA 9.7.4.1.1). */
bool resp_in_sequence(const struct nic_qp *qp, const struct pkt_view *v)
{
	const struct qp_resp *r = &qp->resp;
	bool first = v->op->flags & PKT_FIRST, last = v->op->flags & PKT_LAST;

	if (first ? r->msg != PKT_KIND_NONE : r->msg != v->op->kind)
		return false;
	if (!last)
		return v->payload_len == qp->mtu;
	if (v->payload_len > qp->mtu)
		return false;
	return first || v->payload_len > 0;
}

uint8_t resp_rnr(const struct nic_qp *qp)
{
	return PKT_AETH_TYPE_RNR | (qp->attr.min_rnr_timer & 0x1f);
}

uint8_t resp_end_send(struct nic_qp *qp, struct cqe_fields *f)
{
	bool invalid = f->flags & NIC_WC_WITH_INV && !mr_invalidate(qp, f->imm);

	if (unlikely(invalid))
		f->status = NIC_WC_LOC_PROT_ERR;
	resp_complete_recv(qp, f);
	return invalid ? PKT_NAK_REM_ACCESS : 0;
}

uint8_t resp_send(struct nic_qp *qp, const struct pkt_view *v)
{
	struct qp_resp *r = &qp->resp;
	struct cqe_fields f = {
		.status = NIC_WC_SUCCESS, .opcode = NIC_WC_RECV, .solicited = v->solicited};
	uint8_t nak;

	if (v->op->flags & PKT_FIRST) {
		if (!r->has_recv && !resp_take_recv(qp))
			return resp_rnr(qp);
		r->received = 0;
	}
	if (v->payload_len > NIC_MAX_MSG - r->received)
		return PKT_NAK_INVALID_REQ;
	nak = resp_scatter_or_nak(qp, v->payload, v->payload_len);
	if (nak)
		return nak;
	r->received += v->payload_len;
	r->msg = PKT_KIND_SEND;
	if (!(v->op->flags & PKT_LAST))
		return 0;
	r->msg = PKT_KIND_NONE;
	f.byte_len = r->received;
	if (v->op->flags & PKT_IMM) {
		f.flags = NIC_WC_WITH_IMM;
		f.imm = v->imm;
	} else if (v->op->flags & PKT_IETH) {
		f.flags = NIC_WC_WITH_INV;
		f.imm = v->inv_rkey;
	}
	return resp_end_send(qp, &f);
}

uint8_t resp_check_write(const struct nic_qp *qp, uint32_t rkey, uint64_t va, uint32_t len,
			 void **dst)
{
	if (!(qp->access & NIC_ACCESS_REMOTE_WRITE) || len > NIC_MAX_MSG)
		return PKT_NAK_INVALID_REQ;
	/* The check is for the range of the whole message, so a bad WRITE changes nothing. */
	if (len) {
		*dst = qp_resolve(qp, rkey, va, len, NIC_ACCESS_REMOTE_WRITE);
		if (unlikely(!*dst))
			return PKT_NAK_REM_ACCESS;
	}
	return 0;
}

/*
 * A packet that is a whole WRITE may have several replies to calls (kernels/join.c). Each ends with
 * a word that the program polls, so the words must become visible in their order.
 */
static inline int copy_payload(const struct nic_qp *qp, const struct pkt_view *v, void *dst)
{
	if (unlikely(qp_has(qp, QP_RPC)) && (v->op->flags & ONLY) == ONLY)
		return dma_copy_up(dst, v->payload, v->payload_len);
	return dma_copy(dst, v->payload, v->payload_len);
}

/* Stores the payload of a packet of a WRITE, and shows it to the hooks. */
static __attribute__((noinline)) uint8_t store_with_hooks(struct nic_qp *qp,
							  const struct pkt_view *v)
{
	struct qp_resp *r = &qp->resp;
	struct mr_region_addr region_addr;
	void *dst = qp_resolve_region_addr(qp, r->rkey, r->va, v->payload_len,
					   NIC_ACCESS_REMOTE_WRITE, &region_addr);

	if (unlikely(!dst))
		return PKT_NAK_REM_ACCESS;
	if (!stream_begin_in(qp, region_addr.key))
		return resp_rnr(qp);
	if (unlikely(copy_payload(qp, v, dst))) {
		qp->pu->ctr.memory_faults++;
		stream_abort_in(qp, region_addr.key);
		return PKT_NAK_REM_OP;
	}
	stream_run_in(qp, region_addr.key,
		      &(struct nic_stream_piece){.va = region_addr.va,
						 .data = (uint8_t *)(uintptr_t)v->payload,
						 .total = r->received + r->bytes_left,
						 .off = r->received,
						 .len = v->payload_len,
						 .last = v->op->flags & PKT_LAST,
						 .pu = qp->pu_index});
	return 0;
}

/* Stores the payload of a packet of a WRITE at dst; NULL: at r->va. */
static inline uint8_t store(struct nic_qp *qp, const struct pkt_view *v, void *dst)
{
	struct qp_resp *r = &qp->resp;

	if (unlikely(stream_has_in(qp)))
		return store_with_hooks(qp, v);
	if (!dst)
		dst = qp_resolve(qp, r->rkey, r->va, v->payload_len, NIC_ACCESS_REMOTE_WRITE);
	if (unlikely(!dst))
		return PKT_NAK_REM_ACCESS;
	if (unlikely(copy_payload(qp, v, dst))) {
		qp->pu->ctr.memory_faults++;
		return PKT_NAK_REM_OP;
	}
	return 0;
}

/* Completes the receive of a WRITE with immediate. */
static __attribute__((noinline)) void complete_write_imm(struct nic_qp *qp,
							 const struct pkt_view *v)
{
	struct cqe_fields f = {.byte_len = qp->resp.received,
			       .imm = v->imm,
			       .opcode = NIC_WC_RECV_WRITE_IMM,
			       .flags = NIC_WC_WITH_IMM,
			       .solicited = v->solicited};

	resp_complete_recv(qp, &f);
}

uint8_t resp_write(struct nic_qp *qp, const struct pkt_view *v)
{
	struct qp_resp *r = &qp->resp;
	uint32_t n = v->payload_len;
	bool last = v->op->flags & PKT_LAST;
	void *dst = NULL;
	uint8_t nak;

	if (v->op->flags & PKT_FIRST) {
		nak = resp_check_write(qp, v->rkey, v->va, v->dmalen, &dst);
		if (unlikely(nak))
			return nak;
		r->va = v->va;
		r->rkey = v->rkey;
		r->bytes_left = v->dmalen;
		r->received = 0;
	} else if (unlikely(!(qp->access & NIC_ACCESS_REMOTE_WRITE))) {
		/* The program has withdrawn the right (rxe_resp.c, check_op_valid). */
		return PKT_NAK_INVALID_REQ;
	}
	if (last ? n != r->bytes_left : n >= r->bytes_left)
		return PKT_NAK_INVALID_REQ;
	/* A WRITE with immediate needs a receive, which is taken before this packet is written. */
	if ((v->op->flags & PKT_IMM) && !r->has_recv && !resp_take_recv(qp))
		return resp_rnr(qp);
	nak = n ? store(qp, v, dst) : 0;
	if (unlikely(nak))
		return nak;
	r->va += n;
	r->bytes_left -= n;
	r->received += n;
	r->msg = last ? PKT_KIND_NONE : PKT_KIND_WRITE;
	if (unlikely(v->op->flags & PKT_IMM))
		complete_write_imm(qp, v);
	return 0;
}

uint8_t resp_check_read(const struct nic_qp *qp, uint32_t rkey, uint64_t va, uint32_t len)
{
	if (!(qp->access & NIC_ACCESS_REMOTE_READ) || len > NIC_MAX_MSG || resp_replay_full(qp))
		return PKT_NAK_INVALID_REQ;
	if (len && !qp_resolve(qp, rkey, va, len, NIC_ACCESS_REMOTE_READ))
		return PKT_NAK_REM_ACCESS;
	return 0;
}

uint8_t resp_execute_atomic(struct nic_qp *qp, uint8_t op, uint64_t va, uint32_t rkey,
			    uint64_t swap_add, uint64_t compare, uint64_t *old)
{
	void *p;
	int rc;

	if (!(qp->access & NIC_ACCESS_REMOTE_ATOMIC) || va & 7)
		return PKT_NAK_INVALID_REQ;
	p = qp_resolve(qp, rkey, va, 8, NIC_ACCESS_REMOTE_ATOMIC);
	if (!p || (uintptr_t)p & 7)
		return PKT_NAK_REM_ACCESS;
	if (op == ROOST_OP_CMP_SWAP)
		rc = dma_cmp_swap(p, compare, swap_add, old);
	else if (op == ROOST_OP_FETCH_ADD)
		rc = dma_fetch_add(p, swap_add, old);
	else
		rc = chain_calc(op, p, swap_add, old);
	if (rc) {
		qp->pu->ctr.memory_faults++;
		return PKT_NAK_REM_OP;
	}
	qp->pu->ctr.rx_atomic_requests++;
	return 0;
}

static uint8_t do_atomic(struct nic_qp *qp, const struct pkt_view *v, uint32_t psn)
{
	struct qp_resp *r = &qp->resp;
	uint64_t old;
	uint8_t nak, op;

	if (resp_replay_full(qp))
		return PKT_NAK_INVALID_REQ;
	op = v->opcode == PKT_CMP_SWAP	  ? ROOST_OP_CMP_SWAP
	     : v->opcode == PKT_FETCH_ADD ? ROOST_OP_FETCH_ADD
					  : chain_op_of_calc(v->compare);
	if (unlikely(op == ROOST_OP_NOP))
		return PKT_NAK_INVALID_REQ;
	nak = resp_execute_atomic(qp, op, v->va, v->rkey, v->swap_add, v->compare, &old);
	if (nak)
		return nak;
	r->msn++;
	resp_queue_atomic(qp, psn, old);
	return 0;
}

static uint8_t execute(struct nic_qp *qp, const struct pkt_view *v, uint32_t psn)
{
	struct qp_resp *r = &qp->resp;
	uint32_t npkts;
	uint8_t nak;

	switch (v->op->kind) {
	case PKT_KIND_SEND:
		if (!resp_in_sequence(qp, v))
			return PKT_NAK_INVALID_REQ;
		nak = resp_send(qp, v);
		qp->pu->ctr.rx_send_requests += !nak;
		break;
	case PKT_KIND_WRITE:
		if (!resp_in_sequence(qp, v))
			return PKT_NAK_INVALID_REQ;
		nak = resp_write(qp, v);
		qp->pu->ctr.rx_write_requests += !nak;
		break;
	case PKT_KIND_RPC:
	case PKT_KIND_RPC_WRITE:
		if (!resp_in_sequence(qp, v))
			return PKT_NAK_INVALID_REQ;
		nak = resp_rpc(qp, v);
		qp->pu->ctr.rx_rpc_requests += !nak;
		break;
	case PKT_KIND_READ_REQ:
		if (v->payload_len)
			return PKT_NAK_INVALID_REQ;
		if (r->msg != PKT_KIND_NONE)
			return PKT_NAK_INVALID_REQ;
		nak = resp_check_read(qp, v->rkey, v->va, v->dmalen);
		if (nak)
			return nak;
		npkts = v->dmalen ? (uint32_t)(((uint64_t)v->dmalen + qp->mtu - 1) >> qp->mtu_shift)
				  : 1;
		qp->pu->ctr.rx_read_requests++;
		r->msn++;
		r->epsn += npkts;
		resp_queue_read(qp, v, psn, npkts);
		return 0;
	case PKT_KIND_ATOMIC:
		if (r->msg != PKT_KIND_NONE || v->payload_len)
			return PKT_NAK_INVALID_REQ;
		nak = do_atomic(qp, v, psn);
		if (!nak)
			r->epsn++;
		return nak;
	/*
	 * Reserved or unsupported op-codes (IBA 9.7.4.1.2; 9.9.3, table of responder errors: class
	 * C).
	 */
	default:
		return PKT_NAK_INVALID_REQ;
	}
	if (nak)
		return nak;
	r->epsn++;
	if (v->op->flags & PKT_LAST)
		r->msn++;
	if (v->ackreq)
		need_ack(qp, v);
	return 0;
}

/* Handles a request that does not have the expected PSN. */
static __attribute__((noinline)) void
out_of_sequence_request(struct nic_qp *qp, const struct pkt_view *v, uint32_t psn)
{
	struct qp_resp *r = &qp->resp;

	/* An unsupported op-code (rx.c) is an error only at the expected PSN. */
	if (v->op->kind == PKT_KIND_NONE) {
		qp->pu->ctr.rx_bad_opcode++;
		return;
	}
	if (psn_before(psn, r->epsn)) {
		qp->pu->ctr.duplicate_request++;
		resp_duplicate(qp, v, psn);
		return;
	}
	/*
	 * A gap gets one NAK (IBA 9.7.5.2.4) and is counted once, as in rxe (rxe_resp.c,
	 * check_psn).
	 */
	if (!r->nak_sent) {
		qp->pu->ctr.out_of_sequence++;
		resp_nak(qp, PKT_NAK_PSN_SEQ, r->epsn);
	}
}

void resp_rx(struct nic_qp *qp, const struct pkt_view *v)
{
	struct qp_resp *r = &qp->resp;
	uint32_t psn = psn_extend(r->epsn, v->psn);
	uint8_t nak;

	if (unlikely(r->nak && nak_is_fatal(r->nak)))
		return; /* the QP ends when this NAK has been sent */
	if (unlikely(psn != r->epsn)) {
		out_of_sequence_request(qp, v, psn);
		return;
	}
	if (unlikely(!qp->has_received))
		qp_first_packet(qp);
	r->nak_sent = false;
	if (unlikely(r->nak))
		r->nak = 0; /* the missing packet came before the NAK was sent */
	nak = execute(qp, v, psn);
	if (unlikely(nak))
		resp_nak(qp, nak, psn);
}
