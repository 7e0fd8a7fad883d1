/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Calls: StRoM's op-codes 0x18 .. 0x1c (EuroSys '20, section 5). The core carries them, as it
 * carries WRITEs, and knows nothing of what they do: the bytes go to whoever serves calls, each
 * once and in order, and come back as RDMA WRITEs of the responder.
 *
 *	RPC		op-code, key, parameters: one packet
 *	RPC WRITE	op-code, key, payload of any length: FIRST, MIDDLE .. LAST, or ONLY
 *
 * A piece that the server can't take now gets an RNR NAK, wherever in the message it stands.
 */
#include "nic/access.h"
#include "nic/core.h"

/* ---- what comes in ---- */

bool rpc_deliver(struct nic_qp *qp, const struct nic_rpc_piece *piece)
{
	/* Before RTS what it answers could not be sent: PSNs of our own side begin there. */
	return qp->state >= NIC_QPS_RTS &&
	       qp->nic->rpc_ops->deliver(qp->nic->rpc_ctx, qp->rpc_ctx, piece);
}

/*
 * A call may name no region (0), or one that its peer can reach; any other key is answered as a
 * WRITE with it would be. A status in the reply would tell which keys there are, at the price of a
 * call for each guess. What a call may do with a region is asked at each access.
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
		return PKT_NAK_INVALID_REQ; /* a NIC that only calls */
	if (v->op->flags & PKT_FIRST) {
		if (v->dmalen > NIC_MAX_MSG)
			return PKT_NAK_INVALID_REQ;
		if (unlikely(!rpc_key_ok(qp, v->rkey)))
			return PKT_NAK_REM_ACCESS;
		r->va = v->va;
		r->rkey = v->rkey;
		r->left = r->rpc_len = v->dmalen;
		r->received = 0;
	}
	if (last ? v->payload_len != r->left : v->payload_len >= r->left)
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
		.lone = qp->pu->rx_last,
		.now = qp->pu->now,
	};
	if (!rpc_deliver(qp, &piece))
		return resp_rnr(qp);
	r->received += v->payload_len;
	r->left -= v->payload_len;
	r->msg = last ? PKT_KIND_NONE : PKT_KIND_RPC_WRITE;
	return 0;
}

/* ---- what goes back ---- */

/*
 * An entry among the copies of WQEs, in their order and with PSNs like theirs: sge[0] is the data
 * (key 0: memory of the server's own), swap_add the bytes behind it; compare is the upper half of
 * the data's key, of a granted region. When data of its call can't be read, so says inline_len, the
 * bytes behind are those of ctrl; index is the call. This one has [off, off + len) of data and
 * tail; the immediate and the cookie go with the last of them (signaled).
 */
static void post(struct nic_qp *qp, const struct nic_rpc_send *s, uint32_t off, uint32_t len)
{
	struct qp_sq *sq = &qp->sq;
	struct sq_entry *e = sq_entry(sq, sq->fetched);
	bool last = off + len == s->len + s->tail_len, imm = last && s->has_imm;

	e->wr_id = last ? s->cookie : 0;
	e->psn = sq->psn_fetch;
	e->npkts = len ? (len + qp->mtu - 1) >> qp->mtu_shift : 1;
	e->len = len;
	e->op = imm ? ROOST_OP_WRITE_IMM : ROOST_OP_WRITE;
	e->status = NIC_WC_SUCCESS;
	e->signaled = last;
	e->num_sge = 1;
	e->reply = true;
	e->part = e->act = false;
	e->wqe.flags = imm ? ROOST_WQE_SOLICITED : 0;
	e->wqe.raddr = s->raddr + off;
	e->wqe.rkey = s->rkey;
	e->wqe.imm = s->imm;
	e->wqe.swap_add = s->tail;
	e->wqe.compare = s->key >> 32;
	e->wqe.ctrl = s->lost;
	e->wqe.inline_len = 0;
	e->index = s->call;
	e->wqe.sge[0] =
		(struct roost_sge){(s->buf ? (uintptr_t)s->buf : s->va) + off,
				   last ? s->len - off : len, s->buf ? 0 : (uint32_t)s->key};
	sq->psn_fetch += e->npkts;
	sq->fetched++;
	sq->replies++;
}

int nic_rpc_send(struct nic_qp *qp, const struct nic_rpc_send *s)
{
	uint32_t len = s->len + s->tail_len, over = len & (qp->mtu - 1), ahead = 0;

	if (qp->state != NIC_QPS_RTS && qp->state != NIC_QPS_SQD)
		return -ENOTCONN;
	if (s->len && !s->buf && !s->key)
		return -EACCES; /* 0 is no key; an entry without one has memory of ours */
	/*
	 * The tail is not cut by the edge of a packet: the first bytes go ahead then, in a WRITE of
	 * their own.
	 */
	if (over && over < s->tail_len && len > qp->mtu)
		ahead = over;
	if (qp->sq.replies + (ahead != 0) >= NIC_RPC_SENDS)
		return -EAGAIN;
	if (ahead)
		post(qp, s, 0, ahead);
	post(qp, s, ahead, len - ahead);
	nic_schedule(qp);
	return 0;
}

/* The entry's WRITE, and those behind it of the same call, are to say that there are no data. */
static void lose(struct nic_qp *qp, const struct sq_entry *e)
{
	struct qp_sq *sq = &qp->sq;
	uint32_t call = e->index;
	bool behind = false;

	for (uint32_t i = sq->una; i != sq->fetched; i++) {
		struct sq_entry *at = sq_entry(sq, i);

		behind |= at == e;
		if (behind && at->reply && at->index == call)
			at->wqe.inline_len = 1;
	}
	if (qp->nic->rpc_ops->lost)
		qp->nic->rpc_ops->lost(qp->nic->rpc_ctx, qp->rpc_ctx, call);
}

/* Is it the source that faults? On loop-back the other end may be memory of a program's, too. */
static bool readable(const uint8_t *src, uint32_t n)
{
	uint8_t scrap[256];

	for (uint32_t at = 0; at < n; at += sizeof(scrap))
		if (dma_copy(scrap, src + at, n - at < sizeof(scrap) ? n - at : sizeof(scrap)))
			return false;
	return true;
}

/* Its data, or zeros when they can't be read. Only where these go may fail. */
static int gather_data(struct nic_qp *qp, const struct sq_entry *e, uint32_t off, uint8_t *dst,
		       uint32_t n)
{
	static const uint8_t zeros[4096];
	const struct roost_sge *s = &e->wqe.sge[0];
	const void *src = (const void *)(uintptr_t)(s->addr + off);

	if (s->lkey)
		src = access_resolve(qp, e->wqe.compare << 32 | s->lkey, s->addr + off, n,
				     NIC_ACCESS_REMOTE_READ);
	if (likely(src)) {
		if (likely(!dma_load(dst, src, n)))
			return 0;
		if (readable(src, n))
			return -EFAULT;
		qp->pu->ctr.memory_faults++;
	}
	if (!e->wqe.inline_len)
		lose(qp, e);
	for (uint32_t at = 0; at < n; at += sizeof(zeros))
		if (dma_copy(dst + at, zeros, n - at < sizeof(zeros) ? n - at : sizeof(zeros)))
			return -EFAULT;
	return 0;
}

int rpc_gather(struct nic_qp *qp, const struct sq_entry *e, uint32_t off, uint8_t *dst, uint32_t n)
{
	uint32_t len = e->wqe.sge[0].len, part = off < len ? len - off : 0;
	const uint64_t *tail;
	int rc = 0;

	if (part > n)
		part = n;
	if (part)
		rc = gather_data(qp, e, off, dst, part);
	tail = e->wqe.inline_len ? &e->wqe.ctrl : &e->wqe.swap_add;
	if (!rc && part < n)
		rc = dma_copy(dst + part, (const uint8_t *)tail + (off + part - len), n - part);
	return rc;
}

void rpc_retired(struct nic_qp *qp, const struct sq_entry *e)
{
	if (e->status == NIC_WC_SUCCESS) {
		if (!e->signaled)
			return; /* the first bytes of one whose rest is behind it */
		qp->pu->ctr.rpc_replies++;
		qp->nic->rpc_ops->sent(qp->nic->rpc_ctx, qp->rpc_ctx, e->wr_id);
	} else if (e->status != NIC_WC_WR_FLUSH_ERR) {
		/* No work request of the program's says that the connection ends here. */
		qp_event(qp, NIC_EVENT_QP_FATAL);
	}
}
