/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * An outgoing hook whose kernel changes the length of WRITEs. A WRITE goes through the kernel piece
 * by piece into segments. Each full segment, and the last one, leaves as a separate WRITE, because
 * only then its length is known. The last segment ends the program's work request. A segment is
 * kept until it is acknowledged, and the requester retransmits from it, so the kernel runs once per
 * byte.
 *
 *	ring --take--> cur --pieces--> kernel --> | segment | segment | ...
 *
 * The hook has SEGS segments, which are used (head) and released (tail) in order. Each emitted
 * segment is an entry of the send queue (SQ_SEGMENT; the last segment of a WQE has `last`).
 */
#include <stdlib.h>

#include "nic/stream.h"

#define SEGS	  16u
#define SEG_BYTES 16384u
#define PIECE	  4096u

struct qp_resize {
	struct nic_stream_hook *hook;
	uint8_t *segs;
	uint32_t head, tail;
	struct sq_entry *cur; /* the current WQE */
	bool busy;	      /* cur is valid */
	bool needs_input;     /* the kernel wants its next piece */
	bool completed;	      /* the WQE `completed_index` has had its completion */
	uint32_t completed_index;
	uint32_t in;   /* bytes of cur that the kernel has got */
	uint64_t out;  /* bytes of output of cur in emitted segments; may exceed 4 GiB */
	uint32_t open; /* bytes of output in the segment at head */
	uint8_t piece[PIECE];
};

bool resize_active(const struct nic_qp *qp)
{
	return qp->resize && qp->resize->busy;
}

bool resize_continues(const struct nic_qp *qp)
{
	const struct qp_sq *sq = &qp->sq;

	if (likely(!qp->resize))
		return false;
	for (uint32_t i = sq->next; i != sq->fetched; i++) {
		const struct sq_entry *e = sq_entry(sq, i);

		if (e->origin == SQ_SEGMENT)
			return !e->segment.first;
	}
	return qp->resize->busy && qp->resize->out;
}

static uint8_t *segment(const struct qp_resize *z)
{
	return z->segs + (size_t)(z->head % SEGS) * SEG_BYTES;
}

/* Takes the next WQE. Only a WRITE goes through the kernel. Returns false if none is posted. */
static bool begin(struct nic_qp *qp)
{
	struct qp_resize *z = qp->resize;
	struct qp_sq *sq = &qp->sq;
	struct sq_entry *e = z->cur;

	if (!sq_available(qp, 1))
		return false;
	sq_copy(qp, e);
	if (e->status != NIC_WC_SUCCESS ||
	    (e->op != ROOST_OP_WRITE && e->op != ROOST_OP_WRITE_IMM)) {
		memcpy(sq_next_entry(sq), e, sq->entry_size);
		sq_append(sq, sq_next_entry(sq));
		return true;
	}
	z->busy = z->needs_input = true;
	z->in = z->out = z->open = 0;
	return true;
}

/* Appends the segment at head to the send queue, as an entry. */
static void emit(struct nic_qp *qp, uint8_t status, bool last)
{
	struct qp_resize *z = qp->resize;
	const struct sq_entry *cur = z->cur;
	struct qp_sq *sq = &qp->sq;
	struct sq_entry *e = sq_next_entry(sq);
	uint8_t *seg = segment(z);

	e->wr_id = cur->wr_id;
	e->index = cur->index;
	e->signaled = cur->signaled;
	e->op = last ? cur->op : ROOST_OP_WRITE;
	e->status = status;
	e->len = z->open;
	e->origin = SQ_SEGMENT;
	e->wqe.flags = cur->wqe.flags & ~(ROOST_WQE_INLINE | (z->out ? ROOST_WQE_FENCE : 0) |
					  (last ? 0 : ROOST_WQE_SOLICITED));
	e->wqe.raddr = cur->wqe.raddr + z->out;
	e->wqe.rkey = cur->wqe.rkey;
	e->wqe.imm = cur->wqe.imm;
	e->segment = (struct sq_segment){.data = seg, .first = !z->out, .last = last};
	if (z->open && status == NIC_WC_SUCCESS)
		stream_run_out_after(qp, z->hook,
				     &(struct nic_stream_piece){.va = e->wqe.raddr,
								.data = seg,
								.total = z->open,
								.len = z->open,
								.last = true,
								.pu = qp->pu_index});
	e->npkts = status != NIC_WC_SUCCESS ? 0
		   : z->open		    ? (z->open + qp->mtu - 1) >> qp->mtu_shift
					    : 1;
	sq_append(sq, e);
	z->head++;
	z->out += z->open;
	z->open = 0;
	z->busy = !last;
}

/* Gives the kernel its next piece. Returns false if the memory can't be read. */
static bool feed(struct nic_qp *qp)
{
	struct qp_resize *z = qp->resize;
	struct nic_stream_piece piece = {.va = z->cur->wqe.raddr + z->in,
					 .data = z->piece,
					 .total = z->cur->len,
					 .off = z->in,
					 .pu = qp->pu_index};
	int rc;

	piece.len = piece.total - z->in < PIECE ? piece.total - z->in : PIECE;
	piece.last = z->in + piece.len == piece.total;
	rc = sq_gather(qp, z->cur, z->in, z->piece, piece.len);
	if (unlikely(rc)) {
		qp->pu->ctr.memory_faults += rc == -EFAULT;
		return false;
	}
	stream_run_out_before(qp, z->hook, &piece);
	z->hook->bytes(z->hook, &piece);
	z->in += piece.len;
	z->needs_input = false;
	return true;
}

/* Continues the WQE until a segment is full, the WQE ends, or a hook is paused. */
static void advance(struct nic_qp *qp)
{
	struct qp_resize *z = qp->resize;

	while (!stream_paused(qp) && z->open < SEG_BYTES) {
		if (z->needs_input && z->in == z->cur->len)
			break;
		if (z->needs_input && !feed(qp)) {
			emit(qp, NIC_WC_LOC_PROT_ERR, true);
			return;
		}
		z->open += z->hook->produce(z->hook, segment(z) + z->open, SEG_BYTES - z->open,
					    &z->needs_input);
	}
	/* emit() shows the segment to the hooks behind this hook. */
	if (!stream_paused(qp))
		emit(qp, NIC_WC_SUCCESS, z->needs_input && z->in == z->cur->len);
}

bool resize_blocked(const struct nic_qp *qp)
{
	const struct qp_resize *z = qp->resize;

	return z && (z->head - z->tail == SEGS || (z->busy && stream_paused(qp)));
}

bool resize_fetch(struct nic_qp *qp)
{
	struct qp_sq *sq = &qp->sq;
	uint32_t before = sq->fetched;

	while (sq->fetched == before && !sq_full(sq) && !resize_blocked(qp)) {
		if (qp->resize->busy)
			advance(qp);
		else if (!begin(qp))
			break;
	}
	return sq->fetched != before;
}

int resize_gather(struct nic_qp *qp, const struct sq_entry *e, uint32_t off, uint8_t *dst,
		  uint32_t n)
{
	memcpy(dst, e->segment.data + off, n);
	return 0;
}

/*
 * Called when a segment has ended. The WQE ends with its last segment, or with the first that
 * fails.
 */
void resize_retired(struct nic_qp *qp, const struct sq_entry *e)
{
	struct qp_resize *z = qp->resize;
	bool completed = z->completed && z->completed_index == e->index;

	z->tail++;
	if (completed)
		return;
	if (e->status != NIC_WC_SUCCESS) {
		z->completed = true;
		z->completed_index = e->index;
	} else if (!e->segment.last) {
		return;
	}
	sq_complete(qp, e);
}

void resize_flush(struct nic_qp *qp)
{
	struct qp_resize *z = qp->resize;

	if (z->busy && !(z->completed && z->completed_index == z->cur->index)) {
		z->cur->status = NIC_WC_WR_FLUSH_ERR;
		qp->pu->ctr.req_cqe_flush_error++;
		sq_complete(qp, z->cur);
	}
	resize_reset(qp);
}

void resize_reset(struct nic_qp *qp)
{
	struct qp_resize *z = qp->resize;

	if (z->busy && !z->needs_input)
		z->hook->drop(z->hook);
	z->busy = z->completed = false;
	z->head = z->tail = 0;
}

int resize_begin(struct nic_qp *qp, struct nic_stream_hook *hook)
{
	struct qp_resize *z = calloc(1, sizeof(*z));

	if (!z)
		return -ENOMEM;
	z->hook = hook;
	z->cur = aligned_alloc(ROOST_CACHE_LINE, qp->sq.entry_size);
	z->segs = mem_alloc_pages((size_t)SEGS * SEG_BYTES);
	qp->resize = z;
	if (z->cur && z->segs)
		return 0;
	resize_end(qp);
	return -ENOMEM;
}

void resize_end(struct nic_qp *qp)
{
	struct qp_resize *z = qp->resize;

	if (z->segs)
		mem_free_pages(z->segs, (size_t)SEGS * SEG_BYTES);
	free(z->cur);
	free(z);
	qp->resize = NULL;
}
