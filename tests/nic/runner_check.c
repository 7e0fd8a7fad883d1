/* SPDX-License-Identifier: BSD-2-Clause */
#include "runner_int.h"

#include <stdarg.h>
#include <stdio.h>

bool run_wrong(struct run *u, const struct ep *e, const char *fmt, ...)
{
	va_list ap;

	trace_print(&u->t, stderr);
	fprintf(stderr, "seed %" PRIu64 ", %.3f us", u->seed, (double)world_now(&u->w) / 1000);
	if (e)
		fprintf(stderr, ", QP 0x%06x of NIC %u", nic_qp_num(e->qp), e->nic_index);
	fprintf(stderr, ": ");
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fprintf(stderr, "\n");
	return false;
}

static unsigned expected_status(const struct op *o)
{
	static const unsigned of[FAULTS] = {
		[FAULT_LKEY] = NIC_WC_LOC_PROT_ERR,
		[FAULT_OPCODE] = NIC_WC_LOC_QP_OP_ERR,
		[FAULT_BIND] = NIC_WC_MW_BIND_ERR,
		[FAULT_INVALIDATE] = NIC_WC_LOC_QP_OP_ERR,
		[FAULT_RKEY] = NIC_WC_REM_ACCESS_ERR,
		[FAULT_BOUNDS] = NIC_WC_REM_ACCESS_ERR,
		[FAULT_MISALIGNED] = NIC_WC_REM_INV_REQ_ERR,
		[FAULT_TOO_LONG] = NIC_WC_REM_INV_REQ_ERR,
		[FAULT_STALE] = NIC_WC_REM_ACCESS_ERR,
		[FAULT_RIGHTS] = NIC_WC_REM_ACCESS_ERR,
		[FAULT_OUTSIDE] = NIC_WC_REM_ACCESS_ERR,
		[FAULT_SEND_INV] = NIC_WC_REM_ACCESS_ERR,
	};

	return of[o->fault];
}

static unsigned expected_opcode(const struct op *o)
{
	switch ((int)o->op) {
	case ROOST_OP_WRITE:
	case ROOST_OP_WRITE_IMM:
		return NIC_WC_WRITE;
	case ROOST_OP_READ:
		return NIC_WC_READ;
	case ROOST_OP_CMP_SWAP:
		return NIC_WC_CMP_SWAP;
	case ROOST_OP_FETCH_ADD:
		return NIC_WC_FETCH_ADD;
	case ROOST_OP_BIND_MW:
		return NIC_WC_BIND_MW;
	case ROOST_OP_RPC:
		return NIC_WC_RPC;
	case ROOST_OP_RPC_WRITE:
		return NIC_WC_RPC_WRITE;
	case ROOST_OP_LOCAL_INV:
		return NIC_WC_LOCAL_INV;
	default:
		return NIC_WC_SEND;
	}
}

/* Checks the memory that must be written when the completion is there. */
static bool check_pieces(struct run *u, struct conn *c, int i, const struct piece *sge, unsigned n,
			 uint32_t len)
{
	for (unsigned k = 0; k < n && len; k++) {
		uint32_t part = sge[k].len < len ? sge[k].len : len;

		for (uint32_t b = 0;
		     b < part && memcmp(c->e[i].mem + sge[k].off, c->s[i].model + sge[k].off, part);
		     b++)
			if (c->e[i].mem[sge[k].off + b] != c->s[i].model[sge[k].off + b])
				return run_wrong(
					u, &c->e[i],
					"byte %u of private memory is 0x%02x at its completion, not 0x%02x",
					sge[k].off + b, c->e[i].mem[sge[k].off + b],
					c->s[i].model[sge[k].off + b]);
		len -= part;
	}
	return true;
}

/* An addition to a shared word: no two additions return the same value. */
static bool check_shared(struct run *u, struct conn *c, int i, const struct op *o)
{
	struct ep *e = &c->e[i];
	unsigned nic = c->e[1 - i].nic_index;
	uint64_t old = 0;
	uint8_t *p = (uint8_t *)&old;

	for (unsigned k = 0; k < o->num_sge; k++) {
		memcpy(p, e->mem + o->sge[k].off, o->sge[k].len);
		memcpy(c->s[i].model + o->sge[k].off, p, o->sge[k].len);
		p += o->sge[k].len;
	}
	if (old >= u->added[nic][o->roff] || u->got[nic][o->roff][old]++)
		return run_wrong(
			u, e, "a shared word gave %" PRIu64 " twice, or before it was there", old);
	return true;
}

bool run_check_sent(struct run *u, const struct ep *e, const struct op *o, unsigned index,
		    const struct roost_cqe *cqe)
{
	if (cqe->wr_id != wr_id(u, index))
		return run_wrong(u, e, "completion of 0x%" PRIx64 ", expected 0x%" PRIx64,
				 cqe->wr_id, wr_id(u, index));
	if (cqe->status != expected_status(o))
		return run_wrong(u, e,
				 "request %u (op %u, %u bytes, fault %u) ended with status %u",
				 index, o->op, o->len, o->fault, cqe->status);
	if (cqe->opcode != expected_opcode(o) || cqe->qpn != nic_qp_num(e->qp))
		return run_wrong(u, e, "completion says op-code %u, QP 0x%x", cqe->opcode,
				 cqe->qpn);
	if (!o->fault && cqe->byte_len != o->len)
		return run_wrong(u, e, "completion says %u bytes, not %u", cqe->byte_len, o->len);
	return true;
}

static bool check_send(struct run *u, struct conn *c, int i, const struct roost_cqe *cqe)
{
	struct direction *d = &c->d[i];
	struct progress *at = &c->at[i];
	struct ep *e = &c->e[i];
	const struct op *o;

	if (at->cut) {
		if (cqe->status != NIC_WC_WR_FLUSH_ERR ||
		    (cqe->wr_id != FLUSHED_ID && cqe->wr_id != wr_id(u, at->cut++)))
			return run_wrong(u, e,
					 "after the error wr_id 0x%" PRIx64 " ended with status %u",
					 cqe->wr_id, cqe->status);
		at->extra_done |= cqe->wr_id == FLUSHED_ID;
		return true;
	}
	while (at->completed < d->num_ops && !e->p.sig_all && !d->ops[at->completed].fault &&
	       !(d->ops[at->completed].flags & ROOST_WQE_SIGNALED))
		at->completed++;
	if (at->completed == d->num_ops && at->extra_posted && !at->extra_done) {
		if (cqe->wr_id != FLUSHED_ID || cqe->status != NIC_WC_WR_FLUSH_ERR)
			return run_wrong(u, e,
					 "what follows the error ended with status %u, not flushed",
					 cqe->status);
		at->extra_done = true;
		return true;
	}
	if (at->completed == d->num_ops)
		return run_wrong(u, e, "a completion too many: wr_id 0x%" PRIx64 " status %u",
				 cqe->wr_id, cqe->status);
	/*
	 * The peer's last packets, a NAK or the READ responses before it, may be lost. The peer
	 * then sends nothing, in the error state, and a request without its answer ends with
	 * "retries exceeded".
	 */
	if (is_faulty(d) && u->lossy && cqe->status == NIC_WC_RETRY_EXC_ERR) {
		at->cut = (unsigned)cqe->wr_id + 1;
		return true;
	}
	o = &d->ops[at->completed];
	if (!run_check_sent(u, e, o, at->completed, cqe))
		return false;
	at->completed++;
	if (o->shared)
		return check_shared(u, c, i, o);
	if (!o->fault && reads(o))
		return check_pieces(u, c, i, o->sge, o->num_sge, o->len);
	return true;
}

/* A pool's slot: the program copies the message to the model's address. */
static bool take_slot(struct run *u, struct conn *c, int i, const struct receive *v,
		      const struct roost_cqe *cqe)
{
	uint8_t *slot = pool_slot(c->pool[i], cqe->wr_id);
	uint32_t len = v->sge[0].len;

	if (!slot)
		return run_wrong(u, &c->e[i], "a receive that was never posted: 0x%" PRIx64,
				 cqe->wr_id);
	if (!pool_rest_untouched(slot, len))
		return run_wrong(u, &c->e[i], "a receive changed beyond its message of %u bytes",
				 len);
	memcpy(c->e[i].mem + v->sge[0].off, slot, len);
	pool_free(c->pool[i], cqe->wr_id);
	return true;
}

static bool check_recv(struct run *u, struct conn *c, int i, const struct roost_cqe *cqe)
{
	struct direction *in = &c->d[1 - i];
	struct progress *at = &c->at[i];
	struct ep *e = &c->e[i];
	const struct receive *v = &in->receives[at->recv_completed];
	uint32_t imm;
	bool ok;

	if (calls_take_imm(u, c, i, cqe, &ok))
		return ok;
	if (at->recv_completed == (c->pool[i] ? in->num_receives : at->recv_posted))
		return run_wrong(u, e, "a receive too many: 0x%" PRIx64, cqe->wr_id);
	if ((!c->pool[i] && cqe->wr_id != wr_id(u, at->recv_completed)) || cqe->status != v->status)
		return run_wrong(u, e, "receive 0x%" PRIx64 " status %u, expected 0x%" PRIx64 " %u",
				 cqe->wr_id, cqe->status, wr_id(u, at->recv_completed), v->status);
	at->recv_completed++;
	if (v->status)
		return true;
	imm = v->flags == NIC_WC_WITH_INV ? c->key[i][v->imm] : v->imm;
	if (cqe->opcode != v->opcode || cqe->flags != v->flags || (v->flags && cqe->imm != imm) ||
	    cqe->byte_len != v->len || cqe->src_qpn != nic_qp_num(c->e[1 - i].qp))
		return run_wrong(
			u, e,
			"receive %u: op-code %u flags %u imm %x %u bytes from 0x%x, expected %u %u %x %u",
			at->recv_completed - 1, cqe->opcode, cqe->flags, cqe->imm, cqe->byte_len,
			cqe->src_qpn, v->opcode, v->flags, imm, v->len);
	if (c->pool[i] && !take_slot(u, c, i, v, cqe))
		return false;
	return v->opcode == NIC_WC_RECV ? check_pieces(u, c, i, v->sge, v->num_sge, v->len) : true;
}

bool run_poll_side(struct run *u, struct conn *c, int i)
{
	struct roost_cqe cqe;

	while (ep_poll_send(&c->e[i], &cqe))
		if (!check_send(u, c, i, &cqe))
			return false;
	while (ep_poll_recv(&c->e[i], &cqe))
		if (!(c->uc ? run_check_uc_recv : check_recv)(u, c, i, &cqe))
			return false;
	return calls_poll(u, c, i);
}

/* The model takes the bytes that it cannot know from the memory. */
static void forgive(struct conn *c, int side, uint32_t off, uint32_t len)
{
	memcpy(c->s[side].model + off, c->e[side].mem + off, len);
}

/* Takes the bytes that requests of side i left unsure, at both ends. */
static void forgive_unsure(struct conn *c, int i)
{
	struct direction *d = &c->d[i];

	if (is_faulty(d) && d->ops[d->num_ops - 1].fault == FAULT_LKEY)
		forgive(c, 1 - i, d->ops[d->num_ops - 1].roff, d->ops[d->num_ops - 1].len);
	for (unsigned k = 0; k < d->num_receives; k++)
		for (unsigned n = 0; d->receives[k].status && n < d->receives[k].num_sge; n++)
			forgive(c, 1 - i, d->receives[k].sge[n].off, d->receives[k].sge[n].len);
	for (unsigned k = 0; k < d->num_ops; k++) {
		const struct op *o = &d->ops[k];

		for (unsigned n = 0; (o->shared || (c->at[i].cut && reads(o))) && n < o->num_sge;
		     n++)
			forgive(c, i, o->sge[n].off, o->sge[n].len);
	}
}

static bool check_conn(struct run *u, struct conn *c)
{
	if (c->uc && (!run_check_uc_end(u, c, 0) || !run_check_uc_end(u, c, 1)))
		return false;
	if (!calls_check_end(u, c, 0) || !calls_check_end(u, c, 1))
		return false;
	forgive_unsure(c, 0);
	forgive_unsure(c, 1);
	for (int i = 0; i < 2; i++) {
		const uint8_t *is = c->e[i].mem, *want = c->s[i].model;
		struct ep *e = &c->e[i];

		for (uint32_t b = 0; memcmp(is, want, c->s[i].size) && b < c->s[i].size; b++)
			if (is[b] != want[b])
				return run_wrong(
					u, e,
					"at the end byte %u of its memory is 0x%02x, not 0x%02x", b,
					is[b], want[b]);
		if (!is_faulty(&c->d[0]) &&
		    (nic_qp_state(e->qp) != NIC_QPS_RTS || e->events & ~(1u << NIC_EVENT_COMM_EST)))
			return run_wrong(u, e, "state %u, events 0x%x", nic_qp_state(e->qp),
					 e->events);
	}
	return true;
}

bool run_check_end(struct run *u)
{
	bool rnr = false;

	for (unsigned k = 0; k < u->num_conns; k++)
		if (!check_conn(u, &u->c[k]))
			return false;
	for (unsigned n = 0; n < u->w.nics; n++) {
		struct nic_counters c;

		for (unsigned k = 0; k < SHARED_WORDS; k++)
			if (u->shared[n][k] != u->added[n][k])
				return run_wrong(u, NULL,
						 "a shared word is %" PRIu64 " after %" PRIu64
						 " adds",
						 u->shared[n][k], u->added[n][k]);
		nic_counters(u->w.nic[n], &c);
		rnr |= c.out_of_buffer > 0;
	}
	if (u->w.cq_errors)
		return run_wrong(u, NULL, "a completion queue overran");
	if (!run_check_loose_end(u) || !crowd_check_end(u))
		return false;
	if (!trace_check(&u->t, (rnr ? TRACE_RNR : 0) | (u->faulty ? TRACE_ERROR : 0) |
					(u->mtu ? 0 : TRACE_MTU)))
		return run_wrong(u, NULL,
				 "the trace breaks a rule, or the counters do not equal it");
	return true;
}
