/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Calls: StRoM's op-codes 0x18 .. 0x1c (EuroSys '20, section 5). The core transports calls like
 * WRITEs, and their meaning is unknown to it. It delivers each byte once, in order, to the layer
 * that serves calls. Replies are RDMA WRITEs of the responder.
 *
 *	RPC		op-code, key, parameters: one packet
 *	RPC WRITE	op-code, key, payload of any length: FIRST, MIDDLE .. LAST, or ONLY
 *
 * A piece that the server can't take now gets an RNR NAK, at any position in the message.
 */
#include "nic/access.h"
#include "nic/dma.h"
#include "nic/nic_kernel_wr.h"
#include "nic/responder.h"
#include "nic/rpc.h"

/* ---- receiving ---- */

bool rpc_deliver(struct nic_qp *qp, const struct nic_rpc_piece *piece)
{
	/* Before RTS the QP has no send PSN, so a reply could not be sent. */
	return qp->state >= NIC_QPS_RTS &&
	       qp->nic->rpc_ops->deliver(qp->nic->rpc_ctx, qp->rpc_ctx, piece);
}

/*
 * A call may name no region (0), or a region that its peer can reach. Any other key is refused, as
 * for a WRITE. If a status in the reply refused it instead, a peer could find valid keys at the
 * cost of one call per guess. Each access of the call checks its rights.
 */
bool rpc_key_ok(const struct nic_qp *qp, uint32_t key)
{
	const struct mr_last *last = &qp->pu->rpc_last;

	if (likely(!key ||
		   (last->e && mr_key_of(last->tag) == key && last->pd == qp->pd &&
		    atomic_load_explicit(&last->e->tag, memory_order_relaxed) == last->tag)))
		return true;
	return mr_reachable(&qp->nic->mrs, key, qp->pd) ||
	       mr_reachable(&qp->nic->mrs, key, MR_QP_DOMAIN(qp->qpn));
}

uint8_t resp_rpc(struct nic_qp *qp, const struct pkt_view *v)
{
	struct qp_resp *r = &qp->resp;
	bool last = v->op->flags & PKT_LAST;
	struct nic_rpc_piece piece;

	if (!qp->rpc_ctx)
		return PKT_NAK_INVALID_REQ; /* this NIC does not serve calls */
	if (v->op->flags & PKT_FIRST) {
		if (v->dmalen > NIC_MAX_MSG)
			return PKT_NAK_INVALID_REQ;
		if (unlikely(!rpc_key_ok(qp, v->rkey)))
			return PKT_NAK_REM_ACCESS;
		r->va = v->va;
		r->rkey = v->rkey;
		r->bytes_left = r->rpc_len = v->dmalen;
		r->received = 0;
	}
	if (last ? v->payload_len != r->bytes_left : v->payload_len >= r->bytes_left)
		return PKT_NAK_INVALID_REQ;
	piece = (struct nic_rpc_piece){
		.op = r->va,
		.rkey = r->rkey,
		.total = r->rpc_len,
		.off = r->received,
		.data = v->payload,
		.len = v->payload_len,
		.payload = v->op->kind == PKT_KIND_RPC_WRITE,
		.last = last,
		.ends_burst = qp->pu->rx_last,
		.now = qp->pu->now,
	};
	if (!rpc_deliver(qp, &piece))
		return resp_rnr(qp);
	r->received += v->payload_len;
	r->bytes_left -= v->payload_len;
	r->msg = last ? PKT_KIND_NONE : PKT_KIND_RPC_WRITE;
	return 0;
}

/* ---- replies ---- */

/*
 * Appends an entry with the bytes [off, off + len) of the reply's data and tail. Only the last
 * entry of a reply has the immediate and the cookie.
 */
static void post(struct nic_qp *qp, const struct nic_rpc_send *s, uint32_t off, uint32_t len)
{
	struct qp_sq *sq = &qp->sq;
	struct sq_entry *e = sq_next_entry(sq);
	bool last = off + len == s->len + s->tail_len, imm = last && s->has_imm;

	e->origin = SQ_REPLY;
	e->cookie = last ? s->cookie : 0;
	e->call = s->call;
	e->npkts = len ? (len + qp->mtu - 1) >> qp->mtu_shift : 1;
	e->len = len;
	e->op = imm ? ROOST_OP_WRITE_IMM : ROOST_OP_WRITE;
	e->status = NIC_WC_SUCCESS;
	e->wqe.flags = imm ? ROOST_WQE_SOLICITED : 0;
	e->wqe.raddr = s->raddr + off;
	e->wqe.rkey = s->rkey;
	e->wqe.imm = s->imm;
	e->reply = (struct sq_reply){.addr = (s->buf ? (uintptr_t)s->buf : s->va) + off,
				     .key = s->buf ? 0 : s->key,
				     .tail = s->tail,
				     .lost_tail = s->lost,
				     .len = last ? s->len - off : len,
				     .last = last};
	sq_append(sq, e);
}

int nic_rpc_send(struct nic_qp *qp, const struct nic_rpc_send *s)
{
	uint32_t len = s->len + s->tail_len, rest = len & (qp->mtu - 1), ahead = 0;

	if (qp->state != NIC_QPS_RTS && qp->state != NIC_QPS_SQD)
		return -ENOTCONN;
	if (s->len && !s->buf && !s->key)
		return -EACCES; /* key 0 in an entry means the server's own memory */
	/*
	 * One packet must carry the whole tail. If it would not, the first bytes leave in a WRITE
	 * before it.
	 */
	if (rest && rest < s->tail_len && len > qp->mtu)
		ahead = rest;
	if (qp->sq.count[SQ_REPLY] + (ahead != 0) >= NIC_RPC_SENDS)
		return -EAGAIN;
	/* The queue is empty: its first entries may still be in a cache. */
	sq_restart(&qp->sq);
	if (ahead)
		post(qp, s, 0, ahead);
	post(qp, s, ahead, len - ahead);
	nic_schedule(qp);
	return 0;
}

int nic_rpc_load(void *dst, const void *src, uint32_t n)
{
	return n ? dma_load(dst, src, n) : 0;
}

uint32_t nic_rpc_packet_max(const struct nic_qp *qp)
{
	return unlikely(qp_has(qp, QP_LOOP)) ? 0 : qp->mtu;
}

/*
 * Marks this WRITE and later WRITEs of the same call, which then carry `lost` instead of the tail.
 */
static void mark_lost(struct nic_qp *qp, const struct sq_entry *e)
{
	struct qp_sq *sq = &qp->sq;
	uint32_t call = e->call;
	bool behind = false;

	for (uint32_t i = sq->una; i != sq->fetched; i++) {
		struct sq_entry *at = sq_entry(sq, i);

		behind |= at == e;
		if (behind && at->origin == SQ_REPLY && at->call == call)
			at->reply.data_lost = true;
	}
	if (qp->nic->rpc_ops->lost)
		qp->nic->rpc_ops->lost(qp->nic->rpc_ctx, qp->rpc_ctx, call);
}

/*
 * Returns true if the source is readable, after a fault. On loop-back the destination may fault as
 * well.
 */
static bool readable(const uint8_t *src, uint32_t n)
{
	uint8_t scrap[256];

	for (uint32_t at = 0; at < n; at += sizeof(scrap))
		if (dma_copy(scrap, src + at, n - at < sizeof(scrap) ? n - at : sizeof(scrap)))
			return false;
	return true;
}

/*
 * Handles data whose key is refused (src is NULL) or whose copy has faulted: stores zeros, unless
 * the fault was at dst. Returns 0, or -EFAULT for a fault at dst.
 */
static __attribute__((noinline)) int gather_zeros(struct nic_qp *qp, const struct sq_entry *e,
						  const void *src, uint8_t *dst, uint32_t n)
{
	static const uint8_t zeros[4096];

	if (src) {
		if (readable(src, n))
			return -EFAULT;
		qp->pu->ctr.memory_faults++;
	}
	if (!e->reply.data_lost)
		mark_lost(qp, e);
	for (uint32_t at = 0; at < n; at += sizeof(zeros))
		if (dma_copy(dst + at, zeros, n - at < sizeof(zeros) ? n - at : sizeof(zeros)))
			return -EFAULT;
	return 0;
}

/* Copies the data, or zeros if they can't be read. Returns 0, or -EFAULT for a fault at dst. */
static int gather_data(struct nic_qp *qp, const struct sq_entry *e, uint32_t off, uint8_t *dst,
		       uint32_t n)
{
	const struct sq_reply *r = &e->reply;
	const void *src = (const void *)(uintptr_t)(r->addr + off);

	if (r->key)
		src = access_resolve(qp, r->key, r->addr + off, n, NIC_ACCESS_REMOTE_READ);
	if (likely(src) && likely(!dma_load(dst, src, n)))
		return 0;
	return gather_zeros(qp, e, src, dst, n);
}

int rpc_gather(struct nic_qp *qp, const struct sq_entry *e, uint32_t off, uint8_t *dst, uint32_t n)
{
	const struct sq_reply *r = &e->reply;
	uint32_t len = r->len, part = off < len ? len - off : 0;
	const uint64_t *tail;
	int rc = 0;

	if (part > n)
		part = n;
	if (part)
		rc = gather_data(qp, e, off, dst, part);
	tail = r->data_lost ? &r->lost_tail : &r->tail;
	if (!rc && part < n)
		rc = dma_copy(dst + part, (const uint8_t *)tail + (off + part - len), n - part);
	return rc;
}

void rpc_retired(struct nic_qp *qp, const struct sq_entry *e)
{
	if (e->status == NIC_WC_SUCCESS) {
		if (!e->reply.last)
			return; /* the first part of a WRITE that was split for its tail */
		qp->pu->ctr.rpc_replies++;
		qp->nic->rpc_ops->sent(qp->nic->rpc_ctx, qp->rpc_ctx, e->cookie);
	} else if (e->status != NIC_WC_WR_FLUSH_ERR) {
		/* The program may have no work request that reports the end of the connection. */
		qp_event(qp, NIC_EVENT_QP_FATAL);
	}
}
