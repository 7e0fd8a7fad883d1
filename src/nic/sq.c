/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The send queue. WQEs are copied from the ring, checked, executed from the copy, and retired. The
 * ring is not read again after the copy, because the program may overwrite it.
 */
#include "nic/chain.h"
#include "nic/cq.h"
#include "nic/dma.h"
#include "nic/rpc.h"
#include "nic/stream.h"

/*
 * The most WQEs that a fetch copies: enough to share the cache misses, and few enough not to run
 * ahead of the wire.
 */
#define FETCH_BURST 16

/* The services that have an operation (IBA table 37), as bits of enum nic_qp_type. */
#define RC  (1 << NIC_QPT_RC)
#define CON (RC | 1 << NIC_QPT_UC)
#define ALL (CON | 1 << NIC_QPT_UD)

/* agreed: only some QPs have the operation. */
static const struct op_info {
	uint8_t services, payload, wc, agreed;
} op_info[] = {
	[ROOST_OP_NOP] = {ALL, 0, NIC_WC_SEND, 0},
	[ROOST_OP_WRITE] = {CON, 1, NIC_WC_WRITE, 0},
	[ROOST_OP_WRITE_IMM] = {CON, 1, NIC_WC_WRITE, 0},
	[ROOST_OP_SEND] = {ALL, 1, NIC_WC_SEND, 0},
	[ROOST_OP_SEND_IMM] = {ALL, 1, NIC_WC_SEND, 0},
	[ROOST_OP_SEND_INV] = {RC, 1, NIC_WC_SEND, 0},
	[ROOST_OP_READ] = {RC, 0, NIC_WC_READ, 0},
	[ROOST_OP_CMP_SWAP] = {RC, 0, NIC_WC_CMP_SWAP, 0},
	[ROOST_OP_FETCH_ADD] = {RC, 0, NIC_WC_FETCH_ADD, 0},
	[ROOST_OP_LOCAL_INV] = {CON, 0, NIC_WC_LOCAL_INV, 0},
	[ROOST_OP_BIND_MW] = {CON, 0, NIC_WC_BIND_MW, 0},
	[ROOST_OP_RPC] = {RC, 1, NIC_WC_RPC, 1},
	[ROOST_OP_RPC_WRITE] = {RC, 1, NIC_WC_RPC_WRITE, 1},
	[ROOST_OP_WAIT] = {RC, 0, NIC_WC_SEND, 1},
	[ROOST_OP_ENABLE] = {RC, 0, NIC_WC_SEND, 1},
	[ROOST_OP_RECV_ENABLE] = {RC, 0, NIC_WC_SEND, 1},
	[ROOST_OP_MAX] = {RC, 0, NIC_WC_FETCH_ADD, 1},
	[ROOST_OP_MIN] = {RC, 0, NIC_WC_FETCH_ADD, 1},
	[ROOST_OP_MAX_SIGNED] = {RC, 0, NIC_WC_FETCH_ADD, 1},
	[ROOST_OP_MIN_SIGNED] = {RC, 0, NIC_WC_FETCH_ADD, 1},
	[ROOST_OP_AND] = {RC, 0, NIC_WC_FETCH_ADD, 1},
	[ROOST_OP_OR] = {RC, 0, NIC_WC_FETCH_ADD, 1},
	[ROOST_OP_XOR] = {RC, 0, NIC_WC_FETCH_ADD, 1},
};
#define OPS (sizeof(op_info) / sizeof(op_info[0]))

/* Returns true if this QP has the operation, which needs an agreement or a chain. */
static __attribute__((noinline)) bool op_agreed(const struct nic_qp *qp, uint8_t op)
{
	return op_is_rpc(op) ? qp_has(qp, QP_RPC) : chain_has_op(qp, op);
}

/*
 * Copies a WQE and checks the copy. Only fields that are copied already determine how much is
 * copied, because the program may change the WQE meanwhile. Returns the completion status, or 0.
 */
static uint8_t take(struct nic_qp *qp, struct sq_entry *e, const uint8_t *slot)
{
	struct roost_wqe *w = &e->wqe;
	const struct op_info *info;
	uint64_t len = 0;
	uint16_t op;

	mem_copy_in(w, slot, sizeof(*w));
	op = ROOST_CTRL_OP(w->ctrl);
	e->op = (uint8_t)op;
	e->len = 0;
	e->npkts = 1;
	if (op >= OPS)
		return NIC_WC_LOC_QP_OP_ERR;
	info = &op_info[op];
	if (!(info->services & 1 << qp->type) || (unlikely(info->agreed) && !op_agreed(qp, e->op)))
		return NIC_WC_LOC_QP_OP_ERR;
	if (w->flags & ROOST_WQE_INLINE) {
		if (!info->payload || w->inline_len > qp->sq.max_inline)
			return NIC_WC_LOC_QP_OP_ERR;
		len = w->inline_len;
		if (len > sizeof(*w) - ROOST_WQE_INLINE_OFFSET)
			mem_copy_in((uint8_t *)w + sizeof(*w), slot + sizeof(*w),
				    ROOST_WQE_INLINE_OFFSET + len - sizeof(*w));
	} else {
		unsigned n = w->num_sge;

		if (likely(n == 1)) {
			len = w->sge[0].len;
		} else {
			if (n > qp->sq.max_sge)
				return NIC_WC_LOC_QP_OP_ERR;
			if (n)
				len = w->sge[0].len;
			/* one by one: a copy of unknown length is slower than those of a few */
			for (unsigned i = 1; i < n; i++) {
				mem_copy_in(&w->sge[i],
					    slot + ROOST_WQE_SGE_OFFSET + i * sizeof(w->sge[0]),
					    sizeof(w->sge[0]));
				len += w->sge[i].len;
			}
		}
	}
	if (len > (qp->type == NIC_QPT_UD || op == ROOST_OP_RPC ? qp->mtu : NIC_MAX_MSG) ||
	    (op_is_atomic(e->op) && len != 8))
		return NIC_WC_LOC_LEN_ERR;
	e->len = (uint32_t)len;
	if (len > 8) /* an atomic has 8 bytes, and one packet at any MTU */
		e->npkts = (uint32_t)((len + qp->mtu - 1) >> qp->mtu_shift);
	return NIC_WC_SUCCESS;
}

/* Does the work of sq_available() for n posted WQEs. */
static uint32_t available(struct nic_qp *qp, uint32_t n, uint32_t max)
{
	const struct qp_sq *sq = &qp->sq;
	uint32_t space = sq->window - sq_of_program(sq);

	if (unlikely(n > sq->mask + 1)) { /* the program stored an invalid index */
		qp_event(qp, NIC_EVENT_QP_FATAL);
		qp_error(qp);
		return 0;
	}
	if (n > space)
		n = space;
	return n < max ? n : max;
}

static uint32_t posted(const struct qp_sq *sq)
{
	return atomic_load_explicit(&sq->index->prod, memory_order_acquire) - sq->taken;
}

uint32_t sq_available(struct nic_qp *qp, uint32_t max)
{
	return available(qp, posted(&qp->sq), max);
}

static inline void copy_next(struct nic_qp *qp, struct sq_entry *e)
{
	struct qp_sq *sq = &qp->sq;
	uint32_t slot = sq->taken & sq->mask;

	__builtin_prefetch(sq->ring + ((size_t)((slot + 2) & sq->mask) << sq->stride_shift));
	e->index = sq->taken++;
	e->origin = SQ_PROGRAM;
	e->wr_id = sq->wr_ids[slot];
	e->status = take(qp, e, sq->ring + ((size_t)slot << sq->stride_shift));
	e->signaled = qp->sig_all || (e->wqe.flags & ROOST_WQE_SIGNALED);
	/* Invalid WQEs and local operations take no PSN. */
	if (e->status != NIC_WC_SUCCESS || op_is_local(e->op)) {
		e->npkts = 0;
		e->executed = false;
	}
}

void sq_copy(struct nic_qp *qp, struct sq_entry *e)
{
	copy_next(qp, e);
}

/* Fetches WQEs. Returns false if none can be fetched. May take the QP to the error state. */
bool sq_fetch(struct nic_qp *qp)
{
	struct qp_sq *sq = &qp->sq;
	uint32_t n;

	if (unlikely(qp->resize))
		return resize_fetch(qp);
	if (unlikely(chain_managed(qp)))
		return chain_fetch(qp);
	n = posted(sq);
	if (!n)
		return false;
	n = available(qp, n, FETCH_BURST);
	sq_restart(sq);
	for (uint32_t i = 0; i < n; i++) {
		struct sq_entry *e = sq_next_entry(sq);

		copy_next(qp, e);
		sq_append(sq, e);
	}
	return n > 0;
}

/*
 * Fetches the program's WQEs behind the present entries. While kernels post, there may always be
 * entries to send, and the loop in req.c fetches only when there are none. May take the QP to the
 * error state.
 */
void sq_fetch_program(struct nic_qp *qp)
{
	const struct qp_sq *sq = &qp->sq;

	if (unlikely(sq->count[SQ_KERNEL_WR] | sq->count[SQ_REPLY]) && qp->state == NIC_QPS_RTS &&
	    !sq_full(sq) && !chain_managed(qp))
		sq_fetch(qp);
}

static void complete(struct nic_qp *qp, uint64_t wr_id, uint32_t index, uint8_t op, uint8_t status,
		     uint32_t len)
{
	struct cqe_fields f = {
		.wr_id = wr_id,
		.byte_len = len,
		.wqe = index,
		.status = status,
		.opcode = op < OPS ? op_info[op].wc : NIC_WC_SEND,
	};

	if (unlikely(status != NIC_WC_SUCCESS))
		qp->pu->ctr.req_cqe_error++;
	cq_push(qp->send_cq, qp, &f);
}

void sq_retire(struct nic_qp *qp, struct sq_entry *e)
{
	struct qp_sq *sq = &qp->sq;

	sq->una++;
	sq->count[e->origin]--;
	if (likely(e->origin == SQ_PROGRAM))
		sq_complete(qp, e);
	else
		sq_origins[e->origin].retired(qp, e);
}

static __attribute__((noinline)) void report(struct nic_qp *qp, const struct sq_entry *e)
{
	if (likely(!qp->chain) || chain_reports(qp, e))
		complete(qp, e->wr_id, e->index, e->op, e->status, e->len);
}

void sq_complete(struct nic_qp *qp, const struct sq_entry *e)
{
	if (e->status == NIC_WC_SUCCESS) {
		qp->pu->ctr.completed_wqes++;
		qp->pu->ctr.rdma_sends += e->op >= ROOST_OP_SEND && e->op <= ROOST_OP_SEND_INV;
	} else if (unlikely(qp->chain)) {
		chain_failed(qp, e);
	}
	/*
	 * The store comes before the completion: a program that sees the completion may reuse the
	 * slot at once.
	 */
	atomic_store_explicit(&qp->sq.index->cons, e->index + 1, memory_order_release);
	if (e->signaled || e->status != NIC_WC_SUCCESS)
		report(qp, e);
}

bool sq_local(struct nic_qp *qp, struct sq_entry *e)
{
	switch (e->op) {
	case ROOST_OP_LOCAL_INV:
		if (!mr_invalidate(qp, e->wqe.imm))
			e->status = NIC_WC_LOC_QP_OP_ERR;
		break;
	case ROOST_OP_BIND_MW:
		if (!mw_bind(qp, &e->wqe))
			e->status = NIC_WC_MW_BIND_ERR;
		break;
	default:
		break;
	}
	return e->status == NIC_WC_SUCCESS;
}

/* Raises the event in SQD when all messages in progress are complete (IBA 10.3.1.7). */
void sq_drained(struct nic_qp *qp)
{
	struct qp_sq *sq = &qp->sq;

	if (!qp->attr.sq_draining || sq->psn_una != sq->psn_max || sq->next_pkt ||
	    resize_continues(qp))
		return;
	qp->attr.sq_draining = false;
	if (sq->drained_event)
		qp_event(qp, NIC_EVENT_SQ_DRAINED);
}

/* Flushes all posted WQEs in order, fetched or not (IBA 10.8.6). */
void sq_flush(struct nic_qp *qp)
{
	struct qp_sq *sq = &qp->sq;
	uint32_t prod = atomic_load_explicit(&sq->index->prod, memory_order_acquire);

	while (sq->una != sq->fetched) {
		struct sq_entry *e = sq_entry(sq, sq->una);

		e->status = NIC_WC_WR_FLUSH_ERR;
		qp->pu->ctr.req_cqe_flush_error += sq_origins[e->origin].of_program;
		sq_retire(qp, e);
	}
	if (unlikely(qp->resize))
		resize_flush(qp);
	/* A managed queue may be ahead of `prod`, because its WQEs are executed again. */
	if (unlikely(chain_managed(qp)) && (int32_t)(prod - sq->taken) < 0)
		prod = sq->taken;
	/* With an invalid index, one lap of the ring counts as posted. */
	if (unlikely(prod - sq->taken > sq->mask + 1))
		sq->taken = prod - (sq->mask + 1);
	while (sq->taken != prod) {
		uint32_t slot = sq->taken & sq->mask;
		struct roost_wqe *w =
			(struct roost_wqe *)(sq->ring + ((size_t)slot << sq->stride_shift));
		uint8_t op = (uint8_t)ROOST_CTRL_OP(*(volatile uint64_t *)&w->ctrl);
		uint64_t wr_id = sq->wr_ids[slot];
		uint32_t index = sq->taken++;

		qp->pu->ctr.req_cqe_flush_error++;
		atomic_store_explicit(&sq->index->cons, sq->taken, memory_order_release);
		complete(qp, wr_id, index, op, NIC_WC_WR_FLUSH_ERR, 0);
	}
	sq->next = sq->fetched;
	sq->next_pkt = 0;
}

/*
 * Returns the address of n bytes of the payload at `off`, if they are readable and contiguous in
 * the program's memory; else NULL.
 */
const void *sq_piece(struct nic_qp *qp, const struct sq_entry *e, uint32_t off, uint32_t n)
{
	const struct roost_sge *s = e->wqe.sge;

	if (e->wqe.flags & ROOST_WQE_INLINE || unlikely(!sq_origins[e->origin].one_piece))
		return NULL;
	while (off >= s->len)
		off -= s++->len;
	if (s->len - off < n)
		return NULL;
	return mr_resolve(&qp->nic->mrs, s->lkey, qp->pd, s->addr + off, n, MR_LOCAL);
}

/* Copies n > 0 bytes at `off` of an SGE. Returns as sq_gather() does. */
static inline int load_sge(struct nic_qp *qp, const struct roost_sge *s, uint32_t off, uint8_t *dst,
			   uint32_t n)
{
	void *src = mr_resolve(&qp->nic->mrs, s->lkey, qp->pd, s->addr + off, n, MR_LOCAL);

	if (unlikely(!src))
		return -EACCES;
	return unlikely(dma_load(dst, src, n)) ? -EFAULT : 0;
}

static inline int store_sge(struct nic_qp *qp, const struct roost_sge *s, uint32_t off,
			    const uint8_t *src, uint32_t n)
{
	void *dst = mr_resolve(&qp->nic->mrs, s->lkey, qp->pd, s->addr + off, n,
			       NIC_ACCESS_LOCAL_WRITE);

	if (unlikely(!dst))
		return -EACCES;
	return unlikely(dma_copy(dst, src, n)) ? -EFAULT : 0;
}

/* program_gather() for payload of several SGEs */
static __attribute__((noinline)) int gather_pieces(struct nic_qp *qp, const struct roost_sge *s,
						   uint32_t off, uint8_t *dst, uint32_t n)
{
	while (n && off >= s->len)
		off -= s++->len;
	while (n) {
		uint32_t part = s->len - off < n ? s->len - off : n;
		int rc = part ? load_sge(qp, s, off, dst, part) : 0;

		if (unlikely(rc))
			return rc;
		dst += part;
		n -= part;
		off = 0;
		s++;
	}
	return 0;
}

static int program_gather(struct nic_qp *qp, const struct sq_entry *e, uint32_t off, uint8_t *dst,
			  uint32_t n)
{
	const struct roost_sge *s = e->wqe.sge;

	if (e->wqe.flags & ROOST_WQE_INLINE) {
		memcpy(dst, (const uint8_t *)&e->wqe + ROOST_WQE_INLINE_OFFSET + off, n);
		return 0;
	}
	if (unlikely(!n || off + n > s->len))
		return gather_pieces(qp, s, off, dst, n);
	return load_sge(qp, s, off, dst, n);
}

/* program_scatter() for memory of several SGEs */
static __attribute__((noinline)) int scatter_pieces(struct nic_qp *qp, const struct roost_sge *s,
						    uint32_t off, const uint8_t *src, uint32_t n)
{
	while (n && off >= s->len)
		off -= s++->len;
	while (n) {
		uint32_t part = s->len - off < n ? s->len - off : n;
		int rc = part ? store_sge(qp, s, off, src, part) : 0;

		if (unlikely(rc))
			return rc;
		src += part;
		n -= part;
		off = 0;
		s++;
	}
	return 0;
}

static int program_scatter(struct nic_qp *qp, const struct sq_entry *e, uint32_t off,
			   const uint8_t *src, uint32_t n)
{
	const struct roost_sge *s = e->wqe.sge;

	if (unlikely(!n || off + n > s->len))
		return scatter_pieces(qp, s, off, src, n);
	return store_sge(qp, s, off, src, n);
}

const struct sq_origin_ops sq_origins[SQ_ORIGINS] = {
	[SQ_PROGRAM] = {.gather = program_gather,
			.scatter = program_scatter,
			.retired = sq_complete,
			.of_program = true,
			.one_piece = true,
			.hooked = true},
	/* Segments and replies are WRITEs, whose responses have no data. */
	[SQ_SEGMENT] = {.gather = resize_gather, .retired = resize_retired, .of_program = true},
	[SQ_REPLY] = {.gather = rpc_gather, .retired = rpc_retired},
	[SQ_KERNEL_WR] = {.gather = kernel_wr_gather,
			  .scatter = kernel_wr_scatter,
			  .retired = kernel_wr_retired},
};

/*
 * Copies n bytes of the payload at `off`. Returns 0, -EACCES (key, bounds, rights) or -EFAULT
 * (unmapped memory).
 */
int sq_gather(struct nic_qp *qp, const struct sq_entry *e, uint32_t off, uint8_t *dst, uint32_t n)
{
	if (likely(e->origin == SQ_PROGRAM))
		return program_gather(qp, e, off, dst, n);
	return sq_origins[e->origin].gather(qp, e, off, dst, n);
}

/*
 * Stores n bytes of a READ response, or the result of an atomic, at `off` of the memory of the
 * entry. Returns as sq_gather() does.
 */
int sq_scatter(struct nic_qp *qp, const struct sq_entry *e, uint32_t off, const uint8_t *src,
	       uint32_t n)
{
	if (likely(e->origin == SQ_PROGRAM))
		return program_scatter(qp, e, off, src, n);
	return sq_origins[e->origin].scatter(qp, e, off, src, n);
}
